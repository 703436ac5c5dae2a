//! A lock for each branch, so that automations of one repository take turns instead of racing each other. Automations whose
//! pushes can be one push have the same turn.
//!
//! Nothing waits here: an automation that finds the branch taken ends its run, and is woken when the branch is free. The key
//! has the namespace of the GitRepository, so that a tenant cannot block the branch of another tenant.
//! Elsewhere: which automations push together (`push_round_gathering`); repeating a push that loses against a writer outside of
//! this process (`push_round`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git::GitReference;
use parking_lot::Mutex;
use reconcile::ObjectKey;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::work_queue::WorkQueue;

use super::push_target::PushTarget;

/// Automations that push together at most.
pub(super) const MAX_ROUND_MEMBERS: usize = 64;

/// A branch of a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BranchKey {
    /// The namespace of the GitRepository.
    pub(super) namespace: String,
    /// The URL of the repository, without credentials.
    pub(super) url: String,
    /// The branch that is pushed to.
    pub(super) branch: String,
}

/// The source and push target of a round. Automations with equal targets can push together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushRoundTarget {
    /// The branch, which has one writer at a time.
    pub(super) branch: BranchKey,
    /// The GitRepository, whose credentials are used.
    pub(super) source: ObjectKey,
    /// The reference that is fetched.
    pub(super) reference: GitReference,
    /// The references to which commits are pushed.
    pub(super) push: PushTarget,
    /// The automation, if it pushes together with no other one.
    pub(super) alone: Option<ObjectKey>,
}

/// The branches that are being written or that automations wait for.
#[derive(Default)]
pub(super) struct BranchLocks(Mutex<BTreeMap<BranchKey, BranchState>>);

/// An automation that found its branch taken.
struct WaitingAutomation {
    automation: ObjectKey,
    target: Arc<PushRoundTarget>,
}

/// The automations that wait for a branch, in the order of their turns. Thousands may.
#[derive(Default)]
struct WaitingAutomations {
    turns: BTreeMap<i64, WaitingAutomation>,
    /// The turn of each automation.
    known: BTreeMap<ObjectKey, i64>,
}

impl WaitingAutomations {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds an automation to the queue. It keeps a turn that it has already, or else gets the first or the last turn.
    fn add(&mut self, waiting: WaitingAutomation, is_first: bool) {
        let turn = self.known.get(&waiting.automation).copied().unwrap_or_else(|| {
            let end = match is_first {
                true => self.turns.first_key_value().map(|(first, _)| first - 1),
                false => self.turns.last_key_value().map(|(last, _)| last + 1),
            };
            end.unwrap_or_default()
        });
        self.known.insert(waiting.automation.clone(), turn);
        self.turns.insert(turn, waiting);
    }

    fn contains(&self, automation: &ObjectKey) -> bool {
        self.known.contains_key(automation)
    }

    fn remove(&mut self, automation: &ObjectKey) {
        if let Some(turn) = self.known.remove(automation) {
            self.turns.remove(&turn);
        }
    }

    /// Removes the automation with this turn from the queue, and returns it. `None` if the turn is not in the queue.
    fn take(&mut self, turn: i64) -> Option<WaitingAutomation> {
        let taken = self.turns.remove(&turn)?;
        self.known.remove(&taken.automation);
        Some(taken)
    }
}

/// Whether a branch is taken, and the automations that found it so.
#[derive(Default)]
struct BranchState {
    is_taken: bool,
    waiting: WaitingAutomations,
    /// The automations that were woken last, because it was their turn, and that did not take the branch yet.
    called: BTreeSet<ObjectKey>,
    /// The namespace of the automation that has the branch, or had it last.
    holder: String,
}

impl BranchState {
    /// Queues an automation. If it was its turn before and it was not fast enough, it does not go to the end of the queue
    /// again.
    fn enqueue(&mut self, automation: &ObjectKey, target: &Arc<PushRoundTarget>) {
        let waiting = WaitingAutomation { automation: automation.clone(), target: target.clone() };
        let is_first = !self.waiting.contains(automation) && self.called.remove(automation);
        self.waiting.add(waiting, is_first);
    }

