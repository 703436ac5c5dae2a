//! Plans: changes, and deletions that are beyond a budget, that wait for the approval of a user; and the PlanPolicies that say
//! which do.
//!
//! PlanPolicies and Plans are watched, so that a deletion within the budget costs no request. A Plan is created when a deletion
//! or a whole result is held, and deleted when it was carried out or is not needed any more, so each approval counts once.
//! Here: the rules of a namespace, Plans of deletions and what approvals of them are for. Below: which approvals count
//! (`approvals`), what is deleted with appliers (`following_deletions`), what appliers apply of their own rules
//! (`self_applied_policies`), Plans of everything that a run would do (`result_plan`).
//! Elsewhere: what a budget allows and what an approval is for (engine `apply`), what is to be changed (the appliers), who may
//! approve (`deploy/policies/plans.yaml`), whether a reviewed pull request does (`pull_request_approval`).

pub mod approvals;
pub mod following_deletions;
pub mod result_plan;
pub mod self_applied_policies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apply::deletion_budget::{
    ApprovedDeletion, BudgetVerdict, DeletionBudget, DeletionExemption, DeletionRule,
    ProtectedKind, deletion_digest, kept_with_containers,
};
use apply::result_changes::PlanMode;
use crds::Time as When;
use crds::release::{
    DeletionBudgetSpec, Plan, PlanBudget, PlanChanges, PlanPolicy, PlanSpec, PlanSubject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ResourceExt as _;
use objects::ObjectId;
use reconcile::{ConditionReason, DependencyEdge, ObjectKey, Time};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use self::approvals::{
    ApprovalReviews, ApprovalTerms, approvers, counted_approvals, is_approved, is_rejected,
};
use self::self_applied_policies::SelfAppliedPolicies;
use super::lifecycle::selector;
use super::lifecycle::watched_object_cache::{
    self, CachedObjectChange, WATCH_PATIENCE, WatchedObjectCache, kind_node, resource,
};
use super::pull_request_approval::{self, was_approved};
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};

/// Annotation of an applier: how many objects it may delete without approval, if that is fewer than its policies allow.
pub const DELETION_BUDGET: &str = "windlass.dev/deletion-budget";

/// A deletion is beyond the budget.
pub const BUDGET_EXCEEDED: ConditionReason = ConditionReason::new("DeletionBudgetExceeded");

/// The budget or the approvals are not known, so nothing is deleted.
const BUDGET_UNKNOWN: ConditionReason = ConditionReason::new("DeletionBudgetUnknown");

/// A Plan could not be written.
pub const PLAN_FAILED: ConditionReason = ConditionReason::new("PlanFailed");

/// The field manager of Plans.
const MANAGER: &str = "windlass";

/// How long approvals of a Plan count. It is written in its spec.
const PLAN_EXPIRES_AFTER: Duration = Duration::from_secs(14 * 24 * 3600);

/// How many objects a Plan lists. An approval of more is for exactly these.
const MAX_LISTED_OBJECTS: usize = 1000;

/// How long the ids of deleted objects may be together in a Plan that lists everything that is done, in bytes.
const MAX_ID_BYTES_BESIDE_CHANGES: usize = 96 << 10;

/// What a text in a list takes as JSON besides its characters, in bytes.
const ID_OVERHEAD_BYTES: usize = 3;

/// How many PlanPolicies a Plan names. The admission policy of Plans asks about each of them, two in an expression: the API
/// server does not evaluate an expression with more of these questions.
pub(crate) const MAX_NAMED_POLICIES: usize = 8;

/// The highest number of users that have to approve: a Plan has room for no more approvals.
const MAX_APPROVALS: i64 = 16;

/// How many rules a Plan names.
const MAX_NAMED_RULES: usize = 8;

/// The longest rule and revision that a Plan has, in characters.
const MAX_RULE_LENGTH: usize = 512;

/// The longest key of a label that Kubernetes allows. An exemption with a longer one is for no object, and each Plan would
/// have it.
const MAX_LABEL_KEY_LENGTH: usize = 253 + 1 + 63;

