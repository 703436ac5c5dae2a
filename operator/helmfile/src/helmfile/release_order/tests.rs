//! Orders of releases: every one once, after what it waits for, with others having their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::super::plan::PlannedRelease;
use super::super::testing::{key, planned, release};
use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnMoment {
    Begun(usize),
    Ended(usize),
}

/// Turns of which some are overtaken, some stay, and all note when they were.
#[derive(Default)]
struct RecordingTurns {
    moments: Mutex<Vec<TurnMoment>>,
    overtaken: Vec<usize>,
    stays: Vec<usize>,
    /// Whether nothing is to be done for any release.
    is_idle: bool,
}

impl RecordingTurns {
    fn note(&self, moment: TurnMoment) {
        self.moments.lock().push(moment);
    }

    fn moments(&self) -> Vec<TurnMoment> {
        self.moments.lock().clone()
    }
}

impl OrderedReleaseOperations for RecordingTurns {
    fn place(&self, _: usize) -> ReleaseClusterId<'_> {
        ReleaseClusterId::Place("here")
    }

    fn is_due(&self, _: usize) -> bool {
        !self.is_idle
    }

    async fn turn(&self, release: usize) -> OrderedOperationOutcome {
        self.note(TurnMoment::Begun(release));
        // Later ones end first, but for those that are overtaken.
        let is_overtaken = self.overtaken.contains(&release);
        for _ in 0..if is_overtaken { 0 } else { 100 - release.min(99) } {
            tokio::task::yield_now().await;
        }
        self.note(TurnMoment::Ended(release));
        match (is_overtaken, self.stays.contains(&release)) {
            (true, _) => OrderedOperationOutcome::Overtaken,
            (false, true) => OrderedOperationOutcome::Stays,
            (false, false) => OrderedOperationOutcome::On,
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn releases_under_way_come_to_their_end_when_one_of_them_is_overtaken() {
    let all: Vec<_> = (0..100).map(|at| release(&format!("r{at}"), 0, &[])).collect();
    let turns = RecordingTurns { overtaken: vec![3], ..RecordingTurns::default() };
    let left = runtime().block_on(in_turn(ReleaseOrder::of_plan(&planned(all)), &turns));
    assert_eq!(left, None);
    let moments = turns.moments();
    let all = |moment: fn(usize) -> TurnMoment| (0..AT_ONCE).map(moment).collect::<Vec<_>>();
    let is_there = |it: &TurnMoment| moments.contains(it);
    assert!(all(TurnMoment::Begun).iter().all(is_there), "{moments:?}");
    assert!(all(TurnMoment::Ended).iter().all(is_there), "none is dropped: {moments:?}");
    assert_eq!(moments.len(), 2 * AT_ONCE, "none begins afterwards: {moments:?}");
}

#[test]
fn others_have_their_turn_between_releases_for_which_nothing_is_to_be_done() {
    const NUMBER: usize = 2_000;
    let first = (0..NUMBER / 2).map(|at| release(&format!("a{at}"), 0, &[]));
    let second = (0..NUMBER / 2).map(|at| release(&format!("b{at}"), 1, &[]));
    let planned = planned(first.chain(second).collect());
    let turns = RecordingTurns { is_idle: true, ..RecordingTurns::default() };
    let others = Arc::new(AtomicUsize::new(0));
    runtime().block_on(async {
        let counted = others.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(in_turn(ReleaseOrder::of_plan(&planned), &turns).await, Some(Vec::new()));
        other.abort();
    });
    assert!(others.load(Ordering::Relaxed) >= NUMBER, "{others:?}");
}

#[test]
fn what_waits_for_whole_helmfiles_is_counted_once_for_each() {
    // As many waits as there are releases times releases would be millions.
    let first = (0..1_000).map(|at| release(&format!("a{at}"), 0, &[]));
    let second = (0..1_000).map(|at| release(&format!("b{at}"), 7, &["a0"]));
    let order = ReleaseOrder::of_plan(&planned(first.chain(second).collect()));
    let waits: usize = order.open.iter().sum();
    assert!(waits <= 5 * 1_000, "{waits}");
}

#[test]
fn those_that_others_need_leave_after_them_and_stay_if_one_of_those_does() {
    let rows: Vec<HelmfileReleaseStatus> =
        [("web", ["n/db"].as_slice()), ("db", &[]), ("job", &["n/gone"])]
            .map(|(name, needs)| HelmfileReleaseStatus {
                name: name.to_owned(),
                namespace: "n".to_owned(),
                needs: needs.iter().map(|it| (*it).to_owned()).collect(),
                ..HelmfileReleaseStatus::default()
            })
            .into();
    let leaving = [key("db"), key("job"), key("web")];
    let order = || ReleaseOrder::of_removal(&leaving, &rows);
    let turns = RecordingTurns::default();
    assert_eq!(runtime().block_on(in_turn(order(), &turns)), Some(Vec::new()));
    let moments = turns.moments();
    let at = |moment| moments.iter().position(|it| *it == moment);
    assert!(at(TurnMoment::Ended(2)) < at(TurnMoment::Begun(0)), "{moments:?}");
    let turns = RecordingTurns { stays: vec![2], ..RecordingTurns::default() };
    assert_eq!(runtime().block_on(in_turn(order(), &turns)), Some(vec![0]));
}

#[test]
fn releases_of_a_cluster_take_the_slots_of_no_other() {
    let mut concurrency_limit = ConcurrencyLimit::default();
    let taken =
        (0..100).filter(|it| concurrency_limit.take(ReleaseClusterId::Place("dead"), *it)).count();
    assert_eq!(taken, AT_ONCE);
    assert!(concurrency_limit.take(ReleaseClusterId::Context("dead"), 100));
    assert_eq!(
        concurrency_limit.give_back(ReleaseClusterId::Place("dead")),
        Some(AT_ONCE),
        "it waited longest"
    );
    assert_eq!(concurrency_limit.give_back(ReleaseClusterId::Context("dead")), None);
    assert!(concurrency_limit.take(ReleaseClusterId::Context("dead"), 101));
}

/// Pseudo-random numbers (splitmix64), the same each time.
struct PseudoRandomNumbers(u64);

impl PseudoRandomNumbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound.max(1) as u64).unwrap()
    }
}

