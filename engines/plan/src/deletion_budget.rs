//! How much a change may delete before it deserves attention.
//!
//! Here: the budget, and its verdict on what one applier deletes. Elsewhere: what is deleted (`removal.rs`).

use objects::{Object, ObjectId};
use serde::{Deserialize, Serialize};

use crate::change_plan::PlanObjectReference;

/// How many objects a verdict names.
const MAX_NAMED_OBJECTS: usize = 10;

/// Kinds whose deletion deletes what others hold, or data: group and kind.
const HELD_KINDS: [(&str, &str); 4] = [
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// Kinds that apply objects: their deletion deletes these: group and kind.
const APPLIER_KINDS: [(&str, &str); 4] = [
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
    ("helmfile.windlass.dev", "Helmfile"),
    ("apps.mumoshu.github.io", "Helmfile"),
];

/// What an applier may delete without attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionBudget {
    /// How many objects.
    pub max_objects: usize,
    /// How many of its objects, in percent.
    pub max_percent: u8,
    /// The percentage holds for an applier with more objects than this.
    pub percent_above_objects: usize,
    /// Whether some kinds need attention however few are deleted: Namespaces, CustomResourceDefinitions, PersistentVolumes
    /// and their claims, StatefulSets with claims, and appliers.
    pub holds_kinds: bool,
}

impl Default for DeletionBudget {
    fn default() -> Self {
        Self { max_objects: 10, max_percent: 30, percent_above_objects: 10, holds_kinds: true }
    }
}

/// What a deletion is beyond.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "camelCase")]
pub enum DeletionRule {
    /// More objects than [`DeletionBudget::max_objects`].
    Objects {
        /// The most.
        limit: usize,
    },
    /// More of its objects than [`DeletionBudget::max_percent`].
    Percent {
        /// The most.
        limit: u8,
    },
    /// An object of a kind whose deletion deletes more than itself.
    HeldKind {
        /// The first such object.
        object: PlanObjectReference,
        /// How many there are.
        count: usize,
    },
}

impl DeletionRule {
    /// The rule and by what it is exceeded, in words.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Objects { limit } => format!("more than {limit} objects"),
            Self::Percent { limit } => format!("more than {limit} % of the objects"),
            Self::HeldKind { object, count: 1 } => {
                format!("{}, whose deletion deletes more than itself", object.subject())
            }
            Self::HeldKind { object, count } => format!(
                "{} and {} more, whose deletion deletes more than themselves",
                object.subject(),
                count.saturating_sub(1)
            ),
        }
    }
}

/// What one applier deletes, compared with the budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetVerdict {
    /// How many objects are deleted, those of appliers that are deleted with it included, each once.
    pub deleted: usize,
    /// How many objects it had, with those of these appliers.
    pub of: usize,
    /// The first of the objects that are deleted.
    pub first: Vec<PlanObjectReference>,
    /// The rules that are exceeded; none if the deletion is within the budget.
    pub exceeded: Vec<DeletionRule>,
}

impl BudgetVerdict {
    /// Whether no rule is exceeded.
    pub(crate) fn is_within(&self) -> bool {
        self.exceeded.is_empty()
    }
}

/// An object that is deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeletedObject<'o> {
    pub(crate) object: &'o Object,
    /// Whether it is an applier that was rendered, whatever its kind is.
    pub(crate) is_applier: bool,
}

