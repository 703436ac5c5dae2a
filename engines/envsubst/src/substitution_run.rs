//! Replaces expressions by values.
//!
//! Here: the result of each operator. Elsewhere: globs (`pattern.rs`), and replacing text (`replace.rs`).

mod pattern;
mod replace;

use std::borrow::Cow;

use golang::unicode::{decode, to_lower, to_upper};

use crate::UnsetVariablePolicy;
use crate::error::{Error, LimitError};
use crate::limits::{SubstitutionBudget, SubstitutionLimits};
use crate::parse::{SubstitutionExpression, SubstitutionOperator, TextNode, ValueSide};
use pattern::GlobPattern;

/// Evaluates the pieces of a text and returns the output. `lookup` returns the value of a variable, or `None` if it is
/// not set.
pub(crate) fn run<'v>(
    nodes: &[TextNode],
    lookup: &dyn Fn(&str) -> Option<&'v [u8]>,
    unset: UnsetVariablePolicy,
    limits: SubstitutionLimits,
) -> Result<Vec<u8>, Error> {
    let mut run = SubstitutionRun { lookup, unset, budget: SubstitutionBudget::new(limits) };
    let mut output = Vec::new();
    for node in nodes {
        run.node(node, &mut output)?;
    }
    Ok(output)
}

struct SubstitutionRun<'r, 'v> {
    lookup: &'r dyn Fn(&str) -> Option<&'v [u8]>,
    unset: UnsetVariablePolicy,
    budget: SubstitutionBudget,
}

impl<'v> SubstitutionRun<'_, 'v> {
    fn node(&mut self, node: &TextNode, into: &mut Vec<u8>) -> Result<(), Error> {
        let text = match node {
            TextNode::Text(text) => Cow::Borrowed(text.as_slice()),
            TextNode::Expression(expression) => self.expression(expression)?,
        };
        self.budget.produce(text.len())?;
        into.extend_from_slice(&text);
        Ok(())
    }

    fn expression(&mut self, expression: &SubstitutionExpression) -> Result<Cow<'v, [u8]>, Error> {
        let SubstitutionExpression { name, operator, arguments } = expression;
        // Arguments are evaluated first, even if the result does not need them, because their variables have to be set.
        let mut strings = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let mut text = Vec::new();
            self.node(argument, &mut text)?;
            strings.push(text);
        }
        let value = match (self.lookup)(name) {
            Some(value) => value,
            None if self.unset == UnsetVariablePolicy::Error
                && *operator != SubstitutionOperator::Default =>
            {
                return Err(Error::NotSet(name.clone()));
            }
            None => b"",
        };
        let first = strings.first().map_or(b"".as_slice(), Vec::as_slice);
        let second = strings.get(1).map(Vec::as_slice);
        let budget = &mut self.budget;
        Ok(match operator {
            SubstitutionOperator::Value => Cow::Borrowed(value),
            SubstitutionOperator::Default if value.is_empty() => {
                budget.produce(strings.iter().map(Vec::len).sum())?;
                Cow::Owned(strings.concat())
            }
            SubstitutionOperator::Default => Cow::Borrowed(value),
            SubstitutionOperator::Length => Cow::Owned(value.len().to_string().into_bytes()),
            SubstitutionOperator::UpperFirst => map_first(value, to_upper, budget)?,
            SubstitutionOperator::Upper => map(value, to_upper, budget)?,
            SubstitutionOperator::LowerFirst => map_first(value, to_lower, budget)?,
            SubstitutionOperator::Lower => map(value, to_lower, budget)?,
            SubstitutionOperator::Substring => Cow::Borrowed(
                substring(value, first, second)
                    .ok_or_else(|| Error::NegativeLength(name.clone()))?,
            ),
            SubstitutionOperator::StripShortest(side) => {
                strip(value, first, *side, GlobPattern::shortest, budget)?
            }
            SubstitutionOperator::StripLongest(side) => {
                strip(value, first, *side, GlobPattern::longest, budget)?
            }
            SubstitutionOperator::ReplaceFirst => {
                replace::replace(value, first, second.unwrap_or_default(), Some(1), budget)?
            }
            SubstitutionOperator::ReplaceAll => {
                replace::replace(value, first, second.unwrap_or_default(), None, budget)?
            }
            SubstitutionOperator::ReplaceAt(side) => match second {
                Some(second) => replace::replace_at(value, first, second, *side, budget)?,
                // Parity(flux): `${v/#t/}` removes nothing, though `${v/t/}` does.
                None => Cow::Borrowed(value),
            },
        })
    }
}

