//! Remembers which Plans a reviewed pull request approves, as this process found out from the forge.
//!
//! The status of a Plan is only for users. A deletion or a change begins only within a minute after this process asked the
//! forge. So neither a dismissed approval counts, nor a status that another client wrote. An approval of changes is for the
//! result that this process built itself, and not for what a Plan lists. Here: the results. Elsewhere: the requests to forges
//! (crate `source-controller`), and builds (crate `kustomize-controller`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::windlass_release::{Plan, PlanAction, PlanPolicy};
use kube_core::ResourceExt as _;
use objects::ObjectId;
use parking_lot::Mutex;
use reconcile::{ObjectKey, Time};
use tokio::sync::Notify;
use tree::MemoryTree;

use super::approval_plan::MAX_NAMED_POLICIES;
use super::approval_plan::self_applied_policies::is_applied_by;
use super::lifecycle::watched_object_cache::WatchedObjectCache;
use super::run_context::RunContext;

/// The condition of a Plan that shows whether a reviewed pull request approves it.
pub const PULL_REQUEST_APPROVED: &str = "PullRequestApproved";

/// How long an approval counts after the request to the forge.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// Objects that left the manifests of a Kustomization, or all changes of a run, with the commits of the pull request that may
/// have made them.
#[derive(Debug, Clone)]
pub struct RemovalReviewCheckInput {
    /// The Kustomization.
    pub subject: ObjectKey,
    /// The uid of the Kustomization.
    pub uid: String,
    /// The removed objects.
    pub ids: BTreeSet<ObjectId>,
    /// Everything that the run would do, the removals included. `None` if only the deletion waits.
    pub changes: Option<BTreeMap<ObjectId, PlanAction>>,
    /// The files of the merge commit.
    pub merged: Arc<MemoryTree>,
    /// The files of the last commit of the pull request, which was reviewed.
    pub head: Arc<MemoryTree>,
    /// The files of the commits before the pull request: the one that the forge compares with, and the one that the branch
    /// had.
    pub before: Vec<Arc<MemoryTree>>,
}

/// A result that the reviewers of a pull request saw, and the result that it replaces. A run with both is what they approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewedResult {
    /// The digest of the build of the merged commit, which is the same at the last reviewed commit.
    pub merged: String,
    /// The digest of the builds before the pull request, which is the same as that of the applied build.
    pub applied: String,
}

/// The facts of a run with which an approval has to agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewedRunFacts {
    /// When the newest of the objects and results that the run replaces came to be. `None` if that is not known.
    pub newest: Option<Time>,
    /// The result of the run. `None` if only a deletion waits.
    pub result: Option<ReviewedResult>,
}

/// The reason why the reviewers of a pull request did not see that objects are removed or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemovalReviewCheckFailure {
    /// The pull request does not make the change. The text says which one.
    NotShown(String),
    /// The reviewers saw another result, because these files of the build, or these objects, differ.
    Different(Vec<String>),
    /// It is not known, for this reason.
    Unknown(String),
}

/// An approval by a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestApproval {
    /// The versions of the PlanPolicies that were checked; see [`policy_versions`].
    pub policies: String,
    /// When the forge was asked.
    pub asked: Instant,
    /// When the pull request was merged, in seconds since 1970.
    pub merged_at: i64,
    /// The result that the reviewers saw. `None` if the Plan is of a deletion.
    pub result: Option<ReviewedResult>,
}

/// The result of the verification of one Plan.
#[derive(Default)]
struct PlanVerification {
    approved: Option<PullRequestApproval>,
    was_approved: bool,
    is_awaited: bool,
    /// The facts of the last run.
    run: Option<ReviewedRunFacts>,
}

/// The verification results of all Plans, by the uids of the Plans.
#[derive(Default)]
pub struct PullRequestApprovalCache {
    known: Mutex<BTreeMap<String, PlanVerification>>,
    changed: Notify,
}

impl PullRequestApprovalCache {
    /// Waits until Plans or PlanPolicies change, or a run needs a verification.
    pub async fn woken(&self) {
        self.changed.notified().await;
    }

    /// Whether a run waits for the verification of a Plan.
    pub fn is_awaited(&self, uid: &str) -> bool {
        self.known.lock().get(uid).is_some_and(|it| it.is_awaited)
    }

    /// The facts of the last run that asked whether a pull request approves a Plan. `None` if no run did.
    pub fn last_run(&self, uid: &str) -> Option<ReviewedRunFacts> {
        self.known.lock().get(uid)?.run.clone()
    }

