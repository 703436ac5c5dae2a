//! Records and their parts before an API server on loopback.

use axum::body::Body;
use parking_lot::Mutex as TestMutex;
use sha2::{Digest as _, Sha256};

use super::*;
use fake_cluster::answering;

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
    let storage = ReleaseStorage::new(&cluster, "apps", "web", "owner").await.unwrap();
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

#[tokio::test]
async fn a_revision_is_stored_although_the_parts_of_others_cannot_be_listed() {
    let created = Arc::new(TestMutex::new(Vec::new()));
    let recorded = created.clone();
    let cluster = answering(move |(request, body)| {
        let (code, body) = match request.as_str() {
            "GET /api/v1" => {
                let secrets = json!({"name": "secrets", "singularName": "", "kind": "Secret",
                    "namespaced": true, "verbs": ["list"]});
                (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [secrets]}))
            }
            it if it.starts_with("POST ") => {
                recorded.lock().push(body["metadata"]["name"].clone());
                (201, body)
            }
            it if it.contains("owner%3Dhelm") => (200, json!({"metadata": {}, "items": []})),
            _ => (500, json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no"})),
        };
        (code, Body::from(body.to_string()))
    })
    .await;
    let storage = ReleaseStorage::new(&cluster, "apps", "web", "owner").await.unwrap();
    storage.revisions().await.unwrap();
    // It does not compress to one part.
    let mut record = record(1, Life::PendingInstall);
    for number in 0..40_000 {
        record.manifest += &hex::encode(Sha256::digest(format!("{number}")));
    }
    let now = jiff::Timestamp::UNIX_EPOCH;
    let id = "web.v1.0".to_owned();
    let journal =
        OperationJournal::begin(id, "owner".to_owned(), release::OperationKind::Install, now);
    storage.create(record, &journal).await.unwrap();
    let created = created.lock().clone();
    assert_eq!(created.last(), Some(&Value::from(storage::secret_name("web", 1))));
    assert!(created.len() > 1, "the record has one part: nothing is listed");
    assert_eq!(storage.revisions().await.unwrap().versions(), [1]);
}

fn record(version: i64, status: Life) -> ReleaseRecord {
    ReleaseRecord {
        name: "web".to_owned(),
        namespace: "apps".to_owned(),
        version,
        info: release::record::RevisionInfo { status, ..Default::default() },
        chart: None,
        config: golang::value::GoMap::default(),
        manifest: String::new(),
        hooks: Vec::new(),
        apply_method: String::new(),
        labels: BTreeMap::new(),
    }
}

/// The Secret of a revision; `padding` is how much else it holds.
fn revision(version: i64, status: Life, padding: usize) -> Value {
    let record = record(version, status);
    let name = storage::secret_name("web", version);
    let labels = storage::labels(&record, RecordWriteMode::New, jiff::Timestamp::UNIX_EPOCH);
    let data = BASE64.encode(&storage::pack(&record).unwrap().parts[0]);
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "uid": format!("uid-{version}"), "labels": labels},
        "data": {DATA_KEY: data, "padding": "x".repeat(padding)}})
}

/// Revisions before an API server that has one of them on each page.
async fn of_revisions(all: Vec<Value>) -> ReleaseStorage {
    let cluster = answering(move |(request, _)| {
        let (path, query) = request.split_once('?').unwrap_or((&request, ""));
        let page: usize = query.rsplit_once("continue=").map_or(0, |it| it.1.parse().unwrap());
        let next = if page + 1 < all.len() { (page + 1).to_string() } else { String::new() };
        let body = match path.strip_prefix("GET /api/v1/namespaces/apps/secrets") {
            None => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "secrets", "singularName": "", "kind": "Secret", "namespaced": true,
                    "verbs": ["list"]}]}),
            Some("") => json!({"metadata": {"continue": next}, "items": [all[page]]}),
            Some(name) => {
                let is_it = |it: &&Value| it["metadata"]["name"] == name[1..];
                all.iter().find(is_it).unwrap().clone()
            }
        };
        (200, Body::from(body.to_string()))
    })
    .await;
    ReleaseStorage::new(&cluster, "apps", "web", "owner").await.unwrap()
}

#[tokio::test]
async fn a_release_is_read_whose_records_are_too_large_for_one_list() {
    let all = (1..=9).map(|version| revision(version, Life::Superseded, 8 << 20)).collect();
    let revisions = of_revisions(all).await.revisions().await.unwrap();
    assert_eq!(revisions.last().unwrap().record.version, 9);
    assert_eq!(revisions.versions(), (1..=9).collect::<Vec<_>>());
    assert!(revisions.unreadable_last().is_none());
}

#[tokio::test]
async fn of_records_that_do_not_fit_the_newest_and_what_is_deployed_are_read_and_all_are_known() {
    let of = |version| match version {
        2 => Life::Deployed,
        3 => Life::PendingRollback,
        _ => Life::Failed,
    };
    let all = (1..=9).map(|version| revision(version, of(version), 0)).collect();
    let storage = of_revisions(all).await;
    assert_eq!(storage.revisions().await.unwrap().all().len(), 9);
    let one = storage.known().as_ref().unwrap().stored[&9].layout.size;
    let selector = storage::selector("web");
    let read = storage.read_what_fits(&selector, 2 * one + one / 2).await.unwrap();
    let versions: Vec<i64> = read.stored.keys().copied().collect();
    assert_eq!(versions, [2, 3, 9]);
    let unreadable: Vec<i64> = read.unreadable.iter().map(|it| it.0).collect();
    assert_eq!(unreadable, [8, 7, 6, 5, 4, 1]);
    assert_eq!(read.broken.len(), unreadable.len());
}
