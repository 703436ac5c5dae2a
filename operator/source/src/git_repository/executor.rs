//! Asks a Git remote for its revision, fetches the commit, and collects the files of the artifact.

use std::collections::BTreeMap;
use std::sync::Arc;

use artifacts::archive::{self, ExtractOptions};
use artifacts::store::{self, ArtifactStore, NeededArtifact};
use changes::commit_metadata::CommitDescription;
use crds::Artifact;
use crds::source::{GitRepository, GitRepositoryStatus};
use git::{CommitMetadata, GitReference, GitRemote, GitRevision, RequestedCommitContent};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome};
use sources::source_condition_reasons::{COPY_FAILURE, GIT_OPERATION_FAILED, NO_ARTIFACT};
use tree::MemoryTree;

use super::artifact_file_selection::{contents, load};
use super::include::RepositoryInclude;
use super::verify::CommitVerification;
use crate::source::executor::{SourceRun, StoredArtifact, keep};
use crate::source::needed_artifact_refetch::keep_again;
use windlass_cluster::error::chain;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::git_remote_access::{classify, operation_context};

/// The commit to fetch, and the settings of its artifact.
pub(crate) struct GitFetchSpec {
    pub(super) remote: GitRemote,
    pub(super) reference: GitReference,
    pub(super) content: RequestedCommitContent,
    pub(super) include: Vec<RepositoryInclude>,
    /// The keys of the required signatures. `None` if the spec requires no signatures.
    pub(super) signed: Option<CommitVerification>,
}

/// The most bytes of all included artifacts, which are in memory at the same time.
const MOST_INCLUDED: u64 = 512 << 20;

/// The files of all included artifacts.
fn included<'i>(
    store: &ArtifactStore,
    includes: &'i [RepositoryInclude],
) -> Result<Vec<(&'i RepositoryInclude, Arc<MemoryTree>)>, RunOutcome> {
    let mut bytes = BTreeMap::new();
    let files = |include: &'i RepositoryInclude| {
        let RepositoryInclude { node, artifact, .. } = include;
        let failed = |why: String| {
            let text = format!("failed to copy '{}' include: {why}", node.name);
            RunOutcome::Failed(COPY_FAILURE, text, NextRunTrigger::default())
        };
        let loaded = store.load(&artifact.path, &artifact.digest, &ExtractOptions::default());
        let files = loaded.map_err(|error| match error {
            // The artifact is being replaced, or will be made again. Both wake this object.
            store::Error::Missing(_) | store::Error::Mismatch { .. } => {
                let text = format!("no artifact available for include '{}'", node.name);
                RunOutcome::Blocked(NO_ARTIFACT, text, NextRunTrigger::on([node.clone()]))
            }
            error => failed(chain(&error)),
        })?;
        bytes.insert(&artifact.digest, files.bytes());
        if bytes.values().sum::<u64>() > MOST_INCLUDED {
            let limit = MOST_INCLUDED >> 20;
            return Err(failed(format!(
                "the included artifacts are larger than {limit} MiB in total"
            )));
        }
        Ok((include, files))
    };
    includes.iter().map(files).collect()
}

/// The description of the commit in the artifact.
fn description(commit: &CommitMetadata) -> CommitDescription {
    let is_known = commit.authored != jiff::Timestamp::UNIX_EPOCH;
    CommitDescription {
        subject: commit.summary.clone(),
        author: commit.author.clone(),
        time: if is_known { commit.authored.to_string() } else { String::new() },
    }
}

