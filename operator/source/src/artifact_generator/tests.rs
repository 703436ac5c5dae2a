//! What of a generator is removed, and when, before an API server on loopback.

use serde_json::{Value, json};

use super::*;
use crate::temporary_artifact_store::TemporaryArtifactStore;
use fake_cluster::with_objects;

const PATH: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/apps/externalartifacts";

fn generator(annotations: &Value) -> ArtifactGenerator {
    serde_json::from_value(json!({
        "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
        "metadata": {"name": "gen", "namespace": "apps", "uid": "u", "annotations": annotations}, "spec": {},
    }))
    .unwrap()
}

/// The ExternalArtifact `one` of the generator.
fn made() -> Value {
    json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact",
        "metadata": {"name": "one", "namespace": "apps", "uid": "e"},
        "spec": {"sourceRef": {"apiVersion": "source.extensions.fluxcd.io/v1beta1",
            "kind": "ArtifactGenerator", "name": "gen", "namespace": "apps"}}})
}

/// The definition of its kind.
fn definition(deleted: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": ArtifactGenerator::crd_name(), "deletionTimestamp": deleted}})
}

#[test]
fn every_removal_of_a_generator_asks_whether_it_is_disabled() {
    for cause in [RemovalCause::OwnerDeleted, RemovalCause::Pruned] {
        for (annotations, expected) in [
            (json!({}), None),
            (json!({RECONCILE_ANNOTATION: "enabled"}), None),
            (json!({RECONCILE_ANNOTATION: "disabled"}), Some(RemovalRefusal::Suspended)),
            (json!({RECONCILE_ANNOTATION: "Disabled"}), Some(RemovalRefusal::Suspended)),
            // Windows are about kinds that apply to a cluster.
            (json!({"windlass.dev/window": "0 0 30 6 * 1m"}), None),
        ] {
            let generator = generator(&annotations);
            let refused = permit_removal(&generator, cause, Time::UNIX_EPOCH).err();
            assert_eq!(refused, expected, "{cause:?} {annotations}");
        }
    }
}

#[tokio::test]
async fn what_a_deleted_generator_made_stays_if_it_is_disabled_or_its_kind_is_deleted() {
    let disabled = json!({RECONCILE_ANNOTATION: "disabled"});
    let deleted = json!("2026-01-01T00:00:00Z");
    let removal = format!("DELETE {PATH}/one");
    for (annotations, definition, expected, is_removed) in [
        (json!({}), Some(definition(&Value::Null)), true, true),
        (disabled, Some(definition(&Value::Null)), true, false),
        (json!({}), Some(definition(&deleted)), false, false),
        (json!({}), None, false, false),
    ] {
        let objects = definition.into_iter().chain([made()]).collect();
        let (cluster, writes) = with_objects(objects).await;
        let kept = TemporaryArtifactStore::new();
        let names = BTreeSet::from(["one".to_owned()]);
        let done = remove_all(&cluster, &kept.store, &generator(&annotations), names).await;
        assert_eq!(done.unwrap(), expected, "{annotations}");
        let removals = if is_removed { vec![removal.clone()] } else { Vec::new() };
        assert_eq!(*writes.lock(), removals, "{annotations}");
    }
}
