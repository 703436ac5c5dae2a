//! Creates, updates and deletes the Incident objects.
//!
//! The name comes from the subject and the class of the failure, so that after a crash the same Incident is found instead of
//! created twice. An incident that is opened again is the same object. This module is the only writer of spec and status, in
//! the process that keeps the Incident (`incident_shard`); but users write the silence (`incident_silence`), which no patch here
//! has. For a moment after the subject's labels changed, two processes may both keep an Incident. So a status is written only
//! over the version that was read.
//!
//! Elsewhere: when writes pause (`write_backoff`), which incidents are opened and resolved (`incident`), the watched objects
//! (`lifecycle::table`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cause::CauseKind;
use cause::incident::{Incident as Failing, IncidentIdentity};
use crds::Time as When;
use crds::windlass_notification::{
    Incident, IncidentAffectedObjects, IncidentCause, IncidentSpec, IncidentState, IncidentStatus,
    IncidentStep, IncidentSubject,
};
use kube_core::{Resource as _, ResourceExt as _};
use notify::ObjectReference;
use objects::{Gvk, Object, ObjectId};
use reconcile::Time;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::absent_kinds::{AbsentKinds, is_defined};
use super::incident_shard::{IncidentShard, IncidentSubjectPresence, is_shard_name};
use super::namespace_round_robin::NamespaceRoundRobin;
use super::observed_objects::ObservedKind;
use super::write_backoff::{IncidentWriteBackoff, IncidentWriteRefusalScope};
use crate::delivery::incident_notifications::IncidentAvailability;
use windlass_cluster::ClusterError;
use windlass_runtime::lifecycle::watched_object_cache::{WatchedObjectCache, resource};
use windlass_runtime::run_context::RunContext;

/// The field manager of Incidents.
const MANAGER: &str = "windlass";

/// The most open Incidents of a namespace. No further one is opened.
const MOST_OPEN: usize = 1_000;

/// The most writes of a pass, so that each pass ends soon. Namespaces take turns (`namespace_order`).
const MAX_WRITES_PER_PASS: usize = 64;

/// The most reads of subjects that may fail in a pass, since each may take long.
const MAX_FAILED_READS_PER_PASS: usize = 4;

/// Longest name of a subject that the API server accepts.
const LONGEST_NAME: usize = 253;

/// The label of an Incident about deliveries with the shard of its process, named as in the shard's Lease. Users can select
/// Incidents by it. Without shards there is no label.
const SHARD: &str = "windlass.dev/shard";

/// The age in seconds at which an Incident without a state is deleted. Its process was killed before it wrote a state.
const MAX_STATELESS_AGE: i64 = 3600;

/// How many affected objects a status names.
pub(super) const MAX_NAMED_OBJECTS: usize = 20;

/// Longest texts, in bytes.
const MAX_MESSAGE_BYTES: usize = 2_000;
const MAX_REASON_BYTES: usize = 1_000;
const MAX_OBJECT_BYTES: usize = 600;

/// The interval at which the message and the affected objects of an Incident are written.
const INCIDENT_UPDATE_INTERVAL: Duration = Duration::from_secs(5);

/// The interval at which windlass checks whether the CRD is installed.
const CRD_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// How long errors wait for the first list of Incidents. The list takes a moment after a start or a takeover.
const INCIDENT_LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long windlass tries to send the end of an incident, in seconds.
const MAX_UNSENT_RESOLUTION_AGE: i64 = 24 * 3600;

/// Whether an Incident was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IncidentWriteOutcome {
    Written,
    /// The Incident is gone.
    Gone,
    /// The API server rejected it, or may not be asked now.
    Rejected,
}

/// The writer of the Incident objects, which creates them, updates their status and deletes old ones.
/// It limits the writes of a pass and the open Incidents of a namespace.
pub(super) struct IncidentWriter {
    context: Arc<RunContext>,
    table: Arc<WatchedObjectCache<Incident>>,
    /// The time when the message and the affected objects of an Incident were written, by its uid.
    updated: BTreeMap<String, Instant>,
    /// Whether the CRD was there, and when that was checked.
    checked: Option<(Instant, bool)>,
    /// Since when this process acts.
    begun: Instant,
    is_warned: bool,
    /// The part of the Incidents that this process keeps.
    shard: IncidentShard,
    /// The kinds whose objects are observed, by group and kind.
    kinds: BTreeMap<[String; 2], ObservedKind>,
    absent: Arc<AbsentKinds>,
    pauses: IncidentWriteBackoff,
    /// The namespaces whose old Incidents are deleted next.
    turns: NamespaceRoundRobin,
    /// The number of writes that this pass may still make.
    left: usize,
    /// The number of reads of subjects that may still fail in this pass.
    failures_left: usize,
    /// The number of open Incidents, by namespace.
    open: BTreeMap<String, usize>,
    /// Namespaces whose excess of open incidents is logged already.
    crowded: BTreeSet<String>,
}

