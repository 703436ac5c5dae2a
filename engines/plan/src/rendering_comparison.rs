//! Compares two renderings of a repository, the base and the head.
//!
//! Here: which appliers can be compared, and which of their objects are added, changed, moved or removed.
//! Elsewhere: which removed objects are deleted (`removal.rs`), single fields (`field_change.rs`), images, immutable fields,
//! definitions, and findings (`plan_finding.rs`).
//!
//! The run time is proportional to the number of objects times its logarithm.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use objects::{Object, ObjectId, SecretMasking};

use crate::change_plan::{
    ApplierChange, ApplierComparisonStatus, ChangePlan, ChangedObject, MovedAwayObject,
    MovedObject, PlanSummary,
};
use crate::crd_definition_change::crd_definition_change;
use crate::deletion_budget::ApplierDeletionBudgets;
use crate::field_change::{FieldChangeLimits, FieldChangeList, is_encrypted, shown_text};
use crate::image_change::image_changes;
use crate::immutable_field::{ImmutableFieldConsequence, immutable_field_changes};
use crate::plan_finding::plan_findings;
use crate::removal::{ObjectRemovals, deletes};
use crate::rendering::{MissingReference, RenderedApplier, RepositoryRendering, UnknownValue};

/// The most objects of an applier that are compared.
const MAX_COMPARED_OBJECTS: usize = 10_000;

/// The most fields that a plan lists.
const MAX_LISTED_FIELDS: usize = 20_000;

/// The most unknown values, and the most missing references, of an applier that are listed.
const MAX_UNKNOWN_VALUES: usize = 100;

/// The settings of a comparison.
#[derive(Debug, Clone)]
pub struct RenderingComparisonOptions {
    /// How many objects each applier may delete without a finding.
    pub budgets: ApplierDeletionBudgets,
    /// Masks decrypted values and values read from Secrets wherever they occur, because they may have been substituted into
    /// other objects. The values of a Secret within a rendering need not be listed here, because they are never shown.
    pub secrets: SecretMasking,
    /// How many fields of an object are listed. Further fields are only counted.
    pub max_listed_fields: usize,
    /// The namespace whose appliers are listed and counted; none means all namespaces. The other appliers are still compared,
    /// because objects can move between appliers.
    pub namespace: Option<String>,
}

impl Default for RenderingComparisonOptions {
    fn default() -> Self {
        Self {
            budgets: ApplierDeletionBudgets::default(),
            secrets: SecretMasking::default(),
            max_listed_fields: 50,
            namespace: None,
        }
    }
}

/// Computes the changes from the base rendering to the head rendering.
///
/// # Guarantees
/// A rendering compared with itself has no changes. If neither side has failures or suspended appliers, exchanging the sides
/// exchanges added and removed objects. A failure never makes an object count as removed.
pub fn compare(
    base: &RepositoryRendering,
    head: &RepositoryRendering,
    options: &RenderingComparisonOptions,
) -> ChangePlan {
    let base = RenderingIndex::new(base);
    let head = RenderingIndex::new(head);
    let comparison = RenderingComparison::new(&base, &head, options);
    let removals = ObjectRemovals::new(&comparison);
    let mut verdicts = removals.verdicts(&options.budgets);
    let mut appliers = Vec::new();
    let is_listed =
        |id: &ObjectId| options.namespace.as_ref().is_none_or(|only| *only == id.namespace);
    for (id, state) in comparison.states.iter().filter(|(id, _)| is_listed(id)) {
        let mut change = comparison.applier_change(id, state);
        change.removed = removals.removed_objects(id);
        change.unknown_removal = removals.unknown_removal(id);
        change.deletion = verdicts.remove(id);
        appliers.push(change);
    }
    let summary = summary(&appliers);
    appliers.retain(|it| it.has_changes() || !it.unknown_values.is_empty());
    let incomplete = |side: &RepositoryRendering| {
        side.incomplete.as_ref().map(|reason| shown_text(reason, &options.secrets))
    };
    let mut plan = ChangePlan {
        base_revision: base.rendering.revision.clone(),
        head_revision: head.rendering.revision.clone(),
        summary,
        findings: Vec::new(),
        omitted_findings: 0,
        base_incomplete: incomplete(base.rendering),
        head_incomplete: incomplete(head.rendering),
        appliers,
    };
    plan_findings(&mut plan);
    plan
}

