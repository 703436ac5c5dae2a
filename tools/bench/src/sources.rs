//! Measures sources: how long a fetch takes, how many bytes it transfers, and how much memory the process needs.
//!
//! This module has the list of sources, the steps, the table and the verdict. The submodules have each source with
//! its server. `e2e::tcp_relay` counts the transferred bytes.

mod bucket;
mod charts;
mod git;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use e2e::process_usage;
use e2e::tcp_relay::{TcpRelay, TcpRelayTraffic};
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::raw_client_comparison::FigureOutputFormat;
use super::time_samples;
use super::workload::NAMESPACE;
use e2e::cluster_with_operator::{
    BuildProfile, ClusterWithOperator, ObjectWatch, OperatorsToStart, WatchSelection, WatchedObject,
};
use testbed::progress::{bold, green, red, step};

/// The promised peak of memory, in MiB.
const MAX_PEAK_MIB: f64 = 150.0;

/// The time limit of each step.
const FETCH_TIMEOUT: Duration = Duration::from_secs(300);

/// An interval longer than the measurement.
const NEVER: &str = "1h";

/// The API version of Flux's sources.
const API: &str = "source.toolkit.fluxcd.io/v1";

/// Which source the source benchmark measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SourceBenchmark {
    /// A Git repository of 5 000 files, one of which changes
    Git,
    /// A bucket of 1 000 objects, one of which changes
    Bucket,
    /// A Helm index of 20 MB with 50 charts from it, one of which changes
    Charts,
}

/// What is measured how often.
#[derive(Debug, Args)]
pub(crate) struct SourceBenchOptions {
    /// Which sources; all by default
    #[arg(value_enum)]
    subjects: Vec<SourceBenchmark>,
    /// How often a change and a run without one are measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// How the figures are written
    #[arg(short, long, value_enum, default_value_t = FigureOutputFormat::Table)]
    output: FigureOutputFormat,
    /// Flags for `windlass serve`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// The costs of one fetch.
#[derive(Debug, Clone, Copy)]
struct FetchMeasurement {
    seconds: f64,
    passed: TcpRelayTraffic,
    /// How many requests the server got.
    requests: usize,
}

/// A row of the table about one sort of fetch. The figures are medians.
#[derive(Debug, Serialize)]
struct FetchTableRow {
    what: String,
    rounds: usize,
    seconds: f64,
    /// The bytes that the server sent.
    received: f64,
    /// The bytes that the server received.
    sent: f64,
    connections: f64,
    /// The highest number of requests in one fetch.
    requests: usize,
    /// The highest number of requests that is allowed.
    limit: Option<usize>,
}

/// All results of one source.
#[derive(Debug, Serialize)]
struct SourceMeasurement {
    title: String,
    rows: Vec<FetchTableRow>,
    /// The highest resident memory of the process since its start, in MiB.
    peak: f64,
    /// The memory before the process had a source.
    idle: f64,
}

impl FetchTableRow {
    fn new(what: &str, limit: Option<usize>, fetches: &[FetchMeasurement]) -> Self {
        let of = |figure: &dyn Fn(&FetchMeasurement) -> f64| {
            median(fetches.iter().map(figure).collect())
        };
        Self {
            what: what.to_owned(),
            rounds: fetches.len(),
            seconds: of(&|it| it.seconds),
            received: of(&|it| it.passed.received as f64),
            sent: of(&|it| it.passed.sent as f64),
            connections: of(&|it| it.passed.connections as f64),
            requests: fetches.iter().map(|it| it.requests).max().unwrap_or_default(),
            limit,
        }
    }

    fn passes(&self) -> bool {
        self.rounds > 0 && self.limit.is_none_or(|limit| self.requests <= limit)
    }
}

impl SourceMeasurement {
    fn passes(&self) -> bool {
        self.peak <= MAX_PEAK_MIB && self.rows.iter().all(FetchTableRow::passes)
    }
}

/// The median. With an even number of figures it is the mean of the middle two, and without any figure it is zero.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let middle = |index: usize| all.get(index).copied().unwrap_or_default();
    (middle(all.len().saturating_sub(1) / 2) + middle(all.len() / 2)) / 2.0
}

