//! Sigstore bundles, version 0.3: a DSSE envelope together with the data to verify it.
//!
//! Here: reading them, the envelope and its statement. Elsewhere: entries of logs (`sigstore/entry`), certificates
//! (`sigstore`).
//!
//! Parity(flux): fields that are not known make a bundle unreadable, and one that cannot be read is passed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::protobuf_json::{ProtoBytes, base64_of};
use crate::public_key::PublicKey;
use crate::sigstore::rekor_entry::RawRekorEntry;
use crate::sigstore::{AcceptedIdentities, SigstoreTrustedRoot, verify_bundle_certificate};
use crate::x509::ParsedCertificate;

/// Entries of logs in a bundle.
const MOST_ENTRIES: usize = 16;
/// The most subjects of a statement. Parity(flux): the number.
const MOST_SUBJECTS: usize = 1024;

const IN_TOTO: &str = "application/vnd.in-toto+json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawBundle {
    #[serde(default)]
    media_type: String,
    verification_material: Option<RawVerificationMaterial>,
    message_signature: Option<serde::de::IgnoredAny>,
    dsse_envelope: Option<RawDsseEnvelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawVerificationMaterial {
    public_key: Option<RawPublicKeyHint>,
    x509_certificate_chain: Option<serde::de::IgnoredAny>,
    certificate: Option<RawCertificate>,
    tlog_entries: Option<Vec<RawRekorEntry>>,
    timestamp_verification_data: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPublicKeyHint {
    #[serde(default, rename = "hint")]
    _hint: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCertificate {
    #[serde(default)]
    raw_bytes: ProtoBytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawDsseEnvelope {
    #[serde(default)]
    payload: ProtoBytes,
    #[serde(default)]
    payload_type: String,
    #[serde(default)]
    signatures: Vec<RawDsseSignature>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDsseSignature {
    #[serde(default)]
    sig: ProtoBytes,
    #[serde(default, rename = "keyid")]
    _keyid: Option<String>,
}

/// The subjects of an in-toto statement. Other fields are not read.
#[derive(Deserialize)]
struct IntotoStatement {
    #[serde(default)]
    subject: Vec<IntotoSubject>,
}

#[derive(Deserialize)]
struct IntotoSubject {
    #[serde(default)]
    digest: std::collections::BTreeMap<String, String>,
}

/// A bundle of Sigstore, read but not verified.
pub(crate) struct SigstoreBundle {
    /// The envelope. `None` if the bundle has a signature of the image's bytes instead.
    envelope: Option<DsseEnvelope>,
    /// The certificate. `None` if the bundle is signed by a key.
    certificate: Option<Vec<u8>>,
    entries: Vec<RawRekorEntry>,
}

struct DsseEnvelope {
    payload: Vec<u8>,
    payload_type: String,
    signatures: Vec<Vec<u8>>,
}

impl SigstoreBundle {
    /// Reads a bundle; `None` if the bytes are not a bundle, or have another version.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let raw: RawBundle = serde_json::from_slice(bytes).ok()?;
        if !is_supported(&raw.media_type) {
            return None;
        }
        let material = raw.verification_material?;
        if material.x509_certificate_chain.is_some()
            || material.public_key.is_some() == material.certificate.is_some()
            || raw.message_signature.is_some() == raw.dsse_envelope.is_some()
        {
            return None;
        }
        let _ = material.timestamp_verification_data;
        let entries = material.tlog_entries.unwrap_or_default();
        if entries.len() > MOST_ENTRIES || entries.iter().any(|entry| !entry.has_proof()) {
            return None;
        }
        Some(Self {
            envelope: raw.dsse_envelope.map(|raw| DsseEnvelope {
                payload: raw.payload.0,
                payload_type: raw.payload_type,
                signatures: raw.signatures.into_iter().map(|it| it.sig.0).collect(),
            }),
            certificate: material.certificate.map(|raw| raw.raw_bytes.0),
            entries,
        })
    }

    /// Verifies that a key signed a statement about an image. Log entries are not required.
    pub(crate) fn verify_by(&self, key: &PublicKey, subject: &str) -> Result<(), String> {
        let envelope = self.envelope()?;
        if self.certificate.is_some() {
            return Err("expected key signature, not certificate".to_owned());
        }
        envelope.verify(key, subject).map_err(of_signature)
    }

    /// Verifies that a signer with one of the identities signed a statement about an image. Returns the identity.
    pub(crate) fn verify_keyless(
        &self,
        root: &SigstoreTrustedRoot,
        identities: &AcceptedIdentities,
        subject: &str,
    ) -> Result<String, String> {
        identities.is_usable_for_bundles()?;
        let envelope = self.envelope()?;
        let Some(der) = &self.certificate else {
            return Err("the bundle has no certificate".to_owned());
        };
        let certificate = ParsedCertificate::from_der(der)
            .map_err(|why| format!("failed to verify leaf certificate: {why}"))?;
        let signature = envelope.signatures.first().map(Vec::as_slice).unwrap_or_default();
        let summary = verify_bundle_certificate(&certificate, &self.entries, signature, root)?;
        let key = certificate.key.as_ref().map_err(|why| of_signature((*why).to_owned()))?;
        envelope.verify(key, subject).map_err(of_signature)?;
        identities.verify(&summary).map_err(|why| {
            format!(
                "failed to verify certificate identity: no matching CertificateIdentity found, last error: {why}"
            )
        })?;
        Ok(summary.to_string())
    }

    fn envelope(&self) -> Result<&DsseEnvelope, String> {
        self.envelope.as_ref().ok_or_else(|| "bundle does not contain a DSSE envelope".to_owned())
    }
}

fn of_signature(why: String) -> String {
    format!("failed to verify signature: {why}")
}

/// Whether a media type belongs to version 0.3.
fn is_supported(media_type: &str) -> bool {
    let version = media_type
        .strip_prefix("application/vnd.dev.sigstore.bundle+json;version=")
        .or_else(|| {
            let rest = media_type.strip_prefix("application/vnd.dev.sigstore.bundle.v")?;
            rest.strip_suffix("+json")
        });
    version.is_some_and(|version| version == "0.3" || version.starts_with("0.3."))
}

impl DsseEnvelope {
    /// Verifies that a key signed the envelope, and that its statement is about an image.
    fn verify(&self, key: &PublicKey, subject: &str) -> Result<(), String> {
        let message = self.authenticated();
        let is_good = match self.signatures.as_slice() {
            [signature] => key.verify_sigstore(&message, signature).is_ok(),
            _ => false,
        };
        if !is_good {
            return Err("could not verify envelope: accepted signatures do not match threshold, Found: 0, Expected 1"
                .to_owned());
        }
        if self.payload_type != IN_TOTO {
            return Err("could not verify artifact: unable to extract statement from envelope: validation error: unsupported media type".to_owned());
        }
        let statement: IntotoStatement = serde_json::from_slice(&self.payload).map_err(|_| {
            "could not verify artifact: unable to extract statement from envelope: it is not JSON"
                .to_owned()
        })?;
        if statement.subject.is_empty() || statement.subject.len() > MOST_SUBJECTS {
            return Err("provided artifact digests does not match digests in statement".to_owned());
        }
        let wanted = subject.strip_prefix("sha256:").unwrap_or(subject);
        let is_named = statement.subject.iter().any(|subject| {
            subject.digest.get("sha256").is_some_and(|digest| digest.eq_ignore_ascii_case(wanted))
        });
        if is_named {
            return Ok(());
        }
        Err("provided artifact digest does not match any digest in statement".to_owned())
    }

    /// The signed bytes: the type and payload in DSSE's encoding.
    fn authenticated(&self) -> Vec<u8> {
        let kind = &self.payload_type;
        let mut message =
            format!("DSSEv1 {} {kind} {} ", kind.len(), self.payload.len()).into_bytes();
        message.extend_from_slice(&self.payload);
        message
    }
}

/// Decodes a signature from an annotation in base64. `None` if the text is not base64.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().or_else(|| base64_of(text))
}
