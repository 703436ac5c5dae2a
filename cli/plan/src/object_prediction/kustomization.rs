//! Predicts what the next reconciliation of a Kustomization would do to objects. It compares each object like a reconciliation
//! without any remembered state.
//!
//! Elsewhere: comparing and writing in a reconciliation (its `executor`), annotations and rules (engine `apply`).

use apply::drift_ignore_rules::DriftIgnoreRules;
use apply::dry_run_refusal::{describe, may_be_immutable};
use apply::owner_labels_and_apply_annotations::{
    ServerSideApplyPolicy, expires, switches_for_apply,
};
use apply::{ObjectInventory, is_owned};
use crds::kustomize::Kustomization;
use kustomize_controller::kustomization::MANAGER;
use objects::{Object, ObjectId, SecretMasking};

use super::{
    ObjectPrediction, ObjectUpdate, PlannedCrdsAndNamespaces, PredictionFailure, taken_over,
};
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::is_definition;

const RECREATED: &str = "an immutable field changes: the object is deleted and created again";
const EXPIRED: &str =
    "a Job that was deleted after its end is created again at the interval, or when it changes";

/// Predicts changes of the objects of a Kustomization, from these inputs.
pub struct KustomizationObjectPredictor<'c> {
    /// The cluster to which the Kustomization applies.
    pub cluster: &'c ClusterConnection,
    /// The Kustomization.
    pub object: &'c Kustomization,
    /// The inventory of the Kustomization.
    pub applied: &'c ObjectInventory,
    /// The fields that others may change.
    pub rules: &'c DriftIgnoreRules,
    /// Field managers whose fields windlass takes over.
    pub overrides: &'c [String],
    /// The secret strings, which never appear in messages.
    pub secrets: &'c SecretMasking,
    /// The kinds and namespaces that the objects create.
    pub planned: &'c PlannedCrdsAndNamespaces,
}

impl KustomizationObjectPredictor<'_> {
    /// Predicts an object.
    ///
    /// # Errors
    /// The object cannot be read, or the API server refuses its dry-run.
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

    /// Predicts an object whose dry-run was refused. It is recreated if the user allows that and a new object would be
    /// accepted.
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
        // Like a reconciliation, this checks whether the API server accepts the object under another name.
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

    /// Reads an object that is no longer in the manifests. Returns `None` if it no longer exists, is being deleted, or no
    /// longer belongs to the Kustomization.
    ///
    /// # Errors
    /// The object cannot be read. The error is a message for the user.
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

    /// The message that an object cannot be compared. Secret values are masked, because the API server may quote them.
    fn described(&self, id: &ObjectId, error: &ClusterError) -> String {
        describe(id, word(error), &self.secrets.mask(&error.to_string()))
    }
}

/// The reason in a refusal of the API server.
fn word(error: &ClusterError) -> &str {
    match error {
        ClusterError::Refused(status) => &status.reason,
        _ => "",
    }
}
