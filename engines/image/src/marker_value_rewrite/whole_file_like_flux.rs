//! Rewrites files as Flux does. If a value changes, all documents of its file are encoded again like kyaml.
//!
//! Parity(flux): empty lines, `---` at the beginning, carriage returns and documents of comments alone are lost, lists are
//! indented alike, a value that was a number keeps the tag of one, annotations of kyaml are removed, the items of a list become
//! files, and some annotations and names end the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use goyaml::YamlLimits;
use goyaml::v3::{YamlLayout, YamlNode, YamlNodeKind, YamlNodeStyle, emit_each};

use super::RewriteError;
use super::document::{
    DocumentProblem, LineFeedText, document, field, identity, is_list, is_nothing, text_of,
};
use super::setter_markers::{SeenMarkers, assign};
use super::value_replacement::is_special;
use crate::image_setter::{ImageSetterValues, MarkerAssignment};
use crate::update_result::{ImageValueChange, ObjectIdentifier, UpdateResult};

const PATH: &str = "internal.config.kubernetes.io/path";
const LEGACY_PATH: &str = "config.kubernetes.io/path";
const INDEX: &str = "internal.config.kubernetes.io/index";
const LEGACY_INDEX: &str = "config.kubernetes.io/index";
const ID: &str = "internal.config.kubernetes.io/id";
const LEGACY_ID: &str = "config.k8s.io/id";

/// Annotations that kyaml sets and removes.
const OF_KYAML: [&str; 6] = [
    PATH,
    LEGACY_PATH,
    INDEX,
    LEGACY_INDEX,
    "internal.config.kubernetes.io/seqindent",
    "internal.config.kubernetes.io/annotations-migration-resource-id",
];

/// A document of a file, with its values set.
#[derive(Debug)]
pub(super) struct FluxFormattedDocument {
    /// The file of the document; `None` for an item of a list. Documents of the same file share the name.
    file: Option<Arc<str>>,
    /// A document, or the item.
    node: YamlNode,
    object: Arc<ObjectIdentifier>,
    changes: Vec<ImageValueChange>,
    /// Whether a value changed, even if the change is not reported.
    is_changed: bool,
    /// Whether lists are further in than their keys.
    is_wide: bool,
}

impl FluxFormattedDocument {
    fn root(&self) -> &YamlNode {
        root(&self.node)
    }

    /// The path under which changes are listed.
    fn key(&self) -> Arc<str> {
        let of_annotations = || {
            [PATH, LEGACY_PATH]
                .into_iter()
                .map(|name| annotation(self.root(), name))
                .find(|path| !path.is_empty())
                .unwrap_or_default()
        };
        self.file.clone().unwrap_or_else(|| of_annotations().into())
    }
}

fn root(node: &YamlNode) -> &YamlNode {
    match node.kind {
        YamlNodeKind::Document => node.content.first().unwrap_or(node),
        _ => node,
    }
}

/// Reads the documents of a file and sets their values.
///
/// # Errors
/// The file is left out, as a whole.
pub(super) fn read(
    file: &str,
    text: &LineFeedText<'_>,
    setters: &ImageSetterValues,
    markers: &mut SeenMarkers,
    limits: &YamlLimits,
) -> Result<Vec<FluxFormattedDocument>, DocumentProblem> {
    let parts = text.parts()?;
    let file: Arc<str> = file.into();
    let mut documents = Vec::new();
    for part in &parts {
        let Some(node) = document(part, limits)? else { continue };
        check_metadata(root(&node)).map_err(|reason| (Some(part.line + 1), reason))?;
        if parts.len() == 1 && is_list(root(&node)) {
            let items = field(root(&node), "items").filter(|it| it.kind == YamlNodeKind::Sequence);
            for item in items.into_iter().flat_map(|items| &items.content) {
                documents.push(with_values(None, item.clone(), setters, markers, false));
            }
        } else {
            let file = Some(Arc::clone(&file));
            documents.push(with_values(file, node, setters, markers, is_wide(part.text)));
        }
    }
    Ok(documents)
}

/// Whether kyaml can annotate a document.
fn check_metadata(root: &YamlNode) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what} is not a map"));
    if root.kind != YamlNodeKind::Mapping {
        return wrong("the document");
    }
    let metadata = match field(root, "metadata") {
        Some(metadata) if metadata.kind == YamlNodeKind::Mapping => metadata,
        None => return Ok(()),
        Some(metadata) if is_nothing(metadata) && metadata.kind == YamlNodeKind::Scalar => {
            return Ok(());
        }
        Some(_) => return wrong("`metadata`"),
    };
    match field(metadata, "annotations") {
        Some(it) if it.kind == YamlNodeKind::Sequence && !it.content.is_empty() => {
            wrong("`metadata.annotations`")
        }
        Some(_) | None => Ok(()),
    }
}

