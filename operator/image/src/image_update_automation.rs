//! The kind ImageUpdateAutomation: windlass commits the latest versions of images to a Git repository.
//!
//! Here: its run. In the folder: the policies whose results are written (`policies`), the keys of verified policies
//! (`policy_verification_keys`), the GitRepository (`automation_git_repository`), the branch that is pushed (`push_target`),
//! one writer for each branch (`branch_lock`), automations that push together (`push_round_gathering`, `push_round_leader`),
//! the update of one automation (`automation_update`), the push of a whole round (`push_round`, `push_round_base`, `push_round_commits`,
//! `push_round_draft`), values in files (`rewrite`), values that another writer took back (`recommit`), the pull request of a
//! push branch (`pull_request`), status and events (`result`). Elsewhere: markers and messages (engine `image`), commits and
//! pushes (`git::push`), forges (`windlass_runtime::pull_request_proposal`).

mod automation_git_repository;
mod automation_update;
mod branch_lock;
mod policies;
mod policy_verification_keys;
mod pull_request;
mod push_round;
mod push_round_base;
mod push_round_commits;
mod push_round_draft;
mod push_round_gathering;
mod push_round_leader;
mod push_target;
mod recommit_pause;
mod result;
mod rewrite;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::image::{ImagePolicy, ImageRef, ImageUpdateAutomation, ImageUpdateAutomationSpec};
use crds::notification::Provider;
use crds::source::GitRepository;
use crds::{ReconciledObject as _, Time};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use git::{GitRevision, tip};
use image::check_strategy;
use jiff::Timestamp;
use kube_core::Resource as _;
use notify::PullRequest;
use parking_lot::Mutex;
use reconcile::{
    ConditionReason, DependencyEdge, FreezeHold, MARKERS_IGNORED, NextRunTrigger, ObjectKey, READY,
    RunOutcome, SHORTEST_INTERVAL, condition_reason, parse_duration,
};
use sources::source_condition_reasons::{GIT_OPERATION_FAILED, INVALID_DURATION};
use windlass_cluster::ClusterError;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};
use windlass_cluster::object_store::StateCache;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::throttled_requests::{ThrottledRequests, ThrottledRunBackoff};
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::controller_kind::{ControllerKind, log_failed_request, node_named, node_of};
use windlass_runtime::freeze::{self, ObjectFreeze};
use windlass_runtime::git_remote_access::operation_context;
use windlass_runtime::hold_conditions::is_asked;
use windlass_runtime::object_status::{LatestWrittenObject, status_of};
use windlass_runtime::pull_request_proposal::propose_pull_request;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::run_error::RunError;

use self::automation_git_repository::{AutomationGitRepository, node_of_reference};
use self::automation_update::{PushBranchMergeState, PushedCommit, not_fetched};
use self::branch_lock::{BranchKey, BranchLocks, PushRoundTarget};
use self::policies::{PolicyResults, PolicySelection};
use self::policy_verification_keys::PolicyVerificationKeys;
use self::pull_request::{
    BranchHead, ForgePause, PULL_REQUEST, PullRequestTarget, annotated_provider, named_provider,
};
use self::push_round_leader::{
    AutomationPushEnd, AutomationPushOutcome, AutomationPushReport, PushRoundMember,
};
use self::recommit_pause::CommittedValues;
use self::result::{AutomationResult, ignored, log_changes, show_ignored};
use crate::image_kind_run::{
    KindSpecificConditions, SuspendedReconcileRequest, announce, begin, next_run, publish,
    report_with, retry_after_refusal,
};

/// The strategy of the update is none. Parity(flux).
const INVALID_UPDATE_STRATEGY: ConditionReason = ConditionReason::new("InvalidUpdateStrategy");

/// What `Ready` says of a repository in which all files are up to date. Parity(flux).
const UP_TO_DATE: &str = "repository up-to-date";

/// The longest wait for the list of ImagePolicies.
const POLICIES_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a run waits for policies that are running, or are woken to run, and are not verified yet. After that the run ends,
/// and the policies wake the automation.
const VERIFICATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a waiting run checks whether the policies are verified.
const VERIFICATION_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How long runs may end in this way. A policy whose registry does not respond must not delay the results of other policies
/// for longer.
const MAX_VERIFICATION_DELAY: Duration = Duration::from_secs(120);

