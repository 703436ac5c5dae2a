//! Pending requests for credentials, so that a timeout of a credential service is not blamed on the object store.

use std::sync::Arc;

use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use parking_lot::{Mutex, MutexGuard};

/// A record of the credential service that a client is waiting for, so that a timeout of that service is not
/// blamed on the object store. Clones share one record.
#[derive(Debug, Clone, Default)]
pub(crate) struct CredentialRequestTracker(Arc<Mutex<CredentialRequestTrackerState>>);

#[derive(Debug, Default)]
struct CredentialRequestTrackerState {
    /// The number of requests that wait for credentials.
    waiting: usize,
    /// The service that was asked last.
    asked: Option<String>,
}

impl CredentialRequestTracker {
    fn state(&self) -> MutexGuard<'_, CredentialRequestTrackerState> {
        self.0.lock()
    }

    /// Notes the service from which credentials are requested.
    pub(crate) fn ask(&self, who: String) {
        self.state().asked = Some(who);
    }

    /// The service that has not answered yet; `None` if no request waits for credentials.
    pub(crate) fn on(&self) -> Option<String> {
        let state = self.state();
        let asked = state.asked.clone().unwrap_or_else(|| "the environment".to_owned());
        (state.waiting > 0).then_some(asked)
    }

    /// Waits for credentials where it can be seen.
    pub(crate) async fn during<T>(&self, asking: impl Future<Output = T>) -> T {
        let _waits = PendingCredentialRequest::begin(self);
        asking.await
    }

    /// Wraps a credentials provider of AWS's library, so that pending requests are recorded.
    pub(super) fn watch(
        &self,
        provider: impl ProvideCredentials + 'static,
    ) -> SharedCredentialsProvider {
        let provider = SharedCredentialsProvider::new(provider);
        SharedCredentialsProvider::new(WatchedCredentialsProvider {
            provider,
            waiting: self.clone(),
        })
    }
}

#[derive(Debug)]
struct WatchedCredentialsProvider {
    provider: SharedCredentialsProvider,
    waiting: CredentialRequestTracker,
}

/// A request that waits for credentials, until it is dropped.
struct PendingCredentialRequest<'a>(&'a CredentialRequestTracker);

impl<'a> PendingCredentialRequest<'a> {
    fn begin(waiting: &'a CredentialRequestTracker) -> Self {
        waiting.state().waiting += 1;
        Self(waiting)
    }
}

impl Drop for PendingCredentialRequest<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl ProvideCredentials for WatchedCredentialsProvider {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.waiting.during(self.provider.provide_credentials()))
    }
}
