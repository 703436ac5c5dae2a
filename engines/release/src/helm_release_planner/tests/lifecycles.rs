//! Releases that lifecycles hold: which question is asked when, what the answers lead to, and that after a crash
//! nothing is asked twice.

use lifecycle::{
    HoldingLifecycle, LifecycleEventState, LifecycleHoldPhase, LifecycleTimeoutPolicy,
};

use super::*;
use crate::lifecycle_hold::ReleaseLifecycles;
use crate::release_spec::AnnotationRequests;

fn hold(name: &str, phases: &[LifecycleHoldPhase]) -> HoldingLifecycle {
    HoldingLifecycle {
        lifecycle: name.to_owned(),
        key: name.to_owned(),
        phases: phases.to_vec(),
        timeout_ms: 60_000,
        on_timeout: LifecycleTimeoutPolicy::Fail,
        approvals: 0,
        parameters: Default::default(),
        required: false,
    }
}

/// A test cluster in which these lifecycles hold the release.
fn held(holds: Vec<HoldingLifecycle>) -> SimulatedCluster {
    let lifecycles = ReleaseLifecycles { holds, ..ReleaseLifecycles::default() };
    SimulatedCluster::new(ReleaseDesiredState { lifecycles, ..desired("1.0.0", "a") })
}

/// The steps of a run, and its outcome.
fn step(cluster: &mut SimulatedCluster) -> String {
    let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("crashed") };
    let log = std::mem::take(&mut cluster.log).join(", ");
    format!("{log} = {}", text(&outcome))
}

#[test]
fn each_phase_is_asked_and_awaited_in_turn() {
    let all = [
        LifecycleHoldPhase::PreInstall,
        LifecycleHoldPhase::PostInstall,
        LifecycleHoldPhase::Promote,
    ];
    let mut cluster = held(vec![hold("b", &all[..1]), hold("a", &all)]);
    let waits = |name: &str, phase: &str, cluster: &SimulatedCluster| {
        let event = &cluster.asked.last().unwrap().name;
        format!(
            "running LifecyclePending: waiting for lifecycle {name} at {phase}: LifecycleEvent {event} is Pending"
        )
    };
    let line = step(&mut cluster);
    assert_eq!(line, format!("ask b at PreInstall = {}", waits("b", "PreInstall", &cluster)));
    assert!(
        cluster.records.is_empty() && cluster.status == HelmReleaseStatusFields::default(),
        "nothing is written"
    );
    cluster.answer(LifecycleEventState::Succeeded);
    let line = step(&mut cluster);
    assert_eq!(line, format!("ask a at PreInstall = {}", waits("a", "PreInstall", &cluster)));
    cluster.answer(LifecycleEventState::Succeeded);
    let line = step(&mut cluster);
    let begun = "Running 'install' action with timeout of 5m0s, prepare install v1, open v1, \
                 dismiss 2 events, 0 of them open, apply v1, ask a at PostInstall";
    assert_eq!(line, format!("{begun} = {}", waits("a", "PostInstall", &cluster)));
    cluster.answer(LifecycleEventState::Succeeded);
    let line = step(&mut cluster);
    let next = "dismiss 1 events, 0 of them open, ask a at Promote";
    assert_eq!(line, format!("{next} = {}", waits("a", "Promote", &cluster)));
    let operations: std::collections::BTreeSet<_> =
        cluster.asked.iter().map(|it| &it.operation).collect();
    let journal = cluster.records[&1].1.as_ref().unwrap();
    assert!(operations.into_iter().eq([&journal.id]), "all of them are about one operation");
    assert_eq!(cluster.lives(), "v1 pending-install ()");
    cluster.answer(LifecycleEventState::Succeeded);
    let line = step(&mut cluster);
    assert!(
        line.contains("record: deployed") && line.contains("settled InstallSucceeded"),
        "{line}"
    );
    assert!(cluster.asked.is_empty(), "{:?}", cluster.asked);
    let journal = cluster.records[&1].1.as_ref().unwrap();
    let answered =
        journal.answers.iter().map(|it| format!("{} {}", it.lifecycle, it.phase.as_str()));
    let answered: Vec<String> = answered.collect();
    assert_eq!(answered, ["b PreInstall", "a PreInstall", "a PostInstall", "a Promote"]);
}

