//! Decides about a notification that an incident may replace. If there is no incident, the notification is sent after all.
//!
//! An incident does not open if the API server rejects it or too many are open. An Alert is not sent an incident if its
//! patterns decline it or the status of the Incident has no place for the Alert. If the failure ended before it was an
//! incident, the notification is dropped.
//!
//! Elsewhere: the notifications that wait (`delivery::suppressed_notifications`).

use std::time::Duration;

use cause::incident::{ObjectFailureVerdict, ReportedObjectState};

use super::incident_notifier::IncidentOpenNotificationState;
use super::{MIN_FAILURE_AGE, SETTLED_WAITING};
use crate::delivery::suppressed_notifications::NotificationWaitStart;

/// After this time, conditions show the failure of a notification. The status is written around the same time, and a watch
/// reports it.
const CONDITION_DELAY: Duration = Duration::from_secs(10);

/// How long the opening of an incident may take after it is due. The API server may be slow, or writes may be paused.
const OPENING_DELAY: Duration = Duration::from_secs(30);

/// The longest time that a notification waits while the conditions do not show whether its object fails.
const MAX_WAIT: Duration = Duration::from_secs(900);

/// The decision about a notification that an incident may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SuppressionDecision {
    /// The notification waits.
    Wait,
    /// An incident reports the failure, or the failure has ended.
    Forget,
    /// The notification is sent.
    Send,
}

/// Decides about a held notification. `judged_after` is how long it had waited when its object was judged last. `verdict` is
/// `None` if nothing is known about its kind.
pub(super) fn decision(
    beginning: NotificationWaitStart,
    judged_after: Option<Duration>,
    verdict: Option<&ObjectFailureVerdict>,
    notified: Option<IncidentOpenNotificationState>,
) -> SuppressionDecision {
    let age = beginning.since.elapsed();
    match notified {
        Some(IncidentOpenNotificationState::Sent) => return SuppressionDecision::Forget,
        Some(IncidentOpenNotificationState::Denied) => return SuppressionDecision::Send,
        Some(IncidentOpenNotificationState::Due) => return SuppressionDecision::Wait,
        None => {}
    }
    if age >= MAX_WAIT {
        return SuppressionDecision::Send;
    }
    if judged_after.is_none_or(|after| after < CONDITION_DELAY) {
        return SuppressionDecision::Wait;
    }
    let Some(verdict) = verdict else { return SuppressionDecision::Send };
    match (verdict.own, &verdict.failure) {
        (_, Some(failure)) => {
            let enough = if failure.is_waiting { SETTLED_WAITING } else { MIN_FAILURE_AGE };
            if age >= enough + OPENING_DELAY {
                SuppressionDecision::Send
            } else {
                SuppressionDecision::Wait
            }
        }
        // `Ready` did not change, so it does not report this failure.
        (ReportedObjectState::Well, None)
            if verdict
                .since
                .is_some_and(|since| since.as_second() + 1 < beginning.at.as_second()) =>
        {
            SuppressionDecision::Send
        }
        (ReportedObjectState::Unclear, None) => SuppressionDecision::Wait,
        // The object is suspended, or waits for a suspended one.
        (
            ReportedObjectState::Absent
            | ReportedObjectState::Well
            | ReportedObjectState::Paused
            | ReportedObjectState::Failing,
            None,
        ) => SuppressionDecision::Forget,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cause::CauseKind;
    use cause::incident::RootFailure;
    use objects::ObjectId;

    use super::*;

    fn verdict(
        own: ReportedObjectState,
        since: &str,
        failure: Option<bool>,
    ) -> ObjectFailureVerdict {
        let id = ObjectId::new("apps", "app", "g.io", "Kustomization");
        let failure = failure.map(|is_waiting| RootFailure {
            subject: id.clone(),
            problem: CauseKind::Build,
            cause: id,
            reason: "BuildFailed".to_owned(),
            text: String::new(),
            since: None,
            is_waiting,
            cycle: Vec::new(),
        });
        ObjectFailureVerdict {
            own,
            since: since.parse().ok(),
            failure,
            is_own: true,
            refers_to: None,
        }
    }

    fn waited(seconds: u64) -> NotificationWaitStart {
        let since = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        NotificationWaitStart { at: "2026-11-24T12:00:00Z".parse().unwrap(), since }
    }

    fn of(
        seconds: u64,
        verdict: &ObjectFailureVerdict,
        notified: Option<IncidentOpenNotificationState>,
    ) -> SuppressionDecision {
        decision(waited(seconds), Some(Duration::from_secs(seconds)), Some(verdict), notified)
    }

    const FALSE: &str = "2026-11-24T12:00:00Z";

    #[test]
    fn a_notification_is_sent_after_all_where_no_incident_is_opened() {
        let fails = verdict(ReportedObjectState::Failing, FALSE, Some(false));
        assert_eq!(of(0, &fails, None), SuppressionDecision::Wait);
        assert_eq!(of(32, &fails, None), SuppressionDecision::Wait);
        assert_eq!(of(33, &fails, None), SuppressionDecision::Send);
        let waits = verdict(ReportedObjectState::Failing, FALSE, Some(true));
        assert_eq!(of(299, &waits, None), SuppressionDecision::Wait);
        assert_eq!(of(330, &waits, None), SuppressionDecision::Send);
        let unknown = decision(waited(20), Some(Duration::from_secs(20)), None, None);
        assert_eq!(unknown, SuppressionDecision::Send, "nothing is known of its kind");
    }

    #[test]
    fn an_incident_replaces_it_for_an_alert_that_is_sent_the_incident() {
        let fails = verdict(ReportedObjectState::Failing, FALSE, Some(false));
        assert_eq!(
            of(0, &fails, Some(IncidentOpenNotificationState::Sent)),
            SuppressionDecision::Forget
        );
        assert_eq!(
            of(0, &fails, Some(IncidentOpenNotificationState::Denied)),
            SuppressionDecision::Send,
            "no place, or not its pattern"
        );
        assert_eq!(
            of(90_000, &fails, Some(IncidentOpenNotificationState::Due)),
            SuppressionDecision::Wait,
            "the delay of the Alert"
        );
    }

    #[test]
    fn what_has_ended_or_is_suspended_is_not_sent() {
        for own in [
            ReportedObjectState::Absent,
            ReportedObjectState::Well,
            ReportedObjectState::Paused,
            ReportedObjectState::Failing,
        ] {
            assert_eq!(
                of(20, &verdict(own, FALSE, None), None),
                SuppressionDecision::Forget,
                "{own:?}"
            );
            assert_eq!(
                of(9, &verdict(own, FALSE, None), None),
                SuppressionDecision::Wait,
                "it may be too early"
            );
        }
        assert_eq!(
            of(20, &verdict(ReportedObjectState::Unclear, FALSE, None), None),
            SuppressionDecision::Wait
        );
        assert_eq!(
            of(900, &verdict(ReportedObjectState::Unclear, FALSE, None), None),
            SuppressionDecision::Send
        );
        assert_eq!(
            decision(waited(800), None, None, None),
            SuppressionDecision::Wait,
            "nothing was judged yet"
        );
    }

    #[test]
    fn an_error_of_an_object_that_was_ready_all_the_time_is_sent() {
        let ready = verdict(ReportedObjectState::Well, "2026-11-24T11:00:00Z", None);
        assert_eq!(of(20, &ready, None), SuppressionDecision::Send);
    }
}
