//! A record beside the artifact of a source that says how the artifact was verified. It decides whether the artifact has to be
//! verified again.
//!
//! Here: the record, and an artifact that is not signed as its spec asks now. Elsewhere: verifying (each kind), the condition
//! (`report`).

use std::sync::Arc;

use crds::Artifact;
use kube_core::ResourceExt as _;
use reconcile::RunOutcome;
use serde_json::Value;
use sources::fetch_plan::ArtifactInputs;
use sources::source_condition_reasons::is_refused_signature;

use super::report::SOURCE_VERIFIED;
use super::{SourceKind, executor, lost_artifact};
use windlass_cluster::ClusterError;
use windlass_cluster::error::chain;
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::verification_record::StoredVerificationRecord;

/// The field of an artifact's inputs that says how the artifact has to be verified.
pub(crate) const VERIFY: &str = "verify";

/// The result of verifying an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerificationRecord {
    /// The required signatures and their keys, which is the value of [`VERIFY`].
    pub(crate) how: Value,
    /// The signer and the signed object, as the condition `SourceVerified` shows them. Empty if the trust policy of Notation
    /// requires no signature, so that the condition has nothing to show.
    pub(crate) text: String,
}

/// The reason why the artifact of a status does not count as verified. `None` if it is verified.
///
/// The status has both the artifact and the condition `SourceVerified`. If the condition is of the newest generation, it is
/// about this artifact.
pub(crate) fn unverified<K: SourceKind>(object: &K) -> Option<String> {
    if !object.is_verified() {
        return Some("it does not ask for signatures".to_owned());
    }
    let generation = object.meta().generation;
    match object.condition(SOURCE_VERIFIED) {
        Some(verified) if verified.status == "True" => {
            let is_current = verified.observed_generation == generation
                && object.observed_generation() == generation;
            (!is_current).then(|| "its latest generation has not been verified".to_owned())
        }
        Some(verified) => Some(verified.message.clone()),
        None => Some("no signature was verified yet".to_owned()),
    }
}

/// Stores how an artifact was verified. If the record is lost, the artifact is verified again.
pub(super) async fn remember<K: SourceKind>(
    context: &RunContext,
    object: &K,
    digest: &str,
    verified: &VerificationRecord,
) {
    let proof = StoredVerificationRecord {
        digest: digest.to_owned(),
        uid: object.uid(),
        generation: object.meta().generation,
        is_signed: !verified.text.is_empty(),
        verified: verified.how.clone(),
    };
    keep(context, object, proof).await;
}

async fn keep<K: SourceKind>(context: &RunContext, object: &K, proof: StoredVerificationRecord) {
    let store = context.artifacts.clone();
    let slot = executor::slot(object);
    let keep = move || slot.and_then(|slot| proof.keep(&store, &slot));
    if let Ok(Err(error)) = tokio::task::spawn_blocking(keep).await {
        let name = object.name_any();
        let error = chain(&error);
        tracing::info!(name, error, "failed to keep how the artifact was verified");
    }
}

/// The stored record of an artifact's verification. `None` if there is no record of this artifact, or if it cannot be read.
async fn proof<K: SourceKind>(
    context: &RunContext,
    object: &K,
    artifact: &Artifact,
) -> Option<StoredVerificationRecord> {
    let store = context.artifacts.clone();
    let slot = executor::slot(object).ok()?;
    let read = move || StoredVerificationRecord::read(&store, &slot);
    let proof = tokio::task::spawn_blocking(read).await.ok()??;
    (proof.digest == artifact.digest).then_some(proof)
}

/// How an artifact was verified. Null if it was not verified, or there is no record.
pub(super) async fn how<K: SourceKind>(
    context: &RunContext,
    object: &K,
    artifact: &Artifact,
) -> Value {
    proof(context, object, artifact).await.map(|proof| proof.verified).unwrap_or_default()
}

/// Records that an artifact also counts for a new generation of the spec, which requires the same signatures.
pub(super) async fn confirm<K: SourceKind>(
    context: &RunContext,
    object: &K,
    wanted: &ArtifactInputs,
) {
    let (Some(wanted), Some(artifact)) = (wanted.get(VERIFY), object.artifact()) else { return };
    let generation = object.meta().generation;
    let Some(proof) = proof(context, object, artifact).await else { return };
    let uid = object.uid();
    let is_same = proof.uid == uid && proof.generation == generation;
    if proof.verified == *wanted && !is_same {
        keep(context, object, StoredVerificationRecord { uid, generation, ..proof }).await;
    }
}

/// Takes back an artifact that was not verified as the spec asks, once what there is now was refused. One that was, stays
/// while a newer revision is refused. The object as it is now, and `None` if it is gone.
///
/// Differs(flux): there an artifact of before `spec.verify` was set stays, and is applied.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub(super) async fn withhold<K: SourceKind>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    wanted: &ArtifactInputs,
    outcome: &RunOutcome,
) -> Result<Option<Arc<K>>, ClusterError> {
    let Some(artifact) = object.artifact() else { return Ok(Some(object.clone())) };
    let is_verified = match wanted.get(VERIFY) {
        Some(wanted) => how(context, &**object, artifact).await == *wanted,
        None => true,
    };
    if is_verified || !is_refused_signature(outcome.reason()) {
        return Ok(Some(object.clone()));
    }
    tracing::info!(
        controller_kind = %K::kind(&()),
        name = object.name_any(),
        namespace = object.namespace(),
        revision = artifact.revision,
        "artifact withdrawn, since it was not verified as `spec.verify` asks"
    );
    super::remove_artifacts(context, object).await;
    lost_artifact::withdraw(context, latest, object).await
}
