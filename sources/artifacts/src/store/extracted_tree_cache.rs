//! A cache of extracted trees, which callers share.
//!
//! Here: one extraction for all concurrent callers with the same tree, and a bounded cache of recent ones.
//! Elsewhere: extracting ([`super::ArtifactStore::load`]).

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tree::MemoryTree;

use crate::archive::ExtractOptions;

/// The digest of an archive, and how it was extracted.
pub(super) type ExtractedTreeKey = (String, ExtractOptions);

/// The memory of a tree entry besides its path and body.
const ENTRY_BYTES: u64 = 128;

/// Extracted trees, by archive and options.
///
/// A tree in use is always shared. An unused tree stays for a short time, as long as it is among the most recent ones
/// that fit into the budget together. It does not stay longer, because after a new revision the tree of the old one is
/// not needed again.
#[derive(Debug)]
pub(super) struct ExtractedTreeCache {
    budget: u64,
    /// How long an unused tree stays.
    patience: Duration,
    places: Mutex<BTreeMap<ExtractedTreeKey, Arc<ExtractedTreeSlot>>>,
    /// Oldest use first.
    recent: Mutex<Vec<RecentExtractedTree>>,
}

/// A recent tree that stays in memory, even if it is not in use.
#[derive(Debug)]
struct RecentExtractedTree {
    key: ExtractedTreeKey,
    tree: Arc<MemoryTree>,
    used: Instant,
}

/// One tree. The lock is held while the tree is extracted, so other callers wait for it instead of extracting it again.
#[derive(Debug, Default)]
struct ExtractedTreeSlot {
    tree: Mutex<Weak<MemoryTree>>,
}

impl ExtractedTreeCache {
    pub(super) fn new(budget: u64, patience: Duration) -> Self {
        Self { budget, patience, places: Mutex::default(), recent: Mutex::default() }
    }

    pub(super) fn get_or_load<E>(
        &self,
        key: ExtractedTreeKey,
        load: impl FnOnce() -> Result<MemoryTree, E>,
    ) -> Result<Arc<MemoryTree>, E> {
        let place = {
            let mut places = self.places.lock();
            places.retain(|_, place| Arc::strong_count(place) > 1 || is_alive(place));
            Arc::clone(places.entry(key.clone()).or_default())
        };
        let tree = {
            let mut shared = place.tree.lock();
            match shared.upgrade() {
                Some(tree) => tree,
                None => {
                    let tree = Arc::new(load()?);
                    *shared = Arc::downgrade(&tree);
                    tree
                }
            }
        };
        self.use_now(key, &tree);
        Ok(tree)
    }

    /// The bytes of the recent trees. Others that are in use do not count.
    pub(super) fn bytes(&self) -> u64 {
        self.recent.lock().iter().map(|it| cost(&it.tree)).sum()
    }

    /// Makes a tree the most recent one, and drops the oldest trees that no longer fit into the budget.
    fn use_now(&self, key: ExtractedTreeKey, tree: &Arc<MemoryTree>) {
        let now = Instant::now();
        let mut recent = self.recent.lock();
        recent.retain(|it| it.key != key && now.duration_since(it.used) < self.patience);
        if cost(tree) <= self.budget {
            recent.push(RecentExtractedTree { key, tree: Arc::clone(tree), used: now });
        }
        let mut total: u64 = recent.iter().map(|it| cost(&it.tree)).sum();
        while total > self.budget && !recent.is_empty() {
            total -= cost(&recent.remove(0).tree);
        }
    }
}

fn cost(tree: &MemoryTree) -> u64 {
    tree.bytes().saturating_add(ENTRY_BYTES.saturating_mul(tree.len() as u64 + 1))
}

fn is_alive(place: &ExtractedTreeSlot) -> bool {
    place.tree.lock().strong_count() > 0
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible};

    use super::*;

    /// Longer than any of these tests.
    const PATIENCE: Duration = Duration::from_secs(3600);

    fn key(digest: &str) -> ExtractedTreeKey {
        (digest.to_owned(), ExtractOptions::default())
    }

    /// Loads through the cache, and returns whether it had to be extracted.
    fn load(cache: &ExtractedTreeCache, digest: &str, bytes: usize) -> (Arc<MemoryTree>, bool) {
        let loaded = Cell::new(false);
        let tree = cache.get_or_load(key(digest), || {
            loaded.set(true);
            let files = [("f", vec![0; bytes])];
            Ok::<_, Infallible>(MemoryTree::from_files(files).expect("a small tree"))
        });
        let Ok(tree) = tree;
        (tree, loaded.get())
    }

    #[test]
    fn the_oldest_trees_go_when_the_budget_is_used_up() {
        let cache = ExtractedTreeCache::new(3000, PATIENCE);
        assert!(load(&cache, "a", 1000).1);
        assert!(load(&cache, "b", 1000).1);
        assert!(!load(&cache, "a", 1000).1, "both fit");
        assert!(load(&cache, "c", 1000).1);
        assert!(!load(&cache, "a", 1000).1, "it was used after b");
        assert!(load(&cache, "b", 1000).1, "it was the oldest");
    }

    #[test]
    fn a_tree_that_was_unused_for_long_goes_with_the_next_one() {
        let cache = ExtractedTreeCache::new(3000, Duration::ZERO);
        assert!(load(&cache, "a", 1000).1);
        assert!(load(&cache, "b", 1000).1);
        assert!(load(&cache, "a", 1000).1, "it was not used since");
    }

    #[test]
    fn a_tree_in_use_is_shared_even_when_it_does_not_fit() {
        let cache = ExtractedTreeCache::new(10, PATIENCE);
        let (held, _) = load(&cache, "big", 1000);
        let (again, was_loaded) = load(&cache, "big", 1000);
        assert!(!was_loaded);
        assert!(Arc::ptr_eq(&held, &again));
        drop((held, again));
        assert!(load(&cache, "big", 1000).1, "nobody held it any more");
    }

    #[test]
    fn trees_that_are_not_held_leave_no_trace() {
        let cache = ExtractedTreeCache::new(0, PATIENCE);
        for number in 0..100 {
            load(&cache, &number.to_string(), 10);
        }
        assert!(cache.places.lock().len() <= 1);
    }

    #[test]
    fn a_failed_load_is_tried_again() {
        let cache = ExtractedTreeCache::new(1000, PATIENCE);
        let failed = cache.get_or_load(key("a"), || Err::<MemoryTree, _>("broken"));
        assert_eq!(failed.err(), Some("broken"));
        assert!(load(&cache, "a", 1).1);
    }

    #[test]
    fn everybody_who_asks_at_once_gets_the_same_tree() {
        let cache = ExtractedTreeCache::new(0, PATIENCE);
        let extracted = Mutex::new(0);
        let trees: Vec<Arc<MemoryTree>> = std::thread::scope(|scope| {
            let ask = || {
                let tree = cache.get_or_load(key("a"), || {
                    *extracted.lock() += 1;
                    Ok::<_, Infallible>(MemoryTree::from_files([("f", "x")]).expect("a small tree"))
                });
                let Ok(tree) = tree;
                tree
            };
            let held = ask();
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            let trees = asked.into_iter().map(|thread| thread.join().expect("no panic"));
            trees.chain([held]).collect()
        });
        assert_eq!(*extracted.lock(), 1);
        assert!(trees.iter().all(|tree| Arc::ptr_eq(tree, &trees[0])));
    }
}
