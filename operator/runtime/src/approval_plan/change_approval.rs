//! Plans of everything that a run or an operation would change, for namespaces and objects whose changes need an approval.
//!
//! Here: the key of the digests, which Plan approves a result, and the list of changes in a Plan. Elsewhere: which changes are
//! held and what an approval covers (engine `apply`, `planned_changes`), finding the changes (the appliers), reviewed pull
//! requests (`pull_request_approval`), and Plans in general (`approval_plan`).
//!
//! The digest of a result needs a secret key, because users who read a Plan could otherwise guess short values of Secrets from
//! it. The key is a Secret in windlass's namespace, which the first Plan of the cluster creates. If the key is lost, waiting
//! Plans are replaced and need a new approval.

use std::collections::BTreeSet;
use std::sync::Arc;

use apply::deletion_budget::{BudgetVerdict, DeletionBudget};
use apply::planned_changes::{
    ApprovedChanges, PlannedChange, PlannedChangeKind, PlannedChanges, PlannedChangesIdentity,
};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crds::windlass_release::{Plan, PlanAction, PlanChange, PlanChanges};
use kube_core::ResourceExt as _;
use objects::{Gvk, Object, ObjectId};
use reconcile::{ConditionReason, Time};
use serde_json::json;
use tokio::sync::OnceCell;

use super::approvals::{
    ApprovalRequirements, ApprovalReviewCache, counted_approvals, is_approved, is_rejected,
};
use super::{
    BudgetedDeletion, DeletionSubject, MANAGER, approval, is_expired, plan_budget, plans_of,
};
use crate::lifecycle::watched_object_cache::WatchedObjectCache;
use crate::pull_request_approval_cache::{self, ReviewedRunFacts};
use crate::random_bytes;
use crate::run_context::RunContext;
use windlass_cluster::ClusterError;

/// The annotation of an applier with the changes that need an approval, if those are more than its policies require.
pub const PLAN_MODE: &str = "windlass.dev/plan";

/// The reason of a condition: a change waits for the approval of its Plan.
pub const PLAN_PENDING: ConditionReason = ConditionReason::new("PlanPending");

/// The reason of a condition: a user rejected the Plan of a change.
pub const PLAN_REJECTED: ConditionReason = ConditionReason::new("PlanRejected");

/// The reason of a condition: windlass does not know which changes need an approval or have one, so it changes nothing.
pub(super) const PLAN_POLICIES_UNKNOWN: ConditionReason =
    ConditionReason::new("PlanPoliciesUnknown");

/// The reason of a condition: a chart renders differently each time, so no approval can cover the applied result.
pub const PLAN_NOT_REPRODUCIBLE: ConditionReason = ConditionReason::new("PlanNotReproducible");

/// The Secret with the key of the digests.
const KEY_SECRET: &str = "windlass-plan-key";

/// The field of the Secret with the key.
const KEY_FIELD: &str = "key";

/// The length of the key in bytes.
const KEY_BYTES: usize = 32;

/// The most objects that a message names.
const MAX_NAMED_OBJECTS: usize = 5;

/// The secret key for the digests of results.
#[derive(Debug, Clone)]
pub struct PlannedChangesDigestKey(Arc<hmac::Key>);

impl PlannedChangesDigestKey {
    fn of(bytes: &[u8]) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The keyed digest that a Plan has in place of the plain one.
    pub fn keyed(&self, digest: &str) -> String {
        format!("hmac-sha256:{}", hex::encode(hmac::sign(&self.0, digest.as_bytes())))
    }
}

/// The key of the digests, cached after the first read.
#[derive(Default)]
struct KnownDigestKey(OnceCell<PlannedChangesDigestKey>);

/// The key of the digests in this cluster. It is created if it does not exist.
///
/// # Errors
/// The API server refuses a request or does not respond, or the Secret has no key.
pub async fn digest_key(context: &RunContext) -> Result<PlannedChangesDigestKey, ClusterError> {
    let known = context.shared::<KnownDigestKey>();
    known.0.get_or_try_init(|| read_or_made(context)).await.cloned()
}

