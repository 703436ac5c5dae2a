//! YAML: documents with their comments, of which anchors and styles are lost.
//!
//! Comments become entries of the map or list that they stand in, as sops places them.

use std::collections::BTreeMap;

use goyaml::emit::{Emittable, View};
use goyaml::v3::{self, Documents, Layout, Node, Note, Scalar, YamlNodeKind};
use zeroize::{Zeroize as _, Zeroizing};

use super::{ReadError, WriteError};
use crate::limits::{SopsBudget, SopsLimits};
use crate::value::{Bytes, Comment, Key, MapItem, SopsValue};

pub(super) fn read(
    data: &[u8],
    limits: &SopsLimits,
    budget: &mut SopsBudget,
) -> Result<Vec<Vec<MapItem>>, ReadError> {
    let bounds = goyaml::YamlLimits {
        bytes: limits.bytes,
        depth: limits.depth,
        documents: limits.entries,
        nodes: limits.entries,
    };
    let plain = |error: goyaml::Error| ReadError::Form(error.to_string());
    let mut nodes = Vec::new();
    for document in Documents::new(data, &bounds).map_err(plain)? {
        let document = document.map_err(|error| match nodes.is_empty() {
            true => ReadError::Form(error.to_string()),
            false => ReadError::Form(format!("Error unmarshaling input YAML: {error}")),
        })?;
        if nodes.is_empty() {
            // sops decodes the first document once more, so that keys which occur twice are refused. What aliases repeat
            // in the others is counted when it is copied.
            v3::check(&document, &bounds).map_err(plain)?;
        }
        nodes.push(document);
    }
    let mut anchors = BTreeMap::new();
    let mut documents = Vec::new();
    for node in &nodes {
        for (_, node) in node.walk() {
            let anchor = node.notes.get(Note::Anchor);
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
    anchors: &'b BTreeMap<&'n str, &'n Node>,
    budget: &'b mut SopsBudget,
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
    fn lines<'c>(&mut self, comment: &'c str) -> Result<Vec<&'c str>, ReadError> {
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
    ) -> Result<(), ReadError> {
        let lines = self.lines(comment)?;
        items.extend(lines.into_iter().map(|line| MapItem::comment(line.as_bytes(), inline)));
        Ok(())
    }

    fn note_in_list(
        &mut self,
        values: &mut Vec<SopsValue>,
        comment: &str,
        inline: bool,
    ) -> Result<(), ReadError> {
        let lines = self.lines(comment)?;
        values.extend(lines.into_iter().map(|line| {
            let text = Zeroizing::new(line.as_bytes().to_vec());
            SopsValue::Comment(Comment { text, inline })
        }));
        Ok(())
    }

    /// A scalar, whose text is counted before it is copied.
    fn scalar(&mut self, node: &Node) -> Result<SopsValue, ReadError> {
        self.budget.take_text(node.value.len())?;
        Ok(scalar(node))
    }

    fn target(&self, alias: &Node) -> Result<&'n Node, ReadError> {
        let problem = || ReadError::Form(format!("unknown anchor '{}' referenced", alias.value));
        self.anchors.get(alias.value.as_str()).copied().ok_or_else(problem)
    }

    /// Adds the entries of a node to a map, with its comments unless they were `noted`.
    fn branch(
        &mut self,
        node: &'n Node,
        items: &mut Vec<MapItem>,
        noted: bool,
        depth: usize,
    ) -> Result<(), ReadError> {
        self.budget.take(depth)?;
        if !noted {
            self.note_in_map(items, node.notes.get(Note::Head), false)?;
            self.note_in_map(items, node.notes.get(Note::Line), false)?;
        }
        let refuse = |what: &str| {
            let problem = format!(
                "Error unmarshaling input YAML: YAML documents that are {what} are not supported"
            );
            Err(ReadError::Form(problem))
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
            self.note_in_map(items, node.notes.get(Note::Foot), false)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        key: &'n Node,
        value: &'n Node,
        items: &mut Vec<MapItem>,
        depth: usize,
    ) -> Result<(), ReadError> {
        self.note_in_map(items, key.notes.get(Note::Head), false)?;
        self.note_in_map(items, key.notes.get(Note::Line), false)?;
        let noted = matches!(value.kind, YamlNodeKind::Scalar | YamlNodeKind::Alias);
        if noted {
            self.note_in_map(items, value.notes.get(Note::Head), false)?;
            self.note_in_map(items, value.notes.get(Note::Line), true)?;
        }
        let name = self.key(key)?;
        let plain = self.value(value, noted, depth + 1)?;
        items.push(MapItem { key: name, value: plain });
        if noted {
            self.note_in_map(items, value.notes.get(Note::Foot), false)?;
        }
        self.note_in_map(items, key.notes.get(Note::Foot), false)?;
        Ok(())
    }

    fn key(&mut self, key: &'n Node) -> Result<Key, ReadError> {
        let key = if key.kind == YamlNodeKind::Alias { self.target(key)? } else { key };
        Ok(match key.kind {
            YamlNodeKind::Scalar => match self.scalar(key)? {
                SopsValue::Text(text) => Key::Text(String::from_utf8_lossy(&text).into_owned()),
                other => Key::Other(other.type_name()),
            },
            YamlNodeKind::Sequence => Key::Other("[]interface {}"),
            YamlNodeKind::Mapping | YamlNodeKind::Document | YamlNodeKind::Alias => {
                Key::Other("map[string]interface {}")
            }
        })
    }

    fn value(&mut self, node: &'n Node, noted: bool, depth: usize) -> Result<SopsValue, ReadError> {
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
                    self.note_in_list(&mut values, node.notes.get(Note::Head), false)?;
                    self.note_in_list(&mut values, node.notes.get(Note::Line), false)?;
                }
                for item in &node.content {
                    self.note_in_list(&mut values, item.notes.get(Note::Head), false)?;
                    self.note_in_list(&mut values, item.notes.get(Note::Line), true)?;
                    let value = self.value(item, true, depth + 1)?;
                    values.push(value);
                    self.note_in_list(&mut values, item.notes.get(Note::Foot), false)?;
                }
                if !noted {
                    self.note_in_list(&mut values, node.notes.get(Note::Foot), false)?;
                }
                Ok(SopsValue::List(values))
            }
        }
    }
}

