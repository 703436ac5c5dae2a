//! What a HelmRelease asks for, checked and with Flux's defaults.
//!
//! Source: helm-controller 1.6 `api/v2` and `internal/action`. Elsewhere: the values (`values.rs`), what the program
//! itself needs of the spec (`action_options.rs`), what is decided (`release`).

use std::time::Duration;

use apply::ignore::Rules;
use crds::GoDuration;
use crds::helm::{
    ActionStrategy, ChartNameChangeStrategy, DeletionPropagation, DriftDetectionMode, HelmRelease,
    HelmReleaseSpec, RemediationStrategy,
};
use kube_core::ResourceExt as _;
use reconcile::{Outcome, ROLLBACK, SHORTEST_INTERVAL};
use release::ReleaseDesiredState;
use release::hold::Lifecycles;
use release::journal::{Propagation, WaitFor};
use release::phase::Gates;
use release::settings::{
    DriftMode, Install, Remediation, RemediationStrategy as Remedy, Requests, Rollback, Strategy,
    Test, Uninstall, Upgrade,
};
use release::snapshot::Filter;
use release::target::ReleaseTarget;
use sha2::{Digest as _, Sha256};

use super::HelmReleaseController;
use crate::release_runner::audit::origin;
use crate::release_runner::postrender;
pub use crate::release_runner::target_of as target;
use windlass_runtime::applier::{self, ApplierKind as _};
use windlass_runtime::ignore_rules::ignored;
use windlass_runtime::kind::REQUESTED_AT;
use windlass_serve::settings::Settings;

/// Annotation that asks for an upgrade, together with [`REQUESTED_AT`].
pub const FORCE_AT: &str = "reconcile.fluxcd.io/forceAt";
/// Annotation that asks for failures to be forgotten, together with [`REQUESTED_AT`].
pub const RESET_AT: &str = "reconcile.fluxcd.io/resetAt";

/// How long actions may take unless the spec says so.
const DEFAULT_ACTION_TIMEOUT: Duration = Duration::from_secs(300);
/// How long what failed waits for its retry unless the spec says so.
const RETRY_INTERVAL: Duration = Duration::from_secs(300);
/// How many revisions are kept unless the spec says so.
const MAX_HISTORY: i64 = 5;
/// How soon a run is repeated that failed outside of the release, unless the interval is shorter.
///
/// Differs(flux): there the delay grows from `--min-retry-delay` to `--max-retry-delay`. Here a missing object wakes
/// the HelmRelease as soon as it exists.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The durations of a spec, with their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Between two runs.
    pub(crate) interval: Duration,
    /// How soon a run is repeated that failed outside of the release.
    pub(crate) retry: Duration,
    /// For what has no time of its own.
    pub(crate) timeout: Duration,
    /// For each hook and each wait of an action.
    pub(crate) install: Duration,
    pub(crate) upgrade: Duration,
    pub(crate) rollback: Duration,
    pub(crate) test: Duration,
    pub(crate) uninstall: Duration,
    /// How long an action that is retried on failure waits for that.
    pub(crate) install_retry: Duration,
    pub(crate) upgrade_retry: Duration,
}

/// What a release is made from, beside the spec.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReleaseInputs {
    /// The chart's name.
    pub(crate) chart_name: String,
    /// The chart's version, with the digest of its artifact where that belongs to it.
    pub(crate) chart_version: String,
    /// The version of what the chart installs.
    pub(crate) app_version: String,
    /// The digest of the artifact, where a release is known by it.
    pub(crate) oci_digest: String,
    /// The digest of the values.
    pub(crate) config_digest: String,
    /// The digest of the chart's artifact.
    pub(crate) artifact_digest: String,
}

/// Checks what can be checked without the cluster and expressions.
pub(crate) fn check(spec: &HelmReleaseSpec) -> Result<Timeouts, Outcome> {
    ignore(spec)?;
    timeouts(spec)
}

