//! Every request of a fetch, for every kind of source, gets every wrong answer. windlass deletes no applied object, and
//! recovers with the next right answers.
//!
//! Here: the requests and the answers. Elsewhere: the remote servers (`crate::sources::remote_servers`), listings of buckets
//! in detail (`super::wrong_bucket_listings`), requests to the API server (`super::wrong_api_server_answers`).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::api_server_fault_proxy::ApiServerFaultProxy;
use e2e::harness::charts_and_helm_releases::newest;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::{Story, StoryObject};
use e2e::response_fault::ResponseFault;
use kube::api::DynamicObject;
use serde_json::json;

use super::{COUNT, ConfigMapUids, ROOT, ensure_nothing_is_lost, files, reconcile, uids, windlass};
use crate::sources::remote_servers::{RelayedUpstream, SourceFetchMethod};

/// The name of every source.
const NAME: &str = "app";

/// How many wrong answers are tested for each kind in a sample.
const SAMPLE: usize = 6;

/// How long the story waits for the first wrong answer. A fetch may not send that request at all.
const FIRST_ANSWER: Duration = Duration::from_secs(3);

/// How long the story waits for consequences of a wrong answer.
const CONSEQUENCES: Duration = Duration::from_secs(2);

/// A wrong answer, and the number of the first request of a fetch that gets it.
#[derive(Debug, Clone, Copy)]
struct FaultPoint {
    number: usize,
    fault: ResponseFault,
}

/// All points of a fetch with this number of requests, or an evenly spread sample.
fn points(requests: usize, sample: Option<usize>) -> Vec<FaultPoint> {
    let of = |number| ResponseFault::ALL.map(|fault| FaultPoint { number, fault });
    let all: Vec<FaultPoint> = (1..=requests).flat_map(of).collect();
    let Some(sample) = sample else { return all };
    let stride = (all.len() / sample.max(1)).max(1);
    // All faults occur if the stride and their number have no common divisor.
    let stride = if stride.is_multiple_of(ResponseFault::ALL.len()) { stride + 1 } else { stride };
    all.into_iter().step_by(stride).collect()
}

/// A source, and the objects that are applied from it.
struct FetchDisasterSetup<'s> {
    story: &'s Story,
    way: SourceFetchMethod,
    upstream: RelayedUpstream,
    proxy: ApiServerFaultProxy,
    before: ConfigMapUids,
    /// The newest version that was published.
    version: u32,
}

