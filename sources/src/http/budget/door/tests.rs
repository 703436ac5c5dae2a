//! What closes a host, for how long, and what opens it again.

use proptest::prelude::*;
use reqwest::header::HeaderValue;

use super::*;

const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn secs(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}

/// The second until which a door is closed.
fn closed(door: &Door, second: i64) -> Option<i64> {
    let shut = door.clone().admit(at(second)).err()?;
    Some(shut.until.as_second() - at(0).as_second())
}

#[test]
fn a_host_is_left_alone_for_as_long_as_it_says_within_bounds() {
    for (told, until) in [(secs(30), 30), (secs(0), 1), (secs(1 << 40), 3600), (None, 2)] {
        let mut door = Door::default();
        let ticket = door.admit(at(0)).unwrap();
        door.learn(ticket, Said::Later(TOO_MANY, told), at(0));
        assert_eq!(closed(&door, 0), Some(until), "{told:?}");
        assert_eq!(closed(&door, until), None);
    }
}

#[test]
fn delays_grow_where_nothing_is_said_and_one_trial_opens_the_host() {
    let mut door = Door::default();
    let mut now = 0;
    let mut waits = Vec::new();
    for _ in 0..12 {
        let ticket = door.admit(at(now)).unwrap();
        door.learn(ticket, Said::Later(TOO_MANY, None), at(now));
        let until = closed(&door, now).unwrap();
        waits.push(until - now);
        now = until;
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]);
    let ticket = door.admit(at(now)).unwrap();
    let shut = door.admit(at(now)).unwrap_err();
    assert!(shut.is_tried && shut.until == at(now + 2), "{shut:?}");
    door.learn(ticket, Said::Fine, at(now + 1));
    assert!(door.is_forgettable());
    assert_eq!(door.admit(at(now + 1)), Ok(Ticket::Usual));
}

#[test]
fn one_page_that_is_unavailable_does_not_close_its_host_and_three_in_a_row_do() {
    let mut door = Door::default();
    let mut answer = |said| {
        if let Ok(ticket) = door.admit(at(0)) {
            door.learn(ticket, said, at(0));
        }
        closed(&door, 0)
    };
    let later = Said::Later(UNAVAILABLE, None);
    let seen: Vec<_> = [later, later, Said::Fine, later, later, later].map(&mut answer).into();
    assert_eq!(seen, [None, None, None, None, None, Some(2)]);
    let mut told = Door::default();
    told.learn(Ticket::Usual, Said::Later(UNAVAILABLE, secs(9)), at(0));
    assert_eq!(closed(&told, 0), Some(9));
}

#[test]
fn answers_that_were_on_their_way_neither_open_nor_count() {
    let mut door = Door::default();
    for _ in 0..50 {
        door.learn(Ticket::Usual, Said::Later(TOO_MANY, None), at(0));
    }
    assert_eq!(closed(&door, 0), Some(2));
    door.learn(Ticket::Usual, Said::Fine, at(1));
    assert_eq!(closed(&door, 1), Some(2));
    door.learn(Ticket::Usual, Said::Later(TOO_MANY, secs(60)), at(1));
    assert_eq!(closed(&door, 1), Some(61));
}

#[test]
fn a_trial_that_is_given_up_or_forgotten_is_followed_by_another() {
    let mut door = Door::default();
    door.learn(Ticket::Usual, Said::Later(TOO_MANY, None), at(0));
    let trial = door.admit(at(5)).unwrap();
    assert!(door.admit(at(6)).is_err());
    door.abandon(trial);
    let forgotten = door.admit(at(6)).unwrap();
    assert!(door.admit(at(100)).is_err());
    let last = door.admit(at(6 + 120)).unwrap();
    door.learn(forgotten, Said::Fine, at(127));
    assert!(door.admit(at(127)).is_err());
    door.learn(last, Said::Fine, at(127));
    assert!(door.is_forgettable());
}

#[test]
fn a_clock_that_is_put_back_opens_the_host() {
    let mut door = Door::default();
    door.learn(Ticket::Usual, Said::Later(TOO_MANY, secs(10)), at(0));
    assert!(matches!(door.admit(at(-100_000)), Ok(Ticket::Trial(_))));
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let now = "2026-11-22T09:00:00Z".parse().unwrap();
    for (text, told) in [
        ("120", secs(120)),
        (" 7 ", secs(7)),
        ("Sun, 22 Nov 2026 09:01:30 GMT", secs(90)),
        ("Sun, 22 Nov 2026 08:00:00 GMT", secs(0)),
        ("99999999999999999999999999", secs(3600)),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
        assert_eq!(retry_after(&headers, now), told, "{text}");
    }
}

#[test]
fn turns_follow_each_other() {
    let mut pace = Pace::default();
    let turns: Vec<_> = (0..4).map(|_| pace.turn(10, at(0)).as_millis()).collect();
    assert_eq!(turns, [0, 100, 200, 300]);
    assert_eq!(pace.turn(10, at(1)).as_millis(), 0);
    assert_eq!(pace.turn(10, at(-10_000)).as_millis(), 0);
}

#[derive(Debug, Clone)]
enum Act {
    Ask,
    Answer(usize, bool, Option<u64>),
    Abandon(usize),
    Pass(i64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Ask),
        (0..8_usize, any::<bool>(), proptest::option::of(0..10_000_u64))
            .prop_map(|(which, fine, told)| Act::Answer(which, fine, told)),
        (0..8_usize).prop_map(Act::Abandon),
        (0..400_i64).prop_map(Act::Pass),
    ]
}

proptest! {
    /// Whatever happens: nobody is told to wait for more than an hour, at most one tries at a time, and a host that
    /// serves again is asked again by itself.
    #[test]
    fn no_history_keeps_a_host_closed(acts in proptest::collection::vec(act(), 0..200)) {
        let (mut door, mut now, mut tickets) = (Door::default(), 0_i64, Vec::new());
        for act in acts {
            match act {
                Act::Ask => match door.admit(at(now)) {
                    Ok(ticket) => tickets.push(ticket),
                    Err(shut) => prop_assert!(shut.until > at(now) && shut.until <= at(now + 3600)),
                },
                Act::Answer(which, fine, told) if which < tickets.len() => {
                    let later = Said::Later(TOO_MANY, told.map(Duration::from_secs));
                    door.learn(tickets.remove(which), if fine { Said::Fine } else { later }, at(now));
                }
                Act::Abandon(which) if which < tickets.len() => door.abandon(tickets.remove(which)),
                Act::Answer(..) | Act::Abandon(_) => {}
                Act::Pass(seconds) => now += seconds,
            }
        }
        let ticket = door.admit(at(now + 3601)).unwrap();
        door.learn(ticket, Said::Fine, at(now + 3602));
        prop_assert_eq!(door.admit(at(now + 3602)), Ok(Ticket::Usual));
    }
}
