//! A cache of parsed indexes, and the HTTP validators of fetched indexes.
//!
//! Here: one parsed index for all charts of a repository, and the validators of the index, with which windlass asks the
//! repository whether it has changed. Elsewhere: parsing an index ([`super::index`]), asking ([`super::repository`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::index::ChartIndex;
use super::repository::HttpEtagAndLastModified;

/// Bytes of indexes that stay in memory.
const MAX_INDEX_CACHE_BYTES: u64 = 128 << 20;

/// A cache of parsed indexes by the digest of their artifact.
///
/// Access to an index needs only the digest of its artifact: a user who may not read an artifact cannot know its digest.
#[derive(Debug)]
pub struct ChartIndexCache {
    cached_indexes: Mutex<CachedChartIndexes>,
    /// Bytes that may stay.
    most: u64,
}

impl Default for ChartIndexCache {
    fn default() -> Self {
        Self { cached_indexes: Mutex::default(), most: MAX_INDEX_CACHE_BYTES }
    }
}

/// The slot of an index that is loaded or being loaded.
type ChartIndexSlot = Arc<Mutex<Option<Arc<ChartIndex>>>>;

#[derive(Debug, Default)]
struct CachedChartIndexes {
    /// The slots, with the number of their last use.
    places: BTreeMap<String, (ChartIndexSlot, u64)>,
    uses: u64,
}

impl ChartIndexCache {
    /// The index of an artifact. Only one of several concurrent callers calls `load`. Blocks.
    ///
    /// # Errors
    /// The errors of `load`. The next caller tries again.
    pub fn get<E>(
        &self,
        digest: &str,
        load: impl FnOnce() -> Result<ChartIndex, E>,
    ) -> Result<Arc<ChartIndex>, E> {
        let place = self.place(digest);
        let mut held = place.lock();
        if let Some(index) = &*held {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(load()?);
        *held = Some(Arc::clone(&index));
        drop(held);
        self.tidy();
        Ok(index)
    }

    fn place(&self, digest: &str) -> ChartIndexSlot {
        let mut cached_indexes = self.cached_indexes.lock();
        cached_indexes.uses += 1;
        let uses = cached_indexes.uses;
        let (place, used) = cached_indexes.places.entry(digest.to_owned()).or_default();
        *used = uses;
        Arc::clone(place)
    }

    /// Drops the indexes that were used longest ago, until the rest fits into the limit.
    fn tidy(&self) {
        let mut cached_indexes = self.cached_indexes.lock();
        let mut held: Vec<(u64, String, u64)> = Vec::new();
        for (digest, (place, used)) in &cached_indexes.places {
            // A locked one is being read.
            let size = place.try_lock().map(|index| index.as_ref().map(|index| index.size()));
            match size {
                Some(Some(size)) => held.push((*used, digest.clone(), size)),
                Some(None) if Arc::strong_count(place) == 1 => {
                    held.push((0, digest.clone(), self.most));
                }
                Some(None) | None => {}
            }
        }
        held.sort_unstable();
        let mut total = 0_u64;
        for (_, digest, size) in held.into_iter().rev() {
            total = total.saturating_add(size);
            if total > self.most {
                cached_indexes.places.remove(&digest);
            }
        }
    }
}

/// Most repositories whose answers are remembered.
const MOST_KNOWN: usize = 10_000;

/// The HTTP validators of indexes. If they are lost, an index is downloaded once more.
#[derive(Debug, Default)]
pub struct ChartIndexEtagCache(Mutex<BTreeMap<String, CachedChartIndexEtag>>);

/// An index that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CachedChartIndexEtag {
    url: String,
    revision: String,
    validators: HttpEtagAndLastModified,
}

impl ChartIndexEtagCache {
    /// The validators for the next request. `None` if `who` did not fetch this revision from this URL.
    pub fn validators(
        &self,
        who: &str,
        url: &str,
        revision: &str,
    ) -> Option<HttpEtagAndLastModified> {
        let known = self.0.lock();
        let fetched = known.get(who).filter(|it| it.url == url && it.revision == revision)?;
        Some(fetched.validators.clone())
    }

    /// Remembers that `who` fetched a revision from a URL.
    pub fn remember(
        &self,
        who: &str,
        url: &str,
        revision: &str,
        validators: HttpEtagAndLastModified,
    ) {
        let mut known = self.0.lock();
        if known.len() >= MOST_KNOWN && !known.contains_key(who) {
            known.clear();
        }
        let url = url.to_owned();
        let revision = revision.to_owned();
        known.insert(who.to_owned(), CachedChartIndexEtag { url, revision, validators });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> ChartIndex {
        ChartIndex::parse(b"apiVersion: v1\nentries: {}").unwrap()
    }

    #[test]
    fn an_index_is_read_once_and_a_failure_is_not_kept() {
        let indexes = ChartIndexCache::default();
        assert_eq!(indexes.get("a", || Err("no")).unwrap_err(), "no");
        let first = indexes.get("a", || Ok::<_, ()>(index())).unwrap();
        let second = indexes.get("a", || Err("not asked")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn what_is_too_much_goes_and_what_was_used_last_stays() {
        let indexes = ChartIndexCache { most: 10_000, ..ChartIndexCache::default() };
        let text = format!(
            "apiVersion: v1\nentries: {{a: [{{name: a, version: 1.0.0, urls: [{}]}}]}}",
            "x".repeat(3_000)
        );
        for name in ["a", "b", "c", "d", "e"] {
            indexes.get(name, || ChartIndex::parse(text.as_bytes())).unwrap();
        }
        let held = |name: &str| indexes.get(name, || Err(())).is_ok();
        assert!(held("e") && held("d"));
        assert!(!held("a"));
    }

    #[test]
    fn what_is_known_is_of_one_url_and_one_revision() {
        let known = ChartIndexEtagCache::default();
        let validators = HttpEtagAndLastModified { etag: Some("x".to_owned()), modified: None };
        known.remember("app", "http://a/", "sha256:1", validators.clone());
        assert_eq!(known.validators("app", "http://a/", "sha256:1"), Some(validators));
        assert_eq!(known.validators("app", "http://b/", "sha256:1"), None);
        assert_eq!(known.validators("app", "http://a/", "sha256:2"), None);
        assert_eq!(known.validators("other", "http://a/", "sha256:1"), None);
    }
}
