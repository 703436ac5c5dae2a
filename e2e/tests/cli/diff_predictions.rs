//! `windlass diff` predicts exactly what the next reconciliation changes. The audit log of the API server shows which objects
//! changed, and the objects before and after show which fields.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, annotated, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cli::windlass;

const SECRET: &str =
    "{apiVersion: v1, kind: Secret, metadata: {name: hidden}, stringData: {password: hunter2}}\n";

const SERVICE: &str = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}\n";

const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}]
";

/// The changes of files in a step: new contents by path. `None` removes the file.
type FileEdits = (&'static str, Vec<(&'static str, Option<String>)>);

/// The predicted changes: the objects as the audit log names them, and the fields of changed objects.
struct PredictedChanges {
    objects: BTreeSet<String>,
    changed: Vec<(StoryObject, Vec<Value>)>,
}

impl PredictedChanges {
    fn of(changes: &Value) -> Self {
        let mut predicted = Self { objects: BTreeSet::new(), changed: Vec::new() };
        for change in changes.as_array().into_iter().flatten() {
            let object = &change["object"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = text(&object["kind"]);
            let name = text(&object["name"]);
            let action = text(&change["action"]);
            predicted.objects.insert(format!("{action} {}s/{name}", kind.to_lowercase()));
            if action == "changed" {
                let target = StoryObject::new(&text(&object["apiVersion"]), &kind, &name);
                let fields = change["fields"].as_array().cloned().unwrap_or_default();
                predicted.changed.push((target, fields));
            }
        }
        predicted
    }

    /// The expected objects after the changes, without Secrets, because their values are not shown.
    async fn expected(&self, story: &Story) -> Result<Vec<(StoryObject, Value)>> {
        let mut all = Vec::new();
        for (target, fields) in &self.changed {
            let mut value = serde_json::to_value(story.expect(target).await?)?;
            for field in fields {
                set(&mut value, field["path"].as_str().unwrap_or_default(), &field["new"]);
            }
            if value["kind"] != "Secret" {
                all.push((target.clone(), comparable(value)));
            }
        }
        Ok(all)
    }
}

/// Sets the value at a JSON pointer, or removes it.
fn set(value: &mut Value, path: &str, new: &Value) {
    let Some((parent, key)) = path.rsplit_once('/') else { return };
    let key = key.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) if new.is_null() => drop(fields.remove(&key)),
        Some(Value::Object(fields)) => drop(fields.insert(key, new.clone())),
        Some(Value::Array(items)) => match key.parse::<usize>() {
            Ok(at) if new.is_null() && at < items.len() => drop(items.remove(at)),
            Ok(at) if at < items.len() => items[at] = new.clone(),
            _ => items.push(new.clone()),
        },
        _ => {}
    }
}

/// An object without the fields that the API server and controllers write.
fn comparable(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("deployment.kubernetes.io/revision");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    value
}

/// What windlass did after the first `before` changes. An object that was removed and created counts as recreated.
fn done(story: &Story, before: usize) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for change in story.changes()?.into_iter().skip(before) {
        let (action, object) = change.split_once(' ').unwrap_or_default();
        if action == "created" && found.remove(&format!("removed {object}")) {
            found.insert(format!("recreated {object}"));
        } else if action != "changed" || !found.contains(&format!("created {object}")) {
            found.insert(change);
        }
    }
    Ok(found)
}

async fn check(
    story: &Story,
    title: &str,
    predicted: &PredictedChanges,
    expected: Vec<(StoryObject, Value)>,
    before: usize,
) -> Result<()> {
    let done = done(story, before)?;
    ensure!(done == predicted.objects, "{title}: {:?} became {done:?}", predicted.objects);
    for (target, expected) in expected {
        let is = comparable(serde_json::to_value(story.expect(&target).await?)?);
        ensure!(is == expected, "{title}: {expected:#} became {is:#}");
    }
    Ok(())
}

