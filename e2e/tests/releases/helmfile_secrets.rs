//! Encrypted files of helmfiles: the plain values are in the releases, and in no other place.
//!
//! sops encrypted the files. `e2e/conformance/helmfile` contains them with their keys and with the output of helmfile.
//! Elsewhere: supported files and formats (engine `helmfile`), kinds of keys (`stories/decryption.rs`).

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

use crate::releases::helmfiles::{applied, keep, row};

/// The plain values of the encrypted files, except that of a user.
const PLAIN: [&str; 4] =
    ["canary-of-environment", "canary-of-release", "canary-of-reference", "canary-of-rotation"];

/// A recorded helmfile with encrypted secrets, and the keys of its files.
struct HelmfileSecretsCase {
    files: Vec<(String, String)>,
    /// The keys of the top-level files, and of those in `rotated`.
    keys: [String; 2],
}

impl HelmfileSecretsCase {
    fn read() -> Result<Self> {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/helmfile/own.jsonl");
        let cases = std::fs::read_to_string(cases)?;
        let mut cases = cases.lines().map(serde_json::from_str::<Value>);
        let case = cases.find_map(|case| case.ok().filter(|it| it["id"] == "own/secrets/sops"));
        let case = case.context("no such case")?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
        let files = case["files"].as_object().context("no files")?;
        let files = files.iter().map(|(path, content)| Ok((path.clone(), text(content)?)));
        let keys = text(&case["env"]["SOPS_AGE_KEY"])?;
        let (first, second) = keys.split_once('\n').context("two keys")?;
        Ok(Self {
            files: files.collect::<Result<_>>()?,
            keys: [first, second].map(|it| it.trim().to_owned()),
        })
    }

    fn files(&self) -> Vec<(&str, String)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
    }

    fn file(&self, path: &str) -> Result<&str> {
        let found = self.files.iter().find(|(known, _)| known == path);
        found.map(|(_, text)| text.as_str()).with_context(|| format!("no {path}"))
    }
}

async fn put_key(story: &Story, key: &str) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sops-keys"},
        "stringData": {"id.agekey": key}});
    story.apply_value(secret).await.map(drop)
}

fn decryption() -> Value {
    json!({"decryption": {"provider": "sops", "secretRef": {"name": "sops-keys"}}})
}

/// The values of the release, which its chart writes into an object.
async fn values(story: &Story) -> Result<String> {
    let map = story.expect(&StoryObject::config_map("a")).await?;
    map.data["data"]["values"].as_str().map(str::to_owned).context("no values")
}

/// Checks that no decrypted value is in the status, in events or in the log.
async fn is_hidden(story: &Story, target: &StoryObject, keys: &[String]) -> Result<()> {
    let status = story.expect(target).await?.data["status"].to_string();
    let events = story.events("Helmfile", "shop").await?.join("\n");
    for text in [status, events, story.windlass().await?.operator.log()?] {
        for hidden in PLAIN.into_iter().chain(keys.iter().map(String::as_str)) {
            ensure!(!text.contains(hidden), "{hidden} is in: {text}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sops_encrypted_is_plain_in_releases_and_nowhere_else() -> Result<()> {
    let story = Story::with_windlass("helmfile-secrets").await?;
    let recorded = HelmfileSecretsCase::read()?;
    let [first, second] = &recorded.keys;
    let upstream = story.follow("shop", &recorded.files()).await?;

    // Each message names what is missing, and the right key is used at once.
    let shop = keep(&story, "shop", json!({})).await?;
    story
        .await_message(&shop, "name the Secret with the keys in `spec.decryption.secretRef`")
        .await?;
    keep(&story, "shop", decryption()).await?;
    let missing = format!("'{}/sops-keys': not found; create it", story.namespace);
    story.await_message(&shop, &missing).await?;
    put_key(&story, second).await?;
    let refusal = story.await_message(&shop, "add a key that decrypts it to the Secret").await?;
    ensure!(refusal.contains("secrets/environment.yaml"), "{refusal}");
    ensure!(story.read(&StoryObject::config_map("a")).await?.is_none(), "a release was installed");
    put_key(&story, first).await?;
    let object = story.await_ready(&shop).await?;
    ensure!(row(&object, "a")?["revision"] == 1, "{}", object.data["status"]);
    let plain = values(&story).await?;
    for value in &PLAIN[..3] {
        ensure!(plain.contains(value), "{value} is not in: {plain}");
    }
    is_hidden(&story, &shop, &recorded.keys).await?;

    // The files get another key first, and then the Secret.
    let rotated = recorded.file("rotated/environment.yaml")?.to_owned();
    let revision = upstream.push(&[("secrets/environment.yaml", rotated)]).await?;
    story.await_message(&shop, "add a key that decrypts it to the Secret").await?;
    put_key(&story, &format!("{first}\n{second}")).await?;
    let object = applied(&story, &shop, &revision).await?;
    ensure!(row(&object, "a")?["revision"] == 2, "{}", object.data["status"]);
    let plain = values(&story).await?;
    ensure!(plain.contains("canary-of-rotation"), "{plain}");
    is_hidden(&story, &shop, &recorded.keys).await?;

    // An error of a template that quotes a secret does not show the secret.
    let helmfile = recorded.file("helmfile.yaml.gotmpl")?.to_owned();
    let quoting = format!("{helmfile}\n# {{{{ fail (printf \"it is %s\" .Values.password) }}}}\n");
    upstream.push(&[("helmfile.yaml.gotmpl", quoting)]).await?;
    story.await_message(&shop, "it is ****").await?;
    is_hidden(&story, &shop, &recorded.keys).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mac_of_an_encrypted_file_counts_unless_the_annotation_says_otherwise() -> Result<()> {
    let story = Story::with_windlass("helmfile-secrets-mac").await?;
    let recorded = HelmfileSecretsCase::read()?;
    put_key(&story, &recorded.keys[0]).await?;
    let upstream = story.follow("shop", &recorded.files()).await?;
    let shop = keep(&story, "shop", decryption()).await?;
    story.await_ready(&shop).await?;

    let forged = recorded.file("secrets/references.yaml")?;
    ensure!(forged.contains("host_unencrypted: shop"), "{forged}");
    let forged = forged.replace("host_unencrypted: shop", "host_unencrypted: forged");
    let revision = upstream.push(&[("secrets/references.yaml", forged)]).await?;
    let refusal = story.await_message(&shop, "failed to verify sops data integrity").await?;
    ensure!(refusal.contains("sops://secrets/references.yaml#/"), "{refusal}");
    ensure!(!values(&story).await?.contains("forged"), "the forged file was used");
    let mac = |says: &str| json!({"metadata": {"annotations": {"windlass.dev/sops-mac": says}}});
    story.merge(&shop, mac("Ignore")).await?;
    applied(&story, &shop, &revision).await?;
    ensure!(values(&story).await?.contains("forged"), "the file was not used");
    story.merge(&shop, mac("Require")).await?;
    story.await_message(&shop, "failed to verify sops data integrity").await?;
    story.merge(&shop, mac("Sometimes")).await?;
    story.await_message(&shop, "set it to Require or Ignore").await?;
    story.end().await
}
