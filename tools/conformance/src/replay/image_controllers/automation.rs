//! Replays runs of ImageUpdateAutomations, and compares their commits, pushes and statuses.
//!
//! This module has the runs of a case. `git_repository` has its repository, `controller_run_comparison` compares statuses and
//! events, and `automation_differences` has results that differ on purpose.
//!
//! Commits are compared by their parents, authors, messages, files and kinds of signatures. Signatures must be valid.
//! A file that Flux formats anew is compared by the values of its documents.
//!
//! If another writer undid a commit, windlass makes it again after a minute, so that two writers cannot race. Such a
//! run has to report that and change nothing else. After the minute, its result has to be the recorded one.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::image::{ImagePolicy, ImageUpdateAutomation};
use image_controller::image_update_automation::ImageUpdateAutomationController;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_serve::settings::OperatorSettings;

use super::automation_differences::{ExpectedAutomationRuns, RecordedAutomationRun};
use super::git_repository::{CaseGitRepository, CommitInputs, GitInputs, References};
use super::signing_keys::with_keys;
use crate::replay::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil};
use crate::replay::controller_environment::{ControllerEnvironment, on_runtime};
use crate::replay::controller_run_comparison::{
    ControllerAnswer, ReplayTime, same_answer, same_part,
};
use crate::replay::image::says_the_same;

/// The placeholder for the URL of the Git server.
const GIT_URL: &str = "${GIT}";

/// The beginning of the message of `Ready` while an automation waits, because another writer has just undone its last
/// commit.
const POSTPONEMENT: &str = "another writer undid values that were committed a moment ago";

/// The members of the status that a waiting automation keeps.
const LASTING_MEMBERS: [&str; 4] =
    ["lastPushCommit", "lastPushTime", "observedPolicies", "observedSourceRevision"];

/// The age of the last push after which windlass commits again.
const AGE_OF_FORMER_PUSH: Duration = Duration::from_secs(61);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AutomationCase {
    git: GitInputs,
    /// The first object is the automation. The others are also on the API server.
    objects: Vec<Value>,
    #[serde(default, deserialize_with = "nil")]
    runs: Vec<AutomationRunInputs>,
    /// The feature gates that differ from their defaults.
    #[serde(default, deserialize_with = "nil")]
    features: BTreeMap<String, bool>,
    #[serde(default)]
    no_cross_namespace_refs: bool,
}

/// The changes before a run.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AutomationRunInputs {
    #[serde(deserialize_with = "nil")]
    commits: Vec<CommitInputs>,
    /// Objects to create or replace.
    #[serde(deserialize_with = "nil")]
    objects: Vec<Value>,
    /// The names of ImagePolicies to delete.
    #[serde(deserialize_with = "nil")]
    delete: Vec<String>,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    let wanted: Vec<Value> = match &case.answer {
        ReferenceAnswer::Out(Value::Array(runs)) => runs.clone(),
        _ => return Err(CaseFailure::NotRun("no answer is recorded".to_owned())),
    };
    let recorded: AutomationCase = case.inputs()?;
    on_runtime(run(recorded, &wanted))?
}

/// The flags of a case. windlass rejects feature gates for cloud logins at its start. Such gates are left out,
/// because windlass also rejects the objects that they would permit.
fn flags(case: &AutomationCase) -> Vec<String> {
    let gates = case.features.iter().map(|(gate, value)| format!("--feature-gates={gate}={value}"));
    let is_taken = |flag: &String| OperatorSettings::from_flags(&[flag.as_str()]).is_ok();
    let mut flags: Vec<String> = gates.filter(is_taken).collect();
    if case.no_cross_namespace_refs {
        flags.push("--no-cross-namespace-refs".to_owned());
    }
    flags
}

