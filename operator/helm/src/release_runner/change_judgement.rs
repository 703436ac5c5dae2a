//! Judges what an operation would change, before the operation begins. It says whether a user has to approve the changes, and
//! whether a user did.
//!
//! A Plan compares two manifests: the manifest of the current revision, and the one that the chart renders now. An approval is
//! for that rendering. A chart that renders something else each time can therefore not be approved.
//! Elsewhere: which operations are judged (engine `release`), which changes wait and which an approval covers (engine `apply`,
//! `planned_changes`), Plans (`windlass_runtime::approval_plan`), deletions beyond a budget (`deletion_judgement`).

use std::collections::BTreeSet;

use apply::deletion_budget::DeletionBudget;
use apply::object_changes::{self, ObjectChange, ObjectChangeKind};
use apply::planned_changes::{
    PlanMode, PlannedChange, PlannedChangeKind, PlannedChanges, PlannedChangesHash,
    PlannedChangesIdentity,
};
use crds::helm::CrdsPolicy;
use helm::manifests::ReleaseHook;
use helm::template::RenderedRelease;
use objects::{Object, ObjectId};
use reconcile::{NextRunTrigger, RunOutcome, Time};
use release::record::HookRecord;
use release::release_spec::{ReleaseSpec, RemediationStrategy, UpgradeSettings};
use release::{OperationKind, PlannedOperation, ReleaseDesiredState, ReleaseRecord};

use super::ReleaseStatusOwner;
use super::executor::ReleaseExecutor;
use super::manifest_objects::{self, POLICY};
use super::prepare_revision::RevisionInputs;
use super::step_error::StepError;
use windlass_cluster::ClusterError;
use windlass_runtime::approval_plan::approvals::review_approvals;
use windlass_runtime::approval_plan::change_approval::{
    PLAN_NOT_REPRODUCIBLE, PLAN_PENDING, PLAN_REJECTED, approved_plan, deletion_of, digest_key,
    is_listed, listed,
};
use windlass_runtime::approval_plan::{
    self, ApprovalPlanRequest, DeletionSubject, EffectivePlanPolicy, PLAN_FAILED, RequestedPlan,
    UnknownPlansGuard,
};

/// The rules by which an operation may have to wait.
struct ChangeApprovalRules {
    mode: PlanMode,
    rules: EffectivePlanPolicy,
}

/// A hook of a revision, rendered or recorded.
struct PlannedHook<'h> {
    kind: &'h str,
    name: &'h str,
    manifest: &'h str,
    events: Vec<&'h str>,
    weight: i64,
}

/// A rendering that is compared with a second one before a user is asked to approve it.
struct FirstRendering<'r> {
    version: i64,
    base: Option<&'r ReleaseRecord>,
    objects: &'r [Object],
    hooks: &'r [Object],
}

/// The result that an operation would have.
struct PlannedOperationResult {
    changes: PlannedChanges,
    content: PlannedChangesHash,
}

