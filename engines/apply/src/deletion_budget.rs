//! How many objects an applier may delete without approval because they left its manifests.
//!
//! Here: the budget, the verdict on a deletion, and which deletion an approval is for. Elsewhere: the deletions of the
//! last hour ([`crate::recent_deletions`]), reading the objects and the approvals (the program), and what a change of a
//! repository deletes (engine `plan`).

use std::collections::{BTreeMap, BTreeSet};

use objects::{Object, ObjectId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::generated_config_maps_and_secrets::GeneratedConfigMapsAndSecrets;

/// How many of the deleted objects a verdict names.
const MAX_NAMED_OBJECTS: usize = 10;

/// Group and kind of objects that hold data or other objects, which are deleted with them. A StatefulSet counts only if
/// it has volume claims.
const PROTECTED_KINDS: [(&str, &str); 5] = [
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apps", "StatefulSet"),
];

/// Group and kind of objects that apply other objects, which are deleted with them.
const APPLIER_KINDS: [(&str, &str); 4] = [
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
    ("helmfile.windlass.dev", "Helmfile"),
    ("apps.mumoshu.github.io", "Helmfile"),
];

/// Whether objects of this kind apply other objects, which are deleted with them.
pub fn is_applier_kind(id: &ObjectId) -> bool {
    APPLIER_KINDS.contains(&(id.group.as_str(), id.kind.as_str()))
}

/// An entry of an inventory: an object that an applier applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedObject {
    /// Its identity.
    pub id: ObjectId,
    /// The API version in which it was applied.
    pub version: String,
}

/// The objects that are deleted together with an applier, according to its status. The list is empty if the applier
/// leaves its objects in the cluster. `None` if the status does not say which objects it applied.
pub fn applied_objects(applier: &Object) -> Option<Vec<AppliedObject>> {
    let spec = applier.get("spec").unwrap_or(&Value::Null);
    let policy = spec["deletionPolicy"].as_str().unwrap_or("MirrorPrune");
    let is_kustomization = applier.kind() == "Kustomization";
    let mirrors_prune = policy == "MirrorPrune" && is_kustomization;
    let leaves = policy == "Orphan" || (mirrors_prune && spec["prune"] != true);
    if leaves || spec["suspend"] == true {
        return Some(Vec::new());
    }
    let status = applier.get("status").unwrap_or(&Value::Null);
    let releases = status["releases"].as_array().into_iter().flatten();
    let statuses = std::iter::once(status).chain(releases.map(|release| &release["status"]));
    let mut applied = Vec::new();
    for status in statuses {
        applied.extend(entries(status)?);
    }
    Some(applied)
}

/// The inventory of a status. `None` if it cannot be read, or if objects were applied that no inventory lists.
fn entries(status: &Value) -> Option<Vec<AppliedObject>> {
    let entry = |it: &Value| {
        let id = it["id"].as_str()?.parse().ok()?;
        Some(AppliedObject { id, version: it["v"].as_str().unwrap_or_default().to_owned() })
    };
    let inventory = &status["inventory"];
    let has_history = status["history"].as_array().is_some_and(|it| !it.is_empty());
    match &inventory["entries"] {
        Value::Array(entries) => entries.iter().map(entry).collect(),
        Value::Null if !inventory.is_null() || !has_history => Some(Vec::new()),
        _ => None,
    }
}

/// A kind whose objects are never deleted without approval. A StatefulSet needs approval only if it has volume claims.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtectedKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// How many exemptions of a budget count. Further exemptions have no effect.
const MAX_EXEMPTIONS: usize = 64;

/// How many labels an exemption may have. Where several budgets apply, exemptions that together require more labels
/// have no effect.
const MAX_EXEMPTION_LABELS: usize = 8;

/// Objects that neither count nor need approval.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeletionExemption {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Labels that the objects have in the cluster.
    pub match_labels: BTreeMap<String, String>,
}

impl DeletionExemption {
    fn is_of(&self, object: &Object) -> bool {
        let id = object.id();
        let has = |(key, value): (&String, &String)| object.label(key) == Some(value.as_str());
        (&self.group, &self.kind) == (&id.group, &id.kind) && self.match_labels.iter().all(has)
    }

