//! The costs of the steps in a large cluster, compared with the promised limits.
//!
//! This module has the figures, the tables and the JSON. `super::session` measures, and `crate::audit_log` counts
//! requests.

use serde_json::{Value, json};

use super::tenant_workload::TenantWorkload;
use crate::audit_log::{RequestCounts, RequestPurpose};
use crate::raw_client_comparison::FigureOutputFormat;
use crate::time_samples;
use testbed::progress::{bold, green, red};

/// The costs of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepCost {
    pub(crate) what: String,
    /// The seconds until the awaited result was reached.
    pub(crate) done: f64,
    /// The seconds until windlass was idle. It is none if the step does not wait for that.
    pub(crate) quiet: Option<f64>,
    /// CPU seconds of windlass.
    pub(crate) cpu: f64,
    /// CPU seconds of the API server.
    pub(crate) server_cpu: f64,
    /// The memory without files, in MiB: before the step, at its peak and at its end.
    pub(crate) before: f64,
    pub(crate) peak: f64,
    pub(crate) after: f64,
    /// The memory at the end that stores count on the metrics page, in MiB.
    pub(crate) stores: f64,
    /// How often windlass woke an object.
    pub(crate) wakes: f64,
    pub(crate) requests: RequestCounts,
    /// How many requests read the object whose reads are counted.
    pub(crate) reads: u64,
    /// A further result as text.
    pub(crate) note: String,
}

impl StepCost {
    /// The number of requests except those that keep watches and the Lease alive.
    pub(crate) fn work(&self) -> u64 {
        self.requests.total(RequestPurpose::Work)
    }

    /// The peak of memory as a multiple of the memory before the step.
    pub(crate) fn growth(&self) -> f64 {
        self.peak / self.before
    }

    /// What the stores on the metrics page hold at the end of the step.
    fn stores_line(&self) -> String {
        let share = if self.after > 0.0 { self.stores / self.after * 100.0 } else { 0.0 };
        format!("stores that count their bytes: {:.1} MiB, {share:.0} % of RssAnon", self.stores)
    }

    fn work_a_second(&self) -> f64 {
        let seconds = self.quiet.unwrap_or(self.done);
        if seconds > 0.0 { self.work() as f64 / seconds } else { 0.0 }
    }

    fn line(&self) -> String {
        let quiet = self.quiet.map_or("–".to_owned(), |it| format!("{it:.1}"));
        format!(
            "{:<34} {:>8.1} {quiet:>8} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9} {:>8.1} {:>8.0}  {}",
            self.what,
            self.done,
            self.cpu,
            self.server_cpu,
            self.before,
            self.peak,
            self.after,
            self.work(),
            self.work_a_second(),
            self.wakes,
            self.note
        )
    }

    fn to_json(&self) -> Value {
        let request = |(purpose, verb, resource, tally)| json!({"purpose": purpose, "verb": verb, "resource": resource, "tally": tally});
        let requests: Vec<Value> = self.requests.iter().map(request).collect();
        json!({
            "what": self.what, "seconds": self.done, "quietSeconds": self.quiet,
            "cpuSeconds": self.cpu, "apiServerCpuSeconds": self.server_cpu,
            "rssAnonBeforeMiB": self.before, "rssAnonPeakMiB": self.peak,
            "rssAnonAfterMiB": self.after, "storesMiB": self.stores, "wakes": self.wakes,
            "workRequests": self.work(), "workRequestsASecond": self.work_a_second(),
            "countedReads": self.reads, "note": self.note, "requests": requests,
        })
    }
}

/// A promised limit, and the measured figure.
#[derive(Debug, Clone)]
pub(crate) struct ScalePromise {
    what: &'static str,
    figure: f64,
    limit: f64,
}

impl ScalePromise {
    /// Promises that `figure` is at most `limit`.
    pub(crate) fn new(what: &'static str, figure: f64, limit: f64) -> Self {
        Self { what, figure, limit }
    }

    /// Whether the limit was kept. A figure that is not a number keeps no limit.
    pub(crate) fn is_kept(&self) -> bool {
        self.figure <= self.limit
    }

    fn line(&self) -> String {
        let verdict = if self.is_kept() { green("PASS") } else { red("FAIL") };
        let Self { what, figure, limit } = self;
        format!("{what:<58} {figure:>9.2}  {verdict} (at most {limit:.2})")
    }

