//! Gathers automations that are about to push to the same branch into a round. One of them leads the round. The others give it
//! their updates, and receive their outcomes.
//!
//! The first automation of each namespace may lead, and the first of these with a permit does. So no namespace waits for the
//! permits of another. A member waits in its run for the outcome, without a permit and without the branch.
//! Elsewhere: turns of rounds and of automations that cannot push together (`branch_lock`), the work of the leader
//! (`push_round_leader`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reconcile::ObjectKey;
use tokio::sync::oneshot;

use super::branch_lock::{BranchKey, MAX_ROUND_MEMBERS, PushRoundTarget};

/// The longest wait of a leader for automations that run or are woken to run.
const MAX_MEMBER_DELAY: Duration = Duration::from_millis(300);

/// The longest wait of a leader for policies that run, or are woken to run. A scan gives many policies new results one by one,
/// and each would otherwise be a push of its own.
const MAX_POLICY_DELAY: Duration = Duration::from_secs(2);

/// How long no automation may have been due before a waiting leader goes on. A written status takes that long to be seen.
const QUIET_DELAY: Duration = Duration::from_millis(100);

/// The rounds that gather members. A member gives the leader an `M`, and receives an `O`.
pub(super) struct GatheringPushRounds<M, O>(Mutex<RoundsByBranch<M, O>>);

impl<M, O> Default for GatheringPushRounds<M, O> {
    fn default() -> Self {
        Self(Mutex::new(RoundsByBranch { rounds: BTreeMap::new(), last_number: 0 }))
    }
}

struct RoundsByBranch<M, O> {
    rounds: BTreeMap<BranchKey, Vec<GatheringPushRound<M, O>>>,
    /// The number of the last round that began.
    last_number: u64,
}

struct GatheringPushRound<M, O> {
    number: u64,
    target: Arc<PushRoundTarget>,
    members: Vec<GatheredAutomation<M, O>>,
    /// Automations for which the round has no room.
    excess: BTreeSet<ObjectKey>,
}

/// A round that gathers no more.
pub(super) struct ClosedPushRound<M, O> {
    /// The members, sorted by namespace and name.
    pub(super) members: Vec<GatheredAutomation<M, O>>,
    /// Automations for which the round had no room.
    pub(super) excess: BTreeSet<ObjectKey>,
}

/// A member of a round.
pub(super) struct GatheredAutomation<M, O> {
    pub(super) automation: ObjectKey,
    pub(super) member: M,
    /// The channel on which the member's run receives the outcome.
    pub(super) outcome: oneshot::Sender<O>,
}

/// The part that an automation has in a round.
pub(super) enum PushRoundRole<M, O> {
    /// The automation ends the round, unless it receives an outcome before.
    Leader { round: PushRoundGathering<M, O>, outcome: oneshot::Receiver<O> },
    /// The member receives its outcome, or an error if the leader did not get the branch.
    Member(oneshot::Receiver<O>),
    /// The round is full. The automation is noted for the one that ends the round.
    Excess,
}

/// A round that gathers members until one of its leaders closes it. If a leader drops it before, its members receive no
/// outcome.
pub(super) struct PushRoundGathering<M, O> {
    gathering: Arc<GatheringPushRounds<M, O>>,
    branch: BranchKey,
    number: u64,
}

impl<M, O> GatheringPushRounds<M, O> {
    /// Adds an automation to the round of a target. The first one begins it.
    pub(super) fn join(
        self: &Arc<Self>,
        target: &Arc<PushRoundTarget>,
        automation: &ObjectKey,
        member: M,
    ) -> PushRoundRole<M, O> {
        let mut all = self.0.lock();
        let number = all.last_number + 1;
        let rounds = all.rounds.entry(target.branch.clone()).or_default();
        let known = rounds.iter().position(|round| round.target == *target);
        let place = known.unwrap_or_else(|| {
            rounds.push(GatheringPushRound {
                number,
                target: target.clone(),
                members: Vec::new(),
                excess: BTreeSet::new(),
            });
            rounds.len() - 1
        });
        let Some(round) = rounds.get_mut(place) else { return PushRoundRole::Excess };
        if round.members.len() >= MAX_ROUND_MEMBERS {
            round.excess.insert(automation.clone());
            return PushRoundRole::Excess;
        }
        let is_same =
            |it: &GatheredAutomation<M, O>| it.automation.namespace == automation.namespace;
        let is_leader = !round.members.iter().any(is_same);
        let (sender, outcome) = oneshot::channel();
        let automation = automation.clone();
        round.members.push(GatheredAutomation { automation, member, outcome: sender });
        let number = round.number;
        all.last_number = all.last_number.max(number);
        drop(all);
        if !is_leader {
            return PushRoundRole::Member(outcome);
        }
        let branch = target.branch.clone();
        let round = PushRoundGathering { gathering: self.clone(), branch, number };
        PushRoundRole::Leader { round, outcome }
    }
}

