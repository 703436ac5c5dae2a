//! Runs another test of the same test binary in a separate process with its own environment.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Runs an otherwise ignored test in a process. Its environment contains only these variables, `PATH` and `TMPDIR`. Returns
/// whether the test passed, and its output. The call blocks, so it needs a runtime with several threads.
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
