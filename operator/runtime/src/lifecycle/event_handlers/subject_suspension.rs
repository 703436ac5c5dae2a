//! The reasons why windlass starts nothing for a LifecycleEvent. While its object is suspended, no Job is created and no
//! `POST` is sent. Checks that only read continue.
//!
//! Elsewhere: the checks (`condition_check.rs`), and holds (`object_hold`).

use crds::Applier;
use crds::helmfile::SuspendedRelease;
use crds::operation_lifecycle::{LifecycleEvent, LifecyclePhase};
use kube_core::ResourceExt as _;
use reconcile::{ROLLBACK, ReleaseRollback, Time};

use crate::lifecycle::ReleaseNameAndContext;
use crate::object_hold;
use windlass_cluster::windlass_kind::WindlassKind;

/// The reason why nothing is started for an event: its object or its release is suspended. `None` if neither is.
///
/// A rollback that a user requests runs with its lifecycles while the release is suspended.
pub(super) fn suspension<K: WindlassKind + Applier>(
    object: &K,
    suspended_releases: &[SuspendedRelease],
    event: &LifecycleEvent,
    now: Time,
) -> Option<String> {
    let release = event.spec.subject.release.as_ref();
    let release: Option<ReleaseNameAndContext<'_>> =
        release.map(|it| (it.name.as_str(), it.namespace.as_str(), it.kube_context.as_str()));
    let kind = K::kind(&());
    let namespace = event.namespace().unwrap_or_default();
    let name = object.name_any();
    let text = if object_hold::is_suspended(object, now) {
        format!("{kind} {namespace}/{name} is suspended")
    } else {
        let (release, ..) = release.filter(|release| {
            let mut entries = suspended_releases.iter();
            entries.any(|entry| {
                object_hold::is_in_force(entry, now) && object_hold::names_release(entry, *release)
            })
        })?;
        format!(
            "release {release} is suspended by spec.suspendedReleases of {kind} {namespace}/{name}"
        )
    };
    (!is_of_requested_rollback(object, event)).then_some(text)
}

/// Whether an event is about the rollback that an annotation of the suspended object requests.
fn is_of_requested_rollback<K: WindlassKind>(object: &K, event: &LifecycleEvent) -> bool {
    let spec = &event.spec;
    if !matches!(spec.phase, LifecyclePhase::PreRollback | LifecyclePhase::PostRollback) {
        return false;
    }
    let Some(annotation) = object.annotations().get(ROLLBACK) else { return false };
    // The annotation of an object with several releases names one of them, with its context if it has one.
    let named = annotation.rsplit_once(':').map(|(release, _)| release);
    let is_named = named.is_none_or(|named| {
        spec.subject.release.as_ref().is_some_and(|release| {
            let place = format!("{}/{}", release.namespace, release.name);
            let context = &release.kube_context;
            let full_name = if context.is_empty() { place } else { format!("{context}/{place}") };
            named == full_name
        })
    });
    let from = spec.from.as_ref().map(|from| from.revision.as_str());
    let requested = ReleaseRollback::of(annotation, named);
    is_named && requested.is_some_and(|it| Some(it.from.to_string().as_str()) == from)
}

#[cfg(test)]
mod tests {
    use crds::helm::HelmRelease;
    use crds::helmfile::Helmfile;
    use serde_json::{Value, json};

    use super::*;

    fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    /// A LifecycleEvent about the release `db` of the object `shop`, at a phase of an operation on revision 5.
    fn event(phase: &str, kube_context: &str) -> LifecycleEvent {
        let release = json!({"name": "db", "namespace": "data", "kubeContext": kube_context});
        read(json!({"metadata": {"name": "e", "namespace": "apps"}, "spec": {
            "lifecycle": "l", "phase": phase, "from": {"revision": "5"},
            "subject": {"name": "shop", "namespace": "apps", "release": release},
        }}))
    }

    fn release(suspend: bool, rollback: &str) -> HelmRelease {
        read(json!({"metadata": {"name": "shop", "namespace": "apps",
            "annotations": {"windlass.dev/rollback": rollback}},
            "spec": {"interval": "1m", "suspend": suspend}}))
    }

    fn helmfile(suspended: Value, rollback: &str) -> Helmfile {
        read(json!({"metadata": {"name": "shop", "namespace": "apps",
            "annotations": {"windlass.dev/rollback": rollback}},
            "spec": {"interval": "1m", "suspendedReleases": suspended,
                "sourceRef": {"kind": "GitRepository", "name": "r"}}}))
    }

    #[test]
    fn nothing_is_begun_for_a_suspended_object_but_the_rollback_that_a_user_requests() {
        let suspension = |object: &HelmRelease, phase: &str| {
            super::suspension(object, &[], &event(phase, ""), Time::UNIX_EPOCH)
        };
        assert_eq!(suspension(&release(false, ""), "PreUpgrade"), None);
        let text = "HelmRelease apps/shop is suspended";
        assert_eq!(suspension(&release(true, ""), "PreUpgrade").as_deref(), Some(text));
        for (rollback, phase, is_suspended) in [
            ("5->3", "PreRollback", false),
            ("5->3", "PostRollback", false),
            ("5->3", "PostUpgrade", true),
            ("4->3", "PreRollback", true),
            ("", "PreRollback", true),
        ] {
            let found = suspension(&release(true, rollback), phase).is_some();
            assert_eq!(found, is_suspended, "{rollback} {phase}");
        }
    }

    #[test]
    fn nothing_is_begun_for_a_suspended_release_of_a_helmfile() {
        let suspension = |helmfile: &Helmfile, phase: &str, kube_context: &str| {
            let event = event(phase, kube_context);
            let entries = &helmfile.spec.suspended_releases;
            super::suspension(helmfile, entries, &event, Time::UNIX_EPOCH)
        };
        let other = helmfile(json!([{"name": "web"}, {"name": "db", "namespace": "apps"}]), "");
        assert_eq!(suspension(&other, "PreUpgrade", ""), None);
        let over = helmfile(json!([{"name": "db", "until": "1970-01-01T00:00:00Z"}]), "");
        assert_eq!(suspension(&over, "PreUpgrade", ""), None);
        let suspended = helmfile(json!([{"name": "db", "namespace": "data"}]), "east/data/db:5->3");
        let text = "release db is suspended by spec.suspendedReleases of Helmfile apps/shop";
        assert_eq!(suspension(&suspended, "PreUpgrade", "").as_deref(), Some(text));
        assert!(suspension(&suspended, "PreRollback", "").is_some(), "of another cluster");
        assert_eq!(suspension(&suspended, "PreRollback", "east"), None);
    }
}
