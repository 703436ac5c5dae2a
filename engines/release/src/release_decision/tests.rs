//! Every state with every setting that matters to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::release_snapshot::{SnapshotAction, TestHookStatus};
use crate::release_spec::{FailureStrategy, RemediationSettings};
use crate::revisions::{BrokenReleaseRevision, ReleaseRevision};
use crate::simulated_cluster::{desired, record};
use crate::status::{ReleaseCondition, UPGRADE_FAILED};

/// Revisions of chart 1.0.0 with values `a`, all known to the status.
fn known(lives: &[(i64, &str)]) -> (HelmReleaseStatusFields, ReleaseRevisions) {
    let records: Vec<ReleaseRecord> =
        lives.iter().map(|(version, life)| record(*version, "1.0.0", "a", life)).collect();
    let history = records
        .iter()
        .map(|record| ReleaseSnapshot::of(record, Some(SnapshotAction::Install), "").unwrap())
        .rev()
        .collect();
    let status = HelmReleaseStatusFields {
        history,
        storage_namespace: "apps".to_owned(),
        observed_generation: 1,
        ..HelmReleaseStatusFields::default()
    };
    let known = records.into_iter();
    let known = known.map(|record| ReleaseRevision { record: Arc::new(record), journal: None });
    (status, ReleaseRevisions::new(known.collect(), Vec::new()))
}

