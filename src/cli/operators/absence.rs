//! Whether an operator acts, as far as its Leases tell: what a status says may be old where none does.
//!
//! Nothing is concluded from a Lease that is absent or may not be read: windlass takes none without leader election, and may
//! have another namespace. Elsewhere: every operator of a cluster ([`super`]), a process that is none of the cluster's Pods
//! (`outside.rs`), checking an installation (`check.rs`).

use jiff::Timestamp;
use objects::Object;

use super::{LeaseHolder, OWN_LEASE, holder, lease_resource, own_leases, renewed};
use crate::cli::connection::{Mark, say};
use windlass_cluster::{Cluster, ClusterError};

/// The namespace where an installation is by default, as the environment of all commands has it.
const NAMESPACE: (&str, &str) = ("FLUX_SYSTEM_NAMESPACE", "flux-system");

/// Leases of which an operator that applies objects holds one: windlass, or the controllers of Flux.
const LEASES: [&str; 3] =
    [OWN_LEASE, "kustomize-controller-leader-election", "helm-controller-leader-election"];

/// What the Leases say of the operator that reconciles objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum OperatorPresence {
    /// A process holds the Lease of windlass, so it is alive.
    Held(LeaseHolder),
    /// No process holds one that was held before: which one, in words.
    Vacant(String),
    /// There is none, or one may not be read.
    Unknown,
}

/// What the Leases say of the operator.
pub(in crate::cli) async fn presence(cluster: &Cluster, now: Timestamp) -> OperatorPresence {
    leases(cluster).await.map_or(OperatorPresence::Unknown, |leases| presence_of(&leases, now))
}

/// The same of Leases that were read. Where controllers of Flux hold theirs, nothing is known of windlass.
fn presence_of(leases: &[Object], now: Timestamp) -> OperatorPresence {
    let mut own = leases.iter().filter(|lease| lease.name() == OWN_LEASE);
    match own.find_map(|lease| LeaseHolder::of(lease, now)) {
        Some(held) => OperatorPresence::Held(held),
        None => unheld(leases, now).map_or(OperatorPresence::Unknown, |last| {
            OperatorPresence::Vacant(format!("no operator holds Lease {}", lease_in_words(last)))
        }),
    }
}

/// Which Lease is held no longer; none if an operator holds one, or nothing is known.
pub(in crate::cli) async fn absence(cluster: &Cluster, now: Timestamp) -> Option<String> {
    judged(&leases(cluster).await?, now)
}

/// The Leases of operators that apply objects; none if one of them may not be read.
async fn leases(cluster: &Cluster) -> Option<Vec<Object>> {
    let namespace = std::env::var(NAMESPACE.0).ok().filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or_else(|| NAMESPACE.1.to_owned());
    let resource = lease_resource(cluster).await.ok()??;
    let reads = LEASES.map(|name| cluster.get(&resource, &namespace, name));
    let leases = futures::future::join_all(reads).await;
    // One that may not be read may be held.
    let leases: Vec<Option<Object>> = leases.into_iter().collect::<Result<_, _>>().ok()?;
    Some(leases.into_iter().flatten().collect())
}

/// Warns if no operator holds a Lease that was held before.
pub(in crate::cli) async fn say_absence(cluster: &Cluster) {
    if let Some(text) = absence(cluster, Timestamp::now()).await {
        say(Mark::Warning, &text);
    }
}

/// Which Lease of windlass in a namespace is held no longer; none if one is held, or there is none.
///
/// # Errors
/// The API server refuses to list Leases.
pub(in crate::cli) async fn vacancy(
    cluster: &Cluster,
    namespace: &str,
    now: Timestamp,
) -> Result<Option<String>, ClusterError> {
    let own = own_leases(cluster, namespace).await?;
    Ok(unheld(&own, now).map(|last| {
        format!("no process holds Lease {}, so nothing is reconciled", lease_in_words(last))
    }))
}

/// The Lease that was renewed last, if none is held.
fn unheld(leases: &[Object], now: Timestamp) -> Option<&Object> {
    match leases.iter().any(|lease| holder(lease, now).is_some()) {
        true => None,
        false => leases.iter().max_by_key(|it| renewed(it)),
    }
}

/// A Lease, and since when it is not held.
fn lease_in_words(lease: &Object) -> String {
    let since = renewed(lease).map(|at| format!(" since {at:.0}")).unwrap_or_default();
    format!("{}/{}{since}", lease.namespace(), lease.name())
}

/// The same of Leases that were read.
fn judged(leases: &[Object], now: Timestamp) -> Option<String> {
    let last = unheld(leases, now)?;
    Some(format!(
        "no operator holds Lease {}, so statuses may be old: `windlass check` shows whether windlass runs",
        lease_in_words(last)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, renewed: &str) -> Object {
        Object::new(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "flux-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 35, "renewTime": renewed}}))
        .unwrap()
    }

    #[test]
    fn an_operator_is_missed_only_where_its_leases_are_there_and_nobody_holds_one() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let live = lease("windlass-leader-election", "windlass-1", "2026-11-24T11:59:50.123456Z");
        let old = lease("kustomize-controller-leader-election", "flux-1", "2026-11-24T10:00:00Z");
        let released = lease("windlass-leader-election", "", "2026-11-24T11:59:59Z");
        assert_eq!(judged(&[], now), None);
        assert_eq!(judged(&[old.clone(), live.clone()], now), None);
        let holder = LeaseHolder::of(&live, now).unwrap();
        assert_eq!(presence_of(&[old.clone(), live], now), OperatorPresence::Held(holder));
        let flux = lease("helm-controller-leader-election", "flux-1", "2026-11-24T11:59:50Z");
        assert_eq!(presence_of(&[old.clone(), flux], now), OperatorPresence::Unknown);
        assert_eq!(presence_of(&[], now), OperatorPresence::Unknown);
        let vacant = "no operator holds Lease flux-system/kustomize-controller-leader-election since 2026-11-24T10:00:00Z";
        let vacant = OperatorPresence::Vacant(vacant.to_owned());
        assert_eq!(presence_of(std::slice::from_ref(&old), now), vacant);
        let text = judged(&[old, released], now).unwrap();
        assert!(
            text.starts_with(
                "no operator holds Lease flux-system/windlass-leader-election since 2026-11-24T11:59:59Z"
            ),
            "{text}"
        );
    }
}
