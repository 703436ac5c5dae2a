//! Padding, and the forms of integers, floats and strings with flags.

use crate::strconv::{
    FloatTextFormat, QuotingStyle, can_backquote, format_float, quote, quote_char,
};
use crate::unicode::{count, decode, is_print};
use crate::value::SizedInteger;

/// The flags, width and precision between the percent sign and the verb.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FormatFlags {
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// The flag of `%+v`: structs are printed with the names of their fields.
    pub(super) plus_v: bool,
    /// The flag of `%#v`: values are printed in Go syntax.
    pub(super) sharp_v: bool,
}

/// Whether digits of a base are written as small or capital letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DigitCase {
    Small,
    Capital,
}

impl FormatFlags {
    /// Pads a text to the width. Zeros are only added on the left.
    pub(super) fn pad(&self, text: &[u8]) -> Vec<u8> {
        let missing = self.width.unwrap_or(0).saturating_sub(count(text));
        if missing == 0 {
            return text.to_vec();
        }
        let mut padded = Vec::with_capacity(text.len() + missing);
        if self.minus {
            padded.extend_from_slice(text);
            padded.resize(padded.len() + missing, b' ');
        } else {
            padded.resize(missing, if self.zero { b'0' } else { b' ' });
            padded.extend_from_slice(text);
        }
        padded
    }

    fn pad_with_spaces(&self, text: &[u8]) -> Vec<u8> {
        Self { zero: false, ..*self }.pad(text)
    }

    pub(super) fn integer(
        &self,
        integer: SizedInteger,
        base: u32,
        verb: char,
        digits: DigitCase,
    ) -> Vec<u8> {
        let is_negative = integer.kind().is_signed() && integer.signed() < 0;
        let magnitude =
            if is_negative { integer.signed().unsigned_abs() } else { integer.unsigned() };
        let has_sign = is_negative || self.plus || self.space;
        let wanted = match (self.precision, self.width) {
            (Some(0), width) if magnitude == 0 => return vec![b' '; width.unwrap_or(0)],
            (Some(precision), _) => precision,
            (None, Some(width)) if self.zero && !self.minus => {
                width - usize::from(has_sign && width > 0)
            }
            (None, _) => 0,
        };
        let number = match (base, digits) {
            (2, _) => format!("{magnitude:b}"),
            (8, _) => format!("{magnitude:o}"),
            (16, DigitCase::Small) => format!("{magnitude:x}"),
            (16, DigitCase::Capital) => format!("{magnitude:X}"),
            _ => magnitude.to_string(),
        };
        let mut text = Vec::with_capacity(wanted + 4);
        if is_negative {
            text.push(b'-');
        } else if self.plus {
            text.push(b'+');
        } else if self.space {
            text.push(b' ');
        }
        let zeros = wanted.saturating_sub(number.len());
        if verb == 'O' {
            text.extend(b"0o");
        }
        match base {
            2 if self.sharp => text.extend(b"0b"),
            8 if self.sharp && zeros == 0 && !number.starts_with('0') => text.push(b'0'),
            16 if self.sharp && digits == DigitCase::Small => text.extend(b"0x"),
            16 if self.sharp => text.extend(b"0X"),
            _ => {}
        }
        text.resize(text.len() + zeros, b'0');
        text.extend(number.bytes());
        self.pad_with_spaces(&text)
    }

    /// Formats a character code for the verb `%U`, such as `U+0041`.
    pub(super) fn unicode(&self, code: u64) -> Vec<u8> {
        let digits = self.precision.unwrap_or(0).max(4);
        let number = format!("{code:X}");
        let mut text = b"U+".to_vec();
        text.resize(text.len() + digits.saturating_sub(number.len()), b'0');
        text.extend(number.bytes());
        let shown = u32::try_from(code).ok().and_then(char::from_u32);
        if let Some(character) = shown.filter(|character| self.sharp && is_print(*character)) {
            text.extend(format!(" '{character}'").bytes());
        }
        self.pad_with_spaces(&text)
    }

