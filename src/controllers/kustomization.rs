//! Kustomization: the manifests of an artifact, kept applied.
//!
//! Here: a run from its gate to its report. Elsewhere: what is wished (`build`, `wish`, `substitution`), where a run may
//! not go on (`pause`), looking and writing (`world`), deletion (`finalize`).

mod bases;
mod build;
mod finalize;
mod generated;
mod manifests;
mod pause;
mod report;
mod resolve;
mod retry;
mod substitution;
mod wish;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use apply::{Apply, Desired, FailedWait};
use crds::kustomize::Kustomization;
use crds::{Artifact, Reconciled as _};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::{Resource as _, ResourceExt as _};
use objects::ObjectId;
use reconcile::{
    Edge, Facts, Gate, Node, Rest, Retries, SHORTEST_INTERVAL, Time, after_resolve, before_resolve,
    reason,
};
use tree::Trace;

use self::build::Built;
use self::retry::Judged;
use self::substitution::Substitution;
use self::wish::{ALLOW_EMPTY, Timeouts, Wish};
use self::world::{Verify, Wishes, World};
use super::contest::Contests;
use super::context::Context;
use super::expressions::{Expressions, Kept};
use super::kept::Memories;
use super::kind::{Controlled, node_of};
use super::object_watcher::Ownership;
use super::record::Latest;
use super::reference::References;
use super::target::{Target, Wanted};
use super::{artifact, hold, marks, progress, window};
use crate::cluster::ClusterError;

/// Field manager of what Kustomizations apply.
const MANAGER: &str = <Kustomization as Controlled>::CONTROLLER;

/// The marks on the objects of a Kustomization.
pub(super) const OWNERSHIP: Ownership = Ownership {
    name: apply::meta::OWNER_NAME,
    namespace: apply::meta::OWNER_NAMESPACE,
    manager: MANAGER,
};

/// What a Kustomization remembers between runs.
#[derive(Default)]
pub(crate) struct Memory {
    latest: Arc<Latest<Kustomization>>,
    expressions: Kept,
    /// When every object is compared again, whatever is remembered about it.
    verify_at: Option<Instant>,
    /// When every object was last compared.
    verified: Option<Time>,
    /// The last build that was applied to its end.
    settled: Option<SettledBuild>,
    /// The last wish that was applied to its end; what differs from it is drift.
    applied: Option<Judged>,
    /// Objects of a build that were healthy while others were awaited, and the resourceVersions in which they were.
    healthy: Option<(Judged, BTreeMap<ObjectId, u64>)>,
    /// The wait that failed last, until it is repeated.
    failed_wait: Option<(Judged, FailedWait)>,
    /// Refusals in a row.
    retries: Retries,
    /// Objects that somebody else changes again and again.
    contests: Arc<Mutex<Contests>>,
    /// Where and as whom it was applied last.
    target: Option<Arc<Target>>,
    /// What is applied and waited for.
    waiting: Option<Waiting>,
}

/// A wait under way, which would otherwise be built anew for every run.
struct Waiting {
    generation: i64,
    /// Digest of the artifact.
    artifact: String,
    wish: Arc<Wish>,
    observed_at: Instant,
}

impl Memory {
    /// Somewhere else, or as somebody else, nothing that is remembered about objects holds.
    fn moved(&mut self, node: &Node, to: &Arc<Target>) {
        let before = self.target.replace(to.clone());
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, to)) {
            before.watcher().release_objects(node);
            (self.settled, self.verify_at, self.healthy) = (None, None, None);
            (self.waiting, self.failed_wait, self.applied) = (None, None, None);
            self.contests = Arc::default();
        }
    }
}

/// A build whose objects are applied and well.
struct SettledBuild {
    generation: i64,
    digest: String,
    trace: Trace,
    is_remote: bool,
    inputs: String,
    /// Whether the health of objects counts that are not among those applied, so that no watch of theirs tells of it.
    asks_others: bool,
}

