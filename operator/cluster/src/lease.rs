//! Leader election by a Lease (`coordination.k8s.io/v1`), with the protocol of client-go.
//!
//! Here: reading, acquiring, renewing and releasing one Lease. Elsewhere: which Leases a process has to hold (`election`), and
//! what a term allows (`leadership`).
//!
//! The clocks of different machines are never compared. This process takes another process's Lease only after it has seen the
//! Lease unchanged for its whole duration, by its own clock. Each write carries the resourceVersion that was read. If two
//! processes write at once, the API server therefore refuses one of them.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use super::ClusterError;

/// How long the release of a Lease may take. If it fails, the next leader only waits until the Lease expires.
const RELEASE_LIMIT: Duration = Duration::from_millis(1500);

/// The annotation of windlass's own Lease with the address from which its holder serves artifacts: the identity of the holder, a
/// space and the address. A holder of an earlier version leaves the annotation of another process in place, so the identity says
/// whose address it is.
const STORAGE_ADDRESS: &str = "windlass.dev/storage-address";

/// The settings of a leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionSettings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The identity of this process. It stays the same after a restart, and differs from every process that runs beside it.
    pub identity: String,
    /// How long other processes wait after the last renewal that they saw.
    pub duration: Duration,
    /// How long after its last renewal the leader stops writing.
    pub renew_deadline: Duration,
    /// The interval at which the Lease is checked or renewed.
    pub retry: Duration,
}

/// Why a process lost its leadership. The process has to end then.
#[derive(Debug, thiserror::Error)]
pub enum LeadershipLostError {
    /// No renewal succeeded before the deadline.
    #[error(
        "Lease {lease} could not be renewed for {limit:?} ({why}); exiting, because another process may be the \
         leader now"
    )]
    Expired {
        /// `namespace/name`.
        lease: String,
        /// The renew deadline.
        limit: Duration,
        /// The last error of a renewal.
        why: String,
    },
    /// Another process acquired the Lease.
    #[error(
        "Lease {lease} was acquired by '{holder}'; exiting, because only one process may be the leader"
    )]
    Taken {
        /// `namespace/name`.
        lease: String,
        /// The identity of the process that holds the Lease.
        holder: String,
    },
    /// Another process with the same identity renewed the Lease.
    #[error(
        "Lease {lease} was renewed by another process with the same identity '{holder}'; exiting, because only one \
         process may be the leader: set a unique --leader-election-identity for each"
    )]
    Namesake {
        /// `namespace/name`.
        lease: String,
        /// The identity that both processes use.
        holder: String,
    },
}

/// One Lease that this process wants to hold.
pub(super) struct LeaseClaim {
    pub(super) election: ElectionSettings,
    api: Api<Lease>,
    /// The address from which this process serves artifacts. `None` if the Lease does not say it.
    storage_address: Option<String>,
    /// The Lease as it was last read, and when it was first seen with this content.
    seen: Option<(Lease, Instant)>,
    /// The specs that this process sent since it last saw the Lease as its own. The answer to one of them may have been lost.
    sent: Vec<LeaseSpec>,
}

/// What a process that wants a Lease does next.
#[derive(Debug, Clone, PartialEq)]
enum LeaseAction {
    /// Another process holds the Lease, so this process waits.
    Wait,
    /// The Lease is free, expired or held by this process, so the process writes this spec.
    Write(LeaseSpec),
}

/// Who holds a Lease after an attempt to acquire it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeaseAcquireResult {
    /// This process holds the Lease from now on.
    Held,
    /// The process with this identity holds the Lease.
    HeldBy(String),
}

/// The current time in microseconds, as a Lease stores it. So the spec that the API server returns equals the spec that was
/// sent.
fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

