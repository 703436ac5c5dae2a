//! Audits of suspensions: who suspended an object and why, and who resumed it.
//!
//! The condition of a hold shows what was audited last. It is written after the audit, so a crash in between only repeats the
//! same audit. A user who changes annotations constantly could cause audits without end. So after a burst, only one audit a
//! minute is written, with the latest state. Elsewhere: writing audits (`audit`), and holds (`object_hold`).

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject as _;
use crds::windlass_release::{
    AuditCause, AuditOperation, AuditOutcome, AuditSubject, ReleaseAuditSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource as _;
use reconcile::{
    AnnotationCondition, ConditionStatus, HOLD, REQUESTED_BY, REQUESTED_REASON, ReleaseRollback,
    Time,
};
use release::operation_origin::AnnotationRequest;

use super::{ApplierKind, ApplierSession, object_hold};
use crate::audit::{self, manager_of_annotation, manager_of_spec, text, when};

/// A change of an object's suspension since its status was written.
#[derive(Debug, PartialEq, Eq)]
enum SuspensionChange {
    /// The object was suspended, which this text describes.
    Suspended(String),
    /// The object was resumed. This text described its suspension.
    Resumed(String),
}

/// How many suspensions and resumptions of an object are audited without a pause.
const MAX_AUDITS_IN_A_ROW: u32 = 10;

/// The least time between later audits of the same object.
const AUDIT_SPACING: Duration = Duration::from_secs(60);

/// The rate limit for the suspension audits of one object, with the change that waits for its audit.
#[derive(Debug, Default)]
pub(super) struct SuspensionAuditRateLimit {
    /// Until when the audits so far use up the rate limit.
    settled_at: Option<Time>,
    withheld: Option<DeferredSuspensionAudit>,
}

/// A suspension change that is audited later.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeferredSuspensionAudit {
    /// The text of the suspension that was audited last. `None` if the last audit was about a resumption.
    audited: Option<String>,
    /// Whether the suspension ended because its time was over.
    expired: bool,
}

impl SuspensionAuditRateLimit {
    /// How long the next audit has to wait.
    fn wait(&self, now: Time) -> Duration {
        let settled_in = self.settled_at.map_or(Duration::ZERO, |it| until(now, it));
        settled_in.saturating_sub(AUDIT_SPACING * (MAX_AUDITS_IN_A_ROW - 1))
    }

    fn note_audit(&mut self, now: Time) {
        let from = self.settled_at.map_or(now, |it| it.max(now));
        self.settled_at = Some(from.saturating_add(AUDIT_SPACING).unwrap_or(Time::MAX));
        self.withheld = None;
    }

    /// The time until the waiting change is audited. `None` if no change waits.
    pub(super) fn due_in(&self, now: Time) -> Option<Duration> {
        self.withheld.is_some().then(|| self.wait(now))
    }
}

fn until(now: Time, then: Time) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}

/// The text that describes the suspension in the condition of a status. `None` if the object is not suspended.
fn hold_message(condition: Option<&crds::Condition>) -> Option<&str> {
    condition.filter(|it| it.status == ConditionStatus::True.as_str()).map(|it| it.message.as_str())
}

/// The text of the suspension that was audited last. `known` is the text in the status. If the hold comes from a rollback, the
/// present text counts as audited, because the rollback has its own audit. `None` if `known` is `None`.
fn audited(
    known: Option<&str>,
    mark: Option<&AnnotationCondition>,
    is_of_rollback: bool,
) -> Option<String> {
    let now = mark.filter(|it| is_of_rollback && it.status == ConditionStatus::True);
    known.map(|known| now.map_or(known, |it| it.text.as_str()).to_owned())
}

/// Whether a rollback caused the hold of an object.
fn is_of_rollback(meta: &ObjectMeta, rollback: Option<ReleaseRollback>) -> bool {
    let reason = meta.annotations.as_ref().and_then(|all| all.get(object_hold::REASON));
    let said = rollback.zip(reason).and_then(|(rollback, reason)| {
        let own = rollback.suspension_reason();
        reason.trim().strip_prefix(own.as_str())
    });
    said.is_some_and(|said| said.is_empty() || said.starts_with(": "))
}

