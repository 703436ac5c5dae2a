//! The latest of the tags, and the digest for which it stands.

use std::sync::Arc;

use crds::image::{
    DigestReflectionPolicy, ImagePolicy, ImagePolicyChoice, ImagePolicySpec, ImageRef,
    ImageRepository, TagFilter,
};
use image::{FilterTags, PolicyChoice, TagPolicy};
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, ObjectKey, RunOutcome, WakeTrigger, reason};
use sources::oci::{Error, ManifestReference, RemoteOciRepository};
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::spec_references::ReadReferences;

use crate::registry_access::{RegistrySecrets, ScannedImage, session};
use crate::{tag_meter, tag_store};

/// No tag is the latest. Parity(flux).
const FAILURE: ConditionReason = ConditionReason::new("Failure");

/// The policy or the filter means nothing. Parity(flux).
const INVALID_POLICY: ConditionReason = ConditionReason::new("InvalidPolicy");

/// The latest of the tags that an ImageRepository has of an image; `None` if it has none.
///
/// # Errors
/// No tag is, or the policy or the filter means nothing.
pub(super) async fn latest_tag(
    context: &RunContext,
    node: &ObjectKey,
    spec: &ImagePolicySpec,
    repository: &Arc<ImageRepository>,
    image: String,
) -> Result<Option<String>, RunOutcome> {
    let choice = choice_of(&spec.policy);
    let filter = spec.filter_tags.as_ref().map(filter_of);
    let store = context.artifacts.clone();
    let repository = repository.clone();
    // All policies of an image are woken at once: there are as many lists in memory as permits.
    let _permit = context.building.acquire(&node.namespace).await;
    let work = move || {
        let tags = tag_store::tags_of(&store, &repository, &image, FAILURE)?;
        let tags = tags.filter(|tags| !tags.is_empty());
        tags.map(|tags| latest(&choice, filter.as_ref(), &tags)).transpose()
    };
    blocking(FAILURE, "choosing the latest tag", work).await
}

fn choice_of(policy: &ImagePolicyChoice) -> PolicyChoice {
    let order = |order: Option<&String>| order.cloned().unwrap_or_default();
    PolicyChoice {
        semver: policy.semver.as_ref().map(|it| it.range.clone()),
        alphabetical: policy.alphabetical.as_ref().map(|it| order(it.order.as_ref())),
        numerical: policy.numerical.as_ref().map(|it| order(it.order.as_ref())),
    }
}

fn filter_of(filter: &TagFilter) -> FilterTags {
    FilterTags {
        pattern: filter.pattern.clone().unwrap_or_default(),
        extract: filter.extract.clone().unwrap_or_default(),
    }
}

/// Takes a processor.
fn latest(
    choice: &PolicyChoice,
    filter: Option<&FilterTags>,
    tags: &[String],
) -> Result<String, RunOutcome> {
    let chosen =
        TagPolicy::new(choice).and_then(|policy| policy.latest(filter, tags, &mut tag_meter()));
    chosen.map_err(|error| {
        let text = error.to_string();
        if error.is_terminal() {
            RunOutcome::Stalled(INVALID_POLICY, text)
        } else {
            RunOutcome::Failed(FAILURE, text, WakeTrigger::default())
        }
    })
}

/// The digest that is known of a version, if it is to be used without being looked up.
fn known_digest(object: &ImagePolicy, chosen: &ImageRef) -> Option<String> {
    let latest = object.status.as_ref()?.latest_ref.as_ref()?;
    let is_same = latest.name == chosen.name && latest.tag == chosen.tag;
    latest.digest.clone().filter(|_| is_same)
}

/// Why there is no digest. Parity(flux): these are its words.
fn undigested(chosen: &ImageRef, why: &str, wake: WakeTrigger) -> RunOutcome {
    RunOutcome::Failed(reason::FAILED, format!("failed fetching digest of {chosen}: {why}"), wake)
}

/// Where digests are looked up.
pub(super) struct DigestLookup<'r> {
    pub(super) context: &'r Arc<RunContext>,
    pub(super) node: &'r ObjectKey,
    pub(super) repository: &'r Arc<ImageRepository>,
    pub(super) image: &'r ScannedImage,
}

