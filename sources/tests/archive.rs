//! Archives, held against the answers of Flux and against hostile input.
//!
//! Here: canonical bytes, recorded cases, round trips.
//! Elsewhere: input that means harm (`archive_hostile.rs`).

use std::{
    convert::Infallible,
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sources::{
    archive::{
        Contents, Digesting, Error, ExtractOptions, Symlinks, Writer, extract, extract_to_dir,
        write,
    },
    ignore::{IGNORE_FILE, Matcher},
};
use tree::{Entry, Files, RelPath};

fn path(text: &str) -> RelPath {
    RelPath::parse(text).expect("a path inside the tree")
}

fn archive(contents: &Contents<Vec<u8>>) -> Vec<u8> {
    let load = |_: &RelPath, body: &Vec<u8>| Ok::<_, Infallible>(body.clone());
    write(Vec::new(), contents, load).expect("a vector takes everything")
}

fn inflate(archive: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    GzDecoder::new(archive).read_to_end(&mut tar).expect("gzip");
    tar
}

/// Recorded cases of one operation, from `fluxcd/pkg/artifact` v0.18.1 and `fluxcd/pkg/tar` v1.2.0.
fn recorded(op: &str) -> Vec<Value> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/conformance/recorded/tarball.jsonl");
    let text = fs::read_to_string(file).expect("recorded cases");
    let lines = text.lines().filter(|line| !line.is_empty());
    let cases = lines.map(|line| serde_json::from_str(line).expect("a case"));
    cases.filter(|case: &Value| case["op"] == op).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn every_recorded_tree_is_archived_as_flux_archives_it() {
    let cases = recorded("archive");
    for case in &cases {
        let mut contents = Contents::new();
        let mut ignore_files = Vec::new();
        for entry in list(&case["tree"]) {
            let place = path(text(&entry["path"]));
            let dir = place.parent().expect("not the root");
            if entry["type"] == "symlink" {
                contents.dir(dir).expect("a folder");
                continue;
            }
            let body = text(&entry["body"]);
            if place.name() == Some(IGNORE_FILE) {
                ignore_files.push((dir, body.to_owned()));
            }
            let mode = u32::from_str_radix(text(&entry["mode"]), 8).expect("a mode");
            contents.file(place, mode & 0o111 != 0, body.into()).expect("a file");
        }
        contents
            .leave_out(&Matcher::new(&ignore_files, case["ignore"].as_str()).expect("patterns"));
        assert_eq!(entries(&archive(&contents)), list(&case["out"]), "{}", case["name"]);
    }
    assert_eq!(cases.len(), 7);
}

/// The entries of an archive as another implementation reads them.
fn entries(archive: &[u8]) -> Vec<Value> {
    let mut tar = tar::Archive::new(GzDecoder::new(archive));
    let entries = tar.entries().expect("a tar archive").map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = String::from_utf8(entry.path_bytes().into_owned()).expect("UTF-8");
        let is_pax = entry.pax_extensions().expect("readable").is_some();
        let header = entry.header();
        json!({
            "name": name,
            "type": if header.entry_type().is_dir() { "dir" } else { "file" },
            "mode": format!("{:04o}", header.mode().expect("octal")),
            "size": header.size().expect("octal"),
            "uid": header.uid().expect("octal"),
            "gid": header.gid().expect("octal"),
            "mtime": header.mtime().expect("octal"),
            "format": if is_pax { "PAX" } else { "USTAR" },
        })
    });
    entries.collect()
}

