//! Second causes, and what was left out of what was applied.

use super::*;

/// A Deployment whose container crashes, with its Pod.
fn crashing() -> [Value; 2] {
    let spec = json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}});
    let container = json!({"name": "app",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}});
    let pod = json!({"metadata": {"labels": {"app": "web"}},
        "status": {"phase": "Running", "containerStatuses": [container]}});
    [with("Deployment/web", &[&spec]), with("Pod/web-1", &[&pod])]
}

fn web() -> Value {
    inventory(&["apps_web_apps_Deployment"])
}

fn failing_source(artifact: &Value) -> Value {
    let mut source = source();
    put(&mut source, &status("False", "GitOperationFailed", "connection refused"));
    source["status"]["artifact"] = artifact.clone();
    source
}

#[test]
fn a_source_that_is_down_hides_no_container_that_crashes() {
    let artifact = json!({"revision": "main@sha1:abc"});
    let blocked = status("False", "ArtifactFailed", "source is not ready");
    for (own, artifact, state) in [
        (ready(), artifact.clone(), ExaminedObjectState::Degraded),
        (blocked, Value::Null, ExaminedObjectState::NotReady),
    ] {
        let mut source = failing_source(&artifact);
        if artifact.is_null() {
            source["status"].as_object_mut().unwrap().remove("artifact");
        }
        let app = kustomization("app", &[&own, &web()]);
        let all = [vec![app, source], crashing().to_vec()].concat();
        let why = FakeClusterObjects::of(&all).why("Kustomization/app");
        let cause = why.cause.as_ref().unwrap();
        assert_eq!((why.state, &cause.object), (state, &id("Pod/web-1")), "{why:#?}");
        assert!(
            cause.text.contains("CrashLoopBackOff (exit code 137, OOMKilled)"),
            "{}",
            cause.text
        );
        let command = why.advice.unwrap().command;
        assert_eq!(command.as_deref(), Some("kubectl -n apps logs web-1 -c app --previous"));
        let second = why.second.unwrap();
        assert_eq!(second.cause.object, id("GitRepository/app"));
        assert!(second.advice.unwrap().text.starts_with("check "));
    }
}

#[test]
fn what_was_deleted_is_named_beside_the_source_that_is_down() {
    let app = kustomization("app", &[&ready(), &web()]);
    let source = failing_source(&json!({"revision": "main@sha1:abc"}));
    let why = FakeClusterObjects::of(&[app, source]).why("Kustomization/app");
    assert_eq!(why.cause.unwrap().object, id("Deployment/web"));
    assert_eq!(why.second.unwrap().cause.object, id("GitRepository/app"));
    // What is not ready cannot apply it again.
    let failed = status("False", "BuildFailed", "missing file");
    let app = kustomization("app", &[&failed, &web()]);
    let why = FakeClusterObjects::of(&[app, self::source()]).why("Kustomization/app");
    assert_eq!(why.cause.unwrap().problem, CauseKind::Build);
    let second = why.second.unwrap();
    assert_eq!(
        (second.cause.object, second.cause.problem),
        (id("Deployment/web"), CauseKind::Missing)
    );
    let advice = second.advice.unwrap();
    assert_eq!(advice.text, "it is applied again when Kustomization/apps/app is reconciled");
    assert_eq!(advice.command, None);
}

#[test]
fn a_suspension_hides_neither_a_failure_nor_what_crashes() {
    let suspended = json!({"spec": {"suspend": true}});
    let failed = status("False", "BuildFailed", "missing file");
    let app = kustomization("app", &[&suspended, &failed]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is suspended";
    expect(&why, ExaminedObjectState::Suspended, CauseKind::Suspension, "Kustomization/app", line);
    let second = why.second.unwrap().cause;
    assert_eq!((second.problem, second.text.as_str()), (CauseKind::Build, "missing file"));

    let app = kustomization("app", &[&suspended, &ready(), &web()]);
    let all = [vec![app, source()], crashing().to_vec()].concat();
    let why = FakeClusterObjects::of(&all).why("Kustomization/app");
    assert_eq!(why.state, ExaminedObjectState::Suspended);
    assert_eq!(why.second.unwrap().cause.object, id("Pod/web-1"));

    // A command that reconciles it has no effect.
    let exhausted = json!({"spec": {"interval": "1m", "suspend": true}});
    let failed = status("False", "UpgradeFailed", "timeout");
    let mut release = with("HelmRelease/web", &[&exhausted, &failed]);
    release["status"]["conditions"][1] =
        json!({"type": "Stalled", "status": "True", "reason": "RetriesExceeded"});
    let why = FakeClusterObjects::of(&[release]).why("HelmRelease/web");
    let advice = why.second.unwrap().advice.unwrap();
    assert_eq!((advice.text.is_empty(), advice.command), (false, None));
    // One that was interrupted has not failed.
    let app = kustomization("app", &[&suspended, &status("False", "Suspended", "at a step")]);
    assert_eq!(FakeClusterObjects::of(&[app, source()]).why("Kustomization/app").second, None);
}

#[test]
fn of_two_dependencies_that_fail_the_second_is_named_besides_unless_both_have_one_cause() {
    let on = |names: &[&str]| {
        let named: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"spec": {"dependsOn": named}})
    };
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let app = || kustomization("app", &[&on(&["job", "db"]), &waits]);
    let job = kustomization("job", &[&status("False", "BuildFailed", "missing file")]);
    let db = kustomization("db", &[&status("False", "BuildFailed", "wrong patch")]);
    let why = FakeClusterObjects::of(&[app(), job.clone(), db, source()]).why("Kustomization/app");
    assert_eq!(why.cause.unwrap().object, id("Kustomization/job"));
    let second = why.second.unwrap();
    assert_eq!(second.cause.line(&why.object), "Kustomization/apps/db: wrong patch");
    // One that does not exist is one, too.
    let why = FakeClusterObjects::of(&[app(), job.clone(), source()]).why("Kustomization/app");
    assert_eq!(why.second.unwrap().cause.problem, CauseKind::Missing);
    for second in [kustomization("db", &[&on(&["job"]), &waits]), kustomization("db", &[&ready()])]
    {
        let objects = [app(), job.clone(), second, source()];
        let why = FakeClusterObjects::of(&objects).why("Kustomization/app");
        assert_eq!(why.cause.unwrap().object, id("Kustomization/job"));
        assert_eq!(why.second, None);
    }
}

