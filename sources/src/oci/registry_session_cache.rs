//! A cache of tokens and clients for registries, so that the next run needs only one small request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_client::client_cache::{CacheKeyDigest, RecentlyUsedMap, client_key, key};
use http_client::{HostBudgets, LoginTokenCache, TlsTrust};
use objects::RedactedValue;
use parking_lot::Mutex;

use super::auth_challenge::AuthChallenge;
use super::token::{self, RegistryToken};
use super::{Error, OciRepositoryName, RegistryAuth, RegistrySession, RemoteOciRepository, ecr};

/// The most repositories whose challenge is remembered.
const MOST_ACCESSES: usize = 4096;
/// The most cached clients. Remotes with the same authorities, client certificate and proxy share a client.
const MOST_CLIENTS: usize = 64;
/// After this a client is replaced, and with it connections to former addresses of a name and with former authorities.
const OLDEST_CLIENT: Duration = Duration::from_secs(600);

/// A cache of tokens and clients for registries. The caller keeps one for all remotes.
///
/// # Guarantees
/// Losing the cache costs requests, but never changes an answer. It holds at most 4096 tokens and 64 clients; the least
/// recently used are dropped first. Different credentials never share a token.
pub struct RegistrySessionCache {
    accesses: Mutex<RecentlyUsedMap<Arc<RegistryAuthState>>>,
    clients: Mutex<RecentlyUsedMap<(reqwest::Client, Instant)>>,
    /// The logins, by the address of the login service.
    logins: LoginTokenCache<RegistryAuth, Error>,
    budgets: Arc<HostBudgets>,
}

impl Default for RegistrySessionCache {
    fn default() -> Self {
        Self {
            accesses: Mutex::new(RecentlyUsedMap::new(MOST_ACCESSES)),
            clients: Mutex::new(RecentlyUsedMap::new(MOST_CLIENTS)),
            logins: LoginTokenCache::default(),
            budgets: Arc::default(),
        }
    }
}

impl fmt::Debug for RegistrySessionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

impl RegistrySessionCache {
    /// This cache with budgets that others share.
    #[must_use]
    pub fn sharing(self, budgets: Arc<HostBudgets>) -> Self {
        Self { budgets, ..self }
    }

    /// Returns a login for an AWS registry (ECR), with the credentials in the environment of this process.
    ///
    /// The login is requested once for all callers, and again when four fifths of its lifetime are over. The environment may
    /// name another service, as for AWS's own programs: `AWS_ENDPOINT_URL_ECR`, `AWS_ENDPOINT_URL_ECR_PUBLIC`,
    /// `AWS_ENDPOINT_URL`.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`]: the registry is not one of AWS. [`Error::Login`]: there are no credentials, AWS does not accept
    /// them, or the login takes longer than `limit`.
    pub async fn login_to_aws(
        &self,
        repository: &OciRepositoryName,
        limit: Duration,
    ) -> Result<RegistryAuth, Error> {
        self.login(&ecr::EcrService::of(repository.registry())?, limit).await
    }

    /// A login that replaces a refused one. If another caller has got a new login meanwhile, that one is returned.
    pub(super) async fn login_instead(
        &self,
        remote: &RemoteOciRepository,
    ) -> Result<RegistryAuth, Error> {
        let service = ecr::EcrService::of(remote.repository.registry())?;
        self.logins.forget_if(&service.key(), |login| *login == remote.auth).await;
        self.login(&service, remote.timeout).await
    }

    async fn login(
        &self,
        service: &ecr::EcrService,
        limit: Duration,
    ) -> Result<RegistryAuth, Error> {
        let login = ecr::login(service, &self.budgets, limit);
        self.logins.get(&service.key(), login).await.map(|auth| (*auth).clone())
    }

    /// The budgets that limit the requests to each registry.
    pub(super) fn budgets(&self) -> &Arc<HostBudgets> {
        &self.budgets
    }

    /// A client, with the connections that it still has.
    pub(super) fn client(&self, remote: &RemoteOciRepository) -> Result<reqwest::Client, Error> {
        let key = connection_key(remote);
        if let Some((client, built)) = self.clients.lock().get(&key)
            && built.elapsed() < OLDEST_CLIENT
        {
            return Ok(client.clone());
        }
        let built = http_client::client_trusting(
            &remote.tls,
            trust(remote),
            remote.proxy.as_ref(),
            self.budgets.egress(),
        );
        let client = built.map_err(|error| Error::BadSecret(error.to_string()))?;
        self.clients.lock().put(key, (client.clone(), Instant::now()));
        Ok(client)
    }

    /// The access to a repository with these credentials.
    pub(super) fn access(&self, remote: &RemoteOciRepository) -> Arc<RegistryAuthState> {
        let key = access_key(remote);
        let mut accesses = self.accesses.lock();
        if let Some(access) = accesses.get(&key) {
            return access.clone();
        }
        let access = Arc::<RegistryAuthState>::default();
        accesses.put(key, access.clone());
        access
    }
}

