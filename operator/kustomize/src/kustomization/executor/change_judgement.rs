//! Judges what a run would change, before its first write. It says whether a user has to approve the changes, and whether a
//! user did.
//!
//! The approval is for the result of the whole run. A stage is also tried (as a dry run) if earlier stages are not applied
//! yet, and changes that this cannot find out are unverified. If a later step recreates or deletes more than was approved,
//! windlass asks for approval then. Corrections of drift need no approval.
//! Elsewhere: which changes wait and which an approval covers (`apply::planned_changes`), Plans
//! (`windlass_runtime::approval_plan`), reviewed pull requests (`../removals_in_reviewed_pull_request.rs`), deletions beyond
//! a budget (`deletion_judgement.rs`).

use std::collections::{BTreeMap, BTreeSet};

use apply::object_changes;
use apply::planned_changes::{
    PlanMode, PlannedChange, PlannedChangeKind, PlannedChanges, PlannedChangesHash,
    PlannedChangesIdentity,
};
use apply::{LiveObjectDriftState, ManifestToApply};
use futures::stream::{self, StreamExt as _};
use kube_core::{Resource as _, ResourceExt as _};
use objects::ObjectId;
use reconcile::{NextRunTrigger, RemovalCause, RunOutcome, Time};

use super::KustomizationExecutor;
use super::deletion_judgement::creation_time;
use crate::kustomization::{MANAGER, report};
use windlass_cluster::ClusterError;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_runtime::approval_plan::approvals::review_approvals;
use windlass_runtime::approval_plan::change_approval::{
    self, PLAN_MODE, PLAN_PENDING, PLAN_REJECTED, PlannedChangesDigestKey, approved_plan,
    deletion_of, digest_key, is_listed, listed, names_pull_request, reviewed_plan,
};
use windlass_runtime::approval_plan::{
    self, ApprovalPlanRequest, BudgetedDeletion, DELETION_BUDGET, DeletionSubject,
    EffectivePlanPolicy, PLAN_FAILED, UnknownPlansGuard,
};
use windlass_runtime::pull_request_approval_cache::{ReviewedResult, ReviewedRunFacts};

/// The most changed objects whose fields are compared. A Plan lists no more.
const MAX_COMPARED_OBJECTS: usize = 1000;

/// Changes that a run may carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PermittedChanges {
    /// The Plan that approves the changes. `None` if they need no approval.
    pub(super) plan: Option<String>,
    /// The objects that may be deleted.
    removed: BTreeSet<ObjectId>,
    /// The objects that may be deleted and created again.
    recreated: BTreeSet<ObjectId>,
}

impl PermittedChanges {
    fn allow(&self, known: &KnownChanges) -> bool {
        known.removed.is_subset(&self.removed) && known.recreated.is_subset(&self.recreated)
    }
}

/// The changes of a run that are known before it has compared everything.
struct KnownChanges {
    /// Whether something would be written or deleted.
    are_any: bool,
    removed: BTreeSet<ObjectId>,
    recreated: BTreeSet<ObjectId>,
}

/// The change that a run would make to an object. `None` if the object stays unchanged, or is refused.
fn change_of(state: &LiveObjectDriftState) -> Option<PlannedChangeKind> {
    match state {
        LiveObjectDriftState::Missing => Some(PlannedChangeKind::Added),
        LiveObjectDriftState::Differs => Some(PlannedChangeKind::Changed),
        LiveObjectDriftState::MustBeRecreated => Some(PlannedChangeKind::Recreated),
        LiveObjectDriftState::InSync
        | LiveObjectDriftState::Skipped
        | LiveObjectDriftState::Finished
        | LiveObjectDriftState::Unmanaged
        | LiveObjectDriftState::Refused(_)
        | LiveObjectDriftState::Incompatible(_) => None,
    }
}

fn is_refused(state: &LiveObjectDriftState) -> bool {
    matches!(state, LiveObjectDriftState::Refused(_) | LiveObjectDriftState::Incompatible(_))
}