    /// The exemption of the objects that both exemptions match. `None` if no object can match both, or if it would have
    /// too many labels.
    fn intersection(&self, other: &Self) -> Option<Self> {
        let is_same = |(key, value): (&String, &String)| {
            other.match_labels.get(key).is_none_or(|other| other == value)
        };
        let can_be = (&self.group, &self.kind) == (&other.group, &other.kind)
            && self.match_labels.iter().all(is_same);
        let mut both = Some(self.clone()).filter(|_| can_be)?;
        both.match_labels.extend(other.match_labels.clone());
        Some(both).filter(|it| it.match_labels.len() <= MAX_EXEMPTION_LABELS)
    }
}

/// What an applier may delete without approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletionBudget {
    /// How many objects may be deleted without approval.
    pub max_objects: usize,
    /// How many of the applier's objects may be deleted without approval, in percent.
    pub max_percent: u8,
    /// The percentage holds for an applier with more objects than this.
    pub percent_above_objects: usize,
    /// The kinds whose deletion needs approval even for a single object. The deletion of an applier always needs
    /// approval.
    pub protected_kinds: BTreeSet<ProtectedKind>,
    /// Objects that neither count nor need approval. They have no effect for objects of protected kinds.
    pub exempt: BTreeSet<DeletionExemption>,
}

impl Default for DeletionBudget {
    fn default() -> Self {
        let kinds = PROTECTED_KINDS.into_iter();
        let kind = |(group, kind): (&str, &str)| ProtectedKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
        };
        Self {
            max_objects: 10,
            max_percent: 30,
            percent_above_objects: 10,
            protected_kinds: kinds.map(kind).collect(),
            exempt: BTreeSet::new(),
        }
    }
}

/// The rule of the budget that a deletion exceeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletionRule {
    /// More objects than [`DeletionBudget::max_objects`].
    Objects {
        /// The highest number of objects that is allowed.
        limit: usize,
    },
    /// More of the applier's objects than [`DeletionBudget::max_percent`].
    Percent {
        /// The highest percentage that is allowed.
        limit: u8,
    },
    /// The deletion alone is within both limits, but not together with the deletions of the hour before.
    WithinHour {
        /// How many objects were deleted in the hour before.
        recent: usize,
    },
    /// It is not known how many objects were deleted in the hour before.
    RecentUnknown,
    /// The deletion has an object of a protected kind, or an applier, so that more than this object is deleted.
    HeldKind {
        /// The first such object.
        object: ObjectId,
        /// How many such objects there are.
        count: usize,
    },
    /// The build has no objects at all, so that all applied objects would be deleted. That is usually an accident, so
    /// it needs approval however few objects there are.
    EmptyBuild,
    /// A release is uninstalled because its helmfile does not have it any more. The release is an applier, and its
    /// objects are deleted with it.
    Uninstall,
    /// The deletion has an applier, and it is not known which objects that applier applied.
    InventoryUnknown {
        /// The first such applier.
        object: ObjectId,
        /// How many such appliers there are.
        count: usize,
    },
}

impl DeletionRule {
    /// The exceeded rule as text, with the numbers or the object that exceed it.
    pub fn text(&self) -> String {
        match self {
            Self::Objects { limit } => format!("more than {limit} objects"),
            Self::Percent { limit } => format!("more than {limit} % of the objects"),
            Self::WithinHour { recent } => {
                format!("more than the budget of an hour, in which {recent} were deleted before")
            }
            Self::RecentUnknown => {
                "how many were deleted in the hour before cannot be read".to_owned()
            }
            Self::HeldKind { object, count: 1 } => {
                format!("{}, whose deletion deletes more than itself", object.subject())
            }
            Self::HeldKind { object, count } => format!(
                "{} and {} more, whose deletion deletes more than themselves",
                object.subject(),
                count.saturating_sub(1)
            ),
            Self::EmptyBuild => "the build has no objects at all".to_owned(),
            Self::Uninstall => "a release is uninstalled".to_owned(),
            Self::InventoryUnknown { object, count: 1 } => {
                format!("what {} applied cannot be read", object.subject())
            }
            Self::InventoryUnknown { object, count } => format!(
                "what {} and {} more applied cannot be read",
                object.subject(),
                count.saturating_sub(1)
            ),
        }
    }
}

/// A deletion of some objects, compared with the budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetVerdict {
    /// How many objects are deleted, each counted once. This includes the objects of the appliers that are deleted.
    pub deleted: usize,
    /// How many objects there were before the deletion, including the objects of the deleted appliers.
    pub of: usize,
    /// The ids of the first deleted objects.
    pub first: Vec<ObjectId>,
    /// The rules that the deletion exceeds. The list is empty if the deletion is within the budget.
    pub exceeded: Vec<DeletionRule>,
}

