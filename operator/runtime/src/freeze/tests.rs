//! Which Freezes hold an object, until when, and which bypass lets it begin.

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
    let of_freeze =
        ["driftCorrection", "kinds", "namespaceSelector", "periods", "reason", "schedules"];
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
    let denied = judged(&freeze("broken", &spec), now()).unwrap();
    assert_eq!(denied.until, None);
    assert!(!denied.corrects_drift);
    let said = "Freeze broken (sales) cannot be read and denies until it is corrected: periods[0]: `Christmas`";
    assert!(denied.text.starts_with(said), "{}", denied.text);
}

#[test]
fn a_freeze_says_why_and_until_when() {
    let spec = json!({"reason": "Christmas", "namespaceSelector": {},
        "periods": [{"from": "2026-12-24", "to": "2026-12-26"}]});
    let denied = judged(&freeze("christmas", &spec), now()).unwrap();
    assert_eq!(denied.text, "Freeze christmas until 2026-12-27T00:00:00Z: Christmas");
    assert!(denied.corrects_drift, "the default");
    let always =
        judged(&freeze("always", &json!({"reason": "audit", "namespaceSelector": {}})), now());
    assert_eq!(always.unwrap().text, "Freeze always without a known end: audit");
}

#[test]
fn while_freezes_are_not_known_not_even_drift_is_corrected() {
    let freeze = unknown("the watch of freezes is interrupted", now());
    assert_eq!(freeze.hold().reason, reason::FREEZES_UNKNOWN);
    assert!(!freeze.hold().corrects_drift);
    assert_eq!(freeze.recheck_in(now()), UNKNOWN_RECHECK_PERIOD);
    assert!(freeze.overrun().is_none() && freeze.mark().is_none());
}
