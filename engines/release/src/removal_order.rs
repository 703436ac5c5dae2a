//! Determines which objects are deleted when a release is removed, and in which order.
//!
//! Semantics: Helm 4.2 `pkg/action/uninstall.go` and `resource_policy.go`.
//! Elsewhere: the order of kinds (`helm::manifests`), deleting the objects (the program).

use std::collections::BTreeMap;

use helm::manifests::{self, ManifestOrder, ReleaseManifest};

use crate::record::ReleaseRecord;

/// The objects of a release that an uninstallation deletes, and those that it keeps.
#[derive(Debug, Clone, Default)]
pub struct ReleaseRemovalPlan {
    /// The deleted objects in order: one kind after the other, and all objects of a kind at once.
    pub deleted: Vec<ReleaseManifest>,
    /// The objects that stay because their annotation says so.
    pub kept: Vec<ReleaseManifest>,
}

/// The annotation with which an object stays after its release is removed.
const POLICY: &str = "helm.sh/resource-policy";

/// Determines which objects of a record are deleted.
///
/// Parity(helm 4): an object with another policy than `keep` is neither deleted nor kept, nor is it reported.
///
/// # Errors
/// The manifest cannot be read, so a user must delete its objects.
pub fn removed(record: &ReleaseRecord) -> Result<ReleaseRemovalPlan, String> {
    let documents = manifests::split(record.manifest.as_bytes()).into_iter().enumerate();
    // Parity(helm 4): documents are sorted by these names, so the tenth comes before the second.
    let files: BTreeMap<String, Vec<u8>> =
        documents.map(|(place, text)| (format!("manifest-{place}"), text.to_vec())).collect();
    let sorted = manifests::sort(&files, ManifestOrder::Uninstall).map_err(|error| {
        format!("corrupted release record. You must manually delete the resources: {error}")
    })?;
    let mut removed = ReleaseRemovalPlan::default();
    for manifest in sorted.manifests {
        match manifest.head.annotation(POLICY).map(|policy| policy.trim().to_lowercase()) {
            None => removed.deleted.push(manifest),
            Some(policy) if policy == "keep" => removed.kept.push(manifest),
            Some(_) => {}
        }
    }
    Ok(removed)
}
