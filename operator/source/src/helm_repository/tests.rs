//! What a person sees of a HelmRepository, from the outcome of a run.

use crds::Artifact;
use crds::source::{HelmRepositoryStatus, HelmRepositoryType};
use expect_test::expect;
use reconcile::{NextRunTrigger, Time};
use serde_json::json;

use super::*;
use crate::source::report::report;
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_runtime::object_status::conditions_of;

fn object(status: impl serde::Serialize) -> HelmRepository {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
        "metadata": {"name": "app", "namespace": "shop", "generation": 2},
        "spec": {"url": "https://example.com/charts"}, "status": status,
    }))
    .unwrap()
}

#[test]
fn an_index_is_reported_as_flux_reports_it() {
    let artifact: Artifact = serde_json::from_value(json!({
        "digest": "sha256:1", "lastUpdateTime": "2026-09-21T14:13:20Z",
        "path": "helmrepository/shop/app/index-1.yaml", "revision": "sha256:1",
        "url": "http://a/helmrepository/shop/app/index-1.yaml",
    }))
    .unwrap();
    let message = "stored fetched index of size 1kB from 'https://example.com/charts/'".to_owned();
    let stored = StoredArtifact::new(artifact, message, |status: &mut HelmRepositoryStatus| {
        status.url = Some("http://a/index.yaml".to_owned());
    });
    let text = "stored artifact: revision 'sha256:1'".to_owned();
    let settled = RunOutcome::Settled(condition_reason::SUCCEEDED, text);
    let time = Time::from_second(1_790_000_000).unwrap();
    let first = report(
        &object(json!({})),
        None,
        Some(&stored),
        None,
        &settled,
        FailureAnnouncement::Made,
        time,
    );
    assert_eq!(first.after.url.as_deref(), Some("http://a/index.yaml"));
    assert_eq!(first.events[0].reason, "NewArtifact");
    let again = report(
        &object(first.after.clone()),
        None,
        None,
        None,
        &settled,
        FailureAnnouncement::Made,
        time,
    );
    assert_eq!((again.after, again.events), (first.after.clone(), Vec::new()));

    let text = "failed to fetch Helm repository index: cannot fetch".to_owned();
    let failed = RunOutcome::Failed(condition_reason::FAILED, text, NextRunTrigger::at(time));
    let second =
        report(&object(first.after), None, None, None, &failed, FailureAnnouncement::Made, time);
    let lines: Vec<String> = conditions_of(&second.after.conditions)
        .iter()
        .map(|c| format!("{}={:?} {}: {}", c.kind, c.status, c.reason, c.message))
        .collect();
    expect![[r#"
        Reconciling=True ProgressingWithRetry: failed to fetch Helm repository index: cannot fetch
        Ready=False Failed: failed to fetch Helm repository index: cannot fetch
        ArtifactInStorage=True Succeeded: stored artifact: revision 'sha256:1'
        FetchFailed=True Failed: failed to fetch Helm repository index: cannot fetch"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn a_registry_is_nothing_but_an_address() {
    let mut registry = object(json!({}));
    assert!(!registry.is_static());
    registry.spec.type_ = Some(HelmRepositoryType::Oci);
    assert!(registry.is_static());
    assert_eq!(registry.interval(), Some("1m"));
}
