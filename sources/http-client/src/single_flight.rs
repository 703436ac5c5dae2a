//! A cache in which one caller fetches a value for all callers that wait for it, such as the token of a login.
//!
//! Elsewhere: the fetch itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of keys from which on keys without a value and without a waiting caller are forgotten.
const MANY_KEYS: usize = 4096;

/// A cache of values by key. One fetch serves all concurrent callers, and a value is kept for 80 % of its lifetime.
///
/// A key must contain everything that decides what is fetched, with credentials as a digest, because callers with the same key
/// get the same value.
///
/// # Guarantees
/// Callers that waited for a failed fetch get its error, and later callers fetch again. If the caller that fetches gives up,
/// the next waiting caller fetches. `Debug` does not show values.
pub struct SingleFlightCache<K, T, E> {
    slots: Mutex<BTreeMap<K, Arc<SingleFlightSlot<T, E>>>>,
}

/// Logins by a key of the request for them.
pub type LoginTokenCache<T, E> = SingleFlightCache<String, T, E>;

struct SingleFlightSlot<T, E> {
    /// Fetches that came to an end.
    ended: AtomicU64,
    latest: tokio::sync::Mutex<LatestValue<T, E>>,
    /// The time until which the latest value is handed out, for forgetting without waiting.
    fresh_until: Mutex<Option<Instant>>,
}

struct LatestValue<T, E>(Option<Result<Arc<T>, E>>);

impl<T, E> Default for SingleFlightSlot<T, E> {
    fn default() -> Self {
        let latest = tokio::sync::Mutex::new(LatestValue(None));
        Self { ended: AtomicU64::new(0), latest, fresh_until: Mutex::new(None) }
    }
}

impl<T, E> SingleFlightSlot<T, E> {
    fn is_fresh(&self) -> bool {
        self.fresh_until.lock().is_some_and(|until| Instant::now() < until)
    }
}

impl<K, T, E> Default for SingleFlightCache<K, T, E> {
    fn default() -> Self {
        Self { slots: Mutex::new(BTreeMap::new()) }
    }
}

impl<K, T, E> fmt::Debug for SingleFlightCache<K, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightCache").field("keys", &self.slots.lock().len()).finish()
    }
}

/// How long a value with this lifetime is kept. It ends early, so that no request begins with a value that expires meanwhile.
fn kept_for(life: Duration) -> Duration {
    life / 5 * 4
}

impl<K: Ord + Clone, T, E: Clone> SingleFlightCache<K, T, E> {
    /// Returns the value of a key: the cached value, the value that another caller is fetching, or the result of `fetch`.
    ///
    /// `fetch` returns the value's lifetime from now. Without a lifetime, only the callers that already wait get the value.
    ///
    /// # Errors
    /// The error of `fetch`, or of the other caller's fetch.
    pub async fn get(
        &self,
        key: &K,
        fetch: impl Future<Output = Result<(T, Option<Duration>), E>>,
    ) -> Result<Arc<T>, E> {
        let slot = self.slot(key);
        let before = slot.ended.load(Ordering::Acquire);
        let mut latest = slot.latest.lock().await;
        let was_waited_for = slot.ended.load(Ordering::Acquire) != before;
        match &latest.0 {
            Some(value) if was_waited_for => return value.clone(),
            Some(Ok(value)) if slot.is_fresh() => return Ok(value.clone()),
            Some(_) | None => {}
        }
        let fetched = fetch.await;
        let (value, life) = match fetched {
            Ok((value, life)) => (Ok(Arc::new(value)), life),
            Err(error) => (Err(error), None),
        };
        let until = life.and_then(|life| Instant::now().checked_add(kept_for(life)));
        *slot.fresh_until.lock() = until;
        slot.ended.fetch_add(1, Ordering::AcqRel);
        // Waiting callers hold the slot and find the value. Without a lifetime, later callers do not.
        latest.0 = Some(value.clone());
        drop(latest);
        if until.is_none() {
            self.forget_slot(key, &slot);
        }
        value
    }

