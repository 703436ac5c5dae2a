//! Compares the objects of a repository with a cluster. The base contains the current objects of the cluster, and the head
//! contains the objects as the API server would store them.
//!
//! Here: removed objects, the two sides of each object, and suspended appliers. Elsewhere: predicting one object
//! (`object_prediction.rs`), inventories (`live_appliers.rs`), comparing the sides (engine `plan`).
//!
//! # Guarantees
//! An object that cannot be read is on neither side, and the plan names it. An applier that cannot be read is not compared.
//! Secret values of the head are masked in error texts of the API server.

use std::collections::{BTreeMap, BTreeSet};

use apply::drift_ignore_rules::DriftIgnoreRules;
use apply::{ObjectInventory, three_way_merge};
use crds::helm::HelmRelease;
use crds::kustomize::Kustomization;
use futures::stream::{self, StreamExt as _};
use helm_controller::helm_release::validated_spec::read_without_chart;
use helm_controller::release_runner::action_options::ActionOptions;
use helm_controller::release_runner::manifest_objects::is_of_another;
use objects::{Object, ObjectId, SecretMasking};
use plan::{RenderedApplier, RepositoryRendering, UnknownValue};
use release::OperationKind;

use super::applier_discovery::{ApplierKind, RenderingTask, RepositoryDeclarations, typed};
use super::live_appliers::{ClusterAppliers, LiveApplier, LiveInventoryOwner};
use super::object_prediction::helm_release::{
    HelmReleaseObjectPredictor, PredictedOperation, PredictedReleaseObject,
};
use super::object_prediction::kustomization::KustomizationObjectPredictor;
use super::object_prediction::{
    ObjectPrediction, ObjectUpdate, PlannedCrdsAndNamespaces, PredictionFailure, RefusedApply,
};
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::drift_ignore_rules::ignored;
use windlass_serve::settings::OperatorSettings;

/// The name of the base revision.
const CLUSTER_REVISION: &str = "cluster";

/// Why an applier for another cluster is not compared.
const OTHER_CLUSTER: &str =
    "it applies to the cluster of spec.kubeConfig, which this command does not read";

/// Why an applier is not compared if its spec cannot be read.
const UNREADABLE_SPEC: &str = "how it applies its objects cannot be read from its spec";

/// How an applier of the repository writes its objects.
pub(crate) enum ApplierWriteMethod {
    /// The objects are applied by a Kustomization.
    Kustomization {
        object: Box<Kustomization>,
        /// The fields that others may change.
        rules: Box<DriftIgnoreRules>,
    },
    /// The objects belong to a Helm release with this name and namespace.
    Release { name: String, namespace: String, options: ActionOptions },
}

/// How the appliers of a repository write their objects, as far as that can be read.
pub(crate) fn writers(
    declarations: &RepositoryDeclarations,
    settings: &OperatorSettings,
) -> BTreeMap<ObjectId, ApplierWriteMethod> {
    let mut writers = BTreeMap::new();
    for (id, applier) in &declarations.appliers {
        let work = applier.deferred.as_ref().map(|it| &it.work);
        let writer = match (work, declarations.manifests.get(id)) {
            (Some(RenderingTask::HelmfileRelease(inputs)), _) => {
                let options = inputs.options;
                options.map(|options| ApplierWriteMethod::Release {
                    name: inputs.key.name.clone(),
                    namespace: inputs.key.namespace.clone(),
                    options,
                })
            }
            (_, Some(object)) => ApplierWriteMethod::of(object, settings),
            (_, None) => None,
        };
        writers.extend(writer.map(|writer| (id.clone(), writer)));
    }
    writers
}

/// The appliers that apply to other clusters, according to the repository or the cluster. Their objects are removed from the
/// head, because this cluster does not contain them.
pub(crate) fn of_other_clusters(
    head: &mut RepositoryRendering,
    found: &ClusterAppliers,
) -> BTreeSet<ObjectId> {
    let live = found.appliers.iter();
    let live = live.filter(|(_, it)| !it.rendered.target_cluster.is_empty());
    let mut others: BTreeSet<ObjectId> = live.map(|(id, _)| id.clone()).collect();
    for (id, applier) in &mut head.appliers {
        if !applier.target_cluster.is_empty() || others.contains(id) {
            others.insert(id.clone());
            applier.objects.clear();
            let what = "all objects".to_owned();
            let reason = OTHER_CLUSTER.to_owned();
            applier.unknown_values.push(UnknownValue { what, reason });
        }
    }
    others
}

