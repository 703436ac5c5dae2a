//! Downloads the file of an HTTPArchive from its web server, and packs it as an artifact.

use std::sync::Arc;

use artifacts::archive;
use crds::windlass_source::{HTTPArchive, HTTPArchiveStatus};
use reconcile::{NextRunTrigger, RunOutcome};
use sources::fetch_plan::KeptArtifact;
use sources::http_archive::{
    self, ArchiveEtagAndLastModified, Error, HttpArchiveFetchResult, RemoteHttpArchive,
};
use sources::source_condition_reasons::{
    ARCHIVE_OPERATION_FAILED, AUTHENTICATION_FAILED, URL_INVALID, VERIFICATION_ERROR,
};
use tree::{FileTree as _, MemoryTree};

use super::RenewedArchiveValidators;
use crate::source::busy;
use crate::source::executor::{RemoteRevision, SourceRun, StoredArtifact, keep};
use windlass_cluster::error::chain;
use windlass_cluster::object_store::StateCache;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::controller_kind::node_of;

/// The file to fetch, and the settings of its artifact.
pub(crate) struct HttpFetchSpec {
    pub(super) remote: RemoteHttpArchive,
}

/// A downloaded archive whose files are unpacked in memory.
pub(crate) struct HttpArchiveDownload {
    tree: MemoryTree,
    revision: String,
    digest: String,
    validators: ArchiveEtagAndLastModified,
}

const FETCHING_FAILED: reconcile::ConditionReason =
    reconcile::ConditionReason::new("HTTPOperationFailed");

/// The outcome of a failed fetch.
fn classify(error: &Error) -> RunOutcome {
    let text = chain(error);
    match error {
        Error::InvalidUrl { .. } | Error::InvalidDigest(_) => {
            RunOutcome::Stalled(URL_INVALID, text)
        }
        Error::BadSecret(_) | Error::AuthenticationFailed { .. } => {
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        }
        Error::Mismatch { .. } => {
            RunOutcome::Failed(VERIFICATION_ERROR, text, NextRunTrigger::default())
        }
        Error::Busy(said) => busy(FETCHING_FAILED, said),
        // A server or a file may change without the spec, so the rest is tried again.
        _ => RunOutcome::Failed(FETCHING_FAILED, text, NextRunTrigger::default()),
    }
}

/// The validators with which the server detects whether the file has changed. `None` if no validators of the kept artifact are
/// known.
fn validators(
    run: &SourceRun<HTTPArchive>,
    kept: &KeptArtifact,
) -> Option<ArchiveEtagAndLastModified> {
    let memory =
        run.context.shared::<StateCache<RenewedArchiveValidators>>().of(&node_of(&*run.object));
    let learned = memory.lock();
    if learned.of == (kept.revision.clone(), run.work.remote.url().to_string()) {
        return Some(learned.validators.clone());
    }
    let status = run.object.status.as_ref()?;
    let is_of_kept = status.artifact.as_ref().is_some_and(|it| it.revision == kept.revision);
    let etag = status.etag.clone();
    let last_modified = status.last_modified.clone();
    is_of_kept.then_some(ArchiveEtagAndLastModified { etag, last_modified })
}

/// Asks the server for the file, on the condition that it differs from the stored one, and unpacks it.
pub(super) async fn ask(
    run: &Arc<SourceRun<HTTPArchive>>,
    kept: Option<&KeptArtifact>,
) -> Result<RemoteRevision<Option<HttpArchiveDownload>>, RunOutcome> {
    let context = &run.context;
    let remote = &run.work.remote;
    let known = kept.and_then(|kept| validators(run, kept));
    let answer =
        http_archive::ask(remote, known.as_ref(), &context.remotes.http, &context.remotes.budgets)
            .await;
    let download = match (answer.map_err(|error| classify(&error))?, kept) {
        (HttpArchiveFetchResult::Found(download), _) => download,
        (HttpArchiveFetchResult::Unchanged, Some(kept)) => {
            return Ok(RemoteRevision { revision: kept.revision.clone(), found: None });
        }
        // Without a stored file, the request has no condition.
        (HttpArchiveFetchResult::Unchanged, None) => {
            let text = format!("unexpected response with HTTP status 304 from `{}`", remote.url());
            return Err(RunOutcome::Failed(FETCHING_FAILED, text, NextRunTrigger::default()));
        }
    };
    let found = blocking(FETCHING_FAILED, "extracting the file", move || {
        let digest = download.digest.clone();
        let validators = download.validators.clone();
        let tree = http_archive::unpack(download).map_err(|error| classify(&error))?;
        let revision = http_archive::revision(&tree);
        Ok(HttpArchiveDownload { tree, revision, digest, validators })
    })
    .await?;
    let memory =
        context.shared::<StateCache<RenewedArchiveValidators>>().of(&node_of(&*run.object));
    let mut learned = memory.lock();
    learned.of = (found.revision.clone(), remote.url().to_string());
    learned.validators = found.validators.clone();
    drop(learned);
    Ok(RemoteRevision { revision: found.revision.clone(), found: Some(found) })
}

