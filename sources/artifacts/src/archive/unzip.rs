//! Reads an untrusted zip archive into a tree.
//!
//! Here: what is accepted, skipped and refused. Elsewhere: the limits and errors, which are those of [`super::extract`].

use std::io::{Read, Seek, SeekFrom};

use tree::{MemoryTree, TreeBuildError};
use zip::ZipArchive;

use super::extract::{ExtractError, ExtractOptions, RATIO_FLOOR, SymlinkPolicy, is_within, place};
use super::extraction_sink::ExtractionSink;

/// The record at the end of an archive, without its comment.
const END_RECORD_BYTES: usize = 22;
/// The magic bytes of the end record.
const END_MAGIC: [u8; 4] = *b"PK\x05\x06";
/// The longest comment.
const LONGEST_COMMENT: usize = u16::MAX as usize;
/// The size of the ZIP64 locator before the end record. It says that another end record counts.
const ZIP64_LOCATOR_BYTES: usize = 20;
/// The magic bytes of the ZIP64 locator.
const LOCATOR_MAGIC: [u8; 4] = *b"PK\x06\x07";

/// Reads a zip archive into a tree.
///
/// # Guarantees
/// The options and the size of the archive limit memory and time. Sizes in its headers are not trusted.
///
/// # Errors
/// The input is not an archive, a name leads out of the tree, an entry is encrypted or has another type, or a limit is
/// reached.
pub fn unzip(
    mut archive: impl Read + Seek,
    options: &ExtractOptions,
) -> Result<MemoryTree, ExtractError> {
    let len = archive.seek(SeekFrom::End(0)).map_err(ExtractError::Read)?;
    let max = options.limits.entries;
    // The whole list of entries is read at once, so its length is checked first.
    if declared_entries(&mut archive, len)? > max {
        return Err(ExtractError::Zip(format!("it has more than {max} entries")));
    }
    archive.rewind().map_err(ExtractError::Read)?;
    let mut archive = ZipArchive::new(archive).map_err(|error| unreadable(&error))?;
    let mut tree = MemoryTree::builder(options.limits);
    let mut claimed: u64 = 0;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| unreadable(&error))?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let size = entry.size();
        claimed = claimed.saturating_add(size);
        if let Some(max) = options.max_size.filter(|max| claimed > *max) {
            return Err(ExtractError::TooLarge { name, max });
        }
        if claimed > len.saturating_mul(options.max_ratio).max(RATIO_FLOOR) {
            return Err(ExtractError::Bomb(options.max_ratio));
        }
        let path = place(entry.name_raw()).ok_or_else(|| ExtractError::Name(name.clone()))?;
        is_within(&path, size, index + 1, claimed, &options.limits)?;
        let mode = entry.unix_mode().unwrap_or_default();
        match mode & 0o170_000 {
            0 | 0o100_000 | 0o040_000 => {}
            0o120_000 => match options.symlinks {
                SymlinkPolicy::Skip => continue,
                SymlinkPolicy::Refuse => return Err(ExtractError::Symlink(name)),
            },
            kind => {
                let mode = format!("`{kind:o}`");
                return Err(ExtractError::Unsupported { name, mode });
            }
        }
        if entry.is_dir() {
            ExtractionSink::dir(&mut tree, &path, mode)?;
            continue;
        }
        ExtractionSink::file(&mut tree, &path, mode & 0o777, size, &mut entry)?;
        // Reading on to the end has the checksum compared.
        let mut more = [0];
        if entry.read(&mut more).map_err(ExtractError::Read)? != 0 {
            return Err(ExtractError::Limit(TreeBuildError::FileTooLarge {
                path,
                len: size.saturating_add(1),
                max: size,
            }));
        }
    }
    Ok(tree.build())
}

fn unreadable(error: &zip::result::ZipError) -> ExtractError {
    ExtractError::Zip(error.to_string())
}