/// The longest wait of an automation whose branch was taken, or whose policies are not verified yet. Usually it is woken
/// earlier, unless an automation before it does not come.
const POSTPONED_RUN_DELAY: Duration = Duration::from_secs(30);

/// The shortest time between two commits of the same values, unless the interval is shorter. Two writers that undo each
/// other's commits, such as windlass in two clusters of which one sees older tags, would otherwise take turns as fast as
/// their GitRepositories are fetched, for ever.
///
/// Differs(flux): there a new revision wakes no automation, so that the interval is the bound.
const MIN_RECOMMIT_DELAY: Duration = Duration::from_secs(60);

/// The state of an ImageUpdateAutomation that this process keeps between runs.
#[derive(Default)]
pub struct ImageUpdateAutomationState {
    latest: Arc<LatestWrittenObject<ImageUpdateAutomation>>,
    /// Runs in a row that failed, for the growing delay.
    failures: u32,
    /// Runs in a row that the API server throttled.
    throttled_run_backoff: ThrottledRunBackoff,
    /// The last message about files and markers without effect.
    findings: String,
    /// A commit that was pushed by a run whose status could not be written.
    unreported: Option<PushedCommit>,
    /// The forge of the last pull request, if it requires a pause.
    forge_pause: Option<ForgePause>,
    /// Whether the push branch was merged when that was last found out.
    known_merge: Option<PushBranchMergeState>,
    /// The values that it committed last.
    committed: Option<CommittedValues>,
    /// Since when its runs have found policies that are not verified yet.
    unverified_since: Option<Instant>,
    /// Whether the server declined its last commit, perhaps because of other automations' commits. The automation then pushes
    /// alone.
    is_alone: bool,
}

/// Runs ImageUpdateAutomations.
pub struct ImageUpdateAutomationController;

impl ControllerKind for ImageUpdateAutomationController {
    type Object = ImageUpdateAutomation;

    const ANNOTATIONS: &'static [&'static str] = &[PULL_REQUEST];

    type ControllerState = ImageUpdateAutomationState;

    fn announcement(_object: &ImageUpdateAutomation) -> String {
        // Other objects only use the commits.
        String::new()
    }

    fn run(
        object: Arc<ImageUpdateAutomation>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        async move { run(object, &context).await }.boxed()
    }
}

/// One run. Returns the time until the next run.
async fn run(seen: Arc<ImageUpdateAutomation>, context: &Arc<RunContext>) -> Option<Duration> {
    let node = node_of(&*seen);
    let memory = context.shared::<StateCache<ImageUpdateAutomationState>>().of(&node);
    let latest = memory.lock().latest.clone();
    let object = latest.or_seen(seen);
    let is_deleted = object.meta().deletion_timestamp.is_some();
    let outcome = if is_deleted {
        latest.set_finalizer(context, &object, false).await.map(|_| None)
    } else {
        let attempt = attempt(context, &node, &memory, &latest, &object);
        let requests = ThrottledRequests::of_namespace(&node.namespace);
        requests.watch(Box::pin(attempt)).await
    };
    outcome.unwrap_or_else(|error| {
        log_failed_request(&node, &error);
        Some(retry_after_refusal(&context.settings, is_deleted, &mut memory.lock().failures))
    })
}

