//! Handles an applier that applies PlanPolicies or namespace labels which decide about its own rules. It may tighten its own
//! rules but never loosen them.
//!
//! Otherwise one commit could turn the budget off and empty a folder, and windlass would delete its objects. The rule holds
//! for later runs as well, so neither a restart nor a change of the PlanPolicy releases the deletion. Elsewhere: PlanPolicies
//! from another applier or a user, which count as they are (`docs/deletion-budget.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apply::deletion_budget::DeletionBudget;
use apply::owner_labels_and_apply_annotations::{OWNER_NAME, OWNER_NAMESPACE};
use crds::windlass_release::PlanPolicy;
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};
use reconcile::ObjectKey;

use super::{EffectivePlanPolicy, MAX_NAMED_POLICIES, rules_of_labels};

/// The PlanPolicies and namespace labels that an applier applies itself and that decide about its own rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SelfAppliedPolicies {
    /// The name of the Kustomization, by which owner labels are recognized. Empty if there is none.
    name: String,
    /// The namespace of the Kustomization.
    namespace: String,
    /// The names of the PlanPolicies that it recorded.
    policies: BTreeSet<String>,
    /// The keys of the labels that it applies to its own namespace. PlanPolicies select the namespace by labels.
    namespace_labels: BTreeSet<String>,
}

impl SelfAppliedPolicies {
    /// From the records and the manifests of a Kustomization. The objects have to be in the Kustomization's own cluster.
    /// Objects in another cluster do not decide about its rules here.
    pub fn of<'o>(
        kustomization: &ObjectKey,
        recorded: impl Iterator<Item = &'o ObjectId>,
        manifests: impl Iterator<Item = &'o Object>,
    ) -> Self {
        let is_policy =
            |id: &&ObjectId| id.group == "release.windlass.dev" && id.kind == "PlanPolicy";
        let is_namespace = |object: &&Object| {
            let id = object.id();
            id.group.is_empty() && id.kind == "Namespace" && id.name == kustomization.namespace
        };
        let labels = manifests.filter(is_namespace).filter_map(|it| it.meta("labels")?.as_object());
        Self {
            name: kustomization.name.clone(),
            namespace: kustomization.namespace.clone(),
            policies: recorded.filter(is_policy).map(|id| id.name.clone()).collect(),
            namespace_labels: labels.flat_map(|it| it.keys().cloned()).collect(),
        }
    }

    /// Whether the applier applied a PlanPolicy. A PlanPolicy that left the manifests but is excluded from deletion is in no
    /// inventory any more, but still has the owner labels.
    fn has(&self, policy: &PlanPolicy) -> bool {
        self.policies.contains(&policy.name_any())
            || (!self.name.is_empty() && is_applied_by(policy, &self.namespace, &self.name))
    }

    /// The rules of the applier in a namespace with these labels. They are the stricter of two results: with all PlanPolicies,
    /// and without the PlanPolicies and labels that the applier applies itself.
    pub(super) fn rules(
        &self,
        policies: &[Arc<PlanPolicy>],
        labels: &BTreeMap<String, String>,
    ) -> EffectivePlanPolicy {
        let all = rules_of_labels(policies, labels);
        if self == &Self::default() {
            return all;
        }
        let is_of_others = |policy: &&Arc<PlanPolicy>| !self.has(policy);
        let of_others: Vec<Arc<PlanPolicy>> =
            policies.iter().filter(is_of_others).cloned().collect();
        let mut labels_of_others = labels.clone();
        labels_of_others.retain(|key, _| !self.namespace_labels.contains(key));
        stricter(all, rules_of_labels(&of_others, &labels_of_others))
    }
}

/// Whether a PlanPolicy has the owner labels of a Kustomization.
pub(crate) fn is_applied_by(policy: &PlanPolicy, namespace: &str, name: &str) -> bool {
    let is = |label: &str, owner: &str| policy.labels().get(label).is_some_and(|it| it == owner);
    is(OWNER_NAME, name) && is(OWNER_NAMESPACE, namespace)
}

/// The stricter of two sets of rules, for each limit.
fn stricter(one: EffectivePlanPolicy, other: EffectivePlanPolicy) -> EffectivePlanPolicy {
    let both = |one: Vec<String>, other: Vec<String>| {
        let names: BTreeSet<String> = one.into_iter().chain(other).collect();
        names.into_iter().take(MAX_NAMED_POLICIES).collect()
    };
    let budgets = [one.budget, other.budget].into_iter().flatten();
    EffectivePlanPolicy {
        budget: budgets.reduce(DeletionBudget::strictest),
        policies: both(one.policies, other.policies),
        mode: one.mode.max(other.mode),
        mode_policies: both(one.mode_policies, other.mode_policies),
        approvals: one.approvals.max(other.approvals),
    }
}

