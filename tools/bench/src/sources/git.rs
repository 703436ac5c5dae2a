//! Measures a Git repository over HTTP: a fetch of all files, of one changed file, and without a change.

use anyhow::Context as _;
use e2e::tcp_relay::TcpRelay;
use serde_json::json;

use super::{
    AwaitedObjects, FetchMeasurement, FetchTableRow, NEVER, SourceBenchSetup, SourceMeasurement,
    asked, object, revision, rounds,
};
use e2e::cluster_with_operator::WatchedObject;
use testbed::progress::step;

const FILE_COUNT: usize = 5000;
const KIND: &str = "GitRepository";
const NAME: &str = "files";

/// A manifest of about a kilobyte.
fn manifest(number: usize, value: u16) -> String {
    let text = format!("{number:08x}").repeat(110);
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: map-{number}\ndata:\n  value: \"{value}\"\n  text: {text}\n"
    )
}

pub(super) fn measure(scene: &SourceBenchSetup, times: u16) -> anyhow::Result<SourceMeasurement> {
    let runtime = &scene.runtime;
    let git = scene.installation.git();
    let repository = git.repository(NAME)?;
    let paths: Vec<String> =
        (0..FILE_COUNT).map(|n| format!("{:02}/{n:04}.yaml", n / 100)).collect();
    step(&format!("a repository of {FILE_COUNT} files"), || {
        let files: Vec<String> = (0..FILE_COUNT).map(|number| manifest(number, 0)).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(&files).map(|(path, text)| (&**path, &**text)).collect();
        repository.commit(&files, "the first files")
    })?;
    let url = git.url(&repository);
    let address = git.base_url();
    let address = address.strip_prefix("http://").context("it is served over HTTP")?;
    let relay = runtime.block_on(TcpRelay::start(address.parse()?))?;
    let url = url.replacen(address, &relay.address().to_string(), 1);
    let spec = json!({"interval": NEVER, "url": url, "ref": {"branch": "main"}});
    let idle = scene.peak()?;

    let is_at = |sha: String| {
        move |seen: &WatchedObject| revision(seen).is_some_and(|it| it.ends_with(&sha))
    };
    let counted = |fetch: FetchMeasurement| asked(fetch, git.requests().len());
    git.forget_requests();
    let is_done = is_at(repository.hash("main")?);
    let first = step("the first fetch", || {
        let awaited = AwaitedObjects { kind: KIND, count: 1, is_done: &is_done };
        let act = async || scene.apply(&[object(KIND, NAME, &spec)]).await;
        runtime.block_on(scene.timed(&relay, &awaited, act)).map(counted)
    })?;
    let changes = rounds("one changed file", times, |round| {
        let text = manifest(7, round);
        let sha = repository.commit(&[(&*paths[7], &*text)], "a change")?;
        git.forget_requests();
        let is_done = is_at(sha);
        let awaited = AwaitedObjects { kind: KIND, count: 1, is_done: &is_done };
        let act = async || scene.request(KIND, NAME).await.map(drop);
        runtime.block_on(scene.timed(&relay, &awaited, act)).map(counted)
    })?;
    let unchanged = rounds("nothing new", times, |_| {
        git.forget_requests();
        runtime.block_on(scene.reconcile(&relay, KIND, NAME)).map(counted)
    })?;
    Ok(SourceMeasurement {
        title: format!("a Git repository of {FILE_COUNT} files over HTTP"),
        rows: vec![
            FetchTableRow::new("the first fetch", None, &[first]),
            FetchTableRow::new("one file changed", None, &changes),
            // The limit is the request that opens the protocol, and one for the references.
            FetchTableRow::new("nothing changed", Some(2), &unchanged),
        ],
        peak: scene.peak()?,
        idle,
    })
}
