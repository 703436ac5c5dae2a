//! What counts as absent: the rules of Go's `omitempty`, for serde's attributes.
//!
//! Here: the functions that `deserialize_with` and `skip_serializing_if` name.

use serde::{Deserialize, Deserializer};

/// Reads an optional text in which an empty one means that there is none.
///
/// Go's plain strings cannot tell the two apart, so Flux treats `namespace: ""` as no namespace.
/// A field that may be missing requires `default` as well only in a struct that has no `default` itself.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|text| !text.is_empty()))
}

/// Whether a switch is off, which is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) const fn is_false(switch: &bool) -> bool {
    !*switch
}

/// Whether a count is zero, which is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) const fn is_zero(count: &i64) -> bool {
    *count == 0
}
