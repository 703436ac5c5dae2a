//! Reads the deletion budgets of a cluster, as far as the user may read the PlanPolicies.
//!
//! If a budget is unknown, the default budget applies, and the plan says so. An unreadable policy never makes a budget larger.
//! Elsewhere: which PlanPolicies apply (`windlass_runtime::approval_plan`), how a budget works (`apply::deletion_budget`).

use std::collections::BTreeMap;
use std::sync::Arc;

use apply::deletion_budget::DeletionBudget;
use crds::windlass_release::PlanPolicy;
use objects::{Gvk, Object, ObjectId};
use plan::{ChangePlan, UnknownValue};
use serde_json::Value;

use super::applier_discovery::typed;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::approval_plan::rules_of_labels;

/// The API version of PlanPolicies.
const POLICY_VERSION: &str = "release.windlass.dev/v1alpha1";

/// The deletion budgets of Kustomizations. Other appliers use the default budget, as in a plan without a cluster.
#[derive(Default)]
pub(crate) struct LiveDeletionBudgets {
    /// The budget of each Kustomization. `None` if deletions are not limited.
    pub(crate) of_appliers: BTreeMap<ObjectId, Option<DeletionBudget>>,
    /// Why the budgets of a namespace are unknown.
    unknown: BTreeMap<String, String>,
}

impl LiveDeletionBudgets {
    /// Reads the budgets of Kustomizations, each with the limits in its annotations.
    ///
    /// # Errors
    /// The API server does not respond.
    pub(crate) async fn read(
        cluster: &ClusterConnection,
        limits: &BTreeMap<ObjectId, Vec<String>>,
    ) -> anyhow::Result<Self> {
        let mut budgets = Self::default();
        let policies = match policies(cluster).await {
            Ok(policies) => Ok(policies),
            Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
            Err(error) => Err(format!("PlanPolicies cannot be read: {error}")),
        };
        let mut of_namespaces: BTreeMap<&str, Option<DeletionBudget>> = BTreeMap::new();
        for (id, annotations) in limits {
            let namespace = id.namespace.as_str();
            let budget = match (of_namespaces.get(namespace), &policies) {
                (Some(known), _) => Ok(known.clone()),
                (None, Ok(policies)) => {
                    match namespace_budget(cluster, policies, namespace).await {
                        Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
                        read => read.map_err(|error| {
                            format!("Namespace/{namespace} cannot be read: {error}")
                        }),
                    }
                }
                (None, Err(reason)) => Err(reason.clone()),
            };
            let budget = budget.unwrap_or_else(|reason| {
                budgets.unknown.insert(namespace.to_owned(), reason);
                Some(DeletionBudget::default())
            });
            of_namespaces.insert(namespace, budget.clone());
            let tightened =
                |budget: DeletionBudget, text: &String| budget.tightened(Some(text.as_str()));
            let budget = budget.map(|budget| annotations.iter().fold(budget, tightened));
            budgets.of_appliers.insert(id.clone(), budget);
        }
        Ok(budgets)
    }

    /// The budgets without any limit, as with `--deletion-budget=false`.
    pub(crate) fn unlimited(limits: &BTreeMap<ObjectId, Vec<String>>) -> Self {
        let of_appliers = limits.keys().map(|id| (id.clone(), None)).collect();
        Self { of_appliers, unknown: BTreeMap::new() }
    }

    /// Adds a message to the plan where objects are deleted although the budget is unknown.
    pub(crate) fn name_unknown(&self, plan: &mut ChangePlan) {
        for change in plan.appliers.iter_mut().filter(|it| it.deletion.is_some()) {
            let is_limited = change.applier.kind == "Kustomization";
            let reason = self.unknown.get(&change.applier.namespace).filter(|_| is_limited);
            change.unknown_values.extend(reason.map(|reason| UnknownValue {
                what: "the budget of deletions".to_owned(),
                reason: format!("the default is compared: {reason}"),
            }));
        }
    }
}

