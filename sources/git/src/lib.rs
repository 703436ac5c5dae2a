//! Git repositories: finds the commit of a reference at a remote, and fetches one commit with its files.
//!
//! Here: the two requests, [`tip`] and [`fetch`], over HTTP(S) and SSH. [`checkout`] is a fetch with submodules and a sparse
//! selection. [`push`] makes commits on top of a fetch and sends them. [`ReadOnlyLocalRepository`] is on this disk.
//! Elsewhere: turning files into an artifact (`artifacts::archive`), deciding when to ask (the program's `controllers` room).
//!
//! ```text
//! Remote, Reference ──▶ conversation ──▶ smart_http │ ssh ──▶ wire (deadline, limit, cancellation)
//!                      │  │  │
//!         lookup: a tip ◀┘  │  └─▶ a pack in a scratch folder ──▶ GitSnapshot ──▶ checkout
//!                     known ◀┘
//! ```
//!
//! gix implements the protocol, and this crate implements the transports under it. It reads no configuration of a user or the
//! system, and runs no program.

mod commit_snapshot;
mod commit_with_submodules;
mod credentials;
mod error;
mod git_connection;
mod gitmodules_file;
mod known_hosts;
mod local_repository;
mod operation_limits;
mod private_key;
pub mod push;
mod reference;
mod reference_lookup;
mod remote_url;
pub mod revision;
mod server_cache;
mod signed_objects;
mod smart_http;
mod sparse_checkout;
mod ssh;
mod unqualified_reference;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gix::hash::ObjectId;
use gix::odb::HeaderExt as _;
use http_client::HttpProxy;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use commit_snapshot::{
    CommitMetadata, CommitTreeListing, GitSnapshot, TreeEntry, TreeEntryKind,
};
pub use commit_with_submodules::{CheckoutItem, FetchedCheckout, RequestedCommitContent, checkout};
pub use credentials::{GitAuth, GitCredentials};
pub use error::Error;
pub use local_repository::{LocalRepositoryError, ReadOnlyLocalRepository};
pub use reference::{GitReference, ReferenceTip};
pub use remote_url::{RemoteScheme, RemoteUrl};
pub use revision::GitRevision;
pub use server_cache::GitServerCache;
pub use signed_objects::{SignableObjects, SignableTag};
pub use sparse_checkout::SparseCheckout;
pub use unqualified_reference::named;

use commit_snapshot::ReceivedCommit;
use git_connection::AdvertisedReference;
use operation_limits::GitOperation;
use reference::RemoteReferenceQuery;
use reference_lookup::{FetchRequest, GitFetchOperation};
use signed_objects::ResolvedTag;

/// A repository and everything that a connection to it needs.
#[derive(Debug, Clone)]
pub struct GitRemote {
    /// The URL of the repository.
    pub url: RemoteUrl,
    /// The credentials, and the trusted hosts or authorities.
    pub credentials: GitCredentials,
    /// The proxy for HTTP. `None` stands for the proxy of the environment.
    pub proxy: Option<HttpProxy>,
    /// The time limit of one [`tip`] or [`fetch`], from connecting to the last byte. More than a day counts as a day.
    pub timeout: Duration,
    /// The limits on received and read bytes.
    pub limits: GitLimits,
}

/// The most bytes that one operation receives from a remote, and reads of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitLimits {
    /// Bytes received in one operation, after decompression by HTTP.
    pub received: u64,
    /// Files and folders in the tree.
    pub entries: usize,
    /// The most bytes of one file, and of any other received object.
    pub file: u64,
    /// Bytes of all the files that are read.
    pub total: u64,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self { received: 1 << 30, entries: 200_000, file: 128 << 20, total: 1 << 30 }
    }
}

/// The runtime, the scratch folder and the cache that an operation uses.
#[derive(Debug, Clone)]
pub struct GitOperationContext {
    /// The runtime that drives connections. Do not call [`tip`] or [`fetch`] in a future, because they block.
    pub runtime: Handle,
    /// Ends the operation early.
    pub cancel: CancellationToken,
    /// The folder for scratch repositories. It is created if it is missing.
    pub scratch: PathBuf,
    /// The cache of facts about servers. All operations use the same one.
    pub known: Arc<GitServerCache>,
}

