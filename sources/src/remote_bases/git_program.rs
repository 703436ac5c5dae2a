//! Checkouts by the `git` program, with the commands and error texts of kustomize.
//!
//! The program reads the user's own configuration, with the user's keys and credentials.

use std::env;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use kustomize::{Error, RepositoryAddress};
use tempfile::TempDir;

use crate::workstation_build_files::reason;

/// The most bytes of the program's output that are quoted.
const LONGEST_TEXT: u64 = 1 << 20;

/// Environment variables that make the program use another repository than that in its folder.
///
/// Differs(kustomize): it passes them on, and within a hook would change the repository whose hook it is.
const OF_ANOTHER: [&str; 9] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// Checks a repository out into a new folder, which is removed when it is dropped.
///
/// # Errors
/// The error is kustomize's, with all output of the program.
pub(crate) fn checkout(repository: &RepositoryAddress) -> Result<TempDir, Error> {
    let program = program().ok_or_else(|| {
        Error::new("no 'git' program on path: exec: \"git\": executable file not found in $PATH")
    })?;
    let folder = tempfile::Builder::new().prefix("kustomize-").tempdir();
    let folder = folder.map_err(|error| {
        Error::new(format!("cannot create a directory for a repository: {}", reason(&error)))
    })?;
    let url = repository.url();
    let reference = match repository.reference.as_str() {
        "" => "HEAD",
        // Differs(kustomize): it passes on what the program takes for an option, such as one that names a program.
        reference if reference.starts_with('-') => {
            let text = format!("`{reference}` is not a branch, tag or commit of '{url}'");
            return Err(Error::new(text));
        }
        reference => reference,
    };
    let git = GitProgram {
        program: &program,
        folder: folder.path(),
        timeout: Duration::from_nanos(repository.timeout),
    };
    git.run(&["init"])?;
    // Submodules may be given relative to it.
    git.run(&["remote", "add", "origin", &url])?;
    git.run(&["fetch", "--depth=1", &url, reference])?;
    git.run(&["checkout", "FETCH_HEAD"])?;
    if repository.submodules {
        git.run(&["submodule", "update", "--init", "--recursive"])?;
    }
    Ok(folder)
}

/// The path of the program `git`. `None` if it is not found. Relative folders of `PATH` are left out, as in Go.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 > 0)
    };
    let folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join("git")).find(is_program)
}

struct GitProgram<'g> {
    program: &'g Path,
    folder: &'g Path,
    /// The time limit of each run.
    timeout: Duration,
}

impl GitProgram<'_> {
    fn run(&self, args: &[&str]) -> Result<(), Error> {
        let shown = format!("{} {}", self.program.display(), args.join(" "));
        let failed =
            |said: &str, why: String| Error::new(format!("failed to run '{shown}': {said}: {why}"));
        let start = || {
            let (reader, writer) = std::io::pipe()?;
            let child = self.command(args).stdout(writer.try_clone()?).stderr(writer).spawn()?;
            Ok((reader, child))
        };
        let (mut reader, mut child) =
            start().map_err(|error: std::io::Error| failed("", reason(&error)))?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut said = Vec::new();
            // Unreadable output is left out. The exit status still shows that the program failed.
            drop(reader.by_ref().take(LONGEST_TEXT).read_to_end(&mut said));
            drop(std::io::copy(&mut reader, &mut std::io::sink()));
            // The receiver is gone after the timeout.
            drop(sender.send(said));
        });
        let Ok(said) = receiver.recv_timeout(self.timeout) else {
            stop(&mut child);
            let nanos = i64::try_from(self.timeout.as_nanos()).unwrap_or(i64::MAX);
            let timeout = golang::time::GoDuration(nanos);
            return Err(Error::new(format!("hit {timeout} timeout running '{shown}'")));
        };
        let said = String::from_utf8_lossy(&said);
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(&said, ended(status))),
            Err(error) => Err(failed(&said, reason(&error))),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(args).current_dir(self.folder).stdin(Stdio::null());
        for name in OF_ANOTHER {
            command.env_remove(name);
        }
        command
    }
}

/// Ends a program that takes too long. The program may have ended meanwhile.
fn stop(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(9)) => "signal: killed".to_owned(),
        (None, signal) => format!("signal: {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
