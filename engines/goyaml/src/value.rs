//! The Go values of a decoded document. The keys of their maps may be any scalar. The decoder makes them, and `json.rs`
//! converts them to JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::go_format;

/// Index of a value in its [`GoDocumentValues`].
pub(crate) type GoValueId = usize;

/// A value as go-yaml decodes it into Go's `interface{}`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GoValue<'n> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Cow<'n, str>),
    /// A string that is not UTF-8. Only `!!binary` can make one.
    Bytes(Vec<u8>),
    Sequence(Vec<GoValueId>),
    /// Index in [`GoDocumentValues::maps`].
    Map(usize),
}

/// A key of a Go map: equal keys are equal in type and value.
///
/// Their order shows in errors only.
/// Parity(go): printing sorts keys of different types by where the linker has put the types; this
/// is the observed order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GoMapKey<'n> {
    Null,
    Str(Cow<'n, str>),
    Bytes(Vec<u8>),
    Uint(u64),
    Int(i64),
    /// The bits, and for NaN, which equals no other, the number of the value.
    Float(u64, GoValueId),
    Bool(bool),
}

/// The values of one document, in flat lists: collections refer to their members by index.
#[derive(Debug, Default)]
pub(crate) struct GoDocumentValues<'n> {
    pub(crate) values: Vec<GoValue<'n>>,
    pub(crate) maps: Vec<BTreeMap<GoMapKey<'n>, GoValueId>>,
}

/// How long a value may be when an error shows it.
const MAX_SHOWN: usize = 4096;

impl<'n> GoDocumentValues<'n> {
    pub(crate) fn push(&mut self, value: GoValue<'n>) -> GoValueId {
        self.values.push(value);
        self.values.len() - 1
    }

    /// The value as a key of a Go map. `None` if Go does not allow it as a key.
    pub(crate) fn key(&self, id: GoValueId) -> Option<GoMapKey<'n>> {
        Some(match &self.values[id] {
            GoValue::Null => GoMapKey::Null,
            GoValue::Bool(bool) => GoMapKey::Bool(*bool),
            GoValue::Int(int) => GoMapKey::Int(*int),
            GoValue::Uint(uint) => GoMapKey::Uint(*uint),
            // Zero and minus zero are equal.
            GoValue::Float(0.0) => GoMapKey::Float(0, 0),
            GoValue::Float(float) if float.is_nan() => GoMapKey::Float(float.to_bits(), id),
            GoValue::Float(float) => GoMapKey::Float(float.to_bits(), 0),
            GoValue::Str(text) => GoMapKey::Str(text.clone()),
            GoValue::Bytes(bytes) => GoMapKey::Bytes(bytes.clone()),
            GoValue::Sequence(_) | GoValue::Map(_) => return None,
        })
    }

    /// The value as Go's `%#v` prints it.
    ///
    /// Differs(go-yaml v2): Go prints all of it; here it is cut where it becomes very long.
    pub(crate) fn show(&self, id: GoValueId) -> String {
        enum ValueTextPart<'v, 'n> {
            Text(&'static str),
            Key(&'v GoMapKey<'n>),
            Value(GoValueId),
        }
        if self.values[id] == GoValue::Null {
            return "<nil>".to_owned();
        }
        let mut shown = String::new();
        let mut todo = vec![ValueTextPart::Value(id)];
        while let Some(part) = todo.pop() {
            if shown.len() > MAX_SHOWN {
                shown.push('…');
                break;
            }
            match part {
                ValueTextPart::Text(text) => shown.push_str(text),
                ValueTextPart::Key(key) => show_key(key, &mut shown),
                ValueTextPart::Value(id) => match &self.values[id] {
                    GoValue::Null => shown.push_str("interface {}(nil)"),
                    GoValue::Bool(bool) => _ = write!(shown, "{bool}"),
                    GoValue::Int(int) => _ = write!(shown, "{int}"),
                    GoValue::Uint(uint) => _ = write!(shown, "{uint:#x}"),
                    GoValue::Float(float) => shown.push_str(&go_format::float64(*float)),
                    GoValue::Str(text) => go_format::quote(text.as_bytes(), &mut shown),
                    GoValue::Bytes(bytes) => go_format::quote(bytes, &mut shown),
                    GoValue::Sequence(items) => {
                        shown.push_str("[]interface {}{");
                        todo.push(ValueTextPart::Text("}"));
                        for (at, item) in items.iter().enumerate().rev() {
                            todo.push(ValueTextPart::Value(*item));
                            todo.push(ValueTextPart::Text(if at == 0 { "" } else { ", " }));
                        }
                    }
                    GoValue::Map(map) => {
                        shown.push_str("map[interface {}]interface {}{");
                        todo.push(ValueTextPart::Text("}"));
                        for (at, (key, value)) in self.maps[*map].iter().enumerate().rev() {
                            todo.push(ValueTextPart::Value(*value));
                            todo.push(ValueTextPart::Text(":"));
                            todo.push(ValueTextPart::Key(key));
                            todo.push(ValueTextPart::Text(if at == 0 { "" } else { ", " }));
                        }
                    }
                },
            }
        }
        shown
    }
}

impl GoMapKey<'_> {
    /// The key as Go's `%#v` prints it.
    pub(crate) fn show(&self) -> String {
        let mut shown = String::new();
        match self {
            GoMapKey::Null => shown.push_str("<nil>"),
            _ => show_key(self, &mut shown),
        }
        shown
    }
}

fn show_key(key: &GoMapKey<'_>, shown: &mut String) {
    match key {
        GoMapKey::Null => shown.push_str("interface {}(nil)"),
        GoMapKey::Bool(bool) => _ = write!(shown, "{bool}"),
        GoMapKey::Int(int) => _ = write!(shown, "{int}"),
        GoMapKey::Uint(uint) => _ = write!(shown, "{uint:#x}"),
        GoMapKey::Float(bits, _) => shown.push_str(&go_format::float64(f64::from_bits(*bits))),
        GoMapKey::Str(text) => go_format::quote(text.as_bytes(), shown),
        GoMapKey::Bytes(bytes) => go_format::quote(bytes, shown),
    }
}
