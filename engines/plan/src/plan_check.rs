//! Decides whether a plan passes the check of a pull request, and writes the commit status about it.
//!
//! Elsewhere: the comment about the plan (`markdown.rs`), which findings are errors (`plan_finding.rs`).

use crate::change_plan::{ApplierChange, ChangePlan};
use crate::immutable_field::ImmutableFieldConsequence;
use crate::plan_finding::FindingLevel;
use crate::plan_lines::summary_text;

/// The longest description that GitHub accepts, in characters.
const MAX_DESCRIPTION_CHARACTERS: usize = 140;

/// A rule by which the check of a plan fails. Every rule includes findings that are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanFailureRule {
    /// The plan has an error: deletions beyond the budget, objects that the API server rejects, a failed rendering, or a change
    /// in files that were not fetched.
    Errors,
    /// Something that changes is not known without a cluster, or could not be compared.
    UnknownValues,
    /// An object is deleted or recreated, or a CustomResourceDefinition loses something.
    Destruction,
}

/// The commit status of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanCheckStatus {
    /// Whether no rule failed.
    pub is_success: bool,
    /// A summary of the plan in at most 140 characters. It contains only numbers and fixed words.
    pub description: String,
}

/// The commit status of a plan under the given rules. Without rules the status is a success.
pub fn check_status(plan: &ChangePlan, rules: &[PlanFailureRule]) -> PlanCheckStatus {
    let errors = plan.findings.iter().filter(|it| it.level == FindingLevel::Error).count();
    let is_side_incomplete = plan.base_incomplete.is_some() || plan.head_incomplete.is_some();
    let is_unknown = is_side_incomplete || plan.appliers.iter().any(is_unknown);
    let fails = |rule: &PlanFailureRule| match rule {
        PlanFailureRule::Errors => errors > 0,
        PlanFailureRule::UnknownValues => errors > 0 || is_unknown,
        PlanFailureRule::Destruction => errors > 0 || plan.appliers.iter().any(destroys),
    };
    let errors = match errors {
        0 => String::new(),
        1 => "1 error: ".to_owned(),
        errors => format!("{errors} errors: "),
    };
    let unknown = if is_unknown { "; not everything is known" } else { "" };
    let description = cut_description(&format!("{errors}{}{unknown}", summary_text(plan)));
    PlanCheckStatus { is_success: !rules.iter().any(fails), description }
}

/// Whether not all is known of an applier that changes.
fn is_unknown(change: &ApplierChange) -> bool {
    // A value that is generated anew is masked on both sides, so that its change is not visible.
    let may_change = change.has_changes() || change.has_drawn_values;
    let has_unknown_values = may_change && !change.unknown_values.is_empty();
    has_unknown_values
        || change.unknown_removal.is_some()
        || !change.moved_sources.is_empty()
        || !change.comparison.is_complete()
}

/// Whether the change of an applier destroys something: it deletes or recreates an object, or a definition loses a part.
pub(crate) fn destroys(change: &ApplierChange) -> bool {
    let recreates = ImmutableFieldConsequence::Recreated;
    let removes_unknown = change.unknown_removal.as_ref();
    change.removed.iter().any(|it| it.left_in_cluster.is_none())
        || removes_unknown.is_some_and(|it| it.left_in_cluster.is_none())
        || change.immutable_fields.iter().any(|it| it.consequence == recreates)
        || !change.definitions.is_empty()
}

fn cut_description(text: &str) -> String {
    match text.char_indices().nth(MAX_DESCRIPTION_CHARACTERS) {
        None => text.to_owned(),
        Some(_) => {
            let kept = text.chars().take(MAX_DESCRIPTION_CHARACTERS - 1);
            kept.chain(['…']).collect()
        }
    }
}
