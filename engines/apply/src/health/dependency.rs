//! Health of objects that others need: Service, PersistentVolumeClaim, CustomResourceDefinition.

use objects::Object;

use super::Report;
use super::field::{HealthError, conditions, string};

/// Parity(kstatus): a load balancer's address is not waited for, only the cluster IP is.
pub(super) fn service(object: &Object) -> Report {
    let balanced = string(object, &["spec", "type"], "ClusterIP") == "LoadBalancer";
    if balanced && string(object, &["spec", "clusterIP"], "").is_empty() {
        Report::in_progress("NoIPAssigned", "ClusterIP not set. Service type: LoadBalancer")
    } else {
        Report::current("Service is ready")
    }
}

/// A claim is Current when it is bound.
pub(super) fn volume_claim(object: &Object) -> Report {
    match string(object, &["status", "phase"], "unknown") {
        "Bound" => Report::current("PVC is Bound"),
        phase => Report::in_progress("NotBound", format!("PVC is not Bound. phase: {phase}")),
    }
}

/// A CRD is Current when its API is served.
pub(super) fn crd(object: &Object) -> Result<Report, HealthError> {
    for c in conditions(object)? {
        match (c.kind, c.status) {
            ("NamesAccepted", "False") => return Ok(Report::failed(c.reason, c.message)),
            ("Established", "False") if c.reason != "Installing" => {
                return Ok(Report::failed(c.reason, c.message));
            }
            ("Established", "True") => return Ok(Report::current("CRD is established")),
            _ => {}
        }
    }
    Ok(Report::in_progress("Installing", "Install in progress"))
}
