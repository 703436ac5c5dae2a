//! What a person sees in `kubectl describe`, from the outcome of a run.

use expect_test::{Expect, expect};
use reconcile::NextRunTrigger;
use serde_json::{Value, json};

use super::*;

fn time(second: i64) -> Time {
    Time::from_second(1_790_000_000 + second).unwrap()
}

/// When the wait for health began, as the status of an object records it.
fn begun(object: &Kustomization) -> Option<Time> {
    waiting(object)?.since(condition_reason::PROGRESSING, "main@sha1:abc")
}

fn kustomization(status: impl serde::Serialize) -> Kustomization {
    serde_json::from_value(json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": "app", "namespace": "shop", "generation": 3},
        "spec": {"interval": "10m", "prune": true, "wait": true,
            "sourceRef": {"kind": "GitRepository", "name": "app"}},
        "status": status,
    }))
    .unwrap()
}

fn run<'a>(
    outcome: &'a RunOutcome,
    changes: &'a [(ObjectId, Action)],
) -> KustomizationReportInputs<'a> {
    KustomizationReportInputs {
        announcement: FailureAnnouncement::Made,
        outcome,
        revision: "main@sha1:abc",
        origin_revision: "",
        digest: Some("sha256:123"),
        facts: None,
        quarantine: None,
        wave: None,
        changes,
        warnings: &[],
        deletion: &DeletionReport::AsBefore,
        has_health: true,
        began: time(0),
        now: time(2),
        interval: Duration::from_secs(600),
    }
}

fn check(status: Value, outcome: &RunOutcome, changes: &[(ObjectId, Action)], expected: &Expect) {
    let object = kustomization(status);
    let report = report(&object, &run(outcome, changes));
    let mut lines: Vec<String> = conditions_of(&report.after.conditions)
        .iter()
        .map(|c| format!("{}={:?} {}: {}", c.kind, c.status, c.reason, c.message))
        .collect();
    let after = json!(report.after);
    lines.push(format!("observedGeneration {}", after["observedGeneration"]));
    lines.push(format!("lastAppliedRevision {}", after["lastAppliedRevision"]));
    for event in &report.events {
        lines.push(format!("event {:?} {}: {}", event.severity, event.reason, event.message));
    }
    expected.assert_eq(&lines.join("\n"));
}

fn changes() -> Vec<(ObjectId, Action)> {
    vec![(ObjectId::new("shop", "web", "apps", "Deployment"), Action::Created)]
}

fn settled() -> RunOutcome {
    RunOutcome::Settled(
        condition_reason::RECONCILIATION_SUCCEEDED,
        "Applied revision: main@sha1:abc".to_owned(),
    )
}

