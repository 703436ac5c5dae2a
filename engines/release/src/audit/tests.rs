//! What audits report of operations, by their journals.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::journal::{CompletedTask, OperationFailure};
use crate::operation_origin::{AnnotationRequest, OperationOrigin};
use crate::record::{HookRunRecord, SUCCEEDED};
use crate::revisions::ReleaseRevision;
use crate::simulated_cluster::{hook, record};

fn at(seconds: u64) -> Time {
    Time::UNIX_EPOCH.saturating_add(Duration::from_secs(seconds)).unwrap()
}

fn origin(generation: i64, revision: &str, values: &str) -> OperationOrigin {
    let values = BTreeMap::from([("Secret/apps/values".to_owned(), values.to_owned())]);
    OperationOrigin {
        generation,
        manager: "kubectl".to_owned(),
        request: None,
        rollback: None,
        source: "HelmChart/apps/web".to_owned(),
        revision: revision.to_owned(),
        values,
    }
}

fn journal(action: OperationKind, origin: OperationOrigin) -> OperationJournal {
    let apply = CompletedTask {
        task: TimedTaskKind::Apply,
        started: at(103),
        ended: at(104),
        failed: false,
    };
    OperationJournal {
        base: Some(1),
        origin,
        passed: vec![apply],
        ended: Some(at(110)),
        ..OperationJournal::begin("web.v2.0".to_owned(), "uid".to_owned(), action, at(100))
    }
}

/// The audit of an operation on revision 2, after the first one.
fn audited(
    before: (ReleaseRecord, Option<OperationJournal>),
    after: ReleaseRecord,
    journal: &OperationJournal,
) -> ReleaseAudit {
    let before = ReleaseRevision { record: Arc::new(before.0), journal: before.1 };
    let last = ReleaseRevision { record: Arc::new(after), journal: Some(journal.clone()) };
    let record = last.record.clone();
    of(&ReleaseRevisions::new(vec![before, last], Vec::new()), &record, journal, at(200))
}

fn first(values: &str) -> (ReleaseRecord, Option<OperationJournal>) {
    let begun =
        OperationJournal { base: None, ..journal(OperationKind::Install, origin(1, "1.0.0", "7")) };
    (record(1, "1.0.0", values, "superseded"), Some(begun))
}

#[test]
fn an_upgrade_is_caused_by_what_differs_from_the_one_before() {
    let values =
        OperationCause::Values { object: "Secret/apps/values".to_owned(), version: "8".to_owned() };
    let source = OperationCause::Source {
        object: "HelmChart/apps/web".to_owned(),
        revision: "1.1.0".to_owned(),
    };
    let spec = OperationCause::Spec { generation: 2, manager: "kubectl".to_owned() };
    for (chart, config, begun, causes) in [
        ("1.0.0", "b", origin(1, "1.0.0", "8"), vec![values.clone()]),
        ("1.1.0", "a", origin(1, "1.1.0", "7"), vec![source.clone()]),
        // A Secret that was written again with the same values asks for nothing.
        ("1.1.0", "a", origin(1, "1.1.0", "8"), vec![source.clone()]),
        ("1.0.0", "b", origin(2, "1.0.0", "7"), vec![spec.clone()]),
        ("1.1.0", "b", origin(2, "1.1.0", "8"), vec![source, values, spec.clone()]),
    ] {
        let journal = journal(OperationKind::Upgrade, begun);
        let audit = audited(first("a"), record(2, chart, config, "deployed"), &journal);
        assert_eq!(audit.causes, causes);
    }
    let unknown = (record(1, "1.0.0", "a", "superseded"), None);
    let journal = journal(OperationKind::Upgrade, origin(2, "1.0.0", "7"));
    let audit = audited(unknown, record(2, "1.0.0", "b", "deployed"), &journal);
    assert_eq!(audit.causes, [spec], "another client created the previous revision");
}

