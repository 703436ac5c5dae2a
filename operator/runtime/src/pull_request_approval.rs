//! Remembers which Plans a reviewed pull request approves, as this process found out from the forge.
//!
//! The status of a Plan is only for users. A deletion begins only within a minute after this process asked the forge. So
//! neither a dismissed approval counts, nor a status that another client wrote. Here: the results. Elsewhere: the requests to
//! forges (crate `source-controller`), and builds (crate `kustomize-controller`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::release::{Plan, PlanPolicy};
use kube_core::ResourceExt as _;
use objects::ObjectId;
use parking_lot::Mutex;
use reconcile::{ObjectKey, Time};
use tokio::sync::Notify;
use tree::MemoryTree;

use super::deletion_plan::MAX_NAMED_POLICIES;
use super::deletion_plan::self_applied_policies::is_applied_by;
use super::lifecycle::watched_object_cache::WatchedObjectCache;
use super::run_context::RunContext;

/// The condition of a Plan that shows whether a reviewed pull request approves it.
pub const PULL_REQUEST_APPROVED: &str = "PullRequestApproved";

/// How long an approval counts after the request to the forge.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// Objects that left the manifests of a Kustomization, with the commits of the pull request that may have removed them.
#[derive(Debug, Clone)]
pub struct ReviewedRemoval {
    /// The Kustomization.
    pub subject: ObjectKey,
    /// The uid of the Kustomization.
    pub uid: String,
    /// The removed objects.
    pub ids: BTreeSet<ObjectId>,
    /// The files of the merge commit.
    pub merged: Arc<MemoryTree>,
    /// The files of the last commit of the pull request, which was reviewed.
    pub head: Arc<MemoryTree>,
    /// The files of the commits before the pull request: the one that the forge compares with, and the one that the branch
    /// had.
    pub before: Vec<Arc<MemoryTree>>,
}

/// The reason why the reviewers of a pull request did not see that objects are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovalRefusal {
    /// The pull request does not remove the objects. The text says which ones.
    NotShown(String),
    /// The reviewers saw another result, because these files of the build differ.
    Different(Vec<String>),
    /// It is not known, for this reason.
    Unknown(String),
}

/// An approval by a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundApproval {
    /// The versions of the PlanPolicies that were checked; see [`policy_versions`].
    pub policies: String,
    /// When the forge was asked.
    pub asked: Instant,
    /// When the pull request was merged, in seconds since 1970.
    pub merged_at: i64,
}

/// The result of the verification of one Plan.
#[derive(Default)]
struct PlanVerification {
    approved: Option<FoundApproval>,
    was_approved: bool,
    is_awaited: bool,
    /// When the newest object of the Plan was created, as the last run saw it.
    newest: Option<Time>,
}

/// The verification results of all Plans, by the uids of the Plans.
#[derive(Default)]
pub struct PullRequestVerifications {
    known: Mutex<BTreeMap<String, PlanVerification>>,
    changed: Notify,
}

impl PullRequestVerifications {
    /// Waits until Plans or PlanPolicies change, or a run needs a verification.
    pub async fn woken(&self) {
        self.changed.notified().await;
    }

    /// Whether a run waits for the verification of a Plan.
    pub fn is_awaited(&self, uid: &str) -> bool {
        self.known.lock().get(uid).is_some_and(|it| it.is_awaited)
    }

    /// When the newest object of a Plan was created, as the last run saw it. `None` if no run saw one.
    pub fn newest_object(&self, uid: &str) -> Option<Time> {
        self.known.lock().get(uid)?.newest
    }

    /// Stores the verification of a Plan, which says whether a pull request approves it. Returns whether an approval was
    /// already known, so that no run waits.
    pub fn verified(&self, uid: &str, approved: Option<FoundApproval>) -> bool {
        let mut known = self.known.lock();
        let plan = known.entry(uid.to_owned()).or_default();
        let was_known = plan.approved.is_some();
        plan.was_approved |= approved.is_some();
        plan.approved = approved;
        plan.is_awaited = false;
        was_known
    }

