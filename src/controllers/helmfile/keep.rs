//! Keeping the releases of a plan: which of them may be operated on now, many at a time; then those that left.
//!
//! Elsewhere: one release (`releaser`), what is asked of it (`request.rs`), what is said of it (`book.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crds::helm::HelmRelease;
use crds::helmfile::{HelmfileSpec, ReleaseRow, ReleaseState, SuspendedRelease};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use helmfile::{ManifestHook, When};
use reconcile::{Node, Rest, Time, Wake, WindowState};
use release::phase::Gates;
use release::{Desired, Origin};

use super::book::{Book, ReleaseOwner};
use super::hooks::At;
use super::model::Model;
use super::places::Places;
use super::plan::{Key, Planned, PlannedRelease};
use super::report::{RELEASE_FAILED, is_under_way};
use super::wish::Timeouts;
use super::{Session, request};
use crate::controllers::applier::Applied as _;
use crate::controllers::helm_release::{report, status, wish};
use crate::controllers::releaser::action_options::ActionOptions;
use crate::controllers::releaser::postrender::PostRenderers;
use crate::controllers::releaser::{Wish, drive};
use crate::controllers::target::Target;
use crate::controllers::{helm_release, marks, window};
use objects::Masking;

/// How many releases of one Helmfile are operated on at a time.
const AT_ONCE: usize = 8;

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
    pub(super) now: Time,
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
    fn remembered(&self, key: &Key, target: &Arc<Target>) -> Arc<Remembered> {
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
        let mut outcomes = Outcomes::new();
        let mut left: Vec<&PlannedRelease> = planned.releases.iter().collect();
        let mut under_way = FuturesUnordered::new();
        loop {
            let mut waiting = Vec::new();
            for release in left {
                let needs = planned.needs_of(release);
                let unknown = needs.iter().any(|need| !outcomes.contains_key(*need));
                if unknown || under_way.len() >= AT_ONCE {
                    waiting.push(release);
                    continue;
                }
                let missing = missing(&needs, &outcomes);
                let is_under_way = self.is_known_under_way(&release.key);
                if missing.is_empty() || is_under_way {
                    under_way.push(async move { (release, self.keep_one(release, run).await) });
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

    async fn keep_one(&self, planned: &PlannedRelease, run: &Run<'_, K>) -> Option<Outcome> {
        let (key, node) = (&planned.key, self.part(&planned.key));
        let target = match run.places.of(key) {
            Ok(target) => target,
            Err(rest) => return Some(Outcome::Rests(rest)),
        };
        let spec = request::spec(run.spec, key, &planned.operation, run.timeouts);
        let digest = request::digest(planned, &spec, target.place());
        let remembered = self.remembered(key, target);
        let row = run.book.row(key);
        let suspended = suspension(run.spec, key, run.now);
        let as_before = remembered.last().filter(|last| {
            last.digest == digest
                && last.generation == run.object.meta().generation
                && !marks::is_asked(&**run.object)
                && !run.woken.contains(&node)
        });
        if let Some(outcome) =
            as_before.and_then(|last| self.unchanged(&last, (target, &node), run))
        {
            return Some(outcome);
        }
        if let Some(entry) = suspended {
            let is_under_way = remembered.drive.under_way() == Some(true)
                || row.as_ref().is_some_and(|row| row.state == ReleaseState::Progressing);
            if is_under_way {
                let made = self.wish(run, key, spec.clone(), None, row.as_ref(), (true, false));
                let (wish, made) = match made {
                    Ok(made) => made,
                    Err(rest) => return Some(Outcome::Rests(rest)),
                };
                let rest = self.drive(run, (key, &Arc::default()), wish, made, &remembered).await?;
                if !matches!(&rest, Rest::Blocked(why, ..) if *why == reconcile::reason::SUSPENDED)
                {
                    return Some(Outcome::Rests(rest));
                }
            }
            target.watcher().release_objects(&node);
            remembered.set_last(None);
            run.book.update(key, |row| {
                row.state = ReleaseState::Suspended;
                row.message = Some(told(entry));
            });
            let is_there = row.is_some_and(|row| row.digest.is_some());
            return Some(Outcome::Suspended { is_there });
        }
        let made = self.wish(run, key, spec, Some(planned), row.as_ref(), (false, false));
        let (wish, made) = match made {
            Ok(made) => made,
            Err(rest) => return Some(Outcome::Rests(rest)),
        };
        let mut rest = self.drive(run, (key, &planned.hooks), wish, made, &remembered).await?;
        let is_new = row.and_then(|row| row.digest).is_none_or(|known| known != digest);
        if is_new
            && rest.is_settled()
            && let Err(failed) = self.apply_hooks(planned, (target, &remembered), run).await
        {
            run.book.update(key, |row| {
                row.state = ReleaseState::Failed;
                row.message = Some(failed.text().to_owned());
            });
            rest = failed;
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
            rest => {
                let due = rest.wake().and_then(Wake::earliest).is_none_or(|at| at <= run.now);
                (!due).then(|| Outcome::Rests(rest.clone()))
            }
        }
    }

    /// What is wished for a release: of a plan, or that it stops or goes.
    fn wish(
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
        let desired = wish::desired(&object, parts, &timeouts, is_suspended, settings);
        let source = run.object.source().map(|it| it.to_string()).unwrap_or_default();
        let origin = Origin { source, revision: run.revision.to_owned(), ..desired.origin.clone() };
        let options = ActionOptions::of(&object.spec, settings);
        let options = match planned {
            Some(planned) => options.skipping_schema(planned.skips_schema),
            None => options,
        };
        let post = PostRenderers::of(&[], None, BTreeMap::new(), options.post_render);
        let wish = Wish {
            desired: Desired { gates: self.gates(run.object), origin, ..desired },
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

    /// Does for a release what the machine says until it rests, and writes down how it is; nothing where the Helmfile
    /// changed meanwhile.
    async fn drive(
        &self,
        run: &Run<'_, K>,
        (key, hooks): (&Key, &Arc<[ManifestHook]>),
        wish: Arc<Wish>,
        object: HelmRelease,
        remembered: &Remembered,
    ) -> Option<Rest> {
        let owner = Arc::new(ReleaseOwner {
            book: run.book.clone(),
            key: key.clone(),
            release: Mutex::new(Arc::new(object)),
            hooks: hooks.clone(),
            has_begun: AtomicBool::new(false),
        });
        let at = (&remembered.target, &remembered.node);
        let driven = drive::drive(&self.context, at, &owner, &wish, &remembered.drive).await;
        remembered.has_begun.fetch_or(owner.has_begun.load(Ordering::Relaxed), Ordering::Relaxed);
        let driven = driven?;
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
    /// need not have been.
    async fn apply_hooks(
        &self,
        planned: &PlannedRelease,
        (target, remembered): (&Arc<Target>, &Remembered),
        run: &Run<'_, K>,
    ) -> Result<(), Rest> {
        if planned.hooks.is_empty() {
            return Ok(());
        }
        // Known until the process ends: after that, they are applied once more.
        let has_begun = remembered.has_begun.load(Ordering::Relaxed);
        let hooks = planned.hooks.iter().filter(|it| it.when == When::After || !has_begun);
        let permit = target.applying().run_permit(&self.node.namespace).await;
        let (context, namespace) = (&*self.context, &planned.key.namespace);
        let at = At { context, target, permit: &permit, namespace };
        match at.apply(hooks).await? {
            None => {
                remembered.has_begun.store(false, Ordering::Relaxed);
                Ok(())
            }
            Some(text) => {
                let again = self.in_future(run.timeouts.retry);
                Err(Rest::Failed(RELEASE_FAILED, run.secrets.mask(&text), Wake::at(again)))
            }
        }
    }

    /// Has operations that are under way come to the next place at which nothing is half done; what is not there yet is
    /// in the answer.
    pub(super) async fn stop_all(&self, run: &Run<'_, K>) -> Option<Outcomes> {
        let rows = run.book.rows();
        let open: Vec<Key> = rows.iter().filter(|row| is_under_way(row)).map(Key::of).collect();
        let mut outcomes = Outcomes::new();
        for key in open {
            // Nothing goes on where nobody can reach.
            let Some(target) = run.places.find(&key) else { continue };
            let spec = request::spec(run.spec, &key, &request::unplanned(), run.timeouts);
            let row = run.book.row(&key);
            let made = self.wish(run, &key, spec, None, row.as_ref(), (true, false));
            let (wish, object) = match made {
                Ok(made) => made,
                Err(rest) => {
                    outcomes.insert(key, Outcome::Rests(rest));
                    continue;
                }
            };
            let remembered = self.remembered(&key, target);
            let none = Arc::default();
            let rest = self.drive(run, (&key, &none), wish, object, &remembered).await?;
            if !matches!(&rest, Rest::Blocked(why, ..) if *why == reconcile::reason::SUSPENDED) {
                outcomes.insert(key, Outcome::Rests(rest));
            }
        }
        Some(outcomes)
    }

    /// Uninstalls releases, those that others need after these; nothing where the Helmfile changed meanwhile. What is not
    /// gone yet is in the answer.
    pub(super) async fn uninstall(&self, leaving: &[Key], run: &Run<'_, K>) -> Option<Outcomes> {
        for key in leaving {
            run.book.update(key, |row| row.state = ReleaseState::Uninstalling);
        }
        let mut outcomes = Outcomes::new();
        let mut left: BTreeSet<Key> = leaving.iter().cloned().collect();
        loop {
            let rows = run.book.rows();
            let needed = |key: &Key| {
                let id = key.to_string();
                rows.iter()
                    .any(|row| row.needs.contains(&id) && leaving.iter().any(|it| it.is_of(row)))
            };
            let ready: Vec<Key> =
                left.iter().filter(|key| !needed(key)).take(AT_ONCE).cloned().collect();
            if ready.is_empty() {
                let waits = |key: Key| (key, Outcome::Waits(Vec::new()));
                outcomes.extend(left.into_iter().map(waits));
                return Some(outcomes);
            }
            let gone =
                ready.iter().map(|key| async move { (key, self.uninstall_one(key, run).await) });
            for (key, rest) in futures::future::join_all(gone).await {
                left.remove(key);
                match rest? {
                    Rest::Settled(..) => {
                        run.book.remove(key);
                        self.forget(key);
                    }
                    rest => drop(outcomes.insert(key.clone(), Outcome::Rests(rest))),
                }
            }
        }
    }

    async fn uninstall_one(&self, key: &Key, run: &Run<'_, K>) -> Option<Rest> {
        let spec = request::spec(run.spec, key, &request::unplanned(), run.timeouts);
        let row = run.book.row(key);
        let made = self.wish(run, key, spec, None, row.as_ref(), (false, true));
        let (wish, object) = match made {
            Ok(made) => made,
            Err(rest) => return Some(rest),
        };
        let target = match run.places.of(key) {
            Ok(target) => target,
            Err(rest) => return Some(rest),
        };
        let remembered = self.remembered(key, target);
        self.drive(run, (key, &Arc::default()), wish, object, &remembered).await
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
