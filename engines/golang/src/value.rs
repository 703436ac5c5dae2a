//! Values of Go programs, as templates can see them.
//!
//! A template sees the kind of a value, the name of its type, its content and its methods. [`Value`] has exactly these.
//! A map is shared, and can be changed through every holder, as in Go. All other values never change. Cloning is cheap,
//! because large values are shared.
//!
//! Here: the value. Elsewhere: byte strings (`value/go_string.rs`), types (`value/reflect_kind.rs`), lists and maps
//! (`value/slice_and_map.rs`), JSON (`value/json.rs`), values with fields or methods (`value/go_object.rs`), deep
//! equality (`value/deep_equal.rs`), and text (`crate::fmt`).

mod deep_equal;
mod go_object;
mod go_string;
mod json;
mod reflect_kind;
mod slice_and_map;

use std::sync::Arc;

pub use go_object::{
    FunctionBody, FunctionCallError, FunctionSignature, GoFunction, GoObject, pointee,
};
pub use go_string::GoString;
pub use reflect_kind::{GoType, IntegerKind, ReflectKind, SizedInteger};
pub use slice_and_map::{GoMap, GoSlice};

/// A value of a Go program.
#[derive(Debug, Clone, Default)]
pub enum GoRuntimeValue {
    /// `nil` without a type.
    #[default]
    Nil,
    /// A `bool`.
    Bool(bool),
    /// An integer of any size.
    Integer(SizedInteger),
    /// A `float64`.
    Float(f64),
    /// A `complex128`: its real and imaginary part.
    Complex(f64, f64),
    /// A `string`, which need not be UTF-8.
    String(GoString),
    /// A `[]uint8`.
    Bytes(GoString),
    /// A slice.
    List(GoSlice),
    /// A map whose keys are strings.
    Map(GoMap),
    /// A function.
    Function(Arc<GoFunction>),
    /// Any other value: structs, pointers to them, and named types.
    Object(Arc<dyn GoObject>),
}

impl GoRuntimeValue {
    /// A value of Go's type `int`.
    pub fn int(number: i64) -> Self {
        Self::Integer(SizedInteger::new(IntegerKind::Int, number))
    }

    /// A value of Go's type `int64`.
    pub fn int64(number: i64) -> Self {
        Self::Integer(SizedInteger::new(IntegerKind::Int64, number))
    }

    /// A value of Go's type `string`.
    pub fn string(text: impl Into<GoString>) -> Self {
        Self::String(text.into())
    }

