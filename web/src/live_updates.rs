//! Keeps open pages up to date. When something changes, the server renders the page again and sends the parts that differ.
//!
//! The browser receives events of the type `text/event-stream`. `live` says that changes are watched. `part` contains the HTML
//! of a part. `read` says when the page was read and whether changes are watched. `failed` explains why the page could not be
//! rendered; then the browser keeps the old page and says so.
//! Each `read` carries the version of the page. A browser that reconnects sends it back, so the browser misses no change.
//! Elsewhere: the script in the browser (`assets/live.js`), watches (`reconciled_objects_watcher.rs`).

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, interval, sleep, sleep_until};
use windlass_answers::kind_argument;
use windlass_cluster::ClusterError;
use windlass_cluster::object_decode::FullObject;
use windlass_cluster::watch::WatcherEvent;

use super::frame::{PageParts, clock};
use super::local_server::PAGE_TIME_LIMIT;
use super::page_data_reader::{PageDataReader, UNSETTLED_RENEWAL, UNWATCHED_RENEWAL};
use super::pages::{self, PageContent, PageRequest};
use super::route::{ObjectAddress, ObjectTab, Route};

/// How often the server sends something although nothing happened, so that both sides notice a lost connection.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// How long a stream lasts. The server's limit for connections is longer, and the browser reconnects afterwards.
const STREAM_LIFETIME: Duration = Duration::from_secs(540);

/// How soon a browser reconnects.
const RECONNECT_DELAY_MILLISECONDS: u32 = 1_000;

/// How many events may wait until the browser reads them.
pub(crate) const MAX_WAITING_EVENTS: usize = 32;

/// The minimum time between two versions of a page. It is longer for pages that cost the API server more.
const BOARD_PAUSE: Duration = Duration::from_millis(250);
const OBJECT_PAUSE: Duration = Duration::from_secs(1);
const LIST_PAUSE: Duration = Duration::from_secs(2);
const EVERYTHING_PAUSE: Duration = Duration::from_secs(10);

/// A page is rendered again only after this many times its last rendering time. So open pages do not use all of the server's
/// time.
const PAUSE_PER_MAKING_TIME: u32 = 4;

/// How soon a browser reconnects after the server refused it, such as when too many pages were open.
const REFUSED_RECONNECT_DELAY_MILLISECONDS: u32 = 30_000;

/// The data of a page, which decides which changes make the page outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageRefreshTriggers {
    Rows,
    Records,
    RowsAndRecords,
    OneObject,
    /// The plans of branches that the user started.
    BranchPlans,
    /// The page is rendered only when the user opens it.
    Fixed,
}

/// The data of the pages of a route.
fn facts(route: &Route) -> PageRefreshTriggers {
    match route {
        Route::Overview | Route::Calendar => PageRefreshTriggers::RowsAndRecords,
        Route::Objects => PageRefreshTriggers::Rows,
        // This page needs dry-runs of all objects, so windlass does them only when a user asks.
        Route::Object { tab: ObjectTab::Diff, .. } | Route::Me => PageRefreshTriggers::Fixed,
        Route::Object { .. } => PageRefreshTriggers::OneObject,
        Route::BranchPlan { .. } => PageRefreshTriggers::BranchPlans,
        Route::Incidents
        | Route::Incident { .. }
        | Route::Changes
        | Route::Commit(_)
        | Route::Approvals
        | Route::Audits => PageRefreshTriggers::Records,
    }
}

fn pause(route: &Route) -> Duration {
    match route {
        Route::Objects => BOARD_PAUSE,
        Route::Object { .. } => OBJECT_PAUSE,
        // This page reads all objects, because it also shows failures without an Incident.
        Route::Incidents => EVERYTHING_PAUSE,
        _ => LIST_PAUSE,
    }
}

/// Whether the server renders an open page of this route again when something changes.
pub(crate) fn is_live(route: &Route) -> bool {
    facts(route) != PageRefreshTriggers::Fixed
}

/// The version of the data of a page. Empty for the page of one object, which uses the resourceVersion.
pub(crate) fn version(reader: &PageDataReader, route: &Route) -> String {
    let rows = *reader.watcher.row_changes().borrow();
    let records = *reader.watcher.record_changes().borrow();
    match facts(route) {
        PageRefreshTriggers::Rows => rows.to_string(),
        PageRefreshTriggers::Records => records.to_string(),
        PageRefreshTriggers::RowsAndRecords => format!("{rows}-{records}"),
        PageRefreshTriggers::BranchPlans => reader.branch_plans.changes().borrow().to_string(),
        PageRefreshTriggers::OneObject | PageRefreshTriggers::Fixed => String::new(),
    }
}

