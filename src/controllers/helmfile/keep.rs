//! Keeping the releases of a plan: which of them may be operated on now, many at a time.
//!
//! Elsewhere: those that left (`leave.rs`), one release (`releaser`), what is asked of it (`request.rs`), what is said of it (`book.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crds::helm::HelmRelease;
use crds::helmfile::{HelmfileSpec, ReleaseRow, ReleaseState, SuspendedRelease};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use helmfile::When;
use kube::core::ResourceExt as _;
use reconcile::{Node, Rest, Time, Wake, WindowState};
use release::phase::Gates;
use release::{Desired, Origin};

use super::book::{Book, ReleaseOwner};
use super::hooks::Ended;
use super::model::Model;
use super::places::{Id, Places};
use super::plan::{Key, Planned, PlannedRelease};
use super::report::{RELEASE_FAILED, is_under_way};
use super::wish::Timeouts;
use super::{Session, request};
use crate::controllers::helm_release::{report, status, wish};
use crate::controllers::releaser::action_options::ActionOptions;
use crate::controllers::releaser::postrender::PostRenderers;
use crate::controllers::releaser::{Wish, drive};
use crate::controllers::target::{APPLYING_AT_ONCE, Target};
use crate::controllers::{helm_release, lifecycle, marks, window};
use objects::Masking;

/// How many releases of one Helmfile are operated on at a time in a cluster, which no other waits for: what is applied at the
/// same moment is what its permits allow.
const AT_ONCE: usize = APPLYING_AT_ONCE;

/// What is remembered of a release between runs. Its objects are watched as long.
pub(super) struct Remembered {
    pub(super) drive: drive::Memory,
    last: Mutex<Option<Last>>,
    /// Whether hooks before an operation were applied since the release was last as the helmfile says.
    has_begun: AtomicBool,
    target: Arc<Target>,
    node: Node,
}

impl Drop for Remembered {
    fn drop(&mut self) {
        self.target.watcher().forget(&self.node);
    }
}

/// How a release was left.
#[derive(Clone)]
struct Last {
    /// [`request::digest`] of what it was kept as.
    digest: String,
    generation: Option<i64>,
    rest: Rest,
}

impl Remembered {
    fn last(&self) -> Option<Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_last(&self, last: Option<Last>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

/// How far a release came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is as the helmfile says.
    Kept,
    /// It rests, and is not yet so.
    Rests(Rest),
    /// What it needs is not there.
    Waits(Vec<Key>),
    /// It is suspended by itself, and is there as the helmfile said once or is not.
    Suspended {
        /// Whether it was kept before.
        is_there: bool,
    },
}

impl Outcome {
    /// Whether a release is as the helmfile says, or is suspended by itself.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept | Self::Suspended { .. })
    }
}

/// What keeping all of them came to; nothing where the Helmfile changed meanwhile.
pub(super) type Outcomes = BTreeMap<Key, Outcome>;

/// What all releases of a run have in common.
pub(super) struct Run<'r, K: Model> {
    pub(super) object: &'r Arc<K>,
    /// What it asks for.
    pub(super) spec: &'r HelmfileSpec,
    /// The clusters of releases.
    pub(super) places: &'r Places,
    pub(super) timeouts: &'r Timeouts,
    pub(super) book: &'r Arc<Book<K>>,
    pub(super) secrets: &'r Masking,
    /// The revision of the source; empty where nothing of it is wished for.
    pub(super) revision: &'r str,
    /// Parts that were woken since the last run.
    pub(super) woken: BTreeSet<Node>,
    pub(super) silent: Silent,
    pub(super) now: Time,
}

/// Clusters that did not answer in a run, by [`Target::place`], with how the release rests that found it: others of the same
/// cluster are not tried in this run.
#[derive(Default)]
pub(super) struct Silent(Mutex<BTreeMap<String, Rest>>);

impl Silent {
    fn note(&self, target: &Target, rest: &Rest) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(target.place().to_owned(), rest.clone());
    }

    /// How a release at a target rests without being tried.
    pub(super) fn at(&self, target: &Target) -> Option<Rest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(target.place()).cloned()
    }
}

