//! Adapts Go's values for the two YAML writers.

use std::any::Any;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::GoRuntimeValue;
use golang::json::marshalled;
use golang::time::{GoTime, RFC3339_NANO};
use golang::value::{GoObject, GoString, ReflectKind};
use goyaml::{EmittableValue, EmittableView};

/// A string that is UTF-8.
#[derive(Debug, Clone)]
pub(super) struct Utf8Text(GoString);

impl Utf8Text {
    /// A string in which each byte that belongs to no character is replaced.
    fn replaced(text: &GoString) -> Self {
        match text.replaced() {
            std::borrow::Cow::Borrowed(_) => Self(text.clone()),
            std::borrow::Cow::Owned(replaced) => Self(replaced.into()),
        }
    }
}

impl AsRef<str> for Utf8Text {
    fn as_ref(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A value on the way through JSON.
#[derive(Debug, Clone)]
pub(super) struct JsonRoundTripView(pub(super) GoRuntimeValue);

impl EmittableValue for JsonRoundTripView {
    type Text = Utf8Text;

    fn view(&self) -> EmittableView<Self> {
        match &self.0 {
            GoRuntimeValue::Bytes(bytes) => {
                EmittableView::Text(Utf8Text(STANDARD.encode(&**bytes).into()))
            }
            GoRuntimeValue::String(text) => EmittableView::Text(Utf8Text::replaced(text)),
            GoRuntimeValue::List(list) if list.is_nil() => EmittableView::Null,
            GoRuntimeValue::Map(map) if map.is_nil() => EmittableView::Null,
            GoRuntimeValue::Object(object) if object.is_nil() => EmittableView::Null,
            GoRuntimeValue::Object(object) => match marshalled(&**object) {
                Some(Ok(value)) => Self(value).view(),
                Some(Err(error)) => EmittableView::Refused(error),
                None => match object.underlying() {
                    Some(value) => Self(value).view(),
                    None => {
                        let text = |name: &str| Utf8Text(name.into());
                        let fields = object.json_fields().into_iter();
                        EmittableView::Map(
                            fields.map(|(name, value)| (text(name), Self(value))).collect(),
                        )
                    }
                },
            },
            GoRuntimeValue::Function(_) | GoRuntimeValue::Complex(..) => {
                EmittableView::Refused(format!("json: unsupported type: {}", self.0.type_name()))
            }
            other => plain(other, Self, Utf8Text::replaced),
        }
    }
}

/// A value for go-yaml v3, without a conversion through JSON.
#[derive(Debug, Clone)]
pub(super) struct DirectYamlView(pub(super) GoRuntimeValue);

impl EmittableValue for DirectYamlView {
    type Text = Utf8Text;

    fn view(&self) -> EmittableView<Self> {
        match &self.0 {
            GoRuntimeValue::Bytes(bytes) => EmittableView::List(
                bytes.iter().map(|byte| Self(GoRuntimeValue::int((*byte).into()))).collect(),
            ),
            GoRuntimeValue::String(text) if std::str::from_utf8(text).is_err() => {
                EmittableView::Binary(text.to_vec())
            }
            GoRuntimeValue::String(text) => EmittableView::Text(Utf8Text(text.clone())),
            GoRuntimeValue::Object(object)
                if object.is_nil() && object.kind() == ReflectKind::Pointer =>
            {
                EmittableView::Null
            }
            GoRuntimeValue::Object(object) => viewed(&**object),
            GoRuntimeValue::Function(_) | GoRuntimeValue::Complex(..) => {
                EmittableView::Refused(format!("cannot marshal type: {}", self.0.type_name()))
            }
            other => plain(other, Self, Utf8Text::replaced),
        }
    }
}

fn viewed(object: &dyn GoObject) -> EmittableView<DirectYamlView> {
    let any: &dyn Any = object;
    if let Some(time) = any.downcast_ref::<GoTime>() {
        return EmittableView::Time(Utf8Text(time.format(RFC3339_NANO).into()));
    }
    if object.type_name() == "time.Duration" {
        return EmittableView::Text(Utf8Text(object.text().unwrap_or_default()));
    }
    match (marshalled(object), object.underlying()) {
        (Some(Ok(value)), _) | (None, Some(value)) => DirectYamlView(value).view(),
        (Some(Err(error)), _) => EmittableView::Refused(error),
        (None, None) => {
            let mut fields = object.fields();
            fields.retain(|(name, _)| name.starts_with(|c: char| c.is_ascii_uppercase()));
            // Parity(go-yaml v3): without a tag a field has its name in small letters.
            let name = |name: &str| Utf8Text(name.to_lowercase().into());
            EmittableView::Fields(
                fields.into_iter().map(|(key, value)| (name(key), DirectYamlView(value))).collect(),
            )
        }
    }
}

/// The form of a value that both writers share.
fn plain<T: EmittableValue>(
    value: &GoRuntimeValue,
    inside: fn(GoRuntimeValue) -> T,
    text: fn(&GoString) -> T::Text,
) -> EmittableView<T> {
    match value {
        GoRuntimeValue::Bool(truth) => EmittableView::Bool(*truth),
        GoRuntimeValue::Integer(integer) if integer.kind().is_signed() => {
            EmittableView::Int(integer.signed())
        }
        GoRuntimeValue::Integer(integer) => EmittableView::Uint(integer.unsigned()),
        GoRuntimeValue::Float(float) => EmittableView::Float(*float),
        GoRuntimeValue::List(list) => {
            EmittableView::List(list.items().iter().cloned().map(inside).collect())
        }
        GoRuntimeValue::Map(map) => {
            let entries = map.entries().into_iter();
            EmittableView::Map(entries.map(|(key, value)| (text(&key), inside(value))).collect())
        }
        GoRuntimeValue::Nil
        | GoRuntimeValue::Complex(..)
        | GoRuntimeValue::String(_)
        | GoRuntimeValue::Bytes(_)
        | GoRuntimeValue::Function(_)
        | GoRuntimeValue::Object(_) => EmittableView::Null,
    }
}
