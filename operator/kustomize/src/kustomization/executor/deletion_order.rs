//! The order in which a run deletes objects that left the manifests. Custom resources are deleted before the objects that
//! their controllers need. Objects that apply others are deleted before their ServiceAccount, Secrets and source.
//!
//! Elsewhere: computing the order (`apply::deletion_order`), which object needs which, and dependents that are overdue
//! (`windlass_runtime::deletion_order`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apply::deletion_order::{DeletionPredecessors, awaits_custom_resources, is_custom_resource};
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId};
use reconcile::deletion_order::DependentWait;
use reconcile::{ObjectKey, RunOutcome, condition_reason};
use serde_json::Value;

use super::KustomizationExecutor;
use windlass_cluster::ClusterError;
use windlass_runtime::deletion_order::{
    self, ApplierAncestors, DependentWaiter, MAX_NAMED_DEPENDENTS,
};

/// The most subjects of a binding that are considered.
const MAX_SUBJECTS: usize = 1_000;

fn node_of(id: &ObjectId) -> ObjectKey {
    ObjectKey::new(&id.group, &id.kind, &id.namespace, &id.name)
}

/// The ServiceAccounts to which a RoleBinding or ClusterRoleBinding gives rights.
fn bound_accounts(object: &Object) -> Vec<ObjectKey> {
    let is_binding = matches!(object.kind(), "RoleBinding" | "ClusterRoleBinding")
        && object.api_version().starts_with("rbac.authorization.k8s.io/");
    let subjects = object.get("subjects").filter(|_| is_binding).and_then(Value::as_array);
    let account = |subject: &Value| {
        let text = |field: &str| subject.get(field).and_then(Value::as_str);
        let name = text("name").filter(|_| text("kind") == Some("ServiceAccount"))?;
        Some(ObjectKey::new("", "ServiceAccount", text("namespace")?, name))
    };
    subjects.into_iter().flatten().take(MAX_SUBJECTS).filter_map(account).collect()
}

/// The facts on which the deletion of some objects depends.
#[derive(Default)]
struct OrderedDeletions {
    predecessors: BTreeMap<ObjectId, DeletionPredecessors>,
    awaited_ends: BTreeSet<ObjectId>,
    overdue: BTreeSet<ObjectKey>,
}

/// The waits for dependents of the deleted objects.
struct DependentWaiters<'a> {
    /// The objects that are deleted.
    present: BTreeMap<ObjectKey, &'a ObjectId>,
    /// The wait of deleted objects for other deleted objects that depend on them.
    of_set: DependentWaiter<'a>,
    /// The wait for all other dependents.
    of_others: DependentWaiter<'a>,
}

impl OrderedDeletions {
    /// Whether the objects may be deleted in any order, without awaiting any.
    fn is_empty(&self) -> bool {
        self.predecessors.is_empty() && self.awaited_ends.is_empty() && self.overdue.is_empty()
    }
}

impl KustomizationExecutor {
    /// Notes whether a run ended because it waits for dependents. All dependents together have a limited time, even if new
    /// ones appear during the wait.
    pub(in crate::kustomization) fn note_wait(&self, outcome: &RunOutcome) {
        let mut since = self.settings.dependents_awaited.lock();
        *since = match outcome {
            RunOutcome::Running(condition_reason::AWAITING_DEPENDENTS, ..) => {
                Some(since.unwrap_or_else(jiff::Timestamp::now))
            }
            // Another revision may be applied before the wait goes on.
            RunOutcome::Running(..) => *since,
            RunOutcome::Settled(..)
            | RunOutcome::Blocked(..)
            | RunOutcome::Failed(..)
            | RunOutcome::Stalled(..) => None,
        };
    }

    /// Finds out in which order recorded objects that left the manifests are deleted.
    ///
    /// # Errors
    /// Whether the order counts cannot be found out.
    pub(super) async fn order_deletions(
        &self,
        found: &[(ObjectId, Option<Object>)],
    ) -> Result<(), ClusterError> {
        let mut ordered = self.ordered(found);
        if !ordered.is_empty() && self.skips_order().await? {
            ordered = OrderedDeletions::default();
        }
        let new: Vec<ObjectKey> = {
            let mut known = self.known();
            known.predecessors = ordered.predecessors;
            known.awaited_ends = ordered.awaited_ends;
            let nodes = known.predecessors.values().flat_map(|it| it.gone.iter().cloned());
            // If there are many dependents, some are enough. When one of them is gone, the others are looked up.
            let nodes: Vec<ObjectKey> = nodes.take(MAX_NAMED_DEPENDENTS).collect();
            known.missing.extend(nodes);
            let new = ordered.overdue.difference(&known.overdue).cloned();
            let new = new.take(MAX_NAMED_DEPENDENTS).collect();
            known.overdue.extend(ordered.overdue);
            new
        };
        for dependent in &new {
            deletion_order::go_past(&self.context, &*self.object(), dependent).await;
        }
        Ok(())
    }

