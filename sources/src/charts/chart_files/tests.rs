//! Charts that are packed: what is in the archive, with other versions, values and dependencies.

use std::collections::BTreeMap;

use super::*;

fn tree(files: &[(&str, &str)]) -> MemoryTree {
    let limits = tree::TreeLimits::default();
    let mut builder = MemoryTree::builder(limits);
    for (path, text) in files {
        builder.file(&RelPath::parse(path).unwrap(), text.as_bytes(), false).unwrap();
    }
    builder.build()
}

const APP: [(&str, &str); 8] = [
    ("charts/app/.helmignore", "*.md\n"),
    (
        "charts/app/Chart.yaml",
        "# ours\napiVersion: v2\nname: app\nversion: v1.2.0\nappVersion: \"1.10\"\n",
    ),
    ("charts/app/README.md", "ignored"),
    ("charts/app/templates/a.yaml", "a: {{ .Values.a }}\n"),
    ("charts/app/values.yaml", "a: 1\n"),
    ("charts/lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 2.0.0\ntype: library\n"),
    ("charts/lib/templates/_a.tpl", "{{- define \"x\" }}{{ end }}"),
    ("other.yaml", "x"),
];

fn at(tree: &MemoryTree, path: &str) -> Result<LoadedChartFiles, Error> {
    LoadedChartFiles::in_tree(tree, &RelPath::parse(path).unwrap())
}

fn packed(files: &LoadedChartFiles) -> Vec<u8> {
    let mut out = Vec::new();
    files.write(&mut out).unwrap();
    out
}

fn names(files: &LoadedChartFiles) -> Vec<String> {
    let archive = packed(files);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive.as_slice()));
    let entries = archive.entries().unwrap();
    entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
}

#[test]
fn a_folder_is_packed_without_what_is_ignored_and_always_to_the_same_bytes() {
    let files = at(&tree(&APP), "./charts/app/").unwrap();
    assert_eq!(
        names(&files),
        ["app/.helmignore", "app/Chart.yaml", "app/templates/a.yaml", "app/values.yaml"]
    );
    let mut turned = files.clone();
    turned.files.reverse();
    assert_eq!(packed(&files), packed(&turned));
    let again = LoadedChartFiles::in_archive(&packed(&files)).unwrap();
    assert_eq!(packed(&again), packed(&files));
    assert_eq!(again.read("Chart.yaml").unwrap(), APP[1].1.as_bytes());
}

#[test]
fn version_and_values_are_replaced_and_all_else_stays() {
    let mut files = at(&tree(&APP), "charts/app").unwrap();
    let version = with_metadata("v1.2.0", "0123456789ab.3").unwrap();
    assert_eq!(version, "1.2.0+0123456789ab.3");
    files.set_version(&version).unwrap();
    files.set_values("a: 2\n".to_owned()).unwrap();
    let again = LoadedChartFiles::in_archive(&packed(&files)).unwrap();
    let metadata = &again.chart().metadata;
    assert_eq!((metadata.version.as_str(), metadata.app_version.as_str()), (&*version, "1.10"));
    assert_eq!(again.read("values.yaml").unwrap(), b"a: 2\n");
    assert_eq!(again.read("templates/a.yaml").unwrap(), APP[3].1.as_bytes());
    let mut lib = at(&tree(&APP), "charts/lib").unwrap();
    assert!(lib.set_values(String::new()).is_err(), "there is nothing to replace");
    assert_eq!(with_metadata("1.0.0+old", "new").unwrap(), "1.0.0+new");
    assert!(with_metadata("1.0.0", "a_b").is_err() && with_metadata("x", "1").is_err());
}

#[test]
fn what_is_listed_and_not_there_is_missing_until_it_is_added() {
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n\
                 - {name: lib, version: 2.x, repository: 'file://../lib'}\n\
                 - {name: lib, version: 2.x, repository: 'file://../lib', alias: again}\n\
                 - {name: there, version: '*', repository: 'https://x'}\n";
    let there = "apiVersion: v2\nname: there\nversion: 1.0.0\n";
    let tree = tree(&[
        ("app/Chart.yaml", chart),
        ("app/charts/there/Chart.yaml", there),
        ("lib/Chart.yaml", APP[5].1),
        ("lib/values.yaml", "x: 1"),
    ]);
    let mut files = at(&tree, "app").unwrap();
    let missing: Vec<String> = files.missing().into_iter().map(|it| it.name).collect();
    assert_eq!(missing, ["lib"]);
    files.add(at(&tree, "lib").unwrap()).unwrap();
    assert_eq!(files.missing().len(), 0);
    let again = LoadedChartFiles::in_archive(&packed(&files)).unwrap();
    assert_eq!(again.chart().charts.len(), 2);
    assert_eq!(again.read("charts/lib/values.yaml").unwrap(), b"x: 1");
}

#[test]
fn a_lock_says_which_versions_are_missing() {
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies: [{name: lib, version: 2.x, repository: 'https://x'}]\n";
    let lock = "dependencies: [{name: lib, version: 2.1.0, repository: 'https://x'}]\ndigest: x\ngenerated: '2026-01-01T00:00:00Z'\n";
    let tree = tree(&[("app/Chart.yaml", chart), ("app/Chart.lock", lock)]);
    let missing = at(&tree, "app").unwrap().missing();
    assert_eq!(missing[0].version, "2.1.0");
}

#[test]
fn a_file_that_is_no_chart_is_reported() {
    let tree = tree(&APP);
    for (path, expected) in [
        ("nowhere", "no chart found at path 'nowhere'"),
        ("other.yaml", "unable to load chart archive"),
        ("charts", "unable to detect chart at /charts/Chart.yaml"),
    ] {
        let error = at(&tree, path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let hostile =
        BTreeMap::from([("..", "not allowed"), ("a/b", "is invalid"), ("\"\"", "required")]);
    for (name, expected) in hostile {
        let chart = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let error = at(&self::tree(&[("app/Chart.yaml", &chart)]), "app").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
