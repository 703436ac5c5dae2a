//! Whether the images of a policy have to be signed, and by whose keys. The annotation of the policy asks for it, and so do
//! the flags by which the administrator asks for it in whole namespaces. One adds to the other, and neither replaces it.
//!
//! Here: the Secrets with the keys. Elsewhere: reading the keys and verifying an image (`image_policy`), verified versions
//! (`verified_image_versions`), which markers may write the tag of such a policy (`image_update_automation`).

use std::collections::BTreeMap;

use crds::image::{DigestReflectionPolicy, ImagePolicy};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use windlass_cluster::namespace_policies::NamespacePolicies;
use windlass_runtime::run_context::RunContext;
use windlass_serve::settings::OperatorSettings;

use crate::image_kind_run::INVALID_POLICY;

/// The annotation with the name of a Secret of the policy's namespace, in which the public keys of cosign are.
pub(crate) const VERIFY_IMAGES: &str = "windlass.dev/verify-images";

/// The flag by which namespaces are selected.
const VERIFY_IMAGES_NAMESPACES: &str = "--verify-images-namespaces";

/// The condition of an ImagePolicy that says whether the latest version is signed. It is only for people. Windlass concludes
/// nothing from it, since a user who may write statuses could set it.
pub(crate) const IMAGE_VERIFIED: &str = "ImageVerified";

/// A Secret with public keys. An image has to be signed with one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageVerificationKeySecretReference {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The advice if the Secret does not exist.
    pub(crate) advice: &'static str,
}

