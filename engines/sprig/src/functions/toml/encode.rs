//! Values to TOML.

use std::any::Any;

use golang::GoRuntimeValue;
use golang::json::marshalled;
use golang::strconv::{FloatTextFormat, format_float};
use golang::time::{GoTime, GoTimeZone, RFC3339_NANO};
use golang::value::{GoObject, GoString, ReflectKind};

use super::{LOCAL_DATE, LOCAL_DATETIME, LOCAL_TIME};

/// The deepest nesting of values, because writing recurses.
const MAX_DEPTH: usize = 500;

/// Why a value cannot be written as TOML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TomlEncodeError {
    /// The library's message.
    #[error("{0}")]
    Refused(String),
    /// The Go library panics here.
    #[error("{0}")]
    Panic(&'static str),
    /// The values are nested too deeply. The Go library has no such limit.
    #[error("the value is nested more than {MAX_DEPTH} deep, or holds itself")]
    Depth,
    /// A limit of the run.
    #[error("the TOML is longer than {0} bytes")]
    Length(usize),
}

/// A value as TOML, in about as many bytes as the limit at most.
pub(super) fn encode(value: &GoRuntimeValue, limit: usize) -> Result<Vec<u8>, TomlEncodeError> {
    let mut encoder = TomlEncoder { out: Vec::new(), limit };
    let value = resolved(value.clone());
    if matches!(value, GoRuntimeValue::Nil) {
        return Err(TomlEncodeError::Panic("reflect: call of reflect.Value.Type on zero Value"));
    }
    encoder.value(&mut Vec::new(), &value)?;
    Ok(encoder.out)
}

/// The shape of a value, which determines where the value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TomlShape {
    Nil,
    Table,
    Tables,
    Other,
}

/// An entry of a table. For a struct, with the number of the field.
type TomlTableEntry = (usize, GoString, GoRuntimeValue);

struct TomlEncoder {
    out: Vec<u8>,
    limit: usize,
}

impl TomlEncoder {
    fn put(&mut self, text: impl AsRef<[u8]>) -> Result<(), TomlEncodeError> {
        self.out.extend_from_slice(text.as_ref());
        if self.out.len() > self.limit { Err(TomlEncodeError::Length(self.limit)) } else { Ok(()) }
    }

    /// Ends a line, unless nothing was written.
    fn newline(&mut self) -> Result<(), TomlEncodeError> {
        if self.out.is_empty() { Ok(()) } else { self.put("\n") }
    }

    fn indent(&mut self, keys: &[GoString]) -> Result<(), TomlEncodeError> {
        self.put("  ".repeat(keys.len().saturating_sub(1)))
    }

    /// Writes a value below its keys.
    fn value(
        &mut self,
        keys: &mut Vec<GoString>,
        value: &GoRuntimeValue,
    ) -> Result<(), TomlEncodeError> {
        if keys.len() > MAX_DEPTH {
            return Err(TomlEncodeError::Depth);
        }
        match value {
            GoRuntimeValue::List(list) if shape(value, 0)? == TomlShape::Tables => {
                if keys.is_empty() {
                    let text = "toml: top-level values must be Go maps or structs";
                    return Err(TomlEncodeError::Refused(text.to_owned()));
                }
                for item in list.items() {
                    self.newline()?;
                    self.indent(keys)?;
                    self.put([b"[[", &*joined(keys), b"]]"].concat())?;
                    self.newline()?;
                    self.table(keys, &resolved(item.clone()))?;
                }
                Ok(())
            }
            GoRuntimeValue::Map(map) if map.is_nil() => Ok(()),
            GoRuntimeValue::Object(object) if object.is_nil() => Ok(()),
            GoRuntimeValue::Map(_) | GoRuntimeValue::Object(_)
                if shape(value, 0)? == TomlShape::Table =>
            {
                if keys.len() == 1 {
                    self.newline()?;
                }
                if !keys.is_empty() {
                    self.indent(keys)?;
                    self.put([b"[", &*joined(keys), b"]"].concat())?;
                    self.newline()?;
                }
                self.table(keys, value)
            }
            GoRuntimeValue::Function(_) | GoRuntimeValue::Complex(..) => {
                let kind = value.kind();
                let key = String::from_utf8_lossy(&joined(keys)).into_owned();
                Err(TomlEncodeError::Refused(format!("unsupported type for key '{key}': {kind}")))
            }
            _ => self.pair(keys, value, false, 0),
        }
    }

