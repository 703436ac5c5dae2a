//! `cargo xtask replay` plans the last commits of a GitOps repository with `windlass plan`, and then applies them in
//! a cluster.
//!
//! A plan is right if, for each applier, it names the objects that the cluster adds, changes and deletes. Nothing of
//! the repository is kept, and nothing is fetched from other hosts. `what_is_compared` explains the limits of that.
//!
//! This module has the command line, the order of commits and the table.
//! * `replayed_history` and `manifest_rewriting` make the commits with changed manifests.
//! * `plan_command` runs both programs, and `replay_cluster` the cluster.
//! * `inventories` reads what happened, and `verdict` compares it with the plan.

mod inventories;
mod manifest_rewriting;
mod plan_command;
mod replay_cluster;
mod replayed_history;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::cluster_with_operator::{BuildProfile, make, program};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::flux_objects::revision;
use objects::ObjectId;
use testbed::machine_requirements;
use testbed::progress::{dim, green, spell, step};
use tokio::runtime::Runtime;

use inventories::{ClusterInventories, InventoryChanges};
use manifest_rewriting::{ManifestRewriting, RewriteCounts};
use plan_command::{FluxLocalCommand, PlanCommand, TimedPlan};
use replay_cluster::{AddedPrerequisites, EntryKustomization, ReplayCluster};
use replayed_history::{ReplayedCommit, ReplayedHistory, clone_for_plans, remote_url};
use verdict::{ApplierBetweenCommits, ApplierVerdict, VerdictCounts, VerdictTally, id_of};

/// The largest share of verdicts that may be unknown, in percent.
const MAX_UNKNOWN_PERCENT: usize = 10;

/// How many reasons of unknown verdicts are printed.
const MAX_SHOWN_REASONS: usize = 40;

/// How many characters of a reason are printed.
const MAX_REASON_CHARACTERS: usize = 400;

/// Which commits of which repository.
#[derive(Debug, Args)]
pub(crate) struct PlanReplayOptions {
    /// A clone of a GitOps repository, bare or not; its `HEAD` is the last commit
    clone: PathBuf,
    /// The folder that its cluster applies first, as for `windlass plan --path`
    #[arg(long, value_name = "DIR")]
    path: String,
    /// How many commits are planned and applied; merges count once
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    commits: u16,
    /// The Kustomization that applies that folder, where the repository declares it; its source has the same name
    #[arg(long, default_value = "flux-system/flux-system", value_name = "NAMESPACE/NAME")]
    kustomization: String,
    /// The URL by which GitRepositories name the repository [default: that of the remote `origin`]
    #[arg(long)]
    origin: Option<String>,
    /// Measure this flux-local for each commit, too
    #[arg(long, value_name = "PROGRAM")]
    flux_local: Option<PathBuf>,
}

/// Replays the commits, and prints the table.
///
/// # Errors
/// A plan was wrong, too much was unknown, or the test bed or a program failed.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(crate) fn run(options: &PlanReplayOptions) -> anyhow::Result<()> {
    step("what the machine needs", machine_requirements::ensure)?;
    step("windlass itself", || make(BuildProfile::Debug))?;
    let clone = std::path::absolute(&options.clone).context("the clone has no path")?;
    let (namespace, name) = options
        .kustomization
        .split_once('/')
        .context("--kustomization: write NAMESPACE/NAME, such as flux-system/flux-system")?;
    let entry = EntryKustomization {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        path: options.path.clone(),
    };
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("replay")?;
    let served_url = server.url(&repository);
    let origin = options.origin.clone().or_else(|| remote_url(&clone));
    let mut rewriting = ManifestRewriting::new(&served_url, origin.as_deref(), name);
    let steps = usize::from(options.commits);
    let history = step("the commits with manifests for the test bed", || {
        ReplayedHistory::make(&clone, steps, &repository, &mut rewriting)
    })?;
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let plans = PlanCommand {
        program: program(BuildProfile::Debug)?,
        clone: clone_for_plans(&repository, &served_url, folder.path())?,
        path: options.path.clone(),
        folder: folder.path().to_owned(),
    };
    let flux_local = options.flux_local.as_deref();
    let flux_local = flux_local.map(|it| FluxLocalCommand::new(it, &plans, &history.empty));
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let report = runtime.block_on(async {
        let cluster = ReplayCluster::begin(&repository, &served_url, entry).await?;
        let mut replay = PlanReplay {
            cluster,
            plans,
            flux_local: flux_local.transpose()?,
            rewriting,
            report: PlanReplayReport::default(),
        };
        replay.all(&history).await?;
        replay.end().await
    })?;
    print!("{}", report.text());
    report.judge()
}

