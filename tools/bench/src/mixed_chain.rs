//! Measures a chain of a hundred objects of mixed kinds. Each waits for the previous one by `spec.dependsOn`.
//!
//! The objects are Kustomizations, HelmReleases, and ConfigMaps that these apply. This module creates the chain, and
//! measures how long each hop takes. `super::change_reaction_time` has a chain of Kustomizations with commits and drift, and
//! `super::push_chain` a long one for Flux's controllers, too. `e2e::cluster_with_operator` starts everything, and
//! `super::time_samples` judges the times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::runtime::Runtime;

use super::time_samples::{self, TimeSamples};
use super::{push_chain, workload};
use e2e::cluster_with_operator::{BuildProfile, ClusterWithOperator, ObjectWatch, WatchSelection};

/// How many objects the chain has.
const HOP_COUNT: usize = 100;

/// The promised limit for 95 of 100 hops.
const MAX_HOP_DELAY: Duration = Duration::from_millis(200);

/// The time limit for the whole chain. It is far below the interval of ten minutes, after which each object would run
/// anyway.
const CHAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// Every fifth hop depends on the ConfigMap that the previous object applies.
const CONFIG_MAP_EVERY: usize = 5;

const NAMESPACE: &str = "bench";

/// What is measured, with which build.
#[derive(Debug, Args)]
pub(crate) struct MixedChainBenchOptions {
    /// Measure a program that is not optimised
    #[arg(long)]
    debug: bool,
    /// Instead: a chain of so many Kustomizations, from a push until the last is Ready
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "50", conflicts_with = "debug",
        value_parser = clap::value_parser!(u16).range(2..=500))]
    kustomizations: Option<u16>,
    /// Flux's controllers with the same chain, on the same control plane; a hop takes them up to 30 s
    #[arg(long, requires = "kustomizations")]
    flux: bool,
}

/// Measures and prints the table.
///
/// # Errors
/// When a step did not end, or was slower than promised.
pub(super) fn run(options: &MixedChainBenchOptions) -> anyhow::Result<()> {
    if let Some(count) = options.kustomizations {
        return push_chain::run(count.into(), options.flux);
    }
    let build = if options.debug { BuildProfile::Debug } else { BuildProfile::Release };
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let mut installation =
        ClusterWithOperator::start(&runtime, build, &["--requeue-dependency=10m"])?;
    let load = time_samples::load();
    let measured = runtime.block_on(measure(&installation));
    let measured = measured.and_then(|hops| installation.check().map(|()| hops));
    let hops = [measured.map_err(|error| installation.explain(&error))?];
    time_samples::print(&hops);
    time_samples::print_machine(&load);
    if !hops.iter().all(TimeSamples::passes) {
        bail!("a promise was not kept");
    }
    Ok(())
}