impl KustomizationExecutor {
    /// Judges the changes of the run. Its first `observed` stages were compared already. If this fails, the run may not change
    /// anything.
    ///
    /// # Errors
    /// A user has to approve the changes first, or it is not known whether an approval is needed.
    pub(super) async fn judge_changes(&self, observed: usize) -> Result<(), RunOutcome> {
        // A user deleted the Kustomization, or an applier did, which was asked for that.
        let is_guarded = self.context.settings.plan_approval
            && self.settings.removal == RemovalCause::Pruned
            && !self.settings.is_correction;
        if !is_guarded {
            return Ok(());
        }
        let object = self.object();
        let annotation = object.annotations().get(PLAN_MODE).map(String::as_str);
        let own = self.self_applied_policies();
        let read = || approval_plan::applier_rules(&self.context, &self.node.namespace, &own);
        // If no approval is needed, there is no further work.
        if read().is_ok_and(|rules| rules.mode.tightened(annotation) == PlanMode::Automatic) {
            return Ok(());
        }
        let known = self.known_changes(observed);
        if self.known().cleared.as_ref().is_some_and(|cleared| cleared.allow(&known)) {
            return Ok(());
        }
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject::of(&self.node, &uid);
        if !known.are_any && !approval_plan::has_plans(&self.context, &subject) {
            return Ok(());
        }
        let rules = match known.are_any {
            true => self.when_known(UnknownPlansGuard::Changes, read)?,
            // No change is made that would have to wait.
            false => match read() {
                Ok(rules) => rules,
                Err(_) => return Ok(()),
            },
        };
        let mode = rules.mode.tightened(annotation);
        if mode == PlanMode::Automatic {
            return Ok(());
        }
        let key = match digest_key(&self.context).await {
            Ok(key) => key,
            Err(_) if !known.are_any => return Ok(()),
            Err(error) => return Err(self.plan_failed(&error)),
        };
        let KnownChanges { removed, recreated, are_any } = known;
        let content = self.result_content();
        let result = PlannedChangesIdentity { content: content.clone(), removed, recreated };
        let is_approved = self.is_approved(&subject, &key, &result, &rules).await;
        if !are_any || is_approved? {
            return Ok(());
        }
        let changes = self.all_changes(observed).await?;
        let result = PlannedChangesIdentity {
            content,
            removed: changes.ids(PlannedChangeKind::Removed),
            recreated: changes.ids(PlannedChangeKind::Recreated),
        };
        if !changes.waits_under(mode) {
            let PlannedChangesIdentity { removed, recreated, .. } = result;
            self.known().cleared = Some(PermittedChanges { plan: None, removed, recreated });
            return Ok(());
        }
        // If its list was cut, an approval is for exactly the whole result.
        if self.is_approved(&subject, &key, &result, &rules).await? {
            return Ok(());
        }
        Err(self.held_changes(&subject, &key, &result, changes, rules).await)
    }

    /// Whether a Plan approves a result, so that the result may be applied. The rights of the approving users are reviewed for
    /// that. If they did not approve, a reviewed pull request may have.
    async fn is_approved(
        &self,
        subject: &DeletionSubject<'_>,
        key: &PlannedChangesDigestKey,
        result: &PlannedChangesIdentity,
        rules: &EffectivePlanPolicy,
    ) -> Result<bool, RunOutcome> {
        let reviewed = review_approvals(&self.context, subject).await;
        reviewed.map_err(|text| self.approvers_unknown(text))?;
        let terms = rules.terms_of_changes();
        let mut plan = self.when_known(UnknownPlansGuard::Changes, || {
            approved_plan(&self.context, subject, key, result, &terms)
        })?;
        if plan.is_none()
            && names_pull_request(&self.context, subject)
            && let Some(run) = self.reviewed_facts().await?
        {
            plan = self.when_known(UnknownPlansGuard::Changes, || {
                reviewed_plan(&self.context, subject, key, result, &terms, &run)
            })?;
        }
        let Some(plan) = plan else { return Ok(false) };
        let change_approval::ApprovedPlan { name, removed, recreated } = plan;
        self.known().cleared = Some(PermittedChanges { plan: Some(name), removed, recreated });
        Ok(true)
    }

