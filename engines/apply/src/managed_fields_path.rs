//! Parts of field paths as `managedFields` write them: `f:name`, `k:{…}`, `v:…`, `i:…`.
//!
//! Here: finding the field or item of a value that a part names, and its JSON pointer (RFC 6901). Elsewhere: sets of
//! paths (`field_takeover.rs`, `takeover_removed_fields.rs`, `field_conflict.rs`).

use serde_json::Value;

use crate::drift_comparison::push_key;

/// The field or list item that a part of a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManagedFieldsPathElement<'p> {
    /// `f:name`
    Field(&'p str),
    /// `k:{…}`, `v:…` and `i:…`: an item of a list.
    Item(usize),
}

impl<'p> ManagedFieldsPathElement<'p> {
    /// Finds the field or item of `value` that the part `key` names. `None` if the list does not have the item.
    pub(crate) fn of(value: &Value, key: &'p str) -> Option<Self> {
        let (sort, text) = key.split_once(':')?;
        if sort == "f" {
            return Some(Self::Field(text));
        }
        let items = value.as_array()?;
        let wanted: Value = serde_json::from_str(text).ok()?;
        let at = match sort {
            "i" => usize::try_from(wanted.as_u64()?).ok()?,
            _ => items.iter().position(|item| is_item(sort, &wanted, item))?,
        };
        Some(Self::Item(at))
    }

    /// Finds the field or item of `value` that both `key`, a part of a path of managed fields, and `segment`, a part of
    /// a JSON pointer without escapes, name. `None` if the two name different ones or none. The list is not searched.
    pub(crate) fn at(value: &Value, key: &'p str, segment: &str) -> Option<Self> {
        let (sort, text) = key.split_once(':')?;
        if sort == "f" {
            return (text == segment).then_some(Self::Field(text));
        }
        let at: usize = segment.parse().ok()?;
        let item = value.as_array()?.get(at)?;
        let wanted: Value = serde_json::from_str(text).ok()?;
        let is_meant = match sort {
            "i" => wanted.as_u64() == u64::try_from(at).ok(),
            _ => is_item(sort, &wanted, item),
        };
        is_meant.then_some(Self::Item(at))
    }

    /// Finds the field or item of a manifest that the part `key` names. A manifest may leave out keys of an item that
    /// have a default. If no item has all the keys, the first item that has none of them with another value is found.
    /// `None` if no field or item fits.
    pub(crate) fn in_manifest(value: &Value, key: &'p str) -> Option<Self> {
        let with_defaults = || {
            let wanted: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
            let keys = wanted.as_object()?;
            let is_meant = |item: &Value| {
                keys.iter().all(|(key, it)| item.get(key).is_none_or(|found| found == it))
            };
            value.as_array()?.iter().position(is_meant).map(Self::Item)
        };
        Self::of(value, key).or_else(with_defaults)
    }

    /// The value of this field or item in `value`. `None` if it does not exist.
    pub(crate) fn child(self, value: &Value) -> Option<&Value> {
        match self {
            Self::Field(name) => value.get(name),
            Self::Item(at) => value.get(at),
        }
    }

    /// Appends this field or item to a JSON pointer.
    pub(crate) fn pointer(self, path: &str) -> String {
        match self {
            Self::Field(name) => push_key(path, name),
            Self::Item(at) => format!("{path}/{at}"),
        }
    }
}

/// Whether a part `k:{…}` or `v:…` names this item of a list.
fn is_item(sort: &str, wanted: &Value, item: &Value) -> bool {
    match sort {
        "k" => {
            let keys = wanted.as_object();
            keys.is_some_and(|keys| keys.iter().all(|(key, it)| item.get(key) == Some(it)))
        }
        "v" => item == wanted,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_is_compared_with_the_item_that_a_pointer_names() {
        let list = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}, "x"]);
        let at =
            |key: &'static str, segment: &str| ManagedFieldsPathElement::at(&list, key, segment);
        assert_eq!(at("f:spec", "spec"), Some(ManagedFieldsPathElement::Field("spec")));
        assert_eq!(at("f:spec", "status"), None);
        for (key, index) in [(r#"k:{"name":"b"}"#, 1), (r#"v:"x""#, 2), ("i:0", 0)] {
            let item = Some(ManagedFieldsPathElement::Item(index));
            assert_eq!(ManagedFieldsPathElement::of(&list, key), item, "{key}");
            for segment in 0..4 {
                let wanted = item.filter(|_| segment == index);
                assert_eq!(at(key, &segment.to_string()), wanted, "{key} {segment}");
            }
            assert_eq!(at(key, "name"), None, "{key}");
        }
    }

    #[test]
    fn an_item_of_a_manifest_may_leave_out_keys_that_have_a_default() {
        let list = json!([{"port": 1, "protocol": "UDP"}, {"port": 1}, {"port": 2}]);
        let at = |key: &'static str| ManagedFieldsPathElement::in_manifest(&list, key);
        let item = |at| Some(ManagedFieldsPathElement::Item(at));
        assert_eq!(at(r#"k:{"port":1,"protocol":"TCP"}"#), item(1));
        assert_eq!(at(r#"k:{"port":1,"protocol":"UDP"}"#), item(0));
        assert_eq!(at(r#"k:{"port":2,"protocol":"TCP"}"#), item(2));
        assert_eq!(at(r#"k:{"port":3,"protocol":"TCP"}"#), None);
        assert_eq!(at("f:spec"), Some(ManagedFieldsPathElement::Field("spec")));
    }
}
