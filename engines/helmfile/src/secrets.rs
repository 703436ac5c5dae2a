//! Decrypts files that SOPS encrypted: the `secrets` of environments and releases, and files in references.
//!
//! Here: the formats of such files, and keeping the decrypted content for the rest of a plan. Elsewhere: keys and services (the
//! caller, by [`SopsFileDecryptor`]), references in values (`secret_references.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::Value;
use sops::SopsFormat;
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::hcl;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::helmfile_paths::HelmfilePaths;
use crate::load::Helmfile;
use crate::secret_references;
use crate::spec::Release;
use crate::state_values_merge::{ValuesMap, overlay};
use crate::template::TemplateStringRenderer;
use crate::working_directory::{WorkingDirectory, parent};
use crate::yaml;

/// Decrypts files with the keys of the caller.
pub trait SopsFileDecryptor: Send + Sync {
    /// Decrypts a file. The result has the same format as the file.
    ///
    /// # Errors
    /// Why the file cannot be decrypted and how to proceed. The error contains no secret.
    fn decrypt(&self, data: &[u8], format: SopsFormat) -> Result<Zeroizing<Vec<u8>>, String>;
}

/// The plain content of a file.
pub(crate) struct DecryptedFileContent {
    text: Zeroizing<Vec<u8>>,
    /// The content as a map, which is read only once; `None` if it is not a map.
    map: OnceLock<Option<ValuesMap>>,
}

impl DecryptedFileContent {
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The content as a map. Its memory is counted when it is created.
    pub(crate) fn map(&self, count: &mut dyn FnMut(usize) -> Result<()>) -> Result<&ValuesMap> {
        if self.map.get().is_none() {
            let map = yaml::read_map(&self.text).ok();
            count(map.iter().map(weight).sum())?;
            drop(self.map.set(map));
        }
        // The parser's error is dropped, because it may quote the content.
        let map = self.map.get().and_then(Option::as_ref);
        map.ok_or_else(|| "its plain content is not a map in YAML".into())
    }
}

fn weight(map: &ValuesMap) -> usize {
    map.iter().map(|(key, value)| key.len() + kustomize::weight_of_value(value)).sum()
}

/// The decryptor, and the content decrypted so far. Each file is decrypted once for a plan.
#[derive(Default)]
pub(crate) struct SopsDecryptionCache {
    pub(crate) decrypt: Option<Arc<dyn SopsFileDecryptor>>,
    known: Mutex<BTreeMap<String, Arc<DecryptedFileContent>>>,
}

impl SopsDecryptionCache {
    /// Whether any secret was decrypted, so that errors may contain secrets.
    pub(crate) fn is_used(&self) -> bool {
        !self.known.lock().is_empty()
    }

