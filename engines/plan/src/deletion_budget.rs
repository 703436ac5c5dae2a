//! Compares the deletions by an applier with its budget, and lists the result in a plan.
//!
//! Elsewhere: the budget and the comparison (`apply::deletion_budget`, which is also used in the cluster), which objects are
//! deleted (`removal.rs`).

use std::collections::BTreeMap;

use apply::deletion_budget::DeletionBudget;
use objects::ObjectId;
use serde::{Deserialize, Serialize};

use crate::change_plan::PlanObjectReference;

/// How many objects appliers may delete without a finding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplierDeletionBudgets {
    /// The budget for appliers without their own budget.
    pub default: DeletionBudget,
    /// The budgets of single appliers; `None` means no limit.
    pub of_appliers: BTreeMap<ObjectId, Option<DeletionBudget>>,
}

impl ApplierDeletionBudgets {
    /// The budget by which the deletions of an applier are judged.
    pub(crate) fn judging(&self, applier: &ObjectId) -> &DeletionBudget {
        self.of_appliers.get(applier).and_then(Option::as_ref).unwrap_or(&self.default)
    }

    /// Whether an applier may delete everything.
    pub(crate) fn limits_nothing(&self, applier: &ObjectId) -> bool {
        self.of_appliers.get(applier).is_some_and(Option::is_none)
    }
}

/// A rule that a deletion is beyond.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "camelCase")]
pub enum ExceededDeletionRule {
    /// More objects than the budget has.
    Objects {
        /// The most.
        limit: usize,
    },
    /// More of its objects than the budget has, in percent.
    Percent {
        /// The most.
        limit: u8,
    },
    /// The build of the head has no objects at all.
    EmptyBuild,
    /// The deletion includes an object of a kind whose deletion deletes further data or objects.
    HeldKind {
        /// The first object of this kind.
        object: PlanObjectReference,
        /// How many objects there are.
        count: usize,
    },
    /// An applier is deleted together with its objects, which are unknown.
    UnknownObjects {
        /// The first applier with unknown objects.
        applier: PlanObjectReference,
        /// How many appliers there are.
        count: usize,
    },
}

impl ExceededDeletionRule {
    /// Translates a rule of the budget; `None` for a rule that can only be judged in a cluster.
    fn of(rule: &apply::deletion_budget::DeletionRule) -> Option<Self> {
        use apply::deletion_budget::DeletionRule as ApplyRule;
        match rule {
            ApplyRule::Objects { limit } => Some(Self::Objects { limit: *limit }),
            ApplyRule::Percent { limit } => Some(Self::Percent { limit: *limit }),
            ApplyRule::EmptyBuild => Some(Self::EmptyBuild),
            ApplyRule::HeldKind { object, count } => {
                Some(Self::HeldKind { object: object.into(), count: *count })
            }
            ApplyRule::WithinHour { .. }
            | ApplyRule::RecentUnknown
            | ApplyRule::Uninstall
            | ApplyRule::InventoryUnknown { .. } => None,
        }
    }

    /// Describes the rule, and by how much it is exceeded.
    pub(crate) fn text(&self) -> String {
        use apply::deletion_budget::DeletionRule as ApplyRule;
        let rule = match self {
            Self::Objects { limit } => ApplyRule::Objects { limit: *limit },
            Self::Percent { limit } => ApplyRule::Percent { limit: *limit },
            Self::EmptyBuild => ApplyRule::EmptyBuild,
            Self::HeldKind { object, count } => {
                let PlanObjectReference { group, kind, namespace, name } = object;
                let object = ObjectId::new(namespace, name, group, kind);
                ApplyRule::HeldKind { object, count: *count }
            }
            Self::UnknownObjects { applier, count: 1 } => {
                let subject = applier.subject();
                let verb = applier.removal_verb();
                return format!("{subject} is {verb}, and its objects are not known");
            }
            Self::UnknownObjects { applier, count } => {
                let subject = applier.subject();
                let more = count.saturating_sub(1);
                return format!("{subject} and {more} more go, and their objects are not known");
            }
        };
        rule.text()
    }
}

/// The deletions by one applier, compared with the budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplierDeletionBudgetVerdict {
    /// How many objects are deleted. Objects of appliers that are deleted with this one are included; each object counts once.
    pub deleted: usize,
    /// How many objects this applier and the appliers that are deleted with it had.
    pub of: usize,
    /// The first of the objects that are deleted.
    pub first: Vec<PlanObjectReference>,
    /// The rules that the deletion exceeds; empty if it is within the budget.
    pub exceeded: Vec<ExceededDeletionRule>,
}

impl ApplierDeletionBudgetVerdict {
    /// Whether no rule is exceeded.
    pub(crate) fn is_within(&self) -> bool {
        self.exceeded.is_empty()
    }
}

impl From<&apply::deletion_budget::BudgetVerdict> for ApplierDeletionBudgetVerdict {
    fn from(verdict: &apply::deletion_budget::BudgetVerdict) -> Self {
        let apply::deletion_budget::BudgetVerdict { deleted, of, first, exceeded } = verdict;
        Self {
            deleted: *deleted,
            of: *of,
            first: first.iter().map(PlanObjectReference::from).collect(),
            exceeded: exceeded.iter().filter_map(ExceededDeletionRule::of).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use apply::deletion_budget::{DeletedObject, DeletionToJudge};
    use objects::Object;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_verdict_lists_what_is_known_without_a_cluster() {
        let object = |kind: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": "apps"});
            let manifest = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
            DeletedObject::new(&Object::new(manifest).unwrap(), false)
        };
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let mut objects: Vec<_> = names.iter().map(|name| object("ConfigMap", name)).collect();
        objects.push(object("PersistentVolumeClaim", "data"));
        let deletion = DeletionToJudge { objects, of: 20, recent: None, ..Default::default() };
        let verdict =
            ApplierDeletionBudgetVerdict::from(&DeletionBudget::default().verdict(&deletion));
        let rules: Vec<String> = verdict.exceeded.iter().map(ExceededDeletionRule::text).collect();
        assert_eq!(
            rules,
            [
                "more than 10 objects",
                "more than 30 % of the objects",
                "PersistentVolumeClaim/apps/data, whose deletion deletes more than itself"
            ]
        );
        assert_eq!((verdict.deleted, verdict.of, verdict.first.len()), (11, 20, 10));
        assert!(!verdict.is_within());
    }
}
