//! Which state a release is in, and what is done about it: the table of helm-controller 1.6.
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
//! Elsewhere: an operation that is under way ([`crate::operation`]), how all of it becomes steps ([`crate::plan`]).

use std::fmt;

use reconcile::ConditionStatus as Truth;

use crate::journal::Action;
use crate::record::{Record, RevisionStatus as Life};
use crate::revisions::{BrokenRevision, Revisions};
use crate::settings::{Active, DriftMode, ReleaseDesiredState, RemediationStrategy};
use crate::snapshot::{DigestError, Match, Snapshot, latest, previous};
use crate::status::ReleaseStatus;

/// How the cluster compares with a deployed revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drift {
    /// The cluster is as the revision.
    None,
    /// It is not.
    Found {
        /// Names what was found.
        digest: String,
        /// What was found, for people; no secret is in it.
        text: String,
    },
    /// That could not be found out.
    Error(String),
}

/// The state of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// There is no release.
    Absent(&'static str),
    /// An operation of another client was left unfinished.
    Locked(Life),
    /// It is not the one in the status.
    Unmanaged(&'static str),
    /// It is not as desired.
    OutOfSync(&'static str),
    /// It is as desired and was not tested.
    Untested,
    /// It failed.
    Failed(&'static str),
    /// The cluster differs from the record.
    Drifted {
        /// Names what was found.
        digest: String,
        /// What was found, for people.
        text: String,
    },
    /// It is as it should be.
    InSync,
    /// The cluster has to be compared with the record first.
    Unobserved,
}

impl fmt::Display for State {
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
pub enum StateError {
    /// The newest Secret cannot be read.
    #[error(
        "failed to retrieve last release from storage: Secret {secret} cannot be decoded: {problem}; restore the \
         Secret, or delete it to continue from the previous revision"
    )]
    Unreadable {
        /// The Secret.
        secret: String,
        /// Why.
        problem: String,
    },
    /// The last record has a status that no decision handles.
    #[error("unable to determine state for release with status '{0}'")]
    Status(Life),
    /// The last record has no digest.
    #[error("failed to verify release object: {0}")]
    Digest(#[from] DigestError),
    /// The cluster could not be compared.
    #[error("unable to determine cluster state: {0}")]
    Drift(String),
}

impl StateError {
    pub(crate) fn unreadable(broken: &BrokenRevision) -> Self {
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
    status: &ReleaseStatus,
    revisions: &Revisions,
    drift: Option<&Drift>,
) -> Result<State, StateError> {
    if let Some(broken) = revisions.unreadable_last() {
        return Err(StateError::unreadable(broken));
    }
    let Some(last) = revisions.last() else {
        return Ok(State::Absent("no release in storage for object"));
    };
    let record = last.record.as_ref();
    let life = &record.info.status;
    // Differs(flux): Flux does not act on a removal that another client left unfinished, nor can it be upgraded.
    if life.is_pending() || *life == Life::Uninstalling {
        return Ok(State::Locked(life.clone()));
    }
    // Differs(flux): Flux first upgrades a record that another client wrote, which fails; afterwards it counts as
    // absent.
    if *life == Life::Uninstalled {
        return Ok(State::Absent("found uninstalled release in storage"));
    }
    let Some(known) = latest(&status.history) else {
        return Ok(State::Unmanaged("found existing release in storage"));
    };
    match known.matches(record)? {
        Match::Same => {}
        Match::Other => return Ok(State::Unmanaged("release not observed to be made for object")),
        Match::NoDigest => return Ok(State::Unmanaged("release digest verification error")),
    }
    match life {
        Life::Failed => Ok(State::Failed("")),
        // Differs(flux): Flux does not act on it, although Helm can upgrade it.
        Life::Superseded => {
            Ok(State::OutOfSync("the release that superseded the last one is gone"))
        }
        Life::Deployed => deployed(desired, status, record, known, drift),
        other => Err(StateError::Status(other.clone())),
    }
}

/// The state of a release that this HelmRelease has deployed.
fn deployed(
    desired: &ReleaseDesiredState,
    status: &ReleaseStatus,
    record: &Record,
    known: &Snapshot,
    drift: Option<&Drift>,
) -> Result<State, StateError> {
    let chart = record.metadata().map(|it| (it.name.as_str(), it.version.as_str()));
    let wanted = (desired.chart_name.as_str(), desired.chart_version.as_str());
    if chart.unwrap_or_default() != wanted {
        return Ok(State::OutOfSync("release chart changed"));
    }
    if known.config_digest != desired.config_digest {
        return Ok(State::OutOfSync("release config values changed"));
    }
    // Differs(flux): in Flux a release whose post-renderers fail counts as in sync from the next run on.
    let has_failed = status.released.as_ref().is_some_and(|it| it.status == Truth::False);
    if status.observed_generation != desired.generation || has_failed {
        if status.post_renderers_digest != desired.spec.post_renderers_digest {
            return Ok(State::OutOfSync("postrenderers digest has changed"));
        }
        if status.common_metadata_digest != desired.spec.common_metadata_digest {
            return Ok(State::OutOfSync("common metadata digest has changed"));
        }
    }
    if desired.spec.test.enable {
        if !known.is_tested() {
            return Ok(State::Untested);
        }
        let counts = desired.active(status).is_some_and(|it| !it.ignores_tests(&desired.spec.test));
        if counts && known.has_failed_test() {
            return Ok(State::Failed("release has test in failed phase"));
        }
    }
    if desired.spec.drift == DriftMode::Disabled {
        return Ok(State::InSync);
    }
    match drift {
        None => Ok(State::Unobserved),
        Some(Drift::None) => Ok(State::InSync),
        Some(Drift::Found { digest, text }) => {
            Ok(State::Drifted { digest: digest.clone(), text: text.clone() })
        }
        Some(Drift::Error(text)) => Err(StateError::Drift(text.clone())),
    }
}

/// The next operation for a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// No operation: it is as it should be.
    Nothing,
    /// This operation begins. A rollback goes to this revision.
    Begin(Action, Option<i64>),
    /// The unfinished operation of another client is ended.
    Unlock(Life),
    /// The drift is reported, and corrected if the spec says so.
    Drift {
        /// Names what was found.
        digest: String,
        /// What was found, for people.
        text: String,
    },
    /// It was tried as often as it may be.
    Exhausted,
    /// There is nothing to roll back to.
    NoRollbackTarget,
    /// The cluster has to be compared first.
    Observe,
}

/// Decides what is done about a state. `forced` is whether a user asked for an upgrade by annotation.
///
/// # Errors
/// The revision to roll back to has no digest.
pub fn decide(
    state: &State,
    desired: &ReleaseDesiredState,
    status: &ReleaseStatus,
    revisions: &Revisions,
    forced: bool,
) -> Result<Decision, DigestError> {
    let exhausted_unless = |action: Action, is_exhausted: bool| match is_exhausted && !forced {
        true => Decision::Exhausted,
        false => Decision::Begin(action, None),
    };
    Ok(match state {
        State::Absent(_) => {
            let remediation = desired.spec.install.remediation;
            exhausted_unless(Action::Install, remediation.is_exhausted(status.install_failures))
        }
        State::Locked(life) => Decision::Unlock(life.clone()),
        State::Unmanaged(_) => Decision::Begin(Action::Upgrade, None),
        State::OutOfSync(_) => {
            let remediation = desired.spec.upgrade.remediation;
            exhausted_unless(Action::Upgrade, remediation.is_exhausted(status.upgrade_failures))
        }
        State::Untested => Decision::Begin(Action::Test, None),
        State::Failed(_) => return failed(desired, status, revisions, forced),
        State::Drifted { digest, text } => {
            Decision::Drift { digest: digest.clone(), text: text.clone() }
        }
        State::InSync if forced => Decision::Begin(Action::Upgrade, None),
        State::InSync => Decision::Nothing,
        State::Unobserved => Decision::Observe,
    })
}

/// Decides what is done about a release that failed, rule by rule.
fn failed(
    desired: &ReleaseDesiredState,
    status: &ReleaseStatus,
    revisions: &Revisions,
    forced: bool,
) -> Result<Decision, DigestError> {
    let upgrade = Decision::Begin(Action::Upgrade, None);
    let Some(active) = desired.active(status) else { return Ok(upgrade) };
    if active.retry.is_some() || active.failures <= 0 || forced {
        return Ok(upgrade);
    }
    if active.is_exhausted() && !active.undoes_last_failure() {
        return Ok(Decision::Exhausted);
    }
    match active.strategy() {
        RemediationStrategy::Uninstall => Ok(Decision::Begin(Action::UninstallRemediation, None)),
        RemediationStrategy::Rollback => rollback(desired, status, revisions, &active),
    }
}

/// A rollback, if the revision is there and is what it was.
fn rollback(
    desired: &ReleaseDesiredState,
    status: &ReleaseStatus,
    revisions: &Revisions,
    active: &Active,
) -> Result<Decision, DigestError> {
    let Some(target) = previous(&status.history, active.ignores_tests(&desired.spec.test)) else {
        return Ok(Decision::NoRollbackTarget);
    };
    // Parity(flux): a revision that is gone or changed cannot be a target, but does not end the search either.
    let upgrade = Decision::Begin(Action::Upgrade, None);
    let Some(revision) = revisions.get(target.version) else { return Ok(upgrade) };
    Ok(match target.matches(&revision.record)? {
        Match::Same => Decision::Begin(Action::Rollback, Some(target.version)),
        Match::Other | Match::NoDigest => upgrade,
    })
}

#[cfg(test)]
mod tests;
