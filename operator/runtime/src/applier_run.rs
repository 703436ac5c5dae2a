//! Appliers: the kinds that apply objects to a cluster, which are Kustomization, HelmRelease and Helmfile. This module has the
//! run that all of them share.
//!
//! Here: what each kind has to implement ([`ApplierKind`]), and the common run: gate, dependencies, target, state, report. In
//! the folder: runs that may not continue (`paused_run`), the interval of observations (`wait_observation_interval`), throttled
//! runs (`throttled_run`), objects that must outlive an applier (`finalization_needs`), and deletion (`finalize`). Elsewhere:
//! the kinds (crates of their own), and their decisions (engines `apply`, `release`).

mod finalization_needs;
pub mod finalize;
mod paused_run;
mod suspension_audit;
mod throttled_run;
mod wait_observation_interval;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crds::{Applier, ObjectStatus, ReconciledObject};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::{Resource as _, ResourceExt as _};
use parking_lot::{Mutex, MutexGuard};
use reconcile::object_dependency::ObjectDependency;
use reconcile::{
    DependencyEdge, DependencyState, FreezeHold, ObjectKey, ReleaseRollback, RunGate, RunGateFacts,
    RunOutcome, SHORTEST_INTERVAL, Time, after_resolve, before_resolve,
};

use finalization_needs::{dependency_nodes, needs};
use suspension_audit::SuspensionAuditRateLimit;
pub use wait_observation_interval::WaitObservation;

use crate::approval_plan::BUDGET_EXCEEDED;
use crate::approval_plan::change_approval::PLAN_PENDING;
use crate::cluster_target::{ClusterTarget, TargetSpec};
use crate::controller_kind::{ControllerKind, log_failed_request, node_of};
use crate::cross_kind_dependencies::{CrossKindDependency, look_up, may_change_answers};
use crate::freeze::{self, ObjectFreeze};
use crate::object_status::LatestWrittenObject;
use crate::run_context::RunContext;
use crate::{
    approval_plan, change_window, dependency_gate, hold_conditions, lifecycle, object_hold,
};
use windlass_cluster::ClusterError;
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};
use windlass_cluster::object_store::StateCache;
use windlass_cluster::object_watcher::AppliedOwner;
use windlass_cluster::preparing_permit::PreparingPermit;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::resource_version::LATEST_VERSION;
use windlass_cluster::run_permits::PermitPriority;
use windlass_cluster::throttled_requests::{
    DEFAULT_REPETITION_TIME, ThrottledRequests, ThrottledRunBackoff,
};
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_expressions::{ExpressionCache, RunExpressions};
use windlass_serve::settings::OperatorSettings;

