//! Asks a bucket for its revision, fetches its objects, and stores them as an artifact.

use std::sync::Arc;

use artifacts::archive::{self, ExtractOptions};
use crds::source::{Bucket, BucketStatus};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome};
use sources::bucket::{
    self, BucketFetchState, BucketListing, Error, PreviousArtifact, RemoteBucket, bucket_archive,
};
use sources::source_condition_reasons::{
    ARCHIVE_OPERATION_FAILED, AUTHENTICATION_FAILED, BUCKET_OPERATION_FAILED, URL_INVALID,
};

use crate::source::executor::{RemoteRevision, SourceRun, StoredArtifact, keep, slot};
use crate::source::{LATEST_ARCHIVE, busy, linked};
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;

/// The bucket to fetch, and the settings of its artifact.
pub(crate) struct BucketFetchSpec {
    pub(super) remote: RemoteBucket,
    /// The key of the bundle, if there is one.
    pub(super) bundle: Option<String>,
}

/// The result of asking the bucket.
pub(crate) enum BucketLookupResult {
    /// The objects, and the note of the former artifact.
    Objects(Box<(BucketListing, BucketFetchState)>),
    /// The bundle exists.
    Bundle,
}

/// The outcome of a run after a failed fetch.
pub(super) fn classify(error: &Error) -> RunOutcome {
    let text = chain(error);
    match error {
        Error::Endpoint(_) | Error::Account(_) => RunOutcome::Stalled(URL_INVALID, text),
        Error::NoCredentials { .. } | Error::BadSecret(_) | Error::Http(_) => {
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        }
        Error::Busy(said) => busy(BUCKET_OPERATION_FAILED, said),
        Error::Disk(_) => {
            RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, text, NextRunTrigger::default())
        }
        // A server may change without the spec, so the rest is tried again.
        _ => RunOutcome::Failed(BUCKET_OPERATION_FAILED, text, NextRunTrigger::default()),
    }
}

/// Reads the note beside the artifact. An unreadable note counts as empty.
async fn note(run: &Arc<SourceRun<Bucket>>) -> Result<BucketFetchState, RunOutcome> {
    let run = run.clone();
    blocking(BUCKET_OPERATION_FAILED, "reading the store", move || {
        let slot = slot(&*run.object).ok();
        let note = slot.and_then(|slot| run.context.artifacts.note(&slot).ok().flatten());
        Ok(note.map(|note| BucketFetchState::parse(&note)).unwrap_or_default())
    })
    .await
}

/// The revision that the bucket has now.
pub(super) async fn ask(
    run: &Arc<SourceRun<Bucket>>,
) -> Result<RemoteRevision<BucketLookupResult>, RunOutcome> {
    let (BucketFetchSpec { remote, bundle }, known) = (&run.work, &run.context.remotes.buckets);
    if let Some(key) = bundle {
        let revision = bucket_archive::ask(remote, key, known).await.map_err(|e| classify(&e))?;
        return Ok(RemoteRevision { revision, found: BucketLookupResult::Bundle });
    }
    let note = note(run).await?;
    let ignore = run.object.spec.ignore.as_deref();
    let listed = bucket::list(remote, ignore, &note, known).await.map_err(|e| classify(&e))?;
    let revision = listed.revision();
    Ok(RemoteRevision { revision, found: BucketLookupResult::Objects(Box::new((listed, note))) })
}

/// Fetches the changed objects, packs them and stores the artifact.
pub(super) async fn fetch(
    run: &Arc<SourceRun<Bucket>>,
    found: BucketLookupResult,
) -> Result<StoredArtifact<BucketStatus>, RunOutcome> {
    match found {
        BucketLookupResult::Objects(found) => {
            let (listed, note) = *found;
            objects(run, listed, note).await
        }
        BucketLookupResult::Bundle => bundled(run).await,
    }
}

