//! Tests of copies: which are due, and what is stored.

use std::fs;

use crds::ArtifactSource as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::temporary_artifact_store::TemporaryArtifactStore;

const CONTENT: &[u8] = b"packed files";

fn digest() -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(CONTENT)))
}

fn repository(name: &str, change: impl FnOnce(&mut Value)) -> Arc<OCIRepository> {
    let path = format!("ocirepository/shop/{name}/1.tar.gz");
    let mut object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": name, "namespace": "shop", "generation": 1},
        "spec": {"interval": "1h", "url": "oci://registry.example.com/app"},
        "status": {"observedGeneration": 1, "artifact": {
            "path": path, "url": format!("http://leader:9090/{path}"), "revision": "main@sha256:1",
            "digest": digest(), "lastUpdateTime": "2026-01-01T00:00:00Z"}}});
    change(&mut object);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn names(due: &[DueCopy<OCIRepository>]) -> Vec<String> {
    due.iter().map(|due| due.object.name_any()).collect()
}

#[test]
fn an_artifact_is_copied_once_and_after_a_failure_again_later() {
    let app = repository("app", |_| {});
    let begun = Instant::now();
    let objects = [app.clone()];
    let mut copies = ArtifactCopies::default();
    let is_due = |copies: &ArtifactCopies, now| copies.due(&objects, now).len() == 1;
    assert!(is_due(&copies, begun));
    let ended = |digest: &str, is_held| EndedCopy {
        node: node_of(&*app),
        digest: digest.to_owned(),
        is_held,
    };
    copies.note(ended(&digest(), false), begun);
    assert!(!is_due(&copies, begun), "it has just failed");
    assert!(is_due(&copies, begun + RETRY_INTERVAL));
    copies.note(ended(&digest(), true), begun);
    assert!(!is_due(&copies, begun + RETRY_INTERVAL));
    copies.note(ended("sha256:of another artifact", true), begun);
    assert!(is_due(&copies, begun));
    assert_eq!(copies.forget_gone::<OCIRepository>(&[]), [node_of(&*app)]);
    assert!(copies.forget_gone::<OCIRepository>(&[]).is_empty());
}

#[test]
fn artifacts_of_signed_sources_and_of_deleted_ones_are_not_copied() {
    let objects = [
        repository("app", |_| {}),
        repository("empty", |it| it["status"] = json!({})),
        repository("signed", |it| it["spec"]["verify"] = json!({"provider": "cosign"})),
        repository("deleted", |it| {
            it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
    ];
    let due = ArtifactCopies::default().due(&objects, Instant::now());
    assert_eq!(names(&due), ["app"]);
}

#[tokio::test]
async fn a_copy_has_the_place_of_the_original_and_its_link() {
    let storage = TemporaryArtifactStore::new();
    let store = &storage.store;
    let app = repository("app", |_| {});
    let artifact = app.artifact().unwrap();
    let original = storage.folder.join("original");
    fs::write(&original, CONTENT).unwrap();
    let download = async { Ok(File::open(&original).unwrap()) };
    copy(store, &app, artifact, download).await.unwrap();
    assert!(store.verify(&artifact.path, &artifact.digest).unwrap());
    assert!(store.verify("ocirepository/shop/app/latest.tar.gz", &artifact.digest).unwrap());
    let not_needed = async { Err(ArtifactError::Unusable("a second download".to_owned())) };
    copy(store, &app, artifact, not_needed).await.unwrap();
}

#[tokio::test]
async fn what_a_status_names_of_another_object_is_not_copied() {
    let storage = TemporaryArtifactStore::new();
    for field in ["path", "url"] {
        let forged = repository("app", |it| {
            let other = "http://leader:9090/ocirepository/shop/other/1.tar.gz";
            let value = if field == "url" { other } else { "ocirepository/shop/other/1.tar.gz" };
            it["status"]["artifact"][field] = json!(value);
        });
        let download = async { Err(ArtifactError::Unusable("downloaded".to_owned())) };
        let error =
            copy(&storage.store, &forged, forged.artifact().unwrap(), download).await.unwrap_err();
        assert!(error.contains(&format!("status.artifact.{field}")), "{error}");
    }
}
