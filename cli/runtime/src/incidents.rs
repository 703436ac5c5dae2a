//! Reads the open Incidents of a cluster.
//!
//! Elsewhere: opening and closing Incidents (`notification_controller::incident`).

use crds::windlass_notification::{Incident, IncidentState};
use kube_core::Resource as _;
use objects::{Gvk, Object};
use serde_json::Value;

use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// Lists the open Incidents about objects of a kind, in a namespace or in all namespaces (`""`).
///
/// # Errors
/// The cluster does not serve Incidents, or refuses to list them.
pub async fn open_incidents(
    cluster: &ClusterConnection,
    namespace: &str,
    kind: &str,
) -> Result<Vec<Object>, ClusterError> {
    let gvk = Gvk::new(&Incident::api_version(&()), &Incident::kind(&()));
    let resource = cluster.resource(&gvk).await?;
    let is_it = |incident: &Object| {
        let part = |name: &str| incident.get(name).unwrap_or(&Value::Null);
        let is_open = part("status")["state"] == IncidentState::Open.as_str();
        is_open && part("spec")["subject"]["kind"] == kind
    };
    let mut found = Vec::new();
    let mut pages = cluster.object_pages(ObjectQuery { namespace, ..ObjectQuery::all(&resource) });
    while let Some(page) = pages.next().await? {
        found.extend(page.objects.into_iter().filter(is_it));
    }
    Ok(found)
}
