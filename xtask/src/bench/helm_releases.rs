//! Many HelmReleases of one chart: a ConfigMap, a Deployment with one Pod and a Service, in a namespace of its own each;
//! beside the raw client with the same objects.
//!
//! Here: the rounds. Elsewhere: the objects (`super::workload`), costs (`super::bed`), the verdict (`super::figures`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::git_server::Repository;
use tokio::runtime::Runtime;

use super::bed::{self, Bed, Target, Who};
use super::figures::{self, Comparison, Limits, Phase};
use super::samples;
use super::workload::{self, App, NAMESPACE};
use crate::installation::{Seen, Watch};
use crate::progress::step;

/// The promise: how many times as long as a client that applies the same objects a release takes, which also has its
/// records, its status and the waiting.
const PROMISE: f64 = 2.0;

/// The promise for installing a hundred and waiting: CPU seconds.
const HUNDRED: f64 = 1.5;

/// The promise for the memory at the peak of up to five hundred, in MiB.
const PEAK: f64 = 80.0;

/// How many objects the chart has.
const OBJECTS: usize = 3;

/// How much is measured how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many HelmReleases
    #[arg(value_parser = clap::value_parser!(u16).range(1..=2000))]
    count: u16,
    /// They wait until their Deployments are available; so does the raw client, by one watch
    #[arg(long)]
    wait: bool,
    /// How often each of both does it
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    target: Target,
}

impl Options {
    /// How long a piece of work may take; an operator that polls and does little at once needs long.
    fn limit(&self) -> Duration {
        Duration::from_secs(120 + 3 * u64::from(self.count))
    }

    fn limits(&self) -> Limits {
        Limits {
            ratio: self.wait.then_some(PROMISE),
            cpu: (self.count <= 100 && self.wait).then_some(HUNDRED),
            peak: (self.count <= 500).then_some(PEAK),
        }
    }
}

/// Measures and prints the table.
///
/// # Errors
/// When something was not released, or windlass took more than promised.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut bed = Bed::open(&runtime, &options.target)?;
    let load = samples::load();
    let measured = measure(&runtime, &bed, options);
    let comparison = measured.map_err(|error| bed.explain(error))?;
    let passes = comparison.passes();
    figures::print(options.target.output, &[comparison], &load);
    if !passes {
        bail!("a promise was not kept");
    }
    Ok(())
}

fn measure(runtime: &Runtime, bed: &Bed, options: &Options) -> anyhow::Result<Comparison> {
    let count = usize::from(options.count);
    let waiting = if options.wait { "until ready" } else { "without waiting" };
    let limits = if bed.is_windlass() { options.limits() } else { Limits::default() };
    let title = format!("{count} HelmReleases of {OBJECTS} objects, install, {waiting}");
    let mut install = Comparison::new(title, count * OBJECTS, limits);
    // Whoever does something for the first time learns what there is: connections, kinds, schemas.
    step("both once with one", || {
        runtime.block_on(async {
            Side::prepare(bed, options, Who::Raw, 0, 1).await?.install().await?;
            let operator = Side::prepare(bed, options, Who::Operator, 0, 1).await?;
            operator.install().await?;
            operator.remove().await
        })
    })?;
    for round in 1..=options.rounds {
        for who in [Who::Raw, Who::Operator] {
            let name = if who == Who::Raw { "raw client" } else { "operator" };
            step(&format!("round {round}: {name}"), || {
                runtime.block_on(async {
                    let side = Side::prepare(bed, options, who, round, count).await?;
                    install.add(who, side.install().await?);
                    side.remove().await
                })
            })?;
        }
    }
    runtime.block_on(bed.leave())?;
    Ok(install)
}

/// One of both in one round.
struct Side<'a> {
    bed: &'a Bed,
    options: &'a Options,
    who: Who,
    /// The value of the label, and the name of the GitRepository and of the HelmChart.
    work: String,
    apps: Vec<App>,
    repository: Repository,
}

impl<'a> Side<'a> {
    async fn prepare(
        bed: &'a Bed,
        options: &'a Options,
        who: Who,
        round: u16,
        count: usize,
    ) -> anyhow::Result<Self> {
        let work = format!("hr-{}", bed.work(who, round));
        let app = |number: usize| {
            let name = format!("{work}-{number:04}");
            App { namespace: name.clone(), name, work: work.clone(), replicas: 1 }
        };
        let apps: Vec<App> = (1..=count).map(app).collect();
        let names: Vec<String> = apps.iter().map(|app| app.namespace.clone()).collect();
        bed.create_namespaces(&names).await?;
        let repository = bed.git()?.repository(&work)?;
        Ok(Self { bed, options, who, work, apps, repository })
    }

