//! Why a build ended: kustomize's words, and the few distinctions that its own code makes.

/// Why a build, or a part of one, ended.
///
/// Displays as kustomize says it, without the `Error: ` that the command puts in front.
/// Differs(kustomize): where its text shows Go's memory (pointers, dumps of structs), the text here names the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    text: String,
    cause: Cause,
}

/// What other code asks of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nothing in particular.
    Other,
    /// A file is no YAML, so that reading it as a folder would be pointless.
    MalformedYaml,
    /// A server answered that there is no such file.
    Http,
}

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: Cause::Other }
    }

    /// Says that a server has no such file, which ends the build at once.
    pub fn http(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: Cause::Http }
    }

    pub(crate) fn caused(text: impl Into<String>, cause: Cause) -> Self {
        Self { text: text.into(), cause }
    }

    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// The error with `prefix: ` in front.
    #[must_use]
    pub(crate) fn within(self, prefix: impl std::fmt::Display) -> Self {
        Self { text: format!("{prefix}: {}", self.text), cause: self.cause }
    }
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Puts what was being done in front of an error.
pub(crate) trait Within<T> {
    /// As [`Error::within`]; the prefix is made only if it is needed.
    fn within<P: std::fmt::Display>(self, prefix: impl FnOnce() -> P) -> Result<T>;
}

impl<T> Within<T> for Result<T> {
    fn within<P: std::fmt::Display>(self, prefix: impl FnOnce() -> P) -> Self {
        self.map_err(|error| error.within(prefix()))
    }
}
