//! The ImagePolicies of an automation: those of its namespace that its selector chooses, and their results.

use std::collections::{BTreeMap, BTreeSet};

use crds::image::{ImagePolicy, ImageRef, ImageUpdateAutomationSpec};
use image::PolicyResult;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, RunOutcome};
use windlass_runtime::label_selectors::compiled;

/// The selector of policies means nothing. Parity(flux).
const INVALID_POLICY_SELECTOR: ConditionReason = ConditionReason::new("InvalidPolicySelector");

/// The results that an automation writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PolicyResults {
    /// By the name of the policy.
    pub(super) latest: BTreeMap<String, ImageRef>,
    /// Policies of the namespace that the selector leaves out, as `namespace:name`.
    pub(super) others: BTreeSet<String>,
}

impl PolicyResults {
    /// The results of those policies that a spec in this namespace selects. A policy without a result gives none; whether it is
    /// ready does not matter. Parity(flux).
    ///
    /// # Errors
    /// The selector means nothing.
    pub(super) fn select<'p>(
        spec: &ImageUpdateAutomationSpec,
        namespace: &str,
        policies: impl Iterator<Item = &'p ImagePolicy>,
    ) -> Result<Self, RunOutcome> {
        let selector = match &spec.policy_selector {
            Some(selector) => compiled(selector).map_err(|why| {
                let text = format!("failed to parse policy selector: {why}");
                RunOutcome::Stalled(INVALID_POLICY_SELECTOR, text)
            })?,
            None => objects::LabelSelector::default(),
        };
        let mut results = Self::default();
        for policy in policies {
            if policy.namespace().as_deref() != Some(namespace) {
                continue;
            }
            let labels = policy.labels();
            if !selector.selects(|key| labels.get(key).map(String::as_str)) {
                results.others.insert(format!("{namespace}:{}", policy.name_any()));
                continue;
            }
            let latest = policy.status.as_ref().and_then(|status| status.latest_ref.clone());
            results.latest.extend(latest.map(|latest| (policy.name_any(), latest)));
        }
        Ok(results)
    }

    /// What the markers of files are read with.
    pub(super) fn setters(&self, namespace: &str) -> Vec<PolicyResult> {
        let result = |(name, latest): (&String, &ImageRef)| PolicyResult {
            namespace: namespace.to_owned(),
            name: name.clone(),
            latest: Some(image::ImageRef {
                name: latest.name.clone(),
                tag: latest.tag.clone(),
                digest: latest.digest.clone().unwrap_or_default(),
            }),
        };
        self.latest.iter().map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(namespace: &str, name: &str, labels: &Value, tag: Option<&str>) -> ImagePolicy {
        let latest = tag.map(|tag| json!({"name": "r.io/app", "tag": tag}));
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "status": {"latestRef": latest},
        }))
        .unwrap()
    }

    fn select(selector: &Value) -> Result<PolicyResults, RunOutcome> {
        let spec: ImageUpdateAutomationSpec =
            serde_json::from_value(json!({"policySelector": selector})).unwrap();
        let all = [
            policy("apps", "web", &json!({"tier": "front", "env": "prod"}), Some("2")),
            policy("apps", "db", &json!({"tier": "back"}), Some("3")),
            policy("apps", "new", &json!({"tier": "front"}), None),
            policy("other", "web", &json!({"tier": "front"}), Some("4")),
        ];
        PolicyResults::select(&spec, "apps", all.iter())
    }

    fn names(selector: &Value) -> Vec<String> {
        select(selector).unwrap().latest.into_keys().collect()
    }

    #[test]
    fn policies_of_the_own_namespace_with_a_result_are_chosen_by_their_labels() {
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "env", "operator": operator, "values": values}]});
        for (selector, expected) in [
            (Value::Null, vec!["db", "web"]),
            (json!({}), vec!["db", "web"]),
            (json!({"matchLabels": {"tier": "front"}}), vec!["web"]),
            (json!({"matchLabels": {"tier": "none"}}), vec![]),
            (expression("In", json!(["prod", "test"])), vec!["web"]),
            (expression("NotIn", json!(["prod"])), vec!["db"]),
            (expression("Exists", Value::Null), vec!["web"]),
            (expression("DoesNotExist", json!([])), vec!["db"]),
        ] {
            assert_eq!(names(&selector), expected, "{selector}");
        }
        let results = select(&json!({"matchLabels": {"tier": "front"}})).unwrap();
        assert_eq!(results.others.into_iter().collect::<Vec<_>>(), ["apps:db"]);
    }

    #[test]
    fn a_selector_that_means_nothing_is_not_retried() {
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, why) in [
            (
                expression("env", "Near", json!(["a"])),
                "\"Near\" is not a valid label selector operator",
            ),
            (
                expression("env", "In", json!([])),
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ),
            (expression("env", "Exists", json!(["a"])), "values set must be empty"),
            (expression("bad key!", "Exists", Value::Null), "Invalid value: \"bad key!\""),
            (expression("a,b", "Exists", Value::Null), "Invalid value: \"a,b\""),
            (expression("", "Exists", Value::Null), "key: Invalid value: \"\""),
            (expression("-a", "Exists", Value::Null), "a label selector has `-a`"),
            (json!({"matchLabels": {"env": "a)"}}), "Invalid value: \"a)\""),
        ] {
            let outcome = select(&selector).unwrap_err();
            assert!(
                matches!(outcome, RunOutcome::Stalled(INVALID_POLICY_SELECTOR, _)),
                "{outcome:?}"
            );
            let expected = format!("failed to parse policy selector: {why}");
            assert!(outcome.text().starts_with(&expected), "{outcome:?}");
        }
    }

    #[test]
    fn a_result_is_what_markers_are_read_with() {
        let results = select(&json!({"matchLabels": {"tier": "back"}})).unwrap();
        let [setter] = <[PolicyResult; 1]>::try_from(results.setters("apps")).unwrap();
        assert_eq!((setter.namespace.as_str(), setter.name.as_str()), ("apps", "db"));
        assert_eq!(setter.latest.unwrap().to_string(), "r.io/app:3");
    }
}
