//! Tests of one copy, from a leader that is a server on loopback.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use artifacts::store::StoreOptions;
use crds::ArtifactSource as _;
use crds::source::OCIRepository;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use windlass_cluster::election::RequiredLeaseElections;
use windlass_cluster::lease::ElectionSettings;

use super::super::tests::repository as repository_with;
use super::*;
use crate::temporary_artifact_store::TemporaryArtifactStore;

const CONTENT: &[u8] = b"packed files";

fn digest_of(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

fn repository(change: impl FnOnce(&mut Value)) -> Arc<OCIRepository> {
    repository_with("app", |it| {
        it["status"]["artifact"]["digest"] = json!(digest_of(CONTENT));
        change(it);
    })
}

/// The address of a leader that serves these bytes at every path.
fn leader_with(content: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4096];
            let _asked = stream.read(&mut asked).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", content.len());
            stream.write_all(&[head.as_bytes(), content].concat()).unwrap_or_default();
        }
    });
    address.to_string()
}

/// An address at which nothing answers.
const NO_LEADER: &str = "127.0.0.1:1";

fn standby() -> Leadership {
    let second = Duration::from_secs(1);
    let flux = ElectionSettings {
        namespace: "flux-system".to_owned(),
        name: String::new(),
        identity: "windlass-0".to_owned(),
        duration: 15 * second,
        renew_deadline: 10 * second,
        retry: second,
    };
    RequiredLeaseElections { own: None, flux: Some(flux), replaced: Vec::new() }.leadership()
}

/// Copies the artifact of an object as a process with this leadership.
async fn copied_as(
    leadership: Leadership,
    store: &Arc<ArtifactStore>,
    leader: &str,
    object: &Arc<OCIRepository>,
    held: Option<NamedArtifact>,
) -> Result<(), String> {
    let storage = StandbyStorage {
        store: store.clone(),
        leadership,
        leader: leader.to_owned(),
        time: Duration::from_secs(20),
        runtime: Handle::current(),
    };
    let object = object.clone();
    let copy = move || storage.copy(&*object, object.artifact().unwrap(), held.as_ref());
    tokio::task::spawn_blocking(copy).await.unwrap()
}

async fn copied(
    store: &Arc<ArtifactStore>,
    leader: &str,
    object: &Arc<OCIRepository>,
) -> Result<(), String> {
    copied_as(standby(), store, leader, object, None).await
}

#[tokio::test]
async fn a_copy_has_the_place_of_the_original_and_its_link() {
    let storage = TemporaryArtifactStore::new();
    let store = &storage.store;
    let app = repository(|_| {});
    let artifact = app.artifact().unwrap();
    copied(store, &leader_with(CONTENT), &app).await.unwrap();
    assert!(store.verify(&artifact.path, &artifact.digest).unwrap());
    assert!(store.verify("ocirepository/shop/app/latest.tar.gz", &artifact.digest).unwrap());
    copied(store, NO_LEADER, &app).await.unwrap();
}

#[tokio::test]
async fn what_a_status_says_does_not_become_the_artifact_of_a_source() {
    let storage = TemporaryArtifactStore::new();
    let store = &storage.store;
    let leader = leader_with(CONTENT);
    let forged = b"forged files";
    let attacker = format!("http://{}/ocirepository/shop/app/1.tar.gz", leader_with(forged));
    let app = repository(|it| {
        it["status"]["artifact"]["url"] = json!(attacker);
        it["status"]["artifact"]["digest"] = json!(digest_of(forged));
    });
    let error = copied(store, &leader, &app).await.unwrap_err();
    assert!(error.contains("does not match the status of its source"), "{error}");
    let other = "ocirepository/shop/other/1.tar.gz";
    let app = repository(|it| it["status"]["artifact"]["path"] = json!(other));
    let error = copied(store, &leader, &app).await.unwrap_err();
    assert!(error.contains("status.artifact.path"), "{error}");
    for file in ["latest.tar.gz", "1.tar.gz.lock"] {
        let path = format!("ocirepository/shop/app/{file}");
        let app = repository(|it| it["status"]["artifact"]["path"] = json!(path));
        let error = copied(store, &leader, &app).await.unwrap_err();
        assert!(error.contains("is not a valid file of an artifact"), "{error}");
    }
    assert_eq!(store.size(), 0);
}

#[tokio::test]
async fn a_new_path_with_the_same_bytes_is_copied_without_a_request() {
    let storage = TemporaryArtifactStore::new();
    let store = &storage.store;
    let before = repository(|_| {});
    copied(store, &leader_with(CONTENT), &before).await.unwrap();
    let held = NamedArtifact::of(before.artifact().unwrap());
    let path = "ocirepository/shop/app/2.tar.gz";
    let moved = repository(|it| it["status"]["artifact"]["path"] = json!(path));
    copied_as(standby(), store, NO_LEADER, &moved, Some(held)).await.unwrap();
    assert!(store.verify(path, &digest_of(CONTENT)).unwrap());
}

#[tokio::test]
async fn what_does_not_fit_is_not_downloaded_and_no_more_is_than_the_status_says() {
    let storage = TemporaryArtifactStore::new();
    let leader = leader_with(CONTENT);
    let of_size = |size: u64| repository(|it| it["status"]["artifact"]["size"] = json!(size));
    let options = StoreOptions { size_limit: Some(5), ..StoreOptions::default() };
    let small = Arc::new(ArtifactStore::open(&storage.folder, options).unwrap());
    let error = copied(&small, NO_LEADER, &of_size(12)).await.unwrap_err();
    assert!(error.contains("`--storage-size-limit`"), "{error}");
    let error = copied(&storage.store, &leader, &of_size(11)).await.unwrap_err();
    assert!(error.contains("is larger than 11 bytes"), "{error}");
    copied(&storage.store, &leader, &of_size(12)).await.unwrap();
}

#[tokio::test]
async fn a_process_that_has_begun_to_lead_copies_nothing_and_waits_for_copies() {
    let storage = TemporaryArtifactStore::new();
    let app = repository(|_| {});
    let leading = Leadership::unlimited();
    let leader = leader_with(CONTENT);
    let error = copied_as(leading, &storage.store, &leader, &app, None).await.unwrap_err();
    assert_eq!(error, "this process leads by now");
    assert_eq!(storage.store.size(), 0);

    let copies = CopiesInFlight::default();
    copies.ended().await;
    let copy = copies.begin().await;
    let is_over =
        async || tokio::time::timeout(Duration::from_millis(20), copies.ended()).await.is_ok();
    assert!(!is_over().await);
    drop(copy);
    assert!(is_over().await);
}

#[test]
fn a_path_leads_to_the_storage_of_the_leader() {
    for (leader, path, expected) in [
        ("windlass-0.svc:9090", "k/ns/n/a+b.tgz", "http://windlass-0.svc:9090/k/ns/n/a+b.tgz"),
        ("https://store/behind/", "k/ns/n/a", "https://store/behind/k/ns/n/a"),
        ("h", "k/ns/n/a?b#c", "http://h/k/ns/n/a%3Fb%23c"),
        ("h", "k/ns/n/..\\..\\x", "http://h/k/ns/n/..%5C..%5Cx"),
    ] {
        assert_eq!(url_of(leader, path).as_deref(), Some(expected));
    }
    assert_eq!(url_of("no host", "k/ns/n/a"), None);
}