/// The functions that a kind of applier implements for the common run.
pub trait ApplierKind: Sized + 'static {
    /// The Kubernetes kind.
    type Object: WindlassKind + Applier;

    /// Annotations that change the runs of this kind. A change of such an annotation starts a run.
    const ANNOTATIONS: &'static [&'static str];

    /// The conditions that the kind sets besides `Ready`, `Reconciling` and `Stalled`. Other conditions in the status stay.
    const OWNED: &'static [&'static str];

    /// The state that the kind remembers about an object between runs. [`ApplierState`] has the state of every applier.
    type Own: Default + Send + 'static;
    /// The spec after parsing and validation.
    type ValidatedSpec: Clone + Send + Sync + 'static;
    /// The content of the objects that the spec names, except the kubeconfig and the ServiceAccount.
    type SpecInputs: Send;
    /// The details that a run reports in addition to its outcome.
    type RunDetails: Default + Send;

    /// Whether a ready dependency still has to apply `revision` before `object` may apply it. `None` if it need not.
    fn stale(
        _dependency: &Self::Object,
        _object: &Self::Object,
        _revision: &str,
    ) -> Option<DependencyState> {
        None
    }

    /// The fields of the object that this version of windlass does not support.
    fn unsupported(_object: &Self::Object) -> Vec<&'static str> {
        Vec::new()
    }

    /// The source that the spec names.
    fn source(object: &Self::Object) -> Option<ObjectKey>;

    /// The source that the spec names, or the source behind it if that one is generated for the object.
    fn named_source(object: &Self::Object) -> Option<ObjectKey> {
        Self::source(object)
    }

    /// Whether the status shows that a run applied the artifact of a revision, or tried to.
    fn has_tried(object: &Self::Object, revision: &str) -> bool;

    /// The state of the object that dependents read. They wake when this string changes.
    fn announcement(object: &Self::Object) -> String;

    /// Parses the spec and checks the fields that need neither a cluster nor the evaluation of an expression.
    fn validate(
        object: &Self::Object,
        settings: &OperatorSettings,
    ) -> Result<Self::ValidatedSpec, RunOutcome>;

    /// The interval, retry interval and timeout of the spec.
    fn pace(spec: &Self::ValidatedSpec) -> ReconcileIntervals;

    /// The last observation of the wait in progress. `None` if the next run has to do more than observe this wait.
    fn observation(
        session: &ApplierSession<Self>,
        object: &Self::Object,
    ) -> Option<WaitObservation>;

    /// Whether the next run only continues a wait of the last one. Little of its work is left, and other objects may wait for
    /// its end.
    fn continues_wait(_own: &Self::Own) -> bool {
        false
    }

    /// Forgets the state of applied objects, because the object is now applied to another cluster or as another user.
    fn moved(own: &mut Self::Own);

    /// Whether an operation is in progress that must not be interrupted at its current step. A run asks this only if the
    /// object is suspended, its windows are closed or a Freeze holds it.
    fn is_under_way(
        _session: &ApplierSession<Self>,
        _object: &Arc<Self::Object>,
    ) -> impl Future<Output = Result<bool, ClusterError>> + Send {
        std::future::ready(Ok(false))
    }

    /// The changes that a run would make if the windows were open and no Freeze held the object.
    fn pending(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
    ) -> impl Future<Output = PendingChanges> + Send;

    /// Continues the operation of a suspended object up to a step at which it can be interrupted.
    fn stop(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
    ) -> impl Future<Output = Result<Option<Duration>, ClusterError>> + Send {
        session.finish_suspended(object)
    }

    /// The rollback that a user requested and that is waiting or done. `None` if the kind has no rollbacks.
    fn rollback(_object: &Self::Object) -> Option<ReleaseRollback> {
        None
    }

    /// The step at which the object stopped when it was suspended.
    fn where_stopped(object: &Self::Object) -> String;

    /// Ends the waits and the contests of an object because it was suspended.
    fn waits_no_more(_own: &mut Self::Own) {}

    /// Reads the objects that the spec names, except the kubeconfig and the ServiceAccount.
    fn read(
        session: &ApplierSession<Self>,
        object: &Self::Object,
        references: &mut RunReferenceReads,
    ) -> impl Future<Output = Result<Self::SpecInputs, RunOutcome>> + Send;

    /// Whether a run has more to report than its outcome, such as changes that it made.
    fn has_more_to_report(_details: &Self::RunDetails) -> bool {
        false
    }

    /// Reconciles an object after the gate opened. `None` if something changed meanwhile, so that the next run must begin at
    /// once.
    fn reconcile(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
        facts: RunGateFacts,
        spec: Self::ValidatedSpec,
    ) -> impl Future<Output = Result<Option<ApplierRunReport<Self>>, ClusterError>> + Send;

    /// Deletes the applied objects, because the object that applied them is being deleted.
    fn finalize(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
    ) -> impl Future<Output = Result<FinalizeOutcome<Self>, ClusterError>> + Send;

    /// The Secrets and ConfigMaps that the spec names, except the kubeconfig, as kind and name.
    fn inputs(_object: &Self::Object) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Whether the drift of all applied objects is corrected, whatever the spec says.
    const CORRECTS_ALL_DRIFT: bool = false;

    /// Whether the applied objects stay in the cluster when the Secret with the kubeconfig of that cluster is gone.
    const STAYS_WITHOUT_KUBECONFIG: bool;

    /// The event that reports that applied objects can no longer be deleted, because `subject` is gone.
    fn left_behind(object: &Self::Object, subject: &str) -> ObjectEvent;

    /// The status and the events at the end of a run. This function also writes the log lines.
    fn report(
        session: &ApplierSession<Self>,
        ended: ApplierRunReport<Self>,
        end: &ApplierRunEnd,
    ) -> ApplierReport<Self>;

    /// The time until the next check of an object whose state is as desired. `None` means the interval of the spec.
    fn next_look(_own: &Self::Own) -> Option<Duration> {
        None
    }
}

