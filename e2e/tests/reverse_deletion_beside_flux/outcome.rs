//! What remains of the objects of a scene, and which of them were deleted before their dependents had ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::harness::Story;
use e2e::harness::audited_writes::AuditedDeletion;
use serde_json::json;

use super::deletion_scenario::{
    DeletionOrderRow, DeletionPair, ForeignController, RemovedObject, TIMEOUT,
};

/// For how long no object may end before what remains counts as left. It is longer than `spec.timeout` of the appliers, after
/// which an operator may go on.
const QUIET: Duration = TIMEOUT.saturating_add(Duration::from_secs(30));

/// How long all objects together may take to end.
const LIMIT: Duration = Duration::from_secs(600);

/// What windlass does in each scene.
const IN_ORDER: &str = "in order; nothing is left";

const POLL: Duration = Duration::from_millis(500);

/// Finalizes objects like a slow controller of another project.
pub(super) struct SlowFinalizerController {
    finalized: Vec<RemovedObject>,
    /// How long it takes to finalize an object.
    delay: Duration,
    /// When the deletion of an object was noticed, by the name of the object in the audit log.
    noticed: BTreeMap<String, Instant>,
}

impl SlowFinalizerController {
    pub(super) fn of(objects: &[RemovedObject], delay: Duration) -> Self {
        let has_finalizer = |it: &&RemovedObject| !matches!(it.controller, ForeignController::None);
        let finalized = objects.iter().filter(has_finalizer).cloned().collect();
        Self { finalized, delay, noticed: BTreeMap::new() }
    }

    /// Removes the finalizer from each object that has been deleted for long enough, if its controller exists.
    async fn step(&mut self, story: &Story) -> Result<()> {
        for object in &self.finalized {
            let Some(found) = story.read_if_served(&object.target).await? else { continue };
            if found.metadata.deletion_timestamp.is_none() {
                continue;
            }
            let now = Instant::now();
            let noticed = *self.noticed.entry(object.audited.clone()).or_insert(now);
            if now.duration_since(noticed) >= self.delay && has_controller(story, object).await? {
                remove_finalizers(story, object).await?;
            }
        }
        Ok(())
    }

    /// Removes the finalizers from all objects that still exist, so that the story can end.
    pub(super) async fn release(&self, story: &Story) -> Result<()> {
        for object in &self.finalized {
            remove_finalizers(story, object).await?;
        }
        Ok(())
    }
}

/// Whether the controller that finalizes an object still runs.
async fn has_controller(story: &Story, object: &RemovedObject) -> Result<bool> {
    let ForeignController::Applied(controller) = &object.controller else { return Ok(true) };
    let found = story.read_if_served(controller).await?;
    Ok(found.is_some_and(|it| it.metadata.deletion_timestamp.is_none()))
}

/// Removes the finalizers from an object. An object that no longer exists is no error.
async fn remove_finalizers(story: &Story, object: &RemovedObject) -> Result<()> {
    if story.read_if_served(&object.target).await?.is_some() {
        story.merge(&object.target, json!({"metadata": {"finalizers": null}})).await?;
    }
    Ok(())
}

/// An object that still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemainingObject {
    audited: String,
    is_being_deleted: bool,
}

async fn remaining(story: &Story, objects: &[RemovedObject]) -> Result<Vec<RemainingObject>> {
    let mut all = Vec::new();
    for object in objects {
        if let Some(found) = story.read_if_served(&object.target).await? {
            let is_being_deleted = found.metadata.deletion_timestamp.is_some();
            all.push(RemainingObject { audited: object.audited.clone(), is_being_deleted });
        }
    }
    Ok(all)
}

