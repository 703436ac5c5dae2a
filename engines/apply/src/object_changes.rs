//! The objects that an operation changed, as its audit lists them: by name, with the fields that changed, and never
//! with a value.
//!
//! Here: comparing the objects before and after the operation, and bounding the list. Elsewhere: which objects are
//! compared (`release::audit`, the program), and naming fields ([`crate::drift_comparison`]).

use std::collections::BTreeMap;

use objects::{Object, ObjectId};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::drift_comparison::diff_paths;

/// How many changed objects an audit lists.
const MAX_LISTED_OBJECTS: usize = 200;
/// How many changed fields of an object an audit lists.
const MAX_FIELDS_PER_OBJECT: usize = 16;
/// How long a field's pointer or a part of an object's name may be, in bytes.
const MAX_NAME_BYTES: usize = 250;
/// How long the whole list may be as JSON, in bytes.
const MAX_LIST_BYTES: usize = 36 << 10;
/// How many bytes the JSON keys of one listed object take.
const ENTRY_OVERHEAD_BYTES: usize = 96;

/// How many changed objects a message names.
const MAX_NAMED_OBJECTS: usize = 5;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Changed,
    /// It was deleted.
    Removed,
}

/// An object that a run changed, and what changed in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectChange {
    /// The id of the object.
    pub id: ObjectId,
    /// What happened to it.
    pub what: ObjectChangeKind,
    /// The JSON pointers of the changed fields; see [`fields`].
    pub fields: Vec<String>,
}

/// A list of changes that fits into an audit, with the numbers of all changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectChangeList {
    /// How many objects were created.
    pub added: usize,
    /// How many objects were changed.
    pub changed: usize,
    /// How many objects were deleted.
    pub removed: usize,
    /// The digest of all changes: `sha256:…`. It is empty if there are no changes.
    pub digest: String,
    /// The first changes.
    pub listed: Vec<ObjectChange>,
    /// How many changes are not listed.
    pub omitted: usize,
}

/// The fields in which two states of an object differ, as JSON pointers without values.
///
/// # Guarantees
/// For a Secret, a difference in its data is only `/data` or `/stringData`, so no key is disclosed.
pub fn fields(before: &Object, after: &Object) -> Vec<String> {
    masked(&after.id(), diff_paths(before, after, MAX_FIELDS_PER_OBJECT))
}

/// Removes the keys of a Secret's data from the pointers to its fields. Pointers of other objects are not changed.
pub fn masked(id: &ObjectId, pointers: Vec<String>) -> Vec<String> {
    if !(id.group.is_empty() && id.kind == "Secret") {
        return pointers;
    }
    let data = |pointer: String| {
        let keys = ["/data", "/stringData"].into_iter();
        let mut keys =
            keys.filter(|key| pointer.strip_prefix(key).is_some_and(|it| it.starts_with('/')));
        keys.next().map_or_else(|| pointer.clone(), str::to_owned)
    };
    let mut masked: Vec<String> = pointers.into_iter().map(data).collect();
    masked.dedup();
    masked
}

/// The changes from one set of objects to another: first new and changed objects in the order of `after`, then removed
/// objects.
pub fn between(before: &[Object], after: &[Object]) -> Vec<ObjectChange> {
    let mut old: BTreeMap<ObjectId, &Object> = before.iter().map(|it| (it.id(), it)).collect();
    let mut changes = Vec::new();
    for object in after {
        let id = object.id();
        match old.remove(&id) {
            None => {
                changes.push(ObjectChange {
                    id,
                    what: ObjectChangeKind::Added,
                    fields: Vec::new(),
                });
            }
            Some(known) if known.fields() == object.fields() => {}
            Some(known) => {
                let fields = fields(known, object);
                changes.push(ObjectChange { id, what: ObjectChangeKind::Changed, fields });
            }
        }
    }
    let gone = old.into_keys().map(|id| ObjectChange {
        id,
        what: ObjectChangeKind::Removed,
        fields: Vec::new(),
    });
    changes.extend(gone);
    changes
}

