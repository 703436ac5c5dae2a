//! What a change of a Git repository would change in a cluster: two renderings of it, compared.
//!
//! Here: what is compared ([`RepositoryRendering`]), the comparison ([`compare`]) and its result ([`ChangePlan`]): objects
//! added, changed, removed and moved from one applier to another, images, immutable fields, definitions, deletions beyond
//! a budget (`apply::deletion_budget`), and what cannot be known without a cluster. Its formats: plain text ([`table_text`]),
//! a comment in Markdown ([`markdown_comment`]), SARIF ([`sarif_log`]); as JSON a plan is what serde makes of it, and is read
//! again from that ([`ChangePlan::from_untrusted_json`]) where it is posted, with a commit status ([`check_status`]).
//! An applier has a digest of what it applies ([`blind_digest()`]), by which a rendering elsewhere is compared with it.
//! The base may also be a cluster: then its objects are those that exist, and the head has what they would become.
//! Elsewhere: reading a repository and rendering what it declares (the program), which fields differ and which form an
//! object is applied in (`apply`), whether a definition fits the objects that exist (`crdguard`).
//!
//! # Guarantees
//! No value of a Secret is in a plan: neither of its data nor of an annotation. Of a Secret that SOPS encrypted, a digest
//! of the ciphertext is. An object counts as removed only if the applier of both sides was rendered without an error.

mod blind_digest;
mod change_plan;
mod comparison;
mod definition_change;
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
mod sarif;
mod table;
mod untrusted_text;

#[cfg(test)]
mod tests;

pub use blind_digest::blind_digest;
pub use change_plan::{
    ApplierChange, ApplierComparison, ChangePlan, ChangedObject, MovedAwayObject, MovedObject,
    PlanObjectReference, PlanSummary, RemovedObject, UnknownRemoval,
};
pub use comparison::{CompareOptions, compare};
pub use definition_change::{DefinitionChange, DefinitionFinding};
pub use deletion_budget::{ApplierBudgets, BudgetVerdict, DeletionRule};
pub use field_change::{FieldChange, FieldChangeLimits, FieldChangeList};
pub use image_change::ImageChange;
pub use immutable_field::{ImmutableFieldChange, ImmutableFieldConsequence};
pub use markdown::{comment_marker, markdown_comment, named_markdown_comment};
pub use plan_check::{PlanCheckStatus, PlanFailureRule, check_status};
pub use plan_finding::{FindingLevel, PlanFinding, PlanRule};
pub use plan_json::{MAX_PLAN_BYTES, PlanJsonError};
pub use rendering::{
    HelmReleaseTarget, MissingReference, RenderedApplier, RepositoryRendering, UnknownValue,
};
pub use sarif::sarif_log;
pub use table::table_text;
pub use untrusted_text::clean_line;
