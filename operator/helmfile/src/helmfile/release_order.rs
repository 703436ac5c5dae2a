//! The order in which the releases of a Helmfile are installed and uninstalled. A release begins after the releases that it
//! waits for, and each cluster has a limit of releases at a time.
//!
//! A Helmfile may have thousands of releases, and each may wait for all others. So windlass keeps a count of the releases that
//! each one waits for, and does not search for them. Between two releases the task yields to other tasks on its thread.
//! Elsewhere: the work for each release (`release_reconciler.rs`, `prune.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crds::helmfile::HelmfileReleaseStatus;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::plan::{HelmfilePlan, ReleaseKey};
use super::release_clusters::ReleaseClusterId;
use windlass_runtime::cluster_target::APPLYING_AT_ONCE;

/// How many releases of one Helmfile are operated on at a time in a cluster. Other Helmfiles do not wait for them, since the
/// permits of the cluster limit the applies at the same moment.
const AT_ONCE: usize = APPLYING_AT_ONCE;

/// Releases by number, with the count of other releases that each still waits for.
#[derive(Debug, Default)]
pub(super) struct ReleaseOrder {
    open: Vec<usize>,
    followers: Vec<Vec<usize>>,
    /// The number of releases. Higher numbers are steps in between, for which many releases wait together.
    releases: usize,
    /// Releases that no longer wait for another, in their order.
    free: VecDeque<usize>,
}

impl ReleaseOrder {
    fn new(releases: usize, between: usize) -> Self {
        let all = releases + between;
        Self {
            open: vec![0; all],
            followers: vec![Vec::new(); all],
            releases,
            free: VecDeque::new(),
        }
    }

    fn follow(&mut self, first: usize, next: usize) {
        self.followers[first].push(next);
        self.open[next] += 1;
    }

    fn begin(mut self) -> Self {
        self.free.extend((0..self.releases).filter(|at| self.open[*at] == 0));
        let between = self.releases..self.open.len();
        let passed: Vec<usize> = between.filter(|at| self.open[*at] == 0).collect();
        passed.into_iter().for_each(|at| self.ended(at));
        self
    }

    /// The order of the releases of a plan, by their place in the plan. A release comes after the releases that it needs, and
    /// after all releases of earlier helmfiles.
    pub(super) fn of_plan(planned: &HelmfilePlan) -> Self {
        let releases = &planned.releases;
        let helmfiles: BTreeMap<usize, usize> = {
            let all: BTreeSet<usize> = releases.iter().map(|it| it.helmfile).collect();
            all.into_iter().enumerate().map(|(at, helmfile)| (helmfile, at)).collect()
        };
        let places: BTreeMap<&ReleaseKey, usize> =
            releases.iter().enumerate().map(|(at, it)| (&it.key, at)).collect();
        let mut order = Self::new(releases.len(), helmfiles.len());
        for at in 1..helmfiles.len() {
            order.follow(releases.len() + at - 1, releases.len() + at);
        }
        for (at, release) in releases.iter().enumerate() {
            let needed = release.needs.iter().filter_map(|need| places.get(need));
            needed.for_each(|need| order.follow(*need, at));
            let helmfile = releases.len() + helmfiles[&release.helmfile];
            order.follow(at, helmfile);
            if helmfile > releases.len() {
                order.follow(helmfile - 1, at);
            }
        }
        order.begin()
    }

    /// The order of releases that are uninstalled, by their place in the list. A release comes after the releases that need
    /// it.
    pub(super) fn of_removal(leaving: &[ReleaseKey], rows: &[HelmfileReleaseStatus]) -> Self {
        let places: BTreeMap<String, usize> =
            leaving.iter().enumerate().map(|(at, key)| (key.to_string(), at)).collect();
        let mut order = Self::new(leaving.len(), 0);
        for row in rows {
            let Some(at) = places.get(&ReleaseKey::of(row).to_string()) else { continue };
            let needed = row.needs.iter().filter_map(|need| places.get(need));
            needed.for_each(|need| order.follow(*at, *need));
        }
        order.begin()
    }

    fn next(&mut self) -> Option<usize> {
        self.free.pop_front()
    }

