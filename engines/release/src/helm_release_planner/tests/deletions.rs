//! Which deletions are judged before an operation begins, and what of them its journal keeps.

use reconcile::RemovalCause;

use super::*;
use crate::release_deletion::ReleaseDeletion;

/// An installed release.
fn installed() -> TestCluster {
    let mut cluster = TestCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster
}

/// An installed release whose desired chart is newer.
fn newer() -> TestCluster {
    let mut cluster = installed();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster
}

/// An installed release that is to be removed.
fn removed(cause: RemovalCause) -> TestCluster {
    let mut cluster = installed();
    cluster.desired.deleted = true;
    cluster.desired.gates.removal = cause;
    cluster
}

#[test]
fn an_upgrade_is_judged_and_an_installation_is_not() {
    let mut cluster = installed();
    assert!(cluster.judged.is_empty(), "{:?}", cluster.judged);
    cluster = newer();
    cluster.deletions = 3;
    cluster.settle();
    assert_eq!(cluster.judged, [ReleaseDeletion::Upgrade { version: 2 }]);
    let deletions = |version: i64| cluster.records[&version].1.as_ref().map(|it| it.deletions);
    assert_eq!([deletions(1), deletions(2)], [Some(0), Some(3)], "the journal counts them");
}

#[test]
fn a_rollback_that_undoes_a_failed_upgrade_is_not_judged() {
    let mut cluster = failing_upgrade(newer());
    let remediation = &mut cluster.desired.spec.upgrade.remediation;
    remediation.remediate_last_failure = Some(true);
    cluster.settle();
    assert_eq!(cluster.judged, [ReleaseDeletion::Upgrade { version: 2 }]);
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
    let upgrade = ReleaseDeletion::Upgrade { version: 2 };
    assert_eq!(cluster.judged, [upgrade, ReleaseDeletion::Remediation { version: 2 }]);
    let mut cluster = TestCluster::new(desired("1.0.0", "a"));
    cluster.desired.spec.install.remediation.retries = 1;
    cluster.fails("apply");
    cluster.settle();
    assert!(cluster.log.iter().any(|it| it.contains("'uninstall' action")), "{:?}", cluster.log);
    assert!(cluster.judged.is_empty(), "{:?}", cluster.judged);
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
    assert_eq!(cluster.judged, [ReleaseDeletion::Rollback { from: 2, to: 1 }]);
    assert_eq!(cluster.records[&3].1.as_ref().map(|it| it.deletions), Some(2));
}

#[test]
fn the_removal_of_a_release_is_judged_unless_its_owner_is_deleted() {
    let mut pruned = removed(RemovalCause::Pruned);
    pruned.settle();
    let uninstall = |is_replaced| ReleaseDeletion::Uninstall { version: 1, is_replaced };
    assert_eq!(pruned.judged, [uninstall(false)]);
    let mut deleted = removed(RemovalCause::OwnerDeleted);
    deleted.settle();
    assert!(deleted.judged.is_empty(), "{:?}", deleted.judged);
    let mut moved = installed();
    moved.desired.generation = 2;
    moved.desired.spec.target.namespace = "other".to_owned();
    moved.settle();
    assert_eq!(moved.judged, [uninstall(true)], "another release takes its place");
}
