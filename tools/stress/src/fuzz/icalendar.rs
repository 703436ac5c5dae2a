//! iCalendar files of Freezes (`reconcile`).

use reconcile::{FreezeCalendar, ICalendar, Time};

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "icalendar",
    stack: USUAL_STACK,
    words: &[
        b"BEGIN:VCALENDAR\n",
        b"END:VCALENDAR\n",
        b"BEGIN:VEVENT\n",
        b"END:VEVENT\n",
        b"BEGIN:VALARM\n",
        b"BEGIN:VTIMEZONE\n",
        b"DTSTART;VALUE=DATE:20261224\n",
        b"DTSTART;TZID=Europe/Berlin:20261025T023000\n",
        b"DTEND:99991231T235959Z\n",
        b"DURATION:P1DT1H\n",
        b"DURATION:P99999999D\n",
        b"RRULE:FREQ=DAILY",
        b"RRULE:FREQ=YEARLY;BYDAY=-53MO,53SU",
        b";INTERVAL=1000",
        b";COUNT=4294967295",
        b";UNTIL=20261224T000000Z",
        b";BYDAY=1MO,-1FR",
        b"FREQ=MONTHLY",
        b"FREQ=WEEKLY",
        b"EXDATE:20261224T080000Z,20261225T080000Z\n",
        b"00010101",
        b"99991231",
        b"\n ",
        b"\r\n\t",
        b"\"",
        b";",
        b":",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\0",
    ],
    recorded: &[],
    read,
};

/// Reads a calendar, writes it and reads it again, which has to give the same calendar. It is evaluated within the
/// limits, or rejected.
fn read(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(calendar) = ICalendar::parse(&text, "Europe/Berlin") else { return };
    let again = ICalendar::parse(calendar.text(), "Europe/Berlin");
    assert_eq!(again.map(|it| it.text().to_owned()).as_deref(), Ok(calendar.text()));
    for time in [Time::MIN, Time::UNIX_EPOCH, Time::MAX] {
        drop(calendar.verify(time, None));
        let always = FreezeCalendar::parse(&[], &[]);
        if let Ok(Ok(freeze)) = always.map(|it| it.with_events(&calendar, time)) {
            freeze.denies(time);
            freeze.next_begin(time);
        }
    }
}
