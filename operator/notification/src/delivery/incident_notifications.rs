//! Notifications about incidents: which Alerts have incidents, and which notifications about an incident wait or were sent.
//!
//! Another task writes the sent notifications to the status of the Incident. Until that task has taken the outcome of a
//! notification, this module remembers the notification, so that it is not sent twice.
//!
//! Elsewhere: the incidents themselves (`incident`), the messages to services (`engines/notify`), waiting
//! (`notification_queue`), attempts (`provider_worker`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::notification::{Alert, AlertSpec, Provider};
use crds::windlass_notification::{Incident, IncidentState, IncidentStep};
use kube_core::ResourceExt as _;
use notify::EventSourceSelector;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::alert_router::{AlertRouter, ObjectLabels};
use super::alert_warnings::dispatch_failed;
use super::notification_queue::NotificationQueue;
use super::queued_notification::QueuedNotification;
use crate::incident::incident_silence::silence_end;
use crate::object_selection_annotations::{EVENT_SOURCES, named};
use windlass_runtime::lifecycle::watched_object_cache::WatchedObjectCache;
use windlass_runtime::object_hold::is_suspended;
use windlass_runtime::run_context::RunContext;
use windlass_serve::settings::{OperatorSettings, parse_duration};

/// Annotation of an Alert that asks for incidents instead of each error.
pub const INCIDENTS: &str = "windlass.dev/incidents";
/// Annotation of an Alert with the time for which an incident has to be open before it is sent.
const AFTER: &str = "windlass.dev/incident-after";
/// Annotation of an Alert with the interval of reminders about open incidents.
const REMINDER: &str = "windlass.dev/incident-reminder";

/// The most Alerts of a namespace that have incidents, since each open incident is compared with each of these Alerts.
const MOST_EACH: usize = 32;

/// Reminders are not sent more often.
const MOST_OFTEN: Duration = Duration::from_secs(60);

/// The step of an incident that a notification reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum IncidentTransition {
    Opened,
    Reminded,
    Resolved,
}

/// An incident, and the step that is reported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct IncidentTransitionReference {
    /// Namespace, name and uid of the Incident.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// When the incident was opened, in seconds since 1970. An Incident may be opened several times.
    pub(crate) opened: i64,
    /// The class of the failure.
    pub(crate) reason: String,
    pub(crate) saying: IncidentTransition,
    /// The message that opened it, at a service with threads.
    #[serde(default)]
    pub(crate) thread: Option<String>,
}

impl IncidentTransitionReference {
    /// The key by which a service knows the incident. Each opening has its own key. So a late notification about an earlier
    /// end does not close the page of a later opening.
    pub(crate) fn key(&self) -> String {
        format!("{}-{}", self.uid, self.opened)
    }

    /// The incident in the form of the engine.
    pub(super) fn incident(&self) -> notify::NotifiedIncident {
        notify::NotifiedIncident {
            key: self.key(),
            is_open: self.saying != IncidentTransition::Resolved,
            since: self.opened,
            reason: self.reason.clone(),
            thread: self.thread.clone(),
        }
    }
}

/// The identity of a notification about an incident; the step of the Incident that it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IncidentNotificationKey {
    /// The namespace of Alert and Provider.
    pub(crate) namespace: String,
    pub(crate) alert: String,
    pub(crate) provider: String,
    pub(crate) mark: IncidentTransitionReference,
}

impl IncidentNotificationKey {
    /// Whether the notification still has to be sent, by the present Incident. Otherwise it is due again later, or another
    /// process sent it.
    ///
    /// A process that may not act sends no beginning, because the acting process knows which notifications are due. It does
    /// send the end for a deleted Incident, since no other process knows about that.
    fn is_current(&self, incident: Option<&Incident>, may_act: bool) -> bool {
        let IncidentTransitionReference { uid, opened, saying, .. } = &self.mark;
        let status = incident.filter(|it| it.uid().as_ref() == Some(uid));
        let status = status.and_then(|it| it.status.as_ref());
        let is_it = |at: &crds::Time| at.0.as_second() == *opened;
        let status = status.filter(|it| it.opened_at.as_ref().is_some_and(is_it));
        let sent = status.and_then(|status| {
            let mut all = status.notifications.iter();
            all.find(|it| {
                let names = [&it.namespace, &it.alert, &it.provider];
                names == [&self.namespace, &self.alert, &self.provider]
            })
        });
        let is_open = status.is_some_and(|it| it.state == Some(IncidentState::Open));
        // It may have been silenced while the notification waited.
        let now = jiff::Timestamp::now();
        let is_silenced = status.is_some_and(|it| silence_end(it, now).is_some());
        let may_begin = may_act && is_open && !is_silenced;
        let sent = sent.map(|it| it.state);
        match saying {
            IncidentTransition::Opened => may_begin && sent != Some(IncidentStep::Opened),
            IncidentTransition::Reminded => may_begin,
            IncidentTransition::Resolved => match sent {
                None => true,
                Some(IncidentStep::Opened) => may_act,
                Some(IncidentStep::Resolved | IncidentStep::Failed) => false,
            },
        }
    }
}

