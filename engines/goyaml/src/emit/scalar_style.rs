//! Chooses the style of a string: the style that go-yaml v2 prefers, if the text permits it.
//!
//! Here: examining the text, and choosing. Elsewhere: writing in a style (`writer`), and the value that a plain text
//! would have (`crate::scalar_resolve`).

use crate::YamlDialect;
use crate::scalar_resolve::{ResolvedScalar, resolve};

/// The style in which a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmittedScalarStyle {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    /// A block after `|`.
    Literal,
}

/// Which styles can hold a text in block context without changing it.
///
/// Double quotes can hold any text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScalarAnalysis {
    /// Whether the text has a line break of YAML 1.1.
    pub(super) is_multiline: bool,
    plain: bool,
    single_quoted: bool,
    literal: bool,
}

impl ScalarAnalysis {
    /// Examines a text once, character by character.
    pub(super) fn of(text: &str) -> Self {
        let mut found = CharacterFindings::default();
        let mut previous = None;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            found.look(previous, c, chars.peek().copied());
            previous = Some(c);
        }
        let starts_a_document = text.starts_with("---") || text.starts_with("...");
        let is_edged = text.starts_with(' ') || text.ends_with(' ');
        let CharacterFindings {
            line_break,
            special,
            indicator,
            space_before_break,
            space_after_break,
        } = found;
        let unquotable = special || space_before_break || space_after_break;
        Self {
            is_multiline: line_break,
            plain: !(unquotable || line_break || is_edged || indicator || starts_a_document),
            single_quoted: !unquotable,
            literal: !(special || space_before_break || text.ends_with(' ') || text.is_empty()),
        }
    }

    /// Whether the text can be a key without a `?` before it.
    pub(super) fn is_simple_key(&self, text: &str) -> bool {
        !self.is_multiline && text.len() <= MAX_SIMPLE_KEY
    }

    /// The style in which go-yaml v2 writes this string.
    pub(super) fn style(&self, text: &str) -> EmittedScalarStyle {
        // Parity(go-yaml v2): text with a line feed wants a block and falls back to double
        // quotes at once; single ones are only for what would be plain but for its characters.
        if text.contains('\n') {
            if self.literal {
                EmittedScalarStyle::Literal
            } else {
                EmittedScalarStyle::DoubleQuoted
            }
        } else if !reads_as_string(text) {
            EmittedScalarStyle::DoubleQuoted
        } else if self.plain {
            EmittedScalarStyle::Plain
        } else if self.single_quoted {
            EmittedScalarStyle::SingleQuoted
        } else {
            EmittedScalarStyle::DoubleQuoted
        }
    }
}

/// How many bytes a key may have before it needs a `?`.
const MAX_SIMPLE_KEY: usize = 128;

/// The properties of a text that one pass over its characters finds.
#[derive(Default)]
struct CharacterFindings {
    line_break: bool,
    /// A character that only an escape can write.
    special: bool,
    /// Whether a character has a special meaning at its position.
    indicator: bool,
    space_before_break: bool,
    space_after_break: bool,
}

impl CharacterFindings {
    fn look(&mut self, previous: Option<char>, c: char, next: Option<char>) {
        let is_followed_by_blank = matches!(next, None | Some(' ' | '\t'));
        self.indicator |= match (previous, c) {
            (
                None,
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`',
            ) => true,
            (None, '?' | '-') | (_, ':') => is_followed_by_blank,
            (Some(before), '#') => before == ' ' || before == '\t' || is_break(before),
            _ => false,
        };
        self.special |= !is_printable(c);
        self.line_break |= is_break(c);
        self.space_after_break |= c == ' ' && previous.is_some_and(is_break);
        self.space_before_break |= is_break(c) && previous == Some(' ');
    }
}

/// Whether this is a line break in YAML 1.1.
pub(crate) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether go-yaml v2 writes this character as it is.
///
/// Parity(go-yaml v2): characters beyond U+FFFF are not, though YAML calls them printable.
pub(crate) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

/// Whether the plain text would be read as a string, by this reader and by older ones.
fn reads_as_string(text: &str) -> bool {
    matches!(resolve(YamlDialect::V2, "", text), Ok(ResolvedScalar::Str)) && !is_base60(text)
}

/// Whether YAML 1.1 calls this a number in base 60, such as `1:30`.
///
/// Parity(go-yaml v2): it quotes them although it reads them as strings.
pub(crate) fn is_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let is_digit_or_gap = |c: char| c.is_ascii_digit() || c == '_';
    let is_sixtieth = |part: &str| match part.as_bytes() {
        [ones] => ones.is_ascii_digit(),
        [tens, ones] => matches!(tens, b'0'..=b'5') && ones.is_ascii_digit(),
        _ => false,
    };
    whole.contains(':')
        && first.starts_with(|c: char| c.is_ascii_digit())
        && first.chars().all(is_digit_or_gap)
        && parts.all(is_sixtieth)
        && fraction.chars().all(is_digit_or_gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(style: EmittedScalarStyle, strings: &[&str]) {
        for text in strings {
            assert_eq!(ScalarAnalysis::of(text).style(text), style, "{text:?}");
        }
    }

    #[test]
    fn text_that_reads_as_something_else_is_double_quoted() {
        check(
            EmittedScalarStyle::DoubleQuoted,
            &["", "y", "null", "1_000", "0x1F", "1e3", "2020-01-01", ".inf"],
        );
        check(
            EmittedScalarStyle::Plain,
            &["tRue", "1e", "0b2", "08x", "Infinity", "<<", "=", "1.2.3", "a:b"],
        );
    }

    #[test]
    fn numbers_in_base_60_are_double_quoted_though_they_read_as_strings() {
        check(EmittedScalarStyle::DoubleQuoted, &["1:30", "-190:20:30.5_", "+1_0:0", "1:5."]);
        check(
            EmittedScalarStyle::Plain,
            &["60:70", "1:x", "_1:30", "1:3_0", "1:30.5x", "1:123", "1:2:.5"],
        );
        check(EmittedScalarStyle::SingleQuoted, &["1:", "1:30:"]);
    }

    #[test]
    fn indicators_get_single_quotes_where_they_mean_something() {
        check(
            EmittedScalarStyle::SingleQuoted,
            &["- a", "a: b", " a", "a ", "#c", "a #c", "@a", "-", "?", "a:"],
        );
        check(EmittedScalarStyle::SingleQuoted, &["---", "...x", "[a", "%a", "`a", "x\u{2028}y"]);
        check(EmittedScalarStyle::Plain, &["-a", "?a", "a#c", "a, [b]", "a & b", "--x"]);
    }

    #[test]
    fn lines_make_a_block_unless_a_character_forbids_it() {
        check(EmittedScalarStyle::Literal, &["a\n", "\n", " a\n b", "a\n\n", "a\u{2028}\n"]);
        check(
            EmittedScalarStyle::DoubleQuoted,
            &["a \nb", "a\tb\n", "a\r\n", "a\nb ", "😀\n", "\u{feff}\n"],
        );
    }
}
