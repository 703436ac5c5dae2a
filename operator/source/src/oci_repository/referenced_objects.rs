//! The objects that an OCIRepository references. These are the Secrets with its credentials, certificates, proxy and keys for
//! signatures, and the ServiceAccount whose image pull secrets it uses.

use std::collections::BTreeMap;

use crds::LocalObjectReference;
use crds::source::OCIRepository;
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome};
use sources::source_condition_reasons::{AUTHENTICATION_FAILED, VERIFICATION_ERROR};

use crate::image_trust::{ImageVerificationPolicy, SignaturePolicy};
use windlass_cluster::referenced_secrets_and_config_maps::{
    RunReferenceReads, distinct_pull_secrets,
};
use windlass_runtime::run_context::RunContext;

/// The data of a Secret.
pub(super) type OciSecretData = BTreeMap<String, Vec<u8>>;

/// The data of Secrets and the ServiceAccount for a run.
#[derive(Default)]
pub(super) struct OciRepositoryReferencedSecrets {
    /// Data of the Secret with credentials.
    pub(super) secret: Option<OciSecretData>,
    /// Data of the image pull secrets of the ServiceAccount, in its order.
    pub(super) pull_secrets: Vec<OciSecretData>,
    /// Data of the Secret with certificates.
    pub(super) certificates: Option<OciSecretData>,
    /// Data of the Secret that describes a proxy.
    pub(super) proxy: Option<OciSecretData>,
    /// The keys of the required signatures. `None` if the spec requires no signatures.
    pub(super) signed: Option<ImageVerificationPolicy>,
}

/// The outcome if an object cannot be read or used, with `what` before the cause.
pub(super) fn unusable(what: &str, why: &str) -> RunOutcome {
    RunOutcome::Failed(AUTHENTICATION_FAILED, format!("{what}: {why}"), NextRunTrigger::default())
}

/// Parity(flux): the words before what is wrong with credentials.
pub(super) const CREDENTIALS: &str = "failed to get credential";
/// Parity(flux): the words before what is wrong with a proxy.
pub(super) const PROXY: &str = "failed to get proxy address";

/// Parity(flux): the words before what is wrong with certificates.
pub(super) fn transport(url: &str) -> String {
    format!("failed to generate transport for '{url}'")
}

/// Reads the objects that the spec names, and watches them so that a change wakes the OCIRepository.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &OCIRepository,
) -> Result<OciRepositoryReferencedSecrets, RunOutcome> {
    let spec = &object.spec;
    let namespace = object.namespace().unwrap_or_default();
    // All references are watched before a missing one ends the run.
    let mut references = RunReferenceReads::new(&context.watcher);
    let mut reader = SpecSecretReader { namespace: &namespace, references: &mut references };
    let secret = reader.named("spec.secretRef", CREDENTIALS, spec.secret_ref.as_ref()).await;
    let pull_secrets = match &spec.service_account_name {
        Some(name) => reader.pull_secrets(name).await,
        None => Ok(Vec::new()),
    };
    let what = transport(&spec.url);
    let certificates =
        reader.named("spec.certSecretRef", &what, spec.cert_secret_ref.as_ref()).await;
    let proxy = reader.named("spec.proxySecretRef", PROXY, spec.proxy_secret_ref.as_ref()).await;
    let signed = match &spec.verify {
        Some(verify) => {
            let wanted = SignaturePolicy::of_repository(verify);
            let read = wanted.read(&spec.url, &namespace, &mut references).await;
            let unread =
                |text| RunOutcome::Failed(VERIFICATION_ERROR, text, NextRunTrigger::default());
            read.map(Some).map_err(unread)
        }
        None => Ok(None),
    };
    references.watch(node);
    Ok(OciRepositoryReferencedSecrets {
        secret: secret?,
        pull_secrets: pull_secrets?,
        proxy: proxy?,
        certificates: certificates?,
        signed: signed?,
    })
}

struct SpecSecretReader<'a> {
    namespace: &'a str,
    references: &'a mut RunReferenceReads,
}

impl SpecSecretReader<'_> {
    /// The data of a Secret that a field names. `None` if the field is empty.
    async fn named(
        &mut self,
        field: &str,
        what: &str,
        reference: Option<&LocalObjectReference>,
    ) -> Result<Option<OciSecretData>, RunOutcome> {
        let Some(reference) = reference else { return Ok(None) };
        let advice = format!("create it or correct {field}");
        self.secret(&reference.name, &advice).await.map(Some).map_err(|why| unusable(what, &why))
    }

    async fn secret(&mut self, name: &str, advice: &str) -> Result<OciSecretData, String> {
        let place = format!("{}/{name}", self.namespace);
        let secret = self.references.secret(self.namespace, name).await;
        let secret = secret.map_err(|error| format!("failed to get secret '{place}': {error}"))?;
        secret.ok_or_else(|| format!("secret '{place}' not found; {advice}"))
    }

    /// Parity(flux): each image pull secret has to exist.
    async fn pull_secrets(&mut self, account: &str) -> Result<Vec<OciSecretData>, RunOutcome> {
        let place = format!("{}/{account}", self.namespace);
        let failed = |why: String| unusable(CREDENTIALS, &why);
        let names = self.references.pull_secrets(self.namespace, account).await;
        let names = names
            .map_err(|error| failed(format!("failed to get serviceaccount '{place}': {error}")))?
            .ok_or_else(|| {
                let advice = "create it or correct spec.serviceAccountName";
                failed(format!("serviceaccount '{place}' not found; {advice}"))
            })?;
        let names = distinct_pull_secrets(names)
            .map_err(|why| failed(format!("failed to get serviceaccount '{place}': {why}")))?;
        let mut secrets = Vec::new();
        let mut missing = None;
        for name in names {
            let advice = "create it or take it off the ServiceAccount";
            match self.secret(&name, advice).await {
                Ok(data) => secrets.push(data),
                Err(why) => {
                    let text = format!(
                        "failed to get image pull secret for serviceaccount '{place}': {why}"
                    );
                    missing = missing.or(Some(failed(text)));
                }
            }
        }
        missing.map_or(Ok(secrets), Err)
    }
}
