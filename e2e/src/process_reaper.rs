//! Ends processes and removes their folder when the process that wanted them is gone.
//!
//! Here: a shell that waits for one pipe to close. The kernel closes it however we end, `SIGKILL`
//! included, so an interrupted test run leaves nothing behind.
//! Elsewhere: what is kept (`control_plane`, `git_server`, `operator_process`).

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};

/// `$1` is the folder to remove, or empty.
/// The shell leads the process group of all that it keeps, so the group's id cannot pass to
/// strangers while the shell lives; the killing is done from a session of its own because it
/// takes the shell too.
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

/// Keeps processes alive as long as itself, and not longer.
///
/// # Guarantees
/// When it is dropped, or this process ends in any way, everything started through
/// [`ProcessReaper::spawn`] is killed, and the folder is removed.
#[derive(Debug)]
pub struct ProcessReaper {
    shell: Child,
    orders: Option<ChildStdin>,
    end: Option<ChildStdout>,
}

impl ProcessReaper {
    /// Starts the reaper of `folder`, which exists already; without one it keeps processes only.
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

    /// The id of the reaper, which is also that of the process group it keeps.
    pub fn id(&self) -> u32 {
        self.shell.id()
    }

    /// Starts a process that ends with the reaper. Its output goes to `log`, appended.
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

    /// Lets everything outlive this process; from here on only killing the group ends it.
    pub fn detach(mut self) -> Result<()> {
        let mut orders = self.orders.take().context("the keeper was let go before")?;
        orders.write_all(b"detach\n").context("the keeper is gone")?;
        self.wait_for_end();
        Ok(())
    }

    /// Returns when the reaper has closed its output: it has detached, or all is done.
    fn wait_for_end(&mut self) {
        if let Some(mut end) = self.end.take() {
            let mut nothing = Vec::new();
            // The reaper never writes; reading fails only if there is nothing left to wait for.
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
