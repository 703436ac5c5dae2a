//! Runs the Job of a LifecycleEvent once. Before the Job is created, the status of the event records that it has begun.
//!
//! Elsewhere: the meaning of its result (engine `lifecycle`).

use std::collections::BTreeMap;

use crds::operation_lifecycle::{LifecycleEvent, LifecycleEventProgressStep, LifecycleJobHandler};
use kube_core::{Resource as _, ResourceExt as _};
use lifecycle::{EventJobStep, HandlerOutcome, job_task};
use objects::{Gvk, Object};
use serde_json::{Value, json};

use crate::lifecycle::MANAGER;
use crate::lifecycle::watched_object_cache::resource;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The step in the status of an event that records the begin of its Job.
const BEGUN: &str = "Job";

fn jobs() -> ApiResourceLocation {
    ApiResourceLocation {
        gvk: Gvk::new("batch/v1", "Job"),
        plural: "jobs".to_owned(),
        namespaced: true,
        watchable: true,
    }
}

/// The manifest of the Job of an event. Its containers get `variables` as environment variables.
///
/// # Errors
/// The Job template is invalid.
pub(super) fn manifest(
    job: &LifecycleJobHandler,
    event: &LifecycleEvent,
    namespace: &str,
    variables: &BTreeMap<String, String>,
) -> Result<Object, String> {
    let mut value = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {}, "spec": job.template.spec});
    for key in ["labels", "annotations"] {
        if let Some(of) = job.template.metadata.get(key) {
            value["metadata"][key] = of.clone();
        }
    }
    value["metadata"]["name"] = job_name(&event.name_any()).into();
    value["metadata"]["namespace"] = namespace.into();
    // The API server deletes the Job together with the event.
    value["metadata"]["ownerReferences"] = json!([{
        "apiVersion": LifecycleEvent::api_version(&()), "kind": LifecycleEvent::kind(&()),
        "name": event.name_any(), "uid": event.uid(), "controller": true,
    }]);
    if let Some(spec) = value["spec"].as_object_mut() {
        // With this field, the Job could be deleted before windlass has seen its end.
        spec.remove("ttlSecondsAfterFinished");
    }
    for kind in ["initContainers", "containers"] {
        let containers = value.pointer_mut(&format!("/spec/template/spec/{kind}"));
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let env = container.entry("env").or_insert_with(|| json!([]));
            let Some(env) = env.as_array_mut() else { continue };
            env.extend(variables.iter().map(|(name, value)| json!({"name": name, "value": value})));
        }
    }
    Object::new(value).map_err(|error| format!("spec.handler.job.template: {error}"))
}

/// The name of the Job of an event. It is shortened, because it becomes a label of Pods.
fn job_name(event: &str) -> String {
    let (begin, digest) = event.rsplit_once('-').unwrap_or((event, ""));
    let begin: String = begin.chars().take(46).collect();
    format!("{}-{digest}", begin.trim_end_matches(['.', '-']).replace('.', "-"))
}

/// Creates the Job of an event in the cluster `target`, or returns the progress of the Job. `event` is as it was last seen in
/// `cluster`. During a `suspension`, no Job is created.
///
/// # Errors
/// The API server rejects a request, or another Job has the name. The next check tries again.
pub(super) async fn check(
    cluster: &ClusterConnection,
    target: &ClusterConnection,
    event: &LifecycleEvent,
    wanted: &Object,
    suspension: Option<&str>,
) -> Result<HandlerOutcome, String> {
    let namespace = event.namespace().unwrap_or_default();
    let name = wanted.name();
    let steps = event.status.as_ref().map_or(&[][..], |status| status.steps.as_slice());
    let is_begun = steps.iter().any(|step| step.name == BEGUN);
    if let Some(why) = suspension.filter(|_| !is_begun) {
        return Ok(HandlerOutcome::Wait(format!("{why}; Job {name} is created on resume")));
    }
    let shown = |error: ClusterError| error.to_string();
    let found = target.get(&jobs(), &namespace, name).await.map_err(shown)?;
    let found = found.map(Object::into_value);
    if found.as_ref().is_some_and(|job| !is_of(job, event)) {
        return Err(format!("Job {name} exists and does not belong to this event; delete it"));
    }
    match job_task(name, is_begun, found.as_ref()) {
        EventJobStep::Judge(finding) => Ok(finding),
        EventJobStep::Begin => begin(cluster, target, event, steps, wanted).await,
    }
}

/// Whether a Job was created for an event.
fn is_of(job: &Value, event: &LifecycleEvent) -> bool {
    let uid = event.uid().unwrap_or_default();
    let owners = job["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|all| all.iter().any(|owner| owner["uid"] == uid))
}

/// Records in the event that its Job has begun, and creates the Job.
async fn begin(
    cluster: &ClusterConnection,
    target: &ClusterConnection,
    event: &LifecycleEvent,
    steps: &[LifecycleEventProgressStep],
    wanted: &Object,
) -> Result<HandlerOutcome, String> {
    let name = wanted.name();
    let refused = |error: ClusterError| format!("Job {name} cannot be created: {error}");
    // A dry run finds most refusals, so that nothing has to be recorded.
    target.try_create(&jobs(), wanted, MANAGER).await.map_err(refused)?;
    let begun = LifecycleEventProgressStep {
        name: BEGUN.to_owned(),
        message: Some(format!("Job {name} is created")),
        at: Some(jiff::Timestamp::now().into()),
    };
    let noted: Vec<&LifecycleEventProgressStep> = steps.iter().chain([&begun]).collect();
    // The write requires the version of the event. It fails if the event is too old to know that its Job has begun.
    let version = event.resource_version();
    let of = json!({"uid": event.uid(), "resourceVersion": version});
    note(cluster, event, &of, &noted).await.map_err(|error| {
        format!("Job {name} is not created, since the event cannot say that it is: {error}")
    })?;
    match target.create_object(&jobs(), wanted, MANAGER, true).await {
        Ok(_) => Ok(HandlerOutcome::Wait(format!("Job {name} was created"))),
        Err(error) => {
            let is_refused = error.code().is_some_and(|code| (400..500).contains(&code));
            // An existing Job may be the one that this request created, if its answer was lost. Then the record is right.
            if is_refused && error.code() != Some(409) {
                // No Job was created, so the record is removed and a later check tries again.
                let noted: Vec<&LifecycleEventProgressStep> = steps.iter().collect();
                let withdrawn = note(cluster, event, &json!({"uid": event.uid()}), &noted).await;
                withdrawn.map_err(|error| error.to_string())?;
            }
            Err(refused(error))
        }
    }
}

/// Writes the recorded steps of an event.
async fn note(
    cluster: &ClusterConnection,
    event: &LifecycleEvent,
    metadata: &Value,
    steps: &[&LifecycleEventProgressStep],
) -> Result<(), ClusterError> {
    let patch = json!({"metadata": metadata, "status": {"steps": steps}});
    let namespace = event.namespace().unwrap_or_default();
    let name = event.name_any();
    let events = resource::<LifecycleEvent>();
    cluster.merge_patch_status(&events, &namespace, &name, &patch, MANAGER).await
}

#[cfg(test)]
mod tests;