impl DigestLookup<'_> {
    /// The digest of a version, if the policy wants one.
    ///
    /// # Errors
    /// The registry does not say, or cannot be asked.
    pub(super) async fn digest(
        &self,
        object: &ImagePolicy,
        chosen: &ImageRef,
    ) -> Result<Option<String>, RunOutcome> {
        let policy = object.spec.digest_reflection_policy.unwrap_or_default();
        let known = known_digest(object, chosen);
        let is_needed = match policy {
            DigestReflectionPolicy::Always => true,
            DigestReflectionPolicy::IfNotPresent => known.is_none(),
            DigestReflectionPolicy::Never => false,
        };
        if is_needed {
            return self.look_up(chosen).await.map(Some);
        }
        // Nothing is read for this run, so that no Secret is watched for it.
        ReadReferences::new(&self.context.watcher).watch(self.node);
        Ok(known.filter(|_| policy != DigestReflectionPolicy::Never))
    }

    /// Differs(flux): a registry that answers without a digest is asked for the manifest, and `spec.insecure` of the
    /// ImageRepository counts here, too.
    async fn look_up(&self, chosen: &ImageRef) -> Result<String, RunOutcome> {
        let mut remote = self.remote(chosen).await?;
        let spec = &self.repository.spec;
        let _permit = self.context.asking.acquire(&self.node.namespace).await;
        let looked_up = async {
            let tag = ManifestReference::tag(&chosen.tag)?;
            session(self.context, spec, &mut remote).await?.resolve(&tag).await
        };
        let digest = looked_up.await.map_err(|error: Error| {
            let why = format!("failed fetching descriptor for \"{chosen}\": {}", chain(&error));
            let wake = error.retry_at(Timestamp::now()).map(WakeTrigger::at).unwrap_or_default();
            undigested(chosen, &why, wake)
        })?;
        Ok(digest.to_string())
    }

    /// The registry as the ImageRepository says it is reached. What that names is watched from now on.
    async fn remote(&self, chosen: &ImageRef) -> Result<RemoteOciRepository, RunOutcome> {
        let spec = &self.repository.spec;
        let namespace = self.repository.namespace().unwrap_or_default();
        let mut references = ReadReferences::new(&self.context.watcher);
        let secrets = RegistrySecrets::read(spec, &namespace, &mut references).await;
        references.watch(self.node);
        let remote = secrets.and_then(|secrets| secrets.remote(self.image, spec.insecure));
        remote.map_err(|why| {
            let why = format!("failed to configure authentication options: {why}");
            undigested(chosen, &why, WakeTrigger::default())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chosen(spec: &Value, tags: &[&str]) -> Result<String, RunOutcome> {
        let mut whole = json!({"imageRepositoryRef": {"name": "app"}, "policy": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let spec: ImagePolicySpec = serde_json::from_value(whole).unwrap();
        let filter = spec.filter_tags.as_ref().map(filter_of);
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        latest(&choice_of(&spec.policy), filter.as_ref(), &tags)
    }

    #[test]
    fn the_first_policy_that_is_there_chooses_of_what_the_filter_lets_through() {
        let tags = ["v1.2.0-rc.1", "v1.1.0", "v1.0.0", "main-7", "main-10", "latest"];
        for (spec, expected) in [
            (json!({"policy": {"semver": {"range": "*"}, "alphabetical": {}}}), "v1.1.0"),
            (json!({"policy": {"alphabetical": {}}}), "v1.2.0-rc.1"),
            (json!({"policy": {"alphabetical": {"order": "desc"}}}), "latest"),
            (
                json!({"policy": {"numerical": {"order": "asc"}},
                    "filterTags": {"pattern": "^main-(?P<n>.*)$", "extract": "$n"}}),
                "main-10",
            ),
        ] {
            assert_eq!(chosen(&spec, &tags).as_deref(), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn a_policy_that_means_nothing_is_not_retried_and_one_without_a_match_is() {
        let stalled = |spec: Value, text: &str| {
            let outcome = chosen(&spec, &["v1.0.0"]).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(INVALID_POLICY, _)), "{outcome:?}");
            assert!(outcome.text().starts_with(text), "{outcome:?}");
        };
        stalled(json!({}), "invalid policy: given ImagePolicyChoice object is invalid");
        stalled(json!({"policy": {"semver": {"range": "bad"}}}), "invalid policy: improper");
        let filter = json!({"policy": {"semver": {"range": "*"}}, "filterTags": {"pattern": "["}});
        stalled(filter, "failed to filter tags: invalid regular expression pattern '['");
        for (spec, text) in [
            (
                json!({"policy": {"semver": {"range": ">9"}}}),
                "unable to determine latest version from provided list",
            ),
            (
                json!({"policy": {"numerical": {}}}),
                "failed to parse invalid numeric value 'v1.0.0'",
            ),
        ] {
            let outcome = chosen(&spec, &["v1.0.0"]).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Failed(FAILURE, ..)), "{outcome:?}");
            assert_eq!(outcome.text(), text);
        }
    }

    #[test]
    fn a_digest_is_known_of_the_same_version_only() {
        let latest = json!({"name": "r.io/app", "tag": "v1", "digest": "sha256:1"});
        let object: ImagePolicy = serde_json::from_value(json!({
            "metadata": {"name": "app"}, "status": {"latestRef": latest},
        }))
        .unwrap();
        let version = |name: &str, tag: &str| ImageRef {
            name: name.to_owned(),
            tag: tag.to_owned(),
            digest: None,
        };
        let known = |name: &str, tag: &str| known_digest(&object, &version(name, tag));
        assert_eq!(known("r.io/app", "v1").as_deref(), Some("sha256:1"));
        assert_eq!(known("r.io/app", "v2"), None);
        assert_eq!(known("r.io/other", "v1"), None);
        let failure = undigested(&version("r.io/app", "v1"), "no", WakeTrigger::default());
        assert_eq!(failure.text(), "failed fetching digest of r.io/app:v1: no");
        assert_eq!(failure.reason(), reason::FAILED);
    }
}
