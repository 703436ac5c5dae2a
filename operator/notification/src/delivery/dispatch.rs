//! Decides which Alerts want an event, and puts their notifications into the spool.
//!
//! Elsewhere: the decision (`notify::dispatch`), the queue of events (`windlass_cluster::events`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::notification::{Alert, Provider};
use futures::FutureExt as _;
use kube::core::ResourceExt as _;
use notify::{EventSourceSelector, ObjectReference, RoutingDecision, Secret, Settings, Warning};
use objects::Gvk;

use super::Delivery;
use super::matcher::Deciding;
use super::repeated_events::Repetitions;
use super::spool::{MAX_NOTIFICATION_BYTES, Notification};
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventRecord, EventSink, Origin, Severity};
use windlass_cluster::metrics::NotificationOutcome;
use windlass_runtime::context::Context;
use windlass_runtime::expressions::on_thread;
use windlass_runtime::hold::is_suspended;
use windlass_runtime::own_kinds::{EVENT_SOURCES, named};

/// Longest message. Parity(flux).
const MESSAGE_LIMIT: usize = 39_000;

/// How long events wait for the first list of Alerts and Providers. Their CRDs need not be installed: then no Alert
/// selects events.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// The group of Alerts, Providers and Receivers: events about them are never sent.
const GROUP: &str = "notification.toolkit.fluxcd.io";

/// Takes events from their queue.
pub(super) struct Dispatcher {
    delivery: Arc<Delivery>,
    repetitions: Repetitions,
    deciding: Deciding,
    is_listed: bool,
    has_waited: bool,
}

/// The labels of an object.
#[derive(Clone)]
enum Labels {
    /// They were not needed yet.
    Unread,
    /// As they are now; none if they cannot be read.
    Read(Option<BTreeMap<String, String>>),
}

/// The cluster, as the decision about one event reads it.
struct ClusterSnapshot {
    context: Arc<Context>,
    labels: Labels,
    is_asked: Cell<bool>,
}

impl notify::Cluster for ClusterSnapshot {
    fn labels(&self, _: &ObjectReference) -> Option<BTreeMap<String, String>> {
        self.is_asked.set(true);
        match &self.labels {
            Labels::Unread => None,
            Labels::Read(labels) => labels.clone(),
        }
    }

    fn provider(&self, namespace: &str, name: &str) -> Option<notify::Provider> {
        let provider = self.context.seen::<Provider>(namespace, name)?;
        let mut read = notify::Provider::new(serde_json::to_value(&*provider).ok()?).ok()?;
        read.spec.suspend = is_suspended(&*provider, jiff::Timestamp::now());
        Some(read)
    }

    /// Routing an event needs no Secret.
    fn secret(&self, _: &str, _: &str) -> Option<Secret> {
        None
    }
}

impl Dispatcher {
    /// The same event is not sent twice within the interval.
    pub(super) fn new(delivery: Arc<Delivery>, interval: Duration) -> Self {
        let repetitions = Repetitions::within(interval);
        let deciding = Deciding::default();
        Self { delivery, repetitions, deciding, is_listed: false, has_waited: false }
    }

    /// Whether another program posted an event about an object that this process alone reconciles.
    ///
    /// Differs(flux): any client may post any event there.
    fn is_forged(&self, record: &EventRecord) -> bool {
        let settings = &self.delivery.context.settings;
        let reconciles_all =
            settings.watch_all_namespaces && settings.watch_label_selector.text().is_empty();
        let is_forged =
            record.origin == Origin::Posted && reconciles_all && is_reconciled(&record.about.kind);
        if is_forged {
            tracing::debug!(
                controller_kind = record.about.kind,
                name = record.about.name,
                namespace = record.about.namespace,
                reporter = %record.controller,
                "ignored a posted event about an object that windlass reconciles"
            );
        }
        is_forged
    }

    /// Whether Alerts and Providers are known.
    async fn listed(&mut self) -> bool {
        if !self.is_listed {
            let listed = self.delivery.listed();
            self.is_listed = match self.has_waited {
                true => listed.now_or_never() == Some(true),
                false => tokio::time::timeout(LISTED_WITHIN, listed).await == Ok(true),
            };
            self.has_waited = true;
            if self.is_listed {
                // What waited before the start goes first.
                self.delivery.begin();
            }
        }
        self.is_listed
    }
}

impl EventSink for Dispatcher {
    const NAME: &'static str = "notifications";
    const TAKES_POSTED: bool = true;

    async fn tell(&mut self, record: &EventRecord, _: bool) {
        let group = record.about.api_version.split('/').next().unwrap_or_default();
        if group == GROUP || self.is_forged(record) || !self.listed().await {
            return;
        }
        let mut event = event(record);
        event.clean_metadata();
        if self.repetitions.is_repeated(&event.rate_key(), Instant::now()) {
            self.delivery.context.metrics.notified(NotificationOutcome::Repeated);
            return;
        }
        let alerts = self.delivery.asked(&event.object);
        self.deciding.decide(&self.delivery, &Arc::new(event), alerts);
    }

