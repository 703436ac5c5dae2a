//! A HelmRelease whose chart is in the repository.
//!
//! The acts install it with hooks and tests, upgrade it, roll it back after a failed hook, repair it and remove it.
//! This module has the chart of each revision, and the end of each act.

use anyhow::bail;
use e2e::harness::StoryObject;
use e2e::harness::charts_and_helm_releases::{hook, newest, test_pod};
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of a HelmRelease. Its acts install it, upgrade it, roll it back after a failed hook, repair it and
/// uninstall it.
#[derive(Default)]
pub(in crate::crash) struct HelmReleaseScenario;

impl CrashScenario for HelmReleaseScenario {
    const NAME: &'static str = "helm-release";
    const ACTS: &'static [&'static str] =
        &["install", "upgrade", "failed upgrade with rollback", "mend", "uninstall"];
    const RECORDS_FIRST: bool = false;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap"), kind("apps/v1", "Deployment")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::helm_release()
    }

    /// Checks that each hook was created at most once. The name of a hook differs in each version of the chart.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        stage.created_again(&["jobs", "pods"])
    }

    fn may_delete(&self, act: usize, _: &str, name: &str) -> bool {
        let is_record = name.starts_with("sh.helm.release.v1.");
        let is_hook = name.starts_with("hook-");
        match act {
            0 => is_hook,
            1..=3 => is_hook || is_record || name == "leaving",
            _ => true,
        }
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        match act {
            0 => {
                stage.commit(&version(1))?;
                stage.create_source().await?;
                let chart = json!({"spec": {"chart": "./chart",
                    "sourceRef": {"kind": "GitRepository", "name": SOURCE_NAME}}});
                let remediation = json!({"retries": 0, "remediateLastFailure": true});
                let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                    "metadata": {"name": "app"},
                    "spec": {"interval": NEVER, "chart": chart, "test": {"enable": true}, "maxHistory": 3,
                        "install": {"remediation": {"retries": 3}}, "upgrade": {"remediation": remediation}}});
                stage.story.apply_value(object).await.map(drop)
            }
            1 => {
                stage.repository.git(&["rm", "-q", "--", "chart/templates/leaving.yaml"])?;
                stage.commit(&version(2))?;
                stage.request_source().await
            }
            2 | 3 => {
                stage.commit(&version(act + 1))?;
                stage.request_source().await
            }
            4 => {
                stage.story.delete(&StoryObject::helm_release("app")).await?;
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let app = stage.story.read(&StoryObject::helm_release("app")).await?;
        if act == 4 {
            return Ok(app.is_none() && stage.source_is_gone().await?);
        }
        let Some(app) = app else { return Ok(false) };
        let revision = if act < 2 { act + 1 } else { act + 2 };
        let ready = match act {
            2 => condition(&app, "Stalled")["status"] == "True",
            _ => {
                condition(&app, "Ready")["status"] == "True"
                    && condition(&app, "TestSuccess")["status"] == "True"
            }
        };
        let is_observed =
            app.data["status"]["observedGeneration"].as_i64() == app.metadata.generation;
        Ok(ready && is_observed && newest(&app)["version"] == revision)
    }
}

/// The chart's files in a version. The third version has a hook that fails.
fn version(number: usize) -> Vec<(String, String)> {
    let yaml = format!("apiVersion: v2\nname: app\nversion: {number}.0.0\n");
    let last = if number == 3 { PodBehavior::Fail } else { PodBehavior::Ready };
    let named = |name: &str, events: &str, policies: &str, pods| {
        hook(&format!("hook-{name}-{number}"), events, 0, policies, pods)
    };
    let mut files = vec![
        ("Chart.yaml", yaml),
        ("templates/settings.yaml", config_map("settings", &number.to_string())),
        ("templates/same.yaml", config_map("same", "1")),
        ("templates/web.yaml", deployment("web", PodBehavior::Ready)),
        (
            "templates/before.yaml",
            named("before", "pre-install,pre-upgrade", "hook-succeeded", PodBehavior::Ready),
        ),
        ("templates/after.yaml", named("after", "post-install,post-upgrade", "", last)),
        ("templates/back.yaml", named("back", "post-rollback", "", PodBehavior::Ready)),
        (
            "templates/goodbye.yaml",
            named("goodbye", "pre-delete", "hook-succeeded", PodBehavior::Ready),
        ),
        ("templates/test.yaml", test_pod(&format!("hook-test-{number}"), PodBehavior::Ready)),
    ];
    if number == 1 {
        files.push(("templates/leaving.yaml", config_map("leaving", "1")));
    }
    files.into_iter().map(|(path, text)| (format!("chart/{path}"), text)).collect()
}
