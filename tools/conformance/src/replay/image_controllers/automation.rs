//! Runs of ImageUpdateAutomations: what they commit and push, beside what they say of it.
//!
//! Here: the runs of a case, and why some are not compared. Elsewhere: its repository (`git_repository`), statuses and events
//! (`comparison`).
//!
//! Commits are compared with their parents, authors, messages and files. A file that Flux formats anew is compared by the values of
//! its documents. Signatures are not compared: the keys of the cases are not here.

use std::collections::BTreeMap;

use crds::image::{ImagePolicy, ImageUpdateAutomation};
use image_controller::image_update_automation::ImageUpdateAutomationController;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_serve::settings::OperatorSettings;

use super::comparison::{ControllerAnswer, same_answer, same_part};
use super::git_repository::{CaseRepository, CommitInputs, GitInputs, References};
use super::on_runtime;
use super::operator::FakeOperator;
use crate::replay::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil};
use crate::replay::image::says_the_same;

/// The URL of the Git server in a case.
const GIT_URL: &str = "${GIT}";

/// What stands for a key in a case.
const KEY_PLACEHOLDERS: [&str; 2] = ["${GPG_", "${SSH_"];

/// What is as it is on purpose.
pub(super) const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "ref-auto/08",
        "a branch that is given beside a tag is pushed to, where the push of Flux fails",
    ),
    ("refspec/04", "a refspec that means another branch is refused before anything is pushed"),
    ("refspec/13", "a refspec that means no reference is refused before anything is pushed"),
    ("refspec/14", "a refspec that means no reference is refused before anything is pushed"),
    ("refspec-over/01", "a refspec overwrites no commits"),
    ("refspec-over/04", "a refspec overwrites no commits"),
    ("refspec-over/09", "branch and refspec are one push, whose options are sent once"),
    (
        "runs/05",
        "a commit that another writer undid is made again after a minute, so that two writers cannot race",
    ),
    (
        "tree/09",
        "the items of a List stay in its file, where Flux writes each to a file of its own",
    ),
    ("tree/10", "a file whose name has two dots is one like any other"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AutomationCase {
    git: GitInputs,
    /// The automation, and what else the API server has.
    objects: Vec<Value>,
    #[serde(default, deserialize_with = "nil")]
    runs: Vec<RunInputs>,
    /// Gates that are not as they are by default.
    #[serde(default, deserialize_with = "nil")]
    features: BTreeMap<String, bool>,
    #[serde(default)]
    no_cross_namespace_refs: bool,
}

/// What happens before a run.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RunInputs {
    #[serde(deserialize_with = "nil")]
    commits: Vec<CommitInputs>,
    /// Objects that are created or replaced.
    #[serde(deserialize_with = "nil")]
    objects: Vec<Value>,
    /// Names of ImagePolicies.
    #[serde(deserialize_with = "nil")]
    delete: Vec<String>,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    let wanted: Vec<Value> = match &case.answer {
        ReferenceAnswer::Out(Value::Array(runs)) => runs.clone(),
        _ => return Err(CaseFailure::NotRun("no answer is recorded".to_owned())),
    };
    let recorded: AutomationCase = case.inputs()?;
    if let Some(why) = difference(&recorded, &wanted) {
        return Err(CaseFailure::NotRun(why));
    }
    on_runtime(run(recorded, &wanted))?
}

/// The flags of a case.
fn flags(case: &AutomationCase) -> Vec<String> {
    let gates = case.features.iter().map(|(gate, value)| format!("--feature-gates={gate}={value}"));
    let mut flags: Vec<String> = gates.collect();
    if case.no_cross_namespace_refs {
        flags.push("--no-cross-namespace-refs".to_owned());
    }
    flags
}

/// Why the runs of a case are other ones on purpose, or cannot be repeated here.
fn difference(case: &AutomationCase, wanted: &[Value]) -> Option<String> {
    let objects = json!(case.objects).to_string();
    let commits = case.git.commits.iter().chain(case.runs.iter().flat_map(|run| &run.commits));
    let fails = |with: &str| {
        let mut errors = wanted.iter().filter_map(|run| run["error"].as_str());
        errors.any(|error| error.contains(with))
    };
    let automation = case.objects.first()?;
    let says_gate = wanted.iter().any(|run| run.to_string().contains("FeatureGateDisabled"));
    let is_deleted = automation["metadata"]["deletionTimestamp"].is_string();
    let why = if KEY_PLACEHOLDERS.iter().any(|key| objects.contains(key)) {
        "the keys of the recording are not here"
    } else if OperatorSettings::from_flags(&flags(case)).is_err() {
        "a feature gate is refused when the process starts"
    } else if says_gate || case.objects.iter().any(has_unsupported_provider) {
        "spec.provider is not supported, which the status says"
    } else if case.git.race.is_some() || fails("non-fast-forward") {
        "a push that lost a race is repeated in the same run, and is never forced"
    } else if fails("already up-to-date") {
        "a push that changes nothing is no failure"
    } else if wanted.iter().any(|run| !run["panic"].is_null()) {
        "an empty repository is an error"
    } else if is_deleted && automation["spec"]["suspend"] == true {
        "an object that is suspended and deleted is finalized"
    } else if commits.into_iter().any(|commit| commit.reset.is_some()) {
        "the repository of the case cannot be made"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Whether a GitRepository is one of a cloud or a GitHub App.
fn has_unsupported_provider(object: &Value) -> bool {
    let provider = object["spec"]["provider"].as_str().unwrap_or("generic");
    object["kind"] == "GitRepository" && provider != "generic"
}

async fn run(case: AutomationCase, wanted: &[Value]) -> anyhow::Result<CaseJudgement> {
    let mut repository = CaseRepository::start(&case.git)?;
    let git = repository.base_url();
    let fill = |value: &Value| -> anyhow::Result<Value> {
        let filled = serde_json::from_str(&value.to_string().replace(GIT_URL, &git))?;
        Ok(super::with_data(filled))
    };
    let objects = case.objects.iter().map(fill).collect::<anyhow::Result<Vec<Value>>>()?;
    let automation = objects.first().cloned().unwrap_or_default();
    let flags = flags(&case);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let operator = FakeOperator::start(&flags, objects).await?;
    let plain = RunInputs::default();
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
        let references = repository.references()?;
        let again = operator.run::<ImageUpdateAutomationController>(&before).await?;
        let got = AutomationAnswer {
            commits: repository.new_commits()?,
            references: moved(&references, &repository.references()?),
            push_options: repository.push_options()?,
            answer: ControllerAnswer {
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

/// What a run came to.
struct AutomationAnswer {
    /// The commits that it made.
    commits: Vec<Value>,
    /// The references that it moved.
    references: Map<String, Value>,
    push_options: Vec<String>,
    answer: ControllerAnswer,
}

/// The references that are other ones now; null for those that are gone.
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
    // An automation without a finalizer is run at once after it got one.
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
        // One without a name may begin with the space behind it.
        let has_same_identity =
            |part: &str| wanted[part].as_str().map(str::trim) == got[part].as_str().map(str::trim);
        ["commit", "parents", "message"].into_iter().all(has_same_part)
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
