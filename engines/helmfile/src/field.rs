//! Fields of Go structs: how they are read from YAML, merged as mergo does it, and written.
//!
//! Here: the trait, its types, and the macro that makes a struct of fields. Elsewhere: the structs (`spec.rs`).

use std::collections::BTreeMap;

use goyaml::v3::{Node, YamlNodeKind};
use serde_json::Value;

use crate::error::Result;
use crate::yaml::{self, Out};

/// How one struct is merged into another; mergo's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// `WithOverride`: what is not empty wins, lists replace.
    Override,
    /// `WithOverride` and `WithAppendSlice`: what is not empty wins, lists are appended.
    Append,
    /// No option: what is empty is filled.
    Fill,
}

/// What can be a field.
pub(crate) trait Field: Default + Clone + PartialEq {
    /// The field of a node; null leaves it as it is in a new struct.
    fn decode(node: &Node) -> Result<Self>;

    /// What is written for it.
    fn emit(&self) -> Out;

    /// Whether `omitempty` leaves it out, which is also what mergo means by empty, but for pointers.
    fn is_empty(&self) -> bool;

    /// Merges another one into it.
    fn merge(&mut self, from: &Self, how: How) {
        let takes = match how {
            How::Override | How::Append => !from.is_empty(),
            How::Fill => self.is_empty() && !from.is_empty(),
        };
        if takes {
            self.clone_from(from);
        }
    }
}

fn mismatch(node: &Node, wanted: &str) -> crate::Error {
    let shown = if node.kind == YamlNodeKind::Scalar {
        format!(" `{}`", node.value)
    } else {
        String::new()
    };
    format!("yaml: line {}: cannot unmarshal {}{shown} into {wanted}", node.line, node.tag).into()
}

impl Field for String {
    fn decode(node: &Node) -> Result<Self> {
        match node.kind {
            _ if yaml::is_null(node) => Ok(Self::new()),
            YamlNodeKind::Scalar if node.tag == "!!binary" => match yaml::value(node)? {
                Value::String(text) => Ok(text),
                _ => Err(mismatch(node, "string")),
            },
            // Parity(go-yaml v3): a scalar of any type is read as a string, with the text that it has.
            YamlNodeKind::Scalar => Ok(node.value.clone()),
            _ => Err(mismatch(node, "string")),
        }
    }

