//! Which operators of these APIs are in a cluster, and which of them act: what is asked before one is added or taken away.
//!
//! They are found by their Deployments and StatefulSets, and by the Leases under which they act, which is all that a
//! controller outside of the cluster has. Elsewhere: whether none acts, as far as Leases tell (`operator_presence`), who may act beside
//! whom (`windlass_cluster::election`). Below: whether one acts outside of the cluster (`external_operator`), whether
//! the process that holds a Lease lives (`renewal`).

mod external_operator;
mod operator_presence;
mod renewal;

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use objects::{Gvk, Object};

pub use self::external_operator::outside;
pub(super) use self::external_operator::{none_of_pods, pods};
pub use self::operator_presence::{
    OperatorDoubtReason, OperatorPresence, absence, doubt, presence, remark, say_doubt, unseen,
};
pub(super) use self::renewal::{LeaseRenewals, WindlassLeases};
use super::check::OURS;
use super::install::name;
use windlass_cli_runtime::table::clean;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::election::{
    COMPONENT, FLUX, REPLACED_CONTROLLERS, controller_of, controller_of_lease,
};
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// Where nodes have their Leases, one each.
const NODES: &str = "metadata.namespace!=kube-node-lease";
/// What the names of windlass's Leases begin with.
const OWN_LEASE: &str = "windlass-leader-election";
/// By how much clocks may differ: a Lease that ran out so recently counts as held.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Who serves these APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FluxApiOperator {
    Windlass,
    /// A controller of Flux, by the name that it has without shards.
    Flux(&'static str),
}

/// A workload of an operator, or a Lease under which one acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DetectedOperator {
    pub(super) kind: FluxApiOperator,
    pub(super) namespace: String,
    /// As messages name it, with what shows that it acts.
    pub(super) subject: String,
    /// Whether it acts, or may at any moment.
    pub(super) is_active: bool,
}

/// All operators of a cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterOperators(Vec<DetectedOperator>);

/// How many replicas a workload is to have.
pub(super) fn replicas(workload: &Object) -> i64 {
    workload.get("spec").and_then(|spec| spec["replicas"].as_i64()).unwrap_or(1)
}

/// The Deployments of the controllers that windlass replaces, and of their shards; an empty namespace stands for all.
///
/// # Errors
/// The API server refuses to list them.
pub(super) async fn flux_controllers(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Vec<Object>, ClusterError> {
    let mut found = flux_deployments(cluster, namespace).await?;
    found.retain(|it| replaced(it).is_some());
    Ok(found)
}

/// All Deployments of Flux, such as those of its image controllers; an empty namespace stands for all.
///
/// # Errors
/// The API server refuses to list them.
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

/// The controller of Flux that a Deployment runs, if windlass replaces it.
pub(super) fn replaced(deployment: &Object) -> Option<&'static str> {
    controller_of(deployment.name(), deployment.label(COMPONENT), &REPLACED_CONTROLLERS)
}

impl ClusterOperators {
    /// Finds them.
    ///
    /// # Errors
    /// The API server refuses to list workloads or Leases: whether there is another one is not known.
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

    /// Those that act, or may at any moment.
    pub(super) fn active(&self) -> impl Iterator<Item = &DetectedOperator> {
        self.0.iter().filter(|it| it.is_active)
    }

    /// Those of Flux that act.
    pub(super) fn flux(&self) -> impl Iterator<Item = &DetectedOperator> {
        self.active().filter(|it| it.kind != FluxApiOperator::Windlass)
    }

    /// Installations of windlass in other namespaces, whether they act or not.
    pub(super) fn elsewhere<'s>(
        &'s self,
        namespace: &'s str,
    ) -> impl Iterator<Item = &'s DetectedOperator> {
        self.0
            .iter()
            .filter(move |it| it.kind == FluxApiOperator::Windlass && it.namespace != namespace)
    }

    /// Checks that windlass may be installed in a namespace: it would act beside another operator, or take the rights of
    /// another installation.
    ///
    /// # Errors
    /// It must not, and what to do instead.
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

/// Where Leases are; none if the cluster has no such kind.
async fn lease_resource(
    cluster: &ClusterConnection,
) -> Result<Option<ApiResourceLocation>, ClusterError> {
    match cluster.resource(&Gvk::new("coordination.k8s.io/v1", "Lease")).await {
        Err(ClusterError::NoSuchKind { .. }) => Ok(None),
        found => found.map(Some),
    }
}

/// The Leases of operators in a namespace, or in all of them (`""`); none if the cluster has no such kind.
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

/// Whether a Lease is one of windlass.
fn is_own(lease: &Object) -> bool {
    lease.name().starts_with(OWN_LEASE)
}

/// Whether a Lease is that of a controller of Flux which windlass replaces, or of a shard of one.
pub(super) fn is_of_flux(lease: &Object) -> bool {
    controller_of_lease(lease.name(), &REPLACED_CONTROLLERS).is_some()
}

/// The operators that hold Leases. windlass holds those of Flux, too, by the same name.
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

/// The Leases of windlass in a namespace; none if the cluster has no such kind.
///
/// # Errors
/// The API server refuses to list them.
async fn own_leases(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Vec<Object>, ClusterError> {
    let mut own = leases(cluster, namespace).await?;
    own.retain(is_own);
    Ok(own)
}

/// A process that holds a Lease which has not run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// `NAMESPACE/NAME` of the Lease.
    pub lease: String,
    /// The identity with which the process holds it: the name of its Pod or host, unless a flag says another.
    pub identity: String,
    /// When it renewed the Lease last.
    pub(super) renewed: Timestamp,
    /// Until when the Lease counts if it is not renewed again.
    pub(super) until: Timestamp,
}

impl LeaseHolder {
    /// The holder of a Lease; `None` if the Lease has run out.
    pub fn of(lease: &Object, now: Timestamp) -> Option<Self> {
        let identity = clean(holder(lease, now)?);
        let renewed = renewed(lease)?;
        let until = renewed.saturating_add(duration(lease)).unwrap_or(renewed);
        let lease = format!("{}/{}", lease.namespace(), lease.name());
        Some(Self { lease, identity, renewed, until })
    }

    /// The time of the last renewal, and the time until which it counts: a process that was killed holds its Lease until
    /// then.
    pub fn term(&self) -> String {
        format!("renewed at {:.0}, counts until {:.0}", self.renewed, self.until)
    }
}

impl std::fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' holds Lease {}", self.identity, self.lease)
    }
}

/// Who holds a Lease that has not run out.
fn holder(lease: &Object, now: Timestamp) -> Option<&str> {
    let holder = Some(identity(lease)).filter(|it| !it.is_empty())?;
    let lasts = duration(lease).saturating_add(CLOCK_SKEW);
    (now.duration_since(renewed(lease)?) <= lasts).then_some(holder)
}

/// How long a Lease counts after a renewal.
fn duration(lease: &Object) -> SignedDuration {
    let seconds = lease.get("spec").and_then(|spec| spec["leaseDurationSeconds"].as_i64());
    SignedDuration::from_secs(seconds.unwrap_or(0))
}

/// The identity of the process that holds or held a Lease; empty if it was released.
fn identity(lease: &Object) -> &str {
    lease.get("spec").and_then(|spec| spec["holderIdentity"].as_str()).unwrap_or_default()
}

/// When a Lease was renewed last.
fn renewed(lease: &Object) -> Option<Timestamp> {
    lease.get("spec")?["renewTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests;