/// The intervals and the timeout of a spec.
#[derive(Debug, Clone, Copy)]
pub struct ReconcileIntervals {
    /// The time from a successful run to the next run.
    pub interval: Duration,
    /// The time from a failed run to the next run.
    pub retry: Duration,
    /// How long throttled runs are repeated before they count as failed.
    pub timeout: Duration,
}

/// The changes that a run would make if the windows were open and no Freeze held the object.
pub enum PendingChanges {
    /// None. The object is ready with this spec and revision.
    Nothing,
    /// The run would only observe applied objects, which changes nothing.
    Observing,
    /// The run would apply these changes, in words.
    Change(String),
}

/// The result of a run.
pub struct ApplierRunReport<K: ApplierKind> {
    /// The object after the last write.
    pub object: Arc<K::Object>,
    /// How the run ended.
    pub outcome: RunOutcome,
    /// The details that the kind reports in addition.
    pub came: K::RunDetails,
    /// If set, the status is not written now, because the cause of the outcome will probably be gone after this time. The next
    /// run then begins.
    pub unsaid_for: Option<Duration>,
}

impl<K: ApplierKind> ApplierRunReport<K> {
    /// The report of a run that ended early and has only an outcome.
    pub fn early(object: &Arc<K::Object>, outcome: RunOutcome) -> Self {
        Self { object: object.clone(), outcome, came: K::RunDetails::default(), unsaid_for: None }
    }
}

/// The result of one attempt to finalize an object.
pub enum FinalizeOutcome<K: ApplierKind> {
    /// All applied objects are deleted, so the finalizer can be removed.
    Done(Arc<K::Object>),
    /// A later run continues the removal.
    Later(Box<ApplierRunReport<K>>, Option<K::ValidatedSpec>),
    /// Something changed meanwhile, so the next run begins at once.
    Anew,
}

/// The end of a run, for its report.
pub struct ApplierRunEnd {
    /// The outcome, with the time of the next run.
    pub outcome: RunOutcome,
    /// When the run began.
    pub began: Time,
    /// When the run ended.
    pub now: Time,
    /// `spec.interval`, for messages.
    pub interval: Duration,
}

/// The status to write and the events to announce.
pub struct ApplierReport<K: ApplierKind> {
    /// The object that ran.
    pub object: Arc<K::Object>,
    /// The status in the cluster.
    pub before: <K::Object as ReconciledObject>::Status,
    /// The status to write.
    pub after: <K::Object as ReconciledObject>::Status,
    /// The events that are announced with the status.
    pub events: Vec<ObjectEvent>,
}

/// The state that every applier remembers about an object between runs.
pub struct ApplierState<K: ApplierKind> {
    latest: Arc<LatestWrittenObject<K::Object>>,
    expressions: ExpressionCache,
    /// The cluster and the user with which the object was last applied.
    target: Option<Arc<ClusterTarget>>,
    own: Arc<Mutex<K::Own>>,
    suspension_audits: SuspensionAuditRateLimit,
    throttled_run_backoff: ThrottledRunBackoff,
    /// The uid of the object if the deletion of its applied objects has begun. From then on it waits for no dependents. The
    /// uid tells it from a later object of the same name.
    removal_begun: Option<String>,
}

