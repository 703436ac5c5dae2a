//! Key rings: keys with the identities and subkeys that their owners signed. If a self-signature of a key is not valid, the key
//! is ignored with all that belongs to it. Other keys of the ring are still used.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pgp::errors::Error;
use pgp::packet::{
    Packet, PacketParser, PublicKey, PublicSubkey, Signature, SignatureType, UserId,
};
use pgp::types::{Fingerprint, KeyDetails as _, KeyId, Tag};

use super::signature_validity::{self, KeyWithSelfSignature};
use super::verifying_key::{PgpVerifyingKey, is_usable};

/// The most signatures of key rings and messages that are verified.
const MAX_VERIFIED: usize = 1_000;

const BAD_TAG: &str = "openpgp: invalid data: tag byte does not have MSB set";
const BAD_PACKET: &str = "openpgp: invalid data: a packet cannot be parsed";

/// The most message bytes that are hashed in total. Each verified signature hashes its whole message again.
const MAX_HASHED_BYTES: usize = 1 << 30;

/// Counts the work for verifications.
pub(crate) struct PgpVerificationBudget {
    signatures: usize,
    bytes: usize,
}

impl Default for PgpVerificationBudget {
    fn default() -> Self {
        Self { signatures: MAX_VERIFIED, bytes: MAX_HASHED_BYTES }
    }
}

impl PgpVerificationBudget {
    /// Whether another signature may be verified.
    pub(crate) fn take(&mut self) -> bool {
        let left = self.signatures.checked_sub(1);
        self.signatures = left.unwrap_or_default();
        left.is_some()
    }

    /// Whether another signature of a message with this many bytes may be verified.
    pub(crate) fn take_message(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or_default();
        left.is_some() && self.take()
    }
}

/// The owner's self-signatures about one name.
#[derive(Default)]
struct PgpUserIdSignatures {
    signature: Option<Signature>,
    revocations: Vec<Signature>,
}

/// A primary key with its identities and subkeys.
pub(crate) struct PgpEntity {
    pub(super) primary: KeyWithSelfSignature<PublicKey>,
    /// The names of the owner. Each name is signed.
    pub(crate) names: Vec<String>,
    /// The revocations of the primary identity.
    pub(super) identity_revocations: Vec<Signature>,
    pub(super) subkeys: Vec<KeyWithSelfSignature<PublicSubkey>>,
}

impl PgpEntity {
    /// The id of the primary key, also where a subkey signs.
    pub(crate) fn id(&self) -> String {
        self.primary.key.legacy_key_id().to_string().to_uppercase()
    }

    /// The fingerprint of the primary key.
    pub(crate) fn fingerprint(&self) -> String {
        self.primary.key.fingerprint().to_string().to_uppercase()
    }
}

/// Reads all usable keys of a ring.
///
/// # Errors
/// No key can be used, or the ring ends in something that is not a key. The message is go-crypto's where go-crypto has one.
pub(crate) fn read(
    content: &[u8],
    effort: &mut PgpVerificationBudget,
) -> Result<Vec<PgpEntity>, String> {
    // rPGP computes with the numbers of private keys while reading them, and panics if these are inconsistent.
    let reading = AssertUnwindSafe(|| read_entities(content, effort));
    catch_unwind(reading).unwrap_or_else(|_panic| Err(BAD_PACKET.to_owned()))
}

fn read_entities(
    content: &[u8],
    effort: &mut PgpVerificationBudget,
) -> Result<Vec<PgpEntity>, String> {
    let mut entities = Vec::new();
    let mut problem = None;
    let mut packets = PgpPackets::new(content);
    while let Some(first) = packets.next() {
        let entity = match first {
            Ok(Packet::PublicKey(key)) => entity(key, &mut packets, effort),
            Ok(Packet::SecretKey(key)) => entity(key.public_key().clone(), &mut packets, effort),
            Ok(_) => {
                Err("openpgp: invalid data: first packet was not a public/private key".to_owned())
            }
            Err(why) => Err(why),
        };
        match entity {
            Ok(entity) => entities.push(entity),
            Err(why) => {
                problem = Some(why);
                packets.skip_key()?;
            }
        }
    }
    match problem {
        Some(why) if entities.is_empty() => Err(why),
        _ => Ok(entities),
    }
}

