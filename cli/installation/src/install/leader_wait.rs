//! Waits until a Pod of an installation is the leader. The Pod has to renew the Lease of windlass, and no Flux controller may
//! hold its own Lease.
//!
//! Ready Pods are not enough, because a standby is ready, too.
//! Elsewhere: whether objects are ready ([`super`]), whether the holder of a Lease is alive
//! (`cluster_operators/lease_renewal.rs`), the order in which a process takes Leases (`windlass_cluster::election`).

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use objects::Object;
use tokio::time::Instant;

use super::POLL_INTERVAL;
use super::manifests::workloads;
use crate::check::{OURS, is_elected, selector};
use crate::cluster_operators::{self, LeaseHolder, LeaseRenewals, replicas};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_serve::settings::lease_name;

/// What the Leases say about an installation.
#[derive(Debug, PartialEq, Eq)]
enum InstallationLeaderState {
    /// This Pod is the leader.
    Held(LeaseHolder),
    /// There is no leader yet. Contains what the command waits for.
    Awaited(String),
}

/// The Leases that the processes of workloads use for leader election.
pub(super) fn leases_of(objects: &[Object]) -> Vec<String> {
    let elected = workloads(objects).filter(|it| replicas(it) > 0 && is_elected(it));
    elected.map(|it| lease_name(selector(it))).collect()
}

/// Checks that no process outside of the cluster holds the Lease, because the Pods of the installation would have to wait for
/// it.
///
/// # Errors
/// Such a process exists, and the error says when its Lease expires. Or the API server refuses to list Leases or Pods.
pub(crate) async fn permit_leases(
    cluster: &ClusterConnection,
    namespace: &str,
    objects: &[Object],
) -> anyhow::Result<()> {
    let outside = cluster_operators::outside(cluster, namespace, Timestamp::now()).await;
    let outside = outside.context("cannot tell which processes hold the Leases of windlass")?;
    let wanted = leases_of(objects);
    let is_wanted =
        |it: &&LeaseHolder| wanted.iter().any(|lease| it.lease == format!("{namespace}/{lease}"));
    if let Some(holder) = outside.iter().find(is_wanted) {
        bail!(
            "{holder} ({}), and is none of the Pods of windlass, which would wait for it: stop that process, or wait until then \
             if it was killed; nothing was changed",
            holder.term()
        );
    }
    Ok(())
}

