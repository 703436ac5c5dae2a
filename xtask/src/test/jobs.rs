//! Runs programs side by side. Each writes its output to a file, and only failures are shown, at the end.
//!
//! A few threads take one job after the other, and heavy jobs take the room of two. One more thread runs the jobs
//! that only compute. These get less processor time than stories, because stories mostly wait for servers.
//!
//! `plan` makes the jobs, and `timings` prints their table.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};
use testbed::progress::{bold, dim, green, red, spell};

/// How many lines of a failure are shown.
const MAX_LINES_SHOWN: usize = 400;

/// A program that the run starts. It has tests, or is one test as a whole.
#[derive(Debug)]
pub(super) struct TestJob {
    /// The name of the job, as people read it.
    pub(super) name: String,
    /// The command that starts the program.
    pub(super) command: Command,
    /// Whether the job keeps two processors busy. It then takes the room of two jobs.
    pub(super) is_heavy: bool,
}

/// The jobs of a run.
#[derive(Debug, Default)]
pub(super) struct TestJobs {
    /// The jobs that need a control plane.
    pub(super) with_cluster: Vec<TestJob>,
    /// The jobs that only compute.
    pub(super) computing: Vec<TestJob>,
}

/// The result of a job.
#[derive(Debug, Clone)]
pub(super) struct JobOutcome {
    /// The job's name.
    pub(super) name: String,
    /// How long it ran.
    pub(super) took: Duration,
    /// The processor time of the job's process and of the child processes that it waited for.
    pub(super) processor: Duration,
    /// How many tests passed, failed and were ignored.
    pub(super) tests: TestCounts,
    failure: Option<String>,
}

/// How many tests passed, failed and were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TestCounts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl TestCounts {
    /// The sum of lines such as `test result: ok. 3 passed; 0 failed; 1 ignored; …` in an output.
    fn of(output: &str) -> Self {
        let mut sum = Self::default();
        for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            let count = |what: &str| {
                let words: Vec<&str> =
                    line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
                let at = words.iter().position(|word| *word == what).unwrap_or_default();
                at.checked_sub(1).and_then(|at| words[at].parse().ok()).unwrap_or(0)
            };
            sum.passed += count("passed");
            sum.failed += count("failed");
            sum.skipped += count("ignored");
        }
        sum
    }

    /// The sum of both counts.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// The slots in which jobs run. A heavy job takes two of them.
#[derive(Debug)]
struct JobSlots {
    total: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

impl JobSlots {
    fn new(total: usize) -> Self {
        Self { total, free: Mutex::new(total), freed: Condvar::new() }
    }

    /// Waits until a slot is free, or two for a heavy job. Then it runs the job and frees the slots.
    fn with<T>(&self, is_heavy: bool, run: impl FnOnce() -> T) -> T {
        let wanted = if is_heavy { self.total.min(2) } else { 1 };
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free < wanted);
        *free.unwrap_or_else(PoisonError::into_inner) -= wanted;
        let result = run();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += wanted;
        self.freed.notify_all();
        result
    }
}

/// Runs all jobs in their order and records their results. Of the jobs with a cluster, `at_once` run at the same
/// time. One more thread runs the jobs that only compute, and the other threads help when no job with a cluster is
/// left. Every job runs, also after a failure.
///
/// # Errors
/// Names the jobs that failed, after their logs were printed.
pub(super) fn run(
    jobs: TestJobs,
    at_once: usize,
    outcomes: &mut Vec<JobOutcome>,
) -> anyhow::Result<()> {
    let total = jobs.with_cluster.len() + jobs.computing.len();
    let folder = tempfile::tempdir()?;
    let with_cluster = Mutex::new(jobs.with_cluster.into_iter());
    let computing = Mutex::new(jobs.computing.into_iter());
    let number = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let at_once = at_once.max(1);
    let room = JobSlots::new(at_once);
    let unlimited = JobSlots::new(usize::MAX);
    let work = |slots: &JobSlots, queues: &[&Mutex<std::vec::IntoIter<TestJob>>]| {
        let next = || queues.iter().find_map(|queue| queue.lock().ok()?.next());
        while let Some(job) = next() {
            let log = folder.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
            let outcome = slots.with(job.is_heavy, || one(job, log));
            if let Ok(mut done) = done.lock() {
                done.push(outcome);
                report(done.last(), done.len(), total);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&unlimited, &[&computing]));
        for _ in 0..at_once {
            scope.spawn(|| work(&room, &[&with_cluster, &computing]));
        }
    });
    *outcomes = done.into_inner().unwrap_or_default();
    let sum = outcomes.iter().fold(TestCounts::default(), |sum, it| sum.and(it.tests));
    let failed: Vec<&JobOutcome> = outcomes.iter().filter(|it| it.failure.is_some()).collect();
    for outcome in &failed {
        eprintln!("\n{} {}", red("✘ failed:"), bold(&outcome.name));
        eprintln!("{}", outcome.failure.as_deref().unwrap_or_default());
    }
    eprintln!("\n{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    if outcomes.len() != total {
        bail!("{} of {total} programs were not run", total - outcomes.len());
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|it| it.name.as_str()).collect();
        bail!("{} of {total} programs failed: {}", failed.len(), names.join(", "));
    }
    Ok(())
}

