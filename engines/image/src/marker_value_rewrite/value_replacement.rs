//! Sets values in a file while all other bytes stay.
//!
//! A value is replaced in place. Then the file is read again, and its content must be the same except for the values.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use goyaml::YamlLimits;
use goyaml::v3::{
    self, AnchorOrCommentKind, YamlLayout, YamlNode, YamlNodeKind, YamlNodeStyle, scalar_places,
};

use super::document::{
    DocumentProblem, LineFeedText, StreamDocumentPart, document, identity, is_list,
};
use super::setter_markers::{SeenMarkers, assign};
use crate::image_setter::{ImageSetterValues, MarkerAssignment};
use crate::update_result::{ImageValueChange, ObjectIdentifier};

/// The result for one file.
#[derive(Debug, Default)]
pub(super) struct FileRewriteResult {
    /// The new content; `None` if nothing changes.
    pub(super) text: Option<String>,
    pub(super) changes: Vec<(Arc<ObjectIdentifier>, ImageValueChange)>,
    pub(super) problems: Vec<DocumentProblem>,
}

/// A value that is replaced.
#[derive(Debug)]
struct ScalarEdit {
    line: u32,
    column: u32,
    style: YamlNodeStyle,
    tag: Cow<'static, str>,
    is_in_flow: bool,
    value: String,
}

/// A range of bytes of a file, and the text that replaces it.
#[derive(Debug)]
struct TextEdit {
    bytes: Range<usize>,
    text: String,
}

/// The expected content of a document when it is read again.
struct ExpectedDocument {
    part: usize,
    node: YamlNode,
}

/// An object within a document, and whether it is within brackets or braces.
struct ObjectYamlNode<'n> {
    node: &'n mut YamlNode,
    is_in_flow: bool,
    /// The object that the changes belong to, if it is not the object itself.
    owner: Option<Arc<ObjectIdentifier>>,
}

/// The edits in one document.
#[derive(Debug, Default)]
struct DocumentEdits {
    edits: Vec<ScalarEdit>,
    changes: Vec<(Arc<ObjectIdentifier>, ImageValueChange)>,
    /// Whether any value changes. If none does, a value that only lacks quotes stays as it is.
    is_changed: bool,
}

/// Sets the values of a file.
pub(super) fn rewrite(
    text: &LineFeedText<'_>,
    setters: &ImageSetterValues,
    markers: &mut SeenMarkers,
    limits: &YamlLimits,
) -> FileRewriteResult {
    let mut result = FileRewriteResult::default();
    let parts = match text.parts() {
        Ok(parts) => parts,
        Err(problem) => {
            result.problems.push(problem);
            return result;
        }
    };
    let mut edits = Vec::new();
    let mut expected = Vec::new();
    let mut is_changed = false;
    let mut nodes = 0;
    for (at, part) in parts.iter().enumerate() {
        let mut node = match document(part, limits) {
            Ok(Some(node)) => node,
            Ok(None) => continue,
            Err(problem) => {
                result.problems.push(problem);
                continue;
            }
        };
        let done = set_values(&mut node, parts.len() == 1, setters, markers);
        if done.edits.is_empty() {
            continue;
        }
        // All of these documents are kept until the file is read again.
        let count = node.walk().count();
        if count > limits.nodes - nodes {
            let most = limits.nodes;
            let reason = format!("it has more than {most} nodes in documents that change");
            result.problems.push((None, reason));
            continue;
        }
        nodes += count;
        match place(part, &done.edits) {
            Ok(placed) => {
                edits.extend(placed);
                result.changes.extend(done.changes);
                expected.push(ExpectedDocument { part: at, node });
                is_changed |= done.is_changed;
            }
            Err(problem) => result.problems.push(problem),
        }
    }
    if !is_changed {
        return result;
    }
    match written(text, edits, parts.len(), &expected, limits) {
        Some(new) => result.text = Some(new),
        None => {
            result.changes.clear();
            let reason = "its values cannot be replaced where they stand";
            result.problems.push((None, reason.to_owned()));
        }
    }
    result
}

/// Sets the values of a document in its tree, and notes where.
fn set_values(
    document: &mut YamlNode,
    is_only: bool,
    setters: &ImageSetterValues,
    markers: &mut SeenMarkers,
) -> DocumentEdits {
    let mut done = DocumentEdits::default();
    for ObjectYamlNode { node, is_in_flow, owner } in objects(document, is_only) {
        let mut changes = Vec::new();
        assign(node, is_in_flow, setters, markers, |node, assignment, is_in_flow| {
            let MarkerAssignment { setter, value, is_of_policy } = assignment;
            let is_equal = node.value == value;
            // Without quotes `1.10` is another number than a policy means.
            let needs_quotes = is_equal && is_of_policy && !is_string(node) && is_special(&value);
            if is_equal && !needs_quotes {
                return;
            }
            done.is_changed |= !is_equal;
            if !is_equal && setters.contains(&setter) {
                let old_value = node.value.clone();
                changes.push(ImageValueChange { old_value, new_value: value.clone(), setter });
            }
            let YamlNode { line, column, style, .. } = *node;
            let tag = node.tag.clone();
            node.value.clone_from(&value);
            if !style.contains(YamlNodeStyle::TAGGED) {
                node.tag = Cow::Borrowed("!!str");
            }
            done.edits.push(ScalarEdit { line, column, style, tag, is_in_flow, value });
        });
        let object = owner.unwrap_or_else(|| Arc::new(identity(node)));
        done.changes.extend(changes.into_iter().map(|change| (Arc::clone(&object), change)));
    }
    done
}

