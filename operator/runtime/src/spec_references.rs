//! Secrets, ConfigMaps and ServiceAccounts that a spec names: read for a run, and watched so that a change wakes the object.
//!
//! They are read with windlass's own identity (Parity(flux)), and nothing of them is kept beyond the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use objects::{Gvk, ObjectId};
use reconcile::ObjectKey;

use super::object_watcher::{ObjectWatcher, RunReferenceRead, WatchMoment};
use windlass_cluster::ClusterError;

/// The most image pull secrets of a ServiceAccount that are read for a run. Differs(flux): there is no limit.
const MAX_PULL_SECRETS: usize = 64;

/// Of the image pull secrets that a ServiceAccount names, those that are read: each once, in its order.
///
/// # Errors
/// They are too many, each of which may have a megabyte.
pub fn distinct_pull_secrets(names: Vec<String>) -> Result<Vec<String>, String> {
    let mut known = BTreeSet::new();
    let names: Vec<String> = names.into_iter().filter(|name| known.insert(name.clone())).collect();
    if names.len() > MAX_PULL_SECRETS {
        return Err(format!(
            "it names {} image pull secrets, and at most {MAX_PULL_SECRETS} are read; use a ServiceAccount with fewer",
            names.len()
        ));
    }
    Ok(names)
}

/// What a run read; [`ReadReferences::watch`] ends it.
#[must_use = "what was read is to be watched"]
pub struct ReadReferences {
    watcher: Arc<ObjectWatcher>,
    read: Vec<RunReferenceRead>,
}

impl ReadReferences {
    /// Nothing was read yet from the cluster that is watched.
    pub fn new(watcher: &Arc<ObjectWatcher>) -> Self {
        Self { watcher: watcher.clone(), read: Vec::new() }
    }

    /// The data of a Secret; `None` when there is none of that name.
    pub async fn secret(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, ClusterError> {
        let since = self.watcher.before_reading();
        let (data, version) = self.watcher.cluster().secret(namespace, name).await?.unzip();
        self.note("Secret", namespace, name, version, since).await?;
        Ok(data)
    }

    /// The strings of a ConfigMap; `None` when there is none of that name.
    pub async fn config_map(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, ClusterError> {
        let since = self.watcher.before_reading();
        let (data, version) = self.watcher.cluster().config_map(namespace, name).await?.unzip();
        self.note("ConfigMap", namespace, name, version, since).await?;
        Ok(data)
    }

    /// The names of a ServiceAccount's image pull secrets; `None` when there is no ServiceAccount of that name.
    pub async fn pull_secrets(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let since = self.watcher.before_reading();
        let (names, version) = self.watcher.cluster().pull_secrets(namespace, name).await?.unzip();
        self.note("ServiceAccount", namespace, name, version, since).await?;
        Ok(names)
    }

    /// What else was read for the same run.
    pub fn join(&mut self, other: Self) {
        self.read.extend(other.read);
    }

    /// In which version something was read that is there.
    pub fn version(&self, kind: &str, namespace: &str, name: &str) -> Option<u64> {
        let id = ObjectId::new(namespace, name, "", kind);
        self.read.iter().find(|it| it.id == id).and_then(|it| it.version)
    }

    async fn note(
        &mut self,
        kind: &str,
        namespace: &str,
        name: &str,
        version: Option<u64>,
        since: WatchMoment,
    ) -> Result<(), ClusterError> {
        let resource = self.watcher.cluster().resource(&Gvk::new("v1", kind)).await?;
        let id = ObjectId::new(namespace, name, "", kind);
        self.read.push(RunReferenceRead { resource, id, version, since });
        Ok(())
    }

    /// Has the object woken by changes of all that was read, and of nothing that an earlier run had read.
    pub fn watch(self, node: &ObjectKey) {
        self.watcher.refer_to(node, &self.read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_pull_secret_is_read_once_and_not_so_many_of_them() {
        let named =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let read = distinct_pull_secrets(named(&["b", "a", "b"]));
        assert_eq!(read, Ok(named(&["b", "a"])));
        let many = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
        assert!(distinct_pull_secrets(many(MAX_PULL_SECRETS)).is_ok());
        assert!(distinct_pull_secrets(many(MAX_PULL_SECRETS + 1)).is_err());
    }
}
