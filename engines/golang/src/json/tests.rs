//! Values are read as Go reads them, and errors are Go's.

use super::{Error, decode_prefix};
use crate::fmt::sprintf;

fn read(text: &str) -> Result<(String, usize), String> {
    let (value, len) = decode_prefix(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok((String::from_utf8(sprintf("%v", &[value]).unwrap()).unwrap(), len))
}

#[test]
fn the_value_at_the_beginning_is_read_and_what_follows_is_not() {
    for (text, wanted, len) in [
        ("1b=2", "1", 1),
        (" 1 , 2", "1", 2),
        ("01", "0", 1),
        ("-0.5e+2x", "-50", 7),
        ("truex", "true", 4),
        ("null", "<nil>", 4),
        (r#""a\n\u00e9\ud83d\ude00"y"#, "a\né😀", 23),
        (r#""\ud83d\u0041\ud83d""#, "\u{fffd}A\u{fffd}", 20),
        (r#"{"b":[1,[],{}],"a":{"x":"y"},"a":2} "#, "map[a:2 b:[1 [] map[]]]", 35),
    ] {
        assert_eq!(read(text), Ok((wanted.to_owned(), len)), "{text}");
    }
}

#[test]
fn what_is_no_json_is_said_as_go_says_it() {
    for (text, wanted) in [
        ("", "unexpected EOF"),
        ("[1,2", "unexpected EOF"),
        ("nul", "unexpected EOF"),
        ("-", "unexpected EOF"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        (r#"{"x":}"#, "invalid character '}' looking for beginning of value"),
        ("{,", "invalid character ',' looking for beginning of object key string"),
        (r#"{"x":1,}"#, "invalid character '}' looking for beginning of object key string"),
        (r#"{"x" 1}"#, "invalid character '1' after object key"),
        (r#"{"x":1 "y"}"#, "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("nux", "invalid character 'x' in literal null (expecting 'l')"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.'", r"invalid character '\'' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("\"\n", r"invalid character '\n' in string literal"),
        (r#""\x"#, "invalid character 'x' in string escape code"),
        (r#""\u12G"#, r"invalid character 'G' in \u hexadecimal character escape"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
        ("[1e999]", "json: cannot unmarshal number 1e999 into Go value of type float64"),
        ("[1e999}", "invalid character '}' after array element"),
    ] {
        assert_eq!(read(text), Err(wanted.to_owned()), "{text}");
    }
}

#[test]
fn nesting_ends_where_gos_does() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert!(decode_prefix(&nested(10_000)).is_ok());
    assert_eq!(decode_prefix(&nested(10_001)).unwrap_err(), Error::TooDeep);
}