impl ApplierWriteMethod {
    fn of(object: &Object, settings: &OperatorSettings) -> Option<Self> {
        match ApplierKind::of(object)? {
            ApplierKind::Kustomization => {
                let object: Kustomization = typed(object).ok()?;
                let rules = ignored("spec.ignore", &object.spec.ignore).ok()?;
                Some(Self::Kustomization { object: Box::new(object), rules: Box::new(rules) })
            }
            ApplierKind::HelmRelease => {
                let release: HelmRelease = typed(object).ok()?;
                let spec = read_without_chart(&release, settings);
                let target = spec.release.target;
                let options = spec.options;
                Some(Self::Release { name: target.name, namespace: target.namespace, options })
            }
            ApplierKind::Helmfile => None,
        }
    }
}

/// The inputs of the comparison.
pub(crate) struct LiveComparison<'c> {
    pub(crate) cluster: &'c ClusterConnection,
    pub(crate) settings: &'c OperatorSettings,
    pub(crate) secrets: &'c SecretMasking,
    /// The CRDs and namespaces that the repository itself creates.
    pub(crate) planned: &'c PlannedCrdsAndNamespaces,
    /// How the appliers of the repository write their objects.
    pub(crate) writers: &'c BTreeMap<ObjectId, ApplierWriteMethod>,
    /// The appliers of the repository that are not rendered. Their current objects stay.
    pub(crate) unrendered: &'c BTreeSet<ObjectId>,
}

/// The objects of an applier on both sides.
#[derive(Debug, Default, PartialEq)]
struct ApplierComparisonSides {
    base: Vec<Object>,
    head: Vec<Object>,
    /// The values that are unknown.
    unread: Vec<UnknownValue>,
    /// Why some objects were not sent to the API server as a dry-run, because the user may not apply them.
    untried: Vec<String>,
}

