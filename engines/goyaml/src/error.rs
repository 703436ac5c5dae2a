//! Errors of reading a text, in the words of go-yaml, `sigs.k8s.io/yaml` or `encoding/json`. The errors of scalar
//! resolution are converted to them.

use crate::reader::YamlMark;

/// Why a text could not be read.
///
/// The message is the one of the Go libraries, so it can be compared with the output of `kubectl`, Helm or Flux. Go's
/// line numbers are kept. A syntax error in the first line has no number, and an error of the parser (`did not find
/// expected key`) names the line before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    text: String,
    line: Option<usize>,
}

impl Error {
    /// The line where reading stopped, counted from 1. `None` if it is not known.
    ///
    /// It is the real line, even if Go's message names another line or none.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The problem, without Go's words about its position. It is for a message that names the file and [`Self::line`]
    /// itself.
    pub fn problem(&self) -> &str {
        let text = self.text.strip_prefix("yaml: ").unwrap_or(&self.text);
        let after_line = text.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
        match after_line {
            Some((number, problem)) if number.bytes().all(|b| b.is_ascii_digit()) => problem,
            Some(_) | None => text,
        }
    }

    /// An error about bytes that are not text. Go never reports their position.
    pub(crate) fn encoding(problem: &str, at: YamlMark) -> Self {
        Self { text: format!("yaml: {problem}"), line: Some(at.line + 1) }
    }

    /// An error about characters that form no token.
    pub(crate) fn token(problem: &str, at: YamlMark) -> Self {
        // Parity(go-yaml v2): line 0 counts as "unknown", so the first line is never named.
        let text = match at.line {
            0 => format!("yaml: {problem}"),
            line => format!("yaml: line {}: {problem}", line + 1),
        };
        Self { text, line: Some(at.line + 1) }
    }

    /// An error about characters that form no token. The message names `start`, where the broken part began.
    pub(crate) fn token_from(problem: &str, start: YamlMark, at: YamlMark) -> Self {
        Self { line: Some(at.line + 1), ..Self::token(problem, start) }
    }

    /// An error about tokens that form no document. The message names `start`, where the broken part began.
    pub(crate) fn grammar_from(problem: &str, start: YamlMark, at: YamlMark) -> Self {
        Self { line: Some(at.line + 1), ..Self::grammar(problem, start) }
    }

    /// An error about tokens that form no document.
    pub(crate) fn grammar(problem: &str, at: YamlMark) -> Self {
        // Parity(go-yaml v2): only the scanner's lines are counted from 1.
        let text = match at.line {
            0 => format!("yaml: {problem}"),
            line => format!("yaml: line {line}: {problem}"),
        };
        Self { text, line: Some(at.line + 1) }
    }

    /// An error about a node that cannot be decoded. Go does not report its position.
    pub(crate) fn node(problem: impl std::fmt::Display, at: YamlMark) -> Self {
        Self { text: format!("yaml: {problem}"), line: Some(at.line + 1) }
    }

    /// The error about keys that were set twice: Go's message about each, and the line of the first.
    pub(crate) fn duplicates(problems: &[String], first: YamlMark) -> Self {
        let text = format!("yaml: unmarshal errors:\n  {}", problems.join("\n  "));
        Self { text, line: Some(first.line + 1) }
    }

    /// A value that is not JSON.
    pub(crate) fn value(text: String) -> Self {
        Self { text, line: None }
    }

    /// A line that begins with `---` but separates nothing.
    pub(crate) fn separator(text: &str, at: YamlMark) -> Self {
        Self { text: format!("invalid Yaml document separator: {text}"), line: Some(at.line + 1) }
    }

    /// The error with the position `at`, if it has no more precise one.
    pub(crate) fn or_at(self, at: YamlMark) -> Self {
        Self { line: self.line.or(Some(at.line + 1)), ..self }
    }
}
