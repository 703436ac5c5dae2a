//! Plans of everything that a run or an operation would change, for namespaces and objects whose changes need an approval.
//!
//! Here: the key of the digests, which Plan approves a result, and the list of changes in a Plan. Elsewhere: which changes are
//! held and what an approval covers (engine `apply`, `result_changes`), finding the changes (the appliers), and Plans in
//! general (`deletion_plan`).
//!
//! The digest of a result needs a secret key, because users who read a Plan could otherwise guess short values of Secrets from
//! it. The key is a Secret in windlass's namespace, which the first Plan of the cluster creates. If the key is lost, waiting
//! Plans are replaced and need a new approval.

use std::collections::BTreeSet;
use std::sync::Arc;

use apply::deletion_budget::{BudgetVerdict, DeletionBudget};
use apply::result_changes::{
    ApprovedResult, ResultChange, ResultChangeKind, ResultChanges, ResultIdentity,
};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crds::release::{Plan, PlanAction, PlanChange, PlanChanges};
use kube_core::ResourceExt as _;
use objects::{Gvk, Object, ObjectId};
use reconcile::{ConditionReason, Time};
use serde_json::json;
use tokio::sync::OnceCell;

use super::approvals::{
    ApprovalReviews, ApprovalTerms, counted_approvals, is_approved, is_rejected,
};
use super::{BudgetedDeletion, DeletionSubject, MANAGER, is_expired, plan_budget, plans_of};
use crate::lifecycle::watched_object_cache::WatchedObjectCache;
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
pub struct ResultDigestKey(Arc<hmac::Key>);

