//! Objects and rows of tests.

use std::rc::Rc;

use objects::Object;
use serde_json::json;

use super::{BoardRow, ObjectBoard};

pub(crate) fn object(name: &str, ready: &str, reason: &str, suspend: bool) -> Object {
    let ready = json!([{"type": "Ready", "status": ready, "reason": reason,
        "message": format!("message of {name}"), "lastTransitionTime": "2026-11-24T11:00:00Z"}]);
    Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": name, "namespace": "apps"}, "spec": {"suspend": suspend},
        "status": {"conditions": ready}}))
    .unwrap()
}

pub(crate) fn board(objects: &[Object]) -> ObjectBoard {
    let now = "2026-11-24T12:00:00Z".parse().unwrap();
    let rows = objects.iter().map(|it| Rc::new(BoardRow::of(it, now))).collect();
    ObjectBoard::of(rows, Vec::new(), now)
}
