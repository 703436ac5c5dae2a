//! Approves Plans by pull requests with reviews. Windlass computes these approvals itself.
//!
//! For each waiting Plan whose PlanPolicies allow it, windlass asks the forge for the pull request that became the Plan's
//! revision, and for its reviews. The pull request approves the Plan if the reviewers saw its changes. For a deletion, the
//! build has to read the same files in the merged commit as in the last reviewed commit, and the builds of the commits before
//! have to contain the objects. For all changes of a run, the merged commit has to make the same result as the last reviewed
//! one, and the commits before have to make what is applied. Windlass never reads comments and commit statuses, since a user
//! who can push can write them.
//!
//! Here: which Plans are verified, the verification, and its record in the status. In the folder: when each Plan is verified
//! (`plan_verification_schedule`), asking the forge (`forge_reviews`). Elsewhere: the recorded approval and whether it counts
//! (`windlass_runtime::pull_request_approval_cache`), requests to forges (`notify`), builds (crate `kustomize-controller`).

mod forge_reviews;
mod plan_verification_schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Condition;
use crds::Time as When;
use crds::kustomize::Kustomization;
use crds::source::GitRepository;
use crds::windlass_release::{
    Plan, PlanAction, PlanApprovingPullRequest, PlanPolicy, PlanStatus, PlanSubject,
};
use futures::future::BoxFuture;
use git::{GitReference, revision};
use kube_core::ResourceExt as _;
use notify::{PullRequestReviewQuery, PullRequestReviewResult, ReviewedPullRequest};
use objects::ObjectId;
use reconcile::ObjectKey;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::forge_reviews::{ForgeAnswer, MAX_ANSWER_AGE, reviewed_pull_request};
use self::plan_verification_schedule::{PlanVerificationResult, PlanVerificationSchedule};
use crate::git_repository::commit_files::{SourceCommit, commit_files};
use windlass_cluster::ClusterError;
use windlass_cluster::metrics::WakeReason;
use windlass_runtime::approval_plan::approvals::is_answered;
use windlass_runtime::approval_plan::is_expired;
use windlass_runtime::lifecycle::watched_object_cache::{WatchedObjectCache, resource};
use windlass_runtime::pull_request_approval_cache::{
    PULL_REQUEST_APPROVED, PullRequestApproval, PullRequestApprovalCache,
    RemovalReviewCheckFailure, RemovalReviewCheckInput, ReviewedResult, ReviewedRunFacts,
    allowing_policies, policy_versions,
};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::{git_remote_access, source_reference};

/// The field manager of the status.
const MANAGER: &str = "windlass";

/// The most Plans that are verified at once, since each has the files of some commits in memory.
const VERIFIED_AT_ONCE: usize = 4;

/// The longest time until Plans are listed again without a reported change.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The longest time for the verification of one Plan. A tenant's builds must not delay those of other tenants for longer.
const VERIFICATION_LIMIT: Duration = Duration::from_secs(600);

/// The longest message of the condition, in characters.
const MAX_MESSAGE_LENGTH: usize = 1024;

/// The most approving accounts that a status names.
const MAX_NAMED_REVIEWERS: usize = 64;

/// The most differing files that a message names.
const MAX_NAMED_FILES: usize = 5;

/// The longest path of a file that a message names, in characters.
const MAX_PATH_LENGTH: usize = 200;

/// Checks by builds that the commits of a pull request show a removal, or all changes of a run, and returns the result of the
/// changes. The crate of the applier's kind implements it.
pub type RemovalReviewCheck =
    fn(
        Arc<RunContext>,
        RemovalReviewCheckInput,
    ) -> BoxFuture<'static, Result<Option<ReviewedResult>, RemovalReviewCheckFailure>>;

/// The reason why no pull request approves a Plan.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ApprovalRefusal {
    /// Whether the refusal is certain. Otherwise the facts could not be found out.
    is_certain: bool,
    /// The reason for programs.
    reason: &'static str,
    /// The message for people.
    message: String,
    /// The forge does not want another request before.
    retry_after: Option<Duration>,
}

