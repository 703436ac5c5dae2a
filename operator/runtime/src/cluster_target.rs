//! The target of an object: the cluster to which it is applied, and the user whose name the requests have.
//!
//! Here: which Secret and ServiceAccount define the target, and the connections that objects share. Elsewhere: the allowed
//! parts of a kubeconfig (`windlass_cluster::kubeconfig`), and connecting (`windlass_cluster::client`).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crds::KubeConfigReference;
use http_client::HostBudgets;
use parking_lot::{Mutex, MutexGuard};
use reconcile::{NextRunTrigger, RunOutcome, Time, condition_reason};
use sha2::{Digest as _, Sha256};
use tokio::task::AbortHandle;

use super::unsupported_fields::unsupported_text;
use windlass_cluster::ClusterConnection;
use windlass_cluster::client::{ConnectionError, connect_to};
use windlass_cluster::crd_watch::follow_crds;
use windlass_cluster::kubeconfig::{KubeconfigError, KubeconfigPolicy, RemoteKubeconfig};
use windlass_cluster::metrics::MetricsRegistry;
use windlass_cluster::object_watcher::ObjectWatcher;
use windlass_cluster::rbac_watch::follow_rights;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::work_queue::WorkQueue;
use windlass_serve::settings::OperatorSettings;

/// The field that names the kubeconfig in most kinds.
const KUBE_CONFIG: &str = "spec.kubeConfig";

/// How many objects are applied to one cluster at the same time, if its API server permits that many requests.
///
/// This bounds the memory, and the requests to one API server. A cluster that does not respond does not delay the objects of
/// other clusters.
pub const APPLYING_AT_ONCE: usize = 16;

/// How many runs of one cluster may prepare at the same time. A preparing run holds the objects that its spec names, and its
/// build.
///
/// The number is large enough that [`APPLYING_AT_ONCE`] runs always have work. It also limits the memory when ten thousand
/// objects wake at once.
const PREPARING_AT_ONCE: usize = 32;

/// How many of these permits a namespace may hold, so that slow runs of one namespace leave some for others.
const MAX_PREPARING_PER_NAMESPACE: usize = 24;

fn preparing_permits() -> RunPermits {
    RunPermits::shared(PREPARING_AT_ONCE, MAX_PREPARING_PER_NAMESPACE)
}

/// A cluster, with the state that all objects applied to it share.
pub(crate) struct TargetClusterState {
    cluster: ClusterConnection,
    /// The watches of the applied objects in this cluster.
    watcher: Arc<ObjectWatcher>,
    /// The permits for runs that prepare.
    preparing: RunPermits,
    /// The permits for runs that apply.
    applying: RunPermits,
    /// The task that follows the CRDs of a remote cluster.
    crd_watch: Option<AbortHandle>,
    /// The task that follows RBAC changes. It starts when a request first lacks rights.
    rights_watch: OnceLock<AbortHandle>,
    /// The kubeconfig of a remote cluster, as it was last read.
    access: Mutex<RemoteClusterAccess>,
}

/// The kubeconfig of a remote cluster, and the identity of that cluster.
#[derive(Debug, Default)]
struct RemoteClusterAccess {
    /// The digest of the kubeconfig.
    digest: String,
    /// The version in which its Secret was read.
    version: Option<u64>,
    /// When the Secret was read.
    read: Option<Time>,
    /// The uid of the cluster's namespace kube-system, if it could be read.
    uid: Option<String>,
}

/// How long a run may take from the read of a Secret to the connection. After this time, a lower version is no late read: the
/// store of the API server was restored.
const MAX_TIME_TO_CONNECT: Duration = Duration::from_secs(60);

impl RemoteClusterAccess {
    fn new(remote: &RemoteKubeconfig, version: Option<u64>) -> Self {
        let read = Some(jiff::Timestamp::now());
        Self { digest: remote.digest.clone(), version, read, uid: None }
    }

