//! Reads the facts of a cluster, with the rights of the user.
//!
//! Elsewhere: the format (`cluster_facts_file.rs`), the command (`cluster_facts_command.rs`).
//!
//! If the API server refuses a request, the facts name the part that could not be read, and nothing is concluded from it.
//! Values of Secrets are discarded immediately. Values of ConfigMaps are discarded, too, unless they are exported.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use futures::stream::{self, StreamExt as _};
use kustomize::openapi_schema::OpenApiSchemas;
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use super::cluster_facts_file::{
    ClusterFacts, KindScope, LABELLING_APPLIERS, ReferencedObjectFact, references_of,
};
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The appliers whose references are read, with the API versions that windlass serves.
const APPLIERS: [(&str, &str); 2] = [
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
];

/// The maximum number of parallel requests.
pub(crate) const MAX_CONCURRENT_REQUESTS: usize = 8;

/// The maximum number of ConfigMaps and Secrets.
pub(crate) const MAX_REFERENCES: usize = 10_000;

/// Which facts are read from a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterFactsQuery<'q> {
    /// The namespace whose appliers are read. Empty for all namespaces.
    pub(crate) namespace: &'q str,
    /// Whether values of ConfigMaps are read.
    pub(crate) with_values: bool,
}

/// The facts that were read from a cluster.
pub(crate) struct ClusterFactsReadResult {
    pub(crate) facts: ClusterFacts,
    /// The parts that could not be read, with the reasons.
    pub(crate) left_out: Vec<String>,
}

/// Reads the facts of a cluster.
///
/// # Errors
/// The discovery of API kinds fails, the cluster stops responding, or there are too many references.
pub(crate) async fn read(
    cluster: &ClusterConnection,
    query: ClusterFactsQuery<'_>,
) -> anyhow::Result<ClusterFactsReadResult> {
    let mut reading =
        ClusterFactsReadResult { facts: ClusterFacts::default(), left_out: Vec::new() };
    reading.read_kinds(cluster).await?;
    let references = reading.read_appliers(cluster, query.namespace).await?;
    let kinds = ConfigMapAndSecretResources::of(cluster).await?;
    let asked = references.iter().map(|id| {
        let kinds = &kinds;
        async move { (id, kinds.fact(cluster, id, query.with_values).await) }
    });
    let answers: Vec<_> =
        stream::iter(asked).buffer_unordered(MAX_CONCURRENT_REQUESTS).collect().await;
    let mut refusals = BTreeMap::new();
    for (id, answer) in answers {
        let subject = id.subject();
        match answer {
            Ok(fact) => drop(reading.facts.references.insert(subject, fact)),
            Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
            Err(error) => drop(refusals.insert(subject, error)),
        }
    }
    for (subject, error) in refusals {
        reading.leave_out(subject, &error.to_string());
    }
    Ok(reading)
}

/// Reads which kinds a cluster serves, without reading objects.
///
/// # Errors
/// The discovery of API kinds fails.
pub(crate) async fn served_kinds(cluster: &ClusterConnection) -> anyhow::Result<ClusterFacts> {
    let mut reading =
        ClusterFactsReadResult { facts: ClusterFacts::default(), left_out: Vec::new() };
    reading.read_kinds(cluster).await?;
    Ok(reading.facts)
}

impl ClusterFactsReadResult {
    fn leave_out(&mut self, what: String, why: &str) {
        self.left_out.push(format!("{what}: {why}"));
        self.facts.not_read.insert(what);
    }

    /// Reads which kinds the API server serves.
    async fn read_kinds(&mut self, cluster: &ClusterConnection) -> anyhow::Result<()> {
        let served = cluster.served().await?;
        self.facts.kubernetes_version.clone_from(&served.version);
        self.facts.api_versions = served.api_versions.iter().cloned().collect();
        let kinds = cluster.served_kinds().await?;
        for ApiResourceLocation { gvk, namespaced, .. } in kinds.kinds {
            let is_builtin =
                OpenApiSchemas::builtin().is_namespaced(&gvk.api_version(), &gvk.kind).is_some();
            if !is_builtin && !gvk.kind.is_empty() && !gvk.group.is_empty() {
                let scope = if namespaced { KindScope::Namespaced } else { KindScope::Cluster };
                self.facts.scopes.insert(format!("{}.{}", gvk.kind, gvk.group), scope);
            }
        }
        for version in kinds.stale_versions {
            self.leave_out(version, "the API server that serves it does not respond");
        }
        Ok(())
    }

