//! A Kustomization and a HelmRelease whose changes all wait for approval.
//!
//! Their installation and a change with a removal wait. The scenario approves each Plan when it sees it, also while
//! windlass is down, and windlass applies what was approved. `e2e/tests/releases_with_own_windlass/plan_matrix.rs` tests Plans
//! that are rejected, and Plans of Helmfiles.

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use crds::windlass_release::{Plan, PlanPolicy};
use e2e::harness::StoryObject;
use e2e::harness::audited_writes::AuditedConfigMapWrite;
use e2e::harness::charts_and_helm_releases::newest;
use e2e::harness::flux_objects::{NEVER, condition};
use e2e::harness::manifests::config_map;
use kube::ResourceExt as _;
use kube::core::ApiResource;
use serde_json::json;

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// How many acts wait for approval.
const APPROVED_ACTS: usize = 2;

/// The ConfigMap that the second revision does not have.
const LEAVING_NAME: &str = "leaving";

/// The approvals of a run.
#[derive(Default)]
struct ApprovalLog {
    /// For each act, when its Plan was approved. The times are in the format of the audit log.
    approved_at: RefCell<BTreeMap<usize, String>>,
}

impl ApprovalLog {
    /// Approves the Plans that wait. It returns whether there is no Plan.
    async fn approve(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let plans = stage.story.plans().await?;
        for plan in &plans {
            if plan.status.as_ref().is_some_and(|it| !it.approvals.is_empty()) {
                continue;
            }
            let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
            self.approved_at.borrow_mut().entry(act).or_insert(at);
            let approval = json!({"user": "admin", "groups": ["system:masters"]});
            let status = json!({"status": {"approvals": [approval]}});
            let target = StoryObject::of::<Plan>(&plan.name_any());
            let approved = stage.story.merge_status(&target, status).await;
            // The Plan may be deleted by now.
            if approved.is_err() && stage.story.read(&target).await?.is_some() {
                approved.context("a Plan cannot be approved")?;
            }
        }
        Ok(plans.is_empty())
    }

    /// Checks that each revision has one Plan, that the Plan was created once, and that nothing was written before
    /// its approval.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        let mut problems = stage.created_again(&["plans"])?;
        let plans = stage.story.creations(&["plans"])?.len();
        if plans != APPROVED_ACTS {
            problems.push(format!("there were {plans} Plans instead of {APPROVED_ACTS}"));
        }
        let approved_at = self.approved_at.borrow();
        for write in stage.story.config_map_writes()? {
            let Some(act) = act_of(&write) else { continue };
            if approved_at.get(&act).is_none_or(|at| *at > write.at) {
                let AuditedConfigMapWrite { at, action, name, .. } = write;
                problems.push(format!("{name} was {action} at {at}, before its Plan was approved"));
            }
        }
        Ok(problems)
    }
}

/// Begins the user's part of an act. It commits a revision with `more` files, or deletes the object. A revision is
/// one commit, because a windlass that restarts between two commits would make a Plan of the first one only.
async fn begin_act(
    act: usize,
    folder: &str,
    more: Vec<(String, String)>,
    object: &StoryObject,
    stage: &mut CrashScenarioSetup,
) -> anyhow::Result<()> {
    let mut files = more;
    let file = |name: &str, value: &str| (format!("{folder}{name}.yaml"), config_map(name, value));
    match act {
        0 => {
            files.extend(["changing", LEAVING_NAME, "same"].map(|name| file(name, "1")));
            stage.commit(&files)?;
            stage.story.plan_mode("Approve").await?;
            stage.create_source().await
        }
        1 => {
            let leaving = format!("{folder}{LEAVING_NAME}.yaml");
            stage.repository.git(&["rm", "-q", "--", &leaving])?;
            files.extend(["changing", "coming"].map(|name| file(name, "2")));
            stage.commit(&files)?;
            stage.request_source().await
        }
        APPROVED_ACTS => {
            stage.story.delete(object).await?;
            let policy = StoryObject::of::<PlanPolicy>(&stage.story.namespace);
            stage.story.delete(&policy).await?;
            stage.delete_source().await
        }
        _ => bail!("there is no act {act}"),
    }
}

