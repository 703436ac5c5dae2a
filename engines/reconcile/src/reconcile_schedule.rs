//! The annotation `windlass.dev/schedule`: times at which an object is reconciled in addition to its interval.
//!
//! Here: [`ReconcileSchedule`]. Elsewhere: the notation of times (`cron.rs`), intervals (`requeue_delay.rs`), timers (the
//! program).

use crate::Time;
use crate::cron::{CronError, CronExpression};

/// The most expressions in an annotation.
pub(crate) const MAX_ENTRIES: usize = 16;

/// The longest annotation, in bytes.
pub(crate) const MAX_LENGTH: usize = 2048;

/// Why a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileScheduleError {
    /// An expression, or its zone, is wrong.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// More words than an expression and a zone.
    #[error(
        "unexpected `{0}`: an entry has five fields and a time zone; separate entries with `;`"
    )]
    TooManyWords(String),
    /// The annotation is too long, or has too many expressions.
    #[error("at most {MAX_ENTRIES} entries in {MAX_LENGTH} bytes are allowed")]
    TooMany,
}

/// Times that recur, from any of several expressions.
#[derive(Debug, Clone)]
pub struct ReconcileSchedule(Vec<CronExpression>);

impl ReconcileSchedule {
    /// Reads schedules of the form `<cron> [<zone>]`. Several schedules are separated by `;`.
    ///
    /// # Errors
    /// If a schedule does not have that form.
    pub fn parse(text: &str) -> Result<Self, ReconcileScheduleError> {
        let mut all = Vec::new();
        for words in entries(text).ok_or(ReconcileScheduleError::TooMany)? {
            let (cron, rest) = CronExpression::parse(&words)?;
            all.push(match *rest {
                [] => CronExpression::in_zone(cron, None)?,
                [zone] => CronExpression::in_zone(cron, Some(zone))?,
                [_, ..] => return Err(ReconcileScheduleError::TooManyWords(rest.join(" "))),
            });
        }
        Ok(Self(all))
    }

    /// The first time of the schedule after `time`. `None` if there is none.
    pub fn next_after(&self, time: Time) -> Option<Time> {
        self.0.iter().filter_map(|cron| cron.next_after(time)).min()
    }
}

/// Splits a text at `;` into entries, and each entry into words. A trailing `;` is allowed. `None` if the text has too many
/// entries or words.
pub(crate) fn entries(text: &str) -> Option<Vec<Vec<&str>>> {
    let text = text.trim();
    let text = text.strip_suffix(';').unwrap_or(text);
    if text.len() > MAX_LENGTH {
        return None;
    }
    let entries: Vec<Vec<&str>> =
        text.split(';').map(|entry| entry.split_whitespace().collect()).collect();
    (entries.len() <= MAX_ENTRIES).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_time_is_the_first_of_any_expression() {
        let times =
            ReconcileSchedule::parse("0 6 * * * Europe/Berlin; @hourly; 30 6 * * 1 ;").unwrap();
        let next = |from| times.next_after(time(from)).unwrap().to_string();
        assert_eq!(next("2026-11-23T05:00:00Z"), "2026-11-23T06:00:00Z");
        assert_eq!(next("2026-11-23T06:00:00Z"), "2026-11-23T06:30:00Z");
        assert_eq!(next("2026-11-23T04:59:59.5Z"), "2026-11-23T05:00:00Z");
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_words() {
        let why = |text: &str| ReconcileSchedule::parse(text).unwrap_err().to_string();
        assert!(why("0 6 * * * Berlin").starts_with("unknown time zone `Berlin`"));
        assert!(why("0 6 * * * UTC please").starts_with("unexpected `UTC please`"));
        assert!(why("").contains("does not have the five fields"));
        assert!(why("@hourly;;@daily").contains("does not have the five fields"));
        assert!(why(&"@hourly;".repeat(17)).contains("at most 16 entries"));
        assert!(why(&" ".repeat(10)).contains("does not have the five fields"));
        assert!(why(&"* ".repeat(2000)).contains("2048 bytes"));
    }
}
