//! What a GitRepository points at: the Secrets with its credentials, its proxy and the keys for signatures, and what it
//! includes.

use std::collections::BTreeMap;

use crds::LocalObjectReference;
use crds::source::GitRepository;
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, Outcome, Wake};
use signatures::git::GitVerificationError;
use sources::reason::{AUTHENTICATION_FAILED, VERIFICATION_ERROR};

use super::include::{self, Include};
use windlass_runtime::context::Context;
use windlass_runtime::reference::References;

/// The data of a Secret.
type GitSecretData = BTreeMap<String, Vec<u8>>;

/// What was read for a run.
pub(super) struct GitRepositoryInputs {
    /// Data of the Secret with credentials; empty without one.
    pub(super) secret: GitSecretData,
    /// Data of the Secret that describes a proxy.
    pub(super) proxy: Option<GitSecretData>,
    /// Data of the Secret with the keys that have to have signed; nothing if none have to.
    pub(super) keys: Option<GitSecretData>,
    /// What `spec.include` names, in its order.
    pub(super) include: Vec<Include>,
}

/// Reads what the spec names, and has the object woken when that changes.
pub(super) async fn resolve(
    context: &Context,
    node: &ObjectKey,
    object: &GitRepository,
) -> Result<GitRepositoryInputs, Outcome> {
    include::edges(context, node, object);
    let spec = &object.spec;
    let credentials =
        SecretField { field: "spec.secretRef", what: "", reference: &spec.secret_ref };
    let what = "failed to configure proxy options: ";
    let proxy =
        SecretField { field: "spec.proxySecretRef", what, reference: &spec.proxy_secret_ref };
    // All references are watched before a missing one ends the run.
    let mut references = References::new(&context.watcher);
    let secret = credentials.read(object, &mut references).await;
    let proxy = proxy.read(object, &mut references).await;
    let keys = keys(object, &mut references).await;
    references.watch(node);
    let proxy = proxy?;
    let secret = secret?.unwrap_or_default();
    let keys = keys?;
    Ok(GitRepositoryInputs {
        secret,
        proxy,
        keys,
        include: include::resolve(context, node, object)?,
    })
}

/// The Secret of `spec.verify`. Parity(flux): the words.
async fn keys(
    object: &GitRepository,
    references: &mut References,
) -> Result<Option<GitSecretData>, Outcome> {
    let Some(verify) = &object.spec.verify else { return Ok(None) };
    let failed = |why: String| {
        let text = GitVerificationError::without_keys(&why).message;
        Outcome::Failed(VERIFICATION_ERROR, text, Wake::default())
    };
    let namespace = object.namespace().unwrap_or_default();
    let name = &verify.secret_ref.name;
    let secret = references.secret(&namespace, name).await;
    let secret = secret.map_err(|error| failed(error.to_string()))?;
    secret.map(Some).ok_or_else(|| failed(format!("secrets \"{name}\" not found")))
}

/// A Secret that the spec may name.
struct SecretField<'a> {
    field: &'static str,
    what: &'static str,
    reference: &'a Option<LocalObjectReference>,
}

impl SecretField<'_> {
    /// The data of the Secret; `None` if the spec names none.
    async fn read(
        &self,
        object: &GitRepository,
        references: &mut References,
    ) -> Result<Option<GitSecretData>, Outcome> {
        let Some(reference) = self.reference else { return Ok(None) };
        let namespace = object.namespace().unwrap_or_default();
        let name = &reference.name;
        let failed = |why: String| {
            let text = format!("{}failed to get secret '{namespace}/{name}': {why}", self.what);
            Outcome::Failed(AUTHENTICATION_FAILED, text, Wake::default())
        };
        let secret = references.secret(&namespace, name).await;
        let secret = secret.map_err(|error| failed(error.to_string()))?;
        let missing = || failed(format!("not found; create it or correct {}", self.field));
        secret.map(Some).ok_or_else(missing)
    }
}
