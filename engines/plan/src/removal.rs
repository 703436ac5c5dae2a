//! Determines which removed objects are deleted from the cluster, and by which applier.
//!
//! Here: which objects stay in the cluster and why, and which applier deletes the others. That is the applier that had the
//! objects, or the applier above it if it is removed itself. Elsewhere: how much may be deleted (`apply::deletion_budget`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use apply::deletion_budget::{DeletedObject, DeletionToJudge};
use apply::generated_config_maps_and_secrets::GeneratedConfigMapsAndSecrets;
use objects::{Object, ObjectId};

use crate::change_plan::{ApplierComparisonStatus, RemovedObject, UnknownRemoval};
use crate::deletion_budget::{
    ApplierDeletionBudgetVerdict, ApplierDeletionBudgets, ExceededDeletionRule,
};
use crate::rendering_comparison::{ClusterObject, RenderingComparison};

const SUSPENDED_APPLIER: &str = "the applier is suspended";
const NO_PRUNE: &str = "the applier does not prune";
const KEPT_WITHOUT_APPLIER: &str = "the applier leaves its objects when it is deleted";
const OTHER_CLUSTER: &str = "the applier applies to another cluster now";
const NO_PARENT: &str = "no applier is known that deletes the applier";
const PARENT_UNKNOWN: &str = "whether the applier is deleted is not known";
const EXCLUDED_OBJECT: &str = "its annotations or labels exclude it from deletion";

/// The group of Kustomizations.
const KUSTOMIZE_GROUP: &str = "kustomize.toolkit.fluxcd.io";

/// Annotation of Helm. With the value `keep`, an object stays when its release is uninstalled.
const HELM_RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// The fate of the objects that an applier no longer has.
#[derive(Debug, Clone, Copy)]
enum RemovalEffect<'i> {
    /// This applier deletes them.
    DeletedBy(&'i ObjectId),
    /// They stay in the cluster, for this reason.
    LeftInCluster(&'static str),
}

/// An object that no applier of the head has.
struct ObjectRemoval<'i> {
    key: ClusterObject<'i>,
    object: &'i Object,
    /// Whether the object has an annotation to stay.
    is_excluded: bool,
}

/// The removals of one applier.
struct ApplierRemovals<'i> {
    effect: RemovalEffect<'i>,
    objects: Vec<ObjectRemoval<'i>>,
}

/// All objects that the appliers of a comparison remove.
pub(crate) struct ObjectRemovals<'c, 'i> {
    comparison: &'c RenderingComparison<'i>,
    by_applier: BTreeMap<&'i ObjectId, ApplierRemovals<'i>>,
}

impl<'c, 'i> ObjectRemovals<'c, 'i> {
    pub(crate) fn new(comparison: &'c RenderingComparison<'i>) -> Self {
        let mut removals = Self { comparison, by_applier: BTreeMap::new() };
        for id in comparison.states.keys().copied() {
            let gone = comparison
                .gone(id)
                .filter(|(key, object)| !comparison.is_taken_over(id, *key, object));
            let removal = |(key, object): (ClusterObject<'i>, &'i Object)| ObjectRemoval {
                key,
                object,
                is_excluded: is_excluded(id, object),
            };
            let objects: Vec<ObjectRemoval<'i>> = gone.map(removal).collect();
            let effect = removal_effect(comparison, id);
            removals.by_applier.insert(id, ApplierRemovals { effect, objects });
        }
        removals
    }

    /// The removed objects of an applier, in the order of their names.
    pub(crate) fn removed_objects(&self, id: &ObjectId) -> Vec<RemovedObject> {
        let Some(removals) = self.by_applier.get(id) else { return Vec::new() };
        let left = match removals.effect {
            RemovalEffect::LeftInCluster(reason) => Some(reason),
            RemovalEffect::DeletedBy(_) => None,
        };
        let removed = |it: &ObjectRemoval<'_>| RemovedObject {
            object: it.key.id.into(),
            left_in_cluster: left.or(it.is_excluded.then_some(EXCLUDED_OBJECT)).map(Cow::Borrowed),
        };
        removals.objects.iter().map(removed).collect()
    }

    /// What happens to the unknown objects of a removed applier. `None` if its objects are known.
    pub(crate) fn unknown_removal(&self, id: &ObjectId) -> Option<UnknownRemoval> {
        let reason = self.comparison.unknown_objects(id)?;
        let left_in_cluster = match self.by_applier.get(id)?.effect {
            RemovalEffect::LeftInCluster(reason) => Some(Cow::Borrowed(reason)),
            RemovalEffect::DeletedBy(_) => None,
        };
        Some(UnknownRemoval { reason, left_in_cluster })
    }

    /// The deletions of each applier, compared with its budget.
    pub(crate) fn verdicts(
        &self,
        budgets: &ApplierDeletionBudgets,
    ) -> BTreeMap<&'i ObjectId, ApplierDeletionBudgetVerdict> {
        let mut deletions: BTreeMap<&'i ObjectId, ApplierDeletion<'i>> = BTreeMap::new();
        for (id, removals) in &self.by_applier {
            let RemovalEffect::DeletedBy(by) = removals.effect else { continue };
            let budget = budgets.judging(by);
            let deletion = deletions.entry(by).or_default();
            if self.comparison.unknown_objects(id).is_some() {
                deletion.unknown.push(*id);
            }
            let recorded = self.comparison.base.applier(id).and_then(|it| it.recorded_objects);
            deletion.of += recorded
                .unwrap_or_else(|| self.comparison.base.objects(id).map_or(0, BTreeMap::len));
            let manifests = self.comparison.head.objects(id);
            let generated = GeneratedConfigMapsAndSecrets::among(
                manifests.into_iter().flat_map(BTreeMap::keys),
            );
            let is_empty_build = self.is_empty_build(by);
            for removal in removals.objects.iter().filter(|it| !it.is_excluded) {
                let is_here = removal.key.cluster.is_empty();
                let is_applier = is_here && self.comparison.base.applier(removal.key.id).is_some();
                if budget.leaves_unjudged(removal.key.id, &generated)
                    || (!is_empty_build && budget.exempts(removal.object, is_applier))
                {
                    continue;
                }
                let deleted = DeletedObject::new(removal.object, is_applier);
                deletion.objects.insert(removal.key, deleted);
            }
        }
        let deletions = deletions
            .into_iter()
            .filter(|(_, it)| !(it.objects.is_empty() && it.unknown.is_empty()));
        let verdict = |by: &ObjectId, deletion: ApplierDeletion<'i>| {
            let pending = DeletionToJudge {
                objects: deletion.objects.into_values().collect(),
                of: deletion.of,
                recent: Some(0),
                is_empty_build: self.is_empty_build(by),
                ..DeletionToJudge::default()
            };
            let mut verdict =
                ApplierDeletionBudgetVerdict::from(&budgets.judging(by).verdict(&pending));
            // The number of these objects is unknown, so no budget allows their deletion.
            verdict.exceeded.extend(unknown_objects_rule(&deletion.unknown));
            if budgets.limits_nothing(by) {
                verdict.exceeded.clear();
            }
            verdict
        };
        deletions.map(|(by, deletion)| (by, verdict(by, deletion))).collect()
    }

    /// Whether a Kustomization had objects in the base and has none in the head.
    fn is_empty_build(&self, id: &ObjectId) -> bool {
        let [before, after] = [self.comparison.base, self.comparison.head]
            .map(|side| side.objects(id).map(BTreeMap::is_empty));
        id.group == KUSTOMIZE_GROUP && before == Some(false) && after == Some(true)
    }
}

