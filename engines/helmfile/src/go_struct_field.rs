//! Fields of Go structs: reading them from YAML, merging them as the Go library mergo does, and writing them.
//!
//! Here: the trait, the types that implement it, and the macro that declares a struct. Elsewhere: the structs (`spec.rs`).

use std::collections::BTreeMap;

use goyaml::v3::{YamlNode, YamlNodeKind};
use serde_json::Value;

use crate::error::Result;
use crate::yaml::{self, YamlOutputValue};

/// How one struct is merged into another. The variants are mergo's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StructMergeMode {
    /// `WithOverride`: a value that is not empty replaces the earlier one. Lists are replaced, too.
    Override,
    /// `WithOverride` and `WithAppendSlice`: a value that is not empty replaces the earlier one. Lists are appended.
    Append,
    /// No option: only empty fields are filled.
    Fill,
}

/// A type that a field can have.
pub(crate) trait HelmfileField: Default + Clone + PartialEq {
    /// Reads a field from a node. A null gives the default value.
    fn decode(node: &YamlNode) -> Result<Self>;

    /// The form in which the field is written.
    fn emit(&self) -> YamlOutputValue;

    /// Whether `omitempty` leaves out the field. mergo uses the same definition of empty, except for pointers.
    fn is_empty(&self) -> bool;

    /// Merges another field into this one.
    fn merge(&mut self, from: &Self, how: StructMergeMode) {
        let takes = match how {
            StructMergeMode::Override | StructMergeMode::Append => !from.is_empty(),
            StructMergeMode::Fill => self.is_empty() && !from.is_empty(),
        };
        if takes {
            self.clone_from(from);
        }
    }
}

fn mismatch(node: &YamlNode, wanted: &str) -> crate::Error {
    let shown = if node.kind == YamlNodeKind::Scalar {
        format!(" `{}`", node.value)
    } else {
        String::new()
    };
    format!("yaml: line {}: cannot unmarshal {}{shown} into {wanted}", node.line, node.tag).into()
}

