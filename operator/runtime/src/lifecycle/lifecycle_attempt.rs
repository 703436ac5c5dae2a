//! Lifecycles of operations on objects without a journal. The LifecycleEvents keep the answers until the status reports the
//! end of the operation.
//!
//! Elsewhere: releases, whose journal keeps the answers (engine `release`).

use lifecycle::{
    LifecycleEventAnswer, LifecycleHoldContext, LifecycleHoldPhase, OperationHoldState,
    ReleaseOrSourceRevision,
};
use reconcile::{NextRunTrigger, RunOutcome};
use release::lifecycle_hold::{LIFECYCLE_PENDING, LIFECYCLES_UNKNOWN, ReleaseLifecycles};

use super::{LifecycleSubject, ask, dismiss, events_of};
use crate::run_context::RunContext;
use windlass_cluster::ClusterError;

/// An operation on an object without a journal.
pub struct LifecycleAttempt {
    /// The name of the operation. It stays the same while the operation does.
    pub operation: String,
    /// The revision before the operation.
    pub from: Option<ReleaseOrSourceRevision>,
    /// The revision that the operation applies.
    pub to: Option<ReleaseOrSourceRevision>,
}

/// The name prefix of an attempt that concerns a release but is no Helm operation. Helm operations never have this prefix, and
/// ignore the events of such attempts.
const BESIDE: &str = "beside/";

/// The name of an attempt that concerns a release but is no Helm operation.
pub fn beside_release(release: &str, digest: &str) -> String {
    format!("{BESIDE}{release}/{digest}")
}

/// Whether an operation has a name from [`beside_release`].
pub fn is_beside_release(operation: &str) -> bool {
    operation.starts_with(BESIDE)
}

/// The progress of an attempt at certain phases, with the answers so far.
pub enum LifecycleAttemptProgress {
    /// The attempt may continue.
    Free(Vec<LifecycleEventAnswer>),
    /// The attempt waits, with this outcome.
    Held(RunOutcome, Vec<LifecycleEventAnswer>),
    /// The attempt has failed, for this reason.
    Failed(String, Vec<LifecycleEventAnswer>),
}

/// Passes certain phases of an attempt, one lifecycle after the other. Lifecycles that were not asked yet get an event.
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
            // The event was deleted right away, so the next run asks anew.
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

/// As [`pass`]. If `is_requested`, a failed lifecycle is asked once more, because a user requests it.
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

/// The answers at certain phases of an attempt so far. Creates no event.
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

/// The holds at certain phases, in their order.
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
) -> LifecycleHoldContext<'q> {
    LifecycleHoldContext {
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
