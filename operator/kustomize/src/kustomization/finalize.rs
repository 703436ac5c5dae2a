//! The deletion of a Kustomization. By its policy, windlass deletes the objects that it applied.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crds::ReconciledObject as _;
use crds::kustomize::Kustomization;
use lifecycle::LifecycleEventAnswer;
use objects::SecretMasking;
use parking_lot::{Mutex, MutexGuard};
use reconcile::{RemovalCause, RunOutcome, condition_reason};

use super::audit::RunChanges;
use super::executor::{ApplySettings, DriftCheckScope};
use super::lifecycle_holds::{HeldAttempt, LifecycleHold};
use super::validated_spec::{self, KustomizationTimeouts};
use super::{KustomizationController, KustomizationRunReport, KustomizationSession, report};
use windlass_cluster::ClusterError;
use windlass_runtime::applier_run::{AFTER_REFUSAL, FinalizeOutcome};
use windlass_runtime::object_hold;

/// The most ended removals that are remembered.
const MAX_REMEMBERED_FINALIZATIONS: usize = 1000;

impl KustomizationSession<'_> {
    /// Deletes the objects that a deleted Kustomization applied, by its policy.
    pub(super) async fn finalize(
        &self,
        object: &Arc<Kustomization>,
    ) -> Result<FinalizeOutcome<KustomizationController>, ClusterError> {
        let finished = self.context.shared::<FinalizedKustomizations>();
        // A run may begin before the watch reports that the finalizer is gone. It sends no request then.
        if finished.has(object) {
            return Ok(FinalizeOutcome::Done(object.clone()));
        }
        self.audit_stopped(object, |_| false, "the Kustomization is being deleted").await;
        let (prune, await_end) = validated_spec::deletion(&object.spec);
        let timeouts = validated_spec::check(&object.spec).unwrap_or(KustomizationTimeouts {
            interval: AFTER_REFUSAL,
            retry: AFTER_REFUSAL,
            timeout: reconcile::kustomization_timeout(AFTER_REFUSAL, None),
        });
        let inventory = object.status.as_ref().and_then(|s| s.inventory.as_ref());
        let has_nothing = inventory.is_none_or(|inventory| inventory.entries.is_empty());
        // Parity(flux): a suspended Kustomization leaves its objects behind. One that has none needs no cluster to
        // delete them from, so it goes even when that cannot be reached.
        let stays = !prune || object_hold::is_suspended(&**object, self.began);
        let held = LifecycleHold::removal(self, object);
        self.dismiss_events(object, Some(&held)).await;
        if stays {
            self.audit_stopped_removal(object, "the other objects stay in the cluster").await;
        }
        if stays || has_nothing {
            if !stays && inventory.is_some() {
                let gone = RunOutcome::Settled(condition_reason::SUCCEEDED, String::new());
                let mut ended = KustomizationRunReport::early(object, gone);
                let answers = self.removed(object, &held, &mut ended).await;
                self.audit_removal(object, &ended, RunChanges::default(), answers).await;
                if !ended.outcome.is_settled() {
                    return Ok(FinalizeOutcome::Later(Box::new(ended), Some(timeouts)));
                }
            }
            finished.put(object);
            self.dismiss_events(object, None).await;
            return Ok(FinalizeOutcome::Done(object.clone()));
        }
        let passed = match self.pass_before(object, &held).await {
            Ok(passed) => passed,
            Err(HeldAttempt { outcome, .. }) => {
                let ended = KustomizationRunReport::early(object, outcome);
                return Ok(FinalizeOutcome::Later(Box::new(ended), Some(timeouts)));
            }
        };
        let (unanswered, dependents_awaited) = {
            let memory = self.memory();
            (memory.unanswered.clone(), memory.dependents_awaited.clone())
        };
        let apply_settings = ApplySettings {
            digest: String::new(),
            verify: DriftCheckScope::Drifted,
            force: false,
            removal: RemovalCause::OwnerDeleted,
            await_end,
            health_versions: BTreeMap::new(),
            expressions: self.expressions.clone(),
            healthy: BTreeMap::new(),
            failed_wait: None,
            is_correction: false,
            is_way_back: false,
            freeze: None,
            contests: Arc::default(),
            unanswered,
            dependents_awaited,
            secrets: SecretMasking::default(),
            ignore: Arc::default(),
            retry_at: self.in_future(timeouts.retry),
            plan_again_at: self.in_future(timeouts.interval),
        };
        let target = match self.finalize_target(object).await {
            Ok(Some(target)) => target,
            Ok(None) => {
                let why = "the account or kubeconfig that could remove the other objects is gone";
                self.audit_stopped_removal(object, why).await;
                return Ok(FinalizeOutcome::Done(object.clone()));
            }
            Err(error) => {
                let ended = KustomizationRunReport::early(object, unreachable(error.outcome()?));
                return Ok(FinalizeOutcome::Later(Box::new(ended), Some(timeouts)));
            }
        };
        let nothing = Arc::new(validated_spec::finalize(object, timeouts));
        let (mut ended, done) = self.drive(&passed, object, nothing, apply_settings, &target).await;
        let answers = match ended.outcome.is_settled() {
            true => self.removed(object, &held, &mut ended).await,
            false => Vec::new(),
        };
        let unfinished = done.audited.terminating.clone().filter(|_| await_end);
        self.audit_removal(object, &ended, done.audited, answers).await;
        if !ended.outcome.is_settled() {
            return Ok(FinalizeOutcome::Later(Box::new(ended), Some(timeouts)));
        }
        finished.put(object);
        self.dismiss_events(object, None).await;
        let mut events = report::finalized(&ended.object, &ended.came.changes);
        if let Some(unfinished) = unfinished {
            events.push(report::gave_up_waiting(&ended.object, &unfinished));
        }
        for event in events {
            self.context.events.announce(&*ended.object, Kustomization::CONTROLLER, event);
        }
        Ok(FinalizeOutcome::Done(ended.object))
    }
}

