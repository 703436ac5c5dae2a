//! Helmfile: the releases of a helmfile, kept installed, in the order of their needs.
//!
//! Here: a run from its gate to its report. Elsewhere: what is wished (`wish`, `plan`, `files`, `values`, `charts`), the
//! releases (`keep`, `request`, `book`; `releaser`, of which it is an owner), deletion (`finalize`).

mod book;
pub(crate) mod charts;
mod files;
mod finalize;
mod keep;
mod plan;
mod report;
mod request;
mod values;
mod wish;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Artifact;
use crds::helmfile::Helmfile;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use golang::meter::Stop;
use kube::core::{Resource as _, ResourceExt as _};
use objects::Masking;
use reconcile::{Facts, Node, Reason, Rest, Wake, reason};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use self::book::Book;
use self::charts::Charts;
use self::keep::{Outcome, Outcomes, Remembered};
use self::plan::{Inputs, Key, Planned, Reaching};
use self::wish::{Named, Timeouts};
use super::applier::{self, Applied, End, Leaving, Pace, Pending};
use super::context::Context;
use super::helm_repository::wish::reach;
use super::kind::Controlled;
use super::kustomization::bases::BuildPermits;
use super::kustomization::resolve;
use super::object_watcher::Ownership;
use super::reference::References;
use super::releaser::MANAGER;
use super::target::Target;
use super::{artifact, marks};
use crate::cluster::ClusterError;
use crate::events::Event;
use crate::time_limit::{TIME_LIMIT, TimeLimit};

/// The group of the kind.
const GROUP: &str = "helmfile.windlass.dev";

/// The marks on the objects of releases.
pub(super) const OWNERSHIP: Ownership = Ownership {
    name: "helmfile.windlass.dev/name",
    namespace: "helmfile.windlass.dev/namespace",
    manager: MANAGER,
};

/// The helmfile cannot be read.
const HELMFILE_ERROR: Reason = Reason::new("HelmfileError");

/// Templates may include each other deeply.
const STACK: usize = helm::render::STACK;

/// What a Helmfile remembers between runs.
#[derive(Default)]
pub(crate) struct Memory {
    plan: Option<Kept>,
    releases: BTreeMap<Key, Arc<Remembered>>,
    /// When the suspension of a release ends.
    next_end: Option<Instant>,
}

/// A plan that was made.
struct Kept {
    /// A digest of all that it was made from, but for what repositories have.
    key: String,
    made: Instant,
    plan: Arc<Planned>,
}

impl Controlled for Helmfile {
    const CONTROLLER: &'static str = "helmfile-controller";
    const APPLIES: bool = true;

    type Memory = applier::Memory<Self>;

    fn announcement(&self) -> String {
        let status = self.status.as_ref();
        applier::announcement(self, status.and_then(|it| it.last_applied_revision.as_deref()))
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
    revision: String,
    plan: Option<Arc<Planned>>,
    book: Option<Arc<Book>>,
}

type Ended = applier::Ended<Helmfile>;
type Session = applier::Session<Helmfile>;

impl Applied for Helmfile {
    const OWNED: &'static [&'static str] = &report::OWNED;
    const STAYS_WITHOUT_KUBECONFIG: bool = true;

    type Own = Memory;
    type Timeouts = Timeouts;
    type Named = Named;
    type Came = Came;

    fn source(&self) -> Option<Node> {
        Some(resolve::source_node(&self.namespace().unwrap_or_default(), &self.spec.source_ref))
    }

    fn check(&self) -> Result<Timeouts, Rest> {
        wish::check(&self.spec)
    }

    fn pace(timeouts: &Timeouts) -> Pace {
        Pace { interval: timeouts.interval, retry: timeouts.retry }
    }

    fn observed_at(_: &Session, _: &Self) -> Option<Instant> {
        None
    }

    fn moved(own: &mut Memory) {
        own.releases.clear();
    }