impl DeletionBudget {
    /// The verdict on some objects, each of them once; `of` is how many there were.
    pub(crate) fn verdict(&self, deleted: &[DeletedObject<'_>], of: usize) -> BudgetVerdict {
        let mut ids: Vec<ObjectId> = deleted.iter().map(|it| it.object.id()).collect();
        let count = ids.len();
        ids.sort();
        let first = ids.iter().take(MAX_NAMED_OBJECTS).map(PlanObjectReference::from).collect();
        let mut exceeded = Vec::new();
        if count > self.max_objects {
            exceeded.push(DeletionRule::Objects { limit: self.max_objects });
        }
        let is_large = of > self.percent_above_objects;
        if is_large && count.saturating_mul(100) > of.saturating_mul(self.max_percent.into()) {
            exceeded.push(DeletionRule::Percent { limit: self.max_percent });
        }
        let held = deleted.iter().filter(|_| self.holds_kinds).filter(|it| is_held(it));
        let mut held: Vec<ObjectId> = held.map(|it| it.object.id()).collect();
        held.sort();
        if let Some(object) = held.first() {
            let object = PlanObjectReference::from(object);
            exceeded.push(DeletionRule::HeldKind { object, count: held.len() });
        }
        BudgetVerdict { deleted: count, of, first, exceeded }
    }
}

/// Whether the deletion of an object needs attention by itself.
fn is_held(deleted: &DeletedObject<'_>) -> bool {
    let gvk = deleted.object.gvk();
    let kind = (gvk.group.as_str(), gvk.kind.as_str());
    let claims = deleted.object.get("spec").and_then(|spec| spec.get("volumeClaimTemplates"));
    let has_claims = claims.and_then(|it| it.as_array()).is_some_and(|it| !it.is_empty());
    deleted.is_applier
        || HELD_KINDS.contains(&kind)
        || APPLIER_KINDS.contains(&kind)
        || (kind == ("apps", "StatefulSet") && has_claims)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(count: usize, api: &str, kind: &str, spec: &serde_json::Value) -> Vec<Object> {
        let object = |at: usize| {
            let metadata = json!({"name": format!("o{at:03}"), "namespace": "apps"});
            Object::new(
                json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}),
            )
            .unwrap()
        };
        (0..count).map(object).collect()
    }

    fn rules(deleted: &[Object], of: usize) -> Vec<String> {
        let deleted: Vec<DeletedObject<'_>> =
            deleted.iter().map(|object| DeletedObject { object, is_applier: false }).collect();
        let verdict = DeletionBudget::default().verdict(&deleted, of);
        assert_eq!(verdict.is_within(), verdict.exceeded.is_empty());
        verdict.exceeded.iter().map(DeletionRule::text).collect()
    }

    #[test]
    fn a_deletion_is_within_the_budget_up_to_its_numbers() {
        let maps = |count| objects(count, "v1", "ConfigMap", &json!({}));
        assert_eq!(rules(&maps(10), 100), [""; 0]);
        assert_eq!(rules(&maps(11), 100), ["more than 10 objects"]);
        assert_eq!(rules(&maps(10), 10), [""; 0], "few objects have no percentage");
        assert_eq!(rules(&maps(6), 20), [""; 0]);
        assert_eq!(rules(&maps(7), 20), ["more than 30 % of the objects"]);
    }

    #[test]
    fn kinds_that_hold_others_or_data_need_attention_each() {
        let claims = json!({"volumeClaimTemplates": [{}]});
        assert_eq!(rules(&objects(1, "apps/v1", "StatefulSet", &json!({})), 100), [""; 0]);
        for (api, kind) in [
            ("apps/v1", "StatefulSet"),
            ("v1", "Namespace"),
            ("v1", "PersistentVolumeClaim"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            ("helmfile.windlass.dev/v1alpha1", "Helmfile"),
        ] {
            let named =
                format!("{kind}/apps/o000 and 1 more, whose deletion deletes more than themselves");
            assert_eq!(rules(&objects(2, api, kind, &claims), 100), [named]);
        }
        let budget = DeletionBudget { holds_kinds: false, ..DeletionBudget::default() };
        let namespaces = objects(1, "v1", "Namespace", &json!({}));
        let deleted = [DeletedObject { object: &namespaces[0], is_applier: true }];
        assert!(budget.verdict(&deleted, 1).is_within());
        assert!(!DeletionBudget::default().verdict(&deleted, 1).is_within());
    }
}
