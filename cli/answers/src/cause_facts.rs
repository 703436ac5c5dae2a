//! Fetches facts for the engine `cause` from a cluster, with the rights of the user.

use std::collections::BTreeMap;

use anyhow::bail;
use cause::{FactAnswer, FactAnswers, FactQuery, StateExplanation, last_seen};
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object, ObjectId};
use serde_json::{Map, Value};

use windlass_cli_runtime::incidents::open_incidents;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The maximum number of parallel requests.
pub const AT_ONCE: usize = 16;

/// The maximum number of times that the engine may ask for more facts.
const MAX_REQUEST_ROUNDS: usize = 200;

/// The maximum number of Pods or warning events that are read from a list.
const MOST_LISTED: usize = 10_000;

/// How many important items of a list are kept, and how many others.
const MOST_KEPT: usize = 1_000;

/// The metadata fields of an object that is being deleted. They say since when, and which finalizers are left.
const FIELDS_OF_DELETION: [&str; 3] =
    ["deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"];

/// The known facts of a cluster, and the connection that fetches more.
pub(crate) struct ClusterFactReader<'c> {
    cluster: &'c ClusterConnection,
    known: FactAnswers,
    kinds: BTreeMap<(String, String), ApiResourceLocation>,
}

impl<'c> ClusterFactReader<'c> {
    /// Makes a reader without any known facts.
    pub(super) fn new(cluster: &'c ClusterConnection) -> Self {
        Self { cluster, known: FactAnswers::default(), kinds: BTreeMap::new() }
    }

