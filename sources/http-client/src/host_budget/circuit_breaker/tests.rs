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

/// The second until which a breaker is closed.
fn closed(breaker: &CircuitBreaker, second: i64) -> Option<i64> {
    let shut = breaker.clone().admit(at(second)).err()?;
    Some(shut.until.as_second() - at(0).as_second())
}

#[test]
fn a_host_is_left_alone_for_as_long_as_it_says_within_bounds() {
    for (retry_after, until) in [(secs(30), 30), (secs(0), 1), (secs(1 << 40), 3600), (None, 2)] {
        let mut breaker = CircuitBreaker::default();
        let ticket = breaker.admit(at(0)).unwrap();
        breaker.learn(ticket, HostAvailability::Later(TOO_MANY, retry_after), at(0));
        assert_eq!(closed(&breaker, 0), Some(until), "{retry_after:?}");
        assert_eq!(closed(&breaker, until), None);
    }
}

#[test]
fn delays_grow_where_nothing_is_said_and_one_trial_opens_the_host() {
    let mut breaker = CircuitBreaker::default();
    let mut now = 0;
    let mut waits = Vec::new();
    for _ in 0..12 {
        let ticket = breaker.admit(at(now)).unwrap();
        breaker.learn(ticket, HostAvailability::Later(TOO_MANY, None), at(now));
        let until = closed(&breaker, now).unwrap();
        waits.push(until - now);
        now = until;
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]);
    let ticket = breaker.admit(at(now)).unwrap();
    let shut = breaker.admit(at(now)).unwrap_err();
    assert!(shut.is_tried && shut.until == at(now + 2), "{shut:?}");
    breaker.learn(ticket, HostAvailability::Fine, at(now + 1));
    assert!(breaker.is_forgettable());
    assert_eq!(breaker.admit(at(now + 1)), Ok(RequestTicket::Usual));
}

#[test]
fn one_page_that_is_unavailable_does_not_close_its_host_and_three_in_a_row_do() {
    let mut breaker = CircuitBreaker::default();
    let mut answer = |said| {
        if let Ok(ticket) = breaker.admit(at(0)) {
            breaker.learn(ticket, said, at(0));
        }
        closed(&breaker, 0)
    };
    let later = HostAvailability::Later(UNAVAILABLE, None);
    let seen: Vec<_> =
        [later, later, HostAvailability::Fine, later, later, later].map(&mut answer).into();
    assert_eq!(seen, [None, None, None, None, None, Some(2)]);
    let mut hinted = CircuitBreaker::default();
    hinted.learn(RequestTicket::Usual, HostAvailability::Later(UNAVAILABLE, secs(9)), at(0));
    assert_eq!(closed(&hinted, 0), Some(9));
}

#[test]
fn answers_that_were_on_their_way_neither_open_nor_count() {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..50 {
        breaker.learn(RequestTicket::Usual, HostAvailability::Later(TOO_MANY, None), at(0));
    }
    assert_eq!(closed(&breaker, 0), Some(2));
    breaker.learn(RequestTicket::Usual, HostAvailability::Fine, at(1));
    assert_eq!(closed(&breaker, 1), Some(2));
    breaker.learn(RequestTicket::Usual, HostAvailability::Later(TOO_MANY, secs(60)), at(1));
    assert_eq!(closed(&breaker, 1), Some(61));
}

#[test]
fn a_trial_that_is_given_up_or_forgotten_is_followed_by_another() {
    let mut breaker = CircuitBreaker::default();
    breaker.learn(RequestTicket::Usual, HostAvailability::Later(TOO_MANY, None), at(0));
    let trial = breaker.admit(at(5)).unwrap();
    assert!(breaker.admit(at(6)).is_err());
    breaker.abandon(trial);
    let forgotten = breaker.admit(at(6)).unwrap();
    assert!(breaker.admit(at(100)).is_err());
    let last = breaker.admit(at(6 + 120)).unwrap();
    breaker.learn(forgotten, HostAvailability::Fine, at(127));
    assert!(breaker.admit(at(127)).is_err());
    breaker.learn(last, HostAvailability::Fine, at(127));
    assert!(breaker.is_forgettable());
}

#[test]
fn a_clock_that_is_put_back_opens_the_host() {
    let mut breaker = CircuitBreaker::default();
    breaker.learn(RequestTicket::Usual, HostAvailability::Later(TOO_MANY, secs(10)), at(0));
    assert!(matches!(breaker.admit(at(-100_000)), Ok(RequestTicket::Trial(_))));
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let now = "2026-11-22T09:00:00Z".parse().unwrap();
    for (text, expected) in [
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
        assert_eq!(retry_after(&headers, now), expected, "{text}");
    }
}

#[test]
fn turns_follow_each_other() {
    let mut limit = HostRateLimit::default();
    let turns: Vec<_> = (0..4).map(|_| limit.turn(10, at(0)).as_millis()).collect();
    assert_eq!(turns, [0, 100, 200, 300]);
    assert_eq!(limit.turn(10, at(1)).as_millis(), 0);
    assert_eq!(limit.turn(10, at(-10_000)).as_millis(), 0);
}

#[derive(Debug, Clone)]
enum BreakerAction {
    Ask,
    Answer(usize, bool, Option<u64>),
    Abandon(usize),
    Pass(i64),
}

fn act() -> impl Strategy<Value = BreakerAction> {
    prop_oneof![
        Just(BreakerAction::Ask),
        (0..8_usize, any::<bool>(), proptest::option::of(0..10_000_u64))
            .prop_map(|(which, fine, retry_after)| BreakerAction::Answer(which, fine, retry_after)),
        (0..8_usize).prop_map(BreakerAction::Abandon),
        (0..400_i64).prop_map(BreakerAction::Pass),
    ]
}

proptest! {
    /// For every history: no request is asked to wait for more than an hour, at most one tries at a time, and a host
    /// that serves again is asked again.
    #[test]
    fn no_history_keeps_a_host_closed(acts in proptest::collection::vec(act(), 0..200)) {
        let mut breaker = CircuitBreaker::default();
        let mut now = 0_i64;
        let mut tickets = Vec::new();
        for act in acts {
            match act {
                BreakerAction::Ask => match breaker.admit(at(now)) {
                    Ok(ticket) => tickets.push(ticket),
                    Err(shut) => prop_assert!(shut.until > at(now) && shut.until <= at(now + 3600)),
                },
                BreakerAction::Answer(which, fine, retry_after) if which < tickets.len() => {
                    let later = HostAvailability::Later(TOO_MANY, retry_after.map(Duration::from_secs));
                    breaker.learn(tickets.remove(which), if fine { HostAvailability::Fine } else { later }, at(now));
                }
                BreakerAction::Abandon(which) if which < tickets.len() => breaker.abandon(tickets.remove(which)),
                BreakerAction::Answer(..) | BreakerAction::Abandon(_) => {}
                BreakerAction::Pass(seconds) => now += seconds,
            }
        }
        let ticket = breaker.admit(at(now + 3601)).unwrap();
        breaker.learn(ticket, HostAvailability::Fine, at(now + 3602));
        prop_assert_eq!(breaker.admit(at(now + 3602)), Ok(RequestTicket::Usual));
    }
}