    /// Stores the verification of a Plan, which says whether a pull request approves it. Returns whether an approval was
    /// already known, so that no run waits.
    pub fn verified(&self, uid: &str, approved: Option<PullRequestApproval>) -> bool {
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

    /// Whether a recent verification found an approval by these policies that is for this run, and that was merged after the
    /// newest of what it replaces came to be. The branch may have been reset to an old merge, which was already carried out. If
    /// not, a new verification is requested.
    fn is_recent(&self, uid: &str, policies: &str, run: &ReviewedRunFacts, now: Instant) -> bool {
        let mut known = self.known.lock();
        let plan = known.entry(uid.to_owned()).or_default();
        plan.run = Some(run.clone());
        let is_recent = plan.approved.as_ref().is_some_and(|it| {
            it.policies == policies
                && now.saturating_duration_since(it.asked) < COUNTS_FOR
                && it.result == run.result
                && run.newest.is_some_and(|newest| newest.as_second() <= it.merged_at)
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
    context.shared::<PullRequestApprovalCache>().changed.notify_one();
}

/// Whether the status of a Plan names a reviewed pull request. It approves nothing before it is verified.
pub(crate) fn is_recorded(plan: &Plan) -> bool {
    plan.status.as_ref().is_some_and(|status| status.pull_request.is_some())
}

/// Whether a reviewed pull request approves a Plan now, and a run with these facts. If the last verification is too old, a new
/// one is requested, and it will wake the object of the Plan.
pub(crate) fn is_approved_now(context: &RunContext, plan: &Plan, run: &ReviewedRunFacts) -> bool {
    let policies = allowing_policies(context, plan).filter(|_| is_recorded(plan));
    let found = context.shared::<PullRequestApprovalCache>();
    let uid = plan.uid().unwrap_or_default();
    let is_recent = |by: String| found.is_recent(&uid, &by, run, Instant::now());
    policies.map(|it| policy_versions(&it)).is_some_and(is_recent)
}

/// Whether this process ever found that a reviewed pull request approves a Plan. Its deletions then count as approved.
pub(crate) fn was_approved(context: &RunContext, plan: &Plan) -> bool {
    let found = context.shared::<PullRequestApprovalCache>();
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

    fn approved(generation: i64, asked: Instant) -> Option<PullRequestApproval> {
        Some(PullRequestApproval {
            policies: by(generation),
            asked,
            merged_at: MERGED_AT,
            result: None,
        })
    }

    fn created(after_merge: i64) -> ReviewedRunFacts {
        let newest = Some(Time::from_second(MERGED_AT + after_merge).unwrap());
        ReviewedRunFacts { newest, result: None }
    }

    fn result(merged: &str, applied: &str) -> Option<ReviewedResult> {
        Some(ReviewedResult { merged: merged.to_owned(), applied: applied.to_owned() })
    }

    #[test]
    fn an_object_that_was_created_after_the_merge_was_not_shown() {
        let known = PullRequestApprovalCache::default();
        let now = Instant::now();
        let unknown = ReviewedRunFacts { newest: None, result: None };
        for (run, counts) in [(created(-1), true), (created(1), false), (unknown, false)] {
            known.verified("plan", approved(1, now));
            assert_eq!(known.is_recent("plan", &by(1), &run, now), counts, "{run:?}");
            assert_eq!(known.last_run("plan"), Some(run));
            assert_eq!(known.is_awaited("plan"), !counts, "the Plan says why");
        }
    }

    #[test]
    fn an_approval_of_changes_is_for_one_result_that_replaces_one_other() {
        let known = PullRequestApprovalCache::default();
        let now = Instant::now();
        let shown =
            PullRequestApproval { result: result("new", "old"), ..approved(1, now).unwrap() };
        for (of, counts) in [
            (result("new", "old"), true),
            (result("another", "old"), false),
            (result("new", "older"), false),
            (None, false),
        ] {
            known.verified("plan", Some(shown.clone()));
            let run = ReviewedRunFacts { result: of, ..created(-1) };
            assert_eq!(known.is_recent("plan", &by(1), &run, now), counts, "{run:?}");
        }
        known.verified("plan", approved(1, now));
        let run = ReviewedRunFacts { result: result("new", "old"), ..created(-1) };
        assert!(!known.is_recent("plan", &by(1), &run, now), "a deletion is not a whole result");
    }

    #[test]
    fn an_approval_counts_for_a_minute_and_by_the_policies_it_was_found_by() {
        let known = PullRequestApprovalCache::default();
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        assert!(!known.is_recent("plan", &by(1), &created(-1), begun), "nothing is known of it");
        assert!(known.is_awaited("plan") && !known.is_awaited("other"));
        assert!(!known.verified("plan", approved(1, begun)), "a run waits for it");
        assert!(!known.is_awaited("plan"));
        assert!(known.is_recent("plan", &by(1), &created(-1), at(59)));
        assert!(known.verified("plan", approved(1, at(59))), "nothing is new");
        assert!(known.is_recent("plan", &by(1), &created(-1), at(118)));
        assert!(
            !known.is_recent("plan", &by(2), &created(-1), at(118)),
            "another version of the policy"
        );
        assert!(
            !known.is_recent("plan", &by(1), &created(-1), at(118)) && known.is_awaited("plan")
        );
    }

    #[test]
    fn an_approval_that_is_too_old_or_was_dismissed_does_not_count() {
        let known = PullRequestApprovalCache::default();
        let begun = Instant::now();
        known.verified("plan", approved(1, begun));
        assert!(!known.is_recent("plan", &by(1), &created(-1), begun + COUNTS_FOR));
        known.verified("plan", approved(1, begun));
        known.verified("plan", None);
        assert!(!known.is_recent("plan", &by(1), &created(-1), begun));
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
