//! Checks of the handlers that windlass itself runs: a waiting time, a Prometheus query, a Job.
//!
//! The only state between two checks is the time of the event, and the note in its status that its Job was begun. A restart
//! therefore changes nothing.

use std::time::Duration;

use reconcile::Time;
use serde_json::Value;

/// The most values of one response that are compared.
const MAX_SAMPLES: usize = 1000;

/// The result of a handler's check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerOutcome {
    /// The check is not decided yet, for this reason.
    Wait(String),
    /// The check passed, for this reason.
    Good(String),
    /// The check failed, for this reason.
    Bad(String),
}

/// The limits within which a metric is good. If both are absent, the metric is never good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricBounds {
    /// The least good value.
    pub min: Option<f64>,
    /// The greatest good value.
    pub max: Option<f64>,
}

impl MetricBounds {
    /// Why a value is not in the allowed range, as text for users. A NaN is never good. `None` if the value is good.
    fn violation(&self, value: f64) -> Option<String> {
        if value.is_nan() {
            return Some("the value is not a number".to_owned());
        }
        if let Some(min) = self.min.filter(|min| value < *min) {
            return Some(format!("{value} is below {min}"));
        }
        self.max.filter(|max| value > *max).map(|max| format!("{value} is above {max}"))
    }
}

/// Whether a pause is over.
pub fn pause(created: Time, duration: Duration, now: Time) -> HandlerOutcome {
    let until = created.saturating_add(duration).unwrap_or(Time::MAX);
    match now >= until {
        true => HandlerOutcome::Good(format!("paused until {until:.0}")),
        false => HandlerOutcome::Wait(format!("paused until {until:.0}")),
    }
}

/// Judges the response of a Prometheus server to an instant query. Every value of the result must be within the bounds. A
/// response without values or an unreadable response decides nothing.
///
/// Source of the format: the HTTP API of Prometheus, `/api/v1/query`.
pub fn measurement(body: &[u8], bounds: MetricBounds) -> HandlerOutcome {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return HandlerOutcome::Wait("the answer to the query is not JSON".to_owned());
    };
    if answer["status"] != "success" {
        let error = answer["error"].as_str().unwrap_or("without a reason");
        return HandlerOutcome::Wait(format!("the query failed: {error}"));
    }
    let values = match values(&answer["data"]) {
        Ok(values) => values,
        Err(why) => return HandlerOutcome::Wait(why.to_owned()),
    };
    if values.is_empty() {
        return HandlerOutcome::Wait("the query has no result".to_owned());
    }
    match values.iter().find_map(|value| bounds.violation(*value)) {
        Some(violation) => HandlerOutcome::Bad(violation),
        None => {
            let shown: Vec<String> = values.iter().take(4).map(ToString::to_string).collect();
            let more = if values.len() > shown.len() { ", …" } else { "" };
            HandlerOutcome::Good(format!("measured {}{more}", shown.join(", ")))
        }
    }
}

fn values(data: &Value) -> Result<Vec<f64>, &'static str> {
    let number = |sample: &Value| {
        let text = sample.get(1).and_then(Value::as_str).ok_or("the result has no value")?;
        text.parse::<f64>().map_err(|_| "the result has a value that is not a number")
    };
    let result = &data["result"];
    match data["resultType"].as_str() {
        Some("scalar") => Ok(vec![number(result)?]),
        Some("vector") => {
            let samples = result.as_array().map(Vec::as_slice).unwrap_or_default();
            if samples.len() > MAX_SAMPLES {
                return Err("the result has more than 1000 values");
            }
            samples.iter().map(|it| number(&it["value"])).collect()
        }
        _ => Err("the result is neither a vector nor a scalar"),
    }
}

/// Turns a measurement into a result that must stay good for `duration`. A good measurement waits until that time has passed.
pub fn promoted(
    found: HandlerOutcome,
    created: Time,
    duration: Duration,
    now: Time,
) -> HandlerOutcome {
    let until = created.saturating_add(duration).unwrap_or(Time::MAX);
    match found {
        HandlerOutcome::Good(text) if now < until => {
            HandlerOutcome::Wait(format!("{text}; until {until:.0}"))
        }
        other => other,
    }
}

/// The next step for the Job of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventJobStep {
    /// Note in the status that the Job is begun, and then create it.
    Begin,
    /// No action is needed, because the Job has this result so far.
    Judge(HandlerOutcome),
}

/// The next step for the Job of an event, which must run only once. `is_begun` says that the status noted the Job before it was
/// created. If such a Job is absent, it may already have run, since a TTL or another client may have deleted it.
pub fn job_task(name: &str, is_begun: bool, job: Option<&Value>) -> EventJobStep {
    match (job, is_begun) {
        (Some(job), _) => EventJobStep::Judge(completion(job)),
        (None, false) => EventJobStep::Begin,
        (None, true) => EventJobStep::Judge(HandlerOutcome::Bad(format!(
            "the outcome of Job {name} is unknown: it was begun and does not exist; a Job that is deleted before its end was \
             observed is not created again"
        ))),
    }
}