    /// Whether a kubeconfig is newer than this one. A late kubeconfig with a lower version is not.
    fn is_renewed_by(&self, digest: &str, version: Option<u64>, now: Time) -> bool {
        let is_lower = self.version.zip(version).is_some_and(|(known, read)| read < known);
        let is_recent = self.read.is_some_and(|read| {
            Duration::try_from(now.duration_since(read)).is_ok_and(|age| age < MAX_TIME_TO_CONNECT)
        });
        self.digest != digest && !(is_lower && is_recent)
    }

    /// Whether another cluster has the same address now. The uids of both clusters must be known.
    fn is_other_than(&self, uid: Option<&str>) -> bool {
        self.uid.as_deref().zip(uid).is_some_and(|(known, now)| known != now)
    }
}

impl TargetClusterState {
    fn access(&self) -> MutexGuard<'_, RemoteClusterAccess> {
        self.access.lock()
    }
}

impl Drop for TargetClusterState {
    fn drop(&mut self) {
        self.crd_watch.iter().chain(self.rights_watch.get()).for_each(AbortHandle::abort);
    }
}

/// A cluster and the user whose name the requests have. All objects with the same target share it.
pub struct ClusterTarget {
    /// The connection that sends requests in the name of the user.
    pub cluster: ClusterConnection,
    destination: Arc<TargetClusterState>,
    key: TargetKey,
}

impl ClusterTarget {
    /// The watcher of drift and waits in this cluster.
    pub fn watcher(&self) -> &Arc<ObjectWatcher> {
        &self.destination.watcher
    }

    /// The same cluster, but with requests in the name of windlass or of the kubeconfig's own user.
    pub(crate) fn as_ourselves(&self) -> &ClusterConnection {
        &self.destination.cluster
    }

    /// Whether this is windlass's own cluster with windlass's own identity.
    pub fn is_home(&self) -> bool {
        self.key.destination.is_empty() && self.key.user.is_empty()
    }

    /// Whether requests are in the name of a ServiceAccount that a spec or a flag names.
    pub(crate) fn is_impersonated(&self) -> bool {
        !self.key.user.is_empty()
    }

    /// An identifier of the cluster and its Secret that does not depend on the credentials. Empty for windlass's own cluster.
    pub fn place(&self) -> &str {
        &self.key.destination
    }

    /// The user whose name the requests have, if a spec or a flag names a ServiceAccount. Otherwise empty.
    pub fn user(&self) -> &str {
        &self.key.user
    }

    /// Wakes objects whose requests were forbidden when RBAC rights in this cluster change.
    pub fn follow_rights(&self, work_queue: &Arc<WorkQueue>) {
        self.destination.rights_watch.get_or_init(|| {
            let cluster = self.destination.cluster.clone();
            let place = self.place().to_owned();
            let follow = follow_rights(cluster, work_queue.clone(), place);
            tokio::spawn(follow).abort_handle()
        });
    }

    /// The permits for runs that prepare.
    pub(crate) fn preparing(&self) -> &RunPermits {
        &self.destination.preparing
    }

    /// The permits for runs that apply.
    pub fn applying(&self) -> &RunPermits {
        &self.destination.applying
    }
}

/// The key of a target: cluster and Secret, and the user. The first is empty for windlass's own cluster, the second for
/// windlass's own user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TargetKey {
    destination: String,
    user: String,
}

/// All targets in use. A target is created when an object first needs it, and dropped when no object does.
pub struct ClusterTargets {
    home: Arc<ClusterTarget>,
    work_queue: Arc<WorkQueue>,
    metrics: Arc<MetricsRegistry>,
    budgets: Arc<HostBudgets>,
    /// Which parts of a kubeconfig are allowed.
    allowed: KubeconfigPolicy,
    /// The destinations by place.
    destinations: Mutex<BTreeMap<String, Weak<TargetClusterState>>>,
    targets: Mutex<BTreeMap<TargetKey, Weak<ClusterTarget>>>,
}

/// The cluster and the user that a spec names.
#[derive(Clone, Copy)]
pub struct TargetSpec<'a> {
    /// The namespace of the object, its Secret and its ServiceAccount.
    pub(crate) namespace: &'a str,
    /// The reference in `spec.kubeConfig`, or in the field that `field` names.
    pub kube_config: Option<&'a KubeConfigReference>,
    /// The field that names the kubeconfig, for messages.
    pub(crate) field: &'a str,
    /// `spec.serviceAccountName`, or the ServiceAccount of the flag.
    pub service_account: Option<&'a str>,
}

