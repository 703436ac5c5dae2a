//! The clusters of a Helmfile's releases: that of its spec, and those of its `kubeContexts`.
//!
//! Elsewhere: what a cluster is to those who apply there (`target`), which release names which (`plan.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::helmfile::HelmfileSpec;
use reconcile::{Rest, Wake, reason};

use super::finalize::left_behind;
use super::model::Model;
use super::plan::{Key, Planned};
use super::{HELMFILE_ERROR, Session};
use crate::cluster::ClusterError;
use crate::controllers::context::Context;
use crate::controllers::reference::References;
use crate::controllers::target::{Target, Wanted};
use crate::controllers::unsupported::unsupported_text;

/// See the module: by the names of contexts, of which that of the spec's own cluster is empty.
#[derive(Default)]
pub(super) struct Places(BTreeMap<String, Arc<Target>>);

impl Places {
    /// The cluster of a spec and those of its contexts.
    pub(super) fn new(own: &Arc<Target>, contexts: &BTreeMap<String, Arc<Target>>) -> Self {
        let mut all = contexts.clone();
        all.insert(String::new(), own.clone());
        Self(all)
    }

    /// Where a release is; nothing where the spec no longer names its context.
    pub(super) fn find(&self, key: &Key) -> Option<&Arc<Target>> {
        self.0.get(&key.context)
    }

    /// Checks that no two releases of a plan have the same records: the same namespace and name by one kubeconfig.
    ///
    /// # Errors
    /// Names both.
    pub(super) fn check_apart(&self, planned: &Planned) -> Result<(), Rest> {
        let mut known = BTreeMap::new();
        for key in planned.releases.iter().map(|it| &it.key) {
            let Some(target) = self.find(key) else { continue };
            if let Some(other) = known.insert((target.place(), &key.namespace, &key.name), key) {
                let text = format!(
                    "releases {other} and {key} are one, because both contexts have the same kubeconfig: remove one of \
                     them from the helmfile"
                );
                return Err(Rest::Failed(HELMFILE_ERROR, text, Wake::default()));
            }
        }
        Ok(())
    }

    /// Where a release is.
    ///
    /// # Errors
    /// The spec does not name its context.
    pub(super) fn of(&self, key: &Key) -> Result<&Arc<Target>, Rest> {
        self.find(key).ok_or_else(|| {
            let text = undeclared(&key.context);
            Rest::Failed(reason::RECONCILIATION_FAILED, text, Wake::default())
        })
    }
}

/// What is said of a context that the spec does not name.
pub(super) fn undeclared(context: &str) -> String {
    format!(
        "kubeContext `{context}` is not declared: name the Secret of its kubeconfig in spec.kubeContexts of a Helmfile \
         of helmfile.windlass.dev"
    )
}

fn field(context: &str) -> String {
    format!("spec.kubeContexts[{context:?}]")
}

/// Checks what of `kubeContexts` can be checked without the cluster.
pub(super) fn check(spec: &HelmfileSpec) -> Result<(), Rest> {
    for (context, named) in &spec.kube_contexts {
        if named.secret_ref.is_none() {
            let text = unsupported_text(&[&format!("{}.configMapRef", field(context))]);
            return Err(Rest::Stalled(reason::UNSUPPORTED_FIELD, text));
        }
    }
    Ok(())
}

/// The clusters that contexts name, or why one cannot be used. The Secrets are among the references then.
pub(super) async fn contexts(
    context: &Context,
    spec: &HelmfileSpec,
    own: &Wanted<'_>,
    references: &mut References,
) -> BTreeMap<String, Result<Arc<Target>, Rest>> {
    let mut all = BTreeMap::new();
    for (name, named) in &spec.kube_contexts {
        let field = field(name);
        let target = context.targets.of(&own.at(named, &field), references).await;
        all.insert(name.clone(), target);
    }
    all
}

impl<K: Model> Session<K> {
    /// The clusters that can be used now, for what has to come to an end there.
    pub(super) async fn usable_places(&self, object: &K, spec: &HelmfileSpec) -> Places {
        // All of it is watched before any of it is missed.
        let mut references = References::new(&self.context.watcher);
        let wanted = self.wanted(object);
        let own = self.context.targets.of(&wanted, &mut references).await;
        let contexts = contexts(&self.context, spec, &wanted, &mut references).await;
        references.watch(&self.node);
        let all = contexts.into_iter().chain([(String::new(), own)]);
        Places(all.filter_map(|(name, target)| Some((name, target.ok()?))).collect())
    }

    /// The clusters in which the releases of a deleted Helmfile are uninstalled. A cluster whose kubeconfig or ServiceAccount
    /// no longer exists is left out, and an event says so.
    pub(super) async fn finalize_places(
        &self,
        object: &Arc<K>,
        spec: &HelmfileSpec,
        releases: &[Key],
    ) -> Result<Result<Places, Rest>, ClusterError> {
        let mut places = Places::default();
        let mut names: Vec<&str> = releases.iter().map(|key| key.context.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let own = self.wanted(&**object);
        for name in names {
            let field = field(name);
            let wanted = match spec.kube_contexts.get(name) {
                _ if name.is_empty() => own,
                Some(named) => own.at(named, &field),
                None => {
                    let event = left_behind(&format!("`{name}` of spec.kubeContexts"));
                    self.context.events.announce(&**object, K::CONTROLLER, event);
                    continue;
                }
            };
            match self.finalize_target_of(object, &wanted).await? {
                Ok(Some(target)) => drop(places.0.insert(name.to_owned(), target)),
                Ok(None) => {}
                Err(rest) => return Ok(Err(rest)),
            }
        }
        Ok(Ok(places))
    }
}
