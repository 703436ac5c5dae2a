//! Replays whole runs of ArtifactGenerators with windlass's controller, and compares their results and statuses.
//!
//! This module has the runs of a case and the comparison.
//! * `generator_cluster` has the cluster of a case, and `served_archives` the archives of its sources.
//! * `reconcile_differences` has the results that differ on purpose, and `digest_labels` replaces digests.
//! * `controller_run_comparison.rs` says which statuses, events and delays count as equal.
//!
//! Times, sizes and the text of Flux's returned error are not compared. A controller of windlass returns no error.
//! Whether a run is repeated is compared.

use std::time::Duration;

use anyhow::ensure;
use crds::source_extensions::RECONCILE_ANNOTATION;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::digest_labels::{digests, labelled};
use super::generator_cluster::{GeneratorCluster, GeneratorRunInputs, GeneratorState};
use super::reconcile_differences::due;
use super::{mismatch, strict};
use crate::replay::case::{Case, CaseJudgement, nil};
use crate::replay::controller_environment::on_runtime;
use crate::replay::controller_run_comparison::{
    ControllerAnswer, ReplayTime, same_answer, same_part,
};

/// The beginning of an error after which Flux does not repeat a run.
const TERMINAL_ERROR: &str = "terminal error: ";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReconcileInputs {
    runs: Vec<GeneratorRunInputs>,
    #[serde(default)]
    no_cross_namespace_refs: bool,
    #[serde(rename = "since")]
    _since: Option<String>,
}

/// The recorded result of Flux's run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct RecordedGeneratorRun {
    pub(super) generator: Value,
    #[serde(deserialize_with = "nil")]
    pub(super) external_artifacts: Vec<Value>,
    #[serde(deserialize_with = "nil")]
    pub(super) events: Vec<Value>,
    #[serde(deserialize_with = "nil")]
    pub(super) stored: Vec<String>,
    pub(super) requeue_after_seconds: f64,
    pub(super) error: Option<String>,
}

/// The recorded run of Flux, and the run of windlass.
struct ReplayedGeneratorRun {
    wanted: RecordedGeneratorRun,
    /// The generator before windlass's run.
    before: Value,
    after: GeneratorState,
    events: Vec<Value>,
    /// When windlass will run the generator again.
    again: Option<Duration>,
    time: ReplayTime,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    strict(judge_runs(&case))
}

fn judge_runs(case: &Case) -> CaseJudgement {
    let inputs: ReconcileInputs = case.inputs()?;
    let recorded: Vec<Value> = case.list()?;
    if recorded.len() != inputs.runs.len() {
        return Err(mismatch("an answer to each run", &format!("{} answers", recorded.len())));
    }
    let is_named_as_source =
        inputs.runs.iter().flat_map(|run| &run.objects).any(has_artifact_named_as_source);
    let runs = on_runtime(run(inputs, recorded))?;
    let wanted: Vec<Value> = runs.iter().map(|run| run.wanted.with_digests()).collect();
    let got: Vec<Value> = runs.iter().map(|run| run.after.with_digests()).collect();
    let labels = ComparedLabels {
        wanted: digests(&json!(wanted)),
        got: digests(&json!(got)),
        hides_files: is_named_as_source,
    };
    runs.iter().try_for_each(|run| run.judge(&labels))
}

/// Whether an artifact of a generator has the name of one of its sources. In Flux it then has other files, and its
/// archive another number.
fn has_artifact_named_as_source(object: &Value) -> bool {
    let sources = object["spec"]["sources"].as_array();
    let mut artifacts = object["spec"]["artifacts"].as_array().into_iter().flatten();
    artifacts.any(|artifact| {
        let mut sources = sources.into_iter().flatten();
        sources.any(|source| source["alias"] == artifact["name"])
    })
}

async fn run(
    inputs: ReconcileInputs,
    recorded: Vec<Value>,
) -> anyhow::Result<Vec<ReplayedGeneratorRun>> {
    let mut cluster = GeneratorCluster::start(inputs.no_cross_namespace_refs).await?;
    let mut runs: Vec<ReplayedGeneratorRun> = Vec::new();
    let last = recorded.len().saturating_sub(1);
    for (at, (inputs, recorded)) in inputs.runs.into_iter().zip(recorded).enumerate() {
        cluster.change(inputs)?;
        let recorded = cluster.filled(&recorded)?;
        let recorded: RecordedGeneratorRun = serde_json::from_value(recorded)?;
        let before = cluster.state()?;
        if recorded.adds_finalizer(&before.generator) {
            // Flux runs the generator again after it added the finalizer. windlass continues in the same run, so the
            // result has to be that of Flux's next run.
            if at == last {
                cluster.run().await?;
                let after = cluster.state()?.generator;
                ensure!(
                    after["metadata"]["finalizers"] == recorded.generator["metadata"]["finalizers"],
                    "the run that adds the finalizer leaves {after}"
                );
            }
            continue;
        }
        let wanted = due(recorded, &before, runs.last().map(|run| &run.wanted));
        let run_begun = Timestamp::now();
        let again = cluster.run().await?;
        let time = ReplayTime::until_now(run_begun, run_begun);
        let events = cluster.events().await?;
        let after = cluster.state()?;
        let before = before.generator;
        runs.push(ReplayedGeneratorRun { wanted, before, after, events, again, time });
    }
    Ok(runs)
}