impl BudgetVerdict {
    /// Whether the deletion exceeds no rule.
    pub fn is_within(&self) -> bool {
        self.exceeded.is_empty()
    }
}

/// An object that is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedObject {
    id: ObjectId,
    is_applier: bool,
    has_claims: bool,
}

impl DeletedObject {
    /// Reads the spec of an object, which says whether a StatefulSet has volume claims. `is_applier` marks an object
    /// that applies others although its kind is not a kind of appliers.
    pub fn new(object: &Object, is_applier: bool) -> Self {
        let id = object.id();
        let claims = object.get("spec").and_then(|spec| spec.get("volumeClaimTemplates"));
        let has_claims = claims.and_then(|it| it.as_array()).is_some_and(|it| !it.is_empty());
        Self { is_applier: is_applier || is_applier_kind(&id), id, has_claims }
    }
}

/// A deletion that the budget has to judge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeletionToJudge {
    /// The objects that are deleted, each once.
    pub objects: Vec<DeletedObject>,
    /// The objects that are deleted together with the appliers among `objects`.
    pub following: BTreeSet<ObjectId>,
    /// The appliers for which it is not known what is deleted with them.
    pub unreadable: BTreeSet<ObjectId>,
    /// How many objects there were before the deletion, without the objects in `following`.
    pub of: usize,
    /// How many objects were deleted without approval in the hour before. `None` if that is not known.
    pub recent: Option<usize>,
    /// Whether the build that lacks the objects has no objects at all.
    pub is_empty_build: bool,
}

impl DeletionBudget {
    /// The stricter of two budgets, limit by limit.
    #[must_use]
    pub fn strictest(mut self, other: Self) -> Self {
        self.protected_kinds.extend(other.protected_kinds);
        let pairs = self.exempt.iter().flat_map(|one| other.exempt.iter().map(move |it| (one, it)));
        let exempt =
            pairs.filter_map(|(one, it)| one.intersection(it)).take(MAX_EXEMPTIONS).collect();
        Self {
            exempt,
            max_objects: self.max_objects.min(other.max_objects),
            max_percent: self.max_percent.min(other.max_percent),
            percent_above_objects: self.percent_above_objects.min(other.percent_above_objects),
            protected_kinds: self.protected_kinds,
        }
    }

    /// Lowers the number of objects to the one in the annotation. An annotation that cannot be read lowers it to zero,
    /// so that a typing error never loosens the budget.
    #[must_use]
    pub fn tightened(self, annotation: Option<&str>) -> Self {
        let Some(text) = annotation else { return self };
        let limit = text.trim().parse::<usize>().unwrap_or_default();
        Self { max_objects: self.max_objects.min(limit), ..self }
    }

    /// Compares a deletion with the budget.
    pub fn verdict(&self, deletion: &DeletionToJudge) -> BudgetVerdict {
        let DeletionToJudge { objects, following, unreadable, of, recent, is_empty_build } =
            deletion;
        let mut ids: Vec<ObjectId> = objects.iter().map(|it| it.id.clone()).collect();
        ids.sort();
        let is_further = |id: &&ObjectId| ids.binary_search(id).is_err();
        let further = following.iter().filter(is_further).count();
        let count = ids.len().saturating_add(further);
        let of = of.saturating_add(further);
        let mut exceeded = Vec::new();
        if count > self.max_objects {
            exceeded.push(DeletionRule::Objects { limit: self.max_objects });
        }
        let is_large = of > self.percent_above_objects;
        if is_large && self.is_beyond_percent(count, of) {
            exceeded.push(DeletionRule::Percent { limit: self.max_percent });
        }
        match recent {
            None => exceeded.push(DeletionRule::RecentUnknown),
            // A deletion that exceeds a limit by itself is not reported for the hour as well.
            Some(recent) if *recent > 0 && exceeded.is_empty() => {
                let in_hour = count.saturating_add(*recent);
                let is_beyond = self.is_beyond_percent(in_hour, of.saturating_add(*recent));
                if in_hour > self.max_objects || (is_large && is_beyond) {
                    exceeded.push(DeletionRule::WithinHour { recent: *recent });
                }
            }
            Some(_) => {}
        }
        if *is_empty_build {
            exceeded.push(DeletionRule::EmptyBuild);
        }
        let held = objects.iter().filter(|it| self.is_held(it)).map(|it| &it.id);
        if let Some((object, count)) = first_of(held) {
            exceeded.push(DeletionRule::HeldKind { object, count });
        }
        if let Some((object, count)) = first_of(unreadable.iter()) {
            exceeded.push(DeletionRule::InventoryUnknown { object, count });
        }
        ids.truncate(MAX_NAMED_OBJECTS);
        // No object is deleted, so no rule can be exceeded.
        if count == 0 {
            exceeded.clear();
        }
        BudgetVerdict { deleted: count, of, first: ids, exceeded }
    }

