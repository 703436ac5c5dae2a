//! Which operations are judged before they begin, and what of their deletions the journal keeps.

use reconcile::RemovalCause;

use super::*;
use crate::planned_operation::PlannedOperation;

/// The installation with which each of these releases begins.
const INSTALL: PlannedOperation = PlannedOperation::Install { version: 1 };

/// An installed release.
fn installed() -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster
}

/// An installed release whose desired chart is newer.
fn newer() -> SimulatedCluster {
    let mut cluster = installed();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster
}

/// An installed release that is to be removed.
fn removed(cause: RemovalCause) -> SimulatedCluster {
    let mut cluster = installed();
    cluster.desired.deleted = true;
    cluster.desired.gates.removal = cause;
    cluster
}

#[test]
fn an_installation_and_an_upgrade_are_judged_each() {
    let mut cluster = installed();
    assert_eq!(cluster.judged, [INSTALL]);
    cluster = newer();
    cluster.deletions = 3;
    cluster.settle();
    assert_eq!(cluster.judged, [INSTALL, PlannedOperation::Upgrade { version: 2 }]);
    let deletions = |version: i64| cluster.records[&version].1.as_ref().map(|it| it.deletions);
    assert_eq!([deletions(1), deletions(2)], [Some(0), Some(3)], "the journal counts them");
}

#[test]
fn a_rollback_that_undoes_a_failed_upgrade_is_not_judged() {
    let mut cluster = failing_upgrade(newer());
    let remediation = &mut cluster.desired.spec.upgrade.remediation;
    remediation.remediate_last_failure = Some(true);
    cluster.settle();
    assert_eq!(cluster.judged, [INSTALL, PlannedOperation::Upgrade { version: 2 }]);
    assert_eq!(cluster.records[&3].0.info.description, "Rollback to 1", "{:?}", cluster.log);
}

#[test]
fn an_uninstall_that_undoes_a_failed_upgrade_is_judged_and_that_of_an_installation_is_not() {
    let mut cluster = failing_upgrade(newer());
    cluster.desired.spec.upgrade.remediation = RemediationSettings {
        strategy: RemediationStrategy::Uninstall,
        retries: 1,
        ..RemediationSettings::default()
    };
    cluster.settle();
    let upgrade = PlannedOperation::Upgrade { version: 2 };
    let remediation = PlannedOperation::Remediation { version: 2 };
    assert_eq!(cluster.judged, [INSTALL, upgrade, remediation, INSTALL], "it is installed again");
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.desired.spec.install.remediation.retries = 1;
    cluster.fails("apply");
    cluster.settle();
    assert!(cluster.log.iter().any(|it| it.contains("'uninstall' action")), "{:?}", cluster.log);
    let is_install = |it: &PlannedOperation| matches!(it, PlannedOperation::Install { .. });
    assert!(cluster.judged.iter().all(is_install), "{:?}", cluster.judged);
}

#[test]
fn a_rollback_that_a_user_requests_is_judged_before_its_record() {
    let mut cluster = newer();
    cluster.settle();
    cluster.judged.clear();
    cluster.desired.suspended = true;
    cluster.desired.generation = 3;
    cluster.desired.requests.rollback = Some(ReleaseRollback { from: 2, to: 1 });
    cluster.deletions = 2;
    cluster.settle();
    assert_eq!(cluster.judged, [PlannedOperation::Rollback { from: 2, to: 1 }]);
    assert_eq!(cluster.records[&3].1.as_ref().map(|it| it.deletions), Some(2));
}

#[test]
fn the_removal_of_a_release_is_judged_unless_its_owner_is_deleted() {
    let mut pruned = removed(RemovalCause::Pruned);
    pruned.settle();
    let uninstall = |is_replaced| PlannedOperation::Uninstall { version: 1, is_replaced };
    assert_eq!(pruned.judged, [INSTALL, uninstall(false)]);
    let mut deleted = removed(RemovalCause::OwnerDeleted);
    deleted.settle();
    assert_eq!(deleted.judged, [INSTALL]);
    let mut moved = installed();
    moved.desired.generation = 2;
    moved.desired.spec.target.namespace = "other".to_owned();
    moved.settle();
    let judged = &moved.judged[..2];
    assert_eq!(judged, [INSTALL, uninstall(true)], "another release takes its place");
}
