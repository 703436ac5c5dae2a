//! Incidents: failures with one cause, kept as objects. Alerts are sent one message when a failure begins and one when it
//! ends.
//!
//! Windlass derives failures from the conditions of all objects, as the watches saw them last, so another process comes to the
//! same result. The status of the Incident records which notifications were sent. An Incident is created before any
//! notification about it is sent.
//!
//! Here: one pass, which opens, updates and resolves. Below: the conditions of objects (`observed_objects`), Providers whose
//! services accept no notifications (`provider_incidents`), kinds that are not served (`absent_kinds`), the Incident objects
//! (`incident_store`), which process keeps an Incident (`incident_shard`), when writes pause (`write_backoff`), the turns of
//! namespaces (`namespace_round_robin`), notifications about incidents (`alerts_of_incident`, `incident_notifier`,
//! `incident_event`), and notifications that are sent after all (`suppression_decision`).
//! Elsewhere: which failures are one incident (`cause::incident`), Alerts and sending (`delivery`).

mod absent_kinds;
mod alerts_of_incident;
mod incident_event;
mod incident_notifier;
mod incident_shard;
pub mod incident_silence;
mod incident_store;
mod namespace_round_robin;
mod observed_objects;
mod provider_incidents;
mod suppression_decision;
#[cfg(test)]
mod testing;
mod write_backoff;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cause::CauseKind;
use cause::incident::{
    self as failures, IncidentIdentity, IncidentRecord, ObjectFailureVerdict, ReportedObjectState,
    RootFailureSearchScope, is_over,
};
use crds::notification::{Alert, Provider};
use crds::windlass_notification::{Incident, IncidentState, IncidentStep};
use kube_core::{Resource as _, ResourceExt as _};
use notify::ObjectReference;
use objects::ObjectId;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::absent_kinds::{AbsentKinds, KIND_CHECK_INTERVAL, end_of_kind};
use self::alerts_of_incident::IncidentAlertIndex;
use self::incident_notifier::{IncidentNotifier, IncidentOpenNotificationState};
use self::incident_store::IncidentWriter;
use self::namespace_round_robin::NamespaceRoundRobin;
pub use self::observed_objects::ObservedKind;
use self::observed_objects::{ListedKinds, ObservedObjects};
use self::suppression_decision::{SuppressionDecision, decision};
use super::delivery::incident_notifications::{IncidentAvailability, IncidentSubscriber};
use super::delivery::suppressed_notifications::{AlertObjectPair, NotificationWaitStart};
use super::delivery::{
    LastDeliveries, LastDeliveryOutcome, NotificationDelivery, ProviderKey, wait_for_alerts,
};
use windlass_runtime::lifecycle::watched_object_cache::{self, CachedObjectChange};
use windlass_runtime::run_context::RunContext;

/// How often conditions are compared. One pass handles all changes since the last comparison.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);

/// How long windlass waits after a comparison, as a multiple of the time that the comparison took. So comparisons take a
/// twentieth of a core.
const COMPARISON_REST_FACTOR: u32 = 20;

/// The longest such wait.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// The most deleted Incidents that are remembered until their ends are sent, of a namespace and of all namespaces.
const MOST_GONE: usize = 1_000;
const MOST_GONE_IN_ALL: usize = 20_000;

/// After this number of steps, other tasks have their turn. The lists here are as long as users make them.
const AT_ONCE: usize = 64;

/// How long a failure without an open Incident lasts before it counts as known to users. The Incident may be missing because
/// no Alert selects it, or because the API server rejects it.
const MAX_OPENING_TIME: Duration = Duration::from_secs(30);

/// How often unchanged objects are judged again, because windows and holds begin and end with time.
const JUDGED_AGAIN: Duration = Duration::from_secs(30);

/// How long a failure lasts before it becomes an incident. Until then, other failures of the same cause are found.
const MIN_FAILURE_AGE: Duration = Duration::from_secs(3);

/// The same time for an object that waits for another object without a known failure. Most likely the object is about to be
/// reconciled.
const SETTLED_WAITING: Duration = Duration::from_secs(300);