    fn to_json(&self) -> Value {
        json!({"what": self.what, "figure": self.figure, "limit": self.limit, "kept": self.is_kept()})
    }
}

/// The measured costs of all steps, and the promises that they have to keep.
#[derive(Debug)]
pub(crate) struct ScaleReport {
    pub(crate) workload: TenantWorkload,
    /// The load of the machine before the measurement.
    pub(crate) load: String,
    pub(crate) steps: Vec<StepCost>,
    pub(crate) promises: Vec<ScalePromise>,
}

impl ScaleReport {
    /// Whether all promised limits were kept.
    pub(crate) fn passes(&self) -> bool {
        self.promises.iter().all(ScalePromise::is_kept)
    }

    /// Prints the report of the scale benchmark, as a table or as JSON.
    #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
    pub(crate) fn print(&self, output: FigureOutputFormat) {
        if output == FigureOutputFormat::Json {
            println!("{}", self.to_json());
            return;
        }
        let TenantWorkload { kustomizations, helm_releases, objects, .. } = self.workload;
        let title = format!(
            "{kustomizations} Kustomizations and {helm_releases} HelmReleases of {objects} objects"
        );
        println!("\n{}; memory is RssAnon in MiB", bold(&title));
        println!(
            "{:<34} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8}",
            "step",
            "s",
            "quiet s",
            "CPU s",
            "API CPU",
            "before",
            "peak",
            "after",
            "requests",
            "a second",
            "wakes"
        );
        self.steps.iter().for_each(|step| println!("{}", step.line()));
        for step in &self.steps {
            println!("\n{}", bold(&format!("requests: {}", step.what)));
            println!("{}", step.stores_line());
            for (purpose, verb, resource, tally) in step.requests.iter() {
                let purpose = format!("{purpose:?}");
                let mean = tally.seconds * 1000.0 / tally.count as f64;
                println!(
                    "{purpose:<9} {verb:<18} {resource:<36} {:>8}, refused {:>6}, mean ms {mean:>8.1}",
                    tally.count, tally.refused
                );
            }
        }
        println!();
        self.promises.iter().for_each(|promise| println!("{}", promise.line()));
        time_samples::print_machine(&self.load);
    }

    fn to_json(&self) -> Value {
        let steps: Vec<Value> = self.steps.iter().map(StepCost::to_json).collect();
        let promises: Vec<Value> = self.promises.iter().map(ScalePromise::to_json).collect();
        json!({"load": self.load, "workload": self.workload, "steps": steps, "promises": promises})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> StepCost {
        let memory = StepCost { before: 100.0, peak: 150.0, after: 110.0, ..StepCost::default() };
        StepCost { what: "push".to_owned(), done: 12.3, wakes: 12.0, ..memory }
    }

    fn report(promises: Vec<ScalePromise>) -> ScaleReport {
        let workload = TenantWorkload {
            kustomizations: 2,
            helm_releases: 1,
            objects: 6,
            namespaces: 1,
            shares_variables: false,
        };
        ScaleReport { workload, load: "0.1".to_owned(), steps: vec![step()], promises }
    }

    #[test]
    fn a_line_has_each_figure_below_its_heading() {
        let line = step().line();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["push", "12.3", "–", "0.0", "0.0", "100.0", "150.0", "110.0", "0", "0.0", "12"]
        );
        assert_eq!(step().growth(), 1.5);
    }

    #[test]
    fn a_promise_is_kept_at_its_limit_and_not_by_what_was_not_measured() {
        assert!(ScalePromise::new("memory", 300.0, 300.0).is_kept());
        assert!(!ScalePromise::new("memory", 300.1, 300.0).is_kept());
        assert!(!ScalePromise::new("memory", f64::NAN, 300.0).is_kept());
        assert!(!report(vec![ScalePromise::new("memory", 2.0, 1.0)]).passes());
        assert!(report(vec![ScalePromise::new("memory", 1.0, 1.0)]).passes());
    }

    #[test]
    fn the_document_has_the_workload_the_steps_and_the_promises() {
        let document = report(vec![ScalePromise::new("memory", 2.0, 1.0)]).to_json();
        assert_eq!(document["workload"]["objects"], 6);
        assert_eq!(document["steps"][0]["rssAnonPeakMiB"], 150.0);
        assert_eq!(document["steps"][0]["quietSeconds"], Value::Null);
        assert_eq!(document["promises"][0]["kept"], false);
    }
}