impl<M, O> PushRoundGathering<M, O> {
    /// Ends the gathering, and returns the members, this automation included. `None` if another leader has ended it.
    pub(super) fn close(&self) -> Option<ClosedPushRound<M, O>> {
        let GatheringPushRound { mut members, excess, .. } = self.take()?;
        members.sort_by(|a, b| a.automation.cmp(&b.automation));
        Some(ClosedPushRound { members, excess })
    }

    /// Whether no more automations can join.
    pub(super) fn is_full(&self) -> bool {
        self.of_members(|members| members.len() >= MAX_ROUND_MEMBERS)
    }

    /// Whether an automation has joined.
    pub(super) fn has(&self, automation: &ObjectKey) -> bool {
        self.of_members(|members| members.iter().any(|it| it.automation == *automation))
    }

    /// Something of each of those that have joined.
    pub(super) fn of_each<T>(&self, of_member: impl Fn(&M) -> T) -> Vec<T> {
        let all = self.gathering.0.lock();
        let rounds = all.rounds.get(&self.branch).map(Vec::as_slice).unwrap_or_default();
        let own = rounds.iter().filter(|round| round.number == self.number);
        own.flat_map(|round| &round.members).map(|it| of_member(&it.member)).collect()
    }

    fn of_members(&self, is_so: impl Fn(&[GatheredAutomation<M, O>]) -> bool) -> bool {
        let all = self.gathering.0.lock();
        let rounds = all.rounds.get(&self.branch).map(Vec::as_slice).unwrap_or_default();
        rounds.iter().any(|round| round.number == self.number && is_so(&round.members))
    }

    fn take(&self) -> Option<GatheringPushRound<M, O>> {
        let mut all = self.gathering.0.lock();
        let rounds = all.rounds.get_mut(&self.branch)?;
        let own = rounds.iter().position(|round| round.number == self.number)?;
        let round = rounds.swap_remove(own);
        if rounds.is_empty() {
            all.rounds.remove(&self.branch);
        }
        Some(round)
    }
}

impl<M, O> Drop for PushRoundGathering<M, O> {
    fn drop(&mut self) {
        // A closed round leaves no state.
        drop(self.take());
    }
}

/// The time for which a leader waits for automations that are due.
pub(super) struct PushRoundGatheringClock {
    begun: Instant,
    /// When an automation that the leader waits for was last due.
    last_due: Option<Instant>,
}

impl PushRoundGatheringClock {
    pub(super) fn new(begun: Instant) -> Self {
        Self { begun, last_due: None }
    }

    /// Whether the leader stops waiting. It stops at once if no automation is due from the beginning.
    pub(super) fn is_over(
        &mut self,
        now: Instant,
        is_member_due: bool,
        is_policy_due: bool,
    ) -> bool {
        let past = now.saturating_duration_since(self.begun);
        if is_member_due && past < MAX_MEMBER_DELAY || is_policy_due && past < MAX_POLICY_DELAY {
            self.last_due = Some(now);
            return false;
        }
        let is_quiet = |last: Instant| now.saturating_duration_since(last) >= QUIET_DELAY;
        self.last_due.is_none_or(is_quiet)
    }
}

#[cfg(test)]
mod tests {
    use git::GitReference;

    use super::super::push_target::PushTarget;
    use super::*;

    type Rounds = GatheringPushRounds<&'static str, usize>;

    fn target(branch: &str) -> Arc<PushRoundTarget> {
        let reference = GitReference::Branch(branch.to_owned());
        let reference_spec = serde_json::from_value(serde_json::json!({"branch": branch}));
        let push = PushTarget::new(None, reference_spec.ok().as_ref(), &reference).unwrap();
        let source = ObjectKey::new("source.toolkit.fluxcd.io", "GitRepository", "a", "b");
        let [namespace, url, branch] = ["a", "https://a/b", branch].map(str::to_owned);
        let branch = BranchKey { namespace, url, branch };
        Arc::new(PushRoundTarget { branch, source, reference, push, alone: None })
    }

    fn automation(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new("image.toolkit.fluxcd.io", "ImageUpdateAutomation", namespace, name)
    }

    /// An automation that may lead, and its outcome.
    fn lead(
        rounds: &Arc<Rounds>,
        target: &Arc<PushRoundTarget>,
        automation: &ObjectKey,
    ) -> (PushRoundGathering<&'static str, usize>, oneshot::Receiver<usize>) {
        match rounds.join(target, automation, "leader") {
            PushRoundRole::Leader { round, outcome } => (round, outcome),
            PushRoundRole::Member(_) | PushRoundRole::Excess => unreachable!("it is the first one"),
        }
    }

