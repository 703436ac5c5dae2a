//! Determines the state of a release and the operation that follows from it, by the table of helm-controller 1.6.
//!
//! | state | seen by | done |
//! |---|---|---|
//! | Absent | no record, or the last is uninstalled | install, unless it failed too often |
//! | Locked | the last record is pending or being uninstalled, and no operation of ours | unlock |
//! | Unmanaged | there are records, and not those that the status remembers | forget the history, upgrade |
//! | Failed | the last record failed, or a test did that counts | retry, or remediate |
//! | OutOfSync | another chart, version, values, post-renderers or common metadata | upgrade, unless it failed too often |
//! | Untested | tests are on and were not run | test |
//! | Drifted | the cluster differs from the record | correct, or only report |
//! | InSync | none of these | nothing, or a forced upgrade |
//!
//! Semantics: `internal/reconcile/state.go` and `atomic_release.go`.
//! Elsewhere: an operation in progress ([`crate::operation`]), turning a decision into steps ([`crate::plan`]).

use std::fmt;

use reconcile::ConditionStatus as Truth;

use crate::journal::OperationKind;
use crate::record::{ReleaseRecord, RevisionStatus as Life};
use crate::release_snapshot::{
    ReleaseSnapshot, SnapshotDigestError, SnapshotMatch, latest, previous,
};
use crate::release_spec::{ActiveRemediation, DriftMode, ReleaseDesiredState, RemediationStrategy};
use crate::revisions::{BrokenReleaseRevision, ReleaseRevisions};
use crate::status::HelmReleaseStatusFields;

/// The difference between the cluster and a deployed revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseDrift {
    /// The cluster is as the revision.
    None,
    /// The cluster differs from the revision.
    Found {
        /// Identifies the drift.
        digest: String,
        /// A description of the drift for users. It contains no secret.
        text: String,
    },
    /// The comparison failed.
    Error(String),
}

/// The state of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseState {
    /// There is no release.
    Absent(&'static str),
    /// An operation of another client was left unfinished.
    Locked(Life),
    /// The release is not the one in the status.
    Unmanaged(&'static str),
    /// The release differs from the desired state.
    OutOfSync(&'static str),
    /// The release matches the desired state but was not tested.
    Untested,
    /// The release failed.
    Failed(&'static str),
    /// The cluster differs from the record.
    Drifted {
        /// Identifies the drift.
        digest: String,
        /// A description of the drift for users.
        text: String,
    },
    /// The release is in its desired state.
    InSync,
    /// The cluster has to be compared with the record first.
    Unobserved,
}

impl fmt::Display for ReleaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, why) = match self {
            Self::Absent(why) => ("Absent", *why),
            Self::Locked(life) => return write!(f, "Locked: release with status '{life}'"),
            Self::Unmanaged(why) => ("Unmanaged", *why),
            Self::OutOfSync(why) => ("OutOfSync", *why),
            Self::Untested => ("Untested", ""),
            Self::Failed(why) => ("Failed", *why),
            Self::Drifted { .. } => ("Drifted", ""),
            Self::InSync => ("InSync", ""),
            Self::Unobserved => ("Unobserved", ""),
        };
        if why.is_empty() { f.write_str(word) } else { write!(f, "{word}: {why}") }
    }
}

/// Why the state cannot be determined. The messages are Flux's, except for a record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseStateError {
    /// The newest Secret cannot be read.
    #[error(
        "failed to retrieve last release from storage: Secret {secret} cannot be decoded: {problem}; restore the \
         Secret, or delete it to continue from the previous revision"
    )]
    Unreadable {
        /// The Secret.
        secret: String,
        /// The cause of the error.
        problem: String,
    },
    /// The last record has a status that no decision handles.
    #[error("unable to determine state for release with status '{0}'")]
    Status(Life),
    /// The last record has no digest.
    #[error("failed to verify release object: {0}")]
    Digest(#[from] SnapshotDigestError),
    /// The cluster could not be compared.
    #[error("unable to determine cluster state: {0}")]
    Drift(String),
}

impl ReleaseStateError {
    pub(crate) fn unreadable(broken: &BrokenReleaseRevision) -> Self {
        let secret = broken.secret.clone();
        let problem = broken.problem.clone();
        Self::Unreadable { secret, problem }
    }
}

