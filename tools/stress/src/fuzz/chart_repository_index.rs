//! Indexes of chart repositories (`sources::charts`). They are read, and a version is chosen.

use sources::charts::ChartIndex;

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "index",
    stack: USUAL_STACK,
    words: &[
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\"",
        b"\\u",
        b"\n",
        b"- ",
        b"  ",
        b"apiVersion: v1\n",
        b"entries:\n",
        b"  podinfo:\n",
        b"name: podinfo",
        b"version: 1.2.3",
        b"version: ",
        b"1.2.3-rc.1+b",
        b"urls: [",
        b"digest: ",
        b"created: \"2026-01-02T03:04:05Z\"",
        b"null",
        b"~",
        b"&a ",
        b"*a",
        b"<<: *a",
        b"{\"apiVersion\":\"v1\",\"entries\":{",
        b"\"podinfo\":[",
        b"{\"name\":\"podinfo\",\"version\":\"1.2.3\",\"urls\":[\"a.tgz\"]}",
        b"dependencies:",
        b"annotations:",
        b"99999999999999999999",
        b"!!binary ",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
    ],
    recorded: &[],
    read,
};

fn read(input: &[u8]) {
    let Ok(index) = ChartIndex::parse(input) else { return };
    for range in ["", "*", "1.x", "^1.2.3-0", ">=1 <2 || 3", "x.y"] {
        drop(index.choose("podinfo", range));
    }
}
