//! Decrypts AES-256-GCM with a nonce of any length, as Go's `cipher.NewGCMWithNonceSize` does (NIST SP 800-38D).
//!
//! sops writes nonces of 32 bytes. `encrypted_value.rs` decrypts these with a library, which must know the length at compile time.
//! Values with nonces of other lengths are decrypted here.

use aes_gcm::KeyInit as _;
use aes_gcm::aes::Aes256;
use aes_gcm::aes::cipher::{Block, BlockCipherEncrypt as _};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::Zeroizing;

use crate::encrypted_value::CipherError;
use crate::value::SecretBytes;

/// The length of a tag in bytes. The tag follows the ciphertext.
const TAG_BYTES: usize = 16;

/// Decrypts a ciphertext. Its nonce may have any length except 0, and usually has 12 bytes.
pub(crate) fn open(
    key: &[u8],
    nonce: &[u8],
    sealed: &[u8],
    associated: &[u8],
) -> Result<SecretBytes, CipherError> {
    let cipher = Aes256::new_from_slice(key).map_err(|_| CipherError::KeySize(key.len()))?;
    let encrypt = |block: u128| {
        let mut block = Block::<Aes256>::from(block.to_be_bytes());
        cipher.encrypt_block(&mut block);
        u128::from_be_bytes(block.into())
    };
    let hash_key = encrypt(0);
    let first = match <[u8; 12]>::try_from(nonce) {
        Ok(nonce) => {
            let mut block = [0; 16];
            block[..12].copy_from_slice(&nonce);
            block[15] = 1;
            u128::from_be_bytes(block)
        }
        Err(_) => hash(hash_key, &[], nonce),
    };
    let at = sealed.len().checked_sub(TAG_BYTES).ok_or(CipherError::Forged)?;
    let (data, tag) = sealed.split_at(at);
    let own = hash(hash_key, associated, data) ^ encrypt(first);
    verify_slices_are_equal(&own.to_be_bytes(), tag).map_err(|_| CipherError::Forged)?;
    let mut plain = Zeroizing::new(Vec::with_capacity(data.len()));
    let mut counter = first;
    for block in data.chunks(16) {
        counter = following(counter);
        let stream = encrypt(counter).to_be_bytes();
        plain.extend(block.iter().zip(stream).map(|(byte, key)| byte ^ key));
    }
    Ok(plain)
}

/// The next block of the counter. Only its last 32 bits are incremented.
fn following(counter: u128) -> u128 {
    const COUNTER_BITS: u128 = 0xffff_ffff;
    (counter & !COUNTER_BITS) | (counter.wrapping_add(1) & COUNTER_BITS)
}

/// GHASH of the authenticated data and the ciphertext.
fn hash(key: u128, associated: &[u8], data: &[u8]) -> u128 {
    let mut state = 0;
    for part in [associated, data] {
        for chunk in part.chunks(16) {
            let mut block = [0; 16];
            block[..chunk.len()].copy_from_slice(chunk);
            state = multiply(state ^ u128::from_be_bytes(block), key);
        }
    }
    let bits = |part: &[u8]| part.len() as u128 * 8;
    multiply(state ^ ((bits(associated) << 64) | bits(data)), key)
}

/// The product in the field of GCM, where the first bit is the lowest power. Takes as long for every number.
fn multiply(one: u128, other: u128) -> u128 {
    const FIELD_POLYNOMIAL: u128 = 0xe1 << 120;
    let mut product = 0;
    let mut power = other;
    for bit in (0..128).rev() {
        product ^= power & 0_u128.wrapping_sub((one >> bit) & 1);
        power = (power >> 1) ^ (FIELD_POLYNOMIAL & 0_u128.wrapping_sub(power & 1));
    }
    product
}

#[cfg(test)]
mod tests {
    use aes_gcm::aead::array::ArraySize;
    use aes_gcm::aead::consts::{U1, U12, U13, U16, U32, U64};
    use aes_gcm::aead::{Aead as _, Payload};
    use aes_gcm::{AesGcm, Nonce};

    use super::*;

    fn sealed<N: ArraySize>(plain: &[u8], path: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let cipher = AesGcm::<Aes256, N>::new_from_slice(&[7; 32]).unwrap();
        let nonce: Vec<u8> = (0..N::USIZE).map(|at| u8::try_from(at).unwrap() ^ 0xa5).collect();
        let payload = Payload { msg: plain, aad: path };
        let sealed = cipher.encrypt(&Nonce::<N>::try_from(&*nonce).unwrap(), payload).unwrap();
        (nonce, sealed)
    }

    #[test]
    fn a_nonce_of_any_length_opens_what_it_closed() {
        for length in [0, 1, 15, 16, 17, 64, 1_000] {
            let plain: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            for path in [&b""[..], b"a:", b"a:b:a long path of several blocks:"] {
                for (nonce, sealed) in [
                    sealed::<U1>(&plain, path),
                    sealed::<U12>(&plain, path),
                    sealed::<U13>(&plain, path),
                    sealed::<U16>(&plain, path),
                    sealed::<U32>(&plain, path),
                    sealed::<U64>(&plain, path),
                ] {
                    let opened = open(&[7; 32], &nonce, &sealed, path).unwrap();
                    assert_eq!(*opened, plain, "{length} {}", nonce.len());
                    for at in [0, sealed.len() / 2, sealed.len() - 1] {
                        let mut damaged = sealed.clone();
                        damaged[at] ^= 1;
                        let refused = open(&[7; 32], &nonce, &damaged, path);
                        assert_eq!(refused, Err(CipherError::Forged));
                    }
                    assert_eq!(open(&[7; 32], &nonce, &sealed, b"x"), Err(CipherError::Forged));
                    assert_eq!(open(&[7; 32], &nonce, &[1; 15], path), Err(CipherError::Forged));
                    assert_eq!(
                        open(&[7; 31], &nonce, &sealed, path),
                        Err(CipherError::KeySize(31))
                    );
                }
            }
        }
    }

    #[test]
    fn the_last_bits_of_a_counter_run_over_alone() {
        assert_eq!(following(u128::MAX), u128::MAX << 32);
        assert_eq!(following(7), 8);
    }
}