/// The state of an Incident. `None` before it was opened.
pub(super) fn state(incident: &Incident) -> Option<IncidentState> {
    incident.status.as_ref().and_then(|status| status.state)
}

/// The subject and the class of an Incident. `None` if its name does not fit its spec, because another client created it.
pub(super) fn identity(incident: &Incident) -> Option<(ObjectId, String)> {
    let IncidentSpec { subject, reason, .. } = &incident.spec;
    let gvk = Gvk::new(&subject.api_version, &subject.kind);
    let namespace = incident.namespace().unwrap_or_default();
    let id = ObjectId::new(&namespace, &subject.name, &gvk.group, &subject.kind);
    let named = incident.name_any();
    let shard = named.strip_prefix(&name(&id, reason, ""))?;
    let is_of_shard = || {
        *reason == CauseKind::Delivery.to_string()
            && shard.strip_prefix('-').is_some_and(is_shard_name)
    };
    (shard.is_empty() || is_of_shard()).then(|| (id, reason.clone()))
}

/// The objects that an Incident affected when that was written last.
pub(super) fn affected(incident: &Incident) -> BTreeSet<String> {
    let affected = incident.status.as_ref().and_then(|it| it.affected.as_ref());
    affected.into_iter().flat_map(|it| it.objects.iter().cloned()).collect()
}

/// The name of an Incident. It is the same for the same subject and class. It ends with a shard if each shard has an Incident
/// of its own.
pub(super) fn name(subject: &ObjectId, reason: &str, shard: &str) -> String {
    let ObjectId { namespace, name, group, kind } = subject;
    let identity = [group, kind, namespace, name, reason].join("\n");
    let digest = hex::encode(Sha256::digest(identity));
    // Others may refer to an object by a name that no object can have.
    let allowed = |char: char| if char.is_ascii_alphanumeric() { char } else { '-' };
    let shown: String =
        name.chars().take(40).map(|char| allowed(char).to_ascii_lowercase()).collect();
    let shown = shown.trim_matches('-');
    let end = if shard.is_empty() { String::new() } else { format!("-{shard}") };
    format!("{}-{shown}-{}{end}", kind.to_lowercase(), &digest[..12])
}

fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

fn spec(identity: &IncidentIdentity, failing: &Failing, subject: &ObjectReference) -> IncidentSpec {
    let failure = &failing.failure;
    IncidentSpec {
        subject: IncidentSubject {
            api_version: subject.api_version.clone(),
            kind: subject.kind.clone(),
            name: subject.name.clone(),
            uid: Some(subject.uid.clone()).filter(|uid| !uid.is_empty()),
        },
        reason: identity.1.to_string(),
        cause: IncidentCause {
            object: cut(&failure.cause.subject(), MAX_OBJECT_BYTES),
            reason: cut(&failure.reason, MAX_REASON_BYTES),
            message: cut(&failure.text, MAX_MESSAGE_BYTES),
        },
    }
}

/// The message and the affected objects for the status.
fn shown(failing: &Failing) -> (String, IncidentAffectedObjects) {
    let objects = failing.affected.iter().take(MAX_NAMED_OBJECTS);
    let affected = IncidentAffectedObjects {
        count: i64::try_from(failing.affected.len()).unwrap_or(i64::MAX),
        objects: objects.map(|id| cut(&id.subject(), MAX_OBJECT_BYTES)).collect(),
    };
    (cut(&failing.failure.text, MAX_MESSAGE_BYTES), affected)
}

/// The message of an ended incident. It contains the reason, unless the reason is that its objects are ready.
fn ended_message(said: &str, end: &str) -> String {
    let room = MAX_MESSAGE_BYTES.saturating_sub(end.len() + 1);
    format!("{}\n{end}", cut(said, room))
}

/// Whether the API server has an object in the judged version, or does not have it if it was judged as absent.
fn is_as_judged(now: Option<&Object>, judged_version: &str) -> bool {
    let version = now.map(|it| it.meta("resourceVersion").and_then(Value::as_str));
    match version {
        Some(version) => version == Some(judged_version),
        None => judged_version.is_empty(),
    }
}

/// The fields of a status that change while an incident is open. All of them are present, since a patch does not change fields
/// that it leaves out.
fn changing(failing: &Failing) -> Value {
    let (message, IncidentAffectedObjects { count, objects }) = shown(failing);
    json!({"message": message, "affected": {"count": count, "objects": objects}})
}

