//! Applied objects that another owner has taken, or applies, too.

use super::*;

/// A HelmRelease with a Helm release of its name.
fn release(name: &str, more: &[&Value]) -> Value {
    let spec = json!({"spec": {"interval": "10m"},
        "status": {"history": [{"name": name, "namespace": "apps", "version": 1}]}});
    with(&format!("HelmRelease/{name}"), &[&[&spec], more].concat())
}

fn labelled(group: &str, owner: &str) -> Value {
    let name = format!("{group}/name");
    let namespace = format!("{group}/namespace");
    json!({"metadata": {"labels": {name: owner, namespace: "apps"}}})
}

/// The labels and annotations of what a HelmRelease applied.
fn of_release(owner: &str) -> Value {
    let mut marks = labelled("helm.toolkit.fluxcd.io", owner);
    marks["metadata"]["annotations"] =
        json!({"meta.helm.sh/release-name": owner, "meta.helm.sh/release-namespace": "apps"});
    marks
}

fn of_kustomization(owner: &str) -> Value {
    labelled("kustomize.toolkit.fluxcd.io", owner)
}

/// A Deployment that is healthy without Pods.
fn deployment(marks: &Value) -> Value {
    let spec = json!({"spec": {"replicas": 0, "selector": {}},
        "status": {"conditions": [{"type": "Available", "status": "True"}]}});
    with("Deployment/web", &[&spec, marks])
}

const MAP: &str = "apps_a__ConfigMap";

#[test]
fn a_release_whose_objects_another_one_took_is_not_well_and_neither_deletes_what_the_other_has() {
    let both = inventory(&["apps_web__Service", "apps_web_apps_Deployment"]);
    let message = "Helm install failed: cannot patch \"web\" with kind Deployment: Deployment.apps \"web\" is invalid: \
                   spec.selector: field is immutable";
    let failed = status("False", "InstallFailed", message);
    let cluster = FakeClusterObjects::of(&[
        release("shop", &[&ready(), &both]),
        release("conflict", &[&failed, &both]),
        with("Service/web", &[&of_release("conflict")]),
        deployment(&of_release("shop")),
    ]);
    let why = cluster.why("HelmRelease/shop");
    let line = "HelmRelease/apps/shop is ready, but another owner has what it applied: Service/apps/web belongs to \
                HelmRelease/apps/conflict now";
    expect(&why, ExaminedObjectState::Degraded, CauseKind::Ownership, "Service/web", line);
    let advice = why.advice.unwrap();
    assert_eq!(advice.command, None, "{}", advice.text);
    let end = "once HelmRelease/apps/conflict does not apply it any more, take it back with `windlass reconcile \
               helmrelease/shop -n apps --force`";
    assert!(advice.text.ends_with(end), "{}", advice.text);

    let why = cluster.why("HelmRelease/conflict");
    let line = format!(
        "HelmRelease/apps/conflict is not ready: {message}; Deployment/apps/web belongs to HelmRelease/apps/shop"
    );
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Apply, "Deployment/web", &line);
    assert_eq!(why.second, None);
    let advice = why.advice.unwrap();
    let begin = "leave Deployment/apps/web to HelmRelease/apps/shop, and do not delete it: choose other names";
    assert!(advice.text.starts_with(begin), "{}", advice.text);
    let command = advice.command;
    assert_eq!(command.as_deref(), Some("windlass reconcile helmrelease/shop -n apps --force"));
}

#[test]
fn what_was_taken_back_is_left_to_the_owner_to_which_the_refused_object_belongs() {
    let both = inventory(&[MAP, "apps_web_apps_Deployment"]);
    let message =
        "Helm upgrade failed: cannot patch \"web\" with kind Deployment: field is immutable";
    let failed = status("False", "UpgradeFailed", message);
    let cluster = FakeClusterObjects::of(&[
        release("shop", &[&ready(), &both]),
        release("conflict", &[&failed, &both]),
        with("ConfigMap/a", &[&of_release("shop")]),
        deployment(&of_release("shop")),
    ]);
    assert_eq!(cluster.why("HelmRelease/shop").cause, None);
    let why = cluster.why("HelmRelease/conflict");
    let begin = "leave Deployment/apps/web to HelmRelease/apps/shop";
    assert!(why.advice.as_ref().is_some_and(|it| it.text.starts_with(begin)), "{why:#?}");
    let second = why.second.unwrap();
    assert_eq!(second.cause.object, id("ConfigMap/a"));
    let advice = second.advice.unwrap();
    assert_eq!(
        (advice.text.as_str(), advice.command),
        ("leave it to HelmRelease/apps/shop, too", None)
    );
}

