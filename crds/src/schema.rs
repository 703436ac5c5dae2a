//! CRDs: the Rust type of a kind as a CustomResourceDefinition.
//!
//! Here: what schemars generates, rewritten into the structural schemas of Kubernetes, and what
//! Flux's CRDs carry around them.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::custom_resource::{KindNames, PrinterColumn};

/// Whether a kind is one of Flux's, so that its commands find it. `flux uninstall` deletes the CRDs that have its label, and
/// takes the finalizers from objects of its own kinds only: others would be kept by theirs, and their CRDs for ever.
fn is_of_flux(names: &KindNames) -> bool {
    names.group.ends_with(".toolkit.fluxcd.io")
}

/// Builds the CRD of a kind from its root type.
pub(crate) fn crd<K: JsonSchema>(names: &KindNames) -> CustomResourceDefinition {
    let strings =
        |strings: &[&str]| strings.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", names.plural, names.group)),
            // A Kustomization that installs the CRDs must not substitute the `${…}` in them.
            annotations: Some(pair("kustomize.toolkit.fluxcd.io/substitute", "disabled")),
            labels: is_of_flux(names).then(|| pair("app.kubernetes.io/part-of", "flux")),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: names.group.to_owned(),
            names: CustomResourceDefinitionNames {
                // Among all objects, records of the past would hide what there is now; gates are of interest by themselves.
                categories: Some(match names.is_record() || names.is_gate() {
                    true => strings(&[names.category]),
                    false => strings(&["all", "fluxcd", names.category]),
                }),
                kind: names.kind.to_owned(),
                list_kind: Some(format!("{}List", names.kind)),
                plural: names.plural.to_owned(),
                short_names: (!names.short.is_empty()).then(|| strings(names.short)),
                singular: Some(names.kind.to_ascii_lowercase()),
            },
            scope: if names.cluster_scoped { "Cluster" } else { "Namespaced" }.to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                additional_printer_columns: Some(names.columns.iter().map(column).collect()),
                name: names.version.to_owned(),
                schema: Some(CustomResourceValidation { open_api_v3_schema: Some(props::<K>()) }),
                served: true,
                storage: true,
                subresources: Some(CustomResourceSubresources {
                    status: names.has_status.then(|| CustomResourceSubresourceStatus(json!({}))),
                    ..CustomResourceSubresources::default()
                }),
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    }
}

fn pair(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn column(column: &PrinterColumn) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        json_path: column.json_path.to_owned(),
        name: column.name.to_owned(),
        type_: column.type_.to_owned(),
        priority: column.priority,
        ..CustomResourceColumnDefinition::default()
    }
}

/// Generates the schema of a root type.
fn props<K: JsonSchema>() -> JSONSchemaProps {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let generator = settings.with_transform(StructuralSchemaRewriter).into_generator();
    let mut root = generator.into_root_schema_for::<K>();
    let root = root.ensure_object();
    // Kubernetes checks the presence of these itself, and Flux's CRDs ask for no spec.
    root.remove("required");
    root.remove("title");
    if let Some(Value::Object(properties)) = root.get_mut("properties") {
        for (name, schema) in type_and_metadata() {
            properties.insert(name.to_owned(), schema);
        }
    }
    serde_json::from_value(Value::Object(root.clone()))
        .expect("every keyword of our types is one of JSONSchemaProps")
}

/// The properties that every root object has before its spec.
fn type_and_metadata() -> [(&'static str, Value); 3] {
    [
        (
            "apiVersion",
            json!({
                "type": "string",
                "description": "The API group and version in which this object is written.",
            }),
        ),
        ("kind", json!({ "type": "string", "description": "The kind of this object." })),
        ("metadata", json!({ "type": "object" })),
    ]
}

/// Rewrites a schema of schemars into one that Kubernetes takes as structural.
///
/// An optional field is one that is not required; `null` is nothing that Flux's schemas admit.
#[derive(Clone)]
struct StructuralSchemaRewriter;

impl Transform for StructuralSchemaRewriter {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        if let Some(Value::Array(kinds)) = object.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [kind] = kinds.as_slice() {
                let kind = kind.clone();
                object.insert("type".to_owned(), kind);
            }
        }
        if let Some(Value::Array(words)) = object.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        // The order of the fields means nothing here, and Flux's CRDs sort it away.
        if let Some(Value::Array(names)) = object.get_mut("required") {
            names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        }
        unwrap_lines(object);
    }
}

/// Joins the lines of a doc comment, whose breaks mean nothing outside of the source.
fn unwrap_lines(schema: &mut Map<String, Value>) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        let paragraphs: Vec<String> =
            description.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        *description = paragraphs.join("\n\n");
    }
}

/// The schema of a value whose shape is the user's own.
pub(crate) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of a label selector.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels with exactly these values.",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "type": "array",
                "description": "What else the labels have to meet.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "description": "The label." },
                        "operator": {
                            "type": "string",
                            "description": "How the value of the label relates to `values`.",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "type": "array",
                            "description": "Values, for `In` and `NotIn`.",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
        },
    })
}

/// Takes the width off an integer: Go's `int` has no format in a schema, `int64` has.
pub(crate) fn without_format(schema: &mut Schema) {
    schema.remove("format");
}
