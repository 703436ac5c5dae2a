//! Holds, windows, deletion, and specs that no run has taken.

use super::*;

fn annotated(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

/// `managedFields` of an object whose suspension one field manager set, and its end another one or the same.
fn managed(suspension: &str, end: &str) -> Value {
    let until = json!({"f:annotations": {"f:windlass.dev/suspended-until": {}}});
    json!({"metadata": {"managedFields": [
        {"manager": suspension, "operation": "Update", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
        {"manager": end, "operation": "Update", "fieldsV1": {"f:metadata": until}},
    ]}})
}

#[test]
fn a_suspension_says_who_why_and_until_when() {
    let hold = annotated(
        &json!({"windlass.dev/suspended-by": "alice", "windlass.dev/suspended-reason": "migration",
        "windlass.dev/suspended-until": "2026-11-24T21:00:00Z"}),
    );
    let suspended = json!({"spec": {"suspend": true}});
    let failed = status("False", "BuildFailed", "missing file");
    let own = managed("windlass-cli", "windlass-cli");
    let app = kustomization("app", &[&hold, &own, &suspended, &failed]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is suspended by alice until 2026-11-24T21:00:00Z: migration";
    expect(&why, ExaminedObjectState::Suspended, CauseKind::Suspension, "Kustomization/app", line);
    assert_eq!(why.next.as_deref(), Some("the suspension expires at 2026-11-24T21:00:00Z"));
    let command = why.advice.unwrap().command;
    assert_eq!(command.as_deref(), Some("windlass resume kustomization/app -n apps"));
}

#[test]
fn an_end_of_an_earlier_suspension_is_not_shown_for_the_present_one() {
    for until in ["2026-11-24T21:00:00Z", "2026-11-24T11:00:00Z"] {
        let hold = annotated(&json!({"windlass.dev/suspended-until": until}));
        let later = managed("flux", "windlass-cli");
        let suspended = json!({"spec": {"suspend": true}});
        let app = kustomization("app", &[&hold, &later, &suspended, &ready()]);
        let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
        let line = format!(
            "Kustomization/apps/app is suspended; windlass.dev/suspended-until {until} was not set by the field manager \
             that set spec.suspend, so the suspension does not expire"
        );
        expect(
            &why,
            ExaminedObjectState::Suspended,
            CauseKind::Suspension,
            "Kustomization/app",
            &line,
        );
        assert_eq!(why.next.as_deref(), Some("not reconciled until it is resumed"));
    }
}

#[test]
fn a_plain_suspension_is_one() {
    let app = kustomization("app", &[&json!({"spec": {"suspend": true}}), &ready()]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is suspended";
    expect(&why, ExaminedObjectState::Suspended, CauseKind::Suspension, "Kustomization/app", line);
    assert_eq!(why.next.as_deref(), Some("not reconciled until it is resumed"));
}

#[test]
fn a_suspended_source_keeps_new_revisions_from_an_object_that_is_ready() {
    let mut source = source();
    put(&mut source, &json!({"spec": {"suspend": true}}));
    let app = kustomization("app", &[&ready()]);
    let why = FakeClusterObjects::of(&[app, source]).why("Kustomization/app");
    let line = "Kustomization/apps/app is ready, but newer revisions do not reach it: GitRepository/apps/app: suspended";
    expect(&why, ExaminedObjectState::Stale, CauseKind::Suspension, "GitRepository/app", line);
}

#[test]
fn what_a_suspended_object_applied_is_ready_and_gets_nothing_new() {
    let hold = annotated(&json!({"windlass.dev/suspended-by": "alice"}));
    let app = kustomization("app", &[&hold, &json!({"spec": {"suspend": true}}), &ready()]);
    let labels = json!({"metadata": {"labels": {
        "kustomize.toolkit.fluxcd.io/name": "app", "kustomize.toolkit.fluxcd.io/namespace": "apps"}}});
    let config = with("ConfigMap/settings", &[&labels]);
    let why = FakeClusterObjects::of(&[app, source(), config.clone()]).why("ConfigMap/settings");
    let line = "ConfigMap/apps/settings is ready, but newer revisions do not reach it: Kustomization/apps/app: suspended by alice";
    expect(&why, ExaminedObjectState::Stale, CauseKind::Suspension, "Kustomization/app", line);
    let advice = why.advice.unwrap();
    assert_eq!(advice.text, "ask alice whether the reason is gone, then resume it");
    let well = kustomization("app", &[&ready()]);
    let why = FakeClusterObjects::of(&[well, source(), config]).why("ConfigMap/settings");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Ready, None));
}

#[test]
fn a_revision_that_waits_for_a_suspended_object_is_reported() {
    let applied =
        json!({"spec": {"suspend": true}, "status": {"lastAppliedRevision": "main@sha1:abc"}});
    let mut source = source();
    put(&mut source, &json!({"status": {"artifact": {"revision": "main@sha1:def"}}}));
    let app = kustomization("app", &[&ready(), &applied]);
    let why = FakeClusterObjects::of(&[app, source]).why("Kustomization/app");
    assert_eq!(why.remarks, ["revision main@sha1:def waits; main@sha1:abc is applied"]);
}

#[test]
fn an_expired_hold_in_the_manifest_is_reported() {
    let hold = annotated(&json!({"windlass.dev/suspended-until": "2026-11-24T11:00:00Z"}));
    let own = managed("kustomize-controller", "kustomize-controller");
    let suspended = json!({"spec": {"suspend": true}});
    let mut app = kustomization("app", &[&hold, &own, &suspended, &ready()]);
    app["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "windlass.dev/Hold",
        "status": "False", "reason": "Expired", "message": "expired at 2026-11-24T11:00:00Z; spec.suspend is still true"}));
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is ready: its suspension expired at 2026-11-24T11:00:00Z; spec.suspend is still true";
    expect(&why, ExaminedObjectState::Ready, CauseKind::ExpiredHold, "Kustomization/app", line);
}