#[test]
fn what_is_inside_gzip_is_what_go_writes() {
    let (l, m) = ("l".repeat(90), "m".repeat(60));
    let mut contents = Contents::new();
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
fn the_gzip_header_tells_nothing_of_when_and_where() {
    assert_eq!(archive(&Contents::new())[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
}

#[test]
fn the_digest_is_that_of_the_compressed_bytes() {
    let mut contents = Contents::new();
    contents.file(path("a"), false, b"x".to_vec()).expect("a file");
    let out = Digesting::new(Vec::new());
    let load = |_: &RelPath, body: &Vec<u8>| Ok::<_, Infallible>(body.clone());
    let (bytes, sealed) = write(out, &contents, load).expect("written").finish();
    assert_eq!(bytes, archive(&contents));
    assert_eq!(sealed.digest, format!("sha256:{}", hex::encode(Sha256::digest(&bytes))));
    assert_eq!(sealed.size, bytes.len() as u64);
}

#[test]
fn a_writer_refuses_what_would_make_another_archive() {
    let refused = |result: Result<(), Error>| result.expect_err("should be refused").to_string();
    let mut writer = Writer::new(Vec::new());
    writer.file(&path("b"), false, 1, &mut b"x".as_slice()).expect("written");
    assert_eq!(
        refused(writer.dir(&path("a"))),
        "`a` was archived after `b`, but belongs before it"
    );
    let mut writer = Writer::new(Vec::new());
    let short = writer.file(&path("a"), false, 3, &mut b"x".as_slice());
    assert_eq!(refused(short), "`a` was announced with 3 bytes and has 1");
    let long = Writer::new(Vec::new()).file(&path("a"), false, 3, &mut b"long".as_slice());
    assert_eq!(refused(long), "`a` was announced with 3 bytes and has 4");
    let huge = Writer::new(Vec::new()).file(&path("a"), false, 1 << 33, &mut std::io::empty());
    assert_eq!(
        refused(huge),
        "`a` has 8589934592 bytes, more than an archive can hold in one file"
    );
    let mut contents = Contents::new();
    contents.file(path("a"), false, ()).expect("a file");
    assert_eq!(
        refused(contents.file(path("a/b"), false, ())),
        "`a` is both a file and a directory"
    );
    assert_eq!(refused(contents.dir(path("a"))), "`a` is both a file and a directory");
    let failing = |_: &RelPath, _: &()| Err::<Vec<u8>, _>("object is corrupt");
    let failed = write(Vec::new(), &contents, failing).map(drop);
    assert_eq!(refused(failed), "cannot read `a` to archive it");
}

/// A gzip-compressed tar archive from the entries of a recorded case.
fn build(entries: &[Value]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        let name = text(&entry["name"]).as_bytes();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_link_name_literal(text(&entry["link"])).expect("short");
        header.set_mode(entry["mode"].as_u64().expect("a mode").try_into().expect("small"));
        header.set_entry_type(match text(&entry["type"]) {
            "file" => tar::EntryType::Regular,
            "dir" => tar::EntryType::Directory,
            "symlink" => tar::EntryType::Symlink,
            "hardlink" => tar::EntryType::Link,
            "fifo" => tar::EntryType::Fifo,
            other => {
                assert_eq!(other, "xglobal");
                tar::EntryType::XGlobalHeader
            }
        });
        let body = text(&entry["body"]);
        header.set_size(body.len() as u64);
        header.set_cksum();
        tar.append(&header, body.as_bytes()).expect("appended");
    }
    tar.into_inner().expect("ended").finish().expect("compressed")
}

#[test]
fn every_recorded_archive_is_extracted_as_flux_extracts_it() {
    let cases = recorded("untar");
    for case in &cases {
        let archive = build(list(&case["entries"]));
        let skips = case["options"]["skipSymlinks"] == 1;
        let options = ExtractOptions {
            symlinks: if skips { Symlinks::Skip } else { Symlinks::Refuse },
            max_size: match case["options"]["maxSize"].as_i64() {
                None => Some(100 << 20),
                Some(max) => max.try_into().ok(),
            },
            ..ExtractOptions::default()
        };
        let dir = tempfile::tempdir().expect("a directory");
        let on_disk = match extract_to_dir(archive.as_slice(), &options, dir.path()) {
            Ok(()) => files_in(dir.path()),
            Err(error) => {
                let message = error.to_string();
                Err(message.replace(&dir.path().display().to_string(), "${DIR}"))
            }
        };
        let expected = match case["err"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(list(&case["out"]).to_vec()),
        };
        assert_eq!(on_disk, expected, "{}", case["name"]);

        let in_memory = extract(archive.as_slice(), &options).map_err(|error| error.to_string());
        match (in_memory, expected) {
            (Err(found), Err(expected)) => assert_eq!(found, expected.replace("${DIR}/", "")),
            (Ok(tree), Ok(expected)) => {
                assert_eq!(tree.walk().count(), expected.len(), "{}", case["name"]);
                for file in expected {
                    let place = path(text(&file["path"]));
                    assert_eq!(
                        *tree.read(&place).expect("a file"),
                        *text(&file["body"]).as_bytes()
                    );
                }
            }
            (found, expected) => panic!("{}: {found:?} is not {expected:?}", case["name"]),
        }
    }
    assert_eq!(cases.len(), 16);
}

/// The files below a directory, as the recorded cases have them.
fn files_in(root: &Path) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for child in fs::read_dir(dir).expect("a directory") {
            let place = child.expect("an entry").path();
            let metadata = fs::symlink_metadata(&place).expect("is there");
            if metadata.is_dir() {
                open.push(place);
                continue;
            }
            assert!(metadata.is_file(), "{} is no regular file", place.display());
            let mode = metadata.permissions().mode() & 0o7777;
            let name = place.strip_prefix(root).expect("below the root").to_str().expect("UTF-8");
            let mut file = json!({
                "path": name,
                "type": "file",
                "mode": if mode == 0 { "0".to_owned() } else { format!("{mode:04o}") },
            });
            let body = fs::read_to_string(&place).expect("readable by root or its owner");
            if !body.is_empty() {
                file["body"] = json!(body);
            }
            found.push(file);
        }
    }
    found.sort_by_key(|file| text(&file["path"]).to_owned());
    Ok(found)
}

#[test]
fn only_an_empty_directory_is_extracted_into() {
    let dir = tempfile::tempdir().expect("a directory");
    let archive = archive(&Contents::new());
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
        let mut forwards = Contents::new();
        let mut kept = Vec::new();
        for (name, (executable, body)) in files {
            let Ok(place) = RelPath::parse(&name) else { continue };
            if forwards.file(place.clone(), executable, body.clone()).is_ok() {
                kept.retain(|(other, _, _)| *other != place);
                kept.push((place, executable, body));
            }
        }
        let mut backwards = Contents::new();
        for (place, executable, body) in kept.iter().rev() {
            backwards.file(place.clone(), *executable, body.clone()).expect("collides with nothing");
        }
        let bytes = archive(&forwards);
        prop_assert_eq!(&bytes, &archive(&backwards));
        let tree = extract(bytes.as_slice(), &ExtractOptions::default()).expect("our own archive");
        for (place, executable, body) in &kept {
            let len = body.len() as u64;
            prop_assert_eq!(tree.entry(place), Some(Entry::File { len, executable: *executable }));
            prop_assert_eq!(&*tree.read(place).expect("a file"), body.as_slice());
        }
        prop_assert_eq!(forwards.files().count(), kept.len());
    }
}
