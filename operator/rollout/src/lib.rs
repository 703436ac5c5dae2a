//! StagedRollouts: the waves in which Kustomizations and Helmfiles take a new revision of their source.
//!
//! Each pass reads the statuses of all selected appliers, and decides which of them may take the newest artifact of their
//! source. It first writes the decisions that must survive a restart into the status of each rollout. An applier asks before
//! it takes a new artifact, and otherwise stays at its present one ([`gate`]).
//!
//! Below: parsed rollouts (`rollout_definition`), appliers (`observed_appliers`), clusters that do not respond
//! (`offline_clusters`), the status (`rollout_status`), when passes are frequent (`recent_progress`), and when the next one does
//! not wait for its turn (`wave_end`). Elsewhere: the decision (engine `rollout`).

mod observed_appliers;
mod offline_clusters;
mod recent_progress;
mod rollout_definition;
mod rollout_status;
mod wave_end;
mod wave_gate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Artifact;
use crds::helmfile::Helmfile;
use crds::kustomize::Kustomization;
use crds::windlass_release::{
    ChangeSet, ClusterStagedRollout, Quarantine, StagedRollout, StagedRolloutStatus,
};
use kube_core::Resource;
use reconcile::{ObjectKey, Time};
use rollout::wave_assignment::{WaveAssignmentInput, assign};
use rollout::wave_decision::{MemberProgress, RolloutMember, decide};
use tokio_util::sync::CancellationToken;

use windlass_cluster::ClusterError;
use windlass_runtime::lifecycle::watched_object_cache::{
    self, CachedObjectChange, WatchedObjectCache, kind_node, resource,
};
use windlass_runtime::run_context::RunContext;

use observed_appliers::ObservedApplier;
pub use observed_appliers::facts_of_revision;
use offline_clusters::{ClusterAccess, OfflineClusters};
use recent_progress::RecentProgress;
use rollout_definition::{Rollout, RolloutWaves};
use rollout_status::{RolloutReport, SourceRollout};
use wave_end::AppliersTakingArtifact;
use wave_gate::{DecidedApplier, RolloutDecisions};
pub use wave_gate::{GatedApplier, WaveGate, gate, is_selected};

/// The field manager of the statuses of rollouts.
const MANAGER: &str = "windlass";

/// How often appliers are compared with the artifacts of their sources while no rollout moves on.
const PASS_INTERVAL: Duration = Duration::from_millis(500);

/// The shortest rest after a pass. While a rollout moves on, the rest is not longer than necessary, so that the next wave begins
/// soon after the one before.
const SHORTEST_REST: Duration = Duration::from_millis(100);

/// The rest after a pass, as a multiple of its duration. It limits the passes to a twentieth of a core.
const PASS_REST_FACTOR: u32 = 20;

/// The longest rest after a pass.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// The shortest rest before a pass that follows the end of a wave, and after a check for that end, as a multiple of the duration
/// of the pass or check before. It limits each of both to a tenth of a core.
const WAVE_END_REST_FACTOR: u32 = 9;

/// How often a status is written if only its counts change.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// How long a status is not written after a failed write.
const REFUSAL_DELAY: Duration = Duration::from_secs(10);

/// The most statuses that a pass writes, so that a tenant with many rollouts does not delay others.
const MAX_WRITES_PER_PASS: usize = 64;

/// How long the first pass waits for kinds whose CRDs may be missing.
const OPTIONAL_KINDS_WITHIN: Duration = Duration::from_secs(10);

