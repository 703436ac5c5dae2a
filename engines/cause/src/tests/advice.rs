//! What would help: each case that people met with advice that could not work.

use super::*;

fn advised(why: &StateExplanation) -> (String, String) {
    let advice = why.advice.clone().unwrap();
    (advice.text, advice.command.unwrap_or_default())
}

fn provider(more: &Value) -> Value {
    with(
        "Provider/slack",
        &[&json!({"spec": {"type": "slack", "secretRef": {"name": "hook"}}}), more],
    )
}

fn alert() -> Value {
    with("Alert/all", &[&json!({"spec": {"providerRef": {"name": "slack"}}})])
}

#[test]
fn a_provider_without_its_secret_is_not_ready() {
    let why = FakeClusterObjects::of(&[provider(&json!({}))]).why("Provider/slack");
    let line = "Provider/apps/slack is not ready: Secret/apps/hook does not exist; spec.secretRef of Provider/apps/slack \
                names it";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "Secret/hook", line);
    let (text, command) = advised(&why);
    assert_eq!(text, "create Secret/apps/hook, or correct spec.secretRef of Provider/apps/slack");
    assert_eq!(
        command,
        "kubectl -n apps create secret generic hook --from-literal=address=ADDRESS"
    );
    let secret = with("Secret/hook", &[&json!({"data": {"address": ""}})]);
    let why = FakeClusterObjects::of(&[provider(&json!({})), secret]).why("Provider/slack");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Ready, None));
}

#[test]
fn an_alert_is_as_ready_as_its_provider() {
    let why = FakeClusterObjects::of(&[alert()]).why("Alert/all");
    let line = "Alert/apps/all is not ready: Provider/apps/slack: does not exist";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "Provider/slack", line);
    let why = FakeClusterObjects::of(&[alert(), provider(&json!({}))]).why("Alert/all");
    assert_eq!(
        (why.state, why.cause.unwrap().object),
        (ExaminedObjectState::NotReady, id("Secret/hook"))
    );
    let steps: Vec<_> = why.path.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(steps, ["names Provider/apps/slack", "names Secret/apps/hook"]);
    let suspended = provider(&json!({"spec": {"suspend": true}}));
    let why = FakeClusterObjects::of(&[alert(), suspended]).why("Alert/all");
    assert_eq!(why.cause.unwrap().problem, CauseKind::Suspension);
    // What may not be read is not missing.
    let mut cluster = FakeClusterObjects::of(&[alert(), provider(&json!({}))]);
    cluster.refused.push(FactQuery::Object(id("Secret/hook")));
    let why = cluster.why("Alert/all");
    assert_eq!((why.state, why.remarks.len()), (ExaminedObjectState::Ready, 1));
}

#[test]
fn a_provider_whose_notifications_are_not_delivered_is_not_ready_and_neither_is_its_alert() {
    let secret = with("Secret/hook", &[&json!({"data": {"address": ""}})]);
    let incident = |name: &str, reason: &str, state: &str| {
        let subject = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider", "name": name});
        with(
            "Incident/provider-slack-1",
            &[&json!({"spec": {"subject": subject, "reason": reason}, "status": {
            "state": state, "since": "2026-11-24T11:00:00Z", "message": "the service answered with status 404"}})],
        )
    };
    let cluster = |incident: Value| {
        FakeClusterObjects::of(&[alert(), provider(&json!({})), secret.clone(), incident])
    };
    let failing = cluster(incident("slack", "Delivery", "Open"));
    let why = failing.why("Provider/slack");
    let line = "Provider/apps/slack is not ready: the service answered with status 404";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Delivery, "Provider/slack", line);
    assert_eq!(why.cause.as_ref().unwrap().since, Some("2026-11-24T11:00:00Z".parse().unwrap()));
    let next = "it is ready again when the service accepts a notification";
    assert_eq!(why.next.as_deref(), Some(next));
    let (text, command) = advised(&why);
    let begin = "correct Provider/apps/slack or its Secret by what the service says; notifications that wait are sent";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(command, "windlass alerts test slack -n apps");
    let why = failing.why("Alert/all");
    let line =
        "Alert/apps/all is not ready: Provider/apps/slack: the service answered with status 404";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Delivery, "Provider/slack", line);
    // One that has ended, of another class, or about another Provider.
    for (name, reason, state) in [
        ("slack", "Delivery", "Resolved"),
        ("slack", "Fetch", "Open"),
        ("other", "Delivery", "Open"),
    ] {
        let why = cluster(incident(name, reason, state)).why("Alert/all");
        assert_eq!(
            (why.state, why.cause),
            (ExaminedObjectState::Ready, None),
            "{name} {reason} {state}"
        );
    }
    // A user who may not list Incidents does not get an all-clear.
    let mut hidden = cluster(incident("slack", "Delivery", "Open"));
    let namespace = "apps".to_owned();
    hidden.refused.push(FactQuery::Incidents { namespace, kind: "Provider".to_owned() });
    let why = hidden.why("Provider/slack");
    assert_eq!(
        why.remarks,
        [
            "Incidents in namespace apps, which tell of notifications that fail, cannot be listed: forbidden"
        ]
    );
}

