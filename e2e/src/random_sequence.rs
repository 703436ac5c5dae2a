//! Random numbers that can be repeated from a seed (splitmix64), for random faults and random work.
//!
//! Elsewhere: the users of the numbers (`crate::api_server_fault_proxy`, `cargo xtask crash`, `cargo xtask soak`).

/// A sequence of numbers that depends on its seed alone.
#[derive(Debug, Clone)]
pub struct RandomSequence(u64);

impl RandomSequence {
    /// Makes the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed from the clock.
    pub fn seed() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self::new(now.map_or(0, |it| it.as_nanos() as u64)).number() % 1_000_000
    }

    /// The next number, of any size.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number below `limit`. It is 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = (limit as u64).max(1);
        usize::try_from(self.number() % limit).unwrap_or_default()
    }

    /// Returns true with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: u8) -> bool {
        self.number() % 100 < u64::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence_and_no_other() {
        let [one, same, other] = [7, 7, 8].map(|seed| {
            let mut random = RandomSequence::new(seed);
            [random.number(), random.number(), random.number()]
        });
        assert_eq!(one, same);
        assert_ne!(one, other);
        // The first number of the reference implementation for the seed 0.
        assert_eq!(RandomSequence::new(0).number(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn numbers_stay_below_their_limit_and_reach_it() {
        let mut random = RandomSequence::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
        assert!(!random.chance(0) && random.chance(100));
    }
}
