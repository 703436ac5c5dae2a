//! What a person sees in `kubectl describe`, from the outcome of a run.

use crds::Artifact;
use crds::source::BucketStatus;
use expect_test::{Expect, expect};
use reconcile::{NextRunTrigger, Time};
use sources::bucket::Error;

use super::executor::classify;
use serde_json::{Value, json};

use super::*;
use crate::source::report::{SourceReport, report};
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_runtime::object_status::conditions_of;

fn time() -> Time {
    Time::from_second(1_790_000_000).unwrap()
}

fn bucket(status: impl serde::Serialize) -> Bucket {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "Bucket",
        "metadata": {"name": "app", "namespace": "shop", "generation": 2},
        "spec": {"interval": "1m", "endpoint": "s3.example.com", "bucketName": "app", "ignore": "*.md"},
        "status": status,
    }))
    .unwrap()
}

fn stored() -> StoredArtifact<BucketStatus> {
    let artifact: Artifact = serde_json::from_value(json!({
        "digest": "sha256:1", "lastUpdateTime": "2026-09-21T14:13:20Z", "path": "bucket/shop/app/1.tar.gz",
        "revision": "sha256:1", "url": "http://a/bucket/shop/app/1.tar.gz",
    }))
    .unwrap();
    let message = "stored artifact with 2 fetched files from 'app' bucket".to_owned();
    StoredArtifact::new(artifact, message, |_| {})
}

fn settled() -> RunOutcome {
    RunOutcome::Settled(
        condition_reason::SUCCEEDED,
        "stored artifact: revision 'sha256:1'".to_owned(),
    )
}

fn check(report: &SourceReport<BucketStatus>, expected: &Expect) {
    let mut lines: Vec<String> = conditions_of(&report.after.conditions)
        .iter()
        .map(|c| format!("{}={:?} {}: {}", c.kind, c.status, c.reason, c.message))
        .collect();
    let after = json!(report.after);
    for field in ["/observedGeneration", "/artifact/revision", "/observedIgnore"] {
        lines.push(format!("{field} {}", after.pointer(field).unwrap_or(&Value::Null)));
    }
    for event in &report.events {
        lines.push(format!("event {:?} {}: {}", event.severity, event.reason, event.message));
    }
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn a_new_artifact_is_ready_and_an_event_and_a_missing_bucket_keeps_it() {
    let first = report(
        &bucket(json!({})),
        None,
        Some(&stored()),
        None,
        &settled(),
        FailureAnnouncement::Made,
        time(),
    );
    check(
        &first,
        &expect![[r#"
            Ready=True Succeeded: stored artifact: revision 'sha256:1'
            ArtifactInStorage=True Succeeded: stored artifact: revision 'sha256:1'
            /observedGeneration 2
            /artifact/revision "sha256:1"
            /observedIgnore "*.md"
            event Info NewArtifact: stored artifact with 2 fetched files from 'app' bucket"#]],
    );
    let error = Error::NoBucket { bucket: "app".to_owned(), endpoint: "s3.example.com".to_owned() };
    let outcome = match classify(&error) {
        RunOutcome::Failed(why, text, _) => {
            RunOutcome::Failed(why, text, NextRunTrigger::at(time()))
        }
        other => other,
    };
    let second =
        report(&bucket(first.after), None, None, None, &outcome, FailureAnnouncement::Made, time());
    check(
        &second,
        &expect![[r#"
            Reconciling=True ProgressingWithRetry: bucket 'app' not found at s3.example.com
            Ready=False BucketOperationFailed: bucket 'app' not found at s3.example.com
            ArtifactInStorage=True Succeeded: stored artifact: revision 'sha256:1'
            FetchFailed=True BucketOperationFailed: bucket 'app' not found at s3.example.com
            /observedGeneration 2
            /artifact/revision "sha256:1"
            /observedIgnore "*.md"
            event Error BucketOperationFailed: bucket 'app' not found at s3.example.com"#]],
    );
}

#[test]
fn a_disk_that_refuses_is_a_failure_of_the_store() {
    let outcome = classify(&Error::Disk(std::io::ErrorKind::StorageFull.into()));
    assert_eq!(failure(outcome.reason()), STORAGE_OPERATION_FAILED);
    let denied =
        Error::Denied { what: "bucket 'a'".into(), endpoint: "e".into(), code: "403".into() };
    assert_eq!(failure(classify(&denied).reason()), FETCH_FAILED);
}
