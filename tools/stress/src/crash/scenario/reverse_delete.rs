//! Five Kustomizations in four levels. Another Kustomization applies them, together with the ServiceAccount that they
//! use.
//!
//! A commit removes two of them, and the deletion of their owner removes the others. This module has the manifests,
//! and checks that nothing was deleted before the objects that depend on it.

use anyhow::bail;
use crds::windlass_release::PlanPolicy;
use e2e::harness::StoryObject;
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::manifests::config_map;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of Kustomizations that depend on each other. windlass deletes them from the last to the first.
#[derive(Default)]
pub(in crate::crash) struct ReverseDeleteScenario;

/// The Kustomizations, and the names of those that each depends on.
const LEVELS: [(&str, &[&str]); 5] = [
    ("base", &[]),
    ("db", &["base"]),
    ("cache", &["base"]),
    ("api", &["db", "cache"]),
    ("web", &["api"]),
];

/// The Kustomizations that the commit of the second act removes.
const REMOVED_FIRST: [&str; 2] = ["api", "web"];

impl CrashScenario for ReverseDeleteScenario {
    const NAME: &'static str = "reverse-delete";
    const ACTS: &'static [&'static str] = &["install", "remove two levels", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![
            kind("v1", "ConfigMap"),
            kind("v1", "ServiceAccount"),
            kind("rbac.authorization.k8s.io/v1", "RoleBinding"),
            kind("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    /// Checks that every object was deleted after the objects of all Kustomizations that depend on its own. No object
    /// may stay because its ServiceAccount was deleted first.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        let mut changes = stage.story.timed_changes()?;
        changes.sort();
        // A request that windlass repeats after a kill counts at the time of its first attempt.
        let removed_at = |resource: &str, name: &str| {
            let wanted = format!("removed {resource}/{name}");
            changes.iter().position(|(_, change)| *change == wanted)
        };
        let mut problems = Vec::new();
        for (name, dependencies) in LEVELS {
            let Some(at) = removed_at("configmaps", name) else {
                problems.push(format!("ConfigMap {name} was not deleted"));
                continue;
            };
            for dependency in dependencies {
                if removed_at("configmaps", dependency).is_some_and(|other| other < at) {
                    problems.push(format!("{dependency} was deleted before {name}"));
                }
            }
        }
        let base = removed_at("configmaps", "base");
        for resource in ["serviceaccounts", "rolebindings"] {
            let at = removed_at(resource, "tenant");
            if at.is_none() || at < base {
                problems.push(format!("{resource}/tenant was deleted before what needs it"));
            }
        }
        Ok(problems)
    }

    fn may_delete(&self, act: usize, _: &str, name: &str) -> bool {
        match act {
            0 => false,
            1 => REMOVED_FIRST.contains(&name),
            _ => true,
        }
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        let place = stage.story.namespace.clone();
        match act {
            0 => {
                stage.commit(&files(&place))?;
                // The dry-run of a RoleBinding needs its Role, so the Role is applied before.
                stage.story.apply_value(role()).await?;
                // The deletion budget would hold the removal of Kustomizations.
                stage.story.without_deletion_budget().await?;
                stage.create_source().await?;
                let root = json!({"path": "./root", "wait": true, "timeout": "5m"});
                stage.story.kustomization("root", SOURCE_NAME, root).await
            }
            1 => {
                let paths = REMOVED_FIRST.map(|name| format!("root/{name}.yaml"));
                let paths = paths.each_ref().map(String::as_str);
                stage.repository.git(&[&["rm", "-q", "--"], &paths[..]].concat())?;
                stage.commit(&[("root/note.yaml".into(), config_map("note", "2"))])?;
                stage.request_source().await
            }
            2 => {
                stage.story.delete(&StoryObject::kustomization("root")).await?;
                let policy = StoryObject::of::<PlanPolicy>(&place);
                stage.story.delete(&policy).await?;
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let story = &stage.story;
        let mut present = Vec::new();
        for (name, _) in LEVELS {
            if story.read(&StoryObject::kustomization(name)).await?.is_some() {
                present.push(name);
            }
        }
        let root = story.read(&StoryObject::kustomization("root")).await?;
        if act == 2 {
            return Ok(root.is_none() && present.is_empty() && stage.source_is_gone().await?);
        }
        let revision = stage.revision();
        let is_ready = root.is_some_and(|root| {
            condition(&root, "Ready")["status"] == "True"
                && root.data["status"]["lastAppliedRevision"] == revision
        });
        let count = if act == 0 { LEVELS.len() } else { LEVELS.len() - REMOVED_FIRST.len() };
        Ok(is_ready && present.len() == count)
    }
}

/// The rights of the ServiceAccount `tenant`.
fn role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "tenant"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"],
            "verbs": ["get", "create", "update", "patch", "delete"]}]})
}

fn files(place: &str) -> Vec<(String, String)> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "tenant"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": place}]});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}});
    let mut files = vec![
        ("root/binding.yaml".to_owned(), format!("{binding}\n")),
        ("root/account.yaml".to_owned(), format!("{account}\n")),
        ("root/note.yaml".to_owned(), config_map("note", "1")),
    ];
    for (name, dependencies) in LEVELS {
        let on: Vec<Value> = dependencies.iter().map(|name| json!({"name": name})).collect();
        let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name}, "spec": {"interval": NEVER, "prune": true,
                "path": format!("./parts/{name}"), "targetNamespace": place, "dependsOn": on,
                "serviceAccountName": "tenant",
                "sourceRef": {"kind": "GitRepository", "name": SOURCE_NAME}}});
        files.push((format!("root/{name}.yaml"), format!("{object}\n")));
        files.push((format!("parts/{name}/map.yaml"), config_map(name, "1")));
    }
    files
}
