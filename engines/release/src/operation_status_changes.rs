//! The changes that operations make to the status, and their events, in Flux's words.
//!
//! Each function makes a new status from the old one. Calling it again gives the same status, because counters are set to the
//! values in the journal, and snapshots replace those of the same revision.
//!
//! Semantics: helm-controller 1.6 `internal/reconcile`.
//! Elsewhere: when these changes are made ([`crate::plan`]), deriving `Ready` from them ([`crate::status`]).

use std::sync::Arc;
use std::time::Duration;

use reconcile::{ConditionReason, ConditionStatus as Truth, ReleaseRollback, format_duration};

use crate::journal::{OperationJournal, OperationKind};
use crate::operation;
use crate::record::{RecordContentChange, ReleaseRecord, RevisionStatus as Life};
use crate::release_snapshot::{
    self, ReleaseSnapshot, SnapshotAction, SnapshotDigestError, latest, test_hooks, truncate,
    truncate_to_newest,
};
use crate::release_spec::{DriftMode, ReleaseDesiredState};
use crate::revisions::ReleaseRevisions;
use crate::status::{
    self, HelmReleaseStatusFields, LifecycleRefusedOperation, ReleaseCondition, ReleaseEvent,
    ReleaseProgress, ReleaseReport,
};

/// The message while an action is in progress. It does not change until the action ends.
pub fn running_text(action: OperationKind, timeout: Duration) -> String {
    let timeout = format_duration(timeout);
    format!("Running '{}' action with timeout of {timeout}", action.as_str())
}

/// The status at the beginning of an attempt: the storage namespace and the attempted inputs. If these differ from the last
/// attempt, the failures are reset.
pub fn attempted(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
) -> HelmReleaseStatusFields {
    let mut next = status.clone();
    if must_reset(desired, status) {
        next.clear_failures();
    }
    next.storage_namespace.clone_from(&desired.spec.target.storage_namespace);
    next.last_attempted_generation = desired.generation;
    next.last_attempted_revision.clone_from(&desired.chart_version);
    next.last_attempted_revision_digest.clone_from(&desired.oci_digest);
    next.last_attempted_config_digest.clone_from(&desired.config_digest);
    if desired.requests.reset.is_some() {
        next.last_handled_reset.clone_from(&desired.requests.reset);
    }
    next
}

fn must_reset(desired: &ReleaseDesiredState, status: &HelmReleaseStatusFields) -> bool {
    let digest = &status.last_attempted_config_digest;
    status.last_attempted_generation != desired.generation
        || status.last_attempted_revision != desired.chart_version
        || (!digest.is_empty() && *digest != desired.config_digest)
        || desired.requests.resets(status)
}

/// The report that an action begins.
pub fn begun(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    action: OperationKind,
) -> ReleaseReport {
    let mut next = status.clone();
    match action {
        OperationKind::Install => next.history.clear(),
        // With its tests the release reaches the desired state, so it no longer counts as undone.
        OperationKind::Test => confirm(&mut next, desired),
        _ => {}
    }
    if action.is_release() {
        next.last_attempted_action = Some(action);
        (next.tested, next.remediated) = (None, None);
    }
    let text = running_text(action, desired.timeout_of(action));
    // Parity(flux): a removal counts as a release there, a remediation does not.
    let makes_unready = action.is_release() || action == OperationKind::Uninstall;
    ReleaseReport {
        progress: Some(ReleaseProgress { text, makes_unready }),
        ..ReleaseReport::of(next)
    }
}

/// Marks a release as upgraded if it was undone and has reached the desired state again. The same applies if a user requested a
/// rollback but the release stayed.
fn confirm(next: &mut HelmReleaseStatusFields, desired: &ReleaseDesiredState) {
    let Some(said) = next.remediated.take() else { return };
    if let Some(known) = latest(&next.history) {
        let text = upgraded_text(known);
        let reason = status::UPGRADE_SUCCEEDED;
        let generation = said.generation.max(desired.generation);
        next.released = Some(ReleaseCondition { status: Truth::True, reason, text, generation });
    }
}

