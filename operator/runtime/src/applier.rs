//! Appliers: what keeps objects in a cluster as something else says. Everything that their kinds have in common.
//!
//! Here: what a kind has to say about itself ([`ApplierKind`]), and the run that is the same for all of them: gate, edges,
//! target, memory, report. In the folder: an object that may not go on now (`paused_run`), how often a
//! wait is observed (`wait_observation`), a run of which the API server throttled a request (`throttled_run`), what has to stay until an object is gone (`needs`), an object that is deleted
//! (`finalize`).
//! Elsewhere: the kinds (crates of their own), decisions (engines `apply`, `release`).

pub mod finalize;
mod needs;
mod paused_run;
mod suspensions;
mod throttled_run;
mod wait_observation;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crds::{Applier, ReconciledObject};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::{Resource as _, ResourceExt as _};
use parking_lot::{Mutex, MutexGuard};
use reconcile::depends_on::ObjectDependency;
use reconcile::{
    DependencyEdge, DependencyState, FreezeHold, ObjectKey, ReleaseRollback, RunGate, RunGateFacts,
    RunOutcome, SHORTEST_INTERVAL, Time, after_resolve, before_resolve,
};

use needs::{dependency_nodes, needs};
use suspensions::SuspensionAuditRateLimit;
pub use wait_observation::WaitObservation;

use crate::cluster_target::{ClusterTarget, TargetSpec};
use crate::controller_kind::{ControllerKind, log_failed_request, node_of};
use crate::deletion_plan::BUDGET_EXCEEDED;
use crate::deletion_plan::result_plan::PLAN_PENDING;
use crate::dependency_lookup::{DependencyLookup, look_up, may_change_answers};
use crate::freeze::{self, ObjectFreeze};
use crate::object_status::LatestWrittenObject;
use crate::object_store::StateCache;
use crate::run_context::RunContext;
use crate::{
    change_window, deletion_plan, dependency_gate, hold_conditions, lifecycle, object_hold,
};
use windlass_cluster::ClusterError;
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};
use windlass_cluster::preparing_permit::PreparingPermit;
use windlass_cluster::resource_version::LATEST_VERSION;
use windlass_cluster::run_permits::PermitPriority;
use windlass_cluster::spec_references::ReadReferences;
use windlass_cluster::throttled_requests::{
    DEFAULT_REPETITION_TIME, ThrottledRequests, ThrottledRuns,
};
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_expressions::{ExpressionCache, RunExpressions};
use windlass_serve::settings::OperatorSettings;

