//! Plans hold changes and large deletions until a user approves them. PlanPolicies decide which ones are held.
//!
//! PlanPolicies and Plans are watched, so a deletion within the budget costs no request. A Plan is created when a deletion or
//! a whole result is held, and deleted when it was carried out or is no longer needed. So each approval counts once.
//!
//! Here: the rules of a namespace, Plans of deletions, and what an approval covers. Below: counted approvals (`approvals`),
//! objects that are deleted with appliers (`cascading_deletions`), rules that an applier applies itself
//! (`self_applied_policies`), and Plans of whole results (`change_approval`). Elsewhere: budgets (engine `apply`), the changes
//! (the appliers), the right to approve (`deploy/policies/plans.yaml`), and reviewed pull requests (`pull_request_approval`).

pub mod approvals;
pub mod cascading_deletions;
pub mod change_approval;
pub mod self_applied_policies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apply::deletion_budget::{
    ApprovedDeletion, BudgetVerdict, DeletionBudget, DeletionExemption, DeletionRule,
    ProtectedKind, deletion_digest, kept_with_containers,
};
use apply::planned_changes::PlanMode;
use crds::Time as When;
use crds::windlass_release::{
    DeletionBudgetSpec, Plan, PlanChanges, PlanDeletionBudget, PlanPolicy, PlanSpec, PlanSubject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ResourceExt as _;
use objects::ObjectId;
use reconcile::{ConditionReason, DependencyEdge, ObjectKey, Time};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use self::approvals::{
    ApprovalRequirements, ApprovalReviewCache, approvers, counted_approvals, is_approved,
    is_rejected,
};
use self::self_applied_policies::SelfAppliedPolicies;
use super::lifecycle::selector;
use super::lifecycle::watched_object_cache::{
    self, CachedObjectChange, WATCH_PATIENCE, WatchedObjectCache, kind_node, resource,
};
use super::pull_request_approval_cache::{self, ReviewedRunFacts, was_approved};
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};

/// The annotation of an applier with the number of objects that it may delete without approval. It counts only if its policies
/// allow more.
pub const DELETION_BUDGET: &str = "windlass.dev/deletion-budget";

/// The reason of a condition: a deletion exceeds the budget.
pub const BUDGET_EXCEEDED: ConditionReason = ConditionReason::new("DeletionBudgetExceeded");

/// The reason of a condition: the budget or the approvals are not known, so nothing is deleted.
const BUDGET_UNKNOWN: ConditionReason = ConditionReason::new("DeletionBudgetUnknown");

/// The reason of a condition: a Plan could not be written.
pub const PLAN_FAILED: ConditionReason = ConditionReason::new("PlanFailed");

/// The field manager of Plans.
const MANAGER: &str = "windlass";

/// How long approvals of a Plan count. The time is written into its spec.
const PLAN_EXPIRES_AFTER: Duration = Duration::from_secs(14 * 24 * 3600);

/// The most objects that a Plan lists. An approval of a longer deletion is for exactly these objects.
const MAX_LISTED_OBJECTS: usize = 1000;

/// The most bytes of object ids in a Plan that also lists all changes.
const MAX_ID_BYTES_BESIDE_CHANGES: usize = 96 << 10;

/// How many bytes an entry of a list takes as JSON besides its characters.
const ID_OVERHEAD_BYTES: usize = 3;

/// The most PlanPolicies that a Plan names. The admission policy of Plans checks the right for each of them. The API server
/// limits the number of such checks in an expression.
pub(crate) const MAX_NAMED_POLICIES: usize = 8;

/// The most users that have to approve. A Plan has no room for more approvals.
const MAX_APPROVALS: i64 = 16;

/// The most rules that a Plan names.
const MAX_NAMED_RULES: usize = 8;

/// The longest rule and the longest revision in a Plan, in characters.
const MAX_RULE_LENGTH: usize = 512;

/// The longest label key that Kubernetes allows. An exemption with a longer key matches no object, and would enlarge each
/// Plan.
const MAX_LABEL_KEY_LENGTH: usize = 253 + 1 + 63;