fn upgraded_text(known: &ReleaseSnapshot) -> String {
    let release = known.full_name();
    let chart = known.versioned_chart();
    format!("Helm upgrade succeeded for release {release} with chart {chart}")
}

/// Reports that an installation or upgrade failed before it had a record. It is retried, and does not count for remediation.
pub(crate) fn failed_early(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    action: OperationKind,
    error: &str,
) -> ReleaseReport {
    let mut next = status.clone();
    next.failures = next.failures.saturating_add(1);
    let reason = if action == OperationKind::Install {
        status::INSTALL_FAILED
    } else {
        status::UPGRADE_FAILED
    };
    let text = failed_text(desired, action, &desired.chart_name, &desired.chart_version, error);
    next.released = said(desired, Truth::False, reason, text.clone());
    // The desired state was not reached, so the status must keep showing that it differs from the live release.
    let before = (status.post_renderers_digest.clone(), status.common_metadata_digest.clone());
    observe(desired, &mut next);
    (next.post_renderers_digest, next.common_metadata_digest) = before;
    let event = desired_event(desired, reason, text);
    ReleaseReport { events: vec![event], is_early_failure: true, ..ReleaseReport::of(next) }
}

/// Reports why a requested rollback cannot begin; `None` if the status already reports that. There are no other consequences.
pub(crate) fn rollback_refused(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    asked: ReleaseRollback,
    why: &str,
) -> Option<ReleaseReport> {
    let ReleaseRollback { from, to } = asked;
    let text =
        format!("The requested rollback from revision {from} to {to} is not carried out: {why}");
    let reason = status::ROLLBACK_FAILED;
    if status.remediated.as_ref().is_some_and(|it| it.reason == reason && it.text == text) {
        return None;
    }
    let mut next = status.clone();
    next.remediated = said(desired, Truth::False, reason, text.clone());
    let event = match latest(&status.history) {
        Some(known) => snapshot_event(known, true, reason, text),
        None => desired_event(desired, reason, text),
    };
    Some(ReleaseReport { events: vec![event], ..ReleaseReport::of(next) })
}

/// Reports that a lifecycle did not let an installation or upgrade begin. The failure counts, but nothing was written that must
/// be undone.
pub(crate) fn held_back(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    refused: LifecycleRefusedOperation,
) -> ReleaseReport {
    let action = refused.action;
    let ReleaseReport { mut status, events, .. } =
        failed_early(desired, status, action, &refused.error);
    let counter = match action {
        OperationKind::Install => &mut status.install_failures,
        _ => &mut status.upgrade_failures,
    };
    *counter = counter.saturating_add(1);
    let reason = status::LIFECYCLE_FAILED;
    status.released = status.released.map(|said| ReleaseCondition { reason, ..said });
    let events = events.into_iter().map(|event| ReleaseEvent { reason, ..event }).collect();
    let refused = Some(Box::new(refused));
    ReleaseReport { events, is_early_failure: true, refused, ..ReleaseReport::of(status) }
}

fn failed_text(
    desired: &ReleaseDesiredState,
    action: OperationKind,
    name: &str,
    version: &str,
    error: &str,
) -> String {
    let target = &desired.spec.target;
    let namespace = &target.namespace;
    let release = &target.full_name;
    let error = error.trim();
    let action = action.as_str();
    format!(
        "Helm {action} failed for release {namespace}/{release} with chart {name}@{version}: {error}"
    )
}

fn said(
    desired: &ReleaseDesiredState,
    status: Truth,
    reason: ConditionReason,
    text: String,
) -> Option<ReleaseCondition> {
    Some(ReleaseCondition { status, reason, text, generation: desired.generation })
}

/// Records the observed generation and requests at the end of every action. A request to force is marked as handled only now,
/// so that the next run sees it again, even after a restart.
fn observe(desired: &ReleaseDesiredState, next: &mut HelmReleaseStatusFields) {
    observe_with(desired, desired.requests.force.as_ref(), next);
}

