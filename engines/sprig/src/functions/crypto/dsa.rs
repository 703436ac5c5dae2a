//! Generates DSA keys, which are obsolete but still offered: 2048 bits, with a group order of 256 bits.

use num_bigint::BigUint;
use yasna::ASN1Result;

use crate::template_environment::RandomBytesEnvironment;

const P_BITS: u64 = 2048;
const Q_BITS: u64 = 256;
/// The number of random witnesses in the primality test.
const PRIMALITY_WITNESS_COUNT: usize = 32;

/// The steps for finding a small divisor of a number of 2048 bits, and for testing whether a number is a prime. A key takes
/// some 700 numbers, and one in seven has no small divisor.
const TRIAL_DIVISION_STEPS: usize = 2_000;
const PRIMALITY_TEST_STEPS: usize = 100_000;

/// Generates a key: version, `p`, `q`, `g`, public and private number in a sequence. `work` is called before each test with its
/// steps, because thousands of numbers may be drawn. Most of them are rejected for a small divisor.
///
/// # Errors
/// The error of `work`.
pub(super) fn generate<E>(
    template_environment: RandomBytesEnvironment<'_>,
    work: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let one = BigUint::from(1_u32);
    let (p, q) = primes(template_environment, work)?;
    // Finds a generator of the group of order `q`. Almost every base gives one.
    let exponent = (&p - &one) / &q;
    let g = (2_u32..)
        .map(|base| BigUint::from(base).modpow(&exponent, &p))
        .find(|g| *g != one)
        .unwrap_or_default();
    // 64 additional bits make the remainder practically uniform.
    let x = random(template_environment, Q_BITS + 64) % (&q - &one) + &one;
    let y = g.modpow(&x, &p);
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_i64(0);
            for number in [&p, &q, &g, &y, &x] {
                writer.next().write_bigint_bytes(&number.to_bytes_be(), true);
            }
        });
    }))
}

/// Whether bytes have the form of a key.
///
/// # Errors
/// They have not.
pub(super) fn check(der: &[u8]) -> ASN1Result<()> {
    yasna::parse_der(der, |reader| {
        reader.read_sequence(|reader| {
            for _ in 0..6 {
                reader.next().read_bigint_bytes()?;
            }
            Ok(())
        })
    })
}

/// A prime of 2048 bits, and a prime of 256 bits that divides the first one minus 1.
fn primes<E>(
    template_environment: RandomBytesEnvironment<'_>,
    work: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<(BigUint, BigUint), E> {
    let one = BigUint::from(1_u32);
    loop {
        let mut q = random(template_environment, Q_BITS);
        q.set_bit(0, true);
        q.set_bit(Q_BITS - 1, true);
        if !is_prime(template_environment, &q, work)? {
            continue;
        }
        let double = &q << 1_u32;
        for _ in 0..4 * P_BITS {
            let mut p = random(template_environment, P_BITS);
            p.set_bit(P_BITS - 1, true);
            p = &p - &p % &double + &one;
            if p.bits() == P_BITS && is_prime(template_environment, &p, work)? {
                return Ok((p, q));
            }
        }
    }
}

/// Whether an odd number above 2000 is a prime, by Miller and Rabin.
fn is_prime<E>(
    template_environment: RandomBytesEnvironment<'_>,
    number: &BigUint,
    work: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<bool, E> {
    let zero = BigUint::ZERO;
    let one = BigUint::from(1_u32);
    let two = BigUint::from(2_u32);
    // Most numbers have a small divisor.
    work(TRIAL_DIVISION_STEPS)?;
    if (3_u32..2000).step_by(2).any(|divisor| number % divisor == zero) {
        return Ok(false);
    }
    work(PRIMALITY_TEST_STEPS)?;
    let before = number - &one;
    let twos = before.trailing_zeros().unwrap_or(0);
    let odd = &before >> twos;
    Ok((0..PRIMALITY_WITNESS_COUNT).all(|_| {
        let witness = random(template_environment, number.bits() + 64) % (&before - &two) + &two;
        let mut power = witness.modpow(&odd, number);
        if power == one || power == before {
            return true;
        }
        (1..twos).any(|_| {
            power = power.modpow(&two, number);
            power == before
        })
    }))
}

fn random(template_environment: RandomBytesEnvironment<'_>, bits: u64) -> BigUint {
    let mut bytes = vec![0; bits.div_ceil(8) as usize];
    template_environment.fill(&mut bytes);
    BigUint::from_bytes_be(&bytes)
}