/// A scalar; one that has not the form of its tag is null, as sops ignores the error.
fn scalar(node: &Node) -> SopsValue {
    match v3::scalar(node) {
        Ok(Scalar::Bool(truth)) => SopsValue::Bool(truth),
        Ok(Scalar::Int(int)) => SopsValue::Int(int),
        Ok(Scalar::Uint(uint)) => SopsValue::Uint(uint),
        Ok(Scalar::Float(float)) => SopsValue::Float(float),
        Ok(Scalar::Time(time)) => SopsValue::Time(time),
        Ok(Scalar::Bytes(bytes)) => SopsValue::Text(Zeroizing::new(bytes)),
        Ok(Scalar::Text(text)) => SopsValue::Text(Zeroizing::new(text.into_bytes())),
        Ok(_) | Err(_) => SopsValue::Null,
    }
}

pub(super) fn write(documents: &[Vec<MapItem>]) -> Result<Bytes, WriteError> {
    let mut nodes = Vec::new();
    for document in documents {
        let written = map(document).map(|root| Node {
            kind: YamlNodeKind::Document,
            content: vec![root].into(),
            ..Node::default()
        });
        nodes.push(written?);
    }
    let layout = Layout { indent: 4, compact_sequences: false };
    let text = v3::emit_documents(&nodes, &layout);
    nodes.into_iter().for_each(wipe);
    text.map(|text| Zeroizing::new(text.into_bytes()))
        .map_err(|error| WriteError::Yaml(error.to_string()))
}

/// Overwrites what nodes hold.
fn wipe(node: Node) {
    let mut open = vec![node];
    while let Some(mut node) = open.pop() {
        node.value.zeroize();
        for note in [Note::Head, Note::Line, Note::Foot] {
            node.notes.take(note).zeroize();
        }
        open.append(&mut node.content);
    }
}

/// Comments that wait for the next node.
#[derive(Default)]
struct Waiting {
    above: Vec<String>,
    behind: Vec<String>,
}

impl Waiting {
    fn add(&mut self, comment: &Comment) {
        let text = format!("#{}", String::from_utf8_lossy(&comment.text));
        if comment.inline { &mut self.behind } else { &mut self.above }.push(text);
    }