fn report(outcome: Option<&JobOutcome>, done: usize, total: usize) {
    let Some(outcome) = outcome else { return };
    let sign = if outcome.failure.is_none() { green("✔") } else { red("✘ failed") };
    let tests = outcome.tests;
    let counts = match tests.passed + tests.failed {
        0 => String::new(),
        _ if tests.failed == 0 => format!(", {} passed", tests.passed),
        _ => format!(", {} passed, {} failed", tests.passed, tests.failed),
    };
    let took = format!("({}{counts})", spell(outcome.took));
    eprintln!("{sign} {done}/{total} {} {}", outcome.name, dim(&took));
}

fn one(mut job: TestJob, log: PathBuf) -> JobOutcome {
    let begun = Instant::now();
    let ended = start(&mut job.command, &log);
    let output = std::fs::read(&log).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let (processor, failure) = match ended {
        Ok((processor, None)) => (processor, None),
        Ok((processor, Some(status))) => {
            (processor, Some(format!("{}\n{status}", excerpt(&output))))
        }
        Err(error) => (Duration::ZERO, Some(format!("{error:#}"))),
    };
    JobOutcome {
        name: job.name,
        took: begun.elapsed(),
        processor,
        tests: TestCounts::of(&output),
        failure,
    }
}

/// Runs a command to its end. It returns the processor time, and how the command failed if it did.
fn start(command: &mut Command, log: &PathBuf) -> anyhow::Result<(Duration, Option<String>)> {
    let file = File::create(log).with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().context("it cannot be started")?;
    let id = Pid::from_raw(i32::try_from(child.id())?);
    // The kernel keeps the processor time of the process only until the process is waited for.
    waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).context("cannot wait")?;
    let processor = processor_time(id).unwrap_or_default();
    let status = child.wait()?;
    Ok((processor, (!status.success()).then(|| format!("it ended with {status}"))))
}

/// The processor time of a process that has ended, and of the child processes that it waited for. `None` if it cannot be read.
fn processor_time(id: Pid) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The second field is the name of the process, which may have spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(4).filter_map(|it| it.parse::<u64>().ok()).sum();
    let a_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    Some(Duration::from_millis(ticks * 1000 / a_second.max(1)))
}

/// The part of an output that explains a failure. With tests it begins at the first failure, else it is the end of
/// the output.
fn excerpt(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let first = lines.iter().position(|line| *line == "failures:").unwrap_or_default();
    let lines = &lines[first..];
    let from = lines.len().saturating_sub(MAX_LINES_SHOWN);
    let mut text = lines[from..].join("\n");
    if from > 0 {
        text.insert_str(0, &format!("({from} lines before are left out)\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> TestJob {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        TestJob { name: name.to_owned(), command, is_heavy: false }
    }

    #[test]
    fn every_job_runs_and_a_failure_is_named_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let jobs = vec![
            shell("bad", "echo so it was; exit 3"),
            shell(
                "good",
                &format!(
                    "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 x' > {0}; cat {0}",
                    mark.display()
                ),
            ),
        ];
        let jobs = TestJobs { computing: jobs, ..TestJobs::default() };
        let error = run(jobs, 1, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(error, "1 of 2 programs failed: bad");
        assert!(mark.is_file());
        let outcome = one(shell("bad", "echo so it was; exit 3"), folder.path().join("log"));
        assert_eq!(outcome.failure.unwrap(), "so it was\nit ended with exit status: 3");
    }

    #[test]
    fn nothing_runs_beside_a_heavy_job_where_there_is_room_for_two() {
        let slots = JobSlots::new(2);
        let running = AtomicUsize::new(0);
        let most_beside_heavy = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let is_heavy = number % 3 == 0;
                let slots = &slots;
                let running = &running;
                let most = &most_beside_heavy;
                scope.spawn(move || {
                    slots.with(is_heavy, || {
                        let others = running.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(5));
                        let at_end = running.fetch_sub(1, Ordering::SeqCst) - 1;
                        if is_heavy {
                            most.fetch_max(others.max(at_end), Ordering::SeqCst);
                        }
                        assert!(others < 2, "room for two was given to three");
                    });
                });
            }
        });
        assert_eq!(most_beside_heavy.into_inner(), 0);
        assert_eq!(*slots.free.lock().unwrap(), 2);
        assert_eq!(
            JobSlots::new(1).with(true, || 1),
            1,
            "it has to fit where there is room for one"
        );
    }

    #[test]
    fn results_are_counted_and_failures_begin_where_they_are_listed() {
        let output = "test a ... ok\nfailures:\n---- b\nbecause\ntest result: FAILED. 1 passed; 2 failed; 3 ignored; 0 measured\n";
        assert_eq!(TestCounts::of(output), TestCounts { passed: 1, failed: 2, skipped: 3 });
        assert!(excerpt(output).starts_with("failures:\n---- b\nbecause\n"));
    }

    #[test]
    fn the_processor_time_of_a_job_is_measured() {
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let folder = tempfile::tempdir().unwrap();
        let outcome = one(shell("work", work), folder.path().join("log"));
        assert!(outcome.failure.is_none() && outcome.processor > Duration::ZERO);
    }
}