fn with_values(
    file: Option<Arc<str>>,
    mut node: YamlNode,
    setters: &ImageSetterValues,
    markers: &mut SeenMarkers,
    is_wide: bool,
) -> FluxFormattedDocument {
    let mut changes = Vec::new();
    let mut is_changed = false;
    assign(&mut node, false, setters, markers, |node, assignment, _| {
        let MarkerAssignment { setter, value, is_of_policy } = assignment;
        if node.value != value {
            is_changed = true;
            if setters.contains(&setter) {
                let old_value = node.value.clone();
                changes.push(ImageValueChange { old_value, new_value: value.clone(), setter });
            }
        }
        node.value = value;
        if is_of_policy {
            quote_if_special(node);
        }
    });
    let object = Arc::new(identity(root(&node)));
    FluxFormattedDocument { file, node, object, changes, is_changed, is_wide }
}

/// kyaml's `FormatNonStringStyle` for a text.
fn quote_if_special(node: &mut YamlNode) {
    if !is_special(&node.value) {
        return;
    }
    let is_quoted = node.style.contains(YamlNodeStyle::DOUBLE_QUOTED)
        || node.style.contains(YamlNodeStyle::SINGLE_QUOTED);
    if !is_quoted {
        node.style = YamlNodeStyle::DOUBLE_QUOTED;
    }
    if node.tag == "!!null" {
        node.style = YamlNodeStyle::default();
    } else {
        node.tag = "!!str".into();
    }
}

/// kyaml's `DeriveSeqIndentStyle`. The first list that is indented like its key, or two columns deeper, decides.
fn is_wide(text: &str) -> bool {
    let lines: Vec<&str> = text.split('\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((indent, _)) = line.split_once("- ") else { continue };
        if !indent.trim_matches(' ').is_empty() {
            continue;
        }
        let mut before = lines.iter().take(at).rev();
        let key = before.find(|line| !line.trim_matches(' ').starts_with('#'));
        let key = key.and_then(|line| line.split('#').next()).unwrap_or_default();
        let trimmed = key.trim_matches(' ');
        if trimmed.matches(':').count() != 1 || !trimmed.ends_with(':') {
            continue;
        }
        let key_indent = key.len() - key.trim_start_matches(' ').len();
        if indent.len() == key_indent {
            return false;
        }
        if indent.len() == key_indent + 2 {
            return true;
        }
    }
    false
}

/// Writes the files in which a value changed, and adds the changes to a result.
///
/// # Errors
/// Flux ends the run.
pub(super) fn write(
    documents: Vec<FluxFormattedDocument>,
    folder: &str,
    result: &mut UpdateResult,
) -> Result<BTreeMap<String, String>, RewriteError> {
    for document in &documents {
        check_annotations(document)?;
    }
    let changed = documents.iter().filter(|document| document.is_changed);
    let changed: BTreeSet<Arc<str>> = changed.map(FluxFormattedDocument::key).collect();
    for document in &documents {
        let key = document.key();
        for change in &document.changes {
            result.add(&key, &document.object, change.clone());
        }
    }
    let written: Vec<FluxFormattedDocument> =
        documents.into_iter().filter(|document| changed.contains(&document.key())).collect();
    let paths = written.iter().map(path_of).collect::<Result<Vec<Arc<str>>, _>>()?;
    // The documents of a file follow each other and share its name.
    let mut former: Option<Arc<str>> = None;
    let mut clean: Arc<str> = Arc::default();
    let mut files: BTreeMap<Arc<str>, Vec<FluxFormattedDocument>> = BTreeMap::new();
    for (path, document) in paths.into_iter().zip(written) {
        if former.as_ref().is_none_or(|former| !Arc::ptr_eq(former, &path)) {
            clean = place_of(&path, folder)?.into();
            former = Some(path);
        }
        files.entry(Arc::clone(&clean)).or_default().push(document);
    }
    let files = files.into_iter();
    files.map(|(path, documents)| Ok((path.to_string(), encoded(documents)?))).collect()
}

/// The path below the folder to which a file is written.
fn place_of(path: &str, folder: &str) -> Result<String, RewriteError> {
    if path.starts_with('/') {
        return Err(ended("package paths may not be absolute paths"));
    }
    let clean = golang::path::clean(path);
    if clean.contains("..") {
        let reason = format!("resource must be written under package {folder}: {clean}");
        return Err(RewriteError::AsFlux(reason));
    }
    Ok(clean)
}

fn ended(reason: &str) -> RewriteError {
    RewriteError::AsFlux(reason.to_owned())
}

/// The value of an annotation; empty if there is none.
fn annotation(root: &YamlNode, name: &str) -> String {
    let annotations = field(root, "metadata").and_then(|it| field(it, "annotations"));
    annotations.map(|it| text_of(it, name)).unwrap_or_default()
}

