//! Makes the artifacts of an ArtifactGenerator from the trees of its sources, and keeps them in the store.
//!
//! Here: loading sources, building, packing, whether the kept artifacts are still in the store. Elsewhere: copies, drift and
//! revisions (engine `artifactgen`), the store (`artifacts::store`), the objects that offer artifacts (`external_artifact`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use artifactgen::{
    ArtifactRebuildReason, ArtifactRequest, ArtifactTree, BUILD_ALLOWANCE, BuildInputs,
    CurrentGeneratorInputs, ExternalArtifactState, GeneratorSpec, InventoryEntry, LastGeneratorRun,
    ORIGIN_REVISION, ObservedSource, RevisionAndOriginRevision, SourceTrees, StoredArchiveFile,
    TarballReader, artifact_requests, build, revisions,
};
use artifacts::archive::{
    self, ArchiveContents, ArchiveDigest, DigestingWriter, ExtractOptions, SymlinkPolicy,
};
use artifacts::ignore::IgnoreMatcher;
use artifacts::store::{self, ArtifactStore, ObjectFolder};
use crds::source_extensions::ArtifactGenerator;
use crds::{Artifact, ReconciledObject as _};
use golang::work_meter::{StopSignal, WorkMeter};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, READY, RunOutcome, Time, condition_reason};
use tree::{FileMetadata, FileTree, MemoryTree, RelPath, TreeLimits};

use super::report::inventory;
use super::resolved_sources::{ResolvedSources, SOURCE_FETCH_FAILED};
use windlass_cluster::error::chain;
use windlass_runtime::artifact_files;
use windlass_runtime::run_context::RunContext;

/// The first part of the path of its artifacts. Parity(flux).
const FOLDER: &str = "externalartifact";

/// The most bytes that the files of all sources may have together. Differs(flux): there is no limit.
const MAX_SOURCE_BYTES: u64 = 1 << 30;

/// Bytes that a file or folder of a source takes beside its path and body, about.
const BYTES_PER_ENTRY: u64 = 128;

/// The most bytes that the archives of one generator may have together. Differs(flux): there is no limit.
const MAX_STORED_BYTES: u64 = 1 << 30;

/// Steps that packing a byte takes, about.
const STEPS_PER_PACKED_BYTE: u64 = 10;

/// The trees of sources by their aliases.
pub(super) type SourceTreesByAlias = BTreeMap<String, Arc<MemoryTree>>;

/// The folder of an ExternalArtifact's artifacts in the store.
fn slot(object: &ArtifactGenerator, name: &str) -> Result<ObjectFolder, store::Error> {
    ObjectFolder::new(FOLDER, &object.namespace().unwrap_or_default(), name)
}

/// The path of the file that an inventory names.
fn path_of(slot: &ObjectFolder, entry: &InventoryEntry) -> String {
    format!("{}/{}", slot.path(), entry.filename)
}

/// Loads the files of all sources, from the store or from where their statuses say.
pub(super) async fn load(
    context: &RunContext,
    sources: &ResolvedSources,
    retry_at: Time,
) -> Result<SourceTreesByAlias, RunOutcome> {
    let mut trees = SourceTreesByAlias::new();
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for (alias, source) in sources {
        let failed = |why: &dyn std::fmt::Display| {
            let wake = NextRunTrigger::on([source.node.clone()]).and_at(retry_at);
            RunOutcome::Failed(SOURCE_FETCH_FAILED, format!("fetch sources failed: {why}"), wake)
        };
        let files = artifact_files::files(context, &source.artifact, source.is_elsewhere).await;
        let files = files.map_err(|error| failed(&error))?;
        // Two aliases of one artifact share its tree.
        bytes.insert(&source.artifact.digest, memory(&files));
        if bytes.values().sum::<u64>() > MAX_SOURCE_BYTES {
            let text = format!(
                "with {} the files of all sources are larger than {MAX_SOURCE_BYTES} bytes; divide the \
                 ArtifactGenerator",
                source.node
            );
            return Err(failed(&text));
        }
        trees.insert(alias.clone(), files);
    }
    Ok(trees)
}

