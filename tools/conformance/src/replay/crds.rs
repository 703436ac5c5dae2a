//! Compares windlass's CRDs with those that Flux releases. Each kind is a case.
//!
//! Names, scope, versions, printer columns, subresources and the schema with all of its keywords are compared.
//! Descriptions are not, because windlass has its own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, same};

pub(super) const TOPICS: [Topic; 1] =
    [Topic { name: "flux/crds", path: "flux/crds", judge: crd, exceptions: &[] }];

/// The differences that are on purpose, as `<Kind>: <path>: <what>`.
///
/// Every addition to a kind of Flux is listed here, and nowhere else.
const ADDITIONS: &[&str] = &[
    r#"HelmRepository: /versions/0/schema/properties/spec/properties/url/pattern: "^(http|https|oci)://.*$" became "^(http|https|oci|s3)://.*$""#,
    // The recording is of source-watcher 2.2.2. Flux 2.9.4 ships 2.2.3, in which destinations are local and patterns
    // are limited.
    concat!(
        "ArtifactGenerator: /versions/0/schema/properties/spec/properties/artifacts/items/properties/copy/items/properties/exclude/items/maxLength: ",
        "added 1024"
    ),
    concat!(
        "ArtifactGenerator: /versions/0/schema/properties/spec/properties/artifacts/items/properties/copy/items/properties/to/pattern: ",
        r#""^@(artifact)/(.*)$" became "^@artifact/([^/]{0,1}|[^./][^/]|[.][^./]|[^/]{3,})(/([^/]{0,1}|[^./][^/]|[.][^./]|[^/]{3,}))*$""#
    ),
    // The fields of Flux's open proposal for dependencies on objects of any kind, fluxcd/pkg#1229.
    concat!(
        "Kustomization: /versions/0/schema/properties/spec/properties/dependsOn/items/properties/apiVersion: ",
        r#"added {"type":"string"}"#
    ),
    concat!(
        "Kustomization: /versions/0/schema/properties/spec/properties/dependsOn/items/properties/kind: ",
        r#"added {"type":"string"}"#
    ),
    concat!(
        "Kustomization: /versions/0/schema/properties/spec/properties/dependsOn/items/properties/ready: ",
        r#"added {"type":"boolean"}"#
    ),
    concat!(
        "HelmRelease: /versions/0/schema/properties/spec/properties/dependsOn/items/properties/apiVersion: ",
        r#"added {"type":"string"}"#
    ),
    concat!(
        "HelmRelease: /versions/0/schema/properties/spec/properties/dependsOn/items/properties/kind: ",
        r#"added {"type":"string"}"#
    ),
    concat!(
        "HelmRelease: /versions/0/schema/properties/spec/properties/dependsOn/items/properties/ready: ",
        r#"added {"type":"boolean"}"#
    ),
];

fn crd(case: Case) -> CaseJudgement {
    let flux: Value = case.inputs()?;
    let kind = kind_of(&flux);
    let Some(ours) = condensed(kind) else {
        return Err(CaseFailure::NotRun(format!("kind {kind}: no type yet")));
    };
    let found: BTreeSet<String> =
        differences(&flux, &ours).into_iter().map(|text| format!("{kind}: {text}")).collect();
    let prefix = format!("{kind}: ");
    let wanted: BTreeSet<&str> =
        ADDITIONS.iter().copied().filter(|text| text.starts_with(&prefix)).collect();
    let listed = |strings: Vec<&str>| {
        if strings.is_empty() { "no difference".to_owned() } else { strings.join("; ") }
    };
    same(&listed(wanted.into_iter().collect()), &listed(found.iter().map(String::as_str).collect()))
}

fn kind_of(flux: &Value) -> &str {
    flux.pointer("/names/kind").and_then(Value::as_str).unwrap_or_default()
}

