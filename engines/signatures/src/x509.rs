//! Certificates: reading them, and finding their issuers.
//!
//! Here: reading ([`ParsedCertificate`]), chains to trusted certificates ([`chain`]). Elsewhere: Notation's requirements for a
//! chain (`notation/chain`), Fulcio's extensions (`sigstore/identity`), DER itself (`der`).

use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate, X509Name};

use crate::public_key::{PublicKey, SignatureHash};

/// Bytes of a certificate.
pub(crate) const MOST_BYTES: usize = 64 << 10;

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedCertificate {
    pub(crate) der: Vec<u8>,
    /// The signed bytes.
    tbs: Vec<u8>,
    signature: Vec<u8>,
    /// The algorithm of the signature, if it is supported.
    algorithm: Option<SignatureAlgorithm>,
    issuer: Vec<u8>,
    subject: Vec<u8>,
    /// The subject in the order and notation of RFC 4514.
    pub(crate) subject_text: String,
    /// The public key with its algorithm, in DER.
    pub(crate) key_info: Vec<u8>,
    pub(crate) key: Result<PublicKey, &'static str>,
    /// Seconds of Unix time, both within.
    pub(crate) validity: (i64, i64),
    /// Whether the certificate may issue others, and how many authorities may be between it and the leaf certificate.
    pub(crate) authority: Option<(bool, Option<u32>)>,
    /// Whether the key usage extension is critical, and its bits, beginning with the lowest.
    pub(crate) key_usage: Option<(bool, u16)>,
    pub(crate) extended: Option<ExtendedKeyUsage>,
    /// Critical extensions that mean nothing to us.
    has_unknown_critical: bool,
    pub(crate) names: Vec<SubjectAlternativeName>,
    /// Other extensions, with identifier and value.
    pub(crate) extensions: Vec<(String, Vec<u8>)>,
}

/// The algorithm of the certificate's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureAlgorithm {
    Rsa(SignatureHash),
    Ecdsa(SignatureHash),
    Ed25519,
}

/// Extended key usages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtendedKeyUsage {
    pub(crate) any: bool,
    pub(crate) code_signing: bool,
    /// Servers, mail, timestamps, OCSP.
    pub(crate) foreign: bool,
}

/// An alternative name of the subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubjectAlternativeName {
    Email(String),
    Uri(String),
    /// Identifier and value in DER.
    Other(String, Vec<u8>),
    Unknown,
}

/// The bit of `keyCertSign`.
pub(crate) const SIGNS_CERTIFICATES: u16 = 1 << 5;
/// The bit of `digitalSignature`.
pub(crate) const DIGITAL_SIGNATURE_BIT: u16 = 1;

