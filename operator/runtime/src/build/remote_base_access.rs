//! Bases on other servers: who may ask which, and what a build holds meanwhile.
//!
//! Elsewhere: fetching (`sources::remote_bases`), what is an address (`kustomize`).

use std::sync::Arc;
use std::time::Duration;

use kustomize::{BuildFiles, ChartInflation, Error, RepositoryAddress, ResolvedPath};
use parking_lot::Mutex;
use sources::remote_bases::{RemoteBaseLimits, RemoteBuildFiles, ResolvedRemoteBase};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::cluster_target::ClusterTarget;
use crate::run_context::RunContext;
use crate::time_limit::TimeLimit;
use windlass_cluster::preparing_permit::PreparingPermit;
use windlass_cluster::run_permits::{GrantedPermit, RunPermits};
use windlass_serve::settings::OperatorSettings;

/// Why no Kustomization may use remote bases.
const DISABLED: &str = "remote bases are disabled by --no-remote-bases";

/// Whether a build may fetch bases from other servers.
pub enum RemoteBaseAccess {
    /// The build may not, for this reason.
    Refused(&'static str),
    /// The build may, with these means.
    Fetched(Box<BaseFetchContext>),
}

/// The Git client, the limits and the permits with which a build fetches bases.
pub struct BaseFetchContext {
    pub(super) git: git::GitOperationContext,
    pub(super) limits: RemoteBaseLimits,
    /// None for a command, which shares nothing with other builds.
    pub(super) permits: Option<SharedBuildPermits>,
    /// None where the servers that `git` may reach are all that is asked.
    pub(super) rules: Option<Arc<dyn CommandBaseRules>>,
}

/// What a command allows its builds to fetch, and what it takes note of.
pub trait CommandBaseRules: Send + Sync {
    /// Whether a base may be fetched, and is within what all builds may fetch.
    ///
    /// # Errors
    /// Why not, as the end of a sentence about the base, and what to do.
    fn admit(&self, address: &str) -> Result<(), String>;

    /// A build has ended: what its bases were, and how many bytes were received.
    fn note(&self, bases: Vec<ResolvedRemoteBase>, received: u64);
}

/// The permits of a build: a build permit, or a remote permit while it asks servers.
///
/// A build gives up its build permit before it waits for a remote permit, so the two cannot wait for each other.
pub struct BuildPermits {
    pub(super) building: RunPermits,
    pub(super) reaching: RunPermits,
    pub(super) namespace: String,
    pub(super) runtime: Handle,
    pub(super) cancel: CancellationToken,
    pub(super) held: HeldBuildPermits,
    pub(super) preparing: PreparingPermit,
}

/// The permits that a build holds now.
pub(crate) struct HeldBuildPermits {
    pub(super) building: Option<GrantedPermit>,
    pub(super) reaching: Option<GrantedPermit>,
}

impl BuildPermits {
    /// The permits of a build that already holds its build permit. The build waits for other permits until `cancel`.
    pub fn new(
        context: &RunContext,
        namespace: &str,
        building: GrantedPermit,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            building: context.building.clone(),
            reaching: context.reaching.clone(),
            namespace: namespace.to_owned(),
            runtime: Handle::current(),
            cancel,
            held: HeldBuildPermits { building: Some(building), reaching: None },
            preparing: PreparingPermit::default(),
        }
    }

    /// The permits of a build of a run that has a permit for preparing. The run gives it back once the build asks a server: a
    /// slow server then delays only the builds that ask servers.
    #[must_use]
    pub fn of_run(self, preparing: &PreparingPermit) -> Self {
        Self { preparing: preparing.clone(), ..self }
    }

    /// Calls `ask`, which sends requests to servers, without a build permit. Other builds continue meanwhile, even if a
    /// server is slow.
    ///
    /// The fetched files stay in memory, so the build keeps its remote permit until it ends.
    pub(crate) fn while_asking<T>(&mut self, ask: impl FnOnce() -> T) -> T {
        self.held.building = None;
        self.preparing.end();
        if self.held.reaching.is_none() {
            self.held.reaching = self.wait_for(&self.reaching);
        }
        let answer = ask();
        self.held.building = self.wait_for(&self.building);
        answer
    }

    /// `None` if the build was cancelled meanwhile.
    fn wait_for(&self, permits: &RunPermits) -> Option<GrantedPermit> {
        let permit = permits.acquire(&self.namespace);
        self.runtime.block_on(async {
            tokio::select! { permit = permit => Some(permit), () = self.cancel.cancelled() => None }
        })
    }
}

/// The permits of a build, for all of its parts that ask servers, one after the other.
#[derive(Clone)]
pub struct SharedBuildPermits(Arc<Mutex<BuildPermits>>);

impl SharedBuildPermits {
    /// Shares the permits of one build.
    pub fn new(permits: BuildPermits) -> Self {
        Self(Arc::new(Mutex::new(permits)))
    }

    /// See [`BuildPermits::while_asking`].
    pub fn while_asking<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.0.lock().while_asking(ask)
    }
}

