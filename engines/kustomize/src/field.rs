//! Reads and writes fields of maps like kyaml, with its rules for quotes, styles and nulls.
//!
//! Here: one field of one map. Elsewhere: paths through several maps (`yaml_path.rs`), merging maps (`strategic_merge.rs`).

use goyaml::v3::{self, YamlLayout, YamlNode, YamlNodeKind, YamlNodeStyle};

/// The layout in which kyaml prints nodes.
const LAYOUT: YamlLayout = YamlLayout { indent: 2, compact_sequences: true };

/// A node has another kind than expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "wrong node kind: expected {} but got {}: node contents:\n{contents}",
    kind_name(*expected),
    kind_name(*found)
)]
pub struct WrongNodeKind {
    /// The expected kind.
    pub expected: YamlNodeKind,
    /// The kind that was found.
    pub found: YamlNodeKind,
    /// The text of the node.
    pub contents: String,
}

/// The name that go-yaml gives a kind.
fn kind_name(kind: YamlNodeKind) -> &'static str {
    match kind {
        YamlNodeKind::Document => "DocumentNode",
        YamlNodeKind::Sequence => "SequenceNode",
        YamlNodeKind::Mapping => "MappingNode",
        YamlNodeKind::Scalar => "ScalarNode",
        YamlNodeKind::Alias => "AliasNode",
    }
}

/// The text of a node as kyaml's `String` returns it, with a final newline; empty if the node has no text.
pub fn text(node: &YamlNode) -> String {
    v3::emit(node, &LAYOUT).unwrap_or_default()
}

/// Whether a node has the tag of null. A node without a tag does not, even if its text is `null`.
pub fn is_null(node: &YamlNode) -> bool {
    node.tag == "!!null"
}

/// Whether a node is null, an empty list or an empty map.
pub(crate) fn is_nil_or_empty(node: &YamlNode) -> bool {
    is_null(node)
        || matches!(node.kind, YamlNodeKind::Mapping | YamlNodeKind::Sequence)
            && node.content.is_empty()
}

/// Checks the kind of a node. A null is accepted as any kind.
///
/// # Errors
/// The node is neither null nor of this kind.
pub fn expect(node: &YamlNode, expected: YamlNodeKind) -> Result<(), WrongNodeKind> {
    if is_null(node) || node.kind == expected {
        return Ok(());
    }
    Err(WrongNodeKind { expected, found: node.kind, contents: text(node) })
}

/// The index of a key's value among the children of a map. A null has no keys.
///
/// # Errors
/// The node is not a map.
pub fn position(map: &YamlNode, name: &str) -> Result<Option<usize>, WrongNodeKind> {
    if is_null(map) {
        return Ok(None);
    }
    expect(map, YamlNodeKind::Mapping)?;
    let keys = map.content.iter().step_by(2);
    Ok(keys.into_iter().position(|key| key.value == name).map(|at| 2 * at + 1))
}

/// Sets the value of a key. The new value has the style of the old one, so that quotes stay. A null removes the key, and a new
/// key is added at the end.
///
/// A text that YAML 1.1 would read as something else gets quotes unless it has a style.
///
/// # Errors
/// The node is not a map.
pub fn set(map: &mut YamlNode, name: &str, mut value: YamlNode) -> Result<(), WrongNodeKind> {
    quote_if_ambiguous(&mut value);
    if is_null(&value) {
        return clear(map, name).map(|_| ());
    }
    let at = position(map, name)?;
    match at.and_then(|at| map.content.get_mut(at)) {
        Some(known) => {
            value.style = known.style;
            *known = value;
        }
        None => {
            let key = YamlNode { value: name.to_owned(), ..YamlNode::default() };
            map.content.extend([key, value]);
        }
    }
    Ok(())
}

/// Removes the first key of this name and returns its value.
///
/// # Errors
/// The node is not a map.
pub fn clear(map: &mut YamlNode, name: &str) -> Result<Option<YamlNode>, WrongNodeKind> {
    let Some(at) = position(map, name)? else { return Ok(None) };
    map.content.remove(at - 1);
    // A parsed map always has a last value, but a caller may have built a map without it.
    Ok((at <= map.content.len()).then(|| map.content.remove(at - 1)))
}

/// Gives quotes to a plain text that YAML 1.1 would not read as a text.
pub(crate) fn quote_if_ambiguous(node: &mut YamlNode) {
    if node.kind == YamlNodeKind::Scalar
        && matches!(node.tag.as_ref(), "!!str" | "")
        && node.style == YamlNodeStyle::default()
        && is_no_text_in_yaml_1_1(&node.value)
    {
        node.style = YamlNodeStyle::DOUBLE_QUOTED;
    }
}

/// Whether YAML 1.1 reads this text as anything but a text.
pub(crate) fn is_no_text_in_yaml_1_1(value: &str) -> bool {
    if value.is_empty() || value.contains('\n') || is_surely_text(value) {
        return false;
    }
    match goyaml::to_json(value.as_bytes()) {
        Ok(value) => !value.is_string(),
        // Values that Go can read but JSON cannot express: `.inf`, `.nan`, a map with keys that are not strings.
        Err(error) => !error.to_string().starts_with("yaml: "),
    }
}

/// A quick check for strings that need no quotes. It accepts most names and images: they begin with a letter and are not words
/// with a meaning in YAML.
fn is_surely_text(value: &str) -> bool {
    let is_part = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/' | b'.' | b'_' | b':' | b'@')
    };
    // The longest words are `false` and `FALSE`.
    value.len() > 5
        && value.as_bytes()[0].is_ascii_alphabetic()
        && !value.ends_with(':')
        && value.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use goyaml::YamlLimits;
    use goyaml::v3::{self, YamlNode};
    use proptest::prelude::*;

    use super::{clear, is_no_text_in_yaml_1_1, is_surely_text, set, text};

    #[test]
    fn a_value_keeps_the_quotes_that_were_there() {
        let read = v3::parse(b"a: 'x' # why\nb: 1\n", &YamlLimits::default());
        let mut map = read.expect("valid YAML")[0].content.remove(0);
        set(&mut map, "a", YamlNode::string("y")).expect("a map");
        set(&mut map, "c", YamlNode::string("yes")).expect("a map");
        assert_eq!(clear(&mut map, "b").expect("a map").map(|it| it.value), Some("1".to_owned()));
        assert_eq!(text(&map), "a: 'y'\nc: \"yes\"\n");
        let refused = set(&mut YamlNode::sequence(Vec::new()), "a", YamlNode::string("y"));
        assert!(refused.is_err_and(|error| error.to_string().starts_with("wrong node kind: ")));
    }

    #[test]
    fn words_of_yaml_1_1_are_known() {
        for word in ["yes", "off", "y", "1_000", "0b1", "~", ".inf", "a: b", "#"] {
            assert!(is_no_text_in_yaml_1_1(word), "{word}");
        }
        assert!(!is_no_text_in_yaml_1_1("2001-01-01") && !is_no_text_in_yaml_1_1("yes-man"));
        assert!(is_no_text_in_yaml_1_1("longer:"), "a map");
    }

    proptest! {
        #[test]
        fn what_is_surely_text_is_read_as_text(value in "[a-zA-Z][a-z0-9:@_./-]{5,9}") {
            if is_surely_text(&value) {
                let read = goyaml::to_json(value.as_bytes()).expect("valid YAML");
                prop_assert_eq!(read, value.as_str());
            }
        }
    }
}
