//! Makes and verifies SSH signatures in the format of `ssh-keygen -Y sign`.
//!
//! Source: hiddeco/sshsig 0.2 and `authorized_keys` of golang.org/x/crypto/ssh.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256, Sha512};
use signature::Verifier as _;
use ssh_key::private::KeypairData;
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, HashAlg, LineEnding, Mpint, PrivateKey, PublicKey, Signature};

use crate::commit_signing::SigningError;
use crate::pem;

const SSHSIG_MAGIC: &[u8] = b"SSHSIG";

/// The namespace of Git's signatures.
const GIT_SIGNATURE_NAMESPACE: &str = "git";

/// The most keys that are tried.
const MAX_KEYS: usize = 1_000;

/// The largest armored signature, because it is read for each key.
const MAX_SIGNATURE_BYTES: usize = 1 << 20;

/// The smallest RSA key that signs.
const MIN_RSA_BITS: u32 = 2_048;
/// The largest RSA key.
const MAX_RSA_BITS: u32 = 8_192;
/// The smallest RSA key whose signatures are accepted, in bits. Parity(flux): Go refuses smaller ones.
const MIN_VERIFYING_RSA_BITS: u32 = 1_024;

/// The sizes of the modulus and the group order of DSA keys, in bytes. Parity(flux): Go takes no others.
const DSA_MODULUS_BYTES: usize = 128;
const DSA_ORDER_BYTES: usize = 20;
/// The word size of the arithmetic, in bytes.
const WORD_BYTES: usize = 8;

/// Signs a commit or tag, given in its stored form without a signature. The key must not be encrypted.
///
/// Parity(flux): RSA keys of less than 2048 bits are refused.
///
/// # Errors
/// The key is too small, encrypted or of a kind that Git does not verify.
pub fn sign_with_ssh_key(key: &PrivateKey, payload: &[u8]) -> Result<String, SigningError> {
    if let KeypairData::Rsa(pair) = key.key_data() {
        let bits = pair.key_size();
        if bits < MIN_RSA_BITS {
            return Err(SigningError::Refused(format!(
                "the RSA key has {bits} bits, at least {MIN_RSA_BITS} are required"
            )));
        }
        if bits > MAX_RSA_BITS {
            return Err(SigningError::Refused(format!(
                "the RSA key has {bits} bits, at most {MAX_RSA_BITS} are supported"
            )));
        }
    }
    if key.algorithm() == Algorithm::Dsa {
        return Err(SigningError::Refused("DSA keys cannot sign commits".to_owned()));
    }
    key.sign(GIT_SIGNATURE_NAMESPACE, HashAlg::Sha512, payload)
        .and_then(|signature| signature.to_pem(LineEnding::LF))
        .map_err(|error| {
            SigningError::Refused(format!("the {} key cannot sign: {error}", key.algorithm()))
        })
}

/// Verifies a signature with the keys in some lists. Returns the fingerprint of the key that made the signature.
pub(crate) fn verify_any(
    signature: &[u8],
    payload: &[u8],
    lists: &[&[u8]],
) -> Result<String, String> {
    if payload.is_empty() {
        return Err("unable to verify payload: payload is empty".to_owned());
    }
    if signature.len() > MAX_SIGNATURE_BYTES {
        return Err(format!(
            "unable to verify payload: the signature is larger than {MAX_SIGNATURE_BYTES} bytes"
        ));
    }
    let signed = SshSignature::read(signature)
        .map_err(|why| format!("unable to unarmor SSH signature: {why}"))?;
    let digest = signed.digest(payload);
    let mut problem = None;
    let mut is_tried = false;
    let mut reasons: Vec<&str> = Vec::new();
    let mut left = MAX_KEYS;
    for list in lists {
        let keys = match authorized(list) {
            Ok(keys) => keys,
            Err(why) => {
                problem.get_or_insert(why);
                continue;
            }
        };
        is_tried = true;
        for key in keys {
            left = left.checked_sub(1).ok_or_else(|| format!("more than {MAX_KEYS} SSH keys"))?;
            let verified = digest.as_deref().map_err(|why| *why);
            match verified.and_then(|digest| signed.verify(digest, &key)) {
                Ok(()) => return Ok(key.fingerprint(HashAlg::Sha256).to_string()),
                Err(why) if reasons.contains(&why) => {}
                Err(why) => reasons.push(why),
            }
        }
    }
    match problem {
        Some(why) if !is_tried => Err(format!("unable to parse authorized keys: {why}")),
        _ => {
            let reasons: String = reasons.iter().map(|why| format!("\n{why}")).collect();
            Err(format!(
                "unable to verify payload with any of the given authorized keys: no matching key{reasons}"
            ))
        }
    }
}

