//! A round: one push with the updates of all automations that push to the same branch. It fetches, sets the values of each
//! automation, commits and pushes. If another writer was faster, it does all of that once more, and pushes one half of the
//! updates first.
//!
//! A failed, changed, suspended or deleted automation is left out, and the others go on. If the server declines the commits of
//! several automations, the commits of only one may be the cause. The round then pushes in parts, in which namespaces take
//! turns. An automation that is declined alone also pushes alone the next time. All of it blocks. Elsewhere: who is part of a
//! round (`push_round_gathering`), the update of one automation (`automation_update`), the fetched commit (`push_round_base`), the commits
//! (`push_round_commits`), objects and connections of Git (`git`).

use std::collections::VecDeque;
use std::time::Instant;

use git::push::{PushError, PushRejection, PushRejectionCause, PushWorkspace};
use git::{GitOperationContext as GitContext, GitRevision};
use reconcile::{NextRunTrigger, RunOutcome};
use windlass_cluster::error::chain;
use windlass_cluster::leadership::Leadership;
use windlass_runtime::time_limit::LONGEST_TIMEOUT;

use super::automation_git_repository::AutomationGitRepository;
use super::automation_update::{
    AutomationUpdate, AutomationUpdateReport, PushBranchMode, PushedCommit, not_committed,
    not_fetched, not_pushed, unpushed,
};
use super::pull_request::{BranchHead, unmerged_head};
use super::push_round_base::PushRoundBase;
use super::push_round_commits::{
    AutomationUpdateOutcome, AutomationUpdateOutcomes, FinishedUpdate, KeySigner,
    PreparedAutomationUpdate, PushRoundCommits, PushRoundPlan, PushRoundUpdate,
};
use super::rewrite::IgnoredMarkers;

/// How often a push is tried in one round where others push to the same branch.
///
/// Differs(flux): there the next run tries.
const MAX_PUSH_ATTEMPTS: usize = 4;

/// How often a round pushes at most. The remaining automations are for the next round. Thirteen pushes find one declined
/// automation among 64.
const MAX_ROUND_PUSHES: usize = 16;

/// The updates of automations that have the same source and push target.
pub(super) struct PushRound {
    /// The repository, its credentials and the reference that is fetched.
    pub(super) source: AutomationGitRepository,
    /// How feature gates treat push branches.
    pub(super) push_branch: PushBranchMode,
    /// Whether this process may push. Its connections to the API server know that by themselves, those to others do not.
    pub(super) leadership: Leadership,
    /// The updates, by namespace and name of their automations. This is the order of the edits.
    pub(super) updates: Vec<PushRoundUpdate>,
}

/// The parts of the process and of the round that an attempt uses.
struct PushAttemptContext<'r> {
    git: &'r GitContext,
    signers: Vec<KeySigner<'r>>,
}

/// Updates that are pushed together.
struct PushRoundPart<'r> {
    members: Vec<&'r PreparedAutomationUpdate<'r>>,
    /// Whether the server declined the updates together with others.
    is_declined: bool,
}

/// The end of an attempt.
struct PushAttemptEnd<'r> {
    outcomes: AutomationUpdateOutcomes,
    /// Updates whose commits the server declined together.
    declined: Vec<&'r PreparedAutomationUpdate<'r>>,
    /// Updates that were left out, to be faster.
    later: Vec<&'r PreparedAutomationUpdate<'r>>,
    /// Whether another attempt may end otherwise.
    is_repeatable: bool,
}

impl PushAttemptEnd<'_> {
    fn of(outcomes: AutomationUpdateOutcomes) -> Self {
        Self { outcomes, declined: Vec::new(), later: Vec::new(), is_repeatable: false }
    }

    /// The same outcome for all updates of the part.
    fn same(part: &[&PreparedAutomationUpdate<'_>], outcome: &AutomationUpdateOutcome) -> Self {
        Self::of(part.iter().map(|it| (it.automation(), outcome.clone())).collect())
    }
}

