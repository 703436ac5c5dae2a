//! Matching by the shortcuts of gobwas/glob.
//!
//! Parity(gobwas): some lengths count characters and others bytes, and the first position where a part is found is
//! taken for the only one. Both is kept, because it decides what matches. Strings are bytes, since cutting by such
//! lengths can cut within a character.
//! Elsewhere: which shortcut is taken (`compile.rs`).

/// A way to match a part of a text.
#[derive(Debug, Clone)]
pub(super) enum GlobMatcher {
    Nothing,
    Text(String),
    /// Matches one character that is not a separator.
    Single(Vec<char>),
    List {
        characters: Vec<char>,
        is_negated: bool,
    },
    Range {
        low: char,
        high: char,
        is_negated: bool,
    },
    /// Matches any text without separators.
    Any(Vec<char>),
    /// Matches every text.
    Super,
    /// Matches at least this number of characters.
    Min(usize),
    /// Matches at most this number of characters.
    Max(usize),
    Contains(String),
    ContainsNot(String),
    Prefix(String),
    Suffix(String),
    PrefixSuffix(String, String),
    /// Matches a prefix, followed by text without separators.
    PrefixAny(String, Vec<char>),
    /// Matches a suffix, preceded by text without separators.
    SuffixAny(String, Vec<char>),
    AnyOf(Vec<Self>),
    EveryOf(Vec<Self>),
    /// Matches several parts of known lengths in a row. The number is the sum of the lengths.
    Row(Vec<Self>, usize),
    Tree(Box<GlobMatcherTree>),
}

/// A matcher that is searched in a text, with the matchers for the text before and after it.
#[derive(Debug, Clone)]
pub(super) struct GlobMatcherTree {
    pub(super) value: GlobMatcher,
    pub(super) left: Option<GlobMatcher>,
    pub(super) right: Option<GlobMatcher>,
    /// The lengths of `left` and `right` when the tree was made. They are 0 if there is no such part.
    pub(super) left_length: Option<usize>,
    pub(super) right_length: Option<usize>,
    pub(super) length: Option<usize>,
}

/// How many steps may still be taken.
pub(super) struct MatchStepBudget(usize);

impl MatchStepBudget {
    pub(super) fn new(steps: usize) -> Self {
        Self(steps)
    }

    /// How many steps are left.
    pub(super) fn left(&self) -> usize {
        self.0
    }

    /// Whether any steps are left.
    pub(super) fn are_left(&self) -> bool {
        self.0 > 0
    }

    fn take(&mut self, steps: usize) {
        self.0 = self.0.saturating_sub(steps);
    }
}

impl GlobMatcherTree {
    pub(super) fn new(
        value: GlobMatcher,
        left: Option<GlobMatcher>,
        right: Option<GlobMatcher>,
    ) -> Self {
        let length_of =
            |side: &Option<GlobMatcher>| side.as_ref().map_or(Some(0), GlobMatcher::length);
        let left_length = length_of(&left);
        let right_length = length_of(&right);
        let length = value.length().zip(left_length).zip(right_length);
        let length = length.map(|((value, left), right)| value + left + right);
        Self { value, left, right, left_length, right_length, length }
    }

    fn is_match(&self, text: &[u8], steps: &mut MatchStepBudget) -> bool {
        if self.length.is_some_and(|length| length > text.len()) {
            return false;
        }
        let mut offset = self.left_length.unwrap_or(0);
        let Some(limit) = text.len().checked_sub(self.right_length.unwrap_or(0)) else {
            return false;
        };
        let side = |side: &Option<GlobMatcher>, text: &[u8], steps: &mut MatchStepBudget| match side
        {
            Some(matcher) => matcher.is_match(text, steps),
            None => text.is_empty(),
        };
        while offset < limit && steps.are_left() {
            let Some((index, ends)) = self.value.find(&text[offset..limit], steps) else {
                return false;
            };
            let start = offset + index;
            if side(&self.left, &text[..start], steps) {
                for end in ends.iter().rev() {
                    if side(&self.right, text.get(start + end..).unwrap_or_default(), steps) {
                        return true;
                    }
                }
            }
            let (_, width) = decode(&text[start..]);
            if width == 0 {
                return false;
            }
            offset = start + width;
        }
        false
    }
}