    /// The cluster from which the facts come.
    pub(super) fn cluster(&self) -> &'c ClusterConnection {
        self.cluster
    }

    /// The facts that are known so far.
    pub(super) fn known(&self) -> &FactAnswers {
        &self.known
    }

    /// Stores an object that was already read.
    pub(super) fn knows(&mut self, resource: &ApiResourceLocation, object: Object) {
        let id = object.id();
        self.kinds.insert((id.group.clone(), id.kind.clone()), resource.clone());
        self.known.insert(FactQuery::Object(id), FactAnswer::Objects(vec![without_data(object)]));
    }

    /// Stores that an applied object was listed and is healthy.
    pub(super) fn knows_well(&mut self, id: ObjectId) {
        self.known.insert_well(id);
    }

    /// Explains the state of an object.
    ///
    /// # Errors
    /// The API server stops responding.
    pub(super) async fn explain(&mut self, id: &ObjectId) -> anyhow::Result<StateExplanation> {
        for _ in 0..MAX_REQUEST_ROUNDS {
            match cause::explain(id, &self.known, jiff::Timestamp::now()) {
                Ok(why) => return Ok(why),
                Err(queries) => self.ask(queries).await?,
            }
        }
        bail!("no cause found after {MAX_REQUEST_ROUNDS} rounds of requests")
    }

    /// Fetches the missing facts, with several requests in parallel.
    ///
    /// # Errors
    /// The API server stops responding.
    pub(super) async fn ask(&mut self, queries: Vec<FactQuery>) -> anyhow::Result<()> {
        for query in &queries {
            if let FactQuery::Object(id) = query {
                self.find_kind(&id.group, &id.kind).await?;
            }
        }
        let answers: Vec<_> = {
            let this = &*self;
            let asked = queries.into_iter().map(|query| async move {
                let answer = this.answer(&query).await;
                (query, answer)
            });
            stream::iter(asked).buffer_unordered(AT_ONCE).collect().await
        };
        for (query, answer) in answers {
            let answer = match answer {
                Ok(answer) => answer,
                // If the API server did not respond, windlass draws no conclusions.
                Err(error @ ClusterError::NoAnswer(_))
                    if !matches!(query, FactQuery::Lines { .. }) =>
                {
                    return Err(error.into());
                }
                Err(error) => FactAnswer::Refused(error.to_string()),
            };
            self.known.insert(query, answer);
        }
        Ok(())
    }

    /// Finds the API resource of a kind. It prefers the version in which the objects were applied, and otherwise uses the
    /// version that the cluster prefers.
    ///
    /// # Errors
    /// The API server did not respond.
    pub(super) async fn applied_kind(
        &mut self,
        applied: &Gvk,
    ) -> Result<Option<ApiResourceLocation>, ClusterError> {
        let key = (applied.group.clone(), applied.kind.clone());
        if !self.kinds.contains_key(&key) {
            match self.cluster.resource(applied).await {
                Ok(resource) => drop(self.kinds.insert(key.clone(), resource)),
                Err(ClusterError::NoSuchKind { .. }) => {
                    self.find_kind(&applied.group, &applied.kind).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.kinds.get(&key).cloned())
    }

    /// Finds out in which version the cluster serves a kind.
    async fn find_kind(&mut self, group: &str, kind: &str) -> Result<(), ClusterError> {
        let key = (group.to_owned(), kind.to_owned());
        if !self.kinds.contains_key(&key)
            && let Some(resource) = resource(self.cluster, group, kind).await?
        {
            self.kinds.insert(key, resource);
        }
        Ok(())
    }

    async fn answer(&self, query: &FactQuery) -> Result<FactAnswer, ClusterError> {
        match query {
            FactQuery::Object(id) => {
                let Some(resource) = self.kinds.get(&(id.group.clone(), id.kind.clone())) else {
                    return Ok(FactAnswer::Refused(unserved(&id.kind)));
                };
                let found = self.cluster.get(resource, &id.namespace, &id.name).await?;
                Ok(FactAnswer::Objects(found.into_iter().map(without_data).collect()))
            }
            FactQuery::Pods { namespace, selector } => {
                let resource = &self.cluster.resource(&Gvk::new("v1", "Pod")).await?;
                let label_selector = selector.as_str();
                let query = ObjectQuery { resource, namespace, label_selector, field_selector: "" };
                Ok(FactAnswer::Objects(self.pods(query).await?))
            }
            FactQuery::Warnings(namespace) => {
                let resource = &self.cluster.resource(&Gvk::new("v1", "Event")).await?;
                let field_selector = "type=Warning";
                let query = ObjectQuery { resource, namespace, label_selector: "", field_selector };
                Ok(FactAnswer::Objects(self.warnings(query).await?))
            }
            FactQuery::Incidents { namespace, kind } => {
                let found = match open_incidents(self.cluster, namespace, kind).await {
                    // If the CRD of the objects is missing, there are no such objects.
                    Err(ClusterError::NoSuchKind { .. }) => Vec::new(),
                    found => found?,
                };
                Ok(FactAnswer::Objects(found))
            }
            FactQuery::Lines { namespace, pod, container } => {
                let printed = self.cluster.last_lines(namespace, pod, container).await?;
                Ok(FactAnswer::Lines(printed.lines().map(str::to_owned).collect()))
            }
        }
    }

    /// The Pods of a list. Pods with problems come first and are kept whole. Only the names of the other Pods are kept.
    async fn pods(&self, query: ObjectQuery<'_>) -> Result<Vec<Object>, ClusterError> {
        let mut in_trouble = Vec::new();
        let mut others = Vec::new();
        let mut read = 0;
        let mut pages = self.cluster.object_pages(query);
        while let Some(page) = pages.next().await? {
            read += page.objects.len();
            for mut pod in page.objects {
                let is_in_trouble = cause::pod::trouble(&pod).is_some();
                let kept = if is_in_trouble { &mut in_trouble } else { &mut others };
                if kept.len() >= MOST_KEPT {
                    continue;
                }
                if !is_in_trouble {
                    pod.fields_mut()
                        .retain(|field, _| !matches!(field.as_str(), "spec" | "status"));
                }
                kept.push(pod);
            }
            if read >= MOST_LISTED {
                break;
            }
        }
        in_trouble.append(&mut others);
        Ok(in_trouble)
    }

    /// The newest warning event for each object of a list.
    async fn warnings(&self, query: ObjectQuery<'_>) -> Result<Vec<Object>, ClusterError> {
        let mut newest: BTreeMap<[String; 2], Object> = BTreeMap::new();
        let mut read = 0;
        let mut pages = self.cluster.object_pages(query);
        while let Some(page) = pages.next().await? {
            read += page.objects.len();
            for event in page.objects {
                let of = event.get("involvedObject").unwrap_or(&Value::Null);
                let about =
                    ["kind", "name"].map(|key| of[key].as_str().unwrap_or_default().to_owned());
                let known = newest.get(&about);
                let is_newer = known.is_none_or(|known| last_seen(known) < last_seen(&event));
                if is_newer && (known.is_some() || newest.len() < MOST_LISTED) {
                    newest.insert(about, event);
                }
            }
            if read >= MOST_LISTED {
                break;
            }
        }
        Ok(newest.into_values().collect())
    }
}

/// Finds the API resource of a kind in the version that the cluster prefers. Kinds of windlass and Flux use the version of
/// `crds`.
///
/// # Errors
/// The API server did not respond.
pub async fn resource(
    cluster: &ClusterConnection,
    group: &str,
    kind: &str,
) -> Result<Option<ApiResourceLocation>, ClusterError> {
    let versions = crds::names().filter(|it| it.group == group && it.kind == kind);
    let ours = versions.map(|it| it.version).next();
    let core = [("", "v1"), ("apps", "v1"), ("batch", "v1")];
    let version = ours.or_else(|| core.iter().find(|it| it.0 == group).map(|it| it.1));
    if let Some(version) = version {
        let gvk =
            Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() };
        return match cluster.resource(&gvk).await {
            Ok(resource) => Ok(Some(resource)),
            Err(ClusterError::NoSuchKind { .. }) => Ok(None),
            Err(error) => Err(error),
        };
    }
    let found = cluster.kinds_called(&format!("{}.{group}", kind.to_lowercase())).await?;
    Ok(found.into_iter().find(|it| it.gvk.kind == kind))
}

