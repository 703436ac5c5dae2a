//! A test that runs another one of its binary in a process with an environment of its own.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Runs a test that is ignored otherwise, with these variables and nothing else of the environment but `PATH` and
/// `TMPDIR`: whether it passed, and what it said. Blocks, on a runtime of many threads.
pub fn run_in_subprocess(
    test: &str,
    variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
) -> Result<(bool, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", test, "--ignored", "--nocapture"]).env_clear();
    command.envs(["PATH", "TMPDIR"].iter().filter_map(|it| Some((*it, std::env::var_os(it)?))));
    let output = tokio::task::block_in_place(|| command.envs(variables).output());
    let output = output.with_context(|| format!("cannot run {test} again"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok((output.status.success() && said.contains("1 passed"), said))
}