#[test]
fn a_service_that_cannot_be_reached_is_named_by_host_and_port() {
    let message =
        "postMessage failed: failed to execute request: cannot connect: Connection refused";
    let subject = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider", "name": "dead"});
    let incident = json!({"spec": {"subject": subject, "reason": "Delivery"},
        "status": {"state": "Open", "since": "2026-11-24T11:00:00Z", "message": message}});
    let spec = json!({"spec": {"type": "generic", "address": "http://hooks.test:8080/hunter2"}});
    let secret = json!({"spec": {"secretRef": {"name": "hook"}}});
    let refused = "no server listens there, or a firewall rejects the connection; notifications that wait are sent";
    for (named, place) in [
        (json!({}), "spec.address of Provider/apps/dead"),
        (
            secret,
            "spec.address of Provider/apps/dead (or in `address` of Secret/apps/hook, which counts first)",
        ),
    ] {
        let objects = [
            with("Provider/dead", &[&spec, &named]),
            with("Secret/hook", &[]),
            with("Incident/provider-dead-1", &[&incident]),
        ];
        let why = FakeClusterObjects::of(&objects).why("Provider/dead");
        let (text, command) = advised(&why);
        let begin = format!("check host and port `hooks.test:8080` in {place}: {refused}");
        assert!(text.starts_with(&begin) && !text.contains("hunter2"), "{text}");
        assert_eq!(command, "windlass alerts test dead -n apps");
    }
    // A server that was reached has to be trusted.
    let untrusted = "cannot connect: invalid peer certificate: UnknownIssuer";
    let untrusted = json!({"status": {"message": untrusted}});
    let incident = with("Incident/provider-dead-1", &[&incident, &untrusted]);
    let why = FakeClusterObjects::of(&[with("Provider/dead", &[&spec]), incident]);
    let (text, _) = advised(&why.why("Provider/dead"));
    let place = "spec.certSecretRef of Provider/apps/dead";
    assert!(text.contains("`ca.crt`") && text.contains(place), "{text}");
}

#[test]
fn incidents_of_providers_are_not_asked_for_about_one_of_another_group() {
    let provider = json!({"apiVersion": "other.fluxcd.io/v1", "kind": "Provider",
        "metadata": {"name": "slack", "namespace": "apps"}});
    let mut cluster = FakeClusterObjects::of(&[provider]);
    let namespace = "apps".to_owned();
    cluster.refused.push(FactQuery::Incidents { namespace, kind: "Provider".to_owned() });
    let why = cluster.explained(&ObjectId::new("apps", "slack", "other.fluxcd.io", "Provider"));
    assert!(why.remarks.is_empty(), "{:?}", why.remarks);
}

