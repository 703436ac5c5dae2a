//! Detects that a second owner has the same release. Two owners of one release would undo each other's work for ever.

use std::sync::Arc;

use crds::ReconciledObject;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, HelmfileStatus, ReleaseState, mumoshu_helmfile};
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;
use release::release_snapshot::SnapshotMatch;
use release::{ReleaseRecord, ReleaseSnapshot, release_snapshot};

use crate::release_runner::target_of;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::controller_kind::node_of;
use windlass_runtime::object_status::through;
use windlass_runtime::run_context::RunContext;

/// Finds the other object that owns the release of a record. `None` if no other object owns it. The journal beside the record
/// names an owner by its uid. That owner counts if its spec asks for the release, or if its history has a revision of the
/// release. Otherwise the owner is the object whose newest revision is this record. A release of the same name does not
/// suffice, because it may be in another cluster.
///
/// The journal is written before any object of the release is applied. So it names the owner during the first installation as
/// well, when no status has a history.
pub fn holder(
    context: &RunContext,
    asking: &ObjectKey,
    uid: Option<&str>,
    last: &ReleaseRecord,
) -> Option<ObjectKey> {
    let all = ReleaseOwners {
        releases: context.store::<HelmRelease>().state(),
        helmfiles: context.store::<Helmfile>().state(),
        operators: context.store::<mumoshu_helmfile::Helmfile>().state(),
    };
    all.holder(asking, uid, last)
}

/// All objects that may have a release.
#[derive(Default)]
struct ReleaseOwners {
    releases: Vec<Arc<HelmRelease>>,
    helmfiles: Vec<Arc<Helmfile>>,
    operators: Vec<Arc<mumoshu_helmfile::Helmfile>>,
}

impl ReleaseOwners {
    /// The other object that owns the release of a record, as [`holder`] finds it. `None` if no other object owns the release.
    fn holder(
        &self,
        asking: &ObjectKey,
        uid: Option<&str>,
        last: &ReleaseRecord,
    ) -> Option<ObjectKey> {
        let by_journal = uid.and_then(|uid| self.first(asking, Some(uid), last));
        // An owner that adopts a release writes no journal, so the journal of the previous owner stays.
        by_journal.or_else(|| self.first(asking, None, last))
    }

    fn first(
        &self,
        asking: &ObjectKey,
        uid: Option<&str>,
        last: &ReleaseRecord,
    ) -> Option<ObjectKey> {
        let of_release = |it: &HelmRelease| {
            let target = target_of(it);
            let is_target = (&target.name, &target.namespace) == (&last.name, &last.namespace);
            let history = it.status.as_ref().map(|status| status.history.as_slice());
            (uid.is_some() && is_target) || has(history.unwrap_or_default(), uid.is_some(), last)
        };
        first(&self.releases, asking, uid, of_release)
            .or_else(|| helmfile(&self.helmfiles, asking, uid, last))
            .or_else(|| helmfile(&self.operators, asking, uid, last))
    }
}

/// The first object of a list, other than the asking one, that `has` the release. With a `uid`, only the object of that uid
/// counts. `None` if there is none.
fn first<K: WindlassKind>(
    all: &[Arc<K>],
    asking: &ObjectKey,
    uid: Option<&str>,
    has: impl Fn(&K) -> bool,
) -> Option<ObjectKey> {
    let its = all.iter().filter(|it| uid.is_none_or(|uid| it.uid().as_deref() == Some(uid)));
    its.filter(|it| has(it)).map(|it| node_of(&**it)).find(|node| node != asking)
}

/// The first Helmfile of a kind that owns the release. Its status has a row for a release before any operation on that release
/// begins. `None` if no other Helmfile owns the release.
fn helmfile<K>(
    all: &[Arc<K>],
    asking: &ObjectKey,
    uid: Option<&str>,
    last: &ReleaseRecord,
) -> Option<ObjectKey>
where
    K: WindlassKind + ReconciledObject<Status = HelmfileStatus>,
{
    let is_its = |it: &K| {
        let rows = it.status().map(|status| status.releases.as_slice()).unwrap_or_default();
        rows.iter().any(|row| {
            let is_target = (&row.name, &row.namespace) == (&last.name, &last.namespace)
                && is_asked_for(row.state);
            (uid.is_some() && is_target) || has(&row.status.history, uid.is_some(), last)
        })
    };
    first(all, asking, uid, is_its)
}

/// Whether a Helmfile owns the release of a row in this state. It does not own a release that it gave up, although the
/// row stays.
fn is_asked_for(state: ReleaseState) -> bool {
    use ReleaseState::{Failed, Pending, Progressing, Ready, Suspended, Uninstalling, Waiting};
    matches!(state, Pending | Waiting | Progressing | Ready | Failed | Suspended | Uninstalling)
}

