//! Makes the jobs from the programs that were compiled.
//!
//! The jobs are programs with unit tests, stories, and programs that are not tests. Each module of stories is a
//! process of its own. `jobs` runs them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::affected::TestSelection;
use super::build::TestProgram;
use super::jobs::{TestJob, TestJobs};
use crate::developer_tool::{CONFORMANCE, E2E, STRESS, beside};

/// The folder in which stories collect the requests of windlass (`e2e::harness::requests_with_own_rights`).
const REQUESTS: &str = "WINDLASS_REQUESTS";

/// The environment variable with the path of windlass, so that no test compiles it again (`e2e::operator_process`).
const PROGRAM: &str = "WINDLASS_BIN";

/// How many stories of a module run at once. There are more than processors, because stories mostly wait.
const AT_ONCE: &str = "8";

/// At how many writes of each scenario the crash test kills windlass in this run.
const CUTS: &str = "4";
const CUTS_THOROUGH: &str = "16";

/// How long all fuzz targets together run, in minutes.
const FUZZ_MINUTES: &str = "1";
const FUZZ_MINUTES_THOROUGH: &str = "20";

/// The niceness of jobs that only compute, so that stories get the processor first.
const COMPUTING_NICENESS: &str = "10";

/// The jobs on a control plane that begin first, because they take longest.
const LONGEST: [&str; 14] = [
    "stories sources",
    CRASH,
    "stories releases",
    SOAK,
    "stories stories",
    "stories releases_with_own_windlass",
    "stories notifications",
    "stories data_loss_incidents",
    "stories reverse_deletion_beside_flux",
    "stories api_server_faults",
    "stories installation",
    "stories windlass_crds_removed",
    "stories nonsense_in_all_fields",
    "stories leader",
];

/// Names of jobs that are not tests.
const CRASH: &str = "crash, a sample";
const SOAK: &str = "soak, two minutes";

/// Modules of stories that keep two processors busy. Beside another such module, they would miss their time limits.
const HEAVY: [&str; 1] = ["sources"];

/// What the jobs are made from.
pub(super) struct TestJobInputs<'a> {
    pub(super) tests: &'a [TestProgram],
    pub(super) selection: &'a TestSelection,
    pub(super) filter: Option<&'a str>,
    pub(super) is_thorough: bool,
    /// The folder in which stories record their requests.
    pub(super) requests: &'a Path,
}

fn is_stories(program: &TestProgram) -> bool {
    program.package == E2E.0 && program.is_integration
}

/// A command with a lower priority than the stories that run beside it.
fn computing(program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new("nice");
    command.args(["-n", COMPUTING_NICENESS]).arg(program).env(PROGRAM, program_of_windlass()?);
    Ok(command)
}

/// The path of the compiled windlass.
fn program_of_windlass() -> anyhow::Result<std::path::PathBuf> {
    beside("windlass")
}

/// All jobs of a run. They are the stories, other programs that need a control plane, and programs that only compute.
///
/// # Errors
/// A compiled program is missing.
pub(super) fn jobs(scope: &TestJobInputs<'_>, has_cluster: bool) -> anyhow::Result<TestJobs> {
    let mut jobs = TestJobs::default();
    if has_cluster && scope.selection.has_stories() {
        jobs.with_cluster = stories(scope)?;
    }
    if scope.filter.is_none() && scope.selection.has_package(CONFORMANCE.0) {
        jobs.computing.push(recorded()?);
    }
    if scope.filter.is_none() && scope.selection.is_everything() {
        jobs.computing.push(random(scope)?);
        if has_cluster {
            jobs.with_cluster.extend(crashes_and_soak(scope)?);
            jobs.with_cluster.sort_by_key(place);
        }
    }
    jobs.computing.extend(units(scope)?);
    Ok(jobs)
}

/// The tests that need no control plane. Each program is one job.
fn units(scope: &TestJobInputs<'_>) -> anyhow::Result<Vec<TestJob>> {
    let programs = scope.tests.iter().filter(|it| !is_stories(it));
    let job = |program: &TestProgram| {
        let mut command = computing(&program.path)?;
        command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
        command.args(scope.filter);
        let target = if program.target == program.package.replace('-', "_")
            || program.target == program.package
        {
            String::new()
        } else {
            format!(" {}", program.target)
        };
        Ok(TestJob { name: format!("{}{target}", program.package), command, is_heavy: false })
    };
    programs.map(job).collect()
}