impl ApprovalRefusal {
    fn certain(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_certain: true, reason, message: message.into(), retry_after: None }
    }

    fn unknown(message: impl Into<String>) -> Self {
        let reason = "VerificationFailed";
        Self { is_certain: false, reason, message: message.into(), retry_after: None }
    }
}

/// Verifies until `stop` whether reviewed pull requests approve Plans.
pub async fn run(
    context: Arc<RunContext>,
    check_removal: RemovalReviewCheck,
    stop: CancellationToken,
) {
    stop.run_until_cancelled(verify_plans(context, check_removal)).await;
}

/// A Plan that is to be verified.
struct WaitingPlan {
    plan: Arc<Plan>,
    uid: String,
    policies: Vec<Arc<PlanPolicy>>,
}

/// The Plans that wait for a pull request. `None` if they are not known now. Plans of Kustomizations that another process runs
/// are left out.
fn waiting_plans(context: &RunContext) -> Option<Vec<WaitingPlan>> {
    let table = context.shared::<WatchedObjectCache<Plan>>();
    table.current().ok()?;
    context.shared::<WatchedObjectCache<PlanPolicy>>().current().ok()?;
    let now = jiff::Timestamp::now();
    let waiting = |plan: Arc<Plan>| {
        if is_expired(&plan, now) || is_answered(context, &plan) {
            return None;
        }
        let policies = allowing_policies(context, &plan)?;
        if is_of_kustomization(&plan.spec.subject) {
            seen_subject(context, &plan)?;
        }
        let uid = plan.uid()?;
        Some(WaitingPlan { plan, uid, policies })
    };
    Some(table.all().into_iter().filter_map(waiting).collect())
}

fn is_of_kustomization(subject: &PlanSubject) -> bool {
    (subject.group.as_str(), subject.kind.as_str())
        == ("kustomize.toolkit.fluxcd.io", "Kustomization")
}

/// The Kustomization of a Plan. `None` if this process does not run it, or if it was created anew.
fn seen_subject(context: &RunContext, plan: &Plan) -> Option<Arc<Kustomization>> {
    let PlanSubject { name, uid, .. } = &plan.spec.subject;
    let found = context.seen::<Kustomization>(&plan.namespace().unwrap_or_default(), name)?;
    (found.uid().as_deref() == Some(uid.as_str())).then_some(found)
}

async fn verify_plans(context: Arc<RunContext>, check_removal: RemovalReviewCheck) {
    let known = context.shared::<PullRequestApprovalCache>();
    let mut schedule = PlanVerificationSchedule::default();
    let mut running: JoinSet<(String, PlanVerificationResult)> = JoinSet::new();
    loop {
        let waiting = waiting_plans(&context);
        if let Some(waiting) = &waiting {
            let uids = waiting.iter().map(|it| it.uid.as_str()).collect();
            known.keep_only(&uids);
            schedule.keep_only(&uids);
        }
        let now = Instant::now();
        let mut sleep = LONGEST_SLEEP;
        for plan in waiting.into_iter().flatten() {
            let left = schedule.time_left(&plan.uid, known.is_awaited(&plan.uid), now);
            if !left.is_zero() {
                sleep = sleep.min(left);
            } else if running.len() < VERIFIED_AT_ONCE {
                schedule.begin(&plan.uid, now);
                running.spawn(verify(context.clone(), check_removal, plan));
            }
        }
        let has_room = running.len() < VERIFIED_AT_ONCE;
        tokio::select! {
            Some(ended) = running.join_next() => {
                if let Ok((uid, end)) = ended {
                    schedule.end(&uid, end, Instant::now());
                }
            }
            () = known.woken(), if has_room => {}
            () = tokio::time::sleep(sleep), if has_room => {}
        }
    }
}

