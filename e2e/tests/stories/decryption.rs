//! Encrypted Secrets, env files and patches are decrypted in the cluster, and in no other place.
//!
//! sops encrypted the files. `e2e/conformance/trust` contains them with their keys and with the results of Flux.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use e2e::servers::web::FileWebServer;
use serde_json::{Value, json};

/// The key that decrypts the recorded files. No output may show it.
const KEY: &str = "AGE-SECRET-KEY-1M7TH6FWAMNFQTZ4W5TVJWG4KFATFZNQ32YV2FV8ZHHM6NMEEPS7SPM7A45";

/// A recorded case: the files below a folder, and the keys.
pub(crate) struct DecryptionCase {
    pub(crate) files: Vec<(String, String)>,
    pub(crate) keys: Vec<(String, String)>,
}

pub(crate) fn recorded(name: &str, folder: &str) -> Result<DecryptionCase> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/trust");
    let cases = std::fs::read_to_string(root.join("cases.jsonl"))?;
    let mut cases = cases.lines().map(serde_json::from_str::<Value>);
    let case = cases
        .find_map(|case| case.ok().filter(|case| case["name"] == name))
        .with_context(|| format!("no case {name}"))?;
    let mut files = Vec::new();
    let mut keys = Vec::new();
    for (path, content) in case["files"].as_object().context("files")? {
        let content = content.as_str().context("content")?;
        let content = match content.strip_prefix('@') {
            Some(blob) => std::fs::read_to_string(root.join("blobs").join(format!("{blob}.b64")))?,
            None => content.to_owned(),
        };
        let content = String::from_utf8(BASE64_STANDARD.decode(content.trim())?)?;
        if let Some(key) = path.strip_prefix("keys/") {
            keys.push((key.to_owned(), content));
        } else {
            let path = path.strip_prefix("tree/").unwrap_or("object.yaml");
            files.push((format!("{folder}/{path}"), content));
        }
    }
    Ok(DecryptionCase { files, keys })
}

pub(crate) fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// Puts keys into a Secret.
pub(crate) async fn put_keys(story: &Story, name: &str, keys: &[(String, String)]) -> Result<()> {
    let data: serde_json::Map<_, _> =
        keys.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    story.apply(&secret.to_string()).await.map(drop)
}

/// The spec of a Kustomization that decrypts with the keys of a Secret.
pub(crate) fn decryption(path: &str, secret: &str) -> Value {
    json!({"path": path, "decryption": {"provider": "sops", "secretRef": {"name": secret}}})
}

/// An entry of a Secret of the story, as a Pod reads it.
pub(crate) async fn bytes(story: &Story, secret: &str, key: &str) -> Result<Vec<u8>> {
    let target = StoryObject::new("v1", "Secret", secret);
    let data = &story.expect(&target).await?.data["data"][key];
    let text = data.as_str().with_context(|| format!("{target} has no {key}"))?;
    Ok(BASE64_STANDARD.decode(text)?)
}