/// Whether the end of an incident may have to be sent.
fn is_owed(incident: &Incident, now: Time) -> bool {
    let Some(status) = &incident.status else { return false };
    let is_recent = |at: &When| now.as_second() - at.0.as_second() < MAX_UNSENT_RESOLUTION_AGE;
    status.state == Some(IncidentState::Resolved)
        && status.resolved_at.as_ref().is_some_and(is_recent)
        && status.notifications.iter().any(|it| it.state == IncidentStep::Opened)
}

/// Whether an Incident may still need work: it is open and not at rest, or its end may have to be sent. An Incident that
/// another client created is never worked on, so it never ends by itself.
fn is_unfinished(
    incident: &Incident,
    now: Time,
    is_at_rest: impl FnOnce(&Incident) -> bool,
) -> bool {
    let is_open = state(incident) == Some(IncidentState::Open);
    (is_open && !is_at_rest(incident) || is_owed(incident, now)) && identity(incident).is_some()
}

/// The Incidents to delete: all that were resolved before `oldest`, and in each namespace all except the last `records`.
fn surplus(resolved: Vec<Arc<Incident>>, oldest: Time, records: usize) -> Vec<Arc<Incident>> {
    let at = |incident: &Incident| {
        let status = incident.status.as_ref()?;
        status.resolved_at.as_ref().map(|at| at.0)
    };
    let mut of: BTreeMap<String, Vec<Arc<Incident>>> = BTreeMap::new();
    for incident in resolved {
        of.entry(incident.namespace().unwrap_or_default()).or_default().push(incident);
    }
    let mut gone = Vec::new();
    for mut all in of.into_values() {
        all.sort_by_key(|it| std::cmp::Reverse((at(it), it.name_any())));
        let is_kept =
            |(place, it): &(usize, Arc<Incident>)| *place < records && at(it) >= Some(oldest);
        gone.extend(all.into_iter().enumerate().filter(|it| !is_kept(it)).map(|(_, it)| it));
    }
    gone
}

/// Whether Incidents can be kept. `waited` is how long this process has waited for their first list.
fn availability(is_defined: bool, is_listed: bool, waited: Duration) -> IncidentAvailability {
    match (is_defined, is_listed) {
        (true, true) => IncidentAvailability::Kept,
        (true, false) if waited < INCIDENT_LIST_TIMEOUT => IncidentAvailability::Unknown,
        (true | false, _) => IncidentAvailability::Unavailable,
    }
}

impl IncidentWriter {
    /// The writer of the Incidents of this process. `rows` are the kinds whose objects are observed.
    pub(super) fn new(context: Arc<RunContext>, rows: &[ObservedKind]) -> Self {
        let table = context.shared::<WatchedObjectCache<Incident>>();
        let shard = IncidentShard::new(&context.settings.watch_label_selector);
        Self {
            kinds: rows.iter().map(|row| (row.group_and_kind(), *row)).collect(),
            absent: context.shared::<AbsentKinds>(),
            context,
            table,
            updated: BTreeMap::new(),
            checked: None,
            begun: Instant::now(),
            is_warned: false,
            shard,
            pauses: IncidentWriteBackoff::default(),
            turns: NamespaceRoundRobin::default(),
            left: MAX_WRITES_PER_PASS,
            failures_left: MAX_FAILED_READS_PER_PASS,
            open: BTreeMap::new(),
            crowded: BTreeSet::new(),
        }
    }

    /// Begins a pass over all Incidents: its limits start anew, and the open Incidents of each namespace are counted.
    pub(super) fn pass(&mut self) {
        self.left = MAX_WRITES_PER_PASS;
        self.failures_left = MAX_FAILED_READS_PER_PASS;
        self.pauses.pass(Instant::now());
        self.open.clear();
        for incident in self.open_ones() {
            *self.open.entry(incident.namespace().unwrap_or_default()).or_default() += 1;
        }
        let open = &self.open;
        self.crowded.retain(|it| open.get(it).is_some_and(|count| *count >= MOST_OPEN));
    }

    /// Whether Incidents can be kept. If there is no Alert that asks for them, no failing Provider and no Incident, their
    /// definition is read once.
    pub(super) async fn availability(
        &mut self,
        is_wanted: bool,
        is_failing: bool,
    ) -> IncidentAvailability {
        let is_defined = self.is_defined(is_wanted, is_failing).await;
        let is_listed = self.table.ready().is_ok();
        availability(is_defined, is_listed, self.begun.elapsed())
    }

