//! Removes the namespace from cluster-scoped objects of a build, as the API server does. This happens before anything is
//! recorded under the id of an object.
//!
//! Elsewhere: which objects these are, and the changed desired state (engine `apply`, `scope`).

use std::collections::BTreeSet;
use std::sync::Arc;

use apply::ApplyStage;
use apply::cluster_scoped_namespace_removal::{
    GroupKind, ResourceScope, defined, with_namespace, without_namespace,
};
use objects::ObjectId;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};

use super::KustomizationSession;
use super::validated_spec::DesiredKustomization;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::cluster_target::ClusterTarget;

/// Removes the namespace of cluster-scoped objects from the desired state. `None` if no manifest gives such an object a
/// namespace, so that the state stays unchanged.
///
/// # Errors
/// Two manifests are for the same object; the error names it.
pub async fn scoped(
    desired_kustomization: &DesiredKustomization,
    cluster: &ClusterConnection,
    custom: &[(String, String)],
) -> Result<Option<DesiredKustomization>, apply::DuplicateObjectError> {
    let kinds = cluster_scoped(
        &desired_kustomization.desired.stages,
        &desired_kustomization.health_versions,
        cluster,
    )
    .await;
    if kinds.is_empty() {
        return Ok(None);
    }
    let desired = Arc::new(desired_kustomization.desired.without_namespace(&kinds, custom)?);
    let mut health_versions = desired_kustomization.health_versions.clone();
    without_namespace(&mut health_versions, &kinds);
    Ok(Some(DesiredKustomization { desired, health_versions, ..desired_kustomization.clone() }))
}

/// The cluster-scoped kinds of manifests and health checks that name a namespace.
///
/// If the build has the CustomResourceDefinition of a kind, it decides about the scope, otherwise the API server does. Objects
/// of a kind that neither knows keep their namespace, since they cannot be compared anyway.
async fn cluster_scoped(
    stages: &[ApplyStage],
    health: &[(ObjectId, String)],
    cluster: &ClusterConnection,
) -> BTreeSet<GroupKind> {
    let own = defined(stages);
    let mut kinds = BTreeSet::new();
    for gvk in with_namespace(stages, health) {
        let kind = GroupKind { group: gvk.group.clone(), kind: gvk.kind.clone() };
        let is_cluster_scoped = match own.get(&kind) {
            Some(scope) => *scope == ResourceScope::Cluster,
            None => match cluster.resource(&gvk).await {
                Ok(resource) => !resource.namespaced,
                // The API server does not answer, so the other kinds are not asked for.
                Err(ClusterError::NoAnswer(_)) => break,
                Err(_) => false,
            },
        };
        if is_cluster_scoped {
            kinds.insert(kind);
        }
    }
    kinds
}

impl KustomizationSession<'_> {
    /// Removes the namespace of cluster-scoped objects from the desired state, as the function [`scoped`] does. Without such an
    /// object, the state is returned unchanged.
    pub(super) async fn scoped(
        &self,
        desired_kustomization: Arc<DesiredKustomization>,
        target: &ClusterTarget,
    ) -> Result<Arc<DesiredKustomization>, RunOutcome> {
        let custom = &self.context.settings.custom_apply_stage_kinds;
        match scoped(&desired_kustomization, &target.cluster, custom).await {
            Ok(scoped) => Ok(scoped.map_or(desired_kustomization, Arc::new)),
            Err(error) => Err(RunOutcome::Failed(
                condition_reason::BUILD_FAILED,
                error.to_string(),
                NextRunTrigger::default(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use objects::Object;
    use serde_json::json;

    use super::*;
    use fake_cluster::answering;

    fn object(api: &str, kind: &str) -> Object {
        Object::new(json!({"apiVersion": api, "kind": kind,
            "metadata": {"name": "le", "namespace": "shop"}}))
        .unwrap()
    }

    fn definition(kind: &str) -> Object {
        Object::new(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "x.acme.io"},
            "spec": {"group": "acme.io", "scope": "Cluster", "names": {"kind": kind}}}),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_kind_is_cluster_scoped_if_the_build_or_the_api_server_says_so_and_not_if_neither_answers()
     {
        let cluster = answering(|(asked, _)| {
            let resource = |kind: &str, namespaced: bool| {
                json!({"name": kind.to_lowercase(), "singularName": "", "kind": kind, "verbs": ["get"],
                    "namespaced": namespaced})
            };
            let list = json!({"kind": "APIResourceList", "groupVersion": "cert-manager.io/v1",
                "resources": [resource("ClusterIssuer", false), resource("Issuer", true)]});
            match asked.as_str() {
                "GET /apis/cert-manager.io/v1" => (200, Body::from(list.to_string())),
                _ => (503, Body::from("{}")),
            }
        })
        .await;
        let objects = vec![
            object("cert-manager.io/v1", "ClusterIssuer"),
            object("cert-manager.io/v1", "Issuer"),
            object("acme.io/v1", "Defined"),
            object("acme.io/v1", "Unknown"),
            definition("Defined"),
        ];
        let stages = apply::stages(objects, &[]).unwrap();
        let health = [(ObjectId::new("shop", "a", "cert-manager.io", "Issuer"), "v1".to_owned())];
        let kinds = cluster_scoped(&stages, &health, &cluster).await;
        let kinds: Vec<&str> = kinds.iter().map(|it| it.kind.as_str()).collect();
        assert_eq!(kinds, ["Defined", "ClusterIssuer"]);
    }
}
