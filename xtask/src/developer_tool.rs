//! Builds and starts the commands of `cargo xtask` that are programs of their own. A program is built only when a
//! developer calls it. So checking a page does not compile a Kubernetes client.
//!
//! The programs are in `tools/` and `e2e`, and `main` has the list of commands.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Artifact, Message, TargetKind};
use clap::Args;
use testbed::progress::{dim, spell};
use testbed::root;

/// How often a long build reports how far it is.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// A developer's program, which has the same name as its package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeveloperTool(pub(crate) &'static str);

/// Benchmarks.
pub(crate) const BENCH: DeveloperTool = DeveloperTool("bench");
/// Replays recorded answers of the original programs.
pub(crate) const CONFORMANCE: DeveloperTool = DeveloperTool("conformance");
/// Writes the manifests of the CRDs.
pub(crate) const CRD_MANIFESTS: DeveloperTool = DeveloperTool("crd-manifests");
/// The demo.
pub(crate) const DEMO: DeveloperTool = DeveloperTool("demo");
/// Starts control planes.
pub(crate) const E2E: DeveloperTool = DeveloperTool("e2e");
/// Tests with crashes, random operations, random input and commits of public repositories.
pub(crate) const STRESS: DeveloperTool = DeveloperTool("stress");

/// What a tool is given, `--help` among it.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ToolArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ToolArguments {
    /// The arguments of the developer tool's command line.
    pub(crate) fn as_slice(&self) -> &[OsString] {
        &self.arguments
    }
}

/// A command that runs the same cargo that started this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

impl DeveloperTool {
    /// Builds the program, together with other packages.
    ///
    /// # Errors
    /// When something does not build. The compiler has printed the reason.
    pub(crate) fn build(self, beside: &[&str]) -> anyhow::Result<()> {
        let mut command = cargo();
        command.args(["build", "--quiet", "--package", self.0]);
        for package in beside {
            command.args(["--package", package]);
        }
        let status = command.status().context("cargo cannot be started")?;
        ensure!(status.success(), "{} does not build", self.0);
        Ok(())
    }

    /// Builds the program and prints its progress at times, with an estimate of the time that is left.
    ///
    /// # Errors
    /// As [`DeveloperTool::build`].
    pub(crate) fn build_with_progress(self, beside: &[&str]) -> anyhow::Result<()> {
        let mut packages = vec!["--package", self.0];
        for package in beside {
            packages.extend(["--package", package]);
        }
        let tree = ["tree", "--prefix", "none", "--edges", "normal,build", "--format", "{p}"];
        let output =
            cargo().args(tree).args(&packages).output().context("cargo cannot be started")?;
        let tree = String::from_utf8_lossy(&output.stdout);
        let all =
            tree.lines().map(|line| line.trim_end_matches(" (*)")).collect::<BTreeSet<_>>().len();
        let mut command = cargo();
        command.args(["build", "--quiet", "--message-format=json-render-diagnostics"]);
        let mut child = command.args(&packages).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("cargo has no output")?;
        let mut progress = CargoProgress::new(all);
        for message in Message::parse_stream(BufReader::new(stdout)) {
            let Message::CompilerArtifact(artifact) = message? else { continue };
            if let Some(line) = progress.next(&artifact, Instant::now()) {
                eprintln!("  {}", dim(&line));
            }
        }
        ensure!(child.wait()?.success(), "{} does not build", self.0);
        Ok(())
    }

    /// Runs the program in its last build.
    ///
    /// # Errors
    /// When the program fails. It has printed the reason.
    pub(crate) fn start(self, arguments: &[OsString]) -> anyhow::Result<()> {
        self.start_with(arguments, None)
    }

    /// Runs the program in its last build, with a folder in an environment variable.
    ///
    /// # Errors
    /// As [`DeveloperTool::start`].
    pub(crate) fn start_with(
        self,
        arguments: &[OsString],
        folder: Option<(&str, PathBuf)>,
    ) -> anyhow::Result<()> {
        let mut command = Command::new(self.path()?);
        command.args(arguments).envs(folder).current_dir(std::env::current_dir()?);
        let status = command.status().with_context(|| format!("{} cannot be started", self.0))?;
        if !status.success() {
            bail!("`{}` failed ({status})", self.0);
        }
        Ok(())
    }

    /// Builds the program and runs it.
    ///
    /// # Errors
    /// As [`DeveloperTool::build`] and [`DeveloperTool::start`].
    pub(crate) fn run(self, arguments: &[OsString]) -> anyhow::Result<()> {
        self.build(&[])?;
        self.start(arguments)
    }

    /// The path of the built program. Cargo puts it beside this one.
    ///
    /// # Errors
    /// When this program itself is in no folder.
    pub(crate) fn path(self) -> anyhow::Result<PathBuf> {
        beside(self.0)
    }
}

/// The path of another program that cargo puts beside this one.
///
/// # Errors
/// When this program itself is in no folder.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell which program this is")?;
    let folder = own.parent().context("this program is in no folder")?;
    Ok(folder.join(name))
}

/// The progress of a cargo build.
struct CargoProgress {
    all: usize,
    present: usize,
    compiled: usize,
    begun: Instant,
    said: Instant,
}

impl CargoProgress {
    fn new(all: usize) -> Self {
        let now = Instant::now();
        Self { all, present: 0, compiled: 0, begun: now, said: now }
    }

    /// Counts a compiled artifact. Returns a line to print, or `None` if the last line was not long enough ago.
    fn next(&mut self, artifact: &Artifact, now: Instant) -> Option<String> {
        if artifact.target.kind.contains(&TargetKind::CustomBuild) {
            return None;
        }
        let count = if artifact.fresh { &mut self.present } else { &mut self.compiled };
        *count += 1;
        if now.duration_since(self.said) < REPORT_INTERVAL || artifact.fresh {
            return None;
        }
        self.said = now;
        Some(self.line(now.duration_since(self.begun)))
    }

    /// A line about the progress. The time that is left is only an estimate, because the crates that come last are
    /// the largest.
    fn line(&self, took: Duration) -> String {
        let left = self.all.saturating_sub(self.present + self.compiled);
        let each = took / u32::try_from(self.compiled).unwrap_or(u32::MAX).max(1);
        let left = each * u32::try_from(left).unwrap_or(u32::MAX);
        let done = self.present + self.compiled;
        format!(
            "{done} of {} crates after {}, at least {} left",
            self.all,
            spell(took),
            spell(left)
        )
    }
}

/// The name of a command, and its arguments.
pub(crate) fn with_name(name: &str, arguments: &ToolArguments) -> Vec<OsString> {
    let mut all = vec![OsString::from(name)];
    all.extend(arguments.as_slice().iter().cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_estimated_from_what_was_compiled() {
        let now = Instant::now();
        let progress = CargoProgress { all: 30, present: 10, compiled: 5, begun: now, said: now };
        let line = progress.line(Duration::from_secs(10));
        assert_eq!(line, "15 of 30 crates after 10.0 s, at least 30.0 s left");
    }
}
