//! Judges what an operation would delete, before the operation begins. The deletions have to be within the deletion budget, or
//! approved.
//!
//! An approval of all changes of an operation (`change_judgement`) covers its deletions, too.
//! Elsewhere: which operations are judged (engine `release`), what a budget allows (engine `apply`), Plans and PlanPolicies
//! (`windlass_runtime::approval_plan`), deleting the objects (`object_writes`).

use std::collections::{BTreeMap, BTreeSet};

use apply::deletion_budget::{DeletedObject, DeletionRule, DeletionToJudge};
use apply::generated_config_maps_and_secrets::GeneratedConfigMapsAndSecrets;
use apply::prune_candidates::{
    identity_in, is_same_object, missing_count, removed_objects, without_hooks,
};
use helm::template::RenderedRelease;
use objects::{Object, ObjectId};
use reconcile::{NextRunTrigger, RunOutcome, Time};
use release::{
    OperationKind, PlannedOperation, ReleaseDesiredState, ReleaseRecord, journaled_deletions,
};

use super::ReleaseStatusOwner;
use super::executor::ReleaseExecutor;
use super::manifest_objects::{self, ManifestObject, POLICY, POLICY_KEEP};
use super::prepare_revision::RevisionInputs;
use windlass_runtime::approval_plan::approvals::review_approvals;
use windlass_runtime::approval_plan::cascading_deletions::following;
use windlass_runtime::approval_plan::{
    self, ApprovalPlanRequest, BUDGET_EXCEEDED, BudgetedDeletion, DeletionClearance,
    DeletionSubject, PLAN_FAILED, UnknownPlansGuard,
};
use windlass_runtime::crd_guard::{self, crd_owners::UNOWNED};

/// A rendered revision to which windlass may upgrade.
pub(super) struct PermittedRendering {
    pub(super) version: i64,
    pub(super) rendered: RenderedRelease,
    /// How many objects of the current revision are deleted with it without the approval of a user.
    pub(super) deletions: usize,
}

/// Objects of a revision that an operation would delete, by their manifests.
struct OperationDeletions<'r> {
    deletion: PlannedOperation,
    /// The revision with the objects.
    record: &'r ReleaseRecord,
    members: Vec<ManifestObject>,
    /// The number of all objects, including the new ones.
    of: usize,
    /// The generated objects of the revision that replaces it.
    generated: GeneratedConfigMapsAndSecrets,
}