impl PushRound {
    /// Brings the repository up to date for each automation.
    pub(super) fn run(&self, git: &GitContext) -> AutomationUpdateOutcomes {
        let began = Instant::now();
        let mut outcomes = AutomationUpdateOutcomes::new();
        let mut signers = Vec::new();
        let mut prepared = Vec::new();
        for update in &self.updates {
            match PreparedAutomationUpdate::new(update, &mut signers) {
                Ok(update) => prepared.push(update),
                Err(failure) => {
                    outcomes.insert(
                        update.automation.clone(),
                        AutomationUpdateOutcome::Failed(failure),
                    );
                }
            }
        }
        let tools = PushAttemptContext { git, signers };
        let whole = PushRoundPart { members: prepared.iter().collect(), is_declined: false };
        let mut parts = VecDeque::from([whole]);
        let mut pushes = 0;
        while let Some(PushRoundPart { members, is_declined }) = parts.pop_front() {
            if members.is_empty() {
                continue;
            }
            let is_over = began.elapsed() > LONGEST_TIMEOUT || pushes >= MAX_ROUND_PUSHES;
            let end = match (is_over, is_declined) {
                (true, true) => {
                    PushAttemptEnd::same(&members, &AutomationUpdateOutcome::PutOffAlone)
                }
                (true, false) => PushAttemptEnd::same(&members, &AutomationUpdateOutcome::PutOff),
                (false, _) => self.push_part(members, &tools, &mut pushes),
            };
            outcomes.extend(end.outcomes);
            parts.push_back(PushRoundPart { members: end.later, is_declined });
            for members in halves(end.declined, |it| &it.round_update.automation.namespace) {
                parts.push_back(PushRoundPart { members, is_declined: true });
            }
        }
        outcomes
    }