/// A parsed signature of SSH, not verified yet.
struct SshSignature {
    key: Vec<u8>,
    namespace: Vec<u8>,
    hash: Vec<u8>,
    signature: Vec<u8>,
}

impl SshSignature {
    fn read(armored: &[u8]) -> Result<Self, String> {
        let block = pem::first(armored).ok_or("invalid PEM block")?;
        if block.kind != "SSH SIGNATURE" {
            return Err(format!("invalid PEM type {:?}", block.kind));
        }
        let mut rest = SshWireReader(&block.content);
        let broken = || "ssh: parse error in message type 0".to_owned();
        let magic = rest.take(SSHSIG_MAGIC.len()).ok_or_else(broken)?;
        let version = rest.number().ok_or_else(broken)?;
        let mut string = || rest.string().map(<[u8]>::to_vec).ok_or_else(broken);
        let key = string()?;
        let namespace = string()?;
        let _reserved = string()?;
        let hash = string()?;
        let signature = string()?;
        if !rest.0.is_empty() {
            return Err(broken());
        }
        if version != 1 {
            return Err(format!("unsupported signature version {version}: expected 1"));
        }
        if magic != SSHSIG_MAGIC {
            return Err("invalid magic preamble".to_owned());
        }
        Ok(Self { key, namespace, hash, signature })
    }

    /// The signed digest of a payload. It is computed once for all keys, because the payload may be long.
    fn digest(&self, payload: &[u8]) -> Result<Vec<u8>, &'static str> {
        match self.hash.as_slice() {
            b"sha256" => Ok(Sha256::digest(payload).to_vec()),
            b"sha512" => Ok(Sha512::digest(payload).to_vec()),
            _ => Err("unsupported hash algorithm"),
        }
    }

    fn verify(&self, digest: &[u8], key: &KeyData) -> Result<(), &'static str> {
        let own = PublicKey::from_bytes(&self.key).map_err(|_| "public key does not match")?;
        if own.key_data() != key {
            return Err("public key does not match");
        }
        if self.namespace != GIT_SIGNATURE_NAMESPACE.as_bytes() {
            return Err("namespace does not match");
        }
        let mut message = SSHSIG_MAGIC.to_vec();
        for part in [GIT_SIGNATURE_NAMESPACE.as_bytes(), b"", &self.hash, digest] {
            message.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            message.extend(part);
        }
        let signature = Signature::try_from(self.signature.as_slice())
            .map_err(|_| "ssh: signature did not verify")?;
        // RSA keys signed with SHA-1 before 2018, but Git never did.
        if signature.algorithm() == (ssh_key::Algorithm::Rsa { hash: None }) {
            return Err("ssh: signature did not verify");
        }
        if !is_usable(key) {
            return Err("ssh: signature did not verify");
        }
        key.verify(&message, &signature).map_err(|_| "ssh: signature did not verify")
    }
}

/// Whether a key has a size that verifies in a bounded time, and numbers that the arithmetic expects.
fn is_usable(key: &KeyData) -> bool {
    match key {
        KeyData::Rsa(key) => (MIN_VERIFYING_RSA_BITS..=MAX_RSA_BITS).contains(&key.key_size()),
        KeyData::Dsa(key) => {
            let modulus = digits(key.p());
            // Both numbers must be smaller than the modulus.
            let is_element = |number: &Mpint| {
                let number = digits(number);
                number.len() > DSA_MODULUS_BYTES - WORD_BYTES
                    && (number.len(), number) < (modulus.len(), modulus)
            };
            modulus.len() == DSA_MODULUS_BYTES
                && digits(key.q()).len() == DSA_ORDER_BYTES
                && is_element(key.g())
                && is_element(key.y())
        }
        _ => true,
    }
}

/// The bytes of a positive number, without leading zeros.
fn digits(number: &Mpint) -> &[u8] {
    number.as_positive_bytes().unwrap_or_default()
}

