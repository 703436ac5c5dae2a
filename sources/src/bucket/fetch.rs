//! Downloads the changed objects of a bucket, several at a time, within the limits.

use std::io;
use std::sync::Arc;

use artifacts::archive::ArchiveContents;
use artifacts::ignore::IGNORE_FILE;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Semaphore;
use tree::{FileTree as _, MemoryTree, RelPath};

use super::bucket_fetch_state::BucketFetchState;
use super::bucket_listing::{BucketListing, ListedBucketObject, too_large};
use super::download_spool::{DownloadSpool, DownloadSpoolRange};
use super::request_context::BucketRequestContext;
use super::{BucketClient, BucketClientCache, Error, RemoteBucket};

/// The most concurrent downloads.
const AT_ONCE: usize = 16;

/// The most memory of concurrent downloads, in KiB.
const MEMORY_KIB: u32 = 96 << 10;

/// The location of the bytes of a file.
#[derive(Debug, Clone)]
pub struct BucketFileBody(BucketFileBodySource);

#[derive(Debug, Clone)]
enum BucketFileBodySource {
    /// Just downloaded.
    New(DownloadSpoolRange),
    /// The file is in the former artifact.
    Previous(RelPath),
    /// Known already.
    Text(Arc<[u8]>),
}

/// The former artifact, and its note.
#[derive(Debug, Default)]
pub struct PreviousArtifact {
    /// The files of the artifact. Without them everything is downloaded.
    pub files: Option<Arc<MemoryTree>>,
    /// The note of the artifact.
    pub note: BucketFetchState,
}

/// The files and the note of a new artifact.
#[derive(Debug)]
pub struct BucketFetchResult {
    /// The files.
    pub contents: ArchiveContents<BucketFileBody>,
    /// The revision of the fetched objects. An object may have changed or vanished since it was listed.
    pub revision: String,
    /// The note to store beside the artifact. The caller sets the digest in it.
    pub note: BucketFetchState,
    /// Objects in the artifact.
    pub count: usize,
    /// Objects that were downloaded for it.
    pub downloaded: usize,
    spool: DownloadSpool,
    previous: Option<Arc<MemoryTree>>,
}

impl BucketFetchResult {
    /// The bytes of a file. Blocks.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn load(&self, body: &BucketFileBody) -> io::Result<Arc<[u8]>> {
        match &body.0 {
            BucketFileBodySource::New(place) => self.spool.read(*place).map(Arc::from),
            BucketFileBodySource::Text(text) => Ok(text.clone()),
            BucketFileBodySource::Previous(path) => {
                let files = self.previous.as_ref().ok_or(io::ErrorKind::NotFound)?;
                files.read(path).map_err(io::Error::other)
            }
        }
    }
}

/// Downloads what is not in the previous artifact already.
///
/// Parity(flux): an object that vanished since it was listed is left out, and one that changed counts as it is now.
///
/// # Errors
/// See [`Error`].
pub async fn fetch(
    remote: &RemoteBucket,
    listed: BucketListing,
    previous: PreviousArtifact,
    known: &BucketClientCache,
) -> Result<BucketFetchResult, Error> {
    let client = remote.client(known)?;
    let spool = DownloadSpool::new().map_err(Error::Disk)?;
    let BucketListing { objects, ignore } = listed;
    let mut now = BucketListing { ignore, ..BucketListing::default() };
    let mut contents = ArchiveContents::new();
    let mut changed = Vec::new();
    for (path, object) in objects {
        if has(&previous, &path, &object) {
            contents.file(
                path.clone(),
                false,
                BucketFileBody(BucketFileBodySource::Previous(path.clone())),
            )?;
            now.add(path, object)?;
        } else {
            changed.push((path, object));
        }
    }
    let spool = Arc::new(spool);
    let bodies =
        remote.within(&client, "fetching", download(remote, &client, changed, &spool)).await?;
    let downloaded = bodies.len();
    let mut bytes: u64 = 0;
    for (path, object, place) in bodies {
        bytes = bytes.saturating_add(object.size);
        contents.file(path.clone(), false, BucketFileBody(BucketFileBodySource::New(place)))?;
        now.add(path, object)?;
    }
    if bytes > remote.limits.total_bytes {
        let what = format!("bucket '{}'", remote.bucket);
        return Err(too_large(what, bytes, remote.limits.total_bytes));
    }
    // Parity(flux): the patterns are in the artifact, and not in its revision.
    if let Some(file) = &now.ignore {
        let body = BucketFileBody(BucketFileBodySource::Text(Arc::from(file.text.as_bytes())));
        let path = RelPath::parse(IGNORE_FILE).map_err(io::Error::other).map_err(Error::Disk)?;
        contents.file(path, false, body)?;
    }
    let revision = now.revision();
    let count = now.len();
    let tags = now.objects.into_values().map(|object| (object.key, object.etag)).collect();
    let note = BucketFetchState { artifact: String::new(), objects: tags, ignore: now.ignore };
    let spool = Arc::into_inner(spool).ok_or_else(|| Error::Disk(io::ErrorKind::Other.into()))?;
    Ok(BucketFetchResult {
        contents,
        revision,
        note,
        count,
        downloaded,
        spool,
        previous: previous.files,
    })
}

