//! What several pages read, kept for some seconds: a list of all objects costs the API server the same for one page as for ten.

use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use windlass_answers::command_scope::CommandScope;
use windlass_answers::kind_argument::{self, ResourceArgument};
use windlass_answers::why::all::{self, UnreadyObjectsOverview, in_words};

use super::board::ObjectBoard;
use super::parts::SiteFacts;
use super::shell_line::shell_line;

/// How long what was read is shown to further pages, which say when it was.
const MAX_AGE: Duration = Duration::from_secs(10);

/// How many pages predict what would change at once.
const MAX_PREDICTIONS_AT_ONCE: usize = 2;

/// What was read, and when.
struct RecentRead<T> {
    at: Instant,
    value: Rc<T>,
}

/// Something that is read by the first page that needs it, and by others when it is too old. Pages that need it meanwhile wait
/// for the first.
struct SharedRead<T>(Mutex<Option<RecentRead<T>>>);

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> SharedRead<T> {
    /// What was read, or is read now. An error is not kept.
    async fn get(&self, read: impl AsyncFnOnce() -> anyhow::Result<T>) -> anyhow::Result<Rc<T>> {
        let mut kept = self.0.lock().await;
        if let Some(recent) = kept.as_ref().filter(|it| it.at.elapsed() < MAX_AGE) {
            return Ok(recent.value.clone());
        }
        // An old answer is not shown where the new one is an error.
        *kept = None;
        let value = Rc::new(read().await?);
        *kept = Some(RecentRead { at: Instant::now(), value: value.clone() });
        Ok(value)
    }
}

/// Everything that is not ready, and when that was read.
pub(crate) struct UnreadyRead {
    pub(crate) overview: UnreadyObjectsOverview,
    pub(crate) read_at: Timestamp,
}

/// A cluster as its user may read it.
pub(crate) struct PageReader {
    pub(crate) site: CommandScope,
    pub(crate) facts: SiteFacts,
    board: SharedRead<ObjectBoard>,
    unready: SharedRead<UnreadyRead>,
    /// For predictions of what would change: each has an artifact in memory.
    pub(crate) predictions: Semaphore,
}

impl PageReader {
    /// A reader of one namespace, or of all. `access` are the flags by which a command means the same cluster and user.
    pub(crate) async fn new(site: CommandScope, access: &[String]) -> Self {
        // Who the user is decides nothing here: the API server knows it.
        let user = site.cluster.own_name().await.unwrap_or_default();
        let words: Vec<&str> = access.iter().map(String::as_str).collect();
        let facts = SiteFacts {
            place: in_words(&site.namespace),
            server: site.cluster.address(),
            user,
            flags: shell_line(&words),
        };
        Self {
            site,
            facts,
            board: SharedRead::default(),
            unready: SharedRead::default(),
            predictions: Semaphore::new(MAX_PREDICTIONS_AT_ONCE),
        }
    }

    /// All objects that are reconciled, a row each.
    ///
    /// # Errors
    /// The API server did not respond.
    pub(crate) async fn board(&self) -> anyhow::Result<Rc<ObjectBoard>> {
        self.board.get(async || ObjectBoard::read(&self.site).await).await
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
