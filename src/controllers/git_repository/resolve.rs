//! What a GitRepository points at: the Secrets with its credentials and its proxy, and what it includes.

use std::collections::BTreeMap;

use crds::LocalObjectReference;
use crds::source::GitRepository;
use kube::core::ResourceExt as _;
use reconcile::{Node, Rest, Wake};
use sources::reason::AUTHENTICATION_FAILED;

use super::include::{self, Include};
use crate::controllers::context::Context;
use crate::controllers::reference::References;

/// The data of a Secret.
type Data = BTreeMap<String, Vec<u8>>;

/// What was read for a run.
pub(super) struct Resolved {
    /// Data of the Secret with credentials; empty without one.
    pub(super) secret: Data,
    /// Data of the Secret that describes a proxy.
    pub(super) proxy: Option<Data>,
    /// What `spec.include` names, in its order.
    pub(super) include: Vec<Include>,
}

/// Reads what the spec names, and has the object woken when that changes.
pub(super) async fn resolve(
    context: &Context,
    node: &Node,
    object: &GitRepository,
) -> Result<Resolved, Rest> {
    include::edges(context, node, object);
    let spec = &object.spec;
    let credentials = Named { field: "spec.secretRef", what: "", reference: &spec.secret_ref };
    let what = "failed to configure proxy options: ";
    let proxy = Named { field: "spec.proxySecretRef", what, reference: &spec.proxy_secret_ref };
    // Both are watched before either is missed.
    let mut references = References::new(&context.watcher);
    let secret = credentials.read(object, &mut references).await;
    let proxy = proxy.read(object, &mut references).await;
    references.watch(node);
    let (proxy, secret) = (proxy?, secret?.unwrap_or_default());
    Ok(Resolved { secret, proxy, include: include::resolve(context, node, object)? })
}

/// A Secret that the spec may name.
struct Named<'a> {
    field: &'static str,
    what: &'static str,
    reference: &'a Option<LocalObjectReference>,
}

impl Named<'_> {
    /// The data of the Secret; `None` if the spec names none.
    async fn read(
        &self,
        object: &GitRepository,
        references: &mut References,
    ) -> Result<Option<Data>, Rest> {
        let Some(reference) = self.reference else { return Ok(None) };
        let (namespace, name) = (object.namespace().unwrap_or_default(), &reference.name);
        let failed = |why: String| {
            let text = format!("{}failed to get secret '{namespace}/{name}': {why}", self.what);
            Rest::Failed(AUTHENTICATION_FAILED, text, Wake::default())
        };
        let secret = references.secret(&namespace, name).await;
        let secret = secret.map_err(|error| failed(error.to_string()))?;
        let missing = || failed(format!("not found; create it or correct {}", self.field));
        secret.map(Some).ok_or_else(missing)
    }
}
