//! The gate of rollouts. An applier may take the newest artifact of its source, or has to stay at its present one until its
//! wave opens.
//!
//! The decisions of the last pass are in memory. After a restart they are made again from statuses, and before that no applier
//! takes a new artifact. Elsewhere: the decisions (`super`), and the stored artifacts (`kustomize_controller`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::Artifact;
use crds::windlass_release::{ChangeSet, ClusterStagedRollout, StagedRollout};
use parking_lot::Mutex;
use quarantine::build_inputs_record::BuildInputsRecord;
use reconcile::{
    ConditionReason, DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason,
};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use windlass_cluster::metrics::WakeReason;
use windlass_quarantine::artifact_of_result;
use windlass_runtime::lifecycle::watched_object_cache::{
    WATCH_PATIENCE, WatchedObjectCache, kind_node,
};
use windlass_runtime::run_context::RunContext;

use super::rollout_definition::{Labels, Rollout};

/// The reason of a condition: the rollouts are not known, so nothing new begins.
const ROLLOUTS_UNKNOWN: ConditionReason = ConditionReason::new("RolloutsUnknown");

/// How long runs wait for the first decisions of a process, counted from the first run. A longer wait would block their
/// workers in turn.
const FIRST_DECISIONS_WITHIN: Duration = Duration::from_secs(10);

/// The decision about an applier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecidedApplier {
    /// The uid of the rollout, and the generation of its spec.
    pub(crate) rollout: String,
    pub(crate) generation: i64,
    /// The digest of the artifact that the decision is about.
    pub(crate) digest: String,
    /// Whether the applier may take the artifact.
    pub(crate) is_released: bool,
    /// What the applier waits for, for users.
    pub(crate) text: String,
}

/// The last decisions about all selected appliers.
#[derive(Debug)]
pub(crate) struct RolloutDecisions {
    known: Mutex<Arc<BTreeMap<ObjectKey, DecidedApplier>>>,
    /// The appliers that asked before there was a decision about them, each with the text about its wait.
    undecided: Mutex<BTreeMap<ObjectKey, String>>,
    /// Notified when such an applier asks, so that the next pass begins soon.
    asked: Notify,
    /// Whether a pass has been completed.
    has_passed: watch::Sender<bool>,
    /// When the first applier asked.
    since: Instant,
}

impl Default for RolloutDecisions {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            undecided: Mutex::default(),
            asked: Notify::new(),
            has_passed: watch::Sender::new(false),
            since: Instant::now(),
        }
    }
}

impl RolloutDecisions {
    pub(crate) fn get(&self, applier: &ObjectKey) -> Option<DecidedApplier> {
        self.known.lock().get(applier).cloned()
    }

    /// Replaces all decisions. Wakes the appliers that no longer wait or wait for something else.
    pub(crate) fn publish(
        &self,
        context: &RunContext,
        decided: BTreeMap<ObjectKey, DecidedApplier>,
    ) {
        let decided = Arc::new(decided);
        let waits = |applier: &ObjectKey, said: &str| {
            decided.get(applier).is_some_and(|it| !it.is_released && it.text == said)
        };
        let before = std::mem::replace(&mut *self.known.lock(), decided.clone());
        let waited =
            before.iter().filter(|(_, it)| !it.is_released).map(|(key, it)| (key, &it.text));
        let undecided = std::mem::take(&mut *self.undecided.lock());
        for (applier, said) in waited.chain(&undecided) {
            if !waits(applier, said) {
                context.work_queue.wake(applier, WakeReason::Waiting);
            }
        }
        self.has_passed.send_replace(true);
    }

    /// Waits until an applier asks about which there is no decision.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    async fn passed(&self) {
        let mut passed = self.has_passed.subscribe();
        let first = passed.wait_for(|has_passed| *has_passed);
        drop(tokio::time::timeout_at(self.since + FIRST_DECISIONS_WITHIN, first).await);
    }
}

