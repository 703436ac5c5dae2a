//! What a tree in memory answers, and what it refuses to hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text).expect("a path inside the tree")
}

fn tree(files: &[(&str, &str)]) -> MemoryTree {
    MemoryTree::from_files(files.iter().copied()).expect("a small tree")
}

fn names(tree: &MemoryTree, dir: &str) -> Vec<String> {
    tree.list(&path(dir)).expect("a folder").into_iter().map(|(name, _)| name).collect()
}

#[test]
fn folders_are_listed_by_name_and_not_by_what_is_in_them() {
    let tree = tree(&[
        ("b/x/y", ""),
        ("b/x/z", ""),
        ("b-1", ""),
        ("b\u{1}", ""),
        ("a", ""),
        ("b.d/q", ""),
    ]);
    assert_eq!(names(&tree, "."), ["a", "b", "b\u{1}", "b-1", "b.d"]);
    assert_eq!(tree.list(&path("b")), Ok(vec![("x".to_owned(), FileKind::Dir)]));
    assert_eq!(names(&tree, "b/x"), ["y", "z"]);
    assert_eq!(names(&MemoryTree::default(), "."), Vec::<String>::new());
}

#[test]
fn errors_of_wrong_requests_name_the_existing_entry() {
    let tree = tree(&[("d/f", "text")]);
    let wrong = |result: Result<(), TreeError>| result.expect_err("should fail").to_string();
    assert_eq!(wrong(tree.read(&path("d")).map(drop)), "`d` is a directory");
    assert_eq!(wrong(tree.read(&path(".")).map(drop)), "`.` is a directory");
    assert_eq!(wrong(tree.read(&path("d/g")).map(drop)), "`d/g` does not exist");
    assert_eq!(wrong(tree.read(&path("d/f/g")).map(drop)), "`d/f/g` does not exist");
    assert_eq!(wrong(tree.list(&path("d/f")).map(drop)), "`d/f` is not a directory");
    assert_eq!(wrong(tree.list(&path("e")).map(drop)), "`e` does not exist");
    assert_eq!(tree.entry(&path("d/f")), Some(FileMetadata::File { len: 4, executable: false }));
    assert_eq!(tree.entry(&path("")), Some(FileMetadata::Dir));
}

#[test]
fn a_place_is_a_file_or_a_folder_but_not_both() {
    let mut builder = tree(&[("f", "1"), ("d/x", "")]).to_builder(TreeLimits::default());
    let refused = |result: Result<(), TreeBuildError>| result.expect_err("should fail").to_string();
    assert_eq!(
        refused(builder.file(&path("d"), *b"", false)),
        "`d` is a directory, so it cannot be a file too"
    );
    assert_eq!(
        refused(builder.file(&path(""), *b"", false)),
        "`.` is a directory, so it cannot be a file too"
    );
    assert_eq!(refused(builder.dir(&path("f"))), "`f` is a file, so it cannot be a directory too");
    assert_eq!(
        refused(builder.file(&path("f/a/b"), *b"", false)),
        "`f` is a file, so it cannot be a directory too"
    );
    builder.dir(&path("d")).expect("is there already");
    builder.dir(&path("")).expect("is always there");
    builder.file(&path("f"), *b"later", true).expect("replaces");
    let tree = builder.build();
    assert_eq!(*tree.read(&path("f")).expect("a file"), *b"later");
    assert_eq!(tree.len(), 3);
}

#[test]
fn a_builder_answers_as_the_tree_that_it_will_be() {
    let mut builder = tree(&[("d/f", "1")]).to_builder(TreeLimits::default());
    builder.file(&path("d/g"), *b"22", true).expect("is new");
    for file in ["d", "d/f", "d/g", "d/h", "."] {
        let tree = builder.nodes.clone();
        let tree = MemoryTree { nodes: Arc::new(tree), bytes: builder.bytes };
        assert_eq!(builder.entry(&path(file)), tree.entry(&path(file)), "{file}");
        assert_eq!(builder.read(&path(file)), tree.read(&path(file)), "{file}");
    }
    assert_eq!(builder.entry(&path("d/g")), Some(FileMetadata::File { len: 2, executable: true }));
}

#[test]
fn every_limit_is_kept() {
    let limits = TreeLimits { total_bytes: 20, file_bytes: 10, entries: 3, depth: 2 };
    let refused = |fill: &dyn Fn(&mut MemoryTreeBuilder) -> Result<(), TreeBuildError>| {
        fill(&mut MemoryTree::builder(limits)).expect_err("should fail").to_string()
    };
    assert_eq!(
        refused(&|b| b.file(&path("a"), [0; 11], false)),
        "`a` has 11 bytes, more than the 10 allowed for one file"
    );
    assert_eq!(
        refused(&|b| b.file(&path("a"), [0; 9], false).and_then(|()| b.file(
            &path("b"),
            [0; 10],
            false
        ))),
        "with `b` the files and their paths are larger than the 20 bytes allowed"
    );
    assert_eq!(refused(&|b| b.dir(&path("a/b/c"))), "`a/b/c` lies deeper than 2 directories");
    assert_eq!(
        refused(&|b| ["a", "b/c", "d"].iter().try_for_each(|file| b.file(
            &path(file),
            *b"",
            false
        ))),
        "`d` is one more than the 3 files and directories allowed"
    );
    assert_eq!(
        refused(&|b| b.dir(&path("a-long-folder/and-another"))),
        "with `a-long-folder/and-another` the files and their paths are larger than the 20 bytes allowed"
    );
    let mut replacing = MemoryTree::builder(limits);
    for _ in 0..10 {
        replacing.file(&path("a"), [0; 10], false).expect("the old body no longer counts");
    }
    assert_eq!(replacing.build().bytes(), 11);
}

proptest! {
    #[test]
    fn lists_agree_with_the_walk(files in proptest::collection::btree_map("[a-c.\u{1}-]{1,2}(/[a-c.]{1,2}){0,3}", ".{0,3}", 0..12)) {
        let mut builder = MemoryTree::builder(TreeLimits::default());
        let mut bodies = BTreeMap::new();
        for (name, body) in &files {
            let Ok(path) = RelPath::parse(name) else { continue };
            if builder.file(&path, body.as_bytes(), false).is_ok() {
                bodies.insert(path, body.clone());
            }
        }
        let tree = builder.build();
        let mut listed = BTreeSet::new();
        let mut open = vec![RelPath::root()];
        while let Some(dir) = open.pop() {
            let found = tree.list(&dir).expect("a folder");
            prop_assert!(found.is_sorted());
            for (name, kind) in found {
                let path = dir.join(&name).expect("a child");
                prop_assert_eq!(tree.entry(&path).map(FileMetadata::kind), Some(kind));
                if kind == FileKind::Dir {
                    open.push(path.clone());
                }
                listed.insert(path);
            }
        }
        prop_assert!(tree.walk().map(|(path, _)| path.clone()).eq(listed.iter().cloned()));
        for (path, body) in &bodies {
            prop_assert_eq!(&*tree.read(path).expect("a file"), body.as_bytes());
        }
        let counted: usize = listed.iter().map(|path| path.as_str().len()).chain(bodies.values().map(String::len)).sum();
        prop_assert_eq!(tree.bytes(), counted as u64);
    }
}
