//! Reads the objects of a file as nodes: splits documents, expands anchors, and splits lists.
//!
//! Elsewhere: reading one document ([`goyaml::v3`]), objects in a build (`resource.rs`).

mod anchor;

use goyaml::YamlLimits;
use goyaml::v3::{AnchorOrCommentKind, YamlNode, YamlNodeKind};
use memchr::memmem;
use serde_json::Value;

use crate::budget::{self, BuildBudget};
use crate::error::{BuildErrorCause, Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::resource::{self, BuildResource};
use crate::yaml_output;

/// The deepest nesting of lists and maps. Differs(kustomize): it ends with Go's stack.
pub(crate) const MAX_DEPTH: usize = 1_000;

/// Steps that every document costs.
const STEPS_PER_DOCUMENT: usize = 1_000;

/// The memory of an object in addition to its node, including lookup tables, in bytes.
const OBJECT_OVERHEAD_BYTES: usize = 1 << 10;

/// The objects of a file, in order. Empty documents are left out, and lists are replaced by their items. Their memory is taken
/// from the budget.
pub(crate) fn parse(bytes: &[u8], budget: &BuildBudget) -> Result<Vec<BuildResource>> {
    let nodes = check(read(bytes, budget)?)?;
    let nodes = take_lists_apart(nodes, budget)?;
    budget.bytes(nodes.iter().map(|node| OBJECT_OVERHEAD_BYTES + budget::weight(node)).sum())?;
    Ok(nodes.into_iter().map(BuildResource::new).collect())
}

/// Adds the file to an error, where kustomize does.
pub(crate) fn in_file<T>(result: Result<T>, path: &str) -> Result<T> {
    result.map_err(|error| {
        if error.cause() != BuildErrorCause::MalformedYaml {
            return error;
        }
        Error::caused(format!("{error} in File: {path}"), BuildErrorCause::MalformedYaml)
    })
}

fn check(nodes: Vec<YamlNode>) -> Result<Vec<YamlNode>> {
    let mut checked = Vec::with_capacity(nodes.len());
    for node in nodes {
        if field_edit::is_empty(&node) {
            continue;
        }
        resource::check_metadata(&node)?;
        checked.push(node);
    }
    Ok(checked)
}

/// The documents of a stream, with anchors expanded. A single list is replaced by its items.
fn read(bytes: &[u8], budget: &BuildBudget) -> Result<Vec<YamlNode>> {
    let text = String::from_utf8_lossy(bytes);
    let text = if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text };
    // Bytes that are not valid text go to the parser unchanged, because the parser reports the error.
    let whole = if text.contains('\u{fffd}') { bytes } else { text.as_bytes() };
    let parts = split(whole, budget)?;
    let is_alone = parts.len() == 1;
    let mut nodes = Vec::new();
    for part in parts {
        let Some(mut node) = first_document(part, budget)? else { continue };
        let is_list = is_alone
            && matches!(
                field_edit::at(&node, &["kind"]).map(field_edit::text),
                Some("ResourceList" | "List")
            );
        match field_edit::at(&node, &["items"]) {
            Some(_) if is_list => {
                let items = field_edit::get_mut(&mut node, "items")?;
                nodes.extend(
                    items.map(|items| std::mem::take(&mut *items.content)).unwrap_or_default(),
                );
            }
            None if is_list && field_edit::at(&node, &["functionConfig"]).is_some() => {}
            _ => nodes.push(node),
        }
    }
    Ok(nodes)
}

/// The first document of a part, with anchors expanded; none if it is null.
pub(crate) fn first_document(text: &[u8], budget: &BuildBudget) -> Result<Option<YamlNode>> {
    let malformed = |error: goyaml::Error| {
        Error::caused(format!("MalformedYAMLError: {error}"), BuildErrorCause::MalformedYaml)
    };
    let root = as_written(text, budget, malformed)?;
    let root = root.filter(|root| !field_edit::is_null(root));
    root.map(|root| without_anchors(root, budget)).transpose()
}

/// A node in which no alias and no merge key is left.
pub(crate) fn without_anchors(root: YamlNode, budget: &BuildBudget) -> Result<YamlNode> {
    anchor::expand(root, YamlLimits::default().nodes, budget)
}