/// The results of all commits.
#[derive(Debug, Default)]
struct PlanReplayReport {
    tally: VerdictTally,
    /// The first and the last commit of the run, as text.
    range: String,
    commits: usize,
    /// HelmReleases whose charts are in other sources.
    unrendered: BTreeSet<ObjectId>,
    rewrites: RewriteCounts,
    added: AddedPrerequisites,
    plan_times: Vec<Duration>,
    flux_local_times: Vec<Duration>,
    flux_local_failures: usize,
    settle_times: Vec<Duration>,
}

/// A replay that is under way.
struct PlanReplay<'r> {
    cluster: ReplayCluster<'r>,
    plans: PlanCommand,
    flux_local: Option<FluxLocalCommand>,
    rewriting: ManifestRewriting,
    report: PlanReplayReport,
}

impl PlanReplay<'_> {
    /// Applies the first commit. Then it plans and applies each of the others.
    async fn all(&mut self, history: &ReplayedHistory) -> anyhow::Result<()> {
        let (Some(first), Some(last)) = (history.commits.first(), history.commits.last()) else {
            bail!("there are no commits");
        };
        self.report.range = format!("{}\n  to {}", first.original, last.original);
        let everything = self.plans.plan(&history.empty, &first.sha)?;
        self.cluster.prepare(&everything.plan, &self.rewriting.kinds).await?;
        self.cluster.bootstrap(&first.sha).await?;
        let unsettled = self.cluster.settle(&revision(&first.sha)).await?;
        let of_cluster = inventories::appliers(&self.cluster.story.client).await?;
        ensure!(of_cluster.len() > 1, "`{}` declares no applier", self.plans.path);
        report_step(&first.original, &format!("applied, {} do not settle", unsettled.len()));
        for pair in history.commits.windows(2) {
            let [base, head] = pair else { continue };
            self.step(base, head).await.with_context(|| head.original.clone())?;
            self.report.commits += 1;
        }
        Ok(())
    }

    /// Plans a commit, applies it, and compares both.
    async fn step(&mut self, base: &ReplayedCommit, head: &ReplayedCommit) -> anyhow::Result<()> {
        let mut timed = self.plan(base, head)?;
        if self.cluster.prepare(&timed.plan, &self.rewriting.kinds).await? {
            // The facts of the cluster, such as scopes of kinds, include the added objects.
            timed = self.plan(base, head)?;
        }
        self.report.plan_times.push(timed.took);
        if let Some(flux_local) = &self.flux_local {
            match flux_local.time(&base.sha, &head.sha)? {
                Some(took) => self.report.flux_local_times.push(took),
                None => self.report.flux_local_failures += 1,
            }
        }
        let plan = timed.plan;
        let client = self.cluster.story.client.clone();
        let before = ClusterInventories::read(&client, &BTreeSet::new()).await?;
        let mut unrendered = self.cluster.unrendered_appliers(&before.appliers).await?;
        let begun = Instant::now();
        self.cluster.push(&head.sha).await?;
        let unsettled = self.cluster.settle(&revision(&head.sha)).await?;
        self.report.settle_times.push(begun.elapsed());
        let after = ClusterInventories::read(&client, &before.all_entries()).await?;
        unrendered.extend(self.cluster.unrendered_appliers(&after.appliers).await?);
        let observed = before.changes_until(&after);
        let predicted: BTreeMap<ObjectId, &plan::ApplierChange> =
            plan.appliers.iter().map(|it| (id_of(&it.applier), it)).collect();
        let base_revision = revision(&base.sha);
        let head_revision = revision(&head.sha);
        let mut counts = VerdictCounts::default();
        let nothing = InventoryChanges::default();
        let names: BTreeSet<&ObjectId> = observed.keys().chain(predicted.keys()).collect();
        for name in names.into_iter().filter(|it| !unrendered.contains(*it)) {
            let step = ApplierBetweenCommits {
                predicted: predicted.get(name).copied(),
                observed: observed.get(name).unwrap_or(&nothing),
                before: before.appliers.get(name),
                after: after.appliers.get(name),
                base: &base_revision,
                head: &head_revision,
            };
            let verdict = step.verdict();
            counts.add(&verdict);
            self.report.tally.add(name, &head.original, &verdict);
            if let ApplierVerdict::Wrong(lines) = &verdict {
                report_step(&name.subject(), &format!("WRONG: {}", lines.join("; ")));
            }
        }
        self.report.unrendered.extend(unrendered);
        if !unsettled.is_empty() {
            let names: Vec<String> = unsettled.iter().map(ObjectId::subject).collect();
            report_step(&head.original, &format!("not settled: {}", names.join(", ")));
        }
        report_step(&head.original, &counts.to_string());
        Ok(())
    }

    /// Plans a commit with the present facts of the cluster.
    fn plan(&self, base: &ReplayedCommit, head: &ReplayedCommit) -> anyhow::Result<TimedPlan> {
        self.plans.export_facts(self.cluster.story.kubeconfig())?;
        self.plans.plan(&base.sha, &head.sha)
    }

    async fn end(self) -> anyhow::Result<PlanReplayReport> {
        let ReplayCluster { story, added, .. } = self.cluster;
        story.end().await?;
        Ok(PlanReplayReport { added, rewrites: self.rewriting.counts, ..self.report })
    }
}

