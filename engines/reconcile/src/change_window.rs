//! Change windows: the times at which windlass may apply, correct and prune an object.
//!
//! Here: [`ChangeWindows`] (when the windows are open), and [`ChangeWindowState`] (whether they are open at a given time, and
//! the text that reports it).
//! Elsewhere: the notation of times (`cron.rs`), what a closed window stops (`run_gate.rs`), timers (the program).

use std::time::Duration;

use jiff::SignedDuration;

use crate::cron::{CronError, CronExpression};
use crate::reconcile_schedule::{MAX_ENTRIES, MAX_LENGTH, entries};
use crate::time::whole_seconds;
use crate::{
    AnnotationCondition, ConditionStatus, DurationError, NextRunTrigger, RunOutcome, Time, WINDOW,
    condition_reason, format_duration, parse_duration,
};

/// The annotation with the windows in which an object may be applied.
pub const WINDOW_ANNOTATION: &str = "windlass.dev/window";
/// The annotation with the time until which the object may be changed even while its windows are closed.
pub const BREAK_GLASS: &str = "windlass.dev/break-glass";

/// The longest that a window may be open.
const MAX_WINDOW_PERIOD: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The shortest.
const MIN_WINDOW_PERIOD: Duration = Duration::from_secs(1);

/// How many openings of one window are followed if each begins before the last one has ended.
const MAX_FOLLOWED_OPENINGS: usize = 64;

/// How many windows are followed if each one is open when the last one closes.
const MAX_JOINED_WINDOWS: usize = 8;

/// Why a text is not a list of windows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeWindowError {
    /// The cron expression of a window or its time zone is wrong.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The length of a window is missing.
    #[error("missing duration after `{0}`; add how long the window is open, such as `4h`")]
    NoLength(String),
    /// The length of a window cannot be read.
    #[error(
        "{0}; the five cron fields (without seconds) are followed by a duration such as `4h`, then a time zone"
    )]
    Length(#[from] DurationError),
    /// The length of a window is too long or too short.
    #[error("the duration of a window must be between 1s and {longest}, not {0}", longest = format_duration(MAX_WINDOW_PERIOD))]
    Range(String),
    /// More words than an expression, a length and a zone.
    #[error(
        "unexpected `{0}`: a window has five fields, a duration and a time zone; separate windows with `;`"
    )]
    TooManyWords(String),
    /// The text is too long, or has too many windows.
    #[error("at most {MAX_ENTRIES} windows in {MAX_LENGTH} bytes are allowed")]
    TooMany,
}

/// The change windows of one object. The object may be changed while at least one of them is open.
#[derive(Debug, Clone)]
pub struct ChangeWindows {
    all: Vec<ChangeWindow>,
    text: String,
}

#[derive(Debug, Clone)]
struct ChangeWindow {
    cron: CronExpression,
    length: SignedDuration,
}

/// The time until which something is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowEnd {
    /// The window closes at this time.
    Time(Time),
    /// The end is too far away to be computed, because the window opens again each time before it closes.
    Further,
}

impl WindowEnd {
    /// The later of two ends.
    pub(crate) fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::Time(a), Self::Time(b)) => Self::Time(a.max(b)),
            (Self::Further, _) | (_, Self::Further) => Self::Further,
        }
    }
}

impl ChangeWindows {
    /// Reads change windows of the form `<cron> <length> [<zone>]`. Several windows are separated by `;`.
    ///
    /// # Errors
    /// If a window does not have that form, is open for more than a week, or never opens.
    pub fn parse(text: &str) -> Result<Self, ChangeWindowError> {
        let mut all = Vec::new();
        for words in entries(text).ok_or(ChangeWindowError::TooMany)? {
            let (cron, rest) = CronExpression::parse(&words)?;
            let (length, zone) = match *rest {
                [] => return Err(ChangeWindowError::NoLength(words.join(" "))),
                [length] => (length, None),
                [length, zone] => (length, Some(zone)),
                [_, _, ref more @ ..] => {
                    return Err(ChangeWindowError::TooManyWords(more.join(" ")));
                }
            };
            let length = parse_duration(length)?;
            if !(MIN_WINDOW_PERIOD..=MAX_WINDOW_PERIOD).contains(&length) {
                return Err(ChangeWindowError::Range(format_duration(length)));
            }
            let length = SignedDuration::from_secs(i64::try_from(length.as_secs()).unwrap_or(0));
            all.push(ChangeWindow { cron: CronExpression::in_zone(cron, zone)?, length });
        }
        Ok(Self { all, text: text.trim().to_owned() })
    }

