//! Appliers: what keeps objects in a cluster as something else says. Everything that their kinds have in common.
//!
//! Here: what a kind has to say about itself ([`ApplierKind`]), and the run that is the same for all of them: gate, edges,
//! target, memory, report. In the folder: an object that may not go on now (`pause`), how often a
//! wait is observed (`observation`), an object that is deleted (`finalize`).
//! Elsewhere: the kinds (a folder each beside this one), decisions (engines `apply`, `release`).

pub(crate) mod finalize;
mod observation;
mod pause;
mod suspensions;

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::ResourceExt as _;
use parking_lot::{Mutex, MutexGuard};
use reconcile::depends_on::ObjectDependency;
use reconcile::{
    DependencyState, Edge, Facts, Gate, ObjectKey, Outcome, Rollback, SHORTEST_INTERVAL, Time,
    after_resolve, before_resolve,
};

pub(crate) use observation::Observation;
use suspensions::AuditSpacing;

use windlass_cluster::ClusterError;
use windlass_cluster::events::Event;
use windlass_cluster::kind::OurKind;
use windlass_runtime::context::Context;
use windlass_runtime::dependencies::depends_on;
use windlass_runtime::expressions::{ExpressionCache, Expressions};
use windlass_runtime::kind::{ControllerKind, log_failed_request, node_named, node_of};
use windlass_runtime::namespaces::{self, Namespaces};
use windlass_runtime::object_store::StateCache;
use windlass_runtime::record::Latest;
use windlass_runtime::reference::References;
use windlass_runtime::target::{ClusterTarget, TargetSpec};
use windlass_runtime::{gate, hold, hold_conditions, lifecycle, window};
use windlass_serve::settings::Settings;

/// A kind that applies objects, as the run needs it.
pub(crate) trait ApplierKind: OurKind + crds::Applier {
    /// Annotations that change what runs of this kind alone do; a change of one makes the object run.
    const ANNOTATIONS: &'static [&'static str];

    /// The conditions that the kind sets beside `Ready`, `Reconciling` and `Stalled`; others in the status are kept.
    const OWNED: &'static [&'static str];

    /// What an object remembers between runs besides what all appliers do.
    type Own: Default + Send + 'static;
    /// The durations of a spec, checked.
    type Timeouts: Copy + Send + Sync + 'static;
    /// What a spec names besides a cluster and an account, as it was read.
    type SpecInputs: Send;
    /// What a run has besides its outcome.
    type RunDetails: Default + Send;

    /// Why a dependency that is ready does not suffice yet for an object that is about to apply a revision.
    fn stale(_dependency: &Self, _object: &Self, _revision: &str) -> Option<DependencyState> {
        None
    }

    /// Fields that the object has and this version does not support.
    fn unsupported(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The source that the spec names.
    fn source(&self) -> Option<ObjectKey>;

    /// Whether the status says that the artifact of a revision was applied, or that it was tried.
    fn has_tried(&self, revision: &str) -> bool;

    /// What others depend on: while it stays the same, none of them is woken.
    fn announcement(&self) -> String;

    /// Checks what can be checked without a cluster and expressions.
    fn check(&self) -> Result<Self::Timeouts, Outcome>;

    /// Interval and retry interval.
    fn pace(timeouts: &Self::Timeouts) -> Pace;

    /// When the wait that goes on was last observed; nothing if a run has more to do than observe it.
    fn observation(session: &Session<Self>, object: &Self) -> Option<Observation>;

    /// The object is now applied to another cluster or as another user: forgets what was remembered about applied
    /// objects.
    fn moved(own: &mut Self::Own);

    /// Whether an operation is under way that must not stop where it is. Asked only while the object may not go on.
    fn is_under_way(
        _session: &Session<Self>,
        _object: &Arc<Self>,
    ) -> impl Future<Output = Result<bool, ClusterError>> + Send {
        std::future::ready(Ok(false))
    }

    /// What a run would do if no window stood in its way.
    fn pending(session: &Session<Self>, object: &Arc<Self>)
    -> impl Future<Output = Pending> + Send;

    /// Lets an operation that is under way reach the next place at which nothing is half done, because the object was
    /// suspended.
    fn stop(
        session: &Session<Self>,
        object: &Arc<Self>,
    ) -> impl Future<Output = Result<Option<Duration>, ClusterError>> + Send {
        session.finish_suspended(object)
    }

    /// The rollback that a user requested of the object and that waits or is done; none for a kind that has no rollbacks.
    fn rollback(&self) -> Option<Rollback> {
        None
    }

    /// Where an object was when it was suspended.
    fn where_stopped(&self) -> String;

    /// A suspended object waits for nothing.
    fn waits_no_more(_own: &mut Self::Own) {}

    /// Reads what the spec names besides a cluster and an account.
    fn read(
        session: &Session<Self>,
        object: &Self,
        references: &mut References,
    ) -> impl Future<Output = Result<Self::SpecInputs, Outcome>> + Send;

    /// A run behind the gate; nothing where the spec changed meanwhile.
    fn reconcile(
        session: &Session<Self>,
        object: &Arc<Self>,
        facts: Facts,
        timeouts: Self::Timeouts,
    ) -> impl Future<Output = Result<Option<RunReport<Self>>, ClusterError>> + Send;

    /// The object goes: so does what it applied. `None` once nothing is left of it.
    fn finalize(
        session: &Session<Self>,
        object: &Arc<Self>,
    ) -> impl Future<Output = Result<FinalizeOutcome<Self>, ClusterError>> + Send;

    /// Whether what was applied stays when the Secret with the kubeconfig of its cluster is gone.
    const STAYS_WITHOUT_KUBECONFIG: bool;

    /// The event for an object whose applied objects cannot be removed any more, because `subject` is gone.
    fn left_behind(&self, subject: &str) -> Event;

    /// Status and events of the end of a run; log lines are written here.
    fn report(session: &Session<Self>, ended: RunReport<Self>, end: &End) -> Report<Self>;

    /// How soon an object that is as it should be is observed again, where not after the interval.
    fn next_look(_own: &Self::Own) -> Option<Duration> {
        None
    }
}

