//! A bundle: one archive in a bucket that contains the files of the artifact.
//!
//! Here: its revision, fetching and unpacking it. Elsewhere: refused entries of an archive ([`artifacts::archive`]).

use std::io::{self, Cursor};
use std::sync::Arc;

use artifacts::archive::{ArchiveContents, ExtractOptions, extract, unzip};
use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use sha2::{Digest as _, Sha256};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath, TreeLimits};

use super::bucket_listing::ListedBucketObject;
use super::fetch::collect;
use super::{BucketClientCache, Error, RemoteBucket};
use crate::chain;

/// The largest bundle, in bytes of the archive.
const MAX_BUNDLE_BYTES: u64 = 64 << 20;

/// The kinds of archives, by the names of their objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BucketArchiveFormat {
    TarGz,
    Zip,
}

fn kind(key: &str) -> Result<BucketArchiveFormat, Error> {
    let name = key.to_ascii_lowercase();
    if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
        Ok(BucketArchiveFormat::TarGz)
    } else if name.ends_with(".zip") {
        Ok(BucketArchiveFormat::Zip)
    } else {
        Err(Error::NoBundle(key.chars().take(256).collect()))
    }
}

/// Checks the name of a bundle.
///
/// # Errors
/// [`Error::NoBundle`].
pub fn check(key: &str) -> Result<(), Error> {
    kind(key).map(drop)
}

/// The files of a bundle.
#[derive(Debug)]
pub struct UnpackedBucketArchive {
    /// Each file with its place in [`UnpackedBucketArchive::load`].
    pub contents: ArchiveContents<RelPath>,
    /// The fetched revision.
    pub revision: String,
    /// The number of files.
    pub count: usize,
    files: MemoryTree,
}

impl UnpackedBucketArchive {
    /// The bytes of a file.
    ///
    /// # Errors
    /// It is not a file of the bundle.
    pub fn load(&self, path: &RelPath) -> io::Result<Arc<[u8]>> {
        self.files.read(path).map_err(io::Error::other)
    }
}

/// The revision of a bundle. It differs from the revision of a bucket that contains only the bundle, since no key has such a
/// name.
fn revision(key: &str, etag: &str) -> String {
    let line = format!("\0bundle {key} {etag}\n");
    format!("sha256:{}", hex::encode(Sha256::digest(line)))
}

/// Asks for the revision of a bundle, with one HEAD request.
///
/// # Errors
/// See [`Error`].
pub async fn ask(
    remote: &RemoteBucket,
    key: &str,
    known: &BucketClientCache,
) -> Result<String, Error> {
    check(key)?;
    let client = remote.client(known)?;
    let ListedBucketObject { etag, size, .. } = remote
        .within(&client, "reading the metadata of the bundle in", client.head(remote, key))
        .await?;
    if size > MAX_BUNDLE_BYTES {
        return Err(super::bucket_listing::too_large(
            format!("bundle '{key}'"),
            size,
            MAX_BUNDLE_BYTES,
        ));
    }
    Ok(revision(key, &etag))
}

/// Fetches a bundle and unpacks it, without the ignored files.
///
/// The patterns come from `spec.ignore` and from a `.sourceignore` at the root of the bundle.
///
/// # Errors
/// See [`Error`].
pub async fn fetch(
    remote: &RemoteBucket,
    key: &str,
    ignore: Option<&str>,
    known: &BucketClientCache,
) -> Result<UnpackedBucketArchive, Error> {
    let kind = kind(key)?;
    let client = remote.client(known)?;
    let work = async {
        let missing = || Error::NoObject { bucket: remote.bucket.clone(), key: key.to_owned() };
        let got = client.get(remote, key, None).await?.ok_or_else(missing)?;
        let body = collect(got.body, &format!("bundle '{key}'"), MAX_BUNDLE_BYTES).await?;
        Ok((got.etag, body))
    };
    let (etag, body) = remote.within(&client, "fetching the bundle from", work).await?;
    let limits = remote.limits;
    let unpacked = tokio::task::spawn_blocking(move || unpack(kind, &body, limits)).await;
    let failed = |why: String| Error::Bundle { key: key.to_owned(), why };
    let files = unpacked
        .map_err(|_broken| failed("unpacking was interrupted".to_owned()))?
        .map_err(failed)?;
    let (contents, count) = contents(&files, ignore)?;
    Ok(UnpackedBucketArchive { contents, revision: revision(key, &etag), count, files })
}

fn contents(
    files: &MemoryTree,
    ignore: Option<&str>,
) -> Result<(ArchiveContents<RelPath>, usize), Error> {
    let root = RelPath::parse(IGNORE_FILE).ok().and_then(|path| files.read(&path).ok());
    let text = root.map(|text| String::from_utf8_lossy(&text).into_owned());
    let ignored = IgnoreMatcher::without_defaults(text.as_deref(), ignore)?;
    let mut contents = ArchiveContents::new();
    for (path, entry) in files.walk() {
        match entry {
            FileMetadata::Dir => contents.dir(path.clone())?,
            FileMetadata::File { executable, .. } => {
                contents.file(path.clone(), executable, path.clone())?;
            }
        }
    }
    contents.leave_out(&ignored);
    let count = contents.files().count();
    Ok((contents, count))
}

/// Unpacks an untrusted archive within the limits. The error says why this fails.
fn unpack(
    kind: BucketArchiveFormat,
    body: &[u8],
    limits: TreeLimits,
) -> Result<MemoryTree, String> {
    let options = ExtractOptions { limits, ..ExtractOptions::default() };
    let unpacked = match kind {
        BucketArchiveFormat::TarGz => extract(body, &options),
        BucketArchiveFormat::Zip => unzip(Cursor::new(body), &options),
    };
    unpacked.map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests;
