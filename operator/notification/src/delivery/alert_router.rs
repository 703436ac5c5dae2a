//! Finds the Alerts that select an event, and makes the notification that each Alert sends about the event.
//!
//! Elsewhere: the decision (`notify::route`), in which order events are matched (`alert_match_queues`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crds::notification::{Alert, Provider};
use crds::source::ExternalArtifact;
use kube_core::{Resource as _, ResourceExt as _};
use notify::{
    AlertControllerSettings, EventSourceSelector, ObjectReference, RoutingDecision, SecretData,
};
use objects::Gvk;

use super::alert_warnings::{AlertWarnings, dispatch_failed};
use super::queued_notification::{MAX_NOTIFICATION_BYTES, QueuedNotification};
use crate::object_selection_annotations::{EVENT_SOURCES, named};
use windlass_cluster::metrics::NotificationOutcomeLabel;
use windlass_expressions::on_thread;
use windlass_runtime::object_hold::is_suspended;
use windlass_runtime::run_context::RunContext;

/// The most Alerts that are compared with an event before other tasks on this thread have their turn.
const ALERTS_PER_TURN: usize = 64;

/// The warning on an Alert about a bug.
const DECISION_PANIC: &str =
    "the decision about an event panicked; this is a bug in windlass, please report it";

/// The labels of an object, which are read once an Alert asks for them.
#[derive(Clone)]
pub(super) enum ObjectLabels {
    /// The labels were not needed yet.
    Unread,
    /// The present labels. `None` if the object is gone.
    Read(Option<BTreeMap<String, String>>),
    /// The API server did not return the labels.
    Unreadable,
}

/// The cluster, as the decision about one event reads it.
struct AlertRouterCluster {
    context: Arc<RunContext>,
    labels: ObjectLabels,
    is_asked: Cell<bool>,
}

impl notify::AlertClusterReader for AlertRouterCluster {
    fn labels(&self, _: &ObjectReference) -> Option<BTreeMap<String, String>> {
        self.is_asked.set(true);
        match &self.labels {
            ObjectLabels::Unread | ObjectLabels::Unreadable => None,
            ObjectLabels::Read(labels) => labels.clone(),
        }
    }

    fn provider(&self, namespace: &str, name: &str) -> Option<notify::Provider> {
        let provider = self.context.seen::<Provider>(namespace, name)?;
        let mut read = notify::Provider::new(serde_json::to_value(&*provider).ok()?).ok()?;
        read.spec.suspend = is_suspended(&*provider, jiff::Timestamp::now());
        Some(read)
    }

    /// Always `None`: the routing of an event reads no Secret.
    fn secret(&self, _: &str, _: &str) -> Option<SecretData> {
        None
    }
}

/// Decides which Alerts send an event, and makes their notifications.
pub(super) struct AlertRouter {
    context: Arc<RunContext>,
    warnings: Arc<AlertWarnings>,
}

impl AlertRouter {
    pub(super) fn new(context: Arc<RunContext>, warnings: Arc<AlertWarnings>) -> Self {
        Self { context, warnings }
    }

    /// The names of the Alerts that may want events of an object, by namespace.
    pub(super) async fn candidates(
        &self,
        object: &ObjectReference,
    ) -> BTreeMap<String, Vec<String>> {
        let alerts = self.context.store::<Alert>().state();
        let AlertCandidates { names, invalid } = candidates(&alerts, object).await;
        for (alert, problem) in invalid {
            self.warnings.warn_invalid(&alert, problem);
        }
        names
    }

    /// Decides what an Alert does with an event. If the Alert needs the labels of the object and they were not read, they are
    /// read now.
    pub(super) async fn route(
        &self,
        event: &Arc<notify::FluxEvent>,
        alert: &Arc<Alert>,
        labels: &mut ObjectLabels,
    ) -> RoutingDecision {
        let (decision, asks_labels) = self.evaluate(event, alert, labels, notify::route).await;
        if !asks_labels || !matches!(labels, ObjectLabels::Unread) {
            return decision;
        }
        *labels = self.labels(&event.object).await;
        self.evaluate(event, alert, labels, notify::route).await.0
    }

    /// Decides about a follow-up of an event that an Alert selected before.
    pub(super) async fn follow_up(
        &self,
        event: &Arc<notify::FluxEvent>,
        alert: &Arc<Alert>,
    ) -> RoutingDecision {
        self.evaluate(event, alert, &ObjectLabels::Read(None), notify::follow_up).await.0
    }