/// Follows Incidents until `stop`.
pub async fn follow(context: Arc<RunContext>, stop: CancellationToken) {
    let gone = context.shared::<DeletedIncidents>();
    let changed = |_: &RunContext, it: CachedObjectChange<Incident>| gone.note(it);
    stop.run_until_cancelled(watched_object_cache::follow::<Incident>(context, changed)).await;
}

/// Open Incidents that another client deleted, such as with their namespace.
#[derive(Default)]
struct DeletedIncidents(Mutex<DeletedIncidentEnds>);

impl DeletedIncidents {
    fn note(&self, changed: CachedObjectChange<Incident>) {
        let CachedObjectChange { before: Some(before), after } = changed else { return };
        let is_there = after.is_some_and(|after| after.metadata.uid == before.metadata.uid);
        if is_there || !is_open(&before) || !has_sent_beginning(&before) {
            return;
        }
        self.0.lock().add(before);
    }

    fn take(&self) -> DeletedIncidentEnds {
        std::mem::take(&mut *self.0.lock())
    }
}

fn is_open(incident: &Incident) -> bool {
    incident_store::state(incident) == Some(IncidentState::Open)
}

/// Whether an Alert was sent the beginning of an incident, and so wants its end.
fn has_sent_beginning(incident: &Incident) -> bool {
    let notifications = incident.status.iter().flat_map(|status| &status.notifications);
    notifications.into_iter().any(|sent| sent.state == IncidentStep::Opened)
}

/// Deleted Incidents whose ends are to be sent.
#[derive(Default)]
struct DeletedIncidentEnds {
    by_namespace: BTreeMap<String, Vec<Arc<Incident>>>,
    count: usize,
    /// The number of Incidents that exceeded the limits.
    dropped: usize,
}

impl DeletedIncidentEnds {
    fn add(&mut self, incident: Arc<Incident>) {
        let namespace = incident.namespace().unwrap_or_default();
        let own = self.by_namespace.get(&namespace).map_or(0, Vec::len);
        if own >= MOST_GONE || (self.count >= MOST_GONE_IN_ALL && !self.make_room(own)) {
            self.dropped += 1;
            return;
        }
        self.count += 1;
        self.by_namespace.entry(namespace).or_default().push(incident);
    }

    /// Forgets an Incident of the namespace with the most Incidents, if that namespace has more than `own`.
    fn make_room(&mut self, own: usize) -> bool {
        let most = self.by_namespace.values_mut().max_by_key(|it| it.len());
        let Some(most) = most.filter(|most| most.len() > own) else { return false };
        most.pop();
        self.count -= 1;
        self.dropped += 1;
        true
    }

    fn into_all(self) -> impl Iterator<Item = Arc<Incident>> {
        self.by_namespace.into_values().flatten()
    }
}

