//! What an operation needs by what is seen, task by task. Whole operations are covered by recorded answers (`cargo
//! xtask conformance`).

use std::time::Duration;

use super::*;
use crate::journal::operation_id;
use crate::release_step::ReleaseStep;
use crate::revisions::ReleaseRevisions;
use crate::simulated_cluster::{hook, record};

fn journal(action: OperationKind) -> OperationJournal {
    let now = Time::UNIX_EPOCH;
    OperationJournal::begin(operation_id("web", 1, action, "", now), String::new(), action, now)
}

fn with_hooks() -> ReleaseRecord {
    let mut record = record(1, "1.0.0", "a", "pending-install");
    record.hooks = vec![
        hook("b", &["pre-install"], &["hook-succeeded"]),
        hook("a", &["pre-install", "test"], &[]),
        HookWeight(hook("z", &["pre-install"], &["odd"]), -1).into(),
        hook("d", &["pre-delete"], &[]),
    ];
    record
}

struct HookWeight(crate::record::HookRecord, i64);

impl From<HookWeight> for crate::record::HookRecord {
    fn from(HookWeight(hook, weight): HookWeight) -> Self {
        Self { weight, ..hook }
    }
}

/// What is due at a place, with a hook's object.
fn due(
    at: usize,
    uid: Option<&str>,
    object: Option<ObservedHookObject>,
    now: i64,
) -> OperationNextStep {
    let hook_uid = uid.map(str::to_owned);
    let journal = OperationJournal { at, hook_uid, ..journal(OperationKind::Install) };
    let live = ObservedLiveObjects { hook: object, ..ObservedLiveObjects::default() };
    let now = Time::from_second(now).unwrap();
    next(&journal, &with_hooks(), &ReleaseRevisions::default(), &live, None, None, now)
}

fn ours(health: ObservedHealth) -> Option<ObservedHookObject> {
    Some(ObservedHookObject::Ours { uid: "u".to_owned(), health })
}

#[test]
fn hooks_are_run_by_weight_then_name_and_cleared_as_they_ask() {
    let record = with_hooks();
    let clear = |hook, policy| OperationTask::Clear { hook, policy };
    let before = HookDeletePolicy::BeforeHookCreation;
    assert_eq!(
        tasks(&journal(OperationKind::Install), &record),
        [
            OperationTask::Start { hook: 2 },
            OperationTask::Run { hook: 2 },
            clear(1, before),
            OperationTask::Start { hook: 1 },
            OperationTask::Run { hook: 1 },
            OperationTask::Start { hook: 0 },
            OperationTask::Run { hook: 0 },
            clear(0, HookDeletePolicy::HookSucceeded),
            OperationTask::Apply,
            OperationTask::Await,
            OperationTask::Finish,
        ]
    );
    let mut test = journal(OperationKind::Test);
    test.plan.hooks = false;
    assert_eq!(
        tasks(&test, &record),
        [
            clear(1, before),
            OperationTask::Start { hook: 1 },
            OperationTask::Run { hook: 1 },
            OperationTask::Finish
        ]
    );
    test.plan.selected = Some(Vec::new());
    assert_eq!(tasks(&test, &record), [OperationTask::Finish]);
    let mut removal = journal(OperationKind::Uninstall);
    removal.plan.hooks = false;
    assert_eq!(
        tasks(&removal, &record),
        [
            OperationTask::Mark,
            OperationTask::Delete,
            OperationTask::AwaitGone,
            OperationTask::Purge
        ]
    );
    removal.plan.wait = ReleaseWaitPolicy::Nothing;
    removal.plan.keep_history = true;
    assert_eq!(
        tasks(&removal, &record),
        [
            OperationTask::Mark,
            OperationTask::Delete,
            OperationTask::Finish,
            OperationTask::Supersede
        ]
    );
}

