//! Charts from repositories, registries, Git and buckets become artifacts that the standard `helm` reads and installs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::{PASSWORD, PushedLayer, RegistryServer};
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use sources::oci::chart as chart_layer;

const API: &str = "source.toolkit.fluxcd.io/v1";

const LIB: [(&str, &str); 2] = [
    ("Chart.yaml", "apiVersion: v2\nname: lib\nversion: 2.1.0\n"),
    (
        "templates/b.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-lib}\n\
         data: {lib: {{ .Chart.Version }}}\n",
    ),
];

pub(crate) const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
                        data: {value: {{ .Values.value | quote }}}\n";

async fn apply(story: &Story, kind: &str, name: &str, spec: Value) -> Result<StoryObject> {
    let object = json!({"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await?;
    Ok(StoryObject::new(API, kind, name))
}

pub(crate) async fn repository(
    story: &Story,
    name: &str,
    url: &str,
    more: Value,
) -> Result<StoryObject> {
    let mut spec = json!({"interval": NEVER, "url": url});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    apply(story, "HelmRepository", name, spec).await
}

fn chart(version: &str) -> [(String, String); 3] {
    let yaml = format!("apiVersion: v2\nname: app\nversion: {version}\n");
    [
        ("Chart.yaml", yaml),
        ("values.yaml", "value: own\n".into()),
        ("templates/a.yaml", TEMPLATE.into()),
    ]
    .map(|(path, text)| (path.to_owned(), text))
}

pub(crate) fn publish(server: &ChartServer, version: &str) -> Result<()> {
    let files = chart(version);
    let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (&**path, &**it)).collect();
    server.publish(&files)
}

/// Creates a HelmChart of the same name, from a source.
pub(crate) async fn chart_of(
    story: &Story,
    (kind, source): (&str, &str),
    chart: &str,
    more: Value,
) -> Result<StoryObject> {
    let source = json!({"kind": kind, "name": source});
    let mut spec = json!({"chart": chart, "interval": NEVER, "sourceRef": source});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    apply(story, "HelmChart", chart.rsplit('/').next().unwrap_or(chart), spec).await
}

/// Waits until a chart of a repository or a registry is available.
pub(crate) async fn pulled(
    story: &Story,
    app: &StoryObject,
    version: &str,
) -> Result<DynamicObject> {
    let object = story.await_ready(app).await?;
    let ready = condition(&object, "Ready");
    ensure!(ready["reason"] == "ChartPullSucceeded", "{ready}");
    let message = format!("pulled 'app' chart with version '{version}'");
    ensure!(ready["message"] == message, "{ready}");
    Ok(object)
}

/// Waits until a chart has a version.
pub(crate) async fn await_version(story: &Story, app: &StoryObject, version: &str) -> Result<()> {
    let has_it = |it: &DynamicObject| it.data["status"]["artifact"]["revision"] == version;
    story.await_object(app, DEFAULT_WAIT_TIMEOUT, has_it).await.map(drop)
}

/// A file of a server, such as a packed chart.
pub(crate) async fn file(server: &ChartServer, name: &str) -> Result<Vec<u8>> {
    let url = format!("{}/{name}", server.url());
    Ok(reqwest::get(url).await?.error_for_status()?.bytes().await?.to_vec())
}

/// Packs a chart and pushes it as a version to a registry. Returns the digest of its manifest.
pub(crate) async fn push(
    server: &ChartServer,
    registry: &RegistryServer,
    name: &str,
    version: &str,
) -> Result<String> {
    let bytes = file(server, &format!("{name}-{version}.tgz")).await?;
    let layer = PushedLayer { media_type: chart_layer::CHART, bytes };
    registry.push(&format!("charts/{name}"), version, &[layer], json!({})).await
}

/// Creates the HelmRepository of a registry at a URL, with its Secret.
pub(crate) async fn registry_of(
    story: &Story,
    registry: &RegistryServer,
    url: &str,
) -> Result<StoryObject> {
    let config = registry.docker_config(PASSWORD);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    story.apply_value(secret).await?;
    let more = json!({"type": "oci", "insecure": true, "secretRef": {"name": "login"}});
    repository(story, "charts", url, more).await
}

/// Renders the artifact of an object with the standard `helm`, and installs it as a release. Returns the rendered text.
pub(crate) async fn taken(
    story: &Story,
    server: &ChartServer,
    object: &DynamicObject,
    release: &str,
    value: &str,
) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let file = downloaded(object, &folder).await?;
    let text = server.render(&file)?;
    ensure!(text.contains(&format!("value: \"{value}\"")), "{text}");
    installed(story, server, &file, release, value).await?;
    Ok(text)
}