#[test]
fn a_service_account_that_does_not_exist_is_the_cause() {
    let account = json!({"spec": {"serviceAccountName": "deployer"}});
    let message = "ConfigMap/apps/a dry-run failed (Forbidden): configmaps \"a\" is forbidden: User \
                   \"system:serviceaccount:apps:deployer\" cannot patch resource \"configmaps\"";
    let app = kustomization("app", &[&account, &status("False", "ReconciliationFailed", message)]);
    let why = FakeClusterObjects::of(&[app.clone(), source()]).why("Kustomization/app");
    let cause = why.cause.clone().unwrap();
    assert_eq!((cause.problem, cause.object), (CauseKind::Missing, id("ServiceAccount/deployer")));
    let (_, command) = advised(&why);
    assert_eq!(
        command,
        "kubectl -n apps create serviceaccount deployer && kubectl -n apps create rolebinding deployer \
         --clusterrole=edit --serviceaccount=apps:deployer"
    );
    let account = with("ServiceAccount/deployer", &[]);
    let why = FakeClusterObjects::of(&[app, source(), account]).why("Kustomization/app");
    let (text, _) = advised(&why);
    let grant = "grant ServiceAccount/apps/deployer the right that the message names";
    assert_eq!(text, format!("{grant}, after which it is retried"));
    let elsewhere = json!({"spec": {"serviceAccountName": "deployer", "kubeConfig": {"secretRef": {"name": "far"}}}});
    let app = kustomization("app", &[&elsewhere, &status("False", "BuildFailed", "x")]);
    let why =
        FakeClusterObjects::of(&[app, source(), with("Secret/far", &[])]).why("Kustomization/app");
    assert_eq!(why.cause.unwrap().problem, CauseKind::Build, "it is in the other cluster");
}

#[test]
fn a_key_that_values_name_is_added_to_the_existing_object() {
    let from = json!({"spec": {"valuesFrom": [{"kind": "Secret", "name": "prod", "valuesKey": "prod.yaml"}]}});
    let failed = status("False", "ValuesError", "key 'prod.yaml' not found in Secret 'apps/prod'");
    let release = with("HelmRelease/web", &[&from, &failed]);
    let secret = with("Secret/prod", &[&json!({"data": {"other": ""}})]);
    let why = FakeClusterObjects::of(&[release, secret]).why("HelmRelease/web");
    let line = "HelmRelease/apps/web is not ready: Secret/apps/prod has no key `prod.yaml`; spec.valuesFrom[0] of \
                HelmRelease/apps/web names it";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "Secret/prod", line);
    let (text, command) = advised(&why);
    assert!(text.starts_with("add the key to Secret/apps/prod"), "{text}");
    assert_eq!(
        command,
        "kubectl -n apps patch secret prod --type=merge -p '{\"stringData\":{\"prod.yaml\":\"VALUE\"}}'"
    );
}

#[test]
fn a_file_that_cannot_be_decrypted_leads_to_the_secret_with_the_keys() {
    let decryption =
        json!({"spec": {"decryption": {"provider": "sops", "secretRef": {"name": "keys"}}}});
    let failed =
        status("False", "BuildFailed", "error decrypting sources: cannot get sops data key");
    let app = kustomization("app", &[&decryption, &failed]);
    let why =
        FakeClusterObjects::of(&[app, source(), with("Secret/keys", &[])]).why("Kustomization/app");
    let (text, command) = advised(&why);
    assert_eq!(
        text,
        "add the private key of one of the recipients to Secret/apps/keys (spec.decryption.secretRef)"
    );
    assert!(
        command.starts_with("kubectl -n apps create secret generic keys --from-file=age.agekey")
    );
    let failed =
        status("False", "BuildFailed", "Secret/apps/a is encrypted with SOPS; set spec.decryption");
    let app = kustomization("app", &[&failed]);
    let (text, _) = advised(&FakeClusterObjects::of(&[app, source()]).why("Kustomization/app"));
    assert!(text.starts_with("name a Secret with the private key"), "{text}");
}

#[test]
fn a_refusal_names_what_to_correct_and_where() {
    let refused = |message: &str, more: &Value| {
        let failed = status("False", "ReconciliationFailed", message);
        let path = json!({"spec": {"path": "./deploy"}});
        let inventory = inventory(&["apps_web_apps_Deployment"]);
        let app = kustomization("app", &[&failed, &path, &inventory, more]);
        advised(&FakeClusterObjects::of(&[app, source()]).why("Kustomization/app"))
    };
    let none = json!({});
    let (text, command) = refused(
        "Deployment/apps/web dry-run failed (Invalid): spec.replicas must be a number",
        &none,
    );
    assert_eq!(text, "correct Deployment/apps/web in folder deploy of GitRepository/apps/app");
    assert_eq!(command, "");
    let (text, _) = refused(
        "Deployment/apps/web dry-run failed (Invalid): spec.selector: field is immutable",
        &none,
    );
    assert_eq!(
        text,
        "revert the change of that field in folder deploy of GitRepository/apps/app, or have Deployment/apps/web deleted and \
         created again: annotate it there with kustomize.toolkit.fluxcd.io/force: enabled"
    );
    let (text, _) = refused("Widget/apps/a dry-run failed: no matches for kind \"Widget\"", &none);
    assert_eq!(
        text,
        "install the CustomResourceDefinition of kind Widget: by Kustomization/apps/app itself, or by what its \
         spec.dependsOn names"
    );
    let called = "ConfigMap/apps/a dry-run failed (InternalError): Internal error occurred: failed calling webhook \"a.test\": \
                  no endpoints available";
    let (text, command) = refused(called, &none);
    assert!(text.starts_with("make the service of the admission webhook a.test respond"), "{text}");
    assert!(command.starts_with("kubectl get validatingwebhookconfigurations"), "{command}");
}