    /// The facts of the run with which an approval by a pull request has to agree. `None` if no pull request can approve it:
    /// nothing was applied before with this spec, an earlier result is applied in place of a quarantined one, or a kubeconfig
    /// names the cluster, which may change without a new spec.
    async fn reviewed_facts(&self) -> Result<Option<ReviewedRunFacts>, RunOutcome> {
        let object = self.object();
        let merged = self.settings.digest.clone();
        let is_forward = report::is_spec_applied(&object) && !self.settings.is_way_back;
        let is_reviewable = is_forward && self.target.place().is_empty();
        let applied = report::last_applied_build(&object).filter(|_| is_reviewable);
        let known_since = applied.zip(report::applied_since(&object, &merged));
        let Some((applied, since)) = known_since else { return Ok(None) };
        let result = ReviewedResult { merged, applied: applied.to_owned() };
        if self.desired.prune {
            self.observe_prune_candidates().await?;
        }
        let removed = self.prune_candidates();
        let known = self.known();
        let removed = removed.iter().filter_map(|id| known.live.get(id)).map(creation_time);
        let newest = removed.fold(since, Time::max);
        Ok(Some(ReviewedRunFacts { newest: Some(newest), result: Some(result) }))
    }

    /// The known changes after the first `observed` stages were compared. If an object in these stages is refused, or an empty
    /// build is not allowed, nothing is written.
    fn known_changes(&self, observed: usize) -> KnownChanges {
        let removed = if self.desired.prune { self.prune_candidates() } else { BTreeSet::new() };
        let known = self.known();
        let manifests = self.desired.stages.iter().take(observed).flat_map(|it| &it.objects);
        let states: Vec<(&ObjectId, &LiveObjectDriftState)> =
            manifests.filter_map(|it| Some((&it.id, known.seen.get(&it.id)?))).collect();
        let is_refused =
            self.is_refused_as_empty() || states.iter().any(|(_, state)| is_refused(state));
        let is_changed = states.iter().any(|(_, state)| change_of(state).is_some());
        let is_recreated = |it: &&(&ObjectId, &LiveObjectDriftState)| {
            change_of(it.1) == Some(PlannedChangeKind::Recreated)
        };
        let recreated = states.iter().filter(is_recreated).map(|it| it.0.clone()).collect();
        let are_any = !is_refused && (is_changed || !removed.is_empty());
        KnownChanges { are_any, removed, recreated }
    }

    /// A text that identifies the result besides its removals: the built objects, their target and user, and the last applied
    /// build.
    fn result_content(&self) -> String {
        let object = self.object();
        let base = report::last_applied_build(&object).unwrap_or_default();
        let uid = object.uid().unwrap_or_default();
        let target = format!("{} {}", self.target.place(), self.target.user());
        let mut hash = PlannedChangesHash::begin(&uid, &target, base);
        for manifest in self.desired.stages.iter().flat_map(|stage| &stage.objects) {
            hash.add(manifest.id.to_string().as_bytes());
            hash.add(manifest.digest.as_bytes());
        }
        hash.finish()
    }

    /// Everything that the run would change. Stages after the first `observed` are tried now, and forgotten again.
    async fn all_changes(&self, observed: usize) -> Result<PlannedChanges, RunOutcome> {
        let mut changes = PlannedChanges::default();
        for (at, stage) in self.desired.stages.iter().enumerate() {
            let states = match at < observed {
                true => BTreeMap::new(),
                false => self.previewed_stage(&stage.objects).await?,
            };
            for manifest in &stage.objects {
                let state = states.get(&manifest.id).cloned();
                let state = state.or_else(|| self.known().seen.get(&manifest.id).cloned());
                changes.objects.extend(state.and_then(|state| self.change(manifest, &state)));
            }
        }
        if self.desired.prune {
            self.observe_prune_candidates().await?;
            let generated = self.generated_objects();
            for id in self.prune_candidates() {
                if generated.has_newer(&id) {
                    changes.replaced.insert(id.clone());
                }
                changes.objects.push(PlannedChange::new(id, PlannedChangeKind::Removed));
            }
        }
        Ok(changes)
    }