/// Prints the progress of the replay.
fn report_step(what: &str, text: &str) {
    eprintln!("  {what} {}", dim(text));
}

impl PlanReplayReport {
    /// The table with its explanation.
    fn text(&self) -> String {
        let mut text = format!("{} commits, from {}\n\n", self.commits, self.range);
        text.push_str(&self.table());
        text.push_str(&what_is_compared(self));
        text.push_str(&self.times());
        if !self.tally.reasons.is_empty() {
            text.push_str("\nunknown:\n");
        }
        for (reason, count) in self.tally.reasons.iter().take(MAX_SHOWN_REASONS) {
            let reason: String = reason.chars().take(MAX_REASON_CHARACTERS).collect();
            text.push_str(&format!("  {count} x {reason}\n"));
        }
        let more = self.tally.reasons.len().saturating_sub(MAX_SHOWN_REASONS);
        if more > 0 {
            text.push_str(&format!("  and {more} more reasons\n"));
        }
        for wrong in &self.tally.wrong {
            text.push_str(&format!("\nWRONG: {wrong}\n"));
        }
        text
    }

    /// The table. It has a row for each applier, except those where nothing changed.
    fn table(&self) -> String {
        let is_quiet = |it: &VerdictCounts| it.unchanged == it.total();
        let width = self.tally.appliers.keys().map(|it| it.subject().len()).max();
        let width = width.unwrap_or_default().max(40);
        let row = |name: &str, it: &VerdictCounts| {
            let VerdictCounts { unchanged, equal, unknown, wrong } = it;
            format!("{name:<width$} {unchanged:>9} {equal:>7} {unknown:>7} {wrong:>7}\n")
        };
        let head = ["applier", "unchanged", "equal", "unknown", "wrong"];
        let [name, unchanged, equal, unknown, wrong] = head;
        let mut text =
            format!("{name:<width$} {unchanged:>9} {equal:>7} {unknown:>7} {wrong:>7}\n");
        let mut quiet = VerdictCounts::default();
        let mut quiet_appliers = 0;
        for (applier, counts) in &self.tally.appliers {
            if is_quiet(counts) {
                quiet_appliers += 1;
                quiet.unchanged += counts.unchanged;
            } else {
                text.push_str(&row(&applier.subject(), counts));
            }
        }
        text.push_str(&row(&format!("{quiet_appliers} appliers that never changed"), &quiet));
        text.push_str(&row("all", &self.tally.sums()));
        text
    }

