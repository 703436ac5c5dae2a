//! The same objects are removed together, once with windlass and once with the real controllers of Flux. The audit log of the API
//! server shows what was deleted before its dependents had ended, and the cluster shows what remains.
//!
//! windlass keeps the order and leaves nothing, also if one commit removes several scenes. What Flux does has to match the table
//! in `docs/dependencies.md`: after an update of Flux, the failed story prints the rows that the page needs.
//!
//! The stories have their own process, because each has its own windlass or Flux's controllers. Elsewhere: what delays a
//! deletion (`stories/reverse_deletion.rs`), dependents of other namespaces
//! (`tenant_dependents_delay_platform_deletions.rs`), each pair of kinds
//! (`releases_with_own_windlass/dependency_matrix.rs`), kills at every write
//! (`cargo xtask crash --scenario reverse-delete`).

mod custom_resources;
mod deletion_scenario;
mod graph;
mod needed_objects;
mod operators;
mod outcome;

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::json;

use deletion_scenario::{DeletionScenarioKind, DeletionScenarioSettings, Scene};
use operators::{GitOpsOperator, OperatorProcesses};
use outcome::{DeletionOrderResult, SlowFinalizerController, ensure_logged, settle};

/// Lets an operator apply scenes, removes everything at once, and waits until no more objects end. Returns one outcome for each
/// row of the table.
async fn run(
    kinds: &[DeletionScenarioKind],
    operator: GitOpsOperator,
) -> Result<Vec<DeletionOrderResult>> {
    // Scenes that are removed together have the same root.
    let first = *kinds.first().context("no scene")?;
    let story = Story::begin(&first.story_name(operator)).await?;
    let mut processes = OperatorProcesses::start(operator, &story, first.concurrency()).await?;
    let budget = story.without_deletion_budget().await?;
    let root = first.root();
    let source = first.source();
    let upstream = story.follow(source, &[("root/keep.yaml", config_map("keep", "1"))]).await?;
    let settings = DeletionScenarioSettings {
        operator,
        namespace: story.namespace.clone(),
        source,
        url: upstream.server.url(&upstream.repository),
        kubeconfig: std::fs::read_to_string(story.bed.operator_kubeconfig())?,
    };
    let mut scene = Scene::default();
    for kind in kinds {
        scene.extend(kind.scene(&settings)?);
    }
    for object in &scene.administered {
        story.apply_value(object.clone()).await?;
    }
    let files: Vec<(&str, String)> = scene.files().collect();
    let revision = upstream.push(&files).await?;
    story.kustomization(root, source, json!({"path": "./root"})).await?;
    story.await_applied(root, &revision).await?;
    for applier in &scene.appliers {
        story.await_ready(applier).await?;
    }
    let objects = scene.objects();
    for object in &objects {
        story.expect(&object.target).await?;
    }

    if first.is_deleted_by_user() {
        story.delete(&StoryObject::kustomization(root)).await?;
    } else {
        upstream.remove(&scene.removed_paths()).await?;
    }
    let mut termination = SlowFinalizerController::of(&objects, operator.termination());
    let remaining = settle(&story, &mut termination, &objects).await?;
    processes.ensure_running()?;
    story.await_log().await?;
    let deletions = story.deletions()?;
    ensure_logged(&scene.rows, &deletions, &remaining)?;
    let of_row = |row| DeletionOrderResult::of(row, &deletions, &remaining, &story.namespace);
    let outcomes: Vec<DeletionOrderResult> = scene.rows.iter().map(of_row).collect();
    if operator == GitOpsOperator::Windlass {
        ensure_in_order(&story, &outcomes).await?;
    }
    termination.release(&story).await?;
    story.delete(&budget).await?;
    story.end().await?;
    Ok(outcomes)
}

/// Checks that the order was kept, and that nothing remains.
async fn ensure_in_order(story: &Story, outcomes: &[DeletionOrderResult]) -> Result<()> {
    let wrong: Vec<String> =
        outcomes.iter().filter(|it| !it.is_in_order()).map(DeletionOrderResult::details).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}\n{}", wrong.join("\n"), story.diagnosis().await?)
}

/// The page with the table.
fn page() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dependencies.md");
    std::fs::read_to_string(path).context("cannot read docs/dependencies.md")
}

/// Checks what windlass does, and that the page has rows for it.
async fn ensure_windlass_keeps_order(kinds: &[DeletionScenarioKind]) -> Result<()> {
    let outcomes = run(kinds, GitOpsOperator::Windlass).await?;
    let page = page()?;
    for outcome in &outcomes {
        ensure!(outcome.has_row(&page), "docs/dependencies.md lacks a row: {}", outcome.details());
    }
    Ok(())
}

/// Compares the rows of the page with what Flux's controllers do.
#[expect(clippy::print_stderr, reason = "the page has only the number of objects, not their names")]
async fn ensure_page_is_right(kind: DeletionScenarioKind) -> Result<()> {
    let outcomes = run(&[kind], GitOpsOperator::Flux).await?;
    let details: Vec<String> = outcomes.iter().map(DeletionOrderResult::details).collect();
    eprintln!("{}", details.join("\n"));
    let rows: Vec<String> = outcomes.iter().map(DeletionOrderResult::row).collect();
    let page = page()?;
    let is_missing = |row: &&String| !page.lines().any(|line| line == row.as_str());
    let missing: Vec<&String> = rows.iter().filter(is_missing).collect();
    let all = rows.join("\n");
    ensure!(
        missing.is_empty(),
        "docs/dependencies.md needs these rows, and lacks {}:\n{all}",
        missing.len()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_commit_removes_ends_in_order() -> Result<()> {
    let kinds = [
        DeletionScenarioKind::FourLevels,
        DeletionScenarioKind::NeededObjects,
        DeletionScenarioKind::CustomResources,
    ];
    ensure_windlass_keeps_order(&kinds).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_flux_system_ends_in_order() -> Result<()> {
    ensure_windlass_keeps_order(&[DeletionScenarioKind::WholeInstallation]).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_ends_eight_appliers_in_four_levels_as_the_page_says() -> Result<()> {
    ensure_page_is_right(DeletionScenarioKind::FourLevels).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_ends_accounts_secrets_and_sources_as_the_page_says() -> Result<()> {
    ensure_page_is_right(DeletionScenarioKind::NeededObjects).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_ends_custom_resources_as_the_page_says() -> Result<()> {
    ensure_page_is_right(DeletionScenarioKind::CustomResources).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_ends_a_whole_flux_system_as_the_page_says() -> Result<()> {
    ensure_page_is_right(DeletionScenarioKind::WholeInstallation).await
}
