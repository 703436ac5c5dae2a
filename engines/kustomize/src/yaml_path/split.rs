//! Strings of paths to their parts.

/// Splits a path at a delimiter. A `\` before a delimiter escapes it, and a delimiter at the beginning is ignored.
///
/// Field specs split at `/`: `a/b\/c` has the parts `a` and `b/c`.
pub fn split(path: &str, delimiter: char) -> Vec<String> {
    let mut pieces = path.split(delimiter).peekable();
    let mut parts: Vec<String> = Vec::new();
    let first = pieces.next().unwrap_or_default();
    if !(first.is_empty() && pieces.peek().is_some()) {
        parts.push(first.to_owned());
    }
    for piece in pieces {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(delimiter);
                last.push_str(piece);
            }
            _ => parts.push(piece.to_owned()),
        }
    }
    parts
}

/// Like [`split`], but text in brackets stays together. The brackets are kept if the text contains a `=`, as in `[name=a.b]`,
/// and are removed otherwise.
///
/// Replacements split at `.`: the last part of `metadata.annotations.[a.b/c]` is `a.b/c`.
pub(crate) fn split_brackets(path: &str, delimiter: char) -> Vec<String> {
    let mut pieces = split(path, delimiter).into_iter();
    let mut parts = Vec::new();
    while let Some(piece) = pieces.next() {
        if !piece.starts_with('[') || piece.ends_with(']') {
            parts.push(piece);
            continue;
        }
        let mut joined = piece;
        for piece in pieces.by_ref() {
            joined.push(delimiter);
            joined.push_str(&piece);
            if piece.ends_with(']') {
                break;
            }
        }
        if joined.contains('=') {
            parts.push(joined);
        } else {
            parts.push(joined.trim_matches(['[', ']']).to_owned());
        }
    }
    parts
}
