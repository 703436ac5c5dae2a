//! A cache of indexes and archives that is kept after a command, such as in a folder of the user.
//!
//! If the repository names the digest of an archive, the cached archive is compared with the digest at each use. For other
//! archives and for indexes, windlass asks the repository whether the file has changed. Each key has the whole URL of its
//! repository, so that files of different repositories are not confused. Callers do not cache files that were fetched with
//! credentials.
//!
//! Elsewhere: asking repositories ([`super::repository`]) and registries ([`crate::oci`]), the folder (the program).

use std::io::Read as _;

use sha2::{Digest as _, Sha256};

use super::index::ChartVersion;
use super::repository::Error;
use super::{
    ChartFetchResult, ChartIndexFetchResult, ChartRepository, HttpEtagAndLastModified, MAX_INDEX,
};
use crate::oci::{self, RegistrySession, RegistrySessionCache, RemoteOciRepository};

/// Stores downloaded files under keys.
pub trait DownloadCache: Send + Sync {
    /// Reads the file under a key. `None` if there is none, or it is damaged.
    fn download(&self, key: &DownloadCacheKey) -> Option<CachedDownload>;

    /// Stores a download, in place of the former one. A failure to store it is not an error.
    fn keep(&self, key: &DownloadCacheKey, download: &CachedDownload);
}

/// The name of something that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadCacheKey(String);

impl DownloadCacheKey {
    /// The key of these parts. Equal keys mean equal parts.
    pub fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        Self(hex::encode(hash.finalize()))
    }

    /// 64 hexadecimal digits, which can be the name of a file.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// A file that was fetched, and how to ask whether it has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CachedDownload {
    /// All bytes of the file.
    pub bytes: Vec<u8>,
    /// The validators for asking whether the file has changed. There are none for a file that is found by its digest.
    pub validators: HttpEtagAndLastModified,
}

/// The text of a repository's present index. It is the cached text if the repository reports that the index is unchanged.
///
/// # Errors
/// As [`ChartRepository::index`].
pub async fn index_text(
    repository: &ChartRepository,
    downloads: &dyn DownloadCache,
) -> Result<Vec<u8>, Error> {
    let url = repository.url();
    let key = DownloadCacheKey::of(&["index", &url]);
    let kept = downloads.download(&key).filter(|kept| kept.validators.etag.is_some());
    let since = kept.as_ref().map(|kept| kept.validators.clone());
    let ChartIndexFetchResult::Index { file, validators, .. } =
        repository.index(since.as_ref()).await?
    else {
        return kept.map(|kept| kept.bytes).ok_or_else(|| unexpectedly_unchanged(&url));
    };
    let mut bytes = Vec::new();
    let disk = |error: std::io::Error| Error::Disk { url: url.clone(), why: error.to_string() };
    file.take(MAX_INDEX).read_to_end(&mut bytes).map_err(disk)?;
    let download = CachedDownload { bytes, validators };
    if download.validators.etag.is_some() {
        downloads.keep(&key, &download);
    }
    Ok(download.bytes)
}

/// The archive of a version in an index. The cached archive is used if it has the digest in the index. If the index has no
/// digest, the server has to report that the archive is unchanged.
///
/// # Errors
/// As [`ChartRepository::chart`].
pub async fn archive(
    repository: &ChartRepository,
    chosen: ChartVersion<'_>,
    downloads: &dyn DownloadCache,
) -> Result<Vec<u8>, Error> {
    let url = repository.url();
    let reference = chosen.url.unwrap_or_default();
    let mut parts = vec!["archive", url.as_str(), chosen.name, chosen.version, reference];
    let Some(digest) = chosen.digest else {
        let key = DownloadCacheKey::of(&parts);
        let kept = downloads.download(&key).filter(|kept| kept.validators.etag.is_some());
        let since = kept.as_ref().map(|kept| kept.validators.clone()).unwrap_or_default();
        return match repository.chart_since(reference, &since).await? {
            ChartFetchResult::Unchanged => {
                kept.map(|kept| kept.bytes).ok_or_else(|| unexpectedly_unchanged(&url))
            }
            ChartFetchResult::Archive { bytes, validators } => {
                let download = CachedDownload { bytes, validators };
                if download.validators.etag.is_some() {
                    downloads.keep(&key, &download);
                }
                Ok(download.bytes)
            }
        };
    };
    parts.push(digest);
    let key = DownloadCacheKey::of(&parts);
    if let Some(kept) = kept_with_digest(downloads, &key, digest) {
        return Ok(kept);
    }
    let bytes = repository.chart(reference, Some(digest)).await?;
    Ok(kept_bytes(downloads, &key, bytes))
}

/// The archive of a chart version in a registry. The cached archive is used if it has the digest in the manifest.
///
/// # Errors
/// The registry does not send the manifest or the layer.
pub async fn registry_archive(
    remote: &RemoteOciRepository,
    known: &RegistrySessionCache,
    version: &str,
    downloads: &dyn DownloadCache,
) -> Result<Vec<u8>, oci::Error> {
    let session = RegistrySession::new(remote, known)?;
    let manifest = oci::chart::resolve(&session, version).await?;
    let manifest = session.manifest(&manifest).await?;
    let layer = oci::chart::layer_of(&manifest)?;
    let repository = remote.repository.to_string();
    let digest = layer.digest.to_string();
    let key = DownloadCacheKey::of(&["layer", &repository, &digest]);
    if let Some(kept) = kept_with_digest(downloads, &key, &digest) {
        return Ok(kept);
    }
    let mut fetched = session.layer(layer).await?;
    let mut bytes = Vec::new();
    let disk = |error: std::io::Error| oci::Error::Disk {
        what: repository.clone(),
        why: error.to_string(),
    };
    fetched.file.read_to_end(&mut bytes).map_err(disk)?;
    Ok(kept_bytes(downloads, &key, bytes))
}

/// The stored file under a key. `None` if it is not stored or does not have the digest: SHA-256 in hexadecimal digits,
/// with or without `sha256:`.
fn kept_with_digest(
    downloads: &dyn DownloadCache,
    key: &DownloadCacheKey,
    digest: &str,
) -> Option<Vec<u8>> {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    let kept = downloads.download(key)?.bytes;
    hex::encode(Sha256::digest(&kept)).eq_ignore_ascii_case(digits).then_some(kept)
}

/// Stores a file that is found by its digest.
fn kept_bytes(downloads: &dyn DownloadCache, key: &DownloadCacheKey, bytes: Vec<u8>) -> Vec<u8> {
    let download = CachedDownload { bytes, ..CachedDownload::default() };
    downloads.keep(key, &download);
    download.bytes
}

fn unexpectedly_unchanged(url: &str) -> Error {
    let why = "the server answers that it is unchanged, and nothing was fetched before".to_owned();
    Error::NoAnswer { url: url.to_owned(), why }
}