impl GlobMatcher {
    /// How many characters the matcher matches. `None` if the number varies.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Self::Nothing => Some(0),
            Self::Text(text) => Some(text.chars().count()),
            Self::Single(_) | Self::List { .. } | Self::Range { .. } => Some(1),
            Self::Row(_, length) => Some(*length),
            Self::Tree(tree) => tree.length,
            // Parity(gobwas): an alternative without a known length does not count if it comes first.
            Self::AnyOf(alternatives) => {
                let mut length = None;
                for own in alternatives.iter().map(Self::length) {
                    match length {
                        None => length = own,
                        Some(_) if own != length => return None,
                        Some(_) => {}
                    }
                }
                length
            }
            Self::EveryOf(matchers) => matchers.is_empty().then_some(0),
            Self::Any(_)
            | Self::Super
            | Self::Min(_)
            | Self::Max(_)
            | Self::Contains(_)
            | Self::ContainsNot(_)
            | Self::Prefix(_)
            | Self::Suffix(_)
            | Self::PrefixSuffix(..)
            | Self::PrefixAny(..)
            | Self::SuffixAny(..) => None,
        }
    }

    /// Whether the matcher matches a whole text. Without steps left, the answer may be wrong.
    pub(super) fn is_match(&self, text: &[u8], steps: &mut MatchStepBudget) -> bool {
        steps.take(text.len() + 1);
        if !steps.are_left() {
            return false;
        }
        match self {
            Self::Nothing => text.is_empty(),
            Self::Text(wanted) => text == wanted.as_bytes(),
            Self::Single(_) | Self::List { .. } | Self::Range { .. } => {
                let (character, width) = decode(text);
                text.len() <= width && self.takes(character)
            }
            Self::Any(separators) => index_any(text, separators).is_none(),
            Self::Super => true,
            Self::Min(least) => characters(text).count() >= *least,
            Self::Max(most) => characters(text).count() <= *most,
            Self::Contains(needle) => index(text, needle.as_bytes()).is_some(),
            Self::ContainsNot(needle) => index(text, needle.as_bytes()).is_none(),
            Self::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
            Self::Suffix(suffix) => text.ends_with(suffix.as_bytes()),
            // Parity(gobwas): the two may overlap.
            Self::PrefixSuffix(prefix, suffix) => {
                text.starts_with(prefix.as_bytes()) && text.ends_with(suffix.as_bytes())
            }
            Self::PrefixAny(prefix, separators) => text
                .strip_prefix(prefix.as_bytes())
                .is_some_and(|rest| index_any(rest, separators).is_none()),
            Self::SuffixAny(suffix, separators) => text
                .strip_suffix(suffix.as_bytes())
                .is_some_and(|rest| index_any(rest, separators).is_none()),
            Self::AnyOf(matchers) => matchers.iter().any(|matcher| matcher.is_match(text, steps)),
            Self::EveryOf(matchers) => matchers.iter().all(|matcher| matcher.is_match(text, steps)),
            Self::Row(matchers, length) => {
                characters(text).count() == *length && row_matches(matchers, text, steps)
            }
            Self::Tree(tree) => tree.is_match(text, steps),
        }
    }

    /// Whether a matcher for a single character accepts this one.
    fn takes(&self, character: u32) -> bool {
        let is_in = |list: &[char]| list.iter().any(|known| u32::from(*known) == character);
        match self {
            Self::Single(separators) => !is_in(separators),
            Self::List { characters, is_negated } => is_in(characters) != *is_negated,
            Self::Range { low, high, is_negated } => {
                (u32::from(*low)..=u32::from(*high)).contains(&character) != *is_negated
            }
            _ => false,
        }
    }

    /// The first position where the matcher matches, with the possible lengths of the match in ascending order. `None`
    /// if the matcher matches nowhere.
    fn find(&self, text: &[u8], steps: &mut MatchStepBudget) -> Option<(usize, Vec<usize>)> {
        steps.take(text.len() + 1);
        match self {
            Self::Nothing => Some((0, vec![0])),
            Self::Text(wanted) => Some((index(text, wanted.as_bytes())?, vec![wanted.len()])),
            Self::Single(_) | Self::List { .. } | Self::Range { .. } => {
                let found = characters(text).find(|(_, character)| self.takes(*character));
                found.map(|(at, character)| (at, vec![encoded_length(character)]))
            }
            Self::Any(separators) => {
                let end = index_any(text, separators).unwrap_or(text.len());
                Some((0, starts_and_end(&text[..end], 0)))
            }
            Self::Super => Some((0, starts_and_end(text, 0))),
            Self::Min(least) => {
                let ends: Vec<usize> = ends(text, 0).skip(least.saturating_sub(1)).collect();
                (!ends.is_empty()).then_some((0, ends))
            }
            Self::Max(most) => {
                Some((0, std::iter::once(0).chain(ends(text, 0).take(*most)).collect()))
            }
            Self::Contains(needle) => {
                let behind = index(text, needle.as_bytes())? + needle.len();
                Some((0, starts_and_end(&text[behind..], behind)))
            }
            Self::ContainsNot(needle) => {
                let end = index(text, needle.as_bytes()).unwrap_or(text.len());
                Some((0, starts_and_end(&text[..end], 0)))
            }
            Self::Prefix(prefix) => {
                let at = index(text, prefix.as_bytes())?;
                Some((at, prefixed(&text[at..], prefix.len(), &[])))
            }
            Self::Suffix(suffix) => Some((0, vec![index(text, suffix.as_bytes())? + suffix.len()])),
            Self::PrefixSuffix(prefix, suffix) => {
                let at = index(text, prefix.as_bytes())?;
                let ends = ends_of(&text[at..], suffix.as_bytes());
                (!ends.is_empty()).then_some((at, ends))
            }
            Self::PrefixAny(prefix, separators) => {
                let at = index(text, prefix.as_bytes())?;
                Some((at, prefixed(&text[at..], prefix.len(), separators)))
            }
            Self::SuffixAny(suffix, separators) => {
                let at = index(text, suffix.as_bytes())?;
                let start = last_index_any(&text[..at], separators).map_or(0, |index| index + 1);
                Some((start, vec![at + suffix.len() - start]))
            }
            Self::AnyOf(matchers) => find_any(matchers, text, steps),
            Self::EveryOf(matchers) => find_every(matchers, text, steps),
            Self::Row(matchers, length) => characters(text)
                .map(|(at, _)| at)
                .take_while(|at| text.len() - at >= *length)
                .find(|at| row_matches(matchers, &text[*at..], steps))
                .map(|at| (at, vec![*length])),
            // Parity(gobwas): a tree within another is not searched for.
            Self::Tree(_) => None,
        }
    }
}