impl Controlled for Kustomization {
    const CONTROLLER: &'static str = "kustomize-controller";
    const APPLIES: bool = true;
    const ANNOTATIONS: &'static [&'static str] = &[ALLOW_EMPTY];

    type Memory = Memory;

    fn announcement(&self) -> String {
        let generation = self.meta().generation.unwrap_or_default();
        let ready = self.condition("Ready").map_or("", |c| c.status.as_str());
        let revision = self.status.as_ref().and_then(|s| s.last_applied_revision.as_deref());
        let current = self.observed_generation() == Some(generation);
        format!("{ready} {current} {}", revision.unwrap_or_default())
    }

    fn run(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, Option<Duration>> {
        async move { run(self, context).await }.boxed()
    }

    fn forget(node: &Node, context: &Context) {
        let memory = context.shared::<Memories<Memory>>().of(node);
        let target = memory.lock().unwrap_or_else(PoisonError::into_inner).target.take();
        if let Some(target) = target {
            target.watcher().forget(node);
        }
        context.shared::<Memories<Memory>>().forget(node);
    }
}

/// Everything that one run needs at hand.
struct Session {
    context: Arc<Context>,
    node: Node,
    memory: Arc<Mutex<Memory>>,
    latest: Arc<Latest<Kustomization>>,
    expressions: Arc<Expressions>,
    began: Time,
}

/// How far a run came.
struct Ended {
    object: Arc<Kustomization>,
    rest: Rest,
    revision: String,
    /// The revision that the source names as its own origin; empty if it names none.
    origin_revision: String,
    digest: Option<String>,
    changes: Vec<(ObjectId, apply::Action)>,
    /// It was refused, and will be until something changes.
    is_permanent: bool,
}

impl Ended {
    fn early(object: &Arc<Kustomization>, revision: &str, rest: Rest) -> Self {
        Self {
            object: object.clone(),
            rest,
            revision: revision.to_owned(),
            origin_revision: String::new(),
            digest: None,
            changes: Vec::new(),
            is_permanent: false,
        }
    }
}

/// Shortest time between two observations of the same wait.
const PAUSE: Duration = Duration::from_millis(200);

/// How soon a run that the API server refused to record is repeated.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

async fn run(seen: Arc<Kustomization>, context: Arc<Context>) -> Option<Duration> {
    // After a start a source may only seem to be missing; an error means that the process ends.
    context.sources.listed().await?;
    let node = node_of(&*seen);
    let memory = context.shared::<Memories<Memory>>().of(&node);
    let (latest, kept) = {
        let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        (memory.latest.clone(), memory.expressions.clone())
    };
    let object = latest.or_seen(seen);
    let expressions = Arc::new(Expressions::new(&node.namespace, kept));
    let began = jiff::Timestamp::now();
    let session = Session { context, node, memory, latest, expressions, began };
    let outcome = if object.meta().deletion_timestamp.is_some() {
        session.delete(object).await
    } else {
        session.attempt(object).await
    };
    outcome.unwrap_or_else(|error| {
        let (name, namespace) = (&session.node.name, &session.node.namespace);
        tracing::error!(controller_kind = "Kustomization", name, namespace, error = %error,
            "request to the API server failed, retrying");
        Some(AFTER_REFUSAL)
    })
}

impl Session {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_future(&self, delay: Duration) -> Time {
        jiff::Timestamp::now().saturating_add(delay).unwrap_or(Time::MAX)
    }

    /// How long a wait that was just observed is not observed again: objects on their way move many times a second.
    fn pause(&self, object: &Kustomization) -> Option<Duration> {
        if hold::is_suspended(object, self.began) || self.verify(object) == Verify::Everything {
            return None;
        }
        let memory = self.memory();
        let waiting = memory.waiting.as_ref()?;
        let same = Some(waiting.generation) == object.meta().generation;
        PAUSE.checked_sub(waiting.observed_at.elapsed()).filter(|_| same)
    }

