//! Verifies Notation signatures of images: a certificate that the trust policy trusts must have signed the image.
//!
//! Here: the verdict ([`NotationTrust`]). In the folder: the trust policy (`policy`), distinguished names
//! (`x509_distinguished_name`), signatures in JSON and CBOR (`envelope`, `jws`, `cose`), the certificate chain in a signature
//! (`certificate_chain`).
//! Elsewhere: finding signatures (`referrers`), certificates themselves (`x509`).
//!
//! Parity(flux): source-controller 1.9 with notation-go 1.3, texts included.
//! Differs(flux): no plug-in, no list of revoked certificates and no time authority is known. What a signature or a policy
//! demands of them is refused; certificates that name addresses for revocation are, as long as `revocation` is enforced.

mod certificate_chain;
mod cose;
mod envelope;
mod jws;
mod policy;
mod x509_distinguished_name;

use std::collections::BTreeMap;

use crate::pem;
use crate::referrers::{MOST_NOTATION, OciDescriptor, SignatureSearch};
use crate::x509::ParsedCertificate;
use envelope::{NotationEnvelope, NotationEnvelopeError, SigningScheme};
use policy::{
    FailedCheckAction, NotationCheck, TrustPolicy, TrustPolicyStatement, VerificationLevel,
};

/// The trusted signers: a policy, and certificates that are all in every trust store.
#[derive(Debug, Clone)]
pub struct NotationTrust {
    policy: TrustPolicy,
    certificates: Vec<Vec<u8>>,
}

/// The result of verifying an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotationVerdict {
    /// The image is signed. The text is the subject of the certificate.
    Verified(String),
    /// The policy skips signatures, or only logs an untrusted signer.
    Ignored,
}

/// The entry with the trust policy.
const POLICY: &str = "trustpolicy.json";

impl NotationTrust {
    /// Reads the data of the Secret `place`: `trustpolicy.json`, and `*.crt` and `*.pem`.
    ///
    /// # Errors
    /// The data cannot be used. The text is for users.
    pub fn from_secret(place: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<Self, String> {
        let policy =
            data.get(POLICY).ok_or_else(|| format!("'{POLICY}' not found in secret '{place}'"))?;
        let policy = TrustPolicy::parse(policy)?;
        let certificates =
            data.iter().filter(|(name, _)| name.ends_with(".crt") || name.ends_with(".pem"));
        let certificates: Vec<Vec<u8>> = certificates.map(|(_, bytes)| bytes.clone()).collect();
        if certificates.is_empty() {
            return Err(format!("no certificates found in secret '{place}'"));
        }
        policy.validate()?;
        Ok(Self { policy, certificates })
    }

    /// Verifies that the image `repository@digest` is signed by a signer that the policy trusts, at the time `now` in seconds
    /// of Unix time.
    ///
    /// # Errors
    /// Why the image is not verified. The text is for users.
    pub fn verify(
        &self,
        search: &SignatureSearch,
        image: &str,
        now: i64,
    ) -> Result<NotationVerdict, String> {
        let statement = self.policy.applicable(image)?;
        let level = statement.level()?;
        if level.is_skip() {
            return Ok(NotationVerdict::Ignored);
        }
        let subject =
            search.described().ok_or_else(|| format!("the manifest of {image} is missing"))?;
        let signatures = search.attached();
        let mut reasons = vec!["signature verification failed".to_owned()];
        for (manifest, blob) in &signatures {
            let blob = blob.as_ref().and_then(|blob| Some((blob, search.blob(blob)?)));
            let (descriptor, bytes) = blob.ok_or_else(|| {
                format!("unable to retrieve digital signature with digest {manifest:?} associated with {image:?} from the Repository")
            })?;
            let asked =
                NotationVerificationContext { statement, level: &level, subject: &subject, now };
            match self.verify_one(&asked, &descriptor.media_type, bytes) {
                Ok(verdict) => return Ok(verdict),
                Err(why) => {
                    reasons
                        .push(format!("failed to verify signature with digest {manifest}, {why}"));
                }
            }
        }
        if signatures.is_empty() {
            return Err(format!(
                "no signature is associated with {image:?}, make sure the artifact was signed successfully"
            ));
        }
        if signatures.len() >= MOST_NOTATION {
            return Err(format!(
                "signature evaluation stopped. The configured limit of {MOST_NOTATION} signatures to verify per artifact exceeded"
            ));
        }
        Err(reasons.join("\n"))
    }

    fn verify_one(
        &self,
        asked: &NotationVerificationContext<'_>,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<NotationVerdict, String> {
        let envelope =
            NotationEnvelope::verified(media_type, bytes).map_err(|failed| match failed {
                NotationEnvelopeError::Unreadable(why) => {
                    format!("unable to parse the digital signature, error : {why}")
                }
                NotationEnvelopeError::Invalid(why) => why,
            })?;
        if let Some(attribute) = &envelope.unknown_critical {
            return Err(format!(
                "the critical attribute {attribute:?} of the signature is not supported"
            ));
        }
        let Some(leaf) = envelope.chain.first() else {
            return Err("certificate chain is not present".to_owned());
        };
        let mut is_ignored = false;
        let mut judge = |check: NotationCheck, result: Result<(), String>| match (
            result,
            asked.level.action(check),
        ) {
            (Err(why), FailedCheckAction::Enforce) => Err(why),
            (Err(_), _) => {
                // Parity(flux): an image of an untrusted signer that is only logged does not count as verified.
                is_ignored |= check == NotationCheck::Authenticity;
                Ok(())
            }
            (Ok(()), _) => Ok(()),
        };
        judge(NotationCheck::Authenticity, self.is_trusted(asked.statement, &envelope))?;
        judge(NotationCheck::Authenticity, asked.statement.is_identity(leaf))?;
        judge(NotationCheck::Expiry, envelope.is_unexpired(asked.now))?;
        judge(NotationCheck::Timestamp, is_timely(asked, &envelope))?;
        if asked.level.action(NotationCheck::Revocation) != FailedCheckAction::Skip {
            judge(
                NotationCheck::Revocation,
                certificate_chain::has_no_revocation(&envelope.chain),
            )?;
        }
        if !envelope.is_about(asked.subject)? {
            return Err("content descriptor mismatch".to_owned());
        }
        Ok(match is_ignored {
            true => NotationVerdict::Ignored,
            false => NotationVerdict::Verified(leaf.subject_text.clone()),
        })
    }

    /// Whether the chain contains one of the trusted certificates.
    fn is_trusted(
        &self,
        statement: &TrustPolicyStatement,
        envelope: &NotationEnvelope,
    ) -> Result<(), String> {
        let kind = match envelope.scheme {
            SigningScheme::X509 => "ca",
            SigningScheme::Authority => "signingAuthority",
        };
        let store = statement.stores().find(|(it, _)| *it == kind);
        let trusted = match store {
            Some((_, store)) => self
                .trusted()
                .map_err(|why| format!("failed to parse certificate '{store}': {why}"))?,
            None => Vec::new(),
        };
        if trusted.is_empty() {
            return Err("no trusted certificates are found to verify authenticity".to_owned());
        }
        if envelope.chain.iter().any(|certificate| trusted.contains(certificate)) {
            return Ok(());
        }
        Err("the signature's certificate chain does not contain any trusted certificate".to_owned())
    }

    /// Parity(flux): the first block of each entry in PEM; or DER, of which there may be several, if it has no PEM.
    fn trusted(&self) -> Result<Vec<ParsedCertificate>, &'static str> {
        let mut trusted = Vec::new();
        for bytes in &self.certificates {
            let block = pem::first(bytes).map(|block| block.content);
            let mut rest = block.as_deref().unwrap_or(bytes);
            while !rest.is_empty() {
                let (certificate, after) = ParsedCertificate::first(rest)?;
                trusted.push(certificate);
                rest = after;
            }
        }
        Ok(trusted)
    }
}

