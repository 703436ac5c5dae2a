//! Releases that lifecycles hold: what is asked when, what the answers lead to, and that a crash asks nothing twice.

use lifecycle::{Hold, OnTimeout, Phase, State};

use super::*;
use crate::hold::Lifecycles;
use crate::settings::Requests;

fn hold(name: &str, phases: &[Phase]) -> Hold {
    Hold {
        lifecycle: name.to_owned(),
        key: name.to_owned(),
        phases: phases.to_vec(),
        timeout_ms: 60_000,
        on_timeout: OnTimeout::Fail,
        approvals: 0,
        parameters: Default::default(),
        required: false,
    }
}

/// A world in which these lifecycles hold the release.
fn held(holds: Vec<Hold>) -> TestCluster {
    let lifecycles = Lifecycles { holds, ..Lifecycles::default() };
    TestCluster::new(ReleaseDesiredState { lifecycles, ..desired("1.0.0", "a") })
}

/// What is done in a run, and where it rests.
fn step(world: &mut TestCluster) -> String {
    let End::Rest(rest) = world.run() else { panic!("crashed") };
    let log = std::mem::take(&mut world.log).join(", ");
    format!("{log} = {}", text(&rest))
}

#[test]
fn each_phase_is_asked_and_awaited_in_turn() {
    let all = [Phase::PreInstall, Phase::PostInstall, Phase::Promote];
    let mut world = held(vec![hold("b", &all[..1]), hold("a", &all)]);
    let waits = |name: &str, phase: &str, world: &TestCluster| {
        let event = &world.asked.last().unwrap().name;
        format!(
            "running LifecyclePending: waiting for lifecycle {name} at {phase}: LifecycleEvent {event} is Pending"
        )
    };
    let told = step(&mut world);
    assert_eq!(told, format!("ask b at PreInstall = {}", waits("b", "PreInstall", &world)));
    assert!(
        world.records.is_empty() && world.status == ReleaseStatus::default(),
        "nothing is written"
    );
    world.answer(State::Succeeded);
    let told = step(&mut world);
    assert_eq!(told, format!("ask a at PreInstall = {}", waits("a", "PreInstall", &world)));
    world.answer(State::Succeeded);
    let told = step(&mut world);
    let begun = "Running 'install' action with timeout of 5m0s, prepare install v1, open v1, \
                 dismiss 2 events, 0 of them open, apply v1, ask a at PostInstall";
    assert_eq!(told, format!("{begun} = {}", waits("a", "PostInstall", &world)));
    world.answer(State::Succeeded);
    let told = step(&mut world);
    let next = "dismiss 1 events, 0 of them open, ask a at Promote";
    assert_eq!(told, format!("{next} = {}", waits("a", "Promote", &world)));
    let operations: std::collections::BTreeSet<_> =
        world.asked.iter().map(|it| &it.operation).collect();
    let journal = world.records[&1].1.as_ref().unwrap();
    assert!(operations.into_iter().eq([&journal.id]), "all of them are about one operation");
    assert_eq!(world.lives(), "v1 pending-install ()");
    world.answer(State::Succeeded);
    let told = step(&mut world);
    assert!(
        told.contains("record: deployed") && told.contains("settled InstallSucceeded"),
        "{told}"
    );
    assert!(world.asked.is_empty(), "{:?}", world.asked);
    let journal = world.records[&1].1.as_ref().unwrap();
    let answered =
        journal.answers.iter().map(|it| format!("{} {}", it.lifecycle, it.phase.as_str()));
    let answered: Vec<String> = answered.collect();
    assert_eq!(answered, ["b PreInstall", "a PreInstall", "a PostInstall", "a Promote"]);
}

