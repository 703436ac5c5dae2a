//! Turns the outcome of an ArtifactGenerator into its status and its events.

use std::collections::BTreeMap;

use artifactgen::{InventoryEntry, changes_message};
use crds::source_extensions::{
    ArtifactGenerator, ArtifactGeneratorStatus, ExternalArtifactReference,
};
use kube_core::ResourceExt as _;
use reconcile::{ConditionStatus, READY, RunOutcome, StatusCondition, Time};

use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_runtime::object_status::{conditions_of, status_of};
use windlass_runtime::run_report::status_after;

/// The artifacts that a run made.
pub(super) struct GeneratedArtifactInventory {
    /// All artifacts.
    pub(super) inventory: Vec<InventoryEntry>,
    /// The digest over the sources from which the artifacts were made.
    pub(super) sources_digest: String,
}

/// The status to write, and its events.
pub(super) struct GeneratorReport {
    pub(super) before: ArtifactGeneratorStatus,
    pub(super) after: ArtifactGeneratorStatus,
    pub(super) events: Vec<ObjectEvent>,
    failed: Option<String>,
}

/// The artifacts in the status of a generator. Entries of other namespaces are ignored, since a generator makes no artifacts
/// there.
pub(super) fn inventory(object: &ArtifactGenerator) -> Vec<InventoryEntry> {
    let namespace = object.namespace().unwrap_or_default();
    let listed = object.status.iter().flat_map(|status| &status.inventory);
    listed
        .filter(|it| it.namespace == namespace)
        .map(|it| InventoryEntry {
            digest: it.digest.clone(),
            filename: it.filename.clone(),
            name: it.name.clone(),
            namespace: it.namespace.clone(),
        })
        .collect()
}

/// An inventory as a status has it.
fn recorded(inventory: &[InventoryEntry]) -> Vec<ExternalArtifactReference> {
    let entry = |it: &InventoryEntry| ExternalArtifactReference {
        digest: it.digest.clone(),
        filename: it.filename.clone(),
        name: it.name.clone(),
        namespace: it.namespace.clone(),
    };
    inventory.iter().map(entry).collect()
}

/// Derives status and events from the outcome of the run. `announcement` is about a failure that the status has already.
pub(super) fn report(
    object: &ArtifactGenerator,
    generated: Option<&GeneratedArtifactInventory>,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    now: Time,
) -> GeneratorReport {
    let before = status_of(object);
    let had = conditions_of(&before.conditions);
    let after = status_after(object, outcome, now, |status: &mut ArtifactGeneratorStatus| {
        if let Some(generated) = generated {
            status.inventory = recorded(&generated.inventory);
            status.observed_sources_digest = Some(generated.sources_digest.clone());
        }
    });
    let failed = (!outcome.is_settled()).then(|| outcome.text().to_owned());
    let events = event(object, generated, outcome, announcement, &had).into_iter().collect();
    GeneratorReport { before, after, events, failed }
}

/// The event of a run, if there is something to report.
fn event(
    object: &ArtifactGenerator,
    generated: Option<&GeneratedArtifactInventory>,
    outcome: &RunOutcome,
    announcement: FailureAnnouncement,
    had: &[StatusCondition],
) -> Option<ObjectEvent> {
    let event = |severity, reason: &str, message: String| {
        let reason = reason.to_owned();
        Some(ObjectEvent { severity, reason, message, metadata: BTreeMap::new() })
    };
    if outcome.is_settled() {
        let made = generated.and_then(|it| changes_message(&inventory(object), &it.inventory));
        let was_ready = StatusCondition::is(had, READY, ConditionStatus::True);
        // Differs(flux): the end of a failure is an event, too.
        let recovered = (!was_ready && !had.is_empty()).then(|| outcome.text().to_owned());
        // Parity(flux): the reason is the type of the condition.
        return event(EventSeverity::Info, READY, made.or(recovered)?);
    }
    let is_in_status = StatusCondition::find(had, READY)
        .is_some_and(|it| it.reason == outcome.reason().as_str() && it.message == outcome.text());
    match announcement.is_reported(is_in_status, outcome) {
        true => None,
        false => event(EventSeverity::Error, outcome.reason().as_str(), outcome.text().to_owned()),
    }
}

