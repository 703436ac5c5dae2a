//! Compares two renderings of a Git repository, to show what a change of the repository would change in a cluster.
//!
//! Here: a rendering ([`RepositoryRendering`]), the comparison ([`compare`]) and its result ([`ChangePlan`]). The result lists
//! objects that are added, changed, removed or moved between appliers. It also lists images, immutable fields, definitions,
//! deletions beyond a budget (`apply::deletion_budget`), and values that are unknown without a cluster. Its formats: plain text
//! ([`table_text`]), a comment in Markdown ([`markdown_comment`]), SARIF ([`sarif_log`]), and JSON by serde. A CI job that
//! posts a plan with a commit status ([`check_status`]) reads the JSON again ([`ChangePlan::from_untrusted_json`]). Each
//! applier has a digest of the objects that it applies ([`blind_digest()`]), which can be compared with a rendering elsewhere.
//! The base may also be a cluster. Then the base has the existing objects, and the head has the objects that they would become.
//! Elsewhere: reading a repository and rendering what it declares (the program), which fields differ and which form an object
//! is applied in (`apply`), whether a definition fits the objects that exist (`crdguard`).
//!
//! # Guarantees
//! A plan contains no value of a Secret, neither from its data nor from an annotation. A Secret that SOPS encrypted appears as
//! a digest of its ciphertext. An object counts as removed only if the applier of both sides was rendered without an error.

mod applier_digest_without_cluster;
mod change_plan;
mod crd_definition_change;
mod deletion_budget;
mod field_change;
mod image_change;
mod immutable_field;
mod markdown;
mod plan_check;
mod plan_finding;
mod plan_json;
mod plan_lines;
mod removal;
mod rendering;
mod rendering_comparison;
mod sarif;
mod table;
mod untrusted_text;

#[cfg(test)]
mod tests;

pub use applier_digest_without_cluster::blind_digest;
pub use change_plan::{
    ApplierChange, ApplierComparisonStatus, ChangePlan, ChangedObject, MovedAwayObject,
    MovedObject, PlanObjectReference, PlanSummary, RemovedObject, UnknownRemoval,
};
pub use crd_definition_change::{CrdDefinitionChange, CrdDefinitionFinding};
pub use deletion_budget::{
    ApplierDeletionBudgetVerdict, ApplierDeletionBudgets, ExceededDeletionRule,
};
pub use field_change::{FieldChange, FieldChangeLimits, FieldChangeList};
pub use image_change::ImageChange;
pub use immutable_field::{ImmutableFieldChange, ImmutableFieldConsequence};
pub use markdown::{comment_marker, markdown_comment, named_markdown_comment};
pub use plan_check::{PlanCheckStatus, PlanFailureRule, check_status};
pub use plan_finding::{FindingLevel, PlanFinding, PlanFindingKind};
pub use plan_json::{MAX_PLAN_BYTES, PlanJsonError};
pub use plan_lines::{applier_summary, finding_line};
pub use rendering::{
    HelmReleaseTarget, MissingReference, RenderedApplier, RepositoryRendering, UnknownValue,
};
pub use rendering_comparison::{RenderingComparisonOptions, compare};
pub use sarif::sarif_log;
pub use table::table_text;
pub use untrusted_text::clean_line;