/// The memory of a tree in bytes. Many empty files also take much memory.
fn memory(tree: &MemoryTree) -> u64 {
    tree.bytes().saturating_add(BYTES_PER_ENTRY.saturating_mul(tree.len() as u64))
}

/// Takes archives apart that sources have as files.
struct SourceTarballReader;

impl TarballReader for SourceTarballReader {
    fn read(&self, tarball: &[u8], limits: &TreeLimits) -> Result<MemoryTree, String> {
        let options = ExtractOptions {
            symlinks: SymlinkPolicy::Refuse,
            limits: *limits,
            ..ExtractOptions::default()
        };
        archive::extract(tarball, &options).map_err(|error| chain(&error))
    }
}

/// An artifact in the store.
pub(super) struct StoredGeneratedArtifact {
    /// The entry for the inventory.
    pub(super) entry: InventoryEntry,
    /// The artifact for a status.
    pub(super) artifact: Artifact,
    /// Whether its file was written in this run. Otherwise the store had the same bytes already.
    pub(super) is_stored: bool,
}

/// The archive of an artifact in the store.
struct StoredArchive {
    file: String,
    sealed: ArchiveDigest,
    /// Whether its file was written.
    is_stored: bool,
}

/// Makes the artifacts of one run, one after the other.
pub(super) struct ArtifactMaker {
    store: Arc<ArtifactStore>,
    namespace: String,
    /// The artifacts that the last run made.
    before: Vec<InventoryEntry>,
    trees: SourceTreesByAlias,
    observed: BTreeMap<String, ObservedSource>,
    /// The limit on the work for all artifacts together.
    meter: WorkMeter,
    /// The bytes that the archives may still have.
    room: u64,
}

impl ArtifactMaker {
    pub(super) fn new(
        store: Arc<ArtifactStore>,
        object: &ArtifactGenerator,
        trees: SourceTreesByAlias,
        observed: BTreeMap<String, ObservedSource>,
    ) -> Self {
        let namespace = object.namespace().unwrap_or_default();
        let meter = WorkMeter::new(BUILD_ALLOWANCE, StopSignal::default());
        let before = inventory(object);
        Self { store, namespace, before, trees, observed, meter, room: MAX_STORED_BYTES }
    }

    /// The artifacts that a spec asks for, with its path pattern expanded.
    pub(super) fn requests(
        &mut self,
        spec: &GeneratorSpec,
    ) -> Result<Vec<ArtifactRequest>, RunOutcome> {
        artifact_requests(spec, &by_alias(&self.trees), &mut self.meter).map_err(|error| {
            let text = format!("failed to expand path pattern: {error}");
            match error.is_terminal() {
                true => RunOutcome::Stalled(condition_reason::BUILD_FAILED, text),
                false => RunOutcome::Failed(
                    condition_reason::BUILD_FAILED,
                    text,
                    NextRunTrigger::default(),
                ),
            }
        })
    }