/// The prefix of the user names of ServiceAccounts, who may not approve. windlass is a ServiceAccount and applies objects for
/// tenants. Otherwise an applied object could approve its own deletions or bypass a Freeze.
pub(crate) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Follows PlanPolicies until `stop`. A change wakes the objects with held deletions.
pub async fn follow_policies(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, _: CachedObjectChange<PlanPolicy>| {
        context.work_queue.changed(&policies_node());
        pull_request_approval_cache::plans_changed(context);
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Follows Plans until `stop`. An approval wakes the object whose deletion waits for it.
pub async fn follow_plans(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<Plan>| {
        if let Some(plan) = changed.after.or(changed.before) {
            let PlanSubject { group, kind, name, .. } = &plan.spec.subject;
            let namespace = plan.namespace().unwrap_or_default();
            let subject = ObjectKey::new(group, kind, &namespace, name);
            context.work_queue.wake(&subject, WakeReason::Waiting);
            pull_request_approval_cache::plans_changed(context);
        }
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// The dependency graph node that stands for all PlanPolicies.
fn policies_node() -> ObjectKey {
    kind_node::<PlanPolicy>()
}

/// The dependency graph node that stands for all Plans.
pub fn plans_node() -> ObjectKey {
    kind_node::<Plan>()
}

/// The dependency graph nodes whose change may release what is held in a namespace, by another budget or mode.
pub fn budget_nodes(namespace: &str) -> [ObjectKey; 2] {
    [policies_node(), namespace_policies::labels_node_of(namespace)]
}

/// What windlass withholds while PlanPolicies or Plans are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownPlansGuard {
    /// The deletion of objects that left the manifests.
    Deletions,
    /// Every change of the applied result.
    Changes,
}

impl UnknownPlansGuard {
    /// What does not happen meanwhile, and the flag that turns the guard off.
    const fn messages(self) -> [&'static str; 2] {
        match self {
            Self::Deletions => {
                ["objects that left the manifests are not deleted", "--deletion-budget=false"]
            }
            Self::Changes => ["nothing is changed", "--plan-approval=false"],
        }
    }

    /// The condition reason while PlanPolicies or Plans are not known.
    pub const fn unknown(self) -> ConditionReason {
        match self {
            Self::Deletions => BUDGET_UNKNOWN,
            Self::Changes => change_approval::PLAN_POLICIES_UNKNOWN,
        }
    }
}

/// Reads PlanPolicies or Plans. If they are not known, the guarded action must not be done, and the object waits until they
/// are. It then also waits for `others`.
///
/// # Errors
/// The reason why they are not known, and what to do if that lasts.
pub fn when_known<T>(
    context: &RunContext,
    guard: UnknownPlansGuard,
    node: &ObjectKey,
    others: &BTreeSet<ObjectKey>,
    read: impl Fn() -> Result<T, String>,
) -> Result<T, String> {
    if let Ok(known) = read() {
        return Ok(known);
    }
    let mut missing = others.clone();
    missing.extend(budget_nodes(&node.namespace));
    missing.insert(plans_node());
    context.work_queue.set_edges(node, DependencyEdge::Waits, missing);
    // They may have become known between the first read and the wait, which would not wake the object.
    read().map_err(|why| {
        let [waiting, flag] = guard.messages();
        format!(
            "{waiting}: {why}; if that lasts, apply the ClusterRoles and CustomResourceDefinitions of this version of \
             windlass, or set {flag}"
        )
    })
}

/// Waits until PlanPolicies and Plans were listed, or could not be listed.
pub(crate) async fn known(context: &RunContext) {
    context.shared::<WatchedObjectCache<PlanPolicy>>().known().await;
    context.shared::<WatchedObjectCache<Plan>>().known().await;
}

/// Waits until every change of PlanPolicies and Plans is seen, or their watches are interrupted for too long.
pub(crate) async fn current(context: &RunContext) {
    context.shared::<WatchedObjectCache<PlanPolicy>>().current_within(WATCH_PATIENCE).await;
    context.shared::<WatchedObjectCache<Plan>>().current_within(WATCH_PATIENCE).await;
}

/// The rules of a namespace about changes that need an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectivePlanPolicy {
    /// The deletion budget. `None` if PlanPolicies turn it off.
    pub budget: Option<DeletionBudget>,
    /// The PlanPolicies that define the budget. Empty if it is the default.
    pub policies: Vec<String>,
    /// Which changes need an approval.
    pub mode: PlanMode,
    /// The PlanPolicies that require an approval of changes.
    pub mode_policies: Vec<String>,
    /// How many different users have to approve. 0 if one user is enough.
    pub approvals: i64,
}

impl EffectivePlanPolicy {
    /// What the approval of a deletion requires.
    pub fn terms_of_deletions(&self) -> ApprovalRequirements {
        ApprovalRequirements { policies: self.policies.clone(), approvals: self.approvals }
    }

    /// What the approval of a whole result requires. The PlanPolicies about changes come first, because a Plan has no room for
    /// all.
    pub fn terms_of_changes(&self) -> ApprovalRequirements {
        let known: BTreeSet<&String> = self.mode_policies.iter().collect();
        let others = self.policies.iter().filter(|name| !known.contains(name));
        let policies = self.mode_policies.iter().chain(others).take(MAX_NAMED_POLICIES);
        ApprovalRequirements { policies: policies.cloned().collect(), approvals: self.approvals }
    }
}

/// The rules of a namespace about changes that need an approval.
///
/// # Errors
/// The reason why they are not known. Then the guarded changes may not be made.
pub fn namespace_rules(
    context: &RunContext,
    namespace: &str,
) -> Result<EffectivePlanPolicy, String> {
    applier_rules(context, namespace, &SelfAppliedPolicies::default())
}

/// The rules for an applier in a namespace. PlanPolicies that the applier applies itself cannot loosen them.
///
/// # Errors
/// As [`namespace_rules`].
pub fn applier_rules(
    context: &RunContext,
    namespace: &str,
    own: &SelfAppliedPolicies,
) -> Result<EffectivePlanPolicy, String> {
    let table = context.shared::<WatchedObjectCache<PlanPolicy>>();
    table.current()?;
    let policies = table.listed("")?;
    if policies.is_empty() {
        return Ok(strictest(&[]));
    }
    let facts = context.shared::<NamespacePolicies>().facts(namespace);
    let facts =
        facts.ok_or_else(|| format!("the labels of namespace {namespace} are not known"))?;
    Ok(own.rules(&policies, &facts.labels))
}

/// The rules for a namespace with these labels, by the PlanPolicies of its cluster.
pub fn rules_of_labels(
    policies: &[Arc<PlanPolicy>],
    labels: &BTreeMap<String, String>,
) -> EffectivePlanPolicy {
    let is_selected =
        |policy: &&Arc<PlanPolicy>| selector(&policy.spec.namespace_selector).selects(labels);
    let selected: Vec<Arc<PlanPolicy>> = policies.iter().filter(is_selected).cloned().collect();
    strictest(&selected)
}

/// The strictest rules of several PlanPolicies that select the same namespace.
fn strictest(selected: &[Arc<PlanPolicy>]) -> EffectivePlanPolicy {
    let names = |policies: &[&Arc<PlanPolicy>]| {
        let mut names: Vec<String> = policies.iter().map(|it| it.name_any()).collect();
        names.sort();
        names.truncate(MAX_NAMED_POLICIES);
        names
    };
    let with_budget: Vec<&Arc<PlanPolicy>> =
        selected.iter().filter(|it| it.spec.deletion_budget.is_some()).collect();
    let is_limiting = |it: &&&Arc<PlanPolicy>| {
        let budget = it.spec.deletion_budget.as_ref();
        budget.is_some_and(|budget| budget.enabled.unwrap_or(true))
    };
    let limiting: Vec<&Arc<PlanPolicy>> = with_budget.iter().filter(is_limiting).copied().collect();
    let budgets = limiting.iter().filter_map(|it| it.spec.deletion_budget.as_ref());
    let budget = match with_budget.is_empty() {
        true => Some(DeletionBudget::default()),
        false => budgets.map(budget_of).reduce(DeletionBudget::strictest),
    };
    let is_asking = |it: &&Arc<PlanPolicy>| mode_of(it) > PlanMode::Automatic;
    let asking: Vec<&Arc<PlanPolicy>> = selected.iter().filter(is_asking).collect();
    EffectivePlanPolicy {
        budget,
        policies: names(&limiting),
        mode: asking.iter().map(|it| mode_of(it)).max().unwrap_or_default(),
        mode_policies: names(&asking),
        approvals: approvals_of(selected),
    }
}

/// How many users have to approve under these PlanPolicies. 0 if one user is enough.
fn approvals_of(policies: &[Arc<PlanPolicy>]) -> i64 {
    let most = policies.iter().filter_map(|it| it.spec.approvals).max();
    most.filter(|count| *count > 1).unwrap_or_default().min(MAX_APPROVALS)
}

/// The mode of a PlanPolicy.
fn mode_of(policy: &PlanPolicy) -> PlanMode {
    match policy.spec.mode.unwrap_or_default() {
        crds::windlass_release::PlanMode::Automatic => PlanMode::Automatic,
        crds::windlass_release::PlanMode::ApproveDestructive => PlanMode::ApproveDestructive,
        crds::windlass_release::PlanMode::Approve => PlanMode::Approve,
    }
}

/// The budget of a PlanPolicy. A number out of range means that nothing may be deleted.
fn budget_of(spec: &DeletionBudgetSpec) -> DeletionBudget {
    let default = DeletionBudget::default();
    let kind = |it: &crds::windlass_release::ProtectedKind| ProtectedKind {
        group: it.group.clone(),
        kind: it.kind.clone(),
    };
    let objects = spec.max_objects.map(|it| usize::try_from(it).unwrap_or_default());
    let percent = spec.max_percent.map(|it| u8::try_from(it).unwrap_or_default());
    let kinds = spec.protected_kinds.as_ref().map(|it| it.iter().map(kind).collect());
    let exemption = |it: &crds::windlass_release::DeletionExemption| DeletionExemption {
        group: it.group.clone(),
        kind: it.kind.clone(),
        match_labels: it.match_labels.clone(),
    };
    let can_be = |it: &&crds::windlass_release::DeletionExemption| {
        it.match_labels.keys().all(|key| key.len() <= MAX_LABEL_KEY_LENGTH)
    };
    DeletionBudget {
        max_objects: objects.unwrap_or(default.max_objects),
        max_percent: percent.unwrap_or(default.max_percent),
        percent_above_objects: default.percent_above_objects,
        protected_kinds: kinds.unwrap_or(default.protected_kinds),
        exempt: spec.exempt.iter().filter(can_be).map(exemption).collect(),
    }
}

/// The object whose deletions are judged, and the operation.
#[derive(Debug, Clone, Copy)]
pub struct DeletionSubject<'a> {
    /// The object, as a node of the dependency graph.
    pub node: &'a ObjectKey,
    /// The uid of the object.
    pub uid: &'a str,
    /// The release of the object. Empty if the object is judged as a whole.
    pub release: &'a str,
    /// The name of the operation that would delete. Empty if a later operation may use the same approval.
    pub operation: &'a str,
}

impl<'a> DeletionSubject<'a> {
    /// An object that is judged as a whole, for all its operations.
    pub const fn of(node: &'a ObjectKey, uid: &'a str) -> Self {
        Self { node, uid, release: "", operation: "" }
    }
}

/// A deletion that may need approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetedDeletion {
    /// The objects to delete, without those that would be deleted with them.
    pub ids: BTreeSet<ObjectId>,
    /// The result of the comparison with the budget.
    pub verdict: BudgetVerdict,
    /// The deletion budget.
    pub budget: DeletionBudget,
    /// What the approval of this deletion requires.
    pub terms: ApprovalRequirements,
    /// When the newest of the objects was created. `None` if that is not known, and then no pull request can approve.
    pub newest: Option<Time>,
}

