//! Git repositories: what a remote has, and one commit of it with its files.
//!
//! Here: the two questions, [`tip`] and [`fetch`], over HTTP(S) and SSH; [`checkout`] is a fetch with submodules and
//! without what is not wanted; [`push`] makes commits on top of a fetch and sends them.
//! Elsewhere: turning files into an artifact ([`crate::archive`]), deciding when to ask (the program's `controllers` room).
//!
//! ```text
//! Remote, Reference ──▶ conversation ──▶ smart_http │ ssh ──▶ wire (deadline, limit, cancellation)
//!                      │  │  │
//!         lookup: a tip ◀┘  │  └─▶ a pack in a scratch folder ──▶ snapshot: Fetched ──▶ checkout
//!                     known ◀┘
//! ```
//!
//! gix implements the protocol; the transports under it are in this module. No configuration of a user or system is
//! read, and no program is run.

mod checkout;
mod conversation;
mod credentials;
mod error;
mod known_hosts;
mod lookup;
pub mod push;
mod reference;
mod reference_name;
mod remote;
pub mod revision;
pub(crate) mod server_cache;
mod signed_objects;
mod smart_http;
mod snapshot;
mod sparse;
mod ssh;
mod submodules;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gix::hash::ObjectId;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use checkout::{Checkout, CheckoutItem, Content, checkout};
pub use credentials::{Auth, Credentials};
pub use error::Error;
pub use reference::{Reference, Tip};
pub use reference_name::named;
pub use remote::{RemoteUrl, Scheme};
pub use revision::Revision;
pub use server_cache::GitServerCache;
pub use signed_objects::{Signable, SignableTag};
pub use snapshot::{Commit, GitSnapshot, Listing, TreeEntry, TreeEntryKind};
pub use sparse::Sparse;

pub(crate) use remote::percent_decoded;

use conversation::{Conversation, History};
use lookup::{Sought, look_up, remember};
use reference::RemoteReferenceQuery;
use signed_objects::Tag;
use snapshot::ReceivedCommit;
use wire::Wire;

use crate::http::Proxy;

/// A repository and everything that a connection to it needs.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Where it is.
    pub url: RemoteUrl,
    /// The credentials, and the trusted hosts or authorities.
    pub credentials: Credentials,
    /// The proxy; without one, that of the environment. HTTP only.
    pub proxy: Option<Proxy>,
    /// What one [`tip`] or [`fetch`] may take, from connecting to the last byte; a day at most.
    pub timeout: Duration,
    /// How much is taken.
    pub limits: GitLimits,
}

/// How much is taken from a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitLimits {
    /// Bytes received in one operation, after decompression by HTTP.
    pub received: u64,
    /// Files and folders in the tree.
    pub entries: usize,
    /// Bytes of one file; also of any object that is received.
    pub file: u64,
    /// Bytes of all the files that are read.
    pub total: u64,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self { received: 1 << 30, entries: 200_000, file: 128 << 20, total: 1 << 30 }
    }
}

/// What an operation works with.
#[derive(Debug, Clone)]
pub struct Context {
    /// Where connections are driven; not from within a future, since [`tip`] and [`fetch`] block.
    pub runtime: Handle,
    /// Ends the operation early.
    pub cancel: CancellationToken,
    /// A folder in which a scratch repository may be made; it is created where it is missing.
    pub scratch: PathBuf,
    /// What earlier operations learned about servers; the same one for all operations.
    pub known: Arc<GitServerCache>,
}

/// What the remote has now, in one small exchange: for a name only matching references are sent, for a range of
/// versions all tags. Tags of one version take another, once, to learn which commit is the youngest.
///
/// Over HTTP that is a handshake and a question; the question alone where [`Context::known`] remembers a handshake
/// of protocol 2 that was not redirected. If that is not answered as it should be, it is both.
/// For a bare commit nothing is sent: what it is cannot change.
///
/// # Errors
/// [`Error::NoSuchRef`], or why the server could not be asked.
pub fn tip(remote: &Remote, reference: &Reference, context: &Context) -> Result<Tip, Error> {
    let wire = Wire::new(remote, context);
    let look = |sought| lookup::look(remote, &sought, reference, context, &wire);
    let found = match reference.wanted()? {
        RemoteReferenceQuery::Commit(id) => {
            return Ok(Tip { sha: id.to_string(), refname: String::new() });
        }
        RemoteReferenceQuery::CommitOn(id, refname) => {
            return Ok(Tip { sha: id.to_string(), refname });
        }
        RemoteReferenceQuery::Named(name) => look(Sought::Name(&name))?,
        RemoteReferenceQuery::Highest(range) => look(Sought::Highest(&range))?,
    };
    Ok(Tip { sha: found.id.to_string(), refname: found.name })
}

