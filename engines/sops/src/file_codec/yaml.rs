//! YAML: documents with their comments. Anchors and styles are lost.
//!
//! A comment becomes an entry of the map or list that contains it, in the position where sops places it.

use std::collections::BTreeMap;

use goyaml::emit::{EmittableValue, EmittableView};
use goyaml::v3::{
    self, AnchorOrCommentKind, DecodedScalar, YamlLayout, YamlNode, YamlNodeDocumentReader,
    YamlNodeKind,
};
use zeroize::{Zeroize as _, Zeroizing};

use super::{SopsReadError, SopsWriteError};
use crate::limits::{SopsLimits, SopsParseBudget};
use crate::value::{MapItem, MapItemKey, SecretBytes, SopsComment, SopsValue};

pub(super) fn read(
    data: &[u8],
    limits: &SopsLimits,
    budget: &mut SopsParseBudget,
) -> Result<Vec<Vec<MapItem>>, SopsReadError> {
    let bounds = goyaml::YamlLimits {
        bytes: limits.bytes,
        depth: limits.depth,
        documents: limits.entries,
        nodes: limits.entries,
    };
    let plain = |error: goyaml::Error| SopsReadError::Form(error.to_string());
    let mut nodes = Vec::new();
    for document in YamlNodeDocumentReader::new(data, &bounds).map_err(plain)? {
        let document = document.map_err(|error| match nodes.is_empty() {
            true => SopsReadError::Form(error.to_string()),
            false => SopsReadError::Form(format!("Error unmarshaling input YAML: {error}")),
        })?;
        if nodes.is_empty() {
            // sops decodes the first document a second time, which rejects keys that occur twice. In other documents, nodes
            // repeated by aliases are counted when they are copied.
            v3::check(&document, &bounds).map_err(plain)?;
        }
        nodes.push(document);
    }
    let mut anchors = BTreeMap::new();
    let mut documents = Vec::new();
    for node in &nodes {
        for (_, node) in node.walk() {
            let anchor = node.notes.get(AnchorOrCommentKind::Anchor);
            if !anchor.is_empty() {
                anchors.insert(anchor, node);
            }
        }
        let mut reader = SopsYamlReader { anchors: &anchors, budget };
        let mut items = Vec::new();
        reader.branch(node, &mut items, false, 1)?;
        documents.push(items);
    }
    Ok(documents)
}

struct SopsYamlReader<'n, 'b> {
    anchors: &'b BTreeMap<&'n str, &'n YamlNode>,
    budget: &'b mut SopsParseBudget,
}

/// The lines of a comment, without the `#`.
fn lines(comment: &str) -> impl Iterator<Item = &str> {
    comment
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| line.get(1..).unwrap_or_default())
}

