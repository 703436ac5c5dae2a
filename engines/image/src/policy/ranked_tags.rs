//! Ranks strings by the order of each policy.
//!
//! Here: the positions of the best strings, with the best first. Each is the best of the strings that remain without the
//! earlier ones. Also how two strings compare, and why a string does not count.
//! Elsewhere: which strings are compared, and the allowed cost (`policy.rs`).

use std::cmp::Ordering;

use golang::semver::{SemverVersion, VersionConstraint};
use golang::strconv::parse_float;

use super::tag_verdict::TagEligibility;
use super::{PolicyError, TagRanking, TagSortOrder};

/// A version in the range, and its place.
struct RankedVersion {
    version: SemverVersion,
    place: usize,
}

/// The highest versions within a range. If versions are equal, the first one comes first. A version must have three parts.
pub(super) fn highest(range: &VersionConstraint, strings: &[&str], count: usize) -> Vec<usize> {
    let mut best: Vec<RankedVersion> = Vec::new();
    for (place, text) in strings.iter().enumerate() {
        let Some(version) = version_of(text) else { continue };
        let rank = best.partition_point(|better| better.version >= version);
        if rank < count && range.matches(&version) {
            best.insert(rank, RankedVersion { version, place });
            best.truncate(count);
        }
    }
    best.into_iter().map(|it| it.place).collect()
}

fn version_of(text: &str) -> Option<SemverVersion> {
    let has_three_parts = text.matches('.').count() >= 2;
    has_three_parts.then(|| SemverVersion::parse(text).ok()).flatten()
}

/// The last strings in bytewise order, or the first ones if the order is descending. If strings are equal, the last one comes
/// first, or the first one if the order is descending.
pub(super) fn outermost(order: TagSortOrder, strings: &[&str], count: usize) -> Vec<usize> {
    let mut best: Vec<usize> = Vec::new();
    for (place, text) in strings.iter().enumerate() {
        let is_better = |better: &usize| {
            strings.get(*better).is_some_and(|better| match order {
                TagSortOrder::Ascending => better > text,
                TagSortOrder::Descending => better <= text,
            })
        };
        let rank = best.partition_point(is_better);
        if rank < count {
            best.insert(rank, place);
            best.truncate(count);
        }
    }
    best
}

/// A number, and its place.
struct RankedNumber {
    number: f64,
    place: usize,
}

/// The largest or smallest numbers. If numbers are equal, the last one comes first. Parity(flux): NaN is better than what is
/// before it, and what follows it is better than NaN.
///
/// # Errors
/// A string is not a number.
pub(super) fn largest(
    order: TagSortOrder,
    strings: &[&str],
    count: usize,
) -> Result<Vec<usize>, PolicyError> {
    let mut left = Vec::new();
    for (place, text) in strings.iter().enumerate() {
        let number =
            parse_float(text, 64).map_err(|_| PolicyError::NotANumber((*text).to_owned()))?;
        left.push(RankedNumber { number, place });
    }
    let mut best = Vec::new();
    while best.len() < count && !left.is_empty() {
        let next = left.remove(best_number(order, &left));
        best.push(next.place);
    }
    Ok(best)
}

/// The place of the best of some numbers.
fn best_number(order: TagSortOrder, numbers: &[RankedNumber]) -> usize {
    let mut best = 0;
    let mut number = f64::NAN;
    for (at, next) in numbers.iter().enumerate() {
        let is_worse = match order {
            TagSortOrder::Ascending => next.number < number,
            TagSortOrder::Descending => next.number > number,
        };
        if !is_worse {
            best = at;
            number = next.number;
        }
    }
    best
}

/// Compares two strings in the order of a policy; `None` if one of them cannot be compared.
pub(super) fn compare(ranking: &TagRanking, text: &str, with: &str) -> Option<Ordering> {
    match ranking {
        TagRanking::SemVer { .. } => Some(version_of(text)?.cmp(&version_of(with)?)),
        TagRanking::Alphabetical(order) => Some(directed(text.cmp(with), *order)),
        TagRanking::Numerical(order) => {
            let number = parse_float(text, 64).ok()?;
            let other = parse_float(with, 64).ok()?;
            number.partial_cmp(&other).map(|ordering| directed(ordering, *order))
        }
    }
}

fn directed(ordering: Ordering, order: TagSortOrder) -> Ordering {
    match order {
        TagSortOrder::Ascending => ordering,
        TagSortOrder::Descending => ordering.reverse(),
    }
}

/// Whether a string is lower than another one; false if one of them cannot be compared.
pub(super) fn is_lower(ranking: &TagRanking, text: &str, than: &str) -> bool {
    compare(ranking, text, than) == Some(Ordering::Less)
}

/// Whether a string can be chosen, and if not, why.
pub(super) fn standing(ranking: &TagRanking, text: &str) -> TagEligibility {
    match ranking {
        TagRanking::SemVer { range, .. } => match version_of(text) {
            None => TagEligibility::NotAVersion,
            Some(version) if range.matches(&version) => TagEligibility::Counts,
            Some(_) => TagEligibility::OutsideRange,
        },
        TagRanking::Alphabetical(_) => TagEligibility::Counts,
        TagRanking::Numerical(_) if parse_float(text, 64).is_ok() => TagEligibility::Counts,
        TagRanking::Numerical(_) => TagEligibility::NotANumber,
    }
}
