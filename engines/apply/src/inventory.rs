//! The objects that a Kustomization has applied, as its status lists them.
//!
//! Here: a set of object ids, each with an API version. Elsewhere: the text form of an id (`objects::ObjectId`), and
//! when the inventory grows and shrinks ([`crate::plan`]).

use std::collections::BTreeMap;

use objects::{Object, ObjectId};

/// The ids of applied objects, each with the API version in which the object was applied.
///
/// The API version is not part of an object's identity. An object that is applied in a newer version stays the same
/// entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectInventory(BTreeMap<ObjectId, String>);

impl ObjectInventory {
    /// Reads `status.inventory.entries` (`id`, `v`).
    ///
    /// The second value lists the ids that cannot be read. While there are any, the caller must not write the inventory
    /// back, because their objects would be forgotten.
    pub fn from_entries(entries: &[(String, String)]) -> (Self, Vec<String>) {
        let mut known = Self::default();
        let mut unreadable = Vec::new();
        for (text, version) in entries {
            match text.parse::<ObjectId>() {
                Ok(id) => known.add(id, version),
                Err(_) => unreadable.push(text.clone()),
            }
        }
        (known, unreadable)
    }

    /// The entries as the status stores them, in the order in which objects are applied, as Flux writes them.
    pub fn entries(&self) -> Vec<(String, String)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by(|a, b| crate::apply_order::compare(a.0, b.0));
        all.into_iter().map(|(id, version)| (id.to_string(), version.clone())).collect()
    }

    /// Adds an object with the API version of its manifest.
    pub fn insert(&mut self, object: &Object) {
        self.add(object.id(), &object.gvk().version);
    }

    /// Adds an id with an API version, which replaces the version that the inventory had for it.
    pub fn add(&mut self, id: ObjectId, version: &str) {
        self.0.insert(id, version.to_owned());
    }

    /// Whether the inventory contains an id, in any version.
    pub fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains_key(id)
    }

    /// The version in which an id was applied; `None` if the inventory lacks it.
    pub fn version(&self, id: &ObjectId) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// The ids of both inventories. An id of both has the version of `newer`.
    #[must_use]
    pub(crate) fn union(mut self, newer: &Self) -> Self {
        self.0.extend(newer.0.iter().map(|(id, version)| (id.clone(), version.clone())));
        self
    }

    /// The ids of this inventory that `other` lacks, each with its version, sorted by id.
    pub fn minus(&self, other: &Self) -> Vec<(ObjectId, String)> {
        let missing = self.0.iter().filter(|(id, _)| !other.contains(id));
        missing.map(|(id, version)| (id.clone(), version.clone())).collect()
    }

    /// The ids, sorted by their parts.
    pub fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.0.keys()
    }

    /// The number of object ids in the inventory.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the inventory has no ids.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(ObjectId, String)> for ObjectInventory {
    fn from_iter<I: IntoIterator<Item = (ObjectId, String)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn entry(id: &str, version: &str) -> (String, String) {
        (id.to_owned(), version.to_owned())
    }

    #[test]
    fn entries_come_back_in_apply_order_and_unreadable_ones_are_named() {
        let (inventory, unreadable) = ObjectInventory::from_entries(&[
            entry("shop_web_apps_Deployment", "v1"),
            entry("nonsense", "v1"),
            entry("shop_web__ConfigMap", "v1"),
            entry("_system__controller_rbac.authorization.k8s.io_ClusterRole", "v1"),
            entry("_shop__Namespace", "v1"),
        ]);
        assert_eq!(unreadable, ["nonsense"]);
        let ids: Vec<_> = inventory.entries().into_iter().map(|(id, _)| id).collect();
        expect![[r#"
            _shop__Namespace
            _system__controller_rbac.authorization.k8s.io_ClusterRole
            shop_web__ConfigMap
            shop_web_apps_Deployment"#]]
        .assert_eq(&ids.join("\n"));
    }

    #[test]
    fn an_object_in_a_new_version_is_the_same_entry() {
        let (old, _) = ObjectInventory::from_entries(&[
            entry("a_b_batch_CronJob", "v1beta1"),
            entry("a_c__Secret", "v1"),
        ]);
        let (new, _) = ObjectInventory::from_entries(&[entry("a_b_batch_CronJob", "v1")]);
        assert_eq!(old.minus(&new), [("a_c__Secret".parse().unwrap(), "v1".to_owned())]);
        assert!(new.minus(&old).is_empty() && !old.minus(&new).is_empty());
        let both = old.union(&new);
        assert_eq!(
            (both.len(), both.version(&"a_b_batch_CronJob".parse().unwrap())),
            (2, Some("v1"))
        );
    }
}