/// Whether a notification about an incident still has to be sent. True for every other notification.
pub(super) fn is_current(context: &RunContext, notification: &QueuedNotification) -> bool {
    let Some(step) = notification.step() else { return true };
    let table = context.shared::<WatchedObjectCache<Incident>>();
    let incident = table.get(&step.mark.namespace, &step.mark.name);
    step.is_current(incident.as_deref(), context.cluster.leadership.may_act())
}

/// An Alert that has only its name, for an Alert that was deleted.
pub(super) fn bare_alert(namespace: &str, name: &str) -> Alert {
    let mut alert = Alert::new(name, AlertSpec::default());
    alert.metadata.namespace = Some(namespace.to_owned());
    alert
}

/// The result of a notification about an incident.
#[derive(Debug, Clone)]
pub(crate) struct IncidentNotificationOutcome {
    pub(crate) step: IncidentNotificationKey,
    /// Whether the service accepted the notification. Otherwise the service never will.
    pub(crate) is_delivered: bool,
    /// The id that it gave the message.
    pub(crate) message: Option<String>,
}

/// The decision of an Alert about an event of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncidentAlertChoice {
    /// The event is sent.
    Sent,
    /// The Alert does not select the event, or the event cannot be sent in this form.
    Declined,
    /// The decision cannot be made now.
    Unknown,
}

/// Outcomes that were not taken yet.
#[derive(Default)]
pub(super) struct IncidentNotificationOutcomes {
    ended: Mutex<Vec<IncidentNotificationOutcome>>,
    came: Notify,
}

impl IncidentNotificationOutcomes {
    /// Stores the outcome of a notification about an Incident, until the reader of the outcomes takes it.
    pub(super) fn put(&self, outcome: IncidentNotificationOutcome) {
        self.ended.lock().push(outcome);
        self.came.notify_one();
    }
}

/// An Alert that has incidents.
#[derive(Debug, Clone)]
pub(crate) struct IncidentSubscriber {
    pub(crate) alert: Arc<Alert>,
    pub(crate) after: Duration,
    pub(crate) reminder: Option<Duration>,
    /// The objects that an annotation names besides the `eventSources`.
    pub(crate) more: Vec<EventSourceSelector>,
}

/// A duration of an annotation.
///
/// # Errors
/// The annotation is not a duration.
fn duration(alert: &Alert, annotation: &str) -> Result<Option<Duration>, String> {
    let Some(text) = alert.annotations().get(annotation) else { return Ok(None) };
    let read = parse_duration(text.trim());
    read.map(Some).map_err(|error| format!("annotation {annotation}: {error}"))
}

/// Namespace and name of an Alert.
fn key_of(alert: &Alert) -> [String; 2] {
    [alert.namespace().unwrap_or_default(), alert.name_any()]
}

/// The first Alerts of each namespace, and the others.
struct AlertsByNamespaceLimit {
    first: Vec<Arc<Alert>>,
    surplus: Vec<Arc<Alert>>,
}

fn divided(mut alerts: Vec<Arc<Alert>>) -> AlertsByNamespaceLimit {
    alerts.sort_by_key(|alert| key_of(alert));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (first, surplus) = alerts.into_iter().partition(|alert| {
        let count = counts.entry(alert.namespace().unwrap_or_default()).or_default();
        *count += 1;
        *count <= MOST_EACH
    });
    AlertsByNamespaceLimit { first, surplus }
}

/// Whether an Alert has incidents, by its annotation or by the flag.
fn is_wanting(alert: &Alert, settings: &OperatorSettings) -> bool {
    match alert.annotations().get(INCIDENTS).map(|text| text.trim()) {
        Some(text) => text == "true",
        None => settings.incidents,
    }
}

/// Whether Incidents can be kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum IncidentAvailability {
    /// Incidents were not listed yet.
    #[default]
    Unknown,
    /// Incidents are listed and watched.
    Kept,
    /// Their CustomResourceDefinition is not installed, or they cannot be listed. Each error is sent.
    Unavailable,
}