/// Like `observe`, if not every request to force has been handled.
fn observe_with(
    desired: &ReleaseDesiredState,
    forced: Option<&String>,
    next: &mut HelmReleaseStatusFields,
) {
    if forced.is_some() {
        next.last_handled_force = forced.cloned();
    }
    if !desired.spec.test.enable {
        next.tested = None;
    }
    next.post_renderers_digest.clone_from(&desired.spec.post_renderers_digest);
    next.common_metadata_digest.clone_from(&desired.spec.common_metadata_digest);
}

fn desired_event(
    desired: &ReleaseDesiredState,
    reason: ConditionReason,
    text: String,
) -> ReleaseEvent {
    ReleaseEvent {
        warning: true,
        reason,
        text,
        revision: desired.chart_version.clone(),
        token: desired.config_digest.clone(),
        app_version: desired.app_version.clone(),
        oci_digest: desired.oci_digest.clone(),
    }
}

fn snapshot_event(
    known: &ReleaseSnapshot,
    warning: bool,
    reason: ConditionReason,
    text: String,
) -> ReleaseEvent {
    ReleaseEvent {
        warning,
        reason,
        text,
        revision: known.chart_version.clone(),
        token: known.config_digest.clone(),
        app_version: known.app_version.clone(),
        oci_digest: known.oci_digest.clone(),
    }
}

/// The report that an operation ended, or is about to delete its own record.
///
/// # Errors
/// A record has no digest.
pub fn ended(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
    record: &ReleaseRecord,
    journal: &OperationJournal,
) -> Result<ReleaseReport, SnapshotDigestError> {
    let mut next = status.clone();
    let error = operation::error(journal, record);
    remember(&mut next, revisions, record, journal, desired)?;
    let known = latest(&next.history).cloned();
    let known = match known.filter(|it| it.targets(record)) {
        Some(known) => known,
        None => ReleaseSnapshot::of(record, None, &journal.oci_digest)?,
    };
    let counts = journal.failure.as_ref().is_none_or(|failure| failure.counts);
    if error.is_some() && counts {
        next.failures = journal.failures;
    }
    let is_held_back = |failure| operation::is_held_back(failure, journal, record);
    let held_back = journal.failure.as_ref().is_some_and(is_held_back);
    let ended = OperationEnd {
        desired,
        known: &known,
        error: error.as_deref(),
        counts,
        held_back,
        journal,
    };
    let (reason, text) = match journal.action {
        OperationKind::Install | OperationKind::Upgrade => ended.release(&mut next),
        OperationKind::Test => ended.test(&mut next),
        OperationKind::Rollback => ended.rollback(&mut next, revisions)?,
        OperationKind::Uninstall | OperationKind::UninstallRemediation => ended.removal(&mut next),
    };
    // Only the request in the journal is handled. A later one is still open.
    observe_with(desired, journal.force.as_ref(), &mut next);
    let warning = error.is_some() && counts;
    let event = match (journal.action, warning) {
        (OperationKind::Install | OperationKind::Upgrade, true) => {
            desired_event(desired, reason, text)
        }
        _ => snapshot_event(&known, warning, reason, text),
    };
    Ok(ReleaseReport {
        events: vec![event],
        ended: Some(journal.action),
        ..ReleaseReport::of(next)
    })
}

/// Whether the status already reports the end of an operation.
///
/// A successful installation or upgrade is in the history by its revision. If another client has changed its record since,
/// there is nothing left to report. A failure was counted and must not be counted again, so only the journal says whether a
/// failure was reported.
pub fn is_reported(
    status: &HelmReleaseStatusFields,
    record: &ReleaseRecord,
    journal: &OperationJournal,
) -> bool {
    let went_well = journal.action.is_release() && journal.failure.is_none();
    let is_changed = record.info.status != Life::Deployed;
    let is_known = || status.history.iter().any(|known| known.tells_of(record));
    journal.accounted || went_well && (is_changed || is_known())
}

