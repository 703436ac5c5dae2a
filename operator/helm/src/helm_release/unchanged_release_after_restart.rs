//! The first run after a restart of a HelmRelease that nothing has changed: it reads no records and compares no objects.
//!
//! A run that ends with the release as desired keeps a note beside the comparison of its objects: the digest of what the release
//! is rendered from, the newest revision in the status, and the digest of the versions of the records. If the next process finds
//! the same of all, and no object has changed, the result is the same as well.
//!
//! Elsewhere: the files and the comparison of objects (`windlass_cluster::object_watcher`), the versions of records
//! (`release_runner::record_versions`).

use crds::helm::HelmRelease;
use kube_core::ResourceExt as _;
use reconcile::{ConditionStatus, RunOutcome};
use release::operation_status_changes::attempted;
use release::release_snapshot::latest;
use release::release_spec::DriftMode;
use release::status::HelmReleaseStatusFields;
use release::{ReleaseDesiredState, released};

use super::{HelmReleaseSession, required_releases, status};
use crate::release_runner::DesiredRelease;
use crate::release_runner::record_versions::RecordVersions;
use crate::release_runner::release_run::ReleaseRunnerReport;
use windlass_cluster::object_watcher::{OwnerVersion, StoredRunFacts};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::hold_conditions;

/// The note about a release: the digests of its inputs and of the versions of its records, the generation, and the newest
/// revision in the status. A process that ended before it wrote that status leaves a note that does not match.
fn note(desired: &ReleaseDesiredState, status: &HelmReleaseStatusFields, records: &str) -> String {
    let newest = latest(&status.history);
    let newest = newest.map(|it| format!("{} {} {}", it.version, it.digest, it.status));
    let newest = newest.unwrap_or_default();
    format!("{} {} {newest} {records}", desired.inputs, desired.generation)
}

impl HelmReleaseSession<'_> {
    /// Keeps the comparison of a release after a run that found or made it as desired.
    pub(super) fn keep_comparison(
        &self,
        object: &HelmRelease,
        desired: &ReleaseDesiredState,
        target: &ClusterTarget,
        driven: &ReleaseRunnerReport,
        status: &HelmReleaseStatusFields,
    ) {
        if !driven.outcome.is_settled() || desired.deleted || desired.suspended {
            return;
        }
        // Drift that is only reported is not known without a comparison.
        let records = driven.record_versions.as_deref();
        let records = records.filter(|_| desired.spec.drift != DriftMode::Warn);
        let note = records.map(|records| note(desired, status, records)).unwrap_or_default();
        let reads_nothing = object.spec.values_from.is_empty()
            && object.spec.depends_on.iter().all(|entry| entry.kind.is_none())
            && !object.annotations().contains_key(required_releases::REQUIRES);
        let version = OwnerVersion::of(object);
        let is_free = reads_nothing && !note.is_empty();
        // A release that is deployed is not observed for readiness any more.
        let facts = StoredRunFacts { version, is_free, reads_health: false, note };
        target.watcher().keep_comparison(&self.node, facts);
    }

    /// The outcome of the first run after a start, if the release is as the process before has left it. `None` if that is not
    /// known, so that records and objects have to be read.
    pub(super) async fn confirmed(
        &self,
        object: &HelmRelease,
        desired_release: &DesiredRelease,
        target: &ClusterTarget,
    ) -> Option<RunOutcome> {
        let noted = target.watcher().take_note(&self.node).filter(|note| !note.is_empty())?;
        let desired = &desired_release.desired;
        let known = status::read(object);
        let requests = &desired.requests;
        let is_at_rest = !desired.deleted
            && !desired.suspended
            && !hold_conditions::is_asked(object)
            && requests.rollback.is_none()
            && requests.unverified_rollback.is_none()
            && desired.failures.quarantine.is_none()
            && attempted(desired, &known) == known;
        let is_as_compared =
            !desired_release.is_observed() || target.watcher().is_unmoved(&self.node);
        let said = known.summary(desired).filter(|said| said.status == ConditionStatus::True)?;
        if !is_at_rest || !is_as_compared {
            return None;
        }
        let (namespace, name) = released(desired, &known);
        let versions = self.context.shared::<RecordVersions>();
        let records = versions.of(&self.context, &namespace, &name).await?;
        (noted == note(desired, &known, &records))
            .then_some(RunOutcome::Settled(said.reason, said.text))
    }
}
