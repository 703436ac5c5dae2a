//! Compiles everything once. The driver of clippy is a compiler that also lints, so tests and lints share one
//! compilation.
//!
//! This module calls cargo. `plan` says which of the compiled programs run, and `timings` how long each crate took.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Message, TargetKind};
use testbed::root;

use crate::developer_tool;

/// The arguments that `cargo clippy -- -D warnings` gives to its driver.
const LINTS: [(&str, &str); 1] =
    [("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")];

/// The options of a compilation.
#[derive(Debug)]
pub(super) struct TestBuild {
    /// Whether the stories are compiled, too.
    pub(super) has_stories: bool,
    /// Whether the stories that take long are compiled, too.
    pub(super) is_thorough: bool,
    /// The packages to compile. An empty list stands for the whole workspace.
    pub(super) packages: Vec<String>,
}

/// A compiled program that contains tests.
#[derive(Debug, Clone)]
pub(super) struct TestProgram {
    /// The package.
    pub(super) package: String,
    /// The name of the test file, or of the library whose unit tests it has.
    pub(super) target: String,
    /// Whether the tests are a file in the folder `tests/`.
    pub(super) is_integration: bool,
    /// The path of the compiled program.
    pub(super) path: PathBuf,
    /// The folder of the package, in which its tests run.
    pub(super) folder: PathBuf,
}

/// Runs cargo.
///
/// # Errors
/// cargo's failure, with the advice for the developer.
pub(super) fn cargo(arguments: &[&str], advice: &str) -> anyhow::Result<()> {
    let status =
        developer_tool::cargo().args(arguments).status().context("cargo cannot be started")?;
    if !status.success() {
        bail!("{advice} (cargo {})", arguments.join(" "));
    }
    Ok(())
}

/// Has a command, and the commands that it starts, compile by the driver of clippy.
///
/// # Errors
/// clippy is not installed.
pub(super) fn with_lints(command: &mut Command) -> anyhow::Result<()> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let output = output.context("rustc cannot be started")?;
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let driver = Path::new(&sysroot).join("bin/clippy-driver");
    ensure!(driver.is_file(), "there is no clippy: `rustup component add clippy`");
    command.env("RUSTC_WORKSPACE_WRAPPER", driver).envs(LINTS);
    Ok(())
}

impl TestBuild {
    fn selection(&self) -> Vec<&str> {
        let mut arguments = Vec::new();
        for package in &self.packages {
            arguments.extend(["--package", package]);
        }
        if arguments.is_empty() {
            arguments.push("--workspace");
        }
        arguments
    }

    /// Compiles libraries, programs and tests. Every warning is an error.
    ///
    /// # Errors
    /// When something does not compile, or a lint found something.
    pub(super) fn run(&self) -> anyhow::Result<Vec<TestProgram>> {
        let mut command = developer_tool::cargo();
        command.args(["build", "--all-targets", "--timings"]).args(self.selection());
        command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
        if self.has_stories {
            let feature = if self.is_thorough { "e2e/thorough" } else { "e2e/stories" };
            command.args(["--features", feature]);
        }
        with_lints(&mut command)?;
        let mut child = command.spawn().context("cargo cannot be started")?;
        let stdout = child.stdout.take().context("cargo has no output")?;
        let mut tests = Vec::new();
        for message in Message::parse_stream(BufReader::new(stdout)) {
            let Message::CompilerArtifact(artifact) = message? else { continue };
            let folder = artifact.manifest_path.parent().context("a package is in a folder")?;
            let Some(path) = artifact.executable.filter(|_| artifact.profile.test) else {
                continue;
            };
            tests.push(TestProgram {
                package: package_name(&artifact.package_id.repr),
                target: artifact.target.name.clone(),
                is_integration: artifact.target.kind.contains(&TargetKind::Test),
                path: path.into_std_path_buf(),
                folder: folder.as_std_path().to_owned(),
            });
        }
        ensure!(child.wait()?.success(), "it does not compile without warnings");
        tests.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
        Ok(tests)
    }

    /// Compiles and runs the examples in documentation.
    ///
    /// # Errors
    /// When one fails.
    pub(super) fn documentation(&self) -> anyhow::Result<()> {
        let mut command = developer_tool::cargo();
        command.args(["test", "--doc", "--quiet"]).args(self.selection());
        with_lints(&mut command)?;
        let output = command.output().context("cargo cannot be started")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let without_library = errors.contains("no library targets found");
        ensure!(output.status.success() || without_library, "an example fails:\n{said}{errors}");
        Ok(())
    }
}

/// Reads the name of a package from its id, such as `path+file:///checkout/engines/helm#0.1.0` or `…#helm@0.1.0`.
fn package_name(id: &str) -> String {
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

/// The page on which `cargo --timings` reports how long each crate took.
pub(super) fn report() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell which program this is")?;
    let target = own.ancestors().nth(2).map_or_else(|| root().join("target"), Path::to_owned);
    Ok(target.join("cargo-timings/cargo-timing.html"))
}

#[cfg(test)]
mod tests {
    use super::package_name;

    #[test]
    fn the_name_of_a_package_is_in_its_id() {
        assert_eq!(package_name("path+file:///a/engines/helm#0.1.0"), "helm");
        assert_eq!(package_name("path+file:///a/main#windlass@0.1.0"), "windlass");
    }
}
