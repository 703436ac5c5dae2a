//! The Go value of a scalar, for types that JSON does not have: times, bytes, floats without a fraction.

use super::decode::{binary_of, meaning};
use super::node::YamlNode;
use crate::error::Error;
use crate::scalar_resolve::{ResolvedScalar as Meaning, timestamp};

/// What go-yaml v3 decodes a scalar into when no type is wanted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DecodedScalar {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number above `i64::MAX`.
    Uint(u64),
    /// Any other number, also an infinite one.
    Float(f64),
    /// A time in the form of RFC 3339.
    Time(String),
    /// What stands under `!!binary`, decoded.
    Bytes(Vec<u8>),
    /// A string.
    Text(String),
}

/// The meaning of a node that is a scalar.
///
/// # Errors
/// The value does not have the form that its tag asks for, in Go's words.
pub fn scalar(node: &YamlNode) -> Result<DecodedScalar, Error> {
    Ok(match meaning(node)? {
        Meaning::Null => DecodedScalar::Null,
        Meaning::Bool(truth) => DecodedScalar::Bool(truth),
        Meaning::Int(int) => DecodedScalar::Int(int),
        Meaning::Uint(uint) => DecodedScalar::Uint(uint),
        Meaning::Float(float) => DecodedScalar::Float(float),
        Meaning::Timestamp => match timestamp::rfc3339(&node.value) {
            Some(text) => DecodedScalar::Time(text),
            None => DecodedScalar::Text(node.value.clone()),
        },
        Meaning::Binary => DecodedScalar::Bytes(binary_of(node)?),
        Meaning::Str | Meaning::Other => DecodedScalar::Text(node.value.clone()),
    })
}
