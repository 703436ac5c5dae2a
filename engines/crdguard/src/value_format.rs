//! Formats of strings and numbers that the API server checks. It ignores all other formats.
//!
//! A value is valid, invalid or undecided. Edge cases of complex formats such as `email` and `uri` are undecided.
//!
//! Source of the semantics: kube-openapi `pkg/validation/strfmt`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use golang::regexp::GoRegexp;
use golang::time::{GoTime, GoTimeZone};

/// The answer to whether a value has a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormatMatch {
    Yes,
    No,
    /// It cannot be judged.
    Unknown,
}

impl From<bool> for FormatMatch {
    fn from(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}

/// A pattern of this file, compiled at its first use. If it could not be compiled, it would match nothing. A test
/// excludes that.
struct LazyPattern(LazyLock<Option<GoRegexp>>);

impl LazyPattern {
    fn is_match(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|it| it.is_match(text))
    }
}

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyPattern = LazyPattern(LazyLock::new(|| GoRegexp::new($text).ok()));
    };
}

pattern!(CLOCK, r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
pattern!(SPAN, r"^([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$");
pattern!(
    BASE64,
    r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
);
pattern!(UUID, r"^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
pattern!(UUID3, r"^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
pattern!(UUID4, r"^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
pattern!(UUID5, r"^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
pattern!(MAC, r"^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$");
pattern!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(BSON, r"^[0-9a-fA-F]{24}$");
pattern!(EMAIL, r"^[A-Za-z0-9_%+-]+(\.[A-Za-z0-9_%+-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$");
pattern!(
    HOST,
    r"^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*\.[a-zA-Z]{2,63}$"
);
pattern!(LABEL, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
pattern!(URI, r"^[a-z][a-z0-9+.-]*://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$");

/// Whether a text has a format.
pub(crate) fn of_text(format: &str, text: &str) -> FormatMatch {
    match format.replace('-', "").as_str() {
        "" | "password" => FormatMatch::Yes,
        "date" => is_date(text).into(),
        "datetime" => is_moment(text).into(),
        "duration" => sure(
            SPAN.is_match(text),
            text.is_empty() || !text.bytes().any(|it| it.is_ascii_digit()),
        ),
        "byte" => BASE64.is_match(text).into(),
        "uuid" => UUID.is_match(text).into(),
        "uuid3" => UUID3.is_match(text).into(),
        "uuid4" => UUID4.is_match(text).into(),
        "uuid5" => UUID5.is_match(text).into(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok().into(),
        "ipv6" => match text.parse::<Ipv6Addr>() {
            Ok(_) => FormatMatch::Yes,
            Err(_) => sure(false, !text.contains(':') || text.contains(' ')),
        },
        "cidr" => sure(is_network(text), !text.contains('/')),
        "mac" => sure(MAC.is_match(text), !text.contains([':', '-', '.'])),
        "hexcolor" => HEX_COLOR.is_match(text).into(),
        "bsonobjectid" => BSON.is_match(text).into(),
        "email" => sure(EMAIL.is_match(text), !text.contains('@')),
        "hostname" => sure(HOST.is_match(text), text.is_empty() || text.contains([' ', '/', ':'])),
        "uri" => sure(URI.is_match(text), text.is_empty() || !text.contains([':', '/', '*'])),
        // Newer API servers check these two formats, and older ones do not.
        "k8sshortname" => sure(LABEL.is_match(text) && text.len() <= 63, false),
        "k8slongname" => {
            let all = text.split('.').all(|it| LABEL.is_match(it));
            sure(all && text.len() <= 253, false)
        }
        "isbn" | "isbn10" | "isbn13" | "creditcard" | "ssn" | "rgbcolor" => {
            sure(false, text.is_empty())
        }
        _ => FormatMatch::Yes,
    }
}

/// Whether every API server checks strings for a format.
pub(crate) fn is_checked(format: &str) -> bool {
    const CHECKED: [&str; 24] = [
        "password",
        "date",
        "datetime",
        "duration",
        "byte",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
        "ipv4",
        "ipv6",
        "cidr",
        "mac",
        "hexcolor",
        "bsonobjectid",
        "email",
        "hostname",
        "uri",
        "isbn",
        "isbn10",
        "isbn13",
        "creditcard",
        "ssn",
        "rgbcolor",
    ];
    CHECKED.contains(&format.replace('-', "").as_str())
}

/// Whether a number is in the range of a format.
pub(crate) fn of_number(format: &str, number: f64) -> bool {
    let within = |low: f64, high: f64| (low..=high).contains(&number);
    match format {
        "int32" => within(f64::from(i32::MIN), f64::from(i32::MAX)),
        "uint32" => within(0.0, f64::from(u32::MAX)),
        "uint64" => number >= 0.0,
        "float" | "float32" => within(f64::from(f32::MIN), f64::from(f32::MAX)),
        _ => true,
    }
}

fn sure(is: bool, is_not: bool) -> FormatMatch {
    match (is, is_not) {
        (true, _) => FormatMatch::Yes,
        (false, true) => FormatMatch::No,
        (false, false) => FormatMatch::Unknown,
    }
}

fn is_date(text: &str) -> bool {
    GoTime::parse("2006-01-02", text, &GoTimeZone::fixed("UTC", 0)).is_ok()
}

fn is_moment(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let date = parts.next().unwrap_or_default();
    let clock = parts.next().unwrap_or_default();
    is_date(date) && CLOCK.is_match(clock)
}

fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let is_plain = bits == "0" || !bits.starts_with(['0', '+']);
    let bits = bits.parse::<u8>().ok().filter(|_| is_plain);
    bits.is_some_and(|bits| {
        (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
            || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use FormatMatch::{No, Unknown, Yes};

    #[test]
    fn formats_are_those_of_the_api_server() {
        let table = [
            ("date", "2026-02-28", Yes),
            ("date", "2026-02-30", No),
            ("date-time", "2026-02-28T10:00:00Z", Yes),
            ("date-time", "2026-02-28T25:00:00Z", No),
            ("date-time", "2026-02-28", No),
            ("duration", "1h30m", Yes),
            ("duration", "soon", No),
            ("duration", "3 days", Unknown),
            ("byte", "aGk=", Yes),
            ("byte", "a", No),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", Yes),
            ("uuid4", "123e4567-e89b-12d3-a456-426614174000", No),
            ("ipv4", "10.0.0.1", Yes),
            ("ipv4", "10.0.0", No),
            ("ipv6", "::1", Yes),
            ("ipv6", "10.0.0.1", No),
            ("cidr", "10.0.0.0/8", Yes),
            ("cidr", "10.0.0.0/33", Unknown),
            ("cidr", "10.0.0.0", No),
            ("email", "a@example.com", Yes),
            ("email", "no-at-sign", No),
            ("hostname", "a.example.com", Yes),
            ("hostname", "not a host", No),
            ("uri", "https://example.com/a", Yes),
            ("isbn", "978", Unknown),
            ("of-ours", "anything", Yes),
        ];
        for (format, text, answer) in table {
            assert_eq!(of_text(format, text), answer, "{format} {text}");
        }
        assert!(of_number("int32", 2_147_483_647.0) && !of_number("int32", 2_147_483_648.0));
    }
}
