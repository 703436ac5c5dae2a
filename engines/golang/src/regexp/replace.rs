//! Replaces matches, and expands `$` in replacements.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::{Error, GoRegexp, MAX_REPLACED, width};

impl GoRegexp {
    /// Replaces all matches. In `template`, `$1`, `$name` and `${name}` stand for groups, and `$$` for `$`. A group
    /// that is unknown or took no part is empty. A name is as long as possible, so `$1x` is the group `1x`.
    ///
    /// # Errors
    /// The result would be longer than [`MAX_REPLACED`].
    pub fn replace_all(&self, text: &str, template: &str) -> Result<String, Error> {
        self.replace_all_while(text, template, |_, _| Ok(()))
    }

    /// Like [`GoRegexp::replace_all`], until the caller stops it. Before each search, `next` gets the number of
    /// remaining bytes of the text, and the length of the result so far.
    ///
    /// # Errors
    /// The error of `next`, or as for [`GoRegexp::replace_all`].
    pub fn replace_all_while<E: From<Error>>(
        &self,
        text: &str,
        template: &str,
        next: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<String, E> {
        let parts = self.parts(template);
        self.replace(text, next, |groups, result| expand(&parts, groups, result))
    }

    /// Expands a template with the groups of the first match in a text, as Go's `ExpandString` does. `None` if there is
    /// no match. The template is as for [`GoRegexp::replace_all`].
    ///
    /// # Errors
    /// The result would be longer than [`MAX_REPLACED`].
    pub fn expand_first(&self, text: &str, template: &str) -> Result<Option<String>, Error> {
        let Some(groups) = self.regex.captures(text) else { return Ok(None) };
        let mut result = String::new();
        expand(&self.parts(template), &groups, &mut result)?;
        Ok(Some(result))
    }

    /// Replaces all matches by a text. In this text, `$` has no special meaning.
    ///
    /// # Errors
    /// The result would be longer than [`MAX_REPLACED`].
    pub fn replace_all_literal(&self, text: &str, replacement: &str) -> Result<String, Error> {
        self.replace_all_literal_while(text, replacement, |_, _| Ok(()))
    }

    /// Like [`GoRegexp::replace_all_literal`], until the caller stops it. `next` is as for
    /// [`GoRegexp::replace_all_while`].
    ///
    /// # Errors
    /// The error of `next`, or as for [`GoRegexp::replace_all_literal`].
    pub fn replace_all_literal_while<E: From<Error>>(
        &self,
        text: &str,
        replacement: &str,
        next: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<String, E> {
        self.replace(text, next, |_, result| push(result, replacement))
    }

    fn replace<E: From<Error>>(
        &self,
        text: &str,
        mut next: impl FnMut(usize, usize) -> Result<(), E>,
        replacement: impl Fn(&Captures<'_>, &mut String) -> Result<(), Error>,
    ) -> Result<String, E> {
        let mut result = String::new();
        let mut position = 0;
        let mut last_end = 0;
        while position <= text.len() {
            next(text.len() - position, result.len())?;
            let Some(groups) = self.regex.captures_at(text, position) else { break };
            let Some(found) = groups.get(0) else { break };
            push(&mut result, &text[last_end..found.start()])?;
            // Parity(go): an empty match right behind another is not replaced.
            if found.end() > last_end || found.start() == 0 {
                replacement(&groups, &mut result)?;
            }
            last_end = found.end();
            position = found.end().max(position + width(text, position).max(1));
        }
        push(&mut result, &text[last_end..])?;
        Ok(result)
    }

    /// Splits the template of a replacement into literal text and references to groups.
    fn parts<'t>(&self, template: &'t str) -> Vec<ReplacementPart<'t>> {
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('$') {
            parts.push(ReplacementPart::Text(before));
            if let Some(after) = after.strip_prefix('$') {
                parts.push(ReplacementPart::Text("$"));
                rest = after;
            } else if let Some((name, after)) = name(after) {
                parts.push(match number(name) {
                    Some(number) => ReplacementPart::Group(number),
                    None => {
                        let named = self.names.iter().enumerate().filter(|(_, it)| *it == name);
                        ReplacementPart::Named(named.map(|(index, _)| index).collect())
                    }
                });
                rest = after;
            } else {
                parts.push(ReplacementPart::Text("$"));
                rest = after;
            }
        }
        parts.push(ReplacementPart::Text(rest));
        parts
    }
}

enum ReplacementPart<'t> {
    Text(&'t str),
    Group(usize),
    Named(Vec<usize>),
}

/// Writes a template with the groups of a match.
fn expand(
    parts: &[ReplacementPart<'_>],
    groups: &Captures<'_>,
    result: &mut String,
) -> Result<(), Error> {
    for part in parts {
        match part {
            ReplacementPart::Text(text) => push(result, text)?,
            ReplacementPart::Group(index) => {
                push(result, groups.get(*index).map_or("", |group| group.as_str()))?;
            }
            // The first group with this name that took part.
            ReplacementPart::Named(indices) => {
                let group = indices.iter().find_map(|index| groups.get(*index));
                push(result, group.map_or("", |group| group.as_str()))?;
            }
        }
    }
    Ok(())
}

fn push(result: &mut String, text: &str) -> Result<(), Error> {
    if result.len() + text.len() > MAX_REPLACED {
        return Err(Error::TooLong);
    }
    result.push_str(text);
    Ok(())
}

/// The name of the group after a `$`, and the rest of the template. `None` if there is no name or its `}` is missing.
fn name(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{').unwrap_or(text);
    let end = inner.find(|character| !is_of_name(character)).unwrap_or(inner.len());
    let (name, rest) = inner.split_at(end);
    let rest = if inner.len() == text.len() { rest } else { rest.strip_prefix('}')? };
    (!name.is_empty()).then_some((name, rest))
}

/// Whether a character may be in a name: a letter, a decimal digit of any script, or `_`.
fn is_of_name(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || character == '_';
    }
    // Outside of ASCII, `is_alphabetic` and `is_numeric` accept more than letters and decimal digits.
    let mut text = [0; 4];
    NAME.is_match(character.encode_utf8(&mut text))
}

static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[\p{L}\p{Nd}]").expect("both are categories of Unicode"));

/// The number of a group. `None` if it has a leading zero.
fn number(name: &str) -> Option<usize> {
    if name.len() > 1 && name.starts_with('0') || name.len() > 9 {
        return None;
    }
    name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok()).flatten()
}