/// The ConfigMaps and Secrets that an applier lacks in the head but not in the base.
fn new_missing_references(
    base: Option<&RenderedApplier>,
    head: Option<&RenderedApplier>,
) -> Vec<MissingReference> {
    let missing = |side: Option<&RenderedApplier>| -> BTreeSet<MissingReference> {
        side.into_iter().flat_map(|it| it.missing_references.iter().cloned()).collect()
    };
    missing(head).difference(&missing(base)).take(MAX_UNKNOWN_VALUES).cloned().collect()
}

fn summary(appliers: &[ApplierChange]) -> PlanSummary {
    let mut summary = PlanSummary::default();
    for change in appliers {
        summary.added += change.added.len();
        summary.changed += change.changed.len();
        summary.removed += change.removed.len();
        let deleted = change.removed.iter().filter(|it| it.left_in_cluster.is_none());
        summary.deleted += deleted.count();
        summary.moved += change.moved.len();
        summary.unchanged += change.unchanged;
        summary.images += change.images.len();
        summary.not_compared += usize::from(!change.comparison.is_complete());
        summary.unknown_removals += usize::from(change.unknown_removal.is_some());
    }
    summary
}

/// An object in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClusterObject<'i> {
    /// Empty for the cluster of the appliers.
    pub(crate) cluster: &'i str,
    pub(crate) id: &'i ObjectId,
}

/// The objects of a rendering by their ids.
pub(crate) struct RenderingIndex<'r> {
    pub(crate) rendering: &'r RepositoryRendering,
    /// The objects of each applier that was rendered.
    objects: BTreeMap<&'r ObjectId, BTreeMap<ObjectId, &'r Object>>,
}

impl<'r> RenderingIndex<'r> {
    fn new(rendering: &'r RepositoryRendering) -> Self {
        let rendered = rendering.appliers.iter().filter(|(_, applier)| applier.failure.is_none());
        let by_id = |applier: &'r RenderedApplier| -> BTreeMap<ObjectId, &'r Object> {
            applier.objects.iter().map(|object| (object.id(), object)).collect()
        };
        let objects = rendered.map(|(id, applier)| (id, by_id(applier))).collect();
        Self { rendering, objects }
    }

    pub(crate) fn applier(&self, id: &ObjectId) -> Option<&'r RenderedApplier> {
        self.rendering.appliers.get(id)
    }

    fn failure(&self, id: &ObjectId) -> Option<&'r str> {
        self.applier(id)?.failure.as_deref()
    }

    /// The objects of an applier. `None` if the applier is absent or failed.
    pub(crate) fn objects(&self, applier: &ObjectId) -> Option<&BTreeMap<ObjectId, &'r Object>> {
        self.objects.get(applier)
    }

    /// The cluster that an applier applies to.
    fn cluster(&self, applier: &ObjectId) -> &'r str {
        self.applier(applier).map_or("", |it| it.target_cluster.as_str())
    }

    /// All objects that appliers apply on this side. A suspended applier counts only with the objects that it already had on
    /// the earlier side.
    fn applied_since(&self, earlier: &RenderingIndex<'_>) -> BTreeSet<ClusterObject<'_>> {
        let mut applied = BTreeSet::new();
        for (applier, objects) in &self.objects {
            let cluster = self.cluster(applier);
            let is_suspended = self.applier(applier).is_some_and(|it| it.is_suspended);
            let had = earlier.objects(applier);
            let is_applied =
                |id: &&ObjectId| !is_suspended || had.is_some_and(|had| had.contains_key(*id));
            applied
                .extend(objects.keys().filter(is_applied).map(|id| ClusterObject { cluster, id }));
        }
        applied
    }

    /// The first applier of each object.
    fn owners(&self) -> BTreeMap<ClusterObject<'_>, &ObjectId> {
        let mut owners = BTreeMap::new();
        for (applier, objects) in &self.objects {
            let cluster = self.cluster(applier);
            for id in objects.keys() {
                owners.entry(ClusterObject { cluster, id }).or_insert(*applier);
            }
        }
        owners
    }
}

/// Whether an applier can be compared, and why not.
pub(crate) struct ApplierComparability {
    pub(crate) comparison: ApplierComparisonStatus,
    message: Option<String>,
}

impl ApplierComparability {
    fn of(comparison: ApplierComparisonStatus) -> Self {
        Self { comparison, message: None }
    }