#[test]
fn a_hook_of_this_operation_is_awaited_and_never_created_again() {
    let pending = ObservedHealth::Pending(vec!["Job/apps/z status: 'InProgress'".to_owned()]);
    let step = |next: OperationNextStep| match next {
        OperationNextStep::Do(ReleaseStep::Write(write)) => {
            match (&write.journal.failure, &write.journal.hook_uid) {
                (Some(failure), _) => format!("fail: {}", failure.text),
                (None, Some(uid)) => format!("remember {uid}"),
                (None, None) => format!("go to {}", write.journal.at),
            }
        }
        OperationNextStep::Do(ReleaseStep::CreateHook { .. }) => "create".to_owned(),
        OperationNextStep::Do(ReleaseStep::DeleteHook { .. }) => "delete".to_owned(),
        OperationNextStep::Do(other) => format!("{other:?}"),
        OperationNextStep::Wait(text, _) | OperationNextStep::Held(text, _) => text,
        OperationNextStep::Blind => "blind".to_owned(),
    };
    // Before the delay: a crash has left an object of this operation behind.
    assert_eq!(step(due(2, None, None, 0)), "blind");
    assert_eq!(step(due(2, None, Some(ObservedHookObject::Missing), 0)), "go to 4");
    assert_eq!(step(due(2, None, Some(ObservedHookObject::Theirs), 0)), "delete");
    assert_eq!(step(due(2, None, ours(pending.clone()), 0)), "go to 4");
    assert_eq!(step(due(2, None, Some(ObservedHookObject::Leaving), 0)), "waiting for Job/a");
    let late = "fail: failed pre-install: Job/a termination timeout: context deadline exceeded";
    assert_eq!(step(due(2, None, Some(ObservedHookObject::Leaving), 300)), late);
    // It is due.
    assert_eq!(step(due(1, None, None, 0)), "blind");
    assert_eq!(step(due(1, None, Some(ObservedHookObject::Missing), 0)), "create");
    assert_eq!(step(due(1, None, Some(ObservedHookObject::Theirs), 0)), "create");
    assert_eq!(step(due(1, None, ours(pending.clone()), 0)), "remember u");
    // It runs.
    let wait = "waiting for Job/apps/z status: 'InProgress'";
    assert_eq!(step(due(1, Some("u"), ours(pending.clone()), 299)), wait);
    let late = "fail: failed pre-install: timeout waiting for: [Job/apps/z status: 'InProgress']";
    assert_eq!(step(due(1, Some("u"), ours(pending.clone()), 300)), late);
    assert_eq!(step(due(1, Some("u"), ours(ObservedHealth::Done), 0)), "go to 2");
    let failed = ObservedHealth::Failed("no".to_owned());
    assert_eq!(step(due(1, Some("u"), ours(failed), 0)), "fail: failed pre-install: no");
    let unknown = "fail: failed pre-install: the result of hook Job/z is unknown: its object was deleted, and \
                   hooks are not run twice";
    assert_eq!(step(due(1, Some("u"), Some(ObservedHookObject::Missing), 0)), unknown);
    assert_eq!(step(due(1, Some("other"), ours(ObservedHealth::Done), 0)), unknown);
}

#[test]
fn an_operation_stops_early_only_where_nothing_is_half_done() {
    let record = with_hooks();
    let stopped = |at: usize, uid: Option<&str>, live: ObservedLiveObjects| {
        let hook_uid = uid.map(str::to_owned);
        let journal = OperationJournal { at, hook_uid, ..journal(OperationKind::Install) };
        let now = Time::UNIX_EPOCH;
        let next =
            next(&journal, &record, &ReleaseRevisions::default(), &live, None, Some("new"), now);
        let OperationNextStep::Do(ReleaseStep::Write(write)) = next else { return false };
        let Some(failure) = &write.journal.failure else { return false };
        assert!(!failure.counts);
        let of_hooks =
            write.changes.iter().filter(|it| !matches!(it, RecordContentChange::Status { .. }));
        let not_begun = match present(&journal, &record) {
            Some(OperationTask::Run { hook }) => Some(RecordContentChange::HookNotBegun { hook }),
            _ => None,
        };
        assert!(of_hooks.eq(&not_begun), "{:?}", write.changes);
        // Also before a hook, since no hook failed.
        failure.text == "new"
    };
    let hook = |hook: ObservedHookObject| ObservedLiveObjects {
        hook: Some(hook),
        ..ObservedLiveObjects::default()
    };
    let running = || ours(ObservedHealth::Pending(Vec::new())).unwrap();
    assert!(stopped(1, None, hook(ObservedHookObject::Missing)));
    assert!(!stopped(1, None, hook(running())));
    assert!(!stopped(1, Some("u"), hook(running())));
    assert!(!stopped(8, None, ObservedLiveObjects::default()), "objects are applied as a whole");
    assert!(stopped(
        9,
        None,
        ObservedLiveObjects {
            objects: Some(ObservedHealth::Pending(Vec::new())),
            ..ObservedLiveObjects::default()
        }
    ));
}

