//! The arrival of a commit: when the source had it, and when each Kustomization had applied it.
//!
//! `super::change_reaction_time`, `super::apply` and `super::kustomizations` use these times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use e2e::cluster_with_operator::ObjectWatch;

/// The times at which a watch saw a commit arrive.
pub(super) struct CommitArrivals {
    /// When the source had an artifact of the commit.
    pub(super) fetched: Instant,
    /// When each Kustomization was Ready with the commit, in the order of their names.
    pub(super) ready: Vec<Instant>,
}

impl CommitArrivals {
    /// Waits until a watch has seen a commit at its source and at `count` Kustomizations.
    ///
    /// # Errors
    /// When the commit does not arrive in time. The error has the last state of all objects.
    pub(super) async fn of(
        commit: &str,
        count: usize,
        watch: &mut ObjectWatch,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let deadline = Instant::now() + limit;
        let mut fetched = None;
        let mut ready = BTreeMap::new();
        while fetched.is_none() || ready.len() < count {
            let what =
                format!("commit {commit} to be applied ({} of {count} have it)", ready.len());
            let seen = watch.next(&what, deadline).await?;
            if seen.kind == "GitRepository" && seen.has_fetched(commit) {
                fetched.get_or_insert(seen.at);
            } else if seen.kind == "Kustomization" && seen.has_applied(commit) {
                ready.entry(seen.name).or_insert(seen.at);
            }
        }
        let fetched = fetched.context("the source never had the commit")?;
        Ok(Self { fetched, ready: ready.into_values().collect() })
    }

    /// The time from each Kustomization to the next one, in the order of their names. The first time begins at the
    /// artifact.
    pub(super) fn hops(&self) -> impl Iterator<Item = Duration> {
        let before = std::iter::once(&self.fetched).chain(&self.ready);
        before.zip(&self.ready).map(|(from, to)| to.saturating_duration_since(*from))
    }

    /// The time from `begun` until each Kustomization was Ready.
    pub(super) fn since(&self, begun: Instant) -> Vec<Duration> {
        self.ready.iter().map(|ready| ready.saturating_duration_since(begun)).collect()
    }

    /// The time from `begun` until all Kustomizations were Ready.
    pub(super) fn all_since(&self, begun: Instant) -> Duration {
        self.since(begun).into_iter().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hop_begins_where_the_one_before_ended() {
        let fetched = Instant::now();
        let after = |time: u64| fetched + Duration::from_millis(time);
        let arrivals = CommitArrivals { fetched, ready: vec![after(5), after(7), after(20)] };
        let hops: Vec<u128> = arrivals.hops().map(|hop| hop.as_millis()).collect();
        assert_eq!(hops, [5, 2, 13]);
        assert_eq!(arrivals.all_since(after(1)).as_millis(), 19);
    }
}