/// Matches the beginning of a text with matchers of known lengths.
///
/// Parity(gobwas): of the last character that each gets, only the first byte is passed on.
fn row_matches(matchers: &[GlobMatcher], text: &[u8], steps: &mut MatchStepBudget) -> bool {
    let mut rest = text;
    for matcher in matchers {
        let length = matcher.length().unwrap_or(0);
        let mut seen = (0, 0);
        for (count, (at, _)) in (1..).zip(characters(rest)) {
            seen = (count, at);
            if count == length {
                break;
            }
        }
        let (count, last) = seen;
        // Differs(gobwas): where nothing is left for a matcher of nothing, it ends in a panic.
        let Some((own, after)) = rest.split_at_checked(last + 1) else { return false };
        if count < length || !steps.are_left() || !matcher.is_match(own, steps) {
            return false;
        }
        rest = after;
    }
    true
}

/// The first position where one of the matchers matches, with the lengths of all matches there. `None` if none of them
/// matches.
fn find_any(
    matchers: &[GlobMatcher],
    text: &[u8],
    steps: &mut MatchStepBudget,
) -> Option<(usize, Vec<usize>)> {
    let mut first: Option<(usize, Vec<usize>)> = None;
    for (at, ends) in matchers.iter().filter_map(|matcher| matcher.find(text, steps)) {
        match &mut first {
            Some((index, all)) if at == *index => {
                all.extend(ends);
                all.sort_unstable();
                all.dedup();
            }
            Some((index, _)) if at > *index => {}
            _ => first = Some((at, ends)),
        }
    }
    first
}