    /// Makes an artifact and stores it. Blocks.
    ///
    /// The file of the former artifact stays until the next run, because other objects fetch it until the ExternalArtifact
    /// names the new one. `offered` is the artifact that the ExternalArtifact names now; after a failed run it differs from
    /// the former one. Its file is not overwritten with other bytes, since the ExternalArtifact is updated only after all
    /// artifacts of the run are made.
    pub(super) fn make(
        &mut self,
        request: &ArtifactRequest,
        offered: Option<&Artifact>,
    ) -> Result<StoredGeneratedArtifact, RunOutcome> {
        let name = &request.artifact.name;
        let failed = |why: &dyn std::fmt::Display| {
            let text = format!("{name} build failed: {why}");
            RunOutcome::Failed(condition_reason::BUILD_FAILED, text, NextRunTrigger::default())
        };
        let sources = by_alias(&self.trees);
        let limits = TreeLimits::default();
        let inputs = BuildInputs { sources: &sources, tarballs: &SourceTarballReader, limits };
        let built = build(&request.artifact, &inputs, &mut self.meter);
        let built = built.map_err(|error| failed(&error))?;
        let steps = STEPS_PER_PACKED_BYTE.saturating_mul(built.files.bytes());
        self.meter.steps(steps).map_err(|error| failed(&error))?;
        let slot =
            ObjectFolder::new(FOLDER, &self.namespace, name).map_err(|error| failed(&error))?;
        let now = jiff::Timestamp::now();
        let before = self.before.iter().find(|entry| entry.name == *name);
        let archived = self.archived(&slot, &built, before, offered, now);
        let StoredArchive { file, sealed, is_stored } = archived.map_err(|why| failed(&why))?;
        let ArchiveDigest { digest, size } = sealed;
        let path = format!("{}/{file}", slot.path());
        self.room = self.room.checked_sub(size).ok_or_else(|| {
            let text = format!(
                "with it the artifacts of this ArtifactGenerator are larger than {MAX_STORED_BYTES} bytes; divide \
                 the ArtifactGenerator"
            );
            failed(&text)
        })?;
        let former = before.map(|entry| path_of(&slot, entry)).filter(|former| *former != path);
        let offered = offered.map(|artifact| artifact.path.as_str());
        let kept = former.as_deref().into_iter().chain(offered);
        let keep: Vec<&str> = kept.chain([path.as_str()]).collect();
        collect(&self.store, &slot, &keep);
        let RevisionAndOriginRevision { revision, origin } =
            revisions(&request.artifact, &digest, &self.observed);
        let artifact = Artifact {
            digest: digest.clone(),
            last_update_time: crds::Time(now),
            metadata: origin
                .map(|origin| (ORIGIN_REVISION.to_owned(), origin))
                .into_iter()
                .collect(),
            url: self.store.url(&path),
            path,
            revision,
            size: i64::try_from(size).ok(),
        };
        let namespace = self.namespace.clone();
        let entry = InventoryEntry { digest, filename: file, name: name.clone(), namespace };
        Ok(StoredGeneratedArtifact { entry, artifact, is_stored })
    }

    /// The archive of a tree. The archive of the last run is reused if its file has the same bytes.
    fn archived(
        &self,
        slot: &ObjectFolder,
        built: &ArtifactTree,
        before: Option<&InventoryEntry>,
        offered: Option<&Artifact>,
        now: Time,
    ) -> Result<StoredArchive, String> {
        let contents = contents(&built.files)?;
        let load = |_: &RelPath, path: &RelPath| built.files.read(path);
        if let Some(entry) = before.filter(|entry| built.may_be_in(&entry.filename)) {
            let same = self.same(entry, &path_of(slot, entry), &contents, load)?;
            if let Some(sealed) = same {
                return Ok(StoredArchive {
                    file: entry.filename.clone(),
                    sealed,
                    is_stored: false,
                });
            }
        }
        let mut file = built.file_name();
        let path = format!("{}/{file}", slot.path());
        if let Some(offered) = offered.filter(|artifact| artifact.path == path) {
            let digest = packed(&contents, load)?.digest;
            if digest != offered.digest {
                file = built.other_file_name(&digest);
            }
        }
        let stored = self
            .store
            .put(slot, &file, "", now, |out| archive::write(out, &contents, load).map(drop));
        let stored = stored.map_err(|error| chain(&error))?;
        let sealed = ArchiveDigest { digest: stored.digest, size: stored.size };
        Ok(StoredArchive { file, sealed, is_stored: true })
    }

    /// The archive of the last run, if its file has the bytes of the new archive.
    ///
    /// Equal file names do not prove that, since a name has only 32 bits and does not depend on execute bits.
    fn same<E>(
        &self,
        entry: &InventoryEntry,
        path: &str,
        contents: &ArchiveContents<RelPath>,
        load: impl Fn(&RelPath, &RelPath) -> Result<Arc<[u8]>, E>,
    ) -> Result<Option<ArchiveDigest>, String>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !self.store.verify(path, &entry.digest).unwrap_or_default() {
            return Ok(None);
        }
        let found = packed(contents, load)?;
        Ok(Some(found).filter(|found| found.digest == entry.digest))
    }
}

/// The digest of an archive, without writing the archive.
fn packed<E>(
    contents: &ArchiveContents<RelPath>,
    load: impl Fn(&RelPath, &RelPath) -> Result<Arc<[u8]>, E>,
) -> Result<ArchiveDigest, String>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let out = archive::write(DigestingWriter::new(io::sink()), contents, load);
    Ok(out.map_err(|error| chain(&error))?.finish().1)
}

