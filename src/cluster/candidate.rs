//! A process that wants to act: the Leases that it has to hold for that, its own and those of the controllers that it
//! replaces.
//!
//! Two operators must never work on one object. The source-, kustomize- and helm-controller of Flux, and its
//! notification-controller where windlass sends notifications, each act under a Lease of their own, so whoever holds these excludes them, by the API server's word. Their Deployments are a second
//! sign, of controllers that run without leader election.
//!
//! Here: in which order the Leases are taken, how they are kept, and how that is told. Elsewhere: one Lease (`lease`), what a
//! term allows (`leadership`).

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::Api;
use tokio::time::Instant;

use super::leadership::Leadership;
use super::lease::{Claim, Election, Lost, Outcome};
use super::{Cluster, ClusterError};

/// The controllers of Flux whose work windlass does: each has a Deployment of that name, and a Lease.
pub(crate) const REPLACED: [&str; 4] =
    ["source-controller", "kustomize-controller", "helm-controller", NOTIFYING];
/// The one that may act beside a windlass that sends no notifications.
const NOTIFYING: &str = "notification-controller";

/// The controllers of Flux that must not act beside this process.
pub(crate) fn replaced(notifies: bool) -> Vec<&'static str> {
    REPLACED.into_iter().filter(|name| notifies || *name != NOTIFYING).collect()
}
/// What marks a Deployment as one of Flux's.
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "flux");

/// Under which conditions this process may act.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// The election among processes of windlass; none where there is only one.
    pub(crate) own: Option<Election>,
    /// How Flux's Leases are held, but for their names; none where its controllers may act beside windlass.
    pub(crate) flux: Option<Election>,
    /// Which of Flux's controllers these are.
    pub(crate) replaced: Vec<&'static str>,
}

/// Where a process stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may act.
    Leading,
    /// Another process of windlass acts.
    Standby,
    /// Something else works on the same objects: the text names it.
    Excluded(String),
}

/// A process that wants to act.
pub(crate) struct Candidate {
    /// Its own Lease, if there is an election.
    own: Option<Claim>,
    /// Those of Flux's controllers.
    flux: Vec<Claim>,
    replaced: Vec<&'static str>,
    deployments: Option<Api<Deployment>>,
    leadership: Leadership,
    retry: Duration,
    limit: Duration,
}

impl Terms {
    /// The right to act at the start of a process.
    pub(crate) fn leadership(&self) -> Leadership {
        match (&self.own, &self.flux) {
            (None, None) => Leadership::unlimited(),
            _ => Leadership::standby(),
        }
    }
}

impl Cluster {
    /// Puts this process up. Nothing is sent yet; none if it may act without.
    pub(crate) fn candidate(&self, terms: Terms) -> Option<Candidate> {
        let Terms { own, flux, replaced } = terms;
        let times = own.as_ref().or(flux.as_ref())?;
        let (retry, limit) = (times.retry, times.renew_deadline);
        let client = || self.leasing.clone();
        let claims = flux.iter().flat_map(|flux| {
            replaced.iter().map(|name| {
                let name = format!("{name}-leader-election");
                Claim::new(Election { name, ..flux.clone() }, client())
            })
        });
        Some(Candidate {
            own: own.map(|election| Claim::new(election, client())),
            flux: claims.collect(),
            replaced: replaced.clone(),
            deployments: flux.map(|flux| Api::namespaced(client(), &flux.namespace)),
            leadership: self.leadership.clone(),
            retry,
            limit,
        })
    }
}

