//! Requests to key services (KMS) during a build: the identity, the time limit, and the permits that the build holds
//! meanwhile.
//!
//! Elsewhere: the protocols (`sources::kms`), which keys a file needs (`sops`), and permits (`remote_base_access.rs`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_client::{HostBudgets, HttpClientCache};
use sops::{DataKeyServices, KeyServiceCredentials, KeyServiceMasterKey};
use sources::kms::KmsSession;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::remote_base_access::SharedBuildPermits;
use crate::run_context::RunContext;
use crate::time_limit::TimeLimit;

/// How long all key services of a build may take together, even if `spec.timeout` is longer. The build holds one of few
/// permits for that time.
const KEY_SERVICES_TIMEOUT: Duration = Duration::from_secs(120);

/// The flag that forbids decryption with windlass's own identity.
const LOCKDOWN: &str = "--no-cross-namespace-refs";

/// Whether a build may request data keys from key services.
pub enum KeyServiceAccess {
    /// The build may not send requests, for this reason.
    Refused(&'static str),
    /// The build may send requests with these clients.
    Reached(Box<KeyServiceContext>),
}

/// The clients, the limits and the permits with which a build sends requests to key services.
pub struct KeyServiceContext {
    clients: Arc<HttpClientCache>,
    budgets: Arc<HostBudgets>,
    without_identity: Option<&'static str>,
    limit: Duration,
    permits: SharedBuildPermits,
    runtime: Handle,
    cancel: CancellationToken,
}

impl KeyServiceAccess {
    /// The key services that a build may use until `cancel`. Must be called within the async runtime.
    ///
    /// Differs(flux): with `--no-cross-namespace-refs` no tenant decrypts with windlass's own identity, which all
    /// tenants would share.
    pub fn of(
        context: &RunContext,
        timeout: Duration,
        permits: SharedBuildPermits,
        cancel: CancellationToken,
    ) -> Self {
        let is_locked_down = context.settings.no_cross_namespace_refs;
        Self::Reached(Box::new(KeyServiceContext {
            clients: context.remotes.http.clone(),
            budgets: context.remotes.budgets.clone(),
            without_identity: is_locked_down.then_some(LOCKDOWN),
            limit: KEY_SERVICES_TIMEOUT.min(timeout),
            permits,
            runtime: Handle::current(),
            cancel,
        }))
    }

    /// The session of a build with the credentials of a Secret. Waits for a service or a permit do not count for the time
    /// limit of the build.
    pub(crate) fn asked<'b>(
        &'b self,
        credentials: &'b KeyServiceCredentials,
        time: &'b TimeLimit,
    ) -> KeyServiceSession<'b> {
        let reached = match self {
            Self::Refused(why) => Err(*why),
            Self::Reached(it) => {
                let clients = it.clients.clone();
                let budgets = it.budgets.clone();
                let session = KmsSession::new(credentials, it.without_identity, clients, budgets);
                let session = RefCell::new(session);
                let left = Cell::new(it.limit);
                Ok(KeyServiceRequests { reached: it, session, left, time })
            }
        };
        KeyServiceSession { reached, known: RefCell::default() }
    }
}

/// The most data keys that one build may request.
const MOST_KEYS: usize = 256;

/// A data key, or the reason why it could not be decrypted.
type DataKeyResult = Result<Zeroizing<Vec<u8>>, String>;

/// The requests of one build to key services. It caches the data keys, because many files share one, and overwrites them in
/// memory when it is dropped.
pub struct KeyServiceSession<'b> {
    reached: Result<KeyServiceRequests<'b>, &'static str>,
    known: RefCell<HashMap<KeyServiceMasterKey, DataKeyResult>>,
}

struct KeyServiceRequests<'b> {
    reached: &'b KeyServiceContext,
    session: RefCell<KmsSession<'b>>,
    /// The time that is left for requests to key services.
    left: Cell<Duration>,
    time: &'b TimeLimit,
}

impl DataKeyServices for KeyServiceSession<'_> {
    /// Decrypts a data key. It blocks, so it must not be called in a future.
    fn decrypt(&self, key: &KeyServiceMasterKey) -> DataKeyResult {
        let asking = match &self.reached {
            Ok(asking) => asking,
            Err(why) => return Err(failed(key, why)),
        };
        if let Some(known) = self.known.borrow().get(key) {
            return known.clone();
        }
        // Each key may lead to another server.
        if self.known.borrow().len() >= MOST_KEYS || asking.left.get().is_zero() {
            return Err(failed(key, "this build has asked services too often, or for too long"));
        }
        let answer = asking.ask(key);
        self.known.borrow_mut().insert(key.clone(), answer.clone());
        answer
    }
}

fn failed(key: &KeyServiceMasterKey, why: &str) -> String {
    format!("failed to decrypt sops data key with {}: {why}", key.service())
}

impl KeyServiceRequests<'_> {
    fn ask(&self, key: &KeyServiceMasterKey) -> DataKeyResult {
        let KeyServiceContext { limit, permits, runtime, cancel, .. } = self.reached;
        self.time.pause(|| {
            permits.while_asking(|| {
                let begun = Instant::now();
                let left = self.left.get();
                let mut session = self.session.borrow_mut();
                let answer = runtime.block_on(async {
                    tokio::select! {
                        answer = session.decrypt(key) => answer.map_err(|error| error.to_string()),
                        () = tokio::time::sleep(left) => Err(failed(
                            key,
                            &format!("the services of this build did not respond within {limit:?}"),
                        )),
                        () = cancel.cancelled() => Err(failed(key, "the build was canceled")),
                    }
                });
                self.left.set(left.saturating_sub(begun.elapsed()));
                answer
            })
        })
    }
}

#[cfg(test)]
mod tests;
