//! The runs of ArtifactGenerators whose results differ from Flux on purpose, with the expected results.
//!
//! | what Flux does | what is expected of windlass |
//! |---|---|
//! | a source that has no artifact is waited for without `Reconciling` | `Reconciling` says that the run is repeated |
//! | the end of a failure has no event if all digests are known | it has one |
//! | a generator that is disabled has a finalizer and `Ready`, and keeps `Reconciling` of a failure | nothing is written but that no run is in progress |
//! | what a disabled generator made is removed with it | it stays |
//! | an ExternalArtifact of another owner is taken over | it stays, and the artifact has failed |
//!
//! An error of the operating system has windlass's own words after those of Flux. `reconcile` compares the results.

use serde_json::{Value, json};
use sources::source_condition_reasons::EXTERNAL_ARTIFACT_FAILED;

use super::build::is_same_error;
use super::generator_cluster::GeneratorState;
use super::reconcile::{RecordedGeneratorRun, is_disabled};

/// The beginning of Flux's message about a source without an artifact.
const WITHOUT_SOURCE: &str = "get sources failed: ";

/// The label of an ExternalArtifact with the uid of its generator.
const GENERATOR_LABEL: &str = "source.extensions.fluxcd.io/generator";

/// The result that windlass has to have for a recorded run. `previous` is the expected result of the run before.
pub(super) fn due(
    recorded: RecordedGeneratorRun,
    before: &GeneratorState,
    previous: Option<&RecordedGeneratorRun>,
) -> RecordedGeneratorRun {
    if is_disabled(&before.generator) {
        return of_disabled_generator(recorded, &before.generator, previous);
    }
    if let Some(due) = beside_other_owner(&recorded, before, previous) {
        return due;
    }
    with_end_of_failure(with_retry(recorded), &before.generator)
}

