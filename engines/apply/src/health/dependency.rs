//! Whether an object is ready, for another object that depends on it.

use objects::{Gvk, Object};
use reconcile::Time;

use super::{HealthStatus, job, read};

/// Whether an object is ready, for another object that depends on it.
///
/// Differs(flux): its proposal takes a Job that runs for a ready one; its waits do not.
///
/// # Errors
/// The text says why the object is not ready.
pub fn dependency_readiness(object: &Object, now: Time) -> Result<(), String> {
    let Gvk { group, kind, .. } = object.gvk();
    let report = match (group.as_str(), kind.as_str()) {
        ("batch", "Job") => job(object),
        _ => read(object, &[], now),
    };
    match (&report.status, report.words()) {
        (HealthStatus::Current, _) => Ok(()),
        (HealthStatus::Unknown(why), _) => Err(why.clone()),
        (status, "") => Err(format!("it is {status}")),
        (_, words) => Err(words.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_dependency_is_ready_by_its_status_and_a_job_when_it_completed() {
        let now = Time::from_second(1_000_000).unwrap();
        let of = |status: Value| {
            let widget = json!({"apiVersion": "acme.io/v1", "kind": "Widget",
                "metadata": {"name": "wheel", "generation": 2}, "status": status});
            dependency_readiness(&Object::new(widget).unwrap(), now)
        };
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "message": "turns"}]});
        assert_eq!(of(json!({})), Ok(()));
        assert_eq!(of(ready("True")), Ok(()));
        assert_eq!(of(ready("False")), Err("turns".to_owned()));
        assert!(of(json!({"observedGeneration": 1})).is_err_and(|it| it.contains("is 2")));
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
            "status": {"startTime": "2026-11-24T11:00:00Z", "active": 1}});
        let job = dependency_readiness(&Object::new(job).unwrap(), now);
        assert!(job.is_err(), "it still runs");
    }
}
