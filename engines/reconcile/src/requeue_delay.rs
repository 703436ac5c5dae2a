//! Computes when an object runs again: intervals, retries, deadlines.
//!
//! Here: arithmetic on durations. Elsewhere: the notation of durations (`duration.rs`), timers (the program).

use std::time::Duration;

/// Shortest time between two runs that only the clock asks for.
///
/// Differs(flux): in Flux an interval of zero keeps a worker busy for ever.
pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// A number derived from the uid of an object. It differs between objects, and is the same in every process.
pub fn seed(uid: &str) -> u64 {
    uid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Varies an interval by up to the given percentage in either direction. Objects that were created together then do not always
/// run together.
///
/// The same seed gives the same result. Percentages over 99 count as 99.
pub fn jittered(interval: Duration, percent: u8, seed: u64) -> Duration {
    let nanos = interval.as_nanos();
    let span = nanos * u128::from(percent.min(99)) / 100;
    let offset = u128::from(scattered(seed)) % (2 * span + 1);
    from_nanos(nanos - span + offset)
}

/// Spreads seeds that lie close together over all numbers (the finalizer of splitmix64).
fn scattered(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The delay after a number of failures in a row: `min` after the first one, then doubling up to `max`.
///
/// Flux's controllers use 750 ms and 15 minutes.
pub fn backoff(failures: u32, min: Duration, max: Duration) -> Duration {
    let factor = 1u128.checked_shl(failures.saturating_sub(1)).unwrap_or(u128::MAX);
    from_nanos(min.as_nanos().saturating_mul(factor).min(max.as_nanos()))
}

/// The time limit of one run of a Kustomization: `spec.timeout`, or without it 30 seconds less than the interval. It is at
/// least 30 seconds.
///
/// Parity(flux): the floor applies to a timeout that the spec gives, too.
pub fn kustomization_timeout(interval: Duration, timeout: Option<Duration>) -> Duration {
    const MIN_TIMEOUT: Duration = Duration::from_secs(30);
    timeout.unwrap_or_else(|| interval.saturating_sub(MIN_TIMEOUT)).max(MIN_TIMEOUT)
}

fn from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos_u128(nanos.min(Duration::MAX.as_nanos()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIN: Duration = Duration::from_millis(750);
    const MAX: Duration = Duration::from_secs(15 * 60);

    #[test]
    fn retries_double_from_the_first_to_the_longest() {
        let millis = |failures| backoff(failures, MIN, MAX).as_millis();
        let waits = [0, 1, 2, 3, 4, 11, 12, 33, 128, 129, u32::MAX].map(millis);
        let longest = 900_000;
        assert_eq!(
            waits,
            [750, 750, 1500, 3000, 6000, 768_000, longest, longest, longest, longest, longest]
        );
        assert_eq!(backoff(u32::MAX, Duration::from_nanos(1), MAX), MAX);
        assert_eq!(backoff(u32::MAX, Duration::MAX, Duration::MAX), Duration::MAX);
        assert_eq!(backoff(9, Duration::ZERO, MAX), Duration::ZERO);
    }

    #[test]
    fn jitter_is_the_same_for_the_same_seed_and_scatters_neighbours() {
        let of = |seed| jittered(MAX, 5, seed);
        assert_eq!(of(1), of(1));
        let seeds = 0..1000u64;
        let below = seeds.filter(|seed| of(*seed) < MAX).count();
        assert!((400..600).contains(&below), "{below} of 1000 below the interval");
    }

    proptest! {
        #[test]
        fn jitter_stays_within_its_percentage(
            seconds in 0..1_000_000u64, percent in 0..=120u8, seed: u64,
        ) {
            let interval = Duration::from_secs(seconds);
            let span = interval * u32::from(percent.min(99)) / 100;
            let result = jittered(interval, percent, seed);
            prop_assert!(result >= interval - span && result <= interval + span);
        }

        #[test]
        fn no_interval_is_too_long_to_jitter(seconds: u64, percent: u8, seed: u64) {
            let interval = Duration::new(seconds, 999_999_999);
            prop_assert_eq!(jittered(interval, 0, seed), interval);
            prop_assert!(jittered(interval, percent, seed) >= interval / 100);
        }
    }

    #[test]
    fn the_timeout_of_a_kustomization_is_the_interval_less_30_seconds() {
        let seconds = |interval, timeout: Option<u64>| {
            let interval = Duration::from_secs(interval);
            let timeout = timeout.map(Duration::from_secs);
            kustomization_timeout(interval, timeout).as_secs()
        };
        assert_eq!(seconds(600, None), 570);
        assert_eq!(seconds(45, None), 30);
        assert_eq!(seconds(0, None), 30);
        assert_eq!(seconds(600, Some(120)), 120);
        assert_eq!(seconds(600, Some(5)), 30);
    }
}
