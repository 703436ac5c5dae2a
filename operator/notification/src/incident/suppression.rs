//! What becomes of an event that an incident may say instead: it is sent after all where there is no incident.
//!
//! An incident does not open where the API server rejects it or too many are open; an Alert is not sent it where its patterns
//! decline it or its status has no place. What ended before it was an incident is not sent.
//!
//! Elsewhere: the events that wait (`delivery::suppression`).

use std::time::Duration;

use cause::incident::{ObjectVerdict, Own};

use super::{MIN_FAILURE_AGE, SETTLED_WAITING};
use crate::delivery::suppression::Beginning;

/// After how long conditions say what an event is about: the status is written around the same time, and a watch reports it.
const CONDITION_DELAY: Duration = Duration::from_secs(10);

/// How long the opening of an incident may take after it is due: the API server may be slow, or writes have to wait.
const OPENING_DELAY: Duration = Duration::from_secs(30);

/// How long an event waits where it is not clear whether its object fails.
const MAX_WAIT: Duration = Duration::from_secs(900);

/// The decision about an event that an incident may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventDecision {
    /// It waits.
    Wait,
    /// An incident says it, or the failure has ended.
    Forget,
    /// It is sent.
    Send,
}

/// What an Alert is sent about the incident of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IncidentNotice {
    /// That it is open.
    Sent,
    /// That it is open, once the delay of the Alert is over.
    Due,
    /// Nothing.
    Denied,
    /// No incident is open.
    NoIncident,
}

/// What becomes of an event. `judged_after` is how long it waited when its object was judged last; `verdict` is none if
/// nothing is known of its kind.
pub(super) fn decision(
    beginning: Beginning,
    judged_after: Option<Duration>,
    verdict: Option<&ObjectVerdict>,
    notified: IncidentNotice,
) -> EventDecision {
    let age = beginning.since.elapsed();
    match notified {
        IncidentNotice::Sent => return EventDecision::Forget,
        IncidentNotice::Denied => return EventDecision::Send,
        IncidentNotice::Due => return EventDecision::Wait,
        IncidentNotice::NoIncident => {}
    }
    if age >= MAX_WAIT {
        return EventDecision::Send;
    }
    if judged_after.is_none_or(|after| after < CONDITION_DELAY) {
        return EventDecision::Wait;
    }
    let Some(verdict) = verdict else { return EventDecision::Send };
    match (verdict.own, &verdict.failure) {
        (_, Some(failure)) => {
            let enough = if failure.is_waiting { SETTLED_WAITING } else { MIN_FAILURE_AGE };
            if age >= enough + OPENING_DELAY { EventDecision::Send } else { EventDecision::Wait }
        }
        // Its `Ready` did not change, so it does not cover what failed.
        (Own::Well, None)
            if verdict
                .since
                .is_some_and(|since| since.as_second() + 1 < beginning.at.as_second()) =>
        {
            EventDecision::Send
        }
        (Own::Unclear, None) => EventDecision::Wait,
        // It is suspended, or waits for what is.
        (Own::Absent | Own::Well | Own::Paused | Own::Failing, None) => EventDecision::Forget,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cause::Problem;
    use cause::incident::RootFailure;
    use objects::ObjectId;

    use super::*;

    fn verdict(own: Own, since: &str, failure: Option<bool>) -> ObjectVerdict {
        let id = ObjectId::new("apps", "app", "g.io", "Kustomization");
        let failure = failure.map(|is_waiting| RootFailure {
            subject: id.clone(),
            problem: Problem::Build,
            cause: id,
            reason: "BuildFailed".to_owned(),
            text: String::new(),
            since: None,
            is_waiting,
            cycle: Vec::new(),
        });
        ObjectVerdict { own, since: since.parse().ok(), failure }
    }

    fn waited(seconds: u64) -> Beginning {
        let since = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        Beginning { at: "2026-11-24T12:00:00Z".parse().unwrap(), since }
    }

    fn of(seconds: u64, verdict: &ObjectVerdict, notified: IncidentNotice) -> EventDecision {
        decision(waited(seconds), Some(Duration::from_secs(seconds)), Some(verdict), notified)
    }

    const FALSE: &str = "2026-11-24T12:00:00Z";

    #[test]
    fn an_event_is_sent_after_all_where_no_incident_is_opened() {
        let fails = verdict(Own::Failing, FALSE, Some(false));
        assert_eq!(of(0, &fails, IncidentNotice::NoIncident), EventDecision::Wait);
        assert_eq!(of(32, &fails, IncidentNotice::NoIncident), EventDecision::Wait);
        assert_eq!(of(33, &fails, IncidentNotice::NoIncident), EventDecision::Send);
        let waits = verdict(Own::Failing, FALSE, Some(true));
        assert_eq!(of(299, &waits, IncidentNotice::NoIncident), EventDecision::Wait);
        assert_eq!(of(330, &waits, IncidentNotice::NoIncident), EventDecision::Send);
        let unknown =
            decision(waited(20), Some(Duration::from_secs(20)), None, IncidentNotice::NoIncident);
        assert_eq!(unknown, EventDecision::Send, "nothing is known of its kind");
    }

    #[test]
    fn an_incident_replaces_it_for_an_alert_that_is_sent_the_incident() {
        let fails = verdict(Own::Failing, FALSE, Some(false));
        assert_eq!(of(0, &fails, IncidentNotice::Sent), EventDecision::Forget);
        assert_eq!(
            of(0, &fails, IncidentNotice::Denied),
            EventDecision::Send,
            "no place, or not its pattern"
        );
        assert_eq!(
            of(90_000, &fails, IncidentNotice::Due),
            EventDecision::Wait,
            "the delay of the Alert"
        );
    }

    #[test]
    fn what_has_ended_or_is_suspended_is_not_sent() {
        let none = IncidentNotice::NoIncident;
        for own in [Own::Absent, Own::Well, Own::Paused, Own::Failing] {
            assert_eq!(of(20, &verdict(own, FALSE, None), none), EventDecision::Forget, "{own:?}");
            assert_eq!(
                of(9, &verdict(own, FALSE, None), none),
                EventDecision::Wait,
                "it may be too early"
            );
        }
        assert_eq!(of(20, &verdict(Own::Unclear, FALSE, None), none), EventDecision::Wait);
        assert_eq!(of(900, &verdict(Own::Unclear, FALSE, None), none), EventDecision::Send);
        assert_eq!(
            decision(waited(800), None, None, none),
            EventDecision::Wait,
            "nothing was judged yet"
        );
    }

    #[test]
    fn an_error_of_an_object_that_was_ready_all_the_time_is_sent() {
        let ready = verdict(Own::Well, "2026-11-24T11:00:00Z", None);
        assert_eq!(of(20, &ready, IncidentNotice::NoIncident), EventDecision::Send);
    }
}
