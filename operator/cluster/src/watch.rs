//! Watches of windlass's own kinds as whole objects, and of all other kinds by their metadata.
//!
//! A watcher lists objects and then follows their changes without end. It decodes each object separately
//! ([`super::object_decode`]), and reports when the watch is live and when not. kube's watcher would fail a whole list because
//! of one object, and has no limit for the length of a line.
//!
//! A list is the initial events of the watch (`initial_events`), or else consistent pages. No request has `resourceVersion=0`:
//! its answer may be older than what was seen before, and `limit` has no effect on it.

mod initial_events;
mod lines;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, Stream, StreamExt as _};
use http::Request;
use kube::client::Body;
use tokio::time::timeout;

pub(crate) use self::initial_events::InitialEventsRefusals;
use self::initial_events::{InitialEvents, ListMethods};
use self::lines::BodyLines;
use super::connection_pool::{ConnectionPool, ConnectionSlot};
use super::discovery::ApiResourceLocation;
use super::error::chain;
use super::object_decode::{
    DecodedObject, FullObject, LIST_LIMIT, METADATA, METADATA_LIST, MetadataOnly, OBJECTS_PER_PAGE,
    ObjectDecodeForm, ObjectListPage, WatchLine,
};
use super::response_limit::{ANSWER_LIMIT, piece};
use super::untyped_objects::url_encode;
use super::windlass_kind::WindlassKind;
use super::{ClusterConnection, ClusterError};

