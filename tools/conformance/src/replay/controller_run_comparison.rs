//! Decides whether two runs of a controller count as equal. `image_controllers.rs` lists what is not compared.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::replay::case::{CaseFailure, CaseJudgement, same, same_value};

/// The last words of Flux in messages. The words after them come from Go's libraries, and are not compared.
const LAST_WORDS_OF_FLUX: [&str; 13] = [
    "failed to parse policy selector: ",
    "scan failed: ",
    "fetch sources failed: ",
    "failed to apply policies: ",
    "failed to checkout source: ",
    "failed to update source: ",
    "failed to push to remote: ",
    "failed to configure authentication options: ",
    "failed fetching descriptor for ",
    "could not parse reference: ",
    "could not read signing key from secret 'key': ",
    "could not parse SSH signing key from secret 'key': ",
    "could not parse SSH signing key: ",
];

/// Causes for which windlass has its own words. The words before the cause are equal.
const OTHER_CAUSES: [&str; 2] = ["failed to get auth secret", "could not decrypt private key"];

/// The request by which Flux learns how to authenticate at a registry.
const PING_REQUEST: &str = "GET /v2/";

/// The placeholder for the time of the run in a case.
const TIME_OF_RUN: &str = "<now>";

/// The places in statuses that have the time of a run.
const TIMES_OF_RUNS: [&str; 3] =
    ["/lastScanResult/scanTime", "/lastAutomationRunTime", "/lastPushTime"];

/// The reason of windlass's own events about things that Flux only logs. It is also the type of a condition with the
/// same message.
const OWN_EVENT: &str = "MarkersIgnored";

/// The tolerance for a delay that counts from an earlier time. It comes on top of the replay's duration, because
/// times in statuses have whole seconds.
const MAX_DELAY_DIFFERENCE_SECONDS: f64 = 1.0;

/// The times of a replayed run. Times and delays are judged by them, so that a slow machine changes no verdict.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplayTime {
    /// When the case began. No time of its runs is earlier.
    pub(super) case_begun: Timestamp,
    /// When the run began. It is also the time from which the ages in its objects count.
    pub(super) run_begun: Timestamp,
    pub(super) run_ended: Timestamp,
}

impl ReplayTime {
    /// The times of a run that ends now.
    pub(super) fn until_now(case_begun: Timestamp, run_begun: Timestamp) -> Self {
        Self { case_begun, run_begun, run_ended: Timestamp::now() }
    }

    /// Whether a time in a status belongs to a run of this case. Such a time has no fraction of a second.
    fn is_of_case(&self, time: &Value) -> bool {
        let time = time.as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let case = self.case_begun.as_second()..=self.run_ended.as_second();
        time.is_some_and(|time| case.contains(&time.as_second()))
    }
}

/// The result of a run.
pub(super) struct ControllerAnswer {
    pub(super) time: ReplayTime,
    /// The object after the run. It is null if the object is deleted.
    pub(super) object: Value,
    pub(super) events: Vec<Value>,
    /// When the object has to run again.
    pub(super) again: Option<Duration>,
    /// The requests that the registry got.
    pub(super) requests: Vec<String>,
}

impl ControllerAnswer {
    /// The result in the form of a recording.
    pub(super) fn as_recorded(&self) -> Value {
        let mut status = self.object["status"].clone();
        for place in TIMES_OF_RUNS {
            if let Some(time) = status.pointer_mut(place).filter(|it| self.time.is_of_case(it)) {
                *time = json!(TIME_OF_RUN);
            }
        }
        let is_ready = conditions(&status)
            .into_iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let mut recorded = json!({
            "object": {"finalizers": self.object["metadata"]["finalizers"], "status": status},
            "events": self.events,
            "requeueAfterSeconds": self.again.unwrap_or_default().as_secs_f64(),
        });
        if !self.requests.is_empty() {
            recorded["requests"] = json!(with_first_answers(&self.requests));
        }
        if !is_ready && self.again.is_some() {
            recorded["error"] = json!("it is retried");
        }
        recorded
    }
}

