//! Decides which notifications about an incident are due, and records the sent ones in the status of the Incident.
//!
//! A notification is due until the status has its outcome, and it is not queued twice while it waits. So a killed process
//! loses no notification, and sends one more time if it lost the outcome. A notification without an outcome, as when the queue
//! is full, is due again after a pause.
//!
//! Elsewhere: the queue and the Alerts (`delivery`), which Alerts name the objects of an incident (`alerts_of_incident`), the
//! events (`incident_event`), the messages to services (`engines/notify`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Time as When;
use crds::notification::{Alert, Provider};
use crds::windlass_notification::{Incident, IncidentNotification, IncidentStatus, IncidentStep};
use kube_core::ResourceExt as _;
use notify::ObjectReference;
use reconcile::{ObjectKey, Time};
use serde_json::json;

use super::alerts_of_incident::{
    AlertCandidate, IncidentAlertAssignment, MAX_ALERTS_PER_INCIDENT, places,
};
use super::incident_event::{IncidentEventSubject, event};
use super::incident_silence::silence_end;
use super::incident_store::{self, IncidentWriteOutcome, IncidentWriter};
use super::namespace_round_robin::NamespaceRoundRobin;
use crate::delivery::incident_notifications::{
    IncidentAlertChoice, IncidentNotificationKey, IncidentNotificationOutcome,
    IncidentNotifications, IncidentSubscriber, IncidentTransition, IncidentTransitionReference,
};
use windlass_changes::failed_change_advice::advice_of_member;
use windlass_runtime::run_context::RunContext;

/// The most outcomes that a pass writes.
const MAX_OUTCOMES_PER_PASS: usize = 64;

/// The time until a step is due again after it was queued, or could not be queued.
const STEP_RETRY_DELAY: Duration = Duration::from_secs(60);

/// How long the decision holds that an Alert declined a step, unless the Alert changes.
const DECLINED_STEP_TTL: Duration = Duration::from_secs(300);

/// After how long the beginning is sent again that the service rejected.
const REJECTED_OPENING_RETRY_DELAY: Duration = Duration::from_secs(600);

/// Sends notifications about incidents. It queues each due notification until the status of the Incident has the outcome.
pub(super) struct IncidentNotifier {
    context: Arc<RunContext>,
    incidents: Arc<IncidentNotifications>,
    /// Steps that wait to be sent.
    waiting: BTreeSet<IncidentNotificationKey>,
    /// Steps that ended and do not stand in a status yet.
    ended: Vec<IncidentNotificationOutcome>,
    /// Steps that their Alert does not send, because of its patterns or labels, by their keys.
    declined: BTreeMap<u64, DeclinedIncidentStep>,
    keys: RandomState,
    /// Steps that were queued or could not be, and when.
    tried: BTreeMap<IncidentNotificationKey, Instant>,
    /// Beginnings that were sent after their Incident was opened again. The opening that the service was sent has ended.
    late: Vec<IncidentNotificationKey>,
    /// Ends that cannot be sent because their Provider is gone, which was reported.
    unresolvable: BTreeSet<IncidentNotificationKey>,
    /// Steps that found no place in the status of their Incident in this pass, by their keys.
    without_place: BTreeSet<u64>,
    turns: NamespaceRoundRobin,
}

/// A step that an Alert declined.
struct DeclinedIncidentStep {
    /// The version of the Alert, by its key.
    version: u64,
    at: Instant,
}

/// The due notification about an incident, for one Alert.
pub(super) struct DueIncidentNotification<'w> {
    pub(super) subscriber: &'w IncidentSubscriber,
    pub(super) step: IncidentNotificationKey,
    /// The objects of the incident that the Alert names.
    pub(super) offered: BTreeSet<usize>,
}

/// The notification to an Alert about an open incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IncidentOpenNotificationState {
    /// The opening was sent, now or a moment ago. Or a user has silenced the incident.
    Sent,
    /// The opening is sent once it is due.
    Due,
    /// No notification is sent, because the Alert declines the incident or the status has no place for the Alert.
    Denied,
}

