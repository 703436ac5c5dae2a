//! What runs read of the Secrets, ConfigMaps and ServiceAccounts that specs name, kept for a few seconds: the runs that one push
//! wakes read an object that all of them name once or twice, and not each for itself.
//!
//! An answer is shared in two cases. Its request was sent after a run wanted it, so it is as new as one of its own. Or a watch
//! that is live has seen no other version than that of the answer; what a watch reports late, it reports also to the runs that
//! read it. That an object is missing is never taken from here in the second case.
//!
//! There is one of these for each connection to a cluster, which reads as one identity: no answer reaches a run that reads as
//! another. Elsewhere: which versions watches saw (`references.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use objects::ObjectId;
use parking_lot::Mutex;

use super::watcher_state::WatchMoment;
use crate::ClusterError;

/// How long an answer is kept.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);

/// How many bytes of content are kept. Of more, the oldest answers go.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// What an answer takes besides its content.
const BYTES_PER_ANSWER: usize = 512;

/// The content of an object that a spec names.
#[derive(Clone)]
pub(crate) enum ReferenceContent {
    /// Of a Secret.
    Secret(Arc<BTreeMap<String, Vec<u8>>>),
    /// Of a ConfigMap.
    ConfigMap(Arc<BTreeMap<String, String>>),
    /// The names of the image pull secrets of a ServiceAccount.
    PullSecrets(Arc<Vec<String>>),
}

impl ReferenceContent {
    fn bytes(&self) -> usize {
        match self {
            Self::Secret(data) => data.iter().map(|(key, value)| key.len() + value.len()).sum(),
            Self::ConfigMap(data) => data.iter().map(|(key, value)| key.len() + value.len()).sum(),
            Self::PullSecrets(names) => names.iter().map(String::len).sum(),
        }
    }
}

/// The content and the version of an object; `None` if the API server says that it does not exist.
pub(crate) type FoundReference = Option<(ReferenceContent, u64)>;

/// An answer of the API server.
#[derive(Clone)]
pub(super) struct ReferenceAnswer {
    /// When it was asked for.
    asked: Instant,
    /// The moment of the watches before that.
    pub(super) since: WatchMoment,
    pub(super) found: Result<FoundReference, ClusterError>,
}

impl ReferenceAnswer {
    /// The content and the version, if the object was found not long ago.
    pub(super) fn recent(&self, now: Instant) -> Option<(&ReferenceContent, u64)> {
        if now.saturating_duration_since(self.asked) > ANSWER_LIFETIME {
            return None;
        }
        let (content, version) = self.found.as_ref().ok()?.as_ref()?;
        Some((content, *version))
    }
}

/// One object.
#[derive(Default)]
pub(super) struct ReferenceSlot {
    /// One run asks, and those that want the same wait for its answer, as they would wait for one of their own.
    pub(super) asking: tokio::sync::Mutex<()>,
    last: Mutex<Option<ReferenceAnswer>>,
}

impl ReferenceSlot {
    /// The last answer.
    pub(super) fn last(&self) -> Option<ReferenceAnswer> {
        self.last.lock().clone()
    }

    /// The last answer, if it was asked for at a time or later.
    pub(super) fn asked_since(&self, wanted: Instant) -> Option<ReferenceAnswer> {
        self.last().filter(|answer| answer.asked >= wanted)
    }
}

/// A slot with an answer, in the order in which they were asked for.
struct KeptAnswer {
    slot: Arc<ReferenceSlot>,
    asked: Instant,
    bytes: usize,
}

#[derive(Default)]
struct ReferenceReadsState {
    slots: BTreeMap<ObjectId, Weak<ReferenceSlot>>,
    kept: VecDeque<KeptAnswer>,
    bytes: usize,
    /// Whether a task removes what is too old.
    is_swept: bool,
}

impl ReferenceReadsState {
    /// Removes the answers that are too old at a time, or too many.
    fn remove_old(&mut self, now: Instant) {
        while let Some(oldest) = self.kept.front() {
            let is_old = now.saturating_duration_since(oldest.asked) > ANSWER_LIFETIME;
            if !is_old && self.bytes <= MAX_CACHED_BYTES {
                break;
            }
            let Some(KeptAnswer { slot, asked, bytes }) = self.kept.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(bytes);
            let mut last = slot.last.lock();
            if last.as_ref().is_some_and(|answer| answer.asked == asked) {
                *last = None;
            }
        }
    }

    /// As [`Self::remove_old`], and forgets objects that no run wants. Returns whether anything is left.
    fn sweep(&mut self, now: Instant) -> bool {
        self.remove_old(now);
        self.slots.retain(|_, slot| slot.strong_count() > 0);
        self.is_swept = !self.kept.is_empty();
        self.is_swept
    }
}

/// See the top of the file. Clones share everything.
#[derive(Default, Clone)]
pub(super) struct ReferenceReads(Arc<Mutex<ReferenceReadsState>>);

impl ReferenceReads {
    /// The slot of an object.
    pub(super) fn slot(&self, id: &ObjectId) -> Arc<ReferenceSlot> {
        let mut state = self.0.lock();
        if let Some(known) = state.slots.get(id).and_then(Weak::upgrade) {
            return known;
        }
        let slot = Arc::new(ReferenceSlot::default());
        state.slots.insert(id.clone(), Arc::downgrade(&slot));
        slot
    }

    /// Keeps an answer that was asked for at a time and at a moment of the watches. Call it within the runtime.
    pub(super) fn keep(
        &self,
        slot: &Arc<ReferenceSlot>,
        asked: Instant,
        since: WatchMoment,
        found: Result<FoundReference, ClusterError>,
    ) -> ReferenceAnswer {
        let content = found.as_ref().ok().and_then(Option::as_ref);
        let bytes = content.map_or(0, |(content, _)| content.bytes()) + BYTES_PER_ANSWER;
        let answer = ReferenceAnswer { asked, since, found };
        *slot.last.lock() = Some(answer.clone());
        let mut state = self.0.lock();
        state.bytes = state.bytes.saturating_add(bytes);
        state.kept.push_back(KeptAnswer { slot: slot.clone(), asked, bytes });
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

/// Removes answers when they are too old, until there are none.
async fn sweep(reads: Weak<Mutex<ReferenceReadsState>>) {
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

    fn found(bytes: usize) -> Result<FoundReference, ClusterError> {
        let data = BTreeMap::from([("k".to_owned(), "v".repeat(bytes))]);
        Ok(Some((ReferenceContent::ConfigMap(Arc::new(data)), 7)))
    }

    #[tokio::test]
    async fn an_answer_serves_those_who_wanted_it_before_it_was_asked_for() {
        let reads = ReferenceReads::default();
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
        let reads = ReferenceReads::default();
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
        let reads = ReferenceReads::default();
        let slot = reads.slot(&id("a"));
        let now = Instant::now();
        let moment = RecentObjectEvents::default().now();
        for found in [Ok(None), Err(ClusterError::NoAnswer("timed out".to_owned()))] {
            let answer = reads.keep(&slot, now, moment, found);
            assert!(answer.recent(now).is_none());
        }
    }
}
