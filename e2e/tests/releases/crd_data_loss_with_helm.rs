//! Situations in which the standard `helm` loses data but windlass does not. They are one side of the table in `docs/crds.md`.
//!
//! Elsewhere: windlass in the same situations (`crd_guard`).

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, deployment, widget, widget_crd};
use e2e::harness::widgets::{crd, widget as own};
use e2e::harness::{Story, StoryObject};
use serde_json::json;
use tempfile::TempDir;

/// A chart in a folder.
fn chart(version: &str, files: &[(&str, &str)]) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let yaml = format!("apiVersion: v2\nname: app\nversion: {version}\n");
    for (path, text) in [&[("Chart.yaml", yaml.as_str())], files].concat() {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        std::fs::write(path, text)?;
    }
    Ok(folder)
}

fn path(chart: &TempDir) -> Result<&str> {
    chart.path().to_str().context("no text")
}

/// Installs the release `app` with a first chart, and creates an object of a user.
async fn installed(story: &Story, group: &str, files: &[(&str, &str)]) -> Result<()> {
    let first = chart("1.0.0", files)?;
    story.helm_says(&["install", "app", path(&first)?])?;
    story.await_condition(&crd(group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(group, "mine")).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_deletes_all_objects_when_a_chart_moves_its_definition_to_crds() -> Result<()> {
    let story = Story::with_windlass("helm-move").await?;
    let group = format!("{}.example.com", story.namespace);
    let definition = widget_crd(&group);
    let files = |path: &'static str| [(path, definition.as_str()), ("templates/a.yaml", CONFIG)];
    installed(&story, &group, &files("templates/crd.yaml")).await?;
    let second = chart("1.1.0", &files("crds/crd.yaml"))?;
    story.helm_says(&["upgrade", "app", path(&second)?])?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_makes_objects_invalid_by_a_narrower_schema() -> Result<()> {
    let story = Story::with_windlass("helm-narrow").await?;
    let group = format!("{}.example.com", story.namespace);
    let wide = widget_crd(&group);
    let open = "spec: {type: object, x-kubernetes-preserve-unknown-fields: true}";
    let small = wide.replace(
        open,
        "spec: {type: object, properties: {size: {type: integer, minimum: 5}}, required: [owner]}",
    );
    installed(&story, &group, &[("templates/crd.yaml", &wide)]).await?;
    let second = chart("1.1.0", &[("templates/crd.yaml", &small)])?;
    story.helm_says(&["upgrade", "app", path(&second)?])?;
    let size = std::sync::atomic::AtomicU32::new(5);
    story
        .await_until("the object to be invalid", DEFAULT_WAIT_TIMEOUT, async || {
            // Each write has another value, because the API server does not validate unchanged objects.
            let size = size.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let changed = json!({"spec": {"size": size}});
            Ok(story.merge(&own(&group, "mine"), changed).await.err().map(drop))
        })
        .await?;
    story.helm_says(&["uninstall", "app"])?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_fails_in_the_middle_when_a_stored_version_is_dropped() -> Result<()> {
    let story = Story::with_windlass("helm-stored").await?;
    let group = format!("{}.example.com", story.namespace);
    let old = widget_crd(&group).replace("name: v1\n", "name: v1beta1\n");
    let new = widget_crd(&group);
    let first = chart("1.0.0", &[("templates/crd.yaml", &old), ("templates/a.yaml", CONFIG)])?;
    story.helm_says(&["install", "app", path(&first)?])?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let second = chart("1.1.0", &[("templates/crd.yaml", &new), ("templates/a.yaml", CONFIG)])?;
    let output = story.helm(&["upgrade", "app", path(&second)?])?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && message.contains("storedVersions"), "{message}");
    // The objects of earlier kinds are already written.
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["chart"] == "1.1.0", "{:?}", config.data);
    story.helm_says(&["uninstall", "app"])?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_deletes_the_objects_of_others_with_a_release() -> Result<()> {
    let story = Story::with_windlass("helm-uninstall").await?;
    let group = format!("{}.example.com", story.namespace);
    installed(&story, &group, &[("templates/crd.yaml", &widget_crd(&group))]).await?;
    story.helm_says(&["uninstall", "app"])?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_deletes_all_objects_when_it_rolls_back_to_before_the_definition() -> Result<()> {
    let story = Story::with_windlass("helm-rollback").await?;
    let group = format!("{}.example.com", story.namespace);
    let definition = widget_crd(&group);
    let first = chart("1.0.0", &[("templates/a.yaml", CONFIG)])?;
    let second =
        chart("1.1.0", &[("templates/a.yaml", CONFIG), ("templates/crd.yaml", &definition)])?;
    story.helm_says(&["install", "app", path(&first)?])?;
    story.helm_says(&["upgrade", "app", path(&second)?])?;
    story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.apply(&widget(&group, "mine")).await?;
    story.helm_says(&["rollback", "app", "1"])?;
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;

    // The same happens without a user's rollback, after an upgrade that fails.
    let bad = deployment("web", PodBehavior::CrashLoop);
    let third = chart("1.2.0", &[("templates/crd.yaml", &definition), ("templates/d.yaml", &bad)])?;
    let flags = ["upgrade", "app", path(&third)?, "--rollback-on-failure", "--timeout", "15s"];
    let runtime = tokio::runtime::Handle::current();
    let meanwhile = async {
        story.await_condition(&crd(&group), "Established", "True", DEFAULT_WAIT_TIMEOUT).await?;
        story.apply(&widget(&group, "mine")).await
    };
    let (failed, made) = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let helm = scope.spawn(|| story.helm(&flags));
            let made = runtime.block_on(meanwhile);
            (helm.join(), made)
        })
    });
    made?;
    let failed = failed.map_err(|_| anyhow::anyhow!("helm could not be run"))??;
    ensure!(!failed.status.success(), "{failed:?}");
    story.await_gone(&crd(&group), DEFAULT_WAIT_TIMEOUT).await?;
    story.helm_says(&["uninstall", "app"])?;
    story.end().await
}
