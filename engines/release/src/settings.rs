//! What is wanted of a release: the part of its owner's spec that decides which operations are done on it
//! ([`ReleaseSpec`]), and what it is made from.
//!
//! The fields of a spec and their defaults are those of a HelmRelease (helm-controller 1.6 `api/v2`); the maker of a
//! [`ReleaseSpec`] has read them already.
//!
//! Elsewhere: what is decided ([`crate::release_decision`]), what is rendered and applied (the program).

use std::time::Duration;

use crate::failure_policy::{FailurePolicy, undoes_by_default};
use crate::journal::{
    OperationJournal, OperationKind, OperationPlan, ReleaseWaitPolicy, UninstallPropagation,
};
use crate::lifecycle_hold::ReleaseLifecycles;
use crate::operation_origin::OperationOrigin;
use crate::operation_phase::OperationPhaseGates;
use crate::release_snapshot::TestFilter;
use crate::release_target::ReleaseTarget;
use crate::status::HelmReleaseStatusFields;

/// The desired state of a release.
#[derive(Debug, Clone)]
pub struct ReleaseDesiredState {
    /// uid of the HelmRelease.
    pub owner: String,
    /// The name that the owner has for the cluster, where it keeps releases in several: two names may mean one cluster, and
    /// then only one of them has the release. Empty otherwise.
    pub kube_context: String,
    /// Its generation.
    pub generation: i64,
    /// What it asks for.
    pub spec: ReleaseSpec,
    /// Whether the HelmRelease is being deleted.
    pub deleted: bool,
    /// Whether it is suspended: an open operation comes to its end as soon as nothing is half done.
    pub suspended: bool,
    /// What may hold it.
    pub gates: OperationPhaseGates,
    /// The lifecycles that hold it at its phases.
    pub lifecycles: ReleaseLifecycles,
    /// The chart's name.
    pub chart_name: String,
    /// The chart's version, with the digest of its artifact where that belongs to it.
    pub chart_version: String,
    /// The version of what the chart installs.
    pub app_version: String,
    /// The digest of the artifact that the chart came from, where a release is known by it.
    pub oci_digest: String,
    /// The digest of the values.
    pub config_digest: String,
    /// The digest of all from which the release is rendered.
    pub inputs: String,
    /// What annotations request.
    pub requests: AnnotationRequests,
    /// What follows from failures beside the remediation of the spec.
    pub failures: FailurePolicy,
    /// What an operation that begins now begins with.
    pub origin: OperationOrigin,
    /// How long to wait before what failed without a trace is tried again.
    pub retry: Duration,
    /// How long to wait before a release that is as it should be is reconciled again.
    pub interval: Duration,
}

/// The part of the spec of an owner that is about a release.
#[derive(Debug, Clone)]
pub struct ReleaseSpec {
    /// Namespace and name of the release.
    pub target: ReleaseTarget,
    /// The digest of the post-renderers; empty where there are none.
    pub post_renderers_digest: String,
    /// The digest of the common metadata; empty where there is none.
    pub common_metadata_digest: String,
    /// The time for corrections.
    pub timeout: Duration,
    /// How many revisions are kept; 0 keeps all.
    pub max_history: usize,
    /// How to install.
    pub install: InstallSettings,
    /// How to upgrade.
    pub upgrade: UpgradeSettings,
    /// How to roll back.
    pub rollback: RollbackSettings,
    /// How to test.
    pub test: TestSettings,
    /// How to remove.
    pub uninstall: UninstallSettings,
    /// What to do about drift.
    pub drift: DriftMode,
}

/// The way in which an action that failed is dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureStrategy {
    /// By remediation, as often as [`RemediationSettings::retries`] says.
    #[default]
    RemediateOnFailure,
    /// By an upgrade after this time, again and again.
    RetryOnFailure(Duration),
}

impl FailureStrategy {
    /// The time after which a failed action is repeated; `None` if it is remediated instead.
    pub fn retry(self) -> Option<Duration> {
        match self {
            Self::RemediateOnFailure => None,
            Self::RetryOnFailure(interval) => Some(interval),
        }
    }
}

/// What undoes a failed upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RemediationStrategy {
    #[default]
    Rollback,
    Uninstall,
}