/// The entry of an Incident's status about the notifications of an Alert to a Provider. `None` if there is no such entry.
fn entry<'s>(
    status: &'s IncidentStatus,
    namespace: &str,
    alert: &str,
    provider: &str,
) -> Option<&'s IncidentNotification> {
    let is_it = |it: &&IncidentNotification| {
        it.namespace == namespace && it.alert == alert && it.provider == provider
    };
    status.notifications.iter().find(is_it)
}

/// The notification that is due now for an Alert about an open Incident. `None` if no notification is due.
fn due(
    status: &IncidentStatus,
    sent: Option<&IncidentNotification>,
    after: Duration,
    reminder: Option<Duration>,
    now: Time,
    is_paused: bool,
) -> Option<IncidentTransition> {
    let has_passed = |since: Option<Time>, limit: Duration| {
        let passed = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        passed.is_some_and(|passed| passed >= limit)
    };
    if is_paused || silence_end(status, now).is_some() {
        return None;
    }
    let Some(sent) = sent else {
        return has_passed(incident_store::opened(status), after)
            .then_some(IncidentTransition::Opened);
    };
    let last = sent.at.as_ref().map(|at| at.0);
    match sent.state {
        IncidentStep::Opened => has_passed(last, reminder?).then_some(IncidentTransition::Reminded),
        IncidentStep::Failed => {
            has_passed(last, REJECTED_OPENING_RETRY_DELAY).then_some(IncidentTransition::Opened)
        }
        IncidentStep::Resolved => None,
    }
}

/// Whether a service was sent the beginning of an opening that has ended since. Each has a key of its own.
fn is_late(status: &IncidentStatus, outcome: &IncidentNotificationOutcome) -> bool {
    let mark = &outcome.step.mark;
    let is_current = incident_store::opened(status).map(Time::as_second) == Some(mark.opened);
    outcome.is_delivered && mark.saying != IncidentTransition::Resolved && !is_current
}

/// The notifications of a status with an outcome added. `None` if the outcome does not belong there, or there is no room.
fn recorded(
    status: &IncidentStatus,
    outcome: &IncidentNotificationOutcome,
    now: Time,
) -> Option<Vec<IncidentNotification>> {
    let IncidentNotificationKey { namespace, alert, provider, mark } = &outcome.step;
    if incident_store::opened(status).map(Time::as_second) != Some(mark.opened) {
        // The Incident was opened again since.
        return None;
    }
    let state = match (outcome.is_delivered, mark.saying) {
        (true, IncidentTransition::Resolved) => IncidentStep::Resolved,
        // The service knows the beginning, even if it rejects a reminder. So it is sent the end.
        (true, IncidentTransition::Opened) | (_, IncidentTransition::Reminded) => {
            IncidentStep::Opened
        }
        (false, IncidentTransition::Opened | IncidentTransition::Resolved) => IncidentStep::Failed,
    };
    let thread = match mark.saying {
        IncidentTransition::Opened => outcome.message.clone(),
        IncidentTransition::Reminded | IncidentTransition::Resolved => mark.thread.clone(),
    };
    let written = IncidentNotification {
        namespace: namespace.clone(),
        alert: alert.clone(),
        provider: provider.clone(),
        state,
        at: Some(When(now)),
        key: Some(mark.key()),
        thread,
    };
    let is_other = |it: &&IncidentNotification| {
        [&it.namespace, &it.alert, &it.provider] != [namespace, alert, provider]
    };
    let mut all: Vec<_> = status.notifications.iter().filter(is_other).cloned().collect();
    // Entries of other Alerts are not removed, because these Alerts have to be sent the end.
    (all.len() < MAX_ALERTS_PER_INCIDENT).then(|| {
        all.push(written);
        all
    })
}

