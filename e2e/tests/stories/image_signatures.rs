//! Artifacts from a registry are used only after their owner has signed them like cosign, in the older format or in bundles.
//!
//! Elsewhere: valid signatures (recorded answers of the engine `signatures`).

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use kube::api::DynamicObject;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};

use crate::stories::helm_chart::{self, chart_of, publish};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// A key that signs images.
pub(crate) struct ImageSigner(KeyPair);

impl ImageSigner {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(KeyPair::generate()?))
    }

    /// Creates a Secret with the public key.
    pub(crate) async fn publish(&self, story: &Story, name: &str) -> Result<()> {
        let encoded = STANDARD.encode(self.0.subject_public_key_info());
        let key = format!("-----BEGIN PUBLIC KEY-----\n{encoded}\n-----END PUBLIC KEY-----\n");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"cosign.pub": key}});
        story.apply_value(secret).await.map(drop)
    }

    /// Signs an image in the older format, under the tag of `beside`.
    pub(crate) async fn sign(
        &self,
        registry: &RegistryServer,
        name: &str,
        image: &str,
        beside: &str,
    ) -> Result<()> {
        let payload = json!({"critical": {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": image},
            "type": "cosign container image signature",
        }, "optional": null})
        .to_string();
        let signature = STANDARD.encode(self.0.sign(payload.as_bytes())?);
        let layer = registry.push_blob(name, payload.clone().into_bytes()).await?;
        let config = registry.push_blob(name, b"{}".to_vec()).await?;
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": 2},
        "layers": [{
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": layer, "size": payload.len(),
            "annotations": {"dev.cosignproject.cosign/signature": signature},
        }]});
        let tag = format!("{}.sig", beside.replace(':', "-"));
        registry.push_manifest(name, &tag, &manifest).await.map(drop)
    }

    /// Signs an image in a bundle. The index under the fallback tag refers to the bundle.
    pub(crate) async fn bundle(
        &self,
        registry: &RegistryServer,
        name: &str,
        image: &str,
    ) -> Result<()> {
        let digest = image.trim_start_matches("sha256:");
        let statement = json!({"_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": digest}}],
            "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": {}})
        .to_string();
        let signed = format!("DSSEv1 {} {IN_TOTO} {} {statement}", IN_TOTO.len(), statement.len());
        let bundle = json!({"mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": "x"}},
            "dsseEnvelope": {"payload": STANDARD.encode(&statement), "payloadType": IN_TOTO,
                "signatures": [{"sig": STANDARD.encode(self.0.sign(signed.as_bytes())?)}]}})
        .to_string();
        let layer = registry.push_blob(name, bundle.clone().into_bytes()).await?;
        let config = registry.push_blob(name, b"{}".to_vec()).await?;
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": config, "size": 2},
            "layers": [{"mediaType": BUNDLE, "digest": layer, "size": bundle.len()}]});
        let size = manifest.to_string().len();
        let own = registry.push_manifest(name, "", &manifest).await?;
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            {"mediaType": MANIFEST, "digest": own, "size": size, "artifactType": BUNDLE}]});
        registry.push_manifest(name, &image.replace(':', "-"), &index).await.map(drop)
    }
}