/// Verifies a Plan, and records the result. Returns the uid of the Plan.
async fn verify(
    context: Arc<RunContext>,
    check_removal: RemovalReviewCheck,
    waiting: WaitingPlan,
) -> (String, PlanVerificationResult) {
    let WaitingPlan { plan, uid, policies } = waiting;
    let asked = approving_pull_request(&context, check_removal, &plan, &policies);
    let found = match tokio::time::timeout(VERIFICATION_LIMIT, asked).await {
        Ok(found) => found,
        Err(_) => {
            let text = format!("the verification took more than {VERIFICATION_LIMIT:?}");
            Err(ApprovalRefusal::unknown(text))
        }
    };
    let approved = found.as_ref().ok().map(|it| PullRequestApproval {
        policies: policy_versions(&policies),
        asked: it.asked,
        merged_at: it.merged_at,
        result: it.result.clone(),
    });
    let found = found.map(|it| it.pull_request);
    let known = context.shared::<PullRequestApprovalCache>();
    let was_known = known.verified(&uid, approved);
    let end = match &found {
        Ok(_) => PlanVerificationResult::Approved,
        Err(refusal) => PlanVerificationResult::Refused(refusal.retry_after.unwrap_or_default()),
    };
    let namespace = plan.namespace().unwrap_or_default();
    let name = plan.name_any();
    match record(&context, &plan, &found).await {
        // The watch of Plans reports the change, and wakes the subject.
        Ok(true) => log(&namespace, &name, &found),
        Ok(false) if found.is_ok() && !was_known => {
            let PlanSubject { group, kind, name, .. } = &plan.spec.subject;
            let subject = ObjectKey::new(group, kind, &namespace, name);
            context.work_queue.wake(&subject, WakeReason::Waiting);
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(namespace, name, error = %error, "the status of a Plan cannot be written, retrying later");
            return (uid, PlanVerificationResult::NotWritten);
        }
    }
    (uid, end)
}

fn log(namespace: &str, name: &str, found: &Result<PlanApprovingPullRequest, ApprovalRefusal>) {
    match found {
        Ok(it) => {
            let PlanApprovingPullRequest { number, merge_commit, reviewers, .. } = it;
            let reviewers = reviewers.join(", ");
            tracing::info!(
                namespace,
                name,
                number,
                merge_commit,
                reviewers,
                "a reviewed pull request approves a Plan"
            );
        }
        Err(ApprovalRefusal { reason, message, .. }) => {
            tracing::info!(
                namespace,
                name,
                reason,
                why = message,
                "no pull request approves a Plan"
            );
        }
    }
}

/// A pull request that approves a Plan.
struct ApprovingPullRequest {
    pull_request: PlanApprovingPullRequest,
    /// The time when the forge was asked.
    asked: Instant,
    /// The time of the merge, in seconds since 1970.
    merged_at: i64,
    /// The result that the reviewers saw. `None` if the Plan is of a deletion.
    result: Option<ReviewedResult>,
}

/// The pull request that approves a Plan.
async fn approving_pull_request(
    context: &Arc<RunContext>,
    check_removal: RemovalReviewCheck,
    plan: &Plan,
    policies: &[Arc<PlanPolicy>],
) -> Result<ApprovingPullRequest, ApprovalRefusal> {
    let source = source_of(context, plan).await?;
    let mut reviewed = reviewed(context, plan, policies, &source).await?;
    let known = context.shared::<PullRequestApprovalCache>();
    let last_run = || known.last_run(&plan.uid().unwrap_or_default());
    check_ages(last_run().as_ref(), plan, &reviewed.pull)?;
    let result = check_shown(context, check_removal, plan, &source, &reviewed.pull).await?;
    check_result(last_run().as_ref(), result.as_ref())?;
    // Builds may take a while, and an approval counts only for a while after the forge was asked.
    if reviewed.asked.elapsed() > MAX_ANSWER_AGE {
        let again = self::reviewed(context, plan, policies, &source).await?;
        if again.pull.head_commit != reviewed.pull.head_commit
            || again.pull.base_commit != reviewed.pull.base_commit
        {
            return Err(ApprovalRefusal::unknown("the pull request changed meanwhile"));
        }
        reviewed = again;
    }
    let ReviewedRevision { pull, reviewers, asked } = reviewed;
    let pull_request = PlanApprovingPullRequest {
        number: i64::try_from(pull.number).unwrap_or(i64::MAX),
        url: pull.url,
        head_commit: pull.head_commit,
        merge_commit: source.commit,
        reviewers: reviewers.into_iter().take(MAX_NAMED_REVIEWERS).collect(),
        at: Some(seconds_now()),
    };
    Ok(ApprovingPullRequest { pull_request, asked, merged_at: pull.merged_at, result })
}

