//! An object that is deleted: its finalizer goes when nothing is left of what it applied, or nobody can remove it.

use std::sync::Arc;
use std::time::Duration;

use kube::core::ResourceExt as _;
use objects::ObjectId;
use reconcile::Rest;

use super::{Applied, Leaving, References, Session, Target, Wanted};
use crate::cluster::ClusterError;
use crate::controllers::record::FINALIZER;

impl<K: Applied> Session<K> {
    /// The object goes: so does what it applied, then our finalizer.
    pub(super) async fn delete(&self, object: Arc<K>) -> Result<Option<Duration>, ClusterError> {
        if !object.finalizers().iter().any(|it| it == FINALIZER) {
            return Ok(None);
        }
        match K::finalize(self, &object).await? {
            Leaving::Done(object) => {
                self.latest.set_finalizer(&self.context, &object, false).await?;
                Ok(None)
            }
            Leaving::Later(ended, timeouts) => self.finish(*ended, timeouts).await,
            Leaving::Anew => Ok(Some(Duration::ZERO)),
        }
    }

    /// Where what an object applied is removed; nowhere when the account that could is gone, which is told.
    pub(crate) async fn finalize_target(
        &self,
        object: &Arc<K>,
    ) -> Result<Result<Option<Arc<Target>>, Rest>, ClusterError> {
        self.finalize_target_of(object, &self.wanted(object)).await
    }

    /// The same for one of several clusters.
    pub(crate) async fn finalize_target_of(
        &self,
        object: &Arc<K>,
        wanted: &Wanted<'_>,
    ) -> Result<Result<Option<Arc<Target>>, Rest>, ClusterError> {
        let secret = wanted.kube_config.and_then(|it| it.secret_ref.as_ref());
        if let Some(secret) = secret.filter(|_| K::STAYS_WITHOUT_KUBECONFIG) {
            let id = ObjectId::new(&self.node.namespace, &secret.name, "", "Secret");
            if self.context.cluster.get_by_id(&id, "v1").await?.is_none() {
                return Ok(Ok(self.is_left(object, &format!("Secret '{}'", secret.name))));
            }
        }
        let mut references = References::new(&self.context.watcher);
        let target = self.context.targets.of(wanted, &mut references).await;
        references.watch(&self.node);
        let (Ok(target), Some(name)) = (&target, wanted.service_account) else {
            return Ok(target.map(Some));
        };
        let id = ObjectId::new(&self.node.namespace, name, "", "ServiceAccount");
        // Differs(flux): it is looked for in the cluster where it would act, not always in windlass's own.
        let is_gone = match target.as_ourselves().get_by_id(&id, "v1").await {
            Ok(found) => found.is_none(),
            // A kubeconfig's user may act in its name without being allowed to look it up: the removal tells.
            Err(error) if wanted.kube_config.is_some() && !error.is_of_server() => false,
            Err(error) => return Err(error),
        };
        if is_gone {
            return Ok(Ok(self.is_left(object, &format!("ServiceAccount '{name}'"))));
        }
        Ok(Ok(Some(target.clone())))
    }

    /// Parity(flux): nobody may remove it any more, so it stays and that is told.
    fn is_left(&self, object: &Arc<K>, gone: &str) -> Option<Arc<Target>> {
        self.context.events.announce(&**object, K::CONTROLLER, object.left_behind(gone));
        None
    }
}
