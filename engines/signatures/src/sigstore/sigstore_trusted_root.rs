//! The trusted root of Sigstore, `trusted_root.json`: the authorities that certify identities, and the logs.
//!
//! Parity(flux): unknown fields and other versions are refused, texts included.

use serde::Deserialize;

use crate::protobuf_json::{ProtoBytes, ProtoTime};
use crate::public_key::PublicKey;
use crate::x509::ParsedCertificate;

const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.trustedroot+json;version=0.1";
/// Certificates of all authorities together, and logs of a kind.
const MAX_AUTHORITY_ENTRIES: usize = 64;
/// Bytes of the document.
const MOST_BYTES: usize = 1 << 20;

/// The trusted authorities and logs of a Sigstore.
#[derive(Debug, Clone)]
pub struct SigstoreTrustedRoot {
    pub(super) authorities: Vec<SigstoreAuthority>,
    pub(super) rekor: Vec<TransparencyLog>,
    pub(super) transparency: Vec<TransparencyLog>,
}

/// An authority that certifies identities.
#[derive(Debug, Clone)]
pub(super) struct SigstoreAuthority {
    pub(super) between: Vec<ParsedCertificate>,
    /// The last of its chain.
    pub(super) trusted: Vec<ParsedCertificate>,
    pub(super) validity: ValidityPeriod,
}

/// A transparency log that the trusted root names, with its key.
#[derive(Debug, Clone)]
pub(super) struct TransparencyLog {
    pub(super) id: Vec<u8>,
    pub(super) key: PublicKey,
    /// The SHA-256 of its key in DER.
    pub(super) key_hash: Vec<u8>,
    pub(super) validity: ValidityPeriod,
}

/// A period of validity, in seconds of Unix time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidityPeriod {
    start: Option<ProtoTime>,
    end: Option<ProtoTime>,
}

