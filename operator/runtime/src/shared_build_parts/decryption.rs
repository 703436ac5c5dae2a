//! SOPS decryption in builds, with the keys that a spec names. Files are decrypted before the build, and objects after it.
//!
//! Source: kustomize-controller 1.9. Elsewhere: formats, keys and the check for encryption (`sops`), requests to key services
//! (`key_services.rs`), and which parts of a helmfile are decrypted (its kind).

use std::collections::{BTreeMap, BTreeSet};

use crds::kustomize::Kustomization;
use golang::work_meter::StopSignal;
use kube_core::ResourceExt as _;
use objects::Object;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sops::{
    DataKeyServices, DecryptedFiles, DecryptionKeys, DecryptionOutcome, MacPolicy, SopsDecryptor,
    SopsFormat,
};
use tree::{FileTree, RelPath, TreeAccessKind, TreeAccessTrace};

use super::key_services::{KeyServiceAccess, KeyServiceSession};
use crate::time_limit::TimeLimit;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_serve::settings::OperatorSettings;

/// An annotation of a Kustomization or Helmfile. With the value `Require`, every decrypted file must have a correct MAC.
///
/// A build changes objects before it decrypts them, so the MAC of an object is no longer correct. With `Require`, only files
/// may be encrypted.
pub const MAC: &str = "windlass.dev/sops-mac";

/// An annotation of an object that is applied as it is, even if it is encrypted.
const SWITCH: &str = "kustomize.toolkit.fluxcd.io/decrypt";

/// The prefix of encrypted values.
const ENCRYPTED: &str = "ENC[";

/// The decryption keys and the MAC policy of a build.
pub struct BuildDecryptionKeys {
    keys: DecryptionKeys,
    mac: MacPolicy,
    /// The digest of the keys and the MAC policy. Builds with different digests may have different results.
    pub digest: String,
}

fn failed(text: String) -> RunOutcome {
    RunOutcome::Failed(condition_reason::BUILD_FAILED, text, NextRunTrigger::default())
}

impl BuildDecryptionKeys {
    /// Reads the decryption keys that a Kustomization names. `None` if its spec has no `decryption`.
    ///
    /// # Errors
    /// The outcome of a run for which keys are missing.
    pub async fn read(
        settings: &OperatorSettings,
        object: &Kustomization,
        references: &mut RunReferenceReads,
    ) -> Result<Option<Self>, RunOutcome> {
        let Some(spec) = &object.spec.decryption else { return Ok(None) };
        let mac = mac_policy(object.annotations(), MacPolicy::Ignore)
            .map_err(|text| RunOutcome::Stalled(condition_reason::BUILD_FAILED, text))?;
        let own = object.namespace().unwrap_or_default();
        let read = Self::with_keys(settings, spec, &own, mac, references).await;
        read.map(Some).map_err(failed)
    }

    /// Reads the decryption keys that a spec in a namespace names.
    ///
    /// # Errors
    /// The Secret is missing or has no usable keys.
    pub async fn with_keys(
        settings: &OperatorSettings,
        spec: &crds::kustomize::Decryption,
        own: &str,
        mac: MacPolicy,
        references: &mut RunReferenceReads,
    ) -> Result<Self, String> {
        let global = &settings.sops_age_secret;
        let (namespace, name, is_global) = match (&spec.secret_ref, global) {
            (Some(reference), _) => (own, reference.name.as_str(), false),
            (None, Some(name)) => (settings.runtime_namespace.as_str(), name.as_str(), true),
            (None, None) => return Ok(Self::without_keys(mac)),
        };
        let secret = format!("{namespace}/{name}");
        let unreadable = |why: &str| format!("cannot get sops decryption Secret '{secret}': {why}");
        let found = references.secret(namespace, name).await;
        let found = found.map_err(|error| unreadable(&error.to_string()))?;
        let Some(data) = found else {
            let advice = match is_global {
                false => "create it, or correct spec.decryption.secretRef",
                true => "--sops-age-secret names it; create it there",
            };
            return Err(unreadable(&format!("not found; {advice}")));
        };
        let mut hash = Sha256::new();
        hash.update(format!("{mac:?}"));
        for (name, value) in &data {
            for part in [name.as_bytes(), value] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
        }
        let digest = hex::encode(hash.finalize());
        // Reading private keys takes computing time, and a Secret may have many of them.
        let import = move || {
            let entries = data.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            match is_global {
                false => DecryptionKeys::import(&secret, entries),
                true => DecryptionKeys::import_age(&secret, entries),
            }
        };
        let imported = tokio::task::spawn_blocking(import).await;
        let keys = imported.map_err(|error| format!("reading keys was interrupted: {error}"))?;
        let keys = keys.map_err(|error| error.to_string())?;
        Ok(Self { keys, mac, digest })
    }

