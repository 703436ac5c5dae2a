//! The program under test, run in the same way as users run it.
//!
//! Here: finding the program, starting, stopping, freezing, killing and restarting it, and reading its log.
//! Elsewhere: the objects that it reconciles (the stories), the cluster in which it runs (`control_plane`).

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use testbed::ENVIRONMENT;

use crate::control_plane::tail;
use crate::process_reaper::ProcessReaper;

/// The log files of all running programs, for failure reports.
static LOGS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A running `windlass`. It ends when it is dropped or when this process ends.
#[derive(Debug)]
pub struct OperatorProcess {
    binary: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
    reaper: ProcessReaper,
    child: Option<Child>,
}

impl OperatorProcess {
    /// Starts the program with these arguments. `{folder}` in an argument becomes the path of its own folder. The folder
    /// survives restarts and is removed when this is dropped.
    pub fn start(arguments: Vec<String>) -> Result<Self> {
        Self::start_with(binary()?, arguments, &[])
    }

    /// Starts any program in the same way, with additional environment variables.
    pub fn start_with(
        binary: PathBuf,
        arguments: Vec<String>,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-operator-").tempdir()?.keep();
        let reaper = ProcessReaper::start(Some(&folder))?;
        let own = folder.display().to_string();
        let arguments = arguments.into_iter().map(|it| it.replace("{folder}", &own)).collect();
        let environment =
            environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut operator = Self { binary, arguments, environment, folder, reaper, child: None };
        LOGS.lock().push(operator.log_file());
        operator.resume()?;
        Ok(operator)
    }

    /// Starts the program again with the same arguments, after [`OperatorProcess::stop`] or [`OperatorProcess::kill`].
    pub fn resume(&mut self) -> Result<()> {
        ensure!(!self.is_running()?, "the operator is running already");
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments).current_dir(&self.folder);
        let temporary = self.temporary_files();
        std::fs::create_dir_all(&temporary)?;
        command.env_remove("KUBECONFIG").env("HOME", &self.folder).env("TMPDIR", temporary);
        command.envs(ENVIRONMENT);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.child = Some(self.reaper.spawn(&mut command, &self.log_file())?);
        Ok(())
    }

    /// Exchanges the program that the next start uses with the given one.
    pub fn exchange(&mut self, binary: &mut PathBuf) {
        std::mem::swap(&mut self.binary, binary);
    }

    /// Asks the program to end (`SIGTERM`) and waits. It is an error if it has not ended after `timeout`.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.await_end(timeout).context("it was sent SIGTERM")
    }

    /// Pauses the program (`SIGSTOP`) until [`OperatorProcess::thaw`], as if the machine hung.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Continues a paused program (`SIGCONT`).
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.id().context("the operator is not running")?;
        Ok(kill(Pid::from_raw(i32::try_from(id)?), signal)?)
    }

    /// Waits until the program has ended by itself. It is an error if it has not ended after `timeout`.
    pub fn await_end(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let child = self.child.as_mut().context("the operator is not running")?;
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the operator did not end within {timeout:?}; its log ends:\n{}", self.tail(30))
    }

    /// Kills the program (`SIGKILL`), as a power failure would.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the operator is not running")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Whether the program is running.
    pub fn is_running(&mut self) -> Result<bool> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// The folder that `{folder}` stands for.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder for the temporary files of this program only.
    pub fn temporary_files(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// The process id of the operator. `None` if the operator does not run.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The whole output of the program over all its starts.
    pub fn log(&self) -> Result<String> {
        let path = self.log_file();
        let content = std::fs::read(&path);
        let content = content.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    /// How many bytes the program has printed over all its starts.
    pub(crate) fn log_length(&self) -> Result<u64> {
        let path = self.log_file();
        let data = std::fs::metadata(&path);
        Ok(data.with_context(|| format!("cannot read {}", path.display()))?.len())
    }

    /// The output after the first `offset` bytes. The log of a large cluster is too long to be read often.
    pub(crate) fn log_from(&self, offset: u64) -> Result<String> {
        let path = self.log_file();
        let read = || {
            let mut file = std::fs::File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut content = Vec::new();
            file.read_to_end(&mut content)?;
            std::io::Result::Ok(content)
        };
        let content = read().with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    /// The last lines that the program has printed.
    pub fn tail(&self, lines: usize) -> String {
        tail(&self.log_file(), lines)
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("operator.log")
    }
}

impl Drop for OperatorProcess {
    fn drop(&mut self) {
        let log = self.log_file();
        LOGS.lock().retain(|it| *it != log);
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// The last lines of every running operator.
pub(crate) fn tails(lines: usize) -> String {
    let logs = LOGS.lock().clone();
    let show = |log: &PathBuf| format!("{}\n", tail(log, lines));
    logs.iter().map(show).collect()
}

/// The path of the program: `$WINDLASS_BIN`, or `windlass` in the target folder in which this test was built.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WINDLASS_BIN") {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "WINDLASS_BIN names {}, which is not a file", path.display());
        return Ok(path);
    }
    let own = std::env::current_exe().context("cannot tell which program this is")?;
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("windlass"));
    let found = beside.into_iter().find(|path| path.is_file());
    found.context("the program is not built: run `cargo build`, or set WINDLASS_BIN")
}
