//! Hints about failed changes of sources, as far as the user may read them. If the user may not read a change, windlass does
//! not claim that there is none.
//!
//! Elsewhere: all changes (`change_sets.rs`), matching objects with failed changes, and the command that rolls a change back
//! (`windlass_changes::failed_change_advice`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use changes::change_set_member_lines;
use crds::windlass_release::ChangeSet;
use kube_core::ResourceExt as _;
use objects::ObjectId;
use reconcile::ObjectKey;
pub use windlass_changes::failed_change_advice::way_back;
use windlass_changes::failed_change_advice::{advice, has_failed};

use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// The maximum number of failed changes that are mentioned.
const MAX_FAILED_CHANGES: usize = 20;

/// The newest change of each source in a namespace, or in the scope of the command. The result is empty if one change cannot be
/// read, because that one may be the newest of its source.
pub(crate) async fn newest(site: &CommandScope, namespace: Option<&str>) -> Vec<ChangeSet> {
    let namespace = namespace.map(str::to_owned);
    let target = ResourceArgument { resource: resource::<ChangeSet>(), namespace, name: None };
    // A cluster may have many sources with ten changes each, so only the newest ones are kept in memory. The key includes the
    // namespace, because users of another namespace can write any source UID into their changes.
    let mut found: BTreeMap<(Option<String>, String), ChangeSet> = BTreeMap::new();
    let listed = site.list(&target, "", |objects| {
        for object in objects {
            // A change that cannot be parsed may be newer, because a newer windlass wrote it. So the whole list fails.
            let change: ChangeSet = serde_json::from_value(object.into_value())?;
            match found.entry((change.namespace(), change.spec.source.uid.clone())) {
                Entry::Occupied(known) if known.get().spec.sequence > change.spec.sequence => {}
                Entry::Occupied(mut known) => {
                    known.insert(change);
                }
                Entry::Vacant(unknown) => {
                    unknown.insert(change);
                }
            }
        }
        Ok(())
    });
    // If the kind is not installed, there are no changes. If the user may not list changes, windlass does not mention them.
    match listed.await {
        Ok(_) => found.into_values().collect(),
        Err(_) => Vec::new(),
    }
}

/// The first messages about failed changes, and how many more there are.
pub(crate) fn first_of(said: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = said.collect();
    let more = all.len().saturating_sub(MAX_FAILED_CHANGES);
    if more > 0 {
        all.truncate(MAX_FAILED_CHANGES);
        all.push(format!(
            "{more} more changes can be taken back: `windlass changes -A` lists them"
        ));
    }
    all
}

/// Whether an object is a member of a change and failed with it.
pub(crate) fn is_of(change: &ChangeSet, id: &ObjectId) -> bool {
    has_failed(change, &ObjectKey::new(&id.group, &id.kind, &id.namespace, &id.name))
}

/// The message that an object failed with a change of its source, and how that change is taken back. `None` if the object
/// failed with no such change, or if its changes cannot be read.
pub(crate) async fn of_member(site: &CommandScope, id: &ObjectId) -> Option<String> {
    // An object that applies nothing is never a member.
    change_set_member_lines::subject_of(&id.group, &id.kind, &id.name)?;
    let changes = newest(site, Some(&id.namespace)).await;
    let advice = changes.iter().filter(|change| is_of(change, id)).find_map(advice)?;
    Some(format!("it failed with {advice}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(name: &str, sequence: i64) -> Value {
        let status = json!({"verdict": "Failed", "message": "2 members: 1 failed, 1 succeeded (ks/shop)",
            "members": ["Failed ks/shop", "Succeeded > hr/web"],
            "counts": {"members": 2, "failed": 1, "succeeded": 1}});
        json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "ChangeSet",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:5f0c9d0c", "digest": "d", "sequence": sequence},
            "status": status})
    }

    #[test]
    fn not_more_is_said_than_can_be_read() {
        let said = |count: usize| first_of((0..count).map(|at| at.to_string()));
        assert_eq!(said(MAX_FAILED_CHANGES).len(), MAX_FAILED_CHANGES);
        let many = said(MAX_FAILED_CHANGES + 2);
        assert_eq!(many.len(), MAX_FAILED_CHANGES + 1);
        assert!(many[MAX_FAILED_CHANGES].starts_with("2 more changes"), "{many:?}");
    }

    #[tokio::test]
    async fn a_change_of_another_namespace_does_not_hide_that_of_a_source() {
        let mut forged = value("forged", 99);
        forged["metadata"]["namespace"] = json!("other");
        let (cluster, _) = fake_cluster::with_objects(vec![value("fleet-2-a", 2), forged]).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let found = newest(&site, None).await;
        let names: Vec<String> = found.iter().map(ChangeSet::name_any).collect();
        assert_eq!(names, ["forged", "fleet-2-a"]);
    }

    #[tokio::test]
    async fn of_each_source_the_newest_change_counts_and_a_cluster_without_the_kind_has_none() {
        let all = vec![value("fleet-2-a", 2), value("fleet-10-b", 10)];
        let (cluster, _) = fake_cluster::with_objects(all).await;
        let site = CommandScope { cluster, namespace: "shop".to_owned() };
        let newest_names = newest(&site, None).await;
        let names: Vec<String> = newest_names.iter().map(ChangeSet::name_any).collect();
        assert_eq!(names, ["fleet-10-b"]);
        let shop = ObjectId::new("shop", "shop", "kustomize.toolkit.fluxcd.io", "Kustomization");
        let said = of_member(&site, &shop).await.unwrap_or_default();
        assert!(said.starts_with("it failed with change fleet-10-b of "), "{said}");
        let (cluster, _) = fake_cluster::with_objects(Vec::new()).await;
        let site = CommandScope { cluster, namespace: "shop".to_owned() };
        assert!(newest(&site, Some("shop")).await.is_empty());
    }
}