async fn attempt(
    context: &Arc<RunContext>,
    node: &ObjectKey,
    memory: &Mutex<ImageUpdateAutomationState>,
    latest: &LatestWrittenObject<ImageUpdateAutomation>,
    object: &Arc<ImageUpdateAutomation>,
) -> Result<Option<Duration>, ClusterError> {
    let begun = begin(context, latest, object, SuspendedReconcileRequest::Unanswered).await?;
    let Some(object) = begun else {
        // Earlier retries do not count after the object is resumed.
        memory.lock().throttled_run_backoff = ThrottledRunBackoff::default();
        return Ok(None);
    };
    let started = Timestamp::now();
    let source = node_of_reference(&object);
    let any_policy = node_named::<ImagePolicy>(&node.namespace, "");
    let mut sources = BTreeSet::from([source.clone(), any_policy]);
    if context.settings.verify_images_namespaces.is_some() {
        sources.insert(namespace_policies::labels_node_of(&node.namespace));
    }
    freeze::known(context).await;
    let freeze = freeze::holding(context, &*object, started);
    if freeze.is_some() {
        sources.extend(ObjectFreeze::nodes(&node.namespace));
    }
    let provider = named_provider(&object);
    sources.extend(provider.map(|name| node_named::<Provider>(&node.namespace, name)));
    context.work_queue.set_edges(node, DependencyEdge::Source, sources);
    let automation =
        AutomationRun { context, node, memory, object: &object, source: &source, freeze, started };
    let mut references = RunReferenceReads::new(&context.watcher);
    let ended = automation.run(&mut references).await;
    references.watch(node);
    let (result, outcome) = match ended {
        Ok(Some(mut result)) => {
            result.complete(&mut memory.lock().unreported);
            let outcome = result.outcome();
            (Some(result), outcome)
        }
        // Another automation writes the branch, policies are being verified, or another run is due.
        Ok(None) => return Ok(Some(POSTPONED_RUN_DELAY)),
        Err(error) => (None, error.outcome()?),
    };
    let postponed = memory.lock().throttled_run_backoff.postpone(&*object, &outcome);
    if let (None, Some(delay)) = (&result, postponed) {
        return Ok(Some(delay));
    }
    let settled = parse_duration(object.spec.interval.as_str()).ok();
    let settled = settled.map(|interval| interval.max(SHORTEST_INTERVAL));
    let undone_until = result.as_ref().and_then(|result| result.undone_until);
    let settled = undone_until.map(delay_until).or(settled);
    let again = next_run(&context.settings, &outcome, settled, &mut memory.lock().failures);
    let now = Timestamp::now();
    let of_result = result.as_ref();
    let mut report = report_with(
        &*object,
        &outcome,
        context.failure_announcement(node),
        now,
        KindSpecificConditions {
            types: &[MARKERS_IGNORED],
            set: &|it| show_ignored(of_result, it),
        },
        |status| {
            status.last_automation_run_time = Some(Time(started));
            if let Some(result) = of_result {
                result.show(status, now);
            }
        },
    );
    let mut of_pull_request = None;
    if let Some(result) = &result
        && let Some(pushed) = result.pushed()
    {
        log_changes(node, pushed);
        let of_outcome = report.event.replace(result.event(pushed));
        of_pull_request = of_outcome.filter(|_| result.pull_request.is_some());
    }
    let published = publish(context, latest, &object, report).await;
    let update = result.and_then(|result| result.update);
    if let Err(error) = published {
        // The next run finds nothing to commit, so this is the only time to report the commit.
        if let Some(pushed) = update.and_then(|update| update.pushed) {
            memory.lock().unreported = Some(pushed);
        }
        return Err(error);
    }
    if automation.freeze.is_some() {
        freeze::end_bypasses(context, &*latest.begun(&object), now).await;
    }
    let ignored = update.and_then(|update| ignored(&mut memory.lock().findings, &update.findings));
    if let Some(event) = of_pull_request {
        announce(context, &*object, event);
    }
    if let Some(event) = ignored {
        context.events.announce(&*object, ImageUpdateAutomation::CONTROLLER, event);
    }
    Ok(again)
}

/// One run of an automation.
struct AutomationRun<'r> {
    context: &'r Arc<RunContext>,
    node: &'r ObjectKey,
    memory: &'r Mutex<ImageUpdateAutomationState>,
    object: &'r Arc<ImageUpdateAutomation>,
    /// The node of its GitRepository.
    source: &'r ObjectKey,
    /// The Freezes that held it when the run began.
    freeze: Option<ObjectFreeze>,
    started: Timestamp,
}

