//! What a GitRepository points at: the Secret with its credentials.

use std::collections::BTreeMap;

use crds::source::GitRepository;
use kube::core::ResourceExt as _;
use reconcile::{Rest, Wake};
use sources::reason::AUTHENTICATION_FAILED;

use crate::controllers::context::Context;

/// What was read for a run.
pub(super) struct Resolved {
    /// Data of the Secret; empty without one.
    pub(super) secret: BTreeMap<String, Vec<u8>>,
}

/// Reads what the spec names.
pub(super) async fn resolve(context: &Context, object: &GitRepository) -> Result<Resolved, Rest> {
    let Some(reference) = &object.spec.secret_ref else {
        return Ok(Resolved { secret: BTreeMap::new() });
    };
    let namespace = object.namespace().unwrap_or_default();
    let failed = |text: String| Rest::Failed(AUTHENTICATION_FAILED, text, Wake::default());
    match context.cluster.secret(&namespace, &reference.name).await {
        Ok(Some(secret)) => Ok(Resolved { secret }),
        Ok(None) => Err(failed(format!(
            "failed to get secret '{namespace}/{}': it does not exist; create it or correct spec.secretRef",
            reference.name
        ))),
        Err(error) => {
            Err(failed(format!("failed to get secret '{namespace}/{}': {error}", reference.name)))
        }
    }
}
