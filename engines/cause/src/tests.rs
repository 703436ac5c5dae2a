//! A table of failures, each as the facts of a cluster and the line that has to name its cause.

use objects::{Gvk, LabelSelector, Object, ObjectId};
use reconcile::Time;
use serde_json::{Value, json};

use crate::{
    CauseKind, ExaminedObjectState, FactAnswer, FactAnswers, FactQuery, StateExplanation, explain,
    object_references,
};

mod advice;
mod applied_objects;
mod holds_and_windows;
mod incidents;
mod nested_objects;
mod object_owners;
mod second_cause;
mod sources_and_references;

fn now() -> Time {
    "2026-11-24T12:00:00Z".parse().unwrap()
}

/// Objects of a cluster, and what may not be read of it.
struct FakeClusterObjects {
    objects: Vec<Object>,
    refused: Vec<FactQuery>,
}

impl FakeClusterObjects {
    fn of(objects: &[Value]) -> Self {
        let objects = objects.iter().map(|it| Object::new(it.clone()).unwrap()).collect();
        Self { objects, refused: Vec::new() }
    }

    fn answer(&self, query: &FactQuery) -> FactAnswer {
        if self.refused.contains(query) {
            return FactAnswer::Refused("forbidden".to_owned());
        }
        let all = self.objects.iter();
        match query {
            FactQuery::Object(id) => {
                FactAnswer::Objects(all.filter(|it| it.id() == *id).cloned().collect())
            }
            FactQuery::Pods { namespace, selector } => {
                let selector = LabelSelector::parse(selector).unwrap();
                let is_it = |it: &&Object| {
                    let labels = it.meta("labels").and_then(Value::as_object);
                    let label = |key: &str| labels?.get(key)?.as_str();
                    it.kind() == "Pod" && it.namespace() == namespace && selector.selects(label)
                };
                FactAnswer::Objects(all.filter(is_it).cloned().collect())
            }
            FactQuery::Warnings(namespace) => {
                let is_it = |it: &&Object| it.kind() == "Event" && it.namespace() == namespace;
                FactAnswer::Objects(all.filter(is_it).cloned().collect())
            }
            FactQuery::Incidents { namespace, kind } => {
                let is_it = |it: &&Object| {
                    let of = it.get("spec").and_then(|spec| spec["subject"]["kind"].as_str());
                    it.kind() == "Incident"
                        && it.namespace() == namespace
                        && of == Some(kind.as_str())
                };
                FactAnswer::Objects(all.filter(is_it).cloned().collect())
            }
            FactQuery::Lines { .. } => FactAnswer::Lines(vec!["no such table: users".to_owned()]),
        }
    }

    fn why(&self, subject: &str) -> StateExplanation {
        self.explained(&id(subject))
    }

    fn explained(&self, id: &ObjectId) -> StateExplanation {
        let mut known = FactAnswers::default();
        for _ in 0..100 {
            match explain(id, &known, now()) {
                Ok(why) => return why,
                Err(queries) => {
                    assert!(!queries.is_empty());
                    for query in queries {
                        let answer = self.answer(&query);
                        known.insert(query, answer);
                    }
                }
            }
        }
        panic!("the walk asks for ever");
    }
}

/// `Kind/name` in the namespace `apps`.
fn id(subject: &str) -> ObjectId {
    let (kind, name) = subject.split_once('/').unwrap();
    ObjectId::new("apps", name, &gvk(kind).group, kind)
}

fn gvk(kind: &str) -> Gvk {
    let version = match kind {
        "Kustomization" => "kustomize.toolkit.fluxcd.io/v1",
        "HelmRelease" => "helm.toolkit.fluxcd.io/v2",
        "Helmfile" => "apps.mumoshu.github.io/v1alpha1",
        "GitRepository" | "HelmChart" | "HelmRepository" => "source.toolkit.fluxcd.io/v1",
        "Deployment" | "ReplicaSet" | "StatefulSet" => "apps/v1",
        "Job" => "batch/v1",
        "Alert" | "Provider" => "notification.toolkit.fluxcd.io/v1beta3",
        "Incident" => "notification.windlass.dev/v1alpha1",
        "ImagePolicy" | "ImageRepository" | "ImageUpdateAutomation" => "image.toolkit.fluxcd.io/v1",
        _ => "v1",
    };
    Gvk::new(version, kind)
}

/// An object of the namespace `apps`, ten minutes old.
fn object(subject: &str, more: &Value) -> Value {
    let id = id(subject);
    let mut object = json!({
        "apiVersion": gvk(&id.kind).api_version(),
        "kind": id.kind,
        "metadata": {"name": id.name, "namespace": "apps", "generation": 1,
            "creationTimestamp": "2026-11-24T11:50:00Z"},
    });
    put(&mut object, more);
    object
}

