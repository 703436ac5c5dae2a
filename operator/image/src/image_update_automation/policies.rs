//! The ImagePolicies of an automation and their results. They are the policies of its namespace that its selector chooses.
//!
//! Elsewhere: which of their versions were verified (`crate::verified_image_versions`), the keys that count now
//! (`policy_verification_keys`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::image::{ImagePolicy, ImageRef, ImageUpdateAutomationSpec};
use image::PolicyResult;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, ObjectKey, RunOutcome};
use windlass_cluster::label_selectors::compiled;
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::run_context::RunContext;
use windlass_serve::settings::OperatorSettings;

use super::policy_verification_keys::PolicyVerificationKeys;
use crate::image_verification::{
    ImageVerificationKeySecretReference, key_secrets, platform_secret,
};
use crate::verified_image_versions::VerifiedImageVersions;

/// The selector of policies means nothing. Parity(flux).
const INVALID_POLICY_SELECTOR: ConditionReason = ConditionReason::new("InvalidPolicySelector");

/// The results that an automation writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PolicyResults {
    /// The latest images, by the name of the policy.
    pub(super) latest: BTreeMap<String, ImageRef>,
    /// The names of those without a result.
    unset: BTreeSet<String>,
    /// Policies of the namespace that the selector leaves out, as `namespace:name`.
    pub(super) others: BTreeSet<String>,
    /// Policies whose images are verified, as `namespace:name`. Their tags may not be written without a digest.
    pub(super) verified: BTreeSet<String>,
    /// Policies whose images have to be verified but whose latest version is not verified, as `namespace:name`, and why. They
    /// give no result.
    pub(super) unverified: BTreeMap<String, String>,
}

impl PolicyResults {
    /// Adds the latest version of a policy, which may be written.
    fn add(&mut self, policy: &ImagePolicy) {
        match policy.status.as_ref().and_then(|status| status.latest_ref.clone()) {
            Some(latest) => {
                self.latest.insert(policy.name_any(), latest);
            }
            None => {
                self.unset.insert(policy.name_any());
            }
        }
    }

    /// The policy results that replace values at the `$imagepolicy` markers of files. A policy without a latest image has
    /// `latest: None`.
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

/// The policies of an automation, as far as this process knows them without reading Secrets.
pub(super) struct PolicySelection {
    /// All but those that are verified.
    results: PolicyResults,
    verified: Vec<VerifiedPolicy>,
    notes: Arc<VerifiedImageVersions>,
}

/// A policy whose latest version is verified with keys that some Secrets had.
struct VerifiedPolicy {
    policy: Arc<ImagePolicy>,
    /// The policy, as `namespace:name`.
    setter: String,
    secrets: Vec<ImageVerificationKeySecretReference>,
}

impl PolicySelection {
    /// The policies that a spec selects in a namespace, as they were last seen.
    ///
    /// # Errors
    /// The selector is invalid, or it is not known whether the administrator requires signatures.
    pub(super) fn current(
        context: &RunContext,
        spec: &ImageUpdateAutomationSpec,
        namespace: &str,
    ) -> Result<Self, RunOutcome> {
        let all = context.store::<ImagePolicy>().state();
        let of_platform = platform_secret(context, namespace)?;
        let settings = &context.settings;
        let notes = context.shared::<VerifiedImageVersions>();
        let facts = VerificationFacts { settings, of_platform: of_platform.as_ref(), notes };
        Self::select(spec, namespace, all.iter(), facts)
    }

