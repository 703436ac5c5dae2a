//! Finds the operators of Flux's and windlass's APIs in a cluster, and which of them are active. Commands check this before
//! they install or remove an operator.
//!
//! Operators are found by their Deployments and StatefulSets, and by their Leases. A controller outside of the cluster has only
//! a Lease.
//! Below: whether an operator is active according to its Leases (`operator_presence`), operators outside of the cluster
//! (`external_operator`), whether the holder of a Lease is alive (`renewal`).
//! Elsewhere: which operators may run together (`windlass_cluster::election`).

mod external_operator;
mod lease_renewal;
mod operator_presence;

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use objects::{Gvk, Object};

pub use self::external_operator::outside;
pub(super) use self::external_operator::{none_of_pods, pods};
pub(super) use self::lease_renewal::{LeaseRenewals, WindlassLeases};
pub use self::operator_presence::{
    OperatorDoubtReason, OperatorPresence, absence, doubt, presence, remark, say_doubt, unseen,
};
use super::check::OURS;
use super::install::name;
use windlass_cli_runtime::table::clean;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::election::{
    COMPONENT, FLUX, REPLACED_CONTROLLERS, controller_of, controller_of_lease,
};
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// Excludes the Leases of nodes, because each node has one.
const NODES: &str = "metadata.namespace!=kube-node-lease";
/// The prefix of windlass's Lease names.
const OWN_LEASE: &str = "windlass-leader-election";
/// The tolerated difference between clocks. A Lease that expired so recently counts as held.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// An operator of Flux's APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FluxApiOperator {
    Windlass,
    /// The name of a Flux controller without the suffix of its shard.
    Flux(&'static str),
}

/// A workload of an operator, or a Lease that an operator holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DetectedOperator {
    pub(super) kind: FluxApiOperator,
    pub(super) namespace: String,
    /// The name for messages, with the evidence that the operator is active.
    pub(super) subject: String,
    /// Whether the operator is active, or may become active at any moment.
    pub(super) is_active: bool,
}

/// All operators of a cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterOperators(Vec<DetectedOperator>);

/// The desired number of replicas of a workload.
pub(super) fn replicas(workload: &Object) -> i64 {
    workload.get("spec").and_then(|spec| spec["replicas"].as_i64()).unwrap_or(1)
}

