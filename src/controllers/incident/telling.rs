//! What is sent about incidents, to whom and when; and what was sent, as the status of the Incident has it.
//!
//! A step is due until its outcome stands in the status, and is not queued while it waits. So none is lost when the process
//! is killed, and one whose outcome was lost with the process is sent once more. One that ends without an outcome, such as where
//! the queue is full, is due again after a pause.
//!
//! Elsewhere: the queue and which Alerts there are (`delivery`), what services are sent (`engines/notify`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Time as When;
use crds::incidents::{Incident, IncidentNotification, IncidentStatus, IncidentStep};
use crds::notification::Alert;
use kube::core::ResourceExt as _;
use notify::{EVENT_GROUP, Event, ObjectReference};
use reconcile::Time;
use serde_json::json;

use super::book::{self, Book};
use crate::controllers::context::Context;
use crate::controllers::delivery::Delivery;
use crate::controllers::delivery::incidents::{Choice, Mark, Outcome, Saying, Step, Wanting};

/// How many objects of an incident are offered to the patterns and labels of an Alert.
const OFFERED: usize = 8;

/// How many Alerts an incident is sent for at most.
const MOST: usize = 64;

/// How many affected objects a message names.
const NAMED: usize = 5;

/// How many outcomes a pass writes.
const RECORDED: usize = 64;

/// How long a step is not due again after it was queued, or could not be.
const TRIED: Duration = Duration::from_secs(60);

/// How long it holds that an Alert declined a step, unless the Alert changes.
const DECLINED: Duration = Duration::from_secs(300);

/// After how long the beginning is sent again that the service rejected.
const REJECTED: Duration = Duration::from_secs(600);

/// See the module.
pub(super) struct Teller {
    context: Arc<Context>,
    delivery: Arc<Delivery>,
    /// Steps that wait to be sent.
    waiting: BTreeSet<Step>,
    /// Steps that ended and do not stand in a status yet.
    ended: Vec<Outcome>,
    /// Steps that their Alert does not send, because of its patterns or labels: the version of the Alert, and when.
    declined: BTreeMap<Step, (String, Instant)>,
    /// Steps that were queued or could not be, and when.
    tried: BTreeMap<Step, Instant>,
    /// Steps that were sent after their Incident was opened again: what the service was sent has ended.
    late: Vec<Step>,
}

/// What an incident is about, for its events.
type About<'a> = (&'a ObjectReference, &'static str);

/// The entry of an Alert.
fn entry<'s>(
    status: &'s IncidentStatus,
    namespace: &str,
    alert: &str,
) -> Option<&'s IncidentNotification> {
    status.notifications.iter().find(|it| it.namespace == namespace && it.alert == alert)
}

/// What is due for an Alert about an incident that is open.
fn due(
    status: &IncidentStatus,
    sent: Option<&IncidentNotification>,
    (after, reminder): (Duration, Option<Duration>),
    now: Time,
    is_paused: bool,
) -> Option<Saying> {
    let has_passed = |since: Option<Time>, limit: Duration| {
        let passed = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        passed.is_some_and(|passed| passed >= limit)
    };
    if is_paused {
        return None;
    }
    let Some(sent) = sent else {
        return has_passed(book::opened(status), after).then_some(Saying::Opened);
    };
    let last = sent.at.as_ref().map(|at| at.0);
    match sent.state {
        IncidentStep::Opened => has_passed(last, reminder?).then_some(Saying::Reminded),
        IncidentStep::Failed => has_passed(last, REJECTED).then_some(Saying::Opened),
        IncidentStep::Resolved => None,
    }
}

/// Whether a service was sent the beginning of an opening that has ended since. Each has a key of its own.
fn is_late(status: &IncidentStatus, outcome: &Outcome) -> bool {
    let mark = &outcome.step.mark;
    let is_current = book::opened(status).map(Time::as_second) == Some(mark.opened);
    outcome.is_delivered && mark.saying != Saying::Resolved && !is_current
}

