//! Replays what the API server does with objects of the image kinds and of ArtifactGenerators under windlass's CRDs.
//!
//! It compares the verdict, the stored object with its defaults, and the dropped fields. Of a rejection it compares
//! the fields and the kinds of error. `crds` has the definitions, the engine `crdguard` applies them to objects, and
//! `crds.rs` compares them with Flux.
//!
//! Paths of the engine stand for any item of a list and any key of a map. So one of them stands for all that
//! Kubernetes lists. The dropped fields of a rejected object are not compared, because the engine then gives no
//! object.

use crdguard::{CrdDefinition, CrdVersionSchema};
use serde::Deserialize;
use serde_json::Value;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same, same_value};

pub(super) const TOPICS: [Topic; 1] =
    [Topic { name: "image/crd", path: "image/crd.jsonl", judge: created, exceptions: &[] }];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreationCase {
    object: Value,
    /// The errors of the API server.
    #[serde(default)]
    errs: Vec<String>,
    /// The fields that the API server drops.
    #[serde(default)]
    unknown: Vec<String>,
}

fn created(case: Case) -> CaseJudgement {
    let CreationCase { object, errs, unknown } = case.inputs()?;
    let unjudged = || unusable("that cannot be judged".to_owned());
    let outcome = schema_of(&object)?.create(&object).ok_or_else(unjudged)?;
    match (&case.answer, outcome) {
        (ReferenceAnswer::Out(wanted), Ok(stored)) if errs.is_empty() => {
            same_value(wanted, &stored)?;
            same_unknown(&unknown, &dropped(&object, &stored))
        }
        (_, Err(problems)) if !errs.is_empty() => same_problems(&errs, &problems),
        (_, Ok(stored)) if !errs.is_empty() => {
            same(&errs.join("; "), &format!("it is created: {stored}"))
        }
        (ReferenceAnswer::Out(_), Err(problems)) => same("it is created", &problems.join("; ")),
        _ => Err(CaseFailure::NotRun("no answer is recorded".to_owned())),
    }
}

/// The failure of a case without an answer.
fn unusable(why: String) -> CaseFailure {
    CaseFailure::Mismatch { wanted: "an answer".to_owned(), got: why }
}

/// The schema of an object in windlass's CRD.
fn schema_of(object: &Value) -> Result<CrdVersionSchema, CaseFailure> {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let api_version = text("apiVersion");
    let kind = text("kind");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let mut all = crds::all().into_iter();
    let found = all.find(|(_, crd)| crd.spec.group == group && crd.spec.names.kind == kind);
    let (_, crd) = found.ok_or_else(|| unusable(format!("{kind} of {group} has no definition")))?;
    let crd = serde_json::to_value(&crd).map_err(|error| unusable(error.to_string()))?;
    CrdDefinition::schema(&crd, version).map_err(|error| unusable(error.to_string()))
}

/// A field that was dropped.
struct DroppedField {
    path: String,
    /// Whether the value is null. The API server drops null from known fields, too.
    is_null: bool,
}

/// The fields of an object that are missing in the stored one.
fn dropped(given: &Value, stored: &Value) -> Vec<DroppedField> {
    let mut dropped = Vec::new();
    let mut open = vec![(String::new(), given, stored)];
    while let Some((path, given, stored)) = open.pop() {
        match (given, stored) {
            (Value::Object(given), Value::Object(stored)) => {
                for (key, value) in given {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    match stored.get(key) {
                        Some(stored) => open.push((path, value, stored)),
                        None => dropped.push(DroppedField { path, is_null: value.is_null() }),
                    }
                }
            }
            (Value::Array(given), Value::Array(stored)) => {
                let pairs = given.iter().zip(stored).enumerate();
                open.extend(pairs.map(|(at, (given, stored))| {
                    let path = format!("{path}[{at}]");
                    (path, given, stored)
                }));
            }
            _ => {}
        }
    }
    dropped
}

fn same_unknown(wanted: &[String], dropped: &[DroppedField]) -> CaseJudgement {
    let is_known = |field: &&DroppedField| !field.is_null || wanted.contains(&field.path);
    let mut got: Vec<&str> = dropped.iter().filter(is_known).map(|it| it.path.as_str()).collect();
    let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    got.sort_unstable();
    wanted.sort_unstable();
    same(&format!("dropped: {}", wanted.join(", ")), &format!("dropped: {}", got.join(", ")))
}

