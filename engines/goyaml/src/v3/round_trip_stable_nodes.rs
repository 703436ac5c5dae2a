//! Finds the nodes that do not change when they are written and read again, so that the caller can skip that.

use super::node::{YamlNode, YamlNodeKind, YamlNodeStyle};
use super::tag;

/// How much text is judged. What is longer or deeper may reach a limit of writing or reading.
const MAX_TEXT: usize = 1 << 20;
const MAX_NODES: usize = 100_000;
const MAX_DEPTH: usize = 100;

/// A longer key is written in another form.
const MAX_KEY: usize = 100;

/// Whether a node certainly keeps its meaning after [`super::emit()`] and [`super::parse`]. [`super::to_json`] then
/// gives the same result, and each tag equals the former [`YamlNode::short_tag`].
///
/// It is false if the writer has to do more than choose quotes. This concerns comments, anchors, written tags, keys
/// that are not short strings, strings outside of printable ASCII, and unusual line breaks.
///
/// # Assumes
/// The node is the root of a document.
pub fn is_stable(root: &YamlNode) -> bool {
    let mut text = 0;
    let mut nodes = 0;
    root.kind == YamlNodeKind::Mapping
        && root.walk().all(|(depth, node)| {
            text += node.value.len();
            nodes += 1;
            depth <= MAX_DEPTH && text <= MAX_TEXT && nodes <= MAX_NODES && is_stable_alone(node)
        })
}

fn is_stable_alone(node: &YamlNode) -> bool {
    node.notes.is_empty()
        && !node.style.contains(YamlNodeStyle::TAGGED)
        && match node.kind {
            YamlNodeKind::Mapping => {
                matches!(node.tag.as_ref(), tag::MAP | "")
                    && node.content.len().is_multiple_of(2)
                    && node.entries().all(|(key, _)| is_stable_key(key))
            }
            YamlNodeKind::Sequence => matches!(node.tag.as_ref(), tag::SEQ | ""),
            YamlNodeKind::Scalar if is_text(node) => is_line(node) || is_block(node),
            // Of dates some get quotes, and so become strings.
            YamlNodeKind::Scalar => {
                let meaning = tag::of_text(&node.value);
                !node.value.is_empty()
                    && meaning != "!!timestamp"
                    && !node.style.is_quoted()
                    && is_line(node)
                    && (node.tag.is_empty() || node.tag == meaning)
            }
            YamlNodeKind::Document | YamlNodeKind::Alias => false,
        }
}

/// Whether a scalar is a text, by its tag or without one.
fn is_text(node: &YamlNode) -> bool {
    node.tag == tag::STR || node.tag.is_empty() && node.short_tag() == tag::STR
}

fn is_stable_key(key: &YamlNode) -> bool {
    key.kind == YamlNodeKind::Scalar
        && is_text(key)
        && key.value.len() <= MAX_KEY
        && key.value != "<<"
        && is_line(key)
}

