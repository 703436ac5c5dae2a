//! Combines a data key that was split among key groups, by Shamir's scheme over GF(256) in Vault's format.
//!
//! A part has one byte for each byte of the secret, followed by the point at which the polynomials were evaluated.

use zeroize::Zeroizing;

use crate::value::SecretBytes;

/// Why parts cannot be combined, in the words of sops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ShamirCombineError {
    #[error("less than two parts cannot be used to reconstruct the secret")]
    TooFew,
    #[error("parts must be at least two bytes")]
    TooShort,
    #[error("all parts must be the same length")]
    Lengths,
    #[error("duplicate part detected")]
    Duplicate,
}

/// Combines parts to the secret. Too few or wrong parts give a wrong result without an error.
pub(crate) fn combine(parts: &[SecretBytes]) -> Result<SecretBytes, ShamirCombineError> {
    let [first, _, ..] = parts else { return Err(ShamirCombineError::TooFew) };
    if first.len() < 2 {
        return Err(ShamirCombineError::TooShort);
    }
    if parts.iter().any(|part| part.len() != first.len()) {
        return Err(ShamirCombineError::Lengths);
    }
    let split: Vec<(u8, &[u8])> =
        parts.iter().filter_map(|part| part.split_last()).map(|(x, ys)| (*x, ys)).collect();
    let mut seen = [false; 256];
    for (x, _) in &split {
        if std::mem::replace(&mut seen[usize::from(*x)], true) {
            return Err(ShamirCombineError::Duplicate);
        }
    }
    // The weight of a part is the same for all bytes, so it is computed once.
    let weights: Vec<u8> = split.iter().map(|(x, _)| weight(*x, &split)).collect();
    let mut secret = Zeroizing::new(vec![0; first.len() - 1]);
    for (weight, (_, ys)) in weights.iter().zip(&split) {
        for (sum, y) in secret.iter_mut().zip(*ys) {
            *sum ^= multiply(*weight, *y);
        }
    }
    Ok(secret)
}

/// Lagrange's factor of the part at `x` for the value at 0.
fn weight(x: u8, parts: &[(u8, &[u8])]) -> u8 {
    let others = parts.iter().filter(|(other, _)| *other != x);
    others.fold(1, |product, (other, _)| multiply(product, multiply(*other, inverse(x ^ other))))
}

/// The product in the field of AES, without a branch or a table access that depends on the factors.
fn multiply(left: u8, right: u8) -> u8 {
    let mut product = 0;
    for bit in (0..8).rev() {
        let overflow = (product >> 7) & 1;
        product = (product << 1) ^ (0x1b & 0u8.wrapping_sub(overflow));
        product ^= left & 0u8.wrapping_sub((right >> bit) & 1);
    }
    product
}

/// The multiplicative inverse, as the 254th power. The result for 0 is 0.
fn inverse(value: u8) -> u8 {
    let mut power = value;
    for _ in 0..6 {
        power = multiply(multiply(power, power), value);
    }
    multiply(power, power)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of one byte of a secret: `secret + a·x`.
    fn part(secret: u8, slope: u8, x: u8) -> SecretBytes {
        Zeroizing::new(vec![secret ^ multiply(slope, x), x])
    }

    #[test]
    fn any_two_parts_of_a_line_give_its_secret() {
        for (one, other) in [(1, 2), (7, 255), (200, 3)] {
            let parts = [part(0x5a, 0x91, one), part(0x5a, 0x91, other)];
            assert_eq!(combine(&parts).unwrap().as_slice(), [0x5a]);
        }
        let more = [part(9, 4, 1), part(9, 4, 2), part(9, 4, 77)];
        assert_eq!(combine(&more).unwrap().as_slice(), [9]);
    }

    #[test]
    fn every_value_but_zero_has_an_inverse() {
        assert!((1..=255).all(|value| multiply(value, inverse(value)) == 1));
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        let one = part(1, 2, 3);
        assert_eq!(combine(std::slice::from_ref(&one)), Err(ShamirCombineError::TooFew));
        assert_eq!(combine(&[one.clone(), one.clone()]), Err(ShamirCombineError::Duplicate));
        let longer = Zeroizing::new(vec![1, 2, 4]);
        assert_eq!(combine(&[one, longer]), Err(ShamirCombineError::Lengths));
        let short = Zeroizing::new(vec![1]);
        assert_eq!(combine(&[short.clone(), short]), Err(ShamirCombineError::TooShort));
    }
}