/// Compares a run with the recorded one. `before` is the object before the run.
pub(super) fn same_answer(wanted: &Value, before: &Value, got: &ControllerAnswer) -> CaseJudgement {
    let known = ["object", "events", "requests", "requeueAfterSeconds", "requeue", "error"];
    let mut fields = wanted.as_object().into_iter().flatten();
    if let Some((field, _)) = fields.find(|(field, _)| !known.contains(&field.as_str())) {
        return Err(CaseFailure::NotRun(format!("an answer with `{field}`")));
    }
    if wanted["object"]["gone"] == true {
        same_value(&Value::Null, &got.object)?;
        return same_events(wanted, before, &got.events);
    }
    let finalizers = got.object["metadata"]["finalizers"].clone();
    same_part("finalizers", &wanted["object"]["finalizers"], &finalizers)?;
    if wanted["requeue"] == true {
        return Ok(());
    }
    same_status(&wanted["object"]["status"], &got.object["status"], got.time)?;
    same_events(wanted, before, &got.events)?;
    let wanted_requests: Vec<String> = strings(&wanted["requests"]);
    let asked = with_first_answers(&got.requests);
    same_part("requests", &json!(without_ping(&wanted_requests)), &json!(without_ping(&asked)))?;
    same_delay(wanted, got.again, got.time)
}

pub(super) fn same_part(part: &str, wanted: &Value, got: &Value) -> CaseJudgement {
    let is_empty = |value: &Value| {
        value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty)
    };
    if is_empty(wanted) && is_empty(got) {
        return Ok(());
    }
    same(&format!("{part}: {wanted}"), &format!("{part}: {got}"))
}

fn same_status(wanted: &Value, got: &Value, time: ReplayTime) -> CaseJudgement {
    let members = |status: &Value| {
        let mut members = status.as_object().cloned().unwrap_or_default();
        members.remove("conditions");
        members
    };
    let wanted_members = Value::Object(members(wanted));
    let mut got_members = Value::Object(members(got));
    for place in TIMES_OF_RUNS {
        if wanted_members.pointer(place) == Some(&json!(TIME_OF_RUN))
            && let Some(found) = got_members.pointer_mut(place).filter(|it| time.is_of_case(it))
        {
            *found = json!(TIME_OF_RUN);
        }
    }
    same_part("status", &wanted_members, &got_members)?;
    same_conditions(&conditions(wanted), &conditions(got))
}

/// The conditions by type, without the one that only windlass has.
fn conditions(status: &Value) -> Vec<&Value> {
    let all = status["conditions"].as_array().into_iter().flatten();
    let mut all: Vec<&Value> = all.filter(|condition| condition["type"] != OWN_EVENT).collect();
    all.sort_by_key(|condition| condition["type"].to_string());
    all
}

fn same_conditions(wanted: &[&Value], got: &[&Value]) -> CaseJudgement {
    let fields = |condition: &Value| {
        ["type", "status", "reason", "observedGeneration"].map(|field| condition[field].clone())
    };
    let is_same = |(wanted, got): (&&Value, &&Value)| {
        fields(wanted) == fields(got)
            && (wanted["type"] == "Reconciling" || is_same_message(wanted, got))
    };
    if wanted.len() == got.len() && wanted.iter().zip(got).all(is_same) {
        return Ok(());
    }
    same_part("conditions", &json!(wanted), &json!(got))
}

/// Whether the messages of two conditions or events are equal in the part that Flux wrote.
fn is_same_message(wanted: &Value, got: &Value) -> bool {
    let text = |value: &Value| value["message"].as_str().unwrap_or_default().to_owned();
    let wanted = text(wanted);
    let got = text(got);
    let ends =
        LAST_WORDS_OF_FLUX.iter().filter_map(|words| Some(wanted.find(words)? + words.len()));
    let causes = OTHER_CAUSES.iter().filter_map(|words| wanted.find(words));
    // A message that begins with the cause has no other words to compare.
    let ends = ends.chain(causes.filter(|start| *start > 0));
    let of_flux = ends.max().and_then(|end| wanted.get(..end));
    wanted == got || of_flux.is_some_and(|start| got.len() > start.len() && got.starts_with(start))
}

