//! Every request to the API server gets a wrong answer while windlass starts and reconciles. The answers are errors, HTML pages
//! of a proxy, empty lists, or lists without their last page.
//! windlass deletes no applied object, and recovers after right answers and a request.
//!
//! The requests of a start are first counted without faults. Then the request with each number, and its repetitions, get one
//! wrong answer.
//! `WINDLASS_FAULT_SEED` chooses the answer. Seven seeds cover all answers to all requests.
//! Elsewhere: an API server that fails for a while (`api_server_refusals.rs`), killing windlass at each write
//! (`cargo xtask crash`).
#![expect(clippy::print_stderr, reason = "the seed that repeats a failure is printed")]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::api_server_fault_proxy::ApiServerFaultProxy;
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::response_fault::ResponseFault;
use serde_json::json;

use super::{COUNT, ConfigMapUids, ROOT, borrowed, ensure_nothing_is_lost, files, uids, windlass};

/// The number of requests in the sample.
const SAMPLE: usize = 14;

/// How long a request gets wrong answers. There is time for a few repetitions.
const REPETITIONS: Duration = Duration::from_secs(1);

/// The name of the file that each round changes.
const ROUND: &str = "round";

/// windlass behind a proxy, with a Kustomization, a HelmRelease, and the Secrets that both need.
struct ApiRequestDisasterSetup<'s> {
    story: &'s Story,
    proxy: ApiServerFaultProxy,
    windlass: WindlassProcess,
    upstream: FollowedGitRepository<'s>,
    /// The charts are fetched after each start.
    _charts: StoryChartRepository<'s>,
    release: StoryObject,
    before: ConfigMapUids,
    rounds: usize,
}

impl<'s> ApiRequestDisasterSetup<'s> {
    async fn set(story: &'s Story) -> Result<Self> {
        let (proxy, windlass) = windlass(story).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"},
            "stringData": {"given": "1"}});
        story.apply_value(secret).await?;
        let mut first = files("");
        first.push((format!("{ROUND}.yaml"), config_map(ROUND, "0")));
        let upstream = story.follow("app", &borrowed(&first)).await?;
        let given = json!([{"kind": "Secret", "name": "given"}]);
        story.kustomization(ROOT, "app", json!({"postBuild": {"substituteFrom": given}})).await?;
        let charts = StoryChartRepository::of(story).await?;
        charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
        let values = json!([{"kind": "Secret", "name": "given", "valuesKey": "given", "targetPath": "value"}]);
        let release = charts.release("web", json!({"valuesFrom": values})).await?;
        story.await_ready(&StoryObject::kustomization(ROOT)).await?;
        story.await_ready(&release).await?;
        let before = uids(story, &story.namespace).await?;
        // The objects of the folder, of the rounds, and of the release.
        ensure!(before.len() == COUNT + 2, "{before:?}");
        Ok(Self { story, proxy, windlass, upstream, _charts: charts, release, before, rounds: 0 })
    }

    /// Starts windlass again with a wrong answer to the request with a number and its repetitions. Then lets it apply a commit.
    /// Returns the requests until then.
    async fn play(&mut self, number: usize, fault: ResponseFault) -> Result<Vec<String>> {
        self.windlass.operator.kill()?;
        self.rounds += 1;
        let value = self.rounds.to_string();
        self.proxy.answer_wrongly(number, fault);
        self.windlass.operator.resume()?;
        let changed = (format!("{ROUND}.yaml"), config_map(ROUND, &value));
        let revision = self.upstream.push(&borrowed(&[changed])).await?;
        let root = StoryObject::kustomization(ROOT);
        let is_over = async || {
            let object = self.story.expect(&root).await?;
            let is_applied = object.data["status"]["lastAppliedRevision"] == revision.as_str()
                && condition(&object, "Ready")["status"] == "True";
            Ok((is_applied || self.proxy.wrong_request().is_some()).then_some(()))
        };
        self.story.await_until("the request or the end", DEFAULT_WAIT_TIMEOUT, is_over).await?;
        let met = self.proxy.wrong_request();
        if met.is_some() {
            tokio::time::sleep(REPETITIONS).await;
        }
        let requests = self.proxy.requests_since_order();
        self.proxy.heal();
        let place = || format!("request {number}, {met:?}, was answered with {fault:?}");
        // windlass may exit if it cannot start. A kubelet would start it again.
        if !self.windlass.operator.is_running()? {
            self.windlass.operator.resume()?;
        }
        // A failed object is retried at its interval or on request.
        let source = StoryObject::git_repository("app");
        for target in [&source, &root, &self.release] {
            self.story.request(target).await?;
        }
        self.ensure_well(&revision, &value).await.with_context(place)?;
        Ok(requests)
    }

    async fn ensure_well(&self, revision: &str, value: &str) -> Result<()> {
        let Self { story, proxy, before, release, .. } = self;
        story.await_applied(ROOT, revision).await?;
        story.await_value(ROUND, value).await?;
        story.await_ready(release).await?;
        ensure_nothing_is_lost(story, proxy, &story.namespace, before).await
    }
}

async fn survives(name: &str, sample: Option<usize>) -> Result<()> {
    let seed =
        std::env::var("WINDLASS_FAULT_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(0_usize);
    eprintln!("seed {seed}");
    let story = Story::begin(name).await?;
    let mut stage = ApiRequestDisasterSetup::set(&story).await?;
    // No request has this number.
    let requests = stage.play(usize::MAX, ResponseFault::EmptyBody).await?.len();
    ensure!(requests > COUNT, "{requests} requests");
    let stride = sample.map_or(1, |sample| (requests / sample).max(1));
    for (at, number) in (1..=requests).step_by(stride).enumerate() {
        let fault = ResponseFault::ALL[(at + seed) % ResponseFault::ALL.len()];
        stage.play(number, fault).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_requests_is_answered_wrongly_and_deletes_nothing() -> Result<()> {
    survives("wrong-requests", Some(SAMPLE)).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "takes over two minutes: cargo xtask test --thorough"
)]
async fn every_request_is_answered_wrongly_and_deletes_nothing() -> Result<()> {
    survives("every-request", None).await
}
