//! Which tag of an image is the latest.
//!
//! Here: the three policies, and the filter in front of them. Elsewhere: ranges of versions and regular expressions
//! (`golang`), which tags there are (`tag_list.rs`), digests (the sources).

use std::collections::BTreeMap;

use golang::regexp::{self, GoRegexp};
use golang::semver::{SemverVersion, VersionConstraint};
use golang::strconv::parse_float;
use golang::unicode::upper;
use golang::work_meter::{WorkLimitExceeded, WorkMeter};

use crate::tag_list::cost;

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
    /// Whether other tags change nothing: the spec has to.
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
        let Some(filter) = filter else {
            let strings: Vec<&str> = tags.iter().map(String::as_str).collect();
            let best = self.best(&strings, meter)?;
            return strings.get(best).map(|tag| (*tag).to_owned()).ok_or(PolicyError::NoTags);
        };
        let candidates = filter.candidates(tags, meter)?;
        let strings: Vec<&str> = candidates.iter().map(|it| it.text.as_str()).collect();
        let best = self.best(&strings, meter)?;
        candidates.get(best).map(|it| it.tag.to_owned()).ok_or(PolicyError::NoTags)
    }

    /// The place of the best of some strings.
    fn best(&self, strings: &[&str], meter: &mut WorkMeter) -> Result<usize, PolicyError> {
        if strings.is_empty() {
            return Err(PolicyError::NoTags);
        }
        let range_bytes = match &self.ranking {
            TagRanking::SemVer { range_bytes, .. } => *range_bytes,
            TagRanking::Alphabetical(_) | TagRanking::Numerical(_) => 0,
        };
        for text in strings {
            meter.steps(1 + range_bytes + text.len() as u64).map_err(PolicyError::Comparison)?;
        }
        match &self.ranking {
            TagRanking::SemVer { range, .. } => highest(range, strings),
            TagRanking::Numerical(order) => largest(*order, strings),
            TagRanking::Alphabetical(order) => {
                let places = strings.iter().enumerate();
                let best = match order {
                    TagSortOrder::Ascending => places.max_by_key(|(_, text)| **text),
                    TagSortOrder::Descending => places.min_by_key(|(_, text)| **text),
                };
                best.map(|(at, _)| at).ok_or(PolicyError::NoTags)
            }
        }
    }
}