#[test]
fn what_does_not_begin_writes_nothing_and_counts() {
    let mut cluster = held(vec![hold("a", &[LifecycleHoldPhase::PreInstall])]);
    cluster.desired.spec.install.remediation.retries = 1;
    step(&mut cluster);
    cluster.answer(LifecycleEventState::Failed);
    let line = step(&mut cluster);
    let error = "Helm install failed for release apps/web with chart c@1.0.0: lifecycle a failed at PreInstall";
    assert_eq!(line, format!("dismiss 1 events, 0 of them open = failed LifecycleFailed: {error}"));
    assert!(cluster.records.is_empty() && cluster.asked.is_empty());
    assert_eq!(cluster.status.install_failures, 1);
    // The second attempt is asked anew, and is the last one.
    cluster.now += SECOND;
    assert!(step(&mut cluster).starts_with("ask a at PreInstall = running LifecyclePending"));
    cluster.now += SECOND * 60;
    let line = step(&mut cluster);
    assert!(
        line.starts_with("dismiss 1 events, 1 of them open = stalled RetriesExceeded"),
        "{line}"
    );
    assert!(line.contains("was not answered in time at PreInstall"), "{line}");
    assert!(cluster.records.is_empty() && cluster.applied.is_none());
}

#[test]
fn a_failure_after_the_upgrade_is_remediated() {
    for (phase, tests) in [
        (LifecycleHoldPhase::PostUpgrade, false),
        (LifecycleHoldPhase::Promote, false),
        (LifecycleHoldPhase::Promote, true),
    ] {
        let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
        cluster.hooks = hooks();
        cluster.settle();
        cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
        cluster.desired.spec.upgrade.remediation.remediate_last_failure = Some(true);
        (cluster.desired.spec.test.enable, cluster.desired.spec.test.ignore_failures) =
            (tests, true);
        cluster.desired.lifecycles.holds = vec![hold("a", &[phase])];
        let outcome = loop {
            match cluster.run() {
                SimulatedRunEnd::Outcome(RunOutcome::Running(why, text, _))
                    if why == crate::lifecycle_hold::LIFECYCLE_PENDING =>
                {
                    assert!(text.contains(phase.as_str()), "{text}");
                    break text;
                }
                SimulatedRunEnd::Outcome(outcome) => {
                    cluster.now =
                        outcome.wake().and_then(reconcile::NextRunTrigger::earliest).unwrap();
                }
                SimulatedRunEnd::Crash => panic!("crashed"),
            }
        };
        assert!(outcome.contains("LifecycleEvent web-"), "{outcome}");
        cluster.log.clear();
        cluster.events.clear();
        cluster.answer(LifecycleEventState::Failed);
        let outcome = cluster.settle();
        let events = cluster.events.join("\n");
        assert!(events.starts_with("LifecycleFailed"), "{events}");
        assert!(events.contains(&format!("lifecycle a failed at {}", phase.as_str())), "{events}");
        assert!(events.contains("RollbackSucceeded"), "{events}");
        assert!(text(&outcome).starts_with("stalled RetriesExceeded"), "{outcome:?}");
        assert_eq!(cluster.applied, Some((3, "1.0.0".to_owned())));
        assert!(cluster.asked.is_empty() && cluster.status.upgrade_failures == 1);
    }
}

#[test]
fn something_newer_cancels_and_a_suspension_waits() {
    for phase in [LifecycleHoldPhase::PreUpgrade, LifecycleHoldPhase::PostUpgrade] {
        let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
        cluster.settle();
        cluster.log.clear();
        let lifecycles =
            ReleaseLifecycles { holds: vec![hold("a", &[phase])], ..ReleaseLifecycles::default() };
        cluster.desired =
            ReleaseDesiredState { generation: 2, lifecycles, ..desired("2.0.0", "a") };
        let line = step(&mut cluster);
        assert!(line.contains(&format!("ask a at {}", phase.as_str())), "{line}");
        cluster.desired.suspended = true;
        assert_eq!(step(&mut cluster), " = blocked Suspended: reconciliation is suspended");
        assert!(cluster.asked[0].state.is_open());
        cluster.desired.suspended = false;
        let name = cluster.asked[0].name.clone();
        assert!(step(&mut cluster).contains(&name), "it goes on to wait");
        let newer = desired("3.0.0", "a");
        (cluster.desired.chart_version, cluster.desired.inputs) =
            (newer.chart_version, newer.inputs);
        let line = step(&mut cluster);
        assert!(line.contains("dismiss 1 events, 1 of them open"), "{line}");
        assert!(line.contains(&format!("ask a at {}", phase.as_str())), "{line}");
        assert_ne!(cluster.asked[0].name, name);
        cluster.answer(LifecycleEventState::Succeeded);
        let outcome = cluster.settle();
        assert!(
            outcome.is_settled() && cluster.applied.as_ref().unwrap().1 == "3.0.0",
            "{outcome:?}"
        );
        assert_eq!(cluster.status.failures, 0, "what was cancelled does not count");
    }
}

