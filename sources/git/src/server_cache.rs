//! A cache of facts about servers, so that the next operation on a server needs only one small request.
//!
//! Here: answers of servers to the handshake, times of commits, and clients with open connections. All of it may be lost.
//! Elsewhere: filling and using the cache (`git_connection`).

use std::fmt;
use std::sync::Arc;

use gix::hash::ObjectId;
use http_client::client_cache::{CacheKeyDigest, RecentlyUsedMap, client_key, key};
use http_client::{EgressRules, HostBudgets, HttpClientCache, HttpProxy, TlsConfig};
use parking_lot::Mutex;

use super::{GitAuth, GitRemote};

/// The most remotes whose handshake is remembered.
const MOST_HANDSHAKES: usize = 4096;
/// The longest handshake that is stored. Handshakes have about 200 bytes. A server that sends much more is asked again each
/// time.
const LONGEST_HANDSHAKE: usize = 2048;
/// The most commits whose time is remembered.
const MOST_COMMITS: usize = 4096;

/// The cache of handshakes, commit times and clients between operations. Keep one for all remotes, in
/// [`GitOperationContext::known`](super::GitOperationContext).
///
/// # Guarantees
/// Losing the cache costs requests, but never changes an answer. It holds at most 4096 handshakes, 4096 times of commits and
/// 64 clients; the least recently used are dropped first. Connections that were idle for 90 seconds are closed. The cache
/// contains no credentials, except client certificates and proxy credentials. It holds these for ten minutes after a client
/// was built with them.
///
/// # Assumes
/// All operations use the same runtime as the first one, because cached connections live on it.
pub struct GitServerCache {
    handshakes: Mutex<RecentlyUsedMap<Vec<u8>>>,
    commits: Mutex<RecentlyUsedMap<Option<i64>>>,
    clients: HttpClientCache,
    budgets: Arc<HostBudgets>,
}

impl Default for GitServerCache {
    fn default() -> Self {
        Self {
            handshakes: Mutex::new(RecentlyUsedMap::new(MOST_HANDSHAKES)),
            commits: Mutex::new(RecentlyUsedMap::new(MOST_COMMITS)),
            clients: HttpClientCache::default(),
            budgets: Arc::default(),
        }
    }
}

impl fmt::Debug for GitServerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitServerCache")
            .field("handshakes", &self.handshakes.lock().count())
            .field("clients", &self.clients.count())
            .finish()
    }
}

impl GitServerCache {
    /// A cache for operations that may reach only some servers, with any protocol.
    pub fn within(egress: EgressRules) -> Self {
        Self { clients: HttpClientCache::within(egress), ..Self::default() }
    }

    /// This cache with shared budgets. Requests over HTTP count against the budgets, and requests over SSH do not.
    #[must_use]
    pub fn sharing(self, budgets: Arc<HostBudgets>) -> Self {
        Self { budgets, ..self }
    }

    /// The budgets for requests over HTTP.
    pub fn budgets(&self) -> &Arc<HostBudgets> {
        &self.budgets
    }

    /// The servers to which requests are permitted.
    pub fn egress(&self) -> &EgressRules {
        self.clients.egress()
    }

    /// The response of a remote to an earlier handshake with the same credentials. `None` if none is stored.
    pub(super) fn handshake(&self, remote: &GitRemote) -> Option<Vec<u8>> {
        self.handshakes.lock().get(&remote_key(remote)?).cloned()
    }

    /// Remembers the answer of a remote.
    pub(super) fn remember(&self, remote: &GitRemote, said: Vec<u8>) {
        if said.len() > LONGEST_HANDSHAKE {
            return;
        }
        if let Some(key) = remote_key(remote) {
            self.handshakes.lock().put(key, said);
        }
    }

    /// Forgets the handshake of a remote, which is no longer valid.
    pub(super) fn forget(&self, remote: &GitRemote) {
        if let Some(key) = remote_key(remote) {
            self.handshakes.lock().remove(&key);
        }
    }

    /// The time of a commit, if it was looked up before. `Some(None)` for an object that is not a commit.
    pub(super) fn commit_time(&self, id: ObjectId) -> Option<Option<i64>> {
        self.commits.lock().get(&key(&[Some(id.as_slice())])).copied()
    }

    /// Remembers the time of a commit. A commit with this id never changes.
    pub(super) fn remember_commit_time(&self, id: ObjectId, time: Option<i64>) {
        self.commits.lock().put(key(&[Some(id.as_slice())]), time);
    }

    /// A cached or new client. A cached client still has its connections.
    ///
    /// Credentials other than certificates and the proxy's go with each request, so they are not part of the key.
    ///
    /// # Errors
    /// As [`http_client::client`].
    pub fn client(
        &self,
        tls: &TlsConfig,
        proxy: Option<&HttpProxy>,
    ) -> Result<reqwest::Client, http_client::Error> {
        self.clients.client(tls, proxy)
    }
}