/// Strings and numbers of the SSH protocol.
struct SshWireReader<'d>(&'d [u8]);

impl<'d> SshWireReader<'d> {
    fn take(&mut self, count: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<&'d [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }
}

/// The keys of a list in the format of `authorized_keys`. A line without a key makes the whole list invalid.
///
/// Parity(flux): options have no effect here, neither `expiry-time` nor `cert-authority`.
fn authorized(list: &[u8]) -> Result<Vec<KeyData>, String> {
    let list = String::from_utf8_lossy(list);
    let lines = list.split('\n').map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line_key(line).map_err(|why| format!("unable to parse authorized key: {why}")))
        .collect()
}

fn line_key(line: &str) -> Result<KeyData, String> {
    const NONE: &str = "ssh: no key found";
    let is_blank = |char: char| char == ' ' || char == '\t';
    let line = line.split('\r').next().unwrap_or_default().trim();
    let Some((_, after)) = line.split_once(is_blank) else { return Err(NONE.to_owned()) };
    let first = match blob(after) {
        Ok(key) => return Ok(key),
        Err(why) => why,
    };
    let found = |why: &str| format!("{NONE}; last parsing error for ignored line: {why}");
    // There may be options before the type, with blanks in quotation marks.
    let Some(rest) = after_options(line).filter(|rest| !rest.is_empty()) else {
        return Err(found(&first));
    };
    let Some((_, after)) = rest.split_once(is_blank) else { return Err(found(&first)) };
    blob(after).map_err(|why| found(&why))
}

/// The text after the first word. Quotation marks may enclose blanks. `None` if there is no second word.
fn after_options(line: &str) -> Option<&str> {
    let mut is_quoted = false;
    let mut before = ' ';
    for (at, char) in line.char_indices() {
        match char {
            '"' if before != '\\' => is_quoted = !is_quoted,
            ' ' | '\t' if !is_quoted => return line.get(at..).map(str::trim_start),
            _ => {}
        }
        before = char;
    }
    None
}

/// Decodes the key at the beginning of a text, after its type in a line of `authorized_keys`.
fn blob(text: &str) -> Result<KeyData, String> {
    let encoded = text.split_ascii_whitespace().next().unwrap_or_default();
    let decoded = STANDARD.decode(encoded).map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            format!("illegal base64 data at input byte {at}")
        }
        _ => format!("illegal base64 data at input byte {}", encoded.len() / 4 * 4),
    })?;
    let key = PublicKey::from_bytes(&decoded).map_err(|_| "ssh: short read".to_owned())?;
    Ok(key.key_data().clone())
}

#[cfg(test)]
mod tests {
    use ssh_key::public::{DsaPublicKey, RsaPublicKey};

    use super::*;

    fn number(first: u8, length: usize) -> Mpint {
        let mut bytes = vec![0x81; length];
        bytes[0] = first;
        Mpint::from_positive_bytes(&bytes)
    }

    #[test]
    fn an_rsa_key_verifies_if_it_has_a_usual_size() {
        let is_usable = |bytes: usize| {
            is_usable(&KeyData::Rsa(RsaPublicKey::new(number(3, 1), number(0xff, bytes)).unwrap()))
        };
        assert_eq!(
            [8, 64, 128, 1024, 1025, 100_000].map(is_usable),
            [false, false, true, true, false, false]
        );
    }

    #[test]
    fn a_dsa_key_verifies_if_its_group_has_the_usual_size() {
        let is_usable = |p: Mpint, q: Mpint, g: Mpint, y: Mpint| {
            is_usable(&KeyData::Dsa(DsaPublicKey::new(p, q, g, y).unwrap()))
        };
        let p = || number(0xff, 128);
        let q = || number(0xff, 20);
        let element = || number(0x7f, 128);
        assert!(is_usable(p(), q(), element(), element()));
        assert!(!is_usable(number(0xff, 4096), q(), element(), element()));
        assert!(!is_usable(p(), number(0xff, 128), element(), element()));
        assert!(!is_usable(p(), number(3, 1), element(), element()));
        assert!(!is_usable(p(), q(), number(2, 1), element()));
        assert!(!is_usable(p(), q(), element(), number(0xff, 4096)));
        assert!(!is_usable(p(), q(), element(), p()));
    }
}