    /// Puts comments on a node, in front of those it has.
    fn put(comments: &mut Vec<String>, node: &mut Node, note: Note) {
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

fn map(items: &[MapItem]) -> Result<Node, WriteError> {
    let mut node = Node { kind: YamlNodeKind::Mapping, ..Node::default() };
    let mut waiting = Waiting::default();
    for item in items {
        let mut key = match &item.key {
            Key::Comment(comment) => {
                waiting.add(comment);
                continue;
            }
            Key::Text(key) => self::value(&SopsValue::from_text(key))?,
            Key::Other(name) => {
                return Err(WriteError::Yaml(format!("a key is no text but {name}")));
            }
        };
        if node.content.is_empty() {
            Waiting::put(&mut waiting.above, &mut node, Note::Head);
        }
        Waiting::put(&mut waiting.above, &mut key, Note::Head);
        let mut value = self::value(&item.value)?;
        Waiting::put(&mut waiting.behind, &mut value, Note::Line);
        node.content.push(key);
        node.content.push(value);
    }
    let last = node.content.len().checked_sub(2);
    finish(waiting, &mut node, last);
    Ok(node)
}

fn list(values: &[SopsValue]) -> Result<Node, WriteError> {
    let mut node = Node { kind: YamlNodeKind::Sequence, ..Node::default() };
    let mut waiting = Waiting::default();
    for value in values {
        if let SopsValue::Comment(comment) = value {
            waiting.add(comment);
            continue;
        }
        if node.content.is_empty() {
            Waiting::put(&mut waiting.above, &mut node, Note::Head);
        }
        let mut item = self::value(value)?;
        Waiting::put(&mut waiting.above, &mut item, Note::Head);
        Waiting::put(&mut waiting.behind, &mut item, Note::Line);
        node.content.push(item);
    }
    let last = node.content.len().checked_sub(1);
    finish(waiting, &mut node, last);
    Ok(node)
}

/// Comments behind all entries go below the last one, or above if there are no entries.
fn finish(mut waiting: Waiting, node: &mut Node, last: Option<usize>) {
    waiting.above.append(&mut waiting.behind);
    match last.and_then(|last| node.content.get_mut(last)) {
        Some(last) => Waiting::put(&mut waiting.above, last, Note::Foot),
        None => Waiting::put(&mut waiting.above, node, Note::Head),
    }
}

fn value(value: &SopsValue) -> Result<Node, WriteError> {
    match value {
        SopsValue::Map(items) => map(items),
        SopsValue::List(values) => list(values),
        // Parity(sops 3.13): a value that was encrypted as a comment is written as the struct that it is there.
        SopsValue::Comment(comment) => map(&[
            MapItem::text("value", SopsValue::Text(comment.text.clone())),
            MapItem::text("inline", SopsValue::Bool(comment.inline)),
        ]),
        // Parity(sops 3.13): it reads the text again, and then `<<` is a merge key.
        SopsValue::Text(text) if text.as_slice() == b"<<" => Ok(Node::scalar("!!merge", "<<")),
        other => scalar_node(other),
    }
}

fn scalar_node(value: &SopsValue) -> Result<Node, WriteError> {
    v3::encoded_node(&EmittableScalar(value)).map_err(|error| WriteError::Yaml(error.to_string()))
}

/// A scalar as the writer of YAML sees it.
#[derive(Clone, Copy)]
struct EmittableScalar<'v>(&'v SopsValue);

impl<'v> Emittable for EmittableScalar<'v> {
    type Text = &'v str;

    fn view(&self) -> View<Self> {
        match self.0 {
            SopsValue::Bool(truth) => View::Bool(*truth),
            SopsValue::Int(int) => View::Int(*int),
            SopsValue::Uint(uint) => View::Uint(*uint),
            SopsValue::Float(float) => View::Float(*float),
            SopsValue::Time(time) => View::Time(time.as_str()),
            SopsValue::Text(text) | SopsValue::Comment(Comment { text, .. }) => {
                match std::str::from_utf8(text) {
                    Ok(text) => View::Text(text),
                    Err(_) => View::Binary(text.to_vec()),
                }
            }
            SopsValue::Null | SopsValue::Map(_) | SopsValue::List(_) => View::Null,
        }
    }
}
