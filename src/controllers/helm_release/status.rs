//! The status of a HelmRelease as decisions see it (`release::status::Status`), and back. Pure.
//!
//! Elsewhere: what a run makes of it (`report`), what changes in it (engine `release`).

use crds::helm::HelmRelease;
use kube::core::Resource as _;
use reconcile::{Condition, Rest, Status as Truth, Time};
use release::journal::Action;
use release::status::{self, DRIFTED, RELEASED, REMEDIATED, Said, Status, TEST_SUCCESS};
use serde_json::{Value, json};

use crate::controllers::record::conditions_of;

/// Conditions that this kind sets; others in the status are kept.
pub(super) const OWNED: [&str; 4] = [RELEASED, TEST_SUCCESS, REMEDIATED, DRIFTED];

/// The status of an object as JSON; an empty map if it has none.
pub(super) fn value_of(object: &HelmRelease) -> Value {
    let status = serde_json::to_value(&object.status).unwrap_or_default();
    if status.is_object() { status } else { json!({}) }
}

/// What decisions read of a status.
pub(super) fn read(object: &HelmRelease) -> Status {
    let value = value_of(object);
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let given = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| value.get(key).and_then(Value::as_i64).unwrap_or_default();
    let conditions = conditions_of(&value);
    let said = |kind: &str| said(&conditions, kind);
    let mut history: Vec<release::Snapshot> = value
        .get("history")
        .cloned()
        .and_then(|it| serde_json::from_value(it).ok())
        .unwrap_or_default();
    release::snapshot::sort(&mut history);
    Status {
        observed_generation: value.get("observedGeneration").and_then(Value::as_i64).unwrap_or(-1),
        storage_namespace: text("storageNamespace"),
        history,
        last_attempted_generation: number("lastAttemptedGeneration"),
        last_attempted_revision: text("lastAttemptedRevision"),
        last_attempted_revision_digest: text("lastAttemptedRevisionDigest"),
        last_attempted_config_digest: text("lastAttemptedConfigDigest"),
        last_attempted_action: match text("lastAttemptedReleaseAction").as_str() {
            "install" => Some(Action::Install),
            "upgrade" => Some(Action::Upgrade),
            _ => None,
        },
        last_attempted_duration: given("lastAttemptedReleaseActionDuration")
            .and_then(|text| reconcile::parse_duration(&text).ok()),
        failures: number("failures"),
        install_failures: number("installFailures"),
        upgrade_failures: number("upgradeFailures"),
        last_handled_reconcile: given("lastHandledReconcileAt"),
        last_handled_force: given("lastHandledForceAt"),
        last_handled_reset: given("lastHandledResetAt"),
        post_renderers_digest: text("observedPostRenderersDigest"),
        common_metadata_digest: text("observedCommonMetadataDigest"),
        released: said(RELEASED),
        tested: said(TEST_SUCCESS),
        remediated: said(REMEDIATED),
        drifted: said(DRIFTED),
    }
}

fn said(conditions: &[Condition], kind: &str) -> Option<Said> {
    let condition = Condition::find(conditions, kind)?;
    Some(Said {
        status: condition.status,
        reason: status::reason_of(&condition.reason)?,
        text: condition.message.clone(),
        generation: condition.observed_generation,
    })
}

/// Puts what decisions changed into a status, all but the conditions.
pub(super) fn write(status: &Status, value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    let mut put = |key: &str, value: Option<Value>| match value {
        Some(value) => {
            fields.insert(key.to_owned(), value);
        }
        None => {
            fields.remove(key);
        }
    };
    let text = |text: &str| (!text.is_empty()).then(|| Value::from(text));
    let given = |text: &Option<String>| text.clone().map(Value::from);
    let number = |number: i64| (number != 0).then(|| Value::from(number));
    put("storageNamespace", text(&status.storage_namespace));
    put("history", (!status.history.is_empty()).then(|| json!(status.history)));
    put("lastAttemptedGeneration", number(status.last_attempted_generation));
    put("lastAttemptedRevision", text(&status.last_attempted_revision));
    put("lastAttemptedRevisionDigest", text(&status.last_attempted_revision_digest));
    put("lastAttemptedConfigDigest", text(&status.last_attempted_config_digest));
    put("lastAttemptedReleaseAction", status.last_attempted_action.map(|it| it.as_str().into()));
    put(
        "lastAttemptedReleaseActionDuration",
        status.last_attempted_duration.map(|it| reconcile::format_duration(it).into()),
    );
    put("failures", number(status.failures));
    put("installFailures", number(status.install_failures));
    put("upgradeFailures", number(status.upgrade_failures));
    put("lastHandledForceAt", given(&status.last_handled_force));
    put("lastHandledResetAt", given(&status.last_handled_reset));
    put("observedPostRenderersDigest", text(&status.post_renderers_digest));
    put("observedCommonMetadataDigest", text(&status.common_metadata_digest));
}

/// The conditions of our own that a status says, beside those that were there.
pub(super) fn conditions<'a>(
    status: &Status,
    had: &'a [Condition],
    generation: i64,
    now: Time,
) -> reconcile::Conditions<'a> {
    let all = [
        (RELEASED, &status.released),
        (TEST_SUCCESS, &status.tested),
        (REMEDIATED, &status.remediated),
        (DRIFTED, &status.drifted),
    ];
    let start = reconcile::Conditions::since(had, generation, now, &OWNED);
    all.into_iter().fold(start, |conditions, (kind, now_said)| match now_said {
        None => conditions,
        // What was said of an earlier generation is carried along with that.
        Some(now_said) if said(had, kind).as_ref() == Some(now_said) => conditions.keep(kind),
        Some(Said { status, reason, text, .. }) => conditions.set(kind, *status, *reason, text),
    })
}

/// Whether the status has not come to rest, so that an operation may be under way.
pub(super) fn is_reconciling(object: &HelmRelease) -> bool {
    let conditions = conditions_of(&value_of(object));
    Condition::is(&conditions, reconcile::RECONCILING, Truth::True)
}

/// Whether the history can be read: one that cannot must not be taken for none, or the release would be left behind.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(object: &HelmRelease) -> Result<(), Rest> {
    let history = value_of(object).get("history").cloned();
    let read = history.map(serde_json::from_value::<Vec<release::Snapshot>>).transpose();
    read.map(drop).map_err(|error| {
        let text = format!(
            "status.history cannot be read: {error}; correct it, or upgrade windlass if another program wrote it"
        );
        Rest::Stalled(status::STATE_ERROR, text)
    })
}

/// The generation of an object.
pub(super) fn generation(object: &HelmRelease) -> i64 {
    object.meta().generation.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(status: &Value) -> HelmRelease {
        serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps"},
            "spec": {"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_history_that_cannot_be_read_is_not_taken_for_none() {
        assert_eq!(check(&release(&json!({}))), Ok(()));
        let snapshot = |action: &str| {
            json!({"history": [{"digest": "sha256:0", "name": "a", "namespace": "b", "version": 1,
                "status": "deployed", "chartName": "c", "chartVersion": "1.0.0", "configDigest": "d",
                "firstDeployed": "2026-11-01T00:00:00Z", "lastDeployed": "2026-11-01T00:00:00Z",
                "action": action}]})
        };
        assert_eq!(check(&release(&snapshot("install"))), Ok(()));
        let Err(Rest::Stalled(why, text)) = check(&release(&snapshot("transmute"))) else {
            panic!()
        };
        assert_eq!(why, status::STATE_ERROR);
        assert!(text.starts_with("status.history cannot be read: ") && text.contains("transmute"));
    }
}