impl LiveComparison<'_> {
    /// Makes the base from the objects of the cluster, and the head from their predicted state.
    pub(crate) async fn compare(
        &self,
        head: &mut RepositoryRendering,
        found: ClusterAppliers,
    ) -> RepositoryRendering {
        let ClusterAppliers { appliers: live, incomplete } = found;
        let mut base = RepositoryRendering {
            revision: CLUSTER_REVISION.to_owned(),
            incomplete,
            is_cluster: true,
            ..RepositoryRendering::default()
        };
        // The objects that belong to an applier of the base, whichever applier applies them in the head.
        let mut owned: BTreeSet<ObjectId> = BTreeSet::new();
        for (id, applier) in &live {
            let rendered = self.base_applier(id, applier, head.appliers.get(id)).await;
            owned.extend(rendered.objects.iter().map(Object::id));
            let of_head = head.appliers.get(id).into_iter().flat_map(|it| &it.objects);
            let kept = of_head.map(Object::id).filter(|it| applier.entries.contains(it));
            owned.extend(kept);
            base.appliers.insert(id.clone(), rendered);
        }
        for (id, rendered) in &mut head.appliers {
            if rendered.failure.is_none() && !self.unrendered.contains(id) {
                self.compare_applier(id, rendered, live.get(id), &owned, &mut base).await;
            }
        }
        keep_suspensions(&live, head);
        keep_unrendered(self.unrendered, &base, head);
        base
    }

    /// Makes the base of an applier, with the objects that are no longer in the head.
    async fn base_applier(
        &self,
        id: &ObjectId,
        applier: &LiveApplier,
        head: Option<&RenderedApplier>,
    ) -> RenderedApplier {
        let mut rendered = applier.rendered.clone();
        rendered.recorded_objects = Some(applier.entries.len());
        if !rendered.target_cluster.is_empty() && head.is_none() {
            let what = "all objects".to_owned();
            let reason = OTHER_CLUSTER.to_owned();
            rendered.unread_objects.push(UnknownValue { what, reason });
        }
        let is_rendered = head.is_none_or(|it| it.failure.is_none());
        if !is_rendered || rendered.failure.is_some() || self.unrendered.contains(id) {
            return rendered;
        }
        let of_head = head.into_iter().flat_map(|it| &it.objects);
        let wanted: BTreeSet<ObjectId> = of_head.map(Object::id).collect();
        let stale = applier.entries.ids().filter(|it| !wanted.contains(*it));
        let asked: Vec<_> = stale.map(|it| self.left(applier, it)).collect();
        let left: Vec<_> = stream::iter(asked).buffered(self.width()).collect().await;
        for (id, left) in left {
            match left {
                // Flux may record a cluster-scoped object with a namespace.
                Ok(Some(live)) if wanted.contains(&live.id()) => {}
                Ok(Some(live)) => rendered.objects.push(compared_form(live)),
                Ok(None) => {}
                Err(text) => rendered.unread_objects.push(UnknownValue {
                    what: id.subject(),
                    reason: format!("the cluster has recorded it, the head lacks it, and it cannot be read: {text}"),
                }),
            }
        }
        rendered
    }

    /// Reads an object of an applier's inventory from the cluster. Returns `None` if the object no longer exists, or if another
    /// applier owns it.
    async fn left<'i>(
        &self,
        applier: &LiveApplier,
        id: &'i ObjectId,
    ) -> (&'i ObjectId, Result<Option<Object>, String>) {
        let version = applier.entries.version(id).unwrap_or_default();
        let left = match &applier.owner {
            LiveInventoryOwner::Kustomization(object) => {
                let rules = DriftIgnoreRules::default();
                let comparison = self.kustomization(object, &rules, &applier.entries, self.secrets);
                comparison.left(id, version).await
            }
            LiveInventoryOwner::Release(release) => {
                let live = self.cluster.get_by_id(id, version).await;
                let live = live.map_err(|error| self.secrets.mask(&error.to_string()));
                let is_its = |live: &Object| {
                    let is_going = live.meta("deletionTimestamp").is_some_and(|it| !it.is_null());
                    !is_going && !is_of_another(live, &release.name, &release.namespace)
                };
                live.map(|live| live.filter(is_its))
            }
            LiveInventoryOwner::Nothing => Ok(None),
        };
        (id, left)
    }

    /// Adds the objects of an applier to both sides.
    async fn compare_applier(
        &self,
        id: &ObjectId,
        rendered: &mut RenderedApplier,
        live: Option<&LiveApplier>,
        owned: &BTreeSet<ObjectId>,
        base: &mut RepositoryRendering,
    ) {
        let writer = self.writers.get(id);
        if writer.is_none() && !rendered.objects.is_empty() {
            let of_base = base.appliers.entry(id.clone()).or_default();
            of_base.failure.get_or_insert_with(|| UNREADABLE_SPEC.to_owned());
        }
        let has_failed = base.appliers.get(id).is_some_and(|it| it.failure.is_some());
        let Some(writer) = writer.filter(|_| !has_failed) else { return };
        let objects = std::mem::take(&mut rendered.objects);
        let none = ObjectInventory::default();
        let entries = live.map_or(&none, |it| &it.entries);
        let mut sides = ApplierComparisonSides::default();
        for PredictedReleaseObject { id, object, prediction } in
            self.predicted(writer, live, objects).await
        {
            let original = original(live, &id);
            let is_its = entries.contains(&id) || !owned.contains(&id);
            sides.add(PredictedReleaseObject { id, object, prediction }, original, is_its);
        }
        sides.name_untried();
        rendered.objects = sides.head;
        match base.appliers.get_mut(id) {
            Some(of_base) => {
                of_base.objects.extend(sides.base);
                of_base.unread_objects.extend(sides.unread);
            }
            None if sides.base.is_empty() => rendered.unknown_values.extend(sides.unread),
            // The applier is new, and takes over existing objects.
            None => {
                let adopting = RenderedApplier {
                    objects: sides.base,
                    unread_objects: sides.unread,
                    recorded_objects: Some(0),
                    parent: rendered.parent.clone(),
                    is_part_of_parent: rendered.is_part_of_parent,
                    is_suspended: rendered.is_suspended,
                    ..RenderedApplier::default()
                };
                base.appliers.insert(id.clone(), adopting);
            }
        }
    }

    /// Predicts the objects that an applier applies. An object that SOPS encrypted is only looked up, because without the keys
    /// every value would differ.
    async fn predicted(
        &self,
        writer: &ApplierWriteMethod,
        live: Option<&LiveApplier>,
        objects: Vec<Object>,
    ) -> Vec<PredictedReleaseObject> {
        let (encrypted, plain): (Vec<Object>, Vec<Object>) =
            objects.into_iter().partition(is_encrypted);
        let encrypted: Vec<_> =
            encrypted.into_iter().map(|object| self.encrypted(object)).collect();
        let mut predicted: Vec<PredictedReleaseObject> =
            stream::iter(encrypted).buffered(self.width()).collect().await;
        // Secret values of the head are masked in errors of the API server, which may quote them. The plan itself masks all
        // other texts.
        let secrets = SecretMasking::default().with_manifests(&plain);
        let written: Vec<PredictedReleaseObject> = match writer {
            ApplierWriteMethod::Kustomization { object, rules } => {
                let none = ObjectInventory::default();
                let entries = live.map_or(&none, |it| &it.entries);
                let comparison = &self.kustomization(object, rules, entries, &secrets);
                let predict = |object: Object| async move {
                    let prediction = comparison.predict(&object).await;
                    let member = PredictedReleaseObject { id: object.id(), object, prediction };
                    self.found_in_other_version(member, "").await
                };
                let asked: Vec<_> = plain.into_iter().map(predict).collect();
                stream::iter(asked).buffered(self.width()).collect().await
            }
            ApplierWriteMethod::Release { name, namespace, options } => {
                let release = live.and_then(|it| match &it.owner {
                    LiveInventoryOwner::Release(release) => Some(release),
                    LiveInventoryOwner::Kustomization(_) | LiveInventoryOwner::Nothing => None,
                });
                let is_installed = live.is_some_and(LiveApplier::is_installed);
                let operation = match is_installed {
                    true => OperationKind::Upgrade,
                    false => OperationKind::Install,
                };
                let operation = PredictedOperation {
                    name,
                    namespace,
                    operation,
                    options: *options,
                    base: release.and_then(|it| it.record.as_deref()),
                    overrides: &self.settings.override_manager,
                };
                let mut planned = self.planned.clone();
                if !is_installed && options.create_namespace {
                    planned.add_namespace(namespace);
                }
                let comparison =
                    &HelmReleaseObjectPredictor::new(self.cluster, &operation, planned, secrets);
                let none = BTreeMap::new();
                let originals = release.map_or(&none, |it| &it.members);
                let predict = |object: Object| async move {
                    let member = comparison.predict(object, originals).await;
                    self.found_in_other_version(member, namespace).await
                };
                let asked: Vec<_> = plain.into_iter().map(predict).collect();
                stream::iter(asked).buffered(self.width()).collect().await
            }
        };
        predicted.extend(written);
        predicted
    }

    /// Checks a predicted creation if the cluster does not serve the API version of the manifest. The object may exist in
    /// another version. An object without a namespace is looked up in `namespace`.
    async fn found_in_other_version(
        &self,
        member: PredictedReleaseObject,
        namespace: &str,
    ) -> PredictedReleaseObject {
        let is_absent = match &member.prediction {
            Ok(ObjectPrediction::Created { .. }) => true,
            Err(PredictionFailure::Refused(refused)) => refused.live.is_none(),
            Ok(_) | Err(PredictionFailure::Unread(_)) => false,
        };
        if !is_absent {
            return member;
        }
        let gvk = member.object.gvk();
        let resource = self.cluster.resource(&gvk).await;
        if !matches!(resource, Err(ClusterError::NoSuchKind { .. })) {
            return member;
        }
        let mut asked = member.id.clone();
        if asked.namespace.is_empty() {
            namespace.clone_into(&mut asked.namespace);
        }
        let PredictedReleaseObject { id, object, prediction } = member;
        match self.cluster.get_by_id(&asked, &gvk.version).await {
            Ok(None) => PredictedReleaseObject { id, object, prediction },
            Ok(Some(live)) => {
                let text = match prediction {
                    Err(failure) => failure.into_text(),
                    Ok(_) => format!("{} is not served yet", gvk.api_version()),
                };
                let id = live.id();
                let refused = RefusedApply { live: Some(live), lacks_rights: false, text };
                let prediction = Err(PredictionFailure::Refused(Box::new(refused)));
                PredictedReleaseObject { id, object, prediction }
            }
            Err(error) => {
                let text = self.secrets.mask(&error.to_string());
                let prediction = Err(PredictionFailure::Unread(text));
                PredictedReleaseObject { id, object, prediction }
            }
        }
    }

    /// The prediction for an object that SOPS encrypted. It stays as it is in the cluster, or it is created.
    async fn encrypted(&self, object: Object) -> PredictedReleaseObject {
        let id = object.id();
        let prediction = match self.cluster.get_by_id(&id, &object.gvk().version).await {
            Ok(Some(live)) => Ok(ObjectPrediction::Same(Box::new(live))),
            Ok(None) => {
                Ok(ObjectPrediction::Created { object: Box::new(object.clone()), note: None })
            }
            Err(error) => Err(PredictionFailure::Unread(self.secrets.mask(&error.to_string()))),
        };
        PredictedReleaseObject { id, object, prediction }
    }

    fn kustomization<'a>(
        &'a self,
        object: &'a Kustomization,
        rules: &'a DriftIgnoreRules,
        applied: &'a ObjectInventory,
        secrets: &'a SecretMasking,
    ) -> KustomizationObjectPredictor<'a> {
        KustomizationObjectPredictor {
            cluster: self.cluster,
            object,
            applied,
            rules,
            overrides: &self.settings.override_manager,
            secrets,
            planned: self.planned,
        }
    }

    /// The maximum number of parallel requests, as with `windlass diff`.
    fn width(&self) -> usize {
        usize::from(self.settings.concurrent_ssa)
    }
}

