//! Computes the id of a commit status: by default from object and Provider, else from an expression.
//!
//! Source of the semantics: notification-controller 1.9.3, `provider_commit_status.go`.

use gocel::CelExpression;
use serde_json::Value;

use crate::api_objects::{Alert, Provider};
use crate::event::FluxEvent;

/// Whether a type of Provider posts commit statuses.
pub(crate) fn is_commit_status_type(kind: &str) -> bool {
    ["github", "gitlab", "gitea", "bitbucketserver", "bitbucket", "azuredevops"].contains(&kind)
}

/// The id of the commit status for an event with combined metadata; `None` if the Provider's type sets no commit statuses.
///
/// # Errors
/// Flux's message if the expression cannot be read, does not return a string, or fails.
pub fn commit_status(
    provider: &Provider,
    alert: &Alert,
    event: &FluxEvent,
) -> Result<Option<String>, String> {
    if !is_commit_status_type(&provider.spec.r#type) {
        return Ok(None);
    }
    let expression = &provider.spec.commit_status_expr;
    if expression.is_empty() {
        return Ok(Some(default(&provider.metadata.uid, event)));
    }
    evaluate(expression, provider, alert, event).map(Some).map_err(|error| {
        format!(
            "failed to evaluate the spec.commitStatusExpr CEL expression for the event: {error}"
        )
    })
}

fn default(uid: &str, event: &FluxEvent) -> String {
    let first = uid.split('-').next().unwrap_or_default();
    golang::unicode::lower(&format!("{}/{}/{first}", event.object.kind, event.object.name))
}

fn evaluate(
    expression: &str,
    provider: &Provider,
    alert: &Alert,
    event: &FluxEvent,
) -> Result<String, String> {
    let compiled = CelExpression::compile_text(expression, &["event", "alert", "provider"])
        .map_err(|error| format!("failed to compile expression: {error}"))?;
    let event = serde_json::to_value(event).unwrap_or(Value::Null);
    let variables = [("event", &event), ("alert", &alert.object), ("provider", &provider.object)];
    compiled.evaluate_text(&variables).map_err(|error| error.to_string())
}
