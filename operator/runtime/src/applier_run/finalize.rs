//! Finalizes an applier that is being deleted. Its finalizer is removed when its applied objects are deleted, when they can no
//! longer be deleted, or when its kind is being removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject as _;
use kube_core::{Resource as _, ResourceExt as _};
use objects::ObjectId;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};

use super::{
    AFTER_REFUSAL, ApplierKind, ApplierRunReport, ApplierSession, ClusterTarget,
    DEFAULT_REPETITION_TIME, FinalizeOutcome, RunReferenceReads, TargetSpec,
};
use crate::deletion_order;
use crate::run_error::RunError;
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};

/// The target cluster from which applied objects are deleted.
pub enum FinalizationTargetCluster {
    /// The target can be used.
    There(Arc<ClusterTarget>),
    /// The Secret or ServiceAccount that the spec names no longer exists, so nothing can be deleted.
    Gone(String),
    /// The target cannot be used at the moment.
    Unusable(RunOutcome),
}

/// The event for an object that is deleted because its kind is removed.
pub fn kind_deleted(crd: &str) -> ObjectEvent {
    ObjectEvent {
        severity: EventSeverity::Info,
        reason: "KindDeleted".to_owned(),
        message: format!(
            "CustomResourceDefinition {crd} is being deleted with all objects of the kind: what this one applied stays in \
             the cluster"
        ),
        metadata: BTreeMap::new(),
    }
}

impl<K: ApplierKind> ApplierSession<K> {
    /// Deletes the applied objects, unless their owner's kind is being removed. Then removes windlass's finalizer.
    pub(super) async fn delete(
        &self,
        object: Arc<K::Object>,
    ) -> Result<Option<Duration>, ClusterError> {
        if !object.finalizers().iter().any(|it| it == K::Object::FINALIZER) {
            return Ok(None);
        }
        // Differs(flux): `flux uninstall` ends the controllers, then takes the finalizers away, then the CRDs. Here a
        // process may still act, and has added finalizers again for sources that are gone: what the objects applied
        // stays when their kind is removed.
        let crd = format!("{}.{}", K::Object::plural(&()), K::Object::group(&()));
        if self.context.cluster.is_kind_leaving(&crd).await? {
            self.context.events.announce(&*object, K::Object::CONTROLLER, kind_deleted(&crd));
            self.latest.set_finalizer(&self.context, &object, false).await?;
            return Ok(None);
        }
        if let Some(outcome) = self.await_dependents(&object).await? {
            return self.finish(ApplierRunReport::early(&object, outcome), None).await;
        }
        match K::finalize(self, &object).await? {
            FinalizeOutcome::Done(object) => {
                self.latest.set_finalizer(&self.context, &object, false).await?;
                Ok(None)
            }
            FinalizeOutcome::Later(mut ended, spec) => {
                let timeout =
                    spec.as_ref().map_or(DEFAULT_REPETITION_TIME, |spec| K::pace(spec).timeout);
                self.postpone(&mut ended, timeout);
                match ended.unsaid_for {
                    Some(time) => Ok(Some(time)),
                    None => self.finish(*ended, spec).await,
                }
            }
            FinalizeOutcome::Anew => Ok(Some(Duration::ZERO)),
        }
    }

    /// The outcome of a run that waits until the dependents of the object are gone. `None` if it does not wait. An object that
    /// deletes nothing need not wait, and one whose deletion of objects has begun cannot undo it.
    async fn await_dependents(
        &self,
        object: &Arc<K::Object>,
    ) -> Result<Option<RunOutcome>, ClusterError> {
        let uid = object.meta().uid.clone();
        let is_begun = uid.is_some() && self.memory.lock().removal_begun == uid;
        if is_begun || !deletion_order::removes_objects(&self.context, &self.node) {
            return Ok(None);
        }
        let held = deletion_order::hold(&self.context, &**object).await?;
        self.memory.lock().removal_begun = uid.filter(|_| held.is_none());
        Ok(held)
    }

    /// The target from which applied objects are deleted. `None` if the account that could delete them no longer exists, which
    /// an event reports.
    ///
    /// # Errors
    /// The outcome of a run that cannot use the target, or windlass's own cluster did not answer.
    pub async fn finalize_target(
        &self,
        object: &Arc<K::Object>,
    ) -> Result<Option<Arc<ClusterTarget>>, RunError> {
        let mut references = RunReferenceReads::new(&self.context.watcher);
        let found = self.finalize_target_of(&self.wanted(object), &mut references).await;
        references.watch(&self.node);
        match found? {
            FinalizationTargetCluster::There(target) => Ok(Some(target)),
            FinalizationTargetCluster::Unusable(outcome) => Err(outcome.into()),
            // Parity(flux): no account may remove the objects any more, so they stay and an event reports that.
            FinalizationTargetCluster::Gone(gone) => {
                self.context.events.announce(
                    &**object,
                    K::Object::CONTROLLER,
                    K::left_behind(object, &gone),
                );
                Ok(None)
            }
        }
    }

    /// As [`Self::finalize_target`], for one of several clusters. The caller reports the objects that cannot be deleted.
    ///
    /// # Errors
    /// windlass's own cluster did not answer.
    pub async fn finalize_target_of(
        &self,
        wanted: &TargetSpec<'_>,
        references: &mut RunReferenceReads,
    ) -> Result<FinalizationTargetCluster, ClusterError> {
        let secret = wanted.kube_config.and_then(|it| it.secret_ref.as_ref());
        if let Some(secret) = secret.filter(|_| K::STAYS_WITHOUT_KUBECONFIG) {
            let id = ObjectId::new(&self.node.namespace, &secret.name, "", "Secret");
            if self.context.cluster.get_by_id(&id, "v1").await?.is_none() {
                return Ok(FinalizationTargetCluster::Gone(format!("Secret '{}'", secret.name)));
            }
        }
        let target = match self.context.targets.of(wanted, references).await {
            Ok(target) => target,
            Err(outcome) => return Ok(FinalizationTargetCluster::Unusable(outcome)),
        };
        let Some(name) = wanted.service_account else {
            return Ok(FinalizationTargetCluster::There(target));
        };
        let id = ObjectId::new(&self.node.namespace, name, "", "ServiceAccount");
        // Differs(flux): it is looked for in the cluster where it would act, not always in windlass's own.
        let is_gone = match target.as_ourselves().get_by_id(&id, "v1").await {
            Ok(found) => found.is_none(),
            // A user may impersonate the ServiceAccount without the right to read it. The deletion then shows whether it
            // exists.
            Err(error) if wanted.kube_config.is_some() && !error.is_of_server() => false,
            // A failing remote cluster delays only the deletions there.
            Err(error) if wanted.kube_config.is_some() => {
                let text = format!("unable to look up ServiceAccount '{name}': {error}");
                let wake = NextRunTrigger::at(self.in_future(AFTER_REFUSAL));
                return Ok(FinalizationTargetCluster::Unusable(RunOutcome::Failed(
                    condition_reason::RECONCILIATION_FAILED,
                    text,
                    wake,
                )));
            }
            Err(error) => return Err(error),
        };
        Ok(match is_gone {
            true => FinalizationTargetCluster::Gone(format!("ServiceAccount '{name}'")),
            false => FinalizationTargetCluster::There(target),
        })
    }
}
