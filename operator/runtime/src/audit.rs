//! Audits: windlass writes a ReleaseAudit for each operation, once. An operation never depends on its audit.
//!
//! The audit is written when the operation has ended, before the status shows the end. A crash in between only repeats the
//! write, because the name comes from the uid of the object and the operation. A user could create an object of that name
//! first, so windlass checks that an existing audit is about this operation.
//!
//! Here: names, size limits, writing, and the reports of failed writes. Below: deletion of old audits (`retention`), and a
//! bucket that keeps them (`archive`). Elsewhere: the content of audits (`release_runner::audit`, `kustomization::audit`;
//! engines `release::audit`, `apply::object_changes`).

pub(crate) mod archive;
pub mod retention;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use apply::object_changes::{ObjectChange, ObjectChangeKind, ObjectChangeList, list};
use crds::Time as When;
use crds::windlass_release::{
    AuditApproval, AuditCause, AuditCauseKind, AuditChange, AuditChangeKind, AuditChanges,
    AuditLifecycleAnswer, AuditOperation, AuditRevision, ReleaseAudit, ReleaseAuditSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube_core::Resource as _;
use objects::{Gvk, Object, SecretMasking};
use parking_lot::{Mutex, MutexGuard};
use reconcile::{REQUESTED_BY, REQUESTED_REASON, ROLLBACK, SUSPENDED_BY, SUSPENDED_REASON, Time};
use release::operation_origin::AnnotationRequest;
use sha2::{Digest as _, Sha256};

use super::freeze;
use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::metrics::AuditOutcome;
use windlass_cluster::object_pages::ObjectQuery;

/// The label with the uid of the audited object. It selects the audits of an object.
pub const SUBJECT_UID: &str = "release.windlass.dev/subject-uid";

/// The field manager of audits.
const MANAGER: &str = "windlass";

/// The largest size of an audit as JSON, in bytes.
const MAX_AUDIT_BYTES: usize = 60 << 10;

/// The longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 3 << 10;

/// The longest other text from a user, in bytes.
const MAX_TEXT_BYTES: usize = 250;

/// The most causes that an audit lists.
const MAX_LISTED_CAUSES: usize = 32;

/// The most approvals of a phase that an audit lists. If the audit is still too large with the first number, the second one is
/// used.
const MAX_APPROVALS_PER_PHASE: [usize; 2] = [4, 0];

/// The most answers of lifecycles that a large audit lists.
const MAX_LISTED_LIFECYCLE_ANSWERS: usize = 16;

/// The most audits in memory that wait for another attempt to write them.
const MAX_PENDING_AUDITS: usize = 512;

/// The time until the next attempt to write waiting audits.
const PENDING_AUDIT_RETRY_DELAY: Duration = Duration::from_secs(3);

/// The drift corrections of an object within this many seconds share one audit.
const CORRECTION_SECONDS: i64 = 600;

/// The location of ReleaseAudits. It is fixed, because the discovery may be older than their CRD.
pub fn resource() -> ApiResourceLocation {
    ApiResourceLocation {
        gvk: Gvk::new(&ReleaseAudit::api_version(&()), &ReleaseAudit::kind(&())),
        plural: ReleaseAudit::plural(&()).into_owned(),
        namespaced: true,
        watchable: true,
    }
}

/// The last reason why an audit could not be written. Each reason is reported once.
#[derive(Default)]
struct LastAuditError(Mutex<Option<String>>);

impl LastAuditError {
    /// Remembers a reason, and returns whether it differs from the last one.
    fn is_new(&self, why: Option<&str>) -> bool {
        let mut last = self.0.lock();
        let is_new = last.as_deref() != why;
        *last = why.map(str::to_owned);
        is_new
    }
}

/// The name of an audit. It is the same for the same operation of the same object.
fn name(subject: &str, operation: AuditOperation, uid: &str, key: &str) -> String {
    let digest = hex::encode(Sha256::digest(format!("{uid}\n{key}")));
    let subject: String = subject.chars().take(40).collect();
    let subject = subject.trim_end_matches(['.', '-']);
    format!("{subject}-{}-{}", operation.as_str().to_lowercase(), &digest[..16])
}

/// The result of an attempt to create an audit.
struct AuditCreationOutcome {
    outcome: AuditOutcome,
    /// The reason why the audit was not written.
    text: String,
    /// Whether another audit has the same name.
    is_displaced: bool,
    /// Whether the API server failed, so that a later attempt may succeed.
    is_owed: bool,
}

impl AuditCreationOutcome {
    fn plain(outcome: AuditOutcome, text: String) -> Self {
        Self { outcome, text, is_displaced: false, is_owed: false }
    }

    fn displaced(text: &str) -> Self {
        let outcome = AuditOutcome::Failed;
        let text = text.to_owned();
        Self { outcome, text, is_displaced: true, is_owed: false }
    }
}

/// Whether two audits are about the same operation of the same object. Their other fields may differ, because windlass may
/// know less after a crash.
fn is_same(one: &Object, other: &Object) -> bool {
    let operation = |of: &Object| {
        let spec = of.get("spec");
        ["/subject/uid", "/operation", "/id"]
            .map(|path| spec.and_then(|spec| spec.pointer(path)).cloned())
    };
    operation(one) == operation(other)
}

/// Creates an audit. If one of this name exists, windlass reads and compares it.
async fn create(context: &RunContext, audit: &Object) -> AuditCreationOutcome {
    let resource = resource();
    let cluster = &context.cluster;
    let Err(error) = cluster.create_object(&resource, audit, MANAGER, false).await else {
        return AuditCreationOutcome::plain(AuditOutcome::Written, String::new());
    };
    let outcome = classified(&error);
    if outcome != AuditOutcome::Exists {
        let is_owed = outcome == AuditOutcome::Failed && error.is_of_server();
        return AuditCreationOutcome {
            is_owed,
            ..AuditCreationOutcome::plain(outcome, error.to_string())
        };
    }
    let named = format!("metadata.name={}", audit.name());
    let query = ObjectQuery {
        namespace: audit.namespace(),
        field_selector: &named,
        ..ObjectQuery::all(&resource)
    };
    match cluster.list_part(query, None).await {
        Ok(part) => match part.objects.first() {
            Some(found) if is_same(audit, found) => {
                AuditCreationOutcome::plain(AuditOutcome::Exists, String::new())
            }
            Some(_) => AuditCreationOutcome::displaced(
                "a ReleaseAudit of this name exists that is not about this operation; find out who created \
                 it, and delete it",
            ),
            None => AuditCreationOutcome::displaced(
                "a ReleaseAudit of this name existed and was deleted",
            ),
        },
        Err(error) => {
            let text = format!("a ReleaseAudit of this name exists and cannot be read: {error}");
            let is_owed = error.is_of_server();
            AuditCreationOutcome {
                is_owed,
                ..AuditCreationOutcome::plain(AuditOutcome::Failed, text)
            }
        }
    }
}

/// Audits that the API server failed to create. This process retries them until it ends.
#[derive(Default)]
struct AuditRetryQueue(Mutex<VecDeque<Object>>);

impl AuditRetryQueue {
    fn all(&self) -> MutexGuard<'_, VecDeque<Object>> {
        self.0.lock()
    }

    /// Keeps an audit for a later attempt, if there is room.
    fn put(&self, audit: Object) -> bool {
        let mut all = self.all();
        let has_room = all.len() < MAX_PENDING_AUDITS;
        if has_room {
            all.push_back(audit);
        }
        has_room
    }
}