/// Adds the stored revision to the history.
fn remember(
    next: &mut HelmReleaseStatusFields,
    revisions: &ReleaseRevisions,
    record: &ReleaseRecord,
    journal: &OperationJournal,
    desired: &ReleaseDesiredState,
) -> Result<(), SnapshotDigestError> {
    let action = match journal.action {
        OperationKind::Install => Some(SnapshotAction::Install),
        OperationKind::Upgrade => Some(SnapshotAction::Upgrade),
        OperationKind::Rollback => Some(SnapshotAction::Rollback),
        OperationKind::Uninstall => Some(SnapshotAction::Uninstall),
        OperationKind::UninstallRemediation => Some(SnapshotAction::UninstallRemediation),
        OperationKind::Test => None,
    };
    // Revisions that this operation superseded.
    for known in &mut next.history {
        let revision = revisions.get(known.version).map(|it| Arc::clone(&it.record));
        let Some(other) = revision.filter(|it| known.targets(it) && it.version != record.version)
        else {
            continue;
        };
        if known.status != Life::Superseded.as_str() && other.info.status == Life::Superseded {
            let tests = known.test_hooks.take();
            *known = ReleaseSnapshot::of(&other, known.action, &known.oci_digest.clone())?;
            known.test_hooks = tests;
        }
    }
    let place = next.history.iter().position(|known| known.targets(record));
    let before = place.map(|place| next.history.remove(place));
    let oci_digest = match (&before, journal.action.is_release()) {
        (Some(before), false) => before.oci_digest.clone(),
        _ => journal.oci_digest.clone(),
    };
    let action = action.or_else(|| before.as_ref().and_then(|it| it.action));
    let mut snapshot = ReleaseSnapshot::of(record, action, &oci_digest)?;
    snapshot.test_hooks = before.and_then(|it| it.test_hooks);
    if journal.action == OperationKind::Test {
        snapshot.test_hooks = Some(test_hooks(record, &desired.spec.test.filters));
    }
    next.history.push(snapshot);
    release_snapshot::sort(&mut next.history);
    Ok(())
}

/// The end of an operation, for the conditions.
struct OperationEnd<'e> {
    desired: &'e ReleaseDesiredState,
    known: &'e ReleaseSnapshot,
    error: Option<&'e str>,
    counts: bool,
    /// Whether the operation failed because of a lifecycle.
    held_back: bool,
    journal: &'e OperationJournal,
}

