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
use std::sync::Arc;
use std::time::{Duration, Instant};

use apply::ignore::Rules;
use crds::Reconciled as _;
use crds::helm::HelmRelease;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use golang::value::Map;
use kube::core::{Resource as _, ResourceExt as _};
use objects::{Masking, ObjectId};
use reconcile::{Edge, Facts, Node, Rest};
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
use super::applier::{self, Applied, End, Leaving, Pace, Pending};
use super::context::Context;
use super::expressions::Expressions;
use super::kind::{Controlled, REQUESTED_AT};
use super::object_watcher::Ownership;
use super::reference::References;
use super::target::Target;
use crate::cluster::ClusterError;
use crate::events::Event;

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
pub(crate) struct Wish {
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

    type Memory = applier::Memory<Self>;

    fn announcement(&self) -> String {
        let generation = self.meta().generation.unwrap_or_default();
        let ready = self.condition("Ready").map_or("", |it| it.status.as_str());
        let revision = self.status.as_ref().and_then(|it| it.last_attempted_revision.as_deref());
        let current = self.observed_generation() == Some(generation);
        format!("{ready} {current} {}", revision.unwrap_or_default())
    }

    fn run(self: Arc<Self>, context: Arc<Context>) -> BoxFuture<'static, Option<Duration>> {
        applier::run(self, context).boxed()
    }

    fn forget(node: &Node, context: &Context) {
        applier::forget::<Self>(node, context);
    }
}

/// What a run came by besides its rest.
#[derive(Default)]
pub(crate) struct Came {
    wish: Option<Arc<Wish>>,
    /// `namespace/name` of the HelmChart that was made for it, if it is known.
    helm_chart: Option<String>,
    /// What has to be written besides.
    held: Option<Held>,
    /// What the operation does that is under way.
    running: Option<String>,
}

type Ended = applier::Ended<HelmRelease>;
type Session = applier::Session<HelmRelease>;

/// How long the HelmChart of a template may take to be reconciled before the status reports it as pending. A new version
/// takes less, and the status of each of hundreds of releases would be written twice.
const CHART_PATIENCE: Duration = Duration::from_secs(5);

impl Applied for HelmRelease {
    const OWNED: &'static [&'static str] = &status::OWNED;
    const STAYS_WITHOUT_KUBECONFIG: bool = true;

    type Own = Memory;
    type Timeouts = Timeouts;
    type Named = values::Values;
    type Came = Came;

    fn source(&self) -> Option<Node> {
        chart::source_node(self)
    }

    fn check(&self) -> Result<Timeouts, Rest> {
        status::check(self).and_then(|()| wish::check(&self.spec))
    }

    fn pace(timeouts: &Timeouts) -> Pace {
        Pace { interval: timeouts.interval, retry: timeouts.retry }
    }

    fn observed_at(session: &Session, object: &Self) -> Option<Instant> {
        let memory = session.memory();
        memory.wait.as_ref().filter(|it| it.has_seen(object)).map(|it| it.looked_at)
    }

    fn moved(own: &mut Memory) {
        (own.wait, own.hook_watch, own.under_way) = (None, None, None);
    }

    async fn is_under_way(session: &Session, object: &Arc<Self>) -> Result<bool, ClusterError> {
        session.is_under_way(object).await
    }

    async fn pending(session: &Session, object: &Arc<Self>) -> Pending {
        session.pending(object)
    }

    async fn stop(session: &Session, object: &Arc<Self>) -> Result<Option<Duration>, ClusterError> {
        session.stop(object).await
    }

    fn where_stopped(&self) -> String {
        pause::where_stopped(self)
    }

    fn waits_no_more(own: &mut Memory) {
        own.hook_watch = None;
    }

    async fn read(
        _: &Context,
        object: &Self,
        references: &mut References,
    ) -> Result<values::Values, Rest> {
        values::read(object, references).await
    }

    async fn reconcile(
        session: &Session,
        object: &Arc<Self>,
        facts: Facts,
        timeouts: Timeouts,
    ) -> Result<Option<Ended>, ClusterError> {
        let ended = session.reconcile(object, facts, timeouts).await?;
        Ok(ended.and_then(pause::outside))
    }

    async fn finalize(
        session: &Session,
        object: &Arc<Self>,
    ) -> Result<Leaving<Self>, ClusterError> {
        session.finalize(object).await
    }

    fn left_behind(&self, subject: &str) -> Event {
        finalize::left_behind(subject)
    }

    fn report(_: &Session, ended: Ended, end: &End) -> applier::Report<Self> {
        let Ended { object, came, .. } = ended;
        let Came { wish, helm_chart, held, running } = came;
        let run = report::Run {
            rest: &end.rest,
            desired: wish.as_ref().map(|wish| &wish.desired),
            helm_chart: helm_chart.as_deref(),
            running: running.as_deref(),
            now: end.now,
        };
        let report = report::report(&object, &run);
        let (before, held) = held.map_or((report.before, Vec::new()), |it| (it.before, it.events));
        let events: Vec<Event> = held.iter().map(report::event).chain(report.event).collect();
        for event in &events {
            report::log(&object, event);
        }
        applier::Report { object, before, after: report.after, events }
    }
}

impl Session {
    /// For how long nothing is said of a HelmChart that is on its way.
    fn chart_patience(&self, object: &HelmRelease) -> Option<Duration> {
        if !template::is_on_its_way(&self.context, object) {
            return None;
        }
        let since = *self.memory().chart_since.get_or_insert_with(Instant::now);
        CHART_PATIENCE.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
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
            let mut ended = Ended::early(object, rest);
            ended.came.helm_chart = Some(helm_chart.clone());
            Ok(Some(ended))
        };
        let requeue = self.in_future(self.context.settings.requeue_dependency);
        if let Some(rest) = self.gate(object, facts, "").await
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
        Ok(ended.map(|mut ended| {
            ended.came.helm_chart = Some(helm_chart);
            ended
        }))
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
        let came = Came { wish: Some(wish), held, running, helm_chart: None };
        Some(Ended { came, ..Ended::early(&object, rest) })
    }
}

/// What somebody asks for by annotations.
fn asked(object: &HelmRelease) -> Vec<Option<String>> {
    let annotations = [REQUESTED_AT, wish::FORCE_AT, wish::RESET_AT];
    annotations.map(|key| object.annotations().get(key).cloned()).into()
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