    /// Whether the kind Incident is defined, as far as this process may read that.
    async fn is_defined(&mut self, is_wanted: bool, is_failing: bool) -> bool {
        let is_idle = !is_wanted && !is_failing && self.table.all().is_empty();
        if let Some((at, is_there)) = self.checked
            && (is_idle || at.elapsed() < CRD_CHECK_INTERVAL)
        {
            return is_there;
        }
        let name = format!("{}.{}", Incident::plural(&()), Incident::group(&()));
        let is_there = match is_defined(&self.context.cluster, &name).await {
            Ok(is_there) => is_there,
            // Incidents count as kept once they were listed, which fails without their definition.
            Err(error) => {
                tracing::debug!(error = %error, "cannot read the CustomResourceDefinition of Incidents");
                true
            }
        };
        if !is_there && is_wanted && !std::mem::replace(&mut self.is_warned, true) {
            tracing::error!(
                "an Alert asks for incidents, but the CustomResourceDefinition {name} is not installed; each error is sent \
                 instead"
            );
        }
        self.checked = Some((Instant::now(), is_there));
        is_there
    }

    /// Whether this process keeps an Incident.
    pub(super) fn is_own(&self, incident: &Incident) -> bool {
        self.shard.keeps(incident, |subject| self.presence(subject))
    }

    /// The known state of the subject of an Incident.
    fn presence(&self, subject: &ObjectId) -> IncidentSubjectPresence {
        let key = [subject.group.clone(), subject.kind.clone()];
        if self.absent.has(&key) {
            return IncidentSubjectPresence::Absent;
        }
        let Some(kind) = self.kinds.get(&key) else { return IncidentSubjectPresence::Unknown };
        match kind.is_selected(&self.context, subject) {
            Some(is_selected) => IncidentSubjectPresence::Exists { is_selected },
            None if kind.is_listed(&self.context) => IncidentSubjectPresence::Absent,
            None => IncidentSubjectPresence::Unknown,
        }
    }

    fn all(&self, is_it: impl Fn(&Incident) -> bool) -> Vec<Arc<Incident>> {
        let all = self.table.all().into_iter();
        all.filter(|incident| is_it(incident) && self.is_own(incident)).collect()
    }

    /// Whether an Incident is open that another client did not make up, also one that another process keeps.
    pub(super) fn has_open(&self) -> bool {
        let is_open = |it: &Incident| state(it) == Some(IncidentState::Open);
        self.table.all().iter().any(|it| is_open(it) && identity(it).is_some())
    }

    /// Incidents that are open. Those that another client made up never end, and would take the room of others for ever.
    pub(super) fn open_ones(&self) -> Vec<Arc<Incident>> {
        self.all(|it| state(it) == Some(IncidentState::Open) && identity(it).is_some())
    }

    /// Incidents whose end may have to be sent.
    pub(super) fn resolved_ones(&self) -> Vec<Arc<Incident>> {
        let now = jiff::Timestamp::now();
        self.all(|it| is_owed(it, now))
    }

    /// Whether there are any of both, but for those that are open and for which nothing can be done now.
    pub(super) fn has_unfinished(&self, is_at_rest: impl Fn(&Incident) -> bool) -> bool {
        let now = jiff::Timestamp::now();
        self.table.all().iter().any(|it| is_unfinished(it, now, &is_at_rest) && self.is_own(it))
    }

    fn name(&self, (subject, problem): &IncidentIdentity) -> String {
        name(subject, &problem.to_string(), self.shard.suffix_of(*problem))
    }

    /// The Incident of a failure, if windlass created it. If several processes divide the objects, another process may keep it.
    /// `None` if there is none.
    pub(super) fn of(&self, of: &IncidentIdentity) -> Option<Arc<Incident>> {
        let found = self.table.get(&of.0.namespace, &self.name(of))?;
        identity(&found).is_some().then_some(found)
    }

    /// The Incident with this name and uid. `None` if it does not exist, or if it has another uid.
    pub(super) fn get(&self, namespace: &str, name: &str, uid: &str) -> Option<Arc<Incident>> {
        let found = self.table.get(namespace, name)?;
        (found.uid().as_deref() == Some(uid)).then_some(found)
    }

    /// Whether an Incident may be written now. This counts as one of the writes of this pass.
    fn may_write(&mut self, namespace: &str, name: &str) -> bool {
        let may = self.left > 0 && self.pauses.allows(namespace, name);
        self.left -= usize::from(may);
        may
    }

    /// Whether another write fits into this pass.
    pub(super) fn has_writes(&self) -> bool {
        self.left > 0
    }