    fn because(comparison: ApplierComparisonStatus, message: impl Into<String>) -> Self {
        Self { comparison, message: Some(message.into()) }
    }
}

/// Two renderings that are compared.
pub(crate) struct RenderingComparison<'i> {
    pub(crate) base: &'i RenderingIndex<'i>,
    pub(crate) head: &'i RenderingIndex<'i>,
    base_owners: BTreeMap<ClusterObject<'i>, &'i ObjectId>,
    head_owners: BTreeMap<ClusterObject<'i>, &'i ObjectId>,
    /// The objects that appliers of the head apply. Objects that a suspended applier would take over are left out.
    applied_in_head: BTreeSet<ClusterObject<'i>>,
    /// The states of all appliers on both sides.
    pub(crate) states: BTreeMap<&'i ObjectId, ApplierComparability>,
    options: &'i RenderingComparisonOptions,
    /// How many fields may still be listed.
    fields_left: Cell<usize>,
}

impl<'i> RenderingComparison<'i> {
    fn new(
        base: &'i RenderingIndex<'i>,
        head: &'i RenderingIndex<'i>,
        options: &'i RenderingComparisonOptions,
    ) -> Self {
        let mut comparison = Self {
            base,
            head,
            base_owners: base.owners(),
            head_owners: head.owners(),
            applied_in_head: head.applied_since(base),
            states: BTreeMap::new(),
            options,
            fields_left: Cell::new(MAX_LISTED_FIELDS),
        };
        let all: BTreeSet<&'i ObjectId> =
            base.rendering.appliers.keys().chain(head.rendering.appliers.keys()).collect();
        let states = all.into_iter().map(|id| (id, comparison.state(id))).collect();
        comparison.states = states;
        comparison
    }

    fn state(&self, id: &ObjectId) -> ApplierComparability {
        let count = |side: &RenderingIndex<'_>| side.objects(id).map_or(0, BTreeMap::len);
        if let Some(failure) = self.head.failure(id) {
            let is_not_fetched = self.head.applier(id).is_some_and(|it| it.is_not_fetched);
            let comparison = match is_not_fetched {
                true => ApplierComparisonStatus::HeadNotFetched,
                false => ApplierComparisonStatus::HeadFailed,
            };
            return ApplierComparability::because(comparison, failure);
        }
        let is_in_base = self.base.applier(id).is_some();
        let is_in_head = self.head.applier(id).is_some();
        // One that a repository declared and does not any more is removed, whether its objects are known or not.
        if let Some(failure) = self.base.failure(id)
            && (is_in_head || self.base.rendering.is_cluster)
        {
            let comparison = match self.base.applier(id).is_some_and(RenderedApplier::is_unread) {
                true => ApplierComparisonStatus::BaseNotFetched,
                false => ApplierComparisonStatus::BaseFailed,
            };
            return ApplierComparability::because(comparison, failure);
        }
        let absence = match (is_in_base, is_in_head) {
            (true, false) => unknown_absence(id, self.base, self.head, &self.head_owners),
            (false, true) => unknown_absence(id, self.head, self.base, &self.base_owners),
            _ => None,
        };
        match absence {
            Some(UncertainAbsence { reason, cause }) => {
                let comparison = match (is_in_base, cause) {
                    (true, UncertainAbsenceCause::UnfetchedInput) => {
                        ApplierComparisonStatus::HeadNotFetched
                    }
                    (true, _) => ApplierComparisonStatus::HeadUnknown,
                    (false, UncertainAbsenceCause::UnreadSide) => {
                        ApplierComparisonStatus::BaseUnknown
                    }
                    (false, _) => ApplierComparisonStatus::BaseNotFetched,
                };
                ApplierComparability::because(comparison, reason)
            }
            None if count(self.base).max(count(self.head)) > MAX_COMPARED_OBJECTS => {
                let message = format!(
                    "it has more than {MAX_COMPARED_OBJECTS} objects, which is the most that are compared"
                );
                ApplierComparability::because(ApplierComparisonStatus::TooLarge, message)
            }
            None if !is_in_base => ApplierComparability::of(ApplierComparisonStatus::New),
            None if !is_in_head => ApplierComparability::of(ApplierComparisonStatus::Removed),
            None => ApplierComparability::of(ApplierComparisonStatus::Compared),
        }
    }

