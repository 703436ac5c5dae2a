//! Reads a glob. Elsewhere: choosing its matcher (`compile.rs`).

use std::str::Chars;

use super::{Error, MAX_GLOB, MAX_NESTING};

/// A part of a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GlobNode {
    /// The empty text.
    Nothing,
    Text(String),
    /// `*`
    Any,
    /// `**`
    Super,
    /// `?`
    Single,
    /// `[abc]`
    List {
        characters: Vec<char>,
        is_negated: bool,
    },
    /// `[a-c]`
    Range {
        low: char,
        high: char,
        is_negated: bool,
    },
    /// Several parts in a row.
    Pattern(Vec<Self>),
    /// `{a,b}`
    AnyOf(Vec<Self>),
}

/// Parses the text of a glob. The error says why the glob is not valid.
pub(super) fn parse(glob: &str) -> Result<GlobNode, Error> {
    if glob.len() > MAX_GLOB {
        return Err(Error::TooLong);
    }
    if glob.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Error::NotUtf8);
    }
    let mut text = glob.chars();
    // `sequence` is being read. For each open brace, `open` has the sequence around it, and the alternatives before the
    // present one.
    let mut sequence = Vec::new();
    let mut open: Vec<(Vec<GlobNode>, Vec<GlobNode>)> = Vec::new();
    while let Some(first) = peek(&text) {
        let breakers: &[char] = if open.is_empty() { &TEXT_ENDS } else { &ALTERNATIVE_ENDS };
        match (first, open.last_mut()) {
            ('{', _) => {
                text.next();
                if open.len() == MAX_NESTING {
                    return Err(Error::NestsTooDeeply);
                }
                open.push((std::mem::take(&mut sequence), Vec::new()));
            }
            (',', Some((_, alternatives))) => {
                text.next();
                alternatives.push(GlobNode::Pattern(std::mem::take(&mut sequence)));
            }
            ('}', Some(_)) => {
                text.next();
                close(&mut sequence, &mut open);
            }
            ('[', _) => {
                text.next();
                sequence.push(class(&mut text)?);
            }
            ('?', _) => {
                text.next();
                sequence.push(GlobNode::Single);
            }
            ('*', _) => {
                text.next();
                sequence.push(if peek(&text) == Some('*') {
                    text.next();
                    GlobNode::Super
                } else {
                    GlobNode::Any
                });
            }
            _ => {
                let literal = literal(&mut text, breakers);
                if !literal.is_empty() {
                    sequence.push(GlobNode::Text(literal));
                }
            }
        }
    }
    // Parity(gobwas): braces may stay open.
    while !open.is_empty() {
        close(&mut sequence, &mut open);
    }
    Ok(GlobNode::Pattern(sequence))
}

/// The characters that end a literal text.
const TEXT_ENDS: [char; 4] = ['?', '*', '[', '{'];

/// The characters that end a literal text within braces.
const ALTERNATIVE_ENDS: [char; 6] = ['?', '*', '[', '{', '}', ','];

fn close(sequence: &mut Vec<GlobNode>, open: &mut Vec<(Vec<GlobNode>, Vec<GlobNode>)>) {
    if let Some((around, mut alternatives)) = open.pop() {
        alternatives.push(GlobNode::Pattern(std::mem::replace(sequence, around)));
        sequence.push(GlobNode::AnyOf(alternatives));
    }
}

/// The next character, without taking it. `None` at the end. Parity(gobwas): NUL is taken for the end.
fn peek(text: &Chars<'_>) -> Option<char> {
    text.clone().next().filter(|character| *character != '\0')
}

fn take(text: &mut Chars<'_>) -> Result<char, Error> {
    text.next().filter(|character| *character != '\0').ok_or(Error::UnexpectedEnd)
}

/// Reads a literal text up to one of the characters in `breakers`, or up to a NUL.
fn literal(text: &mut Chars<'_>, breakers: &[char]) -> String {
    let mut literal = String::new();
    let mut is_escaped = false;
    loop {
        let Some(character) = peek(text) else {
            text.next();
            return literal;
        };
        if !is_escaped && breakers.contains(&character) {
            return literal;
        }
        text.next();
        is_escaped = !is_escaped && character == '\\';
        if !is_escaped {
            literal.push(character);
        }
    }
}

/// Reads a class after its `[`.
fn class(text: &mut Chars<'_>) -> Result<GlobNode, Error> {
    let mut begin = text.clone();
    let mut low = take(text)?;
    let is_negated = low == '!';
    if is_negated {
        begin = text.clone();
        low = take(text)?;
    }
    if peek(text) == Some('-') {
        text.next();
        let high = take(text)?;
        if take(text)? != ']' {
            return Err(Error::RangeNotClosed);
        }
        if high < low {
            return Err(Error::RangeReversed { low, high });
        }
        return Ok(GlobNode::Range { low, high, is_negated });
    }
    *text = begin;
    let characters: Vec<char> = literal(text, &[']']).chars().collect();
    take(text)?;
    if characters.is_empty() {
        return Err(Error::EmptyRange);
    }
    Ok(GlobNode::List { characters, is_negated })
}