fn put(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                put(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// A status with conditions `Ready`, and `Stalled` or `Reconciling` as a run leaves them.
fn status(ready: &str, reason: &str, message: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": "2026-11-24T11:55:00Z"})
    };
    let mut all = vec![condition("Ready", ready, reason)];
    if ready == "False" {
        all.push(condition("Reconciling", "True", "ProgressingWithRetry"));
    }
    json!({"status": {"observedGeneration": 1, "conditions": all}})
}

fn ready() -> Value {
    status("True", "ReconciliationSucceeded", "Applied revision: main@sha1:abc")
}

/// A Kustomization of the GitRepository `app`.
fn kustomization(name: &str, more: &[&Value]) -> Value {
    let spec = json!({"spec": {"interval": "10m", "retryInterval": "1m", "path": "./",
        "sourceRef": {"kind": "GitRepository", "name": "app"}}});
    with(&format!("Kustomization/{name}"), &[&[&spec], more].concat())
}

fn with(subject: &str, more: &[&Value]) -> Value {
    let mut it = object(subject, &json!({}));
    more.iter().for_each(|more| put(&mut it, more));
    it
}

/// The GitRepository `app`, which is ready.
fn source() -> Value {
    let artifact = json!({"spec": {"url": "https://git.test/app", "interval": "1m"},
        "status": {"artifact": {"revision": "main@sha1:abc"}}});
    with("GitRepository/app", &[&artifact, &ready()])
}

fn inventory(ids: &[&str]) -> Value {
    let entries: Vec<Value> = ids.iter().map(|id| json!({"id": id, "v": "v1"})).collect();
    json!({"status": {"inventory": {"entries": entries}}})
}

fn event(about: &str, reason: &str, message: &str) -> Value {
    let of = id(about);
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{}.1", of.name), "namespace": "apps"},
        "involvedObject": {"apiVersion": gvk(&of.kind).api_version(), "kind": of.kind, "name": of.name},
        "type": "Warning", "reason": reason, "message": message, "lastTimestamp": "2026-11-24T11:59:00Z"})
}

/// Expects a state, the kind of the cause, its object, and the first line.
fn expect(
    why: &StateExplanation,
    state: ExaminedObjectState,
    problem: CauseKind,
    object: &str,
    line: &str,
) {
    assert_eq!(why.line(), line);
    let cause = why.cause.as_ref().unwrap();
    assert_eq!(
        (why.state, cause.problem, cause.object.clone()),
        (state, problem, id(object)),
        "{why:#?}"
    );
    assert!(why.advice.is_some() && why.is_finding());
}

#[test]
fn an_object_that_is_what_it_should_be_has_no_cause() {
    let deployment = with(
        "Deployment/web",
        &[&json!({"spec": {"replicas": 0, "selector": {}}, "status": {
        "conditions": [{"type": "Available", "status": "True"}]}})],
    );
    let app = kustomization("app", &[&ready(), &inventory(&["apps_web_apps_Deployment"])]);
    let why = FakeClusterObjects::of(&[app, source(), deployment]).why("Kustomization/app");
    assert_eq!(why.line(), "Kustomization/apps/app is ready: Applied revision: main@sha1:abc");
    assert!(!why.is_finding() && why.cause.is_none() && why.remarks.is_empty(), "{why:#?}");
}

#[test]
fn a_helmfile_of_helmfile_operator_is_reconciled_and_applies() {
    let failed = status("False", "HelmfileError", "release \"web\": no such chart");
    let helmfile =
        with("Helmfile/all", &[&json!({"spec": {"source": "git::https://h/r@d"}}), &failed]);
    let why = FakeClusterObjects::of(&[helmfile]).why("Helmfile/all");
    let line = "Helmfile/apps/all is not ready: release \"web\": no such chart";
    expect(&why, ExaminedObjectState::NotReady, CauseKind::Build, "Helmfile/all", line);
    let labels = json!({"metadata": {"labels": {"apps.mumoshu.github.io/helmfile-name": "all",
        "apps.mumoshu.github.io/helmfile-namespace": "apps"}}});
    let applied = Object::new(with("ConfigMap/a", &[&labels])).unwrap();
    assert_eq!(object_references::applier(&applied), Some(id("Helmfile/all")));
}

#[test]
fn an_object_that_is_not_there_or_may_not_be_read_is_not_mistaken_for_the_other() {
    let mut cluster = FakeClusterObjects::of(&[]);
    let why = cluster.why("Kustomization/app");
    assert_eq!(why.line(), "Kustomization/apps/app does not exist");
    cluster.refused.push(FactQuery::Object(id("Kustomization/app")));
    let why = cluster.why("Kustomization/app");
    assert_eq!(why.line(), "Kustomization/apps/app cannot be read");
    assert_eq!(why.remarks, ["Kustomization/apps/app cannot be read: forbidden"]);
    assert_eq!(why.state, ExaminedObjectState::Hidden);
}

#[test]
fn objects_that_name_each_other_end() {
    let depends = |on: &str| json!({"spec": {"dependsOn": [{"name": on}]}});
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let one = kustomization("one", &[&depends("two"), &waits]);
    let two = kustomization("two", &[&depends("one"), &waits]);
    let why = FakeClusterObjects::of(&[one, two, source()]).why("Kustomization/one");
    assert_eq!(why.cause.unwrap().problem, CauseKind::Dependency);
}

#[test]
fn a_long_chain_of_dependencies_ends() {
    let waits = status("False", "DependencyNotReady", "dependency is not ready");
    let chain = (0..100).map(|at| {
        let on = json!({"spec": {"dependsOn": [{"name": format!("k{}", at + 1)}]}});
        kustomization(&format!("k{at}"), &[&on, &waits])
    });
    let objects: Vec<Value> = chain.chain([source()]).collect();
    let why = FakeClusterObjects::of(&objects).why("Kustomization/k0");
    assert!(why.path.len() <= 64, "{}", why.path.len());
}

#[test]
fn texts_of_others_are_cut_and_on_one_line() {
    let long = format!("first\nsecond {}", "x".repeat(100_000));
    let app = kustomization("app", &[&status("False", "BuildFailed", &long)]);
    let why = FakeClusterObjects::of(&[app, source()]).why("Kustomization/app");
    assert!(why.line().len() < 1000 && why.line().contains("first second"));
}