    /// Whether an Incident may be written now.
    pub(super) fn allows(&self, incident: &Incident) -> bool {
        self.pauses.allows(&incident.namespace().unwrap_or_default(), &incident.name_any())
    }

    /// Whether the API server has the subject of an Incident in the judged version, or does not have it if it was judged as
    /// deleted. An Incident only ends on such an answer. The last state in a watch may be old, and an object that cannot be
    /// decoded is in no store.
    pub(super) async fn confirms(
        &mut self,
        incident: &Incident,
        subject: &ObjectId,
        judged: &ObjectReference,
    ) -> bool {
        if self.left == 0 || self.failures_left == 0 || !self.allows(incident) {
            return false;
        }
        let namespace = incident.namespace().unwrap_or_default();
        let name = incident.name_any();
        let version = judged.api_version.rsplit('/').next().unwrap_or_default();
        let is_confirmed = match self.context.cluster.get_by_id(subject, version).await {
            Ok(found) => is_as_judged(found.as_ref(), &judged.resource_version),
            Err(error) => {
                self.failures_left -= 1;
                tracing::warn!(
                    namespace,
                    name,
                    subject = subject.subject(),
                    error = %error,
                    "cannot read the subject of an Incident, which stays open until that is possible"
                );
                false
            }
        };
        if !is_confirmed {
            self.left -= 1;
            self.pauses.refused(
                &namespace,
                &name,
                IncidentWriteRefusalScope::Early,
                Instant::now(),
            );
        }
        is_confirmed
    }

    /// Writes fields of a status over the version that was read. A rejection is logged, and writes pause.
    pub(super) async fn patch(
        &mut self,
        incident: &Incident,
        status: &Value,
    ) -> IncidentWriteOutcome {
        let version = incident.resource_version();
        let cluster = &self.context.cluster;
        match cluster.write_status(incident, MANAGER, status, version.as_deref()).await {
            Ok(Some(written)) => {
                let written: Incident = written;
                drop(self.table.insert(written));
                IncidentWriteOutcome::Written
            }
            Ok(None) => IncidentWriteOutcome::Gone,
            // The watch will report the write that came in between.
            Err(error) if error.is_conflict() => {
                let namespace = incident.namespace().unwrap_or_default();
                let name = incident.name_any();
                self.pauses.refused(
                    &namespace,
                    &name,
                    IncidentWriteRefusalScope::Early,
                    Instant::now(),
                );
                IncidentWriteOutcome::Rejected
            }
            Err(error) => {
                let namespace = incident.namespace().unwrap_or_default();
                self.refused(&namespace, &incident.name_any(), &error);
                IncidentWriteOutcome::Rejected
            }
        }
    }

    /// Writes a status within the limits of a pass. Returns whether it was written.
    async fn write(&mut self, incident: &Incident, status: &Value) -> bool {
        let namespace = incident.namespace().unwrap_or_default();
        let name = incident.name_any();
        self.may_write(&namespace, &name)
            && self.patch(incident, status).await == IncidentWriteOutcome::Written
    }

    fn refused(&mut self, namespace: &str, name: &str, error: &ClusterError) {
        let is_of_server = error.is_transient() || error.is_unserved();
        let refusal = if is_of_server {
            IncidentWriteRefusalScope::OfServer
        } else {
            IncidentWriteRefusalScope::OfIncident
        };
        self.pauses.refused(namespace, name, refusal, Instant::now());
        // The namespace is being deleted, with everything in it.
        if !error.is_of_terminating_namespace() {
            tracing::error!(namespace, name, error = %error, "failed to write an Incident, retrying");
        }
    }

    /// Opens an incident, for the first time or again. A new one gets `labels`, by which its subject is selected.
    pub(super) async fn open(
        &mut self,
        identity: &IncidentIdentity,
        failing: &Failing,
        subject: &ObjectReference,
        labels: BTreeMap<String, String>,
    ) {
        let namespace = &identity.0.namespace;
        // The API server accepts no longer name of a subject.
        if identity.0.name.len() > LONGEST_NAME || !self.has_room(namespace) {
            return;
        }
        let incident = match self.of(identity) {
            Some(known) => known,
            None => {
                let spec = spec(identity, failing, subject);
                match self.create(namespace, identity, spec, labels).await {
                    Some(created) => created,
                    None => return,
                }
            }
        };
        let now = When(jiff::Timestamp::now());
        let mut status = changing(failing);
        status["state"] = json!(IncidentState::Open);
        status["openedAt"] = json!(now);
        status["since"] = json!(failing.failure.since.map(When));
        status["resolvedAt"] = Value::Null;
        status["notifications"] = json!([]);
        if !self.write(&incident, &status).await {
            return;
        }
        *self.open.entry(namespace.clone()).or_default() += 1;
        tracing::info!(
            namespace,
            name = incident.name_any(),
            subject = identity.0.subject(),
            reason = failing.failure.reason,
            affected = failing.affected.len(),
            "incident opened"
        );
    }

