//! Applies, reads and removes the ExternalArtifacts of an ArtifactGenerator.
//!
//! Here: the owner of an ExternalArtifact, its status, the gate of removals. Elsewhere: its content (engine `artifactgen`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use artifactgen::{
    ArtifactRequest, CommonMetadata, ExternalArtifactState, GENERATOR_LABEL, GeneratorIdentity,
    external_artifact,
};
use artifacts::store::ArtifactStore;
use crds::source::{ExternalArtifact, ExternalArtifactStatus};
use crds::source_extensions::ArtifactGenerator;
use crds::{Artifact, ArtifactSource as _, ReconciledObject as _};
use kube_core::{Resource as _, ResourceExt as _};
use objects::{Gvk, Object, ObjectId};
use reconcile::{NextRunTrigger, RemovalPermit, RunOutcome, StatusConditions, condition_reason};
use serde_json::Value;
use sources::source_condition_reasons::EXTERNAL_ARTIFACT_FAILED;

use super::executor::{StoredGeneratedArtifact, remove_files};
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::object_status::{change, conditions_of, listed, status_of};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCES;

/// As whom it is applied. Parity(flux): either may go on with what the other applied.
const MANAGER: &str = ArtifactGenerator::CONTROLLER;

/// The API version in which ExternalArtifacts are applied.
const VERSION: &str = "v1";

/// What the condition `Ready` of each says. Parity(flux).
const OFFERED: &str = "Artifact is ready";

/// How often the watch is compared with the written objects, and the pause between.
const SHOWN_LOOKS: u32 = 100;
const SHOWN_POLL: Duration = Duration::from_millis(20);

/// The outcome of the generator's run after a failed request to the API server.
pub(super) fn failed(name: &str, error: &ClusterError) -> RunOutcome {
    let text = format!("failed to reconcile ExternalArtifact `{name}`: {error}");
    RunOutcome::Failed(condition_reason::RECONCILIATION_FAILED, text, NextRunTrigger::default())
}

/// Whether an ExternalArtifact is that of a generator: by its label, or by its spec, as after a restore of both, which gives
/// the generator another UID. One that another object owns is not.
///
/// Differs(flux): one of another owner is taken over there.
fn is_of(external: &ExternalArtifact, generator: &ArtifactGenerator) -> bool {
    let owners = external.owner_references();
    if owners.iter().any(|owner| owner.controller == Some(true)) {
        return false;
    }
    let label = external.labels().get(GENERATOR_LABEL);
    let is_named = external.spec.source_ref.as_ref().is_some_and(|source| {
        let group = source.api_version.as_deref().and_then(|it| it.split_once('/'));
        group.is_some_and(|(group, _)| group == ArtifactGenerator::group(&()))
            && source.kind == ArtifactGenerator::kind(&())
            && source.name == generator.name_any()
            && (source.namespace.is_none() || source.namespace == generator.namespace())
    });
    is_named || (label.is_some() && label == generator.uid().as_ref())
}

/// The ExternalArtifacts that have a generator's label and that the generator owns, as the watch last saw them.
pub(super) fn labelled(
    context: &RunContext,
    generator: &ArtifactGenerator,
) -> Vec<Arc<ExternalArtifact>> {
    let uid = generator.uid();
    let namespace = generator.namespace();
    let all = context.store::<ExternalArtifact>().state();
    let is_its = |external: &Arc<ExternalArtifact>| {
        uid.is_some()
            && external.namespace() == namespace
            && external.labels().get(GENERATOR_LABEL) == uid.as_ref()
            // An ExternalArtifact of another owner cannot be removed, and would otherwise be drift for ever.
            && is_of(external, generator)
    };
    all.into_iter().filter(is_its).collect()
}

/// The names and digests of a generator's ExternalArtifacts.
pub(super) fn states(
    context: &RunContext,
    generator: &ArtifactGenerator,
) -> BTreeSet<ExternalArtifactState> {
    let state = |external: Arc<ExternalArtifact>| ExternalArtifactState {
        name: external.name_any(),
        digest: external.artifact().map(|it| it.digest.clone()).unwrap_or_default(),
    };
    labelled(context, generator).into_iter().map(state).collect()
}

