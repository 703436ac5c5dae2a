//! Health of objects that other objects need: Service, PersistentVolumeClaim, CustomResourceDefinition.

use objects::Object;

use super::ObjectHealth;
use super::status_fields::{MalformedStatusError, conditions, string};

/// Parity(kstatus): a load balancer's address is not waited for, only the cluster IP is.
pub(super) fn service(object: &Object) -> ObjectHealth {
    let balanced = string(object, &["spec", "type"], "ClusterIP") == "LoadBalancer";
    if balanced && string(object, &["spec", "clusterIP"], "").is_empty() {
        ObjectHealth::in_progress("NoIPAssigned", "ClusterIP not set. Service type: LoadBalancer")
    } else {
        ObjectHealth::current("Service is ready")
    }
}

/// A claim is Current when it is bound.
pub(super) fn volume_claim(object: &Object) -> ObjectHealth {
    match string(object, &["status", "phase"], "unknown") {
        "Bound" => ObjectHealth::current("PVC is Bound"),
        phase => ObjectHealth::in_progress("NotBound", format!("PVC is not Bound. phase: {phase}")),
    }
}

/// A CRD is Current when its API is served.
pub(super) fn crd(object: &Object) -> Result<ObjectHealth, MalformedStatusError> {
    for c in conditions(object)? {
        match (c.kind, c.status) {
            ("NamesAccepted", "False") => return Ok(ObjectHealth::failed(c.reason, c.message)),
            ("Established", "False") if c.reason != "Installing" => {
                return Ok(ObjectHealth::failed(c.reason, c.message));
            }
            ("Established", "True") => return Ok(ObjectHealth::current("CRD is established")),
            _ => {}
        }
    }
    Ok(ObjectHealth::in_progress("Installing", "Install in progress"))
}
