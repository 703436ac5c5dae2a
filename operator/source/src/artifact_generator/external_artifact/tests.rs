//! Whose an ExternalArtifact is, when it is written, and what is removed, before an API server on loopback.

use std::collections::BTreeMap;

use artifactgen::InventoryEntry;
use artifacts::store::ObjectFolder;
use reconcile::{RemovalCause, RemovalGate, Time};
use serde_json::json;

use super::*;
use crate::temporary_artifact_store::TemporaryArtifactStore;
use fake_cluster::with_objects;

const PATH: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/apps/externalartifacts";

fn generator() -> ArtifactGenerator {
    serde_json::from_value(json!({
        "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
        "metadata": {"name": "gen", "namespace": "apps", "uid": "u"}, "spec": {},
    }))
    .unwrap()
}

fn request() -> ArtifactRequest {
    let artifact = serde_json::from_value(json!({"name": "one", "copy": []})).unwrap();
    ArtifactRequest { artifact, labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]) }
}

fn made(is_stored: bool) -> StoredGeneratedArtifact {
    let artifact = serde_json::from_value(json!({
        "digest": "sha256:1", "lastUpdateTime": "2026-01-01T00:00:00Z", "revision": "latest@sha256:1",
        "path": "externalartifact/apps/one/1.tar.gz", "url": "http://a/externalartifact/apps/one/1.tar.gz",
    }));
    let entry = InventoryEntry {
        digest: "sha256:1".to_owned(),
        filename: "1.tar.gz".to_owned(),
        name: "one".to_owned(),
        namespace: "apps".to_owned(),
    };
    StoredGeneratedArtifact { entry, artifact: artifact.unwrap(), is_stored }
}

/// As it is applied, without a status.
fn applied(generator: &ArtifactGenerator) -> ExternalArtifact {
    let offer = DesiredExternalArtifact {
        generator,
        common: None,
        request: &request(),
        is_spec_new: false,
    };
    serde_json::from_value(offer.desired()).unwrap()
}

#[test]
fn one_with_the_label_or_the_name_of_a_generator_is_its_own_unless_another_object_owns_it() {
    let generator = generator();
    let own = applied(&generator);
    assert!(is_of(&own, &generator));
    let mut restored = own.clone();
    restored.metadata.labels = None;
    assert!(is_of(&restored, &generator), "the generator has another UID");
    let mut relabelled = own.clone();
    relabelled.spec.source_ref = None;
    assert!(is_of(&relabelled, &generator));
    relabelled.metadata.labels = None;
    assert!(!is_of(&relabelled, &generator), "a user made it");
    let mut other = own.clone();
    other.metadata.uid = Some("x".to_owned());
    other.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "source.windlass.dev/v1alpha1", "kind": "HTTPArchive", "name": "one", "uid": "v",
        "controller": true,
    }]))
    .unwrap();
    assert!(!is_of(&other, &generator));
    let mut namesake = generator.clone();
    namesake.metadata.name = Some("other".to_owned());
    namesake.metadata.uid = Some("v".to_owned());
    assert!(!is_of(&own, &namesake));
}

#[tokio::test]
async fn what_is_offered_already_is_not_written_again() {
    let generator = generator();
    let mut external = applied(&generator);
    external.metadata.uid = Some("e".to_owned());
    external.status = Some(offered(&external, &ExternalArtifactStatus::default(), &made(true)));
    let (cluster, writes) = with_objects(vec![json!(external)]).await;
    let request = request();
    let offered_with = async |is_spec_new: bool, made: &StoredGeneratedArtifact| {
        let it = DesiredExternalArtifact {
            generator: &generator,
            common: None,
            request: &request,
            is_spec_new,
        };
        offer(&cluster, &it, Some(&external), made).await.unwrap();
        std::mem::take(&mut *writes.lock())
    };
    let mut later = made(false);
    later.artifact.last_update_time = crds::Time(jiff::Timestamp::now());
    assert_eq!(offered_with(false, &later).await, [""; 0]);
    let applying = format!("PATCH {PATH}/one?fieldManager=source-watcher&force=true");
    assert_eq!(offered_with(true, &later).await, [applying]);
    // A file that was written again wakes those who waited for it.
    later.is_stored = true;
    let written = offered_with(false, &later).await;
    assert_eq!(written.len(), 1);
    assert!(written[0].starts_with(&format!("PATCH {PATH}/one/status?")), "{written:?}");
}

#[tokio::test]
async fn one_that_another_owner_made_during_the_build_is_not_replaced() {
    let generator = generator();
    let mut other = generator.clone();
    other.metadata.name = Some("other".to_owned());
    other.metadata.uid = Some("v".to_owned());
    let (cluster, writes) = with_objects(vec![json!(applied(&other))]).await;
    let request = request();
    let it = DesiredExternalArtifact {
        generator: &generator,
        common: None,
        request: &request,
        is_spec_new: true,
    };
    let refused = offer(&cluster, &it, None, &made(true)).await.unwrap_err();
    assert_eq!(refused.reason(), EXTERNAL_ARTIFACT_FAILED);
    assert_eq!(*writes.lock(), [""; 0]);
}

#[tokio::test]
async fn only_the_own_ones_and_their_files_are_removed() {
    let generator = generator();
    let own = applied(&generator);
    let mut foreign = own.clone();
    foreign.metadata.name = Some("two".to_owned());
    foreign.metadata.labels = None;
    foreign.spec.source_ref = None;
    let (cluster, writes) = with_objects(vec![json!(own), json!(foreign)]).await;
    let kept = TemporaryArtifactStore::new();
    for name in ["one", "two", "three"] {
        let slot = ObjectFolder::new("externalartifact", "apps", name).unwrap();
        let stored =
            kept.store.put(&slot, "1.tar.gz", "", Time::UNIX_EPOCH, |out| out.write_all(b"x"));
        stored.unwrap();
    }
    let gate = RemovalGate {
        cause: RemovalCause::Pruned,
        is_owner_suspended: false,
        is_suspended: false,
        closes: None,
        is_frozen: false,
    };
    let permit = gate.permit(Time::UNIX_EPOCH).unwrap();
    for name in ["one", "two", "three"] {
        remove(&cluster, &kept.store, &generator, name, permit).await.unwrap();
    }
    assert_eq!(*writes.lock(), [format!("DELETE {PATH}/one")]);
    let has = |name: &str| {
        kept.store.open_file(&format!("externalartifact/apps/{name}/1.tar.gz")).is_ok()
    };
    assert_eq!(["one", "two", "three"].map(has), [false, true, false]);
}
