//! Private OpenPGP keys of other users: limits on the cost of using them, and protection from panics in rPGP.
//!
//! rPGP itself reads no RSA key over 8192 bits and no DSA key over 4096. Elsewhere: signing with keys (`signing_key`),
//! decrypting with keys (the crate `sops`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use pgp::ser::Serialize as _;
use pgp::types::{PublicParams, S2kParams, SecretParams, StringToKey};

/// The most memory for a passphrase, as a power of two in KiB: 128 MiB. The key's file sets the value, and go-crypto uses 64
/// MiB.
const MAX_ARGON2_MEMORY: u8 = 17;
/// The most passes over that memory.
const MAX_ARGON2_PASSES: u8 = 8;

/// The sizes of RSA keys that may sign, in bits. Parity(flux): Go refuses smaller ones.
const RSA_BITS: std::ops::RangeInclusive<u16> = 1024..=8192;
/// The bits of the modulus of DSA keys that sign.
const DSA_MODULUS_BITS: std::ops::RangeInclusive<u16> = 1024..=4096;
/// The sizes of the order of a DSA group, in bits. With a smaller one, the search for an invertible number might never end.
const DSA_ORDER_BITS: [u16; 3] = [160, 224, 256];

/// The protection of a key's secret part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKeyProtection {
    /// The secret part is not protected.
    Plain,
    /// A passphrase.
    Passphrase,
    /// The secret part is not in the file, for example because the key is on a smart card.
    Elsewhere,
}

/// The protection of a key's secret part.
///
/// # Errors
/// Deriving the key from the passphrase takes too much memory or time.
pub fn protection(secret: &SecretParams) -> Result<SecretKeyProtection, String> {
    let SecretParams::Encrypted(encrypted) = secret else { return Ok(SecretKeyProtection::Plain) };
    let from = match encrypted.string_to_key_params() {
        S2kParams::Aead { s2k, .. }
        | S2kParams::Cfb { s2k, .. }
        | S2kParams::MalleableCfb { s2k, .. } => s2k,
        S2kParams::LegacyCfb { .. } | S2kParams::Unprotected => {
            return Ok(SecretKeyProtection::Passphrase);
        }
    };
    match from {
        StringToKey::Argon2 { t, m_enc, .. }
            if *m_enc > MAX_ARGON2_MEMORY || *t > MAX_ARGON2_PASSES =>
        {
            Err("the passphrase of the OpenPGP key takes more than 128 MiB or 8 passes".to_owned())
        }
        // GnuPG exports a key without its secret part if that is on a smart card or was left out.
        StringToKey::Private { .. } | StringToKey::Other { .. } | StringToKey::Reserved { .. } => {
            Ok(SecretKeyProtection::Elsewhere)
        }
        // rPGP itself limits an iterated passphrase: it hashes 62 MiB once or twice.
        _ => Ok(SecretKeyProtection::Passphrase),
    }
}

/// Runs code of rPGP, which panics for some keys with inconsistent numbers. `None` if the code panicked or returned
/// `None`.
pub fn contained<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok().flatten()
}

/// Checks that signing with the key takes a limited time.
///
/// # Errors
/// The key has an unusual size.
pub(super) fn check_size(params: &PublicParams) -> Result<(), String> {
    let numbers = || {
        let bytes =
            params.to_bytes().map_err(|_unwritable| "the OpenPGP key is invalid".to_owned());
        bytes.map(|bytes| bits_of_numbers(&bytes))
    };
    match params {
        PublicParams::RSA(_) => match numbers()?.as_slice() {
            [modulus, ..] if RSA_BITS.contains(modulus) => Ok(()),
            _ => Err("the RSA key does not have 1024 to 8192 bits".to_owned()),
        },
        PublicParams::DSA(_) => match numbers()?.as_slice() {
            [modulus, order, ..]
                if DSA_MODULUS_BITS.contains(modulus) && DSA_ORDER_BITS.contains(order) =>
            {
                Ok(())
            }
            _ => Err("the DSA key has a group of an unusual size".to_owned()),
        },
        _ => Ok(()),
    }
}

/// The sizes of a key's numbers in bits. Each number begins with its size.
fn bits_of_numbers(mut bytes: &[u8]) -> Vec<u16> {
    let mut sizes = Vec::new();
    while let Some((size, rest)) = bytes.split_first_chunk::<2>() {
        let bits = u16::from_be_bytes(*size);
        sizes.push(bits);
        bytes = rest.get(usize::from(bits).div_ceil(8)..).unwrap_or_default();
    }
    sizes
}

#[cfg(test)]
mod tests {
    use pgp::crypto::aead::AeadAlgorithm;
    use pgp::crypto::sym::SymmetricKeyAlgorithm;
    use pgp::types::{DsaPublicParams, EncryptedSecretParams, RsaPublicParams};

    use super::*;

    #[test]
    fn a_passphrase_that_takes_too_much_is_not_derived() {
        let locked = |t: u8, m_enc: u8| {
            let s2k = StringToKey::Argon2 { salt: [7; 16], t, p: 4, m_enc };
            let params = S2kParams::Aead {
                sym_alg: SymmetricKeyAlgorithm::AES256,
                aead_mode: AeadAlgorithm::Ocb,
                s2k,
                nonce: vec![7_u8; 15].into(),
            };
            let data = vec![7_u8].into();
            protection(&SecretParams::Encrypted(EncryptedSecretParams::new(data, params)))
        };
        assert_eq!(locked(3, 16), Ok(SecretKeyProtection::Passphrase));
        for (passes, memory) in [(3, 18), (3, 31), (9, 16)] {
            let error = locked(passes, memory).unwrap_err();
            assert!(error.contains("more than 128 MiB or 8 passes"), "{error}");
        }
    }

    #[test]
    fn the_numbers_of_a_key_are_measured() {
        assert_eq!(bits_of_numbers(&[0, 9, 1, 1, 0, 1, 1]), vec![9_u16, 1]);
        assert_eq!(bits_of_numbers(&[0xff, 0xff, 1]), vec![0xffff_u16]);
        assert_eq!(bits_of_numbers(&[0]), Vec::<u16>::new());
    }

    #[test]
    fn a_key_of_an_unusual_size_does_not_sign() {
        let rsa = |bytes: &[u8]| {
            check_size(&PublicParams::RSA(RsaPublicParams::try_from_reader(bytes).unwrap()))
        };
        assert!(rsa(&[0, 6, 49, 0, 3, 5]).is_err());
        assert_eq!(rsa(&[&[8, 0][..], &[0x81; 256], &[0, 2, 3]].concat()), Ok(()));
        // Signing with this group would never end: its order has less than eight bits.
        let group: &[u8] = &[0, 3, 7, 0, 2, 3, 0, 2, 2, 0, 3, 4];
        let dsa = PublicParams::DSA(DsaPublicParams::try_from_reader(group).unwrap());
        assert!(check_size(&dsa).unwrap_err().contains("group of an unusual size"));
    }
}
