//! Many Kustomizations, each of a ConfigMap and a Deployment with one Pod in a namespace of its own, all of one
//! GitRepository; beside the raw client with the same objects.
//!
//! Here: the rounds: install, and with `--update` a commit that changes everything.
//! Elsewhere: the objects (`super::workload`), costs (`super::test_bed`), the verdict (`super::measurements`).

use std::collections::BTreeSet;
use std::time::Instant;

use clap::{Args, ValueEnum};
use e2e::git_server::StoryRepository;
use tokio::runtime::Runtime;

use super::apply::MAX_TIME_RATIO;
use super::commit_arrivals::Arrivals;
use super::measurements::{BenchLimits, Comparison, Phase};
use super::rounds::{self, RawRound, Rounds};
use super::test_bed::{self, BenchTestbed, Who};
use super::workload::{self, App};
use e2e::installation::{Watch, WatchedObject};
use testbed::progress::step;

/// The promise for installing a hundred and waiting until they are healthy: CPU seconds, and MiB at the peak.
const MAX_HUNDRED_INSTALL_COST: (f64, f64) = (1.2, 60.0);

/// When an installation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Begin {
    /// The artifact is there, and the Kustomizations are created; that takes a part of the time
    Kustomizations,
    /// The Kustomizations are there and wait, and the artifact appears
    Artifact,
}

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What an installation begins with
    #[arg(long, value_enum, default_value_t = Begin::Kustomizations)]
    from: Begin,
    #[command(flatten)]
    rounds: Rounds,
}

impl Options {
    /// One install of so many that wait, by the operator alone.
    pub(super) fn alone(count: u16) -> Self {
        Self { rounds: Rounds::alone(count), from: Begin::Kustomizations }
    }

    fn limits(&self) -> BenchLimits {
        let is_promised = self.rounds.count <= 100 && self.rounds.wait;
        BenchLimits {
            // Without waiting the raw client is done before Pods are; nothing is promised about that.
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
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    rounds::run(&options.rounds.target, |runtime, bed| measure(runtime, bed, options))
}

/// Measures on a bed that is there.
///
/// # Errors
/// When something was not done in time.
pub(super) fn measure(
    runtime: &Runtime,
    bed: &BenchTestbed,
    options: &Options,
) -> anyhow::Result<Vec<Comparison>> {
    let count = usize::from(options.rounds.count);
    let waiting = if options.rounds.wait { "until healthy" } else { "without waiting for health" };
    let limits = if bed.is_windlass() { options.limits() } else { BenchLimits::default() };
    let title = |what: &str| format!("{count} Kustomizations of 2 objects, {what}, {waiting}");
    let mut install = Comparison::new(title("install"), count * 2, limits);
    // Nothing is promised about it.
    let mut update = Comparison::new(title("update"), count * 2, BenchLimits::default());
    // The first request of a client costs more: it opens connections and reads kinds and schemas.
    step("both once with one", || {
        runtime.block_on(async {
            if !options.rounds.is_alone {
                Side::prepare(bed, options, Who::Raw, 0, 1).await?.install().await?;
            }
            let operator = Side::prepare(bed, options, Who::Operator, 0, 1).await?;
            operator.install().await?;
            operator.remove().await
        })
    })?;
    for round in 1..=options.rounds.rounds {
        let sides = step(&format!("round {round}: namespaces"), || {
            runtime.block_on(async {
                let mut sides = Vec::new();
                for &who in options.rounds.sides() {
                    sides.push(Side::prepare(bed, options, who, round, count).await?);
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
        // The objects of one round would count as memory of the next.
        step(&format!("round {round}: removal"), || {
            sides.iter().try_for_each(|side| runtime.block_on(side.remove()))
        })?;
    }
    runtime.block_on(bed.leave())?;
    let mut all = vec![install];
    all.extend(options.rounds.update.then_some(update));
    Ok(all)
}

/// One of both in one round.
struct Side<'a> {
    bed: &'a BenchTestbed,
    options: &'a Options,
    who: Who,
    /// The value of the label, and the name of the GitRepository.
    work: String,
    apps: Vec<App>,
    repository: StoryRepository,
}

impl<'a> Side<'a> {
    /// Its namespaces and, for the operator, its commit.
    async fn prepare(
        bed: &'a BenchTestbed,
        options: &'a Options,
        who: Who,
        round: u16,
        count: usize,
    ) -> anyhow::Result<Self> {
        let work = bed.work(who, round);
        let apps = rounds::apps(bed, &work, count).await?;
        let repository = bed.git()?.repository(&work)?;
        Ok(Self { bed, options, who, work, apps, repository })
    }

    fn name(&self) -> &'static str {
        if self.who == Who::Raw { "raw client" } else { "operator" }
    }

    async fn install(&self) -> anyhow::Result<Phase> {
        match (self.who, self.options.from) {
            (Who::Raw, _) => self.raw(1).await,
            (Who::Operator, Begin::Kustomizations) => self.install_kustomizations().await,
            (Who::Operator, Begin::Artifact) => self.install_artifact().await,
        }
    }

    async fn update(&self) -> anyhow::Result<Phase> {
        if self.who == Who::Raw {
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

    /// Applies a version of the objects by the raw client.
    async fn raw(&self, version: u32) -> anyhow::Result<Phase> {
        let manifests = self.manifests(version);
        let waits = self.options.rounds.wait;
        let deployments = self.apps.len();
        RawRound { work: &self.work, deployments, version, manifests, waits }.apply(self.bed).await
    }

    async fn install_kustomizations(&self) -> anyhow::Result<Phase> {
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

    async fn install_artifact(&self) -> anyhow::Result<Phase> {
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

    /// Deletes the Flux objects, and waits until what they applied is gone; what the raw client made stays.
    async fn remove(&self) -> anyhow::Result<()> {
        if self.who == Who::Raw {
            return Ok(());
        }
        self.bed.remove(&self.kustomizations(), self.source()?).await
    }

    async fn watch(&self) -> anyhow::Result<Watch> {
        Watch::begin(self.bed.client(), &[test_bed::sources(), test_bed::kustomizations()]).await
    }

    async fn arrivals(&self, commit: &str, watch: &mut Watch) -> anyhow::Result<Arrivals> {
        Arrivals::of(commit, self.apps.len(), watch, self.options.rounds.limit()).await
    }

    fn commit(&self, version: u32) -> anyhow::Result<String> {
        let file = |app: &App| (format!("{}/app.yaml", app.name), app.manifest(version));
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
        let one = |app: &App| workload::kustomization(&app.name, source, &app.name, "10m", wait);
        self.apps.iter().map(one).collect()
    }
}
