//! The work of the leader of a round. The leader waits for automations that are due, reads the keys of verified policies, and
//! takes a permit and the branch. It gives each automation its outcome.
//!
//! Elsewhere: who is part of a round (`push_round_gathering`), its push (`push_round`).

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::image::{ImagePolicy, ImageRef, ImageUpdateAutomation};
use git::push::CommitIdentity;
use jiff::Timestamp;
use reconcile::{ObjectKey, RunOutcome};
use sources::source_condition_reasons::GIT_OPERATION_FAILED;
use tokio::sync::oneshot;
use windlass_cluster::object_store::StateCache;
use windlass_cluster::run_permits::GrantedPermit;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::controller_kind::{node_named, node_of};
use windlass_runtime::git_remote_access::operation_context;
use windlass_runtime::object_hold::is_suspended;
use windlass_runtime::run_context::RunContext;

use super::automation_git_repository::{AutomationGitRepository, SigningKey, node_of_reference};
use super::automation_update::{
    AutomationUpdate, AutomationUpdateReport, CommitMessageSettings, PushBranchMergeState,
    PushBranchMode,
};
use super::branch_lock::{BranchLock, BranchLocks, PushRoundTarget};
use super::policies::{PolicyResults, PolicySelection};
use super::policy_verification_keys::PolicyVerificationKeys;
use super::pull_request::annotated_provider;
use super::push_round::PushRound;
use super::push_round_commits::{AutomationUpdateOutcome, PushRoundUpdate};
use super::push_round_gathering::{
    ClosedPushRound, GatheredAutomation, GatheringPushRounds, PushRoundGathering,
    PushRoundGatheringClock, PushRoundRole,
};
use super::recommit_pause::{CommittedValues, RecommitPause};
use super::{ImageUpdateAutomationState, recommit_after};
use crate::image_verification::ImageVerificationKeySecretReference;

/// The interval at which a waiting leader checks whether an automation is due.
const GATHERING_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The interval at which the keys of verified policies are read again while a leader waits for a permit.
const KEYS_REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// The outcome of an update, and the results that it wrote, by the names of their policies.
pub(super) struct AutomationPushReport {
    pub(super) update: AutomationUpdateReport,
    pub(super) policies: BTreeMap<String, ImageRef>,
}

/// The end of an update that did not fail.
pub(super) enum AutomationPushEnd {
    /// The repository is up to date.
    Updated(Box<AutomationPushReport>),
    /// Another writer took back the last commit a moment ago, and nothing is committed before this time.
    Undone { until: Timestamp },
    /// The update was not made, because another run of the automation is due.
    NotNow,
}

/// The outcome of an update.
pub(super) type AutomationPushOutcome = Result<AutomationPushEnd, RunOutcome>;

type Gathering = PushRoundGathering<PushRoundMember, AutomationPushOutcome>;

/// An automation that wants its results written.
pub(super) struct PushRoundMember {
    pub(super) context: Arc<RunContext>,
    pub(super) node: ObjectKey,
    pub(super) object: Arc<ImageUpdateAutomation>,
    /// The key that signs its commits.
    pub(super) signing_key: Option<SigningKey>,
    /// Whether a pull request is proposed.
    pub(super) is_proposed: bool,
    /// Whether the push branch was merged when that was last found out.
    pub(super) known_merge: Option<PushBranchMergeState>,
    /// The values that the automation committed last, as far as this process knows.
    pub(super) committed: Option<CommittedValues>,
    /// The keys of its policies when its run began. They count if the automation joins after the leader has read the keys of
    /// all members.
    pub(super) keys: PolicyVerificationKeys,
}

impl PushRoundMember {
    /// Writes the results with the round of a target, and returns the outcome when the round has pushed.
    pub(super) async fn push(
        self,
        target: Arc<PushRoundTarget>,
        source: AutomationGitRepository,
    ) -> AutomationPushOutcome {
        let context = self.context.clone();
        let node = self.node.clone();
        let rounds = context.shared::<GatheringPushRounds<Self, AutomationPushOutcome>>();
        match rounds.join(&target, &node, self) {
            PushRoundRole::Leader { round, outcome } => {
                let leader = PushRoundLeader { context: &context, node: &node, target, source };
                leader.run(round, outcome).await
            }
            // A leader that does not get the branch gives no outcome.
            PushRoundRole::Member(outcome) => {
                outcome.await.unwrap_or(Ok(AutomationPushEnd::NotNow))
            }
            PushRoundRole::Excess => Ok(AutomationPushEnd::NotNow),
        }
    }

