//! A cluster as pages read it: what they share, and what each reads by itself.

use jiff::Timestamp;
use tokio::sync::Semaphore;
use windlass_answers::command_scope::CommandScope;
use windlass_answers::kind_argument::{self, ResourceArgument};
use windlass_answers::why::all::{self, UnreadyObjectsOverview, in_words};

use std::rc::Rc;
use std::time::Duration;

use super::actions::PageActions;
use super::board::ObjectBoard;
use super::board::board_watcher::{BoardWatcher, WatchedRights};
use super::frame::SiteFacts;
use super::shared_read::SharedRead;
use super::shell_line::shell_line;

/// How many pages predict what would change at once.
const MAX_PREDICTIONS_AT_ONCE: usize = 2;

/// Those of all users: each has an artifact in memory.
static PREDICTIONS: Semaphore = Semaphore::const_new(MAX_PREDICTIONS_AT_ONCE);

/// When a page is read again that shows what is not watched.
pub(crate) const UNWATCHED_RENEWAL: Duration = Duration::from_secs(30);

/// When a page of an object is read again of which other objects decide how it is, such as its Pods, and which are not watched.
pub(crate) const UNSETTLED_RENEWAL: Duration = Duration::from_secs(10);

/// Everything that is not ready, and when that was read.
pub(crate) struct UnreadyRead {
    pub(crate) overview: UnreadyObjectsOverview,
    pub(crate) read_at: Timestamp,
}

/// A cluster as its user may read it.
pub(crate) struct PageReader {
    pub(crate) site: CommandScope,
    pub(crate) facts: SiteFacts,
    /// Follows the objects while `windlass ui` runs.
    pub(crate) watcher: BoardWatcher,
    /// What forms need.
    pub(crate) actions: PageActions,
    unready: SharedRead<UnreadyRead>,
    /// For predictions of what would change.
    pub(crate) predictions: &'static Semaphore,
}

impl PageReader {
    /// A reader of one namespace, or of all. `access` are the flags by which a command means the same cluster and user.
    pub(crate) async fn new(site: CommandScope, access: &[String]) -> Self {
        Self::with(site, access, WatchedRights::OfOwnUser).await
    }

    /// A reader for one user who has logged in, and whose rights may go while pages are open.
    pub(crate) async fn for_login(site: CommandScope) -> Self {
        Self::with(site, &[], WatchedRights::OfLogin).await
    }

    async fn with(site: CommandScope, access: &[String], rights: WatchedRights) -> Self {
        // Who the user is decides nothing here: the API server knows it.
        let user = site.cluster.own_name().await.unwrap_or_default();
        let words: Vec<&str> = access.iter().map(String::as_str).collect();
        let facts = SiteFacts {
            place: in_words(&site.namespace),
            server: site.cluster.address(),
            user,
            flags: shell_line(&words),
            has_login: rights == WatchedRights::OfLogin,
        };
        Self {
            site,
            facts,
            watcher: BoardWatcher::new(rights),
            actions: PageActions::new(),
            unready: SharedRead::default(),
            predictions: &PREDICTIONS,
        }
    }

    /// All objects that are reconciled, a row each.
    ///
    /// # Errors
    /// The API server did not respond.
    pub(crate) async fn board(&self) -> anyhow::Result<ObjectBoard> {
        self.watcher.board(&self.site).await
    }

    /// When a page of the board is read again although no watch says that something has changed: where kinds are not watched.
    pub(crate) fn board_renewal(&self) -> Option<Duration> {
        self.watcher.renewal()
    }

    /// The same for a page of Incidents, audits and the like.
    pub(crate) fn record_renewal(&self) -> Option<Duration> {
        (!self.watcher.hears_records()).then_some(UNWATCHED_RENEWAL)
    }

    /// When the overview is read again: it is read as a whole, so that it may be older than the last change.
    pub(crate) async fn overview_renewal(&self) -> Option<Duration> {
        let unseen = self.unready.shows_in(self.watcher.changed_at()).await;
        [unseen, self.board_renewal(), self.record_renewal()].into_iter().flatten().min()
    }

    /// Everything that is not ready, by its cause.
    ///
    /// # Errors
    /// The API server did not respond.
    pub(crate) async fn unready(&self) -> anyhow::Result<Rc<UnreadyRead>> {
        self.unready
            .get(async || {
                let targets = self.targets(&["all"]).await?;
                let read_at = Timestamp::now();
                let found = all::find(&self.site, &targets, "").await?;
                anyhow::Ok(UnreadyRead { overview: found.overview, read_at })
            })
            .await
    }

    /// What words of the command line name.
    ///
    /// # Errors
    /// There is no such kind, or the API server did not respond.
    pub(crate) async fn targets(&self, words: &[&str]) -> anyhow::Result<Vec<ResourceArgument>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        kind_argument::targets(&self.site.cluster, &words).await
    }

    /// The flag by which a command is about the same namespaces.
    pub(crate) fn scope_flag(&self) -> String {
        match self.site.namespace.as_str() {
            "" => "-A".to_owned(),
            namespace => shell_line(&["-n", namespace]),
        }
    }
}
