//! Many Kustomizations and HelmReleases of one GitRepository, spread over namespaces. Their objects are small
//! ConfigMaps.
//!
//! This module has their numbers, the files of the repository and the manifests. `super::session` uses them, and
//! `crate::workload` has the objects of other measurements.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::workload;

/// The name of the GitRepository and of the HelmChart.
pub(crate) const SOURCE: &str = "tenants";

/// The name of the ConfigMap that all objects read if they share one.
pub(crate) const SHARED_VARIABLES: &str = "shared-variables";

/// How many variables the shared ConfigMap has.
const SHARED_VARIABLE_COUNT: usize = 200;

/// The key of the shared ConfigMap with values for Helm. It is also the name of a variable.
const VALUES_KEY: &str = "helm_values";

/// An interval longer than any measurement. With ten thousand objects and an hour, some object would be due in every
/// second, and windlass would never be idle.
pub(crate) const INTERVAL: &str = "24h";

/// The numbers of objects, and their namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct TenantWorkload {
    pub(crate) kustomizations: usize,
    pub(crate) helm_releases: usize,
    /// How many objects the Kustomizations and HelmReleases apply together. Each of them applies at least one.
    pub(crate) objects: usize,
    /// The number of namespaces.
    pub(crate) namespaces: usize,
    /// Whether all objects are in the namespace of the source instead, and read one ConfigMap.
    pub(crate) shares_variables: bool,
}

/// The versions of a Kustomization's objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkloadObjectVersions {
    /// The version of the first object.
    pub(crate) first: u32,
    /// The version of all other objects.
    pub(crate) others: u32,
}

impl WorkloadObjectVersions {
    /// The same version for all objects.
    pub(crate) fn all(round: u32) -> Self {
        Self { first: round, others: round }
    }
}

