//! The health of applied objects: their own status, their Pods, and the newest warning event about either.

use std::collections::BTreeSet;

use apply::health::{self, HealthStatus, MalformedStatusError, ObjectHealth};
use jiff::SignedDuration;
use objects::{Object, ObjectId};
use reconcile::Time;
use serde_json::Value;

use crate::cause_result::{CauseKind, CauseStep, RootCause};
use crate::cause_walk::{CausePath, CauseWalk, ObjectLookup, ResultOrFactQueries, shortened};
use crate::condition::{condition, text, time};
use crate::fact_query::FactQuery;
use crate::object_event::last_seen;
use crate::object_references;
use crate::pod::{self, PodTrouble};

/// How many ReplicaSets of a Deployment are read: those with Pods and those with warning events, the newest first.
const MOST_REPLICA_SETS: usize = 32;

/// A warning event about an object.
struct WarningEvent {
    object: ObjectId,
    reason: String,
    message: String,
}

impl WarningEvent {
    /// The warning as one line.
    fn text(&self) -> String {
        format!("{} {}: {}", self.object.subject(), self.reason, shortened(&self.message))
    }
}

/// The namespace that has the events about cluster-scoped objects.
const NAMESPACE_OF_CLUSTER_EVENTS: &str = "default";

/// The conditions of a Namespace that name what delays its deletion.
const REMAINS: [&str; 5] = [
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
];

/// The health of an object. A Pod that has failed counts as failed here, although kstatus calls it Current.
///
/// # Errors
/// The status of the object cannot be understood.
pub fn health_of(object: &Object, now: Time) -> Result<ObjectHealth, MalformedStatusError> {
    let report = health::third_party_kind_rules::compute_refined(object, now)?;
    Ok(match pod::failure(object).filter(|_| report.is_current()) {
        Some(message) => {
            ObjectHealth { status: HealthStatus::Failed, message, conditions: Vec::new() }
        }
        None => report,
    })
}

