//! Measures many Kustomizations with references in two cluster sizes: a restart, and one change among all of them.
//!
//! The costs of one change must not depend on the size of the cluster. All other costs must grow only as the number
//! of objects does. This module has the sizes, steps, table and verdict. `e2e::cluster_with_operator` starts everything,
//! `super::time_samples` judges the times, and `super::audit_log` counts requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::control_plane::OPERATOR;
use e2e::git_server::StoryGitRepository;
use e2e::process_usage;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;

use super::audit_log::{AuditLog, RequestPurpose};
use super::raw_client::RawApiClient;
use super::time_samples::{self, TimeSamples};
use super::{test_bed, workload};
use e2e::cluster_with_operator::{
    BuildProfile, ClusterWithOperator, ObjectWatch, WatchSelection, WatchedObject,
};
use testbed::progress::{bold, green, red, step};

/// The promised limit for 99 of 100 wake-ups, however many objects the cluster has.
const MAX_WAKE_DELAY: Duration = Duration::from_secs(1);

/// The promised growth: with ten times as many objects, time, CPU and memory are at most this number times ten as
/// high.
const MAX_GROWTH_RATIO: f64 = 1.3;

/// The time limit of a wait.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1800);

/// The namespace of all objects.
const NAMESPACE: &str = "settle";

/// How many objects the benchmark of restarts and single changes measures.
#[derive(Debug, Args)]
pub(crate) struct RestartAndChangeBenchOptions {
    /// The numbers of Kustomizations, the smaller first
    #[arg(default_values_t = [200, 2000], num_args = 1..)]
    sizes: Vec<usize>,
    /// How many objects each has; beside them it refers to a Secret of its own
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    objects: u16,
    /// How many objects, and how many Secrets, are changed by hand
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    changes: u16,
}

/// The costs with one cluster size.
struct RestartAndChangeCost {
    size: usize,
    /// The seconds from the first Kustomization until all were Ready.
    install: f64,
    install_cpu: f64,
    /// The seconds from the start of the process until every Kustomization had a run.
    settle: f64,
    settle_cpu: f64,
    /// The peak of memory of the restarted process, in MiB.
    peak: f64,
    /// The requests and CPU seconds for each changed object.
    requests: f64,
    change_cpu: f64,
    samples: Vec<TimeSamples>,
}

/// Measures and prints the tables.
///
/// # Errors
/// When a step did not end, or exceeded a promised limit.
pub(super) fn run(options: &RestartAndChangeBenchOptions) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let load = time_samples::load();
    let mut all = Vec::new();
    for &size in &options.sizes {
        ensure!(size > 0, "a size is at least 1");
        // Each size has its own control plane, because etcd keeps the space of deleted objects.
        let installation = ClusterWithOperator::start(
            &runtime,
            BuildProfile::Release,
            &["--requeue-dependency=10m"],
        )?;
        let repository = installation.git().repository("settle")?;
        let mut scene = RestartAndChangeBenchSetup { installation, repository, size, options };
        let taken = scene.measure(&runtime);
        all.push(taken.map_err(|error| scene.installation.explain(&error))?);
    }
    let passes = print(&all);
    time_samples::print_machine(&load);
    if !passes {
        bail!("a promise was not kept");
    }
    Ok(())
}

struct RestartAndChangeBenchSetup<'a> {
    installation: ClusterWithOperator,
    repository: StoryGitRepository,
    size: usize,
    options: &'a RestartAndChangeBenchOptions,
}

