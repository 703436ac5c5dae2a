//! JSON to nodes, by way of the text that go-yaml v3 writes for Go's values.

use golang::strconv::{FloatTextFormat, format_float, parse_float};
use golang::unicode::{is_digit, is_letter};
use goyaml::YamlLimits;
use goyaml::v3::{self, YamlNode, YamlNodeKind, YamlNodeStyle};

use super::text_preserving_json::JsonPatchValue;
use super::{Error, MAX_DEPTH};
use crate::field;

/// Converts an object to the document that go-yaml would read from its own output.
///
/// # Errors
/// The value is not an object, contains a number too large for a `float64`, or is nested too deeply.
pub(super) fn document(json: JsonPatchValue) -> Result<YamlNode, Error> {
    if !matches!(json, JsonPatchValue::Object(_)) {
        return Err(json.not_a("map[string]interface {}"));
    }
    if json.depth() > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    let text = field::text(&node(json)?);
    let mut documents = v3::parse(text.as_bytes(), &YamlLimits::default())?;
    Ok(if documents.is_empty() { YamlNode::default() } else { documents.swap_remove(0) })
}

/// A value's node. It recurses over depth, which is bounded before.
fn node(json: JsonPatchValue) -> Result<YamlNode, Error> {
    Ok(match json {
        JsonPatchValue::Null | JsonPatchValue::AddedNull => YamlNode::scalar("!!null", "null"),
        JsonPatchValue::Scalar(text) if text.starts_with('"') => {
            let text: String =
                serde_json::from_str(&text).unwrap_or_else(|_| without_surrogates(&text));
            string(text)
        }
        JsonPatchValue::Scalar(text) if matches!(text.as_str(), "true" | "false") => {
            YamlNode::scalar("!!bool", text)
        }
        JsonPatchValue::Scalar(text) => {
            let float = parse_float(&text, 64)
                .map_err(|_| Error::Type { found: format!("number {text}"), wanted: "float64" })?;
            // Parity(kustomize): every number has become a float, so a million is written `1e+06`.
            YamlNode {
                value: format_float(float, FloatTextFormat::General, None),
                ..YamlNode::default()
            }
        }
        JsonPatchValue::List(items) => {
            YamlNode::sequence(items.into_iter().map(node).collect::<Result<_, _>>()?)
        }
        JsonPatchValue::Object(fields) => {
            let mut entries: Vec<(String, JsonPatchValue)> = fields.into_iter().collect();
            sort(&mut entries);
            let nodes = entries.into_iter().map(|(key, value)| Ok((string(key), node(value)?)));
            YamlNode::mapping(nodes.collect::<Result<Vec<_>, Error>>()?)
        }
    })
}

/// A string. It has quotes if it would otherwise be read as another type.
fn string(text: String) -> YamlNode {
    let plain = YamlNode { value: text, ..YamlNode::default() };
    let is_text = plain.short_tag() == "!!str";
    let style = if plain.value.contains('\n') {
        YamlNodeStyle::LITERAL
    } else if is_text && !is_base_60(&plain.value) && !is_old_bool(&plain.value) {
        YamlNodeStyle::default()
    } else {
        YamlNodeStyle::DOUBLE_QUOTED
    };
    YamlNode { kind: YamlNodeKind::Scalar, style, ..plain }
}

/// Whether YAML 1.1 reads a text as a number in base 60: `1:20`, `-190:20:30.15`.
fn is_base_60(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').map_or((digits, ""), |(a, b)| (a, b));
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let mut count = 0;
    let is_sixtieth = |part: &str| match part.as_bytes() {
        [a] => a.is_ascii_digit(),
        [a, b] => (b'0'..=b'5').contains(a) && b.is_ascii_digit(),
        _ => false,
    };
    let are_sixtieths = parts.all(|part| {
        count += 1;
        is_sixtieth(part)
    });
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    count > 0
        && are_sixtieths
        && first.starts_with(|c: char| c.is_ascii_digit())
        && is_digits(first)
        && is_digits(fraction)
}

/// Whether YAML 1.1 reads a text as true or false, and YAML 1.2 does not.
fn is_old_bool(text: &str) -> bool {
    let words = [
        "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off",
        "OFF",
    ];
    words.contains(&text)
}

/// A JSON string with half a surrogate pair, which Go reads as U+FFFD.
fn without_surrogates(text: &str) -> String {
    let value = golang::json::decode_prefix(text.as_bytes());
    match value {
        Ok((golang::GoRuntimeValue::String(text), _)) => text.lossy().into_owned(),
        _ => String::new(),
    }
}

/// Sorts entries like go-yaml v3. Its order may be cyclic, which Rust's own sort functions do not support.
fn sort(entries: &mut Vec<(String, JsonPatchValue)>) {
    let mut width = 1;
    while width < entries.len() {
        let mut sorted = Vec::with_capacity(entries.len());
        let mut left = std::mem::take(entries).into_iter();
        loop {
            let first: Vec<_> = left.by_ref().take(width).collect();
            if first.is_empty() {
                break;
            }
            let second: Vec<_> = left.by_ref().take(width).collect();
            let mut first = first.into_iter().peekable();
            let mut second = second.into_iter().peekable();
            while let (Some(a), Some(b)) = (first.peek(), second.peek()) {
                let next = if is_before(&b.0, &a.0) { second.next() } else { first.next() };
                sorted.extend(next);
            }
            sorted.extend(first);
            sorted.extend(second);
        }
        *entries = sorted;
        width *= 2;
    }
}

/// Whether go-yaml v3 sorts one key before another. Letters come after other characters, but before them if a digit precedes.
/// Numbers are sorted by value.
fn is_before(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (Some(&x), Some(&y)) = (a.get(same), b.get(same)) else { return a.len() < b.len() };
    match (is_letter(x), is_letter(y)) {
        (true, true) => return x < y,
        (false, false) => {}
        (x_is_letter, y_is_letter) => {
            let behind_digit = same > 0 && is_digit(a[same - 1]);
            return if behind_digit { x_is_letter } else { y_is_letter };
        }
    }
    let inside_number = (x == '0' || y == '0')
        && a[..same].iter().rev().take_while(|c| is_digit(**c)).any(|c| *c != '0');
    let number = |text: &[char]| {
        let digits = text.iter().take_while(|c| is_digit(**c));
        digits.fold((i64::from(inside_number), 0), |(number, length), digit| {
            let digit = i64::from(u32::from(*digit)) - i64::from(u32::from('0'));
            (number.wrapping_mul(10).wrapping_add(digit), length + 1)
        })
    };
    let ((x_number, x_length), (y_number, y_length)) = (number(&a[same..]), number(&b[same..]));
    (x_number, x_length, x) < (y_number, y_length, y)
}
