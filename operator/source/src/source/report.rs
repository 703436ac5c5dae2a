//! Turns the outcome of a source into its status and its events.

use std::collections::BTreeMap;

use crds::{Artifact, ObjectStatus as _, SourceStatus};
use kube_core::ResourceExt as _;
use reconcile::condition_reason::SUCCEEDED;
use reconcile::{ConditionReason, ConditionStatus, RunOutcome, StatusCondition, Time};

use super::SourceKind;
use super::artifact_verification_record::VerificationRecord;
use super::executor::{SourceRun, StoredArtifact};
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::object_status::{conditions_of, listed, status_of};

/// The artifact of the status is there.
pub(super) const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
/// The remote could not be asked or fetched.
pub(crate) const FETCH_FAILED: &str = "FetchFailed";
/// The artifact could not be kept.
pub(crate) const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";

/// The artifact is signed as the spec asks.
pub(crate) const SOURCE_VERIFIED: &str = "SourceVerified";

/// Conditions of a kind that report failures, beside `Ready`.
pub(crate) struct FailureConditions {
    /// The conditions that the kind sets besides `ArtifactInStorage`. Other conditions in the status are kept.
    pub(crate) owned: &'static [&'static str],
    /// The condition that reports a failure with this reason.
    pub(crate) of_failure: fn(ConditionReason) -> &'static str,
}

/// The status to write and the events to announce.
pub(crate) struct SourceReport<S> {
    pub(crate) before: S,
    pub(crate) after: S,
    pub(crate) events: Vec<ObjectEvent>,
    failed: Option<String>,
}

/// Derives status and events from the outcome of the run. `announcement` is about a failure that the status has already.
pub(crate) fn report<K: SourceKind>(
    object: &K,
    run: Option<&SourceRun<K>>,
    stored: Option<&StoredArtifact<K::Status>>,
    url: Option<String>,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    now: Time,
) -> SourceReport<K::Status> {
    let before = status_of(object);
    let generation = object.meta().generation.unwrap_or_default();
    let had = conditions_of(before.conditions());
    let mut after = before.clone();
    if let (Some(artifact), Some(url)) = (before.artifact().cloned(), url) {
        after.set_artifact(Artifact { url, ..artifact });
    }
    if let Some(stored) = stored {
        object.observed(&mut after);
        (stored.note)(&mut after);
        after.set_artifact(stored.artifact.clone());
    }
    if let Some(run) = run {
        K::always(run, stored.is_some(), &mut after);
    }
    let owned: Vec<&str> =
        std::iter::once(&ARTIFACT_IN_STORAGE).chain(K::CONDITIONS.owned).copied().collect();
    let mut conditions = reconcile::StatusConditions::since(&had, generation, now, &owned)
        .marked(&windlass_runtime::hold_conditions::of(object, now));
    match stored.and_then(|stored| stored.verified.as_ref()) {
        Some(VerificationRecord { text, .. }) if text.is_empty() => {}
        Some(VerificationRecord { text, .. }) => {
            conditions = conditions.set(SOURCE_VERIFIED, ConditionStatus::True, SUCCEEDED, text);
        }
        None if !object.is_verified() => {}
        // The existing artifact was reported before.
        None => {
            let said = StatusCondition::find(&had, SOURCE_VERIFIED)
                .filter(|it| it.status == ConditionStatus::True);
            conditions = match said {
                Some(said) if outcome.is_settled() => {
                    conditions.set(SOURCE_VERIFIED, ConditionStatus::True, SUCCEEDED, &said.message)
                }
                Some(_) => conditions.keep(SOURCE_VERIFIED),
                None => conditions,
            };
        }
    }
    match outcome {
        RunOutcome::Settled(why, text) => {
            conditions = conditions.set(ARTIFACT_IN_STORAGE, ConditionStatus::True, *why, text);
        }
        RunOutcome::Running(why, text, _)
        | RunOutcome::Blocked(why, text, _)
        | RunOutcome::Failed(why, text, _)
        | RunOutcome::Stalled(why, text) => {
            let failure = (K::CONDITIONS.of_failure)(*why);
            // The others say that something is wrong.
            let status = if failure == SOURCE_VERIFIED {
                ConditionStatus::False
            } else {
                ConditionStatus::True
            };
            conditions = conditions.keep(ARTIFACT_IN_STORAGE).set(failure, status, *why, text);
        }
    }
    after.set_conditions(listed(conditions.finish(outcome)));
    // Parity(flux): a source's observedGeneration moves when the generation was dealt with, well or for good.
    if matches!(outcome, RunOutcome::Settled(..) | RunOutcome::Stalled(..)) {
        after.set_observed_generation(generation);
    }
    if let Some(requested) = object.annotations().get(REQUESTED_AT) {
        after.set_last_handled_reconcile_at(requested);
    }
    let failed = (!outcome.is_settled()).then(|| outcome.text().to_owned());
    let events = events(object, stored, outcome, announcement, &had);
    SourceReport { before, after, events, failed }
}

