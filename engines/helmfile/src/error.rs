//! What can go wrong.

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
    /// Anything else, in words for people.
    #[error("{0}")]
    Message(String),
}

impl Error {
    /// The same with words in front that say where; what leaves a helmfile out stays what it is.
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

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