    /// The notification of an Alert that sends an event, and how many bytes the event has. Warnings are recorded on the Alert.
    /// `None` if the Alert does not send the event.
    pub(super) fn notification(
        &self,
        alert: &Alert,
        decision: RoutingDecision,
    ) -> Option<(QueuedNotification, usize)> {
        let namespace = alert.namespace().unwrap_or_default();
        let name = alert.name_any();
        for warning in decision.warnings {
            self.warnings.warn(&namespace, &name, warning);
        }
        let route = decision.route?;
        let bytes = route.event.to_json().len();
        if bytes > MAX_NOTIFICATION_BYTES {
            // Differs(flux): there it may be of any length. It names no object, so that many of them are one warning.
            let message = format!(
                "discarded an event that has more than {} KiB with its metadata; shorten `spec.eventMetadata` of the \
                 Alert, or the annotations of the object that are part of its events",
                MAX_NOTIFICATION_BYTES >> 10
            );
            self.warnings.warn(&namespace, &name, dispatch_failed(message));
            self.context.metrics.notified(NotificationOutcomeLabel::Dropped);
            return None;
        }
        let since = jiff::Timestamp::now().as_second();
        let provider = &route.provider.metadata.name;
        Some((QueuedNotification::new(&namespace, &name, provider, &route.event, since), bytes))
    }

    /// Decides about an event for an Alert, and returns whether the Alert needs the labels of the object. Patterns may take
    /// long, so namespaces take turns; without patterns, the change of threads would take longer than the decision.
    async fn evaluate(
        &self,
        event: &Arc<notify::FluxEvent>,
        alert: &Arc<Alert>,
        labels: &ObjectLabels,
        route: fn(
            &notify::FluxEvent,
            &notify::Alert,
            &dyn notify::AlertClusterReader,
            AlertControllerSettings,
        ) -> RoutingDecision,
    ) -> (RoutingDecision, bool) {
        let namespace = alert.namespace().unwrap_or_default();
        let seen = AlertRouterCluster {
            context: self.context.clone(),
            labels: labels.clone(),
            is_asked: Cell::new(false),
        };
        let settings = AlertControllerSettings {
            no_cross_namespace: self.context.settings.no_cross_namespace_refs,
            allows_service_accounts: false,
            now: jiff::Timestamp::now().as_second(),
        };
        let event = event.clone();
        let alert = alert.clone();
        let has_patterns =
            !alert.spec.inclusion_list.is_empty() || !alert.spec.exclusion_list.is_empty();
        let decide = move || {
            let alert = readable(&alert)?;
            let decision = route(&event, &alert, &seen, settings);
            Some((decision, seen.is_asked.get()))
        };
        let decided = if has_patterns {
            on_thread(&namespace, decide).await.map_err(|broken| broken.to_string())
        } else {
            catch_unwind(AssertUnwindSafe(decide)).map_err(|_| DECISION_PANIC.to_owned())
        };
        let warnings = match decided {
            Ok(Some(decided)) => return decided,
            Ok(None) => Vec::new(),
            Err(broken) => vec![dispatch_failed(broken)],
        };
        (RoutingDecision { warnings, route: None }, false)
    }