/// The former artifact, if the note is about it.
async fn previous(
    run: &Arc<SourceRun<Bucket>>,
    note: BucketFetchState,
) -> Result<PreviousArtifact, RunOutcome> {
    let run = run.clone();
    blocking(BUCKET_OPERATION_FAILED, "reading the store", move || {
        let artifact = run.object.status.as_ref().and_then(|status| status.artifact.as_ref());
        let artifact = artifact.filter(|artifact| artifact.digest == note.artifact);
        let load = |artifact: &crds::Artifact| {
            let options = ExtractOptions::default();
            run.context.artifacts.load(&artifact.path, &artifact.digest, &options).ok()
        };
        Ok(PreviousArtifact { files: artifact.and_then(load), note })
    })
    .await
}

async fn objects(
    run: &Arc<SourceRun<Bucket>>,
    listed: BucketListing,
    note: BucketFetchState,
) -> Result<StoredArtifact<BucketStatus>, RunOutcome> {
    let previous = previous(run, note).await?;
    let remote = &run.work.remote;
    let known = &run.context.remotes.buckets;
    let fetched = bucket::fetch(remote, listed, previous, known).await;
    let fetched = fetched.map_err(|error| classify(&error))?;
    tracing::debug!(
        name = run.object.name_any(),
        namespace = run.object.namespace(),
        objects = fetched.count,
        downloaded = fetched.downloaded,
        "fetched objects"
    );
    let run = run.clone();
    blocking(ARCHIVE_OPERATION_FAILED, "packing the objects", move || {
        let message = message(&run, fetched.count);
        let artifact = keep(
            &run.context.artifacts,
            &*run.object,
            &file(&fetched.revision),
            &fetched.revision,
            |out| archive::write(out, &fetched.contents, |_, body| fetched.load(body)).map(drop),
        )?;
        let note = BucketFetchState { artifact: artifact.digest.clone(), ..fetched.note };
        let kept = slot(&*run.object)
            .and_then(|slot| run.context.artifacts.keep_note(&slot, &note.to_bytes()));
        if let Err(error) = kept {
            tracing::info!(
                name = run.object.name_any(),
                error = chain(&error),
                "failed to store the list of objects; the next change downloads all of them"
            );
        }
        let url = linked(&run.context.artifacts, &artifact, LATEST_ARCHIVE);
        Ok(StoredArtifact::new(artifact, message, move |status: &mut BucketStatus| {
            status.url.clone_from(&url);
        }))
    })
    .await
}

async fn bundled(run: &Arc<SourceRun<Bucket>>) -> Result<StoredArtifact<BucketStatus>, RunOutcome> {
    let (BucketFetchSpec { remote, bundle }, known) = (&run.work, &run.context.remotes.buckets);
    let key = bundle.as_deref().unwrap_or_default();
    let ignore = run.object.spec.ignore.as_deref();
    let bundle =
        bucket_archive::fetch(remote, key, ignore, known).await.map_err(|e| classify(&e))?;
    let run = run.clone();
    blocking(ARCHIVE_OPERATION_FAILED, "packing the bundle", move || {
        let message = message(&run, bundle.count);
        let artifact = keep(
            &run.context.artifacts,
            &*run.object,
            &file(&bundle.revision),
            &bundle.revision,
            |out| archive::write(out, &bundle.contents, |_, path| bundle.load(path)).map(drop),
        )?;
        let url = linked(&run.context.artifacts, &artifact, LATEST_ARCHIVE);
        Ok(StoredArtifact::new(artifact, message, move |status: &mut BucketStatus| {
            status.url.clone_from(&url);
        }))
    })
    .await
}

/// The name of the file that an artifact is kept in.
fn file(revision: &str) -> String {
    format!("{}.tar.gz", revision.strip_prefix("sha256:").unwrap_or(revision))
}

/// The text of the event.
fn message(run: &SourceRun<Bucket>, files: usize) -> String {
    let bucket = &run.work.remote.bucket;
    format!("stored artifact with {files} fetched files from '{bucket}' bucket")
}
