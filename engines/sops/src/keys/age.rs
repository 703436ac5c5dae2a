//! age: reading identities, and decrypting data keys for their recipients. Below: the types of identities.

use std::cell::Cell;
use std::io::Read as _;

use age::armor::ArmoredReader;
use age::{DecryptError, Decryptor};
use age_core::format::{FileKey, Stanza};
use bech32::{FromBase32 as _, Variant};
use zeroize::Zeroizing;

use crate::limits::DecryptionDeadline;
use crate::value::SecretBytes;

mod hybrid_identity;
mod x25519;

/// The longest data key in a message. A data key of sops has 32 bytes, and a part of a split key has one more.
const MAX_DATA_KEY: u64 = 4096;

/// The most comparisons of a message's recipients with identities. Each takes up to a tenth of a millisecond, and a message of
/// sops has one recipient.
const MAX_ATTEMPTS: usize = 10_000;

/// Identities in the order of their Secret.
#[derive(Default)]
pub(super) struct AgeIdentities(Vec<Box<dyn age::Identity + Send + Sync>>);

impl AgeIdentities {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the identities of a file, which has one on each line. Comments and empty lines are allowed.
    pub(super) fn import(&mut self, file: &[u8]) -> Result<(), String> {
        let refuse =
            |problem: &str| Err(format!("failed to parse and add to age identities: {problem}"));
        let Ok(file) = std::str::from_utf8(file) else { return refuse("unknown identity type") };
        for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with("AGE-PLUGIN-") {
                // Differs(flux): Flux accepts a plug-in identity, and fails at the first file that needs the plug-in's
                // program.
                return refuse("plug-ins are not supported");
            }
            let identity: Result<Box<dyn age::Identity + Send + Sync>, _> =
                if line.starts_with(hybrid_identity::PREFIX) {
                    hybrid_identity::AgeHybridIdentity::parse(line).map(|it| Box::new(it) as _)
                } else if line.starts_with(x25519::PREFIX) {
                    x25519::AgeX25519Identity::parse(line).map(|it| Box::new(it) as _)
                } else {
                    Err("unknown identity type")
                };
            match identity {
                Ok(identity) => self.0.push(identity),
                Err(problem) => return refuse(problem),
            }
        }
        Ok(())
    }

    /// Decrypts a data key that is an armored age message. The error says why no identity can do it.
    pub(super) fn decrypt(
        &self,
        message: &str,
        until: DecryptionDeadline<'_>,
    ) -> Result<SecretBytes, String> {
        const FAILED: &str = "failed to create reader for decrypting sops data key with age";
        if self.0.is_empty() {
            return Err("failed to load age identities. Did not find keys: add an entry that ends with `.agekey` to the \
                        Secret of `spec.decryption.secretRef`"
                .to_owned());
        }
        // Go trims the lines of an armor.
        let trimmed: String = message.lines().map(|line| format!("{}\n", line.trim())).collect();
        let decryptor =
            Decryptor::new_buffered(ArmoredReader::new(trimmed.trim_start().as_bytes()));
        let decryptor = decryptor.map_err(|error| format!("{FAILED}: {}", error_text(&error)))?;
        let left = Cell::new(MAX_ATTEMPTS);
        let bounded = self.0.iter().map(|identity| BoundedAgeIdentity {
            identity: &**identity,
            left: &left,
            until,
        });
        let bounded: Vec<BoundedAgeIdentity<'_>> = bounded.collect();
        let identities = bounded.iter().map(|identity| identity as &dyn age::Identity);
        let reader = decryptor.decrypt(identities);
        if reader.is_err() && left.get() == 0 {
            return Err(format!(
                "{FAILED}: none of the first {MAX_ATTEMPTS} pairs of an identity and a recipient match, and the \
                 others are not tried: encrypt it to fewer recipients, or keep fewer identities in the Secret"
            ));
        }
        let reader = reader.map_err(|error| format!("{FAILED}: {}", error_text(&error)))?;
        let mut key = Zeroizing::new(Vec::with_capacity(64));
        let read = reader.take(MAX_DATA_KEY).read_to_end(&mut key);
        read.map_err(|_| {
            "failed to copy age decrypted data into bytes: the message is damaged".to_owned()
        })?;
        Ok(key)
    }
}

/// An identity with a limit on compared recipients. After the deadline it compares none.
struct BoundedAgeIdentity<'k> {
    identity: &'k (dyn age::Identity + Send + Sync),
    left: &'k Cell<usize>,
    until: DecryptionDeadline<'k>,
}

impl age::Identity for BoundedAgeIdentity<'_> {
    fn unwrap_stanza(&self, stanza: &Stanza) -> Option<Result<FileKey, DecryptError>> {
        if self.until.is_over() {
            return None;
        }
        self.left.set(self.left.get().checked_sub(1)?);
        self.identity.unwrap_stanza(stanza)
    }
}

/// The secret of an identity that Bech32 calls by a name.
fn secret(line: &str, name: &str) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    const INVALID: &str = "malformed secret key: invalid Bech32";
    // As in age, all letters of an identity must have the same case.
    let (found, data, variant) = bech32::decode(line).map_err(|_| INVALID)?;
    if found != name || variant != Variant::Bech32 {
        return Err("malformed secret key: unknown type");
    }
    Vec::from_base32(&data).map(Zeroizing::new).map_err(|_| INVALID)
}

/// An error in the words of age for Go, where it has such an error.
fn error_text(error: &DecryptError) -> String {
    match error {
        DecryptError::NoMatchingKeys
        | DecryptError::DecryptionFailed
        | DecryptError::KeyDecryptionFailed => {
            "identity did not match any of the recipients: incorrect identity for recipient block"
                .to_owned()
        }
        DecryptError::InvalidMac => "bad header MAC".to_owned(),
        DecryptError::InvalidHeader => "failed to read header: parsing age header".to_owned(),
        _ => "the message cannot be read".to_owned(),
    }
}
