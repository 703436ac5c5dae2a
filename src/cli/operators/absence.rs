//! Whether an operator acts, as far as its Leases tell: what a status says may be old where none does.
//!
//! Nothing is concluded from a Lease that is absent or may not be read: windlass takes none without leader election, and may
//! have another namespace. Elsewhere: every operator of a cluster ([`super`]), checking an installation (`check.rs`).

use jiff::Timestamp;
use objects::Object;

use super::{OWN_LEASE, holder, lease_resource, renewed};
use crate::cli::connection::{Mark, say};
use windlass_cluster::{Cluster, ClusterError};

/// The namespace where an installation is by default, as the environment of all commands has it.
const NAMESPACE: (&str, &str) = ("FLUX_SYSTEM_NAMESPACE", "flux-system");

/// Leases of which an operator that applies objects holds one: windlass, or the controllers of Flux.
const LEASES: [&str; 3] =
    [OWN_LEASE, "kustomize-controller-leader-election", "helm-controller-leader-election"];

/// Which Lease is held no longer; none if an operator holds one, or nothing is known.
pub(in crate::cli) async fn absence(cluster: &Cluster, now: Timestamp) -> Option<String> {
    let namespace = std::env::var(NAMESPACE.0).ok().filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or_else(|| NAMESPACE.1.to_owned());
    let resource = lease_resource(cluster).await.ok()??;
    let reads = LEASES.map(|name| cluster.get(&resource, &namespace, name));
    let leases = futures::future::join_all(reads).await;
    // One that may not be read may be held.
    let leases: Vec<Option<Object>> = leases.into_iter().collect::<Result<_, _>>().ok()?;
    judged(&leases.into_iter().flatten().collect::<Vec<Object>>(), now)
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
    let Some(resource) = lease_resource(cluster).await? else { return Ok(None) };
    let mut own = Vec::new();
    let mut from = None;
    loop {
        let part = cluster.list_part(&resource, namespace, ("", ""), from.as_deref()).await?;
        own.extend(part.objects.into_iter().filter(|it| it.name().starts_with(OWN_LEASE)));
        match part.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    Ok(unheld(&own, now)
        .map(|last| format!("no process holds Lease {}, so nothing is reconciled", told(last))))
}

/// The Lease that was renewed last, if none is held.
fn unheld(leases: &[Object], now: Timestamp) -> Option<&Object> {
    match leases.iter().any(|lease| holder(lease, now).is_some()) {
        true => None,
        false => leases.iter().max_by_key(|it| renewed(it)),
    }
}

/// A Lease, and since when it is not held.
fn told(lease: &Object) -> String {
    let since = renewed(lease).map(|at| format!(" since {at:.0}")).unwrap_or_default();
    format!("{}/{}{since}", lease.namespace(), lease.name())
}

/// The same of Leases that were read.
fn judged(leases: &[Object], now: Timestamp) -> Option<String> {
    let last = unheld(leases, now)?;
    Some(format!(
        "no operator holds Lease {}, so statuses may be old: `windlass check` shows whether windlass runs",
        told(last)
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
        assert_eq!(judged(&[old.clone(), live], now), None);
        let text = judged(&[old, released], now).unwrap();
        assert!(
            text.starts_with(
                "no operator holds Lease flux-system/windlass-leader-election since 2026-11-24T11:59:59Z"
            ),
            "{text}"
        );
    }
}
