//! Keeps artifacts on disk, in Flux's layout.
//!
//! Here: writing so that a crash leaves the old or the new file, checking digests, serving, loading trees.
//! Elsewhere: names of folders ([`ObjectFolder`]), deleting files (`garbage_collection`), trees in memory
//! (`extracted_tree_cache`), notes about artifacts (`fetch_state_file`), temporary files of fetches (`scratch`), archives
//! ([`crate::archive`]), HTTP itself (the program's `serve` room).
//!
//! ```text
//! <root>/gitrepository/<namespace>/<name>/<hash>.tar.gz        kept
//! <root>/gitrepository/<namespace>/<name>/.unfinished-x7Kp2q   being written; swept when the store is opened
//! <root>/.scratch/                                             repositories while they are fetched; swept likewise
//! ```

mod disk_usage;
mod extracted_tree_cache;
mod fetch_state_file;
mod garbage_collection;
mod object_folder;
mod scratch;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    fs::{self, DirBuilder, File, Metadata},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tree::MemoryTree;

use crate::archive::{DigestingWriter, ExtractError, ExtractOptions, extract};
use disk_usage::{DiskUsageClaim, DiskUsageLedger};
use extracted_tree_cache::ExtractedTreeCache;
pub use object_folder::ObjectFolder;
use object_folder::{check_file, split_path};

/// The prefix of unfinished files. No artifact's name begins with a dot.
const UNFINISHED: &str = ".unfinished-";

/// The options of a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The host, with an optional port, under which clients fetch the files. A text that begins with `http://` or `https://`
    /// is used unchanged, and an empty one means `localhost`.
    pub advertised: String,
    /// The retention time. Artifacts that are older and not current are garbage. Flux's `--artifact-retention-ttl`.
    pub ttl: Duration,
    /// How many artifacts a slot keeps, including the current one. Flux's `--artifact-retention-records`.
    pub records: usize,
    /// The most bytes of unused extracted trees that stay in memory.
    pub cache_bytes: u64,
    /// How long an unused tree stays in memory.
    pub cache_time: Duration,
    /// The most bytes of all artifacts together, including one that is being written. `None` for the whole disk.
    pub size_limit: Option<u64>,
}

impl Default for StoreOptions {
    /// `localhost`, one minute, two records, 64 MiB in memory, the whole disk.
    fn default() -> Self {
        Self {
            advertised: String::new(),
            ttl: Duration::from_secs(60),
            records: 2,
            cache_bytes: 64 << 20,
            cache_time: Duration::from_secs(60),
            size_limit: None,
        }
    }
}

/// An artifact as a status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactMetadata {
    /// `<kind>/<namespace>/<name>/<file>`.
    pub path: String,
    /// The URL under which the artifact is served.
    pub url: String,
    /// The revision that it was made from.
    pub revision: String,
    /// The digest of the file on disk: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The size of the file in bytes.
    pub size: u64,
    /// The time when the artifact was stored.
    pub last_update: Timestamp,
}

/// The reason why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk refused an operation. The source error says whether it is full, read-only, or owned by another user.
    #[error("cannot {action} `{}`", path.display())]
    Disk {
        /// The operation that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause of the failure.
        source: io::Error,
    },
    /// The store holds as much as it may.
    #[error(
        "artifact `{path}` exceeds the storage limit: {used} of {limit} bytes are used; increase \
         `--storage-size-limit` or delete sources"
    )]
    Full {
        /// The artifact.
        path: String,
        /// The bytes of the other artifacts in the store.
        used: u64,
        /// The limit of the store in bytes.
        limit: u64,
    },
    /// A name could lead out of its place.
    #[error("{value:?} is not a valid {what} of an artifact")]
    Name {
        /// `kind`, `namespace`, `name`, `file` or `path`.
        what: &'static str,
        /// The refused text.
        value: String,
    },
    /// The digest is not a SHA-256.
    #[error("{0:?} is not a digest of the form `sha256:<64 hexadecimal digits>`")]
    Digest(String),
    /// The artifact does not exist, so the source must be fetched again.
    #[error("artifact `{0}` not found in storage")]
    Missing(String),
    /// The file was changed after it was stored. It must be removed and fetched again.
    ///
    /// The actual digest is left out: a user who may write a status could point it at a foreign file and read the digest.
    #[error("artifact `{path}` is damaged: its digest is not `{expected}`")]
    Mismatch {
        /// The artifact.
        path: String,
        /// The digest of the stored file.
        expected: String,
    },
    /// The file has the expected digest, but is not a usable archive.
    #[error("cannot extract artifact `{path}`")]
    Extract {
        /// The artifact.
        path: String,
        /// The error in the archive.
        source: ExtractError,
    },
    /// The writer of the artifact failed, so nothing was stored.
    #[error("cannot create artifact `{path}`")]
    Fill {
        /// The artifact.
        path: String,
        /// The cause of the failure.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// The most bytes of artifacts that are kept for other objects, for all sources of a namespace together.
const MAX_NEEDED_BYTES: u64 = 256 << 20;

/// The most lost artifacts of a source that are listed at a time.
const MAX_LOST: usize = 4;

/// An artifact that an object needs, although the status of its source names another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededArtifact {
    /// The path below the root of the store.
    pub path: String,
    /// The digest of the artifact.
    pub digest: String,
    /// The revision of its source.
    pub revision: String,
}