    fn push_part<'r>(
        &self,
        mut part: Vec<&'r PreparedAutomationUpdate<'r>>,
        tools: &PushAttemptContext<'_>,
        pushes: &mut usize,
    ) -> PushAttemptEnd<'r> {
        let began = Instant::now();
        // A hook of the server may take longer than several attempts, so the server may accept any of them.
        let mut unanswered = Vec::new();
        let mut later = Vec::new();
        let mut attempts = 1;
        loop {
            *pushes += 1;
            let attempt = self.attempt(&part, tools, &mut unanswered);
            let end = attempt.unwrap_or_else(|failure| {
                PushAttemptEnd::same(&part, &AutomationUpdateOutcome::Failed(failure))
            });
            let is_last = attempts == MAX_PUSH_ATTEMPTS || began.elapsed() > LONGEST_TIMEOUT;
            if is_last || !end.is_repeatable {
                return PushAttemptEnd { later, ..end };
            }
            // Another writer was faster. Each member of an unanswered push finds out whether it was accepted.
            if unanswered.is_empty() {
                let mut half = part.split_off(part.len().div_ceil(2));
                half.append(&mut later);
                later = half;
            }
            attempts += 1;
        }
    }

    /// One attempt to push.
    ///
    /// # Errors
    /// The failure affects all updates of the attempt.
    fn attempt<'r>(
        &self,
        part: &[&'r PreparedAutomationUpdate<'r>],
        tools: &PushAttemptContext<'_>,
        unanswered: &mut Vec<PushRoundCommits<'r>>,
    ) -> Result<PushAttemptEnd<'r>, RunOutcome> {
        let Self { source, .. } = self;
        let git = tools.git;
        let mut base = PushRoundBase::of(source, self.push_branch, git)
            .map_err(|error| not_fetched(&error))?;
        let is_head = |commits: &PushRoundCommits<'_>| commits.head == base.snapshot.commit.sha;
        if let Some(accepted) = unanswered.iter().position(is_head) {
            let commits = unanswered.swap_remove(accepted);
            let workspace = PushWorkspace::on(&base.snapshot, &source.remote)
                .map_err(|error| not_committed(&chain(&error)))?;
            return Ok(self.pushed(&base, commits, &workspace, git));
        }
        let mut plan = PushRoundPlan::of(part, &base, &source.remote)?;
        if base.is_push_branch && !plan.is_empty() && base.is_merged(source, git)? {
            let head = Some(base.snapshot.commit.sha.clone());
            base = PushRoundBase::on_checkout(source, head, self.push_branch, git)
                .map_err(|it| not_fetched(&it))?;
            plan = PushRoundPlan::of(part, &base, &source.remote)?;
        }
        let mut workspace = PushWorkspace::on(&base.snapshot, &source.remote)
            .map_err(|error| not_committed(&chain(&error)))?;
        // The files are in the pack then, and need not be here as well while the server takes its time.
        let commits = PushRoundCommits::made(&mut workspace, plan, &tools.signers);
        if commits.committed().next().is_none() {
            return Ok(self.accepted(&base, commits, git));
        }
        // A process that was stopped for a while has old results. The leader may have pushed newer ones before the fetch. If
        // the leader pushes after the fetch, the server rejects this push.
        if !self.leadership.may_act() {
            let failure = not_committed("this process is not the leader; commit not pushed");
            return Ok(self.failed(&base, &commits, &failure, git));
        }
        let request = source.push.request(base.rule.clone());
        let Err(error) = workspace.push(&request, &source.remote, git) else {
            return Ok(self.pushed(&base, commits, &workspace, git));
        };
        drop(workspace);
        let mut end = self.failed(&base, &commits, &not_pushed(&error), git);
        match error {
            PushError::Unanswered(_) => {
                unanswered.push(commits);
                end.is_repeatable = true;
            }
            PushError::Rejected(rejection) => Self::rejected(&rejection, &commits, &mut end),
            _ => {}
        }
        Ok(end)
    }

    /// The end of an attempt whose commits the server has: the references of the refspec follow the branch.
    ///
    /// Parity(flux): that is a push of its own, with the same options; what it fails to do, the next run does not make up for.
    fn pushed<'r>(
        &self,
        base: &PushRoundBase,
        commits: PushRoundCommits<'r>,
        workspace: &PushWorkspace<'_>,
        git: &GitContext,
    ) -> PushAttemptEnd<'r> {
        let AutomationGitRepository { remote, push, .. } = &self.source;
        let request = push.refspec_request(&base.revision.sha, self.push_branch.is_forced);
        let followed = match request {
            Ok(None) => Ok(()),
            Ok(Some(request)) => {
                workspace.push(&request, remote, git).map(drop).map_err(|error| not_pushed(&error))
            }
            Err(why) => Err(unpushed(why, NextRunTrigger::default())),
        };
        match followed {
            Ok(()) => self.accepted(base, commits, git),
            Err(failure) => self.failed(base, &commits, &failure, git),
        }
    }

    /// The way to go on after a rejection.
    fn rejected<'r>(
        rejection: &PushRejection,
        commits: &PushRoundCommits<'r>,
        end: &mut PushAttemptEnd<'r>,
    ) {
        end.is_repeatable = rejection.cause == PushRejectionCause::Outdated;
        // If a reference was updated all the same, the branch may have all commits, and no part is pushed again.
        if rejection.cause != PushRejectionCause::Declined || !rejection.updated.is_empty() {
            return;
        }
        let needing = commits.finished.iter().filter(|it| it.needs_commits());
        let mut declined: Vec<_> = needing.map(|it| it.prepared).collect();
        declined.sort_by_key(|it| it.automation());
        if let [one] = declined.as_slice() {
            let outcome = end.outcomes.remove(&one.automation());
            let outcome = outcome.map(|it| match it {
                AutomationUpdateOutcome::Failed(failure) => {
                    AutomationUpdateOutcome::Declined(failure)
                }
                other => other,
            });
            end.outcomes.extend(outcome.map(|it| (one.automation(), it)));
            return;
        }
        for it in &declined {
            end.outcomes.remove(&it.automation());
        }
        end.declined = declined;
    }

    /// The end of an attempt after which the repository is up to date.
    fn accepted<'r>(
        &self,
        base: &PushRoundBase,
        commits: PushRoundCommits<'r>,
        git: &GitContext,
    ) -> PushAttemptEnd<'r> {
        let PushRoundCommits { head, finished, mut outcomes } = commits;
        for FinishedUpdate { prepared, pushed, findings, .. } in finished {
            let report = self.report(base, &head, &prepared.round_update.update, pushed, git);
            let outcome = match report {
                Ok(report) => {
                    AutomationUpdateOutcome::Done(AutomationUpdateReport { findings, ..report })
                }
                Err(failure) => AutomationUpdateOutcome::Failed(failure),
            };
            outcomes.insert(prepared.automation(), outcome);
        }
        PushAttemptEnd::of(outcomes)
    }

    /// The end of an attempt that failed, but for the updates that are done without its commits.
    fn failed<'r>(
        &self,
        base: &PushRoundBase,
        commits: &PushRoundCommits<'r>,
        failure: &RunOutcome,
        git: &GitContext,
    ) -> PushAttemptEnd<'r> {
        let mut outcomes = commits.outcomes.clone();
        let mut unchanged = Vec::new();
        for update in &commits.finished {
            let FinishedUpdate { prepared, findings, .. } = update;
            if update.needs_commits() {
                let outcome = AutomationUpdateOutcome::Failed(failure.clone());
                outcomes.insert(prepared.automation(), outcome);
            } else {
                unchanged.push(FinishedUpdate {
                    prepared,
                    pushed: None,
                    rests_on_commits: false,
                    findings: findings.clone(),
                });
            }
        }
        let head = base.snapshot.commit.sha.clone();
        self.accepted(base, PushRoundCommits { head, finished: unchanged, outcomes }, git)
    }

    /// The report of an update, without findings. `head` is the newest commit of the branch.
    fn report(
        &self,
        base: &PushRoundBase,
        head: &str,
        update: &AutomationUpdate,
        pushed: Option<PushedCommit>,
        git: &GitContext,
    ) -> Result<AutomationUpdateReport, RunOutcome> {
        let Self { source, .. } = self;
        let mut revision = base.revision.clone();
        if source.push.is_checkout {
            revision = GitRevision { sha: head.to_owned(), ..revision };
        }
        let mut merge = None;
        let unmerged = if update.is_proposed {
            let found = base.is_push_branch.then(|| BranchHead {
                committed: base.snapshot.committed(),
                message: base.snapshot.message(),
            });
            unmerged_head(pushed.as_ref(), found, || {
                let state = base.merge_state(source, update.known_merge.as_ref(), git)?;
                let is_merged = state.is_merged;
                merge = Some(state);
                Ok::<bool, RunOutcome>(is_merged)
            })?
        } else {
            None
        };
        let revision = revision.to_string();
        let findings = IgnoredMarkers::default();
        Ok(AutomationUpdateReport { revision, pushed, unmerged, merge, findings })
    }
}

