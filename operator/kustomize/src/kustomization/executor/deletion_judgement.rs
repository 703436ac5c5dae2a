//! Judges what a run would prune: whether it is within the deletion budget, or approved.
//!
//! Elsewhere: what a budget allows (`apply::deletion_budget`), what becomes of a deletion that is held
//! (`deletion_hold.rs`), which recorded objects are to be deleted (`observe`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use apply::deletion_budget::{DeletedObject, PendingDeletion, applied_objects, is_applier_kind};
use apply::generated_objects::GeneratedObjects;
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};
use reconcile::{DependencyEdge, NextRunTrigger, RemovalCause, RunOutcome};

use super::KustomizationExecutor;
use crate::kustomization::deletion_counts;
use crate::kustomization::deletion_hold::{BUDGET_UNKNOWN, DELETION_BUDGET, DeletionJudgement};
use windlass_runtime::deletion_plan::{self, BudgetedDeletion, DeletionSubject, PlanAnswer};
use windlass_runtime::namespace_policies;

/// How many appliers are read that would be deleted with others.
const MAX_FOLLOWED_APPLIERS: usize = 64;

/// How many objects are counted that would be deleted with appliers.
const MAX_FOLLOWING_OBJECTS: usize = 20_000;

/// What would be deleted together with appliers.
#[derive(Default)]
struct FollowingDeletions {
    ids: BTreeSet<ObjectId>,
    /// The appliers of which it is not known.
    unreadable: BTreeSet<ObjectId>,
}

impl KustomizationExecutor {
    /// Judges the deletion of what left the manifests and is still there.
    ///
    /// # Errors
    /// The budget or the approvals are not known, so that nothing may be deleted.
    pub(super) async fn judge_deletion(&self) -> Result<(), RunOutcome> {
        let judgement = self.deletion_judgement().await?;
        let held = match &judgement {
            // With former versions of generated objects, which the others may use.
            DeletionJudgement::Held(_) => self.prune_candidates(),
            DeletionJudgement::NotJudged
            | DeletionJudgement::Free
            | DeletionJudgement::Approved => BTreeSet::new(),
        };
        let mut known = self.known();
        known.held = held;
        if !known.held.is_empty() {
            // Another budget may allow it.
            known.missing.insert(deletion_plan::policies_node());
            known.missing.insert(namespace_policies::labels_node_of(&self.node.namespace));
        }
        known.deletion = judgement;
        Ok(())
    }

    async fn deletion_judgement(&self) -> Result<DeletionJudgement, RunOutcome> {
        // A user deleted the Kustomization, or an applier did, whose own budget counted its objects.
        if self.settings.removal != RemovalCause::Pruned {
            return Ok(DeletionJudgement::NotJudged);
        }
        let candidates = self.prune_candidates();
        if candidates.is_empty() || !self.context.settings.deletion_budget {
            return Ok(DeletionJudgement::Free);
        }
        let policy = self
            .when_known(|| deletion_plan::namespace_budget(&self.context, &self.node.namespace))?;
        let Some(budget) = policy.budget else { return Ok(DeletionJudgement::Free) };
        let object = self.object();
        let annotation = object.annotations().get(DELETION_BUDGET).map(String::as_str);
        let budget = budget.tightened(annotation);
        let generated = self.generated_objects();
        let is_judged = |id: &ObjectId| !budget.leaves_unjudged(id, &generated);
        let ids: BTreeSet<ObjectId> = candidates.into_iter().filter(is_judged).collect();
        if ids.is_empty() {
            return Ok(DeletionJudgement::Free);
        }
        let before = self.known().deletion.clone();
        if matches!(&before, DeletionJudgement::Held(deletion) if deletion.ids == ids) {
            return Ok(before);
        }
        let deleted: BTreeMap<ObjectId, Object> = {
            let known = self.known();
            let live = ids.iter().filter_map(|id| Some((id.clone(), known.live.get(id)?.clone())));
            live.collect()
        };
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject { node: &self.node, uid: &uid };
        let following = self.following(&deleted).await;
        let now = jiff::Timestamp::now();
        let (recorded, uncounted) = {
            let known = self.known();
            (known.recorded.len(), known.uncounted.clone())
        };
        let counted = uncounted.iter().filter(|id| !generated.has_newer(id)).cloned().collect();
        let further = deletion_plan::unapproved_count(&self.context, &subject, &counted);
        let counts = deletion_counts::recorded(&object);
        let pending = PendingDeletion {
            objects: deleted.values().map(|live| DeletedObject::new(live, false)).collect(),
            following: following.ids,
            unreadable: following.unreadable,
            of: recorded.saturating_sub(uncounted.len()),
            recent: counts.map(|it| it.within_hour(now).saturating_add(further)),
        };
        let verdict = budget.verdict(&pending);
        let policies = policy.policies;
        let deletion = BudgetedDeletion { ids, verdict, budget, policies };
        let answer =
            self.when_known(|| deletion_plan::answer(&self.context, &subject, &deletion, now))?;
        Ok(match (deletion.verdict.is_within(), answer) {
            (_, PlanAnswer::Approved) => DeletionJudgement::Approved,
            (true, PlanAnswer::None) => DeletionJudgement::Free,
            (true, PlanAnswer::Waits) | (false, PlanAnswer::None | PlanAnswer::Waits) => {
                DeletionJudgement::Held(deletion)
            }
        })
    }