impl BudgetedDeletion {
    /// The first objects and the number of further ones, as a text for users.
    pub fn named_objects(&self) -> String {
        let Self { ids, verdict, .. } = self;
        let mut names: Vec<String> = verdict.first.iter().map(ObjectId::subject).collect();
        let more = ids.len().saturating_sub(names.len());
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let following = match verdict.deleted.saturating_sub(ids.len()) {
            0 => String::new(),
            more => format!(", which apply {more} more objects"),
        };
        format!("{}{following}", names.join(", "))
    }

    /// The exceeded rules of the budget, as a text for users.
    pub fn exceeded_rules(&self) -> String {
        let rules: Vec<String> = self.verdict.exceeded.iter().map(DeletionRule::text).collect();
        match rules.is_empty() {
            true => "an earlier deletion still waits for approval".to_owned(),
            false => rules.join("; "),
        }
    }

    /// The end of a message about an operation that waits: what it would delete, why it waits, and how to approve it. `plan`
    /// is the name of its Plan, if Plans are installed.
    pub fn waits_for_approval(&self, namespace: &str, plan: Option<&str>) -> String {
        let approval = match plan {
            Some(plan) => {
                format!("to approve it, run `windlass approve plan/{plan} -n {namespace}`")
            }
            None => "to approve it, install the CustomResourceDefinitions planpolicies.release.windlass.dev and \
                     plans.release.windlass.dev"
                .to_owned(),
        };
        let rules = self.exceeded_rules();
        let deletes = self.would_delete();
        format!("waits, because it {deletes}; the deletion budget: {rules}; {approval}")
    }

