//! Rollbacks that a person asks for while a release is suspended.

use super::*;

/// Three revisions, suspended, with a rollback that is asked for.
fn asked(from: i64, to: i64) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    for (generation, version) in [(2, "2.0.0"), (3, "3.0.0")] {
        cluster.desired = ReleaseDesiredState { generation, ..desired(version, "a") };
        cluster.settle();
    }
    cluster.desired.suspended = true;
    cluster.desired.generation = 4;
    cluster.desired.requests.rollback = Some(ReleaseRollback { from, to });
    cluster.log.clear();
    cluster.events.clear();
    cluster
}

#[test]
fn a_suspended_release_is_rolled_back_once_and_goes_on_when_it_is_resumed() {
    let mut cluster = asked(3, 1);
    check(
        &mut cluster,
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
    let ready = cluster.status.summary(&cluster.desired).unwrap();
    assert_eq!((ready.status, ready.reason.as_str()), (Truth::False, "RollbackSucceeded"));
    cluster.settle();
    assert!(cluster.log.is_empty(), "it is done once: {:?}", cluster.log);
    // The repository now has what was rolled back to.
    let mut same = cluster.clone();
    same.desired = ReleaseDesiredState { generation: 5, ..desired("1.0.0", "a") };
    same.desired.requests = cluster.desired.requests.clone();
    let outcome = same.settle();
    assert!(outcome.is_settled(), "{outcome:?}");
    assert_eq!(same.records.len(), 4, "{:?}", same.log);
    cluster.desired.suspended = false;
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{outcome:?}");
    assert_eq!(cluster.lives().rsplit("; ").next(), Some("v5 deployed (Upgrade complete)"));
}

#[test]
fn the_journal_of_a_rollback_names_its_requester_and_that_of_a_remediation_none() {
    let request = crate::operation_origin::AnnotationRequest {
        user: "alice".to_owned(),
        ..Default::default()
    };
    let mut cluster = asked(3, 1);
    cluster.desired.origin.rollback = Some(request.clone());
    cluster.settle();
    let of = |cluster: &SimulatedCluster, version: i64| {
        cluster.records[&version].1.clone().unwrap().origin.rollback
    };
    assert_eq!(of(&cluster, 4), Some(request.clone()));
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.upgrade.remediation =
        RemediationSettings { retries: 1, ..RemediationSettings::default() };
    cluster.desired.origin.rollback = Some(request);
    let mut cluster = failing_upgrade(cluster);
    cluster.settle();
    assert_eq!(cluster.records[&3].0.info.description, "Rollback to 1", "{:?}", cluster.log);
    assert_eq!(of(&cluster, 3), None);
}

#[test]
fn a_rollback_that_was_asked_for_survives_a_crash_at_every_step() {
    let mut whole = asked(3, 1);
    whole.settle();
    let steps = whole.steps;
    for at in 0..=steps {
        for is_done in [false, true] {
            let mut cluster = asked(3, 1);
            cluster.steps = 0;
            cluster.crash = Some((at, is_done));
            cluster.settle();
            assert_eq!(cluster.lives(), whole.lives(), "crash at {at}");
            assert_eq!(cluster.status.remediated, whole.status.remediated, "crash at {at}");
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
        let mut cluster = asked(from, to);
        cluster.settle();
        let text = format!(
            "The requested rollback from revision {from} to {to} is not carried out: {why}"
        );
        assert_eq!(cluster.events, [format!("RollbackFailed {text}")]);
        let ready = cluster.status.summary(&cluster.desired).unwrap();
        assert_eq!((ready.status, ready.text), (Truth::False, text));
        cluster.settle();
        assert_eq!(cluster.events.len(), 1, "it is reported once");
        cluster.desired = ReleaseDesiredState { generation: 5, ..desired("3.0.0", "a") };
        let outcome = cluster.settle();
        assert!(outcome.is_settled(), "{outcome:?}");
        let ready = cluster.status.summary(&cluster.desired).unwrap();
        assert_eq!(ready.status, Truth::True, "{ready:?}");
    }
}

#[test]
fn a_rollback_to_what_may_be_unverified_is_reported_and_not_carried_out() {
    let mut cluster = asked(3, 1);
    let status = cluster.status.clone();
    assert!(!status.history.iter().any(|it| it.version == 1), "{:?}", status.history);
    cluster.desired.requests.keep_known(&status);
    cluster.settle();
    assert!(cluster.log.is_empty(), "{:?}", cluster.log);
    assert!(cluster.events[0].contains("windlass.dev/require-verified"), "{:?}", cluster.events);
    let mut cluster = asked(3, 2);
    cluster.desired.requests.keep_known(&status);
    cluster.settle();
    assert_eq!(cluster.lives().rsplit("; ").next(), Some("v4 deployed (Rollback to 2)"));
}

#[test]
fn what_came_after_a_rollback_does_not_make_it_one_that_was_not_carried_out() {
    let mut cluster = asked(3, 1);
    cluster.settle();
    let requests = cluster.desired.requests.clone();
    // Another program resumes it, which leaves the annotation, and suspends it again.
    cluster.desired = ReleaseDesiredState { generation: 5, ..desired("5.0.0", "a") };
    cluster.settle();
    cluster.desired.suspended = true;
    cluster.desired.requests = requests;
    cluster.log.clear();
    cluster.events.clear();
    cluster.settle();
    assert!(cluster.log.is_empty() && cluster.events.is_empty(), "{:?}", cluster.events);
}

#[test]
fn only_the_requested_revision_is_rolled_back_and_only_to_an_existing_one() {
    for (from, to) in [(2, 1), (4, 1), (3, 7)] {
        let mut cluster = asked(from, to);
        let outcome = cluster.settle();
        assert_eq!(text(&outcome), "blocked Suspended: reconciliation is suspended");
        assert!(cluster.log.is_empty(), "{from} to {to}: {:?}", cluster.log);
    }
    let mut cluster = asked(3, 1);
    cluster.desired.suspended = false;
    cluster.settle();
    assert!(cluster.log.is_empty(), "it is asked of suspended releases only: {:?}", cluster.log);
    let mut cluster = asked(3, 2);
    assert!(cluster.status.history.iter().any(|it| it.version == 2), "the status knows it");
    cluster.records.get_mut(&2).unwrap().0.manifest.push_str("forged: true\n");
    cluster.settle();
    assert!(cluster.log.is_empty(), "another manifest was stored: {:?}", cluster.log);
    let mut cluster = asked(3, 1);
    cluster.records.get_mut(&3).unwrap().0.info.status = Life::parse("pending-upgrade");
    cluster.settle();
    assert!(cluster.log.is_empty(), "another client is at work: {:?}", cluster.log);
}