    async fn is_under_way(session: &Session, object: &Arc<Self>) -> Result<bool, ClusterError> {
        let rows = object.status.as_ref().map(|it| it.releases.as_slice()).unwrap_or_default();
        let memory = session.memory();
        let known = |row: &crds::helmfile::ReleaseRow| {
            let key = Key { namespace: row.namespace.clone(), name: row.name.clone() };
            memory.releases.get(&key).and_then(|it| it.drive.under_way())
        };
        // What this process does not know, the row says.
        Ok(rows.iter().any(|row| known(row).unwrap_or_else(|| report::is_under_way(row))))
    }

    async fn pending(session: &Session, object: &Arc<Self>) -> Pending {
        let (own, source) = (&session.node.namespace, &object.spec.source_ref);
        let artifact = resolve::artifact(&session.context, own, source, session.began).ok();
        let applied = object.status.as_ref().and_then(|it| it.last_applied_revision.as_deref());
        let is_ready = object.status.as_ref().is_some_and(|status| {
            status.observed_generation == object.meta().generation
                && status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
        });
        match artifact {
            Some(artifact) if is_ready && applied == Some(artifact.revision.as_str()) => {
                Pending::Nothing
            }
            Some(artifact) => Pending::Change(format!("revision {}", artifact.revision)),
            None if is_ready => Pending::Nothing,
            None => Pending::Change("the changed spec".to_owned()),
        }
    }

    async fn stop(session: &Session, object: &Arc<Self>) -> Result<Option<Duration>, ClusterError> {
        session.stop(object).await
    }

    fn where_stopped(&self) -> String {
        match self.status.as_ref().and_then(|it| it.last_attempted_revision.as_deref()) {
            Some(revision) => format!("suspended; last attempted revision: {revision}"),
            None => "suspended before the first release was installed".to_owned(),
        }
    }

    async fn read(_: &Context, object: &Self, references: &mut References) -> Result<Named, Rest> {
        wish::read(object, references).await
    }