/// What the run of an object needs from its kind, if the kind applies objects.
pub trait ApplierKind: Sized + 'static {
    /// The kind.
    type Object: WindlassKind + Applier;

    /// Annotations that change what runs of this kind alone do; a change of one makes the object run.
    const ANNOTATIONS: &'static [&'static str];

    /// The conditions that the kind sets beside `Ready`, `Reconciling` and `Stalled`; others in the status are kept.
    const OWNED: &'static [&'static str];

    /// The state of an object between runs that only this kind has. [`ApplierState`] has the state of every applier.
    type Own: Default + Send + 'static;
    /// The spec, read and checked.
    type ValidatedSpec: Clone + Send + Sync + 'static;
    /// The content of the objects that a spec names, except for the kubeconfig and the ServiceAccount.
    type SpecInputs: Send;
    /// The details of a run that this kind reports in addition to the outcome.
    type RunDetails: Default + Send;

    /// Whether a ready dependency must still apply `revision` before `object` may apply it; `None` if it need not.
    fn stale(
        _dependency: &Self::Object,
        _object: &Self::Object,
        _revision: &str,
    ) -> Option<DependencyState> {
        None
    }

    /// Fields that the object has and this version does not support.
    fn unsupported(_object: &Self::Object) -> Vec<&'static str> {
        Vec::new()
    }

    /// The source that the spec names.
    fn source(object: &Self::Object) -> Option<ObjectKey>;

    /// The same, or the source of that one if it is made for the object.
    fn named_source(object: &Self::Object) -> Option<ObjectKey> {
        Self::source(object)
    }

    /// Whether a run applied, or tried to apply, the artifact of a revision, according to the status.
    fn has_tried(object: &Self::Object, revision: &str) -> bool;

    /// The state that dependents read, as a string. A change of the string wakes the dependents.
    fn announcement(object: &Self::Object) -> String;

    /// Reads the spec and checks the fields that need neither a cluster nor the evaluation of an expression.
    fn validate(
        object: &Self::Object,
        settings: &OperatorSettings,
    ) -> Result<Self::ValidatedSpec, RunOutcome>;

    /// Interval and retry interval.
    fn pace(spec: &Self::ValidatedSpec) -> ReconcileIntervals;

    /// The last observation of the wait that is in progress; `None` if the next run must do more than observe this
    /// wait.
    fn observation(
        session: &ApplierSession<Self>,
        object: &Self::Object,
    ) -> Option<WaitObservation>;

    /// Whether the next run only continues a wait of the last one: it has little left to do, and others may wait for its end.
    fn continues_wait(_own: &Self::Own) -> bool {
        false
    }

    /// The object is now applied to another cluster or as another user: forgets what was remembered about applied
    /// objects.
    fn moved(own: &mut Self::Own);

    /// Whether an operation is in progress that must not be interrupted at its current step. A run calls this only
    /// while the object is suspended, its windows are closed or a Freeze holds it.
    fn is_under_way(
        _session: &ApplierSession<Self>,
        _object: &Arc<Self::Object>,
    ) -> impl Future<Output = Result<bool, ClusterError>> + Send {
        std::future::ready(Ok(false))
    }

    /// What a run would do if the windows were open and no Freeze held the object.
    fn pending(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
    ) -> impl Future<Output = PendingChanges> + Send;

    /// Continues the operation of a suspended object until a step at which it can be interrupted.
    fn stop(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
    ) -> impl Future<Output = Result<Option<Duration>, ClusterError>> + Send {
        session.finish_suspended(object)
    }

    /// The rollback that a user requested of the object and that waits or is done; none for a kind that has no rollbacks.
    fn rollback(_object: &Self::Object) -> Option<ReleaseRollback> {
        None
    }

    /// Where an object was when it was suspended.
    fn where_stopped(object: &Self::Object) -> String;

    /// Ends the waits of an object, because the object is suspended.
    fn waits_no_more(_own: &mut Self::Own) {}

    /// Reads what the spec names besides a cluster and an account.
    fn read(
        session: &ApplierSession<Self>,
        object: &Self::Object,
        references: &mut ReadReferences,
    ) -> impl Future<Output = Result<Self::SpecInputs, RunOutcome>> + Send;

    /// Whether a run has something to report besides its outcome, such as what it changed.
    fn has_more_to_report(_details: &Self::RunDetails) -> bool {
        false
    }

    /// Reconciles an object after the gate opened. `None` means that something changed meanwhile and that the next run
    /// must begin at once.
    fn reconcile(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
        facts: RunGateFacts,
        spec: Self::ValidatedSpec,
    ) -> impl Future<Output = Result<Option<ApplierRunReport<Self>>, ClusterError>> + Send;

    /// Removes the applied objects, because their owner is being deleted.
    fn finalize(
        session: &ApplierSession<Self>,
        object: &Arc<Self::Object>,
    ) -> impl Future<Output = Result<FinalizeOutcome<Self>, ClusterError>> + Send;

    /// The Secrets and ConfigMaps of its namespace that the spec names besides a kubeconfig, as kind and name.
    fn inputs(_object: &Self::Object) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Whether what was applied stays when the Secret with the kubeconfig of its cluster is gone.
    const STAYS_WITHOUT_KUBECONFIG: bool;

    /// The event for an object whose applied objects cannot be removed any more, because `subject` is gone.
    fn left_behind(object: &Self::Object, subject: &str) -> ObjectEvent;

    /// Status and events of the end of a run; log lines are written here.
    fn report(
        session: &ApplierSession<Self>,
        ended: ApplierRunReport<Self>,
        end: &ApplierRunEnd,
    ) -> ApplierReport<Self>;

    /// The time until the next check of an object that is as it should be; `None` stands for the interval.
    fn next_look(_own: &Self::Own) -> Option<Duration> {
        None
    }
}

/// How often a spec wants something done.
#[derive(Debug, Clone, Copy)]
pub struct ReconcileIntervals {
    /// The time from a run that ended without a failure to the next run.
    pub interval: Duration,
    /// The time from a failed run to the next run.
    pub retry: Duration,
    /// How long runs are repeated of which the API server throttles requests, before that counts as a failure.
    pub timeout: Duration,
}

