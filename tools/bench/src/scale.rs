//! Measures a large cluster: ten thousand Kustomizations and two thousand HelmReleases with a hundred thousand small
//! objects.
//!
//! Leader election is on, so that a standby can take over at the end.
//!
//! This module has the command line, the order of steps and the promised limits. `tenant_workload` makes the objects,
//! `session` and `operator_activity` perform the steps, and `step_costs` has the figures. `super::thundering_herd` measures
//! one push to objects that share a ConfigMap.

pub(super) mod operator_activity;
pub(super) mod session;
pub(super) mod step_costs;
pub(super) mod tenant_workload;

use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use e2e::cluster_with_operator::OperatorStopSignal;
use tokio::runtime::Runtime;

use self::session::fail_over::{FailOverTimes, election_flags};
use self::session::{ScaleSession, StepOutcome};
use self::step_costs::{ScalePromise, ScaleReport};
use self::tenant_workload::TenantWorkload;
use super::raw_client_comparison::FigureOutputFormat;
use super::time_samples::{self, TimeSamples};

/// The promised memory with all objects settled, in MiB.
const MAX_SETTLED_MIB: f64 = 300.0;

/// The promised memory while every object is changed, as a multiple of the memory before.
pub(super) const MAX_HERD_GROWTH: f64 = 1.5;

/// The promised seconds until windlass has corrected an object, for 99 of 100 edits.
const MAX_DRIFT_SECONDS: f64 = 1.0;

/// The promised limits for a restart: the seconds until each object has had a run, and the requests.
const MAX_RESTART_SECONDS: f64 = 30.0;
const MAX_RESTART_REQUESTS: f64 = 1000.0;

/// The promised seconds until a standby leads: after a leader that is asked to end, and after one that is killed.
const MAX_HAND_OVER_SECONDS: f64 = 5.0;
const MAX_TAKE_OVER_SECONDS: f64 = 40.0;

/// The promised seconds until a new leader has corrected an object, from the edit or, if no process led then, from its
/// leadership.
const MAX_FAIL_OVER_DRIFT_SECONDS: f64 = 2.0;

/// How much there is, and which part of it.
#[derive(Debug, Args)]
pub(crate) struct ScaleBenchOptions {
    /// How many Kustomizations
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    kustomizations: u32,
    /// How many HelmReleases, all of one chart
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    helmreleases: u32,
    /// How many ConfigMaps both apply together
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    objects: u32,
    /// Over how many namespaces all of it is spread
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    namespaces: u32,
    /// Measure with this part of all four numbers, such as 0.1
    #[arg(long, default_value_t = 1.0, value_parser = scale_factor)]
    scale: f64,
    /// How many objects are edited by hand, one after the other
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    edits: u16,
    /// How long nothing happens, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    idle: u16,
    /// How the figures are written
    #[arg(short, long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
    /// Flags for `windlass serve`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Reads a factor that is more than zero and at most ten.
///
/// # Errors
/// When the text is not a number in this range.
pub(super) fn scale_factor(text: &str) -> anyhow::Result<f64> {
    let factor: f64 = text.parse()?;
    ensure!(factor > 0.0 && factor <= 10.0, "it is above 0 and at most 10");
    Ok(factor)
}

/// Measures and prints the tables.
///
/// # Errors
/// When a step did not end, or exceeded a promised limit.
pub(super) fn run(options: &ScaleBenchOptions) -> anyhow::Result<()> {
    let whole = TenantWorkload {
        kustomizations: usize::try_from(options.kustomizations)?,
        helm_releases: usize::try_from(options.helmreleases)?,
        objects: usize::try_from(options.objects)?,
        namespaces: usize::try_from(options.namespaces)?,
        shares_variables: false,
    };
    let workload = whole.scaled(options.scale);
    let runtime = Runtime::new()?;
    let load = time_samples::load();
    let flags: Vec<String> = options.flags.iter().cloned().chain(election_flags(0)).collect();
    let mut session = ScaleSession::begin(&runtime, workload, &flags)?;
    let measured = measure(&mut session, options, load, workload);
    let report = measured.map_err(|error| session.explain(error))?;
    report.print(options.output);
    if !report.passes() {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(
    session: &mut ScaleSession<'_>,
    options: &ScaleBenchOptions,
    load: String,
    workload: TenantWorkload,
) -> anyhow::Result<ScaleReport> {
    let install = session.measure("start to settled", |it| it.install())?;
    let one = session.measure("push that changes one object", |it| it.push_one())?;
    let all = session.measure("push that changes all objects", |it| it.push_all())?;
    let limit = Duration::from_secs_f64(MAX_DRIFT_SECONDS);
    let mut edits = TimeSamples::new("object edited by hand put back", limit).judged_at(99);
    let count = usize::from(options.edits);
    let drift = session.measure("drift", |it| it.drift(count, &mut edits))?;
    let restart = session.measure("crash and restart", |it| it.crash())?;
    let time = Duration::from_secs(options.idle.into());
    let idle = session.measure("idle", |_| Ok(StepOutcome::idle(time)))?;
    let mut asked = FailOverTimes::default();
    let mut killed = FailOverTimes::default();
    session.join(&options.flags, 1)?;
    let hand_over = session.measure("fail-over, leader asked to end", |it| {
        it.fail_over(OperatorStopSignal::Terminated, 1, &mut asked)
    })?;
    session.join(&options.flags, 2)?;
    let take_over = session.measure("fail-over, leader killed", |it| {
        it.fail_over(OperatorStopSignal::Killed, 2, &mut killed)
    })?;
    let drifts = [asked.drift, asked.later_drift, killed.drift, killed.later_drift];
    let drift_seen = drifts.into_iter().max().unwrap_or_default().as_secs_f64();
    let slowest = edits.percentile(99).as_secs_f64();
    let promises = vec![
        ScalePromise::new("settled, MiB", install.after, MAX_SETTLED_MIB),
        ScalePromise::new("a push to all, peak to before", all.growth(), MAX_HERD_GROWTH),
        ScalePromise::new("p99 of an edit until it is put back, s", slowest, MAX_DRIFT_SECONDS),
        ScalePromise::new("restart until all have run, s", restart.done, MAX_RESTART_SECONDS),
        ScalePromise::new("requests of a restart", restart.work() as f64, MAX_RESTART_REQUESTS),
        ScalePromise::new("requests of idle time", idle.work() as f64, 0.0),
        ScalePromise::new("standby leads after SIGTERM, s", hand_over.done, MAX_HAND_OVER_SECONDS),
        ScalePromise::new("standby leads after kill -9, s", take_over.done, MAX_TAKE_OVER_SECONDS),
        ScalePromise::new("its drift seen, s", drift_seen, MAX_FAIL_OVER_DRIFT_SECONDS),
    ];
    let steps = vec![install, one, all, drift, restart, idle, hand_over, take_over];
    Ok(ScaleReport { workload, load, steps, promises })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_a_part_or_a_few_times_the_whole() {
        assert_eq!(scale_factor("0.1").unwrap(), 0.1);
        for wrong in ["0", "-1", "11", "NaN", "a tenth"] {
            assert!(scale_factor(wrong).is_err(), "{wrong}");
        }
    }
}