/// How many releases are operated on now, by cluster ([`Places::id`]).
#[derive(Default)]
pub(super) struct Slots<'p>(BTreeMap<Id<'p>, usize>);

impl<'p> Slots<'p> {
    /// Takes a slot of a cluster; tells whether there was one.
    pub(super) fn take(&mut self, place: Id<'p>) -> bool {
        let taken = self.0.entry(place).or_default();
        let is_free = *taken < AT_ONCE;
        *taken += usize::from(is_free);
        is_free
    }

    fn give_back(&mut self, place: Id<'p>) {
        if let Some(taken) = self.0.get_mut(&place) {
            *taken -= 1;
        }
    }
}

/// Whether a release is suspended by itself, and by which entry.
pub(super) fn suspension<'s>(
    spec: &'s HelmfileSpec,
    key: &Key,
    now: Time,
) -> Option<&'s SuspendedRelease> {
    spec.suspended_releases.iter().find(|entry| {
        entry.name == key.name
            && entry.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && entry.kube_context.as_ref().is_none_or(|context| *context == key.context)
            && entry.until.as_ref().is_none_or(|until| until.0 > now)
    })
}

/// When the next suspension of a release ends.
pub(super) fn next_end(spec: &HelmfileSpec, now: Time) -> Option<Time> {
    let ends = spec.suspended_releases.iter().filter_map(|entry| Some(entry.until.as_ref()?.0));
    ends.filter(|end| *end > now).min()
}

impl<K: Model> Session<K> {
    /// The node of a release, under which its objects are watched.
    pub(super) fn part(&self, key: &Key) -> Node {
        self.node.part(&key.to_string())
    }

    /// What is remembered of a release at a target; elsewhere nothing of it holds.
    pub(super) fn remembered(&self, key: &Key, target: &Arc<Target>) -> Arc<Remembered> {
        let mut memory = self.memory();
        let is_here = |known: &&Arc<Remembered>| Arc::ptr_eq(&known.target, target);
        if let Some(known) = memory.releases.get(key).filter(is_here) {
            return known.clone();
        }
        // What was watched before is forgotten first, since it may be the same cluster in another name.
        drop(memory.releases.remove(key));
        let new = Arc::new(Remembered {
            drive: drive::Memory::default(),
            last: Mutex::default(),
            has_begun: AtomicBool::new(false),
            target: target.clone(),
            node: self.part(key),
        });
        memory.releases.insert(key.clone(), new.clone());
        new
    }

    /// Whether an operation on a release is under way, as far as this process knows.
    fn is_known_under_way(&self, key: &Key) -> bool {
        let memory = self.memory();
        memory.releases.get(key).and_then(|it| it.drive.under_way()) == Some(true)
    }

    /// Nothing is remembered or watched of a release any more.
    pub(super) fn forget(&self, key: &Key) {
        self.memory().releases.remove(key);
    }

    /// Puts the releases of a plan into the status before anything is done for them; those that left come last.
    pub(super) fn enter(&self, planned: &Planned, book: &Book<K>) {
        let known = book.rows();
        let mut rows = Vec::with_capacity(planned.releases.len());
        for release in &planned.releases {
            let of_it = known.iter().find(|row| release.key.is_of(row));
            let new = || ReleaseRow {
                kube_context: release.key.context.clone(),
                name: release.key.name.clone(),
                namespace: release.key.namespace.clone(),
                ..ReleaseRow::default()
            };
            let mut row = of_it.cloned().unwrap_or_else(new);
            row.needs = release.needs.iter().map(Key::to_string).collect();
            rows.push(row);
        }
        let is_planned = |row: &ReleaseRow| planned.releases.iter().any(|it| it.key.is_of(row));
        let left: Vec<_> = known.iter().filter(|row| !is_planned(row)).cloned().collect();
        rows.extend(left);
        book.set_rows(rows);
    }