/// Finds the present commit of a reference at the remote. For a name, the server sends only matching references. For a range
/// of versions it sends all tags. If several tags are the same version, a second exchange finds the youngest commit, and its
/// result is remembered.
///
/// Over HTTP that takes a handshake and one request. The handshake is left out if [`GitOperationContext::known`] remembers one
/// of protocol 2 without a redirect; if the server then does not list the reference, a new handshake follows. For a bare
/// commit nothing is sent, because it cannot change.
///
/// # Errors
/// [`Error::NoSuchRef`], or why the server could not be asked.
pub fn tip(
    remote: &GitRemote,
    reference: &GitReference,
    context: &GitOperationContext,
) -> Result<ReferenceTip, Error> {
    match reference.wanted()? {
        RemoteReferenceQuery::Commit(id) | RemoteReferenceQuery::CommitAnywhere(id) => {
            Ok(ReferenceTip { sha: id.to_string(), refname: String::new() })
        }
        RemoteReferenceQuery::CommitOn(id, refname) => {
            Ok(ReferenceTip { sha: id.to_string(), refname })
        }
        query @ (RemoteReferenceQuery::Named(_) | RemoteReferenceQuery::Highest(_)) => {
            let wire = &GitOperation::new(remote, context);
            let found = GitFetchOperation { remote, reference, context, wire }.look(&query)?;
            Ok(ReferenceTip { sha: found.id.to_string(), refname: found.name })
        }
    }
}

/// Fetches one commit without its history, and reads its metadata.
///
/// For a commit with a branch, the history of the branch is fetched, unless the commit is the tip: only the history
/// shows whether the branch contains the commit. If the server refuses a commit that is requested by its hash alone,
/// all branches and tags are fetched to find it.
///
/// # Errors
/// The reference is not there, or the server does not give it.
pub fn fetch(
    remote: &GitRemote,
    reference: &GitReference,
    context: &GitOperationContext,
) -> Result<GitSnapshot, Error> {
    let mut query = reference.wanted()?;
    let wire = &GitOperation::new(remote, context);
    let operation = GitFetchOperation { remote, reference, context, wire };
    let scratch = scratch_repository(context)?;
    let FetchRequest { wants, target, .. } = loop {
        let mut conversation = operation.open()?;
        let request = operation.fetch_request(&query, &mut conversation)?;
        let FetchRequest { wants, history, .. } = &request;
        let sent = conversation.fetch(wants, *history, scratch.path(), remote.limits.file);
        match (&sent, &query) {
            // The server does not give a commit by its hash alone, and the connection ended with its refusal.
            (Err(Error::Refused { .. }), RemoteReferenceQuery::Commit(id)) => {
                query = RemoteReferenceQuery::CommitAnywhere(*id);
            }
            _ => {
                sent?;
                break request;
            }
        }
    };
    let AdvertisedReference { name: refname, id, tag } = target;
    if let RemoteReferenceQuery::CommitOn(_, name) = &query
        && let [tip] = wants[..]
        && tip != id
        && !leads_to(tip, id, &scratch, remote, wire)?
    {
        let branch = name.trim_start_matches("refs/heads/").to_owned();
        return Err(Error::NotOnBranch { remote: wire.remote(), sha: id.to_string(), branch });
    }
    let objects = commit_snapshot::objects(&scratch, &remote.limits)?;
    if objects.header(id).ok().map(|header| header.kind()) != Some(gix::objs::Kind::Commit) {
        return Err(no_such(reference, wire));
    }
    let tag = ResolvedTag::of(&refname, tag, id, &objects, wire)?;
    let revision = GitRevision::new(reference, &ReferenceTip { sha: id.to_string(), refname });
    let received = ReceivedCommit { id, tag, objects, scratch };
    GitSnapshot::load(revision, received, remote.limits, wire)
}

fn scratch_repository(context: &GitOperationContext) -> Result<TempDir, Error> {
    let failed = |source| Error::Scratch { path: context.scratch.clone(), source };
    std::fs::create_dir_all(&context.scratch).map_err(failed)?;
    let scratch = tempfile::Builder::new().prefix("git-").tempdir_in(&context.scratch);
    let scratch = scratch.map_err(failed)?;
    std::fs::create_dir_all(scratch.path().join("objects/pack")).map_err(failed)?;
    Ok(scratch)
}

fn no_such(reference: &GitReference, wire: &GitOperation) -> Error {
    Error::NoSuchRef { remote: wire.remote(), reference: reference.to_string() }
}

/// Whether a commit is among the ancestors of another.
fn leads_to(
    tip: ObjectId,
    wanted: ObjectId,
    scratch: &TempDir,
    remote: &GitRemote,
    wire: &GitOperation,
) -> Result<bool, Error> {
    let objects = commit_snapshot::objects(scratch, &remote.limits)?;
    for ancestor in gix::traverse::commit::Simple::new(Some(tip), &objects) {
        wire.check()?;
        if ancestor.map_err(|error| wire.explain(&error))?.id == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}