/// The message about a kind that the cluster does not serve.
pub fn unserved(kind: &str) -> String {
    format!("the cluster does not serve the kind {kind}")
}

/// Reads an object of any kind. Returns `None` if it does not exist.
///
/// # Errors
/// A message for the user. The cluster does not serve the kind, or the API server refused or did not respond.
pub async fn read(cluster: &ClusterConnection, id: &ObjectId) -> Result<Option<Object>, String> {
    let found = resource(cluster, &id.group, &id.kind).await.map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| unserved(&id.kind))?;
    cluster.get(&found, &id.namespace, &id.name).await.map_err(|error| error.to_string())
}

/// Removes the values of a Secret or ConfigMap. windlass only needs to know whether the object exists, which keys it has, who
/// owns it, and whether it is being deleted.
fn without_data(mut object: Object) -> Object {
    if matches!(object.kind(), "Secret" | "ConfigMap") && object.api_version() == "v1" {
        let mut metadata = cause::object_owners::marks(&object);
        metadata.insert("name".to_owned(), object.name().into());
        metadata.insert("namespace".to_owned(), object.namespace().into());
        for field in FIELDS_OF_DELETION {
            let said = object.meta(field).cloned();
            metadata.extend(said.map(|said| (field.to_owned(), said)));
        }
        let keys = |field: &str| {
            let data = object.get(field).and_then(Value::as_object).into_iter().flatten();
            data.map(|(key, _)| (key.clone(), Value::from(""))).collect::<Vec<_>>()
        };
        let data: Map<String, Value> = keys("data").into_iter().chain(keys("binaryData")).collect();
        object.fields_mut().retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind"));
        object.fields_mut().insert("metadata".to_owned(), metadata.into());
        object.fields_mut().insert("data".to_owned(), data.into());
    }
    object
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;

    use super::*;
    use fake_cluster::{answering, with_objects};

    #[tokio::test]
    async fn a_pod_in_trouble_is_found_on_any_page_and_comes_first() {
        let cluster = answering(|(request, _)| {
            let pod = |name: &str, state: &Value| {
                json!({"metadata": {"name": name, "namespace": "apps"}, "spec": {"nodeName": "n"},
                    "status": {"containerStatuses": [{"name": "app", "state": state}]}})
            };
            let resources = json!([{"name": "pods", "singularName": "", "kind": "Pod",
                "namespaced": true, "verbs": ["list"]}]);
            let crashing = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            let answer = match () {
                () if !request.contains("/pods") => {
                    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources})
                }
                () if request.contains("continue=") => {
                    json!({"metadata": {}, "items": [pod("b", &crashing)]})
                }
                () => {
                    json!({"metadata": {"continue": "next"}, "items": [pod("a", &json!({"running": {}}))]})
                }
            };
            (200, Body::from(answer.to_string()))
        });
        let cluster = cluster.await;
        let mut facts = ClusterFactReader::new(&cluster);
        let query =
            FactQuery::Pods { namespace: "apps".to_owned(), selector: "app=web".to_owned() };
        facts.ask(vec![query.clone()]).await.unwrap();
        let Some(FactAnswer::Objects(pods)) = facts.known().get(&query) else {
            panic!("{:?}", facts.known())
        };
        let names: Vec<&str> = pods.iter().map(Object::name).collect();
        assert_eq!(names, ["b", "a"]);
        assert!(pods[1].get("spec").is_none(), "no more is kept of it than its name");
    }

    #[tokio::test]
    async fn a_cluster_without_the_definition_of_incidents_has_none() {
        let (cluster, _) = with_objects(Vec::new()).await;
        let mut facts = ClusterFactReader::new(&cluster);
        let query =
            FactQuery::Incidents { namespace: "apps".to_owned(), kind: "Provider".to_owned() };
        facts.ask(vec![query.clone()]).await.unwrap();
        let answer = facts.known().get(&query);
        let is_empty = matches!(answer, Some(FactAnswer::Objects(found)) if found.is_empty());
        assert!(is_empty, "{answer:?}");
    }

    #[test]
    fn a_map_without_its_values_is_known_to_be_terminating() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stuck", "namespace": "shop",
            "deletionTimestamp": "2026-11-24T11:59:00Z", "finalizers": ["example.com/hold"]}});
        let map = without_data(Object::new(map).unwrap());
        let id = map.id();
        let mut known = FactAnswers::default();
        known.insert(FactQuery::Object(id.clone()), FactAnswer::Objects(vec![map]));
        known.insert(FactQuery::Warnings("shop".to_owned()), FactAnswer::Objects(Vec::new()));
        let why = cause::explain(&id, &known, jiff::Timestamp::now()).unwrap();
        let line = "ConfigMap/shop/stuck is not ready: is being deleted and waits for its finalizers example.com/hold";
        assert_eq!(why.line(), line);
    }

    #[test]
    fn keys_of_secrets_are_known_and_values_are_not() {
        let secret = Object::new(json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "a", "namespace": "b", "annotations": {"x": "hunter2"},
                "labels": {"kustomize.toolkit.fluxcd.io/name": "app"}},
            "data": {"token": "aHVudGVyMg=="}}));
        let kept = without_data(secret.unwrap()).into_value();
        assert_eq!(kept["data"], json!({"token": ""}));
        assert_eq!(kept["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"], "app");
        assert!(!kept.to_string().contains("hunter2") && !kept.to_string().contains("aHVudGVyMg"));
        let empty = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        let kept = without_data(Object::new(empty).unwrap());
        assert_eq!(kept.get("data"), Some(&json!({})));
    }
}
