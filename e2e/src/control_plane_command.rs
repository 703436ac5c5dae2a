//! `cargo xtask cluster`, which manages control planes that keep running after the command has ended.
//!
//! Here: the subcommands `up`, `down`, `status` and `env`, and their output.
//! Elsewhere: the command line (`main.rs`), the control plane itself (`crate::control_plane`).
#![expect(clippy::print_stdout, reason = "this is a command; its output is its purpose")]

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{ControlPlane, ControlPlaneStateFolder};
use testbed::binaries::TestbedBinaries;

/// The default name of a control plane.
pub const DEFAULT_NAME: &str = "dev";

/// Starts the control plane `name`, and prints how to use it. Succeeds if it is already running.
pub fn up(name: &str) -> Result<()> {
    let state = ControlPlaneStateFolder::open(name)?;
    if is_running(&state) {
        println!("cluster `{name}` is running already");
    } else {
        // Removes what is left of a control plane that ended without `down`, for example after a reboot.
        state.stop()?;
        println!("starting cluster `{name}`");
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        let mut report = |step: &str| println!("  {step}");
        let plane = runtime.block_on(ControlPlane::start_in(
            || ControlPlaneStateFolder::create(name),
            &mut report,
        ))?;
        plane.detach()?;
    }
    println!("\n  kubectl    eval \"$(cargo xtask cluster env {name})\"");
    println!("  windlass   --kubeconfig {}", state.operator_kubeconfig().display());
    println!("  logs       {}", state.folder().join("log").display());
    println!("  end it     cargo xtask cluster down {name}");
    Ok(())
}

/// Ends the control plane `name` and removes all its files. Succeeds if there is none.
pub fn down(name: &str) -> Result<()> {
    let state = ControlPlaneStateFolder::open(name)?;
    let existed = state.folder().exists();
    state.stop()?;
    if existed {
        println!("cluster `{name}` is gone");
    } else {
        println!("there is no cluster `{name}`");
    }
    Ok(())
}

/// Prints a table of all control planes.
pub fn status() -> Result<()> {
    let names = ControlPlaneStateFolder::names()?;
    if names.is_empty() {
        println!("no clusters; start one with `cargo xtask cluster up`");
        return Ok(());
    }
    println!("{:<12} {:<9} {:>8}  {:<26} KUBECONFIG", "NAME", "STATE", "MEMORY", "SERVER");
    for name in names {
        let Ok(state) = ControlPlaneStateFolder::open(&name) else { continue };
        println!("{}", row(&name, &state));
    }
    Ok(())
}

/// Prints shell commands for `eval`, which make `kubectl` use the control plane `name`.
pub fn env(name: &str) -> Result<()> {
    let state = ControlPlaneStateFolder::open(name)?;
    ensure!(
        is_running(&state),
        "cluster `{name}` is not running; start it with `cargo xtask cluster up {name}`"
    );
    let binaries = TestbedBinaries::ensure()?;
    let bin = binaries.path("kubectl")?.parent().context("kubectl has no folder")?;
    println!("export KUBECONFIG={}", quote(&state.kubeconfig()));
    println!("export WINDLASS_TEST_KUBECONFIG={}", quote(&state.kubeconfig()));
    println!("export KUBECACHEDIR={}", quote(&state.folder().join("kubectl-cache")));
    println!("export PATH={}:\"$PATH\"", quote(bin));
    Ok(())
}

fn is_running(state: &ControlPlaneStateFolder) -> bool {
    state.record().is_some_and(|record| {
        !record.processes.is_empty() && record.processes.values().all(|&id| state.owns(id))
    })
}

fn row(name: &str, state: &ControlPlaneStateFolder) -> String {
    let record = state.record();
    let ids = || record.iter().flat_map(|record| record.processes.values().copied());
    let alive = ids().filter(|&id| state.owns(id)).count();
    let word = match &record {
        None => "starting",
        Some(record) if alive == record.processes.len() => "running",
        Some(_) if alive == 0 => "stopped",
        Some(_) => "broken",
    };
    let memory: u64 = ids().filter(|&id| state.owns(id)).map(resident).sum();
    let memory = format!("{} MiB", memory / 1024);
    let server = record.as_ref().map_or("-", |record| record.server.as_str());
    format!("{name:<12} {word:<9} {memory:>8}  {server:<26} {}", state.kubeconfig().display())
}

/// The resident memory of a process, in KiB. It is 0 if the process has ended.
fn resident(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Quotes a path as one word of a POSIX shell.
fn quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_path_is_one_word_whatever_is_in_it() {
        assert_eq!(quote(Path::new("/a b/c")), "'/a b/c'");
        assert_eq!(quote(Path::new("/it's")), r"'/it'\''s'");
    }
}