/// Annotations of kyaml come in two forms, which have to agree.
fn check_annotations(document: &FluxFormattedDocument) -> Result<(), RewriteError> {
    let root = document.root();
    if document.file.is_none() && root.tag != "!!null" {
        check_metadata(root).map_err(RewriteError::AsFlux)?;
    }
    for (what, name, legacy) in
        [("path", PATH, LEGACY_PATH), ("index", INDEX, LEGACY_INDEX), ("id", ID, LEGACY_ID)]
    {
        let own = annotation(root, name);
        let legacy = annotation(root, legacy);
        let is_mismatch = match (&document.file, what) {
            // One form of the annotation is set to the file's name after it was copied to the other form.
            (Some(file), "path") => {
                let other = if legacy.is_empty() { own } else { legacy };
                !other.is_empty() && other != **file
            }
            (Some(_), "index") => false,
            _ => !own.is_empty() && !legacy.is_empty() && own != legacy,
        };
        if is_mismatch {
            let reason = "resource input to function has mismatched legacy and internal";
            return Err(RewriteError::AsFlux(format!("{reason} {what} annotations")));
        }
    }
    Ok(())
}

/// The file that a document is written to.
fn path_of(document: &FluxFormattedDocument) -> Result<Arc<str>, RewriteError> {
    let key = document.key();
    if !key.is_empty() {
        return Ok(key);
    }
    let root = document.root();
    let ObjectIdentifier { kind, name, namespace, .. } = &*document.object;
    let metadata = field(root, "metadata");
    let has_map =
        |name: &str| metadata.and_then(|it| field(it, name)).is_some_and(|it| !is_nothing(it));
    let is_known = *document.object != ObjectIdentifier::default()
        || has_map("labels")
        || has_map("annotations");
    if !is_known {
        return Err(ended("missing Resource metadata"));
    }
    let folder = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    Ok(format!("{folder}{}_{name}.yaml", golang::unicode::lower(kind)).into())
}

/// The text of some documents.
fn encoded(mut documents: Vec<FluxFormattedDocument>) -> Result<String, RewriteError> {
    for document in &mut documents {
        let node = match document.node.kind {
            YamlNodeKind::Document => document.node.content.first_mut(),
            _ => Some(&mut document.node),
        };
        if let Some(root) = node {
            clean(root);
        }
    }
    let wide = YamlLayout { indent: 2, compact_sequences: false };
    let compact = YamlLayout { indent: 2, compact_sequences: true };
    let layout = |it: &FluxFormattedDocument| if it.is_wide { &wide } else { &compact };
    emit_each(documents.iter().map(|document| (&document.node, layout(document))))
        .map_err(|error| RewriteError::AsFlux(error.to_string()))
}

/// Removes the annotations that kyaml sets, and metadata that is empty afterwards.
fn clean(root: &mut YamlNode) {
    clear_empty(root);
    if let Some(annotations) =
        field_mut(root, "metadata").and_then(|it| field_mut(it, "annotations"))
    {
        copy(annotations, LEGACY_ID, ID);
        copy(annotations, ID, LEGACY_ID);
        for name in OF_KYAML {
            remove(annotations, name);
        }
    }
    clear_empty(root);
}

fn field_mut<'n>(node: &'n mut YamlNode, name: &str) -> Option<&'n mut YamlNode> {
    let at = node.entries().position(|(key, _)| key.value == name)?;
    node.content.get_mut(2 * at + 1)
}

fn remove(map: &mut YamlNode, name: &str) {
    let place = map.entries().position(|(key, _)| key.value == name);
    if let Some(at) = place {
        drop(map.content.drain(2 * at..2 * at + 2));
    }
}

/// Copies the value of an annotation to another one, if the first exists and the other does not.
fn copy(annotations: &mut YamlNode, from: &str, to: &str) {
    let value = text_of(annotations, from);
    if value.is_empty() || !text_of(annotations, to).is_empty() {
        return;
    }
    let mut node = YamlNode { style: YamlNodeStyle::SINGLE_QUOTED, ..YamlNode::string(value) };
    match field_mut(annotations, to) {
        Some(known) => {
            node.style = known.style;
            *known = node;
        }
        None => {
            let key = YamlNode { value: to.to_owned(), ..YamlNode::default() };
            annotations.content.extend([key, node]);
        }
    }
}

/// Removes empty annotations and empty metadata from an object, like kyaml's `ClearEmptyAnnotations`.
fn clear_empty(root: &mut YamlNode) {
    let is_empty = |node: &YamlNode, name: &str| {
        field(node, name).is_some_and(|value| value.content.is_empty())
    };
    if let Some(metadata) = field_mut(root, "metadata")
        && is_empty(metadata, "annotations")
    {
        remove(metadata, "annotations");
    }
    if is_empty(root, "metadata") {
        remove(root, "metadata");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_documents_of_a_file_share_its_name() {
        let text = LineFeedText::new("a: b\n---\nc: d\n");
        let mut markers = SeenMarkers::default();
        let limits = YamlLimits::default();
        let documents =
            read("a.yaml", &text, &ImageSetterValues::default(), &mut markers, &limits).unwrap();
        let keys: Vec<Arc<str>> = documents.iter().map(FluxFormattedDocument::key).collect();
        let paths: Vec<Arc<str>> =
            documents.iter().map(|document| path_of(document).unwrap()).collect();
        assert_eq!((keys.len(), &*keys[0]), (2, "a.yaml"));
        assert!(keys.iter().chain(&paths).all(|name| Arc::ptr_eq(name, &keys[0])));
    }
}
