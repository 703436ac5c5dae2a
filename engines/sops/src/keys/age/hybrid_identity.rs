//! Post-quantum identities of age: `AGE-SECRET-KEY-PQ-1…`, for files to recipients `age1pq1…`.
//!
//! Source of the semantics: age 1.3 for Go, C2SP "age", recipient type `mlkem768x25519`: HPKE with X-Wing, HKDF-SHA256 and
//! ChaCha20-Poly1305.

use age::DecryptError;
use age_core::format::{FILE_KEY_BYTES, FileKey, Stanza};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::XWing;
use hpke::{Deserializable as _, Kem, OpModeR, single_shot_open};
use zeroize::Zeroizing;

/// The beginning of lines with such identities.
pub(super) const PREFIX: &str = "AGE-SECRET-KEY-PQ-1";

/// The name of these identities in Bech32.
const NAME: &str = "age-secret-key-pq-";

const STANZA: &str = "mlkem768x25519";
const HPKE_INFO_LABEL: &[u8] = b"age-encryption.org/mlkem768x25519";

/// The bytes that the cipher adds to a file key.
const CIPHER_TAG_BYTES: usize = 16;

/// An identity. It has no `Debug`.
pub(super) struct AgeHybridIdentity(<XWing as Kem>::PrivateKey);

impl AgeHybridIdentity {
    /// Reads an identity from a line of a key file. The error says what is malformed.
    pub(super) fn parse(line: &str) -> Result<Self, &'static str> {
        let seed = super::secret(line, NAME)?;
        let key = <XWing as Kem>::PrivateKey::from_bytes(&seed);
        Ok(Self(key.map_err(|_| "malformed secret key: invalid MLKEM768-X25519 secret key")?))
    }

    fn unwrap(&self, stanza: &Stanza) -> Result<FileKey, DecryptError> {
        let [encapsulated] = stanza.args.as_slice() else {
            return Err(DecryptError::InvalidHeader);
        };
        let encapsulated = STANDARD_NO_PAD.decode(encapsulated).ok();
        let encapsulated =
            encapsulated.and_then(|it| <XWing as Kem>::EncappedKey::from_bytes(&it).ok());
        let encapsulated = encapsulated.ok_or(DecryptError::InvalidHeader)?;
        if stanza.body.len() != FILE_KEY_BYTES + CIPHER_TAG_BYTES {
            return Err(DecryptError::InvalidHeader);
        }
        let opened = single_shot_open::<ChaCha20Poly1305, HkdfSha256, XWing>(
            &OpModeR::Base,
            &self.0,
            &encapsulated,
            HPKE_INFO_LABEL,
            &stanza.body,
            &[],
        );
        let opened = Zeroizing::new(opened.map_err(|_| DecryptError::NoMatchingKeys)?);
        let key = <[u8; FILE_KEY_BYTES]>::try_from(opened.as_slice());
        let key = Zeroizing::new(key.map_err(|_| DecryptError::InvalidHeader)?);
        Ok(FileKey::init_with_mut(|to| to.copy_from_slice(&*key)))
    }
}

impl age::Identity for AgeHybridIdentity {
    fn unwrap_stanza(&self, stanza: &Stanza) -> Option<Result<FileKey, DecryptError>> {
        if stanza.tag != STANZA {
            return None;
        }
        match self.unwrap(stanza) {
            // The file key is encrypted for another recipient.
            Err(DecryptError::NoMatchingKeys) => None,
            other => Some(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::AgeIdentities;
    use crate::limits::DecryptionDeadline;

    /// A message and its identity, made by age 1.3.1 for Go for this test.
    const MESSAGE: &str = include_str!("message.age");
    const KEY: &str =
        "AGE-SECRET-KEY-PQ-12WQVX9DNKS60EFY6HSP46F8J7GWYFXESMEUZ4LPXTVV00278FKJSPH4J68";
    const OTHER: &str =
        "AGE-SECRET-KEY-PQ-175PD0T75UYGFNGRXL3PYZTGDDXX3P6GVX44MZ83R6LNFYF0MZQQS3WMTGW";

    fn decrypted(keys: &str, message: &str) -> Result<Vec<u8>, String> {
        let mut identities = AgeIdentities::default();
        identities.import(keys.as_bytes())?;
        identities.decrypt(message, DecryptionDeadline(None)).map(|key| key.to_vec())
    }

    #[test]
    fn a_message_decrypts_with_its_own_identity_and_with_no_other() {
        let plain = Ok(b"a data key of 32 bytes, as sops's".to_vec());
        assert_eq!(decrypted(KEY, MESSAGE), plain);
        assert_eq!(decrypted(&format!("# both\n{OTHER}\n{KEY}\n"), MESSAGE), plain);
        let why = decrypted(OTHER, MESSAGE).unwrap_err();
        assert!(why.contains("identity did not match any of the recipients"), "{why}");
    }

    #[test]
    fn a_damaged_key_or_message_is_refused() {
        let mut damaged = KEY.to_owned();
        damaged.replace_range(30..31, if &KEY[30..31] == "Q" { "P" } else { "Q" });
        for key in [&damaged, &KEY[..40], "AGE-SECRET-KEY-PQ-1", &KEY.to_lowercase()] {
            assert!(decrypted(key, MESSAGE).is_err(), "{key}");
        }
        // The first letter behind the name of the recipient's type.
        let lines: Vec<&str> = MESSAGE.lines().collect();
        let mut other = lines.clone();
        other.swap(3, 4);
        assert!(decrypted(KEY, &other.join("\n")).is_err());
        assert!(decrypted(KEY, &lines[..lines.len() - 2].join("\n")).is_err());
    }
}