#[test]
fn each_refusal_of_a_run_has_its_advice() {
    let message = "ConfigMap/apps/a dry-run failed (Invalid): data must be strings\n\
                   Widget/apps/w dry-run failed: no matches for kind \"Widget\" in version \"a.test/v1\"";
    let app = kustomization("app", &[&status("False", "ReconciliationFailed", message)]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    assert!(why.line().contains("must be strings; Widget/apps/w dry-run failed"), "{}", why.line());
    let (text, command) = advised(&why);
    assert_eq!(
        text,
        "correct ConfigMap/apps/a in GitRepository/apps/app; install the CustomResourceDefinition of kind Widget: by \
         Kustomization/apps/app itself, or by what its spec.dependsOn names"
    );
    assert_eq!(command, "");
}

#[test]
fn a_namespace_that_does_not_exist_is_created_or_the_field_that_names_it_is_corrected() {
    let absent =
        |kind: &str| format!("{kind}/nowhere/web not found: namespaces \"nowhere\" not found");
    let message = format!("{}\n{}", absent("Deployment"), absent("Service"));
    let failed = status("False", "ReconciliationFailed", &message);
    let into = json!({"spec": {"targetNamespace": "nowhere"}});
    let app = |more: &Value| {
        let app = kustomization("app", &[&failed, more]);
        advised(&FakeClusterObjects::of(&[app, source()]).why("Kustomization/app"))
    };
    let (text, command) = app(&into);
    assert_eq!(
        text,
        "create Namespace/nowhere, or correct spec.targetNamespace of Kustomization/apps/app"
    );
    assert_eq!(
        command,
        "kubectl create namespace nowhere && windlass reconcile kustomization/app -n apps"
    );
    let (text, _) = app(&json!({}));
    assert!(
        text.starts_with(
            "create Namespace/nowhere, or correct metadata.namespace of Deployment/nowhere/web in "
        ),
        "{text}"
    );
    let failed = status(
        "False",
        "InstallFailed",
        "failed to create resource: namespaces \"nowhere\" not found",
    );
    let release = with("HelmRelease/web", &[&json!({"spec": {"interval": "1m"}}), &into, &failed]);
    let (text, _) = advised(&FakeClusterObjects::of(&[release]).why("HelmRelease/web"));
    assert!(text.contains("set spec.install.createNamespace of HelmRelease/apps/web"), "{text}");
}

#[test]
fn a_right_that_is_missing_is_granted_by_a_command() {
    let refused = |place: &str, group: &str| {
        let account = json!({"spec": {"serviceAccountName": "deployer"}});
        let message = format!(
            "Widget/apps/w dry-run failed (Forbidden): widgets.{group} \"w\" is forbidden: User \
             \"system:serviceaccount:apps:deployer\" cannot patch resource \"widgets\" in API group \"{group}\" {place}"
        );
        let failed = status("False", "ReconciliationFailed", &message);
        let app = kustomization("app", &[&account, &failed]);
        let account = with("ServiceAccount/deployer", &[]);
        advised(&FakeClusterObjects::of(&[app, source(), account]).why("Kustomization/app"))
    };
    let (text, command) = refused("in the namespace \"apps\"", "a.test");
    assert_eq!(
        text,
        "grant ServiceAccount/apps/deployer the rights get,list,create,update,patch,delete on widgets.a.test in namespace \
         apps, after which it is retried"
    );
    assert_eq!(
        command,
        "kubectl -n apps create role deployer-widgets --verb=get,list,create,update,patch,delete --resource=widgets.a.test && \
         kubectl -n apps create rolebinding deployer-widgets --role=deployer-widgets --serviceaccount=apps:deployer"
    );
    let (text, command) = refused("at the cluster scope", "a.test");
    assert!(text.contains("on widgets.a.test in the whole cluster"), "{text}");
    assert!(command.starts_with("kubectl create clusterrole deployer-widgets "), "{command}");
    for (place, group) in [
        ("in the namespace \"a;b\"", "a.test"),
        // Who grants rights about roles needs these rights.
        ("in the namespace \"apps\"", "rbac.authorization.k8s.io"),
    ] {
        assert_eq!(refused(place, group).1, "", "{place} {group}");
    }
}

#[test]
fn all_rights_that_are_missing_are_granted_at_once() {
    let account = json!({"spec": {"serviceAccountName": "deployer"}});
    let refused = |kind: &str, group: &str, place: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        format!(
            "{kind}/apps/w dry-run failed (Forbidden): {plural}.{group} \"w\" is forbidden: User \
             \"system:serviceaccount:apps:deployer\" cannot patch resource \"{plural}\" in API group \"{group}\" {place}"
        )
    };
    let apps = "in the namespace \"apps\"";
    let mut refusals = ["A", "B", "C", "D"].map(|kind| refused(kind, "a.test", apps)).to_vec();
    refusals.push(refused("Widget", "", "at the cluster scope"));
    refusals.push("E/apps/e dry-run failed (Invalid): bad".to_owned());
    let failed = status("False", "ReconciliationFailed", &refusals.join("\n"));
    let app = kustomization("app", &[&account, &failed]);
    let account = with("ServiceAccount/deployer", &[]);
    let (text, command) =
        advised(&FakeClusterObjects::of(&[app, source(), account]).why("Kustomization/app"));
    let grant = "grant ServiceAccount/apps/deployer the rights get,list,create,update,patch,delete on widgets in the whole \
                 cluster and on as.a.test, bs.a.test, cs.a.test, ds.a.test in namespace apps, after which it is retried; ";
    assert!(text.starts_with(grant), "{text}");
    assert_eq!(text.matches("grant").count(), 1, "{text}");
    let role = "kubectl -n apps create role deployer-as-and-3-more \
                --verb=get,list,create,update,patch,delete --resource=as.a.test,bs.a.test,cs.a.test,ds.a.test && ";
    assert!(command.contains(role), "{command}");
    assert!(command.starts_with("kubectl create clusterrole deployer-widgets "), "{command}");
}