    fn is_beyond_percent(&self, count: usize, of: usize) -> bool {
        count.saturating_mul(100) > of.saturating_mul(self.max_percent.into())
    }

    /// Whether the deletion of this single object needs approval.
    fn is_held(&self, deleted: &DeletedObject) -> bool {
        let DeletedObject { id, is_applier, has_claims } = deleted;
        let is_set = id.group == "apps" && id.kind == "StatefulSet";
        *is_applier || (self.is_protected(id) && (*has_claims || !is_set))
    }

    /// Whether the kind of this object may need approval for its deletion. A StatefulSet of a protected kind needs
    /// approval only if it has volume claims.
    pub fn may_hold(&self, id: &ObjectId) -> bool {
        is_applier_kind(id) || self.is_protected(id)
    }

    fn is_protected(&self, id: &ObjectId) -> bool {
        let is_its = |it: &ProtectedKind| it.group == id.group && it.kind == id.kind;
        self.protected_kinds.iter().any(is_its)
    }

    /// Whether an object neither counts nor needs approval. Appliers and objects of protected kinds are never exempt,
    /// and no object is exempt if the budget allows no deletion. `is_applier` is as for [`DeletedObject::new`].
    pub fn exempts(&self, object: &Object, is_applier: bool) -> bool {
        self.max_objects > 0
            && self.exempt.iter().any(|it| it.is_of(object))
            && !self.is_held(&DeletedObject::new(object, is_applier))
    }

    /// Whether the deletion of an object is not judged because the object is a former version of a generated one. Each
    /// change of the content deletes such a version. A budget that allows no deletion, or protects the kind, judges it
    /// all the same.
    pub fn leaves_unjudged(
        &self,
        id: &ObjectId,
        generated: &GeneratedConfigMapsAndSecrets,
    ) -> bool {
        self.max_objects > 0 && !self.is_protected(id) && generated.has_newer(id)
    }
}

/// The smallest of some ids, and how many ids there are. `None` if there are none.
fn first_of<'i>(ids: impl Iterator<Item = &'i ObjectId>) -> Option<(ObjectId, usize)> {
    let mut ids: Vec<&ObjectId> = ids.collect();
    ids.sort();
    Some(((*ids.first()?).clone(), ids.len()))
}

/// Adds to the objects that are kept the Namespaces and CustomResourceDefinitions of the same deletion that contain
/// them. Deleting a Namespace deletes everything in it, and deleting a definition deletes all objects of its kind.
pub fn kept_with_containers(
    kept: BTreeSet<ObjectId>,
    deletion: &BTreeSet<ObjectId>,
) -> BTreeSet<ObjectId> {
    let contains_kept = |it: &&ObjectId| kept.iter().any(|id| contains(it, id));
    let containers: Vec<ObjectId> = deletion.iter().filter(contains_kept).cloned().collect();
    kept.into_iter().chain(containers).collect()
}

/// Whether deleting one object may delete another one with it. A CustomResourceDefinition names its kind in the plural,
/// so it counts for all kinds of its API group.
fn contains(container: &ObjectId, id: &ObjectId) -> bool {
    match (container.group.as_str(), container.kind.as_str()) {
        ("", "Namespace") => id.namespace == container.name,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            container.name.split_once('.').is_some_and(|(_, group)| group == id.group)
        }
        _ => false,
    }
}