/// The notifications of a status with an outcome; none if it does not belong there, or there is no room.
fn recorded(
    status: &IncidentStatus,
    outcome: &Outcome,
    now: Time,
) -> Option<Vec<IncidentNotification>> {
    let Step { namespace, alert, provider, mark } = &outcome.step;
    if book::opened(status).map(Time::as_second) != Some(mark.opened) {
        // It was opened again since.
        return None;
    }
    let state = match (outcome.is_delivered, mark.saying) {
        (true, Saying::Resolved) => IncidentStep::Resolved,
        // The service knows of the beginning, also if it rejects a reminder, so it is sent the end.
        (true, Saying::Opened) | (_, Saying::Reminded) => IncidentStep::Opened,
        (false, Saying::Opened | Saying::Resolved) => IncidentStep::Failed,
    };
    let thread = match mark.saying {
        Saying::Opened => outcome.message.clone(),
        Saying::Reminded | Saying::Resolved => mark.thread.clone(),
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
    let is_other = |it: &&IncidentNotification| it.namespace != *namespace || it.alert != *alert;
    let mut all: Vec<_> = status.notifications.iter().filter(is_other).cloned().collect();
    // What others were sent is not forgotten: they are owed the end.
    (all.len() < MOST).then(|| {
        all.push(written);
        all
    })
}

fn took(status: &IncidentStatus, until: Time) -> String {
    let since = book::opened(status).map(|since| until.duration_since(since).as_secs());
    let seconds = since.and_then(|it| u64::try_from(it).ok()).unwrap_or_default();
    reconcile::format_duration(Duration::from_secs(seconds))
}

/// What people read.
fn message(status: &IncidentStatus, saying: Saying, now: Time) -> String {
    let said = status.message.clone().unwrap_or_default();
    let affected = status.affected.clone().unwrap_or_default();
    let names: Vec<&str> = affected.objects.iter().take(NAMED).map(String::as_str).collect();
    let count = usize::try_from(affected.count).unwrap_or_default();
    let others = match (count, count.saturating_sub(names.len())) {
        (0, _) => String::new(),
        (1, _) => format!("\nIt affects {}.", names.join(", ")),
        (count, 0) => format!("\nIt affects {count} objects: {}.", names.join(", ")),
        (count, more) => {
            format!("\nIt affects {count} objects: {} and {more} more.", names.join(", "))
        }
    };
    match saying {
        Saying::Opened => format!("{said}{others}"),
        Saying::Reminded => format!("Not resolved for {}: {said}{others}", took(status, now)),
        Saying::Resolved => {
            let until = status.resolved_at.as_ref().map_or(now, |at| at.0);
            format!("Resolved after {}. The failure was: {said}{others}", took(status, until))
        }
    }
}

/// The event about an incident.
fn event(incident: &Incident, (object, controller): About<'_>, saying: Saying, now: Time) -> Event {
    let status = incident.status.clone().unwrap_or_default();
    let is_over = saying == Saying::Resolved;
    let of = |key: &str, value: String| (format!("{EVENT_GROUP}/{key}"), value);
    let name = format!("{}/{}", incident.namespace().unwrap_or_default(), incident.name_any());
    let affected = status.affected.as_ref().map_or(0, |it| it.count);
    let metadata = BTreeMap::from([
        of("incident", name),
        of("incidentState", if is_over { "Resolved" } else { "Open" }.to_owned()),
        of("affected", affected.to_string()),
    ]);
    Event {
        object: object.clone(),
        severity: if is_over { "info" } else { "error" }.to_owned(),
        timestamp: Some(now.as_second()),
        message: message(&status, saying, now),
        reason: match is_over {
            true => "IncidentResolved".to_owned(),
            false => incident.spec.cause.reason.clone(),
        },
        metadata,
        reporting_controller: controller.to_owned(),
        ..Event::default()
    }
}

impl Teller {
    pub(super) fn new(context: Arc<Context>, delivery: Arc<Delivery>) -> Self {
        Self {
            context,
            delivery,
            waiting: BTreeSet::new(),
            ended: Vec::new(),
            declined: BTreeMap::new(),
            tried: BTreeMap::new(),
            late: Vec::new(),
        }
    }

    /// Writes what was sent into the statuses. What waits is read before what ended, since a step goes from one to the other.
    pub(super) async fn record(&mut self, book: &Book) {
        self.waiting = self.delivery.waiting_steps();
        let mut ended = std::mem::take(&mut self.ended);
        ended.extend(self.delivery.take_outcomes());
        let mut left = RECORDED;
        for outcome in ended {
            let Mark { namespace, name, uid, .. } = &outcome.step.mark;
            let Some(incident) = book.get(namespace, name, uid) else { continue };
            let status = incident.status.clone().unwrap_or_default();
            if is_late(&status, &outcome) {
                let Outcome { mut step, message, .. } = outcome;
                step.mark.thread = message.or(step.mark.thread);
                self.late.push(step);
                continue;
            }
            let now = jiff::Timestamp::now();
            let Some(notifications) = recorded(&status, &outcome, now) else { continue };
            if left == 0 {
                self.ended.push(outcome);
                continue;
            }
            left -= 1;
            let patch = json!({"notifications": notifications});
            if let Err(error) = book.patch(&incident, &patch).await {
                tracing::debug!(namespace, name, error = %error, "failed to record what was sent about an Incident, retrying");
                self.ended.push(outcome);
            }
        }
        let is_current = |step: &Step| {
            let Mark { namespace, name, uid, opened, .. } = &step.mark;
            let incident = book.get(namespace, name, uid);
            let at = incident.and_then(|it| it.status.as_ref().and_then(book::opened));
            at.map(Time::as_second) == Some(*opened)
        };
        self.declined.retain(|step, (_, at)| at.elapsed() < DECLINED && is_current(step));
        self.tried.retain(|_, at| at.elapsed() < TRIED);
    }

    /// Whether something about an Incident waits to be sent or recorded.
    pub(super) fn is_waiting(&self, incident: &Incident) -> bool {
        let uid = incident.uid().unwrap_or_default();
        let ended = self.ended.iter().map(|outcome| &outcome.step);
        self.waiting.iter().chain(ended).any(|step| step.mark.uid == uid)
    }

    /// Whether a step needs nothing to be done.
    fn is_done(&self, step: &Step, alert: &Alert) -> bool {
        let version = alert.resource_version().unwrap_or_default();
        let is_declined =
            || self.declined.get(step).is_some_and(|(declined, _)| *declined == version);
        self.waiting.contains(step)
            || self.tried.contains_key(step)
            || self.ended.iter().any(|outcome| outcome.step == *step)
            || is_declined()
    }

    /// Remembers what became of a step.
    fn tried(&mut self, step: Step, alert: &Alert, choice: Choice) {
        let now = Instant::now();
        match choice {
            Choice::Sent | Choice::Unknown => {
                self.tried.insert(step, now);
            }
            Choice::Declined => {
                let version = alert.resource_version().unwrap_or_default();
                self.declined.insert(step, (version, now));
            }
        }
    }

    fn step(&self, incident: &Incident, alert: &Alert, saying: Saying) -> Step {
        let status = incident.status.clone().unwrap_or_default();
        let (namespace, name) = (alert.namespace().unwrap_or_default(), alert.name_any());
        let provider = alert.spec.provider_ref.name.clone();
        // Another service knows nothing of the thread.
        let sent = entry(&status, &namespace, &name)
            .filter(|sent| saying != Saying::Opened && sent.provider == provider);
        let thread = sent.and_then(|sent| sent.thread.clone());
        Step {
            namespace,
            alert: name,
            provider,
            mark: Mark {
                namespace: incident.namespace().unwrap_or_default(),
                name: incident.name_any(),
                uid: incident.uid().unwrap_or_default(),
                opened: book::opened(&status).map(Time::as_second).unwrap_or_default(),
                reason: incident.spec.reason.clone(),
                saying,
                thread,
            },
        }
    }

    /// What is due about an incident that is open.
    pub(super) fn due<'w>(
        &self,
        incident: &Incident,
        wanting: &'w [Wanting],
        is_paused: bool,
    ) -> Vec<(&'w Wanting, Step)> {
        let status = incident.status.clone().unwrap_or_default();
        let now = jiff::Timestamp::now();
        let mut all = Vec::new();
        for each in wanting {
            let Wanting { alert, after, reminder, .. } = each;
            let (namespace, name) = (alert.namespace().unwrap_or_default(), alert.name_any());
            let sent = entry(&status, &namespace, &name);
            let Some(saying) = due(&status, sent, (*after, *reminder), now, is_paused) else {
                continue;
            };
            let step = self.step(incident, alert, saying);
            if !self.is_done(&step, alert) {
                all.push((sent.is_some(), each, step));
            }
        }
        let mut left = match all.is_empty() {
            true => 0,
            false => {
                MOST.saturating_sub(status.notifications.len() + self.expected(&status, incident))
            }
        };
        all.retain(|(is_known, ..)| {
            let has_room = *is_known || left > 0;
            left = left.saturating_sub(usize::from(!is_known));
            has_room
        });
        all.into_iter().map(|(_, each, step)| (each, step)).collect()
    }

    /// How many entries what waits will add to a status.
    fn expected(&self, status: &IncidentStatus, incident: &Incident) -> usize {
        let (uid, opened) = (incident.uid().unwrap_or_default(), book::opened(status));
        let opened = opened.map(Time::as_second);
        let ended = self.ended.iter().map(|outcome| &outcome.step);
        let of_it = self.waiting.iter().chain(self.tried.keys()).chain(ended).filter(|step| {
            step.mark.uid == uid
                && Some(step.mark.opened) == opened
                && entry(status, &step.namespace, &step.alert).is_none()
        });
        let alerts: BTreeSet<(&str, &str)> =
            of_it.map(|step| (step.namespace.as_str(), step.alert.as_str())).collect();
        alerts.len()
    }

    /// Has sent what is due about an incident. `about` are its objects, the subject first.
    pub(super) async fn opened(
        &mut self,
        incident: &Incident,
        (about, controller): (&[ObjectReference], &'static str),
        due: Vec<(&Wanting, Step)>,
    ) {
        let Some(subject) = about.first() else { return };
        for (wanting, step) in due {
            let alert = &wanting.alert;
            let (saying, now) = (step.mark.saying, jiff::Timestamp::now());
            let named = about.iter().filter(|object| self.delivery.names(wanting, object));
            let offered: Vec<&ObjectReference> = named.take(OFFERED).collect();
            // The objects that an Alert names may be affected later.
            if offered.is_empty() {
                continue;
            }
            let (mut choice, mut is_known) = (Choice::Declined, true);
            for object in offered {
                let event = Arc::new(event(incident, (object, controller), saying, now));
                choice = self.delivery.choose(&event, alert).await;
                is_known &= choice != Choice::Unknown;
                if choice == Choice::Sent {
                    break;
                }
            }
            if choice == Choice::Sent {
                let event = event(incident, (subject, controller), saying, now);
                choice = self.delivery.send(event, alert, step.mark.clone()).await;
            } else if !is_known {
                choice = Choice::Unknown;
            }
            self.tried(step, alert, choice);
        }
    }

    /// The steps whose end was not sent yet, since their Incident was opened again before they were sent.
    pub(super) fn take_late(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.late)
    }

    /// Has sent the end of an earlier opening of an incident.
    pub(super) async fn ended_early(&self, incident: &Incident, about: About<'_>, step: Step) {
        let Some(alert) = self.context.seen::<Alert>(&step.namespace, &step.alert) else { return };
        if step.provider != alert.spec.provider_ref.name {
            return;
        }
        let mut incident = incident.clone();
        let status = incident.status.get_or_insert_default();
        status.opened_at = Time::from_second(step.mark.opened).ok().map(When);
        status.resolved_at = None;
        let saying = Saying::Resolved;
        let event = event(&incident, about, saying, jiff::Timestamp::now());
        self.delivery.send(event, &alert, Mark { saying, ..step.mark }).await;
    }

    /// Has sent the end of an incident to who was sent its beginning.
    pub(super) async fn resolved(&mut self, incident: &Incident, about: About<'_>) {
        let status = incident.status.clone().unwrap_or_default();
        for sent in status.notifications.iter().filter(|it| it.state == IncidentStep::Opened) {
            let Some(alert) = self.context.seen::<Alert>(&sent.namespace, &sent.alert) else {
                continue;
            };
            let step = self.step(incident, &alert, Saying::Resolved);
            if self.is_done(&step, &alert) || !self.delivery.is_sending(&alert) {
                continue;
            }
            let event = event(incident, about, Saying::Resolved, jiff::Timestamp::now());
            let choice = self.delivery.send(event, &alert, step.mark.clone()).await;
            self.tried(step, &alert, choice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn status() -> IncidentStatus {
        let objects: Vec<String> = (0..20).map(|at| format!("Kustomization/apps/k{at}")).collect();
        serde_json::from_value(json!({"state": "Open", "openedAt": "2026-11-24T12:00:00Z",
            "message": "authentication failed", "affected": {"count": 200, "objects": objects}}))
        .unwrap()
    }

    fn outcome(saying: Saying, is_delivered: bool) -> Outcome {
        let opened = at("2026-11-24T12:00:00Z").as_second();
        let mark = Mark {
            namespace: "apps".to_owned(),
            name: "i".to_owned(),
            uid: "u".to_owned(),
            opened,
            reason: "Fetch".to_owned(),
            saying,
            thread: None,
        };
        let [namespace, alert, provider] = ["apps", "alert", "chat"].map(str::to_owned);
        let step = Step { namespace, alert, provider, mark };
        Outcome { step, is_delivered, message: Some("17.25".to_owned()) }
    }

    #[test]
    fn an_opening_is_due_after_its_delay_once_and_then_reminders() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let mut status = status();
        let due = |status: &IncidentStatus, now: &str, is_paused| {
            let sent = entry(status, "apps", "alert");
            due(status, sent, (minutes(5), Some(minutes(60))), at(now), is_paused)
        };
        assert_eq!(due(&status, "2026-11-24T12:04:59Z", false), None);
        assert_eq!(due(&status, "2026-11-24T12:05:00Z", false), Some(Saying::Opened));
        assert_eq!(due(&status, "2026-11-24T12:05:00Z", true), None, "its subject is suspended");
        let now = at("2026-11-24T12:05:01Z");
        status.notifications = recorded(&status, &outcome(Saying::Opened, true), now).unwrap();
        assert_eq!(due(&status, "2026-11-24T13:05:00Z", false), None);
        assert_eq!(due(&status, "2026-11-24T13:05:01Z", false), Some(Saying::Reminded));
        status.notifications = recorded(&status, &outcome(Saying::Opened, false), now).unwrap();
        assert_eq!(due(&status, "2026-11-24T12:15:00Z", false), None, "the service rejected it");
        assert_eq!(due(&status, "2026-11-24T12:15:01Z", false), Some(Saying::Opened));
        assert_eq!(status.notifications.len(), 1);
    }

    #[test]
    fn the_end_is_owed_also_to_a_service_that_rejected_a_reminder() {
        let (status, now) = (status(), at("2026-11-24T13:00:00Z"));
        let of = |saying, is_delivered| {
            let all = recorded(&status, &outcome(saying, is_delivered), now).unwrap();
            (all[0].state, all[0].key.clone().unwrap())
        };
        let key = format!("u-{}", at("2026-11-24T12:00:00Z").as_second());
        assert_eq!(of(Saying::Reminded, false), (IncidentStep::Opened, key.clone()));
        assert_eq!(of(Saying::Opened, false), (IncidentStep::Failed, key.clone()));
        assert_eq!(of(Saying::Resolved, true), (IncidentStep::Resolved, key));
    }

    #[test]
    fn the_thread_of_an_opening_is_kept_until_the_end() {
        let (mut status, now) = (status(), at("2026-11-24T13:00:00Z"));
        status.notifications = recorded(&status, &outcome(Saying::Opened, true), now).unwrap();
        assert_eq!(status.notifications[0].thread.as_deref(), Some("17.25"));
        for saying in [Saying::Reminded, Saying::Resolved] {
            let mut reply = outcome(saying, true);
            reply.step.mark.thread = status.notifications[0].thread.clone();
            reply.message = Some("18.50".to_owned());
            status.notifications = recorded(&status, &reply, now).unwrap();
            assert_eq!(status.notifications[0].thread.as_deref(), Some("17.25"));
        }
    }

    #[test]
    fn a_full_status_keeps_its_entries_and_takes_no_further_alert() {
        let (mut status, now) = (status(), at("2026-11-24T13:00:00Z"));
        let entry = |at: usize| IncidentNotification {
            namespace: "apps".to_owned(),
            alert: format!("a{at}"),
            ..IncidentNotification::default()
        };
        status.notifications = (0..MOST).map(entry).collect();
        assert_eq!(recorded(&status, &outcome(Saying::Opened, true), now), None);
        status.notifications[7].alert = "alert".to_owned();
        let all = recorded(&status, &outcome(Saying::Opened, true), now).unwrap();
        assert_eq!(all.len(), MOST);
    }

    #[test]
    fn an_outcome_of_an_earlier_opening_is_not_recorded() {
        let mut status = status();
        let now = at("2026-11-24T13:00:00Z");
        assert!(recorded(&status, &outcome(Saying::Opened, true), now).is_some());
        assert!(!is_late(&status, &outcome(Saying::Opened, true)));
        status.opened_at = Some(When(now));
        assert_eq!(recorded(&status, &outcome(Saying::Opened, true), now), None);
        assert!(is_late(&status, &outcome(Saying::Opened, true)), "its page is closed");
        assert!(!is_late(&status, &outcome(Saying::Opened, false)));
        assert!(!is_late(&status, &outcome(Saying::Resolved, true)));
    }

    #[test]
    fn messages_name_the_first_objects_and_count_the_others() {
        let said = |saying| message(&status(), saying, at("2026-11-24T14:30:00Z"));
        let affects = "It affects 200 objects: Kustomization/apps/k0, Kustomization/apps/k1, \
                       Kustomization/apps/k2, Kustomization/apps/k3, Kustomization/apps/k4 and 195 more.";
        assert_eq!(said(Saying::Opened), format!("authentication failed\n{affects}"));
        assert!(said(Saying::Reminded).starts_with("Not resolved for 2h30m0s: authentication"));
        let resolved = said(Saying::Resolved);
        let begin = "Resolved after 2h30m0s. The failure was: authentication failed";
        assert!(resolved.starts_with(begin), "{resolved}");
        let one = json!({"message": "no", "affected": {"count": 1, "objects": ["A/b/c"]}});
        let one: IncidentStatus = serde_json::from_value(one).unwrap();
        assert_eq!(message(&one, Saying::Opened, Time::UNIX_EPOCH), "no\nIt affects A/b/c.");
    }

    #[test]
    fn the_event_of_an_end_is_no_error() {
        let mut incident = Incident::new("i", crds::incidents::IncidentSpec::default());
        incident.spec.cause.reason = "BuildFailed".to_owned();
        incident.metadata.namespace = Some("apps".to_owned());
        incident.status = Some(status());
        let object = ObjectReference::default();
        let of = |saying| event(&incident, (&object, "c"), saying, Time::UNIX_EPOCH);
        let (opened, resolved) = (of(Saying::Opened), of(Saying::Resolved));
        assert_eq!((&*opened.severity, &*opened.reason), ("error", "BuildFailed"));
        assert_eq!((&*resolved.severity, &*resolved.reason), ("info", "IncidentResolved"));
        assert_eq!(opened.metadata["event.toolkit.fluxcd.io/incident"], "apps/i");
        assert_eq!(resolved.metadata["event.toolkit.fluxcd.io/incidentState"], "Resolved");
    }
}
