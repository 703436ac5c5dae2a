//! What is below objects that apply others, Namespaces that are being deleted, and what is in progress.

use super::*;

const CHILD: &str = "apps_apps_kustomize.toolkit.fluxcd.io_Kustomization";
const RELEASE: &str = "apps_web_helm.toolkit.fluxcd.io_HelmRelease";

fn release(status: &Value) -> Value {
    with("HelmRelease/web", &[&json!({"spec": {"interval": "1m"}}), status])
}

/// The Kustomization `fleet`, which applied the Kustomization `apps`; both are ready.
fn fleet(below: &[&Value]) -> Vec<Value> {
    let fleet = kustomization("fleet", &[&ready(), &inventory(&[CHILD])]);
    let apps = kustomization("apps", &[&[&ready(), &inventory(&[RELEASE])], below].concat());
    vec![fleet, apps, source()]
}

#[test]
fn a_failure_below_an_object_that_is_ready_is_found_from_the_top() {
    let failed = status("False", "InstallFailed", "no such image");
    let all = [fleet(&[]), vec![release(&failed)]].concat();
    let why = FakeClusterObjects::of(&all).why("Kustomization/fleet");
    let line = "Kustomization/apps/fleet is ready, but what it applied is not: HelmRelease/apps/web: no such image";
    expect(&why, ExaminedObjectState::Degraded, CauseKind::Apply, "HelmRelease/web", line);
    let steps: Vec<_> = why.path.iter().map(|it| it.object.name.as_str()).collect();
    assert_eq!(steps, ["fleet", "apps", "web"]);
    let why = FakeClusterObjects::of(&[fleet(&[]), vec![release(&ready())]].concat());
    assert_eq!(why.why("Kustomization/fleet").cause, None);
}

#[test]
fn what_is_below_a_suspended_object_is_named_as_not_examined() {
    let suspended = json!({"spec": {"suspend": true}});
    let failed = status("False", "InstallFailed", "no such image");
    let all = [fleet(&[&suspended]), vec![release(&failed)]].concat();
    let why = FakeClusterObjects::of(&all).why("Kustomization/fleet");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Ready, None));
    assert_eq!(why.remarks, ["what Kustomization/apps/apps applied was not examined: suspended"]);
}

#[test]
fn objects_that_apply_each_other_end() {
    let each = |name: &str, other: &str| {
        let other = format!("apps_{other}_kustomize.toolkit.fluxcd.io_Kustomization");
        kustomization(name, &[&ready(), &inventory(&[&other])])
    };
    let why =
        FakeClusterObjects::of(&[each("a", "b"), each("b", "a"), source()]).why("Kustomization/a");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Ready, None));
}

#[test]
fn many_objects_that_apply_others_take_few_rounds() {
    let kustomization_of =
        |at: usize| format!("apps_k{at}_kustomize.toolkit.fluxcd.io_Kustomization");
    let ids: Vec<String> = (0..300).map(kustomization_of).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut all = vec![kustomization("fleet", &[&ready(), &inventory(&ids)]), source()];
    for at in 0..300 {
        let config = format!("apps_c{at}__ConfigMap");
        all.push(kustomization(&format!("k{at}"), &[&ready(), &inventory(&[&config])]));
        // The last one is gone.
        if at < 299 {
            all.push(with(&format!("ConfigMap/c{at}"), &[]));
        }
    }
    let why = FakeClusterObjects::of(&all).why("Kustomization/fleet");
    assert_eq!(why.cause.unwrap().object, id("ConfigMap/c299"));
}

#[test]
fn what_a_list_has_shown_to_be_well_is_not_asked_for() {
    let app =
        kustomization("app", &[&ready(), &inventory(&["apps_a__ConfigMap", "apps_b__ConfigMap"])]);
    let cluster = FakeClusterObjects::of(&[app, source()]);
    let mut known = FactAnswers::default();
    known.insert_well(id("ConfigMap/a"));
    let why = loop {
        match explain(&id("Kustomization/app"), &known, now()) {
            Ok(why) => break why,
            Err(queries) => {
                assert!(!queries.contains(&FactQuery::Object(id("ConfigMap/a"))));
                for query in queries {
                    known.insert(query.clone(), cluster.answer(&query));
                }
            }
        }
    };
    assert_eq!(why.cause.unwrap().object, id("ConfigMap/b"));
}

#[test]
fn a_job_that_has_ended_may_be_gone() {
    let app = kustomization("app", &[&ready(), &inventory(&["apps_migrate_batch_Job"])]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Ready, None));
    assert!(why.remarks[0].starts_with("Job/apps/migrate does not exist; "), "{:?}", why.remarks);
}

/// The Namespace `apps`, which is being deleted.
fn leaving_namespace() -> Value {
    let said = |kind: &str, message: &str| json!({"type": kind, "status": "True", "reason": "R", "message": message});
    json!({"apiVersion": "v1", "kind": "Namespace",
    "metadata": {"name": "apps", "deletionTimestamp": "2026-11-24T11:50:00Z"},
    "status": {"phase": "Terminating", "conditions": [
        said("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances, \
            widgets.acme.io has 2 resource instances"),
        said("NamespaceFinalizersRemaining", "Some content in the namespace has finalizers remaining: acme.io/hold in \
            3 resource instances"),
    ]}})
}