async fn read_or_made(context: &RunContext) -> Result<PlannedChangesDigestKey, ClusterError> {
    let cluster = &context.cluster;
    let namespace = &context.settings.runtime_namespace;
    let secrets = cluster.resource(&Gvk::new("v1", "Secret")).await?;
    if let Some(secret) = cluster.get(&secrets, namespace, KEY_SECRET).await? {
        return key_of(&secret);
    }
    let mut bytes = [0; KEY_BYTES];
    random_bytes::fill(&mut bytes);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "immutable": true,
        "metadata": {"name": KEY_SECRET, "namespace": namespace},
        "data": {KEY_FIELD: BASE64_STANDARD.encode(bytes)}});
    let secret = Object::new(secret).map_err(|error| unusable(&error.to_string()))?;
    match cluster.create_object(&secrets, &secret, MANAGER, false).await {
        Ok(created) => key_of(&created),
        // Another replica or shard created the Secret first.
        Err(error) if error.code() == Some(409) => {
            let secret = cluster.get(&secrets, namespace, KEY_SECRET).await?;
            key_of(&secret.ok_or_else(|| unusable("it was deleted"))?)
        }
        Err(error) => Err(error),
    }
}

fn key_of(secret: &Object) -> Result<PlannedChangesDigestKey, ClusterError> {
    let text = secret.get("data").and_then(|data| data[KEY_FIELD].as_str()).unwrap_or_default();
    let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
    match bytes.len() >= KEY_BYTES {
        true => Ok(PlannedChangesDigestKey::of(&bytes)),
        false => Err(unusable("it has no key of 32 bytes; delete it, and it is made again")),
    }
}

fn unusable(why: &str) -> ClusterError {
    ClusterError::Withheld(format!("Secret {KEY_SECRET} cannot be used: {why}"))
}

/// An approved Plan for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedPlan {
    /// The name of the Plan.
    pub name: String,
    /// The objects that may be deleted.
    pub removed: BTreeSet<ObjectId>,
    /// The objects that may be deleted and created again.
    pub recreated: BTreeSet<ObjectId>,
}

/// The Plan that approves a result. `None` if there is none. `terms` are the current requirements. An approval counts only if
/// [`super::approvals::review_approvals`] has just confirmed the right of its user.
///
/// # Errors
/// The reason why that is not known.
pub fn approved_plan(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    key: &PlannedChangesDigestKey,
    result: &PlannedChangesIdentity,
    terms: &ApprovalRequirements,
) -> Result<Option<ApprovedPlan>, String> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    table.current()?;
    let now = jiff::Timestamp::now();
    let reviews = context.shared::<ApprovalReviewCache>();
    let mut plans = plans_of(&table, subject).into_iter().filter(|plan| reviews.confirm(plan));
    Ok(plans.find_map(|plan| approving(&plan, subject, key, result, terms, now)))
}

/// Whether an object has a Plan whose status names a reviewed pull request. It says nothing about what the Plan is for.
pub fn names_pull_request(context: &RunContext, subject: &DeletionSubject<'_>) -> bool {
    let plans = plans_of(&context.shared::<WatchedObjectCache<Plan>>(), subject);
    plans.iter().any(|plan| pull_request_approval_cache::is_recorded(plan))
}

/// The Plan of a result that a reviewed pull request approves. `None` if there is none, or if it has to be verified first,
/// which then wakes the object. `terms` are the current requirements, and `run` are the facts of the run.
///
/// # Errors
/// The reason why that is not known.
pub fn reviewed_plan(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    key: &PlannedChangesDigestKey,
    result: &PlannedChangesIdentity,
    terms: &ApprovalRequirements,
    run: &ReviewedRunFacts,
) -> Result<Option<ApprovedPlan>, String> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    table.current()?;
    let now = jiff::Timestamp::now();
    let plans = plans_of(&table, subject).into_iter().filter(|plan| !is_rejected(plan));
    let mut shown = plans.filter_map(|plan| {
        let its = covering(&plan, subject, key, result, terms, now)?;
        is_shown_as_whole(&plan, subject, &its).then_some((plan, its))
    });
    let approved = |(plan, its): (Arc<Plan>, ApprovedPlan)| {
        pull_request_approval_cache::is_approved_now(context, &plan, run).then_some(its)
    };
    Ok(shown.find_map(approved))
}

/// Whether the deletions that were looked for in the commits of a pull request are those of the result. A pull request never
/// shows that an object is created again.
fn is_shown_as_whole(plan: &Plan, subject: &DeletionSubject<'_>, its: &ApprovedPlan) -> bool {
    its.recreated.is_empty()
        && approval(plan).is_some_and(|it| it.covers(subject.uid, &its.removed))
}

