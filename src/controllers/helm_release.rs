//! HelmRelease: a chart with values, kept released as Helm releases it.
//!
//! Here: a run from its gate to its report. Elsewhere: what is wished (`wish`, `action_options`, `values`, `postrender`), the chart
//! (`chart`, `template`), looking and doing (`world` and the files that it names), deletion (`finalize`), what comes
//! next (engine `release`).

mod action_options;
mod chart;
mod culprit;
mod drift;
mod finalize;
mod hook_watch;
mod hooks;
mod legacy;
mod members;
mod merge;
mod observe;
mod pause;
mod postrender;
mod prepare;
mod report;
mod status;
mod storage;
mod template;
mod values;
mod wish;
mod world;
mod write;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use apply::ignore::Rules;
use crds::Reconciled as _;
use crds::helm::HelmRelease;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use golang::value::Map;
use kube::core::{Resource as _, ResourceExt as _};
use objects::{Masking, ObjectId};
use reconcile::{
    Edge, Facts, Gate, Node, Rest, Time, Wake, WindowState, after_resolve, before_resolve,
};
use release::operation::{Health, HookObject, Live};
use release::settings::DriftMode;
use release::{Desired, Release};

use self::action_options::ActionOptions;
use self::chart::Loaded;
use self::hook_watch::HookWatch;
use self::postrender::PostRenderers;
use self::storage::Storage;
use self::wish::{Parts, Timeouts};
use self::world::{Held, World};
use super::context::Context;
use super::expressions::{Expressions, Kept};
use super::kept::Memories;
use super::kind::{Controlled, REQUESTED_AT, node_named, node_of};
use super::object_watcher::Ownership;
use super::record::Latest;
use super::reference::References;
use super::target::{Target, Wanted};
use super::{gate, hold, window};
use crate::cluster::ClusterError;

/// Field manager of what HelmReleases apply.
const MANAGER: &str = <HelmRelease as Controlled>::CONTROLLER;

/// The marks on the objects of a release.
pub(super) const OWNERSHIP: Ownership = Ownership {
    name: "helm.toolkit.fluxcd.io/name",
    namespace: "helm.toolkit.fluxcd.io/namespace",
    manager: MANAGER,
};

/// What a HelmRelease remembers between runs.
#[derive(Default)]
pub(crate) struct Memory {
    latest: Arc<Latest<HelmRelease>>,
    expressions: Kept,
    /// Where and as whom it was released last.
    target: Option<Arc<Target>>,
    /// What the last run saw of the objects that it waits for.
    wait: Option<Wait>,
    /// What names the chart that was released last.
    source: Option<String>,
    /// Follows the hook that is due.
    hook_watch: Option<Arc<HookWatch>>,
    /// Whether an operation is under way, as far as this process knows.
    under_way: Option<bool>,
    /// Since when its own HelmChart is on its way.
    chart_since: Option<Instant>,
}

/// What a run that waits leaves to the next one.
struct Wait {
    /// What was wished for; for anything else nothing of it holds.
    wished: String,
    generation: Option<i64>,
    looked_at: Instant,
    /// The requests that it has seen.
    asked: Vec<Option<String>>,
    /// Objects that were ready while others were awaited.
    healthy: BTreeSet<ObjectId>,
    records: Option<Arc<Storage>>,
}

impl Wait {
    /// Whether it knows the spec and whatever is asked for: a request causes one run, and the wait goes on after that.
    fn has_seen(&self, object: &HelmRelease) -> bool {
        self.generation == object.meta().generation && self.asked == asked(object)
    }
}

/// What a run wishes for.
struct Wish {
    desired: Desired,
    options: ActionOptions,
    values: Map,
    /// None where a release goes.
    chart: Option<Arc<Loaded>>,
    post: Arc<PostRenderers>,
    /// Expressions that judge objects in place of the usual rules.
    expressions: Arc<Expressions>,
    ignore: Rules,
    /// What came from Secrets and must not be told.
    secrets: Masking,
}

