//! Makes random schemas, random changes of schemas, and random objects.

use e2e::random_sequence::RandomSequence;
use serde_json::{Map, Value, json};

fn one<'a, T>(random: &mut RandomSequence, of: &'a [T]) -> &'a T {
    &of[random.below(of.len())]
}

/// Adds a field to a schema with a probability.
fn maybe(random: &mut RandomSequence, schema: &mut Value, percent: u8, key: &str, value: Value) {
    if random.chance(percent) {
        schema[key] = value;
    }
}

/// A random schema. Rules are only in places that are not repeated, because otherwise the API server would reject them as too
/// costly.
pub(super) fn schema(random: &mut RandomSequence, depth: usize, may_rule: bool) -> Value {
    let kinds = if depth == 0 { 6 } else { 11 };
    let mut schema = match random.below(kinds) {
        0 | 1 => text(random),
        2 => number(random, "integer"),
        3 => number(random, "number"),
        4 => json!({"type": "boolean"}),
        5 => json!({"x-kubernetes-int-or-string": true}),
        6 => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": schema(random, depth - 1, may_rule)}}),
        7 => {
            let mut map = json!({"type": "object",
                "additionalProperties": schema(random, depth - 1, false)});
            maybe(random, &mut map, 30, "maxProperties", json!(2));
            map
        }
        8 => list(random, depth),
        _ => object(random, depth, may_rule),
    };
    maybe(random, &mut schema, 20, "nullable", json!(true));
    if may_rule && random.chance(25) {
        let rule = match schema["type"].as_str() {
            Some("integer") => "self > 2 || self == -1",
            Some("number") => "self / 2.0 < 2.5",
            Some("string") if schema["format"].is_null() => {
                "self.size() < 3 || self.startsWith('a')"
            }
            Some("boolean") => "self",
            _ => return schema,
        };
        schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    }
    schema
}

fn text(random: &mut RandomSequence) -> Value {
    let mut text = json!({"type": "string"});
    maybe(random, &mut text, 30, "maxLength", json!(3));
    maybe(random, &mut text, 20, "minLength", json!(1));
    let pattern = *one(random, &["^a", "b$", "^[ab]*$", r"\d"]);
    maybe(random, &mut text, 20, "pattern", json!(pattern));
    maybe(random, &mut text, 15, "enum", json!(["a", "ab"]));
    let format = *one(
        random,
        &["date-time", "date", "duration", "byte", "uuid", "ipv4", "ipv6", "cidr", "email", "odd"],
    );
    maybe(random, &mut text, 30, "format", json!(format));
    if text.as_object().is_some_and(|it| it.len() == 1) {
        maybe(random, &mut text, 50, "default", json!("a"));
    }
    text
}

fn number(random: &mut RandomSequence, kind: &str) -> Value {
    let mut number = json!({"type": kind});
    maybe(random, &mut number, 40, "maximum", json!(5));
    maybe(random, &mut number, 20, "exclusiveMaximum", json!(true));
    maybe(random, &mut number, 40, "minimum", json!(1));
    maybe(random, &mut number, 15, "multipleOf", json!(2));
    maybe(random, &mut number, 15, "anyOf", json!([{"minimum": 4}, {"maximum": 2}]));
    if kind == "integer" {
        maybe(random, &mut number, 20, "format", json!("int32"));
    }
    if number["maximum"].is_null() && number["exclusiveMaximum"] == true {
        number["maximum"] = json!(5);
    }
    if number.as_object().is_some_and(|it| it.len() == 1) {
        maybe(random, &mut number, 50, "default", json!(4));
    }
    number
}

