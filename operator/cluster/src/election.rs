//! The leader election of a process. The process has to hold its own Lease and the Leases of the Flux controllers that it
//! replaces.
//!
//! Two operators must never work on one object. The source-, kustomize- and helm-controller of Flux and its source-watcher
//! each act under a Lease. So does its notification-controller, which counts where windlass sends notifications. A process
//! that holds these Leases excludes the controllers. Their Deployments are a second sign, because a controller may run without
//! leader election.
//!
//! Shards of Flux have Deployments and Leases whose names begin with the name of the controller. windlass does not know these
//! names in advance, so it cannot take their Leases, and waits until no process holds them.
//!
//! Here: in which order the Leases are taken, how they are renewed, and how the state is reported. Elsewhere: one Lease
//! (`lease`), and what a term allows (`leadership`).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{ListMeta, ResourceExt};
use tokio::time::Instant;

use super::leadership::Leadership;
use super::lease::{ElectionSettings, LeadershipLostError, LeaseAcquireResult, LeaseClaim};
use super::{ClusterConnection, ClusterError};

/// The Flux controllers that windlass replaces. Each has a Deployment of this name and a Lease.
pub const REPLACED_CONTROLLERS: [&str; 7] = [
    "source-controller",
    "kustomize-controller",
    "helm-controller",
    "image-automation-controller",
    "image-reflector-controller",
    NOTIFYING,
    "source-watcher",
];
/// The controller that may run beside windlass if windlass sends no notifications.
const NOTIFYING: &str = "notification-controller";

/// The Flux controllers that must not run beside this process.
pub fn replaced(notifies: bool) -> Vec<&'static str> {
    REPLACED_CONTROLLERS.into_iter().filter(|name| notifies || *name != NOTIFYING).collect()
}
/// The label selector for the parts of Flux. windlass has this label too, so that the commands of Flux find it.
pub const FLUX: &str = "app.kubernetes.io/part-of=flux";
/// The label that names the controller of a Deployment.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// What the names of Leases have after that of the controller. Parity(flux): a shard adds a hash of its selector.
const ELECTION: &str = "-leader-election";
/// The page size for lists of Deployments and Leases in the namespace of Flux.
const OBJECTS_PER_PAGE: u32 = 500;
/// The most Leases of shards. Each one is read again at every attempt, so more of them are an error.
const MAX_SHARD_LEASES: usize = 500;

/// The token of the next page of a list.
fn next_page(metadata: &ListMeta) -> Option<String> {
    metadata.continue_.clone().filter(|it| !it.is_empty())
}

/// Determines the controller that a Deployment runs from its name and its label `app.kubernetes.io/component`. A shard
/// counts as its controller.
pub fn controller_of(
    name: &str,
    component: Option<&str>,
    controllers: &[&'static str],
) -> Option<&'static str> {
    let is_of = |controller: &&'static str| {
        let rest = name.strip_prefix(*controller);
        component == Some(*controller)
            || rest.is_some_and(|it| it.is_empty() || it.starts_with('-'))
    };
    controllers.iter().find(|it| is_of(it)).copied()
}

/// Which of these controllers uses a Lease of this name. A shard counts as its controller.
pub fn controller_of_lease(name: &str, controllers: &[&'static str]) -> Option<&'static str> {
    let is_of = |controller: &&'static str| {
        let rest = name.strip_prefix(*controller).and_then(|it| it.strip_prefix(ELECTION));
        rest.is_some_and(|it| it.is_empty() || it.starts_with('-'))
    };
    controllers.iter().find(|it| is_of(it)).copied()
}

/// The leader elections that a process has to win before it may write.
#[derive(Debug, Clone)]
pub struct RequiredLeaseElections {
    /// The election among windlass processes. `None` if only one process runs.
    pub own: Option<ElectionSettings>,
    /// The settings for the Leases of Flux's controllers, except their names. `None` if these controllers may run beside
    /// windlass.
    pub flux: Option<ElectionSettings>,
    /// The Flux controllers that this process replaces.
    pub replaced: Vec<&'static str>,
}

/// The state of a process in its leader elections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionState {
    /// The process leads and may write.
    Leading,
    /// Another windlass process leads.
    Standby,
    /// Another controller works on the same objects. The text names its Lease or Deployment.
    Excluded(String),
}

