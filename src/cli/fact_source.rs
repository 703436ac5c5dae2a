//! Facts for the engine `cause`, fetched from a cluster with the rights of the user.

use std::collections::BTreeMap;

use anyhow::bail;
use cause::{FactAnswer, Query, QueryAnswers, Why};
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object, ObjectId};
use serde_json::{Map, Value, json};

use windlass_cluster::discovery::Resource;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{Cluster, ClusterError};

/// How many requests are under way at once.
pub(super) const AT_ONCE: usize = 16;

/// How often the engine may ask.
const MAX_REQUEST_ROUNDS: usize = 200;

/// What is known of a cluster, and how more is found out.
pub(super) struct Facts<'c> {
    cluster: &'c Cluster,
    known: QueryAnswers,
    kinds: BTreeMap<(String, String), Resource>,
}

impl<'c> Facts<'c> {
    pub(super) fn new(cluster: &'c Cluster) -> Self {
        Self { cluster, known: QueryAnswers::default(), kinds: BTreeMap::new() }
    }

    /// Remembers an object that was read already.
    pub(super) fn knows(&mut self, resource: &Resource, object: Object) {
        let id = object.id();
        self.kinds.insert((id.group.clone(), id.kind.clone()), resource.clone());
        self.known.insert(Query::Object(id), FactAnswer::Objects(vec![without_data(object)]));
    }

    /// Explains an object.
    ///
    /// # Errors
    /// The cluster stops to answer.
    pub(super) async fn explain(&mut self, id: &ObjectId) -> anyhow::Result<Why> {
        for _ in 0..MAX_REQUEST_ROUNDS {
            let queries = match cause::explain(id, &self.known, jiff::Timestamp::now()) {
                Ok(why) => return Ok(why),
                Err(queries) => queries,
            };
            for query in &queries {
                if let Query::Object(id) = query {
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
                    // Nothing is concluded from an API server that did not respond.
                    Err(error @ ClusterError::NoAnswer(_))
                        if !matches!(query, Query::Lines { .. }) =>
                    {
                        return Err(error.into());
                    }
                    Err(error) => FactAnswer::Refused(error.to_string()),
                };
                self.known.insert(query, answer);
            }
        }
        bail!("no cause found after {MAX_REQUEST_ROUNDS} rounds of requests")
    }

    /// Finds out in which version a kind is served.
    async fn find_kind(&mut self, group: &str, kind: &str) -> anyhow::Result<()> {
        let key = (group.to_owned(), kind.to_owned());
        if !self.kinds.contains_key(&key)
            && let Some(resource) = resource(self.cluster, group, kind).await?
        {
            self.kinds.insert(key, resource);
        }
        Ok(())
    }

    async fn answer(&self, query: &Query) -> Result<FactAnswer, ClusterError> {
        match query {
            Query::Object(id) => {
                let Some(resource) = self.kinds.get(&(id.group.clone(), id.kind.clone())) else {
                    return Ok(FactAnswer::Refused(unserved(&id.kind)));
                };
                let found = self.cluster.get(resource, &id.namespace, &id.name).await?;
                Ok(FactAnswer::Objects(found.into_iter().map(without_data).collect()))
            }
            Query::Pods { namespace, selector } => {
                let pods = self.cluster.resource(&Gvk::new("v1", "Pod")).await?;
                let query =
                    ObjectQuery { namespace, label_selector: selector, ..ObjectQuery::all(&pods) };
                let part = self.cluster.list_part(query, None).await?;
                Ok(FactAnswer::Objects(part.objects))
            }
            Query::Warnings(namespace) => {
                let events = self.cluster.resource(&Gvk::new("v1", "Event")).await?;
                let query = ObjectQuery {
                    namespace,
                    field_selector: "type=Warning",
                    ..ObjectQuery::all(&events)
                };
                let part = self.cluster.list_part(query, None).await?;
                Ok(FactAnswer::Objects(part.objects))
            }
            Query::Lines { namespace, pod, container } => {
                let printed = self.cluster.last_lines(namespace, pod, container).await?;
                Ok(FactAnswer::Lines(printed.lines().map(str::to_owned).collect()))
            }
        }
    }
}

/// Where the objects of a kind are, in the version that the cluster prefers; ours in the version of `crds`.
///
/// # Errors
/// The API server did not respond.
pub(super) async fn resource(
    cluster: &Cluster,
    group: &str,
    kind: &str,
) -> Result<Option<Resource>, ClusterError> {
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

/// What is said of a kind that the cluster does not serve.
pub(super) fn unserved(kind: &str) -> String {
    format!("the cluster does not serve the kind {kind}")
}

/// Reads an object of any kind; the error is for a person.
pub(super) async fn read(cluster: &Cluster, id: &ObjectId) -> Result<Option<Object>, String> {
    let found = resource(cluster, &id.group, &id.kind).await.map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| unserved(&id.kind))?;
    cluster.get(&found, &id.namespace, &id.name).await.map_err(|error| error.to_string())
}

/// A Secret or ConfigMap without its values: that it is there and which keys it has is all that is asked.
fn without_data(mut object: Object) -> Object {
    if matches!(object.kind(), "Secret" | "ConfigMap") && object.api_version() == "v1" {
        let metadata = json!({"name": object.name(), "namespace": object.namespace()});
        let keys = |field: &str| {
            let data = object.get(field).and_then(Value::as_object).into_iter().flatten();
            data.map(|(key, _)| (key.clone(), Value::from(""))).collect::<Vec<_>>()
        };
        let data: Map<String, Value> = keys("data").into_iter().chain(keys("binaryData")).collect();
        object.fields_mut().retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind"));
        object.fields_mut().insert("metadata".to_owned(), metadata);
        object.fields_mut().insert("data".to_owned(), data.into());
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_secrets_are_known_and_values_are_not() {
        let secret = Object::new(json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "a", "namespace": "b", "annotations": {"x": "hunter2"}},
            "data": {"token": "aHVudGVyMg=="}}));
        let kept = without_data(secret.unwrap()).into_value();
        assert_eq!(kept["data"], json!({"token": ""}));
        assert!(!kept.to_string().contains("hunter2") && !kept.to_string().contains("aHVudGVyMg"));
        let empty = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        let kept = without_data(Object::new(empty).unwrap());
        assert_eq!(kept.get("data"), Some(&json!({})));
    }
}
