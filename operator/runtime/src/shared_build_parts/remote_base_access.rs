//! Remote bases: which builds may fetch them from other servers, and which permits a build holds meanwhile.
//!
//! Elsewhere: fetching (`sources::remote_bases`), and what counts as a remote address (`kustomize`).

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

/// The reason why no Kustomization may use remote bases.
const DISABLED: &str = "remote bases are disabled by --no-remote-bases";

/// Whether a build may fetch bases from other servers.
pub enum RemoteBaseAccess {
    /// The build may not fetch bases, for this reason.
    Refused(&'static str),
    /// The build may fetch bases with this context.
    Fetched(Box<RemoteBaseFetchContext>),
}

/// The Git client, the limits and the permits with which a build fetches bases.
pub struct RemoteBaseFetchContext {
    pub(super) git: git::GitOperationContext,
    pub(super) limits: RemoteBaseLimits,
    /// `None` for a command, which shares no permits with other builds.
    pub(super) permits: Option<SharedBuildPermits>,
    /// `None` if only the rules of `git` limit the servers.
    pub(super) rules: Option<Arc<dyn CommandRemoteBaseRules>>,
}

/// The rules of a command for the bases that its builds fetch, and its record of them.
pub trait CommandRemoteBaseRules: Send + Sync {
    /// Checks whether a base may be fetched, and is within the limit of all builds.
    ///
    /// # Errors
    /// The reason why not, as the end of a sentence about the base, with what to do.
    fn admit(&self, address: &str) -> Result<(), String>;

    /// Records the bases that a build used, and how many bytes it received.
    fn note(&self, bases: Vec<ResolvedRemoteBase>, received: u64);
}

/// The permits of a build: a build permit, or a remote permit while it sends requests to servers.
///
/// A build gives its build permit back before it waits for a remote permit, so there is no deadlock between the two.
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

    /// The permits of a build whose run holds a preparing permit. The run gives that permit back when the build sends a
    /// request to a server. So a slow server delays only builds that use servers.
    #[must_use]
    pub fn of_run(self, preparing: &PreparingPermit) -> Self {
        Self { preparing: preparing.clone(), ..self }
    }

    /// Runs `ask`, which sends requests to servers, without a build permit. Other builds continue meanwhile, even if a server
    /// is slow.
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

    /// Waits for a permit. `None` if the build was cancelled.
    fn wait_for(&self, permits: &RunPermits) -> Option<GrantedPermit> {
        let permit = permits.acquire(&self.namespace);
        self.runtime.block_on(async {
            tokio::select! { permit = permit => Some(permit), () = self.cancel.cancelled() => None }
        })
    }
}

/// The permits of a build, shared by all its parts that send requests. The parts take turns.
#[derive(Clone)]
pub struct SharedBuildPermits(Arc<Mutex<BuildPermits>>);

impl SharedBuildPermits {
    /// Shares the permits of one build.
    pub fn new(permits: BuildPermits) -> Self {
        Self(Arc::new(Mutex::new(permits)))
    }

    /// Runs `ask` without a build permit; see [`BuildPermits::while_asking`].
    pub fn while_asking<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.0.lock().while_asking(ask)
    }
}

impl RemoteBaseAccess {
    /// The servers from which a Kustomization may fetch bases for a target. Must be called within the async runtime.
    ///
    /// An account with windlass's own rights may start a Pod and reach any server from there. Other accounts must not reach
    /// servers through windlass that they could not reach themselves.
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
        Self::Fetched(Box::new(RemoteBaseFetchContext { git, limits, permits, rules: None }))
    }

    /// The servers that a command may use: those that `git` may reach and that the rules of the command allow. The operator's
    /// flag that disables remote bases counts, too.
    pub fn of_command(
        git: git::GitOperationContext,
        limits: RemoteBaseLimits,
        rules: Arc<dyn CommandRemoteBaseRules>,
        settings: &OperatorSettings,
    ) -> Self {
        if settings.no_remote_bases {
            return Self::Refused(DISABLED);
        }
        let rules = Some(rules);
        Self::Fetched(Box::new(RemoteBaseFetchContext { git, limits, permits: None, rules }))
    }

    /// Builds from files and their remote bases. Also returns whether the build used a remote base, because then the files
    /// alone do not determine the result. Waits for a server or a permit do not count for the time limit. It blocks, so it
    /// must not be called in a future.
    pub fn beside<T>(
        self,
        files: impl BuildFiles,
        limit: &TimeLimit,
        build: impl FnOnce(&dyn BuildFiles) -> T,
    ) -> (T, bool) {
        match self {
            Self::Refused(why) => (build(&RemoteBaseRefusingFiles(files, why)), false),
            Self::Fetched(it) => {
                let RemoteBaseFetchContext { git, limits, permits, rules } = *it;
                let remotes = RemoteBuildFiles::new(files, git, limits);
                let files = RemoteBaseFetchingFiles { remotes, permits, rules, limit };
                let built = build(&files);
                if let Some(rules) = &files.rules {
                    rules.note(files.remotes.resolved(), files.remotes.received());
                }
                (built, files.remotes.is_used())
            }
        }
    }
}

/// The files of a build that may not fetch remote bases.
struct RemoteBaseRefusingFiles<F>(F, &'static str);

impl<F> RemoteBaseRefusingFiles<F> {
    fn refused(&self, address: &str) -> Error {
        refused(address, self.1)
    }
}

fn refused(address: &str, why: &str) -> Error {
    Error::new(format!("`{address}` is a remote base, and {why}"))
}

impl<F: BuildFiles> BuildFiles for RemoteBaseRefusingFiles<F> {
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

/// The files of a build that gives its build permit back while it fetches remote bases.
struct RemoteBaseFetchingFiles<'l, F> {
    remotes: RemoteBuildFiles<F>,
    permits: Option<SharedBuildPermits>,
    rules: Option<Arc<dyn CommandRemoteBaseRules>>,
    limit: &'l TimeLimit,
}

impl<F> RemoteBaseFetchingFiles<'_, F> {
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

impl<F: BuildFiles> BuildFiles for RemoteBaseFetchingFiles<'_, F> {
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