#[test]
fn a_first_success_is_ready_observed_and_an_event() {
    check(
        json!({"observedGeneration": -1}),
        &settled(),
        &changes(),
        &expect![[r#"
            Ready=True ReconciliationSucceeded: Applied revision: main@sha1:abc
            Healthy=True Succeeded: Health check passed in 2s
            observedGeneration 3
            lastAppliedRevision "main@sha1:abc"
            event Info Progressing: Deployment/shop/web created
            event Info Progressing: Health check passed in 2s
            event Info ReconciliationSucceeded: Reconciliation finished in 2s, next run in 10m0s"#]],
    );
}

#[test]
fn a_deletion_that_is_held_is_a_condition_and_one_event_until_nothing_is_held() {
    let outcome = settled();
    let held = |text: &str, is_new| DeletionReport::Held { text: text.to_owned(), is_new };
    let message = |status: &KustomizationStatus| {
        let all = conditions_of(&status.conditions);
        StatusCondition::find(&all, DELETION_HELD).map(|it| it.message.clone())
    };
    let judged = |status: Value, deletion: &DeletionReport, outcome: &RunOutcome| {
        let run = KustomizationReportInputs { deletion, ..run(outcome, &[]) };
        let done = report(&kustomization(status), &run);
        let events = done.events.iter().filter(|it| it.reason == DELETION_HELD).count();
        (done.after, events)
    };
    let (first, events) = judged(json!({}), &held("12 objects", true), &outcome);
    assert_eq!((message(&first).as_deref(), events), (Some("12 objects"), 1));
    let (second, events) = judged(json!(first), &held("12 objects", false), &outcome);
    assert_eq!((message(&second).as_deref(), events), (Some("12 objects"), 0), "one event per set");
    let (third, events) = judged(json!(second), &held("13 objects", true), &outcome);
    assert_eq!((message(&third).as_deref(), events), (Some("13 objects"), 1));
    let failed = RunOutcome::Failed(
        condition_reason::BUILD_FAILED,
        "no file".to_owned(),
        NextRunTrigger::default(),
    );
    let (fourth, _) = judged(json!(third), &DeletionReport::AsBefore, &failed);
    assert_eq!(message(&fourth).as_deref(), Some("13 objects"));
    let (_, during) = progress(
        &kustomization(&fourth),
        &ObjectInventory::default(),
        InventoryWriteProgress::Applying("b"),
        time(1),
    );
    assert_eq!(message(&during).as_deref(), Some("13 objects"));
    let (last, events) = judged(json!(during), &DeletionReport::Free, &outcome);
    assert_eq!((message(&last), events), (None, 0));
}

#[test]
fn deletions_are_counted_in_the_history_with_the_inventory_that_loses_them() {
    let outcome = settled();
    let first = report(&kustomization(json!({})), &run(&outcome, &changes())).after;
    let shrunk = InventoryWriteProgress::Deleted(4);
    let (_, after) = progress(&kustomization(first), &ObjectInventory::default(), shrunk, time(5));
    let recent = |status: &KustomizationStatus| {
        let counts = deletion_counts::recorded(&kustomization(status));
        counts.unwrap().within_hour(time(10))
    };
    assert_eq!(recent(&after), 4);
    let next = KustomizationReportInputs { digest: Some("sha256:456"), ..run(&outcome, &[]) };
    let after = report(&kustomization(after), &next).after;
    assert_eq!((recent(&after), after.history.len()), (4, 2), "another build keeps the counts");
}

#[test]
fn a_wave_that_is_not_open_is_a_condition_until_it_is() {
    let said = |status: &KustomizationStatus| {
        let all = conditions_of(&status.conditions);
        StatusCondition::find(&all, WAVE).map(|condition| condition.message.clone())
    };
    let outcome = settled();
    let pinned = KustomizationReportInputs { wave: Some("wave 2"), ..run(&outcome, &[]) };
    let after = report(&kustomization(json!({})), &pinned).after;
    assert_eq!(said(&after).as_deref(), Some("wave 2"));
    let after = report(&kustomization(json!(after)), &run(&outcome, &[])).after;
    assert_eq!(said(&after), None);
}

#[test]
fn what_was_left_out_is_a_condition_until_all_is_applied() {
    let warnings = ["ConfigMap/shop/a: its kind has no field dat".to_owned()];
    let said = |status: &KustomizationStatus| {
        let all = conditions_of(&status.conditions);
        StatusCondition::find(&all, WARNINGS).map(|condition| condition.message.clone())
    };
    let outcome = settled();
    let first = KustomizationReportInputs { warnings: &warnings, ..run(&outcome, &[]) };
    let after = report(&kustomization(json!({})), &first).after;
    assert_eq!(said(&after).as_ref(), warnings.first());
    let failed = RunOutcome::Failed(
        condition_reason::BUILD_FAILED,
        "no file".to_owned(),
        NextRunTrigger::default(),
    );
    let after = report(&kustomization(after), &run(&failed, &[])).after;
    assert_eq!(said(&after).as_ref(), warnings.first());
    let (_, after) = progress(
        &kustomization(after),
        &ObjectInventory::default(),
        InventoryWriteProgress::Applying("b"),
        time(1),
    );
    assert_eq!(said(&after).as_ref(), warnings.first());
    let after = report(&kustomization(after), &run(&outcome, &[])).after;
    assert_eq!(said(&after), None);
}

#[test]
fn a_run_that_changes_nothing_writes_nothing_and_tells_nothing() {
    let first = report(&kustomization(json!({})), &run(&settled(), &changes()));
    let object = kustomization(first.after);
    let second = report(&object, &run(&settled(), &[]));
    assert_eq!(second.before, second.after);
    assert_eq!(second.events, Vec::new());
}

#[test]
fn a_wait_is_unknown_and_keeps_its_beginning() {
    let text = "Running health checks for revision main@sha1:abc with a timeout of 5m0s";
    let waiting = RunOutcome::Running(
        condition_reason::PROGRESSING,
        text.to_owned(),
        NextRunTrigger::at(time(300)),
    );
    check(
        json!({"observedGeneration": 2, "lastAppliedRevision": "main@sha1:old"}),
        &waiting,
        &[],
        &expect![[r#"
            Reconciling=True Progressing: Running health checks for revision main@sha1:abc with a timeout of 5m0s
            Ready=Unknown Progressing: Running health checks for revision main@sha1:abc with a timeout of 5m0s
            Healthy=Unknown Progressing: Running health checks for revision main@sha1:abc with a timeout of 5m0s
            observedGeneration 2
            lastAppliedRevision "main@sha1:old""#]],
    );
    let first = report(&kustomization(json!({})), &run(&waiting, &[]));
    let later = KustomizationReportInputs { now: time(100), ..run(&waiting, &[]) };
    let second = report(&kustomization(first.after), &later);
    assert_eq!(begun(&kustomization(second.after)), Some(time(2)));
}

#[test]
fn a_wait_of_another_generation_does_not_count_as_the_beginning() {
    let text = "Running health checks for revision main@sha1:abc with a timeout of 5m0s";
    let waiting = RunOutcome::Running(
        condition_reason::PROGRESSING,
        text.to_owned(),
        NextRunTrigger::at(time(300)),
    );
    let first = report(&kustomization(json!({})), &run(&waiting, &[]));
    let mut edited = kustomization(first.after);
    assert_eq!(begun(&edited), Some(time(2)));
    edited.meta_mut().generation = Some(4);
    assert_eq!(begun(&edited), None);
    let later = KustomizationReportInputs { now: time(250), ..run(&waiting, &[]) };
    let mut second = kustomization(report(&edited, &later).after);
    second.meta_mut().generation = Some(4);
    assert_eq!(begun(&second), Some(time(250)));
    // An announcement in the middle of a run begins it, too.
    let announced = InventoryWriteProgress::Awaiting("main@sha1:abc", text);
    let (_, after) = progress(&edited, &ObjectInventory::default(), announced, time(260));
    let mut third = kustomization(after);
    third.meta_mut().generation = Some(4);
    assert_eq!(begun(&third), Some(time(260)));
}

#[test]
fn a_wait_is_known_by_reason_and_revision_and_not_by_its_words() {
    let text = "Running health checks for revision main@sha1:abc with a timeout of 5m0s";
    let resting = |why| RunOutcome::Running(why, text.to_owned(), NextRunTrigger::at(time(300)));
    let wait_of = |outcome: &RunOutcome| {
        let mut object = kustomization(report(&kustomization(json!({})), &run(outcome, &[])).after);
        for condition in &mut object.status.as_mut().unwrap().conditions {
            condition.message = "in other words".to_owned();
        }
        waiting(&object).unwrap()
    };
    let health = wait_of(&resting(condition_reason::PROGRESSING));
    assert_eq!(health.since(condition_reason::PROGRESSING, "main@sha1:abc"), Some(time(2)));
    assert_eq!(health.since(condition_reason::PROGRESSING, "main@sha1:def"), None);
    assert_eq!(health.since(AWAITING_TERMINATION, "main@sha1:abc"), None);
    let end = wait_of(&resting(AWAITING_TERMINATION));
    assert_eq!(end.since(AWAITING_TERMINATION, ""), Some(time(2)));
}

#[test]
fn a_build_counts_as_applied_only_at_its_own_revision_and_generation() {
    let object =
        kustomization(report(&kustomization(json!({})), &run(&settled(), &changes())).after);
    assert!(was_applied(&object, "main@sha1:abc", "sha256:123"));
    assert!(!was_applied(&object, "main@sha1:def", "sha256:123"));
    assert!(!was_applied(&object, "main@sha1:abc", "sha256:456"));
    let mut edited = object;
    edited.meta_mut().generation = Some(4);
    assert!(!was_applied(&edited, "main@sha1:abc", "sha256:123"));
}

/// Digests of builds, and how attempts at them ended.
type AttemptDigests<'a> = &'a [(&'a str, &'a RunOutcome)];

#[test]
fn only_the_success_of_the_newest_attempt_tells_what_is_live() {
    let failed = RunOutcome::Failed(
        condition_reason::RECONCILIATION_FAILED,
        "no".to_owned(),
        NextRunTrigger::default(),
    );
    let waiting = RunOutcome::Running(
        condition_reason::PROGRESSING,
        "waiting".to_owned(),
        NextRunTrigger::default(),
    );
    let stopped = RunOutcome::Blocked(
        condition_reason::SUSPENDED,
        "suspended".to_owned(),
        NextRunTrigger::default(),
    );
    let settled = settled();
    let first = "sha256:123";
    let second = "sha256:456";
    // The attempts one after the other, all at one revision: whether the first and the second build count as applied.
    let table: [(&str, AttemptDigests<'_>, [bool; 2]); 8] = [
        ("a refused build", &[(second, &failed)], [false, false]),
        ("a refusal after a success", &[(first, &settled), (second, &failed)], [false, false]),
        ("drift that is refused", &[(first, &settled), (first, &failed)], [false, false]),
        ("a later success", &[(first, &settled), (second, &settled)], [false, true]),
        ("a wait", &[(first, &settled), (second, &waiting)], [false, false]),
        ("a stopped attempt", &[(first, &settled), (second, &stopped)], [false, false]),
        ("a way back", &[(second, &settled), (first, &failed), (second, &settled)], [false, true]),
        ("twice", &[(first, &settled), (first, &settled)], [true, false]),
    ];
    for (name, attempts, expected) in table {
        let mut object = kustomization(json!({}));
        for (digest, outcome) in attempts {
            // A build of which nothing is to be changed is live, too.
            let run = KustomizationReportInputs { digest: Some(*digest), ..run(outcome, &[]) };
            object = kustomization(report(&object, &run).after);
        }
        let found = [first, second].map(|digest| was_applied(&object, "main@sha1:abc", digest));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_wait_that_was_suspended_or_is_of_another_revision_leaves_nothing_applied() {
    let changes = changes();
    let settled_first = report(&kustomization(json!({})), &run(&settled(), &changes)).after;
    let waiting = RunOutcome::Running(
        condition_reason::PROGRESSING,
        "waiting".to_owned(),
        NextRunTrigger::default(),
    );
    let second =
        KustomizationReportInputs { digest: Some("sha256:456"), ..run(&waiting, &changes) };
    let after = report(&kustomization(settled_first.clone()), &second).after;
    let mut suspended = after.clone();
    for condition in &mut suspended.conditions {
        if condition.type_ == "Ready" {
            (condition.status, condition.reason) = ("False".to_owned(), "Suspended".to_owned());
        }
    }
    suspended.conditions.retain(|it| it.type_ == "Ready");
    assert!(!was_applied(&kustomization(suspended), "main@sha1:abc", "sha256:123"));
    let elsewhere = KustomizationReportInputs { revision: "main@sha1:def", ..second };
    let mut blocked = report(&kustomization(settled_first), &elsewhere).after;
    blocked.conditions.clear();
    assert!(!was_applied(&kustomization(blocked), "main@sha1:abc", "sha256:123"));
}

#[test]
fn a_failure_is_reported_once() {
    let failed = RunOutcome::Failed(
        condition_reason::BUILD_FAILED,
        "a.yaml:3: nonsense".to_owned(),
        NextRunTrigger::at(time(60)),
    );
    check(
        json!({"observedGeneration": 2, "lastAppliedRevision": "main@sha1:old"}),
        &failed,
        &[],
        &expect![[r#"
            Reconciling=True ProgressingWithRetry: a.yaml:3: nonsense
            Ready=False BuildFailed: a.yaml:3: nonsense
            observedGeneration 2
            lastAppliedRevision "main@sha1:old"
            event Error BuildFailed: a.yaml:3: nonsense"#]],
    );
    let first = report(&kustomization(json!({})), &run(&failed, &[]));
    let object = kustomization(first.after);
    assert_eq!(report(&object, &run(&failed, &[])).events, Vec::new());
    // The process that reported it may have ended before it sent the event.
    let announcement = FailureAnnouncement::Due;
    let after_takeover = KustomizationReportInputs { announcement, ..run(&failed, &[]) };
    assert_eq!(report(&object, &after_takeover).events, first.events);
}

#[test]
fn that_a_source_has_nothing_yet_is_no_event() {
    let text = "source 'GitRepository/apps/new' has no artifact yet".to_owned();
    check(
        json!({}),
        &RunOutcome::Blocked(condition_reason::ARTIFACT_FAILED, text, NextRunTrigger::at(time(60))),
        &[],
        &expect![[r#"
            Reconciling=True ProgressingWithRetry: source 'GitRepository/apps/new' has no artifact yet
            Ready=False ArtifactFailed: source 'GitRepository/apps/new' has no artifact yet
            observedGeneration null
            lastAppliedRevision null"#]],
    );
}

#[test]
fn a_revision_that_changes_nothing_of_ours_is_one_status_write_and_one_event() {
    let first = report(&kustomization(json!({})), &run(&settled(), &changes()));
    let object = kustomization(first.after);
    let outcome = RunOutcome::Settled(
        condition_reason::RECONCILIATION_SUCCEEDED,
        "Applied revision: main@sha1:def".to_owned(),
    );
    let moved = KustomizationReportInputs { revision: "main@sha1:def", ..run(&outcome, &[]) };
    let second = report(&object, &moved);
    assert_eq!(second.after.last_applied_revision.as_deref(), Some("main@sha1:def"));
    let [event] = &*second.events else { panic!("{:?}", second.events) };
    assert_eq!(event.message, "Reconciliation finished in 2s, next run in 10m0s");
    assert_eq!(event.metadata, facts_of(&["commit_status=update", "revision=main@sha1:def"]));
    // The commit's state was set by the event before.
    let third = report(
        &kustomization(second.after),
        &KustomizationReportInputs { began: time(100), now: time(101), ..moved },
    );
    assert_eq!((third.before == third.after, third.events), (true, Vec::new()));
}

fn facts_of(pairs: &[&str]) -> BTreeMap<String, String> {
    let pair = |pair: &&str| {
        let (key, value) = pair.split_once('=').unwrap();
        (format!("kustomize.toolkit.fluxcd.io/{key}"), value.to_owned())
    };
    pairs.iter().map(pair).collect()
}

#[test]
fn what_is_applied_deleted_and_found_healthy_are_events_of_their_own() {
    let mut changes = changes();
    changes.push((ObjectId::new("shop", "old", "", "ConfigMap"), Action::Deleted));
    changes.push((ObjectId::new("shop", "web", "", "Service"), Action::Configured));
    let events = |status: Value, outcome: &RunOutcome, changes: &[(ObjectId, Action)]| {
        let events = report(&kustomization(status), &run(outcome, changes)).events;
        events.into_iter().map(|it| format!("{}: {}", it.reason, it.message)).collect::<Vec<_>>()
    };
    let finished = "ReconciliationSucceeded: Reconciliation finished in 2s, next run in 10m0s";
    assert_eq!(
        events(json!({}), &settled(), &changes),
        [
            "Progressing: Deployment/shop/web created\nService/shop/web configured",
            "Progressing: ConfigMap/shop/old deleted",
            "Progressing: Health check passed in 2s",
            finished,
        ]
    );
    // An object that was healthy and is corrected at the same revision is not reported as healthy again.
    let after = report(&kustomization(json!({})), &run(&settled(), &changes)).after;
    assert_eq!(
        events(json!(after), &settled(), &changes[2..]),
        ["Progressing: Service/shop/web configured", finished]
    );
    let waiting = RunOutcome::Running(
        condition_reason::PROGRESSING,
        "waiting".to_owned(),
        NextRunTrigger::at(time(300)),
    );
    assert_eq!(
        events(json!({}), &waiting, &changes[1..2]),
        ["Progressing: ConfigMap/shop/old deleted"]
    );
}

#[test]
fn the_revision_of_the_sources_origin_is_in_status_history_and_events() {
    let outcome = settled();
    let first =
        KustomizationReportInputs { origin_revision: "main@sha1:origin", ..run(&outcome, &[]) };
    let first = report(&kustomization(json!({})), &first);
    assert_eq!(first.after.last_applied_origin_revision.as_deref(), Some("main@sha1:origin"));
    let metadata = json!({"revision": "main@sha1:abc", "originRevision": "main@sha1:origin"});
    assert_eq!(json!(first.after.history[0].metadata), metadata);
    for event in &first.events {
        assert_eq!(
            event.metadata["kustomize.toolkit.fluxcd.io/originRevision"],
            "main@sha1:origin"
        );
    }
    let gone = finalized(&kustomization(first.after.clone()), &changes());
    let expected = facts_of(&["revision=main@sha1:abc", "originRevision=main@sha1:origin"]);
    assert_eq!(gone[0].metadata, expected);
    // Another source may not say.
    let second = report(&kustomization(first.after), &run(&outcome, &[]));
    assert_eq!(second.after.last_applied_origin_revision, None);
}

#[test]
fn a_run_that_waits_for_dependencies_has_not_attempted_the_revision() {
    let text = "dependency 'shop/base' is not ready".to_owned();
    let why = condition_reason::DEPENDENCY_NOT_READY;
    let outcome = RunOutcome::Blocked(why, text, NextRunTrigger::default());
    let attempted = |status: Value| {
        report(&kustomization(status), &run(&outcome, &[])).after.last_attempted_revision
    };
    assert_eq!(attempted(json!({})), None);
    let before = attempted(json!({"lastAttemptedRevision": "main@sha1:def"}));
    assert_eq!(before.as_deref(), Some("main@sha1:def"));
}

#[test]
fn phases_are_reported_of_what_is_new_and_of_nothing_else() {
    let status = |ready: &str, healthy: &str, generation: i64| {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Progressing", "message": "",
                "observedGeneration": generation, "lastTransitionTime": "2026-11-01T00:00:00Z"})
        };
        kustomization(json!({"lastAttemptedRevision": "main@sha1:abc",
            "conditions": [condition("Ready", ready), condition("Healthy", healthy)]}))
    };
    let new = |object: &Kustomization| is_new(object, "main@sha1:abc");
    assert!(is_new(&status("True", "True", 3), "main@sha1:def"));
    assert!(new(&kustomization(json!({}))));
    assert!(new(&status("True", "True", 2)), "another spec");
    assert!(new(&status("Unknown", "True", 3)), "a run that was cut off");
    assert!(!new(&status("True", "True", 3)), "the interval");
    assert!(!is_new(&status("True", "True", 2), ""), "a deletion");
    assert!(!new(&status("False", "False", 3)), "an alarm on False does not end by an attempt");
    assert!(!new(&status("Unknown", "Unknown", 3)), "an observation of what is awaited");
}

/// Where log lines go.
#[derive(Clone, Default)]
struct CapturedLog(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_message_of_a_log_line_names_the_object_since_flux_logs_shows_no_other_field() {
    let object = kustomization(json!({}));
    let outcome = settled();
    let changes = changes();
    let run = run(&outcome, &changes);
    let report = report(&object, &run);
    let log = CapturedLog::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    tracing::subscriber::with_default(lines.finish(), || report.log(&object, &run));
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(text.contains(": Deployment/shop/web created "), "{text}");
}

#[test]
fn objects_whose_end_was_not_seen_are_named_with_their_finalizers() {
    let id = |name: &str| ObjectId::new("shop", name, "", "ConfigMap");
    let held = BTreeMap::from([(id("a"), vec!["example.com/hold".to_owned()]), (id("b"), vec![])]);
    let text = "deletion requested, its end was not awaited: ConfigMap/shop/a (finalizers example.com/hold), \
                ConfigMap/shop/b";
    assert_eq!(terminating(&held, None).as_deref(), Some(text));
    let waited = terminating(&held, Some(Duration::from_secs(60))).unwrap();
    assert!(waited.starts_with("still terminating after 1m0s: ConfigMap/shop/a"), "{waited}");
    let event = gave_up_waiting(&kustomization(json!({})), &waited);
    assert_eq!(event.severity, EventSeverity::Error);
    assert!(event.message.starts_with(&waited), "{}", event.message);
    let many: BTreeMap<ObjectId, Vec<String>> =
        (0..30).map(|at| (id(&format!("c{at:02}")), Vec::new())).collect();
    assert!(
        terminating(&many, None).is_some_and(|text| text.ends_with("ConfigMap/shop/c19, 10 more"))
    );
    assert_eq!(terminating(&BTreeMap::new(), None), None);
}

#[test]
fn a_plan_that_waits_is_said_once_and_leaves_the_health_of_what_is_applied() {
    let text =
        "revision main@sha1:abc waits for approval: 1 added; run `windlass approve plan/a-1`";
    let outcome = || RunOutcome::Running(PLAN_PENDING, text.to_owned(), NextRunTrigger::default());
    let healthy = json!({"conditions": [{"type": "Healthy", "status": "True", "reason": "Succeeded",
        "message": "Health check passed in 1s", "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    let outcome = outcome();
    let first = report(&kustomization(healthy), &run(&outcome, &[]));
    let conditions = conditions_of(&first.after.conditions);
    let ready = StatusCondition::find(&conditions, reconcile::READY).unwrap();
    assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::Unknown, "PlanPending"));
    assert!(StatusCondition::is(&conditions, reconcile::RECONCILING, ConditionStatus::True));
    assert!(StatusCondition::is(&conditions, "Healthy", ConditionStatus::True));
    let events = |it: &KustomizationReport| it.events.iter().map(|it| it.message.clone()).collect();
    let said: Vec<String> = events(&first);
    assert_eq!(said, [text]);
    let again = report(&kustomization(json!(first.after)), &run(&outcome, &[]));
    let said: Vec<String> = events(&again);
    assert!(said.is_empty(), "{said:?}");
    let object = kustomization(json!(first.after));
    assert!(!is_new(&object, "main@sha1:abc") && is_new(&object, "main@sha1:def"));

    let text = "revision main@sha1:abc is rejected by bob".to_owned();
    let rejected = RunOutcome::Blocked(PLAN_REJECTED, text, NextRunTrigger::default());
    let last = report(&object, &run(&rejected, &[]));
    let conditions = conditions_of(&last.after.conditions);
    let ready = StatusCondition::find(&conditions, reconcile::READY).unwrap();
    assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::False, "PlanRejected"));
    assert!(StatusCondition::is(&conditions, "Healthy", ConditionStatus::True));
    assert!(!is_new(&kustomization(json!(last.after)), "main@sha1:abc"));
}

#[test]
fn a_result_starts_from_the_newest_build_that_was_applied() {
    let entry = |digest: &str, status: &str| {
        json!({"digest": digest, "lastReconciledStatus": status,
        "firstReconciled": "2026-01-02T03:04:05Z", "lastReconciled": "2026-01-02T03:04:05Z",
        "lastReconciledDuration": "1s", "totalReconciliations": 1})
    };
    let of = |history: Value| {
        last_applied_build(&kustomization(json!({"history": history}))).map(str::to_owned)
    };
    assert_eq!(of(json!([])), None);
    let failed = entry("c", "HealthCheckFailed");
    let applied = [entry("b", "ReconciliationSucceeded"), entry("a", "ReconciliationSucceeded")];
    assert_eq!(of(json!([failed, applied[0], applied[1]])).as_deref(), Some("b"));
}

#[test]
fn a_result_is_applied_since_the_beginning_of_the_newest_run_that_may_have_written_something() {
    let run = |digest: &str, status: &str, ended: &str, took: &str| {
        json!({"digest": digest, "lastReconciledStatus": status, "firstReconciled": ended,
            "lastReconciled": ended, "lastReconciledDuration": took, "totalReconciliations": 1})
    };
    let since = |history: serde_json::Value| {
        let since = applied_since(&kustomization(json!({"history": history})), "next");
        since.map(|it| it.to_string())
    };
    let applied = |took: &str| run("a", "ReconciliationSucceeded", "2026-01-03T03:04:05Z", took);
    let failed = |digest: &str| run(digest, "HealthCheckFailed", "2026-01-04T03:04:05Z", "1m");
    assert_eq!(since(json!([applied("5s")])).as_deref(), Some("2026-01-03T03:04:00Z"));
    assert_eq!(since(json!([applied("soon")])), None, "it is not taken for long ago");
    let after = since(json!([failed("other"), applied("5s")]));
    assert_eq!(after.as_deref(), Some("2026-01-04T03:03:05Z"), "it may have written a part");
    let again = since(json!([failed("next"), applied("5s")]));
    assert_eq!(again.as_deref(), Some("2026-01-03T03:04:00Z"), "it is tried once more");
    assert_eq!(since(json!([failed("other")])), None, "nothing was applied");
    assert_eq!(applied_since(&kustomization(json!({})), "next"), None);
}

fn good() -> BuildInputsRecord {
    BuildInputsRecord {
        digest: "sha256:123".to_owned(),
        revision: "main@sha1:abc".to_owned(),
        artifact_digest: "sha256:a".to_owned(),
        artifact_path: "gitrepository/shop/app/abc.tar.gz".to_owned(),
        spec: "sha256:s".to_owned(),
        inputs: String::new(),
        images: vec!["example.com/app:1".to_owned()],
    }
}

#[test]
fn a_good_result_is_recorded_with_what_it_was_made_from() {
    let facts = good();
    let outcome = settled();
    let done = report(&kustomization(json!({})), &run(&outcome, &changes()));
    assert_eq!(last_good(&kustomization(json!(done.after))), None, "the annotation is not set");
    // The annotation came after the result.
    let asked = KustomizationReportInputs { facts: Some(&facts), ..run(&outcome, &[]) };
    let object = kustomization(json!(done.after));
    let done = report(&object, &asked);
    assert_eq!(last_good(&kustomization(json!(done.after))), Some(facts.clone()));
    assert!(done.events.is_empty(), "{:?}", done.events);
    let again = report(&kustomization(json!(done.after)), &asked);
    assert_eq!(again.before.history, again.after.history, "it is recorded once");
}

#[test]
fn what_was_good_once_is_known_to_be_so_after_a_later_failure() {
    let failed = RunOutcome::Failed(
        condition_reason::HEALTH_CHECK_FAILED,
        "the node is gone".to_owned(),
        NextRunTrigger::default(),
    );
    let outcome = settled();
    let done = report(&kustomization(json!({})), &run(&outcome, &changes()));
    let done = report(&kustomization(json!(done.after)), &run(&failed, &[]));
    let object = kustomization(json!(done.after));
    assert!(!was_applied(&object, "main@sha1:abc", "sha256:123"), "windlass was started anew");
    assert!(was_good(&object, "sha256:123") && !was_good(&object, "sha256:other"));
}

#[test]
fn a_rollback_that_stays_is_not_ready_applied_and_one_event() {
    let facts = good();
    let outcome = settled();
    let text = "revision main@sha1:def is quarantined";
    let of = QuarantinedRevision { revision: "main@sha1:def".to_owned(), text: text.to_owned() };
    let back = KustomizationReportInputs {
        facts: Some(&facts),
        quarantine: Some(&of),
        ..run(&outcome, &[])
    };
    let before =
        json!({"lastAttemptedRevision": "main@sha1:def", "lastAppliedRevision": "main@sha1:abc"});
    let done = report(&kustomization(before), &back);
    let object = kustomization(json!(done.after));
    let ready = object.condition(reconcile::READY).unwrap();
    assert_eq!([ready.status.as_str(), ready.reason.as_str()], ["False", "Quarantined"]);
    assert_eq!(ready.message, text);
    assert!(is_quarantined(&object));
    assert!(was_applied(&object, "main@sha1:abc", "sha256:123"), "it survives a restart");
    let is_error = |it: &&ObjectEvent| it.severity == EventSeverity::Error;
    let errors: Vec<&ObjectEvent> = done.events.iter().filter(is_error).collect();
    let revisions: Vec<&str> =
        errors.iter().map(|it| it.metadata[&format!("{GROUP}revision")].as_str()).collect();
    assert_eq!(revisions, ["main@sha1:def"], "the commit that works gets no failure");
    let again = report(&object, &back);
    assert!(again.events.is_empty(), "{:?}", again.events);
    // The source moves on, or a user lifts it.
    let next = report(&object, &run(&outcome, &[]));
    assert!(!is_quarantined(&kustomization(json!(next.after))));
}
