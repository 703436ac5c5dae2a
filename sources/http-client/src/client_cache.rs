//! A cache of HTTP clients with their connections, so that not every request needs a handshake.
//!
//! Here: which requests share a client, and how long a client lives. Elsewhere: building a client, which reads all certificate
//! authorities of the system ([`super::client_within`]).

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{EgressRules, Error, HttpProxy, TlsConfig, TlsTrust, client_trusting};

/// The most cached clients. Remotes with the same authorities, client certificate and proxy share a client.
const MOST_CLIENTS: usize = 64;
/// After this a client is replaced, and with it connections to former addresses of a name and with former authorities.
const OLDEST_CLIENT: Duration = Duration::from_secs(600);

/// A cache of clients by trusted authorities, client certificate and proxy. It keeps the 64 most recently used, for ten
/// minutes each.
///
/// # Assumes
/// All requests use the same runtime as the first one, because cached connections live on it.
pub struct HttpClientCache {
    kept: Mutex<RecentlyUsedMap<(reqwest::Client, Instant)>>,
    egress: EgressRules,
}

impl Default for HttpClientCache {
    fn default() -> Self {
        Self::within(EgressRules::default())
    }
}

impl fmt::Debug for HttpClientCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClients").field("kept", &self.count()).finish()
    }
}

impl HttpClientCache {
    /// A cache without clients yet, whose clients reach only the servers that `egress` permits.
    pub fn within(egress: EgressRules) -> Self {
        Self { kept: Mutex::new(RecentlyUsedMap::new(MOST_CLIENTS)), egress }
    }

    /// The servers that these clients may reach.
    pub fn egress(&self) -> &EgressRules {
        &self.egress
    }

    /// A cached or new client. A cached client still has its connections.
    ///
    /// Credentials other than certificates and the proxy's go with each request, so they are not part of the key.
    ///
    /// # Errors
    /// As [`super::client`].
    pub fn client(
        &self,
        tls: &TlsConfig,
        proxy: Option<&HttpProxy>,
    ) -> Result<reqwest::Client, Error> {
        self.client_trusting(tls, TlsTrust::Instead, proxy)
    }

    /// Like [`HttpClientCache::client`]. `trust` decides how custom authorities are used.
    ///
    /// # Errors
    /// As [`super::client`].
    pub fn client_trusting(
        &self,
        tls: &TlsConfig,
        trust: TlsTrust,
        proxy: Option<&HttpProxy>,
    ) -> Result<reqwest::Client, Error> {
        let key = key(&[Some(&client_key(tls, proxy)), Some(&[trust as u8])]);
        let kept = || self.kept.lock();
        {
            let mut kept = kept();
            kept.entries.retain(|_, (_, (_, built))| built.elapsed() < OLDEST_CLIENT);
            if let Some((client, _)) = kept.get(&key) {
                return Ok(client.clone());
            }
        }
        let client = client_trusting(tls, trust, proxy, &self.egress)?;
        kept().put(key, (client.clone(), Instant::now()));
        Ok(client)
    }

    /// The number of clients that are kept.
    pub fn count(&self) -> usize {
        self.kept.lock().count()
    }
}

/// A digest that identifies its input.
pub type CacheKeyDigest = [u8; 32];

/// A digest of parts that may be absent. Two different lists of parts have different digests.
pub fn key(parts: &[Option<&[u8]>]) -> CacheKeyDigest {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update([u8::from(part.is_some())]);
        let bytes = part.unwrap_or_default();
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    }
    digest.finalize().into()
}

/// The key of a client. It does not contain credentials that each request sends.
pub fn client_key(tls: &TlsConfig, proxy: Option<&HttpProxy>) -> CacheKeyDigest {
    let identity = tls.identity.as_ref();
    let [address, username, password] = proxy.map(HttpProxy::parts).unwrap_or_default();
    key(&[
        tls.ca.as_deref(),
        identity.map(|identity| identity.certificate.as_slice()),
        identity.map(|identity| identity.key.expose().as_slice()),
        address,
        username,
        password,
    ])
}

/// A map with a limited number of values. A new value replaces the least recently used one.
pub struct RecentlyUsedMap<V> {
    most: usize,
    /// The number of uses so far. An entry with a larger number was used later.
    uses: u64,
    entries: BTreeMap<CacheKeyDigest, (u64, V)>,
}

impl<V> RecentlyUsedMap<V> {
    /// An empty map for at most so many values.
    pub fn new(most: usize) -> Self {
        Self { most, uses: 0, entries: BTreeMap::new() }
    }

    /// The value of a key, or `None`. The value counts as used now.
    pub fn get(&mut self, key: &CacheKeyDigest) -> Option<&V> {
        self.uses += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.uses;
        Some(value)
    }

    /// Stores a value. If there are too many values, the least recently used one is dropped.
    pub fn put(&mut self, key: CacheKeyDigest, value: V) {
        self.uses += 1;
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() > self.most {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.entries.remove(&oldest);
            }
        }
    }

    /// Forgets the value of a key.
    pub fn remove(&mut self, key: &CacheKeyDigest) {
        self.entries.remove(key);
    }

    /// The number of values in the cache.
    pub fn count(&self) -> usize {
        self.entries.len()
    }
}
