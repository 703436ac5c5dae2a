//! Whole lives of releases, on a cluster in memory: the order of the steps, the status after them, and that a crash at
//! any step does not change the result.

mod deletions;
mod foreign_releases;
mod leftover_records;
mod lifecycles;
mod quarantines;
mod removals;
mod rollbacks;
mod windows;

use std::time::Duration;

use expect_test::{Expect, expect};
use reconcile::RunOutcome;

use super::*;
use crate::record::HookRecord;
use crate::release_spec::{FailureStrategy, RemediationSettings, RemediationStrategy};
use crate::revisions::BrokenReleaseRevision;
use crate::simulated_cluster::{SimulatedCluster, SimulatedRunEnd, desired, hook, record};

const SECOND: Duration = Duration::from_secs(1);

fn text(outcome: &RunOutcome) -> String {
    let word = match outcome {
        RunOutcome::Settled(..) => "settled",
        RunOutcome::Running(..) => "running",
        RunOutcome::Blocked(..) => "blocked",
        RunOutcome::Failed(..) => "failed",
        RunOutcome::Stalled(..) => "stalled",
    };
    format!("{word} {}: {}", outcome.reason(), outcome.text())
}

/// What was done since the last time, where it ended, and what there is.
fn transcript(cluster: &mut SimulatedCluster, outcome: &RunOutcome) -> String {
    let log = std::mem::take(&mut cluster.log).join("\n");
    let events = std::mem::take(&mut cluster.events).join("\n! ");
    let status = &cluster.status;
    let counts = [status.failures, status.install_failures, status.upgrade_failures];
    let lives = cluster.lives();
    format!("{log}\n! {events}\n= {}\n= {lives}\n= failures {counts:?}\n", text(outcome))
}

fn check(cluster: &mut SimulatedCluster, wanted: &Expect) {
    let outcome = cluster.settle();
    wanted.assert_eq(&transcript(cluster, &outcome));
}

fn hooks() -> Vec<HookRecord> {
    vec![
        hook("pre", &["pre-install", "pre-upgrade"], &["hook-succeeded", "hook-failed"]),
        hook("post", &["post-install", "post-upgrade"], &[]),
        hook("t", &["test"], &[]),
    ]
}

