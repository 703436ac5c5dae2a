//! Decides which approvals of a Plan count: from whom, how many, and whether these users still have the right. Also reads
//! rejections.
//!
//! The admission policy of Plans proves user, groups and right at the time of the approval (`deploy/policies/plans.yaml`). The
//! right may be taken away later, so windlass reviews it again right before it carries out the Plan. Without a review, an
//! approval does not count.
//!
//! Elsewhere: what an approval covers (`approval_plan`, `change_approval`), and reviewed pull requests
//! (`pull_request_approval`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crds::windlass_release::{Plan, PlanApproval};
use futures::future::try_join_all;
use kube_core::ResourceExt as _;
use parking_lot::Mutex;

use super::{DeletionSubject, SERVICE_ACCOUNT_PREFIX, is_expired, plans_of};
use crate::lifecycle::watched_object_cache::WatchedObjectCache;
use crate::pull_request_approval_cache;
use crate::run_context::RunContext;
use windlass_cluster::untyped_objects::{AccessToObject, AuthenticatedUser};
use windlass_cluster::{ClusterConnection, ClusterError};

/// The PlanPolicy on which users need the right if a Plan names none. The admission policy uses the same one.
const DEFAULT_POLICY: &str = "default";

/// How long the review of a right counts.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// What the approval of a Plan requires: the right of a user on policies, and the number of users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalRequirements {
    /// The PlanPolicies on which users need the right to approve. `default` if the list is empty.
    pub policies: Vec<String>,
    /// How many different users have to approve. 0 if one user is enough.
    pub approvals: i64,
}

/// The result of a review of the approvals of a Plan.
#[derive(Debug)]
struct PlanApproverReview {
    at: Instant,
    /// The users who have the right, with their groups.
    confirmed: Vec<AuthenticatedUser>,
    /// The users who lack the right, with the PlanPolicy for which they lack it.
    refused: Vec<RefusedApprover>,
}

#[derive(Debug)]
struct RefusedApprover {
    user: AuthenticatedUser,
    policy: String,
}

impl PlanApproverReview {
    /// Whether enough users with the right approved a Plan.
    fn confirms(&self, plan: &Plan) -> bool {
        let confirmed =
            counted_approvals(plan).filter(|it| self.confirmed.contains(&user_of(it))).count();
        !is_rejected(plan) && confirmed >= needed(plan)
    }
}

/// The results of the latest reviews, by the uids of the Plans.
#[derive(Default)]
pub(super) struct ApprovalReviewCache {
    known: Mutex<BTreeMap<String, PlanApproverReview>>,
}

impl ApprovalReviewCache {
    /// Whether a recent review confirmed that enough users with the right approved a Plan.
    pub(super) fn confirm(&self, plan: &Plan) -> bool {
        self.confirm_at(plan, Instant::now())
    }

    fn confirm_at(&self, plan: &Plan, now: Instant) -> bool {
        let known = self.known.lock();
        let Some(review) = known.get(&plan.uid().unwrap_or_default()) else { return false };
        now.saturating_duration_since(review.at) < COUNTS_FOR && review.confirms(plan)
    }

    /// Whether the last review found that too few users with the right approved a Plan.
    pub(super) fn refuse(&self, plan: &Plan) -> bool {
        let known = self.known.lock();
        let review = known.get(&plan.uid().unwrap_or_default());
        review.is_some_and(|review| !review.confirms(plan))
    }

    fn insert(&self, uid: String, review: PlanApproverReview) {
        let mut known = self.known.lock();
        known.retain(|_, it| review.at.saturating_duration_since(it.at) < COUNTS_FOR);
        known.insert(uid, review);
    }

    fn forget(&self, uid: &str) {
        self.known.lock().remove(uid);
    }

    /// The end of a message about a Plan: which approvals do not count, and why.
    fn refusals(&self, plan: &Plan) -> String {
        let known = self.known.lock();
        let refused = known.get(&plan.uid().unwrap_or_default()).into_iter();
        let messages = refused.flat_map(|review| &review.refused).map(|it| {
            let RefusedApprover { user: AuthenticatedUser { name, groups }, policy } = it;
            let user = without_backticks(name);
            let advice = if groups.is_empty() { "; it names no groups: approve once more" } else { "" };
            format!(
                "; the approval of {user} does not count, because {user} has no right to `approve` PlanPolicy {policy}{advice}"
            )
        });
        messages.collect()
    }
}

fn user_of(approval: &PlanApproval) -> AuthenticatedUser {
    AuthenticatedUser { name: approval.user.clone(), groups: approval.groups.clone() }
}

/// The approvals of a Plan that may count. Approvals of ServiceAccounts never count, even if no admission policy rejects them.
pub(super) fn counted_approvals(plan: &Plan) -> impl Iterator<Item = &PlanApproval> {
    let approvals = plan.status.iter().flat_map(|status| &status.approvals);
    approvals.filter(|it| !it.user.is_empty() && !it.user.starts_with(SERVICE_ACCOUNT_PREFIX))
}

/// The users who approved a Plan.
pub(super) fn approvers(plan: &Plan) -> Vec<&str> {
    counted_approvals(plan).map(|it| it.user.as_str()).collect()
}