/// Checks that what a Plan replaces is older than the merge. The branch may have been reset to a merge that was carried out
/// before. The present objects, or the applied result, would then be newer than the merge, and their loss would not be
/// reviewed.
fn check_ages(
    run: Option<&ReviewedRunFacts>,
    plan: &Plan,
    pull: &ReviewedPullRequest,
) -> Result<(), ApprovalRefusal> {
    match run.and_then(|run| run.newest) {
        Some(newest) if newest.as_second() > pull.merged_at => {
            let newer = match plan.spec.changes {
                Some(_) => "what is applied was applied, or an object created,",
                None => "an object was created",
            };
            let text = format!(
                "{newer} after pull request {} was merged, as where the branch was reset to a former commit; approve it as a \
                 user",
                pull.number
            );
            Err(ApprovalRefusal::certain("NotShown", text))
        }
        // The run that replaces it reports its age, and compares it once more.
        Some(_) | None => Ok(()),
    }
}

/// Checks that the last run would make the result that the reviewers saw. The run compares them once more. Without this
/// check, it would request one verification after the other.
fn check_result(
    run: Option<&ReviewedRunFacts>,
    shown: Option<&ReviewedResult>,
) -> Result<(), ApprovalRefusal> {
    let planned = run.and_then(|run| run.result.as_ref());
    match (planned, shown) {
        (Some(planned), Some(shown)) if planned != shown => Err(ApprovalRefusal::certain(
            "AnotherResult",
            "the run makes another result than the build of the merged commit, as after a change of a variable; approve it as a \
             user",
        )),
        _ => Ok(()),
    }
}

/// Checks that the reviewers of a pull request saw that the objects of a Plan are removed, or all of its changes. Returns the
/// result that they saw, if the Plan is of changes.
async fn check_shown(
    context: &Arc<RunContext>,
    check_removal: RemovalReviewCheck,
    plan: &Plan,
    source: &PlanSource,
    pull: &ReviewedPullRequest,
) -> Result<Option<ReviewedResult>, ApprovalRefusal> {
    let ids = listed_objects(plan)?;
    let changes = listed_changes(plan, &ids)?;
    let commits = SourceCommits { context, repository: &source.repository };
    let merged = commits.fetch(&source.commit).await?;
    let Some(parent) = merged.parents.first() else {
        return Err(ApprovalRefusal::certain(
            "NotShown",
            format!("commit {} follows no other one", source.commit),
        ));
    };
    let head = match pull.head_commit == source.commit {
        true => merged.files.clone(),
        false => commits.fetch(&pull.head_commit).await?.files,
    };
    let mut before = Vec::new();
    for commit in BTreeSet::from([parent.as_str(), pull.base_commit.as_str()]) {
        before.push(commits.fetch(commit).await?.files);
    }
    let PlanSubject { group, kind, name, uid, .. } = &plan.spec.subject;
    let namespace = plan.namespace().unwrap_or_default();
    let subject = ObjectKey::new(group, kind, &namespace, name);
    let merged = merged.files.clone();
    let uid = uid.clone();
    let removal = RemovalReviewCheckInput { subject, uid, ids, changes, merged, head, before };
    let checked = check_removal(context.clone(), removal).await;
    checked.map_err(|refusal| not_shown(pull, refusal))
}

