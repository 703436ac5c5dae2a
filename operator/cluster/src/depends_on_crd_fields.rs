//! Checks that the installed CRDs have the fields of `spec.dependsOn` that name an object of another kind. The CRDs that Flux
//! installs do not have these fields.

use objects::{Object, ObjectId};
use serde_json::Value;

use super::{ClusterConnection, ClusterError};

/// The CRDs to check, each with the version that windlass uses.
const DEFINITIONS: [[&str; 2]; 3] = [
    ["helmfiles.helmfile.windlass.dev", "v1alpha1"],
    ["helmreleases.helm.toolkit.fluxcd.io", "v2"],
    ["kustomizations.kustomize.toolkit.fluxcd.io", "v1"],
];

/// The path in a CRD version to the fields of an entry of `spec.dependsOn`.
const ENTRY_FIELDS: &str =
    "/schema/openAPIV3Schema/properties/spec/properties/dependsOn/items/properties";

/// The fields that an entry needs.
const FIELDS: [&str; 3] = ["apiVersion", "kind", "ready"];

/// Logs a warning for each installed CRD that lacks one of the fields.
pub async fn warn_of_missing_fields(cluster: &ClusterConnection) {
    for [definition, version] in DEFINITIONS {
        match is_lacking(cluster, definition, version).await {
            Ok(false) => {}
            Ok(true) => tracing::warn!(
                definition,
                "the installed CustomResourceDefinition lacks fields of spec.dependsOn[] (apiVersion, kind, ready), so the API \
                 server drops or rejects dependencies on objects of other kinds; apply the CustomResourceDefinitions of this \
                 version of windlass"
            ),
            Err(error) => {
                tracing::debug!(definition, error = %error, "the definition cannot be read");
            }
        }
    }
}

/// Whether a CRD is installed and lacks one of the fields.
async fn is_lacking(
    cluster: &ClusterConnection,
    definition: &str,
    version: &str,
) -> Result<bool, ClusterError> {
    let id = ObjectId::new("", definition, "apiextensions.k8s.io", "CustomResourceDefinition");
    let found = cluster.get_by_id(&id, "v1").await?;
    Ok(found.is_some_and(|definition| lacks_fields(&definition, version)))
}

/// Whether the schema of a CRD version lacks one of the fields.
fn lacks_fields(definition: &Object, version: &str) -> bool {
    let versions = definition.get("spec").and_then(|it| it.get("versions")?.as_array());
    let is_it = |it: &&Value| it.get("name").and_then(Value::as_str) == Some(version);
    let Some(version) = versions.into_iter().flatten().find(is_it) else { return false };
    let fields = version.pointer(ENTRY_FIELDS);
    FIELDS.iter().any(|field| fields.and_then(|it| it.get(field)).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_definitions_have_the_fields_and_those_of_flux_lack_them() {
        let mut seen = 0;
        for (_, crd) in crds::all() {
            let mut definition = serde_json::to_value(&crd).unwrap();
            let name = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
            let Some([_, version]) = DEFINITIONS.into_iter().find(|it| it[0] == name) else {
                continue;
            };
            seen += 1;
            assert!(!lacks_fields(&Object::new(definition.clone()).unwrap(), version), "{name}");
            let entry = definition.pointer_mut(&format!("/spec/versions/0{ENTRY_FIELDS}")).unwrap();
            entry.as_object_mut().unwrap().remove("kind");
            let flux = Object::new(definition).unwrap();
            assert!(lacks_fields(&flux, version), "{name}");
            assert!(!lacks_fields(&flux, "v0"), "nothing is known of a version that is not there");
        }
        assert_eq!(seen, DEFINITIONS.len());
    }
}