    /// Keeps all releases of a plan; nothing where the Helmfile changed meanwhile.
    pub(super) async fn keep(&self, planned: &Planned, run: &Run<'_, K>) -> Option<Outcomes> {
        let (mut outcomes, mut slots) = (Outcomes::new(), Slots::default());
        let mut left: Vec<&PlannedRelease> = planned.releases.iter().collect();
        let mut under_way = FuturesUnordered::new();
        loop {
            let mut waiting = Vec::new();
            for release in left {
                let needs = planned.needs_of(release);
                if needs.iter().any(|need| !outcomes.contains_key(*need)) {
                    waiting.push(release);
                    continue;
                }
                let missing = missing(&needs, &outcomes);
                let is_under_way = self.is_known_under_way(&release.key);
                if missing.is_empty() || is_under_way {
                    match slots.take(run.places.id(&release.key)) {
                        true => under_way.push(async move {
                            (release, self.keep_one(release, planned, run).await)
                        }),
                        false => waiting.push(release),
                    }
                } else {
                    let names: Vec<String> = missing.iter().map(Key::to_string).collect();
                    run.book.update(&release.key, |row| {
                        row.state = ReleaseState::Waiting;
                        row.message = Some(format!("waiting for {}", names.join(", ")));
                    });
                    outcomes.insert(release.key.clone(), Outcome::Waits(missing));
                }
            }
            left = waiting;
            match under_way.next().await {
                Some((release, outcome)) => {
                    slots.give_back(run.places.id(&release.key));
                    outcomes.insert(release.key.clone(), outcome?);
                }
                None => {
                    // The plan rejected cycles, so nothing is left.
                    let waits = |release: &PlannedRelease| {
                        (release.key.clone(), Outcome::Waits(release.needs.clone()))
                    };
                    outcomes.extend(left.into_iter().map(waits));
                    return Some(outcomes);
                }
            }
        }
    }

    /// A release rests for a reason that no operation gave.
    pub(super) fn rests(&self, run: &Run<'_, K>, key: &Key, rest: Rest) -> Outcome {
        run.book.update(key, |row| {
            row.message = Some(run.secrets.mask(rest.text()));
            if !is_under_way(row) {
                row.state = match rest {
                    Rest::Blocked(..) => ReleaseState::Waiting,
                    _ => ReleaseState::Failed,
                };
            }
        });
        Outcome::Rests(rest)
    }

    async fn keep_one(
        &self,
        planned: &PlannedRelease,
        all: &Planned,
        run: &Run<'_, K>,
    ) -> Option<Outcome> {
        let (key, node) = (&planned.key, self.part(&planned.key));
        let target = match run.places.of(key) {
            Ok(target) => target,
            Err(rest) => return Some(self.rests(run, key, rest)),
        };
        let spec = request::spec(run.spec, key, &planned.operation, run.timeouts);
        let digest = request::digest(planned, &spec, target.place());
        let remembered = self.remembered(key, target);
        let row = run.book.row(key);
        let as_before = remembered.last().filter(|last| {
            last.digest == digest
                && last.generation == run.object.meta().generation
                && !marks::is_asked(&**run.object)
                && !run.woken.contains(&node)
        });
        let uid = run.object.uid().unwrap_or_default();
        let release = (key.name.as_str(), key.namespace.as_str(), key.context.as_str());
        let namespace = &self.node.namespace;
        // What lifecycles answer is no change of the objects that are awaited.
        let is_asking =
            !lifecycle::events_of(&self.context, namespace, &uid, Some(release)).is_empty();
        let as_before = as_before.filter(|_| !is_asking);
        if let Some(outcome) =
            as_before.and_then(|last| self.unchanged(&last, (target, &node), run))
        {
            return Some(outcome);
        }
        if let Some(entry) = suspension(run.spec, key, run.now) {
            return self.suspend_one(key, spec, entry, &remembered, run).await;
        }
        if let Some(rest) = run.silent.at(target) {
            return Some(self.rests(run, key, rest));
        }
        let made = self.wish(run, key, spec, Some(planned), row.as_ref(), (false, false));
        let (wish, made) = match made {
            Ok(made) => made,
            Err(rest) => return Some(self.rests(run, key, rest)),
        };
        let owner = ReleaseOwner {
            namesakes: all.namesakes(key).cloned().collect(),
            hooks: planned.hooks.clone(),
            timeout: planned.operation.timeout.map_or(run.timeouts.timeout, Duration::from_secs),
            ..self.owner(run, key, made)
        };
        let owner = Arc::new(owner);
        let mut rest = self.drive(run, &owner, &wish, &remembered).await?;
        let is_new = row.and_then(|row| row.digest).is_none_or(|known| known != digest);
        if is_new
            && rest.is_settled()
            && let Err(held) = self.apply_hooks(&owner, &wish, &remembered, run).await?
        {
            self.rests(run, key, held.clone());
            rest = held;
        }
        let settled = rest.is_settled();
        let version = &planned.chart.chart.metadata;
        let chart = format!("{}-{}", version.name, version.version);
        run.book.update(key, |row| {
            if settled {
                row.digest = Some(digest.clone());
                row.chart = Some(chart);
            }
        });
        let generation = run.object.meta().generation;
        remembered.set_last(Some(Last { digest, generation, rest: rest.clone() }));
        Some(if settled { Outcome::Kept } else { Outcome::Rests(rest) })
    }

