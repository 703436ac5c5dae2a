//! Finds the operations that may have caused an Incident, the most likely first.
//!
//! Elsewhere: the Incidents (`incidents.rs`), the operations (`audit.rs`).

use crds::windlass_notification::Incident;
use crds::windlass_release::ReleaseAudit;
use jiff::SignedDuration;
use reconcile::Time;

use super::audit::ended;
use super::audited_revisions::started;
use super::incidents::since;

/// How long before a failure an operation may have ended and still be a suspect.
pub const SUSPECT_PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// How much later than the failure an operation may have begun. Clocks differ, and a failure may be noticed before its
/// operation ends.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(60);

/// How an operation is related to an Incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuspectReason {
    /// The operation changed the object that is the cause.
    ChangedCause,
    /// The operation belongs to the object that fails.
    OfSubject,
    /// The operation belongs to an affected object.
    OfAffected,
}

impl SuspectReason {
    /// The relation as a text for users.
    pub fn words(self) -> &'static str {
        match self {
            Self::ChangedCause => "changed the object that is the cause",
            Self::OfSubject => "is an operation of the object that fails",
            Self::OfAffected => "is an operation of an object that is affected",
        }
    }
}

/// An operation that may have caused an Incident.
#[derive(Debug)]
pub struct IncidentSuspect<'a> {
    /// The operation.
    pub audit: &'a ReleaseAudit,
    /// How the operation is related to the Incident.
    pub reason: SuspectReason,
}

/// Selects the operations that may have caused an Incident. Those closest to the cause come first, and among them the latest.
pub fn suspects<'a>(incident: &Incident, audits: &'a [ReleaseAudit]) -> Vec<IncidentSuspect<'a>> {
    let Some(since) = since(incident) else { return Vec::new() };
    let near = audits.iter().filter(|audit| is_near(audit, since));
    let found = near.filter_map(|audit| {
        let reason = reason(incident, audit)?;
        Some(IncidentSuspect { audit, reason })
    });
    let mut found: Vec<IncidentSuspect<'a>> = found.collect();
    found.sort_by_key(|it| (it.reason, std::cmp::Reverse(ended(it.audit))));
    found
}

fn is_near(audit: &ReleaseAudit, since: Time) -> bool {
    let is_before = started(audit).is_some_and(|at| at.duration_since(since) <= CLOCK_TOLERANCE);
    is_before && ended(audit).is_some_and(|at| since.duration_since(at) <= SUSPECT_PERIOD)
}

fn reason(incident: &Incident, audit: &ReleaseAudit) -> Option<SuspectReason> {
    let namespace = audit.metadata.namespace.as_deref().unwrap_or_default();
    let of = named(&audit.spec.subject.kind, namespace, &audit.spec.subject.name);
    let in_incident = incident.metadata.namespace.as_deref().unwrap_or_default();
    let subject = &incident.spec.subject;
    let failing = named(&subject.kind, in_incident, &subject.name);
    let cause = incident.spec.cause.object.as_str();
    let mut changed = audit.spec.changes.objects.iter();
    if !cause.is_empty() && changed.any(|it| named(&it.kind, &it.namespace, &it.name) == cause) {
        return Some(SuspectReason::ChangedCause);
    }
    if of == failing || of == cause {
        return Some(SuspectReason::OfSubject);
    }
    let affected = incident.status.as_ref().and_then(|status| status.affected.as_ref());
    let is_affected = affected.is_some_and(|it| it.objects.contains(&of));
    is_affected.then_some(SuspectReason::OfAffected)
}

fn named(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "" => format!("{kind}/{name}"),
        namespace => format!("{kind}/{namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audited_revisions::tests::audit;

    fn incident(cause: &str) -> Incident {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "apps"},
            "spec": {"subject": {"kind": "Kustomization", "name": "web"}, "reason": "Health",
                "cause": {"object": cause, "reason": "X", "message": "y"}},
            "status": {"since": "2026-01-01T00:00:30Z", "affected": {"count": 1,
                "objects": ["Kustomization/apps/after"]}},
        }))
        .unwrap()
    }

    #[test]
    fn what_changed_the_cause_comes_first_and_what_came_later_or_is_elsewhere_is_none() {
        let mut changing = audit("base", 5, "Source", "Succeeded");
        changing.spec.changes.objects = serde_json::from_value(json!([
            {"change": "Changed", "kind": "Deployment", "namespace": "apps", "name": "web"}]))
        .unwrap();
        let mut later = audit("web", 1, "Source", "Succeeded");
        let time = |text: &str| serde_json::from_value(json!(text)).unwrap();
        later.spec.started = Some(time("2026-01-01T00:05:00Z"));
        later.spec.ended = Some(time("2026-01-01T00:05:01Z"));
        let mut old = audit("web", 1, "Source", "Succeeded");
        old.spec.started = Some(time("2025-12-01T00:00:00Z"));
        old.spec.ended = Some(time("2025-12-01T00:00:00Z"));
        let all = [
            audit("after", 25, "Source", "Failed"),
            audit("web", 10, "Source", "Failed"),
            audit("web", 20, "Source", "Failed"),
            audit("other", 20, "Source", "Failed"),
            changing,
            later,
            old,
        ];
        let found = suspects(&incident("Deployment/apps/web"), &all);
        let names: Vec<&str> =
            found.iter().map(|it| it.audit.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["base-5", "web-20", "web-10", "after-25"]);
        assert_eq!(found[0].reason, SuspectReason::ChangedCause);
    }
}
