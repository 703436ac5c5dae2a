//! When windows are open, how that reads, and how they behave where clocks are turned.

use proptest::prelude::*;

use super::*;

const NIGHTS: &str = "0 22 * * 1-5 4h Europe/Berlin";

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn windows(text: &str) -> ChangeWindows {
    ChangeWindows::parse(text).unwrap()
}

/// Until when windows are open at a time; `closed` if they are not.
fn open(text: &str, now: &str) -> String {
    match windows(text).is_open(time(now)) {
        Some(WindowEnd::Time(until)) => until.to_string(),
        Some(WindowEnd::Further) => "further".to_owned(),
        None => "closed".to_owned(),
    }
}

fn state(window: &str, break_glass: Option<&str>, now: &str) -> ChangeWindowState {
    ChangeWindowState::at(time(now), Some(window), break_glass).unwrap()
}

#[test]
fn a_window_is_open_from_its_time_on_for_its_length() {
    let at = |now| open(NIGHTS, now);
    // Monday the 23rd, 22:00 in Berlin.
    assert_eq!(at("2026-11-23T20:59:59.9Z"), "closed");
    assert_eq!(at("2026-11-23T21:00:00Z"), "2026-11-24T01:00:00Z");
    assert_eq!(at("2026-11-24T00:59:59.9Z"), "2026-11-24T01:00:00Z");
    assert_eq!(at("2026-11-24T01:00:00Z"), "closed");
    assert_eq!(at("2026-11-22T22:00:00Z"), "closed");
    let next = windows(NIGHTS).next_opening(time("2026-11-28T12:00:00Z")).unwrap();
    assert_eq!(next.to_string(), "2026-11-30T21:00:00Z");
}

#[test]
fn windows_that_touch_or_overlap_are_one_opening() {
    let now = "2026-11-23T22:30:00Z";
    assert_eq!(open("0 22 * * * 4h; 0 2 * * * 2h", now), "2026-11-24T04:00:00Z");
    assert_eq!(open("0 22 * * * 4h; 0 23 * * * 10m", now), "2026-11-24T02:00:00Z");
    assert_eq!(open("*/10 22 * * * 15m", now), "2026-11-23T23:05:00Z");
    assert_eq!(open("* * * * * 1m", now), "further");
    assert_eq!(open("0 0 * * * 12h; 0 12 * * * 12h", now), "further");
    assert_eq!(open("@weekly 168h", now), "further");
}

#[test]
fn a_window_has_its_length_whatever_the_clocks_do() {
    // 02:30 is skipped on the 29th of March: it opens at 03:00, which is 01:00 in UTC.
    let skipped = "30 2 * * * 1h Europe/Berlin";
    assert_eq!(open(skipped, "2026-03-29T00:59:59Z"), "closed");
    assert_eq!(open(skipped, "2026-03-29T01:00:00Z"), "2026-03-29T02:00:00Z");
    assert_eq!(open(skipped, "2026-03-29T02:00:00Z"), "closed");
    // Across the gap: four hours pass, and clocks show 03:00 at the end.
    assert_eq!(open("0 22 * * * 4h Europe/Berlin", "2026-03-29T00:30:00Z"), "2026-03-29T01:00:00Z");
    // 02:30 comes twice on the 25th of October: it opens at the first one only.
    assert_eq!(open(skipped, "2026-10-25T00:30:00Z"), "2026-10-25T01:30:00Z");
    assert_eq!(open(skipped, "2026-10-25T01:30:00Z"), "closed");
    let next = windows(skipped).next_opening(time("2026-10-25T01:00:00Z")).unwrap();
    assert_eq!(next.to_string(), "2026-10-26T01:30:00Z");
}

