//! Bases on other servers: who may ask which, and what a build holds meanwhile.
//!
//! Elsewhere: fetching (`sources::bases`), what is an address (`kustomize`).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use kustomize::{Error, Files, Inflation, Place, Repository};
use sources::bases::{Limits, Remotes};
use sources::git;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::controllers::context::Context;
use crate::controllers::target::Target;

/// How bases on other servers are had.
pub(super) enum Bases {
    /// Not at all, as `--no-remote-bases` says.
    Refused,
    /// From the servers themselves.
    Fetched(Box<Fetched>),
}

/// What fetching takes.
pub(super) struct Fetched {
    pub(super) git: git::Context,
    pub(super) limits: Limits,
    pub(super) places: Places,
}

/// The places that a build is on: one among those who build, or one among those who ask servers.
///
/// Nobody who builds waits for a place among those who ask, so the two cannot wait for each other.
pub(super) struct Places {
    building: Arc<Semaphore>,
    reaching: Arc<Semaphore>,
    runtime: Handle,
    cancel: CancellationToken,
    /// What this build has of each.
    held: (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>),
}

impl Places {
    /// The places of a build that has one already; another is waited for until `cancel`.
    pub(super) fn new(
        context: &Context,
        building: Option<OwnedSemaphorePermit>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            building: context.building.clone(),
            reaching: context.reaching.clone(),
            runtime: Handle::current(),
            cancel,
            held: (building, None),
        }
    }

    /// Asks servers without a place among those who build: others go on meanwhile, however slow a server is.
    ///
    /// What was fetched stays in memory, so the place among those who ask is kept to the end of the build.
    fn while_asking<T>(&mut self, ask: impl FnOnce() -> T) -> T {
        self.held.0 = None;
        if self.held.1.is_none() {
            self.held.1 = self.wait_for(&self.reaching);
        }
        let answer = ask();
        self.held.0 = self.wait_for(&self.building);
        answer
    }

    /// Without a place the process ends, or nobody wants the build any more.
    fn wait_for(&self, places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let place = places.clone().acquire_owned();
        self.runtime.block_on(async {
            tokio::select! { place = place => place.ok(), () = self.cancel.cancelled() => None }
        })
    }
}

impl Bases {
    /// What a Kustomization may ask, when it is applied at a target. Called within the runtime.
    ///
    /// Who has windlass's own rights may start a Pod and ask any server from there. Everybody else does not get at
    /// servers through windlass that they could not ask themselves.
    ///
    /// Differs(flux): it asks every server for everybody, and waits without end.
    pub(super) fn of(
        context: &Context,
        target: &Target,
        timeout: Duration,
        building: Option<OwnedSemaphorePermit>,
        cancel: &CancellationToken,
    ) -> Self {
        let settings = &context.settings;
        if settings.no_remote_bases {
            return Self::Refused;
        }
        let is_free = target.is_home() || settings.insecure_remote_bases;
        let known = if is_free { &context.git_known } else { &context.public_known };
        let git = git::Context {
            runtime: Handle::current(),
            cancel: cancel.clone(),
            scratch: context.artifacts.scratch(),
            known: known.clone(),
        };
        let limits = Limits::default();
        let limits = Limits { time: limits.time.min(timeout), ..limits };
        let places = Places::new(context, building, cancel.clone());
        Self::Fetched(Box::new(Fetched { git, limits, places }))
    }

    /// Builds from files with their bases on other servers; and says whether any was asked for, so that the files do
    /// not tell what comes out. Blocks; not from within a future.
    pub(super) fn beside<T>(
        self,
        files: impl Files,
        build: impl FnOnce(&dyn Files) -> T,
    ) -> (T, bool) {
        match self {
            Self::Refused => (build(&Refusing(files)), false),
            Self::Fetched(it) => {
                let Fetched { git, limits, places } = *it;
                let remotes = Remotes::new(files, git, limits);
                let files = Asking { remotes, places: RefCell::new(places) };
                let built = build(&files);
                (built, files.remotes.is_used())
            }
        }
    }
}

/// Files beside which nothing is fetched.
struct Refusing<F>(F);

fn refused(address: &str) -> Error {
    Error::new(format!(
        "`{address}` is on another server, and --no-remote-bases refuses such bases"
    ))
}

impl<F: Files> Files for Refusing<F> {
    fn resolve(&self, path: &str) -> Result<Place, Error> {
        self.0.resolve(path)
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        self.0.read(path)
    }

    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        Err(refused(url))
    }

    fn checkout(&self, repository: &Repository) -> Result<String, Error> {
        Err(refused(&repository.url()))
    }
}

/// Files whose remote parts are asked for without a place among those who build.
struct Asking<F> {
    remotes: Remotes<F>,
    places: RefCell<Places>,
}

impl<F: Files> Files for Asking<F> {
    fn resolve(&self, path: &str) -> Result<Place, Error> {
        self.remotes.resolve(path)
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        self.remotes.read(path)
    }

    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        self.places.borrow_mut().while_asking(|| self.remotes.fetch(url))
    }

    fn checkout(&self, repository: &Repository) -> Result<String, Error> {
        self.places.borrow_mut().while_asking(|| self.remotes.checkout(repository))
    }

    fn prepare(&self, chart: &Inflation) -> Result<(), Error> {
        self.remotes.prepare(chart)
    }

    fn inflate(&self, chart: &Inflation) -> Result<Vec<u8>, Error> {
        self.remotes.inflate(chart)
    }
}

#[cfg(test)]
mod tests;