/// An applier that asks whether it may take an artifact.
#[derive(Debug, Clone)]
pub struct GatedApplier<'o> {
    /// The group, kind, namespace and name of the applier.
    pub node: &'o ObjectKey,
    /// The labels of the applier.
    pub labels: &'o BTreeMap<String, String>,
    /// The revision that the applier attempted last.
    pub attempted: Option<&'o str>,
    /// The revision that the applier last applied successfully.
    pub applied: Option<&'o str>,
    /// The inputs of the newest good result of that revision, if the status has them.
    pub good: Option<BuildInputsRecord>,
    /// The digest of the artifact that the applier attempted last, if the status has it.
    pub attempted_digest: Option<String>,
    /// Whether the applier can apply an artifact that is not the newest.
    pub may_be_pinned: bool,
}

impl GatedApplier<'_> {
    /// Whether the applier has attempted the artifact. An attempt that has begun is not taken back.
    fn has_attempted(&self, artifact: &Artifact) -> bool {
        self.attempted == Some(artifact.revision.as_str())
            && self.attempted_digest.as_ref().is_none_or(|digest| *digest == artifact.digest)
    }
}

/// Which artifact an applier may apply.
#[derive(Debug, Clone)]
pub enum WaveGate {
    /// The newest artifact of its source.
    Open,
    /// The artifact that it has at present.
    Pinned {
        /// The present artifact.
        artifact: Box<Artifact>,
        /// What the applier waits for, for users.
        text: String,
    },
}

/// Which artifact an applier may apply, if `artifact` is the newest one of its source.
///
/// # Errors
/// The outcome of a run that applies nothing. The rollouts are not known, or the applier's present artifact is not known or
/// was not applied completely.
pub async fn gate(
    context: &RunContext,
    applier: &GatedApplier<'_>,
    source: &ObjectKey,
    artifact: &Artifact,
    retry_at: Time,
) -> Result<WaveGate, RunOutcome> {
    let of_cluster = context.shared::<WatchedObjectCache<ClusterStagedRollout>>();
    let of_namespaces = context.shared::<WatchedObjectCache<StagedRollout>>();
    of_cluster.known().await;
    of_namespaces.known().await;
    of_cluster.current_within(WATCH_PATIENCE).await;
    of_namespaces.current_within(WATCH_PATIENCE).await;
    if applier.has_attempted(artifact) {
        return Ok(WaveGate::Open);
    }
    let namespace = &applier.node.namespace;
    let rollout = selecting(context, namespace, applier.labels).map_err(|why| {
        let known =
            [kind_node::<StagedRollout>(), kind_node::<ClusterStagedRollout>()].into();
        context.work_queue.set_edges(applier.node, DependencyEdge::Waits, known);
        let text = format!(
            "nothing new is applied: {why}; if that lasts, apply the ClusterRoles and CustomResourceDefinitions of this version \
             of windlass"
        );
        RunOutcome::Blocked(ROLLOUTS_UNKNOWN, text, NextRunTrigger::at(retry_at))
    })?;
    let Some(rollout) = rollout else { return Ok(WaveGate::Open) };
    let decisions = context.shared::<RolloutDecisions>();
    decisions.passed().await;
    let is_about_this = |it: &DecidedApplier| {
        it.rollout == rollout.uid
            && it.generation == rollout.generation
            && it.digest == artifact.digest
    };
    let decided = decisions.get(applier.node).filter(is_about_this);
    let text = match decided {
        Some(decided) if decided.is_released => return Ok(WaveGate::Open),
        Some(decided) => decided.text,
        None => {
            let text =
                rollout.waiting_text(&artifact.revision, rollout.wave_by_label(applier.labels));
            decisions.undecided.lock().insert(applier.node.clone(), text.clone());
            decisions.asked.notify_one();
            text
        }
    };
    let pinned = pinned(context, applier, source, artifact).filter(|_| applier.may_be_pinned);
    match pinned {
        Some(artifact) => Ok(WaveGate::Pinned { artifact: Box::new(artifact), text }),
        None => {
            let wake = NextRunTrigger::at(retry_at);
            let text = format!("{text}; nothing is changed until then, also not against drift");
            Err(RunOutcome::Blocked(condition_reason::WAITING_FOR_WAVE, text, wake))
        }
    }
}