/// The halves of a part, whose members are sorted by namespace. A namespace is only split if the part has no other. So a
/// tenant whose commits are declined does not delay others.
fn halves<M>(mut part: Vec<M>, namespace: impl Fn(&M) -> &str) -> [Vec<M>; 2] {
    let pairs = part.iter().zip(part.iter().skip(1)).enumerate();
    let borders = pairs.filter(|(_, (one, next))| namespace(one) != namespace(next));
    let borders: Vec<usize> = borders.map(|(at, _)| at + 1).collect();
    let middle = borders.get(borders.len() / 2).copied().unwrap_or(part.len() / 2);
    let second = part.split_off(middle);
    [part, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_halved_between_namespaces_and_else_in_the_middle() {
        let split = |names: &[&'static str]| {
            let [first, second] = halves(names.to_vec(), |it| it.split_once('/').unwrap().0);
            (first.join(" "), second.join(" "))
        };
        let expected = |first: &str, second: &str| (first.to_owned(), second.to_owned());
        assert_eq!(split(&["a/1", "a/2", "a/3", "b/1"]), expected("a/1 a/2 a/3", "b/1"));
        assert_eq!(split(&["a/1", "a/2", "b/1", "c/1", "d/1"]), expected("a/1 a/2 b/1", "c/1 d/1"));
        assert_eq!(split(&["a/1", "a/2", "a/3"]), expected("a/1", "a/2 a/3"));
        assert_eq!(split(&[]), expected("", ""));
    }
}
