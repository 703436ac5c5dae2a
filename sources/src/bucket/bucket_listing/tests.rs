//! Keys and the files that they become; the revision as Flux computes it.

use expect_test::expect;

use super::*;

fn listed(objects: &[(&str, &str)]) -> Result<BucketListing, Error> {
    let mut listed = BucketListing::default();
    for (key, etag) in objects {
        if let Some(path) = place(key)? {
            let object = ListedBucketObject {
                key: (*key).to_owned(),
                etag: (*etag).to_owned(),
                size: 1,
                generation: None,
            };
            listed.add(path, object)?;
        }
    }
    listed.check(&crate::bucket::tests::remote("b"))?;
    Ok(listed)
}

#[test]
fn the_revision_is_the_digest_of_the_sorted_index() {
    // `printf 'a/b 2\na0 3\nz 1\n' | sha256sum`: sorted by the bytes of the keys, not as a walk visits files.
    let listed = listed(&[("z", "1"), ("a/b", "2"), ("a0", "3"), ("dir/", "4")]).unwrap();
    expect!["sha256:acdbf3684852d3b5059ba881a2ca5d5916d3191084ed18d74d9e0e7245efa48b"]
        .assert_eq(&listed.revision());
    // `sha256sum </dev/null`
    assert_eq!(
        BucketListing::default().revision(),
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
}

#[test]
fn keys_become_files_inside_or_are_refused() {
    for (key, path) in [
        ("a.yaml", Some("a.yaml")),
        ("a/b.yaml", Some("a/b.yaml")),
        ("/a.yaml", Some("a.yaml")),
        ("//a//b.yaml", Some("a/b.yaml")),
        ("a b/ü.yaml", Some("a b/ü.yaml")),
        ("..a/...", Some("..a/...")),
        ("folder/", None),
        ("/", None),
    ] {
        let found = place(key).unwrap();
        assert_eq!(found.as_ref().map(RelPath::as_str), path, "{key}");
    }
    let long = "x".repeat(5000);
    for key in [
        "../a",
        "a/../../b",
        "a/..",
        "a/./b",
        "..",
        "",
        "a\\b",
        "..\\a",
        "a\0b",
        "a\nb",
        long.as_str(),
    ] {
        let error = place(key).unwrap_err();
        assert!(matches!(error, Error::Key { .. }), "{key:?}: {error:?}");
        assert!(error.to_string().len() < 1000, "{error}");
    }
    expect![[r"object 'a/../../b' cannot be a file: it has a segment `.` or `..`; rename it, or choose a spec.prefix without it"]]
        .assert_eq(&place("a/../../b").unwrap_err().to_string());
}

#[test]
fn two_keys_for_one_place_are_refused_and_case_tells_names_apart() {
    for keys in [["a/b", "a//b"], ["/a", "a"], ["a", "a/b"], ["a/b/c", "a"]] {
        let error = listed(&keys.map(|key| (key, "1"))).unwrap_err();
        assert!(matches!(error, Error::Collision { .. }), "{keys:?}: {error}");
        assert!(keys.iter().all(|key| error.to_string().contains(key)), "{error}");
    }
    assert_eq!(listed(&[("A", "1"), ("a", "2")]).unwrap().len(), 2);
}

#[test]
fn too_much_is_rejected_before_anything_is_fetched() {
    let remote = crate::bucket::tests::remote("b");
    let object = |key: &str, size| ListedBucketObject {
        key: key.to_owned(),
        etag: "1".to_owned(),
        size,
        generation: None,
    };
    let mut listed = BucketListing::default();
    listed.add(RelPath::parse("a").unwrap(), object("a", remote.limits.file_bytes + 1)).unwrap();
    assert!(listed.check(&remote).unwrap_err().to_string().starts_with("object 'a' has"));
    let mut listed = BucketListing::default();
    for n in 0..5 {
        let key = format!("f{n}");
        listed.add(RelPath::parse(&key).unwrap(), object(&key, remote.limits.file_bytes)).unwrap();
    }
    assert!(listed.check(&remote).unwrap_err().to_string().starts_with("bucket 'b' has"));
}
