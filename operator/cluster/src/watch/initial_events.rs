//! Lists as the initial events of a watch (the feature gate `WatchList` of Kubernetes).
//!
//! The API server sends all objects as events, then a bookmark with an annotation, and then the changes. So a list needs the
//! memory of one object at a time, where a page of 500 objects is read as a whole. The list is complete only with that
//! bookmark: nothing counts as missing or deleted before. A stream that ends without it is no list, and another one begins.
//!
//! Where the API server refuses such a watch, or its streams end too early, lists are read by pages. That is remembered for
//! the kind, for an hour.
//!
//! Elsewhere: pages, and the watch after the list (`watch`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::client::Body;
use kube::core::Status;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::lines::BodyLines;
use super::{KindWatch, WATCH_FOR, WatchPhase, WatcherEvent, too_many_objects, unreadable};
use crate::ClusterError;
use crate::object_decode::{LIST_LIMIT, ObjectDecodeForm, ObjectIdentity, WatchLine};
use crate::response_limit::ANSWER_LIMIT;

/// A stream without any event for this long does not end with the bookmark. An API server that does not know the parameters
/// of the request sends none.
const SILENT_LIST_AFTER: Duration = Duration::from_secs(60);

/// How long a stream may take until its bookmark.
const LIST_WITHIN: Duration = Duration::from_secs(120);

/// After how many streams in a row without a bookmark the list is read by pages.
const MOST_EARLY_ENDS: usize = 2;

/// For how long the lists of a kind are read by pages after the API server refused initial events.
const REFUSED_FOR: Duration = Duration::from_secs(3600);

/// The most bytes of the events about deleted objects that are held back until the bookmark.
const HELD_LIMIT: usize = ANSWER_LIMIT;

/// The kinds of which an API server sends no initial events, each with the time of the refusal.
#[derive(Debug, Default)]
pub(crate) struct InitialEventsRefusals(Mutex<BTreeMap<String, Instant>>);

impl InitialEventsRefusals {
    fn add(&self, kind: &str, now: Instant) {
        let mut all = self.0.lock();
        all.retain(|_, at| now.saturating_duration_since(*at) < REFUSED_FOR);
        all.insert(kind.to_owned(), now);
    }

    fn has(&self, kind: &str, now: Instant) -> bool {
        let at = self.0.lock().get(kind).copied();
        at.is_some_and(|at| now.saturating_duration_since(at) < REFUSED_FOR)
    }
}

/// How the next list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextListMethod {
    /// As initial events.
    InitialEvents,
    /// By pages, because the API server sent no complete initial events. It is remembered once a page is answered, since
    /// without that the refusal may have another reason, such as rights.
    PagesAfterRefusal,
    /// By pages until one list is complete.
    Pages,
}

/// The refusals of an API server, and the kind of a watch among them.
struct RefusalsOfKind {
    refusals: Arc<InitialEventsRefusals>,
    /// The path of the kind in all namespaces.
    kind: String,
}

/// Decides how a watch reads its lists.
pub(super) struct ListMethods {
    /// `None` for a watch that reads all its lists by pages.
    refusals: Option<RefusalsOfKind>,
    next: NextListMethod,
    /// How many streams in a row ended before their bookmark.
    early_ends: usize,
}

impl ListMethods {
    /// All lists are read by pages.
    pub(super) fn pages() -> Self {
        Self { refusals: None, next: NextListMethod::Pages, early_ends: 0 }
    }

    /// Lists are initial events unless the API server refuses them. `kind` is the path of the kind in all namespaces.
    pub(super) fn initial_events(refusals: Arc<InitialEventsRefusals>, kind: String) -> Self {
        let refusals = Some(RefusalsOfKind { refusals, kind });
        Self { refusals, next: NextListMethod::InitialEvents, early_ends: 0 }
    }

    /// Whether the next list is read as initial events.
    pub(super) fn is_by_initial_events(&self) -> bool {
        let is_served = |it: &RefusalsOfKind| !it.refusals.has(&it.kind, Instant::now());
        self.next == NextListMethod::InitialEvents && self.refusals.as_ref().is_some_and(is_served)
    }