#[test]
fn requests_and_failures_are_causes() {
    let asked = |at: &str| AnnotationRequest {
        at: at.to_owned(),
        manager: "windlass".to_owned(),
        user: "alice".to_owned(),
        reason: "incident-1234".to_owned(),
    };
    let begun = OperationOrigin { request: Some(asked("now")), ..origin(1, "1.0.0", "7") };
    let forced = OperationJournal { failures: 3, ..journal(OperationKind::Upgrade, begun) };
    let audit = audited(first("a"), record(2, "1.0.0", "a", "deployed"), &forced);
    assert_eq!(audit.causes, [OperationCause::Request(asked("now")), OperationCause::Failure]);
    let rolled = journal(OperationKind::Rollback, origin(1, "1.0.0", "7"));
    let audit = audited(first("a"), record(2, "1.0.0", "a", "deployed"), &rolled);
    assert_eq!(audit.causes, [OperationCause::Failure]);
    let begun = OperationOrigin { rollback: Some(asked("2->1")), ..origin(1, "1.0.0", "7") };
    let rolled = journal(OperationKind::Rollback, begun);
    let audit = audited(first("a"), record(2, "1.0.0", "a", "deployed"), &rolled);
    assert_eq!(audit.causes, [OperationCause::Request(asked("2->1"))], "a person asked for it");
}

#[test]
fn an_audit_tells_from_where_to_where_and_what_to_compare() {
    let upgrade = journal(OperationKind::Upgrade, origin(2, "1.1.0", "7"));
    let audit = audited(first("a"), record(2, "1.1.0", "a", "deployed"), &upgrade);
    let place = |made: &Option<AuditedRevision>| {
        made.as_ref().map(|it| (it.revision, it.chart_version.clone()))
    };
    assert_eq!(place(&audit.from), Some((1, "1.0.0".to_owned())));
    assert_eq!(place(&audit.to), Some((2, "1.1.0".to_owned())));
    let span = audit.span.unwrap();
    assert_eq!((span.before.unwrap().version, span.after.unwrap().version), (1, 2));
    assert!(!span.partial && span.adopted.is_empty());
    assert_eq!((audit.outcome, audit.error), (OperationOutcome::Succeeded, None));
    let removal = OperationJournal {
        ended: None,
        ..journal(OperationKind::Uninstall, origin(2, "1.1.0", "7"))
    };
    let audit = audited(first("a"), record(2, "1.1.0", "a", "uninstalling"), &removal);
    assert_eq!((place(&audit.from).unwrap().0, audit.to.is_none()), (2, true));
    assert_eq!(audit.ended, at(200), "its records are still to be deleted");
    assert!(audit.span.unwrap().after.is_none());
    let test = journal(OperationKind::Test, origin(2, "1.1.0", "7"));
    let audit = audited(first("a"), record(2, "1.1.0", "a", "deployed"), &test);
    assert!(audit.span.is_none(), "tests change no object of a release");
}

#[test]
fn an_audit_tells_which_objects_were_taken_over() {
    let adopted = vec!["apps_web__Service".to_owned()];
    let journal = OperationJournal {
        base: None,
        adopted: adopted.clone(),
        ..journal(OperationKind::Install, origin(1, "1.0.0", "7"))
    };
    let audit = audited(first("a"), record(2, "1.0.0", "a", "deployed"), &journal);
    assert_eq!(audit.span.map(|it| it.adopted), Some(adopted));
}