/// Downloads the artifact of an object into a file that helm reads.
async fn downloaded(object: &DynamicObject, into: &tempfile::TempDir) -> Result<PathBuf> {
    let url = object.data["status"]["artifact"]["url"].as_str().context("no artifact")?;
    let latest = object.data["status"]["url"].as_str().context("no url")?;
    let bytes = reqwest::get(url).await?.error_for_status()?.bytes().await?;
    let same = reqwest::get(latest).await?.error_for_status()?.bytes().await?;
    ensure!(bytes == same, "{latest} is not {url}");
    let file = into.path().join("chart.tgz");
    std::fs::write(&file, bytes)?;
    Ok(file)
}

/// Installs the chart in a file with the standard `helm`, and waits for the object of the chart.
async fn installed(
    story: &Story,
    server: &ChartServer,
    chart: &Path,
    release: &str,
    value: &str,
) -> Result<()> {
    let arguments = ["install", release].map(Path::new).into_iter().chain([chart]);
    let place = ["--namespace", &story.namespace, "--kubeconfig"].map(Path::new);
    let arguments: Vec<&Path> = arguments.chain(place).chain([story.kubeconfig()]).collect();
    server.helm(&arguments)?;
    story.await_value(release, value).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_repository_is_fetched_once_and_again_with_a_new_version() -> Result<()> {
    let story = Story::with_windlass("charts").await?;
    let server = ChartServer::start(Some(("bob", "s3cret")))?;
    publish(&server, "1.0.0")?;
    publish(&server, "1.1.0")?;
    publish(&server, "2.0.0-rc.1")?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bob"},
        "stringData": {"username": "bob", "password": "s3cret"}});
    story.apply_value(secret).await?;
    let source =
        repository(&story, "charts", &server.url(), json!({"secretRef": {"name": "bob"}})).await?;
    let of = ("HelmRepository", "charts");
    let app = chart_of(&story, of, "app", json!({"version": ">=1"})).await?;
    let object = pulled(&story, &app, "1.1.0").await?;
    let status = &object.data["status"];
    ensure!(status["observedChartName"] == "app", "{status}");
    let index = story.await_ready(&source).await?;
    let revision = &index.data["status"]["artifact"]["revision"];
    ensure!(status["observedSourceArtifactRevision"] == *revision, "{status}");
    taken(&story, &server, &object, "of-repository", "own").await?;

    // A reconciliation without changes sends one conditional request.
    server.forget();
    story.rerun(&source).await?;
    let asked = server.asked();
    ensure!(asked.len() == 1 && asked[0].status == 304, "{asked:?}");

    publish(&server, "1.2.0")?;
    story.request(&source).await?;
    await_version(&story, &app, "1.2.0").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_registry_is_found_by_its_tags() -> Result<()> {
    let story = Story::with_windlass("registry-charts").await?;
    let server = ChartServer::start(None)?;
    let registry = RegistryServer::start_with_password().await?;
    let push = async |version: &str| -> Result<()> {
        publish(&server, version)?;
        self::push(&server, &registry, "app", version).await.map(drop)
    };
    push("1.0.0").await?;
    push("1.1.0").await?;
    let source = registry_of(&story, &registry, &registry.url("charts")).await?;
    let of = ("HelmRepository", "charts");
    let app = chart_of(&story, of, "app", json!({"version": "1.x"})).await?;
    let object = pulled(&story, &app, "1.1.0").await?;
    taken(&story, &server, &object, "of-registry", "own").await?;
    let registry_object = story.expect(&source).await?;
    ensure!(registry_object.data.get("status").is_none_or(|it| it["conditions"].is_null()));

    push("1.2.0").await?;
    story.request(&app).await?;
    await_version(&story, &app, "1.2.0").await?;

    // A missing version may appear later. Without the right password, nothing can be fetched.
    chart_of(&story, of, "app", json!({"version": "9.x"})).await?;
    let is_missed =
        |it: &DynamicObject| condition(it, "Ready")["reason"] == "InvalidChartReference";
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_missed).await?;
    let text = condition(&object, "Ready")["message"].to_string();
    ensure!(text.contains("no match found for semver: 9.x"), "{text}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_in_git_is_packed_with_its_dependencies_and_values() -> Result<()> {
    let story = Story::with_windlass("packed").await?;
    let server = ChartServer::start(None)?;
    server.publish(&LIB)?;
    let yaml = format!(
        "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n- {{name: lib, version: 2.x, repository: '{}'}}\n\
         - {{name: near, version: '*', repository: 'file://../near'}}\n",
        server.url()
    );
    let upstream = story
        .follow(
            "app",
            &[
                ("charts/app/Chart.yaml", yaml),
                ("charts/app/values.yaml", "value: own\n".into()),
                ("charts/app/templates/a.yaml", TEMPLATE.into()),
                ("charts/near/Chart.yaml", "apiVersion: v2\nname: near\nversion: 0.1.0\n".into()),
                (
                    "charts/near/templates/c.yaml",
                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-near}\n\
                     data: {near: {{ .Chart.Name }}}\n"
                        .into(),
                ),
                ("production.yaml", "value: production\n".into()),
            ],
        )
        .await?;
    let of = ("GitRepository", "app");
    let more = json!({"reconcileStrategy": "Revision",
        "valuesFiles": ["charts/app/values.yaml", "production.yaml"]});
    let app = chart_of(&story, of, "./charts/app", more).await?;
    let object = story.await_ready(&app).await?;
    let sha = upstream.repository.hash("main")?;
    let version = format!("1.0.0+{}.1", &sha[..12]);
    let found = &object.data["status"]["artifact"]["revision"];
    ensure!(found == &version, "{found} instead of {version}");
    let ready = condition(&object, "Ready");
    ensure!(ready["reason"] == "ChartPackageSucceeded", "{ready}");
    let text = taken(&story, &server, &object, "of-git", "production").await?;
    for expected in ["lib: 2.1.0", "near: near"] {
        ensure!(text.contains(expected), "{expected} is not in {text}");
    }

    let none = chart_of(&story, of, "./charts/none", json!({})).await?;
    let message = story.await_failure(&none, "InvalidChartReference").await?;
    ensure!(message.contains("no chart found at path 'charts/none'"), "{message}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_in_a_bucket_is_packed_and_one_changed_key_is_another_chart() -> Result<()> {
    let story = Story::with_windlass("bucket-charts").await?;
    let server = ChartServer::start(None)?;
    let s3 = S3Server::start().await?;
    s3.bucket("charts").await?;
    for (path, text) in chart("1.0.0") {
        s3.put("charts", &format!("charts/app/{path}"), text).await?;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
        "stringData": {"accesskey": ACCESS, "secretkey": SECRET}});
    story.apply_value(secret).await?;
    let spec = json!({"interval": NEVER, "endpoint": s3.endpoint(), "bucketName": "charts",
        "insecure": true, "secretRef": {"name": "keys"}});
    let source = apply(&story, "Bucket", "charts", spec).await?;
    let app = chart_of(&story, ("Bucket", "charts"), "charts/app", json!({})).await?;
    let object = story.await_ready(&app).await?;
    let found = &object.data["status"]["artifact"]["revision"];
    ensure!(found == "1.0.0", "{found} is not the version of the chart");
    taken(&story, &server, &object, "of-bucket", "own").await?;

    s3.put("charts", "charts/app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0\n")
        .await?;
    story.request(&source).await?;
    await_version(&story, &app, "1.1.0").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_becomes_a_registry_is_left_alone() -> Result<()> {
    let story = Story::with_windlass("registry").await?;
    let server = ChartServer::start(None)?;
    publish(&server, "1.0.0")?;
    let source = repository(&story, "charts", &server.url(), json!({})).await?;
    story.await_ready(&source).await?;
    repository(&story, "charts", "oci://example.com/charts", json!({"type": "oci"})).await?;
    let is_bare = |it: &DynamicObject| {
        let finalizers = it.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        finalizers
            && it.data["status"]["artifact"].is_null()
            && it.data["status"]["conditions"].is_null()
    };
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, is_bare).await?;
    story.end().await
}
