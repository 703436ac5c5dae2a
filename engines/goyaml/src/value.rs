//! What a document decodes to in Go: values whose maps have keys of any scalar type.
//! The decoder makes them, `json.rs` turns them into JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::gofmt;

/// Index of a value in its [`Values`].
pub(crate) type ValueId = usize;

/// A value of Go's `interface{}` as go-yaml fills it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GoValue<'n> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Cow<'n, str>),
    /// A string that is not UTF-8, which only `!!binary` can make.
    Bytes(Vec<u8>),
    Sequence(Vec<ValueId>),
    /// Index in [`Values::maps`].
    Map(usize),
}

/// A key of a Go map: equal keys are equal in type and value.
///
/// Their order shows in errors only.
/// Parity(go): printing sorts keys of different types by where the linker has put the types; this
/// is the observed order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key<'n> {
    Null,
    Str(Cow<'n, str>),
    Bytes(Vec<u8>),
    Uint(u64),
    Int(i64),
    /// The bits, and for NaN, which equals no other, the number of the value.
    Float(u64, ValueId),
    Bool(bool),
}

/// The values of one document, without nesting: collections name their members.
#[derive(Debug, Default)]
pub(crate) struct Values<'n> {
    pub(crate) values: Vec<GoValue<'n>>,
    pub(crate) maps: Vec<BTreeMap<Key<'n>, ValueId>>,
}

/// How long a value may be when an error shows it.
const MAX_SHOWN: usize = 4096;

impl<'n> Values<'n> {
    pub(crate) fn push(&mut self, value: GoValue<'n>) -> ValueId {
        self.values.push(value);
        self.values.len() - 1
    }

    /// The value as a key, or `None` when Go cannot have it as one.
    pub(crate) fn key(&self, id: ValueId) -> Option<Key<'n>> {
        Some(match &self.values[id] {
            GoValue::Null => Key::Null,
            GoValue::Bool(bool) => Key::Bool(*bool),
            GoValue::Int(int) => Key::Int(*int),
            GoValue::Uint(uint) => Key::Uint(*uint),
            // Zero and minus zero are equal.
            GoValue::Float(0.0) => Key::Float(0, 0),
            GoValue::Float(float) if float.is_nan() => Key::Float(float.to_bits(), id),
            GoValue::Float(float) => Key::Float(float.to_bits(), 0),
            GoValue::Str(text) => Key::Str(text.clone()),
            GoValue::Bytes(bytes) => Key::Bytes(bytes.clone()),
            GoValue::Sequence(_) | GoValue::Map(_) => return None,
        })
    }

    /// The value as Go's `%#v` prints it.
    ///
    /// Differs(go-yaml v2): Go prints all of it; here it is cut where it becomes very long.
    pub(crate) fn show(&self, id: ValueId) -> String {
        enum ValueTextPart<'v, 'n> {
            Text(&'static str),
            Key(&'v Key<'n>),
            Value(ValueId),
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
                    GoValue::Float(float) => shown.push_str(&gofmt::float64(*float)),
                    GoValue::Str(text) => gofmt::quote(text.as_bytes(), &mut shown),
                    GoValue::Bytes(bytes) => gofmt::quote(bytes, &mut shown),
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

impl Key<'_> {
    /// The key as Go's `%#v` prints it.
    pub(crate) fn show(&self) -> String {
        let mut shown = String::new();
        match self {
            Key::Null => shown.push_str("<nil>"),
            _ => show_key(self, &mut shown),
        }
        shown
    }
}

fn show_key(key: &Key<'_>, shown: &mut String) {
    match key {
        Key::Null => shown.push_str("interface {}(nil)"),
        Key::Bool(bool) => _ = write!(shown, "{bool}"),
        Key::Int(int) => _ = write!(shown, "{int}"),
        Key::Uint(uint) => _ = write!(shown, "{uint:#x}"),
        Key::Float(bits, _) => shown.push_str(&gofmt::float64(f64::from_bits(*bits))),
        Key::Str(text) => gofmt::quote(text.as_bytes(), shown),
        Key::Bytes(bytes) => gofmt::quote(bytes, shown),
    }
}
