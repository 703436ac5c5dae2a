//! The ImagePolicies of an automation: those of its namespace that its selector chooses, and their results.

use std::collections::{BTreeMap, BTreeSet};

use crds::image::{ImagePolicy, ImageRef, ImageUpdateAutomationSpec};
use image::PolicyResult;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, RunOutcome};
use windlass_runtime::label_selectors::compiled;
use windlass_runtime::run_context::RunContext;

use crate::image_verification::{is_latest_verified, is_required, platform_secret};

/// The selector of policies means nothing. Parity(flux).
const INVALID_POLICY_SELECTOR: ConditionReason = ConditionReason::new("InvalidPolicySelector");

/// The results that an automation writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PolicyResults {
    /// By the name of the policy.
    pub(super) latest: BTreeMap<String, ImageRef>,
    /// The names of those without a result.
    unset: BTreeSet<String>,
    /// Policies of the namespace that the selector leaves out, as `namespace:name`.
    pub(super) others: BTreeSet<String>,
    /// Policies whose images are verified, as `namespace:name`: their tags may not stand alone.
    pub(super) verified: BTreeSet<String>,
    /// Policies whose images have to be verified and whose latest version is not, as `namespace:name`: they give no result.
    pub(super) unverified: BTreeSet<String>,
}

impl PolicyResults {
    /// The results of those policies that a spec in this namespace selects. A policy without a result gives none; whether it is
    /// ready does not matter. Parity(flux).
    ///
    /// `is_verified` says whether all images of the namespace have to be verified. One that has to be and is not is no result:
    /// a version that was chosen before that was asked for, or with other keys, is written into no file.
    ///
    /// # Errors
    /// The selector means nothing.
    pub(super) fn select<'p>(
        spec: &ImageUpdateAutomationSpec,
        namespace: &str,
        policies: impl Iterator<Item = &'p ImagePolicy>,
        is_verified: bool,
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
            let setter = format!("{namespace}:{}", policy.name_any());
            if !selector.selects(|key| labels.get(key).map(String::as_str)) {
                results.others.insert(setter);
                continue;
            }
            if is_required(policy, is_verified) {
                if !is_latest_verified(policy) {
                    results.unverified.insert(setter);
                    continue;
                }
                results.verified.insert(setter);
            }
            match policy.status.as_ref().and_then(|status| status.latest_ref.clone()) {
                Some(latest) => {
                    results.latest.insert(policy.name_any(), latest);
                }
                None => {
                    results.unset.insert(policy.name_any());
                }
            }
        }
        Ok(results)
    }

    /// The results of the policies that a spec selects, as they were last seen.
    ///
    /// # Errors
    /// The selector means nothing.
    pub(super) fn current(
        context: &RunContext,
        spec: &ImageUpdateAutomationSpec,
        namespace: &str,
    ) -> Result<Self, RunOutcome> {
        let all = context.store::<ImagePolicy>().state();
        let is_verified = platform_secret(context, namespace)?.is_some();
        Self::select(spec, namespace, all.iter().map(|policy| &**policy), is_verified)
    }

    /// What the markers of files are read with.
    pub(super) fn setters(&self, namespace: &str) -> Vec<PolicyResult> {
        let result = |name: &String, latest: Option<&ImageRef>| PolicyResult {
            namespace: namespace.to_owned(),
            name: name.clone(),
            latest: latest.map(|latest| image::ImageRef {
                name: latest.name.clone(),
                tag: latest.tag.clone(),
                digest: latest.digest.clone().unwrap_or_default(),
            }),
        };
        let set = self.latest.iter().map(|(name, latest)| result(name, Some(latest)));
        set.chain(self.unset.iter().map(|name| result(name, None))).collect()
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
        PolicyResults::select(&spec, "apps", all.iter(), false)
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
    fn a_version_that_has_to_be_verified_and_is_not_is_no_result() {
        let policy = |name: &str, is_asked: bool, status: &str| -> ImagePolicy {
            let annotations = match is_asked {
                true => json!({"windlass.dev/verify-images": "keys"}),
                false => json!({}),
            };
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "apps", "annotations": annotations},
                "status": {
                    "latestRef": {"name": "r.io/app", "tag": "1", "digest": "sha256:1"},
                    "conditions": [{"type": "ImageVerified", "status": status, "reason": "R",
                        "message": "", "lastTransitionTime": "2026-11-24T10:00:00Z"}],
                },
            }))
            .unwrap()
        };
        let all =
            [policy("a", true, "True"), policy("b", true, "False"), policy("c", false, "False")];
        let spec: ImageUpdateAutomationSpec = serde_json::from_value(json!({})).unwrap();
        let select = |is_verified: bool| {
            let results = PolicyResults::select(&spec, "apps", all.iter(), is_verified).unwrap();
            let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>();
            let latest: Vec<String> = results.latest.keys().cloned().collect();
            [latest, list(&results.verified), list(&results.unverified)].map(|it| it.join(" "))
        };
        assert_eq!(select(false), ["a c", "apps:a", "apps:b"]);
        assert_eq!(select(true), ["a", "apps:a", "apps:b apps:c"]);
    }

    #[test]
    fn a_result_is_what_markers_are_read_with() {
        let results = select(&json!({"matchLabels": {"tier": "back"}})).unwrap();
        let [setter] = <[PolicyResult; 1]>::try_from(results.setters("apps")).unwrap();
        assert_eq!((setter.namespace.as_str(), setter.name.as_str()), ("apps", "db"));
        assert_eq!(setter.latest.unwrap().to_string(), "r.io/app:3");
        // One without a result is known, and sets nothing.
        let results = select(&json!({"matchLabels": {"tier": "front"}})).unwrap();
        let setters = results.setters("apps");
        let setters: Vec<_> =
            setters.iter().map(|it| (it.name.as_str(), it.latest.is_some())).collect();
        assert_eq!(setters, [("web", true), ("new", false)]);
    }
}
