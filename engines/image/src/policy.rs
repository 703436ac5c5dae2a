//! Chooses the latest tag of an image.
//!
//! Here: the three policies, and the filter that runs before them. In the folder: the order of each policy (`ranked_tags`), why
//! a tag is not chosen (`verdict`).
//! Elsewhere: ranges of versions and regular expressions (`golang`), the list of tags (`tag_list.rs`), the age of a digest
//! (`tag_history.rs`), digests (the sources).

mod ranked_tags;
mod tag_verdict;

use std::collections::{BTreeMap, BTreeSet};

use golang::regexp::{self, GoRegexp};
use golang::semver::VersionConstraint;
use golang::unicode::upper;
use golang::work_meter::{WorkLimitExceeded, WorkMeter};

use crate::tag_list::cost;

pub use tag_verdict::{TagEligibility, TagVerdict};

/// The longest `spec.filterTags.extract`, in bytes. Differs(flux): it has no limit.
const MAX_EXTRACT_BYTES: usize = 4096;

/// The approximate memory of an accepted tag besides its text, in bytes.
const BYTES_PER_CANDIDATE: u64 = 128;

/// `spec.policy` of an ImagePolicy. If several fields are set, the first one counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyChoice {
    /// `semver.range`.
    pub semver: Option<String>,
    /// `alphabetical.order`, which may be empty.
    pub alphabetical: Option<String>,
    /// `numerical.order`, likewise.
    pub numerical: Option<String>,
}

/// Which tags of an image count: `spec.filterTags` of an ImagePolicy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterTags {
    /// A tag is accepted if this regular expression matches a part of it.
    pub pattern: String,
    /// The text that is compared in place of the tag. `$name` stands for a group of the pattern. If it is empty, the tag is
    /// compared.
    pub extract: String,
}

/// Why there is no latest tag. The text is Flux's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// `spec.policy` means nothing.
    #[error("invalid policy: {0}")]
    Choice(String),
    /// `spec.filterTags.pattern` is not a regular expression.
    #[error("failed to filter tags: invalid regular expression pattern '{pattern}': {error}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The error in the pattern.
        error: regexp::Error,
    },
    /// `spec.filterTags.extract` is too long.
    #[error(
        "failed to filter tags: spec.filterTags.extract is longer than {MAX_EXTRACT_BYTES} bytes"
    )]
    Extract,
    /// Filtering this many tags costs too much.
    #[error("failed to filter tags: {0}; use a simpler pattern")]
    Work(#[from] WorkLimitExceeded),
    /// Comparing this many tags costs too much.
    #[error(
        "failed to compare tags: {0}; use a shorter range, or a filter that lets fewer tags through"
    )]
    Comparison(WorkLimitExceeded),
    /// The text that the filter extracts is too long.
    #[error("failed to filter tags: {0}")]
    Extraction(regexp::Error),
    /// No tag is left.
    #[error("version list argument cannot be empty")]
    NoTags,
    /// No tag is a version in the range.
    #[error("unable to determine latest version from provided list")]
    NoVersion,
    /// A tag is not a number.
    #[error("failed to parse invalid numeric value '{0}'")]
    NotANumber(String),
}

impl PolicyError {
    /// Whether other tags change nothing, so that the spec has to be changed.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Choice(_) | Self::Pattern { .. } | Self::Extract => true,
            Self::Work(_)
            | Self::Comparison(_)
            | Self::Extraction(_)
            | Self::NoTags
            | Self::NoVersion
            | Self::NotANumber(_) => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TagSortOrder {
    Ascending,
    Descending,
}

#[derive(Debug, Clone)]
enum TagRanking {
    SemVer { range: VersionConstraint, range_bytes: u64 },
    Alphabetical(TagSortOrder),
    Numerical(TagSortOrder),
}

/// A policy that chooses one of several tags.
#[derive(Debug, Clone)]
pub struct TagPolicy {
    ranking: TagRanking,
}

/// A tag that the filter lets through.
struct TagCandidate<'t> {
    /// The text that is compared.
    text: String,
    tag: &'t str,
    /// Earlier tags with the same text, which this tag replaces.
    replaced: Vec<&'t str>,
}