    /// The policies that a spec in this namespace selects. A policy without a result gives none; whether it is ready does not
    /// matter. Parity(flux).
    ///
    /// A version that has to be verified and is not is no result: one that was chosen before that was asked for, or that is
    /// signed with keys that do not count any more, is written into no file.
    ///
    /// # Errors
    /// The selector means nothing.
    fn select<'p>(
        spec: &ImageUpdateAutomationSpec,
        namespace: &str,
        policies: impl Iterator<Item = &'p Arc<ImagePolicy>>,
        facts: VerificationFacts<'_>,
    ) -> Result<Self, RunOutcome> {
        let selector = match &spec.policy_selector {
            Some(selector) => compiled(selector).map_err(|why| {
                let text = format!("failed to parse policy selector: {why}");
                RunOutcome::Stalled(INVALID_POLICY_SELECTOR, text)
            })?,
            None => objects::LabelSelector::default(),
        };
        let mut results = PolicyResults::default();
        let mut verified = Vec::new();
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
            match facts.secrets(policy) {
                Ok(secrets) if secrets.is_empty() => results.add(policy),
                Ok(secrets) => {
                    verified.push(VerifiedPolicy { policy: policy.clone(), setter, secrets });
                }
                Err(why) => {
                    results.unverified.insert(setter, why);
                }
            }
        }
        Ok(Self { results, verified, notes: facts.notes })
    }

    /// The nodes of those policies that are not verified.
    pub(super) fn unverified_nodes(&self) -> impl Iterator<Item = ObjectKey> {
        let names = self.results.unverified.keys().filter_map(|setter| setter.split_once(':'));
        names.map(|(namespace, name)| node_named::<ImagePolicy>(namespace, name))
    }

    /// The Secrets with the keys of the others, by `namespace/name`.
    pub(super) fn secrets(&self) -> BTreeMap<String, ImageVerificationKeySecretReference> {
        let all = self.verified.iter().flat_map(|it| &it.secrets);
        all.map(|secret| (secret.place(), secret.clone())).collect()
    }

    /// The results of the policies, by the present keys in the Secrets and by the verified versions. `None` if a needed Secret
    /// was not read yet.
    ///
    /// # Errors
    /// The present keys are not known.
    pub(super) fn results(
        self,
        keys: &PolicyVerificationKeys,
    ) -> Result<Option<PolicyResults>, RunOutcome> {
        let Self { mut results, verified, notes } = self;
        for VerifiedPolicy { policy, setter, secrets } in verified {
            let Some(current) = keys.of(&secrets)? else { return Ok(None) };
            match notes.doubt_by_keys(&policy, &secrets, &current) {
                Some(why) => {
                    results.unverified.insert(setter, why);
                }
                None => {
                    results.verified.insert(setter);
                    results.add(&policy);
                }
            }
        }
        Ok(Some(results))
    }
}

/// The known facts about signatures.
struct VerificationFacts<'v> {
    /// The settings that say which policies this process verifies.
    settings: &'v OperatorSettings,
    /// The Secret with the keys with which all images of the namespace have to be signed.
    of_platform: Option<&'v ImageVerificationKeySecretReference>,
    /// The verified versions.
    notes: Arc<VerifiedImageVersions>,
}