impl ImageVerificationKeySecretReference {
    /// The place of the Secret with the key, as `namespace/name`.
    pub(crate) fn place(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The Secret that the flags require for a namespace. `None` if they require none. `labels` are the labels of the namespace,
/// if they are known.
///
/// # Errors
/// The labels are not known, so no image may be chosen.
fn secret_of_flags(
    settings: &OperatorSettings,
    namespace: &str,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<Option<ImageVerificationKeySecretReference>, RunOutcome> {
    if settings.verify_images_namespaces.is_none() {
        return Ok(None);
    }
    let Some(labels) = labels else {
        let text = format!(
            "cannot tell whether {VERIFY_IMAGES_NAMESPACES} selects namespace {namespace}: its labels are not known"
        );
        let why = condition_reason::DEPENDENCY_NOT_READY;
        return Err(RunOutcome::Failed(why, text, NextRunTrigger::default()));
    };
    Ok(settings.image_verification_secret(labels).map(|name| ImageVerificationKeySecretReference {
        namespace: settings.runtime_namespace.clone(),
        name: name.to_owned(),
        advice: "--verify-images-secret names it; create it there",
    }))
}

/// The Secret that the flags require for a namespace. `None` if they require none.
///
/// # Errors
/// The labels of the namespace are not known.
pub(crate) fn platform_secret(
    context: &RunContext,
    namespace: &str,
) -> Result<Option<ImageVerificationKeySecretReference>, RunOutcome> {
    let facts = context.shared::<NamespacePolicies>().facts(namespace);
    let labels = facts.as_ref().map(|facts| &facts.labels);
    secret_of_flags(&context.settings, namespace, labels)
}

/// The Secrets for the images of a policy. An image has to be signed with a key of each Secret. There are none if the images
/// need not be signed.
///
/// # Errors
/// The annotation names no Secret, or the policy publishes tags without digests.
pub(crate) fn key_secrets(
    object: &ImagePolicy,
    of_platform: Option<ImageVerificationKeySecretReference>,
) -> Result<Vec<ImageVerificationKeySecretReference>, RunOutcome> {
    let source = match &of_platform {
        Some(_) => VERIFY_IMAGES_NAMESPACES.to_owned(),
        None => format!("annotation {VERIFY_IMAGES}"),
    };
    let mut secrets: Vec<ImageVerificationKeySecretReference> = of_platform.into_iter().collect();
    if let Some(name) = object.annotations().get(VERIFY_IMAGES) {
        if name.is_empty() {
            let text = format!("annotation {VERIFY_IMAGES} is empty: it has to name a Secret");
            return Err(RunOutcome::Stalled(INVALID_POLICY, text));
        }
        secrets.push(ImageVerificationKeySecretReference {
            namespace: object.namespace().unwrap_or_default(),
            name: name.clone(),
            advice: "create it, or correct the annotation windlass.dev/verify-images",
        });
    }
    let reflection = object.spec.digest_reflection_policy.unwrap_or_default();
    if !secrets.is_empty() && reflection == DigestReflectionPolicy::Never {
        let text = format!(
            "{source} needs digests, since a tag can be moved after it was verified: set \
             spec.digestReflectionPolicy to IfNotPresent or Always"
        );
        return Err(RunOutcome::Stalled(INVALID_POLICY, text));
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(annotations: &Value, spec: &Value) -> ImagePolicy {
        let mut whole = json!({"imageRepositoryRef": {"name": "app"}, "policy": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({
            "metadata": {"name": "app", "namespace": "apps", "annotations": annotations},
            "spec": whole,
        }))
        .unwrap()
    }

    fn platform() -> ImageVerificationKeySecretReference {
        let [namespace, name] = ["flux-system", "keys"].map(str::to_owned);
        ImageVerificationKeySecretReference { namespace, name, advice: "" }
    }

    #[test]
    fn the_secret_of_a_tenant_comes_beside_that_of_the_platform_and_not_in_its_place() {
        let pinned = json!({"digestReflectionPolicy": "IfNotPresent"});
        let names = |annotations: Value,
                     of_platform: Option<ImageVerificationKeySecretReference>| {
            let secrets = key_secrets(&policy(&annotations, &pinned), of_platform);
            let secrets = secrets.unwrap().into_iter();
            secrets.map(|it| it.place()).collect::<Vec<_>>()
        };
        let own = json!({VERIFY_IMAGES: "own"});
        assert!(names(json!({}), None).is_empty());
        assert_eq!(names(own.clone(), None), ["apps/own"]);
        assert_eq!(names(own, Some(platform())), ["flux-system/keys", "apps/own"]);
        assert_eq!(names(json!({}), Some(platform())), ["flux-system/keys"]);
    }

    #[test]
    fn a_policy_without_digests_is_stalled_and_so_is_one_without_a_secret() {
        let stalled =
            |annotations: Value,
             spec: Value,
             of_platform: Option<ImageVerificationKeySecretReference>| {
                let outcome = key_secrets(&policy(&annotations, &spec), of_platform);
                let outcome = outcome.unwrap_err();
                assert!(matches!(outcome, RunOutcome::Stalled(INVALID_POLICY, _)), "{outcome:?}");
                outcome.text().to_owned()
            };
        let why = "needs digests, since a tag can be moved after it was verified: set \
                   spec.digestReflectionPolicy to IfNotPresent or Always";
        let own = json!({VERIFY_IMAGES: "own"});
        let text = stalled(own.clone(), json!({}), None);
        assert_eq!(text, format!("annotation windlass.dev/verify-images {why}"));
        let never = json!({"digestReflectionPolicy": "Never"});
        let text = stalled(own, never, Some(platform()));
        assert_eq!(text, format!("--verify-images-namespaces {why}"));
        let text = stalled(json!({VERIFY_IMAGES: ""}), json!({}), None);
        assert!(text.ends_with("is empty: it has to name a Secret"), "{text}");
    }

    #[test]
    fn nothing_is_concluded_from_labels_that_are_not_known() {
        let flags = ["--verify-images-namespaces=team=a", "--verify-images-secret=keys"];
        let settings = OperatorSettings::from_flags(&flags).unwrap();
        let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
        let place = |labels: &BTreeMap<String, String>| {
            let secret = secret_of_flags(&settings, "apps", Some(labels)).unwrap();
            secret.map(|it| it.place())
        };
        assert_eq!(place(&labels("a")).as_deref(), Some("flux-system/keys"));
        assert_eq!(place(&labels("b")), None);
        let outcome = secret_of_flags(&settings, "apps", None).unwrap_err();
        assert!(outcome.text().contains("namespace apps: its labels are not known"), "{outcome:?}");
        let none = OperatorSettings::from_flags::<&str>(&[]).unwrap();
        assert_eq!(secret_of_flags(&none, "apps", None), Ok(None));
    }
}
