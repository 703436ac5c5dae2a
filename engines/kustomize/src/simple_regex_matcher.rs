//! Matches simple regular expressions, which have only names and dots, without compiling them. Most expressions are simple, and
//! compiling one takes longer than a small build.

use golang::regexp::GoRegexp;

/// A regular expression of characters that mean themselves, `.` and `.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlainRegularExpression(String);

/// Texts up to this length are matched in negligible time, with any expression.
const MAX_SHORT_TEXT_BYTES: usize = 1 << 10;

/// Steps that a byte costs which an expression examines.
const LOOKED_AT: usize = 8;

/// The most simultaneous states of an expression: of a large one, and of a small one.
const MAX_ACTIVE_STATES: [usize; 2] = [1 << 20, 1 << 12];

/// The steps for matching a text of this length. Matching cannot be interrupted.
///
/// In the worst case, a long text costs all states for each of its bytes.
pub(crate) fn steps(pattern: &GoRegexp, length: usize) -> usize {
    let states = if length <= MAX_SHORT_TEXT_BYTES {
        LOOKED_AT
    } else {
        MAX_ACTIVE_STATES[usize::from(pattern.is_small())]
    };
    64 + length.saturating_mul(states)
}

impl PlainRegularExpression {
    /// The steps for matching a text of this length.
    pub(crate) fn steps(&self, length: usize) -> usize {
        // Each `.*` may be tried anew from each character.
        if self.has_one_length() {
            1 + self.0.len().min(length)
        } else {
            1 + length.saturating_mul(self.0.len())
        }
    }

    /// Reads an expression; `None` if it is not simple.
    pub(crate) fn parse(pattern: &str) -> Option<Self> {
        let mut previous = b' ';
        let is_plain = pattern.bytes().all(|byte| {
            let before = std::mem::replace(&mut previous, byte);
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'_' | b'/' | b'.')
                || byte == b'*' && before == b'.'
        });
        is_plain.then(|| Self(pattern.to_owned()))
    }

    /// Whether the expression has no `.*`.
    pub(crate) fn has_one_length(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether the expression matches the whole text.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        let mut pattern = self.0.as_str();
        let mut text = text;
        // Where to continue if the last `.*` takes one more character.
        let mut retry: Option<(&str, &str)> = None;
        loop {
            if let Some(rest) = pattern.strip_prefix(".*") {
                (pattern, retry) = (rest, Some((rest, text)));
            } else if let Some(rest) = step(&mut pattern, text) {
                text = rest;
            } else if pattern.is_empty() && text.is_empty() {
                return true;
            } else {
                let Some((rest, from)) = retry else { return false };
                let Some(from) = after_any(from) else { return false };
                (pattern, text, retry) = (rest, from, Some((rest, from)));
            }
        }
    }

    /// The rest of a text after the match at its beginning. `None` if the text does not match. The expression must not
    /// contain `.*`.
    pub(crate) fn after<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut pattern = self.0.as_str();
        let mut text = text;
        while !pattern.is_empty() {
            text = step(&mut pattern, text)?;
        }
        Some(text)
    }
}

/// Matches one character of the pattern with the text. Returns the rest of the text, or `None` if it does not match.
fn step<'t>(pattern: &mut &str, text: &'t str) -> Option<&'t str> {
    let wanted = pattern.chars().next()?;
    let rest = if wanted == '.' { after_any(text)? } else { text.strip_prefix(wanted)? };
    // All of a pattern is ASCII.
    *pattern = &pattern[1..];
    Some(rest)
}

/// The rest of a text after one character that `.` matches. `None` if the text is empty or begins with a line feed.
fn after_any(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    chars.next().filter(|c| *c != '\n').map(|_| chars.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GoRegexp, PlainRegularExpression};

    #[test]
    fn what_is_more_than_names_and_dots_is_left_to_the_machinery() {
        for pattern in
            ["a*", "*", ".**", "a+", "a|b", "[a]", "(a)", "a{2}", "^a", "a$", "\\.", "é", "a b"]
        {
            assert_eq!(PlainRegularExpression::parse(pattern), None, "{pattern}");
        }
        assert!(PlainRegularExpression::parse("app-.*0").is_some_and(|it| !it.has_one_length()));
    }

    proptest! {
        #[test]
        fn it_means_what_the_expression_means(
            pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "-", ".", ".*"]), 0..6),
            text in "[ab\né-]{0,8}",
        ) {
            let pattern = pattern.concat();
            if let Some(plain) = PlainRegularExpression::parse(&pattern) {
                let whole = GoRegexp::new(&format!("^(?:{pattern})$")).unwrap();
                prop_assert_eq!(plain.is_match(&text), whole.is_match(&text));
                if plain.has_one_length() {
                    let start = GoRegexp::new(&format!("^(?:{pattern})")).unwrap();
                    let rest = start.find(&text).map(|found| &text[found.len()..]);
                    prop_assert_eq!(plain.after(&text), rest);
                }
            }
        }
    }
}
