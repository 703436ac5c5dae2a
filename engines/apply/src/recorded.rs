//! Answers that the Go implementations gave, replayed: order, stages, switches, names.
//!
//! Here: reading the records, and the cases of `ssa-normalize.jsonl` that belong to this crate.
//! Elsewhere: the cases of `kstatus.jsonl` (`health/tests.rs`).

use objects::{Object, ObjectId};
use serde_json::{Value, json};

use crate::{meta, order, stages};

/// The records of what fluxcd/cli-utils and its readers judged.
pub(crate) const KSTATUS: &str = include_str!("../../../e2e/conformance/recorded/kstatus.jsonl");
const SSA: &str = include_str!("../../../e2e/conformance/recorded/ssa-normalize.jsonl");

/// The cases of one file, one a line.
pub(crate) fn cases(file: &str) -> impl Iterator<Item = Value> {
    file.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn id(case: &Value) -> ObjectId {
    let group = text(case, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    ObjectId::new(text(case, "namespace"), text(case, "name"), group, text(case, "kind"))
}

fn stage_names(case: &Value) -> Value {
    let custom = stages::parse_group_kinds(text(case, "customStageKinds"));
    let names = case["out"].as_array().unwrap().iter().map(|row| {
        // One row has no kind; such a thing is no object here and never gets this far.
        let kind = if row[1] == "" { json!("none") } else { row[1].clone() };
        let object = json!({"apiVersion": row[0], "kind": kind, "metadata": {"name": "x"}});
        let name = match stages::stage_of(&Object::new(object).unwrap(), &custom) {
            stages::StageKind::Definitions => "definitions",
            stages::StageKind::Classes => "classes",
            stages::StageKind::Custom => "custom",
            stages::StageKind::Rest => "resources",
        };
        json!([row[0], row[1], name])
    });
    names.collect()
}

fn any_meta(case: &Value) -> Value {
    let mut object = case["object"].clone();
    object["apiVersion"] = "v1".into();
    object["kind"] = "ConfigMap".into();
    object["metadata"]["name"] = "x".into();
    let object = Object::new(object).unwrap();
    let wanted = case["meta"].as_object().unwrap();
    wanted.iter().any(|(key, value)| meta::has(&object, key, value.as_str().unwrap())).into()
}

#[test]
fn order_stages_and_names_are_those_of_the_original() {
    let mut counts = std::collections::BTreeMap::new();
    for case in cases(SSA) {
        let answer = match text(&case, "op") {
            "order" => {
                let mut ids: Vec<_> = case["objects"].as_array().unwrap().iter().map(id).collect();
                ids.sort_by(order::compare);
                ids.iter().map(ObjectId::subject).collect()
            }
            "stages" => stage_names(&case),
            "groupkinds" => {
                let pairs = stages::parse_group_kinds(text(&case, "text"));
                pairs.iter().map(|(group, kind)| format!("{group}|{kind}")).collect()
            }
            "anymeta" => any_meta(&case),
            "fmt" => id(&case["object"]).subject().into(),
            _ => continue,
        };
        *counts.entry(text(&case, "op").to_owned()).or_insert(0) += 1;
        assert_eq!(answer, case["out"], "{}", case["name"]);
    }
    assert_eq!(
        json!(counts),
        json!({"order": 4, "stages": 1, "groupkinds": 4, "anymeta": 8, "fmt": 3})
    );
}
