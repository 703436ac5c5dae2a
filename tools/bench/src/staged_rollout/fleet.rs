//! Kustomizations of one GitRepository in many clusters and some waves.
//!
//! This module has the files of the repository, the manifests, and the order in which the Kustomizations become Ready.
//! A cluster is the Secret with its kubeconfig. All kubeconfigs are for the same API server, and each cluster has a
//! namespace of its own there.

use std::time::Instant;

use serde_json::{Value, json};

use crate::scale::tenant_workload::INTERVAL;
use crate::workload::{self, LABEL, NAMESPACE};

/// The name of the GitRepository and of the StagedRollout. It is also the label by which the rollout selects.
pub(super) const FLEET: &str = "fleet";

/// The numbers of Kustomizations, waves and clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StagedRolloutFleet {
    pub(super) kustomizations: usize,
    pub(super) waves: usize,
    pub(super) clusters: usize,
}

impl StagedRolloutFleet {
    /// The cluster of a Kustomization. Neighbors are in the same cluster.
    fn cluster(&self, number: usize) -> String {
        format!("{FLEET}-cluster-{:03}", number * self.clusters / self.kustomizations)
    }

    /// The wave of a Kustomization, beginning with 0. Later numbers are never in an earlier wave.
    fn wave(&self, number: usize) -> usize {
        number * self.waves / self.kustomizations
    }

    /// The namespace of each cluster. It has the same name as the Secret with the kubeconfig.
    pub(super) fn namespaces(&self) -> Vec<String> {
        let mut names: Vec<String> =
            (0..self.kustomizations).map(|number| self.cluster(number)).collect();
        names.dedup();
        names
    }

    /// The Secrets with the kubeconfigs of the clusters.
    pub(super) fn kubeconfigs(&self, kubeconfig: &str) -> Vec<String> {
        let secret = |name: &String| {
            let metadata = json!({"name": name, "namespace": NAMESPACE});
            let data = json!({"value": kubeconfig});
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
                .to_string()
        };
        self.namespaces().iter().map(secret).collect()
    }

    /// All files of the repository in a version. Each version changes both objects of each Kustomization.
    pub(super) fn files(&self, version: u32) -> Vec<(String, String)> {
        let file = |number: usize| {
            let name = kustomization_name(number);
            let namespace = self.cluster(number);
            let object = |object: usize| {
                format!(
                    "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}-{object}, namespace: {namespace}}}\n\
                     data: {{version: \"{version}\"}}\n"
                )
            };
            let objects: String = (1..=2).map(object).collect();
            (format!("{name}/objects.yaml"), objects)
        };
        (0..self.kustomizations).map(file).collect()
    }

    /// The GitRepository at a URL.
    pub(super) fn source(&self, url: &str) -> String {
        workload::source(FLEET, url, INTERVAL)
    }

    /// The Kustomizations. Each has the label of its wave, whether a rollout selects it or not.
    pub(super) fn manifests(&self) -> Vec<String> {
        let one = |number: usize| {
            let name = kustomization_name(number);
            let labels = json!({LABEL: FLEET, "windlass.dev/wave": wave_name(self.wave(number))});
            let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
            let spec = json!({
                "sourceRef": {"kind": "GitRepository", "name": FLEET},
                "kubeConfig": {"secretRef": {"name": self.cluster(number)}},
                "path": format!("./{name}"),
                "prune": true,
                "interval": INTERVAL,
                "timeout": "10m",
            });
            let kind = "Kustomization";
            let version = "kustomize.toolkit.fluxcd.io/v1";
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
                .to_string()
        };
        (0..self.kustomizations).map(one).collect()
    }

    /// The StagedRollout. All Kustomizations of a wave may be unavailable at once, and no wave soaks, so that only the
    /// order of the waves costs time.
    pub(super) fn rollout(&self) -> String {
        let wave = |wave: usize| {
            let name = wave_name(wave);
            json!({"name": name, "values": [name], "maxUnavailable": "100%"})
        };
        let waves: Vec<Value> = (0..self.waves).map(wave).collect();
        let spec = json!({"selector": {"matchLabels": {LABEL: FLEET}}, "waves": waves});
        let metadata = json!({"name": FLEET, "namespace": NAMESPACE});
        let version = "release.windlass.dev/v1alpha1";
        json!({"apiVersion": version, "kind": "StagedRollout", "metadata": metadata, "spec": spec})
            .to_string()
    }