    /// Removes the automations of the next round from the queue. The first one is of another namespace than the last holder,
    /// if possible. So a tenant with many automations does not block others. Automations that can push together with it
    /// follow, and their namespaces take turns.
    fn next_round(&mut self) -> Vec<ObjectKey> {
        let is_of_other = |it: &WaitingAutomation| it.automation.namespace != self.holder;
        let mut all = self.waiting.turns.iter();
        let first = all.find(|(_, it)| is_of_other(it)).or(self.waiting.turns.first_key_value());
        let Some(first) = first.map(|(turn, _)| *turn) else { return Vec::new() };
        let Some(first) = self.waiting.take(first) else { return Vec::new() };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut turns = Vec::new();
        for (turn, it) in &self.waiting.turns {
            if it.target == first.target {
                let count = counts.entry(&it.automation.namespace).or_default();
                *count += 1;
                turns.push(TurnInRound { number_in_namespace: *count, turn: *turn });
            }
        }
        turns.sort_unstable();
        turns.truncate(MAX_ROUND_MEMBERS - 1);
        turns.sort_unstable_by_key(|it| it.turn);
        let mut next = vec![first.automation];
        for TurnInRound { turn, .. } in turns {
            next.extend(self.waiting.take(turn).map(|it| it.automation));
        }
        next
    }
}

/// The place of an automation among the ones that can push together. Namespaces take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TurnInRound {
    number_in_namespace: usize,
    turn: i64,
}

/// The lock of a branch. No other automation of this process writes to the branch until the lock is dropped.
pub(super) struct BranchLock {
    locks: Arc<BranchLocks>,
    target: Arc<PushRoundTarget>,
    work_queue: Arc<WorkQueue>,
}

impl BranchLocks {
    /// Takes the lock of a branch for a round of automations. `None` if another round has it. In that case each automation is
    /// woken when its turn comes. An automation before it may never come back, so each also has to try again after some time.
    pub(super) fn acquire(
        self: &Arc<Self>,
        target: &Arc<PushRoundTarget>,
        leader: &ObjectKey,
        members: &[ObjectKey],
        work_queue: &Arc<WorkQueue>,
    ) -> Option<BranchLock> {
        let mut all = self.0.lock();
        let state = all.entry(target.branch.clone()).or_default();
        if state.is_taken {
            members.iter().for_each(|member| state.enqueue(member, target));
            return None;
        }
        state.is_taken = true;
        state.holder.clone_from(&leader.namespace);
        for member in members {
            state.waiting.remove(member);
            state.called.remove(member);
        }
        drop(all);
        let target = target.clone();
        Some(BranchLock { locks: self.clone(), target, work_queue: work_queue.clone() })
    }

    /// Whether another automation has the branch. In that case this automation is woken when its turn comes, as by
    /// [`Self::acquire`].
    pub(super) fn enqueue_if_taken(
        &self,
        target: &Arc<PushRoundTarget>,
        automation: &ObjectKey,
    ) -> bool {
        let mut all = self.0.lock();
        let taken = all.get_mut(&target.branch).filter(|state| state.is_taken);
        let is_taken = taken.is_some();
        if let Some(state) = taken {
            state.enqueue(automation, target);
        }
        is_taken
    }

    /// Wakes the next automations, if it is this automation's turn alone and it does not take the branch after all.
    pub(super) fn pass_on(&self, key: &BranchKey, automation: &ObjectKey, work_queue: &WorkQueue) {
        let next = {
            let mut all = self.0.lock();
            let is_last = all.get_mut(key).is_some_and(|state| {
                !state.is_taken && state.called.remove(automation) && state.called.is_empty()
            });
            if is_last { call_next(&mut all, key) } else { Vec::new() }
        };
        wake(&next, work_queue);
    }

    /// Frees a branch, and returns the automations whose turn it is.
    fn release(&self, key: &BranchKey) -> Vec<ObjectKey> {
        call_next(&mut self.0.lock(), key)
    }
}

fn wake(automations: &[ObjectKey], work_queue: &WorkQueue) {
    automations.iter().for_each(|it| work_queue.wake(it, WakeReason::Waiting));
}

/// Frees a branch, and returns the automations whose turn it is.
fn call_next(all: &mut BTreeMap<BranchKey, BranchState>, key: &BranchKey) -> Vec<ObjectKey> {
    let Some(state) = all.get_mut(key) else { return Vec::new() };
    state.is_taken = false;
    let next = state.next_round();
    state.called = next.iter().cloned().collect();
    if state.waiting.is_empty() {
        all.remove(key);
    }
    next
}

impl BranchLock {
    /// Queues an automation for which the round had no room. It is woken when the branch is free.
    pub(super) fn put_off(&self, automation: &ObjectKey) {
        self.enqueue(automation, &self.target);
    }

