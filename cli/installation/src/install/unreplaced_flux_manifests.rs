//! Finds the objects in a file of Flux manifests that windlass does not replace: other controllers, and their rights and CRDs.
//!
//! Elsewhere: the manifests of windlass (`install/manifests.rs`).

use std::path::Path;

use anyhow::Context as _;
use objects::Object;
use serde_json::Value;

use crate::cluster_operators::replaced;
use windlass_cluster::election::REPLACED_CONTROLLERS;

/// The objects of a file that are kept beside windlass, as YAML documents.
///
/// # Errors
/// The file cannot be read.
pub(super) fn beyond(path: &Path, installed: &[Object]) -> anyhow::Result<String> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let read = objects::manifest::read(&shown, &bytes, &goyaml::YamlLimits::default())?;
    let mut text = String::new();
    for object in read.into_iter().map(|located| located.object) {
        let is_installed = installed.iter().any(|it| it.id() == object.id());
        if !is_installed && !is_of_windlass(&object) && !is_replaced(&object) {
            text.push_str("---\n");
            text.push_str(&goyaml::emit::emit(&object.into_value())?);
        }
    }
    Ok(text)
}

/// Whether an earlier version of windlass, or another profile, made an object.
fn is_of_windlass(object: &Object) -> bool {
    object.label("app.kubernetes.io/name") == Some("windlass")
}

/// Whether only controllers that windlass replaces need an object.
fn is_replaced(object: &Object) -> bool {
    match object.kind() {
        "Deployment" => replaced(object).is_some(),
        "ServiceAccount" | "Service" => REPLACED_CONTROLLERS.contains(&object.name()),
        "ClusterRoleBinding" => {
            let subjects = object.get("subjects").and_then(Value::as_array);
            let is_replaced = |it: &Value| {
                it["name"].as_str().is_some_and(|it| REPLACED_CONTROLLERS.contains(&it))
            };
            subjects.is_some_and(|subjects| subjects.iter().all(is_replaced))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::manifests::InstallManifestFlags;

    /// A file as `flux install --export` prints it.
    const COMPONENTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kustomizations.kustomize.toolkit.fluxcd.io}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: imagepolicies.image.toolkit.fluxcd.io}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: teams.example.com}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: image-automation-controller, namespace: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: team-controller, namespace: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: source-controller, namespace: flux-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cluster-reconciler-flux-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, name: kustomize-controller, namespace: flux-system}
- {kind: ServiceAccount, name: helm-controller, namespace: flux-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: crd-controller-flux-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: crd-controller-flux-system}
subjects:
- {kind: ServiceAccount, name: kustomize-controller, namespace: flux-system}
- {kind: ServiceAccount, name: team-controller, namespace: flux-system}
---
apiVersion: v1
kind: Service
metadata: {name: source-controller, namespace: flux-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: image-automation-controller, namespace: flux-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: team-controller, namespace: flux-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kustomize-controller, namespace: flux-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kustomize-controller-shard1, namespace: flux-system}
";

    #[test]
    fn other_controllers_stay_and_what_windlass_replaces_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gotk-components.yaml");
        std::fs::write(&path, COMPONENTS).unwrap();
        let manifests = InstallManifestFlags::default();
        let installed = manifests.objects("flux-system").unwrap();
        let text = beyond(&path, &installed).unwrap();
        let limits = goyaml::YamlLimits::default();
        let kept = objects::manifest::read("kept", text.as_bytes(), &limits).unwrap();
        let ids: Vec<String> =
            kept.iter().map(|it| format!("{}/{}", it.object.kind(), it.object.name())).collect();
        assert_eq!(
            ids,
            [
                "CustomResourceDefinition/teams.example.com",
                "ServiceAccount/team-controller",
                "ClusterRoleBinding/crd-controller-flux-system",
                "Deployment/team-controller",
            ]
        );
        // A second run on the output of the first run has the same result.
        std::fs::write(&path, manifests.yaml("flux-system").unwrap() + &text).unwrap();
        assert_eq!(beyond(&path, &installed).unwrap(), text);
    }
}