/// Downloads one object, up to the limit of a file's size.
///
/// # Errors
/// See [`Error`].
pub async fn object(
    remote: &RemoteBucket,
    key: &str,
    known: &BucketClientCache,
) -> Result<Vec<u8>, Error> {
    let client = remote.client(known)?;
    let what = format!("object '{key}'");
    let work = async {
        match client.get(remote, key, None).await? {
            Some(got) => collect(got.body, &what, remote.limits.file_bytes).await,
            // The request has no condition, so the store cannot answer that the object is unchanged.
            None => Ok(Vec::new()),
        }
    };
    remote.within(&client, "fetching", work).await
}

/// Whether the former artifact has the present version of an object.
fn has(previous: &PreviousArtifact, path: &RelPath, object: &ListedBucketObject) -> bool {
    let is_same = previous.note.objects.get(&object.key).is_some_and(|tag| *tag == object.etag);
    let is_there = || previous.files.as_ref().is_some_and(|files| files.read(path).is_ok());
    is_same && !object.etag.is_empty() && is_there()
}

async fn download(
    remote: &RemoteBucket,
    client: &BucketClient,
    objects: Vec<(RelPath, ListedBucketObject)>,
    spool: &Arc<DownloadSpool>,
) -> Result<Vec<(RelPath, ListedBucketObject, DownloadSpoolRange)>, Error> {
    let memory = Semaphore::new(MEMORY_KIB as usize);
    let one = |(path, object): (RelPath, ListedBucketObject)| {
        let memory = &memory;
        async move {
            // The size is from the listing. If the object has grown beyond the limit, the download fails, and the bucket is
            // listed again.
            let need = u32::try_from(object.size.div_ceil(1024)).unwrap_or(MEMORY_KIB);
            // A closed channel means that the process ends.
            let _place = memory.acquire_many(need.clamp(64, MEMORY_KIB)).await.ok();
            let Some((etag, body)) = whole(remote, client, &object).await? else {
                return Ok(None);
            };
            let spool = spool.clone();
            let size = body.len() as u64;
            let place = tokio::task::spawn_blocking(move || spool.put(&body)).await;
            let place = place.map_err(io::Error::other).and_then(|it| it).map_err(Error::Disk)?;
            Ok(Some((path, ListedBucketObject { etag, size, ..object }, place)))
        }
    };
    let bodies = stream::iter(objects).map(one).buffer_unordered(AT_ONCE);
    bodies.try_filter_map(|body| async { Ok(body) }).try_collect().await
}

/// An object with its entity tag. `None` if the object has vanished.
async fn whole(
    remote: &RemoteBucket,
    client: &BucketClient,
    object: &ListedBucketObject,
) -> Result<Option<(String, Vec<u8>)>, Error> {
    let what = format!("object '{}'", object.key);
    let got = match client.listed(remote, object).await {
        Ok(Some(got)) => got,
        Ok(None) | Err(Error::NoObject { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The response is not from the store. An empty body or a web page would replace the object, and applied objects would then
    // be deleted.
    if got.etag.is_empty() && !object.etag.is_empty() {
        let asked = BucketRequestContext::object(remote, &object.key, "GET");
        return Err(asked.unreadable("it has no ETag, unlike the object in the listing".to_owned()));
    }
    // Memory was reserved for the size in the listing. An object that has grown a little is still fetched.
    let limit = object.size.saturating_mul(2).max(1 << 20).min(remote.limits.file_bytes);
    Ok(Some((got.etag, collect(got.body, &what, limit).await?)))
}

/// A whole body, up to the limit of a file's size.
pub(super) async fn collect(
    mut body: BoxStream<'static, Result<Bytes, Error>>,
    what: &str,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    let mut whole = Vec::new();
    while let Some(chunk) = body.next().await.transpose()? {
        let len = (whole.len() as u64).saturating_add(chunk.len() as u64);
        if len > limit {
            return Err(too_large(what.to_owned(), len, limit));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}
