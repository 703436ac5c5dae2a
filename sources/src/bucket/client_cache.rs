//! A cache of bucket clients between runs, with their connections and credentials.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_client::HostBudgets;
use http_client::client_cache::client_key;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::{
    BucketClient, BucketCredentialSource, BucketServerSettings, Error, LdapUserLogin, azure, google,
};

/// The time for which an unused client is kept.
const CLIENT_IDLE_TTL: Duration = Duration::from_secs(60 * 60);

/// The most clients that are kept.
const MAX_CACHED_CLIENTS: usize = 256;

/// Clients by their key, with the time of their last use.
type BucketClients = BTreeMap<[u8; 32], (Instant, Arc<BucketClient>)>;

/// A cache of clients by server and user. All requests to the same server as the same user share a client.
#[derive(Debug, Default)]
pub struct BucketClientCache {
    clients: Mutex<BucketClients>,
    budgets: Arc<HostBudgets>,
}

impl BucketClientCache {
    /// This cache with budgets that others share.
    #[must_use]
    pub fn sharing(self, budgets: Arc<HostBudgets>) -> Self {
        Self { budgets, ..self }
    }

    pub(super) fn client(&self, server: &BucketServerSettings) -> Result<Arc<BucketClient>, Error> {
        let key = key(server);
        let now = Instant::now();
        let mut clients = self.clients.lock();
        clients.retain(|_, (used, _)| now.duration_since(*used) < CLIENT_IDLE_TTL);
        if let Some((used, client)) = clients.get_mut(&key) {
            *used = now;
            return Ok(client.clone());
        }
        let client = Arc::new(BucketClient::new(server, &self.budgets)?);
        if clients.len() >= MAX_CACHED_CLIENTS {
            let oldest = clients.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
            oldest.map(|key| clients.remove(&key));
        }
        clients.insert(key, (now, client.clone()));
        Ok(client)
    }
}

/// The key of a server and its user. It is a digest, because it depends on secrets.
fn key(server: &BucketServerSettings) -> [u8; 32] {
    // No `..`: a forgotten field would let one user act as another.
    let BucketServerSettings { endpoint, region, identity, tls, proxy } = server;
    let mut hash = Sha256::new();
    let mut put = |part: Option<&[u8]>| match part {
        // With the length before each part, two different lists of parts have different bytes.
        Some(part) => {
            hash.update((part.len() as u64 + 1).to_be_bytes());
            hash.update(part);
        }
        None => hash.update(0_u64.to_be_bytes()),
    };
    put(Some(endpoint.url(None).as_bytes()));
    put(region.as_deref().map(str::as_bytes));
    match identity {
        BucketCredentialSource::Anonymous => put(Some(b"anonymous")),
        BucketCredentialSource::Keys { access, secret, session } => {
            put(Some(b"keys"));
            put(Some(access.as_bytes()));
            put(Some(secret.expose().as_bytes()));
            put(session.as_ref().map(|session| session.expose().as_bytes()));
        }
        BucketCredentialSource::Environment { sts } => {
            put(Some(b"environment"));
            put(sts.as_ref().map(|sts| sts.as_str().as_bytes()));
        }
        BucketCredentialSource::Ldap(LdapUserLogin { endpoint, username, password, tls }) => {
            put(Some(b"ldap"));
            put(Some(endpoint.as_str().as_bytes()));
            put(Some(username.as_bytes()));
            put(Some(password.expose().as_bytes()));
            put(Some(&client_key(tls, None)));
        }
        BucketCredentialSource::Google(identity) => {
            put(Some(b"google"));
            match identity {
                google::GoogleCredentialSource::Anonymous => put(Some(b"anonymous")),
                google::GoogleCredentialSource::Environment => put(Some(b"environment")),
                google::GoogleCredentialSource::ServiceAccount(key) => {
                    put(Some(key.expose().as_bytes()));
                }
            }
        }
        BucketCredentialSource::Azure(identity) => {
            put(Some(b"azure"));
            match identity {
                azure::AzureCredentialSource::Anonymous => put(Some(b"anonymous")),
                azure::AzureCredentialSource::Environment { client } => {
                    put(Some(b"environment"));
                    put(client.as_deref().map(str::as_bytes));
                }
                azure::AzureCredentialSource::Key { account, key } => {
                    put(Some(b"key"));
                    put(Some(account.as_bytes()));
                    put(Some(key.expose().as_bytes()));
                }
                azure::AzureCredentialSource::Signature(signature) => {
                    put(Some(b"signature"));
                    put(Some(signature.expose().as_bytes()));
                }
                azure::AzureCredentialSource::Application { tenant, client, secret, authority } => {
                    put(Some(b"application"));
                    put(Some(tenant.as_bytes()));
                    put(Some(client.as_bytes()));
                    put(Some(secret.expose().as_bytes()));
                    put(authority.as_ref().map(|url| url.as_str().as_bytes()));
                }
            }
        }
    }
    put(Some(&client_key(tls, proxy.as_ref())));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use objects::RedactedValue;

    use super::*;

    #[test]
    fn another_user_gets_another_client_and_the_same_one_the_same() {
        let known = BucketClientCache::default();
        let mut server = crate::bucket::tests::remote("b").server;
        let anonymous = known.client(&server).unwrap();
        assert!(Arc::ptr_eq(&anonymous, &known.client(&server).unwrap()));
        let mut seen = vec![anonymous];
        for secret in ["one", "two"] {
            let secret = RedactedValue::new(secret.to_owned());
            server.identity =
                BucketCredentialSource::Keys { access: "a".to_owned(), secret, session: None };
            let client = known.client(&server).unwrap();
            assert!(seen.iter().all(|other| !Arc::ptr_eq(other, &client)));
            seen.push(client);
        }
    }
}
