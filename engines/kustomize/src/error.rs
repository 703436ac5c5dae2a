//! Why a build ended: kustomize's words, and the few distinctions that its own code makes.

use golang::work_meter::WorkLimitExceeded;

/// Why a build, or a part of one, ended.
///
/// The text is kustomize's, without the `Error: ` that the command puts in front.
/// Differs(kustomize): where its text shows Go's memory (pointers, dumps of structs), the text here names the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    text: String,
    cause: BuildErrorCause,
}

/// What other code asks of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildErrorCause {
    /// Nothing in particular.
    Other,
    /// A file is not YAML, so that reading it as a folder would be pointless.
    MalformedYaml,
    /// A server answered that there is no such file.
    Http,
    /// The build has used up what it may.
    Exhausted,
}

/// How long an error's text gets. Differs(kustomize): it has no limit, and quotes within quotes double at each level.
const MAX_TEXT: usize = 64 << 10;

/// A text without its middle if it is too long: its beginning names the action, and its end the cause.
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

    /// The error with `prefix: ` in front.
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

/// Puts what was being done in front of an error.
pub(crate) trait ErrorContext<T> {
    /// As [`Error::within`]; the prefix is made only if it is needed.
    fn within<P: std::fmt::Display>(self, prefix: impl FnOnce() -> P) -> Result<T>;

    /// The same for the error that the build has used up what it may, and for no other: kustomize has no words for it.
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
