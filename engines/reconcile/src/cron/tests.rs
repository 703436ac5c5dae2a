//! Expressions as users write them, the times they stand for, and their behaviour when clocks are changed.

use proptest::prelude::*;

use super::*;

fn cron(text: &str, zone: &str) -> CronExpression {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (cron, rest) = CronExpression::parse(&words).unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    CronExpression::in_zone(cron, Some(zone)).unwrap()
}

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

/// The next times after a time, as clocks of the zone show them.
fn times(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let cron = cron(text, zone);
    let mut at = time(after);
    let mut found = Vec::new();
    for _ in 0..count {
        at = cron.next_after(at).unwrap();
        found.push(at.to_zoned(cron.zone.rules.clone()).strftime("%a %m-%d %H:%M%:z").to_string());
    }
    found
}

/// The same from a Sunday's midnight in UTC.
fn from_sunday(text: &str, count: usize) -> Vec<String> {
    times(text, "UTC", "2026-11-22T00:00:00Z", count)
        .into_iter()
        .map(|it| it.trim_end_matches("+00:00").to_owned())
        .collect()
}

#[test]
fn fields_mean_what_they_mean_in_a_cron_job() {
    for (text, expected) in [
        ("0 22 * * 1-5", &["Mon 11-23 22:00", "Tue 11-24 22:00"][..]),
        ("0 22 * * MON-fri", &["Mon 11-23 22:00", "Tue 11-24 22:00"]),
        ("30 4 * * 0", &["Sun 11-22 04:30", "Sun 11-29 04:30"]),
        ("30 4 * * 7", &["Sun 11-22 04:30", "Sun 11-29 04:30"]),
        ("0 0 * * sat-sun", &["Sat 11-28 00:00", "Sun 11-29 00:00", "Sat 12-05 00:00"]),
        ("0 0 * * SUN-MON", &["Mon 11-23 00:00", "Sun 11-29 00:00"]),
        // Day fields are ORed when both are given.
        ("0 0 25 * 1", &["Mon 11-23 00:00", "Wed 11-25 00:00", "Mon 11-30 00:00"]),
        ("0 0 ? * 1", &["Mon 11-23 00:00", "Mon 11-30 00:00"]),
        ("0 0 */1 * 1", &["Mon 11-23 00:00", "Mon 11-30 00:00"]),
        ("0 0 1 JAN,mar *", &["Fri 01-01 00:00", "Mon 03-01 00:00"]),
        ("*/20 3 * * *", &["Sun 11-22 03:00", "Sun 11-22 03:20", "Sun 11-22 03:40"]),
        ("5/25 3 * * *", &["Sun 11-22 03:05", "Sun 11-22 03:30", "Sun 11-22 03:55"]),
        (
            "0 0 * * 1/2",
            &["Mon 11-23 00:00", "Wed 11-25 00:00", "Fri 11-27 00:00", "Mon 11-30 00:00"],
        ),
        ("1,2-6/2 0 * * *", &["Sun 11-22 00:01", "Sun 11-22 00:02", "Sun 11-22 00:04"]),
        ("0 */9,5 * * *", &["Sun 11-22 05:00", "Sun 11-22 09:00", "Sun 11-22 18:00"]),
        ("*,5 0 * * *", &["Sun 11-22 00:01", "Sun 11-22 00:02"]),
        ("@hourly", &["Sun 11-22 01:00", "Sun 11-22 02:00"]),
        ("@Daily", &["Mon 11-23 00:00", "Tue 11-24 00:00"]),
        ("@midnight", &["Mon 11-23 00:00"]),
        ("@weekly", &["Sun 11-29 00:00"]),
        ("@monthly", &["Tue 12-01 00:00"]),
        ("@annually", &["Fri 01-01 00:00"]),
        ("0 0 29 2 *", &["Tue 02-29 00:00"]),
    ] {
        assert_eq!(from_sunday(text, expected.len()), expected, "{text}");
    }
}

