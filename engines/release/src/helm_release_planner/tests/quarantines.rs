//! Inputs that failed as often as they may, and are not released again.

use super::*;
use crate::failure_policy::{FailurePolicy, ReleaseQuarantine};
use crate::journal::ReleaseWaitPolicy;
use crate::release_spec::DriftMode;

/// What the annotation with the value `RollBack` asks for.
fn rolling_back() -> FailurePolicy {
    FailurePolicy { quarantines: true, rolls_back: true, quarantine: None }
}

/// The same once the inputs are quarantined.
fn quarantined(keeps_last_good: bool) -> FailurePolicy {
    let text = "c@2.0.0 is quarantined".to_owned();
    FailurePolicy {
        quarantine: Some(ReleaseQuarantine { text, keeps_last_good }),
        ..rolling_back()
    }
}

/// An upgrade that fails, after `change`.
fn failed(change: impl FnOnce(&mut ReleaseDesiredState)) -> (SimulatedCluster, RunOutcome) {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.rollback.wait = ReleaseWaitPolicy::Nothing;
    cluster.desired.failures = rolling_back();
    change(&mut cluster.desired);
    cluster.fails("ready");
    let outcome = cluster.settle();
    cluster.log.clear();
    (cluster, outcome)
}

#[test]
fn the_only_attempt_is_rolled_back_although_the_spec_asks_for_no_retries() {
    let (cluster, outcome) = failed(|_| ());
    assert_eq!(outcome.reason(), status::RETRIES_EXCEEDED, "{outcome:?}");
    assert_eq!(cluster.applied, Some((3, "1.0.0".to_owned())));
    let good = cluster.desired.stays_in_place(&cluster.status).map(|it| it.version);
    assert_eq!(good, Some(3));
    let holds_data = |version: i64| cluster.records[&version].1.as_ref().unwrap().plan.holds_data;
    assert!(holds_data(3) && !holds_data(2), "the owner may be suspended before the rollback ends");
    assert!(!cluster.desired.was_good(&cluster.status, &cluster.revisions()));
}

#[test]
fn a_spec_that_does_not_undo_the_last_failure_is_followed() {
    let (cluster, outcome) = failed(|desired| {
        desired.spec.upgrade.remediation.remediate_last_failure = Some(false);
    });
    assert_eq!(outcome.reason(), status::RETRIES_EXCEEDED, "{outcome:?}");
    assert_eq!(cluster.records.len(), 2, "{}", cluster.lives());
    assert_eq!(cluster.desired.stays_in_place(&cluster.status), None);
}

#[test]
fn quarantined_inputs_are_not_released_again_by_another_spec_or_a_request() {
    let (cluster, _) = failed(|_| ());
    for keeps_last_good in [true, false] {
        let mut cluster = cluster.clone();
        // Flux forgets failures with each generation, and upgrades when it is asked to.
        cluster.desired.generation = 3;
        let asked = Some("now".to_owned());
        (cluster.desired.requests.reconcile, cluster.desired.requests.force) =
            (asked.clone(), asked);
        cluster.desired.failures = quarantined(keeps_last_good);
        cluster.faults.clear();
        let outcome = cluster.settle();
        assert_eq!(text(&outcome), "stalled Quarantined: c@2.0.0 is quarantined");
        assert_eq!((cluster.log.len(), cluster.records.len()), (0, 3), "{:?}", cluster.log);
        // The source moves on.
        cluster.desired = ReleaseDesiredState { generation: 4, ..desired("3.0.0", "a") };
        let outcome = cluster.settle();
        assert!(outcome.is_settled(), "{outcome:?}");
        assert_eq!(cluster.applied, Some((4, "3.0.0".to_owned())));
    }
}

#[test]
fn what_stays_in_place_is_corrected_against_drift() {
    let (cluster, _) = failed(|desired| desired.spec.drift = DriftMode::Enabled);
    for keeps_last_good in [true, false] {
        let mut cluster = cluster.clone();
        cluster.desired.failures = quarantined(keeps_last_good);
        let found = ReleaseDrift::Found { digest: "d".to_owned(), text: "it drifted".to_owned() };
        cluster.drift = found;
        let outcome = cluster.settle();
        assert_eq!(outcome.reason(), condition_reason::QUARANTINED, "{outcome:?}");
        let is_corrected = cluster.log.iter().any(|line| line.starts_with("correct"));
        assert_eq!(is_corrected, keeps_last_good, "{:?}", cluster.log);
    }
}

#[test]
fn an_upgrade_that_a_removal_undoes_is_not_installed_again() {
    let (mut cluster, outcome) = failed(|desired| {
        desired.spec.upgrade.remediation = RemediationSettings {
            strategy: RemediationStrategy::Uninstall,
            remediate_last_failure: Some(true),
            ..RemediationSettings::default()
        };
    });
    assert_eq!(outcome.reason(), status::RETRIES_EXCEEDED, "{outcome:?}");
    assert!(cluster.applied.is_none(), "{:?}", cluster.applied);
    // A crash before the Quarantine is written changes nothing.
    let outcome = cluster.settle();
    assert_eq!(outcome.reason(), status::RETRIES_EXCEEDED, "{outcome:?}");
    assert!(cluster.applied.is_none() && cluster.log.is_empty(), "{:?}", cluster.log);
}

#[test]
fn history_limits_spare_the_record_of_the_last_good_release() {
    for (failures, is_spared) in [(rolling_back(), true), (FailurePolicy::default(), false)] {
        let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
        cluster.hooks = vec![hook("t", &["test"], &[])];
        cluster.desired.spec.test.enable = true;
        cluster.settle();
        cluster.fails("run t");
        for generation in 2..8 {
            let version = format!("{generation}.0.0");
            let mut next = ReleaseDesiredState { generation, ..desired(&version, "a") };
            next.spec.test.enable = true;
            next.spec.max_history = 2;
            next.spec.upgrade.remediation.remediate_last_failure = Some(false);
            next.failures = failures.clone();
            cluster.desired = next;
            cluster.settle();
        }
        assert_eq!(cluster.records.contains_key(&1), is_spared, "{}", cluster.lives());
    }
}

#[test]
fn a_release_that_was_good_once_fails_for_another_reason() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    assert!(cluster.desired.was_good(&cluster.status, &cluster.revisions()));
    assert_eq!(cluster.desired.stays_in_place(&cluster.status), None, "it is what is desired");
    let other = desired("1.0.0", "b");
    assert!(!other.was_good(&cluster.status, &cluster.revisions()));
    assert_eq!(other.stays_in_place(&cluster.status).map(|it| it.version), Some(1));
}
