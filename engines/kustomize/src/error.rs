//! Errors of a build: kustomize's messages, and the few distinctions that other code makes.

use golang::work_meter::WorkLimitExceeded;

/// Why a build or a part of it failed.
///
/// The text is that of kustomize, without the prefix `Error: ` of its command.
/// Differs(kustomize): where its text shows Go's memory (pointers, dumps of structs), the text here names the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    text: String,
    cause: BuildErrorCause,
}

/// The causes that other code distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildErrorCause {
    /// No special cause.
    Other,
    /// A file is not YAML. The caller then need not try to read it as a folder.
    MalformedYaml,
    /// The server responded that the file does not exist.
    Http,
    /// The build has exceeded its budget.
    Exhausted,
}

/// How long an error's text gets. Differs(kustomize): it has no limit, and quotes within quotes double at each level.
const MAX_TEXT: usize = 64 << 10;

/// Removes the middle of a text that is too long. Its beginning names the action, and its end names the cause.
fn cut(text: String) -> String {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let head = text.floor_char_boundary(MAX_TEXT / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_TEXT / 2);
    [&text[..head], "…", &text[tail..]].concat()
}

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self::caused(text, BuildErrorCause::Other)
    }

    /// An error about a file that a server does not have, which ends the build at once.
    pub fn http(text: impl Into<String>) -> Self {
        Self::caused(text, BuildErrorCause::Http)
    }

    /// Whether the caller's time was over.
    pub fn is_time_over(&self) -> bool {
        self.cause == BuildErrorCause::Exhausted
            && self.text.ends_with(&WorkLimitExceeded::Time.to_string())
    }

    pub(crate) fn caused(text: impl Into<String>, cause: BuildErrorCause) -> Self {
        Self { text: cut(text.into()), cause }
    }

    pub(crate) fn cause(&self) -> BuildErrorCause {
        self.cause
    }

    /// Adds `prefix: ` in front of the message.
    #[must_use]
    pub(crate) fn within(self, prefix: impl std::fmt::Display) -> Self {
        Self::caused(format!("{prefix}: {}", self.text), self.cause)
    }
}

impl From<WorkLimitExceeded> for Error {
    fn from(exhausted: WorkLimitExceeded) -> Self {
        Self::caused(exhausted.to_string(), BuildErrorCause::Exhausted)
    }
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds the current action in front of an error's message.
pub(crate) trait ErrorContext<T> {
    /// Like [`Error::within`]. The prefix is only computed if there is an error.
    fn within<P: std::fmt::Display>(self, prefix: impl FnOnce() -> P) -> Result<T>;

    /// Adds a prefix, but only to the error about an exceeded budget, because kustomize has no such error.
    fn if_exhausted<P: std::fmt::Display>(self, prefix: impl FnOnce() -> P) -> Result<T>;
}

impl<T> ErrorContext<T> for Result<T> {
    fn within<P: std::fmt::Display>(self, prefix: impl FnOnce() -> P) -> Self {
        self.map_err(|error| error.within(prefix()))
    }

    fn if_exhausted<P: std::fmt::Display>(self, prefix: impl FnOnce() -> P) -> Self {
        self.map_err(|error| match error.cause {
            BuildErrorCause::Exhausted => error.within(prefix()),
            BuildErrorCause::Other | BuildErrorCause::MalformedYaml | BuildErrorCause::Http => {
                error
            }
        })
    }
}
