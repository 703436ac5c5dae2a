//! The result of a comparison, as JSON and YAML show it: the names of its fields are a promise.
//!
//! Elsewhere: making it (`comparison.rs`), what deserves attention in it (`plan_finding.rs`), reading one that was printed
//! (`plan_json.rs`), other formats (`table.rs`, `markdown.rs`, `sarif.rs`).

use std::borrow::Cow;

use objects::ObjectId;
use serde::{Deserialize, Serialize};

use crate::definition_change::DefinitionChange;
use crate::deletion_budget::BudgetVerdict;
use crate::field_change::{FieldChangeList, is_zero};
use crate::image_change::ImageChange;
use crate::immutable_field::ImmutableFieldChange;
use crate::plan_finding::PlanFinding;
use crate::rendering::{MissingReference, UnknownValue};

/// What changes between two revisions of a repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePlan {
    /// The revision that is compared with.
    pub base_revision: String,
    /// The revision that would be applied.
    pub head_revision: String,
    /// How much changes.
    pub summary: PlanSummary,
    /// What deserves attention, the most severe first.
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
    /// Whether nothing changes, nothing fails, and everything was compared. What is not known on both sides alike does not
    /// count, unless an upgrade draws it anew.
    pub fn is_unchanged(&self) -> bool {
        self.findings.is_empty()
            && self.base_incomplete.is_none()
            && self.head_incomplete.is_none()
            && self.appliers.iter().all(|it| !it.has_changes() && !it.has_drawn_values)
    }
}

/// Sums over all appliers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// Objects that are created.
    pub added: usize,
    /// Objects in which a field changes.
    pub changed: usize,
    /// Objects that no applier has any more, those that stay in the cluster included.
    pub removed: usize,
    /// Those of them that are deleted.
    pub deleted: usize,
    /// Objects that another applier has now.
    pub moved: usize,
    /// Objects that do not change.
    pub unchanged: usize,
    /// Images that change, or are new.
    pub images: usize,
    /// Appliers that could not be compared.
    pub not_compared: usize,
    /// Appliers that are removed, and whose objects are not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown_removals: usize,
}

/// What changes in an applier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplierChange {
    /// Which.
    pub applier: PlanObjectReference,
    /// Whether it could be compared. In all but [`ApplierComparison::Compared`], [`ApplierComparison::New`] and
    /// [`ApplierComparison::Removed`] nothing counts as added, changed or removed.
    pub comparison: ApplierComparison,
    /// Why it could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether it failed in the base, too. One that was not fetched, or whose rendering was interrupted, did so only if the
    /// base declares just the same of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fails_in_base: bool,
    /// Whether it failed in the base, and the head has just the same of it: it does not change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fails_alike: bool,
    /// The file in the repository that declares it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The cluster that it applies to; none for the one that it lives in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_cluster: String,
    /// The revision of its source in the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_source_revision: Option<String>,
    /// The revision of its source in the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_source_revision: Option<String>,
    /// Names what it applies in the head, as far as the repository and declared facts say it: the same digest elsewhere stands
    /// for the same result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind_digest: Option<String>,
    /// Whether it is suspended in the head: nothing of this happens before it is resumed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_suspended: bool,
    /// Whether it was suspended in the base, and is not any more: what changed meanwhile happens, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_resumed: bool,
    /// Objects that are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<PlanObjectReference>,
    /// Objects in which a field changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedObject>,
    /// Objects that neither this nor another applier has any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RemovedObject>,
    /// What becomes of the objects of a removed applier that are not known; none if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_removal: Option<UnknownRemoval>,
    /// Objects that this applier takes over from another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedObject>,
    /// How many objects another applier takes over from this one: what changes in them is listed there.
    pub moved_away: usize,
    /// Which these are, as far as it is known which applier takes them over.
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
    pub definitions: Vec<DefinitionChange>,
    /// What this applier deletes, and what the appliers delete that go with it; none if nothing is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<BudgetVerdict>,
    /// What is not known without a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_values: Vec<UnknownValue>,
    /// Whether some of these are drawn at random or taken from the time, and masked: an upgrade of the release changes them, also
    /// where nothing else changes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_drawn_values: bool,
    /// Sources that are at another place since the head: what the new place has is not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_sources: Vec<UnknownValue>,
    /// ConfigMaps and Secrets that it needs since the head, and that the cluster does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_references: Vec<MissingReference>,
}

impl ApplierChange {
    /// Whether something changes, or could not be compared.
    pub(crate) fn has_changes(&self) -> bool {
        self.comparison != ApplierComparison::Compared
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
pub enum ApplierComparison {
    /// Both sides were rendered.
    Compared,
    /// Only the head has it.
    New,
    /// Only the base has it.
    Removed,
    /// It is in the head, and could not be rendered there: its objects stay as they are.
    HeadFailed,
    /// It is in the head, and it, or the applier that declares it, needs files or a chart that were not fetched: what it
    /// applies is not known.
    HeadNotFetched,
    /// It was not found in the head because something else could not be rendered there: nothing says that it is removed.
    HeadUnknown,
    /// It could not be rendered in the base: the head is shown alone.
    BaseFailed,
    /// What it, or the applier that declares it, needs was not fetched in the base, or was interrupted there, or objects of
    /// the applier that declares it are not followed: the head is shown alone, and what it deletes is not known.
    BaseNotFetched,
    /// It was not found in the base because something else could not be rendered there: the head is shown alone.
    BaseUnknown,
    /// It has more objects than are compared.
    TooLarge,
}

impl ApplierComparison {
    /// Whether everything is known of what changes.
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
    /// What changes.
    #[serde(flatten)]
    pub fields: FieldChangeList,
}

/// An object that no applier has any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedObject {
    /// Which.
    pub object: PlanObjectReference,
    /// Why it stays in the cluster; none if it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_in_cluster: Option<Cow<'static, str>>,
}

/// The objects of a removed applier, of which it is not known which they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownRemoval {
    /// Why they are not known.
    pub reason: String,
    /// Why they stay in the cluster; none if they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_in_cluster: Option<Cow<'static, str>>,
}

/// An object that one applier takes over from another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedObject {
    /// Which.
    pub object: PlanObjectReference,
    /// The applier that had it.
    pub from: PlanObjectReference,
    /// The applier that has it now.
    pub to: PlanObjectReference,
    /// Whether the other one still has it, too: both apply it then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_shared: bool,
    /// What changes besides.
    #[serde(flatten)]
    pub fields: FieldChangeList,
}

/// An object that another applier takes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedAwayObject {
    /// Which.
    pub object: PlanObjectReference,
    /// The applier that has it now.
    pub to: PlanObjectReference,
}

/// What an object is called.
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
    /// `Kind/namespace/name`.
    pub fn subject(&self) -> String {
        ObjectId::new(&self.namespace, &self.name, &self.group, &self.kind).subject()
    }

    /// What happens to an applier that is removed: a release of Helm is uninstalled.
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

/// For serde: whether a field that is rarely true is left out.
fn is_false(value: &bool) -> bool {
    !value
}