/// The fields whose differences do not count as drift.
pub(crate) fn ignore(spec: &HelmReleaseSpec) -> Result<Rules, Outcome> {
    let rules = spec.drift_detection.as_ref().map_or(&[][..], |drift| &drift.ignore);
    ignored("spec.driftDetection.ignore", rules)
}

fn timeouts(spec: &HelmReleaseSpec) -> Result<Timeouts, Outcome> {
    let read = |field: &str, given: Option<&GoDuration>, default: Duration| match given {
        None => Ok(default),
        Some(text) => reconcile::parse_duration(text.as_str()).map_err(|error| {
            Outcome::Stalled(sources::reason::INVALID_DURATION, format!("{field}: {error}"))
        }),
    };
    let interval = read("spec.interval", Some(&spec.interval), MAX_RETRY_DELAY)?;
    if let Some(chart) = &spec.chart {
        read("spec.chart.spec.interval", chart.spec.interval.as_ref(), interval)?;
    }
    let timeout = read("spec.timeout", spec.timeout.as_ref(), DEFAULT_ACTION_TIMEOUT)?;
    let install = spec.install.as_ref();
    let upgrade = spec.upgrade.as_ref();
    let of = |field: &str, given: Option<&GoDuration>| read(field, given, timeout);
    let install_retry = install.and_then(|it| it.strategy.as_ref()?.retry_interval.as_ref());
    let upgrade_retry = upgrade.and_then(|it| it.strategy.as_ref()?.retry_interval.as_ref());
    Ok(Timeouts {
        interval,
        retry: interval.clamp(SHORTEST_INTERVAL, MAX_RETRY_DELAY),
        timeout,
        install: of("spec.install.timeout", install.and_then(|it| it.timeout.as_ref()))?,
        upgrade: of("spec.upgrade.timeout", upgrade.and_then(|it| it.timeout.as_ref()))?,
        rollback: of(
            "spec.rollback.timeout",
            spec.rollback.as_ref().and_then(|it| it.timeout.as_ref()),
        )?,
        test: of("spec.test.timeout", spec.test.as_ref().and_then(|it| it.timeout.as_ref()))?,
        uninstall: of(
            "spec.uninstall.timeout",
            spec.uninstall.as_ref().and_then(|it| it.timeout.as_ref()),
        )?,
        install_retry: read("spec.install.strategy.retryInterval", install_retry, RETRY_INTERVAL)?,
        upgrade_retry: read("spec.upgrade.strategy.retryInterval", upgrade_retry, RETRY_INTERVAL)?,
    })
}

/// The desired state of the release. `suspended` is what the gate makes of `spec.suspend` and holds.
pub(crate) fn desired(
    object: &HelmRelease,
    parts: ReleaseInputs,
    timeouts: &Timeouts,
    suspended: bool,
    settings: &Settings,
) -> ReleaseDesiredState {
    let spec = &object.spec;
    let target = target(object);
    let post_renderers_digest = postrender::digest(&spec.post_renderers);
    let common_metadata_digest = postrender::metadata_digest(spec.common_metadata.as_ref());
    let inputs = inputs(spec, &target, &parts, &post_renderers_digest, &common_metadata_digest);
    let failures = object.status.as_ref().map_or(0, |status| status.failures);
    let interval = applier::interval(object, HelmReleaseController::pace(timeouts), settings);
    let retry = retry(failures, settings);
    ReleaseDesiredState {
        owner: object.uid().unwrap_or_default(),
        kube_context: String::new(),
        generation: object.metadata.generation.unwrap_or_default(),
        target,
        deleted: object.metadata.deletion_timestamp.is_some(),
        suspended,
        gates: Gates::default(),
        lifecycles: Lifecycles::default(),
        chart_name: parts.chart_name,
        chart_version: parts.chart_version,
        app_version: parts.app_version,
        oci_digest: parts.oci_digest,
        config_digest: parts.config_digest,
        inputs,
        post_renderers_digest,
        common_metadata_digest,
        timeout: timeouts.timeout,
        // Parity(flux): a value that is not positive keeps all revisions.
        max_history: usize::try_from(spec.max_history.unwrap_or(MAX_HISTORY)).unwrap_or(0),
        install: install(spec, timeouts, settings),
        upgrade: upgrade(spec, timeouts, settings),
        rollback: rollback(spec, timeouts),
        test: test(spec, timeouts),
        uninstall: uninstall(spec, timeouts),
        drift: drift(spec),
        requests: requests(object),
        origin: origin(&object.metadata),
        retry,
        interval,
    }
}

