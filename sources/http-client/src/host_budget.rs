//! Limits the requests to each host. Every request of every source goes through these limits.
//!
//! Here: hosts by scheme, name and port; permits and turns; sending. Elsewhere: pausing a host (`circuit_breaker`), how a
//! client is built ([`super::client`]), when a rejected source retries (its controller).

mod circuit_breaker;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::{RequestBuilder, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use super::EgressRules;
use circuit_breaker::{CircuitBreaker, HostAvailability, HostRateLimit, RequestTicket};

/// The number of hosts from which on hosts without any state are forgotten.
const MANY_HOSTS: usize = 1024;

/// The limits on requests to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLimits {
    /// The most requests at the same time, each counted from the first byte sent to the last byte read.
    pub at_once: usize,
    /// The most requests that begin in one second; `None` for no limit.
    pub per_second: Option<u32>,
}

impl Default for HostLimits {
    /// Sixteen at once, as many a second as there are.
    fn default() -> Self {
        Self { at_once: 16, per_second: None }
    }
}

/// A host to which requests are paused, because it responded with 429 or 503.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host} responded with HTTP status {status}; {}", when(*.until, *.is_tried))]
pub struct HostBusyError {
    /// Host and port.
    pub host: String,
    /// The time of the next attempt, within the next hour.
    pub until: Timestamp,
    /// The status with which the host responded.
    pub status: u16,
    /// Whether a single request is testing whether the host serves again.
    pub is_tried: bool,
}