/// Identifies a set of deletions of one applier: a digest of the applier's uid and of the object ids.
pub fn deletion_digest(uid: &str, ids: &BTreeSet<ObjectId>) -> String {
    let mut hash = Sha256::new();
    hash.update(uid);
    for id in ids {
        hash.update("\n");
        hash.update(id.to_string());
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// A set of deletions that was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedDeletion {
    /// The [`deletion_digest`] of the set.
    pub digest: String,
    /// The object ids that the approving user could read: the whole set, or its beginning.
    pub listed: BTreeSet<ObjectId>,
    /// How many ids the set has.
    pub count: usize,
}

impl ApprovedDeletion {
    /// Whether the approval is for all objects that are to be deleted now. It also covers a part of the approved set,
    /// because some of the objects may be deleted already. A part can be recognized only if the approval lists all ids.
    ///
    /// Users approve the list that they can read, so the list and the number of ids have to match the digest.
    pub fn covers(&self, uid: &str, ids: &BTreeSet<ObjectId>) -> bool {
        if let Some(listed) = self.complete_list(uid) {
            return ids.is_subset(listed);
        }
        self.listed.len() < self.count
            && ids.len() == self.count
            && self.listed.is_subset(ids)
            && deletion_digest(uid, ids) == self.digest
    }

    /// The ids that the approval is not for. If the approval does not list all ids, it covers either the whole set or
    /// none of it.
    #[must_use]
    pub fn unapproved(&self, uid: &str, ids: &BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        match self.complete_list(uid) {
            Some(listed) => ids.difference(listed).cloned().collect(),
            None if self.covers(uid, ids) => BTreeSet::new(),
            None => ids.clone(),
        }
    }

    /// The listed ids of the approved deletions. `None` if the list is not the whole approved set or does not match its
    /// digest.
    fn complete_list(&self, uid: &str) -> Option<&BTreeSet<ObjectId>> {
        let is_complete = self.listed.len() == self.count;
        Some(&self.listed).filter(|it| is_complete && deletion_digest(uid, it) == self.digest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(count: usize, api: &str, kind: &str, spec: &serde_json::Value) -> Vec<Object> {
        let object = |at: usize| {
            let metadata = json!({"name": format!("o{at:03}"), "namespace": "apps"});
            Object::new(
                json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}),
            )
            .unwrap()
        };
        (0..count).map(object).collect()
    }

    fn pending(deleted: &[Object], of: usize) -> DeletionToJudge {
        DeletionToJudge {
            objects: deleted.iter().map(|it| DeletedObject::new(it, false)).collect(),
            of,
            recent: Some(0),
            ..DeletionToJudge::default()
        }
    }

    fn rules_of(budget: &DeletionBudget, deletion: &DeletionToJudge) -> Vec<String> {
        let verdict = budget.verdict(deletion);
        assert_eq!(verdict.is_within(), verdict.exceeded.is_empty());
        verdict.exceeded.iter().map(DeletionRule::text).collect()
    }

    fn rules(deleted: &[Object], of: usize) -> Vec<String> {
        rules_of(&DeletionBudget::default(), &pending(deleted, of))
    }

    fn maps(count: usize) -> Vec<Object> {
        objects(count, "v1", "ConfigMap", &json!({}))
    }

    #[test]
    fn a_deletion_is_within_the_budget_up_to_its_numbers() {
        assert_eq!(rules(&maps(10), 100), [""; 0]);
        assert_eq!(rules(&maps(11), 100), ["more than 10 objects"]);
        assert_eq!(rules(&maps(10), 10), [""; 0], "few objects have no percentage");
        assert_eq!(rules(&maps(6), 20), [""; 0]);
        assert_eq!(rules(&maps(7), 20), ["more than 30 % of the objects"]);
    }

    #[test]
    fn a_build_without_objects_is_beyond_every_budget_however_few_objects_it_deletes() {
        let of = |count, budget: &DeletionBudget| {
            let pending = pending(&maps(count), count);
            rules_of(budget, &DeletionToJudge { is_empty_build: true, ..pending })
        };
        assert_eq!(of(1, &DeletionBudget::default()), ["the build has no objects at all"]);
        let wide =
            DeletionBudget { max_objects: 100, max_percent: 100, ..DeletionBudget::default() };
        assert_eq!(of(3, &wide), ["the build has no objects at all"]);
        assert_eq!(of(0, &wide), [""; 0], "nothing is deleted");
    }

    #[test]
    fn what_was_deleted_in_the_hour_before_counts() {
        let budget = DeletionBudget::default();
        let of = |count, recent| {
            rules_of(&budget, &DeletionToJudge { recent, ..pending(&maps(count), 100) })
        };
        assert_eq!(of(3, Some(7)), [""; 0]);
        assert_eq!(
            of(3, Some(8)),
            ["more than the budget of an hour, in which 8 were deleted before"]
        );
        assert_eq!(of(11, Some(8)), ["more than 10 objects"]);
        assert_eq!(of(1, None), ["how many were deleted in the hour before cannot be read"]);
        assert_eq!(of(0, None), [""; 0], "nothing is deleted");
        // 4 of 20 and 4 of 16 are 8 of 20.
        let second = DeletionToJudge { recent: Some(4), ..pending(&maps(4), 16) };
        assert_eq!(rules_of(&budget, &second).len(), 1);
        let small = DeletionToJudge { recent: Some(5), ..pending(&maps(1), 7) };
        assert_eq!(rules_of(&budget, &small), [""; 0], "few objects have no percentage");
    }

    #[test]
    fn kinds_that_hold_others_or_data_need_approval_each() {
        let claims = json!({"volumeClaimTemplates": [{}]});
        assert_eq!(rules(&objects(1, "apps/v1", "StatefulSet", &json!({})), 100), [""; 0]);
        for (api, kind) in [
            ("apps/v1", "StatefulSet"),
            ("v1", "Namespace"),
            ("v1", "PersistentVolumeClaim"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            ("helmfile.windlass.dev/v1alpha1", "Helmfile"),
        ] {
            let named =
                format!("{kind}/apps/o000 and 1 more, whose deletion deletes more than themselves");
            assert_eq!(rules(&objects(2, api, kind, &claims), 100), [named]);
        }
        let budget =
            DeletionBudget { protected_kinds: BTreeSet::new(), ..DeletionBudget::default() };
        let namespaces = objects(1, "v1", "Namespace", &json!({}));
        assert!(budget.verdict(&pending(&namespaces, 1)).is_within());
        let objects = vec![DeletedObject::new(&namespaces[0], true)];
        let applier = DeletionToJudge { objects, ..pending(&[], 1) };
        assert!(!budget.verdict(&applier).is_within(), "appliers need approval always");
    }

    #[test]
    fn what_follows_an_applier_counts_once() {
        let applier = objects(1, "helm.toolkit.fluxcd.io/v2", "HelmRelease", &json!({}));
        let mut following: BTreeSet<ObjectId> = maps(30).iter().map(Object::id).collect();
        following.insert(applier[0].id());
        let deletion = DeletionToJudge { following, ..pending(&applier, 5) };
        let verdict = DeletionBudget::default().verdict(&deletion);
        assert_eq!((verdict.deleted, verdict.of), (31, 35));
        let unreadable = BTreeSet::from([applier[0].id()]);
        let deletion = DeletionToJudge { unreadable, ..pending(&applier, 5) };
        let rules = rules_of(&DeletionBudget::default(), &deletion);
        assert!(rules.contains(&"what HelmRelease/apps/o000 applied cannot be read".to_owned()));
    }

    #[test]
    fn what_an_applier_applied_is_in_its_status() {
        let applier = |kind: &str, spec: serde_json::Value, status: serde_json::Value| {
            let manifest = json!({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "a"},
                "spec": spec, "status": status});
            let applied = applied_objects(&Object::new(manifest).unwrap());
            applied.map(|it| it.iter().map(|it| it.id.subject()).collect::<Vec<_>>().join(" "))
        };
        let inventory = |ids: &[&str]| {
            let entry = |id: &&str| json!({"id": id, "v": "v1"});
            json!({"inventory": {"entries": ids.iter().map(entry).collect::<Vec<_>>()}})
        };
        let one = inventory(&["n_a__ConfigMap"]);
        let named = Some("ConfigMap/n/a".to_owned());
        assert_eq!(applier("Kustomization", json!({"prune": true}), one.clone()), named);
        assert_eq!(applier("HelmRelease", json!({}), one.clone()), named);
        let releases = json!({"releases": [{"status": one}, {"status": {}}]});
        assert_eq!(applier("Helmfile", json!({}), releases), named);
        let nothing = Some(String::new());
        for spec in [
            json!({"prune": false}),
            json!({"prune": true, "deletionPolicy": "Orphan"}),
            json!({"prune": true, "suspend": true}),
        ] {
            assert_eq!(applier("Kustomization", spec, one.clone()), nothing);
        }
        assert_eq!(applier("HelmRelease", json!({}), json!({})), nothing);
        let without = json!({"history": [{"version": 1}]});
        assert_eq!(applier("HelmRelease", json!({}), without), None, "something is installed");
        assert_eq!(applier("HelmRelease", json!({}), inventory(&["nonsense"])), None);
    }

    #[test]
    fn an_annotation_and_a_second_policy_only_tighten() {
        let budget = DeletionBudget::default();
        let limit = |text| budget.clone().tightened(text).max_objects;
        assert_eq!(limit(None), 10);
        assert_eq!(limit(Some("3")), 3);
        assert_eq!(limit(Some("1000")), 10);
        for text in ["0", "", "-1", "many"] {
            assert_eq!(limit(Some(text)), 0, "{text}");
        }
        let kind = ProtectedKind { group: String::new(), kind: "Secret".to_owned() };
        let other = DeletionBudget {
            max_objects: 50,
            max_percent: 5,
            percent_above_objects: 10,
            protected_kinds: BTreeSet::from([kind.clone()]),
            exempt: BTreeSet::new(),
        };
        let both = budget.clone().strictest(other.clone());
        assert_eq!((both.max_objects, both.max_percent), (10, 5));
        assert!(both.protected_kinds.contains(&kind) && both.protected_kinds.len() == 6);
        assert_eq!(other.strictest(budget), both);
    }

    fn exemption(group: &str, kind: &str, labels: &[(&str, &str)]) -> DeletionExemption {
        let label = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        DeletionExemption {
            group: group.to_owned(),
            kind: kind.to_owned(),
            match_labels: labels.iter().map(label).collect(),
        }
    }

    fn exempting(exempt: &[DeletionExemption]) -> DeletionBudget {
        DeletionBudget { exempt: exempt.iter().cloned().collect(), ..DeletionBudget::default() }
    }

    #[test]
    fn an_exemption_is_for_a_kind_with_these_labels() {
        let mut map = maps(1).remove(0);
        let all = exempting(&[exemption("", "ConfigMap", &[])]);
        let labelled = exempting(&[exemption("", "ConfigMap", &[("tier", "cache")])]);
        assert!(all.exempts(&map, false) && !labelled.exempts(&map, false));
        map.set_label("tier", "cache");
        assert!(labelled.exempts(&map, false));
        assert!(!exempting(&[exemption("apps", "ConfigMap", &[])]).exempts(&map, false));
        assert!(!DeletionBudget::default().exempts(&map, false));
        assert!(!all.clone().tightened(Some("0")).exempts(&map, false), "no deletion is allowed");
        assert!(!all.exempts(&map, true), "an applier");
    }

    #[test]
    fn a_protected_kind_is_not_exempt() {
        let budget = exempting(&[
            exemption("", "Namespace", &[]),
            exemption("apps", "StatefulSet", &[]),
            exemption("helm.toolkit.fluxcd.io", "HelmRelease", &[]),
        ]);
        let one = |api: &str, kind: &str, spec| objects(1, api, kind, &spec).remove(0);
        let claims = json!({"volumeClaimTemplates": [{}]});
        for object in [
            one("v1", "Namespace", json!({})),
            one("apps/v1", "StatefulSet", claims),
            one("helm.toolkit.fluxcd.io/v2", "HelmRelease", json!({})),
        ] {
            assert!(!budget.exempts(&object, false), "{:?}", object.id());
        }
        assert!(budget.exempts(&one("apps/v1", "StatefulSet", json!({})), false), "without claims");
    }

    #[test]
    fn several_budgets_exempt_what_each_of_them_exempts() {
        let all = exempting(&[exemption("", "ConfigMap", &[]), exemption("batch", "Job", &[])]);
        let cache = exemption("", "ConfigMap", &[("tier", "cache")]);
        let both = all.clone().strictest(exempting(std::slice::from_ref(&cache)));
        assert_eq!(both.exempt, BTreeSet::from([cache.clone()]));
        assert!(all.clone().strictest(DeletionBudget::default()).exempt.is_empty());
        let team = exemption("", "ConfigMap", &[("team", "a")]);
        let of_team = exempting(&[cache]).strictest(exempting(&[team]));
        let expected = exemption("", "ConfigMap", &[("team", "a"), ("tier", "cache")]);
        assert_eq!(of_team.exempt, BTreeSet::from([expected]));
        let other = exempting(&[exemption("", "ConfigMap", &[("tier", "data")])]);
        assert!(of_team.strictest(other).exempt.is_empty(), "no object has both labels");
    }

    #[test]
    fn what_an_object_would_be_deleted_with_stays_with_it() {
        let ids = |all: &[&str]| -> BTreeSet<ObjectId> {
            all.iter().map(|text| text.parse().unwrap()).collect()
        };
        let deletion = ids(&[
            "_shop__Namespace",
            "_other__Namespace",
            "_widgets.example.com_apiextensions.k8s.io_CustomResourceDefinition",
            "_gadgets.example.org_apiextensions.k8s.io_CustomResourceDefinition",
            "shop_a__ConfigMap",
            "shop_b__ConfigMap",
            "shop_w_example.com_Widget",
        ]);
        let kept = |names: &[&str]| kept_with_containers(ids(names), &deletion);
        assert_eq!(kept(&["shop_a__ConfigMap"]), ids(&["_shop__Namespace", "shop_a__ConfigMap"]));
        let expected = ids(&[
            "_shop__Namespace",
            "_widgets.example.com_apiextensions.k8s.io_CustomResourceDefinition",
            "shop_w_example.com_Widget",
        ]);
        assert_eq!(kept(&["shop_w_example.com_Widget"]), expected);
        assert_eq!(kept(&["_other__Namespace"]), ids(&["_other__Namespace"]));
        assert!(kept(&[]).is_empty());
    }

    #[test]
    fn an_approval_is_for_its_set_or_less_of_it() {
        let ids = |count| maps(count).iter().map(Object::id).collect::<BTreeSet<_>>();
        let digest = deletion_digest("uid", &ids(3));
        let approval = |listed: BTreeSet<ObjectId>, count: usize| ApprovedDeletion {
            digest: digest.clone(),
            listed,
            count,
        };
        let listed = approval(ids(3), 3);
        assert!(listed.covers("uid", &ids(3)) && listed.covers("uid", &ids(2)));
        assert!(!listed.covers("uid", &ids(4)), "more than what was approved");
        assert!(!listed.covers("other", &ids(3)) && !listed.covers("other", &ids(2)));
        let partly = approval(ids(2), 3);
        assert!(partly.covers("uid", &ids(3)) && !partly.covers("uid", &ids(2)));
        assert!(!approval(ids(9), 9).covers("uid", &ids(4)), "the list is not that of the digest");
    }

    #[test]
    fn a_list_or_a_number_that_misleads_users_approves_nothing() {
        let ids = |count| maps(count).iter().map(Object::id).collect::<BTreeSet<_>>();
        let digest = deletion_digest("uid", &ids(30));
        let other = objects(1, "v1", "Secret", &json!({})).iter().map(Object::id).collect();
        for (listed, count) in [(ids(1), 1), (ids(1), 2), (BTreeSet::new(), 0), (other, 30)] {
            let forged = ApprovedDeletion { digest: digest.clone(), listed, count };
            assert!(!forged.covers("uid", &ids(30)), "{forged:?}");
            assert_eq!(forged.unapproved("uid", &ids(30)).len(), 30);
        }
    }

    #[test]
    fn what_an_approval_is_not_for_is_found_one_by_one() {
        let ids = |count| maps(count).iter().map(Object::id).collect::<BTreeSet<_>>();
        let digest = deletion_digest("uid", &ids(3));
        let listed = ApprovedDeletion { digest: digest.clone(), listed: ids(3), count: 3 };
        assert_eq!(listed.unapproved("uid", &ids(5)).len(), 2);
        assert_eq!(listed.unapproved("other", &ids(5)).len(), 5);
        let partly = ApprovedDeletion { digest, listed: ids(1), count: 3 };
        assert!(partly.unapproved("uid", &ids(3)).is_empty());
        assert_eq!(partly.unapproved("uid", &ids(2)).len(), 2);
    }

    #[test]
    fn a_former_version_of_a_generated_object_is_not_judged_unless_its_kind_or_every_object_is_held()
     {
        let manifests = objects(1, "v1", "ConfigMap", &json!({}));
        let mut newer = manifests[0].id();
        newer.name = "settings-2c5f7g9hkm".to_owned();
        let former = ObjectId { name: "settings-bcdfgh4567".to_owned(), ..newer.clone() };
        let generated = GeneratedConfigMapsAndSecrets::among([&newer]);
        let budget = DeletionBudget::default();
        assert!(budget.leaves_unjudged(&former, &generated));
        assert!(
            !budget.leaves_unjudged(&former, &GeneratedConfigMapsAndSecrets::default()),
            "nothing is newer"
        );
        assert!(!budget.clone().tightened(Some("0")).leaves_unjudged(&former, &generated));
        let kind = ProtectedKind { group: String::new(), kind: "ConfigMap".to_owned() };
        let strict = DeletionBudget { protected_kinds: BTreeSet::from([kind]), ..budget };
        assert!(!strict.leaves_unjudged(&former, &generated));
    }
}