    /// The time at which the open window closes; `None` if all windows are closed at `now`.
    ///
    /// A window opens at each of its times and stays open for its length in elapsed time. A change of daylight saving time
    /// makes it neither longer nor shorter.
    pub fn is_open(&self, now: Time) -> Option<WindowEnd> {
        let mut until = self.end(now)?;
        for _ in 0..MAX_JOINED_WINDOWS {
            let WindowEnd::Time(at) = until else { break };
            match self.end(at) {
                Some(next) => until = next,
                None => return Some(until),
            }
        }
        Some(WindowEnd::Further)
    }

    /// The latest end of the windows that are open at `now`. `None` if no window is open.
    fn end(&self, now: Time) -> Option<WindowEnd> {
        let ends = self.all.iter().filter_map(|window| window.end(now));
        ends.reduce(WindowEnd::later)
    }

    /// The next time after `now` at which one of the windows opens. `None` if none opens again.
    pub(crate) fn next_opening(&self, now: Time) -> Option<Time> {
        self.all.iter().filter_map(|window| window.cron.next_after(now)).min()
    }

    /// Writes a time in UTC, and in the time zone of the window that opens then.
    fn spelled(&self, time: Time) -> String {
        let before = time.checked_sub(SignedDuration::from_secs(1)).unwrap_or(time);
        let opens = |window: &&ChangeWindow| window.cron.next_after(before) == Some(time);
        let window = self.all.iter().find(opens).or(self.all.first());
        window.map_or_else(|| time.to_string(), |window| window.cron.spelled(time))
    }
}

impl ChangeWindow {
    /// The time at which this window closes; `None` if it is closed at `now`. If the window opens again before it closes, the
    /// two openings count as one.
    fn end(&self, now: Time) -> Option<WindowEnd> {
        let from = now.checked_sub(self.length).unwrap_or(Time::MIN);
        let mut opening = self.cron.next_after(from).filter(|opening| *opening <= now)?;
        for _ in 0..MAX_FOLLOWED_OPENINGS {
            let end = opening.checked_add(self.length).unwrap_or(Time::MAX);
            match self.cron.next_after(opening) {
                Some(next) if next <= end => opening = next,
                Some(_) | None => return Some(WindowEnd::Time(end)),
            }
        }
        Some(WindowEnd::Further)
    }
}

/// The state of an object's windows at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeWindowState {
    /// The object may be changed.
    Open {
        /// When the windows close, if that is known.
        until: Option<Time>,
        /// When the windows close, as a text for users.
        text: String,
    },
    /// The object may not be changed.
    Closed {
        /// When the next window opens.
        next: Option<Time>,
        /// The windows as the user wrote them.
        windows: String,
        /// When the next window opens, as a text for users.
        text: String,
    },
    /// The windows cannot be read, so the object may not be changed.
    Invalid {
        /// Why the windows cannot be read.
        text: String,
    },
}

impl ChangeWindowState {
    /// The outcome of a run that waits for a window; `None` while the windows are open. `waiting` names the change that the run
    /// would apply, such as `revision main@sha1:…`.
    pub fn outcome(&self, waiting: &str) -> Option<RunOutcome> {
        Some(match self {
            Self::Open { .. } => return None,
            Self::Closed { next, windows, text } => {
                let text = format!("outside the window '{windows}': {waiting} is pending; {text}");
                let wake = NextRunTrigger { at: *next, ..NextRunTrigger::default() };
                RunOutcome::Blocked(condition_reason::WINDOW_CLOSED, text, wake)
            }
            Self::Invalid { text } => {
                RunOutcome::Stalled(condition_reason::INVALID_WINDOW, text.clone())
            }
        })
    }

