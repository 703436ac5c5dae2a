//! The findings of a plan: changes that destroy something, that the API server rejects, or that could not be compared.
//!
//! Elsewhere: printing findings (`table.rs`, `markdown.rs`, `sarif.rs`).

use serde::{Deserialize, Serialize};

use crate::change_plan::{ApplierChange, ApplierComparisonStatus, ChangePlan, PlanObjectReference};
use crate::deletion_budget::ExceededDeletionRule;

/// The most findings of a plan.
const MAX_FINDINGS: usize = 1000;

/// A finding of a plan that deserves the attention of a reviewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanFinding {
    /// The rule that the finding belongs to.
    pub rule: PlanFindingKind,
    /// The severity of the finding.
    pub level: FindingLevel,
    /// The applier that the finding is about; none if it is about the whole base or head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applier: Option<PlanObjectReference>,
    /// The object that the finding is about; none if it is about the whole applier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<PlanObjectReference>,
    /// The file in the repository that declares the applier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The text of the finding for users.
    pub message: String,
}

/// The kinds of findings that a plan can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanFindingKind {
    /// An applier deletes more than the budget.
    DeletionBudget,
    /// A field changes that cannot be changed.
    ImmutableField,
    /// A CustomResourceDefinition loses something.
    CrdDefinitionChange,
    /// Something could not be rendered, or not be compared.
    NotCompared,
    /// An applier needs a ConfigMap or Secret that the cluster does not have.
    MissingReference,
}

impl PlanFindingKind {
    /// All rules, in their order.
    pub(crate) const ALL: [Self; 5] = [
        Self::DeletionBudget,
        Self::ImmutableField,
        Self::CrdDefinitionChange,
        Self::NotCompared,
        Self::MissingReference,
    ];

    /// The name of the rule, as in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DeletionBudget => "deletion-budget",
            Self::ImmutableField => "immutable-field",
            Self::CrdDefinitionChange => "definition-change",
            Self::NotCompared => "not-compared",
            Self::MissingReference => "missing-reference",
        }
    }

    /// A description of the findings under this rule.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::DeletionBudget => "An applier deletes more objects than the budget allows.",
            Self::ImmutableField => "A field changes that the API server does not let change.",
            Self::CrdDefinitionChange => {
                "A CustomResourceDefinition loses a version, or a field of it changes that cannot be changed."
            }
            Self::NotCompared => "An applier could not be rendered or compared.",
            Self::MissingReference => {
                "An applier needs a ConfigMap or Secret that neither the repository nor the cluster has."
            }
        }
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingLevel {
    /// The change destroys something, the API server rejects it, or its effect is unknown.
    Error,
    /// The change may be destructive, or the problem already existed.
    Warning,
}

