//! Fetches the files of a go-getter address as a tree, for a service. An address names a folder of a public repository, a file
//! or an archive on a web server, or an object of S3.
//!
//! No program is run, and everything has a limit. Elsewhere: parsing addresses (engine `helmfile`), which servers may be asked
//! ([`EgressRules`](http_client::EgressRules), of [`git::GitServerCache`]), the same for a person's command (the program).

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use artifacts::archive::{ExtractOptions, extract, unzip};
use git::{
    GitCredentials, GitReference, GitRevision, RemoteScheme, RemoteUrl, RequestedCommitContent,
    TreeEntryKind,
};
use http_client::TlsConfig;
use sha2::{Digest as _, Sha256};
use tree::{FileTree as _, MemoryTree, MemoryTreeBuilder, RelPath};

use crate::bucket::{self, BucketCredentialSource, BucketEndpoint, BucketServerSettings};
use crate::chain;
use crate::remote_bases::{web_files, without_credentials};

/// The requested repository, archive or file.
#[derive(Clone, PartialEq, Eq)]
pub enum GoGetterRequest {
    /// A folder of a repository.
    Git {
        /// The repository.
        url: String,
        /// The folder. Empty for the whole repository.
        folder: String,
        /// A branch, tag or commit. Empty for the default branch.
        reference: String,
    },
    /// A file on a web server.
    File {
        /// The URL of the file.
        url: String,
        /// The name of the file in the tree.
        name: String,
    },
    /// An archive on a web server.
    Archive {
        /// The URL of the archive.
        url: String,
        /// The folder in the archive. Empty for the whole archive.
        folder: String,
    },
    /// An object of S3. If its name is that of an archive, it is unpacked.
    Object {
        /// The region. Empty for the region of the environment.
        region: String,
        /// The bucket.
        bucket: String,
        /// The object.
        key: String,
    },
}

/// The text leaves out users, passwords and parameters, which may be secret.
impl fmt::Debug for GoGetterRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Git { .. } => "Git",
            Self::File { .. } => "File",
            Self::Archive { .. } => "Archive",
            Self::Object { .. } => "Object",
        })
    }
}

/// The limits of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoGetterLimits {
    /// The time from the first byte of the request to the last byte of the response.
    pub time: Duration,
    /// Bytes received, and bytes of the tree.
    pub bytes: u64,
}

impl Default for GoGetterLimits {
    /// The default limits: one minute and 64 MiB.
    fn default() -> Self {
        Self { time: Duration::from_secs(60), bytes: 64 << 20 }
    }
}

/// The result of a fetch.
#[derive(Debug, Clone)]
pub struct GoGetterResult {
    /// `main@sha1:…` of a repository, `sha256:…` of the bytes of an archive or a file.
    pub revision: String,
    /// The files.
    pub files: MemoryTree,
}

/// A fetcher of repositories, archives and files. Its calls block and may not be used in a future.
#[derive(Debug, Clone)]
pub struct HelmfileGetter {
    /// The settings for requests to Git servers. [`git::GitServerCache::within`] decides which servers may be asked.
    pub git: git::GitOperationContext,
    /// The clients of object stores.
    pub buckets: Arc<bucket::BucketClientCache>,
    /// The limits of one fetch.
    pub limits: GoGetterLimits,
}

impl HelmfileGetter {
    /// Fetches the files that `wanted` names. `None` if their revision is still `known`.
    ///
    /// For a repository, it first asks for the commit, and then fetches.
    ///
    /// # Errors
    /// The files cannot be fetched. The text is for people, and contains no credentials.
    pub fn get(
        &self,
        wanted: &GoGetterRequest,
        known: Option<&str>,
    ) -> Result<Option<GoGetterResult>, String> {
        match wanted {
            GoGetterRequest::Git { url, folder, reference } => {
                self.folder(url, folder, reference, known)
            }
            GoGetterRequest::File { url, name } => {
                of_bytes(&self.file(url)?, known, |data| one_file(name, data, self.limits))
            }
            GoGetterRequest::Archive { url, folder } => {
                let unpacked = |data: &[u8]| below(&unpack(data, self.limits.bytes)?, folder);
                of_bytes(&self.file(url)?, known, unpacked)
            }
            GoGetterRequest::Object { region, bucket, key } => {
                let data = self.object(region, bucket, key)?;
                let name = key.rsplit('/').next().unwrap_or_default();
                of_bytes(&data, known, |data| match is_archive(name) {
                    true => unpack(data, self.limits.bytes),
                    false => one_file(name, data, self.limits),
                })
            }
        }
    }