    /// The condition that shows this state in a status.
    pub fn mark(&self) -> AnnotationCondition {
        let (status, reason, text) = match self {
            Self::Open { text, .. } => (ConditionStatus::True, condition_reason::OPEN, text),
            Self::Closed { text, .. } => (ConditionStatus::False, condition_reason::CLOSED, text),
            Self::Invalid { text } => {
                (ConditionStatus::False, condition_reason::INVALID_WINDOW, text)
            }
        };
        AnnotationCondition { kind: WINDOW, status, reason, text: text.clone() }
    }

    /// The time at which the windows open or close next; `None` if it is not known.
    pub fn changes_at(&self) -> Option<Time> {
        match self {
            Self::Open { until, .. } => *until,
            Self::Closed { next, .. } => *next,
            Self::Invalid { .. } => None,
        }
    }

    /// Reads the state of the windows from the annotations of an object; `None` if the object has no window.
    pub fn of<'o>(now: Time, annotation: impl Fn(&str) -> Option<&'o str>) -> Option<Self> {
        Self::at(now, annotation(WINDOW_ANNOTATION), annotation(BREAK_GLASS))
    }

    /// Reads the state from the values of `windlass.dev/window` and `windlass.dev/break-glass`; `None` if there is no window.
    ///
    /// The break-glass annotation opens the windows until the time that it names. If its value cannot be read, it opens
    /// nothing.
    pub fn at(now: Time, windows: Option<&str>, break_glass: Option<&str>) -> Option<Self> {
        let windows = match ChangeWindows::parse(windows?) {
            Ok(windows) => windows,
            Err(error) => {
                let text = format!(
                    "windlass.dev/window: {error}. Nothing is applied until the annotation is corrected or removed"
                );
                return Some(Self::Invalid { text });
            }
        };
        let now = whole_seconds(now);
        let broken: Option<Result<Time, &str>> =
            break_glass.map(|text| text.trim().parse().map_err(|_| text));
        if let Some(Ok(until)) = broken
            && now < until
        {
            return Some(windows.broken_open(now, whole_seconds(until)));
        }
        let remark = match broken {
            Some(Err(text)) => {
                let text: String = text.chars().take(100).collect();
                format!(
                    "; windlass.dev/break-glass `{text}` is not a time such as 2026-11-23T21:00:00Z and is ignored"
                )
            }
            Some(Ok(_)) | None => String::new(),
        };
        Some(match windows.is_open(now) {
            Some(WindowEnd::Time(until)) => Self::Open {
                until: Some(until),
                text: format!("open until {}{remark}", windows.spelled(until)),
            },
            Some(WindowEnd::Further) => {
                Self::Open { until: None, text: format!("open continuously{remark}") }
            }
            None => {
                let next = windows.next_opening(now);
                let text = next.map_or_else(
                    || "there is no further opening".to_owned(),
                    |next| format!("the next opening is {}", windows.spelled(next)),
                );
                Self::Closed { next, text: text + &remark, windows: windows.text }
            }
        })
    }
}

impl ChangeWindows {
    /// The state while the glass is broken, and through windows that are open when that ends.
    fn broken_open(&self, now: Time, until: Time) -> ChangeWindowState {
        let ends = [self.is_open(now), self.is_open(until)].into_iter().flatten();
        let end = ends.fold(WindowEnd::Time(until), WindowEnd::later);
        let glass = format!("opened by windlass.dev/break-glass until {}", self.spelled(until));
        match end {
            WindowEnd::Time(end) if end > until => ChangeWindowState::Open {
                until: Some(end),
                text: format!("open until {}; {glass}", self.spelled(end)),
            },
            WindowEnd::Time(end) => ChangeWindowState::Open { until: Some(end), text: glass },
            WindowEnd::Further => ChangeWindowState::Open { until: None, text: glass },
        }
    }
}

#[cfg(test)]
mod tests;