    /// The end of a message about an operation that does not begin: what it would delete.
    pub fn would_delete(&self) -> String {
        let objects = match self.ids.len() {
            1 => "1 object".to_owned(),
            count => format!("{count} objects"),
        };
        format!("would delete {objects}: {}", self.named_objects())
    }
}

/// Whether a deletion may be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionClearance {
    /// It is within the budget, and no other deletion waits for an approval.
    Free,
    /// It was approved.
    Approved,
    /// It needs an approval.
    Held,
}

/// Whether a deletion may be carried out, by its verdict and the Plans of the object. An approval counts only if
/// [`approvals::review_approvals`] has just confirmed the right of its user.
///
/// # Errors
/// The reason why that is not known. Then nothing may be deleted.
pub fn clearance(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    deletion: &BudgetedDeletion,
    now: Time,
) -> Result<DeletionClearance, String> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    table.current()?;
    let mut plans = plans_of(&table, subject);
    // An approval of a whole result covers only that result.
    plans.retain(|plan| plan.spec.changes.is_none());
    let is_valid = |plan: &&Arc<Plan>| !is_expired(plan, now) && !is_rejected(plan);
    let valid: Vec<&Arc<Plan>> = plans.iter().filter(is_valid).collect();
    let reviews = context.shared::<ApprovalReviewCache>();
    if valid.iter().any(|plan| approves(plan, subject, deletion) && reviews.confirm(plan)) {
        return Ok(DeletionClearance::Approved);
    }
    let mut own = valid.iter().filter(|plan| is_for(plan, subject, deletion));
    let run = ReviewedRunFacts { newest: deletion.newest, result: None };
    if own.any(|plan| pull_request_approval_cache::is_approved_now(context, plan, &run)) {
        return Ok(DeletionClearance::Approved);
    }
    let budget = plan_budget(&deletion.budget);
    let is_its = |plan: &Arc<Plan>| plan.spec.operation == subject.operation;
    // While another deletion under the same budget waits, nothing more may be deleted.
    let is_waiting =
        plans.iter().any(|plan| is_its(plan) && waits(plan, &budget, reviews.confirm(plan), now));
    let is_free = deletion.verdict.is_within() && !is_waiting;
    Ok(if is_free { DeletionClearance::Free } else { DeletionClearance::Held })
}