/// The part of a value from an offset on. If a length is given, the part has that length. `None` if the part would end
/// before it begins.
///
/// An offset or a length that is not a number gives the whole value.
fn substring<'v>(value: &'v [u8], offset: &[u8], length: Option<&[u8]>) -> Option<&'v [u8]> {
    let Some(offset) = integer(offset) else { return Some(value) };
    let begin = match usize::try_from(offset) {
        Ok(offset) => offset,
        Err(_) => value.len().saturating_sub(usize::try_from(offset.unsigned_abs()).ok()?),
    };
    let rest = value.get(begin..).unwrap_or_default();
    let Some(length) = length else { return Some(rest) };
    let Some(length) = integer(length) else { return Some(value) };
    let end = i64::try_from(begin).ok()?.checked_add(length)?;
    match usize::try_from(end).ok()? {
        end if end >= value.len() => Some(rest),
        end => value.get(begin..end),
    }
}

/// Reads an integer as Go's `strconv.Atoi` does. `None` if the text is not an integer or is too large.
fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

type CharacterConverter = fn(char) -> char;

/// Converts every character of a value. A byte that belongs to no character becomes the replacement character.
fn map<'v>(
    value: &'v [u8],
    convert: CharacterConverter,
    budget: &mut SubstitutionBudget,
) -> Result<Cow<'v, [u8]>, LimitError> {
    budget.spend(value.len())?;
    // One byte gives a character of three bytes at most.
    budget.produce(value.len().saturating_mul(3))?;
    let mut converted = String::with_capacity(value.len());
    let mut rest = value;
    while !rest.is_empty() {
        let (character, width) = decode(rest);
        converted.push(convert(character));
        rest = &rest[width..];
    }
    Ok(Cow::Owned(converted.into_bytes()))
}

fn map_first<'v>(
    value: &'v [u8],
    convert: CharacterConverter,
    budget: &mut SubstitutionBudget,
) -> Result<Cow<'v, [u8]>, LimitError> {
    let (first, width) = decode(value);
    if width == 0 {
        return Ok(Cow::Borrowed(value));
    }
    budget.produce(value.len())?;
    let mut converted = convert(first).to_string().into_bytes();
    converted.extend_from_slice(&value[width..]);
    Ok(Cow::Owned(converted))
}

/// Computes how many bytes at the beginning of a text a pattern matches.
type PatternSearchFunction =
    fn(&GlobPattern, &[u8], &mut SubstitutionBudget) -> Result<usize, LimitError>;

fn strip<'v>(
    value: &'v [u8],
    pattern: &[u8],
    side: ValueSide,
    search: PatternSearchFunction,
    budget: &mut SubstitutionBudget,
) -> Result<Cow<'v, [u8]>, LimitError> {
    match side {
        ValueSide::Prefix => {
            let matched = search(&GlobPattern::parse(pattern), value, budget)?;
            Ok(Cow::Borrowed(&value[matched..]))
        }
        // Parity(flux): a suffix is removed from the reversed value with the reversed pattern: classes and escapes lose
        // their meaning, and bytes that are not text become replacement characters.
        ValueSide::Suffix => {
            let pattern = GlobPattern::parse(&reversed(pattern, budget)?);
            let value = reversed(value, budget)?;
            let matched = search(&pattern, &value, budget)?;
            Ok(Cow::Owned(reversed(&value[matched..], budget)?))
        }
    }
}

/// The characters of a text in reverse order.
fn reversed(text: &[u8], budget: &mut SubstitutionBudget) -> Result<Vec<u8>, LimitError> {
    budget.spend(text.len())?;
    budget.produce(text.len().saturating_mul(3))?;
    let mut characters = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (character, width) = decode(rest);
        characters.push(character);
        rest = &rest[width..];
    }
    Ok(characters.into_iter().rev().collect::<String>().into_bytes())
}
