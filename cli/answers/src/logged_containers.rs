//! Finds the containers whose logs are printed: those of windlass, or those of the Pods of an object and of its applied
//! objects.
//!
//! Elsewhere: the applied objects (engine `cause`), the selector of their Pods (`cause::pod`), the Pods that belong to a
//! workload (`owned_pods.rs`).

use std::collections::{BTreeSet, VecDeque};

use cause::object_references;
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use super::cause_facts::{self, AT_ONCE};
use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;
use super::owned_pods;
use windlass_cli_installation::check::OURS;

/// The maximum number of containers that are read at once.
const MOST_CONTAINERS: usize = 64;

/// The maximum number of objects whose Pods are searched.
const MOST_OBJECTS: usize = 2000;

/// The name of windlass's container in its Pods.
const MANAGER: &str = "manager";

/// A container that may have printed log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggingContainer {
    /// The namespace of the Pod.
    pub namespace: String,
    /// The name of the Pod.
    pub pod: String,
    /// The name of the container in the Pod.
    pub name: String,
}

/// Containers, and messages about other containers.
#[derive(Debug, Default)]
pub struct LoggedContainers {
    /// Containers that have printed something, or may have.
    pub containers: Vec<LoggingContainer>,
    /// Containers that have printed nothing yet, with the reason.
    pub silent: Vec<String>,
    /// Messages about containers that the user may not read, and about those beyond the maximum.
    pub left_out: Vec<String>,
    more: usize,
}