/// Retries the waiting audits, without end.
async fn repay(context: &RunContext) {
    let owed = context.shared::<AuditRetryQueue>();
    loop {
        tokio::time::sleep(PENDING_AUDIT_RETRY_DELAY).await;
        loop {
            let Some(audit) = owed.all().pop_front() else { break };
            let AuditCreationOutcome { outcome, text, is_owed, .. } = create(context, &audit).await;
            if is_owed {
                // The other audits come first, because the API server may refuse only this one.
                owed.all().push_back(audit);
                break;
            }
            context.metrics.audited(outcome);
            if outcome == AuditOutcome::Failed {
                let namespace = audit.namespace();
                let name = audit.name();
                tracing::error!(namespace, name, error = text, "failed to write a ReleaseAudit");
            }
        }
    }
}

/// Writes the audit of the operation that `key` names, in the namespace of the object. The operation continues even if that
/// fails. Returns an event about a failure. `None` if there is none to report, or audits are turned off.
pub async fn write(
    context: &RunContext,
    namespace: &str,
    key: &str,
    spec: ReleaseAuditSpec,
) -> Option<ObjectEvent> {
    if !context.settings.release_audits {
        return None;
    }
    let name = name(&spec.subject.name, spec.operation, &spec.subject.uid, key);
    let freeze_bypasses = freeze::audited_bypasses(context, namespace, &spec);
    let spec = ReleaseAuditSpec { freeze_bypasses, ..spec };
    let AuditCreationOutcome { outcome, text, is_displaced, .. } =
        match object(namespace, &name, fitted(spec)) {
            Ok(object) => match create(context, &object).await {
                AuditCreationOutcome { is_owed: true, .. }
                    if context.shared::<AuditRetryQueue>().put(object) =>
                {
                    return None;
                }
                created => created,
            },
            Err(text) => AuditCreationOutcome::plain(AuditOutcome::Failed, text),
        };
    let last_error = context.shared::<LastAuditError>();
    context.metrics.audited(outcome);
    match outcome {
        AuditOutcome::Written | AuditOutcome::Exists => {
            last_error.is_new(None);
            None
        }
        // The namespace is being deleted with everything in it.
        AuditOutcome::Terminating => None,
        AuditOutcome::NotInstalled => {
            if last_error.is_new(Some("not installed")) {
                tracing::info!(
                    "no ReleaseAudit is written: the CustomResourceDefinition releaseaudits.release.windlass.dev is not \
                     installed; install it, or set --release-audits=false"
                );
            }
            None
        }
        AuditOutcome::Failed => {
            // The same refusal names another object each time. If another object has the name of the audit, the failure is
            // always reported, because the audit is then lost.
            if !is_displaced && !last_error.is_new(Some(&text.replace(&name, ""))) {
                return None;
            }
            tracing::error!(
                namespace,
                name,
                error = text,
                "failed to write a ReleaseAudit; operations continue without"
            );
            Some(ObjectEvent {
                severity: EventSeverity::Error,
                reason: "AuditFailed".to_owned(),
                message: format!(
                    "failed to write ReleaseAudit {namespace}/{name}, the operation continues without: {text}"
                ),
                metadata: BTreeMap::new(),
            })
        }
    }
}

