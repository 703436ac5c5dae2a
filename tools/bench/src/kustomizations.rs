//! Measures many Kustomizations of one GitRepository. The raw client applies the same objects for comparison.
//!
//! Each Kustomization has a ConfigMap and a Deployment with one Pod in its own namespace. This module has the rounds:
//! an install, and with `--update` a commit that changes everything. `super::workload` makes the objects,
//! `super::test_bed` reads the costs, and `super::raw_client_comparison` gives the verdict.

use std::collections::BTreeSet;
use std::time::Instant;

use clap::{Args, ValueEnum};
use e2e::git_server::StoryGitRepository;
use tokio::runtime::Runtime;

use super::apply::MAX_TIME_RATIO;
use super::commit_arrivals::CommitArrivals;
use super::raw_client_comparison::{BenchComparison, BenchLimits, PhaseCost};
use super::round_options::{self, RawClientRound, RoundCountOptions};
use super::test_bed::{self, BenchTestbed, MeasuredProcess};
use super::workload::{self, WorkloadApp};
use e2e::cluster_with_operator::{ObjectWatch, WatchedObject};
use testbed::progress::step;

/// The promised CPU seconds and peak MiB for installing a hundred Kustomizations and waiting until they are healthy.
const MAX_HUNDRED_INSTALL_COST: (f64, f64) = (1.2, 60.0);

/// When the measurement of an installation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KustomizationBenchStart {
    /// The artifact is there, and the Kustomizations are created; that takes a part of the time
    Kustomizations,
    /// The Kustomizations are there and wait, and the artifact appears
    Artifact,
}

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct KustomizationBenchOptions {
    /// What an installation begins with
    #[arg(long, value_enum, default_value_t = KustomizationBenchStart::Kustomizations)]
    from: KustomizationBenchStart,
    #[command(flatten)]
    rounds: RoundCountOptions,
}

impl KustomizationBenchOptions {
    /// The options for one install of so many Kustomizations by the operator alone. It waits until they are healthy.
    pub(super) fn alone(count: u16) -> Self {
        Self {
            rounds: RoundCountOptions::alone(count),
            from: KustomizationBenchStart::Kustomizations,
        }
    }

    fn limits(&self) -> BenchLimits {
        let is_promised = self.rounds.count <= 100 && self.rounds.wait;
        BenchLimits {
            // Without waiting, the raw client ends before the Pods are ready. So no limit is promised then.
            ratio: self.rounds.wait.then_some(MAX_TIME_RATIO),
            cpu: is_promised.then_some(MAX_HUNDRED_INSTALL_COST.0),
            peak: is_promised.then_some(MAX_HUNDRED_INSTALL_COST.1),
            ..BenchLimits::default()
        }
    }
}

/// Measures and prints the tables.
///
/// # Errors
/// When something was not applied, or windlass took more than promised.
pub(super) fn run(options: &KustomizationBenchOptions) -> anyhow::Result<()> {
    round_options::run(&options.rounds.target, |runtime, bed| measure(runtime, bed, options))
}

/// Measures on an existing test bed.
///
/// # Errors
/// When a step does not end in time.
pub(super) fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    options: &KustomizationBenchOptions,
) -> anyhow::Result<Vec<BenchComparison>> {
    let count = usize::from(options.rounds.count);
    let waiting = if options.rounds.wait { "until healthy" } else { "without waiting for health" };
    let limits = if bed.is_windlass() { options.limits() } else { BenchLimits::default() };
    let title = |what: &str| format!("{count} Kustomizations of 2 objects, {what}, {waiting}");
    let mut install = BenchComparison::new(title("install"), count * 2, limits);
    // No limit is promised for an update.
    let mut update = BenchComparison::new(title("update"), count * 2, BenchLimits::default());
    // The first request of a client costs more, because the client opens connections and reads kinds and schemas.
    step("both once with one", || {
        runtime.block_on(async {
            if !options.rounds.is_alone {
                KustomizationBenchSide::prepare(bed, options, MeasuredProcess::Raw, 0, 1)
                    .await?
                    .install()
                    .await?;
            }
            let operator =
                KustomizationBenchSide::prepare(bed, options, MeasuredProcess::Operator, 0, 1)
                    .await?;
            operator.install().await?;
            operator.remove().await
        })
    })?;
    for round in 1..=options.rounds.rounds {
        let sides = step(&format!("round {round}: namespaces"), || {
            runtime.block_on(async {
                let mut sides = Vec::new();
                for &who in options.rounds.sides() {
                    sides.push(
                        KustomizationBenchSide::prepare(bed, options, who, round, count).await?,
                    );
                }
                Ok(sides)
            })
        })?;
        for side in &sides {
            step(&format!("round {round}: {}", side.name()), || {
                install.add(side.who, runtime.block_on(side.install())?);
                Ok(())
            })?;
        }
        for side in sides.iter().filter(|_| options.rounds.update) {
            step(&format!("round {round}: {}, update", side.name()), || {
                update.add(side.who, runtime.block_on(side.update())?);
                Ok(())
            })?;
        }
        // The objects of a round are removed, because the next round would count them as memory.
        step(&format!("round {round}: removal"), || {
            sides.iter().try_for_each(|side| runtime.block_on(side.remove()))
        })?;
    }
    runtime.block_on(bed.leave())?;
    let mut all = vec![install];
    all.extend(options.rounds.update.then_some(update));
    Ok(all)
}

/// The work of the raw client or of the operator in one round.
struct KustomizationBenchSide<'a> {
    bed: &'a BenchTestbed,
    options: &'a KustomizationBenchOptions,
    who: MeasuredProcess,
    /// The value of the workload label. The GitRepository has it as its name.
    work: String,
    apps: Vec<WorkloadApp>,
    repository: StoryGitRepository,
}