impl<K: ApplierKind> Default for ApplierState<K> {
    fn default() -> Self {
        Self {
            latest: Arc::default(),
            expressions: ExpressionCache::default(),
            target: None,
            own: Arc::default(),
            suspension_audits: SuspensionAuditRateLimit::default(),
            throttled_run_backoff: ThrottledRunBackoff::default(),
            removal_begun: None,
        }
    }
}

impl<K: ApplierKind> ControllerKind for K {
    type Object = K::Object;

    const ANNOTATIONS: &'static [&'static str] = <K as ApplierKind>::ANNOTATIONS;

    type ControllerState = ApplierState<K>;

    fn unsupported(object: &K::Object) -> Vec<&'static str> {
        <K as ApplierKind>::unsupported(object)
    }

    fn source(object: &K::Object) -> Option<ObjectKey> {
        <K as ApplierKind>::source(object)
    }

    fn has_tried(object: &K::Object, revision: &str) -> bool {
        <K as ApplierKind>::has_tried(object, revision)
    }

    fn applied_owner(object: &K::Object) -> Option<AppliedOwner> {
        object.kube_config().is_none().then(|| {
            let status = object.status().filter(|_| K::CORRECTS_ALL_DRIFT);
            let entries = status
                .and_then(ObjectStatus::inventory)
                .map_or(&[][..], |it| it.entries.as_slice());
            AppliedOwner::new(
                object,
                entries.iter().map(|it| [it.id.as_str(), it.version.as_str()]),
            )
        })
    }

    fn needs(object: &K::Object, context: &RunContext) -> BTreeSet<ObjectKey> {
        needs::<K>(object, context)
    }

    fn announcement(object: &K::Object) -> String {
        <K as ApplierKind>::announcement(object)
    }

    fn caught_up(node: &ObjectKey, object: &K::Object, context: &RunContext) {
        let memory = context.shared::<StateCache<ApplierState<K>>>().known(node);
        let latest = memory.map(|memory| memory.lock().latest.clone());
        if let Some(latest) = latest {
            latest.caught_up(object);
        }
    }

    fn run(
        object: Arc<K::Object>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        run::<K>(object, context).boxed()
    }

    fn forget(node: &ObjectKey, context: &RunContext) {
        forget::<K>(node, context);
    }
}

/// When a dependency is read again if the API server did not say whether it exists.
const AFTER_UNKNOWN_DEPENDENCY: Duration = Duration::from_secs(10);

/// The time until a run is repeated whose status could not be written.
pub const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// The object, the shared context and the state of one run.
pub struct ApplierSession<K: ApplierKind> {
    /// The context that all runs share.
    pub context: Arc<RunContext>,
    /// The object that runs, as a node of the dependency graph.
    pub node: ObjectKey,
    /// The object as windlass's last write returned it.
    pub latest: Arc<LatestWrittenObject<K::Object>>,
    /// The expressions in the spec.
    pub expressions: Arc<RunExpressions>,
    /// The permit under which the run prepares, until it applies.
    pub preparing: PreparingPermit,
    /// Whether an API server throttled requests of this run.
    requests: ThrottledRequests,
    /// When the run began.
    pub began: Time,
    /// The Freezes that held the object when the run began. A later Freeze does not interrupt this run, even if the run itself
    /// creates the Freeze.
    freeze: Option<ObjectFreeze>,
    memory: Arc<Mutex<ApplierState<K>>>,
    own: Arc<Mutex<K::Own>>,
}

/// The state that dependents read, as a string. It says whether the object is ready and why not, whether its status is about
/// the newest spec, and the revision.
pub fn announcement<O: WindlassKind + ReconciledObject>(
    object: &O,
    revision: Option<&str>,
) -> String {
    let generation = object.meta().generation.unwrap_or_default();
    let condition = object.condition("Ready");
    let ready = condition.map_or("", |it| it.status.as_str());
    let current = object.observed_generation() == Some(generation);
    // An object that waits for this one reports why it is not ready.
    let failure = condition.filter(|it| it.status == "False").map(|it| {
        let is_newest = it.observed_generation == Some(generation);
        format!("{} {is_newest}", it.reason)
    });
    let failure = failure.unwrap_or_default();
    format!("{ready} {current} {failure} {}", revision.unwrap_or_default())
}

