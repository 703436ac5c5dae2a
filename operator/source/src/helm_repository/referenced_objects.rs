//! The Secrets that a HelmRepository names.
//!
//! Elsewhere: which Secrets these are, and their use (`windlass_runtime::chart_repository_access`).

use crds::source::HelmRepository;
use reconcile::{ObjectKey, RunOutcome};

use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::chart_repository_access::HelmRepositorySecrets;
use windlass_runtime::run_context::RunContext;

/// Reads the objects that the spec names, and watches them so that a change wakes the HelmRepository.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &HelmRepository,
) -> Result<HelmRepositorySecrets, RunOutcome> {
    let mut references = RunReferenceReads::new(&context.watcher);
    let read = HelmRepositorySecrets::read(object, &mut references).await;
    references.watch(node);
    read
}
