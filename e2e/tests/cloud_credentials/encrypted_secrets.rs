//! Makes Secrets in the format of SOPS for keys of services, and checks that no output of windlass contains a plain value.
//!
//! The program sops asks a service to encrypt. Here, the test chooses the data key, and the fake service knows its encrypted
//! form.

use std::path::Path;

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, KeyInit as _, Nonce};
use anyhow::{Context as _, Result, anyhow, ensure};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use crds::windlass_release::ReleaseAudit;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject, TestBed, WindlassProcess};
use e2e::servers::kms::{ARN, RESOURCE, ROLE, VAULT_URL, VERSION};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

/// A text that no output may contain.
pub(crate) const CANARY: &str = "c4nary-pl4in-text";

const MODIFIED: &str = "2026-11-23T00:00:00Z";

/// A data key, encrypted with a key of a service.
pub(crate) struct EncryptedDataKey {
    pub(crate) data_key: [u8; 32],
    /// The encrypted form, by which the service knows the data key.
    pub(crate) encrypted: String,
    /// The entry in the metadata of a file.
    metadata: Value,
}

fn data_key(of: &str) -> [u8; 32] {
    let mut key = [7; 32];
    key.iter_mut().zip(of.bytes()).for_each(|(to, byte)| *to = byte);
    key
}

fn sealed(of: &str, entry: impl FnOnce(&str) -> (&'static str, Value)) -> EncryptedDataKey {
    let encrypted = format!("sealed-{of}");
    let (member, mut key) = entry(&encrypted);
    key["created_at"] = json!(MODIFIED);
    EncryptedDataKey { data_key: data_key(of), encrypted, metadata: json!({member: [key]}) }
}

pub(crate) fn of_vault(address: &str, key: &str, of: &str) -> EncryptedDataKey {
    sealed(of, |enc| {
        let address = address.to_owned();
        (
            "hc_vault",
            json!({"vault_address": address, "engine_path": "team/sops", "key_name": key, "enc": enc}),
        )
    })
}

pub(crate) fn of_aws(role: &str, app: &str) -> EncryptedDataKey {
    sealed("aws", |enc| {
        let enc = BASE64_STANDARD.encode(enc);
        let context = json!({"app": app});
        (
            "kms",
            json!({"arn": ARN, "role": role, "context": context, "enc": enc, "aws_profile": ""}),
        )
    })
}

pub(crate) fn of_google(of: &str) -> EncryptedDataKey {
    sealed(of, |enc| {
        ("gcp_kms", json!({"resource_id": RESOURCE, "enc": BASE64_STANDARD.encode(enc)}))
    })
}

pub(crate) fn of_azure() -> EncryptedDataKey {
    sealed("azure", |enc| {
        let enc = BASE64_URL_SAFE_NO_PAD.encode(enc);
        (
            "azure_kv",
            json!({"vault_url": VAULT_URL, "name": "shop", "version": VERSION, "enc": enc}),
        )
    })
}

/// The keys of the clouds, each for users with the right credentials.
pub(crate) fn of_clouds() -> [(&'static str, EncryptedDataKey); 3] {
    [("aws", of_aws(ROLE, "shop")), ("google", of_google("google")), ("azure", of_azure())]
}

impl EncryptedDataKey {
    fn value(&self, plain: &str, path: &str) -> Result<String> {
        let cipher = AesGcm::<Aes256, U32>::new_from_slice(&self.data_key).ok().context("a key")?;
        let nonce = Nonce::<U32>::try_from(&[9; 32][..]).ok().context("a nonce")?;
        let payload = Payload { msg: plain.as_bytes(), aad: path.as_bytes() };
        let sealed = cipher.encrypt(&nonce, payload).ok().context("cannot encrypt")?;
        let (data, tag) = sealed.split_at(sealed.len() - 16);
        let [data, nonce, tag] = [data, &[9; 32], tag].map(|part| BASE64_STANDARD.encode(part));
        Ok(format!("ENC[AES256_GCM,data:{data},iv:{nonce},tag:{tag},type:str]"))
    }

    /// A file with an object in which one field is encrypted.
    pub(crate) fn object(&self, mut object: Value, path: [&str; 2], plain: &str) -> Result<String> {
        let [outer, inner] = path;
        object[outer][inner] = json!(self.value(plain, &format!("{outer}:{inner}:"))?);
        let mut sops = self.metadata.clone();
        sops["lastmodified"] = json!(MODIFIED);
        sops["mac"] = json!(self.value("not compared", MODIFIED)?);
        sops["encrypted_regex"] = json!(format!("^{inner}$"));
        sops["version"] = json!("3.13.2");
        object["sops"] = sops;
        Ok(object.to_string())
    }

    /// A file with an encrypted Secret, whose only entry is `password`.
    pub(crate) fn secret(&self, name: &str) -> Result<String> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        self.object(secret, ["stringData", "password"], CANARY)
    }
}

/// The spec of a Kustomization of a folder.
pub(crate) fn spec(path: &str, secret: Option<&str>) -> Value {
    let mut decryption = json!({"provider": "sops"});
    if let Some(name) = secret {
        decryption["secretRef"] = json!({"name": name});
    }
    json!({"path": path, "retryInterval": "1s", "decryption": decryption})
}

/// Creates or replaces the Secret with the keys.
pub(crate) async fn put_keys(story: &Story, name: &str, entries: &Value) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries});
    story.apply_value(secret).await.map(drop)
}

