//! Notifications about incidents: which Alerts have incidents, what waits to be sent about one, and what was sent.
//!
//! What was sent stands in the status of the Incident, which another task writes. A step is known here from the moment in
//! which it waits until that task takes its outcome, so that none is sent twice.
//!
//! Elsewhere: the incidents themselves (`controllers::incident`), what services are sent (`engines/notify`), waiting
//! (`spool`), attempts (`lane`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crds::notification::{Alert, Provider};
use kube::core::ResourceExt as _;
use notify::{ObjectReference, Routed, Source, Warning};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::Delivery;
use super::spool::{LARGEST, Notification};
use crate::controllers::own_kinds::{EVENT_SOURCES, named};
use crate::metrics::NotificationOutcome;
use crate::settings::{Settings, parse_duration};

/// On an Alert: whether it is sent incidents instead of each error.
pub(crate) const INCIDENTS: &str = "windlass.dev/incidents";
/// On an Alert: how long an incident is open before that is sent.
const AFTER: &str = "windlass.dev/incident-after";
/// On an Alert: how often it is sent that an incident is still open.
const REMINDER: &str = "windlass.dev/incident-reminder";

/// Reminders are not sent more often.
const MOST_OFTEN: Duration = Duration::from_secs(60);

/// What is said about an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Saying {
    Opened,
    Reminded,
    Resolved,
}

/// An incident, and what is said about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Namespace, name and uid of the Incident.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// When it was opened, in seconds since 1970: an Incident may be opened several times.
    pub(crate) opened: i64,
    /// The class of the failure.
    pub(crate) reason: String,
    pub(crate) saying: Saying,
    /// The message that opened it, at a service with threads.
    #[serde(default)]
    pub(crate) thread: Option<String>,
}

impl Mark {
    /// The key by which a service knows the incident. It is of this opening only: the end of an earlier one that waited
    /// does not close the page of a later one.
    pub(crate) fn key(&self) -> String {
        format!("{}-{}", self.uid, self.opened)
    }

    /// As the engine needs it.
    pub(super) fn incident(&self) -> notify::Incident {
        notify::Incident {
            key: self.key(),
            is_open: self.saying != Saying::Resolved,
            since: self.opened,
            reason: self.reason.clone(),
            thread: self.thread.clone(),
        }
    }
}

/// Something to be sent about an incident for an Alert.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    /// The namespace of Alert and Provider.
    pub(crate) namespace: String,
    pub(crate) alert: String,
    pub(crate) provider: String,
    pub(crate) mark: Mark,
}

/// How a step ended.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) step: Step,
    /// Whether the service accepted it; else it never will.
    pub(crate) is_delivered: bool,
    /// The id that it gave the message.
    pub(crate) message: Option<String>,
}

/// What an Alert makes of an event about an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It is sent.
    Sent,
    /// The Alert does not select it, or it cannot be sent as it is.
    Declined,
    /// That cannot be found out now.
    Unknown,
}

/// Outcomes that were not taken yet.
#[derive(Default)]
pub(super) struct Outcomes {
    /// Whether Incidents can be kept. While that is not known, or their CRD is not installed, each error is sent.
    is_kept: AtomicBool,
    ended: Mutex<Vec<Outcome>>,
    came: Notify,
}

impl Outcomes {
    /// A step has ended.
    pub(super) fn put(&self, outcome: Outcome) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push(outcome);
        self.came.notify_one();
    }
}

/// An Alert that has incidents.
#[derive(Debug, Clone)]
pub(crate) struct Wanting {
    pub(crate) alert: Arc<Alert>,
    pub(crate) after: Duration,
    pub(crate) reminder: Option<Duration>,
    /// What an annotation names besides the `eventSources`.
    pub(crate) more: Vec<Source>,
}

/// A duration of an annotation.
///
/// # Errors
/// It is none.
fn duration(alert: &Alert, annotation: &str) -> Result<Option<Duration>, String> {
    let Some(text) = alert.annotations().get(annotation) else { return Ok(None) };
    let read = parse_duration(text.trim());
    read.map(Some).map_err(|error| format!("annotation {annotation}: {error}"))
}

/// Whether an Alert has incidents, by its annotation or by the flag.
fn is_wanting(alert: &Alert, settings: &Settings) -> bool {
    match alert.annotations().get(INCIDENTS).map(|text| text.trim()) {
        Some(text) => text == "true",
        None => settings.incidents,
    }
}

impl Delivery {
    /// Whether incidents are sent for an Alert: it asks for them, and its Provider is of a type that can be sent any.
    pub(super) fn has_incidents(&self, alert: &Alert) -> bool {
        self.outcomes.is_kept.load(Ordering::Relaxed)
            && is_wanting(alert, &self.context.settings)
            && self
                .provider_of(alert)
                .is_some_and(|provider| notify::has_incidents(provider.spec.type_.as_str()))
    }

    fn provider_of(&self, alert: &Alert) -> Option<Arc<Provider>> {
        let namespace = alert.namespace().unwrap_or_default();
        self.context.seen::<Provider>(&namespace, &alert.spec.provider_ref.name)
    }

