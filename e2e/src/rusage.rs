//! Measures the cost of one command, including its peak memory.
//!
//! The kernel reports only the largest memory of all children that a process ever had. So each measured command gets its own
//! parent process, which is this program under a hidden name.
//!
//! Here: both sides of the measurement. Elsewhere: the users of the measurement (`tools/bench`, `tools/stress`).

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

/// The cost of a command.
#[derive(Debug)]
pub struct CommandResourceUsage {
    /// The exit status of the command. It is above 128 if a signal ended the command. `None` if the command took too long.
    pub status: Option<i32>,
    /// How long the command ran, in seconds.
    pub seconds: f64,
    /// The CPU seconds of the command and its children.
    pub processor: f64,
    /// The peak resident memory of the command, in MiB. If the kernel forbids tracing, it is at least the memory of this
    /// program itself.
    pub peak: f64,
    /// The standard error of the command.
    pub stderr: String,
}

/// This program, even if another build has replaced its file on the disk meanwhile.
pub const MYSELF: &str = "/proc/self/exe";

/// The exit status with which the parent process reports that the command took too long.
const TOO_LONG: u8 = 124;

/// Runs a command without input, in its folder and with its environment, and measures it.
///
/// # Errors
/// The command cannot be run.
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

/// Runs the command of a measurement, with the streams of this process.
///
/// # Errors
/// The command cannot be run.
pub fn run(options: &RusageOptions) -> anyhow::Result<ExitCode> {
    let (program, arguments) = options.command.split_first().context("no command")?;
    let mut child = Command::new(program).args(arguments).spawn().context("cannot be started")?;
    let id = Pid::from_raw(i32::try_from(child.id()).context("no process id")?);
    // The kernel counts the memory of this process before `exec` as memory of the command. So `getrusage` reports too much for
    // a small command. Therefore the command is stopped at its end, and its memory is read then.
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
            // This process asked only for the event at the end of the command.
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
    // The command may have ended too early, or the kernel may forbid tracing.
    let peak = peak.filter(|_| is_traced).unwrap_or_else(|| usage.max_rss().to_string());
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let processor = seconds(usage.user_time()) + seconds(usage.system_time());
    std::fs::write(&options.report, format!("{peak} {processor}")).context("cannot report")?;
    Ok(ExitCode::from(status))
}

/// The peak resident memory of a process in KiB. `None` if the process does not exist any more.
fn highest(id: Pid) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.to_owned())
}