/// Parity(flux): custom authorities are trusted beside the system's; `insecure` without them accepts any certificate.
fn trust(remote: &RemoteOciRepository) -> TlsTrust {
    let has_own = remote.tls.ca.is_some() || remote.tls.identity.is_some();
    if remote.insecure && !has_own { TlsTrust::Anyone } else { TlsTrust::Beside }
}

fn connection_key(remote: &RemoteOciRepository) -> CacheKeyDigest {
    let client = client_key(&remote.tls, remote.proxy.as_ref());
    key(&[Some(&client), Some(&[u8::from(remote.insecure)])])
}

fn access_key(remote: &RemoteOciRepository) -> CacheKeyDigest {
    let (kind, user, secret): (&[u8], _, _) = match &remote.auth {
        RegistryAuth::Anonymous => (b"none", None, None),
        RegistryAuth::Basic { username, password } => {
            (b"basic", Some(username), Some(password.expose()))
        }
        RegistryAuth::Login { username, password } => {
            (b"login", Some(username), Some(password.expose()))
        }
        RegistryAuth::Identity(token) => (b"identity", None, Some(token.expose())),
        RegistryAuth::Bearer(token) => (b"bearer", None, Some(token.expose())),
    };
    key(&[
        Some(remote.repository.to_string().as_bytes()),
        Some(kind),
        user.map(String::as_bytes),
        secret.map(String::as_bytes),
        Some(&connection_key(remote)),
    ])
}

/// The challenge of a repository's registry, and the last token or password for it.
#[derive(Default)]
pub(super) struct RegistryAuthState {
    /// Whether the registry uses plain HTTP, once that is known.
    is_plain: Mutex<Option<bool>>,
    /// Held while a token is fetched, so that all requests that need it wait for one.
    given: tokio::sync::Mutex<RegistryAuthorization>,
}

#[derive(Default)]
struct RegistryAuthorization {
    challenge: Option<AuthChallenge>,
    header: Option<RedactedValue<String>>,
    until: Option<Instant>,
}

impl fmt::Debug for RegistryAuthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

impl RegistryAuthorization {
    fn usable(&self) -> Option<RedactedValue<String>> {
        let is_over = self.until.is_some_and(|until| until <= Instant::now());
        self.header.clone().filter(|_| !is_over)
    }

    async fn renew(&mut self, client: &RegistrySession<'_>, is_plain: bool) -> Result<(), Error> {
        let (header, life) = match (&self.challenge, client.auth()) {
            (_, RegistryAuth::Bearer(token)) => {
                (Some(RedactedValue::new(format!("Bearer {}", token.expose()))), None)
            }
            (
                Some(AuthChallenge::Basic),
                RegistryAuth::Basic { username, password }
                | RegistryAuth::Login { username, password },
            ) => (Some(token::basic(username, password)), None),
            (Some(AuthChallenge::Bearer { realm, service }), _) => {
                let fetched = token::fetch(client, is_plain, realm, service.as_deref()).await;
                if fetched.is_err() {
                    // The registry may name another token service next time.
                    self.challenge = None;
                }
                let RegistryToken { header, life } = fetched?;
                (Some(header), Some(life))
            }
            (Some(AuthChallenge::Basic) | None, _) => (None, None),
        };
        self.header = header;
        self.until = life.map(|life| Instant::now() + life);
        Ok(())
    }
}

impl RegistryAuthState {
    pub(super) fn is_plain(&self) -> Option<bool> {
        *self.is_plain.lock()
    }

    pub(super) fn set_plain(&self, is_plain: Option<bool>) {
        *self.is_plain.lock() = is_plain;
    }

    /// The authorization header for a request, as far as the challenge of the registry is known.
    pub(super) async fn authorization(
        &self,
        client: &RegistrySession<'_>,
        is_plain: bool,
    ) -> Result<Option<RedactedValue<String>>, Error> {
        let mut given = self.given.lock().await;
        if given.usable().is_none() {
            given.renew(client, is_plain).await?;
        }
        Ok(given.usable())
    }

    /// The next authorization header after the registry refused the header `refused`. `None` if there is no other.
    pub(super) async fn after(
        &self,
        client: &RegistrySession<'_>,
        is_plain: bool,
        challenge: Option<AuthChallenge>,
        refused: Option<&RedactedValue<String>>,
    ) -> Result<Option<RedactedValue<String>>, Error> {
        let mut given = self.given.lock().await;
        // Another caller may have got another token meanwhile.
        if given.usable().as_ref() == refused || given.usable().is_none() {
            given.challenge = challenge;
            given.header = None;
            given.renew(client, is_plain).await?;
        }
        Ok(given.usable().filter(|header| Some(header) != refused))
    }
}
