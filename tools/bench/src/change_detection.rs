//! Measures whether windlass notices every change with many watches, after a time in which connections grow old.
//!
//! The objects are HelmReleases with a Secret of values each, and objects of many kinds. This module has the objects,
//! the changes, the table and the verdict. `e2e::cluster_with_operator` starts everything, and `super::time_samples` judges
//! the times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::git_server::StoryGitRepository;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;

use super::raw_client::RawApiClient;
use super::time_samples::{self, TimeSamples};
use super::{test_bed, workload};
use e2e::cluster_with_operator::{
    BuildProfile, ClusterWithOperator, ObjectWatch, WatchSelection, WatchedObject,
};
use testbed::progress::step;

/// The promised limit for the reaction to each change.
const MAX_REACTION_DELAY: Duration = Duration::from_secs(1);

/// The time limit of a wait. It is far below the interval, after which each object would run anyway.
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);

/// The time limit for the installation of all objects.
const INSTALL_LIMIT: Duration = Duration::from_secs(900);

const NAMESPACE: &str = workload::NAMESPACE;

/// The API group of the kinds.
const GROUP: &str = "bench.windlass.dev";

/// How many, and for how long.
#[derive(Debug, Args)]
pub(crate) struct ChangeDetectionBenchOptions {
    /// How many HelmReleases
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=2000))]
    releases: u16,
    /// How many kinds; each of the first releases has an object of one of them
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(0..=500))]
    kinds: u16,
    /// How many minutes pass before the changes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
}

/// Measures and prints the table.
///
/// # Errors
/// When windlass did not notice a change, or noticed it later than promised.
pub(super) fn run(options: &ChangeDetectionBenchOptions) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let load = time_samples::load();
    let installation = ClusterWithOperator::start(&runtime, BuildProfile::Release, &[])?;
    let repository = installation.git().repository("notice")?;
    let mut scene = ChangeDetectionBenchSetup { installation, repository, options };
    let measured = scene.measure(&runtime);
    let all = measured.map_err(|error| scene.installation.explain(&error))?;
    time_samples::print(&all);
    time_samples::print_machine(&load);
    if !all.iter().all(TimeSamples::passes) {
        bail!("a promise was not kept");
    }
    Ok(())
}

struct ChangeDetectionBenchSetup<'a> {
    installation: ClusterWithOperator,
    repository: StoryGitRepository,
    options: &'a ChangeDetectionBenchOptions,
}