/// Compares the hold in force with the suspension that was audited last. Returns the change that has to be audited, or `None`
/// if there is no change.
fn changed(mark: Option<&AnnotationCondition>, audited: Option<&str>) -> Option<SuspensionChange> {
    let now = mark.filter(|it| it.status == ConditionStatus::True).map(|it| it.text.as_str());
    match (audited, now) {
        (audited, Some(now)) if audited != Some(now) => {
            Some(SuspensionChange::Suspended(now.to_owned()))
        }
        (Some(audited), None) => Some(SuspensionChange::Resumed(audited.to_owned())),
        _ => None,
    }
}

impl<K: ApplierKind> ApplierSession<K> {
    /// Writes the audit of a suspension or resumption, before the status shows it. `expired` says that the time of the
    /// suspension is over.
    pub(super) async fn audit_suspension(&self, object: &Arc<K::Object>, expired: bool) {
        let mark = object_hold::mark(&**object, self.began);
        let meta = object.meta();
        let known = hold_message(object.condition(HOLD));
        // A change of the owner is audited in any case.
        let has_same_owner = known
            .zip(object_hold::of(&**object))
            .is_some_and(|(known, hold)| hold.has_owner_of(known));
        let is_of_rollback = has_same_owner && is_of_rollback(meta, K::rollback(object));
        let audited = audited(known, mark.as_ref(), is_of_rollback);
        let due = self.due_audit(mark.as_ref(), audited, expired);
        let Some((changed, expired)) = due else { return };
        let (operation, cause, text) = match changed {
            SuspensionChange::Suspended(text) => {
                (AuditOperation::Suspend, Some(suspended(meta)), text)
            }
            SuspensionChange::Resumed(text) if expired => {
                (AuditOperation::Resume, None, expired_text(&text))
            }
            SuspensionChange::Resumed(text) => (AuditOperation::Resume, Some(resumed(meta)), text),
        };
        let generation = meta.generation.unwrap_or_default();
        let key = format!("{} {generation} {text}", operation.as_str());
        let spec = spec(operation, self.subject(object), cause, text, self.began);
        let namespace = &self.node.namespace;
        if let Some(event) = audit::write(&self.context, namespace, &key, spec).await {
            self.context.events.announce(&**object, K::Object::CONTROLLER, event);
        }
    }

    /// The change to audit now, with whether the suspension expired. `None` if nothing changed or the rate limit makes it
    /// wait. `audited` is the text of the last audited suspension.
    fn due_audit(
        &self,
        mark: Option<&AnnotationCondition>,
        audited: Option<String>,
        expired: bool,
    ) -> Option<(SuspensionChange, bool)> {
        let mut memory = self.memory.lock();
        let spacing = &mut memory.suspension_audits;
        let withheld = spacing.withheld.take();
        let expired = expired || withheld.as_ref().is_some_and(|it| it.expired);
        let audited = withheld.map_or(audited, |it| it.audited);
        let changed = changed(mark, audited.as_deref())?;
        if spacing.wait(self.began).is_zero() {
            spacing.note_audit(self.began);
            return Some((changed, expired));
        }
        spacing.withheld = Some(DeferredSuspensionAudit { audited, expired });
        None
    }

    /// The time until a waiting suspension change is audited. `None` if no change waits.
    pub(super) fn suspension_audit_due_in(&self) -> Option<Duration> {
        let memory = self.memory.lock();
        memory.suspension_audits.due_in(jiff::Timestamp::now())
    }

    fn subject(&self, object: &K::Object) -> AuditSubject {
        AuditSubject {
            group: K::Object::group(&()).into_owned(),
            kind: K::Object::kind(&()).into_owned(),
            name: self.node.name.clone(),
            uid: object.meta().uid.clone().unwrap_or_default(),
            generation: object.meta().generation.unwrap_or_default(),
            release: None,
        }
    }
}

