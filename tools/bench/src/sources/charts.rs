//! Measures a chart repository with a long index: a fetch of all charts, of a new version of one, and without a
//! change.

use std::fmt::Write as _;

use e2e::servers::web::FileWebServer;
use e2e::tcp_relay::TcpRelay;
use serde_json::{Value, json};

use super::{
    AwaitedObjects, FetchMeasurement, FetchTableRow, NEVER, SourceBenchSetup, SourceMeasurement,
    asked, object, revision, rounds,
};
use e2e::cluster_with_operator::WatchedObject;
use e2e::servers::chart_archive::{digest, pack};
use testbed::progress::step;

const CHART_COUNT: usize = 50;
/// How many versions of each chart the index has.
const VERSIONS_PER_CHART: usize = 400;
/// The least size of the index.
const MIN_INDEX_BYTES: usize = 20_000_000;
const KIND: &str = "HelmChart";
const REPOSITORY: &str = "HelmRepository";
const NAME: &str = "charts";

fn chart(number: usize) -> String {
    format!("chart-{number:02}")
}

/// The archive of a chart.
fn archive(name: &str, version: &str) -> anyhow::Result<Vec<u8>> {
    let yaml = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n".to_owned();
    let files = [
        ("Chart.yaml".to_owned(), yaml),
        ("templates/map.yaml".to_owned(), template),
        ("values.yaml".to_owned(), "value: 1\n".repeat(200)),
    ];
    pack(name, &files)
}

/// Adds a version to the index, in the form of real repositories.
fn entry(index: &mut String, name: &str, version: &str, digest: &str) {
    let description =
        "A chart that stands for those of a repository which has grown over years. ".repeat(4);
    writeln!(
        index,
        "  - apiVersion: v2\n    appVersion: {version}\n    created: \"2026-01-01T00:00:00Z\"\n    \
         description: {description}\n    digest: {digest}\n    home: https://example.com/{name}\n    \
         icon: https://example.com/{name}.png\n    keywords:\n    - one\n    - two\n    - three\n    \
         kubeVersion: '>=1.25.0-0'\n    maintainers:\n    - email: team@example.com\n      name: team\n    \
         name: {name}\n    sources:\n    - https://example.com/{name}/source\n    - https://example.com/{name}/image\n    \
         annotations:\n      category: Infrastructure\n      images: registry.example.com/{name}:{version}\n      \
         licenses: Apache-2.0\n    type: application\n    urls:\n    - {name}-{version}.tgz\n    version: {version}"
    )
    .ok();
}

/// Publishes the index, and the archives of the newest versions. `newest` is the newest version of the first chart.
fn publish(server: &FileWebServer, newest: &str) -> anyhow::Result<usize> {
    let mut index = "apiVersion: v1\nentries:\n".to_owned();
    for number in 0..CHART_COUNT {
        let name = chart(number);
        writeln!(index, "  {name}:").ok();
        let version = if number == 0 { newest } else { "1.0.0" };
        let archive = archive(&name, version)?;
        entry(&mut index, &name, version, &digest(&archive));
        server.put(&format!("{name}-{version}.tgz"), archive);
        for old in (0..VERSIONS_PER_CHART - 1).rev() {
            let version = format!("0.{old}.0");
            entry(&mut index, &name, &version, &digest(format!("{name} {version}").as_bytes()));
        }
    }
    index.push_str("generated: \"2026-01-01T00:00:00Z\"\n");
    let length = index.len();
    anyhow::ensure!(length >= MIN_INDEX_BYTES, "the index has no more than {length} bytes");
    server.put("index.yaml", index);
    Ok(length)
}

pub(super) fn measure(scene: &SourceBenchSetup, times: u16) -> anyhow::Result<SourceMeasurement> {
    let runtime = &scene.runtime;
    let server = runtime.block_on(FileWebServer::start())?;
    let length = step("an index of 20 MB", || publish(&server, "1.0.0"))?;
    let relay = runtime.block_on(TcpRelay::start(server.address()))?;
    let repository = json!({"interval": NEVER, "url": format!("http://{}", relay.address())});
    let of = |number: usize| -> Value {
        let source = json!({"kind": REPOSITORY, "name": NAME});
        let spec = json!({"interval": NEVER, "chart": chart(number), "version": "1.x", "sourceRef": source});
        object(KIND, &chart(number), &spec)
    };
    let objects: Vec<Value> = [object(REPOSITORY, NAME, &repository)]
        .into_iter()
        .chain((0..CHART_COUNT).map(of))
        .collect();
    let idle = scene.peak()?;

    let counted = |fetch: FetchMeasurement| asked(fetch, server.answers().len());
    server.answers();
    let is_done = |seen: &WatchedObject| revision(seen).is_some();
    let first = step(&format!("the first fetch, {CHART_COUNT} charts"), || {
        let awaited = AwaitedObjects { kind: KIND, count: CHART_COUNT, is_done: &is_done };
        let act = async || scene.apply(&objects).await;
        runtime.block_on(scene.timed(&relay, &awaited, act)).map(counted)
    })?;
    let changes = rounds("a new version of one chart", times, |round| {
        let newest = format!("1.0.{round}");
        publish(&server, &newest)?;
        server.answers();
        let is_done =
            |seen: &WatchedObject| seen.name == chart(0) && revision(seen) == Some(newest.as_str());
        let awaited = AwaitedObjects { kind: KIND, count: 1, is_done: &is_done };
        let act = async || scene.request(REPOSITORY, NAME).await.map(drop);
        runtime.block_on(scene.timed(&relay, &awaited, act)).map(counted)
    })?;
    let unchanged = rounds("nothing new", times, |_| {
        server.answers();
        runtime.block_on(scene.reconcile(&relay, REPOSITORY, NAME)).map(counted)
    })?;
    Ok(SourceMeasurement {
        title: format!(
            "an index of {:.1} MB with {CHART_COUNT} charts from it",
            length as f64 / 1e6
        ),
        rows: vec![
            // The limit is one request for the index, and one for each chart.
            FetchTableRow::new("the first fetch, all charts", Some(CHART_COUNT + 1), &[first]),
            FetchTableRow::new("a new version of one chart", Some(2), &changes),
            FetchTableRow::new("nothing changed", Some(1), &unchanged),
        ],
        peak: scene.peak()?,
        idle,
    })
}
