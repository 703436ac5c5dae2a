//! Sources, dependencies, references, and what a run itself reports.

use super::*;

fn failing(reason: &str, message: &str) -> Value {
    let spec = json!({"spec": {"url": "https://git.test/app", "interval": "1m"}});
    with("GitRepository/app", &[&spec, &status("False", reason, message)])
}

fn blocked() -> Value {
    status("False", "ArtifactFailed", "GitRepository 'apps/app' has no artifact yet")
}

#[test]
fn a_source_that_does_not_exist_is_the_cause() {
    let failed = status("False", "ArtifactFailed", "source 'GitRepository/apps/app' not found");
    let why = FakeClusterObjects::of(&[kustomization("app", &[&failed])]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: GitRepository/apps/app: does not exist";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "GitRepository/app", line);
}

#[test]
fn a_source_without_an_artifact_is_the_cause() {
    for (reason, problem) in [
        ("GitOperationFailed", CauseKind::Fetch),
        ("AuthenticationFailed", CauseKind::Credentials),
        ("VerificationError", CauseKind::Verification),
    ] {
        let source = failing(reason, "cannot fetch");
        let why = FakeClusterObjects::of(&[kustomization("app", &[&blocked()]), source])
            .why("Kustomization/app");
        let line = "Kustomization/apps/app is not ready: GitRepository/apps/app: cannot fetch";
        expect(&why, ExaminedObjectState::NotReady, problem, "GitRepository/app", line);
        assert_eq!(why.path.len(), 2);
    }
}

#[test]
fn a_secret_that_does_not_exist_is_the_cause() {
    let mut source = failing("AuthenticationFailed", "cannot read the Secret");
    put(&mut source, &json!({"spec": {"secretRef": {"name": "git"}}}));
    let app = kustomization("app", &[&blocked()]);
    let why = FakeClusterObjects::of(&[app.clone(), source.clone()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: Secret/apps/git does not exist; spec.secretRef of \
                GitRepository/apps/app names it";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "Secret/git", line);
    let command = why.advice.unwrap().command.unwrap();
    assert_eq!(
        command,
        "kubectl -n apps create secret generic git --from-literal=username=USERNAME \
         --from-literal=password=PASSWORD"
    );
    // One that may not be read is not missing.
    let mut cluster = FakeClusterObjects::of(&[app, source]);
    cluster.refused.push(FactQuery::Object(id("Secret/git")));
    let why = cluster.why("Kustomization/app");
    assert_eq!(why.cause.unwrap().problem, CauseKind::Credentials);
    assert_eq!(why.remarks, ["Secret/apps/git cannot be read: forbidden"]);
}

#[test]
fn what_a_field_without_effect_names_is_not_missed() {
    let failed = status("False", "UnsupportedField", "spec.kubeConfig.configMapRef has no effect");
    let spec = json!({"spec": {"kubeConfig": {"configMapRef": {"name": "cluster"}}}});
    let why = FakeClusterObjects::of(&[kustomization("app", &[&failed, &spec]), source()]);
    let cause = why.why("Kustomization/app").cause.unwrap();
    assert_eq!(cause.object, id("Kustomization/app"));
    assert!(cause.text.contains("configMapRef"), "{}", cause.text);
}

#[test]
fn a_name_that_is_no_word_of_a_shell_is_in_no_command() {
    for name in ["git; rm -rf ~", "$(id)", "--from-file=x", "a b", "Git"] {
        let mut source = failing("AuthenticationFailed", "cannot read the Secret");
        put(&mut source, &json!({"spec": {"secretRef": {"name": name}}}));
        let why = FakeClusterObjects::of(&[kustomization("app", &[&blocked()]), source])
            .why("Kustomization/app");
        let advice = why.advice.unwrap();
        assert_eq!(advice.command, None, "{name}");
        assert!(advice.text.starts_with("create Secret/apps/"), "{}", advice.text);
    }
}

#[test]
fn a_source_that_fails_now_makes_an_object_stale_that_is_ready() {
    let mut source = failing("GitOperationFailed", "connection refused");
    put(&mut source, &json!({"status": {"artifact": {"revision": "main@sha1:abc"}}}));
    let why = FakeClusterObjects::of(&[kustomization("app", &[&ready()]), source])
        .why("Kustomization/app");
    let line = "Kustomization/apps/app is ready, but newer revisions do not reach it: GitRepository/apps/app: connection \
                refused";
    expect(&why, ExaminedObjectState::Stale, CauseKind::Fetch, "GitRepository/app", line);
}

#[test]
fn a_failure_of_its_own_comes_before_a_source_that_is_not_up_to_date() {
    let mut source = failing("GitOperationFailed", "connection refused");
    put(&mut source, &json!({"status": {"artifact": {"revision": "main@sha1:abc"}}}));
    let app =
        kustomization("app", &[&status("False", "BuildFailed", "a.yaml: line 3: no such field")]);
    let why = FakeClusterObjects::of(&[app, source]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: a.yaml: line 3: no such field";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Build, "Kustomization/app", line);
    assert_eq!(why.remarks, ["GitRepository/apps/app is not up to date: connection refused"]);
    let next = "it is retried when its spec or GitRepository/apps/app changes, and within 1m at the latest";
    assert_eq!(why.next.as_deref(), Some(next));
}

#[test]
fn an_object_is_tried_again_when_what_it_lacks_changes_and_not_only_after_its_interval() {
    let names = json!({"spec": {"decryption": {"secretRef": {"name": "keys"}}}});
    let failed = status("False", "BuildFailed", "cannot read Secret apps/keys");
    let why = FakeClusterObjects::of(&[kustomization("app", &[&failed, &names]), source()]);
    let next = "it is retried when its spec, GitRepository/apps/app or Secret/apps/keys changes, and within 1m at the latest";
    assert_eq!(why.why("Kustomization/app").next.as_deref(), Some(next));
    // A source has no source.
    let why = FakeClusterObjects::of(&[failing("GitOperationFailed", "connection refused")]);
    let next = "it is retried when its spec changes, and at growing delays of at most 15m (or --max-retry-delay)";
    assert_eq!(why.why("GitRepository/app").next.as_deref(), Some(next));
}

#[test]
fn everything_is_named_that_causes_a_run_before_the_time_of_the_next_one() {
    let next = |object: Value, more: &[Value]| {
        let id = Object::new(object.clone()).unwrap().id();
        let all = [&[object, source()], more].concat();
        let next = FakeClusterObjects::of(&all).explained(&id).next.unwrap();
        let begin = next.strip_prefix("it is retried when ").unwrap().to_owned();
        begin.split(" changes, and ").next().unwrap_or_default().to_owned()
    };
    let failed = |message: &str| status("False", "ReconciliationFailed", message);
    let app = |message: &str| kustomization("app", &[&failed(message)]);
    let kind =
        "Widget/apps/a dry-run failed: no matches for kind \"Widget\" in version \"a.test/v1\"";
    assert_eq!(
        next(app(kind), &[]),
        "its spec, GitRepository/apps/app or the CustomResourceDefinition of the missing kind"
    );
    let forbidden = "ConfigMap/apps/a dry-run failed (Forbidden): configmaps \"a\" is forbidden: User \"x\" cannot patch";
    let rbac = "its spec, GitRepository/apps/app or RBAC (a role or its binding)";
    assert_eq!(next(app(forbidden), &[]), rbac);
    let quota = "Pod/apps/a dry-run failed (Forbidden): pods \"a\" is forbidden: exceeded quota";
    assert_eq!(next(app(quota), &[]), "its spec or GitRepository/apps/app");
    let unhealthy =
        status("False", "HealthCheckFailed", "timeout waiting for: [Deployment/apps/web]");
    assert_eq!(
        next(kustomization("app", &[&unhealthy]), &[]),
        "its spec, GitRepository/apps/app or the health of its objects"
    );
    // Values that are optional count as well, and the Secret of a signature is read later.
    let spec = json!({"spec": {"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "web"},
        "valuesFrom": [{"kind": "Secret", "name": "b"}, {"kind": "ConfigMap", "name": "a", "optional": true}],
        "verify": {"secretRef": {"name": "keys"}}}});
    let values = status("False", "ValuesError", "values reference 'apps/b': no map");
    let release = with("HelmRelease/web", &[&spec, &values]);
    let chart = with("HelmChart/web", &[&ready()]);
    let values = with("Secret/b", &[&json!({"data": {"values.yaml": ""}})]);
    let all = [chart, values, with("Secret/keys", &[])];
    assert_eq!(
        next(release, &all),
        "its spec, HelmChart/apps/web, Secret/apps/b or ConfigMap/apps/a"
    );
    // What waits for files has not read them.
    let mut waits = kustomization("app", &[&blocked()]);
    put(&mut waits, &json!({"spec": {"decryption": {"secretRef": {"name": "keys"}}}}));
    assert_eq!(next(waits, &[with("Secret/keys", &[])]), "its spec or GitRepository/apps/app");
}

#[test]
fn what_an_api_server_refuses_is_retried_within_the_interval() {
    let failed =
        status("False", "ReconciliationFailed", "ConfigMap/apps/a dry-run failed (Invalid): x");
    let why = FakeClusterObjects::of(&[kustomization("app", &[&failed]), source()]);
    let next = why.why("Kustomization/app").next.unwrap();
    assert!(next.ends_with("and within 10m at the latest"), "{next}");
}

#[test]
fn a_policy_that_is_not_retried_by_itself_runs_with_other_tags() {
    let spec = json!({"spec": {"imageRepositoryRef": {"name": "app"}}});
    let mut policy =
        with("ImagePolicy/app", &[&spec, &status("False", "DowngradeRefused", "lower")]);
    policy["status"]["conditions"][1]["type"] = "Stalled".into();
    let why = FakeClusterObjects::of(&[policy, with("ImageRepository/app", &[&ready()])]);
    let next = "it is not retried until its spec or ImageRepository/apps/app changes";
    assert_eq!(why.why("ImagePolicy/app").next.as_deref(), Some(next));
}

#[test]
fn a_release_in_a_cycle_has_no_chart_yet() {
    let text = "HelmRelease/apps/web depends on itself through HelmRelease/apps/db";
    let chart = json!({"spec": {"interval": "1m", "chart": {"spec": {"chart": "web",
        "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}});
    let release = with("HelmRelease/web", &[&chart, &status("False", "DependencyCycle", text)]);
    let why = FakeClusterObjects::of(&[release]).why("HelmRelease/web");
    let line = format!("HelmRelease/apps/web is not ready: {text}");
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Cycle, "HelmRelease/web", &line);
}

#[test]
fn a_commit_that_cannot_be_pushed_leads_to_the_secret_of_the_repository() {
    let repository = |status: &Value| {
        let spec = json!({"spec": {"url": "https://git.test/app", "secretRef": {"name": "push"}},
            "status": {"artifact": {"revision": "main@sha1:abc"}}});
        with("GitRepository/app", &[&spec, status])
    };
    let spec =
        json!({"spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "app"}}});
    let message = "failed to push: authentication failed for https://git.test/app: HTTP status 401; check the credentials in \
                   the Secret";
    let failed = status("False", "GitOperationFailed", message);
    let automation = with("ImageUpdateAutomation/app", &[&spec, &failed]);
    let secret = with("Secret/push", &[]);
    let all = [automation, secret, repository(&ready())];
    let why = FakeClusterObjects::of(&all).why("ImageUpdateAutomation/app");
    let advice = why.advice.unwrap();
    let expected = "correct the credentials in Secret/apps/push (spec.secretRef of GitRepository/apps/app), which need the \
                    right to push";
    assert_eq!((advice.text.as_str(), advice.command), (expected, None));
    let next = "it is retried when its spec, GitRepository/apps/app or Secret/apps/push changes, and at growing delays of at \
                most 15m (or --max-retry-delay)";
    assert_eq!(why.next.as_deref(), Some(next));
    // One remote that fails is one cause.
    let down =
        status("False", "GitOperationFailed", "cannot connect to git.test: Connection refused");
    let [automation, secret, _] = all;
    let all = [automation, secret, repository(&down)];
    let why = FakeClusterObjects::of(&all).why("ImageUpdateAutomation/app");
    assert_eq!(why.cause.unwrap().object, id("GitRepository/app"));
}

#[test]
fn a_remote_that_does_not_answer_is_one_that_cannot_be_fetched() {
    let of = |message: &str| {
        let spec =
            json!({"spec": {"interval": "1m", "url": "http://user:pass@charts.test:8080/x"}});
        let repository =
            with("HelmRepository/charts", &[&spec, &status("False", "Failed", message)]);
        FakeClusterObjects::of(&[repository]).why("HelmRepository/charts")
    };
    let why = of("cannot fetch `http://charts.test:8080/x/index.yaml`: Connection refused");
    assert_eq!(why.cause.unwrap().problem, CauseKind::Fetch);
    assert_eq!(
        why.advice.unwrap().text,
        "check host and port `charts.test:8080` in spec.url: no server listens there, or a firewall rejects the connection"
    );
    for (message, text) in [
        (
            "cannot fetch `x`: HTTP status 404",
            "correct spec.url: the server has nothing there, or it is private",
        ),
        (
            "cannot fetch `x`: invalid peer certificate: UnknownIssuer",
            "name a Secret with the certificate of the authority of that server as `ca.crt` in spec.certSecretRef",
        ),
        (
            "cannot fetch `x`: invalid peer certificate: certificate expired: verification time 1",
            "renew the certificate of the server `charts.test:8080`",
        ),
        (
            "cannot fetch `x`: invalid peer certificate: it expired at 2025-02-01T00:00:00Z",
            "renew the certificate of the server `charts.test:8080`",
        ),
        (
            "cannot fetch `x`: invalid peer certificate: it is the certificate of an authority, which is not accepted",
            "a certificate that is its own authority is not accepted as that of a server: issue the certificate of the \
             server `charts.test:8080` by an authority, and name the certificate of that one as `ca.crt` in a Secret that \
             spec.certSecretRef names",
        ),
        (
            "authentication failed for `x`: HTTP status 401; check the credentials",
            "the server requires credentials: name a Secret in spec.secretRef",
        ),
    ] {
        let advice = of(message).advice.unwrap();
        assert!(advice.text.starts_with(text), "{}", advice.text);
    }
    let source = failing(
        "GitOperationFailed",
        "repository not found at https://git.test/app; check the URL",
    );
    let advice = FakeClusterObjects::of(&[source]).why("GitRepository/app").advice.unwrap();
    assert!(advice.text.starts_with("correct spec.url: "), "{}", advice.text);
}

#[test]
fn a_release_leads_through_its_chart_to_the_repository() {
    let chart = json!({"spec": {"interval": "1m", "chart": {"spec": {"chart": "web",
        "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}});
    let waits = status("False", "SourceNotReady", "HelmChart 'apps/apps-web' is not ready");
    let release = with("HelmRelease/web", &[&chart, &waits]);
    let of = json!({"spec": {"interval": "1m", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    let chart =
        with("HelmChart/apps-web", &[&of, &status("False", "NoSourceArtifact", "no index")]);
    let spec = json!({"spec": {"interval": "1m", "url": "https://charts.test"}});
    let repository = with(
        "HelmRepository/charts",
        &[&spec, &status("False", "HTTPOperationFailed", "404 Not Found")],
    );
    let why = FakeClusterObjects::of(&[release, chart, repository]).why("HelmRelease/web");
    let line = "HelmRelease/apps/web is not ready: HelmRepository/apps/charts: 404 Not Found";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Fetch, "HelmRepository/charts", line);
    assert_eq!(why.path.len(), 3);
}

#[test]
fn the_deepest_dependency_that_is_not_ready_is_the_cause() {
    let depends = |on: &str| json!({"spec": {"dependsOn": [{"name": on}]}});
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let app = kustomization("app", &[&depends("middle"), &waits]);
    let middle = kustomization("middle", &[&depends("base"), &waits]);
    let base = kustomization("base", &[&status("False", "BuildFailed", "no such file")]);
    let why =
        FakeClusterObjects::of(&[app.clone(), middle, base, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: Kustomization/apps/base: no such file";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Build, "Kustomization/base", line);
    let steps: Vec<_> = why.path.iter().map(|it| it.object.name.as_str()).collect();
    assert_eq!(steps, ["app", "middle", "base"]);
    assert!(why.next.unwrap().starts_with("it is reconciled as soon as its dependency is ready"));
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: Kustomization/apps/middle: does not exist";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "Kustomization/middle", line);
}

#[test]
fn a_dependency_of_another_kind_is_a_cause_if_it_is_missing_or_has_to_be_ready() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"});
    let base = |ready: Value| json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "base", "ready": ready});
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let app =
        |on: Value| kustomization("app", &[&json!({"spec": {"dependsOn": [map, on]}}), &waits]);
    let settings = with("ConfigMap/settings", &[]);
    let release = with("HelmRelease/base", &[&status("False", "InstallFailed", "no such chart")]);
    let why = |objects: &[Value]| FakeClusterObjects::of(objects).why("Kustomization/app");
    let missing = why(&[app(base(Value::Null)), release.clone(), source()]);
    let line = "Kustomization/apps/app is not ready: ConfigMap/apps/settings: does not exist";
    expect(&missing, ExaminedObjectState::NotReady, CauseKind::Missing, "ConfigMap/settings", line);
    // The ConfigMap is there; a kind that applies objects has to be ready.
    let unready = why(&[app(base(Value::Null)), settings.clone(), release.clone(), source()]);
    assert_eq!(unready.cause.unwrap().object, id("HelmRelease/base"));
    // Here its existence is enough, so neither is the cause.
    let existing = why(&[app(base(json!(false))), settings, release, source()]);
    assert_eq!(existing.cause.unwrap().object, id("Kustomization/app"));
}

#[test]
fn what_the_annotation_names_is_a_dependency() {
    let on = |text: &str| json!({"metadata": {"annotations": {"windlass.dev/depends-on": text}}});
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let app = |text: &str| kustomization("app", &[&on(text), &waits]);
    let base = kustomization("base", &[&status("False", "BuildFailed", "no such file")]);
    let why = FakeClusterObjects::of(&[app("Kustomization/base"), base, source()])
        .why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: Kustomization/apps/base: no such file";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Build, "Kustomization/base", line);
    // The Helmfile of helmfile-operator is meant if there is no other; one of its releases is ready, the other is not.
    let rows = json!({"status": {"releases": [{"name": "db", "state": "Ready"},
        {"name": "web", "state": "Waiting", "message": "needs db"}]}});
    let helmfile = with("Helmfile/all", &[&ready(), &rows]);
    let cluster =
        FakeClusterObjects::of(&[app("Helmfile/all#db,Helmfile/all#web"), helmfile, source()]);
    let why = cluster.why("Kustomization/app");
    let line =
        "Kustomization/apps/app is not ready: Helmfile/apps/all: release web is Waiting: needs db";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Dependency, "Helmfile/all", line);
    // The full name of a release is that of one cluster only; a short one may be of several.
    let rows = json!({"status": {"releases": [
        {"name": "db", "namespace": "n", "kubeContext": "x/east", "state": "Failed"},
        {"name": "db", "namespace": "n", "state": "Ready"}]}});
    for (release, text) in [
        ("x/east/n/db", "release x/east/n/db is Failed"),
        ("db", "release db may be one of several: x/east/n/db, n/db"),
    ] {
        let helmfile = with("Helmfile/all", &[&ready(), &rows]);
        let annotation = format!("Helmfile/all#n/db,Helmfile/all#{release}");
        let why = FakeClusterObjects::of(&[app(&annotation), helmfile, source()])
            .why("Kustomization/app");
        let line = format!("Kustomization/apps/app is not ready: Helmfile/apps/all: {text}");
        expect(&why, ExaminedObjectState::NotReady, CauseKind::Dependency, "Helmfile/all", &line);
    }
}

#[test]
fn what_a_run_reports_is_the_cause_if_nothing_lies_deeper() {
    for (reason, problem) in [
        ("DependencyCycle", CauseKind::Cycle),
        ("ValuesError", CauseKind::Values),
        ("AccessDenied", CauseKind::Access),
        ("ReconciliationFailed", CauseKind::Apply),
        ("InvalidPath", CauseKind::Build),
    ] {
        let app = kustomization("app", &[&status("False", reason, "it says why")]);
        let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
        let line = "Kustomization/apps/app is not ready: it says why";
        expect(&why, ExaminedObjectState::NotReady, problem, "Kustomization/app", line);
    }
}

#[test]
fn a_spec_that_cannot_be_followed_is_not_retried() {
    let mut app =
        kustomization("app", &[&status("False", "UnsupportedField", "spec.x is not supported")]);
    app["status"]["conditions"][1]["type"] = "Stalled".into();
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    assert_eq!(why.cause.unwrap().problem, CauseKind::Spec);
    assert_eq!(why.next.as_deref(), Some("it is not retried until its spec changes"));
}

#[test]
fn a_refusal_points_at_the_object_that_was_refused() {
    let message = "Deployment/apps/web dry-run failed (Invalid): spec.replicas must be a number";
    let failed = status("False", "ReconciliationFailed", message);
    let app = kustomization("app", &[&failed, &inventory(&["apps_web_apps_Deployment"])]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = format!("Kustomization/apps/app is not ready: {message}");
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Apply, "Deployment/web", &line);
}

#[test]
fn a_remedy_leads_to_what_made_it_necessary() {
    let mut release = with(
        "HelmRelease/web",
        &[&json!({"spec": {"interval": "1m"}}), &status("False", "RetriesExceeded", "rolled back")],
    );
    release["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Released", "status": "False",
        "reason": "UpgradeFailed", "message": "pre-upgrade hook Job/apps/migrate failed: exit code 3"}));
    let why = FakeClusterObjects::of(&[release]).why("HelmRelease/web");
    let line =
        "HelmRelease/apps/web is not ready: pre-upgrade hook Job/apps/migrate failed: exit code 3";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Apply, "HelmRelease/web", line);
}

#[test]
fn a_cause_is_as_old_as_what_says_it_and_not_as_another_condition() {
    let since = |objects: &[Value], subject: &str| {
        let cause = FakeClusterObjects::of(objects).why(subject).cause.unwrap();
        cause.since.map(|at| at.to_string())
    };
    let at = |time: &str| Some(format!("2026-11-24T{time}Z"));
    // Each attempt writes the condition anew.
    let failed = status("False", "BuildFailed", "no such file");
    let run = json!({"lastReconciledStatus": "BuildFailed", "firstReconciled": "2026-11-24T09:00:00Z",
        "lastReconciled": "2026-11-24T11:55:00Z"});
    let history = json!({"status": {"history": [run]}});
    let app = kustomization("app", &[&failed, &history]);
    assert_eq!(since(&[app, source()], "Kustomization/app"), at("09:00:00"));
    // The `Ready` condition is about the former spec.
    let managed = json!([{"manager": "kubectl", "operation": "Update", "time": "2026-11-24T11:58:00Z",
        "fieldsV1": {"f:spec": {"f:path": {}}}}]);
    let edited = json!({"metadata": {"generation": 2, "managedFields": managed}});
    let app = kustomization("app", &[&ready(), &edited]);
    assert_eq!(since(&[app, source()], "Kustomization/app"), at("11:58:00"));
    let unknown = kustomization("app", &[&ready(), &json!({"metadata": {"generation": 2}})]);
    assert_eq!(since(&[unknown, source()], "Kustomization/app"), None);
    let window = json!({"metadata": {"annotations": {"windlass.dev/window": "never"}}});
    let app = kustomization("app", &[&ready(), &window]);
    assert_eq!(since(&[app, source()], "Kustomization/app"), None, "it was ready before");
    // A rollout of an old Deployment that is available.
    let deployment = with(
        "Deployment/web",
        &[&json!({"metadata": {"generation": 7}, "spec": {"replicas": 1, "selector": {}},
            "status": {"observedGeneration": 6, "conditions": [{"type": "Available", "status": "True"}]}})],
    );
    assert_eq!(since(&[deployment], "Deployment/web"), None);
}
