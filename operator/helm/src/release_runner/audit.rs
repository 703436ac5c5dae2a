//! Audit records of a release's operations, and of corrections of its drift.
//!
//! Elsewhere: what an operation did (engine `release`, `audit`), writing (`windlass_runtime::audit`), when operations end
//! (`executor`).

use std::collections::BTreeSet;

use apply::object_changes::{ObjectChange, ObjectChangeKind, adopt, between};
use crds::windlass_release::{
    AuditCause, AuditCauseKind, AuditHelmRelease, AuditOperation, AuditOutcome, AuditRevision,
    AuditStep, AuditSubject, ReleaseAuditSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::{Object, ObjectId};
use reconcile::{ObjectKey, ROLLBACK, Time};
use release::audit::{
    self as release_audit, AuditedRevision, OperationCause, OperationOutcome, RecordsBeforeAndAfter,
};
use release::status::LifecycleRefusedOperation;
use release::{OperationKind, OperationOrigin, ReleaseDesiredState, ReleaseRecord};

use super::ReleaseStatusOwner;
use super::executor::ReleaseExecutor;
use super::manifest_objects::{self, POLICY};
use windlass_runtime::audit::{self, answer, count, cut, manager_of_spec, text, took, when};
use windlass_runtime::controller_kind::REQUESTED_AT;

fn operation(action: OperationKind) -> AuditOperation {
    match action {
        OperationKind::Install => AuditOperation::Install,
        OperationKind::Upgrade => AuditOperation::Upgrade,
        OperationKind::Rollback => AuditOperation::Rollback,
        OperationKind::Test => AuditOperation::Test,
        OperationKind::Uninstall | OperationKind::UninstallRemediation => AuditOperation::Uninstall,
    }
}

fn cause(of: OperationCause) -> AuditCause {
    let plain = |type_| AuditCause { type_, ..AuditCause::default() };
    match of {
        OperationCause::Spec { generation, manager } => AuditCause {
            version: (generation != 0).then(|| generation.to_string()),
            manager: text(manager),
            ..plain(AuditCauseKind::Spec)
        },
        OperationCause::Source { object, revision } => AuditCause {
            object: text(object),
            version: text(revision),
            ..plain(AuditCauseKind::Source)
        },
        OperationCause::Values { object, version } => AuditCause {
            object: text(object),
            version: text(version),
            ..plain(AuditCauseKind::Values)
        },
        OperationCause::Request(request) => audit::requested(request),
        OperationCause::Failure => plain(AuditCauseKind::Failure),
        OperationCause::Deletion => plain(AuditCauseKind::Deletion),
    }
}

fn state(of: AuditedRevision) -> AuditRevision {
    AuditRevision {
        revision: Some(of.revision.to_string()),
        chart: text(of.chart_name),
        chart_version: text(of.chart_version),
        app_version: text(of.app_version),
        values_digest: text(of.values_digest),
        digest: None,
    }
}

fn step(of: release_audit::AuditedStep) -> AuditStep {
    AuditStep {
        name: of.name.to_owned(),
        hook: of.hook,
        started: when(of.started),
        ended: of.ended.and_then(when),
        failed: of.failed,
    }
}

/// A revision, as events of lifecycles name it.
fn named(of: &lifecycle::ReleaseOrSourceRevision) -> AuditRevision {
    AuditRevision {
        revision: text(&*of.revision),
        chart: text(&*of.chart_name),
        chart_version: text(&*of.chart_version),
        ..AuditRevision::default()
    }
}

/// The origin of an operation, as far as the metadata of its owner tell.
pub fn origin(meta: &ObjectMeta) -> OperationOrigin {
    let generation = meta.generation.unwrap_or_default();
    OperationOrigin {
        generation,
        manager: manager_of_spec(meta),
        request: audit::request(meta, REQUESTED_AT),
        rollback: audit::request(meta, ROLLBACK),
        ..OperationOrigin::default()
    }
}

/// The subject of an audit record: an owner, and its release by name and namespace.
pub fn subject(
    owner: &ObjectKey,
    desired: &ReleaseDesiredState,
    name: &str,
    namespace: &str,
) -> AuditSubject {
    AuditSubject {
        group: owner.group.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: desired.owner.clone(),
        generation: desired.generation,
        release: Some(AuditHelmRelease {
            name: cut(name, 200),
            namespace: cut(namespace, 200),
            kube_context: cut(&desired.kube_context, 200),
        }),
    }
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// Writes the audit of the operation that ended, before the status reports its end.
    pub(super) async fn audit(&self) {
        if !self.context.settings.release_audits {
            return;
        }
        let revisions = self.revisions();
        let Some(last) = revisions.last() else { return };
        let Some(journal) = &last.journal else { return };
        let audit = release_audit::of(&revisions, &last.record, journal, jiff::Timestamp::now());
        let (changes, partial) = match &audit.span {
            Some(span) => (self.changes(span).await, span.partial),
            None => (Vec::new(), false),
        };
        let spec = ReleaseAuditSpec {
            subject: self.subject(&last.record),
            operation: operation(journal.action),
            id: Some(journal.id.clone()),
            causes: audit.causes.into_iter().map(cause).collect(),
            from: audit.from.map(state),
            to: audit.to.map(state),
            changes: audit::listed(changes, partial, &self.desired_release.secrets),
            steps: audit.steps.into_iter().map(step).collect(),
            omitted_steps: count(audit.omitted_steps),
            lifecycles: audit.answers.into_iter().map(answer).collect(),
            outcome: match audit.outcome {
                OperationOutcome::Succeeded => AuditOutcome::Succeeded,
                OperationOutcome::Failed => AuditOutcome::Failed,
                OperationOutcome::Stopped => AuditOutcome::Stopped,
            },
            message: audit.error.map(|error| self.desired_release.masked(&error)),
            started: when(audit.started),
            ended: when(audit.ended),
            duration: took(audit.started, audit.ended),
            ..ReleaseAuditSpec::default()
        };
        self.write_audit(&journal.id.clone(), spec).await;
    }

    /// Writes the audit of an operation that a lifecycle did not let begin.
    pub(super) async fn audit_refused(&self, refused: &LifecycleRefusedOperation) {
        let now = jiff::Timestamp::now();
        let target = &self.desired().spec.target;
        let began = refused.answers.iter().map(|it| it.asked).min().unwrap_or(now);
        let asked: Vec<&str> = refused.answers.iter().map(|it| it.event.as_str()).collect();
        let spec = ReleaseAuditSpec {
            subject: subject(&self.node.whole(), self.desired(), &target.name, &target.namespace),
            operation: operation(refused.action),
            id: Some(refused.operation.clone()),
            from: refused.from.as_ref().map(named),
            to: Some(named(&refused.to)),
            lifecycles: refused.answers.iter().cloned().map(answer).collect(),
            outcome: AuditOutcome::Failed,
            message: text(self.desired_release.masked(&refused.error)),
            started: when(began),
            ended: when(now),
            duration: took(began, now),
            ..ReleaseAuditSpec::default()
        };
        // An operation that is tried again asks again, by other events.
        let key = format!("{} refused {}", refused.operation, asked.join(" "));
        self.write_audit(&key, spec).await;
    }

    /// Writes the audit record of a correction of drift. It leaves out objects that had such a record in the last minutes.
    pub(super) async fn audit_correction(
        &self,
        record: &ReleaseRecord,
        changes: Vec<ObjectChange>,
        faults: &[String],
        started: Time,
    ) {
        let now = jiff::Timestamp::now();
        let stretch = audit::stretch(now);
        let changes = self.contests().unaudited(stretch, changes);
        if !self.context.settings.release_audits || changes.is_empty() {
            return;
        }
        // An owner may have the same objects in several clusters.
        let key = format!("{} {}", audit::correction_key(stretch, &changes), self.node.name);
        let spec = ReleaseAuditSpec {
            subject: self.subject(record),
            operation: AuditOperation::CorrectDrift,
            causes: vec![AuditCause { type_: AuditCauseKind::Drift, ..AuditCause::default() }],
            to: Some(AuditRevision {
                revision: Some(record.version.to_string()),
                ..AuditRevision::default()
            }),
            changes: audit::listed(changes, !faults.is_empty(), &self.desired_release.secrets),
            outcome: match faults.is_empty() {
                true => AuditOutcome::Succeeded,
                false => AuditOutcome::Failed,
            },
            message: text(faults.join("\n")),
            started: when(started.min(now)),
            ended: when(now),
            ..ReleaseAuditSpec::default()
        };
        self.write_audit(&key, spec).await;
    }

    async fn write_audit(&self, key: &str, spec: ReleaseAuditSpec) {
        let namespace = &self.node.namespace;
        if let Some(event) = audit::write(&self.context, namespace, key, spec).await {
            self.owner.announce(event);
        }
    }

    fn subject(&self, record: &ReleaseRecord) -> AuditSubject {
        subject(&self.node.whole(), self.desired(), &record.name, &record.namespace)
    }

    /// The changes by an operation, from its revisions.
    async fn changes(&self, span: &RecordsBeforeAndAfter) -> Vec<ObjectChange> {
        let before = self.objects_of(span.before.as_deref()).await;
        let after = self.objects_of(span.after.as_deref()).await;
        let kept = before.iter().filter(|it| it.annotation(POLICY).is_some());
        let kept: BTreeSet<ObjectId> = kept.map(Object::id).collect();
        let mut changes = between(&before, &after);
        changes.retain(|it| it.what != ObjectChangeKind::Removed || !kept.contains(&it.id));
        let adopted: BTreeSet<&str> = span.adopted.iter().map(String::as_str).collect();
        adopt(&mut changes, |id| adopted.contains(id.to_string().as_str()));
        changes
    }

    /// The objects of a revision as they are applied. If the cluster no longer serves a kind, the object is as in the
    /// manifest.
    async fn objects_of(&self, record: Option<&ReleaseRecord>) -> Vec<Object> {
        let Some(record) = record else { return Vec::new() };
        match self.members(record).await {
            Ok(members) => members.iter().map(|member| member.object.clone()).collect(),
            Err(_) => manifest_objects::read(&record.manifest).unwrap_or_default(),
        }
    }
}
