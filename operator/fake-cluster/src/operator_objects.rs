//! Leases and Pods of operators, for tests of commands that report on them.

use serde_json::{Value, json};

/// A Lease in the namespace `flux-system` that expires 35 s after its renewal.
pub fn lease(name: &str, holder: &str, renewed: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "flux-system", "name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 35, "renewTime": renewed}})
}

/// A Pod of windlass in the namespace `flux-system`.
pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "flux-system", "name": name,
        "labels": {"app.kubernetes.io/name": "windlass"}}})
}
