//! A HelmRelease that a Lifecycle holds at every phase.
//!
//! The acts install it, upgrade it, roll it back because the next version is not promoted, and remove it. The
//! scenario answers each LifecycleEvent when it sees it, also while windlass is down. `helm_release` has a release
//! without a Lifecycle.

use anyhow::{Context as _, bail};
use crds::operation_lifecycle::{Lifecycle, LifecycleBinding, LifecyclePhase, LifecycleState};
use e2e::harness::StoryObject;
use e2e::harness::charts_and_helm_releases::{newest, test_pod};
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::manifests::config_map;
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of a HelmRelease that a Lifecycle holds at every phase. Its acts install it, upgrade it, roll it back
/// after a refused promotion, and uninstall it.
#[derive(Default)]
pub(in crate::crash) struct LifecycleScenario;

/// The number of phases in all acts. The installation has three, each of the two upgrades three, the rollback two and
/// the removal two.
const EVENT_COUNT: usize = 13;

/// The number of operations in all acts. They are an installation, two upgrades, the tests of these three, a rollback
/// and a removal.
const AUDIT_COUNT: usize = 8;

impl CrashScenario for LifecycleScenario {
    const NAME: &'static str = "lifecycle";
    const ACTS: &'static [&'static str] =
        &["install", "upgrade", "refused promotion with rollback", "uninstall"];
    const RECORDS_FIRST: bool = false;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::helm_release()
    }

    /// Checks that each phase of an operation has one event, that each operation has one audit, and that each was
    /// created once.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        let mut problems = Vec::new();
        for (plural, wanted) in [("lifecycleevents", EVENT_COUNT), ("releaseaudits", AUDIT_COUNT)] {
            let counts = stage.story.creations(&[plural])?;
            if counts.len() != wanted {
                let found = counts.len();
                problems
                    .push(format!("there were {found} {plural} instead of {wanted}: {counts:?}"));
            }
            let twice = counts.into_iter().filter(|(_, count)| *count > 1);
            problems.extend(twice.map(|(name, count)| format!("{name} was created {count} times")));
        }
        Ok(problems)
    }

    fn may_delete(&self, act: usize, _: &str, name: &str) -> bool {
        let is_event = name.starts_with("app-p");
        let is_record = name.starts_with("sh.helm.release.v1.");
        let is_test = name.starts_with("hook-test-");
        match act {
            0 => is_event || is_test,
            1 | 2 => is_event || is_test || is_record,
            _ => true,
        }
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        match act {
            0 => {
                stage.commit(&version(1))?;
                let phases = [
                    "PreInstall",
                    "PostInstall",
                    "PreUpgrade",
                    "PostUpgrade",
                    "PreRollback",
                    "PostRollback",
                    "PreDelete",
                    "PostDelete",
                    "Promote",
                ];
                let lifecycle = stage.story.lifecycle("every", &phases, json!({})).await?;
                stage.story.bind(&lifecycle, json!({})).await?;
                stage.create_source().await?;
                let chart = json!({"spec": {"chart": "./chart",
                    "sourceRef": {"kind": "GitRepository", "name": SOURCE_NAME}}});
                let remediation = json!({"retries": 0, "remediateLastFailure": true});
                let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                    "metadata": {"name": "app"},
                    "spec": {"interval": NEVER, "chart": chart, "test": {"enable": true}, "maxHistory": 3,
                        "upgrade": {"remediation": remediation}}});
                stage.story.apply_value(object).await.map(drop)
            }
            1 | 2 => {
                stage.commit(&version(act + 1))?;
                stage.request_source().await
            }
            3 => {
                stage.story.delete(&StoryObject::helm_release("app")).await?;
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        answer(act, stage).await?;
        let app = stage.story.read(&StoryObject::helm_release("app")).await?;
        let is_answered = stage.story.lifecycle_events().await?.is_empty();
        if act == 3 {
            let is_over = app.is_none() && is_answered && stage.source_is_gone().await?;
            if is_over {
                let every = format!("{}-every", stage.story.namespace);
                let bound = StoryObject::of::<LifecycleBinding>(&every);
                for target in [StoryObject::of::<Lifecycle>(&every), bound] {
                    if stage.story.read(&target).await?.is_some() {
                        stage.story.delete(&target).await?;
                    }
                }
            }
            return Ok(is_over);
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
        Ok(ready && is_observed && is_answered && newest(&app)["version"] == revision)
    }
}

/// Answers the open LifecycleEvents. It does not promote the third version.
async fn answer(act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<()> {
    for event in stage.story.lifecycle_events().await? {
        let state = event.status.as_ref().and_then(|it| it.phase).unwrap_or_default();
        if state != LifecycleState::Pending {
            continue;
        }
        let is_refused = act == 2 && event.spec.phase == LifecyclePhase::Promote;
        let answer = if is_refused { "Failed" } else { "Succeeded" };
        let answered = stage.story.answer(&event, answer, "").await;
        // The event may be deleted by now.
        if answered.is_err() && stage.story.lifecycle_events().await?.contains(&event) {
            return answered.context("an event cannot be answered");
        }
    }
    Ok(())
}

fn version(number: usize) -> Vec<(String, String)> {
    let files = [
        ("Chart.yaml", format!("apiVersion: v2\nname: app\nversion: {number}.0.0\n")),
        ("templates/settings.yaml", config_map("settings", &number.to_string())),
        (
            "templates/test.yaml",
            test_pod(&format!("hook-test-{number}"), e2e::harness::manifests::PodBehavior::Ready),
        ),
    ];
    files.into_iter().map(|(path, text)| (format!("chart/{path}"), text)).collect()
}
