//! `cargo xtask test` runs the checks that CI runs. It compiles everything once with the lints of clippy, and then
//! runs the tests side by side.
//!
//! This module has the options and the order of steps. Other modules compile (`build`), run programs side by side
//! (`jobs`), list the programs (`plan`), find what a change can break (`affected`) and report times (`timings`).

mod affected;
mod build;
mod job_list;
mod jobs;
mod timings;

use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use testbed::binaries::TestbedBinaries;
use testbed::machine_requirements;
use testbed::progress;

use crate::rbac_rights;
use build::TestBuild;
use jobs::{TestCounts, TestJobs};
use timings::TestTimings;

/// What to leave out, and what to run beyond what CI runs.
#[derive(Debug, Args)]
pub(crate) struct TestOptions {
    /// Also stories that take more than two minutes or build a further Go program (the stock `flux`, Helm 3, helmfile,
    /// Flux's controllers, Gitea, sops, cosign, Notation), four times as many crash points, and twenty minutes of fuzzing
    #[arg(long, conflicts_with = "no_cluster")]
    thorough: bool,
    /// Leave out what needs a control plane: stories, crash and soak
    #[arg(long)]
    no_cluster: bool,
    /// Only what the changes since a commit can break: tests of the crates that depend on them, and their stories;
    /// without fuzzing, crash and soak
    #[arg(long, value_name = "REV", num_args = 0..=1, default_missing_value = "HEAD")]
    changed: Option<String>,
    /// Also the crates that took longest to compile
    #[arg(long)]
    timings: bool,
    /// How many programs of stories run at once, beside one that computes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=32))]
    jobs: u8,
    /// Run the stories that often, one time after the other
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "no_cluster")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    repeat: u8,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// Runs all steps. After a step that fails no further one begins, but all programs of that step run to their end.
///
/// # Errors
/// The step that failed.
pub(crate) fn run(options: &TestOptions) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut timings = TestTimings::default();
    let outcome = steps(options, &mut timings);
    eprintln!("\n{}", timings.table(options.timings));
    outcome?;
    eprintln!("{} in {}", progress::green("everything passed"), progress::spell(begun.elapsed()));
    Ok(())
}

fn steps(options: &TestOptions, timings: &mut TestTimings) -> anyhow::Result<()> {
    let selection = match &options.changed {
        Some(revision) => affected::selection(revision)?,
        None => affected::TestSelection::everything(),
    };
    timings.step("what the machine needs", machine_requirements::ensure)?;
    timings.step("format", || build::cargo(&["fmt", "--all", "--check"], "run `cargo fmt`"))?;
    let has_stories = !options.no_cluster && selection.has_stories();
    if has_stories {
        timings.step("what the stories need", machine_requirements::ensure_for_stories)?;
    }
    let compile = |timings: &mut TestTimings| {
        let build = TestBuild {
            has_stories,
            is_thorough: options.thorough,
            packages: selection.packages(),
        };
        let tests = timings.compile("compile, with lints", || build.run())?;
        timings.step("examples in documentation", || build.documentation())?;
        Ok::<_, anyhow::Error>(tests)
    };
    let tests = if has_stories {
        // The Rust compiler and the Go compiler share no lock, so they run side by side.
        std::thread::scope(|scope| {
            let programs = scope.spawn(|| TestbedBinaries::ensure().map(drop));
            let tests = compile(timings);
            let waits =
                || programs.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a build panicked")));
            timings.step("control plane, compiled from Go meanwhile", waits)?;
            tests
        })?
    } else {
        compile(timings)?
    };
    let recorded = tempfile::tempdir()?;
    let scope = job_list::TestJobInputs {
        tests: &tests,
        selection: &selection,
        filter: options.filter.as_deref(),
        is_thorough: options.thorough,
        requests: recorded.path(),
    };
    let jobs = job_list::jobs(&scope, !options.no_cluster)?;
    let at_once = usize::from(options.jobs);
    timings.jobs("tests, side by side", |done| {
        jobs::run(jobs, at_once, done)?;
        let tests = done.iter().fold(TestCounts::default(), |sum, it| sum.and(it.tests));
        ensure_matched(options.filter.as_deref(), tests)
    })?;
    let times = if has_stories { usize::from(options.repeat) } else { 1 };
    for time in 1..times {
        let name = format!("stories, time {} of {times}", time + 1);
        let stories = TestJobs { with_cluster: job_list::stories(&scope)?, ..TestJobs::default() };
        timings.jobs(&name, |done| jobs::run(stories, at_once, done))?;
    }
    if has_stories && options.filter.is_none() && selection.is_everything() {
        let check = || rbac_rights::check(recorded.path(), options.thorough);
        timings.step("rights that the stories used", check)?;
    }
    Ok(())
}

/// Fails if a filter was given and no test has it in its name.
fn ensure_matched(filter: Option<&str>, tests: TestCounts) -> anyhow::Result<()> {
    let Some(filter) = filter else { return Ok(()) };
    ensure!(tests != TestCounts::default(), "no test has `{filter}` in its name");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_no_test_has_in_its_name_is_an_error() {
        let error = ensure_matched(Some("drfit"), TestCounts::default()).unwrap_err();
        assert_eq!(error.to_string(), "no test has `drfit` in its name");
        let ignored = TestCounts { skipped: 1, ..TestCounts::default() };
        assert!(ensure_matched(Some("drift"), ignored).is_ok());
        assert!(ensure_matched(None, TestCounts::default()).is_ok());
    }
}
