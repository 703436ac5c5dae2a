//! The ExternalArtifact objects that publish the built artifacts.
//!
//! Here: the object as it is applied. Elsewhere: its status, which has the artifact as in any source (the program).
//!
//! Source of the semantics: source-watcher 2.2 `reconcileExternalArtifact`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::path_pattern::ArtifactRequest;
use crate::spec::CommonMetadata;

/// The label with the UID of the generator.
pub const GENERATOR_LABEL: &str = "source.extensions.fluxcd.io/generator";

const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The API version of generators.
const GENERATOR_API_VERSION: &str = "source.extensions.fluxcd.io/v1beta1";

/// An ArtifactGenerator, as its ExternalArtifacts name it.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorIdentity<'a> {
    /// The name of the generator.
    pub name: &'a str,
    /// The namespace of the generator and of its ExternalArtifacts.
    pub namespace: &'a str,
    /// The UID of the generator.
    pub uid: &'a str,
    /// The field manager that applies the ExternalArtifacts.
    pub manager: &'a str,
}

/// The ExternalArtifact object for an artifact, without a status.
///
/// If labels have the same key, the labels about the generator win. Next come the labels that the path pattern
/// captured, and then the common labels of the spec.
#[must_use]
pub fn external_artifact(
    generator: GeneratorIdentity<'_>,
    common: Option<&CommonMetadata>,
    request: &ArtifactRequest,
) -> Value {
    let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
    let of_all = common.map(|common| &common.labels).into_iter().flatten();
    labels.extend(of_all.chain(&request.labels).map(|(key, value)| (key.as_str(), value.as_str())));
    labels.insert(MANAGED_BY_LABEL, generator.manager);
    labels.insert(GENERATOR_LABEL, generator.uid);
    let mut object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "ExternalArtifact",
        "metadata": {
            "name": request.artifact.name,
            "namespace": generator.namespace,
            "labels": labels,
        },
        "spec": {
            "sourceRef": {
                "apiVersion": GENERATOR_API_VERSION,
                "kind": "ArtifactGenerator",
                "name": generator.name,
                "namespace": generator.namespace,
            },
        },
    });
    let annotations = common.map(|common| &common.annotations);
    if let Some(annotations) = annotations.filter(|annotations| !annotations.is_empty()) {
        object["metadata"]["annotations"] = json!(annotations);
    }
    object
}