impl VerificationFacts<'_> {
    /// The Secrets with whose keys the latest version of a policy was verified. Empty if the version need not be signed.
    ///
    /// # Errors
    /// The reason why a required verification is missing.
    fn secrets(
        &self,
        policy: &ImagePolicy,
    ) -> Result<Vec<ImageVerificationKeySecretReference>, String> {
        let secrets = key_secrets(policy, self.of_platform.cloned());
        let secrets = secrets.map_err(|outcome| outcome.text().to_owned())?;
        if secrets.is_empty() {
            return Ok(secrets);
        }
        // Versions that another process verified are not known here.
        if !self.settings.selects(policy.labels()) {
            let text = "it belongs to another shard: give policy and automation the same label";
            return Err(text.to_owned());
        }
        self.notes.doubt(policy, &secrets).map_or(Ok(secrets), Err)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::verified_image_versions::{KeyFingerprints, VerifiedImageVersion};

    fn settings(flags: &[&str]) -> OperatorSettings {
        OperatorSettings::from_flags(flags).unwrap()
    }

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
        ]
        .map(Arc::new);
        let settings = settings(&[]);
        let notes = Arc::default();
        let facts = VerificationFacts { settings: &settings, of_platform: None, notes };
        let selection = PolicySelection::select(&spec, "apps", all.iter(), facts)?;
        Ok(selection.results(&PolicyVerificationKeys::default())?.unwrap())
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

    fn secret(namespace: &str, name: &str) -> ImageVerificationKeySecretReference {
        let [namespace, name] = [namespace, name].map(str::to_owned);
        ImageVerificationKeySecretReference { namespace, name, advice: "create it" }
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
        ]
        .map(Arc::new);
        let notes = Arc::<VerifiedImageVersions>::default();
        let settings = settings(&[]);
        let place = "apps/keys".to_owned();
        for policy in &all[1..3] {
            let version = policy.status.as_ref().unwrap().latest_ref.clone().unwrap();
            let keys = KeyFingerprints::from([(place.clone(), "a".to_owned())]);
            notes.keep(policy, &VerifiedImageVersion { version, keys });
        }
        let spec: ImageUpdateAutomationSpec = serde_json::from_value(json!({})).unwrap();
        let chosen = |of_platform: Option<&ImageVerificationKeySecretReference>| {
            let notes = notes.clone();
            let facts = VerificationFacts { settings: &settings, of_platform, notes };
            PolicySelection::select(&spec, "apps", all.iter(), facts).unwrap()
        };
        let select = |of_platform: Option<ImageVerificationKeySecretReference>, keys: &str| {
            let places = [("apps/keys", Ok(Some(keys))), ("flux-system/keys", Ok(Some("p")))];
            let current = PolicyVerificationKeys::found(places);
            chosen(of_platform.as_ref()).results(&current).unwrap().unwrap()
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
        let nodes: Vec<String> = chosen(None).unverified_nodes().map(|it| it.to_string()).collect();
        assert_eq!(nodes, ["ImagePolicy/apps/forged", "ImagePolicy/apps/never"]);
        // The keys of what is not verified do not matter, but those of what is are not known.
        assert_eq!(chosen(None).secrets().into_keys().collect::<Vec<_>>(), ["apps/keys"]);
        assert_eq!(chosen(None).results(&PolicyVerificationKeys::default()), Ok(None));
    }

    #[test]
    fn only_policies_that_are_selected_and_of_the_own_shard_have_keys_that_are_read() {
        let policy = |name: &str, shard: &str| -> Arc<ImagePolicy> {
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "apps", "uid": name,
                    "labels": {"shard": shard, "name": name},
                    "annotations": {"windlass.dev/verify-images": name}},
                "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {},
                    "digestReflectionPolicy": "IfNotPresent"},
                "status": {"latestRef": {"name": "r.io/app", "tag": "1", "digest": "sha256:1"}},
            }))
            .map(Arc::new)
            .unwrap()
        };
        let all = [policy("left-out", "a"), policy("other-shard", "b"), policy("own", "a")];
        let notes = Arc::<VerifiedImageVersions>::default();
        for policy in &all {
            let version = policy.status.as_ref().unwrap().latest_ref.clone().unwrap();
            let keys =
                KeyFingerprints::from([(format!("apps/{}", policy.name_any()), "a".to_owned())]);
            notes.keep(policy, &VerifiedImageVersion { version, keys });
        }
        let spec: ImageUpdateAutomationSpec = serde_json::from_value(json!({"policySelector":
            {"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["left-out"]}]}}))
        .unwrap();
        let settings = settings(&["--watch-label-selector=shard=a"]);
        let facts = VerificationFacts { settings: &settings, of_platform: None, notes };
        let selection = PolicySelection::select(&spec, "apps", all.iter(), facts).unwrap();
        assert_eq!(selection.secrets().into_keys().collect::<Vec<_>>(), ["apps/own"]);
        let current = PolicyVerificationKeys::found([
            ("apps/own", Ok(Some("a"))),
            ("apps/left-out", Err("x")),
        ]);
        let results = selection.results(&current).unwrap().unwrap();
        assert_eq!(results.latest.into_keys().collect::<Vec<_>>(), ["own"]);
        let why = "it belongs to another shard: give policy and automation the same label";
        let expected = BTreeMap::from([("apps:other-shard".to_owned(), why.to_owned())]);
        assert_eq!(results.unverified, expected);
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
