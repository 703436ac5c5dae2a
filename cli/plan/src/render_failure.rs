//! Why a part of a revision is not rendered: either it is wrong, or something that it needs is not available.
//!
//! Elsewhere: fetching (`chart_fetch.rs`, `remote_file_fetcher.rs`), sources that are this repository (`repository_sources.rs`), the
//! effect on a plan (engine `plan`).

use plan::RenderedApplier;

/// The message for an applier that was not started in time.
const TIME_IS_OVER: &str = "the time limit of this command was reached before its turn";

/// Why something is not rendered. Each variant contains a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RenderFailure {
    /// The command does not fetch the needed files or chart. They belong to another source, or to a host that the user did not
    /// allow. There may be no error at all.
    NotFetched(String),
    /// A server did not deliver, or a limit of this command was reached. Another run may succeed, and so may the cluster.
    Interruption(String),
    /// Any other failure, such as an error of a template.
    Failed(String),
}

impl From<String> for RenderFailure {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl RenderFailure {
    /// The text for people.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::NotFetched(text) | Self::Interruption(text) | Self::Failed(text) => text,
        }
    }

    /// The text for people, without the kind of the failure.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::NotFetched(text) | Self::Interruption(text) | Self::Failed(text) => text,
        }
    }

    /// The same kind of failure with another text.
    #[must_use]
    pub(crate) fn with_text(self, text: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::NotFetched(why) => Self::NotFetched(text(why)),
            Self::Interruption(why) => Self::Interruption(text(why)),
            Self::Failed(why) => Self::Failed(text(why)),
        }
    }

    /// Whether the failure only means that something is not fetched.
    pub(crate) fn is_not_fetched(&self) -> bool {
        matches!(self, Self::NotFetched(_))
    }

    /// The failure if the time of the command was over before the work began.
    pub(crate) fn out_of_time() -> Self {
        Self::Interruption(TIME_IS_OVER.to_owned())
    }

    /// Makes an applier that is not rendered for this reason.
    pub(crate) fn of_applier(self, begun: RenderedApplier) -> RenderedApplier {
        let is_not_fetched = self.is_not_fetched();
        let is_interrupted = matches!(self, Self::Interruption(_));
        let failure = Some(self.into_text());
        RenderedApplier { failure, is_not_fetched, is_interrupted, ..begun }
    }
}
