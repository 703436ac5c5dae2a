//! The newest known version of an object, and the writing of its status.
//!
//! A watch may lag behind windlass's own writes. So the answer to a write counts until the watch has caught up.

use std::sync::Arc;

use apply::ObjectInventory;
use crds::{ObjectStatus, ReconciledObject, ResourceInventory, ResourceRef};
use kube_core::ResourceExt as _;
use parking_lot::Mutex;
use reconcile::StatusCondition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::windlass_kind::WindlassKind;

/// How often windlass tries to write a status with a changed inventory while other clients change the object.
const MAX_STATUS_WRITE_ATTEMPTS: usize = 5;

/// The newest version of an object that a write of windlass returned.
pub struct LatestWrittenObject<K>(Mutex<Option<Arc<K>>>);

impl<K> Default for LatestWrittenObject<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: WindlassKind + ReconciledObject> LatestWrittenObject<K> {
    /// The newer version of an object: from the watch, or from windlass's last write.
    pub fn or_seen(&self, seen: Arc<K>) -> Arc<K> {
        let mut latest = self.0.lock();
        // resourceVersions of one object can be compared as numbers (Kubernetes 1.35).
        let number = |object: &K| object.resource_version().and_then(|v| v.parse::<u64>().ok());
        match latest.take() {
            Some(written) if written.uid() == seen.uid() && number(&written) > number(&seen) => {
                *latest = Some(written.clone());
                written
            }
            Some(_) | None => seen,
        }
    }

    /// Drops the answer to the last write once the watch has seen that version, so that the object is not in memory twice.
    /// Only for objects without a run, because a run builds upon the answers to its writes.
    pub fn caught_up(&self, seen: &K) {
        let mut latest = self.0.lock();
        let number = |object: &K| object.resource_version().and_then(|v| v.parse::<u64>().ok());
        let is_newer =
            |written: &Arc<K>| written.uid() == seen.uid() && number(written) > number(seen);
        if !latest.as_ref().is_some_and(is_newer) {
            *latest = None;
        }
    }

    /// The object at the begin of a run, with the status of windlass's newest write.
    ///
    /// The answer to a status write is the whole object. A newer spec or request in it belongs to the next run, so the current
    /// run must not report that it observed them.
    pub fn begun(&self, object: &Arc<K>) -> Arc<K> {
        let written = self.0.lock().clone();
        let number = |object: &K| object.resource_version().and_then(|v| v.parse::<u64>().ok());
        match written {
            Some(written) if written.uid() == object.uid() && number(&written) > number(object) => {
                with_status_of(object, &written)
            }
            Some(_) | None => object.clone(),
        }
    }

    fn wrote(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        *self.0.lock() = Some(object.clone());
        object
    }