impl HelmfileField for String {
    fn decode(node: &YamlNode) -> Result<Self> {
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

    fn emit(&self) -> YamlOutputValue {
        YamlOutputValue::Plain(Value::String(self.clone()))
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl HelmfileField for bool {
    fn decode(node: &YamlNode) -> Result<Self> {
        // Parity(go-yaml v3): the words of YAML 1.1 are booleans where a boolean is wanted, quoted too.
        match (&*node.tag, node.value.as_str()) {
            ("!!null", _) => Ok(false),
            ("!!bool", text) => Ok(text.eq_ignore_ascii_case("true")),
            (_, "y" | "Y" | "yes" | "on") if node.kind == YamlNodeKind::Scalar => Ok(true),
            (_, "n" | "N" | "no" | "off") if node.kind == YamlNodeKind::Scalar => Ok(false),
            _ => Err(mismatch(node, "bool")),
        }
    }

    fn emit(&self) -> YamlOutputValue {
        YamlOutputValue::Plain(Value::Bool(*self))
    }

    fn is_empty(&self) -> bool {
        !self
    }
}

impl HelmfileField for i64 {
    fn decode(node: &YamlNode) -> Result<Self> {
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

    fn emit(&self) -> YamlOutputValue {
        YamlOutputValue::Plain((*self).into())
    }

    fn is_empty(&self) -> bool {
        *self == 0
    }
}

impl HelmfileField for f64 {
    fn decode(node: &YamlNode) -> Result<Self> {
        match (node.kind, &*node.tag) {
            (YamlNodeKind::Scalar, "!!null") => Ok(0.0),
            (YamlNodeKind::Scalar, "!!int" | "!!float") => {
                yaml::value(node)?.as_f64().ok_or_else(|| mismatch(node, "float32"))
            }
            _ => Err(mismatch(node, "float32")),
        }
    }

    fn emit(&self) -> YamlOutputValue {
        YamlOutputValue::Plain((*self).into())
    }

    fn is_empty(&self) -> bool {
        *self == 0.0
    }
}

impl HelmfileField for Value {
    fn decode(node: &YamlNode) -> Result<Self> {
        yaml::value(node)
    }

    fn emit(&self) -> YamlOutputValue {
        YamlOutputValue::Plain(self.clone())
    }

    fn is_empty(&self) -> bool {
        self.is_null()
    }
}

impl<T: HelmfileField> HelmfileField for Vec<T> {
    fn decode(node: &YamlNode) -> Result<Self> {
        match node.kind {
            _ if yaml::is_null(node) => Ok(Self::new()),
            YamlNodeKind::Sequence => node.content.iter().map(T::decode).collect(),
            _ => Err(mismatch(node, "a list")),
        }
    }

    fn emit(&self) -> YamlOutputValue {
        YamlOutputValue::List(self.iter().map(T::emit).collect())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn merge(&mut self, from: &Self, how: StructMergeMode) {
        match how {
            StructMergeMode::Append => self.extend(from.iter().cloned()),
            StructMergeMode::Override if !from.is_empty() => self.clone_from(from),
            StructMergeMode::Fill if self.is_empty() => self.clone_from(from),
            StructMergeMode::Override | StructMergeMode::Fill => {}
        }
    }
}

impl<T: HelmfileField> HelmfileField for BTreeMap<String, T> {
    fn decode(node: &YamlNode) -> Result<Self> {
        match node.kind {
            _ if yaml::is_null(node) => Ok(Self::new()),
            YamlNodeKind::Mapping => {
                let entry = |(key, value)| Ok((String::decode(key)?, T::decode(value)?));
                node.entries().map(entry).collect()
            }
            _ => Err(mismatch(node, "a map")),
        }
    }

    fn emit(&self) -> YamlOutputValue {
        YamlOutputValue::Map(self.iter().map(|(key, value)| (key.clone(), value.emit())).collect())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn merge(&mut self, from: &Self, how: StructMergeMode) {
        for (key, value) in from {
            // Parity(mergo): an entry is replaced as a whole, also by an empty one.
            match self.get(key) {
                Some(known) if how == StructMergeMode::Fill && !known.is_empty() => {}
                _ => drop(self.insert(key.clone(), value.clone())),
            }
        }
    }
}

/// A pointer. It is unset, or set to a value that may be empty.
impl<T: HelmfileField> HelmfileField for Option<T> {
    fn decode(node: &YamlNode) -> Result<Self> {
        if yaml::is_null(node) { Ok(None) } else { T::decode(node).map(Some) }
    }

    fn emit(&self) -> YamlOutputValue {
        self.as_ref().map_or(YamlOutputValue::Plain(Value::Null), T::emit)
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn merge(&mut self, from: &Self, how: StructMergeMode) {
        match (self.as_mut(), from) {
            (_, None) => {}
            (None, Some(_)) => self.clone_from(from),
            // Parity(mergo): what is pointed at is merged, so `false` and 0 never win.
            (Some(known), Some(from)) => known.merge(from, how),
        }
    }
}

/// Declares a struct of Go with its YAML keys. `always` marks fields without `omitempty`.
macro_rules! spec {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty = $key:literal $($always:ident)?,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }

        impl crate::go_struct_field::HelmfileField for $name {
            fn decode(node: &goyaml::v3::YamlNode) -> crate::error::Result<Self> {
                let mut spec = Self::default();
                for (key, value) in crate::go_struct_field::entries(node, stringify!($name))? {
                    match key.value.as_str() {
                        $($key => spec.$field = crate::go_struct_field::HelmfileField::decode(value)?,)*
                        _ => return Err(crate::go_struct_field::unknown(key, stringify!($name))),
                    }
                }
                Ok(spec)
            }

            fn emit(&self) -> crate::yaml::YamlOutputValue {
                let mut fields = Vec::new();
                $(if crate::go_struct_field::spec!(@always $($always)?) || !crate::go_struct_field::HelmfileField::is_empty(&self.$field) {
                    fields.push(($key, crate::go_struct_field::HelmfileField::emit(&self.$field)));
                })*
                crate::yaml::YamlOutputValue::Fields(fields)
            }

            fn is_empty(&self) -> bool {
                $(crate::go_struct_field::HelmfileField::is_empty(&self.$field))&&*
            }

            fn merge(&mut self, from: &Self, how: crate::go_struct_field::StructMergeMode) {
                $(crate::go_struct_field::HelmfileField::merge(&mut self.$field, &from.$field, how);)*
            }
        }
    };
    (@always always) => { true };
    (@always) => { false };
}
pub(crate) use spec;

/// The entries of a struct. A null has no entries.
pub(crate) fn entries<'n>(
    node: &'n YamlNode,
    name: &str,
) -> Result<Vec<(&'n YamlNode, &'n YamlNode)>> {
    match node.kind {
        _ if yaml::is_null(node) => Ok(Vec::new()),
        YamlNodeKind::Mapping => Ok(node.entries().collect()),
        _ => Err(mismatch(node, name)),
    }
}

/// The error of a key that a struct does not have.
pub(crate) fn unknown(key: &YamlNode, name: &str) -> crate::Error {
    format!("yaml: line {}: field {} not found in type {name}", key.line, key.value).into()
}
