//! Two Kustomizations of one source. Commits change one of them, break it, and repair both. Each commit has one
//! ChangeSet with one verdict.
//!
//! `kustomization` has the scenario of Kustomizations themselves.

use anyhow::bail;
use crds::windlass_release::{ChangeSet, ChangeSetVerdict};
use e2e::harness::StoryObject;
use e2e::harness::manifests::config_map;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of commits that succeed and fail.
#[derive(Default)]
pub(in crate::crash) struct ChangeSetScenario;

/// The names of the Kustomizations. Each applies the folder with its name.
const NAMES: [&str; 2] = ["a", "b"];

/// How many acts are commits.
const COMMIT_ACTS: usize = 4;

impl CrashScenario for ChangeSetScenario {
    const NAME: &'static str = "change-set";
    const ACTS: &'static [&'static str] =
        &["install", "change one", "break one", "mend both", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    /// Checks that each commit has one ChangeSet.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        let mut problems = stage.created_again(&["changesets"])?;
        let counts = stage.story.creations(&["changesets"])?;
        if counts.len() != COMMIT_ACTS {
            problems
                .push(format!("there were {} ChangeSets instead of {COMMIT_ACTS}", counts.len()));
        }
        Ok(problems)
    }

    fn may_delete(&self, act: usize, _: &str, _: &str) -> bool {
        act == COMMIT_ACTS
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        let map = |name: &str, value: &str| (format!("{name}/map.yaml"), config_map(name, value));
        match act {
            0 => {
                stage.commit(&[map("a", "1"), map("b", "1")])?;
                stage.create_source().await?;
                for name in NAMES {
                    let spec = json!({"path": format!("./{name}")});
                    stage.story.kustomization(name, SOURCE_NAME, spec).await?;
                }
                Ok(())
            }
            1 => {
                stage.commit(&[map("a", "2")])?;
                stage.request_source().await
            }
            2 => {
                stage.commit(&[("b/map.yaml".to_owned(), "kind: [".to_owned())])?;
                stage.request_source().await
            }
            3 => {
                stage.commit(&[map("a", "4"), map("b", "4")])?;
                stage.request_source().await
            }
            COMMIT_ACTS => {
                for name in NAMES {
                    stage.story.delete(&StoryObject::kustomization(name)).await?;
                }
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        if act == COMMIT_ACTS {
            for name in NAMES {
                if stage.story.read(&StoryObject::kustomization(name)).await?.is_some() {
                    return Ok(false);
                }
            }
            return stage.source_is_gone().await;
        }
        let expected =
            if act == 2 { ChangeSetVerdict::Failed } else { ChangeSetVerdict::Succeeded };
        let api = Api::<ChangeSet>::namespaced(stage.story.client.clone(), &stage.story.namespace);
        let all = api.list(&ListParams::default()).await?.items;
        let newest = all.into_iter().max_by_key(|it| it.spec.sequence);
        let Some(newest) = newest.filter(|it| it.spec.revision == stage.revision()) else {
            return Ok(false);
        };
        let verdict = newest.status.as_ref().map(|it| it.verdict).unwrap_or_default();
        Ok(verdict == expected)
    }
}
