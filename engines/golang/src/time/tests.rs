//! Times and durations, with the answers of Go 1.26.

use proptest::prelude::*;

use super::*;

fn utc(layout: &str, text: &str) -> GoTime {
    GoTime::parse(layout, text, &GoTimeZone::Utc).unwrap()
}

fn fault(layout: &str, text: &str) -> String {
    GoTime::parse(layout, text, &GoTimeZone::Utc).unwrap_err().to_string()
}

#[test]
fn every_element_is_written() {
    let time =
        GoTime::from_unix(1_804_136_767, 89_012_345, GoTimeZone::load("America/New_York").unwrap());
    for (layout, wanted) in [
        ("Mon, 02 Jan 2006 15:04:05 MST", "Thu, 04 Mar 2027 00:06:07 EST"),
        ("Monday January _2 2 02 1 01 Jan Mon", "Thursday March  4 4 04 3 03 Mar Thu"),
        ("__2 002 _2006 06", " 63 063 _2027 27"),
        ("3 03 15 4 04 5 05 PM pm", "12 12 00 6 06 7 07 AM am"),
        ("Z07:00 Z0700 Z07 -07 -0700 -07:00:00", "-05:00 -0500 -05 -05 -0500 -05:00:00"),
        (".000 ,999999999 .00000000000 .9 .x", ".089 ,089012345 .089012345  .x"),
        ("Janitor Mondays 007 é", "Janitor Thursdays 007 é"),
    ] {
        assert_eq!(time.format(layout), wanted, "{layout}");
    }
    assert_eq!(time.to_string(), "2027-03-04 00:06:07.089012345 -0500 EST");
    let nameless = time.in_zone(GoTimeZone::fixed("", -5400));
    assert_eq!(nameless.format("MST Z07:00"), "-0130 -01:30");
    assert_eq!((nameless.date().day, nameless.clock().hour), (4, 3));
}

