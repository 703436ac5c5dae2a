//! Chooses the latest tag of an image, and finds its digest.
//!
//! Elsewhere: no change to a lower version (`downgrade_prevention`), which of the best tags meets the further requirements
//! (`candidates`).

use std::sync::Arc;
use std::time::Duration;

use crds::image::{
    DigestReflectionPolicy, ImagePolicy, ImagePolicyChoice, ImageRef, ImageRepository, TagFilter,
};
use image::{FilterTags, PolicyChoice, PolicyError, TagHistory, TagPolicy};
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, NextRunTrigger, ObjectKey, RunOutcome, condition_reason};
use sources::oci::{Error, ManifestReference, RemoteOciRepository};
use windlass_cluster::error::chain;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::run_context::RunContext;

use super::candidate_tags::CandidateTags;
use super::min_age::{MAX_DIGEST_REQUESTS, MAX_NAMED_TAGS, TagMinimumAge};
use super::quarantined_tags::QuarantinedTags;
use super::tag_history_store;
use crate::image_kind_run::INVALID_POLICY;
use crate::registry_access::{RegistrySecrets, ScannedImage, session};
use crate::{tag_meter, tag_store};

/// No tag is the latest. Parity(flux).
pub(super) const FAILURE: ConditionReason = ConditionReason::new("Failure");

/// Which tags of an image count, besides the conditions in the spec of the policy.
pub(super) struct TagQuery {
    /// The canonical name of the image.
    pub(super) image: String,
    /// The tag below which none counts.
    pub(super) floor: Option<String>,
    /// The minimum age of a digest.
    pub(super) min_age: Option<Duration>,
    /// Whether platforms or signatures are asked of the images.
    pub(super) is_checked: bool,
    /// The tags that are skipped, because an applier failed with them.
    pub(super) quarantined: QuarantinedTags,
}

/// The ranking of the tags of an image.
pub(super) struct RankedTags {
    /// The ranking of the tags.
    pub(super) ranking: TagRanking,
    /// The message about skipped tags, for people. Empty if no tag is skipped.
    pub(super) skipped: String,
}

/// The result of ranking the tags of an image.
#[derive(Debug, PartialEq)]
pub(super) enum TagRanking {
    /// This one is the latest.
    Latest(String),
    /// The latest is below the floor.
    Lower {
        /// The latest.
        tag: String,
        /// The floor.
        floor: String,
    },
    /// The latest is the first of these tags that meets all requirements.
    Candidates(CandidateTags),
}