/// The objects of a document: the document itself, or the items of a list.
///
/// Differs(flux): the items of a list stay in the list; there each gets a file of its own.
fn objects(document: &mut YamlNode, is_only: bool) -> Vec<ObjectYamlNode<'_>> {
    let Some(root) = document.content.first_mut() else { return Vec::new() };
    if !(is_only && is_list(root)) {
        return vec![ObjectYamlNode { node: root, is_in_flow: false, owner: None }];
    }
    let list = Arc::new(identity(root));
    let is_in_flow = root.style.contains(YamlNodeStyle::FLOW);
    let mut objects = Vec::new();
    let mut entries = root.content.iter_mut();
    while let (Some(key), Some(value)) = (entries.next(), entries.next()) {
        if key.value == "items" && value.kind == YamlNodeKind::Sequence {
            let is_in_flow = is_in_flow || value.style.contains(YamlNodeStyle::FLOW);
            let items = value.content.iter_mut();
            objects.extend(items.map(|node| ObjectYamlNode { node, is_in_flow, owner: None }));
        } else {
            objects.push(ObjectYamlNode {
                node: value,
                is_in_flow,
                owner: Some(Arc::clone(&list)),
            });
        }
    }
    objects
}

fn is_string(node: &YamlNode) -> bool {
    node.short_tag() == "!!str" || node.style.contains(YamlNodeStyle::TAGGED)
}

/// The bytes of a file that are replaced for some values of a part.
fn place(
    part: &StreamDocumentPart<'_>,
    edits: &[ScalarEdit],
) -> Result<Vec<TextEdit>, DocumentProblem> {
    let places = scalar_places(part.text);
    let mut placed = Vec::new();
    for edit in edits {
        let line = part.line + usize::try_from(edit.line).unwrap_or_default();
        let lost = || (Some(line), "its value cannot be replaced where it stands".to_owned());
        let at = places.partition_point(|it| (it.line, it.column) < (edit.line, edit.column));
        let bytes = places.get(at).map(|place| place.bytes.clone()).ok_or_else(lost)?;
        let old = part.text.get(bytes.clone()).ok_or_else(lost)?;
        let is_block = edit.style.contains(YamlNodeStyle::LITERAL)
            || edit.style.contains(YamlNodeStyle::FOLDED);
        let new = match is_block {
            true => block(edit, old),
            false => inline(edit).map(|text| vec![TextEdit { bytes: 0..old.len(), text }]),
        };
        let offset = part.start + bytes.start;
        placed.extend(new.ok_or_else(lost)?.into_iter().map(|TextEdit { bytes, text }| TextEdit {
            bytes: bytes.start + offset..bytes.end + offset,
            text,
        }));
    }
    Ok(placed)
}

/// Writes a value on one line as Flux does. It keeps the quotes of the old value, or gets quotes if it needs them.
/// `None` if it does not fit on one line.
fn inline(edit: &ScalarEdit) -> Option<String> {
    let is_single = edit.style.contains(YamlNodeStyle::SINGLE_QUOTED) && !edit.value.contains('\n');
    let is_quoted = edit.style.is_quoted() || edit.value.is_empty() || edit.value.contains('\n');
    let style = match (is_single, is_quoted || is_special(&edit.value)) {
        (true, _) => YamlNodeStyle::SINGLE_QUOTED,
        (false, true) => YamlNodeStyle::DOUBLE_QUOTED,
        (false, false) => YamlNodeStyle::default(),
    };
    let is_tagged = edit.style.contains(YamlNodeStyle::TAGGED);
    let mut node = YamlNode { style, ..YamlNode::string(edit.value.clone()) };
    if is_tagged {
        node.tag = edit.tag.clone();
        node.style |= YamlNodeStyle::TAGGED;
    }
    let layout = YamlLayout { indent: 2, compact_sequences: true };
    let text = if edit.is_in_flow {
        let list = YamlNode { style: YamlNodeStyle::FLOW, ..YamlNode::sequence(vec![node]) };
        let text = v3::emit(&list, &layout).ok()?;
        text.strip_prefix('[')?.strip_suffix("]\n")?.to_owned()
    } else {
        let map = YamlNode::mapping([(YamlNode::string("k"), node)]);
        let text = v3::emit(&map, &layout).ok()?;
        text.strip_prefix("k: ")?.strip_suffix('\n')?.to_owned()
    };
    // The file has the tag already.
    let text = if is_tagged { text.split_once(' ')?.1.to_owned() } else { text };
    (!text.contains('\n')).then_some(text)
}

