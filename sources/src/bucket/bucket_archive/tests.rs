//! Bundles of both kinds, and hostile bundles.

use std::io::Write as _;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

fn zipped(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, body) in entries {
        if let Some(target) = body.strip_prefix("-> ") {
            writer.add_symlink(*name, target, SimpleFileOptions::default()).unwrap();
            continue;
        }
        let mode = if name.ends_with(".sh") { 0o755 } else { 0o644 };
        writer.start_file(*name, SimpleFileOptions::default().unix_permissions(mode)).unwrap();
        writer.write_all(body.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn tarred(entries: &[(&str, &str)]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gzip);
    for (name, body) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(body.len() as u64);
        header.set_mode(if name.ends_with(".sh") { 0o755 } else { 0o644 });
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, body.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn paths(files: &MemoryTree, ignore: Option<&str>) -> String {
    let (contents, count) = contents(files, ignore).unwrap();
    let paths: Vec<&str> = contents.files().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths.len(), count);
    paths.join(" ")
}

#[test]
fn the_same_files_come_out_of_either_kind() {
    let files = [(".sourceignore", "*.md\n"), ("a/b.yaml", "b"), ("a/run.sh", "c"), ("x.md", "d")];
    for (kind, body) in
        [(BucketArchiveFormat::Zip, zipped(&files)), (BucketArchiveFormat::TarGz, tarred(&files))]
    {
        let files = unpack(kind, &body, TreeLimits::default()).unwrap();
        assert_eq!(paths(&files, None), ".sourceignore a/b.yaml a/run.sh");
        assert_eq!(paths(&files, Some("!x.md\na/b.yaml\n")), ".sourceignore a/run.sh x.md");
        let mode = |path: &str| files.entry(&RelPath::parse(path).unwrap());
        assert_eq!(mode("a/run.sh"), Some(FileMetadata::File { len: 1, executable: true }));
        assert_eq!(mode("a/b.yaml"), Some(FileMetadata::File { len: 1, executable: false }));
    }
}

#[test]
fn names_that_climb_out_are_refused_and_links_left_out() {
    for name in ["../x", "a/../../x", "/x", "a\\..\\x"] {
        for (kind, body) in [
            (BucketArchiveFormat::Zip, zipped(&[(name, "x")])),
            (BucketArchiveFormat::TarGz, tarred(&[(name, "x")])),
        ] {
            // The library that writes zip archives may itself take a name apart; then there is nothing to refuse.
            let result = unpack(kind, &body, TreeLimits::default());
            let names = result.as_ref().map(|files| paths(files, None));
            assert!(result.is_err() || names == Ok("x".to_owned()), "{kind:?} {name}: {names:?}");
        }
    }
    let files = unpack(
        BucketArchiveFormat::Zip,
        &zipped(&[("a", "1"), ("link", "-> /etc/passwd")]),
        TreeLimits::default(),
    )
    .unwrap();
    assert_eq!(paths(&files, None), "a");
}

#[test]
fn a_zip_that_is_cut_lies_or_swells_is_refused() {
    let good = zipped(&[("a.yaml", "text")]);
    for cut in 0..good.len() {
        assert!(
            unpack(BucketArchiveFormat::Zip, &good[..cut], TreeLimits::default()).is_err(),
            "{cut}"
        );
    }
    let zeros = "0".repeat(20 << 20);
    let error =
        unpack(BucketArchiveFormat::Zip, &zipped(&[("zeros", &zeros)]), TreeLimits::default())
            .unwrap_err();
    assert!(error.contains("expands to more than 250 times"), "{error}");

    let few = TreeLimits { entries: 2, ..TreeLimits::default() };
    let error = unpack(BucketArchiveFormat::Zip, &zipped(&[("a", ""), ("b", ""), ("c", "")]), few)
        .unwrap_err();
    assert!(error.contains("more than 2 entries"), "{error}");

    let small = TreeLimits { file_bytes: 3, ..TreeLimits::default() };
    assert!(
        unpack(BucketArchiveFormat::Zip, &good, small)
            .unwrap_err()
            .contains("more than the 3 allowed")
    );

    // The sizes in the entry are smaller than the real ones.
    let mut lying = good.clone();
    let central = lying.windows(4).position(|it| it == b"PK\x01\x02").unwrap();
    lying[central + 24] = 1;
    assert!(unpack(BucketArchiveFormat::Zip, &lying, TreeLimits::default()).is_err());

    let mut wide = good;
    wide.extend_from_slice(b"PK\x06\x07");
    assert!(
        unpack(BucketArchiveFormat::Zip, &wide, TreeLimits::default())
            .unwrap_err()
            .contains("ZIP64")
    );
}

#[test]
fn a_bundle_is_known_by_its_name() {
    assert_eq!(kind("releases/App.TAR.GZ").unwrap(), BucketArchiveFormat::TarGz);
    assert_eq!(kind("a.tgz").unwrap(), BucketArchiveFormat::TarGz);
    assert_eq!(kind("a.zip").unwrap(), BucketArchiveFormat::Zip);
    for key in ["a.tar", "a.gz", "a", ""] {
        assert!(matches!(check(key), Err(Error::NoBundle(_))), "{key}");
    }
    assert_ne!(revision("a.zip", "1"), revision("a.zip", "2"));
}