/// The key of a remote with its credentials. `None` for SSH, where each connection needs a handshake.
fn remote_key(remote: &GitRemote) -> Option<CacheKeyDigest> {
    let (kind, user, secret): (&[u8], _, _) = match &remote.credentials.auth {
        GitAuth::None => (b"none", None, None),
        GitAuth::Basic { username, password } => {
            (b"basic", Some(username), Some(password.expose()))
        }
        GitAuth::Bearer(token) => (b"bearer", None, Some(token.expose())),
        GitAuth::Ssh { .. } => return None,
    };
    let client = client_key(&remote.credentials.tls, remote.proxy.as_ref());
    let url = remote.url.bare();
    Some(key(&[
        Some(url.as_str().as_bytes()),
        Some(kind),
        user.map(String::as_bytes),
        secret.map(String::as_bytes),
        Some(&client),
    ]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use objects::RedactedValue;

    use super::*;
    use crate::{GitCredentials, GitLimits, RemoteUrl};

    fn remote(url: &str, auth: GitAuth) -> GitRemote {
        GitRemote {
            url: RemoteUrl::parse(url).unwrap(),
            credentials: GitCredentials { auth, tls: TlsConfig::default() },
            proxy: None,
            timeout: Duration::from_secs(1),
            limits: GitLimits::default(),
        }
    }

    fn basic(username: &str, password: &str) -> GitAuth {
        GitAuth::Basic {
            username: username.to_owned(),
            password: RedactedValue::new(password.to_owned()),
        }
    }

    #[test]
    fn memory_has_a_bound_and_what_is_used_stays() {
        let known = GitServerCache::default();
        let nth = |n: usize| remote(&format!("https://h/{n}"), GitAuth::None);
        for n in 0..MOST_HANDSHAKES + 100 {
            known.remember(&nth(n), b"said".to_vec());
            assert!(known.handshake(&nth(0)).is_some(), "{n}");
        }
        assert_eq!(format!("{known:?}"), "GitServerCache { handshakes: 4096, clients: 0 }");
        assert_eq!(known.handshake(&nth(1)), None);
        assert!(known.handshake(&nth(MOST_HANDSHAKES + 99)).is_some());
        known.remember(&nth(1), vec![b'x'; LONGEST_HANDSHAKE + 1]);
        assert_eq!(known.handshake(&nth(1)), None);
    }

    #[test]
    fn what_was_learned_with_other_credentials_or_elsewhere_does_not_count() {
        let known = GitServerCache::default();
        let url = "https://h/a.git";
        known.remember(&remote(url, basic("me", "hunter2")), b"said".to_vec());
        let hears = |url: &str, auth: GitAuth| known.handshake(&remote(url, auth)).is_some();
        assert!(hears(url, basic("me", "hunter2")));
        assert!(!hears("https://h/b.git", basic("me", "hunter2")));
        assert!(!hears("http://h/a.git", basic("me", "hunter2")));
        assert!(!hears(url, basic("me", "hunter3")));
        assert!(!hears(url, basic("meh", "unter2")));
        assert!(!hears(url, GitAuth::Bearer(RedactedValue::new("hunter2".to_owned()))));
        assert!(!hears(url, GitAuth::None));
        let mut shown = remote(url, basic("me", "hunter2"));
        shown.credentials.tls.ca = Some(b"pem".to_vec());
        assert!(known.handshake(&shown).is_none());
    }

    #[test]
    fn remotes_that_trust_the_same_by_the_same_way_share_a_client() {
        let known = GitServerCache::default();
        let proxy = |password: &str| {
            let keys = [("address", "http://p"), ("username", "me"), ("password", password)];
            let data = keys.map(|(k, v)| (k.to_owned(), v.as_bytes().to_vec()));
            HttpProxy::from_secret(&BTreeMap::from(data)).unwrap()
        };
        for expected in [1, 1] {
            known.client(&TlsConfig::default(), None).unwrap();
            assert_eq!(
                format!("{known:?}"),
                format!("GitServerCache {{ handshakes: 0, clients: {expected} }}")
            );
        }
        for (password, expected) in [("hunter2", 2), ("hunter2", 2), ("hunter3", 3)] {
            known.client(&TlsConfig::default(), Some(&proxy(password))).unwrap();
            assert_eq!(
                format!("{known:?}"),
                format!("GitServerCache {{ handshakes: 0, clients: {expected} }}")
            );
        }
        let mut through = remote("https://h/a.git", GitAuth::None);
        known.remember(&through, b"said".to_vec());
        through.proxy = Some(proxy("hunter2"));
        assert!(known.handshake(&through).is_none());
    }
}