/// The state of a release on which no operation of ours is under way.
///
/// # Errors
/// A record cannot be read, or has a status that no decision handles.
pub fn state(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
    drift: Option<&ReleaseDrift>,
) -> Result<ReleaseState, ReleaseStateError> {
    if let Some(broken) = revisions.unreadable_last() {
        return Err(ReleaseStateError::unreadable(broken));
    }
    let Some(last) = revisions.last() else {
        return Ok(ReleaseState::Absent("no release in storage for object"));
    };
    let record = last.record.as_ref();
    let life = &record.info.status;
    // Differs(flux): Flux does not act on a removal that another client left unfinished, nor can it be upgraded.
    if life.is_pending() || *life == Life::Uninstalling {
        return Ok(ReleaseState::Locked(life.clone()));
    }
    // Differs(flux): Flux first upgrades a record that another client wrote, which fails; afterwards it counts as
    // absent.
    if *life == Life::Uninstalled {
        return Ok(ReleaseState::Absent("found uninstalled release in storage"));
    }
    let Some(known) = latest(&status.history) else {
        return Ok(ReleaseState::Unmanaged("found existing release in storage"));
    };
    match known.matches(record)? {
        SnapshotMatch::Same => {}
        SnapshotMatch::Other => {
            return Ok(ReleaseState::Unmanaged("release not observed to be made for object"));
        }
        SnapshotMatch::NoDigest => {
            return Ok(ReleaseState::Unmanaged("release digest verification error"));
        }
    }
    match life {
        Life::Failed => Ok(ReleaseState::Failed("")),
        // Differs(flux): Flux does not act on it, although Helm can upgrade it.
        Life::Superseded => {
            Ok(ReleaseState::OutOfSync("the release that superseded the last one is gone"))
        }
        Life::Deployed => deployed(desired, status, record, known, drift),
        other => Err(ReleaseStateError::Status(other.clone())),
    }
}

/// The state of a release that this HelmRelease has deployed.
fn deployed(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    record: &ReleaseRecord,
    known: &ReleaseSnapshot,
    drift: Option<&ReleaseDrift>,
) -> Result<ReleaseState, ReleaseStateError> {
    // A release that stays in place of quarantined inputs differs from the desired one on purpose.
    if !desired.failures.keeps_last_good()
        && let Some(state) = unlike(desired, status, record, known)
    {
        return Ok(state);
    }
    if desired.spec.drift == DriftMode::Disabled {
        return Ok(ReleaseState::InSync);
    }
    match drift {
        None => Ok(ReleaseState::Unobserved),
        Some(ReleaseDrift::None) => Ok(ReleaseState::InSync),
        Some(ReleaseDrift::Found { digest, text }) => {
            Ok(ReleaseState::Drifted { digest: digest.clone(), text: text.clone() })
        }
        Some(ReleaseDrift::Error(text)) => Err(ReleaseStateError::Drift(text.clone())),
    }
}

/// The state of a deployed release by its inputs and its tests; `None` if it matches the desired state.
fn unlike(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    record: &ReleaseRecord,
    known: &ReleaseSnapshot,
) -> Option<ReleaseState> {
    let chart = record.metadata().map(|it| (it.name.as_str(), it.version.as_str()));
    let wanted = (desired.chart_name.as_str(), desired.chart_version.as_str());
    if chart.unwrap_or_default() != wanted {
        return Some(ReleaseState::OutOfSync("release chart changed"));
    }
    if known.config_digest != desired.config_digest {
        return Some(ReleaseState::OutOfSync("release config values changed"));
    }
    // Differs(flux): in Flux a release whose post-renderers fail counts as in sync from the next run on.
    let has_failed = status.released.as_ref().is_some_and(|it| it.status == Truth::False);
    if status.observed_generation != desired.generation || has_failed {
        if status.post_renderers_digest != desired.spec.post_renderers_digest {
            return Some(ReleaseState::OutOfSync("postrenderers digest has changed"));
        }
        if status.common_metadata_digest != desired.spec.common_metadata_digest {
            return Some(ReleaseState::OutOfSync("common metadata digest has changed"));
        }
    }
    if desired.spec.test.enable {
        if !known.is_tested() {
            return Some(ReleaseState::Untested);
        }
        let counts = desired.active(status).is_some_and(|it| !it.ignores_tests(&desired.spec.test));
        if counts && known.has_failed_test() {
            return Some(ReleaseState::Failed("release has test in failed phase"));
        }
    }
    None
}

