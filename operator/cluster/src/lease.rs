//! Election of a leader by a Lease (`coordination.k8s.io/v1`), by the protocol of client-go.
//!
//! Here: reading, taking, renewing and releasing one Lease. Elsewhere: who has to hold which Leases to act (`election`),
//! what a term allows (`leadership`).
//!
//! Clocks of different machines are never compared: a rival's Lease is taken only after it was seen unchanged for
//! its duration by the clock of this process. Writes carry the resourceVersion that was seen, so of two who take it
//! at once one is refused.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use super::ClusterError;

/// Longest time that giving up the Lease may take: the next leader waits a second, not for ever.
const RELEASE_LIMIT: Duration = Duration::from_millis(1500);

/// How an election is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who this process is; the same after a restart, another for every process that runs beside it.
    pub identity: String,
    /// How long rivals wait after the last renewal that they saw.
    pub duration: Duration,
    /// How long after its last renewal a leader stops acting.
    pub renew_deadline: Duration,
    /// How often the Lease is checked or renewed.
    pub retry: Duration,
}

/// Why a term ended against the leader's will. It has to end the process.
#[derive(Debug, thiserror::Error)]
pub enum LeadershipLostError {
    /// The renewals were not answered in time.
    #[error(
        "Lease {lease} could not be renewed for {limit:?} ({why}); exiting, because another process may be the \
         leader now"
    )]
    Expired {
        /// `namespace/name`.
        lease: String,
        /// The renew deadline.
        limit: Duration,
        /// The last answer.
        why: String,
    },
    /// Another process holds it.
    #[error(
        "Lease {lease} was acquired by '{holder}'; exiting, because only one process may be the leader"
    )]
    Taken {
        /// `namespace/name`.
        lease: String,
        /// Who holds it.
        holder: String,
    },
    /// Another process holds it under this process' name.
    #[error(
        "Lease {lease} was renewed by another process with the same identity '{holder}'; exiting, because only one \
         process may be the leader: set a unique --leader-election-identity for each"
    )]
    Namesake {
        /// `namespace/name`.
        lease: String,
        /// The name that both have.
        holder: String,
    },
}

/// One Lease that this process wants to hold.
pub(super) struct LeaseClaim {
    pub(super) election: ElectionSettings,
    api: Api<Lease>,
    /// The Lease as last seen, and when it was first seen so.
    seen: Option<(Lease, Instant)>,
    /// What was sent since the Lease was last seen to be ours: a reply may have been lost.
    sent: Vec<LeaseSpec>,
}

/// What a process that wants a Lease does next.
#[derive(Debug, Clone, PartialEq)]
enum LeaseAction {
    /// Another process holds it.
    Wait,
    /// It is free, expired, or ours.
    Write(LeaseSpec),
}

/// Who holds a Lease after an attempt to get it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeaseAttempt {
    /// The Lease is ours from now on.
    Held,
    /// It belongs to the one who is named.
    HeldBy(String),
}

/// The time as a Lease can hold it: what comes back is compared with what was sent.
fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

impl ElectionSettings {
    /// What a Lease says that was acquired by this process now.
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

    /// What to do about a Lease that was first seen as it is `age` ago.
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

    /// What a Lease says that its holder gave up.
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

    /// The Lease, as `namespace/name`.
    pub(super) fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl LeaseClaim {
    /// A claim to a Lease. Nothing is sent yet.
    pub(super) fn new(election: ElectionSettings, client: Client) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        Self { election, api, seen: None, sent: Vec::new() }
    }

    /// Reads the Lease, so that its time counts; returns its holder, if that is another process and the Lease has not
    /// expired.
    ///
    /// # Errors
    /// The API server did not say.
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

    /// One check of the Lease and one attempt to have it.
    ///
    /// With `leads`, the term has begun: a Lease that another process has held since is lost.
    ///
    /// # Errors
    /// The API server refused or did not respond.
    pub(super) async fn attempt(&mut self, leads: bool) -> Result<LeaseAttempt, ClusterError> {
        // Two attempts at least fit into a term, however slow the API server is.
        let limit = self.election.renew_deadline / 2;
        match tokio::time::timeout(limit, self.try_once(leads)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(no_response(limit)),
        }
    }

    async fn try_once(&mut self, leads: bool) -> Result<LeaseAttempt, ClusterError> {
        // The version of the last renewal is most likely still the current one, so the Lease is not read again.
        if leads
            && self.sent.is_empty()
            && let Some((lease, _)) = self.seen.clone()
            && self.write(lease).await.is_ok()
        {
            return Ok(LeaseAttempt::Held);
        }
        if !leads {
            self.sent.clear();
        }
        let found = self.api.get_opt(&self.election.name).await?;
        let Some(lease) = found else {
            let metadata = ObjectMeta {
                name: Some(self.election.name.clone()),
                namespace: Some(self.election.namespace.clone()),
                ..ObjectMeta::default()
            };
            let spec = Some(self.election.claim(now()));
            let created =
                self.api.create(&PostParams::default(), &Lease { metadata, spec }).await?;
            return Ok(self.won(created));
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let is_known = self.sent.contains(&spec) || self.is_seen(&spec);
        self.see(lease.clone());
        if leads && (holder(&spec) != self.election.identity || !is_known) {
            return Ok(LeaseAttempt::HeldBy(holder(&spec).to_owned()));
        }
        if self.election.next(&spec, self.age(), now()) == LeaseAction::Wait {
            return Ok(LeaseAttempt::HeldBy(holder(&spec).to_owned()));
        }
        self.write(lease).await?;
        Ok(LeaseAttempt::Held)
    }

    /// Sends what should follow upon a Lease that was seen; its resourceVersion goes with it.
    async fn write(&mut self, mut lease: Lease) -> Result<(), ClusterError> {
        let spec = lease.spec.take().unwrap_or_default();
        let LeaseAction::Write(next) = self.election.next(&spec, self.age(), now()) else {
            return Err(ClusterError::NoAnswer("the Lease is held by another process".to_owned()));
        };
        self.sent.push(next.clone());
        lease.spec = Some(next);
        let written = self.api.replace(&self.election.name, &PostParams::default(), &lease).await?;
        self.won(written);
        Ok(())
    }

    fn won(&mut self, lease: Lease) -> LeaseAttempt {
        self.sent.clear();
        self.seen = Some((lease, Instant::now()));
        LeaseAttempt::Held
    }

    /// Remembers a Lease; its time counts from when it was first seen with this content.
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

    /// Gives the Lease up if it is ours, so that the next process need not wait. A failure is logged: the Lease then
    /// expires.
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
        // A renewal may be on its way still, so the version seen last need not be the current one.
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

fn no_response(limit: Duration) -> ClusterError {
    ClusterError::NoAnswer(format!("no response within {limit:?}"))
}

#[cfg(test)]
mod tests;
