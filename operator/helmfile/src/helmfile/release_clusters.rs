//! The clusters of a Helmfile's releases: the cluster of its spec, and the clusters of its `kubeContexts`.
//!
//! Elsewhere: the clusters and their users (`target`), which cluster a release names (`plan.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::helmfile::{HelmfileReleaseStatus, HelmfileSpec};
use futures::stream::{self, StreamExt as _};
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};

use super::helmfile_kind_differences::HelmfileCustomResource;
use super::plan::{HelmfilePlan, ReleaseKey};
use super::{HELMFILE_ERROR, HelmfileSession};
use windlass_cluster::ClusterError;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::applier_run::finalize::FinalizationTargetCluster;
use windlass_runtime::cluster_target::{ClusterTarget, TargetSpec};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::unsupported_fields::unsupported_text;

/// The most Secrets of contexts that are read at a time.
const AT_ONCE: usize = 8;

/// The clusters of contexts by the names of the contexts. If a cluster cannot be used, the outcome says why, and only its own
/// releases fail.
pub(super) type ContextTargets = BTreeMap<String, Result<Arc<ClusterTarget>, RunOutcome>>;

/// The clusters of a Helmfile's releases, by the names of their contexts.
/// The cluster of the spec has the empty name.
#[derive(Default)]
pub(super) struct ReleaseClusters(ContextTargets);

/// The cluster of a release, as [`ReleaseClusters::id`] compares clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReleaseClusterId<'p> {
    /// [`ClusterTarget::place`].
    Place(&'p str),
    /// The name of a context whose cluster cannot be used.
    Context(&'p str),
}

impl ReleaseClusters {
    /// The cluster of a spec, and the clusters of its contexts.
    pub(super) fn new(own: &Arc<ClusterTarget>, contexts: &ContextTargets) -> Self {
        let mut all = contexts.clone();
        all.insert(String::new(), Ok(own.clone()));
        Self(all)
    }

    /// The cluster of a release.
    ///
    /// # Errors
    /// The spec does not name the context of the release, or the cluster cannot be used.
    pub(super) fn of(&self, key: &ReleaseKey) -> Result<&Arc<ClusterTarget>, RunOutcome> {
        match self.0.get(&key.context) {
            Some(Ok(target)) => Ok(target),
            Some(Err(outcome)) => Err(outcome.clone()),
            None => {
                let text = undeclared(&key.context);
                Err(RunOutcome::Failed(
                    condition_reason::RECONCILIATION_FAILED,
                    text,
                    NextRunTrigger::default(),
                ))
            }
        }
    }

    /// Whether the spec names the cluster of a release, whether or not it can be used.
    pub(super) fn names(&self, key: &ReleaseKey) -> bool {
        self.0.contains_key(&key.context)
    }

    /// An identity for the cluster of a release, as far as it is known.
    pub(super) fn id<'p>(&'p self, key: &'p ReleaseKey) -> ReleaseClusterId<'p> {
        match self.0.get(&key.context) {
            Some(Ok(target)) => ReleaseClusterId::Place(target.place()),
            Some(Err(_)) | None => ReleaseClusterId::Context(&key.context),
        }
    }

    /// Checks that no two releases of a plan have the same records, which means the same namespace and name by the same
    /// kubeconfig.
    ///
    /// # Errors
    /// Two releases have the same records. The outcome names both.
    pub(super) fn check_apart(&self, planned: &HelmfilePlan) -> Result<(), RunOutcome> {
        let mut known = BTreeMap::new();
        for key in planned.releases.iter().map(|it| &it.key) {
            let Ok(target) = self.of(key) else { continue };
            if let Some(other) = known.insert((target.place(), &key.namespace, &key.name), key) {
                let text = format!(
                    "releases {other} and {key} are one, because both contexts have the same kubeconfig: remove one of \
                     them from the helmfile"
                );
                return Err(RunOutcome::Failed(HELMFILE_ERROR, text, NextRunTrigger::default()));
            }
        }
        Ok(())
    }
}

/// The message about a context that the spec does not name.
pub(super) fn undeclared(context: &str) -> String {
    format!(
        "kubeContext `{context}` is not declared: name the Secret of its kubeconfig in spec.kubeContexts of a Helmfile \
         of helmfile.windlass.dev"
    )
}

fn field(context: &str) -> String {
    format!("spec.kubeContexts[{context:?}]")
}

/// Checks the parts of `kubeContexts` that need no cluster.
pub(super) fn check(spec: &HelmfileSpec) -> Result<(), RunOutcome> {
    for (context, named) in &spec.kube_contexts {
        if context.is_empty() {
            let text = "spec.kubeContexts: the name of a context is empty; releases without a kubeContext are in the \
                        cluster of spec.kubeConfig";
            return Err(RunOutcome::Stalled(HELMFILE_ERROR, text.to_owned()));
        }
        if named.secret_ref.is_none() {
            let text = unsupported_text(&[&format!("{}.configMapRef", field(context))]);
            return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text));
        }
    }
    Ok(())
}