/// The artifacts that are needed besides the ones in the statuses of their sources.
pub trait NeededArtifacts: std::fmt::Debug + Send + Sync {
    /// The needed artifacts of a namespace's sources. If there is not room for all, the first ones are kept. `None` if they
    /// are not known yet.
    fn of_namespace(&self, namespace: &str) -> Option<Vec<NeededArtifact>>;
}

/// Artifacts on disk.
///
/// All methods block. Many threads may use the store, but calls that write to one slot must follow each other.
#[derive(Debug)]
pub struct ArtifactStore {
    root: PathBuf,
    options: StoreOptions,
    verified: Mutex<BTreeMap<String, (FileFingerprint, String)>>,
    cache: ExtractedTreeCache,
    ledger: DiskUsageLedger,
    needed: OnceLock<Arc<dyn NeededArtifacts>>,
}

/// The metadata of a file that change whenever its content changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileFingerprint {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileFingerprint {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl ArtifactStore {
    /// Opens the store in an existing directory, and removes the unfinished files of a crash.
    ///
    /// # Errors
    /// The directory does not exist or cannot be read.
    pub fn open(root: impl AsRef<Path>, options: StoreOptions) -> Result<Self, Error> {
        let root = root.as_ref();
        // Links are resolved once, so that every later path can be compared with this one.
        let root = root.canonicalize().map_err(failed("open", root))?;
        garbage_collection::sweep(&root)?;
        scratch::sweep(&root)?;
        let cache = ExtractedTreeCache::new(options.cache_bytes, options.cache_time);
        let ledger = DiskUsageLedger::of(&root)?;
        let needed = OnceLock::new();
        Ok(Self { root, options, verified: Mutex::default(), cache, ledger, needed })
    }

    /// Makes [`Self::collect_garbage`] keep artifacts that other objects need, up to 256 MiB for the sources of a namespace.
    /// Only the first call counts.
    pub fn keep_needed(&self, needed: Arc<dyn NeededArtifacts>) {
        drop(self.needed.set(needed));
    }

    /// Bytes of all artifacts together, those that are being written included.
    pub fn size(&self) -> u64 {
        self.ledger.total()
    }

    /// How many more bytes of artifacts fit into the store. `None` if only the disk limits them.
    pub fn room(&self) -> Option<u64> {
        self.options.size_limit.map(|limit| limit.saturating_sub(self.ledger.total()))
    }

    /// The slots of a kind that have a folder, whether or not their objects exist.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn slots_of(&self, kind: &str) -> Result<Vec<ObjectFolder>, Error> {
        let of_kind = self.root.join(kind);
        let mut slots = Vec::new();
        for (namespace, found) in garbage_collection::children(&of_kind)? {
            if !found.is_dir() {
                continue;
            }
            for (name, found) in garbage_collection::children(&of_kind.join(&namespace))? {
                if found.is_dir()
                    && let Ok(slot) = ObjectFolder::new(kind, &namespace, &name)
                {
                    slots.push(slot);
                }
            }
        }
        Ok(slots)
    }

    /// The bytes of extracted files that stay in memory because they were used recently.
    pub fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Stores the output of `fill`. The file has a temporary name until it is complete and on the disk.
    ///
    /// # Guarantees
    /// Whenever it is interrupted, readers find the old artifact, the new one, or none; never a part.
    ///
    /// # Errors
    /// A name is refused, the disk refuses, the store is full, or `fill` gives up.
    pub fn put<E>(
        &self,
        slot: &ObjectFolder,
        file: &str,
        revision: &str,
        now: Timestamp,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<ArtifactMetadata, Error>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        check_file(file)?;
        let path = format!("{}/{file}", slot.path());
        let dir = self.make_dir(slot)?;
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&dir);
        let unfinished = unfinished.map_err(failed("write to", &dir))?;
        let place = dir.join(file);
        let claim = self.ledger.claim(self.options.size_limit);
        let mut out = DigestingWriter::new(ErrorKeepingFile {
            file: unfinished.as_file(),
            claim,
            error: None,
        });
        let filled = fill(&mut out);
        let (ErrorKeepingFile { claim, error, .. }, sealed) = out.finish();
        if let (Some(used), Some(limit)) = (claim.refused(), self.options.size_limit) {
            return Err(Error::Full { path, used, limit });
        }
        // The store reports a full disk better than the writer, because it knows the file.
        if let Some(source) = error {
            return Err(Error::Disk { action: "write", path: place, source });
        }
        filled.map_err(|error| Error::Fill { path: path.clone(), source: error.into() })?;
        unfinished.as_file().sync_all().map_err(failed("write", &place))?;
        unfinished.persist(&place).map_err(|error| failed("write", &place)(error.error))?;
        claim.keep(&path);
        sync_dir(&dir)?;
        let url = self.url(&path);
        let revision = revision.to_owned();
        Ok(ArtifactMetadata {
            path,
            url,
            revision,
            digest: sealed.digest,
            size: sealed.size,
            last_update: now,
        })
    }

    /// The host under which artifacts are served. See [`StoreOptions::advertised`].
    #[must_use]
    pub fn advertised(&self) -> &str {
        &self.options.advertised
    }

    /// The URL under which an artifact is served.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let host = match self.options.advertised.as_str() {
            "" => "localhost",
            host => host,
        };
        format!("{}/{path}", server_url(host))
    }

    /// Whether an artifact exists and has this digest.
    ///
    /// The whole file is hashed once, and the result is remembered while its length, times and inode stay the same.
    /// Only a broken disk changes a file without changing these; that is found after the next start.
    ///
    /// # Errors
    /// The path or digest is not valid, or the file cannot be read.
    pub fn verify(&self, path: &str, digest: &str) -> Result<bool, Error> {
        check_digest(digest)?;
        match self.open_file(path) {
            Ok(mut file) => Ok(self.hash(path, &mut file)? == digest),
            Err(Error::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a second name in the same slot a link to an artifact, in place of an earlier link. Returns the URL of the
    /// link.
    ///
    /// A link is not an artifact: garbage collection leaves it alone.
    ///
    /// # Errors
    /// A name is refused, or the disk refuses.
    pub fn link(&self, path: &str, name: &str) -> Result<String, Error> {
        check_file(name)?;
        let (owner, file) = split_path(path)?;
        let dir = self.root.join(owner);
        // Writers of a slot follow each other, so an unfinished link is left over from a crash.
        let new = dir.join(format!("{UNFINISHED}{name}"));
        let place = dir.join(name);
        gone_is_fine(fs::remove_file(&new)).map_err(failed("remove", &new))?;
        std::os::unix::fs::symlink(file, &new).map_err(failed("write", &place))?;
        fs::rename(&new, &place).map_err(failed("write", &place))?;
        Ok(self.url(&format!("{owner}/{name}")))
    }

    /// Opens an artifact to be read or served.
    ///
    /// # Guarantees
    /// The opened file is a regular file below the root. Links that lead elsewhere are not followed.
    ///
    /// # Errors
    /// There is no such file, or it cannot be opened.
    pub fn open_file(&self, path: &str) -> Result<File, Error> {
        split_path(path)?;
        let place = self.root.join(path);
        let missing = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        };
        let place = match place.canonicalize() {
            Err(error) if missing(&error) => return Err(Error::Missing(path.to_owned())),
            found => found.map_err(failed("open", &place))?,
        };
        // The type is asked before opening, because opening a pipe would wait for its other end.
        if !place.starts_with(&self.root) || !place.is_file() {
            return Err(Error::Missing(path.to_owned()));
        }
        match File::open(&place) {
            Err(error) if missing(&error) => Err(Error::Missing(path.to_owned())),
            opened => opened.map_err(failed("open", &place)),
        }
    }

    /// Extracts an artifact after checking its digest. All callers that load the same artifact share the tree.
    ///
    /// # Errors
    /// The artifact is gone, has another digest, or is not an archive within the limits.
    pub fn load(
        &self,
        path: &str,
        digest: &str,
        options: &ExtractOptions,
    ) -> Result<Arc<MemoryTree>, Error> {
        self.share(digest, options, || {
            let mut file = self.open_file(path)?;
            let found = self.hash(path, &mut file)?;
            if found != digest {
                let path = path.to_owned();
                let expected = digest.to_owned();
                return Err(Error::Mismatch { path, expected });
            }
            file.rewind().map_err(failed("read", &self.root.join(path)))?;
            let failed = |source| Error::Extract { path: path.to_owned(), source };
            extract(io::BufReader::new(file), options).map_err(failed)
        })
    }

    /// The tree of the archive with this digest, if another caller has extracted it, or else the result of `load`.
    pub(crate) fn share<E: From<Error>>(
        &self,
        digest: &str,
        options: &ExtractOptions,
        load: impl FnOnce() -> Result<MemoryTree, E>,
    ) -> Result<Arc<MemoryTree>, E> {
        check_digest(digest)?;
        self.cache.get_or_load((digest.to_owned(), *options), load)
    }

    /// The artifacts of a slot that other objects need and that the store has lost, if the namespace has room for more of
    /// them. At most four are returned. None is returned while the needed artifacts are not known.
    #[must_use]
    pub fn lost(&self, slot: &ObjectFolder) -> Vec<NeededArtifact> {
        let owner = slot.path();
        let [_, namespace, _] = slot.parts();
        let needed = self.needed.get().and_then(|needed| needed.of_namespace(namespace));
        let mut left = MAX_NEEDED_BYTES;
        let mut lost: Vec<NeededArtifact> = Vec::new();
        for artifact in needed.unwrap_or_default() {
            let Ok((of, _)) = split_path(&artifact.path) else { continue };
            match fs::symlink_metadata(self.root.join(&artifact.path)) {
                Ok(found) => left = left.saturating_sub(found.len()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let is_known = lost.iter().any(|it| it.path == artifact.path);
                    if of == owner && left > 0 && !is_known && lost.len() < MAX_LOST {
                        lost.push(artifact);
                    }
                }
                // The file may exist.
                Err(_) => {}
            }
        }
        lost
    }

    /// The files of a slot that other objects need and for which there is room. `None` while the needed artifacts are not
    /// known.
    fn needed_files(&self, slot: &ObjectFolder) -> Option<Vec<String>> {
        let Some(needed) = self.needed.get() else { return Some(Vec::new()) };
        let owner = slot.path();
        let [_, namespace, _] = slot.parts();
        let mut left = MAX_NEEDED_BYTES;
        let mut counted = BTreeSet::new();
        let mut files = Vec::new();
        for NeededArtifact { path, .. } in needed.of_namespace(namespace)? {
            let Ok((of, file)) = split_path(&path) else { continue };
            if !counted.insert(path.clone()) {
                continue;
            }
            // A lost file needs no room.
            let Ok(found) = fs::symlink_metadata(self.root.join(&path)) else { continue };
            let Some(rest) = left.checked_sub(found.len()) else { continue };
            left = rest;
            if of == owner {
                files.push(file.to_owned());
            }
        }
        Some(files)
    }

    /// Removes the artifacts that a slot no longer needs, and returns their paths.
    ///
    /// Artifacts in `keep` stay, and so do artifacts that other objects need ([`Self::keep_needed`]). Nothing is removed while
    /// the needed artifacts are not known. Artifacts older than the retention time are removed. Then the oldest ones are
    /// removed until their number is within the retention records. That number includes artifacts in `keep`, but not needed
    /// ones.
    ///
    /// # Errors
    /// A path of `keep` is not in the slot, or the disk refuses. All other garbage is still removed.
    pub fn collect_garbage(
        &self,
        slot: &ObjectFolder,
        keep: &[&str],
        now: Timestamp,
    ) -> Result<Vec<String>, Error> {
        let owner = slot.path();
        let file = |path| match split_path(path)? {
            (of, file) if of == owner => Ok(file),
            _ => Err(Error::Name { what: "path", value: path.to_owned() }),
        };
        let Some(needed) = self.needed_files(slot) else { return Ok(Vec::new()) };
        let mut keep = keep.iter().map(|path| file(path)).collect::<Result<Vec<_>, _>>()?;
        // Needed artifacts do not take places from artifacts that are read at this moment.
        let mut further: Vec<&str> = needed.iter().map(String::as_str).collect();
        further.retain(|file| !keep.contains(file));
        let retention = garbage_collection::ArtifactRetention {
            ttl: self.options.ttl,
            records: self.options.records.saturating_add(further.len()),
        };
        keep.append(&mut further);
        let removed = garbage_collection::collect(&self.dir(slot), &keep, &retention, now)?;
        let removed: Vec<String> =
            removed.into_iter().map(|file| format!("{owner}/{file}")).collect();
        let mut verified = self.verified.lock();
        verified.retain(|path, _| !removed.contains(path));
        drop(verified);
        self.ledger.forget(|path| removed.iter().any(|gone| gone == path));
        Ok(removed)
    }

    /// Removes one artifact, for example one with a wrong digest. A missing artifact is no error.
    ///
    /// # Errors
    /// The path is not valid, or the disk refuses.
    pub fn remove_file(&self, path: &str) -> Result<(), Error> {
        split_path(path)?;
        let place = self.root.join(path);
        gone_is_fine(fs::remove_file(&place)).map_err(failed("remove", &place))?;
        self.ledger.forget(|gone| gone == path);
        Ok(())
    }

    /// Removes all files of a slot, because its object is deleted. A missing slot is no error.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn remove(&self, slot: &ObjectFolder) -> Result<(), Error> {
        let dir = self.dir(slot);
        gone_is_fine(fs::remove_dir_all(&dir)).map_err(failed("remove", &dir))?;
        let mut verified = self.verified.lock();
        let prefix = format!("{}/", slot.path());
        verified.retain(|path, _| !path.starts_with(&prefix));
        drop(verified);
        self.ledger.forget(|path| path.starts_with(&prefix));
        Ok(())
    }

    fn dir(&self, slot: &ObjectFolder) -> PathBuf {
        self.root.join(slot.path())
    }

    /// Creates the directories of a slot one by one. Each is on the disk before the next, and none is created through a link.
    fn make_dir(&self, slot: &ObjectFolder) -> Result<PathBuf, Error> {
        let mut dir = self.root.clone();
        for part in slot.parts() {
            let above = dir.clone();
            dir.push(part);
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => sync_dir(&above)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let metadata = fs::symlink_metadata(&dir).map_err(failed("read", &dir))?;
                    if !metadata.is_dir() {
                        return Err(failed("write to", &dir)(io::ErrorKind::NotADirectory.into()));
                    }
                }
                Err(error) => return Err(failed("create", &dir)(error)),
            }
        }
        Ok(dir)
    }

    /// The digest of an open file, remembered while its fingerprint stays.
    fn hash(&self, path: &str, file: &mut File) -> Result<String, Error> {
        let place = self.root.join(path);
        let metadata = file.metadata().map_err(failed("read", &place))?;
        let before = FileFingerprint::of(&metadata);
        let remembered = || self.verified.lock();
        if let Some((fingerprint, digest)) = remembered().get(path)
            && *fingerprint == before
        {
            return Ok(digest.clone());
        }
        let mut hash = DigestingWriter::new(io::sink());
        let mut buffer = vec![0; 128 * 1024];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => hash.write_all(&buffer[..read]).map_err(failed("hash", &place))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", &place)(error)),
            }
        }
        let digest = hash.finish().1.digest;
        remembered().insert(path.to_owned(), (before, digest.clone()));
        Ok(digest)
    }
}

