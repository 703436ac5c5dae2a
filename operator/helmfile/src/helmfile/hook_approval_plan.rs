//! Plans for the hooks of a release on which no operation begins, because only the hooks' manifests changed or the release was
//! adopted. If all changes wait for approval, a user approves these hooks, too.
//!
//! Elsewhere: when hooks are applied (`hooks_without_operation.rs`), Plans of operations with their hooks
//! (`helm_controller::release_runner::change_judgement`), Plans themselves (`windlass_runtime::approval_plan`).

use std::collections::BTreeSet;

use apply::planned_changes::{
    PlanMode, PlannedChange, PlannedChangeKind, PlannedChanges, PlannedChangesHash,
    PlannedChangesIdentity,
};
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId, SecretMasking};
use reconcile::{DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome};
use release::ReleaseDesiredState;

use super::HelmfileSession;
use super::helmfile_kind_differences::HelmfileCustomResource;
use super::hooks::ReleaseHooks;
use super::hooks_without_operation::ReleaseDigestChange;
use super::plan::ReleaseKey;
use super::release_reconciler::{HelmfileRun, ReleaseRunState};
use super::release_status_writer::HelmfileReleaseOwner;
use helm_controller::release_runner::{ReleaseStatusOwner as _, manifest_objects};
use windlass_cluster::ClusterError;
use windlass_runtime::approval_plan::approvals::review_approvals;
use windlass_runtime::approval_plan::change_approval::{
    PLAN_PENDING, PLAN_REJECTED, approved_plan, deletion_of, digest_key, listed,
};
use windlass_runtime::approval_plan::{
    self, ApprovalPlanRequest, DeletionSubject, PLAN_FAILED, UnknownPlansGuard,
};

/// The name of a release's hooks in Plans. It differs from the name in Plans of operations, which are deleted when the release
/// is as desired.
fn hooks_of(key: &ReleaseKey) -> String {
    format!("{key} hooks")
}

