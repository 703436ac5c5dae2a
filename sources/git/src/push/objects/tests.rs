//! Trees as Git itself makes them, and packs that gix reads. Elsewhere: against the real `git` (`tests/git_loopback`).

use std::sync::atomic::AtomicBool;

use gix::odb::pack;
use gix::progress::Discard;

use super::*;

fn objects() -> NewGitObjects<'static> {
    NewGitObjects::new(None, "https://h/a".to_owned(), 100)
}

fn write(text: &str, mode: GitFileMode) -> GitFileChange {
    GitFileChange::Write { bytes: text.as_bytes().to_vec(), mode }
}

/// Changes of regular files, each with its path as its text.
fn files(paths: &[&str]) -> BTreeMap<String, GitFileChange> {
    paths.iter().map(|path| ((*path).to_owned(), write(path, GitFileMode::AsBefore))).collect()
}

/// Everything in a tree: mode, path and the hash of files.
fn listed(objects: &NewGitObjects<'_>, tree: ObjectId, prefix: &str, out: &mut Vec<String>) {
    for (name, entry) in objects.folder(tree, &mut GitFolderReadBudget::new(100)).unwrap() {
        let path = format!("{prefix}{name}");
        match entry.mode.is_tree() {
            true => listed(objects, entry.oid, &format!("{path}/"), out),
            false => out.push(format!("{} {path}", entry.mode.kind().as_octal_str())),
        }
    }
}

fn list(objects: &NewGitObjects<'_>, tree: ObjectId) -> Vec<String> {
    let mut out = Vec::new();
    listed(objects, tree, "", &mut out);
    out
}

#[test]
fn a_tree_has_the_hash_that_git_gives_it() {
    let mut objects = objects();
    let changes = BTreeMap::from([("a".to_owned(), write("hello\n", GitFileMode::Regular))]);
    let tree = objects.edit(None, &changes).unwrap().unwrap();
    assert_eq!(tree.to_string(), "0976950c1fdbcb52435a433913017bf044b3a58f");
}

#[test]
fn folders_are_ordered_as_git_orders_them() {
    let mut objects = objects();
    let tree = objects.edit(None, &files(&["a/x", "a-b", "a.b", "a0"])).unwrap().unwrap();
    let data = &objects.new.get(&tree).unwrap().data;
    let names: Vec<_> = TreeRefIter::from_bytes(data, HASH)
        .map(|entry| entry.unwrap().filename.to_string())
        .collect();
    assert_eq!(names, ["a-b", "a.b", "a", "a0"]);
}

#[test]
fn what_is_not_changed_stays_and_an_empty_folder_goes() {
    let mut objects = objects();
    let mut changes = files(&["a/b/c", "a/d", "e"]);
    changes.insert("run".to_owned(), write("x", GitFileMode::Executable));
    changes.insert("link".to_owned(), write("e", GitFileMode::Symlink));
    let tree = objects.edit(None, &changes).unwrap().unwrap();
    let changes = BTreeMap::from([
        ("a/b/c".to_owned(), GitFileChange::Remove),
        ("absent/x".to_owned(), GitFileChange::Remove),
        ("run".to_owned(), write("y", GitFileMode::AsBefore)),
    ]);
    let tree = objects.edit(Some(tree), &changes).unwrap().unwrap();
    assert_eq!(list(&objects, tree), ["100644 a/d", "100644 e", "120000 link", "100755 run"]);
}

#[test]
fn nothing_differs_if_the_bytes_are_the_same() {
    let mut objects = objects();
    let changes = files(&["a/b", "c"]);
    let tree = objects.edit(None, &changes).unwrap().unwrap();
    let known = objects.new.len();
    assert_eq!(objects.edit(Some(tree), &changes).unwrap(), None);
    assert_eq!(objects.edit(Some(tree), &BTreeMap::new()).unwrap(), None);
    assert_eq!(objects.new.len(), known);
}

