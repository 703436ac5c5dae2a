//! Requests the reconciliation of an object.
//!
//! Elsewhere: waiting for its end (`windlass-cli`).

use cause::object_references;
use helm_controller::helm_release::{FORCE_AT, RESET_AT};
use objects::Object;
use serde_json::{Map, json};

use super::ObjectToChange;
use crate::object_row::ObjectRow;
use windlass_cli_runtime::table::clean;
use windlass_cluster::ClusterError;
use windlass_runtime::controller_kind::REQUESTED_AT;

/// The options of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReconciliationRequest<'r> {
    /// The user's reason.
    pub reason: Option<&'r str>,
    /// Whether a HelmRelease is upgraded even if nothing has changed.
    pub is_forced: bool,
    /// Whether the failure counts of a HelmRelease are reset.
    pub is_reset: bool,
}

/// A request that was sent.
#[derive(Debug)]
pub struct RequestedReconciliation {
    /// The object, after the request was written to it.
    pub object: Object,
    /// The token that the status of the object contains after the request was handled.
    pub token: String,
}

impl ReconciliationRequest<'_> {
    /// Requests a reconciliation.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn make(
        &self,
        of: &ObjectToChange<'_>,
    ) -> Result<RequestedReconciliation, ClusterError> {
        let token = jiff::Timestamp::now().to_string();
        let mut annotations = Map::new();
        annotations.insert(REQUESTED_AT.to_owned(), token.clone().into());
        annotations.insert(::reconcile::REQUESTED_REASON.to_owned(), self.reason.into());
        let is_release = of.object.kind() == "HelmRelease";
        let wanted = [(FORCE_AT, self.is_forced), (RESET_AT, self.is_reset)];
        for (key, _) in wanted.iter().filter(|it| it.1 && is_release) {
            annotations.insert((*key).to_owned(), token.clone().into());
        }
        let patch = json!({"metadata": {"annotations": annotations}});
        let object = of.change(&patch).await?;
        Ok(RequestedReconciliation { object, token })
    }
}

/// Explains why windlass does not reconcile an object. Returns `None` if it does.
#[must_use]
pub fn no_run(object: &Object) -> Option<String> {
    let subject = object.id().subject();
    let why = match object.kind() {
        _ if ObjectRow::of(object, jiff::Timestamp::now()).is_suspended() => {
            "is suspended and was not reconciled; `windlass resume` ends that"
        }
        _ if !object_references::has_no_runs(object) => return None,
        "ExternalArtifact" => "is updated by another controller and was not reconciled",
        "HelmRepository" => "is of type oci: it has no status and nothing to reconcile",
        "Incident" | "LifecycleEvent" | "Plan" => {
            "is written by windlass and has nothing to reconcile"
        }
        _ => "has no status and nothing to reconcile",
    };
    Some(clean(&format!("{subject} {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_runs_is_not_waited_for() {
        let of = |kind: &str, spec: serde_json::Value| {
            let value = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
                "metadata": {"name": "a", "namespace": "b"}, "spec": spec});
            no_run(&Object::new(value).unwrap())
        };
        for (kind, spec, text) in [
            ("ExternalArtifact", json!({}), "another controller"),
            ("Alert", json!({}), "has no status"),
            ("Provider", json!({}), "has no status"),
            ("HelmRepository", json!({"type": "oci"}), "type oci"),
            ("GitRepository", json!({"suspend": true}), "is suspended"),
        ] {
            let why = of(kind, spec).unwrap();
            assert!(why.starts_with(&format!("{kind}/b/a ")) && why.contains(text), "{why}");
        }
        assert_eq!(of("GitRepository", json!({})), None);
        assert_eq!(of("HelmRepository", json!({})), None);
        let event = json!({"apiVersion": "lifecycle.windlass.dev/v1alpha1", "kind": "LifecycleEvent",
            "metadata": {"name": "a", "namespace": "b"}});
        let why = no_run(&Object::new(event).unwrap());
        assert!(why.is_some_and(|it| it.contains("written by windlass")));
    }
}