#[test]
fn rollbacks_and_removals_are_held() {
    let mut cluster =
        held(vec![hold("a", &[LifecycleHoldPhase::PreDelete, LifecycleHoldPhase::PostDelete])]);
    cluster.settle();
    cluster.log.clear();
    cluster.desired.deleted = true;
    assert!(step(&mut cluster).contains("ask a at PreDelete = running LifecyclePending"));
    assert_eq!(cluster.lives(), "v1 deployed (Install complete)");
    cluster.answer(LifecycleEventState::Failed);
    let line = step(&mut cluster);
    assert!(line.contains("failed UninstallFailed") && cluster.applied.is_some(), "{line}");
    cluster.now += SECOND;
    step(&mut cluster);
    cluster.answer(LifecycleEventState::Succeeded);
    let line = step(&mut cluster);
    assert!(line.contains("delete objects of v1, ask a at PostDelete"), "{line}");
    cluster.answer(LifecycleEventState::Succeeded);
    assert!(
        cluster.settle().is_settled() && cluster.records.is_empty() && cluster.asked.is_empty()
    );
}

#[test]
fn a_run_that_ends_with_a_rollback_leaves_no_event() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    cluster.desired.spec.upgrade.remediation.remediate_last_failure = Some(true);
    cluster.desired.lifecycles.holds =
        vec![hold("a", &[LifecycleHoldPhase::Promote, LifecycleHoldPhase::PostRollback])];
    assert!(step(&mut cluster).contains("ask a at Promote"));
    cluster.answer(LifecycleEventState::Failed);
    assert!(step(&mut cluster).contains("ask a at PostRollback"));
    cluster.answer(LifecycleEventState::Succeeded);
    let line = step(&mut cluster);
    assert!(line.contains("stalled RetriesExceeded"), "{line}");
    assert!(cluster.asked.is_empty(), "no later run comes to delete it: {:?}", cluster.asked);
}

#[test]
fn nothing_begins_while_it_is_not_known_what_holds_it() {
    let mut cluster = held(Vec::new());
    cluster.desired.lifecycles.unknown = Some("cannot list".to_owned());
    assert_eq!(step(&mut cluster), " = blocked LifecyclesUnknown: cannot list");
    cluster.desired.lifecycles.unknown = None;
    cluster.settle();
    cluster.desired.lifecycles.unknown = Some("cannot list".to_owned());
    cluster.log.clear();
    assert!(step(&mut cluster).contains("settled"), "what is as it should be begins nothing");
    cluster.desired.deleted = true;
    assert_eq!(step(&mut cluster), " = blocked LifecyclesUnknown: cannot list");
}

#[test]
fn a_request_asks_anew_after_a_refusal() {
    let mut cluster = held(vec![hold("a", &[LifecycleHoldPhase::PreInstall])]);
    step(&mut cluster);
    cluster.answer(LifecycleEventState::Failed);
    assert!(text(&cluster.settle()).starts_with("stalled RetriesExceeded"));
    let now = || Some("now".to_owned());
    cluster.desired.requests =
        AnnotationRequests { reconcile: now(), reset: now(), ..AnnotationRequests::default() };
    assert!(step(&mut cluster).contains("ask a at PreInstall"));
}

#[test]
fn a_crash_at_any_step_asks_nothing_twice() {
    let phases = [
        LifecycleHoldPhase::PreUpgrade,
        LifecycleHoldPhase::PostUpgrade,
        LifecycleHoldPhase::Promote,
    ];
    let cluster = || {
        let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
        cluster.settle();
        (cluster.steps, cluster.log) = (0, Vec::new());
        let lifecycles =
            ReleaseLifecycles { holds: vec![hold("a", &phases)], ..ReleaseLifecycles::default() };
        cluster.desired =
            ReleaseDesiredState { generation: 2, lifecycles, ..desired("2.0.0", "a") };
        cluster
    };
    let finish = |cluster: &mut SimulatedCluster| {
        for _ in 0..20 {
            if let SimulatedRunEnd::Outcome(outcome) = cluster.run()
                && outcome.is_settled()
            {
                return text(&outcome);
            }
            cluster.answer(LifecycleEventState::Succeeded);
        }
        panic!("never settled: {:#?}", cluster.log);
    };
    let mut without = cluster();
    let wanted = finish(&mut without);
    let steps = without.steps;
    assert!(steps > 8, "{steps}");
    for at in 1..=steps {
        for is_done in [false, true] {
            let mut cluster = cluster();
            cluster.crash = Some((at, is_done));
            assert_eq!(finish(&mut cluster), wanted, "crash at {at}");
            assert!(cluster.asked.is_empty(), "crash at {at}: {:?}", cluster.asked);
            let asked = cluster.log.iter().filter(|it| it.starts_with("ask"));
            assert_eq!(asked.count(), phases.len(), "crash at {at}: {:#?}", cluster.log);
            assert_eq!(cluster.lives(), without.lives(), "crash at {at}");
        }
    }
}