    async fn attempt(&self, object: Arc<Kustomization>) -> Result<Option<Duration>, ClusterError> {
        if let Some(pause) = self.pause(&object) {
            return Ok(Some(pause));
        }
        let lifted = hold::lift(&self.context, &self.latest, object, self.began).await?;
        let Some(object) = lifted else { return Ok(None) };
        resolve::edges(&self.context, &self.node, &object);
        let facts = self.facts(&object).await;
        match before_resolve(&facts) {
            Gate::Suspended => return self.rest_suspended(&object).await,
            Gate::Closed => return self.rest_closed(&object).await,
            Gate::Rest(rest) => return self.finish(Ended::early(&object, "", rest), None).await,
            Gate::Open => {}
        }
        let Some(object) = self.latest.set_finalizer(&self.context, &object, true).await? else {
            return Ok(None);
        };
        let timeouts = match wish::check(&object.spec) {
            Ok(timeouts) => timeouts,
            Err(rest) => return self.finish(Ended::early(&object, "", rest), None).await,
        };
        let spec = &object.spec;
        let read = self.expressions.read(object.meta(), &spec.health_check_exprs, &spec.depends_on);
        if let Err(rest) = read.await {
            return self.finish(Ended::early(&object, "", rest), None).await;
        }
        let ended = self.reconcile(&object, facts, timeouts).await;
        self.finish(ended, Some(timeouts)).await
    }

    async fn reconcile(
        &self,
        object: &Arc<Kustomization>,
        facts: Facts,
        timeouts: Timeouts,
    ) -> Ended {
        let requeue = self.context.settings.requeue_dependency;
        let artifact = match resolve::artifact(&self.context, object, self.in_future(requeue)) {
            Ok(artifact) => artifact,
            Err(rest) => return Ended::early(object, "", rest),
        };
        let ended = self.follow(object, facts, timeouts, &artifact).await;
        Ended { origin_revision: artifact::origin_revision(&artifact).to_owned(), ..ended }
    }

    /// The rest of a run, with the artifact of the source.
    async fn follow(
        &self,
        object: &Arc<Kustomization>,
        facts: Facts,
        timeouts: Timeouts,
        artifact: &Artifact,
    ) -> Ended {
        let requeue = self.context.settings.requeue_dependency;
        let revision = &artifact.revision;
        let dependencies =
            resolve::dependencies(&self.context, object, revision, &self.expressions).await;
        let facts = Facts { dependencies, ..facts };
        match after_resolve(&facts, self.in_future(requeue)) {
            // Suspension and windows were asked about before anything was resolved.
            Gate::Open | Gate::Suspended | Gate::Closed => {}
            Gate::Rest(rest) => return Ended::early(object, revision, rest),
        }
        let (target, substitution) = match self.named(object).await {
            Ok(named) => named,
            Err(rest) => return Ended::early(object, revision, rest),
        };
        self.end_failed_wait(object);
        let wish = match self.build(object, timeouts, artifact, &target, substitution).await {
            Ok(Built::Wish(wish)) => wish,
            Ok(Built::Unchanged(ended)) => return *ended,
            Err(rest) => return Ended::early(object, revision, rest),
        };
        self.apply(object, timeouts, artifact, &wish, &target).await
    }

    /// What the spec names: where and as whom it is applied, and the variables that are put in.
    async fn named(
        &self,
        object: &Kustomization,
    ) -> Result<(Arc<Target>, Option<Substitution>), Rest> {
        let (namespace, spec) = (object.namespace().unwrap_or_default(), &object.spec);
        let account = spec.service_account_name.as_deref();
        let wanted =
            Wanted::new(&self.context.settings, &namespace, spec.kube_config.as_ref(), account);
        // All of it is watched before any of it is missed.
        let mut references = References::new(&self.context.watcher);
        let target = self.context.targets.of(&wanted, &mut references).await;
        let substitution = Substitution::read(&self.context, object, &mut references).await;
        references.watch(&self.node);
        let target = target?;
        self.memory().moved(&self.node, &target);
        Ok((target, substitution?))
    }

