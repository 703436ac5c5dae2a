//! What becomes of a notification that an incident may replace: it is sent after all where there is no incident.
//!
//! An incident does not open where the API server rejects it or too many are open; an Alert is not sent it where its patterns
//! decline it or its status has no place. What ended before it was an incident is not sent.
//!
//! Elsewhere: the notifications that wait (`delivery::suppression`).

use std::time::Duration;

use cause::incident::{ObjectVerdict, Own};

use super::notifier::Notice;
use super::{MIN_FAILURE_AGE, SETTLED_WAITING};
use crate::delivery::suppression::Beginning;

/// After how long conditions say what a notification is about: the status is written around the same time, and a watch
/// reports it.
const CONDITION_DELAY: Duration = Duration::from_secs(10);

/// How long the opening of an incident may take after it is due: the API server may be slow, or writes have to wait.
const OPENING_DELAY: Duration = Duration::from_secs(30);

/// How long a notification waits where it is not clear whether its object fails.
const MAX_WAIT: Duration = Duration::from_secs(900);

/// The decision about a notification that an incident may replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// It waits.
    Wait,
    /// An incident says it, or the failure has ended.
    Forget,
    /// It is sent.
    Send,
}

/// What becomes of a notification. `judged_after` is how long it waited when its object was judged last; `verdict` is none if
/// nothing is known of its kind.
pub(super) fn decision(
    beginning: Beginning,
    judged_after: Option<Duration>,
    verdict: Option<&ObjectVerdict>,
    notified: Option<Notice>,
) -> Decision {
    let age = beginning.since.elapsed();
    match notified {
        Some(Notice::Sent) => return Decision::Forget,
        Some(Notice::Denied) => return Decision::Send,
        Some(Notice::Due) => return Decision::Wait,
        None => {}
    }
    if age >= MAX_WAIT {
        return Decision::Send;
    }
    if judged_after.is_none_or(|after| after < CONDITION_DELAY) {
        return Decision::Wait;
    }
    let Some(verdict) = verdict else { return Decision::Send };
    match (verdict.own, &verdict.failure) {
        (_, Some(failure)) => {
            let enough = if failure.is_waiting { SETTLED_WAITING } else { MIN_FAILURE_AGE };
            if age >= enough + OPENING_DELAY { Decision::Send } else { Decision::Wait }
        }
        // Its `Ready` did not change, so it does not cover what failed.
        (Own::Well, None)
            if verdict
                .since
                .is_some_and(|since| since.as_second() + 1 < beginning.at.as_second()) =>
        {
            Decision::Send
        }
        (Own::Unclear, None) => Decision::Wait,
        // It is suspended, or waits for what is.
        (Own::Absent | Own::Well | Own::Paused | Own::Failing, None) => Decision::Forget,
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

    fn of(seconds: u64, verdict: &ObjectVerdict, notified: Option<Notice>) -> Decision {
        decision(waited(seconds), Some(Duration::from_secs(seconds)), Some(verdict), notified)
    }

    const FALSE: &str = "2026-11-24T12:00:00Z";

    #[test]
    fn a_notification_is_sent_after_all_where_no_incident_is_opened() {
        let fails = verdict(Own::Failing, FALSE, Some(false));
        assert_eq!(of(0, &fails, None), Decision::Wait);
        assert_eq!(of(32, &fails, None), Decision::Wait);
        assert_eq!(of(33, &fails, None), Decision::Send);
        let waits = verdict(Own::Failing, FALSE, Some(true));
        assert_eq!(of(299, &waits, None), Decision::Wait);
        assert_eq!(of(330, &waits, None), Decision::Send);
        let unknown = decision(waited(20), Some(Duration::from_secs(20)), None, None);
        assert_eq!(unknown, Decision::Send, "nothing is known of its kind");
    }

    #[test]
    fn an_incident_replaces_it_for_an_alert_that_is_sent_the_incident() {
        let fails = verdict(Own::Failing, FALSE, Some(false));
        assert_eq!(of(0, &fails, Some(Notice::Sent)), Decision::Forget);
        assert_eq!(
            of(0, &fails, Some(Notice::Denied)),
            Decision::Send,
            "no place, or not its pattern"
        );
        assert_eq!(of(90_000, &fails, Some(Notice::Due)), Decision::Wait, "the delay of the Alert");
    }

    #[test]
    fn what_has_ended_or_is_suspended_is_not_sent() {
        for own in [Own::Absent, Own::Well, Own::Paused, Own::Failing] {
            assert_eq!(of(20, &verdict(own, FALSE, None), None), Decision::Forget, "{own:?}");
            assert_eq!(
                of(9, &verdict(own, FALSE, None), None),
                Decision::Wait,
                "it may be too early"
            );
        }
        assert_eq!(of(20, &verdict(Own::Unclear, FALSE, None), None), Decision::Wait);
        assert_eq!(of(900, &verdict(Own::Unclear, FALSE, None), None), Decision::Send);
        assert_eq!(
            decision(waited(800), None, None, None),
            Decision::Wait,
            "nothing was judged yet"
        );
    }

    #[test]
    fn an_error_of_an_object_that_was_ready_all_the_time_is_sent() {
        let ready = verdict(Own::Well, "2026-11-24T11:00:00Z", None);
        assert_eq!(of(20, &ready, None), Decision::Send);
    }
}
