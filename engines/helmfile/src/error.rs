//! Errors of this engine.

/// Why a helmfile has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The environment is not declared in this helmfile, which is therefore left out.
    #[error("environment \"{0}\" is not defined")]
    UndefinedEnvironment(String),
    /// No helmfile has a release for the selectors and the environment.
    #[error(
        "no releases found that matches specified selector({selectors}) and environment({environment}), in any helmfile"
    )]
    NothingMatched {
        /// The selectors, joined.
        selectors: String,
        /// The environment.
        environment: String,
    },
    /// Any other error, with a message for users.
    #[error("{0}")]
    Message(String),
}

impl Error {
    /// Adds a location in front of the message. An error that only leaves out a helmfile is not changed.
    #[must_use]
    pub(crate) fn at(self, place: &str) -> Self {
        match self {
            Self::Message(text) => Self::Message(format!("{place}: {text}")),
            other => other,
        }
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::Message(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self::Message(text.to_owned())
    }
}

/// A result that may be incomplete because of an error.
///
/// Parity(helmfile 1.8): the output of helmfiles and releases before the one that fails is printed.
#[derive(Debug)]
pub struct PartialOutput<T> {
    /// The result up to the error. Without an error it is complete.
    pub made: T,
    /// The error that ended the work, if there was one.
    pub error: Option<Error>,
}

impl<T> PartialOutput<T> {
    /// The complete result.
    ///
    /// # Errors
    /// The error. The incomplete result is dropped.
    pub fn whole(self) -> Result<T> {
        self.error.map_or(Ok(self.made), Err)
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