/// The notifications about incidents, and the Alerts that have incidents.
pub(crate) struct IncidentNotifications {
    router: Arc<AlertRouter>,
    queue: Arc<NotificationQueue>,
    availability: Mutex<IncidentAvailability>,
    /// Alerts that are sent each error, since their namespace has too many with incidents.
    surplus: Mutex<BTreeSet<[String; 2]>>,
}

impl IncidentNotifications {
    pub(super) fn new(router: Arc<AlertRouter>, queue: Arc<NotificationQueue>) -> Self {
        Self { router, queue, availability: Mutex::default(), surplus: Mutex::default() }
    }

    /// Whether incidents may replace the errors that an Alert selects. The Alert has to ask for them, and the type of its
    /// Provider has to support them. While the Incidents are not known, errors wait, because the process that acted before
    /// may have sent the incident already.
    pub(crate) fn may_replace_errors(&self, alert: &Alert) -> bool {
        self.availability() != IncidentAvailability::Unavailable
            && self.supports_incidents(alert)
            && !self.surplus.lock().contains(&key_of(alert))
    }

    fn supports_incidents(&self, alert: &Alert) -> bool {
        is_wanting(alert, &self.queue.context.settings)
            && self
                .provider_of(alert)
                .is_some_and(|provider| notify::has_incidents(provider.spec.type_.as_str()))
    }

    fn provider_of(&self, alert: &Alert) -> Option<Arc<Provider>> {
        let namespace = alert.namespace().unwrap_or_default();
        self.queue.context.seen::<Provider>(&namespace, &alert.spec.provider_ref.name)
    }

    /// Whether any Alert asks for incidents, also if incidents cannot be kept.
    pub(crate) fn are_wanted(&self) -> bool {
        let settings = &self.queue.context.settings;
        self.queue.context.store::<Alert>().state().iter().any(|alert| is_wanting(alert, settings))
    }

    /// Whether Incidents can be kept, as far as this process knows.
    pub(crate) fn availability(&self) -> IncidentAvailability {
        *self.availability.lock()
    }

    /// Sets whether Incidents can be kept.
    pub(crate) fn set_availability(&self, availability: IncidentAvailability) {
        *self.availability.lock() = availability;
    }

    /// The Alerts for which incidents are sent while they can be kept, in the order of their names. If a namespace has too many of them, the
    /// others are sent each error, and an event reports that.
    pub(crate) fn subscribers(&self) -> Vec<IncidentSubscriber> {
        let mut alerts = self.queue.context.store::<Alert>().state();
        alerts.retain(|alert| self.is_sending(alert) && self.supports_incidents(alert));
        let AlertsByNamespaceLimit { first, surplus } = divided(alerts);
        for alert in &surplus {
            let text = format!(
                "the namespace has more than {MOST_EACH} Alerts with incidents; this one is sent each error instead"
            );
            self.queue.warnings.warn_invalid(alert, text);
        }
        let surplus = surplus.iter().map(|alert| key_of(alert)).collect();
        *self.surplus.lock() = surplus;
        let mut all = Vec::new();
        for alert in first {
            let read = |annotation| {
                duration(&alert, annotation).unwrap_or_else(|message| {
                    self.queue.warnings.warn_invalid(&alert, message);
                    None
                })
            };
            let after = read(AFTER).unwrap_or_default();
            let reminder = read(REMINDER).filter(|it| !it.is_zero());
            let reminder = reminder.map(|it| it.max(MOST_OFTEN));
            let more = named(&*alert, EVENT_SOURCES).unwrap_or_default();
            all.push(IncidentSubscriber { alert, after, reminder, more });
        }
        all
    }

    /// Whether something can be sent for an Alert.
    pub(crate) fn is_sending(&self, alert: &Alert) -> bool {
        let now = jiff::Timestamp::now();
        let provider = self.provider_of(alert);
        !is_suspended(alert, now) && provider.is_some_and(|it| !is_suspended(&*it, now))
    }

    /// The Alert with which the end of an incident is sent. It names the Provider that got the beginning, also if the Alert
    /// names another Provider now or was deleted.
    pub(crate) fn alert_as_sent(&self, namespace: &str, name: &str, provider: &str) -> Arc<Alert> {
        let alert = self.queue.context.seen::<Alert>(namespace, name);
        let mut alert = alert.map_or_else(|| bare_alert(namespace, name), |it| (*it).clone());
        provider.clone_into(&mut alert.spec.provider_ref.name);
        Arc::new(alert)
    }

