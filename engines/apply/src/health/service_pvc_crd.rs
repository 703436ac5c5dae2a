//! Health of objects that other objects need: Service, PersistentVolumeClaim, CustomResourceDefinition.

use objects::Object;

use super::HealthReport;
use super::status_fields::{HealthError, conditions, string};

/// Parity(kstatus): a load balancer's address is not waited for, only the cluster IP is.
pub(super) fn service(object: &Object) -> HealthReport {
    let balanced = string(object, &["spec", "type"], "ClusterIP") == "LoadBalancer";
    if balanced && string(object, &["spec", "clusterIP"], "").is_empty() {
        HealthReport::in_progress("NoIPAssigned", "ClusterIP not set. Service type: LoadBalancer")
    } else {
        HealthReport::current("Service is ready")
    }
}

/// A claim is Current when it is bound.
pub(super) fn volume_claim(object: &Object) -> HealthReport {
    match string(object, &["status", "phase"], "unknown") {
        "Bound" => HealthReport::current("PVC is Bound"),
        phase => HealthReport::in_progress("NotBound", format!("PVC is not Bound. phase: {phase}")),
    }
}

/// A CRD is Current when its API is served.
pub(super) fn crd(object: &Object) -> Result<HealthReport, HealthError> {
    for c in conditions(object)? {
        match (c.kind, c.status) {
            ("NamesAccepted", "False") => return Ok(HealthReport::failed(c.reason, c.message)),
            ("Established", "False") if c.reason != "Installing" => {
                return Ok(HealthReport::failed(c.reason, c.message));
            }
            ("Established", "True") => return Ok(HealthReport::current("CRD is established")),
            _ => {}
        }
    }
    Ok(HealthReport::in_progress("Installing", "Install in progress"))
}
