//! Private keys for SSH connections and for signing commits: their formats, and the limits on their cost.
//!
//! The text comes from a Secret of a tenant. So windlass checks everything that determines the time and memory before it
//! decrypts or computes anything. That is the format, the rounds of the passphrase, and the sizes of numbers.
//! Elsewhere: connections (`ssh`), signatures and OpenPGP keys (the engine `signatures`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use russh::keys::ssh_key::private::{KeypairData, RsaKeypair};
use russh::keys::ssh_key::{Kdf, Mpint};
use russh::keys::{Error as KeyError, PrivateKey, decode_secret_key};

use super::Error;

/// OpenSSH's default is 24. Decryption cannot be interrupted, so its cost has to be bounded.
const MAX_KDF_ROUNDS: u32 = 256;

/// The largest text of a key. An RSA key of 8192 bits takes a tenth of it.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The largest content in a format that needs computation while it is parsed. It allows an RSA key of 8192 bits.
const MAX_DER_BYTES: usize = 5 << 10;

/// The smallest RSA key. Parity(flux): Go refuses smaller ones.
const MIN_RSA_BITS: u32 = 1024;
/// The largest RSA key.
const MAX_RSA_BITS: u32 = 8192;

const OPENSSH_LABEL: &str = "OPENSSH PRIVATE KEY";
/// Keys that are read, by the label of their block.
const LABELS: [&str; 4] = [OPENSSH_LABEL, "RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY"];

/// The header of an encrypted key in the old format. The key of the cipher is one MD5 of the passphrase.
const OLD_ENCRYPTION: &str = "DEK-Info: AES-128-CBC,";

fn bad(text: &str) -> Error {
    Error::BadSecret(text.to_owned())
}

fn unreadable(passphrase: Option<&str>) -> Error {
    bad(match passphrase {
        None => {
            "`identity` is not a private key in PEM or OpenSSH's format (Ed25519, ECDSA or RSA)"
        }
        Some(_) => "`identity` is not a private key that `password` decrypts",
    })
}

fn locked() -> Error {
    bad("`identity` is encrypted: add its passphrase as `password`")
}

/// The first block of a text that can be a private key.
struct PrivateKeyBlock<'t> {
    /// The label, such as `RSA PRIVATE KEY`.
    label: &'t str,
    /// The header with the encryption of the key.
    encryption: Option<&'t str>,
    /// Base64.
    body: String,
}

impl<'t> PrivateKeyBlock<'t> {
    fn first(text: &'t str) -> Option<Self> {
        let mut lines = text.lines();
        let label = lines.find_map(|line| {
            let label = line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")?;
            LABELS.contains(&label).then_some(label)
        })?;
        let is_base64 =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let mut block = Self { label, encryption: None, body: String::new() };
        for line in lines {
            if line.starts_with("-----END ") {
                break;
            }
            if line.starts_with("-----BEGIN ") {
                return None;
            }
            if line.starts_with(OLD_ENCRYPTION) {
                block.encryption = Some(line);
            } else if line.bytes().all(is_base64) {
                block.body.push_str(line);
            }
        }
        Some(block)
    }

    /// Only the text of the block. The decoder may read other parts of the text differently from this check.
    fn text(&self) -> String {
        let Self { label, encryption, body } = self;
        let header = encryption.unwrap_or_default();
        format!("-----BEGIN {label}-----\n{header}\n{body}\n-----END {label}-----\n")
    }
}

/// Parses the private key in `identity`. If the key is encrypted, `password` decrypts it.
///
/// # Errors
/// [`Error::BadSecret`]: the text is not a private key, or of an unsupported type. The error contains no part of the key.
pub(super) fn parse_private_key(
    identity: &str,
    passphrase: Option<&str>,
) -> Result<PrivateKey, Error> {
    // Parity(flux): Go reads encrypted keys in OpenSSH's format and in the old PEM form only.
    // Besides, in PKCS#8 the author of the key decides how much memory its decryption takes.
    if identity.contains("BEGIN ENCRYPTED PRIVATE KEY") {
        return Err(bad("`identity` is an encrypted PKCS#8 key: convert it with `ssh-keygen -p`"));
    }
    if identity.len() > MAX_TEXT_BYTES {
        return Err(bad("`identity` is larger than 64 KiB, which no supported private key is"));
    }
    let block = PrivateKeyBlock::first(identity).ok_or_else(|| unreadable(passphrase))?;
    let content =
        BASE64_STANDARD.decode(&block.body).map_err(|_not_base64| unreadable(passphrase))?;
    let key = match block.label {
        OPENSSH_LABEL => parse_openssh(&content, passphrase)?,
        _ if content.len() > MAX_DER_BYTES => {
            return Err(bad(
                "`identity` is larger than an RSA key of 8192 bits: use a smaller key",
            ));
        }
        _ => parse_der(&block, passphrase)?,
    };
    check_size(&key)?;
    Ok(key)
}

