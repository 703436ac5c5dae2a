//! Audits of suspensions: who suspended an object and why, and who resumed it.
//!
//! The condition of a hold says what was audited last: it is written after the audit, so that a crash in between makes the
//! same audit again. Elsewhere: writing audits (`controllers::audit`), holds (`controllers::hold`).

use std::sync::Arc;

use crds::release::{AuditCause, AuditOperation, AuditOutcome, AuditSubject, ReleaseAuditSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{HOLD, Mark, REQUESTED_BY, REQUESTED_REASON, Status, Time};
use release::origin::Request;

use super::{Applied, Session, hold};
use crate::controllers::audit::{self, manager_of_annotation, manager_of_spec, text, when};

/// What happened to the suspension of an object since its status was written.
#[derive(Debug, PartialEq, Eq)]
enum Changed {
    /// It is suspended, as this text says.
    Suspended(String),
    /// It is not any more; the text says how it was.
    Resumed(String),
}

/// Compares a hold that is in force with the condition of the status.
fn changed(mark: Option<&Mark>, told: Option<&crds::Condition>) -> Option<Changed> {
    let told = told.filter(|it| it.status == Status::True.as_str()).map(|it| it.message.as_str());
    let now = mark.filter(|it| it.status == Status::True).map(|it| it.text.as_str());
    match (told, now) {
        (told, Some(now)) if told != Some(now) => Some(Changed::Suspended(now.to_owned())),
        (Some(told), None) => Some(Changed::Resumed(told.to_owned())),
        _ => None,
    }
}

impl<K: Applied> Session<K> {
    /// Writes the audit of a suspension that began or ended, before the status says so. `expired` is whether it ended by
    /// itself.
    pub(super) async fn audit_suspension(&self, object: &Arc<K>, expired: bool) {
        let mark = hold::mark(&**object, self.began);
        let Some(changed) = changed(mark.as_ref(), object.condition(HOLD)) else { return };
        let meta = object.meta();
        let (operation, cause, text) = match changed {
            Changed::Suspended(text) => (AuditOperation::Suspend, Some(suspended(meta)), text),
            Changed::Resumed(text) if expired => {
                (AuditOperation::Resume, None, expired_text(&text))
            }
            Changed::Resumed(text) => (AuditOperation::Resume, Some(resumed(meta)), text),
        };
        let generation = meta.generation.unwrap_or_default();
        let key = format!("{} {generation} {text}", operation.as_str());
        let spec = spec(operation, self.subject(object), cause, text, self.began);
        let namespace = &self.node.namespace;
        if let Some(event) = audit::write(&self.context, namespace, &key, spec).await {
            self.context.events.announce(&**object, K::CONTROLLER, event);
        }
    }

    fn subject(&self, object: &K) -> AuditSubject {
        AuditSubject {
            group: K::group(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
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
    cause: Option<Request>,
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

/// Who suspended an object and why, as the annotations of its hold say.
fn suspended(meta: &ObjectMeta) -> Request {
    let annotation = |key: &str| {
        let text = meta.annotations.as_ref().and_then(|all| all.get(key));
        text.map(|text| audit::cut(text.trim(), 250)).unwrap_or_default()
    };
    Request {
        manager: manager_of_annotation(meta, hold::BY),
        user: annotation(hold::BY),
        reason: annotation(hold::REASON),
        ..Request::default()
    }
}

/// Who resumed an object and why: the annotations count if they were written together with the spec.
fn resumed(meta: &ObjectMeta) -> Request {
    let manager = manager_of_spec(meta);
    let claim = audit::claim(meta, &manager, REQUESTED_BY, REQUESTED_REASON);
    Request { manager, ..claim.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use reconcile::reason;
    use serde_json::{Value, json};

    use super::*;

    fn mark(text: &str) -> Mark {
        Mark { kind: HOLD, status: Status::True, reason: reason::SUSPENDED, text: text.to_owned() }
    }

    fn told(status: &str, text: &str) -> crds::Condition {
        serde_json::from_value(json!({"type": HOLD, "status": status, "reason": "Suspended",
            "message": text, "lastTransitionTime": "2026-11-01T00:00:00Z"}))
        .unwrap()
    }

    #[test]
    fn a_suspension_is_audited_when_it_begins_changes_and_ends() {
        let (alice, bob) = ("suspended by alice: incident-1234", "suspended by bob");
        let suspended = |text: &str| Some(Changed::Suspended(text.to_owned()));
        assert_eq!(changed(None, None), None);
        assert_eq!(changed(Some(&mark(alice)), None), suspended(alice));
        assert_eq!(changed(Some(&mark(alice)), Some(&told("True", alice))), None);
        assert_eq!(changed(Some(&mark(bob)), Some(&told("True", alice))), suspended(bob));
        let resumed = Some(Changed::Resumed(alice.to_owned()));
        assert_eq!(changed(None, Some(&told("True", alice))), resumed);
        let expired = Mark { status: Status::False, reason: reason::EXPIRED, ..mark(alice) };
        assert_eq!(changed(Some(&expired), Some(&told("True", alice))), resumed);
        assert_eq!(changed(Some(&expired), Some(&told("False", alice))), None);
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
        let (by, why) = (format!("f:{REQUESTED_BY}"), format!("f:{REQUESTED_REASON}"));
        let annotations = json!({REQUESTED_BY: "bob", REQUESTED_REASON: "mended"});
        let claimed = json!({"f:metadata": {"f:annotations": {by: {}, why: {}}}});
        let suspend = json!({"f:spec": {"f:suspend": {}}});
        let both = json!([wrote("windlass", &claimed, 1), wrote("windlass", &suspend, 1)]);
        let asked = resumed(&meta(&annotations, &both));
        let text = |text: &str| text.to_owned();
        let wanted = Request {
            manager: text("windlass"),
            user: text("bob"),
            reason: text("mended"),
            ..Request::default()
        };
        assert_eq!(asked, wanted);
        let other = json!([wrote("windlass", &claimed, 1), wrote("flux", &suspend, 2)]);
        let asked = resumed(&meta(&annotations, &other));
        assert_eq!(asked, Request { manager: text("flux"), ..Request::default() });
    }

    #[test]
    fn who_suspends_is_who_the_hold_names() {
        let annotations = json!({hold::BY: "alice", hold::REASON: "incident-1234"});
        let asked = suspended(&meta(&annotations, &json!([])));
        assert_eq!((asked.user.as_str(), asked.reason.as_str()), ("alice", "incident-1234"));
    }
}