    /// A decryption without own keys. Only key services decrypt the data keys.
    pub fn without_keys(mac: MacPolicy) -> Self {
        let digest = hex::encode(Sha256::digest(format!("{mac:?}")));
        Self { keys: DecryptionKeys::default(), mac, digest }
    }

    /// The session in which a build requests data keys from key services.
    pub fn services<'b>(
        &'b self,
        keys: &'b KeyServiceAccess,
        time: &'b TimeLimit,
    ) -> KeyServiceSession<'b> {
        keys.asked(self.keys.credentials(), time)
    }

    /// The decryptor of files with these keys. It stops when the time of the build is over.
    pub fn decryptor<'b>(
        &'b self,
        services: &'b dyn DataKeyServices,
        stop: &'b StopSignal,
    ) -> SopsDecryptor<'b> {
        SopsDecryptor::new(&self.keys).with_mac(self.mac).with_services(services).with_stop(stop)
    }

    /// The decryption of one build, for the files that it reads and the objects that it generates.
    pub fn with<'b>(
        &'b self,
        services: &'b dyn DataKeyServices,
        stop: &'b StopSignal,
    ) -> BuildDecryption<'b> {
        BuildDecryption { decryptor: self.decryptor(services, stop), mac: self.mac }
    }
}

/// Decrypts the files that a build reads and the objects that it generates.
#[derive(Clone, Copy)]
pub struct BuildDecryption<'k> {
    decryptor: SopsDecryptor<'k>,
    mac: MacPolicy,
}

impl<'k> BuildDecryption<'k> {
    /// Decrypts the encrypted files of a kustomization. Returns the plain content and the secret values in it.
    ///
    /// # Errors
    /// The reason why a file cannot be decrypted, in the words of Flux.
    pub fn files(
        self,
        files: &dyn FileTree,
        folder: &RelPath,
    ) -> Result<(DecryptedFiles, Vec<Vec<u8>>), String> {
        let decrypted = self
            .decryptor
            .decrypt_sources(files, folder)
            .map_err(|error| format!("error decrypting sources: {error}"))?;
        let hidden = decrypted
            .iter()
            .flat_map(|(path, plain)| {
                let encrypted = files.read(path).unwrap_or_default();
                revealed_in_file(SopsFormat::of_name(path.as_str()), &encrypted, plain)
            })
            .collect();
        Ok((decrypted, hidden))
    }

    /// The decryption of the generated objects. First checks the MACs of the files that the build read.
    ///
    /// # Errors
    /// A file must have a correct MAC and does not have one.
    pub fn objects(
        self,
        files: &dyn FileTree,
        trace: &TreeAccessTrace,
    ) -> Result<ObjectDecryptor<'k>, String> {
        let decryptor = self.decryptor;
        if self.mac == MacPolicy::Ignore {
            return Ok(ObjectDecryptor { decryptor, checked: None });
        }
        let mut checked = BTreeSet::new();
        for (path, _, _) in trace.iter().filter(|(_, look, _)| *look == TreeAccessKind::Read) {
            let Ok(data) = files.read(path) else { continue };
            let covered = decryptor.check(&data).map_err(|error| format!("{path}: {error}"))?;
            checked.extend(covered);
        }
        Ok(ObjectDecryptor { decryptor, checked: Some(checked) })
    }
}

/// Decrypts the objects that a build generated.
pub struct ObjectDecryptor<'d> {
    decryptor: SopsDecryptor<'d>,
    /// The encrypted values that a correct MAC of a file covers. `None` if MACs are not required.
    checked: Option<BTreeSet<Vec<u8>>>,
}

