//! Converts the status of a HelmRelease, or a row of a Helmfile's status, to the fields that decisions read
//! (`release::status::HelmReleaseStatusFields`), and back. Pure.
//!
//! Elsewhere: the status that a run writes (`report`), how it changes (engine `release`).

use crds::ReconciledObject as _;
use crds::helm::{HelmRelease, HelmReleaseStatus, ReleaseAction};
use reconcile::{DELETION_HELD, NextRunTrigger, RunOutcome, StatusCondition, Time};
use release::journal::OperationKind;
use release::status::{
    DRIFTED, HelmReleaseStatusFields, RELEASED, REMEDIATED, ReleaseCondition, STATE_ERROR,
    TEST_SUCCESS, reason_of,
};

use windlass_runtime::object_status::{conditions_of, status_of, through};

/// The conditions that this kind sets. Other conditions in the status are kept.
pub(crate) const OWNED: [&str; 5] = [RELEASED, TEST_SUCCESS, REMEDIATED, DRIFTED, DELETION_HELD];

/// Reads the fields of a HelmRelease's status that decisions need.
pub fn read(object: &HelmRelease) -> HelmReleaseStatusFields {
    of(status_of(object))
}

/// Converts a status to the fields that decisions need.
pub fn of(status: HelmReleaseStatus) -> HelmReleaseStatusFields {
    let conditions = conditions_of(&status.conditions);
    let said = |kind: &str| said(&conditions, kind);
    let mut history: Vec<release::ReleaseSnapshot> = through(&status.history).unwrap_or_default();
    release::release_snapshot::sort(&mut history);
    HelmReleaseStatusFields {
        observed_generation: status.observed_generation.unwrap_or(-1),
        storage_namespace: status.storage_namespace.unwrap_or_default(),
        history,
        last_attempted_generation: status.last_attempted_generation,
        last_attempted_revision: status.last_attempted_revision.unwrap_or_default(),
        last_attempted_revision_digest: status.last_attempted_revision_digest.unwrap_or_default(),
        last_attempted_config_digest: status.last_attempted_config_digest.unwrap_or_default(),
        last_attempted_action: status.last_attempted_release_action.map(|it| match it {
            ReleaseAction::Install => OperationKind::Install,
            ReleaseAction::Upgrade => OperationKind::Upgrade,
        }),
        last_attempted_duration: status
            .last_attempted_release_action_duration
            .and_then(|text| reconcile::parse_duration(text.as_str()).ok()),
        failures: status.failures,
        install_failures: status.install_failures,
        upgrade_failures: status.upgrade_failures,
        last_handled_reconcile: status.last_handled_reconcile_at,
        last_handled_force: status.last_handled_force_at,
        last_handled_reset: status.last_handled_reset_at,
        post_renderers_digest: status.observed_post_renderers_digest.unwrap_or_default(),
        common_metadata_digest: status.observed_common_metadata_digest.unwrap_or_default(),
        released: said(RELEASED),
        tested: said(TEST_SUCCESS),
        remediated: said(REMEDIATED),
        drifted: said(DRIFTED),
    }
}

fn said(conditions: &[StatusCondition], kind: &str) -> Option<ReleaseCondition> {
    let condition = StatusCondition::find(conditions, kind)?;
    Some(ReleaseCondition {
        status: condition.status,
        reason: reason_of(&condition.reason)?,
        text: condition.message.clone(),
        generation: condition.observed_generation,
    })
}