impl<'a> KustomizationBenchSide<'a> {
    /// Creates the namespaces and, for the operator, commits the files.
    async fn prepare(
        bed: &'a BenchTestbed,
        options: &'a KustomizationBenchOptions,
        who: MeasuredProcess,
        round: u16,
        count: usize,
    ) -> anyhow::Result<Self> {
        let work = bed.work(who, round);
        let apps = round_options::apps(bed, &work, count).await?;
        let repository = bed.git()?.repository(&work)?;
        Ok(Self { bed, options, who, work, apps, repository })
    }

    fn name(&self) -> &'static str {
        if self.who == MeasuredProcess::Raw { "raw client" } else { "operator" }
    }

    async fn install(&self) -> anyhow::Result<PhaseCost> {
        match (self.who, self.options.from) {
            (MeasuredProcess::Raw, _) => self.raw(1).await,
            (MeasuredProcess::Operator, KustomizationBenchStart::Kustomizations) => {
                self.install_kustomizations().await
            }
            (MeasuredProcess::Operator, KustomizationBenchStart::Artifact) => {
                self.install_artifact().await
            }
        }
    }

    async fn update(&self) -> anyhow::Result<PhaseCost> {
        if self.who == MeasuredProcess::Raw {
            return self.raw(2).await;
        }
        let mut watch = self.watch().await?;
        watch.forget();
        let commit = self.commit(2)?;
        let before = self.bed.read(self.who)?;
        self.bed.announce(&self.work, &commit).await?;
        let arrivals = self.arrivals(&commit, &mut watch).await?;
        self.bed.settle(&self.work, self.apps.len()).await?;
        self.bed.spent(&before, arrivals.since(arrivals.fetched))
    }

    /// Applies a version of the objects with the raw client.
    async fn raw(&self, version: u32) -> anyhow::Result<PhaseCost> {
        let manifests = self.manifests(version);
        let waits = self.options.rounds.wait;
        let deployments = self.apps.len();
        RawClientRound { work: &self.work, deployments, version, manifests, waits }
            .apply(self.bed)
            .await
    }

    async fn install_kustomizations(&self) -> anyhow::Result<PhaseCost> {
        let commit = self.commit(1)?;
        self.bed.apply(&[self.source()?]).await?;
        let is_there =
            |seen: &WatchedObject| seen.kind == "GitRepository" && seen.has_fetched(&commit);
        self.watch().await?.until("the artifact", self.options.rounds.limit(), is_there).await?;
        let kustomizations = test_bed::prepare(&self.kustomizations())?;
        let mut watch = self.watch().await?;
        let before = self.bed.read(self.who)?;
        let begun = Instant::now();
        self.bed.raw().apply(&kustomizations).await?;
        let arrivals = self.arrivals(&commit, &mut watch).await?;
        self.bed.settle(&self.work, self.apps.len()).await?;
        self.bed.spent(&before, arrivals.since(begun))
    }

    async fn install_artifact(&self) -> anyhow::Result<PhaseCost> {
        let commit = self.commit(1)?;
        let mut watch = self.watch().await?;
        self.bed.apply(&self.kustomizations()).await?;
        let mut ready_names = BTreeSet::new();
        let deadline = Instant::now() + self.options.rounds.limit();
        while ready_names.len() < self.apps.len() {
            let seen = watch.next("the Kustomizations to wait for their source", deadline).await?;
            if !seen.message().is_empty() {
                ready_names.insert(seen.name);
            }
        }
        let before = self.bed.read(self.who)?;
        self.bed.apply(&[self.source()?]).await?;
        let arrivals = self.arrivals(&commit, &mut watch).await?;
        self.bed.settle(&self.work, self.apps.len()).await?;
        self.bed.spent(&before, arrivals.since(arrivals.fetched))
    }

    /// Deletes the Flux objects, and waits until the objects that they applied are deleted. The objects of the raw
    /// client stay.
    async fn remove(&self) -> anyhow::Result<()> {
        if self.who == MeasuredProcess::Raw {
            return Ok(());
        }
        self.bed.remove(&self.kustomizations(), self.source()?).await
    }

    async fn watch(&self) -> anyhow::Result<ObjectWatch> {
        ObjectWatch::begin(self.bed.client(), &[test_bed::sources(), test_bed::kustomizations()])
            .await
    }

    async fn arrivals(
        &self,
        commit: &str,
        watch: &mut ObjectWatch,
    ) -> anyhow::Result<CommitArrivals> {
        CommitArrivals::of(commit, self.apps.len(), watch, self.options.rounds.limit()).await
    }

    fn commit(&self, version: u32) -> anyhow::Result<String> {
        let file = |app: &WorkloadApp| (format!("{}/app.yaml", app.name), app.manifest(version));
        let files: Vec<(String, String)> = self.apps.iter().map(file).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (&**path, &**it)).collect();
        self.repository.commit(&files, &format!("{} {version}", self.work))
    }

    fn manifests(&self, version: u32) -> Vec<String> {
        self.apps.iter().map(|app| app.manifest(version)).collect()
    }

    fn source(&self) -> anyhow::Result<String> {
        let url = self.bed.git()?.url(&self.repository);
        Ok(workload::source(&self.work, &url, "10m"))
    }

    fn kustomizations(&self) -> Vec<String> {
        let source = &self.work;
        let wait = self.options.rounds.wait;
        let one =
            |app: &WorkloadApp| workload::kustomization(&app.name, source, &app.name, "10m", wait);
        self.apps.iter().map(one).collect()
    }
}
