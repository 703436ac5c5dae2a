//! The specification of one release, made from the helmfile and the Helmfile's spec. Pure.
//!
//! Elsewhere: the meaning of the spec's fields, which are the fields of a HelmRelease
//! (`helm_controller::helm_release::validated_spec`), the row of the release (`release_status_writer.rs`).

use std::collections::BTreeMap;

use crds::GoDuration;
use crds::helm::{
    ActionStrategy, ChartNameChangeStrategy, CrdsPolicy, DeletionPropagation, DriftDetection,
    DriftDetectionMode, HelmReleaseSpec, HelmReleaseStatus, Install, InstallRemediation,
    InstallStrategy, Rollback, ServerSideApplyMode, Snapshot, Uninstall, Upgrade,
    UpgradeRemediation, UpgradeStrategy,
};
use crds::helmfile::{HelmfileReleaseStatus, HelmfileSpec};
use helmfile::ReleaseOperationSettings;
use kube_core::ResourceExt as _;
use reconcile::{
    NextRunTrigger, REQUESTED_BY, REQUESTED_REASON, ROLLBACK, ReleaseHistoryRevision,
    ReleaseRollbackProgress, RunOutcome,
};
use release::operation_origin::AnnotationRequest;
use release::release_spec::AnnotationRequests;
use release::release_target::ReleaseTarget;
use release::status::HelmReleaseStatusFields;
use release::{OperationOrigin, release_snapshot};
use sha2::{Digest as _, Sha256};

use super::helmfile_kind_differences::HelmfileCustomResource;
use super::plan::{PlannedChart, PlannedRelease, ReleaseKey};
use super::validated_spec::HelmfileTimeouts;
use helm_controller::helm_release::{status, validated_spec};
use helm_controller::release_runner::audit;
use helm_controller::release_runner::validated_spec::{ReleaseInputs, ValidatedSpec};
use windlass_runtime::audit::claim;
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_serve::settings::OperatorSettings;

/// The settings of operations on a release that is no longer in the helmfile.
pub(super) fn unplanned() -> ReleaseOperationSettings {
    ReleaseOperationSettings::default()
}

