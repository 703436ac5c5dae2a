//! Finds the objects that are left in the cluster after an installation was undone. An undo scales windlass to zero, and
//! deletes nothing.
//!
//! Elsewhere: restoring objects (`migration_backup`), deleting the rest (`uninstall.rs`).

use objects::Object;

use super::super::check::OURS;
use super::super::install::{crd_replacement, name};
use windlass_cluster::{ClusterConnection, ClusterError};

/// The kind that windlass and Flux share.
const SHARED: &str = "CustomResourceDefinition";
/// The suffix of Flux's API groups.
const FLUX: &str = ".fluxcd.io";

/// The objects of windlass that are left after an undo.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectsLeftAfterUndo {
    /// The objects of windlass, as text.
    objects: Vec<String>,
    /// The number of CRDs of Flux's kinds that are in the version of windlass.
    shared: usize,
    /// The CRDs that only windlass has.
    own: Vec<String>,
}

impl ObjectsLeftAfterUndo {
    /// Finds the objects of an installation that exist and were not restored.
    ///
    /// # Errors
    /// The API server refuses to read one.
    pub(super) async fn of(
        cluster: &ClusterConnection,
        installed: &[Object],
    ) -> Result<Self, ClusterError> {
        let mut remains = Self::default();
        for wanted in installed {
            let Some(found) = crd_replacement::read(cluster, wanted).await? else { continue };
            let is_windlass = |key: &str| found.label(key) == Some("windlass");
            let (key, _) = OURS.split_once('=').unwrap_or((OURS, ""));
            match found.kind() {
                SHARED if !is_windlass(crd_replacement::MANAGED_BY) => {}
                SHARED if found.name().ends_with(FLUX) => remains.shared += 1,
                SHARED => remains.own.push(found.name().to_owned()),
                _ if is_windlass(key) => remains.objects.push(name(&found)),
                _ => {}
            }
        }
        Ok(remains)
    }

    /// Messages for the user. Empty if no objects are left.
    pub(super) fn lines(&self, namespace: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.objects.is_empty() {
            lines.push(format!(
                "these objects of windlass stay, and nothing runs: {}; `windlass uninstall -n {namespace}` deletes them",
                self.objects.join(", ")
            ));
        }
        if self.shared > 0 {
            lines.push(format!(
                "{} CRD(s) of Flux's kinds stay as windlass has them, with all objects: `flux install` puts its own back",
                self.shared
            ));
        }
        if !self.own.is_empty() {
            lines.push(format!(
                "these CRDs are of windlass alone, and stay: {}; `kubectl delete crd NAME` deletes one with all of its objects",
                self.own.join(", ")
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::with_objects;

    #[tokio::test]
    async fn what_stays_of_an_installation_that_was_undone_is_named() {
        let object = |api: &str, kind: &str, name: &str, labels: Value| {
            let mut metadata = json!({"name": name, "labels": labels});
            if kind != SHARED {
                metadata["namespace"] = json!("flux-system");
            }
            json!({"apiVersion": api, "kind": kind, "metadata": metadata})
        };
        let ours = || json!({"app.kubernetes.io/name": "windlass"});
        let managed = || json!({"app.kubernetes.io/managed-by": "windlass"});
        let definition =
            |name: &str, labels: Value| object("apiextensions.k8s.io/v1", SHARED, name, labels);
        let found = vec![
            object("apps/v1", "Deployment", "windlass-controller", ours()),
            // This object was restored.
            object("v1", "Service", "source-controller", json!({})),
            definition("buckets.source.toolkit.fluxcd.io", managed()),
            definition("helmfiles.helmfile.windlass.dev", managed()),
            // This object has not been replaced yet.
            definition("alerts.notification.toolkit.fluxcd.io", json!({})),
        ];
        let mut installed: Vec<Object> =
            found.iter().map(|it| Object::new(it.clone()).unwrap()).collect();
        // This object has not been created yet.
        let absent = object("v1", "ServiceAccount", "windlass-controller", ours());
        installed.push(Object::new(absent).unwrap());
        let (cluster, _) = with_objects(found).await;
        let remains = ObjectsLeftAfterUndo::of(&cluster, &installed).await.unwrap();
        let expected = ObjectsLeftAfterUndo {
            objects: vec!["Deployment/flux-system/windlass-controller".to_owned()],
            shared: 1,
            own: vec!["helmfiles.helmfile.windlass.dev".to_owned()],
        };
        assert_eq!(remains, expected);
        let lines = remains.lines("flux-system");
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("`windlass uninstall -n flux-system` deletes them"), "{lines:?}");
        assert!(ObjectsLeftAfterUndo::default().lines("flux-system").is_empty());
    }
}
