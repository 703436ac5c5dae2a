//! The objects that the spec of a GitRepository references. These are the Secrets with its credentials, its proxy and the keys
//! for signatures, and the GitRepositories that it includes.

use crds::source::GitRepository;
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome};
use signatures::git::GitVerificationError;
use sources::source_condition_reasons::VERIFICATION_ERROR;

use super::include::{self, RepositoryInclude};
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::git_remote_access::{GitRemoteSecrets, GitSecretData};
use windlass_runtime::run_context::RunContext;

/// The data of Secrets and includes for a run.
pub(super) struct GitRepositoryReferencedObjects {
    /// The credentials and the proxy.
    pub(super) secrets: GitRemoteSecrets,
    /// The data of the Secret with the keys for signatures. `None` if no signatures are required.
    pub(super) keys: Option<GitSecretData>,
    /// The entries of `spec.include`, in the same order.
    pub(super) include: Vec<RepositoryInclude>,
}

/// Reads the objects that the spec names, and watches them so that a change wakes the GitRepository.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &GitRepository,
) -> Result<GitRepositoryReferencedObjects, RunOutcome> {
    include::edges(context, node, object);
    // All references are watched before a missing one ends the run.
    let mut references = RunReferenceReads::new(&context.watcher);
    let secrets = GitRemoteSecrets::read(object, &mut references).await;
    let keys = keys(object, &mut references).await;
    references.watch(node);
    let secrets = secrets?;
    let keys = keys?;
    Ok(GitRepositoryReferencedObjects {
        secrets,
        keys,
        include: include::resolve(context, node, object)?,
    })
}

/// The Secret of `spec.verify`. Parity(flux): the words.
async fn keys(
    object: &GitRepository,
    references: &mut RunReferenceReads,
) -> Result<Option<GitSecretData>, RunOutcome> {
    let Some(verify) = &object.spec.verify else { return Ok(None) };
    let failed = |why: String| {
        let text = GitVerificationError::without_keys(&why).message;
        RunOutcome::Failed(VERIFICATION_ERROR, text, NextRunTrigger::default())
    };
    let namespace = object.namespace().unwrap_or_default();
    let name = &verify.secret_ref.name;
    let secret = references.secret(&namespace, name).await;
    let secret = secret.map_err(|error| failed(error.to_string()))?;
    secret.map(Some).ok_or_else(|| failed(format!("secrets \"{name}\" not found")))
}