impl<'s> FetchDisasterSetup<'s> {
    async fn set(
        story: &'s Story,
        way: SourceFetchMethod,
        proxy: ApiServerFaultProxy,
    ) -> Result<Self> {
        let is_chart = way == SourceFetchMethod::HelmChart;
        let folder = if is_chart { "templates/" } else { "" };
        let upstream = RelayedUpstream::start_with_faults(way, files(folder)).await?;
        upstream.publish(1).await?;
        upstream.create(story).await?;
        if is_chart {
            let spec = json!({"interval": NEVER, "chartRef": {"kind": "HelmChart", "name": NAME}});
            let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                "metadata": {"name": ROOT}, "spec": spec});
            story.apply_value(object).await?;
        } else {
            let kind = match way {
                SourceFetchMethod::Bucket => "Bucket",
                SourceFetchMethod::OciRepository => "OCIRepository",
                SourceFetchMethod::HttpArchive => "ExternalArtifact",
                _ => "GitRepository",
            };
            let source = json!({"sourceRef": {"kind": kind, "name": NAME}});
            story.kustomization(ROOT, NAME, source).await?;
        }
        let no_objects = ConfigMapUids::new();
        let mut stage = Self { story, way, upstream, proxy, before: no_objects, version: 1 };
        stage.recover().await?;
        stage.before = uids(story, &story.namespace).await?;
        ensure!(stage.before.len() == COUNT, "{:?}", stage.before);
        Ok(stage)
    }

    async fn publish(&mut self) -> Result<()> {
        self.version += 1;
        self.upstream.publish(self.version).await
    }

    /// The fetched sources, in their order.
    fn targets(&self) -> Vec<StoryObject> {
        let repository = StoryObject::new("source.toolkit.fluxcd.io/v1", "HelmRepository", NAME);
        let before = (self.way == SourceFetchMethod::HelmChart).then_some(repository);
        before.into_iter().chain([self.upstream.target()]).collect()
    }

    /// Publishes right answers, and waits until the newest version is applied.
    async fn recover(&self) -> Result<()> {
        self.upstream.faults()?.heal();
        for target in self.targets() {
            reconcile(self.story, &target).await?;
        }
        let what = format!("version {} to be served", self.version);
        let is_served = async || {
            // The artifact of a wrong answer may have no version, which is an error.
            let served = self.upstream.served(self.story).await?;
            Ok((served == Some(self.version)).then_some(()))
        };
        self.story.await_until(&what, DEFAULT_WAIT_TIMEOUT, is_served).await?;
        let object = self.story.await_ready(&self.upstream.target()).await?;
        if self.way == SourceFetchMethod::HelmChart {
            let version = format!("0.0.{}", self.version);
            let is_released = |object: &DynamicObject| {
                condition(object, "Ready")["status"] == "True"
                    && newest(object)["chartVersion"] == version.as_str()
            };
            let release = StoryObject::helm_release(ROOT);
            self.story.await_object(&release, DEFAULT_WAIT_TIMEOUT, is_released).await?;
        } else {
            let revision = object.data["status"]["artifact"]["revision"].as_str();
            self.story.await_applied(ROOT, revision.context("no revision")?).await?;
        }
        Ok(())
    }

    /// How many requests a fetch of a new version needs.
    async fn count(&mut self) -> Result<usize> {
        self.publish().await?;
        self.recover().await?;
        Ok(self.upstream.faults()?.requests().len())
    }

    /// Fetches a new version, first with wrong answers and then with right ones.
    async fn survive(&mut self, point: FaultPoint) -> Result<()> {
        self.publish().await?;
        self.upstream.faults()?.answer_from(point.number, point.fault);
        for target in self.targets() {
            self.story.request(&target).await?;
        }
        let begun = Instant::now();
        // A fault of lists affects no other request. A fetch may also need fewer requests than an earlier one.
        while self.upstream.faults()?.given() == 0 && begun.elapsed() < FIRST_ANSWER {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(CONSEQUENCES).await;
        self.ensure_nothing_is_lost().await?;
        self.recover().await?;
        self.ensure_nothing_is_lost().await
    }

    async fn ensure_nothing_is_lost(&self) -> Result<()> {
        ensure_nothing_is_lost(self.story, &self.proxy, &self.story.namespace, &self.before).await
    }
}

async fn survives(way: SourceFetchMethod, name: &str, sample: Option<usize>) -> Result<()> {
    let story = Story::begin(name).await?;
    let (proxy, mut windlass) = windlass(&story).await?;
    let mut stage = FetchDisasterSetup::set(&story, way, proxy).await?;
    let requests = stage.count().await?;
    ensure!(requests > 0, "nothing was requested");
    for point in points(requests, sample) {
        let outcome = stage.survive(point).await;
        outcome.with_context(|| format!("{way:?}, {point:?} of {requests} requests"))?;
        ensure!(windlass.operator.is_running()?, "windlass ended: {point:?}");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_of_a_git_server_delete_nothing() -> Result<()> {
    survives(SourceFetchMethod::GitHttp, "wrong-git", Some(SAMPLE)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_of_a_bucket_delete_nothing() -> Result<()> {
    survives(SourceFetchMethod::Bucket, "wrong-bucket", Some(SAMPLE)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_of_a_registry_delete_nothing() -> Result<()> {
    survives(SourceFetchMethod::OciRepository, "wrong-oci", Some(SAMPLE)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_of_a_chart_repository_delete_nothing() -> Result<()> {
    survives(SourceFetchMethod::HelmChart, "wrong-chart", Some(SAMPLE)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_of_a_web_server_delete_nothing() -> Result<()> {
    survives(SourceFetchMethod::HttpArchive, "wrong-archive", Some(SAMPLE)).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "takes over two minutes: cargo xtask test --thorough"
)]
async fn every_wrong_answer_to_every_request_of_a_fetch_deletes_nothing() -> Result<()> {
    for (way, name) in [
        (SourceFetchMethod::GitHttp, "every-git"),
        (SourceFetchMethod::Bucket, "every-bucket"),
        (SourceFetchMethod::OciRepository, "every-oci"),
        (SourceFetchMethod::HelmChart, "every-chart"),
        (SourceFetchMethod::HttpArchive, "every-archive"),
    ] {
        survives(way, name, None).await?;
    }
    Ok(())
}