/// The first document of a text, with its anchors and aliases; none if there is no document.
pub(crate) fn as_written(
    text: &[u8],
    budget: &BuildBudget,
    malformed: impl Fn(goyaml::Error) -> Error,
) -> Result<Option<YamlNode>> {
    let limits = budget.reading(text.len())?;
    let mut documents =
        goyaml::v3::YamlNodeDocumentReader::new(text, &limits).map_err(&malformed)?;
    let Some(document) = documents.next() else { return Ok(None) };
    let mut document = document.map_err(&malformed)?;
    if document.walk().any(|(depth, _)| depth > MAX_DEPTH) {
        return Err(Error::new(format!("exceeded max depth of {MAX_DEPTH}")));
    }
    let Some(mut root) = document.content.pop() else {
        return Ok(None);
    };
    if root.notes.get(AnchorOrCommentKind::Foot).is_empty() {
        // A comment below the document is written again, which lengthens a text that keeps its line breaks.
        root.notes.set(AnchorOrCommentKind::Foot, document.notes.take(AnchorOrCommentKind::Foot));
    }
    Ok(Some(root))
}

/// Splits a stream at lines that begin with `---`.
fn split<'t>(text: &'t [u8], budget: &BuildBudget) -> Result<Vec<&'t [u8]>> {
    let mut parts = Vec::new();
    if text.is_empty() {
        return Ok(parts);
    }
    // A separator must follow a line break. One at the beginning of the text is left to the parser, and so is one directly
    // after another separator, because both share a line break.
    let mut part_start = 0;
    let mut search = 0;
    let separator = memmem::Finder::new(b"\n---");
    while let Some(found) = separator.find(&text[search..]) {
        let start = search + found;
        let Some(length) = text[start + 4..].iter().position(|byte| *byte == b'\n') else { break };
        let end = start + 4 + length + 1;
        let rest = text[start + 4..end].trim_ascii();
        if !rest.is_empty() && rest[0] != b'#' {
            let separator = String::from_utf8_lossy(text[start..end].trim_ascii()).into_owned();
            return Err(Error::new(format!("invalid document separator: {separator}")));
        }
        budget.steps(STEPS_PER_DOCUMENT)?;
        parts.push(&text[part_start..=start]);
        (part_start, search) = (end, end);
    }
    parts.push(&text[part_start..]);
    Ok(parts)
}

/// Replaces lists of objects by their items. As in kustomize, these come after all other objects.
fn take_lists_apart(nodes: Vec<YamlNode>, budget: &BuildBudget) -> Result<Vec<YamlNode>> {
    let mut left: std::collections::VecDeque<YamlNode> = nodes.into();
    let mut result = Vec::new();
    while let Some(node) = left.pop_front() {
        let kind = field_edit::at(&node, &["kind"]).map_or("", |kind| &kind.value).to_owned();
        if !kind.ends_with("List") {
            result.push(node);
            continue;
        }
        let weight = budget::weight(&node);
        budget.steps(weight)?;
        let _value = budget.hold(2 * weight)?;
        let value =
            yaml_output::value(&node).within(|| format!("trouble expanding list of {kind}"))?;
        match value.get("items") {
            None => result.push(node),
            Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                for item in items {
                    let text = serde_json::to_vec(item).unwrap_or_default();
                    left.extend(check(read(&text, budget)?)?);
                }
            }
            Some(other) => {
                let got = match other {
                    Value::Object(_) => "map[string]interface {}",
                    Value::String(_) => "string",
                    Value::Bool(_) => "bool",
                    Value::Number(number) if number.is_f64() => "float64",
                    _ => "int",
                };
                let text = format!("expected array in {kind}/items, but found {got}");
                return Err(Error::new(text));
            }
        }
    }
    Ok(result)
}

/// Converts a JSON value to a node, as kustomize converts Go's maps.
pub(crate) fn from_value(value: &Value, budget: &BuildBudget) -> Result<YamlNode> {
    let text = goyaml::emit::emit(value).map_err(|error| Error::new(error.to_string()))?;
    Ok(first_document(text.as_bytes(), budget)?.unwrap_or_else(|| YamlNode {
        kind: YamlNodeKind::Mapping,
        tag: field_edit::MAP.into(),
        ..YamlNode::default()
    }))
}
