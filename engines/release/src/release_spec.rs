//! The desired state of a release: the part of its owner's spec that decides on operations ([`ReleaseSpec`]), and the inputs of
//! the release.
//!
//! The fields and their defaults are those of a HelmRelease (helm-controller 1.6 `api/v2`). The caller reads them into a
//! [`ReleaseSpec`].
//!
//! Elsewhere: decisions ([`crate::release_decision`]), rendering and applying (the program).

use std::time::Duration;

use crate::failure_policy::{FailurePolicy, undoes_by_default};
use crate::gated_release_change::ReleaseChangeGates;
use crate::journal::{
    OperationJournal, OperationKind, OperationPlan, ReleaseWaitPolicy, UninstallPropagation,
};
use crate::lifecycle_hold::ReleaseLifecycles;
use crate::operation_origin::OperationOrigin;
use crate::release_snapshot::TestFilter;
use crate::release_target::ReleaseTarget;
use crate::status::HelmReleaseStatusFields;

/// The desired state of a release.
#[derive(Debug, Clone)]
pub struct ReleaseDesiredState {
    /// uid of the HelmRelease.
    pub owner: String,
    /// The owner's name for the cluster, if the owner has releases in several clusters; otherwise empty. If two names refer to
    /// the same cluster, only one of them has the release.
    pub kube_context: String,
    /// The generation of the owner.
    pub generation: i64,
    /// The part of the owner's spec about the release.
    pub spec: ReleaseSpec,
    /// Whether the HelmRelease is being deleted.
    pub deleted: bool,
    /// Whether the owner is suspended. An open operation then ends as soon as nothing is half done.
    pub suspended: bool,
    /// The gates that may hold the release.
    pub gates: ReleaseChangeGates,
    /// The lifecycles that hold the release at its phases.
    pub lifecycles: ReleaseLifecycles,
    /// The chart's name.
    pub chart_name: String,
    /// The version of the chart, with the digest of its artifact if that is part of the version.
    pub chart_version: String,
    /// The `appVersion` of the chart.
    pub app_version: String,
    /// The digest of the chart's artifact, if releases are identified by it.
    pub oci_digest: String,
    /// The digest of the values.
    pub config_digest: String,
    /// The digest of all from which the release is rendered.
    pub inputs: String,
    /// The requests in the owner's annotations.
    pub requests: AnnotationRequests,
    /// The failure policy, in addition to the remediation in the spec.
    pub failures: FailurePolicy,
    /// The inputs of an operation that begins now.
    pub origin: OperationOrigin,
    /// The delay before retrying an action that failed without a trace in storage.
    pub retry: Duration,
    /// The time after which a release in its desired state is reconciled again.
    pub interval: Duration,
}

/// The part of the spec of an owner that is about a release.
#[derive(Debug, Clone)]
pub struct ReleaseSpec {
    /// Namespace and name of the release.
    pub target: ReleaseTarget,
    /// The digest of the post-renderers; empty if there are none.
    pub post_renderers_digest: String,
    /// The digest of the common metadata; empty if there is none.
    pub common_metadata_digest: String,
    /// The time for corrections.
    pub timeout: Duration,
    /// How many revisions are kept. 0 keeps all.
    pub max_history: usize,
    /// The settings of an installation.
    pub install: InstallSettings,
    /// The settings of an upgrade.
    pub upgrade: UpgradeSettings,
    /// The settings of a rollback.
    pub rollback: RollbackSettings,
    /// The settings of tests.
    pub test: TestSettings,
    /// The settings of a removal.
    pub uninstall: UninstallSettings,
    /// How drift is handled.
    pub drift: DriftMode,
}

/// The way in which an action that failed is dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureStrategy {
    /// Remediate, as many times as [`RemediationSettings::retries`] says.
    #[default]
    RemediateOnFailure,
    /// Retry by an upgrade, each time after this delay.
    RetryOnFailure(Duration),
}

impl FailureStrategy {
    /// The delay after which a failed action is retried; `None` if it is remediated instead.
    pub fn retry(self) -> Option<Duration> {
        match self {
            Self::RemediateOnFailure => None,
            Self::RetryOnFailure(interval) => Some(interval),
        }
    }
}

/// How a failed upgrade is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RemediationStrategy {
    #[default]
    Rollback,
    Uninstall,
}

/// How many times a failed action is retried, and how it is undone before each retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemediationSettings {
    /// How many times the action is retried. A negative number means without limit.
    pub retries: i64,
    /// Whether failed tests are ignored. `None` uses [`TestSettings::ignore_failures`].
    pub ignore_test_failures: Option<bool>,
    /// Whether the last failure is undone as well. With `None`, only an upgrade with retries does so.
    pub remediate_last_failure: Option<bool>,
    /// How the failure is undone. An installation is always undone by removal.
    pub strategy: RemediationStrategy,
}

