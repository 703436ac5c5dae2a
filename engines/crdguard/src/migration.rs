//! What has to be done before a version can be dropped that objects may be stored in.
//!
//! All objects are written back, which stores them in the version of storage, and `status.storedVersions` is trimmed.
//! Elsewhere: doing it (the program).

use serde_json::Value;

use crate::definition::{CrdDefinition, CrdDefinitionError};

/// How objects get out of the versions that are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVersionMigration {
    /// The version that they are stored in then; it is served now.
    pub storage: String,
    /// Where the live definition has that version and the one of storage, if they are two.
    pub moves: Option<StorageVersionMove>,
    /// The live definition.
    pub definition: CrdDefinition,
    /// The versions that are dropped.
    pub dropped: Vec<String>,
}

/// The version of storage becomes another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageVersionMove {
    /// Index of the version that is that of storage.
    pub from: usize,
    /// Index of the version that becomes it.
    pub to: usize,
}

impl StoredVersionMigration {
    /// What a change from a live definition to a manifest needs; none if it drops no version that may be stored, or if
    /// there is no way to it.
    ///
    /// # Errors
    /// When one of them cannot be judged.
    pub fn of(old: &Value, new: &Value) -> Result<Option<Self>, CrdDefinitionError> {
        let old = CrdDefinition::read(old)?;
        let new = CrdDefinition::read(new)?;
        Ok(Self::between(&old, &new))
    }

    pub(crate) fn between(old: &CrdDefinition, new: &CrdDefinition) -> Option<Self> {
        let dropped = old.stored.iter().filter(|it| new.version(it).is_none());
        let dropped: Vec<String> = dropped.cloned().collect();
        // Where the live version of storage stays, nothing has to be moved before.
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