impl ParsedCertificate {
    /// Reads one certificate in DER, which must be all of the bytes. The error is a reason.
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, &'static str> {
        let (certificate, rest) = Self::first(der)?;
        if rest.is_empty() { Ok(certificate) } else { Err("x509: trailing data") }
    }

    /// Reads the first certificate, and returns the bytes after it.
    pub(crate) fn first(der: &[u8]) -> Result<(Self, &[u8]), &'static str> {
        if der.first() != Some(&0x30) || der.len() > MOST_BYTES {
            return Err("x509: malformed certificate");
        }
        let (rest, parsed) =
            X509Certificate::from_der(der).map_err(|_| "x509: malformed tbs certificate")?;
        let whole = der.get(..der.len() - rest.len()).unwrap_or_default();
        if !is_outer_right(whole, &parsed) {
            return Err("x509: inner and outer signature algorithm identifiers don't match");
        }
        let algorithm = algorithm(&parsed.signature_algorithm.algorithm.to_id_string());
        let malformed = "x509: malformed extension";
        let authority = parsed.basic_constraints().map_err(|_| malformed)?;
        let usage = parsed.key_usage().map_err(|_| malformed)?;
        let extended = parsed.extended_key_usage().map_err(|_| malformed)?;
        let names = parsed.subject_alternative_name().map_err(|_| malformed)?;
        let certificate = Self {
            der: whole.to_vec(),
            tbs: parsed.tbs_certificate.as_ref().to_vec(),
            signature: parsed.signature_value.data.to_vec(),
            algorithm,
            issuer: parsed.issuer().as_raw().to_vec(),
            subject: parsed.subject().as_raw().to_vec(),
            subject_text: text(parsed.subject()),
            key_info: parsed.public_key().raw.to_vec(),
            key: PublicKey::from_info(parsed.public_key()),
            validity: (
                parsed.validity().not_before.timestamp(),
                parsed.validity().not_after.timestamp(),
            ),
            authority: authority.map(|it| (it.value.ca, it.value.path_len_constraint)),
            key_usage: usage.map(|it| (it.critical, it.value.flags)),
            extended: extended.map(|it| ExtendedKeyUsage {
                any: it.value.any,
                code_signing: it.value.code_signing,
                foreign: it.value.server_auth
                    || it.value.email_protection
                    || it.value.time_stamping
                    || it.value.ocsp_signing,
            }),
            has_unknown_critical: parsed.extensions().iter().any(|extension| {
                extension.critical && !KNOWN.contains(&extension.oid.to_id_string().as_str())
            }),
            names: names
                .map(|it| it.value.general_names.iter().map(name).collect())
                .unwrap_or_default(),
            extensions: parsed
                .extensions()
                .iter()
                .map(|extension| (extension.oid.to_id_string(), extension.value.to_vec()))
                .collect(),
        };
        Ok((certificate, rest))
    }

    /// Checks that the key of `issuer` signed this certificate. The allowed purposes of that key are not checked here.
    ///
    /// Parity(flux): SHA-1 and MD5 do not count.
    pub(crate) fn is_signed_by(&self, issuer: &Self) -> Result<(), String> {
        let key = issuer.key.as_ref().map_err(|why| (*why).to_owned())?;
        let hash = match (self.algorithm, key) {
            (Some(SignatureAlgorithm::Rsa(hash)), PublicKey::Rsa(..)) => hash,
            (Some(SignatureAlgorithm::Ecdsa(hash)), PublicKey::Ec(..)) => hash,
            (Some(SignatureAlgorithm::Ed25519), PublicKey::Ed25519(_)) => SignatureHash::Sha256,
            (None, _) => return Err("x509: unsupported signature algorithm".to_owned()),
            _ => return Err("x509: the issuer has a key of another kind".to_owned()),
        };
        key.verify(hash, &self.tbs, &self.signature).map_err(|wrong| match wrong {
            crate::public_key::SignatureFault::Rsa => wrong.to_string(),
            _ => "x509: ECDSA verification failure".to_owned(),
        })
    }

    /// Whether the names in this certificate identify `issuer` as its issuer.
    pub(crate) fn names_issuer(&self, issuer: &Self) -> bool {
        self.issuer == issuer.subject
    }

    pub(crate) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    pub(crate) fn is_valid_at(&self, seconds: i64) -> bool {
        (self.validity.0..=self.validity.1).contains(&seconds)
    }

    /// The value of the certificate's extension with this object identifier, such as `2.5.29.17`. `None` if the certificate
    /// does not have it.
    pub(crate) fn extension(&self, id: &str) -> Option<&[u8]> {
        self.extensions.iter().find(|(it, _)| it == id).map(|(_, value)| value.as_slice())
    }

    /// The signed bytes, in DER.
    pub(crate) fn tbs(&self) -> &[u8] {
        &self.tbs
    }

    /// Whether this certificate may have issued another one, with this many authorities below it.
    fn may_issue(&self, below: usize) -> bool {
        let Some((true, most)) = self.authority else { return false };
        most.is_none_or(|most| below as u64 <= u64::from(most))
            && self.key_usage.is_none_or(|(_, bits)| bits & SIGNS_CERTIFICATES != 0)
            && !self.has_unknown_critical
    }

    fn may_sign_code(&self) -> bool {
        self.extended.is_none_or(|usage| usage.any || usage.code_signing)
    }
}

/// Extensions that are read, by their identifiers. Constraints of names are not.
const KNOWN: [&str; 6] =
    ["2.5.29.14", "2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.35", "2.5.29.37"];

fn algorithm(id: &str) -> Option<SignatureAlgorithm> {
    Some(match id {
        "1.2.840.113549.1.1.11" => SignatureAlgorithm::Rsa(SignatureHash::Sha256),
        "1.2.840.113549.1.1.12" => SignatureAlgorithm::Rsa(SignatureHash::Sha384),
        "1.2.840.113549.1.1.13" => SignatureAlgorithm::Rsa(SignatureHash::Sha512),
        "1.2.840.10045.4.3.2" => SignatureAlgorithm::Ecdsa(SignatureHash::Sha256),
        "1.2.840.10045.4.3.3" => SignatureAlgorithm::Ecdsa(SignatureHash::Sha384),
        "1.2.840.10045.4.3.4" => SignatureAlgorithm::Ecdsa(SignatureHash::Sha512),
        "1.3.101.112" => SignatureAlgorithm::Ed25519,
        _ => return None,
    })
}

fn name(name: &GeneralName<'_>) -> SubjectAlternativeName {
    match name {
        GeneralName::RFC822Name(text) => SubjectAlternativeName::Email((*text).to_owned()),
        GeneralName::URI(text) => SubjectAlternativeName::Uri((*text).to_owned()),
        GeneralName::OtherName(id, value) => {
            SubjectAlternativeName::Other(id.to_id_string(), value.to_vec())
        }
        _ => SubjectAlternativeName::Unknown,
    }
}

/// Short names of attributes, by their identifiers.
const ATTRIBUTES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "SERIALNUMBER"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.17", "POSTALCODE"),
];

fn text(name: &X509Name<'_>) -> String {
    let mut relative: Vec<String> = Vec::new();
    for attributes in name.iter_rdn() {
        let attributes: Vec<String> = attributes
            .iter()
            .map(|attribute| {
                let id = attribute.attr_type().to_id_string();
                let short = ATTRIBUTES.iter().find(|(known, _)| *known == id);
                let value = attribute.as_str().map_or_else(
                    |_| format!("#{}", crate::referrers::hex(attribute.as_slice())),
                    escaped,
                );
                format!("{}={value}", short.map_or(id.as_str(), |(_, short)| short))
            })
            .collect();
        relative.push(attributes.join("+"));
    }
    relative.reverse();
    relative.join(",")
}

