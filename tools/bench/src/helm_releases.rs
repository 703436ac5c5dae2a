//! Measures many HelmReleases of one chart. The raw client applies the same objects for comparison.
//!
//! Each release is in its own namespace, and has a ConfigMap, a Service and a Deployment with one Pod. This module
//! has the rounds: an install, and with `--update` a new version of the chart for all. `chart` has the chart and its
//! source, and `super::workload` the objects. `super::test_bed` reads the costs, and `super::raw_client_comparison` gives the
//! verdict.

pub(super) mod chart;

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use tokio::runtime::Runtime;

use self::chart::BenchChartOrigin;

use super::raw_client_comparison::{BenchComparison, BenchLimits, PhaseCost};
use super::round_options::{self, RawClientRound, RoundCountOptions};
use super::test_bed::{self, BenchTestbed, CostReading, MeasuredProcess};
use super::workload::{NAMESPACE, WorkloadApp};
use e2e::cluster_with_operator::{ObjectWatch, WatchedObject};
use testbed::progress::step;

/// The promised limit: the time of a release as a multiple of the raw client's time. A release also writes its
/// records and its status, and waits for its objects.
const MAX_TIME_RATIO: f64 = 2.0;

/// The promised CPU seconds for installing a hundred releases and waiting for them.
const MAX_HUNDRED_RELEASES_CPU_SECONDS: f64 = 1.5;

/// The promised peak of memory for up to five hundred releases, in MiB.
const MAX_PEAK_MIB: f64 = 80.0;

/// The promised CPU seconds for five hundred releases with a HelmChart each, for an install and for an update.
const WITH_TEMPLATE: f64 = 7.5;

/// The promised seconds for installing five hundred releases with a HelmChart each, and for updating them.
const MAX_INSTALL_AND_UPDATE_SECONDS: (f64, f64) = (28.0, 20.0);

/// How many objects the chart has.
const OBJECTS_PER_CHART: usize = 3;

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct HelmReleaseBenchOptions {
    /// The chart is in a HelmRepository, and each HelmRelease has a HelmChart by `spec.chart`; else all name one HelmChart
    /// of a GitRepository
    #[arg(long)]
    chart_template: bool,
    #[command(flatten)]
    rounds: RoundCountOptions,
}

impl HelmReleaseBenchOptions {
    /// The options for one install of so many releases by the operator alone. It waits until they are ready.
    pub(super) fn alone(count: u16) -> Self {
        Self { rounds: RoundCountOptions::alone(count), chart_template: true }
    }

    /// The limits for an install and for an update.
    fn limits(&self) -> [BenchLimits; 2] {
        let peak = (self.rounds.count <= 500).then_some(MAX_PEAK_MIB);
        if self.chart_template {
            let cpu = (self.rounds.count <= 500).then_some(WITH_TEMPLATE);
            let seconds = (self.rounds.count <= 500).then_some(MAX_INSTALL_AND_UPDATE_SECONDS);
            let limits = |total| BenchLimits { total, cpu, peak, ..BenchLimits::default() };
            return [limits(seconds.map(|it| it.0)), limits(seconds.map(|it| it.1))];
        }
        let cpu = (self.rounds.count <= 100 && self.rounds.wait)
            .then_some(MAX_HUNDRED_RELEASES_CPU_SECONDS);
        let ratio = self.rounds.wait.then_some(MAX_TIME_RATIO);
        let install = BenchLimits { ratio, cpu, peak, ..BenchLimits::default() };
        [install, BenchLimits { peak, ..BenchLimits::default() }]
    }
}

/// Measures and prints the table.
///
/// # Errors
/// When something was not released, or windlass took more than promised.
pub(super) fn run(options: &HelmReleaseBenchOptions) -> anyhow::Result<()> {
    round_options::run(&options.rounds.target, |runtime, bed| measure(runtime, bed, options))
}