/// The objects of a Plan, if the Plan lists all of them.
fn listed_objects(plan: &Plan) -> Result<BTreeSet<ObjectId>, ApprovalRefusal> {
    let ids: Result<BTreeSet<ObjectId>, _> =
        plan.spec.objects.iter().map(|it| it.parse()).collect();
    let ids =
        ids.map_err(|_| ApprovalRefusal::certain("NotSupported", "its objects cannot be read"))?;
    if i64::try_from(ids.len()) != Ok(plan.spec.count) {
        let text = "it has more objects than it lists, which only a user can approve";
        return Err(ApprovalRefusal::certain("NotSupported", text));
    }
    Ok(ids)
}

/// The changes of a Plan together with its removed objects, if the Plan lists all of them. `None` if it is of a deletion.
fn listed_changes(
    plan: &Plan,
    removed: &BTreeSet<ObjectId>,
) -> Result<Option<BTreeMap<ObjectId, PlanAction>>, ApprovalRefusal> {
    let Some(changes) = &plan.spec.changes else { return Ok(None) };
    if changes.omitted > 0 {
        let text = "it has more changes than it lists, which only a user can approve";
        return Err(ApprovalRefusal::certain("NotSupported", text));
    }
    let parsed = changes.objects.iter().map(|it| {
        let id: Result<ObjectId, _> = it.id.parse();
        id.map(|id| (id, it.action))
    });
    let listed: Result<BTreeMap<ObjectId, PlanAction>, _> = parsed.collect();
    let mut listed = listed
        .map_err(|_| ApprovalRefusal::certain("NotSupported", "its changes cannot be read"))?;
    listed.extend(removed.iter().map(|id| (id.clone(), PlanAction::Removed)));
    Ok(Some(listed))
}

/// The commits of a GitRepository.
struct SourceCommits<'c> {
    context: &'c Arc<RunContext>,
    repository: &'c Arc<GitRepository>,
}

impl SourceCommits<'_> {
    async fn fetch(&self, commit: &str) -> Result<SourceCommit, ApprovalRefusal> {
        let Self { context, repository } = self;
        let failed = |why: String| ApprovalRefusal::unknown(format!("commit {commit}: {why}"));
        commit_files(context, repository, commit).await.map_err(failed)
    }
}