impl TenantWorkload {
    /// A workload of this size times the factor, with at least one object of each kind.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        let scale = |count: usize| ((count as f64 * factor).round() as usize).max(1);
        Self {
            kustomizations: scale(self.kustomizations),
            helm_releases: scale(self.helm_releases),
            objects: scale(self.objects),
            namespaces: scale(self.namespaces),
            ..self
        }
    }

    /// How many Kustomizations and HelmReleases there are.
    pub(crate) fn appliers(&self) -> usize {
        self.kustomizations + self.helm_releases
    }

    /// How many objects each HelmRelease applies.
    fn objects_of_release(&self) -> usize {
        (self.objects / self.appliers()).max(1)
    }

    /// How many objects a Kustomization applies. All objects that the HelmReleases do not have are spread evenly.
    fn objects_of(&self, number: usize) -> usize {
        let left = self.objects.saturating_sub(self.helm_releases * self.objects_of_release());
        let more = usize::from(number <= left % self.kustomizations);
        (left / self.kustomizations + more).max(1)
    }

    /// How long a step with all objects may take.
    pub(crate) fn limit(&self) -> Duration {
        let objects = self.objects.max(self.appliers());
        Duration::from_secs(300 + (self.appliers() / 2 + objects / 20) as u64)
    }

    /// The names of the tenants' namespaces that have to be created. Empty if all tenants share variables.
    pub(crate) fn namespace_names(&self) -> Vec<String> {
        match self.shares_variables {
            true => Vec::new(),
            false => (0..self.namespaces).map(|number| format!("tenant-{number:04}")).collect(),
        }
    }

    /// The namespace of a Kustomization or a HelmRelease, and of its objects.
    pub(crate) fn namespace(&self, number: usize) -> String {
        match self.shares_variables {
            true => workload::NAMESPACE.to_owned(),
            false => format!("tenant-{:04}", number % self.namespaces),
        }
    }

    /// The names of all Kustomizations.
    pub(crate) fn kustomization_names(&self) -> impl Iterator<Item = String> {
        (1..=self.kustomizations).map(kustomization_name)
    }

    /// The names of all HelmReleases.
    pub(crate) fn release_names(&self) -> impl Iterator<Item = String> {
        (1..=self.helm_releases).map(release_name)
    }

    /// All files of the repository in a round.
    pub(crate) fn files(&self, round: u32) -> Vec<(String, String)> {
        let rounds = WorkloadObjectVersions::all(round);
        let mut files: Vec<(String, String)> =
            (1..=self.kustomizations).map(|number| self.file(number, rounds)).collect();
        files.push((
            "chart/Chart.yaml".to_owned(),
            format!("apiVersion: v2\nname: {SOURCE}\nversion: {}\n", chart_version(round)),
        ));
        files.push(("chart/values.yaml".to_owned(), "tenant: none\n".to_owned()));
        files.push(("chart/templates/objects.yaml".to_owned(), self.template(round)));
        files
    }

    /// The file of a Kustomization, and its path.
    pub(crate) fn file(&self, number: usize, rounds: WorkloadObjectVersions) -> (String, String) {
        let name = kustomization_name(number);
        let namespace = self.namespace(number);
        let one = |object: usize| {
            let round = if object == 1 { rounds.first } else { rounds.others };
            let more = match self.shares_variables {
                true => format!(", shared: \"${{{}}}\"", variable(object)),
                false => String::new(),
            };
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}-{object}, namespace: {namespace}}}\n\
                 data: {{round: \"{round}\"{more}}}\n"
            )
        };
        let text = (1..=self.objects_of(number)).map(one).collect();
        (format!("tenants/{name}/objects.yaml"), text)
    }

    /// The only template of the chart.
    fn template(&self, round: u32) -> String {
        let one = |object: usize| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: \"{{{{ .Release.Name }}}}-{object}\"}}\n\
                 data: {{round: \"{round}\", tenant: \"{{{{ .Values.tenant }}}}\"}}\n"
            )
        };
        (1..=self.objects_of_release()).map(one).collect()
    }

    /// The HelmChart that all HelmReleases use.
    pub(crate) fn helm_chart(&self) -> String {
        let namespace = workload::NAMESPACE;
        format!(
            "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {{name: {SOURCE}, namespace: {namespace}}}
spec:
  chart: ./chart
  interval: {INTERVAL}
  sourceRef: {{kind: GitRepository, name: {SOURCE}}}
"
        )
    }

    /// The GitRepository at a URL.
    pub(crate) fn source(&self, url: &str) -> String {
        workload::source(SOURCE, url, INTERVAL)
    }

    /// The manifests of all Kustomizations and HelmReleases.
    pub(crate) fn manifests(&self) -> Vec<String> {
        let kustomizations = (1..=self.kustomizations).map(|number| self.kustomization(number));
        let releases = (1..=self.helm_releases).map(|number| self.release(number));
        kustomizations.chain(releases).collect()
    }

    fn kustomization(&self, number: usize) -> String {
        let name = kustomization_name(number);
        let namespace = self.namespace(number);
        let of_source = workload::NAMESPACE;
        let more = match self.shares_variables {
            true => format!(
                "  postBuild: {{substituteFrom: [{{kind: ConfigMap, name: {SHARED_VARIABLES}}}]}}\n"
            ),
            false => String::new(),
        };
        format!(
            "\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  sourceRef: {{kind: GitRepository, name: {SOURCE}, namespace: {of_source}}}
  path: ./tenants/{name}
  prune: true
  interval: {INTERVAL}
  timeout: 10m
{more}"
        )
    }

    fn release(&self, number: usize) -> String {
        let name = release_name(number);
        let namespace = self.namespace(number);
        let of_source = workload::NAMESPACE;
        let more = match self.shares_variables {
            true => format!(
                "  valuesFrom: [{{kind: ConfigMap, name: {SHARED_VARIABLES}, valuesKey: {VALUES_KEY}}}]\n"
            ),
            false => String::new(),
        };
        format!(
            "\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  interval: {INTERVAL}
  timeout: 10m
  releaseName: {name}
  chartRef: {{kind: HelmChart, name: {SOURCE}, namespace: {of_source}}}
  install: {{disableWait: true}}
  upgrade: {{disableWait: true}}
  driftDetection: {{mode: enabled}}
{more}"
        )
    }
}

