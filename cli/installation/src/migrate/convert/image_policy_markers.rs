//! Writes manifests with markers. A marker is a comment that tells an ImageUpdateAutomation which value to set.
//!
//! Elsewhere: reading such comments (engine `image`).

use std::collections::BTreeMap;

use anyhow::Context as _;
use goyaml::YamlLimits;
use goyaml::v3::{ScalarPosition, parse, scalar_places};
use serde_json::{Value, json};

/// The marker of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImagePolicyMarker {
    /// The keys that lead to the value in the object.
    pub(super) path: Vec<String>,
    /// The namespace and the name of an ImagePolicy, and the part of its image, separated by colons.
    pub(super) setter: String,
}

/// Writes an object as YAML with the markers of its values.
///
/// # Errors
/// The object cannot be written, or the value of a marker does not exist.
pub(super) fn emit(object: &Value, markers: &[ImagePolicyMarker]) -> anyhow::Result<String> {
    let mut text = goyaml::emit::emit(object)?;
    if markers.is_empty() {
        return Ok(text);
    }
    let documents = parse(text.as_bytes(), &YamlLimits::default())?;
    let root = documents.first().and_then(|document| document.content.first());
    let places = scalar_places(&text);
    let mut comments = BTreeMap::new();
    for ImagePolicyMarker { path, setter } in markers {
        let value = root.and_then(|root| path.iter().try_fold(root, |node, key| node.get(key)));
        let place: Option<&ScalarPosition> = value.and_then(|node| {
            let before = (node.line, node.column);
            places.get(places.partition_point(|it| (it.line, it.column) < before))
        });
        let place =
            place.with_context(|| format!("{} has no value for a marker", path.join(".")))?;
        comments.insert(place.bytes.end, json!(setter));
    }
    // Starts at the end, so the positions of earlier comments stay valid.
    for (end, setter) in comments.iter().rev() {
        text.insert_str(*end, &format!(" # {{\"$imagepolicy\": {setter}}}"));
    }
    Ok(text)
}
