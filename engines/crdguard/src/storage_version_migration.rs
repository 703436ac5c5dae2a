//! The steps before a version may be dropped in which objects may be stored.
//!
//! All objects are written back, so that they are stored in the storage version. Then `status.storedVersions` is
//! reduced. Elsewhere: carrying out these steps (the program).

use serde_json::Value;

use crate::crd_definition::{CrdDefinition, CrdDefinitionError};

/// How objects are moved out of the versions that are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVersionMigration {
    /// The version in which objects are stored after the migration. The live definition serves it.
    pub storage: String,
    /// The change of the storage version in the live definition. `None` if the storage version stays the same.
    pub moves: Option<StorageVersionMove>,
    /// The live definition.
    pub definition: CrdDefinition,
    /// The versions that are dropped.
    pub dropped: Vec<String>,
}

/// A change of the storage version in a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageVersionMove {
    /// The index of the present storage version.
    pub from: usize,
    /// The index of the new storage version.
    pub to: usize,
}

impl StoredVersionMigration {
    /// The migration that a change from a live definition to a manifest needs. `None` if the change drops no version in
    /// which objects may be stored, or if no migration is possible.
    ///
    /// # Errors
    /// One of the two definitions cannot be judged.
    pub fn of(old: &Value, new: &Value) -> Result<Option<Self>, CrdDefinitionError> {
        let old = CrdDefinition::read(old)?;
        let new = CrdDefinition::read(new)?;
        Ok(Self::between(&old, &new))
    }

    pub(crate) fn between(old: &CrdDefinition, new: &CrdDefinition) -> Option<Self> {
        let dropped = old.stored.iter().filter(|it| new.version(it).is_none());
        let dropped: Vec<String> = dropped.cloned().collect();
        // If the new definition keeps the live storage version, the storage version need not change.
        let stays = old.storage().filter(|it| new.version(&it.name).is_some());
        let storage = stays.or_else(|| new.storage())?.name.clone();
        if dropped.is_empty() || !old.serves(&storage) {
            return None;
        }
        let at = |name: &str| old.versions.iter().position(|it| it.name == name);
        let from = old.versions.iter().position(|it| it.is_storage)?;
        let to = at(&storage)?;
        let moves = (from != to).then_some(StorageVersionMove { from, to });
        Some(Self { storage, moves, definition: old.clone(), dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(versions: &[&str], storage: &str, stored: &[&str]) -> Value {
        let versions = versions
            .iter()
            .map(|it| json!({"name": it, "served": true, "storage": *it == storage}));
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.acme.io"}, "status": {"storedVersions": stored},
            "spec": {"group": "acme.io", "versions": versions.collect::<Vec<_>>(),
                "names": {"kind": "Widget", "plural": "widgets"}}})
    }

    #[test]
    fn objects_move_to_a_version_that_is_there_before_and_after() {
        let of = |old: &Value, new: &Value| {
            let found = StoredVersionMigration::of(old, new).unwrap();
            found.map(|it| (it.storage, it.moves.map(|it| (it.from, it.to)), it.dropped.join(" ")))
        };
        let both = definition(&["v1", "v1beta1"], "v1", &["v1beta1", "v1"]);
        let one = definition(&["v1"], "v1", &[]);
        assert_eq!(of(&both, &one), Some(("v1".to_owned(), None, "v1beta1".to_owned())));
        let before = definition(&["v1beta1", "v1"], "v1beta1", &["v1beta1"]);
        let moved = Some(("v1".to_owned(), Some((0, 1)), "v1beta1".to_owned()));
        assert_eq!(of(&before, &one), moved);
        let other = definition(&["v2"], "v2", &[]);
        assert_eq!(of(&both, &other), None);
        assert_eq!(of(&one, &both), None);
    }
}