/// The act whose Plan includes a write. `None` means that the deletion of the object removes it.
fn act_of(write: &AuditedConfigMapWrite) -> Option<usize> {
    match (write.action.as_str(), write.value.as_deref()) {
        ("removed", _) => (write.name == LEAVING_NAME).then_some(1),
        (_, Some("2")) => Some(1),
        _ => Some(0),
    }
}

/// Whether windlass may delete the named object in an act.
fn may_delete(act: usize, name: &str) -> bool {
    let is_plan_or_record = name.starts_with("app-") || name.starts_with("sh.helm.release.v1.");
    match act {
        0 => is_plan_or_record,
        1 => is_plan_or_record || name == LEAVING_NAME,
        _ => true,
    }
}

/// A scenario of a Kustomization that is installed, changed and deleted. The first two acts wait for approval.
#[derive(Default)]
pub(in crate::crash) struct PlanScenario(ApprovalLog);

impl CrashScenario for PlanScenario {
    const NAME: &'static str = "plan";
    const ACTS: &'static [&'static str] =
        &["install as approved", "change and prune as approved", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        self.0.judge(stage)
    }

    fn may_delete(&self, act: usize, _: &str, name: &str) -> bool {
        may_delete(act, name)
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        begin_act(act, "", Vec::new(), &StoryObject::kustomization("app"), stage).await?;
        match act {
            0 => stage.story.kustomization("app", SOURCE_NAME, json!({})).await,
            _ => Ok(()),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let app = stage.story.read(&StoryObject::kustomization("app")).await?;
        if act == APPROVED_ACTS {
            return Ok(app.is_none() && stage.source_is_gone().await?);
        }
        let is_free = self.0.approve(act, stage).await?;
        let revision = stage.revision();
        let is_applied = app.is_some_and(|app| {
            condition(&app, "Ready")["status"] == "True"
                && app.data["status"]["lastAppliedRevision"] == revision
        });
        Ok(is_applied && is_free)
    }
}

/// A scenario of a HelmRelease that is installed, changed and deleted. One approval lets one operation begin.
#[derive(Default)]
pub(in crate::crash) struct PlanReleaseScenario(ApprovalLog);

impl CrashScenario for PlanReleaseScenario {
    const NAME: &'static str = "plan-release";
    const ACTS: &'static [&'static str] =
        &["install as approved", "upgrade as approved", "uninstall"];
    const RECORDS_FIRST: bool = false;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::helm_release()
    }

    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        self.0.judge(stage)
    }

    fn may_delete(&self, act: usize, _: &str, name: &str) -> bool {
        may_delete(act, name)
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        let version = format!("apiVersion: v2\nname: app\nversion: {}.0.0\n", act + 1);
        let chart = vec![("chart/Chart.yaml".to_owned(), version)];
        let app = StoryObject::helm_release("app");
        begin_act(act, "chart/templates/", chart, &app, stage).await?;
        if act > 0 {
            return Ok(());
        }
        let chart = json!({"spec": {"chart": "./chart",
            "sourceRef": {"kind": "GitRepository", "name": SOURCE_NAME}}});
        let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app"}, "spec": {"interval": NEVER, "chart": chart}});
        stage.story.apply_value(object).await.map(drop)
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let app = stage.story.read(&StoryObject::helm_release("app")).await?;
        if act == APPROVED_ACTS {
            return Ok(app.is_none() && stage.source_is_gone().await?);
        }
        let is_free = self.0.approve(act, stage).await?;
        let is_released = app.is_some_and(|app| {
            condition(&app, "Ready")["status"] == "True"
                && app.data["status"]["observedGeneration"].as_i64() == app.metadata.generation
                && newest(&app)["version"] == act + 1
        });
        Ok(is_released && is_free)
    }
}