    /// Records on an Alert, and in the log, that the end of an incident cannot be sent to a service.
    pub(crate) fn report_unresolvable(&self, step: &IncidentNotificationKey) {
        let IncidentNotificationKey { namespace, alert, provider, mark } = step;
        let message = format!(
            "incident {}/{} has ended, but Provider '{provider}', which was sent its beginning, does not exist any more; \
             close it at the service, where its key is {}",
            mark.namespace,
            mark.name,
            mark.key()
        );
        tracing::error!(
            controller_kind = "Alert",
            name = alert,
            namespace,
            error = message,
            "cannot send the end of an incident"
        );
        self.queue.warnings.warn(namespace, alert, dispatch_failed(message));
    }

    /// The notifications about incidents that wait to be sent.
    pub(crate) fn waiting_steps(&self) -> BTreeSet<IncidentNotificationKey> {
        self.queue.spool.steps()
    }

    /// Outcomes since the last call.
    pub(crate) fn take_outcomes(&self) -> Vec<IncidentNotificationOutcome> {
        std::mem::take(&mut *self.queue.incident_outcomes.ended.lock())
    }

    /// Waits until a notification has an outcome.
    pub(crate) async fn outcome(&self) {
        self.queue.incident_outcomes.came.notified().await;
    }

    /// Decides about an event of an object for an Alert, by the whole spec of the Alert.
    pub(crate) async fn choose(
        &self,
        event: &Arc<notify::FluxEvent>,
        alert: &Arc<Alert>,
    ) -> IncidentAlertChoice {
        let mut labels = ObjectLabels::Unread;
        let decision = self.router.route(event, alert, &mut labels).await;
        match (labels, decision.route) {
            (ObjectLabels::Unreadable, _) => IncidentAlertChoice::Unknown,
            (_, Some(_)) => IncidentAlertChoice::Sent,
            (_, None) => self.declined(alert),
        }
    }

    /// The choice for a Provider that does not exist yet. Nothing is sent to it, but the Alert may not decline the event.
    fn declined(&self, alert: &Alert) -> IncidentAlertChoice {
        if self.provider_of(alert).is_some() {
            IncidentAlertChoice::Declined
        } else {
            IncidentAlertChoice::Unknown
        }
    }

