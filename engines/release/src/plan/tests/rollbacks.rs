//! Rollbacks that a person asks for while a release is suspended.

use super::*;

/// Three revisions, suspended, with a rollback that is asked for.
fn asked(from: i64, to: i64) -> TestCluster {
    let mut world = TestCluster::new(desired("1.0.0", "a"));
    world.settle();
    for (generation, version) in [(2, "2.0.0"), (3, "3.0.0")] {
        world.desired = ReleaseDesiredState { generation, ..desired(version, "a") };
        world.settle();
    }
    world.desired.suspended = true;
    world.desired.generation = 4;
    world.desired.requests.rollback = Some(Rollback { from, to });
    world.log.clear();
    world.events.clear();
    world
}

#[test]
fn a_suspended_release_is_rolled_back_once_and_goes_on_when_it_is_resumed() {
    let mut world = asked(3, 1);
    check(
        &mut world,
        &expect![[r#"
        Running 'rollback' action with timeout of 5m0s
        open v4
        apply v4 over v3
        record: deployed
        ! RollbackSucceeded Helm rollback to previous release apps/web.v1 with chart c@1.0.0 succeeded
        = blocked Suspended: reconciliation is suspended
        = v1 superseded (Install complete); v2 superseded (Upgrade complete); v3 superseded (Upgrade complete); v4 deployed (Rollback to 1)
        = failures [0, 0, 0]
    "#]],
    );
    let ready = world.status.summary(&world.desired).unwrap();
    assert_eq!((ready.status, ready.reason.as_str()), (Truth::False, "RollbackSucceeded"));
    world.settle();
    assert!(world.log.is_empty(), "it is done once: {:?}", world.log);
    // What was rolled back to is what the repository says by now.
    let mut same = world.clone();
    same.desired = ReleaseDesiredState { generation: 5, ..desired("1.0.0", "a") };
    same.desired.requests = world.desired.requests.clone();
    let rest = same.settle();
    assert!(rest.is_settled(), "{rest:?}");
    assert_eq!(same.records.len(), 4, "{:?}", same.log);
    world.desired.suspended = false;
    let rest = world.settle();
    assert!(rest.is_settled(), "{rest:?}");
    assert_eq!(world.lives().rsplit("; ").next(), Some("v5 deployed (Upgrade complete)"));
}

#[test]
fn the_journal_of_a_rollback_names_who_asked_for_it_and_that_of_a_remediation_nobody() {
    let request = crate::origin::ManualRequest { user: "alice".to_owned(), ..Default::default() };
    let mut world = asked(3, 1);
    world.desired.origin.rollback = Some(request.clone());
    world.settle();
    let of = |world: &TestCluster, version: i64| {
        world.records[&version].1.clone().unwrap().origin.rollback
    };
    assert_eq!(of(&world, 4), Some(request.clone()));
    let mut world = TestCluster::new(desired("1.0.0", "a"));
    world.settle();
    world.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    world.desired.upgrade.remediation = Remediation { retries: 1, ..Remediation::default() };
    world.desired.origin.rollback = Some(request);
    let mut world = failing_upgrade(world);
    world.settle();
    assert_eq!(world.records[&3].0.info.description, "Rollback to 1", "{:?}", world.log);
    assert_eq!(of(&world, 3), None);
}

#[test]
fn a_rollback_that_was_asked_for_survives_a_crash_at_every_step() {
    let mut whole = asked(3, 1);
    whole.settle();
    let steps = whole.steps;
    for at in 0..=steps {
        for is_done in [false, true] {
            let mut world = asked(3, 1);
            world.steps = 0;
            world.crash = Some((at, is_done));
            world.settle();
            assert_eq!(world.lives(), whole.lives(), "crash at {at}");
            assert_eq!(world.status.remediated, whole.status.remediated, "crash at {at}");
        }
    }
}

#[test]
fn a_rollback_that_cannot_begin_is_reported_once_with_the_reason_and_forgotten_on_resume() {
    for (from, to, why) in [
        (2, 1, "revision 3 is the newest one, and not 2"),
        (4, 1, "revision 3 is the newest one, and not 4"),
        (3, 7, "Helm has no revision 7 of the release"),
    ] {
        let mut world = asked(from, to);
        world.settle();
        let text = format!(
            "The requested rollback from revision {from} to {to} is not carried out: {why}"
        );
        assert_eq!(world.events, [format!("RollbackFailed {text}")]);
        let ready = world.status.summary(&world.desired).unwrap();
        assert_eq!((ready.status, ready.text), (Truth::False, text));
        world.settle();
        assert_eq!(world.events.len(), 1, "it is reported once");
        world.desired = ReleaseDesiredState { generation: 5, ..desired("3.0.0", "a") };
        let rest = world.settle();
        assert!(rest.is_settled(), "{rest:?}");
        let ready = world.status.summary(&world.desired).unwrap();
        assert_eq!(ready.status, Truth::True, "{ready:?}");
    }
}

#[test]
fn a_rollback_to_what_may_be_unverified_is_reported_and_not_carried_out() {
    let mut world = asked(3, 1);
    let status = world.status.clone();
    assert!(!status.history.iter().any(|it| it.version == 1), "{:?}", status.history);
    world.desired.requests.keep_known(&status);
    world.settle();
    assert!(world.log.is_empty(), "{:?}", world.log);
    assert!(world.events[0].contains("windlass.dev/require-verified"), "{:?}", world.events);
    let mut world = asked(3, 2);
    world.desired.requests.keep_known(&status);
    world.settle();
    assert_eq!(world.lives().rsplit("; ").next(), Some("v4 deployed (Rollback to 2)"));
}

#[test]
fn what_came_after_a_rollback_does_not_make_it_one_that_was_not_carried_out() {
    let mut world = asked(3, 1);
    world.settle();
    let requests = world.desired.requests.clone();
    // Another program resumes it, which leaves the annotation, and suspends it again.
    world.desired = ReleaseDesiredState { generation: 5, ..desired("5.0.0", "a") };
    world.settle();
    world.desired.suspended = true;
    world.desired.requests = requests;
    world.log.clear();
    world.events.clear();
    world.settle();
    assert!(world.log.is_empty() && world.events.is_empty(), "{:?}", world.events);
}

#[test]
fn nothing_is_rolled_back_but_the_revision_that_was_meant_to_one_that_is_there() {
    for (from, to) in [(2, 1), (4, 1), (3, 7)] {
        let mut world = asked(from, to);
        let rest = world.settle();
        assert_eq!(text(&rest), "blocked Suspended: reconciliation is suspended");
        assert!(world.log.is_empty(), "{from} to {to}: {:?}", world.log);
    }
    let mut world = asked(3, 1);
    world.desired.suspended = false;
    world.settle();
    assert!(world.log.is_empty(), "it is asked of suspended releases only: {:?}", world.log);
    let mut world = asked(3, 2);
    assert!(world.status.history.iter().any(|it| it.version == 2), "the status knows it");
    world.records.get_mut(&2).unwrap().0.manifest.push_str("forged: true\n");
    world.settle();
    assert!(world.log.is_empty(), "another manifest was stored: {:?}", world.log);
    let mut world = asked(3, 1);
    world.records.get_mut(&3).unwrap().0.info.status = Life::parse("pending-upgrade");
    world.settle();
    assert!(world.log.is_empty(), "another client is at work: {:?}", world.log);
}
