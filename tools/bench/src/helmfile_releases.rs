//! Measures one Helmfile with many releases of one chart, each in its own namespace.
//!
//! It measures the install, with the raw client and the same objects for comparison. Then it measures the costs of
//! the settled Helmfile at each interval. This module has the rounds and the verdict. `super::helm_releases::chart`
//! has the chart, and `super::workload` the objects. `super::test_bed` reads the costs, and `super::idle` counts
//! requests.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::git_server::StoryGitRepository;
use tokio::runtime::Runtime;

use super::audit_log::RequestPurpose;
use super::helm_releases::chart;
use super::idle::IdleMeasurement;
use super::raw_client_comparison::{
    self, BenchComparison, BenchLimits, FigureOutputFormat, PhaseCost,
};
use super::round_options::{self, RawClientRound};
use super::test_bed::{self, BenchTarget, BenchTestbed, MeasuredProcess};
use super::time_samples;
use super::workload::{self, NAMESPACE, WorkloadApp};
use e2e::cluster_with_operator::{ObjectWatch, WatchSelection, WatchedObject};
use testbed::progress::{bold, green, red, step};

/// The promised limit for an install: the total time as a multiple of the raw client's time.
const MAX_INSTALL_TIME_RATIO: f64 = 2.0;

/// The promised peak of memory for up to a hundred releases, in MiB.
const MAX_PEAK_MIB: f64 = 80.0;

/// The promised CPU seconds for a run of a settled Helmfile with up to a hundred releases.
const MAX_PASS_CPU_SECONDS: f64 = 0.05;

/// The interval of the Helmfile and of its source.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);

/// During how many intervals the requests are counted.
const MEASURED_INTERVAL_COUNT: u32 = 4;

/// How many objects the chart has.
const OBJECTS_PER_CHART: usize = 3;

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct HelmfileReleaseBenchOptions {
    /// How many releases the Helmfile has
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// How often it is installed by each of both
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    target: BenchTarget,
}

/// Measures and prints the tables.
///
/// # Errors
/// When something was not released, a settled Helmfile made a request, or windlass took more than promised.
pub(super) fn run(options: &HelmfileReleaseBenchOptions) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut bed = BenchTestbed::open(&runtime, &options.target)?;
    let load = time_samples::load();
    let measured = measure(&runtime, &bed, options);
    let (install, heard) = measured.map_err(|error| bed.explain(error))?;
    let is_promised = options.count <= 100;
    let pass = heard.cpu / f64::from(MEASURED_INTERVAL_COUNT);
    if options.target.output == FigureOutputFormat::Json {
        print_json(&install, &heard, pass, &load);
    } else {
        raw_client_comparison::print(options.target.output, std::slice::from_ref(&install), &load);
        print(options, &heard, pass, is_promised);
    }
    let is_idle = heard.requests.total(RequestPurpose::Work) == 0;
    let is_cheap = !is_promised || pass <= MAX_PASS_CPU_SECONDS;
    if !(install.passes() && is_idle && is_cheap) {
        bail!("a promise was not kept");
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are what the command is for")]
fn print_json(install: &BenchComparison, heard: &IdleMeasurement, pass: f64, load: &str) {
    let requests = heard.to_json();
    let settled = serde_json::json!({"cpu_a_pass": pass, "peak": heard.peak, "requests": requests});
    let comparisons = [install.to_json()];
    println!(
        "{}",
        serde_json::json!({"load": load, "comparisons": comparisons, "settled": settled})
    );
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(
    options: &HelmfileReleaseBenchOptions,
    heard: &IdleMeasurement,
    pass: f64,
    is_promised: bool,
) {
    let count = options.count;
    println!(
        "\n{}",
        bold(&format!(
            "a settled Helmfile of {count} releases, {MEASURED_INTERVAL_COUNT} intervals"
        ))
    );
    heard.print();
    let verdict = match (is_promised, pass <= MAX_PASS_CPU_SECONDS) {
        (false, _) => String::new(),
        (true, true) => format!("  {} (at most {MAX_PASS_CPU_SECONDS:.3})", green("PASS")),
        (true, false) => format!("  {} (at most {MAX_PASS_CPU_SECONDS:.3})", red("FAIL")),
    };
    println!("CPU of the operator for an interval, with its Git source, s: {pass:.3}{verdict}");
}

fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    options: &HelmfileReleaseBenchOptions,
) -> anyhow::Result<(BenchComparison, IdleMeasurement)> {
    let count = usize::from(options.count);
    let limits = match bed.is_windlass() {
        true => BenchLimits {
            ratio: Some(MAX_INSTALL_TIME_RATIO),
            peak: (options.count <= 100).then_some(MAX_PEAK_MIB),
            ..BenchLimits::default()
        },
        false => BenchLimits::default(),
    };
    let title =
        format!("a Helmfile of {count} releases of {OBJECTS_PER_CHART} objects, until ready");
    let mut install = BenchComparison::new(title, count * OBJECTS_PER_CHART, limits);
    // The first request of a client costs more, because the client opens connections and reads kinds and schemas.
    step("both once with one", || {
        runtime.block_on(async {
            HelmfileReleaseBenchSide::prepare(bed, MeasuredProcess::Raw, 0, 1)
                .await?
                .install()
                .await?;
            let operator =
                HelmfileReleaseBenchSide::prepare(bed, MeasuredProcess::Operator, 0, 1).await?;
            operator.install().await?;
            operator.remove().await
        })
    })?;
    let mut heard = None;
    for round in 1..=options.rounds {
        for who in [MeasuredProcess::Raw, MeasuredProcess::Operator] {
            let name = if who == MeasuredProcess::Raw { "raw client" } else { "operator" };
            let side = step(&format!("round {round}: {name}"), || {
                runtime.block_on(async {
                    let side = HelmfileReleaseBenchSide::prepare(bed, who, round, count).await?;
                    install.add(who, side.install().await?);
                    anyhow::Ok(side)
                })
            })?;
            if who == MeasuredProcess::Operator && round == options.rounds {
                heard = Some(listen(bed)?);
            }
            step(&format!("round {round}: removal"), || runtime.block_on(side.remove()))?;
        }
    }
    runtime.block_on(bed.leave())?;
    Ok((install, heard.context("there was no round")?))
}

fn listen(bed: &BenchTestbed) -> anyhow::Result<IdleMeasurement> {
    step("the first interval, in which it settles", || {
        std::thread::sleep(RECONCILE_INTERVAL * 3 / 2);
        Ok(())
    })?;
    step(&format!("listening for {MEASURED_INTERVAL_COUNT} intervals"), || {
        IdleMeasurement::listen(bed, RECONCILE_INTERVAL * MEASURED_INTERVAL_COUNT)
    })
}

/// The work of the raw client or of the operator in one round.
struct HelmfileReleaseBenchSide<'a> {
    bed: &'a BenchTestbed,
    who: MeasuredProcess,
    /// The value of the workload label. The source and the Helmfile have it as their name.
    work: String,
    apps: Vec<WorkloadApp>,
    repository: StoryGitRepository,
}

