//! Replays cases about health, order, stages, switches and names of objects.

use std::collections::BTreeMap;

use apply::{
    ApplyStageKind, HealthStatus, ObjectHealth, apply_order, health, manifest_normalization, mask,
    owner_labels_and_apply_annotations, stages,
};
use objects::{Object, ObjectId, build_output};
use reconcile::Time;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, nil};

pub(super) const TOPICS: [Topic; 2] = [
    Topic {
        name: "recorded/kstatus",
        path: "recorded/kstatus.jsonl",
        judge: status,
        exceptions: &[],
    },
    Topic {
        name: "recorded/ssa-normalize",
        path: "recorded/ssa-normalize.jsonl",
        judge: server_side_apply,
        exceptions: &[],
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthStatusCase {
    reader: String,
    object: Value,
    #[serde(default, deserialize_with = "nil")]
    related: Vec<Value>,
}

/// The present time of the cases. It is later than every recorded old Pod, and earlier than the young one.
const NOW: &str = "2026-06-01T00:00:00Z";

fn status(case: Case) -> CaseJudgement {
    let HealthStatusCase { reader, object, related } = case.inputs()?;
    let now: Time = NOW.parse().map_err(|error| CaseFailure::NotRun(format!("{NOW}: {error}")))?;
    let judged = || {
        let object = Object::new(object).map_err(|error| error.to_string())?;
        let related: Result<Vec<_>, _> = related.into_iter().map(Object::new).collect();
        let related = related.map_err(|error| error.to_string())?;
        Ok::<_, String>(match reader.as_str() {
            "compute" => {
                let report = health::compute(&object, now).map_err(|error| error.to_string())?;
                Some(report_json(&report, true))
            }
            "job" => Some(report_json(&health::job(&object), false)),
            "default" => Some(report_json(&health::read(&object, &related, now), false)),
            _ => None,
        })
    };
    let Some(answer) = judged().transpose() else {
        return Err(CaseFailure::NotRun(format!("unknown reader {reader}")));
    };
    case.judge(answer)
}

fn report_json(report: &ObjectHealth, with_conditions: bool) -> Value {
    let mut value = json!({"status": report.status.to_string(), "message": report.message});
    if let HealthStatus::Unknown(error) = &report.status {
        value["error"] = error.as_str().into();
    }
    if with_conditions {
        let says = report.conditions.iter().map(|condition| {
            let mut one = json!({"type": condition.kind, "status": "True"});
            for (field, text) in [("reason", &condition.reason), ("message", &condition.message)] {
                if !text.is_empty() {
                    one[field] = text.as_str().into();
                }
            }
            one
        });
        value["conditions"] = says.collect();
    }
    value
}

fn server_side_apply(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "order" => {
            let ApplyOrderCase { objects } = case.inputs()?;
            let mut ids: Vec<ObjectId> = objects.iter().map(NamedObject::id).collect();
            ids.sort_by(apply_order::compare);
            case.judge(Ok(ids.iter().map(ObjectId::subject).collect()))
        }
        "stages" => stage_names(&case),
        "groupkinds" => {
            let StageGroupKindsCase { text } = case.inputs()?;
            let pairs = stages::parse_group_kinds(&text);
            case.judge(Ok(pairs.iter().map(|(group, kind)| format!("{group}|{kind}")).collect()))
        }
        "anymeta" => any_meta(&case),
        "fmt" => {
            let ApplyFormatCase { object } = case.inputs()?;
            case.judge(Ok(object.id().subject().into()))
        }
        "normalize" => {
            let NormalizeInputs { mut object } = case.inputs()?;
            manifest_normalization::canonical(&mut object);
            case.judge(Ok(object.into()))
        }
        "dryrun" => {
            let NormalizeInputs { mut object } = case.inputs()?;
            let mended = manifest_normalization::dry_run_answer(&mut object);
            case.judge(mended.map(|()| object.into()).map_err(|error| error.to_string()))
        }
        "read" => {
            let ManifestStreamCase { text } = case.inputs()?;
            let objects = build_output::read(&text).map_err(|error| error.to_string());
            case.judge(objects.map(|objects| objects.into_iter().map(Value::Object).collect()))
        }
        "mask" => {
            let MaskInputs { mut old, mut new } = case.inputs()?;
            let masked = mask(&mut old, &mut new).map_err(|error| error.to_string());
            case.judge(masked.map(|()| json!([old, new])))
        }
        _ => Err(case.unsupported(&[])),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NormalizeInputs {
    object: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestStreamCase {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskInputs {
    old: Map<String, Value>,
    new: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyOrderCase {
    #[serde(deserialize_with = "nil")]
    objects: Vec<NamedObject>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyFormatCase {
    object: NamedObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
#[derive(Default)]
struct NamedObject {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

impl NamedObject {
    fn id(&self) -> ObjectId {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        ObjectId::new(&self.namespace, &self.name, group, &self.kind)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StageGroupKindsCase {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ApplyStagesCase {
    #[serde(default)]
    custom_stage_kinds: String,
}

/// Compares the stage of each row. The case has no input, so the API version and kind are taken from the recorded
/// answer.
fn stage_names(case: &Case) -> CaseJudgement {
    let ApplyStagesCase { custom_stage_kinds } = case.inputs()?;
    let custom = stages::parse_group_kinds(&custom_stage_kinds);
    let rows: Vec<(String, String, String)> = case.list()?;
    let named = rows.into_iter().map(|(api_version, kind, _)| {
        // windlass rejects an object without a kind before it finds the stage. So an empty text is filled here.
        let filled = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
        let object = json!({
            "apiVersion": filled(&api_version),
            "kind": filled(&kind),
            "metadata": {"name": "x"},
        });
        let object = Object::new(object).map_err(|error| error.to_string())?;
        let stage = match stages::stage_of(&object, &custom) {
            ApplyStageKind::Crds => "definitions",
            ApplyStageKind::Classes => "classes",
            ApplyStageKind::Custom => "custom",
            ApplyStageKind::Rest => "resources",
        };
        Ok(json!([api_version, kind, stage]))
    });
    case.judge(named.collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetadataMatchCase {
    object: Map<String, Value>,
    #[serde(deserialize_with = "nil")]
    meta: BTreeMap<String, String>,
}

fn any_meta(case: &Case) -> CaseJudgement {
    let MetadataMatchCase { mut object, meta } = case.inputs()?;
    // The recorded objects have only the fields of the question, so the others are filled in.
    for (field, filling) in [("apiVersion", json!("v1")), ("kind", json!("ConfigMap"))] {
        object.entry(field).or_insert(filling);
    }
    if let Some(metadata) = object.entry("metadata").or_insert(json!({})).as_object_mut() {
        metadata.entry("name").or_insert("x".into());
    }
    let has_any = |object| {
        meta.iter().any(|(key, value)| owner_labels_and_apply_annotations::has(&object, key, value))
    };
    let answer = Object::new(Value::Object(object)).map(|object| has_any(object).into());
    case.judge(answer.map_err(|error| error.to_string()))
}
