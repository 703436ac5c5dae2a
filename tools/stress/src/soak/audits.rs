//! Checks that every write to a managed object is in exactly one ReleaseAudit.
//!
//! `e2e::harness` reads the writes from the API server's audit log. `docs/audits.md` says which corrections are not
//! audited again, and what a crash loses.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use crds::windlass_release::{AuditChangeKind, AuditOperation, ReleaseAudit};
use jiff::Timestamp;

/// The tolerance for times, which audits and the API server's log round.
const TIMESTAMP_ROUNDING: Duration = Duration::from_secs(1);

/// A correction of an object within this time after an audited one has no audit of its own.
const SAME_DRIFT: Duration = Duration::from_secs(600);

/// Writes that a killed process made within this time before the kill may have no audit.
const MAX_UNAUDITED_TIME: Duration = Duration::from_secs(15);

/// A write that changed a managed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectWrite {
    pub(super) at: Timestamp,
    /// The kind of change: `created`, `changed` or `removed`.
    pub(super) action: String,
    pub(super) name: String,
}

impl ObjectWrite {
    /// Reads a write to a ConfigMap, such as `created configmaps/a`. It gives none for other kinds.
    pub(super) fn of(at: &str, change: &str) -> anyhow::Result<Option<Self>> {
        let Some((action, name)) = change.split_once(" configmaps/") else { return Ok(None) };
        let at = at.parse().with_context(|| format!("{at} is not a time"))?;
        Ok(Some(Self { at, action: action.to_owned(), name: name.to_owned() }))
    }

    fn violation(&self, what: &str) -> AuditViolation {
        let Self { at, action, name } = self;
        AuditViolation { name: name.clone(), text: format!("{action} {name} at {at} {what}") }
    }
}

/// How many writes are audited, and how many have an excuse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AuditTally {
    /// Writes in exactly one audit of their time.
    pub(super) audited: usize,
    /// Corrections without an audit, because the same object had one within the ten minutes before.
    pub(super) repeated: usize,
    /// Writes of a process shortly before it was killed.
    pub(super) lost: usize,
    /// Writes while the API server failed. windlass may not know of a write whose response was lost.
    pub(super) unanswered: usize,
}

/// Events that excuse a write without an audit.
#[derive(Debug, Default)]
pub(super) struct AuditExcuses {
    /// When windlass was killed.
    pub(super) kills: Vec<Timestamp>,
    /// The times at which the API server began and stopped to fail.
    pub(super) faults: Vec<(Timestamp, Timestamp)>,
}

impl AuditExcuses {
    fn is_lost(&self, write: &ObjectWrite) -> bool {
        self.kills.iter().any(|kill| {
            let since = kill.saturating_sub(MAX_UNAUDITED_TIME).unwrap_or(Timestamp::MIN);
            since <= write.at && write.at <= *kill
        })
    }

    /// A request that was under way when the API server began to fail was written a little earlier.
    fn is_unanswered(&self, write: &ObjectWrite) -> bool {
        self.faults.iter().any(|(from, to)| {
            let from = from.saturating_sub(TIMESTAMP_ROUNDING).unwrap_or(Timestamp::MIN);
            let to = to.saturating_add(TIMESTAMP_ROUNDING).unwrap_or(Timestamp::MAX);
            from <= write.at && write.at <= to
        })
    }
}

/// The part of an audit that is about one object.
struct AuditedObject {
    operation: AuditOperation,
    action: &'static str,
    from: Timestamp,
    to: Timestamp,
}

impl AuditedObject {
    fn covers(&self, write: &ObjectWrite, slack: Duration) -> bool {
        let from = self.from.saturating_sub(slack).unwrap_or(Timestamp::MIN);
        let to = self.to.saturating_add(slack).unwrap_or(Timestamp::MAX);
        from <= write.at && write.at <= to
    }

    fn is_same_drift(&self, write: &ObjectWrite) -> bool {
        let until = self.to.saturating_add(SAME_DRIFT).unwrap_or(Timestamp::MAX);
        self.operation == AuditOperation::CorrectDrift && self.to <= write.at && write.at <= until
    }
}

/// A write that is not in exactly one audit, or an audit that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuditViolation {
    /// The name of the object that was written, or of the subject of the audit.
    pub(super) name: String,
    /// The fault.
    pub(super) text: String,
}

