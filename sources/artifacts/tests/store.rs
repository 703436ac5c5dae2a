//! The store of artifacts, on a real disk.
//!
//! Here: layout, crashes, escapes, garbage, shared trees.
//! Elsewhere: which artifacts are garbage (inline in `store/garbage_collection.rs`), the cache alone (inline in
//! `store/extracted_tree_cache.rs`).

use std::{
    convert::Infallible,
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::symlink,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use artifacts::{
    archive::{self, ArchiveContents, ExtractOptions},
    store::{
        ArtifactMetadata, ArtifactStore, Error, NeededArtifact, NeededArtifacts, ObjectFolder,
        StoreOptions,
    },
};
use jiff::Timestamp;
use tempfile::TempDir;
use tree::{FileTree, RelPath};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn slot() -> ObjectFolder {
    ObjectFolder::new("GitRepository", "apps", "podinfo").expect("good names")
}

fn open(dir: &TempDir) -> ArtifactStore {
    ArtifactStore::open(
        dir.path(),
        StoreOptions { advertised: "source.flux".to_owned(), ..StoreOptions::default() },
    )
    .expect("an existing directory")
}

fn put(store: &ArtifactStore, file: &str, body: &[u8]) -> ArtifactMetadata {
    store.put(&slot(), file, "main@sha1:abc", now(), |out| out.write_all(body)).expect("stored")
}

fn put_archive(store: &ArtifactStore, file: &str, body: &str) -> ArtifactMetadata {
    let mut contents = ArchiveContents::new();
    contents.file(RelPath::parse("f").expect("a path"), false, body).expect("a file");
    let load = |_: &RelPath, body: &&str| Ok::<_, Infallible>(body.as_bytes().to_vec());
    let fill = |out: &mut dyn Write| archive::write(out, &contents, load).map(drop);
    store.put(&slot(), file, "main@sha1:abc", now(), fill).expect("stored")
}

/// The names in a directory of the store, hidden ones included.
fn names(dir: &Path) -> Vec<String> {
    let children = fs::read_dir(dir).expect("a directory");
    let name = |child: fs::DirEntry| child.file_name().into_string().expect("UTF-8");
    let mut names: Vec<_> = children.map(|child| name(child.expect("an entry"))).collect();
    names.sort();
    names
}

fn read(store: &ArtifactStore, path: &str) -> String {
    let mut text = String::new();
    store.open_file(path).expect("is there").read_to_string(&mut text).expect("readable");
    text
}

#[test]
fn an_artifact_is_stored_where_flux_stores_it() {
    let dir = TempDir::new().expect("a directory");
    let stored = put(&open(&dir), "0a1b.tar.gz", b"content");
    assert_eq!(stored.path, "gitrepository/apps/podinfo/0a1b.tar.gz");
    assert_eq!(stored.url, "http://source.flux/gitrepository/apps/podinfo/0a1b.tar.gz");
    assert_eq!(
        stored.digest,
        "sha256:ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    );
    assert_eq!(
        (stored.size, stored.revision.as_str(), stored.last_update),
        (7, "main@sha1:abc", now())
    );
    assert_eq!(fs::read(dir.path().join(&stored.path)).expect("is there"), b"content");
    assert_eq!(names(&dir.path().join("gitrepository/apps/podinfo")), ["0a1b.tar.gz"]);
    for file in ["sha256:0a1b.tar.gz", "index-0a1b.yaml", "chart-1.2.3+build.tgz"] {
        put(&open(&dir), file, b"");
    }
}

#[test]
fn the_advertised_address_may_bring_its_scheme() {
    let dir = TempDir::new().expect("a directory");
    let url = |advertised: &str| {
        let options = StoreOptions { advertised: advertised.to_owned(), ..StoreOptions::default() };
        ArtifactStore::open(dir.path(), options).expect("opened").url("k/ns/n/f")
    };
    assert_eq!(url(""), "http://localhost/k/ns/n/f");
    assert_eq!(url("host:9090"), "http://host:9090/k/ns/n/f");
    assert_eq!(url("https://host"), "https://host/k/ns/n/f");
}

#[test]
fn a_name_that_garbage_collection_leaves_alone_is_refused() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let stored = store.put(&slot(), "a.tar.gz.lock", "r", now(), |_| Ok::<_, Infallible>(()));
    assert!(matches!(stored, Err(Error::Name { what: "file", .. })));
    let kept = put(&store, "a.tar.gz", b"content");
    assert!(store.link(&kept.path, "latest.lock").is_err());
    assert_eq!(store.slots_of("gitrepository").expect("readable"), [slot()]);
    assert!(store.slots_of("bucket").expect("readable").is_empty());
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let long = "x".repeat(256);
    for bad in ["", ".", "..", "../x", "a/b", "/", "a\\b", "a\0b", ".hidden", "a\nb", &long] {
        assert!(ObjectFolder::new(bad, "ns", "n").is_err(), "{bad:?} as kind");
        assert!(ObjectFolder::new("kind", bad, "n").is_err(), "{bad:?} as namespace");
        assert!(ObjectFolder::new("kind", "ns", bad).is_err(), "{bad:?} as name");
        let stored = store.put(&slot(), bad, "r", now(), |_| Ok::<_, Infallible>(()));
        assert!(matches!(stored, Err(Error::Name { what: "file", .. })), "{bad:?} as file");
    }
    for bad in ["", "/", "a/b/c", "a/b/c/d/e", "../a/b/c", "a/../b/c", "/etc/passwd/x/y", "a//b/c"]
    {
        assert!(matches!(store.open_file(bad), Err(Error::Name { what: "path", .. })), "{bad:?}");
        assert!(store.remove_file(bad).is_err(), "{bad:?}");
    }
    assert_eq!(names(dir.path()), [".scratch"]);
}

#[test]
fn links_that_lead_elsewhere_are_not_followed() {
    let dir = TempDir::new().expect("a directory");
    let outside = TempDir::new().expect("a directory");
    fs::write(outside.path().join("secret"), "secret").expect("written");
    let store = open(&dir);
    let stored = put(&store, "a", b"content");
    let place = dir.path().join("gitrepository/apps");
    symlink(outside.path().join("secret"), place.join("podinfo/leak")).expect("linked");
    symlink(outside.path(), place.join("linked")).expect("linked");
    symlink(dir.path().join(&stored.path), place.join("podinfo/latest.tar.gz")).expect("linked");
    for path in ["gitrepository/apps/podinfo/leak", "gitrepository/apps/linked/secret"] {
        assert!(matches!(store.open_file(path), Err(Error::Missing(_))), "{path}");
    }
    // Flux keeps such links inside the store, and they go on working.
    assert_eq!(read(&store, "gitrepository/apps/podinfo/latest.tar.gz"), "content");
    assert!(matches!(store.open_file("gitrepository/apps/podinfo/a/b"), Err(Error::Name { .. })));
    fs::create_dir(place.join("podinfo/folder")).expect("made");
    assert!(matches!(store.open_file("gitrepository/apps/podinfo/folder"), Err(Error::Missing(_))));

    let linked = ObjectFolder::new("gitrepository", "apps", "linked").expect("good names");
    let refused = store.put(&linked, "x", "r", now(), |_| Ok::<_, Infallible>(()));
    assert!(matches!(refused, Err(Error::Disk { .. })));
    assert_eq!(names(outside.path()), ["secret"]);
    open(&dir);
    assert_eq!(names(outside.path()), ["secret"]);
}

#[test]
fn an_unfinished_artifact_is_never_seen_and_swept_at_the_next_start() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let old = put(&store, "a", b"old");
    let place = dir.path().join("gitrepository/apps/podinfo");
    let given_up = store.put(&slot(), "a", "r", now(), |out| {
        out.write_all(b"half of the new").expect("written");
        assert_eq!(read(&store, &old.path), "old", "readers see the old one meanwhile");
        assert_eq!(names(&place).len(), 2);
        Err("the server went away")
    });
    let error = given_up.expect_err("given up");
    assert_eq!(error.to_string(), "cannot create artifact `gitrepository/apps/podinfo/a`");
    assert_eq!(
        std::error::Error::source(&error).expect("a cause").to_string(),
        "the server went away"
    );
    assert_eq!(names(&place), ["a"]);
    assert_eq!(read(&store, &old.path), "old");

    // What a crash in the middle of it leaves.
    fs::write(place.join(".unfinished-Ab3dEf"), "half").expect("written");
    symlink("a", place.join(".unfinished-latest.tar.gz")).expect("linked");
    fs::write(place.join("b.lock"), "").expect("written");
    open(&dir);
    assert_eq!(names(&place), ["a", "b.lock"]);
    put(&store, "a", b"new");
    assert_eq!(read(&store, &old.path), "new");
}

