//! The times and sizes of pages that users request.

use std::time::Duration;

use anyhow::ensure;
use e2e::multi_user_web_pages::BrowserCookies;
use futures::future::join_all;
use tokio::time::{Instant, sleep_until};

use super::figures::WebFigure;
use super::measured_pages::{MeasuredPages, ReceivedPage};
use crate::time_samples::TimeSamples;
use testbed::progress::{note, spell};

/// The pause between two requests of [`spread`], which are fifty requests a second.
const REQUEST_INTERVAL: Duration = Duration::from_millis(20);

/// How often [`spread`] requests a page for each user.
const REQUESTS_OF_A_USER: usize = 4;

/// How many users request pages in [`one_after_another`].
const MAX_SINGLE_USERS: usize = 20;

/// A page, and the goal for its first byte.
pub(super) struct MeasuredPage {
    pub(super) what: &'static str,
    pub(super) path: String,
    /// A text of the objects on the page. A response without it is a failure, because a page without objects is fast.
    pub(super) contains: String,
    /// The goal in milliseconds, if the page has one.
    pub(super) goal: Option<f64>,
}

impl MeasuredPage {
    /// Requests the page for a user.
    async fn request(
        &self,
        pages: &MeasuredPages,
        browser: &BrowserCookies,
    ) -> anyhow::Result<ReceivedPage> {
        let Self { path, contains, .. } = self;
        let received = pages.get(path, browser).await?;
        ensure!(received.text.contains(contains), "GET {path}: the page lacks `{contains}`");
        Ok(received)
    }
}

/// The times and sizes of one page over many requests.
pub(super) struct PageTimes {
    what: &'static str,
    first_byte: TimeSamples,
    sizes: Vec<usize>,
    /// Why requests failed.
    failures: Vec<String>,
}

impl PageTimes {
    /// The times of requests for a page, without any request yet.
    pub(super) fn new(what: &'static str) -> Self {
        // The limit of the samples is not used: the figure has the goal.
        let first_byte = TimeSamples::new(what, Duration::MAX);
        Self { what, first_byte, sizes: Vec::new(), failures: Vec::new() }
    }

    /// Adds the result of a request: its time and size, or its failure.
    pub(super) fn add(&mut self, page: anyhow::Result<ReceivedPage>) {
        match page {
            Ok(page) => {
                self.first_byte.add(page.first_byte);
                self.sizes.push(page.text.len());
            }
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    /// The figure for 99 of 100 requests. A page that failed once has no figure.
    pub(super) fn figure(self, goal: Option<f64>) -> WebFigure {
        let figure = self.without_goal();
        match goal {
            Some(goal) => figure.with_goal(goal),
            None => figure,
        }
    }

    fn without_goal(mut self) -> WebFigure {
        self.sizes.sort_unstable();
        let count = self.sizes.len() + self.failures.len();
        let what = format!("first byte of {}, p99", self.what);
        if let Some(failure) = self.failures.first() {
            let note = format!("{} of {count} failed: {failure}", self.failures.len());
            return WebFigure::new(what, "ms", f64::NAN).with_note(note);
        }
        let size = self.sizes.get(self.sizes.len() / 2).copied().unwrap_or_default();
        let median = milliseconds(self.first_byte.percentile(50));
        let kibibytes = size.div_ceil(1024);
        let note = format!("p50 {median:.1} ms; {kibibytes} KiB; {count} requests");
        WebFigure::new(what, "ms", milliseconds(self.first_byte.percentile(99))).with_note(note)
    }
}

/// Converts a time to a number of milliseconds.
pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Requests a page for each user several times, at a steady rate. A slow response does not delay the next request.
pub(super) async fn spread(
    pages: &MeasuredPages,
    page: &MeasuredPage,
    browsers: &[BrowserCookies],
) -> PageTimes {
    let begun = Instant::now();
    let count = browsers.len() * REQUESTS_OF_A_USER;
    let at = (0_u32..).map(|number| begun + REQUEST_INTERVAL * number);
    let all = browsers.iter().cycle().take(count).zip(at).map(|(browser, at)| async move {
        sleep_until(at).await;
        page.request(pages, browser).await
    });
    let mut times = PageTimes::new(page.what);
    join_all(all).await.into_iter().for_each(|received| times.add(received));
    times
}

/// Requests all pages for one user after another, so that the API server serves one request at a time. The result has the
/// times of each page.
pub(super) async fn one_after_another(
    pages: &MeasuredPages,
    wanted: &[MeasuredPage],
    browsers: &[BrowserCookies],
) -> Vec<PageTimes> {
    let mut all: Vec<PageTimes> = wanted.iter().map(|page| PageTimes::new(page.what)).collect();
    for (at, browser) in browsers.iter().take(MAX_SINGLE_USERS).enumerate() {
        let begun = Instant::now();
        for (page, times) in wanted.iter().zip(&mut all) {
            times.add(page.request(pages, browser).await);
        }
        note(&format!("all pages for user {}: {}", at + 1, spell(begun.elapsed())));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(milliseconds: u64) -> ReceivedPage {
        ReceivedPage { first_byte: Duration::from_millis(milliseconds), text: "a".repeat(2000) }
    }

    #[test]
    fn a_page_that_failed_once_meets_no_goal_and_says_why() {
        let mut times = PageTimes::new("the list");
        times.add(Ok(page(3)));
        times.add(Err(anyhow::anyhow!("503")));
        let figure = format!("{:?}", times.figure(Some(20.0)));
        assert!(figure.contains("1 of 2 failed: 503") && figure.contains("NaN"), "{figure}");
        let mut times = PageTimes::new("the list");
        times.add(Ok(page(3)));
        let figure = format!("{:?}", times.figure(None));
        assert!(figure.contains("p50 3.0 ms; 2 KiB; 1 requests"), "{figure}");
    }
}