/// The objects of a revision that stay, by its manifests. Those that are hooks, too, are deleted to run these.
fn staying<'t>(
    manifests: impl Iterator<Item = &'t str>,
    hooks: impl Iterator<Item = &'t str>,
    namespace: &str,
) -> Result<Vec<Object>, String> {
    let objects: Vec<Vec<Object>> =
        manifests.map(manifest_objects::read).collect::<Result<_, _>>()?;
    let hooks = hooks.flat_map(|text| manifest_objects::read(text).unwrap_or_default());
    // Definitions are never deleted as hooks.
    let hooks: Vec<Object> = hooks.filter(|it| !crd_guard::is_definition(it)).collect();
    Ok(without_hooks(objects.into_iter().flatten().collect(), &hooks, namespace))
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// Judges an operation before it begins. Returns how many objects it deletes without the approval of a user.
    ///
    /// # Errors
    /// A user has to approve the operation first, or it is not known whether an approval is needed.
    pub(super) async fn judge_operation(
        &self,
        operation: PlannedOperation,
    ) -> Result<usize, RunOutcome> {
        match operation {
            PlannedOperation::Install { version } => self.judge_revision(version, None).await,
            PlannedOperation::Upgrade { version } => {
                let current = self.revisions();
                let Some(base) = current.current().map(|it| &*it.record) else { return Ok(0) };
                self.judge_revision(version, Some(base)).await
            }
            PlannedOperation::Rollback { from, to } => {
                let base = self.record(from)?;
                let target = self.record(to)?;
                let is_approved =
                    self.judge_recorded_changes(operation, &base, Some(&*target)).await?;
                if is_approved || !self.context.settings.deletion_budget {
                    return Ok(0);
                }
                let hooks = target.hooks.iter().map(|it| &*it.manifest);
                let after = staying(std::iter::once(&*target.manifest), hooks, &base.namespace);
                // Unreadable manifests are not applied, and nothing is deleted.
                let Ok(after) = after else { return Ok(0) };
                self.judge_left(operation, &base, &after).await
            }
            PlannedOperation::Uninstall { version, .. } => {
                let record = self.record(version)?;
                if self.judge_recorded_changes(operation, &record, None).await? {
                    return Ok(0);
                }
                self.judge_uninstall(operation, &record).await
            }
            // The remediation belongs to the Plan of the upgrade that it undoes.
            PlannedOperation::Remediation { version } => {
                let record = self.record(version)?;
                self.judge_uninstall(operation, &record).await
            }
        }
    }

    /// Judges the deletion of all objects of a revision.
    async fn judge_uninstall(
        &self,
        deletion: PlannedOperation,
        record: &ReleaseRecord,
    ) -> Result<usize, RunOutcome> {
        if !self.context.settings.deletion_budget {
            return Ok(0);
        }
        let members = match self.leaving(record).await {
            Ok(members) => members,
            // The operation fails for the same reason when it begins.
            Err(error) => return error.text().map(|_| 0),
        };
        let of = members.len();
        let generated = GeneratedConfigMapsAndSecrets::default();
        self.judge_leaving(OperationDeletions { deletion, record, members, of, generated }).await
    }

    /// Judges an installation, or an upgrade from `base`, before any object of it is written.
    async fn judge_revision(
        &self,
        version: i64,
        base: Option<&ReleaseRecord>,
    ) -> Result<usize, RunOutcome> {
        let is_limited = base.is_some() && self.context.settings.deletion_budget;
        if !is_limited && !self.may_wait()? {
            return Ok(0);
        }
        let action = match base {
            Some(_) => OperationKind::Upgrade,
            None => OperationKind::Install,
        };
        let rendered = match self.revision_inputs(action, version, base) {
            Ok(RevisionInputs { chart, config, release }) => {
                self.rendered(chart, config, release, action).await
            }
            Err(error) => Err(error),
        };
        let rendered = match rendered {
            Ok(rendered) => rendered,
            // The rendering either fails again when the operation is prepared, or succeeds and is judged then.
            Err(error) => {
                error.text()?;
                return self.judge_unrendered_changes(version, base).await.map(|_| 0);
            }
        };
        let judged = self.judged_rendering(version, rendered, base).await?;
        let deletions = judged.deletions;
        self.known().judged = Some(judged);
        Ok(deletions)
    }

    /// Judges an upgrade from `base` to a rendered revision. An installation has no `base`.
    ///
    /// # Errors
    /// As [`Self::judge_operation`].
    pub(super) async fn judged_rendering(
        &self,
        version: i64,
        rendered: RenderedRelease,
        base: Option<&ReleaseRecord>,
    ) -> Result<PermittedRendering, RunOutcome> {
        let mut deletions = 0;
        let is_approved = self.judge_rendered_changes(version, &rendered, base).await?;
        let is_limited = self.context.settings.deletion_budget && !is_approved;
        if let Some(base) = base.filter(|_| is_limited) {
            let manifests = rendered.manifests.iter().map(|it| &*it.content);
            let hooks = rendered.hooks.iter().map(|it| &*it.manifest);
            // Unreadable manifests are refused before an object is written.
            if let Ok(after) = staying(manifests, hooks, &base.namespace) {
                let deletion = PlannedOperation::Upgrade { version };
                deletions = self.judge_left(deletion, base, &after).await?;
            }
        }
        Ok(PermittedRendering { version, rendered, deletions })
    }

    /// Judges the deletion of objects that are in a revision and not in the manifests of another one.
    async fn judge_left(
        &self,
        deletion: PlannedOperation,
        record: &ReleaseRecord,
        after: &[Object],
    ) -> Result<usize, RunOutcome> {
        // No object of an unreadable revision is deleted.
        let before = manifest_objects::read(&record.manifest).unwrap_or_default();
        let namespace = &record.namespace;
        let left = removed_objects(&before, after, namespace);
        if left.is_empty() {
            return Ok(0);
        }
        let mut members = Vec::new();
        for object in left {
            let cluster = &self.target.cluster;
            let found = manifest_objects::reached(cluster, object.clone(), namespace).await;
            let found = found.map_err(|error| self.no_answer(&error))?;
            let stays = |it: &ManifestObject| {
                after.iter().any(|new| is_same_object(new, namespace, &it.id))
            };
            members.extend(found.filter(|it| !stays(it)));
        }
        let of = before.len().saturating_add(removed_objects(after, &before, namespace).len());
        let after: Vec<ObjectId> = after.iter().map(|it| identity_in(it, namespace)).collect();
        let generated = GeneratedConfigMapsAndSecrets::among(&after);
        self.judge_leaving(OperationDeletions { deletion, record, members, of, generated }).await
    }

    /// Judges the deletion of those objects that exist.
    async fn judge_leaving(&self, leaving: OperationDeletions<'_>) -> Result<usize, RunOutcome> {
        let ReleaseDesiredState { owner, .. } = self.desired();
        let policy = self.when_known(UnknownPlansGuard::Deletions, || {
            approval_plan::namespace_rules(&self.context, &self.node.namespace)
        })?;
        let terms = policy.terms_of_deletions();
        let Some(budget) = policy.budget.filter(|_| !leaving.members.is_empty()) else {
            return Ok(0);
        };
        let budget = budget.tightened(self.owner.deletion_limit().as_deref());
        let width = usize::from(self.context.settings.concurrent_ssa);
        let live = manifest_objects::live(&self.target.cluster, &leaving.members, width).await;
        let live = live.map_err(|error| self.no_answer(&error))?;
        let mut deleted: BTreeMap<ObjectId, Object> = BTreeMap::new();
        // A release is an applier, and no object of an applier is exempt.
        let is_uninstall =
            matches!(leaving.deletion, PlannedOperation::Uninstall { is_replaced: false, .. });
        for (member, live) in leaving.members.iter().zip(live) {
            let is_judged = !budget.leaves_unjudged(&member.id, &leaving.generated);
            let is_exempt = |it: &Object| !is_uninstall && budget.exempts(it, false);
            let goes = |it: &Object| is_judged && !is_exempt(it) && self.goes(it, leaving.record);
            if let Some(live) = live.filter(goes) {
                deleted.insert(member.id.clone(), live);
            }
        }
        if deleted.is_empty() {
            return Ok(0);
        }
        let following = following(&self.target.cluster, &deleted).await;
        let now = jiff::Timestamp::now();
        let count = deleted.len();
        let recent = journaled_deletions::within_hour(&self.revisions(), now, |attempt| {
            let manifests = manifest_objects::read(&attempt.manifest);
            manifests.map_or(0, |it| missing_count(&it, &attempt.namespace, deleted.keys()))
        });
        let pending = DeletionToJudge {
            objects: deleted.values().map(|live| DeletedObject::new(live, false)).collect(),
            following: following.ids,
            unreadable: following.unreadable,
            of: leaving.of,
            recent: Some(recent),
            // A chart without templates does not count as a build that lost its manifests, since a missing chart is an error.
            is_empty_build: false,
        };
        let mut verdict = budget.verdict(&pending);
        if is_uninstall {
            verdict.exceeded.push(DeletionRule::Uninstall);
        }
        let ids = deleted.keys().cloned().collect();
        let judged = BudgetedDeletion { ids, verdict, budget, terms, newest: None };
        let node = self.node.whole();
        let release = self.release_of_owner();
        let operation = leaving.deletion.operation(self.desired());
        let subject = DeletionSubject {
            release: &release,
            operation: &operation,
            ..DeletionSubject::of(&node, owner)
        };
        let reviewed = review_approvals(&self.context, &subject).await;
        reviewed.map_err(|text| self.approvers_unknown(&text))?;
        let clearance = self.when_known(UnknownPlansGuard::Deletions, || {
            approval_plan::clearance(&self.context, &subject, &judged, now)
        })?;
        match clearance {
            DeletionClearance::Free => Ok(count),
            DeletionClearance::Approved => {
                let kept = approval_plan::kept_objects(&self.context, &subject, &judged, now);
                deleted.retain(|id, _| kept.contains(id));
                self.keep(&leaving.members, &deleted).await.map(|()| 0)
            }
            DeletionClearance::Held => Err(self.held(subject, leaving.deletion, &judged).await),
        }
    }

    /// Marks the objects that a user keeps with Helm's keep annotation, in the cluster. After a restart the operation goes on
    /// without being judged again, and it reads each object before it deletes the object. A release that has the object again
    /// takes over the annotation and removes it.
    async fn keep(
        &self,
        members: &[ManifestObject],
        kept: &BTreeMap<ObjectId, Object>,
    ) -> Result<(), RunOutcome> {
        let cluster = &self.target.cluster;
        for ManifestObject { id, resource, .. } in members {
            let Some(live) = kept.get(id) else { continue };
            let Err(error) = cluster.annotate(resource, live, POLICY, POLICY_KEEP, UNOWNED).await
            else {
                continue;
            };
            if error.is_of_server() {
                return Err(self.no_answer(&error));
            }
            self.note_refusal(&error, id);
            let subject = id.subject();
            let text = format!("{subject} cannot be kept by the annotation {POLICY}: {error}");
            let at = NextRunTrigger::at(self.retry_at());
            return Err(RunOutcome::Failed(PLAN_FAILED, text, at));
        }
        Ok(())
    }

    /// Whether an object is deleted if the release does not have it any more.
    fn goes(&self, live: &Object, record: &ReleaseRecord) -> bool {
        let is_kept = manifest_objects::is_kept(live)
            || manifest_objects::is_of_another(live, &record.name, &record.namespace);
        let stays_in_chart =
            crd_guard::is_definition(live) && self.comes_with_the_chart(live.name());
        !is_kept && !stays_in_chart && live.meta("deletionTimestamp").is_none()
    }

    /// The name of the release in Plans. Empty if the owner has no other release.
    pub(super) fn release_of_owner(&self) -> String {
        let ReleaseDesiredState { kube_context, spec, .. } = self.desired();
        let release = format!("{}/{}", spec.target.namespace, spec.target.name);
        match (self.node.is_part(), kube_context.is_empty()) {
            (false, _) => String::new(),
            (true, true) => release,
            (true, false) => format!("{kube_context}/{release}"),
        }
    }

    /// The time of the next run after one that could not find out a fact.
    pub(super) fn retry_at(&self) -> Time {
        jiff::Timestamp::now().saturating_add(self.desired().retry).unwrap_or(Time::MAX)
    }

    /// Unwraps the answer of PlanPolicies or Plans. If the answer is not known yet, the held changes may not be made now, and
    /// the node is woken when the answer is known.
    pub(super) fn when_known<T>(
        &self,
        guard: UnknownPlansGuard,
        read: impl Fn() -> Result<T, String>,
    ) -> Result<T, RunOutcome> {
        let none = BTreeSet::new();
        approval_plan::when_known(&self.context, guard, &self.node, &none, read).map_err(|text| {
            let nodes = approval_plan::budget_nodes(&self.node.namespace);
            let nodes = nodes.into_iter().chain([approval_plan::plans_node()]);
            RunOutcome::Blocked(
                guard.unknown(),
                text,
                NextRunTrigger::on(nodes).and_at(self.retry_at()),
            )
        })
    }

    /// The outcome of a run that must not delete before a user approves it. Its Plan is created.
    async fn held(
        &self,
        subject: DeletionSubject<'_>,
        deletion: PlannedOperation,
        judged: &BudgetedDeletion,
    ) -> RunOutcome {
        let desired = self.desired();
        let revision = deletion.revision(desired);
        let owner = self.owner.reference();
        let request = ApprovalPlanRequest {
            subject,
            owner,
            revision: &revision,
            deletion: judged,
            changes: None,
        };
        let plan = approval_plan::request(&self.context, &request, jiff::Timestamp::now()).await;
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                let text = format!("a Plan cannot be created or deleted: {error}");
                return RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(self.retry_at()));
            }
        };
        if let Some(rejection) = plan.as_ref().and_then(|it| it.rejection.as_deref()) {
            let deletes = judged.would_delete();
            let text = format!("{} {rejection}; it {deletes}", deletion.subject(desired));
            return self.rejected(&text);
        }
        // Another budget may allow it.
        self.known().lacked.extend(approval_plan::budget_nodes(&self.node.namespace));
        let note = plan.as_ref().map(|it| it.note.clone()).unwrap_or_default();
        let plan = plan.map(|it| it.name);
        let text = format!(
            "{} {}; {}{note}",
            deletion.subject(desired),
            judged.waits_for_approval(&self.node.namespace, plan.as_deref()),
            deletion.advice()
        );
        let wake = NextRunTrigger::at(self.soon_again());
        RunOutcome::Running(BUDGET_EXCEEDED, self.desired_release.masked(&text), wake)
    }

    /// Deletes the Plans of a release that is in its desired state. Their changes were made, or are not needed any more.
    pub(super) async fn dismiss_plans(&self, outcome: RunOutcome) -> RunOutcome {
        let node = self.node.whole();
        let release = self.release_of_owner();
        let owner = &self.desired().owner;
        let subject = DeletionSubject { release: &release, ..DeletionSubject::of(&node, owner) };
        match approval_plan::dismiss(&self.context, &subject, None).await {
            Ok(()) => outcome,
            Err(error) => {
                // The approval of the Plan would count for another deletion of the same objects.
                let text = format!("a Plan that is carried out cannot be deleted: {error}");
                RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(self.retry_at()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_a_hook_deletes_does_not_stay_and_a_definition_does() {
        let text = |version: &str, kind: &str| {
            format!("apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: data\n")
        };
        let claim = text("v1", "PersistentVolumeClaim");
        let definition = text("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let both = [claim.as_str(), &definition, "{"];
        let kinds = |hooks: &[&str]| {
            let stay = staying(both[..2].iter().copied(), hooks.iter().copied(), "shop").unwrap();
            stay.iter().map(|it| it.kind().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&[]), ["PersistentVolumeClaim", "CustomResourceDefinition"]);
        assert_eq!(kinds(&both), ["CustomResourceDefinition"]);
        assert!(staying(both.into_iter(), std::iter::empty(), "shop").is_err());
    }
}