    /// What has to be compared: more than what drifted when the interval or a moment came round, or somebody asked.
    fn verify(&self, object: &Kustomization) -> Verify {
        if marks::is_asked(object) {
            return Verify::Everything;
        }
        let (verify_at, verified) = {
            let memory = self.memory();
            (memory.verify_at, memory.verified)
        };
        let came_round = verify_at.is_none_or(|at| Instant::now() >= at)
            || verified
                .is_some_and(|since| window::schedule_time_passed(object, since, self.began));
        if came_round { Verify::Moved } else { Verify::Drifted }
    }

    async fn apply(
        &self,
        object: &Arc<Kustomization>,
        timeouts: Timeouts,
        artifact: &Artifact,
        wish: &Arc<Wish>,
        target: &Arc<Target>,
    ) -> Ended {
        let digest = &wish.digest;
        let verify = self.verify(object);
        let generation = object.meta().generation.unwrap_or_default();
        let revision = artifact.revision.clone();
        let judged = Judged { generation, digest: digest.clone(), revision };
        let (healthy, is_correction, contests) = {
            let mut memory = self.memory();
            memory.settled = None;
            let healthy = memory.healthy.take();
            let healthy = healthy.filter(|(of, _)| of.is_same_build(&judged));
            let healthy = healthy.filter(|_| verify == Verify::Drifted).map(|(_, ids)| ids);
            let is_correction = memory.applied.as_ref().is_some_and(|it| it.is_same_build(&judged))
                || report::was_applied(object, &judged.revision, digest);
            (healthy, is_correction, memory.contests.clone())
        };
        let wishes = Wishes {
            verify,
            force: object.spec.force,
            await_end: false,
            health_versions: wish.health_versions.iter().cloned().collect(),
            expressions: self.expressions.clone(),
            healthy: healthy.unwrap_or_default(),
            failed_wait: self.failed_wait(&judged),
            is_correction,
            contests,
            secrets: wish.secrets.clone(),
            ignore: wish.ignore.clone(),
            retry_at: self.in_future(timeouts.retry),
        };
        let (mut ended, healthy) = self.drive(object, wish.desired.clone(), wishes, target).await;
        self.remember_failure(object, &judged, &mut ended, (timeouts, verify));
        let mut memory = self.memory();
        memory.waiting = None;
        match &ended.rest {
            Rest::Settled(..) => {
                let (digest, trace) = (digest.clone(), wish.trace.clone());
                let (is_remote, inputs) = (wish.is_remote, wish.inputs.clone());
                let asks_others = wish.asks_others();
                let settled =
                    SettledBuild { generation, digest, trace, is_remote, inputs, asks_others };
                (memory.settled, memory.applied) = (Some(settled), Some(judged));
            }
            rest if matches!(rest, Rest::Running(..)) || memory.failed_wait.is_some() => {
                memory.healthy = Some((judged, healthy));
                let (artifact, wish) = (artifact.digest.clone(), wish.clone());
                let observed_at = Instant::now();
                memory.waiting = Some(Waiting { generation, artifact, wish, observed_at });
            }
            Rest::Failed(why, ..) if *why == reason::CONTESTED => memory.applied = Some(judged),
            Rest::Running(..) | Rest::Blocked(..) | Rest::Failed(..) | Rest::Stalled(..) => {}
        }
        if verify != Verify::Drifted && matches!(ended.rest, Rest::Settled(..) | Rest::Running(..))
        {
            memory.verify_at = Some(Instant::now() + self.interval(object, timeouts));
            memory.verified = Some(self.began);
        }
        Ended { digest: Some(digest.clone()), ..ended }
    }

