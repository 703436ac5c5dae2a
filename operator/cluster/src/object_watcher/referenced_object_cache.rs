//! A cache of the Secrets, ConfigMaps and ServiceAccounts that specs name. It keeps them for a few seconds. One push wakes
//! many runs that read the same object, and they share one or two reads.
//!
//! An answer is shared in two cases. In the first, its request was sent after the run wanted the object, so it is as new as an
//! answer of its own. In the second, a live watch has seen the same version as the latest. The second case never proves that
//! an object is missing.
//!
//! Each connection to a cluster has its own cache, and reads with one identity. So no run gets an answer that another identity
//! read. Elsewhere: which versions the watches saw (`watched_references.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use objects::ObjectId;
use parking_lot::Mutex;

use super::watcher_state::WatchMoment;
use crate::ClusterError;

/// How long an answer is kept.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);

/// How many bytes of content are kept. The oldest answers are dropped first.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// About how many bytes an answer takes besides its content.
const BYTES_PER_ANSWER: usize = 512;

/// The parts of an object that a run uses because a spec names it.
#[derive(Clone)]
pub(crate) enum ReferencedObjectContent {
    /// The data of a Secret.
    Secret(Arc<BTreeMap<String, Vec<u8>>>),
    /// The data of a ConfigMap.
    ConfigMap(Arc<BTreeMap<String, String>>),
    /// The names of the image pull secrets of a ServiceAccount.
    PullSecrets(Arc<Vec<String>>),
}

impl ReferencedObjectContent {
    fn bytes(&self) -> usize {
        match self {
            Self::Secret(data) => data.iter().map(|(key, value)| key.len() + value.len()).sum(),
            Self::ConfigMap(data) => data.iter().map(|(key, value)| key.len() + value.len()).sum(),
            Self::PullSecrets(names) => names.iter().map(String::len).sum(),
        }
    }
}

/// The content and the version of an object; `None` if the API server says that it does not exist.
pub(crate) type ReferencedObjectReadResult = Option<(ReferencedObjectContent, u64)>;

/// An answer of the API server to a read of one object.
#[derive(Clone)]
pub(super) struct ReferencedObjectAnswer {
    /// When the request was sent.
    asked: Instant,
    /// The moment of the watches before the request.
    pub(super) since: WatchMoment,
    pub(super) found: Result<ReferencedObjectReadResult, ClusterError>,
}

impl ReferencedObjectAnswer {
    /// The content and the version, if the object exists and the answer is recent.
    pub(super) fn recent(&self, now: Instant) -> Option<(&ReferencedObjectContent, u64)> {
        if now.saturating_duration_since(self.asked) > ANSWER_LIFETIME {
            return None;
        }
        let (content, version) = self.found.as_ref().ok()?.as_ref()?;
        Some((content, *version))
    }
}

/// The cached answer for one object.
#[derive(Default)]
pub(super) struct ReferencedObjectCacheEntry {
    /// One run sends the request while it holds this lock. The other runs that need the object wait for its answer.
    pub(super) asking: tokio::sync::Mutex<()>,
    last: Mutex<Option<ReferencedObjectAnswer>>,
}

impl ReferencedObjectCacheEntry {
    /// The last answer for this object.
    pub(super) fn last(&self) -> Option<ReferencedObjectAnswer> {
        self.last.lock().clone()
    }

    /// The last answer, if its request was sent at this time or later.
    pub(super) fn asked_since(&self, wanted: Instant) -> Option<ReferencedObjectAnswer> {
        self.last().filter(|answer| answer.asked >= wanted)
    }
}

/// An answer in the queue of the cache. The oldest answer is the first.
struct ReferencedObjectExpiryEntry {
    slot: Arc<ReferencedObjectCacheEntry>,
    asked: Instant,
    bytes: usize,
}

#[derive(Default)]
struct ReferencedObjectCacheState {
    slots: BTreeMap<ObjectId, Weak<ReferencedObjectCacheEntry>>,
    kept: VecDeque<ReferencedObjectExpiryEntry>,
    bytes: usize,
    /// Whether a task is running that removes old answers.
    is_swept: bool,
}

impl ReferencedObjectCacheState {
    /// Removes answers that are too old, and the oldest ones while the cache is too large.
    fn remove_old(&mut self, now: Instant) {
        while let Some(oldest) = self.kept.front() {
            let is_old = now.saturating_duration_since(oldest.asked) > ANSWER_LIFETIME;
            if !is_old && self.bytes <= MAX_CACHED_BYTES {
                break;
            }
            let Some(ReferencedObjectExpiryEntry { slot, asked, bytes }) = self.kept.pop_front()
            else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(bytes);
            let mut last = slot.last.lock();
            if last.as_ref().is_some_and(|answer| answer.asked == asked) {
                *last = None;
            }
        }
    }