    async fn end(&mut self) {
        self.deciding.settle().await;
    }
}

/// Whether windlass reconciles a kind, in any group: Alerts select events by kind and name, not by group.
fn is_reconciled(kind: &str) -> bool {
    crds::names().any(|names| names.kind == kind)
}

impl Delivery {
    /// The names of the Alerts that may want events of an object, by namespace.
    fn asked(&self, object: &ObjectReference) -> BTreeMap<String, Vec<String>> {
        let mut asked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for alert in self.context.store::<Alert>().state() {
            let more = named(&*alert, EVENT_SOURCES).unwrap_or_else(|message| {
                let namespace = alert.namespace().unwrap_or_default();
                let name = alert.name_any();
                let reason = "InvalidConfig";
                let annotations = BTreeMap::new();
                self.warn(&namespace, &name, Warning { reason, message, annotations });
                Vec::new()
            });
            if may_want(&alert, &more, object) {
                let names = asked.entry(alert.namespace().unwrap_or_default()).or_default();
                names.push(alert.name_any());
            }
        }
        asked
    }

    /// Has every Alert of a namespace that wants an event send it.
    pub(super) async fn dispatch(
        self: &Arc<Self>,
        event: &Arc<notify::Event>,
        namespace: &str,
        alerts: &[String],
    ) {
        let mut labels = Labels::Unread;
        let is_of_incident = is_of_incident(event);
        for name in alerts {
            let Some(alert) = self.context.seen::<Alert>(namespace, name) else { continue };
            let mut decided = self.route(event, &alert, &labels).await;
            if matches!(labels, Labels::Unread) && decided.1 {
                labels = Labels::Read(self.labels(&event.object).await.unwrap_or_default());
                decided = self.route(event, &alert, &labels).await;
            }
            let RoutingDecision { warnings, route } = decided.0;
            for warning in warnings {
                self.warn(namespace, name, warning);
            }
            let Some(route) = route else { continue };
            let bytes = route.event.to_json().len();
            if bytes > MAX_NOTIFICATION_BYTES {
                self.warn(namespace, name, too_large());
                self.context.metrics.notified(NotificationOutcome::Dropped);
                continue;
            }
            let since = jiff::Timestamp::now().as_second();
            let provider = &route.provider.metadata.name;
            let notification = Notification::new(namespace, name, provider, &route.event, since);
            if is_of_incident && self.has_incidents(&alert) {
                self.suppress(&event.object, notification, bytes).await;
            } else {
                self.put(notification).await;
            }
        }
    }

    /// What an Alert makes of an event, and whether it asked for the labels of the object. Its patterns may be much work,
    /// so namespaces take turns.
    async fn route(
        &self,
        event: &Arc<notify::Event>,
        alert: &Arc<Alert>,
        labels: &Labels,
    ) -> (RoutingDecision, bool) {
        self.routed(event, alert, labels, notify::route).await
    }

    /// The same with the labels of the object, if the Alert asks for them; none if they cannot be read.
    pub(super) async fn decide(
        &self,
        event: &Arc<notify::Event>,
        alert: &Arc<Alert>,
    ) -> Option<RoutingDecision> {
        match self.route(event, alert, &Labels::Unread).await {
            (_, true) => {
                let labels = Labels::Read(self.labels(&event.object).await.ok()?);
                Some(self.route(event, alert, &labels).await.0)
            }
            (routed, false) => Some(routed),
        }
    }

    /// Where an Alert sends an event about something that it selected before.
    pub(super) async fn follow_up(
        &self,
        event: &Arc<notify::Event>,
        alert: &Arc<Alert>,
    ) -> RoutingDecision {
        self.routed(event, alert, &Labels::Read(None), notify::follow_up).await.0
    }

    async fn routed(
        &self,
        event: &Arc<notify::Event>,
        alert: &Arc<Alert>,
        labels: &Labels,
        route: fn(
            &notify::Event,
            &notify::Alert,
            &dyn notify::Cluster,
            Settings,
        ) -> RoutingDecision,
    ) -> (RoutingDecision, bool) {
        let namespace = alert.namespace().unwrap_or_default();
        let seen = ClusterSnapshot {
            context: self.context.clone(),
            labels: labels.clone(),
            is_asked: Cell::new(false),
        };
        let settings = Settings {
            no_cross_namespace: self.context.settings.no_cross_namespace_refs,
            allows_service_accounts: false,
            now: jiff::Timestamp::now().as_second(),
        };
        let event = event.clone();
        let alert = alert.clone();
        let decided = on_thread(&namespace, move || {
            let alert = readable(&alert)?;
            let routed = route(&event, &alert, &seen, settings);
            Some((routed, seen.is_asked.get()))
        });
        match decided.await {
            Ok(Some(decided)) => decided,
            Ok(None) => (RoutingDecision { warnings: Vec::new(), route: None }, false),
            Err(broken) => {
                let reason = "NotificationDispatchFailed";
                let annotations = BTreeMap::new();
                let warning = Warning { reason, message: broken.to_string(), annotations };
                (RoutingDecision { warnings: vec![warning], route: None }, false)
            }
        }
    }

