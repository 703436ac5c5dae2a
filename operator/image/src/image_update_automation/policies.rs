//! The ImagePolicies of an automation: those of its namespace that its selector chooses, and their results.
//!
//! Elsewhere: what was verified of them (`crate::verification_notes`).

use std::collections::{BTreeMap, BTreeSet};

use crds::image::{ImagePolicy, ImageRef, ImageUpdateAutomationSpec};
use image::PolicyResult;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, ObjectKey, RunOutcome, WakeTrigger, reason};
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::label_selectors::compiled;
use windlass_runtime::run_context::RunContext;

use crate::image_verification::{KeySecret, key_secrets, platform_secret};
use crate::verification_notes::{KeyFingerprints, VerificationNotes, fingerprint};

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
    /// Policies whose images have to be verified and whose latest version is not, as `namespace:name`, and why: they give no
    /// result.
    pub(super) unverified: BTreeMap<String, String>,
}

impl PolicyResults {
    /// The results of those policies that a spec in this namespace selects. A policy without a result gives none; whether it is
    /// ready does not matter. Parity(flux).
    ///
    /// `of_platform` has the keys with which all images of the namespace have to be signed. A version that has to be verified
    /// and is not is no result: one that was chosen before that was asked for, or that is signed with keys that do not count
    /// any more, is written into no file.
    ///
    /// # Errors
    /// The selector means nothing.
    pub(super) fn select<'p>(
        spec: &ImageUpdateAutomationSpec,
        namespace: &str,
        policies: impl Iterator<Item = &'p ImagePolicy>,
        of_platform: Option<&KeySecret>,
        verification: VerificationFacts<'_>,
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
            match verification.of(policy, of_platform) {
                Ok(PolicyVerification::NotRequired) => {}
                Ok(PolicyVerification::Verified) => {
                    results.verified.insert(setter);
                }
                Err(why) => {
                    results.unverified.insert(setter, why);
                    continue;
                }
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

    /// The results of the policies that a spec selects, as they were last seen, by the keys that the Secrets have now.
    ///
    /// # Errors
    /// The selector means nothing, or it is not known which keys there are.
    pub(super) async fn current(
        context: &RunContext,
        spec: &ImageUpdateAutomationSpec,
        namespace: &str,
    ) -> Result<Self, RunOutcome> {
        let all = context.store::<ImagePolicy>().state();
        let of_platform = platform_secret(context, namespace)?;
        let notes = context.shared::<VerificationNotes>();
        let mut secrets = BTreeMap::new();
        for policy in all.iter().filter(|it| it.namespace().as_deref() == Some(namespace)) {
            let required = key_secrets(policy, of_platform.clone()).unwrap_or_default();
            // The keys of what is not verified do not matter.
            if !required.is_empty() && notes.doubt(policy, &required).is_none() {
                secrets.extend(required.into_iter().map(|secret| (secret.place(), secret)));
            }
        }
        let current = current_keys(context, secrets).await?;
        let verification = VerificationFacts { notes: &notes, current: &current };
        let policies = all.iter().map(|policy| &**policy);
        Self::select(spec, namespace, policies, of_platform.as_ref(), verification)
    }

    /// The nodes of those policies that are not verified.
    pub(super) fn unverified_nodes(&self) -> impl Iterator<Item = ObjectKey> {
        let names = self.unverified.keys().filter_map(|setter| setter.split_once(':'));
        names.map(|(namespace, name)| node_named::<ImagePolicy>(namespace, name))
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

/// What is known of signatures.
#[derive(Clone, Copy)]
pub(super) struct VerificationFacts<'v> {
    /// What was verified.
    notes: &'v VerificationNotes,
    /// The keys of the Secrets with which that was, as far as these exist.
    current: &'v KeyFingerprints,
}

/// Whether the latest version of a policy may be written.
enum PolicyVerification {
    /// It need not be signed.
    NotRequired,
    /// It is signed as it has to be.
    Verified,
}

impl VerificationFacts<'_> {
    /// # Errors
    /// Says why a version that has to be verified is not.
    fn of(
        self,
        policy: &ImagePolicy,
        of_platform: Option<&KeySecret>,
    ) -> Result<PolicyVerification, String> {
        let secrets = key_secrets(policy, of_platform.cloned());
        let secrets = secrets.map_err(|outcome| outcome.text().to_owned())?;
        if secrets.is_empty() {
            return Ok(PolicyVerification::NotRequired);
        }
        match self.notes.doubt_by_keys(policy, &secrets, self.current) {
            Some(why) => Err(why),
            None => Ok(PolicyVerification::Verified),
        }
    }
}

/// The keys that some Secrets have now; none of those that do not exist.
///
/// # Errors
/// The API server did not say.
async fn current_keys(
    context: &RunContext,
    secrets: BTreeMap<String, KeySecret>,
) -> Result<KeyFingerprints, RunOutcome> {
    let mut current = KeyFingerprints::new();
    for (place, KeySecret { namespace, name, .. }) in secrets {
        let read = context.cluster.secret(&namespace, &name).await.map_err(|error| {
            let text = format!("failed to get secret '{place}', which has keys of images: {error}");
            RunOutcome::Failed(reason::DEPENDENCY_NOT_READY, text, WakeTrigger::default())
        })?;
        if let Some((keys, _)) = read {
            current.insert(place, fingerprint(&keys));
        }
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::verification_notes::VerificationNote;

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
        let notes = VerificationNotes::default();
        let verification = VerificationFacts { notes: &notes, current: &KeyFingerprints::new() };
        PolicyResults::select(&spec, "apps", all.iter(), None, verification)
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

    fn secret(namespace: &str, name: &str) -> KeySecret {
        let [namespace, name] = [namespace, name].map(str::to_owned);
        KeySecret { namespace, name, advice: "create it" }
    }

    #[test]
    fn a_version_that_has_to_be_verified_is_a_result_by_the_note_of_its_run_only() {
        let policy = |name: &str, is_asked: bool, reflection: &str| -> ImagePolicy {
            let annotations = match is_asked {
                true => json!({"windlass.dev/verify-images": "keys"}),
                false => json!({}),
            };
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "apps", "uid": name,
                    "annotations": annotations},
                "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {},
                    "digestReflectionPolicy": reflection},
                "status": {
                    "latestRef": {"name": "r.io/app", "tag": "1", "digest": "sha256:1"},
                    "conditions": [{"type": "ImageVerified", "status": "True", "reason": "R",
                        "message": "", "lastTransitionTime": "2026-11-24T10:00:00Z"}],
                },
            }))
            .unwrap()
        };
        let all = [
            policy("forged", true, "IfNotPresent"),
            policy("never", true, "Never"),
            policy("own", true, "IfNotPresent"),
            policy("plain", false, "IfNotPresent"),
        ];
        let notes = VerificationNotes::default();
        let place = "apps/keys".to_owned();
        for policy in &all[1..3] {
            let version = policy.status.as_ref().unwrap().latest_ref.clone().unwrap();
            let keys = KeyFingerprints::from([(place.clone(), "a".to_owned())]);
            notes.keep(policy, &VerificationNote { version, keys });
        }
        let spec: ImageUpdateAutomationSpec = serde_json::from_value(json!({})).unwrap();
        let select = |of_platform: Option<KeySecret>, keys: &str| {
            let current = KeyFingerprints::from([
                (place.clone(), keys.to_owned()),
                ("flux-system/keys".to_owned(), "p".to_owned()),
            ]);
            let verification = VerificationFacts { notes: &notes, current: &current };
            let of_platform = of_platform.as_ref();
            PolicyResults::select(&spec, "apps", all.iter(), of_platform, verification).unwrap()
        };
        let names = |results: &PolicyResults| {
            let latest: Vec<String> = results.latest.keys().cloned().collect();
            let unverified: Vec<String> = results.unverified.keys().cloned().collect();
            [latest.join(" "), unverified.join(" ")]
        };
        let results = select(None, "a");
        assert_eq!(names(&results), ["own plain", "apps:forged apps:never"]);
        assert_eq!(results.verified.iter().cloned().collect::<Vec<_>>(), ["apps:own"]);
        let why = &results.unverified["apps:never"];
        assert!(why.contains("set spec.digestReflectionPolicy"), "{why}");
        // The keys were revoked, and the platform asks for a key of its own.
        assert_eq!(names(&select(None, "b")), ["plain", "apps:forged apps:never apps:own"]);
        let of_platform = select(Some(secret("flux-system", "keys")), "a");
        let every = "apps:forged apps:never apps:own apps:plain";
        assert_eq!(names(&of_platform), ["", every]);
        let why = &of_platform.unverified["apps:own"];
        let text = "it was not verified with the keys of secret 'flux-system/keys'";
        assert!(why.starts_with(text), "{why}");
        let nodes: Vec<String> = results.unverified_nodes().map(|it| it.to_string()).collect();
        assert_eq!(nodes, ["ImagePolicy/apps/forged", "ImagePolicy/apps/never"]);
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