fn same_events(wanted: &Value, before: &Value, got: &[Value]) -> CaseJudgement {
    let had = before["status"]["conditions"].as_array().into_iter().flatten();
    let ready = had.into_iter().find(|condition| condition["type"] == "Ready");
    let is_said = |event: &&Value| {
        let is_known =
            |ready: &Value| ready["reason"] == event["reason"] && is_same_message(ready, event);
        event["type"] != "Trace" && event["reason"] != OWN_EVENT && !ready.is_some_and(is_known)
    };
    let wanted: Vec<&Value> =
        wanted["events"].as_array().into_iter().flatten().filter(is_said).collect();
    let got: Vec<&Value> = got.iter().filter(is_said).collect();
    let is_same = |(wanted, got): (&&Value, &&Value)| {
        wanted["type"] == got["type"]
            && wanted["reason"] == got["reason"]
            && is_same_message(wanted, got)
    };
    if wanted.len() == got.len() && wanted.iter().zip(&got).all(is_same) {
        return Ok(());
    }
    same_part("events", &json!(wanted), &json!(got))
}

fn strings(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn without_ping(requests: &[String]) -> Vec<&String> {
    let is_ping = |request: &str| {
        request
            .strip_prefix(PING_REQUEST)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    requests.iter().filter(|request| !is_ping(request)).collect()
}

/// The requests without those that were repeated with credentials, and without the GET that asks for the error message of
/// a HEAD (Differs(flux): image-reflector-controller sends the HEAD alone, and its message has the status only).
fn with_first_answers(requests: &[String]) -> Vec<String> {
    let asks_for_message = |at: usize, request: &str| {
        let before = at.checked_sub(1).and_then(|at| requests.get(at));
        let head = before.and_then(|before| before.strip_prefix("HEAD "));
        head.is_some() && head == request.strip_prefix("GET ")
    };
    let is_repeated = |at: usize, request: &str| {
        let next = requests.get(at + 1).and_then(|next| next.strip_prefix(request));
        next.is_some_and(|rest| rest.starts_with(" Authorization: "))
    };
    let all = requests.iter().enumerate();
    let counts =
        |at: usize, request: &str| !is_repeated(at, request) && !asks_for_message(at, request);
    all.filter(|(at, request)| counts(*at, request)).map(|(_, it)| it.clone()).collect()
}

/// Compares the delays until the next run. After a failure, any delay is right. A delay that counts from an earlier
/// time, such as the last scan, gets shorter during the run, unless a request to the registry started it anew.
fn same_delay(wanted: &Value, got: Option<Duration>, time: ReplayTime) -> CaseJudgement {
    let shown = format!("the next run after {got:?}");
    if wanted["error"].is_string() {
        return if got.is_some() { Ok(()) } else { same("a retry", &shown) };
    }
    let seconds = wanted["requeueAfterSeconds"].as_f64().unwrap_or_default();
    let is_due_from_before = wanted["requests"].is_null();
    let took = time.run_ended.duration_since(time.run_begun).as_secs_f64();
    let passed = if is_due_from_before { took } else { 0.0 };
    let tolerance = if is_due_from_before { MAX_DELAY_DIFFERENCE_SECONDS } else { 0.01 };
    let due = seconds - passed - tolerance..=seconds + tolerance;
    let is_same = match got {
        Some(delay) => seconds > 0.0 && due.contains(&delay.as_secs_f64()),
        None => seconds == 0.0,
    };
    if is_same { Ok(()) } else { same(&format!("the next run after {seconds} s"), &shown) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of a run that took so many seconds. Its case began ten seconds before it.
    fn time(seconds: i64) -> ReplayTime {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        ReplayTime { case_begun: at(990), run_begun: at(1000), run_ended: at(1000 + seconds) }
    }

    fn answer(message: &str) -> ControllerAnswer {
        ControllerAnswer {
            time: time(0),
            object: json!({"metadata": {"finalizers": ["f"]}, "status": {"conditions": [
                {"type": "Ready", "status": "False", "reason": "R", "observedGeneration": 2,
                    "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
            events: vec![json!({"type": "Warning", "reason": "R", "message": message})],
            again: Some(Duration::from_secs(1)),
            requests: vec![
                "GET /v2/a/tags/list?n=1000".to_owned(),
                "GET /v2/a/tags/list?n=1000 Authorization: Basic eA==".to_owned(),
            ],
        }
    }

    fn recorded() -> Value {
        let text = "scan failed: GET http://r/v2/a/tags/list?n=1000: UNAUTHORIZED";
        json!({"object": {"finalizers": ["f"], "status": {"conditions": [
                {"type": "Ready", "status": "False", "reason": "R", "observedGeneration": 2,
                    "message": text}]}},
            "events": [{"type": "Warning", "reason": "R", "message": text}],
            "requests": ["GET /v2/", "GET /v2/a/tags/list?n=1000 Authorization: Basic eA=="],
            "error": text, "requeueAfterSeconds": 0})
    }

    #[test]
    fn a_failure_is_compared_up_to_the_last_word_of_flux() {
        let before = json!({});
        assert_eq!(same_answer(&recorded(), &before, &answer("scan failed: no login")), Ok(()));
        assert!(same_answer(&recorded(), &before, &answer("scan failed: ")).is_err());
        assert!(same_answer(&recorded(), &before, &answer("scanning failed: x")).is_err());
        let once = ControllerAnswer { again: None, ..answer("scan failed: no login") };
        assert!(same_answer(&recorded(), &before, &once).is_err());
        let unasked = ControllerAnswer { requests: Vec::new(), ..answer("scan failed: no login") };
        assert!(same_answer(&recorded(), &before, &unasked).is_err());
    }

    #[test]
    fn a_delay_that_counts_from_before_is_judged_by_the_time_that_the_replay_took() {
        let is_same = |wanted: &Value, delay: f64, took: i64| {
            same_delay(wanted, Some(Duration::from_secs_f64(delay)), time(took)).is_ok()
        };
        let waiting = json!({"requeueAfterSeconds": 3510});
        assert!(is_same(&waiting, 3510.0, 0) && is_same(&waiting, 3503.8, 7));
        assert!(!is_same(&waiting, 3503.8, 0) && !is_same(&waiting, 3503.8, 5));
        assert!(!is_same(&waiting, 3600.0, 60), "it does not count from the run");
        assert!(same_delay(&waiting, None, time(0)).is_err());
        let asked = json!({"requeueAfterSeconds": 3600, "requests": ["GET /v2/"]});
        assert!(is_same(&asked, 3600.0, 60));
        assert!(!is_same(&asked, 3599.0, 60));
    }

    #[test]
    fn a_time_is_that_of_a_run_if_it_is_within_the_case() {
        let is_of_case = |time_of_run: &str| time(20).is_of_case(&json!(time_of_run));
        assert!(is_of_case("1970-01-01T00:16:30Z"), "the beginning");
        assert!(is_of_case("1970-01-01T00:17:00Z"), "the end");
        assert!(!is_of_case("1970-01-01T00:16:29Z") && !is_of_case("1970-01-01T00:17:01Z"));
        assert!(!is_of_case("now"));
    }

    #[test]
    fn only_the_condition_of_windlass_is_not_compared() {
        let with = |kind: &str| {
            let mut got = answer("scan failed: no login");
            let all = got.object["status"]["conditions"].as_array_mut();
            all.unwrap()
                .push(json!({"type": kind, "status": "True", "reason": kind, "message": "m"}));
            same_answer(&recorded(), &json!({}), &got)
        };
        assert_eq!(with("MarkersIgnored"), Ok(()));
        assert!(with("Other").is_err());
    }

    #[test]
    fn what_lasts_has_no_event() {
        let quiet = ControllerAnswer { events: Vec::new(), ..answer("scan failed: no login") };
        assert!(same_answer(&recorded(), &json!({}), &quiet).is_err());
        let before = json!({"status": {"conditions": [
            {"type": "Ready", "reason": "R", "message": "scan failed: before"}]}});
        assert_eq!(same_answer(&recorded(), &before, &quiet), Ok(()));
    }
}
