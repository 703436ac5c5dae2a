//! The values that an automation committed last. If another writer takes one of these values back, the automation does not
//! commit it again at once.
//!
//! Only this process remembers the values. After a restart an automation commits at once, and remembers the values again.
//! Elsewhere: how long it waits (the run), its status meanwhile (`result`).

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use image::{ImageValueChange, ObjectIdentifier, UpdateResult};
use jiff::Timestamp;

/// The most values of a commit that are remembered. If another value is taken back, the next commit sets it, and it is
/// remembered then.
const MAX_REMEMBERED_VALUES: usize = 1_000;

/// The values that a commit set, each with its place as one hash. If two hashes are equal by chance, an automation only waits
/// without need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CommittedValues(Arc<[u64]>);

/// The time until which an automation does not commit the same values again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecommitPause {
    pub(super) until: Timestamp,
    pub(super) values: CommittedValues,
}

impl CommittedValues {
    /// The values that an update sets.
    pub(super) fn of(result: &UpdateResult) -> Self {
        Self(value_hashes(result, MAX_REMEMBERED_VALUES).into_iter().collect())
    }

    /// The approximate memory of the values in bytes.
    pub(super) fn size(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Whether an update sets one of the values at its place once more.
    fn has_any_of(&self, result: &UpdateResult) -> bool {
        let hashes = value_hashes(result, usize::MAX);
        self.0.iter().any(|known| hashes.contains(known))
    }
}

impl RecommitPause {
    /// Whether an update has to wait, because another writer took back its values after a commit.
    pub(super) fn applies_to(&self, result: &UpdateResult) -> bool {
        self.values.has_any_of(result)
    }
}

fn value_hashes(result: &UpdateResult, most: usize) -> BTreeSet<u64> {
    let mut hashes = BTreeSet::new();
    for (file, objects) in result.files() {
        for (object, changes) in objects {
            for change in changes {
                if hashes.len() >= most {
                    return hashes;
                }
                hashes.insert(value_hash(file, object, change));
            }
        }
    }
    hashes
}

/// The former value is not part of the hash.
fn value_hash(file: &str, object: &ObjectIdentifier, change: &ImageValueChange) -> u64 {
    let ObjectIdentifier { api_version, kind, name, namespace } = object;
    let ImageValueChange { new_value, setter, .. } = change;
    let mut hasher = DefaultHasher::new();
    for part in [api_version, kind, name, namespace, setter, new_value] {
        part.hash(&mut hasher);
    }
    file.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An update of values, each with its file and what stood there.
    fn update(values: &[[&str; 3]]) -> UpdateResult {
        let mut result = UpdateResult::default();
        for [file, old_value, new_value] in values {
            let [old_value, new_value] = [old_value, new_value].map(|it| (*it).to_owned());
            let setter = "apps:web".to_owned();
            let change = ImageValueChange { old_value, new_value, setter };
            result.add(&(*file).into(), &Arc::new(ObjectIdentifier::default()), change);
        }
        result
    }

    #[test]
    fn only_a_committed_value_that_was_taken_back_has_to_wait() {
        let committed = update(&[["a.yaml", "1", "2"], ["b.yaml", "1", "2"]]);
        let until = Timestamp::UNIX_EPOCH;
        let pause = RecommitPause { until, values: CommittedValues::of(&committed) };
        assert!(pause.applies_to(&committed), "it was undone");
        assert!(pause.applies_to(&update(&[["b.yaml", "0", "2"], ["c.yaml", "1", "2"]])));
        assert!(!pause.applies_to(&update(&[["c.yaml", "1", "2"]])), "a marker that was mended");
        assert!(!pause.applies_to(&update(&[["a.yaml", "2", "3"]])), "another value");
        assert!(!pause.applies_to(&update(&[])));
    }

    #[test]
    fn not_more_than_a_number_of_values_is_remembered() {
        let files: Vec<String> = (0..2 * MAX_REMEMBERED_VALUES).map(|at| at.to_string()).collect();
        let values: Vec<[&str; 3]> = files.iter().map(|file| [file.as_str(), "1", "2"]).collect();
        let committed = CommittedValues::of(&update(&values));
        assert_eq!(committed.0.len(), MAX_REMEMBERED_VALUES);
        assert!(committed.has_any_of(&update(&values)), "a whole commit was undone");
    }
}