/// What a run would do if the windows were open and no Freeze held the object.
pub enum PendingChanges {
    /// Nothing: the object is ready, of this spec and at this revision.
    Nothing,
    /// It would observe what was applied, which changes nothing.
    Observing,
    /// It would apply this.
    Change(String),
}

/// The result of a run.
pub struct ApplierRunReport<K: ApplierKind> {
    /// The object as the last write left it.
    pub object: Arc<K::Object>,
    /// How the run ended.
    pub outcome: RunOutcome,
    /// The details that the kind reports in addition.
    pub came: K::RunDetails,
    /// If set, the status is not written now, because the cause of the outcome will probably be gone after this time.
    /// The next run begins then.
    pub unsaid_for: Option<Duration>,
}

impl<K: ApplierKind> ApplierRunReport<K> {
    /// The report of a run that ended before it had anything but its outcome.
    pub fn early(object: &Arc<K::Object>, outcome: RunOutcome) -> Self {
        Self { object: object.clone(), outcome, came: K::RunDetails::default(), unsaid_for: None }
    }
}

/// The result of one attempt to finalize an object.
pub enum FinalizeOutcome<K: ApplierKind> {
    /// No applied object is left to remove, so the finalizer can be removed.
    Done(Arc<K::Object>),
    /// A later run continues the removal.
    Later(Box<ApplierRunReport<K>>, Option<K::ValidatedSpec>),
    /// Something changed meanwhile. The next run begins at once and decides again.
    Anew,
}

/// The end of a run, as it is reported.
pub struct ApplierRunEnd {
    /// The outcome, with the time of the next run.
    pub outcome: RunOutcome,
    /// When the run began.
    pub began: Time,
    /// When it ended.
    pub now: Time,
    /// `spec.interval`, as messages name it.
    pub interval: Duration,
}

/// The status to write and the events to announce.
pub struct ApplierReport<K: ApplierKind> {
    /// The object.
    pub object: Arc<K::Object>,
    /// Its status as it is in the cluster.
    pub before: <K::Object as ReconciledObject>::Status,
    /// Its status as it is to be.
    pub after: <K::Object as ReconciledObject>::Status,
    /// The events that are sent with the write.
    pub events: Vec<ObjectEvent>,
}

