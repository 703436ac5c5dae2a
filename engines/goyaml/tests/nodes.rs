//! Nodes of version 3: what holds for every input, and which comment goes where.
//! What Go makes of single inputs is replayed by `cargo xtask conformance`.

#![expect(clippy::unwrap_used, reason = "what is unwrapped here is what the tests assert")]

use goyaml::YamlLimits;
use goyaml::v3::{
    AnchorOrCommentKind, YamlLayout, YamlNode, YamlNodeDocumentReader, YamlNodeKind, YamlNodeStyle,
    emit, emit_documents, parse, to_json,
};
use proptest::prelude::*;

const LAYOUT: YamlLayout = YamlLayout { indent: 2, compact_sequences: true };

fn error(input: &str) -> String {
    parse(input.as_bytes(), &YamlLimits::default()).unwrap_err().to_string()
}

/// The map of the only document.
fn map(input: &str) -> YamlNode {
    parse(input.as_bytes(), &YamlLimits::default()).unwrap()[0].content[0].clone()
}

fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\"",
        "'",
        "# c\n",
        " # d",
        "  # e\n",
        "|\n",
        ">-\n",
        "&a ",
        "*a",
        "!!str ",
        "!x ",
        "<<: *a\n",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "1",
        "~",
        "é",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\r\n",
        "😀",
    ])
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(parse(&input, &YamlLimits::default()));
    }

    #[test]
    fn what_is_read_can_be_written_and_converted(pieces in prop::collection::vec(piece(), 0..40)) {
        let input = pieces.concat();
        for document in YamlNodeDocumentReader::new(input.as_bytes(), &YamlLimits::default()).unwrap() {
            let Ok(document) = document else { break };
            prop_assert!(emit(&document, &LAYOUT).is_ok());
            prop_assert!(emit(&document, &YamlLayout::default()).is_ok());
            drop(to_json(&document, &YamlLimits::default()));
        }
    }

    // But for tabs: Go writes one at the start of a block, which it then refuses to read.
    #[test]
    fn a_string_reads_back_in_every_style(
        text in "[a-zé😀 \\\\\"'\n:#,-]{0,40}",
        style in prop::sample::select(vec![
            YamlNodeStyle::default(), YamlNodeStyle::SINGLE_QUOTED, YamlNodeStyle::DOUBLE_QUOTED, YamlNodeStyle::LITERAL,
        ]),
    ) {
        let node = YamlNode { style, ..YamlNode::string(text.as_str()) };
        let text_of = emit(&YamlNode::mapping([(YamlNode::string("k"), node)]), &LAYOUT).unwrap();
        let read = map(&text_of);
        prop_assert_eq!(&read.get("k").unwrap().value, &text);
    }
}

#[test]
fn comments_go_to_what_they_stand_above_behind_and_below() {
    let map = map("# head\na: 1 # line\n# foot\n\nb: # key\n  - # item\n    c: d\n");
    let [a, one, b, list] = &map.content[..] else { panic!("two entries") };
    assert_eq!(a.notes.get(AnchorOrCommentKind::Head), "# head");
    assert_eq!(one.notes.get(AnchorOrCommentKind::Line), "# line");
    assert_eq!(a.notes.get(AnchorOrCommentKind::Foot), "# foot");
    assert_eq!(b.notes.get(AnchorOrCommentKind::Line), "# key");
    assert_eq!(list.content[0].content[0].notes.get(AnchorOrCommentKind::Head), "# item");
}

#[test]
fn a_document_has_the_comment_above_an_empty_line() {
    let documents = parse(b"# licence\n\n# head\na: 1\n\n# end\n", &YamlLimits::default()).unwrap();
    assert_eq!(documents[0].notes.get(AnchorOrCommentKind::Head), "# licence");
    assert_eq!(documents[0].content[0].content[0].notes.get(AnchorOrCommentKind::Head), "# head");
    assert_eq!(documents[0].notes.get(AnchorOrCommentKind::Foot), "# end");
}

#[test]
fn documents_before_an_error_are_given() {
    let mut documents =
        YamlNodeDocumentReader::new(b"a: 1\n---\n]\n---\nb\n", &YamlLimits::default()).unwrap();
    assert_eq!(documents.next().unwrap().unwrap().kind, YamlNodeKind::Document);
    let error = documents.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "yaml: line 2: did not find expected node content");
    assert!(documents.next().is_none());
}

#[test]
fn errors_name_the_line_where_the_broken_thing_began() {
    let input = "a: 1\nb: \"x\n\n\nc\n";
    assert_eq!(error(input), "yaml: line 2: found unexpected end of stream");
    assert_eq!(parse(input.as_bytes(), &YamlLimits::default()).unwrap_err().line(), Some(6));
    assert_eq!(error("x\n---\nb: *y\n"), "yaml: unknown anchor 'y' referenced");
    assert_eq!(error("a: 1 # \u{7}\n"), "yaml: control characters are not allowed");
}

#[test]
fn no_depth_costs_stack() {
    let deep = || {
        for text in ["[".repeat(10_000) + &"]".repeat(10_000), "- ".repeat(10_000) + "a"] {
            let documents = parse(text.as_bytes(), &YamlLimits::default()).unwrap();
            let copy = documents.clone();
            assert_eq!(copy, documents);
            assert_eq!(copy[0].walk().count(), documents[0].walk().count());
            assert_eq!(emit_documents(&copy, &LAYOUT).unwrap(), text.clone() + "\n");
            let debugged = format!("{:?}", copy[0]);
            assert!(debugged.contains("1 nodes"), "{debugged}");
        }
        let limit = "yaml: exceeded max depth of 10000";
        assert_eq!(error(&"[".repeat(10_001)), limit);
        assert_eq!(error(&"- ".repeat(10_001)), limit);
        assert_eq!(error(&"{a: ".repeat(100_000)), limit);
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(deep).unwrap().join().unwrap();
}

#[test]
fn copies_are_equal_until_one_is_changed() {
    let original = map("a: [1, {b: c}]\nd: e\n");
    let mut copy = original.clone();
    assert_eq!(copy, original);
    copy.get_mut("a").unwrap().content[1].get_mut("b").unwrap().value.push('!');
    assert_ne!(copy, original);
    assert_eq!(emit(&copy, &LAYOUT).unwrap(), "a: [1, {b: c!}]\nd: e\n");
    assert_eq!(copy.get("d").unwrap().short_tag(), "!!str");
    assert!(copy.get("x").is_none());
}

#[test]
fn limits_are_kept_and_say_so() {
    let small = YamlLimits { bytes: 30, depth: 1, documents: 2, nodes: 6 };
    let read = |input: &str| match parse(input.as_bytes(), &small) {
        Ok(documents) => Ok(documents.len()),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(read("[[a]]\n---\nb\n"), Ok(2));
    assert_eq!(read("a\n---\nb\n---\n"), Err("yaml: stream has more than 2 documents".to_owned()));
    assert_eq!(read("[1,2,3,4,5,6]"), Err("yaml: stream has more than 6 nodes".to_owned()));
    let long = Err("yaml: input of 31 bytes is longer than 30".to_owned());
    assert_eq!(read(&"#".repeat(31)), long);
}