    /// A release that is suspended by itself: an operation that is under way stops where nothing is half done.
    async fn suspend_one(
        &self,
        key: &Key,
        spec: crds::helm::HelmReleaseSpec,
        entry: &SuspendedRelease,
        remembered: &Remembered,
        run: &Run<'_, K>,
    ) -> Option<Outcome> {
        let row = run.book.row(key);
        let is_progressing = |row: &ReleaseRow| row.state == ReleaseState::Progressing;
        let is_under_way = remembered.drive.under_way() == Some(true);
        let is_progressing = row.as_ref().is_some_and(is_progressing);
        if is_under_way || is_progressing || request::rolls_back(&**run.object, key, row.as_ref()) {
            let made = self.wish(run, key, spec, None, row.as_ref(), (true, false));
            let (wish, made) = match made {
                Ok(made) => made,
                Err(rest) => return Some(self.rests(run, key, rest)),
            };
            let owner = Arc::new(self.owner(run, key, made));
            let rest = self.drive(run, &owner, &wish, remembered).await?;
            if !matches!(&rest, Rest::Blocked(why, ..) if *why == reconcile::reason::SUSPENDED) {
                return Some(Outcome::Rests(rest));
            }
        }
        remembered.target.watcher().release_objects(&remembered.node);
        remembered.set_last(None);
        run.book.update(key, |row| {
            row.state = ReleaseState::Suspended;
            row.message = Some(told(entry));
        });
        let is_there = row.is_some_and(|row| row.digest.is_some());
        Some(Outcome::Suspended { is_there })
    }

    /// How a release was left, if nothing can have changed since.
    fn unchanged(
        &self,
        last: &Last,
        (target, node): (&Target, &Node),
        run: &Run<'_, K>,
    ) -> Option<Outcome> {
        match &last.rest {
            Rest::Settled(..) => target.watcher().is_calm(node).then_some(Outcome::Kept),
            Rest::Stalled(..) => Some(Outcome::Rests(last.rest.clone())),
            // Windows open without a change of what is wished for.
            Rest::Blocked(why, ..) if *why == reconcile::reason::WINDOW_CLOSED => {
                let is_closed = self.is_closed(run.object);
                is_closed.then(|| Outcome::Rests(last.rest.clone()))
            }
            rest => {
                let due = rest.wake().and_then(Wake::earliest).is_none_or(|at| at <= run.now);
                (!due).then(|| Outcome::Rests(rest.clone()))
            }
        }
    }

