//! Verifies charts that have to be signed, by the annotation `windlass.dev/verify-provenance`.
//!
//! Elsewhere: parsing a provenance file (the engine `signatures`), fetching it (`sources::charts`).

use std::collections::BTreeMap;

use crds::source::HelmChart;
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signatures::chart_provenance::{self, VerifiedChart as Signed};
use sources::charts::repository::{ChartRepository, Error, file_name};
use sources::source_condition_reasons::{
    CHART_PULL_ERROR, CHART_VERIFICATION_ERROR, VERIFICATION_ERROR,
};

use crate::source::artifact_verification_record::VerificationRecord;
use crate::source::busy;
use windlass_cluster::error::chain;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;

/// Annotation of a HelmChart that names the Secret with public keys. The chart has to be signed with one of these keys.
pub(super) const ANNOTATION: &str = "windlass.dev/verify-provenance";

/// The name of the Secret with the keys for provenance files, from an annotation. `None` without this annotation.
pub(super) fn secret_of(object: &HelmChart) -> Option<&str> {
    object.annotations().get(ANNOTATION).map(String::as_str)
}

/// Public keys. The chart has to be signed with one of them.
pub(super) struct ProvenanceKeyring(Vec<u8>);

pub(super) fn refused(why: &str) -> RunOutcome {
    let text = format!("chart verification error: {why}");
    RunOutcome::Failed(CHART_VERIFICATION_ERROR, text, NextRunTrigger::default())
}

/// The outcome if the repository did not say whether the chart is signed. A stored artifact is not withdrawn for that.
fn unanswered(file: &str, why: &str) -> RunOutcome {
    let text = format!("chart pull error: failed to get provenance file '{file}.prov': {why}");
    RunOutcome::Failed(CHART_PULL_ERROR, text, NextRunTrigger::default())
}

impl ProvenanceKeyring {
    /// Reads the Secret that the annotation names. Every entry of the Secret is a keyring.
    pub(super) async fn read(
        object: &HelmChart,
        references: &mut RunReferenceReads,
    ) -> Result<Option<Self>, RunOutcome> {
        let Some(name) = secret_of(object) else { return Ok(None) };
        let namespace = object.namespace().unwrap_or_default();
        let failed = |why: String| {
            let text = format!("failed to get secret '{namespace}/{name}': {why}");
            RunOutcome::Failed(VERIFICATION_ERROR, text, NextRunTrigger::default())
        };
        let data: Option<BTreeMap<String, Vec<u8>>> =
            references.secret(&namespace, name).await.map_err(|error| failed(error.to_string()))?;
        let missing = || failed(format!("not found; create it or correct annotation {ANNOTATION}"));
        let data = data.ok_or_else(missing)?;
        Ok(Some(Self(chart_provenance::keyring(data.values().map(Vec::as_slice)))))
    }

    /// The keyring in the form in which the plan compares it.
    pub(super) fn shape(&self) -> Value {
        json!({"provenance": hex::encode(Sha256::digest(&self.0))})
    }

    /// Verifies an archive that came from `reference` of a repository.
    pub(super) async fn verify(
        &self,
        repository: &ChartRepository,
        reference: &str,
        archive: &[u8],
    ) -> Result<VerificationRecord, RunOutcome> {
        let file = file_name(reference);
        let provenance = repository.provenance(reference).await.map_err(|error| match error {
            // A server answers so if the file does not exist. A server that forbids access may have the file.
            Error::Status { status: 404 | 410, .. } => {
                refused(&format!("the repository has no provenance file '{file}.prov'"))
            }
            Error::Busy(said) => busy(CHART_PULL_ERROR, &said),
            error => unanswered(file, &chain(&error)),
        })?;
        let now = jiff::Timestamp::now().as_second().try_into().unwrap_or_default();
        let signed = chart_provenance::verify(file, archive, &provenance, &self.0, now);
        let signed = signed.map_err(|why| refused(&why.to_string()))?;
        Ok(VerificationRecord { how: self.shape(), text: verification_text(file, &signed) })
    }
}

fn verification_text(file: &str, signed: &Signed) -> String {
    let Signed { signers, fingerprint, digest } = signed;
    let signers = signers.join(", ");
    format!(
        "verified provenance of chart '{file}' with digest '{digest}': signed by {signers} with key '{fingerprint}'"
    )
}

#[cfg(test)]
mod tests {
    use sources::source_condition_reasons::is_refused_signature;

    use super::*;

    #[test]
    fn a_repository_that_does_not_answer_refuses_no_signature() {
        let outcome = unanswered("app-1.0.0.tgz", "503");
        assert!(!is_refused_signature(outcome.reason()), "{outcome:?}");
    }
}