/// An entry of a Secret of the story, as text.
pub(crate) async fn entry(story: &Story, secret: &str, key: &str) -> Result<String> {
    Ok(String::from_utf8(bytes(story, secret, key).await?)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sops_encrypted_is_plain_in_the_cluster() -> Result<()> {
    let story = Story::with_windlass("decryption").await?;
    let mut files = Vec::new();
    for (case, folder) in [
        ("build-resource-secret", "secret"),
        ("build-env-hash", "env"),
        ("build-patch-yaml", "patch"),
    ] {
        let recorded = recorded(case, folder)?;
        put_keys(&story, "age", &recorded.keys).await?;
        files.extend(recorded.files);
    }
    let pgp = recorded("res-secret-pgp", "pgp")?;
    put_keys(&story, "pgp", &pgp.keys).await?;
    files.extend(pgp.files);
    let _upstream = story.follow("app", &borrowed(&files)).await?;
    for (path, secret) in [("secret", "age"), ("env", "age"), ("patch", "age")] {
        story.kustomization(path, "app", decryption(path, secret)).await?;
        story.await_ready(&StoryObject::kustomization(path)).await?;
    }
    let db = StoryObject::new("v1", "Secret", "db");
    ensure!(entry(&story, "db", "user").await? == "admin", "age");
    ensure!(entry(&story, "db", "k").await? == "v1", "age");
    // The suffix of the name is derived from the decrypted content.
    ensure!(entry(&story, "s-m4kt5fh6g4", "B").await? == "two", "env");
    let patched = story.expect(&StoryObject::config_map("c")).await?;
    ensure!(patched.data["data"]["a"] == "patched", "patch");

    // The same Secret, encrypted for OpenPGP, has the same result.
    story.delete(&StoryObject::kustomization("secret")).await?;
    story.await_gone(&db, DEFAULT_WAIT_TIMEOUT).await?;
    story.kustomization("pgp", "app", decryption("pgp", "pgp")).await?;
    story.await_ready(&StoryObject::kustomization("pgp")).await?;
    ensure!(entry(&story, "db", "pass").await? == "123", "OpenPGP");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_missing_or_wrong_are_named_and_right_ones_heal_at_once() -> Result<()> {
    let story = Story::with_windlass("decryption-keys").await?;
    let right = recorded("build-resource-secret", "app")?;
    let wrong = recorded("build-resource-wrongkey", "app")?;
    let _upstream = story.follow("app", &borrowed(&right.files)).await?;
    let target = StoryObject::kustomization("app");

    // Without keys, nothing is applied, whether encrypted or not.
    story.kustomization("app", "app", json!({"path": "app"})).await?;
    let text = story.await_failure(&target, "BuildFailed").await?;
    ensure!(text.contains("set spec.decryption"), "{text}");
    story.kustomization("app", "app", decryption("app", "sops-keys")).await?;
    let text = await_build_failure(&story, "cannot get sops decryption Secret").await?;
    ensure!(text.contains(&format!("'{}/sops-keys': not found", story.namespace)), "{text}");
    put_keys(&story, "sops-keys", &[("id.agekey".to_owned(), "none".to_owned())]).await?;
    let text = await_build_failure(&story, "failed to import 'id.agekey'").await?;
    ensure!(!text.contains("none'"), "{text}");
    put_keys(&story, "sops-keys", &wrong.keys).await?;
    let text = await_build_failure(&story, "cannot get sops data key").await?;
    ensure!(text.starts_with("decryption failed for 'Secret.v1.[noGrp]/db'"), "{text}");
    let db = StoryObject::new("v1", "Secret", "db");
    ensure!(story.read(&db).await?.is_none(), "a Secret was applied that is still encrypted");

    put_keys(&story, "sops-keys", &right.keys).await?;
    story.await_ready(&target).await?;
    ensure!(entry(&story, "db", "user").await? == "admin", "not decrypted");
    let status = story.expect(&target).await?.data["status"].to_string();
    let events = story.events("Kustomization", "app").await?.join("\n");
    for text in [status, events, story.windlass().await?.operator.log()?] {
        ensure!(!text.contains(KEY) && !text.contains("AGE-SECRET-KEY"), "a key is shown: {text}");
    }
    story.end().await
}

async fn await_build_failure(story: &Story, part: &str) -> Result<String> {
    await_message(story, &StoryObject::kustomization("app"), part).await
}

/// Waits until an object is not Ready for a reason that contains a text. Returns the whole message.
pub(crate) async fn await_message(
    story: &Story,
    target: &StoryObject,
    part: &str,
) -> Result<String> {
    let message_with_part = async || {
        let object = story.expect(target).await?;
        let ready = condition(&object, "Ready");
        let text = ready["message"].as_str().unwrap_or_default().to_owned();
        Ok((ready["status"] == "False" && text.contains(part)).then_some(text))
    };
    story.await_until(part, DEFAULT_WAIT_TIMEOUT, message_with_part).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mac_counts_where_it_is_required() -> Result<()> {
    let story = Story::with_windlass("decryption-mac").await?;
    let DecryptionCase { mut files, keys } = recorded("build-resource-secret", "app")?;
    put_keys(&story, "sops-keys", &keys).await?;
    let upstream = story.follow("app", &borrowed(&files)).await?;
    story.kustomization("app", "app", decryption("app", "sops-keys")).await?;
    let target = StoryObject::kustomization("app");
    let mac = |says: &str| json!({"metadata": {"annotations": {"windlass.dev/sops-mac": says}}});
    story.merge(&target, mac("Require")).await?;
    story.await_ready(&target).await?;

    // An edit without sops is accepted as in Flux, unless the spec requires the MAC.
    for (path, text) in &mut files {
        if path.ends_with("s.yaml") {
            *text = text.replace("type: Opaque", "type: example.com/forged");
        }
    }
    upstream.push(&borrowed(&files)).await?;
    let message = await_build_failure(&story, "failed to verify sops data integrity").await?;
    ensure!(message.starts_with("app/s.yaml: "), "{message}");
    let db = StoryObject::new("v1", "Secret", "db");
    ensure!(story.expect(&db).await?.data["type"] == "Opaque", "the forged file was applied");
    story.merge(&target, mac("Sometimes")).await?;
    await_build_failure(&story, "set it to Require or Ignore").await?;
    story.end().await
}

/// The Go module whose tests contain encrypted files of every kind, and their folder.
const OF_FLUX: &str = "github.com/fluxcd/kustomize-controller@v1.9.5";
const CASES: &str = "internal/controller/testdata/sops";

/// All files below a folder of Flux's tests, with their relative paths.
fn files_of_flux(folder: &str) -> Result<Vec<(String, String)>> {
    let top = testbed::binaries::module(OF_FLUX)?.join(CASES).join(folder);
    let mut files = Vec::new();
    let mut open = vec![top.clone()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(&top)?.display().to_string();
                files.push((name, std::fs::read_to_string(&path)?));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Checks the same files as kustomize-controller's own test. The file for Vault is not encrypted there until a server encrypts
/// it (`clouds.rs`).
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "reads the sources of kustomize-controller: cargo xtask test --thorough"
)]
async fn what_the_tests_of_flux_encrypted_is_plain_in_the_cluster() -> Result<()> {
    let story = Story::with_windlass("decryption-flux").await?;
    let keys = |name: &str, files: &[&str]| -> Result<Vec<(String, String)>> {
        let all = files_of_flux("keys")?;
        let found = all.into_iter().filter(|(file, _)| files.contains(&file.as_str()));
        let keys =
            found.map(|(file, key)| (file.replace(".txt", ".agekey"), key)).collect::<Vec<_>>();
        ensure!(keys.len() == files.len(), "{name} lacks keys");
        Ok(keys)
    };
    put_keys(&story, "sops", &keys("sops", &["age.txt", "age-pq.txt", "pgp.asc"])?).await?;
    put_keys(&story, "global", &keys("global", &["age-global.txt"])?).await?;

    // One base is on another server.
    let web = FileWebServer::start().await?;
    let base = "apiVersion: v1\nkind: Namespace\nmetadata: {name: base}\n";
    let base = web.put("/namespace.yaml", base);
    let mut files = files_of_flux("")?;
    for (path, text) in &mut files {
        if path == "remote/kustomization.yaml" {
            let lines = text.lines().map(|line| match line.split_once("- https://") {
                Some((before, _)) => format!("{before}- {base}\n"),
                None => format!("{line}\n"),
            });
            *text = lines.collect();
        }
    }
    let _upstream = story.follow("app", &borrowed(&files)).await?;
    let own = json!({"targetNamespace": story.namespace});
    let with = |mut spec: Value| {
        spec["targetNamespace"] = own["targetNamespace"].clone();
        spec
    };
    story.kustomization("all", "app", with(decryption("./", "sops"))).await?;
    story.await_ready(&StoryObject::kustomization("all")).await?;
    for name in [
        "algo-age",
        "algo-age-pq",
        "algo-pgp",
        "algo-vault",
        "component",
        "envs-secret",
        "files-secret",
        "inside-secret",
        "remote-secret",
    ] {
        ensure!(entry(&story, &format!("sops-{name}"), "key").await? == "value", "{name}");
    }
    for name in ["envs-configmap", "files-configmap", "remote-configmap"] {
        let map = story.expect(&StoryObject::config_map(&format!("sops-{name}"))).await?;
        ensure!(map.data["data"]["key"] == "value", "{name}");
    }
    ensure!(entry(&story, "sops-patches-secret", "key").await? == "merge1");
    ensure!(entry(&story, "sops-patches-secret", "merge2").await? == "merge2");

    story.kustomization("global", "app", with(decryption("./global", "global"))).await?;
    story.await_ready(&StoryObject::kustomization("global")).await?;
    ensure!(entry(&story, "global-age-secret", "key").await? == "global-value");
    story.end().await
}
