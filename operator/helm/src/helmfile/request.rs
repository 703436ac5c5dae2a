//! A release of a helmfile as the release runner keeps it: as if a HelmRelease asked for it. Pure.
//!
//! Elsewhere: what the spec of a HelmRelease means (`helm_release`), what becomes of its status (`release_states.rs`).

use apply::ignore::Rules;
use crds::helm::{
    ActionStrategy, ChartNameChangeStrategy, CrdsPolicy, DeletionPropagation, DriftDetection,
    DriftDetectionMode, HelmRelease, HelmReleaseSpec, HelmReleaseStatus, Install,
    InstallRemediation, InstallStrategy, Rollback, ServerSideApplyMode, Snapshot, Uninstall,
    Upgrade, UpgradeRemediation, UpgradeStrategy,
};
use crds::helmfile::{HelmfileSpec, ReleaseRow};
use crds::{GoDuration, Time};
use helmfile::Operation;
use kube_core::ResourceExt as _;
use reconcile::{
    MadeRevision, Outcome, REQUESTED_BY, REQUESTED_REASON, ROLLBACK, RemovalPermit,
    RollbackProgress, Wake,
};
use release::snapshot;
use release::status::ReleaseStatus;
use sha2::{Digest as _, Sha256};

use super::model::Model;
use super::plan::{Key, PlannedChart, PlannedRelease};
use super::validated_spec::Timeouts;
use crate::helm_release::{RESET_AT, status, validated_spec};
use windlass_runtime::kind::REQUESTED_AT;

/// How operations on a release are done that is no longer in the helmfile.
pub(super) fn unplanned() -> Operation {
    Operation::default()
}

/// The spec of the HelmRelease that would ask for the same.
pub(super) fn spec(
    asked: &HelmfileSpec,
    key: &Key,
    operation: &Operation,
    timeouts: &Timeouts,
) -> HelmReleaseSpec {
    let seconds = |seconds: Option<u64>| seconds.map(|it| GoDuration::from(format!("{it}s")));
    let duration = |it| GoDuration::from(reconcile::format_duration(it));
    let wait = operation.wait || asked.wait;
    let retry = Some(duration(timeouts.retry));
    let disable_wait = !wait;
    let disable_wait_for_jobs = !(wait && operation.wait_for_jobs);
    let crds = operation.skips_crds.then_some(CrdsPolicy::Skip);
    let (name, rolls_back) = match operation.rolls_back {
        true => (ActionStrategy::RemediateOnFailure, true),
        false => (ActionStrategy::RetryOnFailure, false),
    };
    let retry_interval = retry.filter(|_| !rolls_back);
    let drift = asked
        .drift_detection
        .clone()
        .unwrap_or(DriftDetection { mode: Some(DriftDetectionMode::Enabled), ignore: Vec::new() });
    HelmReleaseSpec {
        interval: asked.interval.clone(),
        release_name: Some(key.name.clone()),
        target_namespace: Some(key.namespace.clone()),
        storage_namespace: Some(key.namespace.clone()),
        timeout: Some(seconds(operation.timeout).unwrap_or_else(|| duration(timeouts.timeout))),
        max_history: Some(i64::try_from(operation.history).unwrap_or_default()),
        drift_detection: Some(drift),
        install: Some(Install {
            strategy: Some(InstallStrategy { name, retry_interval: retry_interval.clone() }),
            // Helm tries again at each call, so retries are unlimited.
            remediation: rolls_back
                .then(|| InstallRemediation { retries: -1, ..InstallRemediation::default() }),
            disable_take_ownership: !operation.takes_ownership,
            disable_wait,
            disable_wait_for_jobs,
            disable_openapi_validation: operation.skips_openapi,
            crds,
            create_namespace: operation.creates_namespace,
            server_side_apply: operation.server_side,
            ..Install::default()
        }),
        upgrade: Some(Upgrade {
            strategy: Some(UpgradeStrategy { name, retry_interval }),
            remediation: rolls_back
                .then(|| UpgradeRemediation { retries: -1, ..UpgradeRemediation::default() }),
            disable_take_ownership: !operation.takes_ownership,
            disable_wait,
            disable_wait_for_jobs,
            disable_openapi_validation: operation.skips_openapi,
            force: operation.force,
            cleanup_on_fail: operation.cleans_up,
            crds,
            server_side_apply: operation.server_side.map(|is_on| match is_on {
                true => ServerSideApplyMode::Enabled,
                false => ServerSideApplyMode::Disabled,
            }),
            // Helm upgrades to a chart of another name in place.
            chart_name_change_strategy: Some(ChartNameChangeStrategy::InPlaceUpdate),
            ..Upgrade::default()
        }),
        rollback: Some(Rollback {
            disable_wait,
            disable_wait_for_jobs,
            cleanup_on_fail: operation.cleans_up,
            force: operation.force,
            ..Rollback::default()
        }),
        uninstall: Some(Uninstall {
            timeout: seconds(operation.deletion_timeout),
            disable_wait: !operation.waits_for_deletion,
            deletion_propagation: match operation.cascade.as_str() {
                "foreground" => Some(DeletionPropagation::Foreground),
                "orphan" => Some(DeletionPropagation::Orphan),
                _ => None,
            },
            ..Uninstall::default()
        }),
        ..HelmReleaseSpec::default()
    }
}

