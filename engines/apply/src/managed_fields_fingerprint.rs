//! A short hash of an object's metadata that changes when another client changes the applied fields.
//!
//! Here: the fingerprint of an object's metadata. Elsewhere: comparing whole objects ([`crate::drift_comparison`]),
//! watching (the program).

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Hashes the metadata that changes when another client changes the object: its uid, its ownership labels, and the
/// `managedFields` entries of `managers` without their time.
///
/// `metadata` is the object's metadata, as a metadata-only watch delivers it.
///
/// # Guarantees
/// The hash stays the same when the status, the entries of other managers, or the order of entries changes. It changes
/// when another manager takes a field, when a label is removed, and when the object is recreated. It is the same in
/// every process.
///
/// # Assumes
/// A change under windlass' own manager name does not change the hash. Comparing the values finds such a change.
pub fn fingerprint(metadata: &Value, managers: &[&str], labels: &[&str]) -> u64 {
    let mut ours: Vec<String> = Vec::new();
    for entry in metadata.get("managedFields").and_then(Value::as_array).into_iter().flatten() {
        let manager = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
        if let (true, Value::Object(fields)) = (managers.contains(&manager), entry) {
            let mut fields = fields.clone();
            fields.remove("time");
            ours.push(Value::Object(fields).to_string());
        }
    }
    ours.sort_unstable();
    let labels: Vec<_> =
        labels.iter().map(|l| metadata.get("labels").and_then(|m| m.get(l))).collect();
    let text = json!([metadata.get("uid"), labels, ours]).to_string();
    let hash: [u8; 32] = Sha256::digest(text).into();
    hash.iter().take(8).fold(0, |all, byte| (all << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &[&str] = &["kustomize-controller"];
    const LABELS: &[&str] = &["kustomize.toolkit.fluxcd.io/name"];

    fn metadata() -> Value {
        json!({"uid": "u1", "resourceVersion": "5", "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"},
            "managedFields": [
                {"manager": "kustomize-controller", "operation": "Apply", "apiVersion": "v1",
                 "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}}}},
                {"manager": "other", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                 "fieldsV1": {"f:data": {"f:b": {}}}}]})
    }

    fn changed(path: &str, value: Value) -> bool {
        let mut moved = metadata();
        *moved.pointer_mut(path).unwrap() = value;
        fingerprint(&moved, OURS, LABELS) != fingerprint(&metadata(), OURS, LABELS)
    }

    #[test]
    fn time_and_other_managers_do_not_move_it() {
        assert!(!changed("/managedFields/0/time", json!("2027-01-01T00:00:00Z")));
        assert!(!changed("/managedFields/1/fieldsV1", json!({"f:data": {"f:c": {}}})));
        assert!(!changed("/resourceVersion", json!("6")));
        let mut reversed = metadata();
        reversed["managedFields"].as_array_mut().unwrap().reverse();
        assert_eq!(fingerprint(&reversed, OURS, LABELS), fingerprint(&metadata(), OURS, LABELS));
    }

    #[test]
    fn what_is_ours_moves_it() {
        assert!(changed("/managedFields/0/fieldsV1", json!({"f:data": {}})));
        assert!(changed("/managedFields/0/manager", json!("kubectl")));
        assert!(changed("/uid", json!("u2")));
        assert!(changed("/labels", json!({})));
    }

    #[test]
    fn it_is_the_same_in_every_process() {
        // Computed once by hand, with another tool.
        assert_eq!(fingerprint(&metadata(), OURS, LABELS), 17_022_359_531_511_839_039);
    }
}