/// The clusters of those contexts of a spec that are in use. The Secrets are among the references then.
pub(super) async fn contexts(
    context: &RunContext,
    spec: &HelmfileSpec,
    own: &TargetSpec<'_>,
    in_use: &BTreeSet<String>,
    references: &mut RunReferenceReads,
) -> ContextTargets {
    let named = spec.kube_contexts.iter().filter(|(name, _)| in_use.contains(*name));
    let read = named.map(|(name, named)| async move {
        let mut references = RunReferenceReads::new(&context.watcher);
        let target = context.targets.of(&own.at(named, &field(name)), &mut references).await;
        (name.clone(), target, references)
    });
    let read: Vec<_> = read.collect();
    let read: Vec<_> = stream::iter(read).buffered(AT_ONCE).collect().await;
    let mut all = ContextTargets::new();
    for (name, target, read) in read {
        references.join(read);
        all.insert(name, target);
    }
    all
}

/// The names of the kubeconfig contexts in the rows of a Helmfile's status.
pub(super) fn of_rows(rows: &[HelmfileReleaseStatus]) -> BTreeSet<String> {
    rows.iter().map(|row| row.kube_context.clone()).collect()
}

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// The clusters of the status rows, in which operations have to come to an end.
    pub(super) async fn usable_places(&self, object: &K, spec: &HelmfileSpec) -> ReleaseClusters {
        // All references are watched before a missing one ends the run.
        let mut references = RunReferenceReads::new(&self.context.watcher);
        let wanted = self.wanted(object);
        let own = self.context.targets.of(&wanted, &mut references).await;
        let rows = object.status().map(|it| it.releases.as_slice()).unwrap_or_default();
        let in_use = of_rows(rows);
        let mut all = contexts(&self.context, spec, &wanted, &in_use, &mut references).await;
        references.watch(&self.node);
        all.insert(String::new(), own);
        ReleaseClusters(all)
    }

    /// The clusters in which the releases of a deleted Helmfile are uninstalled. Clusters whose Secret or ServiceAccount is
    /// gone cannot be reached any more, and are left out. The second map names the missing object, by the name of the context.
    ///
    /// # Errors
    /// windlass's own cluster could not be asked.
    pub(super) async fn finalize_places(
        &self,
        object: &Arc<K>,
        spec: &HelmfileSpec,
        in_use: &BTreeSet<String>,
    ) -> Result<(ReleaseClusters, BTreeMap<String, String>), ClusterError> {
        let mut places = ReleaseClusters::default();
        let mut gone = BTreeMap::new();
        let mut references = RunReferenceReads::new(&self.context.watcher);
        let own = self.wanted(&**object);
        for name in in_use {
            let field = field(name);
            let wanted = match spec.kube_contexts.get(name) {
                _ if name.is_empty() => own,
                Some(named) => own.at(named, &field),
                None => {
                    gone.insert(name.clone(), format!("`{name}` of spec.kubeContexts"));
                    continue;
                }
            };
            let place = match self.finalize_target_of(&wanted, &mut references).await? {
                FinalizationTargetCluster::There(target) => Ok(target),
                FinalizationTargetCluster::Unusable(outcome) => Err(outcome),
                FinalizationTargetCluster::Gone(what) => {
                    gone.insert(name.clone(), what);
                    continue;
                }
            };
            places.0.insert(name.clone(), place);
        }
        references.watch(&self.node);
        Ok((places, gone))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_context_has_a_name_and_a_secret() {
        let spec = |contexts: serde_json::Value| -> HelmfileSpec {
            serde_json::from_value(json!({"interval": "1m", "kubeContexts": contexts})).unwrap()
        };
        let refusal =
            |contexts| check(&spec(contexts)).map_err(|outcome| outcome.text().to_owned());
        assert_eq!(refusal(json!({"east": {"secretRef": {"name": "east"}}})), Ok(()));
        let unnamed = refusal(json!({"": {"secretRef": {"name": "east"}}})).unwrap_err();
        assert!(unnamed.contains("name of a context is empty"), "{unnamed}");
        let other = refusal(json!({"east": {"configMapRef": {"name": "east"}}})).unwrap_err();
        assert!(other.contains("spec.kubeContexts[\"east\"].configMapRef"), "{other}");
    }

    #[test]
    fn a_cluster_that_cannot_be_used_differs_from_one_that_is_not_named() {
        let outcome =
            RunOutcome::Failed(HELMFILE_ERROR, "broken".to_owned(), NextRunTrigger::default());
        let places =
            ReleaseClusters(ContextTargets::from([("east".to_owned(), Err(outcome.clone()))]));
        let key = |context: &str| ReleaseKey {
            context: context.to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
        };
        assert!(places.names(&key("east")) && !places.names(&key("west")));
        assert_eq!(places.of(&key("east")).err(), Some(outcome));
        let undeclared = places.of(&key("west")).err().unwrap();
        assert!(undeclared.text().contains("`west` is not declared"), "{}", undeclared.text());
    }
}
