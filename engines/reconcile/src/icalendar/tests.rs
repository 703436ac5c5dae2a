//! Which times files have, which files are refused, and what they may cost.

use proptest::prelude::*;

use super::*;

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

/// A file with some lines in one event.
fn file(event: &str) -> String {
    format!("BEGIN:VCALENDAR\nVERSION:2.0\nBEGIN:VEVENT\n{event}\nEND:VEVENT\nEND:VCALENDAR\n")
}

fn read(event: &str) -> ICalendar {
    ICalendar::parse(&file(event), "").unwrap_or_else(|error| panic!("{event}: {error}"))
}

fn spelled(at: Time) -> String {
    at.strftime("%Y-%m-%dT%H:%M").to_string()
}

/// The times at which an event begins in a year from 2026 on.
fn begins(event: &str) -> Vec<String> {
    let [from, to] = ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"].map(time);
    let periods = read(event).frozen(from, to).unwrap();
    periods.iter().map(|it| spelled(it.from)).collect()
}

/// The days of the times at which an event begins.
fn days(event: &str) -> Vec<String> {
    begins(event).into_iter().map(|it| it.chars().take(10).collect()).collect()
}

fn error(event: &str) -> ICalendarError {
    match ICalendar::parse(&file(event), "") {
        Ok(_) => panic!("it was read: {event}"),
        Err(error) => error,
    }
}

/// The lines of a morning in 2026 with a rule.
fn morning(date: &str, rule: &str) -> String {
    format!("DTSTART:{date}T080000Z\nDURATION:PT1H\nRRULE:{rule}")
}