/// What an applier remembers between runs.
pub struct ApplierState<K: ApplierKind> {
    latest: Arc<LatestWrittenObject<K::Object>>,
    expressions: ExpressionCache,
    /// The cluster and the user with which it was applied last.
    target: Option<Arc<ClusterTarget>>,
    own: Arc<Mutex<K::Own>>,
    suspension_audits: SuspensionAuditRateLimit,
    throttled_runs: ThrottledRuns,
    /// The uid of the deleted object, if the removal of what it applied has begun: it waits for no dependents any more. Another
    /// object may have its name later.
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
            throttled_runs: ThrottledRuns::default(),
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

/// When a dependency is read again of which the API server did not say whether it is there.
const AFTER_UNKNOWN_DEPENDENCY: Duration = Duration::from_secs(10);

/// The time until a run is repeated whose result the API server refused to record.
pub const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// The object, the shared context and the state that one run uses.
pub struct ApplierSession<K: ApplierKind> {
    /// What every run may use.
    pub context: Arc<RunContext>,
    /// The object that is run.
    pub node: ObjectKey,
    /// The object as our last write left it.
    pub latest: Arc<LatestWrittenObject<K::Object>>,
    /// The expressions of its spec.
    pub expressions: Arc<RunExpressions>,
    /// The permit under which the run reads what the spec names, until it applies.
    pub preparing: PreparingPermit,
    /// Whether an API server throttled its requests.
    requests: ThrottledRequests,
    /// When the run began.
    pub began: Time,
    /// The Freezes that held the object when the run began. What comes later does not hold this run: it ends, also if it is this
    /// run that creates a Freeze.
    freeze: Option<ObjectFreeze>,
    memory: Arc<Mutex<ApplierState<K>>>,
    own: Arc<Mutex<K::Own>>,
}

/// The state that dependents read: whether the object is ready and why not, whether its status is of the newest spec, and
/// its revision.
pub fn announcement<O: WindlassKind + ReconciledObject>(
    object: &O,
    revision: Option<&str>,
) -> String {
    let generation = object.meta().generation.unwrap_or_default();
    let condition = object.condition("Ready");
    let ready = condition.map_or("", |it| it.status.as_str());
    let current = object.observed_generation() == Some(generation);
    // What waits for it says why it is not ready.
    let failure = condition.filter(|it| it.status == "False").map(|it| {
        let is_newest = it.observed_generation == Some(generation);
        format!("{} {is_newest}", it.reason)
    });
    let failure = failure.unwrap_or_default();
    format!("{ready} {current} {failure} {}", revision.unwrap_or_default())
}

/// Drops the watches and the memory of an object that is gone.
fn forget<K: ApplierKind>(node: &ObjectKey, context: &RunContext) {
    let memories = context.shared::<StateCache<ApplierState<K>>>();
    let memory = memories.of(node);
    let target = memory.lock().target.take();
    if let Some(target) = target {
        target.watcher().forget(node);
    }
    memories.forget(node);
}

/// One run; returns when to run again.
async fn run<K: ApplierKind>(seen: Arc<K::Object>, context: Arc<RunContext>) -> Option<Duration> {
    // After a start sources and dependencies may only seem to be missing; nothing means that the process ends.
    context.sources.listed().await?;
    context.kept.listed::<K::Object>().await.then_some(())?;
    context.shared::<NamespacePolicies>().known().await;
    lifecycle::known(&context).await;
    deletion_plan::known(&context).await;
    // A deletion waits for no Freeze, and for no Plan.
    if seen.meta().deletion_timestamp.is_none() {
        freeze::known(&context).await;
        Box::pin(deletion_plan::current(&context)).await;
    }
    let node = node_of(&*seen);
    let states = context.shared::<StateCache<ApplierState<K>>>();
    let preparing = PreparingPermit::default();
    // A deletion builds nothing. For another cluster, which may not respond, a run takes a permit of that one later (`named`).
    if seen.meta().deletion_timestamp.is_none() && seen.kube_config().is_none() {
        let continues = states.known(&node).is_some_and(|memory| {
            let own = memory.lock().own.clone();
            K::continues_wait(&own.lock())
        });
        let priority = if continues { PermitPriority::Resume } else { PermitPriority::New };
        let permits = context.targets.preparing_at_home();
        preparing.acquire(permits, priority, &node.namespace).await;
    }
    // The object may have changed or gone while the run waited for its turn, and a namesake has a memory of its own.
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
    let session = ApplierSession {
        context,
        node,
        latest,
        expressions,
        preparing,
        requests: ThrottledRequests::default(),
        began,
        freeze,
        memory,
        own,
    };
    // A run takes much memory for what it does next. On the heap, only those take it that have a permit.
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

/// The time until the next run of an object that is as it should be: its interval with its own jitter.
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
    /// What the object remembers between runs.
    pub fn memory(&self) -> MutexGuard<'_, K::Own> {
        self.own.lock()
    }

    /// The cluster and the user with which it was applied last.
    fn last_target(&self) -> Option<Arc<ClusterTarget>> {
        self.memory.lock().target.clone()
    }

    /// The time after a delay that begins now.
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
            // Something changed meanwhile: the next run decides anew.
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

    /// Tells the work queue on which objects this one depends, so that their changes wake it. Without `needed`, what it depends on
    /// among other kinds cannot be used.
    fn set_edges(&self, object: &K::Object, needed: Option<&[ObjectDependency]>) {
        let dependencies = dependency_nodes(&self.context, object, needed);
        self.context.work_queue.set_edges(&self.node, DependencyEdge::DependsOn, dependencies);
        let source = K::source(object).into_iter().collect();
        self.context.work_queue.set_edges(&self.node, DependencyEdge::Source, source);
        self.refer_to(BTreeSet::new());
    }

    /// Tells the work queue that the policy of the namespace wakes this object, what may end the Freezes that hold it, and these
    /// nodes do.
    fn refer_to(&self, mut nodes: BTreeSet<ObjectKey>) {
        nodes.insert(namespace_policies::node_of(&self.node.namespace));
        if self.freeze.is_some() {
            nodes.extend(ObjectFreeze::nodes(&self.node.namespace));
        }
        self.context.work_queue.set_edges(&self.node, DependencyEdge::Reference, nodes);
    }