/// Up to thirty releases in up to four helmfiles, of which each needs earlier ones of its helmfile.
fn some(chance: &mut PseudoRandomNumbers) -> HelmfilePlan {
    let helmfiles: Vec<usize> = (0..chance.below(30)).map(|_| chance.below(4)).collect();
    let releases = helmfiles.iter().enumerate().map(|(at, helmfile)| {
        let needs: BTreeSet<usize> = (0..chance.below(4)).map(|_| chance.below(at)).collect();
        let needs = needs.into_iter().filter(|need| *need < at && helmfiles[*need] == *helmfile);
        let needs: Vec<String> = needs.map(|need| format!("r{need}")).collect();
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        release(&format!("r{at}"), *helmfile, &needs)
    });
    planned(releases.collect())
}

#[test]
fn every_release_comes_once_and_after_all_that_it_waits_for() {
    let mut chance = PseudoRandomNumbers(1);
    for _ in 0..200 {
        let planned = some(&mut chance);
        let turns = RecordingTurns::default();
        let left = runtime().block_on(in_turn(ReleaseOrder::of_plan(&planned), &turns));
        assert_eq!(left, Some(Vec::new()));
        let moments = turns.moments();
        let at = |moment| moments.iter().position(|it| *it == moment);
        for (place, release) in planned.releases.iter().enumerate() {
            let is_before = |it: &PlannedRelease| {
                it.helmfile < release.helmfile || release.needs.contains(&it.key)
            };
            let all = planned.releases.iter().enumerate();
            for (first, _) in all.filter(|(_, it)| is_before(it)) {
                assert!(at(TurnMoment::Ended(first)) < at(TurnMoment::Begun(place)), "{moments:?}");
            }
        }
        assert_eq!(moments.len(), 2 * planned.releases.len(), "{moments:?}");
    }
}