/// Measures on an existing test bed.
///
/// # Errors
/// When a step does not end in time.
pub(super) fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    options: &HelmReleaseBenchOptions,
) -> anyhow::Result<Vec<BenchComparison>> {
    let count = usize::from(options.rounds.count);
    let waiting = if options.rounds.wait { "until ready" } else { "without waiting" };
    let limits = if bed.is_windlass() { options.limits() } else { Default::default() };
    let with = if options.chart_template { " with a HelmChart each" } else { "" };
    let title = |what: &str| {
        format!("{count} HelmReleases{with} of {OBJECTS_PER_CHART} objects, {what}, {waiting}")
    };
    let [of_install, of_update] = limits;
    let mut install = BenchComparison::new(title("install"), count * OBJECTS_PER_CHART, of_install);
    let mut update = BenchComparison::new(title("update"), count * OBJECTS_PER_CHART, of_update);
    // The first request of a client costs more, because the client opens connections and reads kinds and schemas.
    step("both once with one", || {
        runtime.block_on(async {
            if !options.rounds.is_alone {
                HelmReleaseBenchSide::prepare(bed, options, MeasuredProcess::Raw, 0, 1)
                    .await?
                    .install()
                    .await?;
            }
            let operator =
                HelmReleaseBenchSide::prepare(bed, options, MeasuredProcess::Operator, 0, 1)
                    .await?;
            operator.install().await?;
            operator.remove().await
        })
    })?;
    for round in 1..=options.rounds.rounds {
        for &who in options.rounds.sides() {
            let name = if who == MeasuredProcess::Raw { "raw client" } else { "operator" };
            step(&format!("round {round}: {name}"), || {
                runtime.block_on(async {
                    let side =
                        HelmReleaseBenchSide::prepare(bed, options, who, round, count).await?;
                    install.add(who, side.install().await?);
                    if options.rounds.update {
                        update.add(who, side.update().await?);
                    }
                    side.remove().await
                })
            })?;
        }
    }
    runtime.block_on(bed.leave())?;
    let mut all = vec![install];
    all.extend(options.rounds.update.then_some(update));
    Ok(all)
}

/// The work of the raw client or of the operator in one round.
struct HelmReleaseBenchSide<'a> {
    bed: &'a BenchTestbed,
    options: &'a HelmReleaseBenchOptions,
    who: MeasuredProcess,
    /// The value of the workload label. The source and the HelmChart have it as their name.
    work: String,
    apps: Vec<WorkloadApp>,
    origin: BenchChartOrigin,
}

impl<'a> HelmReleaseBenchSide<'a> {
    async fn prepare(
        bed: &'a BenchTestbed,
        options: &'a HelmReleaseBenchOptions,
        who: MeasuredProcess,
        round: u16,
        count: usize,
    ) -> anyhow::Result<Self> {
        let work = format!("hr-{}", bed.work(who, round));
        let apps = round_options::apps(bed, &work, count).await?;
        let origin = match options.chart_template {
            true => BenchChartOrigin::web().await?,
            false => BenchChartOrigin::Git(bed.git()?.repository(&work)?),
        };
        Ok(Self { bed, options, who, work, apps, origin })
    }

    async fn install(&self) -> anyhow::Result<PhaseCost> {
        match self.who {
            MeasuredProcess::Raw => self.raw(1).await,
            MeasuredProcess::Operator => self.release().await,
        }
    }

    async fn update(&self) -> anyhow::Result<PhaseCost> {
        match self.who {
            MeasuredProcess::Raw => self.raw(2).await,
            MeasuredProcess::Operator => self.upgrade().await,
        }
    }

    /// Applies a version of the objects with the raw client.
    async fn raw(&self, version: u32) -> anyhow::Result<PhaseCost> {
        let manifests = self.apps.iter().map(|app| chart::manifests(app, version)).collect();
        let waits = self.options.rounds.wait;
        let deployments = self.apps.len();
        RawClientRound { work: &self.work, deployments, version, manifests, waits }
            .apply(self.bed)
            .await
    }

