//! The rules in specs about fields of objects that other clients may change (`ignore`).

use apply::drift_ignore_rules::{DriftIgnoreRules, DriftIgnoreTarget};
use crds::IgnoreRule;
use reconcile::{RunOutcome, condition_reason};

/// Parses the rules about fields that other clients may change. `field` is the field of the spec, for messages.
pub fn ignored(field: &str, rules: &[IgnoreRule]) -> Result<DriftIgnoreRules, RunOutcome> {
    let given: Vec<(DriftIgnoreTarget, Vec<String>)> = rules
        .iter()
        .map(|rule| {
            let selector = rule.target.clone().unwrap_or_default();
            let target = DriftIgnoreTarget {
                group: selector.group.unwrap_or_default(),
                version: selector.version.unwrap_or_default(),
                kind: selector.kind.unwrap_or_default(),
                name: selector.name.unwrap_or_default(),
                namespace: selector.namespace.unwrap_or_default(),
                labels: selector.label_selector.unwrap_or_default(),
                annotations: selector.annotation_selector.unwrap_or_default(),
            };
            (target, rule.paths.clone())
        })
        .collect();
    DriftIgnoreRules::new(&given).map_err(|error| {
        RunOutcome::Stalled(condition_reason::RECONCILIATION_FAILED, format!("{field}: {error}"))
    })
}
