//! A Kustomization that is deleted: what it applied goes with it, by policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::kustomize::Kustomization;
use kube::core::ResourceExt as _;
use objects::{Masking, ObjectId};
use reconcile::Rest;

use super::wish::{self, Timeouts};
use super::world::{Verify, Wishes};
use super::{AFTER_REFUSAL, Ended, Session, report};
use crate::cluster::ClusterError;
use crate::controllers::hold;
use crate::controllers::kind::Controlled as _;
use crate::controllers::record::FINALIZER;
use crate::controllers::reference::References;
use crate::controllers::target::{Target, Wanted};

impl Session {
    /// The object goes: so does what it applied, by policy, then our finalizer.
    pub(super) async fn delete(
        &self,
        object: Arc<Kustomization>,
    ) -> Result<Option<Duration>, ClusterError> {
        if !object.finalizers().iter().any(|f| f == FINALIZER) {
            return Ok(None);
        }
        let (prune, await_end) = wish::deletion(&object.spec);
        let timeouts = wish::check(&object.spec).unwrap_or(Timeouts {
            interval: AFTER_REFUSAL,
            retry: AFTER_REFUSAL,
            timeout: reconcile::kustomization_timeout(AFTER_REFUSAL, None),
        });
        let inventory = object.status.as_ref().and_then(|s| s.inventory.as_ref());
        let has_nothing = inventory.is_none_or(|inventory| inventory.entries.is_empty());
        // Parity(flux): a suspended Kustomization leaves its objects behind. One that has none needs no cluster to
        // delete them from, so it goes even when that cannot be reached.
        if !prune || hold::is_suspended(&*object, self.began) || has_nothing {
            self.latest.set_finalizer(&self.context, &object, false).await?;
            return Ok(None);
        }
        let wishes = Wishes {
            verify: Verify::Drifted,
            force: false,
            await_end,
            health_versions: BTreeMap::new(),
            expressions: self.expressions.clone(),
            healthy: BTreeMap::new(),
            failed_wait: None,
            is_correction: false,
            contests: Arc::default(),
            secrets: Masking::default(),
            ignore: Arc::default(),
            retry_at: self.in_future(timeouts.retry),
        };
        let target = match self.finalize_target(&object).await? {
            Ok(Some(target)) => target,
            Ok(None) => {
                self.latest.set_finalizer(&self.context, &object, false).await?;
                return Ok(None);
            }
            Err(rest) => {
                return self.finish(Ended::early(&object, "", rest), Some(timeouts)).await;
            }
        };
        let nothing = Arc::new(wish::finalize(&object, timeouts));
        let (ended, _) = self.drive(&object, nothing, wishes, &target).await;
        if ended.rest.is_settled() {
            for event in report::finalized(&ended.object, &ended.changes) {
                self.context.cluster.announce(&*ended.object, Kustomization::CONTROLLER, event);
            }
            self.latest.set_finalizer(&self.context, &ended.object, false).await?;
            return Ok(None);
        }
        self.finish(ended, Some(timeouts)).await
    }

    /// Where the objects of a leaving Kustomization are deleted; nowhere when the account that could is gone.
    async fn finalize_target(
        &self,
        object: &Arc<Kustomization>,
    ) -> Result<Result<Option<Arc<Target>>, Rest>, ClusterError> {
        let (namespace, spec) = (object.namespace().unwrap_or_default(), &object.spec);
        let account = spec.service_account_name.as_deref();
        let wanted =
            Wanted::new(&self.context.settings, &namespace, spec.kube_config.as_ref(), account);
        let mut references = References::new(&self.context.watcher);
        let target = self.context.targets.of(&wanted, &mut references).await;
        references.watch(&self.node);
        if let (Ok(target), Some(name)) = (&target, wanted.service_account) {
            let id = ObjectId::new(&namespace, name, "", "ServiceAccount");
            // Differs(flux): it is looked for in the cluster where it would act, not always in windlass's own.
            let is_gone = match target.as_ourselves().get_by_id(&id, "v1").await {
                Ok(found) => found.is_none(),
                // A kubeconfig's user may act in its name without being allowed to observe it.
                Err(error) if error.code() == Some(403) => false,
                Err(error) => return Err(error),
            };
            if is_gone {
                // Parity(flux): nobody may delete them in its name any more, so they stay and that is told.
                let event = report::left_behind(object, name);
                self.context.cluster.announce(&**object, Kustomization::CONTROLLER, event);
                return Ok(Ok(None));
            }
        }
        Ok(target.map(Some).map_err(|rest| match rest {
            Rest::Failed(reason, text, wake) => {
                let advice = "its objects cannot be deleted; to leave them in the cluster, set \
                              spec.deletionPolicy: Orphan";
                Rest::Failed(reason, format!("{text}; {advice}"), wake)
            }
            other => other,
        }))
    }
}