/// Compares writes with audits.
///
/// # Errors
/// The writes that are in no audit, or in several, and audits without times.
pub(super) fn judge(
    writes: &[ObjectWrite],
    audits: &[ReleaseAudit],
    excuses: &AuditExcuses,
) -> Result<AuditTally, Vec<AuditViolation>> {
    let mut audited: BTreeMap<&str, Vec<AuditedObject>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for audit in audits.iter().map(|it| &it.spec) {
        let (Some(from), Some(to)) = (&audit.started, &audit.ended) else {
            let name = audit.subject.name.clone();
            wrong.push(AuditViolation { text: format!("the audit of {name} has no times"), name });
            continue;
        };
        for object in audit.changes.objects.iter().filter(|it| it.kind == "ConfigMap") {
            let action = match object.change {
                AuditChangeKind::Added => "created",
                AuditChangeKind::Changed => "changed",
                AuditChangeKind::Removed => "removed",
            };
            let one = AuditedObject { operation: audit.operation, action, from: from.0, to: to.0 };
            audited.entry(&object.name).or_default().push(one);
        }
    }
    let mut tally = AuditTally::default();
    for write in writes {
        let of_it = audited.get(write.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let covering = of_it.iter().filter(|it| it.covers(write, TIMESTAMP_ROUNDING)).count();
        // Times are rounded. So a write counts as being in two audits only if that is certain.
        let same =
            |it: &&AuditedObject| it.covers(write, Duration::ZERO) && it.action == write.action;
        if of_it.iter().filter(same).count() > 1 {
            wrong.push(write.violation("is in several audits"));
        } else if covering > 0 {
            tally.audited += 1;
        } else if of_it.iter().any(|it| it.is_same_drift(write)) {
            tally.repeated += 1;
        } else if excuses.is_lost(write) {
            tally.lost += 1;
        } else if excuses.is_unanswered(write) {
            tally.unanswered += 1;
        } else {
            wrong.push(write.violation("is in no audit"));
        }
    }
    if wrong.is_empty() { Ok(tally) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn audit(operation: &str, change: &str, from: &str, to: &str) -> ReleaseAudit {
        let objects =
            json!([{"change": change, "kind": "ConfigMap", "name": "a", "namespace": "n"}]);
        let spec = json!({"subject": {"kind": "Kustomization", "name": "k"}, "operation": operation,
            "outcome": "Succeeded", "changes": {"objects": objects},
            "started": format!("2026-01-01T{from}Z"), "ended": format!("2026-01-01T{to}Z")});
        serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": spec})).unwrap()
    }

    fn write(at: &str, change: &str) -> ObjectWrite {
        ObjectWrite::of(&format!("2026-01-01T{at}Z"), change).unwrap().unwrap()
    }

    #[test]
    fn a_write_is_in_one_audit_of_its_object_and_time() {
        let audits = [
            audit("Apply", "Added", "00:00:10", "00:00:20"),
            audit("CorrectDrift", "Changed", "00:01:00", "00:01:01"),
        ];
        let none = AuditExcuses::default();
        let judged = |write: ObjectWrite, excuses: &AuditExcuses| judge(&[write], &audits, excuses);
        let of = |audited, repeated, lost, unanswered| AuditTally {
            audited,
            repeated,
            lost,
            unanswered,
        };
        let created = judged(write("00:00:15", "created configmaps/a"), &none).unwrap();
        assert_eq!(created, of(1, 0, 0, 0));
        let again = judged(write("00:05:00", "changed configmaps/a"), &none).unwrap();
        assert_eq!(again, of(0, 1, 0, 0));
        let late = write("00:20:00", "changed configmaps/a");
        let violation = late.violation("is in no audit");
        assert_eq!(violation.text, "changed a at 2026-01-01T00:20:00Z is in no audit");
        assert_eq!(judged(late.clone(), &none), Err(vec![violation]));
        judged(write("00:00:15", "created configmaps/b"), &none).unwrap_err();
        let at = |at: &str| format!("2026-01-01T{at}Z").parse().unwrap();
        let killed = AuditExcuses { kills: vec![at("00:20:05")], faults: Vec::new() };
        assert_eq!(judged(late.clone(), &killed).unwrap(), of(0, 0, 1, 0));
        let faulty =
            AuditExcuses { faults: vec![(at("00:19:59"), at("00:20:03"))], kills: Vec::new() };
        assert_eq!(judged(late.clone(), &faulty).unwrap(), of(0, 0, 0, 1));
        // The API server stores a write shortly before its response is lost.
        let fault = |from: &str| AuditExcuses {
            faults: vec![(at(from), at("00:20:09"))],
            kills: Vec::new(),
        };
        assert_eq!(judged(late.clone(), &fault("00:20:01")).unwrap(), of(0, 0, 0, 1));
        judged(late, &fault("00:20:02")).unwrap_err();
        let twice = [
            audit("Apply", "Changed", "00:00:10", "00:00:20"),
            audit("CorrectDrift", "Changed", "00:00:14", "00:00:18"),
        ];
        let write = write("00:00:15", "changed configmaps/a");
        let violation = write.violation("is in several audits");
        assert_eq!(judge(&[write], &twice, &none), Err(vec![violation]));
    }

    #[test]
    fn other_resources_are_left_out() {
        assert_eq!(ObjectWrite::of("2026-01-01T00:00:00Z", "created secrets/a").unwrap(), None);
        assert!(ObjectWrite::of("soon", "created configmaps/a").is_err());
    }
}