impl<'n> SopsYamlReader<'n, '_> {
    /// The lines of a comment, each counted like a value.
    fn lines<'c>(&mut self, comment: &'c str) -> Result<Vec<&'c str>, SopsReadError> {
        for line in lines(comment) {
            self.budget.take(0)?;
            self.budget.take_text(line.len())?;
        }
        Ok(lines(comment).collect())
    }

    fn note_in_map(
        &mut self,
        items: &mut Vec<MapItem>,
        comment: &str,
        inline: bool,
    ) -> Result<(), SopsReadError> {
        let lines = self.lines(comment)?;
        items.extend(lines.into_iter().map(|line| MapItem::comment(line.as_bytes(), inline)));
        Ok(())
    }

    fn note_in_list(
        &mut self,
        values: &mut Vec<SopsValue>,
        comment: &str,
        inline: bool,
    ) -> Result<(), SopsReadError> {
        let lines = self.lines(comment)?;
        values.extend(lines.into_iter().map(|line| {
            let text = Zeroizing::new(line.as_bytes().to_vec());
            SopsValue::Comment(SopsComment { text, inline })
        }));
        Ok(())
    }

    /// Reads a scalar. Its text is counted before it is copied.
    fn scalar(&mut self, node: &YamlNode) -> Result<SopsValue, SopsReadError> {
        self.budget.take_text(node.value.len())?;
        Ok(scalar(node))
    }

    fn target(&self, alias: &YamlNode) -> Result<&'n YamlNode, SopsReadError> {
        let problem =
            || SopsReadError::Form(format!("unknown anchor '{}' referenced", alias.value));
        self.anchors.get(alias.value.as_str()).copied().ok_or_else(problem)
    }

    /// Adds the entries of a node to a map. Its comments are added, too, unless they were already `noted`.
    fn branch(
        &mut self,
        node: &'n YamlNode,
        items: &mut Vec<MapItem>,
        noted: bool,
        depth: usize,
    ) -> Result<(), SopsReadError> {
        self.budget.take(depth)?;
        if !noted {
            self.note_in_map(items, node.notes.get(AnchorOrCommentKind::Head), false)?;
            self.note_in_map(items, node.notes.get(AnchorOrCommentKind::Line), false)?;
        }
        let refuse = |what: &str| {
            let problem = format!(
                "Error unmarshaling input YAML: YAML documents that are {what} are not supported"
            );
            Err(SopsReadError::Form(problem))
        };
        match node.kind {
            YamlNodeKind::Document => {
                for child in &node.content {
                    self.branch(child, items, false, depth)?;
                }
            }
            YamlNodeKind::Sequence => return refuse("sequences"),
            YamlNodeKind::Scalar if node.is_null() => return Ok(()),
            YamlNodeKind::Scalar => return refuse("values"),
            YamlNodeKind::Alias => self.branch(self.target(node)?, items, false, depth + 1)?,
            YamlNodeKind::Mapping => {
                for (key, value) in node.entries() {
                    self.entry(key, value, items, depth)?;
                }
            }
        }
        if !noted {
            self.note_in_map(items, node.notes.get(AnchorOrCommentKind::Foot), false)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        key: &'n YamlNode,
        value: &'n YamlNode,
        items: &mut Vec<MapItem>,
        depth: usize,
    ) -> Result<(), SopsReadError> {
        self.note_in_map(items, key.notes.get(AnchorOrCommentKind::Head), false)?;
        self.note_in_map(items, key.notes.get(AnchorOrCommentKind::Line), false)?;
        let noted = matches!(value.kind, YamlNodeKind::Scalar | YamlNodeKind::Alias);
        if noted {
            self.note_in_map(items, value.notes.get(AnchorOrCommentKind::Head), false)?;
            self.note_in_map(items, value.notes.get(AnchorOrCommentKind::Line), true)?;
        }
        let name = self.key(key)?;
        let plain = self.value(value, noted, depth + 1)?;
        items.push(MapItem { key: name, value: plain });
        if noted {
            self.note_in_map(items, value.notes.get(AnchorOrCommentKind::Foot), false)?;
        }
        self.note_in_map(items, key.notes.get(AnchorOrCommentKind::Foot), false)?;
        Ok(())
    }

    fn key(&mut self, key: &'n YamlNode) -> Result<MapItemKey, SopsReadError> {
        let key = if key.kind == YamlNodeKind::Alias { self.target(key)? } else { key };
        Ok(match key.kind {
            YamlNodeKind::Scalar => match self.scalar(key)? {
                SopsValue::Text(text) => {
                    MapItemKey::Text(String::from_utf8_lossy(&text).into_owned())
                }
                other => MapItemKey::Other(other.type_name()),
            },
            YamlNodeKind::Sequence => MapItemKey::Other("[]interface {}"),
            YamlNodeKind::Mapping | YamlNodeKind::Document | YamlNodeKind::Alias => {
                MapItemKey::Other("map[string]interface {}")
            }
        })
    }

    fn value(
        &mut self,
        node: &'n YamlNode,
        noted: bool,
        depth: usize,
    ) -> Result<SopsValue, SopsReadError> {
        self.budget.take(depth)?;
        match node.kind {
            YamlNodeKind::Document => Ok(SopsValue::Null),
            YamlNodeKind::Scalar => self.scalar(node),
            YamlNodeKind::Alias => self.value(self.target(node)?, false, depth + 1),
            YamlNodeKind::Mapping => {
                let mut items = Vec::new();
                self.branch(node, &mut items, noted, depth)?;
                Ok(SopsValue::Map(items))
            }
            YamlNodeKind::Sequence => {
                let mut values = Vec::new();
                if !noted {
                    self.note_in_list(
                        &mut values,
                        node.notes.get(AnchorOrCommentKind::Head),
                        false,
                    )?;
                    self.note_in_list(
                        &mut values,
                        node.notes.get(AnchorOrCommentKind::Line),
                        false,
                    )?;
                }
                for item in &node.content {
                    self.note_in_list(
                        &mut values,
                        item.notes.get(AnchorOrCommentKind::Head),
                        false,
                    )?;
                    self.note_in_list(
                        &mut values,
                        item.notes.get(AnchorOrCommentKind::Line),
                        true,
                    )?;
                    let value = self.value(item, true, depth + 1)?;
                    values.push(value);
                    self.note_in_list(
                        &mut values,
                        item.notes.get(AnchorOrCommentKind::Foot),
                        false,
                    )?;
                }
                if !noted {
                    self.note_in_list(
                        &mut values,
                        node.notes.get(AnchorOrCommentKind::Foot),
                        false,
                    )?;
                }
                Ok(SopsValue::List(values))
            }
        }
    }
}

