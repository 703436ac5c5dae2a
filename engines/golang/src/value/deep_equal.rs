//! Go's `reflect.DeepEqual`.
//!
//! No function recurses. A template can nest values to any depth, and a map can contain itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{GoObject, GoRuntimeValue, ReflectKind};

/// Pairs of containers that were compared or are waiting to be compared.
type DeepEqualVisitedPairs = BTreeSet<(usize, usize)>;

impl GoRuntimeValue {
    /// Whether Go's `reflect.DeepEqual` calls two values equal: their types and contents are equal at every depth.
    ///
    /// Numbers of different types are never equal. NaN equals no value, and nil does not equal an empty value. `work`
    /// is called before each pair of values is examined, with the amount of work, so that the caller can stop.
    ///
    /// # Errors
    /// The error of `work`.
    pub fn deep_equal<E>(
        &self,
        other: &Self,
        mut work: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut seen = DeepEqualVisitedPairs::new();
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

/// How much work it is to examine a value, without the content of nested values.
fn weight(value: &GoRuntimeValue) -> usize {
    match value {
        GoRuntimeValue::String(text) | GoRuntimeValue::Bytes(text) => text.len() / 64,
        GoRuntimeValue::List(list) => list.len(),
        GoRuntimeValue::Map(map) => map.len(),
        _ => 0,
    }
}

/// Whether two values are equal, provided that the pairs that it adds to `pending` are equal.
fn compare(
    a: &GoRuntimeValue,
    b: &GoRuntimeValue,
    pending: &mut Vec<(GoRuntimeValue, GoRuntimeValue)>,
    seen: &mut DeepEqualVisitedPairs,
) -> bool {
    match (a, b) {
        (GoRuntimeValue::Nil, GoRuntimeValue::Nil) => true,
        (GoRuntimeValue::Bool(a), GoRuntimeValue::Bool(b)) => a == b,
        (GoRuntimeValue::Integer(a), GoRuntimeValue::Integer(b)) => a == b,
        (GoRuntimeValue::Float(a), GoRuntimeValue::Float(b)) => a == b,
        (GoRuntimeValue::Complex(a, b), GoRuntimeValue::Complex(c, d)) => (a, b) == (c, d),
        (GoRuntimeValue::String(a), GoRuntimeValue::String(b))
        | (GoRuntimeValue::Bytes(a), GoRuntimeValue::Bytes(b)) => a == b,
        (GoRuntimeValue::List(a), GoRuntimeValue::List(b)) => {
            if a.item_type() != b.item_type() || a.is_nil() != b.is_nil() || a.len() != b.len() {
                return false;
            }
            if !a.is_same(b) && seen.insert((a.address(), b.address())) {
                pending.extend(a.items().iter().cloned().zip(b.items().iter().cloned()));
            }
            true
        }
        (GoRuntimeValue::Map(a), GoRuntimeValue::Map(b)) => {
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
        (GoRuntimeValue::Object(a), GoRuntimeValue::Object(b)) => objects(a, b, pending),
        // Parity(go): functions are equal only if both are nil.
        _ => false,
    }
}

fn objects(
    a: &Arc<dyn GoObject>,
    b: &Arc<dyn GoObject>,
    pending: &mut Vec<(GoRuntimeValue, GoRuntimeValue)>,
) -> bool {
    if a.type_name() != b.type_name() || a.is_nil() != b.is_nil() {
        return false;
    }
    if Arc::ptr_eq(a, b) && a.kind() == ReflectKind::Pointer || a.is_nil() {
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

    use crate::GoRuntimeValue;
    use crate::value::{GoMap, GoSlice, GoType};

    fn equal(a: &GoRuntimeValue, b: &GoRuntimeValue) -> bool {
        a.deep_equal(b, |_| Ok::<_, Infallible>(())).unwrap()
    }

    #[test]
    fn types_count_and_so_does_nil() {
        assert!(equal(
            &GoRuntimeValue::list([GoRuntimeValue::int(1)]),
            &GoRuntimeValue::list([GoRuntimeValue::int(1)])
        ));
        assert!(!equal(&GoRuntimeValue::int(1), &GoRuntimeValue::int64(1)));
        assert!(!equal(&GoRuntimeValue::int(1), &GoRuntimeValue::Float(1.0)));
        assert!(!equal(&GoRuntimeValue::Float(f64::NAN), &GoRuntimeValue::Float(f64::NAN)));
        assert!(!equal(
            &GoRuntimeValue::List(GoSlice::nil(GoType::Any)),
            &GoRuntimeValue::list([])
        ));
        assert!(!equal(
            &GoRuntimeValue::strings(["a"]),
            &GoRuntimeValue::list([GoRuntimeValue::from("a")])
        ));
        assert!(
            equal(&GoRuntimeValue::Nil, &GoRuntimeValue::Nil)
                && !equal(&GoRuntimeValue::Nil, &GoRuntimeValue::list([]))
        );
        let map = |key: &str, value| GoRuntimeValue::map([(key, GoRuntimeValue::int(value))]);
        assert!(equal(&map("a", 1), &map("a", 1)));
        assert!(!equal(&map("a", 1), &map("b", 1)) && !equal(&map("a", 1), &map("a", 2)));
    }

    #[test]
    fn maps_that_hold_themselves_are_compared_once() {
        let looped = || {
            let map = GoMap::default();
            map.insert("self", GoRuntimeValue::Map(map.clone()));
            GoRuntimeValue::Map(map)
        };
        assert!(equal(&looped(), &looped()));
    }

    #[test]
    fn what_is_shared_is_compared_once() {
        let doubled = || {
            (0..60).fold(GoRuntimeValue::int(1), |value, _| {
                GoRuntimeValue::list([value.clone(), value])
            })
        };
        assert!(equal(&doubled(), &doubled()));
    }

    #[test]
    fn the_caller_can_stop_it() {
        let long = || GoRuntimeValue::list((0..100).map(GoRuntimeValue::int));
        let mut steps = 0;
        let result = long().deep_equal(&long(), |_| {
            steps += 1;
            if steps > 50 { Err("enough") } else { Ok(()) }
        });
        assert_eq!(result, Err("enough"));
    }
}