/// The match lengths on which all matchers agree, with position 0. These joined matchers always match at the beginning
/// of a text. `None` if there are no matchers or one does not match.
fn find_every(
    matchers: &[GlobMatcher],
    text: &[u8],
    steps: &mut MatchStepBudget,
) -> Option<(usize, Vec<usize>)> {
    let mut common: Option<Vec<usize>> = None;
    for matcher in matchers {
        let (_, ends) = matcher.find(text, steps)?;
        common = Some(match common {
            None => ends,
            Some(mut before) => {
                before.retain(|end| ends.binary_search(end).is_ok());
                before
            }
        });
    }
    common.filter(|ends| !ends.is_empty()).map(|ends| (0, ends))
}

/// Decodes a character as Go does, with its width. A byte that is not UTF-8 gives U+FFFD with the width 1.
fn decode(text: &[u8]) -> (u32, usize) {
    let window = &text[..text.len().min(4)];
    match window.utf8_chunks().next() {
        None => (u32::from(char::REPLACEMENT_CHARACTER), 0),
        Some(chunk) => match chunk.valid().chars().next() {
            Some(character) => (character.into(), character.len_utf8()),
            None => (u32::from(char::REPLACEMENT_CHARACTER), 1),
        },
    }
}

/// The characters of a text, with their positions.
fn characters(text: &[u8]) -> impl Iterator<Item = (usize, u32)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (character, width) = decode(&text[at..]);
        let begin = at;
        at += width;
        (width > 0).then_some((begin, character))
    })
}

/// The length of a character in UTF-8. Parity(gobwas): three for a byte that is not UTF-8.
fn encoded_length(character: u32) -> usize {
    char::from_u32(character).map_or(3, char::len_utf8)
}

/// The end positions of the characters.
fn ends(text: &[u8], offset: usize) -> impl Iterator<Item = usize> {
    characters(text).map(move |(at, character)| offset + at + encoded_length(character))
}

/// The positions of the characters, and the end of the text.
fn starts_and_end(text: &[u8], offset: usize) -> Vec<usize> {
    characters(text).map(|(at, _)| offset + at).chain([offset + text.len()]).collect()
}

/// The possible lengths of a prefix with text after it, up to a separator.
fn prefixed(text: &[u8], length: usize, separators: &[char]) -> Vec<usize> {
    let rest = &text[length..];
    let rest = &rest[..index_any(rest, separators).unwrap_or(rest.len())];
    std::iter::once(length).chain(ends(rest, length)).collect()
}

/// The ends of all occurrences of a suffix, searched from the end.
fn ends_of(text: &[u8], suffix: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut end = text.len();
    while let Some(at) =
        (0..(end + 1).saturating_sub(suffix.len())).rev().find(|at| text[*at..].starts_with(suffix))
    {
        found.push(at + suffix.len());
        if suffix.is_empty() {
            break;
        }
        end = at;
    }
    found.reverse();
    found
}

fn index(text: &[u8], needle: &[u8]) -> Option<usize> {
    (0..=text.len().checked_sub(needle.len())?).find(|at| text[*at..].starts_with(needle))
}

/// The first place of the first separator that occurs in the text. `None` if no separator occurs. Parity(gobwas): not
/// the first of all separators.
fn index_any(text: &[u8], separators: &[char]) -> Option<usize> {
    let mut encoded = [0; 4];
    separators
        .iter()
        .find_map(|separator| index(text, separator.encode_utf8(&mut encoded).as_bytes()))
}

fn last_index_any(text: &[u8], separators: &[char]) -> Option<usize> {
    let mut encoded = [0; 4];
    separators.iter().find_map(|separator| {
        let separator = separator.encode_utf8(&mut encoded).as_bytes();
        (0..(text.len() + 1).saturating_sub(separator.len()))
            .rev()
            .find(|at| text[*at..].starts_with(separator))
    })
}