/// The uids of the newest Kustomizations whose removal has ended.
#[derive(Default)]
struct FinalizedKustomizations(Mutex<VecDeque<String>>);

impl FinalizedKustomizations {
    fn all(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock()
    }

    fn has(&self, object: &Kustomization) -> bool {
        self.all().iter().any(|uid| object.metadata.uid.as_ref() == Some(uid))
    }

    fn put(&self, object: &Kustomization) {
        let mut all = self.all();
        all.extend(object.metadata.uid.clone());
        if all.len() > MAX_REMEMBERED_FINALIZATIONS {
            all.pop_front();
        }
    }
}

impl KustomizationSession<'_> {
    /// All applied objects are gone. The removal waits for the answers of lifecycles to that.
    async fn removed(
        &self,
        object: &Kustomization,
        held: &LifecycleHold,
        ended: &mut KustomizationRunReport,
    ) -> Vec<LifecycleEventAnswer> {
        let before = self.answered_before(object, held);
        // A Kustomization that was never applied has no removal.
        let status = object.status.as_ref();
        if status.is_none_or(|status| status.last_applied_revision.is_none()) {
            return before;
        }
        match self.pass_after(object, held, before).await {
            Ok(answers) => answers,
            Err(HeldAttempt { outcome, answers }) => {
                ended.outcome = outcome;
                answers
            }
        }
    }
}

/// The outcome if objects cannot be deleted, with the advice how to go on without deleting them.
fn unreachable(outcome: RunOutcome) -> RunOutcome {
    let RunOutcome::Failed(reason, text, wake) = outcome else { return outcome };
    let advice = "its objects cannot be deleted; to leave them in the cluster, set spec.deletionPolicy: Orphan";
    RunOutcome::Failed(reason, format!("{text}; {advice}"), wake)
}