/// The approval of a result by one Plan. The right of the users was checked for the policies of the Plan. `None` if the Plan is
/// not approved, or if its approval does not cover this result.
fn approving(
    plan: &Plan,
    subject: &DeletionSubject<'_>,
    key: &PlannedChangesDigestKey,
    result: &PlannedChangesIdentity,
    terms: &ApprovalRequirements,
    now: Time,
) -> Option<ApprovedPlan> {
    is_approved(plan).then(|| covering(plan, subject, key, result, terms, now)).flatten()
}

/// What an approval of a Plan allows, if the Plan is of this result. An approval that keeps objects does not count, because a
/// result can only be carried out as a whole. `None` if the Plan does not cover this result, or has expired.
fn covering(
    plan: &Plan,
    subject: &DeletionSubject<'_>,
    key: &PlannedChangesDigestKey,
    result: &PlannedChangesIdentity,
    terms: &ApprovalRequirements,
    now: Time,
) -> Option<ApprovedPlan> {
    let is_valid = plan.spec.policies == terms.policies
        && plan.spec.approvals == terms.approvals
        && plan.spec.operation == subject.operation
        && !is_expired(plan, now)
        && counted_approvals(plan).all(|it| it.keep.is_empty());
    let approved = approved_result(plan).filter(|_| is_valid)?;
    approved.covers(result, |digest| key.keyed(digest)).then(|| ApprovedPlan {
        name: plan.name_any(),
        // If the list in the Plan was cut, exactly the objects of this result are approved.
        removed: approved.removed.union(&result.removed).cloned().collect(),
        recreated: approved.recreated.union(&result.recreated).cloned().collect(),
    })
}

/// The result that an approval of a Plan covers. `None` if the Plan is not about a result or cannot be read.
fn approved_result(plan: &Plan) -> Option<ApprovedChanges> {
    let changes = plan.spec.changes.as_ref()?;
    let ids = |action: PlanAction| -> Option<BTreeSet<ObjectId>> {
        let its = changes.objects.iter().filter(|it| it.action == action);
        its.map(|it| it.id.parse().ok()).collect()
    };
    let removed = ids(PlanAction::Removed)?;
    let recreated = ids(PlanAction::Recreated)?;
    let counts = [changes.removed, changes.recreated].map(|it| usize::try_from(it).ok());
    let is_complete = counts == [removed.len(), recreated.len()].map(Some);
    // windlass writes a list that is either complete or cut. Any other list is not its own.
    let is_cut = changes.omitted > 0;
    (is_complete || is_cut).then_some(ApprovedChanges {
        digest: changes.digest.clone(),
        removed,
        recreated,
        is_complete,
    })
}

/// Whether a Plan of a result already waits under the same policies. Then its list of changes is not computed again.
pub fn is_listed(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    key: &PlannedChangesDigestKey,
    result: &PlannedChangesIdentity,
    deletion: &BudgetedDeletion,
) -> bool {
    let now = jiff::Timestamp::now();
    let digest = key.keyed(&result.digest());
    let budget = plan_budget(&deletion.budget);
    let is_it = |plan: &Arc<Plan>| {
        plan.spec.changes.as_ref().is_some_and(|it| it.digest == digest)
            && plan.spec.policies == deletion.terms.policies
            && plan.spec.approvals == deletion.terms.approvals
            && plan.spec.budget == budget
            && (!is_expired(plan, now) || is_rejected(plan))
    };
    plans_of(&context.shared::<WatchedObjectCache<Plan>>(), subject).iter().any(is_it)
}

/// Whether two Plans are about the same result. Their other content may change with the cluster, and needs no new approval.
pub(super) fn is_same_result(one: Option<&PlanChanges>, other: Option<&PlanChanges>) -> bool {
    let of = |changes: Option<&PlanChanges>| {
        changes.map(|it| (it.digest.clone(), it.removed, it.recreated))
    };
    of(one) == of(other)
}

