//! The newest version of an object that a run may build upon, and the writing of its status.
//!
//! A watch may lag behind our own writes, so what a write returned counts until the watch has caught up.

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

/// The most attempts to write a status with a changed inventory while other clients change the object.
const MAX_STATUS_WRITE_ATTEMPTS: usize = 5;

/// The newest object that a write of ours returned.
pub struct LatestWrittenObject<K>(Mutex<Option<Arc<K>>>);

impl<K> Default for LatestWrittenObject<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: WindlassKind + ReconciledObject> LatestWrittenObject<K> {
    /// The newer one of two versions: the one that a watch saw, and the one that our last write returned.
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

    /// A watch has seen this version: what a write returned is dropped unless it is newer, so that the object is not in memory
    /// twice. To be called while the object does not run: a run builds upon what its writes returned.
    pub fn caught_up(&self, seen: &K) {
        let mut latest = self.0.lock();
        let number = |object: &K| object.resource_version().and_then(|v| v.parse::<u64>().ok());
        let is_newer =
            |written: &Arc<K>| written.uid() == seen.uid() && number(written) > number(seen);
        if !latest.as_ref().is_some_and(is_newer) {
            *latest = None;
        }
    }

    /// The object with which a run began, with the status of our newest write.
    ///
    /// The response to a status write is the whole object. A spec or a request in it that is newer than the beginning
    /// of the run belongs to the next run: the current run must not report that it observed it.
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

    /// Writes the difference between two statuses. If they are equal, nothing is written.
    ///
    /// Returns the object as it is now, and `None` when it is gone.
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
        // An inventory that another client wrote meanwhile would shrink to what is known here, so that objects were
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
                    // Something else of the object was changed.
                    version = now.resource_version();
                }
                written => return Ok(written?.map(|object| self.wrote(object))),
            }
        }
        let written = context.cluster.write_status(&**object, &manager, &patch, version.as_deref());
        Ok(written.await?.map(|object| self.wrote(object)))
    }

    /// Ends what an expired hold left behind: `spec.suspend` if it is to `resume`, and annotations.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; a conflict is such an error, too.
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

    /// Adds our finalizer, or takes it away.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; a conflict is such an error, too.
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
        // Not as the manager that applies: a Kustomization that applies this object takes over what that one updated,
        // and would remove the finalizer because it is not in the manifest.
        let manager = manager::<K>();
        let written = context.cluster.write_finalizers(&**object, &manager, &finalizers).await?;
        Ok(written.map(|object| self.wrote(object)))
    }
}

/// The object `newer`, or the older object with its status, if the two differ in generation or annotations as well.
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

/// The status of an object; one without anything in it if it has none.
pub fn status_of<K: ReconciledObject>(object: &K) -> K::Status {
    object.status().cloned().unwrap_or_default()
}

/// Conditions in the types of the reconcile core. A condition with a status other than True, False or Unknown is
/// dropped.
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

/// Conditions in the types of a status.
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

/// A value converted to another type that has the same JSON.
pub fn through<T: DeserializeOwned>(value: &impl Serialize) -> Option<T> {
    serde_json::from_value(serde_json::to_value(value).ok()?).ok()
}

/// The merge patch that turns one status into another; `None` when they are equal.
pub fn change<S: ObjectStatus>(before: &S, after: &S) -> Option<Value> {
    if before == after {
        return None;
    }
    changes(&serde_json::to_value(before).ok()?, &serde_json::to_value(after).ok()?)
}

/// The merge patch (RFC 7386) that turns one value into another; `None` when they are equal.
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
            // Statuses are a few levels deep, so this recursion is.
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
        // A user changed the spec and requested a reconciliation again before this status was written.
        latest.wrote(kustomization(3, 2, "b", "Unknown"));
        let begun = latest.begun(&object);
        assert_eq!(begun.meta().generation, Some(1));
        assert_eq!(begun.annotations()[REQUESTED_AT], "a");
        assert_eq!(begun.condition("Ready").unwrap().status, "Unknown");
        // The next run begins with it.
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
