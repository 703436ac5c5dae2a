//! Predicts what the next operation of a release would do to objects. The operation is an upgrade, or an installation if there
//! is no release.
//!
//! Elsewhere: rendering (the callers), reading and writing objects (`helm_controller::release_runner`).

use std::collections::BTreeMap;

use apply::three_way_merge;
use helm_controller::release_runner::MANAGER;
use helm_controller::release_runner::action_options::ActionOptions;
use helm_controller::release_runner::manifest_objects::{self, ManifestObject};
use objects::{Object, ObjectId, SecretMasking};
use release::{OperationKind, ReleaseRecord};

use super::{
    ObjectPrediction, ObjectUpdate, PlannedCrdsAndNamespaces, PredictionFailure, taken_over,
};
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};

/// Predicts changes of the objects of a release, from these inputs.
pub struct HelmReleaseObjectPredictor<'c> {
    cluster: &'c ClusterConnection,
    name: &'c str,
    namespace: &'c str,
    operation: OperationKind,
    options: ActionOptions,
    is_server_side: bool,
    was_merged: bool,
    overrides: Vec<String>,
    planned: PlannedCrdsAndNamespaces,
    secrets: SecretMasking,
}

/// A release, and the operation that is predicted.
pub struct PredictedOperation<'c> {
    /// The name of the release.
    pub name: &'c str,
    /// The namespace for objects that name none.
    pub namespace: &'c str,
    /// An installation or an upgrade.
    pub operation: OperationKind,
    /// The options of the operation.
    pub options: ActionOptions,
    /// The release revision before the operation.
    pub base: Option<&'c ReleaseRecord>,
    /// Field managers whose fields windlass takes over, in addition to its own and Helm's.
    pub overrides: &'c [String],
}

/// The objects of a revision that can be accessed now.
#[derive(Default)]
pub struct LiveReleaseObjects {
    /// The objects by their ids.
    pub members: BTreeMap<ObjectId, ManifestObject>,
    /// The objects that cannot be read, with the reasons.
    pub unread: Vec<(ObjectId, ClusterError)>,
}

impl LiveReleaseObjects {
    /// Reads the objects of a revision. Empty without a revision.
    ///
    /// # Errors
    /// The manifest in the release record cannot be read.
    pub async fn of(
        cluster: &ClusterConnection,
        base: Option<&ReleaseRecord>,
    ) -> Result<Self, String> {
        let mut found = Self::default();
        let Some(base) = base else { return Ok(found) };
        for object in manifest_objects::read(&base.manifest)? {
            let id = object.id();
            match manifest_objects::reached(cluster, object, &base.namespace).await {
                Ok(Some(member)) => drop(found.members.insert(member.id.clone(), member)),
                Ok(None) => {}
                Err(error) => found.unread.push((id, error)),
            }
        }
        Ok(found)
    }
}

/// An object of a release, and its prediction.
pub struct PredictedReleaseObject {
    /// The id of the object, including its namespace.
    pub id: ObjectId,
    /// The object in the form that would be applied.
    pub object: Object,
    /// The prediction, or the reason why there is none.
    pub prediction: Result<ObjectPrediction, PredictionFailure>,
}

impl<'c> HelmReleaseObjectPredictor<'c> {
    /// Prepares the predictions for an operation. `planned` are the kinds and namespaces that the objects create. Strings that
    /// `secrets` masks never appear in messages.
    #[must_use]
    pub fn new(
        cluster: &'c ClusterConnection,
        predicted: &PredictedOperation<'c>,
        planned: PlannedCrdsAndNamespaces,
        secrets: SecretMasking,
    ) -> Self {
        let PredictedOperation { name, namespace, operation, options, base, overrides } =
            *predicted;
        let ours = ["helm", MANAGER].map(str::to_owned).into_iter();
        Self {
            cluster,
            name,
            namespace,
            operation,
            options,
            is_server_side: options.is_server_side(operation, base),
            was_merged: base.is_some_and(|base| !base.is_server_side()),
            overrides: ours.chain(overrides.iter().cloned()).collect(),
            planned,
            secrets,
        }
    }

