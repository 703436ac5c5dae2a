//! Keys of DSA, which is obsolete but on offer: 2048 bits, 256 of them for the group.

use num_bigint::BigUint;
use yasna::ASN1Result;

use crate::template_environment::RandomDraws;

const P_BITS: u64 = 2048;
const Q_BITS: u64 = 256;
/// How many random witnesses a number has to survive to be called a prime.
const PRIMALITY_WITNESS_COUNT: usize = 32;

/// How many steps of a run it takes to look for a small divisor of a number of 2048 bits, and to test whether one
/// without is a prime. A key takes some 700 numbers, of which one in seven has none.
const TRIAL_DIVISION_STEPS: usize = 2_000;
const PRIMALITY_TEST_STEPS: usize = 100_000;

/// A new key: version, `p`, `q`, `g`, public and private number in a sequence. `work` is called with the steps of each
/// test before it is made: most of the thousands of numbers that may be drawn are dismissed because of a small divisor.
///
/// # Errors
/// The error of `work`.
pub(super) fn generate<E>(
    template_environment: RandomDraws<'_>,
    work: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let one = BigUint::from(1_u32);
    let (p, q) = primes(template_environment, work)?;
    // An element of the group of `q` elements: all but the rarest bases give one.
    let exponent = (&p - &one) / &q;
    let g = (2_u32..)
        .map(|base| BigUint::from(base).modpow(&exponent, &p))
        .find(|g| *g != one)
        .unwrap_or_default();
    // So many bits more that no remainder is likelier than the others.
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

/// A prime of 2048 bits, and one of 256 bits that divides the number before it.
fn primes<E>(
    template_environment: RandomDraws<'_>,
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
    template_environment: RandomDraws<'_>,
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

fn random(template_environment: RandomDraws<'_>, bits: u64) -> BigUint {
    let mut bytes = vec![0; bits.div_ceil(8) as usize];
    template_environment.fill(&mut bytes);
    BigUint::from_bytes_be(&bytes)
}