#[test]
fn anything_else_is_refused_with_words() {
    let why = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        CronExpression::parse(&words).unwrap_err().to_string()
    };
    for (text, expected) in [
        ("0 22 * *", "`0 22 * *` does not have the five fields"),
        ("@every 5m", "unknown macro `@every`; use `@hourly`"),
        ("60 * * * *", "`60` is not a minute: `60` is not a number from 0 to 59"),
        ("0 25 * * *", "`25` is not an hour: `25` is not a number from 0 to 23"),
        (
            "0 0 L * *",
            "`L` is not a day of month: `L` is not a number from 1 to 31; `L`, `W` and `#` are not",
        ),
        ("0 0 15W * *", "`L`, `W` and `#` are not supported"),
        ("0 0 * * 5#2", "`L`, `W` and `#` are not supported"),
        ("0 0 * * 8", "`8` is not a number from 0 to 7, or SUN to SAT"),
        ("0 0 * 13 *", "`13` is not a number from 1 to 12, or JAN to DEC"),
        ("0 0 * JANUARY *", "`JANUARY` is not a month"),
        ("0 0 * * +1", "`+1` is not a day of week"),
        ("0 0 0 * *", "`0` is not a day of month"),
        ("*/0 * * * *", "the step `0` is not a number from 1 to 59"),
        ("*/90 * * * *", "the step `90` is not a number from 1 to 59"),
        ("/5 * * * *", "`` is not a number"),
        ("5- * * * *", "`` is not a number"),
        ("10-5 * * * *", "10 comes after 5"),
        ("1-2-3 * * * *", "`2-3` is not a number"),
        ("1,,2 * * * *", "`` is not a number"),
        ("0 0 * * 7/2", "7 has no steps; write 0"),
        ("00000000000000000005 * * * *", "is not a number from 0 to 59"),
        ("0 0 30 2 *", "`0 0 30 2 *` never occurs"),
        ("0 0 31 4,6,9,11 *", "never occurs"),
    ] {
        let why = why(text);
        assert!(why.contains(expected), "{text}: {why}");
    }
    let words = ["*", "*", "*", "*", "*"];
    let zone = |name| {
        CronExpression::in_zone(CronExpression::parse(&words).unwrap().0, Some(name)).unwrap_err()
    };
    assert!(zone("Berlin").to_string().starts_with("unknown time zone `Berlin`"));
    assert!(zone("../../etc/passwd").to_string().starts_with("unknown time zone `"));
}

#[test]
fn a_time_of_day_that_is_skipped_happens_at_the_end_of_the_gap() {
    // Clocks go from 02:00 to 03:00 on the 29th.
    let found = times("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
    assert_eq!(found, ["Sat 03-28 02:30+01:00", "Sun 03-29 03:00+02:00", "Mon 03-30 02:30+02:00"]);
    let found = times("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
    assert_eq!(found, ["Sun 03-29 03:00+02:00", "Mon 03-30 03:00+02:00"]);
    // Of several times of day the skipped ones do not happen.
    let found = times("*/30 1-3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 4);
    let expected =
        ["01:30+01:00", "03:00+02:00", "03:30+02:00"].map(|it| format!("Sun 03-29 {it}"));
    assert_eq!(found[..3], expected);
    assert_eq!(found[3], "Mon 03-30 01:00+02:00");
}

#[test]
fn a_time_of_day_that_comes_twice_happens_once_and_several_happen_each_time() {
    // Clocks go from 03:00 to 02:00 on the 25th.
    let found = times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(found, ["Sun 10-25 02:30+02:00", "Mon 10-26 02:30+01:00"]);
    // Asked between the two, it has been.
    let found = times("30 2 * * *", "Europe/Berlin", "2026-10-25T01:00:00Z", 1);
    assert_eq!(found, ["Mon 10-26 02:30+01:00"]);
    let found = times("0,30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 5);
    let expected = ["02:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"];
    assert_eq!(found[..4], expected.map(|it| format!("Sun 10-25 {it}")));
    assert_eq!(found[4], "Mon 10-26 02:00+01:00");
}

#[test]
fn a_time_is_spelled_in_utc_and_as_the_zone_shows_it() {
    let spelled = |zone| cron("* * * * *", zone).spelled(time("2026-11-23T21:00:00Z"));
    assert_eq!(spelled("europe/berlin"), "2026-11-23T21:00:00Z (22:00 Europe/Berlin)");
    assert_eq!(spelled("Asia/Tokyo"), "2026-11-23T21:00:00Z (2026-11-24 06:00 Asia/Tokyo)");
    assert_eq!(spelled("UTC"), "2026-11-23T21:00:00Z");
}

#[test]
fn the_end_of_the_calendar_has_no_next_time() {
    assert_eq!(cron("* * * * *", "Asia/Tokyo").next_after(Time::MAX), None);
    cron("* * * * *", "America/New_York").next_after(Time::MIN).unwrap();
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader_and_what_is_read_comes_round(
        text in "([*?0-9A-Z,/-]{1,6} ){0,6}|[0-9]{1,2} [0-9]{1,2} [*]|.*",
        second in 0i64..4_000_000_000,
    ) {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let Ok((cron, _)) = CronExpression::parse(&words) {
            let cron = CronExpression::in_zone(cron, Some("Europe/Berlin")).unwrap();
            let now = Time::from_second(second).unwrap();
            let next = cron.next_after(now).unwrap();
            prop_assert!(next > now);
            prop_assert_eq!(next.as_second() % 60, 0);
        }
    }
}