impl ValidityPeriod {
    pub(super) fn contains(self, seconds: i64) -> bool {
        self.start.is_none_or(|start| seconds >= start.0)
            && self.end.is_none_or(|end| seconds <= end.0)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct RawTrustedRoot {
    media_type: String,
    tlogs: Vec<RawTransparencyLog>,
    certificate_authorities: Vec<RawAuthority>,
    ctlogs: Vec<RawTransparencyLog>,
    /// Read but not used, because times come from Rekor.
    #[serde(rename = "timestampAuthorities")]
    _timestamp_authorities: Vec<RawAuthority>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawTransparencyLog {
    base_url: String,
    #[serde(rename = "hashAlgorithm")]
    _hash_algorithm: Option<String>,
    public_key: Option<RawPublicKey>,
    log_id: Option<RawLogId>,
    #[serde(rename = "checkpointKeyId")]
    _checkpoint_key_id: Option<RawLogId>,
    #[serde(rename = "operator")]
    _operator: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawPublicKey {
    raw_bytes: ProtoBytes,
    #[serde(rename = "keyDetails")]
    _key_details: Option<String>,
    valid_for: Option<ValidityPeriod>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawLogId {
    key_id: ProtoBytes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawAuthority {
    #[serde(rename = "subject")]
    _subject: Option<RawAuthoritySubject>,
    #[serde(rename = "uri")]
    _uri: Option<String>,
    cert_chain: RawCertificateChain,
    valid_for: Option<ValidityPeriod>,
    #[serde(rename = "operator")]
    _operator: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawAuthoritySubject {
    #[serde(rename = "organization")]
    _organization: Option<String>,
    #[serde(rename = "commonName")]
    _common_name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawCertificateChain {
    certificates: Vec<RawCertificate>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawCertificate {
    raw_bytes: ProtoBytes,
}

impl SigstoreTrustedRoot {
    /// The root of the public Sigstore. It is compiled in, from the time of the release of the crate that contains it.
    ///
    /// Differs(flux): it fetches the newest one. Keys that were added since are not trusted, and keys that were withdrawn since
    /// are, until windlass is updated.
    ///
    /// # Errors
    /// The root cannot be used. A test verifies that it can.
    pub fn public() -> Result<Self, String> {
        Self::parse(sigstore_trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT.as_bytes())
    }

    /// Reads `trusted_root.json`.
    ///
    /// # Errors
    /// The root cannot be used. The text is for users.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let unusable = |why: String| format!("unable to parse trusted root: {why}");
        if text.len() > MOST_BYTES {
            return Err(unusable(format!("it is larger than {MOST_BYTES} bytes")));
        }
        let raw: RawTrustedRoot = serde_json::from_slice(text).map_err(|error| {
            unusable(format!("failed to proto-json unmarshal trusted root: {error}"))
        })?;
        if raw.media_type != MEDIA_TYPE {
            let found = raw.media_type;
            return Err(unusable(format!("unsupported TrustedRoot media type: {found}")));
        }
        let address = if raw.tlogs.is_empty() {
            Some("no transparency log entries found in trusted root")
        } else if raw.tlogs.iter().all(|log| log.base_url.is_empty()) {
            Some("no transparency log entry with a BaseURL found in trusted root")
        } else {
            None
        };
        let authorities = raw.certificate_authorities.iter();
        let certificates = authorities.map(|it| it.cert_chain.certificates.len()).sum::<usize>();
        if certificates.max(raw.tlogs.len()).max(raw.ctlogs.len()) > MAX_AUTHORITY_ENTRIES {
            return Err(unusable(format!(
                "it has more than {MAX_AUTHORITY_ENTRIES} certificates or logs"
            )));
        }
        let root = Self {
            authorities: all(raw.certificate_authorities, authority).map_err(unusable)?,
            rekor: all(raw.tlogs, log).map_err(unusable)?,
            transparency: all(raw.ctlogs, log).map_err(unusable)?,
        };
        match address {
            // Parity(flux): the address is demanded although all is verified offline.
            Some(why) => Err(format!("unable to extract Rekor URL from trusted root: {why}")),
            None => Ok(root),
        }
    }
}

#[cfg(test)]
impl SigstoreTrustedRoot {
    /// A certificate of an authority, together with its issuer's certificate.
    pub(crate) fn issued(&self) -> Option<(&ParsedCertificate, &ParsedCertificate)> {
        self.authorities.iter().find_map(|it| it.between.first().zip(it.trusted.first()))
    }
}

fn all<R, T>(raw: Vec<R>, one: fn(R) -> Result<T, String>) -> Result<Vec<T>, String> {
    raw.into_iter().map(one).collect()
}

fn log(raw: RawTransparencyLog) -> Result<TransparencyLog, String> {
    let key = raw.public_key.unwrap_or_default();
    let id = raw.log_id.unwrap_or_default().key_id.0;
    if id.is_empty() {
        return Err("a log has no logId".to_owned());
    }
    Ok(TransparencyLog {
        id,
        key: PublicKey::from_spki(&key.raw_bytes.0)?,
        key_hash: crate::sha256(&key.raw_bytes.0).to_vec(),
        validity: key.valid_for.unwrap_or_default(),
    })
}

fn authority(raw: RawAuthority) -> Result<SigstoreAuthority, String> {
    let certificates = raw.cert_chain.certificates.into_iter();
    let mut between = certificates
        .map(|raw| ParsedCertificate::from_der(&raw.raw_bytes.0))
        .collect::<Result<Vec<_>, _>>()?;
    let trusted = between.pop().ok_or("a certificate authority has no certificates")?;
    let validity = raw.valid_for.unwrap_or_default();
    Ok(SigstoreAuthority { between, trusted: vec![trusted], validity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_the_public_sigstore_can_be_used() {
        let root = SigstoreTrustedRoot::public().unwrap();
        assert!(
            root.authorities.len() >= 2 && root.rekor.len() >= 2 && root.transparency.len() >= 2
        );
        // Each chain of an authority is one, at the end of its certificates' common time.
        for authority in &root.authorities {
            for certificate in &authority.between {
                assert!(
                    authority.trusted.iter().any(|root| certificate.is_signed_by(root).is_ok())
                );
            }
        }
    }
    #[test]
    fn a_root_with_too_many_certificates_or_logs_is_refused_before_they_are_read() {
        let error_of = |what: &str, count: usize| {
            let certificates = vec!["{}"; count].join(",");
            let text = match what {
                "certificates" => format!(
                    "\"certificateAuthorities\":[{{\"certChain\":{{\"certificates\":[{certificates}]}}}}]"
                ),
                logs => format!("\"{logs}\":[{certificates}]"),
            };
            let text = format!("{{\"mediaType\":\"{MEDIA_TYPE}\",{text}}}");
            SigstoreTrustedRoot::parse(text.as_bytes()).unwrap_err()
        };
        for what in ["certificates", "tlogs", "ctlogs"] {
            assert!(error_of(what, 65).contains("more than 64 certificates or logs"), "{what}");
            assert!(!error_of(what, 64).contains("more than 64"), "{what}");
        }
    }
}