/// Opens and resolves incidents until `stop`. `rows` are the kinds whose objects are observed.
pub async fn run(
    context: Arc<RunContext>,
    delivery: Arc<NotificationDelivery>,
    rows: Vec<ObservedKind>,
    stop: CancellationToken,
) {
    let work = async {
        context.cluster.leadership.begun().await;
        if !await_alerts_or_their_absence(&context, &rows).await {
            return;
        }
        let gone = context.shared::<DeletedIncidents>();
        // The process that acted then has sent their ends.
        drop(gone.take());
        let mut run = IncidentReconcileLoop {
            gone,
            book: IncidentWriter::new(context.clone(), &rows),
            available_since: None,
            absent: context.shared::<AbsentKinds>(),
            notifier: IncidentNotifier::new(context.clone(), delivery.incidents.clone()),
            deliveries: context.shared::<LastDeliveries>(),
            delivered: BTreeMap::new(),
            context,
            delivery: delivery.clone(),
            rows,
            observed: ObservedObjects::default(),
            judged: IncidentAssessment::default(),
            compared: None,
            next: None,
            since: BTreeMap::new(),
            affected: BTreeMap::new(),
            over: BTreeMap::new(),
            turns: NamespaceRoundRobin::default(),
        };
        loop {
            run.pass().await;
            tokio::select! {
                () = tokio::time::sleep(COMPARISON_INTERVAL) => {}
                () = delivery.incidents.outcome() => {}
            }
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Waits until Alerts and Providers were listed, or are known not to be served. Open incidents end also without them. Returns
/// false if their watch ended before.
async fn await_alerts_or_their_absence(context: &RunContext, rows: &[ObservedKind]) -> bool {
    let absent = context.shared::<AbsentKinds>();
    loop {
        tokio::select! {
            are_listed = wait_for_alerts(context) => return are_listed,
            () = tokio::time::sleep(KIND_CHECK_INTERVAL) => {}
        }
        absent.check(rows, &context.cluster).await;
        let listed = ListedKinds::of(rows, context);
        if listed.has_kind(&Alert::group(&()), &Alert::kind(&()))
            && listed.has_kind(&Provider::group(&()), &Provider::kind(&()))
        {
            return true;
        }
    }
}

/// The known facts about all objects.
#[derive(Default)]
struct IncidentAssessment {
    at: Option<Instant>,
    /// The kinds whose objects were judged. Nothing is known about objects of other kinds.
    listed: ListedKinds,
    verdicts: BTreeMap<ObjectId, ObjectFailureVerdict>,
    found: BTreeMap<IncidentIdentity, failures::Incident>,
    /// The identities of `found`, by their subjects.
    by_subject: BTreeMap<ObjectId, Vec<IncidentIdentity>>,
}

impl IncidentAssessment {
    fn new(
        listed: ListedKinds,
        verdicts: BTreeMap<ObjectId, ObjectFailureVerdict>,
        found: BTreeMap<IncidentIdentity, failures::Incident>,
    ) -> Self {
        let mut by_subject: BTreeMap<ObjectId, Vec<IncidentIdentity>> = BTreeMap::new();
        for identity in found.keys() {
            by_subject.entry(identity.0.clone()).or_default().push(identity.clone());
        }
        Self { at: Some(Instant::now()), listed, verdicts, found, by_subject }
    }

    /// The failure that an Incident is about, if it still lasts.
    fn of(&self, subject: &ObjectId, problem: &str) -> Option<&failures::Incident> {
        let mut identities = self.by_subject.get(subject)?.iter();
        self.found.get(identities.find(|it| it.1.to_string() == problem)?)
    }
}

struct IncidentReconcileLoop {
    context: Arc<RunContext>,
    delivery: Arc<NotificationDelivery>,
    rows: Vec<ObservedKind>,
    observed: ObservedObjects,
    deliveries: Arc<LastDeliveries>,
    /// The last deliveries at the time of the last judgement.
    delivered: BTreeMap<ProviderKey, LastDeliveryOutcome>,
    judged: IncidentAssessment,
    /// The time of the last comparison of conditions, also if nothing had changed.
    compared: Option<Instant>,
    /// The time of the next comparison of conditions.
    next: Option<Instant>,
    gone: Arc<DeletedIncidents>,
    absent: Arc<AbsentKinds>,
    book: IncidentWriter,
    /// Since when Incidents can be kept.
    available_since: Option<Instant>,
    notifier: IncidentNotifier,
    /// Since which comparison this process has known a failure.
    since: BTreeMap<IncidentIdentity, Instant>,
    /// The objects that may still be affected, though they do not report it now.
    affected: BTreeMap<IncidentIdentity, BTreeSet<ObjectId>>,
    /// Since which comparison an open Incident has nothing more to report, by its uid.
    over: BTreeMap<String, Instant>,
    turns: NamespaceRoundRobin,
}

/// A write that an incident needs.
enum IncidentWrite {
    /// The incident has ended.
    Resolve(Arc<Incident>),
    Open(IncidentIdentity),
    Update(Arc<Incident>, IncidentIdentity),
}

/// Lets other tasks have their turn after some steps.
async fn pause(step: usize) {
    if step % AT_ONCE == AT_ONCE - 1 {
        tokio::task::yield_now().await;
    }
}

/// Whether a failure has lasted long enough to be an incident. That depends on how long this process has known it, and on its
/// condition.
///
/// The condition outlives the process. Other failures of the same cause are known only after [`MIN_FAILURE_AGE`].
fn lasts(known: Duration, failing: Option<Duration>, is_waiting: bool) -> bool {
    let enough = if is_waiting { SETTLED_WAITING } else { MIN_FAILURE_AGE };
    known >= MIN_FAILURE_AGE && failing.unwrap_or_default().max(known) >= enough
}

/// How long a fact has been known that held at one comparison of conditions and at the last one. Time without comparisons does
/// not count.
fn known_for(since: Option<Instant>, compared: Option<Instant>) -> Duration {
    let both = since.zip(compared);
    both.map_or(Duration::ZERO, |(since, compared)| compared.saturating_duration_since(since))
}

impl IncidentReconcileLoop {
    async fn pass(&mut self) {
        self.book.pass();
        self.notifier.record(&mut self.book).await;
        // All Providers were listed before the first pass, or are not served. So a Provider that is not seen does not exist.
        let now = jiff::Timestamp::now();
        self.deliveries.retain(|key| {
            let provider = self.context.seen::<Provider>(&key.namespace, &key.name);
            provider_incidents::judged_uid(provider.as_deref(), now)
        });
        let is_failing = self.deliveries.has_failures();
        let is_wanted = self.delivery.incidents.are_wanted();
        let availability = self.book.availability(is_wanted, is_failing).await;
        self.delivery.incidents.set_availability(availability);
        let is_kept = availability == IncidentAvailability::Kept;
        self.available_since =
            self.available_since.filter(|_| is_kept).or_else(|| is_kept.then(Instant::now));
        let gone = self.gone.take();
        if gone.dropped > 0 {
            let count = gone.dropped;
            tracing::warn!(
                count,
                "too many open Incidents were deleted at once, the ends of some are not sent"
            );
        }
        for incident in gone.into_all() {
            if self.book.is_own(&incident) {
                self.tell_end(&incident).await;
            }
        }
        let subscribers = if is_kept { self.delivery.incidents.subscribers() } else { Vec::new() };
        let is_at_rest = |incident: &Incident| {
            provider_incidents::is_at_rest(incident, now, |namespace, name| {
                self.context.seen::<Provider>(namespace, name)
            })
        };
        let is_needed = is_kept && (is_failing || self.book.has_unfinished(is_at_rest));
        if subscribers.is_empty() && !is_needed {
            self.send_suppressed().await;
            if is_kept {
                self.sweep().await;
            }
            self.observed = ObservedObjects::default();
            self.judged = IncidentAssessment::default();
            self.compared = None;
            self.next = None;
            self.since.clear();
            self.affected.clear();
            self.over.clear();
            return;
        }
        // An absent kind may be installed meanwhile.
        if self.book.has_open() || self.absent.has_any() {
            self.absent.check(&self.rows, &self.context.cluster).await;
        }
        self.judge().await;
        let audience =
            IncidentAlertIndex::new(&subscribers, self.context.settings.no_cross_namespace_refs);
        self.write(&audience).await;
        self.tell(&subscribers, &audience).await;
        self.send_suppressed().await;
        self.sweep().await;
    }

    /// Deletes old Incidents.
    async fn sweep(&mut self) {
        let notifier = &self.notifier;
        let judged = &self.judged;
        let is_needed = |incident: &Incident| {
            let is_found = || {
                incident_store::identity(incident)
                    .is_some_and(|it| judged.of(&it.0, &it.1).is_some())
            };
            notifier.is_waiting(incident) || is_found() && incident_store::state(incident).is_none()
        };
        self.book.sweep(is_needed).await;
    }

    /// Judges all objects, if one changed or a further kind was listed, unless that took long a short while ago.
    async fn judge(&mut self) {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let delivered = self.deliveries.all();
        let listed = ListedKinds::of(&self.rows, &self.context);
        let is_same = delivered == self.delivered && listed == self.judged.listed;
        let is_recent = is_same && self.judged.at.is_some_and(|at| at.elapsed() < JUDGED_AGAIN);
        self.delivered = delivered.clone();
        let mut observed = std::mem::take(&mut self.observed);
        let rows = self.rows.clone();
        let context = self.context.clone();
        let compared = Instant::now();
        let judging = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let has_changed = observed.refresh(&rows, &context);
            if is_recent && !has_changed {
                return (observed, None, begun.elapsed());
            }
            let is_confined = context.settings.no_cross_namespace_refs;
            let reach = if is_confined {
                RootFailureSearchScope::OwnNamespace
            } else {
                RootFailureSearchScope::All
            };
            let mut verdicts = observed.judge(&listed, reach, jiff::Timestamp::now());
            failures::join_cycles(&mut verdicts, reach);
            provider_incidents::judge(&mut verdicts, &delivered);
            let found = failures::incidents(&verdicts);
            (observed, Some(IncidentAssessment::new(listed, verdicts, found)), begun.elapsed())
        });
        // The judgement only panics because of a bug, and is then repeated.
        let Ok((observed, judged, took)) = judging.await else { return };
        self.next = Some(Instant::now() + pause_after(took));
        self.compared = Some(compared);
        self.observed = observed;
        let Some(judged) = judged else { return };
        self.judged = judged;
        let found = &self.judged.found;
        self.since.retain(|identity, _| found.contains_key(identity));
        for identity in found.keys() {
            self.since.entry(identity.clone()).or_insert(compared);
        }
        failures::keep_affected(&mut self.affected, found, &self.judged.verdicts);
        let book = &self.book;
        self.affected.retain(|identity, _| {
            found.contains_key(identity) || book.of(identity).is_some_and(|it| is_open(&it))
        });
    }

    /// Makes the writes for incidents. Namespaces take turns, and in each namespace the ended incidents come first.
    async fn write(&mut self, audience: &IncidentAlertIndex) {
        let mut needs = self.ended().await;
        needs.extend(self.begun(audience).await);
        for (namespace, need) in self.turns.order(needs) {
            if !self.book.has_writes() {
                break;
            }
            self.turns.served(&namespace);
            match need {
                IncidentWrite::Resolve(incident) => self.resolve(&incident).await,
                IncidentWrite::Open(identity) => {
                    let Some(incident) = self.judged.found.get(&identity) else { continue };
                    let subject = self.observed.reference(&incident.failure.subject);
                    let labels = self.observed.shard_labels(incident);
                    self.book.open(&identity, incident, &subject, labels).await;
                }
                IncidentWrite::Update(known, identity) => {
                    let Some(incident) = self.judged.found.get(&identity) else { continue };
                    self.book.update(&known, incident).await;
                }
            }
        }
    }

    /// Resolves an incident, if the API server has its subject as it was judged.
    async fn resolve(&mut self, incident: &Incident) {
        let Some((subject, _)) = incident_store::identity(incident) else { return };
        let judged = self.observed.reference(&subject);
        if !self.book.confirms(incident, &subject, &judged).await {
            return;
        }
        let is_served = !self.absent.has(&[subject.group.clone(), subject.kind.clone()]);
        let end = (!is_served).then(|| end_of_kind(&subject));
        self.book.resolve(incident, end.as_deref()).await;
    }

    /// Incidents that are to be opened, and then those that are open.
    async fn begun(&self, audience: &IncidentAlertIndex) -> Vec<(String, IncidentWrite)> {
        let mut opened = Vec::new();
        let mut updated = Vec::new();
        for (step, (identity, incident)) in self.judged.found.iter().enumerate() {
            pause(step).await;
            let namespace = identity.0.namespace.clone();
            let known = self.book.of(identity);
            if let Some(known) = known.filter(|it| is_open(it)) {
                if self.book.is_own(&known) {
                    updated.push((namespace, IncidentWrite::Update(known, identity.clone())));
                }
                continue;
            }
            let since = self.since.get(identity).copied();
            let known = known_for(since, self.compared);
            let failing = incident.failure.since.and_then(|since| {
                Duration::try_from(jiff::Timestamp::now().duration_since(since)).ok()
            });
            let is_of_audience = || {
                self.observed.is_selected(incident) && !audience.of(objects_of(incident)).is_empty()
            };
            // No Alert has to select a Provider for this incident.
            if lasts(known, failing, incident.failure.is_waiting)
                && (identity.1 == CauseKind::Delivery || is_of_audience())
            {
                opened.push((namespace, IncidentWrite::Open(identity.clone())));
            }
        }
        opened.extend(updated);
        opened
    }

    /// The objects of an incident, the subject first.
    fn about(&self, incident: &failures::Incident) -> Vec<ObjectReference> {
        objects_of(incident).map(|id| self.observed.reference(id)).collect()
    }

    /// Incidents that have ended, after a delay as long as the one before an incident opens. So no Alert is sent an end and a
    /// beginning within seconds.
    async fn ended(&mut self) -> Vec<(String, IncidentWrite)> {
        let mut ended = Vec::new();
        // Before anything was judged all would look deleted.
        let Some(compared) = self.compared else { return ended };
        let mut over = BTreeMap::new();
        for (step, object) in self.book.open_ones().into_iter().enumerate() {
            pause(step).await;
            let Some((subject, problem)) = incident_store::identity(&object) else { continue };
            // Nothing is known about a kind that was not listed before the objects were judged.
            if !self.judged.listed.has(&subject) || !self.is_over(&object, &subject, &problem) {
                continue;
            }
            let uid = object.uid().unwrap_or_default();
            let since = self.over.get(&uid).copied().unwrap_or(compared);
            over.insert(uid, since);
            if known_for(Some(since), self.compared) >= MIN_FAILURE_AGE {
                ended.push((subject.namespace, IncidentWrite::Resolve(object)));
            }
        }
        self.over = over;
        ended
    }

    /// Whether the failure of an Incident has ended, or has become another failure that users know.
    fn is_over(&self, object: &Incident, subject: &ObjectId, problem: &str) -> bool {
        if self.judged.of(subject, problem).is_some() {
            return false;
        }
        // Of other classes none are kept.
        let class = [CauseKind::Missing, CauseKind::Artifact]
            .into_iter()
            .find(|class| class.to_string() == problem);
        let record = IncidentRecord {
            subject,
            problem,
            cause: &object.spec.cause.object,
            affected: &incident_store::affected(object),
            kept: class.and_then(|class| self.affected.get(&(subject.clone(), class))),
            are_all_judged: self.judged.listed.is_complete(),
        };
        let is_known = |identity: &IncidentIdentity| {
            let has_lasted = |since: &Instant| since.elapsed() >= MAX_OPENING_TIME;
            self.book.of(identity).is_some_and(|it| is_open(&it))
                || self.since.get(identity).is_some_and(has_lasted)
        };
        is_over(&record, &self.judged.verdicts, is_known)
    }

    /// Sends the due notifications.
    async fn tell(&mut self, subscribers: &[IncidentSubscriber], audience: &IncidentAlertIndex) {
        for (step, object) in self.book.open_ones().into_iter().enumerate() {
            pause(step).await;
            let Some(identity) = incident_store::identity(&object) else { continue };
            // A notification about failing deliveries would not be delivered either.
            if identity.1 == CauseKind::Delivery.to_string() {
                continue;
            }
            let subject = &identity.0;
            let failing = self.judged.of(&identity.0, &identity.1);
            let named = match failing {
                Some(incident) => audience.of(objects_of(incident)),
                None => audience.of(std::iter::once(subject)),
            };
            let own = self.judged.verdicts.get(subject).map(|it| it.own);
            let due = self.notifier.due(
                &object,
                subscribers,
                named,
                own == Some(ReportedObjectState::Paused),
            );
            if due.is_empty() {
                continue;
            }
            let about = failing.map(|it| self.about(it));
            let about = about.unwrap_or_else(|| vec![self.observed.reference(subject)]);
            let controller = self.observed.controller(subject);
            self.notifier.opened(&object, &about, controller, due).await;
        }
        for object in self.book.resolved_ones() {
            self.tell_end(&object).await;
        }
        for step in self.notifier.take_late() {
            let mark = &step.mark;
            let object = self.book.get(&mark.namespace, &mark.name, &mark.uid);
            let Some(object) = object else { continue };
            let Some((subject, _)) = incident_store::identity(&object) else { continue };
            let about = self.observed.reference(&subject);
            let controller = self.observed.controller(&subject);
            self.notifier.ended_early(&object, (&about, controller), step).await;
        }
    }

    /// Sends the notifications after all that no incident replaces.
    async fn send_suppressed(&mut self) {
        for (step, (topic, beginning)) in self.delivery.suppression.topics().into_iter().enumerate()
        {
            pause(step).await;
            match self.decision(&topic, beginning) {
                SuppressionDecision::Wait => {}
                SuppressionDecision::Forget => self.delivery.suppression.forget(&topic),
                SuppressionDecision::Send => self.delivery.send_suppressed(&topic),
            }
        }
    }

    /// Decides about a notification that an incident may replace.
    fn decision(
        &self,
        topic: &AlertObjectPair,
        beginning: NotificationWaitStart,
    ) -> SuppressionDecision {
        let alert = self.context.seen::<Alert>(&topic.namespace, &topic.alert);
        // A deleted or suspended Alert gets no notifications.
        let Some(alert) = alert.filter(|alert| self.delivery.incidents.is_sending(alert)) else {
            return SuppressionDecision::Forget;
        };
        let incidents = &self.delivery.incidents;
        if !incidents.may_replace_errors(&alert) {
            return SuppressionDecision::Send;
        }
        if incidents.availability() == IncidentAvailability::Unknown {
            return SuppressionDecision::Wait;
        }
        // No incident could be opened before.
        let since = self.available_since.map_or(beginning.since, |at| at.max(beginning.since));
        let beginning = NotificationWaitStart { since, ..beginning };
        let judged_after = self.judged.at.and_then(|at| at.checked_duration_since(beginning.since));
        let absent = ObjectFailureVerdict {
            own: ReportedObjectState::Absent,
            since: None,
            failure: None,
            is_own: false,
            refers_to: None,
        };
        let verdict = self.judged.verdicts.get(&topic.object);
        let is_listed = self.judged.listed.has(&topic.object);
        let verdict = verdict.or_else(|| is_listed.then_some(&absent));
        let failure = verdict.and_then(|it| it.failure.as_ref());
        let identity = failure.map(|it| (it.subject.clone(), it.problem));
        let notified = identity.and_then(|it| self.notified(&it, &alert));
        decision(beginning, judged_after, verdict, notified)
    }

    /// The notification to an Alert about the incident of a failure. `None` if no incident is open.
    fn notified(
        &self,
        identity: &IncidentIdentity,
        alert: &Alert,
    ) -> Option<IncidentOpenNotificationState> {
        let incident = self.book.of(identity).filter(|it| is_open(it))?;
        let notice = self.notifier.notice(&incident, alert);
        // Only the process that keeps the incident knows what it has not sent yet.
        (notice == IncidentOpenNotificationState::Sent || self.book.is_own(&incident))
            .then_some(notice)
    }

    /// Sends that an incident has ended.
    async fn tell_end(&mut self, incident: &Incident) {
        let Some((subject, _)) = incident_store::identity(incident) else { return };
        let about = self.observed.reference(&subject);
        let controller = self.observed.controller(&subject);
        self.notifier.resolved(incident, (&about, controller)).await;
    }
}

/// The objects of an incident, the subject first.
fn objects_of(incident: &failures::Incident) -> impl Iterator<Item = &ObjectId> {
    std::iter::once(&incident.failure.subject).chain(&incident.affected)
}

/// The wait after a comparison that took this long.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(COMPARISON_REST_FACTOR).clamp(COMPARISON_INTERVAL, LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn judging_takes_a_twentieth_of_a_core_at_most_but_for_very_many_objects() {
        let pauses =
            [1, 100, 400, 5_000].map(|took| pause_after(Duration::from_millis(took)).as_millis());
        assert_eq!(pauses, [1_000, 2_000, 8_000, 10_000]);
    }

    #[test]
    fn a_failure_that_is_older_than_the_process_is_reported_after_three_seconds() {
        let seconds = Duration::from_secs;
        assert!(!lasts(seconds(2), Some(seconds(9_000)), false));
        assert!(lasts(seconds(3), None, false) && lasts(seconds(3), Some(seconds(0)), false));
        assert!(lasts(seconds(3), Some(seconds(300)), true), "the clock does not begin anew");
        assert!(!lasts(seconds(3), Some(seconds(299)), true) && !lasts(seconds(3), None, true));
        assert!(lasts(seconds(300), Some(seconds(0)), true), "its condition changed in between");
    }

    #[test]
    fn a_failure_lasts_from_one_comparison_to_another_and_not_until_now() {
        let first = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        let last = first + Duration::from_secs(10);
        assert_eq!(known_for(Some(first), Some(first)), Duration::ZERO);
        assert_eq!(known_for(Some(first), Some(last)), Duration::from_secs(10));
        assert_eq!(known_for(None, Some(last)), Duration::ZERO);
    }

    /// An Incident of which an Alert was sent the beginning.
    fn sent(namespace: &str, uid: &str, state: &str) -> Option<Arc<Incident>> {
        let mut it = Incident::new("i", crds::windlass_notification::IncidentSpec::default());
        it.metadata.namespace = Some(namespace.to_owned());
        it.metadata.uid = Some(uid.to_owned());
        let opened = json!({"namespace": namespace, "alert": "a", "provider": "p", "state": "Opened",
            "at": "2026-01-01T00:00:00Z"});
        let status = json!({"state": state, "notifications": [opened]});
        it.status = serde_json::from_value(status).unwrap();
        Some(Arc::new(it))
    }

    #[test]
    fn ends_of_many_incidents_of_one_namespace_leave_room_for_those_of_others() {
        let gone = DeletedIncidents::default();
        let delete = |namespace: &str, uid: usize| {
            let before = sent(namespace, &uid.to_string(), "Open");
            gone.note(CachedObjectChange { before, after: None });
        };
        for at in 0..MOST_GONE + 5 {
            delete("loud", at);
        }
        delete("quiet", 0);
        let taken = gone.take();
        assert_eq!((taken.count, taken.dropped), (MOST_GONE + 1, 5));
        assert!(taken.into_all().any(|it| it.namespace().as_deref() == Some("quiet")));
        for at in 0..MOST_GONE_IN_ALL {
            delete(&format!("loud-{}", at % 20), at);
        }
        delete("quiet", 0);
        delete("loud-0", MOST_GONE_IN_ALL);
        let taken = gone.take();
        assert_eq!((taken.count, taken.dropped), (MOST_GONE_IN_ALL, 2));
        assert!(taken.into_all().any(|it| it.namespace().as_deref() == Some("quiet")));
    }

    #[test]
    fn ends_are_remembered_of_incidents_of_any_number_of_namespaces_that_were_deleted_at_once() {
        let gone = DeletedIncidents::default();
        for at in 0..2_000 {
            let before = sent(&format!("team-{at}"), "u", "Open");
            gone.note(CachedObjectChange { before, after: None });
        }
        let taken = gone.take();
        assert_eq!((taken.count, taken.dropped), (2_000, 0));
    }

    #[test]
    fn an_incident_whose_beginning_was_sent_to_no_alert_has_no_end_to_send() {
        let gone = DeletedIncidents::default();
        let mut silent = Incident::new("i", crds::windlass_notification::IncidentSpec::default());
        silent.status = serde_json::from_value(json!({"state": "Open"})).unwrap();
        gone.note(CachedObjectChange { before: Some(Arc::new(silent)), after: None });
        assert_eq!(gone.take().count, 0);
    }

    #[test]
    fn an_incident_that_is_deleted_while_it_is_open_is_remembered_once() {
        let incident = |uid: &str, state: &str| sent("apps", uid, state);
        let gone = DeletedIncidents::default();
        let note = |before, after| gone.note(CachedObjectChange { before, after });
        note(None, incident("a", "Open"));
        note(incident("a", "Open"), incident("a", "Resolved"));
        note(incident("b", "Resolved"), None);
        assert_eq!(gone.take().count, 0);
        note(incident("a", "Open"), None);
        note(incident("c", "Open"), incident("d", "Open"));
        let uids: Vec<_> =
            gone.take().into_all().filter_map(|it| it.metadata.uid.clone()).collect();
        assert_eq!(uids, ["a", "c"]);
        assert_eq!(gone.take().count, 0);
    }
}
