//! Health of a Job, by two rules: a Job is healthy once it runs, or only once it has completed.

use objects::Object;

use super::ObjectHealth;
use super::status_fields::{MalformedStatusError, conditions, integer, lookup, string};

/// The counts that messages show.
struct JobPodCounts {
    completions: i64,
    parallelism: i64,
    succeeded: i64,
    active: i64,
    failed: i64,
}

impl JobPodCounts {
    fn of(object: &Object) -> Self {
        let parallelism = integer(object, &["spec", "parallelism"], 1);
        let count = |field| integer(object, &["status", field], 0);
        Self {
            completions: integer(object, &["spec", "completions"], parallelism),
            parallelism,
            succeeded: count("succeeded"),
            active: count("active"),
            failed: count("failed"),
        }
    }

    fn in_progress(&self) -> String {
        let Self { succeeded, active, failed, .. } = self;
        format!("Job in progress. success:{succeeded}, active: {active}, failed: {failed}")
    }
}

/// The health of a Job that has ended. The first condition that says so decides.
fn finished(
    object: &Object,
    counts: &JobPodCounts,
) -> Result<Option<ObjectHealth>, MalformedStatusError> {
    let JobPodCounts { completions, succeeded, failed, .. } = counts;
    let found = conditions(object)?;
    let end = found.iter().filter(|c| c.status == "True").find_map(|c| match c.kind {
        "Complete" => Some(ObjectHealth::current(format!(
            "Job Completed. succeeded: {succeeded}/{completions}"
        ))),
        "Failed" => Some(ObjectHealth::failed(
            "JobFailed",
            format!("Job Failed. failed: {failed}/{completions}"),
        )),
        _ => None,
    });
    Ok(end)
}

fn has_started(object: &Object) -> bool {
    !string(object, &["status", "startTime"], "").is_empty()
}

/// The rule of [`super::compute`]: a running Job is Current.
pub(super) fn running_is_enough(object: &Object) -> Result<ObjectHealth, MalformedStatusError> {
    let counts = JobPodCounts::of(object);
    if let Some(end) = finished(object, &counts)? {
        return Ok(end);
    }
    Ok(if has_started(object) {
        ObjectHealth::current(counts.in_progress())
    } else {
        ObjectHealth::in_progress("JobNotStarted", "Job not started")
    })
}

/// The rule of Flux's waits: a Job is Current when it has completed or is suspended.
///
/// Parity(flux): neither deletion nor an unobserved generation is observed.
pub fn job(object: &Object) -> ObjectHealth {
    let suspended = lookup(object, &["spec", "suspend"]).ok().flatten();
    if suspended.and_then(serde_json::Value::as_bool) == Some(true) {
        return ObjectHealth::current("Job is suspended");
    }
    let counts = JobPodCounts::of(object);
    match finished(object, &counts) {
        Err(error) => ObjectHealth::unknown(error),
        Ok(Some(end)) => end,
        Ok(None) if has_started(object) => {
            ObjectHealth::in_progress("JobInProgress", counts.in_progress())
        }
        Ok(None) => {
            let text = format!("Job not started. active: 0/{}", counts.parallelism);
            ObjectHealth::in_progress("JobNotStarted", text)
        }
    }
}
