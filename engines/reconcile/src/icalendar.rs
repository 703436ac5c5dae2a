//! Reads iCalendar files (RFC 5545), to know at which times their events are.
//!
//! A file is read strictly. If an unsupported line would change the times of an event, it is an error, because a Freeze that
//! missed some of its times would let changes begin. Lines that are only for display are ignored. All costs of a file are
//! bounded: bytes, events and steps of the expansion.
//!
//! Why no crate for iCalendar files is used: docs/decisions/0034-icalendar.md.
//! Below: lines (`content_line`), one event (`event`), recurrences (`recurrence`).
//! Elsewhere: how a Freeze uses the events (`freeze_calendar.rs`), where the file comes from (the program).

mod content_line;
mod event;
mod recurrence;

use jiff::tz::TimeZone;

use self::content_line::{ICalendarContentLine, unfolded};
use self::event::{CalendarEvent, CalendarEventProperties, TimeZoneTable};
use crate::Time;
use crate::cron::time_zone;
use crate::freeze_calendar::FrozenPeriod;

/// The most bytes of a file. A ConfigMap has no more, either.
const MAX_BYTES: usize = 1 << 20;

/// The most events of a file.
const MAX_EVENTS: usize = 1000;

/// The most bytes of the lines that say when events are. They are kept in a status.
const MAX_EVENT_BYTES: usize = 128 << 10;

/// The end of the text that is kept.
const CALENDAR_END: &str = "END:VCALENDAR\n";

/// The most steps of an expansion. Each date of a rule is a step, and so is a period without dates.
const MAX_STEPS: u32 = 50_000;

/// The deepest nesting of components: an alarm in an event in a calendar.
const MAX_DEPTH: usize = 3;

