//! Objects and rows of tests.

use objects::Object;
use serde_json::json;

use super::{BoardRow, ObjectBoard, key};

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
    let mut rows: Vec<BoardRow> = objects.iter().map(|it| BoardRow::of(it, now)).collect();
    rows.sort_by(|one, other| key(one).cmp(&key(other)));
    ObjectBoard { rows, left_out: Vec::new(), read_at: now }
}