/// The result of a Job so far.
fn completion(job: &Value) -> HandlerOutcome {
    let conditions = job["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let holds =
        |kind: &str| conditions.iter().find(|it| it["type"] == kind && it["status"] == "True");
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    if let Some(failed) = holds("Failed") {
        let text = |key: &str| failed[key].as_str().unwrap_or_default().to_owned();
        let reason = text("reason");
        let message = text("message");
        return HandlerOutcome::Bad(format!("Job {name} failed: {reason}: {message}"));
    }
    match holds("Complete") {
        Some(_) => HandlerOutcome::Good(format!("Job {name} completed")),
        None => HandlerOutcome::Wait(format!("Job {name} runs")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vector(values: &[&str]) -> Vec<u8> {
        let result = values.iter().map(|it| json!({"metric": {}, "value": [1.5, it]}));
        let result: Vec<Value> = result.collect();
        json!({"status": "success", "data": {"resultType": "vector", "result": result}})
            .to_string()
            .into_bytes()
    }

    const AT_MOST: MetricBounds = MetricBounds { min: None, max: Some(0.05) };

    #[test]
    fn values_are_good_within_bounds_only() {
        assert_eq!(
            measurement(&vector(&["0.01"]), AT_MOST),
            HandlerOutcome::Good("measured 0.01".to_owned())
        );
        assert_eq!(
            measurement(&vector(&["0.05"]), AT_MOST),
            HandlerOutcome::Good("measured 0.05".to_owned())
        );
        let bad = |values: &[&str], bounds| match measurement(&vector(values), bounds) {
            HandlerOutcome::Bad(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(bad(&["0.01", "0.2"], AT_MOST), "0.2 is above 0.05");
        assert_eq!(bad(&["+Inf"], AT_MOST), "inf is above 0.05");
        assert_eq!(bad(&["NaN"], AT_MOST), "the value is not a number");
        assert_eq!(bad(&["0.5"], MetricBounds { min: Some(0.99), max: None }), "0.5 is below 0.99");
        let scalar = br#"{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}"#;
        assert_eq!(measurement(scalar, AT_MOST), HandlerOutcome::Bad("7 is above 0.05".to_owned()));
    }

    #[test]
    fn what_is_no_measurement_decides_nothing() {
        for (body, why) in [
            (&b"<html>"[..], "not JSON"),
            (br#"{"status":"error","error":"parse error"}"#, "parse error"),
            (br#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, "no result"),
            (br#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#, "neither"),
            (br#"{"status":"success","data":{"resultType":"vector","result":[{}]}}"#, "no value"),
            (br#"{"status":"success"}"#, "neither"),
        ] {
            let HandlerOutcome::Wait(text) = measurement(body, AT_MOST) else { panic!("{why}") };
            assert!(text.contains(why), "{text}");
        }
        let many = vec!["0"; MAX_SAMPLES + 1];
        assert!(matches!(measurement(&vector(&many), AT_MOST), HandlerOutcome::Wait(_)));
    }

    #[test]
    fn good_values_count_once_their_time_is_over_and_bad_ones_at_once() {
        let created = Time::UNIX_EPOCH;
        let minute = Duration::from_secs(60);
        let at = |second| Time::from_second(second).unwrap();
        let good = || HandlerOutcome::Good("measured 1".to_owned());
        let early = promoted(good(), created, minute, at(59));
        assert_eq!(
            early,
            HandlerOutcome::Wait("measured 1; until 1970-01-01T00:01:00Z".to_owned())
        );
        assert_eq!(promoted(good(), created, minute, at(60)), good());
        let bad = HandlerOutcome::Bad("2 is above 1".to_owned());
        assert_eq!(promoted(bad.clone(), created, minute, at(0)), bad);
        assert!(matches!(pause(created, minute, at(59)), HandlerOutcome::Wait(_)));
        assert!(matches!(pause(created, minute, at(60)), HandlerOutcome::Good(_)));
    }

    #[test]
    fn a_job_that_was_begun_is_not_begun_again() {
        assert_eq!(job_task("j", false, None), EventJobStep::Begin);
        let running = json!({"metadata": {"name": "j"}});
        for is_begun in [false, true] {
            let judged = EventJobStep::Judge(HandlerOutcome::Wait("Job j runs".to_owned()));
            assert_eq!(job_task("j", is_begun, Some(&running)), judged);
        }
        let EventJobStep::Judge(HandlerOutcome::Bad(why)) = job_task("j", true, None) else {
            panic!()
        };
        assert!(why.starts_with("the outcome of Job j is unknown: "), "{why}");
    }

    #[test]
    fn a_job_counts_by_its_conditions() {
        let job = |conditions: Value| {
            completion(&json!({"metadata": {"name": "j"}, "status": {"conditions": conditions}}))
        };
        assert_eq!(job(json!([])), HandlerOutcome::Wait("Job j runs".to_owned()));
        let started = json!([{"type": "Complete", "status": "False"}]);
        assert_eq!(job(started), HandlerOutcome::Wait("Job j runs".to_owned()));
        let complete = json!([{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]);
        assert_eq!(job(complete), HandlerOutcome::Good("Job j completed".to_owned()));
        let failed = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}]);
        let why = "Job j failed: BackoffLimitExceeded: too often";
        assert_eq!(job(failed), HandlerOutcome::Bad(why.to_owned()));
    }
}
