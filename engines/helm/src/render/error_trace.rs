//! The trace of an error: the templates that called each other, each with its line.
//!
//! Elsewhere: the message of the error (`template_error.rs`).

use std::sync::Arc;

use gotemplate::{TemplateExecError, TemplateFunctionError, TemplateLocation, TemplateParseError};

/// How many steps of a trace are kept. The middle of a longer trace is left out.
const MAX_TRAIL_STEPS: usize = 32;

/// One template in the trace of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateErrorTraceEntry {
    /// The name of the template.
    pub template: String,
    /// The file of the template. It is `gotpl` for a text that was given to `tpl`.
    pub source: String,
    /// The line, counted from one.
    pub line: usize,
    /// How many bytes precede the position in its line.
    pub column: usize,
    /// The expression that failed, as Go prints it.
    pub node: String,
    /// The text of the line, if it is in a file.
    pub text: Option<String>,
    /// The nil value whose field was requested, if that is the error.
    pub missing: Option<String>,
}

/// The trace of a failure, with the outermost template first. `text` returns the text of a file, or `None` if it is
/// unknown.
pub(super) fn of(
    failure: &TemplateFunctionError,
    text: impl Fn(&str) -> Option<Arc<[u8]>>,
) -> Vec<TemplateErrorTraceEntry> {
    let mut errors: Vec<&TemplateExecError> = Vec::new();
    let mut failure = Some(failure);
    while let Some(current) = failure {
        failure = match current {
            TemplateFunctionError::Exec(error) => {
                errors.push(error);
                error.source.as_deref()
            }
            TemplateFunctionError::Within { source, .. } => Some(source),
            _ => None,
        };
    }
    if errors.len() > MAX_TRAIL_STEPS {
        errors.drain(MAX_TRAIL_STEPS / 2..errors.len() - MAX_TRAIL_STEPS / 2);
    }
    let step = |error: &&TemplateExecError| {
        let TemplateLocation { source, line, column, node } = error.place.clone()?;
        Some(TemplateErrorTraceEntry {
            template: error.template.clone(),
            text: text(&source).and_then(|text| line_of(&text, line)),
            missing: missing(&node, &error.message),
            source,
            line,
            column,
            node,
        })
    };
    errors.iter().filter_map(step).collect()
}

/// The trace of a text that is not a template: its position.
pub(super) fn of_parse_error(
    error: &TemplateParseError,
    text: &[u8],
) -> Vec<TemplateErrorTraceEntry> {
    vec![TemplateErrorTraceEntry {
        template: error.template.clone(),
        source: error.template.clone(),
        line: error.line,
        column: 0,
        node: String::new(),
        text: line_of(text, error.line),
        missing: None,
    }]
}

fn line_of(text: &[u8], line: usize) -> Option<String> {
    let line = text.split(|byte| *byte == b'\n').nth(line.checked_sub(1)?)?;
    Some(String::from_utf8_lossy(line).trim_end().to_owned())
}

/// The expression whose value was nil, according to an error. For `.Values.a.b` and `nil pointer evaluating interface
/// {}.b`, it is `.Values.a`. `None` if the error is another one.
fn missing(node: &str, message: &str) -> Option<String> {
    let name = message.strip_prefix("nil pointer evaluating interface {}.")?;
    let mut at = 0;
    for part in node.split('.') {
        if part == name && at > 1 {
            return Some(node[..at - 1].to_owned());
        }
        at += part.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn what_is_missing_is_what_has_nothing_below_it() {
        let message = "nil pointer evaluating interface {}.b";
        assert_eq!(missing(".Values.a.b.c", message).as_deref(), Some(".Values.a"));
        assert_eq!(missing("$.b", message).as_deref(), Some("$"));
        assert_eq!(missing(".Values.x", message), None);
        assert_eq!(missing(".Values.a.b", "no"), None);
    }
}
