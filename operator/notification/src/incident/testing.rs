//! The status of an Incident, for tests of reports about it.

use crds::windlass_notification::IncidentStatus;
use reconcile::Time;
use serde_json::json;

/// A time as RFC 3339 has it.
pub(super) fn at(text: &str) -> Time {
    text.parse().unwrap()
}

/// An open Incident that affects two hundred objects and lists twenty of them.
pub(super) fn status() -> IncidentStatus {
    let objects: Vec<String> = (0..20).map(|at| format!("Kustomization/apps/k{at}")).collect();
    serde_json::from_value(json!({"state": "Open", "openedAt": "2026-11-24T12:00:00Z",
        "message": "authentication failed", "affected": {"count": 200, "objects": objects}}))
    .unwrap()
}
