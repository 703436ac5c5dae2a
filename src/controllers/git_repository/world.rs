//! The world of a GitRepository: its remote and the artifact store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crds::source::{GitRepository, GitRepositoryStatus};
use crds::{Artifact, Source as _};
use kube::core::ResourceExt as _;
use reconcile::{Rest, Wake, reason};
use sources::archive::{self, ExtractOptions};
use sources::git::{Content, Reference, Remote, Revision, revision};
use sources::plan::{Desired, Fetching, Kept, Observed, Shape, Step};
use sources::reason::{
    ARCHIVE_OPERATION_FAILED, AUTHENTICATION_FAILED, COPY_FAILURE, GIT_OPERATION_FAILED,
    NO_ARTIFACT, URL_INVALID,
};
use sources::store::{self, Slot, Store};
use tokio_util::sync::CancellationToken;
use tree::Memory;

use super::contents::{contents, load};
use super::include::{self, Include};
use super::wish::Wish;
use crate::cluster::error::chain;
use crate::controllers::context::Context;

/// An artifact that this run stored.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) artifact: Artifact,
    /// First line of the commit's message, cut short.
    pub(super) subject: String,
    /// The artifacts that went into it, in the order of `spec.include`.
    pub(super) included: Vec<Artifact>,
}

/// What is fetched, and what is made of it.
struct Work {
    remote: Remote,
    reference: Reference,
    content: Content,
    include: Vec<Include>,
}

/// See the module.
pub(super) struct World {
    context: Arc<Context>,
    object: Arc<GitRepository>,
    work: Arc<Work>,
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
    /// The world of an object, and what is to be done in it.
    pub(super) fn new(
        context: Arc<Context>,
        object: Arc<GitRepository>,
        wish: Wish,
    ) -> (Self, Desired) {
        let Wish { remote, reference, content, include, desired } = wish;
        let work = Arc::new(Work { remote, reference, content, include });
        (Self { context, object, work, stored: Mutex::default() }, desired)
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
            // Flux wrote revisions in another form once.
            Ok(Ok(true)) => Some(Kept {
                revision: revision::modern_artifact(&artifact.revision),
                shape: shape(status)?,
            }),
            Ok(Ok(false) | Err(_)) | Err(_) => None,
        }
    }
}

/// What the artifact of a status was made with; `None` if that does not say.
fn shape(status: &GitRepositoryStatus) -> Option<Shape> {
    let (spec, artifacts) = (&status.observed_include, &status.included_artifacts);
    (spec.len() == artifacts.len()).then(|| Shape {
        ignore: status.observed_ignore.clone(),
        submodules: status.observed_recurse_submodules,
        sparse_checkout: status.observed_sparse_checkout.clone(),
        include: spec.iter().zip(artifacts).map(|(spec, it)| include::shape(spec, it)).collect(),
    })
}

/// Bytes of all the artifacts that are included, which are in memory at the same time.
const MOST_INCLUDED: u64 = 512 << 20;

/// The files of everything that is included.
fn included<'i>(
    store: &Store,
    includes: &'i [Include],
) -> Result<Vec<(&'i Include, Arc<Memory>)>, Rest> {
    let mut bytes = BTreeMap::new();
    let files = |include: &'i Include| {
        let Include { node, artifact, .. } = include;
        let failed = |why: String| {
            let text = format!("failed to copy '{}' include: {why}", node.name);
            Rest::Failed(COPY_FAILURE, text, Wake::default())
        };
        let loaded = store.load(&artifact.path, &artifact.digest, &ExtractOptions::default());
        let files = loaded.map_err(|error| match error {
            // It is being replaced, or will be made again: either wakes us.
            store::Error::Missing(_) | store::Error::Mismatch { .. } => {
                let text = format!("no artifact available for include '{}'", node.name);
                Rest::Blocked(NO_ARTIFACT, text, Wake::on([node.clone()]))
            }
            error => failed(chain(&error)),
        })?;
        bytes.insert(&artifact.digest, files.bytes());
        if bytes.values().sum::<u64>() > MOST_INCLUDED {
            let limit = MOST_INCLUDED >> 20;
            return Err(failed(format!("with it more than {limit} MiB are included")));
        }
        Ok((include, files))
    };
    includes.iter().map(files).collect()
}

