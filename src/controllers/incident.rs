//! Incidents: failures with one cause, kept as objects, so that Alerts are sent one message when a failure begins and one
//! when it ends.
//!
//! What fails is derived from the conditions of all objects, as the watches saw them last, so a process that takes over
//! comes to the same; what was sent stands in the status of the Incident. An Incident is created before anything is sent
//! about it.
//!
//! Here: one pass, which opens, updates and resolves. Below: what objects report (`observed`), the objects that keep incidents
//! (`book`), when writes pause (`pauses`), what is sent about them (`telling`). Elsewhere: which failures are one incident
//! (`cause::incident`), Alerts and sending (`delivery`).

mod book;
mod observed;
mod pauses;
mod telling;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cause::incident::{self as failures, Identity, Own, Reach, Verdict, is_over};
use crds::incidents::{Incident, IncidentState};
use notify::ObjectReference;
use objects::ObjectId;
use tokio_util::sync::CancellationToken;

use self::book::Book;
pub(crate) use self::observed::Row;
use self::observed::{Listed, Observed};
use self::telling::Teller;
use super::context::Context;
use super::delivery::Delivery;
use super::delivery::incidents::Wanting;
use super::lifecycle::table::{self, Changed, Tabled};

/// How often conditions are compared. What changes in between is one pass.
const EVERY: Duration = Duration::from_secs(1);

/// How long conditions are not compared after that took a while, as a multiple of that time: a twentieth of a core.
const RESTS: u32 = 20;

/// The longest such time.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// How many deleted Incidents are remembered until their ends are sent.
const MOST_GONE: usize = 1_000;

/// How often objects are judged again that did not change: windows and holds begin and end with the time.
const JUDGED_AGAIN: Duration = Duration::from_secs(30);

/// How long a failure lasts before it is an incident, so that what fails for the same cause is known.
const SETTLED: Duration = Duration::from_secs(3);

/// The same for an object that waits for something that is not known to fail, and is most likely about to be reconciled.
const SETTLED_WAITING: Duration = Duration::from_secs(300);

impl Tabled for Incident {
    const NAMESPACED: bool = true;
}

/// Follows Incidents until `stop`.
pub(crate) async fn follow(context: Arc<Context>, stop: CancellationToken) {
    let gone = context.shared::<Gone>();
    let changed = |_: &Context, it: Changed<Incident>| gone.note(it);
    stop.run_until_cancelled(table::follow::<Incident>(context, changed)).await;
}

/// Incidents that another client deleted while they were open, such as with their namespace.
#[derive(Default)]
struct Gone(Mutex<Vec<Arc<Incident>>>);

impl Gone {
    fn note(&self, changed: Changed<Incident>) {
        let Changed { before: Some(before), after } = changed else { return };
        let is_there = after.is_some_and(|after| after.metadata.uid == before.metadata.uid);
        if is_there || book::state(&before) != Some(IncidentState::Open) {
            return;
        }
        let mut gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.len() < MOST_GONE {
            gone.push(before);
        }
    }

    fn take(&self) -> Vec<Arc<Incident>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Opens and resolves incidents until `stop`. `rows` are the kinds whose objects are observed.
pub(crate) async fn run(
    context: Arc<Context>,
    delivery: Arc<Delivery>,
    rows: Vec<Row>,
    stop: CancellationToken,
) {
    let work = async {
        context.cluster.leadership.begun().await;
        if !delivery.listed().await {
            return;
        }
        let gone = context.shared::<Gone>();
        // The process that acted then has sent their ends.
        drop(gone.take());
        let mut run = Run {
            gone,
            book: Book::new(context.clone()),
            teller: Teller::new(context.clone(), delivery.clone()),
            context,
            delivery: delivery.clone(),
            rows,
            observed: Observed::default(),
            judged: Judged::default(),
            next: None,
            since: BTreeMap::new(),
        };
        loop {
            run.pass().await;
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = delivery.outcome() => {}
            }
        }
    };
    stop.run_until_cancelled(work).await;
}

/// What is known of all objects.
#[derive(Default)]
struct Judged {
    at: Option<Instant>,
    verdicts: BTreeMap<ObjectId, Verdict>,
    found: BTreeMap<Identity, failures::Incident>,
    /// The identities of `found`, by what an Incident says of them.
    named: BTreeMap<(ObjectId, String), Identity>,
}

