//! The order in which objects are deleted that left the manifests together, or that belong to a deleted owner.
//!
//! Custom resources are deleted first. Their controllers may still need workloads, rights, definitions and namespaces,
//! so these stay until the custom resources are gone. Custom resources that apply objects are deleted before the
//! objects on which they depend. Elsewhere: the order in which objects are applied (`apply_order`), and waiting between
//! separate removals (`reconcile::deletion_order`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use objects::ObjectId;
use reconcile::ObjectKey;

use crate::apply_order;

/// API groups that the API server itself serves. All other groups belong to custom resources or aggregated API servers.
const BUILT_IN_GROUPS: [&str; 24] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Objects that are deleted together. A phase begins once the objects of all earlier phases are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DeletionPhase {
    /// Custom resources: the run waits until they are gone, while their controllers still run.
    CustomResources,
    /// All objects that belong to no other phase, with or without a namespace.
    Workloads,
    /// Webhooks and admission policies.
    Webhooks,
    /// ServiceAccounts and their rights.
    Rights,
    /// CustomResourceDefinitions and APIServices.
    Definitions,
    /// Namespaces: everything in them is deleted with them.
    Namespaces,
}

fn phase_of(id: &ObjectId) -> DeletionPhase {
    match (id.group.as_str(), id.kind.as_str()) {
        ("", "Namespace") => DeletionPhase::Namespaces,
        ("", "ServiceAccount") | ("rbac.authorization.k8s.io", _) => DeletionPhase::Rights,
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => DeletionPhase::Definitions,
        ("admissionregistration.k8s.io", _) => DeletionPhase::Webhooks,
        (group, _) if BUILT_IN_GROUPS.contains(&group) => DeletionPhase::Workloads,
        _ => DeletionPhase::CustomResources,
    }
}

/// Whether an object is a custom resource, or one of an aggregated API server.
pub fn is_custom_resource(id: &ObjectId) -> bool {
    phase_of(id) == DeletionPhase::CustomResources
}

/// Whether deleting these objects has to wait until custom resources are gone, because other objects are deleted after
/// them.
pub fn awaits_custom_resources<'i>(ids: impl IntoIterator<Item = &'i ObjectId>) -> bool {
    let phases: BTreeSet<DeletionPhase> = ids.into_iter().map(phase_of).collect();
    phases.contains(&DeletionPhase::CustomResources) && phases.len() > 1
}

/// The objects that have to be deleted before one object may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletionPredecessors {
    /// Objects of the same removal that have to be deleted before. They need not be gone yet, because the object has a
    /// finalizer that waits for them.
    pub deleted: BTreeSet<ObjectId>,
    /// Objects that have to be gone before the deletion.
    pub gone: BTreeSet<ObjectKey>,
}

/// Objects that are still to be deleted, and the selection of those that may be deleted now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingDeletions<'d> {
    /// For each object, the objects that come before its deletion.
    pub(crate) predecessors: &'d BTreeMap<ObjectId, DeletionPredecessors>,
    /// The objects that are deleted already and not yet gone.
    pub(crate) leaving: &'d BTreeSet<ObjectId>,
    /// The objects that may not be deleted now for another reason. They stay, and so do the objects on which they
    /// depend.
    pub(crate) held: &'d BTreeSet<ObjectId>,
}