impl<'t> TagCandidate<'t> {
    /// The tag, then the tags that it replaces, with the last one first.
    fn tags(&self) -> impl Iterator<Item = &'t str> {
        std::iter::once(self.tag).chain(self.replaced.iter().rev().copied())
    }
}

impl TagPolicy {
    /// Reads `spec.policy`.
    ///
    /// # Errors
    /// There is no policy, its range is not valid, or its order is neither `asc` nor `desc` in upper or lower case.
    pub fn new(choice: &PolicyChoice) -> Result<Self, PolicyError> {
        let ranking = match choice {
            PolicyChoice { semver: Some(range), .. } => {
                let range_bytes = range.len() as u64;
                let range =
                    VersionConstraint::parse_in_go_words(range).map_err(PolicyError::Choice)?;
                TagRanking::SemVer { range, range_bytes }
            }
            PolicyChoice { alphabetical: Some(text), .. } => TagRanking::Alphabetical(order(text)?),
            PolicyChoice { numerical: Some(text), .. } => TagRanking::Numerical(order(text)?),
            _ => {
                let text = "given ImagePolicyChoice object is invalid".to_owned();
                return Err(PolicyError::Choice(text));
            }
        };
        Ok(Self { ranking })
    }

    /// The latest of the tags that a filter accepts. If tags are equal, their position in the list decides.
    ///
    /// Differs(flux): tags that are equal after the filter are taken in the order of the list, too; in Flux the order is
    /// random.
    ///
    /// # Errors
    /// The filter is invalid, filtering or comparing costs more than `meter` allows, no tag is left, or a tag is not a number.
    pub fn latest(
        &self,
        filter: Option<&FilterTags>,
        tags: &[String],
        meter: &mut WorkMeter,
    ) -> Result<String, PolicyError> {
        let best = self.best_tags(filter, tags, 1, meter)?;
        best.into_iter().next().ok_or(PolicyError::NoTags)
    }

    /// The best tags, up to `count`, with the best first. Each one is the latest of the tags that remain without the earlier
    /// ones. A tag that is listed twice appears once but uses up two places.
    ///
    /// # Errors
    /// As for [`Self::latest`].
    pub fn best_tags(
        &self,
        filter: Option<&FilterTags>,
        tags: &[String],
        count: usize,
        meter: &mut WorkMeter,
    ) -> Result<Vec<String>, PolicyError> {
        let best: Vec<String> = if let Some(filter) = filter {
            let candidates = filter.candidates(tags, meter)?;
            let strings: Vec<&str> = candidates.iter().map(|it| it.text.as_str()).collect();
            let places = self.best(&strings, count, meter)?;
            let best = places.into_iter().filter_map(|place| candidates.get(place));
            best.flat_map(TagCandidate::tags).take(count).map(str::to_owned).collect()
        } else {
            let strings: Vec<&str> = tags.iter().map(String::as_str).collect();
            let places = self.best(&strings, count, meter)?;
            places.into_iter().filter_map(|place| tags.get(place)).cloned().collect()
        };
        let mut known = BTreeSet::new();
        Ok(best.into_iter().filter(|tag| known.insert(tag.clone())).collect())
    }

    /// The tags that are not lower than the tag `than` in the order of this policy, in the order of `tags`. A tag that
    /// cannot be compared with it is not lower.
    ///
    /// # Errors
    /// The filter is invalid, or costs more than `meter` allows.
    pub fn not_lower(
        &self,
        filter: Option<&FilterTags>,
        tags: &[String],
        than: &str,
        meter: &mut WorkMeter,
    ) -> Result<Vec<String>, PolicyError> {
        let filter = filter.map(FilterTags::compiled).transpose()?;
        let mut text_of = |tag: &str| match &filter {
            Some(filter) => filter.text(tag, meter),
            None => Ok(Some(tag.to_owned())),
        };
        let Some(than) = text_of(than)? else { return Ok(tags.to_vec()) };
        let mut left = Vec::new();
        for tag in tags {
            let text = text_of(tag)?;
            if text.is_none_or(|text| !ranked_tags::is_lower(&self.ranking, &text, &than)) {
                left.push(tag.clone());
            }
        }
        Ok(left)
    }