/// A process that takes part in leader elections.
pub struct ElectionCandidate {
    /// The Lease of windlass, if there is an election among windlass processes.
    own: Option<LeaseClaim>,
    /// The Leases of Flux's controllers.
    flux: Vec<LeaseClaim>,
    /// The settings for reading Leases of shards. `None` if Flux's controllers may run beside windlass.
    shards: Option<ElectionSettings>,
    /// The Leases of shards that were seen, by name.
    sharded: BTreeMap<String, LeaseClaim>,
    replaced: Vec<&'static str>,
    client: Client,
    leadership: Leadership,
    retry: Duration,
    limit: Duration,
}

impl RequiredLeaseElections {
    /// The right to write with which a process starts. It is unlimited without an election. Otherwise there is none until the
    /// process wins.
    pub fn leadership(&self) -> Leadership {
        match (&self.own, &self.flux) {
            (None, None) => Leadership::unlimited(),
            _ => Leadership::standby(),
        }
    }
}

impl ClusterConnection {
    /// The candidate for the elections of `terms`. `None` if this process needs no election. Sends no request yet. While it holds
    /// its own Lease, the Lease has the address from which this process serves artifacts. An empty address is not written.
    pub fn candidate(
        &self,
        terms: RequiredLeaseElections,
        storage_address: &str,
    ) -> Option<ElectionCandidate> {
        let RequiredLeaseElections { own, flux, replaced } = terms;
        let times = own.as_ref().or(flux.as_ref())?;
        let retry = times.retry;
        let limit = times.renew_deadline;
        let client = || self.leasing.clone();
        let claims = flux.iter().flat_map(|flux| {
            replaced.iter().map(|name| {
                let name = format!("{name}{ELECTION}");
                LeaseClaim::new(ElectionSettings { name, ..flux.clone() }, client())
            })
        });
        Some(ElectionCandidate {
            own: own.map(|election| match storage_address {
                "" => LeaseClaim::new(election, client()),
                address => LeaseClaim::new(election, client()).advertising(address),
            }),
            flux: claims.collect(),
            replaced: replaced.clone(),
            shards: flux.clone(),
            sharded: BTreeMap::new(),
            client: client(),
            leadership: self.leadership.clone(),
            retry,
            limit,
        })
    }
}

impl ElectionCandidate {
    /// Waits until this process leads, and then renews its Leases. It calls `tell` at each change of the state, and ends only
    /// when the leadership is lost. Without an election of its own, a process cannot lose it.
    ///
    /// The caller may drop this future at any time, and then calls [`Self::release`].
    pub async fn lead(
        &mut self,
        mut tell: impl FnMut(&ElectionState) + Send,
    ) -> LeadershipLostError {
        let mut last_reported = None;
        let mut changed = |standing: ElectionState| {
            if last_reported.as_ref() != Some(&standing) {
                log(&standing);
                tell(&standing);
                last_reported = Some(standing);
            }
        };
        let mut end = loop {
            let end = Instant::now() + self.limit;
            match self.stand().await {
                Ok(ElectionState::Leading) if self.own.is_none() => {
                    self.leadership.unlimit();
                    changed(ElectionState::Leading);
                    return std::future::pending().await;
                }
                // The answer may have taken longer than the term that it grants.
                Ok(ElectionState::Leading) => {
                    if self.leadership.extend(end) {
                        break end;
                    }
                }
                Ok(standing) => changed(standing),
                Err(error) => {
                    tracing::error!(error = %error, "failed to determine whether this process may act, retrying");
                }
            }
            tokio::time::sleep(self.retry).await;
        };
        changed(ElectionState::Leading);
        loop {
            tokio::time::sleep(self.retry).await;
            match self.renew(end).await {
                Ok(later) => end = later,
                Err(lost) => {
                    self.leadership.end();
                    return lost;
                }
            }
        }
    }

