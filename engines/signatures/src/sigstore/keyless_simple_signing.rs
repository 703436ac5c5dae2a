//! Verifies keyless signatures of the older format, with Rekor's promise in an annotation.

use serde::Deserialize;

use super::identity::AcceptedIdentities;
use super::rekor_entry::{InclusionPromise, RekorEntryBody};
use super::{SigstoreTrustedRoot, issuer, sct};
use crate::protobuf_json::{ProtoBytes, base64_of};
use crate::referrers::hex;
use crate::x509::ParsedCertificate;
use crate::{pem, sha256};

/// Rekor's promise, in the form that cosign attaches.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RekorBundle {
    #[serde(default)]
    signed_entry_timestamp: ProtoBytes,
    #[serde(default)]
    payload: RekorPayload,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RekorPayload {
    /// The entry in base64.
    body: String,
    integrated_time: i64,
    log_index: i64,
    /// The id of the log in hexadecimal digits.
    #[serde(rename = "logID")]
    log_id: String,
}

impl RekorBundle {
    /// Reads the JSON in the annotation of a signature. The error says what is wrong with the JSON.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Eof => "unexpected end of JSON input".to_owned(),
            _ => error.to_string(),
        })
    }

    /// Verifies that Rekor promised to log this signature of this payload. Returns the time.
    fn verify(
        &self,
        certificate: &str,
        payload: &[u8],
        signature: &[u8],
        root: &SigstoreTrustedRoot,
    ) -> Result<i64, String> {
        let body = base64_of(&self.payload.body).ok_or("the body of the entry is not base64")?;
        let body = RekorEntryBody::parse(&body)?;
        if body.signature != signature {
            return Err("signature in bundle does not match signature being verified".to_owned());
        }
        if certificate.is_empty() {
            return Err("empty key".to_owned());
        }
        let same = |a: &[u8], b: &[u8]| {
            pem::first(a).zip(pem::first(b)).is_some_and(|(a, b)| a.content == b.content)
        };
        if !same(&body.verifier, certificate.as_bytes()) {
            return Err("comparing public key PEMs: the entry is of another certificate".to_owned());
        }
        let hash = ("sha256".to_owned(), hex(&sha256(payload)));
        if body.hash.as_ref() != Some(&hash) {
            return Err("matching bundle to payload: the entry is of another payload".to_owned());
        }
        let trusted = |why: &str| format!("verifying bundle with trusted root: {why}");
        let mut logs = root.rekor.iter();
        let log = logs.find(|log| hex(&log.id) == self.payload.log_id);
        let log = log.ok_or_else(|| trusted("rekor log public key not found for payload"))?;
        let seconds = self.payload.integrated_time;
        if !log.validity.contains(seconds) {
            return Err(trusted("rekor log public key not valid at payload integrated time"));
        }
        let index = self.payload.log_index;
        let promised = InclusionPromise { body: &self.payload.body, seconds, index, log: &log.id };
        if !promised.is_signed(log, &self.signed_entry_timestamp.0) {
            return Err(trusted("unable to verify SET"));
        }
        Ok(seconds)
    }
}

/// Verifies that a signer with one of the identities signed a payload. Returns the identity.
pub(crate) fn verify_keyless(
    certificate: &str,
    logged: Option<&RekorBundle>,
    payload: &[u8],
    signature: &[u8],
    root: &SigstoreTrustedRoot,
    identities: &AcceptedIdentities,
) -> Result<String, String> {
    let Some(logged) = logged else {
        // Differs(flux): it searches Rekor online.
        return Err(
            "the signature has no entry of Rekor attached, and none is searched for online"
                .to_owned(),
        );
    };
    let seconds = logged
        .verify(certificate, payload, signature, root)
        .map_err(|why| format!("error verifying bundle: {why}"))?;
    let block = pem::first(certificate.as_bytes()).ok_or("the certificate is not PEM")?;
    let certificate = ParsedCertificate::from_der(&block.content)?;
    // Parity(flux): the chain is verified at the beginning of the certificate, which is compared with the time after it.
    let issuer = issuer(&certificate, root, certificate.validity.0)?;
    let by = identities.verify_any(&certificate)?;
    if !sct::has_timestamps(&certificate) {
        return Err(
            "certificate does not include required embedded SCT and no detached SCT was set"
                .to_owned(),
        );
    }
    sct::verify(&certificate, &[issuer], root)?;
    let key = certificate.key.as_ref().map_err(|why| (*why).to_owned())?;
    key.verify_sigstore(payload, signature).map_err(|wrong| wrong.to_string())?;
    is_within(&certificate, seconds)
        .map_err(|why| format!("checking expiry on certificate with bundle: {why}"))?;
    Ok(by)
}

fn is_within(certificate: &ParsedCertificate, seconds: i64) -> Result<(), String> {
    let (begin, end) = certificate.validity;
    let time = |seconds: i64| {
        jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| seconds.to_string(), |time| time.to_string())
    };
    if end < seconds {
        return Err(format!(
            "certificate expired before observed time: {} is before {}",
            time(end),
            time(seconds)
        ));
    }
    if begin > seconds {
        return Err(format!(
            "certificate was issued after observed time: {} is after {}",
            time(begin),
            time(seconds)
        ));
    }
    Ok(())
}
