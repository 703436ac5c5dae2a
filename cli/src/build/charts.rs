//! File access for builds, with charts that windlass's own Helm renders.
//!
//! If the folder of a chart from a repository does not exist, the program `helm` fetches it.
//! Elsewhere: choosing the charts (`kustomize`), rendering (`windlass_cli_helm::template`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use golang::work_meter::StopSignal;
use kustomize::{BuildFiles, ChartInflation, Error, RepositoryAddress, ResolvedPath};
use sources::remote_bases::without_credentials;
use sources::workstation_build_files::{self, WorkstationBuildFiles};

use windlass_cli_helm::template;
use windlass_runtime::time_limit::TimeLimit;

/// The disk, and the program that fetches charts.
#[derive(Debug)]
pub(super) struct ChartBuildFiles<'c> {
    pub(super) command: &'c str,
    pub(super) disk: WorkstationBuildFiles,
    pub(super) limit: &'c TimeLimit,
    /// Stops the build, including its charts.
    pub(super) stop: StopSignal,
}

impl BuildFiles for ChartBuildFiles<'_> {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error> {
        self.disk.resolve(path)
    }

    fn is_missing(&self, path: &str) -> bool {
        self.disk.is_missing(path)
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        self.disk.read(path)
    }

    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        self.limit.pause(|| self.disk.fetch(url))
    }

    fn checkout(&self, repository: &RepositoryAddress) -> Result<String, Error> {
        self.limit.pause(|| self.disk.checkout(repository))
    }

    fn prepare(&self, inflation: &ChartInflation) -> Result<(), Error> {
        let ChartInflation { chart, home: charts, .. } = inflation;
        let path = Path::new(charts).join(&chart.name);
        if path.is_dir() {
            return Ok(());
        }
        if chart.repo.is_empty() {
            // Parity(kustomize): the path is only said if something else is there.
            let shown = if path.exists() { path.display().to_string() } else { String::new() };
            return Err(Error::new(format!(
                "no repo specified for pull, no chart found at '{shown}'"
            )));
        }
        self.limit.pause(|| self.pull(inflation)).map_err(|error| {
            Error::new(format!(
                "{error}; charts from repositories are fetched by helm: install it, set --helm-command, or put the \
                 chart of {} into {}",
                without_credentials(&chart.repo),
                path.display()
            ))
        })
    }

    fn inflate(&self, inflation: &ChartInflation) -> Result<Vec<u8>, Error> {
        let args = template_args(inflation);
        template::render_for_overlay(&args, &inflation.values, &self.stop).map_err(|error| {
            // Parity(kustomize): the command is shown, so that a user can run it without kustomize.
            Error::new(format!("{error}: helm template {}", args.join(" ")))
        })
    }
}

/// The arguments of `helm template`, without the values file.
fn template_args(inflation: &ChartInflation) -> Vec<String> {
    let ChartInflation { chart, home, .. } = inflation;
    let name = if chart.release_name.is_empty() { "--generate-name" } else { &chart.release_name };
    let path = golang::path::join(home, &chart.name);
    let mut args = vec![name.to_owned(), path];
    let mut add = |flag: &str, value: &str| {
        if !value.is_empty() {
            args.extend([flag.to_owned(), value.to_owned()]);
        }
    };
    add("--namespace", &chart.namespace);
    add("--name-template", &chart.name_template);
    chart.additional_values_files.iter().for_each(|file| add("-f", file));
    chart.api_versions.iter().for_each(|version| add("--api-versions", version));
    add("--kube-version", &chart.kube_version);
    let flags = [
        ("--include-crds", chart.include_crds),
        ("--skip-tests", chart.skip_tests),
        ("--no-hooks", chart.skip_hooks),
        ("--debug", chart.debug),
        ("--devel", chart.devel),
    ];
    args.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned()));
    args
}

/// The folder in which Helm keeps its files during one call. It is deleted afterwards, unless the kustomization names it.
struct HelmHomeFolder {
    config: PathBuf,
    dir: PathBuf,
}

impl HelmHomeFolder {
    fn new(inflation: &ChartInflation) -> Result<Self, Error> {
        let unique = format!("windlass-helm-{}", std::process::id());
        let dir = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&dir).map_err(|error| {
            Error::new(format!("unable to create tmp dir for HELM_CONFIG_HOME: {error}"))
        })?;
        let config = match inflation.config_home.as_str() {
            "" => dir.join("helm"),
            path => PathBuf::from(path),
        };
        Ok(Self { config, dir })
    }
}

impl Drop for HelmHomeFolder {
    fn drop(&mut self) {
        // If the deletion fails, the folder remains among the temporary files.
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

impl ChartBuildFiles<'_> {
    /// Fetches a chart from a repository into its folder.
    fn pull(&self, inflation: &ChartInflation) -> Result<(), Error> {
        let home = HelmHomeFolder::new(inflation)?;
        let version = self.helm(&home, ["version", "--short"])?;
        check_version(&String::from_utf8_lossy(&version))?;
        let ChartInflation { chart, home: charts, .. } = inflation;
        let mut args = vec!["pull".to_owned(), "--untar".to_owned(), "--untardir".to_owned()];
        args.push(charts.clone());
        if chart.repo.starts_with("oci://") {
            args.push(format!("{}/{}", chart.repo.trim_end_matches('/'), chart.name));
        } else {
            args.extend(["--repo".to_owned(), chart.repo.clone(), chart.name.clone()]);
        }
        if !chart.version.is_empty() {
            args.extend(["--version".to_owned(), chart.version.clone()]);
        }
        if chart.devel {
            args.push("--devel".to_owned());
        }
        self.helm(&home, args).map(drop)
    }

    /// Runs Helm with these arguments in a home folder of its own, and returns what Helm prints.
    fn helm<S: AsRef<OsStr>>(
        &self,
        home: &HelmHomeFolder,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Vec<u8>, Error> {
        let args: Vec<_> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let config = home.config.display();
        let env = [
            ("HELM_CONFIG_HOME", config.to_string()),
            ("HELM_CACHE_HOME", format!("{config}/.cache")),
            ("HELM_DATA_HOME", format!("{config}/.data")),
        ];
        let shown = || {
            let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
            let env: Vec<String> =
                env.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let command = self.command;
            let args = args.join(" ");
            let env = env.join(" ");
            format!(
                "unable to run: '{command} {args}' with env=[{env}] (is '{command}' installed?)"
            )
        };
        let output = Command::new(self.command).args(&args).envs(env.clone()).output();
        let Output { status, stdout, stderr } = output.map_err(|error| {
            let command = self.command;
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound if !command.contains('/') => {
                    format!("exec: {command:?}: executable file not found in $PATH")
                }
                _ => format!("fork/exec {command}: {}", workstation_build_files::reason(&error)),
            };
            Error::new(format!("{}: {reason}", shown()))
        })?;
        if status.success() {
            return Ok(stdout);
        }
        let said = String::from_utf8_lossy(&stderr).into_owned();
        let status =
            status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"));
        let said = if said.is_empty() { said } else { format!("{said}: ") };
        Err(Error::new(format!("{said}{}: {status}", shown())))
    }
}

/// Refuses versions of Helm that are too old.
fn check_version(said: &str) -> Result<(), Error> {
    let version = said
        .split(|character: char| !(character.is_ascii_digit() || character == '.'))
        .find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()));
    let Some(version) = version else {
        return Err(Error::new(format!("cannot find version string in {said}")));
    };
    match version.split('.').next() {
        Some("3" | "4") => Ok(()),
        _ => Err(Error::new(format!("this plugin requires helm V3 or V4 but got v{version}"))),
    }
}