/// Determines whether the objects that an applier no longer has are deleted, and by which applier.
fn removal_effect<'i>(comparison: &RenderingComparison<'i>, id: &'i ObjectId) -> RemovalEffect<'i> {
    let mut at = id;
    for _ in 0..=comparison.states.len() {
        let state = comparison.states.get(at).map(|it| it.comparison);
        let base = comparison.base.applier(at);
        let head = comparison.head.applier(at);
        let parent = match (state, base, head) {
            (Some(ApplierComparisonStatus::Compared), Some(base), Some(head))
                if base.target_cluster != head.target_cluster =>
            {
                return RemovalEffect::LeftInCluster(OTHER_CLUSTER);
            }
            (Some(ApplierComparisonStatus::Compared), _, Some(head)) => {
                return match (head.is_suspended, head.prunes) {
                    (true, _) => RemovalEffect::LeftInCluster(SUSPENDED_APPLIER),
                    (false, false) => RemovalEffect::LeftInCluster(NO_PRUNE),
                    (false, true) => RemovalEffect::DeletedBy(at),
                };
            }
            (Some(ApplierComparisonStatus::Removed), Some(base), _) if base.is_suspended => {
                return RemovalEffect::LeftInCluster(SUSPENDED_APPLIER);
            }
            (Some(ApplierComparisonStatus::Removed), Some(base), _)
                if !base.deletes_with_itself =>
            {
                return RemovalEffect::LeftInCluster(KEPT_WITHOUT_APPLIER);
            }
            (Some(ApplierComparisonStatus::Removed), Some(base), _) => base.parent.as_ref(),
            _ => return RemovalEffect::LeftInCluster(PARENT_UNKNOWN),
        };
        let Some(parent) = parent else { return RemovalEffect::LeftInCluster(NO_PARENT) };
        // The head does not declare the applier, or the applier would not count as removed.
        let declared = comparison.base.objects(parent).and_then(|it| it.get(at));
        match declared {
            Some(object) if is_excluded(parent, object) => {
                return RemovalEffect::LeftInCluster(EXCLUDED_OBJECT);
            }
            Some(_) => at = parent,
            None if base.is_some_and(|it| it.is_part_of_parent) => at = parent,
            None => return RemovalEffect::LeftInCluster(NO_PARENT),
        }
    }
    RemovalEffect::LeftInCluster(NO_PARENT)
}

/// Whether an applier deletes an object that it no longer has, unless another applier has the object.
pub(crate) fn deletes(
    comparison: &RenderingComparison<'_>,
    applier: &ObjectId,
    object: &Object,
) -> bool {
    let effect = removal_effect(comparison, applier);
    matches!(effect, RemovalEffect::DeletedBy(_)) && !is_excluded(applier, object)
}

/// The objects that one applier deletes.
#[derive(Default)]
struct ApplierDeletion<'i> {
    /// Each object once.
    objects: BTreeMap<ClusterObject<'i>, DeletedObject>,
    /// The appliers that go with objects that are not known, in the order of their names.
    unknown: Vec<&'i ObjectId>,
    /// How many objects there were.
    of: usize,
}

/// The rule about a deletion of unknown objects. `None` if all objects are known.
fn unknown_objects_rule(appliers: &[&ObjectId]) -> Option<ExceededDeletionRule> {
    let applier = (*appliers.first()?).into();
    Some(ExceededDeletionRule::UnknownObjects { applier, count: appliers.len() })
}

/// Whether an object has an annotation to stay when its applier no longer has it.
fn is_excluded(applier: &ObjectId, object: &Object) -> bool {
    if applier.group == KUSTOMIZE_GROUP {
        return apply::switches(object).skips_prune();
    }
    let policy = object.annotation(HELM_RESOURCE_POLICY);
    policy.is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}
