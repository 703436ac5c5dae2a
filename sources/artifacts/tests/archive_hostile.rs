//! Hostile archives.
//!
//! Here: bombs, false claims, escapes, damage.
//! Elsewhere: valid archives (`archive.rs`).

use std::io::Write;

use artifacts::archive::{ExtractError, ExtractOptions, SymlinkPolicy, extract};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use tree::{FileTree, MemoryTree, RelPath, TreeLimits};

const BOUNDLESS: ExtractOptions = ExtractOptions {
    symlinks: SymlinkPolicy::Skip,
    max_size: None,
    limits: TreeLimits {
        total_bytes: u64::MAX,
        file_bytes: u64::MAX,
        entries: usize::MAX,
        depth: usize::MAX,
    },
    max_ratio: u64::MAX,
};

/// One header and its body, padded; `size` need not be the length of the body.
fn entry(name: &[u8], flag: u8, size: u64, body: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_entry_type(tar::EntryType::new(flag));
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &[u8], body: &[u8]) -> Vec<u8> {
    entry(name, b'0', body.len() as u64, body)
}

fn pax(records: &[u8]) -> Vec<u8> {
    entry(b"pax", b'x', records.len() as u64, records)
}

fn gzip(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    for part in parts {
        gzip.write_all(part).expect("a vector takes everything");
    }
    gzip.finish().expect("compressed")
}

fn try_extract(parts: &[Vec<u8>], options: &ExtractOptions) -> Result<MemoryTree, ExtractError> {
    extract(gzip(parts).as_slice(), options)
}