/// Waits a short time until the watch shows the objects of this run, because the next run compares with the watch.
pub(super) async fn await_shown(
    context: &RunContext,
    generator: &ArtifactGenerator,
    made: &BTreeSet<ExternalArtifactState>,
) {
    for _ in 0..SHOWN_LOOKS {
        if states(context, generator) == *made {
            break;
        }
        tokio::time::sleep(SHOWN_POLL).await;
    }
}

/// The ExternalArtifact of a name, if there is one.
///
/// # Errors
/// Another object owns the ExternalArtifact.
pub(super) async fn existing(
    context: &RunContext,
    generator: &ArtifactGenerator,
    name: &str,
) -> Result<Option<Arc<ExternalArtifact>>, RunOutcome> {
    let namespace = generator.namespace().unwrap_or_default();
    let seen = context.seen::<ExternalArtifact>(&namespace, name);
    let found = match seen {
        Some(seen) => Some(seen),
        // The watch may not have shown it yet.
        None => {
            let read = context.cluster.read::<ExternalArtifact>(&namespace, name).await;
            read.map_err(|error| failed(name, &error))?.map(Arc::new)
        }
    };
    match found {
        Some(external) if !is_of(&external, generator) => Err(taken(generator, name)),
        found => Ok(found),
    }
}

/// The outcome if another owner has the ExternalArtifact of this name.
fn taken(generator: &ArtifactGenerator, name: &str) -> RunOutcome {
    let text = format!(
        "ExternalArtifact `{name}` exists and was not made by this ArtifactGenerator; delete or rename either"
    );
    let namespace = generator.namespace().unwrap_or_default();
    let wake = NextRunTrigger::on([node_named::<ExternalArtifact>(&namespace, name)]);
    RunOutcome::Failed(EXTERNAL_ARTIFACT_FAILED, text, wake)
}

/// An artifact, and the data for its ExternalArtifact.
pub(super) struct DesiredExternalArtifact<'r> {
    /// The generator that owns the ExternalArtifact.
    pub(super) generator: &'r ArtifactGenerator,
    /// The metadata that all ExternalArtifacts of the generator have.
    pub(super) common: Option<&'r CommonMetadata>,
    /// The artifact.
    pub(super) request: &'r ArtifactRequest,
    /// Whether the ExternalArtifact is applied even if nothing differs, to remove fields that the spec no longer has.
    pub(super) is_spec_new: bool,
}

impl DesiredExternalArtifact<'_> {
    /// The object in the form in which it is applied.
    fn desired(&self) -> Value {
        let generator = self.generator;
        let name = generator.name_any();
        let namespace = generator.namespace().unwrap_or_default();
        let uid = generator.uid().unwrap_or_default();
        let identity =
            GeneratorIdentity { name: &name, namespace: &namespace, uid: &uid, manager: MANAGER };
        external_artifact(identity, self.common, self.request)
    }
}

/// Whether an object has all applied fields.
fn has_all(external: &ExternalArtifact, desired: &Value) -> bool {
    let Ok(found) = serde_json::to_value(external) else { return false };
    let has = |field: &str| {
        let wanted = desired["metadata"][field].as_object();
        let found = &found["metadata"][field];
        wanted.is_none_or(|all| all.iter().all(|(key, value)| found.get(key) == Some(value)))
    };
    has("labels") && has("annotations") && found["spec"] == desired["spec"]
}

