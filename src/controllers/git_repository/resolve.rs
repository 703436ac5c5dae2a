//! What a GitRepository points at: the Secret with its credentials.

use std::collections::BTreeMap;

use crds::source::GitRepository;
use kube::core::ResourceExt as _;
use objects::{Gvk, ObjectId};
use reconcile::{Node, Rest, Wake};
use sources::reason::AUTHENTICATION_FAILED;

use crate::controllers::context::Context;

/// What was read for a run.
pub(super) struct Resolved {
    /// Data of the Secret; empty without one.
    pub(super) secret: BTreeMap<String, Vec<u8>>,
}

/// Reads what the spec names, and has the object woken when that changes.
pub(super) async fn resolve(
    context: &Context,
    node: &Node,
    object: &GitRepository,
) -> Result<Resolved, Rest> {
    let Some(reference) = &object.spec.secret_ref else {
        context.observer.refer_to(node, &[]);
        return Ok(Resolved { secret: BTreeMap::new() });
    };
    let (namespace, name) = (object.namespace().unwrap_or_default(), &reference.name);
    let failed = |why: String| {
        let text = format!("failed to get secret '{namespace}/{name}': {why}");
        Rest::Failed(AUTHENTICATION_FAILED, text, Wake::default())
    };
    let secret = context.cluster.secret(&namespace, name).await;
    let secret = secret.map_err(|error| failed(error.to_string()))?;
    let kind = context.cluster.resource(&Gvk::new("v1", "Secret")).await;
    let kind = kind.map_err(|error| failed(error.to_string()))?;
    let id = ObjectId::new(&namespace, name, "", "Secret");
    context.observer.refer_to(node, &[(kind, id, secret.is_some())]);
    let missing = || failed("it does not exist; create it or correct spec.secretRef".to_owned());
    Ok(Resolved { secret: secret.ok_or_else(missing)? })
}
