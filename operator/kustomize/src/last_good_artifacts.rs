//! The artifacts to which Kustomizations may roll back. A source does not delete these artifacts.
//!
//! Windlass finds them in statuses, Quarantines, ChangeSets and rollouts whenever a source collects its garbage, so that
//! nothing depends on the memory of a process.
//! Elsewhere: how many bytes of them are kept (`artifacts::store`), rolling back (`kustomization`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use artifacts::store::{NeededArtifact, NeededArtifacts};
use crds::kustomize::{HistoryEntry, Kustomization};
use crds::windlass_release::{ChangeSet, ChangeSetVerdict, Quarantine};
use futures::FutureExt as _;
use kube_core::ResourceExt as _;
use reconcile::Time;

use crate::kustomization::{last_good_artifact, pinned_artifact, rolled_back_artifact};
use windlass_rollout::is_selected;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;

/// The artifacts to which Kustomizations may go back.
pub struct LastGoodArtifacts(Weak<RunContext>);

impl LastGoodArtifacts {
    /// The artifacts of the Kustomizations and Quarantines that this process watches. It does not keep the context alive
    /// longer than the runs do.
    #[must_use]
    pub fn seen_by(context: &Arc<RunContext>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(context)))
    }
}

impl fmt::Debug for LastGoodArtifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastGoodArtifacts")
    }
}

impl NeededArtifacts for LastGoodArtifacts {
    fn of_namespace(&self, namespace: &str) -> Option<Vec<NeededArtifact>> {
        let context = self.0.upgrade()?;
        // Before all were listed, a path may only seem to be needed by none.
        context.kept.listed::<Kustomization>().now_or_never().filter(|is_listed| *is_listed)?;
        let table = context.shared::<WatchedObjectCache<Quarantine>>();
        table.ready().ok()?;
        let mut kustomizations = context.store::<Kustomization>().state();
        if context.settings.no_cross_namespace_refs {
            kustomizations.retain(|it| it.metadata.namespace.as_deref() == Some(namespace));
        }
        let changes = context.shared::<WatchedObjectCache<ChangeSet>>();
        changes.ready().ok()?;
        let mut all = needed(namespace, &table.all(), &kustomizations);
        all.extend(pinned(&context, namespace, &kustomizations));
        all.extend(before_changes(namespace, changes.of(namespace)));
        Some(all)
    }
}

/// The artifacts of the sources of a namespace to which rollouts pin Kustomizations until their waves are open.
fn pinned(
    context: &RunContext,
    namespace: &str,
    kustomizations: &[Arc<Kustomization>],
) -> Vec<NeededArtifact> {
    let artifact_of = |it: &Arc<Kustomization>| {
        let artifact = pinned_artifact(it)?;
        if !is_of_source(&artifact.path, it, namespace) {
            return None;
        }
        let own = it.metadata.namespace.as_deref().unwrap_or_default();
        is_selected(context, own, it.labels()).then_some(artifact)
    };
    let readers = kustomizations.iter().filter(|it| reads(it, namespace));
    let mut found: Vec<NeededArtifact> = readers.filter_map(artifact_of).collect();
    found.sort();
    found.dedup();
    found
}

/// The artifacts from before the newest change of each source of a namespace. A user may roll the change back to them. They
/// are from the previous change, and from the last successful one.
fn before_changes(namespace: &str, mut changes: Vec<Arc<ChangeSet>>) -> Vec<NeededArtifact> {
    changes.sort_by_key(|it| Reverse(it.spec.sequence));
    let mut by_source: BTreeMap<&str, Vec<&ChangeSet>> = BTreeMap::new();
    for change in &changes {
        by_source.entry(change.spec.source.uid.as_str()).or_default().push(change);
    }
    let mut found = Vec::new();
    for of_source in by_source.values() {
        let older = of_source.get(1..).unwrap_or_default();
        let has_succeeded = |it: &&&ChangeSet| {
            it.status.as_ref().is_some_and(|it| it.verdict == ChangeSetVerdict::Succeeded)
        };
        let last = older.first().into_iter().chain(older.iter().find(has_succeeded));
        found.extend(last.filter_map(|it| {
            let mut parts = it.spec.path.split('/').skip(1);
            let is_its = parts.next() == Some(namespace)
                && parts.next() == Some(it.spec.source.name.as_str());
            is_its.then(|| NeededArtifact {
                path: it.spec.path.clone(),
                digest: it.spec.digest.clone(),
                revision: it.spec.revision.clone(),
            })
        }));
    }
    found.sort();
    found.dedup();
    found
}