/// A text of sops with line breaks, as one line.
pub(crate) fn flat(text: &str) -> String {
    let bare = |line: &str| {
        let line = line.trim_start();
        let error = line.strip_prefix("- | ").or_else(|| line.strip_prefix("| "));
        error.unwrap_or(line).to_owned()
    };
    let lines: Vec<String> = text.lines().map(bare).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// Waits until a Kustomization reports a failure.
pub(crate) async fn await_message(story: &Story, name: &str, part: &str) -> Result<String> {
    let target = StoryObject::kustomization(name);
    let failure_message = async || {
        let object = story.expect(&target).await?;
        let ready = condition(&object, "Ready");
        let text = flat(ready["message"].as_str().unwrap_or_default());
        let has_failed = ready["status"] == "False" && text.contains(part);
        if has_failed { Ok(Some(text)) } else { Err(anyhow!("{name} says {text}")) }
    };
    story.await_until(part, DEFAULT_WAIT_TIMEOUT, failure_message).await
}

/// Checks that a Secret in the cluster is decrypted.
pub(crate) async fn ensure_plain(story: &Story, secret: &str) -> Result<()> {
    let found = story.expect(&StoryObject::new("v1", "Secret", secret)).await?;
    let password = found.data["data"]["password"].as_str().unwrap_or_default();
    ensure!(BASE64_STANDARD.decode(password)? == CANARY.as_bytes(), "{secret} is not plain");
    Ok(())
}

/// Checks that none of these texts is in a status, an event, an audit, a metric, the log, the storage or a temporary file.
pub(crate) async fn ensure_silent(
    story: &Story,
    windlass: &WindlassProcess,
    secrets: &[&str],
) -> Result<()> {
    let client = TestBed::shared().await?.client().await?;
    let audits = Api::<ReleaseAudit>::namespaced(client, &story.namespace);
    let audits = serde_json::to_string(&audits.list(&ListParams::default()).await?.items)?;
    let messages = [story.diagnosis().await?, audits, windlass.metrics().await?];
    let mut messages: Vec<(String, String)> =
        messages.into_iter().map(|text| ("messages".to_owned(), text)).collect();
    read_all(windlass.operator.folder(), &mut messages)?;
    ensure!(messages.iter().any(|(place, _)| place.ends_with("log")), "there is no log");
    for (place, text) in messages {
        for secret in secrets {
            for form in [(*secret).to_owned(), BASE64_STANDARD.encode(secret)] {
                ensure!(!text.contains(&form), "{place} has a secret: {form}");
            }
        }
    }
    Ok(())
}

/// Reads all files below a folder.
fn read_all(folder: &Path, into: &mut Vec<(String, String)>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_all(&path, into)?;
        } else if let Ok(bytes) = std::fs::read(&path) {
            // A file may be deleted after it was listed.
            let text = String::from_utf8_lossy(&bytes).into_owned();
            into.push((path.display().to_string(), text));
        }
    }
    Ok(())
}
