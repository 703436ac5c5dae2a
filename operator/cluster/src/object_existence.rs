//! Finds out whether an object exists, in any served version of its kind.
//!
//! windlass concludes that an object is absent from a 404 about the object itself. If its kind is not served, the discovery
//! must be complete and no CRD of the kind may exist. A path at which nothing is served proves nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::Request;
use objects::{Gvk, Object, ObjectId};
use parking_lot::Mutex;
use serde_json::Value;

use super::capabilities::AGGREGATED;
use super::object_decode::{METADATA, METADATA_LIST};
use super::{ClusterConnection, ClusterError, throttled_requests};

/// How long the absence of a kind is remembered, because windlass often asks about many objects of one kind.
const ABSENCE_CACHE_TTL: Duration = Duration::from_secs(5);

/// The time limit of a request about CRDs.
const CRD_REQUEST_TIMEOUT: Duration = Duration::from_secs(40);

/// The time limit of the request that identifies a cluster.
const UID_LIMIT: Duration = Duration::from_secs(5);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The kinds that were found to be absent, by group and kind.
#[derive(Default)]
pub(super) struct AbsenceCache(Mutex<BTreeMap<(String, String), Instant>>);

impl AbsenceCache {
    fn has(&self, id: &ObjectId) -> bool {
        let known = self.0.lock();
        let at = known.get(&(id.group.clone(), id.kind.clone()));
        at.is_some_and(|at| at.elapsed() < ABSENCE_CACHE_TTL)
    }

    fn add(&self, id: &ObjectId) {
        let mut known = self.0.lock();
        known.retain(|_, at| at.elapsed() < ABSENCE_CACHE_TTL);
        known.insert((id.group.clone(), id.kind.clone()), Instant::now());
    }

    /// Forgets the absent kinds of a group, because one of its CRDs changed.
    pub(super) fn forget_group(&self, group: &str) {
        self.0.lock().retain(|(of, _), _| of != group);
    }
}

/// The versions in which a group serves a kind.
#[derive(Debug, PartialEq, Eq)]
struct KindAvailability {
    /// The versions that serve the kind. The preferred version is the first.
    versions: Vec<String>,
    /// The versions of the group whose discovery is outdated, because their API server does not respond.
    stale: Vec<String>,
}

impl KindAvailability {
    /// Reads this from the answer of aggregated discovery.
    fn of(answer: &Value, group: &str, kind: &str) -> Result<Self, ClusterError> {
        if answer.get("kind").and_then(Value::as_str) != Some("APIGroupDiscoveryList") {
            let text =
                "aggregated discovery is not supported; windlass requires Kubernetes 1.26 or later";
            return Err(ClusterError::NoAnswer(text.to_owned()));
        }
        let mut versions = Vec::new();
        let mut stale = Vec::new();
        let text = |value: &Value, path: &str| {
            value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let list = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let groups = list(answer, "items");
        for of_group in groups.iter().filter(|it| text(it, "/metadata/name") == group) {
            for version in list(of_group, "versions") {
                let resources = list(&version, "resources");
                if resources.iter().any(|it| text(it, "/responseKind/kind") == kind) {
                    versions.push(text(&version, "/version"));
                }
                if text(&version, "/freshness") == "Stale" {
                    stale.push(text(&version, "/version"));
                }
            }
        }
        Ok(Self { versions, stale })
    }
}

impl ClusterConnection {
    /// Reads an object in `version`, or in any other version that serves its kind. `None` if the object does not exist.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found". For a kind that is not
    /// served, it is an error if the discovery is incomplete or a CRD of the kind exists. The objects may then still exist.
    pub async fn get_by_id(
        &self,
        id: &ObjectId,
        version: &str,
    ) -> Result<Option<Object>, ClusterError> {
        match self.get_in(id, version).await {
            Err(ClusterError::NoSuchKind { .. }) => {}
            answer => return answer,
        }
        if self.discovery.absent().has(id) {
            return Ok(None);
        }
        let path = if id.group.is_empty() { "/api" } else { "/apis" };
        let offer = KindAvailability::of(&self.ask(path, AGGREGATED).await?, &id.group, &id.kind)?;
        for other in &offer.versions {
            match self.get_in(id, other).await {
                Err(ClusterError::NoSuchKind { .. }) => {}
                answer => return answer,
            }
        }
        let why = if !offer.versions.is_empty() {
            format!("discovery lists it in {}, where it is not served", offer.versions.join(", "))
        } else if !offer.stale.is_empty() {
            let stale = offer.stale.join(", ");
            format!("the API server cannot reach what serves version {stale} of group {}", id.group)
        } else if let Some(name) = self.crd_of(id).await? {
            format!(
                "CustomResourceDefinition {name} serves none of its versions; set `served: true` for one of them"
            )
        } else {
            self.discovery.absent().add(id);
            return Ok(None);
        };
        let subject = id.subject();
        Err(ClusterError::NoAnswer(format!("cannot tell whether {subject} was deleted: {why}")))
    }

    async fn get_in(&self, id: &ObjectId, version: &str) -> Result<Option<Object>, ClusterError> {
        let gvk = Gvk { group: id.group.clone(), version: version.into(), kind: id.kind.clone() };
        let resource = self.resource(&gvk).await?;
        self.get(&resource, &id.namespace, &id.name).await
    }