    fn times(&self) -> String {
        let mut text = String::from("\ntimes (median, longest):\n");
        let of_flux_local = format!("flux-local diff ks ({} failed)", self.flux_local_failures);
        for (name, times) in [
            ("windlass plan", &self.plan_times),
            (of_flux_local.as_str(), &self.flux_local_times),
            ("until the cluster settled", &self.settle_times),
        ] {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            if let (Some(median), Some(longest)) = (sorted.get(sorted.len() / 2), sorted.last()) {
                text.push_str(&format!("  {name}: {}, {}\n", spell(*median), spell(*longest)));
            }
        }
        if self.flux_local_failures > 0 && self.flux_local_times.is_empty() {
            text.push_str(&format!("  {of_flux_local}: never succeeded\n"));
        }
        text
    }

    /// # Errors
    /// A verdict is wrong, or too many are unknown.
    fn judge(&self) -> anyhow::Result<()> {
        let sums = self.tally.sums();
        ensure!(sums.wrong == 0, "{} predictions are wrong", sums.wrong);
        let share = sums.unknown * 100 / sums.total().max(1);
        ensure!(
            sums.unknown * 100 <= sums.total() * MAX_UNKNOWN_PERCENT,
            "{} of {} verdicts are unknown ({share} %, at most {MAX_UNKNOWN_PERCENT} % may be)",
            sums.unknown,
            sums.total()
        );
        let said = format!("✔ nothing was wrong, {share} % unknown");
        eprintln!("{}", green(&said));
        Ok(())
    }
}

/// Explains which appliers the numbers include, and how the repository was changed.
fn what_is_compared(report: &PlanReplayReport) -> String {
    let PlanReplayReport { unrendered, rewrites, added, tally, .. } = report;
    let sums = tally.sums();
    let changed = sums.equal + sums.unknown + sums.wrong;
    let names = |all: &BTreeSet<String>| match all.len() {
        0 => "none".to_owned(),
        count => {
            format!("{count} ({})", all.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "\nEach number is an applier at a commit. Compared are the ids of objects that are added, changed, deleted, left and \
         moved; `unchanged` is where nothing was predicted and nothing happened, so {changed} of {} say something.\n\
         Charts of other hosts are not fetched: {} HelmReleases count as objects of their Kustomizations, and are not rendered.\n\
         Changed on both sides, in documents of all commits: {} without health checks and `wait`, {} without `spec.decryption`, \
         {} encrypted by SOPS with values made of their ciphertext, {} GitRepositories that fetch from the test bed.\n\
         Added to the cluster: definitions without a schema: {}; namespaces: {}; ConfigMaps and Secrets that are substituted: \
         {}. Deletions are not limited by a budget. The plan has the facts of this cluster.\n",
        sums.total(),
        unrendered.len(),
        rewrites.health,
        rewrites.decryption,
        rewrites.encrypted,
        rewrites.sources,
        names(&added.definitions),
        names(&added.namespaces),
        names(&added.references),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> PlanReplayReport {
        let mut report = PlanReplayReport { commits: 2, ..PlanReplayReport::default() };
        let id = |name: &str| {
            ObjectId::new("apps", name, manifest_rewriting::KUSTOMIZE_GROUP, "Kustomization")
        };
        for commit in ["one", "two"] {
            report.tally.add(&id("web"), commit, &ApplierVerdict::Equal);
            report.tally.add(&id("quiet"), commit, &ApplierVerdict::Unchanged);
        }
        report
    }

    #[test]
    fn the_table_has_a_row_for_each_applier_that_changed() {
        let text = report().text();
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["Kustomization/apps/web", "0", "2", "0", "0"]), "{text}");
        assert!(rows.contains(&vec!["all", "2", "2", "0", "0"]), "{text}");
        assert!(!text.contains("Kustomization/apps/quiet"), "{text}");
    }

    #[test]
    fn one_wrong_prediction_or_too_much_that_is_unknown_fails() {
        let id = ObjectId::new("apps", "other", "", "Kustomization");
        assert!(report().judge().is_ok());
        let mut wrong = report();
        wrong.tally.add(&id, "one", &ApplierVerdict::Wrong(vec!["a".to_owned()]));
        assert!(wrong.judge().is_err());
        let mut unknown = report();
        unknown.tally.add(&id, "one", &ApplierVerdict::Unknown("a".to_owned()));
        assert!(unknown.judge().is_err(), "one of five is more than a tenth");
    }
}
