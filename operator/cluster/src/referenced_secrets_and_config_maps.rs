//! Reads the Secrets, ConfigMaps and ServiceAccounts that a spec names, and watches them, so that a change wakes the object.
//!
//! They are read with windlass's own identity (Parity(flux)). Runs that read the same object at nearly the same time share one
//! read, which is kept for a few seconds (`object_watcher::referenced_object_cache`). Without a cluster, the manifests of a repository
//! are used instead ([`DeclaredConfigMapsAndSecrets`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use objects::{Gvk, Object, ObjectId};
use reconcile::ObjectKey;

use super::ClusterError;
use super::object_watcher::{
    ObjectWatcher, ReferencedObjectContent, ReferencedObjectReadResult, RunReferenceRead,
    WatchMoment,
};

/// The most image pull secrets of a ServiceAccount that are read for a run. Differs(flux): there is no limit.
const MAX_PULL_SECRETS: usize = 64;

/// The image pull secrets of a ServiceAccount that are read: each name once, in the given order.
///
/// # Errors
/// There are too many, and each may have a megabyte.
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

/// The data of ConfigMaps and Secrets, by object.
type ConfigMapAndSecretData = BTreeMap<ObjectId, BTreeMap<String, Vec<u8>>>;

/// The ConfigMaps and Secrets that manifests declare, with the data that the API server would store.
#[derive(Default, Clone)]
pub struct DeclaredConfigMapsAndSecrets {
    declared: ConfigMapAndSecretData,
    /// The data that a cluster had earlier, for objects that no manifest declares.
    of_cluster: Arc<ConfigMapAndSecretData>,
}

impl DeclaredConfigMapsAndSecrets {
    /// No declared objects, but the objects that a cluster had earlier.
    pub fn with_cluster_objects(of_cluster: Self) -> Self {
        Self { declared: ConfigMapAndSecretData::new(), of_cluster: Arc::new(of_cluster.declared) }
    }

    /// Adds an object if it is a ConfigMap or Secret whose data can be read. Objects that SOPS encrypted are skipped. A later
    /// object replaces one with the same id. A value of a Secret that is not base64 stays as written.
    pub fn add(&mut self, object: &Object) {
        let is_secret = match (object.api_version(), object.kind()) {
            ("v1", "Secret") => true,
            ("v1", "ConfigMap") => false,
            _ => return,
        };
        if object.get("sops").is_some() {
            return;
        }
        let mut data = BTreeMap::new();
        for (field, is_encoded) in [("data", is_secret), ("stringData", false)] {
            let fields = object.get(field).and_then(serde_json::Value::as_object);
            for (key, value) in fields.into_iter().flatten() {
                let Some(text) = value.as_str() else { continue };
                let decoded = is_encoded.then(|| STANDARD.decode(text).ok()).flatten();
                data.insert(key.clone(), decoded.unwrap_or_else(|| text.as_bytes().to_vec()));
            }
        }
        self.declared.insert(object.id(), data);
    }

    /// Whether a manifest declares a ConfigMap or Secret.
    pub fn declares(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.declared.contains_key(&ObjectId::new(namespace, name, "", kind))
    }

    /// The values of all Secrets that manifests declare or that a cluster had earlier.
    pub fn secret_values(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.declared
            .iter()
            .chain(self.of_cluster.iter())
            .filter(|(id, _)| id.kind == "Secret")
            .flat_map(|(_, data)| data.values())
    }

    /// The data of a ConfigMap or Secret. `None` if no manifest declares it and no cluster had it earlier.
    pub fn data(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<&BTreeMap<String, Vec<u8>>> {
        let id = ObjectId::new(namespace, name, "", kind);
        self.declared.get(&id).or_else(|| self.of_cluster.get(&id))
    }
}

/// Where a run reads the objects that a spec names.
enum ReferencedObjectOrigin {
    /// The cluster of this watcher.
    Cluster(Arc<ObjectWatcher>),
    /// Manifests. The cluster may have objects that they do not declare.
    Manifests(Arc<DeclaredConfigMapsAndSecrets>),
}

/// The objects that a run read because a spec names them. The run ends its reading with [`RunReferenceReads::watch`].
#[must_use = "what was read is to be watched"]
pub struct RunReferenceReads {
    origin: ReferencedObjectOrigin,
    /// Whether recent reads of other runs are ignored.
    is_anew: bool,
    read: Vec<RunReferenceRead>,
    /// The objects that the run wanted to read and the manifests do not declare.
    undeclared: BTreeSet<ObjectId>,
}

impl RunReferenceReads {
    /// An empty list, for a run that reads from the cluster of `watcher`.
    pub fn new(watcher: &Arc<ObjectWatcher>) -> Self {
        Self {
            origin: ReferencedObjectOrigin::Cluster(watcher.clone()),
            is_anew: false,
            read: Vec::new(),
            undeclared: BTreeSet::new(),
        }
    }

    /// If a user requested the run, every object is read anew, and recent reads of other runs are ignored.
    pub fn reading_anew(self, is_requested: bool) -> Self {
        Self { is_anew: is_requested, ..self }
    }

