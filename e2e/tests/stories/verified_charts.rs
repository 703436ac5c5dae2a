//! Charts of a repository that have to have provenance.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use kube::api::DynamicObject;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::helm_chart::{chart_of, publish, pulled, repository};
use super::verification_keys::{SigningKey, put_keys};

/// Writes the provenance of a chart beside it, as `helm package --sign` does.
fn sign(server: &ChartServer, signer: &SigningKey, file: &str) -> Result<()> {
    let archive = server.served().join(file);
    let digest = Sha256::digest(std::fs::read(&archive)?);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("apiVersion: v2\nname: app\n\n...\nfiles:\n  {file}: sha256:{digest}\n");
    std::fs::write(server.served().join(format!("{file}.prov")), signer.clearsign(&text)?)?;
    Ok(())
}

/// Waits until a chart is refused for a reason that contains a text.
pub(crate) async fn refused(
    story: &Story,
    chart: &StoryObject,
    says: &str,
) -> Result<DynamicObject> {
    let object = story.await_object(chart, DEFAULT_WAIT_TIMEOUT, |object| {
        let verified = condition(object, "SourceVerified");
        let message = verified["message"].as_str().unwrap_or_default();
        verified["status"] == "False"
            && verified["reason"] == "ChartVerificationError"
            && message.contains(says)
    });
    object.await.with_context(|| format!("refused: {says}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_counts_with_the_right_provenance_only() -> Result<()> {
    let story = Story::with_windlass("provenance").await?;
    let server = ChartServer::start(None)?;
    publish(&server, "1.0.0")?;
    let right = SigningKey::gpg()?;
    let wrong = SigningKey::gpg()?;
    put_keys(&story, &[&right]).await?;
    repository(&story, "charts", &server.url(), json!({})).await?;
    let app = StoryObject::new("source.toolkit.fluxcd.io/v1", "HelmChart", "app");
    let annotated = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
        "metadata": {"name": "app", "annotations": {"windlass.dev/verify-provenance": "keys"}},
        "spec": {"chart": "app", "interval": "1h", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    story.apply_value(annotated).await?;
    let object =
        refused(&story, &app, "the repository has no provenance file 'app-1.0.0.tgz.prov'").await?;
    ensure!(object.data["status"]["artifact"].is_null(), "{:?}", object.data);

    sign(&server, &wrong, "app-1.0.0.tgz")?;
    story.request(&app).await?;
    refused(&story, &app, "openpgp: signature made by unknown entity").await?;

    sign(&server, &right, "app-1.0.0.tgz")?;
    story.request(&app).await?;
    let object = pulled(&story, &app, "1.0.0").await?;
    let verified = condition(&object, "SourceVerified");
    let message = verified["message"].as_str().unwrap_or_default();
    ensure!(verified["status"] == "True", "{verified}");
    ensure!(message.contains("signed by Story <story@testbed.example> with key '"), "{message}");

    // For other sources, the annotation has no meaning, so nothing happens.
    let _upstream = story
        .follow(
            "app",
            &[("chart/Chart.yaml", "apiVersion: v2\nname: chart\nversion: 1.0.0\n".to_owned())],
        )
        .await?;
    let chart = chart_of(&story, ("GitRepository", "app"), "./chart", json!({})).await?;
    let patch = json!({"metadata": {"annotations": {"windlass.dev/verify-provenance": "keys"}}});
    story.merge(&chart, patch).await?;
    let stalled = story.await_condition(&chart, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
    let message = condition(&stalled, "Stalled")["message"].as_str().unwrap_or_default().to_owned();
    ensure!(message.contains("windlass.dev/verify-provenance"), "{message}");
    story.end().await
}
