//! Compares the figures of the operator with those of the raw client, and with the promised limits.
//!
//! This module has the medians, ratios, tables and the verdict. `super::test_bed` measures, and `super::audit_log` counts
//! requests.

use clap::ValueEnum;
use serde::Serialize;

use super::audit_log::{RequestCounts, RequestPurpose};
use super::test_bed::MeasuredProcess;
use testbed::progress::{bold, green, red};

/// How the figures are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FigureOutputFormat {
    /// Tables for people
    #[default]
    Table,
    /// One JSON document for programs
    Json,
}

/// The costs of one piece of work for the raw client or the operator.
#[derive(Debug, Clone, Default)]
pub(super) struct PhaseCost {
    /// The seconds until all of the work was done.
    pub(super) total: f64,
    /// The seconds until half of the work was done. It is none if the work has only one part.
    pub(super) half: Option<f64>,
    /// The CPU seconds of the program until the cluster was quiet again.
    pub(super) cpu: f64,
    /// The CPU seconds of the API server in the same time.
    pub(super) server_cpu: Option<f64>,
    /// The highest resident memory of the program since its start, in MiB.
    pub(super) peak: f64,
    /// The requests of the program to the API server.
    pub(super) requests: Option<RequestCounts>,
}

/// The limits of the operator.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BenchLimits {
    /// The seconds until all of the work is done.
    pub(super) total: Option<f64>,
    /// The total time as a multiple of the raw client's time.
    pub(super) ratio: Option<f64>,
    /// CPU seconds.
    pub(super) cpu: Option<f64>,
    /// The peak of memory in MiB.
    pub(super) peak: Option<f64>,
    /// The CPU seconds as a multiple of the other operator's.
    pub(super) cpu_ratio: Option<f64>,
    /// The memory as a multiple of the other operator's.
    pub(super) peak_ratio: Option<f64>,
    /// How many requests an object may cost in addition to those of the other operator.
    pub(super) additional_requests: Option<f64>,
}

/// The costs of both programs for the same work, over several rounds.
#[derive(Debug)]
pub(super) struct BenchComparison {
    title: String,
    /// How many objects the work has.
    objects: usize,
    limits: BenchLimits,
    columns: [&'static str; 2],
    raw: Vec<PhaseCost>,
    operator: Vec<PhaseCost>,
}

/// The titles of the columns, unless others are given.
const COLUMNS: [&str; 2] = ["raw client", "operator"];

/// A row of the table. Both figures have the same unit.
#[derive(Debug, Default, Serialize)]
struct FigureRow {
    what: &'static str,
    raw: Option<f64>,
    operator: Option<f64>,
    ratio: Option<f64>,
    limit: Option<f64>,
    passes: Option<bool>,
}

/// A row about one kind of request.
#[derive(Debug, Serialize)]
struct RequestRow {
    who: &'static str,
    verb: String,
    resource: String,
    count: u64,
    an_object: f64,
    refused: u64,
    mean_ms: f64,
}

impl BenchComparison {
    /// A comparison without any round yet.
    pub(super) fn new(title: String, objects: usize, limits: BenchLimits) -> Self {
        Self { title, objects, limits, columns: COLUMNS, raw: Vec::new(), operator: Vec::new() }
    }