/// How long what fails next waits, when so many attempts failed before it.
fn retry(failures: i64, settings: &Settings) -> Duration {
    let next = u32::try_from(failures.saturating_add(1)).unwrap_or(u32::MAX);
    let delay = reconcile::backoff(next, settings.min_retry_delay, settings.max_retry_delay);
    delay.max(SHORTEST_INTERVAL)
}

/// What annotations ask for; empty ones ask for nothing.
pub(super) fn requests(object: &HelmRelease) -> Requests {
    let asked = |key: &str| object.annotations().get(key).filter(|at| !at.is_empty()).cloned();
    let rollback = object.annotations().get(ROLLBACK);
    Requests {
        reconcile: asked(REQUESTED_AT),
        force: asked(FORCE_AT),
        reset: asked(RESET_AT),
        rollback: rollback.and_then(|text| reconcile::Rollback::of(text, None)),
        unverified_rollback: None,
    }
}

fn wait(disable_wait: bool, disable_wait_for_jobs: bool) -> WaitFor {
    match (disable_wait, disable_wait_for_jobs) {
        (true, _) => WaitFor::Nothing,
        (false, true) => WaitFor::Objects,
        (false, false) => WaitFor::ObjectsAndJobs,
    }
}

fn strategy(given: Option<ActionStrategy>, retry: Duration, settings: &Settings) -> Strategy {
    match given {
        Some(ActionStrategy::RemediateOnFailure) => Strategy::RemediateOnFailure,
        Some(ActionStrategy::RetryOnFailure) => Strategy::RetryOnFailure(retry),
        None if settings.retries_on_failure() => Strategy::RetryOnFailure(retry),
        None => Strategy::RemediateOnFailure,
    }
}

fn install(spec: &HelmReleaseSpec, timeouts: &Timeouts, settings: &Settings) -> Install {
    // Here and below no `..`: a new field must be thought about. What is not used here is in `action_options.rs`.
    let crds::helm::Install {
        timeout: _,
        strategy: named,
        remediation,
        disable_take_ownership: _,
        disable_wait,
        disable_wait_for_jobs,
        disable_hooks,
        disable_openapi_validation: _,
        disable_schema_validation: _,
        replace,
        // Parity(flux): it has no effect.
        skip_crds: _,
        crds: _,
        create_namespace: _,
        server_side_apply: _,
    } = spec.install.clone().unwrap_or_default();
    let crds::helm::InstallRemediation { retries, ignore_test_failures, remediate_last_failure } =
        remediation.unwrap_or_default();
    Install {
        timeout: timeouts.install,
        strategy: strategy(named.map(|it| it.name), timeouts.install_retry, settings),
        remediation: Remediation {
            retries,
            ignore_test_failures,
            remediate_last_failure,
            strategy: Remedy::Uninstall,
        },
        replace,
        disable_hooks,
        wait: wait(disable_wait, disable_wait_for_jobs),
    }
}

