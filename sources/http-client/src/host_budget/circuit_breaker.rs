//! Decides when requests to a host are paused. Pure: the caller passes the time.
//!
//! Elsewhere: waiting and sending ([`super`]).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The first delay after an answer without `Retry-After`. Each further delay is twice as long.
const INITIAL_BACKOFF_DELAY: Duration = Duration::from_secs(2);
/// The longest of these delays.
const LONGEST_GUESS: Duration = Duration::from_secs(5 * 60);
/// The longest time that a host may ask for.
pub(super) const MAX_RETRY_AFTER_DELAY: Duration = Duration::from_secs(60 * 60);
/// The shortest time that a host may ask for.
const MIN_RETRY_AFTER_DELAY: Duration = Duration::from_secs(1);
/// The time after which other requests may try again while a test request is in progress.
const HALF_OPEN_RETRY_DELAY: Duration = Duration::from_secs(2);
/// The time after which a test request without a result is given up, and another one may begin.
const LONGEST_TRIAL: Duration = Duration::from_secs(120);
/// The number of consecutive `503` without `Retry-After` that pause requests to a host. A single one may be about a
/// single page.
const MAX_CONSECUTIVE_UNAVAILABLE_RESPONSES: u32 = 3;

/// Decides whether a request may be sent to a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CircuitBreaker {
    closed: Option<HostBackoff>,
    /// The number of consecutive pauses without a `Retry-After`.
    guesses: u32,
    /// The number of consecutive answers `503` that did not begin a pause.
    unavailable: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HostBackoff {
    until: Timestamp,
    status: u16,
    /// The time when the test request began, if one is in progress.
    trial: Option<Timestamp>,
}

/// The right to send one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestTicket {
    Usual,
    /// A single request tests whether the host serves again. It began at this time.
    Trial(Timestamp),
}

/// The reason why no request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenCircuitError {
    pub(super) until: Timestamp,
    pub(super) status: u16,
    pub(super) is_tried: bool,
}

/// The availability of a host, according to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostAvailability {
    /// The host serves.
    Fine,
    /// The host refuses requests with this status, and for this time if it sent a `Retry-After`.
    Later(StatusCode, Option<Duration>),
}

impl HostAvailability {
    /// What a response says about the load of its host, from its status and headers.
    pub(super) fn of(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Self {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Self::Later(status, retry_after(headers, now))
            }
            _ => Self::Fine,
        }
    }
}

/// Parses `Retry-After` in seconds or as a date. `None` for any other text.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are a long time.
        return Some(text.parse().map_or(MAX_RETRY_AFTER_DELAY, Duration::from_secs));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    // A date that has passed is now.
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

fn after(now: Timestamp, delay: Duration) -> Timestamp {
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::ZERO);
    now.checked_add(delay).unwrap_or(now)
}

impl CircuitBreaker {
    /// Whether a request may be sent.
    pub(super) fn admit(&mut self, now: Timestamp) -> Result<RequestTicket, OpenCircuitError> {
        let Some(closed) = &mut self.closed else { return Ok(RequestTicket::Usual) };
        let shut =
            |until, is_tried| Err(OpenCircuitError { until, status: closed.status, is_tried });
        // A time later than any that was set means that the clock was put back.
        if now < closed.until && closed.until <= after(now, MAX_RETRY_AFTER_DELAY) {
            return shut(closed.until, false);
        }
        let is_tried = |began: Timestamp| began <= now && now < after(began, LONGEST_TRIAL);
        if closed.trial.is_some_and(is_tried) {
            return shut(after(now, HALF_OPEN_RETRY_DELAY), true);
        }
        closed.trial = Some(now);
        Ok(RequestTicket::Trial(now))
    }

    /// Notes the result of a request. A good answer ends a pause only if it answers the test request.
    pub(super) fn learn(&mut self, ticket: RequestTicket, said: HostAvailability, now: Timestamp) {
        let is_trial = self.is_current(ticket);
        match said {
            HostAvailability::Fine if is_trial => *self = Self::default(),
            HostAvailability::Fine if self.closed.is_none() => self.unavailable = 0,
            HostAvailability::Fine => {}
            HostAvailability::Later(status, retry_after) => {
                self.unavailable = self.unavailable.saturating_add(1);
                let is_patient = status == StatusCode::SERVICE_UNAVAILABLE && retry_after.is_none();
                if self.closed.is_none()
                    && is_patient
                    && self.unavailable < MAX_CONSECUTIVE_UNAVAILABLE_RESPONSES
                {
                    return;
                }
                // Of several concurrent requests, only the first failure counts for the growing delay.
                if self.closed.is_some() && !is_trial && retry_after.is_none() {
                    return;
                }
                let until = after(now, self.delay(retry_after));
                let before = self.closed.as_ref().filter(|_| !is_trial);
                let trial = before.and_then(|closed| closed.trial);
                let until = before.map_or(until, |closed| closed.until.max(until));
                self.closed = Some(HostBackoff { until, status: status.as_u16(), trial });
            }
        }
    }

    /// Notes a request without a result, because it could not connect or its caller gave up.
    pub(super) fn abandon(&mut self, ticket: RequestTicket) {
        if self.is_current(ticket)
            && let Some(closed) = &mut self.closed
        {
            closed.trial = None;
        }
    }

    /// Whether the breaker has no state that must be kept.
    pub(super) fn is_forgettable(&self) -> bool {
        *self == Self::default()
    }

    fn is_current(&self, ticket: RequestTicket) -> bool {
        match (ticket, &self.closed) {
            (RequestTicket::Trial(began), Some(closed)) => closed.trial == Some(began),
            (RequestTicket::Trial(_) | RequestTicket::Usual, _) => false,
        }
    }

    fn delay(&mut self, retry_after: Option<Duration>) -> Duration {
        match retry_after {
            Some(retry_after) => retry_after.clamp(MIN_RETRY_AFTER_DELAY, MAX_RETRY_AFTER_DELAY),
            None => {
                let delay = INITIAL_BACKOFF_DELAY.saturating_mul(1 << self.guesses.min(16));
                self.guesses = self.guesses.saturating_add(1);
                delay.min(LONGEST_GUESS)
            }
        }
    }
}

/// Limits the number of requests in a second. Requests go in the order in which they come.
#[derive(Debug, Clone, Default)]
pub(super) struct HostRateLimit {
    next: Option<Timestamp>,
}

impl HostRateLimit {
    /// Takes the next turn. Returns the time until that turn.
    pub(super) fn turn(&mut self, per_second: u32, now: Timestamp) -> Duration {
        let step = Duration::from_secs(1) / per_second.max(1);
        // A turn later than the longest queue of requests means that the clock was put back.
        let at = self.next.filter(|next| *next > now && *next <= after(now, MAX_RETRY_AFTER_DELAY));
        let at = at.unwrap_or(now);
        self.next = Some(after(at, step));
        Duration::try_from(at.duration_since(now)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