/// How often a spec wants something done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    pub(crate) retry: Duration,
}

/// What a run would do if no window stood in its way.
pub(crate) enum Pending {
    /// Nothing: the object is ready, of this spec and at this revision.
    Nothing,
    /// It would observe what was applied, which changes nothing.
    Observing,
    /// It would apply this.
    Change(String),
}

/// How far a run came.
pub(crate) struct RunReport<K: ApplierKind> {
    pub(crate) object: Arc<K>,
    pub(crate) outcome: Outcome,
    pub(crate) came: K::RunDetails,
    /// How long the status does not report the outcome, since it will mostly be over by then.
    pub(crate) unsaid_for: Option<Duration>,
}

impl<K: ApplierKind> RunReport<K> {
    /// A run that has nothing but its outcome.
    pub(crate) fn early(object: &Arc<K>, outcome: Outcome) -> Self {
        Self { object: object.clone(), outcome, came: K::RunDetails::default(), unsaid_for: None }
    }
}

/// How far the removal of an object came.
pub(crate) enum FinalizeOutcome<K: ApplierKind> {
    /// Nothing is left that is ours: the finalizer goes.
    Done(Arc<K>),
    /// It goes on later.
    Later(Box<RunReport<K>>, Option<K::Timeouts>),
    /// Something changed meanwhile: the next run decides anew, at once.
    Anew,
}

/// The end of a run, as it is reported.
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    pub(crate) began: Time,
    pub(crate) now: Time,
    /// `spec.interval`, as messages name it.
    pub(crate) interval: Duration,
}

/// The status to write and the events to announce.
pub(crate) struct Report<K: ApplierKind> {
    pub(crate) object: Arc<K>,
    pub(crate) before: K::Status,
    pub(crate) after: K::Status,
    pub(crate) events: Vec<Event>,
}