#[test]
fn a_refusal_about_an_object_that_is_its_own_has_the_advice_of_the_refusal() {
    let own = inventory(&["apps_web_apps_Deployment"]);
    let message = "cannot patch \"web\" with kind Deployment: field is immutable";
    let failed = status("False", "UpgradeFailed", message);
    let release = release("shop", &[&failed, &own]);
    let why = FakeClusterObjects::of(&[release, deployment(&of_release("shop"))]);
    let why = why.why("HelmRelease/shop");
    assert_eq!(why.line(), format!("HelmRelease/apps/shop is not ready: {message}"));
    assert!(why.advice.unwrap().text.starts_with("revert the change of that field"));
}

#[test]
fn a_kustomization_is_not_advised_to_recreate_what_a_release_has() {
    let message = "Deployment/apps/web dry-run failed (Invalid): Deployment.apps \"web\" is invalid: spec.selector: field \
                   is immutable";
    let app = kustomization("app", &[&status("False", "ReconciliationFailed", message)]);
    let shop = |more: &Value| release("shop", &[&ready(), more]);
    let why = |shop: Value| {
        let all = [app.clone(), source(), shop, deployment(&of_release("shop"))];
        FakeClusterObjects::of(&all).why("Kustomization/app")
    };
    let found = why(shop(&inventory(&["apps_web_apps_Deployment"])));
    let line = format!(
        "Kustomization/apps/app is not ready: {message}; Deployment/apps/web belongs to HelmRelease/apps/shop"
    );
    expect(&found, ExaminedObjectState::NotReady, CauseKind::Apply, "Deployment/web", &line);
    let advice = found.advice.unwrap().text;
    let begin = "leave Deployment/apps/web to HelmRelease/apps/shop, and do not delete it: remove it from the files of \
                 Kustomization/apps/app";
    assert!(advice.starts_with(begin), "{advice}");
    // Labels stay on what a release has given away.
    let found = why(shop(&json!({})));
    assert!(found.advice.unwrap().text.contains("kustomize.toolkit.fluxcd.io/force: enabled"));
}

#[test]
fn of_two_kustomizations_that_apply_an_object_the_one_that_lost_it_says_so() {
    let each = |name: &str| kustomization(name, &[&ready(), &inventory(&[MAP])]);
    let map = with("ConfigMap/a", &[&of_kustomization("two")]);
    let cluster = FakeClusterObjects::of(&[each("one"), each("two"), source(), map]);
    let why = cluster.why("Kustomization/one");
    let line = "Kustomization/apps/one is ready, but another owner has what it applied: ConfigMap/apps/a belongs to \
                Kustomization/apps/two now";
    expect(&why, ExaminedObjectState::Degraded, CauseKind::Ownership, "ConfigMap/a", line);
    let advice = why.advice.unwrap();
    let expected = "both Kustomization/apps/one and Kustomization/apps/two apply it: decide which of them keeps it. If \
                    Kustomization/apps/two does, remove it from the files of Kustomization/apps/one, or choose another name \
                    there; it is not deleted by that. If Kustomization/apps/one does, annotate it with \
                    kustomize.toolkit.fluxcd.io/prune: disabled, so that it is not deleted, and remove it from the files of \
                    Kustomization/apps/two, or choose another name there; once Kustomization/apps/two does not apply it any \
                    more, take it back with `windlass reconcile kustomization/one -n apps`";
    assert_eq!((advice.text.as_str(), advice.command), (expected, None));
    assert_eq!(cluster.why("Kustomization/two").cause, None);
}

#[test]
fn a_kustomization_and_a_release_that_apply_an_object_both_say_so() {
    let app = kustomization("app", &[&ready(), &inventory(&[MAP])]);
    let map = with("ConfigMap/a", &[&of_kustomization("app"), &of_release("shop")]);
    let all =
        |release: Value| FakeClusterObjects::of(&[app.clone(), source(), map.clone(), release]);
    let both = all(release("shop", &[&ready(), &inventory(&[MAP])]));
    for (subject, other) in [
        ("Kustomization/app", "HelmRelease/apps/shop"),
        ("HelmRelease/shop", "Kustomization/apps/app"),
    ] {
        let why = both.why(subject);
        let cause = why.cause.unwrap();
        assert_eq!(cause.text, format!("ConfigMap/apps/a belongs to {other}, too"));
        let advice = why.advice.unwrap().text;
        let annotations =
            "helm.sh/resource-policy: keep or kustomize.toolkit.fluxcd.io/prune: disabled";
        assert!(advice.contains(annotations), "{advice}");
    }
    // Labels stay on what a release has given away.
    assert_eq!(all(release("shop", &[&ready()])).why("Kustomization/app").cause, None);
}

