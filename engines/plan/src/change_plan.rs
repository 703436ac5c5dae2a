//! The result of a comparison in the form that is printed as JSON and YAML. Other programs depend on the names of its fields.
//!
//! Elsewhere: computing the result (`rendering_comparison.rs`), its findings (`plan_finding.rs`), reading a printed result
//! (`plan_json.rs`), other formats (`table.rs`, `markdown.rs`, `sarif.rs`).

use std::borrow::Cow;

use objects::ObjectId;
use serde::{Deserialize, Serialize};

use crate::crd_definition_change::CrdDefinitionChange;
use crate::deletion_budget::ApplierDeletionBudgetVerdict;
use crate::field_change::{FieldChangeList, is_zero};
use crate::image_change::ImageChange;
use crate::immutable_field::ImmutableFieldChange;
use crate::plan_finding::PlanFinding;
use crate::rendering::{MissingReference, UnknownValue};

/// The changes between two revisions of a repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePlan {
    /// The revision that is compared with.
    pub base_revision: String,
    /// The revision that would be applied.
    pub head_revision: String,
    /// The total numbers of changes.
    pub summary: PlanSummary,
    /// The findings that need attention, the most severe first.
    pub findings: Vec<PlanFinding>,
    /// How many findings are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_findings: usize,
    /// The appliers in which something changes, fails or is not known, ordered by their names.
    pub appliers: Vec<ApplierChange>,
    /// Why there may be appliers in the base that were not found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_incomplete: Option<String>,
    /// Why there may be appliers in the head that were not found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_incomplete: Option<String>,
}

impl ChangePlan {
    /// Whether nothing changes, nothing fails, and everything was compared. Values that are unknown on both sides do not count
    /// as a change, unless an upgrade generates them anew.
    pub fn is_unchanged(&self) -> bool {
        self.findings.is_empty()
            && self.base_incomplete.is_none()
            && self.head_incomplete.is_none()
            && self.appliers.iter().all(|it| !it.has_changes() && !it.has_drawn_values)
    }
}

/// How many objects a change adds, changes and removes, as sums over all appliers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// Objects that are created.
    pub added: usize,
    /// Objects in which a field changes.
    pub changed: usize,
    /// Objects that no applier has any more, including objects that stay in the cluster.
    pub removed: usize,
    /// Removed objects that are deleted from the cluster.
    pub deleted: usize,
    /// Objects that another applier has now.
    pub moved: usize,
    /// Objects that do not change.
    pub unchanged: usize,
    /// Images that change, or are new.
    pub images: usize,
    /// Appliers that could not be compared.
    pub not_compared: usize,
    /// Appliers that are removed and whose objects are unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_removals: usize,
}

/// The changes of one applier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplierChange {
    /// Which.
    pub applier: PlanObjectReference,
    /// Whether the applier could be compared. Only with [`ApplierComparisonStatus::Compared`], [`ApplierComparisonStatus::New`] and
    /// [`ApplierComparisonStatus::Removed`] does anything count as added, changed or removed.
    pub comparison: ApplierComparisonStatus,
    /// Why the applier could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether the applier failed in the base, too. If its files were not fetched or its rendering was interrupted, this
    /// requires that the base declares exactly the same.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fails_in_base: bool,
    /// Whether the applier failed in the base and the head declares exactly the same, so that nothing changes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fails_alike: bool,
    /// The file in the repository that declares the applier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The cluster that the applier applies to; empty for the cluster in which the applier is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_cluster: String,
    /// The revision of its source in the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_source_revision: Option<String>,
    /// The revision of its source in the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_source_revision: Option<String>,
    /// A digest of the objects that the applier applies in the head, computed without a cluster. An equal digest elsewhere
    /// means the same result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind_digest: Option<String>,
    /// Whether the applier is suspended in the head. Its changes happen only after it is resumed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_suspended: bool,
    /// Whether the applier was suspended in the base and is resumed in the head. Changes from the time of the suspension then
    /// happen, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_resumed: bool,
    /// Objects that are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<PlanObjectReference>,
    /// Objects in which a field changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedObject>,
    /// Objects that no applier has any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RemovedObject>,
    /// The fate of the objects of a removed applier when these objects are unknown; none if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_removal: Option<UnknownRemoval>,
    /// Objects that this applier takes over from another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedObject>,
    /// How many objects another applier takes over from this one. Changes in these objects are listed at the other applier.
    pub moved_away: usize,
    /// The objects that other appliers take over, if the new applier is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_to: Vec<MovedAwayObject>,
    /// How many objects do not change.
    pub unchanged: usize,
    /// The objects of the head where the base could not be rendered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<PlanObjectReference>,
    /// Images that change, or are new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageChange>,
    /// Fields that cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immutable_fields: Vec<ImmutableFieldChange>,
    /// CustomResourceDefinitions that lose something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub definitions: Vec<CrdDefinitionChange>,
    /// The deletions by this applier, and by appliers that are deleted with it, compared with the budget; none if nothing is
    /// deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<ApplierDeletionBudgetVerdict>,
    /// The values that are unknown without a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_values: Vec<UnknownValue>,
    /// Whether some unknown values are random or taken from the time, and therefore masked. An upgrade of the release changes
    /// them even if nothing else changes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_drawn_values: bool,
    /// Sources that have another location in the head. Files at the new location are not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_sources: Vec<UnknownValue>,
    /// ConfigMaps and Secrets that the applier needs since the head, and that the cluster does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_references: Vec<MissingReference>,
}

