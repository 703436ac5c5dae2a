//! Makes objects from a schema: one with all fields of the schema, and one with only the required fields.

use crdguard::CrdVersionSchema;
use serde_json::{Map, Value, json};

/// How many levels of an object are filled.
const MAX_DEPTH: usize = 24;

/// How often an invalid field is removed from an object.
const MAX_REPAIRS: usize = 400;

/// Strings that match many patterns.
const STRINGS: [&str; 30] = [
    "a",
    "a-b",
    "A",
    "1",
    "1h",
    "1h0m0s",
    "1Gi",
    "100m",
    "10%",
    "0",
    "v1",
    "1.2.3",
    "a.b",
    "a.b.c",
    "a/b",
    "/",
    "/a",
    "a@b.c",
    "http://a.b",
    "https://a.b",
    "oci://a.b/c",
    "ssh://a@b.c/d",
    "10.0.0.1",
    "10.0.0.0/8",
    "*",
    "a=b",
    "True",
    "arn:aws:iam::123456789012:role/a",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "123e4567-e89b-42d3-a456-426614174000",
];

/// Objects in a version of a definition that are valid in it.
pub(super) fn of(definition: &Value, version: &str) -> Vec<Value> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let found = versions.into_iter().find(|it| it["name"] == version);
    let Some(schema) = found.map(|it| &it["schema"]["openAPIV3Schema"]) else {
        return Vec::new();
    };
    let keeps = definition["spec"]["preserveUnknownFields"] == true;
    let Some(read) = CrdVersionSchema::read(schema, keeps) else { return Vec::new() };
    let spec = &definition["spec"];
    let mut all: Vec<Value> = Vec::new();
    for is_full in [false, true] {
        let mut object = filled(schema, is_full, MAX_DEPTH);
        object["apiVersion"] =
            format!("{}/{version}", spec["group"].as_str().unwrap_or_default()).into();
        object["kind"] = spec["names"]["kind"].clone();
        object["metadata"] = json!({"name": if is_full { "full" } else { "least" }});
        if spec["scope"] == "Namespaced" {
            object["metadata"]["namespace"] = "default".into();
        }
        all.extend(valid(&read, object).and_then(|it| kept(definition, version, &read, it)));
    }
    all
}

/// The object as the API server stores it. Without a conversion, the schema of the storage version drops fields that it lacks.
/// `None` if that makes the object invalid.
fn kept(
    definition: &Value,
    version: &str,
    read: &CrdVersionSchema,
    object: Value,
) -> Option<Value> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array().into_iter().flatten();
    let storage = versions.into_iter().find(|it| it["storage"] == true && it["name"] != version);
    let Some(storage) = storage.filter(|_| spec["conversion"]["strategy"] != "Webhook") else {
        return Some(object);
    };
    let keeps = spec["preserveUnknownFields"] == true;
    let stored = CrdVersionSchema::read(&storage["schema"]["openAPIV3Schema"], keeps)?;
    read.create(&stored.create(&object)?.ok()?)?.ok()
}

/// The object as the API server would store it, without invalid fields. `None` if nothing valid is left.
fn valid(schema: &CrdVersionSchema, mut object: Value) -> Option<Value> {
    for _ in 0..MAX_REPAIRS {
        match schema.create(&object)? {
            Ok(stored) => return Some(stored),
            Err(why) => {
                let path = why.first()?.split(' ').next()?.to_owned();
                let parts: Vec<&str> = parts(&path);
                if !(0..parts.len()).any(|up| remove(&mut object, &parts[..parts.len() - up])) {
                    return None;
                }
            }
        }
    }
    None
}

/// The fields of a path in a finding, such as `spec.ports[*].name` or `spec.labels.*`.
fn parts(path: &str) -> Vec<&str> {
    let parts = path.split(['.', '[', ']']);
    parts.filter(|it| !it.is_empty()).map(|it| it.trim_matches('"')).collect()
}

/// Removes a field wherever the path leads, and returns whether the field was there. Fields that every object needs
/// stay.
fn remove(value: &mut Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    if ["apiVersion", "kind", "metadata"].contains(first) {
        return false;
    }
    match (value, *first, rest.is_empty()) {
        (Value::Array(items), "*", true) => {
            let had = !items.is_empty();
            items.clear();
            had
        }
        (Value::Object(fields), "*", true) => {
            let had = !fields.is_empty();
            fields.clear();
            had
        }
        (Value::Array(items), "*", false) => {
            items.iter_mut().filter_map(|it| remove(it, rest).then_some(())).count() > 0
        }
        (Value::Object(fields), "*", false) => {
            fields.values_mut().filter_map(|it| remove(it, rest).then_some(())).count() > 0
        }
        (Value::Object(fields), name, true) => fields.remove(name).is_some(),
        (Value::Object(fields), name, false) => {
            fields.get_mut(name).is_some_and(|it| remove(it, rest))
        }
        _ => false,
    }
}