    fn folder(
        &self,
        url: &str,
        folder: &str,
        reference: &str,
        known: Option<&str>,
    ) -> Result<Option<GoGetterResult>, String> {
        let remote = self.remote(url)?;
        let ask = |reference: &GitReference| {
            if let Some(known) = known {
                let tip = git::tip(&remote, reference, &self.git)?;
                if GitRevision::new(reference, &tip).to_string() == known {
                    return Ok(None);
                }
            }
            git::checkout(&remote, reference, &RequestedCommitContent::default(), &self.git)
                .map(Some)
        };
        let found = git::named(&remote, reference, ask).map_err(|error| chain(&error))?;
        let Some(found) = found else { return Ok(None) };
        let limits =
            tree::TreeLimits { total_bytes: self.limits.bytes, ..tree::TreeLimits::default() };
        let mut files = MemoryTreeBuilder::new(limits);
        for item in found.items() {
            let TreeEntryKind::File { is_executable } = item.kind else { continue };
            let Some(path) = inside(&item.path, folder) else { continue };
            let data = found.read(item).map_err(|error| chain(&error))?;
            files.file(&path, data, is_executable).map_err(|error| error.to_string())?;
        }
        let files = files.build();
        if files.is_empty() {
            return Err(without_files("repository", folder));
        }
        Ok(Some(GoGetterResult { revision: found.revision.to_string(), files }))
    }

    fn remote(&self, url: &str) -> Result<git::GitRemote, String> {
        let parsed = RemoteUrl::parse(url).ok().filter(|url| url.scheme() != RemoteScheme::Ssh);
        let Some(parsed) = parsed else {
            return Err(
                "only http:// and https:// repositories are fetched for an address; use a \
                        GitRepository for others"
                    .to_owned(),
            );
        };
        if without_credentials(url) != url {
            return Err("addresses are fetched anonymously; remove the credentials, and use a GitRepository for \
                        a private repository"
                .to_owned());
        }
        let GoGetterLimits { time, bytes } = self.limits;
        let limits = git::GitLimits { received: bytes, total: bytes, ..git::GitLimits::default() };
        let credentials = GitCredentials::default();
        let proxy = None;
        Ok(git::GitRemote { url: parsed, credentials, proxy, timeout: time, limits })
    }

    fn file(&self, url: &str) -> Result<Arc<[u8]>, String> {
        if without_credentials(url) != url {
            return Err("addresses are fetched anonymously; remove the credentials".to_owned());
        }
        let known = &self.git.known;
        let egress = known.egress();
        let budgets = known.budgets();
        let client =
            known.client(&TlsConfig::default(), None).map_err(|error| error.to_string())?;
        let limits = web_files::WebFileLimits { time: self.limits.time, bytes: self.limits.bytes };
        self.git.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.git.cancel.cancelled() => Err("fetching was cancelled".to_owned()),
                data = web_files::get(&client, budgets, egress, url, limits) => {
                    data.map_err(|error| error.to_string())
                }
            }
        })
    }

    fn object(&self, region: &str, bucket: &str, key: &str) -> Result<Vec<u8>, String> {
        let server = s3(region)?;
        let limits =
            tree::TreeLimits { file_bytes: self.limits.bytes, ..tree::TreeLimits::default() };
        let prefix = String::new();
        let bucket = bucket.to_owned();
        let timeout = self.limits.time;
        let remote = bucket::RemoteBucket { server, bucket, prefix, timeout, limits };
        self.git.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.git.cancel.cancelled() => Err("fetching was cancelled".to_owned()),
                data = bucket::object(&remote, key, &self.buckets) => {
                    data.map_err(|error| chain(&error))
                }
            }
        })
    }
}

/// The S3 server of a region. Access is anonymous, because the author of a helmfile must not read with windlass's identity.
fn s3(region: &str) -> Result<BucketServerSettings, String> {
    let of_environment = || std::env::var("AWS_REGION").ok().filter(|it| !it.is_empty());
    let region = Some(region.to_owned()).filter(|it| !it.is_empty());
    let region = region.or_else(of_environment).unwrap_or_else(|| "us-east-1".to_owned());
    let endpoint = BucketEndpoint::parse(&format!("s3.{region}.amazonaws.com"), false);
    Ok(BucketServerSettings {
        endpoint: endpoint.map_err(|error| error.to_string())?,
        region: Some(region),
        identity: BucketCredentialSource::Anonymous,
        tls: TlsConfig::default(),
        proxy: None,
    })
}