/// The settings of an installation.
#[derive(Debug, Clone, Copy, Default)]
pub struct InstallSettings {
    /// The timeout of each hook and each wait.
    pub timeout: Duration,
    /// How a failure is handled.
    pub strategy: FailureStrategy,
    /// How a failure is undone.
    pub remediation: RemediationSettings,
    /// Whether the name of a failed or uninstalled release may be used again.
    pub replace: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// Which objects the operation waits for.
    pub wait: ReleaseWaitPolicy,
}

/// The settings of an upgrade.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpgradeSettings {
    /// The timeout of each hook and each wait.
    pub timeout: Duration,
    /// How a failure is handled.
    pub strategy: FailureStrategy,
    /// How a failure is undone.
    pub remediation: RemediationSettings,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// Which objects the operation waits for.
    pub wait: ReleaseWaitPolicy,
    /// Whether created objects are deleted if the operation fails.
    pub cleanup_on_fail: bool,
    /// Whether a release keeps being upgraded when its chart has another name.
    pub in_place_chart_name_change: bool,
}

/// The settings of a rollback.
#[derive(Debug, Clone, Copy, Default)]
pub struct RollbackSettings {
    /// The timeout of each hook and each wait.
    pub timeout: Duration,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// Which objects the operation waits for.
    pub wait: ReleaseWaitPolicy,
    /// Whether created objects are deleted if the operation fails.
    pub cleanup_on_fail: bool,
}

/// The settings for the tests of a release.
#[derive(Debug, Clone, Default)]
pub struct TestSettings {
    /// Whether to test at all.
    pub enable: bool,
    /// The timeout of each test.
    pub timeout: Duration,
    /// Whether failed tests do not count as a failure of the release.
    pub ignore_failures: bool,
    /// Which tests.
    pub filters: Vec<TestFilter>,
}

/// The settings of a removal.
#[derive(Debug, Clone, Copy, Default)]
pub struct UninstallSettings {
    /// The timeout of each hook and of the wait.
    pub timeout: Duration,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// Whether records stay.
    pub keep_history: bool,
    /// Whether the uninstallation does not wait for the end of the objects.
    pub disable_wait: bool,
    /// How the deletion treats dependents of the objects.
    pub propagation: UninstallPropagation,
}

/// How drift between cluster and release is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "they are Flux's words")]
pub enum DriftMode {
    #[default]
    Disabled,
    Warn,
    Enabled,
}

/// The requests in the annotations of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnnotationRequests {
    /// `reconcile.fluxcd.io/requestedAt`
    pub reconcile: Option<String>,
    /// `reconcile.fluxcd.io/forceAt`
    pub force: Option<String>,
    /// `reconcile.fluxcd.io/resetAt`
    pub reset: Option<String>,
    /// `windlass.dev/rollback`, which counts while the release is suspended.
    pub rollback: Option<reconcile::ReleaseRollback>,
    /// A requested rollback that windlass does not perform, because it is unknown whether the chart of the target revision was
    /// verified.
    pub unverified_rollback: Option<reconcile::ReleaseRollback>,
}

impl AnnotationRequests {
    /// Whether a user has requested a run since the last one.
    pub fn is_new(&self, status: &HelmReleaseStatusFields) -> bool {
        self.reconcile.is_some() && self.reconcile != status.last_handled_reconcile
    }

    /// Whether a user has requested to force an upgrade.
    pub fn forces(&self, status: &HelmReleaseStatusFields) -> bool {
        self.asks(self.force.as_ref(), status.last_handled_force.as_ref(), status)
    }

    /// Whether the operation of a journal is the requested rollback.
    pub fn is_for(&self, journal: &OperationJournal) -> bool {
        let asked = self.rollback.map(|it| (Some(it.from), Some(it.to)));
        journal.action == OperationKind::Rollback && asked == Some((journal.base, journal.target))
    }

    /// Keeps a rollback request only if the status has the target revision, so that its digest can be compared. If every
    /// artifact must be verified, a stored manifest alone is not trusted.
    pub fn keep_known(&mut self, status: &HelmReleaseStatusFields) {
        let is_known = |to: i64| status.history.iter().any(|it| it.version == to);
        self.unverified_rollback = self.rollback.take_if(|it| !is_known(it.to));
    }

    /// Whether failures are to be forgotten.
    pub(crate) fn resets(&self, status: &HelmReleaseStatusFields) -> bool {
        self.asks(self.reset.as_ref(), status.last_handled_reset.as_ref(), status)
    }

    /// Whether a request is new. Each request counts once, and only together with a request for a run.
    fn asks(
        &self,
        asked: Option<&String>,
        handled: Option<&String>,
        status: &HelmReleaseStatusFields,
    ) -> bool {
        asked.is_some()
            && asked == self.reconcile.as_ref()
            && self.is_new(status)
            && asked != handled
    }
}

/// The settings and failures of a release's last action. They decide how a failure of that action is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveRemediation {
    /// The remediation settings of the action.
    pub remediation: RemediationSettings,
    /// Whether the action was an upgrade.
    pub is_upgrade: bool,
    /// How many times the action failed.
    pub failures: i64,
    /// The delay before a retry, if the action is retried.
    pub retry: Option<Duration>,
    /// Whether the last failure is undone if the spec does not say.
    pub(crate) undoes_by_default: bool,
}

