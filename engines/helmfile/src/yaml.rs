//! Reads and writes YAML like helmfile: as go-yaml v3, with aliases and merge keys resolved.
//!
//! Differs(helmfile 1.8): `HELMFILE_GO_YAML_V3=false` has no effect.
//!
//! Here: documents, plain values, text. Elsewhere: values of known shape (`go_struct_field.rs`).

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goyaml::YamlLimits;
use goyaml::v3::{self, AnchorOrCommentKind, YamlLayout, YamlNode, YamlNodeKind};
use goyaml::{EmittableValue, EmittableView};
use serde_json::{Map, Number, Value};

use crate::error::{Error, Result};

/// The deepest nesting of a value.
const MAX_VALUE_DEPTH: usize = 200;

/// The most nodes in a stream. Nodes that aliases repeat count each time.
const MAX_STREAM_NODES: usize = 2_000_000;

/// The most bytes of text that anchors and aliases may repeat.
const MAX_REPEATED_BYTES: usize = 64 << 20;

/// The documents of a stream, each its root, without aliases and merge keys.
pub(crate) fn documents(text: &[u8]) -> Result<Vec<YamlNode>> {
    let read = v3::parse(text, &YamlLimits::default()).map_err(|error| error.to_string())?;
    let mut budget = StreamBudget { nodes: MAX_STREAM_NODES, repeated: MAX_REPEATED_BYTES };
    let mut roots = Vec::new();
    for document in read {
        let Some(root) = document.content.first() else { continue };
        let mut flat = AliasFreeCopier { anchors: BTreeMap::new(), budget: &mut budget };
        roots.push(flat.node(root, 0)?);
    }
    Ok(roots)
}

/// The first document of a text as a plain value; null if there is no document.
pub(crate) fn read(text: &[u8]) -> Result<Value> {
    documents(text)?.first().map_or(Ok(Value::Null), value)
}

/// The first document of a text, which must be a map. Without a document the map is empty.
pub(crate) fn read_map(text: &[u8]) -> Result<Map<String, Value>> {
    match read(text)? {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => {
            Err(format!("yaml: cannot unmarshal {} into map[string]interface {{}}", kind(&other))
                .into())
        }
    }
}

/// The type of a plain value, in words of YAML.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "!!null",
        Value::Bool(_) => "!!bool",
        Value::Number(number) if number.is_f64() => "!!float",
        Value::Number(_) => "!!int",
        Value::String(_) => "!!str",
        Value::Array(_) => "!!seq",
        Value::Object(_) => "!!map",
    }
}

/// The number of nodes and bytes that a stream may still use.
struct StreamBudget {
    nodes: usize,
    repeated: usize,
}

impl StreamBudget {
    fn take(&mut self, nodes: usize) -> Result<()> {
        self.nodes = self.nodes.checked_sub(nodes).ok_or_else(|| {
            Error::from(format!("the text has more than {MAX_STREAM_NODES} values"))
        })?;
        Ok(())
    }

    /// Counts a node that is copied again, with all its content.
    fn repeat(&mut self, node: &YamlNode) -> Result<()> {
        let mut nodes = 0;
        let mut bytes = 0;
        node.walk().for_each(|(_, node)| {
            nodes += 1;
            bytes += node.value.len();
        });
        self.take(nodes)?;
        self.repeated = self.repeated.checked_sub(bytes).ok_or_else(|| {
            Error::from(format!("anchors and aliases repeat more than {MAX_REPEATED_BYTES} bytes"))
        })?;
        Ok(())
    }
}

/// Copies nodes, and replaces aliases and merge keys by the nodes that they refer to.
struct AliasFreeCopier<'b> {
    anchors: BTreeMap<String, YamlNode>,
    budget: &'b mut StreamBudget,
}