/// A page that is open in a browser.
pub(crate) struct OpenPage {
    pub(crate) page: PageRequest,
    /// The version that the browser shows.
    pub(crate) version: String,
    /// The channel for the events that the server sends to the browser.
    pub(crate) events: mpsc::Sender<String>,
}

/// Why a page is rendered again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PageRefreshCause {
    Change,
    /// The watch is interrupted, for this reason.
    Interruption(String),
}

/// The watch that causes a page to be rendered again.
enum PageWatch {
    Counters { rows: Option<watch::Receiver<u64>>, records: Option<watch::Receiver<u64>> },
    Object(ObjectWatch),
    Nothing,
}

/// The watch of the one object that a page shows.
struct ObjectWatch {
    events: BoxStream<'static, Result<WatcherEvent<FullObject>, ClusterError>>,
    /// The version that the browser shows.
    version: String,
    /// Whether the list in progress has returned the object.
    is_listed: bool,
    is_interrupted: bool,
}

impl ObjectWatch {
    async fn next(&mut self) -> PageRefreshCause {
        while let Some(seen) = self.events.next().await {
            match seen {
                Ok(WatcherEvent::Listed(whole) | WatcherEvent::Applied(whole)) => {
                    self.is_listed = true;
                    let version =
                        whole.value.as_ref().and_then(|it| it.pointer("/metadata/resourceVersion"));
                    let version = version.and_then(|it| it.as_str()).unwrap_or_default();
                    if version != self.version {
                        version.clone_into(&mut self.version);
                        return PageRefreshCause::Change;
                    }
                }
                Ok(WatcherEvent::Listing) => self.is_listed = false,
                // The object was deleted after the page was read, or during an interruption of the watch.
                Ok(WatcherEvent::ListEnded) if !self.is_listed && !self.version.is_empty() => {
                    self.version.clear();
                    return PageRefreshCause::Change;
                }
                Ok(WatcherEvent::Deleted(_)) => {
                    self.version.clear();
                    return PageRefreshCause::Change;
                }
                Ok(WatcherEvent::Live) if std::mem::take(&mut self.is_interrupted) => {
                    return PageRefreshCause::Change;
                }
                Ok(WatcherEvent::ListEnded | WatcherEvent::Live | WatcherEvent::Interrupted) => {}
                // This also happens if the user may read the object but not watch it.
                Err(error) => {
                    if !std::mem::replace(&mut self.is_interrupted, true) {
                        return PageRefreshCause::Interruption(error.to_string());
                    }
                }
            }
        }
        pending().await
    }
}

impl PageWatch {
    async fn of(reader: &PageDataReader, route: &Route, version: &str) -> Self {
        let rows = || Some(reader.watcher.row_changes());
        let records = || Some(reader.watcher.record_changes());
        match (facts(route), route) {
            (PageRefreshTriggers::Rows, _) => Self::Counters { rows: rows(), records: None },
            (PageRefreshTriggers::Records, _) => Self::Counters { rows: None, records: records() },
            (PageRefreshTriggers::RowsAndRecords, _) => {
                Self::Counters { rows: rows(), records: records() }
            }
            (PageRefreshTriggers::BranchPlans, _) => {
                Self::Counters { rows: Some(reader.branch_plans.changes()), records: None }
            }
            (PageRefreshTriggers::OneObject, Route::Object { place, .. }) => {
                Self::of_object(reader, place, version).await
            }
            (PageRefreshTriggers::OneObject | PageRefreshTriggers::Fixed, _) => Self::Nothing,
        }
    }

    async fn of_object(reader: &PageDataReader, place: &ObjectAddress, version: &str) -> Self {
        // The page itself shows the error about the kind.
        let Ok(target) = kind_argument::one(&reader.site.cluster, &[place.word()]).await else {
            return Self::Nothing;
        };
        let namespace = reader.site.namespace_of(&target);
        let events = reader.site.cluster.watch_object(&target.resource, namespace, &place.name);
        let version = version.to_owned();
        Self::Object(ObjectWatch {
            events: events.boxed(),
            version,
            is_listed: false,
            is_interrupted: false,
        })
    }

