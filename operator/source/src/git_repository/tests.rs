//! What a person sees in `kubectl describe`, from the outcome of a run.

use crds::Artifact;
use crds::source::GitRepositoryStatus;
use expect_test::{Expect, expect};
use reconcile::{NextRunTrigger, Time, condition_reason};
use serde_json::{Value, json};

use super::*;
use crate::source::artifact_verification_record::VerificationRecord;
use crate::source::report::{SourceReport, report};
use windlass_cluster::announced_failures::FailureAnnouncement;
use windlass_runtime::object_status::conditions_of;

fn time() -> Time {
    Time::from_second(1_790_000_000).unwrap()
}

fn repository(status: impl serde::Serialize) -> GitRepository {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": {"name": "app", "namespace": "shop", "generation": 2},
        "spec": {"interval": "1m", "url": "https://example.com/app.git", "ignore": "*.md"},
        "status": status,
    }))
    .unwrap()
}

fn stored() -> StoredArtifact<GitRepositoryStatus> {
    let artifact: Artifact = serde_json::from_value(json!({
        "digest": "sha256:1", "lastUpdateTime": "2026-09-21T14:13:20Z", "path": "gitrepository/shop/app/1.tar.gz",
        "revision": "main@sha1:1", "url": "http://a/gitrepository/shop/app/1.tar.gz",
    }))
    .unwrap();
    StoredArtifact::new(artifact, "stored artifact for commit 'Greet politely'".to_owned(), |_| {})
}

fn settled() -> RunOutcome {
    RunOutcome::Settled(
        condition_reason::SUCCEEDED,
        "stored artifact for revision 'main@sha1:1'".to_owned(),
    )
}