/// The labels of digests on both sides, each numbered by its first appearance.
struct ComparedLabels {
    wanted: Vec<String>,
    got: Vec<String>,
    /// Whether the names of archives are not compared.
    hides_files: bool,
}

/// The parts of a result that have digests, in the same order on both sides.
fn made(generator: &Value, external_artifacts: &[Value]) -> Value {
    let status = &generator["status"];
    let described = described_all(external_artifacts);
    let artifacts: Vec<&Value> = described.iter().map(|it| &it["status"]["artifact"]).collect();
    json!([artifacts, status["inventory"], status["observedSourcesDigest"]])
}

fn sorted(files: &[String]) -> Vec<&String> {
    let mut sorted: Vec<&String> = files.iter().collect();
    sorted.sort();
    sorted
}

/// ExternalArtifacts by namespace and name, without times and sizes.
fn described_all(objects: &[Value]) -> Vec<Value> {
    let mut all: Vec<Value> = objects.iter().map(described).collect();
    all.sort_by_key(|it| format!("{}/{}", it["metadata"]["namespace"], it["metadata"]["name"]));
    all
}

fn described(object: &Value) -> Value {
    let mut status = object["status"].clone();
    if let Some(artifact) = status.pointer_mut("/artifact").and_then(Value::as_object_mut) {
        artifact.retain(|field, _| !["lastUpdateTime", "size"].contains(&field.as_str()));
    }
    let conditions = status.pointer_mut("/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastTransitionTime");
    }
    let metadata = &object["metadata"];
    let fields = ["annotations", "finalizers", "labels", "name", "namespace"];
    let present = fields.into_iter().filter(|field| !is_empty(&metadata[*field]));
    let metadata: Map<String, Value> =
        present.map(|field| (field.to_owned(), metadata[field].clone())).collect();
    json!({"metadata": metadata, "spec": object["spec"], "status": status})
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

impl RecordedGeneratorRun {
    fn with_digests(&self) -> Value {
        made(&self.generator, &self.external_artifacts)
    }

    /// Whether Flux only adds the finalizer in this run, and then runs the generator again at once.
    fn adds_finalizer(&self, before: &Value) -> bool {
        let is_at_once = self.requeue_after_seconds > 0.0 && self.requeue_after_seconds < 0.1;
        let has_none = before["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        is_at_once && has_none && !is_disabled(before)
    }

    /// The result in the common form for comparing controllers.
    fn as_answer(&self) -> Value {
        let generator = &self.generator;
        let object = match generator["gone"] == true {
            true => generator.clone(),
            false => json!({"finalizers": generator["metadata"]["finalizers"],
                "status": generator["status"]}),
        };
        let mut answer = json!({"object": object, "events": self.events,
            "requeueAfterSeconds": self.requeue_after_seconds});
        // An error that only a change of the object can end is not repeated.
        let repeated = self.error.as_ref().filter(|error| !error.starts_with(TERMINAL_ERROR));
        if let Some(error) = repeated {
            answer["error"] = json!(error);
        }
        answer
    }
}

/// Whether the annotation of a generator disables it.
pub(super) fn is_disabled(generator: &Value) -> bool {
    let annotation = &generator["metadata"]["annotations"][RECONCILE_ANNOTATION];
    annotation.as_str().is_some_and(|value| value.eq_ignore_ascii_case("disabled"))
}

impl GeneratorState {
    fn with_digests(&self) -> Value {
        made(&self.generator, &self.external_artifacts)
    }
}

impl ReplayedGeneratorRun {
    fn judge(&self, labels: &ComparedLabels) -> CaseJudgement {
        let Self { wanted, before, after, events, again, time } = self;
        let wanted = json!({
            "answer": wanted.with_words_of(&after.generator).as_answer(),
            "externalArtifacts": described_all(&wanted.external_artifacts),
            "stored": sorted(&wanted.stored),
        });
        let got = json!({
            "before": before,
            "object": after.generator,
            "events": events,
            "externalArtifacts": described_all(&after.external_artifacts),
            "stored": sorted(&after.stored),
        });
        let wanted = labelled(&wanted, &labels.wanted, labels.hides_files);
        let got = labelled(&got, &labels.got, labels.hides_files);
        let answer = ControllerAnswer {
            time: *time,
            object: got["object"].clone(),
            events: got["events"].as_array().cloned().unwrap_or_default(),
            again: *again,
            requests: Vec::new(),
        };
        same_answer(&wanted["answer"], &got["before"], &answer)?;
        for part in ["externalArtifacts", "stored"] {
            same_part(part, &wanted[part], &got[part])?;
        }
        Ok(())
    }
}
