//! What the next reconciliation of a Kustomization would make of objects.
//!
//! Each object is compared as a run compares it of which nothing is remembered. Elsewhere: how a run compares and writes
//! (its `executor`), switches and rules (engine `apply`).

use apply::drift_ignore_rules::IgnoreRules;
use apply::dry_run_refusal::{describe, may_be_immutable};
use apply::managed_metadata::{ServerSideApplyPolicy, expires, switches_for_apply};
use apply::{ObjectInventory, is_owned};
use crds::kustomize::Kustomization;
use kustomize_controller::kustomization::MANAGER;
use objects::{Object, ObjectId, SecretMasking};

use super::{
    ObjectPrediction, ObjectUpdate, PlannedCrdsAndNamespaces, PredictionFailure, taken_over,
};
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::is_definition;

const RECREATED: &str = "an immutable field changes: the object is deleted and created again";
const EXPIRED: &str =
    "a Job that was deleted after its end is created again at the interval, or when it changes";

/// What objects are compared with, and by which rules.
pub struct KustomizationComparison<'c> {
    /// The cluster that it applies to.
    pub cluster: &'c ClusterConnection,
    /// The Kustomization.
    pub object: &'c Kustomization,
    /// What it has applied.
    pub applied: &'c ObjectInventory,
    /// Which fields others may change.
    pub rules: &'c IgnoreRules,
    /// Field managers whose fields become those of windlass.
    pub overrides: &'c [String],
    /// What no text may have.
    pub secrets: &'c SecretMasking,
    /// What comes with the objects.
    pub planned: &'c PlannedCrdsAndNamespaces,
}