    /// Notes a page of a list, and whether the list ended with it.
    pub(super) fn note_page(&mut self, is_answered: bool, is_last: bool) {
        if let Some(RefusalsOfKind { refusals, kind }) = &self.refusals
            && self.next == NextListMethod::PagesAfterRefusal
            && is_answered
        {
            refusals.add(kind, Instant::now());
        }
        self.next = match (is_last, self.next) {
            (true, _) | (false, NextListMethod::InitialEvents) => NextListMethod::InitialEvents,
            (false, NextListMethod::PagesAfterRefusal | NextListMethod::Pages) => {
                NextListMethod::Pages
            }
        };
    }

    /// Notes that the API server does not send initial events.
    fn refused(&mut self) {
        self.early_ends = 0;
        self.next = NextListMethod::PagesAfterRefusal;
    }

    /// Notes that a stream ended before its bookmark. The last of some such ends decides how the list is read.
    fn ended_early(&mut self, otherwise: NextListMethod) {
        self.early_ends += 1;
        if self.early_ends >= MOST_EARLY_ENDS {
            self.early_ends = 0;
            self.next = otherwise;
        }
    }

    fn ended_complete(&mut self) {
        self.early_ends = 0;
    }
}

/// A list that is being received as initial events.
pub(super) struct InitialEvents<T> {
    lines: BodyLines,
    since: Instant,
    deletions: HeldDeletions<T>,
}

impl<T> InitialEvents<T> {
    fn new(body: Body) -> Self {
        let deletions = HeldDeletions { objects: BTreeMap::new(), bytes: 0 };
        Self { lines: BodyLines::new(body), since: Instant::now(), deletions }
    }

    /// How long the next event may take.
    fn patience(&self) -> Duration {
        LIST_WITHIN.saturating_sub(self.since.elapsed()).min(SILENT_LIST_AFTER)
    }
}

/// The deletions of objects that were sent before in the same list. They are reported after it.
struct HeldDeletions<T> {
    objects: BTreeMap<ObjectIdentity, HeldDeletion<T>>,
    bytes: usize,
}

struct HeldDeletion<T> {
    object: T,
    /// How many bytes its event had.
    bytes: usize,
}

impl<T> HeldDeletions<T> {
    fn hold(&mut self, event: &[u8], object: T) -> Result<(), ClusterError> {
        let bytes = event.len();
        if self.bytes.saturating_add(bytes) > HELD_LIMIT {
            let text = format!("deletions during a list are larger than {HELD_LIMIT} bytes");
            return Err(ClusterError::NoAnswer(text));
        }
        let identity = ObjectIdentity::in_event(event).map_err(unreadable)?;
        self.forget(&identity);
        self.bytes += bytes;
        self.objects.insert(identity, HeldDeletion { object, bytes });
        Ok(())
    }

    /// Drops the deletion of an object that exists again.
    fn withdraw(&mut self, event: &[u8]) -> Result<(), ClusterError> {
        if !self.objects.is_empty() {
            self.forget(&ObjectIdentity::in_event(event).map_err(unreadable)?);
        }
        Ok(())
    }

    fn forget(&mut self, identity: &ObjectIdentity) {
        if let Some(held) = self.objects.remove(identity) {
            self.bytes = self.bytes.saturating_sub(held.bytes);
        }
    }
}

/// Whether an answer says that initial events are not served or not permitted. Otherwise the API server is busy, or a version
/// is too old.
fn is_refusal(error: &ClusterError) -> bool {
    let is_for_now = |code: u16| matches!(code, 401 | 408 | 410 | 429 | 502 | 503 | 504);
    error.code().is_some_and(|code| !is_for_now(code))
}