/// The hooks that an operation runs, and its tests, for people.
fn hook_lines(
    operation: PlannedOperation,
    hooks: &[PlannedHook<'_>],
    is_tested: bool,
) -> [Vec<String>; 2] {
    let moments: &[&str] = match operation {
        PlannedOperation::Install { .. } => &["pre-install", "post-install"],
        PlannedOperation::Upgrade { .. } => &["pre-upgrade", "post-upgrade"],
        PlannedOperation::Rollback { .. } => &["pre-rollback", "post-rollback"],
        PlannedOperation::Uninstall { .. } | PlannedOperation::Remediation { .. } => {
            &["pre-delete", "post-delete"]
        }
    };
    let at = |moment: &str| {
        let its = hooks.iter().filter(|hook| hook.events.contains(&moment));
        its.map(|hook| format!("{}/{}", hook.kind, hook.name)).collect::<Vec<String>>()
    };
    let line = |moment: &&str| {
        let lines = at(moment).into_iter().map(|it| format!("{moment}: {it}"));
        lines.collect::<Vec<String>>()
    };
    let run = moments.iter().flat_map(line).collect();
    [run, if is_tested { at("test") } else { Vec::new() }]
}

/// Whether an operation leaves out the hooks of its chart.
const fn leaves_hooks_out(operation: PlannedOperation, spec: &ReleaseSpec) -> bool {
    match operation {
        PlannedOperation::Install { .. } => spec.install.disable_hooks,
        PlannedOperation::Upgrade { .. } => spec.upgrade.disable_hooks,
        PlannedOperation::Rollback { .. } => spec.rollback.disable_hooks,
        PlannedOperation::Uninstall { .. } | PlannedOperation::Remediation { .. } => {
            spec.uninstall.disable_hooks
        }
    }
}

/// Whether an upgrade that fails is undone by an uninstall, which no Plan of its own asks for.
fn may_uninstall(upgrade: &UpgradeSettings) -> bool {
    let remediation = upgrade.remediation;
    let is_undone = remediation.retries != 0 || remediation.remediate_last_failure == Some(true);
    upgrade.strategy.retry().is_none()
        && is_undone
        && remediation.strategy == RemediationStrategy::Uninstall
}

/// Another time of the same day, with another hour, minute and second. A chart that uses the time of day renders something
/// else then.
fn other_time_of_day(now: Time) -> Time {
    const SECONDS_OF_DAY: i64 = 24 * 3600;
    const SHIFTED_SECONDS: i64 = 3600 + 60 + 1;
    let second = now.as_second();
    let is_morning = second.rem_euclid(SECONDS_OF_DAY) < SECONDS_OF_DAY / 2;
    let shift = if is_morning { SHIFTED_SECONDS } else { -SHIFTED_SECONDS };
    Time::from_second(second.saturating_add(shift)).unwrap_or(now)
}

/// The objects of hooks. Unreadable manifests fail later, when they are applied.
fn hook_objects<'h>(hooks: impl Iterator<Item = &'h str>) -> Vec<Object> {
    hooks.flat_map(|it| manifest_objects::read(it).unwrap_or_default()).collect()
}

/// The changes between manifests, as a Plan lists them. Objects that are kept are not removed.
fn planned_changes(before: &[Object], after: &[Object]) -> Vec<PlannedChange> {
    let kept: BTreeSet<_> = before
        .iter()
        .filter(|object| object.annotation(POLICY) == Some("keep"))
        .map(Object::id)
        .collect();
    let changes = object_changes::between(before, after).into_iter();
    let changes = changes
        .filter(|change| change.what != ObjectChangeKind::Removed || !kept.contains(&change.id));
    let change = |ObjectChange { id, what, fields }: ObjectChange| {
        let kind = match what {
            ObjectChangeKind::Added => PlannedChangeKind::Added,
            ObjectChangeKind::Changed => PlannedChangeKind::Changed,
            ObjectChangeKind::Removed => PlannedChangeKind::Removed,
        };
        PlannedChange { fields, ..PlannedChange::new(id, kind) }
    };
    changes.map(change).collect()
}

impl<'h> From<&'h ReleaseHook> for PlannedHook<'h> {
    fn from(hook: &'h ReleaseHook) -> Self {
        let ReleaseHook { kind, name, manifest, events, weight, .. } = hook;
        let events = events.iter().map(|event| event.as_str()).collect();
        Self { kind, name, manifest, events, weight: *weight }
    }
}

