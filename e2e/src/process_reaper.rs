//! Ends processes and removes their folder when the process that started them has ended.
//!
//! Here: a shell that waits until a pipe closes. The kernel closes the pipe however this process ends, including by `SIGKILL`.
//! So an interrupted test run leaves nothing behind.
//! Elsewhere: the processes that are kept (`control_plane`, `git_server`, `operator_process`).

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};

/// The script of the reaper. `$1` is the folder to remove, or empty. The shell leads the process group of all its processes, so
/// no other group can get the same id while the shell lives. A separate session kills the group, because the kill also ends the
/// shell.
const SCRIPT: &str = r#"
finish() {
  trap '' TERM INT
  setsid sh -c '
    kill -s KILL -- "-$1"
    for _ in 1 2 3 4 5; do [ -z "$2" ] || rm -rf -- "$2" 2>/dev/null && break; sleep 0.1; done
  ' sh "$$" "$1" &
  wait
}
trap 'finish "$1"' TERM INT
trap '' HUP
read -r order
if [ "$order" = detach ]; then
  exec >/dev/null 2>&1
  while :; do sleep 86400 & wait "$!"; done
fi
finish "$1"
"#;

/// Keeps processes alive as long as itself.
///
/// # Guarantees
/// When the reaper is dropped or this process ends in any way, every process of [`ProcessReaper::spawn`] is killed, and the
/// folder is removed.
#[derive(Debug)]
pub struct ProcessReaper {
    shell: Child,
    orders: Option<ChildStdin>,
    end: Option<ChildStdout>,
}

impl ProcessReaper {
    /// Starts the reaper of an existing `folder`. Without a folder, it only ends processes.
    pub fn start(folder: Option<&Path>) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "windlass-testbed-keeper"]);
        shell.arg(folder.unwrap_or(Path::new("")));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = shell.process_group(0).spawn().context("cannot start `sh`")?;
        let orders = shell.stdin.take();
        let end = shell.stdout.take();
        Ok(Self { shell, orders, end })
    }

    /// The process id of the reaper. It is also the id of its process group.
    pub fn id(&self) -> u32 {
        self.shell.id()
    }

    /// Starts a process that ends with the reaper. The output is appended to `log`.
    pub fn spawn(&self, command: &mut Command, log: &Path) -> Result<Child> {
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let group = i32::try_from(self.id()).context("the keeper's process id is out of range")?;
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
        command
            .process_group(group)
            .spawn()
            .with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))
    }

    /// Lets all processes keep running when this process ends. After that, only killing the process group ends them.
    pub fn detach(mut self) -> Result<()> {
        let mut orders = self.orders.take().context("the keeper was let go before")?;
        orders.write_all(b"detach\n").context("the keeper is gone")?;
        self.wait_for_end();
        Ok(())
    }

    /// Waits until the reaper has closed its output. By then it has detached, or it has ended all processes.
    fn wait_for_end(&mut self) {
        if let Some(mut end) = self.end.take() {
            let mut nothing = Vec::new();
            // The reaper never writes. Reading fails only if the reaper has already ended.
            end.read_to_end(&mut nothing).ok();
        }
    }
}

impl Drop for ProcessReaper {
    fn drop(&mut self) {
        if self.orders.take().is_some() {
            self.wait_for_end();
            self.shell.wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn dropping_the_keeper_kills_its_processes_and_removes_its_folder() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("state");
        std::fs::create_dir(&folder).expect("a folder");
        let reaper = ProcessReaper::start(Some(&folder)).expect("a keeper");
        let mut kept =
            reaper.spawn(Command::new("sleep").arg("600"), &folder.join("log")).expect("a process");
        drop(reaper);
        assert_eq!(kept.wait().expect("an end").signal(), Some(9));
        assert!(!folder.exists());
    }

    #[test]
    fn a_detached_reaper_lets_its_processes_run_until_it_is_ended() {
        let folder = tempfile::tempdir().expect("a temporary folder").keep();
        let reaper = ProcessReaper::start(Some(&folder)).expect("a keeper");
        let id = nix::unistd::Pid::from_raw(i32::try_from(reaper.id()).expect("an id"));
        let mut kept =
            reaper.spawn(Command::new("sleep").arg("600"), &folder.join("log")).expect("a process");
        reaper.detach().expect("let go");
        assert!(kept.try_wait().expect("a state").is_none());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("the keeper lives");
        assert_eq!(kept.wait().expect("an end").signal(), Some(9));
    }
}
