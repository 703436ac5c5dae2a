//! Replays cases about Helm: values, templates, manifests, ignore files and names of releases.
//!
//! This module has `--set`. Submodules have values (`helm/values.rs`), templates (`helm/render.rs`), the whole
//! command (`helm/template_command.rs`), and rendered texts and ignore files (`helm/manifests_and_helmignore.rs`).

use std::collections::BTreeMap;

use ::helm::strvals::{self, SetValueMode};
use ::helm::values::to_json;
use golang::GoRuntimeValue;
use golang::value::{GoMap, GoString};
use serde::Deserialize;
use serde_json::Value as Json;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same_value};

mod manifests_and_helmignore;
pub(super) mod render;
mod schema;
mod template_command;
mod values;

pub(super) const TOPICS: [Topic; 10] = [
    Topic {
        name: "helm/functions",
        path: "helm/functions.tsv",
        judge: render::function,
        exceptions: &[(
            "tpl",
            "recorded of a stand-in that Helm replaces before templates run; theirs gives a string",
        )],
    },
    Topic {
        name: "recorded/charts",
        path: "recorded/charts.jsonl",
        judge: template_command::template,
        exceptions: &[],
    },
    Topic {
        name: "recorded/schema",
        path: "recorded/schema.jsonl",
        judge: schema::check,
        exceptions: &[],
    },
    Topic {
        name: "recorded/sprig",
        path: "recorded/sprig.jsonl",
        judge: render::text,
        exceptions: &[],
    },
    Topic {
        name: "recorded/sprig-duration",
        path: "recorded/sprig-duration.jsonl",
        judge: render::text,
        exceptions: &[],
    },
    Topic {
        name: "recorded/coalesce",
        path: "recorded/coalesce.jsonl",
        judge: values::coalesce,
        exceptions: &[],
    },
    Topic {
        name: "recorded/helmignore",
        path: "recorded/helmignore.jsonl",
        judge: manifests_and_helmignore::ignore,
        exceptions: &[],
    },
    Topic {
        name: "recorded/manifests",
        path: "recorded/manifests.jsonl",
        judge: manifests_and_helmignore::manifests,
        exceptions: &[],
    },
    Topic { name: "recorded/strvals", path: "recorded/strvals.jsonl", judge: set, exceptions: &[] },
    Topic {
        name: "recorded/values-merge",
        path: "recorded/values-merge.jsonl",
        judge: values::compose,
        exceptions: &[],
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetFlagCase {
    mode: String,
    init: Json,
    #[serde(rename = "in")]
    text: String,
    #[serde(default)]
    files: BTreeMap<String, String>,
    after: Option<Json>,
}

fn set(case: Case) -> CaseJudgement {
    let SetFlagCase { mode, init, text, files, after } = case.inputs()?;
    let values = table(&init)?;
    let mut read = |name: &str| match files.get(name) {
        Some(text) => Ok(GoString::from(text.as_str())),
        None => Err(format!("no file {name:?}")),
    };
    let mode = match mode.as_str() {
        "set" => SetValueMode::Typed,
        "string" => SetValueMode::Strings,
        "json" => SetValueMode::Json,
        "literal" => SetValueMode::Literal,
        "file" => SetValueMode::File(&mut read),
        other => return Err(CaseFailure::NotRun(format!("unknown mode `{other}`"))),
    };
    let done = strvals::set(&values, &text, mode);
    let got = json(&values)?;
    if let (ReferenceAnswer::Error(_), Some(after)) = (&case.answer, &after) {
        same_value(after, &got)?;
    }
    case.judge(done.map(|()| got).map_err(|error| error.to_string()))
}

/// A table of Go. Null is an empty one.
fn table(json: &Json) -> Result<GoMap, CaseFailure> {
    match GoRuntimeValue::from_json(json) {
        GoRuntimeValue::Map(table) => Ok(table),
        GoRuntimeValue::Nil => Ok(GoMap::new(golang::value::GoType::Any, [])),
        _ => Err(CaseFailure::NotRun("values that are no table".to_owned())),
    }
}

fn json(values: &GoMap) -> Result<Json, CaseFailure> {
    to_json(values).map_err(|error| CaseFailure::Mismatch {
        wanted: "values that JSON has".to_owned(),
        got: error.to_string(),
    })
}