impl ElectionSettings {
    /// The spec of a Lease that this process acquires now.
    fn claim(&self, now: jiff::Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX),
            ),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }
    }

    /// The next action about a Lease that has had this content for `age`.
    fn next(&self, seen: &LeaseSpec, age: Duration, now: jiff::Timestamp) -> LeaseAction {
        let claim = self.claim(now);
        let transitions = seen.lease_transitions.unwrap_or_default();
        if holder(seen) == self.identity {
            // Parity(client-go): it is the identity that counts, so a restarted process goes on where it was.
            let acquire_time = seen.acquire_time.clone();
            return LeaseAction::Write(LeaseSpec {
                acquire_time,
                lease_transitions: Some(transitions),
                ..claim
            });
        }
        let lasts = u64::try_from(seen.lease_duration_seconds.unwrap_or_default()).unwrap_or(0);
        if !holder(seen).is_empty() && age < Duration::from_secs(lasts) {
            return LeaseAction::Wait;
        }
        LeaseAction::Write(LeaseSpec {
            lease_transitions: Some(transitions.saturating_add(1)),
            ..claim
        })
    }

    /// The spec of a Lease that its holder releases.
    fn released(seen: &LeaseSpec, now: jiff::Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: seen.lease_transitions,
            ..LeaseSpec::default()
        }
    }

    /// Writes the address from which this process serves artifacts into the metadata of a Lease.
    fn advertise(&self, metadata: &mut ObjectMeta, address: &str) {
        let value = format!("{} {address}", self.identity);
        metadata.annotations.get_or_insert_default().insert(STORAGE_ADDRESS.to_owned(), value);
    }

    /// The Lease, as `namespace/name`.
    pub(super) fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl LeaseClaim {
    /// A claim to a Lease. Sends no request yet.
    pub(super) fn new(election: ElectionSettings, client: Client) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        Self { election, api, storage_address: None, seen: None, sent: Vec::new() }
    }

    /// This claim, whose Lease also has the address from which this process serves artifacts, for the standbys.
    pub(super) fn advertising(self, address: &str) -> Self {
        Self { storage_address: Some(address.to_owned()), ..self }
    }

    /// The address from which another process that holds the Lease serves artifacts, as the Lease was last read.
    pub(super) fn leader_storage(&self) -> Option<String> {
        let (lease, _) = self.seen.as_ref()?;
        let is_own = holder(lease.spec.as_ref()?) == self.election.identity;
        storage_address(lease).filter(|_| !is_own).map(str::to_owned)
    }

    /// Reads the Lease and tracks how long it stays unchanged. Returns the holder if another process holds the Lease and it
    /// has not expired.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond.
    pub(super) async fn check(&mut self) -> Result<Option<String>, ClusterError> {
        let limit = self.election.renew_deadline / 2;
        let found = tokio::time::timeout(limit, self.api.get_opt(&self.election.name)).await;
        let Some(lease) = found.map_err(|_| no_response(limit))?? else {
            self.seen = None;
            return Ok(None);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        self.see(lease);
        let is_free = self.election.next(&spec, self.age(), now()) != LeaseAction::Wait;
        Ok((!is_free).then(|| holder(&spec).to_owned()))
    }

    /// Checks the Lease once, and tries once to acquire or renew it.
    ///
    /// `leads` says that the term of this process has begun. If another process has held the Lease since, the leadership is
    /// lost.
    ///
    /// # Errors
    /// The API server refuses a request or does not respond.
    pub(super) async fn attempt(
        &mut self,
        leads: bool,
    ) -> Result<LeaseAcquireResult, ClusterError> {
        // The limit leaves time for at least two attempts within a term, even if the API server is slow.
        let limit = self.election.renew_deadline / 2;
        match tokio::time::timeout(limit, self.try_once(leads)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(no_response(limit)),
        }
    }

    async fn try_once(&mut self, leads: bool) -> Result<LeaseAcquireResult, ClusterError> {
        // The version after the last renewal is probably still current, so the Lease is not read again.
        if leads
            && self.sent.is_empty()
            && let Some((lease, _)) = self.seen.clone()
            && self.write(lease).await.is_ok()
        {
            return Ok(LeaseAcquireResult::Held);
        }
        if !leads {
            self.sent.clear();
        }
        let found = self.api.get_opt(&self.election.name).await?;
        let Some(lease) = found else {
            let mut metadata = ObjectMeta {
                name: Some(self.election.name.clone()),
                namespace: Some(self.election.namespace.clone()),
                ..ObjectMeta::default()
            };
            if let Some(address) = &self.storage_address {
                self.election.advertise(&mut metadata, address);
            }
            let spec = Some(self.election.claim(now()));
            let created =
                self.api.create(&PostParams::default(), &Lease { metadata, spec }).await?;
            return Ok(self.won(created));
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let is_known = self.sent.contains(&spec) || self.is_seen(&spec);
        self.see(lease.clone());
        if leads && (holder(&spec) != self.election.identity || !is_known) {
            return Ok(LeaseAcquireResult::HeldBy(holder(&spec).to_owned()));
        }
        if self.election.next(&spec, self.age(), now()) == LeaseAction::Wait {
            return Ok(LeaseAcquireResult::HeldBy(holder(&spec).to_owned()));
        }
        self.write(lease).await?;
        Ok(LeaseAcquireResult::Held)
    }

    /// Writes the next spec for a Lease that was read, with its resourceVersion.
    async fn write(&mut self, mut lease: Lease) -> Result<(), ClusterError> {
        let spec = lease.spec.take().unwrap_or_default();
        let LeaseAction::Write(next) = self.election.next(&spec, self.age(), now()) else {
            return Err(ClusterError::NoAnswer("the Lease is held by another process".to_owned()));
        };
        self.sent.push(next.clone());
        lease.spec = Some(next);
        if let Some(address) = &self.storage_address {
            self.election.advertise(&mut lease.metadata, address);
        }
        let written = self.api.replace(&self.election.name, &PostParams::default(), &lease).await?;
        self.won(written);
        Ok(())
    }

    fn won(&mut self, lease: Lease) -> LeaseAcquireResult {
        self.sent.clear();
        self.seen = Some((lease, Instant::now()));
        LeaseAcquireResult::Held
    }

    /// Remembers a Lease that was read. Its age counts from the moment when it was first seen with this content.
    fn see(&mut self, lease: Lease) {
        let is_same = lease.spec.as_ref().is_some_and(|spec| self.is_seen(spec));
        let since = match &self.seen {
            Some((_, since)) if is_same => *since,
            Some(_) | None => Instant::now(),
        };
        self.seen = Some((lease, since));
    }

    fn is_seen(&self, spec: &LeaseSpec) -> bool {
        self.seen.as_ref().is_some_and(|(lease, _)| lease.spec.as_ref() == Some(spec))
    }

    fn age(&self) -> Duration {
        self.seen.as_ref().map(|(_, since)| since.elapsed()).unwrap_or_default()
    }

    /// Releases the Lease if this process holds it, so that the next process does not wait. A failure is only logged, since
    /// the Lease then expires.
    pub(super) async fn release(mut self) {
        let lease = self.election.lease();
        match tokio::time::timeout(RELEASE_LIMIT, self.give_up()).await {
            Ok(Ok(())) => tracing::info!(lease, "Lease released"),
            Ok(Err(error)) => tracing::info!(lease, error = %error, "failed to release the Lease"),
            Err(_) => {
                tracing::info!(
                    lease,
                    "failed to release the Lease: the API server did not respond"
                );
            }
        }
    }

    async fn give_up(&mut self) -> Result<(), ClusterError> {
        // A renewal may still be on its way, so the Lease may have a newer version than the one last read.
        let Some(mut lease) = self.api.get_opt(&self.election.name).await? else { return Ok(()) };
        let spec = lease.spec.take().unwrap_or_default();
        if holder(&spec) != self.election.identity {
            return Ok(());
        }
        lease.spec = Some(ElectionSettings::released(&spec, now()));
        self.api.replace(&self.election.name, &PostParams::default(), &lease).await?;
        Ok(())
    }
}

/// The address from which the holder of a Lease serves artifacts.
fn storage_address(lease: &Lease) -> Option<&str> {
    let holder = holder(lease.spec.as_ref()?);
    let value = lease.metadata.annotations.as_ref()?.get(STORAGE_ADDRESS)?;
    value.strip_prefix(holder)?.strip_prefix(' ').filter(|address| !address.is_empty())
}

fn no_response(limit: Duration) -> ClusterError {
    ClusterError::NoAnswer(format!("no response within {limit:?}"))
}

#[cfg(test)]
mod tests;
