//! Watches all kinds. The rows of the board follow these watches, and open pages learn from them that something changed.
//!
//! A page lists a kind itself if this user may not watch the kind, at most every ten seconds.
//! Some kinds have no rows, for example Incidents and audits. For them, windlass only notices that something changed.
//! Elsewhere: how the watch of one kind changes its rows (`watched_kind_rows.rs`), open pages (`live_updates.rs`).

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use crds::KindNames;
use futures::future::join_all;
use futures::stream::StreamExt as _;
use jiff::Timestamp;
use objects::Gvk;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use windlass_answers::command_scope::CommandScope;
use windlass_answers::kind_argument::{self, ResourceArgument};
use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_decode::FullObject;
use windlass_cluster::watch::{WatchSelection, WatcherEvent};

use super::watched_kind_rows::WatchedKindRows;
use super::{ReconciledObjectRow, ReconciledObjectRows};
use crate::page_data_reader::UNWATCHED_RENEWAL;
use crate::shared_read::SharedRead;

/// The maximum number of objects that have rows.
const MAX_ROWS: usize = 100_000;

/// How long windlass waits before it tries again to discover the kinds.
const KINDS_RETRY_DELAY: Duration = Duration::from_secs(2);

/// How long windlass waits before it tries again to watch a kind that this user may not watch. The right may have been granted
/// since then.
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(300);

/// How often windlass checks whether a logged-in user may still list the watched kinds.
const RIGHTS_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// How often windlass checks whether a row is outdated although its object has not changed.
const DUE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// How soon a page of rows is read again while a watch is interrupted.
const INTERRUPTED_RENEWAL: Duration = Duration::from_secs(6);

/// The command-line word for all reconciled kinds.
const ALL_KINDS: &str = "all";

/// How the watch of a kind ended.
enum KindWatchEnd {
    Refused,
    /// The watch starts again at once, because some rows have to be made again or because the user's right is in doubt.
    Due,
}

/// The rows of the kinds that windlass lists because it cannot watch them.
#[derive(Default)]
struct ListedRows {
    rows: Vec<Rc<ReconciledObjectRow>>,
    left_out: Vec<String>,
    /// When the list began. The last page of the list may be much newer.
    read_at: Timestamp,
}

/// The board that pages received last. It stays valid until something changes.
struct CachedObjectRows {
    version: u64,
    board: ReconciledObjectRows,
}

/// Whose rights the watches use. The API server checks a right when a watch starts, but not again while the watch lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchRightsOwner {
    /// The local user of `windlass ui`, who was allowed to read these rows before.
    OfOwnUser,
    /// A user who logged in at a server. If this user may no longer list a kind, pages stop showing its objects.
    OfLogin,
}

/// All rows, and the channels by which pages learn of changes.
pub(crate) struct ReconciledObjectsWatcher {
    rights: WatchRightsOwner,
    /// `None` until windlass has discovered the kinds.
    kinds: RefCell<Option<Vec<WatchedKindRows>>>,
    /// Counts the changes of rows.
    rows: watch::Sender<u64>,
    /// Counts the changes of kinds without rows, such as Incidents, audits and Plans.
    records: watch::Sender<u64>,
    /// How many of the kinds without rows are not watched at the moment.
    unwatched_records: Cell<usize>,
    changed_at: Cell<Instant>,
    listed: SharedRead<ListedRows>,
    made: RefCell<Option<CachedObjectRows>>,
}

impl ReconciledObjectsWatcher {
    pub(crate) fn new(rights: WatchRightsOwner) -> Self {
        Self {
            rights,
            kinds: RefCell::new(None),
            rows: watch::Sender::new(0),
            records: watch::Sender::new(0),
            unwatched_records: Cell::new(0),
            changed_at: Cell::new(Instant::now()),
            listed: SharedRead::default(),
            made: RefCell::new(None),
        }
    }

    /// A receiver of changes of rows.
    pub(crate) fn row_changes(&self) -> watch::Receiver<u64> {
        self.rows.subscribe()
    }

    /// A receiver of changes of kinds without rows.
    pub(crate) fn record_changes(&self) -> watch::Receiver<u64> {
        self.records.subscribe()
    }

    /// Whether windlass notices all changes of the kinds without rows.
    pub(crate) fn hears_records(&self) -> bool {
        self.unwatched_records.get() == 0
    }

    /// How soon a page of rows is read again although no watch reports a change. This is needed if windlass lists a kind
    /// instead of watching it. It is also needed during an interruption, because the page says how long that lasts.
    pub(crate) fn renewal(&self) -> Option<Duration> {
        let kinds = self.kinds.borrow();
        let of = |kind: &WatchedKindRows| match (kind.is_refused(), kind.is_live()) {
            (true, _) => Some(UNWATCHED_RENEWAL),
            (false, true) => None,
            (false, false) => Some(INTERRUPTED_RENEWAL),
        };
        kinds.iter().flatten().filter_map(of).min()
    }

