//! A commit on its way: when the source had it, when each Kustomization had applied it.
//!
//! Elsewhere: what is done with the moments (`super::wake`, `super::apply`, `super::kustomizations`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use e2e::installation::ObjectWatch;

/// The moments at which a watch saw a commit.
pub(super) struct CommitArrivals {
    /// The source had it as an artifact.
    pub(super) fetched: Instant,
    /// Each Kustomization was Ready with it, in the order of their names.
    pub(super) ready: Vec<Instant>,
}

impl CommitArrivals {
    /// Sees a commit arrive at a source and at as many Kustomizations.
    ///
    /// # Errors
    /// When it has not within the limit: how all of them were last.
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

    /// From each to the next in the order of their names; the first from the artifact.
    pub(super) fn hops(&self) -> impl Iterator<Item = Duration> {
        let before = std::iter::once(&self.fetched).chain(&self.ready);
        before.zip(&self.ready).map(|(from, to)| to.saturating_duration_since(*from))
    }

    /// From a moment until each was there.
    pub(super) fn since(&self, begun: Instant) -> Vec<Duration> {
        self.ready.iter().map(|ready| ready.saturating_duration_since(begun)).collect()
    }

    /// From a moment until all were there.
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
