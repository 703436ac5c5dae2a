//! Commits and tags that have to be signed with keys of `ssh-keygen` and GnuPG, over HTTP.
//!
//! Elsewhere: every kind of key and signature, with Flux's verdicts (`e2e/conformance/trust`).

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::verification_keys::{SigningKey, put_keys, signing};

pub(crate) fn verify(mode: &str, reference: &Value) -> Value {
    json!({"ref": reference, "verify": {"mode": mode, "secretRef": {"name": "keys"}}})
}

/// Waits until the condition has this content.
pub(crate) async fn verified(
    story: &Story,
    name: &str,
    status: &str,
    says: &str,
) -> Result<DynamicObject> {
    let target = StoryObject::git_repository(name);
    let object = story.await_object(&target, DEFAULT_WAIT_TIMEOUT, |object| {
        let verified = condition(object, "SourceVerified");
        let message = verified["message"].as_str().unwrap_or_default();
        verified["status"] == status && message.contains(says)
    });
    object.await.with_context(|| format!("SourceVerified={status} of {name}: {says}"))
}

fn revision(object: &DynamicObject) -> &str {
    object.data["status"]["artifact"]["revision"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_known_key_signed_becomes_an_artifact() -> Result<()> {
    let story = Story::with_windlass("verify-head").await?;
    let upstream = story.follow("unverified", &[("a.yaml", config_map("a", "1"))]).await?;
    let repository = &upstream.repository;
    let ssh = SigningKey::ssh()?;
    let gpg = SigningKey::gpg()?;
    put_keys(&story, &[&ssh]).await?;
    ssh.sign(repository)?;
    let first = repository.commit(&[("a.yaml", &config_map("a", "2"))], "signed")?;
    let url = upstream.server.url(repository);
    let app = StoryObject::git_repository("app");
    story.git_repository("app", &url, verify("HEAD", &json!({"branch": "main"}))).await?;
    let object =
        verified(&story, "app", "True", &format!("- commit '{first}' with key 'SHA256:")).await?;
    ensure!(object.data["status"]["sourceVerificationMode"] == "HEAD", "{:?}", object.data);
    story.kustomization("app", "app", json!({})).await?;
    story.await_value("a", "2").await?;

    // An unsigned commit is reported and never served. The verified one stays.
    signing(repository, false)?;
    let unsigned = repository.commit(&[("a.yaml", &config_map("a", "3"))], "unsigned")?;
    story.request(&app).await?;
    let says = format!(
        "signature verification of commit '{unsigned}' failed: unsupported signature type: empty"
    );
    let object = verified(&story, "app", "False", &says).await?;
    ensure!(condition(&object, "SourceVerified")["reason"] == "InvalidCommitSignature", "reason");
    ensure!(story.await_failure(&app, "InvalidCommitSignature").await? == says, "Ready");
    ensure!(revision(&object).ends_with(&first), "{}", revision(&object));

    // A signature of an unknown key does not count until the key is known.
    gpg.sign(repository)?;
    let third = repository.commit(&[("a.yaml", &config_map("a", "4"))], "by GnuPG")?;
    story.request(&app).await?;
    verified(&story, "app", "False", "PGP signature detected but no PGP public keys found").await?;
    put_keys(&story, &[&gpg]).await?;
    let object = verified(&story, "app", "True", &format!("- commit '{third}' with key '")).await?;
    ensure!(revision(&object).ends_with(&third), "{}", revision(&object));
    story.await_value("a", "4").await?;

    // The keys are replaced. An artifact that none of the new keys signed is withdrawn.
    story.delete(&StoryObject::new("v1", "Secret", "keys")).await?;
    put_keys(&story, &[&ssh]).await?;
    let object = story.await_object(&app, DEFAULT_WAIT_TIMEOUT, |object| {
        condition(object, "SourceVerified")["status"] == "False" && revision(object).is_empty()
    });
    object.await.context("the artifact is withdrawn")?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_has_to_be_signed_itself_where_the_mode_says_so() -> Result<()> {
    let story = Story::with_windlass("verify-tag").await?;
    let upstream = story.follow("unverified", &[("a.yaml", config_map("a", "1"))]).await?;
    let repository = &upstream.repository;
    let gpg = SigningKey::gpg()?;
    put_keys(&story, &[&gpg]).await?;
    let first = repository.hash("main")?;
    repository.tag("v1.0.0")?;
    let unsigned = repository.git(&["rev-parse", "v1.0.0"])?;
    let url = upstream.server.url(repository);
    let range = json!({"semver": ">=1.0.0"});
    story.git_repository("tag", &url, verify("Tag", &range)).await?;
    story.git_repository("both", &url, verify("TagAndHEAD", &range)).await?;
    story.git_repository("branch", &url, verify("Tag", &json!({"branch": "main"}))).await?;
    let says = format!("cannot verify signature of tag 'v1.0.0@{unsigned}' since it is not signed");
    for name in ["tag", "both"] {
        let object = verified(&story, name, "False", &says).await?;
        ensure!(condition(&object, "Ready")["reason"] == "InvalidGitObject", "{name}");
        ensure!(revision(&object).is_empty(), "{name}: {}", revision(&object));
    }
    let says = "cannot verify tag object's signature if a tag reference is not specified";
    let object = verified(&story, "branch", "False", says).await?;
    ensure!(
        condition(&object, "Stalled")["reason"] == "InvalidVerificationMode",
        "{:?}",
        object.data
    );

    // A signed tag of an unsigned commit.
    gpg.sign(repository)?;
    repository.tag("v1.1.0")?;
    let tag = repository.git(&["rev-parse", "v1.1.0"])?;
    for name in ["tag", "both"] {
        story.request(&StoryObject::git_repository(name)).await?;
    }
    let object =
        verified(&story, "tag", "True", &format!("- tag 'v1.1.0@{tag}' with key '")).await?;
    ensure!(revision(&object) == format!("v1.1.0@sha1:{first}"), "{}", revision(&object));
    let says = format!("signature verification of commit '{first}' failed");
    verified(&story, "both", "False", &says).await?;

    let second = repository.commit(&[("a.yaml", &config_map("a", "2"))], "signed")?;
    repository.tag("v1.2.0")?;
    story.request(&StoryObject::git_repository("both")).await?;
    let object =
        verified(&story, "both", "True", &format!("- commit '{second}' with key '")).await?;
    ensure!(object.data["status"]["sourceVerificationMode"] == "TagAndHEAD", "{:?}", object.data);
    story.end().await
}
