//! Numbers in written YAML, after Go has written them as JSON and read that as YAML.
//!
//! Here: which JSON floats become integers. Elsewhere: Go's `%g` (`go_format.rs`), and strings that look like numbers
//! (`scalar`).

use crate::go_format::FloatDecimal;

/// The text of a finite float.
pub(super) fn text(float: f64) -> String {
    // A whole number below 1e15 is written as an integer, without an exponent.
    if float.fract() == 0.0 && float.abs() < 1e15 {
        return (float as i64).to_string();
    }
    let decimal = FloatDecimal::parse(&serde_json::to_string(&float).unwrap_or_default());
    let FloatDecimal { sign, digits, point } = &decimal;
    // Go writes a whole number below 1e21 into JSON without point and exponent, and YAML reads
    // that as an integer if it fits into 64 bits; minus zero loses its sign on the way.
    if let Ok(length @ ..=21) = usize::try_from(*point)
        && digits.len() <= length
    {
        let whole = format!("{sign}{digits:0<length$}");
        if whole.parse::<i64>().is_ok() || whole.parse::<u64>().is_ok() {
            return whole;
        }
    }
    if digits.is_empty() { "0".to_owned() } else { decimal.general() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(float: f64, wanted: &str) {
        assert_eq!(text(float), wanted);
    }

    #[test]
    fn a_whole_float_that_fits_64_bits_is_written_as_an_integer() {
        check(1e6, "1000000");
        check(-0.0, "0");
        check(-1e18, "-1000000000000000000");
        check(9_223_372_036_854_775_808.0, "9223372036854776000");
        check(-9_223_372_036_854_775_808.0, "-9.223372036854776e+18");
        check(1e19, "10000000000000000000");
        check(1e20, "1e+20");
        check(-1e19, "-1e+19");
        check(18_446_744_073_709_551_616.0, "1.8446744073709552e+19");
    }

    #[test]
    fn other_floats_turn_to_exponents_at_six_digits() {
        check(0.5, "0.5");
        check(-1.25, "-1.25");
        check(999_999.5, "999999.5");
        check(1_000_000.5, "1.0000005e+06");
        check(0.0001, "0.0001");
        check(0.000_012, "1.2e-05");
        check(1e300, "1e+300");
        check(5e-324, "5e-324");
        check(f64::MIN_POSITIVE, "2.2250738585072014e-308");
    }

    #[test]
    fn of_two_shortest_strings_the_even_one_is_written() {
        check(261_445_555_813_946.0 + 0.125, "2.6144555581394612e+14");
        check(261_445_555_813_946.0 + 0.375, "2.6144555581394638e+14");
        check(-0.3, "-0.3");
    }
}