/// How many users have to approve a Plan.
fn needed(plan: &Plan) -> usize {
    usize::try_from(plan.spec.approvals.max(1)).unwrap_or(usize::MAX)
}

/// Whether enough users approved a Plan, and no user rejected it. This does not check their rights, nor reviewed pull requests
/// (`pull_request_approval`).
pub(super) fn is_approved(plan: &Plan) -> bool {
    !is_rejected(plan) && counted_approvals(plan).count() >= needed(plan)
}

/// Whether a user rejected a Plan. A rejection needs no proof, because it only holds the result longer.
pub(super) fn is_rejected(plan: &Plan) -> bool {
    plan.status.as_ref().is_some_and(|status| status.rejection.is_some())
}

/// Whether users decided about a Plan, so that no pull request is needed. A user rejected it, or enough users approved it and
/// are not known to lack the right.
pub fn is_answered(context: &RunContext, plan: &Plan) -> bool {
    is_rejected(plan)
        || (is_approved(plan) && !context.shared::<ApprovalReviewCache>().refuse(plan))
}

/// A user's text for a message, without backticks. Backticks mark commands, and another program reads them.
fn without_backticks(text: &str) -> String {
    text.replace('`', "'")
}

/// The end of a message about a rejected Plan: who rejected it, and what follows. `None` if no user rejected it.
pub(super) fn rejection(plan: &Plan) -> Option<String> {
    let rejection = plan.status.as_ref()?.rejection.as_ref()?;
    let comment = rejection.comment.iter().map(|text| format!(" ({})", without_backticks(text)));
    let comment: String = comment.collect();
    let user = without_backticks(&rejection.user);
    let name = plan.name_any();
    Some(format!(
        "is rejected by {user}{comment}, with Plan {name}; another result, such as that of another revision, has another Plan"
    ))
}

/// The end of a message about a Plan that waits: how many approvals it has, and which of them do not count.
pub(super) fn waiting_note(context: &RunContext, plan: &Plan) -> String {
    let count = match needed(plan) {
        1 => String::new(),
        needed => format!("; {} of {needed} approvals", counted_approvals(plan).count()),
    };
    let reviews = context.shared::<ApprovalReviewCache>();
    format!("{count}{}", reviews.refusals(plan))
}

/// Asks the API server whether the users who approved the Plans of an object have the right now. Only then do their approvals
/// count, for a minute.
///
/// # Errors
/// The reason why that is not known, for users. Then no approval counts.
pub async fn review_approvals(
    context: &RunContext,
    subject: &DeletionSubject<'_>,
) -> Result<(), String> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    let reviews = context.shared::<ApprovalReviewCache>();
    let now = jiff::Timestamp::now();
    for plan in plans_of(&table, subject) {
        let uid = plan.uid().unwrap_or_default();
        if !is_approved(&plan) || is_expired(&plan, now) {
            reviews.forget(&uid);
            continue;
        }
        match reviewed(&context.cluster, &plan).await {
            Ok(review) => reviews.insert(uid, review),
            Err(error) => {
                reviews.forget(&uid);
                return Err(format!(
                    "the rights of users who approved Plan {} cannot be reviewed: {error}",
                    plan.name_any()
                ));
            }
        }
        if reviews.refuse(&plan) {
            // A pull request may approve the Plan instead.
            pull_request_approval_cache::plans_changed(context);
        }
    }
    Ok(())
}

/// Reviews the rights of the users who approved a Plan, and stops when enough users have the right. A slow API server would
/// otherwise make the answer too old.
async fn reviewed(
    cluster: &ClusterConnection,
    plan: &Plan,
) -> Result<PlanApproverReview, ClusterError> {
    let mut review =
        PlanApproverReview { at: Instant::now(), confirmed: Vec::new(), refused: Vec::new() };
    for approval in counted_approvals(plan) {
        if review.confirms(plan) {
            break;
        }
        let user = user_of(approval);
        match lacked_policy(cluster, &user, &plan.spec.policies).await? {
            None => review.confirmed.push(user),
            Some(policy) => review.refused.push(RefusedApprover { user, policy }),
        }
    }
    Ok(review)
}

/// The first of these PlanPolicies for which a user lacks the right to approve. `None` if the user has all rights.
async fn lacked_policy(
    cluster: &ClusterConnection,
    user: &AuthenticatedUser,
    policies: &[String],
) -> Result<Option<String>, ClusterError> {
    let default = [DEFAULT_POLICY.to_owned()];
    let policies = if policies.is_empty() { &default[..] } else { policies };
    let access = |name| AccessToObject {
        verb: "approve",
        group: "release.windlass.dev",
        resource: "planpolicies",
        name,
    };
    // There are at most 8 PlanPolicies.
    let asked: Vec<_> =
        policies.iter().map(|it| cluster.may_user(user, access(it.as_str()))).collect();
    let allowed = try_join_all(asked).await?;
    let mut lacked = policies.iter().zip(allowed).filter(|(_, is_allowed)| !is_allowed);
    Ok(lacked.next().map(|(policy, _)| policy.clone()))
}

#[cfg(test)]
mod tests;
