//! Archives: canonical bytes, round trips, what a writer refuses.
//!
//! Elsewhere: input that means harm (`archive_hostile.rs`), the answers of Flux (`cargo xtask conformance`).

use std::{convert::Infallible, io::Read};

use artifacts::archive::{
    ArchiveContents, DigestingWriter, Error, ExtractOptions, TarballWriter, extract,
    extract_to_dir, write,
};
use flate2::read::GzDecoder;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use tree::{FileMetadata, FileTree, RelPath};

fn path(text: &str) -> RelPath {
    RelPath::parse(text).expect("a path inside the tree")
}

fn archive(contents: &ArchiveContents<Vec<u8>>) -> Vec<u8> {
    let load = |_: &RelPath, body: &Vec<u8>| Ok::<_, Infallible>(body.clone());
    write(Vec::new(), contents, load).expect("a vector takes everything")
}

fn inflate(archive: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    GzDecoder::new(archive).read_to_end(&mut tar).expect("gzip");
    tar
}

#[test]
fn what_is_inside_gzip_is_what_go_writes() {
    let l = "l".repeat(90);
    let m = "m".repeat(60);
    let mut contents = ArchiveContents::new();
    let mut file = |place: &str, executable: bool, body: &str| {
        contents.file(path(place), executable, body.into()).expect("a file");
    };
    file("é/ü", false, "not ascii");
    file(&format!("{}/{}", "s".repeat(99), "t".repeat(101)), false, "cut at a slash");
    file(&format!("c/{}", "n".repeat(120)), false, "long");
    file(&format!("b/{l}/{m}"), false, "split");
    file("a/run", true, "#!/bin/sh\n");
    file("a/full", false, &"x".repeat(512));
    file("a/empty", false, "");
    let tar = inflate(&archive(&contents));
    // Recorded from archive/tar of Go 1.26.8, with the same headers as Flux makes them.
    let go = "689246cdb7c5ccc5b4044541c410a8cda20c524db6257eae87b9276a2df728d3";
    assert_eq!((tar.len(), hex::encode(Sha256::digest(&tar)).as_str()), (15360, go));
}

