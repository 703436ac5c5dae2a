//! What one command costs, its peak of memory among it.
//!
//! The kernel tells a process only the largest memory of all the children that it ever had, so each measured command has
//! a parent of its own: this program, called by a name that people are not shown.
//!
//! Here: both sides of that. Elsewhere: who measures what (`tools/bench`, `tools/stress`).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use nix::sys::ptrace;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// What is run, and where its peak is written.
#[derive(Debug, Args)]
pub struct RusageOptions {
    /// A file for the peak in KiB, and the seconds of processors
    report: PathBuf,
    /// Seconds after which it is ended
    limit: u64,
    /// The command
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// What a command came to.
#[derive(Debug)]
pub struct CommandResourceUsage {
    /// Its exit status, above 128 when a signal ended it; none when it took too long.
    pub status: Option<i32>,
    /// How long it ran.
    pub seconds: f64,
    /// Seconds of processors that it and its children took.
    pub processor: f64,
    /// Its highest resident memory in MiB. Where processes may not be traced, at least what this program itself has.
    pub peak: f64,
    /// What it said on standard error.
    pub stderr: String,
}

/// This program, even where another build of it has taken its place on the disk meanwhile.
pub const MYSELF: &str = "/proc/self/exe";

/// The exit status with which the parent reports that a command took too long.
const TOO_LONG: u8 = 124;

/// Runs a command with its folder and environment, and without input, and measures.
///
/// # Errors
/// When it cannot be run.
pub fn cost(command: &Command, limit: Duration) -> anyhow::Result<CommandResourceUsage> {
    let scratch = tempfile::tempdir().context("cannot make a folder")?;
    let report = scratch.path().join("peak");
    let mut parent = Command::new(MYSELF);
    parent.arg("measured").arg(&report).arg(limit.as_secs().to_string()).arg("--");
    parent.arg(command.get_program()).args(command.get_args());
    parent.env_clear();
    parent.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        parent.current_dir(folder);
    }
    let begun = Instant::now();
    let output = parent.stdin(Stdio::null()).output().context("the command cannot be measured")?;
    let seconds = begun.elapsed().as_secs_f64();
    let status = output.status.code();
    let figures = std::fs::read_to_string(&report).context("the command was not measured")?;
    let mut figures = figures.split_whitespace().map(str::parse::<f64>);
    let mut next = || figures.next().and_then(Result::ok).context("the command was not measured");
    let peak = next()?;
    let processor = next()?;
    let status = status.filter(|status| *status != i32::from(TOO_LONG));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(CommandResourceUsage { status, seconds, processor, peak: peak / 1024.0, stderr })
}

/// Runs the command of a measurement, with the streams that this process has.
///
/// # Errors
/// When it cannot be run.
pub fn run(options: &RusageOptions) -> anyhow::Result<ExitCode> {
    let (program, arguments) = options.command.split_first().context("no command")?;
    let mut child = Command::new(program).args(arguments).spawn().context("cannot be started")?;
    let id = Pid::from_raw(i32::try_from(child.id()).context("no process id")?);
    // The kernel counts what this process had before it became the command as memory of the command, so `getrusage` says
    // too much of a small command: the command is stopped at its end, and its memory is read then.
    let is_traced = ptrace::seize(id, ptrace::Options::PTRACE_O_TRACEEXIT).is_ok();
    let mut peak = None;
    let deadline = Instant::now() + Duration::from_secs(options.limit);
    let mut pause = Duration::from_micros(200);
    let status = loop {
        match waitpid(id, Some(WaitPidFlag::WNOHANG)).context("cannot be waited for")? {
            WaitStatus::Exited(_, code) => break u8::try_from(code).unwrap_or(u8::MAX),
            WaitStatus::Signaled(_, signal, _) => {
                break u8::try_from(signal as i32 + 128).unwrap_or(u8::MAX);
            }
            // The end is the only event that was asked for.
            WaitStatus::PtraceEvent(..) => {
                peak = highest(id);
                ptrace::cont(id, None).context("cannot go on")?;
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(id, signal).context("cannot go on")?,
            _ => {
                if Instant::now() > deadline {
                    child.kill()?;
                    child.wait()?;
                    break TOO_LONG;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(10));
            }
        }
    };
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("the kernel does not say")?;
    // It may have ended too early, or processes may not be traced here.
    let peak = peak.filter(|_| is_traced).unwrap_or_else(|| usage.max_rss().to_string());
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let processor = seconds(usage.user_time()) + seconds(usage.system_time());
    std::fs::write(&options.report, format!("{peak} {processor}")).context("cannot report")?;
    Ok(ExitCode::from(status))
}

/// Its highest resident memory in KiB, while it is still there.
fn highest(id: Pid) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.to_owned())
}