    /// Writes the difference between two statuses. Nothing is written if they are equal.
    ///
    /// Returns the object as it is now. `None` if it is gone.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn write_status(
        &self,
        context: &RunContext,
        object: &Arc<K>,
        before: &K::Status,
        after: &K::Status,
    ) -> Result<Option<Arc<K>>, ClusterError> {
        let Some(patch) = change(before, after) else { return Ok(Some(object.clone())) };
        let manager = manager::<K>();
        // If another client has written the inventory meanwhile, this write must not drop entries from it. Objects would be
        // forgotten.
        let is_guarded = before.inventory() != after.inventory();
        let mut version = object.resource_version().filter(|_| is_guarded);
        for _ in 1..MAX_STATUS_WRITE_ATTEMPTS {
            let written =
                context.cluster.write_status(&**object, &manager, &patch, version.as_deref());
            match written.await {
                Err(error) if is_guarded && error.code() == Some(409) => {
                    let namespace = object.namespace().unwrap_or_default();
                    let name = object.name_any();
                    let Some(now) = context.cluster.read::<K>(&namespace, &name).await? else {
                        return Ok(None);
                    };
                    let recorded = now.status().and_then(ObjectStatus::inventory);
                    if now.uid() != object.uid() || recorded != before.inventory() {
                        return Err(error);
                    }
                    // Another client changed something else in the object.
                    version = now.resource_version();
                }
                written => return Ok(written?.map(|object| self.wrote(object))),
            }
        }
        let written = context.cluster.write_status(&**object, &manager, &patch, version.as_deref());
        Ok(written.await?.map(|object| self.wrote(object)))
    }

    /// Removes the fields of an expired hold: with `resume` also `spec.suspend`, and these annotations.
    ///
    /// # Errors
    /// The API server refuses the request, also because of a conflict, or does not respond.
    pub(crate) async fn end_hold(
        &self,
        context: &RunContext,
        object: &Arc<K>,
        resume: bool,
        annotations: &[&str],
    ) -> Result<Option<Arc<K>>, ClusterError> {
        let written = context.cluster.end_hold(&**object, resume, annotations).await?;
        Ok(written.map(|object| self.wrote(object)))
    }

    /// Adds or removes windlass's finalizer.
    ///
    /// # Errors
    /// The API server refuses the request, also because of a conflict, or does not respond.
    pub async fn set_finalizer(
        &self,
        context: &RunContext,
        object: &Arc<K>,
        wanted: bool,
    ) -> Result<Option<Arc<K>>, ClusterError> {
        let mut finalizers = object.finalizers().to_vec();
        if finalizers.iter().any(|f| f == K::FINALIZER) == wanted {
            return Ok(Some(object.clone()));
        }
        finalizers.retain(|f| f != K::FINALIZER);
        if wanted {
            finalizers.push(K::FINALIZER.to_owned());
        }
        // This is not the field manager that applies. A Kustomization that applies this object takes over that manager's
        // fields. It would remove the finalizer, which is not in the manifest.
        let manager = manager::<K>();
        let written = context.cluster.write_finalizers(&**object, &manager, &finalizers).await?;
        Ok(written.map(|object| self.wrote(object)))
    }
}

/// The object `newer`. If it differs from the older object in generation or annotations, the older object with the newer
/// status.
fn with_status_of<K: WindlassKind + ReconciledObject>(object: &Arc<K>, newer: &Arc<K>) -> Arc<K> {
    let was = object.meta();
    let is = newer.meta();
    if was.generation == is.generation && was.annotations == is.annotations {
        return newer.clone();
    }
    let mut object = K::clone(object);
    object.set_status(status_of(&**newer));
    Arc::new(object)
}

/// The field manager of statuses and finalizers. Parity(flux).
fn manager<K: WindlassKind + ReconciledObject>() -> String {
    format!("gotk-{}", K::CONTROLLER)
}

/// The status of an object. An empty status if it has none.
pub fn status_of<K: ReconciledObject>(object: &K) -> K::Status {
    object.status().cloned().unwrap_or_default()
}

/// Conditions converted to the types of the engine. A condition whose status is not True, False or Unknown is dropped.
pub fn conditions_of(listed: &[crds::Condition]) -> Vec<StatusCondition> {
    let read = listed.iter().filter_map(|it| {
        Some(StatusCondition {
            kind: it.type_.clone(),
            status: reconcile::ConditionStatus::named(&it.status)?,
            observed_generation: it.observed_generation.unwrap_or_default(),
            last_transition_time: it.last_transition_time.0,
            reason: it.reason.clone(),
            message: it.message.clone(),
        })
    });
    read.collect()
}

/// Conditions converted to the types of a status.
pub fn listed(conditions: Vec<StatusCondition>) -> Vec<crds::Condition> {
    let written = conditions.into_iter().map(|it| crds::Condition {
        type_: it.kind,
        status: it.status.as_str().to_owned(),
        observed_generation: Some(it.observed_generation).filter(|generation| *generation != 0),
        last_transition_time: crds::Time(it.last_transition_time),
        reason: it.reason,
        message: it.message,
    });
    written.collect()
}

/// An inventory in the form of a status.
pub fn recorded(inventory: &ObjectInventory) -> ResourceInventory {
    let entries = inventory.entries().into_iter();
    ResourceInventory {
        entries: entries.map(|(id, version)| ResourceRef { id, version }).collect(),
    }
}

/// A value converted to another type that has the same JSON. `None` if the other type cannot represent the value.
pub fn through<T: DeserializeOwned>(value: &impl Serialize) -> Option<T> {
    serde_json::from_value(serde_json::to_value(value).ok()?).ok()
}