    /// Whether a further incident may be opened in a namespace.
    fn has_room(&mut self, namespace: &str) -> bool {
        let count = self.open.get(namespace).copied().unwrap_or_default();
        let has_room = count < MOST_OPEN;
        if !has_room && self.crowded.insert(namespace.to_owned()) {
            tracing::error!(namespace, count, "no further incident is opened: too many are open");
        }
        has_room
    }

    async fn create(
        &mut self,
        namespace: &str,
        identity: &IncidentIdentity,
        spec: IncidentSpec,
        labels: BTreeMap<String, String>,
    ) -> Option<Arc<Incident>> {
        let name = self.name(identity);
        if !self.pauses.allows_creation(namespace) || !self.may_write(namespace, &name) {
            return None;
        }
        let mut incident = Incident::new(&name, spec);
        incident.metadata.namespace = Some(namespace.to_owned());
        incident.labels_mut().extend(labels);
        let shard = self.shard.suffix_of(identity.1);
        if !shard.is_empty() {
            incident.labels_mut().insert(SHARD.to_owned(), shard.to_owned());
        }
        match self.context.cluster.create(&incident, MANAGER).await {
            Ok(created) => self.table.insert(created),
            // The watch will report it.
            Err(error) if error.code() == Some(409) => {
                self.pauses.refused(
                    namespace,
                    &name,
                    IncidentWriteRefusalScope::Early,
                    Instant::now(),
                );
                None
            }
            Err(error) => {
                if error.is_unserved() {
                    self.checked = None;
                }
                self.refused(namespace, &name, &error);
                None
            }
        }
    }

    /// Writes the changes about an open incident.
    pub(super) async fn update(&mut self, incident: &Incident, failing: &Failing) {
        let (message, affected) = shown(failing);
        let status = incident.status.clone().unwrap_or_default();
        let is_same = status.message.as_ref() == Some(&message)
            && status.affected.unwrap_or_default() == affected;
        let uid = incident.uid().unwrap_or_default();
        let is_soon =
            self.updated.get(&uid).is_some_and(|at| at.elapsed() < INCIDENT_UPDATE_INTERVAL);
        if is_same || is_soon {
            return;
        }
        if self.write(incident, &changing(failing)).await {
            self.updated.insert(uid, Instant::now());
        }
    }

    /// Resolves an incident. `end` gives the reason, unless the reason is that its objects are ready.
    pub(super) async fn resolve(&mut self, incident: &Incident, end: Option<&str>) {
        let now = When(jiff::Timestamp::now());
        let namespace = incident.namespace().unwrap_or_default();
        let name = incident.name_any();
        let mut status = json!({"state": IncidentState::Resolved, "resolvedAt": now});
        if let Some(end) = end {
            let said = incident.status.as_ref().and_then(|it| it.message.as_deref());
            status["message"] = json!(ended_message(said.unwrap_or_default(), end));
        }
        if self.write(incident, &status).await {
            self.updated.remove(&incident.uid().unwrap_or_default());
            tracing::info!(namespace, name, "incident resolved");
        }
    }

    /// Deletes old Incidents that are no longer needed. It also deletes Incidents whose process was killed before it opened
    /// them.
    pub(super) async fn sweep(&mut self, is_needed: impl Fn(&Incident) -> bool) {
        let settings = &self.context.settings;
        let now = jiff::Timestamp::now();
        let is_done =
            |it: &Incident| state(it) == Some(IncidentState::Resolved) && !is_owed(it, now);
        let resolved = self.all(is_done);
        let oldest = now.saturating_sub(settings.incident_retention_ttl).unwrap_or(Time::MIN);
        let mut gone = surplus(resolved, oldest, settings.incident_retention_records);
        gone.extend(self.all(|it| is_stateless(it, now)));
        gone.retain(|it| !is_needed(it));
        let gone = gone.into_iter().map(|it| (it.namespace().unwrap_or_default(), it)).collect();
        for (namespace, incident) in self.turns.order(gone) {
            let name = incident.name_any();
            if !self.has_writes() {
                break;
            }
            self.turns.served(&namespace);
            if !self.may_write(&namespace, &name) {
                continue;
            }
            let uid = incident.uid().unwrap_or_default();
            let incidents = resource::<Incident>();
            match self.context.cluster.delete_unmanaged(&incidents, &namespace, &name, &uid).await {
                Ok(()) => drop(self.table.remove(&namespace, &name, &uid)),
                Err(error) => self.refused(&namespace, &name, &error),
            }
        }
        let known: BTreeSet<String> = self.open_ones().iter().filter_map(|it| it.uid()).collect();
        self.updated.retain(|uid, _| known.contains(uid));
    }
}