/// The object in the current revision of its release.
fn original<'a>(live: Option<&'a LiveApplier>, id: &ObjectId) -> Option<&'a Object> {
    let LiveInventoryOwner::Release(release) = &live?.owner else { return None };
    release.members.get(id).map(|member| &member.object)
}

/// Whether SOPS encrypted an object.
fn is_encrypted(object: &Object) -> bool {
    object.get("sops").is_some_and(|sops| sops["mac"].is_string())
}

/// The form of an object for the comparison, without fields that appliers do not control.
fn compared_form(mut object: Object) -> Object {
    object.fields_mut().remove("status");
    object.metadata_mut().remove("managedFields");
    object
}

impl ApplierComparisonSides {
    /// Adds the prediction for an object. `original` is the object in the previous revision of its release. If `is_its` is
    /// false, another applier owns the current object.
    fn add(&mut self, predicted: PredictedReleaseObject, original: Option<&Object>, is_its: bool) {
        let PredictedReleaseObject { id, object, prediction } = predicted;
        if is_encrypted(&object) {
            self.unread.push(UnknownValue {
                what: format!("what SOPS encrypted of {}", id.subject()),
                reason: "this command has no keys, so it is not compared".to_owned(),
            });
        }
        match prediction {
            Ok(ObjectPrediction::Created { object, .. }) => self.head.push(*object),
            Ok(ObjectPrediction::Changed(update) | ObjectPrediction::Recreated(update)) => {
                let ObjectUpdate { live, after, .. } = *update;
                self.add_both(live, after, is_its);
            }
            Ok(ObjectPrediction::Same(live) | ObjectPrediction::Skipped(Some(live))) => {
                let after = (*live).clone();
                self.add_both(*live, after, is_its);
            }
            Ok(ObjectPrediction::Skipped(None)) => {}
            Err(PredictionFailure::Unread(text)) => self.unread.push(UnknownValue {
                what: id.subject(),
                reason: format!("whether the cluster has it is not known: {text}"),
            }),
            Err(PredictionFailure::Refused(refused)) => {
                let RefusedApply { live, lacks_rights, text } = *refused;
                match live {
                    Some(live) => {
                        let after = three_way_merge::merged(original, &object, &live);
                        self.add_both(live, after, is_its);
                    }
                    None => self.head.push(object),
                }
                match lacks_rights {
                    true => self.untried.push(text),
                    false => self.unread.push(UnknownValue {
                        what: format!("what becomes of {}", id.subject()),
                        reason: format!("it cannot be applied as it is: {text}"),
                    }),
                }
            }
        }
    }