    /// The steps for one comparison of a string, in addition to the steps for its length.
    fn steps_per_comparison(&self) -> u64 {
        match &self.ranking {
            TagRanking::SemVer { range_bytes, .. } => 1 + *range_bytes,
            TagRanking::Alphabetical(_) | TagRanking::Numerical(_) => 1,
        }
    }

    /// The places of the best of some strings, best first.
    fn best(
        &self,
        strings: &[&str],
        count: usize,
        meter: &mut WorkMeter,
    ) -> Result<Vec<usize>, PolicyError> {
        if strings.is_empty() {
            return Err(PolicyError::NoTags);
        }
        // For each of the best numbers, the list is searched once.
        let repetitions = match &self.ranking {
            TagRanking::SemVer { .. } | TagRanking::Alphabetical(_) => 1,
            TagRanking::Numerical(_) => count as u64,
        };
        for text in strings {
            let steps = self.steps_per_comparison() * repetitions + text.len() as u64;
            meter.steps(steps).map_err(PolicyError::Comparison)?;
        }
        match &self.ranking {
            TagRanking::SemVer { range, .. } => {
                let best = ranked_tags::highest(range, strings, count);
                if best.is_empty() { Err(PolicyError::NoVersion) } else { Ok(best) }
            }
            TagRanking::Numerical(order) => ranked_tags::largest(*order, strings, count),
            TagRanking::Alphabetical(order) => Ok(ranked_tags::outermost(*order, strings, count)),
        }
    }
}

/// A filter with a compiled pattern.
struct CompiledTagFilter<'f> {
    pattern: GoRegexp,
    extract: &'f str,
}

impl CompiledTagFilter<'_> {
    /// The text of a tag that is compared; `None` if the filter rejects the tag.
    fn text(&self, tag: &str, meter: &mut WorkMeter) -> Result<Option<String>, PolicyError> {
        meter.steps(cost(&self.pattern, tag))?;
        if self.extract.is_empty() {
            return Ok(self.pattern.is_match(tag).then(|| tag.to_owned()));
        }
        self.pattern.expand_first(tag, self.extract).map_err(PolicyError::Extraction)
    }
}

impl FilterTags {
    fn compiled(&self) -> Result<CompiledTagFilter<'_>, PolicyError> {
        let pattern = GoRegexp::new(&self.pattern).map_err(|error| {
            let pattern = self.pattern.clone();
            PolicyError::Pattern { pattern, error }
        })?;
        if self.extract.len() > MAX_EXTRACT_BYTES {
            return Err(PolicyError::Extract);
        }
        Ok(CompiledTagFilter { pattern, extract: &self.extract })
    }

    /// The tags that the filter accepts.
    ///
    /// Parity(flux): of tags with the same extraction the last stays, in the place of the first.
    fn candidates<'t>(
        &self,
        tags: &'t [String],
        meter: &mut WorkMeter,
    ) -> Result<Vec<TagCandidate<'t>>, PolicyError> {
        let filter = self.compiled()?;
        let mut candidates: Vec<TagCandidate<'t>> = Vec::new();
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for tag in tags {
            let Some(text) = filter.text(tag, meter)? else { continue };
            // The text is stored twice.
            meter.bytes(BYTES_PER_CANDIDATE + 2 * text.len() as u64)?;
            match known.get(&text).and_then(|at| candidates.get_mut(*at)) {
                Some(same) => same.replaced.push(std::mem::replace(&mut same.tag, tag.as_str())),
                None => {
                    known.insert(text.clone(), candidates.len());
                    candidates.push(TagCandidate { text, tag, replaced: Vec::new() });
                }
            }
        }
        Ok(candidates)
    }
}

fn order(text: &str) -> Result<TagSortOrder, PolicyError> {
    match upper(text).as_str() {
        "" | "ASC" => Ok(TagSortOrder::Ascending),
        "DESC" => Ok(TagSortOrder::Descending),
        other => Err(PolicyError::Choice(format!(
            "invalid order argument provided: '{other}', must be one of: ASC, DESC"
        ))),
    }
}

#[cfg(test)]
mod tests;