impl AliasFreeCopier<'_> {
    fn node(&mut self, node: &YamlNode, depth: usize) -> Result<YamlNode> {
        if depth > MAX_VALUE_DEPTH {
            return Err(
                format!("line {}: nested more than {MAX_VALUE_DEPTH} deep", node.line).into()
            );
        }
        self.budget.take(1)?;
        let mut copy = YamlNode {
            kind: node.kind,
            style: node.style,
            tag: node.tag.clone(),
            value: node.value.clone(),
            line: node.line,
            column: node.column,
            ..YamlNode::default()
        };
        match node.kind {
            YamlNodeKind::Alias => {
                let Some(target) = self.anchors.get(&node.value) else {
                    return Err(format!(
                        "line {}: unknown anchor '{}' referenced",
                        node.line, node.value
                    )
                    .into());
                };
                self.budget.repeat(target)?;
                return Ok(target.clone());
            }
            YamlNodeKind::Mapping => copy.content = self.mapping(node, depth)?.into(),
            YamlNodeKind::Scalar => {}
            YamlNodeKind::Document | YamlNodeKind::Sequence => {
                let items: Result<Vec<YamlNode>> =
                    node.content.iter().map(|item| self.node(item, depth + 1)).collect();
                copy.content = items?.into();
            }
        }
        let anchor = node.notes.get(AnchorOrCommentKind::Anchor);
        if !anchor.is_empty() {
            self.budget.repeat(&copy)?;
            self.anchors.insert(anchor.to_owned(), copy.clone());
        }
        Ok(copy)
    }

    fn mapping(&mut self, node: &YamlNode, depth: usize) -> Result<Vec<YamlNode>> {
        let mut entries: Vec<(YamlNode, YamlNode)> = Vec::new();
        let mut lines: BTreeMap<(String, String), u32> = BTreeMap::new();
        let mut merged: Vec<YamlNode> = Vec::new();
        for (key, item) in node.entries() {
            let item = self.node(item, depth + 1)?;
            if key.kind == YamlNodeKind::Scalar && key.tag == "!!merge" {
                merged.push(item);
                continue;
            }
            let key = self.node(key, depth + 1)?;
            if key.kind == YamlNodeKind::Scalar {
                let named = (key.value.clone(), key.tag.to_string());
                if let Some(line) = lines.insert(named, key.line) {
                    return Err(format!(
                        "yaml: line {}: mapping key {:?} already defined at line {line}",
                        key.line, key.value
                    )
                    .into());
                }
            }
            entries.push((key, item));
        }
        if merged.is_empty() {
            return Ok(entries.into_iter().flat_map(<[YamlNode; 2]>::from).collect());
        }
        let mut known: BTreeSet<String> =
            entries.iter().map(|(key, _)| key.value.clone()).collect();
        for source in merged {
            let sources: Vec<YamlNode> = match source.kind {
                YamlNodeKind::Sequence => source.content.iter().cloned().collect(),
                _ => vec![source],
            };
            for source in sources {
                if source.kind != YamlNodeKind::Mapping {
                    return Err(
                        "yaml: map merge requires map or sequence of maps as the value".into()
                    );
                }
                for (key, item) in source.entries() {
                    if known.insert(key.value.clone()) {
                        entries.push((key.clone(), item.clone()));
                    }
                }
            }
        }
        Ok(entries.into_iter().flat_map(<[YamlNode; 2]>::from).collect())
    }
}

/// Whether a node is null.
pub(crate) fn is_null(node: &YamlNode) -> bool {
    node.kind == YamlNodeKind::Scalar && node.tag == "!!null"
}

/// A node as a plain value.
///
/// # Errors
/// Keys that are not text, and numbers that JSON cannot express.
pub(crate) fn value(node: &YamlNode) -> Result<Value> {
    match node.kind {
        YamlNodeKind::Document => node.content.first().map_or(Ok(Value::Null), value),
        YamlNodeKind::Sequence => {
            node.content.iter().map(value).collect::<Result<_>>().map(Value::Array)
        }
        YamlNodeKind::Mapping => {
            let mut map = Map::new();
            for (key, item) in node.entries() {
                if key.kind != YamlNodeKind::Scalar
                    || !matches!(&*key.tag, "!!str" | "!!timestamp") && !key.style.is_quoted()
                {
                    return Err(format!(
                        "line {}: unexpected type of key in map: expected string, got {} {:?}",
                        key.line, key.tag, key.value
                    )
                    .into());
                }
                map.insert(key.value.clone(), value(item)?);
            }
            Ok(Value::Object(map))
        }
        YamlNodeKind::Scalar => scalar(node),
        YamlNodeKind::Alias => Err("an alias was left over".into()),
    }
}

