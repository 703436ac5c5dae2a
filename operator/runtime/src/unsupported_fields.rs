//! Fields of a spec that this version of windlass does not support.

/// The message that refuses fields that are not supported.
pub fn unsupported_text(fields: &[&str]) -> String {
    let (are, them) = if fields.len() == 1 { ("is", "it") } else { ("are", "them") };
    format!(
        "{} {are} not supported by this version of windlass; remove {them} or upgrade",
        fields.join(", ")
    )
}