impl OperationEnd<'_> {
    fn release(&self, next: &mut HelmReleaseStatusFields) -> (ConditionReason, String) {
        let desired = self.desired;
        let action = self.journal.action;
        let is_install = action == OperationKind::Install;
        next.last_attempted_action = Some(action);
        next.last_attempted_duration = self
            .journal
            .ended
            .and_then(|ended| Duration::try_from(ended.duration_since(self.journal.started)).ok());
        let Some(error) = self.error else {
            let release = self.known.full_name();
            let chart = self.known.versioned_chart();
            let what = action.as_str();
            let text = format!("Helm {what} succeeded for release {release} with chart {chart}");
            let reason = match is_install {
                true => status::INSTALL_SUCCEEDED,
                false => status::UPGRADE_SUCCEEDED,
            };
            next.released = said(desired, Truth::True, reason, text.clone());
            if desired.spec.test.enable && !self.known.is_tested() {
                let text = format!("Helm release {release} with chart {chart} is awaiting tests");
                next.tested = said(desired, Truth::Unknown, status::AWAITING_TESTS, text);
            }
            let strategy = match is_install {
                true => desired.spec.install.strategy,
                false => desired.spec.upgrade.strategy,
            };
            if strategy.retry().is_some() {
                next.clear_failures();
            }
            return (reason, text);
        };
        let name = &self.known.chart_name;
        let version = &self.known.chart_version;
        let text = failed_text(desired, action, name, version, error);
        let reason = match is_install {
            _ if self.held_back => status::LIFECYCLE_FAILED,
            true => status::INSTALL_FAILED,
            false => status::UPGRADE_FAILED,
        };
        next.released = said(desired, Truth::False, reason, text.clone());
        if self.counts {
            let counter = match is_install {
                true => &mut next.install_failures,
                false => &mut next.upgrade_failures,
            };
            *counter = self.journal.attempt;
        }
        (reason, text)
    }

    fn test(&self, next: &mut HelmReleaseStatusFields) -> (ConditionReason, String) {
        let desired = self.desired;
        let release = self.known.full_name();
        let chart = self.known.versioned_chart();
        let Some(error) = self.error else {
            let count = self.known.test_hooks.as_ref().map_or(0, std::collections::BTreeMap::len);
            let hooks = match count {
                0 => "no test hooks".to_owned(),
                1 => "1 test hook completed successfully".to_owned(),
                count => format!("{count} test hooks completed successfully"),
            };
            let text =
                format!("Helm test succeeded for release {release} with chart {chart}: {hooks}");
            next.tested = said(desired, Truth::True, status::TEST_SUCCEEDED, text.clone());
            return (status::TEST_SUCCEEDED, text);
        };
        let error = error.trim();
        if self.held_back {
            return self.not_promoted(next, error);
        }
        let text = format!("Helm test failed for release {release} with chart {chart}: {error}");
        next.tested = said(desired, Truth::False, status::TEST_FAILED, text.clone());
        let active = desired.active(next).filter(|it| !it.ignores_tests(&desired.spec.test));
        if let Some(active) = active.filter(|_| self.counts && self.known.is_tested()) {
            let counter = match active.is_upgrade {
                true => &mut next.upgrade_failures,
                false => &mut next.install_failures,
            };
            *counter = self.journal.attempt;
        }
        (status::TEST_FAILED, text)
    }

    /// A lifecycle did not let a release be promoted that was tested. That is a failure of the release, also where failures of
    /// tests are ignored.
    fn not_promoted(
        &self,
        next: &mut HelmReleaseStatusFields,
        error: &str,
    ) -> (ConditionReason, String) {
        let desired = self.desired;
        let release = self.known.full_name();
        let chart = self.known.versioned_chart();
        let text = format!("Promotion failed for release {release} with chart {chart}: {error}");
        let reason = status::LIFECYCLE_FAILED;
        (next.tested, next.released) = (None, said(desired, Truth::False, reason, text.clone()));
        let is_upgrade = desired.active(next).is_some_and(|active| active.is_upgrade);
        let counter = match is_upgrade {
            true => &mut next.upgrade_failures,
            false => &mut next.install_failures,
        };
        *counter = self.journal.attempt;
        (reason, text)
    }

    fn rollback(
        &self,
        next: &mut HelmReleaseStatusFields,
        revisions: &ReleaseRevisions,
    ) -> Result<(ConditionReason, String), SnapshotDigestError> {
        // Flux names the revision that is rolled back to.
        let version = self.journal.target.unwrap_or_default();
        let known = next.history.iter().find(|it| it.version == version).cloned();
        let target = match (known, revisions.get(version)) {
            (Some(known), _) => known,
            (None, Some(revision)) => ReleaseSnapshot::of(&revision.record, None, "")?,
            (None, None) => self.known.clone(),
        };
        let release = target.full_name();
        let chart = target.versioned_chart();
        let what = format!("Helm rollback to previous release {release} with chart {chart}");
        let (truth, reason, text) = match self.error {
            None => (Truth::True, status::ROLLBACK_SUCCEEDED, format!("{what} succeeded")),
            Some(error) => {
                let text = format!("{what} failed: {}", error.trim());
                (Truth::False, status::ROLLBACK_FAILED, text)
            }
        };
        next.remediated = said(self.desired, truth, reason, text.clone());
        Ok((reason, text))
    }

    fn removal(&self, next: &mut HelmReleaseStatusFields) -> (ConditionReason, String) {
        let release = self.known.full_name();
        let chart = self.known.versioned_chart();
        let is_remediation = self.journal.action == OperationKind::UninstallRemediation;
        let error = self.error.map(str::trim);
        let text = match (is_remediation, error) {
            (false, None) => {
                format!("Helm uninstall succeeded for release {release} with chart {chart}")
            }
            (false, Some(error)) => {
                format!("Helm uninstall failed for release {release} with chart {chart}: {error}")
            }
            (true, None) => {
                format!(
                    "Helm uninstall remediation for release {release} with chart {chart} succeeded"
                )
            }
            (true, Some(error)) => format!(
                "Helm uninstall remediation for release {release} with chart {chart} failed: {error}"
            ),
        };
        let reason = match error {
            None => status::UNINSTALL_SUCCEEDED,
            Some(_) => status::UNINSTALL_FAILED,
        };
        if is_remediation {
            let truth = if error.is_none() { Truth::True } else { Truth::False };
            next.remediated = said(self.desired, truth, reason, text.clone());
        } else {
            next.released = said(self.desired, Truth::False, reason, text.clone());
        }
        (reason, text)
    }
}