impl FindingLevel {
    /// The name of the level, as in JSON and SARIF.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// Puts the findings into a plan, errors first.
pub(crate) fn plan_findings(plan: &mut ChangePlan) {
    let sides = [("base", &plan.base_incomplete), ("head", &plan.head_incomplete)];
    let incomplete = sides.into_iter().filter_map(|(side, reason)| {
        let reason = reason.as_ref()?;
        let message = format!("the {side} was not read to its end: {reason}");
        Some(PlanFinding {
            rule: PlanFindingKind::NotCompared,
            level: FindingLevel::Error,
            applier: None,
            object: None,
            file: None,
            message,
        })
    });
    let of_appliers = plan.appliers.iter().flat_map(applier_findings);
    let mut findings: Vec<PlanFinding> = incomplete.chain(of_appliers).collect();
    findings.sort_by_key(|it| (it.level, it.rule));
    plan.omitted_findings = findings.len().saturating_sub(MAX_FINDINGS);
    findings.truncate(MAX_FINDINGS);
    plan.findings = findings;
}

fn applier_findings(change: &ApplierChange) -> Vec<PlanFinding> {
    let finding = |rule, level, object: Option<&PlanObjectReference>, message| PlanFinding {
        rule,
        level,
        applier: Some(change.applier.clone()),
        object: object.cloned(),
        file: change.file.clone(),
        message,
    };
    let mut findings = Vec::new();
    if let Some((level, message)) = not_compared(change) {
        findings.push(finding(PlanFindingKind::NotCompared, level, None, message));
    }
    if let Some(verdict) = change.deletion.as_ref().filter(|it| !it.is_within()) {
        let rules: Vec<String> = verdict.exceeded.iter().map(ExceededDeletionRule::text).collect();
        let rules = rules.join("; ");
        let message = match verdict.deleted {
            0 => rules,
            deleted => format!("deletes {deleted} of {} objects: {rules}", verdict.of),
        };
        findings.push(finding(PlanFindingKind::DeletionBudget, FindingLevel::Error, None, message));
    }
    for field in &change.immutable_fields {
        let message = format!("{}; {}", field.rule, field.consequence.text());
        findings.push(finding(
            PlanFindingKind::ImmutableField,
            FindingLevel::Error,
            Some(&field.object),
            message,
        ));
    }
    for moved in &change.moved_sources {
        let message = format!("{} are not known: {}", moved.what, moved.reason);
        findings.push(finding(PlanFindingKind::NotCompared, FindingLevel::Error, None, message));
    }
    for missing in &change.missing_references {
        let object = Some(&missing.object);
        let level = FindingLevel::Error;
        findings.push(finding(PlanFindingKind::MissingReference, level, object, missing.text()));
    }
    for definition in &change.definitions {
        for loss in &definition.losses {
            let level = match loss.is_rejected() {
                true => FindingLevel::Error,
                false => FindingLevel::Warning,
            };
            let object = Some(&definition.object);
            findings.push(finding(
                PlanFindingKind::CrdDefinitionChange,
                level,
                object,
                loss.text(),
            ));
        }
    }
    findings
}

/// Why an applier was not compared, and the severity of that. `None` if it was compared.
fn not_compared(change: &ApplierChange) -> Option<(FindingLevel, String)> {
    let reason = change.message.as_deref().unwrap_or_default();
    let finding = match change.comparison {
        ApplierComparisonStatus::Compared
        | ApplierComparisonStatus::New
        | ApplierComparisonStatus::Removed => {
            return None;
        }
        ApplierComparisonStatus::HeadFailed if change.fails_alike => {
            (FindingLevel::Warning, format!("cannot be rendered, as before: {reason}"))
        }
        ApplierComparisonStatus::HeadFailed if change.fails_in_base => (
            FindingLevel::Error,
            format!("cannot be rendered, so what its change deletes is not known: {reason}"),
        ),
        ApplierComparisonStatus::HeadFailed => {
            (FindingLevel::Error, format!("cannot be rendered: {reason}"))
        }
        ApplierComparisonStatus::HeadNotFetched if change.fails_alike => {
            (FindingLevel::Warning, format!("is not known, as before: {reason}"))
        }
        // The fate of the applier's objects is unknown, so they may be deleted.
        ApplierComparisonStatus::HeadNotFetched => (
            FindingLevel::Error,
            format!("is not known in the head, so neither is what it deletes: {reason}"),
        ),
        ApplierComparisonStatus::BaseNotFetched => (
            FindingLevel::Error,
            format!("is not known in the base, so neither is what it deletes: {reason}"),
        ),
        ApplierComparisonStatus::HeadUnknown => {
            (FindingLevel::Error, format!("was not found, and is not taken for removed: {reason}"))
        }
        ApplierComparisonStatus::BaseFailed | ApplierComparisonStatus::BaseUnknown
            if change.not_compared.is_empty() =>
        {
            (FindingLevel::Warning, format!("is not known in the base: {reason}"))
        }
        ApplierComparisonStatus::BaseFailed | ApplierComparisonStatus::BaseUnknown => (
            FindingLevel::Warning,
            format!("the base cannot be rendered, so the head is shown alone: {reason}"),
        ),
        ApplierComparisonStatus::TooLarge => {
            (FindingLevel::Error, format!("was not compared: {reason}"))
        }
    };
    Some(finding)
}
