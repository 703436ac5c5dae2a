//! Whether a user has silenced an incident. Then nothing but its end is sent.
//!
//! The admission policy proves the user (`deploy/policies/incidents.yaml`). windlass applies objects as ServiceAccounts, so the
//! request of a ServiceAccount does not count.
//! Elsewhere: writing the request (`windlass_answers::actions`), which notifications are due (`incident_notifier`).

use crds::windlass_notification::IncidentStatus;
use jiff::SignedDuration;
use reconcile::Time;

/// The longest time for which a user can silence an incident.
pub const LONGEST_SILENCE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How far the clock of the user may be ahead of the clock of this process. The user's program writes both times.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The prefix of ServiceAccount user names.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// When the silence of an Incident ends. `None` if no silence is in force now.
pub fn silence_end(status: &IncidentStatus, now: Time) -> Option<Time> {
    let silence = status.silence.as_ref()?;
    let [begin, until] = [silence.at.as_ref()?.0, silence.until.as_ref()?.0];
    let end = until.min(begin.checked_add(LONGEST_SILENCE).ok()?);
    let is_of_user = !silence.user.is_empty() && !silence.user.starts_with(SERVICE_ACCOUNT_PREFIX);
    let has_begun = begin <= now.checked_add(MAX_CLOCK_SKEW).ok()?;
    (is_of_user && has_begun && now < end).then_some(end)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::incident::testing::at;

    fn end(silence: Value, now: &str) -> Option<String> {
        let status = serde_json::from_value(json!({"state": "Open", "silence": silence})).unwrap();
        silence_end(&status, at(now)).map(|end| end.to_string())
    }

    /// The expression of an admission policy that compares all of a status but one field.
    fn comparison(policy: &str) -> String {
        let (_, rest) = policy.split_once("- name: isRestSame\n").unwrap();
        let (_, rest) = rest.split_once("expression: >-\n").unwrap();
        let (text, _) = rest.split_once("  validations:").unwrap();
        text.replace("variables.isStatus && ", "")
    }

    #[test]
    fn the_admission_policies_compare_every_field_of_a_status_but_the_request() {
        let silences = include_str!("../../../../deploy/policies/incidents.yaml");
        let rollbacks = include_str!("../../../../deploy/policies/change-sets.yaml");
        for (policy, request) in [(silences, "silence"), (rollbacks, "rollback")] {
            let variables = ["object", "oldObject"];
            let expression = gocel::CelExpression::compile(&comparison(policy), &variables);
            let expression = expression.unwrap();
            let is_same = |new: Value, old: Value| {
                let objects = [("object", &new), ("oldObject", &old)];
                expression.evaluate_bool(&objects).unwrap()
            };
            let status = |of: Value| json!({"status": of});
            let before = status(json!({"laterField": {"a": [1]}}));
            let after = |value: i64| {
                let mut object = status(json!({"laterField": {"a": [value]}}));
                object["status"][request] = json!({"user": "alice"});
                object
            };
            assert!(is_same(after(1), before.clone()), "{request}");
            assert!(is_same(after(1), after(1)), "{request}");
            assert!(!is_same(after(2), before.clone()), "{request}");
            assert!(!is_same(before.clone(), status(json!({}))), "{request}");
            assert!(!is_same(status(json!({})), before.clone()), "{request}");
            assert!(!is_same(json!({}), before), "{request}");
        }
    }

    /// The expressions of all validations of an admission policy.
    fn validations(policy: &str) -> Vec<gocel::CelExpression> {
        let (_, rules) = policy.split_once("  validations:\n").unwrap();
        let rules = rules.split("- expression: ").skip(1).map(|rule| {
            let (text, _) = rule.split_once("\n      message:").unwrap();
            let text = text.trim_start_matches(">-").trim().trim_matches('"');
            gocel::CelExpression::compile(text, &["variables"]).unwrap()
        });
        rules.collect()
    }

    #[test]
    fn the_admission_policies_permit_a_request_that_is_repeated_and_no_removal() {
        let silences = include_str!("../../../../deploy/policies/incidents.yaml");
        let rollbacks = include_str!("../../../../deploy/policies/change-sets.yaml");
        for (policy, request) in [(silences, "silence"), (rollbacks, "rollback")] {
            let rules = validations(policy);
            assert_eq!(rules.len(), 5, "{request}");
            let is_permitted = |before: Value, after: Value, is_rest_same: bool| {
                let is_changed = before != after;
                let is_request = is_changed && after != json!([]);
                let mut variables = json!({"isWindlass": false, "isStatus": true, "user": "alice",
                    "isCollection": false, "isChanged": is_changed, "isRequest": is_request,
                    "maySilence": true, "mayRollBack": true, "isRestSame": is_rest_same});
                variables[format!("{request}Before")] = before;
                variables[format!("{request}After")] = after;
                rules.iter().all(|rule| rule.evaluate_bool(&[("variables", &variables)]).unwrap())
            };
            let none = json!([]);
            let [first, second] = ["1", "2"].map(|at| json!([{"user": "alice", "at": at}]));
            assert!(is_permitted(none.clone(), first.clone(), true), "{request}");
            assert!(is_permitted(first.clone(), first.clone(), true), "{request}: repeated");
            assert!(is_permitted(first.clone(), second, true), "{request}");
            assert!(!is_permitted(first.clone(), first.clone(), false), "{request}");
            assert!(!is_permitted(first, none, true), "{request}: removed");
        }
    }

    #[test]
    fn a_silence_counts_from_its_request_until_its_end_and_for_seven_days_at_most() {
        let silence = |user: &str, until: &str| json!({"user": user, "at": "2026-11-30T09:00:00Z", "until": until, "reason": "known"});
        let short = silence("alice", "2026-11-30T11:00:00Z");
        let expected = Some("2026-11-30T11:00:00Z".to_owned());
        assert_eq!(end(short.clone(), "2026-11-30T09:00:00Z"), expected);
        assert_eq!(end(short.clone(), "2026-11-30T10:59:59Z"), expected);
        assert_eq!(end(short.clone(), "2026-11-30T11:00:00Z"), None);
        assert_eq!(
            end(short.clone(), "2026-11-30T08:55:00Z"),
            expected,
            "the user's clock is fast"
        );
        assert_eq!(end(short, "2026-11-30T08:54:59Z"), None, "it was requested later");
        let long = silence("alice", "2027-11-30T11:00:00Z");
        let expected = Some("2026-12-07T09:00:00Z".to_owned());
        assert_eq!(end(long.clone(), "2026-12-07T08:59:59Z"), expected);
        assert_eq!(end(long, "2026-12-07T09:00:00Z"), None);
    }

    #[test]
    fn a_silence_needs_a_user_and_both_times() {
        let all = json!({"user": "alice", "at": "2026-11-30T09:00:00Z",
            "until": "2026-11-30T11:00:00Z", "reason": "known"});
        let now = "2026-11-30T10:00:00Z";
        assert!(end(all.clone(), now).is_some());
        for (field, value) in [
            ("user", json!("")),
            ("user", json!("system:serviceaccount:apps:default")),
            ("at", Value::Null),
            ("until", Value::Null),
        ] {
            let mut other = all.clone();
            other[field] = value;
            assert_eq!(end(other.clone(), now), None, "{other}");
        }
        assert_eq!(end(Value::Null, now), None);
    }
}
