//! Two Kustomizations of one source in two waves. Each commit reaches the canary first, and a commit that breaks the
//! canary never reaches production.
//!
//! `kustomization` has the scenario of Kustomizations themselves.

use anyhow::{Context as _, bail, ensure};
use e2e::harness::StoryObject;
use e2e::harness::audited_writes::AuditedConfigMapWrite;
use e2e::harness::flux_objects::condition;
use e2e::harness::manifests::config_map;
use jiff::{SignedDuration, Timestamp};
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of commits in two waves, one of which breaks the canary.
#[derive(Default)]
pub(in crate::crash) struct StagedRolloutScenario;

/// The canary and the production Kustomization. Each applies the folder with its name.
const NAMES: [&str; 2] = ["a", "b"];

/// The act that breaks the canary.
const BREAKING_ACT: usize = 2;

/// The value of the ConfigMaps in the act that breaks the canary.
const BREAKING_VALUE: &str = "3";

/// The values of the ConfigMaps in the acts in which both waves take the commit.
const ROLLED_OUT_VALUES: [&str; 2] = ["2", "4"];

/// The soak time of the canary.
const SOAK_TIME: &str = "2s";

/// The least time between the writes of the canary and of production. The status has whole seconds, so the soak time
/// may be one second shorter after a restart.
const LEAST_LEAD: SignedDuration = SignedDuration::from_secs(1);

/// The act that deletes everything.
const DELETING_ACT: usize = 4;

fn rollout() -> StoryObject {
    StoryObject::new("release.windlass.dev/v1alpha1", "StagedRollout", "fleet")
}

impl StagedRolloutScenario {
    async fn install(stage: &CrashScenarioSetup) -> anyhow::Result<()> {
        let story = &stage.story;
        stage.create_source().await?;
        for name in NAMES {
            let spec = json!({"path": format!("./{name}")});
            story.kustomization(name, SOURCE_NAME, spec).await?;
        }
        let canary = json!({"metadata": {"labels": {"windlass.dev/wave": "canary"}}});
        story.merge(&StoryObject::kustomization("a"), canary).await?;
        let waves = json!([
            {"name": "canary", "values": ["canary"], "maxUnavailable": "1", "soak": SOAK_TIME},
            {"name": "production"},
        ]);
        let object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "StagedRollout",
            "metadata": {"name": "fleet", "namespace": story.namespace},
            "spec": {"selector": {}, "waves": waves}});
        story.apply_value(object).await.map(drop)
    }
}

/// The time at which the API server received a write.
fn received(write: &AuditedConfigMapWrite) -> anyhow::Result<Timestamp> {
    write.at.parse::<Timestamp>().with_context(|| format!("`{}` is no time", write.at))
}

impl CrashScenario for StagedRolloutScenario {
    const NAME: &'static str = "staged-rollout";
    const ACTS: &'static [&'static str] =
        &["install", "roll out", "break the canary", "mend", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    /// Checks that no commit reached production before the canary had it for the soak time. The commit that breaks
    /// the canary must never reach production.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        let writes = stage.story.config_map_writes()?;
        let first = |name: &str, value: &str| {
            writes.iter().find(|it| it.name == name && it.value.as_deref() == Some(value))
        };
        let mut problems = Vec::new();
        if first("b", BREAKING_VALUE).is_some() {
            problems.push("production was given what broke the canary".to_owned());
        }
        for value in ROLLED_OUT_VALUES {
            let Some(production) = first("b", value) else { continue };
            let lead = match first("a", value) {
                Some(canary) => received(production)?.duration_since(received(canary)?),
                None => SignedDuration::MIN,
            };
            if lead < LEAST_LEAD {
                problems.push(format!("production was given {value} {lead:?} after the canary"));
            }
        }
        // Both waves had the second commit before the third one was made, so the audit log must have its write to
        // production.
        if stage.revisions.len() > BREAKING_ACT && first("b", "2").is_none() {
            problems.push("the audit log has no write of production".to_owned());
        }
        Ok(problems)
    }

    fn may_delete(&self, act: usize, _: &str, _: &str) -> bool {
        act == DELETING_ACT
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        let map = |name: &str, value: &str| (format!("{name}/map.yaml"), config_map(name, value));
        match act {
            0 => {
                stage.commit(&[map("a", "1"), map("b", "1")])?;
                Self::install(stage).await
            }
            1 => {
                stage.commit(&[map("a", "2"), map("b", "2")])?;
                stage.request_source().await
            }
            BREAKING_ACT => {
                stage.commit(&[
                    ("a/map.yaml".to_owned(), "kind: [".to_owned()),
                    map("b", BREAKING_VALUE),
                ])?;
                stage.request_source().await
            }
            3 => {
                stage.commit(&[map("a", "4"), map("b", "4")])?;
                stage.request_source().await
            }
            DELETING_ACT => {
                for name in NAMES {
                    stage.story.delete(&StoryObject::kustomization(name)).await?;
                }
                stage.story.delete(&rollout()).await?;
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let mut found = Vec::new();
        for name in NAMES {
            found.extend(stage.story.read(&StoryObject::kustomization(name)).await?);
        }
        if act == DELETING_ACT {
            return Ok(found.is_empty() && stage.source_is_gone().await?);
        }
        let [canary, production] = found.as_slice() else { return Ok(false) };
        let Some(rollout) = stage.story.read(&rollout()).await? else { return Ok(false) };
        let verdict = &condition(&rollout, "Ready")["reason"];
        let revision = stage.revision();
        if act == BREAKING_ACT {
            let attempted = &production.data["status"]["lastAttemptedRevision"];
            ensure!(*attempted != revision.as_str(), "production took what broke the canary");
            let is_failed = condition(canary, "Ready")["reason"] == "BuildFailed"
                && canary.data["status"]["lastAttemptedRevision"] == revision.as_str();
            let message = condition(production, "windlass.dev/Wave")["message"].as_str();
            let waits = message.is_some_and(|it| it.contains(&revision));
            return Ok(is_failed && waits && verdict == "WaveFailed");
        }
        let is_at = |object: &kube::api::DynamicObject| {
            condition(object, "Ready")["status"] == "True"
                && object.data["status"]["lastAppliedRevision"] == revision.as_str()
        };
        // A rollout that windlass has not seen yet would not hold the next commit.
        Ok(is_at(canary) && is_at(production) && verdict == "Succeeded")
    }
}