/// Whether a rollout selects an applier. True if that is not known.
pub fn is_selected(context: &RunContext, namespace: &str, labels: &Labels) -> bool {
    selecting(context, namespace, labels).map_or(true, |rollout| rollout.is_some())
}

/// The first rollout that selects an applier.
fn selecting(
    context: &RunContext,
    namespace: &str,
    labels: &Labels,
) -> Result<Option<Rollout>, String> {
    for rollout in Rollout::all(context, Some(namespace))? {
        if rollout.selects(context, namespace, labels)? {
            return Ok(Some(rollout));
        }
    }
    Ok(None)
}

/// The present artifact of an applier. `None` if it is not known or was not applied completely.
fn pinned(
    context: &RunContext,
    applier: &GatedApplier<'_>,
    source: &ObjectKey,
    newest: &Artifact,
) -> Option<Artifact> {
    let revision = applier.applied.filter(|applied| Some(*applied) == applier.attempted)?;
    let known = applier.good.clone().filter(|it| it.revision == revision);
    let facts = known.or_else(|| {
        // The change that brought the revision records its artifact.
        let table = context.shared::<WatchedObjectCache<ChangeSet>>();
        let changes = table.of(&source.namespace);
        newest_change(&changes, source, revision).map(|change| BuildInputsRecord {
            revision: revision.to_owned(),
            artifact_digest: change.spec.digest.clone(),
            artifact_path: change.spec.path.clone(),
            ..BuildInputsRecord::default()
        })
    })?;
    artifact_of_result(newest, &facts)
}

/// The newest change of a source with this revision. `None` if no change brought the revision.
fn newest_change<'c>(
    changes: &'c [Arc<ChangeSet>],
    source: &ObjectKey,
    revision: &str,
) -> Option<&'c Arc<ChangeSet>> {
    let brought = changes.iter().filter(|it| {
        let of = &it.spec.source;
        of.kind == source.kind && of.name == source.name && it.spec.revision == revision
    });
    brought
        .max_by_key(|it| (it.metadata.creation_timestamp.as_ref().map(|at| at.0), it.spec.sequence))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact(revision: &str, digest: &str) -> Artifact {
        Artifact {
            digest: digest.to_owned(),
            last_update_time: crds::Time(Time::UNIX_EPOCH),
            metadata: BTreeMap::new(),
            path: "gitrepository/shop/fleet/2.tar.gz".to_owned(),
            revision: revision.to_owned(),
            size: None,
            url: String::new(),
        }
    }

    #[test]
    fn what_has_begun_is_known_by_revision_and_digest() {
        let node = ObjectKey::new("g", "Kustomization", "shop", "a");
        let applier = GatedApplier {
            node: &node,
            labels: &BTreeMap::new(),
            attempted: Some("2"),
            applied: Some("1"),
            good: None,
            attempted_digest: Some("sha256:2".to_owned()),
            may_be_pinned: true,
        };
        assert!(applier.has_attempted(&artifact("2", "sha256:2")));
        assert!(!applier.has_attempted(&artifact("2", "sha256:3")), "with another spec.ignore");
        assert!(!applier.has_attempted(&artifact("3", "sha256:2")));
        let silent = GatedApplier { attempted_digest: None, ..applier };
        assert!(silent.has_attempted(&artifact("2", "sha256:3")));
    }

    #[test]
    fn the_newest_change_of_a_source_that_comes_back_counts() {
        let change = |name: &str, sequence: i64, revision: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "shop"},
                "spec": {"source": {"kind": "GitRepository", "name": name, "uid": "u"},
                    "revision": revision, "digest": format!("d{sequence}"), "sequence": sequence}});
            Arc::new(serde_json::from_value::<ChangeSet>(object).unwrap())
        };
        let all = [change("fleet", 1, "1"), change("fleet", 3, "1"), change("other", 9, "1")];
        let source = ObjectKey::new("g", "GitRepository", "shop", "fleet");
        assert_eq!(newest_change(&all, &source, "1").unwrap().spec.digest, "d3");
        assert!(newest_change(&all, &source, "2").is_none());
    }
}