async fn run(case: AutomationCase, wanted: &[Value]) -> anyhow::Result<CaseJudgement> {
    let mut repository = CaseGitRepository::start(&case.git)?;
    let git = repository.base_url();
    let fill = |value: &Value| -> anyhow::Result<Value> {
        let filled = serde_json::from_str(&value.to_string().replace(GIT_URL, &git))?;
        Ok(super::with_data(with_keys(filled)?))
    };
    let objects = case.objects.iter().map(fill).collect::<anyhow::Result<Vec<Value>>>()?;
    let automation = objects.first().cloned().unwrap_or_default();
    let flags = flags(&case);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let operator = ControllerEnvironment::start(&flags, objects).await?;
    let plain = AutomationRunInputs::default();
    let mut expected = ExpectedAutomationRuns::default();
    let case_begun = Timestamp::now();
    for (at, wanted) in wanted.iter().enumerate() {
        let inputs = case.runs.get(at).unwrap_or(&plain);
        for commit in &inputs.commits {
            repository.commit(commit)?;
        }
        for object in &inputs.objects {
            operator.put(fill(object)?, object["kind"] == automation["kind"]);
        }
        for name in &inputs.delete {
            operator.remove("ImagePolicy", name);
        }
        operator.list::<ImagePolicy>("ImagePolicy")?;
        operator.list::<ImageUpdateAutomation>("ImageUpdateAutomation")?;
        let before = operator.object(&automation);
        repository.prepare_race()?;
        let references = repository.references()?;
        let wanted = expected.next(&RecordedAutomationRun {
            repository: &repository,
            automation: &before,
            objects: &operator.objects(),
            recorded: wanted,
            has_changes: inputs.has_changes(),
            is_continued: case.features.get("GitAllBranchReferences") != Some(&false),
        })?;
        let mut run_begun = Timestamp::now();
        let mut again = operator.run::<ImageUpdateAutomationController>(&before).await?;
        let has_moved = repository.references()? != references;
        if !has_moved && wanted["commits"].is_array() && age_former_push(&operator, &before) {
            // windlass sends an event about the pause, and Flux does not, so this event is dropped.
            drop(operator.events().await?);
            run_begun = Timestamp::now();
            again = operator.run::<ImageUpdateAutomationController>(&before).await?;
        }
        let time = ReplayTime::until_now(case_begun, run_begun);
        let got = AutomationAnswer {
            commits: repository.new_commits()?,
            references: moved(&references, &repository.references()?),
            push_options: repository.push_options()?,
            answer: ControllerAnswer {
                time,
                object: operator.object(&automation),
                events: operator.events().await?,
                again,
                requests: Vec::new(),
            },
        };
        let wanted = repository.with_hashes(&wanted.to_string().replace(GIT_URL, &git));
        let judgement = same_run(serde_json::from_str(&wanted)?, &before, &got);
        if judgement.is_err() {
            return Ok(judgement);
        }
    }
    Ok(Ok(()))
}

impl AutomationRunInputs {
    fn has_changes(&self) -> bool {
        !self.commits.is_empty() || !self.objects.is_empty() || !self.delete.is_empty()
    }
}

/// If the automation waits to commit again, makes its last commit old enough. It returns whether the automation
/// waits.
fn age_former_push(operator: &ControllerEnvironment, before: &Value) -> bool {
    let mut object = operator.object(before);
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let waits = |condition: &Value| {
        let message = condition["message"].as_str().unwrap_or_default();
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && message.starts_with(POSTPONEMENT)
    };
    let is_waiting = conditions.any(waits);
    let is_same = |member: &str| object["status"][member] == before["status"][member];
    if !is_waiting || !LASTING_MEMBERS.into_iter().all(is_same) {
        return false;
    }
    let time = Timestamp::now() - AGE_OF_FORMER_PUSH;
    object["status"]["lastPushTime"] = json!(time.to_string());
    operator.put(object, false);
    true
}

/// The result of a run.
struct AutomationAnswer {
    /// The commits of the run.
    commits: Vec<Value>,
    /// The references that the run moved.
    references: Map<String, Value>,
    push_options: Vec<String>,
    answer: ControllerAnswer,
}