fn check(report: &SourceReport<GitRepositoryStatus>, expected: &Expect) {
    let mut lines: Vec<String> = conditions_of(&report.after.conditions)
        .iter()
        .map(|c| format!("{}={:?} {}: {}", c.kind, c.status, c.reason, c.message))
        .collect();
    let after = json!(report.after);
    for field in ["/observedGeneration", "/artifact/revision", "/artifact/url", "/observedIgnore"] {
        lines.push(format!("{field} {}", after.pointer(field).unwrap_or(&Value::Null)));
    }
    for event in &report.events {
        lines.push(format!("event {:?} {}: {}", event.severity, event.reason, event.message));
    }
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn a_new_artifact_is_ready_and_an_event() {
    let report = report(
        &repository(json!({})),
        None,
        Some(&stored()),
        None,
        &settled(),
        FailureAnnouncement::Made,
        time(),
    );
    check(
        &report,
        &expect![[r#"
            Ready=True Succeeded: stored artifact for revision 'main@sha1:1'
            ArtifactInStorage=True Succeeded: stored artifact for revision 'main@sha1:1'
            /observedGeneration 2
            /artifact/revision "main@sha1:1"
            /artifact/url "http://a/gitrepository/shop/app/1.tar.gz"
            /observedIgnore "*.md"
            event Info NewArtifact: stored artifact for commit 'Greet politely'"#]],
    );
}

#[test]
fn a_run_that_finds_nothing_new_writes_nothing_but_a_new_address() {
    let first = report(
        &repository(json!({})),
        None,
        Some(&stored()),
        None,
        &settled(),
        FailureAnnouncement::Made,
        time(),
    );
    let object = repository(first.after);
    let same = Some("http://a/gitrepository/shop/app/1.tar.gz".to_owned());
    let second = report(&object, None, None, same, &settled(), FailureAnnouncement::Made, time());
    assert_eq!(second.before, second.after);
    assert_eq!(second.events, Vec::new());
    let moved = report(
        &object,
        None,
        None,
        Some("http://b/x".to_owned()),
        &settled(),
        FailureAnnouncement::Made,
        time(),
    );
    assert_eq!(json!(moved.after)["artifact"]["url"], "http://b/x");
}

#[test]
fn a_failed_fetch_keeps_the_artifact_and_says_why() {
    let first = report(
        &repository(json!({})),
        None,
        Some(&stored()),
        None,
        &settled(),
        FailureAnnouncement::Made,
        time(),
    );
    let failed = RunOutcome::Failed(
        sources::source_condition_reasons::GIT_OPERATION_FAILED,
        "example.com cannot be reached".to_owned(),
        NextRunTrigger::at(time()),
    );
    let second = report(
        &repository(first.after),
        None,
        None,
        None,
        &failed,
        FailureAnnouncement::Made,
        time(),
    );
    check(
        &second,
        &expect![[r#"
            Reconciling=True ProgressingWithRetry: example.com cannot be reached
            Ready=False GitOperationFailed: example.com cannot be reached
            ArtifactInStorage=True Succeeded: stored artifact for revision 'main@sha1:1'
            FetchFailed=True GitOperationFailed: example.com cannot be reached
            /observedGeneration 2
            /artifact/revision "main@sha1:1"
            /artifact/url "http://a/gitrepository/shop/app/1.tar.gz"
            /observedIgnore "*.md"
            event Error GitOperationFailed: example.com cannot be reached"#]],
    );
    let again = report(
        &repository(second.after),
        None,
        None,
        None,
        &failed,
        FailureAnnouncement::Made,
        time(),
    );
    assert_eq!(again.events, Vec::new(), "the same failure is told once");
    // The process that reported it may have ended before it sent the event.
    let object = repository(json!(again.after));
    let due = FailureAnnouncement::Due;
    assert_eq!(report(&object, None, None, None, &failed, due, time()).events, second.events);
}

#[test]
fn what_is_included_goes_into_the_status_and_waiting_for_it_is_no_failure() {
    let StoredArtifact { artifact, message, .. } = stored();
    let included = vec![artifact.clone()];
    let with = StoredArtifact::new(artifact, message, move |status: &mut GitRepositoryStatus| {
        status.included_artifacts.clone_from(&included);
    });
    let mut object = repository(json!({}));
    object.spec.recurse_submodules = true;
    object.spec.sparse_checkout = vec!["app".to_owned()];
    object.spec.include = serde_json::from_value(json!([{"repository": {"name": "lib"}}])).unwrap();
    let first =
        report(&object, None, Some(&with), None, &settled(), FailureAnnouncement::Made, time());
    let after = json!(first.after);
    assert_eq!(after["includedArtifacts"][0]["revision"], "main@sha1:1");
    assert_eq!(after["observedInclude"], json!([{"repository": {"name": "lib"}}]));
    assert_eq!(after["observedSparseCheckout"], json!(["app"]));
    assert_eq!(after["observedRecurseSubmodules"], true);

    let text = "no artifact available for include 'lib'".to_owned();
    let blocked = RunOutcome::Blocked(NO_ARTIFACT, text, NextRunTrigger::at(time()));
    check(
        &report(
            &repository(first.after),
            None,
            None,
            None,
            &blocked,
            FailureAnnouncement::Made,
            time(),
        ),
        &expect![[r#"
        Reconciling=True ProgressingWithRetry: no artifact available for include 'lib'
        Ready=False NoArtifact: no artifact available for include 'lib'
        ArtifactInStorage=True Succeeded: stored artifact for revision 'main@sha1:1'
        IncludeUnavailable=True NoArtifact: no artifact available for include 'lib'
        /observedGeneration 2
        /artifact/revision "main@sha1:1"
        /artifact/url "http://a/gitrepository/shop/app/1.tar.gz"
        /observedIgnore "*.md"
        event Info NoArtifact: no artifact available for include 'lib'"#]],
    );
}

#[test]
fn a_signature_is_reported_and_goes_with_spec_verify() {
    let signed = StoredArtifact {
        verified: Some(VerificationRecord {
            how: json!({"mode": "HEAD"}),
            text: "verified".to_owned(),
        }),
        ..stored()
    };
    let wanting = |status: Value| {
        let mut object = repository(status);
        object.spec.verify = Some(crds::source::GitRepositoryVerification::default());
        object
    };
    let of = |report: &SourceReport<GitRepositoryStatus>| {
        let all = conditions_of(&report.after.conditions);
        let found = all.iter().find(|it| it.kind == SOURCE_VERIFIED);
        found.map(|it| format!("{:?} {}: {}", it.status, it.reason, it.message))
    };
    let first = report(
        &wanting(json!({})),
        None,
        Some(&signed),
        None,
        &settled(),
        FailureAnnouncement::Made,
        time(),
    );
    assert_eq!(of(&first).as_deref(), Some("True Succeeded: verified"));
    let object = wanting(json!(first.after));
    assert_eq!(SourceKind::unverified(&object), None);

    let why = sources::source_condition_reasons::INVALID_COMMIT_SIGNATURE;
    let refused =
        RunOutcome::Failed(why, "signed by another".to_owned(), NextRunTrigger::at(time()));
    let second = report(&object, None, None, None, &refused, FailureAnnouncement::Made, time());
    assert_eq!(of(&second).as_deref(), Some("False InvalidCommitSignature: signed by another"));
    let object = wanting(json!(second.after));
    assert_eq!(SourceKind::unverified(&object).as_deref(), Some("signed by another"));

    // The spec does not ask for verification any more, so nothing is reported.
    let third = report(
        &repository(json!(first.after)),
        None,
        None,
        None,
        &settled(),
        FailureAnnouncement::Made,
        time(),
    );
    assert_eq!(of(&third), None);
    let object = repository(json!(third.after));
    assert_eq!(SourceKind::unverified(&object).as_deref(), Some("it does not ask for signatures"));
}