/// Fetches one commit without its history, and reads its metadata.
///
/// A commit with a branch takes the branch's history, unless it is the tip: only the history tells
/// whether the branch leads to it. If a server does not give a bare commit, everything is fetched to look for it.
///
/// # Errors
/// The reference is not there, or the server does not give it.
pub fn fetch(
    remote: &Remote,
    reference: &Reference,
    context: &Context,
) -> Result<GitSnapshot, Error> {
    let wanted = reference.wanted()?;
    let wire = Wire::new(remote, context);
    let scratch = scratch_repository(context)?;
    let known = &context.known;
    let mut conversation = Conversation::open(remote, known, &wire)?;
    let mut refname = String::new();
    let mut tag = None;
    let mut take = |conversation: &mut Conversation, sought: Sought<'_>| {
        let found = look_up(conversation, &sought, reference, &wire)?;
        remember(conversation, remote, known);
        let found = lookup::newest(found, remote, context, &wire)?;
        let wanted = found.tag.unwrap_or(found.id);
        receive(conversation, &[wanted], History::None, &scratch, remote)?;
        (refname, tag) = (found.name, found.tag);
        Ok::<_, Error>(found.id)
    };
    let id = match wanted {
        RemoteReferenceQuery::Named(name) => take(&mut conversation, Sought::Name(&name))?,
        RemoteReferenceQuery::Highest(range) => take(&mut conversation, Sought::Highest(&range))?,
        RemoteReferenceQuery::CommitOn(id, name) => {
            let branch = Reference::Branch(name.trim_start_matches("refs/heads/").to_owned());
            let found = look_up(&mut conversation, &Sought::Name(&name), &branch, &wire)?;
            let tip = lookup::newest(found, remote, context, &wire)?.id;
            let history = if tip == id { History::None } else { History::All };
            receive(&mut conversation, &[tip], history, &scratch, remote)?;
            if tip != id && !leads_to(tip, id, &scratch, remote, &wire)? {
                let remote = wire.remote();
                let sha = id.to_string();
                let branch = name.trim_start_matches("refs/heads/").to_owned();
                return Err(Error::NotOnBranch { remote, sha, branch });
            }
            id
        }
        RemoteReferenceQuery::Commit(id) => {
            match receive(&mut conversation, &[id], History::None, &scratch, remote) {
                Err(Error::Refused { .. }) => {
                    receive_everything(remote, known, &wire, &scratch)?;
                }
                otherwise => otherwise?,
            }
            id
        }
    };
    drop(conversation);
    let objects = snapshot::objects(&scratch, &remote.limits)?;
    match kind_of(id, &objects) {
        Some(gix::objs::Kind::Commit) => {}
        Some(_) | None => return Err(no_such(reference, &wire)),
    }
    let tag = Tag::of(&refname, tag, id, &objects, &wire)?;
    let revision = Revision::new(reference, &Tip { sha: id.to_string(), refname });
    let received = ReceivedCommit { id, tag, objects, scratch };
    GitSnapshot::load(revision, received, remote.limits, &wire)
}

fn scratch_repository(context: &Context) -> Result<TempDir, Error> {
    let failed = |source| Error::Scratch { path: context.scratch.clone(), source };
    std::fs::create_dir_all(&context.scratch).map_err(failed)?;
    let scratch = tempfile::Builder::new().prefix("git-").tempdir_in(&context.scratch);
    let scratch = scratch.map_err(failed)?;
    std::fs::create_dir_all(scratch.path().join("objects/pack")).map_err(failed)?;
    Ok(scratch)
}

fn receive(
    conversation: &mut Conversation,
    wants: &[ObjectId],
    history: History,
    scratch: &TempDir,
    remote: &Remote,
) -> Result<(), Error> {
    conversation.fetch(wants, history, scratch.path(), remote.limits.file)
}

/// Fetches all branches and tags, over a new connection: the old one ended with the server's refusal.
fn receive_everything(
    remote: &Remote,
    known: &GitServerCache,
    wire: &Wire,
    scratch: &TempDir,
) -> Result<(), Error> {
    let mut conversation = Conversation::open(remote, known, wire)?;
    let found = conversation.references(&["refs/heads/", "refs/tags/"])?;
    let mut wants: Vec<ObjectId> = found.into_iter().map(|found| found.id).collect();
    wants.sort_unstable();
    wants.dedup();
    if wants.is_empty() {
        return Err(Error::EmptyRepository { remote: wire.remote() });
    }
    receive(&mut conversation, &wants, History::All, scratch, remote)
}

fn no_such(reference: &Reference, wire: &Wire) -> Error {
    Error::NoSuchRef { remote: wire.remote(), reference: reference.to_string() }
}

fn kind_of(id: ObjectId, objects: &gix::odb::Handle) -> Option<gix::objs::Kind> {
    use gix::odb::HeaderExt;
    objects.header(id).ok().map(|header| header.kind())
}

/// Whether a commit is among the ancestors of another.
fn leads_to(
    tip: ObjectId,
    wanted: ObjectId,
    scratch: &TempDir,
    remote: &Remote,
    wire: &Wire,
) -> Result<bool, Error> {
    let objects = snapshot::objects(scratch, &remote.limits)?;
    for ancestor in gix::traverse::commit::Simple::new(Some(tip), &objects) {
        wire.check()?;
        if ancestor.map_err(|error| wire.explain(&error))?.id == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}