fn classified(error: &ClusterError) -> AuditOutcome {
    let is_there = error.code() == Some(409) && !error.is_conflict();
    match error {
        _ if is_there => AuditOutcome::Exists,
        _ if error.is_of_terminating_namespace() => AuditOutcome::Terminating,
        _ if error.is_unserved() => AuditOutcome::NotInstalled,
        _ => AuditOutcome::Failed,
    }
}

fn object(namespace: &str, name: &str, spec: ReleaseAuditSpec) -> Result<Object, String> {
    let labels = BTreeMap::from([(SUBJECT_UID.to_owned(), spec.subject.uid.clone())]);
    let mut audit = ReleaseAudit::new(name, spec);
    audit.metadata.namespace = Some(namespace.to_owned());
    audit.metadata.labels = Some(labels);
    let value = serde_json::to_value(&audit).map_err(|error| error.to_string())?;
    Object::new(value).map_err(|error| error.to_string())
}

/// Shortens an audit to the largest size. Entries that are dropped from lists are counted as omitted.
fn fitted(mut spec: ReleaseAuditSpec) -> ReleaseAuditSpec {
    spec.message = spec.message.map(|text| cut(&text, MAX_MESSAGE_BYTES));
    for cause in &mut spec.causes {
        let AuditCause { type_: _, object, version, manager, claimed_user, reason } = cause;
        for (text, most) in [
            (object, 2 * MAX_TEXT_BYTES),
            (version, 2 * MAX_TEXT_BYTES),
            (manager, MAX_TEXT_BYTES / 2),
            (claimed_user, MAX_TEXT_BYTES),
            (reason, 2 * MAX_TEXT_BYTES),
        ] {
            *text = text.take().map(|it| cut(&it, most));
        }
    }
    spec.causes.truncate(MAX_LISTED_CAUSES);
    for step in &mut spec.steps {
        step.hook = step.hook.take().map(|it| cut(&it, MAX_TEXT_BYTES));
    }
    for state in [&mut spec.from, &mut spec.to].into_iter().flatten() {
        let AuditRevision { revision, chart, chart_version, app_version, .. } = state;
        *revision = revision.take().map(|it| cut(&it, 2 * MAX_TEXT_BYTES));
        for text in [chart, chart_version, app_version] {
            *text = text.take().map(|it| cut(&it, MAX_TEXT_BYTES));
        }
    }
    let size = |spec: &ReleaseAuditSpec| serde_json::to_vec(spec).map_or(0, |json| json.len());
    if size(&spec) > MAX_AUDIT_BYTES {
        let listed = std::mem::take(&mut spec.changes.objects);
        spec.changes.omitted = spec.changes.omitted.saturating_add(count(listed.len()));
    }
    if size(&spec) > MAX_AUDIT_BYTES {
        let steps = std::mem::take(&mut spec.steps);
        spec.omitted_steps = spec.omitted_steps.saturating_add(count(steps.len()));
    }
    // The audit keeps the users who approved as long as they fit, but not their reasons.
    for most in MAX_APPROVALS_PER_PHASE {
        if size(&spec) > MAX_AUDIT_BYTES {
            for answer in &mut spec.lifecycles {
                answer.message = None;
                answer.approvals.truncate(most);
                answer.approvals.iter_mut().for_each(|approval| approval.comment = None);
            }
        }
    }
    if size(&spec) > MAX_AUDIT_BYTES {
        spec.lifecycles.truncate(MAX_LISTED_LIFECYCLE_ANSWERS);
    }
    spec
}

