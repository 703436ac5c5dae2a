//! Objects that were applied: workloads, Pods, containers, the scheduler, admission, volumes.

use super::*;

fn unhealthy() -> Value {
    status("False", "HealthCheckFailed", "timed out waiting for Deployment/apps/web")
}

fn deployment(status: &Value) -> Value {
    let spec = json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}}});
    with("Deployment/web", &[&spec, &json!({"status": status})])
}

fn rolling_out() -> Value {
    json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1})
}

fn pod(status: &Value) -> Value {
    with("Pod/web-1", &[&json!({"metadata": {"labels": {"app": "web"}}, "status": status})])
}

fn waiting(reason: &str, message: &str, exit: Option<i64>) -> Value {
    let mut container =
        json!({"name": "app", "state": {"waiting": {"reason": reason, "message": message}}});
    if let Some(exit) = exit {
        container["lastState"] = json!({"terminated": {"exitCode": exit, "reason": "Error"}});
    }
    json!({"phase": "Running", "containerStatuses": [container]})
}

fn app() -> Value {
    kustomization("app", &[&unhealthy(), &inventory(&["apps_web_apps_Deployment"])])
}

fn why(more: &[Value]) -> StateExplanation {
    FakeClusterObjects::of(&[&[app(), source()], more].concat()).why("Kustomization/app")
}

#[test]
fn a_crash_loop_is_reported_with_exit_code_and_last_lines() {
    let pod = pod(&waiting("CrashLoopBackOff", "back-off 5m0s", Some(1)));
    let why = why(&[deployment(&rolling_out()), pod]);
    let line = "Kustomization/apps/app is not ready: Pod/apps/web-1: container 'app' CrashLoopBackOff (exit code 1): \
                back-off 5m0s";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Container, "Pod/web-1", line);
    let command = why.advice.unwrap().command;
    assert_eq!(command.as_deref(), Some("kubectl -n apps logs web-1 -c app --previous"));
    assert_eq!(why.cause.unwrap().lines, ["no such table: users"]);
    let subjects: Vec<_> = why.path.iter().map(|it| it.object.subject()).collect();
    assert_eq!(subjects, ["Kustomization/apps/app", "Deployment/apps/web", "Pod/apps/web-1"]);
}

#[test]
fn a_container_that_ends_without_an_error_again_and_again_has_a_log() {
    let pod = pod(&waiting("CrashLoopBackOff", "back-off 5m0s", Some(0)));
    let why = why(&[deployment(&rolling_out()), pod]);
    let command = why.advice.unwrap().command;
    assert_eq!(command.as_deref(), Some("kubectl -n apps logs web-1 -c app --previous"));
    assert_eq!(why.cause.unwrap().lines, ["no such table: users"]);
}

#[test]
fn a_pod_that_has_failed_is_not_ready() {
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
    let why = FakeClusterObjects::of(&[pod(&evicted)]).why("Pod/web-1");
    let line = "Pod/apps/web-1 is not ready: Failed: Evicted: low on memory";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Health, "Pod/web-1", line);
    let ended = json!({"phase": "Succeeded"});
    assert_eq!(
        FakeClusterObjects::of(&[pod(&ended)]).why("Pod/web-1").state,
        ExaminedObjectState::Ready
    );
}

#[test]
fn an_image_that_cannot_be_pulled_is_the_cause() {
    let pod = pod(&waiting("ImagePullBackOff", "Back-off pulling image \"nowhere/app\"", None));
    let why = why(&[deployment(&rolling_out()), pod]);
    let line = "Kustomization/apps/app is not ready: Pod/apps/web-1: container 'app' ImagePullBackOff: \
                Back-off pulling image \"nowhere/app\"";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Image, "Pod/web-1", line);
}

#[test]
fn the_schedulers_words_are_the_cause_of_a_pod_without_node() {
    let pod =
        pod(&json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]}));
    let why = why(&[deployment(&rolling_out()), pod]);
    let line = "Kustomization/apps/app is not ready: Pod/apps/web-1: Pod is not scheduled: 0/3 nodes are available: \
                3 Insufficient cpu.";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Scheduling, "Pod/web-1", line);
}

