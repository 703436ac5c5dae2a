//! Malicious servers and contents, for every kind that reads them. The status of the object reports the problem, other objects
//! are not affected, and memory and disk use stay limited.
//!
//! Elsewhere: the limits themselves, and answers that need a special server (`sources`), manifests (`stories/bad_input.rs`),
//! fields (`nonsense_in_all_fields.rs`), references across tenants (`tenancy.rs`).

mod addresses;
mod archives;
mod indexes;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::api::DynamicObject;
use serde_json::{Value, json};

const API: &str = "source.toolkit.fluxcd.io/v1";
const OURS: &str = "source.windlass.dev/v1alpha1";

/// Applies an object of a source, which is then reconciled once.
async fn create(story: &Story, kind: &str, name: &str, spec: Value) -> Result<StoryObject> {
    create_with(story, kind, name, json!({}), spec).await
}

/// Applies an object of a source with annotations.
async fn create_with(
    story: &Story,
    kind: &str,
    name: &str,
    annotations: Value,
    mut spec: Value,
) -> Result<StoryObject> {
    let api = if kind == "HTTPArchive" { OURS } else { API };
    spec["interval"] = json!(NEVER);
    let metadata = json!({"name": name, "annotations": annotations});
    let object = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec});
    story.apply_value(object).await?;
    Ok(StoryObject::new(api, kind, name))
}

/// Waits until the result of an object is known. Waiting for another object is no result.
async fn outcome(story: &Story, target: &StoryObject) -> Result<DynamicObject> {
    let is_over = |object: &DynamicObject| {
        let ready = condition(object, "Ready");
        let waits =
            ["NoSourceArtifact", "SourceUnavailable"].iter().any(|it| ready["reason"] == *it);
        ready["status"] == "True" || (ready["status"] == "False" && !waits)
    };
    story.await_object(target, 2 * DEFAULT_WAIT_TIMEOUT, is_over).await
}

/// Waits until an object has failed. Returns its message.
async fn refusal(story: &Story, target: &StoryObject) -> Result<String> {
    let object = outcome(story, target).await?;
    let ready = condition(&object, "Ready");
    let text = ready["message"].as_str().unwrap_or_default().to_owned();
    ensure!(ready["status"] == "False", "{target} was taken: {text}");
    ensure!(object.data["status"]["artifact"].is_null(), "{target} has an artifact");
    Ok(text)
}

/// The highest resident memory of the program since its start, in MiB.
fn peak(windlass: &WindlassProcess) -> Result<u64> {
    let id = windlass.operator.id().context("it has ended")?;
    let text = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak")?;
    let kibibytes: u64 = line.split_whitespace().next().context("no number")?.parse()?;
    Ok(kibibytes / 1024)
}