#[test]
fn what_is_no_window_is_refused_with_words() {
    for (text, expected) in [
        ("0 22 * * 1-5", "missing duration after `0 22 * * 1-5`"),
        ("0 22 * * 1-5 Europe/Berlin", "`Europe/Berlin` is not a duration"),
        ("0 0 22 * * 1-5 4h", "the five cron fields (without seconds)"),
        ("0 22 * * * 4h Berlin", "unknown time zone `Berlin`"),
        ("0 22 * * * 4h Europe/Berlin 5", "unexpected `5`"),
        ("0 22 * * * 8d", "unknown unit `d`"),
        ("0 22 * * * 169h", "must be between 1s and 168h0m0s, not 169h0m0s"),
        ("0 22 * * * 0s", "not 0s"),
        ("0 22 * * * -1h", "is negative"),
        ("0 0 31 2 * 1h", "`0 0 31 2 *` never occurs"),
        ("", "does not have the five fields"),
    ] {
        let error = ChangeWindows::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let many = "@daily 1h;".repeat(17);
    assert_eq!(ChangeWindows::parse(&many).unwrap_err(), ChangeWindowError::TooMany);
}

#[test]
fn a_closed_window_says_what_waits_and_when_it_opens() {
    let closed = state(NIGHTS, None, "2026-11-23T20:00:00Z");
    let opening = time("2026-11-23T21:00:00Z");
    let text = "outside the window '0 22 * * 1-5 4h Europe/Berlin': revision main@sha1:1 is pending; the next \
                opening is 2026-11-23T21:00:00Z (22:00 Europe/Berlin)";
    let outcome = RunOutcome::Blocked(
        condition_reason::WINDOW_CLOSED,
        text.into(),
        NextRunTrigger::at(opening),
    );
    assert_eq!(closed.outcome("revision main@sha1:1"), Some(outcome));
    let mark = closed.mark();
    assert_eq!(
        (mark.kind, mark.status, mark.reason),
        (WINDOW, ConditionStatus::False, condition_reason::CLOSED)
    );
    assert_eq!(mark.text, "the next opening is 2026-11-23T21:00:00Z (22:00 Europe/Berlin)");
    assert_eq!(closed.changes_at(), Some(opening));
}

#[test]
fn an_open_window_says_until_when() {
    let open = state(NIGHTS, None, "2026-11-23T22:00:00Z");
    assert_eq!(open.outcome("anything"), None);
    let mark = open.mark();
    assert_eq!((mark.status, mark.reason), (ConditionStatus::True, condition_reason::OPEN));
    assert_eq!(mark.text, "open until 2026-11-24T01:00:00Z (02:00 Europe/Berlin)");
    assert_eq!(open.changes_at(), Some(time("2026-11-24T01:00:00Z")));
}

#[test]
fn breaking_the_glass_opens_until_its_time() {
    let noon = "2026-11-23T11:00:00Z";
    let broken = state(NIGHTS, Some("2026-11-23T13:00:00+01:00"), noon);
    let glass =
        "opened by windlass.dev/break-glass until 2026-11-23T12:00:00Z (13:00 Europe/Berlin)";
    let until = Some(time("2026-11-23T12:00:00Z"));
    assert_eq!(broken, ChangeWindowState::Open { until, text: glass.into() });
    // It ends in a window, which goes on.
    let broken = state(NIGHTS, Some("2026-11-23T22:00:00Z"), noon);
    assert_eq!(broken.changes_at(), Some(time("2026-11-24T01:00:00Z")));
    // A time in the past opens nothing; nor does a text that cannot be read, which is reported.
    assert!(matches!(state(NIGHTS, Some(noon), noon), ChangeWindowState::Closed { .. }));
    let malformed = state(NIGHTS, Some("now"), noon).mark();
    assert_eq!(malformed.reason, condition_reason::CLOSED);
    assert!(
        malformed.text.contains("windlass.dev/break-glass `now` is not a time"),
        "{}",
        malformed.text
    );
    assert_eq!(ChangeWindowState::at(time(noon), None, Some("2027-01-01T00:00:00Z")), None);
}

#[test]
fn windows_that_cannot_be_read_let_nothing_through() {
    let invalid =
        state("0 22 * * MON-XYZ 4h", Some("2099-01-01T00:00:00Z"), "2026-11-23T11:00:00Z");
    let Some(RunOutcome::Stalled(why, text)) = invalid.outcome("anything") else {
        panic!("{invalid:?}")
    };
    assert_eq!(why, condition_reason::INVALID_WINDOW);
    assert!(text.starts_with("windlass.dev/window: `MON-XYZ` is not a day of week"), "{text}");
}

proptest! {
    /// By definition: it is open if there is a time that is not later than now and whose length is not over.
    #[test]
    fn open_means_that_a_scheduled_time_is_at_most_a_length_ago(
        second in 1_770_000_000i64..1_800_000_000,
        cron in prop::sample::select(vec!["30 2 * * *", "0,30 1-3 * * *", "*/45 * * * 6,0", "0 22 25 * 1"]),
        minutes in 1i64..600,
    ) {
        let text = format!("{cron} {minutes}m Europe/Berlin");
        let windows = windows(&text);
        let now = Time::from_second(second).unwrap();
        let cron = &windows.all[0].cron;
        let mut openings = Vec::new();
        let mut at = now - SignedDuration::from_hours(48);
        while at <= now {
            at = cron.next_after(at).unwrap();
            openings.push(at);
        }
        let length = SignedDuration::from_mins(minutes);
        let is_open = openings.iter().any(|it| *it <= now && now < *it + length);
        prop_assert_eq!(windows.is_open(now).is_some(), is_open);
        match windows.is_open(now) {
            Some(WindowEnd::Time(until)) => {
                prop_assert!(until > now && windows.is_open(until).is_none());
                prop_assert!(windows.is_open(until - SignedDuration::from_secs(1)).is_some());
            }
            Some(WindowEnd::Further) => {}
            None => {
                let next = windows.next_opening(now).unwrap();
                prop_assert!(next > now && windows.is_open(next).is_some());
                prop_assert!(windows.is_open(next - SignedDuration::from_secs(1)).is_none());
            }
        }
    }

    #[test]
    fn no_text_breaks_the_state(text in ".*", glass in ".*", second: i64) {
        let now = Time::from_second(second % 200_000_000_000).unwrap();
        let state = ChangeWindowState::at(now, Some(&text), Some(&glass)).unwrap();
        prop_assert_eq!(state.outcome("x").is_none(), matches!(state, ChangeWindowState::Open { .. }));
    }
}