    /// Whether each wave became Ready after the one before. `ready` has the times of all Kustomizations in the order of
    /// their names.
    pub(super) fn is_in_waves(&self, ready: &[Instant]) -> bool {
        let span = |wave: usize| {
            let of_wave = || {
                let numbered = ready.iter().enumerate();
                numbered.filter(|(number, _)| self.wave(*number) == wave).map(|(_, at)| *at)
            };
            Some([of_wave().min()?, of_wave().max()?])
        };
        let spans: Vec<[Instant; 2]> = (0..self.waves).filter_map(span).collect();
        let mut pairs = spans.iter().zip(spans.iter().skip(1));
        spans.len() == self.waves && pairs.all(|([_, last], [first, _])| last <= first)
    }
}

/// The names are in the order of the numbers.
fn kustomization_name(number: usize) -> String {
    format!("{FLEET}-{number:05}")
}

fn wave_name(wave: usize) -> String {
    format!("wave-{:02}", wave + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WHOLE: StagedRolloutFleet =
        StagedRolloutFleet { kustomizations: 500, waves: 5, clusters: 20 };

    fn objects(manifests: &[String]) -> Vec<Value> {
        manifests.iter().map(|it| serde_json::from_str(it).unwrap()).collect()
    }

    #[test]
    fn each_wave_and_each_cluster_has_the_same_part() {
        for wave in 0..5 {
            assert_eq!((0..500).filter(|number| WHOLE.wave(*number) == wave).count(), 100);
        }
        let names = WHOLE.namespaces();
        assert_eq!(names.len(), 20);
        for name in &names {
            assert_eq!((0..500).filter(|number| WHOLE.cluster(*number) == *name).count(), 25);
        }
        let uneven = StagedRolloutFleet { kustomizations: 7, waves: 3, clusters: 2 };
        assert!((0..7).all(|number| uneven.wave(number) < 3));
        assert_eq!(uneven.namespaces().len(), 2);
    }

    #[test]
    fn the_rollout_selects_every_kustomization_and_has_a_wave_for_each() {
        let all = objects(&WHOLE.manifests());
        let rollout = objects(&[WHOLE.rollout()]).remove(0);
        let selected = &rollout["spec"]["selector"]["matchLabels"][LABEL];
        let waves = rollout["spec"]["waves"].as_array().unwrap();
        assert_eq!(waves.len(), 5);
        for object in &all {
            let labels = &object["metadata"]["labels"];
            assert_eq!(labels[LABEL], *selected);
            let values = |wave: &Value| wave["values"][0] == labels["windlass.dev/wave"];
            assert_eq!(waves.iter().filter(|it| values(it)).count(), 1, "{object}");
        }
        let secrets = objects(&WHOLE.kubeconfigs("k"));
        let name = &all[499]["spec"]["kubeConfig"]["secretRef"]["name"];
        assert_eq!(secrets[19]["metadata"]["name"], *name, "the last cluster");
    }

    #[test]
    fn a_version_changes_both_objects() {
        let [one, two] = [1, 2].map(|version| WHOLE.files(version).remove(0));
        assert_eq!(one.0, two.0);
        let changed = one.1.split("---").zip(two.1.split("---")).filter(|(one, two)| one != two);
        assert_eq!(changed.count(), 2);
    }

    #[test]
    fn waves_are_in_order_when_none_begins_before_the_end_of_the_one_before() {
        let fleet = StagedRolloutFleet { kustomizations: 4, waves: 2, clusters: 1 };
        let begun = Instant::now();
        let is_in_order = |seconds: &[u64]| {
            let ready = seconds.iter().map(|it| begun + Duration::from_secs(*it));
            fleet.is_in_waves(&ready.collect::<Vec<_>>())
        };
        assert!(is_in_order(&[2, 1, 4, 3]));
        assert!(!is_in_order(&[1, 3, 2, 4]));
        assert!(!is_in_order(&[1, 2]), "a wave is missing");
    }
}
