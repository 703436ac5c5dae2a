//! Artifacts and charts as archives (`artifacts::archive`, `helm::chart`). The input is the archive, or the content
//! of a gzip.

use std::io::{Cursor, Write as _};

use artifacts::archive::{ExtractOptions, SymlinkPolicy, extract, unzip};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "archive",
    stack: USUAL_STACK,
    words: &[
        b"ustar",
        b"ustar\x0000",
        b"ustar  \0",
        b"../",
        b"/",
        b"./",
        b"a/b",
        b"..",
        b"\0",
        b"0000644\0",
        b"00000000000\0",
        b"77777777777\0",
        b"PK",
        b"GNU.sparse.major=1\n",
        b"30 path=a/b\n",
        b"25 size=99999999999999\n",
        b"Chart.yaml",
        b"values.yaml",
        b"templates/",
        b"apiVersion: v2\nname: a\nversion: 1.0.0\n",
        b"0",
        b"1",
        b"2",
        b"5",
        b"7",
        b"g",
        b"x",
        b"L",
        b"K",
        b"S",
        b"\xff\xff\xff\xff",
        b"\x80\0\0\0\0\0\0\0\xff",
        b"PK\x01\x02",
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"PK\x06\x07",
        b"\x1f\x8b\x08",
        &[b'a'; 512],
        &[0; 512],
    ],
    recorded: &[],
    read,
};

fn read(input: &[u8]) {
    // A gzip with changed bytes is rarely valid. So the bytes inside are changed and then packed.
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = packed.write_all(input).and_then(|()| packed.finish()).unwrap_or_default();
    for symlinks in [SymlinkPolicy::Skip, SymlinkPolicy::Refuse] {
        let options = ExtractOptions { symlinks, ..ExtractOptions::default() };
        drop(extract(input, &options));
        drop(extract(packed.as_slice(), &options));
        drop(unzip(Cursor::new(input), &options));
    }
    drop(helm::chart::load::archive(input));
    drop(helm::chart::load::archive(&packed));
}