#[test]
fn a_line_about_a_pod_names_the_pod_once() {
    let ended = json!({"phase": "Running", "containerStatuses": [{"name": "app",
        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "x"}}}]});
    let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "no node"}]});
    for status in [
        waiting("CrashLoopBackOff", "back-off 5m0s", Some(1)),
        waiting("ImagePullBackOff", "", None),
        ended,
        unscheduled,
    ] {
        let all = [app(), source(), deployment(&rolling_out()), pod(&status)];
        for subject in ["Kustomization/app", "Deployment/web", "Pod/web-1"] {
            let why = FakeClusterObjects::of(&all).why(subject);
            let line = why.line();
            assert_eq!(line.matches("web-1").count(), 1, "{line}");
            assert_eq!(why.cause.map(|it| it.object), Some(id("Pod/web-1")), "{line}");
        }
    }
}

#[test]
fn a_quota_that_refuses_pods_is_the_cause() {
    let refused = json!({"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True",
        "reason": "FailedCreate", "message": "pods \"web-1\" is forbidden: exceeded quota: small"}]});
    let why = why(&[deployment(&refused)]);
    let line = "Kustomization/apps/app is not ready: Deployment/apps/web: pods \"web-1\" is forbidden: exceeded quota: small";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Admission, "Deployment/web", line);
}

#[test]
fn a_warning_of_the_replica_set_is_the_cause_if_there_are_no_pods() {
    let refused = event(
        "ReplicaSet/web-7f",
        "FailedCreate",
        "admission webhook \"p.test\" denied the request",
    );
    let why = why(&[deployment(&rolling_out()), replica_set("web-7f", "web"), refused]);
    let line = "Kustomization/apps/app is not ready: ReplicaSet/apps/web-7f: FailedCreate: admission webhook \"p.test\" \
                denied the request";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Admission, "ReplicaSet/web-7f", line);
}

/// A ReplicaSet that a Deployment controls.
fn replica_set(name: &str, deployment: &str) -> Value {
    let owners = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment,
        "controller": true}]);
    with(&format!("ReplicaSet/{name}"), &[&json!({"metadata": {"ownerReferences": owners}})])
}

#[test]
fn a_warning_of_the_replica_set_of_another_deployment_is_no_cause() {
    let refused = event("ReplicaSet/web-api-7f", "FailedCreate", "exceeded quota");
    let other = replica_set("web-api-7f", "web-api");
    let why = why(&[deployment(&rolling_out()), other, refused]);
    let cause = why.cause.unwrap();
    assert_eq!((cause.object, cause.event), (id("Deployment/web"), None));
}

/// A ReplicaSet of a revision of the Deployment, and its Pod.
fn revision(number: &str, status: &Value) -> [Value; 2] {
    let name = format!("web-{number}");
    let annotation =
        json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": number}}});
    let mut set = replica_set(&name, "web");
    put(&mut set, &annotation);
    let owners =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": true}]);
    let metadata = json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": owners}});
    [set, with(&format!("Pod/{name}-a"), &[&metadata, &json!({"status": status})])]
}

#[test]
fn pods_and_warnings_of_a_replica_set_that_a_deployment_replaces_are_no_cause() {
    let annotation =
        json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}}});
    let mut deployment = deployment(&rolling_out());
    put(&mut deployment, &annotation);
    let crashing = waiting("CrashLoopBackOff", "back-off 5m0s", Some(1));
    let running = json!({"phase": "Running", "containerStatuses": [{"name": "app",
        "state": {"running": {"startedAt": "2026-11-24T11:00:00Z"}}}]});
    let all = |newest: &Value| {
        let [old_set, old_pod] = revision("1", &crashing);
        let [new_set, new_pod] = revision("2", newest);
        let refused = event("ReplicaSet/web-1", "FailedCreate", "exceeded quota");
        let unhealthy = event("Pod/web-1-a", "Unhealthy", "probe failed");
        [deployment.clone(), old_set, old_pod, new_set, new_pod, refused, unhealthy]
    };
    let cause = why(&all(&running)).cause.unwrap();
    assert_eq!((cause.object, cause.event), (id("Deployment/web"), None));
    let newest = waiting("ImagePullBackOff", "Back-off pulling image \"nowhere/app\"", None);
    assert_eq!(why(&all(&newest)).cause.unwrap().object, id("Pod/web-2-a"));
    // Where revisions are not known, it may be any of them.
    put(&mut deployment, &json!({"metadata": {"annotations": null}}));
    let [set, pod] = revision("1", &crashing);
    assert_eq!(why(&[deployment, set, pod]).cause.unwrap().object, id("Pod/web-1-a"));
}

