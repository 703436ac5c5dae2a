//! Tags that count only when their digest is known for some time, by which a release that is found to be bad, or was pushed by
//! an intruder, can be withdrawn before it is used.
//!
//! Here: the annotation, which of the best tags is old enough, what is said of those that are not. In the folder: since when
//! digests are known (`tag_history_store`). Elsewhere: the order of tags, and from when one counts (engine `image`).

use std::time::{Duration, Instant};

use crds::image::{DigestReflectionPolicy, ImagePolicy, ImageRef};
use image::{TagHistory, counts_from};
use jiff::{SignedDuration, Timestamp};
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, RunOutcome, WakeTrigger, format_duration, parse_duration};
use sources::source_reasons::INVALID_DURATION;
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;

use super::LatestVersion;
use super::tag_choice::{DigestLookup, FAILURE};
use super::tag_history_store;

/// The annotation with the time for which a digest has to be known.
pub(super) const MIN_AGE: &str = "windlass.dev/min-age";

/// No tag is old enough, and there was none before.
const MIN_AGE_NOT_REACHED: ConditionReason = ConditionReason::new("MinAgeNotReached");

/// How many of the best tags a run asks the registry about, at most.
pub(super) const MAX_DIGEST_REQUESTS: usize = 32;

/// How many of the tags that were passed over a message names.
pub(super) const MAX_NAMED_TAGS: usize = 5;

/// How long a policy sleeps at most while it waits for a tag.
const LONGEST_SLEEP: SignedDuration = SignedDuration::from_hours(24);

/// How long a digest has to be known; `None` if that does not matter.
///
/// # Errors
/// The annotation is not a duration.
pub(super) fn of(object: &ImagePolicy) -> Result<Option<Duration>, RunOutcome> {
    let Some(text) = object.annotations().get(MIN_AGE) else { return Ok(None) };
    let min_age = parse_duration(text).map_err(|error| {
        RunOutcome::Stalled(INVALID_DURATION, format!("annotation {MIN_AGE}: {error}"))
    })?;
    Ok(Some(min_age).filter(|it| !it.is_zero()))
}

/// The tags of an image, and since when they are known.
#[derive(Debug, PartialEq)]
pub(super) struct AgedTags {
    /// The canonical name of the image.
    pub(super) image: String,
    /// For how long a digest has to be known.
    pub(super) min_age: Duration,
    /// The best ones, best first.
    pub(super) best: Vec<String>,
    /// Those that may be old enough, best first: the registry says for which digests they stand.
    pub(super) candidates: Vec<String>,
    /// Since when digests are known.
    pub(super) history: TagHistory,
}

/// The latest of the tags that are old enough; if none is, the `former` latest.
///
/// # Errors
/// The registry or the disk does not do what it is asked, or none is old enough and there was none before.
pub(super) async fn choose(
    digest_lookup: &DigestLookup<'_>,
    object: &ImagePolicy,
    former: Option<&ImageRef>,
    mut tags: AgedTags,
) -> Result<LatestVersion, RunOutcome> {
    let chosen = first_of_age(digest_lookup, object, former, &mut tags).await;
    let now = Timestamp::now();
    tags.history.trim(tags.min_age, now);
    // What was seen before a failure was seen.
    keep(digest_lookup, object, &tags).await?;
    let version = chosen?.or_else(|| former.cloned());
    let passed_over = tags.passed_over(version.as_ref().map(|it| it.tag.as_str()), now);
    let latest_wake = now.checked_add(LONGEST_SLEEP).unwrap_or(Timestamp::MAX);
    let next = tags.history.next_change(tags.min_age, now).map(|at| at.min(latest_wake));
    let Some(version) = version else {
        let text = format!("no tag of {} counts yet{passed_over}", digest_lookup.image_name());
        let wake = next.map(WakeTrigger::at).unwrap_or_default();
        return Err(RunOutcome::Blocked(MIN_AGE_NOT_REACHED, text, wake));
    };
    Ok(LatestVersion { version, passed_over, next })
}

/// The first of the candidates whose digest is known for long enough. The one that is the latest already needs not be.
async fn first_of_age(
    digest_lookup: &DigestLookup<'_>,
    object: &ImagePolicy,
    former: Option<&ImageRef>,
    tags: &mut AgedTags,
) -> Result<Option<ImageRef>, RunOutcome> {
    if tags.candidates.is_empty() {
        digest_lookup.read_nothing();
    }
    let reflection = object.spec.digest_reflection_policy.unwrap_or_default();
    let begin = Instant::now();
    let mut remote = None;
    for tag in &tags.candidates {
        let version = digest_lookup.version(tag);
        let known = former.filter(|it| it.tag == *tag);
        if known.is_some_and(|it| !is_looked_up_again(it, reflection)) {
            let digest = digest_lookup.digest(object, &version).await?;
            return Ok(Some(ImageRef { digest, ..version }));
        }
        if remote.is_none() {
            remote = Some(digest_lookup.remote(&version).await?);
        }
        let Some(remote) = &mut remote else { break };
        let digest = digest_lookup.resolve(remote, &version).await?;
        let now = Timestamp::now();
        let first_seen = tags.history.see(tag, &digest, now);
        let is_known = known.is_some_and(|it| it.digest.as_ref() == Some(&digest));
        if is_known || counts_from(first_seen, tags.min_age) <= now {
            let digest = Some(digest).filter(|_| reflection != DigestReflectionPolicy::Never);
            return Ok(Some(ImageRef { digest, ..version }));
        }
        // Each request may take as long.
        if begin.elapsed() >= remote.timeout {
            break;
        }
    }
    Ok(None)
}