#[cfg(test)]
mod tests {
    use apply::planned_changes::PlanMode;
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, selector: Value, budget: Value) -> Arc<PlanPolicy> {
        let spec = json!({"namespaceSelector": selector, "deletionBudget": budget});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new("", name, "release.windlass.dev", "PlanPolicy")
    }

    fn apps(namespace: &str) -> ObjectKey {
        ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", namespace, "apps")
    }

    fn most(own: &SelfAppliedPolicies, policies: &[Arc<PlanPolicy>], label: &str) -> Option<usize> {
        let labels = BTreeMap::from([("environment".to_owned(), label.to_owned())]);
        own.rules(policies, &labels).budget.map(|it| it.max_objects)
    }

    #[test]
    fn a_policy_that_an_applier_applies_itself_tightens_its_budget_and_does_not_loosen_it() {
        let ids = [id("own"), ObjectId::new("shop", "own", "", "ConfigMap")];
        let own = SelfAppliedPolicies::of(&apps("shop"), ids.iter(), std::iter::empty());
        let none = SelfAppliedPolicies::default();
        for (budget, of_others, of_itself) in [
            (json!({"enabled": false}), None, Some(10)),
            (json!({"maxObjects": 50}), Some(50), Some(10)),
            (json!({"maxObjects": 2}), Some(2), Some(2)),
        ] {
            let policies = [policy("own", json!({}), budget)];
            assert_eq!(most(&none, &policies, "a"), of_others);
            assert_eq!(most(&own, &policies, "a"), of_itself);
        }
        let loose = policy("other", json!({}), json!({"maxObjects": 50}));
        let off = policy("own", json!({}), json!({"enabled": false}));
        assert_eq!(most(&own, &[loose, off], "a"), Some(50), "what others allow counts");
    }

    #[test]
    fn a_policy_that_left_the_inventory_and_stays_in_the_cluster_loosens_nothing_either() {
        let own = |namespace: &str| {
            SelfAppliedPolicies::of(&apps(namespace), std::iter::empty(), std::iter::empty())
        };
        let left = |owner: &str| {
            let labels = json!({OWNER_NAME: owner, OWNER_NAMESPACE: "shop"});
            let spec = json!({"namespaceSelector": {}, "deletionBudget": {"enabled": false}});
            let policy = json!({"metadata": {"name": "left", "labels": labels}, "spec": spec});
            let policy: PlanPolicy = serde_json::from_value(policy).unwrap();
            [Arc::new(policy)]
        };
        assert_eq!(most(&own("shop"), &left("apps"), "a"), Some(10));
        assert_eq!(most(&own("other"), &left("apps"), "a"), None, "of another namespace");
        assert_eq!(most(&own("shop"), &left("policies"), "a"), None, "another one applied it");
    }

    #[test]
    fn a_label_of_the_namespace_that_an_applier_applies_itself_selects_only_what_tightens() {
        let metadata = json!({"name": "shop", "labels": {"environment": "preview"}});
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        let manifest = Object::new(manifest).unwrap();
        let own = |namespace: &str| {
            let none = std::iter::empty();
            SelfAppliedPolicies::of(&apps(namespace), none, std::iter::once(&manifest))
        };
        let selector = |value: &str| json!({"matchLabels": {"environment": value}});
        let policies = [
            policy("previews", selector("preview"), json!({"enabled": false})),
            policy("production", selector("production"), json!({"maxObjects": 2})),
        ];
        assert_eq!(most(&own("shop"), &policies, "preview"), Some(10));
        assert_eq!(most(&own("other"), &policies, "preview"), None, "another namespace");
        assert_eq!(most(&own("shop"), &policies, "production"), Some(2));
        let found = own("shop").rules(
            &policies,
            &BTreeMap::from([("environment".to_owned(), "production".to_owned())]),
        );
        assert_eq!(found.policies, ["production"]);
    }

    #[test]
    fn a_label_that_an_applier_applies_itself_does_not_loosen_its_mode() {
        let metadata = json!({"name": "shop", "labels": {"frozen": "true"}});
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        let manifest = Object::new(manifest).unwrap();
        let expression = json!({"key": "frozen", "operator": "DoesNotExist"});
        let spec = json!({"mode": "Approve",
            "namespaceSelector": {"matchExpressions": [expression]}});
        let policy = json!({"metadata": {"name": "asks"}, "spec": spec});
        let policies: [Arc<PlanPolicy>; 1] = [Arc::new(serde_json::from_value(policy).unwrap())];
        let labels = BTreeMap::from([("frozen".to_owned(), "true".to_owned())]);
        let none = SelfAppliedPolicies::default();
        assert_eq!(none.rules(&policies, &labels).mode, PlanMode::Automatic);
        let manifests = std::iter::once(&manifest);
        let own = SelfAppliedPolicies::of(&apps("shop"), std::iter::empty(), manifests);
        let rules = own.rules(&policies, &labels);
        assert_eq!(rules.mode, PlanMode::Approve);
        assert_eq!(rules.mode_policies, ["asks"]);
    }
}
