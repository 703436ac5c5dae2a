//! The objects of a bucket, and their names in an artifact.
//!
//! Here: listing, leaving out, names of files, the revision.
//! Elsewhere: downloading (`fetch`), one archive for all (`bucket_archive`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use artifacts::ignore::{IGNORE_FILE, IgnoreMatcher};
use sha2::{Digest as _, Sha256};
use tree::RelPath;

use super::bucket_fetch_state::{BucketFetchState, FetchedIgnoreFile};
use super::fetch::collect;
use super::request_context::BucketRequestContext;
use super::{BucketClient, BucketClientCache, Error, RemoteBucket};

/// The most objects that are examined, those that are left out included.
const MOST_LISTED: usize = 200_000;

/// The most bytes of keys and entity tags of all objects that are examined.
const MOST_LISTED_BYTES: usize = 32 << 20;

/// The most empty pages in a row. Stores send empty pages while they skip deleted objects.
const MOST_EMPTY_PAGES: usize = 1000;

/// The largest file of ignore patterns.
const LARGEST_IGNORE_FILE: u64 = 4 << 20;

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBucketObject {
    /// The key of the object.
    pub key: String,
    /// The entity tag as revisions contain it: without quotes, except for Azure.
    pub etag: String,
    /// The size in bytes.
    pub size: u64,
    /// A further identifier of this version, if the store has one, such as Google's generation.
    pub generation: Option<String>,
}

/// The objects that an artifact is made of.
#[derive(Debug, Clone, Default)]
pub struct BucketListing {
    /// The objects by the paths of their files.
    pub(super) objects: BTreeMap<RelPath, ListedBucketObject>,
    /// The patterns at the root of the bucket.
    pub(super) ignore: Option<FetchedIgnoreFile>,
}

impl BucketListing {
    /// `sha256:` of a line `<key> <entity tag>` for each object, in the order of the keys' bytes.
    ///
    /// Parity(flux): an unchanged bucket has an unchanged revision, also when windlass takes over from Flux.
    #[must_use]
    pub fn revision(&self) -> String {
        let keys: BTreeMap<&str, &str> =
            self.objects.values().map(|o| (o.key.as_str(), o.etag.as_str())).collect();
        let mut hash = Sha256::new();
        for (key, etag) in keys {
            hash.update(format!("{key} {etag}\n"));
        }
        format!("sha256:{}", hex::encode(hash.finalize()))
    }

    /// The number of objects in the listing.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Adds an object at the path of its file.
    pub(super) fn add(&mut self, path: RelPath, object: ListedBucketObject) -> Result<(), Error> {
        match self.objects.entry(path) {
            Entry::Vacant(place) => {
                place.insert(object);
                Ok(())
            }
            Entry::Occupied(other) => {
                Err(Error::Collision { first: other.get().key.clone(), second: object.key })
            }
        }
    }

    /// Checks that no file is at the path of a folder of another file, and that all files together are not too large.
    fn check(&self, remote: &RemoteBucket) -> Result<(), Error> {
        let limits = &remote.limits;
        let mut bytes: u64 = 0;
        for (path, object) in &self.objects {
            let mut above = path.parent();
            while let Some(dir) = above.filter(|dir| !dir.is_root()) {
                if let Some(file) = self.objects.get(&dir) {
                    let first = file.key.clone();
                    let second = object.key.clone();
                    return Err(Error::Collision { first, second });
                }
                above = dir.parent();
            }
            if object.size > limits.file_bytes {
                let what = format!("object '{}'", object.key);
                return Err(too_large(what, object.size, limits.file_bytes));
            }
            bytes = bytes.saturating_add(object.size);
        }
        let what = || format!("bucket '{}'", remote.bucket);
        if bytes > limits.total_bytes {
            return Err(too_large(what(), bytes, limits.total_bytes));
        }
        if self.objects.len() > limits.entries {
            return Err(too_many(what(), self.objects.len(), limits.entries));
        }
        Ok(())
    }
}

/// The error for too many bytes.
pub(super) fn too_large(what: String, found: u64, limit: u64) -> Error {
    Error::TooLarge { what, found: format!("{found} bytes"), limit: format!("{limit}") }
}

fn too_many(what: String, found: usize, limit: usize) -> Error {
    Error::TooLarge { what, found: format!("{found} objects"), limit: format!("{limit}") }
}