    /// The present labels of an object.
    async fn labels(&self, object: &ObjectReference) -> ObjectLabels {
        let gvk = Gvk::new(&object.api_version, &object.kind);
        let read = async {
            let resource = self.context.cluster.resource(&gvk).await?;
            self.context.cluster.get(&resource, &object.namespace, &object.name).await
        };
        match read.await {
            Ok(found) => ObjectLabels::Read(found.map(|found| {
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
                ObjectLabels::Unreadable
            }
        }
    }
}

/// The Alerts that may want events of an object.
#[derive(Default)]
struct AlertCandidates {
    /// The names of the objects, by namespace.
    names: BTreeMap<String, Vec<String>>,
    /// Alerts with an annotation that cannot be read, and why.
    invalid: Vec<(Arc<Alert>, String)>,
}

/// The Alerts that may select events of an object. The search yields to other tasks on its thread, even if there are many
/// Alerts.
async fn candidates(alerts: &[Arc<Alert>], object: &ObjectReference) -> AlertCandidates {
    let mut candidates = AlertCandidates::default();
    for some in alerts.chunks(ALERTS_PER_TURN) {
        for alert in some {
            let more = named(&**alert, EVENT_SOURCES).unwrap_or_else(|problem| {
                candidates.invalid.push((alert.clone(), problem));
                Vec::new()
            });
            if may_want(alert, &more, object) {
                let namespace = alert.namespace().unwrap_or_default();
                candidates.names.entry(namespace).or_default().push(alert.name_any());
            }
        }
        tokio::task::yield_now().await;
    }
    candidates
}

/// Whether windlass reconciles a kind, in any group. Alerts select events by kind and name, not by group.
pub(super) fn is_reconciled(kind: &str) -> bool {
    crds::names().any(|names| names.kind == kind)
}

/// Whether no other controller reports about objects of a kind. Other controllers offer their artifacts by ExternalArtifacts,
/// and report about them. Windlass reports nothing about ExternalArtifacts.
pub(super) fn is_reported_alone(kind: &str) -> bool {
    is_reconciled(kind) && kind != ExternalArtifact::kind(&())
}

/// Whether an event reports a failure that incidents also report.
pub(super) fn is_of_incident(event: &notify::FluxEvent) -> bool {
    let is_error = event.severity == "error";
    is_reconciled(&event.object.kind)
        && cause::condition_reason::is_of_condition(&event.reason, is_error)
}

/// An Alert in the form of the engine, with the objects that an annotation names. `None` if the engine cannot parse the Alert.
fn readable(alert: &Alert) -> Option<notify::Alert> {
    let mut read = notify::Alert::new(serde_json::to_value(alert).ok()?).ok()?;
    // Labels do not restrict these objects.
    let more = named(alert, EVENT_SOURCES).unwrap_or_default().into_iter();
    read.spec
        .event_sources
        .extend(more.map(|source| EventSourceSelector { match_labels: None, ..source }));
    read.spec.suspend = is_suspended(alert, jiff::Timestamp::now());
    Some(read)
}

/// Whether an Alert names an object. Checks that are expensive are left out.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    /// A Kustomization.
    fn object() -> ObjectReference {
        let [kind, namespace, name] = ["Kustomization", "apps", "app"].map(str::to_owned);
        ObjectReference { kind, namespace, name, ..ObjectReference::default() }
    }

    #[test]
    fn errors_that_a_condition_repeats_are_of_incidents_and_others_are_not() {
        let of = |kind: &str, severity: &str, reason: &str| {
            let [kind, severity, reason] = [kind, severity, reason].map(str::to_owned);
            let object = ObjectReference { kind, ..object() };
            is_of_incident(&notify::FluxEvent {
                object,
                severity,
                reason,
                ..notify::FluxEvent::default()
            })
        };
        assert!(of("Kustomization", "error", "BuildFailed"));
        assert!(of("Kustomization", "info", "DependencyNotReady"));
        assert!(of("ImageUpdateAutomation", "error", "GitOperationFailed"));
        assert!(!of("Terraform", "error", "BuildFailed"), "another controller reconciles it");
        assert!(!of("Kustomization", "info", "ReconciliationSucceeded"));
        assert!(!of("HelmRelease", "error", "AuditFailed"));
    }

    #[test]
    fn a_kind_of_ours_is_ours_in_whatever_group() {
        for kind in [
            "Kustomization",
            "HelmRelease",
            "Helmfile",
            "ImagePolicy",
            "ImageUpdateAutomation",
            "ArtifactGenerator",
        ] {
            assert!(is_reconciled(kind), "{kind}");
        }
        for kind in ["Terraform", "kustomization", ""] {
            assert!(!is_reconciled(kind), "{kind}");
        }
    }

    #[test]
    fn other_controllers_report_about_the_artifacts_that_they_offer_alone() {
        for kind in ["Kustomization", "ImagePolicy", "ArtifactGenerator", "GitRepository"] {
            assert!(is_reported_alone(kind), "{kind}");
        }
        for kind in ["ExternalArtifact", "Terraform"] {
            assert!(!is_reported_alone(kind), "{kind}");
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
            let is_sent = !readable(&alert).unwrap().spec.suspend;
            (may_want(&alert, &[], &object()), is_sent)
        };
        assert_eq!(asked("2026-01-01T00:00:00Z"), (true, true));
        assert_eq!(asked("9999-01-01T00:00:00Z"), (false, false));
        assert_eq!(asked("soon"), (false, false), "it does not expire");
    }

    #[tokio::test]
    async fn others_have_their_turn_while_many_alerts_are_compared_with_an_event() {
        const NUMBER: usize = 10 * ALERTS_PER_TURN;
        let alert = |at: usize| {
            let alert: Alert = serde_json::from_value(json!({
                "metadata": {"name": format!("a{at}"), "namespace": "apps"},
                "spec": {"providerRef": {"name": "p"},
                    "eventSources": [{"kind": "Kustomization", "name": "*"}]},
            }))
            .unwrap();
            Arc::new(alert)
        };
        let others = Arc::new(AtomicUsize::new(0));
        let counted = others.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let alerts: Vec<Arc<Alert>> = (0..NUMBER).map(alert).collect();
        let found = candidates(&alerts, &object()).await;
        other.abort();
        assert_eq!(found.names["apps"].len(), NUMBER);
        assert!(others.load(Ordering::Relaxed) >= NUMBER / ALERTS_PER_TURN - 1, "{others:?}");
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
        for (source, suspend, expected) in [
            (json!({"kind": "Kustomization", "name": "*"}), false, true),
            (json!({"kind": "Kustomization", "name": "app"}), false, true),
            (json!({"kind": "Kustomization", "name": "app"}), true, false),
            (json!({"kind": "Kustomization", "name": "ap*"}), false, false),
            (json!({"kind": "HelmRelease", "name": "*"}), false, false),
            (json!({"kind": "Kustomization", "name": "*", "namespace": "b"}), false, false),
        ] {
            assert_eq!(
                may_want(&alert(source.clone(), suspend), &[], &object()),
                expected,
                "{source}"
            );
        }
    }
}