    /// Whether the automation was changed, suspended or deleted while its run waited. That has queued another run.
    fn is_outdated(&self) -> bool {
        let ObjectKey { namespace, name, .. } = &self.node;
        let seen = self.context.seen::<ImageUpdateAutomation>(namespace, name);
        seen.is_none_or(|seen| {
            seen.metadata.generation > self.object.metadata.generation
                || seen.metadata.deletion_timestamp.is_some()
                || is_suspended(&*seen, Timestamp::now())
        })
    }

    /// The update that writes these results.
    fn update(&mut self, policies: &PolicyResults) -> AutomationUpdate {
        let spec = &self.object.spec;
        let commit = spec.git.as_ref().map(|git| git.commit.clone()).unwrap_or_default();
        let path = spec.update.as_ref().and_then(|update| update.path.clone());
        let author = CommitIdentity {
            name: commit.author.name.unwrap_or_default(),
            email: commit.author.email,
        };
        let ObjectKey { namespace, name, .. } = self.node.clone();
        let until = recommit_after(&self.object, &policies.latest, Timestamp::now());
        let committed = self.committed.take();
        let recommit_pause =
            until.and_then(|until| committed.map(|values| RecommitPause { until, values }));
        AutomationUpdate {
            path: path.unwrap_or_default(),
            policies: policies.setters(&namespace),
            others: policies.others.clone(),
            verified: policies.verified.clone(),
            unverified: policies.unverified.clone(),
            recommit_pause,
            commit: CommitMessageSettings {
                namespace,
                name,
                template: commit.message_template.unwrap_or_default(),
                values: commit.message_template_values,
                author,
            },
            signing_key: self.signing_key.take(),
            is_proposed: self.is_proposed,
            known_merge: self.known_merge.take(),
        }
    }
}

/// The first automation of its namespace in a round.
struct PushRoundLeader<'r> {
    context: &'r Arc<RunContext>,
    node: &'r ObjectKey,
    target: Arc<PushRoundTarget>,
    source: AutomationGitRepository,
}