/// A Deployment with an environment variable.
fn web(replicas: u32, env: &str) -> String {
    let text = deployment("web", PodBehavior::Ready);
    text.replace("replicas: 1", &format!("replicas: {replicas}"))
        .replace("image: example.com/app:1", &format!("image: example.com/app:1{env}"))
}

fn steps() -> Vec<FileEdits> {
    let switch = "kustomize.toolkit.fluxcd.io/reconcile";
    let labels = "resources: [a.yaml, b.yaml, web.yaml]\ncommonAnnotations: {team: web}\n";
    let forced = "{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed, annotations: \
                  {kustomize.toolkit.fluxcd.io/force: enabled}}, immutable: true, data: {value: \"1\"}}\n";
    let set = |path, text: &str| (path, Some(text.to_owned()));
    vec![
        ("an object is created", vec![set("b.yaml", &config_map("b", "1"))]),
        ("a value changes", vec![set("a.yaml", &config_map("a", "2"))]),
        (
            "a key comes",
            vec![set("a.yaml", &config_map("a", "2").replace("{value", "{more: x, value"))],
        ),
        ("a key goes", vec![set("a.yaml", &config_map("a", "3"))]),
        (
            "nothing but the text changes",
            vec![set("a.yaml", &format!("# a\n{}", config_map("a", "3")))],
        ),
        (
            "replicas and an environment",
            vec![set("web.yaml", &web(2, ", env: [{name: A, value: x}]"))],
        ),
        ("an environment changes", vec![set("web.yaml", &web(2, ", env: [{name: B, value: x}]"))]),
        ("an environment goes", vec![set("web.yaml", &web(2, ""))]),
        ("a Secret and a Service", vec![set("secret.yaml", SECRET), set("service.yaml", SERVICE)]),
        (
            "their values",
            vec![
                set("secret.yaml", &SECRET.replace("2}", "3}")),
                set("service.yaml", &SERVICE.replace("port: 80", "port: 80, targetPort: 8080")),
            ],
        ),
        ("a Role", vec![set("role.yaml", ROLE)]),
        ("a rule", vec![set("role.yaml", &ROLE.replace("[get]", "[get, list]"))]),
        ("objects go", vec![("secret.yaml", None), ("service.yaml", None), ("role.yaml", None)]),
        ("an object has another name", vec![set("b.yaml", &config_map("c", "1"))]),
        (
            "one that is switched off",
            vec![set("off.yaml", &annotated("off", "1", switch, "disabled"))],
        ),
        ("an annotation of all", vec![("off.yaml", None), set("kustomization.yaml", labels)]),
        ("an immutable object", vec![("kustomization.yaml", None), set("fixed.yaml", forced)]),
        ("it is recreated", vec![set("fixed.yaml", &forced.replace("\"1\"", "\"2\""))]),
    ]
}