/// The ConfigMap with variables that all objects read.
pub(crate) fn shared_variables() -> String {
    let variables = (1..=SHARED_VARIABLE_COUNT)
        .map(|number| (variable(number), format!("what variable {number} stands for")));
    let mut data: std::collections::BTreeMap<String, String> = variables.collect();
    data.insert(VALUES_KEY.to_owned(), "tenant: shared\n".to_owned());
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": SHARED_VARIABLES, "namespace": workload::NAMESPACE},
    })
    .to_string()
}

/// The version of the chart in a round.
pub(crate) fn chart_version(round: u32) -> String {
    format!("1.0.{round}")
}

/// The name of a ConfigMap of a Kustomization. The first one has the number 1.
pub(crate) fn object_name(number: usize, object: usize) -> String {
    format!("{}-{object}", kustomization_name(number))
}

fn kustomization_name(number: usize) -> String {
    format!("k-{number:05}")
}

fn release_name(number: usize) -> String {
    format!("h-{number:05}")
}

fn variable(number: usize) -> String {
    format!("v{:03}", (number - 1) % SHARED_VARIABLE_COUNT + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: TenantWorkload = TenantWorkload {
        kustomizations: 10_000,
        helm_releases: 2_000,
        objects: 100_000,
        namespaces: 500,
        shares_variables: false,
    };

    fn documents(text: &str) -> Vec<serde_json::Value> {
        let all = goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default()).unwrap();
        all.into_iter().map(|document| document.value.clone()).collect()
    }

    #[test]
    fn all_objects_together_are_as_many_as_wanted() {
        for workload in [WHOLE, WHOLE.scaled(0.1), WHOLE.scaled(0.003)] {
            let of_kustomizations: usize =
                (1..=workload.kustomizations).map(|it| workload.objects_of(it)).sum();
            let of_releases = workload.helm_releases * workload.objects_of_release();
            assert_eq!(of_kustomizations + of_releases, workload.objects, "{workload:?}");
        }
        assert_eq!(WHOLE.scaled(0.1).namespaces, 50);
        let tiny = WHOLE.scaled(0.000_001);
        assert_eq!((tiny.kustomizations, tiny.objects_of(1)), (1, 1), "none is empty");
    }

    #[test]
    fn a_push_of_one_object_changes_one_document_of_one_file() {
        let before = WHOLE.file(7, WorkloadObjectVersions::all(1));
        let after = WHOLE.file(7, WorkloadObjectVersions { first: 2, others: 1 });
        assert_eq!(before.0, after.0);
        let pairs = documents(&before.1).into_iter().zip(documents(&after.1));
        let changed: Vec<String> = pairs
            .filter(|(before, after)| before != after)
            .map(|(_, after)| after["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(changed, [object_name(7, 1)]);
    }

    #[test]
    fn every_text_is_a_manifest_and_shared_variables_are_read_by_both_kinds() {
        let shared = TenantWorkload { shares_variables: true, ..WHOLE.scaled(0.001) };
        for workload in [WHOLE.scaled(0.001), shared] {
            let all: Vec<_> = workload.manifests().iter().flat_map(|it| documents(it)).collect();
            assert_eq!(all.len(), workload.appliers());
            assert!(all.iter().all(|it| it["metadata"]["namespace"].is_string()), "{all:?}");
            let reads = |it: &serde_json::Value| {
                let spec = &it["spec"];
                let from = [&spec["postBuild"]["substituteFrom"], &spec["valuesFrom"]];
                from.iter().any(|it| it[0]["name"] == SHARED_VARIABLES)
            };
            assert!(all.iter().all(|it| reads(it) == workload.shares_variables));
            assert_eq!(documents(&workload.helm_chart())[0]["kind"], "HelmChart");
        }
        let variables = documents(&shared_variables()).remove(0);
        assert_eq!(variables["data"].as_object().unwrap().len(), SHARED_VARIABLE_COUNT + 1);
        let (_, text) = shared.file(1, WorkloadObjectVersions::all(1));
        assert!(text.contains("shared: \"${v001}\""), "{text}");
        assert!(shared.template(1).contains("name: \"{{ .Release.Name }}-1\""));
    }
}