/// Drops the watches and the state of an object that is gone.
fn forget<K: ApplierKind>(node: &ObjectKey, context: &RunContext) {
    let memories = context.shared::<StateCache<ApplierState<K>>>();
    let memory = memories.of(node);
    let target = memory.lock().target.take();
    if let Some(target) = target {
        target.watcher().forget(node);
    }
    memories.forget(node);
}

/// Runs the object once. Returns the time until its next run.
async fn run<K: ApplierKind>(seen: Arc<K::Object>, context: Arc<RunContext>) -> Option<Duration> {
    // After a start, sources and dependencies may only seem to be missing. `None` means that the process ends.
    context.sources.listed().await?;
    context.kept.listed::<K::Object>().await.then_some(())?;
    context.shared::<NamespacePolicies>().known().await;
    lifecycle::known(&context).await;
    approval_plan::known(&context).await;
    // A deletion waits for no Freeze and no Plan.
    if seen.meta().deletion_timestamp.is_none() {
        freeze::known(&context).await;
        Box::pin(approval_plan::current(&context)).await;
    }
    let node = node_of(&*seen);
    let states = context.shared::<StateCache<ApplierState<K>>>();
    let preparing = PreparingPermit::default();
    // A deletion builds nothing. A run for a remote cluster takes a permit of that cluster later (`named`), since it may not
    // respond.
    if seen.meta().deletion_timestamp.is_none() && seen.kube_config().is_none() {
        let continues = states.known(&node).is_some_and(|memory| {
            let own = memory.lock().own.clone();
            K::continues_wait(&own.lock())
        });
        let priority = if continues { PermitPriority::Resume } else { PermitPriority::New };
        let permits = context.targets.preparing_at_home();
        preparing.acquire(permits, priority, &node.namespace).await;
    }
    // The object may have changed or gone while the run waited. Another object of the same name has a state of its own.
    let seen = context.newest(seen)?;
    if !context.settings.selects(seen.labels()) {
        return None;
    }
    let memory = states.of(&node);
    let (latest, kept, own) = {
        let memory = memory.lock();
        (memory.latest.clone(), memory.expressions.clone(), memory.own.clone())
    };
    let object = latest.or_seen(seen);
    let expressions = Arc::new(RunExpressions::new(&node.namespace, kept));
    let began = jiff::Timestamp::now();
    let freeze = freeze::holding(&context, &*object, began);
    let requests = ThrottledRequests::of_namespace(&node.namespace);
    let session = ApplierSession {
        context,
        node,
        latest,
        expressions,
        preparing,
        requests,
        began,
        freeze,
        memory,
        own,
    };
    // The rest of a run needs much memory. On the heap, only runs that have a permit take it.
    let outcome = match object.meta().deletion_timestamp {
        Some(_) => {
            session.preparing.end();
            session.requests.watch(Box::pin(session.delete(object.clone()))).await
        }
        None => session.requests.watch(Box::pin(session.attempt(object.clone()))).await,
    };
    if session.freeze.is_some() {
        let object = session.latest.begun(&object);
        let ended = freeze::end_bypasses(&session.context, &*object, jiff::Timestamp::now());
        Box::pin(ended).await;
    }
    let again = outcome.unwrap_or_else(|error| {
        log_failed_request(&session.node, &error);
        Some(AFTER_REFUSAL)
    });
    again.into_iter().chain(session.suspension_audit_due_in()).min()
}

/// The time until the next run of an object whose state is as desired: its interval, with a jitter that stays the same.
pub fn interval<O: WindlassKind>(
    object: &O,
    pace: ReconcileIntervals,
    settings: &OperatorSettings,
) -> Duration {
    let seed = reconcile::seed(&object.uid().unwrap_or_default());
    let interval = pace.interval.max(SHORTEST_INTERVAL);
    reconcile::jittered(interval, settings.interval_jitter_percentage, seed)
}

