//! A Kustomization applies a CustomResourceDefinition of which a user has objects.
//!
//! The acts drop a version in which these objects are stored, delete the definition after a confirmation, and restore
//! it with its objects. This module has the manifests of each revision, and checks that no object is lost.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use crds::windlass_release::PlanPolicy;
use e2e::harness::flux_objects::condition;
use e2e::harness::manifests::{config_map, widget_crd};
use e2e::harness::{Story, StoryObject};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario with a CustomResourceDefinition of which a user has objects. Its acts drop a stored version, delete the
/// definition after a confirmation, and restore the definition with its objects.
#[derive(Default)]
pub(in crate::crash) struct CrdScenario {
    /// The uids of the user's objects.
    made: OnceLock<BTreeMap<String, String>>,
}

/// The names of the user's objects.
const OBJECTS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// How long a definition may take until its objects can be created.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(20);

impl CrashScenario for CrdScenario {
    const NAME: &'static str = "crds";
    const ACTS: &'static [&'static str] =
        &["install", "drop a stored version", "confirmed removal", "restore", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap"), kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    fn may_delete(&self, act: usize, namespace: &str, name: &str) -> bool {
        match act {
            0 | 1 | 3 => false,
            2 => name == definition_name(namespace),
            _ => true,
        }
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        let group = group(&stage.story.namespace);
        let definition = "app/definition.yaml".to_owned();
        match act {
            0 => {
                let note = ("app/note.yaml".to_owned(), config_map("note", "1"));
                stage.commit(&[(definition, both_versions(&group)?), note])?;
                // The deletion budget would hold the removal of the definition before the CRD guard checks it.
                stage.story.without_deletion_budget().await?;
                stage.create_source().await?;
                stage.story.kustomization("app", SOURCE_NAME, json!({"path": "./app"})).await
            }
            1 => {
                let made = make(&stage.story, &group).await?;
                self.made.set(made).ok().context("the objects were made before")?;
                stage.commit(&[(definition, widget_crd(&group))])?;
                stage.request_source().await
            }
            2 => {
                let live = stage.story.expect(&target(&group)).await?;
                let uid = live.metadata.uid.context("it has no uid")?;
                let confirmed =
                    json!({"metadata": {"annotations": {"windlass.dev/crd-removal": uid}}});
                stage.story.merge(&target(&group), confirmed).await?;
                stage.repository.git(&["rm", "-q", "--", "app/definition.yaml"])?;
                stage.commit(&[("app/note.yaml".into(), config_map("note", "2"))])?;
                stage.request_source().await
            }
            3 => {
                let name = definition_name(&stage.story.namespace);
                let place = ["--namespace", &stage.story.namespace];
                let command = [&["crd", "restore", name.as_str()], &place[..]].concat();
                stage.story.windlass_says(&command, true).map(drop)
            }
            4 => {
                stage.story.delete(&target(&group)).await?;
                stage.story.delete(&StoryObject::kustomization("app")).await?;
                let policy = StoryObject::of::<PlanPolicy>(&stage.story.namespace);
                stage.story.delete(&policy).await?;
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let story = &stage.story;
        let group = group(&story.namespace);
        let definition = story.read(&target(&group)).await?;
        let app = story.read(&StoryObject::kustomization("app")).await?;
        if act == 4 {
            return Ok(app.is_none() && stage.source_is_gone().await? && definition.is_none());
        }
        let revision = stage.revision();
        let is_ready = app.is_some_and(|app| {
            condition(&app, "Ready")["status"] == "True"
                && app.data["status"]["lastAppliedRevision"] == revision
        });
        let stored = definition.as_ref().map(|it| it.data["status"]["storedVersions"].clone());
        let is_right = match act {
            0 => definition.is_some(),
            1 => stored == Some(json!(["v1"])) && self.are_there(story, &group, true).await?,
            2 => definition.is_none(),
            _ => self.are_there(story, &group, false).await?,
        };
        Ok(is_ready && is_right)
    }
}

impl CrdScenario {
    /// Whether the user's objects are as the user made them. With `same` they must also have the same uids.
    async fn are_there(&self, story: &Story, group: &str, same: bool) -> anyhow::Result<bool> {
        let made = self.made.get().context("nothing was made")?;
        for (at, name) in OBJECTS.iter().enumerate() {
            let Some(live) = story.read(&own(group, name)).await? else { return Ok(false) };
            let is_same = live.metadata.uid.as_ref() == made.get(*name);
            let is_right = live.data["spec"] == spec(at) && live.data["status"] == status(at);
            if !is_right || (same && !is_same) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Creates the user's objects in the version that is dropped later, and returns their uids. No client writes that
/// version after that.
async fn make(story: &Story, group: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let deadline = Instant::now() + ESTABLISH_TIMEOUT;
    let mut made = BTreeMap::new();
    for (at, name) in OBJECTS.into_iter().enumerate() {
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": name}, "spec": spec(at)});
        let created = loop {
            match story.apply_value(object.clone()).await {
                Ok(created) => break created,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        };
        let status = json!({"status": status(at)});
        story.merge_status(&own(group, name), status).await?;
        made.insert(name.to_owned(), created.metadata.uid.context("it has no uid")?);
    }
    Ok(made)
}

fn spec(at: usize) -> Value {
    json!({"size": at, "text": format!("of {at}\n")})
}

fn status(at: usize) -> Value {
    json!({"id": format!("i-{at}")})
}

fn group(namespace: &str) -> String {
    format!("{namespace}.example.com")
}

fn definition_name(namespace: &str) -> String {
    format!("widgets.{}", group(namespace))
}

fn target(group: &str) -> StoryObject {
    StoryObject::new(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("widgets.{group}"),
    )
}

fn own(group: &str, name: &str) -> StoryObject {
    StoryObject::new(&format!("{group}/v1"), "Widget", name)
}

/// The definition with an additional older version, in which objects are stored.
fn both_versions(group: &str) -> anyhow::Result<String> {
    let mut definition = goyaml::to_json(widget_crd(group).as_bytes())?;
    let versions = definition["spec"]["versions"].as_array_mut().context("no versions")?;
    let mut old = versions.first().context("no version")?.clone();
    (old["name"], old["storage"]) = (json!("v1alpha1"), json!(true));
    for version in versions.iter_mut() {
        version["storage"] = json!(false);
    }
    versions.push(old);
    Ok(definition.to_string())
}
