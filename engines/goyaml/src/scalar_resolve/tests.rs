//! Resolution of single strings, compared with observed answers of Go.

use crate::YamlDialect;

use super::{ResolvedScalar, resolve, tag};

fn plain(text: &str) -> ResolvedScalar {
    resolve(YamlDialect::V2, "", text).unwrap()
}

#[test]
fn booleans_are_those_of_yaml_1_1_and_in_three_spellings_only() {
    for text in ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"] {
        assert_eq!(plain(text), ResolvedScalar::Bool(true), "{text}");
    }
    for text in ["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"] {
        assert_eq!(plain(text), ResolvedScalar::Bool(false), "{text}");
    }
    for text in ["tRue", "yES", "oN", "nope", "fALSE"] {
        assert_eq!(plain(text), ResolvedScalar::Str, "{text}");
    }
}

#[test]
fn integers_are_read_with_the_base_that_their_prefix_names() {
    for (text, int) in [
        ("0", 0),
        ("00", 0),
        ("0755", 493),
        ("0o755", 493),
        ("0O7", 7),
        ("0x1F", 31),
        ("0b101", 5),
        ("0B1", 1),
        ("-0b101", -5),
        ("0b-101", -5),
        ("0b+1", 1),
        ("-012", -10),
        ("+12", 12),
        ("1_000", 1000),
        ("1__0_", 10),
        ("-9223372036854775808", i64::MIN),
    ] {
        assert_eq!(plain(text), ResolvedScalar::Int(int), "{text}");
    }
    assert_eq!(plain("9223372036854775808"), ResolvedScalar::Uint(1 << 63));
    assert_eq!(plain("+9223372036854775808"), ResolvedScalar::Float(9223372036854775808.0));
    for text in ["0o8", "0b2", "0x", "0b", "-", "+", "--1", "+-1", "0x-1", "0b--1", "-0b-1"] {
        assert_eq!(plain(text), ResolvedScalar::Str, "{text}");
    }
}

#[test]
fn floats_that_are_too_large_or_not_of_the_form_are_strings() {
    for (text, float) in [
        ("1.", 1.0),
        (".5", 0.5),
        (".5_0", 0.5),
        (".5e1_0", 5e9),
        ("1e3", 1000.0),
        ("+1.5", 1.5),
        ("08", 8.0),
        ("1_0.5", 10.5),
        ("1e-400", 0.0),
        ("-.Inf", f64::NEG_INFINITY),
    ] {
        assert_eq!(plain(text), ResolvedScalar::Float(float), "{text}");
    }
    for text in ["1e", "1e400", "1.2.3", ".5_", "._5", ".", ".e5", "inf", "nan", "0x1p3", "1:30"] {
        assert_eq!(plain(text), ResolvedScalar::Str, "{text}");
    }
}

#[test]
fn dates_are_distinguished_from_strings_that_only_look_like_one() {
    for text in [
        "2001-01-01",
        "2001-1-1",
        "2000-02-29",
        "2001-12-14t21:59:43.10-05:00",
        "2001-12-14T1:2:3Z",
        "2001-12-14  21:59:43,5",
        "2001-12-14 21:59:43",
    ] {
        assert_eq!(plain(text), ResolvedScalar::Timestamp, "{text}");
    }
    for text in [
        "2001-02-29",
        "2001-13-01",
        "2001-01-32",
        "2001-01-1x",
        "2001-12-14 21:59:43 Z",
        "2001-12-14 21:59:43.10 -5",
        "2001-12-14T21:59:43",
        "2001-12-14T24:00:00Z",
        "20010-01-01",
    ] {
        assert_eq!(plain(text), ResolvedScalar::Str, "{text}");
    }
}

#[test]
fn a_tag_accepts_its_own_form_only() {
    assert_eq!(resolve(YamlDialect::V2, tag::STR, "1"), Ok(ResolvedScalar::Str));
    assert_eq!(resolve(YamlDialect::V2, tag::FLOAT, "1"), Ok(ResolvedScalar::Float(1.0)));
    assert_eq!(resolve(YamlDialect::V2, tag::BINARY, "aGk="), Ok(ResolvedScalar::Binary));
    assert_eq!(resolve(YamlDialect::V2, "!x", "1"), Ok(ResolvedScalar::Other));
    for (tag, text, message) in [
        (tag::INT, "abc", "cannot decode !!str `abc` as a !!int"),
        (tag::INT, "", "cannot decode !!null `` as a !!int"),
        (tag::INT, "2001-01-01", "cannot decode !!str `2001-01-01` as a !!int"),
        (tag::BOOL, "1", "cannot decode !!int `1` as a !!bool"),
        (
            tag::FLOAT,
            "18446744073709551615",
            "cannot decode !!int `18446744073709551615` as a !!float",
        ),
        (tag::TIMESTAMP, "x", "cannot decode !!str `x` as a !!timestamp"),
    ] {
        assert_eq!(resolve(YamlDialect::V2, tag, text).unwrap_err().to_string(), message);
    }
}

#[test]
fn version_3_knows_fewer_words_and_signed_octals() {
    let plain = |text| resolve(YamlDialect::V3, "", text).unwrap();
    for text in ["y", "yes", "on", "n", "No", "OFF", "<<", "0o8"] {
        assert_eq!(plain(text), ResolvedScalar::Str, "{text}");
    }
    assert_eq!(plain("True"), ResolvedScalar::Bool(true));
    assert_eq!(plain("0o-17"), ResolvedScalar::Int(-15));
    assert_eq!(resolve(YamlDialect::V2, "", "0o-17"), Ok(ResolvedScalar::Str));
    assert_eq!(plain("017"), ResolvedScalar::Int(15));
    assert_eq!(plain(""), ResolvedScalar::Null);
}