    /// What is wished for a release: of a plan, or that it stops or goes.
    pub(super) fn wish(
        &self,
        run: &Run<'_, K>,
        key: &Key,
        spec: crds::helm::HelmReleaseSpec,
        planned: Option<&PlannedRelease>,
        row: Option<&ReleaseRow>,
        (is_suspended, is_leaving): (bool, bool),
    ) -> Result<(Arc<Wish>, HelmRelease), Rest> {
        let object = request::as_helm_release(&**run.object, key, spec, row, is_leaving);
        let (timeouts, ignore) = request::checked(&object)?;
        let settings = &self.context.settings;
        let parts = match planned {
            Some(planned) => request::parts(planned),
            None => helm_release::released_parts(&status::read(&object), is_suspended),
        };
        let mut desired = wish::desired(&object, parts, &timeouts, is_suspended, settings);
        if self.is_verified_only() {
            desired.requests.keep_known(&status::read(&object));
        }
        let source = run.object.source().map(|it| it.to_string()).unwrap_or_default();
        let origin = Origin { source, revision: run.revision.to_owned(), ..desired.origin.clone() };
        let options = ActionOptions::of(&object.spec, settings);
        let options = match planned {
            Some(planned) => options.skipping_schema(planned.skips_schema),
            None => options,
        };
        let post = PostRenderers::of(&[], None, BTreeMap::new(), options.post_render);
        let wish = Wish {
            desired: Desired {
                gates: self.gates(run.object),
                lifecycles: lifecycle::holding(&self.context, &**run.object),
                origin,
                kube_context: key.context.clone(),
                ..desired
            },
            options,
            values: planned.map(|planned| planned.values.clone()).unwrap_or_default(),
            chart: planned.map(|planned| planned.chart.clone()),
            post: Arc::new(post),
            expressions: self.expressions.clone(),
            ignore,
            secrets: run.secrets.clone(),
        };
        Ok((Arc::new(wish), object))
    }

    /// A Helmfile as the owner of a release without hooks, for which this asks.
    pub(super) fn owner(&self, run: &Run<'_, K>, key: &Key, asks: HelmRelease) -> ReleaseOwner<K> {
        ReleaseOwner {
            book: run.book.clone(),
            key: key.clone(),
            release: Mutex::new(Arc::new(asks)),
            namesakes: Vec::new(),
            hooks: Arc::default(),
            timeout: run.timeouts.timeout,
            secrets: run.secrets.clone(),
            has_begun: AtomicBool::new(false),
        }
    }

    /// Does for a release what the machine says until it rests, and writes down how it is; nothing where the Helmfile
    /// changed meanwhile.
    pub(super) async fn drive(
        &self,
        run: &Run<'_, K>,
        owner: &Arc<ReleaseOwner<K>>,
        wish: &Arc<Wish>,
        remembered: &Remembered,
    ) -> Option<Rest> {
        let (key, at) = (&owner.key, (&remembered.target, &remembered.node));
        let driven = drive::drive(&self.context, at, owner, wish, &remembered.drive).await;
        remembered.has_begun.fetch_or(owner.has_begun.load(Ordering::Relaxed), Ordering::Relaxed);
        let driven = driven?;
        if driven.is_unanswered {
            run.silent.note(&remembered.target, &driven.rest);
        }
        let object = owner.release();
        let said = report::report(
            &object,
            &report::Run {
                rest: &driven.rest,
                desired: Some(&wish.desired),
                helm_chart: None,
                running: driven.running.as_deref(),
                now: jiff::Timestamp::now(),
            },
        );
        let known = status::read(&object);
        let revision = request::latest_version(&known);
        run.book.update(key, |row| {
            row.status = request::kept(&said.after);
            row.revision = revision;
            let is_leaving = row.state == ReleaseState::Uninstalling;
            let text = Some(wish.masked(driven.rest.text()));
            (row.state, row.message) = match &driven.rest {
                _ if is_leaving => (row.state, text),
                Rest::Settled(..) => (ReleaseState::Ready, None),
                Rest::Running(..) => (ReleaseState::Progressing, text),
                Rest::Blocked(..) => (ReleaseState::Waiting, text),
                Rest::Failed(..) | Rest::Stalled(..) => (ReleaseState::Failed, text),
            };
        });
        Some(driven.rest)
    }

