//! Whether the reviewers of a pull request saw everything that a run would change, by builds of the commits of the pull
//! request.
//!
//! All builds are of one applier, with the same spec, variables and keys, so each difference comes from the commits. No value
//! is unknown in them, unlike in a rendering without a cluster (`plan::applier_digest_without_cluster`).
//!
//! Here: comparing builds, and comparing a list of changes with them. Elsewhere: making the builds, the pull request and its
//! reviews (the program), and what the approval of a user covers ([`crate::planned_changes`]).

use std::collections::{BTreeMap, BTreeSet};

use objects::{Object, ObjectId};
use serde_json::{Map, Value};

use crate::object_changes;
use crate::planned_changes::PlannedChangeKind;
use crate::stages::ApplyStage;

/// How many differing fields of an object a message names.
const MAX_NAMED_FIELDS: usize = 3;

/// How many differences between two builds are named. The rest is counted.
const MAX_DIFFERENCES: usize = 100;

/// The objects that an applier has at a commit.
#[derive(Debug, Clone)]
pub struct ObjectsBuiltAtCommit<'b>(BTreeMap<&'b ObjectId, &'b Object>);

impl<'b> ObjectsBuiltAtCommit<'b> {
    /// The objects of a build.
    pub fn of(stages: &'b [ApplyStage]) -> Self {
        let manifests = stages.iter().flat_map(|stage| &stage.objects);
        Self(manifests.map(|manifest| (&manifest.id, &manifest.object)).collect())
    }

    /// The manifest of an object in this build. `None` if the build does not have the object. An id without a namespace
    /// is of a cluster-scoped object, whose manifest may name a namespace that the API server drops.
    pub fn manifest(&self, id: &ObjectId) -> Option<&'b Object> {
        let is_same = |built: &ObjectId| {
            (&built.name, &built.group, &built.kind) == (&id.name, &id.group, &id.kind)
        };
        let is_other = |built: &ObjectId| id.namespace.is_empty() && is_same(built);
        let mut others = self.0.iter().filter(|(built, _)| is_other(built));
        self.0.get(id).copied().or_else(|| others.next().map(|(_, object)| *object))
    }

    /// The differences between these objects and the objects that the reviewers saw: each names an object and fields.
    /// Empty if both are the same.
    ///
    /// # Guarantees
    /// They have no value, and no key of a Secret's data. Their number is bounded.
    pub fn differences_from(&self, reviewed: &Self) -> Vec<String> {
        let applied = self.0.iter().filter_map(|(id, object)| match reviewed.0.get(*id) {
            Some(seen) if seen.fields() == object.fields() => None,
            Some(seen) => Some(named(id, &object_changes::fields(seen, object))),
            None => Some(format!("{} (added)", id.subject())),
        });
        let lost = reviewed.0.keys().filter(|id| !self.0.contains_key(**id));
        let lost = lost.map(|id| format!("{} (removed)", id.subject()));
        let mut found: Vec<String> = applied.chain(lost).take(MAX_DIFFERENCES + 1).collect();
        if found.len() > MAX_DIFFERENCES {
            found.truncate(MAX_DIFFERENCES);
            found.push("further objects".to_owned());
        }
        found
    }
}

/// An object with the fields that differ.
fn named(id: &ObjectId, fields: &[String]) -> String {
    let first: Vec<&str> = fields.iter().take(MAX_NAMED_FIELDS).map(String::as_str).collect();
    match first.is_empty() {
        true => id.subject(),
        false => format!("{} ({})", id.subject(), first.join(", ")),
    }
}

/// A change that a run would make, of which the commits of a pull request say nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreviewedChange {
    /// The run deletes an object that the merged commit has, with or without the patches of the spec.
    #[error("{} would be deleted, although the merged commit has it", .0.subject())]
    RemovedButPresent(ObjectId),
    /// The run deletes an object that the commit before the pull request lacks.
    #[error("{} would be deleted, and the commit before the pull request lacks it, too", .0.subject())]
    RemovedBefore(ObjectId),
    /// The run deletes an object and creates it again. The manifests do not say that its data is lost.
    #[error("{} would be deleted and created again, which manifests do not show", .0.subject())]
    Recreated(ObjectId),
    /// The run writes an object that is the same in both commits.
    #[error("{} would be written, and the pull request does not change it", .0.subject())]
    Unchanged(ObjectId),
    /// The run writes an object that the merged commit lacks.
    #[error("{} would be written, and the merged commit lacks it", .0.subject())]
    Unknown(ObjectId),
    /// The pull request changes the object, and a new value in it is not in the files of the merged commit.
    #[error(
        "{} would get a value that the files do not have, but a variable, or a patch or an image of the spec",
        .0.subject()
    )]
    NotInFiles(ObjectId),
}