    /// The recorded objects that left the manifests, are there, and are ours to delete.
    fn prune_candidates(&self) -> BTreeSet<ObjectId> {
        let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
        let wanted: BTreeSet<&ObjectId> = manifests.map(|manifest| &manifest.id).collect();
        let known = self.known();
        let is_candidate = |id: &&ObjectId| {
            !wanted.contains(*id)
                && !known.gone.contains(*id)
                && !known.leaving.contains(*id)
                && known.live.contains_key(*id)
        };
        known.recorded.ids().filter(is_candidate).cloned().collect()
    }

    /// The generated ConfigMaps and Secrets of the manifests.
    fn generated_objects(&self) -> GeneratedObjects {
        let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
        GeneratedObjects::among(manifests.map(|manifest| &manifest.id))
    }

    /// What PlanPolicies or Plans say. If it is not known, nothing may be deleted now, and the node is woken when it is.
    fn when_known<T>(&self, read: impl Fn() -> Result<T, String>) -> Result<T, RunOutcome> {
        if let Ok(known) = read() {
            return Ok(known);
        }
        let nodes = [
            deletion_plan::policies_node(),
            deletion_plan::plans_node(),
            namespace_policies::labels_node_of(&self.node.namespace),
        ];
        let missing = {
            let mut known = self.known();
            known.missing.extend(nodes);
            known.missing.clone()
        };
        self.context.work_queue.set_edges(&self.node, DependencyEdge::Waits, missing);
        // It may have become known between the first answer and the wait, and would not wake the node then.
        read().map_err(|why| {
            let text = format!(
                "objects that left the manifests are not deleted: {why}; if that lasts, apply the ClusterRoles and \
                 CustomResourceDefinitions of this version of windlass, or set --deletion-budget=false"
            );
            RunOutcome::Blocked(BUDGET_UNKNOWN, text, NextRunTrigger::at(self.settings.retry_at))
        })
    }

    /// What would be deleted with the appliers among some objects: what they applied, and what appliers among that applied.
    async fn following(&self, deleted: &BTreeMap<ObjectId, Object>) -> FollowingDeletions {
        let mut following = FollowingDeletions::default();
        let appliers = deleted.iter().filter(|(id, _)| is_applier_kind(id));
        let mut followed: BTreeSet<ObjectId> = appliers.clone().map(|(id, _)| id.clone()).collect();
        let mut queue: VecDeque<Object> = appliers.map(|(_, live)| live.clone()).collect();
        while let Some(applier) = queue.pop_front() {
            let applied = applied_objects(&applier);
            let applied = applied
                .filter(|it| following.ids.len().saturating_add(it.len()) <= MAX_FOLLOWING_OBJECTS);
            let Some(applied) = applied else {
                following.unreadable.insert(applier.id());
                continue;
            };
            // What it applied to another cluster is not read with this connection.
            let is_here = applier.get("spec").is_none_or(|spec| spec.get("kubeConfig").is_none());
            for entry in applied {
                following.ids.insert(entry.id.clone());
                if !is_applier_kind(&entry.id) || !followed.insert(entry.id.clone()) {
                    continue;
                }
                if !is_here || followed.len() > MAX_FOLLOWED_APPLIERS {
                    following.unreadable.insert(entry.id);
                    continue;
                }
                let read = self.target.cluster.get_by_id(&entry.id, &entry.version).await;
                match read {
                    Ok(Some(live)) => queue.push_back(live),
                    Ok(None) => {}
                    Err(_) => {
                        following.unreadable.insert(entry.id);
                    }
                }
            }
        }
        following
    }

    /// How many of the objects that leave the inventory were deleted without approval.
    pub(super) fn deleted_without_approval(&self, to: &apply::ObjectInventory) -> usize {
        let object = self.object();
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject { node: &self.node, uid: &uid };
        let mut gone: BTreeSet<ObjectId> = {
            let known = self.known();
            known.uncounted.iter().filter(|id| !to.contains(id)).cloned().collect()
        };
        if gone.is_empty() || self.settings.removal != RemovalCause::Pruned {
            return 0;
        }
        let generated = self.generated_objects();
        gone.retain(|id| !generated.has_newer(id));
        deletion_plan::unapproved_count(&self.context, &subject, &gone)
    }
}
