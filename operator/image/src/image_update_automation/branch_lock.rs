//! One writer at a time for each branch: automations of one repository take turns, instead of racing each other.
//!
//! Nothing waits here: an automation that finds the branch taken ends its run and is woken when the branch is free. The key has
//! the namespace of the GitRepository, so that a tenant cannot keep the branch of another from being written.
//! Elsewhere: writers that are not automations of this process; a push that loses against them is repeated (`update`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use reconcile::ObjectKey;
use windlass_cluster::metrics::WakeReason;
use windlass_runtime::work_queue::WorkQueue;

/// A branch of a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BranchKey {
    /// The namespace of the GitRepository.
    pub(super) namespace: String,
    /// Its URL, without credentials.
    pub(super) url: String,
    /// The branch that is pushed to.
    pub(super) branch: String,
}

/// The branches that are being written or that automations wait for.
#[derive(Default)]
pub(super) struct BranchLocks(Mutex<BTreeMap<BranchKey, BranchState>>);

/// Whether a branch is taken, and the automations that found it so.
#[derive(Default)]
struct BranchState {
    is_taken: bool,
    waiting: VecDeque<ObjectKey>,
}

/// A branch that nothing else of this process writes to, until this is dropped.
pub(super) struct BranchLock {
    locks: Arc<BranchLocks>,
    key: BranchKey,
    work_queue: Arc<WorkQueue>,
}

impl BranchLocks {
    /// Takes a branch for an automation; `None` if another has it. The automation is woken when its turn comes, unless one
    /// before it does not come back: it has to try once more by itself some time.
    pub(super) fn acquire(
        self: &Arc<Self>,
        key: BranchKey,
        automation: &ObjectKey,
        work_queue: &Arc<WorkQueue>,
    ) -> Option<BranchLock> {
        let mut all = self.0.lock();
        let state = all.entry(key.clone()).or_default();
        if state.is_taken {
            if !state.waiting.contains(automation) {
                state.waiting.push_back(automation.clone());
            }
            return None;
        }
        state.is_taken = true;
        state.waiting.retain(|waiting| waiting != automation);
        drop(all);
        Some(BranchLock { locks: self.clone(), key, work_queue: work_queue.clone() })
    }

    /// Frees a branch; gives the automation whose turn it is.
    fn release(&self, key: &BranchKey) -> Option<ObjectKey> {
        let mut all = self.0.lock();
        let state = all.get_mut(key)?;
        state.is_taken = false;
        let next = state.waiting.pop_front();
        if state.waiting.is_empty() {
            all.remove(key);
        }
        next
    }
}

impl Drop for BranchLock {
    fn drop(&mut self) {
        if let Some(next) = self.locks.release(&self.key) {
            self.work_queue.wake(&next, WakeReason::Waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_cluster::metrics::MetricsRegistry;

    use super::*;

    fn key(namespace: &str, branch: &str) -> BranchKey {
        let [namespace, url, branch] = [namespace, "https://a/b", branch].map(str::to_owned);
        BranchKey { namespace, url, branch }
    }

    fn automation(name: &str) -> ObjectKey {
        ObjectKey::new("image.toolkit.fluxcd.io", "ImageUpdateAutomation", "a", name)
    }

    #[test]
    fn a_branch_has_one_writer_and_other_branches_and_namespaces_have_their_own() {
        let locks = Arc::new(BranchLocks::default());
        let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
        let acquire =
            |key: BranchKey, name: &str| locks.acquire(key, &automation(name), &work_queue);
        let first = acquire(key("a", "main"), "one").unwrap();
        assert!(acquire(key("a", "main"), "two").is_none());
        assert!(acquire(key("a", "other"), "two").is_some());
        assert!(acquire(key("b", "main"), "two").is_some());
        drop(first);
        assert!(acquire(key("a", "main"), "two").is_some());
    }

    #[test]
    fn those_that_found_a_branch_taken_come_one_after_the_other() {
        let locks = Arc::new(BranchLocks::default());
        let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
        let acquire = |name: &str| locks.acquire(key("a", "main"), &automation(name), &work_queue);
        let held = acquire("one").unwrap();
        for name in ["two", "three", "two"] {
            assert!(acquire(name).is_none());
        }
        assert_eq!(locks.release(&key("a", "main")), Some(automation("two")));
        // The second one does not come: the third comes by itself, and is not called once more.
        let third = acquire("three").unwrap();
        assert!(locks.0.lock().values().all(|state| state.waiting.is_empty()));
        drop(third);
        assert!(locks.0.lock().is_empty());
        drop(held);
    }
}