    /// Formats `%c`, or `%q` of an integer.
    pub(super) fn character(&self, code: u64, is_quoted: bool) -> Vec<u8> {
        let character = u32::try_from(code)
            .ok()
            .and_then(char::from_u32)
            .unwrap_or(char::REPLACEMENT_CHARACTER);
        if is_quoted {
            return self.pad(&quote_char(character, self.quoting()));
        }
        self.pad(character.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn quoting(&self) -> QuotingStyle {
        if self.plus { QuotingStyle::Ascii } else { QuotingStyle::Printable }
    }

    /// Cuts a text to as many characters as the precision allows.
    fn cut<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let Some(precision) = self.precision.filter(|precision| *precision < text.len()) else {
            return text;
        };
        let mut end = 0;
        for _ in 0..precision {
            end += decode(&text[end..]).1;
        }
        &text[..end]
    }

    /// Formats a text for the verb `%s`: cuts it to the precision and pads it to the width.
    pub(super) fn string(&self, text: &[u8]) -> Vec<u8> {
        self.pad(self.cut(text))
    }

    /// Formats a text for the verb `%q`, in quotes.
    pub(super) fn quoted(&self, text: &[u8]) -> Vec<u8> {
        let text = self.cut(text);
        if self.sharp && can_backquote(text) {
            return self.pad(&[b"`", text, b"`"].concat());
        }
        self.pad(&quote(text, self.quoting()))
    }

    /// Formats bytes for the verb `%x` or `%X`, as hexadecimal digits.
    pub(super) fn hexadecimal(&self, bytes: &[u8], digits: DigitCase) -> Vec<u8> {
        let bytes = &bytes[..self.precision.unwrap_or(bytes.len()).min(bytes.len())];
        let (prefix, alphabet) = match digits {
            DigitCase::Small => ("0x", b"0123456789abcdef"),
            DigitCase::Capital => ("0X", b"0123456789ABCDEF"),
        };
        let mut text = Vec::with_capacity(bytes.len() * 2);
        for (index, byte) in bytes.iter().enumerate() {
            if self.space && index > 0 {
                text.push(b' ');
            }
            if self.sharp && (index == 0 || self.space) {
                text.extend(prefix.bytes());
            }
            text.extend([byte >> 4, byte & 15].map(|half| alphabet[usize::from(half)]));
        }
        self.pad(&text)
    }

    /// Formats a float with a verb for floats.
    pub(super) fn float(&self, float: f64, verb: char) -> Vec<u8> {
        let form = match verb {
            'e' | 'E' => FloatTextFormat::Exponent,
            'f' | 'F' => FloatTextFormat::Fixed,
            'b' => FloatTextFormat::Binary,
            'x' | 'X' => FloatTextFormat::Hexadecimal,
            _ => FloatTextFormat::General,
        };
        let default =
            matches!(form, FloatTextFormat::Exponent | FloatTextFormat::Fixed).then_some(6);
        let precision = self.precision.or(default);
        let mut number = format_float(float, form, precision);
        if matches!(verb, 'E' | 'G' | 'X') && float.is_finite() {
            number.make_ascii_uppercase();
        }
        let unsigned = number.trim_start_matches(['+', '-']);
        let sign = match (number.as_bytes().first(), self.plus, self.space) {
            (Some(b'-'), ..) => '-',
            (_, false, true) => ' ',
            _ => '+',
        };
        let shows_sign = self.plus || sign != '+';
        if !float.is_finite() {
            let shown = !float.is_nan() || self.space || self.plus;
            let sign = if shown { String::from(sign) } else { String::new() };
            return self.pad_with_spaces(format!("{sign}{unsigned}").as_bytes());
        }
        let number = if self.sharp && verb != 'b' {
            with_point(unsigned, verb, precision)
        } else {
            unsigned.to_owned()
        };
        if !shows_sign {
            return self.pad(number.as_bytes());
        }
        if self.zero && !self.minus && self.width.is_some_and(|width| width > number.len() + 1) {
            let width = self.width.map(|width| width - 1);
            let mut text = vec![sign as u8];
            text.extend(Self { width, ..*self }.pad(number.as_bytes()));
            return text;
        }
        self.pad(format!("{sign}{number}").as_bytes())
    }
}

/// Formats `%#g`: a float that always has a point, and zeros up to the precision.
fn with_point(number: &str, verb: char, precision: Option<usize>) -> String {
    let is_hexadecimal = matches!(verb, 'x' | 'X');
    let marks: &[char] = if is_hexadecimal { &['p', 'P'] } else { &['e', 'E', 'p', 'P'] };
    let (mantissa, tail) = number.split_at(number.find(marks).unwrap_or(number.len()));
    let mut digits = match verb {
        'v' | 'g' | 'G' | 'x' => precision.unwrap_or(6),
        _ => 0,
    };
    // Parity(go): the `x` of a hexadecimal prefix counts as a digit.
    let counted = mantissa.chars().filter(|character| *character != '.');
    digits = digits.saturating_sub(counted.skip_while(|digit| *digit == '0').count());
    let mut text = mantissa.to_owned();
    if !mantissa.contains('.') {
        if mantissa == "0" {
            digits = digits.saturating_sub(1);
        }
        text.push('.');
    }
    text.extend(std::iter::repeat_n('0', digits));
    text.push_str(tail);
    text
}