#[test]
fn pods_of_another_workload_with_the_same_selector_are_no_cause() {
    let crashing = waiting("CrashLoopBackOff", "back-off 5m0s", Some(1));
    let pod = |kind: &str, name: &str| {
        let owners =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]);
        let metadata = json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": owners}});
        with(&format!("Pod/{name}-a"), &[&metadata, &json!({"status": crashing})])
    };
    let all = [
        deployment(&rolling_out()),
        replica_set("other-1", "other"),
        pod("ReplicaSet", "other-1"),
        pod("StatefulSet", "db"),
    ];
    assert_eq!(why(&all).cause.unwrap().object, id("Deployment/web"));
}

#[test]
fn pods_of_the_newest_revision_of_a_stateful_set_come_first() {
    let spec = json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "db"}}}});
    let status = json!({"status": {"observedGeneration": 1, "replicas": 2, "readyReplicas": 0,
        "updateRevision": "db-2"}});
    let set = with("StatefulSet/db", &[&spec, &status]);
    let pod = |name: &str, revision: &str| {
        let labels = json!({"app": "db", "controller-revision-hash": revision});
        let crashing = waiting("CrashLoopBackOff", "back-off 5m0s", Some(1));
        let more = json!({"metadata": {"labels": labels}, "status": crashing});
        with(&format!("Pod/{name}"), &[&more])
    };
    let all = [set.clone(), pod("db-0", "db-1"), pod("db-1", "db-2")];
    assert_eq!(
        FakeClusterObjects::of(&all).why("StatefulSet/db").cause.unwrap().object,
        id("Pod/db-1")
    );
    // It waits for one of the older revision that fails.
    let all = [set, pod("db-0", "db-1")];
    assert_eq!(
        FakeClusterObjects::of(&all).why("StatefulSet/db").cause.unwrap().object,
        id("Pod/db-0")
    );
}