/// Measures, and prints the table.
///
/// # Errors
/// When a step did not end, or exceeded a promised limit.
pub(super) fn run(options: &SourceBenchOptions) -> anyhow::Result<()> {
    let load = time_samples::load();
    let all = [SourceBenchmark::Git, SourceBenchmark::Bucket, SourceBenchmark::Charts];
    let chosen = |subject: &SourceBenchmark| {
        options.subjects.is_empty() || options.subjects.contains(subject)
    };
    let mut measured = Vec::new();
    for subject in all.iter().filter(|subject| chosen(subject)) {
        // Each source has its own process, because the kernel never resets the peak.
        let mut scene = SourceBenchSetup::open(&options.flags)?;
        let outcome = match subject {
            SourceBenchmark::Git => git::measure(&scene, options.rounds),
            SourceBenchmark::Bucket => bucket::measure(&scene, options.rounds),
            SourceBenchmark::Charts => charts::measure(&scene, options.rounds),
        };
        measured.push(outcome.map_err(|error| scene.installation.explain(&error))?);
    }
    print(options.output, &measured, &load);
    if measured.iter().any(|it| !it.passes()) {
        bail!("it took more than we promise");
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(output: FigureOutputFormat, all: &[SourceMeasurement], load: &str) {
    if output == FigureOutputFormat::Json {
        println!("{}", json!({"load": load, "sources": all}));
        return;
    }
    let verdict = |passes| if passes { green("PASS") } else { red("FAIL") };
    for SourceMeasurement { title, rows, peak, idle } in all {
        println!("\n{}; figures are medians", bold(title));
        println!(
            "{:<36} {:>6} {:>9} {:>12} {:>10} {:>11} {:>9}",
            "what", "rounds", "s", "received, B", "sent, B", "connections", "requests"
        );
        for row in rows {
            let FetchTableRow {
                what,
                rounds,
                seconds,
                received,
                sent,
                connections,
                requests,
                limit,
            } = row;
            let limit = limit
                .map(|limit| format!("  {} (at most {limit})", verdict(row.passes())))
                .unwrap_or_default();
            println!(
                "{what:<36} {rounds:>6} {seconds:>9.3} {received:>12.0} {sent:>10.0} {connections:>11.0} \
                 {requests:>9}{limit}"
            );
        }
        let verdict = verdict(*peak <= MAX_PEAK_MIB);
        println!(
            "peak memory of the process: {peak:.1} MiB  {verdict} (at most {MAX_PEAK_MIB:.0}); before the first fetch: {idle:.1}"
        );
    }
    time_samples::print_machine(load);
}

/// windlass without objects, on its own control plane.
struct SourceBenchSetup {
    // The installation is dropped before the runtime, because its servers run on that.
    installation: ClusterWithOperator,
    runtime: Runtime,
}

/// The objects to wait for: their kind and number, and when each is done.
struct AwaitedObjects<'a> {
    kind: &'a str,
    count: usize,
    is_done: &'a dyn Fn(&WatchedObject) -> bool,
}

impl SourceBenchSetup {
    fn open(flags: &[String]) -> anyhow::Result<Self> {
        let runtime = Runtime::new().context("cannot start the runtime")?;
        let serving = OperatorsToStart::Windlass(BuildProfile::Release, flags);
        let installation = ClusterWithOperator::start_with(&runtime, serving)?;
        Ok(Self { installation, runtime })
    }

    /// The highest resident memory of windlass since its start, in MiB.
    fn peak(&self) -> anyhow::Result<f64> {
        process_usage::peak_mebibytes(&self.installation.operators())
    }

    /// Applies these objects in the namespace of the benchmark, with server-side apply.
    async fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        for object in objects {
            let word =
                |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let selection =
                WatchSelection::of(word("/apiVersion"), word("/kind")).within(NAMESPACE);
            let api = selection.api(self.installation.client());
            let params = PatchParams::apply("bench").force();
            api.patch(word("/metadata/name"), &params, &Patch::Apply(object)).await?;
        }
        Ok(())
    }

    /// Requests a reconciliation of an object now. It returns the value that the status has once the request is
    /// handled.
    async fn request(&self, kind: &str, name: &str) -> anyhow::Result<String> {
        let token = format!("{:?}", std::time::SystemTime::now());
        let patch =
            json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}});
        let api = WatchSelection::of(API, kind).within(NAMESPACE).api(self.installation.client());
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(token)
    }

    /// Measures the time from `act` until all awaited objects are done.
    async fn timed(
        &self,
        relay: &TcpRelay,
        awaited: &AwaitedObjects<'_>,
        act: impl AsyncFnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<FetchMeasurement> {
        let AwaitedObjects { kind, count, is_done } = awaited;
        let selection = WatchSelection::of(API, kind).within(NAMESPACE);
        let mut watch = ObjectWatch::begin(self.installation.client(), &[selection]).await?;
        watch.forget();
        relay.forget();
        let begun = Instant::now();
        act().await?;
        let mut done = BTreeSet::new();
        let mut last = begun;
        while done.len() < *count {
            let what = format!("{count} objects of kind {kind} ({} are done)", done.len());
            let seen = watch.next(&what, begun + FETCH_TIMEOUT).await?;
            if is_done(&seen) && done.insert(seen.name.clone()) {
                last = seen.at;
            }
        }
        let seconds = last.duration_since(begun).as_secs_f64();
        Ok(FetchMeasurement { seconds, passed: relay.passed(), requests: 0 })
    }

    /// Measures a run of a source without any change.
    async fn reconcile(
        &self,
        relay: &TcpRelay,
        kind: &str,
        name: &str,
    ) -> anyhow::Result<FetchMeasurement> {
        let token = std::cell::RefCell::new(None);
        let is_done = |seen: &WatchedObject| {
            let handled = seen.value("/status/lastHandledReconcileAt").as_str();
            seen.name == name && handled.is_some() && handled == token.borrow().as_deref()
        };
        let awaited = AwaitedObjects { kind, count: 1, is_done: &is_done };
        let act = async || {
            let asked = self.request(kind, name).await?;
            token.replace(Some(asked));
            Ok(())
        };
        self.timed(relay, &awaited, act).await
    }
}