#[test]
fn folders_without_files_are_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    // Recorded with fluxcd/pkg/tar 1.2.0, with the permissions that it asks for: the owner's are always among them.
    type FolderContents<'a> = &'a [(&'a str, u32)];
    let cases: [(FolderContents, FolderContents); 4] = [
        (&[("a", 0o755)], &[("a", 0o755)]),
        (&[("a/b/c", 0o750)], &[("a", 0o750), ("a/b", 0o750), ("a/b/c", 0o750)]),
        (&[("a", 0)], &[("a", 0o700)]),
        (&[("a", 0o755), ("a/", 0o700)], &[("a", 0o755)]),
    ];
    for (entries, folders) in cases {
        let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (name, mode) in entries {
            let mut header = tar::Header::new_ustar();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(*mode);
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            header.set_cksum();
            tar.append(&header, &[][..]).expect("a vector takes everything");
        }
        let archive = tar.into_inner().and_then(|gzip| gzip.finish()).expect("gzip");
        let tree = extract(&*archive, &ExtractOptions::default()).expect("an archive");
        let found: Vec<_> = tree.walk().map(|(path, entry)| (path.as_str(), entry)).collect();
        let wanted: Vec<_> = folders.iter().map(|(path, _)| (*path, FileMetadata::Dir)).collect();
        assert_eq!(found, wanted);

        let place = tempfile::tempdir().expect("a folder");
        extract_to_dir(&*archive, &ExtractOptions::default(), place.path()).expect("an archive");
        for (folder, mode) in folders {
            let metadata = std::fs::metadata(place.path().join(folder)).expect("a folder");
            // The bits that the umask takes away are not known here.
            let mode_found = metadata.permissions().mode() & 0o777;
            assert_eq!(mode_found & 0o700, 0o700, "{folder}");
            assert_eq!(mode_found & !mode, 0, "{folder}");
        }

        // The same file, packed again.
        let mut contents = ArchiveContents::new();
        for (path, _) in tree.walk() {
            contents.dir(path.clone()).expect("a folder");
        }
        let again = extract(&*self::archive(&contents), &ExtractOptions::default());
        assert_eq!(again.expect("an archive").walk().count(), folders.len());
    }
}

#[test]
fn the_gzip_header_tells_nothing_of_when_and_where() {
    assert_eq!(archive(&ArchiveContents::new())[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
}

#[test]
fn the_digest_is_that_of_the_compressed_bytes() {
    let mut contents = ArchiveContents::new();
    contents.file(path("a"), false, b"x".to_vec()).expect("a file");
    let out = DigestingWriter::new(Vec::new());
    let load = |_: &RelPath, body: &Vec<u8>| Ok::<_, Infallible>(body.clone());
    let (bytes, sealed) = write(out, &contents, load).expect("written").finish();
    assert_eq!(bytes, archive(&contents));
    assert_eq!(sealed.digest, format!("sha256:{}", hex::encode(Sha256::digest(&bytes))));
    assert_eq!(sealed.size, bytes.len() as u64);
}

#[test]
fn a_writer_refuses_what_would_make_another_archive() {
    let refused = |result: Result<(), Error>| result.expect_err("should be refused").to_string();
    let mut writer = TarballWriter::new(Vec::new());
    writer.file(&path("b"), false, 1, &mut b"x".as_slice()).expect("written");
    assert_eq!(
        refused(writer.dir(&path("a"))),
        "`a` was archived after `b`, but belongs before it"
    );
    let mut writer = TarballWriter::new(Vec::new());
    let short = writer.file(&path("a"), false, 3, &mut b"x".as_slice());
    assert_eq!(refused(short), "`a` was announced with 3 bytes and has 1");
    let long = TarballWriter::new(Vec::new()).file(&path("a"), false, 3, &mut b"long".as_slice());
    assert_eq!(refused(long), "`a` was announced with 3 bytes and has 4");
    let huge =
        TarballWriter::new(Vec::new()).file(&path("a"), false, 1 << 33, &mut std::io::empty());
    assert_eq!(
        refused(huge),
        "`a` has 8589934592 bytes, more than an archive can hold in one file"
    );
    let mut contents = ArchiveContents::new();
    contents.file(path("a"), false, ()).expect("a file");
    assert_eq!(
        refused(contents.file(path("a/b"), false, ())),
        "`a` is both a file and a directory"
    );
    assert_eq!(refused(contents.dir(path("a"))), "`a` is both a file and a directory");
    assert!(contents.file(path("a/b/c/d"), false, ()).is_err());
    assert_eq!(contents.files().count(), 1);
    let bytes = write(Vec::new(), &contents, |_: &RelPath, _: &()| Ok::<_, Infallible>(Vec::new()));
    let tree = extract(&*bytes.expect("written"), &ExtractOptions::default()).expect("extracted");
    assert_eq!(tree.walk().count(), 1, "a refused path leaves no folder behind");
    let failing = |_: &RelPath, _: &()| Err::<Vec<u8>, _>("object is corrupt");
    let failed = write(Vec::new(), &contents, failing).map(drop);
    assert_eq!(refused(failed), "cannot read `a` to archive it");
}

#[test]
fn only_an_empty_directory_is_extracted_into() {
    let dir = tempfile::tempdir().expect("a directory");
    let archive = archive(&ArchiveContents::new());
    let inner = dir.path().join("made/on/the/way");
    extract_to_dir(archive.as_slice(), &ExtractOptions::default(), &inner).expect("extracted");
    let error = extract_to_dir(archive.as_slice(), &ExtractOptions::default(), dir.path());
    assert!(error.expect_err("not empty").to_string().ends_with("is not empty"));
}

proptest! {
    #[test]
    fn an_archive_depends_on_its_files_only_and_gives_them_back(
        files in proptest::collection::btree_map("[a-c.é-]{1,120}(/[a-c.]{1,2}){0,4}", (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..1200)), 0..8)
    ) {
        let mut forwards = ArchiveContents::new();
        let mut kept = Vec::new();
        for (name, (executable, body)) in files {
            let Ok(place) = RelPath::parse(&name) else { continue };
            if forwards.file(place.clone(), executable, body.clone()).is_ok() {
                kept.retain(|(other, _, _)| *other != place);
                kept.push((place, executable, body));
            }
        }
        let mut backwards = ArchiveContents::new();
        for (place, executable, body) in kept.iter().rev() {
            backwards.file(place.clone(), *executable, body.clone()).expect("collides with nothing");
        }
        let bytes = archive(&forwards);
        prop_assert_eq!(&bytes, &archive(&backwards));
        let tree = extract(bytes.as_slice(), &ExtractOptions::default()).expect("our own archive");
        for (place, executable, body) in &kept {
            let len = body.len() as u64;
            prop_assert_eq!(tree.entry(place), Some(FileMetadata::File { len, executable: *executable }));
            prop_assert_eq!(&*tree.read(place).expect("a file"), body.as_slice());
        }
        prop_assert_eq!(forwards.files().count(), kept.len());
    }
}

#[test]
fn a_place_is_free_if_nothing_or_an_empty_folder_is_there() {
    let mut contents = ArchiveContents::new();
    assert!(contents.is_free(&RelPath::root()));
    contents.file(path("a/b/c"), false, ()).expect("room");
    contents.dir(path("a/empty")).expect("room");
    contents.file(path("ab"), false, ()).expect("room");
    for (text, is_free) in [
        ("a", false),
        ("a/b", false),
        ("a/b/c", false),
        ("a/empty", true),
        ("a/none", true),
        ("ab", false),
        ("abc", true),
        (".", false),
    ] {
        assert_eq!(contents.is_free(&path(text)), is_free, "{text}");
    }
}
