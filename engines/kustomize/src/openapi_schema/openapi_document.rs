//! OpenAPI documents, and schemas in comments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::{AddedOpenApiSchemas, OpenApiSchemas, SchemaShape};

const KINDS: &str = "x-kubernetes-group-version-kind";
const STRATEGY: &str = "x-kubernetes-patch-strategy";
const KEY: &str = "x-kubernetes-patch-merge-key";
const KEYS: &str = "x-kubernetes-list-map-keys";

/// Why a document is not OpenAPI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenApiReadError {
    /// The text is neither JSON nor YAML.
    #[error("invalid schema file: {0}")]
    Yaml(#[from] goyaml::Error),
    /// The document is not a map.
    #[error("invalid schema file: an OpenAPI document is a map")]
    NoMap,
}

/// Adds a document's definitions and paths.
pub(super) fn add(schema: &mut OpenApiSchemas, document: &Value) -> Result<(), OpenApiReadError> {
    let Value::Object(document) = document else { return Err(OpenApiReadError::NoMap) };
    let AddedOpenApiSchemas { shapes, definitions, kinds, scopes } =
        Arc::make_mut(&mut schema.added);
    if let Some(Value::Object(added)) = document.get("definitions") {
        for (name, definition) in added {
            let shape = add_shape(shapes, definition);
            definitions.insert(name.clone(), shape);
            for kind in definition.get(KINDS).and_then(Value::as_array).into_iter().flatten() {
                kinds.extend(kind_of(kind).map(|kind| (kind, shape)));
            }
        }
    }
    if let Some(Value::Object(paths)) = document.get("paths") {
        for (path, item) in paths {
            let Some(kind) = item.pointer("/get").and_then(|get| get.get(KINDS)).and_then(kind_of)
            else {
                continue;
            };
            if path.contains("namespaces/{namespace}") {
                scopes.insert(kind, true);
            } else {
                scopes.entry(kind).or_insert(false);
            }
        }
    }
    Ok(())
}

/// The shapes of the schema in a comment, the outermost first; `None` if the comment has no schema.
pub(super) fn comment(json: &str) -> Option<Vec<SchemaShape>> {
    let mut schema: Value = serde_json::from_str(json).ok()?;
    if schema.as_object()?.is_empty() {
        return None;
    }
    // A reference to a setter in a comment of kpt. It refers to nothing here.
    let shorthand = schema.get("$openapi").and_then(Value::as_str).filter(|name| !name.is_empty());
    if let Some(name) = shorthand {
        let reference = format!("#/definitions/io.k8s.cli.setters.{name}");
        schema =
            Value::Object([("$ref".to_owned(), Value::String(reference))].into_iter().collect());
    }
    let mut shapes = Vec::new();
    add_shape(&mut shapes, &schema);
    Some(shapes)
}

/// Adds the shape of a schema and of its parts. Returns its index.
fn add_shape(shapes: &mut Vec<SchemaShape>, schema: &Value) -> usize {
    let first = shapes.len();
    shapes.push(SchemaShape::default());
    let mut left = VecDeque::from([(first, schema)]);
    while let Some((place, schema)) = left.pop_front() {
        let mut later = |schema| {
            shapes.push(SchemaShape::default());
            left.push_back((shapes.len() - 1, schema));
            shapes.len() - 1
        };
        let fields = schema.get("properties").and_then(Value::as_object);
        let fields = fields.into_iter().flatten().map(|(name, field)| (name.clone(), later(field)));
        let fields: BTreeMap<String, usize> = fields.collect();
        let additional = schema.get("additionalProperties").filter(|it| it.is_object());
        let additional = additional.map(&mut later);
        let items = schema.get("items").filter(|items| items.is_object()).map(&mut later);
        let reference = schema.get("$ref").and_then(Value::as_str).filter(|it| !it.is_empty());
        let is_merged = strategy(schema).is_some_and(|it| it.split(',').any(|it| it == "merge"));
        shapes[place] = SchemaShape {
            reference: reference.map(definition_name),
            fields,
            additional,
            is_list: is_list(schema),
            items,
            is_merged,
            keys: if is_merged { keys(schema) } else { Vec::new() },
        };
    }
    first
}

/// The definition's name in a reference. For any other reference, a name that no definition has.
fn definition_name(reference: &str) -> String {
    let name = reference.strip_prefix("#/definitions/").unwrap_or(reference);
    name.replace("~1", "/").replace("~0", "~")
}

fn is_list(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "array",
        Some(Value::Array(names)) => names.len() == 1 && names[0] == "array",
        _ => false,
    }
}

fn strategy(schema: &Value) -> Option<&str> {
    schema.get(STRATEGY).and_then(Value::as_str)
}

fn keys(schema: &Value) -> Vec<String> {
    let keys = match (schema.get(KEYS), schema.get(KEY)) {
        (Some(Value::Array(keys)), _) => keys.iter().collect(),
        (_, Some(key)) => vec![key],
        _ => Vec::new(),
    };
    keys.into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The API version and the kind that an extension of a schema names. `None` if it lacks the version or the kind.
fn kind_of(kind: &Value) -> Option<(String, String)> {
    let text = |key| kind.get(key).and_then(Value::as_str);
    let version = text("version")?;
    let api_version = match text("group") {
        Some(group) if !group.is_empty() => format!("{group}/{version}"),
        _ => version.to_owned(),
    };
    Some((api_version, text("kind")?.to_owned()))
}