    /// Applies what the hooks of a release name once it is as the helmfile says: also those before an operation, which there
    /// need not have been. Nothing where the Helmfile changed meanwhile.
    async fn apply_hooks(
        &self,
        owner: &ReleaseOwner<K>,
        wish: &Wish,
        remembered: &Remembered,
        run: &Run<'_, K>,
    ) -> Option<Result<(), Rest>> {
        if owner.hooks.all.is_empty() {
            return Some(Ok(()));
        }
        if self.is_closed(run.object) {
            let again = Wake::at(self.in_future(run.timeouts.interval));
            let text = "manifests of hooks wait until a window opens".to_owned();
            return Some(Err(Rest::Blocked(reconcile::reason::WINDOW_CLOSED, text, again)));
        }
        // Known until the process ends: after that, they are applied once more.
        let moments = match remembered.has_begun.load(Ordering::Relaxed) {
            true => [When::After].as_slice(),
            false => &[When::Before, When::After],
        };
        let target = &remembered.target;
        let permit = target.applying().run_permit(&self.node.namespace).await;
        match owner.apply_hooks(moments, (target, &permit), &wish.desired).await {
            Ok(Ended::Applied) => {
                remembered.has_begun.store(false, Ordering::Relaxed);
                Some(Ok(()))
            }
            Ok(Ended::Refused(text)) => {
                let again = self.in_future(run.timeouts.retry);
                Some(Err(Rest::Failed(RELEASE_FAILED, text, Wake::at(again))))
            }
            Ok(Ended::Overtaken) => None,
            Err(rest) => Some(Err(rest)),
        }
    }

    /// Whether the windows of the object are closed now.
    fn is_closed(&self, object: &K) -> bool {
        self.gates(object).closes.is_some_and(|at| at <= jiff::Timestamp::now())
    }

    /// What holds releases at their phases: windows.
    fn gates(&self, object: &K) -> Gates {
        let closes = match window::state(object, self.began) {
            None => None,
            Some(WindowState::Open { until, .. }) => until,
            Some(WindowState::Closed { .. } | WindowState::Invalid { .. }) => Some(Time::MIN),
        };
        Gates { closes }
    }
}

/// What a release needs that is not there yet.
fn missing(needs: &[&Key], outcomes: &Outcomes) -> Vec<Key> {
    let is_there = |need: &&&Key| {
        // One that is suspended is as good as it was when it was suspended.
        matches!(
            outcomes.get(**need),
            Some(Outcome::Kept | Outcome::Suspended { is_there: true }) | None
        )
    };
    needs.iter().filter(|need| !is_there(need)).map(|need| Key::clone(need)).collect()
}

/// How the suspension of a release is told.
fn told(entry: &SuspendedRelease) -> String {
    let mut text = "suspended by spec.suspendedReleases".to_owned();
    if let Some(until) = &entry.until {
        text.push_str(&format!(" until {}", until.0.strftime("%Y-%m-%dT%H:%M:%SZ")));
    }
    if let Some(reason) = &entry.reason {
        text.push_str(&format!(": {reason}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_a_cluster_take_the_slots_of_no_other() {
        let mut slots = Slots::default();
        let taken = (0..100).filter(|_| slots.take(Id::Place("dead"))).count();
        assert_eq!(taken, AT_ONCE);
        assert!(slots.take(Id::Context("dead")));
        slots.give_back(Id::Place("dead"));
        assert!(slots.take(Id::Place("dead")) && !slots.take(Id::Place("dead")));
    }

    #[test]
    fn a_suspension_is_of_a_name_a_namespace_and_a_context() {
        let now = Time::UNIX_EPOCH;
        let key = |context: &str| Key {
            context: context.to_owned(),
            namespace: "n".to_owned(),
            name: "db".to_owned(),
        };
        let suspended = |entry: serde_json::Value| {
            let spec = serde_json::json!({"interval": "1m", "suspendedReleases": [entry]});
            let spec: HelmfileSpec = serde_json::from_value(spec).unwrap();
            ["", "east"].map(|context| suspension(&spec, &key(context), now).is_some())
        };
        assert_eq!(suspended(serde_json::json!({"name": "db"})), [true, true]);
        let of =
            |context: &str| suspended(serde_json::json!({"name": "db", "kubeContext": context}));
        assert_eq!(of("east"), [false, true]);
        assert_eq!(of(""), [true, false]);
        assert_eq!(of("west"), [false, false]);
        let elsewhere = serde_json::json!({"name": "db", "namespace": "m", "kubeContext": "east"});
        assert_eq!(suspended(elsewhere), [false, false]);
    }
}
