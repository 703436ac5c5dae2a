//! What a program answers to a command about a chart.
//!
//! Here: running it, alone with the files of its case. Elsewhere: what was recorded (`record`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// Longest time that an answer may take.
const LIMIT: Duration = Duration::from_secs(120);

/// How the folder of a run is written in its answer.
const FOLDER: &str = "${DIR}";

/// The answer of a program to a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    /// Exit status; none when a signal ended it.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// Standard error.
    pub(crate) stderr: Vec<u8>,
    /// Files that it wrote or changed, by path.
    pub(crate) written: BTreeMap<String, Vec<u8>>,
}

/// A command whose answer depends on nothing but its arguments and files: no settings of the user, no cluster, UTC.
pub(crate) fn prepare(program: &Path, folder: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env_clear().env("HOME", home).env("TZ", "UTC");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("KUBECONFIG", home.join("none"));
    for (name, below) in
        [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
    {
        command.env(name, home.join(below));
    }
    command
}

/// Asks a program about the files of a folder: `program template <args>` in it.
///
/// # Errors
/// When the program cannot be started or does not end.
pub(crate) fn ask<S: AsRef<OsStr>>(
    program: &Path,
    folder: &Path,
    arguments: &[S],
) -> anyhow::Result<Answer> {
    let home = TempDir::with_prefix("windlass-answer-").context("cannot make a folder")?;
    let (out, err) = (home.path().join("stdout"), home.path().join("stderr"));
    let before = super::read_folder(folder)?;
    let mut command = prepare(program, folder, home.path());
    command.arg("template").args(arguments).stdin(Stdio::null());
    command.stdout(File::create(&out).context("cannot write the answer")?);
    command.stderr(File::create(&err).context("cannot write the answer")?);
    let status = wait(&mut command, LIMIT)
        .with_context(|| format!("{} gives no answer", program.display()))?;
    let said = |path: &Path| {
        std::fs::read(path).context("cannot read the answer").map(|text| without(&text, folder))
    };
    let mut written = super::read_folder(folder)?;
    written.retain(|path, content| before.get(path) != Some(content));
    Ok(Answer { status: status.code(), stdout: said(&out)?, stderr: said(&err)?, written })
}

fn wait(command: &mut Command, limit: Duration) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let begun = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("not within {} s", limit.as_secs());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// A text with a folder's path replaced, however it was reached.
fn without(text: &[u8], folder: &Path) -> Vec<u8> {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut text = text.to_owned();
    for path in [real.as_path(), folder] {
        text = replace(&text, path.as_os_str().as_encoded_bytes(), FOLDER.as_bytes());
    }
    text
}

fn replace(text: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(byte) = rest.first() {
        if let Some(after) = rest.strip_prefix(old).filter(|_| !old.is_empty()) {
            replaced.extend_from_slice(new);
            rest = after;
        } else {
            replaced.push(*byte);
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    replaced
}