#[test]
fn a_release_and_a_helmfile_and_a_plain_release_of_helm_are_known_as_owners() {
    let shop = release("shop", &[&ready(), &inventory(&[MAP])]);
    let row = json!({"status": {"releases": [{"name": "web", "namespace": "apps",
        "status": {"inventory": {"entries": [{"id": MAP, "v": "v1"}]}}}]}});
    let helmfile = with("Helmfile/all", &[&ready(), &row]);
    let labels = json!({"metadata": {
        "labels": {"apps.mumoshu.github.io/helmfile-name": "all", "apps.mumoshu.github.io/helmfile-namespace": "apps"},
        "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "apps"}}});
    let map = with("ConfigMap/a", &[&labels]);
    let text = |all: &[Value], subject: &str| {
        FakeClusterObjects::of(all).why(subject).cause.map(|cause| cause.text)
    };
    let all = [shop.clone(), helmfile.clone(), map];
    let expected = "ConfigMap/apps/a belongs to Helmfile/apps/all now";
    assert_eq!(text(&all, "HelmRelease/shop").as_deref(), Some(expected));
    assert_eq!(text(&all, "Helmfile/all"), None);
    let map = with("ConfigMap/a", &[&of_release("shop")]);
    let all = [shop.clone(), helmfile, map];
    let expected = "ConfigMap/apps/a belongs to HelmRelease/apps/shop now";
    assert_eq!(text(&all, "Helmfile/all").as_deref(), Some(expected));
    let mut map = with("ConfigMap/a", &[&of_release("shop")]);
    map["metadata"]["annotations"]["meta.helm.sh/release-name"] = "other".into();
    let expected = "ConfigMap/apps/a belongs to the Helm release apps/other now";
    assert_eq!(text(&[shop, map], "HelmRelease/shop").as_deref(), Some(expected));
}

#[test]
fn what_may_be_shared_or_is_on_its_way_to_another_owner_is_no_cause() {
    let two = kustomization("two", &[&ready(), &inventory(&[MAP])]);
    let one = |more: &Value| kustomization("one", &[&ready(), &inventory(&[MAP]), more]);
    let map = |more: &Value| with("ConfigMap/a", &[&of_kustomization("two"), more]);
    let nothing = json!({});
    let cause = |objects: &[Value]| {
        let all = [&[source()], objects].concat();
        let why = FakeClusterObjects::of(&all).why("Kustomization/one");
        why.second.map(|it| it.cause).or(why.cause.filter(|it| it.problem == CauseKind::Ownership))
    };
    assert!(cause(&[one(&nothing), two.clone(), map(&nothing)]).is_some());
    // The other owner is gone.
    assert_eq!(cause(&[one(&nothing), map(&nothing)]), None);
    // A suspended Kustomization claims nothing.
    let suspended = json!({"spec": {"suspend": true}});
    assert_eq!(cause(&[one(&suspended), two.clone(), map(&nothing)]), None);
    // What it applied is in another cluster, and this is another object of the same name.
    let far = json!({"spec": {"kubeConfig": {"secretRef": {"name": "far"}}}});
    assert_eq!(cause(&[one(&far), two.clone(), map(&nothing)]), None);
    let shared = json!({"metadata": {"annotations": {
        "kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}}});
    assert_eq!(cause(&[one(&nothing), two, map(&shared)]), None);
}

#[test]
fn what_fails_and_what_another_owner_has_are_both_reported() {
    let ids = inventory(&[MAP, "apps_gone__ConfigMap"]);
    let one = kustomization("one", &[&ready(), &ids]);
    let two = kustomization("two", &[&ready(), &inventory(&[MAP])]);
    let map = with("ConfigMap/a", &[&of_kustomization("two")]);
    let why = FakeClusterObjects::of(&[one, two, source(), map]).why("Kustomization/one");
    assert_eq!(why.cause.unwrap().object, id("ConfigMap/gone"));
    assert_eq!(why.second.unwrap().cause.problem, CauseKind::Ownership);
}
