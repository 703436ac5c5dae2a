//! Decides which signatures and keys are valid now.
//!
//! Source: ProtonMail/go-crypto 1.4 as Flux and Helm call it. A key must not be expired or revoked at the present time. The
//! time of the signature does not matter for that.

use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{RevocationCode, Signature, SignatureVersion, SubpacketData};
use pgp::types::{KeyDetails, Timestamp};

/// A key, with its owner's self-signature.
#[derive(Debug)]
pub(super) struct KeyWithSelfSignature<K> {
    pub(super) key: K,
    /// The newest self-signature or binding.
    pub(super) signature: Option<Signature>,
    pub(super) revocations: Vec<Signature>,
}

fn seconds(time: Timestamp) -> u64 {
    u64::from(time.as_secs())
}

/// When a signature was made. Signatures without a time are not read.
pub(super) fn created(signature: &Signature) -> u64 {
    signature.created().map(seconds).unwrap_or_default()
}

/// Whether something is of the future, or over.
fn is_past(created: u64, lifetime: Option<u64>, now: u64) -> bool {
    let end = lifetime.filter(|it| *it > 0).map(|it| created.saturating_add(it));
    created > now || end.is_some_and(|end| now > end)
}

fn is_expired(signature: &Signature, now: u64) -> bool {
    let lifetime = signature.signature_expiration_time().map(|it| u64::from(it.as_secs()));
    is_past(created(signature), lifetime, now)
}

/// Whether a key is of the future, or has expired by its owner's self-signature.
fn is_key_expired(key: &impl KeyDetails, says: &Signature, now: u64) -> bool {
    let lifetime = says.key_expiration_time().map(|it| u64::from(it.as_secs()));
    is_past(seconds(key.created_at()), lifetime, now)
}

/// Whether any revocation is in force. The revocation of a compromised key stays in force even after its own expiry.
fn is_revoked(revocations: &[Signature], now: u64) -> bool {
    revocations.iter().any(|it| {
        let is_compromised =
            matches!(it.revocation_reason_code(), Some(RevocationCode::KeyCompromised));
        is_compromised || !is_expired(it, now)
    })
}

/// Whether a key may sign data, by the flags in its signature.
pub(super) fn may_sign(signature: &Signature) -> bool {
    let mut subpackets = signature.config().into_iter().flat_map(|it| it.hashed_subpackets());
    subpackets.any(|it| matches!(&it.data, SubpacketData::KeyFlags(flags) if flags.sign()))
}

fn unknown_critical_notation(signature: &Signature) -> Option<String> {
    let mut subpackets = signature.config().into_iter().flat_map(|it| it.hashed_subpackets());
    subpackets.find_map(|it| match &it.data {
        SubpacketData::Notation(notation) if it.is_critical => {
            Some(String::from_utf8_lossy(&notation.name).into_owned())
        }
        _ => None,
    })
}

/// Whether a signature is skipped, because of an old version, a weak digest, or an unknown critical subpacket.
pub(super) fn is_unsupported(signature: &Signature) -> bool {
    let Some(config) = signature.config() else { return true };
    let is_known = matches!(config.version(), SignatureVersion::V4 | SignatureVersion::V6);
    // Parity(flux): SHA-1 counts.
    let is_strong = matches!(
        config.hash_alg,
        HashAlgorithm::Sha1
            | HashAlgorithm::Sha224
            | HashAlgorithm::Sha256
            | HashAlgorithm::Sha384
            | HashAlgorithm::Sha512
            | HashAlgorithm::Sha3_256
            | HashAlgorithm::Sha3_512
    );
    let mut subpackets = config.hashed_subpackets();
    let has_unknown = subpackets.any(|it| {
        let is_other =
            matches!(it.data, SubpacketData::Other(..) | SubpacketData::Experimental(..));
        (it.is_critical && is_other)
            || matches!(it.data, SubpacketData::ExportableCertification(false))
    });
    !is_known || !is_strong || has_unknown
}

/// Checks that the signature of a key is valid now: the key, its owner and all bindings between them.
///
/// # Errors
/// Which part is not valid, in go-crypto's words.
pub(super) fn check<P: KeyDetails, S: KeyDetails>(
    signature: &Signature,
    primary: &KeyWithSelfSignature<P>,
    identity_revocations: &[Signature],
    subkey: Option<&KeyWithSelfSignature<S>>,
    now: u64,
) -> Result<(), String> {
    const UNBOUND: &str = "openpgp: signature made by unknown entity";
    let says = primary.signature.as_ref().ok_or(UNBOUND)?;
    let binding = subkey.map(|subkey| subkey.signature.as_ref().ok_or(UNBOUND)).transpose()?;
    let embedded = binding.and_then(Signature::embedded_signature);
    let all = [Some(signature), Some(says), binding, embedded];
    let all = || all.iter().flatten();
    if let Some(name) = all().find_map(|it| unknown_critical_notation(it)) {
        return Err(format!("openpgp: invalid signature: unknown critical notation: {name}"));
    }
    let is_revoked = is_revoked(&primary.revocations, now)
        || is_revoked(identity_revocations, now)
        || subkey.is_some_and(|subkey| is_revoked(&subkey.revocations, now));
    if is_revoked {
        return Err("openpgp: signature made by revoked key".to_owned());
    }
    let is_over = is_key_expired(&primary.key, says, now)
        || subkey.zip(binding).is_some_and(|(it, says)| is_key_expired(&it.key, says, now));
    if is_over {
        return Err("openpgp: key expired".to_owned());
    }
    match all().any(|it| is_expired(it, now)) {
        true => Err("openpgp: signature expired".to_owned()),
        false => Ok(()),
    }
}