/// The conditions of a generator without one of them.
fn conditions_without(generator: &Value, excluded: &str) -> Vec<Value> {
    let conditions = generator["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] != excluded).cloned().collect()
}

/// The condition `Ready` of a generator. It is null if the generator has none.
fn ready(generator: &Value) -> Value {
    let conditions = generator["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ready.cloned().unwrap_or_default()
}

/// The condition that announces a retry, with the generation of another condition.
fn retry(ready: &Value) -> Value {
    json!({"type": "Reconciling", "status": "True", "reason": "ProgressingWithRetry",
        "observedGeneration": ready["observedGeneration"]})
}

fn of_disabled_generator(
    recorded: RecordedGeneratorRun,
    before: &Value,
    previous: Option<&RecordedGeneratorRun>,
) -> RecordedGeneratorRun {
    if recorded.generator["gone"] == true {
        let stays = previous.cloned().unwrap_or_default();
        return RecordedGeneratorRun { generator: recorded.generator, events: Vec::new(), ..stays };
    }
    let mut due = RecordedGeneratorRun {
        events: Vec::new(),
        requeue_after_seconds: 0.0,
        error: None,
        ..recorded
    };
    due.generator["metadata"]["finalizers"] = before["metadata"]["finalizers"].clone();
    due.generator["status"]["conditions"] = json!(conditions_without(before, "Reconciling"));
    due
}

/// Whether an ExternalArtifact belongs to a generator.
fn is_of(external: &Value, generator: &Value) -> bool {
    let source = &external["spec"]["sourceRef"];
    let is_named =
        source["kind"] == "ArtifactGenerator" && source["name"] == generator["metadata"]["name"];
    is_named || external["metadata"]["labels"][GENERATOR_LABEL] == generator["metadata"]["uid"]
}

/// The expected result if another owner has one of the generator's ExternalArtifacts, which Flux took over. The artifacts
/// before this one are made. `None` if no other owner has one.
fn beside_other_owner(
    recorded: &RecordedGeneratorRun,
    before: &GeneratorState,
    previous: Option<&RecordedGeneratorRun>,
) -> Option<RecordedGeneratorRun> {
    let GeneratorState { generator, external_artifacts, .. } = before;
    let namespace = generator["metadata"]["namespace"].as_str()?;
    let is_called = |external: &Value, name: &Value| {
        let metadata = &external["metadata"];
        metadata["namespace"] == namespace && metadata["name"] == *name
    };
    let others: Vec<&Value> =
        external_artifacts.iter().filter(|external| !is_of(external, generator)).collect();
    let is_taken_over = |name: &Value| {
        let is_now_its = |it: &Value| is_called(it, name) && is_of(it, generator);
        others.iter().any(|other| is_called(other, name))
            && recorded.external_artifacts.iter().any(is_now_its)
    };
    let artifacts = generator["spec"]["artifacts"].as_array()?;
    let at = artifacts.iter().position(|artifact| is_taken_over(&artifact["name"]))?;
    let earlier: Vec<&str> =
        artifacts.iter().take(at).filter_map(|artifact| artifact["name"].as_str()).collect();
    let name = artifacts.get(at)?["name"].as_str()?;
    let is_earlier = |external: &&Value| {
        external["metadata"]["name"].as_str().is_some_and(|name| earlier.contains(&name))
    };
    let is_stored_earlier = |file: &&String| {
        earlier.iter().any(|name| file.starts_with(&format!("{namespace}/{name}/")))
    };
    let former = previous.cloned().unwrap_or_default();
    let made = recorded.external_artifacts.iter().filter(is_earlier);
    let is_lasting = |it: &&Value| is_of(it, generator) && !is_earlier(it);
    let lasting = former.external_artifacts.iter().filter(is_lasting);
    let stored = recorded.stored.iter().filter(is_stored_earlier);
    let stored = stored.chain(former.stored.iter().filter(|file| !is_stored_earlier(file)));
    let message = format!(
        "ExternalArtifact `{name}` exists and was not made by this ArtifactGenerator; delete or rename either"
    );
    let reason = EXTERNAL_ARTIFACT_FAILED.as_str();
    let failure = json!({"type": "Ready", "status": "False", "reason": reason, "message": message,
        "observedGeneration": generator["metadata"]["generation"]});
    let mut status = former.generator["status"].clone();
    status["conditions"] = json!([retry(&failure), failure]);
    Some(RecordedGeneratorRun {
        generator: json!({"metadata": recorded.generator["metadata"], "status": status}),
        external_artifacts: made.chain(lasting).chain(others).cloned().collect(),
        events: vec![json!({"type": "Warning", "reason": reason, "message": message})],
        stored: stored.cloned().collect(),
        requeue_after_seconds: 0.0,
        error: Some(message),
    })
}

/// The same run, in which windlass announces a retry because it waits for a source.
fn with_retry(mut recorded: RecordedGeneratorRun) -> RecordedGeneratorRun {
    let ready = ready(&recorded.generator);
    let message = ready["message"].as_str().unwrap_or_default();
    if ready["status"] == "False" && message.starts_with(WITHOUT_SOURCE) {
        let mut conditions = conditions_without(&recorded.generator, "Reconciling");
        conditions.push(retry(&ready));
        recorded.generator["status"]["conditions"] = json!(conditions);
    }
    recorded
}

/// The same run with an event at the end of a failure, also if all digests are known.
fn with_end_of_failure(mut recorded: RecordedGeneratorRun, before: &Value) -> RecordedGeneratorRun {
    let was_ready = ready(before);
    let ready = ready(&recorded.generator);
    let has_failed = !was_ready.is_null() && was_ready["status"] != "True";
    let is_silent = recorded.events.iter().all(|event| event["type"] == "Trace");
    if has_failed && ready["status"] == "True" && is_silent {
        let message = &ready["message"];
        recorded.events.push(json!({"type": "Normal", "reason": "Ready", "message": message}));
    }
    recorded
}

impl RecordedGeneratorRun {
    /// The same run, in which an operating system's error has windlass's words after Flux's own.
    pub(super) fn with_words_of(&self, generator: &Value) -> Self {
        let own = ready(&self.generator)["message"].clone();
        let other = ready(generator)["message"].clone();
        let is_same = match (own.as_str(), other.as_str()) {
            (Some(own), Some(other)) => own != other && is_same_error(own, other).is_ok(),
            _ => false,
        };
        if !is_same {
            return self.clone();
        }
        let replaced = |value: &Value| -> Value {
            let text = value.to_string().replace(&own.to_string(), &other.to_string());
            serde_json::from_str(&text).unwrap_or_default()
        };
        Self {
            generator: replaced(&self.generator),
            events: self.events.iter().map(replaced).collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(
        annotations: &Value,
        conditions: &Value,
        external_artifacts: Vec<Value>,
    ) -> GeneratorState {
        let generator = json!({"metadata": {"namespace": "apps", "name": "gen", "uid": "u", "generation": 1,
            "annotations": annotations}, "spec": {"artifacts": [{"name": "one"}, {"name": "two"}]},
            "status": {"conditions": conditions}});
        GeneratorState { generator, external_artifacts, ..GeneratorState::default() }
    }

    fn run(ready: &Value, events: Vec<Value>) -> RecordedGeneratorRun {
        let generator = json!({"metadata": {}, "status": {"conditions": [ready]}});
        RecordedGeneratorRun { generator, events, ..RecordedGeneratorRun::default() }
    }

    fn condition(status: &str, message: &str) -> Value {
        json!({"type": "Ready", "status": status, "reason": "R", "message": message, "observedGeneration": 1})
    }

    #[test]
    fn waiting_for_a_source_is_repeated_and_other_failures_are_as_recorded() {
        let types = |message: &str| -> Vec<Value> {
            let due = due(
                run(&condition("False", message), Vec::new()),
                &state(&json!({}), &json!([]), Vec::new()),
                None,
            );
            let conditions = due.generator["status"]["conditions"].as_array().unwrap().iter();
            conditions.map(|it| it["type"].clone()).collect()
        };
        assert_eq!(types("get sources failed: none"), ["Ready", "Reconciling"]);
        assert_eq!(types("fetch sources failed: none"), ["Ready"]);
    }

    #[test]
    fn the_end_of_a_failure_is_one_event() {
        let count = |before: &Value, events: Vec<Value>| {
            let before = state(&json!({}), before, Vec::new());
            due(run(&condition("True", "made"), events), &before, None).events.len()
        };
        let failed = json!([condition("False", "failed")]);
        assert_eq!(count(&failed, Vec::new()), 1);
        assert_eq!(count(&failed, vec![json!({"type": "Normal"})]), 1);
        assert_eq!(count(&json!([condition("True", "made")]), Vec::new()), 0);
        assert_eq!(count(&json!([]), Vec::new()), 0);
    }

    #[test]
    fn a_disabled_generator_stays_as_it_is() {
        let before = json!([{"type": "Reconciling"}, condition("False", "failed")]);
        let annotations = json!({"source.extensions.fluxcd.io/reconcile": "Disabled"});
        let before = state(&annotations, &before, Vec::new());
        let due = due(run(&condition("True", "initialized"), vec![json!({})]), &before, None);
        assert_eq!(due.generator["status"]["conditions"], json!([condition("False", "failed")]));
        assert_eq!(due.events.len(), 0);
    }

    #[test]
    fn what_another_owner_has_is_not_taken_over_and_what_is_made_before_is_offered() {
        let external = |name: &str, label: &str| json!({"metadata": {"namespace": "apps", "name": name, "labels": {GENERATOR_LABEL: label}}, "spec": {}});
        let before = state(&json!({}), &json!([]), vec![external("two", "other")]);
        let recorded = RecordedGeneratorRun {
            external_artifacts: vec![external("one", "u"), external("two", "u")],
            stored: vec!["apps/one/1.tar.gz".to_owned(), "apps/two/2.tar.gz".to_owned()],
            ..run(&condition("True", "made"), Vec::new())
        };
        let due = due(recorded, &before, None);
        assert_eq!(due.external_artifacts, [external("one", "u"), external("two", "other")]);
        assert_eq!(due.stored, ["apps/one/1.tar.gz"]);
        assert_eq!(ready(&due.generator)["reason"], "ExternalArtifactFailed");
    }
}