/// Whether the digest of the version that is the latest already is looked up again.
fn is_looked_up_again(latest: &ImageRef, reflection: DigestReflectionPolicy) -> bool {
    reflection == DigestReflectionPolicy::Always && latest.digest.is_some()
}

/// Keeps since when digests are known.
async fn keep(
    digest_lookup: &DigestLookup<'_>,
    object: &ImagePolicy,
    tags: &AgedTags,
) -> Result<(), RunOutcome> {
    let store = digest_lookup.context.artifacts.clone();
    let slot = tag_history_store::slot(object);
    let image = tags.image.clone();
    let history = tags.history.clone();
    let work = move || {
        let kept = slot.and_then(|slot| tag_history_store::keep(&store, &slot, &image, &history));
        kept.map_err(|error| {
            let text = format!(
                "failed to keep since when the tags of {image} are known: {}",
                chain(&error)
            );
            RunOutcome::Failed(FAILURE, text, WakeTrigger::default())
        })
    };
    blocking(FAILURE, "keeping since when tags are known", work).await
}

impl AgedTags {
    /// Says which tags are better than the chosen one and not old enough; empty if none is.
    fn passed_over(&self, chosen: Option<&str>, now: Timestamp) -> String {
        let better = self.best.iter().take_while(|tag| Some(tag.as_str()) != chosen);
        let waiting = better.filter_map(|tag| {
            let until = self.history.waits_until(tag, self.min_age, now)?;
            Some(format!("{tag} until {until}"))
        });
        let mut waiting: Vec<String> = waiting.collect();
        if waiting.is_empty() {
            return String::new();
        }
        if waiting.len() > MAX_NAMED_TAGS {
            waiting.truncate(MAX_NAMED_TAGS);
            waiting.push("and more".to_owned());
        }
        let min_age = format_duration(self.min_age);
        format!("; waiting, since {MIN_AGE} is {min_age}: {}", waiting.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_that_is_no_duration_stalls_the_policy() {
        let min_age = |text: &str| {
            let metadata = json!({"name": "app", "annotations": {MIN_AGE: text}});
            let spec = json!({"imageRepositoryRef": {"name": "app"}, "policy": {}});
            let object = json!({"metadata": metadata, "spec": spec});
            let object: ImagePolicy = serde_json::from_value(object).unwrap();
            of(&object)
        };
        assert_eq!(min_age("36h"), Ok(Some(Duration::from_secs(36 * 3600))));
        assert_eq!(min_age("0"), Ok(None));
        for text in ["", "1d", "-1h", "soon"] {
            let outcome = min_age(text).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(INVALID_DURATION, _)), "{outcome:?}");
            assert!(outcome.text().starts_with("annotation windlass.dev/min-age: "), "{outcome:?}");
        }
    }

    #[test]
    fn better_tags_that_wait_are_named_and_not_more_than_a_few() {
        let now: Timestamp = "2026-11-24T10:00:00Z".parse().unwrap();
        let mut history = TagHistory::default();
        for at in 1..8 {
            history.see(&format!("v{at}"), "sha256:a", now);
        }
        let best: Vec<String> = (0..8).rev().map(|at| format!("v{at}")).collect();
        let tags = |best: &[String]| AgedTags {
            image: "r.io/app".to_owned(),
            min_age: Duration::from_secs(3600),
            best: best.to_vec(),
            candidates: Vec::new(),
            history: history.clone(),
        };
        let until = "until 2026-11-24T11:00:00Z";
        let text = "; waiting, since windlass.dev/min-age is 1h0m0s: ";
        assert_eq!(tags(&best).passed_over(Some("v7"), now), "");
        assert_eq!(
            tags(&best).passed_over(Some("v5"), now),
            format!("{text}v7 {until}, v6 {until}")
        );
        let many = tags(&best).passed_over(None, now);
        assert!(many.ends_with(&format!("v4 {until}, v3 {until}, and more")), "{many}");
        let later = now + Duration::from_secs(3600);
        assert_eq!(tags(&best).passed_over(None, later), "", "all are old enough");
    }
}
