//! JSON with an object at its root. Keys keep their order, and a key may occur several times.

use std::cell::RefCell;

use golang::json::{JsonLayout, encode};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use zeroize::Zeroizing;

use super::{SopsReadError, SopsWriteError};
use crate::limits::SopsParseBudget;
use crate::value::{MapItem, MapItemKey, SecretBytes, SopsValue};

pub(super) fn read(
    data: &[u8],
    budget: &mut SopsParseBudget,
) -> Result<Vec<MapItem>, SopsReadError> {
    let refuse = |problem: &dyn std::fmt::Display| {
        SopsReadError::Form(format!("Could not unmarshal input data: {problem}"))
    };
    // Go replaces bytes that are not UTF-8.
    let text = Zeroizing::new(String::from_utf8_lossy(data).into_owned());
    if let Some(other) = text.trim_start().chars().next()
        && other != '{'
        && matches!(other, '[' | '"' | 't' | 'f' | 'n' | '-' | '0'..='9')
    {
        return Err(refuse(
            &"SOPS only supports JSON files with a top-level object (starting with '{')",
        ));
    }
    // Text after the object is ignored, as in Go.
    let mut decoder = serde_json::Deserializer::from_str(&text);
    let budget = RefCell::new(budget);
    match (JsonValueSeed { depth: 0, budget: &budget }).deserialize(&mut decoder) {
        Ok(SopsValue::Map(items)) => Ok(items),
        Ok(_) => Err(refuse(&"no object")),
        Err(error) if error.is_eof() => Err(refuse(&"unexpected EOF")),
        Err(error) => Err(refuse(&error)),
    }
}

/// Reads a value at a depth.
#[derive(Clone, Copy)]
struct JsonValueSeed<'b, 'm> {
    depth: usize,
    budget: &'b RefCell<&'m mut SopsParseBudget>,
}

impl JsonValueSeed<'_, '_> {
    fn below<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        self.budget.borrow_mut().take(depth).map_err(E::custom)?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for JsonValueSeed<'_, '_> {
    type Value = SopsValue;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<SopsValue, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonValueSeed<'_, '_> {
    type Value = SopsValue;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<SopsValue, E> {
        Ok(SopsValue::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<SopsValue, E> {
        Ok(SopsValue::Bool(truth))
    }

    fn visit_i64<E>(self, int: i64) -> Result<SopsValue, E> {
        Ok(SopsValue::Int(int))
    }

    #[expect(clippy::cast_precision_loss, reason = "Go makes floats of numbers beyond int64")]
    fn visit_u64<E>(self, uint: u64) -> Result<SopsValue, E> {
        Ok(i64::try_from(uint).map_or(SopsValue::Float(uint as f64), SopsValue::Int))
    }

    fn visit_f64<E>(self, float: f64) -> Result<SopsValue, E> {
        Ok(SopsValue::Float(float))
    }

    fn visit_str<E>(self, text: &str) -> Result<SopsValue, E> {
        Ok(SopsValue::from_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<SopsValue, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self.below::<A::Error>()?)? {
            values.push(value);
        }
        Ok(SopsValue::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SopsValue, A::Error> {
        let mut items = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(self.below::<A::Error>()?)?;
            items.push(MapItem::text(key, value));
        }
        Ok(SopsValue::Map(items))
    }
}

pub(super) fn write(items: &[MapItem]) -> Result<SecretBytes, SopsWriteError> {
    let mut out = Zeroizing::new(Vec::new());
    map(&mut out, items, 0).map_err(SopsWriteError::Json)?;
    out.push(b'\n');
    Ok(out)
}

fn line(out: &mut SecretBytes, depth: usize) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b'\t', depth));
}

fn map(out: &mut SecretBytes, items: &[MapItem], depth: usize) -> Result<(), String> {
    out.push(b'{');
    let mut is_empty = true;
    for item in items {
        let key = match &item.key {
            MapItemKey::Comment(_) => continue,
            MapItemKey::Text(key) => key,
            MapItemKey::Other(name) => return Err(format!("a key is no text but {name}")),
        };
        if !is_empty {
            out.push(b',');
        }
        line(out, depth + 1);
        string(out, key.as_bytes());
        out.extend_from_slice(b": ");
        let written = value(out, &item.value, depth + 1);
        written.map_err(|problem| format!("Error encoding value : {problem}"))?;
        is_empty = false;
    }
    if !is_empty {
        line(out, depth);
    }
    out.push(b'}');
    Ok(())
}

fn list(out: &mut SecretBytes, values: &[SopsValue], depth: usize) -> Result<(), String> {
    out.push(b'[');
    let mut is_empty = true;
    for item in values.iter().filter(|value| !matches!(value, SopsValue::Comment(_))) {
        if !is_empty {
            out.push(b',');
        }
        line(out, depth + 1);
        value(out, item, depth + 1)?;
        is_empty = false;
    }
    if !is_empty {
        line(out, depth);
    }
    out.push(b']');
    Ok(())
}

fn value(out: &mut SecretBytes, value: &SopsValue, depth: usize) -> Result<(), String> {
    match value {
        SopsValue::Map(items) => return map(out, items, depth),
        SopsValue::List(values) => return list(out, values, depth),
        SopsValue::Text(text) => string(out, text),
        SopsValue::Time(time) => string(out, time.as_bytes()),
        SopsValue::Null => out.extend_from_slice(b"null"),
        SopsValue::Bool(_) | SopsValue::Int(_) | SopsValue::Uint(_) => {
            out.extend_from_slice(&value.shown());
        }
        SopsValue::Float(float) => {
            let text = encode(&golang::GoRuntimeValue::from(*float), JsonLayout::default(), 64);
            out.extend_from_slice(text.map_err(|error| error.to_string())?.as_bytes());
        }
        // Parity(sops 3.13): a value that was encrypted as a comment is written as the struct that it is there.
        SopsValue::Comment(comment) => {
            let value = MapItem::text("Value", SopsValue::Text(comment.text.clone()));
            return map(
                out,
                &[value, MapItem::text("Inline", SopsValue::Bool(comment.inline))],
                depth,
            );
        }
    }
    Ok(())
}

/// Writes a string like Go: safe in HTML, and with an escape for each byte that is not UTF-8.
fn string(out: &mut SecretBytes, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        let mut plain = chunk.valid();
        while let Some((at, escaped)) = plain.char_indices().find(|(_, char)| is_escaped(*char)) {
            let (before, after) = plain.split_at(at);
            out.extend_from_slice(before.as_bytes());
            escape(out, escaped);
            plain = after.get(escaped.len_utf8()..).unwrap_or_default();
        }
        out.extend_from_slice(plain.as_bytes());
        for _ in chunk.invalid() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
    out.push(b'"');
}

fn is_escaped(char: char) -> bool {
    matches!(char, '\0'..='\u{1f}' | '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

fn escape(out: &mut SecretBytes, char: char) {
    let short = match char {
        '"' => b'"',
        '\\' => b'\\',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        _ => {
            out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}
