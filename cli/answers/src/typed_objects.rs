//! Lists the objects of one kind as Rust types, and converts them to a Kubernetes `List`.
//!
//! Elsewhere: messages about changes (`change_sets.rs`), audits (`audit.rs`) and Incidents (`incidents.rs`).

use anyhow::Context as _;
use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;
use windlass_cluster::discovery::ApiResourceLocation;

/// The objects of a kind.
pub(crate) struct TypedObjects<K> {
    /// The objects, in the order of the API server.
    pub(crate) objects: Vec<K>,
    /// Messages about objects that could not be listed.
    pub(crate) left_out: Vec<String>,
}

/// Lists the objects of a kind with matching labels.
///
/// # Errors
/// The kind is not installed, an object cannot be read, or the API server did not respond.
pub(crate) async fn list<K: Resource<DynamicType = ()> + DeserializeOwned>(
    site: &CommandScope,
    resource: ApiResourceLocation,
    labels: &str,
) -> anyhow::Result<TypedObjects<K>> {
    let target = ResourceArgument { resource, namespace: None, name: None };
    let mut objects = Vec::new();
    let left_out = site
        .list(&target, labels, |found| {
            for object in found {
                objects.push(read(object.into_value())?);
            }
            Ok(())
        })
        .await?;
    Ok(TypedObjects { objects, left_out })
}

/// Converts an object to its type.
fn read<K: Resource<DynamicType = ()> + DeserializeOwned>(value: Value) -> anyhow::Result<K> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(value).with_context(|| format!("cannot read {} {name}", K::kind(&())))
}

/// Converts objects to a Kubernetes `List`.
///
/// # Errors
/// An object cannot be written as JSON.
pub(crate) fn to_list<K: Resource<DynamicType = ()> + Serialize>(
    objects: &[K],
) -> anyhow::Result<Value> {
    let items: Result<Vec<Value>, _> = objects.iter().map(serde_json::to_value).collect();
    Ok(json!({
        "apiVersion": K::api_version(&()),
        "kind": format!("{}List", K::kind(&())),
        "items": items?,
    }))
}

#[cfg(test)]
mod tests {
    use crds::windlass_release::{ChangeSet, ChangeSetSpec};

    use super::*;

    #[test]
    fn a_list_names_the_kind_of_its_objects_and_what_cannot_be_read_is_named() {
        let list = to_list(&[ChangeSet::new("a", ChangeSetSpec::default())]).unwrap();
        assert_eq!(list["kind"], "ChangeSetList");
        assert_eq!(list["apiVersion"], "release.windlass.dev/v1alpha1");
        assert_eq!(list["items"][0]["metadata"]["name"], "a");
        let value = json!({"metadata": {"name": "a"}, "spec": {"sequence": "one"}});
        let error = read::<ChangeSet>(value).unwrap_err().to_string();
        assert_eq!(error, "cannot read ChangeSet a");
    }
}
