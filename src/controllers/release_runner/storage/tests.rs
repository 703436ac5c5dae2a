//! Parts of records before an API server on loopback.

use axum::body::Body;
use parking_lot::Mutex as TestMutex;

use super::*;
use crate::fake_cluster::answering;

/// The metadata of a part of a revision, as a list has it.
fn part(release: &str, version: i64, digest: &str) -> Value {
    let name = storage::part_name(release, version, digest, 1);
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
        "labels": {PART_OF: storage::part_of(release, version)}}})
}

#[tokio::test]
async fn parts_without_a_revision_are_found_on_every_page_and_deleted() {
    let requests = Arc::new(TestMutex::new(Vec::new()));
    let recorded = requests.clone();
    let cluster = answering(move |(request, _)| {
        recorded.lock().push(request.clone());
        let body = match request.as_str() {
            "GET /api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "secrets", "singularName": "", "kind": "Secret", "namespaced": true,
                    "verbs": ["list"]}]}),
            it if it.starts_with("DELETE ") => json!({}),
            it if it.contains("continue=second") => {
                json!({"metadata": {}, "items": [part("web", 2, "sha256:bbbb"), part("shop", 1, "sha256:cccc")]})
            }
            it if it.contains("owner%3Dhelm") => json!({"metadata": {}, "items": []}),
            _ => json!({"metadata": {"continue": "second"}, "items": [part("web", 1, "sha256:aaaa")]}),
        };
        (200, Body::from(body.to_string()))
    })
    .await;
    let storage = Storage::new(&cluster, "apps", "web", "owner").await.unwrap();
    storage.revisions().await.unwrap();
    storage.sweep().await.unwrap();
    let requests = requests.lock();
    let deleted: Vec<&str> = requests
        .iter()
        .filter_map(|it| it.strip_prefix("DELETE /api/v1/namespaces/apps/secrets/"))
        .collect();
    let of = |version, digest| storage::part_name("web", version, digest, 1);
    assert_eq!(deleted, [of(1, "sha256:aaaa"), of(2, "sha256:bbbb")]);
}