/// The changes of hooks, as a Plan shows them to people. Windlass does not find out whether an object exists already, and
/// which of its fields change.
pub(super) fn hook_changes(hooks: &ReleaseHooks, secrets: &SecretMasking) -> PlannedChanges {
    let mut ids: BTreeSet<ObjectId> = BTreeSet::new();
    for hook in &hooks.all {
        // Unreadable manifests are not applied.
        let objects = manifest_objects::read(&hook.manifests).unwrap_or_default();
        ids.extend(objects.iter().map(Object::id));
    }
    let change = |id: ObjectId| {
        let change = PlannedChange::new(id, PlannedChangeKind::Changed);
        PlannedChange { is_unverified: true, ..change }
    };
    let names = hooks.all.iter().map(|hook| format!("helmfile: {}", secrets.mask(&hook.name)));
    PlannedChanges {
        objects: ids.into_iter().map(change).collect(),
        hooks: names.collect(),
        ..PlannedChanges::default()
    }
}

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// Judges hooks that are about to be applied.
    ///
    /// # Errors
    /// A user has to approve the hooks first, or it is not known whether an approval is needed.
    pub(super) async fn judge_hooks(
        &self,
        owner: &HelmfileReleaseOwner<K>,
        desired: &ReleaseDesiredState,
        remembered: &ReleaseRunState,
        of: &ReleaseDigestChange<'_>,
        run: &HelmfileRun<'_, K>,
    ) -> Result<(), RunOutcome> {
        // The Plan of an operation has the hooks that are applied with it.
        if !self.context.settings.plan_approval || remembered.has_begun_with(&owner.hooks.digest) {
            return Ok(());
        }
        let node = remembered.node();
        let namespace = &self.node.namespace;
        let retry_at = self.in_future(run.timeouts.retry);
        let unknown = |text: String| {
            let nodes = approval_plan::budget_nodes(namespace).into_iter();
            let wake = NextRunTrigger::on(nodes.chain([approval_plan::plans_node()]));
            RunOutcome::Blocked(UnknownPlansGuard::Changes.unknown(), text, wake.and_at(retry_at))
        };
        let failed = |error: ClusterError| {
            let text = format!("a Plan cannot be created or deleted: {error}");
            RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(retry_at))
        };
        let none: BTreeSet<ObjectKey> = BTreeSet::new();
        let rules = approval_plan::when_known(
            &self.context,
            UnknownPlansGuard::Changes,
            node,
            &none,
            || approval_plan::namespace_rules(&self.context, namespace),
        );
        let rules = rules.map_err(unknown)?;
        // Hooks delete and recreate no objects.
        if rules.mode.tightened(owner.plan_mode().as_deref()) != PlanMode::Approve {
            return Ok(());
        }
        let key = digest_key(&self.context).await.map_err(failed)?;
        let uid = run.object.uid().unwrap_or_default();
        let target = remembered.target();
        let place = format!("{} {} {}", target.place(), target.user(), owner.key);
        let mut content = PlannedChangesHash::begin(&uid, &place, of.known.unwrap_or_default());
        content.add(b"hooks");
        content.add(owner.hooks.digest.as_bytes());
        let result = PlannedChangesIdentity {
            content: content.finish(),
            removed: BTreeSet::new(),
            recreated: BTreeSet::new(),
        };
        let release = hooks_of(&owner.key);
        let subject =
            DeletionSubject { release: &release, ..DeletionSubject::of(&self.node, &uid) };
        let terms = rules.terms_of_changes();
        review_approvals(&self.context, &subject)
            .await
            .map_err(|text| RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(retry_at)))?;
        let plan = approval_plan::when_known(
            &self.context,
            UnknownPlansGuard::Changes,
            node,
            &none,
            || approved_plan(&self.context, &subject, &key, &result, &terms),
        );
        if plan.map_err(unknown)?.is_some() {
            return Ok(());
        }
        // Parsing many manifests here would block the other tasks of this thread.
        let hooks = owner.hooks.clone();
        let secrets = run.secrets.clone();
        let changes = tokio::task::spawn_blocking(move || hook_changes(&hooks, &secrets)).await;
        let changes = changes.unwrap_or_default();
        let deletion = deletion_of(&changes, rules.budget, terms);
        let request = ApprovalPlanRequest {
            subject,
            owner: owner.reference(),
            revision: &desired.origin.revision,
            deletion: &deletion,
            changes: Some(listed(&key, &result, &changes)),
        };
        let plan = approval_plan::request(&self.context, &request, jiff::Timestamp::now()).await;
        let plan = plan.map_err(failed)?;
        // Another mode may not ask.
        let nodes = BTreeSet::from(approval_plan::budget_nodes(namespace));
        self.context.work_queue.set_edges(node, DependencyEdge::Waits, nodes);
        let wake = NextRunTrigger::at(self.in_future(run.timeouts.interval));
        if let Some(rejection) = plan.as_ref().and_then(|it| it.rejection.as_deref()) {
            let text = format!("a change of the manifests of its hooks {rejection}");
            return Err(RunOutcome::Blocked(PLAN_REJECTED, run.secrets.mask(&text), wake));
        }
        let name = plan.as_ref().map(|it| it.name.as_str());
        let note = plan.as_ref().map(|it| it.note.as_str()).unwrap_or_default();
        let waiting = changes.waits_for_approval(namespace, name);
        let text = run.secrets.mask(&format!("the manifests of its hooks {waiting}{note}"));
        Err(RunOutcome::Running(PLAN_PENDING, text, wake))
    }

    /// Deletes the Plans of hooks that are applied, or not desired any more.
    ///
    /// # Errors
    /// The API server refuses a request, or does not respond.
    pub(super) async fn dismiss_hook_plans(
        &self,
        key: &ReleaseKey,
        run: &HelmfileRun<'_, K>,
    ) -> Result<(), ClusterError> {
        let uid = run.object.uid().unwrap_or_default();
        let release = hooks_of(key);
        let subject =
            DeletionSubject { release: &release, ..DeletionSubject::of(&self.node, &uid) };
        approval_plan::dismiss(&self.context, &subject, None).await
    }
}

#[cfg(test)]
mod tests {
    use helmfile::{ManifestHook, ManifestHookTime};

    use super::*;

    #[test]
    fn a_plan_of_hooks_names_their_objects_and_counts_them_as_unverified() {
        let hook = |name: &str, manifests: &str| ManifestHook {
            name: name.to_owned(),
            when: ManifestHookTime::Before,
            manifests: manifests.to_owned(),
        };
        let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n";
        let hooks = ReleaseHooks::new(vec![hook("first", manifest), hook("unread", "{")]);
        let changes = hook_changes(&hooks, &SecretMasking::default());
        assert_eq!(changes.summary(), "1 changed, 1 of them unverified, hooks: 2");
        assert_eq!(changes.hooks, ["helmfile: first", "helmfile: unread"]);
        assert!(!changes.is_destructive());
        let key = ReleaseKey {
            context: String::new(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        assert_ne!(hooks_of(&key), key.to_string(), "not the Plans of its operations");
    }
}
