//! Operations, closed windows and Freezes.

use std::sync::Arc;

use reconcile::FreezeHold;

use super::*;
use crate::gated_release_change::ReleaseChangeGates;

#[test]
fn outside_of_its_windows_an_operation_ends_and_none_begins() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    cluster.desired.gates.closes = Some(cluster.now);
    cluster.slow.clear();
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{}", transcript(&mut cluster, &outcome));
    for change in [
        |next: &mut ReleaseDesiredState| next.inputs.push('x'),
        |next: &mut ReleaseDesiredState| next.spec.test.enable = true,
        |next: &mut ReleaseDesiredState| next.spec.target.namespace = "prod".to_owned(),
    ] {
        let mut cluster = cluster.clone();
        cluster.desired.chart_version = "2.0.0".to_owned();
        change(&mut cluster.desired);
        cluster.log.clear();
        let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!() };
        assert_eq!(
            outcome.reason().as_str(),
            "WindowClosed",
            "{}",
            transcript(&mut cluster, &outcome)
        );
        assert!(cluster.log.is_empty(), "{:?}", cluster.log);
    }
}

#[test]
fn the_removal_of_what_was_pruned_waits_for_a_window_unless_it_has_begun() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.hooks = vec![hook("pd", &["pre-delete"], &[])];
    cluster.settle();
    cluster.log.clear();
    cluster.desired.deleted = true;
    cluster.desired.gates = ReleaseChangeGates {
        closes: Some(cluster.now),
        removal: RemovalCause::Pruned,
        ..ReleaseChangeGates::default()
    };
    let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!() };
    assert_eq!(outcome.reason().as_str(), "WindowClosed", "{}", transcript(&mut cluster, &outcome));
    assert!(cluster.log.is_empty(), "{:?}", cluster.log);
    let mut deleted = cluster.clone();
    deleted.desired.gates.removal = RemovalCause::OwnerDeleted;
    assert!(deleted.settle().is_settled(), "the end of the owner waits for no window");
    cluster.desired.gates.closes = None;
    cluster.slow.insert("pd".to_owned());
    cluster.run();
    assert!(cluster.log.contains(&"record: uninstalling".to_owned()), "{:?}", cluster.log);
    cluster.desired.gates.closes = Some(cluster.now);
    cluster.slow.clear();
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{}", transcript(&mut cluster, &outcome));
}

#[test]
fn a_failure_is_undone_also_when_the_window_has_closed_meanwhile() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.upgrade.remediation.retries = 1;
    cluster.fails("ready");
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    cluster.slow.clear();
    cluster.desired.gates.closes = Some(cluster.now);
    cluster.run();
    assert!(cluster.log.iter().any(|line| line.contains("'rollback'")), "{:?}", cluster.log);
}

/// What holds everything that begins.
fn freeze() -> ReleaseChangeGates {
    let hold = FreezeHold {
        reason: reconcile::condition_reason::FROZEN,
        text: "Freeze christmas".to_owned(),
        corrects_drift: true,
        recheck_at: reconcile::Time::MAX,
    };
    ReleaseChangeGates { freeze: Some(Arc::new(hold)), ..ReleaseChangeGates::default() }
}

#[test]
fn an_operation_comes_to_its_end_in_a_freeze_also_if_something_newer_waits() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    cluster.desired =
        ReleaseDesiredState { generation: 2, gates: freeze(), ..desired("2.0.0", "a") };
    cluster.slow.clear();
    let outcome = cluster.settle();
    let said = transcript(&mut cluster, &outcome);
    assert_eq!(outcome.reason().as_str(), "Frozen", "{said}");
    assert!(said.contains("record: deployed") && !said.contains("superseded"), "{said}");
    assert!(!said.contains("'upgrade'"), "{said}");
}

#[test]
fn a_failure_is_undone_in_a_freeze_and_what_failed_is_not_repeated() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.upgrade.remediation.retries = 1;
    cluster.fails("ready");
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    cluster.slow.clear();
    cluster.desired.gates = freeze();
    cluster.log.clear();
    cluster.run();
    assert!(cluster.log.iter().any(|line| line.contains("'rollback'")), "{:?}", cluster.log);
    assert!(!cluster.log.iter().any(|line| line.contains("'upgrade'")), "{:?}", cluster.log);
}
