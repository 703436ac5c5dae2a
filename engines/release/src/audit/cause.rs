//! Finds the causes of an operation by comparing its inputs with those of the operation before it.

use std::sync::Arc;

use crate::journal::{OperationJournal, OperationKind};
use crate::operation_origin::{AnnotationRequest, OperationOrigin};
use crate::record::ReleaseRecord;
use crate::revisions::ReleaseRevision;

/// One of the reasons for an operation. Empty strings are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationCause {
    /// The spec is new, or another.
    Spec {
        /// The generation of the spec; 0 if it is unknown.
        generation: i64,
        /// The field manager that changed the spec.
        manager: String,
    },
    /// The chart is another.
    Source {
        /// The source, as `Kind/namespace/name`.
        object: String,
        /// The revision of its artifact.
        revision: String,
    },
    /// The values are others.
    Values {
        /// The ConfigMap or Secret, as `Kind/namespace/name`.
        object: String,
        /// The `resourceVersion` of the ConfigMap or Secret; empty if it was deleted.
        version: String,
    },
    /// A user requested the operation by an annotation.
    Request(AnnotationRequest),
    /// The previous operation failed.
    Failure,
    /// The release is to go.
    Deletion,
}

/// Lists the causes of an operation by comparing the inputs in its journal with those of the revision `before`,
/// from which the operation started.
pub(super) fn of(
    record: &Arc<ReleaseRecord>,
    journal: &OperationJournal,
    before: Option<&ReleaseRevision>,
) -> Vec<OperationCause> {
    let origin = &journal.origin;
    let spec =
        || OperationCause::Spec { generation: origin.generation, manager: origin.manager.clone() };
    let mut causes = match journal.action {
        OperationKind::Install | OperationKind::Test => vec![spec()],
        OperationKind::Rollback => {
            return vec![
                origin.rollback.clone().map_or(OperationCause::Failure, OperationCause::Request),
            ];
        }
        OperationKind::UninstallRemediation => return vec![OperationCause::Failure],
        OperationKind::Uninstall => return vec![OperationCause::Deletion],
        OperationKind::Upgrade => {
            let mut causes = changed(record, origin, before);
            // The inputs of an operation of another client are unknown.
            let known = before.and_then(|it| it.journal.as_ref()).map(|it| &it.origin);
            let known = known.filter(|it| it.generation != 0);
            if known.is_some_and(|it| it.generation != origin.generation) {
                causes.push(spec());
            }
            causes
        }
    };
    causes.extend(origin.request.clone().map(OperationCause::Request));
    // The counter is that of this failure, if it were one.
    if journal.failures > 1 {
        causes.push(OperationCause::Failure);
    }
    if causes.is_empty() {
        causes.push(spec());
    }
    causes
}

/// Which chart and values an upgrade brought.
fn changed(
    record: &ReleaseRecord,
    origin: &OperationOrigin,
    before: Option<&ReleaseRevision>,
) -> Vec<OperationCause> {
    let mut causes = Vec::new();
    let Some(before) = before else { return causes };
    let known = before.journal.as_ref().map(|it| &it.origin).filter(|it| !it.is_unknown());
    let is_another_chart = before.record.versioned_chart() != record.versioned_chart();
    let is_another_revision = known.is_some_and(|it| it.revision != origin.revision);
    if is_another_chart || is_another_revision {
        let object = origin.source.clone();
        let revision = origin.revision.clone();
        causes.push(OperationCause::Source { object, revision });
    }
    let digest = |record: &ReleaseRecord| helm::values::digest(&record.config).ok();
    if digest(&before.record) == digest(record) {
        return causes;
    }
    let versions = known.map(|it| &it.values);
    let named = origin.values.keys().chain(versions.into_iter().flat_map(|it| it.keys()));
    let mut named: Vec<&String> = named.collect();
    named.sort_unstable();
    named.dedup();
    let version =
        |of: &OperationOrigin, object: &String| of.values.get(object).cloned().unwrap_or_default();
    for object in named {
        let now = version(origin, object);
        if known.is_some_and(|known| version(known, object) != now) {
            causes.push(OperationCause::Values { object: object.clone(), version: now });
        }
    }
    causes
}
