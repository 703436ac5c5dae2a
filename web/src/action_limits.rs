//! Limits how many actions one user who has logged in may request. Each replica counts for itself.
//!
//! Elsewhere: how many pages of one user are made at once (`local_server.rs`), how many readers one user may have
//! (`session_readers.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many actions of one user may run at once.
const MAX_ACTIONS_AT_ONCE: usize = 2;

/// How many actions one user may request within [`COUNTED_TIME`].
const MAX_ACTIONS_IN_TIME: usize = 30;

/// How long a request counts.
const COUNTED_TIME: Duration = Duration::from_secs(60);

/// The actions of one user.
struct UserActions {
    /// When the user requested the latest actions, the oldest first.
    requested_at: VecDeque<Instant>,
    permits: Arc<Semaphore>,
}

impl UserActions {
    /// Forgets the requests that no longer count. Returns whether there is anything to remember.
    fn is_remembered(&mut self, now: Instant) -> bool {
        self.requested_at.retain(|at| now.duration_since(*at) < COUNTED_TIME);
        !self.requested_at.is_empty() || self.permits.available_permits() < MAX_ACTIONS_AT_ONCE
    }
}

/// The actions of all users.
#[derive(Default)]
pub(crate) struct ActionLimits {
    /// By the subject of the user, which is the same in all of the user's sessions.
    users: BTreeMap<String, UserActions>,
}

impl ActionLimits {
    /// Counts an action of a user. The permit has to be kept until the action ends.
    ///
    /// # Errors
    /// The user has too many actions. The error is a text for the user.
    pub(crate) fn begin(
        &mut self,
        subject: &str,
        now: Instant,
    ) -> Result<OwnedSemaphorePermit, &'static str> {
        self.users.retain(|_, actions| actions.is_remembered(now));
        let actions = self.users.entry(subject.to_owned()).or_insert_with(|| UserActions {
            requested_at: VecDeque::new(),
            permits: Arc::new(Semaphore::new(MAX_ACTIONS_AT_ONCE)),
        });
        if actions.requested_at.len() >= MAX_ACTIONS_IN_TIME {
            return Err(
                "you sent 30 forms within a minute, which is the limit; send this one again in a minute",
            );
        }
        let permit = actions.permits.clone().try_acquire_owned().map_err(|_full| {
            "two of your actions are still running, which is the limit; send the form again in a moment"
        })?;
        actions.requested_at.push_back(now);
        Ok(permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_runs_two_actions_at_once_and_takes_no_place_of_others() {
        let mut limits = ActionLimits::default();
        let now = Instant::now();
        let first = limits.begin("alice", now).unwrap();
        let _second = limits.begin("alice", now).unwrap();
        assert!(limits.begin("alice", now).unwrap_err().contains("two of your actions"));
        assert!(limits.begin("bob", now).is_ok());
        drop(first);
        assert!(limits.begin("alice", now).is_ok());
    }

    #[test]
    fn a_user_requests_thirty_actions_a_minute_and_is_then_forgotten() {
        let mut limits = ActionLimits::default();
        let now = Instant::now();
        for at in 0..MAX_ACTIONS_IN_TIME {
            assert!(limits.begin("alice", now).is_ok(), "{at}");
        }
        assert!(limits.begin("alice", now).unwrap_err().contains("30 forms within a minute"));
        assert!(limits.begin("bob", now).is_ok());
        let later = now + COUNTED_TIME;
        let permit = limits.begin("alice", later).unwrap();
        assert_eq!(limits.users.len(), 1, "bob is forgotten");
        let much_later = later + COUNTED_TIME;
        drop(limits.begin("bob", much_later));
        assert!(limits.users.contains_key("alice"), "the action of alice is still running");
        drop(permit);
        drop(limits.begin("bob", much_later));
        assert!(!limits.users.contains_key("alice"));
    }
}
