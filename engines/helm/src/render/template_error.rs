//! Errors of templates in Helm's words: a few lines for each template of the trace. If Helm cannot parse the error, it
//! is Go's single line.
//!
//! Helm works only with the text of the error, and so does this file. A text that Helm mistakes for a position is one
//! here, too.

use gotemplate::{TemplateExecError, TemplateFunctionError, TemplateParseError};

use super::functions::MARKS;

/// The message about a file that is not a template.
pub(super) fn of_parse_error(error: &TemplateParseError) -> String {
    let text = error.to_string();
    let parts: Vec<&str> = text.split(": ").collect();
    match parts.as_slice() {
        [_, place, .., last] => format!("parse error at ({place}): {last}"),
        [_, place] => format!("parse error at ({place}): {place}"),
        _ => format!("parse error in ({}): {text}", error.template),
    }
}

/// The message about a template that failed.
pub(super) fn of_failure(file: &str, failure: &TemplateFunctionError) -> String {
    let error = match failure {
        TemplateFunctionError::Exec(error) => error,
        TemplateFunctionError::Limit(limit) => {
            return format!("execution error in ({file}): {limit}");
        }
        other => return other.to_string(),
    };
    let whole = error.to_string();
    let mut parts = whole.splitn(3, ": ");
    let (Some(_), Some(place), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return format!("execution error in ({file}): {whole}");
    };
    if let Some(said) = said(rest) {
        return format!("execution error at ({place}): {said}");
    }
    match steps(error) {
        Some(steps) => {
            let text: String = steps.iter().map(TemplateErrorFrame::text).collect();
            text.trim().to_owned()
        }
        None => whole,
    }
}

/// The message of a chart author within the text of an error. `None` if the text contains no such message.
fn said(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(MARKS.0)?;
    rest.rsplit_once(MARKS.1).map(|(said, _)| said)
}

/// One template in the trace of an error.
#[derive(Debug, PartialEq, Eq)]
struct TemplateErrorFrame {
    place: String,
    executing: String,
    message: String,
}

impl TemplateErrorFrame {
    fn text(&self) -> String {
        let mut text = String::new();
        for (part, end) in
            [(&self.place, "\n  "), (&self.executing, "\n    "), (&self.message, "\n")]
        {
            if !part.is_empty() {
                text.push_str(part);
                text.push_str(end);
            }
        }
        text
    }

    /// Parses the text of a template error into its place and message. `None` if the text has another form.
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("template: ")?;
        if rest.starts_with("no template ") {
            let place = String::new();
            let executing = String::new();
            return Some(Self { place, executing, message: text.to_owned() });
        }
        Self::executing(rest).or_else(|| {
            let (place, message) = rest.rsplit_once(": ")?;
            let place = place.to_owned();
            let executing = String::new();
            Some(Self { place, executing, message: own(message).to_owned() })
        })
    }

    fn executing(rest: &str) -> Option<Self> {
        let (place, after) = rest.split_once(": executing ")?;
        let (name, after) = after.strip_prefix('"')?.split_once('"')?;
        let (node, message) = after.strip_prefix(" at <")?.split_once(">: ")?;
        Some(Self {
            place: place.to_owned(),
            executing: format!("executing \"{name}\" at <{node}>:"),
            message: own(message).to_owned(),
        })
    }
}

/// The part of a message before the message of the next template.
fn own(message: &str) -> &str {
    message.split_once(" template:").map_or(message, |(own, _)| own)
}

/// The templates in the trace of an error, the outermost first. `None` if Helm cannot parse one of the errors.
fn steps(error: &TemplateExecError) -> Option<Vec<TemplateErrorFrame>> {
    let mut steps: Vec<TemplateErrorFrame> = Vec::new();
    let mut error = Some(error);
    while let Some(current) = error {
        error = None;
        let text = match current.source.as_deref() {
            Some(TemplateFunctionError::Exec(next)) => {
                error = Some(next);
                // The rest would be cut off anyway, and it is long if templates are nested deeply.
                format!("{}template:", head(current))
            }
            _ => current.to_string(),
        };
        let step = TemplateErrorFrame::parse(&text)?;
        if steps.last() != Some(&step) {
            steps.push(step);
        }
        if let (None, Some(source)) = (&error, current.source.as_deref()) {
            let step = TemplateErrorFrame::parse(&source.to_string())?;
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        }
    }
    Some(steps)
}

/// The text of an error without the error that caused it.
fn head(error: &TemplateExecError) -> String {
    let TemplateExecError { template, place, message, .. } = error;
    let template = template.clone();
    let place = place.clone();
    let message = message.clone();
    TemplateExecError { template, place, message, source: None }.to_string()
}