/// Ranks the scanned tags of the image in `query` by the policy. `None` if the ImageRepository has no tags of that image.
///
/// # Errors
/// No tag matches the policy, the policy or its filter is invalid, or the stored tags or their history cannot be read.
pub(super) async fn rank(
    context: &RunContext,
    node: &ObjectKey,
    object: &Arc<ImagePolicy>,
    repository: &Arc<ImageRepository>,
    query: TagQuery,
) -> Result<Option<RankedTags>, RunOutcome> {
    let store = context.artifacts.clone();
    let object = object.clone();
    let repository = repository.clone();
    // All policies of an image are woken at once. The permits limit how many lists are in memory.
    let _permit = context.building.acquire(&node.namespace).await;
    let work = move || {
        let tags = tag_store::tags_of(&store, &repository, &query.image, FAILURE)?;
        let Some(mut tags) = tags.filter(|tags| !tags.is_empty()) else { return Ok(None) };
        let skipped = query.quarantined.text(&tags);
        tags.retain(|tag| !query.quarantined.has(tag));
        let now = Timestamp::now();
        let history = if query.min_age.is_some() {
            let history = tag_history_store::slot(&object)
                .and_then(|slot| tag_history_store::read(&store, &slot, &query.image, now));
            history.map_err(|error| {
                let image = &query.image;
                let error = chain(&error);
                let text =
                    format!("failed to read since when the tags of {image} are known: {error}");
                RunOutcome::Failed(FAILURE, text, NextRunTrigger::default())
            })?
        } else {
            TagHistory::default()
        };
        let choice = choice_of(&object.spec.policy);
        let filter = object.spec.filter_tags.as_ref().map(filter_of);
        let ranking = match TagPolicy::new(&choice) {
            Ok(policy) => ranked(&policy, filter.as_ref(), &tags, query, history, now),
            Err(error) => Err(error),
        };
        match ranking {
            Ok(ranking) => Ok(Some(RankedTags { ranking, skipped })),
            Err(error) => Err(unranked(error, &skipped)),
        }
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

/// Ranks the tags of an image by the rule of its ImagePolicy. This work keeps a processor busy.
fn ranked(
    policy: &TagPolicy,
    filter: Option<&FilterTags>,
    tags: &[String],
    query: TagQuery,
    history: TagHistory,
    now: Timestamp,
) -> Result<TagRanking, PolicyError> {
    // One more than is named, so that a message can say that there are more.
    let count = if query.min_age.is_some() { MAX_NAMED_TAGS + 1 } else { 1 };
    let best = policy.best_tags(filter, tags, count, &mut tag_meter())?;
    let latest = best.first().ok_or(PolicyError::NoTags)?.clone();
    let TagQuery { image, floor, min_age, is_checked, quarantined: _ } = query;
    let not_lower = |tags: &[String]| match &floor {
        Some(floor) => policy.not_lower(filter, tags, floor, &mut tag_meter()),
        None => Ok(tags.to_vec()),
    };
    let is_lower = not_lower(std::slice::from_ref(&latest))?.is_empty();
    if let Some(floor) = floor.clone().filter(|_| is_lower) {
        return Ok(TagRanking::Lower { tag: latest, floor });
    }
    if min_age.is_none() && !is_checked {
        return Ok(TagRanking::Latest(latest));
    }
    // No request is sent for tags that are known to be too young.
    let may_count = |tag: &&String| {
        min_age.is_none_or(|min_age| history.waits_until(tag, min_age, now).is_none())
    };
    let left: Vec<String> = tags.iter().filter(may_count).cloned().collect();
    let candidates = match policy.best_tags(filter, &left, MAX_DIGEST_REQUESTS, &mut tag_meter()) {
        Err(PolicyError::NoTags | PolicyError::NoVersion) => Vec::new(),
        candidates => not_lower(&candidates?)?,
    };
    let age = min_age.map(|min_age| TagMinimumAge { min_age, history });
    Ok(TagRanking::Candidates(CandidateTags { image, best, candidates, age }))
}

/// The outcome if no tag is the latest, with the message about skipped tags.
fn unranked(error: PolicyError, skipped: &str) -> RunOutcome {
    let text = format!("{error}{skipped}");
    if error.is_terminal() {
        RunOutcome::Stalled(INVALID_POLICY, text)
    } else {
        RunOutcome::Failed(FAILURE, text, NextRunTrigger::default())
    }
}

/// The digest of a chosen version from the policy's status, which needs no request to the registry. `None` if the status has no
/// digest of this version.
fn known_digest(object: &ImagePolicy, chosen: &ImageRef) -> Option<String> {
    let latest = object.status.as_ref()?.latest_ref.as_ref()?;
    let is_same = latest.name == chosen.name && latest.tag == chosen.tag;
    latest.digest.clone().filter(|_| is_same)
}

/// Why there is no digest. Parity(flux): these are its words.
fn undigested(chosen: &ImageRef, why: &str, wake: NextRunTrigger) -> RunOutcome {
    RunOutcome::Failed(
        condition_reason::FAILED,
        format!("failed fetching digest of {chosen}: {why}"),
        wake,
    )
}

/// The registry in which digests are looked up.
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
        self.read_nothing();
        Ok(known.filter(|_| policy != DigestReflectionPolicy::Never))
    }

    /// Ends the watches of Secrets, because this run reads none.
    pub(super) fn read_nothing(&self) {
        RunReferenceReads::new(&self.context.watcher).watch(self.node);
    }

    /// The name of the image, as the ImageRepository has it.
    pub(super) fn image_name(&self) -> &str {
        &self.repository.spec.image
    }

    /// The version of a tag, whose digest is not known yet.
    pub(super) fn version(&self, tag: &str) -> ImageRef {
        ImageRef { name: self.image_name().to_owned(), tag: tag.to_owned(), digest: None }
    }

    async fn look_up(&self, chosen: &ImageRef) -> Result<String, RunOutcome> {
        let mut remote = self.remote(chosen).await?;
        self.resolve(&mut remote, chosen).await
    }

    /// The digest for which the tag of a version stands in the registry.
    ///
    /// Differs(flux): a registry that answers without a digest is asked for the manifest, and `spec.insecure` of the
    /// ImageRepository counts here, too.
    ///
    /// # Errors
    /// The registry does not say.
    pub(super) async fn resolve(
        &self,
        remote: &mut RemoteOciRepository,
        chosen: &ImageRef,
    ) -> Result<String, RunOutcome> {
        let spec = &self.repository.spec;
        let _permit = self.context.asking.acquire(&self.node.namespace).await;
        let looked_up = async {
            let tag = ManifestReference::tag(&chosen.tag)?;
            session(self.context, spec, remote).await?.resolve(&tag).await
        };
        let digest = looked_up.await.map_err(|error: Error| {
            let why = format!("failed fetching descriptor for \"{chosen}\": {}", chain(&error));
            let wake = error.retry_at(Timestamp::now()).map(NextRunTrigger::at).unwrap_or_default();
            undigested(chosen, &why, wake)
        })?;
        Ok(digest.to_string())
    }

    /// The registry, with the connection settings of the ImageRepository. The objects that the ImageRepository names are
    /// watched from now on.
    ///
    /// # Errors
    /// An object that the ImageRepository names is missing or cannot be used.
    pub(super) async fn remote(
        &self,
        chosen: &ImageRef,
    ) -> Result<RemoteOciRepository, RunOutcome> {
        self.remote_with(chosen, RunReferenceReads::new(&self.context.watcher)).await
    }

    /// Like [`Self::remote`], if the run has read other objects before. They are watched, too.
    ///
    /// # Errors
    /// An object that the ImageRepository names is missing or cannot be used.
    pub(super) async fn remote_with(
        &self,
        chosen: &ImageRef,
        mut references: RunReferenceReads,
    ) -> Result<RemoteOciRepository, RunOutcome> {
        let spec = &self.repository.spec;
        let namespace = self.repository.namespace().unwrap_or_default();
        let secrets = RegistrySecrets::read(spec, &namespace, &mut references).await;
        references.watch(self.node);
        let remote = secrets.and_then(|secrets| secrets.remote(self.image, spec.insecure));
        remote.map_err(|why| {
            let why = format!("failed to configure authentication options: {why}");
            undigested(chosen, &why, NextRunTrigger::default())
        })
    }
}

