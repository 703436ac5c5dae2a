//! Shares the result of an expensive reading among pages for some seconds. So ten pages cost the API server no more than one.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long pages reuse a result at least. The pages say when it was read.
const MIN_KEPT_TIME: Duration = Duration::from_secs(10);

/// A result is kept for this many times its reading time. So open pages do not keep the API server busy all the time.
const KEPT_PER_READING_TIME: u32 = 5;

/// A result, the time when the reading began, and how long the reading took.
struct RecentRead<T> {
    began: Instant,
    took: Duration,
    value: Rc<T>,
}

impl<T> RecentRead<T> {
    /// How long the result is kept, counted from the start of the reading.
    fn kept_for(&self) -> Duration {
        self.took.saturating_mul(KEPT_PER_READING_TIME).max(MIN_KEPT_TIME)
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < self.kept_for()
    }

    /// How long it takes until pages show an event that happened at `happened`. Returns `None` if the result already includes
    /// the event.
    fn shows_in(&self, happened: Instant, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.began);
        (self.began <= happened).then(|| self.kept_for().saturating_sub(age))
    }
}

/// A result that the first page reads for all. When it is too old, the next page reads it again. Other pages wait for a reading
/// in progress.
pub(crate) struct SharedRead<T>(Mutex<Option<RecentRead<T>>>);

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> SharedRead<T> {
    /// Returns the recent result, or reads it now. Errors are not kept.
    ///
    /// # Errors
    /// The error of `read`.
    pub(crate) async fn get(
        &self,
        read: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Rc<T>> {
        let mut kept = self.0.lock().await;
        if let Some(recent) = kept.as_ref().filter(|it| it.is_recent(Instant::now())) {
            return Ok(recent.value.clone());
        }
        // After an error, pages must not show the old result.
        *kept = None;
        let began = Instant::now();
        let value = Rc::new(read().await?);
        *kept = Some(RecentRead { began, took: began.elapsed(), value: value.clone() });
        Ok(value)
    }

    /// How long it takes until pages show an event that happened at `happened`. Returns `None` if the result already includes
    /// the event, or if there is no result.
    pub(crate) async fn shows_in(&self, happened: Instant) -> Option<Duration> {
        let kept = self.0.lock().await;
        kept.as_ref()?.shows_in(happened, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_read_is_read_once_and_an_error_is_not_kept() {
        let shared = SharedRead::<u32>::default();
        assert!(shared.get(async || anyhow::bail!("refused")).await.is_err());
        assert_eq!(shared.shows_in(Instant::now()).await, None);
        let before = Instant::now();
        assert_eq!(*shared.get(async || anyhow::Ok(1)).await.unwrap(), 1);
        assert_eq!(*shared.get(async || anyhow::Ok(2)).await.unwrap(), 1);
        // The clock may not have advanced since then.
        let later = before + Duration::from_secs(5);
        assert!(shared.shows_in(later).await.is_some_and(|it| it <= MIN_KEPT_TIME));
    }

    #[test]
    fn what_takes_long_to_read_is_kept_longer() {
        let began = Instant::now();
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        let read =
            |took: u64| RecentRead { began, took: Duration::from_secs(took), value: Rc::new(1) };
        assert!(read(1).is_recent(after(9)) && !read(1).is_recent(after(10)));
        assert!(read(30).is_recent(after(149)) && !read(30).is_recent(after(150)));
    }

    #[test]
    fn what_happens_after_a_reading_began_is_seen_with_the_next_one() {
        let happened = Instant::now();
        let began = happened + Duration::from_secs(1);
        let now = began + Duration::from_secs(4);
        let read = RecentRead { began, took: Duration::ZERO, value: Rc::new(1) };
        assert_eq!(read.shows_in(happened, now), None);
        assert_eq!(read.shows_in(now, now), Some(Duration::from_secs(6)));
    }
}
