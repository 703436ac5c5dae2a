//! Manifests and values (`goyaml`). They are read and written like by both YAML libraries of Go.

use goyaml::YamlLimits;
use goyaml::v3::{self, YamlLayout};

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "yaml",
    stack: USUAL_STACK,
    words: &[
        b"---\n",
        b"...\n",
        b"%YAML 1.1\n",
        b"%TAG ! tag:a,2026:\n",
        b"- ",
        b"? ",
        b": ",
        b"a: ",
        b"{",
        b"}",
        b"[",
        b"]",
        b", ",
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"<<: [*a, *a]\n",
        b"!!binary ",
        b"!!str ",
        b"!!float ",
        b"!<tag:yaml.org,2002:int> ",
        b"!",
        b"|",
        b">",
        b"|2-\n",
        b">+\n",
        b"\"",
        b"'",
        b"\\x00",
        b"\\u12",
        b"\\\n",
        b"#",
        b" # c\n",
        b"\n",
        b"\r\n",
        b"\t",
        b"  ",
        b"~",
        b"null",
        b"yes",
        b"0x1f",
        b"0o7",
        b"1_000",
        b"190:20:30",
        b".inf",
        b".nan",
        b"1e309",
        b"-9223372036854775809",
        b"2026-01-02T03:04:05Z",
        b"=",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\xed\xa0\x80",
    ],
    recorded: &["yaml/read.jsonl", "recorded/yaml2-read.jsonl"],
    read,
};

/// Calls everything that reads YAML, and writes what was read.
fn read(input: &[u8]) {
    if let Ok(value) = goyaml::to_json(input)
        && let Ok(text) = goyaml::emit(&value)
    {
        // Parity(helm 4): a key `<<` is written as it is, and then read as a merge.
        let has_merge = text.contains("<<");
        let is_read = goyaml::to_json(text.as_bytes()).is_ok();
        assert!(is_read || has_merge, "what was written cannot be read");
    }
    drop(goyaml::to_json_strict(input));
    drop(goyaml::to_json_of(input, |depth, key| depth > 1 || key == "a"));
    drop(goyaml::documents(input, &YamlLimits::default()));
    let Ok(nodes) = v3::parse(input, &YamlLimits::default()) else { return };
    for node in &nodes {
        v3::is_stable(node);
        drop(v3::to_json(node, &YamlLimits::default()));
    }
    drop(v3::emit_documents(&nodes, &YamlLayout { indent: 2, compact_sequences: true }));
}
