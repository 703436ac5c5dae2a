//! Tests that each list of kinds in other crates has every kind that it needs. The test of a missing kind names the kind and
//! the file of the list.
//!
//! Elsewhere: the check that a test knows every field of a kind's spec (`xtask/src/tidy/kind_field_tests.rs`).

use std::collections::BTreeSet;

use cause::{object_references, required_secret_keys};
use crds::notification::{Alert, AlertSpec};
use crds::{Artifact, KindNames};
use notification_controller::object_selection_annotations::{self, EVENT_SOURCES};
use objects::Object;
use reconcile::ObjectKey;
use serde_json::json;
use windlass_runtime::source_catalog::artifact_owner;

use super::*;

/// A kind with the schemas of its spec and its status. The schema of the status is `null` if the kind has none.
struct DefinedKind {
    names: &'static KindNames,
    spec: Value,
    status: Value,
}

impl DefinedKind {
    /// All kinds that windlass defines, with the schemas of spec and status from their CRDs.
    fn all() -> Vec<Self> {
        let of = |names: &'static KindNames, crd: &Value| {
            let part = |part: &str| {
                let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/{part}");
                crd.pointer(&path).cloned().unwrap_or_default()
            };
            Self { names, spec: part("spec"), status: part("status") }
        };
        let crds = crds::all().into_iter().map(|(_, crd)| serde_json::to_value(crd).unwrap());
        crds::names().zip(crds).map(|(names, crd)| of(names, &crd)).collect()
    }

    /// The entry of the kind in the list of kinds.
    fn registration(&self) -> &'static KindRegistration {
        let is_its = |it: &&KindRegistration| (it.name)() == [self.names.group, self.names.kind];
        KINDS.iter().find(is_its).unwrap()
    }

    /// An object of the kind with this spec.
    fn object(&self, spec: &Value) -> Object {
        let KindNames { group, version, kind, .. } = self.names;
        let api_version = format!("{group}/{version}");
        let metadata = json!({"name": "app", "namespace": "apps"});
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        Object::new(object).unwrap()
    }

    /// Specs of the kind with one reference each. `reference` returns a value for a field that holds a reference, and `None`
    /// for other fields.
    fn specs(&self, reference: fn(&str, &Value) -> Option<Value>) -> Vec<Value> {
        values("", &self.spec, reference)
    }
}

/// The values of a field with one reference each. A list or map in them has one element. `reference` returns `None` for a field
/// that holds no reference.
fn values(field: &str, schema: &Value, reference: fn(&str, &Value) -> Option<Value>) -> Vec<Value> {
    let Some(parts) = schema.as_object() else { return Vec::new() };
    if let Some(value) = reference(field, schema) {
        return vec![value];
    }
    let below = |part: &str| parts.get(part).into_iter();
    let properties = below("properties").filter_map(Value::as_object).flatten();
    let of_properties = properties.flat_map(|(name, schema)| {
        values(name, schema, reference).into_iter().map(move |value| json!({name: value}))
    });
    let of_items = below("items").flat_map(|schema| values("", schema, reference));
    let of_maps = below("additionalProperties").flat_map(|schema| values("", schema, reference));
    of_properties
        .chain(of_items.map(|value| json!([value])))
        .chain(of_maps.map(|value| json!({"a": value})))
        .collect()
}

/// A value for a field that names a Secret. `None` for any other field.
fn secret(field: &str, _schema: &Value) -> Option<Value> {
    match field {
        "valuesFrom" | "substituteFrom" | "envFrom" => {
            Some(json!([{"kind": "Secret", "name": "it"}]))
        }
        "secretRef" => Some(json!({"name": "it"})),
        field => field.ends_with("SecretRef").then(|| json!({"name": "it"})),
    }
}

/// A value for a field that names an object of several kinds. `None` if no kind of a source is among them.
fn source(_field: &str, schema: &Value) -> Option<Value> {
    let kinds = schema.pointer("/properties/kind/enum")?.as_array()?;
    let kind = kinds.iter().find(|it| *it == "GitRepository" || *it == "OCIRepository")?;
    Some(json!({"kind": kind, "name": "it"}))
}

#[test]
fn every_kind_that_applies_objects_is_known_as_an_owner() {
    let owners = KINDS.iter().filter_map(|kind| Some(((kind.name)(), kind.ownership?)));
    let owners: BTreeSet<_> = owners
        .map(|([group, kind], it)| [group, kind, it.name.to_owned(), it.namespace.to_owned()])
        .collect();
    let known = object_references::owner_labels();
    let known = known.map(|it| [it.group.into(), it.kind.into(), it.name, it.namespace]);
    assert_eq!(known.collect::<BTreeSet<[String; 4]>>(), owners);
}