    /// The labels of an object as they are now; none if it is gone.
    ///
    /// # Errors
    /// They cannot be read, which is logged.
    async fn labels(
        &self,
        object: &ObjectReference,
    ) -> Result<Option<BTreeMap<String, String>>, ClusterError> {
        let gvk = Gvk::new(&object.api_version, &object.kind);
        let read = async {
            let resource = self.context.cluster.resource(&gvk).await?;
            self.context.cluster.get(&resource, &object.namespace, &object.name).await
        };
        match read.await {
            Ok(found) => Ok(found.map(|found| {
                let labels = found.meta("labels").cloned().unwrap_or_default();
                serde_json::from_value(labels).unwrap_or_default()
            })),
            Err(error) => {
                tracing::error!(
                    controller_kind = object.kind,
                    name = object.name,
                    namespace = object.namespace,
                    error = %error,
                    "failed to read the labels that an Alert asks for"
                );
                Err(error)
            }
        }
    }
}

/// Whether an event says that an object fails of which incidents tell.
fn is_of_incident(event: &notify::Event) -> bool {
    let is_error = event.severity == "error";
    is_reconciled(&event.object.kind) && cause::reason::is_of_condition(&event.reason, is_error)
}

/// The warning about a notification that is too large.
///
/// Differs(flux): there it may be of any length. It names no object, so that many of them are one warning.
pub(super) fn too_large() -> Warning {
    let message = format!(
        "discarded an event that has more than {} KiB with its metadata; shorten `spec.eventMetadata` of the Alert, or \
         the annotations of the object that are part of its events",
        MAX_NOTIFICATION_BYTES >> 10
    );
    Warning { reason: "NotificationDispatchFailed", message, annotations: BTreeMap::new() }
}

/// An Alert as the engine reads it, with what an annotation names besides.
fn readable(alert: &Alert) -> Option<notify::Alert> {
    let mut read = notify::Alert::new(serde_json::to_value(alert).ok()?).ok()?;
    // They are objects of all labels.
    let more = named(alert, EVENT_SOURCES).unwrap_or_default().into_iter();
    read.spec
        .event_sources
        .extend(more.map(|source| EventSourceSelector { match_labels: None, ..source }));
    read.spec.suspend = is_suspended(alert, jiff::Timestamp::now());
    Some(read)
}

/// Whether an Alert names an object, but for what is costly to find out.
fn may_want(alert: &Alert, more: &[EventSourceSelector], object: &ObjectReference) -> bool {
    let own = alert.namespace().unwrap_or_default();
    let is_it = |kind: &str, namespace: &str, name: &str| {
        let namespace = if namespace.is_empty() { &own } else { namespace };
        kind == object.kind && namespace == object.namespace && (name == "*" || name == object.name)
    };
    let sources = &alert.spec.event_sources;
    !is_suspended(alert, jiff::Timestamp::now())
        && (sources
            .iter()
            .any(|it| is_it(&it.kind, it.namespace.as_deref().unwrap_or_default(), &it.name))
            || more.iter().any(|it| is_it(&it.kind, &it.namespace, &it.name)))
}