fn entity(
    key: PublicKey,
    packets: &mut PgpPackets<'_>,
    effort: &mut PgpVerificationBudget,
) -> Result<PgpEntity, String> {
    if !is_usable(&key) {
        return Err("openpgp: invalid data: the key is too large".to_owned());
    }
    let id = key.legacy_key_id();
    let mut identities = BTreeMap::new();
    let mut revocations = Vec::new();
    let mut subkeys = Vec::new();
    while let Some(packet) = packets.next_of_key() {
        match packet? {
            Packet::UserId(name) => {
                let identity = identity(&key, id, &name, packets, effort)?;
                if let Some(identity) = identity {
                    identities.insert(name.id().to_vec(), identity);
                }
            }
            Packet::Signature(signature)
                if signature.typ() == Some(SignatureType::KeyRevocation) =>
            {
                revocations.push(signature);
            }
            Packet::PublicSubkey(subkey) => subkeys.push(bound(&key, subkey, packets, effort)?),
            Packet::SecretSubkey(subkey) => {
                subkeys.push(bound(&key, subkey.public_key().clone(), packets, effort)?);
            }
            _ => {}
        }
    }
    let names = identities.keys().map(|it| String::from_utf8_lossy(it).into_owned()).collect();
    let primary = identities
        .into_values()
        .reduce(|known, other| if is_preferred(&known, &other) { other } else { known })
        .ok_or("openpgp: invalid data: v4 entity without any identities")?;
    for revocation in &revocations {
        if !effort.take() || revocation.verify_key(&PgpVerifyingKey(&key)).is_err() {
            let why = "openpgp: invalid data: revocation signature signed by alternate key";
            return Err(why.to_owned());
        }
    }
    Ok(PgpEntity {
        primary: KeyWithSelfSignature { key, signature: primary.signature, revocations },
        names,
        identity_revocations: primary.revocations,
        subkeys,
    })
}

/// Whether `other` is preferred over `known` as the primary identity.
fn is_preferred(known: &PgpUserIdSignatures, other: &PgpUserIdSignatures) -> bool {
    let revoked = (known.revocations.len(), other.revocations.len());
    if revoked.0 != revoked.1 {
        return revoked.0 > revoked.1;
    }
    let (Some(known), Some(other)) = (&known.signature, &other.signature) else {
        return known.signature.is_none();
    };
    match (known.is_primary(), other.is_primary()) {
        (true, false) => false,
        (false, true) => true,
        _ => signature_validity::created(other) > signature_validity::created(known),
    }
}

/// Reads an identity of the key, if the owner signed its name.
fn identity(
    key: &PublicKey,
    id: KeyId,
    name: &UserId,
    packets: &mut PgpPackets<'_>,
    effort: &mut PgpVerificationBudget,
) -> Result<Option<PgpUserIdSignatures>, String> {
    let mut identity = None::<PgpUserIdSignatures>;
    while let Some(signature) = packets.next_signature()? {
        let is_revocation = signature.typ() == Some(SignatureType::CertRevocation);
        if !is_revocation && !signature.is_certification() {
            return Err("openpgp: invalid data: user ID signature with wrong type".to_owned());
        }
        // Signatures of other keys do not matter here.
        if issuer(&signature) != Some(id) {
            continue;
        }
        if !effort.take()
            || signature.verify_certification(&PgpVerifyingKey(key), Tag::UserId, name).is_err()
        {
            return Err("openpgp: invalid data: user ID self-signature invalid".to_owned());
        }
        let identity = identity.get_or_insert_default();
        let is_newer = |known: &Signature| {
            signature_validity::created(&signature) > signature_validity::created(known)
        };
        if is_revocation {
            identity.revocations.push(signature);
        } else if identity.signature.as_ref().is_none_or(is_newer) {
            identity.signature = Some(signature);
        }
    }
    Ok(identity)
}

