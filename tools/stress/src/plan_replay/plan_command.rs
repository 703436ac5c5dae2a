//! Runs `windlass plan` like a user. It also runs `flux-local diff`, to compare the times.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use plan::ChangePlan;
use testbed::progress::step;
use testbed::upstream_programs::UpstreamProgram;

use super::replayed_history::git_in;

/// The names of the two work trees that `flux-local diff` compares.
const WORK_TREES: [&str; 2] = ["base", "head"];

/// A command that runs `windlass plan` in a clone.
pub(super) struct PlanCommand {
    /// The path of windlass.
    pub(super) program: PathBuf,
    /// The clone of the repository.
    pub(super) clone: PathBuf,
    /// The folder of the entry point.
    pub(super) path: String,
    /// The folder with the facts, the chart cache and the user's settings.
    pub(super) folder: PathBuf,
}

/// A plan, and how long it took.
pub(super) struct TimedPlan {
    /// The plan.
    pub(super) plan: ChangePlan,
    /// How long the program ran.
    pub(super) took: Duration,
}

impl PlanCommand {
    /// Exports the facts of the cluster with the values of ConfigMaps. Later plans use them.
    ///
    /// # Errors
    /// windlass fails, or cannot read an object.
    pub(super) fn export_facts(&self, kubeconfig: &Path) -> anyhow::Result<()> {
        let file = self.facts_file().into_os_string();
        let kubeconfig = kubeconfig.as_os_str().to_owned();
        let fixed = ["plan", "facts", "--with-values", "--output"];
        let mut arguments: Vec<OsString> = fixed.into_iter().map(OsString::from).collect();
        arguments.extend([file, OsString::from("--kubeconfig"), kubeconfig]);
        let output = self.run(&arguments)?;
        if !output.status.success() {
            bail!("`windlass plan facts` failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Plans the change from one commit to another. It uses the facts if they were exported.
    ///
    /// # Errors
    /// windlass prints no plan.
    pub(super) fn plan(&self, base: &str, head: &str) -> anyhow::Result<TimedPlan> {
        let fixed = [
            "plan",
            "--output",
            "json",
            "--path",
            self.path.as_str(),
            "--base",
            base,
            "--head",
            head,
        ];
        let mut arguments: Vec<OsString> = fixed.into_iter().map(OsString::from).collect();
        let facts = self.facts_file();
        if facts.is_file() {
            arguments.extend([OsString::from("--facts"), facts.into_os_string()]);
        }
        let begun = Instant::now();
        // The exit status is 2 also if an applier cannot be rendered, for example because its chart is on another
        // host.
        let output = self.run(&arguments)?;
        let took = begun.elapsed();
        let plan = ChangePlan::from_untrusted_json(&output.stdout);
        let said = || {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("`windlass plan` from {base} to {head} gave no plan: {said}")
        };
        Ok(TimedPlan { plan: plan.with_context(said)?, took })
    }

    fn facts_file(&self) -> PathBuf {
        self.folder.join("facts.yaml")
    }

    fn run(&self, arguments: &[OsString]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.clone);
        command.env("HOME", &self.folder).env_remove("XDG_CACHE_HOME").env_remove("KUBECONFIG");
        command.output().with_context(|| format!("cannot start {}", self.program.display()))
    }
}

/// A command that runs `flux-local diff ks` over two work trees of a clone.
pub(super) struct FluxLocalCommand {
    program: PathBuf,
    folder: PathBuf,
    path: String,
    /// The value of `PATH`, which begins with the folders of flux, kustomize and helm.
    search_path: OsString,
}

impl FluxLocalCommand {
    /// Builds the programs that flux-local runs, and makes the work trees.
    ///
    /// # Errors
    /// A program cannot be built, or Git fails.
    pub(super) fn new(program: &Path, plans: &PlanCommand, sha: &str) -> anyhow::Result<Self> {
        let mut folders = Vec::new();
        for oracle in [UpstreamProgram::Flux, UpstreamProgram::Kustomize, UpstreamProgram::Helm] {
            let built = step(oracle.version(), || oracle.ensure())?;
            folders.extend(built.parent().map(Path::to_owned));
        }
        folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        for name in WORK_TREES {
            let place = plans.folder.join(name).display().to_string();
            git_in(&plans.clone, &["worktree", "add", "-q", "--detach", &place, sha])?;
        }
        Ok(Self {
            program: program.to_owned(),
            folder: plans.folder.clone(),
            path: plans.path.clone(),
            search_path: std::env::join_paths(folders)?,
        })
    }

    /// Measures how long flux-local takes for a commit. It gives none if flux-local fails.
    ///
    /// # Errors
    /// Git fails, or the program cannot be started.
    pub(super) fn time(&self, base: &str, head: &str) -> anyhow::Result<Option<Duration>> {
        let places = WORK_TREES.map(|name| self.folder.join(name));
        for (place, sha) in places.iter().zip([base, head]) {
            git_in(place, &["checkout", "-q", "--force", "--detach", sha])?;
        }
        let [before, after] = places.map(|place| place.join(&self.path));
        let mut command = Command::new(&self.program);
        command.args(["diff", "ks", "--all-namespaces", "--path"]).arg(&after);
        command.arg("--path-orig").arg(&before).current_dir(&after).env("PATH", &self.search_path);
        let begun = Instant::now();
        let output = command.output();
        let output = output.with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(output.status.success().then(|| begun.elapsed()))
    }
}