impl Wish {
    /// Whether objects are watched for drift.
    fn is_observed(&self) -> bool {
        self.desired.drift != DriftMode::Disabled && !self.desired.deleted
    }

    /// A text without what came from Secrets.
    fn masked(&self, text: &str) -> String {
        self.secrets.mask(text)
    }

    /// What was seen without what came from Secrets: statuses and events of objects may quote their fields.
    fn masked_live(&self, mut live: Live) -> Live {
        let hook = match &mut live.hook {
            Some(HookObject::Ours { health, .. }) => Some(health),
            _ => None,
        };
        for health in hook.into_iter().chain(&mut live.objects) {
            match health {
                Health::Done => {}
                Health::Failed(text) => *text = self.masked(text),
                Health::Pending(strings) => {
                    strings.iter_mut().for_each(|text| *text = self.masked(text));
                }
            }
        }
        live
    }
}

impl Controlled for HelmRelease {
    const CONTROLLER: &'static str = "helm-controller";
    const APPLIES: bool = true;
    const ANNOTATIONS: &'static [&'static str] = &[wish::FORCE_AT, wish::RESET_AT];

    type Memory = Memory;

    fn announcement(&self) -> String {
        let generation = self.meta().generation.unwrap_or_default();
        let ready = self.condition("Ready").map_or("", |it| it.status.as_str());
        let revision = self.status.as_ref().and_then(|it| it.last_attempted_revision.as_deref());
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
    latest: Arc<Latest<HelmRelease>>,
    expressions: Arc<Expressions>,
    began: Time,
}

/// How far a run came.
struct Ended {
    object: Arc<HelmRelease>,
    rest: Rest,
    wish: Option<Arc<Wish>>,
    helm_chart: Option<String>,
    /// What has to be written besides.
    held: Option<Held>,
    /// What the operation does that is under way.
    running: Option<String>,
    /// For how long nothing is said of it, since it will mostly be over by then.
    unsaid_for: Option<Duration>,
}

impl Ended {
    fn early(object: &Arc<HelmRelease>, rest: Rest) -> Self {
        let object = object.clone();
        let (wish, helm_chart, held, running) = (None, None, None, None);
        Self { object, rest, wish, helm_chart, held, running, unsaid_for: None }
    }
}

/// How long the HelmChart of a template may take to be reconciled before the status reports it as pending. A new version
/// takes less, and the status of each of hundreds of releases would be written twice.
const CHART_PATIENCE: Duration = Duration::from_secs(5);

/// Shortest time between two observations of the same wait.
const PAUSE: Duration = Duration::from_millis(200);

/// How soon a run that the API server refused to record is repeated.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