impl LoggedContainers {
    fn add(&mut self, pod: &Object) {
        let parts = |of: &str, key: &str| {
            let parts = pod.get(of).and_then(|it| it.get(key)).and_then(Value::as_array);
            parts.cloned().unwrap_or_default()
        };
        for (listed, status_list) in
            [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")]
        {
            let statuses = parts("status", status_list);
            for container in parts("spec", listed) {
                let name = container["name"].as_str().unwrap_or_default();
                match silence(statuses.iter().find(|it| it["name"] == name)) {
                    Some(why) => self.silent.push(format!(
                        "{}: container '{name}' has printed nothing: {why}",
                        pod.id().subject()
                    )),
                    None if self.containers.len() >= MOST_CONTAINERS => self.more += 1,
                    None => self.containers.push(LoggingContainer {
                        namespace: pod.namespace().to_owned(),
                        pod: pod.name().to_owned(),
                        name: name.to_owned(),
                    }),
                }
            }
        }
    }

    fn ended(mut self) -> Self {
        if self.more > 0 {
            let text = format!("{} more containers; name a workload that has fewer", self.more);
            self.left_out.push(text);
        }
        self
    }

    /// Selects only the containers with this name, if a Pod has one.
    fn only(mut self, name: &str) -> Self {
        if self.containers.iter().any(|it| it.name == name) {
            self.containers.retain(|it| it.name == name);
        }
        self
    }
}

/// Why a container has printed nothing. `None` if it may have printed something.
fn silence(status: Option<&Value>) -> Option<String> {
    let Some(status) = status else { return Some("it has not started".to_owned()) };
    let of = |state: &str, key: &str| status[state].get(key).filter(|it| !it.is_null());
    let has_run =
        [of("state", "running"), of("state", "terminated"), of("lastState", "terminated")];
    if has_run.iter().any(Option::is_some) {
        return None;
    }
    let waiting = of("state", "waiting").cloned().unwrap_or_default();
    let text = |key: &str| waiting[key].as_str().unwrap_or_default().to_owned();
    Some(match (text("reason"), text("message")) {
        (reason, _) if reason.is_empty() => "it has not started".to_owned(),
        (reason, message) if message.is_empty() => reason,
        (reason, message) => format!("{reason}: {message}"),
    })
}

/// Finds the containers of windlass.
///
/// # Errors
/// Pods cannot be listed.
pub async fn of_windlass(site: &CommandScope, namespace: &str) -> anyhow::Result<LoggedContainers> {
    let mut found = LoggedContainers::default();
    let pods = pods(site, namespace, OURS, &mut found).await?;
    pods.iter().for_each(|pod| found.add(pod));
    Ok(found.ended().only(MANAGER))
}

/// Finds the containers of the Pods of an object, or of the Pods of its applied objects.
///
/// # Errors
/// The API server did not respond.
pub async fn of_object(site: &CommandScope, object: Object) -> anyhow::Result<LoggedContainers> {
    let mut found = LoggedContainers::default();
    let mut seen = BTreeSet::from([object.id()]);
    let mut pending = VecDeque::from([object]);
    while let Some(object) = pending.pop_front() {
        let id = object.id();
        let mut ids = Vec::new();
        match (id.group.as_str(), id.kind.as_str()) {
            ("", "Pod") => found.add(&object),
            ("batch", "CronJob") => pending.extend(jobs(site, &id, &mut found).await?),
            _ if object_references::is_reconciled(&id) => {
                let elsewhere = object_references::in_contexts(&object).len()
                    + if object_references::is_elsewhere(&object) {
                        object_references::applied(&object).len()
                    } else {
                        0
                    };
                if elsewhere > 0 {
                    let text = format!("{elsewhere} objects of {} in other clusters", id.subject());
                    found.left_out.push(text);
                }
                if !object_references::is_elsewhere(&object) {
                    ids = object_references::applied(&object);
                }
            }
            _ => {
                if let Some(selector) = cause::pod::selector(&object) {
                    let pods = pods(site, &id.namespace, &selector, &mut found).await?;
                    let pods = owned_pods::owned(&site.cluster, &object, pods).await;
                    pods.iter().for_each(|pod| found.add(pod));
                }
            }
        }
        ids.retain(|id| may_have_pods(id) && seen.insert(id.clone()));
        let over = ids.len().saturating_sub(MOST_OBJECTS.saturating_sub(seen.len() - ids.len()));
        ids.truncate(ids.len() - over);
        if over > 0 {
            found.left_out.push(format!("{over} more objects of {}", id.subject()));
        }
        pending.extend(read(site, ids, &mut found).await);
    }
    Ok(found.ended())
}

/// Whether a kind may have Pods. Built-in kinds without Pods are not read.
fn may_have_pods(id: &ObjectId) -> bool {
    match id.group.as_str() {
        "" => matches!(id.kind.as_str(), "Pod" | "ReplicationController"),
        "policy" | "autoscaling" => false,
        group => !group.ends_with(".k8s.io"),
    }
}

async fn read(
    site: &CommandScope,
    ids: Vec<ObjectId>,
    found: &mut LoggedContainers,
) -> Vec<Object> {
    let reads = ids.into_iter().map(|id| async {
        let read = cause_facts::read(&site.cluster, &id).await;
        (id, read)
    });
    let mut objects = Vec::new();
    let all: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
    for (id, read) in all {
        match read {
            Ok(object) => objects.extend(object),
            Err(error) => found.left_out.push(format!("{}: {error}", id.subject())),
        }
    }
    objects
}

/// The Pods that match a selector.
async fn pods(
    site: &CommandScope,
    namespace: &str,
    selector: &str,
    found: &mut LoggedContainers,
) -> anyhow::Result<Vec<Object>> {
    let resource = site.cluster.resource(&Gvk::new("v1", "Pod")).await?;
    let target = ResourceArgument { resource, namespace: Some(namespace.to_owned()), name: None };
    let mut pods = Vec::new();
    let left_out = site.list(&target, selector, |page| {
        pods.extend(page);
        Ok(())
    });
    found.left_out.extend(left_out.await?);
    Ok(pods)
}

/// The Jobs of a CronJob.
async fn jobs(
    site: &CommandScope,
    owner: &ObjectId,
    found: &mut LoggedContainers,
) -> anyhow::Result<Vec<Object>> {
    let resource = site.cluster.resource(&Gvk::new("batch/v1", "Job")).await?;
    let target =
        ResourceArgument { resource, namespace: Some(owner.namespace.clone()), name: None };
    let mut jobs = Vec::new();
    let left_out = site.list(&target, "", |listed| {
        jobs.extend(
            listed
                .into_iter()
                .filter(|it| object_references::controller(it).as_ref() == Some(owner)),
        );
        Ok(())
    });
    found.left_out.extend(left_out.await?);
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_that_have_not_started_are_named_with_the_reason() {
        let state = |name: &str, state: Value, last: Value| json!({"name": name, "state": state, "lastState": last});
        let pod = Object::new(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "apps"},
            "spec": {"initContainers": [{"name": "init"}],
                "containers": [{"name": "app"}, {"name": "crashed"}, {"name": "side"}, {"name": "new"}]},
            "status": {"initContainerStatuses": [state("init", json!({"terminated": {"exitCode": 0}}), json!({}))],
                "containerStatuses": [
                    state("app", json!({"running": {}}), json!({})),
                    state("crashed", json!({"waiting": {"reason": "CrashLoopBackOff"}}), json!({"terminated": {}})),
                    state("side", json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}}), json!({})),
                ]}}))
        .unwrap();
        let mut found = LoggedContainers::default();
        found.add(&pod);
        let names: Vec<&str> = found.containers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["init", "app", "crashed"]);
        assert_eq!(
            found.silent,
            [
                "Pod/apps/web-1: container 'side' has printed nothing: ErrImagePull: not found",
                "Pod/apps/web-1: container 'new' has printed nothing: it has not started",
            ]
        );
        assert_eq!(found.only("app").containers.len(), 1);
    }

    #[test]
    fn too_many_containers_are_left_out_and_counted() {
        let names: Vec<Value> = (0..70).map(|at| json!({"name": format!("c{at}")})).collect();
        let running = |it: &Value| json!({"name": it["name"], "state": {"running": {}}});
        let statuses: Vec<Value> = names.iter().map(running).collect();
        let pod = Object::new(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": names}, "status": {"containerStatuses": statuses}}))
        .unwrap();
        let mut found = LoggedContainers::default();
        found.add(&pod);
        let found = found.ended();
        assert_eq!(found.containers.len(), MOST_CONTAINERS);
        assert!(found.left_out[0].starts_with("6 more containers"), "{:?}", found.left_out);
    }

    #[test]
    fn kinds_without_pods_are_not_read() {
        let may = |group: &str, kind: &str| may_have_pods(&ObjectId::new("a", "b", group, kind));
        assert!(may("apps", "Deployment") && may("", "Pod") && may("argoproj.io", "Rollout"));
        assert!(!may("", "ConfigMap") && !may("rbac.authorization.k8s.io", "Role"));
    }
}