/// What an applier remembers between runs.
pub(crate) struct ApplierState<K: ApplierKind> {
    latest: Arc<Latest<K>>,
    expressions: ExpressionCache,
    /// The cluster and the user with which it was applied last.
    target: Option<Arc<ClusterTarget>>,
    own: Arc<Mutex<K::Own>>,
    suspension_audits: AuditSpacing,
}

impl<K: ApplierKind> Default for ApplierState<K> {
    fn default() -> Self {
        Self {
            latest: Arc::default(),
            expressions: ExpressionCache::default(),
            target: None,
            own: Arc::default(),
            suspension_audits: AuditSpacing::default(),
        }
    }
}

/// Runs the objects of a kind that applies others.
pub(crate) struct ApplierController<K>(PhantomData<K>);

impl<K: ApplierKind> ControllerKind for ApplierController<K> {
    type Object = K;

    const ANNOTATIONS: &'static [&'static str] = K::ANNOTATIONS;

    type ControllerState = ApplierState<K>;

    fn unsupported(object: &K) -> Vec<&'static str> {
        object.unsupported()
    }

    fn source(object: &K) -> Option<ObjectKey> {
        object.source()
    }

    fn has_tried(object: &K, revision: &str) -> bool {
        object.has_tried(revision)
    }

    fn announcement(object: &K) -> String {
        object.announcement()
    }

    fn run(object: Arc<K>, context: Arc<Context>) -> BoxFuture<'static, Option<Duration>> {
        run(object, context).boxed()
    }

    fn forget(node: &ObjectKey, context: &Context) {
        forget::<K>(node, context);
    }
}

/// How soon a run that the API server refused to record is repeated.
pub(crate) const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// Everything that one run needs at hand.
pub(crate) struct Session<K: ApplierKind> {
    pub(crate) context: Arc<Context>,
    pub(crate) node: ObjectKey,
    pub(crate) latest: Arc<Latest<K>>,
    pub(crate) expressions: Arc<Expressions>,
    pub(crate) began: Time,
    memory: Arc<Mutex<ApplierState<K>>>,
    own: Arc<Mutex<K::Own>>,
}

/// What others depend on: whether the object is ready, of its newest spec, and at which revision.
pub(crate) fn announcement<K: ApplierKind>(object: &K, revision: Option<&str>) -> String {
    let generation = object.meta().generation.unwrap_or_default();
    let ready = object.condition("Ready").map_or("", |it| it.status.as_str());
    let current = object.observed_generation() == Some(generation);
    format!("{ready} {current} {}", revision.unwrap_or_default())
}

/// Drops the watches and the memory of an object that is gone.
fn forget<K: ApplierKind>(node: &ObjectKey, context: &Context) {
    let memories = context.shared::<StateCache<ApplierState<K>>>();
    let memory = memories.of(node);
    let target = memory.lock().target.take();
    if let Some(target) = target {
        target.watcher().forget(node);
    }
    memories.forget(node);
}

/// One run; returns when to run again.
async fn run<K: ApplierKind>(seen: Arc<K>, context: Arc<Context>) -> Option<Duration> {
    // After a start sources and dependencies may only seem to be missing; nothing means that the process ends.
    context.sources.listed().await?;
    context.kept.listed::<K>().await.then_some(())?;
    context.shared::<Namespaces>().known().await;
    lifecycle::known(&context).await;
    let node = node_of(&*seen);
    let memory = context.shared::<StateCache<ApplierState<K>>>().of(&node);
    let (latest, kept, own) = {
        let memory = memory.lock();
        (memory.latest.clone(), memory.expressions.clone(), memory.own.clone())
    };
    let object = latest.or_seen(seen);
    let expressions = Arc::new(Expressions::new(&node.namespace, kept));
    let began = jiff::Timestamp::now();
    let session = Session { context, node, latest, expressions, began, memory, own };
    let outcome = match object.meta().deletion_timestamp {
        Some(_) => session.delete(object).await,
        None => session.attempt(object).await,
    };
    let again = outcome.unwrap_or_else(|error| {
        log_failed_request(&session.node, &error);
        Some(AFTER_REFUSAL)
    });
    again.into_iter().chain(session.suspension_audit_due_in()).min()
}

