//! All metrics of windlass. Each is defined here once.
//!
//! `gotk_*` are the names of Flux, so that its dashboards keep working. `windlass_*` are new names. Each metric about single
//! objects also exists per kind. The series of single objects exist only while there are few objects
//! ([`MAX_OBJECTS_WITH_SERIES`]). Below: the sizes of stores (`store_sizes`), and the limits of requests (`request_limits`).

mod request_limits;
mod store_sizes;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use http::{Method, Uri};
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use reconcile::ObjectKey;

use self::request_limits::RequestLimits;
use self::store_sizes::StoreSizes;
use crate::ClusterConnection;

/// The labels of a metric about one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectMetricLabels {
    kind: String,
    name: String,
    namespace: String,
}

impl ObjectMetricLabels {
    fn of(node: &ObjectKey) -> Self {
        let ObjectKey { kind, namespace, name, group: _ } = node.clone();
        Self { kind, name, namespace }
    }
}

/// Why an object was reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum WakeReason {
    /// The spec of the object or an annotation that requests a run changed.
    Spec,
    /// An object that it depends on changed.
    Dependency,
    /// Its source has a new artifact.
    Source,
    /// A Secret or ConfigMap that its spec names changed.
    Reference,
    /// An applied object whose readiness it waits for changed.
    Waiting,
    /// Another manager changed an object that it applied.
    Drift,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WakeMetricLabels {
    kind: String,
    reason: WakeReason,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventSinkMetricLabels {
    sink: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindMetricLabels {
    kind: String,
}

/// The outcome of an event that another controller posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum ReceivedEventOutcome {
    /// windlass accepted the event.
    Accepted,
    /// The request was not a valid event.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReceivedEventMetricLabels {
    outcome: ReceivedEventOutcome,
}

/// The outcome of a notification or of an attempt to send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum NotificationOutcomeLabel {
    /// The service accepted the notification.
    Delivered,
    /// The attempt failed, and windlass will try again.
    Retried,
    /// windlass gave the notification up.
    Failed,
    /// The queue had no room for the notification.
    Dropped,
    /// The same notification was sent a moment ago.
    Repeated,
    /// The Alert or the Provider was deleted or suspended meanwhile.
    Unwanted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotificationMetricLabels {
    outcome: NotificationOutcomeLabel,
}

/// Whether an audit record was written, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum AuditOutcome {
    /// The record was written.
    Written,
    /// The record existed already.
    Exists,
    /// The namespace of the audited object is being deleted.
    Terminating,
    /// The API server does not serve the kind of audit records.
    NotInstalled,
    /// The record could not be written.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuditMetricLabels {
    outcome: AuditOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiVerbMetricLabels {
    verb: &'static str,
}

/// Counts requests to the API server by verb.
#[derive(Debug, Clone, Default)]
pub struct ApiRequestCounters(Family<ApiVerbMetricLabels, Counter>);

impl ApiRequestCounters {
    /// Counts a request before it is sent.
    pub fn count(&self, method: &Method, uri: &Uri) {
        let query = uri.query().unwrap_or_default();
        let verb = match *method {
            Method::GET if query.contains("watch=") => "watch",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH if query.contains("dryRun=") => "dry-run",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        };
        self.0.get_or_create(&ApiVerbMetricLabels { verb }).inc();
    }
}

type DurationHistograms = Family<ObjectMetricLabels, Histogram, fn() -> Histogram>;

type KindDurationHistograms = Family<KindMetricLabels, Histogram, fn() -> Histogram>;

/// The most objects for which each object has its own series.
///
/// Differs(flux): it has thirteen series for each object however many there are, which is 18 MB for each scrape of ten thousand.
const MAX_OBJECTS_WITH_SERIES: usize = 2_000;

/// Objects get their own series again when there are only this many. The gap keeps a varying number of objects from creating
/// and dropping the series each time.
const OBJECTS_WITH_SERIES_AGAIN: usize = 1_500;

/// Whether each object has its own series.
struct PerObjectSeriesLimit {
    /// How many objects this process reconciles.
    objects: usize,
    are_kept: bool,
}

/// All metrics, with the registry that writes them as text.
pub struct MetricsRegistry {
    registry: Registry,
    reconcile_duration: DurationHistograms,
    kind_reconcile_duration: KindDurationHistograms,
    objects: Family<KindMetricLabels, Gauge<i64, AtomicI64>>,
    object_series: Mutex<PerObjectSeriesLimit>,
    /// Counts requests to the API server.
    pub api_requests: ApiRequestCounters,
    /// How many runs are under way.
    pub running: Gauge<i64, AtomicI64>,
    wakes: Family<WakeMetricLabels, Counter>,
    queue_depth: Family<KindMetricLabels, Gauge<i64, AtomicI64>>,
    watch_live: Family<KindMetricLabels, Gauge<i64, AtomicI64>>,
    /// 1 while this process leads.
    pub leader: Gauge<i64, AtomicI64>,
    /// 1 while a controller of Flux keeps this process from acting.
    pub excluded: Gauge<i64, AtomicI64>,
    events: Family<ReceivedEventMetricLabels, Counter>,
    audits: Family<AuditMetricLabels, Counter>,
    builds: Family<ObjectMetricLabels, Counter>,
    kind_builds: Family<KindMetricLabels, Counter>,
    dropped_events: Family<EventSinkMetricLabels, Counter>,
    notifications: Family<NotificationMetricLabels, Counter>,
    /// Notifications that wait for their Providers.
    pub waiting_notifications: Gauge<i64, AtomicI64>,
    /// 1 while notifications wait in memory only, because the disk does not take them.
    pub unsaved_notifications: Gauge<i64, AtomicI64>,
    stores: StoreSizes,
    request_limits: RequestLimits,
}

fn duration_buckets() -> Histogram {
    Histogram::new([0.01, 0.038, 0.147, 0.56, 2.15, 8.2, 31.5, 120.0, 460.0, 1800.0])
}

/// Adds a metric to the registry and returns it.
fn added<M: Metric + Default + Clone>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Adds the histograms of a duration to the registry and returns them.
fn added_durations<L: EncodeLabelSet + Clone + Hash + Eq + Debug + Send + Sync + 'static>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> Family<L, Histogram, fn() -> Histogram> {
    let histograms = Family::new_with_constructor(duration_buckets as fn() -> Histogram);
    registry.register(name, help, histograms.clone());
    histograms
}

