//! Every definition equals Flux's, as recorded from its released CRDs.
//!
//! Compared: names, scope, versions, printer columns, subresources, and the schema with all of its
//! keywords. Not compared: descriptions, which are our own.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// The differences that we want, as `<Kind>: <path>: <what>`. There are none.
///
/// An addition to a kind of Flux's is listed here and nowhere else.
const ADDITIONS: &[&str] = &[];

#[test]
fn every_definition_equals_that_of_flux() {
    let mut found = Vec::new();
    for (_, definition) in crds::all() {
        let kind = definition.spec.names.kind.clone();
        compare("", &recorded(&kind), &condensed(&definition), &mut |difference| {
            found.push(format!("{kind}: {difference}"));
        });
    }
    found.sort();
    assert_eq!(found, ADDITIONS, "differences from Flux:\n{}\n", found.join("\n"));
}

#[test]
fn every_difference_is_found() {
    let (_, definition) = crds::all()
        .into_iter()
        .find(|(_, definition)| definition.spec.names.kind == "Kustomization")
        .expect("it is one of them");
    let flux = recorded("Kustomization");
    for (path, value) in [
        ("/names/shortNames", json!(["kus"])),
        ("/versions/0/printerColumns/0/jsonPath", json!(".metadata.name")),
        ("/versions/0/schema/properties/spec/required", json!(["interval", "prune"])),
        (
            "/versions/0/schema/properties/spec/properties/deletionPolicy/enum",
            json!(["MirrorPrune", "Delete", "WaitForTermination"]),
        ),
        ("/versions/0/schema/properties/spec/properties/namePrefix/maxLength", json!(201)),
        ("/versions/0/schema/properties/status/default", json!({})),
        (
            "/versions/0/schema/properties/spec/properties/kubeConfig/x-kubernetes-validations/0/rule",
            json!("true"),
        ),
    ] {
        let mut ours = condensed(&definition);
        let place = ours.pointer_mut(path).expect("the path exists");
        assert_ne!(*place, value);
        *place = value;
        let mut found = Vec::new();
        compare("", &flux, &ours, &mut |difference| found.push(difference));
        assert!(!found.is_empty(), "a change of {path} went unnoticed");
        assert!(found.iter().all(|difference| difference.starts_with(path)), "{found:?}");
    }
}

#[test]
fn the_files_are_named_for_the_definitions() {
    for (file, definition) in crds::all() {
        let name = definition.metadata.name.expect("every definition has a name");
        assert_eq!(file, format!("{name}.yaml"));
    }
}

#[test]
fn every_definition_is_marked_as_a_part_of_flux() {
    for (file, definition) in crds::all() {
        let labels = definition.metadata.labels.expect("there are labels");
        assert_eq!(labels["app.kubernetes.io/part-of"], "flux", "{file}");
        let annotations = definition.metadata.annotations.expect("there are annotations");
        assert_eq!(annotations["kustomize.toolkit.fluxcd.io/substitute"], "disabled", "{file}");
    }
}

#[test]
fn every_field_is_described() {
    let mut bare = Vec::new();
    for (file, definition) in crds::all() {
        let version = serde_json::to_value(&definition.spec.versions[0]).expect("it is JSON");
        let root = &version["schema"]["openAPIV3Schema"];
        assert!(root["description"].is_string(), "{file}");
        let mut open = vec![(String::new(), root)];
        while let Some((path, schema)) = open.pop() {
            let properties = schema["properties"].as_object().into_iter().flatten();
            for (name, property) in properties {
                let path = format!("{path}.{name}");
                if !property["description"].is_string() && path != ".metadata" {
                    bare.push(format!("{file}: {path}"));
                }
                open.push((path, property));
            }
            open.extend(schema.get("items").map(|items| (format!("{path}[]"), items)));
        }
    }
    assert_eq!(bare, [""; 0]);
}

/// The recorded definition of a kind.
fn recorded(kind: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../e2e/conformance/flux/crds")
        .join(format!("{kind}.json"));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error}", path.display()))
        .expect("the recorded definition can be read");
    serde_json::from_str(&text).expect("the record is JSON")
}

/// Our definition in the form of the record.
fn condensed(definition: &CustomResourceDefinition) -> Value {
    let spec = serde_json::to_value(&definition.spec).expect("a definition is JSON");
    let versions: Vec<Value> = spec["versions"]
        .as_array()
        .expect("there are versions")
        .iter()
        .map(|version| {
            json!({
                "deprecated": version["deprecated"].as_bool().unwrap_or_default(),
                "name": version["name"],
                "printerColumns": version["additionalPrinterColumns"],
                "schema": version["schema"]["openAPIV3Schema"],
                "served": version["served"],
                "storage": version["storage"],
                "subresources": version["subresources"],
            })
        })
        .collect();
    let mut condensed = json!({
        "group": spec["group"],
        "names": spec["names"],
        "scope": spec["scope"],
        "versions": versions,
    });
    drop_descriptions(&mut condensed);
    // The record leaves the type of the root out, which Kubernetes wants to be this one.
    for version in condensed["versions"].as_array_mut().expect("it is a list") {
        let root = version["schema"].as_object_mut().expect("a schema is an object");
        assert_eq!(root.remove("type"), Some(json!("object")));
    }
    condensed
}

/// Removes descriptions from schemas, but not the property of a schema that has that name.
fn drop_descriptions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            map.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        _ => {}
    }
}

/// Reports where two values differ, as JSON pointers with what stands there.
fn compare(path: &str, flux: &Value, ours: &Value, report: &mut impl FnMut(String)) {
    match (flux, ours) {
        (Value::Object(flux), Value::Object(ours)) => {
            let keys: BTreeMap<&String, ()> =
                flux.keys().chain(ours.keys()).map(|key| (key, ())).collect();
            for key in keys.into_keys() {
                let path = format!("{path}/{key}");
                match (flux.get(key), ours.get(key)) {
                    (Some(flux), Some(ours)) => compare(&path, flux, ours, report),
                    (Some(flux), None) => report(format!("{path}: missing {flux}")),
                    (None, Some(ours)) => report(format!("{path}: added {ours}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (flux, ours)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}/{index}"), flux, ours, report);
            }
        }
        // k8s-openapi holds bounds as floats, so 0 is written as 0.0.
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        (flux, ours) if flux == ours => {}
        (flux, ours) => report(format!("{path}: {flux} became {ours}")),
    }
}