    /// Whether an Alert asks for incidents, also if they cannot be kept.
    pub(crate) fn is_incident_wanted(&self) -> bool {
        let settings = &self.context.settings;
        self.context.store::<Alert>().state().iter().any(|alert| is_wanting(alert, settings))
    }

    /// Says whether Incidents can be kept.
    pub(crate) fn keeps_incidents(&self, is_kept: bool) {
        self.outcomes.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// The Alerts for which incidents are sent now.
    pub(crate) fn wanting(&self) -> Vec<Wanting> {
        let mut all = Vec::new();
        for alert in self.context.store::<Alert>().state() {
            if !self.is_sending(&alert) || !self.has_incidents(&alert) {
                continue;
            }
            let read = |annotation| {
                duration(&alert, annotation).unwrap_or_else(|message| {
                    self.tell_invalid(&alert, message);
                    None
                })
            };
            let after = read(AFTER).unwrap_or_default();
            let reminder = read(REMINDER).filter(|it| !it.is_zero());
            let reminder = reminder.map(|it| it.max(MOST_OFTEN));
            let more = named(&*alert, EVENT_SOURCES).unwrap_or_default();
            all.push(Wanting { alert, after, reminder, more });
        }
        all
    }

    /// Whether something can be sent for an Alert.
    pub(crate) fn is_sending(&self, alert: &Alert) -> bool {
        !alert.spec.suspend && self.provider_of(alert).is_some_and(|it| !it.spec.suspend)
    }

    fn tell_invalid(&self, alert: &Alert, message: String) {
        let (namespace, name) = (alert.namespace().unwrap_or_default(), alert.name_any());
        let (reason, annotations) = ("InvalidConfig", BTreeMap::new());
        self.warn(&namespace, &name, Warning { reason, message, annotations });
    }

    /// Whether an Alert names an object, whatever its labels are.
    pub(crate) fn names(&self, wanting: &Wanting, object: &ObjectReference) -> bool {
        let Wanting { alert, more, .. } = wanting;
        let is_own = alert.namespace().as_deref() == Some(object.namespace.as_str());
        if !is_own && self.context.settings.no_cross_namespace_refs {
            return false;
        }
        super::dispatch::may_want(alert, more, object)
    }

    /// What waits about incidents.
    pub(crate) fn waiting_steps(&self) -> BTreeSet<Step> {
        self.spool.steps()
    }

    /// Outcomes since the last call.
    pub(crate) fn take_outcomes(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.outcomes.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns once there is an outcome.
    pub(crate) async fn outcome(&self) {
        self.outcomes.came.notified().await;
    }

    /// What an Alert makes of an event about an object, by all that its spec says.
    pub(crate) async fn choose(&self, event: &Arc<notify::Event>, alert: &Arc<Alert>) -> Choice {
        match self.decide(event, alert).await {
            Some(routed) if routed.route.is_some() => Choice::Sent,
            Some(_) => self.declined(alert),
            None => Choice::Unknown,
        }
    }

    /// Nothing is sent to a Provider that does not exist yet, which is no choice of the Alert.
    fn declined(&self, alert: &Alert) -> Choice {
        if self.provider_of(alert).is_some() { Choice::Declined } else { Choice::Unknown }
    }

    /// Has an event about an incident sent for an Alert that selects it.
    pub(crate) async fn send(
        self: &Arc<Self>,
        event: notify::Event,
        alert: &Arc<Alert>,
        mark: Mark,
    ) -> Choice {
        let (namespace, name) = (alert.namespace().unwrap_or_default(), alert.name_any());
        let event = Arc::new(event);
        let Routed { warnings, route } = self.follow_up(&event, alert).await;
        for warning in warnings {
            self.warn(&namespace, &name, warning);
        }
        let Some(route) = route else { return self.declined(alert) };
        if route.event.to_json().len() > LARGEST {
            self.warn(&namespace, &name, super::dispatch::too_large());
            self.context.metrics.notified(NotificationOutcome::Dropped);
            return Choice::Declined;
        }
        let since = jiff::Timestamp::now().as_second();
        let place = (&*namespace, &*name, &*route.provider.metadata.name);
        self.put(Notification::new(place, &route.event, since).about(mark)).await;
        Choice::Sent
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

    #[test]
    fn a_mark_is_the_same_incident_for_a_service_until_it_is_resolved() {
        let mark = |saying| Mark {
            namespace: "apps".to_owned(),
            name: "i".to_owned(),
            uid: "u".to_owned(),
            opened: 7,
            reason: "Build".to_owned(),
            saying,
            thread: None,
        };
        let [opened, reminded, resolved] =
            [Saying::Opened, Saying::Reminded, Saying::Resolved].map(|it| mark(it).incident());
        assert_eq!(opened, reminded);
        assert!(opened.is_open && !resolved.is_open);
        assert_eq!((&opened.key, opened.since), (&resolved.key, resolved.since));
        let again = Mark { opened: 8, ..mark(Saying::Opened) };
        assert_ne!(again.key(), opened.key, "each opening is a page of its own");
    }
}