/// The operation that is decided for a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseDecision {
    /// No operation, because the release is in its desired state.
    Nothing,
    /// Begin this operation. The number is the target of a rollback.
    Begin(OperationKind, Option<i64>),
    /// The unfinished operation of another client is ended.
    Unlock(Life),
    /// The drift is reported, and corrected if the spec says so.
    Drift {
        /// Identifies the drift.
        digest: String,
        /// A description of the drift for users.
        text: String,
    },
    /// The allowed attempts are used up.
    Exhausted,
    /// There is nothing to roll back to.
    NoRollbackTarget,
    /// The desired inputs are quarantined, and their failure has been undone.
    Quarantined,
    /// The cluster has to be compared first.
    Observe,
}

/// Decides the operation for a state. `forced` says whether a user requested an upgrade by annotation.
///
/// # Errors
/// The revision to roll back to has no digest.
pub fn decide(
    state: &ReleaseState,
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
    forced: bool,
) -> Result<ReleaseDecision, SnapshotDigestError> {
    let decision = by_state(state, desired, status, revisions, forced)?;
    let back = || {
        let active = desired.active(status)?;
        rollback(desired, status, revisions, &active).ok()
    };
    Ok(desired
        .unless_quarantined(decision, state, || back().unwrap_or(ReleaseDecision::Quarantined)))
}

/// Decides the operation for a state, without regard to a Quarantine.
fn by_state(
    state: &ReleaseState,
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
    forced: bool,
) -> Result<ReleaseDecision, SnapshotDigestError> {
    let exhausted_unless = |action: OperationKind, is_exhausted: bool| match is_exhausted && !forced
    {
        true => ReleaseDecision::Exhausted,
        false => ReleaseDecision::Begin(action, None),
    };
    Ok(match state {
        ReleaseState::Absent(_) => {
            let remediation = desired.spec.install.remediation;
            exhausted_unless(
                OperationKind::Install,
                remediation.is_exhausted(status.install_failures) || desired.is_given_up(status),
            )
        }
        ReleaseState::Locked(life) => ReleaseDecision::Unlock(life.clone()),
        ReleaseState::Unmanaged(_) => ReleaseDecision::Begin(OperationKind::Upgrade, None),
        ReleaseState::OutOfSync(_) => {
            let remediation = desired.spec.upgrade.remediation;
            exhausted_unless(
                OperationKind::Upgrade,
                remediation.is_exhausted(status.upgrade_failures),
            )
        }
        ReleaseState::Untested => ReleaseDecision::Begin(OperationKind::Test, None),
        ReleaseState::Failed(_) => return failed(desired, status, revisions, forced),
        ReleaseState::Drifted { digest, text } => {
            ReleaseDecision::Drift { digest: digest.clone(), text: text.clone() }
        }
        ReleaseState::InSync if forced => ReleaseDecision::Begin(OperationKind::Upgrade, None),
        ReleaseState::InSync => ReleaseDecision::Nothing,
        ReleaseState::Unobserved => ReleaseDecision::Observe,
    })
}

/// Decides the operation for a failed release, rule by rule.
fn failed(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
    forced: bool,
) -> Result<ReleaseDecision, SnapshotDigestError> {
    let upgrade = ReleaseDecision::Begin(OperationKind::Upgrade, None);
    let Some(active) = desired.active(status) else { return Ok(upgrade) };
    if active.retry.is_some() || active.failures <= 0 || forced {
        return Ok(upgrade);
    }
    if active.is_exhausted() && !active.undoes_last_failure() {
        return Ok(ReleaseDecision::Exhausted);
    }
    match active.strategy() {
        RemediationStrategy::Uninstall => {
            Ok(ReleaseDecision::Begin(OperationKind::UninstallRemediation, None))
        }
        RemediationStrategy::Rollback => rollback(desired, status, revisions, &active),
    }
}

/// A rollback, if the target revision exists and still has its digest.
fn rollback(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
    active: &ActiveRemediation,
) -> Result<ReleaseDecision, SnapshotDigestError> {
    let Some(target) = previous(&status.history, active.ignores_tests(&desired.spec.test)) else {
        return Ok(ReleaseDecision::NoRollbackTarget);
    };
    // Parity(flux): a revision that is gone or changed cannot be a target, but does not end the search either.
    let upgrade = ReleaseDecision::Begin(OperationKind::Upgrade, None);
    let Some(revision) = revisions.get(target.version) else { return Ok(upgrade) };
    Ok(match target.matches(&revision.record)? {
        SnapshotMatch::Same => {
            ReleaseDecision::Begin(OperationKind::Rollback, Some(target.version))
        }
        SnapshotMatch::Other | SnapshotMatch::NoDigest => upgrade,
    })
}

#[cfg(test)]
mod tests;