#[test]
fn a_release_that_is_healthy_by_now_is_reset() {
    let message = "Helm install failed for release apps/web: timeout waiting for: [Deployment/apps/web status: 'InProgress']";
    let mut release = with(
        "HelmRelease/web",
        &[
            &json!({"spec": {"interval": "1m"}, "status": {"history": [{"status": "failed"}]}}),
            &status("False", "InstallFailed", message),
            &inventory(&["apps_web_apps_Deployment"]),
        ],
    );
    release["status"]["conditions"][1] =
        json!({"type": "Stalled", "status": "True", "reason": "RetriesExceeded"});
    let web = |available: &str| {
        let said = json!([{"type": "Available", "status": available}]);
        with(
            "Deployment/web",
            &[&json!({"spec": {"replicas": 0, "selector": {}}, "status": {"conditions": said}})],
        )
    };
    let reset = "windlass reconcile helmrelease/web -n apps --reset";
    let healthy = "everything that the release waited for is healthy by now: reset its failures";
    let of = |release: &Value, deployment: Value| {
        advised(&FakeClusterObjects::of(&[release.clone(), deployment]).why("HelmRelease/web"))
    };
    assert_eq!(of(&release, web("True")), (healthy.to_owned(), reset.to_owned()));
    // After a rollback, what is healthy is the former revision.
    let mut undone = release.clone();
    undone["status"]["history"][0]["status"] = "superseded".into();
    assert!(of(&undone, web("True")).0.starts_with("correct "));
    // A hook that failed is not among what was applied.
    release["status"]["conditions"][0]["message"] =
        "failed early due to stalled resources: [Job/apps/migrate status: 'Failed']".into();
    assert!(of(&release, web("True")).0.starts_with("read the log of what failed"));
}