    /// The change that the run would make to an object. If the change cannot be tried yet, it is unverified. `None` if the
    /// object stays unchanged.
    fn change(
        &self,
        manifest: &ManifestToApply,
        state: &LiveObjectDriftState,
    ) -> Option<PlannedChange> {
        let id = manifest.id.clone();
        if let Some(kind) = change_of(state) {
            return Some(PlannedChange::new(id, kind));
        }
        let kind = match self.known().recorded.contains(&id) {
            true => PlannedChangeKind::Changed,
            false => PlannedChangeKind::Added,
        };
        is_refused(state)
            .then(|| PlannedChange { is_unverified: true, ..PlannedChange::new(id, kind) })
    }

    /// Compares the objects of a later stage. The results are not kept, because they may differ once the earlier stages are
    /// applied.
    async fn previewed_stage(
        &self,
        manifests: &[ManifestToApply],
    ) -> Result<BTreeMap<ObjectId, LiveObjectDriftState>, RunOutcome> {
        let before = self.refusal_notes();
        let width = usize::from(self.context.settings.concurrent_ssa);
        let previews: Vec<_> = manifests.iter().map(|it| self.previewed_object(it)).collect();
        let found: Vec<Result<(ObjectId, LiveObjectDriftState), ClusterError>> =
            stream::iter(previews).buffer_unordered(width).collect().await;
        let mut states = BTreeMap::new();
        for result in found {
            let (id, state) = result.map_err(|error| self.no_answer(&error))?;
            states.insert(id, state);
        }
        self.restore_refusal_notes(before);
        Ok(states)
    }

    /// Names the fields that would change. They are information only, so an object that cannot be compared has none.
    async fn compare_fields(&self, changes: &mut PlannedChanges) {
        let is_compared = |it: &&PlannedChange| {
            let is_secret = it.id.group.is_empty() && it.id.kind == "Secret";
            it.kind == PlannedChangeKind::Changed && !it.is_unverified && !is_secret
        };
        let compared: BTreeSet<ObjectId> = changes
            .objects
            .iter()
            .filter(is_compared)
            .take(MAX_COMPARED_OBJECTS)
            .map(|it| it.id.clone())
            .collect();
        let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
        let comparisons: Vec<_> = manifests
            .filter(|manifest| compared.contains(&manifest.id))
            .map(|manifest| self.changed_fields(manifest))
            .collect();
        let width = usize::from(self.context.settings.concurrent_ssa);
        let fields: BTreeMap<ObjectId, Vec<String>> =
            stream::iter(comparisons).buffer_unordered(width).collect().await;
        for change in &mut changes.objects {
            change.fields = fields.get(&change.id).cloned().unwrap_or_default();
        }
    }

    async fn changed_fields(&self, manifest: &ManifestToApply) -> (ObjectId, Vec<String>) {
        let id = manifest.id.clone();
        let fields = self.dry_run_fields(manifest).await.ok().flatten().unwrap_or_default();
        let fields = fields.iter().map(|field| self.settings.secrets.mask(field)).collect();
        (id, fields)
    }

    async fn dry_run_fields(
        &self,
        manifest: &ManifestToApply,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let ManifestToApply { id, object, .. } = manifest;
        let cluster = &self.target.cluster;
        let resource = self.resource(id).await?;
        let live = cluster.get(&resource, &id.namespace, &id.name).await?;
        let dry = cluster.apply(&resource, object, MANAGER, DryRunMode::DryRun).await?;
        Ok(live.map(|live| object_changes::fields(&live, &dry)))
    }