/// Whether a text is a private key that needs a passphrase. One that cannot be read needs none.
pub(super) fn is_encrypted(identity: &str) -> bool {
    if identity.len() > MAX_TEXT_BYTES {
        return false;
    }
    let Some(block) = PrivateKeyBlock::first(identity) else { return false };
    if block.label != OPENSSH_LABEL {
        return block.encryption.is_some();
    }
    let content = BASE64_STANDARD.decode(&block.body).unwrap_or_default();
    let key = PrivateKey::from_bytes(&content);
    key.is_ok_and(|key| matches!(key.key_data(), KeypairData::Encrypted(_)))
}

fn parse_openssh(content: &[u8], passphrase: Option<&str>) -> Result<PrivateKey, Error> {
    let key = PrivateKey::from_bytes(content).map_err(|_unread| unreadable(passphrase))?;
    // Parity(flux): a passphrase for a key that has none is not examined.
    if !matches!(key.key_data(), KeypairData::Encrypted(_)) {
        return Ok(key);
    }
    if let Kdf::Bcrypt { rounds, .. } = key.kdf()
        && *rounds > MAX_KDF_ROUNDS
    {
        return Err(bad("`identity` is encrypted with too many rounds: use `ssh-keygen -p -a 64`"));
    }
    let passphrase = passphrase.ok_or_else(locked)?;
    key.decrypt(passphrase).map_err(|_undecrypted| unreadable(Some(passphrase)))
}

/// Parses a key in DER.
///
/// The passphrase is only used for the old format. A PKCS#8 key may be encrypted although its label denies it, and then its
/// decryption would have no limit on cost.
fn parse_der(block: &PrivateKeyBlock<'_>, passphrase: Option<&str>) -> Result<PrivateKey, Error> {
    let used = passphrase.filter(|_| block.encryption.is_some());
    let text = block.text();
    // The arithmetic of RSA expects numbers that belong together, and panics for some that do not.
    let decode = AssertUnwindSafe(|| decode_secret_key(&text, used));
    catch_unwind(decode).unwrap_or(Err(KeyError::CouldNotReadKey)).map_err(|error| match error {
        KeyError::KeyIsEncrypted => locked(),
        _ => unreadable(passphrase),
    })
}

/// Checks that signing with a key takes a bounded time.
fn check_size(key: &PrivateKey) -> Result<(), Error> {
    match key.key_data() {
        KeypairData::Ed25519(_) | KeypairData::Ecdsa(_) => Ok(()),
        KeypairData::Rsa(pair) => {
            let bits = pair.key_size();
            if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) {
                return Err(Error::BadSecret(format!(
                    "`identity` is an RSA key of {bits} bits: use {MIN_RSA_BITS} to {MAX_RSA_BITS}"
                )));
            }
            match is_proportionate(pair) {
                true => Ok(()),
                false => Err(bad("`identity` is an RSA key with numbers larger than its modulus")),
            }
        }
        _ => Err(bad(
            "`identity` is a private key of an unsupported type: use Ed25519, ECDSA or RSA",
        )),
    }
}