impl Candidate {
    /// Waits until this process may act, and keeps it so, telling each change of its standing. Ends only when that is
    /// lost, which it cannot be without an election.
    ///
    /// It may be dropped at any moment; whoever drops it says [`Self::release`].
    pub(crate) async fn lead(&mut self, mut tell: impl FnMut(&Standing) + Send) -> Lost {
        let mut told = None;
        let mut changed = |standing: Standing| {
            if told.as_ref() != Some(&standing) {
                log(&standing);
                tell(&standing);
                told = Some(standing);
            }
        };
        let mut end = loop {
            let end = Instant::now() + self.limit;
            match self.stand().await {
                Ok(Standing::Leading) if self.own.is_none() => {
                    self.leadership.unlimit();
                    changed(Standing::Leading);
                    return std::future::pending().await;
                }
                // An answer may have taken longer than the term that it gives.
                Ok(Standing::Leading) => {
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
        changed(Standing::Leading);
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
    async fn stand(&mut self) -> Result<Standing, ClusterError> {
        let mut is_first = true;
        if let Some(own) = &mut self.own {
            is_first = own.attempt(false).await? == Outcome::Held;
        }
        let mut excluded = None;
        for claim in &mut self.flux {
            let lease = claim.election.lease();
            // Without an election nothing renews a Lease, so it is not taken either.
            let holder = match (is_first, &self.own) {
                (true, Some(_)) => match claim.attempt(false).await? {
                    Outcome::Held => None,
                    Outcome::HeldBy(holder) => Some(holder),
                },
                _ => claim.check().await?,
            };
            let text = || holder.map(|holder| format!("Lease {lease} is held by '{holder}'"));
            excluded = excluded.or_else(text);
        }
        Ok(match (is_first, excluded) {
            (false, _) => Standing::Standby,
            (true, Some(by)) => Standing::Excluded(by),
            (true, None) => match self.deployed().await? {
                Some(by) => Standing::Excluded(by),
                None => Standing::Leading,
            },
        })
    }

    /// A controller of Flux that is not scaled to zero.
    async fn deployed(&self) -> Result<Option<String>, ClusterError> {
        let Some(api) = &self.deployments else { return Ok(None) };
        for name in &self.replaced {
            let Some(found) = api.get_opt(name).await? else { continue };
            let labels = found.metadata.labels.unwrap_or_default();
            let is_flux = labels.get(PART_OF.0).is_some_and(|part| part == PART_OF.1);
            let replicas = found.spec.replicas.unwrap_or(1);
            if is_flux && replicas > 0 {
                let namespace = found.metadata.namespace.unwrap_or_default();
                return Ok(Some(format!(
                    "Deployment {namespace}/{name} has {replicas} replica(s)"
                )));
            }
        }
        Ok(None)
    }

    /// Renews every Lease until that succeeds or the term has ended.
    async fn renew(&mut self, end: Instant) -> Result<Instant, Lost> {
        let began = Instant::now();
        for claim in self.own.iter_mut().chain(&mut self.flux) {
            renew(claim, end, self.limit).await?;
        }
        let later = began + self.limit;
        // The clock is read once more, so a term that ran out meanwhile is lost.
        if self.leadership.extend(later) { Ok(later) } else { Err(self.expired()) }
    }

    fn expired(&self) -> Lost {
        let claim = self.own.iter().chain(&self.flux).next();
        let lease = claim.map(|claim| claim.election.lease()).unwrap_or_default();
        Lost::Expired { lease, limit: self.limit, why: "this process was paused".to_owned() }
    }

    /// Ends the term: from here on this process writes nothing, and with `hand_over` its Leases are given up, so that
    /// the next leader need not wait.
    pub(crate) async fn release(self, hand_over: bool) {
        let led = self.leadership.may_act();
        self.leadership.end();
        if !led || !hand_over || self.own.is_none() {
            return;
        }
        let claims = self.flux.into_iter().chain(self.own);
        futures::future::join_all(claims.map(Claim::release)).await;
    }
}

/// Renews one Lease until it succeeds or the term has ended.
async fn renew(claim: &mut Claim, end: Instant, limit: Duration) -> Result<(), Lost> {
    let lease = claim.election.lease();
    let mut why = "this process was paused".to_owned();
    loop {
        if Instant::now() >= end {
            return Err(Lost::Expired { lease, limit, why });
        }
        match tokio::time::timeout_at(end, claim.attempt(true)).await {
            Ok(Ok(Outcome::Held)) => return Ok(()),
            Ok(Ok(Outcome::HeldBy(other))) if other == claim.election.identity => {
                return Err(Lost::Namesake { lease, holder: other });
            }
            Ok(Ok(Outcome::HeldBy(other))) => return Err(Lost::Taken { lease, holder: other }),
            Ok(Err(error)) => {
                tracing::info!(lease, error = %error, "failed to renew the Lease, retrying");
                why = error.to_string();
            }
            Err(_) => why = "the API server did not respond".to_owned(),
        }
        tokio::time::sleep_until(end.min(Instant::now() + claim.election.retry)).await;
    }
}

fn log(standing: &Standing) {
    match standing {
        Standing::Leading => tracing::info!("this process is the leader"),
        Standing::Standby => tracing::info!("another process is the leader; waiting"),
        Standing::Excluded(by) => tracing::warn!(
            by,
            "not acting, because a controller of Flux may work on the same objects: scale it to zero, divide the objects \
             by --watch-label-selector, or keep the notification-controller by --events-addr"
        ),
    }
}