/// Writes a block scalar with its new value. It stays a block if the new value is one line. Returns the edits of the
/// text, or `None` if the value cannot be written.
fn block(edit: &ScalarEdit, old: &str) -> Option<Vec<TextEdit>> {
    let (header, content) = match old.split_once('\n') {
        Some((header, content)) => (header, content),
        None => (old, ""),
    };
    let is_modifier = |byte: &u8| matches!(byte, b'+' | b'-' | b'1'..=b'9');
    let indicator = 1 + header.bytes().skip(1).take_while(|byte| is_modifier(byte)).count();
    let is_blank = |c: char| matches!(c, ' ' | '\n');
    let trimmed = content.trim_end_matches(is_blank);
    if trimmed.is_empty() {
        return Some(vec![TextEdit { bytes: 0..indicator, text: inline(edit)? }]);
    }
    // All except the line break of the last line and the empty lines after it.
    let rest = content.get(trimmed.len()..)?;
    let end = trimmed.len() + rest.find('\n').unwrap_or(rest.len());
    let first = trimmed.len() - trimmed.trim_start_matches(is_blank).len();
    let indent = content.get(..first)?.rsplit('\n').next()?;
    let is_line = edit.value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !edit.value.is_empty()
        && !edit.value.starts_with(' ')
        && !edit.value.ends_with(' ');
    let from = header.len() + 1;
    Some(match is_line {
        true => vec![
            TextEdit { bytes: 1..indicator, text: "-".to_owned() },
            TextEdit { bytes: from..from + end, text: format!("{indent}{}", edit.value) },
        ],
        false => vec![
            TextEdit { bytes: 0..indicator, text: inline(edit)? },
            TextEdit { bytes: header.len()..from + end, text: String::new() },
        ],
    })
}

/// Whether YAML 1.1 would read a text as another type than a string if it had no quotes.
pub(super) fn is_special(value: &str) -> bool {
    if value.is_empty() || value.contains('\n') {
        return false;
    }
    // Values that JSON cannot express, so that a comparison as JSON is not possible.
    let is_no_json = matches!(
        value,
        ".inf"
            | ".Inf"
            | ".INF"
            | "+.inf"
            | "+.Inf"
            | "+.INF"
            | "-.inf"
            | "-.Inf"
            | "-.INF"
            | ".nan"
            | ".NaN"
            | ".NAN"
    );
    is_no_json || goyaml::to_json(value.as_bytes()).is_ok_and(|value| !value.is_string())
}

/// Applies the edits, and returns the new file. `None` if the file does not read back as expected.
fn written(
    text: &LineFeedText<'_>,
    mut edits: Vec<TextEdit>,
    parts: usize,
    expected: &[ExpectedDocument],
    limits: &YamlLimits,
) -> Option<String> {
    edits.sort_by_key(|edit| edit.bytes.start);
    let original = text.original();
    let mut new = String::with_capacity(original.len());
    let mut from = 0;
    for TextEdit { bytes, text: replacement } in &edits {
        let start = text.original_offset(bytes.start);
        new.push_str(original.get(from..start)?);
        new.push_str(replacement);
        from = text.original_offset(bytes.end);
    }
    new.push_str(original.get(from..)?);
    is_as_expected(&new, parts, expected, limits).then_some(new)
}

/// Whether a file has the expected number of parts, and certain parts have the expected content.
fn is_as_expected(
    new: &str,
    parts: usize,
    expected: &[ExpectedDocument],
    limits: &YamlLimits,
) -> bool {
    let text = LineFeedText::new(new);
    let Ok(read) = text.parts() else { return false };
    let is_right = |it: &ExpectedDocument| {
        let node = read.get(it.part).map(|part| document(part, limits));
        matches!(node, Some(Ok(Some(node))) if is_same(&it.node, &node))
    };
    read.len() == parts && expected.iter().all(is_right)
}

/// Whether two documents have the same content. Comments are not compared, because they are never changed.
fn is_same(expected: &YamlNode, read: &YamlNode) -> bool {
    let mut pairs = vec![(expected, read)];
    while let Some((expected, read)) = pairs.pop() {
        let is_same_alone = expected.kind == read.kind
            && expected.value == read.value
            && expected.short_tag() == read.short_tag()
            && expected.notes.get(AnchorOrCommentKind::Anchor)
                == read.notes.get(AnchorOrCommentKind::Anchor)
            && expected.content.len() == read.content.len();
        if !is_same_alone {
            return false;
        }
        pairs.extend(expected.content.iter().zip(read.content.iter()));
    }
    true
}
