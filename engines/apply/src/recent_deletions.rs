//! How many objects an applier deleted in the last hour without approval.
//!
//! Here: the counts and their text form. Elsewhere: storing the text (the program), and comparing the counts with the
//! budget ([`crate::deletion_budget`]).

use std::fmt;
use std::time::Duration;

use reconcile::Time;

/// How long a deletion counts.
const COUNTED_FOR: Duration = Duration::from_secs(3600);

/// All deletions within so many seconds share one count, which limits the number of counts.
const SECONDS_PER_COUNT: i64 = 60;

/// How many objects were deleted at about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DeletionCount {
    /// The time of the first deletion, in seconds since 1970.
    second: i64,
    objects: usize,
}

/// Counts of deletions without approval, the oldest first. The text form has `<seconds since 1970>=<objects>` for each
/// count, separated by spaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentDeletions(Vec<DeletionCount>);

impl RecentDeletions {
    /// Reads the counts from their text form. `None` if the text does not have this form.
    pub fn read(text: &str) -> Option<Self> {
        let count = |word: &str| {
            let (second, objects) = word.split_once('=')?;
            let second = second.parse().ok()?;
            let objects = objects.parse().ok()?;
            Some(DeletionCount { second, objects })
        };
        text.split_whitespace().map(count).collect::<Option<_>>().map(Self)
    }

    /// How many objects were deleted in the hour before `now`. Deletions with a later time count, too, because the
    /// clock may have changed.
    pub fn within_hour(&self, now: Time) -> usize {
        let counted = self.0.iter().filter(|it| is_counted(it, now));
        counted.fold(0, |sum, it| sum.saturating_add(it.objects))
    }

    /// Adds deletions at `now`, and drops counts that are older than an hour.
    #[must_use]
    pub fn with(mut self, now: Time, objects: usize) -> Self {
        self.0.retain(|it| is_counted(it, now));
        let second = now.as_second();
        match self.0.last_mut() {
            Some(last) if (0..SECONDS_PER_COUNT).contains(&second.saturating_sub(last.second)) => {
                last.objects = last.objects.saturating_add(objects);
            }
            _ if objects == 0 => {}
            _ => self.0.push(DeletionCount { second, objects }),
        }
        self
    }
}

fn is_counted(count: &DeletionCount, now: Time) -> bool {
    let age = now.as_second().saturating_sub(count.second);
    u64::try_from(age).map_or(true, |age| age < COUNTED_FOR.as_secs())
}

impl fmt::Display for RecentDeletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, DeletionCount { second, objects }) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{second}={objects}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: i64) -> Time {
        Time::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn deletions_count_for_an_hour() {
        let counts = RecentDeletions::default().with(time(0), 3).with(time(30), 1);
        assert_eq!(counts.to_string(), "1800000000=4", "those of a minute are one count");
        let counts = counts.with(time(1800), 5);
        assert_eq!(counts.within_hour(time(1800)), 9);
        assert_eq!(counts.within_hour(time(3600)), 5);
        assert_eq!(counts.within_hour(time(5400)), 0);
        assert_eq!(counts.within_hour(time(-600)), 9, "a clock that went back does not forget");
        assert_eq!(counts.with(time(4000), 0).to_string(), "1800001800=5");
    }

    #[test]
    fn the_text_is_read_as_it_was_written() {
        let counts = RecentDeletions::default().with(time(0), 3).with(time(100), 1);
        assert_eq!(RecentDeletions::read(&counts.to_string()), Some(counts));
        assert_eq!(RecentDeletions::read(""), Some(RecentDeletions::default()));
        for text in ["3", "a=3", "1800000000=-3", "1800000000=3,"] {
            assert_eq!(RecentDeletions::read(text), None, "{text}");
        }
    }
}
