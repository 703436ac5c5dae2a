//! What should be: which Kustomizations there are, and which objects each has.
//!
//! Elsewhere: making it so (`super::soak_environment`), changing it (`super::operations`).

use std::collections::{BTreeMap, BTreeSet};

/// This many Kustomizations, the first ones, are what others depend on; they are never deleted.
pub(super) const ROOT_KUSTOMIZATION_COUNT: usize = 10;

/// How many objects each Kustomization begins with.
const OBJECTS_PER_KUSTOMIZATION: usize = 4;

/// Whether a Kustomization is there and works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KustomizationState {
    /// It is there.
    Active,
    /// It is there, and does nothing.
    Suspended,
    /// It is not there, and neither is what it had.
    Deleted,
}

/// One Kustomization and its folder in the repository.
#[derive(Debug, Clone)]
pub(super) struct KustomizationFolder {
    /// Whether it is there.
    pub(super) state: KustomizationState,
    /// What it depends on.
    pub(super) depends_on: Option<String>,
    /// Names of its ConfigMaps and their value, as committed.
    pub(super) objects: BTreeMap<String, String>,
}

/// Everything that should be.
#[derive(Debug, Clone)]
pub(super) struct SoakModel {
    /// By the name of the Kustomization.
    pub(super) folders: BTreeMap<String, KustomizationFolder>,
    /// Objects that windlass had reason to delete at some time.
    pub(super) removed: BTreeSet<String>,
    /// Counts values and names, so that none comes twice.
    next: usize,
}

impl SoakModel {
    /// So many Kustomizations, each of which depends on one of the first ones.
    pub(super) fn new(count: usize) -> Self {
        let mut model = Self { folders: BTreeMap::new(), removed: BTreeSet::new(), next: 0 };
        for number in 0..count {
            let name = format!("k{number:03}");
            let depends_on = (number >= ROOT_KUSTOMIZATION_COUNT)
                .then(|| format!("k{:03}", number % ROOT_KUSTOMIZATION_COUNT));
            let objects = BTreeMap::new();
            model.folders.insert(
                name.clone(),
                KustomizationFolder { state: KustomizationState::Active, depends_on, objects },
            );
            for _ in 0..OBJECTS_PER_KUSTOMIZATION {
                model.add(&name);
            }
        }
        model
    }

    fn count(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// Adds an object to a folder; returns its name.
    pub(super) fn add(&mut self, folder: &str) -> String {
        let number = self.count();
        let object = format!("{folder}-{number}");
        if let Some(folder) = self.folders.get_mut(folder) {
            folder.objects.insert(object.clone(), "first".to_owned());
        }
        object
    }

    /// Gives an object a value that it never had.
    pub(super) fn change(&mut self, folder: &str, object: &str) {
        let value = format!("v{}", self.count());
        if let Some(folder) = self.folders.get_mut(folder) {
            folder.objects.insert(object.to_owned(), value);
        }
    }

    /// Takes an object out of a folder.
    pub(super) fn remove(&mut self, folder: &str, object: &str) {
        if let Some(folder) = self.folders.get_mut(folder) {
            folder.objects.remove(object);
            self.removed.insert(object.to_owned());
        }
    }

    /// Puts a Kustomization into a state.
    pub(super) fn put(&mut self, name: &str, state: KustomizationState) {
        let Some(folder) = self.folders.get_mut(name) else { return };
        folder.state = state;
        if state == KustomizationState::Deleted {
            self.removed.extend(folder.objects.keys().cloned());
        }
    }

    /// Names of the Kustomizations that are in one of these states.
    pub(super) fn those(&self, states: &[KustomizationState]) -> Vec<String> {
        let those = self.folders.iter().filter(|(_, folder)| states.contains(&folder.state));
        those.map(|(name, _)| name.clone()).collect()
    }

    /// Ends every suspension; returns whose.
    pub(super) fn resume_all(&mut self) -> Vec<String> {
        let those = self.those(&[KustomizationState::Suspended]);
        for name in &those {
            self.put(name, KustomizationState::Active);
        }
        those
    }

    /// What should be live: every object with its owner and value.
    pub(super) fn objects(&self) -> BTreeMap<String, (String, String)> {
        let there =
            self.folders.iter().filter(|(_, folder)| folder.state != KustomizationState::Deleted);
        let all = there.flat_map(|(name, folder)| {
            folder
                .objects
                .iter()
                .map(move |(object, value)| (object.clone(), (name.clone(), value.clone())))
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_should_be_live_follows_what_was_done() {
        let mut model = SoakModel::new(12);
        assert_eq!(model.objects().len(), 12 * OBJECTS_PER_KUSTOMIZATION);
        assert_eq!(model.folders["k011"].depends_on.as_deref(), Some("k001"));
        let added = model.add("k003");
        model.change("k003", &added);
        assert_eq!(model.objects()[&added].0, "k003");
        assert_ne!(model.objects()[&added].1, "first");
        model.remove("k003", &added);
        assert!(!model.objects().contains_key(&added) && model.removed.contains(&added));
        model.put("k011", KustomizationState::Deleted);
        assert_eq!(model.objects().len(), 11 * OBJECTS_PER_KUSTOMIZATION);
        model.put("k002", KustomizationState::Suspended);
        assert_eq!(model.resume_all(), ["k002"]);
        assert_eq!(model.those(&[KustomizationState::Suspended]), [""; 0]);
    }
}