    /// Compares the operator of this comparison with the operator of another one, which did the same work. Here it
    /// takes the place of the raw client.
    pub(super) fn against(
        self,
        other: Self,
        columns: [&'static str; 2],
        limits: BenchLimits,
    ) -> Self {
        Self { columns, limits, raw: self.operator, operator: other.operator, ..other }
    }

    /// Adds the costs of a round.
    pub(super) fn add(&mut self, who: MeasuredProcess, phase: PhaseCost) {
        match who {
            MeasuredProcess::Raw => self.raw.push(phase),
            MeasuredProcess::Operator => self.operator.push(phase),
        }
    }

    /// Whether both programs were measured and all limits were kept.
    pub(super) fn passes(&self) -> bool {
        !self.raw.is_empty()
            && !self.operator.is_empty()
            && self.rows().iter().all(|row| row.passes != Some(false))
    }

    fn rows(&self) -> Vec<FigureRow> {
        let both = |what, of: &dyn Fn(&PhaseCost) -> Option<f64>| FigureRow {
            what,
            raw: median(&self.raw, of),
            operator: median(&self.operator, of),
            ..FigureRow::default()
        };
        let an_object = |phase: &PhaseCost| {
            let requests = phase.requests.as_ref()?;
            Some(requests.total(RequestPurpose::Work) as f64 / self.objects as f64)
        };
        let mut total = both("total time, s", &|phase| Some(phase.total)).compared();
        match self.limits.total {
            Some(limit) => total.judge(total.operator, Some(limit)),
            None => total.judge(total.ratio, self.limits.ratio),
        }
        let mut cpu = both("its own CPU, s", &|phase| Some(phase.cpu));
        cpu.judge(cpu.operator, self.limits.cpu);
        // The peak is the highest of all rounds, because the process keeps running between them.
        let highest = |phases: &[PhaseCost]| phases.iter().map(|it| it.peak).reduce(f64::max);
        let mut peak = both("peak memory, MiB", &|phase| Some(phase.peak));
        peak.raw = None;
        peak.operator = highest(&self.operator);
        peak.judge(peak.operator, self.limits.peak);
        if self.columns != COLUMNS {
            peak.raw = highest(&self.raw);
            (cpu, peak) = (cpu.compared(), peak.compared());
            if self.limits.cpu_ratio.is_some() {
                cpu.judge(cpu.ratio, self.limits.cpu_ratio);
            }
            if self.limits.peak_ratio.is_some() {
                peak.judge(peak.ratio, self.limits.peak_ratio);
            }
        }
        let requests = both("requests an object, without watches", &an_object).compared();
        let additional = self.limits.additional_requests.map(|limit| {
            let difference = requests.operator.zip(requests.raw).map(|(more, less)| more - less);
            let what = "additional requests an object";
            let mut row = FigureRow { what, operator: difference, ..FigureRow::default() };
            row.judge(difference, Some(limit));
            row
        });
        let mut rows = vec![
            total,
            both("half of it done after, s", &|phase| phase.half).compared(),
            cpu,
            both("CPU of the API server, s", &|phase| phase.server_cpu).compared(),
            peak,
            requests,
        ];
        rows.extend(additional);
        rows
    }

    fn asked(&self) -> Vec<RequestRow> {
        let mut lines = Vec::new();
        let [first, second] = self.columns;
        for (who, phases) in [(first, &self.raw), (second, &self.operator)] {
            let mut all = RequestCounts::default();
            phases.iter().filter_map(|it| it.requests.as_ref()).for_each(|it| all.extend(it));
            let of = (self.objects * phases.len()) as f64;
            lines.extend(all.iter().map(|(_, verb, resource, tally)| RequestRow {
                who,
                verb: verb.to_owned(),
                resource: resource.to_owned(),
                count: tally.count,
                an_object: tally.count as f64 / of,
                refused: tally.refused,
                mean_ms: tally.seconds * 1000.0 / tally.count as f64,
            }));
        }
        lines
    }

    fn totals(&self) -> [Vec<f64>; 2] {
        [&self.raw, &self.operator].map(|phases| phases.iter().map(|it| it.total).collect())
    }

    /// The comparison with the raw client, as JSON.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let [raw, operator] = self.totals();
        serde_json::json!({
            "title": self.title, "objects": self.objects, "columns": self.columns,
            "totals": {"raw": raw, "operator": operator},
            "figures": self.rows(), "requests": self.asked(),
        })
    }

    #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
    fn print(&self) {
        let rounds = self.operator.len();
        println!("\n{}; rounds: {rounds}, figures are medians", bold(&self.title));
        let [first, second] = self.columns;
        println!("{:<40} {first:>10} {second:>10} {:>8}", "", "ratio");
        for row in self.rows() {
            println!("{}", row.line());
        }
        let [raw, operator] =
            self.totals().map(|all| all.iter().map(|it| format!(" {it:.2}")).collect::<String>());
        println!("total of each round, s: {first}{raw}; {second}{operator}");
        println!(
            "\n{:<10} {:<18} {:<36} {:>6} {:>9} {:>8} {:>8}",
            "who", "verb", "resource", "count", "an object", "refused", "mean ms"
        );
        for it in self.asked() {
            let RequestRow { who, verb, resource, count, an_object, refused, mean_ms } = it;
            println!(
                "{who:<10} {verb:<18} {resource:<36} {count:>6} {an_object:>9.3} {refused:>8} {mean_ms:>8.1}"
            );
        }
    }
}

impl FigureRow {
    /// The same row with the ratio of its two figures.
    fn compared(self) -> Self {
        let ratio = self.operator.zip(self.raw).map(|(operator, raw)| operator / raw);
        Self { ratio: ratio.filter(|ratio| ratio.is_finite()), ..self }
    }

    fn judge(&mut self, figure: Option<f64>, limit: Option<f64>) {
        self.limit = limit;
        self.passes = limit.map(|limit| figure.is_some_and(|figure| figure <= limit));
    }