/// How often a failed action is tried again, and how it is undone before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemediationSettings {
    /// How often; negative: without end.
    pub retries: i64,
    /// Whether failed tests do not count as a failure; `None` goes by [`TestSettings::ignore_failures`].
    pub ignore_test_failures: Option<bool>,
    /// Whether the last failure is undone as well; `None` does so for upgrades with retries.
    pub remediate_last_failure: Option<bool>,
    /// What undoes it. An installation is always undone by removal.
    pub strategy: RemediationStrategy,
}

/// How to install.
#[derive(Debug, Clone, Copy, Default)]
pub struct InstallSettings {
    /// For each hook and each wait.
    pub timeout: Duration,
    /// When it fails.
    pub strategy: FailureStrategy,
    /// When it fails.
    pub remediation: RemediationSettings,
    /// Whether the name of a release that failed or is gone is taken again.
    pub replace: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// What is waited for.
    pub wait: ReleaseWaitPolicy,
}

/// How to upgrade.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpgradeSettings {
    /// For each hook and each wait.
    pub timeout: Duration,
    /// When it fails.
    pub strategy: FailureStrategy,
    /// When it fails.
    pub remediation: RemediationSettings,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// What is waited for.
    pub wait: ReleaseWaitPolicy,
    /// Whether what it created goes again when it fails.
    pub cleanup_on_fail: bool,
    /// Whether a release keeps being upgraded when its chart has another name.
    pub in_place_chart_name_change: bool,
}

/// How to roll back.
#[derive(Debug, Clone, Copy, Default)]
pub struct RollbackSettings {
    /// For each hook and each wait.
    pub timeout: Duration,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// What is waited for.
    pub wait: ReleaseWaitPolicy,
    /// Whether what it created goes again when it fails.
    pub cleanup_on_fail: bool,
}

/// How to test.
#[derive(Debug, Clone, Default)]
pub struct TestSettings {
    /// Whether to test at all.
    pub enable: bool,
    /// For each test.
    pub timeout: Duration,
    /// Whether failed tests do not count as a failure of the release.
    pub ignore_failures: bool,
    /// Which tests.
    pub filters: Vec<TestFilter>,
}

/// How to remove.
#[derive(Debug, Clone, Copy, Default)]
pub struct UninstallSettings {
    /// For each hook and the wait.
    pub timeout: Duration,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// Whether records stay.
    pub keep_history: bool,
    /// Whether the uninstallation does not wait for the end of the objects.
    pub disable_wait: bool,
    /// How what they own goes.
    pub propagation: UninstallPropagation,
}

/// What to do if the cluster differs from a release.
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
    /// A requested rollback that windlass does not carry out, because it does not know whether the chart of that
    /// revision was verified.
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

    /// Leaves a request for a rollback only to a revision that the status has, whose digest is compared: where every
    /// artifact has to be verified, a stored manifest is not trusted on its own.
    pub fn keep_known(&mut self, status: &HelmReleaseStatusFields) {
        let is_known = |to: i64| status.history.iter().any(|it| it.version == to);
        self.unverified_rollback = self.rollback.take_if(|it| !is_known(it.to));
    }

    /// Whether failures are to be forgotten.
    pub(crate) fn resets(&self, status: &HelmReleaseStatusFields) -> bool {
        self.asks(self.reset.as_ref(), status.last_handled_reset.as_ref(), status)
    }

    /// A request counts once, and only together with one for a run.
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

/// The settings and failures of the last action of a release, which decide what is done when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveRemediation {
    /// Its remediation.
    pub remediation: RemediationSettings,
    /// Whether it was an upgrade.
    pub is_upgrade: bool,
    /// How often it failed.
    pub failures: i64,
    /// After which time it is repeated, if it is.
    pub retry: Option<Duration>,
    /// Whether the last failure is undone unless the spec says whether it is.
    pub(crate) undoes_by_default: bool,
}

impl ReleaseDesiredState {
    /// Whether the operation of a journal is one that this owner did on this release.
    pub fn owns(&self, journal: &OperationJournal) -> bool {
        journal.owner == self.owner && journal.kube_context == self.kube_context
    }

    /// The remediation of the action that was attempted last; `None` unless that is an installation or upgrade.
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
        // Tests are the last action before a release is ready, where they are on.
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
    /// Whether the action failed as often as it may be tried.
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
