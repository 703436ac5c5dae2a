//! Where and as whom an object is applied: a cluster, and a user in it.
//!
//! Here: which Secret and ServiceAccount that is, and the clusters that are shared by all who use them.
//! Elsewhere: what may be in a kubeconfig (`cluster::kubeconfig`), connecting (`cluster::client`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crds::KubeConfigReference;
use reconcile::{Rest, Wake, reason};
use sources::http::Budgets;
use tokio::task::AbortHandle;

use super::crd_watch::follow_crds;
use super::hub::Hub;
use super::object_watcher::ObjectWatcher;
use super::permit::Permits;
use super::reference::References;
use super::rights_watch::follow_rights;
use super::unsupported::unsupported_text;
use crate::cluster::Cluster;
use crate::cluster::client::connect_to;
use crate::cluster::kubeconfig::{Allowed, Remote};
use crate::metrics::Metrics;
use crate::settings::Settings;

/// The field that mostly names a kubeconfig.
const KUBE_CONFIG: &str = "spec.kubeConfig";

/// How many objects of ours are applied to one cluster at the same moment.
///
/// It bounds memory and what the API server is asked at once; a cluster that does not answer holds up nobody else's.
pub(crate) const APPLYING_AT_ONCE: usize = 16;

/// A cluster as seen by everyone who applies to it.
pub(crate) struct Destination {
    cluster: Cluster,
    /// What was applied there, and its watches.
    watcher: Arc<ObjectWatcher>,
    /// Permits for those who apply now.
    applying: Permits,
    /// Follows the CRDs of a remote cluster.
    crd_watch: Option<AbortHandle>,
    /// Follows rights, since the first request was refused for want of them.
    rights_watch: OnceLock<AbortHandle>,
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.crd_watch.iter().chain(self.rights_watch.get()).for_each(AbortHandle::abort);
    }
}

/// A destination and the user as whom it is spoken to. Shared by all who use the same.
pub(crate) struct Target {
    /// Requests, in that user's name.
    pub(crate) cluster: Cluster,
    destination: Arc<Destination>,
    key: Key,
}

impl Target {
    /// Drift and waits at the destination.
    pub(crate) fn watcher(&self) -> &Arc<ObjectWatcher> {
        &self.destination.watcher
    }

    /// The same cluster, spoken to as windlass or as the kubeconfig's own user.
    pub(crate) fn as_ourselves(&self) -> &Cluster {
        &self.destination.cluster
    }

    /// Whether it is windlass's own cluster, spoken to as windlass itself.
    pub(crate) fn is_home(&self) -> bool {
        self.key.destination.is_empty() && self.key.user.is_empty()
    }

    /// Whether requests are in the name of a ServiceAccount that a spec or a flag names.
    pub(crate) fn is_impersonated(&self) -> bool {
        !self.key.user.is_empty()
    }

    /// Tells the cluster and its kubeconfig from others; empty for windlass's own cluster.
    pub(crate) fn place(&self) -> &str {
        &self.key.destination
    }

    /// What was refused there for want of rights is woken when they change.
    pub(crate) fn follow_rights(&self, hub: &Arc<Hub>) {
        self.destination.rights_watch.get_or_init(|| {
            let follow = follow_rights(self.destination.cluster.clone(), hub.clone());
            tokio::spawn(follow).abort_handle()
        });
    }

    /// Permits for those who apply now.
    pub(crate) fn applying(&self) -> &Permits {
        &self.destination.applying
    }
}

/// Digest of the kubeconfig (empty for windlass's own cluster) and the user (empty for windlass's own).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    destination: String,
    user: String,
}

/// Every target in use, made when it is first needed and gone when nobody needs it any more.
pub(crate) struct Targets {
    home: Arc<Target>,
    hub: Arc<Hub>,
    metrics: Arc<Metrics>,
    budgets: Arc<Budgets>,
    /// What may be in a kubeconfig.
    allowed: Allowed,
    destinations: Mutex<BTreeMap<Key, Weak<Destination>>>,
    targets: Mutex<BTreeMap<Key, Weak<Target>>>,
}

/// What a spec says about where and as whom.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Namespace of the object; Secret and ServiceAccount are there.
    pub(crate) namespace: &'a str,
    /// `spec.kubeConfig`, or what `field` names.
    pub(crate) kube_config: Option<&'a KubeConfigReference>,
    /// The field that names the kubeconfig, for messages.
    pub(crate) field: &'a str,
    /// `spec.serviceAccountName`, or the flag's.
    pub(crate) service_account: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// Parity(flux): the flag's ServiceAccount counts wherever the spec names none, remote clusters included.
    pub(crate) fn new(
        settings: &'a Settings,
        namespace: &'a str,
        kube_config: Option<&'a KubeConfigReference>,
        service_account: Option<&'a str>,
    ) -> Self {
        let given = service_account.filter(|name| !name.is_empty());
        let default = settings.default_service_account.as_deref();
        let service_account = given.or(default.filter(|name| !name.is_empty()));
        Self { namespace, kube_config, field: KUBE_CONFIG, service_account }
    }

    /// The same identity at a cluster that another field names.
    pub(crate) fn at(self, kube_config: &'a KubeConfigReference, field: &'a str) -> Self {
        Self { kube_config: Some(kube_config), field, ..self }
    }

    /// The name under which Kubernetes knows a ServiceAccount as a user.
    fn user(&self) -> Result<Option<String>, Rest> {
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
            return Err(Rest::Stalled(reason::RECONCILIATION_FAILED, text));
        }
        Ok(Some(format!("system:serviceaccount:{}:{name}", self.namespace)))
    }
}

