//! A Helmfile of three releases, one of which has hooks of its chart and of the helmfile.
//!
//! The acts install the releases in the order of their needs, upgrade one, remove one from the file, and remove all.
//! This module has the files and the end of each act.

use anyhow::bail;
use crds::windlass_release::PlanPolicy;
use e2e::harness::StoryObject;
use e2e::harness::charts_and_helm_releases::hook;
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of a Helmfile with three releases. Its acts install them in the order of their needs, upgrade one,
/// remove one from the file, and uninstall all.
#[derive(Default)]
pub(in crate::crash) struct HelmfileScenario;

/// The ConfigMaps that the hooks of the helmfile apply. They have no owner, so they stay.
const NOTES: [&str; 2] = ["note-before", "note-after"];

/// The content of these ConfigMaps in an act.
fn note(act: usize) -> &'static str {
    if act == 0 { "1" } else { "2" }
}

fn helmfile() -> StoryObject {
    StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop")
}

impl CrashScenario for HelmfileScenario {
    const NAME: &'static str = "helmfile";
    const ACTS: &'static [&'static str] = &["install", "upgrade of one", "one leaves", "uninstall"];
    const RECORDS_FIRST: bool = false;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap"), kind("apps/v1", "Deployment")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::helmfile()
    }

    /// Checks that each hook was created at most once. The name of a hook differs for each version and event.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        stage.created_again(&["jobs"])
    }

    fn may_delete(&self, act: usize, _: &str, name: &str) -> bool {
        let is_hook = name.starts_with("hook-");
        match act {
            0 | 1 => is_hook,
            2 => is_hook || name.contains("extra"),
            _ => true,
        }
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        match act {
            0 => {
                stage.commit(&files(0))?;
                // The deletion budget would hold the removal of a release that leaves the file.
                stage.story.without_deletion_budget().await?;
                stage.create_source().await?;
                let object = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
                    "metadata": {"name": "shop"}, "spec": {"interval": NEVER, "prune": true,
                        "sourceRef": {"kind": "GitRepository", "name": SOURCE_NAME}}});
                stage.story.apply_value(object).await.map(drop)
            }
            1 | 2 => {
                stage.commit(&files(act))?;
                stage.request_source().await
            }
            3 => {
                stage.story.delete(&helmfile()).await?;
                let policy = StoryObject::of::<PlanPolicy>(&stage.story.namespace);
                stage.story.delete(&policy).await?;
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        for name in NOTES {
            let map = stage.story.read(&StoryObject::config_map(name)).await?;
            if map.is_none_or(|map| map.data["data"]["value"] != note(act)) {
                return Ok(false);
            }
        }
        let shop = stage.story.read(&helmfile()).await?;
        if act == 3 {
            return Ok(shop.is_none() && stage.source_is_gone().await?);
        }
        let Some(shop) = shop else { return Ok(false) };
        Ok(condition(&shop, "Ready")["status"] == "True"
            && shop.data["status"]["lastAppliedRevision"] == stage.revision())
    }
}

/// The files of the charts, and the helmfile of an act.
fn files(act: usize) -> Vec<(String, String)> {
    let value = note(act);
    let extra = "- {name: extra, chart: ./plain, needs: [web]}\n";
    let extra = if act < 2 { extra } else { "" };
    let helmfile = format!(
        "releases:\n- {{name: web, chart: ./web, wait: true, needs: [db], values: [{{value: \"{value}\"}}], hooks: [\
         {{events: [presync], kubectlApply: {{filename: notes/before.yaml}}}}, \
         {{events: [postsync], kubectlApply: {{filename: notes/after.yaml}}}}]}}\n\
         - {{name: db, chart: ./plain}}\n{extra}"
    );
    let named = |name: &str, events: &str| {
        let text =
            hook(&format!("hook-{name}-HERE"), events, 0, "hook-succeeded", PodBehavior::Ready);
        text.replace("HERE", "{{ .Release.Revision }}")
    };
    let value = config_map("web-settings", "HERE").replace("HERE", "{{ .Values.value }}");
    let [before, after] = NOTES.map(|name| config_map(name, note(act)));
    let plain = config_map("NAME-settings", "1").replace("NAME", "{{ .Release.Name }}");
    let files = [
        ("helmfile.yaml", helmfile),
        ("notes/before.yaml", before),
        ("notes/after.yaml", after),
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n".to_owned()),
        ("web/templates/settings.yaml", value),
        ("web/templates/web.yaml", deployment("web", PodBehavior::Ready)),
        ("web/templates/before.yaml", named("before", "pre-install,pre-upgrade")),
        ("web/templates/goodbye.yaml", named("goodbye", "pre-delete")),
        ("plain/Chart.yaml", "apiVersion: v2\nname: plain\nversion: 1.0.0\n".to_owned()),
        ("plain/templates/settings.yaml", plain),
    ];
    files.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()
}
