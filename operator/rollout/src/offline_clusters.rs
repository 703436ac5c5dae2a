//! Clusters that do not respond, by probes of those that a rollout waits for.
//!
//! A status does not say it: what a cluster refuses has failed, and must not be skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::KubeConfigReference;
use objects::Gvk;
use tokio::task::JoinSet;

use windlass_cluster::ClusterError;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::spec_references::ReadReferences;
use windlass_runtime::cluster_target::TargetSpec;
use windlass_runtime::run_context::RunContext;

use super::observed_appliers::ObservedApplier;

/// How often a cluster is probed while a rollout waits for it.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// How long an answer may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many clusters are probed at once.
const MAX_PROBES_AT_ONCE: usize = 8;

/// How many clusters are remembered.
const MAX_CLUSTERS: usize = 10_000;

/// What is known of a cluster.
#[derive(Debug, Clone, Copy)]
struct ProbedCluster {
    probed: Instant,
    /// Since when it does not respond.
    silent_since: Option<Instant>,
}

/// The clusters that rollouts wait for.
#[derive(Debug, Default)]
pub(crate) struct OfflineClusters {
    known: BTreeMap<String, ProbedCluster>,
    /// No pass waits for them: a cluster that does not respond would hold up the rollouts of others.
    probes: JoinSet<(String, bool)>,
    /// The clusters of these probes.
    under_way: BTreeSet<String>,
}

/// How a cluster is reached.
#[derive(Debug, Clone)]
pub(crate) struct ClusterAccess {
    namespace: String,
    kube_config: KubeConfigReference,
    account: Option<String>,
}

impl ClusterAccess {
    /// As an applier reaches its cluster; `None` for the cluster of windlass.
    pub(crate) fn of(applier: &ObservedApplier) -> Option<Self> {
        Some(Self {
            namespace: applier.key().namespace,
            kube_config: applier.kube_config()?.clone(),
            account: applier.service_account_name().map(str::to_owned),
        })
    }

    /// Whether the cluster responds. One whose kubeconfig cannot be used does not.
    async fn responds(&self, context: &RunContext) -> bool {
        let mut references = ReadReferences::new(&context.watcher);
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
    /// Whether a cluster has not responded for so long.
    pub(crate) fn is_offline(&self, cluster: &str, after: Duration) -> bool {
        let since = self.known.get(cluster).and_then(|it| it.silent_since);
        since.is_some_and(|since| since.elapsed() >= after)
    }

    /// Takes in the probes that ended, forgets clusters that no rollout waits for, and begins to probe those whose last probe is a
    /// while ago.
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
        // A probe that panicked does not say which one it was.
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

    /// The clusters to probe, the one first whose last probe is the longest ago: dead ones leave room for all.
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
