//! The laws of the loop, for a state that is a counter.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::*;

/// Wants a number; a step adds to the current one.
struct CounterPlanner;

#[derive(Debug, Clone, PartialEq)]
struct Add {
    from: u32,
    by: u32,
}

impl ReconcilePlanner for CounterPlanner {
    type DesiredState = u32;
    type ObservedState = u32;
    type PlanStep = Add;

    fn plan(desired: &u32, observed: &u32) -> PlannerDecision<Add> {
        match desired.checked_sub(*observed) {
            None => PlannerDecision::Outcome(RunOutcome::Stalled(
                condition_reason::FAILED,
                "beyond".into(),
            )),
            Some(0) => PlannerDecision::Outcome(RunOutcome::Settled(
                condition_reason::SUCCEEDED,
                "equal".into(),
            )),
            // The second of two steps is planned on what the first will leave.
            Some(2) => {
                let two = [Add { from: *observed, by: 1 }, Add { from: observed + 1, by: 1 }];
                PlannerDecision::Act(two.into())
            }
            // The counter cannot want this number: it makes the plan return no steps, as a faulty plan would.
            Some(666) => PlannerDecision::Act(Vec::new()),
            Some(_) => PlannerDecision::Act(vec![Add { from: *observed, by: 1 }]),
        }
    }

    fn rounds(desired: &u32) -> usize {
        if *desired == 0 { 0 } else { 5 }
    }
}

#[derive(Default)]
struct TestExecutor {
    at: Mutex<u32>,
    observations: Mutex<usize>,
    /// Steps change nothing.
    is_stuck: bool,
    /// The step from this number fails.
    fails_from: Option<u32>,
    /// Looking fails.
    is_down: bool,
}

fn down() -> RunOutcome {
    RunOutcome::Failed(condition_reason::FAILED, "down".into(), NextRunTrigger::default())
}

impl super::Executor<CounterPlanner> for TestExecutor {
    async fn observe(&self, _: &u32) -> Result<u32, RunOutcome> {
        *self.observations.lock() += 1;
        if self.is_down { Err(down()) } else { Ok(*self.at.lock()) }
    }

    async fn perform(&self, step: &Add) -> Result<(), RunOutcome> {
        if self.fails_from == Some(step.from) {
            return Err(down());
        }
        if !self.is_stuck {
            *self.at.lock() += step.by;
        }
        Ok(())
    }
}

/// Runs a future that never waits for anything.
fn now<T>(future: impl Future<Output = T> + Send) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("nothing here waits"),
    }
}

fn run(want: u32, executor: &TestExecutor) -> (Vec<u32>, RunOutcome) {
    let (done, outcome) = now(drive::<CounterPlanner>(&want, executor));
    (done.iter().map(|step| step.from).collect(), outcome)
}

#[test]
fn a_run_observes_again_after_acting_until_the_plan_has_an_outcome() {
    let executor = TestExecutor::default();
    let settled = RunOutcome::Settled(condition_reason::SUCCEEDED, "equal".into());
    assert_eq!(run(4, &executor), (vec![0, 1, 2, 3], settled));
    // Observes 0, 1, 2 (two steps from there) and 4.
    assert_eq!(*executor.observations.lock(), 4);
}

#[test]
fn a_settled_state_is_observed_once_and_not_changed() {
    let executor = TestExecutor { at: Mutex::new(7), ..TestExecutor::default() };
    let (done, outcome) = run(7, &executor);
    assert!(done.is_empty() && outcome.is_settled());
    assert_eq!(*executor.observations.lock(), 1);
}

#[test]
fn a_step_that_does_nothing_is_not_done_again() {
    let (done, outcome) = run(3, &TestExecutor { is_stuck: true, ..TestExecutor::default() });
    assert_eq!(done, [0]);
    let text = "already done in this run: Add { from: 0, by: 1 }";
    assert_eq!(
        outcome,
        RunOutcome::Failed(condition_reason::NO_PROGRESS, text.into(), NextRunTrigger::default())
    );
}

#[test]
fn a_run_that_always_finds_more_to_do_ends_after_its_rounds() {
    let executor = TestExecutor::default();
    let (done, outcome) = run(100, &executor);
    assert_eq!((done.len(), *executor.observations.lock()), (5, 5));
    assert_eq!(
        (outcome.reason(), outcome.text()),
        (condition_reason::NO_PROGRESS, "not settled after 5 rounds")
    );
    assert!(outcome.has_empty_wake());
}

#[test]
fn a_kind_that_allows_no_round_is_still_observed_once() {
    assert!(run(0, &TestExecutor::default()).1.is_settled());
}

#[test]
fn a_plan_that_acts_without_a_step_ends_the_run_at_once() {
    let executor = TestExecutor::default();
    let (done, outcome) = run(666, &executor);
    assert!(done.is_empty());
    assert_eq!(
        (outcome.reason(), *executor.observations.lock()),
        (condition_reason::NO_PROGRESS, 1)
    );
}

#[test]
fn a_step_that_cannot_be_done_ends_the_run_and_is_not_counted_as_done() {
    let (done, outcome) = run(4, &TestExecutor { fails_from: Some(2), ..TestExecutor::default() });
    assert_eq!((done, outcome), (vec![0, 1], down()));
}

#[test]
fn a_failed_observation_ends_the_run_with_its_own_outcome() {
    let (done, outcome) = run(4, &TestExecutor { is_down: true, ..TestExecutor::default() });
    assert_eq!((done, outcome), (vec![], down()));
}

#[test]
fn outcomes_read_as_in_events() {
    assert_eq!(
        format!("{} {}", AppliedObjectAction::Created, AppliedObjectAction::Unknown),
        "created unknown"
    );
}
