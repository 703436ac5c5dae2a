//! ConfigMaps and Secrets that kustomize generates: when what they hold changes, so does the hash in their names.
//!
//! Here: which objects are former versions of a generated one. Elsewhere: the hash (engine `kustomize`, `name_hash.rs`), what
//! may be deleted ([`crate::deletion_budget`]).

use std::collections::BTreeSet;

use objects::ObjectId;

/// How long the hash in a name is.
const HASH_LENGTH: usize = 10;

/// The characters of the hash: hexadecimal digits, of which kustomize replaces some.
const HASH_CHARACTERS: &str = "2456789bcdfghkmt";

/// The generated objects of a build, by their names without the hash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GeneratedObjects(BTreeSet<ObjectId>);

impl GeneratedObjects {
    /// The generated objects among others. An object that was named like one by hand counts, too: a build does not tell.
    pub fn among<'m>(manifests: impl IntoIterator<Item = &'m ObjectId>) -> Self {
        Self(manifests.into_iter().filter_map(without_hash).collect())
    }

    /// Whether the build has a newer version of an object, which is not in the build itself.
    pub fn has_newer(&self, id: &ObjectId) -> bool {
        without_hash(id).is_some_and(|it| self.0.contains(&it))
    }
}

/// The id of a generated object without the hash; `None` if the object is not a generated one.
fn without_hash(id: &ObjectId) -> Option<ObjectId> {
    let is_generated_kind =
        id.group.is_empty() && matches!(id.kind.as_str(), "ConfigMap" | "Secret");
    let (name, hash) = id.name.rsplit_once('-').filter(|_| is_generated_kind)?;
    let is_hash =
        hash.len() == HASH_LENGTH && hash.chars().all(|digit| HASH_CHARACTERS.contains(digit));
    (is_hash && !name.is_empty()).then(|| ObjectId { name: name.to_owned(), ..id.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", kind)
    }

    #[test]
    fn an_object_has_a_newer_version_if_only_the_hash_in_its_name_differs() {
        let manifests = [id("ConfigMap", "settings-2c5f7g9hkm"), id("ConfigMap", "kept")];
        let generated = GeneratedObjects::among(&manifests);
        assert!(generated.has_newer(&id("ConfigMap", "settings-bcdfgh4567")));
        for (kind, name) in [
            ("Secret", "settings-bcdfgh4567"),
            ("ConfigMap", "other-bcdfgh4567"),
            ("ConfigMap", "settings"),
            ("ConfigMap", "settings-bcdfgh456"),
            ("ConfigMap", "settings-production"),
            ("ConfigMap", "-bcdfgh4567"),
            ("ConfigMap", "kept"),
        ] {
            assert!(!generated.has_newer(&id(kind, name)), "{kind}/{name}");
        }
        let elsewhere = ObjectId::new("other", "settings-bcdfgh4567", "", "ConfigMap");
        assert!(!generated.has_newer(&elsewhere));
    }
}