impl<'h> From<&'h HookRecord> for PlannedHook<'h> {
    fn from(hook: &'h HookRecord) -> Self {
        let HookRecord { kind, name, manifest, events, weight, .. } = hook;
        let events = events.iter().map(String::as_str).collect();
        Self { kind, name, manifest, events, weight: *weight }
    }
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// Judges the changes of an installation or upgrade whose templates are rendered. Returns whether a user approved them.
    ///
    /// # Errors
    /// A user has to approve the changes first, or it is not known whether an approval is needed.
    pub(super) async fn judge_rendered_changes(
        &self,
        version: i64,
        rendered: &RenderedRelease,
        base: Option<&ReleaseRecord>,
    ) -> Result<bool, RunOutcome> {
        let Some(rules) = self.change_rules()? else { return Ok(false) };
        let operation = operation_of(version, base);
        let manifests = rendered.manifests.iter().map(|it| &*it.content);
        let after: Result<Vec<Vec<Object>>, String> =
            manifests.map(manifest_objects::read).collect();
        // An unreadable manifest fails before its objects are written. Everything that comes before that still needs an
        // approval.
        let Ok(after) = after else {
            return self.judge_unrendered_changes(version, base).await;
        };
        let after: Vec<Object> = after.into_iter().flatten().collect();
        let hooks: Vec<PlannedHook<'_>> = rendered.hooks.iter().map(PlannedHook::from).collect();
        let mut result = self.planned_result(operation, base, &after, &hooks).await;
        let action = action_of(operation);
        self.add_definitions(version, base, &mut result).await?;
        result.changes.objects.extend(self.namespace_change(action));
        if result.changes.objects.is_empty() && result.changes.hooks.is_empty() {
            return Ok(false);
        }
        let hooks = hook_objects(rendered.hooks.iter().map(|it| &*it.manifest));
        let first = FirstRendering { version, base, objects: &after, hooks: &hooks };
        self.judge_result(operation, &rules, result, Some(first)).await
    }

    /// Judges an installation or upgrade before its templates can be rendered. Rendering may need the
    /// CustomResourceDefinitions of the chart, or objects that hooks of a helmfile apply. The rendering is judged after these
    /// are applied.
    ///
    /// # Errors
    /// As [`Self::judge_rendered_changes`].
    pub(super) async fn judge_unrendered_changes(
        &self,
        version: i64,
        base: Option<&ReleaseRecord>,
    ) -> Result<bool, RunOutcome> {
        let Some(rules) = self.change_rules()? else { return Ok(false) };
        let operation = operation_of(version, base);
        let mut result = self.planned_result(operation, None, &[], &[]).await;
        result.content.add(self.desired().inputs.as_bytes());
        self.add_definitions(version, base, &mut result).await?;
        if result.changes.objects.is_empty() && result.changes.hooks.is_empty() {
            return Ok(false);
        }
        self.judge_result(operation, &rules, result, None).await
    }

    /// Judges the changes of a rollback or an uninstall; `after` has the objects that stay. Returns whether a user approved
    /// them.
    ///
    /// # Errors
    /// As [`Self::judge_rendered_changes`].
    pub(super) async fn judge_recorded_changes(
        &self,
        operation: PlannedOperation,
        base: &ReleaseRecord,
        after: Option<&ReleaseRecord>,
    ) -> Result<bool, RunOutcome> {
        let Some(rules) = self.change_rules()? else { return Ok(false) };
        let manifest = after.map_or("", |record| &*record.manifest);
        // Unreadable manifests are not applied, and nothing is deleted.
        let Ok(objects) = manifest_objects::read(manifest) else { return Ok(false) };
        let of = after.unwrap_or(base);
        let hooks: Vec<PlannedHook<'_>> = of.hooks.iter().map(PlannedHook::from).collect();
        let mut result = self.planned_result(operation, Some(base), &objects, &hooks).await;
        result.changes.uninstalls = after.is_none();
        self.judge_result(operation, &rules, result, None).await
    }

    /// Whether an operation may have to wait for an approval of all that it does.
    ///
    /// # Errors
    /// It is not known.
    pub(super) fn may_wait(&self) -> Result<bool, RunOutcome> {
        self.change_rules().map(|rules| rules.is_some())
    }

    /// The rules by which operations of this release may have to wait. `None` if there are none.
    fn change_rules(&self) -> Result<Option<ChangeApprovalRules>, RunOutcome> {
        if !self.context.settings.plan_approval {
            return Ok(None);
        }
        let rules = self.when_known(UnknownPlansGuard::Changes, || {
            approval_plan::namespace_rules(&self.context, &self.node.namespace)
        })?;
        let mode = rules.mode.tightened(self.owner.plan_mode().as_deref());
        Ok((mode > PlanMode::Automatic).then_some(ChangeApprovalRules { mode, rules }))
    }

    /// The result that an operation would have for the objects of a revision.
    async fn planned_result(
        &self,
        operation: PlannedOperation,
        base: Option<&ReleaseRecord>,
        after: &[Object],
        hooks: &[PlannedHook<'_>],
    ) -> PlannedOperationResult {
        let ReleaseDesiredState { owner, kube_context, spec, .. } = self.desired();
        let target = &spec.target;
        // No object of an unreadable revision is deleted.
        let before = base.map(|it| manifest_objects::read(&it.manifest).unwrap_or_default());
        let before = self.placed(before.unwrap_or_default()).await;
        let place = self.target.place();
        let target = format!("{place} {kube_context} {} {}", target.namespace, target.name);
        let base = base.map_or("", |it| &*it.manifest);
        let mut content = PlannedChangesHash::begin(owner, &target, base);
        for object in after {
            content.add(apply::digest(object).as_bytes());
        }
        for hook in hooks {
            // A comment in the text is no difference.
            match manifest_objects::read(hook.manifest) {
                Ok(objects) => {
                    objects.iter().for_each(|it| content.add(apply::digest(it).as_bytes()));
                }
                Err(_) => content.add(hook.manifest.as_bytes()),
            }
            content.add(format!("{} {}", hook.events.join(","), hook.weight).as_bytes());
        }
        let OwnerHooks { names, objects: applied, digest } = match operation {
            PlannedOperation::Install { .. } | PlannedOperation::Upgrade { .. } => {
                self.owner.own_hooks()
            }
            // No hooks of a helmfile are applied with these.
            _ => OwnerHooks::default(),
        };
        content.add(digest.as_bytes());
        content.add(self.settings_of(operation).as_bytes());
        let [run, tests] = hook_lines(operation, hooks, spec.test.enable);
        let mut run = if leaves_hooks_out(operation, spec) { Vec::new() } else { run };
        run.extend(names);
        let after = self.placed(after.to_vec()).await;
        let mut objects = planned_changes(&before, &after);
        objects.extend(applied);
        let is_upgrade = matches!(operation, PlannedOperation::Upgrade { .. });
        let uninstalls = is_upgrade && may_uninstall(&spec.upgrade);
        if uninstalls {
            run.push("if the upgrade fails: uninstall of the release".to_owned());
        }
        let changes =
            PlannedChanges { objects, hooks: run, tests, uninstalls, ..PlannedChanges::default() };
        PlannedOperationResult { changes, content }
    }

    /// The settings of the spec that decide how a result is made, and by which user. An approval covers them, too. `inputs` of
    /// the desired release does not contain them.
    fn settings_of(&self, operation: PlannedOperation) -> String {
        let ReleaseDesiredState { spec, .. } = self.desired();
        format!(
            "{} {:?} {} {}",
            self.target.user(),
            self.options(),
            leaves_hooks_out(operation, spec),
            may_uninstall(&spec.upgrade)
        )
    }

    /// Adds the CustomResourceDefinitions that an installation or upgrade would write. If the guard refuses one, a user is
    /// asked all the same. Hooks of a helmfile come first, and the reason for the refusal may be gone when the definition is
    /// written.
    async fn add_definitions(
        &self,
        version: i64,
        base: Option<&ReleaseRecord>,
        result: &mut PlannedOperationResult,
    ) -> Result<(), RunOutcome> {
        let action = action_of(operation_of(version, base));
        let inputs = match self.revision_inputs(action, version, base) {
            Ok(inputs) => inputs,
            // The revision is prepared from the same manifest, and fails before an object is written.
            Err(error) => return error.text().map(drop),
        };
        match self.definition_changes(&inputs, action, &mut result.content).await {
            Ok(changes) => result.changes.objects.extend(changes),
            Err(error) => {
                let text = error.text()?;
                result.changes.hooks.push(format!("crds/ are refused: {text}"));
            }
        }
        Ok(())
    }

    /// The objects with their namespaces. An object whose kind is not served yet stays unchanged.
    async fn placed(&self, objects: Vec<Object>) -> Vec<Object> {
        let namespace = &self.desired().spec.target.namespace;
        let mut placed = Vec::with_capacity(objects.len());
        for object in objects {
            let found =
                manifest_objects::placed(&self.target.cluster, object.clone(), namespace).await;
            placed.push(found.map_or(object, |(_, object)| object));
        }
        placed
    }

    /// The CustomResourceDefinitions of a chart that would be written. All that the chart brings along are part of the result,
    /// also those that exist.
    async fn definition_changes(
        &self,
        inputs: &RevisionInputs,
        action: OperationKind,
        content: &mut PlannedChangesHash,
    ) -> Result<Vec<PlannedChange>, StepError> {
        let RevisionInputs { chart, config, .. } = inputs;
        let policy = self.options().of_action(action).crds;
        if policy != CrdsPolicy::Skip {
            content.add(policy.as_str().as_bytes());
            for file in helm::chart::crds(chart) {
                content.add(&file.file.data);
            }
        }
        let mut changes = Vec::new();
        for definition in self.crds_to_write(chart, config, action).await? {
            let is_there = self.live_crd(&definition).await?.1.is_some();
            let kind = if is_there { PlannedChangeKind::Changed } else { PlannedChangeKind::Added };
            changes.push(PlannedChange::new(definition.id(), kind));
        }
        Ok(changes)
    }

    /// The change that creates the release's namespace. For another cluster, only the creation shows whether the namespace
    /// exists. `None` if the operation creates no namespace.
    fn namespace_change(&self, action: OperationKind) -> Option<PlannedChange> {
        let namespace = &self.desired().spec.target.namespace;
        let is_created = action == OperationKind::Install
            && self.options().create_namespace
            && !self.is_there(namespace);
        let id = ObjectId::new("", namespace, "", "Namespace");
        let is_unverified = !self.target.place().is_empty();
        let change = PlannedChange::new(id, PlannedChangeKind::Added);
        is_created.then_some(PlannedChange { is_unverified, ..change })
    }

    /// The differences when the same revision is rendered once more, with another time of day.
    async fn second_rendering(
        &self,
        first: FirstRendering<'_>,
    ) -> Result<Vec<ObjectChange>, RunOutcome> {
        let FirstRendering { version, base, objects, hooks } = first;
        let action = action_of(operation_of(version, base));
        let at = other_time_of_day(jiff::Timestamp::now());
        let rendered = match self.revision_inputs(action, version, base) {
            Ok(inputs) => self.rendered_at(inputs, action, at).await,
            Err(error) => Err(error),
        };
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(error) => return error.text().map(|_| Vec::new()),
        };
        let read = |text: &str| manifest_objects::read(text).unwrap_or_default();
        let second: Vec<Object> =
            rendered.manifests.iter().flat_map(|it| read(&it.content)).collect();
        let mut differing = object_changes::between(objects, &second);
        let second = hook_objects(rendered.hooks.iter().map(|it| &*it.manifest));
        differing.extend(object_changes::between(hooks, &second));
        Ok(differing)
    }

    /// Judges a result. A rendering is made once more before a user is asked about it.
    async fn judge_result(
        &self,
        operation: PlannedOperation,
        rules: &ChangeApprovalRules,
        result: PlannedOperationResult,
        rendering: Option<FirstRendering<'_>>,
    ) -> Result<bool, RunOutcome> {
        let PlannedOperationResult { changes, content } = result;
        if !changes.waits_under(rules.mode) {
            return Ok(false);
        }
        let identity = PlannedChangesIdentity {
            content: content.finish(),
            removed: changes.ids(PlannedChangeKind::Removed),
            recreated: changes.ids(PlannedChangeKind::Recreated),
        };
        let key = digest_key(&self.context).await.map_err(|error| self.plan_failed(&error))?;
        let node = self.node.whole();
        let release = self.release_of_owner();
        // The text contains a digest of values, which may come from Secrets.
        let name = key.keyed(&operation.operation(self.desired()));
        let subject = DeletionSubject {
            release: &release,
            operation: &name,
            ..DeletionSubject::of(&node, &self.desired().owner)
        };
        let terms = rules.rules.terms_of_changes();
        let reviewed = review_approvals(&self.context, &subject).await;
        reviewed.map_err(|text| self.approvers_unknown(&text))?;
        let plan = self.when_known(UnknownPlansGuard::Changes, || {
            approved_plan(&self.context, &subject, &key, &identity, &terms)
        })?;
        if plan.is_some() {
            return Ok(true);
        }
        let budget = rules.rules.budget.clone().map(|budget| self.tightened(budget));
        let deletion = deletion_of(&changes, budget, terms);
        // A waiting Plan was made from the same rendering at another time.
        let is_known = is_listed(&self.context, &subject, &key, &identity, &deletion);
        let differing = match rendering.filter(|_| !is_known) {
            Some(first) => self.second_rendering(first).await?,
            None => Vec::new(),
        };
        if !differing.is_empty() {
            // The result of the earlier Plan is not desired any more.
            let dismissed = approval_plan::dismiss(&self.context, &subject, None).await;
            dismissed.map_err(|error| self.plan_failed(&error))?;
            return Err(self.not_reproducible(operation, &differing));
        }
        let revision = operation.revision(self.desired());
        let request = ApprovalPlanRequest {
            subject,
            owner: self.owner.reference(),
            revision: &revision,
            deletion: &deletion,
            changes: Some(listed(&key, &identity, &self.masked_fields(&changes))),
        };
        let plan = approval_plan::request(&self.context, &request, jiff::Timestamp::now()).await;
        let plan = plan.map_err(|error| self.plan_failed(&error))?;
        Err(self.waiting(operation, &changes, plan.as_ref()))
    }

    fn tightened(&self, budget: DeletionBudget) -> DeletionBudget {
        budget.tightened(self.owner.deletion_limit().as_deref())
    }

    /// The changes without the values of Secrets. A chart may have used such values in names of fields and hooks.
    fn masked_fields(&self, changes: &PlannedChanges) -> PlannedChanges {
        let mut changes = changes.clone();
        for field in changes.objects.iter_mut().flat_map(|it| &mut it.fields) {
            *field = self.desired_release.masked(field);
        }
        for text in changes.hooks.iter_mut().chain(&mut changes.tests) {
            *text = self.desired_release.masked(text);
        }
        changes
    }

    /// The outcome of a run whose operation waits for its Plan, or is rejected with that.
    fn waiting(
        &self,
        operation: PlannedOperation,
        changes: &PlannedChanges,
        plan: Option<&RequestedPlan>,
    ) -> RunOutcome {
        let namespace = &self.node.namespace;
        let subject = operation.subject(self.desired());
        if let Some(rejection) = plan.and_then(|it| it.rejection.as_deref()) {
            return self.rejected(&format!("{subject} {rejection}"));
        }
        // Another mode may not ask.
        self.known().lacked.extend(approval_plan::budget_nodes(namespace));
        let note = plan.map(|it| it.note.as_str()).unwrap_or_default();
        let waiting = changes.waits_for_approval(namespace, plan.map(|it| it.name.as_str()));
        let text = format!("{subject} {waiting}{note}");
        let wake = NextRunTrigger::at(self.soon_again());
        RunOutcome::Running(PLAN_PENDING, self.desired_release.masked(&text), wake)
    }

    /// The outcome of a run whose operation cannot be approved.
    fn not_reproducible(
        &self,
        operation: PlannedOperation,
        differing: &[ObjectChange],
    ) -> RunOutcome {
        let text = format!(
            "{} cannot be approved, because the chart renders something else each time: {}; use values or an existing Secret \
             in place of random numbers and times",
            operation.subject(self.desired()),
            object_changes::summary(differing)
        );
        let nodes = approval_plan::budget_nodes(&self.node.namespace);
        let wake = NextRunTrigger::on(nodes).and_at(self.soon_again());
        RunOutcome::Blocked(PLAN_NOT_REPRODUCIBLE, self.desired_release.masked(&text), wake)
    }

    /// The outcome of a run whose operation a user rejected.
    pub(super) fn rejected(&self, text: &str) -> RunOutcome {
        // Another mode or budget may not ask.
        let nodes = approval_plan::budget_nodes(&self.node.namespace);
        let nodes = nodes.into_iter().chain([approval_plan::plans_node()]);
        let wake = NextRunTrigger::on(nodes).and_at(self.soon_again());
        RunOutcome::Blocked(PLAN_REJECTED, self.desired_release.masked(text), wake)
    }

    /// The outcome of a run that does not know whether the users who approved still have the right to approve.
    pub(super) fn approvers_unknown(&self, text: &str) -> RunOutcome {
        let text = self.desired_release.masked(text);
        RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(self.retry_at()))
    }

    fn plan_failed(&self, error: &ClusterError) -> RunOutcome {
        let text = format!("a Plan cannot be created or deleted: {error}");
        RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::at(self.retry_at()))
    }
}