#[test]
fn a_closed_window_is_the_cause_of_what_is_pending() {
    let window = annotated(&json!({"windlass.dev/window": "0 22 * * * 4h"}));
    let message = "outside the window '0 22 * * * 4h': revision main@sha1:def is pending";
    let app = kustomization("app", &[&window, &status("False", "WindowClosed", message)]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = format!("Kustomization/apps/app is not ready: {message}");
    expect(
        &why,
        ExaminedObjectState::NotReady,
        CauseKind::ClosedWindow,
        "Kustomization/app",
        &line,
    );
    let next = "it is reconciled when the window opens at 2026-11-24T22:00:00Z";
    assert_eq!(why.next.as_deref(), Some(next));
    let command = why.advice.unwrap().command.unwrap();
    assert!(command.ends_with("windlass.dev/break-glass=2026-11-24T13:00:00Z"), "{command}");
}

#[test]
fn a_freeze_is_the_cause_of_what_it_holds() {
    let message =
        "revision main@sha1:def waits: Freeze christmas until 2026-12-27T00:00:00Z: Christmas";
    let app = kustomization("app", &[&status("False", "Frozen", message)]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let cause = why.cause.as_ref().unwrap();
    assert_eq!(cause.problem, CauseKind::Freeze);
    assert!(why.line().contains("Freeze christmas until"), "{}", why.line());
    let command = why.advice.unwrap().command.unwrap();
    assert_eq!(command, "windlass get freezes");
}

#[test]
fn a_wave_that_is_not_open_is_the_cause_of_what_is_held_and_a_remark_about_what_is_pinned() {
    let message =
        "revision main@sha1:def waits for wave 2 of 2 (production) of StagedRollout apps/fleet";
    let held = kustomization("app", &[&status("False", "WaitingForWave", message)]);
    let why = FakeClusterObjects::of(&[held, source()]).why("Kustomization/app");
    assert_eq!(why.cause.as_ref().unwrap().problem, CauseKind::Wave);
    let mut pinned = kustomization("app", &[&ready()]);
    pinned["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "windlass.dev/Wave",
        "status": "True", "reason": "WaitingForWave", "message": message}));
    let why = FakeClusterObjects::of(&[pinned, source()]).why("Kustomization/app");
    assert!(why.remarks.iter().any(|it| it == message), "{:?}", why.remarks);
}

#[test]
fn a_window_that_cannot_be_read_is_the_cause() {
    let window = annotated(&json!({"windlass.dev/window": "never"}));
    let app = kustomization("app", &[&window, &status("False", "InvalidWindow", "see window")]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let cause = why.cause.as_ref().unwrap();
    assert_eq!(cause.problem, CauseKind::InvalidWindow);
    assert!(why.line().contains("windlass.dev/window: "), "{}", why.line());
}

#[test]
fn a_closed_window_without_anything_pending_is_no_cause() {
    let window = annotated(&json!({"windlass.dev/window": "0 22 * * * 4h"}));
    let app = kustomization("app", &[&window, &ready()]);
    assert_eq!(FakeClusterObjects::of(&[app, source()]).why("Kustomization/app").cause, None);
}

#[test]
fn a_spec_that_no_run_has_observed_is_reported() {
    let why =
        FakeClusterObjects::of(&[kustomization("app", &[]), source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is being reconciled: has not been reconciled yet";
    expect(
        &why,
        ExaminedObjectState::Progressing,
        CauseKind::NotReconciled,
        "Kustomization/app",
        line,
    );
    let newer = json!({"metadata": {"generation": 5}});
    let app = kustomization("app", &[&ready(), &newer]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is being reconciled: generation 5 of its spec has not been reconciled yet, 1 was \
                the last one";
    expect(
        &why,
        ExaminedObjectState::Progressing,
        CauseKind::NotReconciled,
        "Kustomization/app",
        line,
    );
}

#[test]
fn a_deletion_is_reported() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-24T11:59:00Z"}});
    let failed = status("False", "PruneFailed", "ConfigMap/apps/a cannot be deleted");
    let app = kustomization("app", &[&deleted, &failed]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line =
        "Kustomization/apps/app is not ready: is being deleted: ConfigMap/apps/a cannot be deleted";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Deletion, "Kustomization/app", line);
}

#[test]
fn a_deletion_waits_for_the_object_whose_finalizer_keeps_it() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-24T11:59:00Z",
        "finalizers": ["finalizers.fluxcd.io"]}});
    let waits = status("Unknown", "AwaitingTermination", "waiting");
    let applied = inventory(&["apps_gone__ConfigMap", "apps_stuck__ConfigMap"]);
    let app = kustomization("app", &[&deleted, &waits, &applied]);
    let held = json!({"metadata": {"deletionTimestamp": "2026-11-24T11:59:00Z",
        "finalizers": ["example.com/hold"]}});
    let stuck = with("ConfigMap/stuck", &[&held]);
    let why = FakeClusterObjects::of(&[app, source(), stuck]).why("Kustomization/app");
    let cause = why.cause.as_ref().unwrap();
    assert_eq!((&cause.object, cause.problem), (&id("ConfigMap/stuck"), CauseKind::Deletion));
    assert_eq!(cause.text, "is being deleted and waits for its finalizers example.com/hold");
    assert!(why.second.is_none(), "{why:#?}");
    let line = "Kustomization/apps/app is not ready: ConfigMap/apps/stuck: is being deleted and waits for its finalizers \
                example.com/hold";
    assert_eq!(why.line(), line);
}

