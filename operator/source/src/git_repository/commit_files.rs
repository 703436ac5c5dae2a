//! The files that the artifact of a GitRepository would have at another commit, for comparing commits.
//!
//! Nothing is stored. Elsewhere: artifacts themselves (`executor.rs`), which files they have (`artifact_file_selection.rs`),
//! comparing (`pull_request_approval`).

use std::sync::Arc;

use artifacts::archive::ArchiveContents;
use crds::source::GitRepository;
use git::{FetchedCheckout, GitReference, RequestedCommitContent, SparseCheckout};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome};
use sources::source_condition_reasons::{ARCHIVE_OPERATION_FAILED, GIT_OPERATION_FAILED};
use tree::{MemoryTree, TreeLimits};

use super::artifact_file_selection::{FileBodyLocation, contents, load};
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::git_remote_access::{GitRemoteSecrets, classify, operation_context};
use windlass_runtime::run_context::RunContext;

/// A commit of a source.
#[derive(Debug, Clone)]
pub(crate) struct SourceCommit {
    /// The files that the artifact of the source would have.
    pub(crate) files: Arc<MemoryTree>,
    /// The commits that it follows, the first one first.
    pub(crate) parents: Vec<String>,
}

/// Fetches a commit with the connection settings of the GitRepository, and selects files as for its artifact. Files that it
/// includes from other repositories are left out.
///
/// # Errors
/// The commit cannot be fetched. The text contains no value of a Secret.
pub(crate) async fn commit_files(
    context: &Arc<RunContext>,
    object: &Arc<GitRepository>,
    commit: &str,
) -> Result<SourceCommit, String> {
    let fetched = fetch(context, object.clone(), commit.to_owned()).await;
    fetched.map_err(|outcome| outcome.text().to_owned())
}

async fn fetch(
    context: &Arc<RunContext>,
    object: Arc<GitRepository>,
    commit: String,
) -> Result<SourceCommit, RunOutcome> {
    // The runs of the GitRepository watch its Secrets.
    let mut references = RunReferenceReads::new(&context.watcher);
    let secrets = GitRemoteSecrets::read(&object, &mut references).await?;
    let remote = secrets.remote(&object.spec)?;
    let sparse = SparseCheckout::parse(&object.spec.sparse_checkout);
    let sparse = sparse.map_err(|error| classify(&error))?;
    let content = RequestedCommitContent { submodules: object.spec.recurse_submodules, sparse };
    let reference = GitReference::Commit { sha: commit, branch: None, name: None };
    let working = operation_context(context);
    let permit = context.fetching.acquire(&object.namespace().unwrap_or_default()).await;
    let work = move || {
        let checkout = git::checkout(&remote, &reference, &content, &working);
        let checkout = checkout.map_err(|error| classify(&error))?;
        let parents = checkout.parents().map_err(|error| classify(&error))?;
        let ignore = object.spec.ignore.as_deref();
        let contents = contents(&checkout, &[], ignore, &remote.limits)?;
        let files = files(&checkout, &contents)?;
        Ok(SourceCommit { files: Arc::new(files), parents })
    };
    let fetched = blocking(GIT_OPERATION_FAILED, "fetching", work).await;
    drop(permit);
    fetched
}

/// The files of an archive, in memory.
fn files(
    checkout: &FetchedCheckout,
    contents: &ArchiveContents<FileBodyLocation>,
) -> Result<MemoryTree, RunOutcome> {
    let failed = |error: tree::TreeBuildError| {
        let text = error.to_string();
        RunOutcome::Failed(ARCHIVE_OPERATION_FAILED, text, NextRunTrigger::default())
    };
    let mut builder = MemoryTree::builder(TreeLimits::default());
    for (path, location) in contents.files() {
        let body = load(checkout, location)?;
        // Builds do not distinguish files that may be run.
        builder.file(path, body, false).map_err(failed)?;
    }
    Ok(builder.build())
}