/// The report that the unfinished operation of another client is ended, and the description for its record.
///
/// # Errors
/// The record has no digest.
pub fn unlocked(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    record: &ReleaseRecord,
    life: &Life,
) -> Result<(ReleaseReport, String), SnapshotDigestError> {
    let description = format!("Release unlocked from stale '{life}' state");
    let mut after = record.clone();
    after.apply(&RecordContentChange::Status {
        status: Life::Failed,
        description: Some(description.clone()),
        deleted: None,
    });
    let mut next = status.clone();
    let before = next.history.iter().find(|known| known.targets(record)).cloned();
    let oci_digest = before.as_ref().map_or("", |before| before.oci_digest.as_str());
    let known = ReleaseSnapshot::of(&after, before.as_ref().and_then(|it| it.action), oci_digest)?;
    if let Some(place) = next.history.iter_mut().find(|known| known.targets(record)) {
        *place = known.clone();
    }
    let release = known.full_name();
    let chart = known.versioned_chart();
    let text = format!("Unlocked Helm release {release} with chart {chart} in {life} state");
    let reason = status::PENDING_RELEASE;
    next.released = said(desired, Truth::False, reason, text.clone());
    observe(desired, &mut next);
    let events = vec![snapshot_event(&known, false, reason, text)];
    Ok((ReleaseReport { events, ..ReleaseReport::of(next) }, description))
}

/// Takes over the release of another client without an operation, because it already matches the desired state.
///
/// Differs(flux): Flux upgrades every existing release first.
///
/// # Errors
/// The record has no digest.
pub(crate) fn adopted(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    record: &ReleaseRecord,
) -> Result<ReleaseReport, SnapshotDigestError> {
    let mut next = status.clone();
    let known = ReleaseSnapshot::of(record, None, "")?;
    let release = known.full_name();
    let chart = known.versioned_chart();
    let text = format!("Adopted release {release} with chart {chart}, which is up to date");
    let reason = status::INSTALL_SUCCEEDED;
    next.released = said(desired, Truth::True, reason, text.clone());
    (next.remediated, next.tested) = (None, None);
    next.history = vec![known.clone()];
    observe(desired, &mut next);
    let events = vec![snapshot_event(&known, false, reason, text)];
    Ok(ReleaseReport { events, ..ReleaseReport::of(next) })
}

/// The report that drift was found.
pub fn drifted(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    found: &str,
) -> ReleaseReport {
    let mut next = status.clone();
    let Some(known) = latest(&status.history) else { return ReleaseReport::of(next) };
    let release = known.full_name();
    let text =
        format!("Cluster state of release {release} has drifted from the desired state:\n{found}");
    let is_reported = status
        .drifted
        .as_ref()
        .is_some_and(|said| said.reason == status::DRIFT_DETECTED && said.text == text);
    let reason = status::DRIFT_DETECTED;
    let event = snapshot_event(known, true, reason, text.clone());
    next.drifted = said(desired, Truth::True, reason, text);
    let events = if is_reported { Vec::new() } else { vec![event] };
    ReleaseReport { events, ..ReleaseReport::of(next) }
}