#[test]
fn an_object_that_waits_for_the_finalizers_of_others_is_not_ready() {
    let held = json!({"metadata": {"deletionTimestamp": "2026-11-24T11:59:30Z",
        "deletionGracePeriodSeconds": 30, "finalizers": ["example.com/hold"]}});
    let stuck = with("ConfigMap/stuck", &[&held]);
    let why = FakeClusterObjects::of(&[stuck]).why("ConfigMap/stuck");
    let line = "ConfigMap/apps/stuck is not ready: is being deleted and waits for its finalizers example.com/hold";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Deletion, "ConfigMap/stuck", line);
    let since = why.cause.and_then(|cause| cause.since);
    assert_eq!(since, Some("2026-11-24T11:59:00Z".parse().unwrap()));
}

/// A suspended HelmRelease, of which a rollback from revision 2 to 1 is requested.
fn rolling_back(history: &Value, status: &Value) -> StateExplanation {
    let metadata = annotated(&json!({"windlass.dev/rollback": "2->1"}));
    let spec = json!({"spec": {"suspend": true}});
    let history = json!({"status": {"history": history}});
    FakeClusterObjects::of(&[with("HelmRelease/web", &[&metadata, &spec, status, &history])])
        .why("HelmRelease/web")
}

fn made(version: i64, status: &str, action: &str) -> Value {
    json!({"version": version, "status": status, "action": action})
}

#[test]
fn a_release_that_was_rolled_back_is_not_resumed_before_that_is_committed() {
    let history = json!([made(3, "deployed", "rollback"), made(2, "superseded", "upgrade")]);
    let why = rolling_back(&history, &status("False", "RollbackSucceeded", "done"));
    assert_eq!(why.line(), "HelmRelease/apps/web is suspended");
    assert_eq!(why.second, None, "what was asked for is no failure");
    let advice = why.advice.unwrap();
    assert!(
        advice.text.starts_with("it was rolled back: commit what keeps it so"),
        "{}",
        advice.text
    );
    assert_eq!(advice.command.unwrap(), "windlass resume helmrelease/web -n apps --plan");
}

#[test]
fn a_rollback_that_nothing_carried_out_is_not_reported_as_done() {
    let newest = made(2, "deployed", "upgrade");
    let why = rolling_back(&json!([newest]), &ready());
    let line = "HelmRelease/apps/web is suspended; the rollback from revision 2 to 1 is requested and not yet done";
    assert_eq!(why.line(), line);
    let next = "it is rolled back when windlass runs, and stays suspended";
    assert_eq!(why.next.as_deref(), Some(next));
    assert_eq!(why.advice.unwrap().command.unwrap(), "windlass check");
    // The status has the reason why it is not done.
    let refused = "The requested rollback from revision 2 to 1 is not carried out: Helm has no revision 1 of the release";
    let why = rolling_back(&json!([newest]), &status("False", "RollbackFailed", refused));
    assert_eq!(why.line(), format!("HelmRelease/apps/web is suspended; {refused}"));
    assert_eq!(why.next.as_deref(), Some("not reconciled until it is resumed"));
    assert_eq!(why.advice.unwrap().command.unwrap(), "windlass history helmrelease/web -n apps");
    for (next, expected) in [
        (made(3, "failed", "rollback"), "the rollback from revision 2 to 1 failed"),
        (
            made(3, "deployed", "upgrade"),
            "the requested rollback from revision 2 to 1 was not carried out, because another operation made revision 3",
        ),
    ] {
        let why = rolling_back(&json!([next, newest]), &ready());
        assert_eq!(why.line(), format!("HelmRelease/apps/web is suspended; {expected}"));
        let again = "windlass rollback helmrelease/web -n apps --to 1";
        assert_eq!(why.advice.unwrap().command.unwrap(), again);
    }
}