impl Judged {
    fn new(
        verdicts: BTreeMap<ObjectId, Verdict>,
        found: BTreeMap<Identity, failures::Incident>,
    ) -> Self {
        let named = |it: &Identity| ((it.0.clone(), it.1.to_string()), it.clone());
        let named = found.keys().map(named).collect();
        Self { at: Some(Instant::now()), verdicts, found, named }
    }

    /// What an Incident is about, if that still fails.
    fn of(&self, named: &(ObjectId, String)) -> Option<&failures::Incident> {
        self.found.get(self.named.get(named)?)
    }
}

struct Run {
    context: Arc<Context>,
    delivery: Arc<Delivery>,
    rows: Vec<Row>,
    observed: Observed,
    judged: Judged,
    /// When conditions are compared next.
    next: Option<Instant>,
    gone: Arc<Gone>,
    book: Book,
    teller: Teller,
    /// Since when this process knows of a failure.
    since: BTreeMap<Identity, Instant>,
}

impl Run {
    async fn pass(&mut self) {
        self.book.pass();
        self.teller.record(&self.book).await;
        let is_kept = self.book.is_kept(self.delivery.is_incident_wanted()).await;
        self.delivery.keeps_incidents(is_kept);
        for incident in self.gone.take() {
            if self.book.is_own(&incident) {
                self.tell_end(&incident).await;
            }
        }
        if !is_kept {
            return;
        }
        let wanting = self.delivery.wanting();
        if wanting.is_empty() && !self.book.has_unfinished() {
            self.sweep().await;
            self.observed = Observed::default();
            self.judged = Judged::default();
            self.next = None;
            self.since.clear();
            return;
        }
        let listed = Listed::of(&self.rows, &self.context);
        self.judge(&listed).await;
        // The bound of writes is never reached by what begins before what ends.
        self.end(&listed).await;
        self.open(&wanting).await;
        self.tell(&wanting).await;
        self.sweep().await;
    }

    /// Deletes old Incidents.
    async fn sweep(&mut self) {
        let (teller, judged) = (&self.teller, &self.judged);
        let is_needed = |incident: &Incident| {
            let is_found = || book::identity(incident).is_some_and(|it| judged.of(&it).is_some());
            teller.is_waiting(incident) || is_found() && book::state(incident).is_none()
        };
        self.book.sweep(is_needed).await;
    }

