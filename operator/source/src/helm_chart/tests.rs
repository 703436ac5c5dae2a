//! What a person sees of a HelmChart, from the outcome of a run.

use crds::Artifact;
use crds::source::HelmChartStatus;
use expect_test::expect;
use reconcile::{NextRunTrigger, Time};
use serde_json::json;
use sources::source_condition_reasons::{CHART_PULL_SUCCEEDED, NO_SOURCE_ARTIFACT};

use super::*;
use crate::source::report::{SourceReport, report};
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_runtime::object_status::conditions_of;

fn object(status: impl serde::Serialize) -> HelmChart {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
        "metadata": {"name": "app", "namespace": "shop", "generation": 2},
        "spec": {"chart": "app", "interval": "1m", "sourceRef": {"kind": "HelmRepository", "name": "x"}},
        "status": status,
    }))
    .unwrap()
}

fn lines(report: &SourceReport<HelmChartStatus>) -> String {
    let conditions = conditions_of(&report.after.conditions);
    let conditions =
        conditions.iter().map(|c| format!("{}={:?} {}: {}", c.kind, c.status, c.reason, c.message));
    let events = report
        .events
        .iter()
        .map(|it| format!("event {:?} {}: {}", it.severity, it.reason, it.message));
    conditions.chain(events).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_chart_is_reported_as_flux_reports_it() {
    let artifact: Artifact = serde_json::from_value(json!({
        "digest": "sha256:1", "lastUpdateTime": "2026-09-21T14:13:20Z",
        "path": "helmchart/shop/app/app-1.0.0.tgz", "revision": "1.0.0",
        "url": "http://a/helmchart/shop/app/app-1.0.0.tgz",
    }))
    .unwrap();
    let message = "pulled 'app' chart with version '1.0.0'".to_owned();
    let stored = StoredArtifact::new(artifact, message.clone(), |status: &mut HelmChartStatus| {
        status.observed_chart_name = Some("app".to_owned());
    });
    let settled = RunOutcome::Settled(CHART_PULL_SUCCEEDED, message);
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
    expect![[r#"
        Ready=True ChartPullSucceeded: pulled 'app' chart with version '1.0.0'
        ArtifactInStorage=True ChartPullSucceeded: pulled 'app' chart with version '1.0.0'
        event Info ChartPullSucceeded: pulled 'app' chart with version '1.0.0'"#]]
    .assert_eq(&lines(&first));
    assert_eq!(first.after.observed_chart_name.as_deref(), Some("app"));

    for (outcome, condition) in [
        (
            RunOutcome::Stalled(VALUES_FILES_ERROR, "values files merge error: x".to_owned()),
            "BuildFailed",
        ),
        (
            RunOutcome::Failed(DEPENDENCY_BUILD_ERROR, "x".to_owned(), NextRunTrigger::at(time)),
            "BuildFailed",
        ),
        (
            RunOutcome::Blocked(NO_SOURCE_ARTIFACT, "x".to_owned(), NextRunTrigger::at(time)),
            "FetchFailed",
        ),
        (
            RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, "x".to_owned(), NextRunTrigger::at(time)),
            "StorageOperationFailed",
        ),
    ] {
        let second = report(
            &object(first.after.clone()),
            None,
            None,
            None,
            &outcome,
            FailureAnnouncement::Made,
            time,
        );
        let found = conditions_of(&second.after.conditions).iter().any(|c| c.kind == condition);
        assert!(found, "{condition}: {}", lines(&second));
        let kept =
            conditions_of(&second.after.conditions).iter().any(|c| c.kind == "ArtifactInStorage");
        assert!(kept, "the artifact stays");
    }
}