    /// What holds an operation that would bring the object to `revision`; `None` if no Freeze does, or if a user let it begin
    /// all the same, which is recorded then. Without a revision, no user did: a correction of drift needs no operation.
    pub async fn frozen(
        &self,
        object: &K::Object,
        revision: Option<&str>,
    ) -> Option<Arc<FreezeHold>> {
        let freeze = self.freeze.as_ref()?;
        let Some(revision) = revision else { return Some(freeze.hold().clone()) };
        freeze.pass(&self.context, object, revision, self.began).await.err()
    }

    /// The outcome with which the dependencies end a run; `None` if the run may continue. The caller has already
    /// checked suspension and windows.
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

    /// Watches the dependencies of other kinds, and what they lack besides.
    fn await_dependencies(&self, looked_up: Vec<Option<DependencyLookup>>) {
        let mut nodes = BTreeSet::new();
        let mut references = Vec::new();
        let is_any = looked_up.iter().any(Option::is_some);
        for mut lookup in looked_up.into_iter().flatten() {
            nodes.append(&mut lookup.nodes);
            references.extend(lookup.reference);
        }
        // Two entries may name one object: the one that is not satisfied counts.
        references.sort_by_key(|it| it.version != Some(LATEST_VERSION));
        self.context.watcher.depend_on(&self.node, &references);
        if is_any {
            self.refer_to(nodes);
        }
    }

    /// The cluster and the user that a spec names.
    pub fn wanted<'a>(&'a self, object: &'a K::Object) -> TargetSpec<'a> {
        let kube_config = object.kube_config();
        let account = object.service_account_name();
        TargetSpec::new(&self.context.settings, &self.node.namespace, kube_config, account)
    }

    /// Whether only verified artifacts may be applied; true if the policy is not known.
    pub fn is_verified_only(&self) -> bool {
        let policies = self.context.shared::<NamespacePolicies>();
        policies.is_verified_only(&self.node.namespace).unwrap_or(true)
    }

    /// The cluster and the user with which the object is applied. No other object that the spec names is read.
    ///
    /// # Errors
    /// The outcome of a run that has no target.
    pub async fn target(&self, object: &K::Object) -> Result<Arc<ClusterTarget>, RunOutcome> {
        let mut references = ReadReferences::new(&self.context.watcher);
        let target = self.context.targets.of(&self.wanted(object), &mut references).await;
        references.watch(&self.node);
        target
    }

    /// Everything that the spec names: the cluster and the user with which the object is applied, and the inputs of the
    /// kind.
    ///
    /// # Errors
    /// The outcome of a run that lacks one of them.
    pub async fn named(
        &self,
        object: &K::Object,
    ) -> Result<(Arc<ClusterTarget>, K::SpecInputs), RunOutcome> {
        // All references are watched before a missing one ends the run.
        let mut references = ReadReferences::new(&self.context.watcher)
            .reading_anew(hold_conditions::is_asked(object));
        let wanted = self.wanted(object);
        if wanted.kube_config.is_some() {
            // A cluster that does not respond delays only the objects of that cluster.
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

    /// If the object is now applied to another cluster or as another user, forgets what was remembered about its
    /// applied objects.
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

    /// See [`interval`].
    pub fn interval(&self, object: &K::Object, spec: &K::ValidatedSpec) -> Duration {
        interval(object, K::pace(spec), &self.context.settings)
    }

    /// Writes the status and the events of a run that ended. Returns the time until the next run.
    ///
    /// # Errors
    /// The API server did not record it.
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
        // What waits for the approval of its Plan has not begun.
        let is_under_way = matches!(&end.outcome, RunOutcome::Running(why, ..)
            if ![PLAN_PENDING, BUDGET_EXCEEDED].contains(why));
        let overrun = self.freeze.as_ref().filter(|_| is_under_way).and_then(ObjectFreeze::overrun);
        let after = hold_conditions::frozen(&*object, after, now, overrun.as_ref());
        self.latest.write_status(&self.context, &object, &before, &after).await?;
        for event in events {
            self.context.events.announce(&*object, K::Object::CONTROLLER, event);
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