    fn emit(&self) -> Out {
        Out::Plain(Value::String(self.clone()))
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl Field for bool {
    fn decode(node: &Node) -> Result<Self> {
        // Parity(go-yaml v3): the words of YAML 1.1 are booleans where a boolean is wanted, quoted too.
        match (&*node.tag, node.value.as_str()) {
            ("!!null", _) => Ok(false),
            ("!!bool", text) => Ok(text.eq_ignore_ascii_case("true")),
            (_, "y" | "Y" | "yes" | "on") if node.kind == YamlNodeKind::Scalar => Ok(true),
            (_, "n" | "N" | "no" | "off") if node.kind == YamlNodeKind::Scalar => Ok(false),
            _ => Err(mismatch(node, "bool")),
        }
    }

    fn emit(&self) -> Out {
        Out::Plain(Value::Bool(*self))
    }

    fn is_empty(&self) -> bool {
        !self
    }
}

impl Field for i64 {
    fn decode(node: &Node) -> Result<Self> {
        if yaml::is_null(node) {
            return Ok(0);
        }
        let number = match (node.kind, &*node.tag) {
            (YamlNodeKind::Scalar, "!!int" | "!!float") => yaml::value(node)?,
            _ => return Err(mismatch(node, "int")),
        };
        let whole = |float: f64| (float.fract() == 0.0 && float.abs() < 9e15).then_some(float);
        #[expect(clippy::cast_possible_truncation, reason = "it is a whole number that fits")]
        let of_float = || number.as_f64().and_then(whole).map(|float| float as Self);
        number.as_i64().or_else(of_float).ok_or_else(|| mismatch(node, "int"))
    }

    fn emit(&self) -> Out {
        Out::Plain((*self).into())
    }

    fn is_empty(&self) -> bool {
        *self == 0
    }
}

impl Field for f64 {
    fn decode(node: &Node) -> Result<Self> {
        match (node.kind, &*node.tag) {
            (YamlNodeKind::Scalar, "!!null") => Ok(0.0),
            (YamlNodeKind::Scalar, "!!int" | "!!float") => {
                yaml::value(node)?.as_f64().ok_or_else(|| mismatch(node, "float32"))
            }
            _ => Err(mismatch(node, "float32")),
        }
    }

    fn emit(&self) -> Out {
        Out::Plain((*self).into())
    }

    fn is_empty(&self) -> bool {
        *self == 0.0
    }
}

impl Field for Value {
    fn decode(node: &Node) -> Result<Self> {
        yaml::value(node)
    }

    fn emit(&self) -> Out {
        Out::Plain(self.clone())
    }

    fn is_empty(&self) -> bool {
        self.is_null()
    }
}

impl<T: Field> Field for Vec<T> {
    fn decode(node: &Node) -> Result<Self> {
        match node.kind {
            _ if yaml::is_null(node) => Ok(Self::new()),
            YamlNodeKind::Sequence => node.content.iter().map(T::decode).collect(),
            _ => Err(mismatch(node, "a list")),
        }
    }

    fn emit(&self) -> Out {
        Out::List(self.iter().map(T::emit).collect())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn merge(&mut self, from: &Self, how: How) {
        match how {
            How::Append => self.extend(from.iter().cloned()),
            How::Override if !from.is_empty() => self.clone_from(from),
            How::Fill if self.is_empty() => self.clone_from(from),
            How::Override | How::Fill => {}
        }
    }
}

impl<T: Field> Field for BTreeMap<String, T> {
    fn decode(node: &Node) -> Result<Self> {
        match node.kind {
            _ if yaml::is_null(node) => Ok(Self::new()),
            YamlNodeKind::Mapping => {
                let entry = |(key, value)| Ok((String::decode(key)?, T::decode(value)?));
                node.entries().map(entry).collect()
            }
            _ => Err(mismatch(node, "a map")),
        }
    }

    fn emit(&self) -> Out {
        Out::Map(self.iter().map(|(key, value)| (key.clone(), value.emit())).collect())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn merge(&mut self, from: &Self, how: How) {
        for (key, value) in from {
            // Parity(mergo): an entry is replaced as a whole, also by an empty one.
            match self.get(key) {
                Some(known) if how == How::Fill && !known.is_empty() => {}
                _ => drop(self.insert(key.clone(), value.clone())),
            }
        }
    }
}

/// A pointer: unset, or set to something that may be empty.
impl<T: Field> Field for Option<T> {
    fn decode(node: &Node) -> Result<Self> {
        if yaml::is_null(node) { Ok(None) } else { T::decode(node).map(Some) }
    }

    fn emit(&self) -> Out {
        self.as_ref().map_or(Out::Plain(Value::Null), T::emit)
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn merge(&mut self, from: &Self, how: How) {
        match (self.as_mut(), from) {
            (_, None) => {}
            (None, Some(_)) => self.clone_from(from),
            // Parity(mergo): what is pointed at is merged, so `false` and 0 never win.
            (Some(known), Some(from)) => known.merge(from, how),
        }
    }
}

/// Declares a struct of Go with its YAML keys. `always` marks those without `omitempty`.
macro_rules! spec {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty = $key:literal $($always:ident)?,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }

        impl crate::field::Field for $name {
            fn decode(node: &goyaml::v3::Node) -> crate::error::Result<Self> {
                let mut spec = Self::default();
                for (key, value) in crate::field::entries(node, stringify!($name))? {
                    match key.value.as_str() {
                        $($key => spec.$field = crate::field::Field::decode(value)?,)*
                        _ => return Err(crate::field::unknown(key, stringify!($name))),
                    }
                }
                Ok(spec)
            }

            fn emit(&self) -> crate::yaml::Out {
                let mut fields = Vec::new();
                $(if crate::field::spec!(@always $($always)?) || !crate::field::Field::is_empty(&self.$field) {
                    fields.push(($key, crate::field::Field::emit(&self.$field)));
                })*
                crate::yaml::Out::Fields(fields)
            }

            fn is_empty(&self) -> bool {
                $(crate::field::Field::is_empty(&self.$field))&&*
            }

            fn merge(&mut self, from: &Self, how: crate::field::How) {
                $(crate::field::Field::merge(&mut self.$field, &from.$field, how);)*
            }
        }
    };
    (@always always) => { true };
    (@always) => { false };
}
pub(crate) use spec;

/// The entries of a struct; none of null.
pub(crate) fn entries<'n>(node: &'n Node, name: &str) -> Result<Vec<(&'n Node, &'n Node)>> {
    match node.kind {
        _ if yaml::is_null(node) => Ok(Vec::new()),
        YamlNodeKind::Mapping => Ok(node.entries().collect()),
        _ => Err(mismatch(node, name)),
    }
}

/// The error of a key that a struct does not have.
pub(crate) fn unknown(key: &Node, name: &str) -> crate::Error {
    format!("yaml: line {}: field {} not found in type {name}", key.line, key.value).into()
}
