//! Numbers and quoted text, with the answers of Go 1.26.

use super::*;

fn int(text: &str) -> String {
    parse_int(text, 0, 64).map_or_else(|error| error.to_string(), |number| number.to_string())
}

#[test]
fn integers_are_read_in_the_base_that_their_prefix_says() {
    for (text, wanted) in [
        ("0", "0"),
        ("-0x1F", "-31"),
        ("0b101", "5"),
        ("0o17", "15"),
        ("017", "15"),
        ("1_000", "1000"),
        ("0x_f", "15"),
        ("0_7", "7"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("08", r#"strconv.ParseInt: parsing "08": invalid syntax"#),
        ("1__0", r#"strconv.ParseInt: parsing "1__0": invalid syntax"#),
        ("1_", r#"strconv.ParseInt: parsing "1_": invalid syntax"#),
        ("", r#"strconv.ParseInt: parsing "": invalid syntax"#),
        ("-", r#"strconv.ParseInt: parsing "-": invalid syntax"#),
        ("0x", r#"strconv.ParseInt: parsing "0x": invalid syntax"#),
        (
            "9223372036854775808",
            r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
        ),
        ("1.5", r#"strconv.ParseInt: parsing "1.5": invalid syntax"#),
        ("é\n", r#"strconv.ParseInt: parsing "é\n": invalid syntax"#),
    ] {
        assert_eq!(int(text), wanted, "{text}");
    }
}

#[test]
fn a_base_or_size_that_is_none_is_said() {
    assert_eq!(
        parse_int("1", 1, 64).unwrap_err().to_string(),
        r#"strconv.ParseInt: parsing "1": invalid base 1"#
    );
    assert_eq!(
        parse_uint("1", 10, 65).unwrap_err().to_string(),
        r#"strconv.ParseUint: parsing "1": invalid bit size 65"#
    );
    assert_eq!(parse_int("128", 10, 8).unwrap_err().reason, NumErrorReason::Range);
    assert_eq!(parse_int("-128", 10, 8), Ok(-128));
    assert_eq!(
        atoi("1_0").unwrap_err().to_string(),
        r#"strconv.Atoi: parsing "1_0": invalid syntax"#
    );
}

#[test]
fn floats_are_read_as_go_reads_them() {
    for (text, wanted) in [
        ("1.5e3", Some(1500.0)),
        (".5", Some(0.5)),
        ("5.", Some(5.0)),
        ("+Inf", Some(f64::INFINITY)),
        ("-infinity", Some(f64::NEG_INFINITY)),
        ("0x1p-2", Some(0.25)),
        ("0x.8p1", Some(1.0)),
        ("0x1.00000000000008p0", Some(1.0)),
        ("0x1.000000000000081p0", Some(1.0 + f64::EPSILON)),
        ("0x1p-1074", Some(5e-324)),
        ("0x1p-1075", Some(0.0)),
        ("1_0.5", Some(10.5)),
        ("infinit", None),
        ("0x1", None),
        ("1e", None),
        (".", None),
        ("1e400", None),
        ("0x1p1024", None),
        (" 1", None),
    ] {
        assert_eq!(parse_float(text, 64).ok(), wanted, "{text}");
    }
    assert!(parse_float("NaN", 64).is_ok_and(f64::is_nan));
    assert!(parse_float("-nan", 64).is_err());
    assert_eq!(
        parse_float("1e400", 64).unwrap_err().to_string(),
        r#"strconv.ParseFloat: parsing "1e400": value out of range"#
    );
}
