//! Where kinds live: the path of a kind's objects, and whether they have namespaces.
//!
//! Asked once for each group and version, forgotten when a CustomResourceDefinition of the group changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use objects::Gvk;

use super::capabilities::Served;
use super::{Cluster, ClusterError};

/// Where the objects of a kind are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Group, version and kind.
    pub(crate) gvk: Gvk,
    /// Plural name in paths.
    pub(crate) plural: String,
    /// Its objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Its objects can be watched.
    pub(crate) watchable: bool,
}

impl Resource {
    /// Path of the collection, or of one object.
    pub(crate) fn path(&self, namespace: &str, name: Option<&str>) -> String {
        let Gvk { group, version, .. } = &self.gvk;
        let mut path = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        if self.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            // Names such as `system:node` hold characters that a path keeps as they are; `%` and `?` cannot occur.
            path.push_str(name);
        }
        path
    }
}

type Kinds = Arc<BTreeMap<String, Resource>>;

/// What is known so far.
#[derive(Default)]
pub(crate) struct Discovery {
    /// By `apiVersion`.
    kinds: Mutex<BTreeMap<String, Kinds>>,
    served: super::capabilities::Known,
    absent: super::presence::Absent,
}

impl Discovery {
    fn known(&self, api_version: &str) -> Option<Kinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(api_version).cloned()
    }

    fn learn(&self, api_version: &str, kinds: Kinds) {
        let mut known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(api_version.to_owned(), kinds);
    }

    /// What the server can do, and when that was asked.
    pub(super) fn served(&self) -> Option<(Instant, Arc<Served>)> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn learn_served(&self, at: Instant, served: Arc<Served>) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, served));
    }

    /// Kinds that were found to be nowhere.
    pub(super) fn absent(&self) -> &super::presence::Absent {
        &self.absent
    }

    /// Forgets what was learned about a group, because its definitions changed.
    pub(crate) fn forget_group(&self, group: &str) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.absent.forget_group(group);
        let mut known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|api_version, _| api_version.split_once('/').is_none_or(|(g, _)| g != group));
    }
}

impl Cluster {
    /// Where the objects of a kind live.
    ///
    /// # Errors
    /// [`ClusterError::NoSuchKind`] when the API server does not serve it now.
    pub(crate) async fn resource(&self, gvk: &Gvk) -> Result<Resource, ClusterError> {
        let api_version = gvk.api_version();
        let missing = || ClusterError::NoSuchKind {
            api_version: api_version.clone(),
            kind: gvk.kind.clone(),
        };
        if let Some(found) =
            self.discovery.known(&api_version).and_then(|k| k.get(&gvk.kind).cloned())
        {
            return Ok(found);
        }
        // A kind that was not there may have come since, so a miss is asked again.
        let listed = if gvk.group.is_empty() {
            self.unary.list_core_api_resources(&gvk.version).await
        } else {
            self.unary.list_api_group_resources(&api_version).await
        };
        let listed = match listed.map_err(ClusterError::from) {
            Err(error) if error.code() == Some(404) => return Err(missing()),
            other => other?,
        };
        let kinds: BTreeMap<String, Resource> = listed
            .resources
            .into_iter()
            .filter(|r| !r.name.contains('/'))
            .map(|r| {
                let gvk = Gvk { kind: r.kind.clone(), ..gvk.clone() };
                let watchable = r.verbs.iter().any(|v| v == "watch");
                (r.kind, Resource { gvk, plural: r.name, namespaced: r.namespaced, watchable })
            })
            .collect();
        let found = kinds.get(&gvk.kind).cloned();
        self.discovery.learn(&api_version, Arc::new(kinds));
        found.ok_or_else(missing)
    }

    /// See [`Discovery::forget_group`].
    pub(crate) fn forget_group(&self, group: &str) {
        self.discovery.forget_group(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        let mut resource = Resource {
            gvk: Gvk::new("apps/v1", "Deployment"),
            plural: "deployments".into(),
            namespaced: true,
            watchable: true,
        };
        assert_eq!(resource.path("a", Some("b")), "/apis/apps/v1/namespaces/a/deployments/b");
        assert_eq!(resource.path("", None), "/apis/apps/v1/deployments");
        resource.gvk = Gvk::new("v1", "Namespace");
        resource.plural = "namespaces".into();
        resource.namespaced = false;
        assert_eq!(resource.path("ignored", Some("b")), "/api/v1/namespaces/b");
    }
}
