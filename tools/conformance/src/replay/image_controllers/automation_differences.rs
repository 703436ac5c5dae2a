//! The runs of ImageUpdateAutomations whose results differ from Flux on purpose, with the expected results.
//!
//! | what Flux does | what is expected of windlass |
//! |---|---|
//! | a push that changes nothing fails (`already up-to-date`), as every refspec from `HEAD` does | success; the reference is pushed if it only moves forward |
//! | a push that lost a race fails, or overwrites the other commit | the commit is made on top of the other one |
//! | an empty repository is a panic | an error |
//! | a branch that is given beside a tag fails (`funny refname`) | it is pushed |
//! | a file with two dots in its name is an error | it is one like any other |
//! | the items of a List go to files of their own | they stay where they are |
//! | a GitRepository of a cloud is used | it is refused |
//!
//! `update_model` computes the result of an update.

use serde_json::{Value, json};
use windlass_runtime::unsupported_fields::unsupported_text;

use super::git_repository::CaseGitRepository;
use super::update_model::ImageUpdateModel;

/// Flux's message about a push that changes nothing.
const ALREADY_UP_TO_DATE: &str = "failed to push to remote: already up-to-date";

/// Flux's message about a push that lost a race.
const LOST_RACE: &str = "failed to push to remote: non-fast-forward update: ";

/// Flux's message about the branch beside a tag.
const FUNNY_REFNAME: &str = "command error on HEAD: funny refname";

/// Flux's message about a file with two dots in its name.
const NOT_IN_FOLDER: &str = "resource must be written under package ";

/// The expected message about an empty repository. The words after it are not compared.
const EMPTY_REPOSITORY: &str = "failed to checkout source: the repository has no commit";

/// The members of a status that stay after a run that reached its end.
const LASTING_MEMBERS: [&str; 5] = [
    "lastPushCommit",
    "lastPushTime",
    "observedPolicies",
    "observedSourceRevision",
    "observedGeneration",
];

/// One recorded run of a case.
pub(super) struct RecordedAutomationRun<'r> {
    pub(super) repository: &'r CaseGitRepository,
    /// The automation before the run.
    pub(super) automation: &'r Value,
    /// All objects on the API server.
    pub(super) objects: &'r [Value],
    /// The recorded result of Flux.
    pub(super) recorded: &'r Value,
    /// Whether commits or objects changed since the last run.
    pub(super) has_changes: bool,
    /// Whether an existing push branch is continued.
    pub(super) is_continued: bool,
}

/// The expected results of a case's runs, one after the other.
#[derive(Default)]
pub(super) struct ExpectedAutomationRuns {
    /// The status after the last run in which windlass had to do more than Flux did.
    ahead: Option<Value>,
}

impl ExpectedAutomationRuns {
    /// The expected result of the next run, with labels in place of commits.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub(super) fn next(&mut self, run: &RecordedAutomationRun<'_>) -> anyhow::Result<Value> {
        if let Some(answer) = run.brought_to_its_end()? {
            self.ahead = Some(answer["object"]["status"].clone());
            return Ok(answer);
        }
        if let Some(answer) = run.refused().or_else(|| run.of_empty_repository()) {
            return Ok(answer);
        }
        let mut answer = run.recorded.clone();
        let Some(ahead) = &self.ahead else {
            run.keep_lists(&mut answer)?;
            return Ok(answer);
        };
        let status = &mut answer["object"]["status"];
        if !run.has_changes {
            // windlass has already done what Flux does in this run.
            status.clone_from(ahead);
            for part in ["commits", "refs", "events", "error", "pushOptions"] {
                answer[part] = Value::Null;
            }
            answer["requeueAfterSeconds"] = json!(run.interval()?);
            return Ok(answer);
        }
        for member in LASTING_MEMBERS {
            if status[member].is_null() && !ahead[member].is_null() {
                status[member] = ahead[member].clone();
            }
        }
        Ok(answer)
    }
}