    /// When a row last changed.
    pub(crate) fn changed_at(&self) -> Instant {
        self.changed_at.get()
    }

    /// Watches all kinds, and never returns.
    pub(crate) async fn follow(&self, site: &CommandScope) {
        let targets = loop {
            match kind_argument::targets(&site.cluster, &[ALL_KINDS.to_owned()]).await {
                Ok(targets) => break targets,
                // Pages discover the kinds themselves, and show the error.
                Err(_) => sleep(KINDS_RETRY_DELAY).await,
            }
        };
        let count = targets.len();
        let kinds = targets.into_iter().map(WatchedKindRows::new).collect();
        *self.kinds.borrow_mut() = Some(kinds);
        self.changed();
        let rows = (0..count).map(|at| self.follow_kind(site, at));
        let records = crds::names().filter(|it| it.is_record() || it.is_gate());
        let records: Vec<&KindNames> = records.collect();
        self.unwatched_records.set(records.len());
        let records = records.into_iter().map(|names| self.follow_records(site, names));
        tokio::join!(join_all(rows), join_all(records));
        // windlass can watch no kind, so pages list the objects.
        pending::<()>().await;
    }

    async fn follow_kind(&self, site: &CommandScope, at: usize) {
        let target = match self.kinds.borrow().as_ref().and_then(|kinds| kinds.get(at)) {
            Some(kind) => kind.target.clone(),
            None => return,
        };
        if !target.resource.watchable {
            self.with_kind(at, WatchedKindRows::refuse);
            self.changed();
            return;
        }
        loop {
            let namespace = site.namespace_of(&target);
            let events = site.cluster.watch_objects(&target.resource, namespace, "").boxed();
            let lost = self.lost_right(site, &target);
            match self.hear(at, events, lost).await {
                KindWatchEnd::Due => {}
                KindWatchEnd::Refused => sleep(REFUSED_RETRY_DELAY).await,
            }
        }
    }