    /// One attempt to lead. It first takes its own Lease, then the Leases of Flux's controllers if they are free. Then it
    /// checks the shards and the Deployments.
    async fn stand(&mut self) -> Result<ElectionState, ClusterError> {
        let mut is_first = true;
        if let Some(own) = &mut self.own {
            is_first = own.attempt(false).await? == LeaseAcquireResult::Held;
            self.leadership.note_leader_storage(own.leader_storage());
        }
        let mut excluded = None;
        for claim in &mut self.flux {
            let lease = claim.election.lease();
            // Without an election of its own, this process renews no Lease, so it takes none.
            let holder = match (is_first, &self.own) {
                (true, Some(_)) => match claim.attempt(false).await? {
                    LeaseAcquireResult::Held => None,
                    LeaseAcquireResult::HeldBy(holder) => Some(holder),
                },
                _ => claim.check().await?,
            };
            let text = || holder.map(|holder| format!("Lease {lease} is held by '{holder}'"));
            excluded = excluded.or_else(text);
        }
        if !is_first {
            self.leadership.note_wait();
            return Ok(ElectionState::Standby);
        }
        if excluded.is_none() {
            excluded = self.sharded().await?;
        }
        if excluded.is_none() {
            excluded = self.deployed().await?;
        }
        Ok(excluded.map_or(ElectionState::Leading, ElectionState::Excluded))
    }

    /// The held Lease of a shard of a Flux controller, as a text for the user.
    async fn sharded(&mut self) -> Result<Option<String>, ClusterError> {
        let Some(election) = &self.shards else { return Ok(None) };
        let api = Api::<Lease>::namespaced(self.client.clone(), &election.namespace);
        let is_taken = |name: &str| self.flux.iter().any(|it| it.election.name == name);
        let is_of_shard =
            |name: &str| controller_of_lease(name, &self.replaced).is_some() && !is_taken(name);
        let mut names = Vec::new();
        let mut params = ListParams::default().limit(OBJECTS_PER_PAGE);
        loop {
            let page = api.list_metadata(&params).await?;
            names.extend(page.items.iter().map(ResourceExt::name_any).filter(|it| is_of_shard(it)));
            if names.len() > MAX_SHARD_LEASES {
                let namespace = &election.namespace;
                let text = format!(
                    "namespace {namespace} has more than {MAX_SHARD_LEASES} Leases of shards"
                );
                return Err(ClusterError::Unreadable(text));
            }
            match next_page(&page.metadata) {
                Some(next) => params.continue_token = Some(next),
                None => break,
            }
        }
        self.sharded.retain(|name, _| names.contains(name));
        let mut excluded = None;
        for name in names {
            let new = || {
                LeaseClaim::new(
                    ElectionSettings { name: name.clone(), ..election.clone() },
                    self.client.clone(),
                )
            };
            let claim = self.sharded.entry(name.clone()).or_insert_with(new);
            let lease = claim.election.lease();
            let holder = claim.check().await?;
            let text = || holder.map(|holder| format!("Lease {lease} is held by '{holder}'"));
            excluded = excluded.or_else(text);
        }
        Ok(excluded)
    }