impl CauseWalk<'_> {
    /// Why an object that windlass does not reconcile is not healthy. `None` if it is healthy.
    pub(crate) fn workload(&mut self, object: &Object) -> ResultOrFactQueries<Option<CausePath>> {
        let id = object.id();
        let (status, message) = match health_of(object, self.now()) {
            Ok(report) if report.is_current() => return Ok(None),
            Ok(report) => (report.status.clone(), report.words().to_owned()),
            Err(error) => (HealthStatus::Unknown(error.to_string()), error.to_string()),
        };
        let since = since(object);
        let step = CauseStep { object: id.clone(), since, text: describe(&status, &message) };
        if status == HealthStatus::Terminating {
            let text = deletion(object);
            let since = deleted(object);
            let step = CauseStep { since, ..step };
            let event = self.event(&id, &[])?;
            let cause = RootCause { event, ..plain(&id, CauseKind::Deletion, text, since) };
            return Ok(Some(CausePath { steps: vec![step], cause }));
        }
        let pods = self.pods(object)?;
        for pod in &pods {
            if let Some(found) = self.of_pod(pod)? {
                let mut steps = vec![step];
                steps.extend(found.steps.into_iter().filter(|it| it.object != id));
                return Ok(Some(CausePath { steps, ..found }));
            }
        }
        let refused = condition(object, "ReplicaFailure").filter(|said| said.status == "True");
        let event = self.newest(&id, &pods)?;
        let cause = match (refused, &event) {
            (Some(said), _) => {
                plain(&id, CauseKind::Admission, shortened(said.message), said.since)
            }
            (None, Some(WarningEvent { object, reason, message })) => {
                let problem = problem_of(&id, reason);
                plain(object, problem, format!("{reason}: {}", shortened(message)), since)
            }
            (None, None) => plain(&id, problem_of(&id, ""), describe(&status, &message), since),
        };
        Ok(Some(CausePath {
            steps: vec![step],
            cause: RootCause { event: event.map(|it| it.text()), ..cause },
        }))
    }

    /// The newest warning event about an object or its Pods.
    fn newest(
        &mut self,
        id: &ObjectId,
        pods: &[Object],
    ) -> ResultOrFactQueries<Option<WarningEvent>> {
        let namespace = match id.namespace.as_str() {
            "" => NAMESPACE_OF_CLUSTER_EVENTS,
            namespace => namespace,
        };
        let mut events = self.listed(&FactQuery::Warnings(namespace.to_owned()))?;
        events.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
        let replica_sets = self.replica_sets(id, &events)?;
        let about = |event: &Object| {
            let of = event.get("involvedObject");
            let field = |key: &str| of.map(|it| text(it, key)).unwrap_or_default().to_owned();
            (field("kind"), field("name"), field("apiVersion"))
        };
        let is_about = |event: &&Object| {
            let (kind, name, _) = about(event);
            let is_own = kind == id.kind && name == id.name;
            let is_below = kind == "ReplicaSet" && replica_sets.contains(&name);
            is_own || is_below || (kind == "Pod" && pods.iter().any(|pod| pod.name() == name))
        };
        let newest = events.iter().find(is_about);
        Ok(newest.map(|event| {
            let (kind, name, version) = about(event);
            let group = version.split_once('/').map_or("", |(group, _)| group);
            let field = |key| event.get(key).and_then(|it| it.as_str()).unwrap_or_default();
            WarningEvent {
                object: ObjectId::new(&id.namespace, &name, group, &kind),
                reason: field("reason").to_owned(),
                message: field("message").to_owned(),
            }
        }))
    }

    /// The ReplicaSets of a Deployment that these events are about.
    fn replica_sets(
        &mut self,
        id: &ObjectId,
        events: &[Object],
    ) -> ResultOrFactQueries<Vec<String>> {
        if !is_deployment(id) {
            return Ok(Vec::new());
        }
        let mut found: Vec<ObjectId> = Vec::new();
        for of in events.iter().filter_map(|event| event.get("involvedObject")) {
            // The Deployment controller gives ReplicaSets such names. Their owner references decide to which
            // Deployment one belongs.
            let is_named = text(of, "name").starts_with(&format!("{}-", id.name));
            let set = ObjectId::new(&id.namespace, text(of, "name"), "apps", "ReplicaSet");
            if text(of, "kind") == "ReplicaSet" && is_named && !found.contains(&set) {
                found.push(set);
            }
        }
        found.truncate(MOST_REPLICA_SETS);
        self.ask(found.iter().cloned().map(FactQuery::Object))?;
        let ObjectLookup::There(deployment) = self.object(id)? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for set in found {
            if let ObjectLookup::There(object) = self.object(&set)?
                && object_references::controller(object).as_ref() == Some(id)
                && !pod::is_replaced(object, deployment)
            {
                names.push(set.name);
            }
        }
        Ok(names)
    }

    /// The newest warning event as one text.
    fn event(&mut self, id: &ObjectId, pods: &[Object]) -> ResultOrFactQueries<Option<String>> {
        Ok(self.newest(id, pods)?.map(|it| it.text()))
    }

    /// The Pods of an object, those of the newest revision first. Pods that a Deployment replaces are left out.
    fn pods(&mut self, object: &Object) -> ResultOrFactQueries<Vec<Object>> {
        if pod::is_pod(object) {
            return Ok(vec![object.clone()]);
        }
        let Some(selector) = pod::selector(object) else { return Ok(Vec::new()) };
        let namespace = object.namespace().to_owned();
        let mut pods = self.listed(&FactQuery::Pods { namespace, selector })?;
        pods.retain(|pod| pod::is_owned(pod, object, None));
        if is_deployment(&object.id()) {
            let replaced = self.replaced(object, &pods)?;
            pods.retain(|pod| pod::replica_set(pod).is_none_or(|set| !replaced.contains(&set)));
        }
        pods.sort_by_key(|pod| pod::is_older(pod, object));
        Ok(pods)
    }

    /// The ReplicaSets of these Pods that belong to an older revision of the Deployment, or to another one.
    fn replaced(
        &mut self,
        deployment: &Object,
        pods: &[Object],
    ) -> ResultOrFactQueries<BTreeSet<ObjectId>> {
        let sets: BTreeSet<ObjectId> = pods.iter().filter_map(pod::replica_set).collect();
        let sets: Vec<ObjectId> = sets.into_iter().take(MOST_REPLICA_SETS).collect();
        self.ask(sets.iter().cloned().map(FactQuery::Object))?;
        let mut replaced = BTreeSet::new();
        for set in sets {
            if let ObjectLookup::There(object) = self.object(&set)?
                && pod::is_replaced(object, deployment)
            {
                replaced.insert(set);
            }
        }
        Ok(replaced)
    }

    /// Why a Pod does not become ready.
    fn of_pod(&mut self, pod: &Object) -> ResultOrFactQueries<Option<CausePath>> {
        let id = pod.id();
        let Some(trouble) = pod::trouble(pod) else { return Ok(None) };
        let since = since(pod);
        let mut cause = plain(&id, problem(&trouble), shortened(&trouble.within_pod()), since);
        if let Some(container) = pod::crashing(pod) {
            let query = FactQuery::Lines {
                namespace: id.namespace.clone(),
                pod: id.name.clone(),
                container: container.name.to_owned(),
            };
            cause.lines = self.lines(&query)?;
        }
        cause.event = self.event(&id, std::slice::from_ref(pod))?;
        let step = CauseStep { object: id, since, text: cause.text.clone() };
        Ok(Some(CausePath { steps: vec![step], cause }))
    }
}