/// The trees in the form of the engine.
fn by_alias(trees: &SourceTreesByAlias) -> SourceTrees<'_> {
    trees.iter().map(|(alias, tree)| (alias.as_str(), &**tree as &dyn FileTree)).collect()
}

/// What goes into the archive of a tree.
///
/// Parity(flux): what no source has by default is left out, and an ignore file in the tree is a file like others.
fn contents(files: &MemoryTree) -> Result<ArchiveContents<RelPath>, String> {
    let mut contents = ArchiveContents::new();
    for (path, metadata) in files.walk() {
        let added = match metadata {
            FileMetadata::Dir => contents.dir(path.clone()),
            FileMetadata::File { executable, .. } => {
                contents.file(path.clone(), executable, path.clone())
            }
        };
        added.map_err(|error| chain(&error))?;
    }
    contents.leave_out(&IgnoreMatcher::new(&[], None).map_err(|error| chain(&error))?);
    Ok(contents)
}

/// The reason why artifacts have to be made again. `None` if all artifacts are as the last run made them. Blocks.
pub(super) fn drift(
    store: &ArtifactStore,
    object: &ArtifactGenerator,
    spec: &GeneratorSpec,
    sources_digest: &str,
    external: &BTreeSet<ExternalArtifactState>,
) -> Option<ArtifactRebuildReason> {
    let inventory = inventory(object);
    let ready = object.condition(READY);
    let status = object.status.as_ref();
    let requested = CurrentGeneratorInputs {
        spec,
        generation: object.metadata.generation.unwrap_or_default(),
        sources_digest,
    };
    let last = LastGeneratorRun {
        // A run that was interrupted has left it Unknown.
        is_failed: ready.is_none_or(|it| it.status != "True"),
        observed_generation: ready.and_then(|it| it.observed_generation).unwrap_or_default(),
        sources_digest: status
            .and_then(|it| it.observed_sources_digest.as_deref())
            .unwrap_or_default(),
        inventory: &inventory,
    };
    artifactgen::drift(requested, last, |entry| stored(store, object, entry), external)
}

/// Whether the file of an artifact is in the store and intact. A damaged file is removed.
fn stored(
    store: &ArtifactStore,
    object: &ArtifactGenerator,
    entry: &InventoryEntry,
) -> StoredArchiveFile {
    let Ok(slot) = slot(object, &entry.name) else { return StoredArchiveFile::Missing };
    let path = path_of(&slot, entry);
    match store.verify(&path, &entry.digest) {
        Ok(true) => StoredArchiveFile::Intact,
        Ok(false) if store.open_file(&path).is_err() => StoredArchiveFile::Missing,
        Ok(false) => {
            drop(store.remove_file(&path));
            StoredArchiveFile::Corrupt
        }
        // An unreadable file is written again, or the disk reports the reason.
        Err(_) => StoredArchiveFile::Corrupt,
    }
}

/// Removes files of former artifacts of a generator. Blocks.
pub(super) fn collect_garbage(store: &ArtifactStore, object: &ArtifactGenerator) {
    for entry in inventory(object) {
        if let Ok(slot) = slot(object, &entry.name) {
            let path = path_of(&slot, &entry);
            collect(store, &slot, &[path.as_str()]);
        }
    }
}

fn collect(store: &ArtifactStore, slot: &ObjectFolder, keep: &[&str]) {
    if let Err(error) = store.collect_garbage(slot, keep, jiff::Timestamp::now()) {
        tracing::info!(slot = slot.path(), error = chain(&error), "failed to remove old artifacts");
    }
}

/// Removes all files of an artifact that the generator does not make any more.
pub(super) async fn remove_files(
    store: &Arc<ArtifactStore>,
    object: &ArtifactGenerator,
    name: &str,
) {
    let store = store.clone();
    let slot = slot(object, name);
    let removed =
        tokio::task::spawn_blocking(move || slot.and_then(|slot| store.remove(&slot))).await;
    if let Ok(Err(error)) = removed {
        tracing::error!(name, error = %error, "failed to remove artifacts");
    }
}

#[cfg(test)]
mod tests;