#[cfg(test)]
mod tests {
    use crds::image::ImagePolicySpec;
    use serde_json::{Value, json};

    use super::*;

    fn ranking(spec: &Value, tags: &[&str], query: TagQuery) -> Result<TagRanking, RunOutcome> {
        ranking_of(spec, tags, query, TagHistory::default())
    }

    fn ranking_of(
        spec: &Value,
        tags: &[&str],
        query: TagQuery,
        history: TagHistory,
    ) -> Result<TagRanking, RunOutcome> {
        let mut whole = json!({"imageRepositoryRef": {"name": "app"}, "policy": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let spec: ImagePolicySpec = serde_json::from_value(whole).unwrap();
        let filter = spec.filter_tags.as_ref().map(filter_of);
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        TagPolicy::new(&choice_of(&spec.policy))
            .and_then(|policy| ranked(&policy, filter.as_ref(), &tags, query, history, now()))
            .map_err(|error| unranked(error, ""))
    }

    fn now() -> Timestamp {
        "2026-11-24T10:00:00Z".parse().unwrap()
    }

    fn query(floor: Option<&str>, min_age: Option<u64>) -> TagQuery {
        TagQuery {
            image: "r.io/app".to_owned(),
            floor: floor.map(str::to_owned),
            min_age: min_age.map(Duration::from_secs),
            is_checked: false,
            quarantined: QuarantinedTags::default(),
        }
    }

    fn chosen(spec: &Value, tags: &[&str]) -> Result<TagRanking, RunOutcome> {
        ranking(spec, tags, query(None, None))
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
            let expected = TagRanking::Latest(expected.to_owned());
            assert_eq!(chosen(&spec, &tags), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn what_is_below_the_floor_is_not_chosen() {
        let spec = json!({"policy": {"semver": {"range": "*"}}});
        let with_floor = |tags: &[&str]| ranking(&spec, tags, query(Some("1.1.0"), None)).unwrap();
        let latest = |tag: &str| TagRanking::Latest(tag.to_owned());
        assert_eq!(with_floor(&["1.0.0", "1.1.0"]), latest("1.1.0"));
        assert_eq!(with_floor(&["1.2.0", "1.1.0"]), latest("1.2.0"));
        assert_eq!(with_floor(&["v1.1.0", "1.0.0"]), latest("v1.1.0"), "it is not lower");
        let lower = TagRanking::Lower { tag: "1.0.0".to_owned(), floor: "1.1.0".to_owned() };
        assert_eq!(with_floor(&["1.0.0", "0.9.0"]), lower);
    }

    #[test]
    fn the_registry_is_asked_about_tags_that_may_be_old_enough_only() {
        let spec = json!({"policy": {"semver": {"range": "*"}}});
        let mut history = TagHistory::default();
        history.see("1.3.0", "sha256:a", now());
        history.see("1.1.0", "sha256:a", "2026-11-24T08:00:00Z".parse().unwrap());
        let tags = ["1.0.0", "1.1.0", "1.2.0", "1.3.0", "latest"];
        let asked_about = |floor: Option<&str>| {
            let query = query(floor, Some(3600));
            match ranking_of(&spec, &tags, query, history.clone()).unwrap() {
                TagRanking::Candidates(CandidateTags { best, candidates, .. }) => {
                    (best, candidates)
                }
                other => panic!("{other:?}"),
            }
        };
        let (best, candidates) = asked_about(None);
        assert_eq!(best, ["1.3.0", "1.2.0", "1.1.0", "1.0.0"]);
        assert_eq!(candidates, ["1.2.0", "1.1.0", "1.0.0"], "1.3.0 is too young for sure");
        assert_eq!(asked_about(Some("1.1.0")).1, ["1.2.0", "1.1.0"]);
        assert!(asked_about(Some("1.3.0")).1.is_empty());
        // Nor is there anything to ask below the floor.
        let lower = ranking(&spec, &["1.0.0"], query(Some("1.1.0"), Some(3600)));
        assert!(matches!(lower, Ok(TagRanking::Lower { .. })), "{lower:?}");
    }

    #[test]
    fn tags_whose_images_are_examined_are_candidates_in_their_order_whatever_their_age() {
        let spec = json!({"policy": {"semver": {"range": "*"}}});
        let query = TagQuery { is_checked: true, ..query(Some("1.1.0"), None) };
        match ranking(&spec, &["1.0.0", "1.2.0", "1.1.0", "latest"], query).unwrap() {
            TagRanking::Candidates(CandidateTags { candidates, age, .. }) => {
                assert_eq!(candidates, ["1.2.0", "1.1.0"], "none is below the floor");
                assert_eq!(age, None);
            }
            other => panic!("{other:?}"),
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
        let failure = undigested(&version("r.io/app", "v1"), "no", NextRunTrigger::default());
        assert_eq!(failure.text(), "failed fetching digest of r.io/app:v1: no");
        assert_eq!(failure.reason(), condition_reason::FAILED);
    }
}