fn list(random: &mut RandomSequence, depth: usize) -> Value {
    let mut list = json!({"type": "array"});
    match random.below(3) {
        0 => {
            list["items"] = json!({"type": "string"});
            list["x-kubernetes-list-type"] = json!("set");
        }
        1 => {
            list["items"] = json!({"type": "object", "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": schema(random, depth - 1, false)}});
            list["x-kubernetes-list-type"] = json!("map");
            list["x-kubernetes-list-map-keys"] = json!(["k"]);
        }
        _ => list["items"] = schema(random, depth - 1, false),
    }
    maybe(random, &mut list, 30, "maxItems", json!(2));
    maybe(random, &mut list, 20, "minItems", json!(1));
    list
}

fn object(random: &mut RandomSequence, depth: usize, may_rule: bool) -> Value {
    let mut properties = Map::new();
    for name in ["a", "b", "c"] {
        if random.chance(75) {
            properties.insert(name.to_owned(), schema(random, depth - 1, may_rule));
        }
    }
    let has = |name: &str| properties.contains_key(name);
    let both = has("a") && has("b");
    let one_of = random.chance(20);
    let required: Vec<&str> = ["a", "b"].into_iter().filter(|it| has(it)).collect();
    let mut object = json!({"type": "object"});
    maybe(random, &mut object, 30, "required", json!(required));
    if both && one_of {
        object["oneOf"] = json!([{"required": ["a"]}, {"required": ["b"]}]);
    }
    if both && random.chance(15) {
        object["not"] = json!({"required": ["a", "b"]});
    }
    if both && may_rule && random.chance(30) {
        object["x-kubernetes-validations"] = json!([{"rule": "has(self.a) || !has(self.b)"}]);
    }
    object["properties"] = properties.into();
    if object["required"].as_array().is_some_and(Vec::is_empty) {
        object["required"] = Value::Null;
    }
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// A random value that is usually valid for a schema.
pub(super) fn value(random: &mut RandomSequence, schema: &Value, depth: usize) -> Value {
    const STRINGS: [&str; 14] = [
        "",
        "a",
        "ab",
        "abcd",
        "b",
        "1",
        "2026-02-28",
        "2026-02-28T10:00:00Z",
        "1h",
        "aGk=",
        "10.0.0.1",
        "::1",
        "10.0.0.0/8",
        "123e4567-e89b-42d3-a456-426614174000",
    ];
    let kind = schema["type"].as_str().unwrap_or("string");
    let kind = if random.chance(10) {
        *one(random, &["string", "integer", "object", "null"])
    } else {
        kind
    };
    match kind {
        "null" => Value::Null,
        "string" if random.chance(10) && schema["type"].is_null() => json!(3),
        "string" => json!(one(random, &STRINGS)),
        "integer" => one(
            random,
            &[
                json!(-1),
                json!(0),
                json!(1),
                json!(3),
                json!(4),
                json!(5),
                json!(6),
                json!(4_294_967_296_u64),
                json!(2.5),
            ],
        )
        .clone(),
        "number" => {
            one(random, &[json!(0), json!(1.5), json!(4), json!(5), json!(4.5), json!(7)]).clone()
        }
        "boolean" => json!(random.chance(50)),
        "array" if depth > 0 => {
            let length = random.below(4);
            (0..length).map(|_| value(random, &schema["items"], depth - 1)).collect()
        }
        "object" if depth > 0 => {
            let mut map = Map::new();
            for name in ["a", "b", "c", "k", "v", "x"] {
                let own = &schema["properties"][name];
                let of = if own.is_null() { &schema["additionalProperties"] } else { own };
                let percent = if own.is_null() { 15 } else { 75 };
                if random.chance(percent) {
                    map.insert(name.to_owned(), value(random, of, depth - 1));
                }
            }
            map.into()
        }
        _ => json!({}),
    }
}

/// Changes a schema in one or a few places. The API server accepts the result.
pub(super) fn changed(random: &mut RandomSequence, of: &Value, depth: usize) -> Value {
    let mut schema = of.clone();
    let below = depth.saturating_sub(1);
    let mut names: Vec<String> =
        schema["properties"].as_object().map(|it| it.keys().cloned().collect()).unwrap_or_default();
    let is_kept = schema["x-kubernetes-list-type"].as_str().is_some();
    let inner = ["items", "additionalProperties"].into_iter().find(|it| schema[*it].is_object());
    match (random.below(10), inner) {
        (0, _) => return self::schema(random, depth, false),
        (1..=6, Some(key)) if !is_kept => {
            schema[key] = changed(random, &schema[key], below);
            return schema;
        }
        (1..=6, Some(key)) if schema[key]["properties"]["v"].is_object() => {
            let item = changed(random, &schema[key]["properties"]["v"], below.saturating_sub(1));
            schema[key]["properties"]["v"] = item;
            return schema;
        }
        (1..=6, None) if !names.is_empty() => {
            // Sometimes it changes several fields.
            names.retain(|_| random.chance(60));
            for name in names {
                let next = changed(random, &schema["properties"][&name], below);
                schema["properties"][&name] = next;
                // The rules are about fields with the old types.
                remove(&mut schema, "x-kubernetes-validations");
            }
            return schema;
        }
        _ => {}
    }
    here(random, &mut schema, depth);
    schema
}

/// Changes what a schema says about its own value.
fn here(random: &mut RandomSequence, schema: &mut Value, depth: usize) {
    // Otherwise, the default might no longer be valid, and the API server would refuse the schema.
    if random.chance(40) {
        schema["nullable"] = json!(schema["nullable"] != true);
        return;
    }
    match schema["type"].as_str() {
        Some("string") => {
            remove(schema, "default");
            match random.below(4) {
                0 => toggle(schema, "maxLength", json!(2)),
                1 => toggle(schema, "minLength", json!(2)),
                2 => toggle(schema, "pattern", json!("^[a1]")),
                _ => toggle(schema, "enum", json!(["a", "ab", "1"])),
            }
        }
        Some("integer" | "number") => {
            remove(schema, "default");
            remove(schema, "exclusiveMaximum");
            match random.below(4) {
                0 => toggle(schema, "maximum", json!(4)),
                1 => toggle(schema, "minimum", json!(2)),
                2 => toggle(schema, "multipleOf", json!(2)),
                _ => {
                    let other = if schema["type"] == "integer" { "number" } else { "integer" };
                    schema["type"] = json!(other);
                    // These rules belong to the old type.
                    remove(schema, "x-kubernetes-validations");
                    remove(schema, "format");
                }
            }
        }
        Some("array") => match random.below(3) {
            0 => toggle(schema, "maxItems", json!(1)),
            1 => toggle(schema, "minItems", json!(1)),
            _ if schema["items"] == json!({"type": "string"}) => {
                toggle(schema, "x-kubernetes-list-type", json!("set"));
            }
            _ => toggle(schema, "maxItems", json!(3)),
        },
        Some("object") if schema["additionalProperties"].is_object() => {
            toggle(schema, "maxProperties", json!(1));
        }
        Some("object") => fields(random, schema, depth),
        _ => schema["nullable"] = json!(schema["nullable"] != true),
    }
}

fn fields(random: &mut RandomSequence, schema: &mut Value, depth: usize) {
    for key in ["x-kubernetes-validations", "oneOf", "not"] {
        remove(schema, key);
    }
    let name = *one(random, &["a", "b", "c"]);
    match random.below(4) {
        0 => toggle(schema, "x-kubernetes-preserve-unknown-fields", json!(true)),
        1 if schema["properties"][name].is_object() => {
            toggle(schema, "required", json!([name]));
        }
        2 | 1 => {
            remove(schema, "required");
            remove(&mut schema["properties"], name);
        }
        _ => schema["properties"][name] = self::schema(random, depth.saturating_sub(1), false),
    }
}

fn remove(value: &mut Value, key: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(key);
    }
}

/// Removes a field of a schema, or sets it.
fn toggle(schema: &mut Value, key: &str, value: Value) {
    match schema[key].is_null() {
        true => schema[key] = value,
        false => remove(schema, key),
    }
    if schema[key].is_null() {
        remove(schema, key);
    }
}