#[test]
fn a_text_that_is_not_of_the_layout_is_refused_in_gos_words() {
    let iso = "2006-01-02T15:04:05Z07:00";
    for (layout, text, wanted) in [
        (
            iso,
            "2027-03-04 05:06:07Z",
            r#"parsing time "2027-03-04 05:06:07Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 05:06:07Z" as "T""#,
        ),
        (iso, "2027-02-29T00:00:00Z", r#"parsing time "2027-02-29T00:00:00Z": day out of range"#),
        (iso, "2027-03-04T05:06:07Zé", r#"parsing time "2027-03-04T05:06:07Zé": extra text: "é""#),
        ("2006", "27", r#"parsing time "27" as "2006": cannot parse "27" as "2006""#),
        ("3PM", "13PM", r#"parsing time "13PM": hour out of range"#),
        ("-0700", "+2561", r#"parsing time "+2561": time zone offset minute out of range"#),
        ("Jan 002", "Feb 003", r#"parsing time "Feb 003": day-of-year does not match month"#),
    ] {
        let wanted = wanted.replace('é', r"\xc3\xa9");
        assert_eq!(fault(layout, text), wanted);
    }
}

#[test]
fn zones_are_taken_where_the_local_one_knows_them() {
    let there = GoTimeZone::load("Europe/Berlin").unwrap();
    let layout = "2006-01-02 15:04 MST";
    let time = GoTime::parse(layout, "2027-07-01 12:00 CEST", &there).unwrap();
    assert_eq!((time.unix(), time.zone().name()), (1_814_436_000, "Europe/Berlin"));
    // In another zone the abbreviation is kept, without an offset.
    let time = utc(layout, "2027-07-01 12:00 CEST");
    assert_eq!((time.unix(), time.abbreviation_and_offset()), (1_814_443_200, ("CEST".into(), 0)));
    let time = GoTime::parse_in("2006-01-02 15:04", "2027-01-01 12:00", &there).unwrap();
    assert_eq!(time.format(RFC3339), "2027-01-01T12:00:00+01:00");
    assert_eq!(
        GoTimeZone::load("Europe/Nowhere").unwrap_err().to_string(),
        "unknown time zone Europe/Nowhere"
    );
    assert_eq!(
        GoTimeZone::load("europe/berlin").unwrap_err().to_string(),
        "unknown time zone europe/berlin"
    );
    assert_eq!(GoTimeZone::load("../etc").unwrap_err().to_string(), "time: invalid location name");
}

#[test]
fn a_clock_that_is_set_forward_skips_a_time_which_is_read_all_the_same() {
    let zone = GoTimeZone::load("America/New_York").unwrap();
    let skipped = GoTime::parse_in("2006-01-02 15:04", "2027-03-14 02:30", &zone).unwrap();
    assert_eq!(skipped.format("15:04 MST"), "01:30 EST");
    let far = GoTime::from_unix(400_000_000_000, 0, zone);
    assert_eq!(far.format(RFC3339), "14645-06-30T11:06:40-04:00");
}

#[test]
fn arithmetic_ends_where_the_numbers_end() {
    let end = GoTime::from_unix(i64::MAX, 999_999_999, GoTimeZone::Utc);
    assert_eq!(end.add(GoDuration(i64::MAX)).unix(), i64::MAX);
    assert_eq!(end.since(&GoTime::from_unix(i64::MIN, 0, GoTimeZone::Utc)), GoDuration(i64::MAX));
    let time = GoTime::from_unix(0, -1, GoTimeZone::Utc);
    assert_eq!((time.unix(), time.nanosecond()), (-1, 999_999_999));
    assert_eq!(time.add(GoDuration::SECOND).since(&time), GoDuration::SECOND);
    assert!(time < GoTime::from_unix(0, 0, GoTimeZone::fixed("X", 3600)));
}

#[test]
fn durations_are_read_written_and_rounded() {
    for (text, wanted) in [
        ("1h30m", "1h30m0s"),
        ("-1.5h", "-1h30m0s"),
        ("+5us", "5µs"),
        ("1.0000001s", "1.0000001s"),
        ("0", "0s"),
        ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ("", r#"time: invalid duration """#),
        ("1", r#"time: missing unit in duration "1""#),
        ("1d", r#"time: unknown unit "d" in duration "1d""#),
        ("1é", r#"time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#),
        ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
    ] {
        let read = GoDuration::parse(text);
        assert_eq!(read.map_or_else(|error| error.to_string(), |it| it.to_string()), wanted);
    }
    let duration = GoDuration(-5_500_000_000);
    assert_eq!(duration.round(GoDuration::SECOND).to_string(), "-6s");
    assert_eq!(duration.truncate(GoDuration::SECOND).to_string(), "-5s");
    assert_eq!(GoDuration(i64::MIN).round(GoDuration::HOUR), GoDuration(i64::MIN));
    assert_eq!(GoDuration(i64::MIN).abs(), GoDuration(i64::MAX));
    assert_eq!(duration.round(GoDuration(0)), duration);
    assert!((GoDuration::MINUTE.hours() - 1.0 / 60.0).abs() < f64::EPSILON);
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(seconds in -62_000_000_000i64..250_000_000_000, nanos in 0i64..1_000_000_000) {
        let zone = GoTimeZone::load("Australia/Lord_Howe").unwrap();
        let time = GoTime::from_unix(seconds, nanos, zone.clone());
        // Offsets before the railways had seconds.
        let layout = "2006-01-02T15:04:05.999999999-07:00:00";
        prop_assert_eq!(&GoTime::parse(layout, &time.format(layout), &zone).unwrap(), &time);
        let duration = GoDuration(seconds.wrapping_mul(nanos));
        prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
    }

    #[test]
    fn no_layout_and_no_text_panics(
        layout in "[0-9JanModuryTZ .,:_pPm+-]{0,16}",
        text in "[0-9JanModuryTZGé .,:_pPm+-]{0,16}",
        seconds in any::<i64>(),
    ) {
        let zone = GoTimeZone::load("Europe/Dublin").unwrap();
        let _read = GoTime::parse_in(&layout, &text, &zone);
        let _read = GoDuration::parse(&text);
        let _written = GoTime::from_unix(seconds, 0, zone).format(&layout);
    }
}