    /// Applies the events of the watch of a kind to the rows.
    async fn hear(
        &self,
        at: usize,
        mut events: impl futures::Stream<Item = Result<WatcherEvent<FullObject>, ClusterError>> + Unpin,
        lost_right: impl Future<Output = ()>,
    ) -> KindWatchEnd {
        let mut lost_right = pin!(lost_right);
        let mut checks = interval(DUE_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once, and at that time no row can be outdated.
        checks.tick().await;
        loop {
            tokio::select! {
                seen = events.next() => {
                    let Some(seen) = seen else { return KindWatchEnd::Due };
                    // A watch that starts again after a refusal counts as refused until it works.
                    let is_refused = seen.as_ref().is_err_and(|error| error.code() == Some(403));
                    let room = MAX_ROWS.saturating_sub(self.count());
                    let is_other = self.with_kind(at, |kind| kind.see(seen, room, Timestamp::now()));
                    if is_other == Some(true) {
                        self.changed();
                    }
                    if is_refused {
                        return KindWatchEnd::Refused;
                    }
                }
                _ = checks.tick() => {
                    if self.with_kind(at, |kind| kind.is_due(Timestamp::now())) == Some(true) {
                        return KindWatchEnd::Due;
                    }
                }
                () = &mut lost_right => {
                    self.with_kind(at, WatchedKindRows::refuse);
                    self.changed();
                    // The API server decides at once whether the user may watch the kind again. Otherwise one unanswered
                    // request would make pages list the kind for minutes.
                    return KindWatchEnd::Due;
                }
            }
        }
    }

    /// Returns when a logged-in user may no longer list a kind, or when the API server does not answer this question. The rows
    /// of the kind are then dropped. Pages list the kind themselves, and show the answer of the API server.
    async fn lost_right(&self, site: &CommandScope, target: &ResourceArgument) {
        if self.rights == WatchRightsOwner::OfOwnUser {
            return pending().await;
        }
        loop {
            sleep(RIGHTS_CHECK_INTERVAL).await;
            if !may_list(site, target).await {
                return;
            }
        }
    }

    /// Notices changes of objects without rows. The pages that show these objects read them.
    async fn follow_records(&self, site: &CommandScope, names: &KindNames) {
        let gvk = Gvk {
            group: names.group.to_owned(),
            version: names.version.to_owned(),
            kind: names.kind.to_owned(),
        };
        let resource = loop {
            match site.cluster.resource(&gvk).await {
                Ok(resource) => break resource,
                // A kind whose CRD is not installed has no objects.
                Err(ClusterError::NoSuchKind { .. }) => {
                    self.count_unwatched(-1);
                    return;
                }
                Err(_) => sleep(KINDS_RETRY_DELAY).await,
            }
        };
        let selection = match site.namespace.as_str() {
            namespace if !namespace.is_empty() && resource.namespaced => {
                WatchSelection::InNamespace(namespace.to_owned())
            }
            _ => WatchSelection::All,
        };
        let mut is_live = false;
        loop {
            let mut events = site.cluster.watch_metadata(&resource, &selection).boxed();
            while let Some(seen) = events.next().await {
                let is_refused = seen.as_ref().is_err_and(|error| error.code() == Some(403));
                match &seen {
                    Ok(WatcherEvent::Live) if !is_live => {
                        is_live = true;
                        self.count_unwatched(-1);
                    }
                    Ok(WatcherEvent::Interrupted) | Err(_) if is_live => {
                        is_live = false;
                        self.count_unwatched(1);
                    }
                    _ => {}
                }
                // The first list after an interruption counts as a change, because changes before it may have been missed.
                let is_change = matches!(
                    seen,
                    Ok(WatcherEvent::Live | WatcherEvent::Applied(_) | WatcherEvent::Deleted(_))
                );
                if is_change {
                    self.records.send_modify(|count| *count += 1);
                }
                if is_refused {
                    break;
                }
            }
            sleep(REFUSED_RETRY_DELAY).await;
        }
    }

    fn count_unwatched(&self, change: isize) {
        self.unwatched_records.set(self.unwatched_records.get().saturating_add_signed(change));
    }

    fn with_kind<T>(&self, at: usize, act: impl FnOnce(&mut WatchedKindRows) -> T) -> Option<T> {
        self.kinds.borrow_mut().as_mut().and_then(|kinds| kinds.get_mut(at)).map(act)
    }

    fn count(&self) -> usize {
        self.kinds.borrow().iter().flatten().map(WatchedKindRows::count).sum()
    }

    fn changed(&self) {
        self.changed_at.set(Instant::now());
        self.rows.send_modify(|count| *count += 1);
    }

    /// The current rows of all objects.
    ///
    /// # Errors
    /// The kinds could not be discovered, or none of them could be listed.
    pub(crate) async fn board(&self, site: &CommandScope) -> anyhow::Result<ReconciledObjectRows> {
        if self.kinds.borrow().is_none() {
            // Fails with the reason if the API server gives one. Otherwise the kinds are known soon.
            kind_argument::targets(&site.cluster, &[ALL_KINDS.to_owned()]).await?;
        }
        self.wait_for_lists().await?;
        let targets: Vec<_> = match self.kinds.borrow().as_ref() {
            Some(kinds) => {
                kinds.iter().filter(|kind| kind.is_refused()).map(|it| it.target.clone()).collect()
            }
            None => Vec::new(),
        };
        if targets.is_empty() {
            return Ok(self.made());
        }
        let listed = self.listed.get(async || {
            let mut found = ListedRows { read_at: Timestamp::now(), ..ListedRows::default() };
            for target in &targets {
                let now = Timestamp::now();
                let refused = site.list(target, "", |objects| {
                    let room = MAX_ROWS.saturating_sub(found.rows.len());
                    if objects.len() > room {
                        let text = format!("{}: too many objects", target.resource.plural);
                        found.left_out.push(text);
                    }
                    let rows = objects
                        .iter()
                        .take(room)
                        .map(|it| Rc::new(ReconciledObjectRow::of(it, now)));
                    found.rows.extend(rows);
                    Ok(())
                });
                let refused = refused.await?;
                found.left_out.extend(refused);
            }
            Ok(found)
        });
        let listed = listed.await?;
        let ReconciledObjectRows { rows, mut left_out, read_at } = self.made();
        let rows = rows.iter().chain(&listed.rows).cloned().collect();
        left_out.extend(listed.left_out.iter().cloned());
        Ok(ReconciledObjectRows::of(rows, left_out, read_at.min(listed.read_at)))
    }

    /// Waits until the first list of each kind has ended or was refused.
    async fn wait_for_lists(&self) -> anyhow::Result<()> {
        let mut changes = self.rows.subscribe();
        loop {
            if let Some(kinds) = self.kinds.borrow().as_ref() {
                let is_known = |kind: &WatchedKindRows| kind.is_listed() || kind.is_refused();
                let failure = kinds.iter().find_map(WatchedKindRows::failure);
                if let Some(error) = failure.filter(|_| !kinds.iter().any(is_known)) {
                    return Err(error.clone()).context("cannot list objects");
                }
                if kinds.iter().all(|kind| is_known(kind) || kind.failure().is_some()) {
                    return Ok(());
                }
            }
            changes.changed().await.context("objects are not watched any more")?;
        }
    }

    /// Makes the board from the rows that the watches maintain.
    fn made(&self) -> ReconciledObjectRows {
        let version = *self.rows.borrow();
        let now = Timestamp::now();
        let kinds = self.kinds.borrow();
        let kinds = kinds.as_deref().unwrap_or_default();
        let left_out: Vec<String> = kinds.iter().flat_map(|kind| kind.remarks(now)).collect();
        let mut made = self.made.borrow_mut();
        let rows = match made.as_ref().filter(|it| it.version == version) {
            Some(made) => made.board.rows.clone(),
            None => {
                let rows = kinds.iter().flat_map(WatchedKindRows::rows).cloned().collect();
                let board = ReconciledObjectRows::of(rows, Vec::new(), now);
                let rows = board.rows.clone();
                *made = Some(CachedObjectRows { version, board });
                rows
            }
        };
        ReconciledObjectRows { rows, left_out, read_at: now }
    }
}

/// Whether the API server says that the user may list a kind.
async fn may_list(site: &CommandScope, target: &ResourceArgument) -> bool {
    let ApiResourceLocation { gvk, plural, .. } = &target.resource;
    let namespace = site.namespace_of(target);
    let answer = site.cluster.may_in(namespace, "list", &gvk.group, plural).await;
    answer.is_ok_and(|answer| answer.is_allowed)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;

    use super::*;

    fn resources() -> serde_json::Value {
        let resources = json!([{"name": "kustomizations", "singularName": "", "kind": "Kustomization",
            "namespaced": true, "verbs": ["list", "watch"]}]);
        json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources})
    }

    fn forbidden() -> serde_json::Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "no list <script>"})
    }

    async fn board(
        watcher: &ReconciledObjectsWatcher,
        site: &CommandScope,
    ) -> anyhow::Result<ReconciledObjectRows> {
        tokio::select! {
            () = watcher.follow(site) => panic!("it has no end"),
            board = watcher.board(site) => board,
        }
    }

    #[tokio::test]
    async fn what_may_not_be_listed_is_named_and_not_counted_as_nothing() {
        let cluster = fake_cluster::answering(|(request, _)| {
            let is_list = request.contains("/kustomizations") || request.contains("/namespaces");
            let (code, answer) = if is_list { (403, forbidden()) } else { (200, resources()) };
            (code, Body::from(answer.to_string()))
        });
        let site = CommandScope { cluster: cluster.await, namespace: "apps".to_owned() };
        let board = board(&ReconciledObjectsWatcher::new(WatchRightsOwner::OfOwnUser), &site)
            .await
            .unwrap();
        assert!(board.rows.is_empty());
        assert!(board.left_out.iter().any(|it| it.contains("no list <script>")), "{board:?}");
    }

    #[tokio::test]
    async fn without_an_answer_a_user_may_list_nothing() {
        for (code, allowed, expected) in
            [(201, true, true), (201, false, false), (500, true, false)]
        {
            let cluster = fake_cluster::answering(move |(request, _)| {
                let answer = match request.contains("selfsubjectaccessreviews") {
                    true => json!({"status": {"allowed": allowed}}),
                    false => return (200, Body::from(resources().to_string())),
                };
                (code, Body::from(answer.to_string()))
            });
            let site = CommandScope { cluster: cluster.await, namespace: "apps".to_owned() };
            let words = [ALL_KINDS.to_owned()];
            let targets = kind_argument::targets(&site.cluster, &words).await.unwrap();
            assert_eq!(may_list(&site, &targets[0]).await, expected, "{code} {allowed}");
        }
    }

    #[tokio::test]
    async fn a_board_follows_its_watches_and_is_an_error_where_nothing_could_be_listed() {
        let kustomization =
            json!({"metadata": {"name": "web", "namespace": "apps", "resourceVersion": "3"}});
        let list = json!({"metadata": {"resourceVersion": "3"}, "items": [kustomization]});
        let is_away = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let away = is_away.clone();
        let cluster = fake_cluster::answering(move |(request, _)| {
            let answer = match request.contains("/kustomizations") {
                true if away.load(std::sync::atomic::Ordering::Relaxed) => {
                    return (500, Body::from("{}"));
                }
                true if request.contains("watch=true") => return (200, Body::empty()),
                true => list.clone(),
                false => resources(),
            };
            (200, Body::from(answer.to_string()))
        });
        let site = CommandScope { cluster: cluster.await, namespace: "apps".to_owned() };
        let watcher = ReconciledObjectsWatcher::new(WatchRightsOwner::OfOwnUser);
        let found = board(&watcher, &site).await.unwrap();
        let names: Vec<&str> = found.iter().map(|row| row.place.name.as_str()).collect();
        assert_eq!(names, ["web"]);
        is_away.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(
            board(&ReconciledObjectsWatcher::new(WatchRightsOwner::OfOwnUser), &site)
                .await
                .is_err()
        );
    }
}