    /// Queues the notification about an incident for an Alert that selects it.
    pub(crate) async fn send(
        &self,
        event: notify::FluxEvent,
        alert: &Arc<Alert>,
        mark: IncidentTransitionReference,
    ) -> IncidentAlertChoice {
        let decision = self.router.follow_up(&Arc::new(event), alert).await;
        let Some((notification, _)) = self.router.notification(alert, decision) else {
            return self.declined(alert);
        };
        self.queue.put(notification.about(mark));
        IncidentAlertChoice::Sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(annotations: &[(&str, &str)]) -> Alert {
        let mut alert = Alert::new("a", crds::notification::AlertSpec::default());
        let all = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        alert.metadata.annotations = Some(all.collect());
        alert
    }

    #[test]
    fn durations_are_read_as_go_writes_them_and_nonsense_is_named() {
        let read = |text: &str| duration(&alert(&[(AFTER, text)]), AFTER);
        assert_eq!(duration(&alert(&[]), AFTER), Ok(None));
        assert_eq!(read("5m"), Ok(Some(Duration::from_secs(300))));
        assert_eq!(read(" 1h30m "), Ok(Some(Duration::from_secs(5_400))));
        for wrong in ["", "5", "-5m", "soon"] {
            assert!(read(wrong).is_err_and(|error| error.contains(AFTER)), "{wrong}");
        }
    }

    fn step(saying: IncidentTransition, opened: i64) -> IncidentNotificationKey {
        let [namespace, alert, provider] = ["apps", "a", "pager"].map(str::to_owned);
        let mark = IncidentTransitionReference {
            namespace: "apps".to_owned(),
            name: "i".to_owned(),
            uid: "u".to_owned(),
            opened,
            reason: "Build".to_owned(),
            saying,
            thread: None,
        };
        IncidentNotificationKey { namespace, alert, provider, mark }
    }

    /// An Incident that was opened at the second 7, and what the Provider was sent last.
    fn incident(state: &str, provider: &str, sent: Option<&str>) -> Incident {
        let mut incident = Incident::new("i", crds::windlass_notification::IncidentSpec::default());
        incident.metadata.uid = Some("u".to_owned());
        let of = |state: &str| serde_json::json!({"namespace": "apps", "alert": "a", "provider": provider, "state": state});
        let sent: Vec<serde_json::Value> = sent.map(of).into_iter().collect();
        let status = serde_json::json!({"state": state, "openedAt": "1970-01-01T00:00:07Z",
            "notifications": sent});
        incident.status = serde_json::from_value(status).unwrap();
        incident
    }

    #[test]
    fn a_beginning_that_waited_is_sent_only_while_its_incident_is_open() {
        let opened = step(IncidentTransition::Opened, 7);
        let current = |step: &IncidentNotificationKey, incident: &Incident| {
            step.is_current(Some(incident), true)
        };
        assert!(current(&opened, &incident("Open", "pager", None)));
        assert!(current(&opened, &incident("Open", "pager", Some("Failed"))));
        assert!(current(&opened, &incident("Open", "other", Some("Opened"))));
        assert!(!current(&opened, &incident("Open", "pager", Some("Opened"))), "another sent it");
        assert!(!current(&opened, &incident("Resolved", "pager", None)), "it has ended");
        assert!(!current(&step(IncidentTransition::Opened, 6), &incident("Open", "pager", None)));
        assert!(!opened.is_current(None, true), "it was deleted");
        let reminded = step(IncidentTransition::Reminded, 7);
        assert!(current(&reminded, &incident("Open", "pager", Some("Opened"))));
        assert!(!current(&reminded, &incident("Resolved", "pager", Some("Opened"))));
    }

    #[test]
    fn of_a_silenced_incident_only_the_end_is_sent_from_the_queue() {
        let now = jiff::Timestamp::now();
        let until = now.checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
        let silence = serde_json::json!({"user": "alice", "reason": "known",
            "at": now.to_string(), "until": until.to_string()});
        let silenced = |sent: Option<&str>| {
            let mut incident = incident("Open", "pager", sent);
            let status = incident.status.as_mut().unwrap();
            status.silence = serde_json::from_value(silence.clone()).unwrap();
            incident
        };
        let current = |saying: IncidentTransition, sent: Option<&str>| {
            step(saying, 7).is_current(Some(&silenced(sent)), true)
        };
        assert!(!current(IncidentTransition::Opened, None));
        assert!(!current(IncidentTransition::Reminded, Some("Opened")));
        assert!(current(IncidentTransition::Resolved, Some("Opened")));
    }

    #[test]
    fn a_standby_sends_nothing_that_another_process_knows_is_due() {
        let of = |step: &IncidentNotificationKey, incident: Option<&Incident>| {
            step.is_current(incident, false)
        };
        let open = incident("Open", "pager", None);
        assert!(!of(&step(IncidentTransition::Opened, 7), Some(&open)));
        assert!(!of(&step(IncidentTransition::Reminded, 7), Some(&open)));
        let over = step(IncidentTransition::Resolved, 7);
        assert!(!of(&over, Some(&incident("Resolved", "pager", Some("Opened")))));
        assert!(!of(&over, Some(&incident("Resolved", "pager", Some("Resolved")))));
        assert!(of(&over, None), "no status says that it is due");
        assert!(
            of(&step(IncidentTransition::Resolved, 6), Some(&open)),
            "the end of an earlier opening"
        );
    }

    #[test]
    fn the_first_alerts_of_each_namespace_have_incidents() {
        let all = (0..640).map(|at| ("loud", at)).chain((0..2).map(|at| ("quiet", at)));
        let alerts =
            all.map(|(namespace, at)| Arc::new(bare_alert(namespace, &format!("a{at:03}"))));
        let AlertsByNamespaceLimit { first, surplus } = divided(alerts.collect());
        let of = |all: &[Arc<Alert>], namespace: &str| {
            all.iter().filter(|it| it.namespace().as_deref() == Some(namespace)).count()
        };
        assert_eq!((of(&first, "loud"), of(&first, "quiet")), (MOST_EACH, 2));
        assert_eq!((of(&surplus, "loud"), of(&surplus, "quiet")), (640 - MOST_EACH, 0));
        assert_eq!(first[0].name_any(), "a000");
    }

    #[test]
    fn of_an_alert_that_is_gone_its_name_is_left() {
        let alert = bare_alert("apps", "gone");
        assert_eq!(
            (alert.namespace().as_deref(), alert.name_any().as_str()),
            (Some("apps"), "gone")
        );
    }

    #[test]
    fn a_mark_is_the_same_incident_for_a_service_until_it_is_resolved() {
        let [opened, reminded, resolved] = [
            IncidentTransition::Opened,
            IncidentTransition::Reminded,
            IncidentTransition::Resolved,
        ]
        .map(|it| step(it, 7).mark.incident());
        assert_eq!(opened, reminded);
        assert!(opened.is_open && !resolved.is_open);
        assert_eq!((&opened.key, opened.since), (&resolved.key, resolved.since));
        let again = step(IncidentTransition::Opened, 8).mark;
        assert_ne!(again.key(), opened.key, "each opening is a page of its own");
    }
}