/// Whether an Incident that windlass made was never opened.
fn is_stateless(incident: &Incident, now: Time) -> bool {
    let created = incident.creation_timestamp().map(|at| at.0.as_second());
    state(incident).is_none()
        && identity(incident).is_some()
        && created.is_some_and(|at| now.as_second() - at >= MAX_STATELESS_AGE)
}

/// Since when the subject of an incident fails, if that is known. `None` before it was opened.
pub(super) fn began(status: &IncidentStatus) -> Option<Time> {
    status.since.as_ref().or(status.opened_at.as_ref()).map(|at| at.0)
}

/// When an incident was opened. `None` before that.
pub(super) fn opened(status: &IncidentStatus) -> Option<Time> {
    status.opened_at.as_ref().map(|at| at.0)
}

#[cfg(test)]
mod tests {
    use cause::CauseKind;
    use cause::incident::RootFailure;

    use super::*;

    fn failing(affected: usize) -> (IncidentIdentity, Failing) {
        let id = |kind: &str, name: &str| ObjectId::new("apps", name, "g.io", kind);
        let failure = RootFailure {
            subject: id("GitRepository", "app"),
            problem: CauseKind::Fetch,
            cause: id("GitRepository", "app"),
            reason: "GitOperationFailed".to_owned(),
            text: "ä".repeat(3_000),
            since: None,
            is_waiting: false,
            cycle: Vec::new(),
        };
        let affected = (0..affected).map(|at| id("Kustomization", &format!("k{at}"))).collect();
        ((failure.subject.clone(), failure.problem), Failing { failure, affected })
    }

    #[test]
    fn incidents_are_unknown_until_they_are_listed_and_unavailable_after_a_minute() {
        let after = Duration::from_secs;
        assert_eq!(availability(true, false, after(59)), IncidentAvailability::Unknown);
        assert_eq!(availability(true, false, after(60)), IncidentAvailability::Unavailable);
        assert_eq!(availability(true, true, after(60)), IncidentAvailability::Kept);
        assert_eq!(availability(false, true, after(0)), IncidentAvailability::Unavailable);
    }

    fn incident(name: &str, status: Value) -> Arc<Incident> {
        let (identity, failing) = failing(0);
        let subject = ObjectReference {
            kind: "GitRepository".to_owned(),
            name: "app".to_owned(),
            api_version: "g.io/v1".to_owned(),
            ..ObjectReference::default()
        };
        let mut incident = Incident::new(name, spec(&identity, &failing, &subject));
        incident.metadata.namespace = Some("apps".to_owned());
        incident.status = serde_json::from_value(status).unwrap();
        Arc::new(incident)
    }

    #[test]
    fn a_name_is_the_same_for_the_same_subject_and_class_and_reads_back() {
        let (subject, problem) = failing(0).0;
        let named = name(&subject, &problem.to_string(), "");
        assert!(named.starts_with("gitrepository-app-") && named.len() < 64, "{named}");
        assert_ne!(named, name(&subject, "Credentials", ""));
        assert_ne!(named, name(&subject, &problem.to_string(), "1a2b3c4d"), "of another shard");
        let long = ObjectId::new("apps", &"x.".repeat(120), "g.io", "GitRepository");
        assert!(name(&long, "Fetch", "").len() < 80);
        let strange = ObjectId::new("apps", "-Foo_Bar/ä.", "g.io", "GitRepository");
        let shown = name(&strange, "Missing", "");
        assert!(shown.starts_with("gitrepository-foo-bar-"), "{shown}");
        assert!(shown.chars().all(|it| matches!(it, 'a'..='z' | '0'..='9' | '-')), "{shown}");
        let read = identity(&incident(&named, json!(null)));
        assert_eq!(read, Some((subject, "Fetch".to_owned())));
        assert_eq!(identity(&incident("of-another-client", json!(null))), None);
    }

