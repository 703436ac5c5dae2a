//! Expressions in CEL that a spec brings along, and what becomes of it when they are none.
//!
//! Here: `healthCheckExprs` read from the spec, and turned into reports; whether every `readyExpr` is an expression.
//! Elsewhere: the language (engine `gocel`), whose health is waited for (each kind's `wish`), what a `readyExpr` says
//! (`controllers::gate`).

use apply::{Health, Report};
use crds::{CustomHealthCheck, DependencyReference};
use gocel::{HealthCheck, HealthChecks, Judgement};
use objects::Object;
use reconcile::{Rest, reason};

use crate::controllers::gate;

/// The health checks of a spec.
pub(crate) fn health_checks(exprs: &[CustomHealthCheck]) -> Result<HealthChecks, Rest> {
    let checks: Vec<HealthCheck<'_>> = exprs
        .iter()
        .map(|check| HealthCheck {
            api_version: &check.api_version,
            kind: check.kind.as_deref().unwrap_or_default(),
            current: &check.current,
            in_progress: check.in_progress.as_deref(),
            failed: check.failed.as_deref(),
        })
        .collect();
    HealthChecks::new(&checks).map_err(|error| refused(&error.to_string()))
}

/// Makes sure that every `readyExpr` is an expression that gives a boolean.
pub(crate) fn check_readiness(depends_on: &[DependencyReference]) -> Result<(), Rest> {
    for dependency in depends_on {
        if let Some(Err(error)) = gate::ready_expression(dependency) {
            let name = &dependency.name;
            let text = format!("terminal error: failed to evaluate dependency {name}: {error}");
            return Err(refused(&text));
        }
    }
    Ok(())
}

/// Parity(flux): only a change of the spec helps, and the text says so.
fn refused(error: &str) -> Rest {
    let text = format!("Reconciliation failed terminally due to configuration error: {error}");
    Rest::Stalled(reason::INVALID_CEL_EXPRESSION, text)
}

/// What expressions say about an object; none if there are none for its kind.
///
/// Parity(flux): an expression without a value makes the health unknown, and the wait goes on.
pub(crate) fn report(checks: &HealthChecks, live: &Object) -> Option<Report> {
    let status = match checks.judge(live.fields())? {
        Ok(Judgement::Current) => Health::Current,
        Ok(Judgement::InProgress) => Health::InProgress,
        Ok(Judgement::Failed) => Health::Failed,
        Err(error) => Health::Unknown(error.to_string()),
    };
    Some(Report { status, message: String::new(), conditions: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(current: &str) -> CustomHealthCheck {
        let check = json!({"apiVersion": "acme.io/v1", "kind": "Widget", "current": current});
        serde_json::from_value(check).unwrap()
    }

    #[test]
    fn an_expression_that_is_none_stalls_and_is_named() {
        let Err(Rest::Stalled(reason, text)) = health_checks(&[check("status.")]) else {
            panic!("it is taken for one");
        };
        assert_eq!(reason.as_str(), "InvalidCELExpression");
        assert!(text.starts_with("Reconciliation failed terminally due to configuration error: failed to create custom status evaluator for healthchecks[0]: failed to parse the expression Current"), "{text}");
    }

    #[test]
    fn the_expressions_of_a_kind_judge_its_objects_and_no_others() {
        let checks = health_checks(&[check("status.phase == 'Ready'")]).unwrap();
        let judged = |kind: &str, status: serde_json::Value| {
            let object = json!({"apiVersion": "acme.io/v1", "kind": kind, "metadata": {"name": "x"}, "status": status});
            report(&checks, &Object::new(object).unwrap()).map(|it| it.status)
        };
        assert_eq!(judged("Widget", json!({"phase": "Ready"})), Some(Health::Current));
        assert_eq!(judged("Widget", json!({"phase": "New"})), Some(Health::InProgress));
        assert!(matches!(judged("Widget", json!({})), Some(Health::Unknown(_))));
        assert_eq!(judged("Gadget", json!({})), None);
    }
}
