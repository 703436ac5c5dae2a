//! Replacements within a field whose text is itself YAML or JSON.

use goyaml::YamlLimits;
use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::budget::{self, BuildBudget};
use crate::error::Result;
use crate::field_edit;
use crate::name_hash::go_json;
use crate::yaml_path::{self, PathMatch};

/// Sets a field in YAML or JSON that is the text of another field on the path.
///
/// Returns whether such a text with such a field was found; after an error it returns false.
///
/// # Errors
/// The build has exceeded its budget. Other failures are not errors here, because the caller then sets the field in another
/// way.
pub(super) fn set(
    object: &mut YamlNode,
    value: &YamlNode,
    parts: &[String],
    create: Option<YamlNodeKind>,
    budget: &BuildBudget,
) -> Result<bool> {
    if parts.len() < 2 {
        return Ok(false);
    }
    let mut at = 1;
    while !holds_text(object, &parts[..at], budget)? {
        at += 1;
        if at == parts.len() {
            return Ok(false);
        }
    }
    let Ok(Some(field)) = yaml_path::lookup_mut(object, &parts[..at]) else { return Ok(false) };
    match changed(&field.value, value, &parts[at..], create, budget)? {
        Some(text) => {
            budget.grown(field.value.len(), text.len())?;
            field.value = text;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Whether the end of a path is a scalar with readable YAML.
fn holds_text(object: &YamlNode, parts: &[String], budget: &BuildBudget) -> Result<bool> {
    match yaml_path::lookup(object, parts) {
        Ok(Some(node)) if node.kind == YamlNodeKind::Scalar => {
            Ok(parse(&node.value, budget)?.is_some())
        }
        _ => Ok(false),
    }
}

/// The first document of a text. An empty text has no document, but counts as readable.
fn parse(text: &str, budget: &BuildBudget) -> Result<Option<Option<YamlNode>>> {
    let limits = budget.reading(text.len())?;
    let documents = goyaml::v3::YamlNodeDocumentReader::new(text.as_bytes(), &limits).ok();
    Ok(documents.and_then(|mut documents| documents.next().transpose().ok()))
}

/// The text with a field set.
fn changed(
    text: &str,
    value: &YamlNode,
    parts: &[String],
    create: Option<YamlNodeKind>,
    budget: &BuildBudget,
) -> Result<Option<String>> {
    let Some(Some(mut document)) = parse(text, budget)? else { return Ok(None) };
    let found = match yaml_path::matches(&mut document, parts, create, budget) {
        Err(yaml_path::Error::Exhausted(exhausted)) => return Err(exhausted.into()),
        Ok(found) if !found.is_empty() => found,
        _ => return Ok(None),
    };
    let _document = budget.hold(budget::weight(&document))?;
    let mut copies = Vec::with_capacity(found.len());
    for place in found {
        let PathMatch::Node(place) = place else { continue };
        copies.push(budget.hold(budget::weight(value))?);
        let Some(node) = yaml_path::at_mut(&mut document, &place) else { return Ok(None) };
        if node.kind == YamlNodeKind::Scalar {
            node.value.clone_from(&value.value);
        } else {
            *node = value.clone();
        }
    }
    let Ok(yaml) = goyaml::v3::emit(&document, &field_edit::LAYOUT) else { return Ok(None) };
    if !text.trim_start().starts_with(['{', '[']) {
        return Ok(Some(yaml.trim().to_owned()));
    }
    let Some(Some(document)) = parse(&yaml, budget)? else { return Ok(None) };
    let Ok(value) = goyaml::v3::to_json(&document, &YamlLimits::default()) else { return Ok(None) };
    let is_pretty = text.contains('\n') && text.contains("  ");
    Ok(Some(if is_pretty { pretty(&value) } else { go_json(&value) }))
}

fn pretty(value: &serde_json::Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    crate::name_hash::html_safe(&text)
}