/// Checks that a source is refused for a reason that contains a text, and serves nothing.
pub(crate) fn ensure_refused(object: &DynamicObject, text: &str) -> Result<()> {
    let verified = condition(object, "SourceVerified");
    ensure!(verified["status"] == "False" && condition(object, "Ready")["status"] == "False");
    ensure!(verified["message"].as_str().is_some_and(|it| it.contains(text)), "{verified}");
    ensure!(object.data["status"]["artifact"].is_null(), "an artifact is served");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_applied_once_its_owner_signed_it_and_nothing_else_is() -> Result<()> {
    let story = Story::with_windlass("image-signatures").await?;
    let registry = RegistryServer::start().await?;
    let owner = ImageSigner::new()?;
    let other = ImageSigner::new()?;
    owner.publish(&story, "owner").await?;
    let push = async |tag: &str, value: &str| {
        registry.push_files("app", tag, &[("a.yaml", &config_map("app", value))], json!({})).await
    };
    let image = push("latest", "1").await?;
    let older = push("older", "0").await?;
    let target = StoryObject::new("source.toolkit.fluxcd.io/v1", "OCIRepository", "app");
    let verify = json!({"provider": "cosign", "secretRef": {"name": "owner"}});
    let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": "app"},
        "spec": {"interval": "1h", "url": registry.url("app"), "verify": verify}});
    story.apply_value(object).await?;
    let source = json!({"sourceRef": {"kind": "OCIRepository", "name": "app"}});
    story.kustomization("app", "app", source).await?;

    let message = story.await_failure(&target, "VerificationError").await?;
    let none = format!(
        "failed to verify the signature using provider 'cosign': no matching signatures were found for '{}/app@{image}'",
        registry.host()
    );
    ensure!(message == none, "{message}");
    other.sign(&registry, "app", &image, &image).await?;
    ensure_refused(&story.rerun(&target).await?, &none)?;
    // A good signature of another image is pushed beside this one.
    owner.sign(&registry, "app", &older, &image).await?;
    ensure_refused(&story.rerun(&target).await?, &none)?;
    story.await_gone(&StoryObject::config_map("app"), DEFAULT_WAIT_TIMEOUT).await?;

    owner.sign(&registry, "app", &image, &image).await?;
    // A bundle that another key signed does not hide the right signature.
    other.bundle(&registry, "app", &image).await?;
    story.request(&target).await?;
    let ready = story.await_ready(&target).await?;
    let verified = condition(&ready, "SourceVerified");
    ensure!(verified["status"] == "True" && verified["reason"] == "Succeeded", "{verified}");
    let text = format!("verified signature of revision latest@{image}: signed by cosign.pub");
    ensure!(verified["message"] == text, "{verified}");
    story.await_value("app", "1").await?;

    // The next pushed image is refused, and the verified one stays.
    push("latest", "2").await?;
    let object = story.rerun(&target).await?;
    ensure!(condition(&object, "SourceVerified")["status"] == "False");
    ensure!(object.data["status"]["artifact"]["revision"] == format!("latest@{image}"));
    story.await_value("app", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_registry_needs_a_bundle_of_its_owner() -> Result<()> {
    let story = Story::with_windlass("chart-signatures").await?;
    let server = ChartServer::start(None)?;
    let registry = RegistryServer::start().await?;
    let owner = ImageSigner::new()?;
    let other = ImageSigner::new()?;
    owner.publish(&story, "owner").await?;
    publish(&server, "1.0.0")?;
    let image = helm_chart::push(&server, &registry, "app", "1.0.0").await?;
    let more = json!({"type": "oci", "insecure": true});
    helm_chart::repository(&story, "charts", &registry.url("charts"), more).await?;
    let verify: Value = json!({"provider": "cosign", "secretRef": {"name": "owner"}});
    let of = ("HelmRepository", "charts");
    let more = json!({"version": "1.0.0", "verify": verify});
    let app = chart_of(&story, of, "app", more).await?;
    let message = story.await_failure(&app, "ChartVerificationError").await?;
    ensure!(message.starts_with("chart verification error: "), "{message}");

    other.bundle(&registry, "charts/app", &image).await?;
    ensure_refused(&story.rerun(&app).await?, "no matching signatures were found")?;
    owner.bundle(&registry, "charts/app", &image).await?;
    story.request(&app).await?;
    let ready = story.await_ready(&app).await?;
    let verified = condition(&ready, "SourceVerified");
    let text = "verified signature of version 1.0.0: signed by cosign.pub";
    ensure!(verified["message"] == text, "{verified}");
    ensure!(ready.data["status"]["artifact"]["revision"] == "1.0.0");

    // This is like `install-from-hc-source` among the test cases of helm-controller.
    let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "app"},
        "spec": {"interval": "1h", "chartRef": {"kind": "HelmChart", "name": "app"}}});
    story.apply_value(release).await?;
    story.await_ready(&StoryObject::helm_release("app")).await?;
    story.end().await
}
