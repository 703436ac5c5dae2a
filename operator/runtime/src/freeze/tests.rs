//! Tests of the Freezes that hold an object, their ends, and the bypasses that permit an operation.

use fake_cluster::spec_field_check;
use serde_json::{Value, json};

use super::*;

fn freeze(name: &str, spec: &Value) -> Arc<Freeze> {
    let object = json!({
        "apiVersion": "release.windlass.dev/v1alpha1", "kind": "Freeze",
        "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec,
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn every_field_of_the_schemas_is_used() {
    let of_freeze = [
        "calendar",
        "driftCorrection",
        "kinds",
        "namespaceSelector",
        "periods",
        "reason",
        "schedules",
    ];
    spec_field_check::knows_every_field("Freeze", of_freeze);
    let of_bypass = ["expires", "freeze", "reason", "revision", "subject", "user"];
    spec_field_check::knows_every_field("FreezeBypass", of_bypass);
}

fn labels(of: &[&str]) -> BTreeMap<String, String> {
    of.iter().map(|key| ((*key).to_owned(), String::new())).collect()
}

fn now() -> Time {
    "2026-12-24T12:00:00Z".parse().unwrap()
}

/// The judgement of a Freeze at the time of the tests. `None` if the Freeze does not deny changes then.
fn denied(freeze: &Freeze) -> Option<DenyingFreeze> {
    judged(freeze, calendar(&freeze.spec, freeze.status.as_ref(), now()).as_ref(), now())
}

fn names(freezes: &[Arc<Freeze>], of: &[&str]) -> Vec<String> {
    let said = FreezeJudgements::default();
    denying_for(freezes, &labels(of), &said, now()).into_iter().map(|it| it.name).collect()
}

#[test]
fn what_a_freeze_says_follows_its_changes_and_the_seconds() {
    let said = FreezeJudgements::default();
    let days = |from: &str| {
        freeze(
            "a",
            &json!({"reason": "audit", "namespaceSelector": {},
                "periods": [{"from": from, "to": "2026-12-26"}]}),
        )
    };
    let [later, sooner] = [days("2026-12-24T12:00:01"), days("2026-12-24")];
    assert_eq!(said.of(&later, now()), None);
    assert!(said.of(&sooner, now()).is_some(), "it was changed within the second");
    assert_eq!(said.of(&later, now()), None);
    let next = now().saturating_add(Duration::from_secs(1)).unwrap();
    assert!(said.of(&later, next).is_some());
    assert_eq!(said.of(&later, now()), None, "the clock was set");
}

#[test]
fn a_freeze_denies_in_the_namespaces_that_it_selects() {
    let selected = json!({"matchExpressions": [{"key": "shop", "operator": "Exists"}]});
    let freezes = [
        freeze("shop", &json!({"reason": "sales", "namespaceSelector": selected})),
        freeze("all", &json!({"reason": "audit", "namespaceSelector": {}})),
        freeze(
            "later",
            &json!({"reason": "later", "namespaceSelector": {},
                "periods": [{"from": "2026-12-25", "to": "2026-12-26"}]}),
        ),
    ];
    assert_eq!(names(&freezes, &["shop"]), ["all", "shop"]);
    assert_eq!(names(&freezes, &[]), ["all"]);
}

#[test]
fn a_freeze_that_cannot_be_read_denies_and_says_so() {
    let spec = json!({"reason": "sales", "namespaceSelector": {},
        "periods": [{"from": "Christmas", "to": "2026-12-26"}], "driftCorrection": "Deny"});
    let denied = denied(&freeze("broken", &spec)).unwrap();
    assert_eq!(denied.until, None);
    assert!(!denied.corrects_drift);
    let said = "Freeze broken (sales) cannot be read and denies until it is corrected: periods[0]: `Christmas`";
    assert!(denied.text.starts_with(said), "{}", denied.text);
}

#[test]
fn a_freeze_says_why_and_until_when() {
    let spec = json!({"reason": "Christmas", "namespaceSelector": {},
        "periods": [{"from": "2026-12-24", "to": "2026-12-26"}]});
    let of_christmas = denied(&freeze("christmas", &spec)).unwrap();
    assert_eq!(of_christmas.text, "Freeze christmas until 2026-12-27T00:00:00Z: Christmas");
    assert!(of_christmas.corrects_drift, "the default");
    let always = denied(&freeze("always", &json!({"reason": "audit", "namespaceSelector": {}})));
    assert_eq!(always.unwrap().text, "Freeze always without a known end: audit");
}

#[test]
fn while_freezes_are_not_known_not_even_drift_is_corrected() {
    let freeze = unknown("the watch of freezes is interrupted", now());
    assert_eq!(freeze.hold().reason, condition_reason::FREEZES_UNKNOWN);
    assert!(!freeze.hold().corrects_drift);
    assert_eq!(freeze.recheck_in(now()), UNKNOWN_RECHECK_PERIOD);
    assert!(freeze.overrun().is_none() && freeze.mark().is_none());
}

#[test]
fn objects_that_are_held_until_the_same_time_are_checked_one_after_the_other() {
    let after = |seconds: u64| now().saturating_add(Duration::from_secs(seconds)).unwrap();
    let all: Vec<Time> = (0..1000).map(|seed| recheck_at(Some(after(60)), seed, now())).collect();
    assert!(all.iter().all(|at| (after(60)..=after(80)).contains(at)), "{all:?}");
    let in_a_second = |from: u64| {
        let is_in = |at: &&Time| (after(from)..after(from + 1)).contains(*at);
        all.iter().filter(is_in).count()
    };
    for from in 60..80 {
        assert!(in_a_second(from) < 120, "{} in second {from}", in_a_second(from));
    }
    for until in [None, Some(after(7200))] {
        let mut all = (0..1000).map(|seed| recheck_at(until, seed, now()));
        assert!(all.all(|at| (after(480)..after(600)).contains(&at)));
    }
}

/// A Freeze with an iCalendar event that begins at Christmas 2026 and repeats by this rule.
fn with_rule(rule: &str) -> Arc<Freeze> {
    let source = json!({"configMapRef": {"name": "a", "namespace": "b", "key": "c"}});
    let text = format!(
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20261225\nRRULE:{rule}\nEND:VEVENT\nEND:VCALENDAR\n"
    );
    let object = json!({"metadata": {"name": "a"},
        "spec": {"reason": "audit", "namespaceSelector": {}, "calendar": source},
        "status": {"calendar": {"source": source, "text": text}}});
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn the_times_of_a_calendar_are_evaluated_anew_each_day() {
    let freeze = with_rule("FREQ=YEARLY");
    let said = FreezeJudgements::default();
    let at = |time: &str| said.of(&freeze, time.parse().unwrap()).is_some();
    assert!(!at("2026-12-24T12:00:00Z") && at("2026-12-25T12:00:00Z"));
    assert!(!at("2036-12-24T12:00:00Z") && at("2036-12-25T12:00:00Z"), "ten years later");
    assert!(!at("2026-12-24T12:00:00Z") && at("2026-12-25T12:00:00Z"), "the clock was set");
}

#[test]
fn a_calendar_that_is_too_large_for_a_wrong_clock_is_read_again_when_the_clock_is_set() {
    let freeze = with_rule("FREQ=DAILY;COUNT=100000");
    let said = FreezeJudgements::default();
    let at = |time: &str| said.of(&freeze, time.parse().unwrap());
    let denied = at("2126-12-24T12:00:00Z").unwrap();
    assert!(denied.text.contains("cannot be read and denies"), "{}", denied.text);
    assert_eq!(at("2026-12-24T12:00:00Z"), None);
}

#[test]
fn conditions_beside_a_calendar_that_counts_wake_nothing() {
    let with_status = |status: Value| {
        let freeze = with_rule("FREQ=YEARLY");
        let mut object = serde_json::to_value(&*freeze).unwrap();
        object["status"] = match status {
            Value::Null => object["status"].clone(),
            status => status,
        };
        serde_json::from_value::<Freeze>(object).unwrap()
    };
    let change = |before: &Freeze, after: &Freeze| {
        let [before, after] = [before, after].map(|it| Some(Arc::new(it.clone())));
        let changed = CachedObjectChange { before, after };
        [has_another_spec(&changed), says_something_else(&changed)]
    };
    let read = with_status(Value::Null);
    let mut failed = read.clone();
    failed.status.as_mut().unwrap().observed_generation = Some(2);
    assert_eq!(change(&read, &failed), [false, false]);
    let none = with_status(json!({}));
    assert_eq!(change(&read, &none), [false, true]);
    assert_eq!(change(&none, &none), [false, true], "its conditions say why it denies");
    let mut daily = read.clone();
    daily.status = with_rule("FREQ=DAILY").status.clone();
    assert_eq!(change(&read, &daily), [false, true]);
    let mut other = read.clone();
    other.spec.reason = "sales".to_owned();
    assert_eq!(change(&read, &other), [true, true]);
    let gone = CachedObjectChange { before: Some(Arc::new(read)), after: None };
    assert!(has_another_spec(&gone) && says_something_else(&gone));
}