/// The mark at the end of a shortened text.
const ELLIPSIS: &str = "…";

/// Shortens a text to `max_bytes`, with an ellipsis at the end. `max_bytes` counts as at least three.
pub fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let room = max_bytes.saturating_sub(ELLIPSIS.len());
    format!("{}{ELLIPSIS}", &text[..text.floor_char_boundary(room)])
}

/// A count as the integer type of audits.
pub fn count(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

/// A text as an optional field. `None` if it is empty.
pub fn text(of: impl Into<String>) -> Option<String> {
    Some(of.into()).filter(|text| !text.is_empty())
}

/// A time as an optional field of audits. The result is never `None`.
pub fn when(time: Time) -> Option<When> {
    Some(When(time))
}

/// The duration between two times, to the millisecond. `None` if `ended` is before `started`.
pub fn took(started: Time, ended: Time) -> Option<String> {
    let took = std::time::Duration::try_from(ended.duration_since(started)).ok()?;
    let whole = u64::try_from(took.as_millis()).ok()?;
    Some(reconcile::format_duration(std::time::Duration::from_millis(whole)))
}

/// Object changes in the form of an audit. Values from Secrets are masked.
pub fn listed(changes: Vec<ObjectChange>, partial: bool, secrets: &SecretMasking) -> AuditChanges {
    let ObjectChangeList { added, changed, removed, digest, listed, omitted } = list(changes);
    let object = |change: ObjectChange| AuditChange {
        change: match change.what {
            ObjectChangeKind::Added => AuditChangeKind::Added,
            ObjectChangeKind::Changed => AuditChangeKind::Changed,
            ObjectChangeKind::Removed => AuditChangeKind::Removed,
        },
        group: change.id.group,
        kind: change.id.kind,
        namespace: change.id.namespace,
        name: secrets.mask(&change.id.name),
        fields: change.fields.iter().map(|field| secrets.mask(field)).collect(),
    };
    AuditChanges {
        added: count(added),
        changed: count(changed),
        removed: count(removed),
        partial,
        digest: text(digest),
        objects: listed.into_iter().map(object).collect(),
        omitted: count(omitted),
    }
}

/// A lifecycle's answer in the form of an audit.
pub fn answer(of: lifecycle::LifecycleEventAnswer) -> AuditLifecycleAnswer {
    let approval = |it: lifecycle::LifecycleApproval| AuditApproval {
        user: cut(&it.user, 240),
        at: it.at.and_then(when),
        comment: text(cut(&it.comment, 500)),
    };
    AuditLifecycleAnswer {
        lifecycle: of.lifecycle,
        phase: of.phase.as_str().to_owned(),
        outcome: of.outcome.as_str().to_owned(),
        answered_by: text(cut(&of.answered_by, 240)),
        message: text(cut(&of.message, 500)),
        approvals: of.approvals.into_iter().map(approval).collect(),
        started: when(of.asked),
        ended: when(of.ended),
    }
}

/// The number of the ten-minute period in which all drift corrections of an object share one audit.
pub fn stretch(now: Time) -> i64 {
    now.as_second().div_euclid(CORRECTION_SECONDS)
}

/// The key of a drift correction's audit: the time period and the corrected objects.
pub fn correction_key(stretch: i64, changes: &[ObjectChange]) -> String {
    let objects: Vec<String> = changes.iter().map(|it| it.id.to_string()).collect();
    format!("correct {stretch} {}", objects.join(" "))
}

/// The request that a user made with the annotation `key`. `None` without this annotation. Another annotation names the user,
/// which counts only if the same field manager wrote both.
pub fn request(meta: &ObjectMeta, key: &str) -> Option<AnnotationRequest> {
    let at = meta.annotations.as_ref()?.get(key)?;
    let manager = manager_of_annotation(meta, key);
    // A rollback follows a suspension, whose annotations have the reason.
    let of_hold = || claim(meta, &manager, SUSPENDED_BY, SUSPENDED_REASON);
    let asked = (key == ROLLBACK).then(of_hold).flatten();
    let asked = asked.or_else(|| claim(meta, &manager, REQUESTED_BY, REQUESTED_REASON));
    Some(AnnotationRequest { at: cut(at, 200), manager, ..asked.unwrap_or_default() })
}

/// The user and the reason of a request, from two annotations. They count only if `manager` wrote them. `None` if no user
/// counts.
pub fn claim(
    meta: &ObjectMeta,
    manager: &str,
    user_annotation: &str,
    reason_annotation: &str,
) -> Option<AnnotationRequest> {
    let annotation = |key: &str| {
        let text = meta.annotations.as_ref()?.get(key)?;
        let is_its = !manager.is_empty() && manager_of_annotation(meta, key) == manager;
        is_its.then(|| cut(text.trim(), MAX_TEXT_BYTES)).filter(|text| !text.is_empty())
    };
    let user = annotation(user_annotation)?;
    let reason = annotation(reason_annotation).unwrap_or_default();
    Some(AnnotationRequest { user, reason, ..AnnotationRequest::default() })
}

/// The cause of an operation that a user requested.
pub fn requested(of: AnnotationRequest) -> AuditCause {
    AuditCause {
        type_: AuditCauseKind::Request,
        object: None,
        version: text(of.at),
        manager: text(of.manager),
        claimed_user: text(of.user),
        reason: text(of.reason),
    }
}

/// The field manager that last changed the spec of an object. Empty if it is not known.
pub fn manager_of_spec(meta: &ObjectMeta) -> String {
    manager(meta, |fields| !fields["f:spec"].is_null())
}

/// The field manager that last wrote an annotation of an object.
pub(crate) fn manager_of_annotation(meta: &ObjectMeta, key: &str) -> String {
    let key = format!("f:{key}");
    manager(meta, |fields| !fields["f:metadata"]["f:annotations"][&key].is_null())
}

fn manager(meta: &ObjectMeta, wrote: impl Fn(&serde_json::Value) -> bool) -> String {
    let entries = meta.managed_fields.iter().flatten();
    let its = entries.filter(|entry: &&ManagedFieldsEntry| {
        entry.subresource.is_none() && entry.fields_v1.as_ref().is_some_and(|it| wrote(&it.0))
    });
    let last = its.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    last.and_then(|entry| entry.manager.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
