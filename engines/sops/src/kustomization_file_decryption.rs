//! Decrypts the files of Secret generators and patches, in a kustomization and in all kustomizations that it includes.
//!
//! Parity(flux 2.9): files of ConfigMap generators, `patchesStrategicMerge` and `patchesJson6902` are not changed. Resources
//! are decrypted after the build, as objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use tree::{FileMetadata, FileTree, RelPath, TreeError};
use zeroize::Zeroizing;

use crate::decryptor::SopsDecryptor;
use crate::error::Error;
use crate::format::SopsFormat;

/// The possible file names of a kustomization, as in kustomize.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Why the files of a kustomization were not decrypted. It displays Flux's message.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptedFilesError {
    /// A file is encrypted and does not decrypt.
    #[error("{1}")]
    Decrypt(RelPath, Error),
    /// A kustomization refers to a file that does not exist.
    #[error("lstat {0}: no such file or directory")]
    Missing(RelPath),
    /// The folder is a file.
    #[error("not a directory")]
    NoFolder(RelPath),
    /// A folder is named where a file is wanted.
    #[error("cannot decrypt irregular file as it has file mode type bits set")]
    Irregular(RelPath),
    /// A file is too large.
    #[error("cannot decrypt file with size ({len} bytes) exceeding limit ({limit})")]
    TooLarge {
        /// The path of the file.
        path: RelPath,
        /// The size of the file.
        len: u64,
        /// The bound.
        limit: usize,
    },
    /// More files than the bound.
    #[error("the kustomization has more than {0} encrypted files")]
    TooMany(usize),
    /// A folder among the resources has no kustomization.
    #[error("no kustomization file found")]
    NoKustomization(RelPath),
    /// A folder has several kustomizations.
    #[error("found multiple kustomization files")]
    Ambiguous(RelPath),
    /// A folder has the name of a kustomization.
    #[error("expected {0} to be a regular file")]
    KustomizationIsFolder(RelPath),
    /// A kustomization cannot be read.
    #[error("failed to unmarshal kustomization file from '{0}': {1}")]
    Unreadable(RelPath, String),
}

/// The decrypted content of files by their path.
pub type DecryptedFiles = BTreeMap<RelPath, Zeroizing<Vec<u8>>>;

/// The files and folders that a kustomization refers to.
#[derive(Default)]
struct KustomizationReferences {
    files: Vec<(String, SopsFormat)>,
    folders: Vec<String>,
}

/// Resolves a path that may lead upwards but never out of the tree. At the root, `..` is ignored. `None` if the result
/// is not a valid path.
fn resolve(folder: &RelPath, text: &str) -> Option<RelPath> {
    let mut parts: Vec<&str> =
        if text.starts_with('/') { Vec::new() } else { folder.components().collect() };
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    RelPath::parse(&parts.join("/")).ok()
}

impl SopsDecryptor<'_> {
    /// Decrypts the files that the kustomization in a folder refers to, and those of all folders that it includes.
    ///
    /// Returns the files that changed.
    ///
    /// # Errors
    /// See [`EncryptedFilesError`].
    pub fn decrypt_sources(
        &self,
        tree: &dyn FileTree,
        folder: &RelPath,
    ) -> Result<DecryptedFiles, EncryptedFilesError> {
        let mut changed = DecryptedFiles::new();
        let mut seen_files = BTreeSet::new();
        let mut seen_folders = BTreeSet::new();
        let mut open = vec![(folder.clone(), true)];
        while let Some((folder, is_root)) = open.pop() {
            if !seen_folders.insert(folder.clone()) {
                continue;
            }
            self.go_on().map_err(|error| EncryptedFilesError::Decrypt(folder.clone(), error))?;
            match tree.entry(&folder) {
                Some(FileMetadata::Dir) => {}
                // A resource may be a file, or an address.
                _ if !is_root => continue,
                Some(FileMetadata::File { .. }) => {
                    return Err(EncryptedFilesError::NoFolder(folder));
                }
                None => return Err(EncryptedFilesError::Missing(folder)),
            }
            let references = references(tree, &folder)?;
            for (text, format) in references.files {
                let Some(path) = resolve(&folder, &text) else {
                    return Err(EncryptedFilesError::Missing(folder));
                };
                if !seen_files.insert(path.clone()) {
                    continue;
                }
                if seen_files.len() > self.limits.files {
                    return Err(EncryptedFilesError::TooMany(self.limits.files));
                }
                if let Some(plain) = self.file(tree, &path, format)? {
                    changed.insert(path, plain);
                }
            }
            let folders = references.folders.iter().rev();
            open.extend(folders.filter_map(|text| Some((resolve(&folder, text)?, false))));
        }
        Ok(changed)
    }

    /// Decrypts a file; `None` if it does not look encrypted.
    fn file(
        &self,
        tree: &dyn FileTree,
        path: &RelPath,
        format: SopsFormat,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, EncryptedFilesError> {
        self.go_on().map_err(|error| EncryptedFilesError::Decrypt(path.clone(), error))?;
        let limit = self.limits.bytes;
        match tree.entry(path) {
            None => return Err(EncryptedFilesError::Missing(path.clone())),
            Some(FileMetadata::Dir) => return Err(EncryptedFilesError::Irregular(path.clone())),
            Some(FileMetadata::File { len, .. })
                if usize::try_from(len).is_ok_and(|len| len <= limit) => {}
            Some(FileMetadata::File { len, .. }) => {
                return Err(EncryptedFilesError::TooLarge { path: path.clone(), len, limit });
            }
        }
        let data = read(tree, path)?;
        if !format.is_marked(&data) {
            return Ok(None);
        }
        let plain = self.decrypt(&data, format, format);
        plain.map(Some).map_err(|error| EncryptedFilesError::Decrypt(path.clone(), error))
    }
}