    /// The outcome of a run that a user has to approve. Its Plan is created.
    async fn held_changes(
        &self,
        subject: &DeletionSubject<'_>,
        key: &PlannedChangesDigestKey,
        result: &PlannedChangesIdentity,
        mut changes: PlannedChanges,
        rules: EffectivePlanPolicy,
    ) -> RunOutcome {
        let deletion = self.deletion_of_result(&changes, rules).await;
        if !is_listed(&self.context, subject, key, result, &deletion) {
            self.compare_fields(&mut changes).await;
        }
        let request = ApprovalPlanRequest {
            subject: *subject,
            owner: self.object().owner_ref(&()),
            revision: &self.desired.revision,
            deletion: &deletion,
            changes: Some(listed(key, result, &changes)),
        };
        let plan = approval_plan::request(&self.context, &request, jiff::Timestamp::now()).await;
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return self.plan_failed(&error),
        };
        let namespace = &self.node.namespace;
        let revision = &self.desired.revision;
        // Another mode may not ask.
        self.known().missing.extend(approval_plan::budget_nodes(namespace));
        let wake = NextRunTrigger::at(self.settings.plan_again_at);
        if let Some(rejection) = plan.as_ref().and_then(|it| it.rejection.as_deref()) {
            return RunOutcome::Blocked(
                PLAN_REJECTED,
                format!("revision {revision} {rejection}"),
                wake,
            );
        }
        let note = plan.as_ref().map(|it| it.note.as_str()).unwrap_or_default();
        let name = plan.as_ref().map(|it| it.name.as_str());
        let waiting = changes.waits_for_approval(namespace, name);
        RunOutcome::Running(PLAN_PENDING, format!("revision {revision} {waiting}{note}"), wake)
    }

    /// The deletions of a result, and the part that exceeds the deletion budget. An approval of the result covers them, too.
    async fn deletion_of_result(
        &self,
        changes: &PlannedChanges,
        rules: EffectivePlanPolicy,
    ) -> BudgetedDeletion {
        let terms = rules.terms_of_changes();
        let removed = changes.ids(PlannedChangeKind::Removed);
        let is_judged = self.context.settings.deletion_budget && !removed.is_empty();
        match rules.budget {
            Some(budget) if is_judged => {
                let object = self.object();
                let annotation = object.annotations().get(DELETION_BUDGET).map(String::as_str);
                let budget = budget.tightened(annotation);
                let exempt = self.note_exempt(&removed, &budget, &self.generated_objects());
                // The budget does not count these objects. They wait for the Plan like all other changes.
                let counted: BTreeSet<ObjectId> = removed.difference(&exempt).cloned().collect();
                let uncounted = removed.len().saturating_sub(counted.len());
                let BudgetedDeletion { mut verdict, budget, terms, .. } =
                    self.budgeted(counted, budget, terms).await;
                verdict.deleted = verdict.deleted.saturating_add(uncounted);
                // `reviewed_facts` has the ages that count for an approval by a pull request.
                BudgetedDeletion { ids: removed, verdict, budget, terms, newest: None }
            }
            budget => deletion_of(changes, budget, terms),
        }
    }

    /// The outcome of a run that does not know whether the users who approved still have the right to approve.
    pub(super) fn approvers_unknown(&self, text: String) -> RunOutcome {
        RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(self.settings.retry_at))
    }

    fn plan_failed(&self, error: &ClusterError) -> RunOutcome {
        let text = format!("a Plan cannot be created or deleted: {error}");
        RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(self.settings.retry_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> BTreeSet<ObjectId> {
        names.iter().map(|name| ObjectId::new("shop", name, "", "ConfigMap")).collect()
    }

    #[test]
    fn what_is_found_later_is_not_cleared_by_what_was_known_before() {
        let cleared =
            PermittedChanges { plan: None, removed: ids(&["a", "b"]), recreated: BTreeSet::new() };
        let found = |removed: &[&str], recreated: &[&str]| {
            let [removed, recreated] = [removed, recreated].map(ids);
            cleared.allow(&KnownChanges { are_any: true, removed, recreated })
        };
        assert!(found(&["a"], &[]) && found(&[], &[]));
        assert!(!found(&["a", "c"], &[]) && !found(&[], &["a"]));
    }

    #[test]
    fn an_object_that_is_refused_is_no_change() {
        for state in [LiveObjectDriftState::InSync, LiveObjectDriftState::Refused(String::new())] {
            assert_eq!(change_of(&state), None);
        }
        assert_eq!(
            change_of(&LiveObjectDriftState::MustBeRecreated),
            Some(PlannedChangeKind::Recreated)
        );
        assert!(is_refused(&LiveObjectDriftState::Incompatible(String::new())));
    }
}
