//! OpenPGP signatures.
//!
//! The crate rPGP does the cryptography. Which keys and signatures are valid is decided here, as by ProtonMail/go-crypto.

pub(crate) mod armor;
mod brainpool;
mod keyring;
pub mod secret_key_bounds;
mod signature_validity;
mod signing_key;
mod verifying_key;

use pgp::packet::{Packet, Signature, SignatureType};
use pgp::types::{KeyId, VerifyingKey};

pub(crate) use self::keyring::{PgpEntity, PgpVerificationBudget, read as read_ring};
use self::signature_validity::KeyWithSelfSignature;
pub use self::signing_key::OpenPgpSigningKey;
use self::verifying_key::PgpVerifyingKey;

/// The most signatures in one block.
const MAX_SIGNATURES: usize = 16;

/// The largest armored signature.
const MAX_SIGNATURE_BYTES: usize = 1 << 20;

/// Verifies a signature with the keys in some armored rings. Returns the id of the primary key that made the signature.
///
/// # Errors
/// Why no key made the signature, in Flux's words.
pub(crate) fn verify_any(
    signature: &[u8],
    payload: &[u8],
    rings: &[&[u8]],
    now: u64,
) -> Result<String, String> {
    if payload.is_empty() {
        return Err("unable to verify payload: payload is empty".to_owned());
    }
    if signature.len() > MAX_SIGNATURE_BYTES {
        return Err(format!(
            "unable to verify payload: the signature is larger than {MAX_SIGNATURE_BYTES} bytes"
        ));
    }
    let block = armor::first(signature).filter(|it| it.kind == "PGP SIGNATURE");
    let content = block.map(|it| it.content).unwrap_or_default();
    let mut effort = PgpVerificationBudget::default();
    let mut problem = None;
    let mut is_tried = false;
    for ring in rings {
        match armored_ring(ring, &mut effort) {
            Ok(entities) => {
                is_tried = true;
                // Parity(flux): what is wrong with a signature of a known key is not reported.
                if let Ok(entity) = check(&content, payload, &entities, now, &mut effort) {
                    return Ok(entity.id());
                }
            }
            Err(why) => drop(problem.get_or_insert(why)),
        }
    }
    match problem {
        Some(why) if !is_tried => Err(format!("unable to read armored key ring: {why}")),
        _ => {
            Err("unable to verify payload with any of the given key rings: no matching key"
                .to_owned())
        }
    }
}

fn armored_ring(text: &[u8], effort: &mut PgpVerificationBudget) -> Result<Vec<PgpEntity>, String> {
    let Some(block) = armor::first(text) else {
        return Err("openpgp: invalid argument: no armored data found".to_owned());
    };
    if !["PGP PUBLIC KEY BLOCK", "PGP PRIVATE KEY BLOCK"].contains(&block.kind.as_str()) {
        return Err(format!(
            "openpgp: invalid argument: expected public or private key block, got: {}",
            block.kind
        ));
    }
    if let Some(why) = block.broken {
        return Err(why.to_owned());
    }
    read_ring(&block.content, effort)
}

/// The signer of the first signature that a known key made, if the signature is valid.
///
/// # Errors
/// No key is known, or the signature or the key is not valid. The message is go-crypto's.
pub(crate) fn check<'e>(
    signatures: &[u8],
    payload: &[u8],
    entities: &'e [PgpEntity],
    now: u64,
    effort: &mut PgpVerificationBudget,
) -> Result<&'e PgpEntity, String> {
    for packet in keyring::packets(signatures).take(MAX_SIGNATURES) {
        let Packet::Signature(signature) = packet? else {
            return Err("openpgp: invalid data: non signature packet found".to_owned());
        };
        let Some(id) = keyring::issuer(&signature) else {
            return Err("openpgp: invalid data: signature doesn't have an issuer".to_owned());
        };
        let mut problem = None;
        for entity in entities {
            match check_with(&signature, payload, entity, id, now, effort) {
                Ok(true) => return Ok(entity),
                Ok(false) => {}
                // The key made the signature, but the signature or key is not valid, so the search ends. Otherwise another key
                // may match.
                Err(PgpSignatureCheckError::Final(why)) => return Err(why),
                Err(PgpSignatureCheckError::Other(why)) => problem = Some(why),
            }
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
    }
    Err("openpgp: signature made by unknown entity".to_owned())
}

enum PgpSignatureCheckError {
    /// The signature is by the key, and the signature or the key is not valid.
    Final(String),
    /// The signature is not the key's.
    Other(String),
}

/// Whether an entity made a signature; `false` if no key of the entity with this id may sign.
fn check_with(
    signature: &Signature,
    payload: &[u8],
    entity: &PgpEntity,
    id: KeyId,
    now: u64,
    effort: &mut PgpVerificationBudget,
) -> Result<bool, PgpSignatureCheckError> {
    let mut problem = None;
    let good = |subkey| {
        let revocations = &entity.identity_revocations;
        let checked =
            signature_validity::check(signature, &entity.primary, revocations, subkey, now);
        checked.map(|()| true).map_err(PgpSignatureCheckError::Final)
    };
    match is_made_with(signature, payload, &entity.primary, id, effort) {
        Some(Ok(())) => return good(None),
        Some(Err(why)) => problem = Some(why),
        None => {}
    }
    for subkey in &entity.subkeys {
        match is_made_with(signature, payload, subkey, id, effort) {
            Some(Ok(())) => return good(Some(subkey)),
            Some(Err(why)) => problem = Some(why),
            None => {}
        }
    }
    problem.map_or(Ok(false), |why| Err(PgpSignatureCheckError::Other(why)))
}

/// Whether a key made a signature; `None` if the key has another id or may not sign.
fn is_made_with<K: VerifyingKey>(
    signature: &Signature,
    payload: &[u8],
    with: &KeyWithSelfSignature<K>,
    id: KeyId,
    effort: &mut PgpVerificationBudget,
) -> Option<Result<(), String>> {
    let may_sign = with.signature.as_ref().is_some_and(signature_validity::may_sign);
    if with.key.legacy_key_id() != id || !may_sign {
        return None;
    }
    // For other types, rPGP hashes only one byte of the payload.
    if !matches!(signature.typ(), Some(SignatureType::Binary | SignatureType::Text)) {
        let kind = signature.typ().map_or(0, u8::from);
        let why = "openpgp: unsupported feature: unsupported signature type";
        return Some(Err(format!("{why}: {kind}")));
    }
    let is_made = effort.take_message(payload.len())
        && signature.verify(&PgpVerifyingKey(&with.key), payload).is_ok();
    let failure = || {
        format!(
            "openpgp: invalid signature: {} verification failure",
            verifying_key::algorithm(&with.key)
        )
    };
    Some(if is_made { Ok(()) } else { Err(failure()) })
}

#[cfg(test)]
mod tests;
