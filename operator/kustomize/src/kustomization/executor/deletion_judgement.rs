//! Judges what a run would prune. The deletions have to be within the deletion budget, or approved.
//!
//! Elsewhere: what a budget allows (`apply::deletion_budget`), deletions that are held (`over_budget_prune.rs`), which recorded
//! objects are to be deleted (`observe`).

use std::collections::{BTreeMap, BTreeSet};

use apply::deletion_budget::{DeletedObject, DeletionBudget, DeletionToJudge};
use apply::generated_config_maps_and_secrets::GeneratedConfigMapsAndSecrets;
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};
use quarantine::rollback_protected_objects::{deletes_claims, is_kept};
use reconcile::{NextRunTrigger, RemovalCause, RunOutcome, Time};

use super::KustomizationExecutor;
use crate::kustomization::deletion_counts;
use crate::kustomization::over_budget_prune::DeletionJudgement;
use windlass_runtime::approval_plan::approvals::{ApprovalRequirements, review_approvals};
use windlass_runtime::approval_plan::cascading_deletions::following;
use windlass_runtime::approval_plan::self_applied_policies::SelfAppliedPolicies;
use windlass_runtime::approval_plan::{
    self, BudgetedDeletion, DELETION_BUDGET, DeletionClearance, DeletionSubject, UnknownPlansGuard,
};

/// The creation time of an object, by the clock of the API server. An object without a time counts as newer than all others.
pub(super) fn creation_time(object: &Object) -> Time {
    let time = object.meta("creationTimestamp").and_then(|it| it.as_str()?.parse().ok());
    time.unwrap_or(Time::MAX)
}

