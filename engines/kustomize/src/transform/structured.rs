//! Replacements within a field whose text is itself YAML or JSON.

use goyaml::Limits;
use goyaml::v3::{Kind, Node};

use crate::edit;
use crate::error::Result;
use crate::hash::go_json;
use crate::path::{self, Match};

/// Sets a field of the YAML or JSON that a field on the way to it holds as text.
///
/// Returns whether there is such a text and such a field in it; whatever is wrong means no.
///
/// # Errors
/// None today: what cannot be done here is left to the caller's own way.
pub(super) fn set(
    object: &mut Node,
    value: &Node,
    parts: &[String],
    create: Option<Kind>,
) -> Result<bool> {
    if parts.len() < 2 {
        return Ok(false);
    }
    let Some(at) = (1..parts.len()).find(|at| holds_text(object, &parts[..*at])) else {
        return Ok(false);
    };
    let Ok(Some(field)) = path::lookup_mut(object, &parts[..at]) else { return Ok(false) };
    match changed(&field.value, value, &parts[at..], create) {
        Some(text) => {
            field.value = text;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Whether a scalar with readable YAML stands at the end of a path.
fn holds_text(object: &Node, parts: &[String]) -> bool {
    match path::lookup(object, parts) {
        Ok(Some(node)) => node.kind == Kind::Scalar && parse(&node.value).is_some(),
        _ => false,
    }
}

/// The first document of a text; an empty one has none, and is readable all the same.
fn parse(text: &str) -> Option<Option<Node>> {
    let limits = Limits::default();
    let mut documents = goyaml::v3::Documents::new(text.as_bytes(), &limits).ok()?;
    documents.next().transpose().ok()
}

/// The text with a field set.
fn changed(text: &str, value: &Node, parts: &[String], create: Option<Kind>) -> Option<String> {
    let mut document = parse(text)??;
    let found = path::matches(&mut document, parts, create).ok()?;
    if found.is_empty() {
        return None;
    }
    for place in found {
        let Match::Node(place) = place else { continue };
        let node = path::at_mut(&mut document, &place)?;
        if node.kind == Kind::Scalar {
            node.value.clone_from(&value.value);
        } else {
            *node = value.clone();
        }
    }
    let yaml = goyaml::v3::emit(&document, &edit::LAYOUT).ok()?;
    if !text.trim_start().starts_with(['{', '[']) {
        return Some(yaml.trim().to_owned());
    }
    let document = parse(&yaml)??;
    let value = goyaml::v3::to_json(&document, &Limits::default()).ok()?;
    let is_pretty = text.contains('\n') && text.contains("  ");
    Some(if is_pretty { pretty(&value) } else { go_json(&value) })
}

fn pretty(value: &serde_json::Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    crate::hash::html_safe(&text)
}
