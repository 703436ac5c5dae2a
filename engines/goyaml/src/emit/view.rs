//! Values of any library, as the writers of YAML see them.
//!
//! Here: the view of one value, and that of JSON. Elsewhere: writing it (`super`, `crate::v3`).

use serde_json::{Number, Value};

/// A value that can be written without being copied into another form first.
pub trait EmittableValue: Sized {
    /// A string of the value.
    type Text: AsRef<str>;

    /// What the value is. It is asked for once a walk.
    fn view(&self) -> EmittableView<Self>;
}

/// What a value is.
#[derive(Debug, Clone)]
pub enum EmittableView<T: EmittableValue> {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that may be larger.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(T::Text),
    /// A time in the form of RFC 3339, which version 3 writes without quotes.
    Time(T::Text),
    /// Bytes, which version 3 writes under `!!binary`; version 2 writes them as text.
    Binary(Vec<u8>),
    /// A list.
    List(Vec<T>),
    /// Keys and values that a mapping has in any order.
    Map(Vec<(T::Text, T)>),
    /// Keys and values in the order in which version 3 writes them; version 2 sorts them.
    Fields(Vec<(T::Text, T)>),
    /// What cannot be written, and why: the text becomes that of the error.
    Refused(String),
}

impl<'v> EmittableValue for &'v Value {
    type Text = &'v str;

    fn view(&self) -> EmittableView<Self> {
        match self {
            Value::Null => EmittableView::Null,
            Value::Bool(truth) => EmittableView::Bool(*truth),
            Value::Number(number) => view(number),
            Value::String(text) => EmittableView::Text(text.as_str()),
            Value::Array(items) => EmittableView::List(items.iter().collect()),
            Value::Object(entries) => EmittableView::Map(
                entries.iter().map(|(key, value)| (key.as_str(), value)).collect(),
            ),
        }
    }
}

fn view<T: EmittableValue>(number: &Number) -> EmittableView<T> {
    match (number.as_i64(), number.as_u64()) {
        (Some(int), _) => EmittableView::Int(int),
        (None, Some(uint)) => EmittableView::Uint(uint),
        (None, None) => EmittableView::Float(number.as_f64().unwrap_or_default()),
    }
}