impl<K: ApplierKind> ApplierSession<K> {
    /// The state that the kind remembers about the object between runs.
    pub fn memory(&self) -> MutexGuard<'_, K::Own> {
        self.own.lock()
    }

    /// The cluster and the user with which the object was last applied.
    fn last_target(&self) -> Option<Arc<ClusterTarget>> {
        self.memory.lock().target.clone()
    }

    /// The time `delay` from now.
    pub fn in_future(&self, delay: Duration) -> Time {
        jiff::Timestamp::now().saturating_add(delay).unwrap_or(Time::MAX)
    }

    async fn attempt(&self, object: Arc<K::Object>) -> Result<Option<Duration>, ClusterError> {
        if let Some(pause) = self.pause(&object) {
            return Ok(Some(pause));
        }
        let is_expired = object_hold::of(&*object).is_some_and(|hold| hold.is_expired(self.began));
        let lifted = object_hold::lift(&self.context, &self.latest, object, self.began).await?;
        let Some(object) = lifted else { return Ok(None) };
        self.audit_suspension(&object, is_expired).await;
        let is_blocked = self.context.settings.no_cross_namespace_refs;
        let needed = self.context.dependencies.named_by(&*object, is_blocked);
        self.set_edges(&object, needed.as_deref().ok());
        let is_under_way = self.is_shut(&object) && K::is_under_way(self, &object).await?;
        let facts = self.facts(&object, is_under_way).await;
        match before_resolve(&facts) {
            RunGate::Suspended if is_under_way => return K::stop(self, &object).await,
            RunGate::Suspended => return self.finish_suspended(&object).await,
            RunGate::Closed => return self.finish_closed(&object).await,
            RunGate::Outcome(outcome) => {
                return self.finish(ApplierRunReport::early(&object, outcome), None).await;
            }
            RunGate::Open => {}
        }
        let Some(object) = self.latest.set_finalizer(&self.context, &object, true).await? else {
            return Ok(None);
        };
        if let Err(outcome) = needed {
            return self.finish(ApplierRunReport::early(&object, outcome), None).await;
        }
        let spec = match K::validate(&object, &self.context.settings) {
            Ok(spec) => spec,
            Err(outcome) => {
                return self.finish(ApplierRunReport::early(&object, outcome), None).await;
            }
        };
        let health = object.health_check_exprs();
        let depends_on = object.depends_on();
        if let Err(outcome) = self.expressions.read(object.meta(), health, depends_on).await {
            return self.finish(ApplierRunReport::early(&object, outcome), None).await;
        }
        match Box::pin(K::reconcile(self, &object, facts, spec.clone())).await? {
            // Something changed meanwhile, so the next run decides anew.
            None => Ok(Some(Duration::ZERO)),
            Some(mut ended) => {
                self.postpone(&mut ended, K::pace(&spec).timeout);
                match ended.unsaid_for {
                    Some(time) => Ok(Some(time)),
                    None => self.finish(ended, Some(spec)).await,
                }
            }
        }
    }

    /// Registers the dependencies of the object in the work queue, so that their changes wake it. Without `needed`, its
    /// dependencies on objects of other kinds cannot be used.
    fn set_edges(&self, object: &K::Object, needed: Option<&[ObjectDependency]>) {
        let dependencies = dependency_nodes(&self.context, object, needed);
        self.context.work_queue.set_edges(&self.node, DependencyEdge::DependsOn, dependencies);
        let source = K::source(object).into_iter().collect();
        self.context.work_queue.set_edges(&self.node, DependencyEdge::Source, source);
        self.refer_to(BTreeSet::new());
    }

    /// Registers the dependency graph nodes that wake this object: `nodes`, the policy of its namespace, and Freezes while one
    /// holds it.
    fn refer_to(&self, mut nodes: BTreeSet<ObjectKey>) {
        nodes.insert(namespace_policies::node_of(&self.node.namespace));
        if self.freeze.is_some() {
            nodes.extend(ObjectFreeze::nodes(&self.node.namespace));
        }
        self.context.work_queue.set_edges(&self.node, DependencyEdge::Reference, nodes);
    }

    /// The Freeze that holds an operation to `revision`. `None` if no Freeze does, or if a user's bypass lets the operation
    /// begin. The use of the bypass is then recorded. A correction of drift has no revision, so no bypass is for it.
    pub async fn frozen(
        &self,
        object: &K::Object,
        revision: Option<&str>,
    ) -> Option<Arc<FreezeHold>> {
        let freeze = self.freeze.as_ref()?;
        let Some(revision) = revision else { return Some(freeze.hold().clone()) };
        freeze.pass(&self.context, object, revision, self.began).await.err()
    }

    /// The outcome if a dependency ends the run. `None` if the run may continue. The caller has already checked suspension and
    /// windows.
    pub async fn gate(
        &self,
        object: &Arc<K::Object>,
        facts: RunGateFacts,
        revision: &str,
    ) -> Option<RunOutcome> {
        let context = &self.context;
        let store = &self.context.store::<K::Object>();
        let stale = |other: &K::Object| K::stale(other, object, revision);
        let changes = may_change_answers(&**object, &self.node.namespace);
        if !changes.is_empty() {
            self.refer_to(changes);
        }
        let expressions = &self.expressions;
        let looked_up = match look_up(context, &self.node, object, expressions).await {
            Ok(looked_up) => looked_up,
            Err(outcome) => return Some(outcome),
        };
        let dependencies =
            dependency_gate::named_by(context, store, object, &looked_up, expressions, stale);
        let mut dependencies = dependencies.await;
        let requeue = match looked_up.iter().flatten().any(|it| it.is_unknown) {
            true => context.settings.requeue_dependency.min(AFTER_UNKNOWN_DEPENDENCY),
            false => context.settings.requeue_dependency,
        };
        self.await_dependencies(looked_up);
        let is_blocked = context.settings.no_cross_namespace_refs;
        let needed = match context.dependencies.named_by(&**object, is_blocked) {
            Ok(needed) => needed,
            Err(outcome) => return Some(outcome),
        };
        dependencies.extend(needed.iter().map(|it| context.dependencies.state(it)));
        let facts = RunGateFacts { dependencies, suspended: false, ..facts };
        match after_resolve(&facts, self.in_future(requeue)) {
            RunGate::Outcome(outcome) => Some(outcome),
            RunGate::Open | RunGate::Suspended | RunGate::Closed => None,
        }
    }

    /// Watches the dependencies of other kinds, and the CRDs or rights that they still need.
    fn await_dependencies(&self, looked_up: Vec<Option<CrossKindDependency>>) {
        let mut nodes = BTreeSet::new();
        let mut references = Vec::new();
        let is_any = looked_up.iter().any(Option::is_some);
        for mut lookup in looked_up.into_iter().flatten() {
            nodes.append(&mut lookup.nodes);
            references.extend(lookup.reference);
        }
        // Two entries may name the same object. The one that is not satisfied counts.
        references.sort_by_key(|it| it.version != Some(LATEST_VERSION));
        self.context.watcher.depend_on(&self.node, &references);
        if is_any {
            self.refer_to(nodes);
        }
    }

    /// The cluster and the user that the spec names.
    pub fn wanted<'a>(&'a self, object: &'a K::Object) -> TargetSpec<'a> {
        let kube_config = object.kube_config();
        let account = object.service_account_name();
        TargetSpec::new(&self.context.settings, &self.node.namespace, kube_config, account)
    }

    /// Whether only verified artifacts may be applied. True if the policy is not known.
    pub fn is_verified_only(&self) -> bool {
        let policies = self.context.shared::<NamespacePolicies>();
        policies.is_verified_only(&self.node.namespace).unwrap_or(true)
    }

    /// The cluster and the user with which the object is applied. Other objects that the spec names are not read.
    ///
    /// # Errors
    /// The outcome of a run that has no usable target.
    pub async fn target(&self, object: &K::Object) -> Result<Arc<ClusterTarget>, RunOutcome> {
        let mut references = RunReferenceReads::new(&self.context.watcher);
        let target = self.context.targets.of(&self.wanted(object), &mut references).await;
        references.watch(&self.node);
        target
    }

    /// Reads everything that the spec names: the kubeconfig and ServiceAccount, and the inputs of the kind.
    ///
    /// # Errors
    /// The outcome of a run for which one of them is missing.
    pub async fn named(
        &self,
        object: &K::Object,
    ) -> Result<(Arc<ClusterTarget>, K::SpecInputs), RunOutcome> {
        // All references are watched before a missing one ends the run.
        let mut references = RunReferenceReads::new(&self.context.watcher)
            .reading_anew(hold_conditions::is_asked(object));
        let wanted = self.wanted(object);
        if wanted.kube_config.is_some() {
            // A cluster that does not respond delays only its own objects.
            self.preparing.end();
        }
        let targets = &self.context.targets;
        let target = targets.of(&wanted, &mut references).await;
        let permits = match &target {
            Ok(target) => target.preparing(),
            Err(_) => targets.preparing_at_home(),
        };
        self.preparing.acquire(permits, PermitPriority::New, &self.node.namespace).await;
        let named = K::read(self, object, &mut references).await;
        references.watch(&self.node);
        let target = target?;
        self.moves(&target);
        Ok((target, named?))
    }

    /// Forgets the state of the applied objects if the object is now applied to another cluster or as another user.
    fn moves(&self, to: &Arc<ClusterTarget>) {
        let before = {
            let mut memory = self.memory.lock();
            memory.target.replace(to.clone())
        };
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, to)) {
            before.watcher().release_objects(&self.node);
            K::moved(&mut self.memory());
        }
    }

    /// The time until the next run of this object; see [`interval`].
    pub fn interval(&self, object: &K::Object, spec: &K::ValidatedSpec) -> Duration {
        interval(object, K::pace(spec), &self.context.settings)
    }

    /// Writes the status and the events of a finished run. Returns the time until the next run.
    ///
    /// # Errors
    /// The API server did not store the status.
    pub async fn finish(
        &self,
        ended: ApplierRunReport<K>,
        spec: Option<K::ValidatedSpec>,
    ) -> Result<Option<Duration>, ClusterError> {
        let now = jiff::Timestamp::now();
        let none = ReconcileIntervals {
            interval: AFTER_REFUSAL,
            retry: AFTER_REFUSAL,
            timeout: DEFAULT_REPETITION_TIME,
        };
        let pace = spec.as_ref().map_or(none, K::pace);
        let again = spec.map_or(AFTER_REFUSAL, |spec| self.interval(&ended.object, &spec));
        let outcome =
            ended.outcome.clone().or_wake(now.saturating_add(pace.retry).unwrap_or(Time::MAX));
        let end = ApplierRunEnd { outcome, began: self.began, now, interval: pace.interval };
        let ApplierReport { object, before, after, events } = K::report(self, ended, &end);
        // An operation that waits for the approval of its Plan has not begun.
        let is_under_way = matches!(&end.outcome, RunOutcome::Running(why, ..)
            if ![PLAN_PENDING, BUDGET_EXCEEDED].contains(why));
        let overrun = self.freeze.as_ref().filter(|_| is_under_way).and_then(ObjectFreeze::overrun);
        let after = hold_conditions::frozen(&*object, after, now, overrun.as_ref());
        self.latest.write_status(&self.context, &object, &before, &after).await?;
        for event in events {
            self.context.announce(&*object, event);
        }
        Ok(match &end.outcome {
            RunOutcome::Settled(..) => Some(K::next_look(&self.memory()).unwrap_or(again)),
            RunOutcome::Stalled(..) => None,
            RunOutcome::Running(_, _, wake)
            | RunOutcome::Blocked(_, _, wake)
            | RunOutcome::Failed(_, _, wake) => {
                let at = wake.earliest().unwrap_or(now);
                Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
            }
        })
    }
}