/// Whether a history belongs to the release of a record. `is_known` says that the journal beside the record names the
/// history's owner.
pub fn has(history: &[crds::helm::Snapshot], is_known: bool, last: &ReleaseRecord) -> bool {
    let is_named =
        |it: &crds::helm::Snapshot| it.name == last.name && it.namespace == last.namespace;
    if !history.iter().any(is_named) {
        return false;
    }
    let history: Vec<ReleaseSnapshot> = through(&history).unwrap_or_default();
    let is_it =
        |it: &ReleaseSnapshot| it.targets(last) && it.matches(last) == Ok(SnapshotMatch::Same);
    is_known || release_snapshot::latest(&history).is_some_and(is_it)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use golang::value::{GoMap, GoType};
    use release::record::{RevisionInfo, RevisionStatus};
    use serde_json::{Value, json};

    use super::*;

    fn record(description: &str) -> ReleaseRecord {
        let info = RevisionInfo {
            status: RevisionStatus::Deployed,
            first_deployed: Some(reconcile::Time::UNIX_EPOCH.into()),
            last_deployed: Some(reconcile::Time::UNIX_EPOCH.into()),
            description: description.to_owned(),
            ..RevisionInfo::default()
        };
        let name = "web".to_owned();
        let namespace = "apps".to_owned();
        ReleaseRecord {
            name,
            namespace,
            version: 1,
            info,
            chart: None,
            config: GoMap::new(GoType::Any, []),
            manifest: String::new(),
            hooks: Vec::new(),
            apply_method: String::new(),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn a_release_of_the_same_name_and_version_in_another_cluster_is_another_one() {
        let here = record("Install complete");
        let known = ReleaseSnapshot::of(&here, None, "").unwrap();
        let history: Vec<crds::helm::Snapshot> = through(&[known]).unwrap();
        assert!(has(&history, false, &here));
        let there = record("Upgrade complete");
        assert!(!has(&history, false, &there), "the names are the same");
        assert!(has(&history, true, &there), "its journal names the owner");
        assert!(!has(&[], true, &here));
    }

    fn release(name: &str, of: &str, history: &[ReleaseSnapshot]) -> Arc<HelmRelease> {
        let object: HelmRelease = serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name, "namespace": "apps", "uid": format!("uid-{name}")},
            "spec": {"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}, "releaseName": of},
            "status": {"history": history},
        }))
        .unwrap();
        Arc::new(object)
    }

    fn helmfile_object(kind: &str, name: &str, rows: &Value) -> Value {
        let group = if kind == "operator" { "helmfile.helm.sh" } else { "helmfile.windlass.dev" };
        json!({"apiVersion": format!("{group}/v1alpha1"), "kind": "Helmfile",
            "metadata": {"name": name, "namespace": "apps", "uid": format!("uid-{name}")},
            "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "g"}},
            "status": {"releases": rows}})
    }

    fn row(name: &str) -> Value {
        json!([{"name": name, "namespace": "apps", "state": "Progressing"}])
    }

    /// Who has the release `apps/web` beside whose record the journal names this uid, as one that is named `asking` sees it.
    fn seen(all: &ReleaseOwners, asking: &str, uid: &str) -> Option<String> {
        let asking = node_of(&*release(asking, "web", &[]));
        let holder = all.holder(&asking, Some(uid), &record("Initial install underway"));
        holder.map(|node| node.name)
    }

    #[test]
    fn who_made_the_first_revision_has_the_release_before_a_status_says_so() {
        let releases = vec![release("one", "web", &[]), release("two", "web", &[])];
        let all = ReleaseOwners { releases, ..ReleaseOwners::default() };
        assert_eq!(seen(&all, "two", "uid-one").as_deref(), Some("one"));
        assert_eq!(seen(&all, "one", "uid-two").as_deref(), Some("two"));
        assert_eq!(seen(&all, "one", "uid-one"), None, "it is its own");
        assert_eq!(seen(&all, "two", "uid-gone"), None, "nobody lives who has it");
    }

    #[test]
    fn a_helmfile_has_the_releases_of_its_rows_before_they_have_a_history() {
        let helmfiles = vec![
            Arc::new(serde_json::from_value(helmfile_object("ours", "one", &row("web"))).unwrap()),
            Arc::new(serde_json::from_value(helmfile_object("ours", "two", &row("web"))).unwrap()),
            Arc::new(serde_json::from_value(helmfile_object("ours", "bus", &row("bus"))).unwrap()),
        ];
        let all = ReleaseOwners { helmfiles, ..ReleaseOwners::default() };
        assert_eq!(seen(&all, "two", "uid-one").as_deref(), Some("one"));
        assert_eq!(seen(&all, "two", "uid-bus"), None, "another release");
        let beside = release("beside", "web", &[]);
        let all = ReleaseOwners { releases: vec![beside], ..all };
        assert_eq!(seen(&all, "one", "uid-beside").as_deref(), Some("beside"));
        assert_eq!(seen(&all, "beside", "uid-two").as_deref(), Some("two"));
    }

    #[test]
    fn a_release_that_was_left_has_who_adopted_it() {
        let known = ReleaseSnapshot::of(&record("Initial install underway"), None, "").unwrap();
        let releases = vec![release("one", "other", &[]), release("two", "web", &[known])];
        let all = ReleaseOwners { releases, ..ReleaseOwners::default() };
        assert_eq!(seen(&all, "three", "uid-gone").as_deref(), Some("two"));
        assert_eq!(seen(&all, "three", "uid-one").as_deref(), Some("two"), "it has another by now");
        assert_eq!(seen(&all, "two", "uid-gone"), None);
    }
}