fn state_text(
    desired: &ReleaseDesiredState,
    seen: &(HelmReleaseStatusFields, ReleaseRevisions),
    drift: Option<&ReleaseDrift>,
) -> String {
    match state(desired, &seen.0, &seen.1, drift) {
        Ok(state) => state.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

fn done(
    desired: &ReleaseDesiredState,
    seen: &(HelmReleaseStatusFields, ReleaseRevisions),
    forced: bool,
) -> String {
    let state = state(desired, &seen.0, &seen.1, Some(&ReleaseDrift::None)).unwrap();
    let decision = decide(&state, desired, &seen.0, &seen.1, forced).unwrap();
    match decision {
        ReleaseDecision::Begin(OperationKind::UninstallRemediation, None) => "undo".into(),
        ReleaseDecision::Begin(action, None) => action.as_str().to_owned(),
        ReleaseDecision::Begin(action, Some(version)) => {
            format!("{} to v{version}", action.as_str())
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn a_state_follows_from_the_last_record() {
    let wanted = desired("1.0.0", "a");
    let is = |lives: &[(i64, &str)]| state_text(&wanted, &known(lives), None);
    assert_eq!(is(&[]), "Absent: no release in storage for object");
    assert_eq!(is(&[(1, "deployed")]), "InSync");
    assert_eq!(is(&[(1, "deployed"), (2, "failed")]), "Failed");
    assert_eq!(is(&[(1, "uninstalled")]), "Absent: found uninstalled release in storage");
    for life in ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"] {
        assert_eq!(is(&[(1, life)]), format!("Locked: release with status '{life}'"));
    }
    let text = "OutOfSync: the release that superseded the last one is gone";
    assert_eq!(is(&[(1, "superseded")]), text);
    for life in ["unknown", "odd"] {
        let text = format!("error: unable to determine state for release with status '{life}'");
        assert_eq!(is(&[(1, life)]), text);
    }
}

#[test]
fn a_release_that_the_status_does_not_know_is_unmanaged() {
    let wanted = desired("1.0.0", "a");
    let forgetful = |life: &str| {
        let (status, revisions) = known(&[(1, life)]);
        (HelmReleaseStatusFields { history: Vec::new(), ..status }, revisions)
    };
    let text = "Unmanaged: found existing release in storage";
    assert_eq!(state_text(&wanted, &forgetful("deployed"), None), text);
    assert_eq!(state_text(&wanted, &forgetful("failed"), None), text);
    let text = "Absent: found uninstalled release in storage";
    assert_eq!(state_text(&wanted, &forgetful("uninstalled"), None), text);
    let mut seen = known(&[(1, "deployed")]);
    seen.1 = known(&[(1, "deployed"), (2, "deployed")]).1;
    let text = "Unmanaged: release not observed to be made for object";
    assert_eq!(state_text(&wanted, &seen, None), text);
    seen.0.history[0].api_version.clear();
    assert_eq!(
        state_text(&wanted, &seen, None),
        "InSync",
        "an older controller's digest is not checked"
    );
    let mut seen = known(&[(1, "deployed")]);
    seen.0.history[0].digest = "sha256:0".to_owned();
    assert_eq!(state_text(&wanted, &seen, None), "Unmanaged: release digest verification error");
}

#[test]
fn a_secret_that_cannot_be_read_is_named_and_nothing_is_done() {
    let (status, revisions) = known(&[(1, "deployed")]);
    let broken = BrokenReleaseRevision {
        secret: "sh.helm.release.v1.web.v2".to_owned(),
        version: 2,
        problem: "its key `release` is not base64".to_owned(),
    };
    let revisions = ReleaseRevisions::new(revisions.all().to_vec(), vec![broken]);
    let text = state_text(&desired("1.0.0", "a"), &(status, revisions), None);
    assert!(text.contains("Secret sh.helm.release.v1.web.v2 cannot be decoded: its key"), "{text}");
}

#[test]
fn what_is_deployed_is_compared_with_the_desired_state() {
    let seen = known(&[(1, "deployed")]);
    let is = |wanted: &ReleaseDesiredState| state_text(wanted, &seen, None);
    assert_eq!(is(&desired("2.0.0", "a")), "OutOfSync: release chart changed");
    assert_eq!(is(&desired("1.0.0", "b")), "OutOfSync: release config values changed");
    let mut wanted = desired("1.0.0", "a");
    wanted.spec.post_renderers_digest = "sha256:0".to_owned();
    assert_eq!(is(&wanted), "InSync", "only a new generation is compared");
    let (mut failed, revisions) = seen.clone();
    failed.released = Some(ReleaseCondition {
        status: Truth::False,
        reason: UPGRADE_FAILED,
        text: String::new(),
        generation: wanted.generation,
    });
    assert_eq!(
        state_text(&wanted, &(failed, revisions), None),
        "OutOfSync: postrenderers digest has changed",
        "what failed was not done"
    );
    wanted.generation = 2;
    assert_eq!(is(&wanted), "OutOfSync: postrenderers digest has changed");
    wanted.spec.post_renderers_digest.clear();
    wanted.spec.common_metadata_digest = "sha256:0".to_owned();
    assert_eq!(is(&wanted), "OutOfSync: common metadata digest has changed");
}

fn with_tests(
    phases: &[&str],
    action: Option<OperationKind>,
) -> (HelmReleaseStatusFields, ReleaseRevisions) {
    let mut seen = known(&[(1, "deployed")]);
    let hooks = phases.iter().enumerate().map(|(number, phase)| {
        let hook = TestHookStatus { phase: (*phase).to_owned(), ..TestHookStatus::default() };
        (format!("t{number}"), Some(hook))
    });
    seen.0.history[0].test_hooks = Some(hooks.collect::<BTreeMap<_, _>>());
    seen.0.last_attempted_action = action;
    seen
}

#[test]
fn tests_are_run_once_and_their_failure_is_one_of_the_release_unless_ignored() {
    let mut wanted = desired("1.0.0", "a");
    wanted.spec.test.enable = true;
    let install = Some(OperationKind::Install);
    assert_eq!(state_text(&wanted, &known(&[(1, "deployed")]), None), "Untested");
    assert_eq!(state_text(&wanted, &with_tests(&[], install), None), "InSync");
    assert_eq!(state_text(&wanted, &with_tests(&["Succeeded"], install), None), "InSync");
    assert_eq!(state_text(&wanted, &with_tests(&["Succeeded", ""], install), None), "Untested");
    let failed = "Failed: release has test in failed phase";
    assert_eq!(state_text(&wanted, &with_tests(&["Failed", ""], install), None), failed);
    assert_eq!(state_text(&wanted, &with_tests(&["Failed"], None), None), "InSync");
    wanted.spec.test.ignore_failures = true;
    assert_eq!(state_text(&wanted, &with_tests(&["Failed"], install), None), "InSync");
    wanted.spec.install.remediation.ignore_test_failures = Some(false);
    assert_eq!(state_text(&wanted, &with_tests(&["Failed"], install), None), failed);
}

#[test]
fn drift_is_detected_only_where_it_is_asked_for() {
    let mut wanted = desired("1.0.0", "a");
    let seen = known(&[(1, "deployed")]);
    let found = ReleaseDrift::Found { digest: "d".to_owned(), text: "t".to_owned() };
    assert_eq!(state_text(&wanted, &seen, Some(&found)), "InSync");
    for mode in [DriftMode::Warn, DriftMode::Enabled] {
        wanted.spec.drift = mode;
        assert_eq!(state_text(&wanted, &seen, None), "Unobserved");
        assert_eq!(state_text(&wanted, &seen, Some(&ReleaseDrift::None)), "InSync");
        assert_eq!(state_text(&wanted, &seen, Some(&found)), "Drifted");
        let error = ReleaseDrift::Error("no".to_owned());
        let text = "error: unable to determine cluster state: no";
        assert_eq!(state_text(&wanted, &seen, Some(&error)), text);
    }
}

#[test]
fn an_action_that_failed_too_often_is_not_begun_unless_forced() {
    let install = |retries, failures, forced| {
        let mut wanted = desired("1.0.0", "a");
        wanted.spec.install.remediation.retries = retries;
        let mut seen = known(&[]);
        seen.0.install_failures = failures;
        done(&wanted, &seen, forced)
    };
    let upgrade = |retries, failures, forced| {
        let mut wanted = desired("2.0.0", "a");
        wanted.spec.upgrade.remediation.retries = retries;
        let mut seen = known(&[(1, "deployed")]);
        seen.0.upgrade_failures = failures;
        done(&wanted, &seen, forced)
    };
    for (retries, failures, forced, is_begun) in [
        (0, 0, false, true),
        (0, 1, false, false),
        (0, 1, true, true),
        (2, 2, false, true),
        (2, 3, false, false),
        (-1, 1000, false, true),
    ] {
        let either = |action: &'static str| if is_begun { action } else { "Exhausted" };
        assert_eq!(install(retries, failures, forced), either("install"), "{retries} {failures}");
        assert_eq!(upgrade(retries, failures, forced), either("upgrade"), "{retries} {failures}");
    }
}

#[test]
fn what_is_in_sync_is_left_alone_unless_forced() {
    let seen = known(&[(1, "deployed")]);
    assert_eq!(done(&desired("1.0.0", "a"), &seen, false), "Nothing");
    assert_eq!(done(&desired("1.0.0", "a"), &seen, true), "upgrade");
}

/// A failed upgrade, or installation if there is one revision only.
fn failed(
    lives: &[(i64, &str)],
    action: Option<OperationKind>,
    failures: i64,
) -> (HelmReleaseStatusFields, ReleaseRevisions) {
    let mut seen = known(lives);
    seen.0.last_attempted_action = action;
    match action {
        Some(OperationKind::Install) => seen.0.install_failures = failures,
        _ => seen.0.upgrade_failures = failures,
    }
    seen
}

#[test]
fn a_failed_installation_is_undone_by_removal_as_often_as_it_is_retried() {
    let mut wanted = desired("1.0.0", "a");
    let seen = |failures| failed(&[(1, "failed")], Some(OperationKind::Install), failures);
    assert_eq!(done(&wanted, &seen(0), false), "upgrade", "something else was wished for since");
    assert_eq!(done(&wanted, &seen(1), false), "Exhausted");
    assert_eq!(done(&wanted, &seen(1), true), "upgrade");
    wanted.spec.install.remediation.retries = 1;
    assert_eq!(done(&wanted, &seen(1), false), "undo");
    assert_eq!(done(&wanted, &seen(2), false), "Exhausted");
    wanted.spec.install.remediation.remediate_last_failure = Some(true);
    assert_eq!(done(&wanted, &seen(2), false), "undo");
    wanted.spec.install.remediation.strategy = RemediationStrategy::Rollback;
    assert_eq!(done(&wanted, &seen(2), false), "undo", "there is nothing to roll back to");
    wanted.spec.install.strategy = FailureStrategy::RetryOnFailure(Duration::from_secs(60));
    assert_eq!(done(&wanted, &seen(2), false), "upgrade");
}

#[test]
fn a_failed_upgrade_is_rolled_back_or_removed() {
    let mut wanted = desired("1.0.0", "a");
    let lives = [(1, "superseded"), (2, "deployed"), (3, "failed")];
    let seen = |failures| failed(&lives, Some(OperationKind::Upgrade), failures);
    assert_eq!(done(&wanted, &seen(1), false), "Exhausted");
    wanted.spec.upgrade.remediation.retries = 1;
    assert_eq!(done(&wanted, &seen(1), false), "rollback to v2");
    assert_eq!(done(&wanted, &seen(2), false), "rollback to v2", "the last failure, too");
    wanted.spec.upgrade.remediation.remediate_last_failure = Some(false);
    assert_eq!(done(&wanted, &seen(2), false), "Exhausted");
    wanted.spec.upgrade.remediation = RemediationSettings {
        retries: 0,
        remediate_last_failure: Some(true),
        ..RemediationSettings::default()
    };
    assert_eq!(done(&wanted, &seen(1), false), "rollback to v2");
    wanted.spec.upgrade.remediation.strategy = RemediationStrategy::Uninstall;
    assert_eq!(done(&wanted, &seen(1), false), "undo");
    assert_eq!(done(&wanted, &failed(&lives, None, 1), false), "upgrade");
}

#[test]
fn a_rollback_needs_a_revision_that_is_there_and_is_what_it_was() {
    let mut wanted = desired("1.0.0", "a");
    wanted.spec.upgrade.remediation.retries = 5;
    let upgrade = Some(OperationKind::Upgrade);
    let none = failed(&[(1, "failed"), (2, "failed")], upgrade, 1);
    assert_eq!(done(&wanted, &none, false), "NoRollbackTarget");
    let lives = [(1, "deployed"), (2, "failed")];
    let mut gone = failed(&lives, upgrade, 1);
    gone.1 = ReleaseRevisions::new(gone.1.all()[1..].to_vec(), Vec::new());
    assert_eq!(done(&wanted, &gone, false), "upgrade");
    let mut changed = failed(&lives, upgrade, 1);
    changed.0.history[1].digest = changed.0.history[0].digest.clone();
    assert_eq!(done(&wanted, &changed, false), "upgrade");
    let mut tested = failed(&lives, upgrade, 1);
    let hook = TestHookStatus { phase: "Failed".to_owned(), ..TestHookStatus::default() };
    tested.0.history[1].test_hooks = Some(BTreeMap::from([("t".to_owned(), Some(hook))]));
    assert_eq!(done(&wanted, &tested, false), "NoRollbackTarget");
    wanted.spec.upgrade.remediation.ignore_test_failures = Some(true);
    assert_eq!(done(&wanted, &tested, false), "rollback to v1");
}