impl RestartAndChangeBenchSetup<'_> {
    fn measure(&mut self, runtime: &Runtime) -> anyhow::Result<RestartAndChangeCost> {
        let size = self.size;
        let cpu = self.cpu()?;
        let install = step(&format!("{size} Kustomizations"), || {
            runtime.block_on(self.install()).map(|it| it.as_secs_f64())
        })?;
        let install_cpu = self.cpu()? - cpu;
        let settle = step("a restart", || self.restart())?.as_secs_f64();
        let settle_cpu = self.cpu()?;
        let audit = AuditLog::at(self.installation.plane()?.state().audit_log())
            .context("the control plane has no audit log")?;
        let mark = audit.mark()?;
        let mut edited =
            TimeSamples::new("object edited by hand put back", MAX_WAKE_DELAY).judged_at(99);
        let mut referred =
            TimeSamples::new("Secret changed, what it fills in changed", MAX_WAKE_DELAY)
                .judged_at(99);
        let changes = usize::from(self.options.changes);
        step(&format!("{changes} edits by hand"), || {
            (0..changes).try_for_each(|number| {
                edited.add(runtime.block_on(self.edit(self.place(number)))?);
                Ok(())
            })
        })?;
        let change_cpu = (self.cpu()? - settle_cpu) / changes as f64;
        let work = audit.since(mark, OPERATOR)?.total(RequestPurpose::Work);
        step(&format!("{changes} Secrets changed"), || {
            (0..changes).try_for_each(|number| {
                referred.add(runtime.block_on(self.refer(self.place(number), number))?);
                Ok(())
            })
        })?;
        let peak = process_usage::peak_mebibytes(&self.installation.operators())?;
        Ok(RestartAndChangeCost {
            size,
            install,
            install_cpu,
            settle,
            settle_cpu,
            peak,
            requests: work as f64 / changes as f64,
            change_cpu,
            samples: vec![edited, referred],
        })
    }

    /// The number of the Kustomization that a change is about. The changes are spread over all Kustomizations.
    fn place(&self, number: usize) -> usize {
        number.wrapping_mul(7919) % self.size + 1
    }

    fn cpu(&self) -> anyhow::Result<f64> {
        process_usage::cpu_seconds(&self.installation.operators())
    }

    async fn install(&self) -> anyhow::Result<Duration> {
        let files: Vec<(String, String)> = (1..=self.size)
            .map(|it| (format!("{0}/{0}.yaml", name(it)), self.objects(it)))
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (&**path, &**text)).collect();
        self.repository.commit(&files, "All")?;
        let raw = RawApiClient::connect(&self.installation.kubeconfig()).await?;
        let mut first = vec![workload::namespace(NAMESPACE)];
        first.push(workload::source(
            "settle",
            &self.installation.git().url(&self.repository),
            "1h",
        ));
        first.extend((1..=self.size).map(|number| secret(number, 0)));
        for part in first.chunks(200) {
            raw.apply(&test_bed::prepare(part)?).await?;
        }
        let mut watch =
            ObjectWatch::begin(self.installation.client(), &[test_bed::kustomizations()]).await?;
        let begun = Instant::now();
        let all: Vec<String> = (1..=self.size).map(kustomization).collect();
        raw.apply(&test_bed::prepare(&all)?).await?;
        let mut ready = BTreeMap::new();
        while ready.len() < self.size {
            let what = format!("all Kustomizations ({} of {} are ready)", ready.len(), self.size);
            let seen = watch.next(&what, begun + SETTLE_TIMEOUT).await?;
            if seen.is_ready() {
                ready.entry(seen.name).or_insert(seen.at);
            }
        }
        Ok(begun.elapsed())
    }

    /// Ends the process and starts another one. It returns the time until each Kustomization had a run.
    fn restart(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.installation.restart()?;
        loop {
            let page = self.installation.metrics()?;
            if reconciliations(&page) >= self.size as f64 {
                return Ok(begun.elapsed());
            }
            self.installation.check()?;
            ensure!(
                begun.elapsed() < SETTLE_TIMEOUT,
                "{} of {} were reconciled",
                reconciliations(&page),
                self.size
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    async fn edit(&self, number: usize) -> anyhow::Result<Duration> {
        let name = format!("{}-1", name(number));
        let (api, mut watch) = config_map(&name).watch_alone(self.installation.client()).await?;
        let before = api.get(&name).await?.data["data"]["value"].clone();
        let begun = Instant::now();
        let patch = Patch::Merge(json!({"data": {"value": "edited"}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        let is_edited = |seen: &WatchedObject| seen.value("/data/value") == "edited";
        watch.until("the edit", SETTLE_TIMEOUT, is_edited).await?;
        let back = watch
            .until("it to be put back", SETTLE_TIMEOUT, |seen| *seen.value("/data/value") == before)
            .await?;
        Ok(back.at.saturating_duration_since(begun))
    }

    async fn refer(&self, number: usize, round: usize) -> anyhow::Result<Duration> {
        let (_, mut watch) = config_map(&format!("{}-1", name(number)))
            .watch_alone(self.installation.client())
            .await?;
        let raw = RawApiClient::connect(&self.installation.kubeconfig()).await?;
        let wanted = value(number, round + 1);
        let change = test_bed::prepare(&[secret(number, round + 1)])?;
        let begun = Instant::now();
        raw.apply(&change).await?;
        let is_new = |seen: &WatchedObject| seen.value("/data/value") == wanted.as_str();
        let seen = watch.until("the new value", SETTLE_TIMEOUT, is_new).await?;
        Ok(seen.at.saturating_duration_since(begun))
    }

    fn objects(&self, number: usize) -> String {
        let one = |object: u16| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}-{object}, namespace: {NAMESPACE}}}\n\
                 data: {{value: \"${{value}}\"}}\n",
                name(number)
            )
        };
        (1..=self.options.objects).map(one).collect()
    }
}

fn config_map(name: &str) -> WatchSelection {
    WatchSelection::of("v1", "ConfigMap").within(NAMESPACE).named(name)
}

fn name(number: usize) -> String {
    format!("k-{number:05}")
}

fn value(number: usize, round: usize) -> String {
    format!("{number}-{round}")
}

fn secret(number: usize, round: usize) -> String {
    let name = name(number);
    let value = value(number, round);
    let namespace = workload::NAMESPACE;
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         stringData: {{value: \"{value}\"}}\n"
    )
}

fn kustomization(number: usize) -> String {
    let name = name(number);
    let base = workload::kustomization(&name, "settle", &name, "1h", false);
    format!("{base}  postBuild: {{substituteFrom: [{{kind: Secret, name: {name}}}]}}\n")
}

/// How many Kustomizations have run, by a metrics page. With too many objects, the page has no series for each
/// object. Then it is the number of runs, because each object has one run at first.
fn reconciliations(page: &str) -> f64 {
    let all = "windlass_reconcile_duration_seconds_count{kind=\"Kustomization\"} ";
    let runs = page.lines().find_map(|line| line.strip_prefix(all)?.parse::<f64>().ok());
    if !page.contains("\ngotk_reconcile_duration_seconds_count{") {
        return runs.unwrap_or_default();
    }
    let lines = page.lines().filter(|line| {
        line.starts_with("gotk_reconcile_duration_seconds_count{")
            && line.contains("kind=\"Kustomization\"")
    });
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .map(|it| it.min(1.0))
        .sum()
}

/// Prints the tables, and returns whether all promised limits were kept.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(all: &[RestartAndChangeCost]) -> bool {
    let mut passes = true;
    println!("{}", bold("how much there is, and what it takes"));
    println!(
        "{:>14} {:>10} {:>10} {:>10} {:>10} {:>10} {:>16} {:>14}",
        "Kustomizations",
        "install s",
        "CPU s",
        "restart s",
        "CPU s",
        "peak MiB",
        "requests/change",
        "CPU ms/change"
    );
    for it in all {
        println!(
            "{:>14} {:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.1} {:>16.2} {:>14.2}",
            it.size,
            it.install,
            it.install_cpu,
            it.settle,
            it.settle_cpu,
            it.peak,
            it.requests,
            it.change_cpu * 1000.0
        );
    }
    if let [small, .., large] = all {
        let times = large.size as f64 / small.size as f64;
        let mut judge = |what: &str, ratio: f64, limit: f64| {
            let kept = ratio <= limit;
            passes &= kept;
            let verdict = if kept { green("PASS") } else { red("FAIL") };
            println!("{what:<40} ×{ratio:.2}  {verdict} (at most ×{limit:.2})");
        };
        judge("install, CPU", large.install_cpu / small.install_cpu, times * MAX_GROWTH_RATIO);
        judge("restart, CPU", large.settle_cpu / small.settle_cpu, times * MAX_GROWTH_RATIO);
        judge("memory", large.peak / small.peak, times * MAX_GROWTH_RATIO);
        judge("requests of a changed object", large.requests / small.requests, 1.1);
        judge("CPU of a changed object", large.change_cpu / small.change_cpu, MAX_GROWTH_RATIO);
    }
    for it in all {
        println!("{}", bold(&format!("{} Kustomizations", it.size)));
        time_samples::print(&it.samples);
        passes &= it.samples.iter().all(TimeSamples::passes);
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_once_for_each_kustomization() {
        let page = "# EOF\n\
                    gotk_reconcile_duration_seconds_count{kind=\"Kustomization\",name=\"a\",namespace=\"x\"} 3\n\
                    gotk_reconcile_duration_seconds_count{kind=\"Kustomization\",name=\"b\",namespace=\"x\"} 1\n\
                    gotk_reconcile_duration_seconds_count{kind=\"GitRepository\",name=\"a\",namespace=\"x\"} 1\n\
                    gotk_reconcile_duration_seconds_sum{kind=\"Kustomization\",name=\"a\",namespace=\"x\"} 9\n";
        assert_eq!(reconciliations(page), 2.0);
        let page = "windlass_reconcile_duration_seconds_count{kind=\"GitRepository\"} 1\n\
                    windlass_reconcile_duration_seconds_count{kind=\"Kustomization\"} 2001\n";
        assert_eq!(reconciliations(page), 2001.0);
    }

    #[test]
    fn a_kustomization_refers_to_a_secret_of_its_own() {
        let documents =
            goyaml::documents(kustomization(7).as_bytes(), &goyaml::YamlLimits::default()).unwrap();
        let spec = &documents[0].value["spec"];
        assert_eq!(spec["postBuild"]["substituteFrom"][0]["name"], "k-00007");
    }
}