/// The changes of a result as the part of a Plan.
pub fn listed(
    key: &PlannedChangesDigestKey,
    result: &PlannedChangesIdentity,
    changes: &PlannedChanges,
) -> PlanChanges {
    let count = |of: usize| i64::try_from(of).unwrap_or(i64::MAX);
    let of_kind = |kind: PlannedChangeKind| count(changes.ids(kind).len());
    let listing = changes.listing();
    PlanChanges {
        digest: key.keyed(&result.digest()),
        added: of_kind(PlannedChangeKind::Added),
        changed: of_kind(PlannedChangeKind::Changed),
        removed: of_kind(PlannedChangeKind::Removed),
        recreated: of_kind(PlannedChangeKind::Recreated),
        unverified: count(changes.objects.iter().filter(|it| it.is_unverified).count()),
        objects: listing.listed.into_iter().map(plan_change).collect(),
        omitted: count(listing.omitted),
        hooks: listing.hooks,
        tests: listing.tests,
    }
}

fn plan_change(change: PlannedChange) -> PlanChange {
    PlanChange {
        id: change.id.to_string(),
        action: match change.kind {
            PlannedChangeKind::Removed => PlanAction::Removed,
            PlannedChangeKind::Recreated => PlanAction::Recreated,
            PlannedChangeKind::Changed => PlanAction::Changed,
            PlannedChangeKind::Added => PlanAction::Added,
        },
        fields: change.fields,
        unverified: change.is_unverified,
    }
}

