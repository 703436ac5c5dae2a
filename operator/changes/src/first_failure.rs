//! Why a change failed: the first member that failed, with its cause, for the event about the verdict.
//!
//! Only members in the namespace of the source are named, as in a ChangeSet. Elsewhere: the states of members
//! (`observed_members`), and the event (`withheld_events`).

use std::sync::Arc;

use changes::change_set_member_lines::{MemberKind, subject_of};
use changes::member_state::is_waiting;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, mumoshu_helmfile};
use crds::kustomize::Kustomization;
use crds::windlass_release::Quarantine;
use crds::{Condition, ReconciledObject};
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, condition_reason};

use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::run_context::RunContext;

use super::followed_change::FollowedChange;

/// The longest cause, in characters. An event has room for it beside the verdict and the command.
const MAX_CAUSE_CHARACTERS: usize = 300;

/// How many members are read until the failure of one is known. It is not known of a member that was being retried when this
/// process began.
const MAX_MEMBERS_READ: usize = 32;

/// The first member that failed or went back, with its cause. `None` if a user requested the rollback, if no member failed, or
/// if only members of other namespaces did.
pub(crate) fn first_failure(context: &RunContext, change: &FollowedChange) -> Option<String> {
    // The event that led to the request named the failure. The members now say who rolled them back.
    if change.left_by_rollback.is_some() {
        return None;
    }
    change.unwell().into_iter().take(MAX_MEMBERS_READ).find_map(|key| {
        let seen = seen_cause(context, key, &change.spec.revision);
        let cause = seen.or_else(|| change.remembered_failure(key).map(str::to_owned))?;
        let subject = subject_of(&key.group, &key.kind, &key.name)?;
        Some(format!("{subject} failed: {cause}"))
    })
}

/// The cause of a member's failure, from the object that the watch last saw. `None` while the member is retried.
pub(crate) fn seen_cause(context: &RunContext, key: &ObjectKey, revision: &str) -> Option<String> {
    fn seen<K: WindlassKind + ReconciledObject>(
        context: &RunContext,
        key: &ObjectKey,
        revision: &str,
    ) -> Option<String> {
        let object = context.seen::<K>(&key.namespace, &key.name)?;
        let ready = object.condition(reconcile::READY)?;
        if is_reported(ready) {
            return Some(short_line(&ready.message));
        }
        let table = context.shared::<WatchedObjectCache<Quarantine>>();
        let uid = object.uid().unwrap_or_default();
        let own = windlass_quarantine::of_applier(table.of(&key.namespace), key, &uid);
        quarantine_cause(ready, &own, revision)
    }
    match MemberKind::of(&key.group, &key.kind)? {
        MemberKind::Kustomization => seen::<Kustomization>(context, key, revision),
        MemberKind::HelmRelease => seen::<HelmRelease>(context, key, revision),
        MemberKind::Helmfile => seen::<Helmfile>(context, key, revision),
        MemberKind::OperatorHelmfile => seen::<mumoshu_helmfile::Helmfile>(context, key, revision),
    }
}

/// Whether the message of `Ready` is the cause of a failure. A member may wait after its failure, and the message of a
/// quarantined member begins with the revisions and the command.
fn is_reported(ready: &Condition) -> bool {
    ready.status == "False" && !is_waiting(&ready.reason) && !is_quarantined(ready)
}

fn is_quarantined(ready: &Condition) -> bool {
    ready.status == "False" && ready.reason == condition_reason::QUARANTINED.as_str()
}

/// The cause of a member's failure from its Quarantines. The Quarantine of the revision counts first, then the newest one of a
/// member that reports a Quarantine, which is written before `Ready`. `None` if no Quarantine is the cause.
fn quarantine_cause(ready: &Condition, own: &[Arc<Quarantine>], revision: &str) -> Option<String> {
    let is_quarantined = is_quarantined(ready);
    let is_of_revision = |it: &Quarantine| it.spec.result.revision == revision;
    let in_force = own.iter().filter(|it| {
        windlass_quarantine::is_in_force(it) && (is_quarantined || is_of_revision(it))
    });
    let quarantine = in_force.max_by_key(|it| is_of_revision(it));
    let message = quarantine.map(|it| it.spec.message.as_str());
    let message = message.or_else(|| is_quarantined.then_some(ready.message.as_str()))?;
    Some(short_line(message))
}

/// A message as one line of limited length.
fn short_line(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_CAUSE_CHARACTERS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ready(status: &str, reason: &str, message: &str) -> Condition {
        serde_json::from_value(json!({"type": "Ready", "status": status, "reason": reason,
            "message": message, "lastTransitionTime": "2026-11-30T09:00:00Z"}))
        .unwrap()
    }

    fn quarantine(revision: &str, message: &str, lifted_by: Option<&str>) -> Arc<Quarantine> {
        let spec = json!({"subject": {"kind": "Kustomization", "name": "shop"}, "action": "RollBack",
            "result": {"digest": "d", "revision": revision}, "message": message});
        let lift = lifted_by.map(|user| json!({"user": user}));
        let object = json!({"metadata": {"name": "q"}, "spec": spec, "status": {"lift": lift}});
        serde_json::from_value(object).map(Arc::new).unwrap()
    }

    #[test]
    fn the_cause_is_one_short_line() {
        assert_eq!(
            short_line("kustomize build failed:\n  line 3"),
            "kustomize build failed: line 3"
        );
        let whole = "界".repeat(MAX_CAUSE_CHARACTERS);
        assert_eq!(short_line(&whole), whole);
        assert_eq!(short_line(&"界".repeat(999)), format!("{whole}…"));
    }

    #[test]
    fn a_member_that_is_retried_or_waits_does_not_report_its_failure() {
        assert!(is_reported(&ready("False", "BuildFailed", "no such file")));
        for [status, reason] in [
            ["Unknown", "Progressing"],
            ["False", "DependencyNotReady"],
            ["False", "WindowClosed"],
            ["False", "Quarantined"],
        ] {
            assert!(!is_reported(&ready(status, reason, "it")), "{status} {reason}");
        }
    }

    #[test]
    fn the_cause_of_a_quarantined_member_is_that_of_its_quarantine() {
        let back =
            ready("False", "Quarantined", "revision 2 is quarantined (Quarantine q), and ...");
        let own = [
            quarantine("2", "health check failed", None),
            quarantine("1", "an earlier failure", None),
        ];
        let of = |ready: &Condition, revision: &str| quarantine_cause(ready, &own, revision);
        assert_eq!(of(&back, "2").as_deref(), Some("health check failed"));
        // The revision of a release is the version of its chart.
        assert_eq!(of(&back, "main").as_deref(), Some("an earlier failure"), "the newest");
        let lifted = [quarantine("2", "health check failed", Some("alice"))];
        let text = quarantine_cause(&back, &lifted, "2");
        assert!(text.is_some_and(|it| it.starts_with("revision 2 is")));
        // The Quarantine is written, and the status is not yet.
        let running = ready("Unknown", "Progressing", "reconciliation in progress");
        assert_eq!(of(&running, "2").as_deref(), Some("health check failed"));
        assert_eq!(of(&running, "3"), None);
        assert_eq!(quarantine_cause(&running, &lifted, "2"), None);
    }
}
