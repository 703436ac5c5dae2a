//! A bundle contains everything that its helmfile names, so windlass asks no other server.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use e2e::operator_process;
use e2e::servers::charts::ChartServer;
use e2e::servers::web::FileWebServer;
use serde_json::json;

fn tar(arguments: &[&str], folder: &Path) -> Result<()> {
    let output = Command::new("tar").args(arguments).arg("-C").arg(folder).arg(".").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_reconciled_while_every_other_server_is_gone() -> Result<()> {
    let story = Story::with_windlass("bundle").await?;
    let charts = ChartServer::start(None)?;
    charts.publish(&[
        ("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.2.0\n"),
        ("templates/config.yaml", CONFIG),
    ])?;
    let folder = tempfile::tempdir()?;
    let work = tempfile::tempdir()?;
    let write = |path: &str, text: &str| -> Result<()> {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().context("it has one")?)?;
        Ok(std::fs::write(path, text)?)
    };
    write("local/Chart.yaml", "apiVersion: v2\nname: local\nversion: 1.0.0\n")?;
    write("local/templates/config.yaml", CONFIG)?;
    let helmfile = format!(
        "repositories:\n- {{name: charts, url: '{}'}}\nreleases:\n\
         - {{name: web, chart: charts/app, version: ~1, values: [{{value: w}}], needs: [own]}}\n\
         - {{name: own, chart: ./local, values: [{{value: o}}]}}\n",
        charts.url()
    );
    write("helmfile.yaml", &helmfile)?;
    let path = |path: &Path| path.display().to_string();
    let bundle = path(&work.path().join("shop.tar.gz"));
    let output = Command::new(operator_process::binary()?)
        .args(["bundle", &path(folder.path()), "--output", &bundle])
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The server of the charts no longer exists.
    drop(charts);
    let server = FileWebServer::start().await?;
    let url = server.put("shop.tar.gz", std::fs::read(&bundle)?);
    let archive = StoryObject::new("source.windlass.dev/v1alpha1", "HTTPArchive", "shop");
    story
        .apply_value(json!({"apiVersion": "source.windlass.dev/v1alpha1", "kind": "HTTPArchive",
            "metadata": {"name": "shop"}, "spec": {"interval": "1h", "url": url}}))
        .await?;
    story
        .apply_value(json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
            "metadata": {"name": "shop"}, "spec": {"interval": "1h", "prune": true,
                "sourceRef": {"kind": "ExternalArtifact", "name": "shop"}}}))
        .await?;
    let shop = StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop");
    let object = story.await_ready(&shop).await?;
    let rows = object.data["status"]["releases"].as_array().cloned().unwrap_or_default();
    let made: Vec<_> = rows.iter().map(|row| row["chart"].as_str().unwrap_or_default()).collect();
    ensure!(made == ["local-1.0.0", "app-1.2.0"], "{made:?}");
    story.await_value("web-config", "w").await?;
    story.await_value("own-config", "o").await?;

    // windlass refuses an archive that differs from the locked one, and the installed release stays.
    let altered = work.path().join("altered");
    std::fs::create_dir(&altered)?;
    let output = Command::new("tar").args(["-xzf", &bundle, "-C"]).arg(&altered).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for entry in std::fs::read_dir(altered.join("windlass-bundle"))? {
        let file = entry?.path();
        if file.extension().is_some_and(|it| it == "tgz") {
            std::fs::write(&file, [std::fs::read(&file)?, b"more".to_vec()].concat())?;
        }
    }
    let packed = path(&work.path().join("altered.tar.gz"));
    tar(&["-czf", &packed], &altered)?;
    server.put("shop.tar.gz", std::fs::read(&packed)?);
    story.request(&archive).await?;
    let text = story.await_failure(&shop, "HelmfileError").await?;
    ensure!(text.contains("digest mismatch"), "{text}");
    story.await_value("web-config", "w").await?;
    story.delete(&shop).await?;
    story.await_gone(&shop, DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}
