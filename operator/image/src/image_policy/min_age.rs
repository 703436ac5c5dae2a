//! The minimum age of a tag: a tag counts only when windlass has known its digest for some time. Within that time, a bad
//! release, or one that an intruder pushed, can be withdrawn before it is used.
//!
//! Here: the annotation, and the message about tags that are not old enough. In the folder: since when digests are known
//! (`tag_history_store`). Elsewhere: the order of tags, and from when a tag counts (engine `image`), which tag is the latest
//! (`candidates`).

use std::time::Duration;

use crds::image::ImagePolicy;
use image::TagHistory;
use jiff::{SignedDuration, Timestamp};
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome, format_duration, parse_duration};
use sources::source_condition_reasons::INVALID_DURATION;
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;

use super::tag_choice::{DigestLookup, FAILURE};
use super::tag_history_store;

/// The annotation with the time for which windlass has to know a digest.
pub(super) const MIN_AGE: &str = "windlass.dev/min-age";

/// No tag is old enough, and there was none before.
const MIN_AGE_NOT_REACHED: ConditionReason = ConditionReason::new("MinAgeNotReached");

/// The most tags for which a run asks the registry for a digest, best first.
pub(super) const MAX_DIGEST_REQUESTS: usize = 32;

/// How many of the passed over tags a message names.
pub(super) const MAX_NAMED_TAGS: usize = 5;

/// The longest time for which a policy sleeps while it waits for a tag.
const LONGEST_SLEEP: SignedDuration = SignedDuration::from_hours(24);

/// The time for which windlass has to know a digest. `None` if the policy has no minimum age.
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

/// The minimum age of digests, and the times since when they are known.
#[derive(Debug, PartialEq)]
pub(super) struct TagMinimumAge {
    /// The minimum age.
    pub(super) min_age: Duration,
    /// The times since when digests are known.
    pub(super) history: TagHistory,
}

/// No tag is old enough, and there was none before.
pub(super) fn not_reached(text: String, wake: NextRunTrigger) -> RunOutcome {
    RunOutcome::Blocked(MIN_AGE_NOT_REACHED, text, wake)
}

/// Stores since when the digests of an image are known.
///
/// # Errors
/// The disk refuses the write.
pub(super) async fn keep(
    digest_lookup: &DigestLookup<'_>,
    object: &ImagePolicy,
    image: &str,
    history: &TagHistory,
) -> Result<(), RunOutcome> {
    let store = digest_lookup.context.artifacts.clone();
    let slot = tag_history_store::slot(object);
    let image = image.to_owned();
    let history = history.clone();
    let work = move || {
        let kept = slot.and_then(|slot| tag_history_store::keep(&store, &slot, &image, &history));
        kept.map_err(|error| {
            let text = format!(
                "failed to keep since when the tags of {image} are known: {}",
                chain(&error)
            );
            RunOutcome::Failed(FAILURE, text, NextRunTrigger::default())
        })
    };
    blocking(FAILURE, "keeping since when tags are known", work).await
}

impl TagMinimumAge {
    /// The time when the next digest becomes old enough, or the latest time at which a waiting policy runs, whichever is
    /// earlier. `None` if no digest waits for its age.
    pub(super) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let latest_wake = now.checked_add(LONGEST_SLEEP).unwrap_or(Timestamp::MAX);
        self.history.next_change(self.min_age, now).map(|at| at.min(latest_wake))
    }

    /// The message with the best tags that are better than the chosen one and not old enough. Empty if there are none.
    pub(super) fn passed_over(
        &self,
        best: &[String],
        chosen: Option<&str>,
        now: Timestamp,
    ) -> String {
        let better = best.iter().take_while(|tag| Some(tag.as_str()) != chosen);
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
        let age = TagMinimumAge { min_age: Duration::from_secs(3600), history };
        let until = "until 2026-11-24T11:00:00Z";
        let text = "; waiting, since windlass.dev/min-age is 1h0m0s: ";
        assert_eq!(age.passed_over(&best, Some("v7"), now), "");
        assert_eq!(
            age.passed_over(&best, Some("v5"), now),
            format!("{text}v7 {until}, v6 {until}")
        );
        let many = age.passed_over(&best, None, now);
        assert!(many.ends_with(&format!("v4 {until}, v3 {until}, and more")), "{many}");
        let later = now + Duration::from_secs(3600);
        assert_eq!(age.passed_over(&best, None, later), "", "all are old enough");
    }
}