    /// Writes the entries of a table. Entries that are tables come last.
    fn table(
        &mut self,
        keys: &mut Vec<GoString>,
        table: &GoRuntimeValue,
    ) -> Result<(), TomlEncodeError> {
        let (direct, tables, _) = parts(table)?;
        for (_, key, value) in direct.into_iter().chain(tables) {
            if is_nil(&value) {
                continue;
            }
            keys.push(key);
            self.value(keys, &value)?;
            keys.pop();
        }
        Ok(())
    }

    /// Writes a key and its value. Without a key, only the value is written.
    fn pair(
        &mut self,
        keys: &[GoString],
        value: &GoRuntimeValue,
        is_inline: bool,
        depth: usize,
    ) -> Result<(), TomlEncodeError> {
        let Some(key) = keys.last() else { return self.element(value, depth) };
        self.indent(keys)?;
        self.put([&*quoted(key), b" = "].concat())?;
        self.element(value, depth)?;
        if is_inline { Ok(()) } else { self.newline() }
    }

    /// Writes a value that can be an item of an array.
    fn element(&mut self, value: &GoRuntimeValue, depth: usize) -> Result<(), TomlEncodeError> {
        if depth > MAX_DEPTH {
            return Err(TomlEncodeError::Depth);
        }
        match value {
            GoRuntimeValue::String(text) => self.put(string(text)),
            GoRuntimeValue::Bool(truth) => self.put(truth.to_string()),
            GoRuntimeValue::Integer(integer) if integer.kind().is_signed() => {
                self.put(integer.signed().to_string())
            }
            GoRuntimeValue::Integer(integer) => self.put(integer.unsigned().to_string()),
            GoRuntimeValue::Float(float) => self.put(number(*float)),
            GoRuntimeValue::Bytes(bytes) => {
                let items: Vec<String> = bytes.iter().map(u8::to_string).collect();
                self.put(format!("[{}]", items.join(", ")))
            }
            GoRuntimeValue::List(list) => {
                self.put("[")?;
                for (at, item) in list.items().iter().enumerate() {
                    self.put(if at > 0 { ", " } else { "" })?;
                    self.element(&resolved(item.clone()), depth + 1)?;
                }
                self.put("]")
            }
            GoRuntimeValue::Map(_) => self.inline_table(value, depth),
            GoRuntimeValue::Object(object) => match scalar(&**object)? {
                Some(text) => self.put(text),
                None => self.inline_table(value, depth),
            },
            GoRuntimeValue::Nil => Err(TomlEncodeError::Panic(
                "reflect: call of reflect.Value.Interface on zero Value",
            )),
            GoRuntimeValue::Function(_) | GoRuntimeValue::Complex(..) => {
                let name = value.type_name();
                Err(TomlEncodeError::Refused(format!("unexpected type: {name}")))
            }
        }
    }

    fn inline_table(
        &mut self,
        table: &GoRuntimeValue,
        depth: usize,
    ) -> Result<(), TomlEncodeError> {
        let (direct, tables, is_struct) = parts(table)?;
        let count = direct.len() + tables.len();
        let more = !tables.is_empty();
        self.put("{")?;
        for (group, is_followed) in [(direct, more), (tables, false)] {
            let last = group.len().saturating_sub(1);
            for (at, (field, key, value)) in group.into_iter().enumerate() {
                if is_nil(&value) {
                    continue;
                }
                self.pair(&[key], &value, true, depth + 1)?;
                // Parity(toml): the number of a field counts, not what was written of the struct.
                let comma = if is_struct { field + 1 != count } else { is_followed || at < last };
                self.put(if comma { ", " } else { "" })?;
            }
        }
        self.put("}")
    }
}

/// The entries of a map or struct, split into values and tables, and whether it is a struct.
fn parts(
    table: &GoRuntimeValue,
) -> Result<(Vec<TomlTableEntry>, Vec<TomlTableEntry>, bool), TomlEncodeError> {
    let (entries, is_struct): (Vec<(GoString, GoRuntimeValue)>, bool) = match table {
        GoRuntimeValue::Map(map) => (map.entries(), false),
        GoRuntimeValue::Object(object) => {
            let fields = object.fields().into_iter();
            (fields.map(|(name, value)| (GoString::from(name), value)).collect(), true)
        }
        _ => (Vec::new(), false),
    };
    let mut direct = Vec::new();
    let mut tables = Vec::new();
    for (field, (key, value)) in entries.into_iter().enumerate() {
        if is_struct && !key.first().is_some_and(u8::is_ascii_uppercase) {
            continue;
        }
        let value = resolved(value);
        match shape(&value, 0)? {
            TomlShape::Table | TomlShape::Tables => tables.push((field, key, value)),
            TomlShape::Nil | TomlShape::Other => direct.push((field, key, value)),
        }
    }
    Ok((direct, tables, is_struct))
}