    fn add_both(&mut self, live: Object, after: Object, is_its: bool) {
        if is_its {
            self.base.push(compared_form(live));
        }
        self.head.push(compared_form(after));
    }

    /// Adds a message with the number of objects that were not sent to the API server as a dry-run.
    fn name_untried(&mut self) {
        let count = self.untried.len();
        if let Some(first) = self.untried.first() {
            self.unread.push(UnknownValue {
                what: format!("what the API server makes of {count} objects"),
                reason: format!(
                    "this user may not try to apply them, so the fields of the manifests are compared: {first}"
                ),
            });
        }
    }
}

/// Keeps appliers suspended that are suspended in the cluster, unless their manifests set `suspend`. `windlass suspend` leaves
/// appliers in this state.
fn keep_suspensions(live: &BTreeMap<ObjectId, LiveApplier>, head: &mut RepositoryRendering) {
    let objects = head.appliers.values().flat_map(|it| &it.objects);
    let declared = objects.filter(|it| ApplierKind::of(it).is_some());
    let is_suspended = |it: &Object| it.get("spec").is_some_and(|spec| spec["suspend"] == true);
    let after: BTreeMap<ObjectId, bool> = declared.map(|it| (it.id(), is_suspended(it))).collect();
    let stays_suspended = |id: &ObjectId| {
        let was_suspended = live.get(id).is_some_and(|it| it.rendered.is_suspended);
        was_suspended && after.get(id).copied().unwrap_or(true)
    };
    for (id, applier) in &mut head.appliers {
        // A release of a Helmfile is suspended together with the Helmfile.
        let declared = applier.parent.as_ref().filter(|_| applier.is_part_of_parent);
        let is_kept = stays_suspended(declared.unwrap_or(id));
        applier.is_suspended |= is_kept;
    }
}