#[test]
fn a_release_is_installed_with_its_hooks_and_then_left_alone() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = hooks();
    check(
        &mut cluster,
        &expect![[r#"
        Running 'install' action with timeout of 5m0s
        prepare install v1
        open v1
        record: hook 0 runs
        run hook pre
        record: hook 0 succeeded
        delete hook pre (hook-succeeded)
        apply v1
        record: hook 1 runs
        run hook post
        record: hook 1 succeeded, record: deployed
        ! InstallSucceeded Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        = settled InstallSucceeded: Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        = v1 deployed (Install complete)
        = failures [0, 0, 0]
    "#]],
    );
    cluster.run();
    assert_eq!(cluster.log, Vec::<String>::new());
}

#[test]
fn a_new_version_is_an_upgrade_and_is_tested() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = hooks();
    cluster.settle();
    cluster.log.clear();
    cluster.events.clear();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.test.enable = true;
    check(
        &mut cluster,
        &expect![[r#"
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v2
        open v2
        record: hook 0 runs
        run hook pre
        record: hook 0 succeeded
        delete hook pre (hook-succeeded)
        apply v2 over v1
        delete hook post (before-hook-creation)
        record: hook 1 runs
        run hook post
        record: hook 1 succeeded, record: deployed
        Running 'test' action with timeout of 5m0s
        record: hook 2 runs
        run hook t
        record: hook 2 succeeded
        ! UpgradeSucceeded Helm upgrade succeeded for release apps/web.v2 with chart c@2.0.0
        ! TestSucceeded Helm test succeeded for release apps/web.v2 with chart c@2.0.0: 1 test hook completed successfully
        = settled TestSucceeded: Helm test succeeded for release apps/web.v2 with chart c@2.0.0: 1 test hook completed successfully
        = v1 superseded (Install complete); v2 deployed (Upgrade complete)
        = failures [0, 0, 0]
    "#]],
    );
}

#[test]
fn without_retries_a_failed_installation_stays_and_is_reported() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = hooks();
    cluster.fails("run post");
    check(
        &mut cluster,
        &expect![[r#"
            Running 'install' action with timeout of 5m0s
            prepare install v1
            open v1
            record: hook 0 runs
            run hook pre
            record: hook 0 succeeded
            delete hook pre (hook-succeeded)
            apply v1
            record: hook 1 runs
            run hook post
            record: hook 1 failed, record: failed
            ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: failed post-install: Job post failed
            = stalled RetriesExceeded: Failed to install after 1 attempt(s): Helm install failed for release apps/web with chart c@1.0.0: failed post-install: Job post failed
            = v1 failed (Release "web" failed: failed post-install: Job post failed)
            = failures [1, 1, 0]
        "#]],
    );
    // Another spec is another attempt.
    cluster.faults.clear();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("1.0.0", "b") };
    check(
        &mut cluster,
        &expect![[r#"
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v2
        open v2
        record: hook 0 runs
        run hook pre
        record: hook 0 succeeded
        delete hook pre (hook-succeeded)
        apply v2 over v1
        delete hook post (before-hook-creation)
        record: hook 1 runs
        run hook post
        record: hook 1 succeeded, record: deployed
        ! UpgradeSucceeded Helm upgrade succeeded for release apps/web.v2 with chart c@1.0.0
        = settled UpgradeSucceeded: Helm upgrade succeeded for release apps/web.v2 with chart c@1.0.0
        = v1 superseded (Release "web" failed: failed post-install: Job post failed); v2 deployed (Upgrade complete)
        = failures [0, 0, 0]
    "#]],
    );
}

#[test]
fn a_failed_installation_with_retries_is_removed_and_installed_again() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.desired.spec.install.remediation.retries = 1;
    cluster.fails("ready");
    check(
        &mut cluster,
        &expect![[r#"
            Running 'install' action with timeout of 5m0s
            prepare install v1
            open v1
            apply v1
            record: failed
            Running 'uninstall' action with timeout of 5m0s
            record: uninstalling
            delete objects of v1
            purge [1]
            Running 'install' action with timeout of 5m0s
            prepare install v1
            open v1
            apply v1
            record: failed
            ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: Deployment/apps/ready failed
            ! UninstallSucceeded Helm uninstall remediation for release apps/web.v1 with chart c@1.0.0 succeeded
            ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: Deployment/apps/ready failed
            = stalled RetriesExceeded: Failed to install after 2 attempt(s): Helm install failed for release apps/web with chart c@1.0.0: Deployment/apps/ready failed
            = v1 failed (Release "web" failed: Deployment/apps/ready failed)
            = failures [2, 2, 0]
        "#]],
    );
}

#[test]
fn a_failed_upgrade_with_retries_is_rolled_back_and_repeated() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.log.clear();
    cluster.events.clear();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.upgrade.remediation =
        RemediationSettings { retries: 1, ..RemediationSettings::default() };
    cluster.desired.spec.rollback.wait = crate::journal::ReleaseWaitPolicy::Nothing;
    cluster.fails("ready");
    check(
        &mut cluster,
        &expect![[r#"
            Running 'upgrade' action with timeout of 5m0s
            prepare upgrade v2
            open v2
            apply v2 over v1
            record: failed
            Running 'rollback' action with timeout of 5m0s
            open v3
            apply v3 over v2
            record: deployed
            Running 'upgrade' action with timeout of 5m0s
            prepare upgrade v4
            open v4
            apply v4 over v3
            record: failed
            Running 'rollback' action with timeout of 5m0s
            open v5
            apply v5 over v4
            record: deployed
            ! UpgradeFailed Helm upgrade failed for release apps/web with chart c@2.0.0: Deployment/apps/ready failed
            ! RollbackSucceeded Helm rollback to previous release apps/web.v1 with chart c@1.0.0 succeeded
            ! UpgradeFailed Helm upgrade failed for release apps/web with chart c@2.0.0: Deployment/apps/ready failed
            ! RollbackSucceeded Helm rollback to previous release apps/web.v3 with chart c@1.0.0 succeeded
            = stalled RetriesExceeded: Failed to upgrade after 2 attempt(s): Helm rollback to previous release apps/web.v3 with chart c@1.0.0 succeeded
            = v1 superseded (Install complete); v2 failed (Upgrade "web" failed: Deployment/apps/ready failed); v3 superseded (Rollback to 1); v4 failed (Upgrade "web" failed: Deployment/apps/ready failed); v5 deployed (Rollback to 3)
            = failures [2, 0, 2]
        "#]],
    );
}

#[test]
fn a_failed_upgrade_can_be_undone_by_removal() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.log.clear();
    cluster.events.clear();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.upgrade.remediation = RemediationSettings {
        strategy: RemediationStrategy::Uninstall,
        retries: 1,
        ..RemediationSettings::default()
    };
    cluster.fails("apply");
    cluster.desired.spec.upgrade.cleanup_on_fail = true;
    check(
        &mut cluster,
        &expect![[r#"
            Running 'upgrade' action with timeout of 5m0s
            prepare upgrade v2
            open v2
            apply v2 over v1: refused
            record: failed
            clean up apps_new__Secret
            Running 'uninstall' action with timeout of 5m0s
            record: uninstalling
            delete objects of v2
            purge [1, 2]
            Running 'install' action with timeout of 5m0s
            prepare install v1
            open v1
            apply v1: refused
            record: failed
            ! UpgradeFailed Helm upgrade failed for release apps/web with chart c@2.0.0: refused: apply
            ! UninstallSucceeded Helm uninstall remediation for release apps/web.v2 with chart c@2.0.0 succeeded
            ! InstallFailed Helm install failed for release apps/web with chart c@2.0.0: refused: apply
            = stalled RetriesExceeded: Failed to install after 1 attempt(s): Helm install failed for release apps/web with chart c@2.0.0: refused: apply
            = v1 failed (Release "web" failed: refused: apply)
            = failures [2, 1, 1]
        "#]],
    );
}

#[test]
fn retry_on_failure_upgrades_after_its_interval_without_end() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.desired.spec.install.strategy = FailureStrategy::RetryOnFailure(60 * SECOND);
    cluster.desired.spec.upgrade.strategy = FailureStrategy::RetryOnFailure(60 * SECOND);
    cluster.fails("ready");
    let began = cluster.now;
    for _ in 0..3 {
        let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("a rest") };
        let wake = outcome.wake().unwrap().earliest().unwrap();
        assert_eq!(wake.duration_since(cluster.now).as_secs(), 60, "{outcome:?}");
        // Looking earlier changes nothing.
        cluster.now += 10 * SECOND;
        let before = cluster.log.len();
        cluster.run();
        assert_eq!(cluster.log.len(), before);
        cluster.now = wake;
    }
    assert_eq!(cluster.now.duration_since(began).as_secs(), 180);
    cluster.faults.clear();
    check(
        &mut cluster,
        &expect![[r#"
        Running 'install' action with timeout of 5m0s
        prepare install v1
        open v1
        apply v1
        record: failed
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v2
        open v2
        apply v2 over v1
        record: failed
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v3
        open v3
        apply v3 over v2
        record: failed
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v4
        open v4
        apply v4 over v3
        record: deployed
        ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: Deployment/apps/ready failed
        ! UpgradeFailed Helm upgrade failed for release apps/web with chart c@1.0.0: Deployment/apps/ready failed
        ! UpgradeFailed Helm upgrade failed for release apps/web with chart c@1.0.0: Deployment/apps/ready failed
        ! UpgradeSucceeded Helm upgrade succeeded for release apps/web.v4 with chart c@1.0.0
        = settled UpgradeSucceeded: Helm upgrade succeeded for release apps/web.v4 with chart c@1.0.0
        = v1 failed (Release "web" failed: Deployment/apps/ready failed); v2 failed (Upgrade "web" failed: Deployment/apps/ready failed); v3 superseded (Upgrade "web" failed: Deployment/apps/ready failed); v4 deployed (Upgrade complete)
        = failures [0, 0, 0]
    "#]],
    );
}

#[test]
fn what_fails_before_it_is_stored_is_tried_again_and_not_counted_for_remediation() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.fails("prepare");
    let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("a rest") };
    expect![[r#"
        Running 'install' action with timeout of 5m0s
        prepare install v1: refused
        ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: refused: prepare
        = failed InstallFailed: Helm install failed for release apps/web with chart c@1.0.0: refused: prepare
        = 
        = failures [1, 0, 0]
    "#]].assert_eq(&transcript(&mut cluster, &outcome));
    cluster.faults.clear();
    cluster.now += SECOND;
    check(
        &mut cluster,
        &expect![[r#"
        Running 'install' action with timeout of 5m0s
        prepare install v1
        open v1
        apply v1
        record: deployed
        ! InstallSucceeded Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        = settled InstallSucceeded: Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        = v1 deployed (Install complete)
        = failures [1, 0, 0]
    "#]],
    );
}

#[test]
fn a_failed_test_counts_and_a_test_that_is_ignored_does_not() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = hooks();
    cluster.desired.spec.test.enable = true;
    cluster.fails("run t");
    check(
        &mut cluster,
        &expect![[r#"
            Running 'install' action with timeout of 5m0s
            prepare install v1
            open v1
            record: hook 0 runs
            run hook pre
            record: hook 0 succeeded
            delete hook pre (hook-succeeded)
            apply v1
            record: hook 1 runs
            run hook post
            record: hook 1 succeeded, record: deployed
            Running 'test' action with timeout of 5m0s
            record: hook 2 runs
            run hook t
            record: hook 2 failed
            ! InstallSucceeded Helm install succeeded for release apps/web.v1 with chart c@1.0.0
            ! TestFailed Helm test failed for release apps/web.v1 with chart c@1.0.0: Job t failed
            = stalled RetriesExceeded: Failed to install after 1 attempt(s): Helm test failed for release apps/web.v1 with chart c@1.0.0: Job t failed
            = v1 deployed (Install complete)
            = failures [1, 1, 0]
        "#]],
    );
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = hooks();
    cluster.desired.spec.test.enable = true;
    cluster.desired.spec.test.ignore_failures = true;
    cluster.fails("run t");
    check(
        &mut cluster,
        &expect![[r#"
        Running 'install' action with timeout of 5m0s
        prepare install v1
        open v1
        record: hook 0 runs
        run hook pre
        record: hook 0 succeeded
        delete hook pre (hook-succeeded)
        apply v1
        record: hook 1 runs
        run hook post
        record: hook 1 succeeded, record: deployed
        Running 'test' action with timeout of 5m0s
        record: hook 2 runs
        run hook t
        record: hook 2 failed
        ! InstallSucceeded Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        ! TestFailed Helm test failed for release apps/web.v1 with chart c@1.0.0: Job t failed
        = settled InstallSucceeded: Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        = v1 deployed (Install complete)
        = failures [1, 0, 0]
    "#]],
    );
}

#[test]
fn a_helm_release_that_goes_takes_its_release_along() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = vec![hook("pd", &["pre-delete"], &[]), hook("qd", &["post-delete"], &[])];
    cluster.settle();
    cluster.log.clear();
    cluster.events.clear();
    cluster.desired.deleted = true;
    cluster.fails("run qd");
    check(
        &mut cluster,
        &expect![[r#"
        Running 'uninstall' action with timeout of 5m0s
        record: uninstalling
        record: hook 0 runs
        run hook pd
        record: hook 0 succeeded
        delete objects of v1
        record: hook 1 runs
        run hook qd
        record: hook 1 failed
        purge [1]
        ! UninstallFailed Helm uninstall failed for release apps/web.v1 with chart c@1.0.0: uninstallation completed with 1 error(s): Job qd failed
        = settled UninstallSucceeded: Release apps/web.v1 is uninstalled
        = 
        = failures [1, 0, 0]
    "#]],
    );
}

#[test]
fn another_name_is_another_release() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.log.clear();
    cluster.events.clear();
    cluster.desired.generation = 2;
    cluster.desired.chart_name = "d".to_owned();
    cluster.desired.spec.upgrade.in_place_chart_name_change = true;
    // The cluster here makes records of chart `c` only, so one upgrade is all that is observed.
    let SimulatedRunEnd::Outcome(_) = cluster.run() else { panic!("a rest") };
    assert!(cluster.log.iter().any(|line| line == "prepare upgrade v2"), "{:?}", cluster.log);
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.log.clear();
    cluster.events.clear();
    cluster.desired.generation = 2;
    cluster.desired.spec.target.namespace = "prod".to_owned();
    cluster.run();
    assert!(cluster.log.iter().any(|line| line == "delete objects of v1"), "{:?}", cluster.log);
    assert!(cluster.log.iter().any(|line| line == "prepare install v1"), "{:?}", cluster.log);
}

#[test]
fn a_release_that_another_client_left_unfinished_is_unlocked_and_upgraded() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    let left = crate::simulated_cluster::record(3, "0.9.0", "a", "pending-upgrade");
    cluster.records.insert(3, (left, None));
    check(
        &mut cluster,
        &expect![[r#"
        unlock v3
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v4
        open v4
        apply v4 over v3
        record: deployed
        ! PendingRelease Unlocked Helm release apps/web.v3 with chart c@0.9.0 in pending-upgrade state
        ! UpgradeSucceeded Helm upgrade succeeded for release apps/web.v4 with chart c@1.0.0
        = settled UpgradeSucceeded: Helm upgrade succeeded for release apps/web.v4 with chart c@1.0.0
        = v3 superseded (Release unlocked from stale 'pending-upgrade' state); v4 deployed (Upgrade complete)
        = failures [0, 0, 0]
    "#]],
    );
}

#[test]
fn a_record_that_was_changed_by_hand_is_not_taken_for_what_was_released() {
    let changed = || {
        let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
        cluster.settle();
        let (record, journal) = cluster.records.get_mut(&1).unwrap();
        record.config = crate::simulated_cluster::config("by hand");
        assert!(!journal.as_ref().unwrap().accounted, "a success is seen in the history");
        cluster
    };
    let mut cluster = changed();
    cluster.log.clear();
    cluster.settle();
    let expected = "v1 superseded (Install complete); v2 deployed (Upgrade complete)";
    assert_eq!(cluster.lives(), expected);
    // If the program ends at any step in the middle of it, the result is one more upgrade at most.
    for step in 1..=cluster.steps {
        for is_lost in [false, true] {
            let mut cluster = changed();
            (cluster.steps, cluster.crash) = (0, Some((step, is_lost)));
            if matches!(cluster.run(), SimulatedRunEnd::Crash) {
                cluster.crash = None;
                cluster.settle();
            }
            assert_eq!(cluster.lives(), expected, "step {step}");
        }
    }
}

#[test]
fn a_release_that_is_as_it_should_be_is_taken_over_without_an_upgrade() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.records.insert(1, (record(1, "1.0.0", "a", "deployed"), None));
    check(
        &mut cluster,
        &expect![[r#"

            ! InstallSucceeded Adopted release apps/web.v1 with chart c@1.0.0, which is up to date
            = settled InstallSucceeded: Adopted release apps/web.v1 with chart c@1.0.0, which is up to date
            = v1 deployed ()
            = failures [0, 0, 0]
        "#]],
    );
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.records.insert(1, (record(1, "1.0.0", "b", "deployed"), None));
    check(
        &mut cluster,
        &expect![[r#"
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v2
        open v2
        apply v2 over v1
        record: deployed
        ! UpgradeSucceeded Helm upgrade succeeded for release apps/web.v2 with chart c@1.0.0
        = settled UpgradeSucceeded: Helm upgrade succeeded for release apps/web.v2 with chart c@1.0.0
        = v1 superseded (); v2 deployed (Upgrade complete)
        = failures [0, 0, 0]
    "#]],
    );
}

#[test]
fn a_release_with_a_contested_object_is_not_ready_until_it_is_worth_another_run() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.desired.spec.drift = DriftMode::Enabled;
    let until = cluster.now.saturating_add(Duration::from_secs(60)).unwrap();
    cluster.contested = Some(("ConfigMap/apps/a is contested".to_owned(), until));
    let SimulatedRunEnd::Outcome(RunOutcome::Failed(why, text, wake)) = cluster.run() else {
        panic!("{:?}", cluster.log)
    };
    assert_eq!(
        (why, text.as_str()),
        (condition_reason::CONTESTED, "ConfigMap/apps/a is contested")
    );
    assert_eq!(wake.at, Some(until));
    // The status is written before and after a correction, too.
    cluster.events.clear();
    cluster.drift = ReleaseDrift::Found {
        digest: "sha256:d".to_owned(),
        text: "ConfigMap/apps/a changed".to_owned(),
    };
    let SimulatedRunEnd::Outcome(RunOutcome::Failed(why, ..)) = cluster.run() else {
        panic!("{:?}", cluster.log)
    };
    assert_eq!((why, cluster.drift.clone()), (condition_reason::CONTESTED, ReleaseDrift::None));
    assert!(cluster.events.iter().any(|it| it.contains("DriftDetected")), "{:?}", cluster.events);
    cluster.contested = None;
    let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("a rest") };
    assert!(outcome.is_settled());
}

#[test]
fn drift_is_reported_and_corrected() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.log.clear();
    cluster.events.clear();
    let drift = ReleaseDrift::Found {
        digest: "sha256:d".to_owned(),
        text: "Deployment/apps/web changed".to_owned(),
    };
    cluster.drift = drift.clone();
    cluster.desired.spec.drift = DriftMode::Warn;
    check(
        &mut cluster,
        &expect![[r#"

        ! DriftDetected Cluster state of release apps/web.v1 has drifted from the desired state:
        Deployment/apps/web changed
        = settled InstallSucceeded: Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        = v1 deployed (Install complete)
        = failures [0, 0, 0]
    "#]],
    );
    cluster.desired.spec.drift = DriftMode::Enabled;
    check(
        &mut cluster,
        &expect![[r#"
        correct sha256:d of v1
        ! 
        = settled InstallSucceeded: Helm install succeeded for release apps/web.v1 with chart c@1.0.0
        = v1 deployed (Install complete)
        = failures [0, 0, 0]
    "#]],
    );
    cluster.drift = drift;
    cluster.fails("correct");
    let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("a rest") };
    let failed = "failed DriftCorrectionFailed: Failed to correct cluster state of release apps/web.v1:\nrefused: correct";
    assert_eq!(text(&outcome), failed);
    assert_eq!(cluster.status.drifted.unwrap().reason, status::DRIFT_DETECTED);
}

#[test]
fn a_new_spec_ends_a_wait_but_not_a_hook() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("a rest") };
    assert_eq!(
        text(&outcome),
        "running Progressing: Running 'install' action with timeout of 5m0s"
    );
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.slow.clear();
    check(
        &mut cluster,
        &expect![[r#"
        Running 'install' action with timeout of 5m0s
        prepare install v1
        open v1
        apply v1
        record: failed
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v2
        open v2
        apply v2 over v1
        record: deployed
        ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: superseded by sha256:2.0.0/a
        ! UpgradeSucceeded Helm upgrade succeeded for release apps/web.v2 with chart c@2.0.0
        = settled UpgradeSucceeded: Helm upgrade succeeded for release apps/web.v2 with chart c@2.0.0
        = v1 superseded (Release "web" failed: superseded by sha256:2.0.0/a); v2 deployed (Upgrade complete)
        = failures [0, 0, 0]
    "#]],
    );
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = hooks();
    cluster.slow.insert("pre".to_owned());
    cluster.run();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.run();
    assert_eq!(cluster.lives(), "v1 pending-install ()");
    cluster.slow.clear();
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{outcome:?}");
    assert_eq!(cluster.applied, Some((2, "2.0.0".to_owned())));
}

#[test]
fn what_takes_too_long_fails_by_the_time_it_began_whenever_it_is_observed() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    let began = cluster.now;
    cluster.run();
    cluster.now += 200 * SECOND;
    cluster.run();
    cluster.now = began + 300 * SECOND;
    check(
        &mut cluster,
        &expect![[r#"
            Running 'install' action with timeout of 5m0s
            prepare install v1
            open v1
            apply v1
            record: failed
            ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: timeout waiting for: [Deployment/apps/ready status: 'InProgress']
            = stalled RetriesExceeded: Failed to install after 1 attempt(s): Helm install failed for release apps/web with chart c@1.0.0: timeout waiting for: [Deployment/apps/ready status: 'InProgress']
            = v1 failed (Release "web" failed: timeout waiting for: [Deployment/apps/ready status: 'InProgress'])
            = failures [1, 1, 0]
        "#]],
    );
}

#[test]
fn suspending_ends_what_is_open_and_counts_no_failure() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    cluster.desired.suspended = true;
    let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("a rest") };
    expect![[r#"
        Running 'install' action with timeout of 5m0s
        prepare install v1
        open v1
        apply v1
        record: failed
        ! InstallFailed Helm install failed for release apps/web with chart c@1.0.0: suspended during the install
        = blocked Suspended: reconciliation is suspended
        = v1 failed (Release "web" failed: suspended during the install)
        = failures [0, 0, 0]
    "#]].assert_eq(&transcript(&mut cluster, &outcome));
    cluster.desired.suspended = false;
    cluster.slow.clear();
    check(
        &mut cluster,
        &expect![[r#"
        Running 'upgrade' action with timeout of 5m0s
        prepare upgrade v2
        open v2
        apply v2 over v1
        record: deployed
        ! UpgradeSucceeded Helm upgrade succeeded for release apps/web.v2 with chart c@1.0.0
        = settled UpgradeSucceeded: Helm upgrade succeeded for release apps/web.v2 with chart c@1.0.0
        = v1 superseded (Release "web" failed: suspended during the install); v2 deployed (Upgrade complete)
        = failures [0, 0, 0]
    "#]],
    );
}

#[test]
fn a_forced_upgrade_happens_once() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.log.clear();
    let asked = Some("2026".to_owned());
    cluster.desired.requests.reconcile.clone_from(&asked);
    cluster.desired.requests.force.clone_from(&asked);
    cluster.settle();
    cluster.status.last_handled_reconcile.clone_from(&asked);
    cluster.settle();
    let upgrades = cluster.log.iter().filter(|line| *line == "open v2").count();
    assert_eq!((upgrades, cluster.records.len()), (1, 2), "{:?}", cluster.log);
}

fn failing_upgrade(mut cluster: SimulatedCluster) -> SimulatedCluster {
    cluster.hooks.push(hook("up", &["post-upgrade"], &["hook-failed"]));
    cluster.fails("run up");
    cluster
}

/// Lives of which each is cut at every step, before it is done and after.
fn scenarios() -> Vec<(&'static str, SimulatedCluster, Option<ReleaseDesiredState>)> {
    let base = |faults: &[&str]| {
        let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
        cluster.hooks = hooks();
        cluster.desired.spec.test.enable = true;
        cluster.desired.spec.install.remediation.retries = 1;
        faults.iter().for_each(|fault| cluster.fails(fault));
        cluster
    };
    let next = |change: &dyn Fn(&mut ReleaseDesiredState)| {
        let mut next = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
        next.spec.upgrade.remediation.retries = 1;
        next.spec.upgrade.cleanup_on_fail = true;
        change(&mut next);
        Some(next)
    };
    vec![
        ("install", base(&[]), None),
        ("install that fails", base(&["run post"]), None),
        ("upgrade", base(&[]), next(&|_| {})),
        ("upgrade that fails and is rolled back", failing_upgrade(base(&[])), next(&|_| {})),
        (
            "upgrade that fails and is removed",
            failing_upgrade(base(&[])),
            next(&|next| {
                next.spec.upgrade.remediation.strategy = RemediationStrategy::Uninstall;
            }),
        ),
        ("removal", base(&[]), next(&|next| next.deleted = true)),
        (
            "removal that keeps history",
            base(&[]),
            next(&|next| {
                next.deleted = true;
                next.spec.uninstall.keep_history = true;
            }),
        ),
        (
            "another namespace",
            base(&[]),
            next(&|next| next.spec.target.namespace = "prod".to_owned()),
        ),
    ]
}

/// What must be the same however often the program ended.
fn outcome(cluster: &mut SimulatedCluster, next: Option<&ReleaseDesiredState>) -> String {
    cluster.settle();
    if let Some(next) = next {
        cluster.desired = next.clone();
        cluster.settle();
    }
    let status = &cluster.status;
    let counts = [status.failures, status.install_failures, status.upgrade_failures];
    let history: Vec<String> =
        status.history.iter().map(|it| format!("v{} {}", it.version, it.status)).collect();
    let lives: Vec<String> = cluster
        .records
        .values()
        .map(|(it, _)| format!("v{} {}", it.version, it.info.status))
        .collect();
    format!("{counts:?} {history:?} {lives:?} {:?}", cluster.applied.as_ref().map(|it| &it.1))
}

#[test]
fn wherever_the_program_ends_the_end_is_the_same_and_no_hook_runs_twice() {
    for (name, cluster, next) in scenarios() {
        let mut whole = cluster.clone();
        let wanted = outcome(&mut whole, next.as_ref());
        for at in 1..=whole.steps {
            for is_done in [false, true] {
                let mut cluster = cluster.clone();
                cluster.crash = Some((at, is_done));
                let got = outcome(&mut cluster, next.as_ref());
                assert_eq!(
                    got, wanted,
                    "{name}, ended at step {at} ({is_done}): {:#?}",
                    cluster.log
                );
            }
        }
    }
}

/// Hooks whose Jobs are gone once they have ended.
fn with_vanishing_hooks() -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = vec![hook("pre", &["pre-install"], &[]), hook("post", &["post-install"], &[])];
    for hook in &mut cluster.hooks {
        hook.manifest = "spec: {ttlSecondsAfterFinished: 0}".to_owned();
        cluster.vanishing.insert(hook.name.clone());
    }
    cluster
}

#[test]
fn a_hook_that_is_gone_once_it_has_ended_ends_as_it_was_seen_to() {
    let mut cluster = with_vanishing_hooks();
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{}", transcript(&mut cluster, &outcome));
    let mut cluster = with_vanishing_hooks();
    cluster.fails("run post");
    let outcome = cluster.settle();
    assert!(outcome.text().contains("Job post failed"), "{}", transcript(&mut cluster, &outcome));
}

#[test]
fn a_hook_that_may_have_come_and_gone_while_the_program_was_down_is_not_run_again() {
    let mut whole = with_vanishing_hooks();
    whole.settle();
    let mut unknown = 0;
    for at in 1..=whole.steps {
        for is_done in [false, true] {
            let mut cluster = with_vanishing_hooks();
            cluster.crash = Some((at, is_done));
            // The test cluster itself refuses to run a hook twice.
            let outcome = cluster.settle();
            let is_unknown = outcome.text().contains("is unknown: its object was deleted");
            unknown += usize::from(is_unknown);
            assert!(
                outcome.is_settled() || is_unknown,
                "{at} {is_done}: {}",
                transcript(&mut cluster, &outcome)
            );
        }
    }
    assert!(unknown > 0);
}

#[test]
fn another_timeout_counts_from_the_moment_it_was_given() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    cluster.now += 240 * SECOND;
    cluster.desired.spec.install.timeout = 1200 * SECOND;
    cluster.run();
    let journal = cluster.records[&1].1.clone().unwrap();
    assert_eq!(journal.deadline(), cluster.now + 1200 * SECOND);
    cluster.now += 600 * SECOND;
    cluster.run();
    assert!(cluster.records[&1].1.as_ref().unwrap().is_open(), "{:?}", cluster.log);
    cluster.slow.clear();
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{}", transcript(&mut cluster, &outcome));
}

#[test]
fn a_request_to_force_that_comes_during_a_wait_is_answered_after_it() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    let asked = Some("now".to_owned());
    cluster.desired.requests.reconcile.clone_from(&asked);
    cluster.desired.requests.force.clone_from(&asked);
    cluster.run();
    assert_eq!(cluster.records.len(), 1);
    cluster.slow.clear();
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{}", transcript(&mut cluster, &outcome));
    let opened = cluster.log.iter().filter(|line| line.starts_with("open v")).count();
    assert_eq!((opened, cluster.records.len()), (2, 2), "{:?}", cluster.log);
    assert_eq!(cluster.status.last_handled_force, asked);
}

#[test]
fn a_suspended_release_is_not_removed_whatever_else_was_changed() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.log.clear();
    cluster.desired.suspended = true;
    cluster.desired.spec.target.namespace = "prod".to_owned();
    let outcome = cluster.settle();
    assert_eq!(text(&outcome), "blocked Suspended: reconciliation is suspended");
    assert_eq!((cluster.log.len(), cluster.records.len()), (0, 1));
}

#[test]
fn a_record_that_cannot_be_read_is_not_taken_for_none() {
    let broken = BrokenReleaseRevision {
        secret: "apps/s".to_owned(),
        version: 1,
        problem: "odd".to_owned(),
    };
    let desired_with = |deleted: bool| ReleaseDesiredState { deleted, ..desired("1.0.0", "a") };
    for desired in [desired_with(true), desired_with(false)] {
        let mut cluster = SimulatedCluster::new(desired_with(false));
        cluster.settle();
        let observed = ReleaseObservedState {
            now: cluster.now,
            status: cluster.status.clone(),
            revisions: ReleaseRevisions::new(Vec::new(), vec![broken.clone()]),
            live: ObservedLiveObjects::default(),
            drift: None,
            contested: None,
            outcome: None,
            ran: RunProgress::default(),
        };
        let PlannerDecision::Outcome(run_outcome) = HelmReleasePlanner::plan(&desired, &observed)
        else {
            panic!()
        };
        let text = text(&run_outcome);
        assert!(text.starts_with("failed StateError: ") && text.contains("apps/s"), "{text}");
    }
}