/// A value that matches a schema.
fn filled(schema: &Value, is_full: bool, depth: usize) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1);
    }
    match schema["type"].as_str() {
        Some("object") | None => object(schema, is_full, depth),
        Some("array") => {
            let wanted = if is_full { 1 } else { 0 };
            let count = schema["minItems"].as_u64().unwrap_or(wanted);
            (0..count.min(8))
                .map(|_| filled(&schema["items"], is_full, depth.saturating_sub(1)))
                .collect()
        }
        Some("string") => text(schema),
        Some("boolean") => json!(true),
        Some("integer" | "number") => number(schema),
        Some(_) => Value::Null,
    }
}

fn object(schema: &Value, is_full: bool, depth: usize) -> Value {
    let mut fields = Map::new();
    if depth == 0 {
        return fields.into();
    }
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name))
    };
    for (name, of) in schema["properties"].as_object().into_iter().flatten() {
        if is_full || required(name) {
            fields.insert(name.clone(), filled(of, is_full, depth - 1));
        }
    }
    if is_full && schema["additionalProperties"].is_object() {
        fields.insert("key".to_owned(), filled(&schema["additionalProperties"], true, depth - 1));
    }
    fields.into()
}

fn number(schema: &Value) -> Value {
    let least = schema["minimum"].as_f64();
    let least = least.map(|it| if schema["exclusiveMinimum"] == true { it + 1.0 } else { it });
    let value = least.or(schema["maximum"].as_f64().map(|it| it.min(1.0))).unwrap_or(1.0);
    let value = schema["multipleOf"].as_f64().map_or(value, |of| (value / of).ceil() * of);
    // A whole number is written without a fraction.
    #[expect(clippy::cast_possible_truncation, reason = "schemas have small numbers")]
    if value.fract() == 0.0 { json!(value as i64) } else { json!(value) }
}

fn text(schema: &Value) -> Value {
    let by_format = match schema["format"].as_str() {
        Some("date-time") => Some("2026-01-01T00:00:00Z"),
        Some("date") => Some("2026-01-01"),
        Some("duration") => Some("1h"),
        Some("byte") => Some("aGk="),
        Some("ipv4") => Some("10.0.0.1"),
        Some("ipv6") => Some("::1"),
        Some("cidr") => Some("10.0.0.0/8"),
        Some("uri") => Some("https://a.b"),
        Some("uuid") => Some("123e4567-e89b-42d3-a456-426614174000"),
        _ => None,
    };
    if let Some(text) = by_format {
        return json!(text);
    }
    let length = schema["minLength"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(1);
    let long = "a".repeat(length.min(4096));
    // The rules about a text are removed here, because the whole object is checked later.
    let mut plain = schema.clone();
    if let Some(fields) = plain.as_object_mut() {
        fields.remove("x-kubernetes-validations");
    }
    let schema = CrdVersionSchema::read(&plain, false);
    let fits = |text: &&str| {
        schema.as_ref().and_then(|it| it.create(&json!(text))).is_some_and(|it| it.is_ok())
    };
    let all = STRINGS.into_iter().chain([long.as_str()]);
    json!(all.into_iter().find(fits).unwrap_or("a"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_what_a_schema_asks_for_and_nothing_invalid() {
        let spec = json!({"type": "object", "required": ["size", "mode", "name"], "properties": {
            "size": {"type": "integer", "minimum": 3}, "mode": {"type": "string", "enum": ["On", "Off"]},
            "name": {"type": "string", "pattern": "^[a-z]+/[a-z]+$"},
            "odd": {"type": "string", "pattern": "^none of them$"},
            "list": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "date"}},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}}}});
        let definition = json!({"spec": {"group": "a.b", "scope": "Cluster", "names": {"kind": "A"}, "versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}});
        let mut all = of(&definition, "v1");
        let full = all.pop().unwrap();
        assert_eq!(
            full["spec"],
            json!({"size": 3, "mode": "On", "name": "a/b", "list": ["2026-01-01"],
            "map": {"key": true}})
        );
        assert_eq!(all.len(), 1);
        assert_eq!(of(&definition, "v2"), Vec::<Value>::new());
    }

    #[test]
    fn what_the_version_of_storage_does_not_have_is_not_there() {
        let version = |name: &str, is_storage: bool, fields: Value| {
            json!({"name": name, "storage": is_storage, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": fields}}}}})
        };
        let text = json!({"type": "string"});
        let mut definition = json!({"spec": {"group": "a.b", "scope": "Cluster", "names": {"kind": "A"}, "versions": [
            version("v1", false, json!({"a": text, "b": text})), version("v2", true, json!({"b": text}))]}});
        let full = |definition: &Value| of(definition, "v1").pop().unwrap()["spec"].clone();
        assert_eq!(full(&definition), json!({"b": "a"}));
        definition["spec"]["conversion"] = json!({"strategy": "Webhook"});
        assert_eq!(full(&definition), json!({"a": "a", "b": "a"}));
    }
}
