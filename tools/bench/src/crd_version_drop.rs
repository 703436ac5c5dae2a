//! Measures how a CRD version is dropped in which many objects are stored. windlass migrates the objects, and so does
//! the raw client for comparison.
//!
//! Both make another version the storage version, and wait until the API servers have learned of it. Then they write
//! each object back, shorten `storedVersions` and drop the old version. This module has the rounds. `super::test_bed`
//! reads the costs, and `super::raw_client_comparison` gives the verdict. `cargo xtask crash --scenario crds` tests that an
//! interrupted migration is resumed.

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use e2e::git_server::StoryGitRepository;
use e2e::process_usage;
use kube::api::ListParams;
use serde_json::json;
use tokio::runtime::Runtime;

use super::commit_arrivals::CommitArrivals;
use super::raw_client_comparison::{BenchComparison, BenchLimits, PhaseCost};
use super::test_bed::{self, BenchTarget, BenchTestbed, MeasuredProcess};
use super::{round_options, workload};
use e2e::cluster_with_operator::{ObjectWatch, WatchSelection};
use testbed::progress::step;

/// The promised limit: windlass takes at most this many times the raw client's time, with this many objects or more.
/// With few objects, windlass spends more time on checking the definition than on writing.
const MAX_TIME_RATIO_FROM_COUNT: (f64, u32) = (1.2, 10_000);

/// The promised limit: how much more memory, in MiB, windlass needs than with a few objects.
const MAX_MEMORY_GROWTH_MIB: f64 = 48.0;

/// How many objects both migrate once before the measurement.
const WARM_UP_OBJECTS: u32 = 20;

/// How many objects the raw client writes at once. windlass writes as many, to leave room for other clients.
const AT_ONCE: usize = 4;

/// How long API servers may take until they store objects in a new storage version. windlass waits as long, too.
const STORAGE_VERSION_DELAY: Duration = Duration::from_secs(5);

/// How long one step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(1800);

const GROUP: &str = "bench.windlass.dev";

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct CrdBenchOptions {
    /// How many objects
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// How often each of both does it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    target: BenchTarget,
}

/// Measures and prints the table.
///
/// # Errors
/// When something was not migrated, or windlass took more than promised.
pub(super) fn run(options: &CrdBenchOptions) -> anyhow::Result<()> {
    round_options::run(&options.target, |runtime, bed| {
        ensure!(bed.is_windlass(), "only windlass migrates stored objects");
        Ok(vec![measure(runtime, bed, options)?])
    })
}

fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    options: &CrdBenchOptions,
) -> anyhow::Result<BenchComparison> {
    let count = options.objects;
    step(&format!("both once with {WARM_UP_OBJECTS} objects"), || {
        runtime.block_on(async {
            raw_round(bed, &BenchObjects::of(bed, MeasuredProcess::Raw, 0, WARM_UP_OBJECTS))
                .await?;
            operator_round(
                bed,
                &BenchObjects::of(bed, MeasuredProcess::Operator, 0, WARM_UP_OBJECTS),
            )
            .await
            .map(drop)
        })
    })?;
    let before = process_usage::peak_mebibytes(bed.operators())?;
    let ratio = (count >= MAX_TIME_RATIO_FROM_COUNT.1).then_some(MAX_TIME_RATIO_FROM_COUNT.0);
    let limits =
        BenchLimits { ratio, peak: Some(before + MAX_MEMORY_GROWTH_MIB), ..BenchLimits::default() };
    let title = format!("{count} objects moved out of a version that is dropped");
    let mut comparison = BenchComparison::new(title, usize::try_from(count)?, limits);
    for round in 1..=options.rounds {
        let raw = BenchObjects::of(bed, MeasuredProcess::Raw, round, count);
        step(&format!("round {round}: raw client"), || {
            comparison.add(MeasuredProcess::Raw, runtime.block_on(raw_round(bed, &raw))?);
            Ok(())
        })?;
        let own = BenchObjects::of(bed, MeasuredProcess::Operator, round, count);
        step(&format!("round {round}: windlass"), || {
            comparison.add(MeasuredProcess::Operator, runtime.block_on(operator_round(bed, &own))?);
            Ok(())
        })?;
    }
    runtime.block_on(bed.leave())?;
    Ok(comparison)
}

/// A kind with its objects, in a namespace.
struct BenchObjects {
    name: String,
    kind: String,
    count: u32,
}

impl BenchObjects {
    fn of(bed: &BenchTestbed, who: MeasuredProcess, round: u16, count: u32) -> Self {
        let name = bed.work(who, round);
        let kind = format!("Of{}", name.replace('-', ""));
        Self { name, kind, count }
    }

    fn plural(&self) -> String {
        format!("{}s", self.kind.to_lowercase())
    }