/// The PlanPolicies of a cluster. Empty if the cluster does not serve the kind.
async fn policies(cluster: &ClusterConnection) -> Result<Vec<Arc<PlanPolicy>>, ClusterError> {
    let gvk = Gvk::new(POLICY_VERSION, "PlanPolicy");
    let listed = cluster.list_of_kind(&gvk, "", "").await?;
    let policy = |object: &Object| typed(object).map(Arc::new).map_err(ClusterError::Unreadable);
    listed.iter().map(policy).collect()
}

/// The budget of a namespace. `None` if deletions are not limited.
///
/// # Errors
/// The API server refuses to show the namespace, or does not respond.
async fn namespace_budget(
    cluster: &ClusterConnection,
    policies: &[Arc<PlanPolicy>],
    namespace: &str,
) -> Result<Option<DeletionBudget>, ClusterError> {
    if policies.is_empty() {
        return Ok(rules_of_labels(policies, &BTreeMap::new()).budget);
    }
    let resource = cluster.resource(&Gvk::new("v1", "Namespace")).await?;
    let found = cluster.get(&resource, "", namespace).await?;
    let labels = found.as_ref().and_then(|it| it.meta("labels")).and_then(Value::as_object);
    let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let labels = labels.into_iter().flatten().filter_map(label).collect();
    Ok(rules_of_labels(policies, &labels).budget)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use fake_cluster::answering;
    use serde_json::json;

    use super::*;

    fn kustomization(namespace: &str) -> ObjectId {
        ObjectId::new(namespace, "apps", "kustomize.toolkit.fluxcd.io", "Kustomization")
    }

    /// The answers of a cluster with a policy for the namespace `prod`. The user may read nothing in `hidden`.
    fn answer(path: &str) -> (u16, Value) {
        let kinds = |version: &str, plural: &str, kind: &str| {
            json!({"kind": "APIResourceList", "groupVersion": version, "resources": [{
                "name": plural, "singularName": "", "kind": kind, "namespaced": false,
                "verbs": ["list", "get"]}]})
        };
        let policy = json!({"metadata": {"name": "strict"}, "spec": {
            "namespaceSelector": {"matchLabels": {"stage": "prod"}},
            "deletionBudget": {"maxObjects": 2}}});
        let prod = json!({"kind": "Namespace", "apiVersion": "v1",
            "metadata": {"name": "prod", "labels": {"stage": "prod"}}});
        let refused = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": 403, "reason": "Forbidden", "message": "forbidden"});
        match path {
            "/api/v1" => (200, kinds("v1", "namespaces", "Namespace")),
            "/apis/release.windlass.dev/v1alpha1" => {
                (200, kinds(POLICY_VERSION, "planpolicies", "PlanPolicy"))
            }
            "/apis/release.windlass.dev/v1alpha1/planpolicies" => {
                (200, json!({"kind": "PlanPolicyList", "metadata": {}, "items": [policy]}))
            }
            "/api/v1/namespaces/prod" => (200, prod),
            _ => (403, refused),
        }
    }

    #[tokio::test]
    async fn the_policy_of_a_namespace_counts_and_the_default_where_it_is_not_known() {
        let cluster = answering(|(request, _)| {
            let path = request.trim_start_matches("GET ").split('?').next().unwrap_or_default();
            let (code, body) = answer(path);
            (code, Body::from(body.to_string()))
        });
        let prod = kustomization("prod");
        let hidden = kustomization("hidden");
        let limits = BTreeMap::from([
            (prod.clone(), vec!["1".to_owned(), "7".to_owned()]),
            (hidden.clone(), Vec::new()),
        ]);
        let budgets = LiveDeletionBudgets::read(&cluster.await, &limits).await.unwrap();
        let most = |id: &ObjectId| budgets.of_appliers[id].as_ref().unwrap().max_objects;
        assert_eq!(most(&prod), 1, "the least of the policy and of the annotations");
        assert_eq!(most(&hidden), DeletionBudget::default().max_objects);
        assert!(budgets.unknown["hidden"].contains("Namespace/hidden cannot be read"));
        assert!(!budgets.unknown.contains_key("prod"));
    }
}
