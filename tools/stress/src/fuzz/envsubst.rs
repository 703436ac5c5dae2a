//! Strings of a Kustomization with variables (`envsubst`).

use envsubst::{SubstitutionLimits, UnsetVariablePolicy, substitute};

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "envsubst",
    stack: USUAL_STACK,
    words: &[
        b"$",
        b"${",
        b"}",
        b"$$",
        b"${a}",
        b"${long}",
        b"${empty}",
        b"${none}",
        b":-",
        b":=",
        b":+",
        b":?",
        b"=",
        b"#",
        b"##",
        b"%",
        b"%%",
        b"^^",
        b"^",
        b",",
        b",,",
        b"/",
        b"//",
        b"/#",
        b"/%",
        b":1:2",
        b":${a}",
        b"*",
        b"?",
        b"[a-z]",
        b"[^a]",
        b"\\",
        b"{",
        b"\0",
        b"${#a}",
        b"${a//x/${long}}",
        b"${long//x/${long}}",
        b"${long##*x*x*x*y}",
        b"\n",
        b"\xff",
        b"\xc3\xa9",
    ],
    recorded: &["recorded/envsubst.jsonl"],
    read,
};

/// Reads the input twice. One pass accepts a variable that is not set, and the other one rejects it.
fn read(input: &[u8]) {
    let lookup = |name: &str| match name {
        "a" => Some(&b"value"[..]),
        "long" => Some(&[b'x'; 4096][..]),
        "empty" => Some(&b""[..]),
        _ => None,
    };
    for unset in [UnsetVariablePolicy::Empty, UnsetVariablePolicy::Error] {
        drop(substitute(input, lookup, unset, SubstitutionLimits::default()));
    }
}