fn events<K: SourceKind>(
    object: &K,
    stored: Option<&StoredArtifact<K::Status>>,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    had: &[StatusCondition],
) -> Vec<ObjectEvent> {
    let artifact = stored.map(|s| &s.artifact).or_else(|| object.artifact());
    let metadata: BTreeMap<String, String> = artifact
        .map(|a| {
            [("revision", &a.revision), ("digest", &a.digest)]
                .map(|(key, value)| (format!("source.toolkit.fluxcd.io/{key}"), value.clone()))
                .into()
        })
        .unwrap_or_default();
    let was_ready = StatusCondition::is(had, reconcile::READY, ConditionStatus::True);
    let is_in_status = StatusCondition::find(had, reconcile::READY)
        .is_some_and(|c| c.reason == outcome.reason().as_str() && c.message == outcome.text());
    let is_reported = announcement.is_reported(is_in_status, outcome);
    match outcome {
        RunOutcome::Settled(..) => match stored {
            Some(stored) => {
                let message = stored.message.clone();
                vec![ObjectEvent {
                    severity: EventSeverity::Info,
                    reason: K::event_reason(outcome.reason()).into(),
                    message,
                    metadata,
                }]
            }
            None if was_ready || had.is_empty() => Vec::new(),
            None => {
                let message = outcome.text().to_owned();
                vec![ObjectEvent {
                    severity: EventSeverity::Info,
                    reason: outcome.reason().to_string(),
                    message,
                    metadata,
                }]
            }
        },
        RunOutcome::Running(..)
        | RunOutcome::Blocked(..)
        | RunOutcome::Failed(..)
        | RunOutcome::Stalled(..)
            if is_reported =>
        {
            Vec::new()
        }
        RunOutcome::Running(..)
        | RunOutcome::Blocked(..)
        | RunOutcome::Failed(..)
        | RunOutcome::Stalled(..) => {
            // Parity(flux): waiting for something is not a failure.
            let is_waiting = matches!(outcome, RunOutcome::Blocked(..));
            vec![ObjectEvent {
                severity: if is_waiting { EventSeverity::Info } else { EventSeverity::Error },
                reason: outcome.reason().to_string(),
                message: outcome.text().to_owned(),
                metadata,
            }]
        }
    }
}

impl<S: SourceStatus> SourceReport<S> {
    /// One log line, when something happened.
    pub(crate) fn log<K: SourceKind>(&self, object: &K) {
        let name = object.name_any();
        let namespace = object.namespace().unwrap_or_default();
        let controller_kind = K::kind(&());
        match &self.failed {
            Some(error) => {
                tracing::error!(
                    %controller_kind,
                    name,
                    namespace,
                    error,
                    "failed to fetch"
                );
            }
            None if self.before != self.after => {
                let revision = self.after.artifact().map(|artifact| artifact.revision.as_str());
                tracing::info!(
                    %controller_kind,
                    name,
                    namespace,
                    revision,
                    "artifact stored"
                );
            }
            None => tracing::debug!(
                %controller_kind,
                name,
                namespace,
                "no changes"
            ),
        }
    }
}