/// Writes the fields that decisions changed into a status, except for the conditions.
///
/// # Errors
/// A revision of the history has a value that the CRD does not allow.
pub(crate) fn write(
    status: &HelmReleaseStatusFields,
    of: &mut HelmReleaseStatus,
) -> Result<(), RunOutcome> {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let Some(history) = through(&status.history) else {
        let text = "the history of the release cannot be written to the status";
        return Err(RunOutcome::Failed(STATE_ERROR, text.to_owned(), NextRunTrigger::default()));
    };
    of.storage_namespace = text(&status.storage_namespace);
    of.history = history;
    of.last_attempted_generation = status.last_attempted_generation;
    of.last_attempted_revision = text(&status.last_attempted_revision);
    of.last_attempted_revision_digest = text(&status.last_attempted_revision_digest);
    of.last_attempted_config_digest = text(&status.last_attempted_config_digest);
    of.last_attempted_release_action = status.last_attempted_action.and_then(|it| match it {
        OperationKind::Install => Some(ReleaseAction::Install),
        OperationKind::Upgrade => Some(ReleaseAction::Upgrade),
        OperationKind::Rollback
        | OperationKind::Test
        | OperationKind::Uninstall
        | OperationKind::UninstallRemediation => None,
    });
    let duration = status.last_attempted_duration.map(reconcile::format_duration);
    of.last_attempted_release_action_duration = duration.map(Into::into);
    of.failures = status.failures;
    of.install_failures = status.install_failures;
    of.upgrade_failures = status.upgrade_failures;
    of.last_handled_force_at.clone_from(&status.last_handled_force);
    of.last_handled_reset_at.clone_from(&status.last_handled_reset);
    of.observed_post_renderers_digest = text(&status.post_renderers_digest);
    of.observed_common_metadata_digest = text(&status.common_metadata_digest);
    Ok(())
}

/// The conditions of this kind by a status, besides the conditions that were there.
pub(crate) fn conditions<'a>(
    status: &HelmReleaseStatusFields,
    had: &'a [StatusCondition],
    generation: i64,
    now: Time,
) -> reconcile::StatusConditions<'a> {
    let all = [
        (RELEASED, &status.released),
        (TEST_SUCCESS, &status.tested),
        (REMEDIATED, &status.remediated),
        (DRIFTED, &status.drifted),
    ];
    let start = reconcile::StatusConditions::since(had, generation, now, &OWNED);
    all.into_iter().fold(start, |conditions, (kind, now_said)| match now_said {
        None => conditions,
        // A condition of an earlier generation is kept with its generation.
        Some(now_said) if said(had, kind).as_ref() == Some(now_said) => conditions.keep(kind),
        Some(ReleaseCondition { status, reason, text, .. }) => {
            conditions.set(kind, *status, *reason, text)
        }
    })
}

/// Whether the status has no final outcome, so that an operation may be under way.
pub(crate) fn is_reconciling(object: &HelmRelease) -> bool {
    object.condition(reconcile::RECONCILING).is_some_and(|it| it.status == "True")
}

/// Checks that the history can be read. If an unreadable history counted as an empty one, the release would be left behind.
///
/// # Errors
/// The outcome names the invalid part of the history.
pub fn check(status: Option<&HelmReleaseStatus>) -> Result<(), RunOutcome> {
    let Some(status) = status else { return Ok(()) };
    let history = serde_json::to_value(&status.history).unwrap_or_default();
    serde_json::from_value::<Vec<release::ReleaseSnapshot>>(history).map(drop).map_err(|error| {
        let text = format!(
            "status.history cannot be read: {error}; correct it, or upgrade windlass if another program wrote it"
        );
        RunOutcome::Stalled(STATE_ERROR, text)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(status: Value) -> Result<(), RunOutcome> {
        check(Some(&serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_history_that_cannot_be_read_is_not_taken_for_none() {
        assert_eq!(check(None), Ok(()));
        assert_eq!(checked(json!({})), Ok(()));
        let snapshot = |action: &str| {
            json!({"history": [{"digest": "sha256:0", "name": "a", "namespace": "b", "version": 1,
                "status": "deployed", "chartName": "c", "chartVersion": "1.0.0", "configDigest": "d",
                "firstDeployed": "2026-11-01T00:00:00Z", "lastDeployed": "2026-11-01T00:00:00Z",
                "action": action}]})
        };
        assert_eq!(checked(snapshot("install")), Ok(()));
        let Err(RunOutcome::Stalled(why, text)) = checked(snapshot("transmute")) else { panic!() };
        assert_eq!(why, STATE_ERROR);
        assert!(text.starts_with("status.history cannot be read: ") && text.contains("transmute"));
    }
}