/// The CRD of a kind in the form of the recording. `None` if windlass has no CRD of this kind.
fn condensed(kind: &str) -> Option<Value> {
    let (_, crd) = crds::all().into_iter().find(|(_, crd)| crd.spec.names.kind == kind)?;
    let spec = serde_json::to_value(&crd.spec).ok()?;
    let versions = spec["versions"].as_array()?.iter().map(|version| {
        let mut schema = version["schema"]["openAPIV3Schema"].clone();
        // The recording lacks the type of the root, which Kubernetes requires to be an object.
        if let Some(root) = schema.as_object_mut().filter(|root| root["type"] == "object") {
            root.remove("type");
        }
        drop_descriptions(&mut schema);
        json!({
            "deprecated": version["deprecated"].as_bool().unwrap_or_default(),
            "name": version["name"],
            "printerColumns": version["additionalPrinterColumns"],
            "schema": schema,
            "served": version["served"],
            "storage": version["storage"],
            "subresources": version["subresources"],
        })
    });
    let mut condensed = json!({
        "group": spec["group"],
        "names": spec["names"],
        "scope": spec["scope"],
        "versions": versions.collect::<Vec<_>>(),
    });
    drop_descriptions(&mut condensed);
    Some(condensed)
}

/// Removes descriptions from schemas. A property with the name `description` stays.
fn drop_descriptions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            map.values_mut().for_each(drop_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_descriptions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The places where two CRDs differ, as JSON pointers with both values.
fn differences(flux: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), flux, ours)];
    while let Some((path, flux, ours)) = open.pop() {
        match (flux, ours) {
            (Value::Object(flux), Value::Object(ours)) => {
                let keys: BTreeSet<&String> = flux.keys().chain(ours.keys()).collect();
                for key in keys {
                    let path = format!("{path}/{key}");
                    match (flux.get(key), ours.get(key)) {
                        (Some(flux), Some(ours)) => open.push((path, flux, ours)),
                        (Some(flux), None) => found.push(format!("{path}: missing {flux}")),
                        (None, Some(ours)) => found.push(format!("{path}: added {ours}")),
                        (None, None) => {}
                    }
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                let pairs = a.iter().zip(b).enumerate();
                open.extend(
                    pairs.map(|(index, (flux, ours))| (format!("{path}/{index}"), flux, ours)),
                );
            }
            // k8s-openapi stores limits as floats, so 0 is written as 0.0.
            (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
            (flux, ours) if flux == ours => {}
            (flux, ours) => found.push(format!("{path}: {flux} became {ours}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(kind: &str) -> Value {
        let path = testbed::root().join(format!("e2e/conformance/flux/crds/{kind}.json"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn every_crd_of_flux_has_a_record() {
        for (_, crd) in crds::all() {
            let kind = &crd.spec.names.kind;
            if !crd.spec.group.ends_with(".fluxcd.io") {
                continue;
            }
            assert_eq!(kind_of(&recorded(kind)), kind);
        }
    }

    #[test]
    fn every_difference_is_found() {
        let ours = condensed("Kustomization").unwrap();
        // The CRD of Flux with windlass's additions.
        let flux = ours.clone();
        assert_eq!(differences(&flux, &ours), Vec::<String>::new());
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
            let mut changed = ours.clone();
            let place = changed.pointer_mut(path).expect("the path exists");
            assert_ne!(*place, value);
            *place = value;
            let found = differences(&flux, &changed);
            assert!(!found.is_empty(), "a change of {path} went unnoticed");
            assert!(found.iter().all(|difference| difference.starts_with(path)), "{found:?}");
        }
    }

    #[test]
    fn a_field_of_ours_only_and_one_of_flux_only_are_differences() {
        let flux = json!({"a": 1, "b": {"c": 0}});
        let ours = json!({"b": {"c": 0.0}, "d": 2});
        assert_eq!(differences(&flux, &ours), ["/a: missing 1", "/d: added 2"]);
    }
}