    async fn release(&self) -> anyhow::Result<PhaseCost> {
        self.origin.publish(&self.work, 1)?;
        self.bed.apply(&[self.origin.source(self.bed, &self.work)?]).await?;
        let mut watch = ObjectWatch::begin(self.bed.client(), &test_bed::releases()).await?;
        if !self.options.chart_template {
            self.bed.apply(&[chart::helm_chart(&self.work)]).await?;
            let is_packed =
                |seen: &WatchedObject| seen.is("HelmChart", &self.work) && seen.is_ready();
            watch.until("the chart", self.options.rounds.limit(), is_packed).await?;
        }
        let releases = test_bed::prepare(&self.releases(1))?;
        let before = self.bed.read(self.who)?;
        let begun = Instant::now();
        self.bed.raw().apply(&releases).await?;
        self.arrive(&mut watch, 1, begun, &before).await
    }

    /// Publishes a new version of the chart. Each `spec.chart` requests it, or the common HelmChart has it.
    async fn upgrade(&self) -> anyhow::Result<PhaseCost> {
        let mut watch = ObjectWatch::begin(self.bed.client(), &test_bed::releases()).await?;
        watch.forget();
        let commit = self.origin.publish(&self.work, 2)?;
        let releases = test_bed::prepare(&self.releases(2))?;
        if self.options.chart_template {
            // In practice the operator has read the index before, so reading it is not measured.
            self.bed.announce_repository(&self.work).await?;
        }
        let before = self.bed.read(self.who)?;
        let begun = Instant::now();
        match self.options.chart_template {
            true => drop(self.bed.raw().apply(&releases).await?),
            false => self.bed.announce(&self.work, &commit).await?,
        }
        self.arrive(&mut watch, 2, begun, &before).await
    }

    /// Waits until every HelmRelease has the version.
    async fn arrive(
        &self,
        watch: &mut ObjectWatch,
        version: u32,
        begun: Instant,
        before: &CostReading,
    ) -> anyhow::Result<PhaseCost> {
        let mut ready = BTreeMap::new();
        let deadline = begun + self.options.rounds.limit();
        let wanted = chart::version(version);
        while ready.len() < self.apps.len() {
            let what = format!("the releases ({} of {} are there)", ready.len(), self.apps.len());
            let seen = watch.next(&what, deadline).await?;
            let is_it = seen.kind == "HelmRelease" && seen.name.starts_with(&self.work);
            if is_it && seen.is_ready() && has_released(&seen, &wanted) {
                ready.entry(seen.name).or_insert(seen.at);
            }
        }
        let times = ready.values().map(|at| at.saturating_duration_since(begun)).collect();
        self.bed.settle(&self.work, self.apps.len()).await?;
        self.bed.spent(before, times)
    }

    /// Removes the releases, and waits until they are deleted. The objects of the raw client stay.
    async fn remove(&self) -> anyhow::Result<()> {
        if self.who == MeasuredProcess::Raw {
            return Ok(());
        }
        let [all, _] = test_bed::releases();
        let mut sources = vec![self.origin.source(self.bed, &self.work)?];
        if !self.options.chart_template {
            sources.push(chart::helm_chart(&self.work));
        }
        self.bed.remove_all(&self.releases(1), &sources, &all).await
    }

    fn releases(&self, version: u32) -> Vec<String> {
        let work = &self.work;
        let without = !self.options.rounds.wait;
        let chart = match self.options.chart_template {
            true => chart::template(work, version),
            false => format!("chartRef: {{kind: HelmChart, name: {work}}}"),
        };
        let one = |WorkloadApp { name, namespace, .. }: &WorkloadApp| {
            format!(
                "\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  interval: 10m
  timeout: 10m
  releaseName: {name}
  targetNamespace: {namespace}
  storageNamespace: {namespace}
  {chart}
  install: {{disableWait: {without}}}
  upgrade: {{disableWait: {without}}}
  values: {{work: {work}}}
"
            )
        };
        self.apps.iter().map(one).collect()
    }
}

/// Whether the newest release has this version of the chart. The version of a chart from Git may have the commit as a
/// suffix.
pub(super) fn has_released(seen: &WatchedObject, version: &str) -> bool {
    let released = seen.value("/status/history/0/chartVersion").as_str().unwrap_or_default();
    released.split('+').next() == Some(version)
}