/// Whether a Plan waits for an approval under a budget. An expired Plan still waits, because a new Plan replaces it. An
/// approved Plan does not wait, even while it is carried out.
fn waits(plan: &Plan, budget: &PlanDeletionBudget, is_confirmed: bool, now: Time) -> bool {
    plan.spec.budget == *budget && (is_expired(plan, now) || !is_confirmed)
}

/// The objects of an approved deletion that a user keeps. They stay in the cluster, and the applier gives them up.
pub fn kept_objects(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    deletion: &BudgetedDeletion,
    now: Time,
) -> BTreeSet<ObjectId> {
    let plans = plans_of(&context.shared::<WatchedObjectCache<Plan>>(), subject);
    plans.iter().flat_map(|plan| kept_by(plan, subject, deletion, now)).collect()
}

/// The objects that approvals of a Plan keep. An approval keeps its objects even if another user or a pull request approved
/// the deletion, because its user wants to keep them.
fn kept_by(
    plan: &Plan,
    subject: &DeletionSubject<'_>,
    deletion: &BudgetedDeletion,
    now: Time,
) -> BTreeSet<ObjectId> {
    // An approval of a whole result keeps no objects.
    let is_of_deletion = plan.spec.changes.is_none() && !is_expired(plan, now);
    match is_of_deletion && is_for(plan, subject, deletion) {
        true => kept_of(plan, deletion),
        false => BTreeSet::new(),
    }
}