/// Fetches the present commit of the remote, packs its files and stores the artifact. Blocks.
fn fetch_and_store(
    work: &GitFetchSpec,
    context: &git::GitOperationContext,
    store: &ArtifactStore,
    object: &GitRepository,
) -> Result<StoredArtifact<GitRepositoryStatus>, RunOutcome> {
    let GitFetchSpec { remote, reference, content, include, signed } = work;
    let included = included(store, include)?;
    let checkout = git::checkout(remote, reference, content, context);
    let checkout = checkout.map_err(|e| classify(&e))?;
    let verified = signed.as_ref().map(|signed| signed.verify(&checkout)).transpose()?;
    let unreadable = checkout.unreadable();
    if !unreadable.is_empty() {
        tracing::info!(
            name = object.name_any(),
            revision = %checkout.revision,
            count = unreadable.len(),
            paths = ?unreadable.iter().take(8).collect::<Vec<_>>(),
            "files whose names are not UTF-8 are excluded from the artifact"
        );
    }
    let ignore = object.spec.ignore.as_deref();
    let contents = contents(&checkout, &included, ignore, &remote.limits)?;
    let revision = checkout.revision.to_string();
    let file = format!("{}.tar.gz", checkout.commit.sha);
    let artifact = keep(store, object, &file, &revision, |out| {
        let load = |body: &_| load(&checkout, body).map_err(|outcome| outcome.text().to_owned());
        archive::write(out, &contents, |_, body| load(body)).map(drop)
    })?;
    let artifact = Artifact { metadata: description(&checkout.commit).metadata(), ..artifact };
    let included: Vec<_> = include.iter().map(|include| include.artifact.clone()).collect();
    let message = format!("stored artifact for commit '{}'", checkout.commit.short_summary());
    let stored = StoredArtifact::new(artifact, message, move |status: &mut GitRepositoryStatus| {
        status.included_artifacts.clone_from(&included);
    });
    Ok(StoredArtifact { verified, ..stored })
}

/// Fetches a commit again, and stores its artifact if the bytes are the same as before. Blocks.
fn fetch_and_store_again(
    run: &SourceRun<GitRepository>,
    context: &git::GitOperationContext,
    artifact: &NeededArtifact,
) -> Result<(), RunOutcome> {
    let GitFetchSpec { remote, reference, content, include, signed } = &run.work;
    let store = &run.context.artifacts;
    let object = &run.object;
    let sha = git::revision::hash(&artifact.revision);
    let branch = match reference {
        // A commit that has left the branch was not meant to be applied any more, and a fork may have it, too.
        GitReference::Branch(branch) => Some(branch.clone()),
        _ => None,
    };
    let commit = GitReference::Commit { sha: sha.to_owned(), branch, name: None };
    let included = included(store, include)?;
    let checkout = git::checkout(remote, &commit, content, context).map_err(|e| classify(&e))?;
    if let Some(signed) = signed {
        signed.verify(&checkout)?;
    }
    let ignore = object.spec.ignore.as_deref();
    let contents = contents(&checkout, &included, ignore, &remote.limits)?;
    keep_again(store, &**object, artifact, |out| {
        let load = |body: &_| load(&checkout, body).map_err(|outcome| outcome.text().to_owned());
        archive::write(out, &contents, |_, body| load(body)).map(drop)
    })
}

/// Fetches the commit of an earlier artifact again, and keeps that where it was.
pub(super) async fn fetch_again(
    run: &Arc<SourceRun<GitRepository>>,
    artifact: &NeededArtifact,
) -> Result<(), RunOutcome> {
    let working = operation_context(&run.context);
    let run = run.clone();
    let artifact = artifact.clone();
    let work = move || fetch_and_store_again(&run, &working, &artifact);
    blocking(GIT_OPERATION_FAILED, "fetching", work).await
}

/// The revision that the remote has now.
pub(super) async fn ask(run: &Arc<SourceRun<GitRepository>>) -> Result<String, RunOutcome> {
    let working = operation_context(&run.context);
    let run = run.clone();
    let tip = move || {
        let GitFetchSpec { remote, reference, .. } = &run.work;
        let tip = git::tip(remote, reference, &working).map_err(|e| classify(&e))?;
        Ok(GitRevision::new(reference, &tip).to_string())
    };
    blocking(GIT_OPERATION_FAILED, "reading the refs of the remote", tip).await
}

/// Fetches the present commit of the remote, packs its files and stores the artifact.
pub(super) async fn fetch(
    run: &Arc<SourceRun<GitRepository>>,
) -> Result<StoredArtifact<GitRepositoryStatus>, RunOutcome> {
    let working = operation_context(&run.context);
    let run = run.clone();
    let work = move || fetch_and_store(&run.work, &working, &run.context.artifacts, &run.object);
    blocking(GIT_OPERATION_FAILED, "fetching", work).await
}