    /// Reads the ConfigMaps and Secrets that appliers name.
    async fn read_appliers(
        &mut self,
        cluster: &ClusterConnection,
        namespace: &str,
    ) -> anyhow::Result<BTreeSet<ObjectId>> {
        let mut references = BTreeSet::new();
        for (api_version, kind) in APPLIERS {
            match references_of_kind(cluster, &Gvk::new(api_version, kind), namespace).await {
                Ok(found) => references.extend(found),
                // Discovery is complete, and the cluster does not serve this kind.
                Err(ClusterError::NoSuchKind { .. }) => {}
                Err(error @ ClusterError::NoAnswer(_)) => return Err(error.into()),
                Err(error) => self.leave_out(kind.to_owned(), &error.to_string()),
            }
            if references.len() > MAX_REFERENCES {
                bail!(
                    "the appliers name more than {MAX_REFERENCES} ConfigMaps and Secrets; choose a --namespace"
                );
            }
        }
        Ok(references)
    }
}

/// The ConfigMaps and Secrets that the appliers of a kind name.
async fn references_of_kind(
    cluster: &ClusterConnection,
    gvk: &Gvk,
    namespace: &str,
) -> Result<BTreeSet<ObjectId>, ClusterError> {
    let resource = cluster.resource(gvk).await?;
    let query = ObjectQuery { namespace, ..ObjectQuery::all(&resource) };
    let mut pages = cluster.object_pages(query);
    let mut found = BTreeSet::new();
    while let Some(page) = pages.next().await? {
        for applier in page.objects {
            let spec = applier.get("spec").unwrap_or(&Value::Null);
            found.extend(references_of(spec, applier.namespace()).into_iter().map(|it| it.id));
        }
        if found.len() > MAX_REFERENCES {
            break;
        }
    }
    Ok(found)
}

/// The API resources of ConfigMaps and Secrets.
pub(crate) struct ConfigMapAndSecretResources {
    config_maps: ApiResourceLocation,
    secrets: ApiResourceLocation,
}

impl ConfigMapAndSecretResources {
    /// Finds both API resources in a cluster.
    ///
    /// # Errors
    /// The discovery of API kinds fails.
    pub(crate) async fn of(cluster: &ClusterConnection) -> Result<Self, ClusterError> {
        Ok(Self {
            config_maps: cluster.resource(&Gvk::new("v1", "ConfigMap")).await?,
            secrets: cluster.resource(&Gvk::new("v1", "Secret")).await?,
        })
    }

    /// The facts about a ConfigMap or Secret.
    async fn fact(
        &self,
        cluster: &ClusterConnection,
        id: &ObjectId,
        with_values: bool,
    ) -> Result<ReferencedObjectFact, ClusterError> {
        let found = self.object(cluster, id).await?;
        let with_values = with_values && id.kind != "Secret";
        Ok(found.map_or_else(ReferencedObjectFact::absent, |object| fact_of(&object, with_values)))
    }

    /// Reads a ConfigMap or Secret. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub(crate) async fn object(
        &self,
        cluster: &ClusterConnection,
        id: &ObjectId,
    ) -> Result<Option<Object>, ClusterError> {
        let resource = if id.kind == "Secret" { &self.secrets } else { &self.config_maps };
        cluster.get(resource, &id.namespace, &id.name).await
    }
}

