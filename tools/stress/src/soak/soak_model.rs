//! The desired state: the Kustomizations, and the objects of each.
//!
//! `super::soak_environment` makes the cluster so, and `super::operations` chooses the changes.

use std::collections::{BTreeMap, BTreeSet};

/// The number of Kustomizations that others depend on. They are the first ones, and are never deleted.
pub(super) const ROOT_KUSTOMIZATION_COUNT: usize = 10;

/// How many objects each Kustomization has at first.
pub(super) const OBJECTS_PER_KUSTOMIZATION: usize = 4;

/// Whether a Kustomization exists and works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KustomizationState {
    /// It exists and works.
    Active,
    /// It exists and is suspended.
    Suspended,
    /// It was deleted with its objects.
    Deleted,
}

/// One Kustomization and its folder in the repository.
#[derive(Debug, Clone)]
pub(super) struct KustomizationFolder {
    /// The state of the Kustomization.
    pub(super) state: KustomizationState,
    /// The Kustomization that it depends on.
    pub(super) depends_on: Option<String>,
    /// The names of its ConfigMaps, and the values in the last commit.
    pub(super) objects: BTreeMap<String, String>,
}

/// The desired state of the whole cluster.
#[derive(Debug, Clone)]
pub(super) struct SoakModel {
    /// The folders by the names of their Kustomizations.
    pub(super) folders: BTreeMap<String, KustomizationFolder>,
    /// Objects that windlass was allowed to delete at some time.
    pub(super) removed: BTreeSet<String>,
    /// A counter, so that no value or name is used twice.
    next: usize,
}

impl SoakModel {
    /// A model of so many Kustomizations. Each depends on one of the first ones.
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

    /// A model of so many Kustomizations without dependencies. None of them waits for another one, which its status would report
    /// as not ready.
    pub(super) fn independent(count: usize) -> Self {
        let mut model = Self::new(count);
        model.folders.values_mut().for_each(|folder| folder.depends_on = None);
        model
    }

    fn count(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// Adds an object to a folder, and returns the object's name.
    pub(super) fn add(&mut self, folder: &str) -> String {
        let number = self.count();
        let object = format!("{folder}-{number}");
        if let Some(folder) = self.folders.get_mut(folder) {
            folder.objects.insert(object.clone(), "first".to_owned());
        }
        object
    }

    /// Gives an object a new value that it never had before.
    pub(super) fn change(&mut self, folder: &str, object: &str) {
        let value = format!("v{}", self.count());
        if let Some(folder) = self.folders.get_mut(folder) {
            folder.objects.insert(object.to_owned(), value);
        }
    }

    /// Removes an object from a folder.
    pub(super) fn remove(&mut self, folder: &str, object: &str) {
        if let Some(folder) = self.folders.get_mut(folder) {
            folder.objects.remove(object);
            self.removed.insert(object.to_owned());
        }
    }

    /// Changes the state of a Kustomization.
    pub(super) fn put(&mut self, name: &str, state: KustomizationState) {
        let Some(folder) = self.folders.get_mut(name) else { return };
        folder.state = state;
        if state == KustomizationState::Deleted {
            self.removed.extend(folder.objects.keys().cloned());
        }
    }

    /// The names of the Kustomizations in one of these states.
    pub(super) fn those(&self, states: &[KustomizationState]) -> Vec<String> {
        let those = self.folders.iter().filter(|(_, folder)| states.contains(&folder.state));
        those.map(|(name, _)| name.clone()).collect()
    }

    /// Ends every suspension, and returns the names of the resumed Kustomizations.
    pub(super) fn resume_all(&mut self) -> Vec<String> {
        let those = self.those(&[KustomizationState::Suspended]);
        for name in &those {
            self.put(name, KustomizationState::Active);
        }
        those
    }

    /// The objects that should be live. Each has its owner and its value.
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
