//! The answer of a program to a command about a chart or an overlay.
//!
//! This module runs the program in a folder with the files of one case only. `record` reads recorded answers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use super::CorpusKind;

/// How long a program may run.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The text that replaces the folder of a run in its answer.
const FOLDER: &str = "${DIR}";

/// The form of a time in a log, with zeros for digits.
const LOG_TIME: &[u8] = b"0000/00/00 00:00:00 ";

/// The output of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramOutput {
    /// The exit status. It is none when a signal ended the program.
    pub status: Option<i32>,
    /// The standard output of the program.
    pub stdout: Vec<u8>,
    /// The standard error of the program.
    pub stderr: Vec<u8>,
    /// The files that the program wrote or changed, by path.
    pub written: BTreeMap<String, Vec<u8>>,
}

/// A command whose answer depends only on its arguments and files. It has no settings of the user, no cluster, and
/// the time zone UTC.
pub fn prepare(program: &Path, folder: &Path, home: &Path) -> Command {
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

/// Runs `program template <args>`, or `program build <args>`, in a folder. The programs in the folder `tools` are in
/// its `PATH`.
///
/// # Errors
/// When the program cannot be started or does not end.
pub fn ask<S: AsRef<OsStr>>(
    corpus: CorpusKind,
    program: &Path,
    folder: &Path,
    arguments: &[S],
    tools: Option<&Path>,
) -> anyhow::Result<ProgramOutput> {
    let home = TempDir::with_prefix("windlass-answer-").context("cannot make a folder")?;
    let out = home.path().join("stdout");
    let err = home.path().join("stderr");
    let before = super::read_folder(folder)?;
    let mut command = prepare(program, folder, home.path());
    command.arg(corpus.command()).args(arguments).stdin(Stdio::null());
    if let Some(tools) = tools {
        let known = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(tools.to_owned()).chain(std::env::split_paths(&known));
        command.env("PATH", std::env::join_paths(all).context("no PATH can be made")?);
    }
    command.stdout(File::create(&out).context("cannot write the answer")?);
    command.stderr(File::create(&err).context("cannot write the answer")?);
    let status = wait(&mut command, ANSWER_TIMEOUT)
        .with_context(|| format!("{} gives no answer", program.display()))?;
    let said = |path: &Path| {
        let text = std::fs::read(path).context("cannot read the answer")?;
        Ok::<_, anyhow::Error>(without_scratch(&without_times(&without(&text, folder))))
    };
    let mut written = super::read_folder(folder)?;
    written.retain(|path, content| before.get(path) != Some(content));
    let stderr = without_addresses(&said(&err)?);
    Ok(ProgramOutput { status: status.code(), stdout: said(&out)?, stderr, written })
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

/// Replaces the path of a folder in a text. The path may be a resolved or an unresolved one.
fn without(text: &[u8], folder: &Path) -> Vec<u8> {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut text = text.to_owned();
    for path in [real.as_path(), folder] {
        text = replace(&text, path.as_os_str().as_encoded_bytes(), FOLDER.as_bytes());
    }
    text
}

/// Replaces the times in a text that Go's log puts before each line, such as `2006/01/02 15:04:05 `.
fn without_times(text: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let fits = |(byte, like): (&u8, &u8)| match like {
            b'0' => byte.is_ascii_digit(),
            _ => byte == like,
        };
        match line.split_at_checked(LOG_TIME.len()) {
            Some((time, rest)) if time.iter().zip(LOG_TIME).all(fits) => {
                replaced.extend_from_slice(b"${TIME} ");
                replaced.extend_from_slice(rest);
            }
            _ => replaced.extend_from_slice(line),
        }
    }
    replaced
}

/// Removes the random numbers in the names of folders that Kustomize makes for Helm.
fn without_scratch(text: &[u8]) -> Vec<u8> {
    const TEMPORARY_FOLDER_PREFIX: &[u8] = b"/kustomize-helm-";
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(byte) = rest.first() {
        let name = rest.strip_prefix(TEMPORARY_FOLDER_PREFIX);
        replaced.extend_from_slice(if name.is_some() {
            TEMPORARY_FOLDER_PREFIX
        } else {
            std::slice::from_ref(byte)
        });
        rest = match name {
            Some(after) => {
                let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
                after.get(digits..).unwrap_or_default()
            }
            None => rest.get(1..).unwrap_or_default(),
        };
    }
    replaced
}

/// Replaces the memory addresses in a text that Go prints for pointers. They differ from run to run.
fn without_addresses(text: &[u8]) -> Vec<u8> {
    /// The least number of hexadecimal digits of an address. Shorter numbers stay.
    const MIN_ADDRESS_DIGITS: usize = 8;
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(byte) = rest.first() {
        let digits = rest
            .strip_prefix(b"0x")
            .map_or(0, |after| after.iter().take_while(|byte| byte.is_ascii_hexdigit()).count());
        let length = if digits >= MIN_ADDRESS_DIGITS { digits + 2 } else { 1 };
        if digits >= MIN_ADDRESS_DIGITS {
            replaced.extend_from_slice(b"${ADDRESS}");
        } else {
            replaced.push(*byte);
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    replaced
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
