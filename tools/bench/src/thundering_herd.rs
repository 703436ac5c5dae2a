//! Measures one push that thousands of Kustomizations and HelmReleases wait for. All of them read one ConfigMap with
//! variables.
//!
//! This module has the command line and the promised limits. `super::scale` has the objects and the steps.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tokio::runtime::Runtime;

use super::raw_client_comparison::FigureOutputFormat;
use super::scale::session::{ScaleSession, StepOutcome};
use super::scale::step_costs::{ScalePromise, ScaleReport};
use super::scale::tenant_workload::TenantWorkload;
use super::{scale, time_samples};

/// The promised limit: how often windlass reads the ConfigMap after one push.
const MAX_READ_COUNT: f64 = 20.0;

/// How many objects each Kustomization and HelmRelease applies.
const OBJECTS_PER_APPLIER: usize = 2;

/// How long nothing happens before the push, so that the allocator can return memory of the start.
const REST_PERIOD: Duration = Duration::from_secs(15);

/// How much there is, and which part of it.
#[derive(Debug, Args)]
pub(crate) struct HerdBenchOptions {
    /// How many Kustomizations
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    kustomizations: u32,
    /// How many HelmReleases, all of one chart
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    helmreleases: u32,
    /// Measure with this part of both numbers, such as 0.1
    #[arg(long, default_value_t = 1.0, value_parser = scale::scale_factor)]
    scale: f64,
    /// How the figures are written
    #[arg(short, long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
    /// Flags for `windlass serve`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Measures and prints the tables.
///
/// # Errors
/// When a step did not end, or exceeded a promised limit.
pub(super) fn run(options: &HerdBenchOptions) -> anyhow::Result<()> {
    let kustomizations = usize::try_from(options.kustomizations)?;
    let helm_releases = usize::try_from(options.helmreleases)?;
    let objects = (kustomizations + helm_releases) * OBJECTS_PER_APPLIER;
    let namespaces = 1;
    let shares_variables = true;
    let whole =
        TenantWorkload { kustomizations, helm_releases, objects, namespaces, shares_variables };
    let workload = whole.scaled(options.scale);
    let runtime = Runtime::new()?;
    let load = time_samples::load();
    let mut session = ScaleSession::begin(&runtime, workload, &options.flags)?;
    let measured = measure(&mut session, load, workload);
    let report = measured.map_err(|error| session.explain(error))?;
    report.print(options.output);
    if !report.passes() {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    session: &mut ScaleSession<'_>,
    load: String,
    workload: TenantWorkload,
) -> anyhow::Result<ScaleReport> {
    let mut install = session.measure("start to settled", |it| it.install())?;
    let idle = session.measure("idle", |_| Ok(StepOutcome::idle(REST_PERIOD)))?;
    let mut push = session.measure("push that changes all objects", |it| it.push_all())?;
    let reads = push.reads;
    for step in [&mut install, &mut push] {
        step.note = format!("the ConfigMap was read {} times", step.reads);
    }
    let growth = push.peak / idle.after;
    let promises = vec![
        ScalePromise::new("peak of a push to idle", growth, scale::MAX_HERD_GROWTH),
        ScalePromise::new("reads of the ConfigMap after a push", reads as f64, MAX_READ_COUNT),
    ];
    Ok(ScaleReport { workload, load, steps: vec![install, idle, push], promises })
}