    /// The uid of the namespace `kube-system`, which distinguishes this cluster from another one at the same address. `None`
    /// if the API server does not return it.
    pub async fn system_uid(&self) -> Option<String> {
        let asked = self.ask_ourselves("/api/v1/namespaces/kube-system", "application/json");
        let answer = tokio::time::timeout(UID_LIMIT, asked).await.ok()?.ok()?;
        let uid = answer.pointer("/metadata/uid").and_then(Value::as_str);
        uid.filter(|uid| !uid.is_empty()).map(str::to_owned)
    }

    /// Whether a kind is being removed with all its objects, because its CRD is being deleted or is gone.
    ///
    /// # Errors
    /// The API server gives no clear answer. The caller must then assume neither.
    pub async fn is_kind_leaving(&self, crd: &str) -> Result<bool, ClusterError> {
        match self.ask_ourselves(&format!("{CRDS}/{crd}"), METADATA).await {
            Ok(found) => {
                Ok(found.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()))
            }
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The name of the CRD that defines a kind, if one exists.
    async fn crd_of(&self, id: &ObjectId) -> Result<Option<String>, ClusterError> {
        let suffix = format!(".{}", id.group);
        let unanswered = |error: ClusterError| {
            let subject = id.subject();
            ClusterError::NoAnswer(format!(
                "cannot tell whether {subject} was deleted: its kind is not served, and CustomResourceDefinitions \
                 cannot be read: {error}"
            ))
        };
        let all = self.ask_ourselves(CRDS, METADATA_LIST).await.map_err(unanswered)?;
        let Some(items) = all.get("items").and_then(Value::as_array) else {
            return Err(unanswered(ClusterError::NoAnswer(
                "the response is not a list".to_owned(),
            )));
        };
        let names = items.iter().filter_map(|it| it.pointer("/metadata/name")?.as_str());
        for name in names.filter(|name| name.ends_with(&suffix)) {
            let path = format!("{CRDS}/{name}");
            match self.ask_ourselves(&path, "application/json").await {
                Ok(found) => {
                    let kind = found.pointer("/spec/names/kind").and_then(Value::as_str);
                    if kind == Some(&id.kind) {
                        return Ok(Some(name.to_owned()));
                    }
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(unanswered(error)),
            }
        }
        Ok(None)
    }

    /// Sends the request as windlass itself, or as the kubeconfig's own user. Few tenants may read CRDs.
    async fn ask_ourselves(&self, path: &str, accept: &str) -> Result<Value, ClusterError> {
        let request = Request::get(path)
            .header(http::header::ACCEPT, accept)
            .body(Vec::new())
            .map_err(|error| ClusterError::NoAnswer(format!("{path} is not a path: {error}")))?;
        match tokio::time::timeout(CRD_REQUEST_TIMEOUT, self.ourselves.request::<Value>(request))
            .await
        {
            Ok(answer) => answer.map_err(throttled_requests::noted),
            Err(_) => Err(ClusterError::NoAnswer(format!(
                "{path} took longer than {CRD_REQUEST_TIMEOUT:?}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;

    use super::*;
    use crate::fake_cluster::{answering, with_objects};

    #[tokio::test]
    async fn a_kind_leaves_with_its_definition_and_silence_proves_nothing() {
        let crd = |name: &str, deleted: Value| {
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name, "deletionTimestamp": deleted},
            })
        };
        let objects =
            vec![crd("as.acme.io", Value::Null), crd("bs.acme.io", json!("2026-01-01T00:00:00Z"))];
        let (cluster, _) = with_objects(objects).await;
        for (name, leaves) in [("as.acme.io", false), ("bs.acme.io", true), ("cs.acme.io", true)] {
            assert_eq!(cluster.is_kind_leaving(name).await.ok(), Some(leaves), "{name}");
        }
        for code in [403, 503] {
            let cluster = answering(move |_| (code, Body::from("{}"))).await;
            assert!(cluster.is_kind_leaving("as.acme.io").await.is_err(), "{code}");
        }
    }

    fn offer(versions: &Value, kind: &str) -> KindAvailability {
        let group = json!({"metadata": {"name": "acme.io"}, "versions": versions});
        let other = json!({"metadata": {"name": "b.io"}, "versions": [{"version": "v9", "freshness": "Stale",
            "resources": [{"responseKind": {"kind": "Widget"}}]}]});
        let answer = json!({"kind": "APIGroupDiscoveryList", "items": [other, group]});
        KindAvailability::of(&answer, "acme.io", kind).unwrap()
    }

    #[test]
    fn every_version_that_serves_a_kind_is_found() {
        let resources = |kind: &str| json!([{"resource": "x", "responseKind": {"kind": kind}}]);
        let versions = json!([
            {"version": "v2", "freshness": "Current", "resources": resources("Widget")},
            {"version": "v1", "freshness": "Current", "resources": resources("Widget")},
            {"version": "v0", "freshness": "Current", "resources": resources("Gadget")},
        ]);
        assert_eq!(offer(&versions, "Widget").versions, ["v2", "v1"]);
        let none = KindAvailability { versions: Vec::new(), stale: Vec::new() };
        assert_eq!(offer(&versions, "Nothing"), none);
    }

    #[test]
    fn an_aggregated_api_that_is_down_is_no_absence() {
        let versions = json!([{"version": "v1", "freshness": "Stale"}]);
        assert_eq!(offer(&versions, "Widget").stale, ["v1"]);
    }

    #[test]
    fn an_answer_that_is_no_discovery_is_no_absence() {
        assert!(
            KindAvailability::of(&json!({"kind": "APIGroupList"}), "acme.io", "Widget").is_err()
        );
        assert!(KindAvailability::of(&json!({}), "acme.io", "Widget").is_err());
    }
}
