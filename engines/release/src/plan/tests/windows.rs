//! Operations and closed windows.

use super::*;
use crate::phase::Gates;

#[test]
fn outside_of_its_windows_an_operation_ends_and_none_begins() {
    let mut world = TestCluster::new(desired("1.0.0", "a"));
    world.slow.insert("ready".to_owned());
    world.run();
    world.desired.gates.closes = Some(world.now);
    world.slow.clear();
    let rest = world.settle();
    assert!(rest.is_settled(), "{}", told(&mut world, &rest));
    for change in [
        |next: &mut ReleaseDesiredState| next.inputs.push('x'),
        |next: &mut ReleaseDesiredState| next.test.enable = true,
        |next: &mut ReleaseDesiredState| next.target.namespace = "prod".to_owned(),
    ] {
        let mut world = world.clone();
        world.desired.chart_version = "2.0.0".to_owned();
        change(&mut world.desired);
        world.log.clear();
        let End::Rest(rest) = world.run() else { panic!() };
        assert_eq!(rest.reason().as_str(), "WindowClosed", "{}", told(&mut world, &rest));
        assert!(world.log.is_empty(), "{:?}", world.log);
    }
}

#[test]
fn the_removal_of_what_was_pruned_waits_for_a_window_unless_it_has_begun() {
    let mut world = TestCluster::new(desired("1.0.0", "a"));
    world.hooks = vec![hook("pd", &["pre-delete"], &[])];
    world.settle();
    world.log.clear();
    world.desired.deleted = true;
    world.desired.gates = Gates { closes: Some(world.now), removal: RemovalCause::Pruned };
    let End::Rest(rest) = world.run() else { panic!() };
    assert_eq!(rest.reason().as_str(), "WindowClosed", "{}", told(&mut world, &rest));
    assert!(world.log.is_empty(), "{:?}", world.log);
    let mut deleted = world.clone();
    deleted.desired.gates.removal = RemovalCause::OwnerDeleted;
    assert!(deleted.settle().is_settled(), "the end of the owner waits for no window");
    world.desired.gates.closes = None;
    world.slow.insert("pd".to_owned());
    world.run();
    assert!(world.log.contains(&"record: uninstalling".to_owned()), "{:?}", world.log);
    world.desired.gates.closes = Some(world.now);
    world.slow.clear();
    let rest = world.settle();
    assert!(rest.is_settled(), "{}", told(&mut world, &rest));
}

#[test]
fn a_failure_is_undone_also_when_the_window_has_closed_meanwhile() {
    let mut world = TestCluster::new(desired("1.0.0", "a"));
    world.settle();
    world.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    world.desired.upgrade.remediation.retries = 1;
    world.fails("ready");
    world.slow.insert("ready".to_owned());
    world.run();
    world.slow.clear();
    world.desired.gates.closes = Some(world.now);
    world.run();
    assert!(world.log.iter().any(|line| line.contains("'rollback'")), "{:?}", world.log);
}