#[test]
fn a_namespace_that_is_being_deleted_is_the_cause_with_what_holds_it() {
    let ids = ["_apps__Namespace", "apps_web_apps_Deployment"];
    let waits =
        status("Unknown", "AwaitingCRDs", "Waiting for the Namespaces of revision main@sha1:abc");
    let message = "ConfigMap/apps/a dry-run failed (Forbidden): configmaps \"a\" is forbidden: unable to create new content \
                   in namespace apps because it is being terminated";
    for more in [
        [&waits, &inventory(&ids)],
        [&status("False", "HealthCheckFailed", "timeout waiting for"), &inventory(&ids)],
        [&status("False", "ReconciliationFailed", message), &json!({})],
        // What it takes along was applied before.
        [&ready(), &inventory(&["apps_web_apps_Deployment"])],
    ] {
        let app = kustomization("app", &more);
        let why =
            FakeClusterObjects::of(&[app, source(), leaving_namespace()]).why("Kustomization/app");
        let cause = why.cause.clone().unwrap();
        let namespace = ObjectId::new("", "apps", "", "Namespace");
        assert_eq!((cause.object, cause.problem), (namespace, CauseKind::Deletion), "{why:#?}");
        assert!(cause.text.contains("finalizers remaining: acme.io/hold in 3"), "{}", cause.text);
        let advice = why.advice.unwrap();
        assert!(advice.text.starts_with("wait until Namespace/apps is gone"), "{}", advice.text);
        assert_eq!(
            advice.command.unwrap(),
            "kubectl -n apps get configmaps,widgets.acme.io -o \
             custom-columns=KIND:.kind,NAME:.metadata.name,FINALIZERS:.metadata.finalizers"
        );
    }
}

/// A HelmRelease that waits for its HelmChart.
fn chart_that_is(ready: &Value) -> [Value; 3] {
    let template = json!({"spec": {"interval": "1m", "chart": {"spec": {"chart": "web",
        "sourceRef": {"kind": "GitRepository", "name": "app"}}}}});
    let waits = status("False", "SourceNotReady", "HelmChart 'apps/apps-web' is not ready");
    let of =
        json!({"spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "app"}}});
    [
        with("HelmRelease/web", &[&template, &waits]),
        with("HelmChart/apps-web", &[&of, ready]),
        source(),
    ]
}

#[test]
fn what_is_in_progress_is_no_cause_for_a_while() {
    let mut building = status("Unknown", "Progressing", "building artifact");
    let why = FakeClusterObjects::of(&chart_that_is(&building)).why("HelmRelease/web");
    assert_eq!(
        (why.state, &why.cause, &why.advice),
        (ExaminedObjectState::Progressing, &None, &None)
    );
    let why = FakeClusterObjects::of(&chart_that_is(&building)).why("HelmChart/apps-web");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Progressing, None));
    // A chart that was made a moment ago has no status.
    let new = json!({"metadata": {"creationTimestamp": "2026-11-24T11:59:55Z"}});
    let why = FakeClusterObjects::of(&chart_that_is(&new)).why("HelmRelease/web");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Progressing, None));
    // One that does not end is a cause.
    building["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-24T11:00:00Z".into();
    let why = FakeClusterObjects::of(&chart_that_is(&building)).why("HelmRelease/web");
    assert_eq!(why.cause.unwrap().object, id("HelmChart/apps-web"));
    // Unless its spec allows that.
    put(&mut building, &json!({"spec": {"timeout": "2h"}}));
    let why = FakeClusterObjects::of(&chart_that_is(&building)).why("HelmRelease/web");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Progressing, None));
}

#[test]
fn what_depends_on_something_in_progress_waits() {
    let on = json!({"spec": {"dependsOn": [{"name": "base"}]}});
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let app = kustomization("app", &[&on, &waits]);
    let building = status("Unknown", "Progressing", "Building manifests");
    let base = kustomization("base", &[&building]);
    let why = FakeClusterObjects::of(&[app.clone(), base, source()]).why("Kustomization/app");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Progressing, None));
    // Over several objects, too.
    let on = json!({"spec": {"dependsOn": [{"name": "last"}]}});
    let base = kustomization("base", &[&on, &waits]);
    let last = kustomization("last", &[&building]);
    let why = FakeClusterObjects::of(&[app, base, last, source()]).why("Kustomization/app");
    assert_eq!((why.state, why.cause), (ExaminedObjectState::Progressing, None));
}

#[test]
fn a_dependency_that_is_not_ready_comes_before_what_is_below_one_that_is() {
    let on = json!({"spec": {"dependsOn": [{"name": "ready"}, {"name": "base"}]}});
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let app = kustomization("app", &[&on, &waits]);
    let degraded = kustomization("ready", &[&ready(), &inventory(&["apps_a__ConfigMap"])]);
    let base = kustomization("base", &[&status("False", "BuildFailed", "no such file")]);
    let why = FakeClusterObjects::of(&[app, degraded, base, source()]).why("Kustomization/app");
    assert_eq!(why.cause.unwrap().object, id("Kustomization/base"));
}
