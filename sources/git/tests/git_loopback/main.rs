//! Fetching from real servers on this machine, and pushing to them: `git http-backend` behind a small web server, and
//! OpenSSH's sshd.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod egress_denies_loopback;
mod hostile_servers;
mod http;
mod http_server;
mod proxy;
mod proxy_server;
mod push;
mod push_signed;
mod references;
mod revalidation;
mod ssh;
mod ssh_server;
mod submodules;
mod test_repository;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use git::{
    Error, GitCredentials, GitLimits, GitOperationContext, GitReference, GitRemote, GitServerCache,
    GitSnapshot, ReferenceTip, RemoteUrl,
};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Something to fetch from, and where to keep what was fetched.
struct FetchCase {
    remote: GitRemote,
    context: GitOperationContext,
    scratch: tempfile::TempDir,
}

impl FetchCase {
    fn new(url: &str, secret: &[(&str, &str)]) -> Self {
        let url = RemoteUrl::parse(url).unwrap();
        let data: BTreeMap<_, _> =
            secret.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
        let credentials = GitCredentials::from_secret(&data, &url).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let context = GitOperationContext {
            runtime: RUNTIME.handle().clone(),
            cancel: CancellationToken::new(),
            scratch: scratch.path().to_owned(),
            known: Arc::new(GitServerCache::default()),
        };
        let timeout = Duration::from_secs(60);
        let limits = GitLimits::default();
        Self {
            remote: GitRemote { url, credentials, proxy: None, timeout, limits },
            context,
            scratch,
        }
    }

    fn fetch(&self, reference: &GitReference) -> Result<GitSnapshot, Error> {
        git::fetch(&self.remote, reference, &self.context)
    }

    fn tip(&self, reference: &GitReference) -> Result<ReferenceTip, Error> {
        git::tip(&self.remote, reference, &self.context)
    }

    /// Both questions must fail, and the scratch folder must be left as it was.
    fn refused(&self, reference: &GitReference) -> Error {
        let kept = || std::fs::read_dir(self.scratch.path()).unwrap().count();
        let before = kept();
        let error = self.fetch(reference).unwrap_err();
        assert_eq!(kept(), before, "a scratch repository is left after: {error}");
        let other = self.tip(reference).unwrap_err();
        assert_eq!(
            std::mem::discriminant(&error),
            std::mem::discriminant(&other),
            "{error} / {other}"
        );
        error
    }
}

fn main_branch() -> GitReference {
    GitReference::Branch("main".to_owned())
}

fn commit(sha: &str, branch: Option<&str>) -> GitReference {
    GitReference::Commit { sha: sha.to_owned(), branch: branch.map(str::to_owned), name: None }
}

/// The files of a commit: type, path and content.
fn files(fetched: &GitSnapshot) -> Vec<String> {
    let listing = fetched.entries().unwrap();
    let shown = listing.entries.iter().map(|entry| {
        let bytes = fetched.read(entry).unwrap();
        format!("{:?} {} {:?}", entry.kind, entry.path, String::from_utf8_lossy(&bytes))
    });
    shown.collect()
}