impl ResultDigestKey {
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
struct KnownDigestKey(OnceCell<ResultDigestKey>);

/// The key of the digests in this cluster. It is created if it does not exist.
///
/// # Errors
/// The API server refuses a request or does not respond, or the Secret has no key.
pub async fn digest_key(context: &RunContext) -> Result<ResultDigestKey, ClusterError> {
    let known = context.shared::<KnownDigestKey>();
    known.0.get_or_try_init(|| read_or_made(context)).await.cloned()
}

async fn read_or_made(context: &RunContext) -> Result<ResultDigestKey, ClusterError> {
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

fn key_of(secret: &Object) -> Result<ResultDigestKey, ClusterError> {
    let text = secret.get("data").and_then(|data| data[KEY_FIELD].as_str()).unwrap_or_default();
    let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
    match bytes.len() >= KEY_BYTES {
        true => Ok(ResultDigestKey::of(&bytes)),
        false => Err(unusable("it has no key of 32 bytes; delete it, and it is made again")),
    }
}

fn unusable(why: &str) -> ClusterError {
    ClusterError::Withheld(format!("Secret {KEY_SECRET} cannot be used: {why}"))
}

/// A Plan that approves a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovingPlan {
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
pub fn approving_plan(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
    key: &ResultDigestKey,
    result: &ResultIdentity,
    terms: &ApprovalTerms,
) -> Result<Option<ApprovingPlan>, String> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    table.current()?;
    let now = jiff::Timestamp::now();
    let reviews = context.shared::<ApprovalReviews>();
    let mut plans = plans_of(&table, subject).into_iter().filter(|plan| reviews.confirm(plan));
    Ok(plans.find_map(|plan| approving(&plan, subject, key, result, terms, now)))
}

/// The approval of a result by one Plan, if it has one. The right was checked for the policies of the Plan. An approval that
/// keeps objects does not count, because a result can only be carried out as a whole.
fn approving(
    plan: &Plan,
    subject: &DeletionSubject<'_>,
    key: &ResultDigestKey,
    result: &ResultIdentity,
    terms: &ApprovalTerms,
    now: Time,
) -> Option<ApprovingPlan> {
    let is_valid = plan.spec.policies == terms.policies
        && plan.spec.approvals == terms.approvals
        && plan.spec.operation == subject.operation
        && !is_expired(plan, now)
        && is_approved(plan)
        && counted_approvals(plan).all(|it| it.keep.is_empty());
    let approved = approved_result(plan).filter(|_| is_valid)?;
    approved.covers(result, |digest| key.keyed(digest)).then(|| ApprovingPlan {
        name: plan.name_any(),
        // If the list in the Plan was cut, exactly the objects of this result are approved.
        removed: approved.removed.union(&result.removed).cloned().collect(),
        recreated: approved.recreated.union(&result.recreated).cloned().collect(),
    })
}

/// The result that an approval of a Plan covers. `None` if the Plan is not about a result or cannot be read.
fn approved_result(plan: &Plan) -> Option<ApprovedResult> {
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
    (is_complete || is_cut).then_some(ApprovedResult {
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
    key: &ResultDigestKey,
    result: &ResultIdentity,
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
    key: &ResultDigestKey,
    result: &ResultIdentity,
    changes: &ResultChanges,
) -> PlanChanges {
    let count = |of: usize| i64::try_from(of).unwrap_or(i64::MAX);
    let of_kind = |kind: ResultChangeKind| count(changes.ids(kind).len());
    let listing = changes.listing();
    PlanChanges {
        digest: key.keyed(&result.digest()),
        added: of_kind(ResultChangeKind::Added),
        changed: of_kind(ResultChangeKind::Changed),
        removed: of_kind(ResultChangeKind::Removed),
        recreated: of_kind(ResultChangeKind::Recreated),
        unverified: count(changes.objects.iter().filter(|it| it.is_unverified).count()),
        objects: listing.listed.into_iter().map(plan_change).collect(),
        omitted: count(listing.omitted),
        hooks: listing.hooks,
        tests: listing.tests,
    }
}

fn plan_change(change: ResultChange) -> PlanChange {
    PlanChange {
        id: change.id.to_string(),
        action: match change.kind {
            ResultChangeKind::Removed => PlanAction::Removed,
            ResultChangeKind::Recreated => PlanAction::Recreated,
            ResultChangeKind::Changed => PlanAction::Changed,
            ResultChangeKind::Added => PlanAction::Added,
        },
        fields: change.fields,
        unverified: change.is_unverified,
    }
}

/// The deletions of a result that no budget has judged.
pub fn deletion_of(
    changes: &ResultChanges,
    budget: Option<DeletionBudget>,
    terms: ApprovalTerms,
) -> BudgetedDeletion {
    let ids = changes.ids(ResultChangeKind::Removed);
    let verdict = BudgetVerdict {
        deleted: ids.len(),
        of: ids.len(),
        first: ids.iter().take(MAX_NAMED_OBJECTS).cloned().collect(),
        exceeded: Vec::new(),
    };
    let budget = budget.unwrap_or_default();
    BudgetedDeletion { ids, verdict, budget, terms, newest: None }
}

/// The end of a message about changes that wait: what they are, and how to read and approve their Plan. `plan` is its name, if
/// Plans are installed.
pub fn waits_for_approval(changes: &ResultChanges, namespace: &str, plan: Option<&str>) -> String {
    let lost = changes.objects.iter().filter(|it| it.kind <= ResultChangeKind::Recreated);
    let mut names: Vec<String> =
        lost.clone().take(MAX_NAMED_OBJECTS).map(|it| it.id.subject()).collect();
    let more = lost.count().saturating_sub(names.len());
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let lost = match names.is_empty() {
        true => String::new(),
        false => format!("; removed or recreated: {}", names.join(", ")),
    };
    let approval = match plan {
        Some(plan) => format!(
            "to read its Plan, run `windlass plan show {plan} -n {namespace}`; to approve it, run \
             `windlass approve plan/{plan} -n {namespace}`"
        ),
        None => "to approve it, install the CustomResourceDefinitions planpolicies.release.windlass.dev and \
                 plans.release.windlass.dev"
            .to_owned(),
    };
    format!("waits for approval: {}{lost}; {approval}", changes.summary())
}

/// The differences between two renderings of the same result, in words. Names the first objects and fields, without values.
pub fn differences(changes: &[apply::object_changes::ObjectChange]) -> String {
    let named = changes.iter().take(MAX_NAMED_OBJECTS).map(|change| {
        let fields: Vec<&str> = change.fields.iter().take(3).map(String::as_str).collect();
        match fields.is_empty() {
            true => change.id.subject(),
            false => format!("{} ({})", change.id.subject(), fields.join(", ")),
        }
    });
    let mut names: Vec<String> = named.collect();
    let more = changes.len().saturating_sub(names.len());
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deletion_plan::{DeletionPlanRequest, plan};
    use reconcile::ObjectKey;
    use serde_json::Value;

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    fn changes(removed: usize) -> ResultChanges {
        let mut changes = ResultChanges::default();
        let of = |at: usize| ResultChange::new(id(&format!("r{at:04}")), ResultChangeKind::Removed);
        changes.objects.extend((0..removed).map(of));
        let mut changed = ResultChange::new(id("c"), ResultChangeKind::Changed);
        changed.fields.push("/data/a".to_owned());
        changes.objects.push(changed);
        changes
    }

    fn identity(changes: &ResultChanges) -> ResultIdentity {
        ResultIdentity {
            content: "content".to_owned(),
            removed: changes.ids(ResultChangeKind::Removed),
            recreated: changes.ids(ResultChangeKind::Recreated),
        }
    }

    fn key() -> ResultDigestKey {
        ResultDigestKey::of(&[7; KEY_BYTES])
    }

    fn planned(changes: &ResultChanges, approver: Option<&str>) -> Plan {
        let node = ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "apps");
        let deletion = deletion_of(changes, None, terms(&["production"]));
        let request = DeletionPlanRequest {
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

    fn terms(policies: &[&str]) -> ApprovalTerms {
        let policies = policies.iter().map(|&it| it.to_owned()).collect();
        ApprovalTerms { policies, approvals: 0 }
    }

    fn found(plan: &Plan, result: &ResultIdentity, policies: &[&str]) -> bool {
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
        let other = ResultIdentity { content: "other".to_owned(), ..result };
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
    fn a_digest_tells_nothing_without_the_key() {
        let other = ResultDigestKey::of(&[8; KEY_BYTES]);
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

    #[test]
    fn a_message_names_what_is_lost_and_both_commands() {
        let text = waits_for_approval(&changes(7), "shop", Some("apps-1"));
        assert!(text.starts_with("waits for approval: 7 removed, 1 changed; removed or"), "{text}");
        assert!(text.contains("ConfigMap/shop/r0004, 2 more"), "{text}");
        assert!(text.contains("`windlass plan show apps-1 -n shop`"), "{text}");
        assert!(text.ends_with("`windlass approve plan/apps-1 -n shop`"), "{text}");
        let none = waits_for_approval(&changes(0), "shop", None);
        assert!(none.contains("1 changed; to approve it, install the Custom"), "{none}");
    }
}
