//! The ExternalArtifact that offers the artifact of an HTTPArchive. Flux's kinds cannot name an HTTPArchive, but they can name
//! an ExternalArtifact.
//!
//! It has the name of the HTTPArchive, which owns it, so both are deleted together. Windlass does not change an
//! ExternalArtifact with another owner.

use std::sync::Arc;

use crds::source::{ExternalArtifact, ExternalArtifactSpec, ExternalArtifactStatus};
use crds::windlass_source::HTTPArchive;
use crds::{Artifact, NamespacedObjectKindReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{Resource as _, ResourceExt as _};
use objects::ObjectId;
use reconcile::{NextRunTrigger, RunOutcome, StatusConditions, condition_reason};
use sources::source_condition_reasons::EXTERNAL_ARTIFACT_FAILED;

use super::RenewedArchiveValidators;
use windlass_cluster::ClusterError;
use windlass_cluster::object_store::StateCache;
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::object_status::{change, conditions_of, listed, status_of};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCES;

/// The field manager of ExternalArtifacts.
const MANAGER: &str = "windlass";

fn failed(name: &str, why: &str, wake: NextRunTrigger) -> RunOutcome {
    let text =
        format!("the artifact is stored, but ExternalArtifact `{name}` cannot be written: {why}");
    RunOutcome::Failed(EXTERNAL_ARTIFACT_FAILED, text, wake)
}

/// Whether an ExternalArtifact is that of the HTTPArchive.
fn is_of(external: &ExternalArtifact, object: &HTTPArchive) -> bool {
    let owners = external.owner_references();
    owners
        .iter()
        .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == object.uid().as_ref())
}

