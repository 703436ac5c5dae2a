//! Images and charts that `notation` signs, with certificates of a test authority and with a certificate that it makes itself.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use serde_json::{Value, json};
use testbed::upstream_programs::UpstreamProgram;

use super::{charts, follow, oci_repository, push_chart, push_image, replay, run, verified};
use crate::stories::helm_chart::chart_of;
use crate::stories::image_signatures::ensure_refused;

/// The formats of a signature.
const FORMATS: [&str; 2] = ["jws", "cose"];

/// Signs with the keys `owner` and `colleague`, and with `test`. An authority issued the certificates of the first two to
/// different organisations, and `notation` made the third.
struct NotationSigner {
    home: tempfile::TempDir,
    program: PathBuf,
    authority: TestCertificateAuthority,
}

impl NotationSigner {
    fn new() -> Result<Self> {
        let home = tempfile::tempdir()?;
        let authority = TestCertificateAuthority::generate()?;
        let config = home.path().join("notation");
        std::fs::create_dir(&config)?;
        let mut keys = Vec::new();
        for (name, organisation) in [("owner", "Testbed"), ("colleague", "Elsewhere")] {
            let issued = authority.issue_signer(organisation)?;
            let [key, chain] = ["key", "crt"].map(|kind| config.join(format!("{name}.{kind}")));
            std::fs::write(&key, issued.key)?;
            std::fs::write(&chain, issued.certificate + authority.certificate())?;
            keys.push(json!({"name": name, "keyPath": key, "certPath": chain}));
        }
        std::fs::write(config.join("signingkeys.json"), json!({"keys": keys}).to_string())?;
        let made = Self { home, program: UpstreamProgram::Notation.ensure()?, authority };
        made.notation(&["cert", "generate-test", "test"])?;
        Ok(made)
    }

    fn notation(&self, arguments: &[&str]) -> Result<()> {
        let home = self.home.path();
        run(&self.program, home, &[("XDG_CONFIG_HOME", home)], arguments).map(drop)
    }

    /// Signs the artifact with a digest in a repository.
    fn sign(
        &self,
        registry: &RegistryServer,
        repository: &str,
        digest: &str,
        (key, format): (&str, &str),
    ) -> Result<()> {
        let image = format!("{}/{repository}@{digest}", registry.host());
        let how = ["--insecure-registry", "--key", key, "--signature-format", format];
        self.notation(&[&["sign"][..], &how, &[image.as_str()]].concat())
    }

    /// Creates the Secret with the policy, which trusts one identity or all, and with certificates.
    async fn trust(&self, story: &Story, identity: &str, has_test: bool) -> Result<()> {
        let policy = json!({"version": "1.0", "trustPolicies": [{
            "name": "testbed", "registryScopes": ["*"],
            "signatureVerification": {"level": "strict"},
            "trustStores": ["ca:testbed"], "trustedIdentities": [identity],
        }]});
        let mut data = json!({"trustpolicy.json": policy.to_string(),
            "authority.crt": self.authority.certificate()});
        if has_test {
            let file = self.home.path().join("notation/localkeys/test.crt");
            data["test.crt"] = Value::from(std::fs::read_to_string(file)?);
        }
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "policy"}, "stringData": data});
        story.apply_value(secret).await.map(drop)
    }
}

fn verify() -> Value {
    json!({"provider": "notation", "secretRef": {"name": "policy"}})
}

/// Waits until a source is refused for a reason that contains a text.
async fn refused(story: &Story, target: &StoryObject, says: &str) -> Result<()> {
    let object = story.await_object(target, DEFAULT_WAIT_TIMEOUT, |object| {
        let verified = condition(object, "SourceVerified");
        let message = verified["message"].as_str().unwrap_or_default();
        verified["status"] == "False" && message.contains(says)
    });
    let object = object.await.with_context(|| format!("{target} is refused: {says}"))?;
    ensure!(object.data["status"]["artifact"].is_null(), "{:?}", object.data);
    Ok(())
}