/// Watches StagedRollouts until `stop`, and wakes what depends on them when a spec changes.
pub async fn follow(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<StagedRollout>| {
        if has_another_spec(&changed) {
            context.work_queue.changed(&kind_node::<StagedRollout>());
        }
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Watches ClusterStagedRollouts until `stop`, and wakes what depends on them when a spec changes.
pub async fn follow_of_cluster(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<ClusterStagedRollout>| {
        if has_another_spec(&changed) {
            context.work_queue.changed(&kind_node::<ClusterStagedRollout>());
        }
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Whether a change is about the spec. Each pass writes statuses, which must not wake all waiting appliers.
fn has_another_spec<K: Resource>(change: &CachedObjectChange<K>) -> bool {
    let generation = |object: &Arc<K>| object.meta().generation;
    let before = change.before.as_ref().and_then(generation);
    before.is_none() || before != change.after.as_ref().and_then(generation)
}

/// Decides which appliers may take a new revision, until `stop`.
pub async fn run(context: Arc<RunContext>, stop: CancellationToken) {
    let work = async {
        context.cluster.leadership.begun().await;
        if !are_listed(&context).await {
            return;
        }
        let mut run = RolloutReconcileLoop {
            context,
            offline: OfflineClusters::default(),
            written: BTreeMap::new(),
            paused: BTreeMap::new(),
            soaks: BTreeMap::new(),
            taking: Vec::new(),
            recent: RecentProgress::new(Instant::now()),
            writes_left: 0,
            waited: Duration::ZERO,
        };
        loop {
            let began = Instant::now();
            let moves_on = run.pass().await;
            // Waits for the API server use no processor.
            let worked = began.elapsed().saturating_sub(run.waited);
            let rest = worked.saturating_mul(PASS_REST_FACTOR).clamp(SHORTEST_REST, LONGEST_REST);
            if moves_on {
                // The end of a wave ends the rest after this part.
                let least = worked.saturating_mul(WAVE_END_REST_FACTOR).min(rest);
                tokio::time::sleep(least).await;
                let more = rest.saturating_sub(least);
                let ended = wave_end::ended(&run.context, &run.taking);
                drop(tokio::time::timeout(more, ended).await);
            } else {
                tokio::time::sleep(rest).await;
                // An applier that asks about a new artifact ends this part of the rest.
                let decisions = run.context.shared::<RolloutDecisions>();
                let more = PASS_INTERVAL.saturating_sub(rest);
                drop(tokio::time::timeout(more, decisions.asked()).await);
            }
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Waits until sources, appliers and rollouts were listed, because before that one may only seem to be missing. Returns false
/// if a watch ended before.
async fn are_listed(context: &RunContext) -> bool {
    let is_listed =
        context.sources.listed().await.is_some() && context.kept.listed::<Kustomization>().await;
    let helmfiles = context.kept.listed::<Helmfile>();
    drop(tokio::time::timeout(OPTIONAL_KINDS_WITHIN, helmfiles).await);
    context.shared::<WatchedObjectCache<StagedRollout>>().known().await;
    context.shared::<WatchedObjectCache<ClusterStagedRollout>>().known().await;
    context.shared::<WatchedObjectCache<ChangeSet>>().known().await;
    context.shared::<WatchedObjectCache<Quarantine>>().known().await;
    is_listed
}

/// The status of a rollout that was last written, and when.
#[derive(Debug, Clone)]
struct WrittenRolloutStatus {
    status: StagedRolloutStatus,
    at: Instant,
}

struct RolloutReconcileLoop {
    context: Arc<RunContext>,
    offline: OfflineClusters,
    /// The last writes, by the uids of rollouts.
    written: BTreeMap<String, WrittenRolloutStatus>,
    /// Until when the status of a rollout is not written, by the uids of rollouts.
    paused: BTreeMap<String, Instant>,
    /// The soak times, by the uid of the rollout and the source. A status does not list all sources, and without this record
    /// the missing ones would soak forever.
    soaks: BTreeMap<(String, ObjectKey), SourceSoak>,
    /// The appliers that took the artifacts of their sources and had not come to their end in the last pass.
    taking: Vec<AppliersTakingArtifact>,
    /// The last decisions, and when they changed.
    recent: RecentProgress,
    /// How many more statuses this pass may write.
    writes_left: usize,
    /// How long this pass has waited for the API server.
    waited: Duration,
}

/// Since when the waves of a rollout have an artifact, as the last pass saw it.
#[derive(Debug)]
struct SourceSoak {
    generation: i64,
    revision: String,
    digest: String,
    updated_since: Vec<Option<Time>>,
}

/// The appliers of a rollout, by their sources.
#[derive(Debug, Default)]
struct SelectedAppliers {
    by_source: BTreeMap<ObjectKey, Vec<ObservedApplier>>,
    /// The selected appliers that belong to another rollout, which takes precedence.
    overlapping: Vec<String>,
}

/// The decisions about the appliers of a rollout, before they are published.
#[derive(Debug, Default)]
struct DecidedRollout {
    report: RolloutReport,
    appliers: BTreeMap<ObjectKey, DecidedApplier>,
    /// The clusters that the rollout waits for or has skipped.
    awaited: BTreeMap<String, ClusterAccess>,
    taking: Vec<AppliersTakingArtifact>,
}

impl RolloutReconcileLoop {
    /// Decides about all appliers. Returns whether a rollout has moved on a moment ago.
    async fn pass(&mut self) -> bool {
        let now = jiff::Timestamp::now();
        self.writes_left = MAX_WRITES_PER_PASS;
        self.waited = Duration::ZERO;
        // While rollouts are not known, nothing new begins and earlier decisions stay.
        let Ok(rollouts) = Rollout::all(&self.context, None) else { return false };
        let selected = match rollouts.is_empty() {
            true => Ok(Vec::new()),
            false => self.selected(&rollouts),
        };
        let Ok(selected) = selected else { return false };
        let decisions = self.context.shared::<RolloutDecisions>();
        let mut decided = BTreeMap::new();
        let mut awaited = BTreeMap::new();
        let mut soaks = BTreeMap::new();
        let mut taking = Vec::new();
        let mut recent = Vec::new();
        for (rollout, selected) in rollouts.iter().zip(selected) {
            let of_rollout = self.decide(rollout, &selected, &decisions, now);
            let is_written = self.write(rollout, &of_rollout.report, now).await;
            for (applier, it) in of_rollout.appliers {
                // If the status is not written, a restart could decide otherwise. So no further applier is released.
                let was_released = || is_released(&decisions, &applier, &it);
                let is_released = it.is_released && (is_written || was_released());
                decided.insert(applier, DecidedApplier { is_released, ..it });
            }
            awaited.extend(of_rollout.awaited);
            taking.extend(of_rollout.taking);
            for it in of_rollout.report.sources {
                let soak = SourceSoak {
                    generation: rollout.generation,
                    revision: it.revision,
                    digest: it.digest,
                    updated_since: it.decision.waves.iter().map(|it| it.updated_since).collect(),
                };
                soaks.insert((rollout.uid.clone(), it.source), soak);
                recent.push(it.decision);
            }
        }
        self.soaks = soaks;
        self.taking = taking;
        let uids: BTreeSet<&str> = rollouts.iter().map(|it| it.uid.as_str()).collect();
        self.written.retain(|uid, _| uids.contains(uid.as_str()));
        self.paused.retain(|_, until| *until > Instant::now());
        decisions.publish(&self.context, decided);
        self.offline.probe(&self.context, &awaited);
        self.recent.note(recent, Instant::now())
    }

    /// The appliers of each rollout.
    ///
    /// # Errors
    /// The labels of a namespace are not known.
    fn selected(&self, rollouts: &[Rollout]) -> Result<Vec<SelectedAppliers>, String> {
        let mut all: Vec<SelectedAppliers> =
            rollouts.iter().map(|_| SelectedAppliers::default()).collect();
        // A namespaced rollout is compared only with the appliers of its namespace.
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, rollout) in rollouts.iter().enumerate() {
            places.entry(rollout.namespace.as_str()).or_default().push(place);
        }
        let of = |namespace: &str| places.get(namespace).map(Vec::as_slice).unwrap_or_default();
        for applier in ObservedApplier::all(&self.context) {
            let Some(source) = applier.source(&self.context) else { continue };
            let key = applier.key();
            let mut owner: Option<&Rollout> = None;
            // ClusterStagedRollouts come first.
            for place in of("").iter().chain(of(&key.namespace)) {
                let found = rollouts.get(*place).zip(all.get_mut(*place));
                let Some((rollout, selected)) = found else { continue };
                if !rollout.selects(&self.context, &key.namespace, applier.labels())? {
                    continue;
                }
                match owner {
                    None => {
                        owner = Some(rollout);
                        let of_source = selected.by_source.entry(source.clone()).or_default();
                        of_source.push(applier.clone());
                    }
                    Some(owner) => selected.overlapping.push(format!("{key} ({owner})")),
                }
            }
        }
        for appliers in all.iter_mut().flat_map(|it| it.by_source.values_mut()) {
            appliers.sort_by(|one, other| one.order().cmp(&other.order()));
        }
        Ok(all)
    }

    /// Decides about all appliers of a rollout.
    fn decide(
        &self,
        rollout: &Rollout,
        selected: &SelectedAppliers,
        decisions: &RolloutDecisions,
        now: Time,
    ) -> DecidedRollout {
        let mut decided = DecidedRollout::default();
        decided.report.overlapping.clone_from(&selected.overlapping);
        for (source, appliers) in &selected.by_source {
            decided.report.members += appliers.len();
            let found = self.context.sources.find(source, &self.context.settings);
            let Some(artifact) = found.and_then(|it| it.artifact) else { continue };
            match &rollout.waves {
                Ok(waves) => {
                    let of_source = AppliersOfSource { rollout, waves, source, appliers, artifact };
                    self.decide_source(&of_source, decisions, &mut decided, now);
                }
                Err(_) => {
                    for applier in appliers {
                        let text = rollout.waiting_text(&artifact.revision, None);
                        let it = decision(rollout, &artifact, false, text);
                        decided.appliers.insert(applier.key(), it);
                    }
                }
            }
        }
        decided
    }

    /// Decides about the appliers of one source.
    fn decide_source(
        &self,
        of: &AppliersOfSource<'_>,
        decisions: &RolloutDecisions,
        decided: &mut DecidedRollout,
        now: Time,
    ) {
        let AppliersOfSource { rollout, waves, source, appliers, artifact } = of;
        let members = self.members(of, decisions, now);
        let since = self.updated_since(rollout, source, artifact);
        let decision_of_all = decide(&waves.rules, &members, waves.offline, &since, now);
        let mut failed = Vec::new();
        let mut awaited = Vec::new();
        let mut taking = Vec::new();
        let mut offline = BTreeSet::new();
        for ((applier, member), released) in
            appliers.iter().zip(&members).zip(&decision_of_all.released)
        {
            let key = applier.key();
            let is_present = decision_of_all.wave == Some(member.wave);
            if is_present && member.progress == MemberProgress::Failed {
                failed.push(key.to_string());
            }
            let is_on_the_way = matches!(
                member.progress,
                MemberProgress::UnderWay | MemberProgress::Pending { .. }
            );
            if is_present && *released && is_on_the_way {
                awaited.push(key.to_string());
                taking.push(applier.clone());
            }
            if member.is_offline && member.progress != MemberProgress::Updated {
                offline.insert(member.cluster.clone());
            }
            // A skipped cluster of an earlier wave stays skipped only while it is known not to respond.
            let is_awaited = decision_of_all.wave.is_none_or(|present| member.wave <= present)
                && !matches!(member.progress, MemberProgress::Updated | MemberProgress::Suspended);
            if is_awaited && let Some(access) = ClusterAccess::of(applier) {
                decided.awaited.insert(member.cluster.clone(), access);
            }
            let text = rollout.waiting_text(&artifact.revision, Some(member.wave));
            decided.appliers.insert(key, decision(rollout, artifact, *released, text));
        }
        if !taking.is_empty() {
            let artifact = artifact.clone();
            decided.taking.push(AppliersTakingArtifact { artifact, appliers: taking });
        }
        decided.report.sources.push(SourceRollout {
            source: (*source).clone(),
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            decision: decision_of_all,
            failed,
            awaited,
            offline: offline.into_iter().collect(),
        });
    }

    /// The appliers of a source in the form of the engine.
    fn members(
        &self,
        of: &AppliersOfSource<'_>,
        decisions: &RolloutDecisions,
        now: Time,
    ) -> Vec<RolloutMember> {
        let AppliersOfSource { rollout, waves, source: _, appliers, artifact } = of;
        let keys: Vec<ObjectKey> = appliers.iter().map(ObservedApplier::key).collect();
        let clusters: Vec<String> = appliers.iter().map(ObservedApplier::cluster).collect();
        let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let unit = |(cluster, name): (&String, &String)| {
            let unit = if cluster.is_empty() { name } else { cluster };
            unit.clone()
        };
        let units: Vec<String> = clusters.iter().zip(&names).map(unit).collect();
        let assigned: Vec<WaveAssignmentInput<'_>> = appliers
            .iter()
            .zip(&units)
            .map(|(it, unit)| WaveAssignmentInput {
                label: rollout.wave_of(it.labels()),
                unit: unit.as_str(),
            })
            .collect();
        let in_waves = assign(&waves.selections, &assigned);
        let mut members = Vec::new();
        for ((applier, key), (wave, cluster)) in
            appliers.iter().zip(&keys).zip(in_waves.into_iter().zip(clusters))
        {
            let wanted = decision(rollout, artifact, true, String::new());
            let progress = match applier.progress(artifact, now) {
                // The applier went back to its earlier revision.
                MemberProgress::Pending { .. }
                    if applier.is_quarantined(&self.context, artifact) =>
                {
                    MemberProgress::Failed
                }
                progress => progress,
            };
            members.push(RolloutMember {
                wave,
                is_offline: self.offline.is_offline(&cluster, waves.offline_after),
                cluster,
                progress,
                was_released: is_released(decisions, key, &wanted),
            });
        }
        members
    }

    /// Since when the waves have an artifact, as the last pass saw it. Before the first pass, the status says it.
    fn updated_since(
        &self,
        rollout: &Rollout,
        source: &ObjectKey,
        artifact: &Artifact,
    ) -> Vec<Option<Time>> {
        if let Some(soak) = self.soaks.get(&(rollout.uid.clone(), source.clone())) {
            // If the waves of the spec change, their times start anew.
            let is_same = soak.generation == rollout.generation
                && soak.digest == artifact.digest
                && soak.revision == artifact.revision;
            return if is_same { soak.updated_since.clone() } else { Vec::new() };
        }
        let status = &rollout.status;
        if status.observed_generation != Some(rollout.generation) {
            return Vec::new();
        }
        let [revision, digest] = rollout_status::as_in_status(&artifact.revision, &artifact.digest);
        let known = status.sources.iter().find(|it| {
            (&it.kind, &it.namespace, &it.name) == (&source.kind, &source.namespace, &source.name)
                && [&it.revision, &it.digest] == [&revision, &digest]
        });
        let waves = known.map(|it| it.waves.as_slice()).unwrap_or_default();
        waves.iter().map(|wave| wave.updated_since.as_ref().map(|at| at.0)).collect()
    }

    /// Writes the status of a rollout if it changed. Returns whether the facts that must survive a restart are stored.
    async fn write(&mut self, rollout: &Rollout, report: &RolloutReport, now: Time) -> bool {
        let known = self.written.get(&rollout.uid);
        let before = known.map_or(&rollout.status, |it| &it.status);
        let mut shown = rollout.clone();
        shown.status = before.clone();
        let status = report.status(&shown, now);
        if status == *before {
            return true;
        }
        let is_urgent = status.observed_generation != before.observed_generation
            || rollout_status::differs_in_state(before, &status);
        if !is_urgent && known.is_some_and(|it| it.at.elapsed() < STATUS_INTERVAL) {
            return true;
        }
        if self.writes_left == 0 || self.paused.contains_key(&rollout.uid) {
            return !is_urgent;
        }
        self.writes_left -= 1;
        let began = Instant::now();
        let answer = write_status(&self.context, rollout, &status).await;
        self.waited = self.waited.saturating_add(began.elapsed());
        match answer {
            Ok(()) => {
                let written = WrittenRolloutStatus { status, at: Instant::now() };
                self.written.insert(rollout.uid.clone(), written);
                true
            }
            Err(error) => {
                // A deleted rollout is not in the next pass.
                if error.code() != Some(404) {
                    tracing::warn!(rollout = %rollout, error = %error, "failed to write the status of a rollout, retrying later");
                }
                self.paused.insert(rollout.uid.clone(), Instant::now() + REFUSAL_DELAY);
                !is_urgent
            }
        }
    }
}

/// The appliers of one source in a rollout.
struct AppliersOfSource<'p> {
    rollout: &'p Rollout,
    waves: &'p RolloutWaves,
    source: &'p ObjectKey,
    appliers: &'p [ObservedApplier],
    artifact: Artifact,
}

/// The decision about one applier.
fn decision(
    rollout: &Rollout,
    artifact: &Artifact,
    is_released: bool,
    text: String,
) -> DecidedApplier {
    DecidedApplier {
        rollout: rollout.uid.clone(),
        generation: rollout.generation,
        digest: artifact.digest.clone(),
        is_released,
        text,
    }
}

/// Whether an earlier decision already released an applier for this artifact.
fn is_released(decisions: &RolloutDecisions, applier: &ObjectKey, wanted: &DecidedApplier) -> bool {
    decisions.get(applier).is_some_and(|it| {
        it.is_released && it.rollout == wanted.rollout && it.digest == wanted.digest
    })
}

async fn write_status(
    context: &RunContext,
    rollout: &Rollout,
    status: &StagedRolloutStatus,
) -> Result<(), ClusterError> {
    let resource = match rollout.is_namespaced() {
        true => resource::<StagedRollout>(),
        false => resource::<ClusterStagedRollout>(),
    };
    // If each namespace has its own windlass, these see different appliers and would overwrite each other's status.
    if !rollout.is_namespaced() && !context.settings.watch_all_namespaces {
        return Ok(());
    }
    let patch = rollout_status::patch(rollout, status);
    let Rollout { namespace, name, .. } = rollout;
    context.cluster.merge_patch_status(&resource, namespace, name, &patch, MANAGER).await
}
