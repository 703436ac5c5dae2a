//! Reads a pattern as Go's `regexp/syntax` does, and writes it in the dialect of the `regex` crate.
//!
//! Here: the stack of parts, groups, repetitions, and flags. Below: escapes and classes (`escape.rs`). The stack has
//! text of the other dialect and no tree, so no function recurses.

mod escape;

use super::character_class::folded;
use super::{Error, MAX_NESTING, RegexpErrorReason};

/// A pattern in the dialect of the crate.
pub(super) struct TranslatedPattern {
    pub(super) regex: String,
    /// The names of the groups, beginning with the whole match.
    pub(super) names: Vec<String>,
}

/// Reads a whole pattern of Go's syntax and translates it.
pub(super) fn parse(pattern: &str) -> Result<TranslatedPattern, Error> {
    let mut parser = RegexpParser {
        pattern,
        flags: RegexpFlags::default(),
        stack: Vec::new(),
        names: vec![String::new()],
    };
    let mut rest = pattern;
    let mut repetition = None;
    while !rest.is_empty() {
        let before = rest;
        let is_repetition;
        (rest, is_repetition) = parser.step(rest, repetition)?;
        repetition = is_repetition.then_some(before);
    }
    let part = parser.alternation()?;
    if !parser.stack.is_empty() {
        return Err(Error::pattern(RegexpErrorReason::MissingParen, pattern));
    }
    Ok(TranslatedPattern { regex: part.text, names: parser.names })
}

/// The flags that `(?imsU)` sets in a regular expression.
#[derive(Debug, Clone, Copy, Default)]
struct RegexpFlags {
    fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    lazy: bool,
}

/// A part of the pattern that was read.
struct RegexpPart {
    /// The part in the dialect of the crate.
    text: String,
    /// Whether a repetition may follow the text without brackets.
    is_atom: bool,
    /// How deep the part nests.
    height: usize,
    /// How many copies of its innermost part its counted repetitions make.
    copies: u32,
}

/// An item on the stack.
enum RegexpStackItem {
    Part(RegexpPart),
    /// A `|`.
    Bar,
    /// A `(`, with the flags that hold again after its `)`.
    Open {
        is_capture: bool,
        flags: RegexpFlags,
    },
}

struct RegexpParser<'p> {
    pattern: &'p str,
    flags: RegexpFlags,
    stack: Vec<RegexpStackItem>,
    names: Vec<String>,
}

impl<'p> RegexpParser<'p> {
    /// Reads the next part. Returns the rest of the pattern, and whether the part was a repetition.
    ///
    /// `repetition` is the pattern from the preceding repetition on, if there is one.
    fn step(&mut self, at: &'p str, repetition: Option<&'p str>) -> Result<(&'p str, bool), Error> {
        let (first, rest) = first(at);
        match first {
            '(' if rest.starts_with('?') => return Ok((self.perl_group(at)?, false)),
            '(' => self.open(Some(String::new())),
            '|' => {
                let part = self.concatenation()?;
                self.stack.push(RegexpStackItem::Part(part));
                self.stack.push(RegexpStackItem::Bar);
            }
            ')' => self.close()?,
            '^' => self.atom(if self.flags.multi_line { "(?m:^)" } else { r"\A" }),
            '$' => self.atom(if self.flags.multi_line { "(?m:$)" } else { r"\z" }),
            '.' => self.atom(if self.flags.dot_newline { "(?s:.)" } else { r"[^\n]" }),
            '[' => return Ok((self.class(at)?, false)),
            '*' => return Ok((self.repeat(at, rest, RepetitionCount::STAR, repetition)?, true)),
            '+' => return Ok((self.repeat(at, rest, RepetitionCount::PLUS, repetition)?, true)),
            '?' => {
                return Ok((self.repeat(at, rest, RepetitionCount::QUESTION, repetition)?, true));
            }
            '{' => {
                let Some((count, rest)) = counted(at) else {
                    self.literal('{');
                    return Ok((rest, false));
                };
                let invalid = || Error::pattern(RegexpErrorReason::RepeatCount, until(at, rest));
                let count = count.ok_or_else(invalid)?;
                return Ok((self.repeat(at, rest, count, repetition)?, true));
            }
            '\\' => return Ok((self.backslash(at)?, false)),
            _ => self.literal(first),
        }
        Ok((rest, false))
    }

    /// Pushes a part that needs no brackets.
    fn atom(&mut self, text: impl Into<String>) {
        let part = RegexpPart { text: text.into(), is_atom: true, height: 1, copies: 1 };
        self.stack.push(RegexpStackItem::Part(part));
    }