    async fn next(&mut self) -> PageRefreshCause {
        match self {
            Self::Counters { rows, records } => {
                tokio::select! {
                    () = changed(rows) => {}
                    () = changed(records) => {}
                }
                PageRefreshCause::Change
            }
            Self::Object(watch) => watch.next().await,
            Self::Nothing => pending().await,
        }
    }
}

async fn changed(changes: &mut Option<watch::Receiver<u64>>) {
    let is_over = match changes {
        Some(changes) => changes.changed().await.is_err(),
        None => true,
    };
    if is_over {
        pending::<()>().await;
    }
}

/// Ends the stream of a page at once. The browser tells the user why, and reconnects later.
pub(crate) fn refuse(open: &OpenPage, why: &str) {
    let retry = format!("retry: {REFUSED_RECONNECT_DELAY_MILLISECONDS}\n\n");
    // The channel is still empty, so both events fit.
    for event in [retry, failed(why)] {
        drop(open.events.try_send(event));
    }
}

/// Sends the changes of a page until the browser disconnects or the stream reaches its time limit. Rendering takes one of the
/// `permits`, but waiting for a change takes none.
pub(crate) async fn follow(reader: &PageDataReader, permits: &Semaphore, open: OpenPage) {
    let OpenPage { page, version, events } = open;
    let sent = BTreeMap::new();
    let mut stream =
        PageStream { reader, permits, page, sent, renew_at: None, is_unwatched: false };
    tokio::select! {
        () = stream.follow(&version, &events) => {}
        () = events.closed() => {}
        () = sleep(STREAM_LIFETIME) => {}
    }
}

/// The state of the stream to a browser.
struct PageStream<'r> {
    reader: &'r PageDataReader,
    permits: &'r Semaphore,
    page: PageRequest,
    /// The digests of the parts that were sent last.
    sent: BTreeMap<&'static str, String>,
    /// When the page is rendered again although no watch reports a change.
    renew_at: Option<Instant>,
    /// Whether changes are not watched at the moment. Then the page is rendered again at intervals.
    is_unwatched: bool,
}