async fn run(seen: Arc<HelmRelease>, context: Arc<Context>) -> Option<Duration> {
    // After a start a source may only seem to be missing; an error means that the process ends.
    context.sources.listed().await?;
    context.store::<HelmRelease>().wait_until_ready().await.ok()?;
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
    let outcome = match object.meta().deletion_timestamp {
        Some(_) => session.delete(object).await,
        None => session.attempt(object).await,
    };
    outcome.unwrap_or_else(|error| {
        let (name, namespace) = (&session.node.name, &session.node.namespace);
        tracing::error!(controller_kind = "HelmRelease", name, namespace, error = %error,
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
    fn pause(&self, object: &HelmRelease) -> Option<Duration> {
        if hold::is_suspended(object, self.began) {
            return None;
        }
        let memory = self.memory();
        let wait = memory.wait.as_ref().filter(|it| it.has_seen(object))?;
        PAUSE.checked_sub(wait.looked_at.elapsed())
    }

    async fn attempt(&self, object: Arc<HelmRelease>) -> Result<Option<Duration>, ClusterError> {
        if let Some(pause) = self.pause(&object) {
            return Ok(Some(pause));
        }
        let lifted = hold::lift(&self.context, &self.latest, object, self.began).await?;
        let Some(object) = lifted else { return Ok(None) };
        self.edges(&object);
        let is_shut = hold::is_suspended(&*object, self.began)
            || matches!(window::state(&*object, self.began), Some(WindowState::Closed { .. }));
        let is_under_way = is_shut && self.is_under_way(&object).await?;
        let facts = self.facts(&object, is_under_way);
        match before_resolve(&facts) {
            Gate::Suspended if is_under_way => return self.stop(&object).await,
            Gate::Suspended => return self.rest_suspended(&object).await,
            Gate::Closed => return self.rest_closed(&object).await,
            Gate::Rest(rest) => return self.finish(Ended::early(&object, rest), None).await,
            Gate::Open => {}
        }
        let Some(object) = self.latest.set_finalizer(&self.context, &object, true).await? else {
            return Ok(None);
        };
        let timeouts = match status::check(&object).and_then(|()| wish::check(&object.spec)) {
            Ok(timeouts) => timeouts,
            Err(rest) => return self.finish(Ended::early(&object, rest), None).await,
        };
        let spec = &object.spec;
        let read = self.expressions.read(object.meta(), &spec.health_check_exprs, &spec.depends_on);
        if let Err(rest) = read.await {
            return self.finish(Ended::early(&object, rest), None).await;
        }
        let ended = self.reconcile(&object, facts, timeouts).await?;
        let Some(ended) = ended.and_then(|ended| self.outside(ended)) else {
            // Something changed meanwhile: the next run decides anew.
            return Ok(Some(Duration::ZERO));
        };
        if let Some(time) = ended.unsaid_for {
            return Ok(Some(time));
        }
        self.finish(ended, Some(timeouts)).await
    }

    /// For how long nothing is said of a HelmChart that is on its way.
    fn chart_patience(&self, object: &HelmRelease) -> Option<Duration> {
        if !template::is_on_its_way(&self.context, object) {
            return None;
        }
        let since = *self.memory().chart_since.get_or_insert_with(Instant::now);
        CHART_PATIENCE.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Tells the hub on whom the HelmRelease depends, so that their changes wake it.
    fn edges(&self, object: &HelmRelease) {
        let own = object.namespace().unwrap_or_default();
        let dependencies: BTreeSet<Node> = object
            .spec
            .depends_on
            .iter()
            .map(|dependency| {
                let (namespace, name) = gate::named(dependency, &own);
                node_named::<HelmRelease>(namespace, name)
            })
            .collect();
        self.context.hub.set_edges(&self.node, Edge::DependsOn, dependencies);
        let source = chart::source_node(object).into_iter().collect();
        self.context.hub.set_edges(&self.node, Edge::Source, source);
    }

    /// A run behind the gate; nothing where the spec changed meanwhile.
    async fn reconcile(
        &self,
        object: &Arc<HelmRelease>,
        facts: Facts,
        timeouts: Timeouts,
    ) -> Result<Option<Ended>, ClusterError> {
        let helm_chart = match template::keep(&self.context, object).await {
            Ok(helm_chart) => helm_chart.unwrap_or_default(),
            Err(rest) => return Ok(Some(Ended::early(object, rest))),
        };
        let early = |rest| {
            let helm_chart = Some(helm_chart.clone());
            Ok(Some(Ended { helm_chart, ..Ended::early(object, rest) }))
        };
        let requeue = self.in_future(self.context.settings.requeue_dependency);
        let depends_on = &object.spec.depends_on;
        let store = &self.context.store::<HelmRelease>();
        let expressions = &self.expressions;
        let dependencies =
            gate::named_by(&self.context, store, object, depends_on, expressions, |_| None).await;
        let facts = Facts { dependencies, suspended: false, ..facts };
        if let Gate::Rest(rest) = after_resolve(&facts, requeue)
            && !self.is_under_way(object).await?
        {
            return early(rest);
        }
        let source = match chart::source(&self.context, object, requeue) {
            Ok(source) => source,
            Err(rest) => {
                let unsaid_for = self.chart_patience(object);
                return Ok(early(rest)?.map(|ended| Ended { unsaid_for, ..ended }));
            }
        };
        self.memory().chart_since = None;
        let (target, values) = match self.named(object).await {
            Ok(named) => named,
            Err(rest) => return early(rest),
        };
        let loaded = match chart::load(&self.context, &source).await {
            Ok(loaded) => loaded,
            Err(rest) => return early(rest),
        };
        let metadata = &loaded.chart.metadata;
        let parts = Parts {
            chart_name: metadata.name.clone(),
            chart_version: metadata.version.clone(),
            app_version: metadata.app_version.clone(),
            oci_digest: loaded.oci_digest.clone(),
            config_digest: values.digest.clone(),
            artifact_digest: source.artifact.digest.clone(),
        };
        let settings = &self.context.settings;
        let desired = wish::desired(object, parts, &timeouts, false, settings);
        let desired = Desired { closes: self.closes(object), ..desired };
        let ignore = match wish::ignore(&object.spec) {
            Ok(ignore) => ignore,
            Err(rest) => return early(rest),
        };
        let options = ActionOptions::of(&object.spec, settings);
        let wish = Arc::new(Wish {
            desired,
            options,
            values: values.map,
            chart: Some(loaded),
            post: Arc::new(PostRenderers::of(object, options.post_render)),
            expressions: self.expressions.clone(),
            ignore,
            secrets: values.secrets,
        });
        self.memory().source = Some(source.key());
        let ended = self.drive(object, wish, &target).await;
        Ok(ended.map(|ended| Ended { helm_chart: Some(helm_chart), ..ended }))
    }

    /// What the spec names: where and as whom, and the values.
    async fn named(&self, object: &HelmRelease) -> Result<(Arc<Target>, values::Values), Rest> {
        let (namespace, spec) = (object.namespace().unwrap_or_default(), &object.spec);
        let account = spec.service_account_name.as_deref();
        let wanted =
            Wanted::new(&self.context.settings, &namespace, spec.kube_config.as_ref(), account);
        // All of it is watched before any of it is missed.
        let mut references = References::new(&self.context.watcher);
        let target = self.context.targets.of(&wanted, &mut references).await;
        let values = values::read(object, &mut references).await;
        references.watch(&self.node);
        let target = target?;
        self.moved(&target);
        Ok((target, values?))
    }

    /// Somewhere else, or as somebody else, nothing that is remembered about objects holds.
    fn moved(&self, to: &Arc<Target>) {
        let mut memory = self.memory();
        let before = memory.target.replace(to.clone());
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, to)) {
            before.watcher().release_objects(&self.node);
            memory.wait = None;
            memory.hook_watch = None;
            memory.under_way = None;
        }
    }

    /// Does what the engine says until it rests; nothing where the spec changed meanwhile.
    async fn drive(
        &self,
        object: &Arc<HelmRelease>,
        wish: Arc<Wish>,
        target: &Arc<Target>,
    ) -> Option<Ended> {
        target.watcher().begins_observing(&self.node);
        let permit = target.applying().run_permit(&self.node.namespace).await;
        let (context, latest) = (self.context.clone(), self.latest.clone());
        let (to, node) = (target.clone(), self.node.clone());
        let world = World::new(context, (to, permit), node, latest, object.clone(), wish.clone());
        let desired = &wish.desired;
        let wished = format!("{} {} {}", desired.owner, desired.inputs, desired.generation);
        let wait = self.memory().wait.take().filter(|it| it.wished == wished);
        if let Some(wait) = wait {
            world.resume(wait.healthy, wait.records);
        }
        world.known().hook_watch = self.memory().hook_watch.take();
        if !wish.is_observed() {
            target.watcher().release_objects(&self.node);
        }
        let (_, rest) = reconcile::drive::<Release>(&wish.desired, &world).await;
        let hook_watch = world.known().hook_watch.take();
        let is_hook_watched = hook_watch.as_ref().is_some_and(|it| it.wakes());
        {
            let mut memory = self.memory();
            memory.hook_watch = hook_watch;
            memory.under_way = world.known().under_way;
        }
        let rest = match rest.is_settled() {
            true => rest,
            false => world.settle_status().await.err().unwrap_or(rest),
        };
        if world.is_outdated() {
            return None;
        }
        // Another HelmRelease in the way is no object of the target, and is no dependency.
        let in_the_way = match &rest {
            Rest::Blocked(_, _, wake) => wake.on.clone(),
            _ => BTreeSet::new(),
        };
        self.context.hub.set_edges(&self.node, Edge::Waits, in_the_way);
        let awaited = rest.wake().map(|wake| world.awaited(wake)).unwrap_or_default();
        target.watcher().await_objects(&self.node, &awaited);
        if matches!(rest, Rest::Running(..)) && (is_hook_watched || !awaited.is_empty()) {
            let (healthy, records) = world.left();
            let (generation, looked_at) = (object.meta().generation, Instant::now());
            let asked = asked(object);
            self.memory().wait =
                Some(Wait { wished, generation, looked_at, asked, healthy, records });
        }
        let (object, held, running) = (world.object(), world.held(), world.running());
        Some(Ended { wish: Some(wish), held, running, ..Ended::early(&object, rest) })
    }

    /// Says how the run ended, and when the next one is due.
    async fn finish(
        &self,
        ended: Ended,
        timeouts: Option<Timeouts>,
    ) -> Result<Option<Duration>, ClusterError> {
        let Ended { object, rest, wish, helm_chart, held, running, unsaid_for: _ } = ended;
        let now = jiff::Timestamp::now();
        let settings = &self.context.settings;
        let (retry, interval) = match timeouts {
            Some(timeouts) => (timeouts.retry, wish::interval(&object, &timeouts, settings)),
            None => (AFTER_REFUSAL, AFTER_REFUSAL),
        };
        let rest = rest.or_wake(now.saturating_add(retry).unwrap_or(Time::MAX));
        let run = report::Run {
            rest: &rest,
            desired: wish.as_ref().map(|wish| &wish.desired),
            helm_chart: helm_chart.as_deref(),
            running: running.as_deref(),
            now,
        };
        let report = report::report(&object, &run);
        let (before, events) =
            held.map_or((report.before, Vec::new()), |it| (it.before, it.events));
        self.latest.write_status(&self.context, &object, &before, &report.after).await?;
        report::tell(&self.context, &object, &events);
        if let Some(event) = report.event {
            report::log(&object, &event);
            self.context.cluster.announce(&*object, HelmRelease::CONTROLLER, event);
        }
        Ok(match &rest {
            Rest::Settled(..) => Some(interval),
            Rest::Stalled(..) => None,
            Rest::Running(_, _, wake) | Rest::Blocked(_, _, wake) | Rest::Failed(_, _, wake) => {
                Some(until(wake, now))
            }
        })
    }
}

/// What somebody asks for by annotations.
fn asked(object: &HelmRelease) -> Vec<Option<String>> {
    let annotations = [REQUESTED_AT, wish::FORCE_AT, wish::RESET_AT];
    annotations.map(|key| object.annotations().get(key).cloned()).into()
}

fn until(wake: &Wake, now: Time) -> Duration {
    let at = wake.earliest().unwrap_or(now);
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn release(generation: i64, requested: Option<&str>) -> HelmRelease {
        serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps", "generation": generation,
                "annotations": {REQUESTED_AT: requested.unwrap_or("")}},
            "spec": {"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_request_interrupts_the_pauses_of_a_wait_once() {
        let wait = |object: &HelmRelease| Wait {
            wished: String::new(),
            generation: object.meta().generation,
            looked_at: Instant::now(),
            asked: asked(object),
            healthy: BTreeSet::new(),
            records: None,
        };
        let (before, asking) = (release(1, None), release(1, Some("now")));
        assert!(wait(&before).has_seen(&before));
        assert!(!wait(&before).has_seen(&asking));
        assert!(wait(&asking).has_seen(&asking));
        assert!(!wait(&asking).has_seen(&release(2, Some("now"))));
        assert!(!wait(&asking).has_seen(&release(1, Some("later"))));
    }
}