    #[test]
    fn what_is_written_is_bounded() {
        let (_, failing) = failing(200);
        let (message, affected) = shown(&failing);
        assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with('ä'));
        assert_eq!((affected.count, affected.objects.len()), (200, MAX_NAMED_OBJECTS));
    }

    #[test]
    fn what_is_affected_no_more_does_not_stay_in_the_status() {
        let patch = changing(&failing(0).1);
        assert_eq!(patch["affected"], json!({"count": 0, "objects": []}));
    }

    #[test]
    fn only_an_incident_about_deliveries_has_a_shard_in_its_name() {
        let (subject, _) = failing(0).0;
        let of = |reason: &str, shard: &str| {
            let mut of_shard = (*incident(&name(&subject, reason, shard), json!(null))).clone();
            reason.clone_into(&mut of_shard.spec.reason);
            identity(&of_shard)
        };
        assert_eq!(of("Delivery", "1a2b3c4d"), Some((subject.clone(), "Delivery".to_owned())));
        assert_eq!(of("Delivery", "of-another-client"), None);
        assert_eq!(of("Fetch", "1a2b3c4d"), None);
        assert!(of("Fetch", "").is_some());
    }

    #[test]
    fn an_incident_ends_only_if_the_api_server_has_its_subject_as_it_was_judged() {
        let at = |version: &str| {
            let metadata = json!({"name": "app", "resourceVersion": version});
            Object::new(
                json!({"apiVersion": "g.io/v1", "kind": "GitRepository", "metadata": metadata}),
            )
            .unwrap()
        };
        assert!(is_as_judged(Some(&at("7")), "7") && is_as_judged(None, ""));
        assert!(!is_as_judged(Some(&at("8")), "7"), "a watch is late");
        assert!(!is_as_judged(Some(&at("7")), ""), "it exists, and cannot be decoded");
        assert!(!is_as_judged(None, "7"), "it was deleted since");
    }

    #[test]
    fn the_message_of_an_end_keeps_its_bound_and_says_why() {
        assert_eq!(ended_message("authentication failed", "Gone."), "authentication failed\nGone.");
        let long = ended_message(&"ä".repeat(3_000), "Gone.");
        assert!(long.len() <= MAX_MESSAGE_BYTES && long.ends_with("ä\nGone."), "{long}");
    }

    #[test]
    fn the_last_of_a_namespace_stay_while_they_are_young() {
        let resolved = |name: &str, second: i64| {
            let at = Time::from_second(second).unwrap();
            incident(name, json!({"state": "Resolved", "resolvedAt": When(at)}))
        };
        let all = vec![resolved("a", 100), resolved("b", 300), resolved("c", 200)];
        let gone = |oldest: i64, records: usize| {
            let oldest = Time::from_second(oldest).unwrap();
            let gone = surplus(all.clone(), oldest, records);
            gone.iter().map(|it| it.name_any()).collect::<Vec<_>>().concat()
        };
        assert_eq!(gone(0, 10), "");
        assert_eq!(gone(0, 2), "a");
        assert_eq!(gone(250, 10), "ca");
        assert_eq!(gone(0, 0), "bca");
    }

    #[test]
    fn nothing_is_judged_for_an_incident_that_another_client_made_up() {
        let now = "2026-11-24T13:00:00Z".parse().unwrap();
        let (subject, problem) = failing(0).0;
        let named = name(&subject, &problem.to_string(), "");
        let open = || json!({"state": "Open", "openedAt": "2026-11-24T12:00:00Z"});
        let owed = || {
            json!({"state": "Resolved", "resolvedAt": "2026-11-24T12:00:00Z",
                "notifications": [{"namespace": "apps", "alert": "a", "state": "Opened"}]})
        };
        for status in [open(), owed()] {
            assert!(is_unfinished(&incident(&named, status.clone()), now, |_| false));
            assert!(!is_unfinished(&incident("of-another-client", status), now, |_| false));
        }
        assert!(!is_unfinished(&incident(&named, open()), now, |_| true));
        let resolved = json!({"state": "Resolved", "resolvedAt": "2026-11-24T12:00:00Z"});
        assert!(!is_unfinished(&incident(&named, resolved), now, |_| false));
    }

    #[test]
    fn an_end_is_owed_to_who_was_sent_the_beginning_and_not_for_ever() {
        let with = |sent: &str| {
            incident(
                "a",
                json!({"state": "Resolved", "resolvedAt": "2026-11-24T12:00:00Z",
                    "notifications": [{"namespace": "apps", "alert": "a", "state": sent}]}),
            )
        };
        let now = "2026-11-24T13:00:00Z".parse().unwrap();
        assert!(is_owed(&with("Opened"), now));
        assert!(!is_owed(&with("Resolved"), now) && !is_owed(&with("Failed"), now));
        assert!(!is_owed(&with("Opened"), "2026-11-26T12:00:00Z".parse().unwrap()));
    }
}
