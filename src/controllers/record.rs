//! The newest version of an object that a run may build upon, and the writing of its status.
//!
//! A watch may lag behind our own writes, so what a write returned counts until the watch has caught up.

use std::sync::{Arc, Mutex, PoisonError};

use kube::core::ResourceExt as _;
use reconcile::Condition;
use serde_json::{Map, Value};

use super::context::Context;
use super::run::Controlled;
use crate::cluster::ClusterError;

/// The newest object that a write of ours returned.
pub(crate) struct Latest<K>(Mutex<Option<Arc<K>>>);

impl<K> Default for Latest<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Controlled> Latest<K> {
    /// The newer of what a watch saw and what our last write returned.
    pub(crate) fn or_seen(&self, seen: Arc<K>) -> Arc<K> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn wrote(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(object.clone());
        object
    }

    /// Writes what differs between two statuses; nothing differs: nothing is written.
    ///
    /// Returns the object as it is now, and `None` when it is gone.
    ///
    /// # Errors
    /// The server's refusal.
    pub(crate) async fn write_status(
        &self,
        context: &Context,
        object: &Arc<K>,
        before: &Value,
        after: &Value,
    ) -> Result<Option<Arc<K>>, ClusterError> {
        let Some(patch) = changes(before, after) else { return Ok(Some(object.clone())) };
        let manager = format!("gotk-{}", K::CONTROLLER);
        let written = context.cluster.write_status(&**object, &manager, &patch).await?;
        Ok(written.map(|object| self.wrote(object)))
    }

    /// Ends what an expired hold left behind: `spec.suspend` if it is to `resume`, and annotations.
    ///
    /// # Errors
    /// The server's refusal, a conflict among them.
    pub(crate) async fn end_hold(
        &self,
        context: &Context,
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
    /// The server's refusal, a conflict among them.
    pub(crate) async fn set_finalizer(
        &self,
        context: &Context,
        object: &Arc<K>,
        wanted: bool,
    ) -> Result<Option<Arc<K>>, ClusterError> {
        let mut finalizers = object.finalizers().to_vec();
        if finalizers.iter().any(|f| f == FINALIZER) == wanted {
            return Ok(Some(object.clone()));
        }
        finalizers.retain(|f| f != FINALIZER);
        if wanted {
            finalizers.push(FINALIZER.to_owned());
        }
        let written =
            context.cluster.write_finalizers(&**object, K::CONTROLLER, &finalizers).await?;
        Ok(written.map(|object| self.wrote(object)))
    }
}

/// Flux's finalizer, so that either may finish what the other began.
pub(crate) const FINALIZER: &str = "finalizers.fluxcd.io";

/// Conditions of a status as the reconcile core has them; one that cannot be read is dropped.
pub(crate) fn conditions_of(status: &Value) -> Vec<Condition> {
    let listed = status.get("conditions").and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(|c| serde_json::from_value(c.clone()).ok()).collect()
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
    use serde_json::json;

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
}