impl AutomationRun<'_> {
    /// Updates the repository, and proposes the pull request of the push branch. `None` if another automation writes to the
    /// branch, if policies are being verified, or if this automation was changed while it waited.
    ///
    /// # Errors
    /// The spec is invalid, an object that it names is missing, or the repository cannot be read or written.
    async fn run(
        &self,
        references: &mut RunReferenceReads,
    ) -> Result<Option<AutomationResult>, RunError> {
        // The spec is checked before any request is sent.
        check(&self.object.spec)?;
        let Some(AutomationPolicies { results: policies, keys }) = self.policies().await? else {
            return Ok(None);
        };
        let Self { context, node, object, .. } = self;
        let source =
            automation_git_repository::resolve(context, node, object, self.source, references)
                .await?;
        let target = self.pull_request_target(&source).await?;
        let mut result = AutomationResult {
            policies: policies.latest.clone(),
            update: None,
            undone_until: None,
            branch: source.push.branch.clone(),
            refspec: source.push.refspec.clone(),
            pull_request: None,
        };
        let round = Arc::new(self.round_target(&source, target.is_some()));
        let locks = context.shared::<BranchLocks>();
        // Many automations may wait for one branch. Each asks the server when its turn comes, and not at each check.
        if locks.enqueue_if_taken(&round, node) {
            return Ok(None);
        }
        let is_unchanged = self.is_unchanged(&source, &policies).await;
        let frozen = match is_unchanged {
            Ok(false) => self.frozen().await,
            Ok(true) | Err(_) => None,
        };
        if !matches!(is_unchanged, Ok(false)) || frozen.is_some() {
            locks.pass_on(&round.branch, node, &context.work_queue);
        }
        if is_unchanged? {
            return Ok(Some(result));
        }
        if let Some(freeze) = frozen {
            return Err(freeze.outcome("a commit of the latest images").into());
        }
        let AutomationPushReport { update: report, policies } =
            match self.push(round, source, target.is_some(), keys).await? {
                AutomationPushEnd::Updated(report) => *report,
                AutomationPushEnd::Undone { until } => {
                    result.undone_until = Some(until);
                    return Ok(Some(result));
                }
                AutomationPushEnd::NotNow => return Ok(None),
            };
        result.policies = policies;
        if let Some(pushed) = &report.pushed {
            self.memory.lock().committed = Some(pushed.values.clone());
        }
        if report.merge.is_some() {
            self.memory.lock().known_merge.clone_from(&report.merge);
        }
        // The forge may be slow, so the run holds neither a permit nor the branch.
        if let Some(target) = &target
            && let Some(head) = &report.unmerged
        {
            result.pull_request = Some(self.propose(target, head, references).await);
        }
        result.update = Some(report);
        Ok(Some(result))
    }

    /// The Freeze that holds a commit. `None` if there is none, or if a user allowed the present revision of the
    /// GitRepository.
    async fn frozen(&self) -> Option<Arc<FreezeHold>> {
        let Self { context, object, source, .. } = self;
        let freeze = self.freeze.as_ref()?;
        let repository = context.seen::<GitRepository>(&source.namespace, &source.name);
        let artifact = repository.and_then(|it| it.status.as_ref()?.artifact.clone());
        let Some(artifact) = artifact else { return Some(freeze.hold().clone()) };
        freeze.pass(context, &***object, &artifact.revision, self.started).await.err()
    }

    /// The automations that can push together with this one. It pushes alone if the server declined its commit, or if a pull
    /// request is proposed, whose text is the message of the last commit.
    fn round_target(&self, source: &AutomationGitRepository, is_proposed: bool) -> PushRoundTarget {
        let branch = BranchKey {
            namespace: self.source.namespace.clone(),
            url: source.remote.url.to_string(),
            branch: source.push.branch.clone(),
        };
        PushRoundTarget {
            branch,
            source: self.source.clone(),
            reference: source.reference.clone(),
            push: source.push.clone(),
            alone: (is_proposed || self.memory.lock().is_alone).then(|| self.node.clone()),
        }
    }

    /// Writes the results while no other automations write to the branch.
    async fn push(
        &self,
        target: Arc<PushRoundTarget>,
        mut source: AutomationGitRepository,
        is_proposed: bool,
        keys: PolicyVerificationKeys,
    ) -> AutomationPushOutcome {
        let (known_merge, committed) = {
            let memory = self.memory.lock();
            (memory.known_merge.clone(), memory.committed.clone())
        };
        let member = PushRoundMember {
            context: self.context.clone(),
            node: self.node.clone(),
            object: self.object.clone(),
            signing_key: source.signing_key.take(),
            is_proposed,
            known_merge,
            committed,
            keys,
        };
        member.push(target, source).await
    }

    /// The target of the pull request in the annotation. `None` without the annotation.
    ///
    /// # Errors
    /// The annotation cannot be used with the spec, or there is no such Provider.
    async fn pull_request_target(
        &self,
        source: &AutomationGitRepository,
    ) -> Result<Option<PullRequestTarget>, RunOutcome> {
        let Some(provider) = annotated_provider(self.object) else { return Ok(None) };
        let AutomationGitRepository { remote, reference, push, .. } = source;
        let repository = remote.url.to_string();
        let target = PullRequestTarget::new(provider, reference, &push.branch, repository)?;
        let namespace = &self.node.namespace;
        if self.context.seen::<Provider>(namespace, provider).is_some() {
            return Ok(Some(target));
        }
        // The list of Providers may not be complete yet, or another process keeps it.
        match self.context.cluster.read::<Provider>(namespace, provider).await {
            Ok(Some(_)) => Ok(Some(target)),
            Ok(None) => Err(target.not_found(namespace, self.context.settings.notifies())),
            Err(error) => Err(target.unread(namespace, &error.to_string())),
        }
    }

    /// Creates or updates the pull request of the push branch at the forge. The push branch ends with `head`.
    ///
    /// # Errors
    /// The forge refused, or may not be asked yet.
    async fn propose(
        &self,
        target: &PullRequestTarget,
        head: &BranchHead,
        references: &mut RunReferenceReads,
    ) -> Result<PullRequest, RunOutcome> {
        let pause = self.memory.lock().forge_pause.clone();
        let paused = pause.and_then(|pause| pause.failure(target, Timestamp::now()));
        if let Some(failure) = paused {
            return Err(failure);
        }
        let proposal = target.proposal(head);
        let namespace = &self.node.namespace;
        let provider = &target.provider;
        let proposed =
            propose_pull_request(self.context, references, namespace, provider, proposal).await;
        let proposed = proposed.map_err(|error| target.failure(&error, Timestamp::now()));
        let failure = proposed.as_ref().err();
        self.memory.lock().forge_pause =
            failure.and_then(|failure| ForgePause::after(target, failure));
        proposed
    }

    /// The results of the policies that the spec selects. `None` if some of them are being verified.
    async fn policies(&self) -> Result<Option<AutomationPolicies>, RunOutcome> {
        let listed = self.context.kept.listed::<ImagePolicy>();
        if !matches!(tokio::time::timeout(POLICIES_TIMEOUT, listed).await, Ok(true)) {
            let text = "the ImagePolicies have not been listed; verify that the CustomResourceDefinition \
                        imagepolicies.image.toolkit.fluxcd.io is installed";
            let why = condition_reason::DEPENDENCY_NOT_READY;
            return Err(RunOutcome::Failed(why, text.to_owned(), NextRunTrigger::default()));
        }
        if self.context.settings.verify_images_namespaces.is_some() {
            self.context.shared::<NamespacePolicies>().known().await;
        }
        let is_due = self.is_verification_due().await?;
        if is_put_off(&mut self.memory.lock().unverified_since, is_due, Instant::now()) {
            return Ok(None);
        }
        let selection = self.selection()?;
        let keys = PolicyVerificationKeys::read(self.context, selection.secrets()).await;
        Ok(selection.results(&keys)?.map(|results| AutomationPolicies { results, keys }))
    }

    fn selection(&self) -> Result<PolicySelection, RunOutcome> {
        PolicySelection::current(self.context, &self.object.spec, &self.node.namespace)
    }

    /// Whether policies that are not verified run, or are woken to run, as all do after a restart. They are awaited for a while.
    async fn is_verification_due(&self) -> Result<bool, RunOutcome> {
        let work_queue = &self.context.work_queue;
        let begun = Instant::now();
        let mut was_due = false;
        loop {
            let is_due = self.selection()?.unverified_nodes().any(|it| work_queue.is_due(&it));
            // A status that was written takes a moment to be seen.
            if !is_due && !was_due || begun.elapsed() >= VERIFICATION_TIMEOUT {
                return Ok(is_due);
            }
            was_due = is_due;
            tokio::time::sleep(VERIFICATION_POLL_INTERVAL).await;
        }
    }

    /// Whether the files were up to date with these results in the revision that the remote has now.
    ///
    /// Parity(flux): a branch that is only pushed to says nothing of that.
    async fn is_unchanged(
        &self,
        source: &AutomationGitRepository,
        policies: &PolicyResults,
    ) -> Result<bool, RunOutcome> {
        let known = known_revision(self.object, &policies.latest);
        let Some(known) = known.filter(|_| source.push.is_known_by_checkout()) else {
            return Ok(false);
        };
        let _permit = self.context.asking.acquire(&self.node.namespace).await;
        let git = operation_context(self.context);
        let remote = source.remote.clone();
        let reference = source.reference.clone();
        let ask = move || {
            let tip = tip(&remote, &reference, &git).map_err(|error| not_fetched(&error))?;
            Ok(GitRevision::new(&reference, &tip).to_string())
        };
        let revision =
            blocking(GIT_OPERATION_FAILED, "reading the refs of the remote", ask).await?;
        Ok(revision == known)
    }
}