/// The objects of a deletion that approvals of a Plan keep, together with the objects that contain them. Other named objects
/// are ignored.
fn kept_of(plan: &Plan, deletion: &BudgetedDeletion) -> BTreeSet<ObjectId> {
    let names = counted_approvals(plan).flat_map(|approval| &approval.keep);
    let ids = names.filter_map(|id| id.parse::<ObjectId>().ok());
    let named = ids.filter(|id| deletion.ids.contains(id)).collect();
    kept_with_containers(named, &deletion.ids)
}

/// How many of these objects no approval covers.
pub fn unapproved_count(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    ids: &BTreeSet<ObjectId>,
) -> usize {
    let plans = plans_of(&context.shared::<WatchedObjectCache<Plan>>(), subject);
    let reviews = context.shared::<ApprovalReviewCache>();
    // An approval whose user lacks the right must not hide a deletion from the budget.
    let by_users = |plan: &Plan| is_approved(plan) && !reviews.refuse(plan);
    let counts = |plan: &Plan| by_users(plan) || was_approved(context, plan);
    let approvals = plans.iter().filter(|plan| counts(plan)).filter_map(|plan| approval(plan));
    approvals.fold(ids.clone(), |rest, approval| approval.unapproved(subject.uid, &rest)).len()
}

/// Whether an object has Plans.
pub fn has_plans(context: &RunContext, subject: &DeletionSubject<'_>) -> bool {
    !plans_of(&context.shared::<WatchedObjectCache<Plan>>(), subject).is_empty()
}

fn plans_of(table: &WatchedObjectCache<Plan>, subject: &DeletionSubject<'_>) -> Vec<Arc<Plan>> {
    let is_its = |plan: &Arc<Plan>| {
        let of = &plan.spec.subject;
        let node = subject.node;
        of.uid == subject.uid
            && of.release == subject.release
            && (&of.group, &of.kind) == (&node.group, &node.kind)
    };
    let mut plans = table.of(&subject.node.namespace);
    plans.retain(is_its);
    plans
}

/// Whether the time for approvals of a Plan is over.
pub fn is_expired(plan: &Plan, now: Time) -> bool {
    plan.spec.expires.as_ref().is_none_or(|at| at.0 <= now)
}

fn approves(plan: &Plan, subject: &DeletionSubject<'_>, deletion: &BudgetedDeletion) -> bool {
    is_approved(plan) && is_for(plan, subject, deletion)
}

/// Whether a Plan is about this deletion, so that its approvals count.
fn is_for(plan: &Plan, subject: &DeletionSubject<'_>, deletion: &BudgetedDeletion) -> bool {
    // The right to approve was checked for these policies.
    (&plan.spec.policies, plan.spec.approvals)
        == (&deletion.terms.policies, deletion.terms.approvals)
        && plan.spec.operation == subject.operation
        && approval(plan).is_some_and(|it| it.covers(subject.uid, &deletion.ids))
}

/// The deletion that an approval of a Plan covers. `None` if the Plan does not define it clearly.
fn approval(plan: &Plan) -> Option<ApprovedDeletion> {
    let PlanSpec { objects, count, digest, .. } = &plan.spec;
    let count = usize::try_from(*count).ok()?;
    let listed: Result<BTreeSet<ObjectId>, _> = objects.iter().map(|it| it.parse()).collect();
    Some(ApprovedDeletion { digest: digest.clone(), listed: listed.ok()?, count })
}