#[test]
fn a_path_never_leads_through_a_link_a_file_or_a_submodule_nor_out() {
    let mut objects = objects();
    let commit = ObjectId::from_hex(&[b'1'; 40]).unwrap();
    let entry = |name: &str, kind: EntryKind| Entry {
        mode: kind.into(),
        filename: name.into(),
        oid: commit,
    };
    let entries = vec![
        entry("file", EntryKind::Blob),
        entry("link", EntryKind::Link),
        entry("module", EntryKind::Commit),
        entry("tree", EntryKind::Tree),
    ];
    let data = objects.bytes(&Tree { entries }).unwrap();
    let tree = objects.add(Kind::Tree, data, None).unwrap();
    let mut refused = |path: &str| match objects.edit(Some(tree), &files(&[path])) {
        Err(PushError::Unwritable { reason, .. }) => reason,
        other => panic!("{path}: {other:?}"),
    };
    assert_eq!(refused("file/x"), "`file` is a file, not a folder");
    assert_eq!(refused("link/x"), "`link` is a symbolic link, not a folder");
    assert_eq!(refused("module/x"), "`module` is a submodule, not a folder");
    assert_eq!(refused("module"), "it is a submodule");
    assert_eq!(refused("tree"), "it is a folder");
    assert_eq!(refused("link"), "it is a symbolic link; write the file it leads to");
    for path in ["", "/x", "x/", "x//y", "../x", "x/./y", ".git/hooks/x", "x/.GIT", "x\0"] {
        let reason = "its path has a part that is empty, `.`, `..` or `.git`";
        assert_eq!(refused(path), reason, "{path}");
    }
}

#[test]
fn a_name_that_other_file_systems_take_for_git_is_not_written() {
    let mut objects = objects();
    let mut refused = |path: &str, mode: GitFileMode| {
        let changes = BTreeMap::from([(path.to_owned(), write("x", mode))]);
        match objects.edit(None, &changes) {
            Err(PushError::Unwritable { reason, .. }) => reason,
            other => panic!("{path}: {other:?}"),
        }
    };
    let reason = "its path has a part that file systems take for Git's own";
    for path in ["git~1/config", "a/.git /x", ".git./x", ".g\u{200c}it/x", "a\\.git\\x", ".git:a"] {
        assert_eq!(refused(path, GitFileMode::Regular), reason, "{path}");
    }
    assert_eq!(refused(".gitmodules", GitFileMode::Symlink), reason);
    objects.edit(None, &files(&[".gitmodules", ".gitignore", "git~10"])).unwrap().unwrap();
}

#[test]
fn folders_that_change_are_bounded_together() {
    let mut objects = NewGitObjects::new(None, "https://h/a".to_owned(), 3);
    let tree = objects.edit(None, &files(&["a/1", "a/2", "a/3"])).unwrap();
    let refused = |changed: Result<Option<ObjectId>, PushError>| changed.unwrap_err().to_string();
    let error = refused(objects.edit(tree, &files(&["a/4"])));
    assert!(error.contains("the list of entries of all changed folders"), "{error}");
    let error = refused(objects.edit(None, &files(&["1", "2", "3", "4"])));
    assert!(error.contains("the number of changed files"), "{error}");
    let deep = format!("{}x", "a/".repeat(200));
    let error = refused(objects.edit(None, &files(&[&deep])));
    assert!(error.contains("it is in more than 128 folders"), "{error}");
}

#[test]
fn folders_count_as_what_is_written() {
    let mut objects = NewGitObjects::new(None, "https://h/a".to_owned(), 100_000);
    let long = "n".repeat(4000);
    let mut tree = None;
    // Each commit writes the folder anew, with one more name.
    let changed = (0..1000).find_map(|number| {
        match objects.edit(tree, &files(&[&format!("{long}{number}")])) {
            Ok(after) => tree = after,
            Err(error) => return Some(error.to_string()),
        }
        None
    });
    let error = changed.unwrap();
    assert!(error.contains("the size of all changed files and folders together"), "{error}");
}

#[test]
fn what_no_commit_has_is_discarded() {
    let mut objects = objects();
    objects.edit(None, &files(&["a"])).unwrap().unwrap();
    objects.discard();
    assert!(objects.new.is_empty());
    assert_eq!(objects.written, 0);
}

#[test]
fn a_pack_can_be_read_and_has_every_object_once() {
    let mut objects = objects();
    let tree = objects.edit(None, &files(&["a/b", "c"])).unwrap().unwrap();
    objects.edit(Some(tree), &files(&["d"])).unwrap().unwrap();
    let bytes = objects.pack().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let written = pack::Bundle::write_to_directory(
        &mut bytes.as_slice(),
        Some(folder.path()),
        &mut Discard,
        &AtomicBool::new(false),
        None::<gix::odb::Handle>,
        HASH,
        pack::bundle::write::Options { thread_limit: Some(1), ..Default::default() },
    );
    // Files a/b, c, d; the folder a; two trees at the top.
    assert_eq!(written.unwrap().index.num_objects, 6);
}
