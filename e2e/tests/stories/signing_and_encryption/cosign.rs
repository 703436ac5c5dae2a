//! Images and charts that `cosign` signs, in bundles and in the older format.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::condition;
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use serde_json::{Value, json};
use testbed::upstream_programs::UpstreamProgram;

use super::{charts, follow, push_chart, push_image, replay, run, verified};
use crate::stories::helm_chart::{await_version, chart_of};
use crate::stories::image_signatures::ensure_refused;

const NONE: &str = "no matching signatures were found";

/// How a signature is stored.
#[derive(Clone, Copy)]
enum SignatureFormat {
    /// A bundle that refers to the image, as cosign 3 stores it.
    Bundle,
    /// A tag beside the image, as cosign 2 stores it.
    Tag,
}

impl SignatureFormat {
    /// A short name, and the suffix of the tag under which signatures are found.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Bundle => ("bundle", ""),
            Self::Tag => ("tag", ".sig"),
        }
    }
}

/// Signs with a key pair of cosign, without any service of Sigstore.
struct CosignSigner {
    home: tempfile::TempDir,
    program: PathBuf,
}

impl CosignSigner {
    fn new() -> Result<Self> {
        let made = Self { home: tempfile::tempdir()?, program: UpstreamProgram::Cosign.ensure()? };
        made.cosign(&["generate-key-pair"])?;
        // Neither file names a service, so no signature is written to a public log.
        made.cosign(&["signing-config", "create", "--out", "services.json"])?;
        made.cosign(&["trusted-root", "create", "--out", "root.json"])?;
        Ok(made)
    }

    fn cosign(&self, arguments: &[&str]) -> Result<()> {
        let environment = [("COSIGN_PASSWORD", Path::new("c0sign-passw0rd"))];
        run(&self.program, self.home.path(), &environment, arguments).map(drop)
    }

    /// Signs the artifact with a digest in a repository.
    fn sign(
        &self,
        registry: &RegistryServer,
        repository: &str,
        digest: &str,
        format: SignatureFormat,
    ) -> Result<()> {
        let image = format!("{}/{repository}@{digest}", registry.host());
        let how: &[&str] = match format {
            SignatureFormat::Bundle => {
                &["--signing-config", "services.json", "--trusted-root", "root.json"]
            }
            SignatureFormat::Tag => {
                &["--new-bundle-format=false", "--use-signing-config=false", "--tlog-upload=false"]
            }
        };
        let sign = ["sign", "--key", "cosign.key", "--yes", "--allow-http-registry"];
        self.cosign(&[&sign[..], how, &[image.as_str()]].concat())
    }

    /// Creates a Secret with the public key.
    async fn publish(&self, story: &Story, name: &str) -> Result<()> {
        let key = std::fs::read_to_string(self.home.path().join("cosign.pub"))?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"cosign.pub": key}});
        story.apply_value(secret).await.map(drop)
    }
}

fn verify() -> Value {
    json!({"provider": "cosign", "secretRef": {"name": "owner"}})
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds cosign: cargo xtask test --thorough")]
async fn an_image_that_cosign_signed_counts_in_either_format_with_the_key_of_the_secret()
-> Result<()> {
    let owner = CosignSigner::new()?;
    let other = CosignSigner::new()?;
    let story = Story::with_windlass("cosign").await?;
    let registry = RegistryServer::start().await?;
    owner.publish(&story, "owner").await?;
    for format in [SignatureFormat::Bundle, SignatureFormat::Tag] {
        let (name, suffix) = format.names();
        let digest = push_image(&registry, name).await?;
        let target = follow(&story, &registry, name, verify()).await?;
        let source = json!({"sourceRef": {"kind": "OCIRepository", "name": name}});
        story.kustomization(name, name, source).await?;
        story.await_failure(&target, "VerificationError").await?;

        let refused = async |why: &str| {
            ensure_refused(&story.rerun(&target).await?, NONE)
                .with_context(|| format!("{name}: {why}"))
        };
        refused("it is not signed").await?;
        // The owner signed another image.
        let elsewhere = push_image(&registry, &format!("{name}-elsewhere")).await?;
        owner.sign(&registry, "app", &elsewhere, format)?;
        replay(&registry, &elsewhere, &digest, suffix).await?;
        refused("the signature is that of another image").await?;
        other.sign(&registry, "app", &digest, format)?;
        refused("the key is that of another").await?;
        ensure!(story.read(&StoryObject::config_map(name)).await?.is_none(), "{name} is applied");

        owner.sign(&registry, "app", &digest, format)?;
        story.request(&target).await?;
        let ready = story.await_ready(&target).await?;
        let text = format!("verified signature of revision {name}@{digest}: signed by cosign.pub");
        ensure!(verified(&ready)? == text, "{}", verified(&ready)?);
        story.await_value(name, "1").await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds cosign: cargo xtask test --thorough")]
async fn a_chart_that_helm_pushed_counts_once_cosign_signed_it_in_either_format() -> Result<()> {
    let owner = CosignSigner::new()?;
    let other = CosignSigner::new()?;
    let story = Story::with_windlass("cosign-charts").await?;
    let server = ChartServer::start(None)?;
    let registry = RegistryServer::start().await?;
    owner.publish(&story, "owner").await?;
    charts(&story, &registry).await?;
    for (version, format) in [("1.0.0", SignatureFormat::Bundle), ("2.0.0", SignatureFormat::Tag)] {
        let digest = push_chart(&server, &registry, version)?;
        let more = json!({"version": version, "verify": verify()});
        let app = chart_of(&story, ("HelmRepository", "charts"), "app", more).await?;
        let message = story.await_failure(&app, "ChartVerificationError").await?;
        ensure!(message.contains(NONE), "{message}");
        other.sign(&registry, "charts/app", &digest, format)?;
        let object = story.rerun(&app).await?;
        let condition = condition(&object, "SourceVerified");
        let text = condition["message"].as_str().unwrap_or_default();
        ensure!(condition["status"] == "False" && text.contains(NONE), "{condition}");
        let served = &object.data["status"]["artifact"]["revision"];
        ensure!(*served != version, "{version} is served, signed by another");

        owner.sign(&registry, "charts/app", &digest, format)?;
        story.request(&app).await?;
        await_version(&story, &app, version).await?;
        let ready = story.await_ready(&app).await?;
        let text = format!("verified signature of version {version}: signed by cosign.pub");
        ensure!(verified(&ready)? == text, "{}", verified(&ready)?);
    }
    story.end().await
}