    /// Whether a user has the objects deleted in any order.
    async fn skips_order(&self) -> Result<bool, ClusterError> {
        if let Some(known) = self.known().skips_order {
            return Ok(known);
        }
        let skips = deletion_order::skips_order(&self.context, &*self.object()).await?;
        self.known().skips_order = Some(skips);
        Ok(skips)
    }

    fn ordered(&self, found: &[(ObjectId, Option<Object>)]) -> OrderedDeletions {
        let mut ordered = OrderedDeletions::default();
        let is_deleted = |live: &Object| self.is_to_be_pruned(live);
        let candidates = || found.iter().filter(|(_, live)| live.as_ref().is_some_and(is_deleted));
        let ids = || candidates().map(|(id, _)| id);
        if awaits_custom_resources(ids()) {
            ordered.awaited_ends.extend(ids().filter(|id| is_custom_resource(id)).cloned());
        }
        // The objects that windlass runs are in its own cluster.
        if !self.target.place().is_empty() {
            return ordered;
        }
        let object = self.object();
        let owners = ApplierAncestors::new(&self.context.dependencies, &self.node, object.labels());
        let waited = *self.settings.dependents_awaited.lock();
        let of_others = DependentWaiter {
            node: &self.node,
            owners: &owners,
            waited: waited.map(deletion_order::age).unwrap_or_default(),
        };
        // The dependents in this removal may be many, so the time of each counts from its own deletion.
        let of_set = DependentWaiter { waited: Duration::ZERO, ..of_others };
        // An applier of another namespace that does not end holds no phase for longer than other dependents.
        for id in ids() {
            let node = node_of(id);
            if of_set.wait_for(&self.context, &node) == DependentWait::Overdue
                && ordered.awaited_ends.remove(id)
            {
                ordered.overdue.insert(node);
            }
        }
        let present: BTreeMap<ObjectKey, &ObjectId> = ids().map(|id| (node_of(id), id)).collect();
        let waiters = DependentWaiters { present, of_set, of_others };
        for (id, live) in candidates() {
            let Some(live) = live else { continue };
            let mut users = self.context.work_queue.dependents(&node_of(id));
            for account in bound_accounts(live) {
                users.extend(self.context.work_queue.dependents(&account));
            }
            for user in users {
                // The Kustomization ends after everything that it applied.
                if *user != self.node {
                    self.add_predecessor(id, &user, &waiters, &mut ordered);
                }
            }
        }
        ordered
    }

    /// Adds an object that needs another one of this removal set, as far as it comes before that.
    fn add_predecessor(
        &self,
        id: &ObjectId,
        user: &ObjectKey,
        waiters: &DependentWaiters<'_>,
        ordered: &mut OrderedDeletions,
    ) {
        // The object has a finalizer that waits for its own dependents.
        let waits_itself = self.context.dependencies.has(&id.group, &id.kind);
        let in_set = waiters.present.get(user);
        if let Some(user_id) = in_set {
            if !deletion_order::removes_objects(&self.context, user) {
                return;
            }
            if !waits_itself
                && waiters.of_set.wait_for(&self.context, user) == DependentWait::Overdue
            {
                ordered.overdue.insert(user.clone());
                return;
            }
            let predecessors = ordered.predecessors.entry(id.clone()).or_default();
            if waits_itself {
                predecessors.deleted.insert((*user_id).clone());
            } else {
                predecessors.gone.insert(user.clone());
                ordered.awaited_ends.insert((*user_id).clone());
            }
            return;
        }
        if waits_itself {
            return;
        }
        match waiters.of_others.wait_for(&self.context, user) {
            DependentWait::NotAwaited => {}
            DependentWait::Awaited => {
                let predecessors = ordered.predecessors.entry(id.clone()).or_default();
                if predecessors.gone.len() < MAX_NAMED_DEPENDENTS {
                    predecessors.gone.insert(user.clone());
                }
            }
            DependentWait::Overdue => {
                ordered.overdue.insert(user.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_binding_belongs_to_the_service_accounts_that_it_names() {
        let binding = |api: &str, kind: &str| {
            let subjects = json!([{"kind": "ServiceAccount", "name": "web", "namespace": "shop"},
                {"kind": "ServiceAccount", "name": "homeless"}, {"kind": "User", "name": "alice"}]);
            let object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "b"},
                "subjects": subjects});
            let accounts = bound_accounts(&Object::new(object).unwrap());
            accounts.iter().map(ObjectKey::to_string).collect::<Vec<_>>().join(" ")
        };
        let rbac = "rbac.authorization.k8s.io/v1";
        assert_eq!(binding(rbac, "ClusterRoleBinding"), "ServiceAccount/shop/web");
        assert_eq!(binding(rbac, "RoleBinding"), "ServiceAccount/shop/web");
        assert_eq!(binding("acme.io/v1", "RoleBinding"), "");
    }
}