#[test]
fn a_wait_is_woken_by_what_it_waits_for_and_at_the_end_of_its_time() {
    let again = Time::from_second(5).unwrap();
    let on = [reconcile::ObjectKey::new("apps", "Deployment", "apps", "web")];
    let live = ObservedLiveObjects {
        objects: Some(ObservedHealth::Pending(vec![
            "Deployment/apps/web status: 'InProgress'".to_owned(),
        ])),
        on: on.clone().into(),
        ..ObservedLiveObjects::default()
    };
    let journal = OperationJournal { at: 9, ..journal(OperationKind::Install) };
    let wake = |live: &ObservedLiveObjects| match next(
        &journal,
        &with_hooks(),
        &ReleaseRevisions::default(),
        live,
        None,
        None,
        Time::UNIX_EPOCH,
    ) {
        OperationNextStep::Wait(_, wake) => wake,
        other => panic!("{other:?}"),
    };
    let deadline = Time::UNIX_EPOCH + Duration::from_secs(300);
    assert_eq!(wake(&live), reconcile::NextRunTrigger::on(on.clone()).and_at(deadline));
    assert_eq!(wake(&ObservedLiveObjects { again: Some(again), ..live.clone() }).at, Some(again));
}

#[test]
fn a_hook_that_kubernetes_deletes_is_noted_before_it_is_created() {
    let mut record = with_hooks();
    record.hooks[2].manifest = "spec:\n  ttlSecondsAfterFinished: 0\n".to_owned();
    let due = |hook_begun: bool, hook_watched: bool| {
        let journal = OperationJournal { at: 1, hook_begun, ..journal(OperationKind::Install) };
        let hook = Some(ObservedHookObject::Missing);
        let live = ObservedLiveObjects { hook, hook_watched, ..ObservedLiveObjects::default() };
        let revisions = ReleaseRevisions::default();
        match next(&journal, &record, &revisions, &live, None, None, Time::UNIX_EPOCH) {
            OperationNextStep::Do(ReleaseStep::Write(write)) if write.journal.hook_begun => "note",
            OperationNextStep::Do(ReleaseStep::Write(write)) if write.journal.failure.is_some() => {
                "fail"
            }
            OperationNextStep::Do(ReleaseStep::CreateHook { .. }) => "create",
            _ => "else",
        }
    };
    assert_eq!(due(false, true), "note");
    assert_eq!(due(true, true), "create");
    assert_eq!(due(true, false), "fail");
    // A hook that cannot be watched is created nevertheless.
    assert_eq!(due(false, false), "create");
}

#[test]
fn objects_that_an_apply_took_over_are_remembered_whether_it_failed_or_not() {
    let record = with_hooks();
    let installation = journal(OperationKind::Install);
    let all = tasks(&installation, &record);
    let at = all.iter().position(|it| *it == OperationTask::Apply).unwrap();
    let begun = OperationJournal { at, ..installation };
    let due = |outcome: Option<&StepOutcome>| {
        let revisions = ReleaseRevisions::default();
        let live = ObservedLiveObjects::default();
        next(&begun, &record, &revisions, &live, outcome, None, Time::UNIX_EPOCH)
    };
    let OperationNextStep::Do(apply) = due(None) else { panic!("nothing is due") };
    let adopted = vec!["apps_web__Service".to_owned()];
    for error in [None, Some("rejected".to_owned())] {
        let outcome = StepOutcome { adopted: adopted.clone(), error, ..StepOutcome::of(&apply) };
        let OperationNextStep::Do(ReleaseStep::Write(write)) = due(Some(&outcome)) else {
            panic!("the journal is not written")
        };
        assert_eq!(write.journal.adopted, adopted);
    }
}
