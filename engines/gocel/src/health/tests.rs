//! Objects judged by expressions, as Flux judges them.

use super::*;
use serde_json::json;

const READY: KindHealthCheck<'static> = KindHealthCheck {
    api_version: "acme.io/v1",
    kind: "Widget",
    current: "data.current",
    in_progress: Some("data.inProgress"),
    failed: Some("data.failed"),
};

fn run() -> WorkMeter {
    WorkMeter::new(crate::READING, golang::work_meter::StopSignal::default())
}

fn judge(checks: &[KindHealthCheck<'_>], object: &Json) -> Option<Result<HealthJudgement, String>> {
    let run = &mut run();
    let checks = SpecHealthChecks::new(checks, run).unwrap();
    checks.judge(object.as_object().unwrap(), run).map(|it| it.map_err(|error| error.to_string()))
}

fn widget(current: bool, in_progress: bool, failed: bool) -> Json {
    json!({
        "apiVersion": "acme.io/v2", "kind": "Widget",
        "data": {"current": current, "inProgress": in_progress, "failed": failed},
    })
}

#[test]
fn expressions_are_asked_in_their_order() {
    let cases = [
        (widget(true, true, true), HealthJudgement::InProgress),
        (widget(true, false, true), HealthJudgement::Failed),
        (widget(true, false, false), HealthJudgement::Current),
        (widget(false, false, false), HealthJudgement::InProgress),
    ];
    for (object, want) in cases {
        assert_eq!(judge(&[READY], &object), Some(Ok(want)), "{object}");
    }
}

#[test]
fn a_generation_that_was_not_observed_is_in_progress_whatever_is_said() {
    let mut object = widget(true, false, false);
    object["metadata"] = json!({"generation": 2});
    object["status"] = json!({"observedGeneration": 1});
    assert_eq!(judge(&[READY], &object), Some(Ok(HealthJudgement::InProgress)));
    // A generation that is not a number is left to the expressions.
    object["status"] = json!({"observedGeneration": "1"});
    assert_eq!(judge(&[READY], &object), Some(Ok(HealthJudgement::Current)));
}

#[test]
fn a_field_that_is_missing_is_an_error() {
    let object = json!({"apiVersion": "acme.io/v1", "kind": "Widget"});
    let check = KindHealthCheck { current: "has(status.observedGeneration)", ..READY };
    let check = KindHealthCheck { in_progress: None, failed: Some(""), ..check };
    let want = "failed to evaluate the CEL expression 'has(status.observedGeneration)': no such attribute(s): status.observedGeneration";
    assert_eq!(judge(&[check], &object), Some(Err(want.to_owned())));
}

#[test]
fn a_kind_comes_before_its_group_and_others_have_no_check() {
    let group =
        KindHealthCheck { kind: "", current: "true", in_progress: None, failed: None, ..READY };
    let checks = SpecHealthChecks::new(&[group, READY], &mut run()).unwrap();
    assert!(checks.supports("acme.io", "Gadget") && !checks.supports("", "Widget"));
    assert_eq!(
        judge(&[group, READY], &widget(true, false, true)),
        Some(Ok(HealthJudgement::Failed))
    );
    let gadget = json!({"apiVersion": "acme.io/v1", "kind": "Gadget"});
    assert_eq!(judge(&[group, READY], &gadget), Some(Ok(HealthJudgement::Current)));
    assert_eq!(judge(&[READY], &gadget), None);
}

#[test]
fn checks_that_are_none_are_named() {
    let refusal = |checks: &[KindHealthCheck<'_>]| {
        SpecHealthChecks::new(checks, &mut run()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&[READY, KindHealthCheck { api_version: "acme.io/v2", ..READY }]),
        "duplicate custom health check for GroupKind Widget.acme.io at healthchecks[1]"
    );
    assert_eq!(
        refusal(&[KindHealthCheck { current: "", ..READY }]),
        "failed to create custom status evaluator for healthchecks[0]: expression Current not specified"
    );
    let wrong = refusal(&[KindHealthCheck { failed: Some("data."), ..READY }]);
    let want = "failed to create custom status evaluator for healthchecks[0]: failed to parse the expression Failed: failed to parse the CEL expression 'data.': ERROR: <input>:1:6";
    assert!(wrong.starts_with(want), "{wrong}");
}