/// When an object that is as it should be is observed again: after its interval, with its own jitter.
pub(crate) fn interval<K: ApplierKind>(object: &K, pace: Pace, settings: &Settings) -> Duration {
    let seed = reconcile::seed(&object.uid().unwrap_or_default());
    let interval = pace.interval.max(SHORTEST_INTERVAL);
    reconcile::jittered(interval, settings.interval_jitter_percentage, seed)
}

impl<K: ApplierKind> Session<K> {
    /// What the object remembers between runs.
    pub(crate) fn memory(&self) -> MutexGuard<'_, K::Own> {
        self.own.lock()
    }

    /// The cluster and the user with which it was applied last.
    fn last_target(&self) -> Option<Arc<ClusterTarget>> {
        self.memory.lock().target.clone()
    }

    pub(crate) fn in_future(&self, delay: Duration) -> Time {
        jiff::Timestamp::now().saturating_add(delay).unwrap_or(Time::MAX)
    }

    async fn attempt(&self, object: Arc<K>) -> Result<Option<Duration>, ClusterError> {
        if let Some(pause) = self.pause(&object) {
            return Ok(Some(pause));
        }
        let is_expired = hold::of(&*object).is_some_and(|hold| hold.is_expired(self.began));
        let lifted = hold::lift(&self.context, &self.latest, object, self.began).await?;
        let Some(object) = lifted else { return Ok(None) };
        self.audit_suspension(&object, is_expired).await;
        let is_blocked = self.context.settings.no_cross_namespace_refs;
        let needed = self.context.dependencies.named_by(&*object, is_blocked);
        self.set_edges(&object, needed.as_deref().unwrap_or_default());
        let is_under_way = self.is_shut(&object) && K::is_under_way(self, &object).await?;
        let facts = self.facts(&object, is_under_way).await;
        match before_resolve(&facts) {
            Gate::Suspended if is_under_way => return K::stop(self, &object).await,
            Gate::Suspended => return self.finish_suspended(&object).await,
            Gate::Closed => return self.finish_closed(&object).await,
            Gate::Outcome(outcome) => {
                return self.finish(RunReport::early(&object, outcome), None).await;
            }
            Gate::Open => {}
        }
        let Some(object) = self.latest.set_finalizer(&self.context, &object, true).await? else {
            return Ok(None);
        };
        if let Err(outcome) = needed {
            return self.finish(RunReport::early(&object, outcome), None).await;
        }
        let timeouts = match object.check() {
            Ok(timeouts) => timeouts,
            Err(outcome) => return self.finish(RunReport::early(&object, outcome), None).await,
        };
        let health = object.health_check_exprs();
        let depends_on = object.depends_on();
        if let Err(outcome) = self.expressions.read(object.meta(), health, depends_on).await {
            return self.finish(RunReport::early(&object, outcome), None).await;
        }
        match K::reconcile(self, &object, facts, timeouts).await? {
            // Something changed meanwhile: the next run decides anew.
            None => Ok(Some(Duration::ZERO)),
            Some(RunReport { unsaid_for: Some(time), .. }) => Ok(Some(time)),
            Some(ended) => self.finish(ended, Some(timeouts)).await,
        }
    }

    /// Tells the work queue on which objects this one depends, so that their changes wake it.
    fn set_edges(&self, object: &K, needed: &[ObjectDependency]) {
        let mut dependencies: BTreeSet<ObjectKey> = depends_on(object)
            .iter()
            .map(|dependency| {
                let (namespace, name) = gate::named(dependency, &self.node.namespace);
                node_named::<K>(namespace, name)
            })
            .collect();
        dependencies.extend(needed.iter().flat_map(|it| self.context.dependencies.nodes(it)));
        self.context.work_queue.set_edges(&self.node, Edge::DependsOn, dependencies);
        let source = object.source().into_iter().collect();
        self.context.work_queue.set_edges(&self.node, Edge::Source, source);
        let namespace = namespaces::node_of(&self.node.namespace);
        self.context.work_queue.set_edges(&self.node, Edge::Reference, BTreeSet::from([namespace]));
    }

    /// What the gate says once dependencies are known; nothing if it is open. Suspension and windows were asked about
    /// before anything was resolved.
    pub(crate) async fn gate(
        &self,
        object: &Arc<K>,
        facts: Facts,
        revision: &str,
    ) -> Option<Outcome> {
        let context = &self.context;
        let store = &self.context.store::<K>();
        let stale = |other: &K| K::stale(other, object, revision);
        let dependencies =
            gate::named_by(context, store, object, object.depends_on(), &self.expressions, stale);
        let mut dependencies = dependencies.await;
        let is_blocked = context.settings.no_cross_namespace_refs;
        let needed = match context.dependencies.named_by(&**object, is_blocked) {
            Ok(needed) => needed,
            Err(outcome) => return Some(outcome),
        };
        dependencies.extend(needed.iter().map(|it| context.dependencies.state(it)));
        let facts = Facts { dependencies, suspended: false, ..facts };
        match after_resolve(&facts, self.in_future(context.settings.requeue_dependency)) {
            Gate::Outcome(outcome) => Some(outcome),
            Gate::Open | Gate::Suspended | Gate::Closed => None,
        }
    }

    /// The cluster and the user that a spec names.
    pub(crate) fn wanted<'a>(&'a self, object: &'a K) -> TargetSpec<'a> {
        let kube_config = object.kube_config();
        let account = object.service_account_name();
        TargetSpec::new(&self.context.settings, &self.node.namespace, kube_config, account)
    }

    /// Whether only verified artifacts may be applied; true if the policy is not known.
    pub(crate) fn is_verified_only(&self) -> bool {
        let policies = self.context.shared::<Namespaces>();
        policies.is_verified_only(&self.node.namespace).unwrap_or(true)
    }

    /// The cluster and the user with which it is applied; reads nothing else that the spec names.
    pub(crate) async fn target(&self, object: &K) -> Result<Arc<ClusterTarget>, Outcome> {
        let mut references = References::new(&self.context.watcher);
        let target = self.context.targets.of(&self.wanted(object), &mut references).await;
        references.watch(&self.node);
        target
    }

    /// What the spec names: the cluster and the user with which it is applied, and what the kind reads besides.
    pub(crate) async fn named(
        &self,
        object: &K,
    ) -> Result<(Arc<ClusterTarget>, K::SpecInputs), Outcome> {
        // All references are watched before a missing one ends the run.
        let mut references = References::new(&self.context.watcher);
        let target = self.context.targets.of(&self.wanted(object), &mut references).await;
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
    pub(crate) fn interval(&self, object: &K, timeouts: &K::Timeouts) -> Duration {
        interval(object, K::pace(timeouts), &self.context.settings)
    }

    /// Says how the run ended, and when the next one is due.
    pub(crate) async fn finish(
        &self,
        ended: RunReport<K>,
        timeouts: Option<K::Timeouts>,
    ) -> Result<Option<Duration>, ClusterError> {
        let now = jiff::Timestamp::now();
        let none = Pace { interval: AFTER_REFUSAL, retry: AFTER_REFUSAL };
        let pace = timeouts.as_ref().map_or(none, K::pace);
        let again =
            timeouts.map_or(AFTER_REFUSAL, |timeouts| self.interval(&ended.object, &timeouts));
        let outcome =
            ended.outcome.clone().or_wake(now.saturating_add(pace.retry).unwrap_or(Time::MAX));
        let end = End { outcome, began: self.began, now, interval: pace.interval };
        let Report { object, before, after, events } = K::report(self, ended, &end);
        self.latest.write_status(&self.context, &object, &before, &after).await?;
        for event in events {
            self.context.events.announce(&*object, K::CONTROLLER, event);
        }
        Ok(match &end.outcome {
            Outcome::Settled(..) => Some(K::next_look(&self.memory()).unwrap_or(again)),
            Outcome::Stalled(..) => None,
            Outcome::Running(_, _, wake)
            | Outcome::Blocked(_, _, wake)
            | Outcome::Failed(_, _, wake) => {
                let at = wake.earliest().unwrap_or(now);
                Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
            }
        })
    }
}