/// The Deployments of the Flux controllers that windlass replaces, including their shards. An empty namespace stands for all
/// namespaces.
///
/// # Errors
/// The API server refuses to list the objects.
pub(super) async fn flux_controllers(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Vec<Object>, ClusterError> {
    let mut found = flux_deployments(cluster, namespace).await?;
    found.retain(|it| replaced(it).is_some());
    Ok(found)
}

/// All Deployments of Flux, including for example its image controllers. An empty namespace stands for all namespaces.
///
/// # Errors
/// The API server refuses to list the objects.
pub(super) async fn flux_deployments(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Vec<Object>, ClusterError> {
    let mut found =
        cluster.list_of_kind(&Gvk::new("apps/v1", "Deployment"), namespace, FLUX).await?;
    let (key, value) = OURS.split_once('=').unwrap_or((OURS, ""));
    found.retain(|it| it.label(key) != Some(value));
    Ok(found)
}

/// The name of the Flux controller that a Deployment runs. `None` if it runs none that windlass replaces.
pub(super) fn replaced(deployment: &Object) -> Option<&'static str> {
    controller_of(deployment.name(), deployment.label(COMPONENT), &REPLACED_CONTROLLERS)
}

impl ClusterOperators {
    /// Finds the operators of a cluster.
    ///
    /// # Errors
    /// The API server refuses to list workloads or Leases. Then it is unknown whether there is another operator.
    pub(super) async fn find(cluster: &ClusterConnection) -> anyhow::Result<Self> {
        let unknown = "cannot determine which operators are in the cluster";
        let mut found = Vec::new();
        for kind in ["Deployment", "StatefulSet"] {
            let listed = cluster.list_of_kind(&Gvk::new("apps/v1", kind), "", OURS).await;
            let listed = listed.context(unknown)?;
            found.extend(
                listed
                    .iter()
                    .map(|it| DetectedOperator::of_workload(FluxApiOperator::Windlass, it)),
            );
        }
        for deployment in flux_controllers(cluster, "").await.context(unknown)? {
            let Some(controller) = replaced(&deployment) else { continue };
            found.push(DetectedOperator::of_workload(
                FluxApiOperator::Flux(controller),
                &deployment,
            ));
        }
        let leases = leases(cluster, "").await.context(unknown)?;
        found.extend(of_leases(&leases, Timestamp::now()));
        Ok(Self(found))
    }

    /// The operators that are active, or may become active at any moment.
    pub(super) fn active(&self) -> impl Iterator<Item = &DetectedOperator> {
        self.0.iter().filter(|it| it.is_active)
    }

    /// The active operators of Flux.
    pub(super) fn flux(&self) -> impl Iterator<Item = &DetectedOperator> {
        self.active().filter(|it| it.kind != FluxApiOperator::Windlass)
    }

    /// The installations of windlass in other namespaces, active or not.
    pub(super) fn elsewhere<'s>(
        &'s self,
        namespace: &'s str,
    ) -> impl Iterator<Item = &'s DetectedOperator> {
        self.0
            .iter()
            .filter(move |it| it.kind == FluxApiOperator::Windlass && it.namespace != namespace)
    }

    /// Checks that windlass may be installed in a namespace. It must not run beside another operator, and must not take over
    /// the rights of another installation.
    ///
    /// # Errors
    /// The installation is not allowed. The error says what to do instead.
    pub(super) fn permit_installation(&self, namespace: &str) -> anyhow::Result<()> {
        if let Some(flux) = self.flux().next() {
            bail!(
                "{}, so windlass must not act, too; nothing was changed: `windlass migrate from-flux -n {}` takes the \
                 cluster over from Flux",
                flux.subject,
                flux.namespace
            );
        }
        if let Some(other) = self.elsewhere(namespace).next() {
            bail!(
                "windlass is in namespace {other} already ({subject}), and an installation in {namespace} would take its \
                 rights; nothing was changed: upgrade it with -n {other}, or remove it first with `windlass uninstall -n \
                 {other}`",
                other = other.namespace,
                subject = other.subject,
            );
        }
        Ok(())
    }
}

impl DetectedOperator {
    fn of_workload(kind: FluxApiOperator, workload: &Object) -> Self {
        let replicas = replicas(workload);
        Self {
            kind,
            namespace: workload.namespace().to_owned(),
            subject: format!("{} has {replicas} replica(s)", name(workload)),
            is_active: replicas > 0,
        }
    }
}

/// The API resource of Leases. `None` if the cluster does not serve it.
async fn lease_resource(
    cluster: &ClusterConnection,
) -> Result<Option<ApiResourceLocation>, ClusterError> {
    match cluster.resource(&Gvk::new("coordination.k8s.io/v1", "Lease")).await {
        Err(ClusterError::NoSuchKind { .. }) => Ok(None),
        found => found.map(Some),
    }
}

