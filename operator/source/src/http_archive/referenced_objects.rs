//! The objects that an HTTPArchive references: Secrets with credentials, certificates and a proxy, and the ExternalArtifact
//! that it offers.

use std::collections::{BTreeMap, BTreeSet};

use crds::LocalObjectReference;
use crds::source::ExternalArtifact;
use crds::windlass_source::HTTPArchive;
use kube_core::ResourceExt as _;
use reconcile::{DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome};
use sources::source_condition_reasons::AUTHENTICATION_FAILED;

use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::run_context::RunContext;

/// The data of a Secret.
pub(super) type HttpArchiveSecretData = BTreeMap<String, Vec<u8>>;

/// The inputs of a run: the data of each Secret that the spec names.
#[derive(Default)]
pub(super) struct HttpArchiveReferencedSecrets {
    pub(super) secret: Option<HttpArchiveSecretData>,
    pub(super) certificates: Option<HttpArchiveSecretData>,
    pub(super) proxy: Option<HttpArchiveSecretData>,
}

/// Reads the objects that the spec names. A change of one of them, or a missing ExternalArtifact, wakes the HTTPArchive.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &HTTPArchive,
) -> Result<HttpArchiveReferencedSecrets, RunOutcome> {
    let offered = node_named::<ExternalArtifact>(&node.namespace, &node.name);
    context.work_queue.set_edges(node, DependencyEdge::Source, BTreeSet::from([offered]));
    let spec = &object.spec;
    let mut references = RunReferenceReads::new(&context.watcher);
    // All references are watched before a missing one ends the run.
    let mut read = async |field: &str, reference: &Option<LocalObjectReference>| {
        let Some(reference) = reference else { return Ok(None) };
        let namespace = object.namespace().unwrap_or_default();
        let name = &reference.name;
        let failed = |why: String| {
            let text = format!("failed to get secret '{namespace}/{name}': {why}");
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        };
        let secret = references.secret(&namespace, name).await;
        let secret = secret.map_err(|error| failed(error.to_string()))?;
        let missing = || failed(format!("not found; create it or correct {field}"));
        secret.map(Some).ok_or_else(missing)
    };
    let secret = read("spec.secretRef", &spec.secret_ref).await;
    let certificates = read("spec.certSecretRef", &spec.cert_secret_ref).await;
    let proxy = read("spec.proxySecretRef", &spec.proxy_secret_ref).await;
    references.watch(node);
    Ok(HttpArchiveReferencedSecrets { secret: secret?, certificates: certificates?, proxy: proxy? })
}
