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
    /// The automation that was woken last, because it was its turn.
    called: Option<ObjectKey>,
    /// The namespace of the automation that has the branch, or had it last.
    holder: String,
}

impl BranchState {
    /// Has an automation wait. One whose turn it was already, and that was not fast enough, does not begin at the end again.
    fn enqueue(&mut self, automation: &ObjectKey) {
        if self.called.as_ref() == Some(automation) {
            self.called = None;
            self.waiting.push_front(automation.clone());
        } else if !self.waiting.contains(automation) {
            self.waiting.push_back(automation.clone());
        }
    }
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
            state.enqueue(automation);
            return None;
        }
        state.is_taken = true;
        state.holder.clone_from(&automation.namespace);
        state.waiting.retain(|waiting| waiting != automation);
        if state.called.as_ref() == Some(automation) {
            state.called = None;
        }
        drop(all);
        Some(BranchLock { locks: self.clone(), key, work_queue: work_queue.clone() })
    }

    /// Whether another automation has a branch. Then this one is woken when its turn comes, as by [`Self::acquire`].
    pub(super) fn enqueue_if_taken(&self, key: &BranchKey, automation: &ObjectKey) -> bool {
        let mut all = self.0.lock();
        let taken = all.get_mut(key).filter(|state| state.is_taken);
        let is_taken = taken.is_some();
        if let Some(state) = taken {
            state.enqueue(automation);
        }
        is_taken
    }

    /// Wakes the next automation if it is the turn of this one, which does not take the branch after all.
    pub(super) fn pass_on(&self, key: &BranchKey, automation: &ObjectKey, work_queue: &WorkQueue) {
        let is_called =
            |state: &BranchState| !state.is_taken && state.called.as_ref() == Some(automation);
        let next = {
            let mut all = self.0.lock();
            let is_its_turn = all.get(key).is_some_and(is_called);
            is_its_turn.then(|| call_next(&mut all, key)).flatten()
        };
        if let Some(next) = next {
            work_queue.wake(&next, WakeReason::Waiting);
        }
    }

    /// Frees a branch; gives the automation whose turn it is.
    fn release(&self, key: &BranchKey) -> Option<ObjectKey> {
        call_next(&mut self.0.lock(), key)
    }
}

/// Frees a branch; gives the automation whose turn it is: the first one of another namespace, so that a tenant with many does
/// not keep those of others from it, or else the first one.
fn call_next(all: &mut BTreeMap<BranchKey, BranchState>, key: &BranchKey) -> Option<ObjectKey> {
    let state = all.get_mut(key)?;
    state.is_taken = false;
    let is_of_other = |waiting: &ObjectKey| waiting.namespace != state.holder;
    let first = state.waiting.iter().position(is_of_other).unwrap_or_default();
    let next = state.waiting.remove(first);
    state.called.clone_from(&next);
    if state.waiting.is_empty() {
        all.remove(key);
    }
    next
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

    #[test]
    fn one_whose_turn_it_was_and_that_found_the_branch_taken_again_is_the_next_one() {
        let locks = Arc::new(BranchLocks::default());
        let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
        let main = key("a", "main");
        let acquire = |name: &str| locks.acquire(main.clone(), &automation(name), &work_queue);
        assert!(!locks.enqueue_if_taken(&main, &automation("two")), "nothing has the branch");
        let first = acquire("one").unwrap();
        assert!(locks.enqueue_if_taken(&main, &automation("two")));
        assert!(acquire("three").is_none());
        drop(first);
        let faster = acquire("four").unwrap();
        assert!(locks.enqueue_if_taken(&main, &automation("two")));
        assert_eq!(locks.release(&main), Some(automation("two")));
        drop(faster);
    }

    #[test]
    fn an_automation_of_another_namespace_does_not_wait_for_all_of_one() {
        let locks = Arc::new(BranchLocks::default());
        let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
        let main = key("a", "main");
        let of_other = ObjectKey { namespace: "b".to_owned(), ..automation("other") };
        let first = locks.acquire(main.clone(), &automation("one"), &work_queue).unwrap();
        for waiting in [&automation("two"), &automation("three"), &of_other] {
            assert!(locks.enqueue_if_taken(&main, waiting));
        }
        assert_eq!(locks.release(&main), Some(of_other.clone()));
        let second = locks.acquire(main.clone(), &of_other, &work_queue).unwrap();
        assert_eq!(locks.release(&main), Some(automation("two")));
        drop((first, second));
    }

    #[test]
    fn one_that_does_not_take_the_branch_after_all_passes_its_turn_on() {
        let locks = Arc::new(BranchLocks::default());
        let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
        let main = key("a", "main");
        let acquire = |name: &str| locks.acquire(main.clone(), &automation(name), &work_queue);
        let called = || locks.0.lock().get(&main).and_then(|state| state.called.clone());
        let first = acquire("one").unwrap();
        for name in ["two", "three", "four"] {
            assert!(acquire(name).is_none());
        }
        locks.pass_on(&main, &automation("two"), &work_queue);
        assert_eq!(called(), None, "the branch is taken");
        drop(first);
        assert_eq!(called(), Some(automation("two")));
        locks.pass_on(&main, &automation("four"), &work_queue);
        assert_eq!(called(), Some(automation("two")), "it is not its turn");
        locks.pass_on(&main, &automation("two"), &work_queue);
        assert_eq!(called(), Some(automation("three")));
        let faster = acquire("five").unwrap();
        locks.pass_on(&main, &automation("three"), &work_queue);
        assert!(acquire("six").is_none(), "the branch is taken");
        drop(faster);
    }
}