#[test]
fn a_release_whose_retries_are_exhausted_is_reset_once_its_pods_are_mended() {
    let failed = status("False", "InstallFailed", "timeout waiting for: [Deployment/apps/web]");
    let mut release = with(
        "HelmRelease/web",
        &[&json!({"spec": {"interval": "1m"}}), &failed, &inventory(&["apps_web_apps_Deployment"])],
    );
    release["status"]["conditions"][1] =
        json!({"type": "Stalled", "status": "True", "reason": "RetriesExceeded"});
    let labels = json!({"matchLabels": {"app": "web"}});
    let deployment = with(
        "Deployment/web",
        &[
            &json!({"spec": {"replicas": 1, "selector": labels}, "status": {"observedGeneration": 1}}),
        ],
    );
    let pod = with(
        "Pod/web-1",
        &[&json!({"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]}})],
    );
    let why = FakeClusterObjects::of(&[release, deployment, pod]).why("HelmRelease/web");
    let (text, command) = advised(&why);
    assert!(text.starts_with("make room on a node"), "{text}");
    assert!(text.ends_with("`windlass reconcile helmrelease/web -n apps --reset`"), "{text}");
    assert_eq!(command, "kubectl -n apps describe pod web-1");
}

#[test]
fn an_object_that_was_never_applied_was_not_deleted() {
    let check = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "nowhere"}]);
    let unhealthy =
        status("False", "HealthCheckFailed", "timeout waiting for: [Deployment/apps/nowhere]");
    let app = kustomization("app", &[&json!({"spec": {"healthChecks": check}}), &unhealthy]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let line = "Kustomization/apps/app is not ready: Deployment/apps/nowhere: does not exist";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Missing, "Deployment/nowhere", line);
    let (text, command) = advised(&why);
    assert_eq!(
        text,
        "correct spec.healthChecks[0] of Kustomization/apps/app: nothing that Kustomization/apps/app applied is \
         Deployment/apps/nowhere; or add its manifest to GitRepository/apps/app, or create it"
    );
    assert_eq!(command, "");
    let app = kustomization("app", &[&ready(), &inventory(&["apps_a__ConfigMap"])]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    let deleted = "it was deleted; reconcile what applied it".to_owned();
    let command = "windlass reconcile kustomization/app -n apps".to_owned();
    assert_eq!(advised(&why), (deleted, command));
}

#[test]
fn what_waits_for_dependencies_that_are_ready_is_not_sent_to_itself() {
    let waits = status("False", "DependencyNotReady", "revision is not up to date");
    let on = json!({"spec": {"dependsOn": [{"name": "base"}]}});
    let all = [kustomization("app", &[&on, &waits]), kustomization("base", &[&ready()]), source()];
    let (text, command) = advised(&FakeClusterObjects::of(&all).why("Kustomization/app"));
    assert_eq!(text, "check what it depends on: Kustomization/apps/base");
    assert_eq!(command, "windlass why kustomization/base -n apps");
}

#[test]
fn an_object_of_another_release_is_not_to_be_deleted() {
    let message = "cannot patch \"web\" with kind Deployment: spec.selector: field is immutable";
    let failed = status("False", "UpgradeFailed", message);
    let release = with("HelmRelease/web", &[&json!({"spec": {"interval": "1m"}}), &failed]);
    let (text, command) = advised(&FakeClusterObjects::of(&[release]).why("HelmRelease/web"));
    assert!(text.contains("unless another release or Kustomization applies it, too"), "{text}");
    assert_eq!(command, "");
}

#[test]
fn the_field_that_names_what_does_not_exist_is_named() {
    let text = |object: Value, more: &[Value]| {
        let id = Object::new(object.clone()).unwrap().id();
        let all = [&[object], more].concat();
        advised(&FakeClusterObjects::of(&all).explained(&id)).0
    };
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let on = json!({"spec": {"dependsOn": [{"name": "base"}]}});
    assert_eq!(
        text(kustomization("app", &[&on, &waits]), &[source()]),
        "create Kustomization/apps/base, or correct spec.dependsOn[0] of Kustomization/apps/app"
    );
    let blocked = status("False", "ArtifactFailed", "not found");
    assert_eq!(
        text(kustomization("app", &[&blocked]), &[]),
        "create GitRepository/apps/app, or correct spec.sourceRef of Kustomization/apps/app"
    );
    assert_eq!(
        text(alert(), &[]),
        "create Provider/apps/slack, or correct spec.providerRef of Alert/apps/all"
    );
}

#[test]
fn an_object_of_ours_that_is_refused_is_corrected_where_it_comes_from() {
    let message = "Kustomization/apps/child dry-run failed (Invalid): spec.interval: Invalid value";
    let failed = status("False", "ReconciliationFailed", message);
    let ids = inventory(&["apps_child_kustomize.toolkit.fluxcd.io_Kustomization"]);
    let path = |at: &str| json!({"spec": {"path": at}});
    let fleet = kustomization("fleet", &[&failed, &ids, &path("./fleet")]);
    let child = kustomization("child", &[&ready(), &path("./elsewhere")]);
    let why = FakeClusterObjects::of(&[fleet, child, source()]).why("Kustomization/fleet");
    assert_eq!(why.cause.as_ref().unwrap().object, id("Kustomization/child"));
    let (text, _) = advised(&why);
    assert_eq!(text, "correct Kustomization/apps/child in folder fleet of GitRepository/apps/app");
}

#[test]
fn a_job_whose_template_changed_is_deleted_and_not_read() {
    let value = "x".repeat(3_000);
    let message = format!(
        "Job/apps/migrate dry-run failed (Invalid): Job.batch \"migrate\" is invalid: spec.template: Invalid value: {value}: \
         field is immutable"
    );
    let failed = status("False", "ReconciliationFailed", &message);
    let app = kustomization("app", &[&failed, &inventory(&["apps_migrate_batch_Job"])]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    assert!(why.line().ends_with("field is immutable") && why.line().len() < 1000);
    let (text, command) = advised(&why);
    assert!(text.ends_with("annotate it there with kustomize.toolkit.fluxcd.io/force: enabled"));
    assert_eq!(command, "kubectl -n apps delete job migrate");
}

#[test]
fn a_release_whose_retries_are_exhausted_is_reset_after_the_log_of_its_hook_was_read() {
    let message = "failed pre-install: failed early due to stalled resources: [Job/apps/migrate status: 'Failed']";
    let mut release = with(
        "HelmRelease/web",
        &[&json!({"spec": {"interval": "1m"}}), &status("False", "InstallFailed", message)],
    );
    // Ready keeps the failure.
    release["status"]["conditions"][1] =
        json!({"type": "Stalled", "status": "True", "reason": "RetriesExceeded"});
    let why = FakeClusterObjects::of(&[release.clone()]).why("HelmRelease/web");
    let (text, command) = advised(&why);
    assert_eq!(
        text,
        "read the log of what failed (`kubectl -n apps logs job/migrate`), correct it, then reset the failures of the \
         release"
    );
    assert_eq!(command, "windlass reconcile helmrelease/web -n apps --reset");
    let next =
        "it is not retried until its spec, values or chart change, or its failures are reset";
    assert_eq!(why.next.as_deref(), Some(next));
    release["status"]["conditions"][1] = json!({"type": "Reconciling", "status": "True"});
    let why = FakeClusterObjects::of(&[release]).why("HelmRelease/web");
    assert_eq!(advised(&why).1, "kubectl -n apps logs job/migrate");
}

#[test]
fn a_source_that_cannot_be_fetched_is_checked_by_what_its_spec_says() {
    let of = |spec: Value, message: &str| {
        let source =
            with("GitRepository/app", &[&spec, &status("False", "GitOperationFailed", message)]);
        advised(&FakeClusterObjects::of(&[source]).why("GitRepository/app")).0
    };
    let branch = json!({"spec": {"url": "https://h/r", "ref": {"branch": "mian"}}});
    assert_eq!(
        of(branch, "no such branch"),
        "check whether spec.ref.branch `mian` exists, whether spec.url is right, and whether the cluster reaches that \
         server"
    );
    let branch = json!({"spec": {"url": "https://h/r", "ref": {"branch": "mian"}}});
    assert_eq!(
        of(branch, "branch `mian` not found in https://h/r"),
        "correct spec.ref.branch `mian`, or push what it names"
    );
    let unreachable = json!({"spec": {"url": "https://h/r", "ref": {"branch": "main"}}});
    let text = of(unreachable, "cannot connect to h: failed to lookup address information");
    assert_eq!(
        text,
        "check the host `h` in spec.url: its name is not resolved where windlass runs"
    );
    let own = "`localhost` resolves to windlass itself or to its node, which is not allowed";
    let text = of(json!({"spec": {"url": "http://localhost/r"}}), own);
    assert!(text.ends_with("start it with --allow-loopback-sources"), "{text}");
}

#[test]
fn a_container_that_never_ran_has_no_log() {
    let of = |state: Value| {
        let status =
            json!({"phase": "Pending", "containerStatuses": [{"name": "app", "state": state}]});
        let pod = with("Pod/web-1", &[&json!({"status": status})]);
        advised(&FakeClusterObjects::of(&[pod]).why("Pod/web-1")).1
    };
    let waiting = |reason: &str| json!({"waiting": {"reason": reason, "message": "x"}});
    assert_eq!(of(waiting("CreateContainerConfigError")), "kubectl -n apps describe pod web-1");
    let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    assert_eq!(of(ended), "kubectl -n apps logs web-1 --all-containers");
}

#[test]
fn the_default_generation_of_a_status_is_not_shown_as_a_number() {
    let release = with(
        "HelmRelease/web",
        &[&json!({"status": {"observedGeneration": -1,
        "conditions": [{"type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "x"}]}})],
    );
    let why = FakeClusterObjects::of(&[release]).why("HelmRelease/web");
    assert_eq!(why.line(), "HelmRelease/apps/web is being reconciled: has not been reconciled yet");
}

#[test]
fn fields_that_another_client_keeps_changing_are_left_to_it_by_the_rule_of_the_message() {
    let contested = |of: &str, message: &str| {
        let kind = of.split('/').next().unwrap_or_default();
        let object = with(of, &[&json!({"spec": {"interval": "1m"}})]);
        let mut owner = if kind == "Kustomization" { kustomization("app", &[]) } else { object };
        put(&mut owner, &status("False", "Contested", message));
        put(&mut owner, &inventory(&["apps_web_apps_Deployment"]));
        let web = with(
            "Deployment/web",
            &[&json!({"spec": {"replicas": 0, "selector": {}},
                "status": {"conditions": [{"type": "Available", "status": "True"}]}})],
        );
        advised(&FakeClusterObjects::of(&[owner, source(), web]).why(of))
    };
    let message = "Deployment/apps/web is contested: field manager 'scaler' repeatedly sets /spec/replicas; corrected only \
                   every 10m0s";
    for (of, field) in [
        ("Kustomization/app", "spec.ignore of Kustomization/apps/app"),
        ("HelmRelease/web", "spec.driftDetection.ignore of HelmRelease/apps/web"),
    ] {
        let (text, command) = contested(of, message);
        let client = "stop the client that keeps changing or deleting Deployment/apps/web, ";
        assert!(text.starts_with(client), "{text}");
        assert!(text.ends_with(&format!("add the rule that the message has to {field}")), "{text}");
        assert_eq!(command, "");
        // What the message says of the fields decides nothing.
        let (other, _) =
            contested(of, "Deployment/apps/web is contested: it is repeatedly deleted");
        assert_eq!(other, text);
    }
}

#[test]
fn a_policy_that_does_not_go_down_or_waits_is_advised_by_its_reason() {
    let policy = |reason: &str| {
        let spec = json!({"spec": {"imageRepositoryRef": {"name": "app"}}});
        let policy = with("ImagePolicy/app", &[&spec, &status("False", reason, "of the tags")]);
        let repository = with("ImageRepository/app", &[&ready()]);
        advised(&FakeClusterObjects::of(&[policy, repository]).why("ImagePolicy/app"))
    };
    let (text, command) = policy("DowngradeRefused");
    assert!(text.starts_with("push the tag anew, or allow the lower one"), "{text}");
    assert_eq!(
        command,
        "kubectl -n apps annotate imagepolicy.image.toolkit.fluxcd.io/app \
         windlass.dev/allow-downgrade=true"
    );
    for (reason, expected) in [
        ("MinAgeNotReached", "wait, or set a shorter windlass.dev/min-age"),
        (
            "Quarantined",
            "commit a correction; the message has the command that applies the quarantined revision again",
        ),
        (
            "PlatformsMissing",
            "push an image for all platforms, or correct windlass.dev/required-platforms",
        ),
        (
            "MarkerWithoutDigest",
            "mark the whole image, or its digest as well, in the file that the message names",
        ),
    ] {
        let (text, command) = policy(reason);
        assert_eq!((text.as_str(), command.as_str()), (expected, ""));
    }
}