/// The references that have changed. A deleted one is null.
fn moved(before: &References, after: &References) -> Map<String, Value> {
    let mut moved = Map::new();
    for (name, hash) in after {
        if before.get(name) != Some(hash) {
            moved.insert(name.clone(), json!(hash));
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        moved.insert(name.clone(), Value::Null);
    }
    moved
}

fn same_run(mut wanted: Value, before: &Value, got: &AutomationAnswer) -> CaseJudgement {
    // Flux runs an automation again after it added the finalizer.
    if wanted["requeue"] == true {
        return same_answer(&wanted, before, &got.answer);
    }
    let mut part = |name: &str| {
        wanted.as_object_mut().and_then(|parts| parts.remove(name)).unwrap_or_default()
    };
    same_part("references", &part("refs"), &json!(got.references))?;
    same_commits(&part("commits"), &got.commits)?;
    same_part("push options", &part("pushOptions"), &json!(got.push_options))?;
    same_answer(&wanted, before, &got.answer)
}

fn same_commits(wanted: &Value, got: &[Value]) -> CaseJudgement {
    let wanted = wanted.as_array().cloned().unwrap_or_default();
    let is_same = |(wanted, got): (&Value, &Value)| {
        let is_empty = |value: &Value| value.is_null() || *value == json!([]);
        let has_same_part = |part: &str| {
            wanted[part] == got[part] || (is_empty(&wanted[part]) && is_empty(&got[part]))
        };
        // An author without a name may begin with the space after the name.
        let has_same_identity =
            |part: &str| wanted[part].as_str().map(str::trim) == got[part].as_str().map(str::trim);
        ["commit", "parents", "message", "signature"].into_iter().all(has_same_part)
            && ["author", "committer"].into_iter().all(has_same_identity)
            && has_same_files(&wanted["files"], &got["files"])
    };
    if wanted.len() == got.len() && wanted.iter().zip(got).all(is_same) {
        return Ok(());
    }
    same_part("commits", &json!(wanted), &json!(got))
}

fn has_same_files(wanted: &Value, got: &Value) -> bool {
    let empty = Map::new();
    let wanted = wanted.as_object().unwrap_or(&empty);
    let got = got.as_object().unwrap_or(&empty);
    let has_same = |(path, wanted): (&String, &Value)| {
        got.get(path).is_some_and(|got| is_same_file(wanted, got))
    };
    wanted.len() == got.len() && wanted.iter().all(has_same)
}

/// Whether a file has the same mode, and the same text or the same values.
fn is_same_file(wanted: &Value, got: &Value) -> bool {
    let text = |file: &Value| match file {
        Value::String(text) => Some(text.clone()),
        other => other["content"].as_str().map(str::to_owned),
    };
    let has_same_text = match (text(wanted), text(got)) {
        (Some(wanted), Some(got)) => wanted == got || says_the_same(&wanted, &got),
        (wanted, got) => wanted == got,
    };
    wanted["mode"] == got["mode"] && has_same_text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_same_by_mode_and_values() {
        let file = |mode: &str, content: &str| json!({"mode": mode, "content": content});
        assert!(is_same_file(&json!("a:  1\n"), &json!("a: 1 # c\n")));
        assert!(!is_same_file(&json!("a: 1\n"), &json!("a: 2\n")));
        assert!(is_same_file(&file("100755", "a: 1\n"), &file("100755", "a: 1\n")));
        assert!(!is_same_file(&file("100755", "a: 1\n"), &json!("a: 1\n")));
        assert!(!is_same_file(&Value::Null, &json!("a: 1\n")));
        assert!(is_same_file(&Value::Null, &Value::Null));
    }

    #[test]
    fn references_that_came_moved_or_went_are_found() {
        let references = |all: &[(&str, &str)]| -> References {
            all.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect()
        };
        let before = references(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = references(&[("a", "1"), ("b", "2"), ("d", "1")]);
        assert_eq!(json!(moved(&before, &after)), json!({"b": "2", "c": null, "d": "1"}));
    }
}