/// A value in the form of RFC 4514.
fn escaped(value: &str) -> String {
    let mut escaped = String::new();
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let is_edge = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        if is_edge || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Steps of the search for a chain.
const MOST_STEPS: usize = 64;
/// The most signatures that are verified in one search.
const MOST_VERIFIED: usize = 32;
/// Certificates of a chain.
const MOST_CHAIN: usize = 8;

/// The issuer of `leaf`, if a chain leads to a trusted certificate. All certificates must be valid at the given time and
/// allowed to sign code.
///
/// Parity(flux): as Go verifies; trusted certificates need not sign themselves. Differs(flux): constraints of names in a
/// critical extension are not known, so nothing is trusted by way of them.
pub(crate) fn chain<'c>(
    leaf: &ParsedCertificate,
    between: &'c [ParsedCertificate],
    trusted: &'c [ParsedCertificate],
    seconds: i64,
) -> Option<&'c ParsedCertificate> {
    if !leaf.is_valid_at(seconds) || !leaf.may_sign_code() {
        return None;
    }
    let mut left = MOST_VERIFIED;
    let mut issued = |issuer: &ParsedCertificate, of: &ParsedCertificate, below: usize| {
        let may_have_issued = of.names_issuer(issuer)
            && issuer.is_valid_at(seconds)
            && issuer.may_sign_code()
            && issuer.may_issue(below);
        if !may_have_issued || left == 0 {
            return false;
        }
        left -= 1;
        of.is_signed_by(issuer).is_ok()
    };
    let mut paths: Vec<Vec<&'c ParsedCertificate>> = vec![Vec::new()];
    for _ in 0..MOST_STEPS {
        let path = paths.pop()?;
        let last = path.last().copied().unwrap_or(leaf);
        let below = path.iter().filter(|it| !it.is_self_issued()).count();
        if let Some(root) = trusted.iter().find(|root| issued(root, last, below)) {
            return Some(path.first().copied().unwrap_or(root));
        }
        if path.len() >= MOST_CHAIN {
            continue;
        }
        for next in between {
            if !path.contains(&next) && issued(next, last, below) {
                let mut longer = path.clone();
                longer.push(next);
                paths.push(longer);
            }
        }
    }
    None
}

/// Whether the unsigned outer part is consistent: its algorithm equals that of the signed part byte by byte, and the tags are
/// correct. The parser does not check these.
fn is_outer_right(whole: &[u8], parsed: &X509Certificate<'_>) -> bool {
    let signed = parsed.tbs_certificate.as_ref();
    let before = signed.as_ptr().addr().checked_sub(whole.as_ptr().addr());
    let outer = before.and_then(|before| whole.get(before + signed.len()..)).unwrap_or_default();
    // The element is short: a tag, a length of one byte, and the content.
    let length = outer.get(1).map_or(0, |length| usize::from(*length) + 2);
    let Some((algorithm, value)) = outer.split_at_checked(length) else { return false };
    let is_signed = length > 2 && signed.windows(length).any(|part| part == algorithm);
    parsed.tbs_certificate.signature == parsed.signature_algorithm
        && is_signed
        && value.first() == Some(&0x03)
        && parsed.signature_value.unused_bits == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sigstore::SigstoreTrustedRoot;

    #[test]
    fn a_certificate_with_any_bit_changed_is_not_the_one_that_was_signed() {
        let root = SigstoreTrustedRoot::public().unwrap();
        let (certificate, issuer) = root.issued().unwrap();
        assert_eq!(certificate.is_signed_by(issuer), Ok(()));
        for at in 0..certificate.der.len() {
            for bit in [0, 7] {
                let mut changed = certificate.der.clone();
                changed[at] ^= 1 << bit;
                let read = ParsedCertificate::from_der(&changed);
                let is_accepted = read.is_ok_and(|it| it.is_signed_by(issuer).is_ok());
                assert!(!is_accepted, "bit {bit} of byte {at} of {}", changed.len());
            }
            assert!(ParsedCertificate::from_der(&certificate.der[..at]).is_err());
        }
    }

    #[test]
    fn a_chain_ends_at_a_trusted_certificate_that_is_valid_then() {
        let root = SigstoreTrustedRoot::public().unwrap();
        let (between, trusted) = root.issued().unwrap();
        let leaf = between.clone();
        let trusted = std::slice::from_ref(trusted);
        let (begin, end) = leaf.validity;
        assert_eq!(chain(&leaf, &[], trusted, begin), trusted.first());
        assert_eq!(chain(&leaf, &[], trusted, begin - 1), None);
        assert_eq!(chain(&leaf, &[], trusted, end + 1), None);
        assert_eq!(chain(&leaf, trusted, &[], begin), None);
        assert_eq!(chain(&leaf, &[], std::slice::from_ref(&leaf), begin), None);
    }
}
