//! How many requests to one API server may be in flight. The number adapts to the answers, like the congestion window of TCP:
//! signs of overload halve it, and each round of good answers adds one.
//!
//! Here: only the numbers. Times are arguments. Elsewhere: the requests that wait (`request_limit`).

use std::time::{Duration, Instant};

/// The bounds of the number of requests in flight. It begins with the larger one.
pub(super) const FEWEST_IN_FLIGHT: usize = 2;
pub(super) const MOST_IN_FLIGHT: usize = 32;

/// Slow answers do not lower the number below this one. A long distance or a slow webhook looks the same as an overload, and
/// fewer requests do not make these faster.
const FEWEST_WHILE_SLOW: usize = 8;

/// The shortest time between two halvings.
const HALVING_PERIOD: Duration = Duration::from_secs(1);

/// An answer is slow if it takes this many times as long as the fastest one, and longer than [`NEVER_SLOW`].
const SLOW_FACTOR: u32 = 10;
const NEVER_SLOW: Duration = Duration::from_millis(500);

/// For how long the fastest answer counts at least. The way to the API server may become longer for good.
const FASTEST_PERIOD: Duration = Duration::from_secs(600);

/// What an answer says about the load of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerOutcome {
    /// The API server handled the request. It may have rejected it.
    Handled,
    /// The API server has too many requests (429).
    Throttled,
    /// The API server, or something behind it, is unavailable or timed out (503, 504).
    Unavailable,
    /// There was no answer.
    Lost,
}

/// The answer to one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObservedAnswer {
    /// What the answer says.
    pub(super) outcome: AnswerOutcome,
    /// When the request was sent.
    pub(super) sent: Instant,
    /// When the answer began, or the request failed.
    pub(super) ended: Instant,
}

/// The number of requests that may be in flight, and the answers from which it follows.
#[derive(Debug)]
pub(super) struct RequestWindow {
    limit: usize,
    /// When the limit was halved last.
    halved: Option<Instant>,
    round: AnswerRound,
    fastest: FastestAnswer,
}

/// The answers since the limit was last compared with them. A round has as many answers as the limit.
#[derive(Debug, Default)]
struct AnswerRound {
    answers: usize,
    unavailable: usize,
    slow: usize,
}

/// The fastest answer of the present period and of the one before.
#[derive(Debug, Default)]
struct FastestAnswer {
    began: Option<Instant>,
    of_period: Option<Duration>,
    of_period_before: Option<Duration>,
}

impl FastestAnswer {
    fn note(&mut self, took: Duration, now: Instant) {
        let began = *self.began.get_or_insert(now);
        if now.saturating_duration_since(began) >= FASTEST_PERIOD {
            self.of_period_before = self.of_period.take();
            self.began = Some(now);
        }
        self.of_period = Some(self.of_period.map_or(took, |fastest| fastest.min(took)));
    }

    /// Whether an answer took far longer than the fastest one.
    fn is_far_exceeded_by(&self, took: Duration) -> bool {
        let fastest = self.of_period.into_iter().chain(self.of_period_before).min();
        let usual = fastest.map_or(Duration::ZERO, |fastest| fastest.saturating_mul(SLOW_FACTOR));
        took > usual.max(NEVER_SLOW)
    }
}

impl Default for RequestWindow {
    fn default() -> Self {
        Self {
            limit: MOST_IN_FLIGHT,
            halved: None,
            round: AnswerRound::default(),
            fastest: FastestAnswer::default(),
        }
    }
}

impl RequestWindow {
    /// How many requests may be in flight.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Adapts the limit to an answer.
    ///
    /// One answer 429 halves the limit. Unavailable and slow answers may be about one kind of objects, such as one whose
    /// aggregated API server or webhook is down. So they halve it only if they are at least half of a round.
    pub(super) fn observe(&mut self, answer: ObservedAnswer) {
        let took = answer.ended.saturating_duration_since(answer.sent);
        let is_slow = self.fastest.is_far_exceeded_by(took);
        match answer.outcome {
            AnswerOutcome::Throttled => {
                self.halve(FEWEST_IN_FLIGHT, answer);
                return;
            }
            // A connection that is refused or closed at once says nothing about the load.
            AnswerOutcome::Lost if !is_slow => return,
            AnswerOutcome::Handled => self.fastest.note(took, answer.ended),
            AnswerOutcome::Unavailable | AnswerOutcome::Lost => {}
        }
        let is_unavailable = answer.outcome == AnswerOutcome::Unavailable;
        self.round.answers += 1;
        self.round.unavailable += usize::from(is_unavailable);
        self.round.slow += usize::from(is_slow);
        if self.round.answers < self.limit {
            return;
        }
        let round = std::mem::take(&mut self.round);
        if round.unavailable * 2 >= round.answers {
            self.halve(FEWEST_IN_FLIGHT, answer);
        } else if round.slow * 2 >= round.answers {
            self.halve(FEWEST_WHILE_SLOW, answer);
        } else {
            self.limit = (self.limit + 1).min(MOST_IN_FLIGHT);
        }
    }

