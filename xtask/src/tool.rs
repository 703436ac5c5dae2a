//! Commands that are programs of their own, built when they are asked for: a developer who checks a page compiles no client
//! of Kubernetes.
//!
//! Here: building and starting them. Elsewhere: what they do (`tools/`, `e2e`), the list of commands (`main`).

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

/// A package with a program for developers, which is called as the package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeveloperTool(pub(crate) &'static str);

/// Measurements.
pub(crate) const BENCH: DeveloperTool = DeveloperTool("bench");
/// Answers of the original programs.
pub(crate) const CONFORMANCE: DeveloperTool = DeveloperTool("conformance");
/// The manifests of the CRDs.
pub(crate) const CRD_MANIFESTS: DeveloperTool = DeveloperTool("crd-manifests");
/// The demo.
pub(crate) const DEMO: DeveloperTool = DeveloperTool("demo");
/// Control planes.
pub(crate) const E2E: DeveloperTool = DeveloperTool("e2e");
/// Crashes, random operations, random input, commits of public repositories.
pub(crate) const STRESS: DeveloperTool = DeveloperTool("stress");

/// What a tool is given, `--help` among it.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ToolArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ToolArguments {
    /// The arguments.
    pub(crate) fn as_slice(&self) -> &[OsString] {
        &self.arguments
    }
}

/// Cargo, as this command was started by it.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

impl DeveloperTool {
    /// Builds the tool, with other packages beside it.
    ///
    /// # Errors
    /// When something does not build; the compiler has said why.
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

    /// The same, saying now and then how far it is and about how long it still takes.
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

    /// Runs the tool as it was built last.
    ///
    /// # Errors
    /// When it fails; it has said why.
    pub(crate) fn start(self, arguments: &[OsString]) -> anyhow::Result<()> {
        self.start_with(arguments, None)
    }

    /// The same with a folder in the environment.
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

    /// Builds the tool and runs it.
    ///
    /// # Errors
    /// As [`DeveloperTool::build`] and [`DeveloperTool::start`].
    pub(crate) fn run(self, arguments: &[OsString]) -> anyhow::Result<()> {
        self.build(&[])?;
        self.start(arguments)
    }

    /// Where cargo puts it: beside this program.
    ///
    /// # Errors
    /// When this program itself is in no folder.
    pub(crate) fn path(self) -> anyhow::Result<PathBuf> {
        beside(self.0)
    }
}

/// A program that cargo puts beside this one.
///
/// # Errors
/// When this program itself is in no folder.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell which program this is")?;
    let folder = own.parent().context("this program is in no folder")?;
    Ok(folder.join(name))
}

/// How far cargo is.
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

    /// Counts an artifact; a line now and then.
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

    /// The time that is left is an estimate: the crates that come last are the largest.
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

/// Arguments that begin with the name of a command.
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
