//! Builds the nodes that go-yaml v3 writes for a value which never was YAML.
//!
//! Here: the order of keys, the text of numbers, and which strings need quotes. Elsewhere: writing the nodes (`emit`),
//! and the order itself (`crate::emit::key_order`).

use std::vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::emit::{NodeEmitError, YamlLayout};
use super::node::{YamlNode, YamlNodeStyle};
use super::tag;
use crate::emit::scalar_style::is_base60;
use crate::emit::{EmittableValue, EmittableView, key_order};
use crate::scalar_resolve::old_bool;
use crate::{YamlDialect, go_format};

/// How deep a value may be nested; one that holds itself is.
const MAX_DEPTH: usize = 10_000;

/// Writes a value as go-yaml v3 does, including the final newline.
///
/// Unlike [`crate::emit()`], it takes no detour over JSON. A whole float of seven digits is `1e+06`, and text is not
/// folded.
///
/// # Errors
/// The value cannot be written, is nested more than ten thousand levels deep, or its text is too long.
pub fn encode<T: EmittableValue>(value: &T, layout: &YamlLayout) -> Result<String, NodeEmitError> {
    super::emit(&encoded_node(value)?, layout)
}

/// A collection whose nodes are being made.
struct OpenNodeCollection<T: EmittableValue> {
    rest: RemainingNodes<T>,
    done: Vec<YamlNode>,
}

enum RemainingNodes<T: EmittableValue> {
    Items(vec::IntoIter<T>),
    Entries(vec::IntoIter<(T::Text, T)>),
}

impl<T: EmittableValue> OpenNodeCollection<T> {
    fn next(&mut self) -> Option<T> {
        match &mut self.rest {
            RemainingNodes::Items(items) => items.next(),
            RemainingNodes::Entries(entries) => {
                let (key, value) = entries.next()?;
                self.done.push(string(key.as_ref()));
                Some(value)
            }
        }
    }

    fn close(self) -> YamlNode {
        let node = match self.rest {
            RemainingNodes::Items(_) => YamlNode::sequence(Vec::new()),
            RemainingNodes::Entries(_) => YamlNode::mapping([]),
        };
        YamlNode { content: self.done.into(), ..node }
    }
}

/// Builds the node that go-yaml v3 makes of a value.
///
/// # Errors
/// The value cannot be written, or is nested more than ten thousand levels deep.
pub fn encoded_node<T: EmittableValue>(value: &T) -> Result<YamlNode, NodeEmitError> {
    let mut open: Vec<OpenNodeCollection<T>> = Vec::new();
    let mut done = begin(value, &mut open)?;
    while let Some(innermost) = open.last_mut() {
        innermost.done.extend(done.take());
        done = match innermost.next() {
            Some(value) => begin(&value, &mut open)?,
            None => open.pop().map(OpenNodeCollection::close),
        };
        if open.len() > MAX_DEPTH {
            return Err(NodeEmitError::Depth);
        }
    }
    Ok(done.unwrap_or_default())
}

/// The node of a scalar, or nothing where a collection was opened.
fn begin<T: EmittableValue>(
    value: &T,
    open: &mut Vec<OpenNodeCollection<T>>,
) -> Result<Option<YamlNode>, NodeEmitError> {
    let rest = match value.view() {
        EmittableView::List(items) => RemainingNodes::Items(items.into_iter()),
        EmittableView::Map(entries) => {
            RemainingNodes::Entries(key_order::sorted(YamlDialect::V3, entries).into_iter())
        }
        EmittableView::Fields(entries) => RemainingNodes::Entries(entries.into_iter()),
        EmittableView::Null => return Ok(Some(plain("null"))),
        EmittableView::Bool(truth) => return Ok(Some(plain(if truth { "true" } else { "false" }))),
        EmittableView::Int(int) => return Ok(Some(plain(int.to_string()))),
        EmittableView::Uint(uint) => return Ok(Some(plain(uint.to_string()))),
        EmittableView::Float(float) => return Ok(Some(plain(number(float)))),
        EmittableView::Text(text) => return Ok(Some(string(text.as_ref()))),
        EmittableView::Time(text) => return Ok(Some(plain(text.as_ref()))),
        EmittableView::Binary(bytes) => {
            let tagged = YamlNode::scalar("!!binary", lines(STANDARD.encode(bytes)));
            return Ok(Some(YamlNode { style: YamlNodeStyle::TAGGED, ..tagged }));
        }
        EmittableView::Refused(reason) => return Err(NodeEmitError::Value(reason)),
    };
    open.push(OpenNodeCollection { rest, done: Vec::new() });
    Ok(None)
}

/// Base64 in lines of 70 characters, each of them ended; on one line if it is shorter than that.
fn lines(text: String) -> String {
    const BASE64_LINE_CHARACTERS: usize = 70;
    if text.len() < BASE64_LINE_CHARACTERS {
        return text;
    }
    let mut out = String::new();
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && at % BASE64_LINE_CHARACTERS == 0 {
            out.push('\n');
        }
        out.push(digit);
    }
    out.push('\n');
    out
}

fn plain(text: impl Into<String>) -> YamlNode {
    YamlNode { value: text.into(), ..YamlNode::default() }
}

fn number(float: f64) -> String {
    match go_format::float64(float).as_str() {
        "+Inf" => ".inf".to_owned(),
        "-Inf" => "-.inf".to_owned(),
        "NaN" => ".nan".to_owned(),
        other => other.to_owned(),
    }
}

/// A string, in quotes if it would be read as something else, by this version or by YAML 1.1.
fn string(text: &str) -> YamlNode {
    let is_plain = text.contains('\n')
        || tag::of_text(text) == tag::STR && !is_base60(text) && old_bool(text).is_none();
    let style = if is_plain { YamlNodeStyle::default() } else { YamlNodeStyle::DOUBLE_QUOTED };
    YamlNode { style, ..plain(text) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: &serde_json::Value, wanted: &str) {
        let layout = YamlLayout { indent: 2, compact_sequences: false };
        assert_eq!(encode(&value, &layout).unwrap(), wanted);
    }

    #[test]
    fn strings_that_mean_something_else_are_quoted() {
        check(
            &json!(["yes", "n", "1:30", "1e3", "~", "<<", "2020-01-02", "", "plain", "- x"]),
            "- \"yes\"\n- \"n\"\n- \"1:30\"\n- \"1e3\"\n- \"~\"\n- <<\n- \"2020-01-02\"\n- \"\"\n- plain\n- '- x'\n",
        );
    }

    #[test]
    fn floats_keep_their_form_and_lists_are_indented() {
        check(
            &json!({"b": [1e6, 1.5, {"c": []}], "a10": 1, "a9": null}),
            "a9: null\na10: 1\nb:\n  - 1e+06\n  - 1.5\n  - c: []\n",
        );
    }

    #[test]
    fn lines_become_a_block() {
        check(&json!({"a": "x\ny\n", "b": "x \ny"}), "a: |\n  x\n  y\nb: \"x \\ny\"\n");
    }
}