impl MetricsRegistry {
    /// Creates and registers every metric.
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::default();
        let reconcile_duration = added_durations(
            &mut registry,
            "gotk_reconcile_duration_seconds",
            "How long a reconciliation of an object took, in seconds",
        );
        let kind_reconcile_duration = added_durations(
            &mut registry,
            "windlass_reconcile_duration_seconds",
            "How long reconciliations of the objects of a kind took, in seconds",
        );
        let objects = added(&mut registry, "windlass_objects", "Objects of this process, by kind");
        let api_requests = ApiRequestCounters(added(
            &mut registry,
            "windlass_api_requests",
            "Requests sent to the API server, by verb",
        ));
        let wakes = added(&mut registry, "windlass_wakes", "Triggers of reconciliations");
        let running = added(&mut registry, "windlass_running", "Reconciliations in progress");
        let queue_depth = added(&mut registry, "windlass_queue_depth", "Queued objects, by kind");
        let watch_live = added(
            &mut registry,
            "windlass_watch_live",
            "Whether the watch of a kind is established (1) or not (0)",
        );
        let leader = added(
            &mut registry,
            "windlass_leader",
            "Whether this process is the leader (1) or not (0)",
        );
        let excluded = added(
            &mut registry,
            "windlass_excluded",
            "Whether a controller of Flux keeps this process from acting (1) or not (0)",
        );
        let events =
            added(&mut registry, "windlass_events", "Events posted to windlass, by outcome");
        let audits = added(
            &mut registry,
            "windlass_release_audits",
            "ReleaseAudits of operations that ended, by outcome",
        );
        let builds = added(
            &mut registry,
            "windlass_builds",
            "Builds of an object's manifests; a revision that changes none of its files needs none",
        );
        let kind_builds = added(
            &mut registry,
            "windlass_builds_by_kind",
            "Builds of the manifests of the objects of a kind",
        );
        let dropped_events = added(
            &mut registry,
            "windlass_dropped_events",
            "Events dropped because the queue of an event sink was full",
        );
        let notifications = added(
            &mut registry,
            "windlass_notifications",
            "Notifications and attempts to send them, by outcome",
        );
        let waiting_notifications = added(
            &mut registry,
            "windlass_notifications_waiting",
            "Notifications that wait until the service of their Provider takes them",
        );
        let unsaved_notifications = added(
            &mut registry,
            "windlass_notifications_unsaved",
            "1 while notifications wait in memory only, because the disk does not take them",
        );
        let stores = StoreSizes::added(&mut registry);
        let request_limits = RequestLimits::added(&mut registry);
        Arc::new(Self {
            registry,
            reconcile_duration,
            kind_reconcile_duration,
            objects,
            object_series: Mutex::new(PerObjectSeriesLimit { objects: 0, are_kept: true }),
            api_requests,
            running,
            wakes,
            queue_depth,
            watch_live,
            leader,
            excluded,
            events,
            audits,
            builds,
            kind_builds,
            dropped_events,
            notifications,
            waiting_notifications,
            unsaved_notifications,
            stores,
            request_limits,
        })
    }

    /// Shows the bytes of a store from now on. `size` is called whenever metrics are scraped, and must not search.
    pub fn measure_store(
        &self,
        store: &'static str,
        size: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.stores.add(store, Box::new(size));
    }

    /// Shows from now on how many requests to a cluster may be in flight, as long as the connection is in use. The name is the
    /// Secret of its kubeconfig (`namespace/name`), and empty for windlass's own cluster.
    pub fn measure_request_limit(&self, cluster: &str, connection: &ClusterConnection) {
        self.request_limits.add(cluster.to_owned(), connection.request_limit_reader());
    }

    /// Counts a wake of an object.
    pub(crate) fn woke(&self, kind: &str, reason: WakeReason) {
        self.wakes.get_or_create(&WakeMetricLabels { kind: kind.to_owned(), reason }).inc();
    }

    /// How many objects of a kind wait in its queue.
    pub(crate) fn queued(&self, kind: &str) -> Gauge<i64, AtomicI64> {
        self.queue_depth.get_or_create_owned(&KindMetricLabels { kind: kind.to_owned() })
    }

    /// Records whether the watch of one of windlass's kinds is live.
    pub fn watch_is_live(&self, kind: &str, live: bool) {
        let labels = KindMetricLabels { kind: kind.to_owned() };
        self.watch_live.get_or_create(&labels).set(i64::from(live));
    }

    /// Counts an event that was dropped because the queue of its sink was full.
    pub(crate) fn dropped_event(&self, sink: &'static str) {
        self.dropped_events.get_or_create(&EventSinkMetricLabels { sink }).inc();
    }

    /// Counts the outcome of a notification.
    pub fn notified(&self, outcome: NotificationOutcomeLabel) {
        self.notifications.get_or_create(&NotificationMetricLabels { outcome }).inc();
    }

    /// Counts an event that another controller posted.
    pub fn posted(&self, outcome: ReceivedEventOutcome) {
        self.events.get_or_create(&ReceivedEventMetricLabels { outcome }).inc();
    }

    /// Counts an audit record.
    pub fn audited(&self, outcome: AuditOutcome) {
        self.audits.get_or_create(&AuditMetricLabels { outcome }).inc();
    }

    /// Counts an object that this process begins to reconcile. If there are too many objects, the series of single objects are
    /// dropped.
    pub fn object_came(&self, kind: &str) {
        self.objects.get_or_create(&KindMetricLabels { kind: kind.to_owned() }).inc();
        let mut series = self.object_series.lock();
        series.objects += 1;
        if series.are_kept && series.objects > MAX_OBJECTS_WITH_SERIES {
            series.are_kept = false;
            self.reconcile_duration.clear();
            self.builds.clear();
            tracing::info!(
                objects = series.objects,
                "more than {MAX_OBJECTS_WITH_SERIES} objects: metrics are by kind only, and not of single objects"
            );
        }
    }

    /// Counts an object that this process no longer reconciles.
    pub fn object_left(&self, kind: &str) {
        self.objects.get_or_create(&KindMetricLabels { kind: kind.to_owned() }).dec();
        let mut series = self.object_series.lock();
        series.objects = series.objects.saturating_sub(1);
        series.are_kept |= series.objects <= OBJECTS_WITH_SERIES_AGAIN;
    }

    /// Counts a build of an object's manifests.
    pub fn built(&self, node: &ObjectKey) {
        self.kind_builds.get_or_create(&KindMetricLabels { kind: node.kind.clone() }).inc();
        let series = self.object_series.lock();
        if series.are_kept {
            self.builds.get_or_create(&ObjectMetricLabels::of(node)).inc();
        }
    }

    /// Records how long a run took.
    pub fn reconciled(&self, node: &ObjectKey, took: Duration) {
        let seconds = took.as_secs_f64();
        let kind = KindMetricLabels { kind: node.kind.clone() };
        self.kind_reconcile_duration.get_or_create(&kind).observe(seconds);
        let series = self.object_series.lock();
        if series.are_kept {
            self.reconcile_duration.get_or_create(&ObjectMetricLabels::of(node)).observe(seconds);
        }
    }

    /// Drops the series of an object that is gone.
    pub fn forget(&self, node: &ObjectKey) {
        self.reconcile_duration.remove(&ObjectMetricLabels::of(node));
        self.builds.remove(&ObjectMetricLabels::of(node));
    }

    /// All metrics in the text format that Prometheus scrapes.
    pub fn text(&self) -> String {
        self.stores.measure();
        self.request_limits.measure();
        let mut text = String::new();
        // Writing into a String cannot fail.
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap_or_default();
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// How many series of single objects the metrics text has.
    fn object_series(metrics: &MetricsRegistry) -> usize {
        metrics.text().lines().filter(|line| line.contains("name=\"")).count()
    }

    #[test]
    fn the_size_of_a_store_is_that_at_the_time_of_the_scrape() {
        let metrics = MetricsRegistry::new();
        let size = Arc::new(AtomicI64::new(5));
        let shared = size.clone();
        let read = move || u64::try_from(shared.load(Ordering::Relaxed)).unwrap_or_default();
        metrics.measure_store("charts", read);
        size.store(7, Ordering::Relaxed);
        let line = "windlass_store_bytes{store=\"charts\"} 7";
        let text = metrics.text();
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }

    #[test]
    fn objects_have_series_of_their_own_only_while_there_are_not_too_many() {
        let metrics = MetricsRegistry::new();
        let run = |name: &str| {
            let node = ObjectKey::new("g", "Kustomization", "shop", name);
            metrics.built(&node);
            metrics.reconciled(&node, Duration::from_secs(1));
        };
        for _ in 0..MAX_OBJECTS_WITH_SERIES {
            metrics.object_came("Kustomization");
        }
        run("a");
        // Eleven buckets, their sum and count, and the counter of builds.
        assert_eq!(object_series(&metrics), 14);
        metrics.object_came("HelmRelease");
        assert_eq!(object_series(&metrics), 0, "what was measured is dropped");
        run("a");
        assert_eq!(object_series(&metrics), 0);
        for _ in OBJECTS_WITH_SERIES_AGAIN..MAX_OBJECTS_WITH_SERIES {
            metrics.object_left("Kustomization");
        }
        run("a");
        assert_eq!(object_series(&metrics), 0, "there is one object too many");
        metrics.object_left("Kustomization");
        run("a");
        assert_eq!(object_series(&metrics), 14);
        let text = metrics.text();
        for line in [
            "windlass_reconcile_duration_seconds_count{kind=\"Kustomization\"} 4",
            "windlass_builds_by_kind_total{kind=\"Kustomization\"} 4",
            "windlass_objects{kind=\"Kustomization\"} 1499",
            "windlass_objects{kind=\"HelmRelease\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }
}
