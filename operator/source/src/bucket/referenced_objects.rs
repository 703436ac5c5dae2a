//! The Secrets that a Bucket names: credentials, certificates, its proxy, its token service.

use std::collections::BTreeMap;

use crds::LocalObjectReference;
use crds::source::Bucket;
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome};
use sources::source_condition_reasons::AUTHENTICATION_FAILED;

use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::run_context::RunContext;

/// The data of a Secret.
pub(super) type BucketSecretData = BTreeMap<String, Vec<u8>>;

/// The data of Secrets for a run.
#[derive(Default)]
pub(super) struct BucketReferencedSecrets {
    /// Credentials.
    pub(super) secret: Option<BucketSecretData>,
    /// An authority, or a certificate to show.
    pub(super) certificates: Option<BucketSecretData>,
    /// A proxy.
    pub(super) proxy: Option<BucketSecretData>,
    /// A user of the token service.
    pub(super) sts_secret: Option<BucketSecretData>,
    /// Certificates for the token service.
    pub(super) sts_certificates: Option<BucketSecretData>,
}

/// Reads the objects that the spec names, and watches them so that a change wakes the Bucket.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &Bucket,
) -> Result<BucketReferencedSecrets, RunOutcome> {
    let spec = &object.spec;
    let sts = spec.sts.as_ref();
    let sts_secret = sts.and_then(|it| it.secret_ref.clone());
    let sts_certificates = sts.and_then(|it| it.cert_secret_ref.clone());
    let mut references = RunReferenceReads::new(&context.watcher);
    // All references are watched before a missing one ends the run.
    let mut read = Vec::new();
    for (field, what, reference) in [
        ("spec.secretRef", "", &spec.secret_ref),
        ("spec.proxySecretRef", "failed to get proxy URL: ", &spec.proxy_secret_ref),
        ("spec.certSecretRef", "failed to get TLS config: ", &spec.cert_secret_ref),
        ("spec.sts.secretRef", "failed to get STS secret: ", &sts_secret),
        ("spec.sts.certSecretRef", "failed to get STS TLS config: ", &sts_certificates),
    ] {
        read.push(data(object, &mut references, field, what, reference.as_ref()).await);
    }
    references.watch(node);
    let mut read = read.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut next = || read.next().flatten();
    Ok(BucketReferencedSecrets {
        secret: next(),
        proxy: next(),
        certificates: next(),
        sts_secret: next(),
        sts_certificates: next(),
    })
}

/// The data of a Secret. `None` if the spec names none.
async fn data(
    object: &Bucket,
    references: &mut RunReferenceReads,
    field: &str,
    what: &str,
    reference: Option<&LocalObjectReference>,
) -> Result<Option<BucketSecretData>, RunOutcome> {
    let Some(LocalObjectReference { name, .. }) = reference else { return Ok(None) };
    let namespace = object.namespace().unwrap_or_default();
    let failed = |why: String| {
        let text = format!("{what}failed to get secret '{namespace}/{name}': {why}");
        RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
    };
    let secret = references.secret(&namespace, name).await;
    let secret = secret.map_err(|error| failed(error.to_string()))?;
    let missing = || failed(format!("not found; create it or correct {field}"));
    secret.map(Some).ok_or_else(missing)
}