fn failed(text: String) -> Rest {
    Rest::Failed(reason::RECONCILIATION_FAILED, text, Wake::default())
}

impl Targets {
    /// Only windlass's own cluster, as itself.
    pub(crate) fn new(
        settings: &Settings,
        watcher: &Arc<ObjectWatcher>,
        hub: Arc<Hub>,
        budgets: Arc<Budgets>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (applying, cluster) = (Permits::new(APPLYING_AT_ONCE), watcher.cluster().clone());
        let destination = Destination {
            cluster: cluster.clone(),
            watcher: watcher.clone(),
            applying,
            crd_watch: None,
            rights_watch: OnceLock::new(),
        };
        let key = Key { destination: String::new(), user: String::new() };
        let home = Arc::new(Target { cluster, destination: Arc::new(destination), key });
        let (destinations, targets) = (Mutex::default(), Mutex::default());
        let allowed = Allowed { insecure_tls: settings.insecure_kubeconfig_tls };
        Self { home, hub, metrics, budgets, allowed, destinations, targets }
    }

    /// The target that a spec asks for. The Secret that it names is among the references then.
    ///
    /// # Errors
    /// Says which Secret or name cannot be used, and why.
    pub(crate) async fn of(
        &self,
        wanted: &Wanted<'_>,
        references: &mut References,
    ) -> Result<Arc<Target>, Rest> {
        let user = wanted.user()?;
        let remote = match wanted.kube_config {
            Some(named) => Some(remote(self.allowed, references, wanted, named).await?),
            None => None,
        };
        let destination =
            remote.as_ref().map(|(remote, _)| remote.digest.clone()).unwrap_or_default();
        let key = Key { destination, user: user.clone().unwrap_or_default() };
        if key == self.home.key {
            return Ok(self.home.clone());
        }
        if let Some(target) = alive(&self.targets, &key) {
            return Ok(target);
        }
        let (destination, cluster) = match &remote {
            None => {
                let named = user.as_deref().unwrap_or_default();
                let cluster = self.home.cluster.acting_as(named);
                let cluster = cluster.map_err(|error| failed(error.to_string()))?;
                (self.home.destination.clone(), cluster)
            }
            Some((remote, secret)) => self.reach(remote, user.as_deref(), secret).await?,
        };
        let target = Arc::new(Target { cluster, destination, key: key.clone() });
        keep(&self.targets, key, &target);
        Ok(target)
    }

    /// A remote cluster and a client of it in a user's name.
    async fn reach(
        &self,
        remote: &Remote,
        user: Option<&str>,
        secret: &str,
    ) -> Result<(Arc<Destination>, Cluster), Rest> {
        let told = |error: &dyn std::fmt::Display| failed(format!("secret '{secret}': {error}"));
        let of_destination = Key { destination: remote.digest.clone(), user: String::new() };
        let destination = match alive(&self.destinations, &of_destination) {
            Some(destination) => destination,
            None => {
                let cluster =
                    connect_to(remote, self.budgets.egress(), &self.home.cluster, &self.metrics)
                        .await
                        .map_err(|e| told(&e))?;
                let watcher = self.home.watcher().of_another(cluster.clone());
                let follow = follow_crds(cluster.clone(), self.hub.clone());
                let crd_watch = Some(tokio::spawn(follow).abort_handle());
                let applying = Permits::new(APPLYING_AT_ONCE);
                let rights_watch = OnceLock::new();
                let destination =
                    Destination { cluster, watcher, applying, crd_watch, rights_watch };
                let destination = Arc::new(destination);
                keep(&self.destinations, of_destination, &destination);
                if !remote.stripped.is_empty() {
                    let ignored = remote.stripped.join(", ");
                    tracing::info!(secret, ignored, "some fields of the kubeconfig are ignored");
                }
                destination
            }
        };
        let cluster = match user {
            Some(user) => destination.cluster.acting_as(user).map_err(|e| told(&e))?,
            None => destination.cluster.clone(),
        };
        Ok((destination, cluster))
    }
}

fn alive<T>(pool: &Mutex<BTreeMap<Key, Weak<T>>>, key: &Key) -> Option<Arc<T>> {
    pool.lock().unwrap_or_else(PoisonError::into_inner).get(key)?.upgrade()
}

fn keep<T>(pool: &Mutex<BTreeMap<Key, Weak<T>>>, key: Key, value: &Arc<T>) {
    let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
    pool.retain(|_, value| value.strong_count() > 0);
    pool.insert(key, Arc::downgrade(value));
}

/// The cluster that a Secret describes, and the Secret's name for messages.
async fn remote(
    allowed: Allowed,
    references: &mut References,
    &Wanted { namespace, field, .. }: &Wanted<'_>,
    reference: &KubeConfigReference,
) -> Result<(Remote, String), Rest> {
    let Some(secret_ref) = &reference.secret_ref else {
        let text = unsupported_text(&[&format!("{field}.configMapRef")]);
        return Err(Rest::Stalled(reason::UNSUPPORTED_FIELD, text));
    };
    let secret = format!("{namespace}/{}", secret_ref.name);
    let told = |why: String| failed(format!("unable to read kubeconfig secret '{secret}': {why}"));
    let data = references.secret(namespace, &secret_ref.name).await;
    let data = data.map_err(|error| told(error.to_string()))?;
    let missing = || told(format!("not found; create it or correct {field}"));
    let data = data.ok_or_else(missing)?;
    let remote = Remote::from_secret(&data, secret_ref.key.as_deref(), allowed);
    Ok((remote.map_err(|error| told(error.to_string()))?, secret))
}
