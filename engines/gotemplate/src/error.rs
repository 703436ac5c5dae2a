//! Errors of parsing and running templates, in Go's words.

use std::fmt;

use golang::value::FunctionCallError;
use golang::work_meter::WorkLimitExceeded;

/// A text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {template}:{line}: {message}")]
pub struct TemplateParseError {
    /// The name under which the text was parsed.
    pub template: String,
    /// The line, counted from one, at which parsing stopped.
    pub line: usize,
    /// What is wrong with the text.
    pub message: String,
}

/// The position at which a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateLocation {
    /// The name under which the text was parsed.
    pub source: String,
    /// The line, counted from one.
    pub line: usize,
    /// How many bytes precede the position in its line.
    pub column: usize,
    /// The expression that failed, as Go prints it.
    pub node: String,
}

/// A run of a template failed.
///
/// Its text is Go's error. Its source is the error of a function, or of a template that a function ran.
#[derive(Debug)]
pub struct TemplateExecError {
    /// The name of the template that was run. With a `define`, it differs from the name of the text.
    pub template: String,
    /// Where the run stopped. `None` if it did not begin.
    pub place: Option<TemplateLocation>,
    /// The message, up to the place where the text of the source follows.
    pub message: String,
    /// The error of a function.
    pub source: Option<Box<TemplateFunctionError>>,
}

impl fmt::Display for TemplateExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { template, message, .. } = self;
        match &self.place {
            None => write!(f, "template: {template}: {message}")?,
            Some(TemplateLocation { source, line, column, node }) => {
                let name = golang::strconv::quote(template.as_bytes(), QUOTING);
                let name = String::from_utf8_lossy(&name);
                write!(
                    f,
                    "template: {source}:{line}:{column}: executing {name} at <{node}>: {message}"
                )?;
            }
        }
        self.source.as_ref().map_or(Ok(()), |source| source.fmt(f))
    }
}

const QUOTING: golang::strconv::QuotingStyle = golang::strconv::QuotingStyle::Printable;

impl std::error::Error for TemplateExecError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// A limit of a run that was reached, so that the run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateLimitError {
    /// The output, or a text that was made in between, is too long.
    #[error("the output is longer than {0} bytes")]
    Output(usize),
    /// The run takes too many steps.
    #[error("the run takes more than {0} steps")]
    Steps(u64),
    /// Expressions, or templates that functions run, are nested too deeply.
    #[error("functions and expressions are nested more than {0} deep")]
    Calls(usize),
    /// The time of the caller is over.
    #[error("the time limit is reached")]
    Time,
    /// A value cannot be printed, because it is nested too deeply or contains itself.
    #[error("{0}")]
    Value(golang::fmt::Error),
}

impl From<WorkLimitExceeded> for TemplateLimitError {
    fn from(exhausted: WorkLimitExceeded) -> Self {
        match exhausted {
            WorkLimitExceeded::Steps(most) => Self::Steps(most),
            WorkLimitExceeded::Bytes(most) => {
                Self::Output(usize::try_from(most).unwrap_or(usize::MAX))
            }
            WorkLimitExceeded::Time => Self::Time,
        }
    }
}

/// Why a function or a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum TemplateFunctionError {
    /// A message of the function.
    #[error("{0}")]
    Message(String),
    /// A message of the function, followed by the error that caused it.
    #[error("{message}{source}")]
    Within {
        /// The message, up to the place where the text of the source follows.
        message: String,
        /// The error that caused it.
        source: Box<Self>,
    },
    /// The function parsed a template, and that failed.
    #[error(transparent)]
    Parse(#[from] TemplateParseError),
    /// The function ran a template, and that failed.
    #[error(transparent)]
    Exec(#[from] Box<TemplateExecError>),
    /// A template does not exist.
    #[error("template: no template {} associated with template {}", shown(.template), shown(.set))]
    NoTemplate {
        /// The name of the missing template.
        template: String,
        /// The name of the template set.
        set: String,
    },
    /// A limit of the run was reached.
    #[error(transparent)]
    Limit(#[from] TemplateLimitError),
}

impl TemplateFunctionError {
    /// The limit that was reached, if a limit is the cause anywhere in the chain of errors. `None` if it is not.
    pub fn limit(&self) -> Option<TemplateLimitError> {
        let mut failure = self;
        loop {
            match failure {
                Self::Limit(limit) => return Some(*limit),
                Self::Exec(error) => failure = error.source.as_deref()?,
                Self::Within { source, .. } => failure = source,
                Self::Message(_) | Self::Parse(_) | Self::NoTemplate { .. } => return None,
            }
        }
    }
}

impl From<String> for TemplateFunctionError {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<&str> for TemplateFunctionError {
    fn from(message: &str) -> Self {
        Self::Message(message.to_owned())
    }
}

impl From<WorkLimitExceeded> for TemplateFunctionError {
    fn from(exhausted: WorkLimitExceeded) -> Self {
        Self::Limit(exhausted.into())
    }
}

impl From<FunctionCallError> for TemplateFunctionError {
    fn from(error: FunctionCallError) -> Self {
        match error {
            FunctionCallError::Said(text) => Self::Message(text),
            FunctionCallError::Exhausted(exhausted) => exhausted.into(),
        }
    }
}

impl From<golang::fmt::Error> for TemplateFunctionError {
    fn from(error: golang::fmt::Error) -> Self {
        Self::Limit(TemplateLimitError::Value(error))
    }
}

fn shown(name: &str) -> String {
    String::from_utf8_lossy(&golang::strconv::quote(name.as_bytes(), QUOTING)).into_owned()
}