/// The objects of the commits of a pull request.
#[derive(Debug, Clone, Copy)]
pub struct PullRequestCommitObjects<'c> {
    /// The objects of a commit before the merged one.
    pub before: &'c ObjectsBuiltAtCommit<'c>,
    /// The objects of the merged commit.
    pub merged: &'c ObjectsBuiltAtCommit<'c>,
    /// The objects of the merged commit without the values that its files do not have.
    pub plain: &'c ObjectsBuiltAtCommit<'c>,
}

/// The first change of a run that a pull request does not make. `None` if the pull request makes all of them: each removed
/// object is only in the commit before, and the manifest of each written object differs between both commits.
///
/// So neither the correction of drift in other objects, nor another target, nor an earlier commit is taken for a part of the
/// pull request. Recreations are never shown: whether a change of a field recreates an object is known only to the API server.
/// Nor is a new value that is not in the files, since reviewers see only those.
pub fn unshown_change<'c>(
    changes: impl IntoIterator<Item = (&'c ObjectId, PlannedChangeKind)>,
    commits: &PullRequestCommitObjects<'_>,
) -> Option<UnreviewedChange> {
    let PullRequestCommitObjects { before, merged, plain } = commits;
    changes.into_iter().find_map(|(id, kind)| {
        let old = before.manifest(id);
        let new = merged.manifest(id);
        match kind {
            // A patch of the spec may take an object away that the files have.
            PlannedChangeKind::Removed => match (old, new.or_else(|| plain.manifest(id))) {
                (_, Some(_)) => Some(UnreviewedChange::RemovedButPresent(id.clone())),
                (None, None) => Some(UnreviewedChange::RemovedBefore(id.clone())),
                (Some(_), None) => None,
            },
            PlannedChangeKind::Recreated => Some(UnreviewedChange::Recreated(id.clone())),
            PlannedChangeKind::Changed | PlannedChangeKind::Added => match (old, new) {
                (_, None) => Some(UnreviewedChange::Unknown(id.clone())),
                (Some(old), Some(new)) if old.fields() == new.fields() => {
                    Some(UnreviewedChange::Unchanged(id.clone()))
                }
                (old, Some(new)) => {
                    let written = plain.manifest(id).map(Object::fields);
                    let is_hidden =
                        has_hidden_field(old.map(Object::fields), new.fields(), written);
                    is_hidden.then(|| UnreviewedChange::NotInFiles(id.clone()))
                }
            },
        }
    })
}

/// Whether a field of an object is neither as it was before, nor as the files have it.
fn has_hidden_field(
    before: Option<&Map<String, Value>>,
    merged: &Map<String, Value>,
    written: Option<&Map<String, Value>>,
) -> bool {
    if before.is_none() {
        // A patch may also leave out a field that reviewers saw.
        return written != Some(merged);
    }
    let all = [before, Some(merged), written];
    let keys: BTreeSet<&String> = all.into_iter().flatten().flat_map(Map::keys).collect();
    keys.into_iter().any(|key| {
        let old = before.and_then(|it| it.get(key));
        let file = written.and_then(|it| it.get(key));
        is_hidden(old, merged.get(key), file)
    })
}