impl PendingDeletions<'_> {
    /// Whether other objects have to be gone before this object is deleted.
    fn is_waiting(&self, id: &ObjectId) -> bool {
        self.predecessors.get(id).is_some_and(|it| !it.gone.is_empty())
    }

    /// The objects that have to be gone before some of `ids` are deleted.
    pub(crate) fn awaited<'i>(
        &self,
        ids: impl Iterator<Item = &'i ObjectId>,
    ) -> BTreeSet<ObjectKey> {
        let ids = ids.filter(|id| !self.held.contains(*id) && !self.leaving.contains(*id));
        ids.filter_map(|id| self.predecessors.get(id)).flat_map(|it| it.gone.clone()).collect()
    }

    /// The objects of `ids` that may be deleted now, in the order of their deletion.
    pub(crate) fn due<'i>(&self, ids: impl Iterator<Item = &'i ObjectId> + Clone) -> Vec<ObjectId> {
        let remaining = ids.filter(|id| !self.held.contains(*id));
        let blocks = |id: &&ObjectId| is_custom_resource(id) || self.is_waiting(id);
        let last = remaining.clone().filter(blocks).map(phase_of).min();
        let is_due = |id: &&ObjectId| {
            let is_in_phase = last.is_none_or(|last| phase_of(id) <= last);
            is_in_phase && !self.leaving.contains(*id) && !self.is_waiting(id)
        };
        let mut candidates: Vec<&ObjectId> = remaining.clone().filter(is_due).collect();
        candidates
            .sort_by(|a, b| phase_of(a).cmp(&phase_of(b)).then_with(|| apply_order::compare(b, a)));
        let mut unfinished: BTreeSet<&ObjectId> = self.held.iter().collect();
        for id in remaining.filter(|id| !self.leaving.contains(*id)) {
            unfinished.insert(id);
        }
        self.after_predecessors(&candidates, &unfinished)
    }

    /// Orders the candidates so that each comes after its predecessors. A candidate is left out if one of its
    /// predecessors is neither a candidate nor deleted. `unfinished` has all objects that are not deleted yet.
    fn after_predecessors(
        &self,
        candidates: &[&ObjectId],
        unfinished: &BTreeSet<&ObjectId>,
    ) -> Vec<ObjectId> {
        let mut followers = BTreeMap::<&ObjectId, Vec<&ObjectId>>::new();
        let mut missing = BTreeMap::<&ObjectId, usize>::new();
        let mut next = VecDeque::new();
        for id in candidates {
            let before = self.predecessors.get(*id).into_iter().flat_map(|it| &it.deleted);
            let before: Vec<&ObjectId> = before.filter(|it| unfinished.contains(*it)).collect();
            if before.is_empty() {
                next.push_back(*id);
            }
            missing.insert(id, before.len());
            for predecessor in before {
                followers.entry(predecessor).or_default().push(id);
            }
        }
        let mut ordered = Vec::with_capacity(candidates.len());
        while let Some(id) = next.pop_front() {
            ordered.push(id.clone());
            for follower in followers.remove(id).unwrap_or_default() {
                let Some(count) = missing.get_mut(follower) else { continue };
                *count = count.saturating_sub(1);
                if *count == 0 {
                    next.push_back(follower);
                }
            }
        }
        // The sort is stable, so that predecessors stay in front.
        ordered.sort_by_key(phase_of);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(group: &str, kind: &str, name: &str) -> ObjectId {
        ObjectId::new("", name, group, kind)
    }

    fn app(name: &str) -> ObjectId {
        id("kustomize.toolkit.fluxcd.io", "Kustomization", name)
    }

    /// What may be deleted now, by name.
    fn due(
        ids: &[ObjectId],
        predecessors: &BTreeMap<ObjectId, DeletionPredecessors>,
        leaving: &[ObjectId],
        held: &[ObjectId],
    ) -> String {
        let leaving = leaving.iter().cloned().collect();
        let held = held.iter().cloned().collect();
        let pending = PendingDeletions { predecessors, leaving: &leaving, held: &held };
        let due = pending.due(ids.iter());
        due.iter().map(|it| it.name.clone()).collect::<Vec<_>>().join(" ")
    }

    fn after(edges: &[(&str, &str)]) -> BTreeMap<ObjectId, DeletionPredecessors> {
        let mut predecessors = BTreeMap::<ObjectId, DeletionPredecessors>::new();
        for (name, before) in edges {
            predecessors.entry(app(name)).or_default().deleted.insert(app(before));
        }
        predecessors
    }

    #[test]
    fn custom_resources_go_first_and_what_their_controllers_need_when_they_are_gone() {
        let rbac = "rbac.authorization.k8s.io";
        let ids = [
            id("", "Namespace", "namespace"),
            id("apiextensions.k8s.io", "CustomResourceDefinition", "crd"),
            id("", "ServiceAccount", "account"),
            id(rbac, "ClusterRole", "role"),
            id(rbac, "ClusterRoleBinding", "binding"),
            id("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "webhook"),
            id("apps", "Deployment", "operator"),
            id("", "Secret", "secret"),
            id("acme.io", "Widget", "wheel"),
        ];
        let none = BTreeMap::new();
        assert_eq!(due(&ids, &none, &[], &[]), "wheel");
        assert_eq!(due(&ids, &none, &ids[8..], &[]), "");
        let rest = "operator secret webhook account binding role crd namespace";
        assert_eq!(due(&ids[..8], &none, &[], &[]), rest);
        assert_eq!(due(&ids, &none, &[], &ids[8..]), rest, "what is held stays, and holds nothing");
        assert!(awaits_custom_resources(&ids));
        assert!(!awaits_custom_resources(&ids[..8]) && !awaits_custom_resources(&ids[8..]));
    }

    #[test]
    fn dependents_are_deleted_before_what_they_depend_on() {
        let ids = ["a", "b", "c", "d"].map(app);
        // d depends on c, which depends on a; b stands alone.
        let edges = after(&[("a", "c"), ("c", "d")]);
        assert_eq!(due(&ids, &edges, &[], &[]), "d b c a");
        assert_eq!(due(&ids, &edges, &[app("d")], &[]), "c b a");
        assert_eq!(due(&ids, &edges, &[], &[app("d")]), "b", "d stays, and so does what it needs");
        assert_eq!(due(&ids[..3], &edges, &[], &[]), "c b a", "d is gone");
    }

    #[test]
    fn what_waits_for_an_object_elsewhere_holds_the_phases_after_its_own() {
        let account = id("", "ServiceAccount", "account");
        let ids = [
            account.clone(),
            id("", "ConfigMap", "map"),
            id("", "ServiceAccount", "other"),
            id("", "Namespace", "shop"),
        ];
        let key = ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "app");
        let gone = BTreeSet::from([key.clone()]);
        let waits = DeletionPredecessors { gone: gone.clone(), ..DeletionPredecessors::default() };
        let predecessors = BTreeMap::from([(account.clone(), waits)]);
        assert_eq!(due(&ids, &predecessors, &[], &[]), "map other");
        let nothing = BTreeSet::new();
        let pending =
            PendingDeletions { predecessors: &predecessors, leaving: &nothing, held: &nothing };
        assert_eq!(pending.awaited(ids.iter()), gone);
        let held = BTreeSet::from([account]);
        assert_eq!(
            PendingDeletions { held: &held, ..pending }.awaited(ids.iter()),
            BTreeSet::new()
        );
    }
}