impl<'a> HelmfileReleaseBenchSide<'a> {
    async fn prepare(
        bed: &'a BenchTestbed,
        who: MeasuredProcess,
        round: u16,
        count: usize,
    ) -> anyhow::Result<Self> {
        let work = format!("hf-{}", bed.work(who, round));
        let apps = round_options::apps(bed, &work, count).await?;
        let repository = bed.git()?.repository(&work)?;
        Ok(Self { bed, who, work, apps, repository })
    }

    async fn install(&self) -> anyhow::Result<PhaseCost> {
        match self.who {
            MeasuredProcess::Raw => self.raw().await,
            MeasuredProcess::Operator => self.release().await,
        }
    }

    /// Applies the objects with the raw client, and waits for them.
    async fn raw(&self) -> anyhow::Result<PhaseCost> {
        let manifests = self.apps.iter().map(|app| chart::manifests(app, 1)).collect();
        let deployments = self.apps.len();
        RawClientRound { work: &self.work, deployments, version: 1, manifests, waits: true }
            .apply(self.bed)
            .await
    }

    /// Creates the Helmfile and waits until it is Ready. The source exists before, so only the Helmfile is measured.
    async fn release(&self) -> anyhow::Result<PhaseCost> {
        let commit = self.publish()?;
        let mut watch =
            ObjectWatch::begin(self.bed.client(), &[test_bed::sources(), helmfiles()]).await?;
        self.bed.apply(&[self.source()?]).await?;
        let is_fetched = |seen: &WatchedObject| seen.name == self.work && seen.has_fetched(&commit);
        watch.until("the source", round_options::limit(self.apps.len()), is_fetched).await?;
        let helmfile = test_bed::prepare(&[self.helmfile()])?;
        let before = self.bed.read(self.who)?;
        let begun = Instant::now();
        self.bed.raw().apply(&helmfile).await?;
        let is_done = |seen: &WatchedObject| seen.is("Helmfile", &self.work) && seen.is_ready();
        let seen =
            watch.until("the releases", round_options::limit(self.apps.len()), is_done).await?;
        let time = seen.at.saturating_duration_since(begun);
        self.bed.settle(&self.work, self.apps.len()).await?;
        self.bed.spent(&before, vec![time])
    }

    /// Commits the chart and the helmfile, and returns the commit.
    fn publish(&self) -> anyhow::Result<String> {
        let mut helmfile = "helmDefaults: {wait: true, timeout: 600}\nreleases:\n".to_owned();
        for WorkloadApp { name, namespace, work, .. } in &self.apps {
            writeln!(
                helmfile,
                "- {{name: {name}, namespace: {namespace}, chart: ./chart, values: [{{work: {work}}}]}}"
            )?;
        }
        let mut files = vec![("helmfile.yaml".to_owned(), helmfile)];
        files.extend(chart::files(1).map(|(path, text)| (format!("chart/{path}"), text)));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        self.repository.commit(&files, &self.work)
    }

    fn source(&self) -> anyhow::Result<String> {
        let interval = format!("{}s", RECONCILE_INTERVAL.as_secs());
        Ok(workload::source(&self.work, &self.bed.git()?.url(&self.repository), &interval))
    }

    fn helmfile(&self) -> String {
        format!(
            "\
apiVersion: helmfile.windlass.dev/v1alpha1
kind: Helmfile
metadata: {{name: {}, namespace: {NAMESPACE}}}
spec:
  sourceRef: {{kind: GitRepository, name: {}}}
  interval: {}s
  timeout: 10m
  prune: true
",
            self.work,
            self.work,
            RECONCILE_INTERVAL.as_secs()
        )
    }

    /// Removes the releases, and waits until they are deleted. The objects of the raw client stay.
    async fn remove(&self) -> anyhow::Result<()> {
        if self.who == MeasuredProcess::Raw {
            return Ok(());
        }
        self.bed.remove_all(&[self.helmfile()], &[self.source()?], &helmfiles()).await
    }
}

/// Selects the Helmfiles of the benchmark for a watch.
fn helmfiles() -> WatchSelection {
    WatchSelection::of("helmfile.windlass.dev/v1alpha1", "Helmfile").within(NAMESPACE)
}
