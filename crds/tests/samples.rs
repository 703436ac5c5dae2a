//! Every sample in `config/samples` is an object of the kind that its file is named for, such as `bucket.yaml` and
//! `bucket-gcp.yaml`, and says nothing that the types do not know.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../config/samples"))
}

/// The samples by the kinds that their names begin with, in lower case.
fn samples() -> BTreeSet<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder()).expect("there are samples");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let kind = |path: &Path| {
        let name = path.file_stem().expect("a file has a name").to_string_lossy();
        name.split('-').next().unwrap_or_default().to_owned()
    };
    paths.map(|path| (kind(&path), path)).collect()
}

/// Reads the samples of a kind and checks that nothing in them is lost on the way through the type.
fn check<K>()
where
    K: DeserializeOwned + Serialize + Resource<DynamicType = ()>,
{
    let own = K::kind(&()).to_lowercase();
    for (_, file) in samples().iter().filter(|(kind, _)| *kind == own) {
        check_file::<K>(file);
    }
}

fn check_file<K>(file: &Path)
where
    K: DeserializeOwned + Serialize + Resource<DynamicType = ()>,
{
    let bytes = std::fs::read(file)
        .map_err(|error| format!("{}: {error}", file.display()))
        .expect("a sample can be read");
    let sample = goyaml::to_json(&bytes).expect("a sample is YAML");
    let object: K = serde_json::from_value(sample.clone())
        .map_err(|error| format!("{}: {error}", file.display()))
        .expect("a sample is an object of its kind");
    assert!(object.meta().namespace.is_some(), "{} names no namespace", file.display());
    let written = serde_json::to_value(&object).expect("an object can be written");
    assert_contains(&file.display().to_string(), &written, &sample);
}

/// Checks that everything in `part` is in `whole` too, which may hold defaults besides.
fn assert_contains(path: &str, whole: &Value, part: &Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, part) in part {
                let path = format!("{path}: {key}");
                assert!(whole.contains_key(key), "{path} is not a field of the kind");
                assert_contains(&path, &whole[key], part);
            }
        }
        (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => {
            for (whole, part) in whole.iter().zip(part) {
                assert_contains(path, whole, part);
            }
        }
        (whole, part) => assert_eq!(whole, part, "{path}"),
    }
}

#[test]
fn every_sample_is_an_object_of_its_kind() {
    check::<crds::source::Bucket>();
    check::<crds::source::ExternalArtifact>();
    check::<crds::source::GitRepository>();
    check::<crds::source::HelmChart>();
    check::<crds::source::HelmRepository>();
    check::<crds::source::OCIRepository>();
    check::<crds::kustomize::Kustomization>();
    check::<crds::helm::HelmRelease>();
    check::<crds::windlass::HTTPArchive>();
}

#[test]
fn the_samples_are_those_of_our_kinds() {
    let kinds: BTreeSet<String> =
        crds::all().iter().map(|(_, crd)| crd.spec.names.kind.to_lowercase()).collect();
    let of_files: BTreeSet<String> = samples().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(of_files, kinds);
}
