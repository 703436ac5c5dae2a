//! An artifact that is in a status but not in the store. A run first removes it from the status, before it does anything else.
//!
//! Elsewhere: making the artifact again, later in the same run (`executor`).

use std::sync::Arc;

use crds::{Artifact, ObjectStatus as _, SourceStatus as _};
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome, StatusConditions, condition_reason};

use super::SourceKind;
use super::executor::collect_garbage;
use super::report::ARTIFACT_IN_STORAGE;
use windlass_cluster::ClusterError;
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::object_status::{LatestWrittenObject, conditions_of, listed, status_of};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::artifact_owner;

/// Parity(flux): what is said until it is there again.
const DISAPPEARED: &str = "building artifact: disappeared from storage";

/// Whether the store has the artifact that an object's status names, as it was stored for this object.
pub(super) async fn is_kept<K: SourceKind>(
    context: &RunContext,
    object: &K,
    artifact: &Artifact,
) -> bool {
    let node = node_named::<K>(&object.namespace().unwrap_or_default(), &object.name_any());
    if artifact_owner::check(&node, artifact, false).is_err() {
        return false;
    }
    let (store, Artifact { path, digest, .. }) = (context.artifacts.clone(), artifact.clone());
    let verify = move || store.verify(&path, &digest);
    matches!(tokio::task::spawn_blocking(verify).await, Ok(Ok(true)))
}

/// Removes the artifact from the status of an object if the store does not have it. Returns the present object, or `None` if
/// the object is gone.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub(super) async fn take_back<K: SourceKind>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
) -> Result<Option<Arc<K>>, ClusterError> {
    let Some(artifact) = object.artifact() else { return Ok(Some(object.clone())) };
    if is_kept(context, &**object, artifact).await {
        let store = context.artifacts.clone();
        let of = object.clone();
        let collect = move || collect_garbage(&store, &*of, None);
        drop(tokio::task::spawn_blocking(collect).await);
        return Ok(Some(object.clone()));
    }
    tracing::info!(
        controller_kind = %K::kind(&()),
        name = object.name_any(),
        namespace = object.namespace(),
        path = artifact.path,
        "artifact missing from storage or damaged, building it again"
    );
    withdraw(context, latest, object).await
}

/// Removes the artifact from the status of an object. Returns the present object, or `None` if the object is gone.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub(super) async fn withdraw<K: SourceKind>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
) -> Result<Option<Arc<K>>, ClusterError> {
    K::unoffer(context, object).await?;
    let (before, after) = without(&**object, jiff::Timestamp::now());
    latest.write_status(context, object, &before, &after).await
}

/// The status before and after.
fn without<K: SourceKind>(object: &K, now: reconcile::Time) -> (K::Status, K::Status) {
    let before = status_of(object);
    let had = conditions_of(before.conditions());
    let generation = object.meta().generation.unwrap_or_default();
    let outcome = RunOutcome::Running(
        condition_reason::PROGRESSING,
        DISAPPEARED.to_owned(),
        NextRunTrigger::default(),
    );
    let conditions = StatusConditions::since(&had, generation, now, &[ARTIFACT_IN_STORAGE]);
    let mut after = before.clone();
    after.take_artifact_away();
    after.set_conditions(listed(conditions.finish(&outcome)));
    (before, after)
}

#[cfg(test)]
mod tests {
    use crds::source::Bucket;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_artifact_and_its_address_go_and_the_rest_of_the_status_stays() {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "Succeeded", "message": "stored",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let bucket: Bucket = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": {"name": "app", "namespace": "shop", "generation": 2},
            "spec": {"interval": "1h", "endpoint": "s3.example.com", "bucketName": "app"},
            "status": {
                "observedGeneration": 2, "observedIgnore": "*.md", "url": "http://store/latest",
                "artifact": {"digest": "sha256:0", "lastUpdateTime": "2026-01-01T00:00:00Z",
                    "path": "bucket/shop/app/0.tar.gz", "revision": "sha256:1", "url": "http://store/0"},
                "conditions": [condition("Ready", "True"), condition("ArtifactInStorage", "True"),
                    condition("Foreign", "True")],
            },
        }))
        .unwrap();
        let (before, after) = without(&bucket, "2026-01-02T00:00:00Z".parse().unwrap());
        assert!(before.artifact.is_some());
        let conditions = conditions_of(&after.conditions);
        let states: Vec<_> = conditions.iter().map(|it| (&*it.kind, it.status)).collect();
        use reconcile::ConditionStatus::{True, Unknown};
        assert_eq!(states, [("Reconciling", True), ("Ready", Unknown), ("Foreign", True)]);
        assert_eq!(conditions[1].message, DISAPPEARED);
        let after = json!(after);
        let left: Vec<_> = after.as_object().unwrap().keys().collect();
        assert_eq!(left, ["conditions", "observedGeneration", "observedIgnore"]);
    }
}