#[test]
fn what_the_disk_refuses_is_named() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    fs::write(dir.path().join("gitrepository"), "in the way").expect("written");
    let error =
        store.put(&slot(), "a", "r", now(), |_| Ok::<_, Infallible>(())).expect_err("no room");
    let place = dir.path().canonicalize().expect("is there").join("gitrepository");
    assert_eq!(error.to_string(), format!("cannot write to `{}`", place.display()));
    let nowhere = dir.path().join("nowhere");
    let error = ArtifactStore::open(&nowhere, StoreOptions::default()).expect_err("does not exist");
    assert_eq!(error.to_string(), format!("cannot open `{}`", nowhere.display()));
}

#[test]
fn a_changed_artifact_is_noticed() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let stored = put_archive(&store, "a", "body");
    let place = dir.path().join(&stored.path);
    assert!(store.verify(&stored.path, &stored.digest).expect("readable"));
    assert!(store.verify(&stored.path, &stored.digest).expect("readable"));
    let other = stored.digest.replace(|c: char| c.is_ascii_hexdigit(), "0");
    for digest in ["", "sha256:", "sha512:00", &other, &stored.digest.to_uppercase()] {
        assert!(matches!(store.verify(&stored.path, digest), Err(Error::Digest(_))), "{digest:?}");
    }
    let zeros = format!("sha256:{}", "0".repeat(64));
    assert!(!store.verify(&stored.path, &zeros).expect("readable"));

    // The same length at another time.
    let len = fs::metadata(&place).expect("is there").len();
    fs::write(&place, vec![b'x'; usize::try_from(len).expect("small")]).expect("written");
    File::open(&place).unwrap().set_modified(SystemTime::UNIX_EPOCH).expect("changed");
    assert!(!store.verify(&stored.path, &stored.digest).expect("readable"));
    let error = store.load(&stored.path, &stored.digest, &ExtractOptions::default());
    assert!(matches!(error, Err(Error::Mismatch { .. })));

    store.remove_file(&stored.path).expect("removed");
    store.remove_file(&stored.path).expect("gone already");
    assert!(!store.verify(&stored.path, &stored.digest).expect("gone is no error"));
    assert!(matches!(store.open_file(&stored.path), Err(Error::Missing(_))));
}