/// The manifest of a source.
fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    json!({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})
}

/// The revision of a source's artifact. `None` if the source is not ready or has no artifact.
fn revision(seen: &WatchedObject) -> Option<&str> {
    seen.value("/status/artifact/revision").as_str().filter(|_| seen.exists && seen.is_ready())
}

/// The same fetch with the number of requests that the server got.
fn asked(fetch: FetchMeasurement, requests: usize) -> FetchMeasurement {
    FetchMeasurement { requests, ..fetch }
}

/// Measures several rounds, and prints the progress.
fn rounds(
    name: &str,
    rounds: u16,
    mut one: impl FnMut(u16) -> anyhow::Result<FetchMeasurement>,
) -> anyhow::Result<Vec<FetchMeasurement>> {
    step(name, || (1..=rounds).map(&mut one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(seconds: f64, requests: usize) -> FetchMeasurement {
        FetchMeasurement { seconds, passed: TcpRelayTraffic::default(), requests }
    }

    #[test]
    fn a_row_has_the_median_of_times_and_the_most_requests() {
        let row =
            FetchTableRow::new("change", Some(2), &[fetch(3.0, 2), fetch(1.0, 3), fetch(2.0, 2)]);
        assert_eq!((row.seconds, row.requests, row.passes()), (2.0, 3, false));
        assert!(FetchTableRow::new("change", Some(3), &[fetch(1.0, 3)]).passes());
        assert!(!FetchTableRow::new("change", None, &[]).passes(), "nothing was measured");
    }

    #[test]
    fn one_byte_of_memory_too_much_does_not_pass() {
        let of =
            |peak| SourceMeasurement { title: "git".to_owned(), rows: Vec::new(), peak, idle: 0.0 };
        assert!(of(MAX_PEAK_MIB).passes() && !of(MAX_PEAK_MIB + 0.1).passes());
    }
}
