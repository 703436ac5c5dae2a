//! Limits how many plans of branches are made at once, and how often a user may start one.
//!
//! Elsewhere: how many forms a user may send (`action_limits.rs`), the limits of one plan (`windlass_answers::branch_plan`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many plans a process makes at once. Each has the files of a branch in memory.
const MAX_PLANS_AT_ONCE: usize = 4;

/// How long a user waits after the start of a plan before the next one.
const START_PAUSE: Duration = Duration::from_secs(10);

/// The permit for one plan. It is kept until the work has ended.
#[derive(Debug)]
pub(super) struct BranchPlanPermit {
    _of_user: OwnedSemaphorePermit,
    _of_process: OwnedSemaphorePermit,
}

/// The plans of one user.
struct UserBranchPlans {
    started_at: Instant,
    /// One permit.
    permits: Arc<Semaphore>,
}

/// The plans of all users of a process.
pub(super) struct BranchPlanLimits {
    /// By the name of the user, which is the same in all sessions.
    users: BTreeMap<String, UserBranchPlans>,
    permits: Arc<Semaphore>,
}

impl Default for BranchPlanLimits {
    fn default() -> Self {
        Self { users: BTreeMap::new(), permits: Arc::new(Semaphore::new(MAX_PLANS_AT_ONCE)) }
    }
}

impl BranchPlanLimits {
    /// Counts the start of a plan.
    ///
    /// # Errors
    /// A limit is reached, and the start does not count. The error is a text for the user.
    pub(super) fn begin(
        &mut self,
        user: &str,
        now: Instant,
    ) -> Result<BranchPlanPermit, &'static str> {
        self.users.retain(|_, plans| {
            let is_recent = now.saturating_duration_since(plans.started_at) < START_PAUSE;
            is_recent || plans.permits.available_permits() == 0
        });
        let permits = match self.users.get(user) {
            Some(plans) if plans.permits.available_permits() == 0 => {
                return Err(
                    "a plan of yours is still being made, and you may make one plan at a time; its page shows how far it is",
                );
            }
            Some(_) => {
                return Err(
                    "you started a plan less than 10 s ago; start this one again in a moment",
                );
            }
            None => Arc::new(Semaphore::new(1)),
        };
        let busy = "four plans of branches are being made, which is the limit of this server; start this one again in a minute";
        let of_process = self.permits.clone().try_acquire_owned().map_err(|_full| busy)?;
        let of_user = permits.clone().try_acquire_owned().map_err(|_full| busy)?;
        self.users.insert(user.to_owned(), UserBranchPlans { started_at: now, permits });
        Ok(BranchPlanPermit { _of_user: of_user, _of_process: of_process })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_makes_one_plan_at_a_time_and_waits_before_the_next_one() {
        let mut limits = BranchPlanLimits::default();
        let begin = Instant::now();
        let permit = limits.begin("alice", begin).unwrap();
        let later = begin + START_PAUSE;
        assert!(limits.begin("alice", later).unwrap_err().contains("one plan at a time"));
        drop(permit);
        let soon = begin + START_PAUSE / 2;
        assert!(limits.begin("alice", soon).unwrap_err().contains("less than 10 s"));
        assert!(limits.begin("alice", later).is_ok());
        assert!(limits.begin("bob", begin + START_PAUSE * 3).is_ok());
        assert_eq!(limits.users.len(), 1, "alice is forgotten");
    }

    #[test]
    fn a_process_makes_four_plans_at_once_and_a_refused_start_does_not_count() {
        let mut limits = BranchPlanLimits::default();
        let now = Instant::now();
        let mut permits: Vec<BranchPlanPermit> = (0..MAX_PLANS_AT_ONCE)
            .map(|user| limits.begin(&format!("user-{user}"), now).unwrap())
            .collect();
        assert!(limits.begin("alice", now).unwrap_err().contains("four plans"));
        drop(permits.pop());
        assert!(limits.begin("alice", now).is_ok());
    }
}