    /// Forgets the value of a key if `is_it` recognizes it, for example a refused token. A newer value stays.
    pub async fn forget_if(&self, key: &K, is_it: impl FnOnce(&T) -> bool) {
        let slot = self.slots.lock().get(key).cloned();
        let Some(slot) = slot else { return };
        let latest = slot.latest.lock().await;
        if latest.0.as_ref().is_some_and(|value| value.as_ref().is_ok_and(|value| is_it(value))) {
            self.forget_slot(key, &slot);
        }
    }

    fn forget_slot(&self, key: &K, slot: &Arc<SingleFlightSlot<T, E>>) {
        let mut slots = self.slots.lock();
        if slots.get(key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            slots.remove(key);
        }
    }

    fn slot(&self, key: &K) -> Arc<SingleFlightSlot<T, E>> {
        let mut slots = self.slots.lock();
        if slots.len() >= MANY_KEYS {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.is_fresh());
        }
        slots.entry(key.clone()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type SingleFlightValues = SingleFlightCache<String, u32, String>;

    fn key() -> String {
        "key".to_owned()
    }

    async fn fetch(
        calls: &AtomicU64,
        life: Option<Duration>,
    ) -> Result<(u32, Option<Duration>), String> {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok((u32::try_from(call).unwrap(), life))
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_value_is_fetched_once_for_all_and_kept_until_it_is_forgotten_or_too_old() {
        runtime().block_on(async {
            let values = SingleFlightValues::default();
            let calls = AtomicU64::new(0);
            let life = Some(Duration::from_secs(3600));
            let all = (0..50).map(|_| async { values.get(&key(), fetch(&calls, life)).await });
            let all = futures::future::join_all(all).await;
            assert!(all.iter().all(|got| got.as_deref() == Ok(&0)), "{all:?}");
            assert_eq!(*values.get(&key(), fetch(&calls, life)).await.unwrap(), 0);
            values.forget_if(&key(), |value| *value == 1).await;
            assert_eq!(*values.get(&key(), fetch(&calls, life)).await.unwrap(), 0);
            values.forget_if(&key(), |value| *value == 0).await;
            let short = Some(Duration::from_nanos(10));
            assert_eq!(*values.get(&key(), fetch(&calls, short)).await.unwrap(), 1);
            assert_eq!(*values.get(&key(), fetch(&calls, short)).await.unwrap(), 2);
        });
    }

    #[test]
    fn a_value_is_kept_for_four_fifths_of_its_life() {
        assert_eq!(kept_for(Duration::from_secs(100)), Duration::from_secs(80));
        assert_eq!(kept_for(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn without_a_life_a_value_is_for_those_who_wait_and_nothing_is_kept() {
        runtime().block_on(async {
            let values = SingleFlightValues::default();
            let calls = AtomicU64::new(0);
            let all = (0..5).map(|_| async { values.get(&key(), fetch(&calls, None)).await });
            let all = futures::future::join_all(all).await;
            assert!(all.iter().all(|got| got.as_deref() == Ok(&0)), "{all:?}");
            assert_eq!(values.slots.lock().len(), 0);
            assert_eq!(*values.get(&key(), fetch(&calls, None)).await.unwrap(), 1);
        });
    }

    #[test]
    fn a_failure_is_shared_by_waiting_callers_only() {
        runtime().block_on(async {
            let values = SingleFlightValues::default();
            let calls = AtomicU64::new(0);
            let refused = || async {
                let _call = fetch(&calls, None).await?;
                Err("refused".to_owned())
            };
            let all = (0..20).map(|_| async { values.get(&key(), refused()).await });
            let all = futures::future::join_all(all).await;
            assert!(all.iter().all(|got| got.as_deref() == Err(&"refused".to_owned())));
            assert_eq!(calls.load(Ordering::SeqCst), 1);
            assert_eq!(*values.get(&key(), fetch(&calls, None)).await.unwrap(), 1);
        });
    }

    #[test]
    fn when_the_fetching_caller_gives_up_the_next_one_fetches() {
        runtime().block_on(async {
            let values = SingleFlightValues::default();
            let calls = AtomicU64::new(0);
            let key = key();
            let never = async {
                calls.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            };
            let short = tokio::time::timeout(Duration::from_millis(5), values.get(&key, never));
            let (gave_up, got) = tokio::join!(short, values.get(&key, fetch(&calls, None)));
            assert!(gave_up.is_err());
            assert_eq!(*got.unwrap(), 1);
        });
    }
}