impl RemoteBaseAccess {
    /// The servers from which a Kustomization may fetch bases when it is applied at a target. Call it within the
    /// runtime.
    ///
    /// An account with windlass's own rights may start a Pod and ask any server from there. All other accounts must not
    /// reach servers through windlass that they could not reach themselves.
    ///
    /// Differs(flux): it asks every server for every Kustomization, and waits without end.
    pub fn of(
        context: &RunContext,
        target: &ClusterTarget,
        timeout: Duration,
        permits: &SharedBuildPermits,
        is_verified_only: bool,
        cancel: &CancellationToken,
    ) -> Self {
        let settings = &context.settings;
        if settings.no_remote_bases {
            return Self::Refused(DISABLED);
        }
        if is_verified_only {
            return Self::Refused(
                "its namespace requires verified sources; copy it into the source",
            );
        }
        let is_free = target.is_home() || settings.insecure_remote_bases;
        let known = if is_free { &context.remotes.git } else { &context.remotes.public_git };
        let git = git::GitOperationContext {
            runtime: Handle::current(),
            cancel: cancel.clone(),
            scratch: context.artifacts.scratch(),
            known: known.clone(),
        };
        let limits = RemoteBaseLimits::default();
        let limits = RemoteBaseLimits { time: limits.time.min(timeout), ..limits };
        let permits = Some(permits.clone());
        Self::Fetched(Box::new(BaseFetchContext { git, limits, permits, rules: None }))
    }

    /// The servers that a command may ask: those that `git` may reach, as far as its rules allow it. A flag of the operator
    /// that disables remote bases counts, too.
    pub fn of_command(
        git: git::GitOperationContext,
        limits: RemoteBaseLimits,
        rules: Arc<dyn CommandBaseRules>,
        settings: &OperatorSettings,
    ) -> Self {
        if settings.no_remote_bases {
            return Self::Refused(DISABLED);
        }
        let rules = Some(rules);
        Self::Fetched(Box::new(BaseFetchContext { git, limits, permits: None, rules }))
    }

    /// Builds from files and their bases on other servers. Also returns whether the build used such a base: then the
    /// files alone do not determine the result. The time limit does not count waits for a server or a permit. It
    /// blocks, so do not call it in a future.
    pub fn beside<T>(
        self,
        files: impl BuildFiles,
        limit: &TimeLimit,
        build: impl FnOnce(&dyn BuildFiles) -> T,
    ) -> (T, bool) {
        match self {
            Self::Refused(why) => (build(&RemoteRefusingFiles(files, why)), false),
            Self::Fetched(it) => {
                let BaseFetchContext { git, limits, permits, rules } = *it;
                let remotes = RemoteBuildFiles::new(files, git, limits);
                let files = RemoteFetchingFiles { remotes, permits, rules, limit };
                let built = build(&files);
                if let Some(rules) = &files.rules {
                    rules.note(files.remotes.resolved(), files.remotes.received());
                }
                (built, files.remotes.is_used())
            }
        }
    }
}

/// The files of a build that may not fetch bases.
struct RemoteRefusingFiles<F>(F, &'static str);

impl<F> RemoteRefusingFiles<F> {
    fn refused(&self, address: &str) -> Error {
        refused(address, self.1)
    }
}

fn refused(address: &str, why: &str) -> Error {
    Error::new(format!("`{address}` is a remote base, and {why}"))
}

impl<F: BuildFiles> BuildFiles for RemoteRefusingFiles<F> {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error> {
        self.0.resolve(path)
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        self.0.read(path)
    }

    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        Err(self.refused(url))
    }

    fn checkout(&self, repository: &RepositoryAddress) -> Result<String, Error> {
        Err(self.refused(&repository.url()))
    }
}

/// The files of a build that fetches bases without its build permit.
struct RemoteFetchingFiles<'l, F> {
    remotes: RemoteBuildFiles<F>,
    permits: Option<SharedBuildPermits>,
    rules: Option<Arc<dyn CommandBaseRules>>,
    limit: &'l TimeLimit,
}

impl<F> RemoteFetchingFiles<'_, F> {
    fn ask<T>(&self, address: &str, ask: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if let Some(rules) = &self.rules {
            rules.admit(address).map_err(|why| refused(address, &why))?;
        }
        self.limit.pause(|| match &self.permits {
            Some(permits) => permits.while_asking(ask),
            None => ask(),
        })
    }
}

impl<F: BuildFiles> BuildFiles for RemoteFetchingFiles<'_, F> {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error> {
        self.remotes.resolve(path)
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        self.remotes.read(path)
    }

    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        self.ask(url, || self.remotes.fetch(url))
    }

    fn checkout(&self, repository: &RepositoryAddress) -> Result<String, Error> {
        self.ask(&repository.url(), || self.remotes.checkout(repository))
    }

    fn prepare(&self, chart: &ChartInflation) -> Result<(), Error> {
        self.remotes.prepare(chart)
    }

    fn inflate(&self, chart: &ChartInflation) -> Result<Vec<u8>, Error> {
        self.remotes.inflate(chart)
    }
}

#[cfg(test)]
mod tests;