#[test]
fn all_who_load_an_artifact_share_one_tree() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let stored = put_archive(&store, "a", "body");
    let load = || store.load(&stored.path, &stored.digest, &ExtractOptions::default());
    let first = load().expect("loaded");
    assert_eq!(*first.read(&RelPath::parse("f").unwrap()).expect("a file"), *b"body");
    store.remove(&slot()).expect("removed");
    let second = load().expect("still in memory");
    assert!(Arc::ptr_eq(&first, &second));
    drop((first, second));
    let forgetful =
        ArtifactStore::open(dir.path(), StoreOptions { cache_bytes: 0, ..StoreOptions::default() })
            .expect("opened");
    let gone = forgetful.load(&stored.path, &stored.digest, &ExtractOptions::default());
    assert!(matches!(gone, Err(Error::Missing(_))));
}

#[test]
fn what_cannot_be_extracted_is_named() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let stored = put(&store, "a", b"no archive");
    let error = store.load(&stored.path, &stored.digest, &ExtractOptions::default());
    let error = error.expect_err("no archive");
    assert_eq!(error.to_string(), "cannot extract artifact `gitrepository/apps/podinfo/a`");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert_eq!(cause, "requires gzip-compressed body");
}

#[test]
fn garbage_goes_and_the_current_artifact_stays() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let place = dir.path().join("gitrepository/apps/podinfo");
    let current = put(&store, "current", b"");
    for file in ["expired", "older", "old", "locked.lock", ".unfinished-x"] {
        fs::write(place.join(file), "").expect("written");
    }
    symlink(place.join("current"), place.join("latest.tar.gz")).expect("linked");
    fs::create_dir(place.join("folder")).expect("made");
    let age = |file: &str, seconds: u64| {
        let time = SystemTime::from(now()) - Duration::from_secs(seconds);
        File::open(place.join(file)).unwrap().set_modified(time).expect("changed");
    };
    age("current", 900);
    age("expired", 61);
    age("older", 60);
    age("old", 20);
    age("locked.lock", 900);
    let removed = store.collect_garbage(&slot(), &[&current.path], now()).expect("collected");
    assert_eq!(removed, ["gitrepository/apps/podinfo/expired", "gitrepository/apps/podinfo/older"]);
    assert_eq!(
        names(&place),
        [".unfinished-x", "current", "folder", "latest.tar.gz", "locked.lock", "old"]
    );
    let again = store.collect_garbage(&slot(), &[&current.path], now()).expect("collected");
    assert_eq!(again, Vec::<String>::new());

    let other = ObjectFolder::new("gitrepository", "apps", "other").expect("good names");
    assert!(store.collect_garbage(&other, &[&current.path], now()).is_err());
    store.remove(&slot()).expect("removed");
    store.remove(&slot()).expect("gone already");
    assert_eq!(names(&dir.path().join("gitrepository/apps")), Vec::<String>::new());
    let none = store.collect_garbage(&slot(), &[&current.path], now()).expect("nothing there");
    assert_eq!(none, Vec::<String>::new());
}