impl<'a> TargetSpec<'a> {
    /// The cluster and the user of a spec with these fields. Parity(flux): the flag's ServiceAccount counts wherever the
    /// spec names none, remote clusters included.
    pub fn new(
        settings: &'a OperatorSettings,
        namespace: &'a str,
        kube_config: Option<&'a KubeConfigReference>,
        service_account: Option<&'a str>,
    ) -> Self {
        let given = service_account.filter(|name| !name.is_empty());
        let default = settings.default_service_account.as_deref();
        let service_account = given.or(default.filter(|name| !name.is_empty()));
        Self { namespace, kube_config, field: KUBE_CONFIG, service_account }
    }

    /// The same user at a cluster that another field names.
    pub fn at(self, kube_config: &'a KubeConfigReference, field: &'a str) -> Self {
        Self { kube_config: Some(kube_config), field, ..self }
    }

    /// The user name that Kubernetes gives to the ServiceAccount.
    fn user(&self) -> Result<Option<String>, RunOutcome> {
        let Some(name) = self.service_account else { return Ok(None) };
        let valid = name.len() <= 253
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
        if !valid {
            let text = format!(
                "spec.serviceAccountName: {name:?} is not the name of a ServiceAccount in namespace {}",
                self.namespace
            );
            return Err(RunOutcome::Stalled(condition_reason::RECONCILIATION_FAILED, text));
        }
        Ok(Some(format!("system:serviceaccount:{}:{name}", self.namespace)))
    }
}

fn failed(text: String) -> RunOutcome {
    RunOutcome::Failed(condition_reason::RECONCILIATION_FAILED, text, NextRunTrigger::default())
}

impl ClusterTargets {
    /// The targets at the start of a process: only windlass's own cluster with its own identity.
    pub fn new(
        settings: &OperatorSettings,
        watcher: &Arc<ObjectWatcher>,
        work_queue: Arc<WorkQueue>,
        budgets: Arc<HostBudgets>,
        metrics: Arc<MetricsRegistry>,
    ) -> Self {
        let cluster = watcher.cluster().clone();
        let applying = cluster.permits_for_runs(APPLYING_AT_ONCE);
        metrics.measure_request_limit("", &cluster);
        let destination = TargetClusterState {
            cluster: cluster.clone(),
            watcher: watcher.clone(),
            preparing: preparing_permits(),
            applying,
            crd_watch: None,
            rights_watch: OnceLock::new(),
            access: Mutex::default(),
        };
        let key = TargetKey { destination: String::new(), user: String::new() };
        let home = Arc::new(ClusterTarget { cluster, destination: Arc::new(destination), key });
        let destinations = Mutex::default();
        let targets = Mutex::default();
        let allowed = KubeconfigPolicy { insecure_tls: settings.insecure_kubeconfig_tls };
        Self { home, work_queue, metrics, budgets, allowed, destinations, targets }
    }

    /// The permits for runs that prepare for windlass's own cluster, or whose cluster is not known yet.
    pub(crate) fn preparing_at_home(&self) -> &RunPermits {
        self.home.preparing()
    }

    /// The target that a spec names. Its Secret is added to `references`.
    ///
    /// # Errors
    /// The outcome of a run whose Secret or name cannot be used, with the reason.
    pub async fn of(
        &self,
        wanted: &TargetSpec<'_>,
        references: &mut RunReferenceReads,
    ) -> Result<Arc<ClusterTarget>, RunOutcome> {
        let Some(named) = wanted.kube_config else { return self.at_home(wanted) };
        let user = wanted.user()?.unwrap_or_default();
        let named = remote(self.allowed, references, wanted, named).await?;
        let error_of =
            |error: &dyn std::fmt::Display| failed(format!("secret '{}': {error}", named.secret));
        let destination = self.destination(&named).await.map_err(|error| error_of(&error))?;
        self.target(TargetKey { destination: named.place.clone(), user }, destination)
            .map_err(|error| error_of(&error))
    }

