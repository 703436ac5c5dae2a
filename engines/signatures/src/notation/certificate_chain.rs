//! Checks the certificate chain in a signature: whether it may sign code.
//!
//! Elsewhere: whether the policy trusts the chain (`notation`).

use super::envelope::shown;
use crate::public_key::PublicKey;
use crate::x509::{DIGITAL_SIGNATURE_BIT, ParsedCertificate, SIGNS_CERTIFICATES};

/// Identifiers of the extensions with addresses for revocation checks, by OCSP and by lists.
const REVOCATION: [&str; 2] = ["1.3.6.1.5.5.7.1.1", "2.5.29.31"];

/// Whether a chain leads from a certificate that signs code to a root that signed itself, all valid at a time.
pub(super) fn check(chain: &[ParsedCertificate], seconds: i64) -> Result<(), String> {
    let (Some(leaf), Some(root)) = (chain.first(), chain.last()) else {
        return Err("certificate chain must contain at least one certificate".to_owned());
    };
    if chain.len() == 1 {
        let of_self = |why: String| {
            format!(
                "invalid self-signed certificate. subject: {:?}. Error: {why}",
                leaf.subject_text
            )
        };
        leaf.is_signed_by(leaf).map_err(of_self)?;
        if !leaf.is_self_issued() {
            return Err(of_self("issuer and subject are not the same".to_owned()));
        }
        is_valid_at(leaf, seconds)?;
        return is_leaf(leaf);
    }
    for (at, pair) in chain.windows(2).enumerate() {
        let [certificate, issuer] = pair else { continue };
        let subject = &certificate.subject_text;
        is_valid_at(certificate, seconds)?;
        if is_self_signed(certificate) {
            let what = if at == 0 { "leaf" } else { "intermediate" };
            return Err(format!(
                "{what} certificate with subject {subject:?} is self-signed. Certificate chain must not contain self-signed {what} certificate"
            ));
        }
        if !certificate.names_issuer(issuer) || certificate.is_signed_by(issuer).is_err() {
            return Err(format!(
                "certificate with subject {subject:?} is not issued by {:?}",
                issuer.subject_text
            ));
        }
        if at == 0 { is_leaf(certificate)? } else { is_authority(certificate, at - 1)? }
    }
    is_valid_at(root, seconds)?;
    if !is_self_signed(root) {
        return Err(format!(
            "root certificate with subject {:?} is not self-signed. Certificate chain must end with a valid self-signed root certificate",
            root.subject_text
        ));
    }
    is_authority(root, chain.len() - 2)
}

/// Checks that no certificate has an address for revocation checks, so that no such check is needed.
pub(super) fn has_no_revocation(chain: &[ParsedCertificate]) -> Result<(), String> {
    let names = |it: &&ParsedCertificate| REVOCATION.iter().any(|id| it.extension(id).is_some());
    match chain.iter().find(names) {
        Some(certificate) => Err(format!(
            "the revocation status of the certificate with subject {:?} is unknown: windlass does not ask OCSP servers or read revocation lists; set `revocation` to `log` or `skip` in `override` of the trust policy",
            certificate.subject_text
        )),
        None => Ok(()),
    }
}

fn is_self_signed(certificate: &ParsedCertificate) -> bool {
    certificate.is_self_issued() && certificate.is_signed_by(certificate).is_ok()
}

fn is_valid_at(certificate: &ParsedCertificate, seconds: i64) -> Result<(), String> {
    if certificate.is_valid_at(seconds) {
        return Ok(());
    }
    let (begin, end) = certificate.validity;
    Err(format!(
        "certificate with subject {:?} was invalid at signing time of {}. Certificate is valid from [{}] to [{}]",
        certificate.subject_text,
        shown(seconds),
        shown(begin),
        shown(end)
    ))
}

fn of(certificate: &ParsedCertificate, why: &str) -> String {
    format!("certificate with subject {:?}: {why}", certificate.subject_text)
}

/// The key usage bits of a certificate. The extension must be present and critical.
fn usage(certificate: &ParsedCertificate) -> Result<u16, String> {
    match certificate.key_usage {
        None => Err(of(certificate, "key usage extension must be present")),
        Some((false, _)) => Err(of(certificate, "key usage extension must be marked critical")),
        Some((true, bits)) => Ok(bits),
    }
}

fn is_leaf(certificate: &ParsedCertificate) -> Result<(), String> {
    /// The usage `keyEncipherment` and all usages after it, which are forbidden. `nonRepudiation` is allowed.
    const FOREIGN_KEY_USAGE_BITS: u16 = 0b1_1111_1100;
    if certificate.authority.is_some_and(|(is_authority, _)| is_authority) {
        let why =
            "if the basic constraints extension is present, the ca field must be set to false";
        return Err(of(certificate, why));
    }
    let bits = usage(certificate)?;
    if bits & DIGITAL_SIGNATURE_BIT == 0 {
        return Err(of(
            certificate,
            "key usage must have the bit positions for digital signature set",
        ));
    }
    if bits & FOREIGN_KEY_USAGE_BITS != 0 {
        return Err(of(certificate, "key usage must be \"DigitalSignature\" only"));
    }
    if certificate.extended.is_some_and(|it| !it.code_signing || it.any || it.foreign) {
        return Err(of(certificate, "extended key usage must be code signing"));
    }
    match &certificate.key {
        Ok(PublicKey::Rsa(_, bits)) if *bits < 2048 => {
            Err(of(certificate, "rsa public key length must be 2048 bits or higher"))
        }
        Ok(PublicKey::Rsa(..) | PublicKey::Ec(..)) => Ok(()),
        _ => Err(of(certificate, "the algorithm of the public key is not supported")),
    }
}

/// Whether a certificate may issue others, with this many authorities below it.
fn is_authority(certificate: &ParsedCertificate, below: usize) -> Result<(), String> {
    let Some((true, most)) = certificate.authority else {
        return Err(of(
            certificate,
            "ca field in basic constraints must be present, critical, and set to true",
        ));
    };
    if most.is_some_and(|most| below as u64 > u64::from(most)) {
        return Err(of(
            certificate,
            &format!("expected path length of {below} but certificate has a smaller one"),
        ));
    }
    if usage(certificate)? & SIGNS_CERTIFICATES == 0 {
        return Err(of(certificate, "key usage must have the bit positions for key cert sign set"));
    }
    Ok(())
}