/// Artifacts that are needed in the namespace `apps`; which these are is not known without any.
#[derive(Debug)]
struct FixedNeededArtifacts(Option<Vec<String>>);

impl NeededArtifacts for FixedNeededArtifacts {
    fn of_namespace(&self, namespace: &str) -> Option<Vec<NeededArtifact>> {
        assert_eq!(namespace, "apps");
        let artifact = |path: String| NeededArtifact {
            path,
            digest: "sha256:0".to_owned(),
            revision: "main@sha1:0".to_owned(),
        };
        Some(self.0.clone()?.into_iter().map(artifact).collect())
    }
}

#[test]
fn what_others_need_is_no_garbage_and_nothing_is_while_that_is_not_known() {
    let collected = |needed: FixedNeededArtifacts| {
        let dir = TempDir::new().expect("a directory");
        let store = open(&dir);
        store.keep_needed(Arc::new(needed));
        for file in ["good", "other"] {
            put(&store, file, b"old");
        }
        let current = put(&store, "current", b"new");
        let mut removed =
            store.collect_garbage(&slot(), &[&current.path], Timestamp::MAX).expect("collected");
        removed.sort();
        removed
    };
    let path = |file: &str| format!("gitrepository/apps/podinfo/{file}");
    assert_eq!(collected(FixedNeededArtifacts(Some(Vec::new()))), [path("good"), path("other")]);
    let elsewhere = "gitrepository/apps/other/good".to_owned();
    let strange = "gitrepository/apps/podinfo/../x".to_owned();
    let needed = FixedNeededArtifacts(Some(vec![strange, elsewhere, path("good"), path("good")]));
    assert_eq!(collected(needed), [path("other")]);
    assert_eq!(collected(FixedNeededArtifacts(None)), Vec::<String>::new());
}

#[test]
fn what_others_need_takes_no_place_from_what_is_read_at_this_moment() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let path = |file: &str| format!("gitrepository/apps/podinfo/{file}");
    store.keep_needed(Arc::new(FixedNeededArtifacts(Some(vec![path("good"), path("lost")]))));
    for file in ["good", "former", "current"] {
        put(&store, file, file.as_bytes());
    }
    let current = path("current");
    let removed = store.collect_garbage(&slot(), &[&current], Timestamp::now()).expect("collected");
    assert_eq!(removed, Vec::<String>::new(), "two records, and what others need");
}

