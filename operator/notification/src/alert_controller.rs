//! The kind Alert: it says which events go to a Provider. A run only ends an expired suspension and removes the finalizer of
//! Flux. The dispatcher reads Alerts when it dispatches an event.

use std::sync::Arc;
use std::time::Duration;

use crds::notification::Alert;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::provider_controller::tend;
use windlass_runtime::controller_kind::ControllerKind;
use windlass_runtime::run_context::RunContext;

/// The controller that runs Alerts.
pub struct AlertController;

impl ControllerKind for AlertController {
    type Object = Alert;
    type ControllerState = ();

    fn announcement(_object: &Alert) -> String {
        String::new()
    }

    fn run(object: Arc<Alert>, context: Arc<RunContext>) -> BoxFuture<'static, Option<Duration>> {
        async move { tend(&object, &context).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;

    #[test]
    fn every_field_of_the_schema_is_used() {
        // All by the engine `notify`, when an event is dispatched.
        let used = [
            "eventMetadata",
            "eventSeverity",
            "eventSources",
            "exclusionList",
            "inclusionList",
            "providerRef",
            "summary",
            "suspend",
        ];
        spec_field_check::knows_every_field("Alert", used);
    }
}