fn refusal(parts: &[Vec<u8>], options: &ExtractOptions) -> String {
    try_extract(parts, options).expect_err("should be refused").to_string()
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let names: [&[u8]; 12] = [
        b"",
        b"/",
        b"/etc/passwd",
        b"..",
        b"../x",
        b"a/..",
        b"a/../b",
        b"a/../../b",
        b"./..",
        b"a\\b",
        b"..\\x",
        b"caf\xe9",
    ];
    for name in names {
        let refused = refusal(&[file(name, b"x")], &BOUNDLESS);
        assert!(refused.starts_with("tar contained invalid name error"), "{name:?}: {refused}");
        let refused = refusal(&[entry(name, b'2', 0, b"")], &BOUNDLESS);
        assert!(
            refused.starts_with("tar contained invalid name error"),
            "{name:?} as link: {refused}"
        );
    }
    for name in ["../x", "/x", "a\0b"] {
        let record = |len: usize| format!("{len} path={name}\n");
        let record = record(record(10).len());
        let refused = refusal(&[pax(record.as_bytes()), file(b"good", b"x")], &BOUNDLESS);
        assert!(
            refused.starts_with("tar contained invalid name error"),
            "{name:?} by PAX: {refused}"
        );
        let long = [name.as_bytes(), b"\0"].concat();
        let long = entry(b"././@LongLink", b'L', long.len() as u64, &long);
        let found = try_extract(&[long, file(b"good", b"x")], &BOUNDLESS);
        if let Some((before, _)) = name.split_once('\0') {
            // A NUL ends a GNU name.
            let place = RelPath::parse(before).expect("a path");
            assert!(found.expect("a good name").entry(&place).is_some());
        } else {
            assert!(matches!(found, Err(ExtractError::Name(_))), "{name:?} by GNU");
        }
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    let through = [entry(b"l", b'2', 0, b""), file(b"l/x", b"inside")];
    let tree = try_extract(&through, &BOUNDLESS).expect("the link is left out");
    assert_eq!(tree.walk().map(|(path, _)| path.to_string()).collect::<Vec<_>>(), ["l", "l/x"]);
    let refusing = ExtractOptions { symlinks: SymlinkPolicy::Refuse, ..BOUNDLESS };
    assert_eq!(
        refusal(&through, &refusing),
        "tar file entry l is a symlink, which is not allowed in this context"
    );
    for (flag, mode) in [
        (b'3', "Dcrw-r--r--"),
        (b'4', "Drw-r--r--"),
        (b'6', "prw-r--r--"),
        (b'S', "`S`"),
        (b'Z', "`Z`"),
    ] {
        let refused = refusal(&[entry(b"p", flag, 0, b"")], &BOUNDLESS);
        assert_eq!(refused, format!("tar file entry p contained unsupported file type {mode}"));
    }
    assert_eq!(
        refusal(&[entry(b"h", b'1', 5, b"")], &BOUNDLESS),
        "`h` should have 5 bytes and has 0"
    );
}

#[test]
fn a_decompression_bomb_is_noticed_by_its_ratio() {
    let bomb = gzip(&[entry(b"zeros", b'0', 64 << 20, &vec![0; 64 << 20])]);
    assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
    let options = ExtractOptions { max_ratio: 100, ..BOUNDLESS };
    assert_eq!(
        extract(bomb.as_slice(), &options).expect_err("a bomb").to_string(),
        "the archive expands to more than 100 times its size and is rejected as a decompression bomb"
    );
    let limits = TreeLimits { total_bytes: 1 << 20, ..TreeLimits::default() };
    let options = ExtractOptions { limits, ..BOUNDLESS };
    assert_eq!(
        extract(bomb.as_slice(), &options).expect_err("too large").to_string(),
        "with `zeros` the files and their paths are larger than the 1048576 bytes allowed"
    );
}

#[test]
fn a_bomb_of_headers_that_describe_nothing_is_noticed_too() {
    let mut comment = b"1048576 comment=".to_vec();
    comment.resize((1 << 20) - 1, b'x');
    comment.push(b'\n');
    let header = pax(&comment);
    let bomb: Vec<_> = (0..32).map(|_| header.clone()).collect();
    let options = ExtractOptions { max_ratio: 100, ..BOUNDLESS };
    assert!(matches!(try_extract(&bomb, &options), Err(ExtractError::Bomb(100))));
}

#[test]
fn a_size_is_only_a_claim() {
    for size in [1 << 20, (1 << 33) - 1] {
        assert_eq!(
            refusal(&[entry(b"a", b'0', size, b"short")], &BOUNDLESS),
            format!("`a` should have {size} bytes and has 512")
        );
    }
    // In base 256: the largest that is allowed, and a negative one.
    let sized = |field: [u8; 12]| {
        let mut bytes = entry(b"a", b'0', 0, b"");
        let header: &mut tar::Header = &mut tar::Header::from_byte_slice(&bytes[..512]).clone();
        header.as_old_mut().size = field;
        header.set_cksum();
        bytes[..512].copy_from_slice(header.as_bytes());
        bytes
    };
    let largest = [0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(
        refusal(&[sized(largest)], &BOUNDLESS),
        format!("`a` should have {} bytes and has 0", i64::MAX)
    );
    assert_eq!(
        refusal(&[sized(largest), sized(largest)], &ExtractOptions::default()),
        format!("`a` has {} bytes, more than the 67108864 allowed for one file", i64::MAX)
    );
    for field in [[0xff; 12], [0x80, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], *b"12z4567 9\0\0\0"] {
        assert_eq!(
            refusal(&[sized(field)], &BOUNDLESS),
            "tar error: a number in a header is malformed"
        );
    }
    let huge_special = entry(b"pax", b'x', 1 << 30, b"");
    assert_eq!(
        refusal(&[huge_special], &BOUNDLESS),
        "tar error: an extended header is larger than 1 MiB"
    );
}

#[test]
fn a_size_in_an_extended_header_counts_instead_of_that_in_the_header() {
    let parts = [pax(b"10 size=5\n"), entry(b"a", b'0', 0, b"12345"), file(b"b", b"next")];
    let tree = try_extract(&parts, &BOUNDLESS).expect("both read alike");
    assert_eq!(*tree.read(&RelPath::parse("a").unwrap()).expect("a file"), *b"12345");
    assert_eq!(*tree.read(&RelPath::parse("b").unwrap()).expect("a file"), *b"next");
    for records in
        ["11 size=-5\n", "3 x", "99999999999999999999999 a=b\n", "6 a=b", "5 =b\n", "0 a=b\n", "x"]
    {
        assert_eq!(
            refusal(&[pax(records.as_bytes()), file(b"a", b"")], &BOUNDLESS),
            "tar error: an extended header is malformed",
            "{records:?}"
        );
    }
    assert_eq!(
        refusal(&[pax(b"22 GNU.sparse.major=1\n"), file(b"a", b"")], &BOUNDLESS),
        "tar error: it contains a sparse file, which is not supported"
    );
}

#[test]
fn crowds_and_depths_are_limited() {
    let limits = TreeLimits { entries: 1000, ..TreeLimits::default() };
    let options = ExtractOptions { limits, ..ExtractOptions::default() };
    let crowd: Vec<_> = (0..1001).map(|n| file(format!("f{n}").as_bytes(), b"")).collect();
    assert_eq!(
        refusal(&crowd, &options),
        "`f1000` is one more than the 1000 files and directories allowed"
    );
    // Links are not kept, and the same name takes no further space, but both take time.
    let links: Vec<_> = (0..1001).map(|_| entry(b"l", b'2', 0, b"")).collect();
    assert_eq!(
        refusal(&links, &options),
        "`l` is one more than the 1000 files and directories allowed"
    );
    let same: Vec<_> = (0..1001).map(|_| file(b"f", b"")).collect();
    assert_eq!(
        refusal(&same, &options),
        "`f` is one more than the 1000 files and directories allowed"
    );

    let deep = "d/".repeat(2000);
    let long = entry(b"././@LongLink", b'L', deep.len() as u64, deep.as_bytes());
    let deep = [long, file(b"x", b"")];
    assert!(
        refusal(&deep, &ExtractOptions::default()).ends_with("lies deeper than 128 directories")
    );
    let endless = "d".repeat(5000);
    let long = entry(b"././@LongLink", b'L', endless.len() as u64, endless.as_bytes());
    let refused = refusal(&[long, file(b"x", b"")], &BOUNDLESS);
    assert!(refused.starts_with("tar contained invalid name error"), "{refused}");
}

#[test]
fn what_is_no_archive_is_called_so() {
    for bytes in [b"".as_slice(), b"\x1f", b"plain text", b"PK\x03\x04"] {
        let error = extract(bytes, &BOUNDLESS).expect_err("no gzip");
        assert_eq!(error.to_string(), "requires gzip-compressed body");
    }
    assert_eq!(
        refusal(&[b"text".to_vec()], &BOUNDLESS),
        "tar error: it ends in the middle of a header"
    );
    assert_eq!(refusal(&[vec![b'x'; 512]], &BOUNDLESS), "tar error: a header has a wrong checksum");
    let early_end = [vec![0; 512], file(b"a", b"")];
    assert_eq!(
        refusal(&early_end, &BOUNDLESS),
        "tar error: a header follows the end of the archive"
    );
    let mut damaged = gzip(&[file(b"a", &[7; 600])]);
    let middle = damaged.len() / 2;
    damaged.truncate(middle);
    assert!(matches!(extract(damaged.as_slice(), &BOUNDLESS), Err(ExtractError::Read(_))));
}

#[test]
fn an_archive_without_its_end_is_whole_only_between_entries() {
    let bytes = [file(b"a", b"12345"), pax(b"13 path=long\n"), file(b"b", &[1; 600])].concat();
    for cut in 0..bytes.len() {
        let found = try_extract(&[bytes[..cut].to_vec()], &BOUNDLESS);
        // After `a` with or without its padding, and after `b` likewise.
        let is_whole = cut == 0 || (517..=1024).contains(&cut) || cut >= 2560 + 600;
        // Headers that describe an entry which never comes are ignored, as Go does.
        let is_ignored = (1536 + 13..=2048).contains(&cut);
        assert_eq!(found.is_ok(), is_whole || is_ignored, "cut at {cut}: {found:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_extraction_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        drop(extract(bytes.as_slice(), &ExtractOptions::default()));
        drop(try_extract(&[bytes], &ExtractOptions::default()));
    }

    #[test]
    fn no_damage_makes_extraction_panic(damage in proptest::collection::vec((0_usize..4096, any::<u8>()), 0..6)) {
        let parts = [pax(b"13 path=long\n"), file(b"a", b"12345"), entry(b"././@LongLink", b'L', 4, b"name"), file(b"b", b"6"), entry(b"d", b'5', 0, b"")];
        let mut bytes = parts.concat();
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        // The checksums are mended, so that the damage is examined.
        for block in bytes.chunks_mut(512) {
            if &block[257..262] == b"ustar" {
                let mut header = tar::Header::from_byte_slice(block).clone();
                header.set_cksum();
                block.copy_from_slice(header.as_bytes());
            }
        }
        if let Ok(tree) = try_extract(&[bytes], &ExtractOptions::default()) {
            for (path, _) in tree.walk() {
                prop_assert!(path.components().all(|part| part != ".."));
            }
        }
    }
}
