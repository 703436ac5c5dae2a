//! Wakes objects whose requests were forbidden (403) when RBAC roles or bindings change.
//!
//! Differs(flux): there they are retried at the retry interval only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use objects::Gvk;
use reconcile::ObjectKey;

use super::ClusterConnection;
use super::discovery::ApiResourceLocation;
use super::watch::{WatchSelection, WatcherEvent};
use super::work_queue::WorkQueue;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The RBAC kinds: kind, plural, and whether the kind is namespaced.
const KINDS: [(&str, &str, bool); 4] = [
    ("Role", "roles", true),
    ("RoleBinding", "rolebindings", true),
    ("ClusterRole", "clusterroles", false),
    ("ClusterRoleBinding", "clusterrolebindings", false),
];

/// How long changes are collected before they wake objects, because a role usually comes with its binding.
const CHANGE_DEBOUNCE_DELAY: Duration = Duration::from_secs(5);

/// The longest pause between two wakes. A tenant who keeps changing roles must not cause constant applies of forbidden
/// objects. So each change that follows soon waits twice as long as the last one.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The dependency graph node that stands for the RBAC objects of a namespace. An empty namespace means the cluster-wide ones.
/// Objects wait for it while their requests are forbidden. `place` names the target cluster.
pub fn rights(place: &str, namespace: &str) -> ObjectKey {
    let name = if place.is_empty() { "*" } else { place };
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    ObjectKey::new(GROUP, kind, namespace, name)
}

/// Watches the roles and bindings of a cluster. The first list also wakes forbidden objects, because it may contain the rights
/// that they lacked.
pub async fn follow_rights(cluster: ClusterConnection, work_queue: Arc<WorkQueue>, place: String) {
    let watches = KINDS.map(|(kind, plural, namespaced)| {
        let gvk = Gvk::new(&format!("{GROUP}/v1"), kind);
        let resource =
            ApiResourceLocation { gvk, plural: plural.to_owned(), namespaced, watchable: true };
        let events = cluster.watch_metadata(&resource, &WatchSelection::All);
        Box::pin(events.filter_map(|event| {
            let namespace = match event {
                Ok(WatcherEvent::Applied(it) | WatcherEvent::Deleted(it)) => Some(it.namespace),
                // Roles in any namespace may have changed since the last list.
                Ok(WatcherEvent::ListEnded) => Some(String::new()),
                Ok(_) | Err(_) => None,
            };
            std::future::ready(namespace)
        }))
    });
    let mut changes = stream::select_all(watches);
    let mut pending = PendingRbacChanges::default();
    loop {
        let due = pending.next().map(tokio::time::Instant::from_std);
        let wait = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.next() => match changed {
                Some(namespace) => pending.add(namespace, Instant::now()),
                None => return,
            },
            () = wait => for namespace in pending.take(Instant::now()) {
                work_queue.changed(&rights(&place, &namespace));
            },
        }
    }
}

/// The namespaces whose rights changed, and when the change will wake objects.
#[derive(Default)]
struct PendingRbacChanges(BTreeMap<String, RbacChange>);

struct RbacChange {
    /// When this change will wake objects. `None` if it already did.
    due: Option<Instant>,
    /// When the last change woke objects.
    reported_at: Option<Instant>,
    /// The least time between that wake and the next one.
    pause: Duration,
}

impl PendingRbacChanges {
    fn add(&mut self, namespace: String, now: Instant) {
        let is_over = |it: &RbacChange| {
            it.due.is_none()
                && it.reported_at.is_none_or(|reported_at| now >= reported_at + it.pause * 2)
        };
        self.0.retain(|_, it| !is_over(it));
        let new = RbacChange { due: None, reported_at: None, pause: CHANGE_DEBOUNCE_DELAY };
        let change = self.0.entry(namespace).or_insert(new);
        if change.due.is_some() {
            return;
        }
        let mut due = now + CHANGE_DEBOUNCE_DELAY;
        if let Some(reported_at) = change.reported_at {
            change.pause = (change.pause * 2).min(LONGEST_PAUSE);
            due = due.max(reported_at + change.pause);
        }
        change.due = Some(due);
    }

    /// When the next change is due.
    fn next(&self) -> Option<Instant> {
        self.0.values().filter_map(|it| it.due).min()
    }

    /// The namespaces whose changes are due now.
    fn take(&mut self, now: Instant) -> Vec<String> {
        let due = self.0.iter_mut().filter(|(_, it)| it.due.is_some_and(|due| due <= now));
        let namespaces = due.map(|(namespace, it)| {
            (it.due, it.reported_at) = (None, Some(now));
            namespace.clone()
        });
        namespaces.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which changes wake objects, if one change comes each second in a namespace.
    fn reports_within(
        namespace: &str,
        pending: &mut PendingRbacChanges,
        begin: Instant,
        seconds: u64,
    ) -> Vec<u64> {
        let mut seconds_reported = Vec::new();
        for second in 0..seconds {
            let now = begin + Duration::from_secs(second);
            pending.add(namespace.to_owned(), now);
            seconds_reported
                .extend(pending.take(now).iter().filter(|it| *it == namespace).map(|_| second));
        }
        seconds_reported
    }

    #[test]
    fn who_keeps_changing_roles_is_listened_to_less_and_less_often() {
        let mut pending = PendingRbacChanges::default();
        let begin = Instant::now();
        let often = reports_within("shop", &mut pending, begin, 3600);
        assert_eq!(often[..4], [5, 15, 35, 75]);
        assert!(often.len() < 20, "{often:?}");
        // The long pause does not affect other namespaces, and ends some time after the last change.
        let now = begin + Duration::from_secs(3600);
        pending.add("other".to_owned(), now);
        assert_eq!(pending.take(now + CHANGE_DEBOUNCE_DELAY), ["other"]);
        let later = now + LONGEST_PAUSE * 3;
        pending.take(later);
        let again = later + LONGEST_PAUSE * 3;
        pending.add("shop".to_owned(), again);
        assert_eq!(pending.next(), Some(again + CHANGE_DEBOUNCE_DELAY));
    }

    #[test]
    fn rights_of_clusters_and_namespaces_are_apart() {
        let all = [rights("", ""), rights("", "shop"), rights("far", ""), rights("far", "shop")];
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }
}
