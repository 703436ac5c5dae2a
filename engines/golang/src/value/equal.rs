//! Go's `reflect.DeepEqual`.
//!
//! Nothing recurses: a template can nest values as deep as it likes, and a map can hold itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Kind, Object, Value};

/// Pairs of containers that were compared, or are about to be.
type Seen = BTreeSet<(usize, usize)>;

impl Value {
    /// Whether Go's `reflect.DeepEqual` takes both for the same: equal types and equal contents all the way down.
    ///
    /// No number equals one of another type, NaN equals nothing, and what is nil equals nothing that is merely empty.
    /// `work` is called before each pair of values is examined, with how much there is to be examined in it, so that
    /// the caller can stop.
    ///
    /// # Errors
    /// What `work` says.
    pub fn deep_equal<E>(
        &self,
        other: &Self,
        mut work: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut seen = Seen::new();
        let mut pending = vec![(self.clone(), other.clone())];
        while let Some((a, b)) = pending.pop() {
            work(1 + weight(&a))?;
            if !compare(&a, &b, &mut pending, &mut seen) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// How much there is to be examined in a value, but for what is in what it holds.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) | Value::Bytes(text) => text.len() / 64,
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => 0,
    }
}

/// Whether two values are equal if those are that it puts into `pending`.
fn compare(a: &Value, b: &Value, pending: &mut Vec<(Value, Value)>, seen: &mut Seen) -> bool {
    match (a, b) {
        (Value::Nil, Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Integer(a), Value::Integer(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Complex(a, b), Value::Complex(c, d)) => (a, b) == (c, d),
        (Value::String(a), Value::String(b)) | (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            if a.item_type() != b.item_type() || a.is_nil() != b.is_nil() || a.len() != b.len() {
                return false;
            }
            if !a.is_same(b) && seen.insert((a.address(), b.address())) {
                pending.extend(a.items().iter().cloned().zip(b.items().iter().cloned()));
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.item_type() != b.item_type() || a.is_nil() != b.is_nil() || a.len() != b.len() {
                return false;
            }
            if a.is_same(b) || !seen.insert((a.address(), b.address())) {
                return true;
            }
            for ((key, value), (other_key, other)) in a.entries().into_iter().zip(b.entries()) {
                if key != other_key {
                    return false;
                }
                pending.push((value, other));
            }
            true
        }
        (Value::Object(a), Value::Object(b)) => objects(a, b, pending),
        // Parity(go): functions are equal only if both are nil.
        _ => false,
    }
}

fn objects(a: &Arc<dyn Object>, b: &Arc<dyn Object>, pending: &mut Vec<(Value, Value)>) -> bool {
    if a.type_name() != b.type_name() || a.is_nil() != b.is_nil() {
        return false;
    }
    if Arc::ptr_eq(a, b) && a.kind() == Kind::Pointer || a.is_nil() {
        return true;
    }
    if let (Some(a), Some(b)) = (a.underlying(), b.underlying()) {
        pending.push((a, b));
        return true;
    }
    let of_a = a.fields();
    let of_b = b.fields();
    if of_a.is_empty() && of_b.is_empty() {
        return a.deep_equals(&**b);
    }
    pending.extend(of_a.into_iter().zip(of_b).map(|((_, a), (_, b))| (a, b)));
    true
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use crate::Value;
    use crate::value::{List, Map, Type};

    fn equal(a: &Value, b: &Value) -> bool {
        a.deep_equal(b, |_| Ok::<_, Infallible>(())).unwrap()
    }

    #[test]
    fn types_count_and_so_does_nil() {
        assert!(equal(&Value::list([Value::int(1)]), &Value::list([Value::int(1)])));
        assert!(!equal(&Value::int(1), &Value::int64(1)));
        assert!(!equal(&Value::int(1), &Value::Float(1.0)));
        assert!(!equal(&Value::Float(f64::NAN), &Value::Float(f64::NAN)));
        assert!(!equal(&Value::List(List::nil(Type::Any)), &Value::list([])));
        assert!(!equal(&Value::strings(["a"]), &Value::list([Value::from("a")])));
        assert!(equal(&Value::Nil, &Value::Nil) && !equal(&Value::Nil, &Value::list([])));
        let map = |key: &str, value| Value::map([(key, Value::int(value))]);
        assert!(equal(&map("a", 1), &map("a", 1)));
        assert!(!equal(&map("a", 1), &map("b", 1)) && !equal(&map("a", 1), &map("a", 2)));
    }

    #[test]
    fn maps_that_hold_themselves_are_compared_once() {
        let looped = || {
            let map = Map::default();
            map.insert("self", Value::Map(map.clone()));
            Value::Map(map)
        };
        assert!(equal(&looped(), &looped()));
    }

    #[test]
    fn what_is_shared_is_compared_once() {
        let doubled =
            || (0..60).fold(Value::int(1), |value, _| Value::list([value.clone(), value]));
        assert!(equal(&doubled(), &doubled()));
    }

    #[test]
    fn the_caller_can_stop_it() {
        let long = || Value::list((0..100).map(Value::int));
        let mut steps = 0;
        let result = long().deep_equal(&long(), |_| {
            steps += 1;
            if steps > 50 { Err("enough") } else { Ok(()) }
        });
        assert_eq!(result, Err("enough"));
    }
}