#[test]
fn a_skipped_object_is_reported_and_is_no_failure() {
    let line = "ConfigMap/apps/a: its kind has no field dat, so it is not applied";
    let mut app = kustomization("app", &[&ready(), &inventory(&["apps_a__ConfigMap"])]);
    let all = app["status"]["conditions"].as_array_mut().unwrap();
    all.push(json!({"type": "windlass.dev/Warnings", "status": "True", "reason": "LeftOut",
        "message": format!("{line}\nConfigMap/apps/b: its kind has no field x")}));
    let labels = json!({"metadata": {"labels": {
        "kustomize.toolkit.fluxcd.io/name": "app", "kustomize.toolkit.fluxcd.io/namespace": "apps"}}});
    let cluster = FakeClusterObjects::of(&[app, source(), with("ConfigMap/a", &[&labels])]);
    let why = cluster.why("Kustomization/app");
    assert_eq!((why.is_finding(), why.remarks.len()), (false, 2), "{why:#?}");
    let why = cluster.why("ConfigMap/a");
    assert!(!why.is_finding());
    assert_eq!(why.remarks, [format!("warning: {line}")]);
}

#[test]
fn deletions_that_wait_for_approval_are_a_remark_with_the_command() {
    let mut app = kustomization("app", &[&ready()]);
    let text = "12 objects that left the manifests are not deleted: ConfigMap/apps/a, 11 more; the deletion budget: more than 10 \
                objects; to delete them, run `windlass approve plan/app-0123 -n apps`; to keep them, add them to the manifests again";
    let all = app["status"]["conditions"].as_array_mut().unwrap();
    all.push(json!({"type": "DeletionHeld", "status": "True", "reason": "DeletionBudgetExceeded", "message": text}));
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    assert!(!why.is_finding());
    assert_eq!(why.remarks, [format!("warning: {text}")]);
}

#[test]
fn a_warning_about_the_revision_that_is_applied_is_none_about_the_one_that_fails() {
    let mut app = kustomization(
        "app",
        &[
            &status("False", "BuildFailed", "no such file"),
            &json!({"status": {"lastAppliedRevision": "main@sha1:abc", "lastAttemptedRevision": "main@sha1:def"}}),
        ],
    );
    let all = app["status"]["conditions"].as_array_mut().unwrap();
    all.push(json!({"type": "windlass.dev/Warnings", "status": "True", "reason": "LeftOut",
        "message": "Deployment/apps/web: its kind has no field replica"}));
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "warning: Deployment/apps/web: its kind has no field replica (of revision main@sha1:abc, the last one that was \
                applied)";
    assert_eq!(why.remarks, [line]);
}

#[test]
fn markers_without_effect_are_a_remark_on_an_automation_that_is_ready() {
    let spec =
        json!({"spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "app"}}});
    let mut web = with("ImageUpdateAutomation/web", &[&spec, &ready()]);
    let text = "markers without effect: a.yaml:1: no policy of the automation sets `apps:none`";
    let all = web["status"]["conditions"].as_array_mut().unwrap();
    all.push(json!({"type": "MarkersIgnored", "status": "True", "reason": "MarkersIgnored",
        "message": text}));
    let why = FakeClusterObjects::of(&[web, source()]).why("ImageUpdateAutomation/web");
    assert!(!why.is_finding(), "{why:#?}");
    assert_eq!(why.remarks, [format!("warning: {text}")]);
}
