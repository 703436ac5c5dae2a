//! Every manifest in `config/samples` is an object of one of our kinds and has no field that the kind lacks.
//!
//! Here: all files, with any name and any number of documents.
//! Elsewhere: that every kind has a sample (`samples.rs`).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The text of a file of the checkout.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("the file can be read")
}

/// Files of a folder of the checkout, as paths below its root, sorted.
fn files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("there is the folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("the folder can be read").file_name();
        format!("{folder}/{}", name.to_string_lossy())
    };
    let mut files: Vec<String> = entries.map(name).collect();
    files.sort();
    files
}

/// Fails with everything that was found, a line each.
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn rewritten(object: &Value) -> Result<Value, String> {
    let word = |name: &str| object[name].as_str().unwrap_or_default();
    let none = || format!("{} {} is none of our kinds", word("apiVersion"), word("kind"));
    crds::rewritten(object).ok_or_else(none)?.map_err(|error| error.to_string())
}

/// Members of `part`, at any depth, that `whole` lacks. Values that the type writes differently are not compared.
fn lost(whole: &Value, part: &Value) -> Vec<String> {
    let mut lost = Vec::new();
    let mut waiting = vec![(String::new(), whole, part)];
    while let Some((path, whole, part)) = waiting.pop() {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                for (key, part) in part {
                    let path = format!("{path}.{key}");
                    match whole.get(key) {
                        Some(whole) => waiting.push((path, whole, part)),
                        None => lost.push(path),
                    }
                }
            }
            (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => {
                let pairs = whole.iter().zip(part).enumerate();
                waiting.extend(
                    pairs.map(|(at, (whole, part))| (format!("{path}[{at}]"), whole, part)),
                );
            }
            (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
                lost.push(path);
            }
            _ => {}
        }
    }
    lost
}

/// What is wrong with the objects of a file.
fn faults(path: &str, text: &str) -> Vec<String> {
    let documents = match goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default()) {
        Ok(documents) => documents,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    if documents.is_empty() {
        return vec![format!("{path} holds no object")];
    }
    let mut faults = Vec::new();
    for document in documents {
        let at = format!("{path}:{}", document.line);
        match rewritten(&document.value) {
            Ok(whole) => {
                let lost = lost(&whole, &document.value);
                faults.extend(
                    lost.iter().map(|field| format!("{at}: {field} is not a field of the kind")),
                );
            }
            Err(error) => faults.push(format!("{at}: {error}")),
        }
    }
    faults
}

#[test]
fn every_sample_is_an_object_of_one_of_our_kinds() {
    let samples = files("config/samples");
    assert!(samples.len() >= crds::all().len(), "{samples:?}");
    assert_none(&samples.iter().flat_map(|path| faults(path, &read(path))).collect::<Vec<_>>());
}

#[test]
fn what_the_demo_applies_has_no_field_that_its_kind_lacks() {
    let path = "tools/demo/src/fleet.yaml";
    assert_none(&faults(path, &read(path)));
}

#[test]
fn a_bad_sample_is_found() {
    let good = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata: {name: a}\n\
                spec: {bucketName: a, endpoint: b, interval: 1m}\n";
    assert_none(&faults("a.yaml", good));
    assert_eq!(faults("a.yaml", &good.replace("endpoint", "endpiont")).len(), 1);
    assert_eq!(faults("a.yaml", &good.replace("Bucket\n", "Pail\n")).len(), 1);
    assert_eq!(faults("a.yaml", "a: [\n").len(), 1);
    assert_eq!(faults("a.yaml", "# nothing\n").len(), 1);
}

#[test]
fn a_member_that_is_lost_is_named_with_its_place() {
    let whole = json!({"a": [{"b": 1}]});
    let part = json!({"a": [{"b": 1, "c": 2}]});
    assert_eq!(lost(&whole, &part), [".a[0].c"]);
    assert_eq!(lost(&json!({"a": []}), &json!({"a": [1]})), [".a"]);
}

#[test]
fn the_page_of_kinds_has_a_row_for_each() {
    let page = read("docs/kinds.md");
    let is_named = |kind: &str| page.contains(&format!("\n| `{kind}`"));
    let kinds = crds::all().into_iter().map(|(_, crd)| crd.spec.names.kind);
    assert_none(&kinds.filter(|kind| !is_named(kind)).collect::<Vec<_>>());
    assert!(!is_named("Pail"));
}