    fn literal(&mut self, character: char) {
        let mut text = [0; 4];
        let text = regex::escape(character.encode_utf8(&mut text));
        self.atom(folded(text, self.flags.fold_case));
    }

    /// Opens a group. If it has a name, which may be empty, it captures.
    fn open(&mut self, name: Option<String>) {
        self.stack.push(RegexpStackItem::Open { is_capture: name.is_some(), flags: self.flags });
        self.names.extend(name);
    }

    fn close(&mut self) -> Result<(), Error> {
        let mut part = self.alternation()?;
        let Some(RegexpStackItem::Open { is_capture, flags }) = self.stack.pop() else {
            return Err(Error::pattern(RegexpErrorReason::UnexpectedParen, self.pattern));
        };
        self.flags = flags;
        if is_capture {
            part.text = format!("({})", part.text);
            part.is_atom = true;
            part.height += 1;
            self.check_height(part.height)?;
        }
        self.stack.push(RegexpStackItem::Part(part));
        Ok(())
    }

    /// Joins all parts on the stack above the last `|` or `(` into one.
    fn concatenation(&mut self) -> Result<RegexpPart, Error> {
        let is_part = |item: &RegexpStackItem| matches!(item, RegexpStackItem::Part(_));
        let begin = self.stack.iter().rposition(|item| !is_part(item)).map_or(0, |index| index + 1);
        let parts: Vec<RegexpPart> =
            self.stack.drain(begin..).filter_map(RegexpStackItem::into_part).collect();
        self.join(parts, "")
    }

    /// Joins everything on the stack above the last `(` into one part.
    fn alternation(&mut self) -> Result<RegexpPart, Error> {
        let last = self.concatenation()?;
        let is_open = |item: &RegexpStackItem| matches!(item, RegexpStackItem::Open { .. });
        let begin = self.stack.iter().rposition(is_open).map_or(0, |index| index + 1);
        let mut parts: Vec<RegexpPart> =
            self.stack.drain(begin..).filter_map(RegexpStackItem::into_part).collect();
        parts.push(last);
        let mut part = self.join(parts, "|")?;
        if !part.is_atom {
            part.text = format!("(?:{})", part.text);
            part.is_atom = true;
        }
        Ok(part)
    }

    fn join(&self, mut parts: Vec<RegexpPart>, between: &str) -> Result<RegexpPart, Error> {
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let height = 1 + parts.iter().map(|part| part.height).max().unwrap_or(0);
        self.check_height(height)?;
        let copies = parts.iter().map(|part| part.copies).max().unwrap_or(1);
        let strings: Vec<String> = parts.into_iter().map(|part| part.text).collect();
        Ok(RegexpPart { text: strings.join(between), is_atom: false, height, copies })
    }

    fn check_height(&self, height: usize) -> Result<(), Error> {
        if height > MAX_NESTING {
            return Err(Error::pattern(RegexpErrorReason::NestsTooDeeply, self.pattern));
        }
        Ok(())
    }

