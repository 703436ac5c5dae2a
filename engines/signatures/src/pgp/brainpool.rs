//! ECDSA on Brainpool's curves, which rPGP reads and does not verify.

use bp256::BrainpoolP256r1;
use bp384::BrainpoolP384r1;
use ecdsa::{Signature, VerifyingKey};
use pgp::crypto::ecc_curve::ECCCurve;
use pgp::errors::{Error, Result};
use pgp::types::{Mpi, SignatureBytes};
use signature::hazmat::PrehashVerifier as _;

fn refused(message: &str) -> Error {
    Error::Message { message: message.to_owned(), backtrace: None }
}

/// Bytes with leading zeros up to a length.
fn padded<const BYTE_COUNT: usize>(number: &[u8]) -> Result<[u8; BYTE_COUNT]> {
    let mut padded = [0; BYTE_COUNT];
    let at =
        BYTE_COUNT.checked_sub(number.len()).ok_or_else(|| refused("a number is too large"))?;
    padded[at..].copy_from_slice(number);
    Ok(padded)
}

macro_rules! verify_on {
    ($curve:ty, $length:literal, $point:expr, $digest:expr, $numbers:expr) => {{
        let key = VerifyingKey::<$curve>::from_sec1_bytes($point)
            .map_err(|_| refused("no such point"))?;
        let r = padded::<$length>($numbers.0)?;
        let s = padded::<$length>($numbers.1)?;
        let signature =
            Signature::<$curve>::from_scalars(r, s).map_err(|_| refused("not a signature"))?;
        // A digest is a number, which leading zeros do not change.
        let mut digest = vec![0; $length - $digest.len().min($length)];
        digest.extend($digest);
        key.verify_prehash(&digest, &signature).map_err(|_| refused("signature did not verify"))
    }};
}

/// Verifies a signature with a public point in the form of a key packet: the number of its bits, then its bytes.
///
/// # Errors
/// The key did not make the signature, or the curve is not supported. Only P256r1 and P384r1 are.
pub(super) fn verify(
    curve: &ECCCurve,
    point: &[u8],
    digest: &[u8],
    signature: &SignatureBytes,
) -> Result<()> {
    let numbers: &[Mpi] = signature.try_into()?;
    let [r, s] = numbers else { return Err(refused("not a signature of ECDSA")) };
    let numbers = (r.as_ref(), s.as_ref());
    let point = point.get(2..).unwrap_or_default();
    match curve {
        ECCCurve::BrainpoolP256r1 => verify_on!(BrainpoolP256r1, 32, point, digest, numbers),
        ECCCurve::BrainpoolP384r1 => verify_on!(BrainpoolP384r1, 48, point, digest, numbers),
        _ => Err(refused("the curve is not supported")),
    }
}
