//! The Go values of scalars, including types that JSON does not have: times, bytes, and floats without a fraction.

use super::decode::{binary_of, meaning};
use super::node::YamlNode;
use crate::error::Error;
use crate::scalar_resolve::{ResolvedScalar as Meaning, timestamp};

/// The Go value of a scalar when it is decoded without a given type.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DecodedScalar {
    /// A null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number above `i64::MAX`.
    Uint(u64),
    /// Any other number. It may be infinite.
    Float(f64),
    /// A time in the form of RFC 3339.
    Time(String),
    /// The decoded bytes of a scalar with the tag `!!binary`.
    Bytes(Vec<u8>),
    /// A string.
    Text(String),
}

/// The Go value of a node that is a scalar.
///
/// # Errors
/// The value does not have the form that its tag requires. The message is Go's.
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