/// The facts about a ConfigMap or Secret that are exported.
pub(crate) fn fact_of(object: &Object, with_values: bool) -> ReferencedObjectFact {
    let fields = ["data", "binaryData"].map(|field| object.get(field).and_then(Value::as_object));
    let keys = fields.into_iter().flatten().flat_map(|fields| fields.keys().cloned()).collect();
    let [data, _] = fields;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let values = || {
        let data = data.into_iter().flatten();
        data.map(|(key, value)| (key.clone(), text(value))).collect()
    };
    let applied_by = LABELLING_APPLIERS.iter().find_map(|(group, kind)| {
        let label = |name: &str| object.label(&format!("{group}/{name}"));
        Some(format!("{kind}/{}/{}", label("namespace")?, label("name")?))
    });
    ReferencedObjectFact { exists: true, applied_by, keys, data: with_values.then(values) }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use fake_cluster::answering;
    use serde_json::json;

    use super::*;

    fn discovery(items: &Value) -> Value {
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
    }

    fn resources(group_version: &str, kinds: &[(&str, &str)]) -> Value {
        let resource = |(plural, kind): &(&str, &str)| json!({"name": plural, "singularName": "", "kind": kind, "namespaced": true, "verbs": ["list", "get"]});
        let resources: Vec<Value> = kinds.iter().map(resource).collect();
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
    }

    fn forbidden(what: &str) -> (u16, Value) {
        let message = format!("{what} is forbidden: User \"a\" cannot get resource");
        (
            403,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": message}),
        )
    }

    fn not_found(name: &str) -> (u16, Value) {
        (
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound",
            "message": format!("{name} not found"), "details": {"name": name}}),
        )
    }

    /// The answers of a cluster in which a Kustomization names four objects, and the user may not list HelmReleases.
    fn answer(path: &str) -> (u16, Value) {
        let kustomization = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {"postBuild":
            {"substituteFrom": [{"kind": "ConfigMap", "name": "vars"}, {"kind": "Secret", "name": "db"},
                {"kind": "ConfigMap", "name": "gone"}, {"kind": "Secret", "name": "hidden"}]}}});
        let widgets = json!([{"metadata": {"name": "acme.io"}, "versions": [
            {"version": "v1", "freshness": "Current", "resources": [
                {"resource": "widgets", "scope": "Cluster", "responseKind": {"kind": "Widget"}, "verbs": []}]},
            {"version": "v2", "freshness": "Stale"}]}]);
        let of_secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "db", "namespace": "shop"},
            "data": {"password": "aHVudGVyMg=="}});
        let of_map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "vars", "namespace": "shop",
                "labels": {"kustomize.toolkit.fluxcd.io/name": "infra", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}},
            "data": {"zone": "eu"}, "binaryData": {"logo": "AA=="}});
        match path {
            "/version" => (200, json!({"gitVersion": "v1.35.0", "major": "1", "minor": "35"})),
            "/api" => (200, discovery(&json!([]))),
            "/apis" => (200, discovery(&widgets)),
            "/api/v1" => {
                (200, resources("v1", &[("configmaps", "ConfigMap"), ("secrets", "Secret")]))
            }
            "/apis/kustomize.toolkit.fluxcd.io/v1" => (
                200,
                resources("kustomize.toolkit.fluxcd.io/v1", &[("kustomizations", "Kustomization")]),
            ),
            "/apis/helm.toolkit.fluxcd.io/v2" => {
                (200, resources("helm.toolkit.fluxcd.io/v2", &[("helmreleases", "HelmRelease")]))
            }
            "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations" => (
                200,
                json!({"kind": "KustomizationList", "metadata": {}, "items": [kustomization]}),
            ),
            "/api/v1/namespaces/shop/configmaps/vars" => (200, of_map),
            "/api/v1/namespaces/shop/secrets/db" => (200, of_secret),
            "/api/v1/namespaces/shop/configmaps/gone" => not_found("gone"),
            other => forbidden(other),
        }
    }

    async fn reading(with_values: bool) -> ClusterFactsReadResult {
        let cluster = answering(|(request, _)| {
            let path = request.trim_start_matches("GET ").split('?').next().unwrap_or_default();
            let (code, body) = answer(path);
            (code, Body::from(body.to_string()))
        });
        read(&cluster.await, ClusterFactsQuery { namespace: "", with_values }).await.unwrap()
    }

    #[tokio::test]
    async fn keys_are_exported_and_values_of_config_maps_on_demand_only() {
        let plain = reading(false).await.facts;
        assert_eq!(plain.kubernetes_version, "v1.35.0");
        assert_eq!(plain.scopes.get("Widget.acme.io"), Some(&KindScope::Cluster));
        assert!(plain.api_versions.contains("acme.io/v1/Widget"));
        let map = &plain.references["ConfigMap/shop/vars"];
        assert_eq!(map.keys, BTreeSet::from(["logo".to_owned(), "zone".to_owned()]));
        assert_eq!(map.data, None);
        assert_eq!(map.applied_by.as_deref(), Some("Kustomization/flux-system/infra"));
        let valued = reading(true).await.facts;
        let map = &valued.references["ConfigMap/shop/vars"];
        assert_eq!(map.data, Some(BTreeMap::from([("zone".to_owned(), "eu".to_owned())])));
        let secret = &valued.references["Secret/shop/db"];
        assert!(secret.keys.contains("password") && secret.data.is_none(), "{secret:?}");
        let text = serde_json::to_string(&valued).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_named_and_is_not_absent() {
        let ClusterFactsReadResult { facts, left_out } = reading(false).await;
        assert_eq!(facts.references["ConfigMap/shop/gone"], ReferencedObjectFact::absent());
        assert!(!facts.references.contains_key("Secret/shop/hidden"));
        let named: Vec<&str> = facts.not_read.iter().map(String::as_str).collect();
        assert_eq!(named, ["HelmRelease", "Secret/shop/hidden", "acme.io/v2"]);
        assert_eq!(left_out.len(), 3, "{left_out:?}");
    }
}