/// A file that remembers its first write error, also if the writer drops it.
struct ErrorKeepingFile<'f, 'l> {
    file: &'f File,
    claim: DiskUsageClaim<'l>,
    error: Option<io::Error>,
}

impl ErrorKeepingFile<'_, '_> {
    fn remember<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let returned = io::Error::from(error.kind());
            if error.kind() != io::ErrorKind::Interrupted {
                self.error.get_or_insert(error);
            }
            returned
        })
    }
}

impl Write for ErrorKeepingFile<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.claim.grow(bytes.len() as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let written = self.file.write(bytes);
        self.remember(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.flush();
        self.remember(flushed)
    }
}

/// The URL of the server with an advertised address, which is a host with an optional port, or a URL.
#[must_use]
pub fn server_url(advertised: &str) -> String {
    let has_scheme = advertised.starts_with("http://") || advertised.starts_with("https://");
    if has_scheme { advertised.to_owned() } else { format!("http://{advertised}") }
}

fn check_digest(digest: &str) -> Result<(), Error> {
    let is_hex = |hex: &str| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if digest.strip_prefix("sha256:").is_some_and(is_hex) {
        return Ok(());
    }
    Err(Error::Digest(digest.to_owned()))
}

/// Brings the names in a directory to the disk.
fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync", dir))
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_the_disk_is_remembered_even_if_a_library_swallows_it() {
        let unwritable = File::open("/dev/null").expect("is always there");
        let ledger = DiskUsageLedger::default();
        let mut out =
            ErrorKeepingFile { file: &unwritable, claim: ledger.claim(None), error: None };
        assert!(out.write_all(b"x").is_err());
        assert!(out.flush().is_ok());
        assert!(out.error.is_some());
    }
}
