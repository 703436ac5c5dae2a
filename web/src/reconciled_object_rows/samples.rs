//! Objects and rows of tests.

use std::rc::Rc;

use objects::Object;
use serde_json::json;

use super::{ReconciledObjectRow, ReconciledObjectRows};

pub(crate) fn object(name: &str, ready: &str, reason: &str, suspend: bool) -> Object {
    let ready = json!([{"type": "Ready", "status": ready, "reason": reason,
        "message": format!("message of {name}"), "lastTransitionTime": "2026-11-24T11:00:00Z"}]);
    Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": name, "namespace": "apps"}, "spec": {"suspend": suspend},
        "status": {"conditions": ready}}))
    .unwrap()
}

pub(crate) fn board(objects: &[Object]) -> ReconciledObjectRows {
    let now = "2026-11-24T12:00:00Z".parse().unwrap();
    let rows = objects.iter().map(|it| Rc::new(ReconciledObjectRow::of(it, now))).collect();
    ReconciledObjectRows::of(rows, Vec::new(), now)
}
