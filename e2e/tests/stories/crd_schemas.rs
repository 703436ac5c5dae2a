//! What schemas make of objects, by the API server and by the engine `crdguard`: schemas and objects made up by chance.
//!
//! Each definition has several schemas, one for each field of `spec`, so that few definitions judge many of them.

use anyhow::{Context as _, Result, bail, ensure};
use crdguard::Definition;
use e2e::harness::flux::SOON;
use e2e::harness::{Story, Target};
use e2e::random::Random;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};

/// Schemas in a definition, and objects for each.
const FIELDS: usize = 10;
const OBJECTS: usize = 6;

/// Definitions: by `WINDLASS_CRD_SCHEMAS` more.
fn definitions() -> usize {
    let told = std::env::var("WINDLASS_CRD_SCHEMAS").ok().and_then(|it| it.parse::<usize>().ok());
    told.map_or(4, |schemas| schemas.div_ceil(FIELDS))
}

fn one<'a, T>(random: &mut Random, of: &'a [T]) -> &'a T {
    &of[random.below(of.len())]
}

/// Adds a field to a schema, sometimes.
fn maybe(random: &mut Random, schema: &mut Value, percent: u8, key: &str, value: Value) {
    if random.chance(percent) {
        schema[key] = value;
    }
}

/// A schema. Rules are only where nothing repeats them, or the API server would find them too costly.
fn schema(random: &mut Random, depth: usize, may_rule: bool) -> Value {
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

fn text(random: &mut Random) -> Value {
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

fn number(random: &mut Random, kind: &str) -> Value {
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

fn list(random: &mut Random, depth: usize) -> Value {
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

fn object(random: &mut Random, depth: usize, may_rule: bool) -> Value {
    let mut properties = Map::new();
    for name in ["a", "b", "c"] {
        if random.chance(75) {
            properties.insert(name.to_owned(), schema(random, depth - 1, may_rule));
        }
    }
    let has = |name: &str| properties.contains_key(name);
    let (both, one_of) = (has("a") && has("b"), random.chance(20));
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

/// A value that fits a schema more often than not.
fn value(random: &mut Random, schema: &Value, depth: usize) -> Value {
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

/// What the API server makes of an object, without keeping it; none if it is invalid.
async fn created(api: &Api<DynamicObject>, object: &Value) -> Result<Option<Value>> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &serde_json::from_value(object.clone())?).await {
        Ok(made) => Ok(Some(made.data["spec"].clone())),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(None),
        Err(error) => Err(error).context("the API server answers neither yes nor no"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_makes_of_objects_what_the_api_server_makes_of_them() -> Result<()> {
    let story = Story::begin("schemas").await?;
    let seed = Random::seed();
    let mut random = Random::new(seed);
    let (mut judged, mut unjudged) = (0, 0);
    for at in 0..definitions() {
        let group = format!("d{at}.{}.test", story.namespace);
        let properties: Map<String, Value> =
            (0..FIELDS).map(|it| (format!("f{it}"), schema(&mut random, 3, true))).collect();
        let whole = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {"group": group, "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": whole}}]}});
        let made = story.apply_value(definition.clone()).await;
        made.with_context(|| format!("seed {seed}: {definition:#}"))?;
        let named = format!("things.{group}");
        let crd = Target::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &named);
        story.await_condition(&crd, "Established", "True", SOON).await?;
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(&group, "v1", "Thing"),
            "things",
        );
        let api = Api::<DynamicObject>::namespaced_with(
            story.client.clone(),
            &story.namespace,
            &resource,
        );
        let probe = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "probe"}, "spec": {}});
        story
            .await_until("the kind to be served", SOON, async || {
                Ok(created(&api, &probe).await.ok().map(drop))
            })
            .await?;
        let ours = Definition::schema(&definition, "v1")?;
        for (field, schema) in &properties {
            for _ in 0..OBJECTS {
                let mut object = probe.clone();
                object["spec"] = json!({field.as_str(): value(&mut random, schema, 4)});
                let theirs = created(&api, &object).await?;
                judged += 1;
                let told = format!("seed {seed}\nschema {schema}\nobject {}", object["spec"]);
                match (ours.create(&object), theirs) {
                    (None, _) => unjudged += 1,
                    (Some(Ok(ours)), Some(theirs)) => {
                        ensure!(
                            ours["spec"] == theirs,
                            "{told}\nours {}\ntheirs {theirs}",
                            ours["spec"]
                        );
                    }
                    (Some(Err(_)), None) => {}
                    (Some(Ok(_)), None) => {
                        bail!("the API server refuses what the guard takes: {told}")
                    }
                    (Some(Err(why)), Some(_)) => {
                        bail!("the API server takes what the guard refuses: {told}\n{why:?}")
                    }
                }
            }
        }
        story.delete(&crd).await?;
    }
    ensure!(unjudged * 10 < judged, "{unjudged} of {judged} could not be judged");
    story.end().await
}