    /// A Flux controller or shard whose Deployment is not scaled to zero, as a text for the user.
    async fn deployed(&self) -> Result<Option<String>, ClusterError> {
        let Some(election) = &self.shards else { return Ok(None) };
        let api = Api::<Deployment>::namespaced(self.client.clone(), &election.namespace);
        let mut params = ListParams::default().labels(FLUX).limit(OBJECTS_PER_PAGE);
        loop {
            let page = api.list(&params).await?;
            if let Some(excluded) = page.items.iter().find_map(|it| self.running_controller(it)) {
                return Ok(Some(excluded));
            }
            match next_page(&page.metadata) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(None),
            }
        }
    }

    /// A text about a Deployment that runs a replaced controller. `None` if it runs none or has no replicas.
    fn running_controller(&self, deployment: &Deployment) -> Option<String> {
        let name = deployment.name_any();
        let component = deployment.labels().get(COMPONENT).map(String::as_str);
        controller_of(&name, component, &self.replaced)?;
        let replicas = deployment.spec.replicas.unwrap_or(1);
        let namespace = deployment.namespace().unwrap_or_default();
        (replicas > 0).then(|| format!("Deployment {namespace}/{name} has {replicas} replica(s)"))
    }

    /// Renews every Lease, and repeats each renewal until it succeeds or the term has ended.
    async fn renew(&mut self, end: Instant) -> Result<Instant, LeadershipLostError> {
        let began = Instant::now();
        for claim in self.own.iter_mut().chain(&mut self.flux) {
            renew(claim, end, self.limit).await?;
        }
        let later = began + self.limit;
        // The clock is read once more, so a term that ended during the renewal is lost.
        if self.leadership.extend(later) { Ok(later) } else { Err(self.expired()) }
    }

    fn expired(&self) -> LeadershipLostError {
        let claim = self.own.iter().chain(&self.flux).next();
        let lease = claim.map(|claim| claim.election.lease()).unwrap_or_default();
        LeadershipLostError::Expired {
            lease,
            limit: self.limit,
            why: "this process was paused".to_owned(),
        }
    }

    /// Ends the term, after which this process writes nothing. With `hand_over` it also releases its Leases, so that the next
    /// leader does not have to wait.
    pub async fn release(self, hand_over: bool) {
        let led = self.leadership.may_act();
        self.leadership.end();
        if !led || !hand_over || self.own.is_none() {
            return;
        }
        let claims = self.flux.into_iter().chain(self.own);
        futures::future::join_all(claims.map(LeaseClaim::release)).await;
    }
}

/// Renews one Lease, and repeats that until it succeeds or the term has ended.
async fn renew(
    claim: &mut LeaseClaim,
    end: Instant,
    limit: Duration,
) -> Result<(), LeadershipLostError> {
    let lease = claim.election.lease();
    let mut why = "this process was paused".to_owned();
    loop {
        if Instant::now() >= end {
            return Err(LeadershipLostError::Expired { lease, limit, why });
        }
        match tokio::time::timeout_at(end, claim.attempt(true)).await {
            Ok(Ok(LeaseAcquireResult::Held)) => return Ok(()),
            Ok(Ok(LeaseAcquireResult::HeldBy(other))) if other == claim.election.identity => {
                return Err(LeadershipLostError::Namesake { lease, holder: other });
            }
            Ok(Ok(LeaseAcquireResult::HeldBy(other))) => {
                return Err(LeadershipLostError::Taken { lease, holder: other });
            }
            Ok(Err(error)) => {
                tracing::info!(lease, error = %error, "failed to renew the Lease, retrying");
                why = error.to_string();
            }
            Err(_) => why = "the API server did not respond".to_owned(),
        }
        tokio::time::sleep_until(end.min(Instant::now() + claim.election.retry)).await;
    }
}

fn log(standing: &ElectionState) {
    match standing {
        ElectionState::Leading => tracing::info!("this process is the leader"),
        ElectionState::Standby => tracing::info!("another process is the leader; waiting"),
        ElectionState::Excluded(by) => tracing::warn!(
            by,
            "not acting, because a controller of Flux may work on the same objects: scale it to zero, divide the objects \
             by --watch-label-selector, or keep the notification-controller by --events-addr"
        ),
    }
}

#[cfg(test)]
mod tests;