/// The message if drift could not be corrected, or only partly.
pub(crate) fn correction_failed(status: &HelmReleaseStatusFields, faults: &str) -> String {
    let release = latest(&status.history).map(ReleaseSnapshot::full_name).unwrap_or_default();
    format!("Failed to correct cluster state of release {release}:\n{faults}")
}

/// The status if nothing is to be done.
pub fn settled(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
    is_in_sync: bool,
) -> HelmReleaseStatusFields {
    let mut next = status.clone();
    if is_in_sync {
        confirm_in_sync(desired, &mut next);
    }
    observe(desired, &mut next);
    next
}

fn confirm_in_sync(desired: &ReleaseDesiredState, next: &mut HelmReleaseStatusFields) {
    let active = desired.active(next);
    if active.is_some_and(|it| it.retry.is_some()) {
        truncate_to_newest(&mut next.history);
    } else {
        let ignores = active
            .map_or(desired.spec.test.ignore_failures, |it| it.ignores_tests(&desired.spec.test));
        truncate(&mut next.history, ignores);
    }
    confirm(next, desired);
    let known = latest(&next.history).cloned();
    // A reported failure is over, because another client repaired the release.
    if let (Some(known), Some(before)) = (known, &next.released) {
        let release = known.full_name();
        let chart = known.versioned_chart();
        let recovery = match before.reason {
            status::INSTALL_FAILED => Some((status::INSTALL_SUCCEEDED, "install")),
            status::UPGRADE_FAILED => Some((status::UPGRADE_SUCCEEDED, "upgrade")),
            status::LIFECYCLE_FAILED if active.is_some_and(|it| it.is_upgrade) => {
                Some((status::UPGRADE_SUCCEEDED, "upgrade"))
            }
            status::LIFECYCLE_FAILED => Some((status::INSTALL_SUCCEEDED, "install")),
            _ => None,
        };
        if let Some((reason, what)) = recovery {
            let text = format!("Helm {what} succeeded for release {release} with chart {chart}");
            next.released = said(desired, Truth::True, reason, text);
        }
    }
    if desired.spec.drift != DriftMode::Disabled {
        next.drifted = no_drift(desired);
    }
}

fn no_drift(desired: &ReleaseDesiredState) -> Option<ReleaseCondition> {
    let text = "No drift detected against the cluster state".to_owned();
    said(desired, Truth::False, status::NO_DRIFT_DETECTED, text)
}

/// The status of a release that stays in place of a quarantined one and has no drift.
pub(crate) fn without_drift(
    desired: &ReleaseDesiredState,
    status: &HelmReleaseStatusFields,
) -> HelmReleaseStatusFields {
    HelmReleaseStatusFields { drifted: no_drift(desired), ..status.clone() }
}

/// Reports that the release to be removed is not the live one. The live release stays, and the status drops the history.
pub fn left(
    status: &HelmReleaseStatusFields,
    there: &ReleaseRecord,
    known: &ReleaseSnapshot,
) -> ReleaseReport {
    let text = format!(
        "Release {} is not uninstalled: it is not the release {} that was installed here; if the kubeconfig names another \
         cluster by now, that one is left in the former",
        there.full_name(),
        known.full_name()
    );
    let events = vec![snapshot_event(known, true, status::UNINSTALL_FAILED, text)];
    ReleaseReport { events, ..ReleaseReport::of(forgotten(status)) }
}

/// The status after the release of another target was removed. It contains nothing about that release.
pub fn forgotten(status: &HelmReleaseStatusFields) -> HelmReleaseStatusFields {
    let mut next = status.clone();
    next.history.clear();
    next.clear_failures();
    next.storage_namespace.clear();
    next
}