/// Copies the appliers that are not rendered from the base, including the appliers that they have applied.
fn keep_unrendered(
    unrendered: &BTreeSet<ObjectId>,
    base: &RepositoryRendering,
    head: &mut RepositoryRendering,
) {
    let mut kept: BTreeSet<ObjectId> = BTreeSet::new();
    for id in unrendered {
        let of_base = base.appliers.get(id).filter(|it| it.failure.is_none());
        if let (Some(of_base), Some(rendered)) = (of_base, head.appliers.get_mut(id)) {
            let unknown_values = std::mem::take(&mut rendered.unknown_values);
            let file = rendered.file.take();
            *rendered = RenderedApplier {
                unknown_values,
                file,
                unread_objects: Vec::new(),
                ..of_base.clone()
            };
            kept.insert(id.clone());
        }
    }
    loop {
        let is_below = |applier: &RenderedApplier| {
            applier.parent.as_ref().is_some_and(|parent| kept.contains(parent))
        };
        let missing = base.appliers.iter().filter(|(id, _)| !head.appliers.contains_key(*id));
        let below: Vec<(ObjectId, RenderedApplier)> = missing
            .filter(|(_, applier)| is_below(applier))
            .map(|(id, applier)| (id.clone(), applier.clone()))
            .collect();
        if below.is_empty() {
            return;
        }
        kept.extend(below.iter().map(|(id, _)| id.clone()));
        head.appliers.extend(below);
    }
}

#[cfg(test)]
mod tests;
