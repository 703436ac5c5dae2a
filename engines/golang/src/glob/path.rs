//! Go's `path.Match`, and `filepath.Match` where paths have slashes.

/// The pattern is malformed, in Go's words. What comes behind a mismatch is examined too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub struct BadPathPattern;

/// Whether all of a name matches: `*` and `?` stop at slashes, `[a-z]`, `[^abc]`, `\` before what is literal.
///
/// Takes at most as many steps as both lengths and the number of stars multiplied.
///
/// # Errors
/// If the pattern is malformed.
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
        // It does not match, but may still be malformed.
        while !pattern.is_empty() {
            let (chunk, rest) = self::chunk(pattern.trim_start_matches('*'));
            match_chunk(chunk, "")?;
            pattern = rest;
        }
        return Ok(false);
    }
    Ok(name.is_empty())
}

/// The pattern up to the next star, and from there.
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

/// Matches a chunk with the beginning of a name; gives what follows. The chunk is read to its end in any case.
fn match_chunk<'n>(chunk: &str, name: &'n str) -> Result<Option<&'n str>, BadPathPattern> {
    let mut pattern = chunk;
    let mut name = Some(name);
    while let Some(first) = pattern.chars().next() {
        // `name` is missing once it does not match, and its first character where it has ended.
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

/// Reads a class behind its `[`; returns whether a character is in it, and what follows.
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

/// A character of a class, behind which something has to follow.
fn class_character(pattern: &str) -> Result<(char, &str), BadPathPattern> {
    if pattern.starts_with(['-', ']']) {
        return Err(BadPathPattern);
    }
    let mut characters = pattern.strip_prefix('\\').unwrap_or(pattern).chars();
    let character = characters.next().ok_or(BadPathPattern)?;
    let rest = characters.as_str();
    if rest.is_empty() { Err(BadPathPattern) } else { Ok((character, rest)) }
}