/// Which objects of a kind to watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchSelection {
    /// The objects with this label, in every namespace.
    Labelled(&'static str),
    /// One object, by namespace and name. The namespace is empty for cluster-scoped kinds.
    Named(String, String),
    /// All objects in this namespace.
    InNamespace(String),
    /// All objects.
    All,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatcherEvent<T> {
    /// A list begins. Objects that are missing in it are gone once it has ended. A list that cannot be completed begins again.
    Listing,
    /// An object of the list. It may come again in a later version, which then counts.
    Listed(T),
    /// The list has ended.
    ListEnded,
    /// From now on the watch sees every change.
    Live,
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted, or no longer matches the selection.
    Deleted(T),
    /// The watch may miss changes until the next [`WatcherEvent::Live`]. It reports them afterwards.
    Interrupted,
}

/// How long the first byte of a watch, or a page of a list, may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);

/// How long the API server is asked to keep a watch open.
const WATCH_FOR: Duration = Duration::from_secs(290);

/// A watch that is silent for longer than this has lost its connection.
const SILENT_AFTER: Duration = Duration::from_secs(295);

/// The `Accept` headers of a watch.
#[derive(Debug, Clone, Copy)]
struct WatchAcceptHeaders {
    /// The header for a list.
    list: &'static str,
    /// The header for a watch event.
    object: &'static str,
}

const FULL_OBJECTS: WatchAcceptHeaders =
    WatchAcceptHeaders { list: "application/json", object: "application/json" };

const METADATA_ONLY: WatchAcceptHeaders =
    WatchAcceptHeaders { list: METADATA_LIST, object: METADATA };

/// Delays between attempts: 200 ms doubling to 10 s, short enough that the end of a long outage is noticed soon.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

impl ClusterConnection {
    /// Watches all objects of one of windlass's kinds. Errors are items of the stream, and the watch is retried with growing
    /// delays.
    pub fn watch_ours<K: WindlassKind>(
        &self,
        namespace: Option<&str>,
    ) -> impl Stream<Item = Result<WatcherEvent<DecodedObject<K>>, ClusterError>> + Send + use<K>
    {
        let path = K::url_path(&(), namespace);
        let lists = self.list_methods(K::url_path(&(), None));
        KindWatch::new(self.own_watches.clone(), path, String::new(), FULL_OBJECTS)
            .listing_by(lists)
            .follow()
    }

    /// How a watch of many objects reads its lists. `kind` is the path of the kind in all namespaces.
    fn list_methods(&self, kind: String) -> ListMethods {
        match self.reads_for_bearer {
            // Initial events need the right to watch only. A user who may not list a kind gets no list of it.
            true => ListMethods::pages(),
            false => {
                let refusals = Arc::clone(&self.refused_initial_events);
                ListMethods::initial_events(refusals, kind)
            }
        }
    }

    fn list_methods_of(&self, resource: &ApiResourceLocation) -> ListMethods {
        self.list_methods(resource.path("", None).unwrap_or_default())
    }

    /// Watches the metadata of the selected objects of a kind.
    pub fn watch_metadata(
        &self,
        resource: &ApiResourceLocation,
        selection: &WatchSelection,
    ) -> impl Stream<Item = Result<WatcherEvent<MetadataOnly>, ClusterError>> + Send + use<> {
        let (path, query) = match selection {
            WatchSelection::Labelled(label) => {
                (resource.path("", None), format!("&labelSelector={}", url_encode(label)))
            }
            WatchSelection::All => (resource.path("", None), String::new()),
            WatchSelection::InNamespace(namespace) => {
                (resource.path(namespace, None), String::new())
            }
            WatchSelection::Named(namespace, name) => (resource.path(namespace, None), named(name)),
        };
        let lists = match selection {
            // A list of one object is small, and the same number of bytes in both ways.
            WatchSelection::Named(..) => ListMethods::pages(),
            WatchSelection::Labelled(_) | WatchSelection::InNamespace(_) | WatchSelection::All => {
                self.list_methods_of(resource)
            }
        };
        at(self.watches.clone(), path, query, METADATA_ONLY, lists)
    }

    /// Watches the whole objects of a kind in a namespace that match a label selector. An empty namespace means all
    /// namespaces.
    pub fn watch_objects(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        labels: &str,
    ) -> impl Stream<Item = Result<WatcherEvent<FullObject>, ClusterError>> + Send + use<> {
        let path = resource.path(namespace, None);
        let query = format!("&labelSelector={}", url_encode(labels));
        at(self.watches.clone(), path, query, FULL_OBJECTS, self.list_methods_of(resource))
    }

    /// Watches one whole object.
    pub fn watch_object(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
    ) -> impl Stream<Item = Result<WatcherEvent<FullObject>, ClusterError>> + Send + use<> {
        let path = resource.path(namespace, None);
        at(self.watches.clone(), path, named(name), FULL_OBJECTS, ListMethods::pages())
    }
}

/// Watches the objects at a path. If the path is an error, the error is the only item of the stream.
fn at<T: ObjectDecodeForm>(
    pool: ConnectionPool,
    path: Result<String, ClusterError>,
    query: String,
    accept: WatchAcceptHeaders,
    lists: ListMethods,
) -> impl Stream<Item = Result<WatcherEvent<T>, ClusterError>> + Send + use<T> {
    match path {
        Ok(path) => {
            KindWatch::new(pool, path, query, accept).listing_by(lists).follow().left_stream()
        }
        Err(error) => {
            stream::once(std::future::ready(Err(error))).chain(stream::pending()).right_stream()
        }
    }
}

/// The field selector for one object.
fn named(name: &str) -> String {
    format!("&fieldSelector={}", url_encode(&format!("metadata.name={name}")))
}

/// The current step of a watch.
enum WatchPhase<T> {
    /// Reading the next page of the list. `None` begins a list, which may also be initial events.
    Listing(Option<String>),
    /// Reading the list as the initial events of a watch.
    ReceivingInitialEvents(InitialEvents<T>),
    /// The list was read. The watch will start after this version.
    Listed(String),
    Watching {
        version: String,
        lines: BodyLines,
        since: Instant,
    },
}

struct KindWatch<T> {
    pool: ConnectionPool,
    place: Option<ConnectionSlot>,
    path: String,
    query: String,
    accept: WatchAcceptHeaders,
    phase: WatchPhase<T>,
    lists: ListMethods,
    events: VecDeque<WatcherEvent<T>>,
    page: usize,
    listed: usize,
    delay: Duration,
    /// How long to wait before the next request.
    pause: Option<Duration>,
}

impl<T: ObjectDecodeForm> KindWatch<T> {
    fn new(pool: ConnectionPool, path: String, query: String, accept: WatchAcceptHeaders) -> Self {
        Self {
            pool,
            place: None,
            path,
            query,
            accept,
            phase: WatchPhase::Listing(None),
            lists: ListMethods::pages(),
            events: VecDeque::new(),
            page: OBJECTS_PER_PAGE,
            listed: 0,
            delay: FIRST_DELAY,
            pause: None,
        }
    }

    fn listing_by(self, lists: ListMethods) -> Self {
        Self { lists, ..self }
    }

    fn follow(self) -> impl Stream<Item = Result<WatcherEvent<T>, ClusterError>> + Send + use<T> {
        let steps = stream::unfold(self, |mut watch| async move {
            loop {
                if let Some(seen) = watch.events.pop_front() {
                    return Some((Ok(seen), watch));
                }
                if let Err(error) = watch.step().await {
                    watch.hold_back();
                    return Some((Err(error), watch));
                }
            }
        });
        steps.boxed()
    }

    /// Delays the next attempt, longer each time.
    fn hold_back(&mut self) {
        self.pause = Some(self.delay);
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }

    async fn step(&mut self) -> Result<(), ClusterError> {
        if let Some(pause) = self.pause.take() {
            tokio::time::sleep(pause).await;
        }
        match std::mem::replace(&mut self.phase, WatchPhase::Listing(None)) {
            WatchPhase::Listing(None) if self.lists.is_by_initial_events() => {
                self.begin_initial_events().await
            }
            WatchPhase::Listing(from) => {
                let page = self.list(from).await;
                let is_last = matches!(self.phase, WatchPhase::Listed(_));
                self.lists.note_page(page.is_ok(), is_last);
                page
            }
            WatchPhase::ReceivingInitialEvents(received) => {
                self.receive_initial_event(received).await
            }
            WatchPhase::Listed(version) => self.begin(version).await,
            WatchPhase::Watching { version, lines, since } => {
                self.hear(version, lines, since).await
            }
        }
    }

    /// Sends a request on the connection of this watch, and returns the body of a successful answer.
    async fn ask(&mut self, query: &str, accept: &str) -> Result<Body, ClusterError> {
        let uri = format!("{}?{query}{}", self.path, self.query);
        let request = Request::get(&uri).header(http::header::ACCEPT, accept);
        let request = request
            .body(Body::empty())
            .map_err(|error| ClusterError::NoAnswer(format!("{uri} is not a path: {error}")))?;
        let place = match self.place.take() {
            Some(place) => place,
            None => self.pool.place()?,
        };
        let answer = timeout(ANSWER_WITHIN, place.client().send(request)).await;
        let Ok(answer) = answer else {
            place.leave_crowded();
            let text = format!("no response within {} s", ANSWER_WITHIN.as_secs());
            return Err(ClusterError::NoAnswer(text));
        };
        self.place = Some(place);
        let (head, body) = answer?.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let text = whole(body).await?.unwrap_or_default();
        Err(refusal(head.status.as_u16(), &text))
    }

    async fn list(&mut self, from: Option<String>) -> Result<(), ClusterError> {
        let more = from.as_deref().map(|at| format!("&continue={}", url_encode(at)));
        let query = format!("limit={}{}", self.page, more.unwrap_or_default());
        let body = self.ask(&query, self.accept.list).await?;
        let text = match whole(body).await? {
            Some(text) => text,
            // A few objects of the largest size need more memory than many usual ones.
            None if self.page > 1 => {
                self.page = (self.page / 8).max(1);
                self.phase = WatchPhase::Listing(from);
                return Ok(());
            }
            None => {
                let text =
                    format!("an object is larger than {ANSWER_LIMIT} bytes, or arrived too slowly");
                return Err(ClusterError::NoAnswer(text));
            }
        };
        let page = ObjectListPage::<T>::read(&text).map_err(unreadable)?;
        if from.is_none() {
            self.listed = 0;
            self.events.push_back(WatcherEvent::Listing);
        }
        self.listed += page.items.len();
        if self.listed > LIST_LIMIT {
            return Err(too_many_objects());
        }
        self.events.extend(page.items.into_iter().map(WatcherEvent::Listed));
        self.phase = match (page.next, page.version) {
            (Some(next), _) => WatchPhase::Listing(Some(next)),
            (None, Some(version)) => {
                self.events.push_back(WatcherEvent::ListEnded);
                self.page = OBJECTS_PER_PAGE;
                WatchPhase::Listed(version)
            }
            (None, None) => {
                let text = "a list has no resourceVersion, so its kind cannot be watched";
                return Err(ClusterError::NoAnswer(text.to_owned()));
            }
        };
        Ok(())
    }

    async fn begin(&mut self, version: String) -> Result<(), ClusterError> {
        let query = format!(
            "watch=true&timeoutSeconds={}&allowWatchBookmarks=true&resourceVersion={version}",
            WATCH_FOR.as_secs()
        );
        match self.ask(&query, self.accept.object).await {
            Ok(body) => {
                self.events.push_back(WatcherEvent::Live);
                let lines = BodyLines::new(body);
                let since = Instant::now();
                self.phase = WatchPhase::Watching { version, lines, since };
                Ok(())
            }
            // The version is too old, so only a new list shows the changes since.
            Err(error) if error.code() == Some(410) => Err(error),
            Err(error) => {
                self.phase = WatchPhase::Listed(version);
                Err(error)
            }
        }
    }

    async fn hear(
        &mut self,
        mut version: String,
        mut lines: BodyLines,
        since: Instant,
    ) -> Result<(), ClusterError> {
        let line = match timeout(SILENT_AFTER, lines.next()).await {
            Ok(Ok(Some(line))) => line,
            // The answer ended or was silent, so the watch continues after the last version.
            Ok(Ok(None)) | Err(_) => {
                if since.elapsed() < LONGEST_DELAY {
                    self.hold_back();
                }
                self.events.push_back(WatcherEvent::Interrupted);
                self.phase = WatchPhase::Listed(version);
                return Ok(());
            }
            Ok(Err(error)) => {
                self.phase = WatchPhase::Listed(version);
                return Err(error);
            }
        };
        // An event that cannot be read would come again after the same version. So everything is listed anew.
        let seen = match WatchLine::<T>::read(&line).map_err(unreadable)? {
            WatchLine::Error(status) if status.code == 410 => {
                return Err(ClusterError::Refused(status));
            }
            WatchLine::Error(status) => {
                self.phase = WatchPhase::Listed(version);
                return Err(ClusterError::Refused(status));
            }
            WatchLine::Bookmark(at) | WatchLine::InitialEventsEnd(at) => {
                version = at;
                None
            }
            WatchLine::Applied(item) => {
                item.version().clone_into(&mut version);
                Some(WatcherEvent::Applied(item))
            }
            WatchLine::Deleted(item) => {
                item.version().clone_into(&mut version);
                Some(WatcherEvent::Deleted(item))
            }
        };
        if version.is_empty() {
            let text = "an event has no resourceVersion, so its kind cannot be watched";
            return Err(ClusterError::NoAnswer(text.to_owned()));
        }
        self.delay = FIRST_DELAY;
        self.events.extend(seen);
        self.phase = WatchPhase::Watching { version, lines, since };
        Ok(())
    }
}

/// The complete body of an answer. `None` if it is too long or takes too long.
async fn whole(mut body: Body) -> Result<Option<Vec<u8>>, ClusterError> {
    let read = async {
        let mut text = Vec::new();
        while let Some(data) = piece(&mut body).await {
            let data = data?;
            if text.len() + data.len() > ANSWER_LIMIT {
                return Ok(None);
            }
            text.extend_from_slice(&data);
        }
        Ok(Some(text))
    };
    timeout(ANSWER_WITHIN, read).await.unwrap_or(Ok(None))
}

fn refusal(code: u16, text: &[u8]) -> ClusterError {
    let status = serde_json::from_slice::<kube::core::Status>(text).unwrap_or_default();
    let message = match status.message.as_str() {
        "" => format!("the API server responded with status {code}"),
        said => said.to_owned(),
    };
    ClusterError::Refused(Box::new(kube::core::Status { code, message, ..status }))
}

fn too_many_objects() -> ClusterError {
    ClusterError::NoAnswer(format!("a list has more than {LIST_LIMIT} objects"))
}

fn unreadable(error: serde_json::Error) -> ClusterError {
    ClusterError::NoAnswer(format!("cannot decode the response: {}", chain(&error)))
}

#[cfg(test)]
mod tests;