impl FilterTags {
    /// The tags that are let through.
    ///
    /// Parity(flux): of tags with the same extraction the last stays, in the place of the first.
    fn candidates<'t>(
        &self,
        tags: &'t [String],
        meter: &mut WorkMeter,
    ) -> Result<Vec<TagCandidate<'t>>, PolicyError> {
        let pattern = GoRegexp::new(&self.pattern).map_err(|error| {
            let pattern = self.pattern.clone();
            PolicyError::Pattern { pattern, error }
        })?;
        if self.extract.len() > MAX_EXTRACT_BYTES {
            return Err(PolicyError::Extract);
        }
        let mut candidates: Vec<TagCandidate<'t>> = Vec::new();
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for tag in tags {
            meter.steps(cost(&pattern, tag))?;
            let text = if self.extract.is_empty() {
                pattern.is_match(tag).then(|| tag.clone())
            } else {
                pattern.expand_first(tag, &self.extract).map_err(PolicyError::Extraction)?
            };
            let Some(text) = text else { continue };
            // It is kept twice.
            meter.bytes(BYTES_PER_CANDIDATE + 2 * text.len() as u64)?;
            match known.get(&text).and_then(|at| candidates.get_mut(*at)) {
                Some(same) => same.tag = tag,
                None => {
                    known.insert(text.clone(), candidates.len());
                    candidates.push(TagCandidate { text, tag });
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

/// The first of the highest versions in a range. Only what has three parts is a version.
fn highest(range: &VersionConstraint, strings: &[&str]) -> Result<usize, PolicyError> {
    let mut best: Option<(SemverVersion, usize)> = None;
    for (at, text) in strings.iter().enumerate() {
        if text.matches('.').count() < 2 {
            continue;
        }
        let Ok(version) = SemverVersion::parse(text) else { continue };
        let is_better = best.as_ref().is_none_or(|(highest, _)| version > *highest);
        if is_better && range.matches(&version) {
            best = Some((version, at));
        }
    }
    best.map(|(_, at)| at).ok_or(PolicyError::NoVersion)
}

/// The last of the largest or smallest numbers. Parity(flux): NaN is better than what is before it, and what follows it
/// is better than NaN.
fn largest(order: TagSortOrder, strings: &[&str]) -> Result<usize, PolicyError> {
    let mut best = 0;
    let mut number = f64::NAN;
    for (at, text) in strings.iter().enumerate() {
        let next =
            parse_float(text, 64).map_err(|_| PolicyError::NotANumber((*text).to_owned()))?;
        let is_worse = match order {
            TagSortOrder::Ascending => next < number,
            TagSortOrder::Descending => next > number,
        };
        if !is_worse {
            best = at;
            number = next;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};
    use proptest::prelude::*;

    use super::*;

    fn latest(
        choice: &PolicyChoice,
        filter: Option<&FilterTags>,
        tags: &[&str],
    ) -> Result<String, PolicyError> {
        let tags: Vec<String> = tags.iter().map(|it| (*it).to_owned()).collect();
        let allowance = WorkAllowance { steps: 10_000_000, bytes: 1 << 20 };
        TagPolicy::new(choice)?.latest(
            filter,
            &tags,
            &mut WorkMeter::new(allowance, StopSignal::default()),
        )
    }

    fn semver(range: &str) -> PolicyChoice {
        PolicyChoice { semver: Some(range.to_owned()), ..PolicyChoice::default() }
    }

    fn numerical(order: &str) -> PolicyChoice {
        PolicyChoice { numerical: Some(order.to_owned()), ..PolicyChoice::default() }
    }

    fn filter(pattern: &str, extract: &str) -> FilterTags {
        FilterTags { pattern: pattern.to_owned(), extract: extract.to_owned() }
    }

    #[test]
    fn of_equal_ones_the_list_decides() {
        assert_eq!(latest(&semver("*"), None, &["v1.0.0", "1.0.0", "1.0"]).unwrap(), "v1.0.0");
        assert_eq!(latest(&numerical("asc"), None, &["1", "01", "1.0", "0"]).unwrap(), "1.0");
        let build = filter(r"^main-(?P<n>\d+)-", "$n");
        let tags = ["main-2-b", "main-2-a", "main-1-z", "other"];
        assert_eq!(latest(&numerical(""), Some(&build), &tags).unwrap(), "main-2-a");
    }

    #[test]
    fn a_tag_that_is_no_number_fails_the_policy() {
        let error = latest(&numerical("desc"), None, &["1", "latest"]).unwrap_err();
        assert_eq!(error.to_string(), "failed to parse invalid numeric value 'latest'");
        assert!(!error.is_terminal());
        let error = latest(&numerical("sideways"), None, &["1"]).unwrap_err();
        assert!(error.is_terminal());
        assert!(
            error
                .to_string()
                .starts_with("invalid policy: invalid order argument provided: 'SIDEWAYS'")
        );
    }

    #[test]
    fn a_filter_that_costs_too_much_is_an_error() {
        let long = "a".repeat(1 << 20);
        let error =
            latest(&semver("*"), Some(&filter("(a|b)*c", "")), &[long.as_str()]).unwrap_err();
        assert!(matches!(error, PolicyError::Work(_)) && !error.is_terminal(), "{error}");
        let error =
            latest(&semver("*"), Some(&filter("a", &"$0".repeat(4096))), &["a"]).unwrap_err();
        assert!(matches!(error, PolicyError::Extract) && error.is_terminal(), "{error}");
        let doubled = filter("(?s).*", &"$0".repeat(2048));
        let error = latest(&semver("*"), Some(&doubled), &[&long[..4096]]).unwrap_err();
        assert!(matches!(error, PolicyError::Work(_)), "{error}");
    }

    #[test]
    fn comparing_and_keeping_tags_is_counted() {
        let tags: Vec<String> = (0..1_000).map(|at| format!("1.0.{at}")).collect();
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: 200_000, bytes: 0 }, StopSignal::default());
        let range = vec!["1.0.0"; 30].join("||");
        let error = TagPolicy::new(&semver(&range)).unwrap().latest(None, &tags, &mut meter);
        assert_eq!(error, Err(PolicyError::Comparison(WorkLimitExceeded::Steps(200_000))));
        let bytes = 1_000 * BYTES_PER_CANDIDATE;
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: u64::MAX, bytes }, StopSignal::default());
        let filter = filter(".", "");
        let error = TagPolicy::new(&semver("*")).unwrap().latest(Some(&filter), &tags, &mut meter);
        assert_eq!(error, Err(PolicyError::Work(WorkLimitExceeded::Bytes(bytes))));
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_one_of_the_tags(
            tags in prop::collection::vec("[v0-9.a-z-]{0,10}", 0..8),
            pattern in "[a-z0-9.*+()\\^$|-]{0,8}",
            extract in "[$0-9{}a-z]{0,6}",
            range in "[0-9.*x~^<>= |-]{0,10}",
        ) {
            let known: Vec<&str> = tags.iter().map(String::as_str).collect();
            let alphabetical = PolicyChoice { alphabetical: Some(String::new()), ..PolicyChoice::default() };
            for choice in [semver(&range), numerical("desc"), alphabetical] {
                for filter in [None, Some(&filter(&pattern, &extract))] {
                    if let Ok(tag) = latest(&choice, filter, &known) {
                        prop_assert!(tags.contains(&tag));
                    }
                }
            }
        }
    }
}