/// Waits until a Pod of windlass is the leader for each of these Leases.
///
/// # Errors
/// No Pod becomes the leader in time, with the reason. Or the API server refuses to list Leases or Pods.
pub(super) async fn await_leader(
    cluster: &ClusterConnection,
    namespace: &str,
    leases: &[String],
    deadline: Instant,
) -> anyhow::Result<()> {
    let mut renewals = LeaseRenewals::default();
    let mut said = String::new();
    for lease in leases {
        loop {
            let leadership = leadership(cluster, namespace, lease, &mut renewals).await;
            let text = match leadership.context("cannot tell whether windlass acts")? {
                InstallationLeaderState::Held(holder) => {
                    say(
                        ProgressGlyph::Success,
                        &format!("windlass acts: {holder} ({})", holder.term()),
                    );
                    break;
                }
                InstallationLeaderState::Awaited(text) => text,
            };
            if Instant::now() >= deadline {
                bail!(
                    "windlass does not act in time: {text}; `kubectl -n {namespace} logs -l {OURS}` and `windlass check \
                     -n {namespace}` show more"
                );
            }
            if said != text {
                say(ProgressGlyph::Waiting, &text);
                said = text;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Reads the current state of the Leases in a namespace.
async fn leadership(
    cluster: &ClusterConnection,
    namespace: &str,
    name: &str,
    renewals: &mut LeaseRenewals,
) -> Result<InstallationLeaderState, ClusterError> {
    let now = Timestamp::now();
    let leases = cluster_operators::leases(cluster, namespace).await?;
    let Some(lease) = leases.iter().find(|it| it.name() == name) else {
        let text = format!("no process has acquired Lease {namespace}/{name} yet");
        return Ok(InstallationLeaderState::Awaited(text));
    };
    let Some(holder) = LeaseHolder::of(lease, now) else {
        return Ok(InstallationLeaderState::Awaited(format!(
            "no process holds Lease {namespace}/{name}"
        )));
    };
    let pods = cluster_operators::pods(cluster, namespace).await?;
    let is_holder =
        |pod: &Object| pod.name() == holder.identity && pod.meta("deletionTimestamp").is_none();
    if !pods.iter().any(is_holder) {
        return Ok(InstallationLeaderState::Awaited(format!(
            "{holder}, and is none of the Pods of windlass that stay: they wait until that process ends"
        )));
    }
    if !renewals.is_seen(lease, now) {
        return Ok(InstallationLeaderState::Awaited(format!(
            "{holder}, and has not renewed it yet"
        )));
    }
    // If a selector divides the objects, windlass and Flux may share the cluster.
    let of_flux =
        leases.iter().filter(|it| cluster_operators::is_of_flux(it) && name == lease_name(""));
    let other =
        of_flux.filter_map(|it| LeaseHolder::of(it, now)).find(|it| it.identity != holder.identity);
    Ok(match other {
        Some(other) => InstallationLeaderState::Awaited(format!(
            "{other}, and windlass waits until it is free"
        )),
        None => InstallationLeaderState::Held(holder),
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::operator_objects::{self, pod};
    use fake_cluster::with_objects;

    const OWN: &str = "windlass-leader-election";

    fn lease(name: &str, holder: &str, seconds_ago: i64) -> Value {
        let renewed = Timestamp::now() - SignedDuration::from_secs(seconds_ago);
        operator_objects::lease(name, holder, &renewed.to_string())
    }

    /// The message when the time is over.
    async fn awaited(objects: Vec<Value>) -> String {
        let (cluster, _) = with_objects(objects).await;
        let leases = [OWN.to_owned()];
        let ended = await_leader(&cluster, "flux-system", &leases, Instant::now()).await;
        ended.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[tokio::test]
    async fn an_installation_acts_when_one_of_its_pods_renews_the_lease_and_no_one_holds_those_of_flux()
     {
        let flux = |holder: &str| lease("helm-controller-leader-election", holder, 1);
        let text = awaited(vec![pod("new")]).await;
        assert!(text.contains("no process has acquired Lease flux-system/windlass-"), "{text}");
        assert!(text.starts_with("windlass does not act in time: "), "{text}");
        let text = awaited(vec![pod("new"), lease(OWN, "new", 60)]).await;
        assert!(text.contains("no process holds Lease flux-system/windlass-"), "{text}");
        let text = awaited(vec![pod("new"), lease(OWN, "laptop", 1)]).await;
        assert!(text.contains("'laptop' holds Lease") && text.contains("none of the Pods"));
        // The process has ended, and the next one in the same Pod has not begun.
        let text = awaited(vec![pod("new"), lease(OWN, "new", 12)]).await;
        assert!(text.contains("has not renewed it yet"), "{text}");
        let text = awaited(vec![pod("new"), lease(OWN, "new", 1), flux("flux-1")]).await;
        assert!(text.contains("'flux-1' holds Lease flux-system/helm-controller-"), "{text}");
        let mut ending = pod("new");
        ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let text = awaited(vec![ending, lease(OWN, "new", 1)]).await;
        assert!(text.contains("none of the Pods"), "{text}");
        assert_eq!(awaited(vec![pod("new"), lease(OWN, "new", 1), flux("new")]).await, "");
        assert_eq!(awaited(vec![pod("new"), lease(OWN, "new", 1)]).await, "");
    }

    fn workload(replicas: i64, flags: &[&str]) -> Object {
        let container = json!({"name": "manager", "args": flags});
        Object::new(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}}}),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn an_installation_is_refused_while_a_process_outside_of_the_cluster_holds_its_lease() {
        let refusal = async |objects: Vec<Value>, flags: &[&str]| {
            let (cluster, writes) = with_objects(objects).await;
            let permitted = permit_leases(&cluster, "flux-system", &[workload(1, flags)]).await;
            assert!(writes.lock().is_empty());
            permitted.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let elected = ["serve", "--enable-leader-election"];
        let text = refusal(vec![lease(OWN, "laptop", 3)], &elected).await;
        assert!(text.starts_with("'laptop' holds Lease flux-system/windlass-"), "{text}");
        assert!(text.contains(" (renewed at ") && text.contains(", counts until "), "{text}");
        assert!(text.ends_with("nothing was changed"), "{text}");
        assert_eq!(refusal(vec![lease(OWN, "laptop", 60)], &elected).await, "", "it ran out");
        let of_pod = vec![lease(OWN, "laptop", 3), pod("laptop")];
        assert_eq!(refusal(of_pod, &elected).await, "");
        let shard = lease("windlass-leader-election-73fdc1be", "laptop", 3);
        assert_eq!(refusal(vec![shard], &elected).await, "", "it has other objects");
        assert_eq!(refusal(vec![lease(OWN, "laptop", 3)], &["serve"]).await, "");
    }

    #[test]
    fn workloads_without_an_election_are_not_waited_for() {
        let selector = "--watch-label-selector=sharding.fluxcd.io/key=shard1";
        let objects = [
            workload(1, &["serve", "--enable-leader-election"]),
            workload(0, &["serve", "--enable-leader-election"]),
            workload(1, &["serve"]),
            workload(1, &["serve", "--enable-leader-election", selector]),
        ];
        let expected = ["windlass-leader-election", "windlass-leader-election-73fdc1be"];
        assert_eq!(leases_of(&objects), expected);
    }
}