/// The request to verify a signature.
struct NotationVerificationContext<'a> {
    statement: &'a TrustPolicyStatement,
    level: &'a VerificationLevel,
    subject: &'a OciDescriptor,
    now: i64,
}

/// Checks that the certificates are valid now. For a signing authority, they must have been valid at the signing time.
///
/// # Errors
/// Which certificate was not valid, or that there is no usable timestamp.
fn is_timely(
    asked: &NotationVerificationContext<'_>,
    envelope: &NotationEnvelope,
) -> Result<(), String> {
    let wants_authority = asked.statement.stores().any(|(kind, _)| kind == "tsa");
    if envelope.scheme == SigningScheme::X509 && wants_authority {
        let is_over = envelope.chain.iter().any(|it| it.validity.1 < asked.now);
        if is_over || !asked.statement.wants_timestamp_after_expiry() {
            return Err(if envelope.has_timestamp {
                "timestamps of time authorities are not supported".to_owned()
            } else {
                "no timestamp countersignature was found in the signature envelope".to_owned()
            });
        }
    }
    for certificate in &envelope.chain {
        let (begin, end) = certificate.validity;
        let subject = &certificate.subject_text;
        match envelope.scheme {
            SigningScheme::Authority if !certificate.is_valid_at(envelope.signing_time) => {
                return Err(format!(
                    "certificate {subject:?} was not valid when the digital signature was produced at {:?}",
                    envelope::shown(envelope.signing_time)
                ));
            }
            SigningScheme::Authority => {}
            SigningScheme::X509 if asked.now < begin => {
                return Err(format!(
                    "verification time is before certificate {subject:?} validity period, it will be valid from {:?}",
                    envelope::shown(begin)
                ));
            }
            SigningScheme::X509 if asked.now > end => {
                return Err(format!(
                    "verification time is after certificate {subject:?} validity period, it was expired at {:?}",
                    envelope::shown(end)
                ));
            }
            SigningScheme::X509 => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
