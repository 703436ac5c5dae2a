//! Kinds that the API server does not serve. Their CustomResourceDefinition is not installed or was deleted, so they have no
//! objects.
//!
//! A kind counts as absent if a discovery document does not have it and its definition is absent, too. A list that fails is no
//! reason to conclude that a kind is absent. Elsewhere: kinds whose objects were listed (`observed_objects`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use objects::{Gvk, ObjectId};
use parking_lot::Mutex;

use super::observed_objects::ObservedKind;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The interval at which windlass checks which kinds are served.
pub(super) const KIND_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Whether and how the API server serves a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KindServedState {
    /// The kind is served in the version that windlass reads.
    Served,
    /// Not in that version. Its definition may be there and serve others, in which the objects live on.
    Unserved,
    /// The kind is not served: it has no definition and no objects.
    Absent,
}

/// The kinds that are not served, by group and kind.
#[derive(Default)]
pub(super) struct AbsentKinds(Mutex<AbsentKindChecks>);

#[derive(Default)]
struct AbsentKindChecks {
    ended: Option<Instant>,
    unserved: BTreeMap<[String; 2], KindServedState>,
}

impl AbsentKinds {
    /// Whether a kind was proved to have no objects, by group and kind.
    pub(super) fn has(&self, kind: &[String; 2]) -> bool {
        self.0.lock().unserved.get(kind) == Some(&KindServedState::Absent)
    }

    /// Whether a kind, by group and kind, is not served, so that it has no objects.
    pub(super) fn is_unserved(&self, kind: &[String; 2]) -> bool {
        self.0.lock().unserved.contains_key(kind)
    }

    /// Whether any kind is not served.
    pub(super) fn has_any(&self) -> bool {
        !self.0.lock().unserved.is_empty()
    }

    /// Checks which of the kinds are served, unless that was checked a short while ago.
    pub(super) async fn check(&self, rows: &[ObservedKind], cluster: &ClusterConnection) {
        let is_recent = |at: Instant| at.elapsed() < KIND_CHECK_INTERVAL;
        if self.0.lock().ended.is_some_and(is_recent) {
            return;
        }
        let mut unserved = BTreeMap::new();
        for row in rows {
            match service_of(cluster, &row.gvk(), &row.definition()).await {
                Ok(KindServedState::Served) => {}
                Ok(service) => {
                    unserved.insert(row.group_and_kind(), service);
                }
                Err(error) => {
                    tracing::debug!(error = %error, "cannot find out whether a kind is served");
                    // The API server does not work, so the other kinds are checked later.
                    if error.is_transient() {
                        break;
                    }
                }
            }
        }
        *self.0.lock() = AbsentKindChecks { ended: Some(Instant::now()), unserved };
    }
}

/// Whether and how a kind is served. If objects of the kind were found before, this needs no request until its definition
/// changes.
async fn service_of(
    cluster: &ClusterConnection,
    gvk: &Gvk,
    definition: &str,
) -> Result<KindServedState, ClusterError> {
    match cluster.resource(gvk).await {
        Ok(_) => return Ok(KindServedState::Served),
        Err(ClusterError::NoSuchKind { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(match is_defined(cluster, definition).await {
        Ok(false) => KindServedState::Absent,
        // Not every installation may read definitions.
        Ok(true) | Err(_) => KindServedState::Unserved,
    })
}

/// Whether a CustomResourceDefinition exists.
///
/// # Errors
/// The API server did not say so.
pub(super) async fn is_defined(
    cluster: &ClusterConnection,
    name: &str,
) -> Result<bool, ClusterError> {
    let definitions = ApiResourceLocation {
        gvk: Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        plural: "customresourcedefinitions".to_owned(),
        namespaced: false,
        watchable: true,
    };
    cluster.get(&definitions, "", name).await.map(|found| found.is_some())
}

/// The text for people about a deleted object of an absent kind.
pub(super) fn end_of_kind(subject: &ObjectId) -> String {
    let ObjectId { group, kind, .. } = subject;
    let object = subject.subject();
    format!(
        "The API server does not serve the kind {kind} of the group {group}, whose CustomResourceDefinition was deleted, so \
         {object} does not exist."
    )
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use fake_cluster::answering;
    use serde_json::json;

    use super::*;

    const DEFINITION: &str = "gitrepositories.source.toolkit.fluxcd.io";

    #[tokio::test]
    async fn a_kind_is_absent_if_discovery_and_its_definition_say_so_and_not_if_a_request_fails() {
        let groups = json!({"kind": "APIGroupList", "groups": []}).to_string();
        let not_found =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": "not found",
            "details": {"name": DEFINITION, "kind": "customresourcedefinitions"}})
            .to_string();
        let definition =
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION}})
            .to_string();
        let page = || "404 page not found".to_owned();
        for (discovery, defined, service) in [
            ((200, groups.clone()), (404, not_found.clone()), Some(KindServedState::Absent)),
            ((200, groups.clone()), (200, definition), Some(KindServedState::Unserved)),
            ((200, groups.clone()), (404, page()), Some(KindServedState::Unserved)),
            ((200, groups), (403, "{}".to_owned()), Some(KindServedState::Unserved)),
            ((404, page()), (404, not_found.clone()), None),
            ((403, "{}".to_owned()), (404, not_found), None),
        ] {
            let case = format!("{discovery:?} {defined:?}");
            let cluster = answering(move |(request, _)| {
                let (code, body) = match request.as_str() {
                    "GET /apis" => discovery.clone(),
                    it if it.contains("/customresourcedefinitions/") => defined.clone(),
                    _ => (404, page()),
                };
                (code, Body::from(body))
            })
            .await;
            let gvk = Gvk::new("source.toolkit.fluxcd.io/v1", "GitRepository");
            assert_eq!(service_of(&cluster, &gvk, DEFINITION).await.ok(), service, "{case}");
        }
    }

    #[test]
    fn the_end_of_an_incident_names_the_kind_that_is_not_served() {
        let id = ObjectId::new("apps", "app", "source.toolkit.fluxcd.io", "GitRepository");
        let text = end_of_kind(&id);
        for part in ["GitRepository/apps/app does not exist", "group source.toolkit.fluxcd.io"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