impl<'r> RecordedAutomationRun<'r> {
    fn error(&self) -> &'r str {
        self.recorded["error"].as_str().unwrap_or_default()
    }

    fn interval(&self) -> anyhow::Result<f64> {
        let interval = self.automation["spec"]["interval"].as_str().unwrap_or_default();
        Ok(reconcile::parse_duration(interval)?.as_secs_f64())
    }

    /// The condition `Ready` in the recorded status. Null if there is none.
    fn said(&self) -> &'r Value {
        let conditions = self.recorded["object"]["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|it| it["type"] == "Ready");
        ready.unwrap_or(&Value::Null)
    }

    /// The GitRepository of the automation.
    fn source(&self) -> &'r Value {
        let reference = &self.automation["spec"]["sourceRef"];
        let own = &self.automation["metadata"]["namespace"];
        let namespace =
            if reference["namespace"].is_string() { &reference["namespace"] } else { own };
        let found = self.objects.iter().find(|it| {
            let metadata = &it["metadata"];
            it["kind"] == "GitRepository"
                && metadata["name"] == reference["name"]
                && metadata["namespace"] == *namespace
        });
        found.unwrap_or(&Value::Null)
    }

    fn model(&self) -> anyhow::Result<ImageUpdateModel<'r>> {
        Ok(ImageUpdateModel {
            repository: self.repository,
            references: self.repository.references()?,
            automation: self.automation,
            source: self.source(),
            objects: self.objects,
            recorded: self.recorded,
            is_continued: self.is_continued,
            label: self.repository.next_label(),
        })
    }

    /// The expected result if windlass finishes a run that Flux does not finish.
    fn brought_to_its_end(&self) -> anyhow::Result<Option<Value>> {
        let model = self.model()?;
        let error = self.error();
        if error.ends_with(ALREADY_UP_TO_DATE) {
            return self.pushed_to_refspec(&model);
        }
        if error.ends_with(FUNNY_REFNAME) || error.contains(NOT_IN_FOLDER) {
            return model.answer();
        }
        self.after_race(model)
    }

    /// The expected result if the refspec names the pushed branch, or moves another one forward from `HEAD`. It is
    /// `None` for other refspecs. These fail after the branch was pushed, as in Flux.
    fn pushed_to_refspec(&self, model: &ImageUpdateModel<'_>) -> anyhow::Result<Option<Value>> {
        let destination = model.refspec().and_then(|refspec| refspec.split_once(':'));
        let Some((from, to)) = destination else { return Ok(None) };
        let Some(branch) = model.branch() else { return Ok(None) };
        let Some(commit) = model.commit()? else { return Ok(None) };
        let own = format!("refs/heads/{branch}");
        let is_forward = model
            .references
            .get(to)
            .is_none_or(|head| self.repository.leads_to(&commit.parent, head));
        let is_pushed = from == "HEAD" && to != own && is_forward;
        let is_there = to == own && (from == "HEAD" || from == own);
        let answer = if is_pushed || is_there { model.answer()? } else { None };
        let Some(mut answer) = answer else { return Ok(None) };
        answer["commits"] = self.recorded["commits"].clone();
        answer["refs"] = self.recorded["refs"].clone();
        answer["pushOptions"] = self.recorded["pushOptions"].clone();
        if is_pushed {
            answer["refs"][to] = answer["refs"][&own].clone();
            // Each of the two pushes sends the options.
            let options = self.recorded["pushOptions"].as_array().cloned().unwrap_or_default();
            let twice = options.iter().flat_map(|option| [option.clone(), option.clone()]);
            answer["pushOptions"] = twice.collect();
        }
        Ok(Some(answer))
    }

    /// The expected result if another commit comes to the same branch during the push.
    fn after_race(&self, mut model: ImageUpdateModel<'_>) -> anyhow::Result<Option<Value>> {
        let Some((branch, commit)) = self.repository.coming_race() else { return Ok(None) };
        let is_pushing = self.error().contains(LOST_RACE) || self.recorded["commits"].is_array();
        if !is_pushing || model.branch() != Some(branch) {
            return Ok(None);
        }
        let name = format!("refs/heads/{branch}");
        model.references.insert(name.clone(), commit.to_owned());
        // The other commit has the label before this one.
        model.label += 1;
        let answer = model.answer()?.map(|mut answer| {
            if answer["refs"].is_null() {
                answer["refs"] = json!({name: commit});
            }
            answer
        });
        Ok(answer)
    }

    /// The expected result for an empty repository, for which Flux panics. `None` if the recording has no panic.
    fn of_empty_repository(&self) -> Option<Value> {
        if self.recorded["panic"].is_null() {
            return None;
        }
        let mut answer = self.recorded.clone();
        if let Some(parts) = answer.as_object_mut() {
            parts.remove("panic");
        }
        answer["error"] = json!(EMPTY_REPOSITORY);
        answer["events"] = json!([{"type": "Warning", "reason": "GitOperationFailed",
            "message": EMPTY_REPOSITORY}]);
        let conditions = answer["object"]["status"]["conditions"].as_array_mut();
        for ready in conditions.into_iter().flatten().filter(|it| it["type"] == "Ready") {
            ready["status"] = json!("False");
            ready["reason"] = json!("GitOperationFailed");
            ready["message"] = json!(EMPTY_REPOSITORY);
        }
        Some(answer)
    }

    /// The expected result for a GitRepository of a cloud or with a ServiceAccount. windlass rejects it when the GitRepository
    /// and its Secret exist. `None` for other cases.
    fn refused(&self) -> Option<Value> {
        let source = self.source();
        let spec = &source["spec"];
        let provider = spec["provider"].as_str().unwrap_or("generic");
        let given = [
            ("spec.provider", provider != "generic"),
            ("spec.serviceAccountName", spec["serviceAccountName"].is_string()),
        ];
        let fields: Vec<&str> =
            given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect();
        let is_reached = match self.said()["reason"].as_str().unwrap_or_default() {
            "FeatureGateDisabled" | "GitOperationFailed" | "Succeeded" | "UpdateFailed" => true,
            "SourceManagerFailed" => {
                let message = self.said()["message"].as_str().unwrap_or_default();
                let before = ["push spec not provided", "failed to get auth secret"];
                !before.into_iter().any(|words| message.contains(words))
            }
            _ => false,
        };
        let is_idle = self.automation["spec"]["suspend"] == true
            || !self.automation["metadata"]["deletionTimestamp"].is_null();
        if fields.is_empty() || !is_reached || is_idle {
            return None;
        }
        let metadata = &source["metadata"];
        let [namespace, name] =
            ["namespace", "name"].map(|field| metadata[field].as_str().unwrap_or_default());
        let message = format!("GitRepository/{namespace}/{name}: {}", unsupported_text(&fields));
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "UnsupportedField",
                "message": message, "observedGeneration": self.automation["metadata"]["generation"]})
        };
        let before = &self.automation["status"];
        let mut status = if before.is_object() { before.clone() } else { json!({}) };
        status["conditions"] = json!([condition("Stalled", "True"), condition("Ready", "False")]);
        status["lastAutomationRunTime"] = json!("<now>");
        status["observedGeneration"] = self.automation["metadata"]["generation"].clone();
        let handled = &self.recorded["object"]["status"]["lastHandledReconcileAt"];
        if !handled.is_null() {
            status["lastHandledReconcileAt"] = handled.clone();
        }
        let finalizers = &self.recorded["object"]["finalizers"];
        Some(json!({
            "object": {"finalizers": finalizers, "status": status},
            "events": [{"type": "Warning", "reason": "UnsupportedField", "message": message}],
            "requeueAfterSeconds": 0,
        }))
    }

    /// Puts the items of Lists back into their files. Flux writes them to files of their own.
    fn keep_lists(&self, answer: &mut Value) -> anyhow::Result<()> {
        let Some(written) = answer["commits"][0]["files"].as_object() else { return Ok(()) };
        let Some(commit) = self.model()?.commit()? else { return Ok(()) };
        let before = self.repository.files(&commit.parent)?;
        let is_list = |text: &String| text.lines().any(|line| line == "kind: List");
        let is_moved = written.keys().any(|path| !before.contains_key(path));
        if is_moved && before.values().any(is_list) {
            answer["commits"][0]["files"] = json!(commit.files);
        }
        Ok(())
    }
}
