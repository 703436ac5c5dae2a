//! Lifecycles: which of them hold an object, and the LifecycleEvents that ask for their answers.
//!
//! Lifecycles, LifecycleBindings and LifecycleEvents are watched, so an object that nothing holds costs no request. windlass
//! adds its own writes to the cache at once, so the cache is never older than a run.
//!
//! Here: holds, asking, and the end of events. Below: the cache (`watched_object_cache`), objects without a journal
//! (`lifecycle_attempt`), handlers that windlass runs (`event_handlers`), and Quarantines (`known_quarantines`), which use the
//! same cache. Elsewhere: which lifecycle holds an object (engine `lifecycle`), when operations wait (engine `release`), and
//! which objects wait (`release_runner`, `kustomization::lifecycle_holds`).

pub(crate) mod event_handlers;
pub mod known_quarantines;
pub mod lifecycle_attempt;
pub mod watched_object_cache;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::Time as When;
use crds::operation_lifecycle::{
    KEY_LABEL, Lifecycle, LifecycleBinding, LifecycleEvent, LifecycleEventSpec,
    LifecycleEventSubject, LifecycleHelmRelease, LifecyclePhase, LifecycleReleaseRevision,
    LifecycleState, SUBJECT_UID_LABEL,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube_core::{Resource, ResourceExt as _};
use lifecycle::{
    DismissedLifecycleEvent, HoldSubject, LabelRequirement, LifecycleApproval,
    LifecycleEventRequest, LifecycleEventState, LifecycleHoldPhase, LifecycleTimeoutPolicy,
    ObservedLifecycleBinding, ObservedLifecycleEvent, ReleaseOrSourceRevision,
    SubjectLabelSelector, SubjectSelector,
};
use reconcile::{BREAK_GLASS, ObjectKey, Time};
use release::lifecycle_hold::ReleaseLifecycles;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::event_handlers::LifecycleHandlers;
use self::watched_object_cache::{CachedObjectChange, WatchedObjectCache, kind_node, resource};
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::namespace_policies::{NamespacePolicies, labels_node_of};
use windlass_cluster::object_pages::ObjectQuery;

/// The field manager of LifecycleEvents.
const MANAGER: &str = "windlass";

/// How long an event may wait for an answer if the Lifecycle gives no time.
const DEFAULT_EVENT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Watches Lifecycles until `stop`, and wakes the LifecycleEvents of a changed Lifecycle.
pub async fn follow_lifecycles(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<Lifecycle>| {
        let object = changed.after.or(changed.before);
        let name = object.map(|object| object.name_any()).unwrap_or_default();
        wake(context, &|event| event.spec.lifecycle == name);
        context.shared::<LifecycleHandlers>().lifecycle_changed(&name);
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Watches LifecycleBindings until `stop`, and wakes the LifecycleEvents in the namespace of a changed binding.
pub async fn follow_bindings(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<LifecycleBinding>| {
        let object = changed.after.or(changed.before);
        let namespace = object.and_then(|object| object.namespace());
        wake(context, &|event| event.metadata.namespace == namespace);
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Watches LifecycleEvents until `stop`. An answer wakes the object that waits for it, but reported progress does not.
pub async fn follow_events(context: Arc<RunContext>, stop: CancellationToken) {
    let changed =
        |context: &RunContext,
         CachedObjectChange { before, after }: CachedObjectChange<LifecycleEvent>| {
            let said = |event: &Arc<LifecycleEvent>| {
                let status = event.status.clone().unwrap_or_default();
                (status.phase, status.approvals)
            };
            if before.as_ref().map(said) != after.as_ref().map(said)
                && let Some(event) = after.as_ref().or(before.as_ref())
            {
                context.work_queue.wake(&waiting(event), WakeReason::Waiting);
            }
            context.shared::<LifecycleHandlers>().event_changed(before.as_deref(), after.as_ref());
        };
    let handled = event_handlers::run(context.clone());
    stop.run_until_cancelled(async {
        tokio::join!(watched_object_cache::follow(context, changed), handled)
    })
    .await;
}

/// Wakes the objects that wait for certain events.
fn wake(context: &RunContext, is_meant: &dyn Fn(&LifecycleEvent) -> bool) {
    for event in context.shared::<WatchedObjectCache<LifecycleEvent>>().all() {
        if is_meant(&event) {
            context.work_queue.wake(&waiting(&event), WakeReason::Waiting);
        }
    }
}

/// The object that waits for an event.
fn waiting(event: &LifecycleEvent) -> ObjectKey {
    let LifecycleEventSubject { group, kind, name, .. } = &event.spec.subject;
    ObjectKey::new(group, kind, &event.namespace().unwrap_or_default(), name)
}

/// Waits until Lifecycles, bindings and events were listed, or could not be listed.
pub async fn known(context: &RunContext) {
    context.shared::<WatchedObjectCache<Lifecycle>>().known().await;
    context.shared::<WatchedObjectCache<LifecycleBinding>>().known().await;
    context.shared::<WatchedObjectCache<LifecycleEvent>>().known().await;
}

/// The lifecycles that hold an object at phases of its operations. If they are not known, the reason.
pub fn holding<K: Resource<DynamicType = ()>>(
    context: &RunContext,
    object: &K,
) -> ReleaseLifecycles {
    let glass = object.annotations().get(BREAK_GLASS).and_then(|text| text.trim().parse().ok());
    let glass = glass.is_some_and(|until: Time| jiff::Timestamp::now() < until);
    match holds(context, object) {
        Ok(holds) => ReleaseLifecycles { holds, glass, ..ReleaseLifecycles::default() },
        Err(why) => ReleaseLifecycles {
            glass,
            unknown: Some(why),
            known_on: BTreeSet::from([
                kind_node::<Lifecycle>(),
                kind_node::<LifecycleBinding>(),
                kind_node::<LifecycleEvent>(),
                labels_node_of(&object.namespace().unwrap_or_default()),
            ]),
            ..ReleaseLifecycles::default()
        },
    }
}

fn holds<K: Resource<DynamicType = ()>>(
    context: &RunContext,
    object: &K,
) -> Result<Vec<lifecycle::HoldingLifecycle>, String> {
    let namespace = object.namespace().unwrap_or_default();
    let lifecycles = context.shared::<WatchedObjectCache<Lifecycle>>().listed("")?;
    let bindings = context.shared::<WatchedObjectCache<LifecycleBinding>>().listed(&namespace)?;
    if lifecycles.is_empty() && bindings.is_empty() {
        return Ok(Vec::new());
    }
    let lifecycles: Vec<_> = lifecycles.iter().map(|it| definition(it)).collect();
    let bindings: Vec<ObservedLifecycleBinding> = bindings.iter().map(|it| binding(it)).collect();
    let facts = context.shared::<NamespacePolicies>().facts(&namespace);
    let is_required = lifecycles.iter().any(|it| it.required.is_some());
    let facts = match facts {
        Some(facts) => facts,
        None if is_required => {
            return Err(format!(
                "cannot tell which Lifecycles namespace {namespace} requires: its labels are not known"
            ));
        }
        None => Default::default(),
    };
    let subject = HoldSubject {
        kind: &K::kind(&()),
        name: &object.name_any(),
        labels: object.labels(),
        namespace_labels: &facts.labels,
    };
    let mut holds =
        lifecycle::holds(&subject, &lifecycles, &bindings).map_err(|error| error.to_string())?;
    if facts.is_terminating {
        skip_removal(&mut holds, &namespace, subject.name);
    }
    if !holds.is_empty() {
        // An event that was created before has to be found again.
        context.shared::<WatchedObjectCache<LifecycleEvent>>().ready()?;
    }
    Ok(holds)
}

/// Removes the holds at the deletion phases. In a namespace that is being deleted, no event can be created.
fn skip_removal(holds: &mut Vec<lifecycle::HoldingLifecycle>, namespace: &str, name: &str) {
    let is_of_removal = |phase: &LifecycleHoldPhase| {
        matches!(phase, LifecycleHoldPhase::PreDelete | LifecycleHoldPhase::PostDelete)
    };
    for hold in holds.iter_mut().filter(|it| it.phases.iter().any(is_of_removal)) {
        tracing::info!(
            namespace,
            name,
            lifecycle = hold.lifecycle,
            "the namespace is being deleted: PreDelete and PostDelete of the lifecycle are skipped"
        );
        hold.phases.retain(|phase| !is_of_removal(phase));
    }
    holds.retain(|hold| !hold.phases.is_empty());
}

fn phase(of: LifecyclePhase) -> LifecycleHoldPhase {
    match of {
        LifecyclePhase::PreInstall => LifecycleHoldPhase::PreInstall,
        LifecyclePhase::PostInstall => LifecycleHoldPhase::PostInstall,
        LifecyclePhase::PreUpgrade => LifecycleHoldPhase::PreUpgrade,
        LifecyclePhase::PostUpgrade => LifecycleHoldPhase::PostUpgrade,
        LifecyclePhase::PreRollback => LifecycleHoldPhase::PreRollback,
        LifecyclePhase::PostRollback => LifecycleHoldPhase::PostRollback,
        LifecyclePhase::PreDelete => LifecycleHoldPhase::PreDelete,
        LifecyclePhase::PostDelete => LifecycleHoldPhase::PostDelete,
        LifecyclePhase::Promote => LifecycleHoldPhase::Promote,
    }
}

fn spelled(of: LifecycleHoldPhase) -> LifecyclePhase {
    match of {
        LifecycleHoldPhase::PreInstall => LifecyclePhase::PreInstall,
        LifecycleHoldPhase::PostInstall => LifecyclePhase::PostInstall,
        LifecycleHoldPhase::PreUpgrade => LifecyclePhase::PreUpgrade,
        LifecycleHoldPhase::PostUpgrade => LifecyclePhase::PostUpgrade,
        LifecycleHoldPhase::PreRollback => LifecyclePhase::PreRollback,
        LifecycleHoldPhase::PostRollback => LifecyclePhase::PostRollback,
        LifecycleHoldPhase::PreDelete => LifecyclePhase::PreDelete,
        LifecycleHoldPhase::PostDelete => LifecyclePhase::PostDelete,
        LifecycleHoldPhase::Promote => LifecyclePhase::Promote,
    }
}

/// A label selector in the form of the engine.
pub(crate) fn selector(of: &LabelSelector) -> SubjectLabelSelector {
    let expressions = of.match_expressions.iter().flatten();
    let requirement =
        |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement| {
            LabelRequirement {
                key: it.key.clone(),
                operator: it.operator.clone(),
                values: it.values.clone().unwrap_or_default(),
            }
        };
    SubjectLabelSelector {
        labels: of.match_labels.clone().unwrap_or_default(),
        expressions: expressions.map(requirement).collect(),
    }
}

/// A Lifecycle in the form of the engine.
fn definition(object: &Lifecycle) -> lifecycle::Lifecycle {
    let spec = &object.spec;
    let timeout = timeout(object);
    let approvals = approvals(object);
    let broken = timeout.as_ref().err().or(approvals.as_ref().err()).cloned();
    lifecycle::Lifecycle {
        name: object.name_any(),
        key: spec.key.clone(),
        phases: spec.phases.iter().copied().map(phase).collect(),
        timeout: timeout.unwrap_or(DEFAULT_EVENT_TIMEOUT),
        on_timeout: match spec.on_timeout.unwrap_or_default() {
            crds::operation_lifecycle::OnTimeout::Fail => LifecycleTimeoutPolicy::Fail,
            crds::operation_lifecycle::OnTimeout::Continue => LifecycleTimeoutPolicy::Continue,
            crds::operation_lifecycle::OnTimeout::Hold => LifecycleTimeoutPolicy::Hold,
        },
        approvals: approvals.unwrap_or_default(),
        required: spec.required.as_ref().map(|it| selector(&it.namespace_selector)),
        broken,
    }
}

fn timeout(object: &Lifecycle) -> Result<Duration, String> {
    let Some(text) = &object.spec.timeout else { return Ok(DEFAULT_EVENT_TIMEOUT) };
    reconcile::parse_duration(text.as_str()).map_err(|error| format!("spec.timeout: {error}"))
}

/// How many users have to approve. 0 if a controller or windlass itself answers.
fn approvals(object: &Lifecycle) -> Result<u16, String> {
    let Some(handler) = &object.spec.handler else { return Ok(0) };
    let Some(approval) = &handler.approval else {
        return event_handlers::LifecycleEventHandler::of(handler).map(|_| 0);
    };
    Ok(u16::try_from(approval.count.unwrap_or(1)).unwrap_or(u16::MAX).max(1))
}

fn binding(object: &LifecycleBinding) -> ObservedLifecycleBinding {
    let spec = &object.spec;
    let subject = |it: &crds::operation_lifecycle::LifecycleSubject| SubjectSelector {
        kind: it.kind.as_str().to_owned(),
        name: it.name.clone(),
        labels: it.labels.clone(),
    };
    ObservedLifecycleBinding {
        name: object.name_any(),
        lifecycle: spec.lifecycle.clone(),
        subjects: spec.subjects.iter().map(subject).collect(),
        phases: spec.phases.iter().copied().map(phase).collect(),
        parameters: spec.parameters.clone(),
        order: spec.order,
    }
}

/// The name, namespace and `kubeContext` of one release of an object that may have several.
pub type ReleaseNameAndContext<'a> = (&'a str, &'a str, &'a str);

/// The events about an object or about one of its releases.
pub fn events_of(
    context: &RunContext,
    namespace: &str,
    uid: &str,
    release: Option<ReleaseNameAndContext<'_>>,
) -> Vec<ObservedLifecycleEvent> {
    let is_its = |event: &&Arc<LifecycleEvent>| {
        let subject = &event.spec.subject;
        let of = subject.release.as_ref();
        let of = of.map(|it| (it.name.as_str(), it.namespace.as_str(), it.kube_context.as_str()));
        subject.uid == uid && (release.is_none() || release == of)
    };
    let of = context.shared::<WatchedObjectCache<LifecycleEvent>>().of(namespace);
    of.iter().filter(is_its).map(|it| event(it)).collect()
}

/// Cancels and deletes all events about one release that the object gives up.
pub async fn dismiss_all(
    context: &RunContext,
    namespace: &str,
    uid: &str,
    of: ReleaseNameAndContext<'_>,
) {
    let over = events_of(context, namespace, uid, Some(of)).into_iter();
    let over = over.map(|ObservedLifecycleEvent { name, uid, state, .. }| {
        DismissedLifecycleEvent { name, uid, is_open: state.is_open() }
    });
    dismiss(context, namespace, &over.collect::<Vec<_>>()).await;
}

fn event(object: &LifecycleEvent) -> ObservedLifecycleEvent {
    let status = object.status.clone().unwrap_or_default();
    let approval = |it: crds::operation_lifecycle::LifecycleApproval| LifecycleApproval {
        user: it.user,
        at: it.at.map(|at| at.0),
        comment: it.comment.unwrap_or_default(),
    };
    ObservedLifecycleEvent {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        lifecycle: object.spec.lifecycle.clone(),
        phase: Some(phase(object.spec.phase)),
        operation: object.spec.operation.clone(),
        state: match status.phase.unwrap_or_default() {
            LifecycleState::Pending => LifecycleEventState::Pending,
            LifecycleState::Running => LifecycleEventState::Running,
            LifecycleState::Succeeded => LifecycleEventState::Succeeded,
            LifecycleState::Failed => LifecycleEventState::Failed,
            LifecycleState::Cancelled => LifecycleEventState::Cancelled,
        },
        answered_by: status.answered_by.unwrap_or_default(),
        message: status.message.unwrap_or_default(),
        created: object.creation_timestamp().map(|at| at.0),
        deadline: object.spec.deadline.as_ref().map(|at| at.0),
        approvals: status.approvals.into_iter().map(approval).collect(),
    }
}

/// The object whose operation asks lifecycles.
pub struct LifecycleSubject<'a> {
    /// The object whose operation asks, as a node of the dependency graph.
    pub node: &'a ObjectKey,
    /// The uid of the object.
    pub uid: &'a str,
    /// The release that waits. `None` if the object has no releases.
    pub release: Option<ReleaseNameAndContext<'a>>,
    /// The owner reference that lets the API server delete events together with the object.
    pub owner: Option<OwnerReference>,
}

fn asked(asking: &LifecycleSubject<'_>, ask: &LifecycleEventRequest) -> LifecycleEvent {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let revision = |of: &ReleaseOrSourceRevision| LifecycleReleaseRevision {
        revision: of.revision.clone(),
        chart: text(&of.chart_name),
        chart_version: text(&of.chart_version),
    };
    let release =
        |(name, namespace, kube_context): ReleaseNameAndContext<'_>| LifecycleHelmRelease {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            kube_context: kube_context.to_owned(),
        };
    let node = asking.node.whole();
    let spec = LifecycleEventSpec {
        key: ask.hold.key.clone(),
        lifecycle: ask.hold.lifecycle.clone(),
        subject: LifecycleEventSubject {
            group: node.group.clone(),
            kind: node.kind.clone(),
            namespace: node.namespace.clone(),
            name: node.name.clone(),
            uid: asking.uid.to_owned(),
            release: asking.release.map(release),
        },
        phase: spelled(ask.phase),
        operation: ask.operation.clone(),
        from: ask.from.as_ref().map(revision),
        to: ask.to.as_ref().map(revision),
        parameters: ask.hold.parameters.clone(),
        approvals: i64::from(ask.hold.approvals),
        deadline: Some(When(ask.deadline)),
    };
    let mut event = LifecycleEvent::new(&ask.name, spec);
    event.metadata.namespace = Some(node.namespace.clone());
    event.metadata.labels = Some(BTreeMap::from([
        (KEY_LABEL.to_owned(), ask.hold.key.clone()),
        (SUBJECT_UID_LABEL.to_owned(), asking.uid.to_owned()),
    ]));
    event.metadata.owner_references = asking.owner.clone().map(|owner| vec![owner]);
    event
}

/// Whether two events ask the same question. Their other fields may differ, because the Lifecycle may have changed since.
fn is_same(one: &LifecycleEventSpec, other: &LifecycleEventSpec) -> bool {
    let question = |of: &LifecycleEventSpec| {
        (of.subject.uid.clone(), of.operation.clone(), of.phase, of.lifecycle.clone())
    };
    question(one) == question(other)
}

/// Creates an event that asks a lifecycle. `None` if the event, or an equal one, now exists. A text about the conflict if
/// another event has its name.
///
/// # Errors
/// The API server refuses the request for another reason, or does not respond.
pub async fn ask(
    context: &RunContext,
    asking: &LifecycleSubject<'_>,
    ask: &LifecycleEventRequest,
) -> Result<Option<String>, ClusterError> {
    let event = asked(asking, ask);
    let error = match context.cluster.create(&event, MANAGER).await {
        Ok(created) => {
            asked_now(context, created);
            return Ok(None);
        }
        Err(error) => error,
    };
    if error.code() != Some(409) || error.is_conflict() {
        return Err(error);
    }
    let namespace = event.namespace().unwrap_or_default();
    let name = event.name_any();
    let named = format!("metadata.name={name}");
    let events = resource::<LifecycleEvent>();
    let query =
        ObjectQuery { namespace: &namespace, field_selector: &named, ..ObjectQuery::all(&events) };
    let part = context.cluster.list_part(query, None).await?;
    let found = part.objects.into_iter().next().map(objects::Object::into_value);
    match found.map(serde_json::from_value::<LifecycleEvent>) {
        Some(Ok(found)) if is_same(&found.spec, &event.spec) => {
            asked_now(context, found);
            Ok(None)
        }
        Some(_) => Ok(Some(format!(
            "LifecycleEvent {namespace}/{name} exists and does not belong to this operation; find out who created it, \
             and delete it"
        ))),
        // The event was deleted meanwhile.
        None => Err(error),
    }
}

/// Adds a new event to the cache. The watch reports it later, or has reported it already.
fn asked_now(context: &RunContext, event: LifecycleEvent) {
    if let Some(event) = context.shared::<WatchedObjectCache<LifecycleEvent>>().insert(event) {
        context.shared::<LifecycleHandlers>().event_changed(None, Some(&event));
    }
}

/// Cancels open events and deletes them. A failure is logged, and a later run repeats it. The operation does not depend on it.
pub async fn dismiss(context: &RunContext, namespace: &str, over: &[DismissedLifecycleEvent]) {
    let events = resource::<LifecycleEvent>();
    let table = context.shared::<WatchedObjectCache<LifecycleEvent>>();
    for DismissedLifecycleEvent { name, uid, is_open } in over {
        if *is_open {
            let status =
                json!({"phase": "Cancelled", "message": "the operation does not wait any more"});
            let patch = json!({"metadata": {"uid": uid}, "status": status});
            let cluster = &context.cluster;
            // An event that was answered or deleted meanwhile needs no cancellation.
            if let Err(error) =
                cluster.merge_patch_status(&events, namespace, name, &patch, MANAGER).await
            {
                tracing::debug!(namespace, name, error = %error, "a LifecycleEvent is not cancelled");
            }
        }
        match context.cluster.delete_unmanaged(&events, namespace, name, uid).await {
            Ok(()) => {
                let gone = table.remove(namespace, name, uid);
                context.shared::<LifecycleHandlers>().event_changed(gone.as_deref(), None);
            }
            Err(error) => {
                tracing::error!(namespace, name, error = %error, "failed to delete a LifecycleEvent, retrying later");
            }
        }
    }
}

#[cfg(test)]
mod tests;