    /// windlass's own cluster with the user of a spec, whichever cluster the spec names.
    ///
    /// # Errors
    /// The outcome of a run whose user name cannot be used, with the reason.
    pub(crate) fn at_home(
        &self,
        wanted: &TargetSpec<'_>,
    ) -> Result<Arc<ClusterTarget>, RunOutcome> {
        let user = wanted.user()?.unwrap_or_default();
        let key = TargetKey { destination: String::new(), user };
        let home = self.home.destination.clone();
        self.target(key, home).map_err(|error| failed(error.to_string()))
    }

    /// A destination with a user, shared by all objects that need the same.
    fn target(
        &self,
        key: TargetKey,
        destination: Arc<TargetClusterState>,
    ) -> Result<Arc<ClusterTarget>, ConnectionError> {
        if key == self.home.key {
            return Ok(self.home.clone());
        }
        let is_there = |it: &Arc<ClusterTarget>| Arc::ptr_eq(&it.destination, &destination);
        if let Some(target) = alive(&self.targets, &key).filter(is_there) {
            return Ok(target);
        }
        let cluster = match key.user.as_str() {
            "" => destination.cluster.clone(),
            user => destination.cluster.acting_as(user)?,
        };
        let target = ClusterTarget { cluster, destination: destination.clone(), key: key.clone() };
        Ok(keep(&self.targets, key, Arc::new(target), is_there))
    }

    /// The destination of a remote cluster. If the credentials were renewed, all its targets get them. If another cluster has
    /// the address now, it gets a new destination without any state.
    async fn destination(
        &self,
        named: &RemoteCluster,
    ) -> Result<Arc<TargetClusterState>, KubeconfigError> {
        let RemoteCluster { remote, version, place, secret } = named;
        let known = alive(&self.destinations, place);
        let is_renewed = |access: &RemoteClusterAccess| {
            access.is_renewed_by(&remote.digest, *version, jiff::Timestamp::now())
        };
        let is_new = |it: &Arc<TargetClusterState>| is_renewed(&it.access());
        if let Some(known) = known.clone().filter(|it| !is_new(it)) {
            return Ok(known);
        }
        let home = &self.home.cluster;
        let metrics = &self.metrics;
        let cluster = connect_to(remote, self.budgets.egress(), home, metrics).await?;
        let uid = cluster.system_uid().await;
        if let Some(known) = known.as_ref().filter(|it| !it.access().is_other_than(uid.as_deref()))
        {
            let mut access = known.access();
            // Another run may have read a later version while this one connected.
            if !is_renewed(&access) {
                drop(access);
                return Ok(known.clone());
            }
            known.cluster.renew(&cluster);
            let uid = uid.or_else(|| access.uid.take());
            *access = RemoteClusterAccess { uid, ..RemoteClusterAccess::new(remote, *version) };
            drop(access);
            tracing::info!(secret, "the credentials of a cluster were renewed");
            return Ok(known.clone());
        }
        metrics.measure_request_limit(secret, &cluster);
        let applying = cluster.permits_for_runs(APPLYING_AT_ONCE);
        let watcher = self.home.watcher().of_another(cluster.clone());
        let follow = follow_crds(cluster.clone(), self.work_queue.clone());
        let destination = Arc::new(TargetClusterState {
            cluster,
            watcher,
            preparing: preparing_permits(),
            applying,
            crd_watch: Some(tokio::spawn(follow).abort_handle()),
            rights_watch: OnceLock::new(),
            access: Mutex::new(RemoteClusterAccess {
                uid,
                ..RemoteClusterAccess::new(remote, *version)
            }),
        });
        if !remote.stripped.is_empty() {
            let ignored = remote.stripped.join(", ");
            tracing::info!(secret, ignored, "some fields of the kubeconfig are ignored");
        }
        // Another run may have created it meanwhile.
        let is_made =
            |it: &Arc<TargetClusterState>| !known.as_ref().is_some_and(|old| Arc::ptr_eq(it, old));
        Ok(keep(&self.destinations, place.clone(), destination, is_made))
    }
}

fn alive<K: Ord, T>(pool: &Mutex<BTreeMap<K, Weak<T>>>, key: &K) -> Option<Arc<T>> {
    pool.lock().get(key)?.upgrade()
}