/// Users with this prefix are ServiceAccounts. windlass is one, and applies objects as others: what it applies could approve
/// its own deletions, or go past the Freeze that holds it.
pub(crate) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Follows PlanPolicies until `stop`. A change wakes the objects whose deletions are held.
pub async fn follow_policies(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, _: CachedObjectChange<PlanPolicy>| {
        context.work_queue.changed(&policies_node());
        pull_request_approval::plans_changed(context);
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Follows Plans until `stop`. An approval wakes the object whose deletions wait for it.
pub async fn follow_plans(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<Plan>| {
        if let Some(plan) = changed.after.or(changed.before) {
            let PlanSubject { group, kind, name, .. } = &plan.spec.subject;
            let namespace = plan.namespace().unwrap_or_default();
            let subject = ObjectKey::new(group, kind, &namespace, name);
            context.work_queue.wake(&subject, WakeReason::Waiting);
            pull_request_approval::plans_changed(context);
        }
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// The node that stands for all PlanPolicies.
fn policies_node() -> ObjectKey {
    kind_node::<PlanPolicy>()
}

/// The node that stands for all Plans.
pub fn plans_node() -> ObjectKey {
    kind_node::<Plan>()
}

/// The nodes whose change may allow what is held in a namespace: another budget, or another mode.
pub fn budget_nodes(namespace: &str) -> [ObjectKey; 2] {
    [policies_node(), namespace_policies::labels_node_of(namespace)]
}

/// What waits while PlanPolicies or Plans are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanGuard {
    /// The deletion of what left the manifests.
    Deletions,
    /// Everything that changes the applied result.
    Changes,
}

impl PlanGuard {
    /// What does not happen, and what turns the guard off.
    const fn messages(self) -> [&'static str; 2] {
        match self {
            Self::Deletions => {
                ["objects that left the manifests are not deleted", "--deletion-budget=false"]
            }
            Self::Changes => ["nothing is changed", "--plan-approval=false"],
        }
    }

    /// The reason that a status has while it is not known.
    pub const fn unknown(self) -> ConditionReason {
        match self {
            Self::Deletions => BUDGET_UNKNOWN,
            Self::Changes => result_plan::PLAN_POLICIES_UNKNOWN,
        }
    }
}

/// What PlanPolicies or Plans say. If it is not known, what the guard holds may not be done now: the node waits for what makes
/// it known, and for `others`.
///
/// # Errors
/// Why it is not known, and what to do if that lasts.
pub fn when_known<T>(
    context: &RunContext,
    guard: PlanGuard,
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
    // It may have become known between the first answer and the wait, and would not wake the node then.
    read().map_err(|why| {
        let [waiting, flag] = guard.messages();
        format!(
            "{waiting}: {why}; if that lasts, apply the ClusterRoles and CustomResourceDefinitions of this version of \
             windlass, or set {flag}"
        )
    })
}

/// Returns once the PlanPolicies and Plans were listed, or it is known that they cannot be.
pub(crate) async fn known(context: &RunContext) {
    context.shared::<WatchedObjectCache<PlanPolicy>>().known().await;
    context.shared::<WatchedObjectCache<Plan>>().known().await;
}

/// Returns once every change of PlanPolicies and Plans is seen, or their watches were interrupted for too long.
pub(crate) async fn current(context: &RunContext) {
    context.shared::<WatchedObjectCache<PlanPolicy>>().current_within(WATCH_PATIENCE).await;
    context.shared::<WatchedObjectCache<Plan>>().current_within(WATCH_PATIENCE).await;
}

/// What may be done in a namespace without approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacePlanRules {
    /// The deletion budget; `None` if PlanPolicies turn it off.
    pub budget: Option<DeletionBudget>,
    /// The PlanPolicies that the budget comes from; none if it is the default.
    pub policies: Vec<String>,
    /// Which changes wait for approval.
    pub mode: PlanMode,
    /// The PlanPolicies that have changes wait.
    pub mode_policies: Vec<String>,
    /// How many different users have to approve; 0 if one is enough.
    pub approvals: i64,
}

impl NamespacePlanRules {
    /// What the approval of a deletion takes.
    pub fn terms_of_deletions(&self) -> ApprovalTerms {
        ApprovalTerms { policies: self.policies.clone(), approvals: self.approvals }
    }

    /// What the approval of everything takes. The PlanPolicies that have changes wait come first, because there may be more
    /// than a Plan has room for.
    pub fn terms_of_changes(&self) -> ApprovalTerms {
        let known: BTreeSet<&String> = self.mode_policies.iter().collect();
        let others = self.policies.iter().filter(|name| !known.contains(name));
        let policies = self.mode_policies.iter().chain(others).take(MAX_NAMED_POLICIES);
        ApprovalTerms { policies: policies.cloned().collect(), approvals: self.approvals }
    }
}

/// What may be done in a namespace without approval.
///
/// # Errors
/// Why it is not known; what it guards may not be done then.
pub fn namespace_rules(
    context: &RunContext,
    namespace: &str,
) -> Result<NamespacePlanRules, String> {
    applier_rules(context, namespace, &SelfAppliedPolicies::default())
}

/// What an applier in a namespace may do without approval, which PlanPolicies that it applies itself do not loosen.
///
/// # Errors
/// As [`namespace_rules`].
pub fn applier_rules(
    context: &RunContext,
    namespace: &str,
    own: &SelfAppliedPolicies,
) -> Result<NamespacePlanRules, String> {
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

/// What may be done in a namespace with these labels, by the PlanPolicies of its cluster.
pub fn rules_of_labels(
    policies: &[Arc<PlanPolicy>],
    labels: &BTreeMap<String, String>,
) -> NamespacePlanRules {
    let is_selected =
        |policy: &&Arc<PlanPolicy>| selector(&policy.spec.namespace_selector).selects(labels);
    let selected: Vec<Arc<PlanPolicy>> = policies.iter().filter(is_selected).cloned().collect();
    strictest(&selected)
}

/// What PlanPolicies that select the same namespace allow together.
fn strictest(selected: &[Arc<PlanPolicy>]) -> NamespacePlanRules {
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
    NamespacePlanRules {
        budget,
        policies: names(&limiting),
        mode: asking.iter().map(|it| mode_of(it)).max().unwrap_or_default(),
        mode_policies: names(&asking),
        approvals: approvals_of(selected),
    }
}

/// How many users have to approve under some PlanPolicies; 0 if one is enough.
fn approvals_of(policies: &[Arc<PlanPolicy>]) -> i64 {
    let most = policies.iter().filter_map(|it| it.spec.approvals).max();
    most.filter(|count| *count > 1).unwrap_or_default().min(MAX_APPROVALS)
}

/// The mode of a PlanPolicy.
fn mode_of(policy: &PlanPolicy) -> PlanMode {
    match policy.spec.mode.unwrap_or_default() {
        crds::release::PlanMode::Automatic => PlanMode::Automatic,
        crds::release::PlanMode::ApproveDestructive => PlanMode::ApproveDestructive,
        crds::release::PlanMode::Approve => PlanMode::Approve,
    }
}

/// The budget of a PlanPolicy. A number that is out of range allows nothing.
fn budget_of(spec: &DeletionBudgetSpec) -> DeletionBudget {
    let default = DeletionBudget::default();
    let kind = |it: &crds::release::ProtectedKind| ProtectedKind {
        group: it.group.clone(),
        kind: it.kind.clone(),
    };
    let objects = spec.max_objects.map(|it| usize::try_from(it).unwrap_or_default());
    let percent = spec.max_percent.map(|it| u8::try_from(it).unwrap_or_default());
    let kinds = spec.protected_kinds.as_ref().map(|it| it.iter().map(kind).collect());
    let exemption = |it: &crds::release::DeletionExemption| DeletionExemption {
        group: it.group.clone(),
        kind: it.kind.clone(),
        match_labels: it.match_labels.clone(),
    };
    let can_be = |it: &&crds::release::DeletionExemption| {
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

/// The object whose deletions are judged.
#[derive(Debug, Clone, Copy)]
pub struct DeletionSubject<'a> {
    /// The object.
    pub node: &'a ObjectKey,
    /// Its uid.
    pub uid: &'a str,
    /// Which of its releases it is; empty for an object that is judged as a whole.
    pub release: &'a str,
    /// Names the operation that would delete; empty where a later one goes on with the same approval.
    pub operation: &'a str,
}

impl<'a> DeletionSubject<'a> {
    /// An object that is judged as a whole, whatever its operations are.
    pub const fn of(node: &'a ObjectKey, uid: &'a str) -> Self {
        Self { node, uid, release: "", operation: "" }
    }
}

/// A deletion that may need approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetedDeletion {
    /// What is deleted, without what follows.
    pub ids: BTreeSet<ObjectId>,
    /// The comparison with the budget.
    pub verdict: BudgetVerdict,
    /// The budget.
    pub budget: DeletionBudget,
    /// What its approval takes.
    pub terms: ApprovalTerms,
    /// When the newest of the objects was created; `None` if that is not known, so that no pull request approves.
    pub newest: Option<Time>,
}

impl BudgetedDeletion {
    /// The first of the objects, and how many more there are, for people.
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

    /// What of the budget is exceeded, for people.
    pub fn exceeded_rules(&self) -> String {
        let rules: Vec<String> = self.verdict.exceeded.iter().map(DeletionRule::text).collect();
        match rules.is_empty() {
            true => "an earlier deletion still waits for approval".to_owned(),
            false => rules.join("; "),
        }
    }

    /// What follows the name of an operation that waits, for people: what it would delete, why it waits, and how to approve it
    /// by the Plan of this name, if there are Plans.
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

    /// What follows the name of an operation that is not begun, for people: what it would delete.
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
    /// A user approved it.
    Approved,
    /// It needs an approval.
    Held,
}

/// Whether a deletion may be carried out, by its verdict and the Plans of the object. Of approvals, those count that
/// [`approvals::review_approvals`] found to be of users with the right, right before.
///
/// # Errors
/// Why it is not known; nothing may be deleted then.
pub fn clearance(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    deletion: &BudgetedDeletion,
    now: Time,
) -> Result<DeletionClearance, String> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    table.current()?;
    let mut plans = plans_of(&table, subject);
    // An approval of a whole result is for that only.
    plans.retain(|plan| plan.spec.changes.is_none());
    let is_valid = |plan: &&Arc<Plan>| !is_expired(plan, now) && !is_rejected(plan);
    let valid: Vec<&Arc<Plan>> = plans.iter().filter(is_valid).collect();
    let reviews = context.shared::<ApprovalReviews>();
    if valid.iter().any(|plan| approves(plan, subject, deletion) && reviews.confirm(plan)) {
        return Ok(DeletionClearance::Approved);
    }
    let mut own = valid.iter().filter(|plan| is_for(plan, subject, deletion));
    if own.any(|plan| pull_request_approval::is_approved_now(context, plan, deletion.newest)) {
        return Ok(DeletionClearance::Approved);
    }
    let budget = plan_budget(&deletion.budget);
    let is_its = |plan: &Arc<Plan>| plan.spec.operation == subject.operation;
    // While another deletion waits under the same budget, nothing more may be deleted.
    let is_waiting =
        plans.iter().any(|plan| is_its(plan) && waits(plan, &budget, reviews.confirm(plan), now));
    let is_free = deletion.verdict.is_within() && !is_waiting;
    Ok(if is_free { DeletionClearance::Free } else { DeletionClearance::Held })
}

/// Whether a Plan waits under a budget: another Plan replaces one that is expired, which releases nothing. What was approved
/// does not wait, also while it is carried out.
fn waits(plan: &Plan, budget: &PlanBudget, is_confirmed: bool, now: Time) -> bool {
    plan.spec.budget == *budget && (is_expired(plan, now) || !is_confirmed)
}

/// The objects of an approved deletion that a user keeps: they stay in the cluster, and the applier gives them up.
pub fn kept_objects(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    deletion: &BudgetedDeletion,
    now: Time,
) -> BTreeSet<ObjectId> {
    let plans = plans_of(&context.shared::<WatchedObjectCache<Plan>>(), subject);
    plans.iter().flat_map(|plan| kept_by(plan, subject, deletion, now)).collect()
}

/// The objects that approvals of a Plan keep of an approved deletion, also where others approved it, or a pull request did: what
/// a user wants to keep is not deleted because the approval of that user alone does not count.
fn kept_by(
    plan: &Plan,
    subject: &DeletionSubject<'_>,
    deletion: &BudgetedDeletion,
    now: Time,
) -> BTreeSet<ObjectId> {
    // An approval of a whole result keeps nothing.
    let is_of_deletion = plan.spec.changes.is_none() && !is_expired(plan, now);
    match is_of_deletion && is_for(plan, subject, deletion) {
        true => kept_of(plan, deletion),
        false => BTreeSet::new(),
    }
}

/// The objects of a deletion that approvals of a Plan keep, with those that they would be deleted with. What is not among these
/// objects keeps nothing.
fn kept_of(plan: &Plan, deletion: &BudgetedDeletion) -> BTreeSet<ObjectId> {
    let names = counted_approvals(plan).flat_map(|approval| &approval.keep);
    let ids = names.filter_map(|id| id.parse::<ObjectId>().ok());
    let named = ids.filter(|id| deletion.ids.contains(id)).collect();
    kept_with_containers(named, &deletion.ids)
}

/// How many of some ids no approval is for.
pub fn unapproved_count(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    ids: &BTreeSet<ObjectId>,
) -> usize {
    let plans = plans_of(&context.shared::<WatchedObjectCache<Plan>>(), subject);
    let reviews = context.shared::<ApprovalReviews>();
    // An approval that was refused must not hide a deletion from the budget.
    let by_users = |plan: &Plan| is_approved(plan) && !reviews.refuse(plan);
    let counts = |plan: &Plan| by_users(plan) || was_approved(context, plan);
    let approvals = plans.iter().filter(|plan| counts(plan)).filter_map(|plan| approval(plan));
    approvals.fold(ids.clone(), |rest, approval| approval.unapproved(subject.uid, &rest)).len()
}

/// Whether there are Plans of an object.
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

/// Whether no approval of a Plan counts any more.
pub fn is_expired(plan: &Plan, now: Time) -> bool {
    plan.spec.expires.as_ref().is_none_or(|at| at.0 <= now)
}

fn approves(plan: &Plan, subject: &DeletionSubject<'_>, deletion: &BudgetedDeletion) -> bool {
    is_approved(plan) && is_for(plan, subject, deletion)
}

/// Whether an approval of a Plan is for a deletion.
fn is_for(plan: &Plan, subject: &DeletionSubject<'_>, deletion: &BudgetedDeletion) -> bool {
    // The right to approve was asked for these policies.
    (&plan.spec.policies, plan.spec.approvals)
        == (&deletion.terms.policies, deletion.terms.approvals)
        && plan.spec.operation == subject.operation
        && approval(plan).is_some_and(|it| it.covers(subject.uid, &deletion.ids))
}

/// What an approval of a Plan is for; `None` if the Plan does not name it clearly.
fn approval(plan: &Plan) -> Option<ApprovedDeletion> {
    let PlanSpec { objects, count, digest, .. } = &plan.spec;
    let count = usize::try_from(*count).ok()?;
    let listed: Result<BTreeSet<ObjectId>, _> = objects.iter().map(|it| it.parse()).collect();
    Some(ApprovedDeletion { digest: digest.clone(), listed: listed.ok()?, count })
}

/// The Plan of a deletion that is held, or of a whole result.
pub struct DeletionPlanRequest<'r> {
    /// The object whose deletions or changes are held.
    pub subject: DeletionSubject<'r>,
    /// The owner reference with which the Plan is deleted together with the object.
    pub owner: Option<OwnerReference>,
    /// The revision whose manifests lack the objects.
    pub revision: &'r str,
    /// The deletion; of a whole result, all that it deletes, which may be nothing.
    pub deletion: &'r BudgetedDeletion,
    /// Everything that would be done, where more than the deletion is held.
    pub changes: Option<PlanChanges>,
}

/// The Plan of what is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedPlan {
    /// Its name.
    pub name: String,
    /// Whether it did not exist before.
    pub is_new: bool,
    /// Which approvals it has and which do not count, and why no reviewed pull request approves it, as what follows the advice
    /// to approve it.
    pub note: String,
    /// Who rejected it, as what follows the name of what it is for.
    pub rejection: Option<String>,
}

