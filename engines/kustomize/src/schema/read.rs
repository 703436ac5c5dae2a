//! OpenAPI documents, schemas in comments, and the built-in table.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::{Schema, Shape, Text};

const KINDS: &str = "x-kubernetes-group-version-kind";
const STRATEGY: &str = "x-kubernetes-patch-strategy";
const KEY: &str = "x-kubernetes-patch-merge-key";
const KEYS: &str = "x-kubernetes-list-map-keys";

/// Why a document is no OpenAPI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Neither JSON nor YAML.
    #[error("invalid schema file: {0}")]
    Yaml(#[from] goyaml::Error),
    /// Not a map.
    #[error("invalid schema file: an OpenAPI document is a map")]
    NoMap,
}

/// Adds a document's definitions and paths.
pub(super) fn add(schema: &mut Schema, document: &str) -> Result<(), ReadError> {
    let document = goyaml::to_json(document.as_bytes())?;
    let Value::Object(document) = &document else { return Err(ReadError::NoMap) };
    let mut shapes = (*schema.shapes).clone();
    let mut definitions = (*schema.definitions).clone();
    let mut kinds = (*schema.kinds).clone();
    if let Some(Value::Object(added)) = document.get("definitions") {
        for (name, definition) in added {
            let shape = add_shape(&mut shapes, definition);
            definitions.insert(name.clone().into(), shape);
            for kind in definition.get(KINDS).and_then(Value::as_array).into_iter().flatten() {
                kinds.extend(kind_of(kind).map(|kind| (kind, shape)));
            }
        }
    }
    schema.shapes = Arc::new(shapes);
    schema.definitions = Arc::new(definitions);
    schema.kinds = Arc::new(kinds);
    if let Some(Value::Object(paths)) = document.get("paths") {
        let mut scopes = (*schema.scopes).clone();
        for (path, item) in paths {
            let Some(kind) = item.pointer("/get").and_then(|get| get.get(KINDS)).and_then(kind_of)
            else {
                continue;
            };
            // Parity(kustomize): the scope of a built-in kind stays as it is.
            if super::BUILTIN.scopes.contains_key(&kind) {
                continue;
            }
            if path.contains("namespaces/{namespace}") {
                scopes.insert(kind, true);
            } else {
                scopes.entry(kind).or_insert(false);
            }
        }
        schema.scopes = Arc::new(scopes);
    }
    Ok(())
}

/// The shapes of a comment's schema, the outermost first; `None` if it says nothing.
pub(super) fn comment(json: &str) -> Option<Vec<Shape>> {
    let mut schema: Value = serde_json::from_str(json).ok()?;
    if schema.as_object()?.is_empty() {
        return None;
    }
    // What setters are called in kpt's comments; such references lead nowhere here.
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

/// Adds the shape of a schema and of what is in it; returns its place.
fn add_shape(shapes: &mut Vec<Shape>, schema: &Value) -> usize {
    let first = shapes.len();
    shapes.push(Shape::default());
    let mut left = VecDeque::from([(first, schema)]);
    while let Some((place, schema)) = left.pop_front() {
        let mut later = |schema| {
            shapes.push(Shape::default());
            left.push_back((shapes.len() - 1, schema));
            shapes.len() - 1
        };
        let fields = schema.get("properties").and_then(Value::as_object);
        let fields = fields
            .into_iter()
            .flatten()
            .map(|(name, field)| (Text::Owned(name.clone()), later(field)));
        let fields: BTreeMap<Text, usize> = fields.collect();
        let additional = schema.get("additionalProperties").filter(|it| it.is_object());
        let additional = additional.map(&mut later);
        let items = schema.get("items").filter(|items| items.is_object()).map(&mut later);
        let reference = schema.get("$ref").and_then(Value::as_str).filter(|it| !it.is_empty());
        let is_merged = strategy(schema).is_some_and(|it| it.split(',').any(|it| it == "merge"));
        shapes[place] = Shape {
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

/// The definition's name in a reference; one to anything else names nothing that is known.
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

/// The API version and the kind that an extension names.
fn kind_of(kind: &Value) -> Option<(Text, Text)> {
    let text = |key| kind.get(key).and_then(Value::as_str);
    let version = text("version")?;
    let api_version = match text("group") {
        Some(group) if !group.is_empty() => format!("{group}/{version}"),
        _ => version.to_owned(),
    };
    Some((api_version.into(), text("kind")?.to_owned().into()))
}

/// Reads the built-in table. A line that is none is skipped; a test sees that there is none.
pub(super) fn builtin(table: &'static str) -> Schema {
    let lines = |name: &str| {
        let begin = table.find(name).map_or("", |at| &table[at + name.len()..]);
        begin.split("\n= ").next().unwrap_or_default().lines()
    };
    // Three words of a line, of which the first two may name a kind.
    let words = |line: &'static str| {
        let mut words = line.split_ascii_whitespace();
        let kind = (Text::Borrowed(words.next()?), Text::Borrowed(words.next()?));
        Some((kind, words.next()?))
    };
    let definition = |line: &'static str| {
        let mut words = line.split_ascii_whitespace();
        Some((Text::Borrowed(words.next()?), words.next()?.parse().ok()?))
    };
    let kind = |line| words(line).and_then(|(kind, place)| Some((kind, place.parse().ok()?)));
    let scope = |line| words(line).map(|(kind, scope)| (kind, scope == "namespace"));
    Schema {
        shapes: Arc::new(lines("\n= shapes\n").map(shape).collect()),
        definitions: Arc::new(lines("\n= definitions\n").filter_map(definition).collect()),
        kinds: Arc::new(lines("\n= kinds\n").filter_map(kind).collect()),
        scopes: Arc::new(lines("\n= scopes\n").filter_map(scope).collect()),
    }
}

fn shape(line: &'static str) -> Shape {
    let mut words = line.split_ascii_whitespace();
    let what = words.next().unwrap_or_default();
    let (what, keys) = what.split_once(':').unwrap_or((what, ""));
    let mut shape = Shape {
        is_list: matches!(what, "list" | "merge"),
        is_merged: what == "merge",
        keys: keys.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect(),
        ..Shape::default()
    };
    for (name, place) in words.filter_map(|word| word.split_once('=')) {
        let Ok(place) = place.parse() else { continue };
        match name {
            "[]" => shape.items = Some(place),
            "*" => shape.additional = Some(place),
            _ => {
                shape.fields.insert(name.into(), place);
            }
        }
    }
    shape
}