/// Compares the errors. Each error of Kubernetes needs one of the engine with the same field and kind, and the other
/// way round.
fn same_problems(wanted: &[String], got: &[String]) -> CaseJudgement {
    let of_kubernetes: Vec<FieldError> = wanted.iter().map(|it| of_kubernetes(it)).collect();
    let of_engine: Vec<FieldError> = got.iter().map(|it| of_engine(it)).collect();
    let is_same = of_kubernetes.iter().all(|it| of_engine.iter().any(|other| other.means(it)))
        && of_engine.iter().all(|it| of_kubernetes.iter().any(|other| it.means(other)));
    if is_same { Ok(()) } else { same(&wanted.join("; "), &got.join("; ")) }
}

/// A field, and what is wrong with its value.
#[derive(Debug, PartialEq, Eq)]
struct FieldError {
    path: Vec<String>,
    kind: String,
}

impl FieldError {
    /// Whether an error of the engine means the same as one of Kubernetes.
    fn means(&self, of_kubernetes: &Self) -> bool {
        let is_same = |(own, theirs): (&String, &String)| own == "*" || own == theirs;
        self.kind == of_kubernetes.kind
            && self.path.len() == of_kubernetes.path.len()
            && self.path.iter().zip(&of_kubernetes.path).all(is_same)
    }
}

/// The fields of a path. `a[3].b` and `a[*].b` are both `a`, `[*]` and `b`.
fn fields(path: &str) -> Vec<String> {
    let mut fields = Vec::new();
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let (name, items) = part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
        if !name.is_empty() {
            fields.push(name.to_owned());
        }
        if items.trim_end_matches(']').parse::<usize>().is_ok() || items.starts_with('*') {
            fields.push("[*]".to_owned());
        }
    }
    fields
}

/// Reads an error of Kubernetes, such as `spec.a: Too long: may not be more than 3 bytes`. Rules of the whole object
/// have `[].` before their paths.
fn of_kubernetes(text: &str) -> FieldError {
    let (path, rest) = text.split_once(": ").unwrap_or((text, ""));
    let kind = rest.split_once(':').map_or(rest, |(kind, _)| kind);
    FieldError { path: fields(path.strip_prefix("[].").unwrap_or(path)), kind: kind.to_owned() }
}

/// Reads an error of the engine, such as `spec.a is too long`.
fn of_engine(text: &str) -> FieldError {
    let (path, why) = text.split_once(' ').unwrap_or((text, ""));
    let kind = match why {
        "is required" => "Required value",
        "is too long" => "Too long",
        "has too many items" | "has too many fields" => "Too many",
        "has duplicate items" | "has duplicate keys" => "Duplicate value",
        "is none of the allowed values" => "Unsupported value",
        _ => "Invalid value",
    };
    FieldError { path: fields(path), kind: kind.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_of_the_engine_stands_for_those_of_kubernetes_at_any_item_and_key() {
        let wanted = [
            "spec.list[2].name: Too long: may not be more than 3 bytes",
            "spec.map.a: Invalid value: \"integer\": spec.map.a in body must be of type string",
            "[].spec: Invalid value: a rule",
        ];
        let wanted = wanted.map(str::to_owned);
        let got = [
            "spec.list[*].name is too long",
            "spec.map.* must be a string",
            "spec violates a rule: a rule",
        ];
        let got = got.map(str::to_owned);
        assert_eq!(same_problems(&wanted, &got), Ok(()));
        for (at, other) in [(0, "spec.list[*].name is too short"), (1, "spec.map must be a map")] {
            let mut changed = got.clone();
            other.clone_into(&mut changed[at]);
            assert!(same_problems(&wanted, &changed).is_err(), "{other}");
        }
        assert!(same_problems(&wanted[1..], &got).is_err());
        assert!(same_problems(&wanted, &got[1..]).is_err());
    }

    #[test]
    fn dropped_fields_are_found_at_any_depth_and_null_is_distinguished() {
        let given = json!({"a": [{"b": 1, "c": 2}], "d": null});
        let dropped = dropped(&given, &json!({"a": [{"b": 1}]}));
        assert_eq!(same_unknown(&["a[0].c".to_owned()], &dropped), Ok(()));
        assert_eq!(same_unknown(&["a[0].c".to_owned(), "d".to_owned()], &dropped), Ok(()));
        assert!(same_unknown(&["d".to_owned()], &dropped).is_err());
        assert!(same_unknown(&[], &dropped).is_err());
    }
}
