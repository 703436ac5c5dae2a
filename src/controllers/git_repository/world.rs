//! The world of a GitRepository: its remote and the artifact store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crds::source::GitRepository;
use crds::{Artifact, Source as _};
use kube::core::ResourceExt as _;
use reconcile::{Rest, Wake};
use sources::archive::{self, Contents};
use sources::git::{Entry, Fetched, Kind, Listing, Reference, Remote, Revision};
use sources::ignore::{IGNORE_FILE, Matcher};
use sources::plan::{Desired, Fetching, Kept, Observed, Step};
use sources::reason::{
    ARCHIVE_OPERATION_FAILED, AUTHENTICATION_FAILED, GIT_OPERATION_FAILED, URL_INVALID,
};
use sources::store::{self, Slot, Store};
use tokio_util::sync::CancellationToken;
use tree::RelPath;

use crate::cluster::error::chain;
use crate::controllers::context::Context;

/// An artifact that this run stored.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) artifact: Artifact,
    /// First line of the commit's message, cut short.
    pub(super) subject: String,
}

/// See the module.
pub(super) struct World {
    context: Arc<Context>,
    object: Arc<GitRepository>,
    remote: Arc<Remote>,
    reference: Reference,
    stored: Mutex<Option<Stored>>,
}

/// Where the artifacts of an object are kept.
///
/// # Errors
/// When a name could leave the store, which the API server does not let happen.
pub(super) fn slot(object: &GitRepository) -> Result<Slot, store::Error> {
    Slot::new("gitrepository", &object.namespace().unwrap_or_default(), &object.name_any())
}

impl World {
    pub(super) fn new(
        context: Arc<Context>,
        object: Arc<GitRepository>,
        remote: Remote,
        reference: Reference,
    ) -> Self {
        Self { context, object, remote: Arc::new(remote), reference, stored: Mutex::default() }
    }

    /// What this run stored.
    pub(super) fn artifact(&self) -> Option<Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The artifact of the status, if its bytes are in the store.
    async fn kept(&self) -> Option<Kept> {
        let status = self.object.status.as_ref()?;
        let artifact = self.object.artifact()?.clone();
        let store = self.context.artifacts.clone();
        let checked = {
            let artifact = artifact.clone();
            tokio::task::spawn_blocking(move || store.verify(&artifact.path, &artifact.digest))
                .await
        };
        match checked {
            Ok(Ok(true)) => {
                Some(Kept { revision: artifact.revision, ignore: status.observed_ignore.clone() })
            }
            Ok(Ok(false) | Err(_)) | Err(_) => None,
        }
    }
}

/// Fetches the remote as it is now, packs it and keeps it. Blocks.
fn fetch_and_store(
    remote: &Remote,
    reference: &Reference,
    context: &sources::git::Context,
    store: &Store,
    object: &GitRepository,
) -> Result<Stored, Rest> {
    let kept_failed = |text: String| Rest::Failed(ARCHIVE_OPERATION_FAILED, text, Wake::default());
    let fetched = sources::git::fetch(remote, reference, context).map_err(|e| classify(&e))?;
    let listing = fetched.entries().map_err(|e| classify(&e))?;
    if !listing.unreadable.is_empty() {
        let (first, count) = (listing.unreadable.iter().take(8), listing.unreadable.len());
        tracing::info!(
            name = object.name_any(),
            revision = %fetched.revision,
            count,
            paths = ?first.collect::<Vec<_>>(),
            "names that are not UTF-8 are left out of the artifact"
        );
    }
    let contents = contents(&fetched, listing, object.spec.ignore.as_deref())?;
    let revision = fetched.revision.to_string();
    let file = format!("{}.tar.gz", fetched.commit.sha);
    let now = jiff::Timestamp::now();
    let slot = slot(object).map_err(|e| kept_failed(chain(&e)))?;
    let kept = store
        .put(&slot, &file, &revision, now, |out| {
            archive::write(out, &contents, |_, entry| fetched.read(entry)).map(drop)
        })
        .map_err(|e| kept_failed(chain(&e)))?;
    if let Err(error) = store.collect_garbage(&slot, &kept.path, now) {
        tracing::info!(
            name = object.name_any(),
            error = chain(&error),
            "old artifacts not removed"
        );
    }
    let artifact = Artifact {
        digest: kept.digest,
        last_update_time: crds::Time(kept.last_update),
        metadata: BTreeMap::new(),
        path: kept.path,
        revision: kept.revision,
        size: i64::try_from(kept.size).ok(),
        url: kept.url,
    };
    Ok(Stored { artifact, subject: fetched.commit.short_summary() })
}

