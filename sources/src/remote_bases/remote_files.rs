//! Fetches the remote parts of a build for a service, with windlass's own Git and HTTP clients. Repositories have to be
//! public.
//!
//! No program is run, nothing of the service's own is shown to a server, and everything has a limit.
//! Elsewhere: which servers may be asked ([`EgressRules`], of [`git::GitServerCache`]), a commit as a folder
//! (`commit_worktree`).

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use git::{
    GitCredentials, GitOperationContext, GitRemote, RemoteScheme, RemoteUrl, RequestedCommitContent,
};
use http_client::TlsConfig;
use kustomize::{BuildFiles, ChartInflation, Error, RepositoryAddress, ResolvedPath};
use sha2::{Digest as _, Sha256};

use super::commit_worktree::{self, CommitWorktree, WorktreePathError};
use super::web_files::{self, without_credentials};
use crate::chain;

/// The parent folder of the fetched repositories. Their folders are numbered in the order in which the build requests
/// them.
const ROOT: &str = "/.remote/";

/// The limits of all remote parts of one build together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteBaseLimits {
    /// The time from the first requested part to the last received byte.
    pub time: Duration,
    /// The most files and repositories that are requested. A repository with an HTTP address counts twice, because it
    /// is first requested as a file. A part that was fetched before does not count.
    pub parts: usize,
    /// The most bytes received for all parts, and the most bytes read from each repository.
    pub bytes: u64,
}

impl Default for RemoteBaseLimits {
    /// Five minutes, 128 parts, 256 MiB.
    fn default() -> Self {
        Self { time: Duration::from_secs(300), parts: 128, bytes: 256 << 20 }
    }
}

/// A remote part of a build, with its revision at the time of the fetch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedRemoteBase {
    /// The address, without credentials.
    pub address: String,
    /// The requested branch, tag or commit. Empty for the default branch, and for a file.
    pub reference: String,
    /// The commit, or `sha256:` and the digest of a file.
    pub revision: String,
}

/// The files of a build and its remote parts. Each remote part is fetched once.
///
/// Blocks; not from within a future.
///
/// Differs(flux): no program is run, so that there are no credentials of a user or system, no SSH and no local
/// repositories; a repository that wants credentials is for a GitRepository.
///
/// # Guarantees
/// Errors of this show no credentials; in those of a build, which repeat what a file names, [`without_credentials`] hides
/// them. Repositories are in [`GitOperationContext::scratch`], and gone when this is dropped.
pub struct RemoteBuildFiles<F> {
    files: F,
    context: GitOperationContext,
    limits: RemoteBaseLimits,
    begun: OnceCell<Instant>,
    state: RefCell<RemoteBuildState>,
}

#[derive(Default)]
struct RemoteBuildState {
    fetched: BTreeMap<String, Arc<[u8]>>,
    received: u64,
    /// The repositories by URL, reference, and whether they contain submodules.
    repositories: BTreeMap<(String, String, bool), Rc<CommitWorktree>>,
    /// The repositories by the number in their path. If a repository is named again, it gets another folder, as with
    /// kustomize. kustomize compares folders to detect a kustomization that includes itself.
    mounted: Vec<Rc<CommitWorktree>>,
    asked: usize,
    resolved: Vec<ResolvedRemoteBase>,
}

impl<F: BuildFiles> RemoteBuildFiles<F> {
    /// [`git::GitServerCache::within`] in the context decides which servers may be asked.
    pub fn new(files: F, context: GitOperationContext, limits: RemoteBaseLimits) -> Self {
        Self { files, context, limits, begun: OnceCell::new(), state: RefCell::default() }
    }

    /// Whether the build used a remote file or repository, so that its own files do not determine its result.
    pub fn is_used(&self) -> bool {
        self.state.borrow().asked > 0
    }

    /// The parts that were fetched, in this order.
    pub fn resolved(&self) -> Vec<ResolvedRemoteBase> {
        self.state.borrow().resolved.clone()
    }

    /// The number of received bytes.
    pub fn received(&self) -> u64 {
        self.state.borrow().received
    }

    /// Counts one more part. Returns the remaining time for it.
    fn admit(&self, shown: &str) -> Result<Duration, Error> {
        let mut state = self.state.borrow_mut();
        state.asked += 1;
        if state.asked > self.limits.parts {
            let most = self.limits.parts;
            let text = format!("'{shown}': a build may have at most {most} remote bases");
            return Err(Error::new(text));
        }
        let left = self.limits.time.saturating_sub(self.begun.get_or_init(Instant::now).elapsed());
        if left.is_zero() {
            let time = self.limits.time;
            let text = format!("'{shown}': fetching remote bases timed out after {time:?}");
            return Err(Error::new(text));
        }
        Ok(left)
    }