/// A subkey with its binding. A signing subkey must itself have signed that it belongs to the key.
fn bound(
    key: &PublicKey,
    subkey: PublicSubkey,
    packets: &mut PgpPackets<'_>,
    effort: &mut PgpVerificationBudget,
) -> Result<KeyWithSelfSignature<PublicSubkey>, String> {
    if !is_usable(&subkey) {
        return Err("openpgp: invalid data: the key is too large".to_owned());
    }
    let mut found = KeyWithSelfSignature { key: subkey, signature: None, revocations: Vec::new() };
    while let Some(signature) = packets.next_signature()? {
        let is_binding = match signature.typ() {
            Some(SignatureType::SubkeyBinding) => true,
            Some(SignatureType::SubkeyRevocation) => false,
            _ => return Err("openpgp: invalid data: subkey signature with wrong type".to_owned()),
        };
        if !effort.take()
            || signature.verify_subkey_binding(&PgpVerifyingKey(key), &found.key).is_err()
        {
            return Err("openpgp: invalid data: subkey signature invalid".to_owned());
        }
        if is_binding && signature_validity::may_sign(&signature) {
            let cross = signature.embedded_signature();
            let is_crossed = cross.is_some_and(|cross| {
                effort.take()
                    && cross.verify_primary_key_binding(&PgpVerifyingKey(&found.key), key).is_ok()
            });
            if !is_crossed {
                return Err(
                    "openpgp: invalid data: signing subkey is missing cross-signature".to_owned()
                );
            }
        }
        let is_newer = |known: &Signature| {
            signature_validity::created(&signature) > signature_validity::created(known)
        };
        if !is_binding {
            found.revocations.push(signature);
        } else if found.signature.as_ref().is_none_or(is_newer) {
            found.signature = Some(signature);
        }
    }
    match found.signature {
        Some(_) => Ok(found),
        None => Err("openpgp: invalid data: subkey packet not followed by signature".to_owned()),
    }
}

/// The id of the signing key, as the signature itself states it. `None` if the signature does not state it.
pub(super) fn issuer(signature: &Signature) -> Option<KeyId> {
    let by_fingerprint = || match signature.issuer_fingerprint().first() {
        Some(Fingerprint::V4(print)) => {
            let last: &[u8] = print.get(12..)?;
            Some(KeyId::from(<[u8; 8]>::try_from(last).ok()?))
        }
        _ => None,
    };
    signature.issuer_key_id().first().map(|id| **id).or_else(by_fingerprint)
}

/// A list of packets with a lookahead of one packet.
struct PgpPackets<'c> {
    parser: std::iter::Peekable<ReadablePackets<'c>>,
}

/// The packets of a text, without packets that are unknown, unsupported or empty. It ends after a packet that cannot be parsed.
pub(super) struct ReadablePackets<'c> {
    parser: PacketParser<&'c [u8]>,
    is_over: bool,
}

/// Reads the packets of an OpenPGP message or key.
pub(super) fn packets(content: &[u8]) -> ReadablePackets<'_> {
    ReadablePackets { parser: PacketParser::new(content), is_over: false }
}

impl Iterator for ReadablePackets<'_> {
    type Item = Result<Packet, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.parser.next()? {
                Ok(Packet::Signature(it)) if signature_validity::is_unsupported(&it) => {}
                Ok(Packet::Signature(it)) if it.created().is_none() => {
                    self.is_over = true;
                    let why = "openpgp: invalid data: no creation time in signature";
                    return Some(Err(why.to_owned()));
                }
                Ok(Packet::Trust(_) | Packet::Marker(_) | Packet::Padding(_)) => {}
                Ok(packet) => return Some(Ok(packet)),
                Err(Error::Unsupported { .. }) => {}
                Err(error) => {
                    self.is_over = true;
                    let is_header = matches!(&error, Error::IO { source, .. }
                        if source.kind() == std::io::ErrorKind::InvalidInput);
                    return Some(Err(if is_header { BAD_TAG } else { BAD_PACKET }.to_owned()));
                }
            }
        }
        None
    }
}

impl<'c> PgpPackets<'c> {
    fn new(content: &'c [u8]) -> Self {
        Self { parser: packets(content).peekable() }
    }

    fn next(&mut self) -> Option<Result<Packet, String>> {
        self.parser.next()
    }

    /// The next packet that belongs to the same primary key. `None` if no packet is left or another primary key
    /// follows.
    fn next_of_key(&mut self) -> Option<Result<Packet, String>> {
        let is_key = |it: &_| matches!(it, Ok(Packet::PublicKey(_) | Packet::SecretKey(_)));
        self.parser.next_if(|it| !is_key(it))
    }

    fn next_signature(&mut self) -> Result<Option<Signature>, String> {
        match self.parser.next_if(|it| matches!(it, Err(_) | Ok(Packet::Signature(_)))) {
            Some(Ok(Packet::Signature(signature))) => Ok(Some(signature)),
            Some(Err(why)) => Err(why),
            Some(Ok(_)) | None => Ok(None),
        }
    }

    /// Skips the rest of a key. A packet that cannot be parsed makes the whole ring invalid.
    fn skip_key(&mut self) -> Result<(), String> {
        while let Some(packet) = self.next_of_key() {
            packet?;
        }
        Ok(())
    }
}