// A text that changed with every look would be written to a status with every look.
fn when(until: Timestamp, is_tried: bool) -> String {
    if is_tried {
        "retrying with a single request".to_owned()
    } else {
        format!("next request at {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Requests to the host are paused, so nothing was sent.
    #[error(transparent)]
    Busy(#[from] HostBusyError),
    /// The request could not be sent, or no server answered it. The error does not contain the URL.
    #[error(transparent)]
    Transport(reqwest::Error),
}

/// The budgets of all hosts. A process has one such object.
///
/// # Guarantees
/// Requests get permits in the order in which they ask, so a caller that sends one request after the other cannot keep others
/// out. A caller that sends requests in parallel has to bound their number itself. Requests to a host are paused if it
/// responds with 429, with 503 and a `Retry-After`, or with 503 three times in a row. The pause is the `Retry-After`, from a
/// second to an hour. Without one it is two seconds, and each time twice as long, up to five minutes. After the pause a single
/// request tests whether the host serves again; until its result is known, all other requests fail.
#[derive(Debug)]
pub struct HostBudgets {
    limits: HostLimits,
    egress: EgressRules,
    hosts: Arc<Mutex<BTreeMap<String, Arc<HostBudget>>>>,
}

impl Default for HostBudgets {
    /// Budgets for any server except those at link-local and metadata addresses.
    fn default() -> Self {
        Self::new(HostLimits::default())
    }
}

#[derive(Debug)]
struct HostBudget {
    /// Scheme, host and port.
    key: String,
    /// Host and port.
    name: String,
    per_second: Option<u32>,
    permits: Arc<Semaphore>,
    state: Mutex<(CircuitBreaker, HostRateLimit)>,
}

impl HostBudgets {
    /// Budgets with other limits than the default ones.
    pub fn new(limits: HostLimits) -> Self {
        Self { limits, ..Self::within(EgressRules::with_loopback()) }
    }

    /// Budgets for the servers that an egress policy permits.
    pub fn within(egress: EgressRules) -> Self {
        Self { limits: HostLimits::default(), egress, hosts: Arc::default() }
    }

    /// These budgets, for requests with another egress policy.
    #[must_use]
    pub fn for_servers(&self, egress: EgressRules) -> Self {
        Self { limits: self.limits, egress, hosts: self.hosts.clone() }
    }

    /// The servers that specs may name. The sender checks URLs against it, and its clients resolve names with it.
    pub fn egress(&self) -> &EgressRules {
        &self.egress
    }

    /// Waits for a permit for the host of a URL. Any number of requests can be sent from it, one after the other.
    ///
    /// A caller that holds a permit must not wait for another one at the same host, nor for a permit of another kind.
    ///
    /// # Errors
    /// The host is closed; the call does not wait for it to open.
    pub async fn permit(&self, url: &Url) -> Result<HostPermit, HostBusyError> {
        let host = self.host(url);
        host.peek()?;
        // The semaphore is never closed, so it always gives a permit.
        let permit = host.permits.clone().acquire_owned().await.ok();
        // Requests to the host may have been paused meanwhile.
        host.peek()?;
        Ok(HostPermit { host, _permit: permit })
    }

    /// Sends a request with a permit of its own. The permit is released when the answer is dropped.
    ///
    /// Call it in a future. Blocking code uses `block_on` of its runtime.
    ///
    /// # Errors
    /// [`SendError::Busy`] if requests to the host are paused, or become paused while this call waits. The answer that begins
    /// a pause is returned as an answer.
    pub async fn send(&self, request: RequestBuilder) -> Result<ResponseWithHostPermit, SendError> {
        let (client, request) = request.build_split();
        let request = request.map_err(|error| SendError::Transport(error.without_url()))?;
        let permit = self.permit(request.url()).await?;
        let response = permit.send(RequestBuilder::from_parts(client, request)).await?;
        Ok(ResponseWithHostPermit { response, permit })
    }

    /// Like [`HostBudgets::send`], but the permit is released as soon as the answer begins. The body is read without a permit.
    ///
    /// # Errors
    /// As [`HostBudgets::send`].
    pub async fn execute(
        &self,
        client: &reqwest::Client,
        request: reqwest::Request,
    ) -> Result<Response, SendError> {
        let permit = self.permit(request.url()).await?;
        permit.send(RequestBuilder::from_parts(client.clone(), request)).await
    }

    /// Fails while requests to the host of a URL are paused. Code with its own client calls it before a request.
    ///
    /// # Errors
    /// The host is closed.
    pub fn check(&self, url: &Url) -> Result<(), HostBusyError> {
        self.host(url).peek()
    }

    /// Notes the answer of a host to a request that another client sent. See [`HostBudgets::check`].
    pub fn learn(&self, url: &Url, status: http::StatusCode, headers: &http::HeaderMap) {
        let host = self.host(url);
        let now = Timestamp::now();
        let mut state = host.state.lock();
        let said = HostAvailability::of(status, headers, now);
        // A request without a permit tries as soon as the time is over.
        let ticket = state.0.admit(now).unwrap_or(RequestTicket::Usual);
        state.0.learn(ticket, said, now);
    }

    fn host(&self, url: &Url) -> Arc<HostBudget> {
        let (key, name) = key_of(url);
        let mut hosts = self.hosts.lock();
        if hosts.len() >= MANY_HOSTS && !hosts.contains_key(&key) {
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.is_remarkable());
        }
        let new = || {
            Arc::new(HostBudget {
                key: key.clone(),
                name,
                per_second: self.limits.per_second,
                permits: Arc::new(Semaphore::new(self.limits.at_once.max(1))),
                state: Mutex::default(),
            })
        };
        hosts.entry(key.clone()).or_insert_with(new).clone()
    }
}

/// The key with scheme, host and port, and the same without the scheme.
fn key_of(url: &Url) -> (String, String) {
    let port = url.port_or_known_default().unwrap_or_default();
    let name = format!("{}:{port}", url.host_str().unwrap_or_default());
    (format!("{}://{name}", url.scheme()), name)
}

impl HostBudget {
    /// Whether the host has state that must not be forgotten.
    fn is_remarkable(&self) -> bool {
        !self.state.lock().0.is_forgettable()
    }

    fn busy(&self, shut: circuit_breaker::OpenCircuitError) -> HostBusyError {
        let circuit_breaker::OpenCircuitError { until, status, is_tried } = shut;
        HostBusyError { host: self.name.clone(), until, status, is_tried }
    }

    /// Fails while requests are paused. It does not take the right to send the test request.
    fn peek(&self) -> Result<(), HostBusyError> {
        let admitted = self.state.lock().0.clone().admit(Timestamp::now());
        admitted.map(drop).map_err(|shut| self.busy(shut))
    }

    fn turn(&self) -> Duration {
        let Some(per_second) = self.per_second else { return Duration::ZERO };
        self.state.lock().1.turn(per_second, Timestamp::now())
    }
}

/// The right to send requests to a host, until it is dropped.
#[derive(Debug)]
pub struct HostPermit {
    host: Arc<HostBudget>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Returns the right to send the test request if the request is dropped before its end.
struct TrialRequestGuard<'h>(&'h HostBudget, RequestTicket);

impl Drop for TrialRequestGuard<'_> {
    fn drop(&mut self) {
        // Without effect after a result was noted.
        self.0.state.lock().0.abandon(self.1);
    }
}

impl HostPermit {
    /// Whether a URL is of the host that this permit is at.
    pub fn is_at(&self, url: &Url) -> bool {
        self.host.key == key_of(url).0
    }

    /// Sends a request to the host, and notes from the answer whether requests have to be paused.
    ///
    /// # Errors
    /// As [`HostBudgets::send`].
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, SendError> {
        let wait = self.host.turn();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let host = &*self.host;
        let ticket = host.state.lock().0.admit(Timestamp::now());
        let ticket = ticket.map_err(|shut| host.busy(shut))?;
        let asking = TrialRequestGuard(host, ticket);
        let answer = request.send().await;
        let answer = answer.map_err(|error| SendError::Transport(error.without_url()))?;
        let now = Timestamp::now();
        let said = HostAvailability::of(answer.status(), answer.headers(), now);
        host.state.lock().0.learn(asking.1, said, now);
        Ok(answer)
    }

    /// Fails while requests to the host are paused.
    ///
    /// # Errors
    /// The host is closed.
    pub fn check(&self) -> Result<(), HostBusyError> {
        self.host.peek()
    }
}

/// An answer that holds its permit until it is dropped. Read it, then drop it before the next request.
#[derive(Debug)]
pub struct ResponseWithHostPermit {
    response: Response,
    permit: HostPermit,
}

impl ResponseWithHostPermit {
    /// Fails while requests to the host are paused, for example because this answer is 429 or 503.
    ///
    /// # Errors
    /// The host is closed.
    pub fn check(&self) -> Result<(), HostBusyError> {
        self.permit.check()
    }
}

impl Deref for ResponseWithHostPermit {
    type Target = Response;

    fn deref(&self) -> &Response {
        &self.response
    }
}

impl DerefMut for ResponseWithHostPermit {
    fn deref_mut(&mut self) -> &mut Response {
        &mut self.response
    }
}

#[cfg(test)]
mod tests;
