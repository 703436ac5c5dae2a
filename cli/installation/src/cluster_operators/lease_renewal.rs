//! Finds out whether the process that holds a Lease is alive. The Lease of a killed process is valid for a while, so windlass
//! waits for a renewal.
//!
//! Elsewhere: the holder of a valid Lease ([`super`]), whether an operator is missing (`operator_presence.rs`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use objects::Object;
use tokio::time::Instant;

use super::operator_presence::lease_in_words;
use super::{LeaseHolder, OWN_LEASE, identity, own_leases, renewed};
use crate::install::manifests::CONTROLLER;
use crate::install::{POLL_INTERVAL, name};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::table::clean;
use windlass_cluster::{ClusterConnection, ClusterError};

/// How often a process renews its Lease, unless `--leader-election-retry-period` sets another period.
const RENEWAL_PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// Compares the `renewTime` of Leases with their first reading.
#[derive(Debug, Default)]
pub(crate) struct LeaseRenewals {
    /// The first `renewTime` of each Lease, by the name of the Lease.
    first: BTreeMap<String, Timestamp>,
    seen: BTreeSet<String>,
}

impl LeaseRenewals {
    /// Whether the process that holds a Lease is alive. It is alive if it renewed the Lease within the usual period, or since
    /// the first reading.
    pub(crate) fn is_seen(&mut self, lease: &Object, now: Timestamp) -> bool {
        let Some(at) = renewed(lease) else { return false };
        let id = name(lease);
        let first = *self.first.entry(id.clone()).or_insert(at);
        if first != at || now.duration_since(at).abs() <= RENEWAL_PERIOD {
            self.seen.insert(id.clone());
        }
        self.seen.contains(&id)
    }
}

/// The state of windlass's Leases in a namespace.
#[derive(Debug, Default)]
pub(crate) struct WindlassLeases {
    all: Vec<Object>,
    /// The processes that were seen to renew their Leases.
    pub(crate) holders: Vec<LeaseHolder>,
    /// Leases that are valid but were not renewed meanwhile, as text.
    pub(crate) unconfirmed: Vec<String>,
}

impl WindlassLeases {
    /// Reads the Leases, and waits until each was renewed or has expired. Prints what it waits for.
    ///
    /// # Errors
    /// The API server refuses to list Leases.
    pub(crate) async fn observe(
        cluster: &ClusterConnection,
        namespace: &str,
        deadline: Instant,
    ) -> Result<Self, ClusterError> {
        let mut renewals = LeaseRenewals::default();
        let mut is_printed = false;
        loop {
            let all = own_leases(cluster, namespace).await?;
            let found = Self::of(all, &mut renewals, Timestamp::now());
            if found.unconfirmed.is_empty() || Instant::now() >= deadline {
                return Ok(found);
            }
            if !is_printed {
                for text in &found.unconfirmed {
                    say(ProgressGlyph::Waiting, &format!("{text}; waiting for the next renewal"));
                }
                is_printed = true;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn of(all: Vec<Object>, renewals: &mut LeaseRenewals, now: Timestamp) -> Self {
        let mut holders = Vec::new();
        let mut unconfirmed = Vec::new();
        for lease in &all {
            let Some(holder) = LeaseHolder::of(lease, now) else { continue };
            if renewals.is_seen(lease, now) {
                holders.push(holder);
                continue;
            }
            let seconds = renewed(lease).map_or(0, |at| now.duration_since(at).as_secs());
            let LeaseHolder { lease, identity, .. } = holder;
            unconfirmed.push(format!("'{identity}' renewed Lease {lease} {seconds} s ago"));
        }
        Self { all, holders, unconfirmed }
    }

    /// The message that no process is active under these Leases. `None` if one is active, or may be.
    pub(crate) fn vacancy(&self, namespace: &str) -> Option<String> {
        if !self.holders.is_empty() || !self.unconfirmed.is_empty() {
            return None;
        }
        Some(match self.last() {
            Some(last) => {
                format!("no process holds Lease {}, so nothing is reconciled", lease_in_words(last))
            }
            None => format!(
                "no process has acquired Lease {namespace}/{OWN_LEASE} yet, so nothing is reconciled"
            ),
        })
    }

    /// How the user restarts the process that last held the Lease. `None` if it was a Pod, if there was none, or if one is
    /// active.
    pub(crate) fn restart(&self) -> Option<String> {
        let is_vacant = self.holders.is_empty() && self.unconfirmed.is_empty();
        let last = self.last().filter(|_| is_vacant)?;
        let lease = lease_in_words(last);
        match identity(last) {
            "" => Some(format!(
                "start windlass again where it ran: no process has held Lease {lease}"
            )),
            pod if pod.starts_with(CONTROLLER) => None,
            process => Some(format!(
                "start windlass again where it ran as '{}', which has not held Lease {lease}",
                clean(process)
            )),
        }
    }

    /// The Lease that was renewed last. `None` if there are no Leases.
    fn last(&self) -> Option<&Object> {
        self.all.iter().max_by_key(|it| renewed(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_cluster::operator_objects;

    const NOW: &str = "2026-11-24T12:00:00Z";

    fn lease(holder: &str, renewed: &str) -> Object {
        Object::new(operator_objects::lease("windlass-leader-election", holder, renewed)).unwrap()
    }

    fn observed(renewals: &mut LeaseRenewals, holder: &str, renewed: &str) -> WindlassLeases {
        WindlassLeases::of(vec![lease(holder, renewed)], renewals, NOW.parse().unwrap())
    }

    #[test]
    fn a_lease_that_has_not_run_out_is_held_only_when_it_was_seen_to_be_renewed() {
        let mut renewals = LeaseRenewals::default();
        let killed = observed(&mut renewals, "laptop", "2026-11-24T11:59:48Z");
        assert!(killed.holders.is_empty() && killed.vacancy("flux-system").is_none());
        let text = "'laptop' renewed Lease flux-system/windlass-leader-election 12 s ago";
        assert_eq!(killed.unconfirmed, [text]);
        // The renewal period is longer than usual.
        let renewed = observed(&mut renewals, "laptop", "2026-11-24T11:59:50Z");
        assert!(renewed.unconfirmed.is_empty() && renewed.holders.len() == 1);
        let again = observed(&mut renewals, "laptop", "2026-11-24T11:59:50Z");
        assert_eq!(again.holders.len(), 1, "it was seen before");
        let recent = observed(&mut LeaseRenewals::default(), "laptop", "2026-11-24T11:59:57Z");
        assert_eq!(recent.holders.len(), 1);
    }

    #[test]
    fn a_process_outside_of_the_cluster_is_to_be_started_again_by_its_name() {
        let last =
            |holder: &str| observed(&mut LeaseRenewals::default(), holder, "2026-11-24T11:00:00Z");
        let text = last("laptop").restart().unwrap();
        assert_eq!(
            text,
            "start windlass again where it ran as 'laptop', which has not held Lease \
             flux-system/windlass-leader-election since 2026-11-24T11:00:00Z"
        );
        assert!(last("").restart().unwrap().starts_with("start windlass again where it ran: "));
        assert_eq!(last("windlass-controller-7d9f8c-x2x4z").restart(), None);
        assert_eq!(WindlassLeases::default().restart(), None);
        let text = WindlassLeases::default().vacancy("flux-system").unwrap();
        assert!(text.contains("has acquired Lease flux-system/windlass-leader-election"), "{text}");
    }
}