/// Whether a value, or a part of it, is neither as it was before, nor as the files have it. Lists are compared by position,
/// and as a whole if their lengths differ.
fn is_hidden(before: Option<&Value>, merged: Option<&Value>, written: Option<&Value>) -> bool {
    if merged == before || merged == written {
        return false;
    }
    match (before, merged, written) {
        (
            Some(Value::Object(before)),
            Some(Value::Object(merged)),
            Some(Value::Object(written)),
        ) => has_hidden_field(Some(before), merged, Some(written)),
        (Some(Value::Array(before)), Some(Value::Array(merged)), Some(Value::Array(written)))
            if before.len() == merged.len() && written.len() == merged.len() =>
        {
            let mut parts = before.iter().zip(merged).zip(written);
            parts.any(|((before, merged), written)| {
                is_hidden(Some(before), Some(merged), Some(written))
            })
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stages::stages;

    fn object(kind: &str, name: &str, more: Value) -> Object {
        let mut value = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": "shop"}});
        for (key, field) in more.as_object().unwrap() {
            value[key] = field.clone();
        }
        Object::new(value).unwrap()
    }

    fn map(name: &str, value: &str) -> Object {
        object("ConfigMap", name, json!({"data": {"key": value}}))
    }

    fn build(objects: Vec<Object>) -> Vec<ApplyStage> {
        stages(objects, &[]).unwrap()
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    /// What of one change the pull request from `a: 1, b: 1` to `a: 2, c: 1` does not show.
    fn unshown(name: &str, kind: PlannedChangeKind) -> Option<UnreviewedChange> {
        let before = build(vec![map("a", "1"), map("b", "1"), map("same", "1")]);
        let merged = build(vec![map("a", "2"), map("c", "1"), map("same", "1")]);
        let [before, merged] = [&before, &merged].map(|it| ObjectsBuiltAtCommit::of(it));
        let commits = PullRequestCommitObjects { before: &before, merged: &merged, plain: &merged };
        unshown_change([(&id(name), kind)], &commits)
    }

    #[test]
    fn what_a_pull_request_adds_changes_and_removes_is_shown() {
        assert_eq!(unshown("a", PlannedChangeKind::Changed), None);
        assert_eq!(unshown("c", PlannedChangeKind::Added), None);
        assert_eq!(unshown("b", PlannedChangeKind::Removed), None);
        // An object that was deleted by hand and is changed by the pull request is created.
        assert_eq!(unshown("a", PlannedChangeKind::Added), None);
    }

    #[test]
    fn changes_that_come_from_elsewhere_are_not_shown() {
        use UnreviewedChange::{Recreated, RemovedBefore, RemovedButPresent, Unchanged, Unknown};
        let of = |name: &str, kind| unshown(name, kind).unwrap();
        assert_eq!(of("same", PlannedChangeKind::Changed), Unchanged(id("same")));
        assert_eq!(of("same", PlannedChangeKind::Added), Unchanged(id("same")));
        assert_eq!(of("a", PlannedChangeKind::Removed), RemovedButPresent(id("a")));
        assert_eq!(of("earlier", PlannedChangeKind::Removed), RemovedBefore(id("earlier")));
        assert_eq!(of("a", PlannedChangeKind::Recreated), Recreated(id("a")));
        assert_eq!(of("other", PlannedChangeKind::Added), Unknown(id("other")));
        let text = of("same", PlannedChangeKind::Changed).to_string();
        assert!(text.starts_with("ConfigMap/shop/same would be written, and"), "{text}");
    }

    #[test]
    fn the_first_of_several_changes_that_is_not_shown_is_named() {
        let before = build(vec![map("a", "1"), map("b", "1")]);
        let merged = build(vec![map("a", "2"), map("b", "1")]);
        let [before, merged] = [&before, &merged].map(|it| ObjectsBuiltAtCommit::of(it));
        let changes =
            [(id("a"), PlannedChangeKind::Changed), (id("b"), PlannedChangeKind::Changed)];
        let commits = PullRequestCommitObjects { before: &before, merged: &merged, plain: &merged };
        let found = unshown_change(changes.iter().map(|(id, kind)| (id, *kind)), &commits);
        assert_eq!(found, Some(UnreviewedChange::Unchanged(id("b"))));
    }

    /// Whether a change of a workload is hidden, from its specs before, after, and without what the files do not have.
    fn is_hidden_in(before: Option<Value>, merged: Value, plain: Value) -> bool {
        let workload = |spec: Value| build(vec![object("Pod", "web", json!({"spec": spec}))]);
        let before = before.map_or_else(|| build(Vec::new()), workload);
        let [merged, plain] = [merged, plain].map(workload);
        let [before, merged, plain] =
            [&before, &merged, &plain].map(|it| ObjectsBuiltAtCommit::of(it));
        let commits = PullRequestCommitObjects { before: &before, merged: &merged, plain: &plain };
        let pod = ObjectId::new("shop", "web", "", "Pod");
        let found = unshown_change([(&pod, PlannedChangeKind::Changed)], &commits);
        assert!(found.is_none() || found == Some(UnreviewedChange::NotInFiles(pod.clone())));
        found.is_some()
    }

    #[test]
    fn a_new_value_that_only_a_variable_or_the_spec_has_is_not_shown() {
        let pod = |image: &str, size: u8| json!({"containers": [{"image": image, "size": size}]});
        // The image was there before.
        assert!(!is_hidden_in(Some(pod("a", 1)), pod("a", 2), pod("variable", 2)));
        assert!(is_hidden_in(Some(pod("a", 1)), pod("b", 1), pod("variable", 1)));
        assert!(is_hidden_in(Some(pod("a", 1)), pod("b", 2), pod("variable", 2)));
        assert!(!is_hidden_in(Some(pod("a", 1)), pod("b", 2), pod("b", 2)));
        // A new object, a longer list, and a field that a patch leaves out.
        assert!(!is_hidden_in(None, pod("a", 1), pod("a", 1)));
        assert!(is_hidden_in(None, pod("a", 1), pod("variable", 1)));
        assert!(is_hidden_in(None, json!({"a": 1}), json!({"a": 1, "safe": true})));
        let two =
            |image: &str| json!({"containers": [{"image": "a", "size": 1}, {"image": image}]});
        assert!(is_hidden_in(Some(pod("a", 1)), two("b"), two("variable")));
        let kept = json!({"safe": true, "b": 1});
        assert!(is_hidden_in(Some(kept.clone()), json!({"b": 2}), json!({"safe": true, "b": 2})));
        assert!(!is_hidden_in(Some(kept), json!({"b": 2}), json!({"b": 2})));
    }

    #[test]
    fn an_object_that_only_a_patch_of_the_spec_takes_away_was_not_shown_to_leave() {
        let [both, one] = [build(vec![map("a", "1"), map("b", "1")]), build(vec![map("a", "1")])];
        let [both, one] = [&both, &one].map(|it| ObjectsBuiltAtCommit::of(it));
        let commits = PullRequestCommitObjects { before: &both, merged: &one, plain: &both };
        let found = unshown_change([(&id("b"), PlannedChangeKind::Removed)], &commits);
        assert_eq!(found, Some(UnreviewedChange::RemovedButPresent(id("b"))));
    }

    #[test]
    fn two_builds_differ_by_objects_and_fields_and_never_by_values() {
        let secret = |value: &str| object("Secret", "login", json!({"data": {"password": value}}));
        let reviewed = build(vec![map("a", "1"), map("b", "1"), map("gone", "1"), secret("b25l")]);
        let merged = build(vec![map("a", "1"), map("b", "2"), map("new", "1"), secret("dHdv")]);
        let [reviewed, merged] = [&reviewed, &merged].map(|it| ObjectsBuiltAtCommit::of(it));
        assert_eq!(
            merged.differences_from(&reviewed),
            [
                "ConfigMap/shop/b (/data/key)",
                "Secret/shop/login (/data)",
                "ConfigMap/shop/new (added)",
                "ConfigMap/shop/gone (removed)",
            ]
        );
        assert!(reviewed.differences_from(&reviewed).is_empty());
    }

    #[test]
    fn many_differences_are_bounded() {
        let many = build((0..300).map(|at| map(&format!("m{at}"), "1")).collect());
        let none = build(Vec::new());
        let found =
            ObjectsBuiltAtCommit::of(&many).differences_from(&ObjectsBuiltAtCommit::of(&none));
        assert_eq!((found.len(), found[100].as_str()), (101, "further objects"));
    }

    #[test]
    fn a_cluster_scoped_object_is_found_whatever_namespace_its_manifest_has() {
        let role = |namespace: &str| {
            ObjectId::new(namespace, "admin", "rbac.authorization.k8s.io", "ClusterRole")
        };
        for namespace in ["shop", ""] {
            let mut metadata = json!({"name": "admin"});
            if !namespace.is_empty() {
                metadata["namespace"] = namespace.into();
            }
            let manifest = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": metadata});
            let built = build(vec![Object::new(manifest).unwrap()]);
            let built = ObjectsBuiltAtCommit::of(&built);
            assert!(built.manifest(&role("")).is_some(), "{namespace}");
            assert_eq!(built.manifest(&role("other")), None);
        }
    }
}