/// A value without its named type, unless the type determines how the value is written.
fn resolved(value: GoRuntimeValue) -> GoRuntimeValue {
    match &value {
        GoRuntimeValue::Object(object) if object.type_name() != "time.Duration" => {
            object.underlying().unwrap_or(value)
        }
        _ => value,
    }
}

fn is_nil(value: &GoRuntimeValue) -> bool {
    match value {
        GoRuntimeValue::Nil => true,
        GoRuntimeValue::List(list) => list.is_nil(),
        GoRuntimeValue::Map(map) => map.is_nil(),
        GoRuntimeValue::Object(object) => object.is_nil(),
        _ => false,
    }
}

fn shape(value: &GoRuntimeValue, depth: usize) -> Result<TomlShape, TomlEncodeError> {
    if depth > MAX_DEPTH {
        return Err(TomlEncodeError::Depth);
    }
    Ok(match value {
        _ if is_nil(value) => TomlShape::Nil,
        GoRuntimeValue::Map(_) => TomlShape::Table,
        GoRuntimeValue::List(list) if list.is_empty() => TomlShape::Other,
        GoRuntimeValue::List(list) => {
            let mut all = TomlShape::Tables;
            for item in list.items() {
                match shape(&resolved(item.clone()), depth + 1)? {
                    TomlShape::Nil => {
                        let text = "toml: cannot encode array with nil element";
                        return Err(TomlEncodeError::Refused(text.to_owned()));
                    }
                    TomlShape::Table => {}
                    TomlShape::Tables | TomlShape::Other => all = TomlShape::Other,
                }
            }
            all
        }
        GoRuntimeValue::Object(object) => match scalar(&**object)? {
            Some(_) => TomlShape::Other,
            None => TomlShape::Table,
        },
        GoRuntimeValue::Function(_) | GoRuntimeValue::Complex(..) => {
            return Err(TomlEncodeError::Refused(format!("unsupported type: {}", value.kind())));
        }
        _ => TomlShape::Other,
    })
}

/// The text of an object that is not a table.
fn scalar(object: &dyn GoObject) -> Result<Option<Vec<u8>>, TomlEncodeError> {
    let any: &dyn Any = object;
    if let Some(time) = any.downcast_ref::<GoTime>() {
        let utc = || time.in_zone(GoTimeZone::Utc);
        return Ok(Some(
            match time.zone().name() {
                LOCAL_DATETIME => utc().format("2006-01-02T15:04:05.999999999"),
                LOCAL_DATE => utc().format("2006-01-02"),
                LOCAL_TIME => utc().format("15:04:05.999999999"),
                _ => time.format(RFC3339_NANO),
            }
            .into_bytes(),
        ));
    }
    if object.type_name() == "time.Duration" {
        return Ok(object.text().map(|text| string(&text)));
    }
    match marshalled(object) {
        Some(Ok(GoRuntimeValue::String(text))) => Ok(Some(string(&text))),
        Some(Err(error)) => Err(TomlEncodeError::Refused(error)),
        _ if matches!(object.kind(), ReflectKind::Struct | ReflectKind::Pointer) => Ok(None),
        _ => Err(TomlEncodeError::Refused(format!("unsupported type: {}", object.kind()))),
    }
}

/// A float in a form that is different from an integer.
fn number(float: f64) -> String {
    let sign = if float.is_sign_negative() { "-" } else { "" };
    if float.is_nan() {
        return format!("{sign}nan");
    }
    if float.is_infinite() {
        return format!("{sign}inf");
    }
    let text = format_float(float, FloatTextFormat::General, None);
    if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
}

/// Keys in the notation of a header.
fn joined(keys: &[GoString]) -> Vec<u8> {
    let keys: Vec<Vec<u8>> = keys.iter().map(quoted).collect();
    keys.join(&b'.')
}

/// A key, with quotes if it needs them.
fn quoted(key: &GoString) -> Vec<u8> {
    let is_bare = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !key.is_empty() && key.iter().all(is_bare) { key.to_vec() } else { string(key) }
}

/// Writes a string of TOML in quotes, with escapes.
pub(super) fn string(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0xc => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..=0x1f | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}