    /// Why the objects of a removed applier are unknown. `None` if they are known, or if the applier is not removed.
    pub(crate) fn unknown_objects(&self, id: &ObjectId) -> Option<String> {
        let state = self.states.get(id)?.comparison;
        let reason = self.base.failure(id).filter(|_| state == ApplierComparisonStatus::Removed)?;
        Some(shown_text(reason, &self.options.secrets))
    }

    /// Whether an applier of the head applies an object. A suspended applier applies only the objects that it had before.
    pub(crate) fn is_in_head(&self, object: ClusterObject<'_>) -> bool {
        self.applied_in_head.contains(&object)
    }

    /// Whether an applier of the head takes over an object that left another applier, without a deletion in between.
    ///
    /// A Helm release deletes each object that it no longer has, even if another applier has the object now. The exception is
    /// an object that a release of another name took over. A release whose name changes within an applier is uninstalled first.
    pub(crate) fn is_taken_over(
        &self,
        from: &ObjectId,
        key: ClusterObject<'_>,
        object: &Object,
    ) -> bool {
        if !self.is_in_head(key) {
            return false;
        }
        let Some(release) = self.base.applier(from).and_then(|it| it.helm_release.as_ref()) else {
            return true;
        };
        let to = self.head_owners.get(&key).filter(|to| **to != from);
        let taking = to.and_then(|to| self.head.applier(to)?.helm_release.as_ref());
        taking.is_some_and(|taking| taking.name != release.name) || !deletes(self, from, object)
    }

    /// Whether an applier of both sides still applies to the same cluster, and still upgrades the same Helm release.
    fn is_same_place(&self, id: &ObjectId) -> bool {
        let is_suspended = self.head.applier(id).is_some_and(|it| it.is_suspended);
        let base = self.base.applier(id).and_then(|it| it.helm_release.as_ref());
        let head = self.head.applier(id).and_then(|it| it.helm_release.as_ref());
        let is_upgraded = base.zip(head).is_none_or(|(base, head)| base.is_upgraded_to(head));
        (is_suspended || is_upgraded) && self.base.cluster(id) == self.head.cluster(id)
    }

    /// The objects that an applier no longer has, in their state of the base; none if that is unknown.
    pub(crate) fn gone(
        &self,
        id: &ObjectId,
    ) -> impl Iterator<Item = (ClusterObject<'i>, &'i Object)> {
        let state = self.states.get(id).map(|it| it.comparison);
        let is_known = matches!(
            state,
            Some(ApplierComparisonStatus::Compared | ApplierComparisonStatus::Removed)
        );
        let base: &'i RenderingIndex<'i> = self.base;
        let cluster = base.cluster(id);
        let kept = self.kept_objects(id);
        let objects = base.objects(id).filter(|_| is_known).into_iter().flatten();
        objects
            .filter(move |(object, _)| kept.is_none_or(|kept| !kept.contains_key(*object)))
            .map(move |(id, object)| (ClusterObject { cluster, id }, *object))
    }

    /// The objects of an applier in the head. `None` if it has none or if its cluster or Helm release has changed.
    fn kept_objects(&self, id: &ObjectId) -> Option<&'i BTreeMap<ObjectId, &'i Object>> {
        let head: &'i RenderingIndex<'i> = self.head;
        head.objects(id).filter(|_| self.is_same_place(id))
    }

