//! Finds the objects that earlier manifests have and later ones do not. Only manifests are compared.
//!
//! Elsewhere: whether such an object exists and may be deleted (the program), and how many may be deleted
//! ([`crate::deletion_budget`]).

use std::collections::BTreeSet;

use objects::{Object, ObjectId};

/// The objects of `before` that `after` does not have, in the order of `before`. A manifest without a namespace counts
/// as one in `namespace`.
///
/// It is not known here which kinds have namespaces. If the manifests of a cluster-scoped object name different
/// namespaces, the object counts as two. [`is_same_object`] makes the comparison with an object of the cluster.
pub fn removed_objects<'o>(
    before: &'o [Object],
    after: &[Object],
    namespace: &str,
) -> Vec<&'o Object> {
    let there: BTreeSet<ObjectId> = after.iter().map(|it| identity_in(it, namespace)).collect();
    before.iter().filter(|object| !there.contains(&identity_in(object, namespace))).collect()
}

/// The objects of a revision without those that a hook has, too. Such an object is deleted in order to run the hook. A
/// manifest without a namespace counts as one in `namespace`.
#[must_use]
pub fn without_hooks(objects: Vec<Object>, hooks: &[Object], namespace: &str) -> Vec<Object> {
    let hooks: BTreeSet<ObjectId> = hooks.iter().map(|it| identity_in(it, namespace)).collect();
    let stays = |it: &Object| !hooks.contains(&identity_in(it, namespace));
    objects.into_iter().filter(stays).collect()
}

/// The identity of an object when it is applied. A manifest without a namespace gets `namespace`.
pub fn identity_in(object: &Object, namespace: &str) -> ObjectId {
    let mut id = object.id();
    if id.namespace.is_empty() {
        namespace.clone_into(&mut id.namespace);
    }
    id
}

/// Whether a manifest describes the cluster's object `id`. `namespace` is for a manifest without a namespace.
pub fn is_same_object(manifest: &Object, namespace: &str, id: &ObjectId) -> bool {
    let ObjectId { namespace: at, name, group, kind } = id;
    let own = Some(manifest.namespace()).filter(|it| !it.is_empty()).unwrap_or(namespace);
    // A cluster-scoped object is found by its name; a namespace in its manifest is ignored.
    let is_there = at.is_empty() || own == at;
    manifest.kind() == kind && manifest.name() == name && manifest.gvk().group == *group && is_there
}

/// How many of the cluster's objects `ids` have no manifest. `namespace` is for a manifest without a namespace.
pub fn missing_count<'i>(
    manifests: &[Object],
    namespace: &str,
    ids: impl Iterator<Item = &'i ObjectId>,
) -> usize {
    let is_there = |id: &ObjectId| manifests.iter().any(|it| is_same_object(it, namespace, id));
    ids.filter(|id| !is_there(id)).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str, namespace: &str, name: &str) -> Object {
        let metadata = json!({"name": name, "namespace": namespace});
        Object::new(json!({"apiVersion": version, "kind": "K", "metadata": metadata})).unwrap()
    }

    #[test]
    fn an_object_is_known_by_group_kind_namespace_and_name() {
        let is_known = |before: &Object, group: &str, namespace: &str| {
            let id = ObjectId::new(namespace, "a", group, "K");
            is_same_object(before, "apps", &id)
        };
        assert!(is_known(&object("g/v1", "", "a"), "g", "apps"));
        assert!(is_known(&object("g/v2", "other", "a"), "g", "other"));
        assert!(is_known(&object("g/v1", "odd", "a"), "g", ""), "cluster-wide");
        assert!(!is_known(&object("g/v1", "", "a"), "g", "other"));
        assert!(!is_known(&object("h/v1", "", "a"), "g", "apps"));
        let ids = ["a", "b", "c"].map(|name| ObjectId::new("apps", name, "g", "K"));
        let manifests = [object("g/v1", "", "a"), object("g/v1", "other", "b")];
        assert_eq!(missing_count(&manifests, "apps", ids.iter()), 2);
    }

    #[test]
    fn what_later_manifests_do_not_have_has_left_whatever_its_version_is() {
        let before =
            [object("g/v1", "", "a"), object("g/v1", "other", "b"), object("g/v1", "", "c")];
        let after = [object("g/v2", "apps", "a"), object("g/v1", "", "b"), object("h/v1", "", "c")];
        let left = |after: &[Object]| {
            let left = removed_objects(&before, after, "apps");
            left.into_iter().map(|it| it.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left(&after), ["b", "c"]);
        assert!(left(&before).is_empty());
        assert_eq!(left(&[]), ["a", "b", "c"]);
    }

    #[test]
    fn an_object_that_is_a_hook_as_well_has_left() {
        let before = [object("g/v1", "", "a"), object("g/v1", "", "b")];
        let after = |hooks: &[Object]| without_hooks(before.to_vec(), hooks, "apps");
        let left = |hooks: &[Object]| {
            let left = removed_objects(&before, &after(hooks), "apps").len();
            (left, after(hooks).len())
        };
        assert_eq!(left(&[object("g/v1", "apps", "a")]), (1, 1));
        assert_eq!(left(&[object("g/v1", "other", "a"), object("h/v1", "", "b")]), (0, 2));
    }
}