/// The deletions of a result that no budget has judged.
pub fn deletion_of(
    changes: &PlannedChanges,
    budget: Option<DeletionBudget>,
    terms: ApprovalRequirements,
) -> BudgetedDeletion {
    let ids = changes.ids(PlannedChangeKind::Removed);
    let verdict = BudgetVerdict {
        deleted: ids.len(),
        of: ids.len(),
        first: ids.iter().take(MAX_NAMED_OBJECTS).cloned().collect(),
        exceeded: Vec::new(),
    };
    let budget = budget.unwrap_or_default();
    BudgetedDeletion { ids, verdict, budget, terms, newest: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval_plan::{ApprovalPlanRequest, plan};
    use reconcile::ObjectKey;
    use serde_json::Value;

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    fn changes(removed: usize) -> PlannedChanges {
        let mut changes = PlannedChanges::default();
        let of =
            |at: usize| PlannedChange::new(id(&format!("r{at:04}")), PlannedChangeKind::Removed);
        changes.objects.extend((0..removed).map(of));
        let mut changed = PlannedChange::new(id("c"), PlannedChangeKind::Changed);
        changed.fields.push("/data/a".to_owned());
        changes.objects.push(changed);
        changes
    }

    fn identity(changes: &PlannedChanges) -> PlannedChangesIdentity {
        PlannedChangesIdentity {
            content: "content".to_owned(),
            removed: changes.ids(PlannedChangeKind::Removed),
            recreated: changes.ids(PlannedChangeKind::Recreated),
        }
    }

    fn key() -> PlannedChangesDigestKey {
        PlannedChangesDigestKey::of(&[7; KEY_BYTES])
    }

    fn planned(changes: &PlannedChanges, approver: Option<&str>) -> Plan {
        let node = ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "apps");
        let deletion = deletion_of(changes, None, terms(&["production"]));
        let request = ApprovalPlanRequest {
            subject: DeletionSubject::of(&node, "uid"),
            owner: None,
            revision: "main@sha1:1",
            deletion: &deletion,
            changes: Some(listed(&key(), &identity(changes), changes)),
        };
        let mut plan = plan(&request, Time::from_second(1_800_000_000).unwrap());
        let approvals = approver.map(|user| json!({"approvals": [{"user": user}]}));
        plan.status = approvals.map(|it| serde_json::from_value(it).unwrap());
        plan
    }

    fn terms(policies: &[&str]) -> ApprovalRequirements {
        let policies = policies.iter().map(|&it| it.to_owned()).collect();
        ApprovalRequirements { policies, approvals: 0 }
    }

    fn found(plan: &Plan, result: &PlannedChangesIdentity, policies: &[&str]) -> bool {
        let node = ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "apps");
        let subject = DeletionSubject::of(&node, "uid");
        let now = Time::from_second(1_800_000_000).unwrap();
        approving(plan, &subject, &key(), result, &terms(policies), now).is_some()
    }

    #[test]
    fn an_approval_of_a_user_is_for_one_result_under_the_same_policies() {
        let all = changes(2);
        let result = identity(&all);
        assert!(found(&planned(&all, Some("alice")), &result, &["production"]));
        assert!(!found(&planned(&all, None), &result, &["production"]));
        assert!(!found(
            &planned(&all, Some("system:serviceaccount:a:b")),
            &result,
            &["production"]
        ));
        assert!(!found(&planned(&all, Some("alice")), &result, &["production", "stricter"]));
        let mut keeping = planned(&all, Some("alice"));
        let approvals =
            json!({"approvals": [{"user": "alice", "keep": ["shop_r0000__ConfigMap"]}]});
        keeping.status = Some(serde_json::from_value(approvals).unwrap());
        assert!(!found(&keeping, &result, &["production"]), "nothing of it can be left out");
        let mut rejected = planned(&all, Some("alice"));
        let status = rejected.status.as_mut().unwrap();
        status.rejection = Some(serde_json::from_value(json!({"user": "bob"})).unwrap());
        assert!(!found(&rejected, &result, &["production"]), "a rejection is stronger");
        let other = PlannedChangesIdentity { content: "other".to_owned(), ..result };
        assert!(!found(&planned(&all, Some("alice")), &other, &["production"]));
    }

    #[test]
    fn a_list_that_is_cut_approves_exactly_its_result() {
        let all = changes(1200);
        let plan = planned(&all, Some("alice"));
        let listed = plan.spec.changes.as_ref().unwrap();
        assert!(listed.omitted > 0 && listed.removed == 1200, "{}", listed.omitted);
        assert!(serde_json::to_vec(&plan).unwrap().len() < 256 << 10);
        assert!(found(&plan, &identity(&all), &["production"]));
        assert!(!found(&plan, &identity(&changes(1199)), &["production"]));
        assert!(serde_json::to_vec(&planned(&changes(990), None)).unwrap().len() < 256 << 10);
    }

    #[test]
    fn a_list_that_was_changed_approves_nothing() {
        let all = changes(2);
        let mut forged = planned(&all, Some("alice"));
        let part = forged.spec.changes.as_mut().unwrap();
        part.objects.retain(|it| it.action != PlanAction::Removed);
        assert!(!found(&forged, &identity(&all), &["production"]));
        let part = forged.spec.changes.as_mut().unwrap();
        part.removed = 0;
        assert!(!found(&forged, &identity(&all), &["production"]));
        assert!(!found(&forged, &identity(&changes(0)), &["production"]));
    }

    #[test]
    fn a_pull_request_approves_no_recreation_and_only_deletions_that_were_looked_for() {
        let node = ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "apps");
        let subject = DeletionSubject::of(&node, "uid");
        let of = |removed: usize, recreated: &[&str]| ApprovedPlan {
            name: "apps-1".to_owned(),
            removed: changes(removed).ids(PlannedChangeKind::Removed),
            recreated: recreated.iter().map(|name| id(name)).collect(),
        };
        let plan = planned(&changes(2), None);
        assert!(is_shown_as_whole(&plan, &subject, &of(2, &[])));
        assert!(is_shown_as_whole(&planned(&changes(0), None), &subject, &of(0, &[])));
        assert!(!is_shown_as_whole(&plan, &subject, &of(2, &["c"])));
        assert!(!is_shown_as_whole(&plan, &subject, &of(3, &[])));
        let mut forged = plan;
        forged.spec.objects.clear();
        forged.spec.count = 0;
        assert!(!is_shown_as_whole(&forged, &subject, &of(2, &[])), "it lists other deletions");
    }

    #[test]
    fn a_digest_tells_nothing_without_the_key() {
        let other = PlannedChangesDigestKey::of(&[8; KEY_BYTES]);
        assert_ne!(key().keyed("a"), other.keyed("a"));
        assert_eq!(key().keyed("a"), key().keyed("a"));
        assert!(key().keyed("a").starts_with("hmac-sha256:"));
        let secret = |value: Value| {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "k"},
                "data": value});
            key_of(&Object::new(secret).unwrap())
        };
        assert!(secret(json!({"key": BASE64_STANDARD.encode([7; KEY_BYTES])})).is_ok());
        for value in [json!({}), json!({"key": ""}), json!({"key": "c2hvcnQ="}), json!(null)] {
            assert!(secret(value).is_err());
        }
    }
}
