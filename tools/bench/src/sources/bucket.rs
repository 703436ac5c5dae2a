//! Measures a bucket: a fetch of all objects, of one changed object, and without a change.

use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use e2e::tcp_relay::TcpRelay;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use super::{
    AwaitedObjects, FetchMeasurement, FetchTableRow, NEVER, SourceBenchSetup, SourceMeasurement,
    asked, object, revision, rounds,
};
use crate::workload::NAMESPACE;
use e2e::cluster_with_operator::WatchedObject;
use testbed::progress::step;

const OBJECT_COUNT: usize = 1000;
const KIND: &str = "Bucket";
const NAME: &str = "objects";

fn key(number: usize) -> String {
    format!("{:02}/{number:04}.yaml", number / 100)
}

fn body(number: usize, value: u16) -> String {
    let text = format!("{number:08x}").repeat(110);
    format!("value: {value}\ntext: {text}\n")
}

pub(super) fn measure(scene: &SourceBenchSetup, times: u16) -> anyhow::Result<SourceMeasurement> {
    let runtime = &scene.runtime;
    let server = step(&format!("a bucket of {OBJECT_COUNT} objects"), || {
        runtime.block_on(async {
            let server = S3Server::start().await?;
            server.bucket(NAME).await?;
            let put = |n: usize| {
                let server = &server;
                async move { server.put(NAME, &key(n), body(n, 0)).await }
            };
            stream::iter((0..OBJECT_COUNT).map(put))
                .buffer_unordered(8)
                .try_collect::<()>()
                .await?;
            anyhow::Ok(server)
        })
    })?;
    let relay = runtime.block_on(TcpRelay::start(server.endpoint().parse()?))?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": NAMESPACE},
        "stringData": {"accesskey": ACCESS, "secretkey": SECRET},
    });
    let spec = json!({
        "interval": NEVER, "endpoint": relay.address().to_string(), "bucketName": NAME, "insecure": true,
        "secretRef": {"name": NAME},
    });
    let idle = scene.peak()?;

    let count =
        |before: usize| -> anyhow::Result<usize> { Ok(server.requests(NAME)?.len() - before) };
    let last = std::cell::RefCell::new(String::new());
    let is_new = |seen: &WatchedObject| revision(seen).is_some_and(|it| it != *last.borrow());
    let awaited = AwaitedObjects { kind: KIND, count: 1, is_done: &is_new };
    let first = step("the first fetch", || {
        let before = server.requests(NAME)?.len();
        let act = async || scene.apply(&[secret, object(KIND, NAME, &spec)]).await;
        let fetch = runtime.block_on(scene.timed(&relay, &awaited, act))?;
        anyhow::Ok(asked(fetch, count(before)?))
    })?;
    let changes = rounds("one changed object", times, |round| {
        last.replace(runtime.block_on(current(scene))?);
        runtime.block_on(server.put(NAME, &key(7), body(7, round)))?;
        let before = server.requests(NAME)?.len();
        let act = async || scene.request(KIND, NAME).await.map(drop);
        let fetch = runtime.block_on(scene.timed(&relay, &awaited, act))?;
        downloads(fetch, &server.requests(NAME)?[before..])
    })?;
    let unchanged = rounds("nothing new", times, |_| {
        let before = server.requests(NAME)?.len();
        let fetch = runtime.block_on(scene.reconcile(&relay, KIND, NAME))?;
        Ok(asked(fetch, count(before)?))
    })?;
    Ok(SourceMeasurement {
        title: format!("a bucket of {OBJECT_COUNT} objects"),
        rows: vec![
            // The limit is one listing, and one request for each object.
            FetchTableRow::new("the first fetch", Some(OBJECT_COUNT + 1), &[first]),
            FetchTableRow::new("one object changed", Some(2), &changes),
            FetchTableRow::new("nothing changed", Some(1), &unchanged),
        ],
        peak: scene.peak()?,
        idle,
    })
}

/// The revision of the Bucket's present artifact. Empty if the Bucket has no artifact.
async fn current(scene: &SourceBenchSetup) -> anyhow::Result<String> {
    let selection =
        e2e::cluster_with_operator::WatchSelection::of(super::API, KIND).within(NAMESPACE);
    let object = selection.api(scene.installation.client()).get(NAME).await?;
    Ok(object.data["status"]["artifact"]["revision"].as_str().unwrap_or_default().to_owned())
}

/// Fails unless the server got one listing and one request for the changed object.
fn downloads(fetch: FetchMeasurement, asked_for: &[String]) -> anyhow::Result<FetchMeasurement> {
    let objects = asked_for.iter().filter(|it| !it.contains("list-type=2")).count();
    anyhow::ensure!(objects == 1, "one object changed, and {objects} were fetched: {asked_for:?}");
    Ok(asked(fetch, asked_for.len()))
}
