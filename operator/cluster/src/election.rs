//! A process that wants to act: the Leases that it has to hold for that, its own and those of the controllers that it
//! replaces.
//!
//! Two operators must never work on one object. The source-, kustomize- and helm-controller of Flux, its
//! source-watcher, and its notification-controller where windlass sends notifications, each act under a Lease of their own, so the process that
//! holds these Leases excludes them. Their Deployments are a second sign, of controllers that run without leader
//! election. Shards of Flux have Deployments and Leases whose names begin with those of the controllers: windlass
//! cannot take these Leases, since it does not know their names before, so it waits until no process holds them.
//!
//! Here: in which order the Leases are taken, how they are kept, and how the state is reported. Elsewhere: one Lease
//! (`lease`), what a term allows (`leadership`).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{ListMeta, ResourceExt};
use tokio::time::Instant;

use super::leadership::Leadership;
use super::lease::{ElectionSettings, LeadershipLostError, LeaseAttempt, LeaseClaim};
use super::{ClusterConnection, ClusterError};

/// The controllers of Flux whose work windlass does: each has a Deployment of that name, and a Lease.
pub const REPLACED_CONTROLLERS: [&str; 7] = [
    "source-controller",
    "kustomize-controller",
    "helm-controller",
    "image-automation-controller",
    "image-reflector-controller",
    NOTIFYING,
    "source-watcher",
];
/// The one that may act beside a windlass that sends no notifications.
const NOTIFYING: &str = "notification-controller";

/// The controllers of Flux that must not act beside this process.
pub fn replaced(notifies: bool) -> Vec<&'static str> {
    REPLACED_CONTROLLERS.into_iter().filter(|name| notifies || *name != NOTIFYING).collect()
}
/// Selects what is a part of Flux; windlass has this label, too, for the commands of Flux.
pub const FLUX: &str = "app.kubernetes.io/part-of=flux";
/// The label that names the controller of a Deployment.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// What the names of Leases have after that of the controller. Parity(flux): a shard adds a hash of its selector.
const ELECTION: &str = "-leader-election";
/// Deployments and Leases in the namespace of Flux are listed in pages of so many.
const OBJECTS_PER_PAGE: u32 = 500;
/// Each Lease of a shard is read again at every attempt, so more of them are refused.
const MAX_SHARD_LEASES: usize = 500;

/// Where the next page of a list begins.
fn next_page(metadata: &ListMeta) -> Option<String> {
    metadata.continue_.clone().filter(|it| !it.is_empty())
}

/// Which of these controllers a Deployment runs, a shard included, by its name and its label `app.kubernetes.io/component`.
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

/// Which of these controllers acts under a Lease, a shard included.
pub fn controller_of_lease(name: &str, controllers: &[&'static str]) -> Option<&'static str> {
    let is_of = |controller: &&'static str| {
        let rest = name.strip_prefix(*controller).and_then(|it| it.strip_prefix(ELECTION));
        rest.is_some_and(|it| it.is_empty() || it.starts_with('-'))
    };
    controllers.iter().find(|it| is_of(it)).copied()
}

/// The elections that a process has to win before it may act.
#[derive(Debug, Clone)]
pub struct RequiredLeaseElections {
    /// The election among processes of windlass; none where there is only one.
    pub own: Option<ElectionSettings>,
    /// How Flux's Leases are held, but for their names; none where its controllers may act beside windlass.
    pub flux: Option<ElectionSettings>,
    /// Which of Flux's controllers these are.
    pub replaced: Vec<&'static str>,
}

/// The state of a process in its elections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionState {
    /// It may act.
    Leading,
    /// Another process of windlass acts.
    Standby,
    /// Something else works on the same objects: the text names it.
    Excluded(String),
}

/// A process that wants to act.
pub struct ElectionCandidate {
    /// Its own Lease, if there is an election.
    own: Option<LeaseClaim>,
    /// Those of Flux's controllers.
    flux: Vec<LeaseClaim>,
    /// How those of its shards are read; none where Flux may act.
    shards: Option<ElectionSettings>,
    /// Those of its shards that were seen, by name.
    sharded: BTreeMap<String, LeaseClaim>,
    replaced: Vec<&'static str>,
    client: Client,
    leadership: Leadership,
    retry: Duration,
    limit: Duration,
}

impl RequiredLeaseElections {
    /// The right to act that a process has when it starts: without limit if it needs no election, else none until one is
    /// won.
    pub fn leadership(&self) -> Leadership {
        match (&self.own, &self.flux) {
            (None, None) => Leadership::unlimited(),
            _ => Leadership::standby(),
        }
    }
}

impl ClusterConnection {
    /// The candidate that takes part in the elections of `terms`; `None` if this process may act without any. Nothing is
    /// sent yet.
    pub fn candidate(&self, terms: RequiredLeaseElections) -> Option<ElectionCandidate> {
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
            own: own.map(|election| LeaseClaim::new(election, client())),
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
    /// Waits until this process may act, and keeps it so, telling each change of its standing. Ends only when that is
    /// lost, which it cannot be without an election.
    ///
    /// It may be dropped at any moment; the caller then calls [`Self::release`].
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
                // An answer may have taken longer than the term that it gives.
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

    /// One round: takes what is free, its own Lease first, and checks the others.
    async fn stand(&mut self) -> Result<ElectionState, ClusterError> {
        let mut is_first = true;
        if let Some(own) = &mut self.own {
            is_first = own.attempt(false).await? == LeaseAttempt::Held;
        }
        let mut excluded = None;
        for claim in &mut self.flux {
            let lease = claim.election.lease();
            // Without an election nothing renews a Lease, so it is not taken either.
            let holder = match (is_first, &self.own) {
                (true, Some(_)) => match claim.attempt(false).await? {
                    LeaseAttempt::Held => None,
                    LeaseAttempt::HeldBy(holder) => Some(holder),
                },
                _ => claim.check().await?,
            };
            let text = || holder.map(|holder| format!("Lease {lease} is held by '{holder}'"));
            excluded = excluded.or_else(text);
        }
        if !is_first {
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

    /// A shard of Flux's controllers that holds its Lease.
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

    /// A controller of Flux, or a shard of one, that is not scaled to zero.
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

    /// What a Deployment says that runs a controller which this process replaces.
    fn running_controller(&self, deployment: &Deployment) -> Option<String> {
        let name = deployment.name_any();
        let component = deployment.labels().get(COMPONENT).map(String::as_str);
        controller_of(&name, component, &self.replaced)?;
        let replicas = deployment.spec.replicas.unwrap_or(1);
        let namespace = deployment.namespace().unwrap_or_default();
        (replicas > 0).then(|| format!("Deployment {namespace}/{name} has {replicas} replica(s)"))
    }

    /// Renews every Lease until that succeeds or the term has ended.
    async fn renew(&mut self, end: Instant) -> Result<Instant, LeadershipLostError> {
        let began = Instant::now();
        for claim in self.own.iter_mut().chain(&mut self.flux) {
            renew(claim, end, self.limit).await?;
        }
        let later = began + self.limit;
        // The clock is read once more, so a term that ran out meanwhile is lost.
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

    /// Ends the term: from here on this process writes nothing, and with `hand_over` its Leases are given up, so that
    /// the next leader need not wait.
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

/// Renews one Lease until it succeeds or the term has ended.
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
            Ok(Ok(LeaseAttempt::Held)) => return Ok(()),
            Ok(Ok(LeaseAttempt::HeldBy(other))) if other == claim.election.identity => {
                return Err(LeadershipLostError::Namesake { lease, holder: other });
            }
            Ok(Ok(LeaseAttempt::HeldBy(other))) => {
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