impl KustomizationExecutor {
    /// Judges the deletion of existing objects that left the manifests.
    ///
    /// # Errors
    /// The budget or the approvals are not known, so that nothing may be deleted.
    pub(super) async fn judge_deletion(&self) -> Result<(), RunOutcome> {
        let judgement = self.deletion_judgement().await?;
        let held = match &judgement {
            // This includes former versions of generated objects, which the held objects may use.
            DeletionJudgement::Held(_) => self.prune_candidates(),
            DeletionJudgement::NotJudged
            | DeletionJudgement::Free
            | DeletionJudgement::Approved => BTreeSet::new(),
        };
        let mut known = self.known();
        let kept = known.kept.clone();
        known.held = held.difference(&known.exempt).cloned().collect();
        known.held.extend(kept);
        if !known.held.is_empty() {
            // Another budget may allow it.
            known.missing.extend(approval_plan::budget_nodes(&self.node.namespace));
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
        // The plan fails such a build and deletes nothing. So there is nothing new to approve, and held deletions stay held.
        if self.is_refused_as_empty() {
            return Ok(DeletionJudgement::NotJudged);
        }
        // An approval of the result is one of its deletions.
        if !candidates.is_empty() && self.approved_plan().is_some() {
            return Ok(DeletionJudgement::Approved);
        }
        if candidates.is_empty() || !self.context.settings.deletion_budget {
            return Ok(DeletionJudgement::Free);
        }
        let own = self.self_applied_policies();
        let rules = self.when_known(UnknownPlansGuard::Deletions, || {
            approval_plan::applier_rules(&self.context, &self.node.namespace, &own)
        })?;
        let terms = rules.terms_of_deletions();
        let Some(budget) = rules.budget else { return Ok(DeletionJudgement::Free) };
        let object = self.object();
        let annotation = object.annotations().get(DELETION_BUDGET).map(String::as_str);
        let budget = budget.tightened(annotation);
        let generated = self.generated_objects();
        let exempt = self.note_exempt(&candidates, &budget, &generated);
        let is_judged =
            |id: &ObjectId| !exempt.contains(id) && !budget.leaves_unjudged(id, &generated);
        let ids: BTreeSet<ObjectId> = candidates.into_iter().filter(is_judged).collect();
        if ids.is_empty() {
            return Ok(DeletionJudgement::Free);
        }
        let before = self.known().deletion.clone();
        if matches!(&before, DeletionJudgement::Held(deletion) if deletion.ids == ids) {
            return Ok(before);
        }
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject::of(&self.node, &uid);
        let deletion = self.budgeted(ids, budget, terms).await;
        let reviewed = review_approvals(&self.context, &subject).await;
        reviewed.map_err(|text| self.approvers_unknown(text))?;
        let now = jiff::Timestamp::now();
        let clearance = self.when_known(UnknownPlansGuard::Deletions, || {
            approval_plan::clearance(&self.context, &subject, &deletion, now)
        })?;
        Ok(match clearance {
            DeletionClearance::Free => DeletionJudgement::Free,
            DeletionClearance::Approved => {
                let kept = approval_plan::kept_objects(&self.context, &subject, &deletion, now);
                // These objects leave the inventory like objects that do not exist any more.
                self.known().gone.extend(kept);
                DeletionJudgement::Approved
            }
            DeletionClearance::Held => DeletionJudgement::Held(Box::new(deletion)),
        })
    }

    /// Whether the build has no objects although an empty build is not allowed. In that case the plan of the run fails, and
    /// nothing is deleted.
    pub(super) fn is_refused_as_empty(&self) -> bool {
        self.desired.stages.is_empty() && !self.desired.empty_is_intended
    }

    /// Compares the deletion of objects that left the manifests, and are not exempt, with a budget. If the deletion exceeds
    /// the budget, it needs an approval.
    pub(super) async fn budgeted(
        &self,
        ids: BTreeSet<ObjectId>,
        budget: DeletionBudget,
        terms: ApprovalRequirements,
    ) -> BudgetedDeletion {
        let object = self.object();
        let deleted: BTreeMap<ObjectId, Object> = {
            let known = self.known();
            let live = ids.iter().filter_map(|id| Some((id.clone(), known.live.get(id)?.clone())));
            live.collect()
        };
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject::of(&self.node, &uid);
        let following = following(&self.target.cluster, &deleted).await;
        let now = jiff::Timestamp::now();
        let (recorded, uncounted) = {
            let known = self.known();
            (known.recorded.len(), known.uncounted.clone())
        };
        let generated = self.generated_objects();
        let counted: BTreeSet<ObjectId> = {
            let known = self.known();
            let is_counted =
                |id: &&ObjectId| !known.exempt.contains(*id) && !generated.has_newer(id);
            uncounted.iter().filter(is_counted).cloned().collect()
        };
        let further = approval_plan::unapproved_count(&self.context, &subject, &counted);
        let counts = deletion_counts::recorded(&object);
        let pending = DeletionToJudge {
            objects: deleted.values().map(|live| DeletedObject::new(live, false)).collect(),
            following: following.ids,
            unreadable: following.unreadable,
            of: recorded.saturating_sub(uncounted.len()),
            recent: counts.map(|it| it.within_hour(now).saturating_add(further)),
            is_empty_build: self.desired.stages.is_empty(),
        };
        let verdict = budget.verdict(&pending);
        let newest = deleted.values().map(creation_time).max();
        BudgetedDeletion { ids, verdict, budget, terms, newest }
    }

    /// Finds the objects to delete that are exempt from the budget. Returns them together with the deleted ones.
    ///
    /// A build without any object exempts none. Former versions of generated objects are not judged. They stay as long as held
    /// objects may use them.
    pub(super) fn note_exempt(
        &self,
        candidates: &BTreeSet<ObjectId>,
        budget: &DeletionBudget,
        generated: &GeneratedConfigMapsAndSecrets,
    ) -> BTreeSet<ObjectId> {
        let is_empty_build = self.desired.stages.is_empty();
        let mut known = self.known();
        let is_exempt = |id: &ObjectId| {
            !is_empty_build
                && !generated.has_newer(id)
                && known.live.get(id).is_some_and(|it| budget.exempts(it, false))
        };
        let exempt: BTreeSet<ObjectId> =
            candidates.iter().filter(|id| is_exempt(id)).cloned().collect();
        known.exempt.retain(|id| !candidates.contains(id));
        known.exempt.extend(exempt);
        known.exempt.clone()
    }

    /// The recorded objects that left the manifests, are there, and are ours to delete.
    pub(super) fn prune_candidates(&self) -> BTreeSet<ObjectId> {
        let mut stale = self.stale_objects();
        let known = self.known();
        // Objects that stay need no approval.
        stale.retain(|id| !known.kept.contains(id));
        stale
    }

    /// Finds objects of the quarantined manifests that stay during a rollback. These are objects whose data no revision
    /// restores, objects whose deletion takes such objects along, and objects of which this is not known. They stay in the
    /// inventory, and the next revision of the source decides about them.
    pub(super) async fn note_kept(&self) {
        if !self.settings.is_way_back {
            return;
        }
        let stale = self.stale_objects();
        let stale: BTreeMap<ObjectId, Object> = {
            let known = self.known();
            let live = stale.into_iter().filter_map(|id| {
                let live = known.live.get(&id)?.clone();
                Some((id, live))
            });
            live.collect()
        };
        let mut kept = BTreeSet::new();
        for (id, live) in stale {
            let has_data = is_kept(&id) || deletes_claims(&live);
            let alone = BTreeMap::from([(id.clone(), live)]);
            let following = following(&self.target.cluster, &alone).await;
            if has_data || !following.unreadable.is_empty() || following.ids.iter().any(is_kept) {
                kept.insert(id);
            }
        }
        self.known().kept = kept;
    }

    fn stale_objects(&self) -> BTreeSet<ObjectId> {
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

    /// The policies that the Kustomization applies itself and that decide about its deletions and changes. Such a policy may
    /// not loosen its budget or its mode.
    pub(super) fn self_applied_policies(&self) -> SelfAppliedPolicies {
        // PlanPolicies only decide for their own cluster.
        let is_here = self.target.place().is_empty();
        let stages = self.desired.stages.iter().filter(|_| is_here);
        let manifests = stages.flat_map(|stage| &stage.objects).map(|manifest| &manifest.object);
        let known = self.known();
        let recorded = known.recorded.ids().filter(|_| is_here);
        SelfAppliedPolicies::of(&self.node, recorded, manifests)
    }

    /// The generated ConfigMaps and Secrets of the manifests.
    pub(super) fn generated_objects(&self) -> GeneratedConfigMapsAndSecrets {
        let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
        GeneratedConfigMapsAndSecrets::among(manifests.map(|manifest| &manifest.id))
    }

    /// Unwraps the answer of PlanPolicies or Plans. If the answer is not known yet, the held changes may not be made now, and
    /// the node is woken when the answer is known.
    pub(super) fn when_known<T>(
        &self,
        guard: UnknownPlansGuard,
        read: impl Fn() -> Result<T, String>,
    ) -> Result<T, RunOutcome> {
        let missing = self.known().missing.clone();
        let known = approval_plan::when_known(&self.context, guard, &self.node, &missing, read);
        known.map_err(|text| {
            let mut known = self.known();
            known.missing.extend(approval_plan::budget_nodes(&self.node.namespace));
            known.missing.insert(approval_plan::plans_node());
            let wake = NextRunTrigger::at(self.settings.retry_at);
            RunOutcome::Blocked(guard.unknown(), text, wake)
        })
    }

    /// How many of the objects that leave the inventory were deleted without approval.
    pub(super) fn deleted_without_approval(&self, to: &apply::ObjectInventory) -> usize {
        let object = self.object();
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject::of(&self.node, &uid);
        let mut gone: BTreeSet<ObjectId> = {
            let known = self.known();
            let is_gone = |id: &&ObjectId| !to.contains(id) && !known.exempt.contains(*id);
            known.uncounted.iter().filter(is_gone).cloned().collect()
        };
        if gone.is_empty() || self.settings.removal != RemovalCause::Pruned {
            return 0;
        }
        let generated = self.generated_objects();
        gone.retain(|id| !generated.has_newer(id));
        approval_plan::unapproved_count(&self.context, &subject, &gone)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_without_a_time_counts_as_newer_than_everything() {
        let created = |time: serde_json::Value| {
            let metadata = json!({"name": "a", "namespace": "shop", "creationTimestamp": time});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            creation_time(&Object::new(object).unwrap())
        };
        assert_eq!(created(json!("2026-11-01T11:00:00Z")).as_second(), 1_793_530_800);
        assert_eq!(created(json!(null)), Time::MAX);
        assert_eq!(created(json!("yesterday")), Time::MAX);
    }
}
