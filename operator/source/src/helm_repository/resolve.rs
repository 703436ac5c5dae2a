//! The Secrets that a HelmRepository names; HelmCharts and Helmfiles that read charts from it read them too.

use std::collections::BTreeMap;

use crds::source::HelmRepository;
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, RunOutcome, WakeTrigger};
use sources::source_reasons::AUTHENTICATION_FAILED;

use windlass_runtime::run_context::RunContext;
use windlass_runtime::spec_references::ReadReferences;

/// The data of a Secret.
type RepositorySecretData = BTreeMap<String, Vec<u8>>;

/// What was read.
#[derive(Default)]
pub struct HelmRepositoryInputs {
    /// Data of `spec.secretRef`.
    pub(crate) secret: Option<RepositorySecretData>,
    /// Data of `spec.certSecretRef`.
    pub(crate) certificates: Option<RepositorySecretData>,
}

/// Reads what the spec names, and has the object woken when that changes.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &HelmRepository,
) -> Result<HelmRepositoryInputs, RunOutcome> {
    let mut references = ReadReferences::new(&context.watcher);
    let read = secrets(object, &mut references).await;
    references.watch(node);
    read
}

/// Reads the Secrets of a HelmRepository; both are noted before either is missed.
///
/// # Errors
/// The outcome of a run: a Secret that is missing or cannot be read.
pub async fn secrets(
    object: &HelmRepository,
    references: &mut ReadReferences,
) -> Result<HelmRepositoryInputs, RunOutcome> {
    let namespace = object.namespace().unwrap_or_default();
    let named = [
        (&object.spec.cert_secret_ref, "TLS authentication secret", "spec.certSecretRef"),
        (&object.spec.secret_ref, "authentication secret", "spec.secretRef"),
    ];
    let mut found = Vec::new();
    for (reference, what, field) in named {
        let Some(reference) = reference else {
            found.push(Ok(None));
            continue;
        };
        let name = &reference.name;
        let failed = |why: String| {
            let text = format!("failed to get {what} '{namespace}/{name}': {why}");
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, WakeTrigger::default())
        };
        let read = references.secret(&namespace, name).await;
        let missing = || failed(format!("not found; create it or correct {field}"));
        found.push(
            read.map_err(|error| failed(error.to_string()))
                .and_then(|data| data.map(Some).ok_or_else(missing)),
        );
    }
    let mut found = found.into_iter();
    let certificates = found.next().transpose()?.flatten();
    let secret = found.next().transpose()?.flatten();
    Ok(HelmRepositoryInputs { secret, certificates })
}
