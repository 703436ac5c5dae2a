//! Wakes objects whose requests were forbidden (403) when roles or bindings change.
//!
//! Differs(flux): there they are retried at the retry interval only.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use objects::Gvk;
use reconcile::Node;

use super::hub::Hub;
use crate::cluster::Cluster;
use crate::cluster::discovery::Resource;
use crate::cluster::watch::{Seen, Selection};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Kind, plural, and whether its objects live in namespaces.
const KINDS: [(&str, &str, bool); 4] = [
    ("Role", "roles", true),
    ("RoleBinding", "rolebindings", true),
    ("ClusterRole", "clusterroles", false),
    ("ClusterRoleBinding", "clusterrolebindings", false),
];

/// For how long changes are gathered: a role comes with its binding, and a tenant who keeps changing roles must not have
/// rejected objects of all namespaces applied again without rest.
const TOGETHER: Duration = Duration::from_secs(5);

/// The node that stands for all RBAC objects: forbidden objects wait for it.
pub(crate) fn rights() -> Node {
    Node::new(GROUP, "ClusterRole", "", "*")
}

/// Follows roles and bindings. Forbidden objects are retried after the first list, too: it may have what they lacked.
pub(crate) async fn follow_rights(cluster: Cluster, hub: Arc<Hub>) {
    let watches = KINDS.map(|(kind, plural, namespaced)| {
        let gvk = Gvk::new(&format!("{GROUP}/v1"), kind);
        let resource = Resource { gvk, plural: plural.to_owned(), namespaced, watchable: true };
        let events = cluster.watch_metadata(&resource, &Selection::All);
        Box::pin(events.filter_map(|event| {
            let is_change =
                matches!(event, Ok(Seen::Applied(_) | Seen::Deleted(_) | Seen::ListEnded));
            std::future::ready(is_change.then_some(()))
        }))
    });
    let mut changes = stream::select_all(watches);
    while changes.next().await.is_some() {
        tokio::time::sleep(TOGETHER).await;
        while changes.next().now_or_never().flatten().is_some() {}
        hub.changed(&rights());
    }
}