/// A request for the Plan of a held deletion or of a held result.
pub struct ApprovalPlanRequest<'r> {
    /// The object whose deletions or changes are held.
    pub subject: DeletionSubject<'r>,
    /// The owner reference that lets the API server delete the Plan together with the object.
    pub owner: Option<OwnerReference>,
    /// The revision whose manifests no longer contain the objects.
    pub revision: &'r str,
    /// The deletion. In a whole result, these are all its deletions, and there may be none.
    pub deletion: &'r BudgetedDeletion,
    /// All changes of the run, if more than the deletion is held.
    pub changes: Option<PlanChanges>,
}

/// The Plan of a held deletion or result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedPlan {
    /// The name of the Plan.
    pub name: String,
    /// Whether the Plan is new.
    pub is_new: bool,
    /// The end of a message about the Plan: its approvals, those that do not count, and why no pull request approves it.
    pub note: String,
    /// The end of a message about a rejected Plan: who rejected it. `None` if no user did.
    pub rejection: Option<String>,
}

impl RequestedPlan {
    fn known(context: &RunContext, plan: &Plan) -> Self {
        let waiting = approvals::waiting_note(context, plan);
        Self {
            name: plan.name_any(),
            is_new: false,
            note: format!("{waiting}{}", pull_request_approval_cache::approval_note(plan)),
            rejection: approvals::rejection(plan),
        }
    }
}