fn upgrade(spec: &HelmReleaseSpec, timeouts: &Timeouts, settings: &Settings) -> Upgrade {
    let crds::helm::Upgrade {
        timeout: _,
        strategy: named,
        remediation,
        disable_take_ownership: _,
        disable_wait,
        disable_wait_for_jobs,
        disable_hooks,
        disable_openapi_validation: _,
        disable_schema_validation: _,
        force: _,
        preserve_values: _,
        cleanup_on_fail,
        crds: _,
        server_side_apply: _,
        chart_name_change_strategy,
    } = spec.upgrade.clone().unwrap_or_default();
    let crds::helm::UpgradeRemediation {
        retries,
        ignore_test_failures,
        remediate_last_failure,
        strategy: remedy,
    } = remediation.unwrap_or_default();
    let remedy = match remedy.unwrap_or_default() {
        RemediationStrategy::Rollback => Remedy::Rollback,
        RemediationStrategy::Uninstall => Remedy::Uninstall,
    };
    let on_change = chart_name_change_strategy.unwrap_or_default();
    Upgrade {
        timeout: timeouts.upgrade,
        strategy: strategy(named.map(|it| it.name), timeouts.upgrade_retry, settings),
        remediation: Remediation {
            retries,
            ignore_test_failures,
            remediate_last_failure,
            strategy: remedy,
        },
        disable_hooks,
        wait: wait(disable_wait, disable_wait_for_jobs),
        cleanup_on_fail,
        in_place_chart_name_change: on_change == ChartNameChangeStrategy::InPlaceUpdate,
    }
}

fn rollback(spec: &HelmReleaseSpec, timeouts: &Timeouts) -> Rollback {
    let crds::helm::Rollback {
        timeout: _,
        disable_wait,
        disable_wait_for_jobs,
        disable_hooks,
        // Parity(flux): it has no effect.
        recreate: _,
        force: _,
        cleanup_on_fail,
        server_side_apply: _,
    } = spec.rollback.clone().unwrap_or_default();
    Rollback {
        timeout: timeouts.rollback,
        disable_hooks,
        wait: wait(disable_wait, disable_wait_for_jobs),
        cleanup_on_fail,
    }
}

fn test(spec: &HelmReleaseSpec, timeouts: &Timeouts) -> Test {
    let crds::helm::Test { enable, timeout: _, ignore_failures, filters } =
        spec.test.clone().unwrap_or_default();
    let filter = |crds::helm::Filter { name, exclude }| Filter { name, exclude };
    Test {
        enable,
        timeout: timeouts.test,
        ignore_failures,
        filters: filters.into_iter().map(filter).collect(),
    }
}

fn uninstall(spec: &HelmReleaseSpec, timeouts: &Timeouts) -> Uninstall {
    let crds::helm::Uninstall {
        timeout: _,
        disable_hooks,
        keep_history,
        disable_wait,
        deletion_propagation,
    } = spec.uninstall.clone().unwrap_or_default();
    let propagation = match deletion_propagation.unwrap_or_default() {
        DeletionPropagation::Background => Propagation::Background,
        DeletionPropagation::Foreground => Propagation::Foreground,
        DeletionPropagation::Orphan => Propagation::Orphan,
    };
    let timeout = timeouts.uninstall;
    Uninstall { timeout, disable_hooks, keep_history, disable_wait, propagation }
}

fn drift(spec: &HelmReleaseSpec) -> DriftMode {
    let mode = spec.drift_detection.as_ref().and_then(|drift| drift.mode);
    match mode.unwrap_or_default() {
        DriftDetectionMode::Enabled => DriftMode::Enabled,
        DriftDetectionMode::Warn => DriftMode::Warn,
        DriftDetectionMode::Disabled => DriftMode::Disabled,
    }
}

/// Names everything from which a release is rendered, so that an operation under way sees when it is no longer what is
/// desired.
fn inputs(
    spec: &HelmReleaseSpec,
    target: &ReleaseTarget,
    parts: &ReleaseInputs,
    post_renderers_digest: &str,
    common_metadata_digest: &str,
) -> String {
    let ReleaseInputs {
        chart_name,
        chart_version,
        // Both are the chart's.
        app_version: _,
        oci_digest: _,
        config_digest,
        artifact_digest,
    } = parts;
    let strategy = spec.post_render_strategy.unwrap_or_default().as_str();
    let keeps_values = spec.upgrade.as_ref().is_some_and(|upgrade| upgrade.preserve_values);
    let mut hash = Sha256::new();
    for part in [
        target.namespace.as_str(),
        &target.name,
        chart_name,
        chart_version,
        artifact_digest,
        config_digest,
        post_renderers_digest,
        common_metadata_digest,
        strategy,
        if keeps_values { "values are kept" } else { "" },
    ] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests;
