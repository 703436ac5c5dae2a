//! Operations of objects that have no journal: their events keep the answers until the status reports the end.
//!
//! Elsewhere: releases, whose journal has the answers (engine `release`).

use lifecycle::{
    EventRevision, LifecycleEventAnswer, LifecycleHoldPhase, LifecycleQuestion, OperationHoldState,
};
use reconcile::{NextRunTrigger, RunOutcome};
use release::lifecycle_hold::{LIFECYCLE_PENDING, LIFECYCLES_UNKNOWN, ReleaseLifecycles};

use super::{LifecycleSubject, ask, dismiss, events_of};
use crate::run_context::RunContext;
use windlass_cluster::ClusterError;

/// An operation of an object without a journal.
pub struct LifecycleAttempt {
    /// The name of the operation, which stays the same while the operation is the same.
    pub operation: String,
    /// The revision before it.
    pub from: Option<EventRevision>,
    /// What is to be there.
    pub to: Option<EventRevision>,
}

/// The prefix of the name of an attempt that is about a release but is not a Helm operation on it. Helm operations
/// never have such a name, and ignore the events of such attempts.
const BESIDE: &str = "beside/";

/// The name of an attempt that is about a release but is not a Helm operation on it.
pub fn beside_release(release: &str, digest: &str) -> String {
    format!("{BESIDE}{release}/{digest}")
}

/// Whether an operation name is one of [`beside_release`].
pub fn is_beside_release(operation: &str) -> bool {
    operation.starts_with(BESIDE)
}

/// Where an attempt stands at some phases, with what was answered so far.
pub enum LifecycleAttemptProgress {
    /// It goes on.
    Free(Vec<LifecycleEventAnswer>),
    /// It waits.
    Held(RunOutcome, Vec<LifecycleEventAnswer>),
    /// It fails.
    Failed(String, Vec<LifecycleEventAnswer>),
}

/// Passes phases of an attempt, one lifecycle after the other; what was not asked yet is asked.
///
/// # Errors
/// The API server does not create an event.
pub async fn pass(
    context: &RunContext,
    asking: &LifecycleSubject<'_>,
    lifecycles: &ReleaseLifecycles,
    attempt: &LifecycleAttempt,
    phases: &[LifecycleHoldPhase],
) -> Result<LifecycleAttemptProgress, ClusterError> {
    let namespace = &asking.node.namespace;
    let mut answers = Vec::new();
    for (phase, hold) in holds_at(lifecycles, phases) {
        let question = question(asking, lifecycles, attempt, phase);
        let stand =
            || question.stand(hold, &events_of(context, namespace, asking.uid, asking.release));
        let mut found = stand();
        if let OperationHoldState::Ask(it) = &found {
            if let Some(text) = ask(context, asking, it).await? {
                let outcome =
                    RunOutcome::Failed(LIFECYCLES_UNKNOWN, text, NextRunTrigger::default());
                return Ok(LifecycleAttemptProgress::Held(outcome, answers));
            }
            found = stand();
        }
        match found {
            OperationHoldState::Pass(answer) => answers.push(answer),
            OperationHoldState::Fail(answer) => {
                let text = answer.failure();
                answers.push(answer);
                return Ok(LifecycleAttemptProgress::Failed(text, answers));
            }
            OperationHoldState::Wait(text, until) => {
                let wake = until.map(NextRunTrigger::at).unwrap_or_default();
                return Ok(LifecycleAttemptProgress::Held(
                    RunOutcome::Running(LIFECYCLE_PENDING, text, wake),
                    answers,
                ));
            }
            // It was deleted again at once; the next run asks anew.
            OperationHoldState::Ask(_) => {
                let text =
                    format!("waiting for lifecycle {} at {}", hold.lifecycle, phase.as_str());
                let outcome =
                    RunOutcome::Running(LIFECYCLE_PENDING, text, NextRunTrigger::default());
                return Ok(LifecycleAttemptProgress::Held(outcome, answers));
            }
        }
    }
    Ok(LifecycleAttemptProgress::Free(answers))
}

/// Like [`pass`], but if `is_requested`, what failed is asked once more, because a user requests it.
///
/// # Errors
/// The API server does not create an event.
pub async fn pass_as_requested(
    context: &RunContext,
    asking: &LifecycleSubject<'_>,
    lifecycles: &ReleaseLifecycles,
    attempt: &LifecycleAttempt,
    phases: &[LifecycleHoldPhase],
    is_requested: bool,
) -> Result<LifecycleAttemptProgress, ClusterError> {
    let passage = pass(context, asking, lifecycles, attempt, phases).await?;
    let LifecycleAttemptProgress::Failed(_, answers) = &passage else { return Ok(passage) };
    let Some(failed) = answers.last().filter(|_| is_requested) else { return Ok(passage) };
    let namespace = &asking.node.namespace;
    let mut events = events_of(context, namespace, asking.uid, asking.release);
    events.retain(|event| event.uid == failed.event);
    dismiss(context, namespace, &lifecycle::dismissed(&events, None, &[])).await;
    pass(context, asking, lifecycles, attempt, phases).await
}

/// The answers at some phases of an attempt so far; nothing is asked.
pub fn answered(
    context: &RunContext,
    asking: &LifecycleSubject<'_>,
    lifecycles: &ReleaseLifecycles,
    attempt: &LifecycleAttempt,
    phases: &[LifecycleHoldPhase],
) -> Vec<LifecycleEventAnswer> {
    let events = events_of(context, &asking.node.namespace, asking.uid, asking.release);
    let stand = |(phase, hold)| question(asking, lifecycles, attempt, phase).stand(hold, &events);
    let stands = holds_at(lifecycles, phases).map(stand);
    let answers = stands.filter_map(|stand| match stand {
        OperationHoldState::Pass(answer) => Some(answer),
        OperationHoldState::Fail(_) | OperationHoldState::Wait(..) | OperationHoldState::Ask(_) => {
            None
        }
    });
    answers.collect()
}

/// The holds at some phases, in their order.
fn holds_at<'l>(
    lifecycles: &'l ReleaseLifecycles,
    phases: &'l [LifecycleHoldPhase],
) -> impl Iterator<Item = (LifecycleHoldPhase, &'l lifecycle::HoldingLifecycle)> {
    phases.iter().flat_map(|phase| {
        let its = lifecycles.holds.iter().filter(|hold| hold.phases.contains(phase));
        its.map(|hold| (*phase, hold))
    })
}

fn question<'q>(
    asking: &'q LifecycleSubject<'_>,
    lifecycles: &ReleaseLifecycles,
    attempt: &'q LifecycleAttempt,
    phase: LifecycleHoldPhase,
) -> LifecycleQuestion<'q> {
    LifecycleQuestion {
        owner: asking.uid,
        subject: &asking.node.name,
        operation: &attempt.operation,
        phase,
        from: attempt.from.as_ref(),
        to: attempt.to.as_ref(),
        glass: lifecycles.glass,
        now: jiff::Timestamp::now(),
    }
}
