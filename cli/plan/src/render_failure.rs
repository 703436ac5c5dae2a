//! Why something of a revision is not rendered: because it is wrong, or because what it needs is not at hand.
//!
//! Elsewhere: what is fetched (`chart_fetch.rs`, `remote_servers.rs`), which sources are the repository
//! (`repository_sources.rs`), what both mean for a plan (engine `plan`).

use plan::RenderedApplier;

/// Why an applier was not begun.
const TIME_IS_OVER: &str = "the time limit of this command was reached before its turn";

/// Why something is not rendered. Each has a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RenderFailure {
    /// It needs files or a chart that this command does not fetch: those of another source, or of a host that the user did not
    /// allow. Nothing is known to be wrong.
    NotFetched(String),
    /// A server that was asked did not deliver, or a limit of this command was reached: another run may render it, and so may
    /// the cluster.
    Interruption(String),
    /// Anything else, such as an error of a template.
    Failed(String),
}

impl From<String> for RenderFailure {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl RenderFailure {
    /// Why, for people.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::NotFetched(text) | Self::Interruption(text) | Self::Failed(text) => text,
        }
    }

    /// The same, for callers that make no difference.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::NotFetched(text) | Self::Interruption(text) | Self::Failed(text) => text,
        }
    }

    /// The same with another text.
    #[must_use]
    pub(crate) fn with_text(self, text: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::NotFetched(why) => Self::NotFetched(text(why)),
            Self::Interruption(why) => Self::Interruption(text(why)),
            Self::Failed(why) => Self::Failed(text(why)),
        }
    }

    /// Whether it is only that something is not fetched.
    pub(crate) fn is_not_fetched(&self) -> bool {
        matches!(self, Self::NotFetched(_))
    }

    /// That the time of this command was over before something was begun.
    pub(crate) fn out_of_time() -> Self {
        Self::Interruption(TIME_IS_OVER.to_owned())
    }

    /// An applier that is not rendered for this reason.
    pub(crate) fn of_applier(self, begun: RenderedApplier) -> RenderedApplier {
        let is_not_fetched = self.is_not_fetched();
        let is_interrupted = matches!(self, Self::Interruption(_));
        let failure = Some(self.into_text());
        RenderedApplier { failure, is_not_fetched, is_interrupted, ..begun }
    }
}
