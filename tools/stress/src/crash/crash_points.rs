//! Chooses the writes at which windlass is cut off: all of them, or a sample that a seed repeats.

use std::collections::BTreeSet;

use e2e::api_server_fault_proxy::ConnectionCutMoment;
use e2e::random_sequence::RandomSequence;

/// One point at which a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CrashPoint {
    /// The number of the write, counted from 1.
    pub(super) number: usize,
    /// Whether the cut comes before or after the API server gets the write.
    pub(super) moment: ConnectionCutMoment,
}

/// How a sample of the cut points is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrashPointSample {
    /// The number of writes in the sample.
    pub(super) count: usize,
    /// The seed, which chooses one write from each equal share of all writes.
    pub(super) seed: u64,
}

/// The cut points of a scenario with so many writes, in order. Each chosen write has a cut before it and one after
/// it.
pub(super) fn choose(writes: usize, sample: Option<CrashPointSample>) -> Vec<CrashPoint> {
    let numbers: BTreeSet<usize> = match sample {
        Some(sample) if sample.count < writes => {
            let mut random = RandomSequence::new(sample.seed);
            // The sample has the first and the last write, and one write from each of the equal shares between them.
            let inner = writes.saturating_sub(2);
            let shares = sample.count.saturating_sub(2);
            let between = (0..shares).map(|share| {
                let from = share * inner / shares;
                let to = (share + 1) * inner / shares;
                2 + from + random.below(to - from)
            });
            between.chain([1, writes]).collect()
        }
        Some(_) | None => (1..=writes).collect(),
    };
    let both = |number| {
        [ConnectionCutMoment::Before, ConnectionCutMoment::After]
            .map(|moment| CrashPoint { number, moment })
    };
    numbers.into_iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(writes: usize, count: usize, seed: u64) -> Vec<usize> {
        let points = choose(writes, Some(CrashPointSample { count, seed }));
        points.iter().step_by(2).map(|point| point.number).collect()
    }

    #[test]
    fn every_write_is_cut_at_twice() {
        let points = choose(3, None);
        assert_eq!(points.len(), 6);
        assert_eq!(points[0], CrashPoint { number: 1, moment: ConnectionCutMoment::Before });
        assert_eq!(points[5], CrashPoint { number: 3, moment: ConnectionCutMoment::After });
        assert_eq!(choose(0, None), []);
    }

    #[test]
    fn a_sample_has_the_first_the_last_and_one_of_each_share() {
        let sample = numbers(62, 8, 1);
        assert_eq!(sample.len(), 8);
        assert_eq!((sample[0], sample[7]), (1, 62));
        for (share, number) in sample[1..7].iter().enumerate() {
            assert!((2 + share * 10..12 + share * 10).contains(number), "{sample:?}");
        }
        assert_eq!(sample, numbers(62, 8, 1));
        assert_ne!(sample, numbers(62, 8, 2));
        assert_eq!(numbers(5, 9, 0), [1, 2, 3, 4, 5]);
    }
}