    /// An empty list, for a run that reads from manifests without a cluster. ServiceAccounts are then unknown.
    pub fn of_manifests(declared: Arc<DeclaredConfigMapsAndSecrets>) -> Self {
        Self {
            origin: ReferencedObjectOrigin::Manifests(declared),
            is_anew: false,
            read: Vec::new(),
            undeclared: BTreeSet::new(),
        }
    }

    /// Whether an object that is not found surely does not exist. With manifests, a cluster may still have it.
    pub fn is_complete(&self) -> bool {
        matches!(self.origin, ReferencedObjectOrigin::Cluster(_))
    }

    /// The objects that the run wanted to read and the manifests do not declare. Empty if the run read from a cluster.
    pub fn undeclared(&self) -> &BTreeSet<ObjectId> {
        &self.undeclared
    }

    /// The data of an object from the manifests.
    fn declared(
        &mut self,
        kind: &str,
        namespace: &str,
        name: &str,
        declared: &DeclaredConfigMapsAndSecrets,
    ) -> Option<BTreeMap<String, Vec<u8>>> {
        let data = declared.data(kind, namespace, name);
        if data.is_none() {
            self.undeclared.insert(ObjectId::new(namespace, name, "", kind));
        }
        data.cloned()
    }

    /// The data of a Secret. `None` if it does not exist.
    pub async fn secret(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, ClusterError> {
        let watcher = match &self.origin {
            ReferencedObjectOrigin::Cluster(watcher) => watcher.clone(),
            ReferencedObjectOrigin::Manifests(declared) => {
                let declared = declared.clone();
                return Ok(self.declared("Secret", namespace, name, &declared));
            }
        };
        let ask = async {
            let found = watcher.cluster().secret(namespace, name).await?;
            let content = |data| ReferencedObjectContent::Secret(Arc::new(data));
            Ok::<_, ClusterError>(found.map(|(data, version)| (content(data), version)))
        };
        let id = ObjectId::new(namespace, name, "", "Secret");
        Ok(match self.read_in(&watcher, id, ask).await? {
            Some(ReferencedObjectContent::Secret(data)) => Some(Arc::unwrap_or_clone(data)),
            _ => None,
        })
    }

    /// The strings of a ConfigMap. `None` if it does not exist.
    pub async fn config_map(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, ClusterError> {
        let watcher = match &self.origin {
            ReferencedObjectOrigin::Cluster(watcher) => watcher.clone(),
            ReferencedObjectOrigin::Manifests(declared) => {
                let declared = declared.clone();
                let data = self.declared("ConfigMap", namespace, name, &declared);
                let text = |(key, value)| Some((key, String::from_utf8(value).ok()?));
                return Ok(data.map(|data| data.into_iter().filter_map(text).collect()));
            }
        };
        let ask = async {
            let found = watcher.cluster().config_map(namespace, name).await?;
            let content = |data| ReferencedObjectContent::ConfigMap(Arc::new(data));
            Ok::<_, ClusterError>(found.map(|(data, version)| (content(data), version)))
        };
        let id = ObjectId::new(namespace, name, "", "ConfigMap");
        Ok(match self.read_in(&watcher, id, ask).await? {
            Some(ReferencedObjectContent::ConfigMap(data)) => Some(Arc::unwrap_or_clone(data)),
            _ => None,
        })
    }

    /// The names of a ServiceAccount's image pull secrets. `None` if the ServiceAccount does not exist.
    pub async fn pull_secrets(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let id = ObjectId::new(namespace, name, "", "ServiceAccount");
        let watcher = match &self.origin {
            ReferencedObjectOrigin::Cluster(watcher) => watcher.clone(),
            ReferencedObjectOrigin::Manifests(_) => {
                self.undeclared.insert(id);
                return Ok(None);
            }
        };
        let ask = async {
            let found = watcher.cluster().pull_secrets(namespace, name).await?;
            let content = |names| ReferencedObjectContent::PullSecrets(Arc::new(names));
            Ok::<_, ClusterError>(found.map(|(names, version)| (content(names), version)))
        };
        Ok(match self.read_in(&watcher, id, ask).await? {
            Some(ReferencedObjectContent::PullSecrets(names)) => Some(Arc::unwrap_or_clone(names)),
            _ => None,
        })
    }

    /// Reads an object from the cluster, or reuses another run's recent read if it is still current. Notes the version.
    async fn read_in(
        &mut self,
        watcher: &ObjectWatcher,
        id: ObjectId,
        ask: impl Future<Output = Result<ReferencedObjectReadResult, ClusterError>>,
    ) -> Result<Option<ReferencedObjectContent>, ClusterError> {
        let (found, since) = watcher.read_reference(&id, self.is_anew, ask).await;
        let (content, version) = found?.unzip();
        self.note(watcher, id, version, since).await?;
        Ok(content)
    }

    /// Adds the objects that another part of the same run read.
    pub fn join(&mut self, other: Self) {
        self.read.extend(other.read);
        self.undeclared.extend(other.undeclared);
    }

    /// The version in which an object was read. `None` if it was not read or does not exist.
    pub fn version(&self, kind: &str, namespace: &str, name: &str) -> Option<u64> {
        let id = ObjectId::new(namespace, name, "", kind);
        self.read.iter().find(|it| it.id == id).and_then(|it| it.version)
    }

    async fn note(
        &mut self,
        watcher: &ObjectWatcher,
        id: ObjectId,
        version: Option<u64>,
        since: WatchMoment,
    ) -> Result<(), ClusterError> {
        let resource = watcher.cluster().resource(&Gvk::new("v1", &id.kind)).await?;
        self.read.push(RunReferenceRead { resource, id, version, since });
        Ok(())
    }

    /// Watches all objects that were read, so that their changes wake the object `node`. Objects that only an earlier run read
    /// are no longer watched.
    pub fn watch(self, node: &ObjectKey) {
        if let ReferencedObjectOrigin::Cluster(watcher) = &self.origin {
            watcher.refer_to(node, &self.read);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use futures::future::join_all;

    use super::*;
    use crate::fake_cluster::answering;
    use crate::metrics::MetricsRegistry;
    use crate::work_queue::WorkQueue;

    /// The watcher of a fake cluster with one ConfigMap, and a count of its reads.
    async fn cluster_with_config_map() -> (Arc<ObjectWatcher>, Arc<AtomicUsize>) {
        let reads = Arc::new(AtomicUsize::new(0));
        let count = reads.clone();
        let cluster = answering(move |(request, _)| {
            let text = match request.contains("/configmaps/") {
                true => {
                    count.fetch_add(1, Ordering::Relaxed);
                    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"},
                        "metadata": {"name": "values", "namespace": "shop", "resourceVersion": "7"}})
                }
                false => serde_json::json!({"groupVersion": "v1", "resources": [
                    {"name": "configmaps", "singularName": "", "kind": "ConfigMap",
                        "namespaced": true, "verbs": ["get"]}]}),
            };
            (200, Body::from(text.to_string()))
        })
        .await;
        let work_queue = Arc::new(WorkQueue::new(MetricsRegistry::new()));
        (ObjectWatcher::new(cluster, work_queue, BTreeMap::new()), reads)
    }

    #[tokio::test]
    async fn runs_that_want_an_object_at_once_share_one_or_two_answers() {
        let (watcher, reads) = cluster_with_config_map().await;
        let read = |anew: bool| {
            let mut references = RunReferenceReads::new(&watcher).reading_anew(anew);
            async move {
                let data = references.config_map("shop", "values").await.unwrap().unwrap();
                (data, references.version("ConfigMap", "shop", "values"))
            }
        };
        let expected = (BTreeMap::from([("x".to_owned(), "1".to_owned())]), Some(7));
        for found in join_all((0..20).map(|at| read(at % 2 == 0))).await {
            assert_eq!(found, expected);
        }
        let shared = reads.load(Ordering::Relaxed);
        assert!((1..=2).contains(&shared), "{shared} reads for 20 runs");
        read(false).await;
        let asked = reads.load(Ordering::Relaxed);
        assert_eq!(asked, shared + 1, "no watch says that it is still the same");
    }

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

    #[test]
    fn what_manifests_declare_counts_more_than_what_a_cluster_had() {
        let map = |name: &str, value: &str| {
            Object::new(serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "shop"}, "data": {"x": value}}))
            .unwrap()
        };
        let mut of_cluster = DeclaredConfigMapsAndSecrets::default();
        of_cluster.add(&map("a", "1"));
        of_cluster.add(&map("b", "1"));
        let mut references = DeclaredConfigMapsAndSecrets::with_cluster_objects(of_cluster);
        references.add(&map("a", "2"));
        let value = |name: &str| references.data("ConfigMap", "shop", name).unwrap()["x"].clone();
        assert_eq!([value("a"), value("b")], [b"2", b"1"]);
        assert!(references.declares("ConfigMap", "shop", "a"));
        assert!(!references.declares("ConfigMap", "shop", "b"));
    }

    #[tokio::test]
    async fn what_manifests_do_not_declare_is_named_and_does_not_count_as_missing() {
        let object = |value| Object::new(value).unwrap();
        let mut declared = DeclaredConfigMapsAndSecrets::default();
        declared.add(&object(serde_json::json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "a", "namespace": "shop"},
            "data": {"x": "eA==", "plain": "a b"}, "stringData": {"x": "z"}})));
        declared.add(&object(serde_json::json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "sealed", "namespace": "shop"}, "data": {"x": "ENC[y]"}, "sops": {}})));
        assert!(declared.data("Secret", "shop", "sealed").is_none());
        let mut references = RunReferenceReads::of_manifests(Arc::new(declared));
        assert!(!references.is_complete());
        let found = references.secret("shop", "a").await.unwrap().unwrap();
        assert_eq!(found["x"], b"z", "stringData counts most");
        assert_eq!(found["plain"], b"a b");
        assert_eq!(references.config_map("shop", "a").await.unwrap(), None);
        let undeclared: Vec<String> =
            references.undeclared().iter().map(ObjectId::subject).collect();
        assert_eq!(undeclared, ["ConfigMap/shop/a"]);
    }
}
