//! Identities of age on Curve25519: `AGE-SECRET-KEY-1…`, for files to recipients `age1…`.
//!
//! This does not use the crate `age`, because the key exchange is most of the cost of a small file. The crate does two
//! multiplications in portable code for each file; here there is one, in assembly. Source of the semantics: C2SP "age",
//! recipient type `X25519`.

use age::DecryptError;
use age_core::format::{FILE_KEY_BYTES, FileKey, Stanza};
use age_core::primitives::{aead_decrypt, hkdf};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

/// The beginning of lines with such identities.
pub(super) const PREFIX: &str = "AGE-SECRET-KEY-1";

/// The name of these identities in Bech32.
const NAME: &str = "age-secret-key-";

const STANZA: &str = "X25519";
const HKDF_INFO_LABEL: &[u8] = b"age-encryption.org/v1/X25519";

/// The length of a public key.
const PUBLIC_KEY_BYTES: usize = 32;

/// The bytes that the cipher adds to a file key.
const CIPHER_TAG_BYTES: usize = 16;

/// An identity. It has no `Debug`.
pub(super) struct AgeX25519Identity {
    key: PrivateKey,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl AgeX25519Identity {
    /// Reads an identity from a line of a key file. The error says what is malformed.
    pub(super) fn parse(line: &str) -> Result<Self, &'static str> {
        let secret = super::secret(line, NAME)?;
        let invalid = "malformed secret key: invalid X25519 secret key";
        let key = PrivateKey::from_private_key(&X25519, &secret).map_err(|_| invalid)?;
        let public = key.compute_public_key().map_err(|_| invalid)?;
        let public = public.as_ref().try_into().map_err(|_| invalid)?;
        Ok(Self { key, public })
    }
}

impl age::Identity for AgeX25519Identity {
    fn unwrap_stanza(&self, stanza: &Stanza) -> Option<Result<FileKey, DecryptError>> {
        if stanza.tag != STANZA {
            return None;
        }
        let share = match stanza.args.as_slice() {
            [share] => {
                STANDARD_NO_PAD.decode(share).ok().filter(|share| share.len() == PUBLIC_KEY_BYTES)
            }
            _ => None,
        };
        let Some(share) = share.filter(|_| stanza.body.len() == FILE_KEY_BYTES + CIPHER_TAG_BYTES)
        else {
            return Some(Err(DecryptError::InvalidHeader));
        };
        let peer = UnparsedPublicKey::new(&X25519, &share);
        // The exchange fails for a share that gives the same secret with every key.
        let wrapping = agree(&self.key, peer, DecryptError::InvalidHeader, |secret| {
            Ok(Zeroizing::new(hkdf(&[&share, &self.public[..]].concat(), HKDF_INFO_LABEL, secret)))
        });
        let wrapping = match wrapping {
            Ok(wrapping) => wrapping,
            Err(error) => return Some(Err(error)),
        };
        // A file key that cannot be decrypted belongs to another recipient.
        let key = aead_decrypt(&wrapping, FILE_KEY_BYTES, &stanza.body).map(Zeroizing::new).ok()?;
        Some(Ok(FileKey::init_with_mut(|to| to.copy_from_slice(&key))))
    }
}

#[cfg(test)]
mod tests {
    use age::Identity as _;
    use age_core::format::Stanza;
    use age_core::secrecy::ExposeSecret as _;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;

    use super::AgeX25519Identity;

    /// A stanza to a recipient, as the crate `age` makes it.
    fn wrapped(recipient: &age::x25519::Recipient, key: [u8; 16]) -> Stanza {
        let key = age_core::format::FileKey::new(Box::new(key));
        let (mut stanzas, _) = age::Recipient::wrap_file_key(recipient, &key).unwrap();
        stanzas.remove(0)
    }

    #[test]
    fn stanzas_of_the_crate_are_opened_by_their_own_identity_and_by_no_other() {
        for _ in 0..20 {
            let theirs = age::x25519::Identity::generate();
            let line = theirs.to_string();
            let own = AgeX25519Identity::parse(line.expose_secret()).ok().unwrap();
            let stanza = wrapped(&theirs.to_public(), *b"sixteen bytes it");
            let opened = own.unwrap_stanza(&stanza).unwrap().ok().unwrap();
            assert_eq!(opened.expose_secret(), b"sixteen bytes it");
            let other = age::x25519::Identity::generate().to_string();
            let other = AgeX25519Identity::parse(other.expose_secret()).ok().unwrap();
            assert!(other.unwrap_stanza(&stanza).is_none());
        }
    }

    #[test]
    fn damaged_stanzas_and_shares_without_a_secret_are_refused() {
        let theirs = age::x25519::Identity::generate();
        let own = AgeX25519Identity::parse(theirs.to_string().expose_secret()).ok().unwrap();
        let good = wrapped(&theirs.to_public(), [7; 16]);
        let is_refused = |stanza: &Stanza| matches!(own.unwrap_stanza(stanza), Some(Err(_)));
        let with = |change: &dyn Fn(&mut Stanza)| {
            let tag = good.tag.clone();
            let args = good.args.clone();
            let body = good.body.clone();
            let mut stanza = Stanza { tag, args, body };
            change(&mut stanza);
            stanza
        };
        assert!(!is_refused(&good));
        assert!(is_refused(&with(&|it| it.args.clear())));
        assert!(is_refused(&with(&|it| it.args.push("more".to_owned()))));
        assert!(is_refused(&with(&|it| it.args = vec!["AAAA".to_owned()])));
        assert!(is_refused(&with(&|it| it.args = vec![STANDARD_NO_PAD.encode([0; 32])])));
        assert!(is_refused(&with(&|it| it.body.push(0))));
        assert!(own.unwrap_stanza(&with(&|it| it.tag = "scrypt".to_owned())).is_none());
        assert!(own.unwrap_stanza(&with(&|it| it.body[0] ^= 1)).is_none());
    }
}