/// The time in whole seconds, as the API has it.
fn seconds_now() -> When {
    let now = jiff::Timestamp::now();
    When(jiff::Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The parts of a Plan that the reviewers of a pull request did not see.
fn not_shown(pull: &ReviewedPullRequest, refusal: RemovalReviewCheckFailure) -> ApprovalRefusal {
    let number = pull.number;
    match refusal {
        RemovalReviewCheckFailure::Unknown(why) => ApprovalRefusal::unknown(why),
        RemovalReviewCheckFailure::NotShown(why) => ApprovalRefusal::certain(
            "NotShown",
            format!("pull request {number} does not show it: {why}"),
        ),
        RemovalReviewCheckFailure::Different(paths) => {
            let short = |path: &String| -> String {
                let path = if path.is_empty() { "." } else { path.as_str() };
                path.chars().take(MAX_PATH_LENGTH).flat_map(char::escape_debug).collect()
            };
            let mut named: Vec<String> = paths.iter().take(MAX_NAMED_FILES).map(short).collect();
            let more = paths.len().saturating_sub(named.len());
            if more > 0 {
                named.push(format!("{more} more"));
            }
            ApprovalRefusal::certain(
                "AnotherResult",
                format!(
                    "the merged commit is not what was reviewed in pull request {number}, as after another merge between: {} \
                     differ from commit {}; approve it as a user",
                    named.join(", "),
                    pull.head_commit
                ),
            )
        }
    }
}

/// The source of a Plan's revision.
struct PlanSource {
    repository: Arc<GitRepository>,
    branch: String,
    commit: String,
}

/// The GitRepository whose commit is the revision of a Plan.
async fn source_of(context: &Arc<RunContext>, plan: &Plan) -> Result<PlanSource, ApprovalRefusal> {
    let unsupported = |text: &str| ApprovalRefusal::certain("NotSupported", text);
    if !is_of_kustomization(&plan.spec.subject) {
        return Err(unsupported(
            "pull requests approve only Plans of Kustomizations; approve it as a user",
        ));
    }
    let gone = || ApprovalRefusal::unknown("the Kustomization does not exist any more");
    let object = seen_subject(context, plan).ok_or_else(gone)?;
    let own = plan.namespace().unwrap_or_default();
    let reference = &object.spec.source_ref;
    let node = source_reference::source_node(&own, reference);
    if node.kind != "GitRepository" {
        return Err(unsupported("its source is not a GitRepository; approve it as a user"));
    }
    // Whether the Kustomization may name the source.
    source_reference::artifact(context, &own, reference, jiff::Timestamp::now())
        .map_err(|outcome| ApprovalRefusal::unknown(outcome.text()))?;
    let repository = match context.seen::<GitRepository>(&node.namespace, &node.name) {
        Some(found) => Some(found),
        // Another process may run it.
        None => {
            let read = context.cluster.read::<GitRepository>(&node.namespace, &node.name).await;
            let failed = |error: ClusterError| ApprovalRefusal::unknown(format!("{node}: {error}"));
            read.map_err(failed)?.map(Arc::new)
        }
    };
    let missing = || ApprovalRefusal::unknown(format!("source '{node}' not found"));
    let repository = repository.ok_or_else(missing)?;
    if !repository.spec.include.is_empty() {
        return Err(unsupported(
            "its source includes other repositories, which the pull request does not show; approve it as a user",
        ));
    }
    let Some(branch) = followed_branch(&repository) else {
        return Err(unsupported("its source does not follow a branch; approve it as a user"));
    };
    let commit = revision::hash(&plan.spec.revision).to_ascii_lowercase();
    let pointer = revision::pointer(&plan.spec.revision);
    if pointer.strip_prefix("refs/heads/").unwrap_or(pointer) != branch {
        let text = format!("its revision {} is not of branch {branch}", plan.spec.revision);
        return Err(unsupported(&text));
    }
    Ok(PlanSource { repository, branch, commit })
}

/// The branch that a GitRepository follows. `None` if it follows no branch.
fn followed_branch(repository: &GitRepository) -> Option<String> {
    match git_remote_access::reference(repository.spec.reference.as_ref()).ok()? {
        GitReference::Branch(name) => Some(name),
        GitReference::Name(name) => Some(name.strip_prefix("refs/heads/")?.to_owned()),
        GitReference::Tag(_) | GitReference::Semver(_) | GitReference::Commit { .. } => None,
    }
}

/// The pull request of a revision, with the accounts whose reviews count.
struct ReviewedRevision {
    pull: ReviewedPullRequest,
    reviewers: BTreeSet<String>,
    /// When the forge was asked. If there were several requests, the time of the first one.
    asked: Instant,
}

/// The pull request that became a revision, if its reviews are enough for each PlanPolicy.
async fn reviewed(
    context: &Arc<RunContext>,
    plan: &Plan,
    policies: &[Arc<PlanPolicy>],
    source: &PlanSource,
) -> Result<ReviewedRevision, ApprovalRefusal> {
    let namespace = plan.namespace().unwrap_or_default();
    let mut found: Option<ReviewedRevision> = None;
    for policy in policies {
        let Some(spec) = &policy.spec.pull_request_approval else {
            let text = format!("PlanPolicy {} does not allow it", policy.name_any());
            return Err(ApprovalRefusal::certain("NotSupported", text));
        };
        let query = PullRequestReviewQuery {
            merge_commit: source.commit.clone(),
            branch: source.branch.clone(),
        };
        let url = &source.repository.spec.url;
        let answer = reviewed_pull_request(context, &namespace, policy, spec, url, query).await?;
        let ForgeAnswer { result, asked } = answer;
        let pull = match result {
            PullRequestReviewResult::Reviewed(pull) => *pull,
            PullRequestReviewResult::NoPullRequest(why) => {
                return Err(ApprovalRefusal::certain("NoPullRequest", why));
            }
        };
        let minimum = usize::try_from(spec.minimum_reviews.unwrap_or(1)).unwrap_or(usize::MAX);
        let counted = pull.counted_reviews(&spec.reviewers, minimum).map_err(|why| {
            let text = format!("pull request {} waits for a review: {why}", pull.number);
            ApprovalRefusal::certain("ReviewMissing", text)
        })?;
        match &mut found {
            None => {
                let reviewers = counted.into_iter().collect();
                found = Some(ReviewedRevision { pull, reviewers, asked });
            }
            Some(found) if found.pull.head_commit == pull.head_commit => {
                found.reviewers.extend(counted);
                found.asked = found.asked.min(asked);
            }
            Some(_) => {
                let text = "its PlanPolicies name forges that know different pull requests";
                return Err(ApprovalRefusal::certain("NotSupported", text));
            }
        }
    }
    found.ok_or_else(|| ApprovalRefusal::certain("NotSupported", "it has no PlanPolicy"))
}

/// The condition that reports a verification.
fn found_condition(found: &Result<PlanApprovingPullRequest, ApprovalRefusal>) -> Condition {
    let condition = |status: &str, reason: &str, message: &str| Condition {
        type_: PULL_REQUEST_APPROVED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(MAX_MESSAGE_LENGTH).collect(),
        last_transition_time: seconds_now(),
        observed_generation: None,
    };
    match found {
        Ok(it) => condition("True", "Reviewed", &format!("pull request {} approves", it.number)),
        Err(it) if it.is_certain => condition("False", it.reason, &it.message),
        Err(it) => condition("Unknown", it.reason, &it.message),
    }
}

/// The new status of a Plan after a verification. `None` if the Plan has this status already.
fn changed_status(
    status: &PlanStatus,
    found: &Result<PlanApprovingPullRequest, ApprovalRefusal>,
) -> Option<PlanStatus> {
    let mut condition = found_condition(found);
    let before = status.conditions.iter().find(|it| it.type_ == PULL_REQUEST_APPROVED);
    if let Some(before) = before.filter(|it| it.status == condition.status) {
        condition.last_transition_time = before.last_transition_time.clone();
    }
    let mut pull_request = found.clone().ok();
    if let (Some(new), Some(old)) = (&mut pull_request, &status.pull_request) {
        let dated = PlanApprovingPullRequest { at: old.at.clone(), ..new.clone() };
        if dated == *old {
            *new = dated;
        }
    }
    let mut conditions = status.conditions.clone();
    conditions.retain(|it| it.type_ != PULL_REQUEST_APPROVED);
    conditions.push(condition);
    let after = PlanStatus { pull_request, conditions, ..status.clone() };
    (after != *status).then_some(after)
}

/// Writes the result into the status of a Plan, only if the Plan has not changed since it was read. Returns whether the status
/// changed.
async fn record(
    context: &RunContext,
    plan: &Plan,
    found: &Result<PlanApprovingPullRequest, ApprovalRefusal>,
) -> Result<bool, ClusterError> {
    let status = plan.status.clone().unwrap_or_default();
    let Some(after) = changed_status(&status, found) else { return Ok(false) };
    let mut patch = json!({"metadata": {"uid": plan.uid()},
        "status": {"pullRequest": after.pull_request, "conditions": after.conditions}});
    patch["metadata"]["resourceVersion"] = plan.resource_version().into();
    let namespace = plan.namespace().unwrap_or_default();
    let plans = resource::<Plan>();
    let name = plan.name_any();
    context.cluster.merge_patch_status(&plans, &namespace, &name, &patch, MANAGER).await?;
    Ok(true)
}

#[cfg(test)]
mod tests;