    /// Judges all objects, if one changed, unless that took long a short while ago.
    async fn judge(&mut self, listed: &Listed) {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let is_recent = self.judged.at.is_some_and(|at| at.elapsed() < JUDGED_AGAIN);
        let (mut observed, listed) = (std::mem::take(&mut self.observed), listed.clone());
        let (rows, context) = (self.rows.clone(), self.context.clone());
        let judging = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let has_changed = observed.refresh(&rows, &context);
            if is_recent && !has_changed {
                return (observed, None, begun.elapsed());
            }
            let is_confined = context.settings.no_cross_namespace_refs;
            let reach = if is_confined { Reach::OwnNamespace } else { Reach::All };
            let verdicts = observed.judge(&listed, reach, jiff::Timestamp::now());
            let found = failures::incidents(&verdicts);
            (observed, Some(Judged::new(verdicts, found)), begun.elapsed())
        });
        // It panics only by a bug, and begins anew then.
        let Ok((observed, judged, took)) = judging.await else { return };
        self.next = Some(Instant::now() + rest(took));
        self.observed = observed;
        let Some(judged) = judged else { return };
        self.judged = judged;
        let found = &self.judged.found;
        self.since.retain(|identity, _| found.contains_key(identity));
        for identity in found.keys() {
            self.since.entry(identity.clone()).or_insert_with(Instant::now);
        }
    }

    /// Opens incidents, and updates those that are open.
    async fn open(&mut self, wanting: &[Wanting]) {
        for (identity, incident) in &self.judged.found {
            let known = self.book.of(identity);
            if let Some(known) = known.filter(|it| book::state(it) == Some(IncidentState::Open)) {
                self.book.update(&known, incident).await;
                continue;
            }
            let enough = if incident.failure.is_waiting { SETTLED_WAITING } else { SETTLED };
            let lasts = self.since.get(identity).is_some_and(|since| since.elapsed() >= enough);
            let is_ours = self.observed.is_selected(incident);
            if lasts && is_ours && self.is_wanted(incident, wanting) {
                let subject = self.observed.reference(&incident.failure.subject);
                self.book.open(identity, incident, &subject).await;
            }
        }
    }

    /// Whether an Alert names the subject or an object that is affected.
    fn is_wanted(&self, incident: &failures::Incident, wanting: &[Wanting]) -> bool {
        let about = self.about(incident);
        wanting.iter().any(|it| about.iter().any(|object| self.delivery.names(it, object)))
    }

    /// The objects of an incident, the subject first.
    fn about(&self, incident: &failures::Incident) -> Vec<ObjectReference> {
        let all = std::iter::once(&incident.failure.subject).chain(&incident.affected);
        all.map(|id| self.observed.reference(id)).collect()
    }

    /// Resolves incidents that have ended.
    async fn end(&mut self, listed: &Listed) {
        // Before anything was judged all would look deleted.
        if self.judged.at.is_none() {
            return;
        }
        for object in self.book.open_ones() {
            let Some(identity) = book::identity(&object) else { continue };
            // Of a kind that was not listed nothing is known.
            if self.judged.of(&identity).is_some() || !listed.has(&identity.0) {
                continue;
            }
            let affected = book::affected(&object);
            let (subject, problem) = &identity;
            if is_over((subject, problem.as_str()), &affected, &self.judged.verdicts) {
                self.book.resolve(&object).await;
            }
        }
    }

    /// Has sent what is due.
    async fn tell(&mut self, wanting: &[Wanting]) {
        for object in self.book.open_ones() {
            let Some(identity) = book::identity(&object) else { continue };
            let subject = &identity.0;
            let own = self.judged.verdicts.get(subject).map(|it| it.own);
            let due = self.teller.due(&object, wanting, own == Some(Own::Paused));
            if due.is_empty() {
                continue;
            }
            let about = self.judged.of(&identity).map(|it| self.about(it));
            let about = about.unwrap_or_else(|| vec![self.observed.reference(subject)]);
            let controller = self.observed.controller(subject);
            self.teller.opened(&object, (&about, controller), due).await;
        }
        for object in self.book.resolved_ones() {
            self.tell_end(&object).await;
        }
        for step in self.teller.take_late() {
            let mark = &step.mark;
            let object = self.book.get(&mark.namespace, &mark.name, &mark.uid);
            let Some(object) = object else { continue };
            let Some((subject, _)) = book::identity(&object) else { continue };
            let about = self.observed.reference(&subject);
            let controller = self.observed.controller(&subject);
            self.teller.ended_early(&object, (&about, controller), step).await;
        }
    }

    /// Has sent that an incident has ended.
    async fn tell_end(&mut self, incident: &Incident) {
        let Some((subject, _)) = book::identity(incident) else { return };
        let about = self.observed.reference(&subject);
        let controller = self.observed.controller(&subject);
        self.teller.resolved(incident, (&about, controller)).await;
    }
}

/// How long conditions are not compared after that took a while.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(RESTS).clamp(EVERY, LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn judging_takes_a_twentieth_of_a_core_at_most_but_for_very_many_objects() {
        let rests = [1, 100, 400, 5_000].map(|took| rest(Duration::from_millis(took)).as_millis());
        assert_eq!(rests, [1_000, 2_000, 8_000, 10_000]);
    }

    #[test]
    fn an_incident_that_is_deleted_while_it_is_open_is_remembered_once() {
        let incident = |uid: &str, state: &str| {
            let mut it = Incident::new("i", crds::incidents::IncidentSpec::default());
            it.metadata.uid = Some(uid.to_owned());
            it.status = serde_json::from_value(json!({"state": state})).unwrap();
            Some(Arc::new(it))
        };
        let gone = Gone::default();
        let note = |before, after| gone.note(Changed { before, after });
        note(None, incident("a", "Open"));
        note(incident("a", "Open"), incident("a", "Resolved"));
        note(incident("b", "Resolved"), None);
        assert!(gone.take().is_empty());
        note(incident("a", "Open"), None);
        note(incident("c", "Open"), incident("d", "Open"));
        let uids: Vec<_> = gone.take().iter().filter_map(|it| it.metadata.uid.clone()).collect();
        assert_eq!(uids, ["a", "c"]);
        assert!(gone.take().is_empty());
    }
}