impl KustomizationComparison<'_> {
    /// What would become of an object.
    ///
    /// # Errors
    /// It cannot be read, or the API server refuses a dry-run of it.
    pub async fn predict(&self, object: &Object) -> Result<ObjectPrediction, PredictionFailure> {
        let id = object.id();
        let created = |note| ObjectPrediction::Created { object: Box::new(object.clone()), note };
        let resource = match self.cluster.resource(&object.gvk()).await {
            Ok(resource) => resource,
            Err(ClusterError::NoSuchKind { .. }) if self.planned.has_kind_of(object) => {
                return Ok(created(None));
            }
            Err(error) => {
                return Err(PredictionFailure::of_kind(&error, self.described(&id, &error)));
            }
        };
        if resource.namespaced == id.namespace.is_empty() {
            let text = match resource.namespaced {
                true => "namespace not specified: set metadata.namespace or spec.targetNamespace",
                false => "turned out to be cluster-scoped; try again",
            };
            return Err(PredictionFailure::Unread(format!("{} {text}", id.subject())));
        }
        if switches_for_apply(object, None).skips_apply(false) {
            return Ok(ObjectPrediction::Skipped(None));
        }
        let live = self.cluster.get(&resource, &id.namespace, &id.name).await;
        let unread = |error: ClusterError| PredictionFailure::Unread(self.described(&id, &error));
        let live = live.map_err(unread)?;
        if switches_for_apply(object, live.as_ref()).skips_apply(live.is_some()) {
            return Ok(ObjectPrediction::Skipped(live.map(Box::new)));
        }
        match (self.try_to_apply(&resource, object).await, live) {
            (Ok(_), None) => {
                let is_known = self.applied.contains(&id) && expires(object);
                Ok(created(is_known.then_some(EXPIRED)))
            }
            (Ok(dry), Some(live)) => self.changed(object, &resource, live, dry).await,
            (Err(error), None)
                if error.is_not_found() && self.planned.has_namespace(&id.namespace) =>
            {
                Ok(created(None))
            }
            (Err(error), live) => self.recreated(object, &resource, live, &error).await,
        }
    }

    async fn try_to_apply(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
    ) -> Result<Object, ClusterError> {
        self.cluster.apply(resource, object, MANAGER, DryRunMode::DryRun).await
    }

    async fn changed(
        &self,
        object: &Object,
        resource: &ApiResourceLocation,
        live: Object,
        dry: Object,
    ) -> Result<ObjectPrediction, PredictionFailure> {
        let rules = self.rules;
        let is_merged = switches_for_apply(object, Some(&live)).ssa == ServerSideApplyPolicy::Merge;
        let taken = rules.take_over(object, &live, MANAGER, self.overrides).filter(|_| !is_merged);
        if taken.is_none() && !rules.have_drifted(&live, &dry) {
            return Ok(ObjectPrediction::Same(Box::new(live)));
        }
        let dry = match rules.leave_alone(object) {
            true => dry,
            false => {
                let payload = rules.payload(object, &live, MANAGER);
                match self.try_to_apply(resource, &payload).await {
                    Ok(dry) => dry,
                    Err(error) => return Err(self.refused(&object.id(), &error, Some(live))),
                }
            }
        };
        let (after, note) = taken_over(self.cluster, resource, taken.as_ref(), dry, MANAGER).await;
        Ok(ObjectPrediction::Changed(Box::new(ObjectUpdate { live, after, note })))
    }

    /// A dry-run that was refused: the object is recreated if that was asked for and would help.
    async fn recreated(
        &self,
        object: &Object,
        resource: &ApiResourceLocation,
        live: Option<Object>,
        error: &ClusterError,
    ) -> Result<ObjectPrediction, PredictionFailure> {
        let id = object.id();
        let force = self.object.spec.force || switches_for_apply(object, live.as_ref()).force;
        let may_be_recreated = force && !is_definition(object);
        let is_immutable = may_be_immutable(word(error), &error.to_string());
        let live = match live {
            Some(live) if may_be_recreated && is_immutable => live,
            live => return Err(self.refused(&id, error, live)),
        };
        // As a run does it: under another name it must be accepted.
        let mut probe = object.clone();
        let name = format!("{}-windlass-probe", id.name);
        let begin = name.char_indices().rev().nth(59).map_or(0, |(at, _)| at);
        let name = name[begin..].trim_start_matches(['-', '.']);
        probe.metadata_mut().insert("name".into(), name.into());
        match self.try_to_apply(resource, &probe).await {
            Ok(mut after) => {
                after.metadata_mut().insert("name".into(), id.name.into());
                let note = Some(RECREATED);
                Ok(ObjectPrediction::Recreated(Box::new(ObjectUpdate { live, after, note })))
            }
            Err(_) => Err(self.refused(&id, error, Some(live))),
        }
    }

    /// An object that left the manifests, as the cluster has it; `None` if it is gone, being deleted, or not that of the
    /// Kustomization any more.
    ///
    /// # Errors
    /// It cannot be read, for a person.
    pub async fn left(&self, id: &ObjectId, version: &str) -> Result<Option<Object>, String> {
        let live = self.cluster.get_by_id(id, version).await;
        let live = live.map_err(|error| self.described(id, &error))?;
        let metadata = &self.object.metadata;
        let [name, namespace] =
            [&metadata.name, &metadata.namespace].map(|text| text.as_deref().unwrap_or_default());
        let is_going = |live: &Object| {
            live.meta("deletionTimestamp").is_some_and(|deleted| !deleted.is_null())
        };
        Ok(live.filter(|live| is_owned(live, name, namespace) && !is_going(live)))
    }

    fn refused(
        &self,
        id: &ObjectId,
        error: &ClusterError,
        live: Option<Object>,
    ) -> PredictionFailure {
        PredictionFailure::refused(live, error, self.described(id, error))
    }

    /// Why an object cannot be compared. The API server may quote it.
    fn described(&self, id: &ObjectId, error: &ClusterError) -> String {
        describe(id, word(error), &self.secrets.mask(&error.to_string()))
    }
}

/// The API server's own word for a refusal.
fn word(error: &ClusterError) -> &str {
    match error {
        ClusterError::Refused(status) => &status.reason,
        _ => "",
    }
}