/// The objects that the owner of a release applies with its operations, which are the manifests of a helmfile's hooks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerHooks {
    /// The names of the hooks.
    pub names: Vec<String>,
    /// The changes by the hooks.
    pub objects: Vec<PlannedChange>,
    /// The digest of all manifests of the hooks. Empty if there are none.
    pub digest: String,
}

/// The operation that makes a revision which follows on `base`.
fn operation_of(version: i64, base: Option<&ReleaseRecord>) -> PlannedOperation {
    match base {
        Some(_) => PlannedOperation::Upgrade { version },
        None => PlannedOperation::Install { version },
    }
}

/// The action of an operation that makes a revision.
fn action_of(operation: PlannedOperation) -> OperationKind {
    match operation {
        PlannedOperation::Install { .. } => OperationKind::Install,
        PlannedOperation::Upgrade { .. } => OperationKind::Upgrade,
        PlannedOperation::Rollback { .. } => OperationKind::Rollback,
        PlannedOperation::Uninstall { .. } => OperationKind::Uninstall,
        PlannedOperation::Remediation { .. } => OperationKind::UninstallRemediation,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, value: &str, is_kept: bool) -> Object {
        let mut manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop"}, "data": {"key": value}});
        if is_kept {
            manifest["metadata"]["annotations"] = json!({(POLICY): "keep"});
        }
        Object::new(manifest).unwrap()
    }

    #[test]
    fn what_is_kept_is_not_removed() {
        let before = [object("a", "1", false), object("b", "1", true), object("c", "1", false)];
        let after = [object("a", "2", false), object("d", "1", false)];
        let shown: Vec<String> = planned_changes(&before, &after)
            .iter()
            .map(|it| format!("{:?} {} {:?}", it.kind, it.id.name, it.fields))
            .collect();
        assert_eq!(shown, ["Changed a [\"/data/key\"]", "Added d []", "Removed c []"]);
    }

    #[test]
    fn hooks_are_listed_by_the_moment_at_which_they_run() {
        let hook = |name: &'static str, events: &[&'static str]| PlannedHook {
            kind: "Job",
            name,
            manifest: "",
            events: events.to_vec(),
            weight: 0,
        };
        let hooks = [
            hook("both", &["pre-install", "pre-upgrade"]),
            hook("after", &["post-upgrade"]),
            hook("test", &["test"]),
        ];
        let upgrade = PlannedOperation::Upgrade { version: 2 };
        let [run, tests] = hook_lines(upgrade, &hooks, true);
        assert_eq!(run, ["pre-upgrade: Job/both", "post-upgrade: Job/after"]);
        assert_eq!(tests, ["Job/test"]);
        let [run, tests] = hook_lines(PlannedOperation::Install { version: 1 }, &hooks, false);
        assert_eq!(run, ["pre-install: Job/both"]);
        assert!(tests.is_empty());
    }

    #[test]
    fn only_an_upgrade_that_an_uninstall_would_undo_may_uninstall() {
        let mut upgrade = UpgradeSettings::default();
        upgrade.remediation.strategy = RemediationStrategy::Uninstall;
        assert!(!may_uninstall(&upgrade), "a failure is not undone");
        upgrade.remediation.retries = 1;
        assert!(may_uninstall(&upgrade));
        upgrade.remediation.strategy = RemediationStrategy::Rollback;
        assert!(!may_uninstall(&upgrade));
    }

    #[test]
    fn the_second_rendering_is_at_another_time_of_the_same_day() {
        for text in ["2026-01-02T00:00:00Z", "2026-01-02T11:59:59Z", "2026-01-02T23:59:59Z"] {
            let now: Time = text.parse().unwrap();
            let other = other_time_of_day(now);
            let [first, second] = [now, other].map(|it| it.to_string());
            assert_eq!(first[..11], second[..11]);
            for at in [11..13, 14..16, 17..19] {
                assert_ne!(first[at.clone()], second[at], "{first} {second}");
            }
        }
    }
}