/// The jobs of the stories. Each module is one job, which is a process with a control plane of its own.
///
/// # Errors
/// The program does not list its tests, or has none.
pub(super) fn stories(scope: &TestJobInputs<'_>) -> anyhow::Result<Vec<TestJob>> {
    let Some(program) = scope.tests.iter().find(|it| is_stories(it)) else { return Ok(Vec::new()) };
    let output = Command::new(&program.path).args(["--list", "--format=terse"]).output();
    let output = output.context("the stories cannot be listed")?;
    ensure!(output.status.success(), "the stories cannot be listed");
    let modules = modules(&String::from_utf8_lossy(&output.stdout));
    ensure!(!modules.is_empty(), "there are no stories");
    let mut jobs = Vec::new();
    for (module, names) in modules {
        let is_wanted = |name: &&String| {
            scope.filter.is_none_or(|filter| name.contains(filter))
                && scope.selection.has_story(name)
        };
        let names: Vec<&String> = names.iter().filter(is_wanted).collect();
        if names.is_empty() {
            continue;
        }
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
        command.env(PROGRAM, program_of_windlass()?).env(REQUESTS, scope.requests);
        command.args(["--test-threads", AT_ONCE, "--exact"]).args(names);
        let is_heavy = HEAVY.contains(&module.as_str());
        jobs.push(TestJob { name: format!("stories {module}"), command, is_heavy });
    }
    jobs.sort_by_key(place);
    Ok(jobs)
}

/// The place of a job among the jobs that begin first. All others come after them.
fn place(job: &TestJob) -> usize {
    LONGEST.iter().position(|it| *it == job.name).unwrap_or(LONGEST.len())
}

/// Names of tests by their module, from lines such as `releases::drift::it_is_corrected: test`.
fn modules(listed: &str) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let (module, _) = name.split_once("::").unwrap_or((name, ""));
        modules.entry(module.to_owned()).or_default().push(name.to_owned());
    }
    modules
}

/// The job that replays recorded charts and overlays.
fn recorded() -> anyhow::Result<TestJob> {
    let mut command = computing(&CONFORMANCE.path()?)?;
    command.arg("recorded");
    let name = "conformance, charts and overlays".to_owned();
    Ok(TestJob { name, command, is_heavy: false })
}

/// The job of the fuzz tests.
fn random(scope: &TestJobInputs<'_>) -> anyhow::Result<TestJob> {
    let mut command = computing(&STRESS.path()?)?;
    let minutes = if scope.is_thorough { FUZZ_MINUTES_THOROUGH } else { FUZZ_MINUTES };
    command.args(["fuzz", "all", "--minutes", minutes]);
    Ok(TestJob { name: "fuzz, all targets".to_owned(), command, is_heavy: false })
}

/// The jobs that kill windlass and run random operations on a control plane.
fn crashes_and_soak(scope: &TestJobInputs<'_>) -> anyhow::Result<Vec<TestJob>> {
    let job = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(STRESS.path()?);
        command.args(arguments).env(PROGRAM, program_of_windlass()?);
        Ok::<_, anyhow::Error>(TestJob { name: name.to_owned(), command, is_heavy: false })
    };
    let cuts = if scope.is_thorough { CUTS_THOROUGH } else { CUTS };
    Ok(vec![
        job(CRASH, &["crash", "--sample", cuts, "--jobs", "3"])?,
        job(SOAK, &["soak", "--minutes", "2"])?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::affected::MODULES;

    #[test]
    fn the_modules_that_are_named_here_exist() {
        let longest = LONGEST.iter().filter_map(|name| name.strip_prefix("stories "));
        for module in longest.chain(HEAVY) {
            assert!(MODULES.contains(&format!("{module}::").as_str()), "{module}");
        }
    }

    #[test]
    fn stories_are_put_together_by_their_module() {
        let listed = "releases::drift::a: test\nreleases_with_own_windlass::b: test\nreleases::c: test\nx: benchmark\n";
        let modules = modules(listed);
        let names: Vec<&str> = modules.keys().map(String::as_str).collect();
        assert_eq!(names, ["releases", "releases_with_own_windlass"]);
        assert_eq!(modules["releases"], ["releases::drift::a", "releases::c"]);
    }
}
