//! A Kustomization whose second revision fails and is quarantined. windlass applies the first revision again until
//! the third one comes.
//!
//! `kustomization` has revisions that do not fail.

use anyhow::bail;
use e2e::harness::StoryObject;
use e2e::harness::flux_objects::{condition, revision};
use e2e::harness::manifests::{PodBehavior, config_map, deployment, job};
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// The name of the Job that makes the second revision fail.
const FAILING_JOB: &str = "failing";

/// A scenario of a Kustomization that is installed, rolled back after a failure, repaired and deleted.
#[derive(Default)]
pub(in crate::crash) struct QuarantineScenario;

impl CrashScenario for QuarantineScenario {
    const NAME: &'static str = "quarantine";
    const ACTS: &'static [&'static str] = &["install", "fail and roll back", "mend", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap"), kind("apps/v1", "Deployment"), kind("batch/v1", "Job")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    /// Checks that the failed result has one Quarantine.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        let mut problems = stage.created_again(&["quarantines"])?;
        let counts = stage.story.creations(&["quarantines"])?;
        if counts.len() != 1 {
            problems.push(format!("there were {} Quarantines instead of 1", counts.len()));
        }
        Ok(problems)
    }

    /// Objects that the first revision needs must not be pruned before the third one is healthy.
    fn may_delete(&self, act: usize, _: &str, name: &str) -> bool {
        match act {
            0 => false,
            1 => name == "new" || name == FAILING_JOB,
            2 => name == "old",
            _ => true,
        }
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        let app = StoryObject::kustomization("app");
        match act {
            0 => {
                let old = ("old.yaml".to_owned(), config_map("old", "1"));
                stage.commit(&[files("1"), vec![old]].concat())?;
                stage.create_source().await?;
                let spec = json!({"wait": true, "timeout": "1m"});
                stage.story.kustomization("app", SOURCE_NAME, spec).await?;
                let annotations = json!({"windlass.dev/on-failure": "RollBack"});
                let patch = json!({"metadata": {"annotations": annotations}});
                stage.story.merge(&app, patch).await.map(drop)
            }
            1 => {
                stage.repository.git(&["rm", "-q", "--", "old.yaml"])?;
                let new = ("new.yaml".to_owned(), config_map("new", "1"));
                // The Job fails at once, so windlass does not wait for a timeout.
                let failing = ("failing.yaml".to_owned(), job(FAILING_JOB, PodBehavior::Fail));
                stage.commit(&[files("2"), vec![new, failing]].concat())?;
                stage.request_source().await
            }
            2 => {
                stage.repository.git(&["rm", "-q", "--", "failing.yaml", "new.yaml"])?;
                let newer = ("newer.yaml".to_owned(), config_map("newer", "1"));
                stage.commit(&[files("3"), vec![newer]].concat())?;
                stage.request_source().await
            }
            3 => {
                stage.story.delete(&app).await?;
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let app = stage.story.read(&StoryObject::kustomization("app")).await?;
        if act == 3 {
            return Ok(app.is_none() && stage.source_is_gone().await?);
        }
        let Some(app) = app else { return Ok(false) };
        let status = &app.data["status"];
        let ready = condition(&app, "Ready");
        // After the second act, the first revision stays applied.
        let applied = stage.revisions.get(if act == 1 { 0 } else { act });
        let applied = revision(applied.map_or("", String::as_str));
        let is_good = status["lastAppliedRevision"] == applied
            && status["history"][0]["metadata"]["windlass.dev/ArtifactPath"].is_string();
        Ok(match act {
            1 => {
                let settings = stage.story.read(&StoryObject::config_map("settings")).await?;
                let new = stage.story.read(&StoryObject::config_map("new")).await?;
                let is_back = settings.is_some_and(|it| it.data["data"]["value"] == "1");
                is_good && ready["reason"] == "Quarantined" && is_back && new.is_none()
            }
            _ => is_good && ready["status"] == "True",
        })
    }
}

fn files(value: &str) -> Vec<(String, String)> {
    vec![
        ("settings.yaml".to_owned(), config_map("settings", value)),
        ("web.yaml".to_owned(), deployment("web", PodBehavior::Ready)),
    ]
}