    /// A value of Go's type `[]interface {}` with these items.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(GoSlice::new(GoType::Any, items.into_iter().collect()))
    }

    /// A value of Go's type `[]string` with these items.
    pub fn strings<T: Into<GoString>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::List(GoSlice::new(GoType::String, items.into_iter().map(Self::string).collect()))
    }

    /// A value of Go's type `map[string]interface {}` with these entries.
    pub fn map<K: Into<GoString>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value));
        Self::Map(GoMap::new(GoType::Any, entries))
    }

    /// A value that is an object of a Go type, with its fields and methods.
    pub fn object(object: impl GoObject) -> Self {
        Self::Object(Arc::new(object))
    }

    /// The value that Go's `encoding/json` decodes into an `interface {}`. Every number is a `float64`. The capacity of
    /// a list is the one that growing it item by item gives.
    pub fn from_json(json: &serde_json::Value) -> Self {
        json::decoded(json)
    }

    /// The bytes of a `string` or `[]uint8`. `None` if the value has another type.
    pub fn bytes(&self) -> Option<&GoString> {
        match self {
            Self::String(text) | Self::Bytes(text) => Some(text),
            _ => None,
        }
    }

    /// The kind of the value in the words of `reflect`. It is [`ReflectKind::Invalid`] for nil.
    pub fn kind(&self) -> ReflectKind {
        match self {
            Self::Nil => ReflectKind::Invalid,
            Self::Bool(_) => ReflectKind::Bool,
            Self::Integer(integer) => ReflectKind::Integer(integer.kind()),
            Self::Float(_) => ReflectKind::Float64,
            Self::Complex(..) => ReflectKind::Complex128,
            Self::String(_) => ReflectKind::String,
            Self::Bytes(_) | Self::List(_) => ReflectKind::Slice,
            Self::Map(_) => ReflectKind::Map,
            Self::Function(_) => ReflectKind::Func,
            Self::Object(object) => object.kind(),
        }
    }

    /// The type of the value, which prints as Go's `%T`. `None` for nil.
    pub fn type_of(&self) -> Option<GoType> {
        Some(match self {
            Self::Nil => return None,
            Self::Bool(_) => GoType::Bool,
            Self::Integer(integer) => GoType::Integer(integer.kind()),
            Self::Float(_) => GoType::Float64,
            Self::Complex(..) => GoType::Complex128,
            Self::String(_) => GoType::String,
            Self::Bytes(_) => GoType::Slice(Arc::new(GoType::Integer(IntegerKind::Uint8))),
            Self::List(list) => GoType::Slice(Arc::new(list.item_type().clone())),
            Self::Map(map) => GoType::Map(Arc::new(map.item_type().clone())),
            Self::Function(function) => GoType::Func(Arc::new(function.signature().clone())),
            Self::Object(object) => GoType::Named(object.type_name().into(), object.kind()),
        })
    }

    /// The name of the type as Go's `%T` prints it. It is `<nil>` for nil.
    pub fn type_name(&self) -> String {
        self.type_of().map_or_else(|| "<nil>".to_owned(), |known| known.to_string())
    }

    /// The value without the name of its type. For example, a `time.Duration` becomes an `int64`, and a named map
    /// becomes a map.
    ///
    /// Structs and pointers do not change.
    pub fn underlying(&self) -> Self {
        match self {
            Self::Object(object) => object.underlying().unwrap_or_else(|| self.clone()),
            other => other.clone(),
        }
    }

    /// Whether templates treat the value as true: it is neither empty nor zero.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(truth) => *truth,
            Self::Integer(integer) => !integer.is_zero(),
            Self::Float(float) => *float != 0.0,
            Self::Complex(real, imaginary) => *real != 0.0 || *imaginary != 0.0,
            Self::String(text) | Self::Bytes(text) => !text.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Function(_) => true,
            Self::Object(object) => match object.entries() {
                Some(entries) => !entries.is_empty(),
                None => object.underlying().is_none_or(|value| value.is_true()),
            },
        }
    }

    /// The value as it is assigned to a type. `None` if it cannot be assigned.
    ///
    /// Go assigns a value of the same type, any value to `interface {}`, and a named map or list to a type without a
    /// name. It assigns nil only to types that can be nil.
    pub fn assign(&self, wanted: &GoType) -> Option<Self> {
        let fits = match (self, wanted) {
            (Self::Nil, _) => return wanted.can_be_nil().then(|| wanted.zero()),
            (_, GoType::Any | GoType::Reflected)
            | (Self::Bool(_), GoType::Bool)
            | (Self::Float(_), GoType::Float64)
            | (Self::Complex(..), GoType::Complex128)
            | (Self::String(_), GoType::String) => true,
            (Self::Integer(integer), GoType::Integer(kind)) => integer.kind() == *kind,
            (Self::Bytes(_), GoType::Slice(item)) => **item == GoType::Integer(IntegerKind::Uint8),
            (Self::List(list), GoType::Slice(item)) => list.item_type() == &**item,
            (Self::Map(map), GoType::Map(item)) => map.item_type() == &**item,
            (Self::Function(function), GoType::Func(signature)) => {
                function.signature() == &**signature
            }
            (Self::Object(object), GoType::Named(name, _)) => *object.type_name() == **name,
            (Self::Object(object), GoType::Slice(_) | GoType::Map(_) | GoType::Func(_)) => {
                return object.underlying().and_then(|value| value.assign(wanted));
            }
            _ => false,
        };
        fits.then(|| self.clone())
    }
}

impl From<bool> for GoRuntimeValue {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<f64> for GoRuntimeValue {
    fn from(float: f64) -> Self {
        Self::Float(float)
    }
}

impl From<&str> for GoRuntimeValue {
    fn from(text: &str) -> Self {
        Self::string(text)
    }
}

impl From<String> for GoRuntimeValue {
    fn from(text: String) -> Self {
        Self::string(text)
    }
}

#[cfg(test)]
mod tests;
