//! What several pages read, kept for some seconds: it costs the API server the same for one page as for ten.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long what was read is shown to further pages, which say when it was.
const MIN_KEPT_TIME: Duration = Duration::from_secs(10);

/// What takes long to read is kept for so many times as long, so that pages that stay open do not read it all the time.
const KEPT_PER_READING_TIME: u32 = 5;

/// What was read, when that began, and how long it took.
struct RecentRead<T> {
    began: Instant,
    took: Duration,
    value: Rc<T>,
}

impl<T> RecentRead<T> {
    /// For how long it is kept, from when its reading began.
    fn kept_for(&self) -> Duration {
        self.took.saturating_mul(KEPT_PER_READING_TIME).max(MIN_KEPT_TIME)
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < self.kept_for()
    }

    /// In which time something that happened then is seen: `None` if it is already, because the reading began after it.
    fn shows_in(&self, happened: Instant, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.began);
        (self.began <= happened).then(|| self.kept_for().saturating_sub(age))
    }
}

/// Something that is read by the first page that needs it, and by others when it is too old. Pages that need it meanwhile wait
/// for the first.
pub(crate) struct SharedRead<T>(Mutex<Option<RecentRead<T>>>);

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> SharedRead<T> {
    /// What was read, or is read now. An error is not kept.
    ///
    /// # Errors
    /// That of `read`.
    pub(crate) async fn get(
        &self,
        read: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Rc<T>> {
        let mut kept = self.0.lock().await;
        if let Some(recent) = kept.as_ref().filter(|it| it.is_recent(Instant::now())) {
            return Ok(recent.value.clone());
        }
        // An old answer is not shown where the new one is an error.
        *kept = None;
        let began = Instant::now();
        let value = Rc::new(read().await?);
        *kept = Some(RecentRead { began, took: began.elapsed(), value: value.clone() });
        Ok(value)
    }

    /// In which time something that happened then is seen: `None` if it is already, because the reading began after it.
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
        // The clock may not have advanced since.
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
