//! Charts whose repository is in a bucket, and dependencies that are in a registry.
//!
//! Elsewhere: repositories on web servers, charts in registries, Git and buckets (`helm_chart.rs`).

use anyhow::{Context as _, Result, ensure};
use e2e::harness::Story;
use e2e::harness::flux_objects::condition;
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use e2e::servers::s3::{ACCESS, REGION, S3Server, SECRET};
use serde_json::json;

use crate::stories::helm_chart::{
    self, TEMPLATE, await_version, chart_of, file, publish, pulled, registry_of, repository, taken,
};

const BUCKET: &str = "charts";

/// Uploads the files of a chart repository from a web server to a bucket.
async fn upload(server: &ChartServer, s3: &S3Server, files: &[&str]) -> Result<()> {
    for file in files {
        s3.put(BUCKET, &format!("stable/{file}"), self::file(server, file).await?).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_a_bucket_is_one_as_on_a_web_server() -> Result<()> {
    let story = Story::with_windlass("s3-charts").await?;
    let server = ChartServer::start(None)?;
    let s3 = S3Server::start().await?;
    s3.bucket(BUCKET).await?;
    publish(&server, "1.0.0")?;
    publish(&server, "1.1.0")?;
    upload(&server, &s3, &["index.yaml", "app-1.0.0.tgz", "app-1.1.0.tgz"]).await?;
    let secret = |key: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
            "stringData": {"accesskey": ACCESS, "secretkey": key, "endpoint": s3.endpoint(), "region": REGION}})
    };
    story.apply_value(secret(SECRET)).await?;
    let more = json!({"insecure": true, "secretRef": {"name": "keys"}});
    let source = repository(&story, "charts", "s3://charts/stable", more).await?;
    let of = ("HelmRepository", "charts");
    let app = chart_of(&story, of, "app", json!({"version": ">=1"})).await?;
    let object = pulled(&story, &app, "1.1.0").await?;
    taken(&story, &server, &object, "of-s3", "own").await?;

    // A reconciliation without changes sends one conditional request.
    let before = s3.requests(BUCKET)?.len();
    story.rerun(&source).await?;
    let asked = s3.requests(BUCKET)?.split_off(before);
    ensure!(asked.len() == 1 && asked[0].starts_with("GET /charts/stable/index.yaml"), "{asked:?}");

    publish(&server, "1.2.0")?;
    upload(&server, &s3, &["app-1.2.0.tgz", "index.yaml"]).await?;
    story.request(&source).await?;
    await_version(&story, &app, "1.2.0").await?;

    story.apply_value(secret("hunter2")).await?;
    let message = story.await_failure(&source, "Failed").await?;
    ensure!(message.contains("authentication failed at"), "{message}");
    let object = story.expect(&source).await?;
    ensure!(!object.data.to_string().contains("hunter2"), "the secret is in the status");
    object.data["status"]["artifact"].as_object().context("the index is gone")?;
    story.apply_value(secret(SECRET)).await?;
    story.await_ready(&source).await?;
    story.end().await
}

/// A chart in Git that needs the same chart of a registry twice.
fn dependent(registry: &RegistryServer) -> Vec<(&'static str, String)> {
    let dependency = |alias: &str| {
        let url = registry.url("charts");
        format!("- {{name: lib, version: 2.x, repository: '{url}', alias: {alias}}}\n")
    };
    let one = dependency("one");
    let two = dependency("two");
    vec![
        (
            "app/Chart.yaml",
            format!("apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n{one}{two}"),
        ),
        ("app/values.yaml", "value: own\n".into()),
        ("app/templates/a.yaml", TEMPLATE.into()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn dependencies_of_a_registry_are_pulled_as_its_helm_repository_says() -> Result<()> {
    let story = Story::with_windlass("oci-dependencies").await?;
    let server = ChartServer::start(None)?;
    let registry = RegistryServer::start_with_password().await?;
    let push = async |version: &str| -> Result<()> {
        let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-{{ .Chart.Name }}}\n\
                        data: {lib: {{ .Chart.Version }}}\n";
        let yaml = format!("apiVersion: v2\nname: lib\nversion: {version}\n");
        server.publish(&[("Chart.yaml", &yaml), ("templates/b.yaml", template)])?;
        helm_chart::push(&server, &registry, "lib", version).await.map(drop)
    };
    push("2.0.0").await?;
    push("2.1.0").await?;
    push("3.0.0").await?;
    let _upstream = story.follow("app", &dependent(&registry)).await?;
    let app = chart_of(&story, ("GitRepository", "app"), "app", json!({})).await?;

    // Without a HelmRepository, windlass accesses the registry anonymously, which this registry does not allow.
    let message = story.await_failure(&app, "DependencyBuildError").await?;
    ensure!(message.contains("failed to add remote dependency 'lib'"), "{message}");
    ensure!(message.contains("UNAUTHORIZED"), "{message}");

    registry_of(&story, &registry, &format!("{}/", registry.url("charts"))).await?;
    story.request(&app).await?;
    let object = story.await_ready(&app).await?;
    let ready = condition(&object, "Ready");
    ensure!(ready["reason"] == "ChartPackageSucceeded", "{ready}");
    let text = taken(&story, &server, &object, "of-git", "own").await?;
    for expected in ["name: release-one", "name: release-two", "lib: 2.1.0"] {
        ensure!(text.contains(expected), "{expected} is not in {text}");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_only_one_machine_knows_is_reported_as_such() -> Result<()> {
    let story = Story::with_windlass("aliased").await?;
    let yaml = "apiVersion: v2\nname: app\nversion: 1.0.0\n\
                dependencies:\n- {name: lib, version: 2.x, repository: '@stable'}\n";
    let _upstream = story.follow("app", &[("app/Chart.yaml", yaml.to_owned())]).await?;
    let app = chart_of(&story, ("GitRepository", "app"), "app", json!({})).await?;
    let message = story.await_failure(&app, "DependencyBuildError").await?;
    ensure!(message.contains("aliased repository dependency is not supported"), "{message}");
    ensure!(message.contains("`helm repo list`"), "{message}");
    story.end().await
}
