//! Measures the web pages with ten thousand objects, fifty users who logged in, and five hundred open pages.
//!
//! No controller reconciles the objects, so only what the pages do is measured. This module has the command line.
//! * `measurement` and `open_pages` have the steps and the goals.
//! * `measured_pages` runs windlass and logs users in; `event_streams` are the open pages; `page_times` has the times of
//!   requests.
//! * `first_paint` opens a page in Chromium.
//! * `figures` has the tables, and what others published.

mod event_streams;
mod figures;
mod first_paint;
mod measured_pages;
mod measurement;
mod open_pages;
mod page_times;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::cluster_with_operator::{BuildProfile, ClusterWithOperator, OperatorsToStart, make};
use tokio::runtime::Runtime;

use self::figures::WebReport;
use self::measurement::WebMeasurement;
use super::raw_client_comparison::FigureOutputFormat;
use super::scale::scale_factor;
use super::time_samples;
use super::unreconciled_objects::OBJECTS_OF_A_NAMESPACE;
use testbed::progress::step;

/// How many open pages of the list one user may have. windlass has sixteen places for each, and one page is the overview.
const MAX_STREAMS_OF_A_USER: u16 = 15;

/// How many open pages each user has at least. The first one keeps the rows of the user in memory.
const MIN_STREAMS_OF_A_USER: u16 = 2;

/// How many objects, users and streams.
#[derive(Debug, Args)]
pub(crate) struct WebBenchOptions {
    /// How many objects: Kustomizations and HelmReleases in turn
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(200..=100_000))]
    objects: u32,
    /// How many users log in, each with watches and rows of their own in windlass
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    users: u16,
    /// How many open pages receive events: two to fifteen of each user
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
    streams: u16,
    /// Measure with this part of all three numbers, such as 0.1
    #[arg(long, default_value_t = 1.0, value_parser = scale_factor)]
    scale: f64,
    /// How many objects are changed, one after the other
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    changes: u16,
    /// How long nothing happens, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    idle: u16,
    /// How the figures are written
    #[arg(short, long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
}

/// The numbers of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WebWorkload {
    objects: u32,
    users: u16,
    streams: u16,
}

impl WebWorkload {
    /// The numbers of the options, times the scale.
    ///
    /// # Errors
    /// The users cannot have so many open pages.
    fn of(options: &WebBenchOptions) -> anyhow::Result<Self> {
        let part = |count: u32| ((f64::from(count) * options.scale).round() as u32).max(1);
        let users = u16::try_from(part(options.users.into()))?;
        let streams = u16::try_from(part(options.streams.into()))?;
        let least = users.saturating_mul(MIN_STREAMS_OF_A_USER);
        let most = users.saturating_mul(MAX_STREAMS_OF_A_USER);
        ensure!(streams <= most, "{users} users have {most} open pages at most");
        let objects = part(options.objects).max(OBJECTS_OF_A_NAMESPACE);
        Ok(Self { objects, users, streams: streams.max(least) })
    }
}

/// Measures and prints the tables.
///
/// # Errors
/// When a step failed, or a goal was missed.
pub(super) fn run(options: &WebBenchOptions) -> anyhow::Result<()> {
    let workload = WebWorkload::of(options)?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    step("windlass itself", || make(BuildProfile::Release))?;
    // No operator: the objects have their statuses, and only the pages run.
    let mut installation =
        ClusterWithOperator::start_in_memory(&runtime, OperatorsToStart::Programs(&[], &[]))?;
    let title = format!(
        "pages of {} objects, {} users, {} open pages",
        workload.objects, workload.users, workload.streams
    );
    let report = WebReport::new(title, time_samples::load());
    let mut measurement = WebMeasurement {
        runtime: &runtime,
        installation: &installation,
        options,
        workload,
        report,
    };
    let measured = measurement.measure();
    let report = measurement.report;
    measured.map_err(|error| installation.explain(&error))?;
    report.print(options.output);
    if !report.passes() {
        bail!("a goal was missed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(users: u16, streams: u16, scale: f64) -> WebBenchOptions {
        let output = FigureOutputFormat::Table;
        WebBenchOptions { objects: 10_000, users, streams, scale, changes: 1, idle: 1, output }
    }

    #[test]
    fn a_scale_is_of_all_numbers_and_a_user_has_two_to_fifteen_open_pages() {
        let tenth = WebWorkload::of(&options(50, 500, 0.1)).unwrap();
        assert_eq!(tenth, WebWorkload { objects: 1_000, users: 5, streams: 50 });
        let tiny = WebWorkload::of(&options(50, 500, 0.001)).unwrap();
        assert_eq!(tiny, WebWorkload { objects: 100, users: 1, streams: 2 });
        assert!(WebWorkload::of(&options(1, 16, 1.0)).is_err());
    }
}