/// Puts a new value into the pool. If another task was faster and `serves` accepts its value, both tasks use that one.
fn keep<K: Ord, T>(
    pool: &Mutex<BTreeMap<K, Weak<T>>>,
    key: K,
    value: Arc<T>,
    serves: impl Fn(&Arc<T>) -> bool,
) -> Arc<T> {
    let mut pool = pool.lock();
    if let Some(other) = pool.get(&key).and_then(Weak::upgrade).filter(serves) {
        return other;
    }
    pool.retain(|_, value| value.strong_count() > 0);
    pool.insert(key, Arc::downgrade(&value));
    value
}

/// The remote cluster that a Secret describes.
struct RemoteCluster {
    remote: RemoteKubeconfig,
    /// The Secret, for messages.
    secret: String,
    /// The version in which the Secret was read.
    version: Option<u64>,
    /// An identifier of the cluster and its Secret.
    place: String,
}

async fn remote(
    allowed: KubeconfigPolicy,
    references: &mut RunReferenceReads,
    &TargetSpec { namespace, field, .. }: &TargetSpec<'_>,
    reference: &KubeConfigReference,
) -> Result<RemoteCluster, RunOutcome> {
    let Some(secret_ref) = &reference.secret_ref else {
        let text = unsupported_text(&[&format!("{field}.configMapRef")]);
        return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text));
    };
    let secret = format!("{namespace}/{}", secret_ref.name);
    let error_of =
        |why: String| failed(format!("unable to read kubeconfig secret '{secret}': {why}"));
    let data = references.secret(namespace, &secret_ref.name).await;
    let data = data.map_err(|error| error_of(error.to_string()))?;
    let missing = || error_of(format!("not found; create it or correct {field}"));
    let data = data.ok_or_else(missing)?;
    let key = secret_ref.key.as_deref();
    let remote = RemoteKubeconfig::from_secret(&data, key, allowed)
        .map_err(|error| error_of(error.to_string()))?;
    let version = references.version("Secret", namespace, &secret_ref.name);
    let mut place = Sha256::new();
    for part in [&secret, key.unwrap_or_default(), &remote.identity] {
        place.update(part.len().to_le_bytes());
        place.update(part);
    }
    let place = hex::encode(place.finalize());
    Ok(RemoteCluster { remote, secret, version, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_who_make_the_same_at_once_use_one() {
        let pool = Mutex::default();
        let first = keep(&pool, "a", Arc::new(1), |_| true);
        let second = keep(&pool, "a", Arc::new(2), |_| true);
        assert!(Arc::ptr_eq(&first, &second));
        // A value that is no longer accepted is replaced, and a value without a user is forgotten.
        let third = keep(&pool, "a", Arc::new(3), |it| **it != 1);
        assert_eq!((*third, alive(&pool, &"a").as_deref()), (3, Some(&3)));
        drop(third);
        assert_eq!(*keep(&pool, "b", Arc::new(4), |_| true), 4);
        assert_eq!(alive(&pool, &"a"), None);
    }

    #[test]
    fn credentials_are_renewed_by_what_was_read_later_and_a_cluster_is_another_if_both_say_so() {
        let read = Time::from_second(1_000_000).unwrap();
        let at = |second: i64| Time::from_second(1_000_000 + second).unwrap();
        let access = RemoteClusterAccess {
            digest: "new".to_owned(),
            version: Some(5),
            read: Some(read),
            uid: Some("one".to_owned()),
        };
        assert!(!access.is_renewed_by("new", Some(6), at(1)), "another field of the Secret");
        assert!(access.is_renewed_by("newer", Some(6), at(1)));
        assert!(!access.is_renewed_by("old", Some(4), at(1)), "a run that read it before");
        assert!(access.is_renewed_by("restored", Some(4), at(60)), "the store was restored");
        assert!(access.is_renewed_by("newer", None, at(1)));
        assert!(access.is_other_than(Some("two")));
        assert!(!access.is_other_than(Some("one")) && !access.is_other_than(None));
        assert!(!RemoteClusterAccess::default().is_other_than(Some("one")));
    }
}