/// Creates the Plan of a held deletion or result if it does not exist. Deletes the other Plans of the object. `None` if the
/// kind is not installed.
///
/// # Errors
/// The API server refuses a request or does not respond.
pub async fn request(
    context: &RunContext,
    request: &ApprovalPlanRequest<'_>,
    now: Time,
) -> Result<Option<RequestedPlan>, ClusterError> {
    let plan = plan(request, now);
    let name = plan.name_any();
    let table = context.shared::<WatchedObjectCache<Plan>>();
    let is_same = |known: &Arc<Plan>| {
        let [one, other] = [&known.spec, &plan.spec];
        // A rejected Plan is kept, so users are not asked again.
        (!is_expired(known, now) || is_rejected(known))
            && (&one.subject, &one.digest) == (&other.subject, &other.digest)
            && one.operation == other.operation
            && (&one.policies, &one.budget) == (&other.policies, &other.budget)
            && one.approvals == other.approvals
            // Users have to see exactly what they approve.
            && (&one.objects, one.count) == (&other.objects, other.count)
            && change_approval::is_same_result(one.changes.as_ref(), other.changes.as_ref())
    };
    let known = table.get(&request.subject.node.namespace, &name).filter(is_same);
    dismiss(context, &request.subject, known.is_some().then_some(name.as_str())).await?;
    if let Some(known) = known {
        return Ok(Some(RequestedPlan::known(context, &known)));
    }
    match context.cluster.create(&plan, MANAGER).await {
        Ok(created) => {
            table.insert(created);
            pull_request_approval_cache::plans_changed(context);
            let note = approvals::waiting_note(context, &plan);
            Ok(Some(RequestedPlan { name, is_new: true, note, rejection: None }))
        }
        Err(error) if error.is_unserved() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes the Plans of an object, except one. Their deletions were carried out or are no longer needed.
///
/// # Errors
/// The API server refuses a request or does not respond.
pub async fn dismiss(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    kept: Option<&str>,
) -> Result<(), ClusterError> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    let plans = resource::<Plan>();
    let namespace = &subject.node.namespace;
    for plan in plans_of(&table, subject) {
        let name = plan.name_any();
        if kept == Some(name.as_str()) {
            continue;
        }
        let uid = plan.uid().unwrap_or_default();
        context.cluster.delete_unmanaged(&plans, namespace, &name, &uid).await?;
        table.remove(namespace, &name, &uid);
        if !approvers(&plan).is_empty() {
            // Only the deleted Plan had the names of the users who approved.
            let approved_by = approvers(&plan).join(", ");
            let kind = &plan.spec.subject.kind;
            let subject = &plan.spec.subject.name;
            tracing::info!(
                namespace,
                name,
                kind,
                subject,
                approved_by,
                count = plan.spec.count,
                "a Plan that users approved is deleted"
            );
        }
    }
    Ok(())
}

fn plan_budget(budget: &DeletionBudget) -> PlanDeletionBudget {
    let kind = |it: &ProtectedKind| crds::windlass_release::ProtectedKind {
        group: it.group.clone(),
        kind: it.kind.clone(),
    };
    let exemption = |it: &DeletionExemption| crds::windlass_release::DeletionExemption {
        group: it.group.clone(),
        kind: it.kind.clone(),
        match_labels: it.match_labels.clone(),
    };
    PlanDeletionBudget {
        max_objects: i64::try_from(budget.max_objects).unwrap_or(i64::MAX),
        max_percent: budget.max_percent.into(),
        protected_kinds: budget.protected_kinds.iter().map(kind).collect(),
        exempt: budget.exempt.iter().map(exemption).collect(),
    }
}

fn plan(request: &ApprovalPlanRequest<'_>, now: Time) -> Plan {
    let ApprovalPlanRequest { subject, owner, revision, deletion, changes } = request;
    let BudgetedDeletion { ids, verdict, budget, terms, .. } = deletion;
    let short = |text: &str| text.chars().take(MAX_RULE_LENGTH).collect::<String>();
    let count = |of: usize| i64::try_from(of).unwrap_or(i64::MAX);
    let rules = verdict.exceeded.iter().map(|rule: &DeletionRule| short(&rule.text()));
    let expires = now.saturating_add(PLAN_EXPIRES_AFTER).unwrap_or(Time::MAX);
    // The API stores whole seconds.
    let expires = Time::from_second(expires.as_second()).unwrap_or(expires);
    let spec = PlanSpec {
        subject: PlanSubject {
            group: subject.node.group.clone(),
            kind: subject.node.kind.clone(),
            name: subject.node.name.clone(),
            uid: subject.uid.to_owned(),
            release: subject.release.to_owned(),
        },
        operation: subject.operation.to_owned(),
        revision: short(revision),
        digest: deletion_digest(subject.uid, ids),
        count: count(ids.len()),
        following: count(verdict.deleted.saturating_sub(ids.len())),
        objects: listed_ids(ids, changes.is_some()),
        rules: rules.take(MAX_NAMED_RULES).collect(),
        budget: plan_budget(budget),
        policies: terms.policies.clone(),
        approvals: terms.approvals,
        changes: changes.clone(),
        expires: Some(When(expires)),
    };
    let mut plan = Plan::new(&plan_name(&spec), spec);
    plan.metadata.namespace = Some(subject.node.namespace.clone());
    plan.metadata.owner_references = owner.clone().map(|owner| vec![owner]);
    plan
}

/// The first of the deleted objects. A Plan that lists all changes names them there as well, so it has less room for them
/// here.
fn listed_ids(ids: &BTreeSet<ObjectId>, is_listed_twice: bool) -> Vec<String> {
    let mut left = if is_listed_twice { MAX_ID_BYTES_BESIDE_CHANGES } else { usize::MAX };
    let listed = ids.iter().take(MAX_LISTED_OBJECTS).map(ObjectId::to_string);
    listed
        .take_while(|text| {
            let rest = left.checked_sub(text.len().saturating_add(ID_OVERHEAD_BYTES));
            left = rest.unwrap_or_default();
            rest.is_some()
        })
        .collect()
}

/// The name of a Plan. It is the same for the same deletion or result under the same policies, so a crash does not cause a
/// second Plan.
fn plan_name(spec: &PlanSpec) -> String {
    let mut hash = Sha256::new();
    hash.update(&spec.digest);
    for part in [&spec.subject.release, &spec.operation].into_iter().filter(|it| !it.is_empty()) {
        hash.update("\n\n");
        hash.update(part);
    }
    for policy in &spec.policies {
        hash.update("\n");
        hash.update(policy);
    }
    if spec.approvals > 0 {
        hash.update(format!("\n\n\n\n{}", spec.approvals));
    }
    if let Some(changes) = &spec.changes {
        hash.update("\n\n\n");
        hash.update(&changes.digest);
    }
    // The budget was read from JSON, so it can be written as JSON.
    hash.update(serde_json::to_vec(&spec.budget).unwrap_or_default());
    let digest = hex::encode(hash.finalize());
    let subject: String = spec.subject.name.chars().take(40).collect();
    format!("{}-{}", subject.trim_end_matches(['.', '-']), &digest[..16])
}

#[cfg(test)]
mod tests;