    /// Repeats the part on top of the stack. The operator is the text from `at` to `rest`. A `?` may follow it.
    fn repeat(
        &mut self,
        at: &'p str,
        rest: &'p str,
        count: RepetitionCount,
        repetition: Option<&'p str>,
    ) -> Result<&'p str, Error> {
        let (rest, is_lazy) = match rest.strip_prefix('?') {
            Some(rest) => (rest, !self.flags.lazy),
            None => (rest, self.flags.lazy),
        };
        if let Some(repetition) = repetition {
            return Err(Error::pattern(
                RegexpErrorReason::NestedRepetition,
                until(repetition, rest),
            ));
        }
        let Some(RegexpStackItem::Part(part)) = self.stack.pop() else {
            return Err(Error::pattern(RegexpErrorReason::MissingArgument, until(at, rest)));
        };
        let copies = count.copies(part.copies);
        if count.is_checked() && copies > RepetitionCount::MAX_REPETITION_COUNT {
            return Err(Error::pattern(RegexpErrorReason::RepeatCount, until(at, rest)));
        }
        let height = part.height + 1;
        self.check_height(height)?;
        let lazy = if is_lazy { "?" } else { "" };
        let text = if part.is_atom { part.text } else { format!("(?:{})", part.text) };
        // The brackets allow another repetition to follow.
        let text = format!("(?:{text}{}{lazy})", count.written());
        self.stack.push(RegexpStackItem::Part(RegexpPart { text, is_atom: true, height, copies }));
        Ok(rest)
    }

    /// Reads a text that begins with `(?`: a named group, flags, or a group with flags.
    fn perl_group(&mut self, at: &'p str) -> Result<&'p str, Error> {
        let name = match (at.strip_prefix("(?P<"), at.strip_prefix("(?<")) {
            (Some(name), _) | (None, Some(name)) if !name.is_empty() => Some(name),
            _ => None,
        };
        if let Some(name) = name {
            let Some((name, rest)) = name.split_once('>') else {
                return Err(Error::pattern(RegexpErrorReason::NamedCapture, at));
            };
            let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_of_name) {
                return Err(Error::pattern(RegexpErrorReason::NamedCapture, until(at, rest)));
            }
            self.open(Some(name.to_owned()));
            return Ok(rest);
        }
        let mut flags = self.flags;
        let mut value = true;
        let mut has_flag = false;
        let mut rest = &at[2..];
        while !rest.is_empty() {
            let letter;
            (letter, rest) = first(rest);
            let flag = match letter {
                'i' => &mut flags.fold_case,
                'm' => &mut flags.multi_line,
                's' => &mut flags.dot_newline,
                'U' => &mut flags.lazy,
                '-' if value => {
                    (value, has_flag) = (false, false);
                    continue;
                }
                ':' | ')' if value || has_flag => {
                    if letter == ':' {
                        self.open(None);
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            };
            (*flag, has_flag) = (value, true);
        }
        Err(Error::pattern(RegexpErrorReason::PerlSyntax, until(at, rest)))
    }
}

impl RegexpStackItem {
    fn into_part(self) -> Option<RegexpPart> {
        match self {
            Self::Part(part) => Some(part),
            Self::Bar | Self::Open { .. } => None,
        }
    }
}

/// How often a part is repeated.
#[derive(Debug, Clone, Copy)]
enum RepetitionCount {
    /// `*`, `+` and `?`.
    Sign(char),
    /// `{2,5}`, or without the second number.
    Numbers(u32, Option<u32>),
}

impl RepetitionCount {
    const STAR: Self = Self::Sign('*');
    const PLUS: Self = Self::Sign('+');
    const QUESTION: Self = Self::Sign('?');
    /// Go's limit for repetition counts. It also holds for the product of nested repetitions.
    const MAX_REPETITION_COUNT: u32 = 1000;

    fn written(self) -> String {
        match self {
            Self::Sign(sign) => sign.to_string(),
            Self::Numbers(least, Some(most)) => format!("{{{least},{most}}}"),
            Self::Numbers(least, None) => format!("{{{least},}}"),
        }
    }

    /// How many copies of the innermost part there are, if the repeated part has `inner` of them.
    fn copies(self, inner: u32) -> u32 {
        match self {
            Self::Sign(_) | Self::Numbers(0, None) => inner,
            Self::Numbers(_, Some(0)) => 1,
            Self::Numbers(least, most) => inner.saturating_mul(most.unwrap_or(least)),
        }
    }

    /// Parity(go): only repetitions by two or more are examined.
    fn is_checked(self) -> bool {
        match self {
            Self::Sign(_) => false,
            Self::Numbers(least, most) => least >= 2 || most.is_some_and(|most| most >= 2),
        }
    }
}

/// Reads `{n}`, `{n,}` or `{n,m}`, and returns the rest of the pattern. The count is `None` if its numbers are
/// impossible.
fn counted(at: &str) -> Option<(Option<RepetitionCount>, &str)> {
    let (least, rest) = number(at.strip_prefix('{')?)?;
    let (most, rest) = match rest.strip_prefix(',') {
        None => (Some(least), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (most, rest) = number(rest)?;
            (Some(most), rest)
        }
    };
    let rest = rest.strip_prefix('}')?;
    let is_possible = least <= RepetitionCount::MAX_REPETITION_COUNT
        && most.is_none_or(|most| most <= RepetitionCount::MAX_REPETITION_COUNT && least <= most);
    Some((is_possible.then_some(RepetitionCount::Numbers(least, most)), rest))
}

/// Reads digits without leading zeros. Returns the number and the text after it. `None` if the text does not begin with
/// such a number.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}

/// The first character and the rest. At the end, the character is a NUL that no caller examines.
fn first(text: &str) -> (char, &str) {
    let mut characters = text.chars();
    (characters.next().unwrap_or_default(), characters.as_str())
}

/// The part of a text before its end `rest`.
fn until<'p>(text: &'p str, rest: &str) -> &'p str {
    &text[..text.len() - rest.len()]
}
