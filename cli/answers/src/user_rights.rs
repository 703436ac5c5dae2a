//! Finds out who the user of a connection is for a cluster. Also finds out which rights the user has for the kinds of windlass
//! and for related objects.
//!
//! Only the API server knows the rights. windlass sends an access review for each right, and the answer names the rule that
//! grants it.

use futures::stream::{self, StreamExt as _};
use serde::Serialize;

use super::command_scope::CommandScope;
use windlass_cluster::ClusterError;
use windlass_cluster::untyped_objects::AccessReviewAnswer;

/// The maximum number of parallel access reviews.
const MAX_REVIEWS_AT_ONCE: usize = 16;

/// The verbs that are checked.
pub const VERBS: [&str; 4] = ["get", "list", "watch", "patch"];

/// Further resources that windlass reads to explain the state of objects.
const BESIDES: [&str; 7] =
    ["pods", "pods/log", "events", "secrets", "configmaps", "namespaces", "deployments.apps"];

/// One right of a user: a verb, and whether the API server grants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UserRight {
    /// The verb.
    pub verb: &'static str,
    /// Whether the right is granted. `None` if the API server did not answer the question.
    pub allowed: Option<bool>,
    /// The rule that grants or denies the right, or why it is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The user's rights for objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RightsOfKind {
    /// The plural, with its group.
    pub resource: String,
    /// In the order of [`VERBS`].
    pub rights: Vec<UserRight>,
}

/// A user, and the user's rights in one namespace or in all namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UserRights {
    /// The user name that the API server uses.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// The namespace. Empty for all namespaces.
    pub namespace: String,
    /// The rights for each kind.
    pub kinds: Vec<RightsOfKind>,
}

/// Finds out who the user is, and which rights the user has. If an access review fails, its right is unknown.
///
/// # Errors
/// The API server does not say who the user is.
pub async fn read(site: &CommandScope) -> Result<UserRights, ClusterError> {
    let user = site.cluster.own_user().await?;
    let ours = crds::names().map(|it| format!("{}.{}", it.plural, it.group));
    let resources: Vec<String> = ours.chain(BESIDES.map(str::to_owned)).collect();
    let asked: Vec<ReviewedRight<'_>> = resources
        .iter()
        .flat_map(|resource| VERBS.map(move |verb| ReviewedRight { resource, verb }))
        .collect();
    let reviews = asked.iter().map(|it| it.review(site));
    let rights: Vec<UserRight> =
        stream::iter(reviews).buffered(MAX_REVIEWS_AT_ONCE).collect().await;
    let kinds = resources.iter().zip(rights.chunks(VERBS.len()));
    let kinds = kinds.map(|(resource, rights)| RightsOfKind {
        resource: resource.clone(),
        rights: rights.to_vec(),
    });
    Ok(UserRights {
        user: user.name,
        groups: user.groups,
        namespace: site.namespace.clone(),
        kinds: kinds.collect(),
    })
}

/// A right to check with an access review.
struct ReviewedRight<'r> {
    resource: &'r str,
    verb: &'static str,
}

impl ReviewedRight<'_> {
    async fn review(&self, site: &CommandScope) -> UserRight {
        let Self { resource, verb } = *self;
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let answer = site.cluster.may_in(&site.namespace, verb, group, plural).await;
        let (allowed, reason) = match answer {
            Ok(AccessReviewAnswer { is_allowed, reason }) => (Some(is_allowed), reason),
            Err(error) => (None, error.to_string()),
        };
        UserRight { verb, allowed, reason }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn rights_are_those_that_the_api_server_names_and_an_error_is_no_answer() {
        let cluster = fake_cluster::answering(|(request, body)| {
            if request.contains("selfsubjectreviews") {
                let info = json!({"username": "alice", "groups": ["dev"]});
                return (200, Body::from(json!({"status": {"userInfo": info}}).to_string()));
            }
            let asked = &body["spec"]["resourceAttributes"];
            if asked["resource"] == "secrets" {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                    "reason": "Forbidden", "message": "no reviews"});
                return (403, Body::from(status.to_string()));
            }
            if asked["resource"] == "configmaps" {
                let status = json!({"allowed": false, "evaluationError": "webhook is away"});
                return (201, Body::from(json!({"status": status}).to_string()));
            }
            let allowed = asked["subresource"] == "log"
                && asked["namespace"] == "apps"
                && asked["verb"] == "get";
            let answer =
                json!({"status": {"allowed": allowed, "reason": "RBAC: by RoleBinding \"dev\""}});
            (200, Body::from(answer.to_string()))
        });
        let site = CommandScope { cluster: cluster.await, namespace: "apps".to_owned() };
        let found = read(&site).await.unwrap();
        assert_eq!(
            (found.user.as_str(), found.groups.as_slice()),
            ("alice", ["dev".to_owned()].as_slice())
        );
        let of = |resource: &str, at: usize| {
            let kind = found.kinds.iter().find(|it| it.resource == resource).unwrap();
            (kind.rights[at].allowed, kind.rights[at].reason.as_str())
        };
        let reason = "RBAC: by RoleBinding \"dev\"";
        assert_eq!(of("pods/log", 0), (Some(true), reason));
        assert_eq!(of("pods", 0), (Some(false), reason));
        assert_eq!(of("secrets", 1), (None, "no reviews"));
        let failed = "the access review could not be evaluated: webhook is away";
        assert_eq!(of("configmaps", 0), (None, failed));
        assert_eq!(of("kustomizations.kustomize.toolkit.fluxcd.io", 3), (Some(false), reason));
    }
}