    /// Like [`Self::put_off`], for an automation that is to push alone.
    pub(super) fn put_off_alone(&self, automation: &ObjectKey) {
        let alone = Some(automation.clone());
        self.enqueue(automation, &Arc::new(PushRoundTarget { alone, ..(*self.target).clone() }));
    }

    fn enqueue(&self, automation: &ObjectKey, target: &Arc<PushRoundTarget>) {
        // The state exists as long as the branch is taken.
        if let Some(state) = self.locks.0.lock().get_mut(&target.branch) {
            state.enqueue(automation, target);
        }
    }
}

impl Drop for BranchLock {
    fn drop(&mut self) {
        wake(&self.locks.release(&self.target.branch), &self.work_queue);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_cluster::metrics::MetricsRegistry;

    use super::*;

    fn target(namespace: &str, branch: &str) -> Arc<PushRoundTarget> {
        let push = json!({"branch": branch});
        let push = PushTarget::new(serde_json::from_value(push).ok().as_ref(), None, &main());
        let source = ObjectKey::new("source.toolkit.fluxcd.io", "GitRepository", namespace, "b");
        let [namespace, url, branch] = [namespace, "https://a/b", branch].map(str::to_owned);
        let branch = BranchKey { namespace, url, branch };
        let push = push.unwrap();
        Arc::new(PushRoundTarget { branch, source, reference: main(), push, alone: None })
    }

    fn main() -> GitReference {
        GitReference::Branch("main".to_owned())
    }

    fn automation(name: &str) -> ObjectKey {
        automation_of("a", name)
    }

    fn automation_of(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new("image.toolkit.fluxcd.io", "ImageUpdateAutomation", namespace, name)
    }

    /// Another target with the same branch.
    fn alone(target: &Arc<PushRoundTarget>, automation: &ObjectKey) -> Arc<PushRoundTarget> {
        Arc::new(PushRoundTarget { alone: Some(automation.clone()), ..(**target).clone() })
    }

    /// The branches, and automations that take them.
    struct Automations {
        locks: Arc<BranchLocks>,
        work_queue: Arc<WorkQueue>,
    }

    impl Automations {
        fn new() -> Self {
            let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
            Self { locks: Arc::default(), work_queue }
        }

        fn acquire(&self, target: &Arc<PushRoundTarget>, name: &str) -> Option<BranchLock> {
            let automation = automation(name);
            self.locks.acquire(
                target,
                &automation,
                std::slice::from_ref(&automation),
                &self.work_queue,
            )
        }
    }

    #[test]
    fn a_branch_has_one_writer_and_other_branches_and_namespaces_have_their_own() {
        let all = Automations::new();
        let first = all.acquire(&target("a", "main"), "one").unwrap();
        assert!(all.acquire(&target("a", "main"), "two").is_none());
        assert!(all.acquire(&target("a", "other"), "two").is_some());
        assert!(all.acquire(&target("b", "main"), "two").is_some());
        drop(first);
        assert!(all.acquire(&target("a", "main"), "two").is_some());
    }

    #[test]
    fn those_that_found_a_branch_taken_come_together() {
        let all = Automations::new();
        let main = target("a", "main");
        let held = all.acquire(&main, "one").unwrap();
        for name in ["two", "three", "two"] {
            assert!(all.acquire(&main, name).is_none());
        }
        held.put_off(&automation("one"));
        assert_eq!(all.locks.release(&main.branch), ["two", "three", "one"].map(automation));
        let together = ["two", "three"].map(automation);
        let second = all.locks.acquire(&main, &together[0], &together, &all.work_queue).unwrap();
        assert!(all.acquire(&main, "four").is_none());
        drop(second);
        assert!(all.locks.0.lock().is_empty());
        drop(held);
    }

    #[test]
    fn one_that_waits_keeps_its_turn_and_one_that_was_called_gets_the_first() {
        let main = target("a", "main");
        let mut state = BranchState::default();
        for name in ["one", "two", "three", "one"] {
            state.enqueue(&automation(name), &main);
        }
        state.waiting.remove(&automation("two"));
        state.called.insert(automation("four"));
        state.enqueue(&automation("four"), &main);
        assert_eq!(state.next_round(), ["four", "one", "three"].map(automation));
        assert!(state.waiting.is_empty() && state.waiting.known.is_empty());
    }

    #[test]
    fn one_that_pushes_alone_is_not_called_together_with_others() {
        let all = Automations::new();
        let main = target("a", "main");
        let held = all.acquire(&main, "one").unwrap();
        held.put_off_alone(&automation("one"));
        held.put_off(&automation("two"));
        held.put_off(&automation("three"));
        assert_eq!(all.locks.release(&main.branch), ["one"].map(automation));
        assert_eq!(all.locks.release(&main.branch), ["two", "three"].map(automation));
        held.put_off(&automation("four"));
        assert!(all.locks.0.lock().is_empty(), "nothing is left of a branch that nothing has");
    }

    #[test]
    fn those_that_cannot_push_together_come_one_after_the_other() {
        let all = Automations::new();
        let main = target("a", "main");
        let held = all.acquire(&main, "one").unwrap();
        let two = automation("two");
        assert!(all.locks.enqueue_if_taken(&alone(&main, &two), &two));
        assert!(all.locks.enqueue_if_taken(&main, &automation("three")));
        assert_eq!(all.locks.release(&main.branch), ["two"].map(automation));
        // The second one does not come: the third comes by itself, and is not called once more.
        let third = all.acquire(&main, "three").unwrap();
        assert!(all.locks.0.lock().values().all(|state| state.waiting.is_empty()));
        drop(third);
        assert!(all.locks.0.lock().is_empty());
        drop(held);
    }

    #[test]
    fn one_whose_turn_it_was_and_that_found_the_branch_taken_again_is_the_next_one() {
        let all = Automations::new();
        let main = target("a", "main");
        let two = automation("two");
        let of_two = alone(&main, &two);
        assert!(!all.locks.enqueue_if_taken(&of_two, &two), "nothing has the branch");
        let first = all.acquire(&main, "one").unwrap();
        assert!(all.locks.enqueue_if_taken(&of_two, &two));
        assert!(all.acquire(&main, "three").is_none());
        drop(first);
        let faster = all.acquire(&main, "four").unwrap();
        assert!(all.locks.enqueue_if_taken(&of_two, &two));
        assert_eq!(all.locks.release(&main.branch), [two]);
        drop(faster);
    }

    #[test]
    fn an_automation_of_another_namespace_does_not_wait_for_all_of_one() {
        let all = Automations::new();
        let main = target("a", "main");
        let first = all.acquire(&main, "one").unwrap();
        for number in 0..100 {
            let automation = automation(&format!("many-{number:02}"));
            assert!(all.locks.enqueue_if_taken(&main, &automation));
        }
        let of_others = ["first", "second"].map(|name| automation_of("b", name));
        for automation in &of_others {
            assert!(all.locks.enqueue_if_taken(&main, automation));
        }
        let next = all.locks.release(&main.branch);
        assert_eq!((next.len(), &next[0]), (MAX_ROUND_MEMBERS, &of_others[0]));
        assert!(next.contains(&of_others[1]), "they take turns in a round, too");
        assert_eq!(all.locks.release(&main.branch).len(), 102 - MAX_ROUND_MEMBERS);
        drop(first);
    }

    #[test]
    fn those_that_do_not_take_the_branch_after_all_pass_their_turn_on() {
        let all = Automations::new();
        let main = target("a", "main");
        let called = || {
            let locks = all.locks.0.lock();
            locks.get(&main.branch).map(|state| state.called.clone()).unwrap_or_default()
        };
        let pass_on =
            |name: &str| all.locks.pass_on(&main.branch, &automation(name), &all.work_queue);
        let first = all.acquire(&main, "one").unwrap();
        for name in ["two", "three"] {
            assert!(all.acquire(&main, name).is_none());
        }
        for name in ["four", "five"] {
            let automation = automation(name);
            assert!(all.locks.enqueue_if_taken(&alone(&main, &automation), &automation));
        }
        pass_on("two");
        assert_eq!(called(), BTreeSet::new(), "the branch is taken");
        drop(first);
        assert_eq!(called(), BTreeSet::from(["two", "three"].map(automation)));
        pass_on("five");
        pass_on("two");
        assert_eq!(called(), BTreeSet::from(["three"].map(automation)), "it has its turn");
        pass_on("three");
        assert_eq!(called(), BTreeSet::from(["four"].map(automation)));
        let faster = all.acquire(&main, "six").unwrap();
        pass_on("four");
        assert!(all.acquire(&main, "seven").is_none(), "the branch is taken");
        drop(faster);
    }
}