impl PushRoundLeader<'_> {
    /// Ends the round, unless a leader of another namespace does, and returns this automation's outcome.
    async fn run(
        self,
        round: Gathering,
        mut outcome: oneshot::Receiver<AutomationPushOutcome>,
    ) -> AutomationPushOutcome {
        let mut keys = PolicyVerificationKeys::default();
        // This comes before the branch is taken, so that an automation that waits for a permit holds no lock.
        let permit = async {
            self.gather(&round).await;
            self.permit(&round, &mut keys).await
        };
        let permit = tokio::select! {
            ended = &mut outcome => return ended.unwrap_or(Ok(AutomationPushEnd::NotNow)),
            permit = permit => permit,
        };
        let Some(ClosedPushRound { members, excess }) = round.close() else {
            drop(permit);
            return outcome.await.unwrap_or(Ok(AutomationPushEnd::NotNow));
        };
        let nodes: Vec<ObjectKey> = members.iter().map(|it| it.automation.clone()).collect();
        let locks = self.context.shared::<BranchLocks>();
        let work_queue = &self.context.work_queue;
        let taken = locks.acquire(&self.target, self.node, &nodes, work_queue);
        let Some(branch_lock) = taken else {
            for it in &excess {
                locks.enqueue_if_taken(&self.target, it);
            }
            return Ok(AutomationPushEnd::NotNow);
        };
        excess.iter().for_each(|it| branch_lock.put_off(it));
        let own = self.write(members, &keys, &branch_lock).await;
        drop(branch_lock);
        drop(permit);
        own
    }

    /// Waits for automations that are about to join, and for their results. It holds neither a permit nor the branch, and only
    /// waits if other automations push to the branch.
    async fn gather(&self, round: &Gathering) {
        let others = self.others();
        if others.is_empty() {
            return;
        }
        let work_queue = &self.context.work_queue;
        let policies = node_named::<ImagePolicy>(&self.node.namespace, "");
        let mut clock = PushRoundGatheringClock::new(Instant::now());
        while !round.is_full() {
            let is_due = others.iter().any(|it| work_queue.is_due(it) && !round.has(it));
            let is_policy_due = work_queue.is_any_due(&policies);
            if clock.is_over(Instant::now(), is_due, is_policy_due) {
                return;
            }
            tokio::time::sleep(GATHERING_POLL_INTERVAL).await;
        }
    }

    /// Acquires a permit. The members' keys are read before and during the wait, so that the holder of the branch does not
    /// wait for the API server. If the permit comes while they are read, it waits.
    async fn permit(&self, round: &Gathering, keys: &mut PolicyVerificationKeys) -> GrantedPermit {
        let mut permit = pin!(self.context.fetching.acquire(&self.node.namespace));
        loop {
            *keys = PolicyVerificationKeys::read(self.context, self.secrets(round)).await;
            let granted = tokio::time::timeout(KEYS_REFRESH_INTERVAL, permit.as_mut()).await;
            if let Ok(permit) = granted {
                return permit;
            }
        }
    }

    /// The Secrets with the keys of the verified policies of all members, each once.
    fn secrets(&self, round: &Gathering) -> BTreeMap<String, ImageVerificationKeySecretReference> {
        let mut secrets = BTreeMap::new();
        for object in round.of_each(|member| member.object.clone()) {
            let ObjectKey { namespace, .. } = node_of(&*object);
            let selection = PolicySelection::current(self.context, &object.spec, &namespace);
            // The member's own outcome contains the reason why there is no selection.
            if let Ok(selection) = selection {
                secrets.extend(selection.secrets());
            }
        }
        secrets
    }

    /// The other automations that push there, as their specs say it.
    fn others(&self) -> Vec<ObjectKey> {
        let ObjectKey { namespace, name, .. } = self.node;
        let own = self.context.seen::<ImageUpdateAutomation>(namespace, name);
        let Some(own) = own.filter(|_| self.target.alone.is_none()) else { return Vec::new() };
        let now = Timestamp::now();
        let all = self.context.store::<ImageUpdateAutomation>().state();
        let others = all.iter().filter(|other| {
            pushes_as(other, &own)
                && annotated_provider(other).is_none()
                && !is_suspended(&***other, now)
        });
        others.map(|other| node_of(&**other)).filter(|node| node != self.node).collect()
    }

    /// Writes the results of all members, and gives each member its outcome. `keys` are the keys of the verified policies.
    async fn write(
        self,
        members: Vec<GatheredAutomation<PushRoundMember, AutomationPushOutcome>>,
        keys: &PolicyVerificationKeys,
        branch_lock: &BranchLock,
    ) -> AutomationPushOutcome {
        let mut outcomes: BTreeMap<ObjectKey, AutomationPushOutcome> = BTreeMap::new();
        let mut senders = BTreeMap::new();
        let mut written = BTreeMap::new();
        let mut updates = Vec::new();
        for GatheredAutomation { automation, mut member, outcome } in members {
            senders.insert(automation.clone(), outcome);
            // The permit may have come late.
            if member.is_outdated() {
                outcomes.insert(automation, Ok(AutomationPushEnd::NotNow));
                continue;
            }
            // Another round may have written newer results meanwhile.
            let spec = &member.object.spec;
            let selection = PolicySelection::current(self.context, spec, &automation.namespace);
            match selection.and_then(|it| it.results(&keys.or(&member.keys))) {
                Ok(Some(policies)) => {
                    let update = member.update(&policies);
                    written.insert(automation.clone(), policies.latest);
                    let is_outdated = Box::new(move || member.is_outdated());
                    updates.push(PushRoundUpdate { automation, update, is_outdated });
                }
                // A policy was verified meanwhile with keys of another Secret, which has woken the automation.
                Ok(None) => {
                    outcomes.insert(automation, Ok(AutomationPushEnd::NotNow));
                }
                Err(failure) => {
                    outcomes.insert(automation, Err(failure));
                }
            }
        }
        let automations: Vec<ObjectKey> = written.keys().cloned().collect();
        let leadership = self.context.cluster.leadership.clone();
        let settings = &self.context.settings;
        let push_branch = PushBranchMode {
            is_continued: settings.continues_push_branches(),
            is_forced: settings.forces_push_branches(),
        };
        let round = PushRound { source: self.source, push_branch, leadership, updates };
        let git = operation_context(self.context);
        let work = move || Ok(round.run(&git));
        match blocking(GIT_OPERATION_FAILED, "updating the repository", work).await {
            Ok(ended) => {
                for (automation, outcome) in ended {
                    remember(self.context, &automation, &outcome, branch_lock);
                    let policies = written.remove(&automation).unwrap_or_default();
                    outcomes.insert(automation, member_outcome(outcome, policies));
                }
            }
            Err(failure) => {
                let failed = automations.into_iter().map(|it| (it, Err(failure.clone())));
                outcomes.extend(failed);
            }
        }
        let own = outcomes.remove(self.node).unwrap_or(Ok(AutomationPushEnd::NotNow));
        for (automation, outcome) in outcomes {
            if let Some(sender) = senders.remove(&automation) {
                // The run of the member may have been interrupted.
                drop(sender.send(outcome));
            }
        }
        own
    }
}

