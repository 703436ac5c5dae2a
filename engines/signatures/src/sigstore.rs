//! Verifies keyless signatures of Sigstore: Fulcio's certificates for identities, entries in Rekor, timestamps of CT logs.
//!
//! Here: the certificate of a bundle ([`verify_bundle_certificate`]). In the folder: trusted authorities and logs
//! (`sigstore_trusted_root`), entries of Rekor (`rekor_entry`), certificate transparency (`sct`), identities (`identity`),
//! signatures of the older format (`simple_signing`). Elsewhere: bundles and their envelopes (`cosign`), certificates
//! (`x509`).
//!
//! Parity(flux): the order of the checks and their texts are those of sigstore-go and cosign.
//! Differs(flux): no request is made. An entry of Rekor has to be attached, with its promise, which gives the time.

pub(crate) mod identity;
pub(crate) mod keyless_simple_signing;
pub(crate) mod rekor_entry;
mod sct;
mod sigstore_trusted_root;

use std::collections::BTreeSet;

use crate::x509::{ParsedCertificate, chain};
use identity::CertificateSummary;
use rekor_entry::RawRekorEntry;

pub(crate) use identity::AcceptedIdentities;
pub use identity::CertificateIdentityMatcher;
pub use sigstore_trusted_root::SigstoreTrustedRoot;

/// Verifies the certificate of a bundle and its entries in logs. Returns the identity in the certificate.
pub(crate) fn verify_bundle_certificate(
    certificate: &ParsedCertificate,
    entries: &[RawRekorEntry],
    signature: &[u8],
    root: &SigstoreTrustedRoot,
) -> Result<CertificateSummary, String> {
    let times = rekor_entry::verify_all(entries, certificate, signature, root)
        .map_err(|why| format!("failed to verify log inclusion: {why}"))?;
    if times.is_empty() {
        return Err("failed to verify timestamps: threshold not met for verified log entry integrated timestamps: 0 < 1".to_owned());
    }
    let summary = CertificateSummary::of(certificate)
        .map_err(|why| format!("failed to summarize certificate: {why}"))?;
    let mut issuers = Vec::new();
    for time in BTreeSet::from_iter(times) {
        let issuer = issuer(certificate, root, time)
            .map_err(|why| format!("failed to verify leaf certificate: {why}"))?;
        issuers.push(issuer);
    }
    sct::verify(certificate, &issuers, root)
        .map_err(|why| format!("failed to verify signed certificate timestamp: {why}"))?;
    Ok(summary)
}

/// The issuer of a certificate, if a trusted authority had issued it at that time.
fn issuer<'r>(
    certificate: &ParsedCertificate,
    root: &'r SigstoreTrustedRoot,
    seconds: i64,
) -> Result<&'r ParsedCertificate, String> {
    root.authorities
        .iter()
        .filter(|authority| authority.validity.contains(seconds))
        .find_map(|authority| chain(certificate, &authority.between, &authority.trusted, seconds))
        .ok_or_else(|| "leaf certificate verification failed".to_owned())
}