/// The number of entries in the record at the end of the archive.
///
/// If it is not certain which record counts, the archive is refused: two readers might see two archives.
fn declared_entries(archive: &mut (impl Read + Seek), len: u64) -> Result<usize, ExtractError> {
    let bad = |why: &str| ExtractError::Zip(why.to_owned());
    let tail_len = len.min((ZIP64_LOCATOR_BYTES + END_RECORD_BYTES + LONGEST_COMMENT) as u64);
    archive.seek(SeekFrom::Start(len - tail_len)).map_err(ExtractError::Read)?;
    let mut tail = Vec::new();
    archive.take(tail_len).read_to_end(&mut tail).map_err(ExtractError::Read)?;
    if tail.windows(4).any(|found| *found == LOCATOR_MAGIC) {
        return Err(bad("ZIP64 archives are not supported; use .tar.gz"));
    }
    let mut ends = tail.windows(4).enumerate().filter(|(_, found)| *found == END_MAGIC);
    let (Some((at, _)), None) = (ends.next(), ends.next()) else {
        return Err(bad("it does not have exactly one end-of-central-directory record"));
    };
    let number = |at: usize| {
        let bytes = tail.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u16::from_le_bytes).map(usize::from)
    };
    let (Some(entries), Some(comment)) = (number(at + 10), number(at + 20)) else {
        return Err(bad("it is truncated"));
    };
    if at + END_RECORD_BYTES + comment != tail.len() {
        return Err(bad("it has trailing data"));
    }
    // More entries than that are in a record of another form, and more than a tree may have.
    if entries == usize::from(u16::MAX) {
        return Err(bad("it has more than 65534 entries"));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use tree::{FileTree as _, RelPath};
    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    use super::*;

    fn zipped(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        for (name, body) in entries {
            match name.strip_suffix('/') {
                Some(dir) => writer.add_directory(dir, options).unwrap(),
                None => {
                    let mode = if name.ends_with(".sh") { 0o755 } else { 0o644 };
                    writer.start_file(*name, options.unix_permissions(mode)).unwrap();
                    writer.write_all(body).unwrap();
                }
            }
        }
        writer.finish().unwrap().into_inner()
    }

    fn refused(bytes: Vec<u8>) -> String {
        unzip(Cursor::new(bytes), &ExtractOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn files_folders_and_execute_bits_come_out() {
        let bytes = zipped(&[("a/", b""), ("b/c.yaml", b"kind: C\n"), ("run.sh", b"#!")]);
        let tree = unzip(Cursor::new(bytes), &ExtractOptions::default()).unwrap();
        let listed: Vec<_> = tree.walk().map(|(path, it)| format!("{path} {it:?}")).collect();
        expect_test::expect![[r#"
            [
                "a Dir",
                "b Dir",
                "b/c.yaml File { len: 8, executable: false }",
                "run.sh File { len: 2, executable: true }",
            ]
        "#]]
        .assert_debug_eq(&listed);
        let body = tree.read(&RelPath::parse("b/c.yaml").unwrap()).unwrap();
        assert_eq!(&*body, b"kind: C\n");
    }

    #[test]
    fn links_are_left_out_and_names_that_leave_are_refused() {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default();
        writer.add_symlink("link", "/etc/passwd", options).unwrap();
        writer.start_file("file", options).unwrap();
        let bytes = writer.finish().unwrap().into_inner();
        let tree = unzip(Cursor::new(bytes), &ExtractOptions::default()).unwrap();
        assert_eq!(tree.len(), 1);
        // The writer takes no such names, so they are put in afterwards.
        for name in ["../../e", "a/../../", "/etc/pa", "c:\\temp", "a\\..\\b"] {
            let mut bytes = zipped(&[("NNNNNNN", b"x")]);
            let name = format!("{name:/<7}").into_bytes();
            while let Some(at) = bytes.windows(7).position(|found| found == b"NNNNNNN") {
                bytes[at..at + 7].copy_from_slice(&name[..7]);
            }
            let error = unzip(Cursor::new(bytes), &ExtractOptions::default());
            match error {
                Err(ExtractError::Name(_)) => {}
                // An absolute name is one below the root, as in other archives.
                Ok(tree) => assert!(name == b"/etc/pa" && tree.len() == 2, "{tree:?}"),
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn what_claims_too_much_is_refused_before_it_is_read() {
        let zeros = vec![0; 20 << 20];
        assert!(refused(zipped(&[("zeros", &zeros)])).contains("decompression bomb"));
        let mut many = zipped(&[("a", b"")]);
        let end = many.len() - END_RECORD_BYTES;
        many[end + 10..end + 12].copy_from_slice(&[0xff, 0xff]);
        assert!(refused(many).contains("more than 65534 entries"));
    }

    #[test]
    fn a_size_that_is_a_lie_is_found_out() {
        let bytes = zipped(&[("a", &[b'x'; 1000])]);
        for size in [999_u32, 1001] {
            let mut bytes = bytes.clone();
            let from = 1000_u32.to_le_bytes();
            let to = size.to_le_bytes();
            while let Some(at) = bytes.windows(4).position(|found| found == from) {
                bytes[at..at + 4].copy_from_slice(&to);
            }
            refused(bytes);
        }
    }

    #[test]
    fn two_ends_or_something_behind_the_end_are_refused() {
        let one = zipped(&[("a", b"1")]);
        let two = [one.clone(), one.clone()].concat();
        assert!(refused(two).contains("one end-of-central-directory"));
        let behind = [one.as_slice(), b"more"].concat();
        assert!(refused(behind).contains("trailing data"));
        refused(one[..one.len() - 3].to_vec());
        assert!(refused(b"PK\x03\x04".to_vec()).contains("one end-of-central-directory"));
        for cut in 0..one.len() {
            refused(one[..cut].to_vec());
        }
    }
}