fn read(tree: &dyn FileTree, path: &RelPath) -> Result<std::sync::Arc<[u8]>, EncryptedFilesError> {
    tree.read(path).map_err(|error| match error {
        TreeError::NotFound(path) | TreeError::NotDirectory(path) => {
            EncryptedFilesError::Missing(path)
        }
        TreeError::IsDirectory(path) => EncryptedFilesError::Irregular(path),
    })
}

/// Reads the kustomization of a folder.
fn references(
    tree: &dyn FileTree,
    folder: &RelPath,
) -> Result<KustomizationReferences, EncryptedFilesError> {
    let mut found = None;
    for name in NAMES {
        let Ok(path) = folder.join(name) else { continue };
        match tree.entry(&path) {
            None => {}
            Some(FileMetadata::Dir) => {
                return Err(EncryptedFilesError::KustomizationIsFolder(path));
            }
            Some(FileMetadata::File { .. }) if found.is_some() => {
                return Err(EncryptedFilesError::Ambiguous(folder.clone()));
            }
            Some(FileMetadata::File { .. }) => found = Some(path),
        }
    }
    let path = found.ok_or_else(|| EncryptedFilesError::NoKustomization(folder.clone()))?;
    let unreadable = |problem: String| EncryptedFilesError::Unreadable(path.clone(), problem);
    let data = read(tree, &path)?;
    let kustomization = goyaml::to_json(&data)
        .map_err(|error| unreadable(format!("error converting YAML to JSON: {error}")))?;
    let members = match &kustomization {
        Value::Null => return Ok(KustomizationReferences::default()),
        Value::Object(members) => members,
        _ => return Err(unreadable("it is not a map".to_owned())),
    };
    of_members(members).map_err(|name| unreadable(format!("`{name}` has the wrong type")))
}

/// The member with exactly this name, or else one whose name differs in case, as in Go. `None` if there is neither.
fn member<'m>(members: &'m Map<String, Value>, name: &str) -> Option<&'m Value> {
    let similar =
        || members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    members.get(name).or_else(similar)
}

fn list<'m>(
    members: &'m Map<String, Value>,
    name: &'static str,
) -> Result<&'m [Value], &'static str> {
    match member(members, name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(name),
    }
}

fn strings<'m>(
    members: &'m Map<String, Value>,
    name: &'static str,
) -> Result<Vec<&'m str>, &'static str> {
    let text = |item: &'m Value| match item {
        Value::String(text) => Ok(text.as_str()),
        Value::Null => Ok(""),
        _ => Err(name),
    };
    list(members, name)?.iter().map(text).collect()
}

fn maps<'m>(
    members: &'m Map<String, Value>,
    name: &'static str,
) -> Result<Vec<&'m Map<String, Value>>, &'static str> {
    let items = list(members, name)?.iter().filter(|item| !item.is_null());
    items.map(|item| item.as_object().ok_or(name)).collect()
}

fn of_members(members: &Map<String, Value>) -> Result<KustomizationReferences, &'static str> {
    let mut references = KustomizationReferences::default();
    for generator in maps(members, "secretGenerator")? {
        for file in strings(generator, "files")? {
            let (key, path) = file.split_once('=').unwrap_or((file, file));
            references.files.push((path.to_owned(), SopsFormat::of_name(key)));
        }
        for file in strings(generator, "envs")? {
            let format = match SopsFormat::of_name(file) {
                SopsFormat::Binary => SopsFormat::Dotenv,
                other => other,
            };
            references.files.push((file.to_owned(), format));
        }
    }
    for patch in maps(members, "patches")? {
        match member(patch, "path") {
            None | Some(Value::Null) => {}
            Some(Value::String(path)) if path.is_empty() || is_address(path) => {}
            Some(Value::String(path)) => {
                references.files.push((path.clone(), SopsFormat::of_name(path)));
            }
            Some(_) => return Err("path"),
        }
    }
    references.folders.extend(strings(members, "resources")?.into_iter().map(str::to_owned));
    references.folders.extend(strings(members, "components")?.into_iter().map(str::to_owned));
    Ok(references)
}

/// Whether a path is an address of a server.
fn is_address(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, rest)| {
        let is_scheme = scheme.starts_with(|char: char| char.is_ascii_alphabetic())
            && scheme.chars().all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char));
        is_scheme && !rest.is_empty() && !rest.starts_with('/')
    })
}