impl GeneratorReport {
    /// One log line, when something happened.
    pub(super) fn log(&self, object: &ArtifactGenerator) {
        let controller_kind = "ArtifactGenerator";
        let name = object.name_any();
        let namespace = object.namespace();
        match &self.failed {
            Some(error) => {
                tracing::error!(
                    controller_kind,
                    name,
                    namespace,
                    error,
                    "failed to make artifacts"
                );
            }
            None if self.before != self.after => {
                let artifacts = self.after.inventory.len();
                tracing::info!(controller_kind, name, namespace, artifacts, "artifacts made");
            }
            None => tracing::debug!(controller_kind, name, namespace, "no changes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use reconcile::{NextRunTrigger, condition_reason};
    use serde_json::{Value, json};
    use windlass_runtime::controller_kind::REQUESTED_AT;

    use super::*;
    use crate::artifact_generator::resolved_sources::SOURCE_FETCH_FAILED;

    fn generator(status: &Value) -> ArtifactGenerator {
        serde_json::from_value(json!({
            "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
            "metadata": {"name": "gen", "namespace": "apps", "generation": 2,
                "annotations": {REQUESTED_AT: "now"}},
            "spec": {}, "status": status,
        }))
        .unwrap()
    }

    fn made(digest: &str) -> GeneratedArtifactInventory {
        let entry = InventoryEntry {
            digest: digest.to_owned(),
            filename: "1.tar.gz".to_owned(),
            name: "one".to_owned(),
            namespace: "apps".to_owned(),
        };
        GeneratedArtifactInventory { inventory: vec![entry], sources_digest: "sha256:9".to_owned() }
    }

    fn settled() -> RunOutcome {
        let text = artifactgen::succeeded_message(1);
        RunOutcome::Settled(condition_reason::SUCCEEDED, text)
    }

    fn time() -> Time {
        Time::from_second(1_790_000_000).unwrap()
    }

    fn check(report: &GeneratorReport, expected: &Expect) {
        let conditions = conditions_of(&report.after.conditions);
        let mut lines: Vec<String> = conditions
            .iter()
            .map(|c| format!("{}={:?} {}: {}", c.kind, c.status, c.reason, c.message))
            .collect();
        let after = json!(report.after);
        for field in ["inventory", "observedSourcesDigest", "lastHandledReconcileAt"] {
            lines.push(format!("{field} {}", after[field]));
        }
        for event in &report.events {
            lines.push(format!("event {:?} {}: {}", event.severity, event.reason, event.message));
        }
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn artifacts_that_are_made_are_listed_and_new_digests_are_an_event() {
        let first = report(
            &generator(&json!({})),
            Some(&made("sha256:1")),
            &settled(),
            FailureAnnouncement::Made,
            time(),
        );
        check(
            &first,
            &expect![[r#"
                Ready=True Succeeded: reconciliation succeeded, generated 1 artifact(s)
                inventory [{"digest":"sha256:1","filename":"1.tar.gz","name":"one","namespace":"apps"}]
                observedSourcesDigest "sha256:9"
                lastHandledReconcileAt "now"
                event Info Ready: external artifacts reconciled: apps/one (sha256:1)"#]],
        );
        let object = generator(&json!(first.after));
        let again =
            report(&object, Some(&made("sha256:1")), &settled(), FailureAnnouncement::Made, time());
        assert_eq!((again.before == again.after, again.events.len()), (true, 0));
        let unchanged = report(&object, None, &settled(), FailureAnnouncement::Made, time());
        assert_eq!((unchanged.before == unchanged.after, unchanged.events.len()), (true, 0));
    }

    #[test]
    fn a_failure_keeps_the_inventory_and_is_one_event_and_so_is_its_end() {
        let first = report(
            &generator(&json!({})),
            Some(&made("sha256:1")),
            &settled(),
            FailureAnnouncement::Made,
            time(),
        );
        let text = "get sources failed: source 'Bucket/apps/b' is not ready".to_owned();
        let failed = RunOutcome::Failed(SOURCE_FETCH_FAILED, text, NextRunTrigger::at(time()));
        let second = report(
            &generator(&json!(first.after)),
            None,
            &failed,
            FailureAnnouncement::Made,
            time(),
        );
        check(
            &second,
            &expect![[r#"
                Reconciling=True ProgressingWithRetry: get sources failed: source 'Bucket/apps/b' is not ready
                Ready=False SourceFetchFailed: get sources failed: source 'Bucket/apps/b' is not ready
                inventory [{"digest":"sha256:1","filename":"1.tar.gz","name":"one","namespace":"apps"}]
                observedSourcesDigest "sha256:9"
                lastHandledReconcileAt "now"
                event Error SourceFetchFailed: get sources failed: source 'Bucket/apps/b' is not ready"#]],
        );
        let object = generator(&json!(second.after));
        assert_eq!(
            report(&object, None, &failed, FailureAnnouncement::Made, time()).events.len(),
            0
        );
        // The process that reported it may have ended before it sent the event.
        let sent_again = report(&object, None, &failed, FailureAnnouncement::Due, time()).events;
        assert_eq!(sent_again, second.events);
        let recovered =
            report(&object, Some(&made("sha256:1")), &settled(), FailureAnnouncement::Made, time())
                .events;
        let wanted = "reconciliation succeeded, generated 1 artifact(s)";
        assert_eq!(recovered.first().map(|event| event.message.as_str()), Some(wanted));
    }

    #[test]
    fn entries_of_other_namespaces_do_not_count() {
        let entry = |namespace: &str| json!({"digest": "sha256:1", "filename": "1.tar.gz", "name": "one", "namespace": namespace});
        let object = generator(&json!({"inventory": [entry("apps"), entry("other")]}));
        let listed: Vec<String> = inventory(&object).into_iter().map(|it| it.namespace).collect();
        assert_eq!(listed, ["apps"]);
    }
}