    /// The definition with these versions. The last one is the storage version.
    fn definition(&self, versions: &[&str]) -> String {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"size": {"type": "integer"}, "text": {"type": "string"}}}}});
        let storage = versions.last();
        let versions = versions.iter().map(|name| {
            json!({"name": name, "served": true, "storage": Some(name) == storage,
                "schema": {"openAPIV3Schema": schema}})
        });
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{GROUP}", self.plural())},
            "spec": {"group": GROUP, "scope": "Namespaced",
                "names": {"kind": self.kind, "plural": self.plural(),
                    "singular": self.kind.to_lowercase(), "listKind": format!("{}List", self.kind)},
                "versions": versions.collect::<Vec<_>>()}})
        .to_string()
    }

    fn objects(&self) -> Vec<String> {
        let text = "some text that an object of this size may have. ".repeat(10);
        let object = |at: u32| {
            json!({"apiVersion": format!("{GROUP}/v1"), "kind": self.kind,
                "metadata": {"name": format!("object-{at:05}"), "namespace": self.name},
                "spec": {"size": at, "text": text}})
            .to_string()
        };
        (1..=self.count).map(object).collect()
    }

    fn path(&self) -> String {
        format!("/apis/{GROUP}/v1/namespaces/{}/{}", self.name, self.plural())
    }

    /// The API path of the definition's status.
    fn status(&self) -> String {
        let name = format!("{}.{GROUP}", self.plural());
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}/status")
    }

    /// Creates the objects as soon as the API server serves their definition.
    async fn fill(&self, bed: &BenchTestbed) -> anyhow::Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        while let Err(error) = bed.raw().names(&self.path()).await {
            ensure!(Instant::now() < deadline, "the kind is not served: {error:#}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bed.apply(&self.objects()).await.map(drop)
    }

    /// Fails unless all objects exist and are stored in the new storage version.
    async fn check(&self, bed: &BenchTestbed) -> anyhow::Result<()> {
        let there = bed.raw().names(&self.path()).await?.len();
        ensure!(
            there == usize::try_from(self.count)?,
            "{there} of {} objects are there",
            self.count
        );
        let live = self.crds().api(bed.client()).get(&format!("{}.{GROUP}", self.plural())).await?;
        let stored = &live.data["status"]["storedVersions"];
        ensure!(*stored == json!(["v1"]), "objects are stored in {stored}");
        let versions = live.data["spec"]["versions"].as_array().map_or(0, Vec::len);
        ensure!(versions == 1, "the definition has {versions} versions");
        Ok(())
    }

    fn crds(&self) -> WatchSelection {
        WatchSelection::of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    }

    /// Deletes the definition with its objects, so that they do not affect the next round.
    async fn end(&self, bed: &BenchTestbed) -> anyhow::Result<()> {
        bed.raw().delete(&test_bed::prepare(&[self.definition(&["v1"])])?).await?;
        let only =
            ListParams::default().fields(&format!("metadata.name={}.{GROUP}", self.plural()));
        let deadline = Instant::now() + STEP_TIMEOUT;
        while !self.crds().api(bed.client()).list_metadata(&only).await?.items.is_empty() {
            ensure!(Instant::now() < deadline, "the definition {} does not go", self.plural());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }
}

async fn raw_round(bed: &BenchTestbed, work: &BenchObjects) -> anyhow::Result<PhaseCost> {
    bed.create_namespaces(std::slice::from_ref(&work.name)).await?;
    bed.apply(&[work.definition(&["v1", "v1alpha1"])]).await?;
    work.fill(bed).await?;
    let before = bed.read(MeasuredProcess::Raw)?;
    let begun = Instant::now();
    bed.apply(&[work.definition(&["v1alpha1", "v1"])]).await?;
    tokio::time::sleep(STORAGE_VERSION_DELAY).await;
    let names = bed.raw().names(&work.path()).await?;
    let paths: Vec<String> = names.iter().map(|name| format!("{}/{name}", work.path())).collect();
    bed.raw().merge(&paths, &json!({}), AT_ONCE).await?;
    let trimmed = json!({"status": {"storedVersions": ["v1"]}});
    bed.raw().merge(&[work.status()], &trimmed, 1).await?;
    bed.apply(&[work.definition(&["v1"])]).await?;
    let phase = bed.spent(&before, vec![begun.elapsed()])?;
    work.check(bed).await?;
    work.end(bed).await?;
    Ok(phase)
}

async fn operator_round(bed: &BenchTestbed, work: &BenchObjects) -> anyhow::Result<PhaseCost> {
    bed.create_namespaces(std::slice::from_ref(&work.name)).await?;
    let repository = bed.git()?.repository(&work.name)?;
    let commit = |versions: &[&str], repository: &StoryGitRepository| {
        repository.commit(&[("crds/definition.yaml", &*work.definition(versions))], "versions")
    };
    let first = commit(&["v1", "v1alpha1"], &repository)?;
    let kustomization = workload::kustomization(&work.name, &work.name, "crds", "10m", false);
    let source = workload::source(&work.name, &bed.git()?.url(&repository), "10m");
    let mut watch =
        ObjectWatch::begin(bed.client(), &[test_bed::sources(), test_bed::kustomizations()])
            .await?;
    bed.apply(&[source.clone(), kustomization.clone()]).await?;
    CommitArrivals::of(&first, 1, &mut watch, STEP_TIMEOUT).await?;
    work.fill(bed).await?;
    let second = commit(&["v1"], &repository)?;
    let before = bed.read(MeasuredProcess::Operator)?;
    bed.announce(&work.name, &second).await?;
    let arrivals = CommitArrivals::of(&second, 1, &mut watch, STEP_TIMEOUT).await?;
    let phase = bed.spent(&before, arrivals.since(arrivals.fetched))?;
    work.check(bed).await?;
    bed.remove(&[kustomization], source).await?;
    work.end(bed).await?;
    Ok(phase)
}
