//! What a person sees in `kubectl describe`, and when a run finds nothing new.

use std::collections::BTreeMap;

use crds::Artifact;
use crds::source::OCIRepositoryStatus;
use expect_test::expect;
use reconcile::{NextRunTrigger, Time};
use serde_json::{Value, json};

use super::*;
use crate::source::report::{SourceReport, report};
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_runtime::object_status::conditions_of;

fn repository(status: impl serde::Serialize) -> OCIRepository {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "OCIRepository",
        "metadata": {"name": "app", "namespace": "shop", "generation": 2},
        "spec": {"interval": "1m", "url": "oci://example.com/app", "ignore": "*.md",
            "layerSelector": {"mediaType": "m", "operation": "extract"}},
        "status": status,
    }))
    .unwrap()
}

fn stored() -> StoredArtifact<OCIRepositoryStatus> {
    let mut artifact: Artifact = serde_json::from_value(json!({
        "digest": "sha256:1", "lastUpdateTime": "2026-09-21T14:13:20Z", "path": "ocirepository/shop/app/sha256:1.tar.gz",
        "revision": "v1@sha256:1", "url": "http://a/ocirepository/shop/app/sha256:1.tar.gz",
    }))
    .unwrap();
    artifact.metadata = BTreeMap::from([("created".to_owned(), "today".to_owned())]);
    StoredArtifact::new(artifact, "stored artifact with revision".to_owned(), |_| {})
}

fn time() -> Time {
    Time::from_second(1_790_000_000).unwrap()
}

fn report_text(report: &SourceReport<OCIRepositoryStatus>) -> String {
    let mut lines: Vec<String> = conditions_of(&report.after.conditions)
        .iter()
        .map(|c| format!("{}={:?} {}: {}", c.kind, c.status, c.reason, c.message))
        .collect();
    let fields =
        ["/artifact/revision", "/artifact/metadata", "/observedIgnore", "/observedLayerSelector"];
    let after = json!(report.after);
    for field in fields {
        lines.push(format!("{field} {}", after.pointer(field).unwrap_or(&Value::Null)));
    }
    for event in &report.events {
        lines.push(format!("event {:?} {}: {}", event.severity, event.reason, event.message));
    }
    lines.join("\n")
}

fn first() -> SourceReport<OCIRepositoryStatus> {
    let text = "stored artifact for digest 'v1@sha256:1'".to_owned();
    let settled = RunOutcome::Settled(condition_reason::SUCCEEDED, text);
    report(
        &repository(json!({})),
        None,
        Some(&stored()),
        None,
        &settled,
        FailureAnnouncement::Made,
        time(),
    )
}

#[test]
fn a_new_artifact_is_ready_and_an_event() {
    expect![[r#"
        Ready=True Succeeded: stored artifact for digest 'v1@sha256:1'
        ArtifactInStorage=True Succeeded: stored artifact for digest 'v1@sha256:1'
        /artifact/revision "v1@sha256:1"
        /artifact/metadata {"created":"today"}
        /observedIgnore "*.md"
        /observedLayerSelector {"mediaType":"m","operation":"extract"}
        event Info NewArtifact: stored artifact with revision"#]]
    .assert_eq(&report_text(&first()));
}

#[test]
fn a_registry_that_refuses_leaves_the_artifact_and_says_why() {
    let text = "failed to determine artifact digest: GET https://example.com/v2/app/manifests/v1: UNAUTHORIZED: no";
    let failed = RunOutcome::Failed(
        sources::source_condition_reasons::OCI_PULL_FAILED,
        text.to_owned(),
        NextRunTrigger::at(time()),
    );
    let second = report(
        &repository(first().after),
        None,
        None,
        None,
        &failed,
        FailureAnnouncement::Made,
        time(),
    );
    expect![[r#"
        Reconciling=True ProgressingWithRetry: failed to determine artifact digest: GET https://example.com/v2/app/manifests/v1: UNAUTHORIZED: no
        Ready=False OCIArtifactPullFailed: failed to determine artifact digest: GET https://example.com/v2/app/manifests/v1: UNAUTHORIZED: no
        ArtifactInStorage=True Succeeded: stored artifact for digest 'v1@sha256:1'
        FetchFailed=True OCIArtifactPullFailed: failed to determine artifact digest: GET https://example.com/v2/app/manifests/v1: UNAUTHORIZED: no
        /artifact/revision "v1@sha256:1"
        /artifact/metadata {"created":"today"}
        /observedIgnore "*.md"
        /observedLayerSelector {"mediaType":"m","operation":"extract"}
        event Error OCIArtifactPullFailed: failed to determine artifact digest: GET https://example.com/v2/app/manifests/v1: UNAUTHORIZED: no"#]]
    .assert_eq(&report_text(&second));
}

#[test]
fn an_artifact_was_made_with_what_its_status_says() {
    let object = repository(first().after);
    let made = object.shape().unwrap();
    let resolved = || super::referenced_objects::OciRepositoryReferencedSecrets::default();
    let shape_of =
        |object: &OCIRepository| validated_spec::desired(object, resolved()).ok().unwrap().shape;
    assert_eq!(made, shape_of(&object));
    let mut other = object.clone();
    other.spec.ignore = None;
    assert_ne!(made, shape_of(&other));
    let mut other = object.clone();
    other.spec.layer_selector = None;
    assert_ne!(made, shape_of(&other));
}