#[test]
fn what_is_needed_is_kept_up_to_a_limit_of_bytes() {
    let dir = TempDir::new().expect("a directory");
    let store = open(&dir);
    let path = |file: &str| format!("gitrepository/apps/podinfo/{file}");
    store.keep_needed(Arc::new(FixedNeededArtifacts(Some(vec![path("huge"), path("small")]))));
    put(&store, "huge", b"");
    // It takes no room on the disk.
    let huge = File::options().write(true).open(dir.path().join(path("huge")));
    huge.and_then(|file| file.set_len((256 << 20) + 1)).expect("a sparse file");
    put(&store, "small", b"old");
    let current = put(&store, "current", b"new");
    let removed =
        store.collect_garbage(&slot(), &[&current.path], Timestamp::MAX).expect("collected");
    assert_eq!(removed, [path("huge")]);
}

#[test]
fn a_store_takes_no_more_than_it_may_and_knows_what_it_has_after_a_start() {
    let dir = TempDir::new().expect("a directory");
    let limited = |limit| {
        let options = StoreOptions { size_limit: Some(limit), ..StoreOptions::default() };
        ArtifactStore::open(dir.path(), options).expect("an existing directory")
    };
    let store = limited(1000);
    put(&store, "one", &[0; 600]);
    let fill =
        |out: &mut dyn Write| out.write_all(&[0; 300]).and_then(|()| out.write_all(&[0; 300]));
    let refused = store.put(&slot(), "two", "r", now(), fill).expect_err("it is full");
    assert!(matches!(refused, Error::Full { used: 600, limit: 1000, .. }), "{refused}");
    assert!(refused.to_string().contains("--storage-size-limit"), "{refused}");
    assert_eq!(store.size(), 600);
    assert_eq!(std::fs::read_dir(dir.path().join(slot().path())).expect("there").count(), 1);

    // What is replaced or removed makes room, also what an earlier instance of the store has counted.
    let store = limited(1300);
    assert_eq!(store.size(), 600);
    put(&store, "one", &[0; 500]);
    put(&store, "two", &[0; 800]);
    assert_eq!(store.size(), 1300);
    store.remove_file(&format!("{}/one", slot().path())).expect("removed");
    assert_eq!(store.size(), 800);
    store.remove(&slot()).expect("removed");
    assert_eq!(store.size(), 0);
}

#[test]
fn a_second_name_leads_to_the_newest_artifact_and_is_no_artifact_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir);
    let old = put(&store, "1.tgz", b"old");
    let url = store.link(&old.path, "latest.tar.gz").expect("linked");
    assert_eq!(url, "http://source.flux/gitrepository/apps/podinfo/latest.tar.gz");
    let new = put(&store, "2.tgz", b"new");
    store.link(&new.path, "latest.tar.gz").expect("linked again");
    assert_eq!(read(&store, "gitrepository/apps/podinfo/latest.tar.gz"), "new");
    let later = now() + Duration::from_secs(3600);
    store.collect_garbage(&slot(), &[&new.path], later).expect("collected");
    let slot_dir = dir.path().join("gitrepository/apps/podinfo");
    assert_eq!(names(&slot_dir), ["2.tgz", "latest.tar.gz"]);
    assert!(store.link(&new.path, "../x").is_err());
}

#[test]
fn what_others_need_and_is_not_there_is_lost_and_nothing_is_while_that_is_not_known() {
    let path = |file: &str| format!("gitrepository/apps/podinfo/{file}");
    let lost = |needed: FixedNeededArtifacts| -> Vec<String> {
        let dir = TempDir::new().expect("a directory");
        let store = open(&dir);
        store.keep_needed(Arc::new(needed));
        put(&store, "there", b"bytes");
        store.lost(&slot()).into_iter().map(|it| it.path).collect()
    };
    let elsewhere = "gitrepository/apps/other/gone".to_owned();
    let strange = "gitrepository/apps/podinfo/../x".to_owned();
    let needed = vec![strange, elsewhere, path("there"), path("gone"), path("gone")];
    assert_eq!(lost(FixedNeededArtifacts(Some(needed))), [path("gone")]);
    let many = (0..20).map(|at| path(&format!("gone{at}"))).collect();
    assert_eq!(lost(FixedNeededArtifacts(Some(many))).len(), 4);
    assert_eq!(lost(FixedNeededArtifacts(None)), Vec::<String>::new());
}