/// Whether no number of a key is longer than its modulus.
fn is_proportionate(pair: &RsaKeypair) -> bool {
    let length = |number: &Mpint| number.as_positive_bytes().map_or(usize::MAX, <[u8]>::len);
    let public = pair.public();
    let private = pair.private();
    let modulus = length(public.n());
    let others = [public.e(), private.d(), private.iqmp(), private.p(), private.q()];
    others.into_iter().all(|number| length(number) <= modulus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(bytes: &mut Vec<u8>, field: &[u8]) {
        bytes.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(field);
    }

    fn armored(label: &str, bytes: &[u8]) -> String {
        let text = BASE64_STANDARD.encode(bytes);
        let lines: Vec<_> = text.as_bytes().chunks(70).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    /// A key in OpenSSH's format that is encrypted with the highest number of rounds, up to its public part.
    fn with_many_rounds() -> String {
        let mut bytes = b"openssh-key-v1\0".to_vec();
        field(&mut bytes, b"aes256-ctr");
        field(&mut bytes, b"bcrypt");
        field(&mut bytes, &[&[0, 0, 0, 16][..], &[7; 16], &[0xff; 4]].concat());
        bytes.extend_from_slice(&1_u32.to_be_bytes());
        let public = [&[0, 0, 0, 11][..], b"ssh-ed25519", &[0, 0, 0, 32], &[9; 32]].concat();
        field(&mut bytes, &public);
        field(&mut bytes, &[0; 64]);
        armored(OPENSSH_LABEL, &bytes)
    }

    /// A key in OpenSSH's format that is not encrypted.
    fn plain(name: &[u8], public: &[&[u8]], private: &[&[u8]]) -> String {
        let mut key = Vec::new();
        let mut pair = vec![1; 8];
        field(&mut key, name);
        field(&mut pair, name);
        public.iter().for_each(|number| field(&mut key, number));
        private.iter().for_each(|number| field(&mut pair, number));
        field(&mut pair, b"");
        pair.extend((1..=8).take((8 - pair.len() % 8) % 8));
        let mut bytes = b"openssh-key-v1\0".to_vec();
        for text in [&b"none"[..], b"none", b""] {
            field(&mut bytes, text);
        }
        bytes.extend_from_slice(&1_u32.to_be_bytes());
        field(&mut bytes, &key);
        field(&mut bytes, &pair);
        armored(OPENSSH_LABEL, &bytes)
    }

    fn refused(identity: &str, passphrase: Option<&str>) -> String {
        parse_private_key(identity, passphrase).unwrap_err().to_string()
    }

    #[test]
    fn a_key_that_would_take_for_ever_to_decrypt_is_refused() {
        let key = with_many_rounds();
        // A line that a strict reader of PEM does not take, and the decoder passes over.
        let lenient = key.replacen('\n', "\nComment: x\n", 1);
        for key in [key, lenient] {
            let error = refused(&key, Some("x"));
            assert!(error.contains("too many rounds"), "{error}");
        }
    }

    #[test]
    fn an_encrypted_key_with_the_label_of_a_plain_one_is_not_decrypted() {
        // Ed25519 in PKCS#8, encrypted with `blabla`; of the tests of russh.
        let body = "MIGjMF8GCSqGSIb3DQEFDTBSMDEGCSqGSIb3DQEFDDAkBBAWQiUHKoocuxfoZ/hF\nYTjkAgIIADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQ83d1d5/S2wz475uC\nCUrE7QRAvdVpD5e3zKH/MZjilWrMOm6cyI1LKBCssLztPyvOALtroLAPlp7WYWfu\n9Sncmm7u14n2lia7r1r5I3VBsVuH0g==";
        for header in ["", "DEK-Info: DES-EDE3-CBC,00\n\n"] {
            let key =
                format!("-----BEGIN PRIVATE KEY-----\n{header}{body}\n-----END PRIVATE KEY-----\n");
            let error = refused(&key, Some("blabla"));
            assert!(error.contains("not a private key that `password` decrypts"), "{error}");
        }
        let putty = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: aes256-cbc\n";
        assert!(refused(putty, Some("x")).contains("not a private key"));
    }

    #[test]
    fn an_rsa_key_has_a_usual_size() {
        let rsa = |modulus: usize, prime: usize| {
            let n = vec![0x7f; modulus];
            let p = vec![0x7f; prime];
            plain(b"ssh-rsa", &[&[3], &n], &[&n, &[3], &[3], &[3], &p, &[3]])
        };
        for bytes in [8, 64, 2000] {
            let error = refused(&rsa(bytes, 1), None);
            assert!(error.contains(&format!("RSA key of {} bits", bytes * 8)), "{error}");
        }
        let error = refused(&rsa(256, 4000), None);
        assert!(error.contains("larger than its modulus"), "{error}");
        parse_private_key(&rsa(256, 128), None).unwrap();
        let huge = armored("RSA PRIVATE KEY", &vec![0x30; 6000]);
        assert!(refused(&huge, None).contains("larger than an RSA key of 8192 bits"));
    }

    #[test]
    fn a_dsa_key_is_refused_whatever_its_group_is() {
        let numbers: [&[u8]; 4] = [&[7], &[3], &[2], &[4]];
        let key = plain(b"ssh-dss", &numbers, &[&[7], &[3], &[2], &[4], &[1]]);
        assert!(refused(&key, None).contains("unsupported type"));
    }

    #[test]
    fn a_key_that_is_none_is_not_repeated() {
        for passphrase in [None, Some("hunter2")] {
            let error = parse_private_key("-----BEGIN hunter2-----", passphrase).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