fn scalar(node: &YamlNode) -> Result<Value> {
    let text = node.value.as_str();
    Ok(match &*node.tag {
        "!!null" => Value::Null,
        "!!bool" => Value::Bool(boolean(text).ok_or_else(|| wrong(node, "bool"))?),
        "!!int" => match text.parse::<i64>() {
            Ok(int) if !text.starts_with(['+', '0']) || text == "0" => int.into(),
            _ => v3::to_json(node, &YamlLimits::default()).map_err(|error| error.to_string())?,
        },
        "!!float" => {
            let float = match text.parse::<f64>() {
                Ok(float) => Number::from_f64(float),
                // Numbers in forms that only YAML has, such as `1_000.5`.
                Err(_) => v3::to_json(node, &YamlLimits::default())
                    .ok()
                    .and_then(|json| json.as_f64())
                    .and_then(Number::from_f64),
            };
            // Differs(helmfile 1.8): plain values are those of JSON, which has neither `.inf` nor `.nan`.
            Value::Number(float.ok_or_else(|| wrong(node, "number that JSON has"))?)
        }
        "!!binary" => {
            let packed: String = text.split_whitespace().collect();
            let bytes = STANDARD.decode(packed).map_err(|_| wrong(node, "base64"))?;
            Value::String(String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => Value::String(text.to_owned()),
    })
}

fn wrong(node: &YamlNode, wanted: &str) -> Error {
    format!("line {}: {:?} is no {wanted}", node.line, node.value).into()
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// A value to write: a struct, a map, a list or a plain value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum YamlOutputValue {
    /// A plain value, with its keys in Go's order.
    Plain(Value),
    /// A list.
    List(Vec<Self>),
    /// The fields of a struct, in the order of their declaration.
    Fields(Vec<(&'static str, Self)>),
    /// A map.
    Map(Vec<(String, Self)>),
}

#[derive(Clone, Copy)]
enum EmittableOutput<'v> {
    Out(&'v YamlOutputValue),
    Plain(&'v Value),
}

impl<'v> EmittableValue for EmittableOutput<'v> {
    type Text = &'v str;

    fn view(&self) -> EmittableView<Self> {
        match self {
            Self::Out(YamlOutputValue::Plain(value)) => plain(value),
            Self::Plain(value) => plain(value),
            Self::Out(YamlOutputValue::List(items)) => {
                EmittableView::List(items.iter().map(Self::Out).collect())
            }
            Self::Out(YamlOutputValue::Fields(fields)) => EmittableView::Fields(
                fields.iter().map(|(key, value)| (*key, Self::Out(value))).collect(),
            ),
            Self::Out(YamlOutputValue::Map(entries)) => EmittableView::Map(
                entries.iter().map(|(key, value)| (key.as_str(), Self::Out(value))).collect(),
            ),
        }
    }
}

fn plain(value: &Value) -> EmittableView<EmittableOutput<'_>> {
    match value {
        Value::Null => EmittableView::Null,
        Value::Bool(truth) => EmittableView::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => EmittableView::Int(int),
            (None, Some(uint)) => EmittableView::Uint(uint),
            (None, None) => EmittableView::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => EmittableView::Text(text.as_str()),
        Value::Array(items) => {
            EmittableView::List(items.iter().map(EmittableOutput::Plain).collect())
        }
        Value::Object(map) => EmittableView::Map(
            map.iter().map(|(key, value)| (key.as_str(), EmittableOutput::Plain(value))).collect(),
        ),
    }
}

const LAYOUT: YamlLayout = YamlLayout { indent: 2, compact_sequences: false };

/// The text that helmfile writes for a value.
pub(crate) fn write(out: &YamlOutputValue) -> Result<String> {
    v3::encode(&EmittableOutput::Out(out), &LAYOUT).map_err(|error| error.to_string().into())
}

/// The text that helmfile writes for a plain value.
pub(crate) fn write_plain(value: &Value) -> Result<String> {
    v3::encode(&EmittableOutput::Plain(value), &LAYOUT).map_err(|error| error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_aliases_and_anchors_repeat_is_bounded_in_bytes() {
        let text = |count: usize| {
            format!("a: &a {:?}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; count].join(", "))
        };
        assert_eq!(read(text(10).as_bytes()).unwrap()["b"].as_array().unwrap().len(), 10);
        let why = read(text(20_000).as_bytes()).unwrap_err().to_string();
        assert!(why.contains("repeat more than"), "{why}");
        let mut nested = "y".repeat(1 << 20);
        for level in 0..100 {
            nested = format!("&n{level} [{nested}]");
        }
        let why = read(nested.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("repeat more than"), "{why}");
    }

    #[test]
    fn a_map_of_many_keys_is_read_in_passing_and_a_second_key_is_named() {
        let mut text: String = (0..300_000).map(|at| format!("k{at}: {at}\n")).collect();
        assert_eq!(read_map(text.as_bytes()).unwrap().len(), 300_000);
        text.push_str("k7: again\n");
        let why = read(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(why, "yaml: line 300001: mapping key \"k7\" already defined at line 8");
        let merged = b"a: &a {x: 1, y: 2}\nb: {<<: [*a, {y: 3, z: 4}], x: 0}\n";
        let merged = read(merged).unwrap()["b"].to_string();
        assert_eq!(merged, r#"{"x":0,"y":2,"z":4}"#);
    }
}