/// Artifacts that are refused as long as the policy trusts one organisation, with the key that signed them.
const DISTRUSTED: [(&str, &str); 2] = [
    ("test", "does not contain any trusted certificate"),
    ("colleague", "does not match the X.509 trusted identities"),
];

/// Artifacts that are always refused.
const UNSIGNED: [(&str, &str); 2] =
    [("unsigned", "no signature is associated with"), ("replayed", "content descriptor mismatch")];

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds notation: cargo xtask test --thorough")]
async fn an_image_that_notation_signed_counts_by_policy_and_certificates_of_the_secret()
-> Result<()> {
    let notary = NotationSigner::new()?;
    let story = Story::with_windlass("notation").await?;
    let registry = RegistryServer::start().await?;
    notary.trust(&story, "x509.subject: C=US, ST=WA, O=Testbed", false).await?;
    for format in FORMATS {
        let good = format!("{format}-good");
        let digest = push_image(&registry, &good).await?;
        notary.sign(&registry, "app", &digest, ("owner", format))?;
        let target = follow(&story, &registry, &good, verify()).await?;
        let source = json!({"sourceRef": {"kind": "OCIRepository", "name": good}});
        story.kustomization(&good, &good, source).await?;
        let ready = story.await_ready(&target).await?;
        let right = format!("verified signature of revision {good}@{digest}");
        ensure!(verified(&ready)?.starts_with(&right), "{}", verified(&ready)?);
        story.await_value(&good, "1").await?;

        for (key, says) in DISTRUSTED {
            let name = format!("{format}-{key}");
            let digest = push_image(&registry, &name).await?;
            notary.sign(&registry, "app", &digest, (key, format))?;
            let target = follow(&story, &registry, &name, verify()).await?;
            refused(&story, &target, says).await?;
        }
        for (what, says) in UNSIGNED {
            let name = format!("{format}-{what}");
            let other = push_image(&registry, &name).await?;
            if what == "replayed" {
                replay(&registry, &digest, &other, "").await?;
            }
            let target = follow(&story, &registry, &name, verify()).await?;
            refused(&story, &target, says).await?;
        }
    }

    // A policy that trusts more identities accepts their signatures, and nothing else.
    notary.trust(&story, "*", true).await?;
    for format in FORMATS {
        for (key, _) in DISTRUSTED {
            let target = oci_repository(&format!("{format}-{key}"));
            verified(&story.await_ready(&target).await?)?;
        }
        for (what, says) in UNSIGNED {
            let target = oci_repository(&format!("{format}-{what}"));
            ensure_refused(&story.rerun(&target).await?, says)?;
        }
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds notation: cargo xtask test --thorough")]
async fn a_chart_that_helm_pushed_counts_once_notation_signed_it() -> Result<()> {
    let notary = NotationSigner::new()?;
    let story = Story::with_windlass("notation-charts").await?;
    let server = ChartServer::start(None)?;
    let registry = RegistryServer::start().await?;
    notary.trust(&story, "x509.subject: C=US, ST=WA, O=Testbed", false).await?;
    charts(&story, &registry).await?;
    let digest = push_chart(&server, &registry, "1.0.0")?;
    let more = json!({"version": "1.0.0", "verify": verify()});
    let app = chart_of(&story, ("HelmRepository", "charts"), "app", more).await?;
    refused(&story, &app, "no signature is associated with").await?;
    notary.sign(&registry, "charts/app", &digest, ("test", "cose"))?;
    story.request(&app).await?;
    refused(&story, &app, "does not contain any trusted certificate").await?;
    notary.sign(&registry, "charts/app", &digest, ("owner", "jws"))?;
    story.request(&app).await?;
    let ready = story.await_ready(&app).await?;
    let right = "verified signature of version 1.0.0";
    ensure!(verified(&ready)?.starts_with(right), "{}", verified(&ready)?);
    story.end().await
}