/// The Leases of operators in a namespace, or in all namespaces (`""`). Empty if the cluster does not serve Leases.
///
/// # Errors
/// The API server refuses to list Leases.
pub(super) async fn leases(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Vec<Object>, ClusterError> {
    let Some(resource) = lease_resource(cluster).await? else { return Ok(Vec::new()) };
    let field_selector = if namespace.is_empty() { NODES } else { "" };
    let query = ObjectQuery { namespace, field_selector, ..ObjectQuery::all(&resource) };
    let mut found = Vec::new();
    let mut from = None;
    loop {
        let part = cluster.list_part(query, from.as_deref()).await?;
        let is_of_operator = |it: &Object| is_own(it) || is_of_flux(it);
        found.extend(part.objects.into_iter().filter(is_of_operator));
        match part.next {
            Some(next) => from = Some(next),
            None => return Ok(found),
        }
    }
}

/// Whether a Lease belongs to windlass.
fn is_own(lease: &Object) -> bool {
    lease.name().starts_with(OWN_LEASE)
}

/// Whether a Lease belongs to a Flux controller that windlass replaces, or to a shard of one.
pub(super) fn is_of_flux(lease: &Object) -> bool {
    controller_of_lease(lease.name(), &REPLACED_CONTROLLERS).is_some()
}

/// The operators that hold Leases. windlass also holds the Leases of Flux's controllers, with the same identity.
fn of_leases(leases: &[Object], now: Timestamp) -> Vec<DetectedOperator> {
    let own = leases.iter().filter(|lease| is_own(lease));
    let own: BTreeSet<&str> = own.filter_map(|lease| holder(lease, now)).collect();
    let mut found = Vec::new();
    for lease in leases {
        let Some(holder) = holder(lease, now) else { continue };
        let kind = match controller_of_lease(lease.name(), &REPLACED_CONTROLLERS) {
            Some(_) if own.contains(holder) => continue,
            Some(controller) => FluxApiOperator::Flux(controller),
            None => FluxApiOperator::Windlass,
        };
        found.push(DetectedOperator {
            kind,
            namespace: lease.namespace().to_owned(),
            subject: format!("{} is held by '{holder}'", name(lease)),
            is_active: true,
        });
    }
    found
}

/// The Leases of windlass in a namespace. Empty if the cluster does not serve Leases.
///
/// # Errors
/// The API server refuses to list the objects.
async fn own_leases(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Vec<Object>, ClusterError> {
    let mut own = leases(cluster, namespace).await?;
    own.retain(is_own);
    Ok(own)
}

/// A process that holds a Lease which has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The Lease as `NAMESPACE/NAME`.
    pub lease: String,
    /// The identity of the process. It is the name of the Pod or the host, unless a flag sets another identity.
    pub identity: String,
    /// When the process last renewed the Lease.
    pub(super) renewed: Timestamp,
    /// When the Lease expires if the process does not renew it again.
    pub(super) until: Timestamp,
}

impl LeaseHolder {
    /// The holder of a Lease. Returns `None` if the Lease has expired.
    pub fn of(lease: &Object, now: Timestamp) -> Option<Self> {
        let identity = clean(holder(lease, now)?);
        let renewed = renewed(lease)?;
        let until = renewed.saturating_add(duration(lease)).unwrap_or(renewed);
        let lease = format!("{}/{}", lease.namespace(), lease.name());
        Some(Self { lease, identity, renewed, until })
    }

    /// The times of the last renewal and of the expiry, as text. A process that was killed still holds its Lease until the
    /// expiry.
    pub fn term(&self) -> String {
        format!("renewed at {:.0}, counts until {:.0}", self.renewed, self.until)
    }
}

impl std::fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' holds Lease {}", self.identity, self.lease)
    }
}

/// The identity of the process that holds a Lease. `None` if the Lease has expired, or if no process has ever held it.
fn holder(lease: &Object, now: Timestamp) -> Option<&str> {
    let holder = Some(identity(lease)).filter(|it| !it.is_empty())?;
    let lasts = duration(lease).saturating_add(CLOCK_SKEW);
    (now.duration_since(renewed(lease)?) <= lasts).then_some(holder)
}

/// How long a Lease is valid after a renewal.
fn duration(lease: &Object) -> SignedDuration {
    let seconds = lease.get("spec").and_then(|spec| spec["leaseDurationSeconds"].as_i64());
    SignedDuration::from_secs(seconds.unwrap_or(0))
}

/// The identity in a Lease, even if it has expired. Empty if the process released the Lease.
fn identity(lease: &Object) -> &str {
    lease.get("spec").and_then(|spec| spec["holderIdentity"].as_str()).unwrap_or_default()
}

/// When the holder of a Lease last renewed it. `None` if the Lease contains no such time.
fn renewed(lease: &Object) -> Option<Timestamp> {
    lease.get("spec")?["renewTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests;
