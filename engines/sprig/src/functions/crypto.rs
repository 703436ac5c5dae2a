//! The template functions for keys, certificates and passwords.
//!
//! Below: private keys (`key.rs`, `dsa.rs`), certificates (`certificate.rs`), PEM (`pem.rs`), passwords (`passwords.rs`)
//! and encryption with passwords (`aes.rs`).

pub(super) mod aes;
mod certificate;
mod dsa;
mod key;
pub(super) mod passwords;
mod pem;

use aws_lc_rs::rsa::KeySize;
use golang::GoRuntimeValue;
use gotemplate::{FunctionCallContext, TemplateFunctionError};

use super::encoding::decode64;
use crate::arguments::{MAP_ENTRY_OVERHEAD_BYTES, any, int, text, walked};
use crate::function_table::{SprigFunctionEntry, bounded, random};
use crate::template_environment::RandomBytesEnvironment;
use certificate::{CertificateAndKey, CertificateAuthority, CertificateFields};
use key::PrivateKey;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    random("genPrivateKey", "func(string) string", gen_private_key),
    random("genCA", "func(string, int) (sprig.certificate, error)", gen_ca),
    random("genCAWithKey", "func(string, int, string) (sprig.certificate, error)", gen_ca_with_key),
    random(
        "genSelfSignedCert",
        "func(string, []interface {}, []interface {}, int) (sprig.certificate, error)",
        gen_self_signed_cert,
    ),
    random(
        "genSelfSignedCertWithKey",
        "func(string, []interface {}, []interface {}, int, string) (sprig.certificate, error)",
        gen_self_signed_cert_with_key,
    ),
    random(
        "genSignedCert",
        "func(string, []interface {}, []interface {}, int, sprig.certificate) (sprig.certificate, error)",
        gen_signed_cert,
    ),
    random(
        "genSignedCertWithKey",
        "func(string, []interface {}, []interface {}, int, sprig.certificate, string) (sprig.certificate, error)",
        gen_signed_cert_with_key,
    ),
    bounded(
        "buildCustomCert",
        "func(string, string) (sprig.certificate, error)",
        build_custom_cert,
    ),
];

/// The steps that count for a signature, including reading its keys, and for an RSA key with 2048 bits. Neither can be
/// interrupted.
const SIGNATURE_STEPS: usize = 200_000;
const KEY_GENERATION_STEPS: usize = 2_000_000;

/// The memory of a certificate and its key, in bytes.
const CERTIFICATE_BYTES: usize = 8 << 10;

/// Generates a private key in PEM: `rsa` (4096 bits, also for an empty text), `dsa`, `ecdsa` (P-256) or `ed25519`.
fn gen_private_key(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    call.work(SIGNATURE_STEPS)?;
    call.produce(CERTIFICATE_BYTES + text(args, 0).len())?;
    let key = match text(args, 0) {
        b"" | b"rsa" => {
            call.work(10 * KEY_GENERATION_STEPS)?;
            PrivateKey::rsa(KeySize::Rsa4096)?
        }
        b"dsa" => {
            PrivateKey::Dsa(dsa::generate(template_environment, &mut |steps| call.work(steps))?)
        }
        b"ecdsa" => PrivateKey::p256(template_environment)?,
        b"ed25519" => PrivateKey::ed25519(template_environment)?,
        other => return Ok(GoRuntimeValue::string([b"Unknown type ", other].concat())),
    };
    Ok(GoRuntimeValue::from(key.to_pem()))
}

/// Generates a self-signed certificate authority, from a common name and the number of days that it is valid.
fn gen_ca(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let key = new_key(call)?;
    ca(template_environment, call, args, &key)
}

/// [`gen_ca`] with a private key in PEM.
fn gen_ca_with_key(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let key = given_key(call, args, 2)?;
    ca(template_environment, call, args, &key)
}

fn ca(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
    key: &PrivateKey,
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    call.work(SIGNATURE_STEPS)?;
    call.produce(text(args, 0).len().saturating_mul(3) + CERTIFICATE_BYTES)?;
    let request = CertificateFields {
        is_authority: true,
        ..CertificateFields::new(text(args, 0), int(args, 1))
    };
    certificate::self_signed(template_environment, &request, key)
}