/// The ExternalArtifact of an HTTPArchive, as it is made.
fn made(object: &HTTPArchive) -> ExternalArtifact {
    let name = object.name_any();
    let api_version = HTTPArchive::api_version(&()).into_owned();
    let kind = HTTPArchive::kind(&()).into_owned();
    let source_ref = NamespacedObjectKindReference {
        api_version: Some(api_version.clone()),
        kind: kind.clone(),
        name: name.clone(),
        namespace: object.namespace(),
    };
    let spec = ExternalArtifactSpec { source_ref: Some(source_ref) };
    let mut external = ExternalArtifact::new(&name, spec);
    external.metadata.namespace = object.namespace();
    external.metadata.owner_references = Some(vec![OwnerReference {
        api_version,
        kind,
        name,
        uid: object.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    external
}

/// The number of checks whether the watch shows a write, and the pause between.
const SHOWN_LOOKS: u32 = 100;
const SHOWN_POLL: std::time::Duration = std::time::Duration::from_millis(20);

/// Writes the artifact into the ExternalArtifact, unless the ExternalArtifact has it already.
pub(super) async fn offer(
    context: &RunContext,
    object: &Arc<HTTPArchive>,
    artifact: Option<&Artifact>,
) -> Result<(), RunOutcome> {
    let Some(artifact) = artifact else { return Ok(()) };
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let refused =
        |error: ClusterError| failed(&name, &error.to_string(), NextRunTrigger::default());
    let seen = context.seen::<ExternalArtifact>(&namespace, &name);
    let external = match seen {
        Some(seen) => (*seen).clone(),
        None => match context.cluster.create(&made(object), MANAGER).await {
            Ok(created) => created,
            // The watch has not shown it yet.
            Err(error) if error.code() == Some(409) => {
                let found = context.cluster.read::<ExternalArtifact>(&namespace, &name).await;
                let gone =
                    || failed(&name, "it was deleted concurrently", NextRunTrigger::default());
                found.map_err(refused)?.ok_or_else(gone)?
            }
            Err(error) => return Err(refused(error)),
        },
    };
    if !is_of(&external, object) {
        let why = "one with this name exists and is not owned by this HTTPArchive; delete or rename either";
        let wake = NextRunTrigger::on([node_named::<ExternalArtifact>(&namespace, &name)]);
        return Err(failed(&name, why, wake));
    }
    let status = external.status.as_ref();
    if status.and_then(|status| status.artifact.as_ref()) == Some(artifact) {
        return Ok(());
    }
    let text = format!("stored artifact for revision '{}'", artifact.revision);
    let outcome = RunOutcome::Settled(condition_reason::SUCCEEDED, text);
    write(context, &external, Some(artifact), &outcome).await.map_err(refused)
}

/// Writes which artifact an ExternalArtifact has, and why.
async fn write(
    context: &RunContext,
    external: &ExternalArtifact,
    artifact: Option<&Artifact>,
    outcome: &RunOutcome,
) -> Result<(), ClusterError> {
    let before = status_of(external);
    let had = conditions_of(&before.conditions);
    let generation = external.metadata.generation.unwrap_or_default();
    let conditions = StatusConditions::since(&had, generation, jiff::Timestamp::now(), &[]);
    let after = ExternalArtifactStatus {
        artifact: artifact.cloned(),
        conditions: listed(conditions.finish(outcome)),
    };
    let Some(patch) = change(&before, &after) else { return Ok(()) };
    context.cluster.write_status(external, MANAGER, &patch, None).await.map(drop)
}

/// Removes the artifact from the ExternalArtifact, if the HTTPArchive owns the ExternalArtifact.
pub(super) async fn unoffer(
    context: &RunContext,
    object: &Arc<HTTPArchive>,
) -> Result<(), ClusterError> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let has_artifact = |external: &ExternalArtifact| {
        external.status.as_ref().is_some_and(|it| it.artifact.is_some())
    };
    // After a start the watch may not have shown it yet.
    let found = context.cluster.read::<ExternalArtifact>(&namespace, &name).await?;
    let is_offered =
        |external: &ExternalArtifact| is_of(external, object) && has_artifact(external);
    let Some(external) = found.filter(is_offered) else { return Ok(()) };
    let text = "artifact not found in storage, fetching it again".to_owned();
    let outcome =
        RunOutcome::Running(condition_reason::PROGRESSING, text, NextRunTrigger::default());
    write(context, &external, None, &outcome).await?;
    // `offer` decides by the object in the watch, which must not be from before this write.
    for _ in 0..SHOWN_LOOKS {
        let seen = context.seen::<ExternalArtifact>(&namespace, &name);
        if !seen.is_some_and(|seen| has_artifact(&seen)) {
            break;
        }
        tokio::time::sleep(SHOWN_POLL).await;
    }
    Ok(())
}

/// Deletes the ExternalArtifact, if the HTTPArchive owns it.
pub(super) async fn withdraw(
    context: &RunContext,
    object: &Arc<HTTPArchive>,
) -> Result<(), ClusterError> {
    context
        .shared::<StateCache<RenewedArchiveValidators>>()
        .forget(&windlass_runtime::controller_kind::node_of(&**object));
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let id = ObjectId::new(&namespace, &name, SOURCES, "ExternalArtifact");
    // Without its CustomResourceDefinition the object does not exist. The API server's answer for the path alone does not
    // prove that.
    let Some(found) = context.cluster.get_by_id(&id, "v1").await? else { return Ok(()) };
    let resource = context.cluster.resource(&found.gvk()).await?;
    let external: Result<ExternalArtifact, _> = serde_json::from_value(found.into_value());
    let external = external.map_err(|error| ClusterError::NoAnswer(error.to_string()))?;
    if !is_of(&external, object) {
        return Ok(());
    }
    let uid = external.uid().unwrap_or_default();
    context.cluster.delete_unmanaged(&resource, &namespace, &name, &uid).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_external_artifact_of_another_owner_is_not_ours() {
        let mut object = HTTPArchive::new("app", crds::windlass_source::HTTPArchiveSpec::default());
        object.metadata.uid = Some("1".to_owned());
        object.metadata.namespace = Some("shop".to_owned());
        let ours = made(&object);
        assert!(is_of(&ours, &object));
        let source = ours.spec.source_ref.clone().unwrap();
        assert_eq!((source.kind.as_str(), source.name.as_str()), ("HTTPArchive", "app"));
        // A namesake that was made again is another object.
        let mut again = object.clone();
        again.metadata.uid = Some("2".to_owned());
        assert!(!is_of(&ours, &again));
        assert!(!is_of(&ExternalArtifact::new("app", ExternalArtifactSpec::default()), &object));
        let mut shared = ours;
        for owner in shared.metadata.owner_references.iter_mut().flatten() {
            owner.controller = None;
        }
        assert!(!is_of(&shared, &object));
    }
}