    fn applier_change(&self, id: &ObjectId, state: &ApplierComparability) -> ApplierChange {
        let base = self.base.applier(id);
        let head = self.head.applier(id);
        let revision = |it: &RenderedApplier| it.source_revision.clone();
        let leaving = self.gone(id).filter(|(key, object)| self.is_taken_over(id, *key, object));
        let leaving: Vec<ClusterObject<'_>> = leaving.map(|(key, _)| key).collect();
        let mut change = ApplierChange {
            applier: id.into(),
            comparison: state.comparison,
            message: state.message.as_ref().map(|it| shown_text(it, &self.options.secrets)),
            fails_in_base: base.zip(head).is_some_and(|(base, head)| head.fails_as_in(base)),
            fails_alike: base.zip(head).is_some_and(|(base, head)| head.fails_alike(base)),
            file: head.or(base).and_then(|it| it.file.clone()),
            target_cluster: head.or(base).map(|it| it.target_cluster.clone()).unwrap_or_default(),
            base_source_revision: base.map(revision).filter(|it| !it.is_empty()),
            head_source_revision: head.map(revision).filter(|it| !it.is_empty()),
            blind_digest: head
                .filter(|it| it.failure.is_none())
                .and_then(|it| it.blind_digest.clone()),
            is_suspended: head.is_some_and(|it| it.is_suspended),
            is_resumed: base.is_some_and(|it| it.is_suspended)
                && head.is_some_and(|it| !it.is_suspended),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            unknown_removal: None,
            moved: Vec::new(),
            moved_away: leaving.len(),
            moved_to: self.moved_to(&leaving),
            unchanged: 0,
            not_compared: Vec::new(),
            images: Vec::new(),
            immutable_fields: Vec::new(),
            definitions: Vec::new(),
            deletion: None,
            unknown_values: self.unknown_values(base, head),
            has_drawn_values: head.is_some_and(|it| it.has_drawn_values),
            moved_sources: self.moved_sources(head),
            missing_references: new_missing_references(base, head),
        };
        if let (Some(head), Some(objects)) = (head, self.head.objects(id)) {
            match state.comparison {
                ApplierComparisonStatus::Compared | ApplierComparisonStatus::New => {
                    for (object_id, object) in objects {
                        self.add_object(&mut change, id, head, object_id, object);
                    }
                }
                ApplierComparisonStatus::BaseFailed
                | ApplierComparisonStatus::BaseNotFetched
                | ApplierComparisonStatus::BaseUnknown => {
                    let ids = objects.keys().take(MAX_COMPARED_OBJECTS);
                    change.not_compared = ids.map(Into::into).collect();
                }
                _ => {}
            }
        }
        change
    }