fn spec(
    operation: AuditOperation,
    subject: AuditSubject,
    cause: Option<AnnotationRequest>,
    message: String,
    now: Time,
) -> ReleaseAuditSpec {
    let causes: Vec<AuditCause> = cause.map(audit::requested).into_iter().collect();
    ReleaseAuditSpec {
        subject,
        operation,
        causes,
        outcome: AuditOutcome::Succeeded,
        message: text(message),
        started: when(now),
        ended: when(now),
        ..ReleaseAuditSpec::default()
    }
}

fn expired_text(text: &str) -> String {
    format!("{text}; this has expired")
}

/// Who suspended an object and why, from the annotations of its hold.
fn suspended(meta: &ObjectMeta) -> AnnotationRequest {
    let annotation = |key: &str| {
        let text = meta.annotations.as_ref().and_then(|all| all.get(key));
        text.map(|text| audit::cut(text.trim(), 250)).unwrap_or_default()
    };
    AnnotationRequest {
        manager: manager_of_annotation(meta, object_hold::BY),
        user: annotation(object_hold::BY),
        reason: annotation(object_hold::REASON),
        ..AnnotationRequest::default()
    }
}

/// Who resumed an object and why. The annotations count only if the same field manager wrote them and the spec.
fn resumed(meta: &ObjectMeta) -> AnnotationRequest {
    let manager = manager_of_spec(meta);
    let claim = audit::claim(meta, &manager, REQUESTED_BY, REQUESTED_REASON);
    AnnotationRequest { manager, ..claim.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use reconcile::{ROLLBACK, condition_reason};
    use serde_json::{Value, json};

    use super::*;

    fn mark(text: &str) -> AnnotationCondition {
        AnnotationCondition {
            kind: HOLD,
            status: ConditionStatus::True,
            reason: condition_reason::SUSPENDED,
            text: text.to_owned(),
        }
    }

    fn condition(status: &str, text: &str) -> crds::Condition {
        serde_json::from_value(json!({"type": HOLD, "status": status, "reason": "Suspended",
            "message": text, "lastTransitionTime": "2026-11-01T00:00:00Z"}))
        .unwrap()
    }

    #[test]
    fn a_loop_of_suspensions_is_audited_once_a_minute_and_its_last_change_always() {
        let at = |second: i64| Time::from_second(1_000_000 + second).unwrap();
        let mut spacing = SuspensionAuditRateLimit::default();
        // Two changes each second, for ten minutes.
        let audited = (0..1200).filter(|half| {
            let now = at(half / 2);
            let is_due = spacing.wait(now).is_zero();
            if is_due {
                spacing.note_audit(now);
            }
            is_due
        });
        assert_eq!(audited.count(), 19);
        spacing.withheld = Some(DeferredSuspensionAudit { audited: None, expired: false });
        // The last audit was at 540 s.
        assert_eq!(spacing.due_in(at(590)), Some(Duration::from_secs(10)));
        assert_eq!(spacing.due_in(at(600)), Some(Duration::ZERO));
        spacing.note_audit(at(660));
        assert_eq!(spacing.due_in(at(700)), None);
        // After a quiet time, a full burst is possible again.
        for _ in 0..MAX_AUDITS_IN_A_ROW {
            assert!(spacing.wait(at(5000)).is_zero());
            spacing.note_audit(at(5000));
        }
        assert_eq!(spacing.wait(at(5000)), AUDIT_SPACING);
    }

    #[test]
    fn a_suspension_is_audited_when_it_begins_changes_and_ends() {
        let alice = "suspended by alice: incident-1234";
        let bob = "suspended by bob";
        let suspended = |text: &str| Some(SuspensionChange::Suspended(text.to_owned()));
        assert_eq!(changed(None, None), None);
        assert_eq!(changed(Some(&mark(alice)), None), suspended(alice));
        assert_eq!(changed(Some(&mark(alice)), Some(alice)), None);
        assert_eq!(changed(Some(&mark(bob)), Some(alice)), suspended(bob));
        let resumed = Some(SuspensionChange::Resumed(alice.to_owned()));
        assert_eq!(changed(None, Some(alice)), resumed);
        let expired = AnnotationCondition {
            status: ConditionStatus::False,
            reason: condition_reason::EXPIRED,
            ..mark(alice)
        };
        assert_eq!(changed(Some(&expired), Some(alice)), resumed);
        assert_eq!(hold_message(Some(&condition("True", alice))), Some(alice));
        assert_eq!(hold_message(Some(&condition("False", alice))), None);
        assert_eq!(changed(Some(&expired), None), None);
    }

    fn meta(annotations: &Value, managed: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"annotations": annotations, "managedFields": managed}))
            .unwrap()
    }

    fn wrote(manager: &str, fields: &Value, second: i64) -> Value {
        let time = format!("2026-11-01T00:00:{second:02}Z");
        json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields})
    }

    #[test]
    fn who_resumes_is_who_wrote_the_spec() {
        let by = format!("f:{REQUESTED_BY}");
        let why = format!("f:{REQUESTED_REASON}");
        let annotations = json!({REQUESTED_BY: "bob", REQUESTED_REASON: "mended"});
        let claimed = json!({"f:metadata": {"f:annotations": {by: {}, why: {}}}});
        let suspend = json!({"f:spec": {"f:suspend": {}}});
        let both = json!([wrote("windlass", &claimed, 1), wrote("windlass", &suspend, 1)]);
        let asked = resumed(&meta(&annotations, &both));
        let text = |text: &str| text.to_owned();
        let wanted = AnnotationRequest {
            manager: text("windlass"),
            user: text("bob"),
            reason: text("mended"),
            ..AnnotationRequest::default()
        };
        assert_eq!(asked, wanted);
        let other = json!([wrote("windlass", &claimed, 1), wrote("flux", &suspend, 2)]);
        let asked = resumed(&meta(&annotations, &other));
        assert_eq!(
            asked,
            AnnotationRequest { manager: text("flux"), ..AnnotationRequest::default() }
        );
    }

    #[test]
    fn a_suspension_that_becomes_that_of_a_rollback_is_audited_once() {
        let alice = "suspended by alice until 2026-11-24T12:00:00Z";
        let rollback = mark("suspended by alice: rollback to revision 3: incident-1234");
        let due = |known: Option<&str>, is_of_rollback: bool| {
            changed(Some(&rollback), audited(known, Some(&rollback), is_of_rollback).as_deref())
        };
        let suspended = Some(SuspensionChange::Suspended(rollback.text.clone()));
        assert_eq!(due(Some(alice), true), None);
        assert_eq!(due(None, true), suspended);
        assert_eq!(due(Some(alice), false), suspended);
        assert_eq!(audited(Some(alice), None, true).as_deref(), Some(alice), "it is resumed");
        let wanted = ReleaseRollback { from: 5, to: 3 };
        let of = |reason: &str, rollback: Option<ReleaseRollback>| {
            let annotations = json!({ROLLBACK: "5->3", object_hold::REASON: reason});
            is_of_rollback(&meta(&annotations, &json!([])), rollback)
        };
        let reason = wanted.suspension_reason();
        assert!(of(&reason, Some(wanted)));
        assert!(of(&format!("{reason}: incident-1234"), Some(wanted)));
        assert!(!of("migration", Some(wanted)));
        assert!(!of(&format!("{reason}0"), Some(wanted)), "revision 30");
        assert!(!of(&reason, None), "the kind knows no such rollback");
        assert!(!is_of_rollback(&meta(&json!({}), &json!([])), Some(wanted)));
    }

    #[test]
    fn who_suspends_is_who_the_hold_names() {
        let annotations = json!({object_hold::BY: "alice", object_hold::REASON: "incident-1234"});
        let asked = suspended(&meta(&annotations, &json!([])));
        assert_eq!((asked.user.as_str(), asked.reason.as_str()), ("alice", "incident-1234"));
    }
}
