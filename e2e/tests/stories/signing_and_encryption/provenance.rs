//! Charts that `helm package --sign` signs with a GnuPG key.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::gnupg::ADDRESS;
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use serde_json::{Value, json};

use crate::stories::helm_chart::repository;
use crate::stories::verification_keys::{SigningKey, put_keys};
use crate::stories::verified_charts::refused;

/// Packs a chart into the folder of the server. It is signed if there is a signer.
fn package(
    server: &ChartServer,
    name: &str,
    description: &str,
    signer: Option<&SigningKey>,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let yaml =
        format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\ndescription: {description}\n");
    std::fs::write(folder.path().join("Chart.yaml"), yaml)?;
    let served = server.served();
    let mut arguments = vec![Path::new("package"), folder.path(), Path::new("-d"), &served];
    let keyring;
    if let Some(signer) = signer {
        keyring = exported(signer, "--export-secret-keys")?;
        arguments.extend(["--sign", "--key", ADDRESS, "--keyring"].map(Path::new));
        arguments.push(&keyring);
    }
    server.helm(&arguments).map(drop)
}

/// The keyring that helm reads: a binary file in the home folder of GnuPG.
fn exported(signer: &SigningKey, what: &str) -> Result<PathBuf> {
    let keyring = signer.gnupg()?.home().join("exported.gpg");
    let path = keyring.to_str().context("a path that is no text")?;
    signer.gnupg()?.run(&["--yes", "--output", path, what])?;
    Ok(keyring)
}

/// Creates a HelmChart that requires provenance.
async fn chart(story: &Story, name: &str) -> Result<StoryObject> {
    let api = "source.toolkit.fluxcd.io/v1";
    let object = json!({"apiVersion": api, "kind": "HelmChart",
        "metadata": {"name": name, "annotations": {"windlass.dev/verify-provenance": "keys"}},
        "spec": {"chart": name, "interval": "1h", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    story.apply_value(object).await?;
    Ok(StoryObject::new(api, "HelmChart", name))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_helm_signed_counts_until_chart_or_provenance_is_changed() -> Result<()> {
    let story = Story::with_windlass("helm-sign").await?;
    let server = ChartServer::start(None)?;
    let owner = SigningKey::gpg()?;
    let other = SigningKey::gpg_with("rsa3072")?;
    for name in ["good", "forged", "swapped"] {
        package(&server, name, "signed", Some(&owner))?;
    }
    package(&server, "foreign", "signed", Some(&other))?;
    package(&server, "unsigned", "as it is", None)?;
    let file = |name: &str| server.served().join(format!("{name}-1.0.0.tgz.prov"));
    let right = std::fs::read_to_string(file("forged"))?;
    let forged = right.replace("description: signed", "description: forged");
    ensure!(forged != right, "helm writes no description");
    std::fs::write(file("forged"), forged)?;
    // Another chart of the same name and version has the provenance of the first.
    package(&server, "swapped", "another", None)?;
    server.helm(&[Path::new("repo"), Path::new("index"), &server.served()])?;

    // Helm itself also rejects it.
    let keyring = exported(&owner, "--export")?;
    let verify = |name: &str| {
        let file = server.served().join(format!("{name}-1.0.0.tgz"));
        server.helm(&[Path::new("verify"), &file, Path::new("--keyring"), &keyring])
    };
    verify("good")?;
    put_keys(&story, &[&owner]).await?;
    repository(&story, "charts", &server.url(), Value::Object(Default::default())).await?;
    for (name, says) in [
        ("forged", "openpgp: invalid signature"),
        ("swapped", "sha256 sum does not match for swapped-1.0.0.tgz"),
        ("foreign", "openpgp: signature made by unknown entity"),
        ("unsigned", "the repository has no provenance file 'unsigned-1.0.0.tgz.prov'"),
    ] {
        ensure!(verify(name).is_err(), "helm takes {name}");
        let object = refused(&story, &chart(&story, name).await?, says).await?;
        ensure!(object.data["status"]["artifact"].is_null(), "{:?}", object.data);
    }
    let good = chart(&story, "good").await?;
    let object = story.await_ready(&good).await?;
    let message = super::verified(&object)?;
    ensure!(message.contains(&format!("signed by Story <{ADDRESS}> with key '")), "{message}");
    let fingerprint = owner.gnupg()?.fingerprint()?;
    ensure!(message.contains(&fingerprint), "{message} does not name {fingerprint}");
    story.end().await
}