/// The results of an automation's policies.
struct AutomationPolicies {
    results: PolicyResults,
    /// The keys of the Secrets with which those are verified that are.
    keys: PolicyVerificationKeys,
}

/// Whether a run ends since policies are being verified. `since` is when the first run in a row found that.
fn is_put_off(since: &mut Option<Instant>, is_verification_due: bool, now: Instant) -> bool {
    if !is_verification_due {
        *since = None;
        return false;
    }
    let since = *since.get_or_insert(now);
    now.saturating_duration_since(since) < MAX_VERIFICATION_DELAY
}

/// Checks the durations and the strategy of a spec.
///
/// # Errors
/// The spec is invalid, and only a change of the spec helps.
fn check(spec: &ImageUpdateAutomationSpec) -> Result<(), RunOutcome> {
    parse_duration(spec.interval.as_str()).map_err(|error| {
        RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}"))
    })?;
    let strategy = spec.update.as_ref().map(|it| it.strategy.as_deref().unwrap_or_default());
    check_strategy(strategy)
        .map_err(|error| RunOutcome::Stalled(INVALID_UPDATE_STRATEGY, error.to_string()))
}

/// The revision whose files were up to date with these results and this spec. `None` if the last run does not record it.
fn known_revision(
    object: &ImageUpdateAutomation,
    policies: &BTreeMap<String, ImageRef>,
) -> Option<String> {
    let generation = object.metadata.generation.unwrap_or_default();
    let ready = object.condition(READY)?;
    let is_of_spec = ready.observed_generation.unwrap_or_default() == generation;
    let status = status_of(object);
    let is_known = ready.status == "True" && is_of_spec && status.observed_policies == *policies;
    status.observed_source_revision.filter(|_| is_known)
}