/// A version of a chart, its files, and a change of the release.
type ChartUpgrade<'a> = (&'a str, &'a [(&'a str, &'a str)], Value);

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_changes_what_was_predicted() -> Result<()> {
    let story = Story::with_windlass("predictions").await?;
    let mut files = BTreeMap::from([("a.yaml", config_map("a", "1")), ("web.yaml", web(1, ""))]);
    let first: Vec<_> = files.iter().map(|(path, text)| (*path, text.clone())).collect();
    let upstream = story.follow("app", &first).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    for (title, changes) in steps() {
        let is_written = changes.iter().any(|it| it.1.is_some());
        let gone: Vec<&str> = changes.iter().filter(|it| it.1.is_none()).map(|it| it.0).collect();
        for (path, text) in changes {
            match text {
                Some(text) => drop(files.insert(path, text)),
                None => drop(files.remove(path)),
            }
        }
        let folder = tempfile::tempdir()?;
        for (path, text) in &files {
            fs::write(folder.path().join(path), text)?;
        }
        let path = folder.path().display().to_string();
        let said = windlass(&story, &["diff", "ks/app", "--path", &path, "-o", "json"])?;
        ensure!(matches!(said.code, Some(0 | 1)), "{title}: {said:?}");
        let predicted = PredictedChanges::of(&serde_json::from_str(&said.out).context(title)?);
        ensure!((said.code == Some(0)) == predicted.objects.is_empty(), "{title}: {said:?}");
        let expected = predicted.expected(&story).await?;
        story.await_log().await?;
        let before = story.changes()?.len();
        let all: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let revision = match gone.is_empty() {
            true => {
                let files: Vec<_> =
                    all.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
                upstream.push(&files).await?
            }
            false => {
                if is_written {
                    upstream.repository.commit(&all, title)?;
                }
                upstream.remove(&gone).await?
            }
        };
        story.await_applied("app", &revision).await.context(title)?;
        check(&story, title, &predicted, expected, before).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kubectl_had_set_is_predicted() -> Result<()> {
    let story = Story::with_windlass("predictions-kubectl").await?;
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(story.client.clone(), &story.namespace);
    let object = serde_json::from_value(json!({"metadata": {"name": "taken"},
        "data": {"value": "1", "extra": "x"}}))?;
    let by = kube::api::PostParams {
        field_manager: Some("kubectl-create".into()),
        ..Default::default()
    };
    maps.create(&by, &object).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("taken", "1"))]).await?;
    story.await_ready(&StoryObject::git_repository("app")).await?;
    story.kustomization("app", "app", json!({"suspend": true})).await?;
    let changes = windlass(&story, &["diff", "ks/app", "-o", "json"])?.json(1)?;
    let fields = changes[0]["fields"].as_array().cloned().unwrap_or_default();
    let gone = json!({"path": "/data/extra", "old": "x"});
    ensure!(fields.contains(&gone), "{changes:#}");
    let predicted = PredictedChanges::of(&changes);
    let expected = predicted.expected(&story).await?;
    story.await_log().await?;
    let before = story.changes()?.len();
    windlass(&story, &["resume", "ks/app", "--wait"])?.ended(0)?;
    check(&story, "kubectl", &predicted, expected, before).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_changes_what_was_predicted() -> Result<()> {
    let story = Story::with_windlass("predictions-release").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let named = |name: &str| CONFIG.replace("-config", name);
    let more = named("-more");
    let secret = SECRET.replace("hunter2", "hidden-{{ .Values.value }}");
    let plain = [("templates/a.yaml", CONFIG)];
    let both = [("templates/a.yaml", CONFIG), ("templates/b.yaml", more.as_str())];
    let hidden = [("templates/a.yaml", CONFIG), ("templates/b.yaml", secret.as_str())];
    charts.publish("1.0.0", &plain).await?;
    charts.seen().await?;
    let app = charts.release("app", json!({"values": {"value": "one"}})).await?;
    story.await_revision(&app, 1).await?;
    let value = |value: &str| json!({"spec": {"values": {"value": value}}});
    let steps: [ChartUpgrade<'_>; 5] = [
        ("1.1.0", &both, json!({})),
        ("1.1.0", &both, value("two")),
        ("1.2.0", &hidden, json!({})),
        ("1.2.0", &hidden, value("three")),
        ("1.3.0", &plain, value("three")),
    ];
    for (at, (version, files, patch)) in steps.into_iter().enumerate() {
        let title = format!("step {at}");
        windlass(&story, &["suspend", "hr/app"])?.ended(0)?;
        if patch != json!({}) {
            story.merge(&app, patch).await?;
        }
        charts.publish(version, files).await?;
        let chart = StoryObject::helm_chart(&format!("{}-app", story.namespace));
        let is_new =
            |object: &DynamicObject| object.data["status"]["artifact"]["revision"] == version;
        story.await_object(&chart, DEFAULT_WAIT_TIMEOUT, is_new).await?;
        let changes = windlass(&story, &["diff", "hr/app", "-o", "json"])?.json(1)?;
        let predicted = PredictedChanges::of(&changes);
        let expected = predicted.expected(&story).await?;
        story.await_log().await?;
        let before = story.changes()?.len();
        windlass(&story, &["resume", "hr/app", "--wait"])?.ended(0)?;
        check(&story, &title, &predicted, expected, before).await?;
    }
    story.end().await
}
