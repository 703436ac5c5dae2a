//! The spec of a HelmRelease, checked and with Flux's defaults.
//!
//! Source: helm-controller 1.6 `api/v2` and `internal/action`. Elsewhere: the values (`values.rs`), the desired state
//! (`release_runner::validated_spec`).

use std::collections::BTreeMap;
use std::time::Duration;

use apply::drift_ignore_rules::DriftIgnoreRules;
use crds::GoDuration;
use crds::helm::{
    ActionStrategy, ChartNameChangeStrategy, DeletionPropagation, DriftDetectionMode, HelmRelease,
    HelmReleaseSpec, PostRenderStrategy, RemediationStrategy, WaitStrategyName,
};
use helm::template::PostRendererStrategy as RenderStrategy;
use kube_core::ResourceExt as _;
use reconcile::{ROLLBACK, RunOutcome, SHORTEST_INTERVAL};
use release::ReleaseSpec;
use release::journal::{ReleaseWaitPolicy, UninstallPropagation};
use release::release_snapshot::TestFilter;
use release::release_spec::{
    AnnotationRequests, DriftMode, FailureStrategy, InstallSettings, RemediationSettings,
    RemediationStrategy as Remedy, RollbackSettings, TestSettings, UninstallSettings,
    UpgradeSettings,
};
use release::release_target::ReleaseTarget;

use super::origin;
use crate::release_runner::action_options::{ActionOptions, RevisionOptions};
use crate::release_runner::postrender::{self, PostRenderers};
use crate::release_runner::target_of;
use crate::release_runner::validated_spec::ValidatedSpec;
use windlass_runtime::applier_run::{AFTER_REFUSAL, ReconcileIntervals};
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::drift_ignore_rules::ignored;
use windlass_serve::settings::OperatorSettings;

/// Annotation that asks for an upgrade, together with [`REQUESTED_AT`].
pub const FORCE_AT: &str = "reconcile.fluxcd.io/forceAt";
/// Annotation that asks for failures to be forgotten, together with [`REQUESTED_AT`].
pub const RESET_AT: &str = "reconcile.fluxcd.io/resetAt";

/// The timeout of actions, unless the spec has another one.
const DEFAULT_ACTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The delay before a failed action is retried, unless the spec has another one.
const RETRY_INTERVAL: Duration = Duration::from_secs(300);
/// The number of revisions that are kept, unless the spec has another one.
const MAX_HISTORY: i64 = 5;
/// How soon a run is repeated that failed outside of the release, unless the interval is shorter.
///
/// Differs(flux): there the delay grows from `--min-retry-delay` to `--max-retry-delay`. Here a missing object wakes
/// the HelmRelease as soon as it exists.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The durations of a spec, with their defaults.
struct HelmReleaseDurations {
    /// Between two runs.
    interval: Duration,
    /// The timeout for actions without one of their own.
    timeout: Duration,
    /// The timeout of each hook and each wait of an action.
    install: Duration,
    upgrade: Duration,
    rollback: Duration,
    test: Duration,
    uninstall: Duration,
    /// The delays before actions that are retried on failure.
    install_retry: Duration,
    upgrade_retry: Duration,
}

/// The durations for a HelmRelease whose spec cannot be read.
const UNREADABLE_SPEC: HelmReleaseDurations = HelmReleaseDurations {
    interval: AFTER_REFUSAL,
    timeout: DEFAULT_ACTION_TIMEOUT,
    install: DEFAULT_ACTION_TIMEOUT,
    upgrade: DEFAULT_ACTION_TIMEOUT,
    rollback: DEFAULT_ACTION_TIMEOUT,
    test: DEFAULT_ACTION_TIMEOUT,
    uninstall: DEFAULT_ACTION_TIMEOUT,
    install_retry: RETRY_INTERVAL,
    upgrade_retry: RETRY_INTERVAL,
};

/// Reads the spec for a release at a target. The objects of the release get `labels`. It checks the fields that need neither
/// the cluster nor expressions.
///
/// # Errors
/// The outcome names the field that cannot be read.
pub fn validate(
    spec: &HelmReleaseSpec,
    target: ReleaseTarget,
    labels: BTreeMap<String, String>,
    settings: &OperatorSettings,
) -> Result<ValidatedSpec, RunOutcome> {
    let ignore = ignore(spec)?;
    let timeouts = timeouts(spec)?;
    Ok(ValidatedSpec { ignore, ..read(spec, target, labels, &timeouts, settings) })
}

