//! Commits and tags that `ssh-keygen` and `gpg` sign, in every mode, and keys that are no longer valid.

use anyhow::{Context as _, Result, ensure};
use e2e::git_server::StoryGitRepository;
use e2e::gnupg::GnuPgHome;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::json;

use crate::stories::signed_commits::{verified, verify};
use crate::stories::verification_keys::{SigningKey, signing};

const MODES: [&str; 3] = ["HEAD", "Tag", "TagAndHEAD"];

/// The signer. `None` if there is no signature.
type OptionalSigner<'s> = Option<&'s SigningKey>;

/// Commits with one signer, and tags with another. Returns the hash of the commit.
fn release(
    repository: &StoryGitRepository,
    version: &str,
    commit: OptionalSigner<'_>,
    tag: OptionalSigner<'_>,
) -> Result<String> {
    let sign = |signer: OptionalSigner<'_>| match signer {
        Some(signer) => signer.sign(repository),
        None => signing(repository, false),
    };
    sign(commit)?;
    let hash = repository.commit(&[("a.yaml", &config_map("a", version))], version)?;
    sign(tag)?;
    repository.tag(version)?;
    Ok(hash)
}

fn name_of(kind: &str, mode: &str) -> String {
    format!("{kind}-{}", mode.to_lowercase())
}

/// Adds a public key to the Secret `keys` as a separate entry.
async fn add_key(story: &Story, entry: &str, signer: &SigningKey) -> Result<()> {
    let secret = StoryObject::new("v1", "Secret", "keys");
    story.merge(&secret, json!({"stringData": {entry: signer.public().1}})).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_and_tags_count_in_each_mode_if_new_keys_of_the_secret_signed_them() -> Result<()> {
    let story = Story::with_windlass("signed-git").await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}});
    story.apply_value(secret).await?;
    for (kind, entry, signer) in [
        ("ssh", "owner.sshpub", SigningKey::ssh as fn() -> Result<SigningKey>),
        ("gpg", "owner.asc", SigningKey::gpg),
    ] {
        let owner = signer()?;
        let other = signer()?;
        add_key(&story, entry, &owner).await?;
        let upstream = story.follow(kind, &[("a.yaml", config_map("a", "0"))]).await?;
        let repository = &upstream.repository;
        let url = upstream.server.url(&upstream.repository);
        // A tag, the signers of its commit and of the tag itself, and the modes in which they are sufficient.
        let releases: [(&str, OptionalSigner<'_>, OptionalSigner<'_>, &[&str]); 5] = [
            ("v1.0.0", None, None, &[]),
            ("v1.1.0", Some(&other), Some(&other), &[]),
            ("v1.2.0", Some(&owner), Some(&other), &["HEAD"]),
            ("v1.3.0", Some(&other), Some(&owner), &["Tag"]),
            ("v1.4.0", Some(&owner), Some(&owner), &MODES),
        ];
        for (version, commit, tag, enough) in releases {
            let hash = release(repository, version, commit, tag)?;
            for mode in MODES {
                let name = name_of(kind, mode);
                let spec = verify(mode, &json!({"tag": version}));
                story.git_repository(&name, &url, spec).await?;
                let is_enough = enough.contains(&mode);
                let status = if is_enough { "True" } else { "False" };
                let says = match (is_enough, mode) {
                    (true, "HEAD") => format!("- commit '{hash}' with key '"),
                    (true, _) => format!("- tag '{version}@"),
                    (false, _) if commit.is_none() && mode != "HEAD" => {
                        format!("cannot verify signature of tag '{version}@")
                    }
                    (false, _) => "signature verification of ".to_owned(),
                };
                // Earlier versions had the same verdict, so the message has to be about this one.
                let target = StoryObject::git_repository(&name);
                let object = story.await_object(&target, DEFAULT_WAIT_TIMEOUT, |object| {
                    let verified = condition(object, "SourceVerified");
                    let message = verified["message"].as_str().unwrap_or_default();
                    verified["status"] == status
                        && verified["observedGeneration"].as_i64() == object.metadata.generation
                        && message.contains(&says)
                });
                let what = format!("{kind} {version} {mode} is {status}: {says}");
                let object = object.await.context(what)?;
                let revision = object.data["status"]["artifact"]["revision"].as_str();
                let is_served = revision.is_some_and(|it| it.ends_with(&hash));
                ensure!(is_served == is_enough, "{kind} {version} {mode}: {revision:?} is served");
            }
        }
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_has_expired_or_was_revoked_does_not_count() -> Result<()> {
    let story = Story::with_windlass("old-keys").await?;
    let upstream = story.follow("unverified", &[("a.yaml", config_map("a", "0"))]).await?;
    let repository = &upstream.repository;
    let url = upstream.server.url(&upstream.repository);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}});
    story.apply_value(secret).await?;
    let expired = SigningKey::of(GnuPgHome::with_expired_key()?)?;
    let revoked = SigningKey::gpg()?;
    add_key(&story, "expired.asc", &expired).await?;
    add_key(&story, "revoked.asc", &revoked).await?;

    let hash = release(repository, "v1.0.0", Some(&expired), None)?;
    story.git_repository("app", &url, verify("HEAD", &json!({"branch": "main"}))).await?;
    let says = format!("signature verification of commit '{hash}' failed");
    let object = verified(&story, "app", "False", &says).await?;
    ensure!(object.data["status"]["artifact"].is_null(), "{:?}", object.data);

    let hash = release(repository, "v1.1.0", Some(&revoked), None)?;
    story.request(&StoryObject::git_repository("app")).await?;
    verified(&story, "app", "True", &format!("- commit '{hash}' with key '")).await?;
    revoked.gnupg()?.revoke()?;
    let entry = json!({"stringData": {"revoked.asc": revoked.gnupg()?.public()?}});
    story.merge(&StoryObject::new("v1", "Secret", "keys"), entry).await?;
    let says = format!("signature verification of commit '{hash}' failed");
    let object = verified(&story, "app", "False", &says).await?;
    ensure!(object.data["status"]["artifact"].is_null(), "{:?}", object.data);
    story.end().await
}