/// How many characters of the file a message shows.
const MAX_SHOWN: usize = 100;

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ICalendarError {
    /// The file is not an iCalendar file, or is damaged or incomplete.
    #[error("line {line}: {why}")]
    Broken {
        /// The number of the line, or of that with which the event begins.
        line: usize,
        /// Why the file is damaged.
        why: String,
    },
    /// The file has an unsupported part that changes the times of an event.
    #[error("line {line}: {what} is not supported")]
    Unsupported {
        /// The number of the line, or of that with which the event begins.
        line: usize,
        /// The name of the unsupported part.
        what: String,
    },
    /// The file is larger than allowed.
    #[error("the calendar has more than {0}")]
    TooLarge(&'static str),
    /// The time zone for times without a zone does not exist.
    #[error(transparent)]
    Zone(#[from] crate::CronError),
}

impl ICalendarError {
    /// Whether the file is damaged, so that its events are unknown. A file that is only unsupported or contradictory is
    /// readable, and therefore deliberately differs from the previous file.
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }
}

/// Why a line is rejected.
#[derive(Debug)]
enum ICalendarLineError {
    Broken(String),
    Unsupported(String),
}

impl ICalendarLineError {
    /// A fault in a damaged text. An empty text is not shown in the message.
    fn broken(why: String, text: &str) -> Self {
        Self::Broken(with_text(why, text))
    }

    /// A text that is not supported.
    fn unsupported(what: String, text: &str) -> Self {
        Self::Unsupported(with_text(what, text))
    }

    fn at(self, line: usize) -> ICalendarError {
        match self {
            Self::Broken(why) => ICalendarError::Broken { line, why },
            Self::Unsupported(what) => ICalendarError::Unsupported { line, what },
        }
    }
}

fn with_text(what: String, text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let shown: String = text.chars().take(MAX_SHOWN).map(printable).collect();
    if shown.is_empty() { what } else { format!("{what} (`{shown}`)") }
}

/// An expansion takes too many steps.
struct RecurrenceExpansionLimitExceeded;

/// The remaining steps of an expansion.
struct RecurrenceExpansionBudget(u32);

impl RecurrenceExpansionBudget {
    fn take(&mut self) -> Result<(), RecurrenceExpansionLimitExceeded> {
        self.0 = self.0.checked_sub(1).ok_or(RecurrenceExpansionLimitExceeded)?;
        Ok(())
    }
}

/// The events of an iCalendar file.
#[derive(Debug, Clone)]
pub struct ICalendar {
    events: Vec<CalendarEvent>,
    text: String,
    /// Whether the file has a component. RFC 5545, section 3.6 requires at least one.
    has_component: bool,
}

impl ICalendar {
    /// Reads a file. `zone` is the time zone of dates and times that name no zone; empty for UTC.
    ///
    /// # Errors
    /// The file is damaged, too large, or has an unsupported part that changes the times of an event.
    pub fn parse(text: &str, zone: &str) -> Result<Self, ICalendarError> {
        if text.len() > MAX_BYTES {
            return Err(ICalendarError::TooLarge("1 MiB"));
        }
        let zone = match zone.trim() {
            "" => TimeZone::UTC,
            name => time_zone(name)?,
        };
        let mut reader = ICalendarReader {
            zones: TimeZoneTable::new(zone),
            open: Vec::new(),
            has_calendar: false,
            event: None,
            read: Self {
                events: Vec::new(),
                text: "BEGIN:VCALENDAR\n".to_owned(),
                has_component: false,
            },
        };
        let mut last = 1;
        for (number, text) in unfolded(text) {
            last = number;
            let wrong = || {
                let why = "this is no line of an iCalendar file".to_owned();
                ICalendarLineError::broken(why, &text).at(number)
            };
            reader.take(ICalendarContentLine::parse(number, &text).ok_or_else(wrong)?)?;
        }
        if !reader.open.is_empty() || !reader.has_calendar {
            let why = "`END:VCALENDAR` is missing: the file is incomplete".to_owned();
            return Err(ICalendarError::Broken { line: last, why });
        }
        reader.read.text.push_str(CALENDAR_END);
        Ok(reader.read)
    }

    /// The file reduced to the lines that affect when events are. Reading this text gives the same events. It has at most 128
    /// KiB.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many events there are.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Checks that the file has a component and that its events can be expanded now. Half of the allowed steps are kept in
    /// reserve for the days to come. A calendar whose [text](Self::text) equals `last`, the last accepted one, may use the
    /// reserve.
    ///
    /// # Errors
    /// The file has no component, or the expansion takes too many steps.
    pub fn verify(&self, now: Time, last: Option<&str>) -> Result<(), ICalendarError> {
        if !self.has_component {
            let why = "the calendar has neither an event nor anything else".to_owned();
            return Err(ICalendarError::Broken { line: 1, why });
        }
        let to = now.saturating_add(crate::freeze_calendar::EXPANSION_HORIZON).unwrap_or(Time::MAX);
        let is_accepted = last == Some(self.text());
        self.expanded(now, to, if is_accepted { MAX_STEPS } else { MAX_STEPS / 2 }).map(drop)
    }

    /// The periods between two times that the events cover, in order. Periods that overlap or touch are joined.
    pub(crate) fn frozen(&self, from: Time, to: Time) -> Result<Vec<FrozenPeriod>, ICalendarError> {
        self.expanded(from, to, MAX_STEPS)
    }

    fn expanded(
        &self,
        from: Time,
        to: Time,
        steps: u32,
    ) -> Result<Vec<FrozenPeriod>, ICalendarError> {
        let mut steps = RecurrenceExpansionBudget(steps);
        let mut all = Vec::new();
        for event in &self.events {
            let frozen = event.frozen(from, to, &mut steps);
            all.extend(frozen.map_err(|RecurrenceExpansionLimitExceeded| {
                ICalendarError::TooLarge(
                    "25000 dates in 400 days and since the begin of rules with COUNT",
                )
            })?);
        }
        all.retain(|it| from < it.to && it.from < to);
        all.sort_by_key(|it| (it.from, it.to));
        let mut joined: Vec<FrozenPeriod> = Vec::new();
        for period in all {
            match joined.last_mut() {
                Some(last) if period.from <= last.to => last.to = last.to.max(period.to),
                _ => joined.push(period),
            }
        }
        Ok(joined)
    }
}

/// An event that is being read.
struct UnfinishedCalendarEvent {
    /// The number of the line with which the component begins.
    number: usize,
    lines: CalendarEventProperties,
}

/// A file that is being read.
struct ICalendarReader {
    zones: TimeZoneTable,
    /// The names of the components that are open, the outermost first.
    open: Vec<String>,
    has_calendar: bool,
    event: Option<UnfinishedCalendarEvent>,
    read: ICalendar,
}

impl ICalendarReader {
    fn take(&mut self, line: ICalendarContentLine) -> Result<(), ICalendarError> {
        let number = line.number;
        let taken = match line.name.as_str() {
            "BEGIN" => self.begin(&line),
            "END" => return self.end(&line),
            _ => self.property(line),
        };
        taken.map_err(|fault| fault.at(number))
    }

    fn begin(&mut self, line: &ICalendarContentLine) -> Result<(), ICalendarLineError> {
        let name = line.value.to_ascii_uppercase();
        match (self.open.len(), name.as_str()) {
            (0, "VCALENDAR") => self.has_calendar = true,
            (0, _) => {
                let why = "the file does not begin with `BEGIN:VCALENDAR`".to_owned();
                return Err(ICalendarLineError::broken(why, &line.text));
            }
            (1, "VEVENT") => {
                self.read.has_component = true;
                let event = UnfinishedCalendarEvent {
                    number: line.number,
                    lines: CalendarEventProperties::default(),
                };
                self.event = Some(event);
            }
            (_, "VCALENDAR" | "VEVENT") => {
                let why = "it begins within another component".to_owned();
                return Err(ICalendarLineError::broken(why, &line.text));
            }
            // The definition of a time zone is not used, because the IANA database has the zone of this name.
            (1, "VTIMEZONE") => self.read.has_component = true,
            (1, _) => return Err(ICalendarLineError::unsupported("a component".to_owned(), &name)),
            (depth, _) if depth >= MAX_DEPTH => {
                let why = "components are within each other too deeply".to_owned();
                return Err(ICalendarLineError::broken(why, &line.text));
            }
            _ => {}
        }
        self.open.push(name);
        Ok(())
    }

    fn end(&mut self, line: &ICalendarContentLine) -> Result<(), ICalendarError> {
        let name = line.value.to_ascii_uppercase();
        if self.open.pop().as_deref() != Some(name.as_str()) {
            let why = "a component ends that has not begun".to_owned();
            return Err(ICalendarLineError::broken(why, &line.text).at(line.number));
        }
        if self.open.len() != 1 {
            return Ok(());
        }
        let Some(UnfinishedCalendarEvent { number, lines }) = self.event.take() else {
            return Ok(());
        };
        let event = CalendarEvent::of(&lines, &mut self.zones).map_err(|fault| fault.at(number))?;
        if lines.is_cancelled() {
            return Ok(());
        }
        let kept = ["BEGIN:VEVENT"].into_iter().chain(lines.kept()).chain(["END:VEVENT"]);
        for line in kept {
            self.read.text.push_str(line);
            self.read.text.push('\n');
        }
        self.read.events.push(event);
        if self.read.events.len() > MAX_EVENTS {
            return Err(ICalendarError::TooLarge("1000 events"));
        }
        match self.read.text.len() + CALENDAR_END.len() > MAX_EVENT_BYTES {
            true => Err(ICalendarError::TooLarge("128 KiB of times")),
            false => Ok(()),
        }
    }

    fn property(&mut self, line: ICalendarContentLine) -> Result<(), ICalendarLineError> {
        let is_known = match (self.open.len(), line.name.as_str()) {
            (0, _) => {
                let why = "the file does not begin with `BEGIN:VCALENDAR`".to_owned();
                return Err(ICalendarLineError::broken(why, &line.text));
            }
            (1, "CALSCALE") => line.value.eq_ignore_ascii_case("GREGORIAN"),
            (1, "VERSION") => line.value == "2.0",
            (2, _) => {
                return match &mut self.event {
                    Some(event) => event.lines.take(line),
                    None => Ok(()),
                };
            }
            _ => true,
        };
        match is_known {
            true => Ok(()),
            false => Err(ICalendarLineError::unsupported(line.name, &line.value)),
        }
    }
}

#[cfg(test)]
mod tests;