/// The merge patch that turns one status into another. `None` if they are equal.
pub fn change<S: ObjectStatus>(before: &S, after: &S) -> Option<Value> {
    if before == after {
        return None;
    }
    changes(&serde_json::to_value(before).ok()?, &serde_json::to_value(after).ok()?)
}

/// The merge patch (RFC 7386) that turns one value into another. `None` if they are equal.
fn changes(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            // A status is only a few levels deep, so the recursion is shallow.
            Some(known) => changes(known, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller_kind::REQUESTED_AT;
    use crds::kustomize::Kustomization;
    use kube_core::Resource as _;
    use serde_json::json;

    fn kustomization(version: u32, generation: u32, token: &str, ready: &str) -> Kustomization {
        serde_json::from_value(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "uid": "1", "resourceVersion": version.to_string(),
                "generation": generation, "annotations": {REQUESTED_AT: token}},
            "spec": {"interval": "10m", "prune": true,
                "sourceRef": {"kind": "GitRepository", "name": "app"}},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Progressing",
                "message": "", "lastTransitionTime": "2026-11-01T00:00:00Z"}]},
        }))
        .unwrap()
    }

    #[test]
    fn what_came_in_the_middle_of_a_run_is_not_claimed_by_it() {
        let latest = LatestWrittenObject::<Kustomization>::default();
        let object = Arc::new(kustomization(1, 1, "a", "True"));
        assert!(Arc::ptr_eq(&latest.begun(&object), &object));
        // Before this status write, a user changed the spec and requested a reconciliation.
        latest.wrote(kustomization(3, 2, "b", "Unknown"));
        let begun = latest.begun(&object);
        assert_eq!(begun.meta().generation, Some(1));
        assert_eq!(begun.annotations()[REQUESTED_AT], "a");
        assert_eq!(begun.condition("Ready").unwrap().status, "Unknown");
        // The next run begins with the new spec.
        let seen = latest.or_seen(object);
        assert_eq!(latest.begun(&seen).meta().generation, Some(2));
    }

    #[test]
    fn what_was_written_is_kept_until_the_watch_has_seen_it() {
        let latest = LatestWrittenObject::<Kustomization>::default();
        latest.wrote(kustomization(3, 1, "a", "True"));
        latest.caught_up(&kustomization(2, 1, "a", "Unknown"));
        let seen = Arc::new(kustomization(2, 1, "a", "Unknown"));
        assert_eq!(latest.begun(&seen).condition("Ready").unwrap().status, "True");
        latest.caught_up(&kustomization(3, 1, "a", "True"));
        assert!(latest.0.lock().is_none());
        latest.wrote(kustomization(4, 1, "a", "True"));
        let mut namesake = kustomization(1, 1, "a", "Unknown");
        namesake.metadata.uid = Some("2".to_owned());
        latest.caught_up(&namesake);
        assert!(latest.0.lock().is_none(), "it was of an object that is gone");
    }

    #[test]
    fn a_patch_holds_what_changed_and_nulls_for_what_is_gone() {
        let before = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1], "f": 0});
        let after = json!({"a": 1, "b": {"c": 1}, "e": [1, 2]});
        assert_eq!(
            changes(&before, &after),
            Some(json!({"b": {"d": null}, "e": [1, 2], "f": null}))
        );
        assert_eq!(changes(&before, &before), None);
    }

    #[test]
    fn conditions_are_read_and_written_as_they_are_and_one_that_is_none_is_dropped() {
        let given = json!([
            {"type": "Ready", "status": "False", "reason": "R", "message": "m",
                "observedGeneration": 3, "lastTransitionTime": "2026-11-01T00:00:00Z"},
            {"type": "Foreign", "status": "Unknown", "reason": "R", "message": "",
                "lastTransitionTime": "2026-11-01T00:00:00Z"},
            {"type": "Odd", "status": "Perhaps", "reason": "R", "message": "",
                "lastTransitionTime": "2026-11-01T00:00:00Z"},
        ]);
        let read: Vec<crds::Condition> = serde_json::from_value(given.clone()).unwrap();
        let written = json!(listed(conditions_of(&read)));
        assert_eq!(written.as_array().unwrap()[..], given.as_array().unwrap()[..2]);
    }
}
