//! Creates the record and the journal with which an operation begins.
//!
//! Elsewhere: when the operation begins ([`crate::plan`]), its tasks (`super`).

use helm::template::{RenderedRelease, text};
use reconcile::Time;

use crate::journal::{OperationJournal, OperationKind};
use crate::record::{
    GoTimestamp, HookRecord, ReleaseRecord, RevisionInfo, RevisionStatus, StoredChart,
};

/// The inputs of a new revision, apart from its rendering.
#[derive(Debug, Clone)]
pub struct NewRevisionInputs<'o> {
    /// The release.
    pub name: &'o str,
    /// The namespace of the release's objects.
    pub namespace: &'o str,
    /// The values of the user.
    pub config: &'o golang::value::GoMap,
    /// Whether the server applies its objects.
    pub server_side: bool,
    /// The previous revision, from which labels and the date of the first deployment are taken.
    pub base: Option<&'o ReleaseRecord>,
}

/// The record of an installation or upgrade that begins.
pub fn opened(
    opening: &NewRevisionInputs<'_>,
    rendered: &RenderedRelease,
    journal: &OperationJournal,
    version: i64,
) -> ReleaseRecord {
    let started = GoTimestamp::new(journal.started);
    let (status, description) = match journal.action {
        OperationKind::Install => (RevisionStatus::PendingInstall, "Initial install underway"),
        _ => (RevisionStatus::PendingUpgrade, "Preparing upgrade"),
    };
    let first = opening.base.and_then(|base| base.info.first_deployed.clone());
    let first = first.filter(|_| journal.action != OperationKind::Install);
    let manifests = rendered.manifests.iter();
    let manifest = text(manifests.map(|it| (it.path.as_str(), it.content.as_bytes())));
    ReleaseRecord {
        name: opening.name.to_owned(),
        namespace: opening.namespace.to_owned(),
        version,
        info: RevisionInfo {
            first_deployed: first.or_else(|| Some(started.clone())),
            last_deployed: Some(started),
            description: description.to_owned(),
            status,
            notes: String::from_utf8_lossy(&rendered.notes).into_owned(),
            ..RevisionInfo::default()
        },
        chart: Some(StoredChart::of(&rendered.chart)),
        config: opening.config.clone(),
        manifest: String::from_utf8_lossy(&manifest).into_owned(),
        hooks: rendered.hooks.iter().map(HookRecord::from).collect(),
        apply_method: if opening.server_side { "ssa" } else { "csa" }.to_owned(),
        labels: opening.base.map(|base| base.labels.clone()).unwrap_or_default(),
    }
}

/// The record of a rollback that begins: the content of `target`, with the number after `current`.
///
/// Parity(helm 4): nothing is rendered again, and hooks keep the result of their last run.
pub fn rolled_back(
    current: &ReleaseRecord,
    target: &ReleaseRecord,
    server_side: bool,
    at: Time,
) -> ReleaseRecord {
    let started = GoTimestamp::new(at);
    ReleaseRecord {
        version: current.version.saturating_add(1),
        namespace: current.namespace.clone(),
        info: RevisionInfo {
            first_deployed: current.info.first_deployed.clone(),
            last_deployed: Some(started),
            description: format!("Rollback to {}", target.version),
            status: RevisionStatus::PendingRollback,
            notes: target.info.notes.clone(),
            ..RevisionInfo::default()
        },
        apply_method: if server_side { "ssa" } else { "csa" }.to_owned(),
        ..target.clone()
    }
}
