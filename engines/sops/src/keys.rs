//! Reads private keys and credentials from a Secret. The names of its entries determine their type, as in Flux's `ImportKeys`.
//!
//! Below: age (`age.rs`), OpenPGP (`pgp.rs`), credentials of services (`key_service_credentials.rs`).

mod age;
mod key_service_credentials;
mod pgp;

use std::collections::BTreeMap;
use std::fmt;

pub use key_service_credentials::KeyServiceCredentials;

use crate::error::Error;
use crate::limits::DecryptionDeadline;
use crate::value::SecretBytes;

/// Keys that decrypt data keys, and credentials for services that do.
#[derive(Default)]
pub struct DecryptionKeys {
    age: age::AgeIdentities,
    pgp: pgp::PgpKeyring,
    credentials: KeyServiceCredentials,
}

impl fmt::Debug for DecryptionKeys {
    /// Shows only the number of keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecryptionKeys")
            .field("age", &self.age.len())
            .field("pgp", &self.pgp.len())
            .field("credentials", &self.credentials)
            .finish()
    }
}

impl DecryptionKeys {
    /// Reads the keys in the Secret of `spec.decryption.secretRef`. `secret` is its namespace and name, for errors.
    ///
    /// `*.asc` are OpenPGP keys, `*.agekey` are age identities. `sops.vault-token`, `sops.aws-kms`, `sops.azure-kv` and
    /// `sops.gcp-kms` are credentials. Other entries are ignored.
    ///
    /// # Errors
    /// An entry with one of these names does not contain a valid key of its type.
    pub fn import<'d>(
        secret: &str,
        data: impl IntoIterator<Item = (&'d str, &'d [u8])>,
    ) -> Result<Self, Error> {
        let mut keys = Self::default();
        let data: BTreeMap<&str, &[u8]> = data.into_iter().collect();
        for (name, value) in data {
            let imported = match extension(name) {
                ".asc" => keys.pgp.import(value),
                ".agekey" => keys.age.import(value),
                _ => keys.credentials.import(name, value),
            };
            imported.map_err(|problem| Error::Import {
                name: name.to_owned(),
                secret: secret.to_owned(),
                problem,
            })?;
        }
        Ok(keys)
    }

    /// The age identities of the Secret of `--sops-age-secret`, which counts where a spec has no `secretRef`.
    ///
    /// # Errors
    /// An entry `*.agekey` is not a list of identities.
    pub fn import_age<'d>(
        secret: &str,
        data: impl IntoIterator<Item = (&'d str, &'d [u8])>,
    ) -> Result<Self, Error> {
        let age = data.into_iter().filter(|(name, _)| extension(name) == ".agekey");
        Self::import(secret, age)
    }

    /// The credentials for key services among these keys.
    #[must_use]
    pub fn credentials(&self) -> &KeyServiceCredentials {
        &self.credentials
    }

    /// Decrypts data that is encrypted for an age recipient.
    pub(crate) fn age(
        &self,
        encrypted: &str,
        until: DecryptionDeadline<'_>,
    ) -> Result<SecretBytes, String> {
        short(encrypted)?;
        self.age.decrypt(encrypted, until)
    }

    /// Decrypts a data key that is an OpenPGP message. The error says why no key can do it.
    pub(crate) fn pgp(
        &self,
        encrypted: &str,
        until: DecryptionDeadline<'_>,
    ) -> Result<SecretBytes, String> {
        short(encrypted)?;
        self.pgp.decrypt(encrypted, until)
    }
}

/// The longest encrypted data key, because each recipient in it costs an operation with a private key.
const MAX_ENCRYPTED: usize = 64 << 10;

fn short(encrypted: &str) -> Result<(), String> {
    if encrypted.len() <= MAX_ENCRYPTED {
        return Ok(());
    }
    Err(format!("the encrypted data key is longer than {MAX_ENCRYPTED} bytes"))
}

/// The extension of a name including its dot, as Go defines it.
fn extension(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.rfind('.').and_then(|at| name.get(at..)).unwrap_or_default()
}
