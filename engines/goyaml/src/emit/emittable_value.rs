//! Values of any library, as the writers of YAML see them.
//!
//! Here: the view of one value, and the view of JSON. Elsewhere: writing it (`super`, `crate::v3`).

use serde_json::{Number, Value};

/// A value that can be written without being copied into another form first.
pub trait EmittableValue: Sized {
    /// A string of the value.
    type Text: AsRef<str>;

    /// The content of the value. A writer calls it once in each walk.
    fn view(&self) -> EmittableView<Self>;
}

/// The content of a value.
#[derive(Debug, Clone)]
pub enum EmittableView<T: EmittableValue> {
    /// A null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that may exceed `i64`.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(T::Text),
    /// A time in the form of RFC 3339. Version 3 writes it without quotes.
    Time(T::Text),
    /// Bytes. Version 3 writes them under `!!binary`, and version 2 as text.
    Binary(Vec<u8>),
    /// A list.
    List(Vec<T>),
    /// The keys and values of a mapping, in any order.
    Map(Vec<(T::Text, T)>),
    /// Keys and values in the order in which version 3 writes them. Version 2 sorts them.
    Fields(Vec<(T::Text, T)>),
    /// A value that cannot be written. The text is the message of the error.
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
