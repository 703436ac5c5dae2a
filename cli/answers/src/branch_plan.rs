//! Plans a branch of a source: what the cluster would become if the branch were merged.
//!
//! Elsewhere: the plan itself, which is that of `windlass plan --live --branch` (`windlass_cli_plan::branch_plan`).

use objects::ObjectId;
use windlass_cluster::untyped_objects::AccessToObject;
use windlass_cluster::{ClusterConnection, ClusterError};

pub use windlass_cli_plan::branch_plan::{BranchPlanRequest, PlannedBranch};

/// The verb that a user needs on a source to plan a branch of it. The fetch uses the credentials of the source.
pub const PLAN_VERB: &str = "plan";

/// The API group of sources.
const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";

/// The kind of the sources that have branches.
pub const SOURCE_KIND: &str = "GitRepository";

/// The resource of these sources.
const SOURCE_RESOURCE: &str = "gitrepositories";

/// The identity of a source.
pub fn source_id(namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(namespace, name, SOURCE_GROUP, SOURCE_KIND)
}

/// Whether the user of a connection may plan branches of a source. Only a clear answer of the API server counts as yes.
///
/// # Errors
/// The API server does not decide.
pub async fn may_plan(
    cluster: &ClusterConnection,
    namespace: &str,
    name: &str,
) -> Result<bool, ClusterError> {
    let access =
        AccessToObject { verb: PLAN_VERB, group: SOURCE_GROUP, resource: SOURCE_RESOURCE, name };
    Ok(cluster.may_access(namespace, access).await?.is_allowed)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use fake_cluster::answering;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_user_needs_the_verb_on_the_one_source() {
        let cluster = answering(|(_, body)| {
            let asked = &body["spec"]["resourceAttributes"];
            let expected = json!({"verb": "plan", "group": "source.toolkit.fluxcd.io",
                "resource": "gitrepositories", "namespace": "apps", "name": "web"});
            let answer = json!({"status": {"allowed": *asked == expected}});
            (201, Body::from(answer.to_string()))
        })
        .await;
        assert!(may_plan(&cluster, "apps", "web").await.unwrap());
        assert!(!may_plan(&cluster, "apps", "db").await.unwrap());
        let away = answering(|_| {
            let answer = json!({"status": {"allowed": false, "evaluationError": "away"}});
            (201, Body::from(answer.to_string()))
        })
        .await;
        assert!(may_plan(&away, "apps", "web").await.is_err());
    }
}