fn is_deployment(id: &ObjectId) -> bool {
    (id.group.as_str(), id.kind.as_str()) == ("apps", "Deployment")
}

fn plain(id: &ObjectId, problem: CauseKind, text: String, since: Option<Time>) -> RootCause {
    RootCause { object: id.clone(), problem, text, since, lines: Vec::new(), event: None }
}

fn describe(status: &HealthStatus, message: &str) -> String {
    match message {
        "" => status.to_string(),
        message => format!("{status}: {}", shortened(message)),
    }
}

fn deletion(object: &Object) -> String {
    let remains = REMAINS.iter().filter_map(|kind| condition(object, kind));
    let remains: Vec<&str> =
        remains.filter(|said| said.status == "True").map(|said| said.message).collect();
    if object.kind() == "Namespace" && !remains.is_empty() {
        return format!("is being deleted: {}", shortened(&remains.join("; ")));
    }
    let finalizers = object.meta("finalizers").and_then(|it| it.as_array());
    let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(|it| it.as_str()).collect();
    match names.is_empty() {
        true => "is being deleted".to_owned(),
        false => format!("is being deleted and waits for its finalizers {}", names.join(", ")),
    }
}

/// Since when an object is being deleted: its deletion timestamp minus the grace period. `None` if it is not being
/// deleted.
fn deleted(object: &Object) -> Option<Time> {
    let at = time(object.fields().get("metadata")?, "deletionTimestamp")?;
    let grace = object.meta("deletionGracePeriodSeconds").and_then(Value::as_i64);
    at.checked_sub(SignedDuration::from_secs(grace.unwrap_or_default())).ok()
}

/// Since when an object is not ready, according to its conditions. If all conditions are True, it is the time of its
/// creation. `None` if its spec was changed after that.
fn since(object: &Object) -> Option<Time> {
    let conditions = ["Ready", "Available", "Progressing", "PodScheduled"];
    let said = conditions.iter().filter_map(|kind| condition(object, kind));
    let failing = said.filter(|said| said.status != "True").find_map(|said| said.since);
    let created = || time(object.fields().get("metadata")?, "creationTimestamp");
    failing.or_else(|| created().filter(|_| object.generation() <= 1))
}

fn problem(trouble: &PodTrouble) -> CauseKind {
    match trouble {
        PodTrouble::Unscheduled { .. } => CauseKind::Scheduling,
        PodTrouble::Ended { .. } => CauseKind::Container,
        PodTrouble::Waiting { reason, .. } => match reason.as_str() {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError" => CauseKind::Image,
            _ => CauseKind::Container,
        },
    }
}

/// The problem that the reason of an event reports. Without a known reason, the kind of the object decides.
fn problem_of(id: &ObjectId, reason: &str) -> CauseKind {
    match reason {
        "FailedCreate" => CauseKind::Admission,
        "FailedScheduling" => CauseKind::Scheduling,
        "FailedMount" | "FailedAttachVolume" | "ProvisioningFailed" => CauseKind::Volume,
        _ if id.kind == "PersistentVolumeClaim" => CauseKind::Volume,
        _ => CauseKind::Health,
    }
}
