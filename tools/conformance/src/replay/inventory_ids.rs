//! Replays cases about the ids in inventories.

use objects::ObjectId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Topic;
use super::case::{Case, CaseJudgement, same_value};

pub(super) const TOPICS: [Topic; 1] = [Topic {
    name: "recorded/objectid",
    path: "recorded/objectid.jsonl",
    judge: id,
    exceptions: &[],
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectFormatCase {
    object: NamedObjectParts,
    /// The object that is read back from the id, or the error.
    back: Option<Value>,
    back_err: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct NamedObjectParts {
    namespace: String,
    name: String,
    group: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectIdParseCase {
    r#in: String,
}

fn parsed(text: &str) -> Result<Value, String> {
    let id: ObjectId = text.parse().map_err(|error: objects::IdError| error.to_string())?;
    let ObjectId { namespace, name, group, kind } = id;
    Ok(json!({"namespace": namespace, "name": name, "group": group, "kind": kind}))
}

fn id(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "format" => {
            let ObjectFormatCase { object, back, back_err } = case.inputs()?;
            let id = ObjectId::new(&object.namespace, &object.name, &object.group, &object.kind);
            case.judge(Ok(id.to_string().into()))?;
            let wanted = back.or(back_err.map(Value::from)).unwrap_or_default();
            same_value(&wanted, &parsed(&id.to_string()).unwrap_or_else(Value::from))
        }
        "parse" => {
            let ObjectIdParseCase { r#in } = case.inputs()?;
            case.judge(parsed(&r#in))
        }
        _ => Err(case.unsupported(&[])),
    }
}