impl PageStream<'_> {
    /// Sends events until the browser no longer reads them.
    async fn follow(&mut self, version: &str, events: &mpsc::Sender<String>) {
        if events.send(format!("retry: {RECONNECT_DELAY_MILLISECONDS}\n\n")).await.is_err() {
            return;
        }
        let mut watch = PageWatch::of(self.reader, &self.page.route, version).await;
        // The watch already runs. If the version is the same now, nothing changed before the watch began.
        let now = self::version(self.reader, &self.page.route);
        let mut is_other = !now.is_empty() && now != version;
        self.is_unwatched = matches!(watch, PageWatch::Nothing);
        if !self.is_unwatched && events.send("event: live\ndata: {}\n\n".to_owned()).await.is_err()
        {
            return;
        }
        // The first rendering finds out whether watches are sufficient for this page.
        self.renew(Some(match facts(&self.page.route) {
            PageRefreshTriggers::OneObject => UNSETTLED_RENEWAL,
            _ => UNWATCHED_RENEWAL,
        }));
        let mut heartbeat = interval(HEARTBEAT_INTERVAL);
        let mut quiet_until = Instant::now();
        loop {
            if is_other && quiet_until <= Instant::now() {
                is_other = false;
                let began = Instant::now();
                let made = self.make().await;
                let took = began.elapsed();
                for event in made {
                    if events.send(event).await.is_err() {
                        return;
                    }
                }
                let pause = pause(&self.page.route).max(took.saturating_mul(PAUSE_PER_MAKING_TIME));
                quiet_until = Instant::now() + pause;
            }
            let next = tokio::select! {
                wake = watch.next() => match wake {
                    PageRefreshCause::Change => {
                        self.is_unwatched = false;
                        is_other = true;
                        continue;
                    }
                    PageRefreshCause::Interruption(why) => self.interrupted(&why),
                },
                () = renewal(self.renew_at), if !is_other => {
                    is_other = true;
                    continue;
                }
                // The pause after the last rendering is over.
                () = sleep_until(quiet_until), if is_other => continue,
                _ = heartbeat.tick() => ": \n\n".to_owned(),
            };
            if events.send(next).await.is_err() {
                return;
            }
        }
    }

    /// Notes that changes are not watched, so the page is rendered again at intervals. Returns the event that tells the
    /// browser.
    fn interrupted(&mut self, why: &str) -> String {
        self.is_unwatched = true;
        if self.renew_at.is_none() {
            self.renew(None);
        }
        failed(&format!("changes are not seen: {why}"))
    }

    /// Sets when the page is rendered again. If changes are not watched, it is also rendered again without `after`.
    fn renew(&mut self, after: Option<Duration>) {
        let unwatched = self.is_unwatched.then_some(UNWATCHED_RENEWAL);
        let after = [after, unwatched].into_iter().flatten().min();
        self.renew_at = after.map(|after| Instant::now() + after);
    }

    /// Renders the page. Returns the events for the parts that differ from those sent before.
    async fn make(&mut self) -> Vec<String> {
        let Ok(_permit) = self.permits.acquire().await else { return Vec::new() };
        let version = version(self.reader, &self.page.route);
        let making = pages::make(self.reader, &self.page);
        let made = tokio::time::timeout(PAGE_TIME_LIMIT, making).await;
        match made {
            Ok(Ok(PageContent::Html(page))) => {
                self.renew(page.renew_after);
                self.differences(&page, &version)
            }
            Ok(Ok(PageContent::Absent(text))) => {
                self.renew(Some(UNWATCHED_RENEWAL));
                vec![failed(&text)]
            }
            // Open pages in a browser never ask for JSON.
            Ok(Ok(PageContent::Json(_))) => Vec::new(),
            Ok(Err(error)) => {
                self.renew(Some(UNWATCHED_RENEWAL));
                vec![failed(&format!("{error:#}"))]
            }
            Err(_elapsed) => {
                self.renew(Some(UNWATCHED_RENEWAL));
                vec![failed("the API server has not responded in time")]
            }
        }
    }

    fn differences(&mut self, page: &PageParts, version: &str) -> Vec<String> {
        let mut events = Vec::new();
        for part in &page.parts {
            let digest = part.digest();
            if self.sent.get(part.id) == Some(&digest) {
                continue;
            }
            let data = json!({"part": part.id, "digest": &digest, "html": &part.content.0});
            events.push(format!("event: part\ndata: {data}\n\n"));
            self.sent.insert(part.id, digest);
        }
        let version = if page.version.is_empty() { version } else { &page.version };
        let data = json!({"at": clock(page.read_at), "watched": !self.is_unwatched});
        events.push(format!("event: read\nid: {version}\ndata: {data}\n\n"));
        events
    }
}

