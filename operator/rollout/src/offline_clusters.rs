//! Finds clusters that do not respond, by probes of the clusters that a rollout waits for.
//!
//! A status is not enough for that. If a cluster refuses an object, the applier has failed and must not be skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::KubeConfigReference;
use objects::Gvk;
use tokio::task::JoinSet;

use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::cluster_target::TargetSpec;
use windlass_runtime::run_context::RunContext;

use super::observed_appliers::ObservedApplier;

/// How often a cluster is probed while a rollout waits for it.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many clusters are probed at once.
const MAX_PROBES_AT_ONCE: usize = 8;

/// The most clusters that are remembered.
const MAX_CLUSTERS: usize = 10_000;

/// The result of the last probe of a cluster.
#[derive(Debug, Clone, Copy)]
struct ProbedCluster {
    probed: Instant,
    /// Since when the cluster has not responded. `None` if it responds.
    silent_since: Option<Instant>,
}

/// The clusters that rollouts wait for, with their probes.
#[derive(Debug, Default)]
pub(crate) struct OfflineClusters {
    known: BTreeMap<String, ProbedCluster>,
    /// The probes under way. No pass waits for them, because a dead cluster would delay the rollouts of others.
    probes: JoinSet<(String, bool)>,
    /// The clusters whose probes are under way.
    under_way: BTreeSet<String>,
}

/// The namespace, kubeconfig and account for reaching a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterAccess {
    namespace: String,
    kube_config: KubeConfigReference,
    account: Option<String>,
}

impl ClusterAccess {
    /// The access that an applier uses for its cluster. `None` for windlass's own cluster.
    pub(crate) fn of(applier: &ObservedApplier) -> Option<Self> {
        Some(Self {
            namespace: applier.key().namespace,
            kube_config: applier.kube_config()?.clone(),
            account: applier.service_account_name().map(str::to_owned),
        })
    }

    /// Whether the cluster responds. A cluster whose kubeconfig cannot be used counts as not responding.
    async fn responds(&self, context: &RunContext) -> bool {
        let mut references = RunReferenceReads::new(&context.watcher);
        let account = self.account.as_deref();
        let wanted =
            TargetSpec::new(&context.settings, &self.namespace, Some(&self.kube_config), account);
        let Ok(target) = context.targets.of(&wanted, &mut references).await else { return false };
        let namespaces = ApiResourceLocation {
            gvk: Gvk::new("v1", "Namespace"),
            plural: "namespaces".to_owned(),
            namespaced: false,
            watchable: true,
        };
        let answer = target.cluster.get(&namespaces, "", "default").await;
        !matches!(answer, Err(ClusterError::NoAnswer(_)))
    }
}

impl OfflineClusters {
    /// Whether a cluster has not responded for the time `after`.
    pub(crate) fn is_offline(&self, cluster: &str, after: Duration) -> bool {
        let since = self.known.get(cluster).and_then(|it| it.silent_since);
        since.is_some_and(|since| since.elapsed() >= after)
    }

    /// Collects the finished probes, and starts new ones for clusters whose last probe is old. Forgets clusters that no
    /// rollout waits for.
    pub(crate) fn probe(
        &mut self,
        context: &Arc<RunContext>,
        wanted: &BTreeMap<String, ClusterAccess>,
    ) {
        while let Some(ended) = self.probes.try_join_next() {
            if let Ok((cluster, responds)) = ended {
                self.under_way.remove(&cluster);
                self.note(&cluster, responds);
            }
        }
        // A probe that panicked does not tell its cluster.
        if self.probes.is_empty() {
            self.under_way.clear();
        }
        self.known.retain(|cluster, _| wanted.contains_key(cluster));
        let free = MAX_PROBES_AT_ONCE.saturating_sub(self.probes.len());
        let due: Vec<String> = self.due(wanted).into_iter().take(free).cloned().collect();
        for cluster in due {
            let Some(access) = wanted.get(&cluster).cloned() else { continue };
            let context = context.clone();
            self.under_way.insert(cluster.clone());
            self.probes.spawn(async move {
                let answer = tokio::time::timeout(PROBE_TIMEOUT, access.responds(&context)).await;
                (cluster, answer.unwrap_or(false))
            });
        }
    }

    /// The clusters to probe. The one with the oldest probe is the first, so that dead clusters leave room for all others.
    fn due<'w, T>(&self, wanted: &'w BTreeMap<String, T>) -> Vec<&'w String> {
        let probed = |cluster: &String| self.known.get(cluster).map(|it| it.probed);
        let is_due = |cluster: &&String| {
            !self.under_way.contains(*cluster)
                && probed(cluster).is_none_or(|at| at.elapsed() >= PROBE_INTERVAL)
        };
        let mut due: Vec<&String> = wanted.keys().filter(is_due).collect();
        due.sort_by_key(|cluster| probed(cluster));
        due
    }

    fn note(&mut self, cluster: &str, responds: bool) {
        if self.known.len() >= MAX_CLUSTERS && !self.known.contains_key(cluster) {
            return;
        }
        let now = Instant::now();
        let known = self.known.get(cluster).and_then(|it| it.silent_since);
        let silent_since = (!responds).then(|| known.unwrap_or(now));
        self.known.insert(cluster.to_owned(), ProbedCluster { probed: now, silent_since });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_offline_after_a_while_and_until_it_responds() {
        let mut clusters = OfflineClusters::default();
        assert!(!clusters.is_offline("east", Duration::ZERO), "it was not probed");
        clusters.note("east", false);
        assert!(clusters.is_offline("east", Duration::ZERO));
        assert!(!clusters.is_offline("east", Duration::from_secs(300)));
        clusters.note("east", true);
        assert!(!clusters.is_offline("east", Duration::ZERO));
    }

    #[test]
    fn a_cluster_that_was_probed_a_moment_ago_or_is_being_probed_is_not_due() {
        let mut clusters = OfflineClusters::default();
        let wanted: BTreeMap<String, ()> =
            ["east", "north", "west"].map(|name| (name.to_owned(), ())).into();
        assert_eq!(clusters.due(&wanted), ["east", "north", "west"]);
        clusters.note("east", false);
        clusters.under_way.insert("north".to_owned());
        assert_eq!(clusters.due(&wanted), ["west"]);
    }
}
