//! Inventory ids.

use objects::ObjectId;
use serde_json::{Value, json};

use super::{Judgement, Topic, same, same_value};

pub(super) const TOPICS: [Topic; 1] =
    [Topic { name: "recorded/objectid", file: "recorded/objectid.jsonl", judge: id, exceptions: &[] }];

fn parts(id: &ObjectId) -> Value {
    json!({"namespace": id.namespace, "name": id.name, "group": id.group, "kind": id.kind})
}

/// Text, or the error's text, of an id parsed.
fn parsed(text: &str) -> Value {
    text.parse::<ObjectId>().map_or_else(|error| error.to_string().into(), |id| parts(&id))
}

fn id(case: &Value) -> Judgement {
    let wanted_error = |member: &str| case.get(member).cloned().unwrap_or_default();
    match case.get("op")?.as_str()? {
        "format" => {
            let object = case.get("object")?;
            let part = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
            let text = ObjectId::new(part("namespace"), part("name"), part("group"), part("kind")).to_string();
            let back = case.get("back").cloned().unwrap_or_else(|| wanted_error("back_err"));
            Some(same(case.get("out")?.as_str()?, &text).and_then(|()| same_value(&back, &parsed(&text))))
        }
        "parse" => {
            let wanted = case.get("out").cloned().unwrap_or_else(|| wanted_error("err"));
            Some(same_value(&wanted, &parsed(case.get("in")?.as_str()?)))
        }
        _ => None,
    }
}