/// Waits until the time at which the page is rendered again without a change.
async fn renewal(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The event that says that the page could not be updated, and why. The text is put on one line, because an event ends at a
/// line break.
fn failed(text: &str) -> String {
    format!("event: failed\ndata: {}\n\n", json!({"text": objects::clean_line(text)}))
}

#[cfg(test)]
mod tests {
    use maud::html;
    use objects::Object;
    use windlass_answers::command_scope::CommandScope;

    use super::*;
    use crate::frame::PagePart;
    use crate::page_query::PageQuery;

    async fn reader() -> PageDataReader {
        let (cluster, _) = fake_cluster::with_objects(Vec::new()).await;
        PageDataReader::new(CommandScope { cluster, namespace: "apps".to_owned() }, &[]).await
    }

    fn request(route: Route) -> PageRequest {
        PageRequest { route, query: PageQuery::default(), wants_json: false }
    }

    fn page(parts: Vec<PagePart>) -> PageParts {
        let read_at = "2026-11-24T12:00:00Z".parse().unwrap();
        pages::plain_page(Route::Objects, "Objects", String::new(), read_at, parts)
    }

    #[tokio::test]
    async fn only_what_differs_is_sent_and_no_text_ends_an_event() {
        let reader = reader().await;
        let permits = Semaphore::new(1);
        let page_request = request(Route::Objects);
        let mut stream = PageStream {
            reader: &reader,
            permits: &permits,
            page: page_request,
            sent: BTreeMap::new(),
            renew_at: None,
            is_unwatched: false,
        };
        let hostile = PagePart::whole("a", html! { "<b>\n\nevent: part\n\r\u{2028}" });
        let first = stream.differences(&page(vec![hostile.clone()]), "7");
        let digest = hostile.digest();
        let expected = format!(
            "event: part\ndata: {{\"digest\":\"{digest}\",\"html\":\"&lt;b&gt;\\n\\nevent: part\\n\\r\u{2028}\",\"part\":\"a\"}}\n\n"
        );
        let read =
            "event: read\nid: 7\ndata: {\"at\":\"12:00:00 UTC\",\"watched\":true}\n\n".to_owned();
        assert_eq!(first, [expected, read.clone()]);
        assert_eq!(stream.differences(&page(vec![hostile.clone()]), "7"), [read]);
        let other = PagePart::whole("b", html! { "x" });
        assert_eq!(stream.differences(&page(vec![hostile, other]), "8").len(), 2);
        assert_eq!(failed("a\nb"), "event: failed\ndata: {\"text\":\"a b\"}\n\n");
        stream.renew(None);
        assert!(stream.renew_at.is_none());
        stream.is_unwatched = true;
        stream.renew(None);
        assert!(stream.renew_at.is_some(), "what is not watched is read again");
    }

    #[tokio::test]
    async fn a_page_of_an_object_is_made_again_when_another_version_of_it_is_seen() {
        let object = |version: &str| {
            let object = serde_json::json!({"metadata": {"name": "a", "resourceVersion": version}});
            Ok(WatcherEvent::Applied(FullObject::of(object)))
        };
        let lost = || Err(ClusterError::NoAnswer("lost".to_owned()));
        let seen = vec![
            object("1"),
            object("2"),
            lost(),
            lost(),
            Ok(WatcherEvent::Live),
            object("2"),
            Ok(WatcherEvent::Listing),
            Ok(WatcherEvent::ListEnded),
        ];
        let events = futures::stream::iter(seen).chain(futures::stream::pending()).boxed();
        let version = "1".to_owned();
        let mut watch = ObjectWatch { events, version, is_listed: false, is_interrupted: false };
        assert_eq!(watch.next().await, PageRefreshCause::Change);
        assert_eq!(watch.version, "2");
        assert!(matches!(watch.next().await, PageRefreshCause::Interruption(_)));
        assert_eq!(
            watch.next().await,
            PageRefreshCause::Change,
            "what was unseen may have changed it"
        );
        assert_eq!(watch.next().await, PageRefreshCause::Change, "a list without it has ended");
        let more = tokio::time::timeout(Duration::from_millis(20), watch.next());
        assert!(more.await.is_err());
    }

    #[tokio::test]
    async fn a_browser_that_leaves_ends_its_stream_and_one_that_stays_hears_of_failures() {
        let reader = reader().await;
        let permits = Semaphore::new(1);
        let place = ObjectAddress {
            kind: "ks".to_owned(),
            namespace: "apps".to_owned(),
            name: "none".to_owned(),
        };
        let (events, mut received) = mpsc::channel(MAX_WAITING_EVENTS);
        let page = request(Route::Object { place, tab: ObjectTab::Why });
        let open = OpenPage { page, version: String::new(), events };
        let reading = async {
            assert_eq!(received.recv().await.unwrap(), "retry: 1000\n\n");
            drop(received);
        };
        tokio::join!(follow(&reader, &permits, open), reading);
        assert_eq!(permits.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_page_beyond_the_bound_says_why_it_is_not_live() {
        let (events, mut received) = mpsc::channel(MAX_WAITING_EVENTS);
        let open = OpenPage { page: request(Route::Objects), version: String::new(), events };
        refuse(&open, "too many pages are open");
        drop(open);
        assert_eq!(received.recv().await.unwrap(), "retry: 30000\n\n");
        let failed = "event: failed\ndata: {\"text\":\"too many pages are open\"}\n\n";
        assert_eq!(received.recv().await.unwrap(), failed);
        assert_eq!(received.recv().await, None);
    }

    #[tokio::test]
    async fn pages_of_records_have_another_version_than_those_of_rows() {
        let reader = reader().await;
        assert_eq!(version(&reader, &Route::Objects), "0");
        assert_eq!(version(&reader, &Route::Overview), "0-0");
        assert_eq!(version(&reader, &Route::Me), "");
        assert!(is_live(&Route::Audits) && !is_live(&Route::Me));
        let object = Object::new(serde_json::json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "b"}}))
        .unwrap();
        let place = ObjectAddress::of(&object.id());
        let of = |tab: ObjectTab| is_live(&Route::Object { place: place.clone(), tab });
        assert!(of(ObjectTab::Why) && !of(ObjectTab::Diff));
    }
}