/// Wakes an automation that was put off, and remembers whether the server accepts its commits together with those of others.
fn remember(
    context: &RunContext,
    automation: &ObjectKey,
    outcome: &AutomationUpdateOutcome,
    branch_lock: &BranchLock,
) {
    let is_alone = match outcome {
        AutomationUpdateOutcome::PutOff => return branch_lock.put_off(automation),
        AutomationUpdateOutcome::Postponed
        | AutomationUpdateOutcome::Undone { .. }
        | AutomationUpdateOutcome::Failed(_) => {
            return;
        }
        AutomationUpdateOutcome::PutOffAlone => {
            branch_lock.put_off_alone(automation);
            true
        }
        AutomationUpdateOutcome::Declined(_) => true,
        AutomationUpdateOutcome::Done(_) => false,
    };
    let memory = context.shared::<StateCache<ImageUpdateAutomationState>>().of(automation);
    memory.lock().is_alone = is_alone;
}

/// The outcome of an update in the form for its automation.
fn member_outcome(
    outcome: AutomationUpdateOutcome,
    policies: BTreeMap<String, ImageRef>,
) -> AutomationPushOutcome {
    match outcome {
        AutomationUpdateOutcome::Done(update) => {
            Ok(AutomationPushEnd::Updated(Box::new(AutomationPushReport { update, policies })))
        }
        AutomationUpdateOutcome::Undone { until } => Ok(AutomationPushEnd::Undone { until }),
        AutomationUpdateOutcome::Postponed
        | AutomationUpdateOutcome::PutOff
        | AutomationUpdateOutcome::PutOffAlone => Ok(AutomationPushEnd::NotNow),
        AutomationUpdateOutcome::Failed(failure) | AutomationUpdateOutcome::Declined(failure) => {
            Err(failure)
        }
    }
}

/// Whether two specs have the same source and push target.
fn pushes_as(one: &ImageUpdateAutomation, other: &ImageUpdateAutomation) -> bool {
    let is_same = match (&one.spec.git, &other.spec.git) {
        (Some(one), Some(other)) => one.checkout == other.checkout && one.push == other.push,
        _ => false,
    };
    is_same && node_of_reference(one) == node_of_reference(other)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn automation(namespace: &str, git: &Value) -> ImageUpdateAutomation {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"interval": "1m", "git": git,
                "sourceRef": {"kind": "GitRepository", "name": "app", "namespace": "apps"}},
        }))
        .unwrap()
    }

    #[test]
    fn automations_push_together_whose_specs_name_the_same_source_checkout_and_push() {
        let author = json!({"author": {"email": "a@example.com"}});
        let plain = automation("apps", &json!({"commit": author}));
        assert!(pushes_as(&plain, &automation("tenant", &json!({"commit": {}}))), "its message");
        for other in [
            json!({"commit": author, "push": {"branch": "auto"}}),
            json!({"commit": author, "push": {"options": {"ci.skip": ""}}}),
            json!({"commit": author, "push": {"refspec": "HEAD:refs/for/main"}}),
            json!({"commit": author, "checkout": {"ref": {"branch": "next"}}}),
        ] {
            assert!(!pushes_as(&plain, &automation("apps", &other)), "{other}");
        }
        let mut elsewhere = plain.clone();
        elsewhere.spec.source_ref.namespace = None;
        assert!(pushes_as(&plain, &elsewhere), "its own namespace");
        elsewhere.spec.source_ref.name = "other".to_owned();
        assert!(!pushes_as(&plain, &elsewhere));
    }
}