fn of_bytes(
    data: &[u8],
    known: Option<&str>,
    read: impl FnOnce(&[u8]) -> Result<MemoryTree, String>,
) -> Result<Option<GoGetterResult>, String> {
    let revision = format!("sha256:{}", hex::encode(Sha256::digest(data)));
    if known == Some(revision.as_str()) {
        return Ok(None);
    }
    Ok(Some(GoGetterResult { revision, files: read(data)? }))
}

/// Whether a name is that of an archive.
pub fn is_archive(name: &str) -> bool {
    [".tar.gz", ".tgz", ".zip"].iter().any(|ending| name.ends_with(ending))
}

/// Takes an archive apart, gzip with tar, or zip, whose files and paths may have `most` bytes together.
///
/// # Errors
/// It is not an archive, or exceeds a limit.
pub fn unpack(data: &[u8], most: u64) -> Result<MemoryTree, String> {
    let default = tree::TreeLimits::default();
    let limits = tree::TreeLimits { total_bytes: default.total_bytes.min(most), ..default };
    let options = ExtractOptions { limits, ..ExtractOptions::default() };
    if data.starts_with(&[0x1f, 0x8b]) {
        return extract(data, &options).map_err(|error| error.to_string());
    }
    if !data.starts_with(b"PK") {
        return Err("it is neither a .tar.gz nor a .zip archive".to_owned());
    }
    unzip(Cursor::new(data), &options).map_err(|error| error.to_string())
}

fn one_file(name: &str, data: &[u8], limits: GoGetterLimits) -> Result<MemoryTree, String> {
    let path = RelPath::parse(name).map_err(|error| error.to_string())?;
    let limits = tree::TreeLimits { total_bytes: limits.bytes, ..tree::TreeLimits::default() };
    let mut files = MemoryTreeBuilder::new(limits);
    files.file(&path, data, false).map_err(|error| error.to_string())?;
    Ok(files.build())
}

/// The path within a folder. `None` for a path that is elsewhere.
fn inside(path: &str, folder: &str) -> Option<RelPath> {
    let path = RelPath::parse(path).ok()?;
    let folder = RelPath::parse(folder).ok()?;
    path.strip_prefix(&folder).filter(|path| !path.is_root())
}

/// The error about a repository or an archive without files in a folder.
fn without_files(of: &str, folder: &str) -> String {
    match folder {
        "" => format!("the {of} has no files"),
        folder => format!("the {of} has no directory `{folder}`"),
    }
}

/// A folder of a tree as a tree.
fn below(tree: &MemoryTree, folder: &str) -> Result<MemoryTree, String> {
    let mut files = MemoryTreeBuilder::new(tree::TreeLimits::default());
    for (path, entry) in tree.walk() {
        let tree::FileMetadata::File { executable, .. } = entry else { continue };
        let Some(inside) = inside(path.as_str(), folder) else { continue };
        let data = tree.read(path).map_err(|error| error.to_string())?;
        files.file(&inside, data, executable).map_err(|error| error.to_string())?;
    }
    let files = files.build();
    match files.is_empty() {
        true => Err(without_files("archive", folder)),
        false => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use artifacts::archive::{ArchiveContents, write};

    use super::*;

    #[test]
    fn a_folder_of_a_tree_is_a_tree() {
        let tree = MemoryTree::from_files([("a/b/c.yaml", "1"), ("a/d.yaml", "2"), ("e", "3")]);
        let found = below(&tree.unwrap(), "a").unwrap();
        let paths: Vec<&str> = found.walk().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["b", "b/c.yaml", "d.yaml"]);
        assert!(below(&found, "none").unwrap_err().contains("no directory `none`"));
        assert!(below(&found, "../a").is_err());
        assert_eq!(below(&MemoryTree::default(), "").unwrap_err(), "the archive has no files");
        assert!(unpack(b"text", 100).unwrap_err().contains("neither"));
    }

    #[test]
    fn an_archive_is_taken_apart_within_the_limit_that_is_given() {
        let mut contents = ArchiveContents::new();
        contents.file(RelPath::parse("a/f").unwrap(), false, vec![b'x'; 1_000]).unwrap();
        let read = |_: &RelPath, data: &Vec<u8>| Ok::<_, std::io::Error>(data.clone());
        let archive = write(Vec::new(), &contents, read).unwrap();
        assert_eq!(unpack(&archive, 2_000).unwrap().len(), 2);
        assert!(unpack(&archive, 999).unwrap_err().contains("999 bytes"));
    }

    #[test]
    fn objects_of_s3_are_read_anonymously() {
        for region in ["", "eu-west-1"] {
            assert!(
                matches!(s3(region).unwrap().identity, BucketCredentialSource::Anonymous),
                "{region}"
            );
        }
    }
}
