//! Decides which CRDs may be replaced by those of this version. A version in which objects are stored is never removed.

use anyhow::{Context as _, bail};
use golang::semver::SemverVersion;
use objects::Object;
use serde_json::Value;

use windlass_cluster::{ClusterConnection, ClusterError};

/// The label with the version of windlass or Flux to which a CRD belongs.
const VERSION: &str = "app.kubernetes.io/version";
/// The label that names the installer of a CRD.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Compares every CRD of an installation with the one in the cluster.
///
/// # Errors
/// A CRD cannot be replaced, with the reason. Or the API server did not respond.
pub(crate) async fn check(
    cluster: &ClusterConnection,
    objects: &[Object],
    force: bool,
) -> anyhow::Result<()> {
    for wanted in objects.iter().filter(|object| object.kind() == "CustomResourceDefinition") {
        let found = read(cluster, wanted).await.with_context(|| wanted.id().to_string())?;
        if let Some(problem) = found.and_then(|found| problem(wanted, &found, force)) {
            bail!("{problem}");
        }
    }
    Ok(())
}

/// Reads the object of a manifest from the cluster.
pub(crate) async fn read(
    cluster: &ClusterConnection,
    wanted: &Object,
) -> Result<Option<Object>, ClusterError> {
    match cluster.resource(&wanted.gvk()).await {
        Ok(resource) => cluster.get(&resource, wanted.namespace(), wanted.name()).await,
        // The same installation will create this kind.
        Err(ClusterError::NoSuchKind { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why a CRD must not replace the one in the cluster. `None` if it may.
fn problem(wanted: &Object, found: &Object, force: bool) -> Option<String> {
    let name = wanted.name();
    let versions = names(wanted);
    let stored = found.get("status").and_then(|status| status.get("storedVersions"));
    let stored = stored.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let dropped: Vec<&str> = stored.filter(|version| !versions.contains(version)).collect();
    if !dropped.is_empty() {
        return Some(format!(
            "CRD {name} stores objects as {}, which this version of windlass does not have; migrate them first \
             (`flux migrate`), then run this again",
            dropped.join(", ")
        ));
    }
    let is_ours = found.label(MANAGED_BY) == Some("windlass");
    let version = |object: &Object| {
        let text = object.label(VERSION)?.trim_start_matches('v').to_owned();
        SemverVersion::parse(&text).ok()
    };
    let old = version(found)?;
    let new = version(wanted)?;
    (is_ours && !force && old > new).then(|| {
        format!(
            "CRD {name} is of windlass {old}, which is newer than {new}: use the newer command, or add --force to install \
             the older version"
        )
    })
}

/// The names of a CRD's versions.
fn names(crd: &Object) -> Vec<&str> {
    let versions = crd.get("spec").and_then(|spec| spec.get("versions"));
    let versions = versions.and_then(Value::as_array).into_iter().flatten();
    versions.filter_map(|version| version.get("name")?.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(version: &str, versions: &[&str], stored: &[&str]) -> Object {
        let versions: Vec<Value> = versions.iter().map(|name| json!({"name": name})).collect();
        let labels = json!({VERSION: version, MANAGED_BY: "windlass"});
        Object::new(json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "apples.example.com", "labels": labels},
            "spec": {"versions": versions},
            "status": {"storedVersions": stored},
        }))
        .unwrap()
    }

    #[test]
    fn a_version_under_which_objects_are_stored_is_not_dropped() {
        let found = crd("v0.1.0", &["v1beta1", "v1"], &["v1beta1", "v1"]);
        let text = problem(&crd("v0.2.0", &["v1"], &[]), &found, false).unwrap();
        assert!(text.contains("apples.example.com stores objects as v1beta1"), "{text}");
        assert_eq!(problem(&crd("v0.2.0", &["v1beta1", "v1"], &[]), &found, false), None);
    }

    #[test]
    fn a_newer_definition_is_not_replaced_by_an_older_one() {
        let newer = crd("v0.10.0", &["v1"], &["v1"]);
        let text = problem(&crd("v0.9.0", &["v1"], &[]), &newer, false).unwrap();
        assert!(text.contains("0.10.0, which is newer than 0.9.0"), "{text}");
        assert_eq!(problem(&newer, &crd("v0.9.0", &["v1"], &["v1"]), false), None);
    }
}