/// Packs the downloaded files and stores the artifact.
pub(super) async fn fetch(
    run: &Arc<SourceRun<HTTPArchive>>,
    found: Option<HttpArchiveDownload>,
) -> Result<StoredArtifact<HTTPArchiveStatus>, RunOutcome> {
    // An unchanged file is not fetched.
    let nothing = || {
        let text = "the server did not send the file, retrying".to_owned();
        RunOutcome::Failed(FETCHING_FAILED, text, NextRunTrigger::default())
    };
    let HttpArchiveDownload { tree, revision, digest, validators } = found.ok_or_else(nothing)?;
    let run = run.clone();
    blocking(ARCHIVE_OPERATION_FAILED, "packing", move || {
        let failed = |error: &dyn std::error::Error| {
            RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, chain(error), NextRunTrigger::default())
        };
        let ignore = run.object.spec.ignore.as_deref();
        let contents = http_archive::contents(&tree, ignore).map_err(|error| failed(&*error))?;
        let hex = revision.rsplit(':').next().unwrap_or(&revision);
        let file = format!("{hex}.tar.gz");
        let artifact = keep(&run.context.artifacts, &*run.object, &file, &revision, |out| {
            archive::write(out, &contents, |_, path| tree.read(path)).map(drop)
        })?;
        let ArchiveEtagAndLastModified { etag, last_modified } = validators;
        let message =
            format!("stored artifact for revision '{revision}' of a file with digest {digest}");
        Ok(StoredArtifact::new(artifact, message, move |status: &mut HTTPArchiveStatus| {
            status.etag.clone_from(&etag);
            status.last_modified.clone_from(&last_modified);
        }))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::report::FETCH_FAILED;

    #[test]
    fn what_fails_is_tried_again_unless_only_the_spec_can_help() {
        let stalled = classify(&Error::InvalidDigest("x".to_owned()));
        assert!(matches!(stalled, RunOutcome::Stalled(URL_INVALID, _)), "{stalled:?}");
        let url = "https://h/a".to_owned();
        let refused = classify(&Error::AuthenticationFailed { url: url.clone(), status: 401 });
        assert_eq!(refused.reason(), AUTHENTICATION_FAILED);
        let missing = classify(&Error::Status { url, status: 404 });
        assert!(matches!(missing, RunOutcome::Failed(FETCHING_FAILED, ..)), "{missing:?}");
        assert_eq!(crate::http_archive::failure(missing.reason()), FETCH_FAILED);
        let expected = format!("sha256:{}", "0".repeat(64));
        let mismatch = classify(&Error::Mismatch { url: "https://h/a".to_owned(), expected });
        assert!(matches!(mismatch, RunOutcome::Failed(VERIFICATION_ERROR, ..)), "{mismatch:?}");
        let until = "2026-11-22T10:00:00Z".parse().unwrap();
        let said = http_client::HostBusyError {
            host: "h:443".to_owned(),
            until,
            status: 429,
            is_tried: false,
        };
        let busy = classify(&Error::Busy(said));
        assert_eq!(busy.wake().and_then(NextRunTrigger::earliest), Some(until));
        assert_eq!(
            busy.text(),
            "h:443 responded with HTTP status 429; next request at 2026-11-22T10:00:00Z"
        );
    }
}
