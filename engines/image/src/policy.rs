//! Which tag of an image is the latest.
//!
//! Here: the three policies, and the filter in front of them. In the folder: how each orders strings (`ranked_tags`), why a tag is not
//! chosen (`verdict`). Elsewhere: ranges of versions and regular expressions (`golang`), which tags there are (`tag_list.rs`),
//! how long a digest is known (`tag_history.rs`), digests (the sources).

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

/// Bytes that a tag that the filter lets through takes beside its text, about.
const BYTES_PER_CANDIDATE: u64 = 128;

/// `spec.policy` of an ImagePolicy: the first that is there counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyChoice {
    /// `semver.range`.
    pub semver: Option<String>,
    /// `alphabetical.order`, which may be empty.
    pub alphabetical: Option<String>,
    /// `numerical.order`, likewise.
    pub numerical: Option<String>,
}

/// `spec.filterTags` of an ImagePolicy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterTags {
    /// Tags in which it is found count.
    pub pattern: String,
    /// What is compared instead of the tag, in which `$name` is a group of the pattern; empty: the tag.
    pub extract: String,
}

/// Why there is no latest tag, in Flux's words.
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
        /// What is wrong with it.
        error: regexp::Error,
    },
    /// `spec.filterTags.extract` is too long.
    #[error(
        "failed to filter tags: spec.filterTags.extract is longer than {MAX_EXTRACT_BYTES} bytes"
    )]
    Extract,
    /// The filter costs too much for so many tags.
    #[error("failed to filter tags: {0}; use a simpler pattern")]
    Work(#[from] WorkLimitExceeded),
    /// Comparing so many tags costs too much.
    #[error(
        "failed to compare tags: {0}; use a shorter range, or a filter that lets fewer tags through"
    )]
    Comparison(WorkLimitExceeded),
    /// What the filter extracts is too long.
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

/// A way to choose one of several tags.
#[derive(Debug, Clone)]
pub struct TagPolicy {
    ranking: TagRanking,
}

/// A tag that the filter lets through.
struct TagCandidate<'t> {
    /// What is compared.
    text: String,
    tag: &'t str,
    /// Tags with the same text, in whose place this one is.
    replaced: Vec<&'t str>,
}

impl<'t> TagCandidate<'t> {
    /// The tag, then those in whose place it is, the last first.
    fn tags(&self) -> impl Iterator<Item = &'t str> {
        std::iter::once(self.tag).chain(self.replaced.iter().rev().copied())
    }
}

impl TagPolicy {
    /// Reads `spec.policy`.
    ///
    /// # Errors
    /// It has no policy, its range is not valid, or its order is neither `asc` nor `desc` in any case.
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

    /// The latest of some tags, of those that a filter lets through. Their order decides between equal ones.
    ///
    /// Differs(flux): tags that are equal after the filter are taken in the order of the list, too; in Flux the order
    /// is random.
    ///
    /// # Errors
    /// The filter is invalid, it or comparing the tags costs more than `meter` allows, no tag is left, or one is not a number.
    pub fn latest(
        &self,
        filter: Option<&FilterTags>,
        tags: &[String],
        meter: &mut WorkMeter,
    ) -> Result<String, PolicyError> {
        let best = self.best_tags(filter, tags, 1, meter)?;
        best.into_iter().next().ok_or(PolicyError::NoTags)
    }

    /// The best of some tags, best first, and not more than `count`: each is the latest of those that are left without the
    /// ones before it. A tag that is listed twice is there once, and counts as two.
    ///
    /// # Errors
    /// As of [`Self::latest`].
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

    /// How many steps it takes to compare a string once, beside those for its length.
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
        // Numbers are gone through for each of the best.
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

/// A filter whose pattern was compiled.
struct CompiledFilter<'f> {
    pattern: GoRegexp,
    extract: &'f str,
}

impl CompiledFilter<'_> {
    /// What is compared of a tag; `None` if it is not let through.
    fn text(&self, tag: &str, meter: &mut WorkMeter) -> Result<Option<String>, PolicyError> {
        meter.steps(cost(&self.pattern, tag))?;
        if self.extract.is_empty() {
            return Ok(self.pattern.is_match(tag).then(|| tag.to_owned()));
        }
        self.pattern.expand_first(tag, self.extract).map_err(PolicyError::Extraction)
    }
}

impl FilterTags {
    fn compiled(&self) -> Result<CompiledFilter<'_>, PolicyError> {
        let pattern = GoRegexp::new(&self.pattern).map_err(|error| {
            let pattern = self.pattern.clone();
            PolicyError::Pattern { pattern, error }
        })?;
        if self.extract.len() > MAX_EXTRACT_BYTES {
            return Err(PolicyError::Extract);
        }
        Ok(CompiledFilter { pattern, extract: &self.extract })
    }

    /// The tags that are let through.
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
            // It is kept twice.
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