/// Reads a spec when only the existing release matters, without the rules for ignored drift. A duration that cannot be read
/// gets its default, since an invalid spec must not keep its release for ever.
pub fn read_without_chart(object: &HelmRelease, settings: &OperatorSettings) -> ValidatedSpec {
    let spec = &object.spec;
    let timeouts = ignore(spec).and_then(|_| timeouts(spec)).unwrap_or(UNREADABLE_SPEC);
    read(spec, target_of(object), origin(object), &timeouts, settings)
}

/// The fields whose differences do not count as drift.
fn ignore(spec: &HelmReleaseSpec) -> Result<DriftIgnoreRules, RunOutcome> {
    let rules = spec.drift_detection.as_ref().map_or(&[][..], |drift| &drift.ignore);
    ignored("spec.driftDetection.ignore", rules)
}

fn timeouts(spec: &HelmReleaseSpec) -> Result<HelmReleaseDurations, RunOutcome> {
    let read = |field: &str, given: Option<&GoDuration>, default: Duration| match given {
        None => Ok(default),
        Some(text) => reconcile::parse_duration(text.as_str()).map_err(|error| {
            RunOutcome::Stalled(
                sources::source_condition_reasons::INVALID_DURATION,
                format!("{field}: {error}"),
            )
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
    Ok(HelmReleaseDurations {
        interval,
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

/// All of a spec but the fields that others may change.
fn read(
    spec: &HelmReleaseSpec,
    target: ReleaseTarget,
    labels: BTreeMap<String, String>,
    timeouts: &HelmReleaseDurations,
    settings: &OperatorSettings,
) -> ValidatedSpec {
    let options = options(spec, settings);
    let common_metadata = spec.common_metadata.as_ref();
    let strategy = options.post_render;
    let interval = timeouts.interval;
    let retry = interval.clamp(SHORTEST_INTERVAL, MAX_RETRY_DELAY);
    ValidatedSpec {
        pace: ReconcileIntervals { interval, retry, timeout: timeouts.timeout },
        release: ReleaseSpec {
            target,
            post_renderers_digest: postrender::digest(&spec.post_renderers),
            common_metadata_digest: postrender::metadata_digest(common_metadata),
            timeout: timeouts.timeout,
            // Parity(flux): a value that is not positive keeps all revisions.
            max_history: usize::try_from(spec.max_history.unwrap_or(MAX_HISTORY)).unwrap_or(0),
            install: install(spec, timeouts, settings),
            upgrade: upgrade(spec, timeouts, settings),
            rollback: rollback(spec, timeouts),
            test: test(spec, timeouts),
            uninstall: uninstall(spec, timeouts),
            drift: drift(spec),
        },
        ignore: DriftIgnoreRules::default(),
        options,
        post: PostRenderers::of(&spec.post_renderers, common_metadata, labels, strategy),
        post_render_strategy: spec.post_render_strategy.unwrap_or_default(),
    }
}

/// The options with which operations are performed.
fn options(spec: &HelmReleaseSpec, settings: &OperatorSettings) -> ActionOptions {
    let is_helm3 = settings.has_helm3_defaults();
    let install = spec.install.clone().unwrap_or_default();
    let upgrade = spec.upgrade.clone().unwrap_or_default();
    let rollback = spec.rollback.clone().unwrap_or_default();
    let wait = spec.wait_strategy.as_ref().map(|strategy| strategy.name);
    ActionOptions {
        install: RevisionOptions {
            take_ownership: !install.disable_take_ownership,
            crds: install.crds.unwrap_or_default(),
            skip_schema: install.disable_schema_validation,
            disable_openapi: install.disable_openapi_validation,
        },
        upgrade: RevisionOptions {
            take_ownership: !upgrade.disable_take_ownership,
            // Parity(flux): CRDs are created in an upgrade too, although Flux's documentation says otherwise.
            crds: upgrade.crds.unwrap_or_default(),
            skip_schema: upgrade.disable_schema_validation,
            disable_openapi: upgrade.disable_openapi_validation,
        },
        install_ssa: install.server_side_apply.unwrap_or(!is_helm3),
        upgrade_ssa: upgrade.server_side_apply.unwrap_or_default(),
        rollback_ssa: rollback.server_side_apply.unwrap_or_default(),
        upgrade_force: upgrade.force,
        rollback_force: rollback.force,
        // Parity(flux): the object's own namespace is there.
        create_namespace: install.create_namespace && spec.target_namespace.is_some(),
        preserve_values: upgrade.preserve_values,
        legacy_wait: match wait {
            Some(WaitStrategyName::Legacy) => true,
            Some(WaitStrategyName::Poller) => false,
            None => is_helm3,
        },
        post_render: match spec.post_render_strategy {
            Some(PostRenderStrategy::NoHooks) => RenderStrategy::NoHooks,
            Some(PostRenderStrategy::Combined) => RenderStrategy::Combined,
            Some(PostRenderStrategy::Separate) => RenderStrategy::Separate,
            None if is_helm3 => RenderStrategy::NoHooks,
            None => RenderStrategy::Combined,
        },
    }
}

/// The requests in annotations. An empty annotation requests nothing.
pub(super) fn requests(object: &HelmRelease) -> AnnotationRequests {
    let asked = |key: &str| object.annotations().get(key).filter(|at| !at.is_empty()).cloned();
    let rollback = object.annotations().get(ROLLBACK);
    AnnotationRequests {
        reconcile: asked(REQUESTED_AT),
        force: asked(FORCE_AT),
        reset: asked(RESET_AT),
        rollback: rollback.and_then(|text| reconcile::ReleaseRollback::of(text, None)),
        unverified_rollback: None,
    }
}

fn wait(disable_wait: bool, disable_wait_for_jobs: bool) -> ReleaseWaitPolicy {
    match (disable_wait, disable_wait_for_jobs) {
        (true, _) => ReleaseWaitPolicy::Nothing,
        (false, true) => ReleaseWaitPolicy::Objects,
        (false, false) => ReleaseWaitPolicy::ObjectsAndJobs,
    }
}

fn strategy(
    given: Option<ActionStrategy>,
    retry: Duration,
    settings: &OperatorSettings,
) -> FailureStrategy {
    match given {
        Some(ActionStrategy::RemediateOnFailure) => FailureStrategy::RemediateOnFailure,
        Some(ActionStrategy::RetryOnFailure) => FailureStrategy::RetryOnFailure(retry),
        None if settings.retries_on_failure() => FailureStrategy::RetryOnFailure(retry),
        None => FailureStrategy::RemediateOnFailure,
    }
}

fn install(
    spec: &HelmReleaseSpec,
    timeouts: &HelmReleaseDurations,
    settings: &OperatorSettings,
) -> InstallSettings {
    // Here and below no `..`: a new field must be thought about. What is not used here is in `options`.
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
    InstallSettings {
        timeout: timeouts.install,
        strategy: strategy(named.map(|it| it.name), timeouts.install_retry, settings),
        remediation: RemediationSettings {
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

fn upgrade(
    spec: &HelmReleaseSpec,
    timeouts: &HelmReleaseDurations,
    settings: &OperatorSettings,
) -> UpgradeSettings {
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
    UpgradeSettings {
        timeout: timeouts.upgrade,
        strategy: strategy(named.map(|it| it.name), timeouts.upgrade_retry, settings),
        remediation: RemediationSettings {
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

fn rollback(spec: &HelmReleaseSpec, timeouts: &HelmReleaseDurations) -> RollbackSettings {
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
    RollbackSettings {
        timeout: timeouts.rollback,
        disable_hooks,
        wait: wait(disable_wait, disable_wait_for_jobs),
        cleanup_on_fail,
    }
}

fn test(spec: &HelmReleaseSpec, timeouts: &HelmReleaseDurations) -> TestSettings {
    let crds::helm::Test { enable, timeout: _, ignore_failures, filters } =
        spec.test.clone().unwrap_or_default();
    let filter = |crds::helm::Filter { name, exclude }| TestFilter { name, exclude };
    TestSettings {
        enable,
        timeout: timeouts.test,
        ignore_failures,
        filters: filters.into_iter().map(filter).collect(),
    }
}

fn uninstall(spec: &HelmReleaseSpec, timeouts: &HelmReleaseDurations) -> UninstallSettings {
    let crds::helm::Uninstall {
        timeout: _,
        disable_hooks,
        keep_history,
        disable_wait,
        deletion_propagation,
    } = spec.uninstall.clone().unwrap_or_default();
    let propagation = match deletion_propagation.unwrap_or_default() {
        DeletionPropagation::Background => UninstallPropagation::Background,
        DeletionPropagation::Foreground => UninstallPropagation::Foreground,
        DeletionPropagation::Orphan => UninstallPropagation::Orphan,
    };
    let timeout = timeouts.uninstall;
    UninstallSettings { timeout, disable_hooks, keep_history, disable_wait, propagation }
}

fn drift(spec: &HelmReleaseSpec) -> DriftMode {
    let mode = spec.drift_detection.as_ref().and_then(|drift| drift.mode);
    match mode.unwrap_or_default() {
        DriftDetectionMode::Enabled => DriftMode::Enabled,
        DriftDetectionMode::Warn => DriftMode::Warn,
        DriftDetectionMode::Disabled => DriftMode::Disabled,
    }
}

#[cfg(test)]
mod tests;
