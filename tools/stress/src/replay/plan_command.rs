//! `windlass plan` as a user runs it, and `flux-local diff` for the time that it takes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use plan::ChangePlan;
use testbed::oracle::OracleProgram;
use testbed::progress::step;

use super::replayed_history::git_in;

/// The work trees that `flux-local diff` compares.
const WORK_TREES: [&str; 2] = ["base", "head"];

/// `windlass plan` in a clone.
pub(super) struct PlanCommand {
    /// windlass.
    pub(super) program: PathBuf,
    /// The clone of the repository.
    pub(super) clone: PathBuf,
    /// The folder of the entry point.
    pub(super) path: String,
    /// Where facts, charts and settings of the user are.
    pub(super) folder: PathBuf,
}

/// A plan, and how long it took.
pub(super) struct TimedPlan {
    /// The plan.
    pub(super) plan: ChangePlan,
    /// From the start of the program to its end.
    pub(super) took: Duration,
}

impl PlanCommand {
    /// Exports the facts of the cluster, with values of ConfigMaps, for the plans from now on.
    ///
    /// # Errors
    /// windlass fails, or could not read something.
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

    /// What windlass says a commit changes, with the facts if they were exported.
    ///
    /// # Errors
    /// There is no plan.
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
        // The exit status is 2 if an applier cannot be rendered, too, such as a release whose chart is not here.
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

/// `flux-local diff ks` over two work trees of a clone.
pub(super) struct FluxLocalCommand {
    program: PathBuf,
    folder: PathBuf,
    path: String,
    /// `$PATH` with flux, kustomize and helm in front.
    search_path: OsString,
}

impl FluxLocalCommand {
    /// Makes the programs that flux-local runs, and the work trees.
    ///
    /// # Errors
    /// A program cannot be built, or Git fails.
    pub(super) fn new(program: &Path, plans: &PlanCommand, sha: &str) -> anyhow::Result<Self> {
        let mut folders = Vec::new();
        for oracle in [OracleProgram::Flux, OracleProgram::Kustomize, OracleProgram::Helm] {
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

    /// How long it takes for a commit; none if it fails.
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