#[test]
fn an_event_covers_the_time_from_its_begin_to_its_end() {
    let calendar = ICalendar::parse(
        &file("DTSTART;TZID=Europe/Berlin:20261224T180000\r\nDTEND;TZID=America/New_York:\r\n 20261224T180000"),
        "",
    )
    .unwrap();
    let [from, to] = ["2026-12-24T17:00:00Z", "2026-12-24T23:00:00Z"].map(time);
    let year = [time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z")];
    assert_eq!(calendar.frozen(year[0], year[1]), Ok(vec![FrozenPeriod { from, to }]));
    assert_eq!(calendar.frozen(year[0], from), Ok(Vec::new()), "it begins at the end");
    assert_eq!(calendar.frozen(to, year[1]), Ok(Vec::new()), "it ends at the begin");
}

#[test]
fn an_event_of_days_is_in_the_time_zone_of_the_freeze() {
    let of = |event: &str| {
        let calendar = ICalendar::parse(&file(event), "Europe/Berlin").unwrap();
        let [from, to] = ["2026-01-01T00:00:00Z", "2027-06-01T00:00:00Z"].map(time);
        let periods = calendar.frozen(from, to).unwrap();
        periods.iter().map(|it| [it.from, it.to].map(spelled)).collect::<Vec<_>>()
    };
    let days = [["2026-12-23T23:00".to_owned(), "2026-12-26T23:00".to_owned()]];
    assert_eq!(of("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227"), days);
    assert_eq!(of("DTSTART;VALUE=DATE:20261224\nDURATION:P3D"), days);
    let day = [["2026-10-24T22:00".to_owned(), "2026-10-25T23:00".to_owned()]];
    assert_eq!(of("DTSTART;VALUE=DATE:20261025"), day, "a day of 25 hours");
    let floating = [["2026-12-24T17:00".to_owned(), "2026-12-24T18:00".to_owned()]];
    assert_eq!(of("DTSTART:20261224T180000\nDURATION:PT1H"), floating);
}

#[test]
fn rules_have_the_dates_of_rfc_5545() {
    let daily = days(&morning("20261228", "FREQ=DAILY;INTERVAL=2"));
    assert_eq!(daily, ["2026-12-28", "2026-12-30"]);
    let weekdays = days(&morning("20261223", "FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR;COUNT=4"));
    assert_eq!(weekdays, ["2026-12-23", "2026-12-24", "2026-12-25", "2026-12-28"]);
    // Tuesday and Sunday of every second week, which begins on Monday.
    let weeks = days(&morning("20260804", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU"));
    assert_eq!(weeks, ["2026-08-04", "2026-08-09", "2026-08-18", "2026-08-23"]);
    let week = days(&morning("20261217", "FREQ=WEEKLY"));
    assert_eq!(week, ["2026-12-17", "2026-12-24", "2026-12-31"]);
    let last_friday = days(&morning("20261030", "FREQ=MONTHLY;BYDAY=-1FR"));
    assert_eq!(last_friday, ["2026-10-30", "2026-11-27", "2026-12-25"]);
    let both = days(&morning("20261102", "FREQ=MONTHLY;BYDAY=1MO,3MO"));
    assert_eq!(both, ["2026-11-02", "2026-11-16", "2026-12-07", "2026-12-21"]);
    let fifth = days(&morning("20260130", "FREQ=MONTHLY;BYDAY=5FR"));
    assert_eq!(fifth, ["2026-01-30", "2026-05-29", "2026-07-31", "2026-10-30"]);
    let last_day = days(&morning("20260831", "FREQ=MONTHLY"));
    assert_eq!(last_day, ["2026-08-31", "2026-10-31", "2026-12-31"], "shorter months have none");
    assert_eq!(days(&morning("20001224", "FREQ=YEARLY")), ["2026-12-24"]);
    assert!(days(&morning("20240229", "FREQ=YEARLY")).is_empty(), "2026 has no such day");
    assert_eq!(days(&morning("20260518", "FREQ=YEARLY;BYDAY=20MO")), ["2026-05-18"]);
    assert_eq!(days(&morning("20251229", "FREQ=YEARLY;BYDAY=-1MO")), ["2026-12-28"]);
}

#[test]
fn a_rule_ends_after_a_count_and_at_a_time_that_is_part_of_it() {
    let daily = |more: &str| days(&morning("20251230", &format!("FREQ=DAILY;{more}")));
    assert_eq!(daily("COUNT=4"), ["2026-01-01", "2026-01-02"], "two were in the year before");
    assert_eq!(daily("UNTIL=20260102T080000Z"), ["2026-01-01", "2026-01-02"]);
    assert_eq!(daily("UNTIL=20260102T075959Z"), ["2026-01-01"]);
    let dates = "DTSTART;VALUE=DATE:20251230\nRRULE:FREQ=DAILY;UNTIL=20260102";
    let [from, to] = ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"].map(time);
    let periods = read(dates).frozen(from, to).unwrap();
    let ends: Vec<String> = periods.iter().map(|it| spelled(it.to)).collect();
    assert_eq!(ends, ["2026-01-03T00:00"], "days that follow each other are one period");
}

#[test]
fn what_ends_after_the_calendar_has_no_end() {
    let [from, to] = ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"].map(time);
    let event = "DTSTART:20260601T000000Z\nDTEND:99991231T235959Z";
    let periods = read(event).frozen(from, to).unwrap();
    let frozen = [FrozenPeriod { from: time("2026-06-01T00:00:00Z"), to: Time::MAX }];
    assert_eq!(periods, frozen);
    let rule = morning("20261230", "FREQ=DAILY;UNTIL=99991231T235959Z");
    assert_eq!(days(&rule), ["2026-12-30", "2026-12-31"]);
}

#[test]
fn excluded_times_count_and_do_not_freeze() {
    let rule =
        "DTSTART;TZID=Europe/Berlin:20260701T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=4";
    let excluded = format!(
        "{rule}\nEXDATE;TZID=Europe/Berlin:20260702T090000,20260703T100000\nEXDATE:20260704T070000Z"
    );
    assert_eq!(begins(&excluded), ["2026-07-01T07:00", "2026-07-03T07:00"]);
    let dates = "DTSTART;VALUE=DATE:20260701\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE;VALUE=DATE:20260702";
    assert_eq!(days(dates), ["2026-07-01", "2026-07-03"]);
}

#[test]
fn times_of_day_stay_when_clocks_are_turned() {
    let event = "DTSTART;TZID=Europe/Berlin:20261018T090000\nDTEND;TZID=Europe/Berlin:20261018T100000\n\
                 RRULE:FREQ=WEEKLY;COUNT=3";
    assert_eq!(begins(event), ["2026-10-18T07:00", "2026-10-25T08:00", "2026-11-01T08:00"]);
    // 02:30 is skipped on that day.
    let skipped = "DTSTART;TZID=Europe/Berlin:20260329T023000\nDURATION:PT1H";
    assert_eq!(begins(skipped), ["2026-03-29T01:30"]);
    // A day of DURATION is one of the calendar, and the time between DTSTART and DTEND is exact.
    let ends = |more: &str| {
        let event =
            format!("DTSTART;TZID=Europe/Berlin:20261024T120000\n{more}\nRRULE:FREQ=DAILY;COUNT=1");
        let [from, to] = ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"].map(time);
        read(&event).frozen(from, to).unwrap().iter().map(|it| spelled(it.to)).collect::<Vec<_>>()
    };
    assert_eq!(ends("DURATION:P1D"), ["2026-10-25T11:00"]);
    assert_eq!(ends("DURATION:PT24H"), ["2026-10-25T10:00"]);
    assert_eq!(ends("DTEND:20261025T100000Z"), ["2026-10-25T10:00"]);
}

#[test]
fn what_people_read_and_definitions_of_time_zones_have_no_effect() {
    let text = "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//a//b//EN\nCALSCALE:GREGORIAN\nX-WR-TIMEZONE:Asia/Tokyo\n\
        BEGIN:VTIMEZONE\nTZID:Europe/Berlin\nBEGIN:DAYLIGHT\nDTSTART:19810329T020000\n\
        RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU\nEND:DAYLIGHT\nEND:VTIMEZONE\n\
        BEGIN:VEVENT\nUID:1\nSUMMARY:Sales: \"week\"\nTRANSP:TRANSPARENT\nDTSTART:20261224T080000Z\nDTEND:20261224T090000Z\n\
        BEGIN:VALARM\nTRIGGER:-PT1H\nDURATION:PT5M\nREPEAT:2\nEND:VALARM\nEND:VEVENT\n\
        BEGIN:VEVENT\nSTATUS:CANCELLED\nDTSTART:20261225T080000Z\nDTEND:20261225T090000Z\nEND:VEVENT\nEND:VCALENDAR";
    let calendar = ICalendar::parse(text, "").unwrap();
    let kept = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261224T080000Z\nDTEND:20261224T090000Z\nEND:VEVENT\n\
        END:VCALENDAR\n";
    assert_eq!(calendar.text(), kept);
    assert_eq!(calendar.event_count(), 1);
    assert_eq!(ICalendar::parse(kept, "").unwrap().text(), kept);
    let empty = ICalendar::parse("BEGIN:VCALENDAR\nEND:VCALENDAR", "").unwrap();
    assert_eq!(empty.event_count(), 0);
    let now = time("2026-12-24T00:00:00Z");
    assert!(
        empty.verify(now, Some(empty.text())).unwrap_err().is_broken(),
        "no valid file is empty"
    );
    let cancelled = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSTATUS:CANCELLED\nDTSTART;VALUE=DATE:20261225\nEND:VEVENT\n\
        END:VCALENDAR\n";
    let cancelled = ICalendar::parse(cancelled, "").unwrap();
    assert_eq!((cancelled.event_count(), cancelled.verify(now, None)), (0, Ok(())));
}

#[test]
fn what_would_change_the_times_of_an_event_and_is_not_supported_is_named() {
    let event = "DTSTART:20261224T080000Z\nDURATION:PT1H";
    for (more, what) in [
        ("RRULE:FREQ=YEARLY;BYMONTH=12", "RRULE with BYMONTH"),
        ("RRULE:FREQ=MONTHLY;BYSETPOS=1;BYDAY=TH", "RRULE with BYSETPOS"),
        ("RRULE:FREQ=WEEKLY;WKST=SU", "RRULE with WKST"),
        ("RRULE:FREQ=HOURLY", "RRULE with this FREQ"),
        ("RRULE:FREQ=WEEKLY;BYDAY=MO", "a DTSTART that is not one of the times"),
        ("RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY", "a second RRULE"),
        ("RDATE:20261226T080000Z", "RDATE"),
        ("EXRULE:FREQ=DAILY", "EXRULE"),
        ("RECURRENCE-ID:20261224T080000Z", "RECURRENCE-ID"),
        ("RRULE:FREQ=DAILY\nEXDATE;VALUE=DATE:20261224", "EXDATE of another type"),
        ("RRULE:FREQ=DAILY;INTERVAL=1001", "RRULE with a number above 1000"),
        ("RRULE:FREQ=DAILY;COUNT=5000000000", "RRULE with a number above 4294967295"),
        ("RRULE:FREQ=DAILY;COUNT=1;COUNT=2", "RRULE with a part twice"),
        ("RRULE:FREQ=DAILY;COUNT=1;UNTIL=20261231T000000Z", "RRULE with COUNT and UNTIL"),
        ("RRULE:FREQ=WEEKLY;BYDAY=1TH", "RRULE with a numbered day"),
        ("RRULE:FREQ=DAILY;UNTIL=20261231", "UNTIL that is no date"),
        ("RRULE:FREQ=DAILY;UNTIL=20261231T000000", "UNTIL that is no date"),
        ("RRULE:FREQ=DAILY;UNTIL=20261223T000000Z", "an UNTIL before DTSTART"),
        ("DTEND:20261224T090000Z", "an event with DTEND and DURATION"),
        ("STATUS:CONFIRMED\nSTATUS:CANCELLED", "a second STATUS"),
        (
            "EXDATE;TZID=Europe/Berlin;TZID=Asia/Tokyo:20261224T090000",
            "EXDATE with a parameter twice",
        ),
    ] {
        let error = error(&format!("{event}\n{more}"));
        assert!(!error.is_broken(), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.to_string().ends_with("is not supported"), "{error}");
    }
    for (event, what) in [
        ("DTSTART:20261224T080000Z", "an event without DTEND and DURATION"),
        ("DTSTART:20261224T080000Z\nDTEND:20261224T080000Z", "does not end after it begins"),
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261224", "does not end after it begins"),
        ("DTSTART;VALUE=DATE:20261224\nDTEND:20261225T080000Z", "DTEND of another type"),
        ("DTSTART;VALUE=DATE:20261224\nDURATION:PT1H", "with a DURATION of hours"),
        ("DTSTART;VALUE=DATE;TZID=Asia/Tokyo:20261224", "DTSTART of whole days with TZID"),
        ("DTSTART;VALUE=DATE;VALUE=DATE-TIME:20261224", "DTSTART with a parameter twice"),
        ("DTSTART;TZID=Europe/Berlin:20261224T080000Z\nDURATION:PT1H", "DTSTART in UTC with TZID"),
        (
            "DTSTART;VALUE=DATE:20261224\nRRULE:FREQ=DAILY;UNTIL=20261231T000000Z",
            "UNTIL that is no date",
        ),
    ] {
        let error = error(event);
        assert!(!error.is_broken() && error.to_string().contains(what), "{event}: {error}");
    }
    let zone =
        error("DTSTART;TZID=W. Europe Standard Time:20261224T080000\nDURATION:PT1H").to_string();
    assert!(zone.starts_with("line 3: a TZID that is no IANA name (`W. Europe"), "{zone}");
    let task = ICalendar::parse("BEGIN:VCALENDAR\nBEGIN:VTODO\n", "").unwrap_err();
    assert_eq!(task.to_string(), "line 2: a component (`VTODO`) is not supported");
    let unknown = ICalendar::parse("BEGIN:VCALENDAR\nEND:VCALENDAR", "Mars/Base").unwrap_err();
    assert!(unknown.to_string().contains("Mars/Base") && !unknown.is_broken());
}

#[test]
fn what_is_damaged_is_named_with_its_line() {
    for text in [
        "",
        "hello",
        "<html>: no calendar</html>",
        "BEGIN:VEVENT",
        "VERSION:2.0",
        "BEGIN:VCALENDAR",
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261224T080000Z\n",
        "BEGIN:VCALENDAR\nEND:VEVENT\n",
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nBEGIN:VEVENT\n",
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nBEGIN:A\nBEGIN:B\n",
        "BEGIN:VCALENDAR\nX-A:1\rBEGIN:VEVENT\nEND:VCALENDAR\n",
        "BEGIN:VCALENDAR\0\nEND:VCALENDAR\n",
    ] {
        let error = ICalendar::parse(text, "").unwrap_err();
        assert!(error.is_broken(), "{text}: {error}");
    }
    for event in [
        "DURATION:PT1H",
        "DTSTART:20261324T080000Z\nDURATION:PT1H",
        "DTSTART:2026-12-24\nDURATION:PT1H",
        "DTSTART;VALUE=DATE:20260230",
        "DTSTART:20261224T080000Z\nDURATION:-PT1H",
        "DTSTART:20261224T080000Z\nDURATION:P1M",
        "DTSTART:20261224T080000Z\nDURATION:1 hour",
        "DTSTART:20261224T080000Z\nDURATION:PT1.5H",
    ] {
        let error = error(event);
        assert!(error.is_broken() && error.to_string().starts_with("line 3: "), "{event}: {error}");
    }
    for rule in [
        "INTERVAL=2",
        "FREQ",
        "FREQ=DAILY;INTERVAL=0",
        "FREQ=DAILY;INTERVAL=-1",
        "FREQ=DAILY;INTERVAL=+1",
        "FREQ=DAILY;COUNT=0",
        "FREQ=DAILY;COUNT=",
        "FREQ=DAILY;UNTIL=soon",
        "FREQ=MONTHLY;BYDAY=0TH",
        "FREQ=MONTHLY;BYDAY=54TH",
        "FREQ=MONTHLY;BYDAY=",
        "FREQ=MONTHLY;BYDAY=Ü",
    ] {
        let error = error(&morning("20261224", rule));
        assert!(error.is_broken(), "{rule}: {error}");
    }
}

#[test]
fn a_file_has_bounds() {
    let event = "BEGIN:VEVENT\nDTSTART:20261224T080000Z\nDURATION:PT1H\nEND:VEVENT\n";
    let of = |count: usize| format!("BEGIN:VCALENDAR\n{}END:VCALENDAR\n", event.repeat(count));
    assert_eq!(ICalendar::parse(&of(MAX_EVENTS), "").unwrap().event_count(), MAX_EVENTS);
    let many = ICalendar::parse(&of(MAX_EVENTS + 1), "").unwrap_err();
    assert_eq!(many, ICalendarError::TooLarge("1000 events"));
    let million = ICalendar::parse(&of(1_000_000), "").unwrap_err();
    assert_eq!(million, ICalendarError::TooLarge("1 MiB"));
    let dates = vec!["20261224T080000Z"; 9000].join(",");
    let long = error(&format!("DTSTART:20261224T080000Z\nDURATION:PT1H\nEXDATE:{dates}"));
    assert_eq!(long, ICalendarError::TooLarge("128 KiB of times"));
    assert!(!long.is_broken());
}

#[test]
fn an_expansion_has_bounds() {
    let now = time("2026-12-24T00:00:00Z");
    let daily = format!("BEGIN:VEVENT\n{}\nEND:VEVENT\n", morning("20000101", "FREQ=DAILY"));
    let of = |count: usize| {
        let text = format!("BEGIN:VCALENDAR\n{}END:VCALENDAR\n", daily.repeat(count));
        ICalendar::parse(&text, "").unwrap()
    };
    assert_eq!(of(20).verify(now, None), Ok(()), "what began long ago costs nothing");
    assert!(matches!(of(100).verify(now, None), Err(ICalendarError::TooLarge(_))));
    let near = of(40);
    assert!(near.verify(now, Some(of(20).text())).is_err());
    assert_eq!(near.verify(now, Some(near.text())), Ok(()), "what was accepted stays so");
    let later = now.saturating_add(crate::freeze_calendar::EXPANSION_HORIZON).unwrap();
    assert!(of(100).frozen(now, later).is_err());
    let counted = read(&morning("19000101", "FREQ=DAILY;COUNT=4000000000"));
    assert!(matches!(counted.verify(now, None), Err(ICalendarError::TooLarge(_))));
    let end = read("DTSTART:99991231T080000Z\nDURATION:P999D\nRRULE:FREQ=DAILY");
    assert_eq!(end.verify(now, None), Ok(()), "the calendar ends");
    assert_eq!(end.verify(Time::MAX, None), Ok(()));
}

proptest! {
    #[test]
    fn no_file_panics(text in "(BEGIN:VCALENDAR\n)?(BEGIN:VEVENT\n)?([A-Z;=:,0-9+-]{0,30}\n){0,8}(END:VEVENT\n)?") {
        drop(ICalendar::parse(&text, "Europe/Berlin"));
    }

    #[test]
    fn a_rule_has_the_same_dates_with_and_without_its_first_periods(
        day in 1i8..=28, month in 1i8..=12, interval in 1u16..20,
        rule in prop::sample::select(vec!["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]),
    ) {
        let start = format!("2019{month:02}{day:02}");
        let of = |more: &str| {
            let rule = format!("FREQ={rule};INTERVAL={interval}{more}");
            days(&morning(&start, &rule))
        };
        // A rule with COUNT is evaluated from its begin on.
        prop_assert_eq!(of(""), of(";COUNT=20000"));
    }
}
