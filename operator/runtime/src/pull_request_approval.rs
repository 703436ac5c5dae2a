//! Which Plans a reviewed pull request approves, as this process found out.
//!
//! The status of a Plan is for people. A deletion begins only within a minute after this process asked the forge, so neither an
//! approval that is dismissed meanwhile counts, nor a status that another client wrote.
//! Here: what is remembered. Elsewhere: finding out (crate `source-controller`), builds (crate `kustomize-controller`).

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

/// The condition of a Plan that says whether a reviewed pull request approves it.
pub const PULL_REQUEST_APPROVED: &str = "PullRequestApproved";

/// How long an approval counts without another request to the forge.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// Objects that left the manifests of a Kustomization, and the commits of the pull request that is to have removed them.
#[derive(Debug, Clone)]
pub struct ReviewedRemoval {
    /// The Kustomization.
    pub subject: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// The objects.
    pub ids: BTreeSet<ObjectId>,
    /// The files of the commit that the pull request became.
    pub merged: Arc<MemoryTree>,
    /// Those of its last commit, which was reviewed.
    pub head: Arc<MemoryTree>,
    /// Those of the commits before it: the one with which the forge compares it, and the one that the branch had.
    pub before: Vec<Arc<MemoryTree>>,
}

/// Why the reviewers of a pull request did not see that objects are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovalRefusal {
    /// The pull request does not remove the objects; the text says which.
    NotShown(String),
    /// The result is another one than the reviewers saw, because these files of the build differ.
    Different(Vec<String>),
    /// It is not known, for this reason.
    Unknown(String),
}

/// An approval that was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundApproval {
    /// By which versions of the policies; see [`policy_versions`].
    pub policies: String,
    /// When the forge was asked.
    pub asked: Instant,
    /// When the pull request was merged, in seconds since 1970.
    pub merged_at: i64,
}

/// What is known of a Plan.
#[derive(Default)]
struct PlanVerification {
    approved: Option<FoundApproval>,
    was_approved: bool,
    is_awaited: bool,
    /// When the newest of its objects was created, as the last run saw them.
    newest: Option<Time>,
}

/// What this process found out about Plans, by their uids.
#[derive(Default)]
pub struct PullRequestVerifications {
    known: Mutex<BTreeMap<String, PlanVerification>>,
    changed: Notify,
}

impl PullRequestVerifications {
    /// Returns once Plans or PlanPolicies changed, or a run waits for a verification.
    pub async fn woken(&self) {
        self.changed.notified().await;
    }

    /// Whether a run waits for the verification of a Plan.
    pub fn is_awaited(&self, uid: &str) -> bool {
        self.known.lock().get(uid).is_some_and(|it| it.is_awaited)
    }

    /// When the newest object of a Plan was created, as the last run saw them; `None` if none did.
    pub fn newest_object(&self, uid: &str) -> Option<Time> {
        self.known.lock().get(uid)?.newest
    }

    /// A Plan was verified: a pull request approves, or none does. Returns whether one was known to approve until now, so that
    /// no run waits for the answer.
    pub fn verified(&self, uid: &str, approved: Option<FoundApproval>) -> bool {
        let mut known = self.known.lock();
        let plan = known.entry(uid.to_owned()).or_default();
        let was_known = plan.approved.is_some();
        plan.was_approved |= approved.is_some();
        plan.approved = approved;
        plan.is_awaited = false;
        was_known
    }

    /// Forgets all Plans but these.
    pub fn keep_only(&self, uids: &BTreeSet<&str>) {
        self.known.lock().retain(|uid, _| uids.contains(uid.as_str()));
    }

    /// Whether a pull request approves a Plan by these policies, as found out recently, and was merged after the newest of its
    /// objects was created: the branch may have been reset to a merge whose deletion was carried out before. Else it is found
    /// out for the run.
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

/// Plans or PlanPolicies changed.
pub(crate) fn plans_changed(context: &RunContext) {
    context.shared::<PullRequestVerifications>().changed.notify_one();
}

/// Whether a reviewed pull request approves a Plan now, whose newest object was created then. If it did and that was found out too long ago, it is found out again, and
/// the subject of the Plan is woken then.
pub(crate) fn is_approved_now(context: &RunContext, plan: &Plan, newest: Option<Time>) -> bool {
    let is_recorded = plan.status.as_ref().is_some_and(|status| status.pull_request.is_some());
    let policies = allowing_policies(context, plan).filter(|_| is_recorded);
    let found = context.shared::<PullRequestVerifications>();
    let uid = plan.uid().unwrap_or_default();
    let is_recent = |by: String| found.is_recent(&uid, &by, newest, Instant::now());
    policies.map(|it| policy_versions(&it)).is_some_and(is_recent)
}

/// Whether this process found once that a reviewed pull request approves a Plan, so that what it deleted was approved.
pub(crate) fn was_approved(context: &RunContext, plan: &Plan) -> bool {
    let found = context.shared::<PullRequestVerifications>();
    found.known.lock().get(&plan.uid().unwrap_or_default()).is_some_and(|it| it.was_approved)
}

/// Why no pull request approves a Plan, as what follows the advice to approve it; empty if its PlanPolicies do not allow one, or
/// one approves.
pub(crate) fn approval_note(plan: &Plan) -> String {
    let conditions = plan.status.iter().flat_map(|status| &status.conditions);
    let mut own = conditions.filter(|it| it.type_ == PULL_REQUEST_APPROVED && it.status != "True");
    own.next().map(|it| format!("; by pull request: {}", it.message)).unwrap_or_default()
}

/// The PlanPolicies of a Plan, if each of them allows approval by pull request, and its subject applied none of them; `None` as
/// well if that is not known.
pub fn allowing_policies(context: &RunContext, plan: &Plan) -> Option<Vec<Arc<PlanPolicy>>> {
    let table = context.shared::<WatchedObjectCache<PlanPolicy>>();
    table.current().ok()?;
    // There may be more than a Plan names.
    let names =
        Some(&plan.spec.policies).filter(|it| (1..MAX_NAMED_POLICIES).contains(&it.len()))?;
    let namespace = plan.namespace().unwrap_or_default();
    let allows = |policy: &Arc<PlanPolicy>| {
        policy.spec.pull_request_approval.is_some()
            && !is_applied_by(policy, &namespace, &plan.spec.subject.name)
    };
    names.iter().map(|name| table.get("", name).filter(allows)).collect()
}

/// Which versions of PlanPolicies a verification is by.
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