    /// Forgets all Plans except these.
    pub fn keep_only(&self, uids: &BTreeSet<&str>) {
        self.known.lock().retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Whether a recent verification found an approval by these policies that was merged after the newest object was created.
    /// The branch may have been reset to an old merge, whose deletion was already carried out. If not, a new verification is
    /// requested.
    fn is_recent(&self, uid: &str, policies: &str, newest: Option<Time>, now: Instant) -> bool {
        let mut known = self.known.lock();
        let plan = known.entry(uid.to_owned()).or_default();
        plan.newest = newest;
        let is_recent = plan.approved.as_ref().is_some_and(|it| {
            it.policies == policies
                && now.saturating_duration_since(it.asked) < COUNTS_FOR
                && newest.is_some_and(|newest| newest.as_second() <= it.merged_at)
        });
        if !is_recent {
            plan.approved = None;
            plan.is_awaited = true;
            self.changed.notify_one();
        }
        is_recent
    }
}

/// Notes that Plans or PlanPolicies changed, and so wakes the verification.
pub(crate) fn plans_changed(context: &RunContext) {
    context.shared::<PullRequestVerifications>().changed.notify_one();
}

/// Whether a reviewed pull request approves a Plan now. `newest` is when its newest object was created. If the last
/// verification is too old, a new one is requested, and it will wake the object of the Plan.
pub(crate) fn is_approved_now(context: &RunContext, plan: &Plan, newest: Option<Time>) -> bool {
    let is_recorded = plan.status.as_ref().is_some_and(|status| status.pull_request.is_some());
    let policies = allowing_policies(context, plan).filter(|_| is_recorded);
    let found = context.shared::<PullRequestVerifications>();
    let uid = plan.uid().unwrap_or_default();
    let is_recent = |by: String| found.is_recent(&uid, &by, newest, Instant::now());
    policies.map(|it| policy_versions(&it)).is_some_and(is_recent)
}

/// Whether this process ever found that a reviewed pull request approves a Plan. Its deletions then count as approved.
pub(crate) fn was_approved(context: &RunContext, plan: &Plan) -> bool {
    let found = context.shared::<PullRequestVerifications>();
    found.known.lock().get(&plan.uid().unwrap_or_default()).is_some_and(|it| it.was_approved)
}

/// The end of a message about a Plan: why no pull request approves it. Empty if its PlanPolicies allow no approval by pull
/// request, or one approves.
pub(crate) fn approval_note(plan: &Plan) -> String {
    let conditions = plan.status.iter().flat_map(|status| &status.conditions);
    let mut own = conditions.filter(|it| it.type_ == PULL_REQUEST_APPROVED && it.status != "True");
    own.next().map(|it| format!("; by pull request: {}", it.message)).unwrap_or_default()
}

/// The PlanPolicies of a Plan, if each of them allows approval by pull request and none was applied by the Plan's own object.
/// `None` if not, or if that is not known.
pub fn allowing_policies(context: &RunContext, plan: &Plan) -> Option<Vec<Arc<PlanPolicy>>> {
    let table = context.shared::<WatchedObjectCache<PlanPolicy>>();
    table.current().ok()?;
    // A Plan with the most names may have more PlanPolicies than it names.
    let names =
        Some(&plan.spec.policies).filter(|it| (1..MAX_NAMED_POLICIES).contains(&it.len()))?;
    let namespace = plan.namespace().unwrap_or_default();
    let allows = |policy: &Arc<PlanPolicy>| {
        policy.spec.pull_request_approval.is_some()
            && !is_applied_by(policy, &namespace, &plan.spec.subject.name)
    };
    names.iter().map(|name| table.get("", name).filter(allows)).collect()
}

/// The versions of these PlanPolicies as a string, to recognize a change.
pub fn policy_versions(policies: &[Arc<PlanPolicy>]) -> String {
    let version = |policy: &Arc<PlanPolicy>| {
        let generation = policy.metadata.generation.unwrap_or_default();
        format!("{} {generation}", policy.uid().unwrap_or_default())
    };
    policies.iter().map(version).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn by(generation: i64) -> String {
        format!("policy {generation}")
    }

    /// When the pull request was merged.
    const MERGED_AT: i64 = 1_800_000_000;

    fn approved(generation: i64, asked: Instant) -> Option<FoundApproval> {
        Some(FoundApproval { policies: by(generation), asked, merged_at: MERGED_AT })
    }

    fn created(after_merge: i64) -> Option<Time> {
        Some(Time::from_second(MERGED_AT + after_merge).unwrap())
    }

    #[test]
    fn an_object_that_was_created_after_the_merge_was_not_shown() {
        let known = PullRequestVerifications::default();
        let now = Instant::now();
        for (newest, counts) in [(created(-1), true), (created(1), false), (None, false)] {
            known.verified("plan", approved(1, now));
            assert_eq!(known.is_recent("plan", &by(1), newest, now), counts, "{newest:?}");
            assert_eq!(known.newest_object("plan"), newest);
            assert_eq!(known.is_awaited("plan"), !counts, "the Plan says why");
        }
    }

    #[test]
    fn an_approval_counts_for_a_minute_and_by_the_policies_it_was_found_by() {
        let known = PullRequestVerifications::default();
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        assert!(!known.is_recent("plan", &by(1), created(-1), begun), "nothing is known of it");
        assert!(known.is_awaited("plan") && !known.is_awaited("other"));
        assert!(!known.verified("plan", approved(1, begun)), "a run waits for it");
        assert!(!known.is_awaited("plan"));
        assert!(known.is_recent("plan", &by(1), created(-1), at(59)));
        assert!(known.verified("plan", approved(1, at(59))), "nothing is new");
        assert!(known.is_recent("plan", &by(1), created(-1), at(118)));
        assert!(
            !known.is_recent("plan", &by(2), created(-1), at(118)),
            "another version of the policy"
        );
        assert!(!known.is_recent("plan", &by(1), created(-1), at(118)) && known.is_awaited("plan"));
    }

    #[test]
    fn an_approval_that_is_too_old_or_was_dismissed_does_not_count() {
        let known = PullRequestVerifications::default();
        let begun = Instant::now();
        known.verified("plan", approved(1, begun));
        assert!(!known.is_recent("plan", &by(1), created(-1), begun + COUNTS_FOR));
        known.verified("plan", approved(1, begun));
        known.verified("plan", None);
        assert!(!known.is_recent("plan", &by(1), created(-1), begun));
        assert!(known.known.lock()["plan"].was_approved, "what it deleted was approved");
        known.keep_only(&BTreeSet::new());
        assert!(known.known.lock().is_empty());
    }

    #[test]
    fn a_plan_says_why_no_pull_request_approves() {
        let note = |status: &str| {
            let condition = json!({"type": PULL_REQUEST_APPROVED, "status": status, "reason": "R",
                "message": "no review", "lastTransitionTime": "2026-01-02T03:04:05Z"});
            let status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
            approval_note(&Plan { status: Some(status), ..Plan::default() })
        };
        assert_eq!(approval_note(&Plan::default()), "", "its policies allow none");
        assert_eq!(note("True"), "");
        assert_eq!(note("False"), "; by pull request: no review");
        assert_eq!(note("Unknown"), "; by pull request: no review");
    }
}