impl ChangeDetectionBenchSetup<'_> {
    fn measure(&mut self, runtime: &Runtime) -> anyhow::Result<Vec<TimeSamples>> {
        let ChangeDetectionBenchOptions { releases, kinds, minutes } = *self.options;
        step(&format!("{releases} HelmReleases, {kinds} kinds"), || {
            runtime.block_on(self.install())
        })?;
        step(&format!("{minutes} min"), || {
            std::thread::sleep(Duration::from_secs(60 * minutes));
            Ok(())
        })?;
        let mut values =
            TimeSamples::new("Secret of values changed, object changed", MAX_REACTION_DELAY)
                .judged_at(100);
        let mut drift = TimeSamples::new("object of one of the kinds put back", MAX_REACTION_DELAY)
            .judged_at(100);
        step("every Secret changed", || {
            runtime.block_on(async {
                let raw = RawApiClient::connect(&self.installation.kubeconfig()).await?;
                let mut watch = self.watch(&WatchSelection::of("v1", "ConfigMap")).await?;
                for number in 1..=releases {
                    values.add(self.change(&raw, &mut watch, number).await?);
                }
                Ok(())
            })
        })?;
        step("an object of every kind edited by hand", || {
            runtime.block_on(async {
                for number in 1..=kinds.min(releases) {
                    drift.add(self.edit(number).await?);
                }
                Ok(())
            })
        })?;
        self.installation.check()?;
        let all = [values, drift];
        Ok(all.into_iter().filter(|it| kinds > 0 || !it.is_empty()).collect())
    }

    async fn install(&self) -> anyhow::Result<()> {
        let commit = [
            ("chart/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n"),
            ("chart/templates/app.yaml", TEMPLATE),
        ];
        self.repository.commit(&commit, "The chart")?;
        let raw = RawApiClient::connect(&self.installation.kubeconfig()).await?;
        let kinds: Vec<String> = (1..=self.options.kinds).map(crd).collect();
        for part in kinds.chunks(50) {
            raw.apply(&test_bed::prepare(part)?).await?;
        }
        let url = self.installation.git().url(&self.repository);
        let mut first = vec![workload::source("notice", &url, "1h"), CHART.to_owned()];
        first.extend((1..=self.options.releases).map(|number| secret(number, 0)));
        raw.apply(&test_bed::prepare(&first)?).await?;
        let mut watch =
            ObjectWatch::begin(self.installation.client(), &test_bed::releases()).await?;
        let all = (1..=self.options.releases).map(|it| release(it, it <= self.options.kinds));
        raw.apply(&test_bed::prepare(&all.collect::<Vec<_>>())?).await?;
        let deadline = Instant::now() + INSTALL_LIMIT;
        let mut ready = BTreeMap::new();
        while ready.len() < usize::from(self.options.releases) {
            let what = format!("all HelmReleases ({} are ready)", ready.len());
            let seen = watch.next(&what, deadline).await?;
            if seen.kind == "HelmRelease" && seen.is_ready() {
                ready.insert(seen.name, ());
            }
        }
        Ok(())
    }

    async fn watch(&self, selection: &WatchSelection) -> anyhow::Result<ObjectWatch> {
        let within = selection.clone().within(NAMESPACE);
        let mut watch = ObjectWatch::begin(self.installation.client(), &[within]).await?;
        watch.forget();
        Ok(watch)
    }

    async fn change(
        &self,
        raw: &RawApiClient,
        watch: &mut ObjectWatch,
        number: u16,
    ) -> anyhow::Result<Duration> {
        let change = test_bed::prepare(&[secret(number, 1)])?;
        let name = name(number);
        let wanted = value(number, 1);
        let begun = Instant::now();
        raw.apply(&change).await?;
        let is_new = |seen: &WatchedObject| {
            seen.name == name && seen.value("/data/value") == wanted.as_str()
        };
        let what = format!("the new value of {name}");
        let seen = watch.until(&what, ROUND_TIMEOUT, is_new).await?;
        Ok(seen.at.saturating_duration_since(begun))
    }

    async fn edit(&self, number: u16) -> anyhow::Result<Duration> {
        let name = name(number);
        let all = WatchSelection::of(&format!("{GROUP}/v1"), &kind(number)).within(NAMESPACE);
        let api = all.api(self.installation.client());
        let mut watch = self.watch(&all.named(&name)).await?;
        let patch = Patch::Merge(json!({"spec": {"value": "edited"}}));
        let begun = Instant::now();
        api.patch(&name, &PatchParams::default(), &patch).await?;
        let of = |seen: &WatchedObject| seen.value("/spec/value").clone();
        watch.until("the edit", ROUND_TIMEOUT, |seen| of(seen) == "edited").await?;
        let what = format!("{} {name} to be put back", kind(number));
        let back = watch.until(&what, ROUND_TIMEOUT, |seen| of(seen) == "fixed").await?;
        Ok(back.at.saturating_duration_since(begun))
    }
}

const TEMPLATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {value: {{ .Values.value | quote }}}
{{- with .Values.kind }}
---
apiVersion: bench.windlass.dev/v1
kind: {{ . }}
metadata: {name: {{ $.Release.Name }}}
spec: {value: fixed}
{{- end }}
";

const CHART: &str = "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: notice, namespace: flux-system}
spec: {chart: ./chart, interval: 1h, sourceRef: {kind: GitRepository, name: notice}}
";

fn name(number: u16) -> String {
    format!("release-{number:04}")
}

fn kind(number: u16) -> String {
    format!("Kind{number:03}")
}

fn value(number: u16, round: u16) -> String {
    format!("{number}-{round}")
}

fn crd(number: u16) -> String {
    let kind = kind(number);
    let plural = format!("{}s", kind.to_lowercase());
    format!(
        "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.{GROUP}}}
spec:
  group: {GROUP}
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

fn secret(number: u16, round: u16) -> String {
    let name = name(number);
    let value = value(number, round);
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
         stringData: {{values.yaml: \"value: {value}\"}}\n"
    )
}

fn release(number: u16, has_kind: bool) -> String {
    let name = name(number);
    let values = if has_kind { format!("{{kind: {}}}", kind(number)) } else { "{}".to_owned() };
    format!(
        "\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  interval: 1h
  releaseName: {name}
  chartRef: {{kind: HelmChart, name: notice}}
  driftDetection: {{mode: enabled}}
  valuesFrom: [{{kind: Secret, name: {name}}}]
  values: {values}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_a_manifest() {
        for text in [crd(1), secret(1, 0), release(1, true), release(2, false), CHART.to_owned()] {
            let documents =
                goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default()).unwrap();
            assert!(documents[0].value["kind"].as_str().is_some(), "{text}");
        }
        assert!(release(1, true).contains("Kind001") && !release(2, false).contains("Kind"));
    }
}