/// The time until which the values of these results are not committed again. `None` if that time is over.
fn recommit_after(
    object: &ImageUpdateAutomation,
    policies: &BTreeMap<String, ImageRef>,
    now: Timestamp,
) -> Option<Timestamp> {
    if is_asked(object) || known_revision(object, policies).is_none() {
        return None;
    }
    let pushed = status_of(object).last_push_time?.0;
    let interval = parse_duration(object.spec.interval.as_str()).unwrap_or_default();
    let until = pushed.checked_add(MIN_RECOMMIT_DELAY.min(interval)).ok()?;
    // A push in the future, by another clock, is not waited for.
    (pushed <= now && now < until).then_some(until)
}

/// The duration until a time.
fn delay_until(time: Timestamp) -> Duration {
    let delay = time.duration_since(Timestamp::now());
    Duration::try_from(delay).unwrap_or_default().max(SHORTEST_INTERVAL)
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use serde_json::{Value, json};

    use super::*;

    fn automation(spec: &Value, status: &Value) -> ImageUpdateAutomation {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "apps", "generation": 2},
            "spec": spec,
            "status": status,
        }))
        .unwrap()
    }

    fn version(tag: &str) -> ImageRef {
        ImageRef { name: "r.io/web".to_owned(), tag: tag.to_owned(), digest: None }
    }

    #[test]
    fn every_field_of_the_schema_is_used() {
        let used = ["sourceRef", "git", "interval", "policySelector", "update", "suspend"];
        spec_field_check::knows_every_field("ImageUpdateAutomation", used);
    }

    #[test]
    fn only_a_change_of_spec_helps_against_what_is_malformed() {
        for (spec, why, text) in [
            (
                json!({"interval": "soon", "update": {"strategy": "Setters"}}),
                INVALID_DURATION,
                "spec.interval: ",
            ),
            (json!({"interval": "1m"}), INVALID_UPDATE_STRATEGY, "no update strategy"),
            (
                json!({"interval": "1m", "update": {"strategy": "Other"}}),
                INVALID_UPDATE_STRATEGY,
                "unsupported update strategy: Other",
            ),
        ] {
            let outcome = check(&automation(&spec, &json!(null)).spec).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
            assert_eq!(outcome.reason(), why);
            assert!(outcome.text().starts_with(text), "{outcome:?}");
        }
        let spec = json!({"interval": "1m", "update": {"strategy": "Setters"}});
        assert_eq!(check(&automation(&spec, &json!(null)).spec), Ok(()));
    }

    #[test]
    fn an_automation_waits_for_policies_that_are_being_verified_and_not_for_ever() {
        let begun = Instant::now();
        let end = begun + MAX_VERIFICATION_DELAY;
        let mut since = None;
        assert!(!is_put_off(&mut since, false, begun));
        assert!(is_put_off(&mut since, true, begun));
        assert!(is_put_off(&mut since, true, end - Duration::from_secs(1)));
        assert!(!is_put_off(&mut since, true, end), "one of them does not come to its end");
        assert!(!is_put_off(&mut since, false, end), "all are verified");
        assert!(is_put_off(&mut since, true, end), "they are verified anew");
    }

    #[test]
    fn a_revision_counts_for_the_spec_and_the_results_with_which_it_was_up_to_date() {
        let ready = |status: &str, generation: i64| {
            json!({"observedSourceRevision": "main@sha1:1",
                "observedPolicies": {"web": {"name": "r.io/web", "tag": "2"}},
                "conditions": [{"type": "Ready", "status": status, "reason": "Succeeded", "message": "",
                    "observedGeneration": generation, "lastTransitionTime": "2026-11-01T00:00:00Z"}]})
        };
        let known = |status: &Value, tag: &str| {
            let policies = BTreeMap::from([("web".to_owned(), version(tag))]);
            known_revision(&automation(&json!({}), status), &policies)
        };
        assert_eq!(known(&ready("True", 2), "2").as_deref(), Some("main@sha1:1"));
        assert_eq!(known(&ready("True", 2), "3"), None, "another result");
        assert_eq!(known(&ready("True", 1), "2"), None, "another spec");
        assert_eq!(known(&ready("False", 2), "2"), None, "a run that failed");
        assert_eq!(known(&json!({}), "2"), None, "no run");
    }

    #[test]
    fn the_same_results_are_not_committed_again_at_once_unless_that_is_requested() {
        let status = json!({"observedSourceRevision": "main@sha1:1",
            "observedPolicies": {"web": {"name": "r.io/web", "tag": "2"}},
            "lastPushTime": "2026-11-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "",
                "observedGeneration": 2, "lastTransitionTime": "2026-11-01T00:00:00Z"}]});
        let of = |interval: &str| automation(&json!({"interval": interval}), &status);
        let after = |object: &ImageUpdateAutomation, tag: &str, now: &str| {
            let policies = BTreeMap::from([("web".to_owned(), version(tag))]);
            recommit_after(object, &policies, now.parse().unwrap()).map(|until| until.to_string())
        };
        let is_recommit = |object: &ImageUpdateAutomation, tag: &str, now: &str| {
            after(object, tag, now).is_some()
        };
        let until = after(&of("30m"), "2", "2026-11-01T00:00:59Z");
        assert_eq!(until.as_deref(), Some("2026-11-01T00:01:00Z"));
        let until = after(&of("10s"), "2", "2026-11-01T00:00:09Z");
        assert_eq!(until.as_deref(), Some("2026-11-01T00:00:10Z"));
        assert!(!is_recommit(&of("30m"), "2", "2026-11-01T00:01:00Z"), "a while ago");
        assert!(!is_recommit(&of("30m"), "3", "2026-11-01T00:00:01Z"), "another result");
        assert!(!is_recommit(&of("10s"), "2", "2026-11-01T00:00:10Z"), "a shorter interval");
        assert!(!is_recommit(&of("30m"), "2", "2026-10-31T23:59:59Z"), "another clock");
        let mut requested = of("30m");
        let annotations = requested.metadata.annotations.get_or_insert_default();
        annotations.insert("reconcile.fluxcd.io/requestedAt".to_owned(), "now".to_owned());
        assert!(!is_recommit(&requested, "2", "2026-11-01T00:00:01Z"), "requested");
        let mut failed = of("30m");
        let failed_status = failed.status.get_or_insert_default();
        failed_status.conditions.clear();
        assert!(!is_recommit(&failed, "2", "2026-11-01T00:00:01Z"), "a run that failed");
    }
}