    /// Objects that left an applier, each with the applier that takes it over.
    fn moved_to(&self, leaving: &[ClusterObject<'i>]) -> Vec<MovedAwayObject> {
        let owned = leaving.iter().filter_map(|key| {
            let to = self.head_owners.get(key)?;
            Some(MovedAwayObject { object: key.id.into(), to: (*to).into() })
        });
        owned.collect()
    }

    fn unknown_values(
        &self,
        base: Option<&RenderedApplier>,
        head: Option<&RenderedApplier>,
    ) -> Vec<UnknownValue> {
        let of_head = head.into_iter().flat_map(|it| &it.unknown_values);
        let of_base = base.into_iter().flat_map(|it| &it.unread_objects);
        let mut all: Vec<&UnknownValue> = of_head.chain(of_base).collect();
        all.sort();
        all.dedup();
        let listed = all.iter().take(MAX_UNKNOWN_VALUES);
        let mut values: Vec<UnknownValue> = listed.map(|it| self.shown_value(it)).collect();
        if all.len() > MAX_UNKNOWN_VALUES {
            let what = format!("… {} more", all.len() - MAX_UNKNOWN_VALUES);
            values.push(UnknownValue { what, reason: "they are not listed".to_owned() });
        }
        values
    }

    fn moved_sources(&self, head: Option<&RenderedApplier>) -> Vec<UnknownValue> {
        let moved = head.into_iter().flat_map(|it| &it.moved_sources);
        moved.take(MAX_UNKNOWN_VALUES).map(|it| self.shown_value(it)).collect()
    }

    fn shown_value(&self, value: &UnknownValue) -> UnknownValue {
        let shown = |text: &str| shown_text(text, &self.options.secrets);
        UnknownValue { what: shown(&value.what), reason: shown(&value.reason) }
    }

    /// Compares an object of the head with the base and adds its changes to those of its applier.
    fn add_object(
        &self,
        change: &mut ApplierChange,
        applier_id: &ObjectId,
        applier: &RenderedApplier,
        id: &ObjectId,
        object: &Object,
    ) {
        let cluster = applier.target_cluster.as_str();
        let own = self.base.objects(applier_id).filter(|_| self.is_same_place(applier_id));
        let own = own.and_then(|objects| objects.get(id).copied());
        if let Some(before) = own {
            match self.add_differences(change, applier, before, object) {
                Some(fields) => change.changed.push(ChangedObject { object: id.into(), fields }),
                None => change.unchanged += 1,
            }
            return;
        }
        let key = ClusterObject { cluster, id };
        let from = self.base_owners.get(&key).copied();
        let before = from.and_then(|from| self.base.objects(from)?.get(id).copied());
        if let (Some(from), Some(before)) = (from, before)
            && self.is_taken_over(from, key, before)
        {
            let fields = self.add_differences(change, applier, before, object).unwrap_or_default();
            let stays = self.head.objects(from).is_some_and(|objects| objects.contains_key(id));
            let is_shared = stays && self.head.cluster(from) == cluster;
            let to = applier_id.into();
            change.moved.push(MovedObject {
                object: id.into(),
                from: from.into(),
                to,
                is_shared,
                fields,
            });
            return;
        }
        change.added.push(id.into());
        change.images.extend(image_changes(None, object, &self.options.secrets));
    }

    /// The fields in which two states of an object differ. `None` if both states are applied alike. Consequences of
    /// these changes are added to the changes of the applier.
    fn add_differences(
        &self,
        change: &mut ApplierChange,
        applier: &RenderedApplier,
        before: &Object,
        after: &Object,
    ) -> Option<FieldChangeList> {
        if before == after {
            return None;
        }
        let mut before = before.clone();
        let mut after = after.clone();
        // The type of a Secret has no field for the metadata of SOPS, and ciphertext is not base64.
        if !is_encrypted(&before) && !is_encrypted(&after) {
            apply::manifest_normalization::typed(&mut before);
            apply::manifest_normalization::typed(&mut after);
        }
        let left = self.fields_left.get();
        let max_listed_fields = self.options.max_listed_fields.min(left);
        let limits = FieldChangeLimits { max_listed_fields, cuts_values: true };
        let fields = FieldChangeList::between(&before, &after, &self.options.secrets, limits);
        if fields.is_empty() {
            return None;
        }
        self.fields_left.set(left.saturating_sub(fields.fields.len()));
        let secrets = &self.options.secrets;
        change.images.extend(image_changes(Some(&before), &after, secrets));
        let is_recreated = applier.forces || apply::switches(&after).force;
        let consequence = match is_recreated {
            true => ImmutableFieldConsequence::Recreated,
            false => ImmutableFieldConsequence::Rejected,
        };
        change.immutable_fields.extend(immutable_field_changes(&before, &after, consequence));
        change.definitions.extend(crd_definition_change(&before, &after));
        Some(fields)
    }
}

/// Why an applier cannot be called absent from a side.
struct UncertainAbsence {
    reason: String,
    cause: UncertainAbsenceCause,
}

/// Why an applier may exist on a side although it was not found there.
#[derive(Clone, Copy)]
enum UncertainAbsenceCause {
    /// The side, or an applier above it, was not read.
    UnreadSide,
    /// An applier above it needs input that was not fetched.
    UnfetchedInput,
    /// The applier is declared by another applier whose objects are not followed.
    UnfollowedOwner,
}

/// Why an applier of one side cannot be called absent from the other side. `None` if it certainly is absent.
fn unknown_absence(
    id: &ObjectId,
    present: &RenderingIndex<'_>,
    absent: &RenderingIndex<'_>,
    owners: &BTreeMap<ClusterObject<'_>, &ObjectId>,
) -> Option<UncertainAbsence> {
    if let Some(reason) = &absent.rendering.incomplete {
        return Some(UncertainAbsence {
            reason: reason.clone(),
            cause: UncertainAbsenceCause::UnreadSide,
        });
    }
    let mut at = id;
    for _ in 0..=present.rendering.appliers.len() {
        if let Some(owner) = owners.get(&ClusterObject { cluster: "", id: at }) {
            let declared = at.subject();
            let reason = format!("{} declares {declared}, which was not rendered", owner.subject());
            return Some(UncertainAbsence {
                reason,
                cause: UncertainAbsenceCause::UnfollowedOwner,
            });
        }
        let parent = present.applier(at)?.parent.as_ref()?;
        match absent.applier(parent) {
            Some(RenderedApplier { failure: Some(_), is_not_fetched, .. }) => {
                let (why, cause) = match is_not_fetched {
                    true => ("needs what was not fetched", UncertainAbsenceCause::UnfetchedInput),
                    false => ("could not be rendered", UncertainAbsenceCause::UnreadSide),
                };
                let reason = format!("{}, which declares it, {why}", parent.subject());
                return Some(UncertainAbsence { reason, cause });
            }
            Some(_) => return None,
            None => at = parent,
        }
    }
    None
}