impl ApplierChange {
    /// Whether something changes, or could not be compared.
    pub(crate) fn has_changes(&self) -> bool {
        self.comparison != ApplierComparisonStatus::Compared
            || self.moved_away > 0
            || self.is_resumed
            || self.deletion.is_some()
            || !self.missing_references.is_empty()
            || !self.moved_sources.is_empty()
            || !(self.added.is_empty()
                && self.changed.is_empty()
                && self.removed.is_empty()
                && self.moved.is_empty())
    }
}

/// Whether an applier could be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApplierComparisonStatus {
    /// Both sides were rendered.
    Compared,
    /// Only the head has the applier.
    New,
    /// Only the base has the applier.
    Removed,
    /// The applier is in the head, and its rendering failed there. Its objects stay as they are.
    HeadFailed,
    /// The applier is in the head, but it or its parent applier needs files or a chart that were not fetched. Its objects are
    /// unknown.
    HeadNotFetched,
    /// The applier was not found in the head because the rendering of another applier failed. This does not prove that it is
    /// removed.
    HeadUnknown,
    /// The rendering of the applier failed in the base. Only the head is shown.
    BaseFailed,
    /// In the base, files of the applier or its parent were not fetched, a rendering was interrupted, or the parent's objects
    /// are not followed. Only the head is shown, and the applier's deletions are unknown.
    BaseNotFetched,
    /// The applier was not found in the base because the rendering of another applier failed. Only the head is shown.
    BaseUnknown,
    /// The applier has more objects than can be compared.
    TooLarge,
}

impl ApplierComparisonStatus {
    /// Whether all changes of the applier are known.
    pub(crate) fn is_complete(self) -> bool {
        matches!(self, Self::Compared | Self::New | Self::Removed)
    }
}

/// An object in which a field changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedObject {
    /// Which.
    pub object: PlanObjectReference,
    /// The fields that change.
    #[serde(flatten)]
    pub fields: FieldChangeList,
}

/// An object that no applier has any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedObject {
    /// Which.
    pub object: PlanObjectReference,
    /// Why the object stays in the cluster; none if it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_in_cluster: Option<Cow<'static, str>>,
}

/// The unknown objects of a removed applier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownRemoval {
    /// Why the objects are unknown.
    pub reason: String,
    /// Why the objects stay in the cluster; none if they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_in_cluster: Option<Cow<'static, str>>,
}

/// An object that one applier takes over from another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedObject {
    /// Which.
    pub object: PlanObjectReference,
    /// The applier that had the object in the base.
    pub from: PlanObjectReference,
    /// The applier that has the object in the head.
    pub to: PlanObjectReference,
    /// Whether the previous applier still has the object, too. Then both apply it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_shared: bool,
    /// The fields of the object that change as well.
    #[serde(flatten)]
    pub fields: FieldChangeList,
}

/// An object that another applier takes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedAwayObject {
    /// Which.
    pub object: PlanObjectReference,
    /// The applier that has the object in the head.
    pub to: PlanObjectReference,
}

/// The identity of an object in a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanObjectReference {
    /// API group; none for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace; none for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PlanObjectReference {
    /// The object as text: `Kind/namespace/name`.
    pub fn subject(&self) -> String {
        ObjectId::new(&self.namespace, &self.name, &self.group, &self.kind).subject()
    }

    /// The verb for the removal of an applier: a Helm release is uninstalled, other appliers are deleted.
    pub(crate) fn removal_verb(&self) -> &'static str {
        match self.kind.as_str() {
            "HelmRelease" | "Helmfile" => "uninstalled",
            _ => "deleted",
        }
    }
}

impl From<&ObjectId> for PlanObjectReference {
    fn from(id: &ObjectId) -> Self {
        let ObjectId { namespace, name, group, kind } = id.clone();
        Self { group, kind, namespace, name }
    }
}

/// For serde: leaves out a field that is false.
fn is_false(value: &bool) -> bool {
    !value
}
