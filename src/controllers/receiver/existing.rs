//! The objects that Receivers name, as they are now: what a selection asks for is read, and it is asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::receivers::{Target, Targets};
use objects::{Gvk, Object};
use serde_json::{Value, json};

use crate::cluster::discovery::Resource;
use crate::cluster::{Cluster, ClusterError};

/// API version, kind and namespace.
type Place = (String, String, String);

#[derive(Default)]
struct State {
    objects: BTreeMap<Target, Option<Value>>,
    lists: BTreeMap<Place, Arc<Vec<Value>>>,
    missing_objects: BTreeSet<Target>,
    missing_lists: BTreeSet<Place>,
}

/// What was read so far. What is asked for and was not read is noted, and seems to be missing meanwhile.
#[derive(Default)]
pub(super) struct Existing(Mutex<State>);

impl Existing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was asked for; false if there was nothing.
    ///
    /// # Errors
    /// Every refusal but "not found", and no answer. A kind that is not served has no objects.
    pub(super) async fn read(&self, cluster: &Cluster) -> Result<bool, ClusterError> {
        let (objects, lists) = {
            let mut state = self.state();
            (std::mem::take(&mut state.missing_objects), std::mem::take(&mut state.missing_lists))
        };
        let any = !objects.is_empty() || !lists.is_empty();
        for target in objects {
            let found = one(cluster, &target).await?;
            self.state().objects.insert(target, found);
        }
        for place in lists {
            let found = all(cluster, &place).await?;
            self.state().lists.insert(place, Arc::new(found));
        }
        Ok(any)
    }
}

impl Targets for Existing {
    fn object(&self, target: &Target) -> Option<Value> {
        let mut state = self.state();
        if let Some(known) = state.objects.get(target) {
            return known.clone();
        }
        state.missing_objects.insert(target.clone());
        None
    }

    fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Arc<Vec<Value>> {
        let place = (api_version.to_owned(), kind.to_owned(), namespace.to_owned());
        let mut state = self.state();
        if let Some(known) = state.lists.get(&place) {
            return known.clone();
        }
        state.missing_lists.insert(place);
        Arc::default()
    }
}

/// A kind whose objects are in namespaces: a Receiver names no others, because it is in one itself. None if it is not served.
async fn namespaced(
    cluster: &Cluster,
    api_version: &str,
    kind: &str,
) -> Result<Option<Resource>, ClusterError> {
    match cluster.resource(&Gvk::new(api_version, kind)).await {
        Err(ClusterError::NoSuchKind { .. }) => Ok(None),
        resource => Ok(Some(resource?).filter(|it| it.namespaced)),
    }
}

async fn one(cluster: &Cluster, target: &Target) -> Result<Option<Value>, ClusterError> {
    let Some(resource) = namespaced(cluster, &target.api_version, &target.kind).await? else {
        return Ok(None);
    };
    let found = cluster.get(&resource, &target.namespace, &target.name).await?;
    Ok(found.map(|object| metadata(&object)))
}

async fn all(
    cluster: &Cluster,
    (api_version, kind, namespace): &Place,
) -> Result<Vec<Value>, ClusterError> {
    let Some(resource) = namespaced(cluster, api_version, kind).await? else {
        return Ok(Vec::new());
    };
    let found = cluster.list(&resource, namespace, "").await?;
    Ok(found.iter().map(metadata).collect())
}

fn metadata(object: &Object) -> Value {
    json!({"metadata": object.get("metadata")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_noted_until_it_is_read() {
        let existing = Existing::default();
        let target = Target {
            api_version: "v1".to_owned(),
            kind: "A".to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
        };
        assert_eq!(existing.object(&target), None);
        assert!(existing.list("v1", "A", "n").is_empty());
        assert_eq!(existing.state().missing_objects.len(), 1);
        assert_eq!(existing.state().missing_lists.len(), 1);
        existing.state().objects.insert(target.clone(), Some(json!({"metadata": {}})));
        assert!(existing.object(&target).is_some());
    }
}