impl ReleaseDesiredState {
    /// Whether this owner performed the operation of a journal on this release.
    pub fn owns(&self, journal: &OperationJournal) -> bool {
        journal.owner == self.owner && journal.kube_context == self.kube_context
    }

    /// The remediation of the last attempted action; `None` unless that was an installation or upgrade.
    pub fn active(&self, status: &HelmReleaseStatusFields) -> Option<ActiveRemediation> {
        match status.last_attempted_action? {
            OperationKind::Install => Some(ActiveRemediation {
                remediation: self.spec.install.remediation,
                is_upgrade: false,
                failures: status.install_failures,
                retry: self.spec.install.strategy.retry(),
                undoes_by_default: false,
            }),
            OperationKind::Upgrade => Some(ActiveRemediation {
                remediation: self.spec.upgrade.remediation,
                is_upgrade: true,
                failures: status.upgrade_failures,
                retry: self.spec.upgrade.strategy.retry(),
                undoes_by_default: undoes_by_default(
                    &self.failures,
                    self.spec.upgrade.remediation.retries,
                    self.spec.upgrade.remediation.strategy,
                ),
            }),
            OperationKind::Rollback
            | OperationKind::Test
            | OperationKind::Uninstall
            | OperationKind::UninstallRemediation => None,
        }
    }

    /// The plan of an action that begins.
    pub fn plan(&self, action: OperationKind) -> OperationPlan {
        let ms = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        // If tests are enabled, they are the last action before a release is ready.
        let promotes = match action {
            OperationKind::Install | OperationKind::Upgrade => !self.spec.test.enable,
            OperationKind::Test => self.spec.test.enable,
            _ => false,
        };
        let holds = self.lifecycles.of(action, promotes);
        let plan = OperationPlan {
            timeout_ms: ms(self.timeout_of(action)),
            holds,
            ..OperationPlan::default()
        };
        match action {
            OperationKind::Install => OperationPlan {
                hooks: !self.spec.install.disable_hooks,
                wait: self.spec.install.wait,
                ..plan
            },
            OperationKind::Upgrade => OperationPlan {
                hooks: !self.spec.upgrade.disable_hooks,
                wait: self.spec.upgrade.wait,
                cleanup: self.spec.upgrade.cleanup_on_fail,
                ..plan
            },
            OperationKind::Rollback => OperationPlan {
                hooks: !self.spec.rollback.disable_hooks,
                wait: self.spec.rollback.wait,
                cleanup: self.spec.rollback.cleanup_on_fail,
                holds_data: self.failures.rolls_back,
                ..plan
            },
            OperationKind::Test => OperationPlan { wait: ReleaseWaitPolicy::Nothing, ..plan },
            OperationKind::Uninstall | OperationKind::UninstallRemediation => OperationPlan {
                hooks: !self.spec.uninstall.disable_hooks,
                wait: match self.spec.uninstall.disable_wait {
                    true => ReleaseWaitPolicy::Nothing,
                    false => ReleaseWaitPolicy::Objects,
                },
                keep_history: self.spec.uninstall.keep_history,
                propagation: self.spec.uninstall.propagation,
                ..plan
            },
        }
    }

    /// How long each hook and each wait of an action may take.
    pub(crate) fn timeout_of(&self, action: OperationKind) -> Duration {
        match action {
            OperationKind::Install => self.spec.install.timeout,
            OperationKind::Upgrade => self.spec.upgrade.timeout,
            OperationKind::Rollback => self.spec.rollback.timeout,
            OperationKind::Test => self.spec.test.timeout,
            OperationKind::Uninstall | OperationKind::UninstallRemediation => {
                self.spec.uninstall.timeout
            }
        }
    }
}

impl ActiveRemediation {
    /// Whether the allowed attempts of the action are used up.
    pub fn is_exhausted(&self) -> bool {
        self.remediation.is_exhausted(self.failures)
    }

    /// Whether failed tests do not count as a failure.
    pub(crate) fn ignores_tests(&self, test: &TestSettings) -> bool {
        self.remediation.ignore_test_failures.unwrap_or(test.ignore_failures)
    }

    /// Whether the last failure is undone as well.
    pub(crate) fn undoes_last_failure(&self) -> bool {
        self.remediation.remediate_last_failure.unwrap_or(self.undoes_by_default)
    }

    /// The strategy that undoes a failure.
    pub fn strategy(&self) -> RemediationStrategy {
        match self.is_upgrade {
            true => self.remediation.strategy,
            false => RemediationStrategy::Uninstall,
        }
    }
}

impl RemediationSettings {
    /// Whether an action that failed this often is not tried again.
    pub fn is_exhausted(&self, failures: i64) -> bool {
        self.retries >= 0 && failures > self.retries
    }
}