impl ObjectDecryptor<'_> {
    /// Decrypts an object. Returns it with the secret values in it.
    ///
    /// # Errors
    /// The reason why the object cannot be decrypted, in the words of Flux.
    pub fn decrypt(&self, object: Object) -> Result<(Object, Vec<Vec<u8>>), String> {
        let subject = described(&object);
        let failed =
            |why: &dyn std::fmt::Display| format!("decryption failed for '{subject}': {why}");
        if let Some(checked) = &self.checked
            && is_still_encrypted(&object)
            && object
                .fields()
                .values()
                .flat_map(strings)
                .any(|text| text.starts_with(ENCRYPTED) && !checked.contains(text.as_bytes()))
        {
            return Err(failed(&format!(
                "it has encrypted values that no MAC of an encrypted file in the artifact covers, as {MAC} demands; \
                 encrypt the file that it comes from with sops"
            )));
        }
        let Value::Object(mut fields) = object.into_value() else {
            return Err(failed(&"it is not a map"));
        };
        let before = Value::Object(fields.clone());
        let change =
            self.decryptor.decrypt_resource(&mut fields).map_err(|error| failed(&error))?;
        let after = Value::Object(fields);
        let hidden = match change {
            DecryptionOutcome::LeftAlone => Vec::new(),
            DecryptionOutcome::Decrypted => revealed(&before, &after),
        };
        Ok((Object::new(after).map_err(|error| failed(&error))?, hidden))
    }
}

/// All strings inside a JSON value.
fn strings(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => found.push(text.as_str()),
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    found
}

/// Whether a correct MAC is required, by the annotation. `default` counts without the annotation.
///
/// # Errors
/// The annotation has an unknown value. That must not weaken the check that its author meant.
pub fn mac_policy(
    annotations: &BTreeMap<String, String>,
    default: MacPolicy,
) -> Result<MacPolicy, String> {
    match annotations.get(MAC).map(String::as_str) {
        None => Ok(default),
        Some("Ignore") => Ok(MacPolicy::Ignore),
        Some("Require") => Ok(MacPolicy::Require),
        Some(other) => {
            Err(format!("annotation {MAC}: `{other}` is unknown; set it to Require or Ignore"))
        }
    }
}

/// `Kind.version.group/name`, as Flux names an object of a build.
pub fn described(object: &Object) -> String {
    let gvk = object.gvk();
    let group = if gvk.group.is_empty() { "[noGrp]" } else { &gvk.group };
    format!("{}.{}.{group}/{}", gvk.kind, gvk.version, object.name())
}

/// Whether an object is still encrypted and must not be applied.
pub fn is_still_encrypted(object: &Object) -> bool {
    let is_encrypted = object.get("sops").is_some_and(|sops| sops.get("mac").is_some());
    let switch = object.annotation(SWITCH);
    is_encrypted && !switch.is_some_and(|says| says.eq_ignore_ascii_case("disabled"))
}

/// The secret values of a decrypted file: the values that were encrypted, or the whole text if it is not a map.
pub fn revealed_in_file(format: SopsFormat, encrypted: &[u8], plain: &[u8]) -> Vec<Vec<u8>> {
    let is_map = matches!(format, SopsFormat::Yaml | SopsFormat::Json);
    // Of several documents, only the first would be read.
    let is_single = memchr::memmem::find(plain, b"\n---").is_none();
    if is_map
        && is_single
        && let (Ok(before), Ok(after)) = (goyaml::to_json(encrypted), goyaml::to_json(plain))
        && before.is_object()
    {
        return revealed(&before, &after);
    }
    vec![plain.to_vec()]
}

/// The plain values that were encrypted before.
fn revealed(before: &Value, after: &Value) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut open = vec![(before, after)];
    while let Some(pair) = open.pop() {
        match pair {
            (Value::Object(before), Value::Object(after)) => {
                let both = before.iter().filter_map(|(key, value)| Some((value, after.get(key)?)));
                open.extend(both);
            }
            (Value::Array(before), Value::Array(after)) => open.extend(before.iter().zip(after)),
            (Value::String(before), after) if before.starts_with(ENCRYPTED) => {
                found.push(match after {
                    Value::String(text) => text.clone().into_bytes(),
                    other => other.to_string().into_bytes(),
                });
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests;