impl IncidentNotifier {
    pub(super) fn new(context: Arc<RunContext>, incidents: Arc<IncidentNotifications>) -> Self {
        Self {
            context,
            incidents,
            waiting: BTreeSet::new(),
            ended: Vec::new(),
            declined: BTreeMap::new(),
            keys: RandomState::new(),
            tried: BTreeMap::new(),
            late: Vec::new(),
            unresolvable: BTreeSet::new(),
            without_place: BTreeSet::new(),
            turns: NamespaceRoundRobin::default(),
        }
    }

    /// Writes the outcomes of notifications into the statuses. The waiting notifications are read before the ended ones, since
    /// a notification goes from the first set to the second.
    pub(super) async fn record(&mut self, book: &mut IncidentWriter) {
        self.without_place.clear();
        self.waiting = self.incidents.waiting_steps();
        let mut ended = std::mem::take(&mut self.ended);
        ended.extend(self.incidents.take_outcomes());
        let mut left = MAX_OUTCOMES_PER_PASS;
        let of =
            |outcome: IncidentNotificationOutcome| (outcome.step.mark.namespace.clone(), outcome);
        for (namespace, outcome) in self.turns.order(ended.into_iter().map(of).collect()) {
            let IncidentTransitionReference { name, uid, .. } = &outcome.step.mark;
            let Some(incident) = book.get(&namespace, name, uid) else { continue };
            let status = incident.status.clone().unwrap_or_default();
            if is_late(&status, &outcome) {
                let IncidentNotificationOutcome { mut step, message, .. } = outcome;
                step.mark.thread = message.or(step.mark.thread);
                self.late.push(step);
                continue;
            }
            let now = jiff::Timestamp::now();
            let Some(notifications) = recorded(&status, &outcome, now) else { continue };
            if left == 0 || !book.allows(&incident) {
                self.ended.push(outcome);
                continue;
            }
            left -= 1;
            self.turns.served(&namespace);
            let patch = json!({"notifications": notifications});
            if book.patch(&incident, &patch).await == IncidentWriteOutcome::Rejected {
                self.ended.push(outcome);
            }
        }
        let is_current = |step: &IncidentNotificationKey| {
            let IncidentTransitionReference { namespace, name, uid, opened, .. } = &step.mark;
            let incident = book.get(namespace, name, uid);
            let at = incident.and_then(|it| it.status.as_ref().and_then(incident_store::opened));
            at.map(Time::as_second) == Some(*opened)
        };
        self.declined.retain(|_, declined| declined.at.elapsed() < DECLINED_STEP_TTL);
        self.tried.retain(|_, at| at.elapsed() < STEP_RETRY_DELAY);
        self.unresolvable.retain(is_current);
    }

    /// Whether something about an Incident waits to be sent or recorded.
    pub(super) fn is_waiting(&self, incident: &Incident) -> bool {
        let uid = incident.uid().unwrap_or_default();
        let ended = self.ended.iter().map(|outcome| &outcome.step);
        self.waiting.iter().chain(ended).any(|step| step.mark.uid == uid)
    }

    /// Whether a step needs no more work.
    fn is_done(&self, step: &IncidentNotificationKey, alert: &Alert) -> bool {
        self.is_under_way(step) || self.is_declined(step, alert)
    }

    fn is_under_way(&self, step: &IncidentNotificationKey) -> bool {
        self.waiting.contains(step)
            || self.tried.contains_key(step)
            || self.ended.iter().any(|outcome| outcome.step == *step)
    }

    fn is_declined(&self, step: &IncidentNotificationKey, alert: &Alert) -> bool {
        let version = self.keys.hash_one(alert.resource_version());
        self.declined.get(&self.key(step)).is_some_and(|declined| declined.version == version)
    }