/// Whether a text is one line, which any kind of quotes can hold.
fn is_line(node: &YamlNode) -> bool {
    let is_in_block =
        node.style.contains(YamlNodeStyle::LITERAL) || node.style.contains(YamlNodeStyle::FOLDED);
    !is_in_block && node.value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Whether a text has lines as they stand in a block after `|`.
fn is_block(node: &YamlNode) -> bool {
    let text = node.value.as_bytes();
    let is_literal = !node.style.is_quoted() || node.style.contains(YamlNodeStyle::LITERAL);
    is_literal
        && !node.style.contains(YamlNodeStyle::FOLDED)
        && text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n'))
        && !matches!(text, [] | [b' ' | b'\n', ..] | [.., b' '] | [.., b'\n', b'\n'])
        && !text.windows(2).any(|pair| pair == b" \n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::YamlLimits;
    use crate::v3::{YamlLayout, emit, parse, to_json};

    const LAYOUT: YamlLayout = YamlLayout { indent: 2, compact_sequences: true };

    /// The value of a node, and that of what is read after it was written.
    fn both(root: &YamlNode) -> (Result<Value, String>, Result<Value, String>) {
        let value =
            |node: &YamlNode| to_json(node, &YamlLimits::default()).map_err(|e| e.to_string());
        let text = emit(root, &LAYOUT).unwrap();
        let again = parse(text.as_bytes(), &YamlLimits::default()).unwrap_or_else(|error| {
            panic!("{error} in what was written:\n{text}");
        });
        (value(root), value(&again[0]))
    }

    fn root_of(text: &str) -> YamlNode {
        parse(text.as_bytes(), &YamlLimits::default()).unwrap().remove(0).content.remove(0)
    }

    #[test]
    fn what_is_usual_is_stable_and_what_is_not_is_left_to_the_writer() {
        for text in [
            "a: 1\nb: [x, 'y', \"5\", 1.5e3, null, ~, true, '2020-01-02']\nc: {}\n",
            "data:\n  f: |\n    # no comment\n    a: b\n\n    c\n",
            "data:\n  f: |-\n    a\n    b\n",
        ] {
            let root = root_of(text);
            assert!(is_stable(&root), "{text}");
            let (own, again) = both(&root);
            assert_eq!(own, again, "{text}");
            assert!(own.is_ok(), "{text}");
        }
        for text in [
            "a: 1 # comment\n",
            "# comment\na: 1\n",
            "a: &x 1\n",
            "a: !!str 1\n",
            "a: >\n  folded\n",
            "a: |+\n  kept\n\n",
            "a: \"tab\\t\"\n",
            "a: ü\n",
            "1: a\n",
            "a: 2020-01-02\n",
            "? [a]\n: b\n",
            "a:\n",
            "<<: {a: b}\n",
            "[a]\n",
        ] {
            assert!(!is_stable(&root_of(text)), "{text}");
        }
    }

    fn strings() -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![
            "",
            " ",
            "-",
            "- a",
            "a: b",
            "a:",
            ": a",
            "#",
            "a #b",
            "<<",
            "null",
            "~",
            "0x1f",
            "1e3",
            "1_000",
            "0o7",
            "yes",
            "2020-01-02",
            "1:30",
            "---",
            "...",
            "'",
            "\"",
            "{",
            "}",
            "[a]",
            "a, b",
            "%",
            "@",
            "`",
            "!",
            "&a",
            "*a",
            "|",
            ">",
            "?",
            "? a",
            "a\nb",
            "a\nb\n",
            "a\n\nb",
            "a\n",
            " a\nb",
            "a \nb",
            "a\n b",
            "#\nb",
            "a\n#b",
            "---\nb",
            "a\n---\n",
            "- a\n- b",
            "\n",
            "a\n\n",
        ]);
        prop_oneof![odd.prop_map(str::to_owned), "[ -~\n]{0,12}", "[ -~]{60,160}"]
    }

    fn styles() -> impl Strategy<Value = YamlNodeStyle> {
        prop::sample::select(vec![
            YamlNodeStyle::default(),
            YamlNodeStyle::DOUBLE_QUOTED,
            YamlNodeStyle::SINGLE_QUOTED,
            YamlNodeStyle::LITERAL,
            YamlNodeStyle::FOLDED,
            YamlNodeStyle::FLOW,
        ])
    }

    fn nodes() -> impl Strategy<Value = YamlNode> {
        let tags = prop::sample::select(vec![
            "!!str",
            "!!int",
            "!!float",
            "!!bool",
            "!!null",
            "!!timestamp",
            "",
        ]);
        let leaf = (tags, strings(), styles())
            .prop_map(|(tag, value, style)| YamlNode { style, ..YamlNode::scalar(tag, value) });
        let tree = leaf.prop_recursive(4, 24, 4, |inner| {
            let key = (prop::sample::select(vec!["!!str", ""]), strings(), styles())
                .prop_map(|(tag, key, style)| YamlNode { style, ..YamlNode::scalar(tag, key) });
            prop_oneof![
                (prop::collection::vec(inner.clone(), 0..4), styles(), any::<bool>()).prop_map(
                    |(items, style, is_tagged)| (YamlNode::sequence(items), style, is_tagged)
                ),
                (prop::collection::vec((key, inner), 0..4), styles(), any::<bool>()).prop_map(
                    |(entries, style, is_tagged)| (YamlNode::mapping(entries), style, is_tagged)
                ),
            ]
            .prop_map(|(mut node, style, is_tagged)| {
                node.style = style;
                if !is_tagged {
                    node.tag = "".into();
                }
                node
            })
        });
        prop::collection::vec(("[a-z]{1,3}", tree), 1..4).prop_map(|entries| {
            YamlNode::mapping(
                entries.into_iter().map(|(key, value)| (YamlNode::string(key), value)),
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn a_stable_node_has_the_same_value_after_it_was_written(root in nodes()) {
            if is_stable(&root) {
                let (own, again) = both(&root);
                // Errors name lines, which are others there; that there is one stays.
                prop_assert_eq!(own.clone().ok(), again.clone().ok());
                prop_assert_eq!(own.is_ok(), again.is_ok());
            }
        }
    }
}