    async fn drive(
        &self,
        object: &Arc<Kustomization>,
        desired: Arc<Desired>,
        wishes: Wishes,
        target: &Arc<Target>,
    ) -> (Ended, BTreeMap<ObjectId, u64>) {
        let permit = target.applying().run_permit(&self.node.namespace).await;
        let revision = desired.revision.clone();
        let (context, latest) = (self.context.clone(), self.latest.clone());
        let (target, node) = (target.clone(), self.node.clone());
        let watcher = target.watcher().clone();
        let world = World::new(
            context,
            (target, permit),
            node,
            latest,
            self.latest.begun(object),
            desired.clone(),
            wishes,
        );
        let world = match world {
            Ok(world) => world,
            Err(rest) => return (Ended::early(object, &revision, rest), BTreeMap::new()),
        };
        let (_, rest) = reconcile::drive::<Apply>(&desired, &world).await;
        let rest = world.sooner(rest);
        self.context.hub.set_edges(&self.node, Edge::Waits, world.missing());
        let awaited = match rest.wake() {
            Some(wake) => world.awaited(wake).await,
            None => Vec::new(),
        };
        watcher.await_objects(&self.node, &awaited);
        let ended = Ended {
            object: world.object(),
            rest,
            revision,
            origin_revision: String::new(),
            digest: None,
            changes: world.changes(),
            is_permanent: world.is_permanent(),
        };
        (ended, world.healthy())
    }

    /// Does the work of a phase, which is told of by Flux's words if it takes long and is about something new.
    async fn telling<T>(
        &self,
        object: &Arc<Kustomization>,
        phase: &str,
        revision: &str,
        timeouts: Timeouts,
        work: impl Future<Output = T>,
    ) -> T {
        if !report::is_new(object, revision) {
            return work.await;
        }
        let text = report::phase(phase, revision, timeouts.timeout);
        progress::telling(work, progress::tell(&self.context, &self.latest, object, &text)).await
    }

    fn interval(&self, object: &Kustomization, timeouts: Timeouts) -> Duration {
        let percent = self.context.settings.interval_jitter_percentage;
        let seed = reconcile::seed(&object.uid().unwrap_or_default());
        reconcile::jittered(timeouts.interval.max(SHORTEST_INTERVAL), percent, seed)
    }

    /// Says how the run ended, and when the next one is due.
    async fn finish(
        &self,
        ended: Ended,
        timeouts: Option<Timeouts>,
    ) -> Result<Option<Duration>, ClusterError> {
        let Ended { object, rest, revision, origin_revision, digest, changes, is_permanent: _ } =
            ended;
        // What was said of the run's phases is part of the status by now.
        let object = self.latest.begun(&object);
        let now = jiff::Timestamp::now();
        let (retry, interval) = match timeouts {
            Some(timeouts) => (timeouts.retry, self.interval(&object, timeouts)),
            None => (AFTER_REFUSAL, AFTER_REFUSAL),
        };
        let rest = rest.or_wake(now.saturating_add(retry).unwrap_or(Time::MAX));
        let run = report::Run {
            rest: &rest,
            revision: &revision,
            origin_revision: &origin_revision,
            digest: digest.as_deref(),
            changes: &changes,
            has_health: object.spec.wait || !object.spec.health_checks.is_empty(),
            began: self.began,
            now,
            interval: timeouts.map_or(interval, |timeouts| timeouts.interval),
        };
        let report = report::report(&object, &run);
        report.log(&object, &run);
        self.latest.write_status(&self.context, &object, &report.before, &report.after).await?;
        for event in report.events {
            self.context.cluster.announce(&*object, Kustomization::CONTROLLER, event);
        }
        let until_verification =
            self.memory().verify_at.map(|at| at.saturating_duration_since(Instant::now()));
        Ok(match &rest {
            Rest::Settled(..) => Some(until_verification.unwrap_or(interval)),
            Rest::Stalled(..) => None,
            Rest::Running(_, _, wake) | Rest::Blocked(_, _, wake) | Rest::Failed(_, _, wake) => {
                let at = wake.earliest().unwrap_or(now);
                Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
            }
        })
    }
}