/// The first changes as a text for messages: objects and fields, without values.
pub fn summary(changes: &[ObjectChange]) -> String {
    let named = changes.iter().take(MAX_NAMED_OBJECTS).map(|change| {
        let fields: Vec<&str> = change.fields.iter().take(3).map(String::as_str).collect();
        match fields.is_empty() {
            true => change.id.subject(),
            false => format!("{} ({})", change.id.subject(), fields.join(", ")),
        }
    });
    let mut names: Vec<String> = named.collect();
    let more = changes.len().saturating_sub(names.len());
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// Turns a creation into a change for objects that existed before they were applied first.
pub fn adopt(changes: &mut [ObjectChange], is_adopted: impl Fn(&ObjectId) -> bool) {
    for change in changes {
        if change.what == ObjectChangeKind::Added && is_adopted(&change.id) {
            change.what = ObjectChangeKind::Changed;
        }
    }
}

/// Lists as many changes as an audit has room for, and counts the rest.
pub fn list(changes: Vec<ObjectChange>) -> ObjectChangeList {
    let mut listing = ObjectChangeList::default();
    let mut hash = Sha256::new();
    let mut left = MAX_LIST_BYTES;
    let has_any = !changes.is_empty();
    for change in changes {
        let count = match change.what {
            ObjectChangeKind::Added => &mut listing.added,
            ObjectChangeKind::Changed => &mut listing.changed,
            ObjectChangeKind::Removed => &mut listing.removed,
        };
        *count += 1;
        hash.update(format!("{:?} {} {:?}\n", change.what, change.id, change.fields));
        let change = shortened(change);
        let bare = ObjectChange { fields: Vec::new(), ..change.clone() };
        let fitting = [change, bare].into_iter().find(|it| cost(it) <= left);
        match fitting.filter(|_| listing.listed.len() < MAX_LISTED_OBJECTS) {
            Some(change) => {
                left -= cost(&change);
                listing.listed.push(change);
            }
            None => listing.omitted += 1,
        }
    }
    if has_any {
        listing.digest = format!("sha256:{}", hex::encode(hash.finalize()));
    }
    listing
}

/// The approximate length of a change as JSON.
fn cost(change: &ObjectChange) -> usize {
    let ObjectId { namespace, name, group, kind } = &change.id;
    let strings = [namespace, name, group, kind].into_iter().chain(&change.fields);
    ENTRY_OVERHEAD_BYTES
        + strings.map(|it| Value::from(it.as_str()).to_string().len() + 1).sum::<usize>()
}

fn shortened(change: ObjectChange) -> ObjectChange {
    let ObjectId { namespace, name, group, kind } = &change.id;
    let id = ObjectId::new(&cut(namespace), &cut(name), &cut(group), &cut(kind));
    let fields = change.fields.iter().take(MAX_FIELDS_PER_OBJECT).map(|it| cut(it)).collect();
    ObjectChange { id, fields, ..change }
}

/// Cuts a text to the length that the CRD allows.
fn cut(text: &str) -> String {
    if text.len() <= MAX_NAME_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_NAME_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, more: Value) -> Object {
        let mut value = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": "n"}});
        for (key, field) in more.as_object().unwrap() {
            value[key] = field.clone();
        }
        Object::new(value).unwrap()
    }

    #[test]
    fn changes_are_named_by_object_and_field() {
        let before = [
            object("ConfigMap", "same", json!({"data": {"a": "1"}})),
            object("ConfigMap", "other", json!({"data": {"a": "1", "b": "1"}})),
            object("ConfigMap", "gone", json!({})),
        ];
        let after = [
            object("ConfigMap", "new", json!({})),
            object("ConfigMap", "other", json!({"data": {"a": "2", "b": "1"}})),
            object("ConfigMap", "same", json!({"data": {"a": "1"}})),
        ];
        let shown: Vec<String> = between(&before, &after)
            .iter()
            .map(|it| format!("{:?} {} {:?}", it.what, it.id.name, it.fields))
            .collect();
        assert_eq!(shown, ["Added new []", "Changed other [\"/data/a\"]", "Removed gone []"]);
    }

    #[test]
    fn keys_and_values_of_secrets_are_not_named() {
        let before = object("Secret", "s", json!({"data": {"password": "b25l"}, "type": "Opaque"}));
        let after = object(
            "Secret",
            "s",
            json!({"data": {"password": "dHdv", "token": "dHdv"},
            "stringData": {"k": "plain"}, "type": "Opaque"}),
        );
        assert_eq!(fields(&before, &after), ["/data", "/stringData"]);
        let elsewhere = ObjectId::new("n", "s", "secrets.example.com", "Secret");
        assert_eq!(masked(&elsewhere, vec!["/data/a".to_owned()]), ["/data/a"]);
    }

    #[test]
    fn objects_that_existed_before_count_as_changed() {
        let new = [
            object("ConfigMap", "new", json!({})),
            object("ConfigMap", "old", json!({})),
            object("Secret", "old", json!({})),
        ];
        let old = ObjectId::new("n", "old", "", "ConfigMap");
        let gone = object("ConfigMap", "gone", json!({}));
        let mut changes = between(&[gone], &new);
        adopt(&mut changes, |id| *id == old || id.name == "gone");
        let listing = list(changes);
        assert_eq!((listing.added, listing.changed, listing.removed), (2, 1, 1));
        let changed = listing.listed.iter().find(|it| it.what == ObjectChangeKind::Changed);
        assert_eq!(changed.map(|it| &it.id), Some(&old));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let new: Vec<Object> =
            (0..300).map(|at| object("ConfigMap", &format!("c{at}"), json!({}))).collect();
        let listing = list(between(&[], &new));
        assert_eq!((listing.added, listing.listed.len(), listing.omitted), (300, 200, 100));
        assert!(listing.digest.starts_with("sha256:"));
        assert_eq!(list(Vec::new()), ObjectChangeList::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_listing_never_takes_more_than_its_room(
            names in prop::collection::vec(("\\PC{0,400}", prop::collection::vec("\\PC{0,400}", 0..20)), 0..60)
        ) {
            let count = names.len();
            let changes = names.into_iter().map(|(name, fields)| ObjectChange {
                id: ObjectId::new("n", &name, "g", "K"), what: ObjectChangeKind::Changed, fields,
            });
            let listing = list(changes.collect());
            prop_assert_eq!(listing.listed.len() + listing.omitted, count);
            let shown: Vec<Value> = listing.listed.iter().map(|it| json!({
                "change": "Changed", "group": it.id.group, "kind": it.id.kind,
                "namespace": it.id.namespace, "name": it.id.name, "fields": it.fields,
            })).collect();
            prop_assert!(Value::from(shown).to_string().len() <= MAX_LIST_BYTES + 2);
        }
    }
}