/// An event as the engine reads it.
fn event(record: &EventRecord) -> notify::Event {
    let about = &record.about;
    let mut message = record.event.message.clone();
    message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
    notify::Event {
        object: ObjectReference {
            kind: about.kind.clone(),
            namespace: about.namespace.clone(),
            name: about.name.clone(),
            uid: about.uid.clone(),
            api_version: about.api_version.clone(),
            resource_version: about.resource_version.clone(),
            field_path: String::new(),
        },
        severity: match record.event.severity {
            Severity::Info => "info".to_owned(),
            Severity::Error => "error".to_owned(),
        },
        timestamp: Some(record.at.as_second()),
        nanoseconds: u32::try_from(record.at.subsec_nanosecond()).unwrap_or_default(),
        message,
        reason: record.event.reason.clone(),
        metadata: record.event.metadata.clone(),
        lacks_metadata: record.event.metadata.is_empty(),
        reporting_controller: record.controller.clone().into_owned(),
        reporting_instance: record.instance.to_string(),
        incident: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use windlass_cluster::events::{Event, EventObject, Origin, Severity};

    /// An error of a Kustomization.
    fn announcement(message: &str) -> EventRecord {
        let revision = "main@sha1:1".to_owned();
        let metadata = [("kustomize.toolkit.fluxcd.io/revision".to_owned(), revision)];
        EventRecord {
            origin: Origin::Own,
            about: EventObject {
                api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
                kind: "Kustomization".to_owned(),
                namespace: "apps".to_owned(),
                name: "app".to_owned(),
                ..EventObject::default()
            },
            event: Event {
                severity: Severity::Error,
                reason: "BuildFailed".to_owned(),
                message: message.to_owned(),
                metadata: metadata.into(),
            },
            at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            controller: "kustomize-controller".into(),
            instance: "windlass-0".into(),
        }
    }

    #[test]
    fn an_event_keeps_what_it_says() {
        let event = event(&announcement(&"ä".repeat(30_000)));
        assert_eq!(event.object.name, "app");
        assert_eq!((event.severity.as_str(), event.reason.as_str()), ("error", "BuildFailed"));
        assert_eq!(event.timestamp, Some(1_767_323_045));
        assert_eq!(event.nanoseconds, 678_000_000);
        assert!(event.message.len() <= MESSAGE_LIMIT && event.message.ends_with('ä'));
        assert_eq!(event.metadata["kustomize.toolkit.fluxcd.io/revision"], "main@sha1:1");
        assert_eq!(event.reporting_controller, "kustomize-controller");
    }

    #[test]
    fn errors_that_a_condition_repeats_are_of_incidents_and_others_are_not() {
        let of = |kind: &str, severity: &str, reason: &str| {
            let mut event = event(&announcement(""));
            event.object.kind = kind.to_owned();
            (event.severity, event.reason) = (severity.to_owned(), reason.to_owned());
            is_of_incident(&event)
        };
        assert!(of("Kustomization", "error", "BuildFailed"));
        assert!(of("Kustomization", "info", "DependencyNotReady"));
        assert!(!of("ImagePolicy", "error", "BuildFailed"), "another controller reconciles it");
        assert!(!of("Kustomization", "info", "ReconciliationSucceeded"));
        assert!(!of("HelmRelease", "error", "AuditFailed"));
    }

    #[test]
    fn a_kind_of_ours_is_ours_in_whatever_group() {
        for kind in ["Kustomization", "HelmRelease", "Helmfile", "ArtifactGenerator", "Receiver"] {
            assert!(is_reconciled(kind), "{kind}");
        }
        for kind in ["ImagePolicy", "kustomization", ""] {
            assert!(!is_reconciled(kind), "{kind}");
        }
    }

    #[test]
    fn a_suspension_that_has_expired_suspends_no_alert() {
        let fields = json!({"f:spec": {"f:suspend": {}},
            "f:metadata": {"f:annotations": {"f:windlass.dev/suspended-until": {}}}});
        let managed =
            json!([{"manager": "windlass-cli", "operation": "Update", "fieldsV1": fields}]);
        let asked = |until: &str| {
            let alert: Alert = serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "apps", "managedFields": managed,
                    "annotations": {"windlass.dev/suspended-until": until}},
                "spec": {"providerRef": {"name": "p"}, "suspend": true,
                    "eventSources": [{"kind": "Kustomization", "name": "*"}]},
            }))
            .unwrap();
            let object = event(&announcement("")).object;
            let is_sent = !readable(&alert).unwrap().spec.suspend;
            (may_want(&alert, &[], &object), is_sent)
        };
        assert_eq!(asked("2026-01-01T00:00:00Z"), (true, true));
        assert_eq!(asked("9999-01-01T00:00:00Z"), (false, false));
        assert_eq!(asked("soon"), (false, false), "it does not expire");
    }

    #[test]
    fn an_alert_is_asked_about_objects_that_it_names_only() {
        let alert = |source: serde_json::Value, suspend: bool| -> Alert {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "apps"},
                "spec": {"providerRef": {"name": "p"}, "eventSources": [source], "suspend": suspend},
            }))
            .unwrap()
        };
        let object = event(&announcement("")).object;
        for (source, suspend, expected) in [
            (json!({"kind": "Kustomization", "name": "*"}), false, true),
            (json!({"kind": "Kustomization", "name": "app"}), false, true),
            (json!({"kind": "Kustomization", "name": "app"}), true, false),
            (json!({"kind": "Kustomization", "name": "ap*"}), false, false),
            (json!({"kind": "HelmRelease", "name": "*"}), false, false),
            (json!({"kind": "Kustomization", "name": "*", "namespace": "b"}), false, false),
        ] {
            assert_eq!(
                may_want(&alert(source.clone(), suspend), &[], &object),
                expected,
                "{source}"
            );
        }
    }
}