#[test]
fn a_container_that_runs_again_is_not_blamed_for_how_it_ended_before() {
    let restarted = json!({"phase": "Running", "containerStatuses": [{"name": "app",
        "state": {"running": {"startedAt": "2026-11-24T11:00:00Z"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]});
    let why = why(&[deployment(&rolling_out()), pod(&restarted)]);
    let cause = why.cause.unwrap();
    assert_eq!((cause.problem, cause.object), (CauseKind::Health, id("Deployment/web")));
}

#[test]
fn a_volume_without_a_provisioner_is_the_cause() {
    let failed = status(
        "False",
        "HealthCheckFailed",
        "timed out waiting for PersistentVolumeClaim/apps/data",
    );
    let app = kustomization("app", &[&failed, &inventory(&["apps_data__PersistentVolumeClaim"])]);
    let claim = with("PersistentVolumeClaim/data", &[&json!({"status": {"phase": "Pending"}})]);
    let warning = event(
        "PersistentVolumeClaim/data",
        "ProvisioningFailed",
        "storageclass \"fast\" not found",
    );
    let why = FakeClusterObjects::of(&[app, source(), claim, warning]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: PersistentVolumeClaim/apps/data: ProvisioningFailed: storageclass \
                \"fast\" not found";
    expect(
        &why,
        ExaminedObjectState::NotReady,
        CauseKind::Volume,
        "PersistentVolumeClaim/data",
        line,
    );
}

#[test]
fn an_applied_object_that_fails_later_is_reported_for_an_object_that_is_ready() {
    let app = kustomization("app", &[&ready(), &inventory(&["apps_web_apps_Deployment"])]);
    let pod = pod(&waiting("CrashLoopBackOff", "back-off", Some(137)));
    let why = FakeClusterObjects::of(&[app, source(), deployment(&rolling_out()), pod])
        .why("Kustomization/app");
    assert_eq!(why.state, ExaminedObjectState::Degraded);
    assert!(why.line().starts_with(
        "Kustomization/apps/app is ready, but what it applied is not: Pod/apps/web-1"
    ));
}

#[test]
fn an_object_that_was_deleted_by_a_user_is_the_cause() {
    let app = kustomization("app", &[&ready(), &inventory(&["apps_a__ConfigMap"])]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is ready, but what it applied is not: ConfigMap/apps/a: does not exist";
    expect(&why, ExaminedObjectState::Degraded, CauseKind::Missing, "ConfigMap/a", line);
}

#[test]
fn what_a_failed_operation_did_not_make_is_not_its_cause() {
    let release = |reason: &str| {
        let message = "pre-install hook Job/apps/migrate failed: exit code 3";
        let inventory = inventory(&["apps_web_apps_Deployment"]);
        let spec = json!({"spec": {"interval": "1m"}});
        with("HelmRelease/web", &[&spec, &status("False", reason, message), &inventory])
    };
    let why = FakeClusterObjects::of(&[release("InstallFailed")]).why("HelmRelease/web");
    let line =
        "HelmRelease/apps/web is not ready: pre-install hook Job/apps/migrate failed: exit code 3";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Apply, "HelmRelease/web", line);
    let why = FakeClusterObjects::of(&[release("TestFailed")]).why("HelmRelease/web");
    let line = "HelmRelease/apps/web is not ready: Deployment/apps/web: does not exist";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "Deployment/web", line);
}

#[test]
fn a_kustomization_leads_to_the_release_that_it_applied() {
    let failed = status("False", "HealthCheckFailed", "timed out waiting for HelmRelease/apps/web");
    let app = kustomization(
        "app",
        &[&failed, &inventory(&["apps_web_helm.toolkit.fluxcd.io_HelmRelease"])],
    );
    let release = with(
        "HelmRelease/web",
        &[
            &json!({"spec": {"interval": "1m"}}),
            &status("False", "InstallFailed", "template: web/templates/a.yaml:3: nil pointer"),
        ],
    );
    let why = FakeClusterObjects::of(&[app, source(), release]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: HelmRelease/apps/web: template: web/templates/a.yaml:3: nil pointer";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Apply, "HelmRelease/web", line);
}

#[test]
fn a_workload_can_be_asked_about_itself() {
    let pod = pod(&waiting("CreateContainerConfigError", "secret \"db\" not found", None));
    let why = FakeClusterObjects::of(&[deployment(&rolling_out()), pod]).why("Deployment/web");
    let line = "Deployment/apps/web is being reconciled: Pod/apps/web-1: container 'app' \
                CreateContainerConfigError: secret \"db\" not found";
    expect(&why, ExaminedObjectState::Progressing, CauseKind::Container, "Pod/web-1", line);
}

#[test]
fn what_may_not_be_read_is_said_and_not_taken_for_absent() {
    let mut cluster = FakeClusterObjects::of(&[app(), source(), deployment(&rolling_out())]);
    let selector = "app=web".to_owned();
    cluster.refused.push(FactQuery::Pods { namespace: "apps".to_owned(), selector });
    cluster.refused.push(FactQuery::Warnings("apps".to_owned()));
    let why = cluster.why("Kustomization/app");
    assert_eq!(why.cause.unwrap().object, id("Deployment/web"));
    assert_eq!(
        why.remarks,
        [
            "Pods in namespace apps cannot be listed: forbidden",
            "events cannot be listed: forbidden"
        ]
    );
    // Of an object that is ready, what it applied may have failed all the same.
    let app = kustomization("app", &[&ready(), &inventory(&["apps_web_apps_Deployment"])]);
    let mut cluster = FakeClusterObjects::of(&[app, source(), deployment(&rolling_out())]);
    cluster.refused.push(FactQuery::Object(id("Deployment/web")));
    let why = cluster.why("Kustomization/app");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Ready, None));
    assert_eq!(why.unread, ["Deployment/apps/web"]);
}
