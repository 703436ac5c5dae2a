//! ConfigMaps and Secrets that kustomize generates. Their names end in a hash of their content, so a new content gets a
//! new name.
//!
//! Here: which objects are former versions of a generated object. Elsewhere: the hash (engine `kustomize`,
//! `name_hash.rs`), and which objects may be deleted ([`crate::deletion_budget`]).

use std::collections::BTreeSet;

use objects::ObjectId;

/// The length of the hash in a name, in characters.
const HASH_LENGTH: usize = 10;

/// The characters of the hash. They are hexadecimal digits, some of which kustomize replaces.
const HASH_CHARACTERS: &str = "2456789bcdfghkmt";

/// The generated objects of a build, identified by their names without the hash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GeneratedConfigMapsAndSecrets(BTreeSet<ObjectId>);

impl GeneratedConfigMapsAndSecrets {
    /// Selects the generated objects among these ids by their names. An object counts, too, if its author gave it a
    /// name of this form, because the build does not show the difference.
    pub fn among<'m>(manifests: impl IntoIterator<Item = &'m ObjectId>) -> Self {
        Self(manifests.into_iter().filter_map(without_hash).collect())
    }

    /// Whether an object is a former version of a generated object: the build has one of the same name with another
    /// hash.
    pub fn has_newer(&self, id: &ObjectId) -> bool {
        without_hash(id).is_some_and(|it| self.0.contains(&it))
    }
}

/// The id of a generated object, with the hash removed from its name. `None` if the object does not have the name or
/// kind of a generated one.
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
        let generated = GeneratedConfigMapsAndSecrets::among(&manifests);
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