/// Reads a scalar. If its text does not fit its tag, it becomes null, because sops ignores the error.
fn scalar(node: &YamlNode) -> SopsValue {
    match v3::scalar(node) {
        Ok(DecodedScalar::Bool(truth)) => SopsValue::Bool(truth),
        Ok(DecodedScalar::Int(int)) => SopsValue::Int(int),
        Ok(DecodedScalar::Uint(uint)) => SopsValue::Uint(uint),
        Ok(DecodedScalar::Float(float)) => SopsValue::Float(float),
        Ok(DecodedScalar::Time(time)) => SopsValue::Time(time),
        Ok(DecodedScalar::Bytes(bytes)) => SopsValue::Text(Zeroizing::new(bytes)),
        Ok(DecodedScalar::Text(text)) => SopsValue::Text(Zeroizing::new(text.into_bytes())),
        Ok(_) | Err(_) => SopsValue::Null,
    }
}

pub(super) fn write(documents: &[Vec<MapItem>]) -> Result<SecretBytes, SopsWriteError> {
    let mut nodes = Vec::new();
    for document in documents {
        let written = map(document).map(|root| YamlNode {
            kind: YamlNodeKind::Document,
            content: vec![root].into(),
            ..YamlNode::default()
        });
        nodes.push(written?);
    }
    let layout = YamlLayout { indent: 4, compact_sequences: false };
    let text = v3::emit_documents(&nodes, &layout);
    nodes.into_iter().for_each(wipe);
    text.map(|text| Zeroizing::new(text.into_bytes()))
        .map_err(|error| SopsWriteError::Yaml(error.to_string()))
}

/// Overwrites the content of nodes in memory.
fn wipe(node: YamlNode) {
    let mut open = vec![node];
    while let Some(mut node) = open.pop() {
        node.value.zeroize();
        for note in
            [AnchorOrCommentKind::Head, AnchorOrCommentKind::Line, AnchorOrCommentKind::Foot]
        {
            node.notes.take(note).zeroize();
        }
        open.append(&mut node.content);
    }
}

/// Comments that wait for the next node.
#[derive(Default)]
struct PendingComments {
    above: Vec<String>,
    behind: Vec<String>,
}

impl PendingComments {
    fn add(&mut self, comment: &SopsComment) {
        let text = format!("#{}", String::from_utf8_lossy(&comment.text));
        if comment.inline { &mut self.behind } else { &mut self.above }.push(text);
    }

    /// Adds comments to a node, before its present comments.
    fn put(comments: &mut Vec<String>, node: &mut YamlNode, note: AnchorOrCommentKind) {
        if comments.is_empty() {
            return;
        }
        let mut text = comments.join("\n");
        comments.clear();
        let own = node.notes.take(note);
        if !own.is_empty() {
            text = format!("{text}\n{own}");
        }
        node.notes.set(note, text);
    }
}