#[test]
fn what_does_not_begin_writes_nothing_and_counts() {
    let mut world = held(vec![hold("a", &[Phase::PreInstall])]);
    world.desired.install.remediation.retries = 1;
    step(&mut world);
    world.answer(State::Failed);
    let told = step(&mut world);
    let error = "Helm install failed for release apps/web with chart c@1.0.0: lifecycle a failed at PreInstall";
    assert_eq!(told, format!("dismiss 1 events, 0 of them open = failed LifecycleFailed: {error}"));
    assert!(world.records.is_empty() && world.asked.is_empty());
    assert_eq!(world.status.install_failures, 1);
    // The second attempt is asked anew, and is the last one.
    world.now += SECOND;
    assert!(step(&mut world).starts_with("ask a at PreInstall = running LifecyclePending"));
    world.now += SECOND * 60;
    let told = step(&mut world);
    assert!(
        told.starts_with("dismiss 1 events, 1 of them open = stalled RetriesExceeded"),
        "{told}"
    );
    assert!(told.contains("was not answered in time at PreInstall"), "{told}");
    assert!(world.records.is_empty() && world.applied.is_none());
}

#[test]
fn a_failure_after_the_upgrade_is_remediated() {
    for (phase, tests) in
        [(Phase::PostUpgrade, false), (Phase::Promote, false), (Phase::Promote, true)]
    {
        let mut world = TestCluster::new(desired("1.0.0", "a"));
        world.hooks = hooks();
        world.settle();
        world.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
        world.desired.upgrade.remediation.remediate_last_failure = Some(true);
        (world.desired.test.enable, world.desired.test.ignore_failures) = (tests, true);
        world.desired.lifecycles.holds = vec![hold("a", &[phase])];
        let rest = loop {
            match world.run() {
                End::Rest(Rest::Running(why, text, _)) if why == crate::hold::LIFECYCLE_PENDING => {
                    assert!(text.contains(phase.as_str()), "{text}");
                    break text;
                }
                End::Rest(rest) => {
                    world.now = rest.wake().and_then(reconcile::Wake::earliest).unwrap();
                }
                End::Crash => panic!("crashed"),
            }
        };
        assert!(rest.contains("LifecycleEvent web-"), "{rest}");
        world.log.clear();
        world.events.clear();
        world.answer(State::Failed);
        let rest = world.settle();
        let events = world.events.join("\n");
        assert!(events.starts_with("LifecycleFailed"), "{events}");
        assert!(events.contains(&format!("lifecycle a failed at {}", phase.as_str())), "{events}");
        assert!(events.contains("RollbackSucceeded"), "{events}");
        assert!(text(&rest).starts_with("stalled RetriesExceeded"), "{rest:?}");
        assert_eq!(world.applied, Some((3, "1.0.0".to_owned())));
        assert!(world.asked.is_empty() && world.status.upgrade_failures == 1);
    }
}

#[test]
fn something_newer_cancels_and_a_suspension_waits() {
    for phase in [Phase::PreUpgrade, Phase::PostUpgrade] {
        let mut world = TestCluster::new(desired("1.0.0", "a"));
        world.settle();
        world.log.clear();
        let lifecycles = Lifecycles { holds: vec![hold("a", &[phase])], ..Lifecycles::default() };
        world.desired = ReleaseDesiredState { generation: 2, lifecycles, ..desired("2.0.0", "a") };
        let told = step(&mut world);
        assert!(told.contains(&format!("ask a at {}", phase.as_str())), "{told}");
        world.desired.suspended = true;
        assert_eq!(step(&mut world), " = blocked Suspended: reconciliation is suspended");
        assert!(world.asked[0].state.is_open());
        world.desired.suspended = false;
        let name = world.asked[0].name.clone();
        assert!(step(&mut world).contains(&name), "it goes on to wait");
        let newer = desired("3.0.0", "a");
        (world.desired.chart_version, world.desired.inputs) = (newer.chart_version, newer.inputs);
        let told = step(&mut world);
        assert!(told.contains("dismiss 1 events, 1 of them open"), "{told}");
        assert!(told.contains(&format!("ask a at {}", phase.as_str())), "{told}");
        assert_ne!(world.asked[0].name, name);
        world.answer(State::Succeeded);
        let rest = world.settle();
        assert!(rest.is_settled() && world.applied.as_ref().unwrap().1 == "3.0.0", "{rest:?}");
        assert_eq!(world.status.failures, 0, "what was cancelled does not count");
    }
}