    fn join(
        rounds: &Arc<Rounds>,
        target: &Arc<PushRoundTarget>,
        automation: &ObjectKey,
    ) -> oneshot::Receiver<usize> {
        match rounds.join(target, automation, "member") {
            PushRoundRole::Member(outcome) => outcome,
            PushRoundRole::Leader { .. } | PushRoundRole::Excess => {
                unreachable!("it is not the first one")
            }
        }
    }

    #[test]
    fn one_leads_and_each_receives_its_outcome() {
        let rounds = Arc::new(Rounds::default());
        let main = target("main");
        let [a, b, c] = ["a", "b", "c"].map(|name| automation("apps", name));
        let (round, mut of_b) = lead(&rounds, &main, &b);
        let mut of_c = join(&rounds, &main, &c);
        let mut of_a = join(&rounds, &main, &a);
        let other = lead(&rounds, &target("other"), &automation("apps", "d"));
        assert!(round.has(&a) && !round.has(&automation("apps", "d")));
        assert_eq!(round.of_each(|it| *it), ["leader", "member", "member"]);
        let members = round.close().unwrap().members;
        assert!(round.of_each(|it| *it).is_empty());
        let names: Vec<&str> = members.iter().map(|it| it.automation.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"], "by namespace and name");
        let handed_over: Vec<&str> = members.iter().map(|it| it.member).collect();
        assert_eq!(handed_over, ["member", "leader", "member"]);
        for (number, it) in members.into_iter().enumerate() {
            it.outcome.send(number).unwrap();
        }
        assert_eq!((of_a.try_recv(), of_b.try_recv(), of_c.try_recv()), (Ok(0), Ok(1), Ok(2)));
        drop(other);
        assert!(rounds.0.lock().rounds.is_empty());
    }

    #[test]
    fn the_first_one_of_each_namespace_may_lead_and_one_of_them_does() {
        let rounds = Arc::new(Rounds::default());
        let main = target("main");
        let (slow, _outcome) = lead(&rounds, &main, &automation("a", "one"));
        let (fast, _outcome_of_fast) = lead(&rounds, &main, &automation("b", "one"));
        let _member = join(&rounds, &main, &automation("b", "two"));
        assert_eq!(fast.close().map(|round| round.members.len()), Some(3));
        let (next, _outcome_of_next) = lead(&rounds, &main, &automation("a", "two"));
        assert!(slow.close().is_none(), "its round has ended");
        drop((slow, fast));
        assert!(next.has(&automation("a", "two")), "it is a round of its own");
    }

    #[test]
    fn members_of_a_round_that_ends_early_receive_nothing() {
        let rounds = Arc::new(Rounds::default());
        let main = target("main");
        let (round, _outcome) = lead(&rounds, &main, &automation("apps", "a"));
        let mut outcome = join(&rounds, &main, &automation("apps", "b"));
        drop(round);
        assert_eq!(outcome.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(rounds.0.lock().rounds.is_empty());
    }

    #[test]
    fn a_round_has_a_number_of_members_at_most() {
        let rounds = Arc::new(Rounds::default());
        let main = target("main");
        let (round, _outcome) = lead(&rounds, &main, &automation("apps", "leader"));
        let member = automation("apps", "member");
        let outcomes: Vec<_> =
            (1..MAX_ROUND_MEMBERS).map(|_| join(&rounds, &main, &member)).collect();
        assert!(round.is_full());
        let late = automation("other", "excess");
        let excess = rounds.join(&main, &late, "excess");
        assert!(matches!(excess, PushRoundRole::Excess));
        let closed = round.close().unwrap();
        assert_eq!(closed.members.len(), outcomes.len() + 1);
        assert_eq!(closed.excess, BTreeSet::from([late]), "the leader has it called later");
    }

    #[test]
    fn a_leader_waits_only_while_something_is_due_and_not_for_long() {
        let begun = Instant::now();
        let at = |milliseconds: u64| begun + Duration::from_millis(milliseconds);
        let mut clock = PushRoundGatheringClock::new(begun);
        assert!(clock.is_over(at(0), false, false), "nothing is due");

        let mut clock = PushRoundGatheringClock::new(begun);
        assert!(!clock.is_over(at(0), true, false));
        assert!(!clock.is_over(at(99), false, false), "more may be due soon");
        assert!(clock.is_over(at(100), false, false));

        let mut clock = PushRoundGatheringClock::new(begun);
        assert!(!clock.is_over(at(299), true, false));
        assert!(!clock.is_over(at(300), true, true), "results are waited for longer");
        assert!(!clock.is_over(at(1999), false, true));
        assert!(!clock.is_over(at(2000), true, true));
        assert!(clock.is_over(at(2099), true, true));
    }
}