    /// Removes old answers, and slots that no run uses. Returns whether any answer is left.
    fn sweep(&mut self, now: Instant) -> bool {
        self.remove_old(now);
        self.slots.retain(|_, slot| slot.strong_count() > 0);
        self.is_swept = !self.kept.is_empty();
        self.is_swept
    }
}

/// The cache of the objects that specs name. Clones share their content.
#[derive(Default, Clone)]
pub(super) struct ReferencedObjectCache(Arc<Mutex<ReferencedObjectCacheState>>);

impl ReferencedObjectCache {
    /// About how many bytes the answers take.
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// The slot of an object, shared by the runs that need the object.
    pub(super) fn slot(&self, id: &ObjectId) -> Arc<ReferencedObjectCacheEntry> {
        let mut state = self.0.lock();
        if let Some(known) = state.slots.get(id).and_then(Weak::upgrade) {
            return known;
        }
        let slot = Arc::new(ReferencedObjectCacheEntry::default());
        state.slots.insert(id.clone(), Arc::downgrade(&slot));
        slot
    }

    /// Keeps an answer whose request was sent at `asked`, at the watch moment `since`. Must be called within the async
    /// runtime.
    pub(super) fn keep(
        &self,
        slot: &Arc<ReferencedObjectCacheEntry>,
        asked: Instant,
        since: WatchMoment,
        found: Result<ReferencedObjectReadResult, ClusterError>,
    ) -> ReferencedObjectAnswer {
        let content = found.as_ref().ok().and_then(Option::as_ref);
        let bytes = content.map_or(0, |(content, _)| content.bytes()) + BYTES_PER_ANSWER;
        let answer = ReferencedObjectAnswer { asked, since, found };
        *slot.last.lock() = Some(answer.clone());
        let mut state = self.0.lock();
        state.bytes = state.bytes.saturating_add(bytes);
        state.kept.push_back(ReferencedObjectExpiryEntry { slot: slot.clone(), asked, bytes });
        state.remove_old(Instant::now());
        let begins = !state.is_swept;
        state.is_swept = true;
        drop(state);
        if begins {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
        answer
    }
}

/// Removes old answers periodically, until the cache is empty.
async fn sweep(reads: Weak<Mutex<ReferencedObjectCacheState>>) {
    loop {
        tokio::time::sleep(ANSWER_LIFETIME).await;
        let Some(reads) = reads.upgrade() else { return };
        if !reads.lock().sweep(Instant::now()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::watcher_state::RecentObjectEvents;
    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    fn found(bytes: usize) -> Result<ReferencedObjectReadResult, ClusterError> {
        let data = BTreeMap::from([("k".to_owned(), "v".repeat(bytes))]);
        Ok(Some((ReferencedObjectContent::ConfigMap(Arc::new(data)), 7)))
    }

    #[tokio::test]
    async fn an_answer_serves_those_who_wanted_it_before_it_was_asked_for() {
        let reads = ReferencedObjectCache::default();
        let slot = reads.slot(&id("a"));
        let before = Instant::now();
        let asked = before + Duration::from_millis(1);
        reads.keep(&slot, asked, RecentObjectEvents::default().now(), found(1));
        assert!(reads.slot(&id("a")).asked_since(before).is_some());
        assert!(reads.slot(&id("a")).asked_since(asked).is_some());
        let later = asked + Duration::from_millis(1);
        assert!(reads.slot(&id("a")).asked_since(later).is_none());
        assert!(reads.slot(&id("b")).last().is_none());
    }

    #[tokio::test]
    async fn nothing_is_kept_for_longer_than_a_few_seconds_nor_beyond_its_bytes() {
        let reads = ReferencedObjectCache::default();
        let now = Instant::now();
        let moment = RecentObjectEvents::default().now();
        let small = reads.slot(&id("small"));
        reads.keep(&small, now, moment, found(1));
        let large = reads.slot(&id("large"));
        reads.keep(&large, now, moment, found(MAX_CACHED_BYTES));
        assert!(small.last().is_none() && large.last().is_none(), "the oldest go until it fits");
        reads.keep(&small, now, moment, found(1));
        assert!(reads.0.lock().sweep(now + ANSWER_LIFETIME));
        assert!(small.last().is_some());
        let over = now + ANSWER_LIFETIME + Duration::from_millis(1);
        assert!(small.last().unwrap().recent(over).is_none());
        drop(large);
        assert!(!reads.0.lock().sweep(over));
        assert!(small.last().is_none());
        let state = reads.0.lock();
        assert_eq!((state.bytes, state.slots.len()), (0, 1), "one is still wanted");
    }

    #[tokio::test]
    async fn a_failure_and_an_absence_are_never_taken_from_earlier_runs() {
        let reads = ReferencedObjectCache::default();
        let slot = reads.slot(&id("a"));
        let now = Instant::now();
        let moment = RecentObjectEvents::default().now();
        for found in [Ok(None), Err(ClusterError::NoAnswer("timed out".to_owned()))] {
            let answer = reads.keep(&slot, now, moment, found);
            assert!(answer.recent(now).is_none());
        }
    }
}
