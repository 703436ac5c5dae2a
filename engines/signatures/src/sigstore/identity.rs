//! Identities in Fulcio's certificates, and which of them are accepted.

use std::fmt;

use golang::regexp::GoRegexp;

use crate::der;
use crate::x509::{ParsedCertificate, SubjectAlternativeName};

const ISSUER: &str = "1.3.6.1.4.1.57264.1.1";
const ISSUER_V2: &str = "1.3.6.1.4.1.57264.1.8";
/// A name for users without an email address.
const USER_NAME: &str = "1.3.6.1.4.1.57264.1.7";

/// An accepted identity, as regular expressions. They may match any part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateIdentityMatcher {
    /// The identity provider.
    pub issuer: String,
    /// The user or workflow.
    pub subject: String,
}

/// The subject of a certificate, and the other data that identifies its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateSummary {
    subject: String,
    issuer: String,
}

impl fmt::Display for CertificateSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, as {} says", self.subject, self.issuer)
    }
}

impl CertificateSummary {
    /// Reads the identity from a certificate.
    pub(crate) fn of(certificate: &ParsedCertificate) -> Result<Self, String> {
        let subject = subjects(certificate).into_iter().next();
        let subject = subject.ok_or("no Subject Alternative Name found")?;
        Ok(Self { subject, issuer: issuer(certificate) })
    }
}

/// Parity(flux): addresses of workflows come before mail addresses, these before other names.
fn subjects(certificate: &ParsedCertificate) -> Vec<String> {
    let of = |kind: fn(&SubjectAlternativeName) -> Option<String>| {
        certificate.names.iter().filter_map(kind)
    };
    let uris = of(|name| match name {
        SubjectAlternativeName::Uri(uri) => Some(uri.clone()),
        _ => None,
    });
    let emails = of(|name| match name {
        SubjectAlternativeName::Email(email) => Some(email.clone()),
        _ => None,
    });
    let others = of(|name| match name {
        SubjectAlternativeName::Other(id, value) if id == USER_NAME => user_name(value),
        _ => None,
    });
    uris.chain(emails).chain(others).filter(|name| !name.is_empty()).collect()
}

/// The text in the value of another name of a certificate. `None` if the value is not a text in UTF-8.
fn user_name(value: &[u8]) -> Option<String> {
    let (element, _) = der::read(value)?;
    let element = if element.tag == 0xa0 { der::read(element.content)?.0 } else { element };
    String::from_utf8(element.content.to_vec()).ok().filter(|_| element.tag == 0x0c)
}

/// The identity provider in a certificate; empty if it has none.
fn issuer(certificate: &ParsedCertificate) -> String {
    let newer = certificate.extension(ISSUER_V2).and_then(|value| {
        let (text, rest) = der::read(value)?;
        let is_text = text.tag == 0x0c && rest.is_empty();
        String::from_utf8(text.content.to_vec()).ok().filter(|_| is_text)
    });
    let older = || certificate.extension(ISSUER).map(String::from_utf8_lossy).map(String::from);
    newer.or_else(older).unwrap_or_default()
}

/// Identities that count, with their expressions compiled once for all signatures.
pub(crate) struct AcceptedIdentities {
    /// The single identity that is accepted for bundles.
    of_bundles: Result<BundleIdentityPattern, String>,
    any: Vec<CompiledIdentity>,
}

/// One of the identities that may sign, with its expressions compiled.
struct CompiledIdentity {
    issuer: Result<GoRegexp, String>,
    subject: Result<GoRegexp, String>,
    /// Whether any subject counts.
    is_any: bool,
}

struct BundleIdentityPattern {
    issuer: (String, GoRegexp),
    subject: (String, GoRegexp),
}

impl AcceptedIdentities {
    /// Compiles the identities. An invalid expression is an error only when it is used.
    pub(crate) fn new(identities: &[CertificateIdentityMatcher]) -> Self {
        let compiled = |what: &str, pattern: &str| {
            GoRegexp::new(pattern)
                .map_err(|error| format!("malformed {what} in identity: {pattern} : {error}"))
        };
        let any = identities.iter().map(|identity| CompiledIdentity {
            issuer: compiled("issuer", &identity.issuer),
            subject: compiled("subject", &identity.subject),
            is_any: identity.subject.is_empty(),
        });
        Self { of_bundles: BundleIdentityPattern::of(identities), any: any.collect() }
    }

    /// Checks that there is an identity policy for bundles.
    pub(crate) fn is_usable_for_bundles(&self) -> Result<(), String> {
        self.of_bundles.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Checks that the certificate of a bundle has the single accepted identity.
    pub(crate) fn verify(&self, summary: &CertificateSummary) -> Result<(), String> {
        self.of_bundles.as_ref().map_err(Clone::clone)?.verify(summary)
    }

    /// Checks that a certificate has one of the identities. Without identities every certificate is accepted. Returns the
    /// certificate's subject.
    ///
    /// Parity(flux): for signatures of the older format; an empty expression matches anything.
    pub(super) fn verify_any(&self, certificate: &ParsedCertificate) -> Result<String, String> {
        let subjects = subjects(certificate);
        let issuer = issuer(certificate);
        let shown = || format!("[{}] with issuer {issuer}", subjects.join(" "));
        for identity in &self.any {
            if !identity.issuer.as_ref().map_err(Clone::clone)?.is_match(&issuer) {
                continue;
            }
            let is_subject = identity.subject.as_ref().map_err(Clone::clone)?;
            if identity.is_any || subjects.iter().any(|name| is_subject.is_match(name)) {
                return Ok(shown());
            }
        }
        if self.any.is_empty() {
            return Ok(shown());
        }
        Err(format!(
            "none of the expected identities matched what was in the certificate, got subjects {}",
            shown()
        ))
    }
}

impl BundleIdentityPattern {
    /// Parity(flux): exactly one, with an issuer and a subject.
    fn of(identities: &[CertificateIdentityMatcher]) -> Result<Self, String> {
        let identity = match identities {
            [identity] => identity,
            [] => {
                return Err("failed to build policy: can't verify identities without providing at least one identity".to_owned());
            }
            _ => {
                return Err(
                    "unsupported: multiple identities are not supported at this time".to_owned()
                );
            }
        };
        let compiled = |pattern: &String| {
            let regexp = GoRegexp::new(pattern).map_err(|error| error.to_string())?;
            Ok::<_, String>((pattern.clone(), regexp))
        };
        let subject = compiled(&identity.subject)?;
        let issuer = compiled(&identity.issuer)?;
        if subject.0.is_empty() {
            return Err("when verifying a certificate identity, there must be subject alternative name criteria".to_owned());
        }
        if issuer.0.is_empty() {
            return Err(
                "when verifying a certificate identity, must specify Issuer criteria".to_owned()
            );
        }
        Ok(Self { issuer, subject })
    }

    /// Whether a certificate is for this identity.
    fn verify(&self, summary: &CertificateSummary) -> Result<(), String> {
        let pairs =
            [("SAN", &self.subject, &summary.subject), ("issuer", &self.issuer, &summary.issuer)];
        for (what, (pattern, regexp), value) in pairs {
            if !regexp.is_match(value) {
                return Err(format!(
                    "expected {what} value to match regex {pattern:?}, got {value:?}"
                ));
            }
        }
        Ok(())
    }
}
