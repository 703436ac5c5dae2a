//! Samples of times, with percentiles, a table and a verdict.
//!
//! `change_reaction_time` and other modules measure the times.

use std::time::Duration;

use testbed::progress::{bold, green, red};

/// The samples of one kind, and the limit for 95 or another number of 100 samples.
#[derive(Debug)]
pub(super) struct TimeSamples {
    what: &'static str,
    limit: Duration,
    judged_at: usize,
    times: Vec<Duration>,
}

impl TimeSamples {
    /// A series of measured times that has no samples yet. `limit` is the time that 95 of 100 samples may take at most.
    pub(super) fn new(what: &'static str, limit: Duration) -> Self {
        Self { what, limit, judged_at: 95, times: Vec::new() }
    }

    /// Sets how many of a hundred samples have to keep the limit.
    pub(super) fn judged_at(self, percent: usize) -> Self {
        Self { judged_at: percent, ..self }
    }

    /// Whether there are no samples.
    pub(super) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Adds a measured time to the series.
    pub(super) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// The time that `percent` of a hundred samples do not exceed (nearest rank). It is zero without samples.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Whether there are samples, and enough of them keep the limit.
    pub(super) fn passes(&self) -> bool {
        !self.times.is_empty() && self.percentile(self.judged_at) < self.limit
    }

    fn row(&self) -> String {
        let [p50, judged, max] =
            [50, self.judged_at, 100].map(|percent| milliseconds(self.percentile(percent)));
        let count = self.times.len();
        format!("{:<52} {count:>5} {p50:>9} {judged:>9} {max:>9}", self.what)
    }
}

fn milliseconds(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1000.0;
    let digits = if milliseconds < 1.0 { 2 } else { 1 };
    format!("{milliseconds:.digits$}")
}

/// Prints the table, one row for each kind.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(super) fn print(all: &[TimeSamples]) {
    let percent = all.first().map_or(95, |samples| samples.judged_at);
    let judged = format!("p{percent} ms");
    let heading = ["what", "count", "p50 ms", &judged, "max ms"];
    let [what, count, p50, judged, max] = heading;
    println!("{}", bold(&format!("{what:<52} {count:>5} {p50:>9} {judged:>9} {max:>9}")));
    for samples in all {
        let verdict = if samples.passes() { green("PASS") } else { red("FAIL") };
        let percent = samples.judged_at;
        let limit = samples.limit.as_millis();
        println!("{}  {verdict} (p{percent} < {limit} ms)", samples.row());
    }
}

/// The load of the machine: how many processes wanted a core, on average over the last minute.
pub(super) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|word| !word.is_empty()).unwrap_or("unknown").to_owned()
}

/// Prints the load of the machine, because other work on the machine slows down the measurement.
#[expect(clippy::print_stdout, reason = "it belongs to the table")]
pub(super) fn print_machine(load: &str) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; load before the measurement: {load}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(limit: u64, times: impl IntoIterator<Item = u64>) -> TimeSamples {
        let mut samples = TimeSamples::new("hop", Duration::from_millis(limit));
        times.into_iter().for_each(|time| samples.add(Duration::from_millis(time)));
        samples
    }

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let all = samples(1000, (1..=20).rev());
        let of = |percent| all.percentile(percent).as_millis();
        assert_eq!((of(50), of(95), of(100)), (10, 19, 20));
        assert_eq!(samples(1000, [7]).percentile(50).as_millis(), 7);
        assert_eq!(samples(1000, []).percentile(95), Duration::ZERO);
    }

    #[test]
    fn one_slow_sample_of_twenty_passes_and_two_do_not() {
        assert!(samples(1000, (1..=19).chain([5000])).passes());
        assert!(!samples(1000, (1..=18).chain([5000, 5000])).passes());
        assert!(!samples(1000, [1000]).passes(), "the limit itself is too slow");
        assert!(!samples(1000, []).passes(), "nothing measured is not a pass");
    }

    #[test]
    fn a_row_shows_milliseconds() {
        let mut some = samples(1000, [12, 14]);
        some.add(Duration::from_micros(34));
        let row = some.row();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["hop", "3", "12.0", "14.0", "14.0"]);
        assert_eq!(milliseconds(Duration::from_micros(34)), "0.03");
    }
}