#[test]
fn every_kind_with_a_definition_is_run() {
    let defined: BTreeSet<_> =
        crds::all().into_iter().map(|(_, crd)| [crd.spec.group, crd.spec.names.kind]).collect();
    assert_eq!(KINDS.iter().map(|kind| (kind.name)()).collect::<BTreeSet<_>>(), defined);
}

#[test]
fn every_kind_without_a_status_or_a_run_is_known_to_have_no_runs() {
    let mut wrong = Vec::new();
    for kind in DefinedKind::all() {
        // The run of an ExternalArtifact does nothing.
        let is_run =
            kind.registration().observed.is_some() && kind.names.kind != "ExternalArtifact";
        let has_runs = is_run && !kind.status.is_null();
        if has_runs == object_references::has_no_runs(&kind.object(&json!({}))) {
            wrong.push(format!("{} has runs: {has_runs}", kind.names.kind));
        }
    }
    let list = "`has_no_runs` of engines/cause/src/object_references.rs";
    assert!(wrong.is_empty(), "{list} is wrong: {wrong:?}");
}

#[test]
fn of_every_secret_that_a_spec_names_it_is_known_which_keys_it_needs() {
    let mut unknown = Vec::new();
    let mut count = 0;
    for kind in DefinedKind::all() {
        for spec in kind.specs(secret) {
            count += 1;
            let object = kind.object(&spec);
            let references = object_references::references(&object);
            let is_known = |(id, field): &(objects::ObjectId, String)| {
                id.kind == "Secret" && required_secret_keys::are_known(&object, field)
            };
            if !references.iter().any(is_known) {
                unknown.push(format!("{} {spec}", kind.names.kind));
            }
        }
    }
    assert!(count > 30, "{count}");
    let list = "engines/cause/src/required_secret_keys.rs has no rule for";
    assert!(unknown.is_empty(), "{list} {unknown:?}");
}

#[test]
fn every_source_that_a_spec_names_is_known_as_one() {
    let mut unknown = Vec::new();
    let mut count = 0;
    // Alerts and Receivers concern objects of many kinds, and have no files.
    let has_files = |kind: &DefinedKind| kind.names.category != "fluxcd-notifications";
    for kind in DefinedKind::all().into_iter().filter(has_files) {
        for spec in kind.specs(source) {
            count += 1;
            if object_references::sources(&kind.object(&spec)).is_empty() {
                unknown.push(format!("{} {spec}", kind.names.kind));
            }
        }
    }
    assert!(count > 5, "{count}");
    let list = "`sources` of engines/cause/src/object_references.rs does not find";
    assert!(unknown.is_empty(), "{list} {unknown:?}");
}

#[test]
fn every_kind_whose_artifacts_are_served_is_known_to_those_who_fetch_one_from_elsewhere() {
    let mut unknown = Vec::new();
    let node = ObjectKey::new("source.toolkit.fluxcd.io", "ExternalArtifact", "team", "app");
    for kind in DefinedKind::all() {
        if kind.status.pointer("/properties/artifact").is_none() {
            continue;
        }
        let folder = kind.names.kind.to_ascii_lowercase();
        let artifact: Artifact = serde_json::from_value(json!({
            "path": "", "url": format!("http://h/{folder}/other/app/1.tar.gz"), "digest": "sha256:0",
            "revision": "1", "lastUpdateTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        if artifact_owner::check(&node, &artifact, true).is_ok() {
            unknown.push(folder);
        }
    }
    let list = "`KINDS` of operator/runtime/src/source_catalog/artifact_owner.rs does not have";
    assert!(unknown.is_empty(), "{list} {unknown:?}");
}

#[test]
fn an_alert_can_name_every_kind_that_is_run_by_its_spec_or_by_an_annotation() {
    let all = DefinedKind::all();
    let alerts = all.iter().find(|it| it.names.kind == "Alert").unwrap();
    let kinds = "/properties/eventSources/items/properties/kind/enum";
    let of_flux = alerts.spec.pointer(kinds).and_then(Value::as_array).unwrap();
    let mut unknown = Vec::new();
    for kind in &all {
        let KindNames { kind: name, category, .. } = kind.names;
        // Parity(flux): no Alert is about Alerts, Providers and Receivers.
        let is_left_out =
            *category == "fluxcd-notifications" || of_flux.iter().any(|it| it == name);
        if kind.registration().observed.is_none() || is_left_out {
            continue;
        }
        let mut alert = Alert::new("a", AlertSpec::default());
        let entry = format!("{name}/app");
        alert.metadata.annotations = Some([(EVENT_SOURCES.to_owned(), entry)].into());
        if object_selection_annotations::named(&alert, EVENT_SOURCES).is_err() {
            unknown.push(*name);
        }
    }
    let list = "operator/notification/src/object_selection_annotations.rs does not have";
    assert!(unknown.is_empty(), "{list} {unknown:?}");
}