    async fn reconcile(
        session: &Session,
        object: &Arc<Self>,
        facts: Facts,
        timeouts: Timeouts,
    ) -> Result<Option<Ended>, ClusterError> {
        Ok(session.reconcile(object, facts, timeouts).await)
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

    fn next_look(own: &Memory) -> Option<Duration> {
        own.next_end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    fn report(_: &Session, ended: Ended, end: &End) -> applier::Report<Self> {
        let Ended { object, came, .. } = ended;
        let object = came.book.as_ref().map_or(object, |book| book.object());
        let run = report::Run {
            rest: &end.rest,
            revision: &came.revision,
            rows: came.book.as_ref().map(|book| book.rows()),
            drawn: came.plan.as_ref().map(|plan| plan.drawn.as_slice()),
            now: end.now,
        };
        let (before, after, event) = report::report(&object, run);
        let told = came.book.map(|book| book.take_events()).unwrap_or_default();
        let events: Vec<Event> = told.into_iter().chain(event).collect();
        let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
        for Event { reason, message, .. } in &events {
            tracing::info!(controller_kind = "Helmfile", name, namespace, reason, "{message}");
        }
        applier::Report { object, before, after, events }
    }
}

impl Session {
    /// A run behind the gate; nothing where the spec changed meanwhile.
    async fn reconcile(
        &self,
        object: &Arc<Helmfile>,
        facts: Facts,
        timeouts: Timeouts,
    ) -> Option<Ended> {
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        let (own, source) = (&self.node.namespace, &object.spec.source_ref);
        let artifact = match resolve::artifact(&self.context, own, source, retry_at) {
            Ok(artifact) => artifact,
            Err(rest) => return Some(Ended::early(object, rest)),
        };
        let early = |rest| {
            let mut ended = Ended::early(object, rest);
            ended.came.revision.clone_from(&artifact.revision);
            Some(ended)
        };
        if let Some(rest) = self.gate(object, facts, &artifact.revision).await {
            return early(rest);
        }
        let (target, named) = match self.named(object).await {
            Ok(named) => named,
            Err(rest) => return early(rest),
        };
        let planned = match self.planned(object, &timeouts, &artifact, &target, &named).await {
            Ok(planned) => planned,
            Err(rest) => return early(rest),
        };
        self.apply(object, &timeouts, &artifact, (&target, &named.secrets), planned).await
    }

    /// Keeps the releases of a plan, then uninstalls those that left.
    async fn apply(
        &self,
        object: &Arc<Helmfile>,
        timeouts: &Timeouts,
        artifact: &Artifact,
        (target, secrets): (&Arc<Target>, &Masking),
        planned: Arc<Planned>,
    ) -> Option<Ended> {
        let book = Book::new(self.context.clone(), self.latest.clone(), object.clone());
        let book = Arc::new(book);
        let ended = |rest| {
            let mut ended = Ended::early(&book.object(), rest);
            let (book, plan) = (Some(book.clone()), Some(planned.clone()));
            ended.came = Came { revision: artifact.revision.clone(), plan, book };
            ended
        };
        self.enter(&planned, &book);
        // A release is in the inventory before anything of it is in the cluster.
        if let Err(rest) = book.flush().await {
            return Some(ended(rest));
        }
        let run = keep::Run {
            object,
            target,
            timeouts,
            book: &book,
            secrets,
            woken: self.context.hub.woken_parts(&self.node),
            now: self.began,
        };
        let mut outcomes = self.keep(&planned, &run).await?;
        let is_kept =
            |outcome: &Outcome| matches!(outcome, Outcome::Kept | Outcome::Suspended { .. });
        if outcomes.values().all(is_kept) {
            outcomes.extend(self.prune(&planned, &run).await?);
        }
        let rest = report::rest(&artifact.revision, &book.rows(), &outcomes);
        // A suspension ends by itself, and nothing else tells of that.
        let end = keep::next_end(object, self.began);
        let until = end.and_then(|end| Duration::try_from(end.duration_since(self.began)).ok());
        self.memory().next_end =
            until.map(|until| Instant::now() + until.min(self.interval(object, timeouts)));
        Some(ended(rest))
    }

    /// Uninstalls releases that are no longer in the helmfile, or gives them up.
    async fn prune(&self, planned: &Planned, run: &keep::Run<'_>) -> Option<Outcomes> {
        let rows = run.book.rows();
        let left =
            rows.iter().map(|row| Key { namespace: row.namespace.clone(), name: row.name.clone() });
        let left: Vec<Key> =
            left.filter(|key| !planned.releases.iter().any(|it| it.key == *key)).collect();
        let goes = |key: &&Key| run.object.spec.prune || planned.unwanted.contains(key);
        let (leaving, given_up): (Vec<&Key>, Vec<&Key>) = left.iter().partition(goes);
        for key in given_up {
            run.book.remove(key);
            self.forget(key, run.target);
            run.book.tell(finalize::given_up(key));
        }
        let leaving: Vec<Key> = leaving.into_iter().cloned().collect();
        if leaving.is_empty() {
            return Some(Outcomes::new());
        }
        self.uninstall(&leaving, run).await
    }

    /// The plan of the helmfile: the one that there is, unless something changed from which it is made.
    async fn planned(
        &self,
        object: &Arc<Helmfile>,
        timeouts: &Timeouts,
        artifact: &Artifact,
        target: &Arc<Target>,
        named: &Named,
    ) -> Result<Arc<Planned>, Rest> {
        let served =
            target.cluster.served().await.map_err(|error| {
                Rest::Failed(HELMFILE_ERROR, error.to_string(), Wake::default())
            })?;
        let key = inputs_key(object, artifact, named, &served.version);
        let is_asked = marks::is_asked(&**object);
        if let Some(kept) = self.memory().plan.as_ref().filter(|kept| kept.key == key) {
            // Repositories may have other versions by now; what was drawn would be drawn anew.
            let is_fresh = kept.made.elapsed() < timeouts.interval && !is_asked;
            if is_fresh || !kept.plan.drawn.is_empty() {
                return Ok(kept.plan.clone());
            }
        }
        let (own, source) = (&self.node.namespace, &object.spec.source_ref);
        let is_elsewhere = resolve::is_elsewhere(&self.context, own, source);
        let files = artifact::files(&self.context, artifact, is_elsewhere).await;
        let files = files.map_err(|why| {
            let text = format!("artifact of revision {}: {why}", artifact.revision);
            Rest::Failed(reason::ARTIFACT_FAILED, text, Wake::default())
        })?;
        let spec = &object.spec;
        let inputs = Inputs {
            source: files,
            path: spec.path.clone().unwrap_or_default(),
            environment: spec.environment.clone().unwrap_or_else(|| "default".to_owned()),
            selectors: spec.selectors.clone(),
            values: named.values.clone(),
            variables: named.variables.clone(),
            namespace: spec.target_namespace.clone().unwrap_or_else(|| own.clone()),
            served,
        };
        let made = self.plan(inputs).await;
        let plan = made.map_err(|text| {
            Rest::Failed(HELMFILE_ERROR, named.secrets.mask(&text), Wake::default())
        })?;
        let plan = Arc::new(plan);
        for warning in &plan.warnings {
            let Node { name, namespace, .. } = &self.node;
            tracing::info!(controller_kind = "Helmfile", name, namespace, "{warning}");
        }
        self.memory().plan = Some(Kept { key, made: Instant::now(), plan: plan.clone() });
        Ok(plan)
    }

    /// Makes a plan on a thread with a large stack, with a permit of those who build.
    async fn plan(&self, inputs: Inputs) -> Result<Planned, String> {
        let permit = self.context.building.acquire(&self.node.namespace).await;
        let cancel = CancellationToken::new();
        // A run that is broken off asks no more servers.
        let _asked_for = cancel.clone().drop_guard();
        let permits = BuildPermits::new(&self.context, &self.node.namespace, permit, cancel);
        let charts = Charts::new(reach(&self.context), self.context.remotes.oci.clone(), None);
        let reaching = Reaching { charts, permits, runtime: Handle::current() };
        let (tell, told) = tokio::sync::oneshot::channel();
        let work = move || {
            let stop = Stop::default();
            let limit = Arc::new(TimeLimit::start(TIME_LIMIT, &stop));
            // Nobody may wait any more, because the process ends.
            tell.send(plan::plan(inputs, reaching, &stop, limit)).ok();
        };
        let thread = std::thread::Builder::new().name("helmfile".to_owned()).stack_size(STACK);
        thread.spawn(work).map_err(|error| format!("failed to start a thread: {error}"))?;
        told.await.unwrap_or_else(|_| {
            Err("reading the helmfile panicked; this is a bug in windlass, please report it"
                .to_owned())
        })
    }

    /// Has operations that are under way come to the next place at which nothing is half done.
    async fn stop(&self, object: &Arc<Helmfile>) -> Result<Option<Duration>, ClusterError> {
        let Ok(target) = self.target(object).await else {
            return self.rest_suspended(object).await;
        };
        let timeouts = wish::check(&object.spec).unwrap_or_else(|_| Timeouts::for_finalize());
        let book = Book::new(self.context.clone(), self.latest.clone(), object.clone());
        let book = Arc::new(book);
        let secrets = Masking::default();
        let run = keep::Run {
            object,
            target: &target,
            timeouts: &timeouts,
            book: &book,
            secrets: &secrets,
            woken: self.context.hub.woken_parts(&self.node),
            now: self.began,
        };
        let Some(outcomes) = self.stop_all(&run).await else {
            return Ok(Some(Duration::ZERO));
        };
        if outcomes.is_empty() {
            book.flush().await.ok();
            return self.rest_suspended(&book.object()).await;
        }
        let rest = report::rest("", &book.rows(), &outcomes);
        let mut ended = Ended::early(&book.object(), rest);
        ended.came.book = Some(book);
        self.finish(ended, Some(timeouts)).await
    }
}

/// A digest of all that a plan is made from, but for what repositories have.
fn inputs_key(object: &Helmfile, artifact: &Artifact, named: &Named, version: &str) -> String {
    let spec = &object.spec;
    let parts = (
        (&artifact.digest, &spec.path, &spec.environment, &spec.selectors),
        (&named.values, &named.variables, &spec.target_namespace, version),
    );
    let text = serde_json::to_vec(&parts).unwrap_or_default();
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}
