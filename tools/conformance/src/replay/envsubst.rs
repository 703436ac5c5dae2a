//! Replays cases about the post-build substitution of variables.

use std::collections::BTreeMap;

use ::envsubst::{SubstitutionLimits, UnsetVariablePolicy, substitute};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::Topic;
use super::case::{Case, CaseJudgement, same};

pub(super) const TOPICS: [Topic; 1] =
    [Topic { name: "recorded/envsubst", path: "recorded/envsubst.jsonl", judge, exceptions: &[] }];

/// The variables and a text. If the answer is not UTF-8, it is in `out_base64`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubstitutionCase {
    vars: BTreeMap<String, String>,
    strict: bool,
    text: String,
    out_base64: Option<String>,
}

fn judge(case: Case) -> CaseJudgement {
    let SubstitutionCase { vars, strict, text, out_base64 } = case.inputs()?;
    let unset = if strict { UnsetVariablePolicy::Error } else { UnsetVariablePolicy::Empty };
    let lookup = |name: &str| vars.get(name).map(String::as_bytes);
    let got = substitute(text.as_bytes(), lookup, unset, SubstitutionLimits::default());
    match (out_base64, got) {
        (Some(wanted), Ok(got)) => same(&wanted, &STANDARD.encode(got)),
        (Some(wanted), Err(error)) => same(&wanted, &format!("error: {error}")),
        (None, got) => case.judge(
            got.map(|text| Value::from(String::from_utf8_lossy(&text).into_owned()))
                .map_err(|error| error.to_string()),
        ),
    }
}