/// Fetches the remote as it is now, packs it and keeps it. Blocks.
fn fetch_and_store(
    work: &Work,
    context: &sources::git::Context,
    store: &Store,
    object: &GitRepository,
) -> Result<Stored, Rest> {
    let kept_failed = |text: String| Rest::Failed(ARCHIVE_OPERATION_FAILED, text, Wake::default());
    let Work { remote, reference, content, include } = work;
    let included = included(store, include)?;
    let checkout = sources::git::checkout(remote, reference, content, context);
    let checkout = checkout.map_err(|e| classify(&e))?;
    let unreadable = checkout.unreadable();
    if !unreadable.is_empty() {
        tracing::info!(
            name = object.name_any(),
            revision = %checkout.revision,
            count = unreadable.len(),
            paths = ?unreadable.iter().take(8).collect::<Vec<_>>(),
            "names that are not UTF-8 are left out of the artifact"
        );
    }
    let ignore = object.spec.ignore.as_deref();
    let contents = contents(&checkout, &included, ignore, &remote.limits)?;
    let revision = checkout.revision.to_string();
    let file = format!("{}.tar.gz", checkout.commit.sha);
    let now = jiff::Timestamp::now();
    let slot = slot(object).map_err(|e| kept_failed(chain(&e)))?;
    let kept = store
        .put(&slot, &file, &revision, now, |out| {
            let load = |body: &_| load(&checkout, body).map_err(|rest| rest.text().to_owned());
            archive::write(out, &contents, |_, body| load(body)).map(drop)
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
    let included = include.iter().map(|include| include.artifact.clone()).collect();
    Ok(Stored { artifact, subject: checkout.commit.short_summary(), included })
}

/// What a failed fetch means for the object.
pub(super) fn classify(error: &sources::git::Error) -> Rest {
    use sources::git::Error;
    let text = chain(error);
    match error {
        Error::InvalidUrl { .. } => Rest::Stalled(URL_INVALID, text),
        Error::InvalidReference { .. } => Rest::Stalled(GIT_OPERATION_FAILED, text),
        Error::InvalidSparse { .. } => {
            Rest::Stalled(reason::INVALID_PATH, format!("spec.sparseCheckout: {text}"))
        }
        Error::BadSecret(_) | Error::AuthenticationFailed { .. } | Error::ProxyRefused { .. } => {
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
            let kept = Kept { revision: revision.clone(), shape: desired.shape.clone() };
            return Ok(Observed { remote: revision, kept: Some(kept) });
        }
        // A closed door means that the process ends.
        let _place = self.context.asking.clone().acquire_owned().await.ok();
        let (work, working) = (self.work.clone(), working(&self.context));
        let tip = tokio::task::spawn_blocking(move || {
            let tip = sources::git::tip(&work.remote, &work.reference, &working)?;
            Ok(Revision::new(&work.reference, &tip))
        });
        let revision =
            tip.await.map_err(|_| broken("asking the remote"))?.map_err(|e| classify(&e))?;
        Ok(Observed { remote: revision.to_string(), kept: self.kept().await })
    }

    async fn perform(&self, step: &Step) -> Result<(), Rest> {
        let Step::Fetch { .. } = step;
        // A closed door means that the process ends.
        let _place = self.context.fetching.clone().acquire_owned().await.ok();
        let (work, working) = (self.work.clone(), working(&self.context));
        let (store, object) = (self.context.artifacts.clone(), self.object.clone());
        let fetched =
            tokio::task::spawn_blocking(move || fetch_and_store(&work, &working, &store, &object));
        let stored = fetched.await.map_err(|_| broken("fetching"))??;
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(stored);
        Ok(())
    }
}