    /// The plain content of data, which have a name of their own. Its bytes are counted first.
    pub(crate) fn plain(
        &self,
        name: String,
        data: &[u8],
        format: SopsFormat,
        count: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Arc<DecryptedFileContent>> {
        let known = || self.known.lock();
        // The same file in another format gives another content.
        let name = format!("{format} {name}");
        if let Some(plain) = known().get(&name) {
            return Ok(Arc::clone(plain));
        }
        let Some(decrypt) = &self.decrypt else {
            return Err("it is encrypted, and this command decrypts nothing".into());
        };
        count(data.len())?;
        let text = decrypt.decrypt(data, format)?;
        count(text.len())?;
        let plain = Arc::new(DecryptedFileContent { text, map: OnceLock::new() });
        known().insert(name, Arc::clone(&plain));
        Ok(plain)
    }
}

/// The format of a file for helm-secrets, derived from its content instead of its name; `None` if it is not encrypted.
///
/// Parity(helm-secrets 4.7): dotenv and INI are taken for JSON, and refused.
fn format(data: &[u8]) -> Option<SopsFormat> {
    let text = String::from_utf8_lossy(data);
    let is_mac =
        |line: &str| line.split_once("mac").is_some_and(|(_, rest)| rest.contains(",type:str]"));
    if !text.lines().any(is_mac) {
        return None;
    }
    let is_yaml =
        |line: &str| line.strip_prefix("sops:").is_some_and(|rest| rest.trim().is_empty());
    Some(match text.lines().any(is_yaml) {
        true => SopsFormat::Yaml,
        false if text.contains("\"data\": \"ENC") => SopsFormat::Binary,
        false => SopsFormat::Json,
    })
}

/// The plain content of data that have to be encrypted.
fn decrypted(
    helmfile_environment: &HelmfileHostEnvironment,
    name: String,
    data: &[u8],
) -> Result<Arc<DecryptedFileContent>> {
    // The search is counted for each release that uses the file.
    helmfile_environment.count(data.len())?;
    let format = format(data).ok_or_else(|| {
        Error::from("it is not encrypted: encrypt it with sops, or list it under `values`")
    })?;
    helmfile_environment
        .secrets
        .plain(name, data, format, &mut |bytes| helmfile_environment.count(bytes))
}

fn decrypted_file(
    helmfile_environment: &HelmfileHostEnvironment,
    place: &WorkingDirectory,
    path: &str,
) -> Result<Arc<DecryptedFileContent>> {
    decrypted(helmfile_environment, place.absolute_of(path)?, &place.read(path)?)
}

/// The decrypted secrets of an environment: HCL, which is evaluated together with the HCL values, and a map that overrides
/// both.
#[derive(Default)]
pub(crate) struct EnvironmentSecrets {
    pub(crate) modules: hcl::HclFiles,
    pub(crate) map: ValuesMap,
}

/// Decrypts files of an environment, in order. They are not rendered as templates, even if their names end in
/// `.gotmpl`.
pub(crate) fn of_environment(
    helmfile_environment: &HelmfileHostEnvironment,
    place: &WorkingDirectory,
    storage: &HelmfilePaths<'_>,
    handler: Option<&str>,
    entries: &[String],
) -> Result<EnvironmentSecrets> {
    let mut found = EnvironmentSecrets::default();
    for entry in entries {
        for path in storage.resolve(handler, "environment values", entry)? {
            let failed = |error: Error| {
                error.at(&format!("failed to load environment secrets file \"{path}\""))
            };
            let plain = decrypted_file(helmfile_environment, place, &path).map_err(failed)?;
            if path.ends_with(".hcl") {
                let added = found.modules.add(&path, plain.text());
                added.map_err(|_| failed("its plain content is not HCL".into()))?;
            } else {
                let map =
                    plain.map(&mut |bytes| helmfile_environment.count(bytes)).map_err(failed)?;
                helmfile_environment.count(weight(map))?;
                overlay(&mut found.map, map);
            }
        }
    }
    Ok(found)
}

impl Helmfile {
    /// The content of the values files from `secrets` of a release. They come after those of `values`.
    pub(crate) fn release_secrets(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
    ) -> Result<Vec<Vec<u8>>> {
        let mut strings = Vec::new();
        for (index, entry) in release.secrets.iter().enumerate() {
            let text = match entry {
                Value::String(path) => {
                    let path = format!("{}{path}", release.values_path_prefix);
                    self.release_secret(helmfile_environment, release, &path)
                        .map_err(|error| error.at(&format!("failed to decrypt \"{path}\"")))?
                }
                // An encrypted file that is written out in the helmfile.
                _ => {
                    let data = yaml::write_plain(entry)?;
                    let plain =
                        decrypted(helmfile_environment, format!("inline:{data}"), data.as_bytes());
                    let plain = plain.map_err(|error| {
                        error.at(&format!("failed to decrypt secrets[{index}]"))
                    })?;
                    helmfile_environment.count(plain.text().len())?;
                    Some(plain.text().to_vec())
                }
            };
            strings.extend(text);
        }
        Ok(strings)
    }

    fn release_secret(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        path: &str,
    ) -> Result<Option<Vec<u8>>> {
        // Parity(helmfile 1.8): the handler of the helmfile has no effect here.
        let handler = release.missing_file_handler.as_deref();
        let files = self.storage().resolve(handler, "secrets", path)?;
        let file = match files.as_slice() {
            [] => return Ok(None),
            [file] => file,
            _ => return Err("patterns are not supported here: list each file".into()),
        };
        let plain = decrypted_file(helmfile_environment, &self.place, file)?;
        helmfile_environment.count(plain.text().len())?;
        // Parity(helmfile 1.8): the plain content is a values file: a template by its name, and references count.
        let text = if file.rsplit('.').next() == Some("gotmpl") {
            let data = self.release_data(release, &self.values);
            let rendered =
                TemplateStringRenderer::new(helmfile_environment, &self.place, &parent(file), data)
                    .render(plain.text());
            let rendered = rendered.map_err(|_| {
                "its plain content is a template that fails; the reason is not shown, because it may quote it"
            })?;
            yaml::read_map(&rendered).map_err(|_| "its plain content renders no map in YAML")?;
            rendered
        } else {
            // A later parser would quote the invalid line, which is plain text.
            plain.map(&mut |bytes| helmfile_environment.count(bytes))?;
            plain.text().to_vec()
        };
        secret_references::expand_file(helmfile_environment, &self.place, text).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_from_the_content_and_a_plain_file_has_none() {
        let mac = "    mac: ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]\n";
        let yaml = format!("a: ENC[x,type:str]\nsops: \n{mac}");
        assert_eq!(format(yaml.as_bytes()), Some(SopsFormat::Yaml));
        let json = "{\"a\": 1, \"sops\": {\"mac\": \"ENC[x,type:str]\"}}";
        assert_eq!(format(json.as_bytes()), Some(SopsFormat::Json));
        let binary = "{\"data\": \"ENC[x]\", \"sops\": {\"mac\": \"ENC[x,type:str]\"}}";
        assert_eq!(format(binary.as_bytes()), Some(SopsFormat::Binary));
        for plain in ["a: b\n", "password: ENC[AES256_GCM,data:x,type:str]\n", "mac: a\n"] {
            assert_eq!(format(plain.as_bytes()), None, "{plain}");
        }
    }
}
