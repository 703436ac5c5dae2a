//! Reads PEM like Go.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A PEM block, decoded.
pub(crate) struct PemBlock {
    /// The type of the block, such as `SSH SIGNATURE`.
    pub(crate) kind: String,
    pub(crate) content: Vec<u8>,
}

/// The first readable PEM block of a text. Text around it is skipped. `None` if the text has no such block.
pub(crate) fn first(text: &[u8]) -> Option<PemBlock> {
    let text = String::from_utf8_lossy(text);
    let mut rest: &str = &text;
    loop {
        let at = match rest.strip_prefix("-----BEGIN ") {
            Some(_) => 0,
            None => rest.find("\n-----BEGIN ")? + 1,
        };
        let inner = rest.get(at + "-----BEGIN ".len()..)?;
        rest = inner;
        if let Some(block) = block(inner) {
            return Some(block);
        }
    }
}

/// Reads a PEM block from the text after `-----BEGIN `. `None` if the block is malformed or not closed.
fn block(text: &str) -> Option<PemBlock> {
    let (kind, body) = text.split_once('\n')?;
    let kind = kind.trim_end().strip_suffix("-----")?;
    let end = format!("-----END {kind}-----");
    let at = match body.starts_with(&end) {
        true => 0,
        false => body.find(&format!("\n{end}"))? + 1,
    };
    let after = body.get(at + end.len()..)?.split('\n').next().unwrap_or_default();
    if !after.trim_end().is_empty() {
        return None;
    }
    let mut body = body.get(..at)?;
    // Skips the headers of the block.
    while let Some((line, rest)) = body.split_once('\n').filter(|(line, _)| line.contains(':')) {
        let _ = line;
        body = rest;
    }
    let encoded: String = body.chars().filter(|char| !char.is_ascii_whitespace()).collect();
    let content = STANDARD.decode(encoded).ok()?;
    Some(PemBlock { kind: kind.to_owned(), content })
}
