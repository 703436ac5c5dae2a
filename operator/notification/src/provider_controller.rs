//! The kind Provider: a service to which events are sent. A Provider has no work of its own. When it changes, its waiting
//! notifications are tried again.

use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use crds::notification::Provider;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::ResourceExt as _;

use super::delivery::ProviderQueues;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::controller_kind::ControllerKind;
use windlass_runtime::object_hold;
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::run_context::RunContext;

/// The controller that runs Providers.
pub struct ProviderController;

impl ControllerKind for ProviderController {
    type Object = Provider;
    type ControllerState = ();

    fn unsupported(object: &Provider) -> Vec<&'static str> {
        if object.spec.service_account_name.is_some() {
            vec!["spec.serviceAccountName"]
        } else {
            Vec::new()
        }
    }

    fn announcement(object: &Provider) -> String {
        // Those whose pull requests are at its forge run once more after a change of its spec.
        object.metadata.generation.unwrap_or_default().to_string()
    }

    fn run(
        object: Arc<Provider>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        async move {
            let namespace = object.namespace().unwrap_or_default();
            let name = object.name_any();
            context.shared::<ProviderQueues>().ring(&namespace, &name);
            tend(&object, &context).await
        }
        .boxed()
    }
}

/// The delay before a rejected write is tried again.
const REJECTED_WRITE_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Handles an object of a kind without runs. It ends an expired suspension, and removes the finalizer of Flux's
/// notification-controller from an object that is being deleted. It adds no finalizer. Returns the delay until the next attempt
/// after a failure, and otherwise `None`.
pub(crate) async fn tend<K: WindlassKind + ReconciledObject>(
    object: &Arc<K>,
    context: &RunContext,
) -> Option<Duration> {
    let latest = LatestWrittenObject::default();
    let done = match object.meta().deletion_timestamp {
        Some(_) => latest.set_finalizer(context, object, false).await,
        None => object_hold::lift(context, &latest, object.clone(), jiff::Timestamp::now()).await,
    };
    match done {
        Ok(_) => None,
        Err(error) => {
            tracing::error!(
                controller_kind = %K::kind(&()),
                name = object.name_any(),
                namespace = object.namespace().unwrap_or_default(),
                error = %error,
                "failed to remove the finalizer or to end an expired suspension, retrying"
            );
            Some(REJECTED_WRITE_RETRY_DELAY)
        }
    }
}

#[cfg(test)]
mod tests {
    use crds::notification::ProviderSpec;
    use fake_cluster::spec_field_check;

    use super::*;

    #[test]
    fn every_field_of_the_schema_is_used_or_refused() {
        let used = [
            "address",
            "certSecretRef",
            "channel",
            "commitStatusExpr",
            // Parity(flux): it has no effect.
            "interval",
            "proxy",
            "proxySecretRef",
            "secretRef",
            "suspend",
            "timeout",
            "type",
            "username",
        ];
        spec_field_check::knows_every_field(
            "Provider",
            used.into_iter().chain(["serviceAccountName"]),
        );
        let service_account_name = Some("app".to_owned());
        let spec = ProviderSpec { service_account_name, ..ProviderSpec::default() };
        let refused = ProviderController::unsupported(&Provider::new("chat", spec));
        assert_eq!(refused, ["spec.serviceAccountName"]);
    }
}