    /// Notes that a release ended, so that others stop waiting for it.
    fn ended(&mut self, at: usize) {
        let mut ended = vec![at];
        while let Some(at) = ended.pop() {
            for next in std::mem::take(&mut self.followers[at]) {
                self.open[next] -= 1;
                match (self.open[next], next < self.releases) {
                    (0, true) => self.free.push_back(next),
                    (0, false) => ended.push(next),
                    _ => {}
                }
            }
        }
    }

    /// Releases that never came to their turn.
    fn left(self) -> Vec<usize> {
        (0..self.releases).filter(|at| self.open[*at] > 0).collect()
    }
}

/// The number of releases in work by cluster ([`super::release_clusters::ReleaseClusters::id`]), and the releases that wait
/// for a slot.
#[derive(Default)]
struct ConcurrencyLimit<'p> {
    taken: BTreeMap<ReleaseClusterId<'p>, usize>,
    queued: BTreeMap<ReleaseClusterId<'p>, VecDeque<usize>>,
}

impl<'p> ConcurrencyLimit<'p> {
    /// Takes a slot of a cluster for a release, or lets the release wait for one. Returns whether there was a slot.
    fn take(&mut self, place: ReleaseClusterId<'p>, release: usize) -> bool {
        let taken = self.taken.entry(place).or_default();
        let is_free = *taken < AT_ONCE;
        *taken += usize::from(is_free);
        if !is_free {
            self.queued.entry(place).or_default().push_back(release);
        }
        is_free
    }

    /// Releases a slot of a cluster. The release that waited longest for that slot gets it and is returned. `None` if no
    /// release waits.
    fn give_back(&mut self, place: ReleaseClusterId<'p>) -> Option<usize> {
        let next = self.queued.get_mut(&place).and_then(VecDeque::pop_front);
        if let (None, Some(taken)) = (next, self.taken.get_mut(&place)) {
            *taken -= 1;
        }
        next
    }
}

/// The progress of an operation on a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderedOperationOutcome {
    /// Releases that wait for this one have their turn.
    On,
    /// Releases that wait for this one do not have their turn.
    Stays,
    /// The Helmfile was changed meanwhile.
    Overtaken,
}

/// The work that is done for releases in their order.
pub(super) trait OrderedReleaseOperations: Sync {
    /// The cluster of a release.
    fn place(&self, release: usize) -> ReleaseClusterId<'_>;

    /// Whether there is work for a release whose turn it is. If not, the releases that wait for it have their turn.
    fn is_due(&self, release: usize) -> bool;

    /// Does the work for a release whose turn it is, and returns how far the work is.
    fn turn(&self, release: usize) -> impl Future<Output = OrderedOperationOutcome> + Send;
}

/// Does the work for all releases in their order, and returns the releases whose turn never came. Returns `None` if the
/// Helmfile was changed meanwhile. In that case no further release begins, and the ones that have begun come to their end
/// first.
pub(super) async fn in_turn<T: OrderedReleaseOperations>(
    mut order: ReleaseOrder,
    turns: &T,
) -> Option<Vec<usize>> {
    let mut concurrency_limit = ConcurrencyLimit::default();
    let mut under_way = FuturesUnordered::new();
    let begin = |release: usize| async move { (release, turns.turn(release).await) };
    let mut is_overtaken = false;
    loop {
        while let Some(release) = order.next().filter(|_| !is_overtaken) {
            tokio::task::yield_now().await;
            if !turns.is_due(release) {
                order.ended(release);
            } else if concurrency_limit.take(turns.place(release), release) {
                under_way.push(begin(release));
            }
        }
        let Some((release, passed)) = under_way.next().await else { break };
        let next = concurrency_limit.give_back(turns.place(release));
        match passed {
            OrderedOperationOutcome::On => order.ended(release),
            OrderedOperationOutcome::Stays => {}
            OrderedOperationOutcome::Overtaken => is_overtaken = true,
        }
        if let Some(next) = next.filter(|_| !is_overtaken) {
            under_way.push(begin(next));
        }
        tokio::task::yield_now().await;
    }
    (!is_overtaken).then(|| order.left())
}

#[cfg(test)]
mod tests;