/// The HelmRelease that would ask for a release of a Helmfile, with what is known of the release. It is a deleted one if the
/// removal of the release is permitted.
pub(super) fn as_helm_release<K: Model>(
    helmfile: &K,
    key: &Key,
    spec: HelmReleaseSpec,
    known: Option<&ReleaseRow>,
    removal: Option<RemovalPermit>,
) -> HelmRelease {
    let mut release = HelmRelease::new(&key.name, spec);
    let meta = &mut release.metadata;
    meta.namespace = helmfile.namespace();
    meta.uid = helmfile.uid();
    meta.generation = helmfile.meta().generation;
    meta.managed_fields = helmfile.meta().managed_fields.clone();
    meta.deletion_timestamp = removal.map(|_| Time(jiff::Timestamp::now()));
    if let Some(requested) = helmfile.annotations().get(REQUESTED_AT) {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(REQUESTED_AT.to_owned(), requested.clone());
    }
    for key in [REQUESTED_BY, REQUESTED_REASON] {
        if let Some(text) = helmfile.annotations().get(key) {
            meta.annotations.get_or_insert_default().insert(key.to_owned(), text.clone());
        }
    }
    if let Some(rollback) = rollback(helmfile, key) {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(ROLLBACK.to_owned(), rollback.annotation(None));
    }
    let mut status = known.map(|row| row.status.clone()).unwrap_or_default();
    // A request repeats what has failed. The operation that it begins may be held for longer than one run, and remains the same.
    let has_failed = status.install_failures > 0 || status.upgrade_failures > 0;
    let asked = helmfile.annotations().get(REQUESTED_AT).filter(|_| has_failed);
    if let Some(reset) = asked.cloned().or_else(|| status.last_handled_reset_at.clone()) {
        meta.annotations.get_or_insert_default().insert(RESET_AT.to_owned(), reset);
    }
    // What was asked of the whole was asked of each.
    status.last_handled_reconcile_at = helmfile.last_handled_reconcile_at().map(str::to_owned);
    release.status = Some(status);
    release
}

/// The rollback of a release that a user requests.
fn rollback<K: Model>(helmfile: &K, key: &Key) -> Option<reconcile::Rollback> {
    let annotation = helmfile.annotations().get(ROLLBACK)?;
    reconcile::Rollback::of(annotation, Some(&key.to_string()))
}

/// Whether a user requests that a suspended release is rolled back, and that is neither done nor known to be over, as
/// far as its row tells: it is carried out, or the status says why not.
pub(super) fn rolls_back<K: Model>(helmfile: &K, key: &Key, row: Option<&ReleaseRow>) -> bool {
    let asked = rollback(helmfile, key).zip(row);
    asked.is_some_and(|(asked, row)| {
        let made = |it: &Snapshot| {
            MadeRevision::new(it.version, &it.status, it.action.as_deref().unwrap_or_default())
        };
        let progress = asked.progress(row.status.history.iter().map(made));
        matches!(progress, RollbackProgress::Requested | RollbackProgress::Overtaken)
    })
}

/// What a status keeps of a release: without what is the Helmfile's.
pub(super) fn kept(status: &HelmReleaseStatus) -> HelmReleaseStatus {
    HelmReleaseStatus { last_handled_reconcile_at: None, helm_chart: None, ..status.clone() }
}

/// A digest of all that a release is kept as at a place: while it stays the same there is nothing new to do.
pub(super) fn digest(
    planned: &PlannedRelease,
    chart: &PlannedChart,
    spec: &HelmReleaseSpec,
    place: &str,
) -> String {
    let spec = serde_json::to_vec(spec).unwrap_or_default();
    let hooks = &planned.hooks.digest;
    // In another cluster hooks have to apply what they name once more.
    let hooks = (!hooks.is_empty()).then_some([place.as_bytes(), hooks.as_bytes()]);
    let skips = if planned.skips_schema { "skips the schema" } else { "" };
    let mut hash = Sha256::new();
    let parts = [
        chart.digest.as_bytes(),
        planned.values_digest.as_bytes(),
        skips.as_bytes(),
        spec.as_slice(),
    ];
    for part in parts.into_iter().chain(hooks.into_iter().flatten()) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// The newest revision that is known.
pub(super) fn latest_version(known: &ReleaseStatus) -> Option<i64> {
    snapshot::latest(&known.history).map(|it| it.version)
}

/// What a release is made from.
pub(super) fn parts(
    planned: &PlannedRelease,
    chart: &PlannedChart,
) -> validated_spec::ReleaseInputs {
    let metadata = &chart.loaded.chart.metadata;
    validated_spec::ReleaseInputs {
        chart_name: metadata.name.clone(),
        chart_version: metadata.version.clone(),
        app_version: metadata.app_version.clone(),
        oci_digest: String::new(),
        config_digest: planned.values_digest.clone(),
        artifact_digest: chart.digest.clone(),
    }
}

/// The durations and the rules of such a spec.
///
/// # Errors
/// What cannot be read, of the Helmfile's `driftDetection` or of a row of its status.
pub(super) fn checked(release: &HelmRelease) -> Result<(validated_spec::Timeouts, Rules), Outcome> {
    status::check(release).map_err(|outcome| {
        Outcome::Failed(
            outcome.reason(),
            format!("release {}: {}", release.name_any(), outcome.text()),
            Wake::default(),
        )
    })?;
    let timeouts = validated_spec::check(&release.spec)?;
    Ok((timeouts, validated_spec::ignore(&release.spec)?))
}