fn map(items: &[MapItem]) -> Result<YamlNode, SopsWriteError> {
    let mut node = YamlNode { kind: YamlNodeKind::Mapping, ..YamlNode::default() };
    let mut waiting = PendingComments::default();
    for item in items {
        let mut key = match &item.key {
            MapItemKey::Comment(comment) => {
                waiting.add(comment);
                continue;
            }
            MapItemKey::Text(key) => self::value(&SopsValue::from_text(key))?,
            MapItemKey::Other(name) => {
                return Err(SopsWriteError::Yaml(format!("a key is no text but {name}")));
            }
        };
        if node.content.is_empty() {
            PendingComments::put(&mut waiting.above, &mut node, AnchorOrCommentKind::Head);
        }
        PendingComments::put(&mut waiting.above, &mut key, AnchorOrCommentKind::Head);
        let mut value = self::value(&item.value)?;
        PendingComments::put(&mut waiting.behind, &mut value, AnchorOrCommentKind::Line);
        node.content.push(key);
        node.content.push(value);
    }
    let last = node.content.len().checked_sub(2);
    finish(waiting, &mut node, last);
    Ok(node)
}

fn list(values: &[SopsValue]) -> Result<YamlNode, SopsWriteError> {
    let mut node = YamlNode { kind: YamlNodeKind::Sequence, ..YamlNode::default() };
    let mut waiting = PendingComments::default();
    for value in values {
        if let SopsValue::Comment(comment) = value {
            waiting.add(comment);
            continue;
        }
        if node.content.is_empty() {
            PendingComments::put(&mut waiting.above, &mut node, AnchorOrCommentKind::Head);
        }
        let mut item = self::value(value)?;
        PendingComments::put(&mut waiting.above, &mut item, AnchorOrCommentKind::Head);
        PendingComments::put(&mut waiting.behind, &mut item, AnchorOrCommentKind::Line);
        node.content.push(item);
    }
    let last = node.content.len().checked_sub(1);
    finish(waiting, &mut node, last);
    Ok(node)
}

/// Adds the comments after all entries: below the last entry, or above the node if there are no entries.
fn finish(mut waiting: PendingComments, node: &mut YamlNode, last: Option<usize>) {
    waiting.above.append(&mut waiting.behind);
    match last.and_then(|last| node.content.get_mut(last)) {
        Some(last) => PendingComments::put(&mut waiting.above, last, AnchorOrCommentKind::Foot),
        None => PendingComments::put(&mut waiting.above, node, AnchorOrCommentKind::Head),
    }
}

fn value(value: &SopsValue) -> Result<YamlNode, SopsWriteError> {
    match value {
        SopsValue::Map(items) => map(items),
        SopsValue::List(values) => list(values),
        // Parity(sops 3.13): a value that was encrypted as a comment is written as the struct that it is there.
        SopsValue::Comment(comment) => map(&[
            MapItem::text("value", SopsValue::Text(comment.text.clone())),
            MapItem::text("inline", SopsValue::Bool(comment.inline)),
        ]),
        // Parity(sops 3.13): it reads the text again, and then `<<` is a merge key.
        SopsValue::Text(text) if text.as_slice() == b"<<" => Ok(YamlNode::scalar("!!merge", "<<")),
        other => scalar_node(other),
    }
}

fn scalar_node(value: &SopsValue) -> Result<YamlNode, SopsWriteError> {
    v3::encoded_node(&EmittableScalar(value))
        .map_err(|error| SopsWriteError::Yaml(error.to_string()))
}

/// A scalar in the form that the YAML writer needs.
#[derive(Clone, Copy)]
struct EmittableScalar<'v>(&'v SopsValue);

impl<'v> EmittableValue for EmittableScalar<'v> {
    type Text = &'v str;

    fn view(&self) -> EmittableView<Self> {
        match self.0 {
            SopsValue::Bool(truth) => EmittableView::Bool(*truth),
            SopsValue::Int(int) => EmittableView::Int(*int),
            SopsValue::Uint(uint) => EmittableView::Uint(*uint),
            SopsValue::Float(float) => EmittableView::Float(*float),
            SopsValue::Time(time) => EmittableView::Time(time.as_str()),
            SopsValue::Text(text) | SopsValue::Comment(SopsComment { text, .. }) => {
                match std::str::from_utf8(text) {
                    Ok(text) => EmittableView::Text(text),
                    Err(_) => EmittableView::Binary(text.to_vec()),
                }
            }
            SopsValue::Null | SopsValue::Map(_) | SopsValue::List(_) => EmittableView::Null,
        }
    }
}
