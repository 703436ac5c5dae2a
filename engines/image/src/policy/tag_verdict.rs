//! Reports how a policy judges each tag: whether the tag can be chosen, and how it compares with the chosen tag.
//!
//! Here: the verdicts on a list of tags. Elsewhere: choosing a tag, and the order of tags (`policy.rs`, `ranked_tags.rs`); tags
//! whose digest is not old enough yet (`tag_history.rs`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use golang::work_meter::WorkMeter;

use super::{
    BYTES_PER_CANDIDATE, CompiledTagFilter, FilterTags, PolicyError, TagPolicy, ranked_tags,
};

/// How many eligible tags are sorted. Further ones follow in the order of the list.
const MAX_ORDERED_TAGS: usize = 1000;

/// Whether a tag counts, in the order in which that is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagEligibility {
    /// `spec.filterTags.pattern` does not match the tag.
    NotMatched,
    /// The compared text is not a version with three numbers.
    NotAVersion,
    /// The compared text is a version outside of the range.
    OutsideRange,
    /// The compared text is not a number. A numerical policy chooses no tag as long as there is such a tag.
    NotANumber,
    /// The tag can be chosen.
    Counts,
}

/// The verdict of a policy on one tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagVerdict {
    /// The tag.
    pub tag: String,
    /// The text that is compared; `None` if the filter rejects the tag.
    pub compared: Option<String>,
    /// Whether the tag can be chosen.
    pub standing: TagEligibility,
    /// How the tag compares with the chosen tag in the order of the policy; `None` if one of them cannot be compared.
    pub order: Option<Ordering>,
}

impl TagVerdict {
    /// Whether the policy may choose the tag.
    pub(crate) fn counts(&self) -> bool {
        self.standing == TagEligibility::Counts
    }
}

impl TagPolicy {
    /// The verdicts on some tags: first the eligible tags with the best first, then the others in their order. A tag that is
    /// listed twice appears once.
    ///
    /// `chosen` is the latest tag so far, which need not be in the list. If no tag is [`TagEligibility::NotANumber`], the first
    /// eligible tag is [`Self::latest`].
    ///
    /// # Errors
    /// The filter is invalid, or filtering or comparing costs more than `meter` allows.
    pub fn verdicts(
        &self,
        filter: Option<&FilterTags>,
        tags: &[String],
        chosen: Option<&str>,
        meter: &mut WorkMeter,
    ) -> Result<Vec<TagVerdict>, PolicyError> {
        let compiled = filter.map(FilterTags::compiled).transpose()?;
        let compiled = compiled.as_ref();
        let chosen = match chosen {
            Some(tag) => compared_of(compiled, tag, meter)?,
            None => None,
        };
        let mut counting = Vec::new();
        let mut others = Vec::new();
        let mut known = BTreeSet::new();
        for tag in tags.iter().filter(|tag| known.insert(tag.as_str())) {
            let verdict = self.verdict(compiled, tag, chosen.as_deref(), meter)?;
            let list = if verdict.counts() { &mut counting } else { &mut others };
            list.push(verdict);
        }
        self.put_in_order(filter, tags, &mut counting, meter)?;
        counting.extend(others);
        Ok(counting)
    }

    /// The verdict on one tag. `chosen` is the compared text of the chosen tag.
    fn verdict(
        &self,
        filter: Option<&CompiledTagFilter<'_>>,
        tag: &str,
        chosen: Option<&str>,
        meter: &mut WorkMeter,
    ) -> Result<TagVerdict, PolicyError> {
        let compared = compared_of(filter, tag, meter)?;
        let length = compared.as_ref().map_or(0, String::len) as u64;
        meter.steps(2 * (self.steps_per_comparison() + length)).map_err(PolicyError::Comparison)?;
        meter.bytes(BYTES_PER_CANDIDATE + 3 * (tag.len() as u64 + length))?;
        let standing = match &compared {
            Some(text) => ranked_tags::standing(&self.ranking, text),
            None => TagEligibility::NotMatched,
        };
        let order = compared
            .as_deref()
            .zip(chosen)
            .and_then(|(text, chosen)| ranked_tags::compare(&self.ranking, text, chosen));
        Ok(TagVerdict { tag: tag.to_owned(), compared, standing, order })
    }

    /// Sorts the eligible tags in the order in which they would be chosen.
    fn put_in_order(
        &self,
        filter: Option<&FilterTags>,
        tags: &[String],
        counting: &mut [TagVerdict],
        meter: &mut WorkMeter,
    ) -> Result<(), PolicyError> {
        if counting.is_empty() {
            return Ok(());
        }
        let known: BTreeSet<&str> = counting.iter().map(|it| it.tag.as_str()).collect();
        // One that is listed twice counts as two.
        let tags: Vec<String> =
            tags.iter().filter(|tag| known.contains(tag.as_str())).cloned().collect();
        let best = self.best_tags(filter, &tags, MAX_ORDERED_TAGS, meter)?;
        let places: BTreeMap<&str, usize> =
            best.iter().enumerate().map(|(place, tag)| (tag.as_str(), place)).collect();
        counting.sort_by_key(|it| places.get(it.tag.as_str()).copied().unwrap_or(usize::MAX));
        Ok(())
    }
}

/// The text of a tag that is compared; `None` if the filter rejects the tag.
fn compared_of(
    filter: Option<&CompiledTagFilter<'_>>,
    tag: &str,
    meter: &mut WorkMeter,
) -> Result<Option<String>, PolicyError> {
    match filter {
        Some(filter) => filter.text(tag, meter),
        None => Ok(Some(tag.to_owned())),
    }
}