    /// Decides which notification an Alert is sent about an open incident.
    pub(super) fn notice(
        &self,
        incident: &Incident,
        alert: &Alert,
    ) -> IncidentOpenNotificationState {
        let status = incident.status.clone().unwrap_or_default();
        let step = self.step(incident, alert, IncidentTransition::Opened);
        let is_known = entry(&status, &step.namespace, &step.alert, &step.provider).is_some();
        let is_silenced = silence_end(&status, jiff::Timestamp::now()).is_some();
        if is_known || is_silenced || self.is_under_way(&step) {
            IncidentOpenNotificationState::Sent
        } else if self.is_declined(&step, alert) || self.without_place.contains(&self.key(&step)) {
            IncidentOpenNotificationState::Denied
        } else {
            IncidentOpenNotificationState::Due
        }
    }

    /// Remembers the result of a step.
    fn tried(&mut self, step: IncidentNotificationKey, alert: &Alert, choice: IncidentAlertChoice) {
        let now = Instant::now();
        match choice {
            IncidentAlertChoice::Sent | IncidentAlertChoice::Unknown => {
                self.tried.insert(step, now);
            }
            IncidentAlertChoice::Declined => {
                let version = self.keys.hash_one(alert.resource_version());
                self.declined.insert(self.key(&step), DeclinedIncidentStep { version, at: now });
            }
        }
    }

    /// The step of an Alert for the Provider that it names.
    fn step(
        &self,
        incident: &Incident,
        alert: &Alert,
        saying: IncidentTransition,
    ) -> IncidentNotificationKey {
        let status = incident.status.clone().unwrap_or_default();
        let namespace = alert.namespace().unwrap_or_default();
        let name = alert.name_any();
        let provider = alert.spec.provider_ref.name.clone();
        // Another service does not know the thread.
        let sent = entry(&status, &namespace, &name, &provider)
            .filter(|_| saying != IncidentTransition::Opened);
        let thread = sent.and_then(|sent| sent.thread.clone());
        IncidentNotificationKey {
            namespace,
            alert: name,
            provider,
            mark: IncidentTransitionReference {
                namespace: incident.namespace().unwrap_or_default(),
                name: incident.name_any(),
                uid: incident.uid().unwrap_or_default(),
                opened: incident_store::opened(&status).map(Time::as_second).unwrap_or_default(),
                reason: incident.spec.reason.clone(),
                saying,
                thread,
            },
        }
    }