    /// Halves the limit, but not below `fewest`, and begins a new round. Does not halve it again for an answer to a request
    /// that was sent under the former limit, and only once in a [`HALVING_PERIOD`].
    fn halve(&mut self, fewest: usize, answer: ObservedAnswer) {
        self.round = AnswerRound::default();
        let is_recent = self.halved.is_some_and(|halved| {
            answer.sent < halved || answer.ended.saturating_duration_since(halved) < HALVING_PERIOD
        });
        if is_recent {
            return;
        }
        // A limit that is already below `fewest` stays as it is.
        let halved = (self.limit / 2).max(fewest).min(self.limit);
        if halved < self.limit {
            self.halved = Some(answer.ended);
            self.limit = halved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window with a clock that the test moves.
    struct WindowFixture {
        window: RequestWindow,
        now: Instant,
    }

    impl WindowFixture {
        fn new() -> Self {
            Self { window: RequestWindow::default(), now: Instant::now() }
        }

        /// Sends a request and answers it after some milliseconds. Returns the limit.
        fn answer(&mut self, outcome: AnswerOutcome, milliseconds: u64) -> usize {
            let sent = self.now;
            self.now += Duration::from_millis(milliseconds);
            self.window.observe(ObservedAnswer { outcome, sent, ended: self.now });
            self.window.limit()
        }

        /// Answers as many requests as the limit allows, one after the other. Returns the limit.
        fn round(&mut self, outcome: AnswerOutcome, milliseconds: u64) -> usize {
            for _ in 0..self.window.limit() {
                self.answer(outcome, milliseconds);
            }
            self.window.limit()
        }

        fn pause(&mut self) {
            self.now += HALVING_PERIOD;
        }
    }

    #[test]
    fn a_refusal_halves_the_limit_at_most_once_in_a_second_and_not_below_two() {
        let mut it = WindowFixture::new();
        assert_eq!(it.window.limit(), MOST_IN_FLIGHT);
        assert_eq!(it.answer(AnswerOutcome::Throttled, 5), 16);
        assert_eq!(it.answer(AnswerOutcome::Throttled, 5), 16, "within the same second");
        let limits = [8, 4, 2, 2].map(|_: usize| {
            it.pause();
            it.answer(AnswerOutcome::Throttled, 5)
        });
        assert_eq!(limits, [8, 4, 2, 2]);
    }

    #[test]
    fn an_answer_to_a_request_of_before_the_halving_halves_nothing() {
        let mut it = WindowFixture::new();
        let sent = it.now;
        it.answer(AnswerOutcome::Throttled, 5);
        let ended = sent + 3 * HALVING_PERIOD;
        it.window.observe(ObservedAnswer { outcome: AnswerOutcome::Throttled, sent, ended });
        assert_eq!(it.window.limit(), 16);
    }

    #[test]
    fn each_round_of_good_answers_adds_one_up_to_the_most() {
        let mut it = WindowFixture::new();
        for _ in 0..4 {
            it.answer(AnswerOutcome::Throttled, 5);
            it.pause();
        }
        assert_eq!(it.answer(AnswerOutcome::Handled, 5), 2, "a round has two answers");
        assert_eq!(it.answer(AnswerOutcome::Handled, 5), 3);
        for expected in 4..=MOST_IN_FLIGHT {
            assert_eq!(it.round(AnswerOutcome::Handled, 5), expected);
        }
        assert_eq!(it.round(AnswerOutcome::Handled, 5), MOST_IN_FLIGHT);
    }

    #[test]
    fn a_round_with_a_refusal_adds_nothing() {
        let mut it = WindowFixture::new();
        it.answer(AnswerOutcome::Throttled, 5);
        for _ in 0..15 {
            it.answer(AnswerOutcome::Handled, 5);
        }
        assert_eq!(it.answer(AnswerOutcome::Throttled, 5), 16);
        assert_eq!(it.answer(AnswerOutcome::Handled, 5), 16, "the round began anew");
    }

    #[test]
    fn one_kind_that_is_unavailable_halves_nothing_and_a_server_that_is_does() {
        let mut it = WindowFixture::new();
        for at in 0..100 {
            let is_of_kind = at % 3 == 0;
            let outcome =
                if is_of_kind { AnswerOutcome::Unavailable } else { AnswerOutcome::Handled };
            assert_eq!(it.answer(outcome, 5), MOST_IN_FLIGHT);
        }
        let mut it = WindowFixture::new();
        assert_eq!(it.round(AnswerOutcome::Unavailable, 5), 16);
        for expected in [8, 4, 2, 2] {
            it.pause();
            assert_eq!(it.round(AnswerOutcome::Unavailable, 5), expected);
        }
    }

    #[test]
    fn slow_answers_lower_the_limit_to_eight_and_no_further() {
        let mut it = WindowFixture::new();
        it.round(AnswerOutcome::Handled, 20);
        assert_eq!(it.round(AnswerOutcome::Handled, 400), MOST_IN_FLIGHT, "not even half a second");
        assert_eq!(it.round(AnswerOutcome::Handled, 600), 16);
        assert_eq!(it.round(AnswerOutcome::Lost, 40_000), 8);
        assert_eq!(it.round(AnswerOutcome::Handled, 600), 8);
        assert_eq!(it.answer(AnswerOutcome::Throttled, 600), 4);
        it.pause();
        assert_eq!(it.round(AnswerOutcome::Handled, 600), 4, "they do not raise it either");
    }

    #[test]
    fn a_server_far_away_is_not_slow_and_neither_is_one_whose_way_became_longer() {
        let mut it = WindowFixture::new();
        it.round(AnswerOutcome::Handled, 300);
        assert_eq!(it.round(AnswerOutcome::Handled, 2_000), MOST_IN_FLIGHT);
        let mut it = WindowFixture::new();
        it.round(AnswerOutcome::Handled, 20);
        it.now += FASTEST_PERIOD;
        it.answer(AnswerOutcome::Handled, 1_000);
        it.now += FASTEST_PERIOD;
        it.round(AnswerOutcome::Handled, 1_000);
        assert_eq!(it.round(AnswerOutcome::Handled, 1_000), MOST_IN_FLIGHT);
    }

    #[test]
    fn a_connection_that_is_refused_says_nothing() {
        let mut it = WindowFixture::new();
        it.answer(AnswerOutcome::Throttled, 5);
        for _ in 0..100 {
            assert_eq!(it.answer(AnswerOutcome::Lost, 5), 16);
        }
    }
}