    async fn install(&self) -> anyhow::Result<Phase> {
        match self.who {
            Who::Raw => self.raw().await,
            Who::Operator => self.release().await,
        }
    }

    /// Applies the objects as fast as can be and, if asked to, waits for them.
    async fn raw(&self) -> anyhow::Result<Phase> {
        let manifests: Vec<String> = self.apps.iter().map(manifests).collect();
        let objects = bed::prepare(&manifests)?;
        let mut watch = self.bed.watch_deployments(&self.work).await?;
        let before = self.bed.read(self.who)?;
        let begun = Instant::now();
        let mut times = self.bed.raw().apply(&objects).await?;
        if self.options.wait {
            let done = bed::rollouts(&mut watch, self.apps.len(), |_| true).await?;
            times = done.iter().map(|at| at.saturating_duration_since(begun)).collect();
        }
        self.bed.settle(&self.work, self.apps.len()).await?;
        self.bed.spent(&before, times)
    }

    async fn release(&self) -> anyhow::Result<Phase> {
        self.commit()?;
        self.bed.apply(&self.sources()?).await?;
        let limit = self.options.limit();
        let mut watch = Watch::begin(self.bed.client(), &bed::releases()).await?;
        let is_packed = |seen: &Seen| seen.is("HelmChart", &self.work) && seen.is_ready();
        watch.until("the chart", limit, is_packed).await?;
        let releases = bed::prepare(&self.releases())?;
        let before = self.bed.read(self.who)?;
        let begun = Instant::now();
        self.bed.raw().apply(&releases).await?;
        let mut ready = BTreeMap::new();
        let deadline = begun + limit;
        while ready.len() < self.apps.len() {
            let what = format!("the releases ({} of {} are there)", ready.len(), self.apps.len());
            let seen = watch.next(&what, deadline).await?;
            if seen.kind == "HelmRelease" && seen.is_ready() && seen.name.starts_with(&self.work) {
                ready.entry(seen.name).or_insert(seen.at);
            }
        }
        let times = ready.values().map(|at| at.saturating_duration_since(begun)).collect();
        self.bed.settle(&self.work, self.apps.len()).await?;
        self.bed.spent(&before, times)
    }

    /// Removes the releases, and waits until they are gone; what the raw client made stays.
    async fn remove(&self) -> anyhow::Result<()> {
        if self.who == Who::Raw {
            return Ok(());
        }
        let [all, _] = bed::releases();
        self.bed.remove_all(&self.releases(), &self.sources()?, &all).await
    }

    fn commit(&self) -> anyhow::Result<()> {
        let word = |text: &str| text.to_owned();
        let any = App {
            name: word("{{ .Release.Name }}"),
            namespace: word("{{ .Release.Namespace }}"),
            work: word("{{ .Values.work }}"),
            replicas: 1,
        };
        let files = [
            ("chart/Chart.yaml", word("apiVersion: v2\nname: app\nversion: 1.0.0\n")),
            ("chart/values.yaml", word("work: none\n")),
            ("chart/templates/app.yaml", manifests(&any)),
        ];
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, it)| (*path, it.as_str())).collect();
        self.repository.commit(&files, &self.work).map(drop)
    }

    fn sources(&self) -> anyhow::Result<Vec<String>> {
        let (work, url) = (&self.work, self.bed.git()?.url(&self.repository));
        let chart = format!(
            "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {{name: {work}, namespace: {NAMESPACE}}}
spec: {{chart: ./chart, interval: 10m, sourceRef: {{kind: GitRepository, name: {work}}}}}
"
        );
        Ok(vec![workload::source(work, &url, "10m"), chart])
    }

    fn releases(&self) -> Vec<String> {
        let (work, without) = (&self.work, !self.options.wait);
        let one = |App { name, namespace, .. }: &App| {
            format!(
                "\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  interval: 10m
  timeout: 10m
  releaseName: {name}
  targetNamespace: {namespace}
  storageNamespace: {namespace}
  chartRef: {{kind: HelmChart, name: {work}}}
  install: {{disableWait: {without}}}
  values: {{work: {work}}}
"
            )
        };
        self.apps.iter().map(one).collect()
    }
}

/// The objects of an application.
fn manifests(app: &App) -> String {
    let App { name, namespace, work, .. } = app;
    let label = workload::LABEL;
    format!(
        "{}---
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{app: {name}, {label}: {work}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80, targetPort: http}}]
",
        app.manifest(1)
    )
}
