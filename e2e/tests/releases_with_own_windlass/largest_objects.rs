//! The largest accepted objects: whatever they cost, windlass answers liveness probes meanwhile. The statuses of the largest
//! Helmfiles stay within their limits.
//!
//! In the folder: sources, policies of images and Lifecycles (`largest_sources`).

mod largest_sources;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::api::DynamicObject;
use serde_json::{Value, json};

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

/// The longest delay of a probe's answer because of windlass. The Deployment allows one second.
const LATEST: Duration = Duration::from_secs(1);

/// The number of releases in each of two files.
const EACH: usize = 600;

fn names(prefix: &str, number: usize) -> Vec<String> {
    (0..number).map(|at| format!("{prefix}{at}")).collect()
}

fn file(names: &[String]) -> String {
    let release = |name: &String| format!("- {{name: {name}, chart: ../app}}\n");
    format!("releases:\n{}", names.iter().map(release).collect::<String>())
}

async fn create(story: &Story, more: Value) -> Result<StoryObject> {
    let mut spec = json!({"interval": NEVER, "prune": true,
        "sourceRef": {"kind": "GitRepository", "name": "shop"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
        "metadata": {"name": "shop"}, "spec": spec});
    story.apply_value(object).await?;
    Ok(StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop"))
}

/// The number of status rows with a state.
fn in_state(object: &DynamicObject, state: &str) -> usize {
    let rows = object.data["status"]["releases"].as_array();
    rows.into_iter().flatten().filter(|row| row["state"] == state).count()
}

/// The longest delay of a probe's answer by windlass, until a check succeeds.
async fn latest_until(
    windlass: &WindlassProcess,
    done: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    let mut done = std::pin::pin!(done);
    let mut latest = Duration::ZERO;
    loop {
        latest = latest.max(windlass.liveness_delay().await?);
        let pause = tokio::time::timeout(Duration::from_millis(50), &mut done);
        if let Ok(done) = pause.await {
            done?;
            return Ok(latest);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_while_a_helmfile_of_many_suspended_releases_is_reconciled()
-> Result<()> {
    let story = Story::begin("watchdog-helmfile").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let first = names("a", EACH);
    let second = names("b", EACH);
    let files = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("helmfile.d/1.yaml", file(&first)),
        ("helmfile.d/2.yaml", file(&second)),
    ];
    let _upstream = story.follow("shop", &files).await?;
    let suspended: Vec<Value> = first.iter().chain(&second).map(|it| json!({"name": it})).collect();
    let shop = create(&story, json!({"suspendedReleases": suspended})).await?;
    let is_suspended = |object: &DynamicObject| {
        // The releases of the second file wait for those of the first one, which do not exist.
        in_state(object, "Suspended") == EACH && in_state(object, "Waiting") == EACH
    };
    let done =
        async { story.await_object(&shop, 4 * DEFAULT_WAIT_TIMEOUT, is_suspended).await.map(drop) };
    let latest = latest_until(&windlass, done).await?;
    ensure!(latest < LATEST, "windlass delayed an answer to a probe by {latest:?}");
    // All releases are removed at once.
    story.delete(&shop).await?;
    let latest = latest_until(&windlass, story.await_gone(&shop, 4 * DEFAULT_WAIT_TIMEOUT)).await?;
    ensure!(latest < LATEST, "windlass delayed an answer to a probe by {latest:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_many_refused_and_waiting_releases_is_taken_by_the_api_server() -> Result<()>
{
    const NUMBER: usize = 130;
    let story = Story::begin("watchdog-status").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let refused = names(&format!("refused-{}-", "x".repeat(35)), NUMBER);
    let waiting = names(&format!("waiting-{}-", "x".repeat(35)), NUMBER);
    let needs = serde_json::to_string(&refused)?;
    let refused = refused.iter().map(|name| format!("- {{name: {name}, chart: ./app}}\n"));
    let waiting =
        waiting.iter().map(|name| format!("- {{name: {name}, chart: ./app, needs: {needs}}}\n"));
    let all: String = refused.chain(waiting).collect();
    let files = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", "{{ fail (repeat 4000 \"no \") }}\n".to_owned()),
        ("helmfile.yaml", format!("releases:\n{all}")),
    ];
    let _upstream = story.follow("shop", &files).await?;
    let shop = create(&story, json!({})).await?;
    let has_message = |object: &DynamicObject| {
        in_state(object, "Failed") == NUMBER && in_state(object, "Waiting") == NUMBER
    };
    let done =
        async { story.await_object(&shop, 4 * DEFAULT_WAIT_TIMEOUT, has_message).await.map(drop) };
    let latest = latest_until(&windlass, done).await?;
    ensure!(latest < LATEST, "windlass delayed an answer to a probe by {latest:?}");
    let object = story.expect(&shop).await?;
    let rows = object.data["status"]["releases"].as_array().cloned().unwrap_or_default();
    let messages: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row["state"] == "Waiting")
        .filter_map(|row| row["message"].as_str())
        .collect();
    // A text that does not fit is shortened, and says so.
    let is_bounded = |it: &&str| it.ends_with("and 127 more") || it.ends_with('…');
    ensure!(!messages.is_empty() && messages.iter().all(is_bounded), "{messages:?}");
    story.end().await
}

/// The largest object of a kind.
struct LargestObject {
    target: StoryObject,
    object: Value,
    /// A part of the last message of its condition `Ready`. `None` for a kind without a status.
    message: Option<&'static str>,
}

impl LargestObject {
    /// Makes an object from an API version, a kind and a name.
    fn new([api, kind, name]: [&str; 3], spec: Value, message: Option<&'static str>) -> Self {
        let metadata = json!({"name": name});
        let object = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec});
        Self { target: StoryObject::new(api, kind, name), object, message }
    }

    /// Applies the object, and waits until it is reconciled.
    async fn reconcile(self, story: &Story) -> Result<()> {
        story.apply_value(self.object).await?;
        let is_done = |object: &DynamicObject| {
            let message = condition(object, "Ready")["message"].as_str().unwrap_or_default();
            self.message.is_none_or(|part| message.contains(part))
        };
        story.await_object(&self.target, 8 * DEFAULT_WAIT_TIMEOUT, is_done).await.map(drop)
    }
}

/// Reconciles objects one after the other, and checks that probes are answered meanwhile.
async fn reconcile_each(
    story: &Story,
    windlass: &WindlassProcess,
    all: Vec<LargestObject>,
) -> Result<()> {
    for largest in all {
        let target = largest.target.to_string();
        let latest = latest_until(windlass, largest.reconcile(story)).await?;
        ensure!(
            latest < LATEST,
            "windlass delayed an answer to a probe by {latest:?} because of {target}"
        );
    }
    Ok(())
}

/// A map with this many random texts, whose names begin with a prefix. The texts are the same in each run.
fn texts(prefix: &str, count: usize) -> Value {
    let mut random = e2e::random_sequence::RandomSequence::new(7);
    let mut text = || (0..4).map(|_| format!("{:016x}", random.number())).collect::<String>();
    let all = (0..count).map(|at| (format!("{prefix}{at}"), Value::from(text())));
    Value::Object(all.collect())
}

/// An Alert that windlass compares with many objects and patterns for each event. Its spec is as large as a request allows.
fn alert() -> LargestObject {
    let source = |at: usize| json!({"kind": "Kustomization", "name": format!("none-{at}")});
    let mut sources: Vec<Value> = (0..10_000).map(source).collect();
    sources.push(json!({"kind": "Kustomization", "name": "*"}));
    let patterns: Vec<String> = (0..64).map(|at| format!("(a|b|c|d){{40}}{at}$")).collect();
    let spec = json!({"providerRef": {"name": "service"}, "eventSources": sources, "exclusionList": patterns});
    LargestObject::new([NOTIFICATION_API, "Alert", "all"], spec, None)
}

/// A Receiver with the maximum number of resources, each with a filter.
fn receiver() -> LargestObject {
    let resource = |at: usize| {
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "*",
            "matchLabels": {"windlass.dev/none": at.to_string()},
            "filter": "res.metadata.name.matches('^(a|b|c)*$')"})
    };
    let resources: Vec<Value> = (0..64).map(resource).collect();
    let spec = json!({"type": "generic", "secretRef": {"name": "token"}, "resources": resources});
    LargestObject::new(HOOK_RECEIVER, spec, Some("Receiver initialized for path"))
}

/// A Kustomization with the maximum number of dependencies, and with many variables for many objects.
fn kustomization(namespace: &str) -> LargestObject {
    let is_ready =
        "dep.status.conditions.filter(it, it.type == 'Ready').all(it, it.status == 'True')";
    let depends_on = vec![json!({"name": "first", "readyExpr": is_ready}); 64];
    let spec = json!({"interval": NEVER, "prune": true, "path": "./many", "dependsOn": depends_on,
        "sourceRef": {"kind": "GitRepository", "name": "app"}, "targetNamespace": namespace,
        "postBuild": {"substitute": texts("V", 8_000)}});
    LargestObject::new([KUSTOMIZE_API, "Kustomization", "many"], spec, Some("Applied revision"))
}

/// A Kustomization with the maximum number of objects in a build. Their kind does not exist, so nothing is applied.
fn wide_kustomization(namespace: &str) -> LargestObject {
    let spec = json!({"interval": NEVER, "prune": true, "path": "./wide", "targetNamespace": namespace,
        "sourceRef": {"kind": "GitRepository", "name": "app"}});
    LargestObject::new([KUSTOMIZE_API, "Kustomization", "wide"], spec, Some("no matches for kind"))
}

/// A HelmRelease with its own values and those of ConfigMaps, each as large as possible.
fn release() -> LargestObject {
    let chart = json!({"spec": {"chart": "app", "version": "*",
        "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    let from: Vec<Value> = (0..VALUES_CONFIG_MAPS)
        .map(|at| json!({"kind": "ConfigMap", "name": format!("values-{at}")}))
        .collect();
    let spec = json!({"interval": NEVER, "chart": chart, "valuesFrom": from, "values": texts("own", 8_000)});
    LargestObject::new(
        ["helm.toolkit.fluxcd.io/v2", "HelmRelease", "large"],
        spec,
        Some("Helm install succeeded"),
    )
}

const KUSTOMIZE_API: &str = "kustomize.toolkit.fluxcd.io/v1";
const HOOK_RECEIVER: [&str; 3] = ["notification.toolkit.fluxcd.io/v1", "Receiver", "hook"];
const NOTIFICATION_API: &str = "notification.toolkit.fluxcd.io/v1beta3";

/// The number of ConfigMaps with values for a release.
const VALUES_CONFIG_MAPS: usize = 3;

/// The number of applied objects.
const APPLIED_OBJECTS: usize = 1_000;

/// The number of objects that are only built. It is the maximum of a build.
const BUILT_OBJECTS: usize = 50_000;

/// The files of the Kustomizations.
fn folders() -> Vec<(String, String)> {
    let applied = |at: usize| config_map(&format!("many-{at}"), &format!("${{V{at}}}"));
    let built = |at: usize| {
        format!("---\n{{apiVersion: none.test/v1, kind: None, metadata: {{name: n{at}}}}}\n")
    };
    let joined = |texts: Vec<String>| texts.join("---\n");
    let mut files = vec![("first/a.yaml".to_owned(), config_map("first", "1"))];
    files.push(("many/a.yaml".to_owned(), joined((0..APPLIED_OBJECTS).map(applied).collect())));
    for file in 0..BUILT_OBJECTS / 1_000 {
        let text: String = (file * 1_000..(file + 1) * 1_000).map(built).collect();
        files.push((format!("wide/{file}.yaml"), text));
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "takes minutes, and makes other stories late: cargo xtask test --thorough"
)]
async fn probes_are_answered_while_the_largest_objects_of_other_kinds_are_reconciled() -> Result<()>
{
    let story = Story::begin("watchdog-kinds").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let files = folders();
    let files: Vec<(&str, String)> = files.iter().map(|(path, it)| (&**path, it.clone())).collect();
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("first", "app", json!({"path": "./first"})).await?;
    story.await_ready(&StoryObject::kustomization("first")).await?;
    let token = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
        "stringData": {"token": "token-of-the-hook"}});
    story.apply_value(token).await?;
    let provider = json!({"apiVersion": NOTIFICATION_API, "kind": "Provider", "metadata": {"name": "service"},
        "spec": {"type": "generic", "address": "http://127.0.0.1:1", "timeout": "1s"}});
    story.apply_value(provider).await?;
    for at in 0..VALUES_CONFIG_MAPS {
        let values = texts(&format!("from{at}"), 10_000);
        let values = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("values-{at}")}, "data": {"values.yaml": values.to_string()}});
        story.apply_value(values).await?;
    }
    let charts = StoryChartRepository::of(&story).await?;
    let digest = "digest: {{ .Values | toJson | sha256sum }}\n";
    let template = format!("{CONFIG}  {digest}");
    charts.publish("1.0.0", &[("templates/a.yaml", &template)]).await?;
    // windlass compares the events of all other objects with the Alert.
    let all = [
        alert(),
        receiver(),
        kustomization(&story.namespace),
        wide_kustomization(&story.namespace),
        release(),
    ];
    reconcile_each(&story, &windlass, all.into()).await?;

    let [api, kind, name] = HOOK_RECEIVER;
    let object = story.expect(&StoryObject::new(api, kind, name)).await?;
    let path = object.data["status"]["webhookPath"].as_str().unwrap_or_default();
    let url = format!("{}{path}", windlass.webhooks());
    let body = json!({"pushed": texts("field", 20_000)}).to_string();
    let sent = async {
        let answer = reqwest::Client::new().post(url).body(body).send().await?;
        ensure!(answer.status().is_success(), "{answer:?}");
        anyhow::Ok(())
    };
    let latest = latest_until(&windlass, sent).await?;
    ensure!(
        latest < LATEST,
        "windlass delayed an answer to a probe by {latest:?} because of a webhook"
    );
    let many = StoryObject::kustomization("many");
    story.delete(&many).await?;
    let latest = latest_until(&windlass, story.await_gone(&many, 8 * DEFAULT_WAIT_TIMEOUT)).await?;
    ensure!(
        latest < LATEST,
        "windlass delayed an answer to a probe by {latest:?} because of a removal"
    );
    story.end().await
}