/// The path of the file that a key becomes; none for what marks a folder.
///
/// Parity(flux): keys that end in `/` are skipped; empty parts of a key vanish.
/// Differs(flux): Flux bends a key that climbs out by `..` back inside; here it is refused, as are keys that no
/// file of an artifact can be called by.
pub(super) fn place(key: &str) -> Result<Option<RelPath>, Error> {
    if key.ends_with('/') {
        return Ok(None);
    }
    let wrong = |why: &str| Error::Key { key: shown(key), why: why.to_owned() };
    if key.split('/').any(|part| part == ".." || part == ".") {
        return Err(wrong("it has a segment `.` or `..`"));
    }
    if key.contains('\\') {
        return Err(wrong("it has a backslash"));
    }
    if key.chars().any(char::is_control) {
        return Err(wrong("it has a control character"));
    }
    let path = RelPath::parse(key.trim_start_matches('/')).map_err(|e| wrong(&e.to_string()))?;
    if path.is_root() {
        return Err(wrong("it is empty"));
    }
    Ok(Some(path))
}

/// A key as messages show it: with visible control characters, and cut short.
fn shown(key: &str) -> String {
    key.chars().take(256).flat_map(char::escape_debug).collect()
}

/// Asks which objects there are: one request for a thousand, and one more for a `.sourceignore` that is not known yet,
/// or is outside of the prefix.
///
/// Parity(flux): a `.sourceignore` counts at the root of the bucket only, also when there is a prefix, and patterns
/// that other sources have from the beginning do not hold.
///
/// # Errors
/// See [`Error`].
pub async fn list(
    remote: &RemoteBucket,
    ignore: Option<&str>,
    note: &BucketFetchState,
    known: &BucketClientCache,
) -> Result<BucketListing, Error> {
    let client = remote.client(known)?;
    let work = async {
        let found = pages(remote, &client).await?;
        let file = ignore_file(remote, &client, &found, note).await?;
        let text = file.as_ref().map(|file| file.text.as_str());
        let matcher = IgnoreMatcher::without_defaults(text, ignore)?;
        let mut listed = BucketListing { objects: BTreeMap::new(), ignore: file };
        for object in found.into_iter().filter(|object| object.key != IGNORE_FILE) {
            let Some(path) = place(&object.key)? else { continue };
            if !matcher.is_ignored(&path, false) {
                listed.add(path, object)?;
            }
        }
        listed.check(remote)?;
        Ok(listed)
    };
    remote.within(&client, "listing", work).await
}

async fn pages(
    remote: &RemoteBucket,
    client: &BucketClient,
) -> Result<Vec<ListedBucketObject>, Error> {
    let mut found: Vec<ListedBucketObject> = Vec::new();
    let mut bytes = 0;
    let mut next = None;
    let mut empty_pages = 0;
    loop {
        let page = client.page(remote, next.take()).await?;
        bytes += page.objects.iter().map(|it| it.key.len() + it.etag.len()).sum::<usize>();
        empty_pages = if page.objects.is_empty() { empty_pages + 1 } else { 0 };
        found.extend(page.objects);
        let what = || format!("bucket '{}'", remote.bucket);
        if found.len() > MOST_LISTED {
            return Err(too_many(what(), found.len(), MOST_LISTED));
        }
        if bytes > MOST_LISTED_BYTES {
            let what = format!("the list of keys of {}", what());
            return Err(too_large(what, bytes as u64, MOST_LISTED_BYTES as u64));
        }
        let Some(token) = page.next else { return Ok(found) };
        // This is not treated as the end, since objects on later pages would count as deleted.
        if empty_pages >= MOST_EMPTY_PAGES {
            let why = format!(
                "{MOST_EMPTY_PAGES} consecutive pages are empty, and the listing is not complete"
            );
            return Err(BucketRequestContext::listing(remote).unreadable(why));
        }
        next = Some(token);
    }
}

/// The patterns at the root of the bucket. They are only fetched if they may have changed.
async fn ignore_file(
    remote: &RemoteBucket,
    client: &BucketClient,
    found: &[ListedBucketObject],
    note: &BucketFetchState,
) -> Result<Option<FetchedIgnoreFile>, Error> {
    let remembered = note.ignore.as_ref();
    if IGNORE_FILE.starts_with(&remote.prefix) {
        let Some(listed) = found.iter().find(|object| object.key == IGNORE_FILE) else {
            return Ok(None);
        };
        if let Some(file) = remembered.filter(|file| file.etag == listed.etag) {
            return Ok(Some(file.clone()));
        }
    }
    let unless = remembered.map(|file| file.etag.as_str());
    match client.get(remote, IGNORE_FILE, unless).await {
        Ok(None) => Ok(remembered.cloned()),
        Ok(Some(got)) => {
            let what = format!("object '{IGNORE_FILE}'");
            let text = collect(got.body, &what, LARGEST_IGNORE_FILE).await?;
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok(Some(FetchedIgnoreFile { etag: got.etag, text }))
        }
        Err(Error::NoObject { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
