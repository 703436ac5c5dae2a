//! Reads one recorded case, and judges an answer.
//!
//! This module has the members that all topics share. The module of each engine reads the inputs of its topics.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The result of one case.
pub(super) type CaseJudgement = Result<(), CaseFailure>;

/// Why a case did not pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CaseFailure {
    /// The answer is not the recorded one.
    Mismatch {
        /// What was recorded.
        wanted: String,
        /// The answer of the engine.
        got: String,
    },
    /// The case was not run, for this reason.
    NotRun(String),
    /// The case belongs to another topic of the same file.
    OtherTopic,
}

/// The answer of the reference implementation.
#[derive(Debug, Clone)]
pub(super) enum ReferenceAnswer {
    /// A value.
    Out(Value),
    /// The text of an error.
    Error(String),
    /// Go panicked at run time. The engine has to give an error.
    Panic,
    /// The case has none of the members that all topics share.
    Elsewhere,
}

/// A recorded case: its name, its operation, its answer and the other inputs.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    /// The operation. It is empty in topics with only one.
    pub(super) op: String,
    pub(super) answer: ReferenceAnswer,
    /// The folder of the case's file, with further files.
    pub(super) folder: PathBuf,
    inputs: Map<String, Value>,
}

impl Case {
    /// Parses a case. It gets `name` if it has no name itself.
    ///
    /// # Errors
    /// Why the text is not a JSON object.
    pub(super) fn parse(name: &str, text: &[u8]) -> Result<Self, serde_json::Error> {
        let mut inputs: Map<String, Value> = serde_json::from_slice(text)?;
        let recorded_name = taken_text(&mut inputs, "name");
        let recorded_name = recorded_name.or_else(|| taken_text(&mut inputs, "id"));
        let name = recorded_name.unwrap_or_else(|| name.to_owned());
        let op = taken_text(&mut inputs, "op").unwrap_or_default();
        let answer = taken_answer(&mut inputs);
        Ok(Self { name, op, answer, folder: PathBuf::new(), inputs })
    }

    /// Judges the case by its recorded answer. If several answers are recorded, one of them has to match.
    pub(super) fn judge_each_answer(self, judge: fn(Self) -> CaseJudgement) -> CaseJudgement {
        let mut judgement = Err(CaseFailure::NotRun("no answer is recorded".to_owned()));
        for case in self.with_each_answer() {
            judgement = judge(case);
            if judgement.is_ok() {
                break;
            }
        }
        judgement
    }

    /// The case with each of its answers. If chance decides in the reference implementation, `anyOf` has all recorded
    /// answers, and one of them has to match.
    fn with_each_answer(mut self) -> Vec<Self> {
        let answers = match self.inputs.get("anyOf") {
            Some(Value::Array(answers)) => answers.clone(),
            _ => return vec![self],
        };
        self.inputs.remove("anyOf");
        let with = |answer: &Value| {
            let mut members = answer.as_object().cloned().unwrap_or_default();
            let mut case = Self { answer: taken_answer(&mut members), ..self.clone() };
            case.inputs.extend(members);
            case
        };
        answers.iter().map(with).collect()
    }

    /// Removes the members whose names begin with this prefix. They belong to another topic.
    pub(super) fn forget(&mut self, prefix: &str) {
        self.inputs.retain(|member, _| !member.starts_with(prefix));
    }

    /// Reads the inputs in the form of a topic.
    ///
    /// # Errors
    /// The case is not run if they have another form.
    pub(super) fn inputs<T: DeserializeOwned>(&self) -> Result<T, CaseFailure> {
        parse(Value::Object(self.inputs.clone()))
    }

    /// Reads the recorded list in the form of a topic.
    ///
    /// # Errors
    /// The case is not run if there is no list, or if it has another form.
    pub(super) fn list<T: DeserializeOwned>(&self) -> Result<Vec<T>, CaseFailure> {
        match &self.answer {
            ReferenceAnswer::Out(value) if value.is_null() => Ok(Vec::new()),
            ReferenceAnswer::Out(value) => parse(value.clone()),
            ReferenceAnswer::Error(_) | ReferenceAnswer::Panic | ReferenceAnswer::Elsewhere => {
                Err(CaseFailure::NotRun("no list is recorded".to_owned()))
            }
        }
    }

    /// Compares an answer with the recorded one.
    pub(super) fn judge(&self, got: Result<Value, String>) -> CaseJudgement {
        match (&self.answer, got) {
            (ReferenceAnswer::Elsewhere, _) => {
                Err(CaseFailure::NotRun("no answer is recorded".to_owned()))
            }
            // Go writes an empty list as null if nothing was ever added to it.
            (ReferenceAnswer::Out(Value::Null), Ok(Value::Array(got))) if got.is_empty() => Ok(()),
            (ReferenceAnswer::Out(wanted), Ok(got)) => same_value(wanted, &got),
            (ReferenceAnswer::Error(wanted), Err(got)) => same(wanted, &got),
            (ReferenceAnswer::Panic, Err(_)) => Ok(()),
            (ReferenceAnswer::Out(wanted), Err(got)) => {
                same(&wanted.to_string(), &format!("error: {got}"))
            }
            (ReferenceAnswer::Error(wanted), Ok(got)) => {
                same(&format!("error: {wanted}"), &got.to_string())
            }
            (ReferenceAnswer::Panic, Ok(got)) => same("an error, as Go panics", &got.to_string()),
        }
    }

    /// The reason why a case is not run. `known` are the operations without an engine so far.
    pub(super) fn unsupported(&self, known: &[&str]) -> CaseFailure {
        let op = &self.op;
        CaseFailure::NotRun(if known.contains(&op.as_str()) {
            format!("op {op}: no engine yet")
        } else {
            format!("unknown op `{op}`")
        })
    }
}

/// Removes a text member from the case, and returns it. `None` if the case has no such member, or if it is not a text.
fn taken_text(members: &mut Map<String, Value>, member: &str) -> Option<String> {
    let text = members.get(member)?.as_str()?.to_owned();
    members.remove(member);
    Some(text)
}

/// Removes the members of the answer from the case, and returns the answer.
fn taken_answer(members: &mut Map<String, Value>) -> ReferenceAnswer {
    let error = taken_text(members, "err");
    let panic = taken_text(members, "panic");
    match (error, panic) {
        (Some(error), _) => ReferenceAnswer::Error(error),
        (None, Some(_)) => ReferenceAnswer::Panic,
        (None, None) => {
            members.remove("out").map_or(ReferenceAnswer::Elsewhere, ReferenceAnswer::Out)
        }
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, CaseFailure> {
    serde_json::from_value(value)
        .map_err(|error| CaseFailure::NotRun(format!("a form that is not known: {error}")))
}

/// Reads null as an empty list or map, because Go writes empty ones like that.
pub(super) fn nil<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Compares the wanted text with the actual one. The error is a mismatch with both texts.
pub(super) fn same(wanted: &str, got: &str) -> CaseJudgement {
    if wanted == got {
        return Ok(());
    }
    Err(CaseFailure::Mismatch { wanted: wanted.to_owned(), got: got.to_owned() })
}

/// Compares two values. `1` and `1.0` are not equal.
pub(super) fn same_value(wanted: &Value, got: &Value) -> CaseJudgement {
    if wanted == got {
        return Ok(());
    }
    Err(CaseFailure::Mismatch { wanted: wanted.to_string(), got: got.to_string() })
}