    /// The due notifications about an open incident. `audience` has the Alerts that name its objects, and the objects that
    /// each names.
    pub(super) fn due<'w>(
        &mut self,
        incident: &Incident,
        subscribers: &'w [IncidentSubscriber],
        audience: BTreeMap<usize, BTreeSet<usize>>,
        is_paused: bool,
    ) -> Vec<DueIncidentNotification<'w>> {
        let status = incident.status.clone().unwrap_or_default();
        let now = jiff::Timestamp::now();
        let mut candidates = Vec::new();
        for (at, offered) in audience {
            let Some(subscriber) = subscribers.get(at) else { continue };
            let IncidentSubscriber { alert, after, reminder, .. } = subscriber;
            let namespace = alert.namespace().unwrap_or_default();
            let name = alert.name_any();
            let sent = entry(&status, &namespace, &name, &alert.spec.provider_ref.name);
            let Some(saying) = due(&status, sent, *after, *reminder, now, is_paused) else {
                continue;
            };
            let step = self.step(incident, alert, saying);
            if !self.is_done(&step, alert) {
                let due = DueIncidentNotification { subscriber, step, offered };
                candidates.push(AlertCandidate { namespace, is_known: sent.is_some(), due });
            }
        }
        if candidates.is_empty() {
            return Vec::new();
        }
        let own = incident.namespace().unwrap_or_default();
        let IncidentAlertAssignment { placed, without } =
            places(&own, candidates, self.taken(&status, incident));
        let without: Vec<u64> = without.iter().map(|due| self.key(&due.step)).collect();
        self.without_place.extend(without);
        placed
    }

    /// How many entries a status has, or will have once the waiting notifications are recorded.
    fn taken(&self, status: &IncidentStatus, incident: &Incident) -> usize {
        let uid = incident.uid().unwrap_or_default();
        let opened = incident_store::opened(status);
        let opened = opened.map(Time::as_second);
        let ended = self.ended.iter().map(|outcome| &outcome.step);
        let of_it = self.waiting.iter().chain(self.tried.keys()).chain(ended);
        let of_it = of_it.filter(|step| step.mark.uid == uid && Some(step.mark.opened) == opened);
        let expected = of_it.map(|it| [&*it.namespace, &*it.alert, &*it.provider]);
        let written = status.notifications.iter();
        let written = written.map(|it| [&*it.namespace, &*it.alert, &*it.provider]);
        written.chain(expected).collect::<BTreeSet<[&str; 3]>>().len()
    }

    /// A step as a short key. The number of declined steps is the number of Alerts times the number of incidents.
    fn key(&self, step: &IncidentNotificationKey) -> u64 {
        self.keys.hash_one(step)
    }

    /// The text about the change with which its subject failed. The user on call needs the command that takes the change back.
    fn failed_change(&self, incident: &Incident) -> String {
        let subject = &incident.spec.subject;
        let group = subject.api_version.split_once('/').map_or("", |(group, _)| group);
        let namespace = incident.namespace().unwrap_or_default();
        let member = ObjectKey::new(group, &subject.kind, &namespace, &subject.name);
        let advice = advice_of_member(&self.context, &member);
        advice.map(|advice| format!("\nIt failed with {advice}")).unwrap_or_default()
    }

    /// Queues the due notifications about an incident. `about` are its objects, the subject first, and `controller` reports on
    /// them.
    pub(super) async fn opened(
        &mut self,
        incident: &Incident,
        about: &[ObjectReference],
        controller: &'static str,
        due: Vec<DueIncidentNotification<'_>>,
    ) {
        let Some(subject) = about.first() else { return };
        for DueIncidentNotification { subscriber, step, offered } in due {
            let alert = &subscriber.alert;
            let saying = step.mark.saying;
            let now = jiff::Timestamp::now();
            let mut choice = IncidentAlertChoice::Declined;
            let mut is_known = true;
            for object in offered.into_iter().filter_map(|at| about.get(at)) {
                let event = Arc::new(event(incident, (object, controller), saying, now));
                choice = self.incidents.choose(&event, alert).await;
                is_known &= choice != IncidentAlertChoice::Unknown;
                if choice == IncidentAlertChoice::Sent {
                    break;
                }
            }
            if choice == IncidentAlertChoice::Sent {
                let mut event = event(incident, (subject, controller), saying, now);
                if saying != IncidentTransition::Resolved {
                    event.message.push_str(&self.failed_change(incident));
                }
                choice = self.incidents.send(event, alert, step.mark.clone()).await;
            } else if !is_known {
                choice = IncidentAlertChoice::Unknown;
            }
            self.tried(step, alert, choice);
        }
    }

    /// The steps whose end was not sent yet, because their Incident was opened again before they were sent.
    pub(super) fn take_late(&mut self) -> Vec<IncidentNotificationKey> {
        std::mem::take(&mut self.late)
    }

    /// Queues the end of an earlier opening of an incident.
    pub(super) async fn ended_early(
        &self,
        incident: &Incident,
        about: IncidentEventSubject<'_>,
        step: IncidentNotificationKey,
    ) {
        let alert = self.incidents.alert_as_sent(&step.namespace, &step.alert, &step.provider);
        let mut incident = incident.clone();
        let status = incident.status.get_or_insert_default();
        status.opened_at = Time::from_second(step.mark.opened).ok().map(When);
        status.resolved_at = None;
        let saying = IncidentTransition::Resolved;
        let event = event(&incident, about, saying, jiff::Timestamp::now());
        self.incidents
            .send(event, &alert, IncidentTransitionReference { saying, ..step.mark })
            .await;
    }

    /// Sends the end of an incident to the Providers that got its beginning, by the records in the status. The Alert may name
    /// another Provider now.
    pub(super) async fn resolved(&mut self, incident: &Incident, about: IncidentEventSubject<'_>) {
        let status = incident.status.clone().unwrap_or_default();
        for sent in status.notifications.iter().filter(|it| it.state == IncidentStep::Opened) {
            let alert = self.incidents.alert_as_sent(&sent.namespace, &sent.alert, &sent.provider);
            let step = self.step(incident, &alert, IncidentTransition::Resolved);
            if self.is_done(&step, &alert) {
                continue;
            }
            if self.context.seen::<Provider>(&sent.namespace, &sent.provider).is_none() {
                if self.unresolvable.insert(step.clone()) {
                    self.incidents.report_unresolvable(&step);
                }
                continue;
            }
            if !self.incidents.is_sending(&alert) {
                continue;
            }
            let event =
                event(incident, about, IncidentTransition::Resolved, jiff::Timestamp::now());
            let choice = self.incidents.send(event, &alert, step.mark.clone()).await;
            self.tried(step, &alert, choice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::testing::{at, status};

    fn outcome(saying: IncidentTransition, is_delivered: bool) -> IncidentNotificationOutcome {
        let opened = at("2026-11-24T12:00:00Z").as_second();
        let mark = IncidentTransitionReference {
            namespace: "apps".to_owned(),
            name: "i".to_owned(),
            uid: "u".to_owned(),
            opened,
            reason: "Fetch".to_owned(),
            saying,
            thread: None,
        };
        let [namespace, alert, provider] = ["apps", "alert", "chat"].map(str::to_owned);
        let step = IncidentNotificationKey { namespace, alert, provider, mark };
        IncidentNotificationOutcome { step, is_delivered, message: Some("17.25".to_owned()) }
    }

    #[test]
    fn an_opening_is_due_after_its_delay_once_and_then_reminders() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let mut status = status();
        let due = |status: &IncidentStatus, now: &str, is_paused| {
            let sent = entry(status, "apps", "alert", "chat");
            due(status, sent, minutes(5), Some(minutes(60)), at(now), is_paused)
        };
        assert_eq!(due(&status, "2026-11-24T12:04:59Z", false), None);
        assert_eq!(due(&status, "2026-11-24T12:05:00Z", false), Some(IncidentTransition::Opened));
        assert_eq!(due(&status, "2026-11-24T12:05:00Z", true), None, "its subject is suspended");
        let mut silenced = status.clone();
        silenced.silence = serde_json::from_value(json!({"user": "alice", "reason": "known",
            "at": "2026-11-24T12:01:00Z", "until": "2026-11-24T14:00:00Z"}))
        .unwrap();
        assert_eq!(due(&silenced, "2026-11-24T13:59:59Z", false), None);
        assert_eq!(due(&silenced, "2026-11-24T14:00:00Z", false), Some(IncidentTransition::Opened));
        let now = at("2026-11-24T12:05:01Z");
        status.notifications =
            recorded(&status, &outcome(IncidentTransition::Opened, true), now).unwrap();
        assert_eq!(due(&status, "2026-11-24T13:05:00Z", false), None);
        assert_eq!(due(&status, "2026-11-24T13:05:01Z", false), Some(IncidentTransition::Reminded));
        silenced.notifications = status.notifications.clone();
        assert_eq!(due(&silenced, "2026-11-24T13:05:01Z", false), None);
        status.notifications =
            recorded(&status, &outcome(IncidentTransition::Opened, false), now).unwrap();
        assert_eq!(due(&status, "2026-11-24T12:15:00Z", false), None, "the service rejected it");
        assert_eq!(due(&status, "2026-11-24T12:15:01Z", false), Some(IncidentTransition::Opened));
        assert_eq!(status.notifications.len(), 1);
    }

    #[test]
    fn the_end_is_owed_also_to_a_service_that_rejected_a_reminder() {
        let status = status();
        let now = at("2026-11-24T13:00:00Z");
        let of = |saying, is_delivered| {
            let all = recorded(&status, &outcome(saying, is_delivered), now).unwrap();
            (all[0].state, all[0].key.clone().unwrap())
        };
        let key = format!("u-{}", at("2026-11-24T12:00:00Z").as_second());
        assert_eq!(of(IncidentTransition::Reminded, false), (IncidentStep::Opened, key.clone()));
        assert_eq!(of(IncidentTransition::Opened, false), (IncidentStep::Failed, key.clone()));
        assert_eq!(of(IncidentTransition::Resolved, true), (IncidentStep::Resolved, key));
    }

    #[test]
    fn the_thread_of_an_opening_is_kept_until_the_end() {
        let mut status = status();
        let now = at("2026-11-24T13:00:00Z");
        status.notifications =
            recorded(&status, &outcome(IncidentTransition::Opened, true), now).unwrap();
        assert_eq!(status.notifications[0].thread.as_deref(), Some("17.25"));
        for saying in [IncidentTransition::Reminded, IncidentTransition::Resolved] {
            let mut reply = outcome(saying, true);
            reply.step.mark.thread = status.notifications[0].thread.clone();
            reply.message = Some("18.50".to_owned());
            status.notifications = recorded(&status, &reply, now).unwrap();
            assert_eq!(status.notifications[0].thread.as_deref(), Some("17.25"));
        }
    }

    #[test]
    fn a_full_status_keeps_its_entries_and_takes_no_further_alert() {
        let mut status = status();
        let now = at("2026-11-24T13:00:00Z");
        let entry = |at: usize| IncidentNotification {
            namespace: "apps".to_owned(),
            alert: format!("a{at}"),
            ..IncidentNotification::default()
        };
        status.notifications = (0..MAX_ALERTS_PER_INCIDENT).map(entry).collect();
        assert_eq!(recorded(&status, &outcome(IncidentTransition::Opened, true), now), None);
        status.notifications[7].alert = "alert".to_owned();
        status.notifications[7].provider = "chat".to_owned();
        let all = recorded(&status, &outcome(IncidentTransition::Opened, true), now).unwrap();
        assert_eq!(all.len(), MAX_ALERTS_PER_INCIDENT);
    }

    #[test]
    fn an_outcome_of_an_earlier_opening_is_not_recorded() {
        let mut status = status();
        let now = at("2026-11-24T13:00:00Z");
        assert!(recorded(&status, &outcome(IncidentTransition::Opened, true), now).is_some());
        assert!(!is_late(&status, &outcome(IncidentTransition::Opened, true)));
        status.opened_at = Some(When(now));
        assert_eq!(recorded(&status, &outcome(IncidentTransition::Opened, true), now), None);
        assert!(is_late(&status, &outcome(IncidentTransition::Opened, true)), "its page is closed");
        assert!(!is_late(&status, &outcome(IncidentTransition::Opened, false)));
        assert!(!is_late(&status, &outcome(IncidentTransition::Resolved, true)));
    }

    #[test]
    fn an_alert_that_names_another_provider_keeps_the_entry_of_the_notified_one() {
        let mut status = status();
        let now = at("2026-11-24T13:00:00Z");
        status.notifications =
            recorded(&status, &outcome(IncidentTransition::Opened, true), now).unwrap();
        let mut other = outcome(IncidentTransition::Opened, true);
        other.step.provider = "pager".to_owned();
        status.notifications = recorded(&status, &other, now).unwrap();
        let step_of = |status: &IncidentStatus, provider| {
            entry(status, "apps", "alert", provider).map(|it| it.state)
        };
        let opened = Some(IncidentStep::Opened);
        let over = Some(IncidentStep::Resolved);
        assert_eq!((step_of(&status, "chat"), step_of(&status, "pager")), (opened, opened));
        let ended = recorded(&status, &outcome(IncidentTransition::Resolved, true), now).unwrap();
        status.notifications = ended;
        assert_eq!((step_of(&status, "chat"), step_of(&status, "pager")), (over, opened));
    }
}