/// The specification of a release, in the fields that a HelmRelease has for it. [`digest`] covers all of them.
fn spec(
    asked: &HelmfileSpec,
    key: &ReleaseKey,
    operation: &ReleaseOperationSettings,
    timeouts: &HelmfileTimeouts,
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

/// The specification of a release.
///
/// # Errors
/// A field of the Helmfile's spec or of the operation settings cannot be read.
pub fn release_spec(
    asked: &HelmfileSpec,
    key: &ReleaseKey,
    operation: &ReleaseOperationSettings,
    timeouts: &HelmfileTimeouts,
    settings: &OperatorSettings,
) -> Result<ValidatedSpec, RunOutcome> {
    let ReleaseKey { namespace, name, .. } = key;
    let target = ReleaseTarget::of(name, namespace, name, namespace, namespace);
    let spec = spec(asked, key, operation, timeouts);
    validated_spec::validate(&spec, target, BTreeMap::new(), settings)
}

/// The known facts about a release, by its status row. A request for the Helmfile counts as a request for each release.
pub(super) fn known<K: HelmfileCustomResource>(
    helmfile: &K,
    status: HelmReleaseStatus,
) -> HelmReleaseStatusFields {
    let last_handled_reconcile = helmfile.last_handled_reconcile_at().map(str::to_owned);
    HelmReleaseStatusFields { last_handled_reconcile, ..status::of(status) }
}

/// The requests of a user for a release.
pub(super) fn requests<K: HelmfileCustomResource>(
    helmfile: &K,
    key: &ReleaseKey,
    known: &HelmReleaseStatusFields,
) -> AnnotationRequests {
    let requested = helmfile.annotations().get(REQUESTED_AT);
    // A request repeats a failed release. The operation that it begins may be held for longer than one run, and remains the
    // same.
    let has_failed = known.install_failures > 0 || known.upgrade_failures > 0;
    let reset = requested.filter(|_| has_failed).or(known.last_handled_reset.as_ref());
    let given = |at: Option<&String>| at.filter(|at| !at.is_empty()).cloned();
    AnnotationRequests {
        reconcile: given(requested),
        reset: given(reset),
        rollback: rollback(helmfile, key),
        ..AnnotationRequests::default()
    }
}

/// The origin of an operation on a release, as far as the metadata of its Helmfile tell.
pub(super) fn origin<K: HelmfileCustomResource>(helmfile: &K, key: &ReleaseKey) -> OperationOrigin {
    let origin = audit::origin(helmfile.meta());
    // The reason of a suspension is about the whole Helmfile.
    let rollback = rollback(helmfile, key).zip(origin.rollback).map(|(asked, request)| {
        let manager = request.manager;
        let claim = claim(helmfile.meta(), &manager, REQUESTED_BY, REQUESTED_REASON);
        AnnotationRequest { at: asked.annotation(None), manager, ..claim.unwrap_or_default() }
    });
    OperationOrigin { rollback, ..origin }
}

/// The rollback of a release that a user requests in an annotation of the Helmfile. `None` if there is no such request for this
/// release.
fn rollback<K: HelmfileCustomResource>(
    helmfile: &K,
    key: &ReleaseKey,
) -> Option<reconcile::ReleaseRollback> {
    let annotation = helmfile.annotations().get(ROLLBACK)?;
    reconcile::ReleaseRollback::of(annotation, Some(&key.to_string()))
}

/// Whether a user requests the rollback of a suspended release, and its row does not report the rollback as done or over. Then
/// windlass carries it out, or reports in the status why not.
pub(super) fn rolls_back<K: HelmfileCustomResource>(
    helmfile: &K,
    key: &ReleaseKey,
    row: Option<&HelmfileReleaseStatus>,
) -> bool {
    let asked = rollback(helmfile, key).zip(row);
    asked.is_some_and(|(asked, row)| {
        let made = |it: &Snapshot| {
            ReleaseHistoryRevision::new(
                it.version,
                &it.status,
                it.action.as_deref().unwrap_or_default(),
            )
        };
        let progress = asked.progress(row.status.history.iter().map(made));
        matches!(progress, ReleaseRollbackProgress::Requested | ReleaseRollbackProgress::Overtaken)
    })
}

/// A digest of the whole specification of a release at a target. While the digest stays the same, there is nothing new to do.
pub(super) fn digest(
    planned: &PlannedRelease,
    chart: &PlannedChart,
    asked: &HelmfileSpec,
    timeouts: &HelmfileTimeouts,
    place: &str,
) -> String {
    let spec = spec(asked, &planned.key, &planned.operation, timeouts);
    let spec = serde_json::to_vec(&spec).unwrap_or_default();
    let hooks = &planned.hooks.digest;
    // In another cluster, hooks have to apply their manifests once more.
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

/// The newest revision of a release in its history. `None` if the history is empty.
pub(super) fn latest_version(known: &HelmReleaseStatusFields) -> Option<i64> {
    release_snapshot::latest(&known.history).map(|it| it.version)
}

/// The chart and values from which a release is made.
pub(super) fn inputs(planned: &PlannedRelease, chart: &PlannedChart) -> ReleaseInputs {
    ReleaseInputs {
        chart_name: chart.name.clone(),
        chart_version: chart.version.clone(),
        app_version: chart.app_version.clone(),
        oci_digest: String::new(),
        config_digest: planned.values_digest.clone(),
        artifact_digest: chart.digest.clone(),
    }
}

/// Checks that the status row of a release can be read.
///
/// # Errors
/// The outcome names the invalid part of the row.
pub(super) fn check(
    key: &ReleaseKey,
    row: Option<&HelmfileReleaseStatus>,
) -> Result<(), RunOutcome> {
    status::check(row.map(|row| &row.status)).map_err(|outcome| {
        let text = format!("release {}: {}", key.name, outcome.text());
        RunOutcome::Failed(outcome.reason(), text, NextRunTrigger::default())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crds::helmfile::Helmfile;
    use reconcile::SUSPENDED_BY;
    use serde_json::{Value, json};

    use super::super::hooks::ReleaseHooks;
    use super::super::testing::{key, release};
    use super::*;

    /// The digest of a release that is planned like this.
    fn digest_of(asked: &Value, planned: &PlannedRelease) -> String {
        let [interval, retry, timeout] = [600, 60, 300].map(Duration::from_secs);
        let timeouts = HelmfileTimeouts { interval, retry, timeout };
        let asked: HelmfileSpec = serde_json::from_value(asked.clone()).unwrap();
        let mut chart = planned.chart.clone().unwrap();
        chart.digest = "sha256:0".to_owned();
        digest(planned, &chart, &asked, &timeouts, "east")
    }

    #[test]
    fn rows_that_earlier_versions_wrote_have_the_digests_that_are_made_now() {
        let operation = ReleaseOperationSettings {
            history: 10,
            creates_namespace: true,
            ..ReleaseOperationSettings::default()
        };
        let values_digest = "sha256:1".to_owned();
        let planned = PlannedRelease { operation, values_digest, ..release("web", 0, &[]) };
        assert_eq!(
            digest_of(&json!({"interval": "10m"}), &planned),
            "sha256:bf568bf29445eac1a2a3d1b2179e90e374e4f66444ef504212dfe8ed611d8734"
        );
        let operation = ReleaseOperationSettings {
            wait: true,
            wait_for_jobs: true,
            timeout: Some(600),
            rolls_back: true,
            cleans_up: true,
            force: true,
            history: 0,
            creates_namespace: false,
            takes_ownership: true,
            skips_crds: true,
            skips_openapi: true,
            server_side: Some(false),
            cascade: "orphan".to_owned(),
            waits_for_deletion: true,
            deletion_timeout: Some(30),
        };
        let hooks = Arc::new(ReleaseHooks { all: Vec::new(), digest: "sha256:2".to_owned() });
        let planned = PlannedRelease { operation, hooks, skips_schema: true, ..planned };
        assert_eq!(
            digest_of(&json!({"interval": "10m", "driftDetection": {"mode": "warn"}}), &planned),
            "sha256:5c7890d86a42036430761aceb91d361052d38f8dcccdcdf37bbda740f3ef71d8"
        );
    }

    #[test]
    fn a_rollback_is_requested_of_one_release_and_a_run_of_all() {
        let annotations = json!({REQUESTED_AT: "now", REQUESTED_BY: "ann", SUSPENDED_BY: "bob",
            ROLLBACK: "n/web:5->3"});
        let fields = json!({format!("f:{ROLLBACK}"): {}, format!("f:{REQUESTED_BY}"): {},
            format!("f:{SUSPENDED_BY}"): {}});
        let managed = json!([{"manager": "cli", "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:annotations": fields}}}]);
        let helmfile: Helmfile = serde_json::from_value(json!({
            "apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
            "metadata": {"name": "all", "annotations": annotations, "managedFields": managed},
            "spec": {"interval": "10m"},
        }))
        .unwrap();
        let at = |text: &str| Some(text.to_owned());
        let now = AnnotationRequests { reconcile: at("now"), ..AnnotationRequests::default() };
        let none = HelmReleaseStatusFields::default();
        let rollback = Some(reconcile::ReleaseRollback { from: 5, to: 3 });
        let asked =
            |name: &str, known: &HelmReleaseStatusFields| requests(&helmfile, &key(name), known);
        assert_eq!(asked("web", &none), AnnotationRequests { rollback, ..now.clone() });
        assert_eq!(asked("db", &none), now);
        // What has failed is repeated, and what was repeated is not forgotten.
        let failed = HelmReleaseStatusFields { upgrade_failures: 1, ..none.clone() };
        assert_eq!(asked("db", &failed), AnnotationRequests { reset: at("now"), ..now.clone() });
        let reset = HelmReleaseStatusFields { last_handled_reset: at("before"), ..none };
        assert_eq!(asked("db", &reset), AnnotationRequests { reset: at("before"), ..now });
        let manual = AnnotationRequest {
            at: "5->3".to_owned(),
            manager: "cli".to_owned(),
            user: "ann".to_owned(),
            reason: String::new(),
        };
        assert_eq!(origin(&helmfile, &key("web")).rollback, Some(manual));
        assert_eq!(origin(&helmfile, &key("db")).rollback, None);
    }
}