    fn commit(&self, repository: &RepositoryAddress) -> Result<Rc<CommitWorktree>, Error> {
        let url = repository.url();
        let key = (url.clone(), repository.reference.clone(), repository.submodules);
        if let Some(known) = self.state.borrow().repositories.get(&key) {
            return Ok(Rc::clone(known));
        }
        let shown = without_credentials(&url);
        let left = self.admit(&shown)?;
        let within = |why: &str| Error::new(format!("'{shown}': {why}"));
        let parsed = RemoteUrl::parse(&url).ok().filter(|url| url.scheme() != RemoteScheme::Ssh);
        let Some(parsed) = parsed else {
            return Err(within("only http:// and https:// repositories are supported"));
        };
        if shown != url {
            return Err(within(
                "remote repositories are accessed anonymously; remove the credentials from the URL",
            ));
        }
        let limits = git::GitLimits {
            received: self.limits.bytes.saturating_sub(self.state.borrow().received),
            total: self.limits.bytes,
            ..git::GitLimits::default()
        };
        let remote = GitRemote {
            url: parsed,
            credentials: GitCredentials::default(),
            proxy: None,
            timeout: left.min(Duration::from_nanos(repository.timeout)),
            limits,
        };
        let content = RequestedCommitContent {
            submodules: repository.submodules,
            ..RequestedCommitContent::default()
        };
        let found = checkout(&remote, &repository.reference, &content, &self.context);
        let found = found.map_err(|error| match error {
            git::Error::AuthenticationFailed { .. } | git::Error::RepositoryNotFound { .. } => {
                within(
                    "no public repository found, and remote repositories are accessed anonymously; use a \
                     GitRepository for a private one",
                )
            }
            error => within(&chain(&error)),
        })?;
        let mut state = self.state.borrow_mut();
        state.received = state.received.saturating_add(found.received());
        state.resolved.push(ResolvedRemoteBase {
            address: shown,
            reference: repository.reference.clone(),
            revision: found.commit.sha.clone(),
        });
        let found = Rc::new(CommitWorktree::new(found));
        state.repositories.insert(key, Rc::clone(&found));
        Ok(found)
    }

    /// The repository that a path leads into, the path of its folder, and the path in it. `None` if the path leads into
    /// no repository.
    fn mounted<'p>(&self, path: &'p str) -> Option<(Rc<CommitWorktree>, &'p str, &'p str)> {
        let rest = path.strip_prefix(ROOT)?;
        let (number, inside) = rest.split_once('/').unwrap_or((rest, ""));
        let state = self.state.borrow();
        let worktree = Rc::clone(state.mounted.get(number.parse::<usize>().ok()?)?);
        Some((worktree, &path[..ROOT.len() + number.len()], inside))
    }
}

/// Fetches the commit that Git finds for a name.
fn checkout(
    remote: &GitRemote,
    reference: &str,
    content: &RequestedCommitContent,
    context: &GitOperationContext,
) -> Result<git::FetchedCheckout, git::Error> {
    git::named(remote, reference, |found| git::checkout(remote, found, content, context))
}

impl<F: BuildFiles> BuildFiles for RemoteBuildFiles<F> {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error> {
        let Some((worktree, mount, inside)) = self.mounted(path) else {
            return self.files.resolve(path);
        };
        let at = |inside: &str| golang::path::join(mount, inside);
        match worktree.resolve(inside) {
            Ok(commit_worktree::WorktreeTarget::Dir(dir)) => Ok(ResolvedPath::Dir(at(&dir))),
            Ok(commit_worktree::WorktreeTarget::File(file)) => {
                let path = at(&file);
                let (dir, name) = path.rsplit_once('/').unwrap_or(("", &path));
                Ok(ResolvedPath::File { dir: dir.to_owned(), name: name.to_owned() })
            }
            Err(error) => Err(astray("lstat", &error, at)),
        }
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        let Some((worktree, mount, inside)) = self.mounted(path) else {
            return self.files.read(path);
        };
        let at = |inside: &str| golang::path::join(mount, inside);
        match worktree.read(inside) {
            Ok(Some(content)) => Ok(content.into()),
            Ok(None) => Err(Error::new(format!("read {path}: is a directory"))),
            Err(error) => Err(astray("open", &error, at)),
        }
    }

    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        if let Some(known) = self.state.borrow().fetched.get(url) {
            return Ok(Arc::clone(known));
        }
        let shown = without_credentials(url);
        let left = self.admit(&shown)?;
        if shown != url {
            let text = format!(
                "'{shown}': remote files are accessed anonymously; remove the credentials from the URL"
            );
            return Err(Error::new(text));
        }
        let egress = self.context.known.egress();
        let budgets = self.context.known.budgets();
        let client = self.context.known.client(&TlsConfig::default(), None);
        let client = client.map_err(|error| Error::new(error.to_string()))?;
        let limits = web_files::WebFileLimits::default();
        let limits = web_files::WebFileLimits {
            time: limits.time.min(left),
            bytes: limits.bytes.min(self.limits.bytes.saturating_sub(self.state.borrow().received)),
        };
        let cancel = &self.context.cancel;
        let content = self.context.runtime.block_on(async {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(Error::new(format!("fetching '{url}' was cancelled"))),
                content = web_files::get(&client, budgets, egress, url, limits) => content,
            }
        })?;
        let mut state = self.state.borrow_mut();
        state.received = state.received.saturating_add(content.len() as u64);
        state.resolved.push(ResolvedRemoteBase {
            address: shown,
            reference: String::new(),
            revision: format!("sha256:{}", hex::encode(Sha256::digest(&content))),
        });
        state.fetched.insert(url.to_owned(), Arc::clone(&content));
        Ok(content)
    }

    fn checkout(&self, repository: &RepositoryAddress) -> Result<String, Error> {
        let commit = self.commit(repository)?;
        let mounted = &mut self.state.borrow_mut().mounted;
        mounted.push(commit);
        Ok(format!("{ROOT}{}", mounted.len() - 1))
    }

    fn prepare(&self, chart: &ChartInflation) -> Result<(), Error> {
        self.files.prepare(chart)
    }

    fn inflate(&self, chart: &ChartInflation) -> Result<Vec<u8>, Error> {
        self.files.inflate(chart)
    }
}

/// The error for a path that cannot be followed, in the words of Go.
fn astray(doing: &str, error: &WorktreePathError, at: impl Fn(&str) -> String) -> Error {
    match error {
        WorktreePathError::Missing(path)
        | WorktreePathError::Outside(path)
        | WorktreePathError::TooManyLinks(path) => {
            Error::new(format!("{doing} {}: {error}", at(path)))
        }
        WorktreePathError::Git(error) => Error::new(chain(error)),
    }
}