impl RequestedPlan {
    fn known(context: &RunContext, plan: &Plan) -> Self {
        let waiting = approvals::waiting_note(context, plan);
        Self {
            name: plan.name_any(),
            is_new: false,
            note: format!("{waiting}{}", pull_request_approval::approval_note(plan)),
            rejection: approvals::rejection(plan),
        }
    }
}

/// Creates the Plan of what is held if it does not exist, and deletes the other Plans of the object. `None` if the kind is not
/// installed.
///
/// # Errors
/// The API server refuses a request, or does not respond.
pub async fn request(
    context: &RunContext,
    request: &DeletionPlanRequest<'_>,
    now: Time,
) -> Result<Option<RequestedPlan>, ClusterError> {
    let plan = plan(request, now);
    let name = plan.name_any();
    let table = context.shared::<WatchedObjectCache<Plan>>();
    let is_same = |known: &Arc<Plan>| {
        let [one, other] = [&known.spec, &plan.spec];
        // What was rejected is not asked for again.
        (!is_expired(known, now) || is_rejected(known))
            && (&one.subject, &one.digest) == (&other.subject, &other.digest)
            && one.operation == other.operation
            && (&one.policies, &one.budget) == (&other.policies, &other.budget)
            && one.approvals == other.approvals
            // What users read has to be what they approve.
            && (&one.objects, one.count) == (&other.objects, other.count)
            && result_plan::is_same_result(one.changes.as_ref(), other.changes.as_ref())
    };
    let known = table.get(&request.subject.node.namespace, &name).filter(is_same);
    dismiss(context, &request.subject, known.is_some().then_some(name.as_str())).await?;
    if let Some(known) = known {
        return Ok(Some(RequestedPlan::known(context, &known)));
    }
    match context.cluster.create(&plan, MANAGER).await {
        Ok(created) => {
            table.insert(created);
            pull_request_approval::plans_changed(context);
            let note = approvals::waiting_note(context, &plan);
            Ok(Some(RequestedPlan { name, is_new: true, note, rejection: None }))
        }
        Err(error) if error.is_unserved() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes the Plans of an object, except one: what they were for was carried out or is not needed any more.
///
/// # Errors
/// The API server refuses a request, or does not respond.
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
            // Who approved is in the Plan only, which is gone now.
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

fn plan_budget(budget: &DeletionBudget) -> PlanBudget {
    let kind = |it: &ProtectedKind| crds::release::ProtectedKind {
        group: it.group.clone(),
        kind: it.kind.clone(),
    };
    let exemption = |it: &DeletionExemption| crds::release::DeletionExemption {
        group: it.group.clone(),
        kind: it.kind.clone(),
        match_labels: it.match_labels.clone(),
    };
    PlanBudget {
        max_objects: i64::try_from(budget.max_objects).unwrap_or(i64::MAX),
        max_percent: budget.max_percent.into(),
        protected_kinds: budget.protected_kinds.iter().map(kind).collect(),
        exempt: budget.exempt.iter().map(exemption).collect(),
    }
}

fn plan(request: &DeletionPlanRequest<'_>, now: Time) -> Plan {
    let DeletionPlanRequest { subject, owner, revision, deletion, changes } = request;
    let BudgetedDeletion { ids, verdict, budget, terms, .. } = deletion;
    let short = |text: &str| text.chars().take(MAX_RULE_LENGTH).collect::<String>();
    let count = |of: usize| i64::try_from(of).unwrap_or(i64::MAX);
    let rules = verdict.exceeded.iter().map(|rule: &DeletionRule| short(&rule.text()));
    let expires = now.saturating_add(PLAN_EXPIRES_AFTER).unwrap_or(Time::MAX);
    // The API has whole seconds.
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

/// The first of the objects that are deleted. A Plan that lists everything that is done names them there as well, and has less
/// room for them here.
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

/// The name of a Plan: the same for the same deletion or result under the same policies, so that a crash does not lead to a second one.
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
    // What was read can be written.
    hash.update(serde_json::to_vec(&spec.budget).unwrap_or_default());
    let digest = hex::encode(hash.finalize());
    let subject: String = spec.subject.name.chars().take(40).collect();
    format!("{}-{}", subject.trim_end_matches(['.', '-']), &digest[..16])
}

#[cfg(test)]
mod tests;
