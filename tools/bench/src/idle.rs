//! Measures the costs of settled Kustomizations when nothing changes.
//!
//! This module settles them, counts requests, and has the table and the verdict. `super::workload` makes the objects,
//! and `super::audit_log` reads the requests.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::control_plane::OPERATOR;
use e2e::process_usage;
use tokio::runtime::Runtime;

use super::audit_log::{RequestCounts, RequestPurpose};
use super::commit_arrivals::CommitArrivals;
use super::raw_client_comparison::FigureOutputFormat;
use super::test_bed::{self, BenchTarget, BenchTestbed, MeasuredProcess};
use super::time_samples;
use super::workload::{self, WorkloadApp};
use e2e::cluster_with_operator::ObjectWatch;
use testbed::progress::{bold, green, red, step};

/// The interval of all objects. It is short, so that each object is reconciled several times during the measurement.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);

/// How long the objects may take to settle before the measurement.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The time after the measurement in which the last watches can be opened after their lists.
const WATCH_REOPEN_DELAY: Duration = Duration::from_secs(2);

/// How many for how long.
#[derive(Debug, Args)]
pub(crate) struct IdleBenchOptions {
    /// How many Kustomizations, with intervals of 30 s like their GitRepository's
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=2000))]
    kustomizations: u16,
    /// They check the health of their objects
    #[arg(long)]
    wait: bool,
    /// How long is listened, in minutes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=60))]
    minutes: u16,
    #[command(flatten)]
    target: BenchTarget,
}

/// The costs during the measurement.
pub(super) struct IdleMeasurement {
    /// The operator's requests to the API server.
    pub(super) requests: RequestCounts,
    /// The CPU seconds of the operator during the measurement.
    pub(super) cpu: f64,
    /// The highest resident memory of the operator since its start, in MiB.
    pub(super) peak: f64,
}

impl IdleMeasurement {
    /// Measures the operator for the given time.
    ///
    /// # Errors
    /// When there is no audit log, or the operator has ended.
    pub(super) fn listen(bed: &BenchTestbed, time: Duration) -> anyhow::Result<Self> {
        let audit = bed.audit()?;
        let cpu = process_usage::cpu_seconds(bed.operators())?;
        let mark = audit.mark()?;
        std::thread::sleep(time);
        let cpu = process_usage::cpu_seconds(bed.operators())? - cpu;
        std::thread::sleep(WATCH_REOPEN_DELAY);
        let requests = audit.since(mark, OPERATOR)?;
        Ok(Self { requests, cpu, peak: process_usage::peak_mebibytes(bed.operators())? })
    }

    /// The counted requests of an idle operator, as JSON.
    pub(super) fn to_json(&self) -> Vec<serde_json::Value> {
        let lines = self.requests.iter();
        let line = |(purpose, verb, resource, tally)| serde_json::json!({"purpose": purpose, "verb": verb, "resource": resource, "tally": tally});
        lines.map(line).collect()
    }

    /// Prints the requests, and whether a request was for work on objects.
    #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
    pub(super) fn print(&self) {
        println!(
            "{:<10} {:<18} {:<36} {:>6} {:>8}",
            "purpose", "verb", "resource", "count", "refused"
        );
        for (purpose, verb, resource, tally) in self.requests.iter() {
            let word = match purpose {
                RequestPurpose::Watching => "watching",
                RequestPurpose::Leading => "leading",
                RequestPurpose::Work => "work",
            };
            println!(
                "{word:<10} {verb:<18} {resource:<36} {:>6} {:>8}",
                tally.count, tally.refused
            );
        }
        let work = self.requests.total(RequestPurpose::Work);
        let verdict = if work == 0 { green("PASS") } else { red("FAIL") };
        println!("requests that were work: {work}  {verdict} (at most 0)");
    }
}

/// Measures, and prints the table.
///
/// # Errors
/// When a request did more than keep watches or the Lease alive.
pub(super) fn run(options: &IdleBenchOptions) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut bed = BenchTestbed::open(&runtime, &options.target)?;
    let load = time_samples::load();
    let heard = listen(&runtime, &bed, options).map_err(|error| bed.explain(error))?;
    print(options, &heard, &load);
    let work = heard.requests.total(RequestPurpose::Work);
    if bed.is_windlass() && work > 0 {
        bail!("{work} requests although nothing had happened");
    }
    Ok(())
}

fn listen(
    runtime: &Runtime,
    bed: &BenchTestbed,
    options: &IdleBenchOptions,
) -> anyhow::Result<IdleMeasurement> {
    let count = usize::from(options.kustomizations);
    let (kustomizations, source) =
        step(&format!("{count} Kustomizations"), || runtime.block_on(install(bed, options)))?;
    step("the first interval, in which they settle", || {
        std::thread::sleep(RECONCILE_INTERVAL * 3 / 2);
        Ok(())
    })?;
    let minutes = options.minutes;
    let time = Duration::from_secs(60 * u64::from(minutes));
    let heard =
        step(&format!("listening for {minutes} min"), || IdleMeasurement::listen(bed, time))?;
    step("removal", || {
        runtime.block_on(async {
            bed.remove(&kustomizations, source).await?;
            bed.leave().await
        })
    })?;
    Ok(heard)
}

/// Applies the Kustomizations and their source, and returns the manifests.
async fn install(
    bed: &BenchTestbed,
    options: &IdleBenchOptions,
) -> anyhow::Result<(Vec<String>, String)> {
    let work = &bed.work(MeasuredProcess::Operator, 1);
    let app = |number: u16| {
        let name = format!("{work}-{number:04}");
        WorkloadApp { namespace: name.clone(), name, work: work.clone(), replicas: 1 }
    };
    let apps: Vec<WorkloadApp> = (1..=options.kustomizations).map(app).collect();
    let names: Vec<String> = apps.iter().map(|app| app.namespace.clone()).collect();
    bed.create_namespaces(&names).await?;
    let repository = bed.git()?.repository(work)?;
    let files: Vec<(String, String)> =
        apps.iter().map(|app| (format!("{}/app.yaml", app.name), app.manifest(1))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
    let commit = repository.commit(&files, work)?;
    let mut watch =
        ObjectWatch::begin(bed.client(), &[test_bed::sources(), test_bed::kustomizations()])
            .await?;
    let interval = format!("{}s", RECONCILE_INTERVAL.as_secs());
    let source = workload::source(work, &bed.git()?.url(&repository), &interval);
    let one = |app: &WorkloadApp| {
        workload::kustomization(&app.name, work, &app.name, &interval, options.wait)
    };
    let kustomizations: Vec<String> = apps.iter().map(one).collect();
    bed.apply(std::slice::from_ref(&source)).await?;
    bed.apply(&kustomizations).await?;
    CommitArrivals::of(&commit, apps.len(), &mut watch, SETTLE_TIMEOUT).await?;
    bed.settle(work, apps.len()).await?;
    Ok((kustomizations, source))
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(options: &IdleBenchOptions, heard: &IdleMeasurement, load: &str) {
    let IdleMeasurement { cpu, peak, .. } = heard;
    if options.target.output == FigureOutputFormat::Json {
        let lines = heard.to_json();
        let all = serde_json::json!({"load": load, "cpu": cpu, "peak": peak, "requests": lines});
        println!("{all}");
        return;
    }
    let count = options.kustomizations;
    let minutes = options.minutes;
    println!("\n{}", bold(&format!("{count} settled Kustomizations, {minutes} min")));
    heard.print();
    println!("CPU of the operator: {cpu:.2} s; peak memory since its start: {peak:.1} MiB");
    time_samples::print_machine(load);
}