/// Finalizes objects until none is left, or no more of them end. Returns what remains.
pub(super) async fn settle(
    story: &Story,
    termination: &mut SlowFinalizerController,
    objects: &[RemovedObject],
) -> Result<Vec<RemainingObject>> {
    let start = Instant::now();
    let mut last_change = start;
    let mut last = Vec::new();
    loop {
        termination.step(story).await?;
        let now = remaining(story, objects).await?;
        if now.is_empty() {
            return Ok(now);
        }
        if now != last {
            last = now;
            last_change = Instant::now();
        }
        if last_change.elapsed() >= QUIET || start.elapsed() >= LIMIT {
            return Ok(last);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Checks that the audit log has the deletion of each needed object that is gone. Otherwise, it would not show the order.
pub(super) fn ensure_logged(
    rows: &[DeletionOrderRow],
    deletions: &BTreeMap<String, AuditedDeletion>,
    remaining: &[RemainingObject],
) -> Result<()> {
    for pair in rows.iter().flat_map(|row| &row.pairs) {
        let needed = &pair.needed.audited;
        let is_left = remaining.iter().any(|it| it.audited == *needed);
        ensure!(is_left || deletions.contains_key(needed), "the audit log lacks {needed}");
    }
    Ok(())
}

/// Whether the second object of a pair was deleted before the first one had ended.
fn is_too_early(
    pair: &DeletionPair,
    deletions: &BTreeMap<String, AuditedDeletion>,
    left: &BTreeSet<&str>,
) -> bool {
    let is_left = |object: &RemovedObject| left.contains(object.audited.as_str());
    let Some(needed) = deletions.get(&pair.needed.audited) else { return false };
    // The operator of a source holds it by a finalizer, so a request for its deletion does no harm.
    let needed_at = if pair.needed.has_operator_finalizer {
        if is_left(&pair.needed) {
            return false;
        }
        &needed.last_change
    } else {
        &needed.requested
    };
    // A dependent that was never deleted was left behind.
    let Some(dependent) = deletions.get(&pair.dependent.audited) else { return true };
    is_left(&pair.dependent) || *needed_at < dependent.last_change
}

/// What became of the objects of a row.
#[derive(Debug)]
pub(super) struct DeletionOrderResult {
    title: &'static str,
    pairs: usize,
    /// The pairs whose second object was deleted too early.
    too_early: Vec<String>,
    /// Objects that were deleted and never end.
    stuck: Vec<String>,
    /// Objects that were never deleted.
    orphaned: Vec<String>,
}

impl DeletionOrderResult {
    pub(super) fn of(
        row: &DeletionOrderRow,
        deletions: &BTreeMap<String, AuditedDeletion>,
        remaining: &[RemainingObject],
        namespace: &str,
    ) -> Self {
        let left: BTreeSet<&str> = remaining.iter().map(|it| it.audited.as_str()).collect();
        let early = row.pairs.iter().filter(|pair| is_too_early(pair, deletions, &left));
        let said = |pair: &DeletionPair| {
            format!("{} before {}", pair.needed.target, pair.dependent.target)
        };
        let remains = |object: &RemovedObject| {
            remaining.iter().find(|it| it.audited == object.audited).map(|it| it.is_being_deleted)
        };
        // The name of the namespace is random, and the rows of a page are not.
        let name =
            |object: &RemovedObject| object.target.to_string().replace(namespace, "NAMESPACE");
        let with = |is_being_deleted: bool| {
            let all = row.objects.iter().filter(|it| remains(it) == Some(is_being_deleted));
            all.map(name).collect::<Vec<String>>()
        };
        Self {
            title: row.title,
            pairs: row.pairs.len(),
            too_early: early.map(said).collect(),
            stuck: with(true),
            orphaned: with(false),
        }
    }

    /// Whether the order was kept and nothing is left.
    pub(super) fn is_in_order(&self) -> bool {
        self.too_early.is_empty() && self.stuck.is_empty() && self.orphaned.is_empty()
    }

    fn cell(&self) -> String {
        let order = match self.too_early.len() {
            0 => "in order".to_owned(),
            count => format!("{count} of {} too early", self.pairs),
        };
        let mut parts = vec![order];
        if !self.stuck.is_empty() {
            parts.push(format!("never ends: {}", self.stuck.join(", ")));
        }
        if !self.orphaned.is_empty() {
            parts.push(format!("left behind: {}", self.orphaned.join(", ")));
        }
        if self.stuck.is_empty() && self.orphaned.is_empty() {
            parts.push("nothing is left".to_owned());
        }
        parts.join("; ")
    }

    /// The row of the table: the scene, what Flux does, and what windlass does, for which each scene has a story.
    pub(super) fn row(&self) -> String {
        format!("| {} | {} | {IN_ORDER} |", self.title, self.cell())
    }

    /// Whether a page has a row of this scene, whatever it says about Flux.
    pub(super) fn has_row(&self, page: &str) -> bool {
        let start = format!("| {} | ", self.title);
        let end = format!("| {IN_ORDER} |");
        page.lines().any(|line| line.starts_with(&start) && line.ends_with(&end))
    }

    /// The outcome with the objects that were deleted too early.
    pub(super) fn details(&self) -> String {
        let early = self.too_early.join("\n  ");
        format!("{}: {}\n  {early}", self.title, self.cell())
    }
}
