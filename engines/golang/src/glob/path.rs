//! Go's `path.Match`, and `filepath.Match` on systems whose paths have slashes.

/// The pattern is malformed. The message is Go's. The part after a mismatch is checked, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub struct BadPathPattern;

/// Whether a pattern matches a whole name. `*` and `?` stop at slashes. The pattern may have `[a-z]`, `[^abc]`, and `\`
/// before a literal character.
///
/// The number of steps is at most the product of both lengths and the number of stars.
///
/// # Errors
/// The pattern is malformed.
pub fn path_match(pattern: &str, name: &str) -> Result<bool, BadPathPattern> {
    let mut pattern = pattern;
    let mut name = name;
    'pattern: while !pattern.is_empty() {
        let is_starred = pattern.starts_with('*');
        let (chunk, rest) = chunk(pattern.trim_start_matches('*'));
        pattern = rest;
        if is_starred && chunk.is_empty() {
            return Ok(!name.contains('/'));
        }
        if let Some(after) = match_chunk(chunk, name)?
            && (after.is_empty() || !pattern.is_empty())
        {
            name = after;
            continue;
        }
        if is_starred {
            for (start, character) in name.char_indices() {
                if character == '/' {
                    break;
                }
                let from = &name[start + character.len_utf8()..];
                if let Some(after) = match_chunk(chunk, from)?
                    && (after.is_empty() || !pattern.is_empty())
                {
                    name = after;
                    continue 'pattern;
                }
            }
        }
        // The name does not match, but the pattern may still be malformed.
        while !pattern.is_empty() {
            let (chunk, rest) = self::chunk(pattern.trim_start_matches('*'));
            match_chunk(chunk, "")?;
            pattern = rest;
        }
        return Ok(false);
    }
    Ok(name.is_empty())
}

/// Divides a pattern at its next star.
fn chunk(pattern: &str) -> (&str, &str) {
    let mut in_class = false;
    let mut bytes = pattern.bytes().enumerate();
    while let Some((index, byte)) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' if !in_class => return pattern.split_at(index),
            _ => {}
        }
    }
    (pattern, "")
}

/// Matches a part of the pattern at the beginning of a name. Returns the rest of the name. The part is always read to
/// its end.
fn match_chunk<'n>(chunk: &str, name: &'n str) -> Result<Option<&'n str>, BadPathPattern> {
    let mut pattern = chunk;
    let mut name = Some(name);
    while let Some(first) = pattern.chars().next() {
        // `name` is `None` after a mismatch. Its first character is `None` at its end.
        let character = name.and_then(|name| name.chars().next());
        let is_match;
        pattern = &pattern[first.len_utf8()..];
        match first {
            '[' => {
                let is_in;
                (is_in, pattern) = class(pattern, character)?;
                is_match = is_in;
            }
            '?' => is_match = character.is_some_and(|character| character != '/'),
            '\\' => {
                let escaped = pattern.chars().next().ok_or(BadPathPattern)?;
                pattern = &pattern[escaped.len_utf8()..];
                is_match = character == Some(escaped);
            }
            _ => is_match = character == Some(first),
        }
        name = match (name, character) {
            (Some(name), Some(character)) if is_match => Some(&name[character.len_utf8()..]),
            _ => None,
        };
    }
    Ok(name)
}

/// Reads a class after its `[`. Returns whether the character is in it, and the rest of the pattern.
fn class(pattern: &str, character: Option<char>) -> Result<(bool, &str), BadPathPattern> {
    let (is_negated, mut rest) =
        pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let mut is_in = false;
    let mut is_empty = true;
    loop {
        if let Some(rest) = rest.strip_prefix(']').filter(|_| !is_empty) {
            return Ok((character.is_some() && is_in != is_negated, rest));
        }
        let (low, after) = class_character(rest)?;
        let (high, after) = match after.strip_prefix('-') {
            Some(after) => class_character(after)?,
            None => (low, after),
        };
        is_in |= character.is_some_and(|character| (low..=high).contains(&character));
        (rest, is_empty) = (after, false);
    }
}

/// Reads a character of a class. More text has to follow it.
fn class_character(pattern: &str) -> Result<(char, &str), BadPathPattern> {
    if pattern.starts_with(['-', ']']) {
        return Err(BadPathPattern);
    }
    let mut characters = pattern.strip_prefix('\\').unwrap_or(pattern).chars();
    let character = characters.next().ok_or(BadPathPattern)?;
    let rest = characters.as_str();
    if rest.is_empty() { Err(BadPathPattern) } else { Ok((character, rest)) }
}