#[test]
fn rollbacks_and_removals_are_held() {
    let mut world = held(vec![hold("a", &[Phase::PreDelete, Phase::PostDelete])]);
    world.settle();
    world.log.clear();
    world.desired.deleted = true;
    assert!(step(&mut world).contains("ask a at PreDelete = running LifecyclePending"));
    assert_eq!(world.lives(), "v1 deployed (Install complete)");
    world.answer(State::Failed);
    let told = step(&mut world);
    assert!(told.contains("failed UninstallFailed") && world.applied.is_some(), "{told}");
    world.now += SECOND;
    step(&mut world);
    world.answer(State::Succeeded);
    let told = step(&mut world);
    assert!(told.contains("delete objects of v1, ask a at PostDelete"), "{told}");
    world.answer(State::Succeeded);
    assert!(world.settle().is_settled() && world.records.is_empty() && world.asked.is_empty());
}

#[test]
fn a_run_that_ends_with_a_rollback_leaves_no_event() {
    let mut world = TestCluster::new(desired("1.0.0", "a"));
    world.settle();
    world.desired = ReleaseDesiredState { generation: 2, ..desired("2.0.0", "a") };
    world.desired.upgrade.remediation.remediate_last_failure = Some(true);
    world.desired.lifecycles.holds = vec![hold("a", &[Phase::Promote, Phase::PostRollback])];
    assert!(step(&mut world).contains("ask a at Promote"));
    world.answer(State::Failed);
    assert!(step(&mut world).contains("ask a at PostRollback"));
    world.answer(State::Succeeded);
    let told = step(&mut world);
    assert!(told.contains("stalled RetriesExceeded"), "{told}");
    assert!(world.asked.is_empty(), "no later run comes to delete it: {:?}", world.asked);
}

#[test]
fn nothing_begins_while_it_is_not_known_what_holds_it() {
    let mut world = held(Vec::new());
    world.desired.lifecycles.unknown = Some("cannot list".to_owned());
    assert_eq!(step(&mut world), " = blocked LifecyclesUnknown: cannot list");
    world.desired.lifecycles.unknown = None;
    world.settle();
    world.desired.lifecycles.unknown = Some("cannot list".to_owned());
    world.log.clear();
    assert!(step(&mut world).contains("settled"), "what is as it should be begins nothing");
    world.desired.deleted = true;
    assert_eq!(step(&mut world), " = blocked LifecyclesUnknown: cannot list");
}

#[test]
fn a_request_asks_anew_after_a_refusal() {
    let mut world = held(vec![hold("a", &[Phase::PreInstall])]);
    step(&mut world);
    world.answer(State::Failed);
    assert!(text(&world.settle()).starts_with("stalled RetriesExceeded"));
    let now = || Some("now".to_owned());
    world.desired.requests = Requests { reconcile: now(), reset: now(), ..Requests::default() };
    assert!(step(&mut world).contains("ask a at PreInstall"));
}

#[test]
fn a_crash_at_any_step_asks_nothing_twice() {
    let phases = [Phase::PreUpgrade, Phase::PostUpgrade, Phase::Promote];
    let world = || {
        let mut world = TestCluster::new(desired("1.0.0", "a"));
        world.settle();
        (world.steps, world.log) = (0, Vec::new());
        let lifecycles = Lifecycles { holds: vec![hold("a", &phases)], ..Lifecycles::default() };
        world.desired = ReleaseDesiredState { generation: 2, lifecycles, ..desired("2.0.0", "a") };
        world
    };
    let finish = |world: &mut TestCluster| {
        for _ in 0..20 {
            if let End::Rest(rest) = world.run()
                && rest.is_settled()
            {
                return text(&rest);
            }
            world.answer(State::Succeeded);
        }
        panic!("never settled: {:#?}", world.log);
    };
    let mut without = world();
    let wanted = finish(&mut without);
    let steps = without.steps;
    assert!(steps > 8, "{steps}");
    for at in 1..=steps {
        for is_done in [false, true] {
            let mut world = world();
            world.crash = Some((at, is_done));
            assert_eq!(finish(&mut world), wanted, "crash at {at}");
            assert!(world.asked.is_empty(), "crash at {at}: {:?}", world.asked);
            let asked = world.log.iter().filter(|it| it.starts_with("ask"));
            assert_eq!(asked.count(), phases.len(), "crash at {at}: {:#?}", world.log);
            assert_eq!(world.lives(), without.lives(), "crash at {at}");
        }
    }
}
