//! Two Kustomizations.
//!
//! The first one has fifteen objects in three stages, and a Deployment that takes a while to be ready. The API server
//! rejects an object of the second one until the third revision. This module has the manifests of each revision, and
//! the end of each act.

use anyhow::bail;
use e2e::harness::StoryObject;
use e2e::harness::flux_objects::condition;
use e2e::harness::manifests::{config_map, widget, widget_crd};
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of two Kustomizations. One applies fifteen objects in three stages. The API server rejects an object of
/// the other one until the third revision.
#[derive(Default)]
pub(in crate::crash) struct KustomizationScenario;

impl CrashScenario for KustomizationScenario {
    const NAME: &'static str = "kustomization";
    const ACTS: &'static [&'static str] = &["install", "change and prune", "mend", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, namespace: &str) -> Vec<ApiResource> {
        vec![
            kind("v1", "ConfigMap"),
            kind("v1", "Secret"),
            kind("v1", "Service"),
            kind("v1", "ServiceAccount"),
            kind("apps/v1", "Deployment"),
            kind("rbac.authorization.k8s.io/v1", "ClusterRole"),
            kind("scheduling.k8s.io/v1", "PriorityClass"),
            kind("storage.k8s.io/v1", "StorageClass"),
            kind("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            kind(&format!("{}/v1", group(namespace)), "Widget"),
        ]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    fn may_delete(&self, act: usize, namespace: &str, name: &str) -> bool {
        let pruned = [format!("{namespace}-low"), "leaving".to_owned(), "two".to_owned()];
        match act {
            0 => false,
            1 | 2 => pruned.iter().any(|it| it == name),
            _ => true,
        }
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        let namespace = stage.story.namespace.clone();
        match act {
            0 => {
                stage.commit(&first(&namespace))?;
                stage.create_source().await?;
                let app = json!({"path": "./app", "wait": true, "timeout": "5m"});
                stage.story.kustomization("app", SOURCE_NAME, app).await?;
                stage.story.kustomization("extra", SOURCE_NAME, json!({"path": "./extra"})).await
            }
            1 => {
                let gone = ["app/leaving.yaml", "app/low.yaml", "app/two.yaml"];
                stage.repository.git(&[&["rm", "-q", "--"], &gone[..]].concat())?;
                stage.commit(&[("app/changing.yaml".into(), config_map("changing", "2"))])?;
                stage.request_source().await
            }
            2 => {
                stage.commit(&[("extra/door.yaml".into(), service(80))])?;
                stage.request_source().await
            }
            3 => {
                for name in ["app", "extra"] {
                    stage.story.delete(&StoryObject::kustomization(name)).await?;
                }
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let revision = stage.revision();
        let app = stage.story.read(&StoryObject::kustomization("app")).await?;
        let extra = stage.story.read(&StoryObject::kustomization("extra")).await?;
        if act == 3 {
            return Ok(app.is_none() && extra.is_none() && stage.source_is_gone().await?);
        }
        // The third act repairs the object that the API server rejects.
        let extra_ready = if act < 2 { "False" } else { "True" };
        let stands = |object: &Option<DynamicObject>, ready: &str| {
            object.as_ref().is_some_and(|object| {
                condition(object, "Ready")["status"] == ready
                    && object.data["status"]["lastAttemptedRevision"] == revision
            })
        };
        Ok(stands(&app, "True") && stands(&extra, extra_ready))
    }
}

fn group(namespace: &str) -> String {
    format!("{namespace}.example.com")
}

/// The files of the first revision.
fn first(namespace: &str) -> Vec<(String, String)> {
    let group = group(namespace);
    let files = [
        // CRDs.
        ("app/definition.yaml", widget_crd(&group)),
        ("app/role.yaml", cluster_role(&format!("{namespace}-app"))),
        // Classes, which the second stage applies.
        ("app/high.yaml", priority_class(&format!("{namespace}-high"))),
        ("app/low.yaml", priority_class(&format!("{namespace}-low"))),
        ("app/fast.yaml", storage_class(&format!("{namespace}-fast"))),
        // All other objects.
        ("app/one.yaml", widget(&group, "one")),
        ("app/two.yaml", widget(&group, "two")),
        ("app/same.yaml", config_map("same", "1")),
        ("app/changing.yaml", config_map("changing", "1")),
        ("app/leaving.yaml", config_map("leaving", "1")),
        ("app/settings.yaml", config_map("settings", "1")),
        ("app/limits.yaml", config_map("limits", "1")),
        ("app/account.yaml", ACCOUNT.to_owned()),
        ("app/password.yaml", PASSWORD.to_owned()),
        ("app/web.yaml", WEB.to_owned()),
        ("extra/role.yaml", cluster_role(&format!("{namespace}-extra"))),
        ("extra/note.yaml", config_map("note", "1")),
        ("extra/door.yaml", service(0)),
    ];
    files.map(|(path, text)| (path.to_owned(), text)).to_vec()
}

const ACCOUNT: &str = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: web}}\n";

const PASSWORD: &str =
    "{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {word: open}}\n";

/// A Deployment whose Pod becomes ready after a while.
const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {windlass.dev/testbed-delay: 1s}
    spec:
      containers: [{name: main, image: example.com/app:1}]
";

fn cluster_role(name: &str) -> String {
    format!(
        "{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: {name}}}, \
         rules: [{{apiGroups: [\"\"], resources: [pods], verbs: [get]}}]}}\n"
    )
}

fn priority_class(name: &str) -> String {
    format!(
        "{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: 7}}\n"
    )
}

fn storage_class(name: &str) -> String {
    format!(
        "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: {name}}}, \
         provisioner: example.com/none}}\n"
    )
}

/// A Service. The API server rejects it with port 0.
fn service(port: u16) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: door}}, \
         spec: {{selector: {{app: web}}, ports: [{{port: {port}}}]}}}}\n"
    )
}
