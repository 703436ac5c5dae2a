//! Traces any object of the cluster back to the revision from which it comes.
//!
//! Elsewhere: references between objects (engine `cause`).

use std::collections::BTreeMap;

use cause::object_references;
use objects::{Object, ObjectId};
use serde::Serialize;

use super::cause_facts;
use super::command_scope::CommandScope;
use super::object_row::ObjectRow;

/// The maximum number of steps of a trace.
const MAX_TRACE_LENGTH: usize = 32;

/// One object of a trace.
#[derive(Debug, Serialize)]
pub struct TraceStep {
    /// The object as `Kind/namespace/name`.
    pub object: String,
    /// How this object is related to the previous one.
    pub relation: &'static str,
    /// The status of its condition `Ready`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ready: String,
    /// The revision that the object has or applied.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The URL of a source, without credentials.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The folder of a Kustomization.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The message of the `Ready` condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Metadata of the revision from its source, such as the author.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Traces an object back to its source. The object is the first step. A step that cannot be read contains the reason.
pub async fn way(site: &CommandScope, object: Object) -> Vec<TraceStep> {
    let mut stops = vec![stop(&object, "the object")];
    let mut seen = vec![object.id()];
    let mut at = object;
    while stops.len() < MAX_TRACE_LENGTH {
        let Some((id, relation)) = above(&at).filter(|(id, _)| !seen.contains(id)) else { break };
        seen.push(id.clone());
        match cause_facts::read(&site.cluster, &id).await {
            Ok(Some(object)) => {
                stops.push(stop(&object, relation));
                at = object;
            }
            Ok(None) => {
                stops.push(nothing(&id, relation, "does not exist"));
                break;
            }
            Err(error) => {
                stops.push(nothing(&id, relation, &error));
                break;
            }
        }
    }
    if stops.len() == 1 && !object_references::is_reconciled(&at.id()) {
        let text =
            "not applied by windlass or Flux: it has neither their labels nor an owner reference";
        let stop = nothing(&at.id(), "applied by", text);
        stops.push(TraceStep { object: "unknown".to_owned(), ..stop });
    }
    stops
}

/// The next object of a trace, and how it is related: the object's source, its controller, or its applier. `None` if the trace
/// ends here.
fn above(object: &Object) -> Option<(ObjectId, &'static str)> {
    let source = || object_references::sources(object).into_iter().next().map(|id| (id, "from"));
    if object_references::is_reconciled(&object.id())
        && let Some(source) = source()
    {
        return Some(source);
    }
    object_references::controller(object)
        .map(|id| (id, "controlled by"))
        .or_else(|| object_references::applier(object).map(|id| (id, "applied by")))
}

fn nothing(id: &ObjectId, relation: &'static str, message: &str) -> TraceStep {
    TraceStep {
        object: id.subject(),
        relation,
        ready: String::new(),
        revision: String::new(),
        url: String::new(),
        path: String::new(),
        message: message.to_owned(),
        metadata: BTreeMap::new(),
    }
}

fn stop(object: &Object, relation: &'static str) -> TraceStep {
    let row = ObjectRow::of(object, jiff::Timestamp::now());
    let spec = |key: &str| {
        let field = object.get("spec").and_then(|it| it[key].as_str());
        field.unwrap_or_default().to_owned()
    };
    let status = object.get("status");
    let whole = status.and_then(|it| {
        it["artifact"]["revision"].as_str().or_else(|| it["lastAppliedRevision"].as_str())
    });
    let metadata = status.and_then(|it| it["artifact"]["metadata"].as_object());
    let metadata = metadata.into_iter().flatten();
    let metadata =
        metadata.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let is_ours = object_references::is_reconciled(&object.id());
    TraceStep {
        object: object.id().subject(),
        relation,
        ready: row.ready,
        revision: whole.map_or(row.revision, str::to_owned),
        url: if is_ours { address(&spec("url"), &spec("source")) } else { String::new() },
        path: if is_ours { spec("path") } else { String::new() },
        message: row.message,
        metadata: metadata.collect(),
    }
}

/// The URL of a source, or the address of a Helmfile, without secret parts.
pub fn address(url: &str, source: &str) -> String {
    match helmfile::RemoteAddress::parse(source) {
        Some(address) if url.is_empty() => address.to_string(),
        _ => sources::remote_bases::without_credentials(url),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_shown_without_credentials() {
        assert_eq!(address("https://u:pw@h/r", ""), "https://***@h/r");
        let source = "git::https://u:pw@h/r@deploy/helmfile.yaml?ref=v1";
        assert_eq!(address("", source), "git::https://h/r@deploy/helmfile.yaml");
        assert_eq!(address("", ""), "");
    }

    #[test]
    fn a_way_leads_through_controllers_and_appliers_to_the_source() {
        let object = |kind: &str,
                      version: &str,
                      metadata: serde_json::Value,
                      spec: serde_json::Value| {
            let mut metadata = metadata;
            metadata["name"] = "app".into();
            metadata["namespace"] = "apps".into();
            let value =
                json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
            above(&Object::new(value).unwrap())
                .map(|(id, relation)| format!("{relation} {}", id.subject()))
        };
        let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-1",
            "controller": true}]});
        assert_eq!(
            object("Pod", "v1", owned, json!({})).unwrap(),
            "controlled by ReplicaSet/apps/app-1"
        );
        let labels = json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "all",
            "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}});
        let applied = object("Deployment", "apps/v1", labels.clone(), json!({})).unwrap();
        assert_eq!(applied, "applied by Kustomization/flux-system/all");
        let source = json!({"sourceRef": {"kind": "GitRepository", "name": "app"}});
        let version = "kustomize.toolkit.fluxcd.io/v1";
        let from = object("Kustomization", version, labels, source).unwrap();
        assert_eq!(from, "from GitRepository/apps/app");
        assert_eq!(object("ConfigMap", "v1", json!({}), json!({})), None);
    }
}