/// The reason why an artifact is needed. The most important comes first, if there is not room for all. Needs of other
/// namespaces do not displace needs of the namespace's own Kustomizations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ArtifactNeed {
    /// A Kustomization of the namespace applies it in place of a quarantined result.
    OwnRollBack,
    /// The artifact is the last good one of a Kustomization of the namespace.
    OwnLastGood,
    /// A Kustomization of another namespace applies it in place of a quarantined result.
    ForeignRollBack,
    /// The artifact is the last good one of a Kustomization of another namespace.
    ForeignLastGood,
    /// A Quarantine names the artifact, and its Kustomization is not known here. Another shard runs the Kustomization, or it
    /// is gone.
    UnseenRollBack,
}

/// Whether a Kustomization reads a source of a namespace.
fn reads(object: &Kustomization, namespace: &str) -> bool {
    let own = object.metadata.namespace.as_deref().unwrap_or_default();
    object.spec.source_ref.namespace.as_deref().unwrap_or(own) == namespace
}

/// Whether the path of an artifact belongs to the source of a Kustomization. The path comes from a status and may be any text.
fn is_of_source(path: &str, object: &Kustomization, namespace: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    parts.next() == Some(namespace) && parts.next() == Some(object.spec.source_ref.name.as_str())
}

/// The needed artifacts of a namespace's sources, the most needed first. Of equally needed ones, the newest comes first.
fn needed(
    namespace: &str,
    quarantines: &[Arc<Quarantine>],
    kustomizations: &[Arc<Kustomization>],
) -> Vec<NeededArtifact> {
    let readers: BTreeMap<&str, &Arc<Kustomization>> = kustomizations
        .iter()
        .filter(|it| reads(it, namespace))
        .filter_map(|it| Some((it.metadata.uid.as_deref()?, it)))
        .collect();
    let is_own = |it: &Kustomization| it.metadata.namespace.as_deref() == Some(namespace);
    let rolled_back = quarantines.iter().filter_map(|it| {
        let artifact = rolled_back_artifact(it)?;
        let path = artifact.path.as_str();
        let need = match readers.get(it.spec.subject.uid.as_str()) {
            Some(reader) if !is_of_source(path, reader, namespace) => return None,
            Some(reader) if is_own(reader) => ArtifactNeed::OwnRollBack,
            Some(_) => ArtifactNeed::ForeignRollBack,
            None if path.split('/').nth(1) != Some(namespace) => return None,
            None => ArtifactNeed::UnseenRollBack,
        };
        let created = it.metadata.creation_timestamp.as_ref().map(|at| at.0);
        Some((need, Reverse(created), artifact))
    });
    let newest = |object: &Kustomization| {
        let history = object.status.iter().flat_map(|status| &status.history);
        history.map(|entry: &HistoryEntry| entry.last_reconciled.0).max()
    };
    let last_good = readers.values().filter_map(|it| {
        let artifact = last_good_artifact(it);
        let artifact = artifact.filter(|artifact| is_of_source(&artifact.path, it, namespace))?;
        let need = match is_own(it) {
            true => ArtifactNeed::OwnLastGood,
            false => ArtifactNeed::ForeignLastGood,
        };
        Some((need, Reverse(newest(it)), artifact))
    });
    let mut all: Vec<(ArtifactNeed, Reverse<Option<Time>>, NeededArtifact)> =
        rolled_back.chain(last_good).collect();
    all.sort();
    all.into_iter().map(|(_, _, artifact)| artifact).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A Kustomization that reads the source `shop` of the namespace `shop`.
    fn kustomization(name: &str, annotation: &str, file: &str, at: &str) -> Arc<Kustomization> {
        let metadata = json!({"windlass.dev/ArtifactPath": file, "windlass.dev/ArtifactDigest": "sha256:1",
            "windlass.dev/SpecDigest": "sha256:2", "revision": "main@sha1:1"});
        let entry = json!({"digest": "sha256:3", "firstReconciled": at, "lastReconciled": at,
            "lastReconciledDuration": "1s", "lastReconciledStatus": "ReconciliationSucceeded",
            "totalReconciliations": 1, "metadata": metadata});
        let (namespace, _) = name.split_once('/').unwrap();
        let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": namespace, "uid": name,
                "annotations": {"windlass.dev/on-failure": annotation}},
            "spec": {"interval": "1h", "prune": true,
                "sourceRef": {"kind": "GitRepository", "name": "shop", "namespace": "shop"}},
            "status": {"history": [entry]}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn quarantine(of: &str, action: &str, file: &str, lift: &serde_json::Value) -> Arc<Quarantine> {
        let object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": "q", "namespace": "shop", "creationTimestamp": "2026-11-30T09:00:00Z"},
            "spec": {"subject": {"uid": of}, "action": action, "lastGood": {"artifactPath": file}},
            "status": {"lift": lift}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn paths(
        namespace: &str,
        quarantines: &[Arc<Quarantine>],
        kustomizations: &[Arc<Kustomization>],
    ) -> Vec<String> {
        let needed = needed(namespace, quarantines, kustomizations);
        needed.into_iter().map(|it| it.path).collect()
    }

    #[test]
    fn what_there_was_before_the_newest_change_is_kept() {
        let change = |sequence: i64, verdict: &str, path: &str| {
            let object = json!({"metadata": {"name": sequence.to_string(), "namespace": "shop"},
                "spec": {"source": {"kind": "GitRepository", "name": "shop", "uid": "u"},
                    "revision": "r", "digest": "d", "path": path, "sequence": sequence},
                "status": {"verdict": verdict}});
            Arc::new(serde_json::from_value::<ChangeSet>(object).unwrap())
        };
        let changes = vec![
            change(1, "Succeeded", &at("first")),
            change(4, "Failed", &at("newest")),
            change(2, "Succeeded", &at("good")),
            change(3, "Failed", &at("before")),
        ];
        let paths = |changes| {
            let needed: Vec<NeededArtifact> = before_changes("shop", changes);
            needed.into_iter().map(|it| it.path).collect::<Vec<String>>()
        };
        assert_eq!(paths(changes), [at("before"), at("good")]);
        let only = vec![change(1, "Succeeded", &at("first"))];
        assert_eq!(paths(only), Vec::<String>::new());
        let forged =
            vec![change(2, "Succeeded", &at("a")), change(1, "Succeeded", "x/other/shop/b")];
        assert_eq!(paths(forged), Vec::<String>::new());
    }

    const EARLIER: &str = "2026-11-30T08:00:00Z";
    const LATER: &str = "2026-11-30T09:00:00Z";

    fn at(file: &str) -> String {
        format!("gitrepository/shop/shop/{file}")
    }

    #[test]
    fn what_is_applied_in_place_of_a_quarantined_result_comes_first_and_then_the_newest_good_one() {
        let none = json!(null);
        let quarantines = [
            quarantine("shop/a", "RollBack", &at("back"), &none),
            quarantine("shop/a", "Hold", &at("held"), &none),
            quarantine("shop/a", "RollBack", &at("lifted"), &json!({"user": "alice"})),
        ];
        let kustomizations = [
            kustomization("shop/a", "RollBack", &at("older"), EARLIER),
            kustomization("shop/b", "RollBack", &at("newer"), LATER),
            kustomization("shop/c", "Hold", &at("hold"), LATER),
        ];
        let found = paths("shop", &quarantines, &kustomizations);
        assert_eq!(found, [at("back"), at("newer"), at("older")]);
        assert_eq!(paths("none", &quarantines, &kustomizations), Vec::<String>::new());
    }

    #[test]
    fn other_namespaces_do_not_displace_what_a_namespace_needs_and_keep_no_artifact_of_another_source()
     {
        let none = json!(null);
        let quarantines = [
            quarantine("gone", "RollBack", &at("unseen"), &none),
            quarantine("tenant/a", "RollBack", &at("foreign"), &none),
            quarantine("shop/a", "RollBack", "gitrepository/shop/other/1", &none),
            quarantine("gone", "RollBack", "gitrepository/other/shop/1", &none),
        ];
        let kustomizations = [
            kustomization("tenant/a", "RollBack", &at("good"), LATER),
            kustomization("shop/a", "RollBack", &at("own"), EARLIER),
            kustomization("shop/b", "RollBack", "gitrepository/shop/other/2", EARLIER),
        ];
        let found = paths("shop", &quarantines, &kustomizations);
        assert_eq!(found, [at("own"), at("foreign"), at("good"), at("unseen")]);
    }
}