    fn line(&self) -> String {
        let figure = |it: Option<f64>| it.map_or("–".to_owned(), |it| format!("{it:.2}"));
        let verdict = match (self.passes, self.limit) {
            (Some(true), Some(limit)) => format!("  {} (at most {limit:.2})", green("PASS")),
            (Some(false), Some(limit)) => format!("  {} (at most {limit:.2})", red("FAIL")),
            _ => String::new(),
        };
        let [raw, operator, ratio] = [self.raw, self.operator, self.ratio].map(figure);
        format!("{:<40} {raw:>10} {operator:>10} {ratio:>8}{verdict}", self.what)
    }
}

/// The median of one figure of several phases. With an even number of figures it is the mean of the middle two. `None` without
/// any figure.
fn median(phases: &[PhaseCost], of: &dyn Fn(&PhaseCost) -> Option<f64>) -> Option<f64> {
    let mut all: Vec<f64> = phases.iter().filter_map(of).collect();
    all.sort_by(f64::total_cmp);
    let low = all.get(all.len().checked_sub(1)? / 2)?;
    let high = all.get(all.len() / 2)?;
    Some((low + high) / 2.0)
}

/// Prints all comparisons, and the load of the machine with which readers have to judge them.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(super) fn print(output: FigureOutputFormat, all: &[BenchComparison], load: &str) {
    if output == FigureOutputFormat::Json {
        let figures: Vec<serde_json::Value> = all.iter().map(BenchComparison::to_json).collect();
        println!("{}", serde_json::json!({"load": load, "comparisons": figures}));
        return;
    }
    all.iter().for_each(BenchComparison::print);
    super::time_samples::print_machine(load);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(total: f64, cpu: f64, peak: f64) -> PhaseCost {
        PhaseCost { total, cpu, peak, ..PhaseCost::default() }
    }

    fn comparison(limits: BenchLimits, raw: &[f64], operator: &[PhaseCost]) -> BenchComparison {
        let mut all = BenchComparison::new("work".into(), 10, limits);
        raw.iter().for_each(|total| all.add(MeasuredProcess::Raw, phase(*total, 0.0, 1.0)));
        operator.iter().for_each(|phase| all.add(MeasuredProcess::Operator, phase.clone()));
        all
    }

    #[test]
    fn a_median_is_the_middle_one_or_between_two() {
        let of = |totals: &[f64]| {
            let phases: Vec<PhaseCost> =
                totals.iter().map(|total| phase(*total, 0.0, 0.0)).collect();
            median(&phases, &|phase| Some(phase.total))
        };
        assert_eq!((of(&[3.0, 1.0, 2.0]), of(&[4.0, 1.0]), of(&[])), (Some(2.0), Some(2.5), None));
    }

    #[test]
    fn the_ratio_of_medians_is_judged() {
        let limits = BenchLimits { ratio: Some(1.5), ..BenchLimits::default() };
        let judge = |operator: f64| {
            comparison(limits, &[2.0, 9.0, 1.0], &[phase(operator, 0.0, 0.0)]).passes()
        };
        assert!(judge(3.0), "the limit itself is kept");
        assert!(!judge(3.01));
        assert!(
            !comparison(limits, &[], &[phase(1.0, 0.0, 0.0)]).passes(),
            "nothing to compare with"
        );
    }

    #[test]
    fn one_round_above_the_peak_is_too_much_and_one_busy_round_is_not() {
        let limits = BenchLimits { cpu: Some(1.2), peak: Some(60.0), ..BenchLimits::default() };
        let rounds =
            |peak, cpu| [phase(1.0, 1.0, 50.0), phase(1.0, 1.1, 50.0), phase(1.0, cpu, peak)];
        assert!(comparison(limits, &[1.0], &rounds(59.0, 9.0)).passes());
        assert!(!comparison(limits, &[1.0], &rounds(61.0, 1.0)).passes());
    }

    #[test]
    fn additional_requests_are_the_difference_and_not_the_ratio() {
        let of = |count: usize| {
            let log: Vec<(RequestPurpose, &str)> = vec![(RequestPurpose::Work, "patch"); count];
            let requests = Some(RequestCounts::of(&log));
            vec![PhaseCost { requests, ..phase(1.0, 1.0, 1.0) }]
        };
        let limits = BenchLimits { additional_requests: Some(2.0), ..BenchLimits::default() };
        let judge = |count: usize| {
            let mut all = comparison(limits, &[], &of(count));
            all.raw = of(30);
            all.passes()
        };
        assert!(judge(50), "two more for each of ten objects");
        assert!(!judge(51));
        let mut silent = comparison(limits, &[1.0], &of(30));
        assert!(!silent.passes(), "the requests of one side were not counted");
        silent.limits = BenchLimits::default();
        assert!(silent.passes());
    }

    #[test]
    fn without_limits_everything_passes_and_json_has_the_figures() {
        let all = comparison(BenchLimits::default(), &[1.0], &[phase(100.0, 100.0, 1000.0)]);
        assert!(all.passes());
        assert_eq!(all.to_json()["figures"][0]["ratio"], 100.0);
        assert_eq!(all.to_json()["totals"]["operator"][0], 100.0);
    }
}