/// What of a commit goes into the archive.
fn contents(
    fetched: &Fetched,
    listing: Listing,
    ignore: Option<&str>,
) -> Result<Contents<Entry>, Rest> {
    let failed = |text: String| Rest::Failed(ARCHIVE_OPERATION_FAILED, text, Wake::default());
    let mut contents = Contents::new();
    let mut ignore_files = Vec::new();
    for entry in listing.entries {
        let path = RelPath::parse(&entry.path).map_err(|e| failed(e.to_string()))?;
        let is_executable = match entry.kind {
            Kind::File { is_executable } => is_executable,
            // Parity(flux): links and submodules are not archived, the folders that they leave are.
            Kind::Symlink => {
                contents
                    .dir(path.parent().unwrap_or_else(RelPath::root))
                    .map_err(|e| failed(chain(&e)))?;
                continue;
            }
            Kind::Submodule => {
                contents.dir(path).map_err(|e| failed(chain(&e)))?;
                continue;
            }
        };
        if path.name() == Some(IGNORE_FILE) {
            let text = fetched.read(&entry).map_err(|e| classify(&e))?;
            let folder = path.parent().unwrap_or_else(RelPath::root);
            ignore_files.push((folder, String::from_utf8_lossy(&text).into_owned()));
        }
        contents.file(path, is_executable, entry).map_err(|e| failed(chain(&e)))?;
    }
    let ignored = Matcher::new(&ignore_files, ignore).map_err(|e| failed(chain(&e)))?;
    contents.leave_out(&ignored);
    Ok(contents)
}

/// What a failed fetch means for the object.
fn classify(error: &sources::git::Error) -> Rest {
    use sources::git::Error;
    let text = chain(error);
    match error {
        Error::InvalidUrl { .. } => Rest::Stalled(URL_INVALID, text),
        Error::InvalidReference { .. } => Rest::Stalled(GIT_OPERATION_FAILED, text),
        Error::BadSecret(_) | Error::AuthenticationFailed { .. } => {
            Rest::Failed(AUTHENTICATION_FAILED, text, Wake::default())
        }
        // A branch or a server may change without the spec, so the rest is tried again.
        _ => Rest::Failed(GIT_OPERATION_FAILED, text, Wake::default()),
    }
}

/// What a Git operation works with; its own time limit ends it, so nobody cancels.
fn working(context: &Context) -> sources::git::Context {
    sources::git::Context {
        runtime: tokio::runtime::Handle::current(),
        cancel: CancellationToken::new(),
        scratch: std::env::temp_dir(),
        known: context.git_known.clone(),
    }
}

fn broken(what: &str) -> Rest {
    Rest::Failed(
        GIT_OPERATION_FAILED,
        format!("{what} broke off; it is tried again"),
        Wake::default(),
    )
}

impl reconcile::World<Fetching> for World {
    async fn observe(&self, desired: &Desired) -> Result<Observed, Rest> {
        if let Some(stored) = self.artifact() {
            let revision = stored.artifact.revision;
            let kept = Kept { revision: revision.clone(), ignore: desired.ignore.clone() };
            return Ok(Observed { remote: revision, kept: Some(kept) });
        }
        let (remote, reference) = (self.remote.clone(), self.reference.clone());
        let working = working(&self.context);
        let tip = tokio::task::spawn_blocking(move || {
            let tip = sources::git::tip(&remote, &reference, &working)?;
            Ok(Revision::new(&reference, &tip.sha))
        });
        let revision =
            tip.await.map_err(|_| broken("asking the remote"))?.map_err(|e| classify(&e))?;
        Ok(Observed { remote: revision.to_string(), kept: self.kept().await })
    }

    async fn perform(&self, step: &Step) -> Result<(), Rest> {
        let Step::Fetch { .. } = step;
        let (remote, reference) = (self.remote.clone(), self.reference.clone());
        let (store, object) = (self.context.artifacts.clone(), self.object.clone());
        let working = working(&self.context);
        let fetched = tokio::task::spawn_blocking(move || {
            fetch_and_store(&remote, &reference, &working, &store, &object)
        });
        let stored = fetched.await.map_err(|_| broken("fetching"))??;
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
        Ok(())
    }
}