/// Makes an ExternalArtifact offer an artifact. It writes nothing if the ExternalArtifact offers the artifact already.
///
/// # Errors
/// Another object owns the ExternalArtifact, or the API server refuses the write.
pub(super) async fn offer(
    cluster: &ClusterConnection,
    offer: &DesiredExternalArtifact<'_>,
    external: Option<&ExternalArtifact>,
    made: &StoredGeneratedArtifact,
) -> Result<(), RunOutcome> {
    let name = &made.entry.name;
    let refused = |error: ClusterError| failed(name, &error);
    let desired = offer.desired();
    let is_there = |it: &&ExternalArtifact| !offer.is_spec_new && has_all(it, &desired);
    let external = match external.filter(is_there) {
        Some(external) => external.clone(),
        None => {
            // The watch may lag, and a build takes long. Since the apply forces conflicts, it would take the object from an
            // owner that came meanwhile.
            let namespace = offer.generator.namespace().unwrap_or_default();
            let now = cluster.read::<ExternalArtifact>(&namespace, name).await.map_err(refused)?;
            if now.is_some_and(|now| !is_of(&now, offer.generator)) {
                return Err(taken(offer.generator, name));
            }
            apply(cluster, desired).await.map_err(refused)?
        }
    };
    let before = status_of(&external);
    let after = offered(&external, &before, made);
    let Some(patch) = change(&before, &after) else { return Ok(()) };
    cluster.write_status(&external, MANAGER, &patch, None).await.map(drop).map_err(refused)
}

async fn apply(
    cluster: &ClusterConnection,
    desired: Value,
) -> Result<ExternalArtifact, ClusterError> {
    let gvk = Gvk::new(&format!("{SOURCES}/{VERSION}"), "ExternalArtifact");
    let resource = cluster.resource(&gvk).await?;
    let object = Object::new(desired).map_err(|error| unreadable(&error))?;
    let applied = cluster.apply(&resource, &object, MANAGER, DryRunMode::Write).await?;
    read(applied)
}

fn unreadable(error: &dyn std::error::Error) -> ClusterError {
    ClusterError::Unreadable(error.to_string())
}

fn read(object: Object) -> Result<ExternalArtifact, ClusterError> {
    serde_json::from_value(object.into_value()).map_err(|error| unreadable(&error))
}

/// The status of an ExternalArtifact that offers an artifact.
fn offered(
    external: &ExternalArtifact,
    before: &ExternalArtifactStatus,
    made: &StoredGeneratedArtifact,
) -> ExternalArtifactStatus {
    let is_same = |was: &&Artifact| {
        let last_update_time = was.last_update_time.clone();
        **was == Artifact { last_update_time, ..made.artifact.clone() }
    };
    // The time is the time of the file's write, with the same bytes or others.
    let unchanged = before.artifact.as_ref().filter(|_| !made.is_stored).filter(is_same);
    let artifact = unchanged.unwrap_or(&made.artifact).clone();
    let had = conditions_of(&before.conditions);
    let generation = external.metadata.generation.unwrap_or_default();
    let outcome = RunOutcome::Settled(condition_reason::SUCCEEDED, OFFERED.to_owned());
    let conditions = StatusConditions::since(&had, generation, jiff::Timestamp::now(), &[]);
    ExternalArtifactStatus {
        artifact: Some(artifact),
        conditions: listed(conditions.finish(&outcome)),
    }
}

/// Removes an ExternalArtifact and the files of its artifact, unless it has another owner by now.
///
/// The files are removed first, because another generator may use the name once the object is gone.
pub(super) async fn remove(
    cluster: &ClusterConnection,
    store: &Arc<ArtifactStore>,
    generator: &ArtifactGenerator,
    name: &str,
    permit: RemovalPermit,
) -> Result<(), ClusterError> {
    let namespace = generator.namespace().unwrap_or_default();
    let id = ObjectId::new(&namespace, name, SOURCES, "ExternalArtifact");
    // Without its CustomResourceDefinition the object does not exist. The API server's answer for the path alone does not
    // prove that.
    let found = cluster.get_by_id(&id, VERSION).await?;
    if let Some(found) = &found
        && !is_of(&read(found.clone())?, generator)
    {
        return Ok(());
    }
    remove_files(store, generator, name).await;
    let Some(found) = found else { return Ok(()) };
    let resource = cluster.resource(&found.gvk()).await?;
    cluster.delete_managed(permit, &resource, &found, "Background").await
}

#[cfg(test)]
mod tests;