#[test]
fn what_is_not_gone_at_the_end_of_a_removal_is_not_all_removed() {
    let begun = journal(OperationKind::Uninstall, origin(2, "1.1.0", "7"));
    let release = record(2, "1.1.0", "a", "uninstalling");
    let tasks = operation::tasks(&begun, &release);
    let delete = tasks.iter().position(|it| *it == OperationTask::Delete).unwrap();
    let partial = |failed_at: Option<usize>, faults: &[&str]| {
        let failure = failed_at.map(|at| {
            let text = "failed".to_owned();
            OperationFailure { at, hook_ended: false, text, counts: true }
        });
        let faults = faults.iter().map(|&it| it.to_owned()).collect();
        let journal = OperationJournal { failure, faults, ..begun.clone() };
        audited(first("a"), release.clone(), &journal).span.map(|it| it.partial)
    };
    assert_eq!(partial(None, &[]), Some(false));
    assert_eq!(partial(None, &["not gone"]), Some(true));
    assert_eq!(partial(Some(delete), &[]), Some(true));
    assert_eq!(partial(Some(delete + 2), &["hook"]), Some(false), "a hook after it failed");
    assert_eq!(partial(Some(delete + 2), &["not gone", "hook"]), Some(true));
}

#[test]
fn what_failed_before_objects_were_written_changed_none() {
    let mut hooked = record(2, "1.1.0", "a", "failed");
    hooked.hooks = vec![hook("migrate", &["pre-upgrade"], &[])];
    let fail = |at: usize, counts: bool| {
        let failure =
            OperationFailure { at, hook_ended: false, text: "rejected".to_owned(), counts };
        OperationJournal {
            failure: Some(failure),
            ..journal(OperationKind::Upgrade, origin(2, "1.1.0", "7"))
        }
    };
    // Clear, Start and Run of the hook come first.
    let audit = audited(first("a"), hooked.clone(), &fail(2, true));
    assert!(audit.span.is_none());
    assert_eq!(
        (audit.outcome, audit.error.as_deref()),
        (OperationOutcome::Failed, Some("rejected"))
    );
    let audit = audited(first("a"), hooked.clone(), &fail(3, true));
    assert!(audit.span.unwrap().partial);
    let audit = audited(first("a"), hooked, &fail(4, false));
    assert!(!audit.span.unwrap().partial, "it failed while it waited");
    assert_eq!(audit.outcome, OperationOutcome::Stopped);
}

#[test]
fn hooks_and_steps_are_listed_in_the_order_of_their_beginning() {
    let ran = |started: u64, ended: Option<u64>, phase: &str| HookRunRecord {
        started: Some(GoTimestamp::new(at(started))),
        completed: ended.map(|ended| GoTimestamp::new(at(ended))),
        phase: phase.to_owned(),
    };
    let mut made = record(2, "1.1.0", "a", "deployed");
    made.hooks = vec![
        HookRecord { last_run: ran(105, None, "Running"), ..hook("after", &["post-upgrade"], &[]) },
        HookRecord {
            last_run: ran(101, Some(102), SUCCEEDED),
            ..hook("before", &["pre-upgrade"], &[])
        },
        // It ran when the release was installed.
        HookRecord {
            last_run: ran(20, Some(21), FAILED),
            ..hook("old", &["pre-install", "pre-upgrade"], &[])
        },
        hook("never", &["post-upgrade"], &[]),
    ];
    let journal = journal(OperationKind::Upgrade, origin(2, "1.1.0", "7"));
    let audit = audited(first("a"), made, &journal);
    let shown: Vec<String> = audit
        .steps
        .iter()
        .map(|it| format!("{} {:?} {:?}", it.name, it.hook, it.ended.map(Time::as_second)))
        .collect();
    assert_eq!(
        shown,
        [
            "pre-upgrade Some(\"Job/before\") Some(102)",
            "Apply None Some(104)",
            "post-upgrade Some(\"Job/after\") None",
        ]
    );
    let many = |count: usize| {
        let mut made = record(2, "1.1.0", "a", "deployed");
        let one = || HookRecord {
            last_run: ran(101, Some(102), SUCCEEDED),
            ..hook("h", &["pre-upgrade"], &[])
        };
        made.hooks = (0..count).map(|_| one()).collect();
        made
    };
    let audit = audited(first("a"), many(100), &journal);
    assert_eq!((audit.steps.len(), audit.omitted_steps), (64, 37));
}