async fn measure(installation: &ClusterWithOperator) -> anyhow::Result<TimeSamples> {
    let repository = installation.git().repository("mixed-chain")?;
    let files = files();
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    repository.commit(&files, "the chain")?;
    let url = installation.git().url(&repository);
    apply(installation, "namespace.yaml", &workload::namespace(NAMESPACE))?;
    apply(installation, "source.yaml", &workload::source("chain", &url, "10m"))?;
    apply(installation, "chain.yaml", &chain())?;
    let kinds = [
        WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        WatchSelection::of("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
    ];
    let selections = kinds.map(|it| it.within("flux-system"));
    let mut watch = ObjectWatch::begin(installation.client(), &selections).await?;
    let deadline = Instant::now() + CHAIN_TIMEOUT;
    let mut waiting = BTreeSet::new();
    while waiting.len() < HOP_COUNT {
        let seen = watch.next("the chain to wait for its first dependency", deadline).await?;
        if seen.message().contains("dependency '") {
            waiting.insert(seen.name);
        }
    }
    // From here on only a wake-up makes an object run in time.
    apply(installation, "start.yaml", &config_map(&hop(0)))?;
    let deadline = Instant::now() + CHAIN_TIMEOUT;
    let mut ready = BTreeMap::new();
    while ready.len() < HOP_COUNT {
        let what = format!("the chain to be applied ({} of {HOP_COUNT} are ready)", ready.len());
        let seen = watch.next(&what, deadline).await?;
        if seen.is_ready() {
            ready.entry(seen.name).or_insert(seen.at);
        }
    }
    let mut hops =
        TimeSamples::new("next of mixed kinds Ready after its dependency", MAX_HOP_DELAY);
    // The first hop is left out, because it also waited for a kubectl command.
    let mut times = ready.into_values();
    let mut before = times.next().context("nothing is ready")?;
    for at in times {
        hops.add(at.saturating_duration_since(before));
        before = before.max(at);
    }
    Ok(hops)
}

fn apply(installation: &ClusterWithOperator, name: &str, text: &str) -> anyhow::Result<()> {
    let file = installation.git().folder().join(name);
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    let file = file.display().to_string();
    installation.kubectl(&["apply", "--server-side", "-f", &file]).map(drop)
}

fn hop(number: usize) -> String {
    format!("hop-{number:03}")
}

fn is_release(number: usize) -> bool {
    number.is_multiple_of(2)
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n")
}

/// The files of the repository: a folder for each Kustomization, and the chart of all HelmReleases.
fn files() -> Vec<(String, String)> {
    let chart = "apiVersion: v2\nname: chain\nversion: 1.0.0\n".to_owned();
    let template =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n".to_owned();
    let mut files = vec![
        ("chart/Chart.yaml".to_owned(), chart),
        ("chart/templates/map.yaml".to_owned(), template),
    ];
    for number in (1..=HOP_COUNT).filter(|number| !is_release(*number)) {
        let name = hop(number);
        files.push((format!("{name}/map.yaml"), config_map(&name)));
    }
    files
}

/// The entry of `dependsOn` that names a hop.
fn dependency(number: usize) -> String {
    let before = number - 1;
    let name = hop(before);
    match before {
        before if before.is_multiple_of(CONFIG_MAP_EVERY) => {
            format!("{{apiVersion: v1, kind: ConfigMap, name: {name}, namespace: {NAMESPACE}}}")
        }
        before if is_release(before) => {
            format!("{{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: {name}}}")
        }
        _ => format!(
            "{{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, name: {name}}}"
        ),
    }
}

/// The manifests of the chain, and of the HelmChart.
fn chain() -> String {
    let mut text = "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: chain, namespace: flux-system}
spec:
  chart: ./chart
  sourceRef: {kind: GitRepository, name: chain}
  interval: 10m
"
    .to_owned();
    for number in 1..=HOP_COUNT {
        let name = hop(number);
        let depends = dependency(number);
        let object = match is_release(number) {
            true => format!(
                "---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {{name: {name}, namespace: flux-system}}
spec:
  dependsOn: [{depends}]
  chartRef: {{kind: HelmChart, name: chain}}
  releaseName: {name}
  targetNamespace: {NAMESPACE}
  interval: 10m
"
            ),
            false => format!(
                "---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: {name}, namespace: flux-system}}
spec:
  dependsOn: [{depends}]
  sourceRef: {{kind: GitRepository, name: chain}}
  path: ./{name}
  prune: true
  interval: 10m
  retryInterval: 10m
"
            ),
        };
        text.push_str(&object);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_has_edges_between_all_kinds() {
        let limits = goyaml::YamlLimits::default();
        let documents = goyaml::documents(chain().as_bytes(), &limits).unwrap();
        assert_eq!(documents.len(), HOP_COUNT + 1);
        let kinds: Vec<String> = (1..=HOP_COUNT)
            .map(|number| dependency(number).split(", ").nth(1).unwrap_or_default().to_owned())
            .collect();
        for (kind, count) in
            [("kind: ConfigMap", 20), ("kind: HelmRelease", 40), ("kind: Kustomization", 40)]
        {
            assert_eq!(kinds.iter().filter(|it| *it == kind).count(), count, "{kind}");
        }
    }
}