/// Generates a self-signed certificate, from a common name, IP addresses, host names, and the number of days that it is valid.
fn gen_self_signed_cert(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let request = request(call, args)?;
    let key = new_key(call)?;
    call.work(SIGNATURE_STEPS)?;
    certificate::self_signed(template_environment, &request, &key)
}

/// [`gen_self_signed_cert`] with a private key in PEM.
fn gen_self_signed_cert_with_key(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    call.work(SIGNATURE_STEPS)?;
    let key = given_key(call, args, 4)?;
    certificate::self_signed(template_environment, &request(call, args)?, &key)
}

/// Generates a certificate that an authority signs. The arguments are those of [`gen_self_signed_cert`], then the authority.
fn gen_signed_cert(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let authority = CertificateAuthority::parse(any(args, 4))?;
    let request = request(call, args)?;
    let key = new_key(call)?;
    call.work(SIGNATURE_STEPS)?;
    certificate::signed(template_environment, &request, &key, &authority)
}

/// [`gen_signed_cert`] with a private key in PEM.
fn gen_signed_cert_with_key(
    template_environment: RandomBytesEnvironment<'_>,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    call.work(SIGNATURE_STEPS)?;
    let key = given_key(call, args, 5)?;
    let authority = CertificateAuthority::parse(any(args, 4))?;
    certificate::signed(template_environment, &request(call, args)?, &key, &authority)
}

/// Reads an existing certificate and its key. Both are PEM, encoded in base64.
fn build_custom_cert(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let encoded = [text(args, 0), text(args, 1)];
    call.work(SIGNATURE_STEPS + encoded[0].len() + encoded[1].len())?;
    call.produce(encoded[0].len() + encoded[1].len())?;
    let cert = decode64(encoded[0]).map_err(|_| "unable to decode base64 certificate")?;
    let key = decode64(encoded[1]).map_err(|_| "unable to decode base64 private key")?;
    let block = pem::decode(&cert).ok_or("unable to decode certificate")?;
    certificate::check(&block.bytes)
        .map_err(|error| format!("error parsing certificate: decodedCert.Bytes: {error}"))?;
    PrivateKey::from_pem(&key).map_err(|error| format!("error parsing private key: {error}"))?;
    Ok(GoRuntimeValue::object(CertificateAndKey { cert: cert.into(), key: key.into() }))
}

fn new_key(call: &mut FunctionCallContext<'_>) -> Result<PrivateKey, TemplateFunctionError> {
    call.work(KEY_GENERATION_STEPS)?;
    Ok(PrivateKey::rsa(KeySize::Rsa2048)?)
}

fn given_key(
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
    at: usize,
) -> Result<PrivateKey, TemplateFunctionError> {
    let pem = text(args, at);
    call.work(SIGNATURE_STEPS + pem.len())?;
    call.has_room(pem.len().saturating_mul(2))?;
    let key = PrivateKey::from_pem(pem);
    Ok(key.map_err(|error| format!("parsing private key: {error}"))?)
}

/// Reads the arguments that most of the functions share.
///
/// The names and addresses of a certificate count three times: as arguments, in DER and in PEM.
fn request<'v>(
    call: &mut FunctionCallContext<'_>,
    args: &'v [GoRuntimeValue],
) -> Result<CertificateFields<'v>, TemplateFunctionError> {
    walked(call, any(args, 1), MAP_ENTRY_OVERHEAD_BYTES)?;
    walked(call, any(args, 2), MAP_ENTRY_OVERHEAD_BYTES)?;
    call.produce(text(args, 0).len().saturating_mul(3) + CERTIFICATE_BYTES)?;
    let addresses = certificate::addresses(any(args, 1))?;
    let hosts = certificate::hosts(any(args, 2))?;
    Ok(CertificateFields {
        addresses,
        hosts,
        ..CertificateFields::new(text(args, 0), int(args, 3))
    })
}

#[cfg(test)]
mod tests;
