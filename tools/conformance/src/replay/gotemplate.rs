//! Replays cases about Go's `text/template`. Each case is one template that runs with data.
//!
//! This module has the functions that the recorded templates may call. The engine `gotemplate` has Go's own
//! functions.

use golang::GoRuntimeValue;
use golang::fmt::{sprint, sprintf};
use golang::value::{FunctionSignature, GoMap, GoType};
use gotemplate::{
    FunctionCallContext, MissingKeyPolicy, TemplateFunctionError, TemplateFunctions, TemplateSet,
};
use serde::Deserialize;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same};

pub(super) const TOPICS: [Topic; 2] = [
    Topic {
        name: "gotemplate/snippets",
        path: "gotemplate/snippets.jsonl",
        judge: snippet,
        exceptions: &[],
    },
    Topic {
        name: "recorded/gotemplate2",
        path: "recorded/gotemplate2.jsonl",
        judge: snippet,
        exceptions: &[],
    },
];

const DATA: &str = include_str!("../../../../e2e/conformance/gotemplate/data.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateSnippetCase {
    #[serde(rename = "group")]
    _group: String,
    tpl: String,
    missing: String,
    out: String,
}

fn snippet(case: Case) -> CaseJudgement {
    let TemplateSnippetCase { tpl, missing, out, .. } = case.inputs()?;
    let missing = match missing.as_str() {
        "" | "default" => MissingKeyPolicy::Default,
        "zero" => MissingKeyPolicy::Zero,
        "error" => MissingKeyPolicy::Error,
        other => return Err(CaseFailure::NotRun(format!("unknown option missingkey=`{other}`"))),
    };
    let data: serde_json::Value = serde_json::from_str(DATA)
        .map_err(|error| CaseFailure::NotRun(format!("the data cannot be read: {error}")))?;
    let mut set = TemplateSet::new("t", functions()).with_missing_key(missing);
    let ran = match set.parse("t", tpl.as_bytes()) {
        Ok(_) => set.run("t", GoRuntimeValue::from_json(&data)),
        Err(error) => Err(error.into()),
    };
    let wanted = match &case.answer {
        ReferenceAnswer::Error(error) if !error.is_empty() => Err(error.clone()),
        _ => Ok(out),
    };
    let shown =
        |result: Result<String, String>| result.unwrap_or_else(|error| format!("error: {error}"));
    let got = ran.map(|output| String::from_utf8_lossy(&output).into_owned());
    same(&shown(wanted), &shown(got.map_err(|error| error.to_string())))
}

fn text(value: &GoRuntimeValue) -> String {
    match value {
        GoRuntimeValue::String(text) => text.lossy().into_owned(),
        _ => String::new(),
    }
}

/// The functions with which the templates were recorded.
fn functions() -> TemplateFunctions {
    use GoType::{Any, Bool, String as Text};
    let mut functions = TemplateFunctions::default();
    functions.insert("list", FunctionSignature::variadic([Any], GoType::list()), |_, items| {
        Ok(GoRuntimeValue::list(items.iter().cloned()))
    });
    functions.insert("dict", FunctionSignature::variadic([Any], GoType::map()), |_, items| {
        let map = GoMap::new(Any, []);
        for pair in items.chunks(2) {
            let key = sprint(&pair[..1])?;
            map.insert(key, pair.get(1).cloned().unwrap_or_else(|| GoRuntimeValue::from("")));
        }
        Ok(GoRuntimeValue::Map(map))
    });
    functions.insert("set", FunctionSignature::new([GoType::map(), Text, Any], GoType::map()), set);
    functions.insert("default", FunctionSignature::variadic([Any, Any], Any), |_, values| {
        let given = values.get(1).filter(|value| value.is_true());
        Ok(given.or(values.first()).cloned().unwrap_or_default())
    });
    functions.insert("ternary", FunctionSignature::new([Any, Any, Bool], Any), |_, values| {
        Ok(values[usize::from(!values[2].is_true())].clone())
    });
    functions.insert("quote", FunctionSignature::variadic([Any], Text), |_, values| {
        let mut quoted = Vec::new();
        for value in values.iter().filter(|value| !matches!(value, GoRuntimeValue::Nil)) {
            quoted.push(sprintf(
                "%q",
                &[GoRuntimeValue::string(sprint(std::slice::from_ref(value))?)],
            )?);
        }
        Ok(GoRuntimeValue::string(quoted.join(&b' ')))
    });
    functions.insert("upper", FunctionSignature::new([Text], Text), |_, values| {
        Ok(GoRuntimeValue::from(text(&values[0]).to_uppercase()))
    });
    functions.insert(
        "add",
        FunctionSignature::new([GoType::INT, GoType::INT], GoType::INT),
        |_, values| {
            let number = |value: &GoRuntimeValue| match value {
                GoRuntimeValue::Integer(integer) => integer.signed(),
                _ => 0,
            };
            Ok(GoRuntimeValue::int(number(&values[0]).wrapping_add(number(&values[1]))))
        },
    );
    functions.insert("fail", FunctionSignature::new([Text], Text), |_, values| {
        Err(text(&values[0]).into())
    });
    functions.insert("kindOf", FunctionSignature::new([Any], Text), |_, values| {
        Ok(GoRuntimeValue::from(values[0].kind().to_string()))
    });
    functions.insert("include", FunctionSignature::new([Text, Any], Text), |call, values| {
        Ok(GoRuntimeValue::string(call.run(&text(&values[0]), values[1].clone())?))
    });
    functions.insert("tpl", FunctionSignature::new([Text, Any], Text), tpl);
    functions.insert("retnil", FunctionSignature::new([], Any), |_, _| Ok(GoRuntimeValue::Nil));
    functions.insert("panics", FunctionSignature::new([], Text), |_, _| Err("oops".into()));
    functions
}

fn set(
    _: &mut FunctionCallContext<'_>,
    values: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    if let [GoRuntimeValue::Map(map), GoRuntimeValue::String(key), value] = values {
        if map.is_nil() {
            return Err("assignment to entry in nil map".into());
        }
        map.insert(key.clone(), value.clone());
    }
    Ok(values[0].clone())
}

fn tpl(
    call: &mut FunctionCallContext<'_>,
    values: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let mut set = call.set().clone();
    let template = set.parse("t", text(&values[0]).as_bytes())?;
    Ok(GoRuntimeValue::string(call.run_template(&set, &template, values[1].clone())?))
}
