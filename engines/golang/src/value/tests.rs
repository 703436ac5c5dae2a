//! Laws of values that no recorded case can show.

use super::{
    GoMap, GoObject, GoRuntimeValue, GoSlice, GoType, IntegerKind, ReflectKind, SizedInteger,
};

#[test]
fn values_nested_without_end_are_dropped_without_the_stack() {
    let mut value = GoRuntimeValue::Nil;
    for _ in 0..500_000 {
        value = GoRuntimeValue::list([GoRuntimeValue::map([("k", value)])]);
    }
    drop(value);
}

#[test]
fn integers_are_cut_off_as_conversions_do() {
    assert_eq!(SizedInteger::new(IntegerKind::Int8, 200).signed(), -56);
    assert_eq!(SizedInteger::new(IntegerKind::Uint8, -1).unsigned(), 255);
    assert_eq!(SizedInteger::new(IntegerKind::Uint64, -1).unsigned(), u64::MAX);
}

#[test]
fn a_slice_shows_what_is_behind_another_slice_of_it() {
    let list = GoSlice::with_capacity(
        GoType::Any,
        vec![GoRuntimeValue::int(1), GoRuntimeValue::int(2)],
        4,
    );
    let first = list.slice(0, 1, 4).unwrap();
    assert_eq!((first.len(), first.capacity()), (1, 4));
    let all = first.slice(1, 3, 4).unwrap();
    assert_eq!(crate::fmt::sprint(&[GoRuntimeValue::List(all)]).unwrap(), b"[2 <nil>]");
    assert!(first.slice(0, 5, 5).is_none() && first.slice(2, 1, 4).is_none());
}

#[test]
fn a_map_is_changed_through_every_holder() {
    let map = GoMap::new(GoType::Any, []);
    let holder = GoRuntimeValue::Map(map.clone());
    map.insert("b", GoRuntimeValue::int(1));
    map.insert("a", holder.clone());
    map.remove(b"a");
    assert_eq!(crate::fmt::sprint(&[holder]).unwrap(), b"map[b:1]");
}

#[derive(Debug)]
struct NamedValueObject(GoRuntimeValue);

impl GoObject for NamedValueObject {
    fn type_name(&self) -> &'static str {
        "common.Values"
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(self.0.clone())
    }
}

#[test]
fn a_named_map_is_given_where_a_map_is_asked_for_and_not_the_other_way_round() {
    let map = GoRuntimeValue::map([("a", GoRuntimeValue::int(1))]);
    let named = GoRuntimeValue::object(NamedValueObject(map.clone()));
    assert_eq!((named.kind(), named.type_name().as_str()), (ReflectKind::Map, "common.Values"));
    assert!(matches!(named.assign(&GoType::map()), Some(GoRuntimeValue::Map(_))));
    assert!(map.assign(&GoType::Named("common.Values".into(), ReflectKind::Map)).is_none());
    assert!(named.assign(&GoType::Map(GoType::String.into())).is_none());
    assert!(
        GoRuntimeValue::Nil.assign(&GoType::map()).is_some()
            && GoRuntimeValue::Nil.assign(&GoType::String).is_none()
    );
}
