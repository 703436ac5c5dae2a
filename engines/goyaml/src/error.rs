//! What can be wrong with a text, in the words of go-yaml, `sigs.k8s.io/yaml` or `encoding/json`.
//! Resolution has an error of its own, which ends up here.

use crate::reader::YamlMark;

/// Why a text could not be read.
///
/// The text is that of the Go libraries, so it may be compared with what `kubectl`, Helm or Flux
/// print.
/// Go's line numbers are kept as they are: a syntax error in the first line has none, and a parser's
/// error (`did not find expected key`) names the line before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    text: String,
    line: Option<usize>,
}

impl Error {
    /// The line where reading stopped, counted from 1, where it is known.
    ///
    /// It is the true line also where Go's text names another one or none.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// What is wrong, without Go's word on where: for a message that names file and [`Self::line`] itself.
    pub fn problem(&self) -> &str {
        let text = self.text.strip_prefix("yaml: ").unwrap_or(&self.text);
        let after_line = text.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
        match after_line {
            Some((number, problem)) if number.bytes().all(|b| b.is_ascii_digit()) => problem,
            Some(_) | None => text,
        }
    }

    /// Bytes that are not text; Go never reports where.
    pub(crate) fn encoding(problem: &str, at: YamlMark) -> Self {
        Self { text: format!("yaml: {problem}"), line: Some(at.line + 1) }
    }

    /// Characters that form no token.
    pub(crate) fn token(problem: &str, at: YamlMark) -> Self {
        // Parity(go-yaml v2): line 0 counts as "unknown", so the first line is never named.
        let text = match at.line {
            0 => format!("yaml: {problem}"),
            line => format!("yaml: line {}: {problem}", line + 1),
        };
        Self { text, line: Some(at.line + 1) }
    }

    /// Characters that form no token, in something that began at `start`, which the text names.
    pub(crate) fn token_from(problem: &str, start: YamlMark, at: YamlMark) -> Self {
        Self { line: Some(at.line + 1), ..Self::token(problem, start) }
    }

    /// Tokens that form no document, in something that began at `start`, which the text names.
    pub(crate) fn grammar_from(problem: &str, start: YamlMark, at: YamlMark) -> Self {
        Self { line: Some(at.line + 1), ..Self::grammar(problem, start) }
    }

    /// Tokens that form no document.
    pub(crate) fn grammar(problem: &str, at: YamlMark) -> Self {
        // Parity(go-yaml v2): only the scanner's lines are counted from 1.
        let text = match at.line {
            0 => format!("yaml: {problem}"),
            line => format!("yaml: line {line}: {problem}"),
        };
        Self { text, line: Some(at.line + 1) }
    }

    /// A node that cannot be decoded; Go does not report where.
    pub(crate) fn node(problem: impl std::fmt::Display, at: YamlMark) -> Self {
        Self { text: format!("yaml: {problem}"), line: Some(at.line + 1) }
    }

    /// Keys that were set twice: Go's message about each, and the line of the first.
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

    /// The error, placed at `at` if nothing more precise is known.
    pub(crate) fn or_at(self, at: YamlMark) -> Self {
        Self { line: self.line.or(Some(at.line + 1)), ..self }
    }
}