impl<T: ObjectDecodeForm> KindWatch<T> {
    /// Requests a list as initial events. Without a `resourceVersion` it is the most recent one.
    pub(super) async fn begin_initial_events(&mut self) -> Result<(), ClusterError> {
        let query = format!(
            "watch=true&timeoutSeconds={}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            WATCH_FOR.as_secs()
        );
        match self.ask(&query, self.accept.object).await {
            Ok(body) => {
                self.listed = 0;
                self.events.push_back(WatcherEvent::Listing);
                self.phase = WatchPhase::ReceivingInitialEvents(InitialEvents::new(body));
                Ok(())
            }
            Err(error) if is_refusal(&error) => {
                self.list_by_pages(&error.to_string());
                Ok(())
            }
            Err(error) => {
                if error.code().is_none() {
                    self.lists.ended_early(NextListMethod::Pages);
                }
                Err(error)
            }
        }
    }

    /// Reads the next initial event. If it returns an error, or leaves the phase, the list begins again.
    pub(super) async fn receive_initial_event(
        &mut self,
        mut received: InitialEvents<T>,
    ) -> Result<(), ClusterError> {
        let patience = received.patience();
        if patience.is_zero() {
            self.list_by_pages("the stream of initial events took too long");
            return Ok(());
        }
        let line = match timeout(patience, received.lines.next()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => {
                tracing::debug!(path = self.path, "initial events ended before all objects came");
                self.lists.ended_early(NextListMethod::PagesAfterRefusal);
                self.hold_back();
                return Ok(());
            }
            Ok(Err(error)) => {
                self.lists.ended_early(NextListMethod::Pages);
                return Err(error);
            }
            Err(_) => {
                self.list_by_pages("the stream of initial events was silent before its end");
                return Ok(());
            }
        };
        let taken = self.take_initial_event(&line, received);
        if taken.is_err() {
            self.lists.ended_early(NextListMethod::PagesAfterRefusal);
        }
        taken
    }

    fn take_initial_event(
        &mut self,
        line: &[u8],
        mut received: InitialEvents<T>,
    ) -> Result<(), ClusterError> {
        match WatchLine::<T>::read(line).map_err(unreadable)? {
            WatchLine::Applied(object) => {
                self.listed += 1;
                if self.listed > LIST_LIMIT {
                    return Err(too_many_objects());
                }
                received.deletions.withdraw(line)?;
                self.events.push_back(WatcherEvent::Listed(object));
            }
            WatchLine::Deleted(object) => received.deletions.hold(line, object)?,
            // Only the bookmark with the annotation says that all objects were sent.
            WatchLine::Bookmark(_) => {}
            WatchLine::InitialEventsEnd(version) => {
                return self.end_initial_events(version, received);
            }
            WatchLine::Error(status) => return self.fail_initial_events(status),
        }
        self.phase = WatchPhase::ReceivingInitialEvents(received);
        Ok(())
    }

    /// Ends the list. The same stream goes on as the watch.
    fn end_initial_events(
        &mut self,
        version: String,
        received: InitialEvents<T>,
    ) -> Result<(), ClusterError> {
        if version.is_empty() {
            let text = "a list has no resourceVersion, so its kind cannot be watched";
            return Err(ClusterError::NoAnswer(text.to_owned()));
        }
        let InitialEvents { lines, since, deletions } = received;
        self.lists.ended_complete();
        self.events.push_back(WatcherEvent::ListEnded);
        let deleted = deletions.objects.into_values();
        self.events.extend(deleted.map(|held| WatcherEvent::Deleted(held.object)));
        self.events.push_back(WatcherEvent::Live);
        self.phase = WatchPhase::Watching { version, lines, since };
        Ok(())
    }

    /// Handles an error in the stream. An API server that cannot send initial events may say so by the first event.
    fn fail_initial_events(&mut self, status: Box<Status>) -> Result<(), ClusterError> {
        let error = ClusterError::Refused(status);
        if self.listed == 0 && is_refusal(&error) {
            self.list_by_pages(&error.to_string());
            return Ok(());
        }
        Err(error)
    }

    /// Reads the list by pages instead.
    fn list_by_pages(&mut self, reason: &str) {
        tracing::debug!(path = self.path, reason, "no initial events, listing by pages");
        self.lists.refused();
    }
}