    /// Predicts a rendered object. `originals` are the objects of the previous revision.
    pub async fn predict(
        &self,
        object: Object,
        originals: &BTreeMap<ObjectId, ManifestObject>,
    ) -> PredictedReleaseObject {
        let placed = manifest_objects::placed(self.cluster, object.clone(), self.namespace).await;
        let (resource, mut object) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                let id = object.id();
                let is_planned = matches!(error, ClusterError::NoSuchKind { .. })
                    && self.planned.has_kind_of(&object);
                let prediction = match is_planned {
                    true => Ok(created(&object)),
                    false => Err(PredictionFailure::of_kind(&error, self.described(&id, &error))),
                };
                return PredictedReleaseObject { id, object, prediction };
            }
        };
        manifest_objects::owned(&mut object, self.name, self.namespace);
        let member = ManifestObject { id: object.id(), object, resource };
        let prediction = self.compare(&member, originals.get(&member.id)).await;
        PredictedReleaseObject { id: member.id, object: member.object, prediction }
    }

    async fn compare(
        &self,
        member: &ManifestObject,
        original: Option<&ManifestObject>,
    ) -> Result<ObjectPrediction, PredictionFailure> {
        let ManifestObject { id, object, resource } = member;
        let live = self.cluster.get(resource, &id.namespace, &id.name).await;
        let unread = |error: ClusterError| PredictionFailure::Unread(self.described(id, &error));
        let Some(live) = live.map_err(unread)? else {
            return match self.try_to_create(member).await {
                Err(error)
                    if !error.is_not_found() || !self.planned.has_namespace(&id.namespace) =>
                {
                    Err(self.refused(id, &error, None))
                }
                _ => Ok(created(object)),
            };
        };
        let options = self.options.of_action(self.operation);
        let foreign = manifest_objects::foreign(&live, self.name, self.namespace);
        if let Some(text) = foreign.filter(|_| !options.take_ownership && original.is_none()) {
            let live = Some(live);
            let refused = super::RefusedApply { live, lacks_rights: false, text };
            return Err(PredictionFailure::Refused(Box::new(refused)));
        }
        let mut taken = None;
        let after = if self.is_server_side {
            taken = apply::take_over(&live, MANAGER, &self.overrides).filter(|_| self.was_merged);
            self.try_to_apply(member).await
        } else if self.options.forces(self.operation) {
            self.try_to_replace(member, &live).await
        } else {
            let patch = three_way_merge::patch(original.map(|it| &it.object), object, &live);
            let Some(patch) = patch else { return Ok(ObjectPrediction::Same(Box::new(live))) };
            let cluster = self.cluster;
            cluster.try_merge_patch(resource, &id.namespace, &id.name, &patch, MANAGER).await
        };
        let after = match after {
            Ok(after) => after,
            Err(error) => return Err(self.refused(id, &error, Some(live))),
        };
        if taken.is_none() && !apply::drift_comparison::has_drifted(&live, &after) {
            return Ok(ObjectPrediction::Same(Box::new(live)));
        }
        let (after, note) =
            taken_over(self.cluster, resource, taken.as_ref(), after, MANAGER).await;
        Ok(ObjectPrediction::Changed(Box::new(ObjectUpdate { live, after, note })))
    }

    async fn try_to_create(&self, member: &ManifestObject) -> Result<Object, ClusterError> {
        if self.is_server_side {
            return self.try_to_apply(member).await;
        }
        let ManifestObject { object, resource, .. } = member;
        let strict = !self.options.of_action(self.operation).disable_openapi;
        self.cluster.create_object(resource, object, &dry(), strict).await
    }

    async fn try_to_apply(&self, member: &ManifestObject) -> Result<Object, ClusterError> {
        let ManifestObject { object, resource, .. } = member;
        let strict = !self.options.of_action(self.operation).disable_openapi;
        self.cluster.apply_checked(resource, object, MANAGER, DryRunMode::DryRun, strict).await
    }

    async fn try_to_replace(
        &self,
        member: &ManifestObject,
        live: &Object,
    ) -> Result<Object, ClusterError> {
        let mut whole = member.object.clone();
        if let Some(version) = live.meta("resourceVersion").cloned() {
            whole.metadata_mut().insert("resourceVersion".to_owned(), version);
        }
        self.cluster.replace_object(&member.resource, &whole, &dry()).await
    }

    /// Reads an object that is only in the previous revision. Returns `None` if it no longer exists, or if another release owns
    /// it.
    ///
    /// # Errors
    /// The object cannot be read. The error is a message for the user.
    pub async fn left(&self, member: &ManifestObject) -> Result<Option<Object>, String> {
        let ManifestObject { id, resource, .. } = member;
        let live = self.cluster.get(resource, &id.namespace, &id.name).await;
        let live = live.map_err(|error| self.described(id, &error))?;
        let is_of_another =
            |live: &Object| manifest_objects::is_of_another(live, self.name, self.namespace);
        Ok(live.filter(|live| !is_of_another(live)))
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
    #[must_use]
    pub fn described(&self, id: &ObjectId, error: &ClusterError) -> String {
        format!("{}: {}", id.subject(), self.secrets.mask(&error.to_string()))
    }
}

fn created(object: &Object) -> ObjectPrediction {
    ObjectPrediction::Created { object: Box::new(object.clone()), note: None }
}

/// The field manager of dry-runs.
fn dry() -> String {
    format!("{MANAGER}&dryRun=All")
}
