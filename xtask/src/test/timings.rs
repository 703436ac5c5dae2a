//! Measures the steps, programs and crates of a run, and prints a table of their times.
//!
//! Compiling includes linking, because cargo does not report them apart. Time in which a program had no processor is
//! shown as waiting, for other programs or for servers.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::Deserialize;
use testbed::progress::{bold, dim, spell, step};

use super::build;
use super::jobs::JobOutcome;

/// How many of the crates that took longest to compile are listed.
const MAX_CRATES_LISTED: usize = 40;

/// Programs that ran for less time are not listed one by one, but as one sum.
const MIN_DURATION_LISTED: Duration = Duration::from_secs(5);

/// What was measured so far.
#[derive(Debug, Default)]
pub(super) struct TestTimings {
    steps: Vec<TimedStep>,
}

#[derive(Debug)]
struct TimedStep {
    name: String,
    took: Duration,
    units: Vec<CompiledUnit>,
    jobs: Vec<JobOutcome>,
}

/// One compilation step that cargo reports.
#[derive(Debug, Clone, Deserialize)]
struct CompiledUnit {
    name: String,
    version: String,
    target: String,
    duration: f64,
}

impl TestTimings {
    /// Runs a step.
    ///
    /// # Errors
    /// The error of the step.
    pub(super) fn step<T>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        let outcome = step(name, work);
        let took = begun.elapsed();
        self.steps.push(TimedStep {
            name: name.to_owned(),
            took,
            units: Vec::new(),
            jobs: Vec::new(),
        });
        outcome
    }

    /// Runs a step in which cargo compiles with `--timings`.
    ///
    /// # Errors
    /// The error of the step.
    pub(super) fn compile<T>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let outcome = self.step(name, work);
        let page = build::report().ok().and_then(|path| std::fs::read_to_string(path).ok());
        if let (Some(last), Some(page)) = (self.steps.last_mut(), page) {
            last.units = units(&page);
        }
        outcome
    }

    /// Runs a step that consists of jobs.
    ///
    /// # Errors
    /// The error of the step.
    pub(super) fn jobs(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Vec<JobOutcome>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut jobs = Vec::new();
        let outcome = self.step(name, || work(&mut jobs));
        if let Some(last) = self.steps.last_mut() {
            last.jobs = jobs;
        }
        outcome
    }

    /// The table of times. With `has_units` it also lists the crates that took longest to compile.
    pub(super) fn table(&self, has_units: bool) -> String {
        let mut text = bold("where the time went\n");
        line(&mut text, ["", "time", "processor", "waited", "tests"]);
        for step in &self.steps {
            let processor: Duration = step.jobs.iter().map(|job| job.processor).sum();
            let processor = if step.jobs.is_empty() { String::new() } else { spell(processor) };
            line(&mut text, [&step.name, &spell(step.took), &processor, "", ""]);
            self::jobs(&mut text, &step.jobs);
            if has_units {
                self::slowest(&mut text, &step.units);
            }
        }
        text
    }
}

fn line(text: &mut String, [name, took, processor, waited, tests]: [&str; 5]) {
    let row = format!("{name:<48} {took:>13} {processor:>13} {waited:>13} {tests:>6}");
    let _ = writeln!(text, "{}", row.trim_end());
}

fn jobs(text: &mut String, jobs: &[JobOutcome]) {
    let mut jobs: Vec<&JobOutcome> = jobs.iter().collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.took));
    let (long, short): (Vec<&JobOutcome>, Vec<&JobOutcome>) =
        jobs.into_iter().partition(|job| job.took >= MIN_DURATION_LISTED);
    let mut row = |name: &str, of: &[&JobOutcome]| {
        let took: Duration = of.iter().map(|job| job.took).sum();
        let processor: Duration = of.iter().map(|job| job.processor).sum();
        let tests: usize = of.iter().map(|job| job.tests.passed).sum();
        let tests = if tests == 0 { String::new() } else { tests.to_string() };
        let waited = spell(took.saturating_sub(processor));
        line(text, [&format!("  {name}"), &spell(took), &spell(processor), &waited, &tests]);
    };
    for job in long {
        row(&job.name, &[job]);
    }
    if !short.is_empty() {
        row(&format!("{} others, together", short.len()), &short);
    }
}

fn slowest(text: &mut String, units: &[CompiledUnit]) {
    let mut units: Vec<&CompiledUnit> = units.iter().collect();
    units.sort_by(|a, b| b.duration.total_cmp(&a.duration));
    for unit in units.into_iter().take(MAX_CRATES_LISTED) {
        let name = format!("  {} {}{}", unit.name, unit.version, unit.target);
        let took = spell(Duration::from_secs_f64(unit.duration.max(0.0)));
        let _ = writeln!(text, "{}", dim(&format!("{name:<48} {took:>13}")));
    }
}

/// Reads the compilation steps from cargo's page of timings.
fn units(page: &str) -> Vec<CompiledUnit> {
    let list = page.split_once("UNIT_DATA = ").map_or("", |(_, rest)| rest);
    let mut values = serde_json::Deserializer::from_str(list).into_iter::<Vec<CompiledUnit>>();
    values.next().and_then(Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_from_the_page_of_cargo() {
        let page = "<script>\nconst UNIT_DATA = [\n  {\"i\":0,\"name\":\"helm\",\"version\":\"0.1.0\",\"target\":\" (test)\",\"duration\":1.5,\"sections\":null}\n];\nconst X = 1;";
        let units = units(page);
        assert_eq!((units[0].name.as_str(), units[0].duration), ("helm", 1.5));
        assert!(self::units("nothing").is_empty());
    }

    #[test]
    fn each_step_has_a_row_and_a_failure_too() {
        let mut timings = TestTimings::default();
        timings.step("good", || Ok(())).unwrap();
        timings.step("bad", || anyhow::bail!("no")).map(|(): ()| ()).unwrap_err();
        let table = timings.table(false);
        assert!(table.contains("\ngood ") && table.contains("\nbad "), "{table}");
    }
}
