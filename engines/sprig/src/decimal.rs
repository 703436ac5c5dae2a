//! Decimal numbers of any length with the arithmetic of `shopspring/decimal`: exact, except for division.

use golang::strconv::{FloatTextFormat, format_float};
use num_bigint::{BigInt, Sign};

/// Digits behind the point that a division keeps.
const DIVISION_PRECISION_DIGITS: i32 = 16;

/// A decimal number with the value `coefficient * 10^exponent`.
#[derive(Debug, Clone)]
pub(crate) struct Decimal {
    coefficient: BigInt,
    exponent: i32,
}

impl Decimal {
    /// The shortest decimal number that represents a `float64`.
    ///
    /// # Errors
    /// The number is infinite or NaN. The text is that of Go's panic.
    pub(crate) fn from_float(float: f64) -> Result<Self, String> {
        if !float.is_finite() {
            let shown = match float {
                float if float.is_nan() => "NaN",
                f64::INFINITY => "+Inf",
                _ => "-Inf",
            };
            return Err(format!("Cannot create a Decimal from {shown}"));
        }
        let text = format_float(float, FloatTextFormat::Exponent, None);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let coefficient = format!("{whole}{fraction}").parse().unwrap_or_default();
        let behind_point = i32::try_from(fraction.len()).unwrap_or_default();
        Ok(Self {
            coefficient,
            exponent: exponent.parse::<i32>().unwrap_or_default() - behind_point,
        })
    }

    /// The number of bits in the coefficient, without zeros that the exponent adds.
    pub(crate) fn bits(&self) -> usize {
        usize::try_from(self.coefficient.bits()).unwrap_or(usize::MAX)
    }

    /// The `float64` that is nearest.
    pub(crate) fn to_float(&self) -> f64 {
        format!("{}e{}", self.coefficient, self.exponent).parse().unwrap_or_default()
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let coefficient = self.scaled(exponent) + other.scaled(exponent);
        Self { coefficient, exponent }
    }

    pub(crate) fn sub(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let coefficient = self.scaled(exponent) - other.scaled(exponent);
        Self { coefficient, exponent }
    }

    pub(crate) fn mul(&self, other: &Self) -> Self {
        let coefficient = &self.coefficient * &other.coefficient;
        Self { coefficient, exponent: self.exponent + other.exponent }
    }

    /// Halves of the last digit are rounded away from zero.
    ///
    /// # Errors
    /// When the divisor is zero.
    pub(crate) fn div(&self, other: &Self) -> Result<Self, String> {
        if other.coefficient.sign() == Sign::NoSign {
            return Err("decimal division by 0".to_owned());
        }
        let shift = self.exponent - other.exponent + DIVISION_PRECISION_DIGITS;
        let (dividend, divisor) = if shift < 0 {
            (self.coefficient.clone(), &other.coefficient * power(-shift))
        } else {
            (&self.coefficient * power(shift), other.coefficient.clone())
        };
        let mut quotient = &dividend / &divisor;
        let remainder = &dividend % &divisor;
        if remainder.magnitude() * 2u8 >= *divisor.magnitude() {
            let is_negative = dividend.sign() != Sign::NoSign && dividend.sign() != divisor.sign();
            quotient += if is_negative { -1 } else { 1 };
        }
        Ok(Self { coefficient: quotient, exponent: -DIVISION_PRECISION_DIGITS })
    }

    /// The coefficient for a smaller exponent.
    fn scaled(&self, exponent: i32) -> BigInt {
        &self.coefficient * power(self.exponent - exponent)
    }
}

fn power(exponent: i32) -> BigInt {
    BigInt::from(10).pow(exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(float: f64) -> Decimal {
        Decimal::from_float(float).unwrap()
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!(decimal(1.1).add(&decimal(2.2)).to_float(), 3.3);
        assert_eq!(decimal(1.0).sub(&decimal(0.9)).to_float(), 0.1);
        assert_eq!(decimal(1e300).add(&decimal(1e-300)).to_float(), 1e300);
        assert_eq!(decimal(1e200).mul(&decimal(1e200)).to_float(), f64::INFINITY);
        assert_eq!(decimal(5e-324).mul(&decimal(0.25)).to_float(), 0.0);
    }

    #[test]
    fn a_quotient_has_sixteen_digits_behind_the_point() {
        let quotient = |a, b| decimal(a).div(&decimal(b)).unwrap().to_float();
        assert_eq!(quotient(1.0, 3.0), 0.333_333_333_333_333_3);
        assert_eq!(quotient(-2.0, 3.0), -0.666_666_666_666_666_7);
        assert_eq!(quotient(1.0, 1e20), 0.0);
        assert_eq!(quotient(5.0, 1e17), 1e-16);
        assert!(decimal(1.0).div(&decimal(0.0)).is_err());
    }
}
