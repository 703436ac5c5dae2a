//! The ExternalArtifacts by which artifacts are offered.
//!
//! Here: the object as it is applied. Elsewhere: its status, which is an artifact as that of any source (the program).
//!
//! Source of the semantics: source-watcher 2.2 `reconcileExternalArtifact`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::path_pattern::ArtifactRequest;
use crate::spec::CommonMetadata;

/// The label that names the generator, by its UID.
pub const GENERATOR_LABEL: &str = "source.extensions.fluxcd.io/generator";

const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The API version of generators.
const GENERATOR_API_VERSION: &str = "source.extensions.fluxcd.io/v1beta1";

/// A generator, as its ExternalArtifacts name it.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorIdentity<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace, which is that of its ExternalArtifacts.
    pub namespace: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The field manager that applies them.
    pub manager: &'a str,
}

/// The ExternalArtifact of an artifact, without a status.
///
/// Of labels with one key, those of the generator win over what the pattern of paths captured, and that over what all have.
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
